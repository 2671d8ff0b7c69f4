//! The poll backend: every Unix. Level and one-shot, by an [interest table](super::table).
//!
//! The call refuses more descriptors than `RLIMIT_NOFILE` (on macOS also more than `OPEN_MAX`),
//! even if they were opened before the limit was lowered. Then they are polled in parts: see
//! [`poll`].

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::table::{PollSet, Report, TablePoller};
use crate::poller::capabilities::Capabilities;
use crate::poller::error::{failed, tried};
use crate::poller::event::{Interest, Ready};
use crate::poller::selector::Selector;
use crate::slab::shrink;
use crate::sys::timespec;

/// Whether rustix calls `ppoll`. On NetBSD it does so if there is one: since 10.
const IS_EXACT: bool = cfg!(any(
    target_os = "linux",
    target_os = "android",
    target_os = "freebsd",
    target_os = "dragonfly"
));

pub(in crate::poller) fn open() -> io::Result<Box<dyn Selector>> {
    try_poll()?;
    let capabilities = Capabilities {
        edge: false,
        descriptor: false,
        granularity: Duration::from_nanos(if IS_EXACT { 1 } else { 1_000_000 }),
        ..Capabilities::ALL
    };
    let selector = TablePoller::new(Box::<PollFds>::default(), capabilities)?;
    Ok(Box::new(selector))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const READ_HANGUP: PollFlags = PollFlags::RDHUP;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const READ_HANGUP: PollFlags = PollFlags::empty();

/// Returns the flags to ask the kernel for. The kernel always adds hang-up and error.
pub(super) fn poll_flags(interest: Interest) -> PollFlags {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN | READ_HANGUP, interest.is_readable());
    flags.set(PollFlags::OUT, interest.is_writable());
    flags.set(PollFlags::PRI, interest.is_priority());
    flags
}

#[inline]
pub(super) fn ready(flags: PollFlags) -> Ready {
    let both = Ready::READABLE | Ready::WRITABLE;
    [
        (PollFlags::IN, Ready::READABLE),
        (PollFlags::OUT, Ready::WRITABLE),
        (READ_HANGUP, Ready::READABLE | Ready::CLOSED),
        (PollFlags::HUP, both | Ready::CLOSED),
        (PollFlags::ERR | PollFlags::NVAL, both | Ready::ERROR),
        (PollFlags::PRI, Ready::READABLE | Ready::PRIORITY),
    ]
    .into_iter()
    .filter(|(flag, _)| flags.intersects(*flag))
    .fold(Ready::default(), |all, (_, ready)| all | ready)
}

/// The armed descriptors, without gaps.
#[derive(Default)]
pub(super) struct PollFds {
    fds: Vec<PollFd<'static>>,
    /// By descriptor number: its index in `fds`, or [`ABSENT`].
    places: Vec<u32>,
}

const ABSENT: u32 = u32::MAX;

impl PollFds {
    fn trim(&mut self) {
        while self.places.last() == Some(&ABSENT) {
            self.places.pop();
        }
        shrink(&mut self.places);
        shrink(&mut self.fds);
    }
}

impl PollSet for PollFds {
    fn set(&mut self, number: RawFd, interest: Interest) {
        let index = number as usize;
        if index >= self.places.len() {
            if interest.is_empty() {
                return; // Registered and deregistered between two waits.
            }
            self.places.resize(index + 1, ABSENT);
        }
        let place = self.places[index];
        match (interest.is_empty(), place) {
            (false, ABSENT) => {
                self.places[index] = u32::try_from(self.fds.len()).expect("a descriptor fits");
                self.fds.push(entry(number, interest));
            }
            (false, place) => self.fds[place as usize] = entry(number, interest),
            (true, ABSENT) => {}
            (true, place) => {
                self.places[index] = ABSENT;
                self.fds.swap_remove(place as usize);
                if let Some(moved) = self.fds.get(place as usize) {
                    self.places[moved.as_fd().as_raw_fd() as usize] = place;
                }
                self.trim();
            }
        }
    }

