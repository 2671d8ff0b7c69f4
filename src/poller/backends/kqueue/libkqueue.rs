//! [libkqueue](https://github.com/mheily/libkqueue), a `kqueue(2)` for Linux: so that the backend
//! is executed where most of polder is tested. Chosen by `--cfg polder_libkqueue`, which only
//! ci/kqueue.sh sets, and linked by the flags that it passes. Where libkqueue differs from a kernel
//! in what a backend may rely on, it is made good here and in ci/libkqueue/shim.c; docs/PLATFORM.md
//! lists it.

use std::ffi::{c_int, c_short, c_uint, c_ushort};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use rustix::io::Errno;

use crate::poller::error::failed;
use crate::sync::Mutex;

pub(super) type Filter = c_short;
pub(super) type Flags = c_ushort;

/// As in its sys/event.h.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Kevent {
    pub(super) ident: usize,
    pub(super) filter: Filter,
    pub(super) flags: Flags,
    pub(super) fflags: c_uint,
    pub(super) data: isize,
    pub(super) udata: usize,
}

pub(super) const EVFILT_READ: Filter = -1;
pub(super) const EVFILT_WRITE: Filter = -2;
pub(super) const EVFILT_TIMER: Filter = -7;
pub(super) const USER: Option<(Filter, u32)> = Some((-11, 0x0100_0000));
pub(super) const EV_ADD: Flags = 0x0001;
pub(super) const EV_DELETE: Flags = 0x0002;
pub(super) const EV_ONESHOT: Flags = 0x0010;
pub(super) const EV_CLEAR: Flags = 0x0020;
pub(super) const EV_RECEIPT: Flags = 0x0040;
pub(super) const EV_EOF: Flags = 0x8000;
const NOTE_NSECONDS: u32 = 0x0004;

// As libkqueue's sys/event.h and ci/libkqueue/shim.c declare them.
unsafe extern "C" {
    safe fn kqueue() -> c_int;
    fn kevent(
        queue: c_int,
        changes: *const Kevent,
        change_count: c_int,
        events: *mut Kevent,
        event_count: c_int,
        timeout: *const libc::timespec,
    ) -> c_int;
    /// The epoll instance of a kqueue: what can be polled. In ci/libkqueue/shim.c.
    safe fn polder_libkqueue_epoll(queue: c_int) -> c_int;
}

pub(super) struct Queue {
    queue: OwnedFd,
    epoll: c_int,
    /// libkqueue drops the half of a report for which there is no room: see ci/libkqueue/shim.c.
    /// Where there is room for one event only, the other half is kept here for the next call.
    half: Mutex<Option<Kevent>>,
}

impl Queue {
    pub(super) fn new() -> io::Result<Queue> {
        let queue = kqueue();
        if queue < 0 {
            return Err(failed("kqueue", io::Error::last_os_error()));
        }
        Ok(Queue {
            // SAFETY: it was just opened, and nobody else knows it.
            queue: unsafe { OwnedFd::from_raw_fd(queue) },
            epoll: polder_libkqueue_epoll(queue),
            half: Mutex::new(None),
        })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: libkqueue keeps it open until the kqueue is closed, which `self` owns.
        unsafe { BorrowedFd::borrow_raw(self.epoll) }
    }

    pub(super) fn kevent(
        &self,
        changes: &[Kevent],
        events: &mut [MaybeUninit<Kevent>],
        timeout: Option<Duration>,
    ) -> Result<usize, Errno> {
        if !changes.is_empty() || events.is_empty() {
            return self.call(changes, events, timeout);
        }
        if let Some(half) = self.half.lock().take() {
            events[0].write(half);
            return Ok(1);
        }
        // Nothing to be late for costs no reading of the clock.
        let end = timeout
            .filter(|timeout| !timeout.is_zero())
            .map(|timeout| now() + timeout);
        let mut left = timeout;
        loop {
            let count = match events {
                [event] => {
                    let mut both = [MaybeUninit::uninit(); 2];
                    let count = self.call(&[], &mut both, left)?;
                    *event = both[0];
                    if count == 2 {
                        // SAFETY: both were written.
                        *self.half.lock() = Some(unsafe { both[1].assume_init() });
                    }
                    count.min(1)
                }
                _ => self.call(&[], events, left)?,
            };
            if count > 0 || left == Some(Duration::ZERO) {
                return Ok(count);
            }
            // It returns before its time when what woke it has been deleted meanwhile.
            left = end.map(|end| end.saturating_sub(now()));
            if left == Some(Duration::ZERO) {
                return Ok(0);
            }
        }
    }

    fn call(
        &self,
        changes: &[Kevent],
        events: &mut [MaybeUninit<Kevent>],
        timeout: Option<Duration>,
    ) -> Result<usize, Errno> {
        #[cfg(test)]
        super::tests::count_call();
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs() as _,
            tv_nsec: timeout.subsec_nanos() as _,
        });
        // SAFETY: both lists are as long as is said, and the library writes to the second only.
        // What the changes name is the duty of whoever registers it.
        let count = unsafe {
            kevent(
                self.queue.as_raw_fd(),
                changes.as_ptr(),
                changes.len() as c_int,
                events.as_mut_ptr().cast(),
                events.len() as c_int,
                timeout.as_ref().map_or(ptr::null(), ptr::from_ref),
            )
        };
        usize::try_from(count).map_err(|_| {
            let error = io::Error::last_os_error();
            Errno::from_io_error(&error).unwrap_or(Errno::INVAL)
        })
    }
}

/// The kernel's clock, whatever the process's says.
fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

pub(super) fn kevent_of(ident: usize, filter: Filter, flags: Flags, stamp: usize) -> Kevent {
    Kevent {
        ident,
        filter,
        flags,
        fflags: 0,
        data: 0,
        udata: stamp,
    }
}

pub(super) fn stamp(kevent: &Kevent) -> usize {
    kevent.udata
}

/// The error number of a receipt; zero for none.
pub(super) fn error(receipt: &Kevent) -> i32 {
    receipt.data as i32
}

/// Makes `kevent` a timer that fires in so long.
pub(super) fn set_timer(kevent: &mut Kevent, left: Duration) {
    kevent.fflags = NOTE_NSECONDS;
    kevent.data = left.as_nanos().clamp(1, isize::MAX as u128) as isize;
}
