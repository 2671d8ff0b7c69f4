//! Faults of a host's own kernel: connections that are gone when they are accepted, descriptors
//! that are used up, by number or at random, short reads and writes, spurious readiness, timers
//! that fire late, and disk calls that fail.
//!
//! Each kind has its own stream of choices, which is used only while the fault is on. So a world
//! without the fault keeps the trace that it has always had.

use std::io::{self, IoSlice, IoSliceMut};

use super::choice::{Probability, Stream};
use super::errno::Errno;
use super::faults::{Fault, Faults, Kind};
use super::sockets::Other;
use super::trace::Seconds;
use super::{Kernel, READABLE, WRITABLE};

/// The limit of a call's additional duration: a slow file system, or a pool with all threads busy.
#[cfg(feature = "blocking")]
const LONGEST_CALL: u64 = 2_000_000_000;

/// The limit of a sync's additional duration: a disk that does something else first, or a
/// controller that resets it.
const LONGEST_SYNC: u64 = 2_000_000_000;

/// The faults that a test has set for a host; or those of chaos for all hosts, which do not use
/// `descriptors`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostFaults {
    pub(crate) aborted: Probability,
    pub(crate) exhausted: Probability,
    pub(crate) short: Probability,
    pub(crate) spurious: Probability,
    /// The probability that a call of `unblock` takes long.
    pub(crate) blocking: Probability,
    pub(crate) disk: DiskFaults,
    /// The limit of a timer's lateness.
    pub(crate) late: u64,
    /// The limit of a process's sockets and files.
    pub(crate) descriptors: Option<usize>,
}

/// The faults of a host's disk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DiskFaults {
    pub(crate) read: Probability,
    pub(crate) write: Probability,
    pub(crate) sync: Probability,
    pub(crate) slow: Probability,
}

impl HostFaults {
    /// Returns the probability of a kind of fault. `None` if it is not a fault of hosts.
    fn rate(&mut self, kind: Kind) -> Option<&mut Probability> {
        match kind {
            Kind::Aborted => Some(&mut self.aborted),
            Kind::Exhausted => Some(&mut self.exhausted),
            Kind::Short => Some(&mut self.short),
            Kind::Spurious => Some(&mut self.spurious),
            Kind::Blocking => Some(&mut self.blocking),
            Kind::DiskRead => Some(&mut self.disk.read),
            Kind::DiskWrite => Some(&mut self.disk.write),
            Kind::DiskSync => Some(&mut self.disk.sync),
            Kind::SlowSync => Some(&mut self.disk.slow),
            _ => None,
        }
    }

    pub(super) fn set(&mut self, kind: Kind, rate: Probability) {
        if let Some(it) = self.rate(kind) {
            *it = rate;
        }
    }

    /// Ends the random faults.
    pub(crate) fn heal(&mut self) {
        (self.aborted, self.exhausted) = Default::default();
        (self.short, self.spurious) = Default::default();
        self.blocking = Probability::default();
        self.disk = DiskFaults::default();
        self.late = 0;
    }
}

/// The faults of a host, and their choices.
#[derive(Debug)]
pub(super) struct FaultsOfHost {
    host: usize,
    pub(super) set: HostFaults,
    seed: u64,
    /// Created with the first fault that is on: most hosts have none.
    streams: Option<Box<Streams>>,
}

/// The streams, each with the number of its draws, which identifies its faults.
#[derive(Debug)]
struct Streams {
    aborted: (Stream, u64),
    exhausted: (Stream, u64),
    short: (Stream, u64),
    spurious: (Stream, u64),
    blocking: (Stream, u64),
    late: (Stream, u64),
    disk: [(Stream, u64); 4],
}

impl Streams {
    fn of(&mut self, kind: Kind) -> &mut (Stream, u64) {
        match kind {
            Kind::Aborted => &mut self.aborted,
            Kind::Exhausted => &mut self.exhausted,
            Kind::Short => &mut self.short,
            Kind::Blocking => &mut self.blocking,
            Kind::DiskRead => &mut self.disk[0],
            Kind::DiskWrite => &mut self.disk[1],
            Kind::DiskSync => &mut self.disk[2],
            Kind::SlowSync => &mut self.disk[3],
            _ => &mut self.spurious,
        }
    }
}

impl FaultsOfHost {
    pub(super) fn new(seed: u64, host: usize) -> FaultsOfHost {
        FaultsOfHost {
            host,
            set: HostFaults::default(),
            seed,
            streams: None,
        }
    }

    fn streams(&mut self) -> &mut Streams {
        let stream = |word| (Stream::new(self.seed, word, self.host, 0), 0);
        self.streams.get_or_insert_with(|| {
            Box::new(Streams {
                aborted: stream("aborted"),
                exhausted: stream("exhausted"),
                short: stream("short"),
                spurious: stream("spurious"),
                blocking: stream("slow calls"),
                late: stream("late timers"),
                disk: ["disk reads", "disk writes", "disk syncs", "slow syncs"].map(stream),
            })
        })
    }

    /// Returns whether a fault happens now, by its own probability or that of chaos. A fault that
    /// is off draws nothing.
    fn comes(
        &mut self,
        kind: Kind,
        mut by_chaos: HostFaults,
        now: u64,
        faults: &mut Faults,
    ) -> bool {
        let Some((own, by_chaos)) = self.set.rate(kind).zip(by_chaos.rate(kind)) else {
            return false;
        };
        let probability = (*own).max(*by_chaos);
        if probability == Probability::default() {
            return false;
        }
        let host = self.host;
        let (stream, drawn) = self.streams().of(kind);
        *drawn += 1;
        let id = (kind, host as u32, 0, *drawn);
        let fault = || Fault::new(id, now, vec![host], Vec::new());
        stream.happens(probability) && (probability.is_certain() || faults.allow(id, fault))
    }
}

