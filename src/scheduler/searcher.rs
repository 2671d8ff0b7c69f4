//! The searching worker of a pool: the idle one that was woken for tasks that any worker may take.
//!
//! A thread that has injected a task, or that has more stealable tasks than it runs soon, calls
//! [`Searcher::wake_one`]. That wakes one idle worker and marks it as *searching*. While a worker
//! is searching, no other is woken. The searching worker takes tasks and calls
//! [`end_search`](Searcher::end_search), which removes the mark and wakes the next worker if tasks
//! are left. So one task causes no thundering herd.
//!
//! **Why no task is left in the queue while a worker sleeps.** The injecting side looks for idle
//! workers *after* the push, and a worker looks at the queue *after* it has parked, with a
//! sequentially consistent fence on both sides: either the worker sees the task, or the injecting
//! side sees the idle worker. A task that is left to a searching worker is not lost: that worker,
//! after it has removed its mark, looks again for an idle worker and at the queues, with a fence in
//! between. If `wake` returns false, the mark is removed and the choice restarts.
//! `loom` checks this below.
//!
//! A worker finds out that it was woken when it resumes, even if it did not wait. After a `park`,
//! [`resume`](crate::reactor::Parker::resume) is one exchange. Either it returns that the worker
//! was notified, and then the mark is visible; or it precedes the notification, and `wake` returns
//! false.

use crate::sync::atomic::{AtomicUsize, Ordering, fence};

/// Implemented by `Shared`, and by models.
pub(super) trait IdleWorkers {
    /// Whether there is a task in the inject queue, or in a run queue but for its LIFO slot.
    fn has_stealable(&self) -> bool;

    fn find_idle(&self) -> Option<usize>;

    /// Wakes a worker. Returns false if it is awake, or was woken by another thread.
    fn wake(&self, index: usize) -> bool;
}

/// The index of the searching worker plus one, or zero.
#[derive(Debug, Default)]
pub(super) struct Searcher(AtomicUsize);

impl Searcher {
    pub(super) fn wake_one(&self, workers: &impl IdleWorkers) {
        loop {
            fence(Ordering::SeqCst);
            let Some(index) = workers.find_idle() else {
                return;
            };
            if !workers.has_stealable() || !self.replace(0, index + 1) || workers.wake(index) {
                return;
            }
            self.replace(index + 1, 0);
        }
    }

    /// Whether the worker at `index` was woken to search for tasks. If so, it must call
    /// [`end_search`](Self::end_search).
    #[inline]
    pub(super) fn is_searching(&self, index: usize) -> bool {
        self.0.load(Ordering::Relaxed) == index + 1
    }

    pub(super) fn end_search(&self, index: usize, workers: &impl IdleWorkers) {
        self.replace(index + 1, 0);
        self.wake_one(workers);
    }

