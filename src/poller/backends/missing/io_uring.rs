//! Placeholder for `io_uring.rs` where no ring is built.

use std::io;

use crate::poller::error::unsupported;
use crate::poller::{Events, Ready, Selector, Token};

pub(in crate::poller) const IS_BUILT: bool = false;

pub(in crate::poller) enum Uring {}

pub(in crate::poller) fn is_available() -> bool {
    false
}

impl Uring {
    pub(in crate::poller) fn new() -> io::Result<Uring> {
        Err(unsupported("a ring"))
    }

    pub(in crate::poller) fn selector(&self) -> &(dyn Selector + 'static) {
        match *self {}
    }

    pub(in crate::poller) fn has_submissions(&self) -> bool {
        match *self {}
    }

    pub(in crate::poller) fn wait_without_deadline(
        &self,
        _: &mut Events,
        _: bool,
        _: impl FnMut(Token, Ready),
    ) -> io::Result<()> {
        match *self {}
    }
}