impl Kernel {
    pub(crate) fn change_faults(&mut self, host: usize, f: impl FnOnce(&mut HostFaults)) {
        f(&mut self.hosts[host].faults.set);
        self.has_faults = true;
    }

    pub(super) fn fault_comes(&mut self, host: usize, kind: Kind) -> bool {
        let faults = &mut self.hosts[host].faults;
        faults.comes(kind, self.faults_by_chaos, self.now, &mut self.faults)
    }

    /// Draws the lateness of the timer for which a poller is armed now.
    pub(super) fn lateness(&mut self, poller: usize) -> u64 {
        let host = self.host_of_poller(poller);
        let faults = &mut self.hosts[host].faults;
        if faults.set.late == 0 {
            return 0;
        }
        let most = faults.set.late;
        let (stream, drawn) = &mut faults.streams().late;
        *drawn += 1;
        let late = stream.below(most.saturating_add(1));
        let id = (Kind::Late, host as u32, 0, *drawn);
        let fault = || Fault {
            detail: Seconds(late).to_string(),
            ..Fault::new(id, self.now, vec![host], Vec::new())
        };
        if late != 0 && self.faults.allow(id, fault) {
            late
        } else {
            0
        }
    }

    /// Returns the additional duration of a sync on a host.
    pub(super) fn syncs_for(&mut self, host: usize) -> u64 {
        self.takes_longer(host, Kind::SlowSync, "lengths of syncs", LONGEST_SYNC)
    }

    /// Returns the additional duration of a call of `unblock` on a host.
    #[cfg(feature = "blocking")]
    pub(super) fn blocks_for(&mut self, host: usize) -> u64 {
        if self.has_faults {
            self.takes_longer(host, Kind::Blocking, "lengths of calls", LONGEST_CALL)
        } else {
            0
        }
    }

    /// Returns an additional duration, less than `longest`, if a fault of that kind happens now; or
    /// zero.
    fn takes_longer(&mut self, host: usize, kind: Kind, word: &str, longest: u64) -> u64 {
        if !self.fault_comes(host, kind) {
            return 0;
        }
        // Drawn from another stream than the one that decides on the next faults.
        let drawn = self.hosts[host].faults.streams().of(kind).1;
        Stream::new(self.seed, word, host, drawn as usize).below(longest)
    }

    /// Checks that the running process may have `count` more sockets or files, created by one call.
    pub(super) fn take_descriptors(&mut self, count: usize) -> io::Result<()> {
        let (host, process) = self.here()?;
        let limit = self.hosts[host].faults.set.descriptors;
        let is_exhausted = self.fault_comes(host, Kind::Exhausted);
        let is_full = limit.is_some_and(|limit| self.count_open(host, process) + count > limit);
        if is_exhausted || is_full {
            Err(Errno::NoDescriptor.into())
        } else {
            Ok(())
        }
    }

    fn count_open(&mut self, host: usize, process: usize) -> usize {
        let disk = self.hosts[host].disk.as_ref();
        let files = disk.map_or(0, |it| it.disk.count_open(process));
        let tcp = self.tcp_sockets(host);
        let tcp = tcp.filter(|it| it.process == Some(process)).count();
        let others = self.others.values_mut();
        let others = others.map(|it| it.base().process);
        files + tcp + others.filter(|it| *it == Some(process)).count()
    }

    /// Returns whether a connection that is about to be accepted has been aborted.
    pub(super) fn is_aborted(&mut self, host: usize) -> bool {
        self.fault_comes(host, Kind::Aborted)
    }

    /// Returns how many of `len` bytes are read or written, at least one, if a short read or write
    /// happens.
    fn shorten(&mut self, number: u32, len: usize) -> Option<usize> {
        if !self.has_faults {
            return None;
        }
        let host = self.host_of_socket(number)?;
        if len < 2 || !self.fault_comes(host, Kind::Short) {
            return None;
        }
        let (_, drawn) = self.hosts[host].faults.streams().short;
        let mut stream = Stream::new(self.seed, "lengths", host, drawn as usize);
        Some(1 + stream.below(len as u64 - 1) as usize)
    }

    /// Reads from a stream, perhaps less than there is. The reader still learns that bytes are
    /// left.
    pub(super) fn read_shortened(
        &mut self,
        number: u32,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Option<io::Result<usize>> {
        let buffer = buffers.iter_mut().find(|it| !it.is_empty())?;
        let len = self.shorten(number, buffer.len())?;
        Some(self.read_stream(number, &mut [IoSliceMut::new(&mut buffer[..len])], false))
    }

    pub(super) fn write_shortened(
        &mut self,
        number: u32,
        buffers: &[IoSlice<'_>],
    ) -> Option<io::Result<usize>> {
        let buffer = buffers.iter().find(|it| !it.is_empty())?;
        let len = self.shorten(number, buffer.len())?;
        Some(self.write_stream(number, &[IoSlice::new(&buffer[..len])]))
    }

    /// Returns the readiness that is reported of a socket: perhaps more than its actual readiness.
    pub(super) fn embellish(&mut self, number: u32, ready: u8) -> u8 {
        if !self.has_faults {
            return ready;
        }
        let Some(host) = self.host_of_socket(number) else {
            return ready;
        };
        if self.fault_comes(host, Kind::Spurious) {
            ready | READABLE | WRITABLE
        } else {
            ready
        }
    }

    fn host_of_socket(&mut self, number: u32) -> Option<usize> {
        match self.others.get_mut(&number).map(Other::base) {
            Some(base) => Some(base.host),
            None => self.socket(number).ok().map(|it| it.host),
        }
    }
}
