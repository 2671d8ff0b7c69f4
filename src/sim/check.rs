//! [`check`] and [`run`]: worlds from seeds, on threads of their own, and what is said of them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::future::Future;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::Sim;
use super::kernel::trace::{Comparison, Seconds};
use super::kernel::{self};
use super::world::{State, kernel as with_kernel};
use crate::task::panic_message;
use crate::testing::Outcome;

/// What a run of one seed came to: of [`run`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// A hash of all that has happened. The same seed has the same one, each time.
    pub fingerprint: u64,
    /// How much time has passed in the world.
    pub time: Duration,
    /// How many events there were: tasks polled, segments that arrived, faults.
    pub events: u64,
    /// What has failed, with the last events and what each host was doing.
    pub failure: Option<String>,
    sometimes: Vec<(String, bool)>,
    recorded: Vec<u64>,
    has_diverged: bool,
}

/// Runs a test in a simulated world for each of `seeds`, and panics with a report if it fails for
/// one of them.
///
/// `test` is the first process of the world, on a host called `test`. Its future returns nothing,
/// or a `Result<(), E>` with an `E: Debug`. Each seed runs on a new thread, and on several at once.
/// The first seed and one that fails run twice, and their fingerprints are compared: where they
/// differ, the program does something that the seed does not decide.
///
/// Environment variables:
///
/// | variable | |
/// |---|---|
/// | `POLDER_SEED` | runs this seed only: decimal, or hexadecimal after `0x` |
/// | `POLDER_SEEDS` | runs so many seeds, from zero on |
/// | `POLDER_SIM_JOBS` | so many threads at once, instead of one for each core |
///
/// ```
/// use polder::sim::{self, Sim};
/// use std::time::Duration;
///
/// sim::check(0..20, |sim: Sim| async move {
///     let start = polder::time::now();
///     sim.sleep(Duration::from_secs(3_000)).await;
///     assert_eq!(polder::time::now() - start, Duration::from_secs(3_000));
/// });
/// ```
///
/// # Panics
///
/// If the test fails for a seed, if two runs of one differ, if what was declared with
/// [`Sim::sometimes`] was never true, or if an environment variable means nothing.
#[track_caller]
pub fn check<T, F>(seeds: impl IntoIterator<Item = u64>, test: T)
where
    T: Fn(Sim) -> F + Sync,
    F: Future + 'static,
    F::Output: Outcome,
{
    let site = Location::caller();
    let one = number_from("POLDER_SEED");
    let seeds: Vec<u64> = match (one, number_from("POLDER_SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, Some(count)) => (0..count).collect(),
        (None, None) => seeds.into_iter().collect(),
    };
    let jobs = number_from("POLDER_SIM_JOBS").map(|it| it as usize);
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let jobs = jobs.unwrap_or_else(cores).clamp(1, seeds.len().max(1));
    let work = Mutex::new(Work {
        left: seeds.iter(),
        failure: None,
        sometimes: BTreeMap::new(),
    });
    let lock = || work.lock().unwrap_or_else(PoisonError::into_inner);
    let first = seeds.first();
    let serve = || {
        while let Some(&seed) = { lock().next() } {
            let report = run_checked(seed, Some(&seed) == first, &test, site);
            lock().add(report);
        }
    };
    thread::scope(|scope| {
        for _ in 1..jobs {
            scope.spawn(serve);
        }
        serve();
    });
    let work = work.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some((seed, failure)) = work.failure {
        let name = thread::current().name().unwrap_or_default().to_owned();
        panic!("{failure}  replay: POLDER_SEED={seed:#x} cargo test {name}\n");
    }
    let never = work.sometimes.iter().find(|(_, was_true)| !**was_true);
    if let (Some((name, _)), None) = (never, one) {
        let count = seeds.len();
        panic!("sometimes {name:?}: it was not true for any of {count} seeds");
    }
}

struct Work<'a> {
    left: std::slice::Iter<'a, u64>,
    failure: Option<(u64, String)>,
    sometimes: BTreeMap<String, bool>,
}

impl<'a> Work<'a> {
    fn next(&mut self) -> Option<&'a u64> {
        match self.failure {
            Some(_) => None,
            None => self.left.next(),
        }
    }

    /// Of several failures the one with the lowest seed counts, so that it is the same each time.
    fn add(&mut self, report: Report) {
        for (name, was_true) in report.sometimes {
            *self.sometimes.entry(name).or_default() |= was_true;
        }
        if let Some(failure) = report.failure {
            if self.failure.as_ref().is_none_or(|it| report.seed < it.0) {
                self.failure = Some((report.seed, failure));
            }
        }
    }
}

/// Runs a seed; once more where it is the first one or has failed. Every first run is recorded, so
/// that the second says where it differs. A failure of the first run is kept whatever the second
/// does.
fn run_checked<T, F>(
    seed: u64,
    is_first: bool,
    test: &T,
    site: &'static Location<'static>,
) -> Report
where
    T: Fn(Sim) -> F + Sync,
    F: Future + 'static,
    F::Output: Outcome,
{
    let run = |comparison| on_a_thread(seed, || in_world(seed, test, site, comparison));
    let mut first = run(Comparison::Record(Vec::new()));
    let recorded = std::mem::take(&mut first.recorded);
    if !is_first && first.failure.is_none() {
        return first;
    }
    let second = run(Comparison::Compare(recorded));
    let is_same = second.fingerprint == first.fingerprint && second.failure == first.failure;
    if second.has_diverged || !is_same {
        first.failure = Some(diverged(&first, &second));
    }
    first
}

