//! Exhaustive tests: runs a test in all orders of what is ready or due at the same moment.
//!
//! A run returns the choices that it has made, with the number of alternatives of each
//! ([`Schedule`](crate::world::schedule::Schedule)). For each alternative that it has not taken,
//! another run makes the same choices until there, takes the alternative, and then the first one of
//! each further choice. So every sequence of choices is made by one run.
//!
//! Runs that take the fewest alternatives come first: most bugs need only a few (Emmi et al.,
//! "Delay-Bounded Scheduling", 2011), and the report of a failure has no needless ones. Runs are
//! made in batches, and the results are counted in order, so neither the runs nor what they find
//! depends on threads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::jobs::{BATCH, run_all};
use super::replay::Replay;
use super::threads::Threads;
use crate::world::schedule::{Choice, MAX_CHOICES};
use crate::world::setup::RunConfig;

/// The runs of one seed that are left.
struct Left {
    /// In the order in which they are made. Each run adds those that take one alternative more, so
    /// those with the fewest alternatives come first.
    runs: VecDeque<Next>,
    /// The limit of their number: more will not be made.
    limit: usize,
    /// Whether all other runs are or were in the list.
    is_complete: bool,
}

/// A run that makes the choices of another one until a place, where it takes an alternative. Those
/// of one run share its choices.
struct Next {
    made: Arc<[Choice]>,
    place: usize,
    other: u32,
}

impl Left {
    /// Returns an empty list, for the runs behind the one that takes no alternative.
    fn new(limit: usize) -> Left {
        Left {
            runs: VecDeque::new(),
            limit,
            is_complete: true,
        }
    }

    /// Takes the next run, and returns its first choices.
    fn next(&mut self) -> Option<Arc<[u32]>> {
        let next = self.runs.pop_front()?;
        let until = next.made[..next.place].iter().map(|choice| choice.taken);
        Some(until.chain([next.other]).collect())
    }

    /// Adds the runs that take one alternative more than a run that was `given` these choices, and
    /// has `made` those.
    fn add(&mut self, given: &[u32], made: &[Choice]) {
        let made: Arc<[Choice]> = made.into();
        self.is_complete &= made.len() < MAX_CHOICES;
        for place in given.len()..made.len() {
            for other in 1..made[place].count {
                if self.runs.len() == self.limit {
                    self.is_complete = false;
                    return;
                }
                let made = made.clone();
                self.runs.push_back(Next { made, place, other });
            }
        }
    }
}

/// Makes all runs of a seed, and adds to `sometimes` which conditions were true. Returns one that
/// fails, and its report, if there is one; prints how many there are otherwise.
///
/// # Panics
///
/// If there are more than `limit`, or if a run does not come to the choices that it was given.
pub(super) fn try_all(
    seed: u64,
    limit: usize,
    threads: &Threads<'_>,
    sometimes: &mut BTreeMap<String, bool>,
) -> Option<(Replay, String)> {
    let (mut left, mut runs, mut covered) = (Left::new(limit), 0, 0);
    let replay = |chosen| {
        let config = RunConfig {
            chosen,
            ..RunConfig::default()
        };
        Replay::new(seed, config)
    };
    let mut first = Some(Arc::default());
    loop {
        let most = BATCH.min(limit - runs);
        let next = std::iter::from_fn(|| first.take().or_else(|| left.next()));
        let batch: Vec<Replay> = next.take(most).map(replay).collect();
        if batch.is_empty() {
            break;
        }
        for (replay, report) in batch.iter().zip(run_all(&batch, false, threads)) {
            runs += 1;
            if let Some(failure) = &report.failure {
                return Some((replay.clone(), failure.clone()));
            }
            report.add_sometimes(sometimes);
            let schedule = report.schedule.filter(|schedule| schedule.has_given());
            let schedule = schedule.unwrap_or_else(|| {
                panic!(
                    "polder_sim: POLDER_SIM_REPLAY={replay} does not come to the choices of a run \
                     before it: the program does something that its schedule does not decide"
                )
            });
            covered += usize::from(schedule.is_covered);
            left.add(&replay.config.chosen, &schedule.made);
        }
    }
    let passed = runs - covered;
    assert!(
        left.runs.is_empty() && left.is_complete,
        "polder_sim: of the orders of an exhaustive test {passed} have passed, and there are more \
         than its limit of {limit} runs allows: raise it, or make the program smaller. Some of the \
         orders of a larger one are tried by seeds"
    );
    println!("schedules of the seed {seed:#x}: all {passed} pass");
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each sequence of choices is made once and those with the fewest alternatives first.
    #[test]
    fn choice_sequences_once_fewest_first() {
        let mut left = Left::new(1_000);
        let mut tried = Vec::new();
        let mut first = Some(Arc::default());
        while let Some(given) = first.take().or_else(|| left.next()) {
            // Two of two, unless the first took its alternative: then one of three.
            let taken = |place: usize| given.get(place).copied().unwrap_or(0);
            let counts: &[u32] = if taken(0) == 0 { &[2, 2, 2] } else { &[2, 3] };
            let made: Vec<Choice> = (0..counts.len())
                .map(|place| Choice {
                    taken: taken(place),
                    count: counts[place],
                })
                .collect();
            left.add(&given, &made);
            tried.push(made.iter().map(|choice| choice.taken).collect::<Vec<_>>());
        }
        let alternatives = |tried: &Vec<u32>| tried.iter().filter(|taken| **taken > 0).count();
        assert!(tried.is_sorted_by_key(alternatives), "{tried:?}");
        tried.sort();
        tried.dedup();
        assert_eq!(tried.len(), 4 + 3);
        assert!(left.is_complete && left.runs.is_empty());
    }

    #[test]
    fn no_more_runs_are_kept_than_will_be_made() {
        let mut left = Left::new(10);
        left.add(
            &[],
            &[Choice {
                taken: 0,
                count: 1_000,
            }],
        );
        assert_eq!((left.runs.len(), left.is_complete), (10, false));
    }
}
