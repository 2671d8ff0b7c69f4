//! The jobs of a call of `check`. Each takes seeds until none is left, and starts a thread for each
//! of them, or one for many if worlds share their thread ([`Sim::share_thread`](super::Sim)).
//!
//! Every first run of a seed is recorded, so that a second one can report where it differs. **A run
//! that repeats another one is always on a new thread.** So a failure, and all that is found out
//! about it, depends on the seed alone, or the difference is reported. (A run that passes on a used
//! thread would pass on a new one if the test keeps its promise; `POLDER_SIM_VERIFY=1` checks
//! that.) The first world that runs on a used thread is repeated too, which finds most of what
//! worlds leave to each other even without a failure.
//!
//! **Names.** A thread that may have several worlds is called `polder-sim`, without a seed: a panic
//! that is printed there never names a wrong one. So the first world of a job that shares its
//! thread still ends that thread, and the next world starts a thread for all that follow. The
//! report of a failure names the seed, and so does the thread of its second run.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::difference;
use super::environment::number_from;
use super::replay::Replay;
use super::report::Report;
use super::threads::Threads;
use crate::world::edges;
use crate::world::faults::FIRST_WILD;
use crate::world::lock::lock;
use crate::world::setup::{RunConfig, Setup};
use crate::world::trace::{Comparison, Recorded};

/// The jobs of a call of `check`.
struct Jobs<'a> {
    threads: &'a Threads<'a>,
    config: RunConfig,
    /// The first seed, and the first one that may have faults: both run twice.
    repeated: [Option<u64>; 2],
    /// Whether every seed runs twice.
    checks_all: bool,
    /// Whether a world that ran on the thread of another one has run twice.
    has_checked_shared: AtomicBool,
    work: Mutex<Work<'a>>,
}

/// The seeds that are left, and the result of the others.
#[derive(Default)]
pub(super) struct Work<'a> {
    left: std::slice::Iter<'a, u64>,
    pub(super) failure: Option<Report>,
    pub(super) sometimes: BTreeMap<String, bool>,
    /// In how many seeds each kind of chaos was on, and how often it has struck.
    pub(super) strikes: BTreeMap<&'static str, (usize, usize)>,
    /// The lowest seed for which the test asks for all schedules, and the limit of their number.
    pub(super) schedules: Option<(u64, usize)>,
    /// Whether the run did not have the choices that it was given.
    pub(super) is_of_another_run: bool,
}

impl Work<'_> {
    /// Adds a report. The failure with the lowest seed wins, so that it is the same each time.
    fn add(&mut self, mut report: Report) {
        report.add_sometimes(&mut self.sometimes);
        if let Some(schedule) = &report.schedule {
            let known = self.schedules.into_iter();
            self.schedules = known.chain([(report.seed, schedule.limit)]).min();
            self.is_of_another_run |= schedule.is_of_another_run();
        }
        for (name, struck) in std::mem::take(&mut report.strikes) {
            let (on, all) = self.strikes.entry(name).or_default();
            (*on, *all) = (*on + 1, *all + struck);
        }
        let is_lower = (self.failure.as_ref()).is_none_or(|failure| report.seed < failure.seed);
        if report.failure.is_some() && is_lower {
            self.failure = Some(report);
        }
    }
}

/// Runs all seeds, or stops early when one has failed.
pub(super) fn run_seeds<'a>(
    seeds: &'a [u64],
    threads: &'a Threads<'a>,
    config: RunConfig,
) -> Work<'a> {
    let jobs = Jobs {
        threads,
        config,
        repeated: [
            seeds.first().copied(),
            seeds.iter().copied().find(|seed| *seed >= FIRST_WILD),
        ],
        checks_all: number_from("POLDER_SIM_VERIFY").is_some_and(|number| number != 0),
        has_checked_shared: AtomicBool::new(false),
        work: Mutex::new(Work {
            left: seeds.iter(),
            ..Work::default()
        }),
    };
    on_threads(count_jobs(seeds.len()), || jobs.serve());
    std::mem::take(&mut *lock(&jobs.work))
}

