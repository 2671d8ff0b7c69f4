//! Exploration: a search for runs that come to something new.
//!
//! Seeds are blind: each begins from nothing, and a bug that needs three unlikely steps needs all
//! of them in one seed. An exploration keeps each run that has [covered](crate::world::coverage)
//! something that none has before, or that has come to a state much sooner than those kept for it.
//! It continues such a run in other ways: a *fork* keeps what happened until the new thing, and
//! draws other numbers from there on. A fork that comes further is kept in turn.
//!
//! **Deterministic.** Runs are made in batches, which are planned before the first of their runs
//! and counted after the last one, in order. So the runs depend on the seeds, the corpus and the
//! number of runs alone, and neither on threads nor on time. Each can be repeated by its
//! [`Replay`].
//!
//! **The corpus** is a file with the replay of each run that was kept, by which the next
//! exploration begins. Replays of a program that has changed since are runs like any others: they
//! cover what they cover.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, fs, io};

use super::environment::{from_environment, test_name};
use super::jobs::{BATCH, run_all};
use super::picture;
use super::replay::Replay;
use super::report::Report;
use super::threads::Threads;
use crate::world::choice::Stream;
use crate::world::coverage::{Feature, PLACES};
use crate::world::edges;
use crate::world::faults::FIRST_WILD;
use crate::world::setup::RunConfig;

/// One run in this number is that of a new seed, so that an exploration never stays where it is.
const NEW_SEEDS: u64 = 4;

/// Maximum number of the test's own seeds that are run again, so that their features are known.
const MAX_OWN: usize = 1_000;

/// The number of kept runs from which the one with the rarest feature is taken.
const CANDIDATES: usize = 4;

/// When an exploration ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    Runs(usize),
    Time(Duration),
}

impl Limit {
    pub(super) fn from_environment() -> Option<Limit> {
        let what = "a number of runs, or a time such as 60s or 10m";
        from_environment("POLDER_SIM_EXPLORE", what, Limit::parse)
    }

    fn parse(text: &str) -> Option<Limit> {
        let seconds = if let Some(seconds) = text.strip_suffix('s') {
            seconds.parse().ok()?
        } else if let Some(minutes) = text.strip_suffix('m') {
            minutes.parse::<u64>().ok()?.checked_mul(60)?
        } else {
            return text.parse().ok().map(Limit::Runs);
        };
        Some(Limit::Time(Duration::from_secs(seconds)))
    }
}

/// A run that was kept.
struct Entry {
    replay: Replay,
    /// The features for which it was kept, at least one: those that it was the first to reach, and
    /// states that it has reached much sooner. States alone, if there are any.
    found: Vec<Feature>,
    /// How often it was continued.
    continued: u32,
}

/// The state between two batches.
struct Search {
    /// The ranges of counts that were seen, a bit each, by feature.
    seen: Vec<u8>,
    /// In how many runs each feature was covered.
    hits: Vec<u32>,
    /// How soon each feature was reached, in the fastest of the runs that were kept for it. (A run
    /// that is kept for that alone lowers it by a quarter or more, so few are.)
    soonest: Vec<u64>,
    entries: Vec<Entry>,
    /// The runs of the corpus that were not made yet, which come first.
    corpus: VecDeque<Replay>,
    /// The test's own seeds, which come then.
    own: VecDeque<u64>,
    next_seed: u64,
    stream: Stream,
}

impl Search {
    /// Begins a search with these runs, these seeds, and the seeds behind both.
    fn new(corpus: VecDeque<Replay>, own: VecDeque<u64>) -> Search {
        let known = corpus.iter().map(|replay| replay.seed);
        let last = known.chain(own.iter().copied()).max();
        let stream = Stream::new(last.unwrap_or(0), "explore", 0, 0);
        let places = PLACES + edges::counts().len();
        Search {
            seen: vec![0; places],
            hits: vec![0; places],
            soonest: vec![u64::MAX; places],
            entries: Vec::new(),
            // A calm seed has no faults, however it is continued.
            next_seed: last.map_or(0, |last| last.wrapping_add(1)).max(FIRST_WILD),
            corpus,
            own,
            stream,
        }
    }

    /// Returns the next run.
    fn next(&mut self) -> Replay {
        if let Some(replay) = self.corpus.pop_front() {
            return replay;
        }
        if let Some(seed) = self.own.pop_front() {
            return Replay::new(seed, RunConfig::default());
        }
        if self.entries.is_empty() || self.stream.below(NEW_SEEDS) == 0 {
            let seed = self.next_seed;
            self.next_seed = seed.wrapping_add(1);
            return Replay::new(seed, RunConfig::default());
        }
        // Half of these runs continue one that was kept for a state, if there is any: events
        // are so many that few of the kept runs have come further than the others.
        let reached_state = |index: &usize| self.entries[*index].found[0].is_state();
        let states: Vec<usize> = (0..self.entries.len()).filter(reached_state).collect();
        let candidates = if !states.is_empty() && self.stream.below(2) == 0 {
            states
        } else {
            let any = self.entries.len() as u64;
            let index = |_| self.stream.below(any) as usize;
            (0..CANDIDATES).map(index).collect()
        };
        let rarest = candidates.into_iter().min_by_key(|index| {
            let entry = &self.entries[*index];
            let hits = entry.found.iter().map(|feature| self.hits[feature.place]);
            let rarest = u64::from(hits.min().unwrap_or(u32::MAX));
            let rank = rarest.saturating_mul(1 + u64::from(entry.continued));
            (rank, *index)
        });
        let entry = &mut self.entries[rarest.unwrap_or(0)];
        entry.continued += 1;
        let nth = self.stream.below(entry.found.len() as u64) as usize;
        let reached_at = entry.found[nth].at;
        // Right after it has reached that, or somewhere before.
        let at = match self.stream.below(2) {
            0 => reached_at + 1,
            _ => self.stream.below(reached_at + 1),
        };
        let salt = self.stream.next().max(1);
        let mut next = entry.replay.clone();
        next.config.forks = Arc::new(next.config.forks.fork_at(at, salt));
        next
    }

