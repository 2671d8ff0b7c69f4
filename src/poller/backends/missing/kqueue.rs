//! Placeholder for `kqueue.rs` where there is no kqueue.

use std::io;

use crate::poller::Selector;
use crate::poller::error::unsupported;

pub(in crate::poller) const IS_BUILT: bool = false;

pub(in crate::poller) fn open() -> io::Result<Box<dyn Selector>> {
    Err(unsupported("a kqueue"))
}
