//! Placeholder for `io_uring.rs` where no ring is built.

use std::io;

use crate::poller::capabilities::Capabilities;
use crate::poller::error::unsupported;
use crate::poller::event::Events;
use crate::poller::selector::{Change, Selector, WaitUntil};
use crate::sys::BorrowedDescriptor;

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

impl Selector for Uring {
    fn capabilities(&self) -> Capabilities {
        match *self {}
    }

    fn change(&self, _: BorrowedDescriptor<'_>, _: Change) -> io::Result<()> {
        match *self {}
    }

    fn wait(&self, _: &mut Events, _: WaitUntil) -> io::Result<bool> {
        match *self {}
    }

    fn notify(&self) -> io::Result<()> {
        match *self {}
    }
}