    /// Counts what a run has covered, and keeps the run if something is new, or was much sooner.
    fn add(&mut self, replay: Replay, report: &Report) {
        let mut found = Vec::new();
        for feature in &report.covered {
            let index = feature.place;
            self.hits[index] = self.hits[index].saturating_add(1);
            let bit = 1 << feature.range;
            // After a state that is reached much sooner, more can follow before the run ends.
            let is_sooner = feature.is_state() && feature.at < self.soonest[index] / 4 * 3;
            if self.seen[index] & bit == 0 || is_sooner {
                self.seen[index] |= bit;
                self.soonest[index] = self.soonest[index].min(feature.at);
                found.push(*feature);
            }
        }
        if !found.is_empty() {
            if found.iter().any(Feature::is_state) {
                found.retain(Feature::is_state);
            }
            self.entries.push(Entry {
                replay,
                found,
                continued: 0,
            });
        }
    }

    /// Writes the corpus: the runs that were kept, and those of the last one that were not made
    /// yet.
    fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = String::new();
        let kept = self.entries.iter().map(|entry| &entry.replay);
        for replay in kept.chain(&self.corpus) {
            let _ = writeln!(text, "{replay}");
        }
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        // So that it is whole, however this ends.
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        fs::write(&new, text)?;
        fs::rename(new, path)
    }
}

/// Explores until the limit, from the corpus and these seeds on. Returns a run that fails, and its
/// report, if there is one.
pub(super) fn explore(
    seeds: &[u64],
    limit: Limit,
    threads: &Threads<'_>,
) -> Option<(Replay, String)> {
    let start = Instant::now();
    let path = corpus();
    let known = read(&path);
    let replayed = known.len();
    let own = seeds.iter().take(MAX_OWN).copied();
    let mut search = Search::new(known, own.collect());
    let (mut runs, mut failed) = (0, None);
    let mut written = Ok(());
    while failed.is_none() {
        // The runs of the last exploration do not count.
        let left = match limit {
            Limit::Runs(most) => most.saturating_add(replayed).saturating_sub(runs),
            Limit::Time(time) if start.elapsed() >= time => 0,
            Limit::Time(_) => BATCH,
        };
        if left == 0 {
            break;
        }
        let batch: Vec<Replay> = (0..left.min(BATCH)).map(|_| search.next()).collect();
        let kept = search.entries.len();
        for (replay, report) in batch.iter().zip(run_all(&batch, true, threads)) {
            runs += usize::from(failed.is_none());
            search.add(replay.clone(), &report);
            if let Some(failure) = report.failure {
                failed.get_or_insert_with(|| (replay.clone(), failure));
            }
        }
        if search.entries.len() > kept {
            written = search.write(&path);
        }
    }
    let kept = search.entries.len();
    let corpus = match written {
        Ok(()) => path.display().to_string(),
        Err(error) => format!("{} cannot be written: {error}", path.display()),
    };
    println!(
        "explored {runs} runs in {:.1} s, {kept} of which came to something new: {corpus}",
        start.elapsed().as_secs_f64()
    );
    failed
}

/// Returns the path of the corpus of this check: one for each program and test, and each check of
/// a test.
fn corpus() -> PathBuf {
    thread_local! {
        static CHECKS: Cell<u32> = const { Cell::new(0) };
    }
    let nth = CHECKS.get() + 1;
    CHECKS.set(nth);
    let path = |path: &str| Some(PathBuf::from(path));
    if let Some(path) = from_environment("POLDER_SIM_CORPUS", "a path", path) {
        return path;
    }
    let program = env::current_exe().unwrap_or_default();
    let program = program.file_stem().unwrap_or_default().to_string_lossy();
    // Cargo appends a hash, which changes with the program.
    let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    let test = picture::file_name(&test_name().unwrap_or_default());
    let name = if nth == 1 {
        test
    } else {
        format!("{test}-{nth}")
    };
    let folder = picture::folder().join("corpus");
    folder.join(picture::file_name(program)).join(name)
}

/// Reads a corpus. A line that is no run is passed over: the file may be of another version.
///
/// # Panics
///
/// If it is there and cannot be read: it would be overwritten.
fn read(path: &Path) -> VecDeque<Replay> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text.unwrap_or_else(|error| {
            panic!("polder_sim: {} cannot be read: {error}", path.display())
        }),
    };
    let replays = text.lines().filter_map(Replay::parse);
    replays.filter(Replay::is_whole).collect()
}
