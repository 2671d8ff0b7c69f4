//! The state that the workers of one runtime share.
//!
//! [`Shared`] has a [`Remote`] for each worker. The last one belongs to the *main worker*, which
//! the thread that made the runtime drives. With a pool it runs only the future of `block_on` and
//! local tasks, and the *pool workers* run spawned tasks.
//!
//! **The inject queue** has new stealable tasks, those that a thread outside the pool has woken,
//! and those that did not fit in a run queue. A pool worker moves its share to its own queue, where
//! others may steal: see `Local::take_share`.
//!
//! **Waking.** Injecting a task wakes an idle pool worker: see [`searcher`](super::searcher). One
//! exception saves a wake-up in each `spawn(…).await`: the first task that a pool worker's task
//! spawns wakes no worker, since the same worker takes it when its own queues are empty. Each
//! further one does, immediately. When the spawning task returns, and its worker has other ready
//! tasks, the worker wakes another one; it also does when the spawning task drives a runtime. A
//! task that the running task wakes, and that will not run next, wakes another worker only at the
//! end of the run; a spawn after it wakes one immediately. (If a task, or foreign code such as a
//! waker, keeps its worker from another ready task for long, the [monitor](super::monitor) finds
//! that one.)
//!
//! **Counting.** The number of live tasks is the number spawned minus the number ended. Each worker
//! writes two counters of its own, so that no cache line is contended; all other threads share a
//! third pair. The ended tasks are read *first*. A task ends after its own spawn and after the
//! spawns that it made. So everything that the tasks counted as ended have spawned is counted as
//! spawned: if the sums are equal, all of these tasks have ended.
//!
//! **Waiting for the last task.** A waiter registers itself
//! ([`await_last_task`](Shared::await_last_task)), then reads the count, then parks. A pool worker
//! parks, which is a fence after its counting, then reads the number of waiters and the count
//! ([`unpark_main_if_no_task_is_left`](Shared::unpark_main_if_no_task_is_left)). At least one of
//! the two sees the write of the other.
//!
//! **Closing.** A thread that is not a worker of the runtime counts the task that it spawns, and
//! *then* reads whether the runtime is closing. The main worker sets that flag, and *then* waits
//! for the count to become zero. All of these accesses are sequentially consistent: either the
//! spawner sees the flag and drops the future itself, or the main worker sees the task and waits
//! for its end. (A worker's own count need not be: the main worker reads it after the pool workers
//! have exited.) Empty queues would not suffice: the spawner may be about to push. It reads the
//! flag again after the push, and if it is set, unparks the main worker. A spawner that has seen
//! the flag counts no further task, and counts the end of one that it has counted before it drops
//! it. So the main worker waits for at most one task of each thread, and for none of its
//! destructors: see [`schedule`](mod@super::schedule), and [`closing`](super::closing) for the
//! cleanup of stealable tasks.
//!
//! **Failing.** If a worker's poller can no longer wait, the worker closes the whole runtime
//! ([`fail`](Shared::fail)), since no other thread may run its tasks. It stores the reason, sets
//! the flag, and unparks all workers. The pool workers drop their tasks; the main worker panics
//! with the reason in the call that drives it, or in the next one.

use std::any::Any;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use super::closing::ClosingFlag;
use super::header::{Affinity, Header, Runnable, TaskRef};
use super::local::Local;
use super::mutex_queue::MutexQueue;
use super::run_queue::RunQueue;
use super::searcher::{IdleWorkers, Searcher};
use super::sleep::{MonitorPause, Shard};
use crate::poller::Poller;
use crate::reactor::{Driver, Parker, PoolId, Reactor};
use crate::slab::Slab;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering, fence};
use crate::sync::{Mutex, OnDrop};
use crate::telemetry::{Counter, Counters, TraceLog, requests::Requests};

/// A type-erased value of a higher module, kept with the runtime.
pub(crate) type Erased = Arc<dyn Any + Send + Sync>;

