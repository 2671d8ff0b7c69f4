//! What a worker has done, counted for whoever asks.
//!
//! Each counter is written by the worker's own thread only, by a plain load and a store, and may be
//! read by any. A reader sees each of them as it was not long ago, and several of them not at one
//! moment. No clock is read for any but one poll in [`SAMPLE`].
//!
//! (A worker that helps another one counts what it does as its own: the counters go with the
//! [`Driver`](super::Driver), and not with the reactor that is driven.)

// Nothing is synchronised by them, so loom has nothing to see in them.
use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::clock::tick;
use super::trace::{Recorder, What};

/// One poll of so many is timed: two readings of the clock then cost each poll a nanosecond.
pub(crate) const SAMPLE: usize = 64;

/// Buckets of a histogram: up to one microsecond, up to two, up to four; and the last one beyond
/// 2^20 of them, a second, which has no limit.
pub(crate) const BUCKETS: usize = 22;

/// Shown in place of a task's id while the future of `block_on` is polled. No task has it.
pub(crate) const MAIN_FUTURE: u64 = u64::MAX;

/// A number that one thread counts.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicUsize);

impl Counter {
    #[inline]
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// For the thread that counts.
    #[inline]
    pub(crate) fn add(&self, count: usize) {
        self.set(self.get().wrapping_add(count));
    }

    /// For the thread that counts.
    #[inline]
    pub(crate) fn set(&self, count: usize) {
        self.0.store(count, Ordering::Relaxed);
    }
}

/// How long something took, in powers of two, as one thread counts it.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    pub(crate) buckets: [Counter; BUCKETS],
    /// The sum.
    pub(crate) nanoseconds: AtomicU64,
}

impl Histogram {
    /// For the thread that counts.
    pub(crate) fn record(&self, duration: Duration) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanoseconds)].add(1);
        let sum = self.nanoseconds.load(Ordering::Relaxed);
        let sum = sum.saturating_add(nanoseconds);
        self.nanoseconds.store(sum, Ordering::Relaxed);
    }
}

/// The bucket of a duration: the one at `index` ends with 2^index microseconds.
fn bucket(nanoseconds: u64) -> usize {
    let whole = nanoseconds.saturating_sub(1) / 1_000;
    let bits = u64::BITS - whole.leading_zeros();
    (bits as usize).min(BUCKETS - 1)
}

/// What one worker has done. On cache lines of its own, since only its thread writes them.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    /// Runs of tasks: polls, and the last run of a cancelled one.
    pub(crate) polls: Counter,
    /// Polls of the futures of `block_on`, and calls that drive the worker, but for the
    /// steps of a simulated one.
    pub(crate) main_polls: Counter,
    /// The task that runs now, or [`MAIN_FUTURE`], or zero.
    task: AtomicU64,
    /// Where it, or the one before it, was spawned.
    site: AtomicPtr<Location<'static>>,
    /// When the worker last read the clock: see [`tick`].
    tick: AtomicU32,
    /// How often it was notified by another thread while it was parked.
    pub(crate) notified: Counter,
    /// How often it parked, to sleep.
    pub(crate) parks: Counter,
    /// What the kernel has reported.
    pub(crate) events: Counter,
    pub(crate) timers_fired: Counter,
    /// How long after its deadline each of these was fired.
    pub(crate) timer_lateness: Histogram,
    /// How often a task was refused an operation, since it had used up its budget.
    pub(crate) budget_exhausted: Counter,
    /// Tasks that it took from other workers.
    pub(crate) stolen: Counter,
    /// Ready tasks, at most, at the polls that were timed.
    pub(crate) longest_queue: Counter,
    /// Of one poll in [`SAMPLE`].
    pub(crate) poll_times: Histogram,
    /// Its last events, if they are wanted.
    trace: OnceLock<Arc<dyn Recorder>>,
}

impl Counters {
    /// Before the worker starts: its events are wanted.
    pub(crate) fn set_trace(&self, trace: Arc<dyn Recorder>) {
        let set = self.trace.set(trace);
        debug_assert!(set.is_ok(), "a runtime is traced once");
    }

    /// Where its events go, if they are wanted. Written on the worker's thread.
    #[inline]
    pub(crate) fn trace(&self) -> Option<&Arc<dyn Recorder>> {
        self.trace.get()
    }

    /// On the worker's thread: a task begins to run.
    #[inline]
    pub(crate) fn set_task(&self, id: u64, site: &'static Location<'static>) {
        // Whoever reads this place reads what was written before: that no task runs, or this one.
        (self.site).store(ptr::from_ref(site).cast_mut(), Ordering::Release);
        self.task.store(id, Ordering::Release);
    }

    /// On the worker's thread: a future of `block_on` is about to be polled.
    #[inline]
    pub(crate) fn begin_main_poll(&self, site: &'static Location<'static>) {
        self.main_polls.add(1);
        self.set_task(MAIN_FUTURE, site);
    }

    /// On the worker's thread: a call drives it, maybe within a poll: that counts as another one,
    /// also when it is [restored](Self::restore_task).
    pub(crate) fn begin_drive(&self) {
        self.main_polls.add(1);
        self.reset_task();
    }

    /// On the worker's thread: no task runs.
    #[inline]
    pub(crate) fn reset_task(&self) {
        self.task.store(0, Ordering::Release);
    }

    /// On the worker's thread: what [`task`](Self::task) returns, to be set again later.
    pub(crate) fn restore_task(&self, task: Option<(u64, &'static Location<'static>)>) {
        self.reset_task();
        if let Some((id, site)) = task {
            self.set_task(id, site);
        }
    }

    /// Which task runs now, and where it was spawned. `None` if none does, or another one began
    /// meanwhile.
    pub(crate) fn task(&self) -> Option<(u64, &'static Location<'static>)> {
        let id = self.task.load(Ordering::Acquire);
        let site = self.site.load(Ordering::Acquire);
        // The place is of this task: another one's is written after zero was written here, and an
        // id comes only with the place that belongs to it.
        let is_same = id != 0 && self.task.load(Ordering::Relaxed) == id;
        // SAFETY: null, or what `set_task` was given, of which all are `'static`: it comes from
        // `ptr::from_ref`, and borrows nothing of the Runnable.
        let site = unsafe { site.as_ref() };
        site.filter(|_| is_same).map(|site| (id, site))
    }

    /// On the worker's thread: the clock was read.
    #[inline]
    pub(crate) fn set_tick(&self, now: Instant) {
        self.tick.store(tick(now), Ordering::Relaxed);
    }

    /// [`set_tick`](Self::set_tick), where the tick is known.
    #[cfg(feature = "sim")]
    pub(crate) fn set_known_tick(&self, tick: u32) {
        self.tick.store(tick, Ordering::Relaxed);
    }

    /// When the worker has last read the clock.
    #[inline]
    pub(crate) fn tick(&self) -> u32 {
        self.tick.load(Ordering::Relaxed)
    }

    /// A timer is fired so late. (Each time, its wake costs more than this.)
    pub(super) fn count_fired(&self, late: Duration) {
        self.timers_fired.add(1);
        self.timer_lateness.record(late);
        if let Some(trace) = self.trace() {
            trace.push(What::TimerFired(late));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

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
