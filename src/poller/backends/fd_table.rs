//! The table of descriptors, by number, for kernels that keep none, or that accept changes which
//! the contract refuses: it checks that a descriptor is registered once, and before other changes.

use std::io;
use std::os::fd::RawFd;

use crate::poller::error::{not_registered, registered_already};
use crate::poller::event::{Interest, Mode, Token};
use crate::poller::selector::{Change, Request};
use crate::slab::shrink;

#[derive(Default)]
pub(super) struct FdTable<T> {
    /// By descriptor number; the kernel hands out the lowest free one, so this stays dense.
    pub(super) all: Vec<FdEntry<T>>,
    /// Numbers of the entries that have `changed` set, each once.
    pub(super) changed: Vec<RawFd>,
}

#[derive(Clone, Copy)]
pub(super) struct FdEntry<T> {
    /// The last request; [`UNREGISTERED`] after it was deregistered, but not if the poller itself
    /// removed it, as for a closed descriptor.
    pub(super) request: Request,
    pub(super) registered: bool,
    pub(super) changed: bool,
    #[allow(
        dead_code,
        reason = "poll and select keep nothing, and some systems have only these"
    )]
    pub(super) data: T,
}

const UNREGISTERED: Request = Request {
    token: Token(0),
    interest: Interest::NONE,
    mode: Mode::OneShot,
};

impl<T: Copy + Default + PartialEq> FdTable<T> {
    pub(super) fn check(&self, number: RawFd, change: Change) -> io::Result<()> {
        let entry = self.all.get(number as usize);
        let is_registered = entry.is_some_and(|entry| entry.registered);
        match change {
            Change::Register(_) if is_registered => Err(registered_already()),
            Change::Modify(_) | Change::Deregister if !is_registered => Err(not_registered()),
            _ => Ok(()),
        }
    }

    /// Makes a change, which was [checked](Self::check).
    pub(super) fn change(&mut self, number: RawFd, change: Change) -> &mut FdEntry<T> {
        let index = number as usize;
        if index >= self.all.len() {
            let unused = FdEntry {
                request: UNREGISTERED,
                registered: false,
                changed: false,
                data: T::default(),
            };
            self.all.resize(index + 1, unused);
        }
        let entry = &mut self.all[index];
        (entry.request, entry.registered) = match change {
            Change::Register(request) | Change::Modify(request) => (request, true),
            Change::Deregister => (UNREGISTERED, false),
        };
        entry
    }

    /// Frees the unused entries at the end. The kernel hands out their numbers last.
    pub(super) fn trim(&mut self) {
        let is_unused =
            |entry: &FdEntry<T>| !entry.registered && !entry.changed && entry.data == T::default();
        while self.all.last().is_some_and(is_unused) {
            self.all.pop();
        }
        shrink(&mut self.all);
        shrink(&mut self.changed);
    }

    pub(super) fn mark_changed(&mut self, number: RawFd) {
        let entry = &mut self.all[number as usize];
        if !entry.changed {
            entry.changed = true;
            self.changed.push(number);
        }
    }
}
