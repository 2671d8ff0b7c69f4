//! Faults of a host's own kernel: connections that are gone when they are accepted, descriptors
//! that are used up, by number or at random, short reads and writes, spurious readiness, timers
//! that fire late, and disk calls that fail.
//!
//! Each kind has its own stream of choices, which is used only while the fault is on. So a world
//! without the fault keeps the trace that it has always had.

use std::collections::BTreeMap;

use super::choice::{Probability, Stream};
use super::core::Core;
use super::faults::Kind;
use super::seconds::Seconds;

/// The limit of the additional duration of a sync (a disk that does something else first, or a
/// controller that resets it), and of a call of `unblock` (a slow file system, or a pool with all
/// threads busy).
const LONGEST: u64 = 2_000_000_000;

/// The faults of a host, and their choices.
#[derive(Debug, Default)]
pub(crate) struct HostFaults {
    /// The probabilities that the test has set.
    rates: BTreeMap<Kind, Probability>,
    /// The limit of a timer's lateness.
    pub(crate) late: u64,
    /// The limit of a process's sockets and files.
    pub(crate) descriptors: Option<usize>,
    /// The streams of the kinds that have been on, each with the number of its draws, which
    /// identifies its faults.
    streams: BTreeMap<Kind, (Stream, u64)>,
}

impl HostFaults {
    pub(crate) fn set(&mut self, kind: Kind, rate: Probability) {
        self.rates.insert(kind, rate);
    }
}

/// The faults of all hosts.
#[derive(Debug, Default)]
pub(crate) struct FaultsOfHosts {
    /// By host; those that were asked for.
    hosts: BTreeMap<usize, HostFaults>,
    /// Whether any host has had faults, of its own or by chaos. Losses of messages are not among
    /// them, so with these alone a call on a socket looks nothing up.
    pub(super) are_any: bool,
}

/// Returns the labels of the stream that decides whether a fault happens, and of that which gives
/// its extent.
fn labels(kind: Kind) -> [&'static str; 2] {
    match kind {
        Kind::Aborted => ["aborted", ""],
        Kind::Exhausted => ["exhausted", ""],
        Kind::Short => ["short", "lengths"],
        Kind::Spurious => ["spurious", ""],
        Kind::Blocking => ["slow calls", "lengths of calls"],
        Kind::Late => ["late timers", ""],
        Kind::DiskRead => ["disk reads", ""],
        Kind::DiskWrite => ["disk writes", ""],
        Kind::DiskSync => ["disk syncs", ""],
        Kind::SlowSync => ["slow syncs", "lengths of syncs"],
        Kind::BitRot => ["bit rot", "bits"],
        Kind::LostWrite => ["lost writes", "which writes"],
        Kind::Misdirected => ["misdirected writes", "which places"],
        other => unreachable!("{other:?} is not a fault of hosts"),
    }
}

impl FaultsOfHosts {
    /// Changes the faults that the test has set for a host.
    pub(crate) fn change(&mut self, host: usize, f: impl FnOnce(&mut HostFaults)) {
        f(self.hosts.entry(host).or_default());
        self.are_any = true;
    }

    /// Ends the random faults that the test has set.
    pub(super) fn heal(&mut self) {
        for host in self.hosts.values_mut() {
            host.rates.clear();
            host.late = 0;
        }
    }

    /// Returns the stream of a kind of fault on a host, for another draw.
    fn stream(&mut self, seed: u64, host: usize, kind: Kind) -> &mut (Stream, u64) {
        let streams = &mut self.hosts.entry(host).or_default().streams;
        let begin = || (Stream::new(seed, labels(kind)[0], host, 0), 0);
        let stream = streams.entry(kind).or_insert_with(begin);
        stream.1 += 1;
        stream
    }

    /// Returns the limit of the sockets and files of a host's process, if there is one.
    pub(super) fn descriptors(&self, host: usize) -> Option<usize> {
        self.hosts.get(&host)?.descriptors
    }
}

/// The choices.
impl Core {
    /// Returns whether a fault of a host happens now, by its own probability or that of chaos. A
    /// fault that is off draws nothing.
    #[inline]
    pub(super) fn fault_comes(&mut self, host: usize, kind: Kind) -> bool {
        self.host_faults.are_any && self.is_fault_drawn(host, kind)
    }

