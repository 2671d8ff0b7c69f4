//! Calls to a host's disk: they take time, and may fail.
//!
//! A call begins, waits, and is executed when that time is over: so it happens as a whole or not at
//! all, even if its process is killed or its future dropped meanwhile. The wait is a timer of the
//! process, as for names, so its end needs no event. Random decisions about a call are made when it
//! begins. The latency has a stream for each disk, the faults use those of `host_faults`, and the
//! effects of each power-off have their own stream, selected by its number.

use std::io;
use std::time::Duration;

use super::choice::{Stream, mix};
use super::disk::{Disk, How};
use super::errno::Errno;
use super::faults::{Fault, Kind};
use super::latency::Latency;
use super::trace::What;
use super::{Kernel, ProcessState, unsupported, with};

/// The default latency of a call: that of waking a thread of a pool, as for `unblock`; the data is
/// in memory.
const LATENCY: Latency = Latency::new(5_000, 95_001);

/// The default latency of a sync: that of a disk without moving parts and without a battery.
const SYNC_LATENCY: Latency = Latency::new(500_000, 1_000_001);

/// A host's disk, and the latencies of its calls.
#[derive(Debug)]
pub(super) struct DiskOfHost {
    pub(super) disk: Disk,
    latency: Latency,
    sync_latency: Latency,
    stream: Stream,
}

/// The kind of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Read,
    Write,
    Sync,
}

/// A call that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    world: u32,
    host: usize,
    process: usize,
    pub(crate) call: Call,
    /// Whether it fails, decided at random.
    fails: bool,
    /// The time after which it is executed.
    pub(crate) delay: Duration,
}

/// An open file of a process. Closed on drop.
#[derive(Debug)]
pub(crate) struct FileOfProcess {
    world: u32,
    host: usize,
    number: u32,
}

fn not_here() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "a simulated file is used outside of its world: on another thread, or after its end",
    )
}

/// Begins a call of the running process.
pub(crate) fn begin(call: Call) -> io::Result<Begun> {
    with(|kernel| kernel.begin_disk_call(call)).unwrap_or_else(|| {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "polder::sim::fs is used on a thread that is in no simulated world",
        ))
    })
}

/// Calls `f` with the kernel of that world, or fails if that is not this thread's.
fn with_world<R>(world: u32, f: impl FnOnce(&mut Kernel) -> io::Result<R>) -> io::Result<R> {
    let result = with(|kernel| {
        if kernel.world == world {
            f(kernel)
        } else {
            Err(not_here())
        }
    });
    result.unwrap_or_else(|| Err(not_here()))
}

impl Begun {
    fn with<R>(&self, f: impl FnOnce(&mut Kernel) -> io::Result<R>) -> io::Result<R> {
        with_world(self.world, |kernel| {
            kernel.is_at_disk_of(self.host)?;
            match kernel.processes.get(self.process) {
                Some(ProcessState { is_alive: true, .. }) => f(kernel),
                _ => Err(io::Error::other("the process of this host has ended")),
            }
        })
    }

    /// Executes the call, unless it fails.
    pub(crate) fn finish<R>(self, f: impl FnOnce(&mut Disk) -> io::Result<R>) -> io::Result<R> {
        self.with(|kernel| {
            if self.fails {
                kernel.note(self.host, What::DiskFailed);
                return Err(Errno::Io.into());
            }
            kernel.at_disk(self.host, f)
        })
    }

    /// Ends a sync of the changes until `last`.
    pub(crate) fn finish_sync(self, file: &FileOfProcess, last: u64) -> io::Result<()> {
        self.with(|kernel| {
            kernel.at_disk(self.host, |it| it.end_sync(file.number, last, self.fails))
        })
    }

