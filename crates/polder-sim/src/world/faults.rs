//! Random faults, numbered, so that each can be left out.
//!
//! A fault has two names. Its *identity* states which decision of which stream it is: the loss of
//! the 41st segment from one host to another, the third cut of a test's chaos. It is the same in
//! every run of the seed, independently of the faults that are left out. Its *number* is its place
//! in the list of the run in which nothing is left out; reports and `POLDER_SIM_REPLAY` use it.
//!
//! A run that leaves faults out is given the identities that it keeps. No other fault happens,
//! including those that the full run did not reach: so the set that is kept can only shrink, and a
//! search among subsets ends. A decision draws its numbers first, and calls [`Faults::allow`]
//! afterwards: a fault that is left out takes the same numbers from its stream as one that happens.
//!
//! Faults that the test injects itself, and certain losses, are no choices: they always happen.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::choice::Probability;
use super::seconds::Seconds;

/// The limit of faults of one kind that are listed, and can be left out. A report shows a few of
/// them, and a search among more would take too long. The limit is for each kind, so that many
/// small faults (short reads, spurious events) do not crowd out the few that matter.
pub(super) const MAX_LISTED: usize = 4_000;

/// The limit of hosts that the description of a fault names.
const MAX_NAMED: usize = 8;

/// Seeds below this one are calm, so that a simple bug fails without any faults.
pub(crate) const FIRST_WILD: u64 = 10;

/// The kind of a fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    Loss,
    DatagramLoss,
    Duplicate,
    Reorder,
    Cut,
    Hold,
    Reset,
    Kill,
    PowerOff,
    Pause,
    Aborted,
    Exhausted,
    Short,
    Spurious,
    Name,
    Latency,
    Clock,
    Wall,
    Late,
    Blocking,
    Slow,
    DiskRead,
    DiskWrite,
    DiskSync,
    SlowSync,
    Unsynced,
    BitRot,
    LostWrite,
    Misdirected,
    Suspend,
    Program,
    /// An operation of a test's workload: no fault, but it can be left out as one.
    Operation,
}

impl Kind {
    /// Returns whether it happens on the way from one host to another.
    pub(super) fn is_of_ways(self) -> bool {
        use Kind::{DatagramLoss, Duplicate, Latency, Loss, Reorder};

        matches!(self, Loss | DatagramLoss | Duplicate | Reorder | Latency)
    }
}

/// The decision: a kind, a place (two hosts, or a call of the test), and its index there.
pub(crate) type Id = (Kind, u32, u32, u64);

/// A fault that has happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    pub(crate) id: Id,
    pub(crate) at: u64,
    /// The hosts that it affects; for a fault between hosts, those on either side.
    pub(crate) these: Vec<usize>,
    pub(crate) others: Vec<usize>,
    pub(crate) is_one_way: bool,
    /// Its duration, unless it is an instant.
    pub(crate) lasts: Option<u64>,
    /// Additional text for its description.
    pub(crate) detail: String,
}

impl Fault {
    pub(crate) fn new(id: Id, at: u64, these: Vec<usize>, others: Vec<usize>) -> Fault {
        Fault {
            id,
            at,
            these,
            others,
            is_one_way: false,
            lasts: None,
            detail: String::new(),
        }
    }

    /// Describes the fault, with its time.
    pub(crate) fn describe<'a>(&self, name: impl Fn(usize) -> &'a str) -> String {
        use fmt::Write;

        let list = |hosts: &[usize]| {
            let named = hosts.iter().take(MAX_NAMED).map(|host| name(*host));
            let mut text = named.collect::<Vec<&str>>().join(",");
            if hosts.len() > MAX_NAMED {
                let _ = write!(text, " and {} more", hosts.len() - MAX_NAMED);
            }
            text
        };
        let (these, others) = (list(&self.these), list(&self.others));
        let between = if self.is_one_way {
            format!("{these}→{others}")
        } else {
            format!("{these}|{others}")
        };
        let mut text = match self.id.0 {
            Kind::Loss => format!("loss of {these}→{others} segment {}", self.id.3),
            Kind::DatagramLoss => format!("loss of {these}→{others} datagram {}", self.id.3),
            Kind::Duplicate => format!("{these}→{others} datagram {} twice", self.id.3),
            Kind::Reorder => format!("{these}→{others} datagram {} late", self.id.3),
            Kind::Cut => format!("cut {between}"),
            Kind::Hold => format!("hold {between}"),
            Kind::Reset => format!("reset {between}"),
            Kind::Kill => format!("{these} killed"),
            Kind::PowerOff => format!("{these} powered off"),
            Kind::Pause => format!("{these} paused"),
            Kind::Suspend => format!("{these} suspended"),
            Kind::Aborted => format!("{these}: a connection aborted before it is accepted"),
            Kind::Exhausted => format!("{these}: no descriptor left"),
            Kind::Short => format!("{these}: a short read or write"),
            Kind::Spurious => format!("{these}: a spurious event"),
            Kind::Name => format!("{these}: a question for a name {}", self.detail),
            Kind::Latency => format!("latency of {these}→{others} {}", self.detail),
            Kind::Clock => format!("{these}: the clock {}", self.detail),
            Kind::Wall => format!("{these}: the wall clock {}", self.detail),
            Kind::Late => format!("{these}: a timer late by {}", self.detail),
            Kind::Blocking => format!("{these}: a call that blocks for longer"),
            Kind::Slow => format!("{between} slow, {}", self.detail),
            Kind::DiskRead => format!("{these}: a read of the disk fails"),
            Kind::DiskWrite => format!("{these}: a write to the disk fails"),
            Kind::DiskSync => format!("{these}: a sync fails"),
            Kind::SlowSync => format!("{these}: a slow sync"),
            Kind::Unsynced => format!("{these}: without power {}", self.detail),
            Kind::BitRot => format!("{these}: a bit has changed on the disk"),
            Kind::LostWrite => format!("{these}: a sync loses a write"),
            Kind::Misdirected => format!("{these}: a sync writes to another place"),
            Kind::Program => format!("{these}: buggify {:?}", self.detail),
            Kind::Operation => format!("{these}: {}", self.detail),
        };
        let _ = write!(text, " ({}", Seconds(self.at));
        if let Some(lasts) = self.lasts {
            let _ = write!(text, ", for {}", Seconds(lasts));
        }
        text + ")"
    }
}

