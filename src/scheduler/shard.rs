//! The shard of a pool: workers that share a poller, its lock, and a monitor.
//!
//! A shard has at most `Builder::workers_per_poller` workers. They register sources and timers with
//! one reactor, in whose poller one of them at a time waits: the one that holds the [`PollerLock`]
//! (see [`sleep`](super::sleep)). A source is registered with the shard of the worker that first
//! waits for it. It stays there for a stealable task, which any worker of the pool may wake. So
//! large pools do not share one table of sources and one kernel object. (With 64 workers on one
//! epoll, tokio measured 75 µs for a registration at the median, and with one epoll for each 8
//! workers 3 µs: <https://github.com/tokio-rs/tokio/pull/8450>.)
//!
//! # The monitor
//!
//! The monitor is one idle worker that periodically inspects those that are awake (Go: sysmon). A
//! worker that computes for long delays the tasks in its queue and, if it was its shard's leader,
//! the poller's events. So while one worker of a shard is awake and another one idle, an idle one,
//! the *monitor*, sleeps until its next [inspection](common_moment) at most. Then it records which
//! of the others are *stuck* (awake, and in the same poll as at the inspection before), steals, and
//! polls if the poller's lock is free. While all are awake, each polls between two turns, and
//! inspects the others as often.
//!
//! The monitor keeps its role until others have not worked for an interval, so that workers that
//! sleep only for moments need not wake each other for it.
//!
//! **How often.** In most programs no task computes. So the monitor inspects every
//! [`LONG_INTERVAL`], and every [`INTERVAL`] only after an inspection that has found a worker that
//! computes, until [`CALM`] in a row have found none ([`interval`](Monitor::interval)). An
//! inspection at a long interval that finds another worker awake is followed by one after a short
//! interval, which shows whether that worker is stuck. A stuck worker *computes* if its thread has
//! used the processor for half of the time since the inspection before, or has been stuck for a
//! long interval (as one that sleeps in a call). Where the system does not tell the processor
//! time, and of other shards' workers, each stuck one counts. On a busy machine workers are
//! preempted for a few milliseconds every few milliseconds, and look stuck; with frequent
//! inspections for these, too, HTTP on two workers took 8 % more CPU time (Intel Xeon, two cores,
//! 50 connections).
//!
//! **The mark** is the number of the worker that is the monitor. A follower keeps it rather than
//! the leader, which events wake: so the monitor sleeps from one inspection to the next. Without
//! another idle worker the leader is the monitor.
//!
//! **Why an idle worker watches while another is awake.** A worker that begins to work after a
//! sleep ([`begin_work`](Monitor::begin_work)) looks, after a fence, for the mark. If no other
//! worker has it, it passes the mark to an idle worker, which it wakes. If none is idle, it removes
//! the mark, and looks again, after another fence. (If the chosen one woke by itself, perhaps
//! before it had the mark, the mark is taken back and the choice restarts.) A worker that is about
//! to sleep parks, and then, after a fence, looks whether another one is awake, and if so, takes
//! the mark or sees that another one has it ([`try_acquire`](Monitor::try_acquire)). So one of the
//! two sees what the other wrote. A worker that was woken with the mark keeps it when it sleeps
//! again, or passes it on when it begins to work. A monitor removes its mark before it parks
//! without it. `loom` checks this below.
//!
//! The moment before `begin_work`, in which an awake worker has done nothing yet, is not covered.
//!
//! **A full shard**, in which no worker is idle, has no monitor of its own. The monitor of another
//! shard, or a worker of another shard between its turns, polls for it, unless another one has
//! within the last interval.
//!
//! A worker that begins to work has resumed, and then, after a fence, looks whether its shard has a
//! monitor, or an idle worker, which it makes the monitor. If it has neither, and no other shard
//! has a monitor, it wakes an idle worker elsewhere. A worker that is about to sleep has parked,
//! and then, after a fence, looks for a full shard; if there is one, it becomes the monitor, or
//! sees that another shard has one. So either the worker that makes a shard full sees the other one
//! parked, or that one sees the full shard. A monitor that begins to work, or falls asleep without
//! the mark, releases the mark before it looks. So of two monitors that do so at the same time, the
//! one that looks last sees that no shard has a monitor. `loom` checks this below.

use std::cell::Cell;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::clock::{now, since_start};
use crate::sync::atomic::{AtomicUsize, Ordering, fence};

