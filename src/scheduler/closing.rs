//! The shutdown of a runtime.
//!
//! 1. The flag `closing` is set (see "Closing" in `shared`). Tasks spawned from now on are
//!    cancelled immediately (see `schedule`), and pool workers leave their loop.
//! 2. Each worker, on its own thread (`Worker::drop_tasks`), drops every queued runnable, and with
//!    it the future, and wakes every task that it owns, so that its runnable is queued too. It
//!    repeats this until it owns no pinned task. If another thread is in the middle of a wake, the
//!    task arrives in the inbox. The worker is current meanwhile, so destructors may wake, spawn,
//!    and use sockets and timers. Then it closes its reactor (the last one does for a pool);
//!    sockets and timers that are used elsewhere move there.
//! 3. The main worker drops the injected tasks, and the stealable tasks that pool workers have left
//!    or are too busy to drop. It waits until all pool workers have exited and no task is live,
//!    because another thread may still be about to push one.
//!
//! Stealable tasks may be left when their workers have dropped all that they have found: one that
//! another thread injects, and one that a worker polls once more while the worker that lists it
//! wakes the listed ones. And a worker in the middle of a task drops none. So the main worker drops
//! the tasks that are ready on any worker, and wakes the tasks in the workers' lists. It does so
//! every [`CLOSE_INTERVAL`] while pool workers and tasks are left, since a task may block its
//! worker until another one is dropped, and once more when all workers have exited and no thread
//! polls a task any more. A task may also wait for an event or a timer of its shard, so the main
//! worker polls for each shard (`Worker::drop_ready_tasks_of_pool`). (If the main worker is not
//! driven, after a failure, the last pool worker to exit does as much of this as it can.)
//!
//! **Why it does not sleep while there is something for it.** A thread that sends a task, drops
//! one, or is the last pool worker to exit, does so and then unparks the main worker. The main
//! worker looks for all three before it parks, and does not sleep if it was unparked since it last
//! resumed. It must act on the exit of all pool workers even if a task is left: so it checks
//! whether *that* has changed since the round began. `loom` checks this below.

use std::mem;
use std::time::{Duration, Instant};

use crate::sync::atomic::{AtomicBool, Ordering, fence};

/// How often the closing main worker collects tasks that busy pool workers have left: rarely enough
/// not to contend for their lists, often enough not to prolong a shutdown.
const CLOSE_INTERVAL: Duration = Duration::from_millis(1);

/// The first interval, if no task is left. Most runtimes end so, and their pool workers exit
/// immediately: for a timeout of this length epoll needs no timerfd. A pool worker that is still in
/// a function of `Builder::on_thread_start`, the destructor of an output or a foreign waker may
/// wait for a timer of the pool there; so the intervals after it are short.
const FIRST_CLOSE_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct ClosingFlag(AtomicBool);

impl ClosingFlag {
    #[inline]
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    pub(super) fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
        // A thread that has not seen the flag has pushed before this: the collection that follows
        // finds the task.
        fence(Ordering::SeqCst);
    }

    /// [`is_set`](Self::is_set), after a task was pushed where the main worker looks: if so, it has
    /// to be unparked. The push precedes the read of the flag; the main worker sets the flag, and
    /// then looks.
    #[inline]
    pub(super) fn is_set_after_push(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_set()
    }
}

/// Implemented by `Worker`, and by models.
pub(super) trait ClosingWorkers {
    fn have_exited(&self) -> bool;

    fn live_tasks(&self) -> usize;

    fn wake_stealable_tasks(&self);

    /// Drops the main worker's tasks, the injected ones, and the stealable ones that are ready.
    fn drop_ready_tasks(&self);

    /// Whether another thread has sent such a task.
    fn has_ready_tasks(&self) -> bool;

    /// Sleeps until it is unparked. Does not sleep if `stay_awake` returns true, or if it was
    /// unparked since it last resumed.
    fn sleep(&self, timeout: Option<Duration>, stay_awake: &dyn Fn() -> bool);
}

