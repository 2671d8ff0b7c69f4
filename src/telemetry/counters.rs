//! Counters of what a worker has done, for any reader.
//!
//! Each counter is written only by the worker's own thread, with a plain load and store, and may be
//! read by any thread. A reader sees a recent value of each counter, but not several counters at
//! the same moment. The clock is read only for one poll in [`SAMPLE`].
//!
//! (The workers of a pool drive one reactor, and each counts what it does there: the counters
//! belong to the [`Driver`](crate::reactor::Driver), and not to the reactor that is driven.)

// Only `Counters::task` depends on their order, and its test steps through that. So they are not
// loom's.
use std::panic::Location;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::trace::Mark;
use super::trace_ring::Ring;

/// One poll in this many is timed: then the two clock readings cost each poll a nanosecond.
pub(crate) const SAMPLE: usize = 64;

/// Buckets of a histogram: up to one microsecond, up to two, up to four, …; the last one holds
/// everything beyond 2^20 microseconds, about a second, and has no limit.
pub(crate) const BUCKETS: usize = 22;

/// Shown in place of a task's id while the future of `block_on` is polled. No task has this id.
pub(crate) const MAIN_FUTURE: u64 = u64::MAX;

/// A counter written by one thread.
#[derive(Default)]
pub(crate) struct Counter(AtomicUsize);

impl Counter {
    #[inline]
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds `count`. For the counting thread only.
    #[inline]
    pub(crate) fn add(&self, count: usize) {
        self.set(self.get().wrapping_add(count));
    }

    /// Sets the count. For the counting thread only. (Releases what this thread has written before:
    /// see [`Counters::task`].)
    #[inline]
    pub(crate) fn set(&self, count: usize) {
        self.0.store(count, Ordering::Release);
    }
}

/// Durations, in buckets by powers of two, as one thread counts them.
#[derive(Default)]
pub(crate) struct Histogram {
    pub(crate) buckets: [Counter; BUCKETS],
    /// The sum of the durations.
    pub(crate) nanoseconds: AtomicU64,
}

impl Histogram {
    /// Records a duration. For the counting thread only.
    pub(crate) fn record(&self, duration: Duration) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanoseconds)].add(1);
        let sum = self.nanoseconds.load(Ordering::Relaxed);
        let sum = sum.saturating_add(nanoseconds);
        self.nanoseconds.store(sum, Ordering::Relaxed);
    }
}

/// Returns the bucket of a duration: the one at `index` ends at 2^index microseconds.
fn bucket(nanoseconds: u64) -> usize {
    let whole = nanoseconds.saturating_sub(1) / 1_000;
    let bits = u64::BITS - whole.leading_zeros();
    (bits as usize).min(BUCKETS - 1)
}

/// Counters of one worker. On its own cache lines, since only its thread writes them.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    /// Number of task runs: polls, and the last run of a cancelled task.
    pub(crate) polls: Counter,
    /// Polls of the futures of `block_on`, and calls that drive the worker, except for the steps of
    /// a simulated worker.
    pub(crate) main_polls: Counter,
    /// The id of the running task, or [`MAIN_FUTURE`], or zero.
    task: AtomicU64,
    /// The spawn location of that task, or of the one before it.
    site: AtomicPtr<Location<'static>>,
    /// When the worker last read the clock: see [`clock::tick`](crate::clock::tick).
    tick: AtomicU32,
    /// How often another thread notified it while it was parked.
    pub(crate) notified: Counter,
    /// How often it parked in order to sleep.
    pub(crate) parks: Counter,
    /// Number of events reported by the kernel.
    pub(crate) events: Counter,
    pub(crate) timers_fired: Counter,
    /// How long after its deadline each timer fired.
    pub(crate) timer_lateness: Histogram,
    /// How often a task was refused an operation because its budget was used up.
    pub(crate) budget_exhausted: Counter,
    /// Number of stealable tasks that another thread has woken, and this worker has taken.
    pub(crate) remote_wakes: Counter,
    /// Number of tasks stolen from other workers.
    pub(crate) stolen: Counter,
    /// The largest number of ready tasks, as seen at the polls that were timed.
    pub(crate) longest_queue: Counter,
    /// Durations of one poll in [`SAMPLE`].
    pub(crate) poll_times: Histogram,
    /// Its trace events, if tracing is on.
    trace: OnceLock<Ring>,
}

impl Counters {
    /// Sets where its trace events are kept, before the worker starts.
    pub(crate) fn set_trace(&self, trace: Ring) {
        let set = self.trace.set(trace);
        debug_assert!(set.is_ok(), "a runtime is traced once");
    }

    /// Returns where its trace events are kept, if tracing is on. Written on the worker's thread.
    #[inline]
    pub(crate) fn trace(&self) -> Option<&Ring> {
        self.trace.get()
    }