/// Pool workers that share a reactor. Aligned, since they write it in each turn.
#[repr(align(128))]
pub(super) struct Shard {
    pub(super) workers: Range<usize>,
    pub(super) poller_lock: PollerLock,
    pub(super) monitor: Monitor,
}

impl Shard {
    pub(super) fn new(workers: Range<usize>) -> Shard {
        Shard {
            workers,
            poller_lock: PollerLock::default(),
            monitor: Monitor::default(),
        }
    }
}

/// Implemented by `Shared`, and by models.
pub(super) trait ShardedWorkers {
    fn shards(&self) -> &[Shard];

    fn shard(&self, index: usize) -> &Shard;

    fn is_parked(&self, index: usize) -> bool;

    /// A worker among these that is parked and was not woken yet.
    fn find_idle_of(&self, workers: Range<usize>) -> Option<usize>;

    /// Wakes a worker. Returns false if it is awake, or was woken by another thread.
    fn wake(&self, index: usize) -> bool;

    /// Returns whether there was an idle one.
    fn wake_idle_of(&self, workers: Range<usize>) -> bool {
        let idle = self.find_idle_of(workers);
        idle.map(|index| self.wake(index)).is_some()
    }

    fn other_full_shards(&self, index: usize) -> impl Iterator<Item = &Shard> {
        self.shards().iter().filter(move |shard| {
            let mut workers = shard.workers.clone();
            !shard.workers.contains(&index) && !workers.any(|worker| self.is_parked(worker))
        })
    }

    fn is_other_awake(&self, index: usize) -> bool {
        let mut workers = self.shard(index).workers.clone();
        workers.any(|other| other != index && !self.is_parked(other))
    }

    /// Whether the idle worker at `index` has others to inspect.
    fn needs_monitor(&self, index: usize) -> bool {
        let is_left_to_another = || {
            let mut others = self.shards().iter();
            others.any(|shard| !shard.workers.contains(&index) && shard.monitor.is_held())
        };
        self.is_other_awake(index)
            || self.other_full_shards(index).next().is_some() && !is_left_to_another()
    }

    /// Wakes an idle worker of another shard, to inspect the full shard of the worker at `index`,
    /// unless another shard has a monitor.
    fn wake_idle_elsewhere(&self, index: usize) {
        let mut shards = self.shards().iter();
        if !self.shards().iter().any(|shard| shard.monitor.is_held()) {
            shards.any(|shard| {
                !shard.workers.contains(&index) && self.wake_idle_of(shard.workers.clone())
            });
        }
    }
}

/// The right to wait in a shard's poller. Odd while held; each use adds two.
#[derive(Default)]
pub(super) struct PollerLock(AtomicUsize);

pub(super) struct PollerGuard<'a> {
    lock: &'a PollerLock,
    /// Whether its worker has parked the shard's reactor, and so resumes it. (In a simulated world
    /// it may be parked for another worker.)
    pub(super) has_parked_reactor: bool,
}

impl PollerLock {
    #[inline]
    pub(super) fn try_lock(&self) -> Option<PollerGuard<'_>> {
        let before = self.0.fetch_or(1, Ordering::Acquire);
        (before % 2 == 0).then(|| PollerGuard {
            lock: self,
            has_parked_reactor: false,
        })
    }

    pub(super) fn is_free(&self) -> bool {
        self.uses() % 2 == 0
    }

    /// Changes whenever the lock is taken or released.
    pub(super) fn uses(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl PollerGuard<'_> {
    /// Releases the lock on a thread of another shard, which will not try it again before it
    /// sleeps. A worker that has found the lock taken is parked, and `wake_idle` wakes an idle one;
    /// or it parks later, and then sees that the lock is free.
    pub(super) fn unlock_and_wake<R>(self, wake_idle: impl FnOnce() -> R) -> R {
        drop(self);
        fence(Ordering::SeqCst);
        wake_idle()
    }
}

impl Drop for PollerGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lock.0.fetch_add(1, Ordering::Release);
    }
}

