//! Shrinking: which of the faults of a run that has failed are needed for it to fail, and how much
//! simpler it may be beside that.
//!
//! A run fails for the same reason as another one if the same check fails, or if the same line
//! panics. First all faults are left out, then one kind after the other, and then parts of what is
//! left, ever smaller (Zeller's ddmin). What a failing run did not come to is left out from then
//! on. The result is one of which no single fault can be left out, unless time was up before.
//!
//! Then what the test has chosen ([`Sim::choose`](super::Sim::choose)) becomes smaller, one choice
//! after the other: zero, or half of the way again and again, so that a test that chooses how much
//! it does is shorter. Last, each segment takes the mean of its link's latency, and what is ready
//! runs in turn: each is kept if the run fails so too.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::check::{Report, Run};
use super::kernel::faults::Id;
use super::kernel::{Setup, Simpler};
use super::left_out::LeftOut;

/// So many runs at most: more than ddmin needs for a few dozen faults of which a few are needed.
const MOST_RUNS: u32 = 200;

/// So long at most, of real time: somebody waits for the report.
const LONGEST: Duration = Duration::from_secs(30);

/// So often the way from a choice to a smaller one is halved.
const MOST_HALVINGS: u32 = 12;

/// A run that fails as the whole one does, and is smaller.
pub(super) struct Shrunk {
    /// The places of the faults that it needs.
    pub(super) needed: Vec<usize>,
    pub(super) simpler: Simpler,
}

/// Looks for runs that fail as one did.
struct Search<'a> {
    report: &'a Report,
    cause: &'a str,
    run: &'a Run<'a>,
    start: Instant,
    runs: u32,
}

impl Search<'_> {
    /// The faults of the run with these faults and no others, if it fails for the same reason.
    fn fails(&mut self, kept: &BTreeSet<Id>, simpler: &Simpler) -> Option<Vec<Id>> {
        if self.runs == MOST_RUNS || self.start.elapsed() > LONGEST {
            return None;
        }
        self.runs += 1;
        let setup = Setup {
            kept: Some(Arc::new(kept.clone())),
            simpler: simpler.clone(),
            is_quiet: true,
            found: Some(self.describe(kept, simpler)),
            ..Setup::default()
        };
        let other = (self.run)(self.report.seed, setup);
        let is_same = other.details.is_some_and(|it| it.cause == self.cause);
        is_same.then_some(other.faults)
    }

    /// What is said if that run never ends.
    fn describe(&self, kept: &BTreeSet<Id>, simpler: &Simpler) -> Arc<str> {
        let (seed, all) = (self.report.seed, &self.report.faults);
        let left_out = LeftOut::but(seed, all, kept, simpler);
        let found = self.report.failure.as_deref().unwrap_or_default();
        format!("{found}  A smaller run of it, POLDER_SIM={left_out}, never ends:\n").into()
    }

    /// What may be simpler where `left` is kept, of which less may be left then.
    fn simplify(&mut self, left: &mut BTreeSet<Id>) -> Simpler {
        let mut simpler = Simpler::default();
        let report = self.report;
        let mut attempt = |next: &Simpler| {
            let fails = self.fails(left, next);
            let is_same = fails.is_some();
            *left = fails.map_or_else(|| std::mem::take(left), |it| it.into_iter().collect());
            is_same
        };
        for (nth, chosen) in (1..).zip(&report.choices) {
            let with = |number| {
                let mut next = simpler.clone();
                next.chosen.insert(nth, number);
                next
            };
            if let Some(number) = lowest(*chosen, &mut |number| attempt(&with(number))) {
                simpler.chosen.insert(nth, number);
            }
        }
        let even = Simpler {
            is_even: true,
            ..simpler.clone()
        };
        if attempt(&even) {
            simpler = even;
        }
        let fifo = Simpler {
            is_fifo: true,
            ..simpler.clone()
        };
        match attempt(&fifo) {
            true => fifo,
            false => simpler,
        }
    }
}

/// A number below `number` for which `holds` is true, as low as a few halvings find.
fn lowest(number: u64, holds: &mut dyn FnMut(u64) -> bool) -> Option<u64> {
    if number == 0 {
        return None;
    }
    if holds(0) {
        return Some(0);
    }
    let (mut low, mut high) = (0, number);
    for _ in 0..MOST_HALVINGS {
        let middle = low + (high - low) / 2;
        if middle == low {
            break;
        }
        match holds(middle) {
            true => high = middle,
            false => low = middle,
        }
    }
    (high < number).then_some(high)
}

