//! Faults of a host's own kernel: connections that are gone when they are accepted, descriptors
//! that are used up, by number or at random, short reads and writes, spurious readiness, timers
//! that fire late, and disk calls that fail.
//!
//! Each kind has its own stream of choices, which is used only while the fault is on. So a world
//! without the fault keeps the trace that it has always had.

use std::collections::BTreeMap;

use super::choice::{Probability, Stream};
use super::faults::Kind;

/// The faults of a host, and their choices.
#[derive(Debug, Default)]
pub(crate) struct HostFaults {
    /// The probabilities that the test has set.
    pub(super) rates: BTreeMap<Kind, Probability>,
    /// The limit of a timer's lateness.
    pub(crate) late: u64,
    /// The limit of a process's sockets and files.
    pub(crate) descriptors: Option<usize>,
    /// The streams of the kinds that have been on, each with the number of its draws, which
    /// identifies its faults.
    pub(super) streams: BTreeMap<Kind, (Stream, u64)>,
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
    pub(super) hosts: BTreeMap<usize, HostFaults>,
    /// Whether any host has had faults, of its own or by chaos. Losses of messages are not among
    /// them, so with these alone a call on a socket looks nothing up.
    pub(super) are_any: bool,
}

/// Returns the labels of the stream that decides whether a fault happens, and of that which gives
/// its extent.
pub(super) fn labels(kind: Kind) -> [&'static str; 2] {
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
    pub(super) fn stream(&mut self, seed: u64, host: usize, kind: Kind) -> &mut (Stream, u64) {
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

#[cfg(test)]
mod tests {
    use super::super::core::Core;
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
