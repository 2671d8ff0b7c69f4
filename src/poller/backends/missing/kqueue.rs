//! Placeholder for `kqueue.rs` where there is no kqueue.

use std::io;

use crate::poller::error::unsupported;
use crate::poller::selector::Selector;

pub(in crate::poller) const IS_BUILT: bool = false;

pub(in crate::poller) fn open() -> io::Result<Box<dyn Selector>> {
    Err(unsupported("a kqueue"))
}