/// By default there are no workers.
#[derive(Default)]
pub(crate) struct Shared {
    remotes: Box<[Arc<Remote>]>,
    /// Unused without pool workers. After a push call [`wake_one`](Self::wake_one), immediately or
    /// soon. Two kinds of push need none, since the worker that pushes looks here before it sleeps:
    /// its overflow (`Local::push_stealable`), and the first task that a task spawns, if no other
    /// is ready.
    pub(super) inject_queue: MutexQueue<Runnable>,
    pub(super) searcher: Searcher,
    /// Of a pool that is inspected.
    pub(crate) monitor_pause: Option<&'static MonitorPause>,
    /// Counts the monitor's calls of [`want_help`](Self::want_help).
    help_wanted: AtomicUsize,
    /// The pool workers by shared reactor, in the order of their indices. Empty without a pool.
    pub(super) shards: Box<[Shard]>,
    /// The number of workers of each shard but the last. Not on the cache lines that shards write.
    pub(super) workers_of_shard: usize,
    /// Of threads that are not workers of this runtime.
    external: TaskCounters,
    closing: ClosingFlag,
    failure: OnceLock<String>,
    /// The number of pool workers that have dropped every task that they found and poll no more.
    leaving: AtomicUsize,
    /// Pool workers that have exited, or will never start.
    exited: AtomicUsize,
    last_task_waiters: AtomicUsize,
    /// The number of tasks spawned by destructors of late tasks: see
    /// [`schedule`](mod@super::schedule).
    pub(super) late: AtomicUsize,
    /// The runtime's own name resolver, a `runtime::Resolver`. Its function may own a handle, a
    /// task or a waker of this runtime, each of which owns `Shared`. Closing takes it out, to break
    /// the cycle.
    pub(crate) resolver: Mutex<Option<Erased>>,
    /// State that the last dump has left for the next one: see `diagnostics::hints`.
    pub(crate) earlier: Mutex<Option<Erased>>,
    pub(crate) trace: Option<Arc<TraceLog>>,
    /// Whether one thread drives all workers, as a simulator's does: then no worker can answer
    /// another, and an installed [`Kernel`](crate::kernel::Kernel) chooses the order of tasks.
    pub(crate) is_on_one_thread: bool,
}

/// A question of another thread about a worker. A trait, so that only programs that ask link the
/// code that answers.
pub(crate) trait Question: Send + Sync {
    /// Runs on the worker's thread, and no foreign code.
    fn answer(&self, local: &Local, driver: &Driver);
}

/// No number of polls.
const NEVER: usize = usize::MAX;

