//! `select(2)`: every Unix but illumos and Solaris, where `select` is limited to `FD_SETSIZE` in
//! every case. Level and one-shot, by an [interest table](super::table).
//!
//! Traps:
//!
//! * `FD_SETSIZE` is libc's limit, not the kernel's: the kernels of Linux, Apple and the BSDs take
//!   longer sets (rustix calls Apple's function that does), so the sets are as long as necessary.
//! * A single closed descriptor makes the whole call fail with `EBADF`. Then each is checked
//!   separately, and those that are not open are reported as closed.
//! * The third set means urgent data (and on some systems more): a hint. There is none for hang-up
//!   or error; both show as readable and writable.
//! * But on Linux a hang-up shows only as readable (`POLLIN_SET` and `POLLOUT_SET` in fs/select.c).
//!   So a writer would wait for ever if its peer has shut down both directions, but keeps its
//!   descriptor open. So a writer is also put among the readers; if it shows there, poll(2)
//!   determines whether it hung up. If it has not, there are unread bytes, and select would report
//!   them again and again: as long as there is such a writer, all descriptors are waited for by
//!   poll(2).

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use rustix::event::{FdSetElement, FdSetIter, PollFd, PollFlags, fd_set_insert, fd_set_remove};
use rustix::io::Errno;

use super::poll::{entry, poll};
use super::table::{self, PollSet, Report, TablePoller};
use crate::poller::error::failed;
use crate::poller::{Interest, Ready, Selector};
use crate::sys::timespec;

/// Opens the backend.
pub(in crate::poller) fn open() -> io::Result<Box<dyn Selector>> {
    Ok(Box::new(TablePoller::new(Box::<FdSets>::default())?))
}

/// Three bit sets, and three more for the result.
#[derive(Default)]
pub(super) struct FdSets {
    /// By descriptor number; the last one is not empty.
    interests: Vec<Interest>,
    /// Readable, writable, priority. The readable set includes the [hidden](is_hidden) writers.
    asked: [Vec<FdSetElement>; 3],
    /// Number of descriptors asked for writing.
    writers: usize,
    /// Hidden writers that have shown as readable, and have not hung up.
    unread: Vec<RawFd>,
    result: [Vec<FdSetElement>; 3],
}

/// Whether a hang-up does not show as writable.
const HIDES_HANG_UPS: bool = cfg!(any(target_os = "linux", target_os = "android"));

const PARTS: [(Interest, Ready); 3] = [
    (Interest::READABLE, Ready::READABLE),
    (Interest::WRITABLE, Ready::WRITABLE),
    (
        Interest::PRIORITY,
        Ready(Ready::READABLE.0 | Ready::PRIORITY.0),
    ),
];

/// Whether a descriptor is asked for writing and not for reading, but put among the readable.
fn is_hidden(interest: Interest) -> bool {
    HIDES_HANG_UPS && interest.is_writable() && !interest.is_readable()
}

impl FdSets {
    /// Returns the descriptors that are asked for, in any way, and their interests.
    fn descriptors(&self) -> impl Iterator<Item = (RawFd, Interest)> {
        let all = (0..).zip(self.interests.iter().copied());
        all.filter(|(_, interest)| !interest.is_empty())
    }

    /// Turns the three sets of the result into one report for each descriptor.
    fn report(&mut self, reports: &mut Vec<Report>) -> io::Result<()> {
        for (set, (_, ready)) in self.result.iter().zip(PARTS) {
            reports.extend(FdSetIter::new(set).map(|number| Report {
                number,
                ready,
                is_closed: false,
            }));
        }
        table::sort(reports);
        reports.dedup_by(|next, report| {
            let is_same = next.number == report.number;
            if is_same {
                report.ready |= next.ready;
            }
            is_same
        });
        if HIDES_HANG_UPS && self.writers > 0 {
            self.correct_hang_ups(reports)?;
        }
        if reports.is_empty() {
            // A hidden writer was the only one.
            return Err(Errno::INTR.into());
        }
        Ok(())
    }

    /// Corrects the reports of writers as readers: a writer that has hung up is writable.
    fn correct_hang_ups(&mut self, reports: &mut Vec<Report>) -> io::Result<()> {
        let mut result = Ok(());
        reports.retain_mut(|report| {
            let number = report.number;
            let interest = self.interests[number as usize];
            if !interest.is_writable() || report.ready.intersects(Ready::WRITABLE) {
                return true;
            }
            // SAFETY: as in `poll`.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
            match crate::sys::poll_now(&descriptor, PollFlags::empty()) {
                Ok(revents) if revents.is_empty() => {
                    let is_unread =
                        is_hidden(interest) && !report.ready.intersects(Ready::PRIORITY);
                    if is_unread {
                        self.unread.push(number);
                    }
                    !is_unread
                }
                Ok(_) => {
                    report.ready |= Ready::WRITABLE;
                    true
                }
                Err(error) => {
                    result = Err(failed("poll", error));
                    true
                }
            }
        });
        result
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

/// Puts a descriptor into the set for `part` of its interest, or takes it out. The three sets grow
/// alike, because the kernel assumes that they have the same length.
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
    // `pselect6` on Linux; elsewhere `select`, which takes microseconds.
    fn granularity(&self) -> Duration {
        if cfg!(any(target_os = "linux", target_os = "android")) {
            Duration::from_nanos(1)
        } else {
            Duration::from_micros(1)
        }
    }

    fn hints(&self) -> bool {
        false
    }

    fn set(&mut self, number: RawFd, interest: Interest) {
        let index = number as usize;
        if index >= self.interests.len() {
            self.interests.resize(index + 1, Interest::NONE);
        }
        let before = std::mem::replace(&mut self.interests[index], interest);
        while (self.interests.last()).is_some_and(|last| last.is_empty()) {
            self.interests.pop();
        }
        let [before, after] = [before, interest].map(|it| usize::from(it.is_writable()));
        self.writers = self.writers + after - before;
        self.unread.retain(|unread| *unread != number);
        let mut asked = interest;
        if is_hidden(interest) {
            asked |= Interest::READABLE;
        }
        for (set, (part, _)) in self.asked.iter_mut().zip(PARTS) {
            put(set, number, asked, part);
        }
    }

    fn poll(&mut self, timeout: Option<Duration>, reports: &mut Vec<Report>) -> io::Result<()> {
        if !self.unread.is_empty() {
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
            Ok(_) => self.report(reports),
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
                    // It was closed and reopened meanwhile, or is no longer asked for.
                    return Err(Errno::INTR.into());
                }
                Ok(())
            }
            Err(error) => Err(failed("select", error)),
        }
    }
}
