//! State that the workers of one runtime share.
//!
//! [`Shared`] has a [`Remote`] for each worker: the part of it that every thread can reach. The
//! last one belongs to the *main worker*, which the thread that made the runtime drives. Without a
//! pool it runs everything. With a pool it runs the future of `block_on` and local tasks, and the
//! *pool workers* run spawned tasks.
//!
//! **The inject queue** has stealable tasks that no pool worker has: new ones, and those that
//! another thread has woken. A pool worker takes its share of them at once, to its own queue;
//! another one may steal them from there: see [`pool`](super::pool).
//!
//! **Waking.** Injecting a task wakes an idle pool worker: see [`idle`](super::idle). One exception
//! saves a wake-up in each `spawn(…).await`: the first task that a pool worker's task spawns while
//! it runs wakes no worker, since most likely the same pool worker takes it next. Each further one
//! does, immediately. When the running task returns, or drives a runtime, and the pool worker then
//! has other tasks that are ready, it wakes a worker for these. The same goes for a task that the
//! running task wakes, and that will not run next.
//!
//! **Counting.** The number of live tasks is the difference of two sums: tasks spawned and tasks
//! ended. Each worker has its own two counters, which only its thread writes, so that no cache line
//! is contended; all other threads share a third pair. The sum of ended tasks is read *first*: if
//! the sums are equal, no task is left. The reason is that a task ends after its own spawn and
//! after the spawns that it made. So everything that the tasks counted as ended have spawned is
//! counted as spawned. If the difference is still zero, all of it has ended. (Other threads may
//! spawn more at any time.)
//!
//! **Waiting for the last task.** A waiter registers itself
//! ([`await_last_task`](Shared::await_last_task)), then reads the count, then sleeps. A pool worker
//! that goes to sleep after its last task ended parks, which is a fence after its counting, and
//! then reads the number of waiters and the count
//! ([`unpark_main_if_no_task_is_left`](Shared::unpark_main_if_no_task_is_left)). At least one of
//! the two sees the write of the other.
//!
//! **Closing.** A thread that is not a worker of the runtime counts the task that it spawns, and
//! *then* reads whether the runtime is closing. The main worker sets that flag, and *then* waits
//! for the count to become zero. All of these accesses are sequentially consistent: either the
//! spawner sees the flag and drops the future itself, or the main worker sees the task and waits
//! for its end. Checking for empty queues would not be enough: the spawner may be about to push.
//! The spawner reads the flag again after it has pushed, and unparks the main worker. Workers of
//! the runtime need no such care, since the main worker reads the count after they have exited.
//! A spawner that has seen the flag counts no further task, and counts the end of one that it has
//! counted before it drops it: so the main worker waits for no more than one task of each thread,
//! and for none of its destructors, however many are spawned meanwhile. (See
//! [`late`](super::late).)
//!
//! For the cleanup of stealable tasks, see [`closing`](super::closing).
//!
//! **Failing.** If the poller of a worker can no longer wait, the worker closes the whole runtime
//! ([`fail`](Shared::fail)), since no other thread may run its tasks. It stores the reason, sets
//! the flag, and unparks all workers, which then read both. The pool workers drop their tasks, on
//! their own threads; the main worker panics with the reason in the call that drives it, or in the
//! next one.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use super::closing::ClosingFlag;
use super::idle::{Idle, IdleWorkers};
use super::mutex_queue::MutexQueue;
use super::owned::StealableTasks;
use super::run_queue::RunQueue;
use super::shard::{Shard, ShardedWorkers};
use super::{Affinity, Header, Local, Runnable, current, late};
use crate::poller::Poller;
use crate::reactor::{Driver, Parker, Reactor};
use crate::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering, fence};
use crate::sync::{Mutex, OnDrop};
use crate::telemetry::{Counter, Counters, TraceLog, requests::Requests};

/// A value of a higher module, kept with the runtime.
pub(crate) type Slot = Arc<dyn Any + Send + Sync>;