/// How much smaller a run may be that has failed; or somewhat larger than that, if to find it out
/// takes too long. `None` if there is nothing to be found out.
pub(super) fn shrink(report: &Report, run: &Run<'_>) -> Option<Shrunk> {
    let all = &report.faults;
    let mut search = Search {
        report,
        cause: &report.details.as_ref()?.cause,
        run,
        start: Instant::now(),
        runs: 0,
    };
    let none = Simpler::default();
    // Of what is not listed nothing can be kept.
    if report.has_unlisted {
        search.fails(&all.iter().copied().collect(), &none)?;
    }
    let mut needed: BTreeSet<Id> = match all.is_empty() {
        true => BTreeSet::new(),
        false => {
            let found = minimize(all, &mut |kept| search.fails(kept, &none));
            found.into_iter().collect()
        }
    };
    let simpler = search.simplify(&mut needed);
    let places = all.iter().enumerate();
    let places = places.filter_map(|(place, id)| needed.contains(id).then_some(place));
    Some(Shrunk {
        needed: places.collect(),
        simpler,
    })
}

/// Few of `all` with which `fails` gives what there was of them. It does so with `all`.
fn minimize(all: &[Id], fails: &mut dyn FnMut(&BTreeSet<Id>) -> Option<Vec<Id>>) -> Vec<Id> {
    if fails(&BTreeSet::new()).is_some() {
        return Vec::new();
    }
    let mut left = all.to_vec();
    let kinds: BTreeSet<_> = all.iter().map(|id| id.0).collect();
    if kinds.len() > 1 {
        for kind in kinds {
            let kept = left.iter().copied().filter(|id| id.0 != kind).collect();
            left = fails(&kept).unwrap_or(left);
        }
    }
    let mut parts = 2;
    while left.len() > 1 {
        let size = left.len().div_ceil(parts);
        let without = |part: usize| -> BTreeSet<Id> {
            let (start, end) = (part * size, (part + 1) * size);
            let kept = left
                .iter()
                .enumerate()
                .filter(|(n, _)| !(start..end).contains(n));
            kept.map(|(_, id)| *id).collect()
        };
        let smaller = (0..left.len().div_ceil(size)).find_map(|part| fails(&without(part)));
        match smaller {
            Some(smaller) => {
                left = smaller;
                parts = (parts - 1).max(2);
            }
            None if size == 1 => break,
            None => parts = (parts * 2).min(left.len()),
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::super::kernel::faults::Kind;
    use super::*;

    fn ids(count: u64) -> Vec<Id> {
        let kind = |n| if n % 3 == 0 { Kind::Cut } else { Kind::Loss };
        (1..=count).map(|n| (kind(n), 0, 1, n)).collect()
    }

    #[test]
    fn those_that_are_needed_are_found_wherever_they_are_in_few_runs() {
        let all = ids(60);
        for needed in [
            vec![],
            vec![5],
            vec![0, 59],
            vec![7, 8, 30],
            vec![2, 29, 44, 58],
        ] {
            let needed: Vec<Id> = needed.into_iter().map(|it| all[it]).collect();
            let mut runs = 0;
            let found = minimize(&all, &mut |kept| {
                runs += 1;
                let fails = needed.iter().all(|it| kept.contains(it));
                fails.then(|| kept.iter().copied().collect())
            });
            let found: BTreeSet<Id> = found.into_iter().collect();
            assert_eq!(found, needed.into_iter().collect());
            assert!(runs < MOST_RUNS / 2, "{runs} runs");
        }
    }

    #[test]
    fn a_number_becomes_as_low_as_it_fails_with() {
        for (number, least) in [
            (0, 0),
            (1, 0),
            (1, 1),
            (100, 0),
            (100, 1),
            (100, 37),
            (7, 7),
        ] {
            let mut runs = 0;
            let found = lowest(number, &mut |it| {
                runs += 1;
                it >= least
            });
            assert_eq!(found.unwrap_or(number), least, "{number}");
            assert!(runs < 10);
        }
        // Far away it comes near.
        let found = lowest(u64::MAX, &mut |it| it >= 1 << 20).unwrap();
        assert!(found < u64::MAX >> 10);
    }

    #[test]
    fn what_a_failing_run_does_not_come_to_is_left_out() {
        let all = ids(1_000);
        let mut runs = 0;
        let found = minimize(&all, &mut |kept| {
            runs += 1;
            // It fails at the first of these, whichever that is.
            let first = kept.iter().find(|id| id.3 > 900);
            first.map(|id| vec![*id])
        });
        assert_eq!((found.len(), runs), (1, 3));
    }
}