impl Jobs<'_> {
    fn next(&self) -> Option<u64> {
        let mut work = lock(&self.work);
        match work.failure {
            Some(_) => None,
            None => work.left.next().copied(),
        }
    }

    /// Runs seeds until none is left.
    fn serve(&self) {
        let (mut shares, mut spare) = (false, Recorded::default());
        while let Some(seed) = self.next() {
            let only = (!shares).then_some(seed);
            let serve = || self.serve_here(seed, shares, &mut spare);
            shares = self.threads.on_a_new(only, serve);
        }
    }

    /// Runs a seed on this thread, which is new. If it `is_shared`, runs more of them, as long as
    /// each world lets the next one use its thread. Returns whether the last one does. `spare` has
    /// memory for the recording.
    fn serve_here(&self, mut seed: u64, is_shared: bool, spare: &mut Recorded) -> bool {
        let mut is_used = false;
        loop {
            let report = self.run_checked(seed, is_used, spare);
            let shares = report.shares_thread && report.failure.is_none();
            lock(&self.work).add(report);
            if !(shares && is_shared) {
                return shares && self.threads.may_be_shared();
            }
            let Some(next) = self.next() else {
                return true;
            };
            (seed, is_used) = (next, true);
        }
    }

    /// Runs a seed on this thread, which `is_used` if other worlds had it. Runs it again on a new
    /// thread if it is the first seed, or the first one with faults, or the first one on a used
    /// thread, or has failed. A failure of the first run is kept even if the second one passes.
    fn run_checked(&self, seed: u64, is_used: bool, spare: &mut Recorded) -> Report {
        let setup = |comparison| Setup {
            comparison,
            config: self.config.clone(),
            ..Setup::default()
        };
        let record = Comparison::Record(std::mem::take(spare));
        let mut first = self.threads.run_here(seed, setup(record));
        let recorded = std::mem::take(&mut first.recorded);
        let is_first = self.repeated.contains(&Some(seed))
            || is_used && !self.has_checked_shared.swap(true, Ordering::Relaxed);
        if !is_first && !self.checks_all && first.failure.is_none() {
            *spare = recorded.cleared();
            return first;
        }
        // The first run has printed its panic already, with the seed unless its thread is shared.
        let repeat = Setup {
            is_quiet: first.failure.is_some() && !is_used,
            ..setup(Comparison::Compare(recorded))
        };
        let second = self.threads.run(seed, repeat);
        let is_same = second.fingerprint == first.fingerprint && second.failure == first.failure;
        if second.has_diverged || !is_same {
            first.failure = Some(diverged(&first, &second, is_used));
            first.details = None; // Details of a run that cannot be repeated mean nothing.
        }
        first
    }
}

/// The number of runs of a batch for [`run_all`]: enough for many cores, and few enough that what a
/// run has found is soon made use of.
pub(super) const BATCH: usize = 32;

/// Makes runs that leave nothing out, in parallel, each on a new thread. Returns the reports in
/// order, with the features of each run if it `covers` any. With edges there is one job: their
/// counters belong to the whole process.
pub(super) fn run_all(batch: &[Replay], covers: bool, threads: &Threads<'_>) -> Vec<Report> {
    let mut reports: Vec<Option<Report>> = batch.iter().map(|_| None).collect();
    let left = Mutex::new(batch.iter().zip(&mut reports));
    let serve = || {
        while let Some((replay, report)) = { lock(&left).next() } {
            let setup = Setup {
                covers,
                found: Some(format!("POLDER_SIM_REPLAY={replay} never ends:\n").into()),
                config: replay.config.clone(),
                ..Setup::default()
            };
            *report = Some(threads.run(replay.seed, setup));
        }
    };
    let jobs = if covers && edges::counts().len() > 0 {
        1
    } else {
        count_jobs(batch.len())
    };
    on_threads(jobs, serve);
    reports.into_iter().flatten().collect()
}

