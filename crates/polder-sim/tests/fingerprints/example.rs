//! The example of docs/SIMULATION.md: many seeds of it, and the same seeds in several builds.

use super::secs;

#[path = "../planted/counter.rs"]
mod counter;

#[test]
fn no_increment_is_lost_or_applied_twice() {
    polder_sim::check(0..100, |sim| counter::test(sim, false));
}

/// The number of seeds, instead of a few; and a file for their fingerprints, one a line.
/// `ci/sim.sh` compares the files of two processes, of a debug and a release build.
const SEEDS: &str = "POLDER_FINGERPRINT_SEEDS";
const FILE: &str = "POLDER_FINGERPRINTS";

/// A seed of the example comes to the same twice with all kinds of chaos.
#[test]
fn example_seed_repeats_with_all_chaos() {
    let count = std::env::var(SEEDS).map_or(20, |it| it.parse().expect("a number"));
    let line = |seed| {
        let report = polder_sim::run(seed, |sim| async move {
            sim.chaos(secs(20)).holds().resets().loss();
            counter::test(sim, false).await;
        });
        assert_eq!(report.failure, None);
        let (fingerprint, events) = (report.fingerprint, report.events);
        format!("{seed} {fingerprint:016x} {events} {:?}\n", report.time)
    };
    let lines = || (0..count).map(line).collect::<String>();
    let first = lines();
    assert_eq!(first, lines());
    if let Some(path) = std::env::var_os(FILE) {
        std::fs::write(path, first).unwrap();
    }
}
