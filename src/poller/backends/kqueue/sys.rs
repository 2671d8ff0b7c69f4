//! Bindings of `kqueue` and `kevent`, or of the tests' model on Linux. rustix's interface supports
//! neither `fflags` nor timers below a millisecond.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::time::Duration;

#[cfg(not(polder_kqueue_model))]
use rustix::event::kqueue::kqueue;
use rustix::io::{Errno, FdFlags};

#[cfg(polder_kqueue_model)]
use super::flavours;
use crate::poller::error::failed;
#[cfg(polder_kqueue_model)]
use model::kqueue;

/// Not in the published package.
#[cfg(polder_kqueue_model)]
#[path = "../../../../tests/kqueue/model.rs"]
pub(super) mod model;

#[cfg(not(polder_kqueue_model))]
pub(super) use libc as ffi;
#[cfg(polder_kqueue_model)]
pub(super) use model as ffi;

pub(super) use ffi::{
    EV_ADD, EV_CLEAR, EV_DELETE, EV_EOF, EV_ONESHOT, EV_RECEIPT, EVFILT_READ, EVFILT_TIMER,
    EVFILT_WRITE, kevent as Kevent,
};

#[cfg(not(target_os = "netbsd"))]
pub(super) type Filter = i16;
#[cfg(target_os = "netbsd")]
pub(super) type Filter = u32;
#[cfg(not(target_os = "netbsd"))]
pub(super) type Flags = u16;
#[cfg(target_os = "netbsd")]
pub(super) type Flags = u32;

/// The filter for notifications, and the flag that triggers it. NetBSD has it since 10, OpenBSD
/// since 7.8.
#[cfg(not(target_os = "openbsd"))]
pub(super) const USER: Option<(Filter, u32)> = Some((ffi::EVFILT_USER, ffi::NOTE_TRIGGER));
#[cfg(target_os = "openbsd")]
pub(super) const USER: Option<(Filter, u32)> = None;

/// Whether the write filter of a full pipe reports nothing when the reader closes. A pipe that
/// closes activates the write filters of its other end before it is marked as closed (`pipeclose`
/// in NetBSD's sys/kern/sys_pipe.c, seen on 7.99.34; `pipe_destroy` in OpenBSD's), and their read
/// filters after that.
pub(super) fn full_pipe_tells_no_end() -> bool {
    #[cfg(polder_kqueue_model)]
    return !flavours::here().full_pipe_tells_end;
    #[cfg(not(polder_kqueue_model))]
    cfg!(any(target_os = "netbsd", target_os = "openbsd"))
}

#[cfg(test)]
thread_local! {
    /// How many calls of `kevent` this thread has made.
    pub(super) static CALLS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

pub(super) struct Queue(OwnedFd);

impl Queue {
    /// A forked child inherits no kqueue, so only an `exec` in this very process could keep it:
    /// nothing leaks between the two calls.
    pub(super) fn new() -> io::Result<Queue> {
        let queue = kqueue().map_err(|error| failed("kqueue", error))?;
        rustix::io::fcntl_setfd(&queue, FdFlags::CLOEXEC)?;
        Ok(Queue(queue))
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Waits for events if there is room left after the receipts.
    pub(super) fn kevent(
        &self,
        changes: &[Kevent],
        events: &mut [Kevent],
        timeout: Option<Duration>,
    ) -> Result<usize, Errno> {
        #[cfg(test)]
        CALLS.set(CALLS.get() + 1);
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs() as _,
            tv_nsec: timeout.subsec_nanos() as _,
        });
        // SAFETY: both lists have the given lengths, and the kernel writes only to the second. The
        // caller that registers a descriptor is responsible for it.
        let count = unsafe {
            ffi::kevent(
                self.0.as_raw_fd(),
                changes.as_ptr(),
                changes.len() as _,
                events.as_mut_ptr(),
                events.len() as _,
                timeout.as_ref().map_or(ptr::null(), ptr::from_ref),
            )
        };
        usize::try_from(count).map_err(|_| last_error())
    }
}

#[cfg(polder_kqueue_model)]
impl Drop for Queue {
    fn drop(&mut self) {
        ffi::before_close(self.0.as_fd());
    }
}

fn last_error() -> Errno {
    let error = io::Error::last_os_error();
    Errno::from_io_error(&error).unwrap_or(Errno::INVAL)
}

pub(super) fn kevent_of(ident: usize, filter: Filter, flags: Flags, generation: usize) -> Kevent {
    // SAFETY: integers and a pointer, all of which may be zero.
    let mut kevent: Kevent = unsafe { MaybeUninit::zeroed().assume_init() };
    kevent.ident = ident;
    kevent.filter = filter;
    kevent.flags = flags;
    // A pointer, or an integer on NetBSD.
    kevent.udata = generation as _;
    kevent
}

pub(super) fn generation(kevent: &Kevent) -> usize {
    kevent.udata as usize
}

/// Returns the error number of a receipt; zero for none.
pub(super) fn error(receipt: &Kevent) -> i32 {
    receipt.data as i32
}

/// Makes `kevent` a timer: in nanoseconds if every version of the system supports them, otherwise
/// in milliseconds. NetBSD 9 takes nanoseconds for milliseconds.
pub(super) fn set_timer(kevent: &mut Kevent, left: Duration) {
    #[cfg(any(polder_kqueue_model, target_vendor = "apple", target_os = "freebsd"))]
    let (unit, count) = (ffi::NOTE_NSECONDS, left.as_nanos());
    #[cfg(not(any(polder_kqueue_model, target_vendor = "apple", target_os = "freebsd")))]
    let (unit, count) = (0, left.as_nanos().div_ceil(1_000_000));
    kevent.fflags = unit;
    // If that is too soon, the woken thread arms it again.
    kevent.data = count.clamp(1, isize::MAX as u128) as _;
}
