//! Programs that a colleague could have written, each with its bug and without. With the bug, a
//! failure is found within the number of seeds given; without it no seed fails.
//!
//! `POLDER_PLANTED_SEEDS` sets the number of seeds for the runs without a bug: `ci/sim.sh` runs
//! 1,000. With `POLDER_PLANTED_SCORES`, the output also has the time until the bug was found, and
//! the number of seeds that find it with round-robin order, and without chaos: each part of a world
//! must earn its place. With `POLDER_PLANTED_ONLY` they run with their bugs alone, by `check`, from
//! the seeds of the environment: for `ci/sim.sh --campaigns`.

#[path = "../planted/accept_loop_ends.rs"]
mod accept_loop_ends;
#[path = "../planted/applied_twice.rs"]
mod applied_twice;
#[path = "../planted/both_write_first.rs"]
mod both_write_first;
#[path = "../planted/commands.rs"]
mod commands;
#[path = "../planted/early_answer.rs"]
mod early_answer;
#[path = "../planted/forgotten_vote.rs"]
mod forgotten_vote;
#[path = "../planted/half_close.rs"]
mod half_close;
#[path = "../planted/late_subscriber.rs"]
mod late_subscriber;
#[path = "../planted/lost_update.rs"]
mod lost_update;
#[path = "../planted/no_timeout.rs"]
mod no_timeout;
#[path = "../planted/retry_storm.rs"]
mod retry_storm;
#[path = "../planted/select_loses_bytes.rs"]
mod select_loses_bytes;
#[path = "../planted/split_brain.rs"]
mod split_brain;
#[path = "../planted/stale_name.rs"]
mod stale_name;
#[path = "../planted/stale_replica.rs"]
mod stale_replica;

use std::time::{Duration, Instant};

use polder_sim::{Order, Sim};

/// The result of running seeds with a bug.
struct Score {
    found: Vec<u64>,
    /// The real time until the first seed found the bug.
    first_after: Option<Duration>,
    fingerprints: Vec<u64>,
}

/// Runs `test` with its bug, after `prepare`: it may only fail with a message that contains
/// `words`.
fn score<F>(
    seeds: u64,
    words: &str,
    prepare: impl Fn(&Sim) + Sync,
    test: &(impl Fn(Sim, bool) -> F + Sync),
) -> Score
where
    F: Future<Output = ()> + 'static,
{
    let start = Instant::now();
    let mut score = Score {
        found: Vec::new(),
        first_after: None,
        fingerprints: Vec::new(),
    };
    for seed in 0..seeds {
        let report = polder_sim::run(seed, |sim| {
            prepare(&sim);
            test(sim, true)
        });
        score.fingerprints.push(report.fingerprint);
        if let Some(failure) = report.failure {
            assert!(failure.contains(words), "another failure: {failure}");
            score.first_after.get_or_insert(start.elapsed());
            score.found.push(seed);
        }
    }
    score
}

/// Runs `test` with its bug, which must be found within `seeds` by a failure that contains `words`,
/// and without.
fn plant<F>(name: &str, seeds: u64, words: &str, test: impl Fn(Sim, bool) -> F + Sync)
where
    F: Future<Output = ()> + 'static,
{
    if std::env::var_os("POLDER_PLANTED_ONLY").is_some() {
        return polder_sim::check(0..1, |sim| test(sim, true));
    }
    let usual = score(seeds, words, |_| (), &test);
    let first = usual.found.first();
    let mut line = format!(
        "{name}: found by {} of {seeds} seeds, the first is {first:?}",
        usual.found.len()
    );
    if std::env::var_os("POLDER_PLANTED_SCORES").is_some() {
        if let Some(after) = usual.first_after {
            line += &format!(", after {after:.1?}");
        }
        let by_turns = score(seeds, words, |sim| sim.order(Order::Fifo), &test);
        line += &format!("; by turns: {}", by_turns.found.len());
        let calm = score(seeds, words, Sim::__without_chaos, &test);
        // A test without chaos has the same fingerprints.
        if calm.fingerprints != usual.fingerprints {
            line += &format!("; without chaos: {}", calm.found.len());
        }
    }
    println!("{line}");
    assert!(first.is_some(), "{name}: no seed of {seeds} finds the bug");
    let count = std::env::var("POLDER_PLANTED_SEEDS");
    let count = count.map_or(100, |it| it.parse().expect("a number"));
    polder_sim::check(0..count, |sim| test(sim, false));
}
