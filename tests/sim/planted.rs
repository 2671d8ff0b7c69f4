//! Programs that a colleague could have written, each with its bug and without. With it the bug is
//! found within the seeds named; without it no seed fails.
//!
//! `POLDER_PLANTED_SEEDS` says how many seeds those without a bug run: `ci/sim.sh` runs 1,000.

#[path = "../planted/accept_loop_ends.rs"]
mod accept_loop_ends;
#[path = "../planted/applied_twice.rs"]
mod applied_twice;
#[path = "../planted/both_write_first.rs"]
mod both_write_first;
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

use polder::sim::{self, Sim};

/// Runs `test` with its bug, which is to be found within `seeds` by a failure that says `words`,
/// and without.
fn plant<F>(name: &str, seeds: u64, words: &str, test: impl Fn(Sim, bool) -> F + Sync)
where
    F: Future<Output = ()> + 'static,
{
    let mut found = Vec::new();
    for seed in 0..seeds {
        if let Some(failure) = sim::run(seed, |sim| test(sim, true)).failure {
            assert!(failure.contains(words), "another failure: {failure}");
            found.push(seed);
        }
    }
    let first = found.first();
    println!(
        "{name}: found by {} of {seeds} seeds, the first is {first:?}",
        found.len()
    );
    assert!(first.is_some(), "{name}: no seed of {seeds} finds the bug");
    let count = std::env::var("POLDER_PLANTED_SEEDS");
    let count = count.map_or(100, |it| it.parse().expect("a number"));
    sim::check(0..count, |sim| test(sim, false));
}
