//! The watchdog of worlds: a call of foreign code that never returns is reported, and ends the
//! program.
//!
//! A world has one thread. Where a poll does not return, nothing in the world goes on, the test's
//! own limits included, and nothing can end the thread. So somebody looks from time to time whether
//! each world is still at the same call: for `check` a thread of its own, one for all its worlds,
//! and for `run` the thread that waits for the one world. This is the only place where real time
//! counts: it changes nothing in a world.
//!
//! A world's thread notes which seed it runs, and takes the note back when that world has ended.
//! Both are a lock that is hardly ever contended, and wake nobody.

use std::io::Write;
use std::process;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::check::{number_from, test_name};
use super::kernel;
use super::kernel::progress::{LastCall, Progress};
use super::kernel::trace::Seconds;

/// How often the worlds are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// A call that has lasted so long is reported. Nobody waits for a test without a word for longer.
const REPORT: Duration = Duration::from_secs(10);

/// A call that has lasted so long ends the program, unless `POLDER_SIM_STUCK` says otherwise:
/// longer than any search for a linear order takes, and shorter than the limit of a job in CI.
const END: Duration = Duration::from_secs(300);

/// What a test's program exits with when a test has failed, by Rust's harness.
const FAILED: i32 = 101;

/// The worlds that a call of `check` or `run` has now, and how they are watched.
pub(super) struct Watch {
    /// After how long a call ends the program.
    limit: Option<Duration>,
    /// Behind `cargo test`.
    test: String,
    /// The call is made in a world, whose watchdog is enough. (The clock of that thread may be that
    /// world's.)
    is_inner: bool,
    watched: Mutex<Watched>,
    /// It is over.
    ended: Condvar,
}

#[derive(Default)]
struct Watched {
    worlds: Vec<World>,
    is_over: bool,
}

/// A world that runs.
struct World {
    seed: u64,
    progress: Arc<Progress>,
    /// The failure that this run looks into: it is said first if the world is stuck.
    found: Option<Arc<str>>,
    last: Option<LastCall>,
    /// How long that call has lasted at least.
    lasted: Duration,
    is_told: bool,
}

impl Watch {
    /// For a test of this thread.
    ///
    /// # Panics
    ///
    /// If `POLDER_SIM_STUCK` is no number.
    pub(super) fn new() -> Watch {
        let limit = number_from("POLDER_SIM_STUCK").map_or(END, Duration::from_secs);
        Watch {
            limit: Some(limit).filter(|it| !it.is_zero()),
            test: test_name().map_or(String::new(), |it| format!(" {it}")),
            is_inner: kernel::is_here(),
            watched: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    pub(super) fn is_inner(&self) -> bool {
        self.is_inner
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A world begins, which is watched until the result is dropped.
    pub(super) fn add(
        &self,
        seed: u64,
        progress: Arc<Progress>,
        found: Option<Arc<str>>,
    ) -> WhileItRuns<'_> {
        self.lock().worlds.push(World {
            seed,
            progress: progress.clone(),
            found,
            last: None,
            lasted: Duration::ZERO,
            is_told: false,
        });
        WhileItRuns {
            watch: self,
            progress,
        }
    }

    /// Looks after the worlds until the result of [`end`](Self::end) is dropped.
    pub(super) fn look(&self) {
        let (mut watched, mut looked) = (self.lock(), Instant::now());
        loop {
            let wait = self
                .ended
                .wait_timeout_while(watched, LOOK, |it| !it.is_over);
            watched = wait.unwrap_or_else(PoisonError::into_inner).0;
            if watched.is_over {
                return;
            }
            // Not what the clock says: the program may have been stopped meanwhile.
            let passed = looked.elapsed().min(2 * LOOK);
            looked = Instant::now();
            for world in &mut watched.worlds {
                world.look(passed, self);
            }
        }
    }

    /// Whoever looks does so until this is dropped: also by a panic.
    pub(super) fn end(&self) -> End<'_> {
        End(self)
    }
}

impl World {
    /// Looks whether the world is where it was at the last look, so long ago.
    fn look(&mut self, passed: Duration, watch: &Watch) {
        let now = self.progress.last();
        // (At its first look a world has come from nowhere.)
        if now.as_ref().map(|it| it.nth) != self.last.as_ref().map(|it| it.nth) {
            (self.last, self.lasted, self.is_told) = (now, Duration::ZERO, false);
            return;
        }
        // What was read before may have been half of the call before it.
        self.last = now;
        let Some(call) = &self.last else {
            return;
        };
        self.lasted += passed;
        let words = || words(self.seed, call, self.lasted);
        if watch.limit.is_some_and(|limit| self.lasted >= limit) {
            say(&match &self.found {
                Some(found) => format!("{found}{}\n", words()),
                None => format!(
                    "{}\n  replay: POLDER_SEED={:#x} cargo test{}\n",
                    words(),
                    self.seed,
                    watch.test
                ),
            });
            say("  This ends the program, as nothing ends a thread: see POLDER_SIM_STUCK.\n");
            process::exit(FAILED);
        }
        if self.lasted >= REPORT && !self.is_told {
            say(&format!("{}\n", words()));
            self.is_told = true;
        }
    }
}

/// A world is watched as long as this exists: of [`Watch::add`].
pub(super) struct WhileItRuns<'a> {
    watch: &'a Watch,
    progress: Arc<Progress>,
}

impl Drop for WhileItRuns<'_> {
    fn drop(&mut self) {
        let mut watched = self.watch.lock();
        let is_this = |it: &World| Arc::ptr_eq(&it.progress, &self.progress);
        let place = watched.worlds.iter().position(is_this);
        let world = place.map(|it| watched.worlds.swap_remove(it));
        drop(watched);
        drop(world);
    }
}

/// Whoever looks goes home when this is dropped: of [`Watch::end`].
pub(super) struct End<'a>(&'a Watch);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.ended.notify_all();
    }
}

fn words(seed: u64, call: &LastCall, lasted: Duration) -> String {
    let host = call.host.as_ref();
    format!(
        "polder::sim: seed {seed:#x} is stuck at {}: {} has not returned for {} s{}",
        Seconds(call.at),
        call,
        lasted.as_secs(),
        host.map_or(String::new(), |it| format!(", on the host {it:?}"))
    )
}

/// Not by `eprint!`, which the harness keeps until the test has ended.
fn say(words: &str) {
    let _ = std::io::stderr().write_all(words.as_bytes());
}
