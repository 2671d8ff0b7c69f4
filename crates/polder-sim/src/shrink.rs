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
//! in turn. Each of these is kept if the run still fails for the same reason. If any is, the faults
//! that are left are reduced once more.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::replay::Replay;
use super::report::{Report, Run};
use crate::world::faults::Id;
use crate::world::setup::{RunConfig, Setup, Simplification};

/// Maximum number of runs: more than ddmin needs for a few dozen faults of which a few are needed.
const MAX_RUNS: u32 = 200;

/// Maximum real time, as the user is waiting for the report.
const LONGEST: Duration = Duration::from_secs(30);

/// Maximum number of halvings between a choice and a smaller one.
const MAX_HALVINGS: u32 = 12;

/// Searches for smaller runs that fail as `report` does.
struct Search<'a> {
    report: &'a Report,
    cause: &'a str,
    run: &'a Run<'a>,
    start: Instant,
    runs: u32,
}

impl Search<'_> {
    /// Runs this configuration. Returns the faults of that run if it fails for the same reason.
    fn fails(&mut self, config: &RunConfig) -> Option<Vec<Id>> {
        if self.runs == MAX_RUNS || self.start.elapsed() > LONGEST {
            return None;
        }
        self.runs += 1;
        let (report, found) = (self.report, self.report.failure.as_deref());
        let replay = Replay::of(report.seed, &report.faults, config);
        let found = found.unwrap_or_default();
        // For the case that this run never ends.
        let found =
            format!("{found}  A smaller run of it, POLDER_SIM_REPLAY={replay}, never ends:\n");
        let setup = Setup {
            found: Some(found.into()),
            ..Setup::quiet(config.clone())
        };
        let other = (self.run)(report.seed, setup);
        let is_same = (other.details).is_some_and(|details| details.cause == self.cause);
        is_same.then_some(other.faults)
    }

    /// Makes a run simpler in each way in which it still fails.
    fn simplify(&mut self, config: &mut RunConfig) {
        for (nth, chosen) in (1..).zip(&self.report.choices) {
            lowest(*chosen, &mut |number| {
                self.keep_if_it_fails(config, |simplification| {
                    simplification.chosen.insert(nth, number);
                })
            });
        }
        // An exhaustive test has both already.
        if self.report.schedule.is_none() {
            self.keep_if_it_fails(config, |simplification| simplification.is_even = true);
            self.keep_if_it_fails(config, |simplification| simplification.is_fifo = true);
        }
    }

    /// Changes `config` if the run still fails then, also to keep only the faults that it
    /// reaches.
    fn keep_if_it_fails(
        &mut self,
        config: &mut RunConfig,
        change: impl FnOnce(&mut Simplification),
    ) -> bool {
        let mut next = config.clone();
        change(&mut next.simplification);
        let Some(reached) = self.fails(&next) else {
            return false;
        };
        *config = keep(&next, reached);
        true
    }
}

/// Returns a configuration with these faults and no others.
fn keep(config: &RunConfig, kept: impl IntoIterator<Item = Id>) -> RunConfig {
    RunConfig {
        kept: Some(Arc::new(kept.into_iter().collect())),
        ..config.clone()
    }
}

/// Returns a number for which `holds` is true, as low as a few halvings find, or `number` itself.
fn lowest(number: u64, holds: &mut dyn FnMut(u64) -> bool) -> u64 {
    if number == 0 || holds(0) {
        return 0;
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
    high
}

/// Returns how much smaller a failed run of `whole` can be; or an intermediate result, if the
/// search takes too long. `None` if there is nothing to find out.
pub(super) fn shrink(report: &Report, whole: &RunConfig, run: &Run<'_>) -> Option<RunConfig> {
    let all = &report.faults;
    let mut search = Search {
        report,
        cause: &report.details.as_ref()?.cause,
        run,
        start: Instant::now(),
        runs: 0,
    };
    let only = |kept: &[Id]| keep(whole, kept.iter().copied());
    // Faults that are not listed cannot be kept.
    if report.has_unlisted {
        search.fails(&only(all))?;
    }
    let mut config = only(&minimize(all, &mut |kept| search.fails(&only(kept))));
    search.simplify(&mut config);
    if config.simplification != whole.simplification {
        // Some faults may be needed by the longer run alone.
        let kept = (config.kept.iter()).flat_map(|kept| kept.iter().copied());
        let kept: Vec<Id> = kept.collect();
        let only = |kept: &[Id]| keep(&config, kept.iter().copied());
        config = only(&minimize(&kept, &mut |kept| search.fails(&only(kept))));
    }
    Some(config)
}

/// Returns a small part of `all` that still fails: the faults that `fails` has returned. All of
/// `all` fails.
fn minimize(all: &[Id], fails: &mut dyn FnMut(&[Id]) -> Option<Vec<Id>>) -> Vec<Id> {
    if all.is_empty() || fails(&[]).is_some() {
        return Vec::new();
    }
    let mut left = all.to_vec();
    let kinds: BTreeSet<_> = all.iter().map(|id| id.0).collect();
    if kinds.len() > 1 {
        for kind in kinds {
            let kept: Vec<Id> = left.iter().copied().filter(|id| id.0 != kind).collect();
            left = fails(&kept).unwrap_or(left);
        }
    }
    let mut parts = 2;
    while left.len() > 1 {
        let size = left.len().div_ceil(parts);
        let smaller = (0..left.len()).step_by(size).find_map(|start| {
            let end = left.len().min(start + size);
            fails(&[&left[..start], &left[end..]].concat())
        });
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

    /// The needed elements are found at any position, in few runs.
    #[test]
    fn needed_found_in_few_runs() {
        let all = ids(60);
        for needed in [
            vec![],
            vec![5],
            vec![0, 59],
            vec![7, 8, 30],
            vec![2, 29, 44, 58],
        ] {
            let needed: Vec<Id> = needed.into_iter().map(|index| all[index]).collect();
            let mut runs = 0;
            let found = minimize(&all, &mut |kept| {
                runs += 1;
                let fails = needed.iter().all(|id| kept.contains(id));
                fails.then(|| kept.to_vec())
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
            let found = lowest(number, &mut |lower| {
                runs += 1;
                lower >= least
            });
            assert_eq!(found, least, "{number}");
            assert!(runs < 10);
        }
        // For a large number it only comes near.
        let found = lowest(u64::MAX, &mut |lower| lower >= 1 << 20);
        assert!(found < u64::MAX >> 10);
    }

    /// Elements that the failing run never reaches are left out.
    #[test]
    fn unreached_items_are_left_out() {
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
