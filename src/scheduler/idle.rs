//! Who is woken when there are tasks that have not started: one find_idle for one backlog.
//!
//! A thread that adds to the backlog, or leaves some of it, calls [`Idle::wake_one`]. That wakes
//! one sleeping worker, and notes its place: it is *on its way*. As long as it is, nobody else is
//! woken. It comes, takes a task, and [`end_search`](Idle::end_search)s: from then on it is on its way no
//! more, and if there is still a backlog it wakes the next. So workers come one after the other
//! while there is something for each of them, and no herd comes for one task.
//!
//! **Why no backlog is left lying while a worker sleeps.** Whoever adds looks for sleepers *after*
//! adding, and a worker looks at the backlog *after* it has declared itself asleep, with a
//! sequentially consistent fence on both sides: the worker sees the task, or the other one sees the
//! find_idle. It may find that somebody is on its way and leave it to that one: which looks at the
//! backlog again after it has taken back its mark, again with a fence between. If it cannot wake
//! whom it has chosen (that one woke by itself), it takes back the mark and starts over. `loom` checks
//! this below.
//!
//! The one that is woken learns of it when it resumes, whatever ended its wait, and also if it did not
//! wait in the end: [`resume`](crate::reactor::parking::Parking::resume) is one exchange,
//! so either it sees that it was notified, and with that the mark, or it comes first, and the other
//! one fails to wake it.

use crate::sync::atomic::{AtomicUsize, Ordering, fence};

/// What the search asks of the workers.
pub(super) trait IdleWorkers {
    /// Whether there are tasks that have not started.
    fn has_injected(&self) -> bool;

    /// The place of the find_idle to be woken, if there is one.
    fn find_idle(&self) -> Option<usize>;

    /// Wakes it; false if it woke by itself.
    fn wake(&self, index: usize) -> bool;
}

#[derive(Debug)]
pub(super) struct Idle {
    /// One more than the place of who is on its way; zero if nobody is.
    searching: AtomicUsize,
}

impl Idle {
    pub(super) fn new() -> Idle {
        Idle {
            searching: AtomicUsize::new(0),
        }
    }

    /// Something was added to the backlog, or is left of it.
    #[inline]
    pub(super) fn wake_one(&self, workers: &impl IdleWorkers) {
        loop {
            fence(Ordering::SeqCst);
            let Some(index) = workers.find_idle() else {
                return;
            };
            if !workers.has_injected() || !self.replace(0, index + 1) || workers.wake(index) {
                return;
            }
            self.replace(index + 1, 0);
        }
    }

    /// Whether the worker at `index` is the one on its way.
    #[inline]
    pub(super) fn is_searching(&self, index: usize) -> bool {
        self.searching.load(Ordering::Relaxed) == index + 1
    }

    /// The worker at `index` has come, and taken what it wants.
    pub(super) fn end_search(&self, index: usize, workers: &impl IdleWorkers) {
        self.replace(index + 1, 0);
        self.wake_one(workers);
    }