/// The time between two inspections, after one has found a worker that computes. An event or a
/// timer that is due while all others compute is found within five quarters of this, and a task
/// behind a long poll within nine, since that poll may have begun just after an inspection. So
/// this, and the monitor's time to wake up, stay below a millisecond. (If the monitor itself begins
/// to work, the next one goes by its own inspections, and a task in the LIFO slot may wait for one
/// more interval.)
///
/// Each worker keeps the moment of its next inspection while it works or sleeps. If each sleep of a
/// monitor started a new interval, workers that are woken repeatedly, or that alternate as the
/// monitor, would never inspect.
///
/// Under Miri an inspection takes longer. Without a monitor ([`IS_ON`]) no test lasts as long.
const INTERVAL: Duration = if !IS_ON {
    Duration::from_secs(3_600)
} else if cfg!(miri) {
    Duration::from_millis(50)
} else {
    Duration::from_micros(350)
};

/// The time between two inspections otherwise. A timer that becomes due while all others compute
/// waits for this and a quarter of an [`INTERVAL`]; a task behind a long poll for an [`INTERVAL`]
/// more, less than 12 ms.
const LONG_INTERVAL: Duration = INTERVAL.saturating_mul(32);

/// The number of inspections in a row without a worker that computes after which they are rare
/// again: 11 ms, if others work all the time.
const CALM: usize = 32;

/// False with `--cfg polder_no_monitor`: a missing wake-up then hangs a test, where the monitor
/// would only make it a little late (`ci/no_monitor.sh`).
const IS_ON: bool = !cfg!(polder_no_monitor);

#[derive(Debug)]
pub(super) struct Monitor {
    /// The mark: the index of its worker plus one, or zero. Its worker removes it or passes it on.
    /// A thread that has passed it to a worker that was awake takes it back.
    mark: AtomicUsize,
    /// The number of inspections since one has found a worker that computes, at most [`CALM`]. A
    /// lost update at worst keeps inspections frequent for a little longer.
    calm: AtomicUsize,
}

/// Returns the time of the inspection that is due at `next`: a multiple of [`INTERVAL`], at most a
/// quarter of it later. Idempotent.
///
/// The workers of a busy server sleep and wake many times in an interval. As each monitor waits for
/// the same moment, the poller's timer is set once and not for each sleep. Setting it takes 4 to 11
/// µs in a virtual machine, where it traps (Intel Xeon, Linux 6.18): with a separate moment for
/// each sleep, HTTP on two workers took 10 to 20 % more CPU time.
pub(super) fn common_moment(next: Instant) -> Instant {
    let latest = next + INTERVAL / 4;
    let past = since_start(latest).as_nanos() as u64 % INTERVAL.as_nanos() as u64;
    latest - Duration::from_nanos(past)
}

impl Default for Monitor {
    fn default() -> Monitor {
        Monitor {
            mark: AtomicUsize::new(0),
            calm: AtomicUsize::new(CALM),
        }
    }
}

impl Monitor {
    pub(super) fn is_held(&self) -> bool {
        self.mark.load(Ordering::Relaxed) != 0
    }

    /// Whether the worker at `index` is the monitor. Exact on its thread, unless another one passes
    /// it the mark at that moment.
    #[inline]
    pub(super) fn is_held_by(&self, index: usize) -> bool {
        self.mark.load(Ordering::Relaxed) == index + 1
    }

    pub(super) fn interval(&self) -> Duration {
        if self.calm.load(Ordering::Relaxed) < CALM {
            INTERVAL
        } else {
            LONG_INTERVAL
        }
    }

    pub(super) fn count_inspection(&self, any_computes: bool) {
        let calm = self.calm.load(Ordering::Relaxed);
        let next = if any_computes { 0 } else { calm + 1 };
        if next <= CALM {
            self.calm.store(next, Ordering::Relaxed);
        }
    }

    /// Makes the worker at `index`, which has parked and is not the monitor, the monitor if there
    /// is none and others are awake, or it expects so. Returns whether it succeeded.
    pub(super) fn try_acquire(
        &self,
        index: usize,
        expects: bool,
        workers: &impl ShardedWorkers,
    ) -> bool {
        IS_ON && (expects || workers.needs_monitor(index)) && self.replace(0, index + 1)
    }

    pub(super) fn release(&self, index: usize) {
        self.replace(index + 1, 0);
    }

    /// Called when the worker at `index` begins to work after a sleep: makes an idle worker the
    /// monitor.
    #[inline]
    pub(super) fn begin_work(&self, index: usize, workers: &impl ShardedWorkers) {
        fence(Ordering::SeqCst);
        let mark = self.mark.load(Ordering::Relaxed);
        if IS_ON && (mark == 0 || mark == index + 1) {
            self.pass_on(mark, index, workers);
        }
    }

