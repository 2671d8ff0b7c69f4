//! The select backend: every Unix but illumos and Solaris, whose `select` is limited to
//! `FD_SETSIZE`. Level and one-shot, by an [interest table](super::table).
//!
//! Traps:
//!
//! * `FD_SETSIZE` is libc's limit, not the kernel's: the kernels of Linux, Apple and the BSDs take
//!   longer sets (rustix calls Apple's function that does).
//! * A closed descriptor makes the whole call fail with `EBADF`. Then each is checked separately,
//!   and reported as closed if it is not open.
//! * The third set means urgent data (and on some systems more): a hint. Hang-up and error have no
//!   hint; both show as readable and writable.
//! * But on Linux a hang-up shows only as readable (`POLLIN_SET` and `POLLOUT_SET` in fs/select.c):
//!   a writer would wait forever for a peer that has shut down both directions without closing. So
//!   there, as long as a descriptor is registered for writing, all are polled by poll(2).

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use rustix::event::{FdSetElement, FdSetIter, PollFd, fd_set_insert, fd_set_remove};
use rustix::io::Errno;

use super::poll::{entry, poll, try_poll};
use super::table::{PollSet, Report, TablePoller};
use crate::poller::capabilities::Capabilities;
use crate::poller::error::{failed, tried};
use crate::poller::event::{Interest, Ready};
use crate::poller::selector::Selector;
use crate::sys::timespec;

pub(in crate::poller) fn open() -> io::Result<Box<dyn Selector>> {
    let capabilities = Capabilities {
        edge: false,
        hints: false,
        priority: false,
        descriptor: false,
        // `pselect6` on Linux; elsewhere `select`, which takes microseconds.
        granularity: Duration::from_nanos(if IS_LINUX { 1 } else { 1_000 }),
        ..Capabilities::ALL
    };
    let mut sets = Box::<FdSets>::default();
    // See `try_poll`.
    if !cfg!(miri) {
        tried(sets.poll(Some(Duration::ZERO), &mut Vec::new()))?;
    }
    if IS_LINUX {
        try_poll()?; // For writers.
    }
    let selector = TablePoller::new(sets, capabilities)?;
    Ok(Box::new(selector))
}

#[derive(Default)]
pub(super) struct FdSets {
    interests: Vec<Interest>,
    asked: [Vec<FdSetElement>; 3],
    result: [Vec<FdSetElement>; 3],
    /// The result of select(2), by descriptor number; empty between two reports.
    found: Vec<Ready>,
}

const IS_LINUX: bool = cfg!(any(target_os = "linux", target_os = "android"));

const PARTS: [(Interest, Ready); 3] = [
    (Interest::READABLE, Ready::READABLE),
    (Interest::WRITABLE, Ready::WRITABLE),
    (
        Interest::PRIORITY,
        Ready(Ready::READABLE.0 | Ready::PRIORITY.0),
    ),
];

impl FdSets {
    fn descriptors(&self) -> impl Iterator<Item = (RawFd, Interest)> {
        let all = (0..).zip(self.interests.iter().copied());
        all.filter(|(_, interest)| !interest.is_empty())
    }

    fn report(&mut self, reports: &mut Vec<Report>) {
        self.found.resize(self.interests.len(), Ready::default());
        for (set, (_, ready)) in self.result.iter().zip(PARTS) {
            FdSetIter::new(set).for_each(|number| self.found[number as usize] |= ready);
        }
        let found = (0..).zip(self.found.drain(..));
        let found = found.filter(|(_, ready)| *ready != Ready::default());
        reports.extend(found.map(|(number, ready)| Report {
            number,
            ready,
            is_closed: false,
        }));
    }

    /// [`poll`](PollSet::poll), implemented by poll(2).
    fn poll_by_poll(&self, timeout: Option<Duration>, reports: &mut Vec<Report>) -> io::Result<()> {
        let mut fds: Vec<PollFd<'static>> = (self.descriptors())
            .map(|(number, interest)| entry(number, interest))
            .collect();
        poll(&mut fds, timeout, reports)?;
        for report in reports.iter_mut().filter(|report| !report.is_closed) {
            // Select gives no other hints.
            report.ready.0 &= !(Ready::CLOSED | Ready::ERROR).0;
        }
        Ok(())
    }
}

/// The three sets grow alike, because the kernel assumes that they have the same length.
#[inline(never)] // Not three times over.
fn put(set: &mut Vec<FdSetElement>, number: RawFd, interest: Interest, part: Interest) {
    let elements = rustix::event::fd_set_num_elements(1, number + 1);
    if set.len() < elements {
        if interest.is_empty() {
            return;
        }
        set.resize(elements.next_power_of_two(), FdSetElement::default());
    }
    if interest.contains(part) {
        fd_set_insert(set, number);
    } else {
        fd_set_remove(set, number);
    }
}

impl PollSet for FdSets {
    fn set(&mut self, number: RawFd, interest: Interest) {
        let index = number as usize;
        if index >= self.interests.len() {
            self.interests.resize(index + 1, Interest::NONE);
        }
        self.interests[index] = interest;
        while (self.interests.last()).is_some_and(|last| last.is_empty()) {
            self.interests.pop();
        }
        for (set, (part, _)) in self.asked.iter_mut().zip(PARTS) {
            put(set, number, interest, part);
        }
    }

    fn poll(&mut self, timeout: Option<Duration>, reports: &mut Vec<Report>) -> io::Result<()> {
        let has_writer = || (self.interests.iter()).any(|interest| interest.is_writable());
        if IS_LINUX && has_writer() {
            return self.poll_by_poll(timeout, reports);
        }
        for (said, asked) in self.result.iter_mut().zip(&self.asked) {
            said.clone_from(asked);
        }
        let timeout = timeout.map(timespec);
        let [read, write, priority] = &mut self.result;
        // SAFETY: the sets hold the registered descriptors. The caller that registered them ensures
        // that they are open, or that polling them is allowed: "Why `register` is unsafe" in the
        // module above.
        let result = unsafe {
            rustix::event::select(
                self.interests.len() as RawFd,
                Some(read),
                Some(write),
                Some(priority),
                timeout.as_ref(),
            )
        };
        match result {
            Ok(0) => Ok(()),
            Ok(_) => {
                self.report(reports);
                Ok(())
            }
            Err(Errno::BADF) => {
                let closed = self.descriptors().filter(|(number, _)| {
                    // SAFETY: as above; this only checks whether it is open.
                    let descriptor = unsafe { BorrowedFd::borrow_raw(*number) };
                    rustix::io::fcntl_getfd(descriptor) == Err(Errno::BADF)
                });
                reports.extend(closed.map(|(number, _)| Report {
                    number,
                    ready: Ready::READABLE | Ready::WRITABLE | Ready::ERROR,
                    is_closed: true,
                }));
                if reports.is_empty() {
                    // It was closed and reopened meanwhile, or is no longer polled.
                    return Err(Errno::INTR.into());
                }
                Ok(())
            }
            Err(error) => Err(failed(if IS_LINUX { "pselect6" } else { "select" }, error)),
        }
    }
}
