//! The sleep of a pool worker: as the leader of its [shard](super::shard), or as a follower.
//!
//! A worker holds the lock of the shard's poller while it waits there, and releases it before a
//! foreign waker is called or a task runs. The lock is only ever tried. An idle worker that gets it
//! is the *leader*: it sleeps in the poller. Any other idle worker is a *follower*: it sleeps until
//! it is notified.
//!
//! **Why the poller is never left alone** while all sleep. A worker tries the lock before it parks.
//! It fails only if another worker holds the lock: the leader, or one that is awake and will try
//! the lock before it sleeps. So the last one that falls asleep leads, unless another does. (A
//! worker of another shard does not try it again: see
//! [`unlock_and_wake`](PollerGuard::unlock_and_wake).)
//!
//! **The exception.** A worker that was woken (mostly as the [monitor](super::shard)) and has found
//! nothing to do leaves the lock to the worker that has just released it and will soon take it
//! back: otherwise each event would wake two workers. It sleeps without a limit only while another
//! worker is the monitor. If none is, it becomes the monitor, and so sleeps until its next
//! inspection at most; or, if all others sleep, it stays awake and tries the lock after all. A
//! worker that has inspected the others since it was woken, or that gives up the monitor's role,
//! tries the lock. `loom` checks this below.

use std::cell::Cell;

use super::shard::{PollerGuard, Shard, ShardedWorkers};

/// Implemented by `Worker`, and by a model.
pub(super) trait SleepingWorker {
    /// Parks the worker, which sleeps in the shard's poller next if it `leads`. Returns whether
    /// something was sent to it.
    fn park(&self, leads: bool) -> bool;

    /// See `Local::has_tasks_elsewhere`.
    fn has_tasks(&self) -> bool;

    fn have_others_worked(&self) -> bool;
}

