//! One more column: every rule that polder's suite runs in each runtime also runs as a process of a
//! simulated world, for [`SEEDS`]: with one worker, and with several.
//!
//! In a world time passes only when no task is ready, and sent data takes time to arrive. So a rule
//! that waits there for an arrival sleeps, where it would yield otherwise
//! ([`a_turn`](crate::support::a_turn)). The two ends of a connection are on one host.
//!
//! `exceptions.txt` names the tests that cannot run in a world, each with the reason.
//! `POLDER_EXCEPTIONS=1` finds an exception that could: then exceptions run too, and fail if they
//! pass.
//!
//! If `POLDER_RULES` names a file, it gets a line for each test, including exceptions: `ci/sim.sh`
//! counts them.

use std::collections::HashSet;
use std::future::Future;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use polder::Backend;
use polder_sim::Sim;

use crate::support::{IS_IN_WORLD, LIMIT, note, passed, test, within};

/// Each seed gives another order of tasks. `POLDER_SIM_RUNS` and `POLDER_SIM_SEED` choose others.
const SEEDS: Range<u64> = 0..4;

/// The number of workers of each seed's process, round-robin, unless the rule is about one worker.
const WORKERS: [usize; 4] = [1, 2, 1, 4];

const AN_HOUR: Duration = Duration::from_secs(3_600);

/// The time limit of an exception, which may wait forever. A world takes milliseconds.
const SHORT: Duration = Duration::from_secs(3);

/// The name of the column.
const COLUMN: &str = "simulated";

const EXCEPTIONS: &str = include_str!("exceptions.txt");

/// Returns the exceptions, each with its reason: names of tests, or prefixes of names, which end
/// with `*`.
fn exceptions() -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut reason = "";
    let lines = EXCEPTIONS.lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.filter_map(move |line| match line.strip_prefix("  ") {
        Some(name) => Some((name, reason)),
        None => {
            reason = line;
            None
        }
    })
}

/// Returns the reason if the test is an exception.
fn reason(test: &str) -> Option<&'static str> {
    let mut all = exceptions();
    let found = all.find(|(name, _)| match name.strip_suffix('*') {
        Some(prefix) => test.starts_with(prefix),
        None => test == *name,
    });
    found.map(|(_, reason)| reason)
}

/// A function that makes the future of a rule.
type Program = Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()>>>>;

/// Runs a rule in a world of each seed. Not generic, so that it is compiled once.
fn in_worlds(program: &(dyn Fn() -> Program + Sync), is_alone: bool) {
    polder_sim::check(SEEDS, |sim: Sim| {
        IS_IN_WORLD.set(true);
        let program = program();
        async move {
            // Some rules have thousands of tasks.
            sim.steps(300_000);
            // Other rules are about contained panics.
            sim.permit_panics();
            match WORKERS[sim.seed() as usize % WORKERS.len()] {
                several if several > 1 && !is_alone => {
                    let host = sim.host("several");
                    host.workers(several);
                    host.start(program).finished().within(AN_HOUR).await;
                }
                _ => program().await,
            }
        }
    });
}

/// Runs the rule of the calling test in a world of each seed, unless it is an exception.
///
/// `is_alone` says that it needs a runtime of one worker. The rule is passed the default backend,
/// from which some derive their size.
pub fn run<F>(rule: impl Fn(Backend) -> F + Clone + Send + 'static, is_alone: bool)
where
    F: Future<Output = ()> + 'static,
{
    let test = test();
    let worlds = move || {
        let rule = Mutex::new(rule);
        let program = || -> Program {
            let rule = rule.lock().expect("cloning does not panic").clone();
            Box::new(move || Box::pin(rule(Backend::default())))
        };
        in_worlds(&program, is_alone);
    };
    let Some(reason) = reason(&test) else {
        within(LIMIT, &test, worlds);
        return passed(COLUMN);
    };
    note(COLUMN, "excepted");
    if !reason.starts_with("For nothing") && std::env::var_os("POLDER_EXCEPTIONS").is_some() {
        let result = catch_unwind(AssertUnwindSafe(|| within(SHORT, &test, worlds)));
        assert!(
            result.is_err(),
            "{test} passes in a world: it is an exception no more, and exceptions.txt is to say so"
        );
    }
}

/// The exceptions must be tests.
#[test]
fn every_exception_is_a_test() {
    let mut list = Command::new(std::env::current_exe().expect("the test knows where it is"));
    list.args(["--list", "--format", "terse"]);
    let output = within(LIMIT, "the list of tests", move || list.output());
    let output = output.expect("the program starts again");
    assert!(output.status.success(), "{output:?}");
    let list = String::from_utf8(output.stdout).expect("names are text");
    let tests: HashSet<&str> = (list.lines())
        .filter_map(|line| line.strip_suffix(": test"))
        .collect();
    let mut seen = HashSet::new();
    for (name, reason) in exceptions() {
        assert!(!reason.is_empty(), "{name} has no reason");
        assert!(seen.insert(name), "{name} is there twice");
        let exists = match name.strip_suffix('*') {
            Some(prefix) => tests.iter().any(|test| test.starts_with(prefix)),
            None => tests.contains(name),
        };
        // Some tests are for Linux only.
        assert!(
            exists || !cfg!(target_os = "linux"),
            "there is no test {name}"
        );
    }
    assert!(!seen.is_empty());
}
