//! Pidfds: descriptors of processes on Linux (pidfd_open(2), Linux 5.3). A pidfd is readable once
//! the process has ended, and names it even after its number was reused.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open, pidfd_send_signal,
    waitid,
};

use crate::io::Async;

#[derive(Debug)]
pub(super) struct EndDescriptor(Async<OwnedFd>);

impl EndDescriptor {
    pub(super) fn open(child: &std::process::Child) -> Option<EndDescriptor> {
        let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok()?;
        Some(EndDescriptor(Async::of_waitable(pidfd)))
    }

    pub(super) async fn readable(&self) -> io::Result<()> {
        self.0.readable().await
    }

    /// Reaps the process if it has ended.
    pub(super) fn try_wait(
        &self,
        child: &mut std::process::Child,
    ) -> io::Result<Option<ExitStatus>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        loop {
            match waitid(WaitId::PidFd(self.0.as_fd()), options) {
                Ok(status) => return Ok(status.as_ref().map(exit_status)),
                Err(Errno::INTR) => {}
                Err(Errno::CHILD) => return Err(Errno::CHILD.into()),
                // Linux 5.3 cannot wait for a pidfd, and a sandbox may refuse it.
                Err(_) => return child.try_wait(),
            }
        }
    }

    pub(super) fn kill(&self, child: &mut std::process::Child) -> io::Result<()> {
        match pidfd_send_signal(self.0.as_fd(), Signal::KILL) {
            // Other code has reaped it.
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            // A sandbox may refuse it.
            Err(_) => super::platform::kill(child),
        }
    }

    /// A child of `fork` inherits a pidfd, and closes its copy.
    pub(super) fn drop_in_child_of_fork(self) {}
}

/// Converts to the status that wait(2) would have returned.
fn exit_status(status: &WaitIdStatus) -> ExitStatus {
    const DUMPED: i32 = 0x80;
    let ended_by = status.terminating_signal().unwrap_or(0);
    let code = status.exit_status().unwrap_or(0) << 8;
    ExitStatus::from_raw(code | ended_by | if status.dumped() { DUMPED } else { 0 })
}