    /// Passes the mark from the worker at `index`, or from none, to an idle worker.
    #[cold]
    fn pass_on(&self, mark: usize, index: usize, workers: &impl ShardedWorkers) {
        let mut mark = mark;
        loop {
            let idle = workers.find_idle_of(workers.shard(index).workers.clone());
            match idle {
                Some(idle) => {
                    if !self.replace(mark, idle + 1) || workers.wake(idle) {
                        return;
                    }
                    mark = idle + 1;
                }
                // There was no mark before it looked, and it has found no idle worker.
                None if mark == 0 => break,
                None => {}
            }
            // From now on a worker that falls asleep sees that there is no monitor. One that fell
            // asleep before is found now.
            if !self.replace(mark, 0) {
                return;
            }
            mark = 0;
            fence(Ordering::SeqCst);
        }
        workers.wake_idle_elsewhere(index);
    }

    fn replace(&self, old: usize, new: usize) -> bool {
        (self.mark)
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    polls: usize,
    is_awake: bool,
    /// Whether it was awake, and in the same poll, at the inspection before. If that was long ago,
    /// a worker that has slept since may count as stuck, and lose its LIFO task to an idle one.
    is_stuck: bool,
    /// When an inspection first found it in this poll.
    since: Option<Instant>,
    /// The processor time of its thread, if it is awake and the system knows it.
    cpu_time: Option<Duration>,
}

/// A pool worker's view of the others. Accessed only by the worker's thread.
pub(super) struct Inspections {
    /// When the next inspection is due, unless another worker is the monitor. Short sleeps and
    /// turns do not move it, since it would otherwise never be due. (A new worker counts as having
    /// inspected: the others begin at the same time, and mostly sleep soon.)
    next: Cell<Instant>,
    /// Whether the next one is to show if a worker that the last one found awake is stuck.
    confirms: Cell<bool>,
    seen: Box<[Cell<Seen>]>,
    /// When the last inspection was.
    last: Cell<Instant>,
    /// The [uses](PollerLock::uses) of each shard's lock at the last visit.
    visited: Box<[Cell<usize>]>,
}

impl Inspections {
    pub(super) fn new(workers: usize, shards: usize) -> Inspections {
        Inspections {
            next: Cell::new(now() + LONG_INTERVAL),
            confirms: Cell::new(false),
            seen: vec![Cell::default(); workers].into(),
            last: Cell::new(now()),
            // An odd value, which no lock has that was never taken.
            visited: vec![Cell::new(usize::MAX); shards].into(),
        }
    }

    /// Returns when the next one is due: soon, if another worker has found one that
    /// computes since.
    pub(super) fn next(&self, now: Instant, monitor: &Monitor) -> Instant {
        let next = self.next.get().min(now + monitor.interval());
        self.next.set(next);
        next
    }

    pub(super) fn set_next(&self, next: Instant) {
        self.next.set(next);
    }

    /// Records what an inspection at `now` finds of a worker. Returns whether it is stuck, and
    /// whether it computes: so it does if the system does not know its processor time.
    pub(super) fn inspect(
        &self,
        worker: usize,
        now: Instant,
        polls: usize,
        is_awake: bool,
        cpu_time: Option<Duration>,
    ) -> (bool, bool) {
        let before = self.seen[worker].get();
        let is_stuck = is_awake && before.is_awake && before.polls == polls;
        let since = before.since.filter(|_| is_stuck).unwrap_or(now);
        self.seen[worker].set(Seen {
            polls,
            is_awake,
            is_stuck,
            since: Some(since),
            cpu_time,
        });
        let has_used_half = match (before.cpu_time, cpu_time) {
            (Some(before), Some(cpu_time)) => {
                cpu_time.saturating_sub(before) * 2
                    >= now.saturating_duration_since(self.last.get())
            }
            _ => true,
        };
        // Found stuck twice: after one gap it may have slept meanwhile, or this worker is late.
        let is_long = before.is_stuck && now.saturating_duration_since(since) >= LONG_INTERVAL;
        (is_stuck, is_stuck && (has_used_half || is_long))
    }

