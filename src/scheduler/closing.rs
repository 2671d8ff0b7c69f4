//! How the main worker ends a runtime: until no task is left.
//!
//! The flag that says so, and who reads it: see "Closing" in `shared`.
//!
//! A pool worker drops the tasks that stay with it, and the movable ones that it finds; then it
//! exits. Movable tasks may be left:
//!
//! * one that another thread sends to a worker which has exited;
//! * one that was ready on a worker which polls it once more before it notices, while the worker in
//!   whose list it is looks for those that wait;
//! * all those of a worker that is in the middle of a task.
//!
//! So the main worker drops what is ready on any of them, and wakes what is in their lists, so that
//! it is ready: when all have exited, and nobody polls a task any more; and every
//! [`CLOSE_INTERVAL`] until then, since a task may block its worker until another one is dropped.
//! What the tasks had registered with a worker that is in the middle of a task it deregisters
//! there itself (`Worker::release_sources`), as a worker that helps another one.
//! (Where the main worker is not driven, after a failure, the last pool worker to exit does what it
//! can of that.)
//!
//! **Why it does not sleep while there is something for it.** Whoever sends a task, or drops one,
//! or exits, does so and then unparks the main worker, which looks for all three before it parks,
//! and does not sleep if it was unparked since it last resumed. That all have exited it has to act
//! upon even if a task is left: so it looks whether *that* has changed since the round began.
//! `loom` checks this below.

use std::time::{Duration, Instant};

use crate::sync::atomic::{AtomicBool, Ordering, fence};

/// How often the main worker, while it closes, comes round for what pool workers that are in the
/// middle of a task have left lying: not so often that it keeps them from their lists, soon beside
/// what anybody notices of a shutdown.
const CLOSE_INTERVAL: Duration = Duration::from_millis(1);

/// Whether a runtime closes; set once.
#[derive(Debug)]
pub(super) struct ClosingFlag(AtomicBool);

impl ClosingFlag {
    pub(super) fn new() -> ClosingFlag {
        ClosingFlag(AtomicBool::new(false))
    }

    #[inline]
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    pub(super) fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
        // Whoever has not seen the flag has pushed before this: the look that follows finds it.
        fence(Ordering::SeqCst);
    }

    /// Unparks the main worker if it closes the runtime: a task was pushed where it looks. Returns
    /// whether it closes. The push comes before the read of the flag; the main worker sets the
    /// flag, and then looks.
    #[inline]
    pub(super) fn pushed(&self, unpark_main: impl FnOnce()) -> bool {
        fence(Ordering::SeqCst);
        self.counted(unpark_main)
    }

    /// [`pushed`](Self::pushed), for a count that the main worker waits for. The caller has
    /// changed it.
    #[inline]
    pub(super) fn counted(&self, unpark_main: impl FnOnce()) -> bool {
        let is_set = self.is_set();
        if is_set {
            unpark_main();
        }
        is_set
    }
}

/// What [`drop_all_tasks`] needs of the main worker and of the pool workers.
pub(super) trait ClosingWorkers {
    /// Whether all pool workers have exited.
    fn have_exited(&self) -> bool;

    fn live_tasks(&self) -> usize;

    /// Wakes every movable task that was polled.
    fn wake_movable_tasks(&self);

    /// Drops the main worker's tasks, and those that are ready or injected and may move.
    fn drop_ready_tasks(&self);

    /// Whether another thread has sent one of these.
    fn has_ready_tasks(&self) -> bool;

    fn now(&self) -> Instant;

    /// Sleeps until it is unparked, unless `stay_awake` returns true, or it was unparked since it
    /// last resumed.
    fn sleep(&self, timeout: Option<Duration>, stay_awake: &dyn Fn() -> bool);
}

