//! The shard of a pool, and the sleep of its workers: as its leader, or as a follower.
//!
//! A shard has at most `Builder::workers_per_poller` workers. They register sources and timers with
//! one reactor. A source is registered with the shard of the worker that first waits for it. It
//! stays there for a stealable task, which any worker of the pool may wake. So large pools do not
//! share one table of sources and one kernel object. (With 64 workers on one epoll, tokio measured
//! 75 µs for a registration at the median, and with one epoll for each 8 workers 3 µs:
//! <https://github.com/tokio-rs/tokio/pull/8450>.)
//!
//! A worker holds the shard's [`PollerLock`] while it waits in the reactor's poller, and releases
//! it before a foreign waker is called or a task runs. The lock is only ever tried. An idle worker
//! that gets it is the *leader*: it sleeps in the poller. Any other idle worker is a *follower*: it
//! sleeps until it is notified.
//!
//! **Why the poller is never left alone** while all sleep. A worker tries the lock before it parks.
//! It fails only if another worker holds the lock: the leader, or one that is awake and will try
//! the lock before it sleeps. So the last one that falls asleep leads, unless another does. (Some
//! holders do not try it again: see [`fall_asleep`](Sleeper::fall_asleep).)
//!
//! **The exception.** A worker that was woken and has found nothing to do leaves the lock to a
//! worker of its shard that is awake, and that polls between its turns; otherwise it would lead,
//! and the next event would wake it, although the other one would have found that event. If all
//! were woken, each parks, then looks for one that is awake. The last to park sees none, and stays
//! awake to try the lock. If the one that is awake computes or blocks, and does not return to its
//! loop, the [monitor](super::monitor) wakes a worker, which tries the lock. `loom` checks this
//! below.

use std::cell::Cell;
use std::ops::Range;

use crate::sync::ThreadSignal;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use crate::sys::Process;

/// Pool workers that share a reactor. Aligned, since they write it in each turn.
#[repr(align(128))]
pub(super) struct Shard {
    pub(super) workers: Range<usize>,
    pub(super) poller_lock: PollerLock,
    /// Whether the [monitor](super::monitor) wants it to be polled. Removed by the worker that
    /// will.
    pub(super) is_neglected: AtomicBool,
}

impl Shard {
    pub(super) fn new(workers: Range<usize>) -> Shard {
        Shard {
            workers,
            poller_lock: PollerLock::default(),
            is_neglected: AtomicBool::new(false),
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
    pub(super) fn unlock_and_wake(self, wake_idle: impl FnOnce()) {
        drop(self);
        fence(Ordering::SeqCst);
        wake_idle();
    }
}

impl Drop for PollerGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lock.0.fetch_add(1, Ordering::Release);
    }
}

pub(super) enum Sleep<'a> {
    /// Not in this turn: something has come, the lock has become free, or nobody else is awake to
    /// take it. With the lock, if this worker took it before it parked.
    StaysAwake(Option<PollerGuard<'a>>),
    Leads(PollerGuard<'a>),
    Follows,
}

/// Accessed only by the worker's thread.
#[derive(Default)]
pub(super) struct Sleeper {
    /// Whether it has worked since it last tried to sleep.
    is_working: Cell<bool>,
    /// Whether it was woken, and has done nothing since.
    pub(super) was_woken: Cell<bool>,
}

impl Sleeper {
    /// Called before the worker runs a task or a waker. After a sleep, ends the monitor's pause.
    #[inline]
    pub(super) fn begin_work(&self, pause: Option<&MonitorPause>) {
        if !self.is_working.get() {
            self.begin_work_after_sleep(pause);
        }
    }

    #[cold]
    fn begin_work_after_sleep(&self, pause: Option<&MonitorPause>) {
        self.is_working.set(true);
        self.was_woken.set(false);
        pause.inspect(|pause| pause.end());
    }

    /// Parks the worker, which has nothing to do, and decides how it sleeps: see the head.
    /// `park_and_look` is told whether the worker sleeps in the shard's poller next. It returns
    /// whether something was sent to the worker, or there are tasks that it can take.
    pub(super) fn fall_asleep<'a>(
        &self,
        shard: &'a Shard,
        index: usize,
        is_parked: impl Fn(usize) -> bool,
        park_and_look: impl FnOnce(bool) -> bool,
    ) -> Sleep<'a> {
        let lock = &shard.poller_lock;
        let is_other_awake = || {
            let mut workers = shard.workers.clone();
            workers.any(|other| other != index && !is_parked(other))
        };
        self.is_working.set(false);
        // A hint. The look after parking, which is a fence, decides.
        let leaves_lock = self.was_woken.get() && is_other_awake();
        let taken = if leaves_lock { None } else { lock.try_lock() };
        if park_and_look(taken.is_some()) {
            return Sleep::StaysAwake(taken);
        }
        if leaves_lock && !is_other_awake() {
            self.was_woken.set(false);
            return Sleep::StaysAwake(None);
        }
        // The holder may not try again: a worker of another shard that helps, the main worker while
        // the runtime closes, or one of ours that was woken for nothing. Each has released the lock
        // before it looks for parked workers; so it sees this one, or this one sees the lock free.
        if taken.is_none() && !leaves_lock && lock.is_free() {
            return Sleep::StaysAwake(None);
        }
        taken.map_or(Sleep::Follows, Sleep::Leads)
    }
}