fn diverged(first: &Report, second: &Report) -> String {
    let (seed, at) = (second.seed, Seconds(nanos(second.time)));
    let mut text = format!(
        "seed {seed:#x}: two runs of it differ, first at {at}, event {}\n  \
         Something that the seed does not decide has an influence: the order of a HashMap, the \
         system's clock or its randomness, a thread, a static.\n",
        second.events
    );
    for (run, report) in [("first", first), ("second", second)] {
        let _ = match &report.failure {
            Some(failure) => write!(text, "  The {run} run:\n{failure}"),
            None => writeln!(text, "  The {run} run did not fail."),
        };
    }
    text
}

fn nanos(time: Duration) -> u64 {
    kernel::link::nanos(time)
}

/// Runs a test in the world of one seed.
///
/// ```
/// use polder::sim;
///
/// let report = sim::run(7, |sim| async move {
///     sim.sleep(std::time::Duration::from_secs(5)).await;
/// });
/// assert_eq!(report.failure, None);
/// assert_eq!(report.time.as_secs(), 5);
/// ```
#[track_caller]
pub fn run<T, F>(seed: u64, test: T) -> Report
where
    T: Fn(Sim) -> F + Sync,
    F: Future + 'static,
    F::Output: Outcome,
{
    let site = Location::caller();
    on_a_thread(seed, || in_world(seed, &test, site, Comparison::None))
}

/// A thread for each world: what a program keeps in thread-locals is new each time.
fn on_a_thread(seed: u64, run: impl FnOnce() -> Report + Send) -> Report {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("polder-sim".into());
        match thread.spawn_scoped(scope, run) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| {
                let words = panic_message(&*panic);
                panic!("seed {seed:#x}: the world itself has panicked: {words}")
            }),
            Err(error) => panic!("polder::sim: cannot start a thread: {error}"),
        }
    })
}

fn in_world<T, F>(
    seed: u64,
    test: &T,
    site: &'static Location<'static>,
    comparison: Comparison,
) -> Report
where
    T: Fn(Sim) -> F + Sync,
    F: Future + 'static,
    F::Output: Outcome,
{
    /// Ends the world also if a condition of the test panics: the hosts first, then the kernel.
    struct End(Rc<State>);
    impl Drop for End {
        fn drop(&mut self) {
            self.0.end();
        }
    }
    let world = kernel::begin(seed, comparison);
    let state = State::new(seed);
    let end = End(state.clone());
    let sim = Sim::new(state.clone());
    let host = state.host("test");
    let is_done = Rc::new(Cell::new(false));
    let runtime = state.start(host);
    let driven = catch_unwind(AssertUnwindSafe(|| {
        with_kernel(|kernel| kernel.set_current(Some(0)));
        runtime.worker.within(|| {
            let (test, is_done) = (test(sim), is_done.clone());
            let main = async move {
                use futures_lite::FutureExt;
                let result = AssertUnwindSafe(async { test.await.check() }).catch_unwind();
                if let Err(panic) = result.await {
                    let words = panic_message(&*panic).to_owned();
                    std::mem::forget(panic); // Its destructor may panic too.
                    kernel::fail(|| format!("the test panicked: {words}"));
                }
                is_done.set(true);
            };
            runtime.spawn_main(main, site);
        });
        with_kernel(|kernel| kernel.set_current(None));
        state.run(&|| is_done.get());
    }));
    drop(runtime);
    if let Err(panic) = driven {
        let words = panic_message(&*panic).to_owned();
        std::mem::forget(panic);
        kernel::fail(|| format!("the test panicked: {words}"));
    }
    let mut report = with_kernel(|kernel| Report {
        seed,
        fingerprint: kernel.trace.fingerprint(),
        time: Duration::from_nanos(kernel.now()),
        events: kernel.trace.events,
        failure: kernel.failure().cloned(),
        sometimes: Vec::new(),
        recorded: kernel.trace.take_recorded(),
        has_diverged: kernel.has_diverged(),
    });
    let sometimes = state.sometimes.borrow();
    report.sometimes = (sometimes.iter().map(|it| (it.name.clone(), it.was_true))).collect();
    drop(sometimes);
    if report.failure.is_some() || report.has_diverged {
        report.failure = Some(describe(&report, &state));
    }
    drop(end);
    drop(state);
    drop(world);
    report
}

fn describe(report: &Report, state: &State) -> String {
    let at = Seconds(nanos(report.time));
    let reason = report.failure.as_deref().unwrap_or("other than before");
    let events = with_kernel(|kernel| kernel.trace.last_events(|it| kernel.host_name(it)));
    let hosts = state.describe();
    format!(
        "seed {:#x} failed at {at}: {reason}\n  the last events:\n{events}  the hosts:\n{hosts}",
        report.seed
    )
}

/// A number from the environment.
fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    match number {
        Ok(number) => Some(number),
        Err(_) => panic!("polder::sim: {variable} is not a number: {text:?}"),
    }
}
