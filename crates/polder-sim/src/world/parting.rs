//! Cuts, holds and slow links: which hosts do not reach each other now, or only late; and which
//! hosts are suspended, with their network cards.
//!
//! Each is kept as it was requested, as two sets of hosts, and every send checks whether one of
//! them applies: there are few at a time, and there may be a million pairs of hosts. They may
//! overlap: a way is open again when the last one that applies to it has ended.

use std::collections::{BTreeMap, BTreeSet};

use super::processes::PauseId;
use super::trace_event::TraceEvent;

/// The fate of messages between the hosts of a parting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    Cut,
    /// Messages are kept, and not lost.
    Held,
    /// The maximum bandwidth of a link, in bytes per second.
    Slow(u64),
}

impl How {
    /// Returns the events that note its beginning and its end, given the host on the other side.
    pub(super) fn told(self) -> [fn(usize) -> TraceEvent; 2] {
        match self {
            How::Cut => [TraceEvent::Cut, TraceEvent::Healed],
            How::Held => [TraceEvent::Held, TraceEvent::Released],
            How::Slow(_) => [TraceEvent::Slow, TraceEvent::Fast],
        }
    }
}

/// A cut, a hold, or slow links, between two sets of hosts.
#[derive(Debug)]
pub(super) struct Parting {
    pub(super) these: BTreeSet<usize>,
    pub(super) others: BTreeSet<usize>,
    pub(super) is_one_way: bool,
    pub(super) how: How,
    /// Whether a router immediately reports to connecting sockets that a cut host is unreachable.
    pub(super) is_told: bool,
    /// The pairs that were noted in the trace, until their end is noted, too. When this parting
    /// ends, another one of the same kind that still applies to a pair takes it over.
    pub(super) noted: Vec<(usize, usize)>,
}

impl Parting {
    pub(super) fn lies_between(&self, from: usize, to: usize) -> bool {
        let goes = |from: &usize, to: &usize| self.these.contains(from) && self.others.contains(to);
        goes(&from, &to) || !self.is_one_way && goes(&to, &from)
    }
}

/// Names a parting of a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PartingId(pub(super) u32);

/// The partings of a world, and the hosts that are suspended.
#[derive(Debug, Default)]
pub(crate) struct Partings {
    /// By number.
    pub(super) list: BTreeMap<u32, Parting>,
    /// The number of partings so far.
    pub(super) count: u32,
    /// The suspensions in effect, of which a host may have several.
    suspended: Vec<(PauseId, usize)>,
}

impl Partings {
    pub(super) fn are_none(&self) -> bool {
        self.list.is_empty() && self.suspended.is_empty()
    }

    /// Adds a suspension. Returns whether it is the host's only one.
    pub(super) fn suspend(&mut self, id: PauseId, host: usize) -> bool {
        let is_first = !self.is_suspended(host);
        self.suspended.push((id, host));
        is_first
    }

    /// Ends a suspension, if this pause is one. Returns its host, if that was its last one.
    pub(super) fn resume(&mut self, id: PauseId) -> Option<usize> {
        let place = self.suspended.iter().position(|own| own.0 == id)?;
        let (_, host) = self.suspended.swap_remove(place);
        (!self.is_suspended(host)).then_some(host)
    }

    /// Returns a suspension that is in effect.
    pub(super) fn last_suspension(&self) -> Option<PauseId> {
        self.suspended.last().map(|own| own.0)
    }

    pub(crate) fn is_suspended(&self, host: usize) -> bool {
        self.suspended.iter().any(|own| own.1 == host)
    }

    fn any(&self, from: usize, to: usize, how: How) -> bool {
        let mut of_kind = self.list.values().filter(|parting| parting.how == how);
        of_kind.any(|parting| parting.lies_between(from, to))
    }

    pub(super) fn is_cut(&self, from: usize, to: usize) -> bool {
        self.any(from, to, How::Cut)
    }

    /// Returns whether what is sent now is lost, because the way is cut or its sender is suspended,
    /// and the way's [`bandwidth`](Self::bandwidth).
    #[inline(always)]
    pub(super) fn of_a_way(&self, from: usize, to: usize) -> (bool, Option<u64>) {
        if self.are_none() {
            (false, None)
        } else {
            let is_cut = self.is_cut(from, to) || self.is_suspended(from);
            (is_cut, self.bandwidth(from, to))
        }
    }

    /// Returns whether a router reports this way as cut.
    pub(super) fn is_unreachable(&self, from: usize, to: usize) -> bool {
        let mut told = self.list.values().filter(|parting| parting.is_told);
        told.any(|parting| parting.lies_between(from, to))
    }

    /// Returns whether what arrives on this way is kept until later. A host that is suspended keeps
    /// what it has sent to itself.
    pub(super) fn is_held(&self, from: usize, to: usize) -> bool {
        if from == to {
            self.is_suspended(to)
        } else {
            self.any(from, to, How::Held)
        }
    }

    /// Returns the maximum bandwidth of this way in bytes per second, if it is slow.
    fn bandwidth(&self, from: usize, to: usize) -> Option<u64> {
        let all = self.list.values();
        let between = all.filter(|parting| parting.lies_between(from, to));
        let slow = between.filter_map(|parting| match parting.how {
            How::Slow(bandwidth) => Some(bandwidth),
            How::Cut | How::Held => None,
        });
        slow.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_slow_links_the_slowest_counts() {
        let slow = |others: &[usize], bandwidth| Parting {
            these: BTreeSet::from([0]),
            others: others.iter().copied().collect(),
            is_one_way: false,
            how: How::Slow(bandwidth),
            is_told: false,
            noted: Vec::new(),
        };
        let partings = Partings {
            list: (1..)
                .zip([slow(&[1], 7), slow(&[1, 2], 5), slow(&[1], 6)])
                .collect(),
            count: 3,
            ..Partings::default()
        };
        let all = [(0, 1), (2, 0), (1, 2)].map(|(from, to)| partings.bandwidth(from, to));
        assert_eq!(all, [Some(5), Some(5), None]);
        assert!(!partings.is_cut(0, 1) && !partings.is_held(0, 1));
    }

    #[test]
    fn a_parting_lies_between_its_hosts_and_no_others() {
        let mut parting = Parting {
            these: BTreeSet::from([0, 63, 64]),
            others: BTreeSet::from([1, 200]),
            is_one_way: false,
            how: How::Cut,
            is_told: false,
            noted: Vec::new(),
        };
        for is_one_way in [false, true] {
            parting.is_one_way = is_one_way;
            for (from, to) in [(0, 1), (63, 200), (64, 1)] {
                assert!(parting.lies_between(from, to));
                assert_eq!(parting.lies_between(to, from), !is_one_way);
            }
            for (from, to) in [(0, 63), (1, 200), (2, 1), (0, 2), (0, 500), (65, 200)] {
                assert!(!parting.lies_between(from, to));
                assert!(!parting.lies_between(to, from));
            }
        }
    }
}
