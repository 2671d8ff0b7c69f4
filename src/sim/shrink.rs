//! Shrinking: finds which faults of a failed run are needed for the failure, and how much simpler
//! the run can be otherwise.
//!
//! Two runs fail for the same reason if the same check fails, or if the same line panics. Shrinking
//! first leaves out all faults, then one kind after the other, and then ever smaller parts of the
//! rest (Zeller's ddmin). Faults that a failing run did not reach are left out from then on. No
//! single fault of the result can be left out, unless the time limit was reached.
//!
//! Then it reduces the test's choices ([`Sim::choose`](super::Sim::choose)), one after the other:
//! to zero, or by halving the difference repeatedly, so that a test that chooses the amount of its
//! work gets shorter. Last, each segment takes the mean of its link's latency, and ready tasks run
//! in turn. Each of these is kept if the run still fails for the same reason.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::check::{Report, Run};
use super::left_out::LeftOut;
use crate::world::faults::Id;
use crate::world::{Setup, Simpler};

/// Maximum number of runs: more than ddmin needs for a few dozen faults of which a few are needed.
const MAX_RUNS: u32 = 200;

/// Maximum real time, as the user is waiting for the report.
const LONGEST: Duration = Duration::from_secs(30);

/// Maximum number of halvings between a choice and a smaller one.
const MAX_HALVINGS: u32 = 12;

/// A smaller run that fails as the whole one does.
pub(super) struct Shrunk {
    /// The places of the faults that it needs.
    pub(super) needed: Vec<usize>,
    pub(super) simpler: Simpler,
}

/// Searches for smaller runs that fail as `report` does.
struct Search<'a> {
    report: &'a Report,
    cause: &'a str,
    run: &'a Run<'a>,
    start: Instant,
    runs: u32,
}

impl Search<'_> {
    /// Runs with these faults and no others. Returns its faults if it fails for the same reason.
    fn fails(&mut self, kept: &BTreeSet<Id>, simpler: &Simpler) -> Option<Vec<Id>> {
        if self.runs == MAX_RUNS || self.start.elapsed() > LONGEST {
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

    /// Returns the message for the case that this run never ends.
    fn describe(&self, kept: &BTreeSet<Id>, simpler: &Simpler) -> Arc<str> {
        let (seed, all) = (self.report.seed, &self.report.faults);
        let left_out = LeftOut::but(seed, all, kept, simpler);
        let found = self.report.failure.as_deref().unwrap_or_default();
        format!("{found}  A smaller run of it, POLDER_SIM={left_out}, never ends:\n").into()
    }

    /// Finds what may be simpler if only `left` is kept, and removes faults from `left` that are
    /// not reached then.
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
        if attempt(&fifo) { fifo } else { simpler }
    }
}

/// Returns a number below `number` for which `holds` is true, as low as a few halvings find.
fn lowest(number: u64, holds: &mut dyn FnMut(u64) -> bool) -> Option<u64> {
    if number == 0 {
        return None;
    }
    if holds(0) {
        return Some(0);
    }
    let (mut low, mut high) = (0, number);
    for _ in 0..MAX_HALVINGS {
        let middle = low + (high - low) / 2;
        if middle == low {
            break;
        }
        if holds(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    (high < number).then_some(high)
}

/// Returns how much smaller a failed run can be; or an intermediate result, if the search takes too
/// long. `None` if there is nothing to find out.
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
    // Faults that are not listed cannot be kept.
    if report.has_unlisted {
        search.fails(&all.iter().copied().collect(), &none)?;
    }
    let mut needed: BTreeSet<Id> = if all.is_empty() {
        BTreeSet::new()
    } else {
        let found = minimize(all, &mut |kept| search.fails(kept, &none));
        found.into_iter().collect()
    };
    let simpler = search.simplify(&mut needed);
    let places = all.iter().enumerate();
    let places = places.filter_map(|(place, id)| needed.contains(id).then_some(place));
    Some(Shrunk {
        needed: places.collect(),
        simpler,
    })
}

/// Returns a small part of `all` that still fails: the faults that `fails` has returned. All of
/// `all` fails.
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
    use super::*;
    use crate::world::faults::Kind;

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
            assert!(runs < MAX_RUNS / 2, "{runs} runs");
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
        // For a large number it only comes near.
        let found = lowest(u64::MAX, &mut |it| it >= 1 << 20).unwrap();
        assert!(found < u64::MAX >> 10);
    }

    #[test]
    fn what_a_failing_run_does_not_come_to_is_left_out() {
        let all = ids(1_000);
        let mut runs = 0;
        let found = minimize(&all, &mut |kept| {
            runs += 1;
            // It fails at the first one that is kept.
            let first = kept.iter().find(|id| id.3 > 900);
            first.map(|id| vec![*id])
        });
        assert_eq!((found.len(), runs), (1, 3));
    }
}
