//! Kqueues that watch for the end of a child (`EVFILT_PROC`), on macOS and the BSDs. Each child has
//! its own. The event is never taken, so the kqueue stays readable.
//!
//! Apple's kernel reports the end a little before the child can be reaped (as libuv's
//! `uv__wait_children` knows): [`Unreaped::wait`](super::exit::Unreaped::wait) retries.

use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::ptr;

use rustix::event::kqueue::{Event, EventFilter, EventFlags, ProcessEvents, kevent, kqueue};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::Pid;

use crate::io::Async;

#[derive(Debug)]
pub(super) struct EndDescriptor(Async<OwnedFd>);

impl EndDescriptor {
    /// Returns `None` also for a child that has already ended.
    pub(super) fn open(child: &std::process::Child) -> Option<EndDescriptor> {
        let queue = kqueue().ok()?;
        fcntl_setfd(&queue, FdFlags::CLOEXEC).ok()?;
        let filter = EventFilter::Proc {
            pid: Pid::from_child(child),
            flags: ProcessEvents::EXIT,
        };
        let watch = Event::new(filter, EventFlags::ADD, ptr::null_mut());
        let mut none: [Event; 0] = [];
        // SAFETY: it watches a process, not a descriptor that would have to stay open.
        unsafe { kevent(&queue, &[watch], &mut none[..], None) }.ok()?;
        Some(EndDescriptor(Async::of_waitable(queue)))
    }

    pub(super) async fn readable(&self) -> io::Result<()> {
        self.0.readable().await
    }

    pub(super) fn try_wait(
        &self,
        child: &mut std::process::Child,
    ) -> io::Result<Option<ExitStatus>> {
        child.try_wait()
    }

    pub(super) fn kill(&self, child: &mut std::process::Child) -> io::Result<()> {
        super::platform::kill(child)
    }

    /// A child of `fork` does not inherit a kqueue (kqueue(2)): its number may be another
    /// descriptor's there.
    pub(super) fn drop_in_child_of_fork(self) {
        mem::forget(self);
    }
}
