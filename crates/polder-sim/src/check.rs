//! [`check`] and [`run`]: run worlds from seeds, and report on them.

use std::any::Any;
use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use polder::__testing::Outcome;

use super::chaos::ONLY_CALM;
use super::environment::{built, from_environment, number_from, parse, test_name};
use super::exhaustive::try_all;
use super::explore::{Limit, explore};
use super::jobs::run_seeds;
use super::picture::{self, Scene};
use super::replay::Replay;
use super::report::{Details, MAX_TOLD, Report, Run};
use super::shrink::shrink;
use super::sim::Sim;
use super::state::{STOPPED, State};
use super::threads::Threads;
use super::{difference, kernel, narrative, panics};
use crate::world;
use crate::world::foreign::panic_message;
use crate::world::progress::{Call, Progress};
use crate::world::seconds::{Seconds, nanos};
use crate::world::setup::{RunConfig, Setup, Simplification};
use crate::world::thread::kernel as with_kernel;

/// Runs a test in a simulated world for each of `seeds`, and panics with a report if it fails for
/// one of them.
///
/// `test` is the first process of the world, on a host called `test`. Its future returns nothing,
/// or a `Result<(), E>` with an `E: Debug`. Each seed runs on a new thread, and several seeds run
/// in parallel; short worlds run faster if they share a thread ([`Sim::share_thread`]). The first
/// seed, the first one that may have faults, and a failing one run twice, and their fingerprints
/// are compared: if they differ, the program does something that the seed does not decide.
///
/// Each random fault has a number, whether its probability is that of [`Sim::chaos`] or one that
/// the test has set; the first 4,000 of each kind do. The report of a failure lists the faults that
/// it needs: the seed runs again, without some of them, up to 200 times or for half a minute. Then
/// it runs with smaller numbers of [`Sim::choose`], with the mean latency of each link, and with
/// ready tasks in turn, and the report lists which of these still fail. The report also has the
/// last events, what each host was doing, the paths of a page with a diagram and of a trace for
/// Perfetto (in `target/sim`), and how to replay the failure.
///
/// Installs a panic hook, once. It calls the previous hook, except for panics of repeated runs,
/// which are printed already.
///
/// Environment variables (a check within a world ignores those that name seeds or runs):
///
/// | variable | |
/// |---|---|
/// | `POLDER_SIM_SEED` | runs this seed only: decimal, or hexadecimal after `0x` |
/// | `POLDER_SIM_REPLAY` | runs a seed, and leaves out the faults of these numbers: `0x1d3:-1,-2,-4..8`; the words `mean` (latencies), `fifo` (ready tasks) and `choose3=0` (the test's third choice) simplify it too; `fork1500=0x7` draws other numbers from 1,500 ns on; `schedule=0.2` is a run of [`Sim::exhaustive`] |
/// | `POLDER_SIM_RUNS` | the number of seeds to run, from zero on |
/// | `POLDER_SIM_VERIFY` | if it is `1`, every seed runs twice, and not only the first ones |
/// | `POLDER_SIM_EXPLORE` | after the seeds, runs that come to something new are continued in other ways: for a time such as `60s` or `10m`, or a number of runs; see `docs/SIMULATION.md` |
/// | `POLDER_SIM_CORPUS` | the file of the runs that an exploration keeps, by which the next one begins, for one test; the default is below `target/sim/corpus` |
/// | `POLDER_SIM_FIRST_SEED` | the first seed; `random` for another one each time |
/// | `POLDER_SIM_STOP_AT` | with `POLDER_SIM_SEED` or `POLDER_SIM_REPLAY`: stops the run at a time such as `12.3s`, and reports what each host is doing then |
/// | `POLDER_SIM_DIFF` | two runs, as of `POLDER_SIM_REPLAY`, separated by a space: reports the first event in which they differ |
/// | `POLDER_SIM_LOG` | if it is `1`, each event is printed to standard error as it happens: best with `POLDER_SIM_SEED` |
/// | `POLDER_SIM_JOBS` | the number of threads, instead of one for each core |
/// | `POLDER_SIM_STEP_TIMEOUT` | the number of seconds of real time after which a poll that does not return ends the program; the default is 300, and 0 is never. After ten seconds it is reported |
///
/// ```
/// use polder_sim::Sim;
/// use std::time::Duration;
///
/// polder_sim::check(0..20, |sim: Sim| async move {
///     let start = polder::time::now();
///     sim.sleep(Duration::from_secs(3_000)).await;
///     assert_eq!(polder::time::now() - start, Duration::from_secs(3_000));
/// });
/// ```
///
/// # Panics
///
/// If the test fails for a seed; if two runs of one seed differ; if a condition of
/// [`Sim::sometimes`] or [`sometimes!`](polder::sometimes) was never true; if a kind of
/// [chaos](Sim::chaos) that the test names was on for ten seeds, and never struck; if there is no
/// seed; or if an environment variable is malformed.
#[track_caller]
pub fn check<T, F>(seeds: impl IntoIterator<Item = u64>, test: T)
where
    T: Fn(Sim) -> F + Sync,
    F: Future + 'static,
    F::Output: Outcome,
{
    let site = Location::caller();
    panics::watch();
    let world = |seed, setup, progress| in_world(seed, &test, site, setup, progress);
    let threads = Threads::new(&world);
    let mut all = seeds.into_iter();
    let seeds: Vec<u64> = all.by_ref().take(MAX_SEEDS).collect();
    assert_few(seeds.len() + usize::from(all.next().is_some()));
    threads.watched(|| check_with(seeds, &threads));
}

