//! Calls to a host's disk: they take time, and may fail.
//!
//! [`power_loss`](crate::power_loss) has the disks. They outlive processes: a kill loses nothing.
//!
//! A call begins, waits, and is executed when that time is over: so it happens as a whole or not at
//! all, even if its process is killed or its future dropped meanwhile. The wait is a timer of the
//! process, as for names, so its end needs no event. Random decisions about a call are made when it
//! begins. The latency has a stream for each disk, the faults use those of `host_faults`, and the
//! effects of each power-off have their own stream, selected by its number.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use super::choice::{Stream, mix};
use super::core::Core;
use super::errno::{Errno, unsupported};
use super::faults::Kind;
use super::latency::Latency;
use super::trace_event::{TraceEvent, digest};
use crate::power_loss::{Disk, Error, Note, SyncEnd};

/// The default latency of a call: that of waking a thread of a pool, as for `unblock`; the data is
/// in memory.
const LATENCY: Latency = Latency::new(5_000, 95_001);

/// The default latency of a sync: that of a disk without moving parts and without a battery.
const SYNC_LATENCY: Latency = Latency::new(500_000, 1_000_001);

/// The disks of all hosts, by host. Each is created on first use.
#[derive(Default)]
pub(crate) struct Disks(BTreeMap<usize, DiskOfHost>);

/// A host's disk, and the latencies of its calls.
#[derive(Debug)]
pub(crate) struct DiskOfHost {
    pub(crate) disk: Disk,
    pub(crate) latency: Latency,
    pub(crate) sync_latency: Latency,
    stream: Stream,
    /// The number of power-offs at which something was not synced.
    losses: u64,
}

/// Returns the error that the system has in the place of one of a disk.
pub(crate) fn io_error(error: Error) -> io::Error {
    let errno = match error {
        Error::AlreadyExists => Errno::EXIST,
        Error::Busy => Errno::BUSY,
        Error::Closed => {
            return io::Error::other("the process that had this file open has ended");
        }
        Error::DirectoryNotEmpty => Errno::NOTEMPTY,
        Error::FileTooLarge => Errno::FBIG,
        Error::InvalidInput => Errno::INVAL,
        Error::IsADirectory => Errno::ISDIR,
        Error::NameTooLong => Errno::NAMETOOLONG,
        Error::NotADirectory => Errno::NOTDIR,
        Error::NotFound => Errno::NOENT,
        Error::NotPermitted => Errno::BADF,
        Error::OutOfMemory => return io::ErrorKind::OutOfMemory.into(),
        Error::StorageFull => Errno::NOSPC,
        Error::SyncFailed => Errno::IO,
    };
    errno.into()
}

/// The kind of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// Reads bytes of a file.
    Read,
    /// Reads names or metadata, or opens a file: no bit of a file can have changed.
    Look,
    Write,
    Sync,
}

/// A call that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(super) world: u32,
    pub(crate) host: usize,
    pub(super) process: usize,
    pub(crate) call: Call,
    /// Whether it fails, decided at random.
    pub(super) fails: bool,
    /// Selects the bit that has changed in what is read.
    pub(super) rot: Option<u64>,
    /// How a sync ends, unless it fails.
    pub(super) sync_end: SyncEnd,
    /// The time after which it is executed.
    pub(crate) delay: Duration,
}

impl Disks {
    /// Describes what a power-off of a host could lose.
    pub(crate) fn describe_unsynced(&self, host: usize) -> Vec<String> {
        let disk = self.0.get(&host);
        disk.map_or(Vec::new(), |own| own.disk.describe_unsynced())
    }

    pub(crate) fn find(&mut self, host: usize) -> Option<&mut DiskOfHost> {
        self.0.get_mut(&host)
    }

    pub(crate) fn of(&mut self, host: usize, seed: u64) -> &mut DiskOfHost {
        self.0.entry(host).or_insert_with(|| {
            let mut disk = Disk::default();
            disk.digest = digest;
            DiskOfHost {
                disk,
                latency: LATENCY,
                sync_latency: SYNC_LATENCY,
                stream: Stream::new(seed, "disk", host, 0),
                losses: 0,
            }
        })
    }

