//! The workers of one runtime, and what they share.
//!
//! A [`Shared`] is a list of [`Remote`]s: what every thread can reach of each worker. The last one is the
//! *main worker*: the worker of the thread that made the runtime. Alone, it runs everything. Otherwise it
//! runs the future of `block_on` and local tasks only, and the others, the *pool workers*, run what is
//! spawned.
//!
//! **Homes.** With pool workers, a spawned task goes to `injected`, the queue of tasks that have not started,
//! which they share. The pool worker that takes it from there becomes its home for life. Since that is
//! for life, places count: a pool worker starts a task only while it has at most `MAX_LOAD_GAP` live tasks more
//! than the one that has fewest. One that has nothing to do but more than that leaves the task to the
//! others, for [`DEFER_TIMEOUT`](super::balance::DEFER_TIMEOUT): they may be long in coming, and then it is better
//! started in the wrong place than not at all.
//!
//! **Waking.** Whoever adds to `injected` wakes a sleeping pool worker: see [`idle`](super::idle). One
//! exception spares a wake-up in each `spawn(…).await`: the first task that a pool worker's task spawns
//! while it runs wakes nobody, since most likely that pool worker takes it itself as the next. It sees to
//! that when the running task returns, or blocks on a runtime of its own.
//!
//! **Counting.** How many tasks are alive is the difference of two sums, of tasks spawned and of
//! tasks ended. Each home has its two counters, written by its own thread only, so that no cache line
//! goes back and forth; threads that are of no home of this runtime share a third pair. Read *first*
//! the ended, *then* the spawned: if the sums are equal, no task is left. For the end of a task comes
//! after its own spawn and after those that it made; so whatever is counted as ended, everything that
//! it spawned is counted as spawned, and if that makes no difference, all of it has ended. (Spawns
//! from outside that are under way may come right after.)
//!
//! **The end of a run.** Who waits for the last task ([`watch`](Shared::watch)) marks that, and then
//! looks at the count, and then sleeps. A pool worker whose last task ends comes to rest: it parks, whose
//! fence comes after its counting, and then looks at the mark and the count
//! ([`notify_watchers`](Shared::notify_watchers)). One of both sees what the other wrote.
//!
//! **Closing.** A spawner from outside counts its task, and *then* looks whether the runtime is closing;
//! the main worker marks that, and *then* waits for the count to come to zero; all of it sequentially
//! consistent. So either the spawner sees the mark and drops its future itself, or the main worker sees the
//! task and waits for it to end_search. It does not look at whether queues are empty: a foreign thread
//! may be about to push; that one looks at the mark once more when it has pushed, and wakes the main worker.
//! Spawners that are workers of the runtime need no such care: the main worker counts
//! when they have left.
//!
//! **Failing.** A worker whose poller cannot wait any more ends the whole runtime ([`fail`](Shared::fail)),
//! since nobody else may run its tasks. It leaves its reason, marks the runtime as closing, and unparks all;
//! each looks at that mark before it sleeps. So pool workers drop their tasks, on their own threads, and the
//! main worker panics with the reason in whatever call drives it; dropping the runtime then finds it closing.

use std::sync::{Arc, OnceLock};

use super::Runnable;
use super::idle::{Idle, IdleWorkers};
use super::inbox::Inbox;
use crate::reactor::Reactor;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

#[derive(Debug)]
pub(crate) struct Shared {
    remotes: Box<[Arc<Remote>]>,
    /// Tasks that have not started. Unused without pool workers.
    inject_queue: Inbox<Runnable>,
    idle: Idle,
    external: TaskCounters,
    closing: AtomicBool,
    /// Why it closes by itself.
    failure: OnceLock<String>,
    /// Members that have ended.
    exited: AtomicUsize,
    /// How many wait for the last task to end.
    watchers: AtomicUsize,
}

/// What every thread can reach of one worker. On cache lines of its own: its neighbours are other
/// threads'.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Remote {
    pub(crate) reactor: Arc<Reactor>,
    pub(super) inbox: Inbox<Runnable>,
    counters: TaskCounters,
    /// Tasks that live here. Written by the home's thread.
    load: AtomicUsize,
    /// Asleep for a moment only, since there is a backlog that others should take.
    deferring: AtomicBool,
}

#[derive(Debug, Default)]
struct TaskCounters {
    spawned: AtomicUsize,
    ended: AtomicUsize,
}

impl TaskCounters {
    /// By the one thread that writes it.
    #[inline]
    fn add(counter: &AtomicUsize) {
        let count = counter.load(Ordering::Relaxed).wrapping_add(1);
        counter.store(count, Ordering::Release);
    }
}

