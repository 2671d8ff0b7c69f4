//! The watchdog of worlds: reports a call of foreign code that never returns, and ends the program.
//!
//! A world has one thread. If a poll does not return, nothing in the world continues, not even the
//! test's own limits, and the thread cannot be ended. So a watchdog checks periodically whether
//! each world is still at the same call. For `check` it is a separate thread, one for all its
//! worlds; for `run` it is the thread that waits for the one world. The watchdog uses real time,
//! and changes nothing in a world.
//!
//! A world's thread registers the seed that it runs, and removes it when that world has ended. Both
//! take a lock that is rarely contended, and wake no thread.

use std::io::Write;
use std::process;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::environment::{built, number_from, test_name};
use crate::world;
use crate::world::lock::lock;
use crate::world::progress::{LastCall, Progress};
use crate::world::seconds::Seconds;

/// Interval of the checks.
const LOOK: Duration = Duration::from_millis(500);

/// Duration after which a call is reported. Users do not wait longer for a test that prints
/// nothing.
const REPORT: Duration = Duration::from_secs(10);

/// Duration after which a call ends the program, unless `POLDER_SIM_STEP_TIMEOUT` sets another one:
/// longer than any search for a linear order takes, and shorter than the limit of a job in CI.
const END: Duration = Duration::from_secs(300);

/// Exit status of a test program with a failed test, as of Rust's harness.
const FAILED: i32 = 101;

/// The worlds of a call of `check` or `run`, and how they are watched.
pub(super) struct Watch {
    /// Duration after which a call ends the program; `None` for never.
    limit: Option<Duration>,
    /// Argument after `cargo test`.
    test: String,
    /// The command for the test as it was built, as another line.
    built: Option<String>,
    /// Whether the call is made in a world, which has its own watchdog. (The clock of that thread
    /// may be that world's.)
    pub(super) is_inner: bool,
    watched: Mutex<Watched>,
    /// Notified when the call is over.
    ended: Condvar,
}

#[derive(Default)]
struct Watched {
    worlds: Vec<World>,
    is_over: bool,
}

/// A running world.
struct World {
    seed: u64,
    progress: Arc<Progress>,
    /// The failure that this run looks into: it is printed first if the world is stuck.
    found: Option<Arc<str>>,
    last: Option<LastCall>,
    /// How long that call has lasted at least.
    lasted: Duration,
    is_told: bool,
}

impl Watch {
    /// Returns a watchdog for the test of this thread.
    ///
    /// # Panics
    ///
    /// If `POLDER_SIM_STEP_TIMEOUT` is not a number.
    pub(super) fn new() -> Watch {
        let limit = number_from("POLDER_SIM_STEP_TIMEOUT").map_or(END, Duration::from_secs);
        Watch {
            limit: Some(limit).filter(|limit| !limit.is_zero()),
            test: test_name().map_or(String::new(), |name| format!(" {name}")),
            built: built(test_name()),
            is_inner: world::time::is_here(),
            watched: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    /// Registers a world, which is watched until it is [removed](Self::remove).
    pub(super) fn add(&self, seed: u64, progress: Arc<Progress>, found: Option<Arc<str>>) {
        lock(&self.watched).worlds.push(World {
            seed,
            progress,
            found,
            last: None,
            lasted: Duration::ZERO,
            is_told: false,
        });
    }

    /// Removes the world with this progress.
    pub(super) fn remove(&self, progress: &Arc<Progress>) {
        let is_other = |world: &World| !Arc::ptr_eq(&world.progress, progress);
        lock(&self.watched).worlds.retain(is_other);
    }

    /// Watches the worlds until an [`End`] of them is dropped.
    pub(super) fn look(&self) {
        let (mut watched, mut looked) = (lock(&self.watched), Instant::now());
        loop {
            let wait = self
                .ended
                .wait_timeout_while(watched, LOOK, |watched| !watched.is_over);
            watched = wait.unwrap_or_else(PoisonError::into_inner).0;
            if watched.is_over {
                return;
            }
            // Bounded, as the program may have been stopped meanwhile.
            let passed = looked.elapsed().min(2 * LOOK);
            looked = Instant::now();
            for world in &mut watched.worlds {
                world.look(passed, self);
            }
        }
    }
}

impl World {
    /// Checks whether the world is still at the call of the last check, which was `passed` ago.
    fn look(&mut self, passed: Duration, watch: &Watch) {
        let now = self.progress.last();
        // (The first check of a world has no earlier call to compare.)
        if now.as_ref().map(|call| call.nth) != self.last.as_ref().map(|call| call.nth) {
            (self.last, self.lasted, self.is_told) = (now, Duration::ZERO, false);
            return;
        }
        // The earlier reading may have mixed this call with the one before it.
        self.last = now;
        let Some(call) = &self.last else {
            return;
        };
        self.lasted += passed;
        let words = || words(self.seed, call, self.lasted);
        if watch.limit.is_some_and(|limit| self.lasted >= limit) {
            say(&match &self.found {
                Some(found) => format!("{found}{}\n", words()),
                None => {
                    let variable = format!("POLDER_SIM_SEED={:#x}", self.seed);
                    let again = format!(
                        "{}\n  replay: {variable} cargo test{}\n",
                        words(),
                        watch.test
                    );
                    match &watch.built {
                        Some(built) => format!("{again}  as built: {variable} {built}\n"),
                        None => again,
                    }
                }
            });
            say(
                "  This ends the program, as nothing ends a thread: see POLDER_SIM_STEP_TIMEOUT.\n",
            );
            process::exit(FAILED);
        }
        if self.lasted >= REPORT && !self.is_told {
            say(&format!("{}\n", words()));
            self.is_told = true;
        }
    }
}

/// Ends [`Watch::look`] when it is dropped, also by a panic.
pub(super) struct End<'a>(pub(super) &'a Watch);

impl Drop for End<'_> {
    fn drop(&mut self) {
        lock(&self.0.watched).is_over = true;
        self.0.ended.notify_all();
    }
}

fn words(seed: u64, call: &LastCall, lasted: Duration) -> String {
    let host = call.host.as_ref();
    format!(
        "polder_sim: seed {seed:#x} is stuck at {}: {} has not returned for {} s{}",
        Seconds(call.at),
        call,
        lasted.as_secs(),
        host.map_or(String::new(), |host| format!(", on the host {host:?}"))
    )
}

/// Not with `eprint!`: the harness keeps its output until the test has ended.
fn say(words: &str) {
    let _ = std::io::stderr().write_all(words.as_bytes());
}
