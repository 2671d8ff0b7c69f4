//! Explorations of a program that is built with counters of its edges. `ci/sim.sh` runs them in
//! such a build (`with_edges` there). In any other, an exploration does not find the bug.

#[path = "planted/commands.rs"]
mod commands;

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Explores the commands in a process of its own. Returns what it said, and its corpus.
fn explore(runs: &str, jobs: &str, name: &str) -> (String, String) {
    let corpus = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("edges-{name}"));
    let _ = fs::remove_file(&corpus);
    let test = "commands::four_commands_not_found_by_few_seeds";
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("POLDER_SIM_EXPLORE", runs)
        .env("POLDER_SIM_JOBS", jobs)
        .env("POLDER_SIM_CORPUS", &corpus)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (text, fs::read_to_string(&corpus).unwrap())
}

/// An exploration by edges finds a bug behind branches that no event tells of.
#[test]
fn edges_find_bug_behind_unobserved_branches() {
    let runs = if cfg!(polder_edges) { "20000" } else { "500" };
    let (text, _) = explore(runs, "1", "found");
    println!("{text}");
    assert!(text.contains("explored "));
    assert_eq!(text.contains("it was greeted before"), cfg!(polder_edges));
}

/// An exploration by edges makes the same runs in each process, with any number of jobs.
#[test]
fn edges_make_same_runs_for_any_jobs() {
    let [one, again, more] = [("1", "one"), ("1", "again"), ("4", "more")]
        .map(|(jobs, name)| explore("400", jobs, name).1);
    assert!(!cfg!(polder_edges) || one.lines().count() > 1, "{one}");
    assert_eq!(one, again);
    assert_eq!(one, more);
}