/// Returns when all pool workers have exited and no task is left. To be called by the main worker
/// when the flag is set.
pub(super) fn drop_all_tasks(workers: &impl ClosingWorkers) {
    let mut last_round = None;
    loop {
        let have_exited = workers.have_exited();
        if have_exited || last_round.is_some_and(|it| workers.now() >= it + CLOSE_INTERVAL) {
            workers.wake_movable_tasks();
            last_round = None;
        }
        workers.drop_ready_tasks();
        if have_exited && workers.live_tasks() == 0 {
            return;
        }
        let timeout = (!have_exited).then_some(CLOSE_INTERVAL);
        last_round = last_round.or_else(|| timeout.map(|_| workers.now()));
        // A pool worker still runs a task, or a thread that spawns is about to see the flag.
        workers.sleep(timeout, &|| {
            workers.has_ready_tasks()
                || workers.have_exited() && (!have_exited || workers.live_tasks() == 0)
        });
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::reactor::Since;
    use crate::reactor::now;
    use crate::reactor::parking::Parking;
    use crate::scheduler::mutex_queue::MutexQueue;
    use crate::sync::Mutex;
    use crate::sync::atomic::AtomicUsize;
    use loom::sync::{Arc, Condvar};

    /// A runtime of two pool workers that closes, and one movable task, which waits, is ready, or
    /// is polled, as `async-task` has it. Left out: what pool workers do before they notice, that
    /// the last one does as the main worker, the rounds in which that does not wait for them, and
    /// pollers; the main worker wakes where it was unparked.
    struct World {
        closing: ClosingFlag,
        exited: AtomicUsize,
        live: AtomicUsize,
        task: AtomicUsize,
        inbox: MutexQueue<()>,
        main: Parking,
        notified: Mutex<bool>,
        woken: Condvar,
        start: Instant,
    }

    /// The task is in a queue, or whoever has woken it is about to put it there.
    const SCHEDULED: usize = 1;
    const RUNNING: usize = 2;

    impl World {
        fn new(task: usize) -> Arc<World> {
            Arc::new(World {
                closing: ClosingFlag::new(),
                exited: AtomicUsize::new(0),
                live: AtomicUsize::new(1),
                task: AtomicUsize::new(task),
                inbox: MutexQueue::new(),
                main: Parking::new(),
                notified: Mutex::new(false),
                woken: Condvar::new(),
                start: now(),
            })
        }

        /// Returns whether the caller has the task now.
        fn wake(&self) -> bool {
            self.task.fetch_or(SCHEDULED, Ordering::AcqRel) == 0
        }

        fn drop_task(&self) {
            assert_eq!(self.live.fetch_sub(1, Ordering::SeqCst), 1);
            self.closing.counted(|| self.unpark_main());
        }

        fn unpark_main(&self) {
            if self.main.unpark() {
                *self.notified.lock() = true;
                self.woken.notify_one();
            }
        }

        fn exit(&self) {
            self.exited.fetch_add(1, Ordering::SeqCst);
            self.unpark_main();
        }

        /// A pool worker in whose list the task is.
        fn look_and_exit(&self) {
            if self.inbox.pop().is_some() || self.wake() {
                self.drop_task();
            }
            self.exit();
        }

        /// A pool worker that has the task in its queue, and has not noticed yet.
        fn poll_and_exit(&self) {
            self.task.swap(RUNNING, Ordering::AcqRel);
            // Woken meanwhile, it is in the queue again.
            if self.task.fetch_and(!RUNNING, Ordering::AcqRel) & SCHEDULED != 0 {
                self.drop_task();
            }
            self.exit();
        }

        /// A thread that wakes the task.
        fn send(&self) {
            if self.wake() {
                self.inbox.push(());
                self.closing.pushed(|| self.unpark_main());
            }
        }

        /// Loom fails the model if this sleeps for ever.
        fn close(&self) {
            drop_all_tasks(self);
        }
    }

    impl ClosingWorkers for World {
        fn have_exited(&self) -> bool {
            self.exited.load(Ordering::SeqCst) == 2
        }

        fn live_tasks(&self) -> usize {
            self.live.load(Ordering::SeqCst)
        }

        fn wake_movable_tasks(&self) {
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

        /// No time passes.
        fn now(&self) -> Instant {
            self.start
        }

        fn sleep(&self, _: Option<Duration>, stay_awake: &dyn Fn() -> bool) {
            // As `Worker::look` has it.
            if !stay_awake() && self.main.park() == Since::Nothing {
                let mut notified = self.notified.lock();
                while !*notified {
                    notified = self.woken.wait(notified).unwrap();
                }
                *notified = false;
            }
            self.main.resume();
        }
    }

    fn check(preemptions: usize, task: usize, others: [fn(&World); 2], before: Option<fn(&World)>) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let world = World::new(task);
            let start = |f: fn(&World)| {
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

    #[test]
    fn a_task_that_is_polled_while_others_exit_is_dropped() {
        let others: [fn(&World); 2] = [World::look_and_exit, World::poll_and_exit];
        check(3, SCHEDULED, others, None);
    }

    #[test]
    fn a_task_that_another_thread_wakes_while_the_runtime_closes_is_dropped() {
        let others: [fn(&World); 2] = [World::look_and_exit, World::exit];
        check(2, 0, others, Some(World::send));
    }
}
