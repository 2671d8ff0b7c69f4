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

use super::poll::{entry, poll, report};
use super::table::{PollSet, Report, TablePoller};
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
    /// Readable, writable, priority. The readable set includes the `hidden`.
    interest: [Vec<FdSetElement>; 3],
    /// Descriptors asked for writing and not for reading, but put among the readable.
    hidden: Vec<FdSetElement>,
    /// Number of descriptors asked for writing.
    writers: usize,
    /// Hidden descriptors that have shown as readable, and have not hung up.
    unread: Vec<RawFd>,
    result: [Vec<FdSetElement>; 3],
    /// Descriptors found closed after a call has failed for that reason.
    closed: Vec<RawFd>,
    /// One more than the highest descriptor asked for.
    bound: RawFd,
    /// The descriptor that the next round of reports begins with.
    cursor: RawFd,
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

impl FdSets {
    /// Returns the descriptors that are asked for, in any way.
    fn descriptors(&self) -> Vec<RawFd> {
        let is_asked_for = |number: &RawFd| self.interest.iter().any(|set| contains(set, *number));
        (0..self.bound).filter(is_asked_for).collect()
    }

    /// Corrects the reports of writers as readers: a writer that has hung up is writable. Returns
    /// `false` if nothing is left of the result.
    fn correct_hang_ups(&mut self) -> io::Result<bool> {
        let [readable, writable, _] = &self.result;
        let asked = &self.interest[1];
        let doubtful: Vec<RawFd> = FdSetIter::new(readable)
            .filter(|number| contains(asked, *number) && !contains(writable, *number))
            .collect();
        for number in doubtful {
            // SAFETY: as in `poll`.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
            let revents = crate::sys::poll_now(&descriptor, PollFlags::empty())
                .map_err(|error| failed("poll", error))?;
            if !revents.is_empty() {
                fd_set_insert(&mut self.result[1], number);
            } else if contains(&self.hidden, number) {
                fd_set_remove(&mut self.result[0], number);
                self.unread.push(number);
            }
        }
        let mut said = self.result.iter();
        Ok(said.any(|said| FdSetIter::new(said).next().is_some()))
    }

    /// [`poll`](PollSet::poll), implemented by poll(2).
    fn poll_by_poll(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        for said in &mut self.result {
            said.fill(FdSetElement::default());
        }
        let descriptors = self.descriptors();
        let mut fds: Vec<PollFd<'static>> = (descriptors.iter())
            .map(|number| {
                let mut interest = Interest::NONE;
                for (asked, (part, _)) in self.interest.iter().zip(PARTS) {
                    if contains(asked, *number) {
                        interest |= part;
                    }
                }
                if contains(&self.hidden, *number) {
                    interest -= Interest::READABLE;
                }
                entry(*number, interest)
            })
            .collect();
        let reported = poll(&mut fds, timeout).map_err(|error| failed("poll", error))?;
        for (number, revents) in descriptors.iter().zip(fds.iter().map(PollFd::revents)) {
            let Report { ready, is_closed } = report(revents);
            if is_closed {
                self.closed.push(*number);
                continue;
            }
            for (said, (_, part)) in self.result.iter_mut().zip(PARTS) {
                if ready | part == ready {
                    fd_set_insert(said, *number);
                }
            }
        }
        Ok(reported > 0)
    }
}

