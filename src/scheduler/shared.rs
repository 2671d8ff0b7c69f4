//! What the workers of one runtime share.
//!
//! [`Shared`] has a [`Remote`] for each worker: what every thread can reach of it. The last one
//! belongs to the *main worker*, which the thread that made the runtime drives. Without a pool it
//! runs everything. With one it runs the future of `block_on` and local tasks, and the *pool
//! workers* run what is spawned.
//!
//! **The inject queue** has the tasks that were never polled, if there is a pool. The pool worker
//! that takes a task from it polls it from then on: tasks are not stolen. See
//! [`balance`](super::balance) for which worker takes how many.
//!
//! **Waking.** Whoever injects a task wakes an idle pool worker: see [`idle`](super::idle). One
//! exception spares a wake-up in each `spawn(…).await`: the first task that a pool worker's task
//! spawns while it runs wakes nobody, since most likely the same pool worker takes it next. If not,
//! that worker wakes another one when the running task returns, or drives a runtime of its own.
//!
//! **Counting.** The number of live tasks is the difference of two sums, of tasks spawned and of
//! tasks ended. Each worker has its two counters, which only its thread writes, so that no cache
//! line is contended; all other threads share a third pair. The sum of ended tasks is read *first*:
//! if the sums are equal, no task is left. For a task ends after its own spawn and after those that
//! it made; so everything that the tasks counted as ended have spawned is counted as spawned, and
//! if that makes no difference, all of it has ended. (Spawns from other threads may follow at any
//! time.)
//!
//! **Waiting for the last task.** Who waits for it ([`watch`](Shared::watch)) says so, then reads
//! the count, then sleeps. A pool worker that goes to sleep after its last task ended parks, whose
//! fence comes after its counting, and then reads the watchers and the count
//! ([`notify_watchers`](Shared::notify_watchers)). One of the two sees what the other wrote.
//!
//! **Closing.** A thread that is no worker of the runtime counts the task that it spawns, and
//! *then* reads whether the runtime is closing. The main worker sets that flag, and *then* waits
//! for the count to become zero. All of it is sequentially consistent: either the spawner sees the
//! flag and drops the future itself, or the main worker sees the task and waits for its end. Empty
//! queues would not do: the spawner may be about to push. It reads the flag again after it has
//! pushed, and unparks the main worker. Workers of the runtime need no such care, since the main
//! worker reads the count after they have exited.
//!
//! **Failing.** A worker whose poller cannot wait any more closes the whole runtime
//! ([`fail`](Shared::fail)), since nobody else may run its tasks. It stores the reason, sets the
//! flag, and unparks all workers, which read the flag then. The pool workers drop
//! their tasks, on their own threads; the main worker panics with the reason in the call that
//! drives it, or the next one.

use std::sync::{Arc, OnceLock};

use super::Runnable;
use super::idle::{Idle, IdleWorkers};
use super::mutex_queue::MutexQueue;
use crate::reactor::Reactor;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// What the workers of one runtime share.
#[derive(Debug)]
pub(crate) struct Shared {
    remotes: Box<[Arc<Remote>]>,
    /// Tasks that were never polled. Unused without pool workers.
    inject_queue: MutexQueue<Runnable>,
    idle: Idle,
    /// Of threads that are no workers of this runtime.
    external: TaskCounters,
    closing: AtomicBool,
    /// Why the runtime has failed.
    failure: OnceLock<String>,
    /// How many pool workers have exited.
    exited: AtomicUsize,
    /// How many wait for the last task to end.
    watchers: AtomicUsize,
}

/// What every thread can reach of one worker. On cache lines of its own, since the ones beside it
/// belong to other threads.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Remote {
    pub(crate) reactor: Arc<Reactor>,
    pub(super) inbox: MutexQueue<Runnable>,
    counters: TaskCounters,
    /// How many tasks the worker owns. Written by its thread.
    load: AtomicUsize,
    /// It sleeps for a moment only, while others should take injected tasks. Written by its thread.
    deferring: AtomicBool,
}

#[derive(Debug, Default)]
struct TaskCounters {
    spawned: AtomicUsize,
    ended: AtomicUsize,
}