/// Calls `serve` on this thread and on new ones, `jobs` in all. Returns when all have ended.
fn on_threads(jobs: usize, serve: impl Fn() + Sync) {
    thread::scope(|scope| {
        for _ in 1..jobs {
            scope.spawn(&serve);
        }
        serve();
    });
}

/// Returns the number of parallel jobs for so many worlds: one per core, unless the environment
/// sets another number.
fn count_jobs(worlds: usize) -> usize {
    let count = number_from("POLDER_SIM_JOBS").map(|count| count as usize);
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    count.unwrap_or_else(cores).clamp(1, worlds.max(1))
}

fn diverged(first: &Report, second: &Report, is_used: bool) -> String {
    let difference = difference::in_words(second);
    let mut text = format!(
        "seed {:#x}: two runs of it differ, {difference}",
        second.seed
    );
    // Anything that only the first run has seen came later.
    for seen in &second.seen {
        let _ = writeln!(text, "  Seen until there: {seen}.");
    }
    let cause = likely_cause(second);
    let _ = if is_used {
        writeln!(
            text,
            "  The likely cause: a thread-local that an earlier world on its thread has left \
             (Sim::share_thread), such as the keys of HashMaps; the second run had a new thread. \
             If they differ without share_thread too: {cause}"
        )
    } else {
        writeln!(text, "  The likely cause: {cause}")
    };
    for remark in &second.remarks {
        let _ = writeln!(text, "  Or: {remark}");
    }
    for (run, report) in [("first", first), ("second", second)] {
        let _ = match (&report.failure, report.has_diverged) {
            (Some(failure), false) => write!(text, "  The {run} run:\n{failure}"),
            // It ended where it differs.
            (Some(_), true) => writeln!(text, "  The {run} run was ended there."),
            (None, _) => writeln!(text, "  The {run} run did not fail."),
        };
    }
    text
}

/// A cause that no call to the C library shows. futures-util 0.3 and tokio 1 choose the branch that
/// is polled first with a generator for each thread, which a static counter seeds.
const SELECT: &str = "the first branch of a `select!` (use futures' `select_biased!`, or `biased;` \
                      in tokio's)";

/// Returns why two runs of a seed differ, as far as can be found out.
fn likely_cause(second: &Report) -> String {
    let is_possible = cfg!(all(target_os = "linux", target_pointer_width = "64"));
    let difference = second.difference.as_ref();
    let asked = difference.map(|difference| difference.asked);
    match (second.asked, asked) {
        (Some(_), Some([one, other])) if one != other => format!(
            "something that is set up once in a process, such as a static. Until there the first \
             run had asked the C library {} times for randomness and {} times for the time, the \
             second one {} and {} times.",
            one.for_randomness, one.for_the_time, other.for_randomness, other.for_the_time
        ),
        (Some(_), _) => {
            let asked = asked.map_or(String::new(), |[one, _]| {
                format!(
                    " (In both runs that was asked {} times for randomness and {} times for the \
                     time until there.)",
                    one.for_randomness, one.for_the_time
                )
            });
            format!(
                "something that the C library is not asked for: {SELECT}, a static, a thread, an \
                 address that is compared or hashed, the number of a thread (by which fastrand \
                 seeds itself), a file, the process ID, randomness of the processor's or by a \
                 system call of the program's own.{asked}"
            )
        }
        (None, _) if is_possible => format!(
            "the order of a HashMap, random numbers, or the system's clock. The seed decides these \
             too with the line `polder_sim::answer_for_libc!();` at the root of the test's crate. \
             Otherwise {SELECT}, a thread, a static, an address."
        ),
        (None, _) => format!(
            "the order of a HashMap, the system's clock or its randomness, {SELECT}, a thread, a \
             static, an address."
        ),
    }
}