/// State that the workers of one runtime share. By default there are no workers.
#[derive(Default)]
pub(crate) struct Shared {
    remotes: Box<[Arc<Remote>]>,
    /// Stealable tasks that no pool worker has. Unused without pool workers. A thread that adds one
    /// calls [`wake_one`](Self::wake_one) afterwards, immediately or soon.
    pub(super) inject_queue: MutexQueue<Runnable>,
    pub(super) idle: Idle,
    /// The pool workers by the reactors that they share, in the order of their indices. Empty
    /// without pool workers.
    pub(super) shards: Box<[Shard]>,
    /// The number of workers of each shard but the last, apart from the lines that shards write.
    pub(super) workers_of_shard: usize,
    /// The counters of threads that are not workers of this runtime.
    external: TaskCounters,
    closing: ClosingFlag,
    /// Why the runtime has failed.
    failure: OnceLock<String>,
    /// The number of pool workers that have dropped every task that they found, and no longer poll
    /// any.
    leaving: AtomicUsize,
    /// The number of pool workers that have exited, or will never start.
    pub(super) exited: AtomicUsize,
    /// The number of threads that wait for the last task to end.
    last_task_waiters: AtomicUsize,
    /// The number of tasks spawned by destructors of tasks that were spawned late: see
    /// [`late`](super::late).
    late: AtomicUsize,
    /// The runtime's own name resolver, a `runtime::Resolver`. Its function may own a handle, a
    /// task or a waker of this runtime, each of which owns `Shared`, and so the pollers: so it is
    /// taken out when the runtime has closed.
    pub(crate) resolver: Mutex<Option<Slot>>,
    /// State that the last dump has left for the next one: see `diagnostics::hints`.
    pub(crate) earlier: Mutex<Option<Slot>>,
    /// The trace of the workers' activity, if it is recorded.
    pub(crate) trace: Option<Arc<TraceLog>>,
    /// Whether one thread drives all workers, as a simulator's does. So none can answer while
    /// another one asks.
    pub(crate) is_on_one_thread: bool,
}

/// A question of another thread about a worker. A trait, so that only programs that ask link the
/// code that answers.
pub(crate) trait Question: Send + Sync {
    /// Answers, on the worker's thread. Runs no foreign code.
    fn answer(&self, local: &Local, driver: &Driver);
}

/// The part of one worker that every thread can reach. Aligned to its own cache lines, since
/// adjacent ones belong to other threads.
#[repr(align(128))]
pub(crate) struct Remote {
    /// The reactor that the worker drives: its own, or that of its shard.
    pub(crate) reactor: Arc<Reactor>,
    /// It sleeps in this.
    pub(crate) parker: Arc<Parker>,
    /// Counts of its work.
    pub(crate) counters: Arc<Counters>,
    /// Pinned tasks on this worker.
    pub(super) inbox: MutexQueue<Runnable>,
    /// If it is a pool worker.
    pub(super) stealable: Option<Arc<Stealable>>,
    task_counters: TaskCounters,
    /// The number of pinned tasks on the worker, were polled and still have their futures,
    /// except a task in its first poll. Not the length of their list, which closing takes away.
    pub(super) pinned: Counter,
    /// A [`Drive`]. Written by its thread.
    drive: AtomicU8,
    /// The system's id of the thread that drives the worker, or drove it last; zero where it is
    /// unknown.
    pub(super) thread: AtomicU32,
    /// Questions of other threads about the worker.
    pub(crate) requests: Requests<dyn Question>,
}

/// How a worker is driven.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Drive {
    /// The worker is not driven.
    None,
    /// By a foreign loop, which is busy elsewhere at the moment. It runs a turn when it is
    /// notified, unless it is stuck or gone.
    BetweenTurns,
    /// By a call. (A pool worker: until it has ended.)
    Driven,
}

/// The stealable tasks of a pool worker: the part of it, beyond its [`Remote`], that every thread
/// can reach.
#[derive(Default)]
pub(crate) struct Stealable {
    /// The tasks that the worker runs next. Only the worker pushes.
    pub(super) queue: RunQueue<Runnable>,
    /// Counts the tasks, of any kind, that the worker has begun to run.
    pub(super) runs: Counter,
    pub(crate) owned: StealableTasks,
}