/// Maximum number of seeds. Their list takes less than a gigabyte, and with the shortest worlds
/// they take a day.
const MAX_SEEDS: usize = 100_000_000;

#[track_caller]
fn assert_few(seeds: usize) {
    assert!(
        seeds <= MAX_SEEDS,
        "polder_sim: more than {MAX_SEEDS} seeds: to run some of them, take(n)"
    );
}

/// The part of [`check`] that does not depend on the types of the test.
fn check_with(seeds: Vec<u64>, threads: &Threads<'_>) {
    let run = |seed, setup| threads.run(seed, setup);
    // Within another world these variables are for that one.
    let is_outer = !world::time::is_here();
    if let Some(runs) = difference::runs_from_environment().filter(|_| is_outer) {
        panic!("{}", difference::between(&runs, &run));
    }
    let what = "a time such as 12.3s or 50ms";
    let until = from_environment("POLDER_SIM_STOP_AT", what, parse_time).filter(|_| is_outer);
    let limit = Limit::from_environment().filter(|_| is_outer);
    let replay = Replay::from_environment().filter(|_| is_outer);
    let one = replay.as_ref().map(|replay| replay.seed);
    let one = one.or_else(|| number_from("POLDER_SIM_SEED").filter(|_| is_outer));
    let count = number_from("POLDER_SIM_RUNS").filter(|_| is_outer);
    let from = from_environment("POLDER_SIM_FIRST_SEED", "a number", parse_first_seed);
    let from = from.filter(|_| is_outer);
    assert!(
        !seeds.is_empty() && count != Some(0),
        "polder_sim: there is no seed to run: a test that runs nothing shows nothing"
    );
    let seeds: Vec<u64> = match (one, count, from) {
        (Some(seed), _, _) => vec![seed],
        (None, None, None) => seeds,
        (None, count, from) => {
            let count = count.unwrap_or(seeds.len() as u64);
            assert_few(usize::try_from(count).unwrap_or(usize::MAX));
            let from = from.unwrap_or(0);
            (0..count).map(|nth| from.wrapping_add(nth)).collect()
        }
    };
    let config = (replay.as_ref()).map(|replay| replay.resolve(&run));
    let mut config = config.unwrap_or_default();
    config.until = until;
    assert!(
        until.is_none() || one.is_some(),
        "polder_sim: POLDER_SIM_STOP_AT is for one run: set POLDER_SIM_SEED or POLDER_SIM_REPLAY \
         too"
    );
    // Makes a run again that has failed, as if the user had asked for it, and panics with its
    // report.
    let fail_again = |(replay, failure): (Replay, String)| -> ! {
        let (seed, config) = ([replay.seed], replay.resolve(&run));
        let report = run_seeds(&seed, threads, config.clone()).failure;
        let report = report.unwrap_or_else(|| {
            panic!(
                "POLDER_SIM_REPLAY={replay} has failed once, and has passed the second time. The \
                 first time:\n{failure}"
            )
        });
        panic!("{}", explain(&report, &run, Some(&replay), &config))
    };
    let mut done = run_seeds(&seeds, threads, config.clone());
    if let Some(report) = done.failure {
        panic!("{}", explain(&report, &run, replay.as_ref(), &config));
    }
    if let (Some((seed, limit)), None) = (done.schedules, &replay) {
        if let Some(failed) = try_all(seed, limit, threads, &mut done.sometimes) {
            fail_again(failed);
        }
    }
    let names_choices = (replay.as_ref()).is_some_and(|replay| !replay.config.chosen.is_empty());
    assert!(
        !(done.is_of_another_run || names_choices && done.schedules.is_none()),
        "polder_sim: POLDER_SIM_REPLAY names choices of a schedule that the run does not have, or \
         that are of no use, since other runs cover them"
    );
    if until.is_some() {
        println!("the run has ended before the time of POLDER_SIM_STOP_AT, and has not failed");
    }
    if one.is_some() {
        return; // What follows is about many seeds.
    }
    // With other seeds than the test's own it may be chance.
    let is_required = count.is_none() && from.is_none();
    tell_strikes(&done.strikes, seeds.len(), is_required);
    // Not expected of one seed, or with `POLDER_SIM_RUNS`.
    let is_expected = |name: &str| name != ONLY_CALM || seeds.len() > 1 && count.is_none();
    let never = (done.sometimes.iter()).find(|(name, was_true)| !**was_true && is_expected(name));
    if let Some((name, _)) = never {
        let count = seeds.len();
        panic!("sometimes {name:?}: it was not true for any of {count} seeds");
    }
    if let Some(failed) = limit.and_then(|limit| explore(&seeds, limit, threads)) {
        fail_again(failed);
    }
}