    /// Replaces the mark if it is `old`: no worker removes another's mark.
    fn replace(&self, old: usize, new: usize) -> bool {
        (self.0)
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    /// Idle workers in the order of choice; some wake by themselves.
    struct Model {
        has_stealable: Cell<bool>,
        idle: RefCell<Vec<usize>>,
        wakes_by_itself: usize,
        woken: RefCell<Vec<usize>>,
    }

    const NOBODY: usize = usize::MAX;

    fn world<const N: usize>(idle: [usize; N]) -> Model {
        Model {
            has_stealable: Cell::new(true),
            idle: RefCell::new(idle.into()),
            wakes_by_itself: NOBODY,
            woken: RefCell::default(),
        }
    }

    impl IdleWorkers for Model {
        fn has_stealable(&self) -> bool {
            self.has_stealable.get()
        }

        fn find_idle(&self) -> Option<usize> {
            self.idle.borrow().first().copied()
        }

        fn wake(&self, index: usize) -> bool {
            assert_eq!(self.idle.borrow_mut().remove(0), index, "the chosen one");
            let is_asleep = index != self.wakes_by_itself;
            if is_asleep {
                self.woken.borrow_mut().push(index);
            }
            is_asleep
        }
    }

    /// A woken worker searches, and the next one is woken when it is done.
    #[test]
    fn woken_worker_searches_then_wakes_next() {
        let (searcher, world) = (Searcher::default(), world([2, 0, 1]));
        searcher.wake_one(&world);
        assert_eq!(*world.woken.borrow(), [2]);
        let searching = [0, 1, 2, 3].map(|index| searcher.is_searching(index));
        assert_eq!(searching, [false, false, true, false]);
        searcher.wake_one(&world);
        assert_eq!(*world.woken.borrow(), [2], "one searches already");
        searcher.end_search(2, &world);
        assert_eq!(*world.woken.borrow(), [2, 0]);
        assert!(searcher.is_searching(0) && !searcher.is_searching(2));
        world.has_stealable.set(false);
        searcher.end_search(0, &world);
        assert_eq!(*world.woken.borrow(), [2, 0], "nothing is left for others");
        assert!(!searcher.is_searching(0));
    }

    #[test]
    fn no_tasks_wakes_nobody() {
        let (searcher, world) = (Searcher::default(), world([0]));
        world.has_stealable.set(false);
        searcher.wake_one(&world);
        assert!(world.woken.borrow().is_empty() && !searcher.is_searching(0));
    }

    /// If the chosen worker wakes by itself, another one is woken.
    #[test]
    fn chosen_awake_already_wakes_another() {
        let (searcher, mut world) = (Searcher::default(), world([1, 0]));
        world.wakes_by_itself = 1;
        searcher.wake_one(&world);
        assert_eq!(*world.woken.borrow(), [0]);
        assert!(searcher.is_searching(0) && !searcher.is_searching(1));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::reactor::{Parker, Wakeup};
    use crate::sync::{Mutex, ThreadSignal};
    use loom::sync::Arc;

    /// Workers that only take tasks and call a waker. Their pollers are reduced to one guarantee: a
    /// notification ends the current wait or the next one, even one with a zero timeout. Left out:
    /// the choice of the idle worker (here the first is the worst choice), stealing, and everything
    /// else that a worker looks at before it sleeps.
    struct Model {
        searcher: Searcher,
        injected: AtomicUsize,
        /// The number of tasks that have not started. Starting the last one ends the model.
        unstarted: AtomicUsize,
        /// Whether each task blocks its worker until all have started.
        blocking: bool,
        workers: Vec<Worker>,
    }

    struct Worker {
        parker: Parker<()>,
        thread: ThreadSignal,
        /// Whether a source is ready. Its waker spawns a task, and blocks until all have started.
        has_event: Mutex<bool>,
    }

    impl Worker {
        fn notify(&self) {
            self.thread.notify();
        }

        fn wait(&self) {
            while !self.thread.wait(None) {}
        }

        fn poll(&self) {
            self.thread.take();
        }
    }

    impl IdleWorkers for Model {
        fn has_stealable(&self) -> bool {
            self.injected.load(Ordering::Relaxed) > 0
        }

        fn find_idle(&self) -> Option<usize> {
            (self.workers.iter()).position(|worker| worker.parker.is_parked())
        }

        fn wake(&self, index: usize) -> bool {
            let asleep = self.workers[index].parker.set_attention();
            if asleep {
                self.workers[index].notify();
            }
            asleep
        }
    }

    impl Model {
        fn new(workers: usize, tasks: usize, blocking: bool) -> Arc<Model> {
            Arc::new(Model {
                searcher: Searcher::default(),
                injected: AtomicUsize::new(0),
                unstarted: AtomicUsize::new(tasks),
                blocking,
                workers: (0..workers)
                    .map(|_| Worker {
                        parker: Parker::default(),
                        thread: ThreadSignal::default(),
                        has_event: Mutex::new(false),
                    })
                    .collect(),
            })
        }

        fn event(&self, index: usize) {
            *self.workers[index].has_event.lock() = true;
            self.workers[index].notify();
        }

        /// Foreign code on the worker's thread: see "Foreign code" in `parker`.
        fn call_waker(&self, index: usize) {
            self.spawn();
            while !self.is_over() {
                self.workers[index].wait();
            }
        }

        fn spawn(&self) {
            self.injected.fetch_add(1, Ordering::Release);
            self.searcher.wake_one(self);
        }

        fn disturb(&self, index: usize) {
            let worker = &self.workers[index];
            if worker.parker.set_attention() {
                worker.notify();
            }
        }

        fn take(&self) -> bool {
            let mut injected = self.injected.load(Ordering::Relaxed);
            while injected > 0 {
                match self.injected.compare_exchange(
                    injected,
                    injected - 1,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        if injected > 1 {
                            self.searcher.wake_one(self);
                        }
                        return true;
                    }
                    Err(now) => injected = now,
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
                // The worker is in the middle of a task.
                while !self.is_over() {
                    self.workers[index].wait();
                }
            }
        }

        fn is_over(&self) -> bool {
            self.unstarted.load(Ordering::Acquire) == 0
        }

        /// The loop of `scheduler::worker`. Loom fails the model if all workers sleep forever.
        fn work(&self, index: usize) {
            let worker = &self.workers[index];
            while !self.is_over() {
                while self.take() {
                    self.start(index);
                }
                worker.parker.park();
                if self.has_stealable() || self.is_over() {
                    // An event is reported even now, as by a wait with a zero timeout.
                    worker.poll();
                } else {
                    worker.wait();
                }
                let was_woken = worker.parker.resume() == Wakeup::Notified;
                let mut is_searching = was_woken && self.searcher.is_searching(index);
                let has_event = std::mem::take(&mut *worker.has_event.lock());
                if has_event {
                    if std::mem::take(&mut is_searching) {
                        self.searcher.end_search(index, self);
                    }
                    self.call_waker(index);
                }
                if is_searching {
                    let took = self.take();
                    self.searcher.end_search(index, self);
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

    fn run<const N: usize>(world: &Arc<Model>, others: [fn(&Model); N]) {
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
            let world = Model::new(1, 2, false);
            run(
                &world,
                [|world: &Model| {
                    world.spawn();
                    world.spawn();
                }],
            );
        });
    }

    /// The same where the worker is woken for another reason at the same moment.
    #[test]
    fn nor_when_woken_for_other_things() {
        check(3, || {
            let world = Model::new(1, 2, false);
            let spawner: fn(&Model) = |world| {
                world.spawn();
                world.spawn();
            };
            run(&world, [spawner, |world| world.disturb(0)]);
        });
    }

    #[test]
    fn nor_by_two_spawners() {
        check(3, || {
            let world = Model::new(1, 2, false);
            run(&world, [Model::spawn as fn(&Model), Model::spawn]);
        });
    }

    /// A waker that blocks on what it spawns is helped by another worker.
    ///
    /// The worker in the waker would be chosen, as the first idle one.
    #[test]
    fn waker_that_blocks_on_its_spawn_is_helped() {
        check(3, || {
            let world = Model::new(2, 1, false);
            run(&world, [|world: &Model| world.event(0)]);
        });
    }

    /// A worker that is in a waker keeps no task that it was woken for.
    ///
    /// The worker may be searching at that moment; another worker must then take its task.
    #[test]
    fn worker_in_waker_keeps_no_woken_task() {
        check(2, || {
            let world = Model::new(2, 2, false);
            let event: fn(&Model) = |world| world.event(0);
            run(&world, [event, Model::spawn]);
        });
    }

    /// Each of two tasks blocks its worker until the other has started.
    #[test]
    fn two_tasks_start_on_two_workers() {
        check(2, || {
            let world = Model::new(2, 2, true);
            run(
                &world,
                [|world: &Model| {
                    world.spawn();
                    world.spawn();
                }],
            );
        });
    }
}