impl Stealable {
    /// Takes a stealable task that is ready here. Called on any thread.
    fn take(&self) -> Option<Runnable> {
        let mut taken = None;
        self.queue.steal(1, true, |runnable| taken = Some(runnable));
        taken
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
            stealable: is_pool_worker.then(Arc::default),
            task_counters: TaskCounters::default(),
            pinned: Counter::default(),
            // A pool worker's thread starts soon.
            drive: AtomicU8::new(if is_pool_worker {
                Drive::Driven
            } else {
                Drive::None
            } as u8),
            thread: AtomicU32::new(0),
            requests: Requests::new(),
        }
    }

    /// Returns the system's id of its thread; zero where it is unknown.
    pub(crate) fn thread(&self) -> u32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// Whether another thread has left something for the worker.
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

    /// Whether it is driven, and does not sleep.
    pub(crate) fn is_awake(&self) -> bool {
        self.drive() != Drive::None && !self.parker.is_parked()
    }

    /// The number of wakes of its tasks that came from other threads.
    pub(crate) fn sent(&self) -> usize {
        self.inbox.pushed()
    }

    /// The number of tasks that were spawned on its thread.
    pub(crate) fn spawned(&self) -> usize {
        self.task_counters.spawned.load(Ordering::Relaxed)
    }

    /// The number of tasks that are in the worker's lists: those that are pinned to it, and the
    /// stealable ones that it was the first to poll.
    pub(crate) fn tasks(&self) -> usize {
        let stealable = self
            .stealable
            .as_ref()
            .map_or(0, |stealable| stealable.owned.count());
        self.pinned.get() + stealable
    }
}

impl Shared {
    /// Takes for each shard of the pool the poller that its workers share, and the poller of each
    /// of these on a kernel that has one for each worker; and the poller of the main worker.
    pub(crate) fn new(shards_of: Vec<(Poller, Vec<Option<Poller>>)>, main: Poller) -> Shared {
        let mut remotes: Vec<Arc<Remote>> = Vec::new();
        let mut shards: Vec<Shard> = Vec::new();
        for (poller, workers) in shards_of {
            let first = remotes.len();
            let of_first = remotes.first().map(|remote| &*remote.reactor);
            let reactor = Reactor::for_shard(poller, of_first);
            for of_kernel in workers {
                let parker = reactor.parker_of_worker(of_kernel);
                remotes.push(Arc::new(Remote::new(reactor.clone(), parker, true)));
            }
            shards.push(Shard::new(first..remotes.len()));
        }
        let main = Reactor::new(main);
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
    pub(super) fn unpark_main(&self) {
        self.main().parker.unpark();
    }

    #[inline]
    pub(crate) fn pool_workers(&self) -> &[Arc<Remote>] {
        &self.remotes[..self.main_index()]
    }

    /// The stealable tasks of each pool worker.
    #[inline]
    pub(crate) fn stealables(&self) -> impl Iterator<Item = &Stealable> {
        let remotes = self.pool_workers().iter();
        remotes.filter_map(|remote| remote.stealable.as_deref())
    }

    /// The stealable tasks of the pool worker at `index`.
    #[inline]
    pub(super) fn stealable(&self, index: usize) -> &Stealable {
        self.remotes[index]
            .stealable
            .as_ref()
            .expect("it is a pool worker")
    }

    /// The number of threads that run spawned tasks.
    pub(crate) fn workers(&self) -> usize {
        self.pool_workers().len().max(1)
    }

    /// The affinity of a new task that may run on any worker. Without a pool it stays on the only
    /// one.
    #[inline]
    pub(crate) fn any_worker(&self) -> Affinity {
        match self.main_index() {
            0 => Affinity::pinned(0),
            _ => Affinity::ANY,
        }
    }

    /// Whether more workers are awake than there are `cores`, so that none should busy-poll.
    /// (Contention with other processes is visible only as elapsed time.)
    pub(crate) fn is_crowded(&self, cores: usize) -> bool {
        let awake = self.remotes.iter().filter(|remote| remote.is_awake());
        awake.count() > cores
    }

    // Counting.

    /// Counts a task spawned by the worker at `index`, or by another thread.
    #[inline]
    pub(super) fn task_spawned(&self, index: Option<usize>) {
        self.count(index, |tasks| &tasks.spawned);
    }

    /// Counts a task that has ended: its future was dropped by the worker at `index`, or by another
    /// thread.
    #[inline]
    pub(super) fn task_ended(&self, index: Option<usize>) {
        self.count(index, |tasks| &tasks.ended);
        self.closing.unpark_main_if_set(|| self.unpark_main());
    }

    /// Adds one to a counter of the worker at `index`, which only its thread writes, or to that of
    /// all other threads.
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
    /// the call, and for all tasks that those have spawned.
    #[inline(never)]
    pub(crate) fn live_tasks(&self) -> usize {
        let ended = self.ended_tasks();
        self.spawned_tasks().wrapping_sub(ended)
    }

    pub(crate) fn spawned_tasks(&self) -> usize {
        self.sum(|tasks| &tasks.spawned)
    }

    /// The number of ended tasks. Read it before [`spawned_tasks`](Self::spawned_tasks): see
    /// "Counting".
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

    /// Registers a waiter, until the result is dropped: from now on a pool worker that goes to
    /// sleep and finds no task left wakes the main worker. Call it before
    /// [`live_tasks`](Self::live_tasks).
    pub(super) fn await_last_task(&self) -> OnDrop<impl FnMut()> {
        self.last_task_waiters.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        OnDrop(move || _ = self.last_task_waiters.fetch_sub(1, Ordering::SeqCst))
    }

    /// Wakes the main worker if it waits for the last task to end and none is left. A pool worker
    /// calls this after it has parked, before it sleeps.
    #[inline]
    pub(crate) fn unpark_main_if_no_task_is_left(&self) {
        if self.last_task_waiters.load(Ordering::Relaxed) > 0 && self.live_tasks() == 0 {
            self.unpark_main();
        }
    }

    // Closing.

    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_set()
    }