/// The pause of the [monitor](super::monitor) while all workers sleep.
///
/// **Why no worker works while it pauses.** The monitor writes `is_paused`, and then, after a
/// fence, looks whether a worker is awake. A worker that begins to work after a sleep has resumed,
/// and then, after a fence, reads `is_paused`. So one of the two sees what the other wrote. `loom`
/// checks this below. The moment before that, in which an awake worker has done nothing yet, is not
/// covered.
pub(crate) struct MonitorPause {
    is_paused: AtomicBool,
    /// Wakes the monitor from a pause, and from an interval.
    pub(super) signal: ThreadSignal,
    /// The monitor's. A child of `fork` has no such thread, and the signal's lock may be held.
    process: Process,
}

impl Default for MonitorPause {
    fn default() -> MonitorPause {
        MonitorPause {
            is_paused: AtomicBool::default(),
            signal: ThreadSignal::default(),
            process: Process::current(),
        }
    }
}

impl MonitorPause {
    pub(super) fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Relaxed)
    }

    /// Waits until a worker [begins to work](Sleeper::begin_work), unless one is awake. Called by
    /// the monitor.
    pub(super) fn wait(&self, is_any_awake: impl FnOnce() -> bool) {
        self.is_paused.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if is_any_awake() {
            self.is_paused.store(false, Ordering::Relaxed);
        }
        while self.is_paused() {
            self.signal.wait(None);
        }
    }

    /// Called after a worker has resumed, or a pool was added.
    pub(super) fn end(&self) {
        fence(Ordering::SeqCst);
        let is_paused = self.is_paused() && self.process.is_current();
        if is_paused && self.is_paused.swap(false, Ordering::Relaxed) {
            self.signal.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    use crate::reactor::{Parker, Wakeup};
    use loom::sync::Arc;

    /// Workers that fall asleep and wake up. Left out: their work and waits; so a model ends when
    /// all would sleep forever.
    struct Model {
        shard: Shard,
        workers: Vec<Worker>,
        tasks: AtomicUsize,
    }

    struct Worker {
        parker: Parker<()>,
        leads: AtomicBool,
    }

    struct Here<'a> {
        world: &'a Model,
        index: usize,
        sleeper: Sleeper,
        guard: Cell<Option<PollerGuard<'a>>>,
    }

    impl<'a> Here<'a> {
        fn new(world: &'a Model, index: usize) -> Here<'a> {
            Here {
                world,
                index,
                sleeper: Sleeper::default(),
                guard: Cell::new(None),
            }
        }

        fn sleep(&self) {
            let (world, index) = (self.world, self.index);
            let worker = &world.workers[index];
            let is_parked = |index| world.is_parked(index);
            let park =
                |_| worker.parker.park() != Wakeup::None || world.tasks.load(Ordering::Relaxed) > 0;
            loop {
                let sleep = self
                    .sleeper
                    .fall_asleep(&world.shard, index, is_parked, park);
                let leads = match sleep {
                    Sleep::StaysAwake(guard) => {
                        worker.parker.resume();
                        drop(guard);
                        world.tasks.store(0, Ordering::Relaxed);
                        continue;
                    }
                    Sleep::Leads(guard) => {
                        let mut others = world.workers.iter();
                        let leads = |other: &Worker| other.leads.load(Ordering::Relaxed);
                        assert!(!others.any(leads), "two hold the lock");
                        self.guard.set(Some(guard));
                        true
                    }
                    Sleep::Follows => false,
                };
                return worker.leads.store(leads, Ordering::Relaxed);
            }
        }

        fn wake_up(&self) {
            let worker = &self.world.workers[self.index];
            worker.leads.store(false, Ordering::Relaxed);
            if worker.parker.resume() == Wakeup::Notified {
                self.sleeper.was_woken.set(true);
            }
            drop(self.guard.take());
        }

        fn poll_from_outside(&self) {
            if let Some(guard) = self.world.shard.poller_lock.try_lock() {
                guard.unlock_and_wake(|| self.world.wake_idle());
            }
        }

        fn work(&self) {
            self.sleeper.begin_work(None);
        }

        fn sleep_if_woken(&self) {
            if !self.world.workers[self.index].parker.is_parked() {
                self.wake_up();
                self.sleep();
            }
        }
    }

    impl Model {
        fn new(workers: usize) -> Arc<Model> {
            Arc::new(Model {
                shard: Shard::new(0..workers),
                workers: (0..workers)
                    .map(|_| Worker {
                        parker: Parker::default(),
                        leads: AtomicBool::new(false),
                    })
                    .collect(),
                tasks: AtomicUsize::new(0),
            })
        }

        fn is_parked(&self, index: usize) -> bool {
            self.workers[index].parker.is_parked()
        }

        fn wake_idle(&self) {
            let mut workers = self.workers.iter();
            if let Some(worker) = workers.find(|worker| worker.parker.is_parked()) {
                worker.parker.set_attention();
            }
        }

        /// If all sleep or were woken, one of them waits in the poller, or will soon.
        fn assert_is_served(&self) {
            let will_come = |worker: &Worker| {
                !worker.parker.is_parked() || worker.leads.load(Ordering::Relaxed)
            };
            let mut workers = self.workers.iter();
            assert!(workers.any(will_come), "the poller is alone");
        }

        fn inject(&self) {
            self.tasks.fetch_add(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            self.wake_idle();
        }

        /// If all sleep or were woken, and there are tasks, one was woken.
        fn assert_no_task_is_left(&self) {
            let all_sleep = (self.workers.iter()).all(|worker| worker.parker.is_parked());
            let tasks = self.tasks.load(Ordering::Relaxed);
            assert!(tasks == 0 || !all_sleep, "{tasks} tasks, and all sleep");
        }
    }

    fn check(workers: usize, script: fn(&Here<'_>)) {
        check_beside(0, workers, script);
    }

    /// [`check`] with `others` workers of other shards, which have the last indices.
    fn check_beside(others: usize, workers: usize, script: fn(&Here<'_>)) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let world = Model::new(workers);
            let threads: Vec<_> = (1..workers + others)
                .map(|index| {
                    let world = world.clone();
                    loom::thread::spawn(move || {
                        let here = Here::new(&world, index);
                        script(&here);
                        // The thread ends, and with it the borrow of the lock; the lock stays held.
                        std::mem::forget(here.guard.take());
                    })
                })
                .collect();
            let here = Here::new(&world, 0);
            script(&here);
            std::mem::forget(here.guard.take());
            for thread in threads {
                thread.join().unwrap();
            }
            world.assert_is_served();
            world.assert_no_task_is_left();
        });
    }

    /// The poller is never left alone where all fall asleep.
    #[test]
    fn poller_never_abandoned_when_all_sleep() {
        check(2, |here| here.sleep());
    }

    /// The poller is never left alone where all wake up work and sleep again.
    #[test]
    fn poller_never_abandoned_when_all_wake_and_sleep() {
        check(2, |here| {
            here.sleep();
            here.wake_up();
            here.work();
            here.sleep();
            here.sleep_if_woken();
        });
    }

    /// The poller is never left alone where one is woken and another shard's worker polls.
    #[test]
    fn poller_never_abandoned_with_wake_and_other_shard() {
        check_beside(1, 2, |here| match here.index {
            0 => here.sleep(),
            1 => {
                here.sleeper.was_woken.set(true);
                here.sleep();
                here.sleep_if_woken();
            }
            _ => here.poll_from_outside(),
        });
    }

    /// The poller is never left alone where another shard's worker polls.
    #[test]
    fn poller_never_abandoned_with_other_shard_polling() {
        check_beside(1, 1, |here| {
            if here.index == 1 {
                here.poll_from_outside();
            } else {
                here.sleep();
                here.sleep_if_woken();
            }
        });
    }

    #[test]
    fn no_task_is_left_where_all_fall_asleep() {
        check_beside(1, 2, |here| match here.index {
            2 => here.world.inject(),
            _ => here.sleep(),
        });
    }

    /// The poller is never left alone where some are woken for nothing.
    #[test]
    fn poller_never_abandoned_on_spurious_wakes() {
        check(2, |here| {
            here.sleep();
            here.sleeper.was_woken.set(true);
            here.wake_up();
            here.sleep();
            here.sleep_if_woken();
        });
    }

    /// No worker works while the monitor pauses.
    #[test]
    fn monitor_pauses_only_while_all_sleep() {
        loom::model(|| {
            let world = Model::new(1);
            let pause = Arc::new(MonitorPause::default());
            let here = Here::new(&world, 0);
            here.sleep();
            let monitor = {
                let (world, pause) = (world.clone(), pause.clone());
                loom::thread::spawn(move || pause.wait(|| !world.is_parked(0)))
            };
            here.wake_up();
            here.sleeper.begin_work(Some(&pause));
            // Otherwise this waits for ever.
            monitor.join().unwrap();
        });
    }
}
