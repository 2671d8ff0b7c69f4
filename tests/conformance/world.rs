//! One more column: what [`in_every_runtime`](super::in_every_runtime) runs in a runtime of each
//! backend runs as a process of a simulated world too (feature `sim`), for [`SEEDS`]: with one
//! worker, and with several.
//!
//! In a world time passes only when nobody has anything to do, and what is sent takes some. So what
//! waits there for something to arrive sleeps, where it would yield otherwise ([`super::a_turn`]).
//! The two ends of a connection are on one host.
//!
//! `exceptions.txt` names the tests that cannot be run so, each with the reason. One that could is
//! found with `POLDER_EXCEPTIONS=1`: then exceptions run too, and fail if they pass.
//!
//! With `POLDER_COLUMN=simulated` nothing runs on the backends. Where `POLDER_RULES` names a file,
//! it has a line for each test of this column, the exceptions too: `ci/sim.sh` counts them.

use std::cell::Cell;
use std::future::Future;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;

use polder::Backend;
use polder::sim::{self, Sim};

use super::{LIMIT, passed, test, within};

/// Each has an order of tasks of its own. `POLDER_SEEDS` and `POLDER_SEED` choose others.
const SEEDS: Range<u64> = 0..4;

/// How many workers the process of each seed has, unless the rule is about one: in turn.
const WORKERS: [usize; 4] = [1, 2, 1, 4];

const AN_HOUR: Duration = Duration::from_secs(3_600);

/// For an exception, which may wait for ever.
const SHORT: Duration = Duration::from_secs(10);

/// The name of the column.
pub const COLUMN: &str = "simulated";

const EXCEPTIONS: &str = include_str!("exceptions.txt");

thread_local! {
    /// Whether this thread is a world's.
    static IS_HERE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the rule that asks runs in a world.
pub fn is_here() -> bool {
    IS_HERE.get()
}

/// Whether this is all that is to run.
pub fn is_only_column() -> bool {
    std::env::var_os("POLDER_COLUMN").is_some_and(|column| column == COLUMN)
}

/// The exceptions, each with its reason: names of tests, or of several, which end with `*`.
pub fn exceptions() -> impl Iterator<Item = (&'static str, &'static str)> {
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

/// Why that test is an exception, if it is one.
fn reason(test: &str) -> Option<&'static str> {
    let mut all = exceptions();
    let found = all.find(|(name, _)| match name.strip_suffix('*') {
        Some(prefix) => test.starts_with(prefix),
        None => test == *name,
    });
    found.map(|(_, reason)| reason)
}

/// Makes the future of a rule.
type Program = Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()>>>>;

/// Runs a rule in a world of each seed. Compiled once, for all of them.
fn in_worlds(program: &(dyn Fn() -> Program + Sync), is_alone: bool) {
    sim::check(SEEDS, |sim: Sim| {
        IS_HERE.set(true);
        let program = program();
        async move {
            // Some rules have thousands of tasks.
            sim.steps(300_000);
            // Others are about panics that are contained.
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

/// Runs the rule of the test that calls this in a world of each seed, unless it is an exception.
///
/// `is_alone` says that it needs a runtime of one worker. (Other programs that have this file run
/// in no world.) The rule is passed the default backend, which some take as the measure of how much
/// to do.
pub fn run<F>(rule: impl Fn(Backend) -> F + Clone + Send + 'static, is_alone: bool)
where
    F: Future<Output = ()> + 'static,
{
    if env!("CARGO_CRATE_NAME") != "conformance" {
        return;
    }
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
    super::note(COLUMN, "excepted");
    if !reason.starts_with("For nothing") && std::env::var_os("POLDER_EXCEPTIONS").is_some() {
        let result = catch_unwind(AssertUnwindSafe(|| within(SHORT, &test, worlds)));
        assert!(
            result.is_err(),
            "{test} passes in a world: it is an exception no more, and exceptions.txt is to say so"
        );
    }
}