    fn poll(&mut self, timeout: Option<Duration>, reports: &mut Vec<Report>) -> io::Result<()> {
        poll(&mut self.fds, timeout, reports)
    }
}

/// The maximum delay of an event outside the first part.
const NAP: Duration = Duration::from_millis(5);

/// Calls poll(2) with any number of descriptors.
///
/// If the kernel refuses that number, all are polled in parts without sleeping. If none is ready,
/// the first part, which should contain the notifier, is polled for at most a [`NAP`]; a longer
/// wait then ends with `INTR`, and the caller waits again. Nothing is lost, since these are levels.
pub(super) fn poll(
    fds: &mut [PollFd<'_>],
    timeout: Option<Duration>,
    reports: &mut Vec<Report>,
) -> io::Result<()> {
    let name = if IS_EXACT { "ppoll" } else { "poll" };
    let count = call(fds, timeout).map_err(|error| failed(name, error))?;
    let ready = fds.iter().filter(|fd| !fd.revents().is_empty());
    reports.extend(ready.take(count).map(report));
    Ok(())
}

/// See [`tried`].
pub(super) fn try_poll() -> io::Result<()> {
    if cfg!(miri) {
        return Ok(()); // It has no `ppoll`, and runs the tests that do not wait.
    }
    tried(poll(&mut [], Some(Duration::ZERO), &mut Vec::new()))
}

fn call(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<usize, Errno> {
    match rustix::event::poll(fds, timeout.map(timespec).as_ref()) {
        Err(Errno::INVAL) if fds.len() > 1 => poll_in_parts(fds, timeout),
        result => result,
    }
}

#[cold]
fn poll_in_parts(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<usize, Errno> {
    let mut reported = 0;
    let (first, others) = fds.split_at_mut(fds.len() / 2);
    for half in [&mut *first, others] {
        reported += call(half, Some(Duration::ZERO))?;
    }
    let nap = timeout.map_or(NAP, |timeout| timeout.min(NAP));
    if reported > 0 || nap.is_zero() {
        return Ok(reported);
    }
    match call(first, Some(nap))? {
        0 if timeout != Some(nap) => Err(Errno::INTR),
        reported => Ok(reported),
    }
}

pub(super) fn entry(number: RawFd, interest: Interest) -> PollFd<'static> {
    // SAFETY: the number is not -1, since it came from a borrowed descriptor. The caller that
    // registered it ensures that it is open, or that polling it is allowed: "Why `register` is
    // unsafe" in the module above.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    PollFd::from_borrowed_fd(descriptor, poll_flags(interest))
}

fn report(fd: &PollFd<'_>) -> Report {
    Report {
        number: fd.as_fd().as_raw_fd(),
        ready: ready(fd.revents()),
        is_closed: fd.revents().intersects(PollFlags::NVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An idle source costs the kernel nothing, and a change of one source does not touch the
    /// others.
    #[test]
    fn the_poll_set_holds_only_what_is_armed() {
        let mut list = PollFds::default();
        let numbers = |list: &PollFds| -> Vec<_> {
            list.fds.iter().map(|fd| fd.as_fd().as_raw_fd()).collect()
        };
        for number in 3..7 {
            list.set(number, Interest::READABLE);
        }
        list.set(4, Interest::NONE);
        assert_eq!(numbers(&list), [3, 6, 5]);
        list.set(6, Interest::WRITABLE);
        list.set(5, Interest::NONE);
        list.set(5, Interest::NONE);
        list.set(4, Interest::READABLE);
        assert_eq!(numbers(&list), [3, 6, 4]);
        assert_eq!(list.places[3..7], [0, 2, ABSENT, 1]);
        list.set(6, Interest::NONE);
        assert_eq!(list.places[3..], [0, 1], "to the last one that is polled");
        list.set(5_000, Interest::NONE);
        assert_eq!(list.places.len(), 5, "it was not polled");
    }
}