    /// Starts closing: from now on spawned tasks are cancelled immediately, and pool workers exit.
    pub(crate) fn start_closing(&self) {
        self.closing.set();
        for remote in self.pool_workers() {
            remote.parker.unpark_best_effort();
        }
    }

    /// Closes the runtime because a worker cannot continue, and stores the reason. Only the first
    /// reason is kept.
    pub(crate) fn fail(&self, reason: String) {
        // Before the workers are unparked: then they read it.
        let _ = self.failure.set(reason);
        self.start_closing();
        self.main().parker.unpark_best_effort();
    }

    /// The reason of the runtime's failure, if it has failed.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Records that so many pool workers, for which there are no threads, will never poll a task.
    pub(crate) fn workers_never_start(&self, count: usize) {
        self.leaving.fetch_add(count, Ordering::AcqRel);
        self.exited.fetch_add(count, Ordering::SeqCst);
    }

    /// Records that a pool worker polls no more tasks. Returns whether it is the last one.
    pub(super) fn record_leaving(&self) -> bool {
        self.leaving.fetch_add(1, Ordering::AcqRel) + 1 == self.main_index()
    }

    /// Records that a pool worker exits.
    pub(crate) fn worker_exited(&self) {
        self.exited.fetch_add(1, Ordering::SeqCst);
        self.main().parker.unpark_best_effort();
    }

    /// Schedules a new task. If the runtime is closing, drops it, which cancels it: see
    /// [`late`](super::late).
    #[inline]
    pub(crate) fn schedule_new(&self, runnable: Runnable) {
        if self.is_closing() {
            self.refuse(runnable)
        } else {
            runnable.schedule()
        }
    }

    #[cold]
    fn refuse(&self, runnable: Runnable) {
        // The main worker waits for the threads of the others.
        if !current::is_of(self) {
            runnable.metadata().end_count();
        }
        late::drop_late(runnable)
    }

    /// Whether to forget the future of a task that is about to be spawned, because the runtime
    /// closes and the destructors of such tasks have spawned too many.
    #[inline]
    pub(crate) fn forgets(&self) -> bool {
        self.is_closing()
            && late::is_dropping()
            && self.late.fetch_add(1, Ordering::Relaxed) >= late::LIMIT
    }

