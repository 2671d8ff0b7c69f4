//! The counters of a worker's activity.
//!
//! Each is written only by the worker's own thread, with a plain load and store. A reader sees a
//! recent value of each, but not of several at the same moment.

// Not loom's: only `Counters::task` depends on their order, and its test steps through that.
use std::panic::Location;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::trace::{Mark, Ring};

/// One poll in this many is timed, so that the two clock readings cost each poll a nanosecond.
pub(crate) const SAMPLE: usize = 64;

/// Buckets of a histogram: up to 1, 2, 4, … 2^20 microseconds (about a second), and above.
pub(crate) const BUCKETS: usize = 22;

/// Replaces a task's id while the future of `block_on` is polled. No task has it.
pub(crate) const MAIN_FUTURE: u64 = u64::MAX;

/// Written by one thread.
#[derive(Default)]
pub(crate) struct Counter(AtomicUsize);

impl Counter {
    #[inline]
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Called only by the counting thread.
    #[inline]
    pub(crate) fn add(&self, count: usize) {
        self.set(self.get().wrapping_add(count));
    }

    /// Called only by the counting thread. Releases its earlier writes: see [`Counters::task`].
    #[inline]
    pub(crate) fn set(&self, count: usize) {
        self.0.store(count, Ordering::Release);
    }
}

/// Durations, in buckets by powers of two, counted by one thread.
#[derive(Default)]
pub(crate) struct Histogram {
    pub(crate) buckets: [Counter; BUCKETS],
    pub(crate) nanoseconds: AtomicU64,
}

impl Histogram {
    /// Called only by the counting thread.
    pub(crate) fn record(&self, duration: Duration) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanoseconds)].add(1);
        let sum = self.nanoseconds.load(Ordering::Relaxed);
        let sum = sum.saturating_add(nanoseconds);
        self.nanoseconds.store(sum, Ordering::Relaxed);
    }
}

/// The bucket at `index` ends at 2^index microseconds.
fn bucket(nanoseconds: u64) -> usize {
    let whole = nanoseconds.saturating_sub(1) / 1_000;
    let bits = u64::BITS - whole.leading_zeros();
    (bits as usize).min(BUCKETS - 1)
}

/// The counters of a worker. Aligned, since only its thread writes them.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    /// Includes the last run of a cancelled task.
    pub(crate) polls: Counter,
    /// Polls of futures of `block_on`, and calls that drive the worker, except a simulated worker's
    /// steps.
    pub(crate) main_polls: Counter,
    /// The id of the running task, or [`MAIN_FUTURE`], or zero.
    task: AtomicU64,
    /// Of that task, or of the previous one.
    site: AtomicPtr<Location<'static>>,
    /// When the worker last read the clock: see [`clock::jiffy`](crate::clock::jiffy).
    jiffy: AtomicU32,
    /// Notifications by other threads while it was parked.
    pub(crate) notified: Counter,
    pub(crate) parks: Counter,
    pub(crate) events: Counter,
    pub(crate) timer_lateness: Histogram,
    pub(crate) budget_exhausted: Counter,
    /// Stealable tasks that another thread has woken and this worker has taken.
    pub(crate) remote_wakes: Counter,
    pub(crate) stolen: Counter,
    /// The largest number of ready tasks at the timed polls.
    pub(crate) longest_queue: Counter,
    /// Durations of one poll in [`SAMPLE`].
    pub(crate) poll_times: Histogram,
    trace: OnceLock<Ring>,
}

impl Counters {
    /// Called before the worker starts.
    pub(crate) fn set_trace(&self, trace: Ring) {
        let set = self.trace.set(trace);
        debug_assert!(set.is_ok(), "a runtime is traced once");
    }

    /// Written on the worker's thread.
    #[inline]
    pub(crate) fn trace(&self) -> Option<&Ring> {
        self.trace.get()
    }

    /// Called on the worker's thread.
    #[inline]
    pub(crate) fn set_task(&self, id: u64, site: &'static Location<'static>) {
        // A reader that sees this site also sees the count of polls, which was written before.
        (self.site).store(ptr::from_ref(site).cast_mut(), Ordering::Release);
        self.task.store(id, Ordering::Release);
    }

    /// Called before a future of `block_on` is polled, on the worker's thread.
    #[inline]
    pub(crate) fn begin_main_poll(&self, site: &'static Location<'static>) {
        self.main_polls.add(1);
        self.set_task(MAIN_FUTURE, site);
    }

    /// Called when a call drives the worker, maybe within a poll, which counts as another one when
    /// it is [restored](Self::restore_task). On the worker's thread.
    pub(crate) fn begin_drive(&self) {
        self.main_polls.add(1);
        self.reset_task();
    }

    /// Called on the worker's thread.
    #[inline]
    pub(crate) fn reset_task(&self) {
        self.task.store(0, Ordering::Release);
    }

    /// Restores the result of [`task`](Self::task), on the worker's thread.
    pub(crate) fn restore_task(&self, task: Option<(u64, &'static Location<'static>)>) {
        self.reset_task();
        if let Some((id, site)) = task {
            self.set_task(id, site);
        }
    }

    /// Returns the running task and its spawn site. `None` if no task runs, or another one has
    /// started meanwhile.
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
        // The site belongs to this task if no other poll has begun: a reader that sees what the
        // next poll has written also sees its count. (An unchanged id is not enough: the first task
        // may run again after the next one.)
        let is_same = id != 0 && self.task.load(Ordering::Acquire) == id && polls() == before;
        // SAFETY: null, or from `set_task`, which made it by `ptr::from_ref` of a `'static`
        // location, which borrows nothing from the Runnable.
        let site = unsafe { site.as_ref() };
        site.filter(|_| is_same).map(|site| (id, site))
    }

    /// Called on the worker's thread.
    #[inline]
    pub(crate) fn set_jiffy(&self, jiffy: u32) {
        self.jiffy.store(jiffy, Ordering::Relaxed);
    }

    /// Returns the jiffy in which the worker last read the clock.
    #[inline]
    pub(crate) fn jiffy(&self) -> u32 {
        self.jiffy.load(Ordering::Relaxed)
    }

    /// Costs less than the timer's wake.
    pub(crate) fn count_fired(&self, late: Duration) {
        self.timer_lateness.record(late);
        if let Some(trace) = self.trace() {
            trace.push(Mark::TimerFired(late));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Between the reads of another thread the next task is polled, and the first one again.
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
    fn bucket_ends_at_power_of_two_us() {
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