/// The number of seeds from which on a kind of chaos that was on must have struck.
const ENOUGH_SEEDS: usize = 10;

/// Prints in how many seeds each kind of chaos was on, and how often it has struck. Where it is
/// `required`, panics if one was on often enough and has not: the test shows less than it says.
fn tell_strikes(strikes: &BTreeMap<&'static str, (usize, usize)>, seeds: usize, required: bool) {
    if strikes.is_empty() {
        return;
    }
    let words = strikes.iter();
    let words = words.map(|(name, (on, struck))| format!("{name} {struck} times in {on}"));
    let words = words.collect::<Vec<_>>().join(", ");
    println!("chaos in {seeds} seeds: {words}");
    for (name, (on, struck)) in strikes {
        assert!(
            *struck > 0 || *on < ENOUGH_SEEDS || !required,
            "chaos: {name:?} was on for {on} of {seeds} seeds, and has not struck once: \
             there was nothing that it could strike, or too little, or too little time"
        );
    }
}

/// Returns the whole report of a failure, with the faults that it needs, and how to replay it.
/// `given` is how the run differs from that of its seed, and `replay` what the user has asked for.
fn explain(report: &Report, run: &Run<'_>, replay: Option<&Replay>, given: &RunConfig) -> String {
    let again = command(test_name(), env::args().collect());
    // If the user has left out faults, the rest counts as needed.
    let is_whole = replay.is_none_or(Replay::is_whole) && given.until.is_none();
    let shrunk = is_whole.then(|| shrink(report, given, run)).flatten();
    let in_words = (shrunk.as_ref()).map_or(String::new(), |shrunk| {
        simplification_in_words(report, &shrunk.simplification)
    });
    let needed = shrunk.as_ref().and_then(|shrunk| shrunk.kept.clone());
    let config = shrunk.unwrap_or_else(|| given.clone());
    let count = config.kept.as_ref().map(|kept| kept.len());
    let is_smaller = count.is_some_and(|count| count < report.faults.len())
        || config.simplification != Simplification::default();
    let known = (!is_smaller).then_some(report.events);
    let looked_at = |_| smallest(report, &config, known, run);
    let mut smallest = report.details.as_ref().and_then(looked_at);
    let scene = smallest.as_mut().and_then(|report| report.scene.take());
    let narrative =
        (scene.as_ref()).map_or(String::new(), |scene| narrative::tell(scene, is_smaller));
    let smaller = smallest.as_ref().filter(|_| is_smaller);
    let mut text = report.text(needed.as_ref(), &narrative, smaller) + &in_words;
    if let Some(scene) = &scene {
        text += &pictures(scene, is_smaller);
    }
    let mut variable = match replay {
        Some(replay) => format!("POLDER_SIM_REPLAY={replay}"),
        None => format!("POLDER_SIM_SEED={:#x}", report.seed),
    };
    if let Some(until) = given.until {
        let _ = write!(
            variable,
            " POLDER_SIM_STOP_AT={}s",
            Seconds(until).to_string().trim_end_matches(" s")
        );
    }
    let _ = writeln!(text, "  replay: {variable} {again}");
    if is_whole && is_smaller {
        let shrunk = Replay::of(report.seed, &report.faults, &config);
        let _ = writeln!(text, "  shrunk: POLDER_SIM_REPLAY={shrunk} {again}");
    }
    if let Some(built) = built(test_name()) {
        let _ = writeln!(text, "  as built: {variable} {built}");
    }
    text
}

