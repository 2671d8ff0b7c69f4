//! The watchdog of a world: a call of foreign code that never returns is reported, and ends the
//! program.
//!
//! A world has one thread. Where a poll does not return, nothing in the world goes on, the test's
//! own limits included, and nothing can end the thread. So whoever waits for the end of the world
//! looks from time to time whether it is still at the same call. This is the only place where real
//! time counts: it changes nothing in a world.

use std::io::Write;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle, Thread};
use std::time::{Duration, Instant};

use super::check::{number_from, test_name};
use super::kernel::progress::{LastCall, Progress};
use super::kernel::trace::Seconds;

/// How often a world is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// A call that has lasted so long is reported. Nobody waits for a test without a word for longer.
const REPORT: Duration = Duration::from_secs(10);

/// A call that has lasted so long ends the program, unless `POLDER_SIM_STUCK` says otherwise:
/// longer than any search for a linear order takes, and shorter than the limit of a job in CI.
const END: Duration = Duration::from_secs(300);

/// What a test's program exits with when a test has failed, by Rust's harness.
const FAILED: i32 = 101;

/// How worlds are watched that a call of `check` or `run` makes.
pub(super) struct Watch {
    /// After how long a call ends the program.
    limit: Option<Duration>,
    /// Behind `cargo test`.
    test: String,
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
        }
    }

    /// Waits until a world's thread is about to end, and looks after it meanwhile. `found` is said
    /// first if it is stuck: the failure that is looked into by this run.
    pub(super) fn wait<T>(
        &self,
        thread: &ScopedJoinHandle<'_, T>,
        is_over: &AtomicBool,
        seed: u64,
        progress: &Progress,
        found: Option<&str>,
    ) {
        // Not what the clock says: the program may have been stopped meanwhile.
        let mut lasted = Duration::ZERO;
        let (mut last, mut looked, mut is_told) = (progress.last(), Instant::now(), false);
        // (A thread that could not come to its first line has ended too.)
        while !is_over.load(Ordering::Acquire) && !thread.is_finished() {
            thread::park_timeout(LOOK);
            lasted += looked.elapsed().min(2 * LOOK);
            looked = Instant::now();
            let now = progress.last();
            if now.as_ref().map(|it| it.nth) != last.as_ref().map(|it| it.nth) {
                (last, lasted, is_told) = (now, Duration::ZERO, false);
            }
            let Some(call) = &last else {
                continue;
            };
            if self.limit.is_some_and(|limit| lasted >= limit) {
                let words = words(seed, call, lasted);
                say(&match found {
                    Some(found) => format!("{found}{words}\n"),
                    None => format!(
                        "{words}\n  replay: POLDER_SEED={seed:#x} cargo test{}\n",
                        self.test
                    ),
                });
                say("  This ends the program, as nothing ends a thread: see POLDER_SIM_STUCK.\n");
                process::exit(FAILED);
            }
            if lasted >= REPORT && !is_told {
                say(&format!("{}\n", words(seed, call, lasted)));
                is_told = true;
            }
        }
    }
}

/// Wakes whoever waits for a world, when that has ended: also by a panic.
pub(super) struct End {
    is_over: Arc<AtomicBool>,
    waits: Thread,
}

impl Drop for End {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.waits.unpark();
    }
}

/// What this thread waits for: the first half is dropped at the end of the world.
pub(super) fn end() -> (End, Arc<AtomicBool>) {
    let is_over = Arc::new(AtomicBool::new(false));
    let end = End {
        is_over: is_over.clone(),
        waits: thread::current(),
    };
    (end, is_over)
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