/// The part of one worker that every thread can reach. Aligned, so that no two workers share a
/// cache line.
#[repr(align(128))]
pub(crate) struct Remote {
    /// The reactor that the worker drives: its own, or its shard's.
    pub(crate) reactor: Arc<Reactor>,
    pub(crate) parker: Arc<Parker>,
    pub(crate) counters: Arc<Counters>,
    pub(super) inbox: MutexQueue<Runnable>,
    /// Of a pool worker.
    pub(super) pool_remote: Option<Arc<PoolRemote>>,
    task_counters: TaskCounters,
    /// The number of the worker's pinned tasks that were polled and still have their futures,
    /// except a task in its first poll. Not the length of their list, which closing takes away.
    pub(super) pinned: Counter,
    /// A [`Drive`]. Written by the worker's thread.
    drive: AtomicU8,
    /// The system's id of the thread that drives the worker, or drove it last; zero if unknown.
    pub(super) thread: AtomicU32,
    /// The number of polls at which the monitor has found the worker stuck, or [`NEVER`].
    stuck_in: AtomicUsize,
    /// Whether the worker busy-polls: it is awake, and begins no poll, but helps.
    pub(super) busy_polls: AtomicBool,
    pub(crate) requests: Requests<dyn Question>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Drive {
    None,
    /// By a foreign loop, which is busy elsewhere. It runs a turn when notified, unless it is stuck
    /// or gone.
    BetweenTurns,
    /// By a call. A pool worker is driven until it exits.
    Driven,
}

/// The part of a pool worker, beside its [`Remote`], that every thread can reach: stealable tasks.
#[derive(Default)]
pub(crate) struct PoolRemote {
    /// Tasks that are ready. Only the worker pushes.
    pub(super) queue: RunQueue<Runnable>,
    pub(crate) owned: OwnedTasks,
}

impl PoolRemote {
    /// Takes a ready stealable task. Called on any thread.
    fn take(&self) -> Option<Runnable> {
        let mut taken = None;
        self.queue.steal(1, true, |runnable| taken = Some(runnable));
        taken
    }
}

/// The stealable tasks that a worker was the first to poll, until their futures are dropped.
#[derive(Debug, Default)]
pub(crate) struct OwnedTasks {
    tasks: Mutex<Slab<TaskRef>>,
    /// The length of the list, readable without the lock. Written under it.
    count: AtomicUsize,
}

impl OwnedTasks {
    pub(super) fn wake_all(&self) {
        let tasks = self.tasks.lock();
        let wakers: Vec<Waker> = tasks.values().map(|task| task.waker().clone()).collect();
        drop(tasks);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Calls `f`, which runs no foreign code, with each task.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&TaskRef)) {
        self.tasks.lock().values().for_each(&mut f);
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    #[inline(never)]
    pub(super) fn insert(&self, task: TaskRef) -> usize {
        let mut tasks = self.tasks.lock();
        let index = tasks.insert(task);
        self.count.store(tasks.len(), Ordering::Relaxed);
        index
    }

    #[inline(never)]
    pub(super) fn remove(&self, index: usize) {
        let mut tasks = self.tasks.lock();
        let removed = tasks.remove(index);
        self.count.store(tasks.len(), Ordering::Relaxed);
        drop(tasks);
        drop(removed);
    }
}

#[derive(Default)]
struct TaskCounters {
    spawned: AtomicUsize,
    ended: AtomicUsize,
}

impl Remote {
    fn new(reactor: Arc<Reactor>, parker: Arc<Parker>, is_pool_worker: bool) -> Remote {
        Remote {
            reactor,
            parker,
            counters: Arc::default(),
            inbox: MutexQueue::default(),
            pool_remote: is_pool_worker.then(Arc::default),
            task_counters: TaskCounters::default(),
            pinned: Counter::default(),
            // A pool worker's thread starts soon.
            drive: AtomicU8::new(if is_pool_worker {
                Drive::Driven
            } else {
                Drive::None
            } as u8),
            thread: AtomicU32::new(0),
            stuck_in: AtomicUsize::new(NEVER),
            busy_polls: AtomicBool::new(false),
            requests: Requests::new(),
        }
    }

    /// Records in which poll the worker is stuck, by their number.
    pub(super) fn set_stuck_in(&self, polls: Option<usize>) {
        let polls = polls.unwrap_or(NEVER);
        if self.stuck_in.load(Ordering::Relaxed) != polls {
            self.stuck_in.store(polls, Ordering::Relaxed);
        }
    }

    /// Whether the last inspection has found it stuck, and it has begun no poll since and is not
    /// parked.
    pub(super) fn is_stuck(&self) -> bool {
        let is_in_poll = self.stuck_in.load(Ordering::Relaxed) == self.counters.polls.get();
        is_in_poll && !self.parker.is_parked()
    }

