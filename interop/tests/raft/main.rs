//! The replicated log of `src/raft`: in simulated worlds, with its bugs and without, on the
//! kernel's sockets, and as processes.
//!
//! `RAFT_SEEDS` is the number of seeds that run without a bug, of each kind, and the number that
//! are tried to find one.

#![cfg(unix)]

mod loopback;
mod processes;
mod world;

use std::path::Path;
use std::process::Command;

use interop::raft::Bug;
use world::By;

/// The number of seeds that run without a bug, unless `RAFT_SEEDS` is set.
const SEEDS: u64 = 60;

fn seeds() -> Option<u64> {
    let text = std::env::var("RAFT_SEEDS").ok()?;
    Some(text.parse().expect("RAFT_SEEDS is a number"))
}

/// Asserts that one of the first seeds finds a bug, and that its report has one of these words.
fn finds(bug: Bug, by: By, most: u64, words: &[&str]) {
    let start = std::time::Instant::now();
    let most = seeds().unwrap_or(most);
    let mut found = Vec::new();
    for seed in 0..most {
        if let Some(failure) = polder_sim::run(seed, |sim| world::test(sim, Some(bug), by)).failure
        {
            let is_known = words.iter().any(|it| failure.contains(it));
            assert!(is_known, "{bug:?} fails in another way: {failure}");
            found.push(seed);
            if seeds().is_none() {
                break;
            }
        }
    }
    let (count, first) = (found.len(), found.first());
    let took = start.elapsed();
    println!("{bug:?}: found by {count} of {most} seeds, first by {first:?}, in {took:?}");
    assert!(first.is_some(), "{bug:?}: no seed of {most} finds it");
}

/// Clients see one table under any faults of nodes and network.
#[test]
fn clients_see_one_table_under_faults() {
    let count = seeds().unwrap_or(SEEDS);
    polder_sim::check(0..count, |sim| world::test(sim, None, By::History));
}

/// Votes and committed entries stay under any faults of nodes and network.
#[test]
fn votes_and_commits_stay_under_faults() {
    let count = seeds().unwrap_or(SEEDS);
    polder_sim::check(0..count, |sim| world::test(sim, None, By::Disks));
}

#[test]
fn a_leader_that_reads_without_asking_is_found() {
    let words = ["not linearizable"];
    finds(Bug::UnconfirmedRead, By::History, 300, &words);
}

#[test]
fn what_is_promised_before_it_is_synced_is_found() {
    let words = [
        "a vote stays",
        "a committed entry stays",
        "not linearizable",
    ];
    finds(Bug::MissingSync, By::Disks, 100, &words);
}

#[test]
fn a_vote_that_is_forgotten_is_found() {
    finds(Bug::ForgottenVote, By::Disks, 100, &["a vote stays"]);
}

/// An entry of an earlier term that counts as committed is found.
#[test]
fn commit_of_earlier_term_is_found() {
    let words = ["a committed entry stays", "not linearizable"];
    finds(Bug::CountedEarlierTerm, By::Disks, 3_000, &words);
}

#[test]
fn a_write_that_is_applied_twice_is_found() {
    finds(Bug::AppliedTwice, By::History, 100, &["not linearizable"]);
}

#[test]
fn a_follower_that_keeps_what_conflicts_is_found() {
    // Nodes that differ may also never elect a leader again, while requests pile up.
    let words = [
        "a committed entry stays",
        "has not returned within",
        "the run has had",
    ];
    finds(Bug::KeptConflict, By::Disks, 200, &words);
}

/// An answer before the majority has the write is found.
#[test]
fn answer_before_majority_is_found() {
    finds(Bug::EarlyAnswer, By::History, 100, &["not linearizable"]);
}

/// Set where the test below explores.
const EXPLORED: &str = "RAFT_EXPLORED";

/// A term has one leader under any faults of nodes and network.
#[test]
fn one_leader_per_term_under_faults() {
    let count = seeds().unwrap_or(SEEDS);
    let bug = std::env::var_os(EXPLORED).map(|_| Bug::ShrunkQuorum);
    polder_sim::check(0..count, |sim| world::elections(sim, bug));
}

/// A leader elected by a minority is found by an exploration.
///
/// It takes one file that is damaged six times, or two files that are damaged twice each.
#[test]
fn minority_leader_found_by_exploration() {
    let corpus = Path::new(env!("CARGO_TARGET_TMPDIR")).join("elections");
    let _ = std::fs::remove_file(&corpus);
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "one_leader_per_term_under_faults"])
        .arg("--nocapture")
        .env(EXPLORED, "1")
        .env("POLDER_SIM_EXPLORE", "20000")
        .env("POLDER_SIM_CORPUS", &corpus)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let text = text + &String::from_utf8_lossy(&output.stderr);
    let explored = text.lines().find(|line| line.starts_with("explored "));
    println!("{}", explored.expect(&text));
    assert!(!output.status.success());
    assert!(text.contains("always \"a term has one leader\""), "{text}");
}