    // The inject queue.

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

    /// The reactors that tasks of the worker at `index` may wait in.
    pub(crate) fn reactors_of(&self, index: usize) -> impl Iterator<Item = &Arc<Reactor>> {
        self.pool_reactors().chain([&self.remotes[index].reactor])
    }

    /// The number of sources that are registered with the reactor that the worker at `index`
    /// drives. Those that several pool workers share count for the first one only.
    pub(crate) fn sources(&self, index: usize) -> usize {
        let mut shards = self.shards.iter();
        match shards.find(|shard| shard.workers.start == index) {
            Some(shard) => self.reactor_of(shard).sources(),
            None if index == self.main_index() => self.main().reactor.sources(),
            None => 0,
        }
    }

    #[inline]
    pub(crate) fn has_injected(&self) -> bool {
        !self.inject_queue.is_empty()
    }

    /// Takes an injected task, or a stealable one that is ready on any pool worker. For a worker
    /// that closes the runtime: the pool worker may have exited, or be in the middle of a task.
    pub(crate) fn take_any(&self) -> Option<Runnable> {
        (self.inject_queue.pop())
            .or_else(|| self.stealables().find_map(Stealable::take))
            .or_else(|| self.left().iter().find_map(|remote| remote.inbox.pop()))
    }

    /// Returns the pool workers when all have left. A pinned task and is in the inbox of one
    /// was never polled, because a worker leaves only when it owns no task. So it may be dropped on
    /// any thread: see [`task::new_on`](crate::task::new_on).
    fn left(&self) -> &[Arc<Remote>] {
        let have_left = self.leaving.load(Ordering::Acquire) == self.main_index();
        if have_left { self.pool_workers() } else { &[] }
    }

    /// Called after a task was pushed for a worker, which may have left: see
    /// [`left`](Self::left), and "Closing". Returns whether the runtime closes.
    #[inline]
    pub(crate) fn unpark_main_if_closing(&self) -> bool {
        self.closing.unpark_main_if_closing(|| self.unpark_main())
    }

    /// Wakes every stealable task that was polled, so that [`take_any`](Self::take_any) finds it.
    pub(crate) fn wake_stealable_tasks(&self) {
        self.stealables()
            .for_each(|stealable| stealable.owned.wake_all());
    }

    /// Whether another thread has sent something that [`take_any`](Self::take_any) would take.
    /// (Tasks in a pool worker's own queue are not considered.)
    pub(crate) fn has_any(&self) -> bool {
        self.has_injected() || self.left().iter().any(|remote| !remote.inbox.is_empty())
    }

    // Idle workers.

    /// Wakes an idle pool worker if there are tasks for it, and no worker is searching.
    #[inline]
    pub(crate) fn wake_one(&self) {
        self.idle.wake_one(self);
    }

    /// [`wake_one`](Self::wake_one) for tasks of the calling pool worker, which runs them itself if
    /// no other one takes them. So it may miss that another worker falls asleep, and costs no fence
    /// if none sleeps.
    #[inline]
    pub(super) fn wake_one_if_idle(&self) {
        let mut workers = self.pool_workers().iter();
        if workers.any(|remote| remote.parker.is_parked()) {
            self.wake_one();
        }
    }
}

impl IdleWorkers for Shared {
    #[inline]
    fn has_tasks(&self) -> bool {
        self.has_injected()
            || self
                .stealables()
                .any(|stealable| stealable.queue.count_items(1) > 0)
    }

    #[inline]
    fn find_idle(&self) -> Option<usize> {
        self.find_idle_of(0..self.main_index())
    }

    fn wake(&self, index: usize) -> bool {
        ShardedWorkers::wake(self, index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poller::{Backend, Poller};

    /// With two pool workers.
    fn shared() -> Shared {
        let poller = || Poller::new(Backend::default()).expect("it opens");
        Shared::new(vec![(poller(), vec![None, None])], poller())
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
    fn of_the_pool_workers_the_last_one_to_leave_is_told_so() {
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
