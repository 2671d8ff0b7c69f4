//! macOS and the BSDs: a kqueue of its own for each child, which watches for the end
//! (`EVFILT_PROC`). The event is never taken, so the kqueue stays readable.
//!
//! Apple's kernel reports the end a little before the child can be reaped (libuv waits for it in
//! `uv__wait_children`): [`Unreaped::wait`](super::exit::Unreaped::wait) tries again.

use std::io;
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
    /// `None` if there is none to be had: also of a child that has already ended.
    pub(super) fn open(child: &std::process::Child) -> Option<EndDescriptor> {
        let queue = kqueue().ok()?;
        fcntl_setfd(&queue, FdFlags::CLOEXEC).ok()?;
        let filter = EventFilter::Proc {
            pid: Pid::from_child(child),
            flags: ProcessEvents::EXIT,
        };
        let watch = Event::new(filter, EventFlags::ADD, ptr::null_mut());
        let mut none: [Event; 0] = [];
        // SAFETY: it watches a process, and no descriptor that rustix could not keep open.
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
}
