//! Shrinking: which of the faults of a run that has failed are needed for it to fail.
//!
//! A run that leaves faults out fails for the same reason if the same check fails, or if the same
//! line panics. First all faults are left out, then one kind after the other, and then parts of
//! what is left, ever smaller (Zeller's ddmin). What a failing run did not come to is left out from
//! then on. The result is one of which no single fault can be left out, unless time was up before.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::check::{Report, Run};
use super::kernel::Setup;
use super::kernel::faults::{Id, MOST_LISTED};

/// So many runs at most: more than ddmin needs for a few dozen faults of which a few are needed.
const MOST_RUNS: u32 = 200;

/// So long at most, of real time: somebody waits for the report.
const LONGEST: Duration = Duration::from_secs(30);

/// The places of the faults of a run that has failed without which it does not fail for the same
/// reason; or somewhat more, if that takes too long. `None` if there is nothing to find out.
pub(super) fn shrink(report: &Report, run: &Run<'_>) -> Option<Vec<usize>> {
    let cause = &report.details.as_ref()?.cause;
    let (seed, all) = (report.seed, &report.faults);
    if all.is_empty() {
        return None;
    }
    let start = Instant::now();
    let mut runs = 0;
    // The faults of the run, if it fails for the same reason.
    let mut fails = |kept: &BTreeSet<Id>| {
        if runs == MOST_RUNS || start.elapsed() > LONGEST {
            return None;
        }
        runs += 1;
        let setup = Setup {
            kept: Some(Arc::new(kept.clone())),
            is_quiet: true,
            ..Setup::default()
        };
        let other = run(seed, setup);
        let is_same = other.details.is_some_and(|it| it.cause == *cause);
        is_same.then_some(other.faults)
    };
    // Of what is not listed nothing can be kept.
    if all.len() == MOST_LISTED {
        fails(&all.iter().copied().collect())?;
    }
    let needed: BTreeSet<Id> = minimize(all, &mut fails).into_iter().collect();
    let places = all.iter().enumerate();
    Some(
        places
            .filter_map(|(place, id)| needed.contains(id).then_some(place))
            .collect(),
    )
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