/// Returns when all pool workers have exited and no task is left. Called after the flag is set.
pub(super) fn drop_all_tasks(workers: &impl ClosingWorkers, now: impl Fn() -> Instant) {
    let next = || now() + CLOSE_INTERVAL;
    let mut next_round = next();
    let mut is_first = true;
    loop {
        let have_exited = workers.have_exited();
        if have_exited || now() >= next_round {
            workers.wake_stealable_tasks();
            next_round = next();
        }
        workers.drop_ready_tasks();
        if have_exited && workers.live_tasks() == 0 {
            return;
        }
        let interval = match (workers.live_tasks(), mem::take(&mut is_first)) {
            (0, true) => FIRST_CLOSE_INTERVAL,
            _ => CLOSE_INTERVAL,
        };
        let timeout = (!have_exited).then_some(interval);
        // A pool worker still runs a task, or a spawning thread is about to see the flag.
        workers.sleep(timeout, &|| {
            workers.has_ready_tasks()
                || workers.have_exited() && (!have_exited || workers.live_tasks() == 0)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;
    use std::cell::{Cell, RefCell};

    /// A runtime of one pool worker, which exits during the main worker's second sleep.
    struct Model {
        live: Cell<usize>,
        sleeps: RefCell<Vec<Option<Duration>>>,
    }

    impl ClosingWorkers for Model {
        fn have_exited(&self) -> bool {
            self.sleeps.borrow().len() >= 2
        }

        fn live_tasks(&self) -> usize {
            self.live.get()
        }

        fn wake_stealable_tasks(&self) {}

        fn drop_ready_tasks(&self) {
            if self.have_exited() {
                self.live.set(0);
            }
        }

        fn has_ready_tasks(&self) -> bool {
            false
        }

        fn sleep(&self, timeout: Option<Duration>, _: &dyn Fn() -> bool) {
            self.sleeps.borrow_mut().push(timeout);
        }
    }

    /// The first interval is long if no task is left that another one may wait for.
    #[test]
    fn first_round_late_without_tasks() {
        for (live, first) in [(1, CLOSE_INTERVAL), (0, FIRST_CLOSE_INTERVAL)] {
            let model = Model {
                live: Cell::new(live),
                sleeps: RefCell::default(),
            };
            drop_all_tasks(&model, now);
            let sleeps = [Some(first), Some(CLOSE_INTERVAL)];
            assert_eq!(*model.sleeps.borrow(), sleeps, "{live} tasks");
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::clock::now;
    use crate::reactor::Parker;
    use crate::reactor::Wakeup;
    use crate::scheduler::mutex_queue::MutexQueue;
    use crate::sync::ThreadSignal;
    use crate::sync::atomic::AtomicUsize;
    use loom::sync::Arc;

    /// A runtime of two pool workers that closes, and one stealable task with the states of
    /// `async-task`. Left out: what pool workers do before they notice the flag, the last one's
    /// share of the main worker's job, the rounds in which the main worker does not wait for the
    /// others, and pollers.
    struct Model {
        closing: ClosingFlag,
        exited: AtomicUsize,
        live: AtomicUsize,
        task: AtomicUsize,
        inbox: MutexQueue<()>,
        main: Parker<()>,
        thread: ThreadSignal,
        start: Instant,
    }

    /// The task is in a queue, or a waker is about to queue it.
    const SCHEDULED: usize = 1;
    const RUNNING: usize = 2;

    impl Model {
        fn new(task: usize) -> Arc<Model> {
            Arc::new(Model {
                closing: ClosingFlag::default(),
                exited: AtomicUsize::new(0),
                live: AtomicUsize::new(1),
                task: AtomicUsize::new(task),
                inbox: MutexQueue::default(),
                main: Parker::default(),
                thread: ThreadSignal::default(),
                start: now(),
            })
        }

        /// Returns whether the caller now owns the task.
        fn wake(&self) -> bool {
            self.task.fetch_or(SCHEDULED, Ordering::AcqRel) == 0
        }

        fn drop_task(&self) {
            assert_eq!(self.live.fetch_sub(1, Ordering::SeqCst), 1);
            if self.closing.is_set() {
                self.unpark_main();
            }
        }

        fn unpark_main(&self) {
            if self.main.set_attention() {
                self.thread.notify();
            }
        }

        fn exit(&self) {
            if self.exited.fetch_add(1, Ordering::SeqCst) + 1 == 2 {
                self.unpark_main();
            }
        }

        fn collect_and_exit(&self) {
            if self.inbox.pop().is_some() || self.wake() {
                self.drop_task();
            }
            self.exit();
        }

        /// A pool worker that has the task in its queue, and has not noticed the flag yet.
        fn poll_and_exit(&self) {
            self.task.swap(RUNNING, Ordering::AcqRel);
            if self.task.fetch_and(!RUNNING, Ordering::AcqRel) & SCHEDULED != 0 {
                self.drop_task();
            }
            self.exit();
        }

        fn send(&self) {
            if self.wake() {
                self.inbox.push(());
                if self.closing.is_set_after_push() {
                    self.unpark_main();
                }
            }
        }

        /// Loom fails the model if this sleeps forever.
        fn close(&self) {
            drop_all_tasks(self, || self.start);
        }
    }

    impl ClosingWorkers for Model {
        fn have_exited(&self) -> bool {
            self.exited.load(Ordering::SeqCst) == 2
        }

        fn live_tasks(&self) -> usize {
            self.live.load(Ordering::SeqCst)
        }

        fn wake_stealable_tasks(&self) {
            if self.wake() {
                self.inbox.push(());
            }
        }

        fn drop_ready_tasks(&self) {
            while self.inbox.pop().is_some() {
                self.drop_task();
            }
        }

        fn has_ready_tasks(&self) -> bool {
            !self.inbox.is_empty()
        }

        fn sleep(&self, _: Option<Duration>, stay_awake: &dyn Fn() -> bool) {
            // As in `Worker::poll_and_fire`.
            if !stay_awake() && self.main.park() == Wakeup::None {
                while !self.thread.wait(None) {}
            }
            self.main.resume();
        }
    }

    fn check(preemptions: usize, task: usize, others: [fn(&Model); 2], before: Option<fn(&Model)>) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let world = Model::new(task);
            let start = |f: fn(&Model)| {
                let world = world.clone();
                loom::thread::spawn(move || f(&world))
            };
            let mut threads: Vec<_> = before.into_iter().map(start).collect();
            world.closing.set();
            threads.extend(others.map(start));
            world.close();
            for thread in threads {
                thread.join().unwrap();
            }
        });
    }

    /// A task that is polled while others exit is dropped.
    #[test]
    fn task_polled_during_exit_is_dropped() {
        let others: [fn(&Model); 2] = [Model::collect_and_exit, Model::poll_and_exit];
        check(3, SCHEDULED, others, None);
    }

    /// A task that another thread wakes while the runtime closes is dropped.
    #[test]
    fn wake_elsewhere_during_close_drops_task() {
        let others: [fn(&Model); 2] = [Model::collect_and_exit, Model::exit];
        check(2, 0, others, Some(Model::send));
    }
}
