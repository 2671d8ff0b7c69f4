//! Looks after the threads of worlds: a step that never ends is reported, and ends the program.
//!
//! A world has one thread. Where a poll does not return, nothing in the world goes on, the test's
//! own limits included, and nothing can end the thread. So whoever waits for the end of the world
//! looks from time to time whether it is still at the same poll. This is the only place where real
//! time counts: it changes nothing in a world, and only reports that one is stuck.

use std::io::Write;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle, Thread};
use std::time::{Duration, Instant};

use super::check::number_from;
use super::kernel::progress::{Poll, Progress};
use super::kernel::trace::Seconds;

/// How often a world is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// A poll that has lasted so long is reported. Nobody waits for a test without a word for longer.
const REPORT: Duration = Duration::from_secs(10);

/// A poll that has lasted so long ends the program, unless `POLDER_SIM_STUCK` says otherwise:
/// longer than any search for a linear order takes, and shorter than the limit of a job in CI.
const END: Duration = Duration::from_secs(300);

/// What a test's program exits with when a test has failed, by Rust's harness.
const FAILED: i32 = 101;

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

/// After how long a poll ends the program; `None` if none does.
///
/// # Panics
///
/// If the variable is no number.
pub(super) fn limit() -> Option<Duration> {
    let limit = number_from("POLDER_SIM_STUCK").map_or(END, Duration::from_secs);
    Some(limit).filter(|it| !it.is_zero())
}

/// Waits until a world's thread is about to end, and looks after it meanwhile.
pub(super) fn wait<T>(
    thread: &ScopedJoinHandle<'_, T>,
    is_over: &AtomicBool,
    seed: u64,
    progress: &Progress,
    limit: Option<Duration>,
) {
    let (mut last, mut since, mut is_told) = (progress.poll(), Instant::now(), false);
    // (A thread that has not come to its first line has ended, if it could not.)
    while !is_over.load(Ordering::Acquire) && !thread.is_finished() {
        thread::park_timeout(LOOK);
        let now = progress.poll();
        if now.as_ref().map(|it| it.nth) != last.as_ref().map(|it| it.nth) {
            (last, since, is_told) = (now, Instant::now(), false);
            continue;
        }
        let Some(poll) = &last else {
            continue;
        };
        let lasted = since.elapsed();
        if limit.is_some_and(|limit| lasted >= limit) {
            say(&format!(
                "{}\n  It ends the program, since nothing ends a thread. POLDER_SIM_STUCK sets after how many \
                 seconds; 0: never.\n  replay: POLDER_SEED={seed:#x}\n",
                words(seed, poll, lasted)
            ));
            process::exit(FAILED);
        }
        if lasted >= REPORT && !is_told {
            say(&format!("{}\n", words(seed, poll, lasted)));
            is_told = true;
        }
    }
}

fn words(seed: u64, poll: &Poll, lasted: Duration) -> String {
    format!(
        "polder::sim: seed {seed:#x} is stuck at {}: for {} s now a poll has not returned, of the task \
         spawned at {}, on the host {:?}",
        Seconds(poll.at),
        lasted.as_secs(),
        poll.site,
        poll.host
    )
}

/// Not by `eprint!`, which the harness keeps until the test has ended.
fn say(words: &str) {
    let _ = std::io::stderr().write_all(words.as_bytes());
}
