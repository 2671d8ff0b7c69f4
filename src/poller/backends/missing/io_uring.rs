//! Placeholder for `io_uring.rs` where no ring is built.

use std::io;
use std::ops::Deref;

use crate::poller::error::unsupported;
use crate::poller::selector::Selector;

pub(in crate::poller) const IS_BUILT: bool = false;

pub(in crate::poller) enum Uring {}

pub(in crate::poller) fn is_available() -> bool {
    false
}

impl Uring {
    pub(in crate::poller) fn new() -> io::Result<Uring> {
        Err(unsupported("a ring"))
    }

    pub(in crate::poller) fn has_submissions(&self) -> bool {
        match *self {}
    }
}

impl Deref for Uring {
    type Target = dyn Selector;

    fn deref(&self) -> &Self::Target {
        match *self {}
    }
}
