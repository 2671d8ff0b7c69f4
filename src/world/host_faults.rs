//! Faults of a host's own kernel: connections that are gone when they are accepted, descriptors
//! that are used up, by number or at random, short reads and writes, spurious readiness, timers
//! that fire late, and disk calls that fail.
//!
//! Each kind has its own stream of choices, which is used only while the fault is on. So a world
//! without the fault keeps the trace that it has always had.

use super::choice::{Probability, Stream};
use super::faults::{Fault, Faults, Kind};
use super::trace::Seconds;

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

    fn set(&mut self, kind: Kind, rate: Probability) {
        if let Some(own) = self.rate(kind) {
            *own = rate;
        }
    }

    /// Ends the random faults.
    fn heal(&mut self) {
        (self.aborted, self.exhausted) = Default::default();
        (self.short, self.spurious) = Default::default();
        self.blocking = Probability::default();
        self.disk = DiskFaults::default();
        self.late = 0;
    }
}

/// The faults of a host, and their choices.
#[derive(Debug)]
struct FaultsOfHost {
    host: usize,
    set: HostFaults,
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
    fn new(seed: u64, host: usize) -> FaultsOfHost {
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

/// The faults of all hosts.
#[derive(Debug)]
pub(crate) struct FaultsOfHosts {
    seed: u64,
    /// By host, up to the last one that was asked for.
    list: Vec<FaultsOfHost>,
    /// The faults by chaos, used where a host's own are less probable.
    by_chaos: HostFaults,
    /// Whether any host has had faults.
    pub(super) are_any: bool,
}

impl FaultsOfHosts {
    pub(super) fn new(seed: u64) -> FaultsOfHosts {
        FaultsOfHosts {
            seed,
            list: Vec::new(),
            by_chaos: HostFaults::default(),
            are_any: false,
        }
    }

    fn of(&mut self, host: usize) -> &mut FaultsOfHost {
        while self.list.len() <= host {
            let next = FaultsOfHost::new(self.seed, self.list.len());
            self.list.push(next);
        }
        &mut self.list[host]
    }

    /// Changes the faults that the test has set for a host.
    pub(crate) fn change(&mut self, host: usize, f: impl FnOnce(&mut HostFaults)) {
        f(&mut self.of(host).set);
        self.are_any = true;
    }

    pub(super) fn set_rate_by_chaos(&mut self, kind: Kind, rate: Probability) {
        self.by_chaos.set(kind, rate);
        self.are_any = true;
    }

    pub(super) fn end_rates_by_chaos(&mut self) {
        self.by_chaos = HostFaults::default();
    }

    /// Ends the random faults that the test has set.
    pub(super) fn heal(&mut self) {
        self.list.iter_mut().for_each(|host| host.set.heal());
    }

    /// Returns whether a fault of a host happens now.
    #[inline]
    pub(super) fn comes(&mut self, host: usize, kind: Kind, now: u64, faults: &mut Faults) -> bool {
        let by_chaos = self.by_chaos;
        self.are_any && self.of(host).comes(kind, by_chaos, now, faults)
    }

    /// Returns the limit of the sockets and files of a host's process, if there is one.
    pub(super) fn descriptors(&self, host: usize) -> Option<usize> {
        self.list.get(host)?.set.descriptors
    }

    /// Draws by how much a host's timer that is set now is late.
    pub(super) fn lateness(&mut self, host: usize, now: u64, faults: &mut Faults) -> u64 {
        if !self.are_any {
            return 0;
        }
        let own = self.of(host);
        let most = own.set.late;
        if most == 0 {
            return 0;
        }
        let (stream, drawn) = &mut own.streams().late;
        *drawn += 1;
        let late = stream.below(most.saturating_add(1));
        let id = (Kind::Late, host as u32, 0, *drawn);
        let fault = || Fault {
            detail: Seconds(late).to_string(),
            ..Fault::new(id, now, vec![host], Vec::new())
        };
        if late != 0 && faults.allow(id, fault) {
            late
        } else {
            0
        }
    }

    /// Draws by how much a sync takes longer.
    pub(super) fn syncs_for(&mut self, host: usize, now: u64, faults: &mut Faults) -> u64 {
        let (kind, word) = (Kind::SlowSync, "lengths of syncs");
        let drawn = self.comes_and_draws(host, kind, word, now, faults);
        drawn.map_or(0, |mut stream| stream.below(LONGEST_SYNC))
    }

    /// Draws by how much a call of `unblock` takes longer.
    #[cfg(feature = "blocking")]
    pub(super) fn blocks_for(&mut self, host: usize, now: u64, faults: &mut Faults) -> u64 {
        let (kind, word) = (Kind::Blocking, "lengths of calls");
        let drawn = self.comes_and_draws(host, kind, word, now, faults);
        drawn.map_or(0, |mut stream| stream.below(LONGEST_CALL))
    }

    /// Draws the length of a read or write of `len` bytes, if it is a short one.
    pub(super) fn shorten(
        &mut self,
        host: usize,
        len: usize,
        now: u64,
        faults: &mut Faults,
    ) -> Option<usize> {
        if len < 2 {
            return None;
        }
        let mut stream = self.comes_and_draws(host, Kind::Short, "lengths", now, faults)?;
        Some(1 + stream.below(len as u64 - 1) as usize)
    }

    /// Returns a stream for the extent of a fault, if the fault happens now: another stream than
    /// the one that decides on the next faults.
    fn comes_and_draws(
        &mut self,
        host: usize,
        kind: Kind,
        word: &str,
        now: u64,
        faults: &mut Faults,
    ) -> Option<Stream> {
        if !self.comes(host, kind, now, faults) {
            return None;
        }
        let drawn = self.of(host).streams().of(kind).1;
        Some(Stream::new(self.seed, word, host, drawn as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_comes_by_the_host_s_own_probability_or_by_that_of_chaos() {
        let (mut hosts, mut faults) = (FaultsOfHosts::new(1), Faults::new(None));
        let certain = Probability::new(1.0).unwrap();
        assert!(!hosts.are_any && !hosts.comes(3, Kind::Short, 0, &mut faults));
        hosts.change(3, |own| own.short = certain);
        assert!(hosts.comes(3, Kind::Short, 0, &mut faults));
        assert!(!hosts.comes(2, Kind::Short, 0, &mut faults));
        assert!(!hosts.comes(3, Kind::Spurious, 0, &mut faults));
        hosts.set_rate_by_chaos(Kind::Spurious, certain);
        assert!(hosts.comes(2, Kind::Spurious, 0, &mut faults));
        hosts.heal();
        assert!(!hosts.comes(3, Kind::Short, 0, &mut faults));
        assert!(hosts.comes(3, Kind::Spurious, 0, &mut faults));
        hosts.end_rates_by_chaos();
        assert!(!hosts.comes(3, Kind::Spurious, 0, &mut faults));
    }

    #[test]
    fn short_reads_and_late_timers_stay_within_their_limits() {
        let (mut hosts, mut faults) = (FaultsOfHosts::new(1), Faults::new(None));
        assert_eq!(hosts.lateness(0, 0, &mut faults), 0);
        hosts.change(0, |own| {
            (own.short, own.late) = (Probability::new(1.0).unwrap(), 9);
            own.descriptors = Some(4);
        });
        assert_eq!(
            (hosts.descriptors(0), hosts.descriptors(1)),
            (Some(4), None)
        );
        assert_eq!(hosts.shorten(0, 1, 0, &mut faults), None);
        let mut late = 0;
        for _ in 0..100 {
            let len = hosts.shorten(0, 5, 0, &mut faults);
            assert!(len.is_some_and(|len| (1..5).contains(&len)), "{len:?}");
            late = late.max(hosts.lateness(0, 0, &mut faults));
        }
        assert_eq!(late, 9);
        assert_eq!(hosts.lateness(1, 0, &mut faults), 0);
    }
}