    pub(crate) fn thread(&self) -> u32 {
        self.thread.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn has_inbox(&self) -> bool {
        !self.inbox.is_empty() || self.requests.is_asked()
    }

    pub(crate) fn drive(&self) -> Drive {
        let drive = self.drive.load(Ordering::Relaxed);
        let all = [Drive::None, Drive::BetweenTurns, Drive::Driven];
        all[usize::from(drive)]
    }

    /// Called on the worker's thread.
    pub(super) fn set_drive(&self, drive: Drive) {
        self.drive.store(drive as u8, Ordering::Relaxed);
    }

    pub(crate) fn is_awake(&self) -> bool {
        self.drive() != Drive::None && !self.parker.is_parked()
    }

    /// The number of wakes of its pinned tasks by other threads.
    pub(crate) fn sent(&self) -> usize {
        self.inbox.pushed()
    }

    pub(crate) fn spawned(&self) -> usize {
        self.task_counters.spawned.load(Ordering::Relaxed)
    }

    /// The number of tasks in the worker's lists: those that are pinned to it, and the stealable
    /// ones that it was the first to poll.
    pub(crate) fn tasks(&self) -> usize {
        let stealable = self.pool_remote.as_ref().map(|tasks| tasks.owned.count());
        self.pinned.get() + stealable.unwrap_or(0)
    }
}

impl Shared {
    /// Without a pool. Separate, so that most programs do not link [`with_pool`](Self::with_pool).
    pub(crate) fn new(main: Poller) -> Shared {
        Shared::with(Vec::new(), Vec::new(), main)
    }

    /// Takes each shard's poller, with its workers' own pollers on a kernel that has one for each
    /// worker, and the main worker's poller.
    pub(crate) fn with_pool(shards_of: Vec<(Poller, Vec<Option<Poller>>)>, main: Poller) -> Shared {
        let mut remotes: Vec<Arc<Remote>> = Vec::new();
        let mut shards: Vec<Shard> = Vec::new();
        let pool = PoolId::new();
        for (poller, workers) in shards_of {
            let first = remotes.len();
            let reactor = Reactor::new(poller, Some(pool));
            for own_poller in workers {
                let parker = reactor.parker_of_worker(own_poller);
                remotes.push(Arc::new(Remote::new(reactor.clone(), parker, true)));
            }
            shards.push(Shard::new(first..remotes.len()));
        }
        Shared::with(remotes, shards, main)
    }