    /// Ends an inspection. If it `is_unsure` whether a worker is stuck, the next one follows after
    /// a short interval, unless this one did so for the same reason.
    pub(super) fn end(&self, now: Instant, monitor: &Monitor, is_unsure: bool) {
        self.last.set(now);
        let confirms = is_unsure && !self.confirms.get();
        self.confirms.set(confirms);
        let interval = if confirms {
            INTERVAL
        } else {
            monitor.interval()
        };
        self.next.set(now + interval);
    }

    /// Whether a worker that has made `polls` polls has made one since the last inspection.
    pub(super) fn has_polled(&self, worker: usize, polls: usize) -> bool {
        self.seen[worker].get().polls != polls
    }

    /// Whether the last inspection has found a worker stuck, which has polled no task since.
    pub(super) fn is_stuck(&self, worker: usize, polls: usize) -> bool {
        self.seen[worker].get().is_stuck && !self.has_polled(worker, polls)
    }

    /// Records a visit of a shard. Returns whether its poller's lock was used since the last one.
    pub(super) fn visit(&self, shard: usize, uses: usize) -> bool {
        self.visited[shard].replace(uses) != uses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Workers {
        shards: [Shard; 1],
        are_awake: bool,
        woken: Cell<usize>,
    }

    impl Workers {
        fn new(are_awake: bool) -> Workers {
            Workers {
                shards: [Shard::new(0..2)],
                are_awake,
                woken: Cell::default(),
            }
        }
    }

    impl ShardedWorkers for Workers {
        fn shards(&self) -> &[Shard] {
            &self.shards
        }

        fn shard(&self, _: usize) -> &Shard {
            &self.shards[0]
        }

        fn is_parked(&self, _: usize) -> bool {
            !self.are_awake
        }

        fn find_idle_of(&self, _: Range<usize>) -> Option<usize> {
            (!self.are_awake).then_some(1)
        }

        fn wake(&self, _: usize) -> bool {
            self.woken.set(self.woken.get() + 1);
            true
        }
    }

    /// One idle worker inspects while another one is awake, or expected to be.
    #[test]
    fn one_idle_worker_monitors_awake_ones() {
        for (are_awake, expects) in [(true, false), (false, true)] {
            let workers = Workers::new(are_awake);
            let monitor = &workers.shards[0].monitor;
            assert!(monitor.try_acquire(0, expects, &workers));
            assert!(!monitor.try_acquire(1, expects, &workers), "there is one");
            monitor.release(1);
            assert!(monitor.is_held_by(0), "it is not that one's");
            monitor.release(0);
            assert!(monitor.try_acquire(1, expects, &workers));
        }
        let asleep = Workers::new(false);
        assert!(!asleep.shards[0].monitor.try_acquire(0, false, &asleep));
    }

    /// Workers that fall asleep within an interval inspect at the same moment.
    #[test]
    fn inspections_of_sleepers_coincide() {
        let start = now();
        let mut moments = Vec::new();
        for hundredths in 0..400 {
            let now = start + INTERVAL * hundredths / 100;
            let next = common_moment(now + INTERVAL);
            assert_eq!(next, common_moment(next), "it stays the same");
            let wait = next - now;
            assert!(wait > INTERVAL / 4 && wait <= INTERVAL * 5 / 4, "{wait:?}");
            moments.push(next);
        }
        assert!(moments.is_sorted());
        moments.dedup();
        assert!(moments.len() <= 5, "in four intervals: {moments:?}");
    }

    /// A new worker does not inspect immediately, while the others begin.
    #[test]
    fn new_worker_inspects_after_an_interval() {
        let (start, monitor) = (now(), Monitor::default());
        let inspections = Inspections::new(2, 1);
        let next = inspections.next(now(), &monitor);
        assert!(next >= start + monitor.interval());
    }

    /// A worker that is preempted for a moment is stuck and does not compute.
    #[test]
    fn stuck_worker_computes_by_its_processor_time() {
        let inspections = Inspections::new(1, 1);
        let monitor = Monitor::default();
        let (mut at, mut used) = (now(), Duration::ZERO);
        let mut inspect = |uses: Option<Duration>| {
            at += INTERVAL;
            used += uses.unwrap_or_default();
            let found = inspections.inspect(0, at, 1, true, uses.map(|_| used));
            inspections.end(at, &monitor, false);
            found
        };
        assert_eq!(inspect(Some(INTERVAL)), (false, false), "seen once");
        assert_eq!(inspect(Some(INTERVAL)), (true, true));
        assert_eq!(inspect(Some(INTERVAL / 2)), (true, true));
        assert_eq!(inspect(Some(INTERVAL / 3)), (true, false));
        assert_eq!(inspect(Some(Duration::ZERO)), (true, false));
        assert_eq!(inspect(None), (true, true), "the system does not know");
        inspect(Some(Duration::ZERO));
        let inspections = LONG_INTERVAL.as_nanos() / INTERVAL.as_nanos();
        let found: Vec<_> = (0..inspections)
            .map(|_| inspect(Some(Duration::ZERO)))
            .collect();
        assert_eq!(found[0], (true, false));
        assert_eq!(found.last(), Some(&(true, true)), "it sleeps in a call");
    }

    /// Inspections are frequent until many in a row have found no worker that computes.
    #[test]
    fn inspections_slow_down_when_none_computes() {
        let monitor = Monitor::default();
        assert_eq!(monitor.interval(), LONG_INTERVAL, "nobody has computed");
        for _ in 0..2 {
            monitor.count_inspection(true);
            for _ in 0..CALM {
                assert_eq!(monitor.interval(), INTERVAL);
                monitor.count_inspection(false);
            }
            assert_eq!(monitor.interval(), LONG_INTERVAL);
            monitor.count_inspection(false);
            assert_eq!(monitor.interval(), LONG_INTERVAL);
        }
    }

    /// A worker that begins to work wakes an idle one, unless one inspects already.
    #[test]
    fn starting_worker_wakes_monitor_if_none() {
        let mut workers = Workers::new(false);
        workers.shards[0].monitor.begin_work(0, &workers);
        assert_eq!(workers.woken.get(), 1);
        assert!(workers.shards[0].monitor.is_held_by(1), "it has the mark");
        workers.shards[0].monitor.begin_work(0, &workers);
        assert_eq!(workers.woken.get(), 1, "one watches");
        workers.shards[0].monitor.begin_work(1, &workers);
        assert_eq!(workers.woken.get(), 2, "the monitor begins to work");
        workers.are_awake = true;
        workers.shards[0].monitor.begin_work(1, &workers);
        assert!(!workers.shards[0].monitor.is_held(), "nobody is idle");
    }

    #[test]
    fn a_lock_is_taken_once_and_counts_its_uses() {
        let lock = PollerLock::default();
        let mut seen = vec![lock.uses()];
        for _ in 0..2 {
            assert!(lock.is_free());
            let taken = lock.try_lock().unwrap();
            assert!(!lock.is_free() && lock.try_lock().is_none());
            seen.push(lock.uses());
            drop(taken);
            seen.push(lock.uses());
        }
        let count = seen.len();
        seen.dedup();
        assert_eq!(seen.len(), count, "{seen:?}");
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::reactor::Parker;
    use loom::sync::Arc;
    use std::ops::Range;

    /// Workers that go to sleep and begin to work, without work, inspections and pollers.
    struct Model {
        shards: Vec<Shard>,
        workers: Vec<Worker>,
    }

    struct Worker {
        parker: Parker<()>,
    }

    impl ShardedWorkers for Model {
        fn shards(&self) -> &[Shard] {
            &self.shards
        }

        fn shard(&self, index: usize) -> &Shard {
            &self.shards[index / self.shards[0].workers.len()]
        }

        fn is_parked(&self, index: usize) -> bool {
            self.workers[index].parker.is_parked()
        }

        fn find_idle_of(&self, mut workers: Range<usize>) -> Option<usize> {
            workers.find(|&index| self.is_parked(index))
        }

        fn wake(&self, index: usize) -> bool {
            self.workers[index].parker.set_attention()
        }
    }

    impl Model {
        fn new(shards: &[usize]) -> Arc<Model> {
            let worker = || Worker {
                parker: Parker::default(),
            };
            Arc::new(Model {
                workers: (0..shards.iter().sum()).map(|_| worker()).collect(),
                shards: (shards.iter())
                    .scan(0, |start, count| {
                        let workers = *start..*start + count;
                        *start = workers.end;
                        Some(Shard::new(workers))
                    })
                    .collect(),
            })
        }

        fn sleep(&self, index: usize) {
            let monitor = &self.shard(index).monitor;
            monitor.release(index);
            self.workers[index].parker.park();
            monitor.try_acquire(index, false, self);
        }

        fn wake_up(&self, index: usize) {
            self.workers[index].parker.resume();
            self.shard(index).monitor.begin_work(index, self);
        }

        fn sleep_if_woken(&self, index: usize) {
            if !self.is_parked(index) {
                self.workers[index].parker.resume();
                self.workers[index].parker.park();
                let monitor = &self.shard(index).monitor;
                if !monitor.is_held_by(index) {
                    monitor.try_acquire(index, false, self);
                }
            }
        }

        /// Whether a worker is awake, and all idle ones sleep without a limit. A worker that was
        /// woken with the mark is about to see it.
        fn is_unwatched(&self) -> bool {
            let is_parked = |index: &usize| self.is_parked(*index);
            let (idle, awake): (Vec<_>, Vec<_>) = (0..self.workers.len()).partition(is_parked);
            let watches = |index: usize| {
                !self.workers[index].parker.is_awake()
                    && self.shard(index).monitor.is_held_by(index)
            };
            !awake.is_empty() && !idle.is_empty() && !(0..self.workers.len()).any(watches)
        }
    }

    fn wake_up_while(world: &Arc<Model>, other: fn(&Model)) {
        wake_up_of_while(0, world, other);
    }

    fn wake_up_of_while(index: usize, world: &Arc<Model>, other: fn(&Model)) {
        let other = {
            let world = world.clone();
            loom::thread::spawn(move || other(&world))
        };
        world.wake_up(index);
        other.join().unwrap();
        assert!(!world.is_unwatched());
    }

    fn check(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    /// No worker begins to work unwatched while another one falls asleep.
    #[test]
    fn work_begins_while_other_sleeps_is_watched() {
        check(|| {
            let world = Model::new(&[2]);
            world.sleep(0);
            wake_up_while(&world, |world| world.sleep(1));
        });
    }

    /// A monitor that begins to work leaves the others to another idle worker.
    #[test]
    fn monitor_starting_work_hands_over() {
        check(|| {
            let world = Model::new(&[3]);
            world.sleep(0);
            assert!(world.shards[0].monitor.is_held_by(0));
            wake_up_while(&world, |world| world.sleep(1));
        });
    }

    /// Two workers that begin to work at the same time are watched by the third.
    #[test]
    fn two_starting_workers_watched_by_third() {
        check(|| {
            let world = Model::new(&[3]);
            for index in 0..3 {
                world.sleep(index);
            }
            wake_up_while(&world, |world| world.wake_up(1));
        });
    }

    /// A worker that is woken to inspect does so when it sleeps again.
    ///
    /// It is woken with the mark, and has nothing to do.
    #[test]
    fn worker_woken_to_monitor_does_on_sleep() {
        check(|| {
            let world = Model::new(&[3]);
            for index in 0..3 {
                world.sleep(index);
            }
            wake_up_while(&world, |world| {
                world.sleep_if_woken(1);
                world.sleep_if_woken(1);
            });
            world.sleep_if_woken(1);
            assert!(!world.is_unwatched());
        });
    }

    #[test]
    fn a_full_shard_is_watched_by_another_one() {
        check(|| {
            let world = Model::new(&[1, 1]);
            world.sleep(0);
            wake_up_while(&world, |world| world.sleep(1));
        });
    }

    /// A shard that two workers fill at the same time is watched by a third one.
    #[test]
    fn shard_filled_by_two_workers_watched_by_third() {
        check(|| {
            let world = Model::new(&[2, 1]);
            for index in 0..3 {
                world.sleep(index);
            }
            wake_up_while(&world, |world| world.wake_up(1));
        });
    }

    /// A full shard keeps a monitor where one leaves it to another.
    ///
    /// The third shard's worker falls asleep and leaves it to another shard's monitor, which begins
    /// to work.
    #[test]
    fn full_shard_keeps_its_monitor() {
        check(|| {
            let world = Model::new(&[1, 1, 1]);
            world.sleep(1);
            wake_up_of_while(1, &world, |world| world.sleep(2));
        });
        check(|| {
            let world = Model::new(&[1, 1, 1]);
            world.sleep(1);
            world.sleep(2);
            wake_up_of_while(0, &world, |world| world.sleep(2));
            assert!(!world.is_unwatched());
        });
    }
}