    /// Marks that a task starts to run. On the worker's thread.
    #[inline]
    pub(crate) fn set_task(&self, id: u64, site: &'static Location<'static>) {
        // A reader that sees this site also sees what was written before it, the count of polls.
        (self.site).store(ptr::from_ref(site).cast_mut(), Ordering::Release);
        self.task.store(id, Ordering::Release);
    }

    /// Marks that a future of `block_on` is about to be polled. On the worker's thread.
    #[inline]
    pub(crate) fn begin_main_poll(&self, site: &'static Location<'static>) {
        self.main_polls.add(1);
        self.set_task(MAIN_FUTURE, site);
    }

    /// Marks that a call drives the worker, maybe within a poll. That poll then counts as another
    /// one, even when it is [restored](Self::restore_task). On the worker's thread.
    pub(crate) fn begin_drive(&self) {
        self.main_polls.add(1);
        self.reset_task();
    }

    /// Marks that no task runs. On the worker's thread.
    #[inline]
    pub(crate) fn reset_task(&self) {
        self.task.store(0, Ordering::Release);
    }

    /// Restores the task that [`task`](Self::task) has returned. On the worker's thread.
    pub(crate) fn restore_task(&self, task: Option<(u64, &'static Location<'static>)>) {
        self.reset_task();
        if let Some((id, site)) = task {
            self.set_task(id, site);
        }
    }

    /// Returns the running task and where it was spawned. `None` if no task runs, or another one
    /// has started meanwhile.
    pub(crate) fn task(&self) -> Option<(u64, &'static Location<'static>)> {
        self.read_task(|| ())
    }

    /// [`task`](Self::task), which calls `between` before and after the site is read.
    #[inline(always)]
    fn read_task(&self, between: impl Fn()) -> Option<(u64, &'static Location<'static>)> {
        let polls = || {
            let count = |counter: &Counter| counter.0.load(Ordering::Acquire);
            [count(&self.polls), count(&self.main_polls)]
        };
        let before = polls();
        let id = self.task.load(Ordering::Acquire);
        between();
        let site = self.site.load(Ordering::Acquire);
        between();
        // The site belongs to this task if no other poll has begun meanwhile. A reader that sees
        // what the next poll has written sees that it was counted before. (Another id would show
        // the same, but not if the next task runs once more, and so has the id of the first.)
        let is_same = id != 0 && self.task.load(Ordering::Acquire) == id && polls() == before;
        // SAFETY: null, or what `set_task` was given, of which all are `'static`: it comes from
        // `ptr::from_ref`, and borrows nothing of the Runnable.
        let site = unsafe { site.as_ref() };
        site.filter(|_| is_same).map(|site| (id, site))
    }

    /// Records that the clock was read. On the worker's thread.
    #[inline]
    pub(crate) fn set_tick(&self, tick: u32) {
        self.tick.store(tick, Ordering::Relaxed);
    }

    /// Returns when the worker last read the clock.
    #[inline]
    pub(crate) fn tick(&self) -> u32 {
        self.tick.load(Ordering::Relaxed)
    }

    /// Counts a timer that fires this late. (Each time, its wake costs more than this.)
    pub(crate) fn count_fired(&self, late: Duration) {
        self.timers_fired.add(1);
        self.timer_lateness.record(late);
        if let Some(trace) = self.trace() {
            trace.push(Mark::TimerFired(late));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Two tasks that take turns: between the reads of another thread the next one is polled, and
    /// the first one again.
    #[test]
    fn a_task_is_not_read_with_the_site_of_another() {
        let sites = [Location::caller(), here()];
        let counters = Counters::default();
        let poll = |index: usize| {
            counters.reset_task();
            counters.polls.add(1);
            counters.set_task(1 + index as u64, sites[index]);
        };
        poll(0);
        assert_eq!(counters.task(), Some((1, sites[0])));
        let next = Cell::new(1);
        let read = counters.read_task(|| poll(next.replace(0)));
        assert_eq!(read, None);
    }

    #[track_caller]
    fn here() -> &'static Location<'static> {
        Location::caller()
    }

    #[test]
    fn a_bucket_ends_with_its_power_of_two_microseconds() {
        assert_eq!([0, 1, 1_000].map(bucket), [0, 0, 0]);
        assert_eq!([1_001, 2_000, 2_001, 4_000].map(bucket), [1, 1, 2, 2]);
        let second = 1_000 << 20;
        assert_eq!(bucket(second), BUCKETS - 2);
        assert_eq!([second + 1, u64::MAX].map(bucket), [BUCKETS - 1; 2]);
    }

    #[test]
    fn a_histogram_counts_and_sums() {
        let histogram = Histogram::default();
        histogram.record(Duration::from_micros(3));
        histogram.record(Duration::from_micros(4));
        histogram.record(Duration::MAX);
        let buckets = histogram.buckets.each_ref().map(Counter::get);
        assert_eq!((buckets[2], buckets[BUCKETS - 1]), (2, 1));
        assert_eq!(buckets.iter().sum::<usize>(), 3);
        assert_eq!(histogram.nanoseconds.into_inner(), u64::MAX);
    }
}