fn contains(set: &[FdSetElement], number: RawFd) -> bool {
    // rustix gives no access to single bits; the cheapest way is to iterate over the members of one
    // element.
    let bits = size_of::<FdSetElement>() * 8;
    let element = number as usize / bits;
    set.get(element..element + 1)
        .is_some_and(|one| FdSetIter::new(one).any(|bit| bit as usize == number as usize % bits))
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
        let (mut put_in, mut hidden) = (interest, Interest::NONE);
        if HIDES_HANG_UPS {
            let before = contains(&self.interest[1], number);
            let writes = interest.contains(Interest::WRITABLE);
            self.writers = self.writers + usize::from(writes) - usize::from(before);
            if writes && !interest.contains(Interest::READABLE) {
                (put_in, hidden) = (interest | Interest::READABLE, Interest::READABLE);
            }
            put(&mut self.hidden, number, hidden, Interest::READABLE);
            self.unread.retain(|unread| *unread != number);
        }
        for (set, (part, _)) in self.interest.iter_mut().zip(PARTS) {
            put(set, number, put_in, part);
        }
        if !interest.is_empty() {
            self.bound = self.bound.max(number + 1);
        } else if number + 1 == self.bound {
            self.bound = (self.interest.iter())
                .map(|set| rustix::event::fd_set_bound(set))
                .max()
                .unwrap_or(0);
        }
    }

    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        self.closed.clear();
        for (said, asked) in self.result.iter_mut().zip(&self.interest) {
            said.clone_from(asked);
        }
        if !self.unread.is_empty() {
            return self.poll_by_poll(timeout);
        }
        let timeout = timeout.map(timespec);
        let [read, write, priority] = &mut self.result;
        // SAFETY: the sets hold the registered descriptors. The caller that registered them ensures
        // that they are open, or that polling them is allowed: "Why `register` is unsafe" in the
        // module above.
        let result = unsafe {
            rustix::event::select(
                self.bound,
                Some(read),
                Some(write),
                Some(priority),
                timeout.as_ref(),
            )
        };
        match result {
            Ok(0) => Ok(false),
            Ok(_) if HIDES_HANG_UPS && self.writers > 0 => {
                if self.correct_hang_ups()? {
                    Ok(true)
                } else {
                    Err(Errno::INTR.into())
                }
            }
            Ok(_) => Ok(true),
            Err(Errno::BADF) => {
                let is_closed = |number: &RawFd| {
                    // SAFETY: as above; this only checks whether it is open.
                    let descriptor = unsafe { BorrowedFd::borrow_raw(*number) };
                    rustix::io::fcntl_getfd(descriptor) == Err(Errno::BADF)
                };
                self.closed = self.descriptors();
                self.closed.retain(is_closed);
                for said in &mut self.result {
                    said.fill(FdSetElement::default());
                }
                if self.closed.is_empty() {
                    // It was closed and reopened meanwhile, or is no longer asked for.
                    Err(Errno::INTR.into())
                } else {
                    Ok(true)
                }
            }
            Err(error) => Err(failed("select", error)),
        }
    }

    fn is_ready(&self, number: RawFd) -> bool {
        self.result.iter().any(|set| contains(set, number))
    }

    fn for_each_ready(&mut self, f: &mut dyn FnMut(RawFd, Report) -> bool) {
        for number in &self.closed {
            let report = Report {
                ready: Ready::READABLE | Ready::WRITABLE | Ready::ERROR,
                is_closed: true,
            };
            if !f(*number, report) {
                return; // The next call fails for the same reason.
            }
        }
        // The three sets in parallel, element by element. The first element is visited twice: for
        // the bits from the cursor on and, at the end, for the bits before it.
        let bits = size_of::<FdSetElement>() * 8;
        let elements = rustix::event::fd_set_num_elements(1, self.bound);
        let cursor = if self.cursor < self.bound {
            self.cursor as usize
        } else {
            0
        };
        for step in 0..=elements {
            let element = (cursor / bits + step) % elements.max(1);
            let wanted = match step {
                0 => cursor % bits..bits,
                _ if step == elements => 0..cursor % bits,
                _ => 0..bits,
            };
            let mut ready = [Ready::default(); 64];
            let mut any = false;
            for (said, (_, part)) in self.result.iter().zip(PARTS) {
                for bit in FdSetIter::new(said.get(element..element + 1).unwrap_or_default()) {
                    ready[bit as usize] |= part;
                    any = true;
                }
            }
            if !any {
                continue;
            }
            for bit in wanted {
                let number = (element * bits + bit) as RawFd;
                let ready = ready[bit];
                let is_closed = false;
                if ready != Ready::default() && !f(number, Report { ready, is_closed }) {
                    self.cursor = number;
                    return;
                }
            }
        }
    }
}