/// Returns the command that runs a test again, or this program with its arguments, if it is not one
/// of Cargo's tests: those are in a folder `deps`.
fn command(test: Option<String>, arguments: Vec<String>) -> String {
    let program = arguments.first().map(Path::new);
    let folder = program.and_then(Path::parent).and_then(Path::file_name);
    match test {
        Some(name) => format!("cargo test {name}"),
        None if folder.is_none_or(|folder| folder == "deps") => "cargo test".into(),
        None => arguments.join(" "),
    }
}

/// Describes what may be simpler in a run that still fails, as a line of its report.
fn simplification_in_words(report: &Report, simplification: &Simplification) -> String {
    let mut words = Vec::new();
    if simplification.is_even {
        words.push("where each segment takes the mean latency".to_owned());
    }
    if simplification.is_fifo {
        words.push("where what is ready runs in turn".to_owned());
    }
    for (nth, number) in &simplification.chosen {
        let chosen = report.choices.get(*nth as usize - 1).unwrap_or(&0);
        words.push(format!(
            "with {number} instead of {chosen} as choice {nth} of the test"
        ));
    }
    if words.is_empty() {
        String::new()
    } else {
        format!("  it fails too {}\n", words.join(", "))
    }
}

/// Runs the smallest run that fails in the same way once more, for a look at it, after a run that
/// counts its events, unless their number is known. `None` if it does not fail this time, so
/// something else is wrong.
fn smallest(
    report: &Report,
    config: &RunConfig,
    events: Option<u64>,
    run: &Run<'_>,
) -> Option<Report> {
    let setup = |records| Setup {
        records,
        found: report.failure.as_deref().map(Arc::from),
        ..Setup::quiet(config.clone())
    };
    let count = events.unwrap_or_else(|| run(report.seed, setup(None)).events);
    let mut smallest = run(report.seed, setup(Some(count)));
    for (number, fault) in &mut smallest.scene.as_mut()?.faults {
        let place = report.faults.iter().position(|id| *id == fault.id);
        *number = place.map_or(*number, |place| place + 1);
    }
    Some(smallest)
}

/// Draws a run. Returns the lines with the paths.
fn pictures(scene: &Scene, is_smaller: bool) -> String {
    let which = if is_smaller {
        "  (Both show the shrunk run.)\n"
    } else {
        ""
    };
    match picture::write(scene, &test_name().unwrap_or_default()) {
        Ok((html, json)) => format!(
            "  timeline: {}\n  Perfetto: {}\n{which}",
            html.display(),
            json.display()
        ),
        Err(error) => format!("  timeline: it cannot be written: {error}\n"),
    }
}

/// Runs a test in the world of one seed.
///
/// ```
///
/// let report = polder_sim::run(7, |sim| async move {
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
    panics::watch();
    let world = |seed, setup, progress| in_world(seed, &test, site, setup, progress);
    Threads::new(&world).run_one(seed)
}

