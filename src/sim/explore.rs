//! Exploration: a search for runs that come to something new.
//!
//! Seeds are blind: each begins from nothing, and a bug that needs three unlikely steps needs all
//! of them in one seed. An exploration keeps each run that has [covered](crate::world::coverage)
//! something that none has before, and continues it in other ways: a *fork* keeps what happened
//! until the new thing, and draws other numbers from there on. A fork that comes further is kept in
//! turn.
//!
//! **Deterministic.** Runs are made in batches, which are planned before the first of their runs
//! and counted after the last one, in order. So the runs depend on the seeds, the corpus and the
//! number of runs alone, and neither on threads nor on time. Each can be repeated by its
//! [`Replay`].
//!
//! **The corpus** is a file with the replay of each run that was kept, by which the next
//! exploration begins. Replays of a program that has changed since are runs like any others: they
//! cover what they cover.

use std::collections::VecDeque;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use super::check::{Report, test_name, variable};
use super::jobs::count_jobs;
use super::picture;
use super::replay::Replay;
use super::threads::Threads;
use crate::sync::Mutex;
use crate::world::choice::Stream;
use crate::world::coverage::{PLACES, RANGES};
use crate::world::{Setup, Variation};

/// The number of runs of a batch: enough for many cores, and few enough that what a run has found
/// is soon made use of.
const BATCH: usize = 32;

/// One run in this number is that of a new seed, so that an exploration never stays where it is.
const NEW_SEEDS: u64 = 4;

/// The number of kept runs from which the one with the rarest feature is taken.
const CANDIDATES: usize = 4;

/// When an exploration ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    Runs(usize),
    Time(Duration),
}

impl Limit {
    /// # Panics
    ///
    /// If the variable is set, and malformed.
    pub(super) fn from_environment() -> Option<Limit> {
        let text = variable("POLDER_SIM_EXPLORE")?;
        let limit = Limit::parse(&text);
        assert!(
            limit.is_some(),
            "polder::sim: POLDER_SIM_EXPLORE is a number of runs, or a time such as 60s or 10m: \
             not {text:?}"
        );
        limit
    }

    fn parse(text: &str) -> Option<Limit> {
        let time = |digits: &str, unit: u64| {
            let seconds = digits.parse::<u64>().ok()?.checked_mul(unit)?;
            Some(Limit::Time(Duration::from_secs(seconds)))
        };
        match text.strip_suffix('s') {
            Some(digits) => time(digits, 1),
            None => match text.strip_suffix('m') {
                Some(digits) => time(digits, 60),
                None => text.parse().ok().map(Limit::Runs),
            },
        }
    }
}

/// A run that has covered something new.
struct Entry {
    replay: Replay,
    /// The features that it was the first to reach, and when in the run.
    found: Vec<(u16, u64)>,
    /// How often it was continued.
    continued: u32,
}

/// The state between two batches.
struct Search {
    /// The ranges of counts that were seen, a bit each, by feature.
    seen: Vec<u8>,
    /// In how many runs each feature was covered.
    hits: Vec<u32>,
    entries: Vec<Entry>,
    /// Runs that come first.
    queue: VecDeque<Replay>,
    next_seed: u64,
    stream: Stream,
}

impl Search {
    fn new(first_seed: u64, queue: VecDeque<Replay>) -> Search {
        const { assert!(RANGES <= u8::BITS as usize) };
        Search {
            seen: vec![0; PLACES],
            hits: vec![0; PLACES],
            entries: Vec::new(),
            queue,
            next_seed: first_seed,
            stream: Stream::new(first_seed, "explore", 0, 0),
        }
    }

    /// Returns the next run.
    fn next(&mut self) -> Replay {
        if let Some(replay) = self.queue.pop_front() {
            return replay;
        }
        if self.entries.is_empty() || self.stream.below(NEW_SEEDS) == 0 {
            let seed = self.next_seed;
            self.next_seed = seed.wrapping_add(1);
            return Replay::whole(seed, Arc::default());
        }
        let candidates = [(); CANDIDATES].map(|()| self.stream.below(self.entries.len() as u64));
        let rarest = candidates.into_iter().min_by_key(|index| {
            let entry = &self.entries[*index as usize];
            let hits = entry
                .found
                .iter()
                .map(|(place, _)| self.hits[usize::from(*place)]);
            let rarest = u64::from(hits.min().unwrap_or(u32::MAX));
            (
                rarest.saturating_mul(1 + u64::from(entry.continued)),
                *index,
            )
        });
        let entry = &mut self.entries[rarest.unwrap_or(0) as usize];
        entry.continued += 1;
        let nth = self.stream.below(entry.found.len() as u64) as usize;
        let found = entry.found[nth].1;
        // Right after what it has found, or somewhere before.
        let at = match self.stream.below(2) {
            0 => found + 1,
            _ => self.stream.below(found + 1),
        };
        let salt = self.stream.next().max(1);
        Replay::whole(
            entry.replay.seed,
            Arc::new(entry.replay.forks.fork_at(at, salt)),
        )
    }