    fn is_fault_drawn(&mut self, host: usize, kind: Kind) -> bool {
        let own = self.host_faults.hosts.get(&host);
        let own = own.and_then(|host| host.rates.get(&kind)).copied();
        let probability = self.faults.rate(kind, own.unwrap_or_default());
        if probability == Probability::default() {
            return false;
        }
        let (stream, nth) = self.host_faults.stream(self.seed, host, kind);
        let (id, now) = ((kind, host as u32, 0, *nth), self.time.now());
        stream.happens(probability)
            && (probability.is_certain() || self.faults.allow_one(id, now, String::new))
    }

    /// Draws by how much a host's timer that is set now is late.
    pub(super) fn lateness(&mut self, host: usize) -> u64 {
        let own = self.host_faults.hosts.get(&host);
        let most = own.map_or(0, |host| host.late);
        if most == 0 {
            return 0;
        }
        let (stream, nth) = self.host_faults.stream(self.seed, host, Kind::Late);
        let late = stream.below(most.saturating_add(1));
        let (id, now) = ((Kind::Late, host as u32, 0, *nth), self.time.now());
        if late != 0 && (self.faults).allow_one(id, now, || Seconds(late).to_string()) {
            late
        } else {
            0
        }
    }

    /// Draws by how much a call takes longer, because of this kind of fault.
    pub(super) fn delay_by_fault(&mut self, host: usize, kind: Kind) -> u64 {
        let extent = self.extent_of_fault(host, kind);
        extent.map_or(0, |mut stream| stream.below(LONGEST))
    }

    /// Draws a number that selects what a fault strikes, if it happens.
    pub(super) fn pick_by_fault(&mut self, host: usize, kind: Kind) -> Option<u64> {
        Some(self.extent_of_fault(host, kind)?.next())
    }

    /// Draws the length of a read or write of `len` bytes, if a fault makes it a short one.
    #[inline]
    pub(super) fn shorten(&mut self, host: usize, len: usize) -> Option<usize> {
        if len < 2 {
            return None;
        }
        let mut stream = self.extent_of_fault(host, Kind::Short)?;
        Some(1 + stream.below(len as u64 - 1) as usize)
    }

    /// Returns a stream for the extent of a fault, if the fault happens now: another stream than
    /// the one that decides on the next faults.
    #[inline]
    fn extent_of_fault(&mut self, host: usize, kind: Kind) -> Option<Stream> {
        if !self.fault_comes(host, kind) {
            return None;
        }
        let nth = self.host_faults.hosts.get(&host)?.streams.get(&kind)?.1;
        Some(Stream::new(self.seed, labels(kind)[1], host, nth as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fault comes by the host's own probability or by that of chaos.
    #[test]
    fn fault_rate_of_host_or_chaos() {
        let mut core = Core::of_test(1);
        let certain = Probability::new(1.0).unwrap();
        assert!(!core.host_faults.are_any && !core.fault_comes(3, Kind::Short));
        core.host_faults
            .change(3, |own| own.set(Kind::Short, certain));
        assert!(core.fault_comes(3, Kind::Short));
        assert!(!core.fault_comes(2, Kind::Short));
        assert!(!core.fault_comes(3, Kind::Spurious));
        core.faults.by_chaos.insert(Kind::Spurious, certain);
        assert!(core.fault_comes(2, Kind::Spurious));
        core.host_faults.heal();
        assert!(!core.fault_comes(3, Kind::Short));
        assert!(core.fault_comes(3, Kind::Spurious));
        core.faults.by_chaos.clear();
        assert!(!core.fault_comes(3, Kind::Spurious));
    }

    /// Short reads and late timers stay within their limits.
    #[test]
    fn short_reads_and_late_timers_are_bounded() {
        let mut core = Core::of_test(1);
        assert_eq!(core.lateness(0), 0);
        core.host_faults.change(0, |own| {
            own.set(Kind::Short, Probability::new(1.0).unwrap());
            (own.late, own.descriptors) = (9, Some(4));
        });
        assert_eq!(
            (
                core.host_faults.descriptors(0),
                core.host_faults.descriptors(1)
            ),
            (Some(4), None)
        );
        assert_eq!(core.shorten(0, 1), None);
        let mut late = 0;
        for _ in 0..100 {
            let len = core.shorten(0, 5);
            assert!(len.is_some_and(|len| (1..5).contains(&len)), "{len:?}");
            late = late.max(core.lateness(0));
        }
        assert_eq!(late, 9);
        assert_eq!(core.lateness(1), 0);
    }
}