pub(super) fn in_world<T, F>(
    seed: u64,
    test: &T,
    site: &'static Location<'static>,
    setup: Setup,
    progress: Arc<Progress>,
) -> Report
where
    T: Fn(Sim) -> F + Sync,
    F: Future + 'static,
    F::Output: Outcome,
{
    panics::be_quiet(setup.is_quiet);
    let (config, records) = (setup.config.clone(), setup.records);
    let world = world::thread::begin(seed, setup);
    let installed = kernel::enter();
    with_kernel(|kernel| {
        kernel.core.report.progress = progress;
        kernel.core.calls(Call::Test);
    });
    let state = State::new(&config, records);
    // The hosts end first, then the kernel.
    let end = End(&state);
    let sim = Sim {
        state: state.clone(),
    };
    let host = state.host("test");
    let (_, runtime) = state.start(host);
    let driven = catch_unwind(AssertUnwindSafe(|| {
        with_kernel(|kernel| kernel.core.set_current(Some(0)));
        runtime.within(|| runtime.spawn_main(to_its_end(test(sim), state.clone()), site));
        with_kernel(|kernel| kernel.core.set_current(None));
        state.run();
    }));
    drop(runtime);
    if let Err(panic) = driven {
        fail_by(panic);
    }
    state.look(true);
    let mut report = report(seed, &state);
    // A run that is ended early has tasks that would have awaited a panic later.
    let is_covered = (report.schedule.as_ref()).is_some_and(|schedule| schedule.is_covered);
    if report.failure.is_none() && !is_covered {
        // Reveals panics of tasks that were not awaited until now.
        state.end_processes();
        world::panics::fail_by_held_panic();
        add_failure(&mut report, &state);
    }
    drop(end);
    drop(state);
    drop(installed);
    drop(world);
    report
}

/// Ends a world when it is dropped, even if a condition of the test panics.
struct End<'a>(&'a State);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The main task of the world: runs the test, and checks its result.
async fn to_its_end<F>(test: F, state: Rc<State>)
where
    F: Future,
    F::Output: Outcome,
{
    use futures_lite::FutureExt;
    match AssertUnwindSafe(test).catch_unwind().await {
        // Checking an error panics, always at the same line, so the message tells errors apart.
        Ok(result) => {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| result.check())) {
                world::thread::fail(|| panic_message(&*panic).to_owned());
                std::mem::forget(panic); // Its destructor may panic too.
            }
        }
        Err(panic) => fail_by(panic),
    }
    state.is_done.set(true);
}

/// Fails the run because its test has panicked.
fn fail_by(panic: Box<dyn Any + Send>) {
    let words = panic_message(&*panic);
    world::panics::fail_by_panic(words, || format!("the test panicked: {words}"));
    std::mem::forget(panic); // Its destructor may panic too.
}

/// Returns the report of the world that this thread is in.
fn report(seed: u64, state: &State) -> Report {
    let mut sometimes = Vec::new();
    state.sometimes.try_each(|condition| {
        sometimes.push((condition.name.clone(), condition.was_true));
        true
    });
    let strikes = state.chaos.borrow().strikes();
    let mut report = with_kernel(|kernel| {
        let core = &mut kernel.core;
        sometimes.extend(core.report.assertions.clone());
        let trace = &mut core.report.trace;
        let difference = trace.first_difference(|host| core.hosts.name(host));
        let is_woken = core.pollers.were_woken_from_elsewhere();
        let woken = is_woken.then(|| "a task was woken by another thread".to_owned());
        let shortcuts = core.report.shortcuts(&core.hosts);
        Report {
            seed,
            fingerprint: core.report.trace.fingerprint,
            time: Duration::from_nanos(core.time.now()),
            events: core.report.trace.events,
            failure: None,
            sometimes,
            strikes,
            recorded: core.report.trace.take_recorded(),
            has_diverged: core.report.trace.has_diverged(),
            shares_thread: state.shares_thread.get(),
            difference,
            seen: woken.into_iter().chain(shortcuts).collect(),
            covered: (core.report.coverage.iter_mut())
                .flat_map(|coverage| coverage.features())
                .collect(),
            choices: state.choices.borrow().made.clone(),
            schedule: core.schedule.take(),
            asked: core.report.asked_of_libc(),
            remarks: core.report.remarks.clone(),
            faults: core.faults.list.iter().map(|fault| fault.id).collect(),
            has_unlisted: core.faults.has_unlisted(),
            details: None,
            scene: None,
        }
    });
    add_failure(&mut report, state);
    report
}

/// Adds the failure of the world that this thread is in, if there is one.
fn add_failure(report: &mut Report, state: &State) {
    let failure = with_kernel(|kernel| kernel.core.report.failure.clone());
    if failure.is_some() || report.has_diverged {
        let details = describe(report, failure, state);
        report.scene = scene(&details.head, state);
        report.details = Some(Box::new(details));
        report.failure = Some(report.text(None, "", None));
    }
}