/// The faults that a run keeps, if it leaves out the others.
pub(crate) type FaultFilter = Arc<BTreeSet<Id>>;

/// The faults of one run.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) list: Vec<Fault>,
    /// The number of faults of each kind that have happened, listed or not.
    counts: BTreeMap<Kind, usize>,
    kept: Option<FaultFilter>,
    /// The probabilities by chaos, used where those of a link, a host or a name are smaller.
    pub(crate) by_chaos: BTreeMap<Kind, Probability>,
    /// Whether random faults are turned off.
    pub(super) is_off: bool,
}

impl Faults {
    pub(crate) fn new(kept: Option<FaultFilter>) -> Faults {
        Faults {
            kept,
            ..Faults::default()
        }
    }

    /// Returns the probability of a kind of fault: its own, or that of chaos.
    #[inline]
    pub(super) fn rate(&self, kind: Kind, own: Probability) -> Probability {
        self.by_chaos.get(&kind).map_or(own, |rate| own.max(*rate))
    }

    /// Returns whether a fault happens. If so, it gets its number.
    pub(crate) fn allow(&mut self, id: Id, fault: impl FnOnce() -> Fault) -> bool {
        let is_off = self.is_off && id.0 != Kind::Operation;
        if is_off || self.kept.as_ref().is_some_and(|kept| !kept.contains(&id)) {
            return false;
        }
        let count = self.counts.entry(id.0).or_default();
        *count += 1;
        if *count <= MAX_LISTED {
            self.list.push(fault());
        }
        true
    }

    /// Returns how many faults of a kind have happened, including those that share its probability.
    pub(crate) fn count(&self, kind: Kind) -> usize {
        let also = match kind {
            Kind::Loss => Some(Kind::DatagramLoss),
            Kind::Kill => Some(Kind::PowerOff),
            _ => None,
        };
        let kinds = [Some(kind), also].into_iter().flatten();
        kinds.filter_map(|kind| self.counts.get(&kind)).sum()
    }

    /// As [`allow`](Self::allow), for a fault of one host, or on the way from one to another, which
    /// its identity names.
    pub(crate) fn allow_one(&mut self, id: Id, at: u64, detail: impl FnOnce() -> String) -> bool {
        let (kind, from, to, _) = id;
        let others = kind.is_of_ways().then_some(to as usize);
        self.allow(id, || Fault {
            detail: detail(),
            ..Fault::new(id, at, vec![from as usize], Vec::from_iter(others))
        })
    }

    /// Returns whether more faults have happened than are listed.
    pub(crate) fn has_unlisted(&self) -> bool {
        self.counts.values().any(|count| *count > MAX_LISTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fault that is left out does not occur, nor one that the full run did not have.
    #[test]
    fn excluded_and_unknown_faults_do_not_occur() {
        let id = |nth| (Kind::Loss, 0, 1, nth);
        let fault = |nth| move || Fault::new(id(nth), 7, vec![0], vec![1]);
        let mut full = Faults::new(None);
        assert!((1..=3).all(|nth| full.allow(id(nth), fault(nth))));
        let kept = [full.list[1].id].into_iter().collect();
        let mut less = Faults::new(Some(Arc::new(kept)));
        let happened = [1, 2, 3, 4].map(|nth| less.allow(id(nth), fault(nth)));
        assert_eq!(happened, [false, true, false, false]);
        assert_eq!((full.list.len(), less.list.len()), (3, 1));
        less.is_off = true;
        assert!(!less.allow(id(2), fault(2)));
    }

    #[test]
    fn a_fault_says_what_it_is_and_when() {
        let name = |host: usize| ["a", "b", "c"][host];
        let mut cut = Fault::new((Kind::Cut, 0, 0, 1), 1_500_000_000, vec![0, 2], vec![1]);
        cut.lasts = Some(2_000_000);
        assert_eq!(cut.describe(name), "cut a,c|b (1.500000 s, for 0.002000 s)");
        cut.is_one_way = true;
        assert!(cut.describe(name).starts_with("cut a,c→b ("));
        let loss = Fault::new((Kind::Loss, 0, 1, 41), 0, vec![0], vec![1]);
        assert_eq!(loss.describe(name), "loss of a→b segment 41 (0.000000 s)");
    }
}