    /// Opens a file.
    pub(crate) fn open(self, path: &std::path::Path, how: How) -> io::Result<FileOfProcess> {
        self.with(|kernel| kernel.take_descriptors(1))?;
        let number = self.finish(|disk| disk.open(path, how, self.process))?;
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

    /// Begins a call on this file.
    pub(crate) fn begin(&self, call: Call) -> io::Result<Begun> {
        self.with(|kernel| kernel.begin_disk_call(call))
    }

    /// Executes an operation that takes no time.
    pub(crate) fn look<R>(&self, f: impl FnOnce(&mut Disk) -> io::Result<R>) -> io::Result<R> {
        self.with(|kernel| kernel.at_disk(self.host, f))
    }

    fn with<R>(&self, f: impl FnOnce(&mut Kernel) -> io::Result<R>) -> io::Result<R> {
        with_world(self.world, |kernel| {
            kernel.is_at_disk_of(self.host)?;
            f(kernel)
        })
    }
}

impl Drop for FileOfProcess {
    fn drop(&mut self) {
        // A file may be dropped on any host.
        let _ = with_world(self.world, |kernel| {
            kernel.disk(self.host).disk.close(self.number);
            Ok(())
        });
    }
}

impl Kernel {
    fn disk(&mut self, host: usize) -> &mut DiskOfHost {
        let seed = self.seed;
        self.hosts[host].disk.get_or_insert_with(|| {
            Box::new(DiskOfHost {
                disk: Disk::new(),
                latency: LATENCY,
                sync_latency: SYNC_LATENCY,
                stream: Stream::new(seed, "disk", host, 0),
            })
        })
    }

    /// Sets the latency of calls to a host's disk, or of syncs.
    pub(crate) fn set_disk_latency(&mut self, host: usize, latency: Latency, is_of_syncs: bool) {
        let disk = self.disk(host);
        if is_of_syncs {
            disk.sync_latency = latency;
        } else {
            disk.latency = latency;
        }
    }

    pub(crate) fn set_disk_capacity(&mut self, host: usize, bytes: u64) {
        self.disk(host).disk.set_capacity(bytes);
    }

    /// Checks that the code that runs is that host's.
    fn is_at_disk_of(&self, host: usize) -> io::Result<()> {
        if self.host_here() == Some(host) {
            Ok(())
        } else {
            Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "a simulated file is used on another host than that whose disk it is on",
            ))
        }
    }

    fn begin_disk_call(&mut self, call: Call) -> io::Result<Begun> {
        if self.current.is_none() {
            return Err(unsupported("a disk outside of a host's process"));
        }
        let (host, process) = self.here()?;
        let disk = self.disk(host);
        let latency = match call {
            Call::Sync => disk.sync_latency,
            Call::Read | Call::Write => disk.latency,
        };
        let drawn = latency.draw(&mut disk.stream);
        let mut delay = self.drawn_or_mean(drawn, latency);
        let mut fails = false;
        if self.has_faults {
            if call == Call::Sync {
                delay = delay.saturating_add(self.syncs_for(host));
            }
            let kind = match call {
                Call::Read => Kind::DiskRead,
                Call::Write => Kind::DiskWrite,
                Call::Sync => Kind::DiskSync,
            };
            fails = self.fault_comes(host, kind);
        }
        Ok(Begun {
            world: self.world,
            host,
            process,
            call,
            fails,
            delay: Duration::from_nanos(delay),
        })
    }

    /// Calls `f` with a host's disk, and notes the resulting event.
    fn at_disk<R>(
        &mut self,
        host: usize,
        f: impl FnOnce(&mut Disk) -> io::Result<R>,
    ) -> io::Result<R> {
        let disk = &mut self.disk(host).disk;
        let result = f(disk);
        if let Some(what) = disk.take_note() {
            self.note(host, what);
        }
        result
    }

    /// Describes the files that a process has open, for reports.
    pub(crate) fn describe_files(&self, process: usize) -> Vec<String> {
        let disk = self.hosts[self.processes[process].host].disk.as_ref();
        disk.map_or(Vec::new(), |it| it.disk.describe(process))
    }

    /// Closes the files of a process that has ended.
    pub(super) fn close_files(&mut self, process: usize) {
        let host = self.processes[process].host;
        if let Some(it) = &mut self.hosts[host].disk {
            it.disk.close_all(process);
        }
    }

    /// Loses a part of what was not synced on a host's disk, at a power-off.
    pub(crate) fn disk_loses_power(&mut self, host: usize) {
        let Some(it) = &mut self.hosts[host].disk else {
            return;
        };
        if it.disk.is_synced() {
            return;
        }
        let nth = it.disk.next_loss();
        let mut stream = Stream::new(self.seed ^ mix(nth), "unsynced", host, 0);
        let (faults, now) = (&mut self.faults, self.now);
        let loss = it.disk.lose_power(&mut stream, |node, words| {
            // The node, and the number of the power-off.
            let id = (Kind::Unsynced, host as u32, node, nth);
            let fault = || Fault {
                detail: words(),
                ..Fault::new(id, now, vec![host], Vec::new())
            };
            faults.allow(id, fault)
        });
        self.note(host, What::Unsynced(loss.sectors, loss.names));
    }
}