/// Returns the contents of a picture of the world that this thread is in, if the run is recorded.
fn scene(head: &str, state: &State) -> Option<Box<Scene>> {
    with_kernel(|kernel| {
        kernel.network().settle_all();
        let recording = kernel.core.report.trace.recording.take()?;
        let core = &kernel.core;
        let (hosts, now, failure) = (&core.hosts, core.time.now(), core.report.failure.as_ref());
        let names = (0..hosts.count()).map(|host| hosts.name(host).to_owned());
        Some(Box::new(Scene {
            head: head.to_owned(),
            hosts: names.collect(),
            recording: *recording,
            faults: (1..).zip(core.faults.list.iter().cloned()).collect(),
            moments: state.moments.take(),
            end: failure.and_then(|failure| failure.at).unwrap_or(now),
            last: now,
        }))
    })
}

fn describe(report: &Report, failure: Option<world::report::Failure>, state: &State) -> Details {
    let at = Seconds(nanos(report.time));
    let (reason, cause) = match failure {
        Some(failure) => (failure.reason, failure.cause),
        None => ("other than before".into(), String::new()),
    };
    let hosts = state.describe();
    with_kernel(|kernel| {
        let name = |host| kernel.core.hosts.name(host);
        let faults = kernel.core.faults.list.iter();
        let events = kernel.core.report.trace.last_events(name);
        let mut rest = state.chaos.borrow().drawn.clone();
        if let Some(site) = cause.strip_prefix(world::panics::PANIC_AT) {
            let _ = writeln!(rest, "  it panicked at {site}");
        }
        let shortcuts = kernel.core.report.shortcuts(&kernel.core.hosts);
        for line in shortcuts.iter().take(MAX_TOLD) {
            let _ = writeln!(rest, "  {line}");
        }
        for remark in &kernel.core.report.remarks {
            let _ = writeln!(rest, "  note: {remark}");
        }
        let end = match &*cause {
            STOPPED => format!("stopped at {at} {reason}"),
            _ => format!("failed at {at}: {reason}"),
        };
        Details {
            head: format!("seed {:#x} {end}\n", report.seed),
            cause,
            faults: faults.map(|fault| fault.describe(name)).collect(),
            rest: format!("{rest}  the last events:\n{events}  the hosts:\n{hosts}"),
        }
    })
}

/// Parses the first seed: a number, or `random`.
fn parse_first_seed(text: &str) -> Option<u64> {
    match text {
        // The keys of a map are the standard library's only source of randomness. Seeds of 48 bits
        // are long enough, and none of them is a calm one.
        "random" => Some((RandomState::new().build_hasher().finish() >> 16).max(10)),
        _ => parse(text),
    }
}

/// Parses a time of a world: `12.3s`. Reports print microseconds, of which the last nanosecond is
/// meant.
fn parse_time(text: &str) -> Option<u64> {
    let (digits, unit) = match text.strip_suffix("ms") {
        Some(digits) => (digits, 1_000.0),
        None => (text.trim_end_matches('s'), 1.0),
    };
    let number: f64 = digits.trim_end().parse().ok()?;
    let time = Duration::try_from_secs_f64(number / unit).ok()?;
    let micros = (time + Duration::from_nanos(500)).as_micros();
    Some(nanos(Duration::from_micros(micros as u64)).saturating_add(999))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test is run again by cargo and another program by its own name.
    #[test]
    fn rerun_command_for_cargo_and_other_programs() {
        let arguments = |all: &[&str]| all.iter().map(|argument| (*argument).to_owned()).collect();
        let harness = arguments(&["/home/target/debug/deps/sim-1f", "--test-threads=1"]);
        let example = arguments(&["target/debug/examples/simulated", "--bug"]);
        assert_eq!(
            command(Some("world::it_ends".into()), Vec::clone(&harness)),
            "cargo test world::it_ends"
        );
        assert_eq!(command(None, harness), "cargo test");
        assert_eq!(
            command(None, example),
            "target/debug/examples/simulated --bug"
        );
        assert_eq!(command(None, Vec::new()), "cargo test");
    }
}