    /// Counts what a run has covered, and keeps the run if something is new.
    fn add(&mut self, replay: Replay, report: &Report) {
        let mut found = Vec::new();
        for &(place, range, at) in &report.covered {
            let index = usize::from(place);
            self.hits[index] = self.hits[index].saturating_add(1);
            let bit = 1 << range;
            if self.seen[index] & bit == 0 {
                self.seen[index] |= bit;
                found.push((place, at));
            }
        }
        if !found.is_empty() {
            self.entries.push(Entry {
                replay,
                found,
                continued: 0,
            });
        }
    }
}

/// Explores until the limit, from these seeds on. Returns a run that fails, if there is one.
pub(super) fn explore(seeds: &[u64], limit: Limit, threads: &Threads<'_>) -> Option<Replay> {
    let start = Instant::now();
    let is_over = |runs| match limit {
        Limit::Runs(most) => runs >= most,
        Limit::Time(time) => start.elapsed() >= time,
    };
    let path = corpus();
    let mut search = Search::new(seeds.first().copied().unwrap_or(0), read(&path));
    let (mut runs, mut failed) = (0, None);
    while failed.is_none() && !is_over(runs) {
        let count = match limit {
            Limit::Runs(most) => BATCH.min(most - runs),
            Limit::Time(_) => BATCH,
        };
        let batch: Vec<Replay> = (0..count).map(|_| search.next()).collect();
        for (replay, report) in batch.iter().zip(run_all(&batch, threads)) {
            runs += 1;
            search.add(replay.clone(), &report);
            if report.failure.is_some() {
                failed = Some(replay.clone());
                break;
            }
        }
    }
    let kept = search.entries.len();
    let corpus = match write(&path, &search.entries) {
        Ok(()) => path.display().to_string(),
        Err(error) => format!("cannot be written: {error}"),
    };
    println!(
        "explored {runs} runs in {:.1} s, {kept} of which came to something new: {corpus}",
        start.elapsed().as_secs_f64()
    );
    failed
}

/// Runs a batch in parallel, each on a new thread. Returns the reports in order.
fn run_all(batch: &[Replay], threads: &Threads<'_>) -> Vec<Report> {
    let next = AtomicUsize::new(0);
    let reports = Mutex::new(Vec::new());
    let serve = || {
        loop {
            let nth = next.fetch_add(1, Ordering::Relaxed);
            let Some(replay) = batch.get(nth) else {
                return;
            };
            let setup = Setup {
                covers: true,
                variation: Variation {
                    forks: replay.forks.clone(),
                    ..Variation::default()
                },
                ..Setup::default()
            };
            let report = threads.run(replay.seed, setup);
            reports.lock().push((nth, report));
        }
    };
    thread::scope(|scope| {
        for _ in 1..count_jobs(batch.len()) {
            scope.spawn(serve);
        }
        serve();
    });
    let mut reports = std::mem::take(&mut *reports.lock());
    reports.sort_unstable_by_key(|(nth, _)| *nth);
    reports.into_iter().map(|(_, report)| report).collect()
}

/// Returns the path of the corpus of this thread's test.
fn corpus() -> PathBuf {
    variable("POLDER_SIM_CORPUS").map_or_else(
        || {
            let name = test_name().unwrap_or_else(|| "main".to_owned());
            picture::folder()
                .join("corpus")
                .join(picture::file_name(&name))
        },
        PathBuf::from,
    )
}

/// Reads a corpus. A line that is no run is passed over: the file may be of another version.
fn read(path: &PathBuf) -> VecDeque<Replay> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(Replay::parse)
        .filter(Replay::is_whole)
        .collect()
}

fn write(path: &PathBuf, entries: &[Entry]) -> std::io::Result<()> {
    let mut text = String::new();
    for entry in entries {
        let _ = writeln!(text, "{}", entry.replay);
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, text)
}