impl Remote {
    #[inline]
    pub(crate) fn has_inbox(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// By the home's thread.
    #[inline]
    pub(super) fn set_load(&self, load: usize) {
        self.load.store(load, Ordering::Relaxed);
    }

    pub(super) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    pub(super) fn set_deferring(&self, deferring: bool) {
        self.deferring.store(deferring, Ordering::Relaxed);
    }
}

/// The place of a task that has not started.
pub(super) const UNASSIGNED: usize = usize::MAX;

impl Shared {
    /// The last reactor is the main worker's.
    pub(crate) fn new(reactors: impl IntoIterator<Item = Arc<Reactor>>) -> Shared {
        let remotes: Box<[Arc<Remote>]> = (reactors.into_iter())
            .map(|reactor| {
                Arc::new(Remote {
                    reactor,
                    inbox: Inbox::new(),
                    counters: TaskCounters::default(),
                    load: AtomicUsize::new(0),
                    deferring: AtomicBool::new(false),
                })
            })
            .collect();
        assert!(!remotes.is_empty(), "a shared has a main_worker");
        Shared {
            remotes,
            inject_queue: Inbox::new(),
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

    /// The place of the worker that the runtime's thread drives.
    #[inline]
    pub(crate) fn main_index(&self) -> usize {
        self.remotes.len() - 1
    }

    /// Those that share what is spawned.
    #[inline]
    fn pool_workers(&self) -> &[Arc<Remote>] {
        &self.remotes[..self.main_index()]
    }

    /// How many threads run what is spawned.
    pub(crate) fn workers(&self) -> usize {
        self.pool_workers().len().max(1)
    }

    /// Where a task that may run anywhere belongs before it starts.
    #[inline]
    pub(crate) fn initial_worker(&self) -> usize {
        match self.main_index() {
            0 => 0,
            _ => UNASSIGNED,
        }
    }

    /// Whether the workers that are awake are more than the `cores` they may use: then none of these is to
    /// be kept for nothing. (That another process wants the one core that is left shows in how long things
    /// take.)
    pub(crate) fn is_crowded(&self, cores: usize) -> bool {
        let awake = self
            .remotes
            .iter()
            .filter(|remote| !remote.reactor.is_parked());
        awake.count() > cores
    }

    // Counting.

    /// A task was made, by the worker at `index` or from outside.
    #[inline]
    pub(super) fn task_spawned(&self, index: Option<usize>) {
        match index {
            Some(index) => TaskCounters::add(&self.remotes[index].counters.spawned),
            None => {
                self.external.spawned.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// A task's future is gone.
    #[inline]
    pub(super) fn task_ended(&self, index: Option<usize>) {
        match index {
            Some(index) => TaskCounters::add(&self.remotes[index].counters.ended),
            None => {
                self.external.ended.fetch_add(1, Ordering::SeqCst);
            }
        }
        if self.is_closing() {
            self.remotes[self.main_index()].reactor.unpark();
        }
    }

    /// How many tasks have a future. Zero is exact, for whoever has spawned the first of them.
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

    /// From here on whoever ends the last task wakes the main worker. To be called before the count is looked
    /// at.
    pub(crate) fn watch(&self) {
        self.watchers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn unwatch(&self) {
        self.watchers.fetch_sub(1, Ordering::SeqCst);
    }

    /// A pool worker is about to sleep, and has declared itself parked.
    #[inline]
    pub(crate) fn notify_watchers(&self) {
        if self.watchers.load(Ordering::Relaxed) > 0 && self.live_tasks() == 0 {
            self.remotes[self.main_index()].reactor.unpark();
        }
    }

    // Closing.

    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// From here on tasks that are spawned are cancelled at once, and pool workers end.
    pub(crate) fn start_closing(&self) {
        self.closing.store(true, Ordering::SeqCst);
        for remote in self.pool_workers() {
            remote.reactor.try_to_unpark();
        }
    }

    /// A worker cannot go on, and says why: the runtime closes by itself. Members end as in any closing,
    /// each dropping its tasks, and whoever drives the main worker is told.
    pub(crate) fn fail(&self, why: String) {
        // Before the mark, so that whoever sees that sees this. The first one counts.
        let _ = self.failure.set(why);
        self.start_closing();
        self.remotes[self.main_index()].reactor.try_to_unpark();
    }

    /// Why it has closed by itself, if it has.
    pub(crate) fn failure(&self) -> Option<&str> {
        match self.is_closing() {
            true => self.failure.get().map(String::as_str),
            false => None,
        }
    }

    /// A pool worker ends.
    pub(crate) fn worker_exited(&self) {
        self.exited.fetch_add(1, Ordering::SeqCst);
        self.remotes[self.main_index()].reactor.try_to_unpark();
    }

    /// Whether so many pool workers have ended.
    pub(crate) fn all_exited(&self, pool: usize) -> bool {
        self.exited.load(Ordering::SeqCst) == pool
    }

    /// Schedules a new task for the first time; drops, and so cancels it, if the runtime is closing.
    #[inline]
    pub(crate) fn schedule_new(&self, runnable: Runnable) {
        match self.is_closing() {
            true => drop(runnable),
            false => runnable.schedule(),
        }
    }

    // Tasks that have not started.

    /// Adds one. To be followed by [`wake_one`](Self::wake_one), now or soon.
    pub(super) fn inject(&self, runnable: Runnable) {
        self.inject_queue.push(runnable);
    }

    #[inline]
    pub(crate) fn has_injected(&self) -> bool {
        !self.inject_queue.is_empty()
    }

    /// Takes one, whoever asks.
    #[inline]
    pub(crate) fn take_injected(&self) -> Option<Runnable> {
        self.inject_queue.pop()
    }

    /// How many tasks the pool worker owns that owns the fewest.
    pub(super) fn least_load(&self) -> usize {
        let loads = self.pool_workers().iter().map(|remote| remote.load());
        loads.min().unwrap_or(0)
    }

    /// Wakes a sleeping pool worker if there is a backlog, and none is on its way.
    #[inline]
    pub(crate) fn wake_one(&self) {
        self.idle.wake_one(self);
    }

    /// Whether the pool worker at `index` was woken for the backlog. Then it is to take what it wants, and
    /// to say [`end_search`](Self::end_search).
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
        let pool = self.pool_workers().iter().enumerate();
        pool.filter(|(_, remote)| {
            remote.reactor.is_parked() && !remote.deferring.load(Ordering::Relaxed)
        })
        .min_by_key(|(_, remote)| remote.load())
        .map(|(index, _)| index)
    }

    fn wake(&self, index: usize) -> bool {
        self.remotes[index].reactor.try_unpark()
    }
}