    /// Replaces `old`, and nothing else: whoever takes back a mark must not take another's.
    fn replace(&self, old: usize, new: usize) -> bool {
        (self.searching)
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::reactor::parking::Parking;
    use crate::sync::Mutex;
    use loom::sync::Arc;

    /// Workers that do nothing but start tasks and call a waker, with pollers that are reduced to their
    /// promise: a notification ends the current or else the next wait, also one that does not sleep.
    ///
    /// Left out: the loads by which a find_idle is chosen (here the first one is, which the models put
    /// where it does harm), patience, and what else a worker looks at before it sleeps.
    struct World {
        idle: Idle,
        /// How many tasks have not started.
        backlog: AtomicUsize,
        /// How many still have to start. Whoever starts the last lets the workers go.
        unstarted: AtomicUsize,
        /// Whether the tasks block their workers until all have started.
        blocking: bool,
        workers: Vec<Worker>,
    }

    struct Worker {
        parking: Parking,
        notified: Mutex<bool>,
        woken: loom::sync::Condvar,
        /// A source is ready whose waker spawns a task, and blocks until all have started.
        has_event: Mutex<bool>,
    }

    impl Worker {
        fn notify(&self) {
            *self.notified.lock() = true;
            self.woken.notify_one();
        }

        fn wait(&self) {
            let mut notified = self.notified.lock();
            while !*notified {
                notified = self.woken.wait(notified).unwrap();
            }
            *notified = false;
        }

        /// A look at the poller without sleep consumes a notification.
        fn look(&self) {
            *self.notified.lock() = false;
        }
    }

    impl IdleWorkers for World {
        fn has_injected(&self) -> bool {
            self.backlog.load(Ordering::Relaxed) > 0
        }

        fn find_idle(&self) -> Option<usize> {
            (self.workers.iter()).position(|worker| worker.parking.is_parked())
        }

        fn wake(&self, index: usize) -> bool {
            let asleep = self.workers[index].parking.unpark();
            if asleep {
                self.workers[index].notify();
            }
            asleep
        }
    }

    impl World {
        fn new(workers: usize, tasks: usize, blocking: bool) -> Arc<World> {
            Arc::new(World {
                idle: Idle::new(),
                backlog: AtomicUsize::new(0),
                unstarted: AtomicUsize::new(tasks),
                blocking,
                workers: (0..workers)
                    .map(|_| Worker {
                        parking: Parking::new(),
                        notified: Mutex::new(false),
                        woken: loom::sync::Condvar::new(),
                        has_event: Mutex::new(false),
                    })
                    .collect(),
            })
        }

        /// The kernel ends a worker's wait.
        fn event(&self, index: usize) {
            *self.workers[index].has_event.lock() = true;
            self.workers[index].notify();
        }

        /// Foreign code, on the worker's thread: see "Foreign code" in `parking`.
        fn call_waker(&self, index: usize) {
            self.spawn();
            while !self.is_over() {
                self.workers[index].wait();
            }
        }

        fn spawn(&self) {
            self.backlog.fetch_add(1, Ordering::Release);
            self.idle.wake_one(self);
        }

        /// Something that has nothing to do with the backlog wakes a worker.
        fn disturb(&self, index: usize) {
            let worker = &self.workers[index];
            if worker.parking.unpark() {
                worker.notify();
            }
        }

        fn take(&self) -> bool {
            let mut backlog = self.backlog.load(Ordering::Relaxed);
            while backlog > 0 {
                match self.backlog.compare_exchange(
                    backlog,
                    backlog - 1,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        if backlog > 1 {
                            self.idle.wake_one(self);
                        }
                        return true;
                    }
                    Err(now) => backlog = now,
                }
            }
            false
        }

        fn start(&self, index: usize) {
            if self.unstarted.fetch_sub(1, Ordering::AcqRel) == 1 {
                for worker in &self.workers {
                    worker.notify();
                }
            }
            if self.blocking {
                // The worker is in the middle of a task, and hears of nothing but the end.
                while !self.is_over() {
                    self.workers[index].wait();
                }
            }
        }

        fn is_over(&self) -> bool {
            self.unstarted.load(Ordering::Acquire) == 0
        }

        /// As `runtime::worker` does it. Loom fails the model where everybody sleeps for ever.
        fn work(&self, index: usize) {
            let worker = &self.workers[index];
            while !self.is_over() {
                while self.take() {
                    self.start(index);
                }
                worker.parking.park();
                match self.has_injected() || self.is_over() {
                    // An event is told all the same, as by a look without sleep.
                    true => worker.look(),
                    false => worker.wait(),
                }
                let mut is_wanted = worker.parking.resume() && self.idle.is_searching(index);
                let has_event = std::mem::take(&mut *worker.has_event.lock());
                if has_event {
                    if std::mem::take(&mut is_wanted) {
                        self.idle.end_search(index, self);
                    }
                    self.call_waker(index);
                }
                if is_wanted {
                    let took = self.take();
                    self.idle.end_search(index, self);
                    if took {
                        self.start(index);
                    }
                }
            }
        }
    }

    fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(model);
    }

    /// Runs workers, each on a thread, against what `others` do on threads of their own.
    fn run<const N: usize>(world: &Arc<World>, others: [fn(&World); N]) {
        let mut threads: Vec<_> = (others.into_iter())
            .map(|other| {
                let world = world.clone();
                loom::thread::spawn(move || other(&world))
            })
            .collect();
        for index in 1..world.workers.len() {
            let world = world.clone();
            threads.push(loom::thread::spawn(move || world.work(index)));
        }
        world.work(0);
        for thread in threads {
            thread.join().unwrap();
        }
    }

    #[test]
    fn no_task_is_left_lying_while_a_worker_sleeps() {
        check(4, || {
            let world = World::new(1, 2, false);
            run(
                &world,
                [|world: &World| {
                    world.spawn();
                    world.spawn();
                }],
            );
        });
    }

    #[test]
    fn nor_where_the_worker_is_woken_by_other_things_at_the_same_moment() {
        check(3, || {
            let world = World::new(1, 2, false);
            let spawner: fn(&World) = |world| {
                world.spawn();
                world.spawn();
            };
            run(&world, [spawner, |world| world.disturb(0)]);
        });
    }

    #[test]
    fn nor_by_two_spawners() {
        check(3, || {
            let world = World::new(1, 2, false);
            run(&world, [World::spawn as fn(&World), World::spawn]);
        });
    }

    /// The one in the waker is the first find_idle that anybody would choose.
    #[test]
    fn a_waker_that_blocks_on_what_it_spawns_is_helped_by_another_worker() {
        check(3, || {
            let world = World::new(2, 1, false);
            run(&world, [|world: &World| world.event(0)]);
        });
    }

    /// It may have been woken for another task at the same moment, which nobody else may wait for.
    #[test]
    fn a_worker_that_is_in_a_waker_keeps_no_task_that_it_was_woken_for() {
        check(2, || {
            let world = World::new(2, 2, false);
            let event: fn(&World) = |world| world.event(0);
            run(&world, [event, World::spawn]);
        });
    }

    /// Each of two tasks blocks its worker until the other has started.
    #[test]
    fn two_tasks_start_on_two_workers() {
        check(2, || {
            let world = World::new(2, 2, true);
            run(
                &world,
                [|world: &World| {
                    world.spawn();
                    world.spawn();
                }],
            );
        });
    }
}