impl TaskCounters {
    /// Adds one, on the only thread that writes the counter.
    #[inline]
    fn add(counter: &AtomicUsize) {
        let count = counter.load(Ordering::Relaxed).wrapping_add(1);
        counter.store(count, Ordering::Release);
    }
}

impl Remote {
    fn new(reactor: Arc<Reactor>) -> Remote {
        Remote {
            reactor,
            inbox: MutexQueue::new(),
            counters: TaskCounters::default(),
            load: AtomicUsize::new(0),
            deferring: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(crate) fn has_inbox(&self) -> bool {
        !self.inbox.is_empty()
    }

    #[inline]
    pub(super) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    /// On the worker's thread.
    #[inline]
    pub(super) fn set_load(&self, load: usize) {
        self.load.store(load, Ordering::Relaxed);
    }

    /// On the worker's thread.
    pub(super) fn set_deferring(&self, deferring: bool) {
        self.deferring.store(deferring, Ordering::Relaxed);
    }
}

/// The worker of a task that no pool worker has taken yet.
pub(super) const UNASSIGNED: usize = usize::MAX;

impl Shared {
    /// The last reactor is the main worker's.
    pub(crate) fn new(reactors: impl IntoIterator<Item = Arc<Reactor>>) -> Shared {
        let remotes = reactors.into_iter().map(Remote::new).map(Arc::new);
        let remotes: Box<[Arc<Remote>]> = remotes.collect();
        assert!(!remotes.is_empty(), "every runtime has a main worker");
        Shared {
            remotes,
            inject_queue: MutexQueue::new(),
            idle: Idle::new(),
            external: TaskCounters::default(),
            closing: AtomicBool::new(false),
            failure: OnceLock::new(),
            exited: AtomicUsize::new(0),
            watchers: AtomicUsize::new(0),
        }
    }

    #[inline]
    pub(crate) fn remote(&self, index: usize) -> &Arc<Remote> {
        &self.remotes[index]
    }

    #[inline]
    pub(crate) fn main_index(&self) -> usize {
        self.remotes.len() - 1
    }

    #[inline]
    pub(crate) fn main(&self) -> &Arc<Remote> {
        &self.remotes[self.main_index()]
    }

    #[inline]
    pub(super) fn unpark_main(&self) {
        self.main().reactor.unpark();
    }

    #[inline]
    fn pool_workers(&self) -> &[Arc<Remote>] {
        &self.remotes[..self.main_index()]
    }

    /// How many threads run what is spawned.
    pub(crate) fn workers(&self) -> usize {
        self.pool_workers().len().max(1)
    }

    /// The worker of a new task that may run anywhere.
    #[inline]
    pub(crate) fn initial_worker(&self) -> usize {
        match self.main_index() {
            0 => 0,
            _ => UNASSIGNED,
        }
    }

    /// Whether more workers are awake than there are `cores`, so that none should busy-poll. (That
    /// another process wants a core shows only in how long things take.)
    pub(crate) fn is_crowded(&self, cores: usize) -> bool {
        let awake = self
            .remotes
            .iter()
            .filter(|remote| !remote.reactor.is_parked());
        awake.count() > cores
    }

    // Counting.

    /// A task was spawned, by the worker at `index` or by another thread.
    #[inline]
    pub(super) fn task_spawned(&self, index: Option<usize>) {
        match index {
            Some(index) => TaskCounters::add(&self.remotes[index].counters.spawned),
            None => {
                self.external.spawned.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// A task's future was dropped, by the worker at `index` or by another thread.
    #[inline]
    pub(super) fn task_ended(&self, index: Option<usize>) {
        match index {
            Some(index) => TaskCounters::add(&self.remotes[index].counters.ended),
            None => {
                self.external.ended.fetch_add(1, Ordering::SeqCst);
            }
        }
        if self.is_closing() {
            self.unpark_main();
        }
    }

    /// How many tasks have a future. Zero is exact for all tasks that were spawned before the call,
    /// and for what those have spawned.
    #[inline]
    pub(crate) fn live_tasks(&self) -> usize {
        let sum = |counter: fn(&TaskCounters) -> &AtomicUsize| {
            let remotes = self.remotes.iter().map(|remote| &remote.counters);
            remotes
                .chain([&self.external])
                .map(|tasks| counter(tasks).load(Ordering::SeqCst))
                .fold(0, usize::wrapping_add)
        };
        let ended = sum(|tasks| &tasks.ended);
        sum(|tasks| &tasks.spawned).wrapping_sub(ended)
    }

    /// From here on a pool worker that goes to sleep and finds no task left wakes the main worker.
    /// Call it before [`live_tasks`](Self::live_tasks).
    pub(crate) fn watch(&self) {
        self.watchers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn unwatch(&self) {
        self.watchers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes the main worker if it waits for the last task to end, and none is left. A pool worker
    /// calls it before it sleeps, after it has parked.
    #[inline]
    pub(crate) fn notify_watchers(&self) {
        if self.watchers.load(Ordering::Relaxed) > 0 && self.live_tasks() == 0 {
            self.unpark_main();
        }
    }

    // Closing.

    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// From here on tasks that are spawned are cancelled at once, and pool workers exit.
    pub(crate) fn start_closing(&self) {
        self.closing.store(true, Ordering::SeqCst);
        for remote in self.pool_workers() {
            remote.reactor.unpark_best_effort();
        }
    }

    /// A worker cannot go on: closes the runtime, and stores the reason. Of several the first one
    /// counts.
    pub(crate) fn fail(&self, reason: String) {
        // Before the flag, so that whoever sees the flag sees the reason.
        let _ = self.failure.set(reason);
        self.start_closing();
        self.main().reactor.unpark_best_effort();
    }

    /// Why the runtime has failed, if it has.
    pub(crate) fn failure(&self) -> Option<&str> {
        match self.is_closing() {
            true => self.failure.get().map(String::as_str),
            false => None,
        }
    }

    /// A pool worker exits.
    pub(crate) fn worker_exited(&self) {
        self.exited.fetch_add(1, Ordering::SeqCst);
        self.main().reactor.unpark_best_effort();
    }

    /// How many pool workers have exited.
    pub(crate) fn exited_workers(&self) -> usize {
        self.exited.load(Ordering::SeqCst)
    }

    /// Schedules a new task. If the runtime is closing, drops it, which cancels it.
    #[inline]
    pub(crate) fn schedule_new(&self, runnable: Runnable) {
        match self.is_closing() {
            true => drop(runnable),
            false => runnable.schedule(),
        }
    }

    // The inject queue.

    /// Adds a task. To be followed by [`wake_one`](Self::wake_one), now or soon.
    pub(super) fn inject(&self, runnable: Runnable) {
        self.inject_queue.push(runnable);
    }

    #[inline]
    pub(crate) fn has_injected(&self) -> bool {
        !self.inject_queue.is_empty()
    }

    #[inline]
    pub(crate) fn take_injected(&self) -> Option<Runnable> {
        self.inject_queue.pop()
    }

    /// How many tasks the pool worker owns that owns the fewest.
    pub(super) fn least_load(&self) -> usize {
        let loads = self.pool_workers().iter().map(|remote| remote.load());
        loads.min().unwrap_or(0)
    }

    /// Wakes an idle pool worker if there are injected tasks, and no worker is searching.
    #[inline]
    pub(crate) fn wake_one(&self) {
        self.idle.wake_one(self);
    }

    /// Whether the pool worker at `index` was woken for injected tasks. If so, it takes what it
    /// wants, and calls [`end_search`](Self::end_search).
    #[inline]
    pub(crate) fn is_searching(&self, index: usize) -> bool {
        self.idle.is_searching(index)
    }

    pub(crate) fn end_search(&self, index: usize) {
        self.idle.end_search(index, self);
    }
}

impl IdleWorkers for Shared {
    #[inline]
    fn has_injected(&self) -> bool {
        self.has_injected()
    }

    #[inline]
    fn find_idle(&self) -> Option<usize> {
        let workers = self.pool_workers().iter().enumerate();
        let idle = workers.filter(|(_, remote)| {
            remote.reactor.is_parked() && !remote.deferring.load(Ordering::Relaxed)
        });
        idle.min_by_key(|(_, remote)| remote.load())
            .map(|(index, _)| index)
    }

    fn wake(&self, index: usize) -> bool {
        self.remotes[index].reactor.unpark()
    }
}
