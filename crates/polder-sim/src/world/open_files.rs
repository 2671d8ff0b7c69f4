//! [`FileOfProcess`]: an open file of a process, and the calls of processes to their host's disk.

use std::io;
use std::path::Path;

use super::disk_calls::{Begun, Call};
use super::errno::{Errno, refused};
use super::kernel::Kernel;
use super::processes::has_ended;
use super::thread::{with, with_world};
use super::trace_event::TraceEvent;
use crate::power_loss::{Disk, Error, OpenFlags, SyncEnd};

/// An open file of a process. Closed on drop.
#[derive(Debug)]
pub(crate) struct FileOfProcess {
    world: u32,
    host: usize,
    number: u32,
}

/// Begins a call of the running process.
pub(crate) fn begin(call: Call) -> io::Result<Begun> {
    let words = "a simulated disk is used on a thread that is in no simulated world";
    with(|kernel| kernel.disks.begin(call, &mut kernel.core)).unwrap_or_else(|| Err(refused(words)))
}

/// Calls `f` with the kernel of that world, if this thread is in it and runs code of that host.
fn at_disk_of<R>(
    world: u32,
    host: usize,
    f: impl FnOnce(&mut Kernel) -> io::Result<R>,
) -> io::Result<R> {
    let result = with_world(world, |kernel| {
        if kernel.core.processes.current_host() == Some(host) {
            f(kernel)
        } else {
            let words = "simulated file used on a host that does not have its disk";
            Err(refused(words))
        }
    });
    let words =
        "simulated file used outside its world (on another thread, or after the world ended)";
    result.unwrap_or_else(|| Err(refused(words)))
}

impl Begun {
    fn with<R>(&self, f: impl FnOnce(&mut Kernel) -> io::Result<R>) -> io::Result<R> {
        at_disk_of(self.world, self.host, |kernel| {
            if kernel.core.processes.is_alive(self.process) {
                f(kernel)
            } else {
                Err(has_ended())
            }
        })
    }

    /// Executes the call, unless it fails.
    pub(crate) fn finish<R>(self, f: impl FnOnce(&mut Disk) -> Result<R, Error>) -> io::Result<R> {
        self.with(|kernel| {
            if self.fails {
                kernel.core.note(self.host, TraceEvent::DiskFailed);
                return Err(Errno::IO.into());
            }
            kernel.disks.call(self.host, &mut kernel.core, |disk| {
                disk.rot = self.rot;
                f(disk)
            })
        })
    }

    /// Ends a sync of the changes until `last`.
    pub(crate) fn finish_sync(self, file: &FileOfProcess, last: u64) -> io::Result<()> {
        let end = if self.fails {
            SyncEnd::Failed
        } else {
            self.sync_end
        };
        self.with(|kernel| {
            let end_sync = |disk: &mut Disk| disk.end_sync(file.number, last, end);
            kernel.disks.call(self.host, &mut kernel.core, end_sync)
        })
    }

    /// Opens a file.
    pub(crate) fn open(self, path: &Path, flags: OpenFlags) -> io::Result<FileOfProcess> {
        self.with(|kernel| kernel.take_descriptors(1))?;
        let number = self.finish(|disk| disk.open(path, flags, self.process))?;
        Ok(FileOfProcess {
            world: self.world,
            host: self.host,
            number,
        })
    }
}

impl FileOfProcess {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Fails if the process may have no more descriptors.
    pub(crate) fn take_descriptor(&self) -> io::Result<()> {
        self.with(|kernel| kernel.take_descriptors(1))
    }

    /// Begins a call on this file.
    pub(crate) fn begin(&self, call: Call) -> io::Result<Begun> {
        self.with(|kernel| kernel.disks.begin(call, &mut kernel.core))
    }

    /// Executes an operation that takes no time.
    pub(crate) fn look<R>(&self, f: impl FnOnce(&mut Disk) -> Result<R, Error>) -> io::Result<R> {
        self.with(|kernel| kernel.disks.call(self.host, &mut kernel.core, f))
    }

    fn with<R>(&self, f: impl FnOnce(&mut Kernel) -> io::Result<R>) -> io::Result<R> {
        at_disk_of(self.world, self.host, f)
    }
}

impl Drop for FileOfProcess {
    fn drop(&mut self) {
        // A file may be dropped on any host.
        with_world(self.world, |kernel| {
            if let Some(own) = kernel.disks.find(self.host) {
                own.disk.close(self.number);
            }
        });
    }
}