    fn with(mut remotes: Vec<Arc<Remote>>, shards: Vec<Shard>, main: Poller) -> Shared {
        let main = Reactor::new(main, None);
        let parker = main.parker().clone();
        remotes.push(Arc::new(Remote::new(main, parker, false)));
        Shared {
            remotes: remotes.into(),
            workers_of_shard: shards.first().map_or(0, |shard| shard.workers.len()),
            shards: shards.into(),
            ..Shared::default()
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
    pub(crate) fn pool_workers(&self) -> &[Arc<Remote>] {
        &self.remotes[..self.main_index()]
    }

    #[inline]
    pub(crate) fn pool_remotes(&self) -> impl Iterator<Item = &PoolRemote> {
        let remotes = self.pool_workers().iter();
        remotes.filter_map(|remote| remote.pool_remote.as_deref())
    }

    #[inline]
    pub(super) fn pool_remote(&self, index: usize) -> &PoolRemote {
        self.remotes[index]
            .pool_remote
            .as_ref()
            .expect("it is a pool worker")
    }

    pub(crate) fn workers(&self) -> usize {
        self.pool_workers().len().max(1)
    }

    /// The affinity of a new task that may run on any worker. Without a pool it is pinned to the
    /// only one.
    #[inline]
    pub(crate) fn any_worker(&self) -> Affinity {
        match self.main_index() {
            0 => Affinity::pinned(0),
            _ => Affinity::ANY,
        }
    }

    /// Whether more workers are awake than there are `cores`, so that none should busy-poll. Other
    /// processes are not counted.
    pub(crate) fn is_crowded(&self, cores: usize) -> bool {
        let awake = self.remotes.iter().filter(|remote| remote.is_awake());
        awake.count() > cores
    }

    /// Counts a task spawned by the worker at `index`, or by another thread.
    #[inline]
    pub(super) fn count_spawned(&self, index: Option<usize>) {
        self.count(index, |tasks| &tasks.spawned);
    }

    /// Counts a task whose future the worker at `index`, or another thread, has dropped.
    #[inline]
    pub(super) fn count_ended(&self, index: Option<usize>) {
        self.count(index, |tasks| &tasks.ended);
        if self.is_closing() {
            self.main().parker.unpark();
        }
    }

    /// Only its thread writes a worker's counters.
    #[inline]
    fn count(&self, index: Option<usize>, counter: impl Fn(&TaskCounters) -> &AtomicUsize) {
        if let Some(index) = index {
            let own = counter(&self.remotes[index].task_counters);
            let count = own.load(Ordering::Relaxed).wrapping_add(1);
            own.store(count, Ordering::Release);
        } else {
            counter(&self.external).fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The number of tasks that have a future. Zero is exact for all tasks that were spawned before
    /// the call, and for all that those have spawned.
    #[inline(never)]
    pub(crate) fn live_tasks(&self) -> usize {
        let ended = self.ended_tasks();
        self.spawned_tasks().wrapping_sub(ended)
    }

    pub(crate) fn spawned_tasks(&self) -> usize {
        self.sum(|tasks| &tasks.spawned)
    }

    /// Read it before [`spawned_tasks`](Self::spawned_tasks): see "Counting".
    pub(crate) fn ended_tasks(&self) -> usize {
        self.sum(|tasks| &tasks.ended)
    }

    fn sum(&self, counter: fn(&TaskCounters) -> &AtomicUsize) -> usize {
        let remotes = self.remotes.iter().map(|remote| &remote.task_counters);
        remotes
            .chain([&self.external])
            .map(|tasks| counter(tasks).load(Ordering::SeqCst))
            .fold(0, usize::wrapping_add)
    }

    /// Registers a waiter, until the result is dropped: a pool worker that parks and finds no task
    /// left wakes the main worker. Call it before [`live_tasks`](Self::live_tasks).
    pub(super) fn await_last_task(&self) -> OnDrop<impl FnMut()> {
        self.last_task_waiters.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        OnDrop(move || _ = self.last_task_waiters.fetch_sub(1, Ordering::SeqCst))
    }

    /// Wakes the main worker if it waits for the last task to end and none is left. Called by a
    /// pool worker between parking and sleeping.
    #[inline]
    pub(crate) fn unpark_main_if_no_task_is_left(&self) {
        if self.last_task_waiters.load(Ordering::Relaxed) > 0 && self.live_tasks() == 0 {
            self.main().parker.unpark();
        }
    }

    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_set()
    }

    #[inline]
    pub(super) fn help_wanted(&self) -> usize {
        self.help_wanted.load(Ordering::Acquire)
    }

    /// Wakes an idle worker, one of these if there is one, to help stuck workers. Those that are
    /// awake help, too, between two turns. Returns whether one was idle.
    ///
    /// This writes the count, then looks for an idle worker; a worker parks, then reads the count,
    /// with a fence on both sides. (If the notification fails, the chosen one sleeps
    /// on, and counts as woken: the next inspection chooses another one.)
    pub(super) fn want_help(&self, workers: Range<usize>) -> bool {
        self.help_wanted.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        let idle = self.find_idle_of(workers).or_else(|| self.find_idle());
        idle.inspect(|&index| self.remote(index).parker.unpark_best_effort())
            .is_some()
    }

    /// Starts closing: from now on spawned tasks are cancelled, and pool workers exit.
    pub(crate) fn start_closing(&self) {
        self.closing.set();
        for remote in self.pool_workers() {
            remote.parker.unpark_best_effort();
        }
    }

    /// Closes the runtime because a worker cannot continue. Only the first reason is kept.
    pub(crate) fn fail(&self, reason: String) {
        // Before the unparks: the workers then read it.
        let _ = self.failure.set(reason);
        self.start_closing();
        self.main().parker.unpark_best_effort();
    }

    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Records that `count` pool workers could not be started and will never poll a task.
    pub(crate) fn workers_never_start(&self, count: usize) {
        self.leaving.fetch_add(count, Ordering::AcqRel);
        self.exited.fetch_add(count, Ordering::SeqCst);
    }

    /// Returns whether the worker is the last one to leave.
    pub(super) fn record_leaving(&self) -> bool {
        self.leaving.fetch_add(1, Ordering::AcqRel) + 1 == self.main_index()
    }

    pub(super) fn have_workers_exited(&self) -> bool {
        self.exited.load(Ordering::SeqCst) == self.main_index()
    }

    /// The main worker waits for the last one only.
    pub(crate) fn worker_exited(&self) {
        if self.exited.fetch_add(1, Ordering::SeqCst) + 1 == self.main_index() {
            self.main().parker.unpark_best_effort();
        }
    }

    pub(crate) fn injected(&self) -> usize {
        self.inject_queue.len()
    }

    /// Calls `f`, which runs no foreign code, with each injected task that was never polled.
    pub(crate) fn for_each_injected(&self, mut f: impl FnMut(&Header)) {
        self.inject_queue.for_each(|runnable| {
            if runnable.metadata().is_new() {
                f(runnable.metadata());
            }
        });
    }

    pub(crate) fn remotes(&self) -> &[Arc<Remote>] {
        &self.remotes
    }

    pub(crate) fn pool_reactors(&self) -> impl Iterator<Item = &Arc<Reactor>> {
        self.shards.iter().map(|shard| self.reactor_of(shard))
    }

    pub(super) fn reactor_of(&self, shard: &Shard) -> &Arc<Reactor> {
        &self.remote(shard.workers.start).reactor
    }

    /// The number of sources registered with the reactor that the worker at `index` drives. Those
    /// of a shard count for its first worker only.
    pub(crate) fn sources(&self, index: usize) -> usize {
        let mut shards = self.shards.iter();
        match shards.find(|shard| shard.workers.start == index) {
            Some(shard) => self.reactor_of(shard).source_count(),
            None if index == self.main_index() => self.main().reactor.source_count(),
            None => 0,
        }
    }

    #[inline]
    pub(crate) fn has_injected(&self) -> bool {
        !self.inject_queue.is_empty()
    }

    pub(super) fn send(&self, runnable: Runnable) {
        let remote = self.remote(runnable.metadata().index());
        remote.inbox.push(runnable);
        remote.parker.note_wake_from_elsewhere();
        remote.parker.unpark();
    }

    /// Injects a stealable task. Returns whether the caller has to wake a pool worker for it.
    pub(super) fn inject(&self, runnable: Runnable) -> bool {
        self.inject_queue.push(runnable);
        // If the runtime closes, the pool workers may have exited, and the main worker waits for
        // this task.
        !self.unpark_main_if_closing()
    }

    /// Takes an injected task, or a stealable one that is ready on any pool worker. For a worker
    /// that closes the runtime: that pool worker may have exited, or be in the middle of a task.
    pub(crate) fn take_any(&self) -> Option<Runnable> {
        (self.inject_queue.pop())
            .or_else(|| self.pool_remotes().find_map(PoolRemote::take))
            .or_else(|| self.departed().iter().find_map(|remote| remote.inbox.pop()))
    }

    /// Returns the pool workers when all have left. A pinned task in an inbox was then never
    /// polled, because a worker leaves only when it owns no task. So it may be dropped on any
    /// thread: see [`task::new_on`](crate::task::new_on).
    fn departed(&self) -> &[Arc<Remote>] {
        let have_left = self.leaving.load(Ordering::Acquire) == self.main_index();
        if have_left { self.pool_workers() } else { &[] }
    }

    /// Called after a task was pushed for a worker that may have left: see
    /// [`departed`](Self::departed) and "Closing". Returns whether the runtime closes.
    #[inline]
    pub(crate) fn unpark_main_if_closing(&self) -> bool {
        let is_closing = self.closing.is_set_after_push();
        if is_closing {
            self.main().parker.unpark();
        }
        is_closing
    }

    /// Whether another thread has pushed something that [`take_any`](Self::take_any) would take.
    /// Does not look at pool workers' own queues.
    pub(crate) fn has_any(&self) -> bool {
        let mut departed = self.departed().iter();
        self.has_injected() || departed.any(|remote| !remote.inbox.is_empty())
    }

    #[inline(never)]
    pub(super) fn shard(&self, index: usize) -> &Shard {
        &self.shards[index / self.workers_of_shard]
    }

    #[inline]
    pub(super) fn is_parked(&self, index: usize) -> bool {
        self.remote(index).parker.is_parked()
    }

    /// Returns a worker among these that is parked and was not woken yet. Prefers a follower:
    /// waking the leader would leave its shard's poller alone.
    #[inline(never)]
    fn find_idle_of(&self, workers: Range<usize>) -> Option<usize> {
        let parker = |index: &usize| &self.remote(*index).parker;
        workers
            .filter(|index| parker(index).is_parked())
            .min_by_key(|index| parker(index).is_leader())
    }

    pub(super) fn wake_idle_of(&self, workers: Range<usize>) {
        if let Some(index) = self.find_idle_of(workers) {
            self.wake(index);
        }
    }

    #[inline]
    pub(crate) fn wake_one(&self) {
        self.searcher.wake_one(self);
    }

    /// [`wake_one`](Self::wake_one) for tasks of the calling pool worker, which runs them itself if
    /// no other one takes them. So it may miss a worker that falls asleep, and costs no fence if
    /// none sleeps.
    #[inline]
    pub(super) fn try_wake_one(&self) {
        let mut workers = self.pool_workers().iter();
        if workers.any(|remote| remote.parker.is_parked()) {
            self.wake_one();
        }
    }
}

impl IdleWorkers for Shared {
    #[inline]
    fn has_stealable(&self) -> bool {
        self.has_injected()
            || self
                .pool_remotes()
                .any(|tasks| tasks.queue.count_items(1) > 0)
    }

    #[inline]
    fn find_idle(&self) -> Option<usize> {
        self.find_idle_of(0..self.main_index())
    }

    fn wake(&self, index: usize) -> bool {
        self.remote(index).parker.unpark()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poller::{Backend, Poller};

    fn shared() -> Shared {
        let poller = || Poller::new(Backend::default()).expect("it opens");
        Shared::with_pool(vec![(poller(), vec![None, None])], poller())
    }

    #[test]
    fn an_idle_worker_that_leads_is_woken_last() {
        let shared = shared();
        assert_eq!(shared.find_idle(), None);
        for leader in [0, 1] {
            for index in [0, 1] {
                shared.remote(index).parker.park_as(index == leader);
            }
            assert_eq!(shared.find_idle(), Some(1 - leader));
        }
        shared.remote(0).parker.resume();
        assert_eq!(shared.find_idle(), Some(1), "though it leads");
    }

    #[test]
    fn last_pool_worker_to_leave_is_told() {
        let shared = shared();
        assert!(!shared.record_leaving(), "another one is there");
        assert!(shared.record_leaving());
    }

    #[test]
    fn workers_that_sleep_do_not_crowd_the_cores() {
        let shared = shared();
        assert!(!shared.is_crowded(2), "the main worker is not driven");
        shared.main().set_drive(Drive::Driven);
        assert!(shared.is_crowded(2) && !shared.is_crowded(3));
        shared.remote(0).parker.park();
        assert!(shared.is_crowded(1) && !shared.is_crowded(2));
    }
}