pub(super) enum Sleep<'a> {
    /// Not in this turn: something has come, the lock has become free, or nobody is the monitor.
    /// With the lock, if this worker took it before it parked.
    StaysAwake(Option<PollerGuard<'a>>),
    Leads(PollerGuard<'a>),
    Follows,
}

/// Accessed only by the worker's thread.
#[derive(Default)]
pub(super) struct Sleeper {
    /// Whether others have worked between its last two inspections; assumed of a new monitor.
    others_work: Cell<bool>,
    has_slept: Cell<bool>,
    /// Whether it was woken, and has done nothing since.
    was_woken: Cell<bool>,
}

impl Sleeper {
    /// Called before the worker runs a task or a waker. After a sleep, makes another one the
    /// monitor.
    #[inline]
    pub(super) fn begin_work(&self, index: usize, workers: &impl ShardedWorkers) {
        if self.has_slept.get() {
            self.begin_work_after_sleep(index, workers);
        }
    }

    #[cold]
    fn begin_work_after_sleep(&self, index: usize, workers: &impl ShardedWorkers) {
        self.has_slept.set(false);
        self.was_woken.set(false);
        workers.shard(index).monitor.begin_work(index, workers);
    }

    pub(super) fn note_woken(&self) {
        self.was_woken.set(true);
    }

    /// Records an inspection of the others. Returns whether the worker was woken for it.
    pub(super) fn note_inspection(&self, others_work: bool) -> bool {
        self.others_work.set(others_work);
        self.was_woken.replace(false)
    }

    /// Parks the worker, which has nothing to do, and decides how it sleeps: see the head.
    pub(super) fn fall_asleep<'a>(
        &self,
        index: usize,
        worker: &impl SleepingWorker,
        workers: &'a impl ShardedWorkers,
    ) -> Sleep<'a> {
        let Shard {
            poller_lock,
            monitor,
            ..
        } = workers.shard(index);
        self.has_slept.set(true);
        if monitor.is_held_by(index) {
            if self.was_woken.get() {
                // Another worker may have woken it as the monitor, and begins to work.
                self.others_work.set(true);
            } else if !self.others_work.get() {
                // There is nothing to inspect. The role ends before the lock is tried, so that the
                // poller is not left alone.
                monitor.release(index);
            }
        }
        // An awake worker of this shard will want the lock back.
        let leaves_lock = self.was_woken.get() && workers.is_other_awake(index);
        let taken = if leaves_lock {
            None
        } else {
            poller_lock.try_lock()
        };
        if worker.park(taken.is_some()) || worker.has_tasks() {
            return Sleep::StaysAwake(taken);
        }
        // A thread that does not try the lock again may have held it (a worker of another shard or
        // the main worker): see `unlock_and_wake`.
        if taken.is_none() && !leaves_lock && poller_lock.is_free() {
            return Sleep::StaysAwake(None);
        }
        if !monitor.is_held_by(index) {
            // A follower takes the role also if it only expects others to work. A leader, which
            // would have to pass it on with the next event, takes it while another one is awake.
            let expects =
                taken.is_none() && (self.others_work.get() || worker.have_others_worked());
            if monitor.try_acquire(index, expects, workers) {
                self.others_work.set(true);
            }
        }
        if leaves_lock && !monitor.is_held() {
            self.was_woken.set(false);
            return Sleep::StaysAwake(None);
        }
        taken.map_or(Sleep::Follows, Sleep::Leads)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::reactor::{Parker, Wakeup};
    use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
    use loom::sync::Arc;
    use std::ops::Range;

    const ASLEEP: usize = 1;
    const LEADS: usize = 2;

    /// Workers that fall asleep and wake up. Left out: their work, waits and inspections; so a
    /// model ends when all but the monitor would sleep forever.
    struct Model {
        shards: [Shard; 1],
        workers: Vec<Worker>,
        have_worked: AtomicBool,
        tasks: AtomicUsize,
    }

    struct Worker {
        parker: Parker<()>,
        state: AtomicUsize,
    }

    struct Here<'a> {
        world: &'a Model,
        index: usize,
        sleeper: Sleeper,
        guard: Cell<Option<PollerGuard<'a>>>,
    }

    impl ShardedWorkers for Model {
        fn shards(&self) -> &[Shard] {
            &self.shards
        }

        fn shard(&self, _: usize) -> &Shard {
            &self.shards[0]
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

    impl SleepingWorker for Here<'_> {
        fn park(&self, _: bool) -> bool {
            self.world.workers[self.index].parker.park() != Wakeup::None
        }

        fn has_tasks(&self) -> bool {
            self.world.tasks.load(Ordering::Relaxed) > 0
        }

        fn have_others_worked(&self) -> bool {
            self.world.have_worked.load(Ordering::Relaxed)
        }
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
            let world = self.world;
            loop {
                let state = match self.sleeper.fall_asleep(self.index, self, world) {
                    Sleep::StaysAwake(guard) => {
                        world.workers[self.index].parker.resume();
                        drop(guard);
                        world.tasks.store(0, Ordering::Relaxed);
                        continue;
                    }
                    Sleep::Leads(guard) => {
                        let mut others = world.workers.iter();
                        let leads =
                            |other: &Worker| other.state.load(Ordering::Relaxed) & LEADS != 0;
                        assert!(!others.any(leads), "two hold the lock");
                        self.guard.set(Some(guard));
                        ASLEEP | LEADS
                    }
                    Sleep::Follows => ASLEEP,
                };
                world.workers[self.index]
                    .state
                    .store(state, Ordering::Relaxed);
                return;
            }
        }

        fn wake_up(&self) {
            let worker = &self.world.workers[self.index];
            worker.state.store(0, Ordering::Relaxed);
            if worker.parker.resume() == Wakeup::Notified {
                self.sleeper.was_woken.set(true);
            }
            drop(self.guard.take());
        }

        fn poll_from_outside(&self) {
            let shard = &self.world.shards[0];
            if let Some(guard) = shard.poller_lock.try_lock() {
                guard.unlock_and_wake(|| self.world.wake_idle_of(shard.workers.clone()));
            }
        }

        fn work(&self) {
            self.sleeper.begin_work(self.index, self.world);
        }

        fn sleep_if_woken(&self) {
            if !self.world.workers[self.index].parker.is_parked() {
                self.wake_up();
                self.sleep();
            }
        }
    }

    impl Model {
        fn new(workers: usize, have_worked: bool) -> Arc<Model> {
            Arc::new(Model {
                shards: [Shard::new(0..workers)],
                workers: (0..workers)
                    .map(|_| Worker {
                        parker: Parker::default(),
                        state: AtomicUsize::new(0),
                    })
                    .collect(),
                have_worked: AtomicBool::new(have_worked),
                tasks: AtomicUsize::new(0),
            })
        }

        /// If all sleep or were woken, one of them waits in the poller, or will soon.
        fn assert_is_served(&self) {
            let will_come = |(index, worker): (usize, &Worker)| {
                !worker.parker.is_parked()
                    || worker.state.load(Ordering::Relaxed) & LEADS != 0
                    || self.shards[0].monitor.is_held_by(index)
            };
            let mut workers = self.workers.iter().enumerate();
            assert!(workers.any(will_come), "the poller is alone");
        }

        fn inject(&self) {
            self.tasks.fetch_add(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            self.wake_idle_of(0..self.workers.len());
        }

        /// If all sleep or were woken, and there are tasks, one was woken.
        fn assert_no_task_is_left(&self) {
            let all_sleep = (self.workers.iter()).all(|worker| worker.parker.is_parked());
            let tasks = self.tasks.load(Ordering::Relaxed);
            assert!(tasks == 0 || !all_sleep, "{tasks} tasks, and all sleep");
        }
    }

    fn check(workers: usize, have_worked: bool, script: fn(&Here<'_>)) {
        check_beside(0, workers, have_worked, script);
    }

    /// [`check`] with `others` workers of other shards, which have the last indices.
    fn check_beside(others: usize, workers: usize, have_worked: bool, script: fn(&Here<'_>)) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let world = Model::new(workers, have_worked);
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
        for have_worked in [false, true] {
            check(2, have_worked, |here| here.sleep());
        }
    }

    /// The poller is never left alone where all wake up work and sleep again.
    #[test]
    fn poller_never_abandoned_when_all_wake_and_sleep() {
        for have_worked in [false, true] {
            check(2, have_worked, |here| {
                here.sleep();
                here.wake_up();
                here.work();
                here.sleep();
                here.sleep_if_woken();
            });
        }
    }

    /// The poller is never left alone where one is woken and another shard's worker polls.
    #[test]
    fn poller_never_abandoned_with_wake_and_other_shard() {
        check_beside(1, 2, true, |here| match here.index {
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
        for have_worked in [false, true] {
            check_beside(1, 1, have_worked, |here| {
                if here.index == 1 {
                    here.poll_from_outside();
                } else {
                    here.sleep();
                    here.sleep_if_woken();
                }
            });
        }
    }

    #[test]
    fn no_task_is_left_where_all_fall_asleep() {
        check_beside(1, 2, false, |here| match here.index {
            2 => here.world.inject(),
            _ => here.sleep(),
        });
    }

    /// The poller is never left alone where some are woken for nothing.
    #[test]
    fn poller_never_abandoned_on_spurious_wakes() {
        for have_worked in [false, true] {
            check(2, have_worked, |here| {
                here.sleep();
                here.sleeper.was_woken.set(true);
                here.wake_up();
                here.sleep();
                here.sleep_if_woken();
            });
        }
    }
}