    pub(super) fn begin(&mut self, call: Call, core: &mut Core) -> io::Result<Begun> {
        if core.processes.current.is_none() {
            return Err(unsupported("a disk outside of a host's process"));
        }
        let (host, process) = core.processes.here()?;
        let own = self.of(host, core.seed);
        let (kind, latency) = match call {
            Call::Read | Call::Look => (Kind::DiskRead, own.latency),
            Call::Write => (Kind::DiskWrite, own.latency),
            Call::Sync => (Kind::DiskSync, own.sync_latency),
        };
        let mut delay = latency.draw(&mut own.stream, core.is_calm);
        let (mut rot, mut sync_end) = (None, SyncEnd::Done);
        match call {
            Call::Read => rot = core.pick_by_fault(host, Kind::BitRot),
            Call::Look | Call::Write => {}
            Call::Sync => {
                delay = delay.saturating_add(core.delay_by_fault(host, Kind::SlowSync));
                // Both are drawn, so that leaving out one does not change the draws of the other.
                let [lost, misdirected] =
                    [Kind::LostWrite, Kind::Misdirected].map(|kind| core.pick_by_fault(host, kind));
                let misdirected = misdirected.map(SyncEnd::Misdirects);
                let silent = lost.map(SyncEnd::LosesWrite).or(misdirected);
                sync_end = silent.unwrap_or(SyncEnd::Done);
            }
        }
        Ok(Begun {
            world: core.world,
            host,
            process,
            call,
            fails: core.fault_comes(host, kind),
            rot,
            sync_end,
            delay: Duration::from_nanos(delay),
        })
    }

    /// Calls `f` with a host's disk, and notes the resulting event.
    pub(super) fn call<R>(
        &mut self,
        host: usize,
        core: &mut Core,
        f: impl FnOnce(&mut Disk) -> Result<R, Error>,
    ) -> io::Result<R> {
        let disk = &mut self.of(host, core.seed).disk;
        let result = f(disk);
        if let Some(note) = disk.note.take() {
            let what = match note {
                Note::Written(hash, len) => TraceEvent::Written(hash, len),
                Note::Named(hash) => TraceEvent::Named(hash),
                Note::Synced(node, fails) => TraceEvent::Synced(node.into(), fails),
            };
            core.note(host, what);
        }
        result.map_err(io_error)
    }

    /// Loses a part of what was not synced on a host's disk, at a power-off.
    pub(crate) fn lose_power(&mut self, host: usize, core: &mut Core) {
        let Some(own) = self.find(host).filter(|own| !own.disk.is_synced()) else {
            return;
        };
        own.losses += 1;
        let nth = own.losses;
        let mut stream = Stream::new(core.seed ^ mix(nth), "unsynced", host, 0);
        let (faults, now) = (&mut core.faults, core.time.now());
        let loss = own
            .disk
            .lose_power(&mut |end| stream.below(end), |node, words| {
                // The node, and the number of the power-off.
                let id = (Kind::Unsynced, host as u32, node, nth);
                faults.allow_one(id, now, words)
            });
        core.note(host, TraceEvent::Unsynced(loss.sectors, loss.names));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::power_loss::OpenFlags;

    /// A call takes the latency of its kind and fails as its host's disk does.
    #[test]
    fn call_latency_and_faults_of_its_kind() {
        let (mut disks, mut core) = (Disks::default(), Core::of_test(1));
        assert!(
            disks.begin(Call::Read, &mut core).is_err(),
            "no process runs"
        );
        let host = core.add_host("host");
        let (process, _) = core.start(host);
        core.set_current(Some(process));
        disks.of(host, 1).latency = Latency::new(7, 1);
        disks.of(host, 1).sync_latency = Latency::new(9, 1);
        let certain = super::super::choice::Probability::new(1.0).unwrap();
        core.host_faults.change(host, |faults| {
            faults.set(Kind::DiskWrite, certain);
            faults.set(Kind::BitRot, certain);
        });
        let begun = [Call::Read, Call::Look, Call::Write, Call::Sync]
            .map(|call| disks.begin(call, &mut core).expect("its process runs"));
        let delays = begun.map(|begun| begun.delay.as_nanos());
        assert_eq!(delays, [7, 7, 7, 9]);
        assert_eq!(begun.map(|begun| begun.fails), [false, false, true, false]);
        let rots = begun.map(|begun| begun.rot.is_some());
        assert_eq!(rots, [true, false, false, false]);
        core.set_current(None);
    }

    /// A disk stays when the process that has used it ends.
    #[test]
    fn disk_outlives_process() {
        let (mut disks, mut core) = (Disks::default(), Core::of_test(1));
        let flags = OpenFlags {
            write: true,
            create: true,
            ..OpenFlags::default()
        };
        let open = |disk: &mut Disk| disk.open("/a".as_ref(), flags, 5);
        core.add_host("host");
        disks.call(0, &mut core, open).unwrap();
        assert_eq!(core.report.trace.events, 1, "its name is new");
        let disk = &mut disks.find(0).expect("it was used").disk;
        assert_eq!(
            (disk.count_open(5), disk.paths_open(5)),
            (1, vec!["/a".into()])
        );
        disk.close_all(5);
        assert_eq!(disk.count_open(5), 0);
        assert!(disks.find(3).is_none());
        let meta = disks.call(0, &mut core, |disk| disk.meta("/a".as_ref()));
        assert!(meta.is_ok());
        disks.lose_power(0, &mut core);
        assert_eq!(core.report.trace.events, 2, "the name was not synced");
    }
}
