//! What the workers of one runtime share.
//!
//! [`Shared`] has a [`Remote`] for each worker: what every thread can reach of it. The last one
//! belongs to the *main worker*, which the thread that made the runtime drives. Without a pool it
//! runs everything. With one it runs the future of `block_on` and local tasks, and the *pool
//! workers* run what is spawned.
//!
//! **The inject queue** has the tasks that were never polled, if there is a pool. See
//! [`balance`](super::balance) for which pool worker takes how many. A task that was taken may go
//! to another pool worker later: see [`thief`](super::thief).
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
//! What becomes of movable tasks: see [`closing`](super::closing).
//!
//! **Failing.** A worker whose poller cannot wait any more closes the whole runtime
//! ([`fail`](Shared::fail)), since nobody else may run its tasks. It stores the reason, sets the
//! flag, and unparks all workers, which read the flag then. The pool workers drop
//! their tasks, on their own threads; the main worker panics with the reason in the call that
//! drives it, or the next one.

use std::any::Any;
#[cfg(feature = "sim")]
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use super::closing::ClosingFlag;
use super::idle::{Idle, IdleWorkers};
use super::monitor::{Monitor, MonitoredWorkers};
use super::mutex_queue::MutexQueue;
use super::owned::MovableTasks;
use super::request::{Question, Requests};
use super::resolver::Resolver;
use super::run_queue::RunQueue;
use super::trace::Tracer;
use super::{MOVABLE, Meta, NONE, Runnable, TRACED, late};
use crate::reactor::Reactor;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering, fence};

/// What the workers of one runtime share.
#[derive(Debug)]
pub(crate) struct Shared {
    remotes: Box<[Arc<Remote>]>,
    /// Tasks that were never polled. Unused without pool workers.
    inject_queue: MutexQueue<Runnable>,
    idle: Idle,
    pub(super) monitor: Monitor,
    /// The index plus one of a pool worker that has more tasks to run than it gets round to, or
    /// zero. Of several it is the last one that has said so.
    surplus: AtomicUsize,
    /// Of threads that are no workers of this runtime.
    external: TaskCounters,
    closing: ClosingFlag,
    /// Why the runtime has failed.
    failure: OnceLock<String>,
    /// How many pool workers have dropped all that they found, and poll nothing any more.
    leaving: AtomicUsize,
    /// How many pool workers have exited.
    exited: AtomicUsize,
    /// How many wait for the last task to end.
    watchers: AtomicUsize,
    /// The number of tasks spawned by destructors of tasks that were spawned late: see
    /// [`late`](super::late).
    late: AtomicUsize,
    /// Taken when the runtime has closed: see [`take_resolver`](Self::take_resolver).
    resolver: Mutex<Option<Resolver>>,
    /// What the last dump has left for the next one: see `diagnostics::hints`.
    pub(crate) earlier: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
    /// What its workers do is kept for whoever looks at it later.
    trace: Option<Arc<dyn Tracer>>,
    /// What the state of each of its tasks has from the beginning: [`TRACED`], or nothing.
    task_flags: u32,
    #[cfg(feature = "sim")]
    is_simulated: bool,
}

/// What every thread can reach of one worker. On cache lines of its own, since the ones beside it
/// belong to other threads.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Remote {
    pub(crate) reactor: Arc<Reactor>,
    /// Of tasks that stay on this worker.
    pub(super) inbox: MutexQueue<Runnable>,
    pool: Option<Arc<PoolRemote>>,
    counters: TaskCounters,
    /// How many tasks the worker owns, with those that were taken from it. Written by its thread.
    load: AtomicUsize,
    /// It sleeps for a moment only, while others should take injected tasks. Written by its thread.
    deferring: AtomicBool,
    /// A [`Drive`]. Written by its thread.
    drive: AtomicU8,
    /// The system's number of the thread that drives it, or did so last, where it is known; zero
    /// otherwise.
    thread: AtomicU32,
    /// What others want to know of it.
    pub(crate) requests: Requests<dyn Question>,
}

/// Who drives a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Drive {
    /// Nobody.
    None,
    /// A foreign loop, which has its own things to do just now. It turns when it is notified,
    /// unless it is stuck or gone.
    BetweenTurns,
    /// A call. (Of a pool worker: until it has ended.)
    Driven,
}

/// What every thread can reach of a pool worker beyond its [`Remote`]: its movable tasks.
#[derive(Debug)]
pub(crate) struct PoolRemote {
    /// What the worker runs next. It alone pushes.
    pub(super) queue: RunQueue<Runnable>,
    /// Counts the tasks, of whatever kind, that the worker has begun to run. Written by its thread.
    runs: AtomicUsize,
    /// Counts the worker's turns. Written by its thread.
    turns: AtomicUsize,
    /// The right to wait on the worker's poller. The worker has it from before it parks, or waits
    /// with a zero timeout, until its wait has ended; so another one that gets it, in order to
    /// help, finds it awake, and does not take a notification from it that it sleeps for.
    pub(super) right_to_wait: Mutex<()>,
    /// The worker sleeps deeply, if it sleeps: see [`monitor`](super::monitor). Written by its
    /// thread.
    sleeps_deeply: AtomicBool,
    /// What others have sent, what has yielded, and what has no room in the queue.
    pub(super) inbox: MutexQueue<Runnable>,
    pub(super) owned: MovableTasks,
    /// How many of the tasks that are counted in [`Remote::load`] were taken by others.
    taken: AtomicUsize,
}

impl PoolRemote {
    fn new() -> PoolRemote {
        PoolRemote {
            queue: RunQueue::new(),
            runs: AtomicUsize::new(0),
            turns: AtomicUsize::new(0),
            right_to_wait: Mutex::new(()),
            sleeps_deeply: AtomicBool::new(false),
            inbox: MutexQueue::new(),
            owned: MovableTasks::default(),
            taken: AtomicUsize::new(0),
        }
    }

    #[inline]
    pub(super) fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn turns(&self) -> usize {
        self.turns.load(Ordering::Relaxed)
    }

    /// On the worker's thread: it has polled its reactor.
    #[inline]
    pub(super) fn count_turn(&self) {
        self.turns
            .store(self.turns().wrapping_add(1), Ordering::Relaxed);
    }

    /// On the worker's thread: it begins to run a task.
    #[inline]
    pub(super) fn count_run(&self) {
        self.runs
            .store(self.runs().wrapping_add(1), Ordering::Relaxed);
    }

    /// On the worker's thread.
    #[inline]
    pub(super) fn set_sleeps_deeply(&self, deeply: bool) {
        self.sleeps_deeply.store(deeply, Ordering::Relaxed);
    }

    /// Takes a movable task that is ready here. Of any thread.
    fn take(&self) -> Option<Runnable> {
        let mut taken = None;
        self.queue.steal(1, |runnable| taken = Some(runnable));
        taken.or_else(|| self.inbox.pop())
    }

    /// Another worker has taken so many tasks that were polled before.
    #[inline]
    pub(super) fn were_taken(&self, count: usize) {
        self.taken.fetch_add(count, Ordering::Relaxed);
    }
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
    fn new(reactor: Arc<Reactor>, is_pool_worker: bool) -> Remote {
        Remote {
            reactor,
            inbox: MutexQueue::new(),
            pool: is_pool_worker.then(|| Arc::new(PoolRemote::new())),
            counters: TaskCounters::default(),
            load: AtomicUsize::new(0),
            deferring: AtomicBool::new(false),
            // A pool worker's thread starts soon.
            drive: AtomicU8::new(match is_pool_worker {
                true => Drive::Driven,
                false => Drive::None,
            } as u8),
            thread: AtomicU32::new(0),
            requests: Requests::new(),
        }
    }

    /// On the worker's thread.
    pub(super) fn set_thread(&self, thread: u32) {
        self.thread.store(thread, Ordering::Relaxed);
    }

    /// The system's number of its thread; zero where it is not known.
    pub(crate) fn thread(&self) -> u32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// Whether another thread has left something for it.
    #[inline]
    pub(crate) fn has_inbox(&self) -> bool {
        !self.inbox.is_empty() || self.has_movable() || self.requests.is_asked()
    }

    pub(crate) fn drive(&self) -> Drive {
        let drive = self.drive.load(Ordering::Relaxed);
        let all = [Drive::None, Drive::BetweenTurns, Drive::Driven];
        all[usize::from(drive)]
    }

    /// On the worker's thread.
    pub(super) fn set_drive(&self, drive: Drive) {
        self.drive.store(drive as u8, Ordering::Relaxed);
    }

    /// Whether another thread has sent a movable task.
    #[inline]
    fn has_movable(&self) -> bool {
        self.pool
            .as_ref()
            .is_some_and(|pool| !pool.inbox.is_empty())
    }

    #[inline]
    pub(super) fn pool(&self) -> Option<&Arc<PoolRemote>> {
        self.pool.as_ref()
    }

    /// Where other threads push a woken task of this worker.
    #[inline]
    pub(super) fn inbox(&self, is_movable: bool) -> &MutexQueue<Runnable> {
        match &self.pool {
            Some(pool) if is_movable => &pool.inbox,
            _ => &self.inbox,
        }
    }

    /// The list of a pool worker.
    pub(crate) fn movable_tasks(&self) -> &MovableTasks {
        let pool = self.pool.as_ref();
        &pool.expect("movable tasks belong to pool workers").owned
    }

    /// How many wakes of its tasks came from other threads.
    pub(crate) fn sent(&self) -> usize {
        let movable = self.pool.as_ref().map_or(0, |pool| pool.inbox.sent());
        self.inbox.sent().wrapping_add(movable)
    }

    /// How many tasks were spawned on its thread.
    pub(crate) fn spawned(&self) -> usize {
        self.counters.spawned.load(Ordering::Relaxed)
    }

    /// How many tasks the worker owns, of a pool worker.
    #[inline]
    pub(crate) fn load(&self) -> usize {
        let taken = (self.pool.as_ref()).map_or(0, |pool| pool.taken.load(Ordering::Relaxed));
        // What was taken just now may be counted before what came.
        let load = self.load.load(Ordering::Relaxed).wrapping_sub(taken);
        (load as isize).max(0) as usize
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

impl Shared {
    /// The last reactor is the main worker's.
    pub(crate) fn new(reactors: impl IntoIterator<Item = Arc<Reactor>>) -> Shared {
        let mut reactors = reactors.into_iter().peekable();
        let mut remotes = Vec::new();
        while let Some(reactor) = reactors.next() {
            let is_pool_worker = reactors.peek().is_some();
            remotes.push(Arc::new(Remote::new(reactor, is_pool_worker)));
        }
        assert!(!remotes.is_empty(), "every runtime has a main worker");
        Shared {
            remotes: remotes.into(),
            inject_queue: MutexQueue::new(),
            idle: Idle::new(),
            monitor: Monitor::new(),
            surplus: AtomicUsize::new(0),
            external: TaskCounters::default(),
            closing: ClosingFlag::new(),
            failure: OnceLock::new(),
            leaving: AtomicUsize::new(0),
            exited: AtomicUsize::new(0),
            watchers: AtomicUsize::new(0),
            late: AtomicUsize::new(0),
            resolver: Mutex::new(None),
            earlier: Mutex::new(None),
            trace: None,
            task_flags: 0,
            #[cfg(feature = "sim")]
            is_simulated: false,
        }
    }

    #[inline]
    pub(crate) fn trace(&self) -> Option<&Arc<dyn Tracer>> {
        self.trace.as_ref()
    }

    pub(crate) fn set_trace(&mut self, trace: Arc<dyn Tracer>) {
        self.trace = Some(trace);
        self.task_flags = TRACED;
    }

    #[inline]
    pub(super) fn task_flags(&self) -> u32 {
        self.task_flags
    }

    pub(crate) fn with_resolver(self, resolver: Option<Resolver>) -> Shared {
        let resolver = Mutex::new(resolver);
        Shared { resolver, ..self }
    }

    /// What looks up names for this runtime, if that is not left to the system.
    pub(crate) fn resolver(&self) -> Option<Resolver> {
        self.resolver.lock().clone()
    }

    /// Takes the resolver, whose function may own a handle, a task or a waker of this runtime: each
    /// of these owns `Shared`, and so the pollers. The main worker drops it after the last task has
    /// ended and all workers have exited, so that no clone is left in either; and where a
    /// destructor may panic.
    pub(super) fn take_resolver(&self) -> Option<Resolver> {
        self.resolver.lock().take()
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
    pub(crate) fn pool_workers(&self) -> &[Arc<Remote>] {
        &self.remotes[..self.main_index()]
    }

    /// What others can reach of the pool worker at `index`.
    #[inline]
    pub(super) fn pool(&self, index: usize) -> &PoolRemote {
        self.remotes[index]
            .pool
            .as_ref()
            .expect("it is a pool worker")
    }

    /// How many threads run what is spawned.
    pub(crate) fn workers(&self) -> usize {
        self.pool_workers().len().max(1)
    }

    /// The worker of a new task that may run on any: see [`Meta`](super::Meta).
    #[inline]
    pub(crate) fn any_worker(&self) -> usize {
        match self.main_index() {
            0 => 0,
            _ => MOVABLE | NONE,
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
        self.closing.counted(|| self.unpark_main());
    }

    /// How many tasks have a future. Zero is exact for all tasks that were spawned before the call,
    /// and for what those have spawned.
    #[inline]
    pub(crate) fn live_tasks(&self) -> usize {
        let ended = self.ended_tasks();
        self.spawned_tasks().wrapping_sub(ended)
    }

    pub(crate) fn spawned_tasks(&self) -> usize {
        self.sum(|tasks| &tasks.spawned)
    }

    /// See "Counting": to be read before [`spawned_tasks`](Self::spawned_tasks).
    pub(crate) fn ended_tasks(&self) -> usize {
        self.sum(|tasks| &tasks.ended)
    }

    #[inline]
    fn sum(&self, counter: fn(&TaskCounters) -> &AtomicUsize) -> usize {
        let remotes = self.remotes.iter().map(|remote| &remote.counters);
        remotes
            .chain([&self.external])
            .map(|tasks| counter(tasks).load(Ordering::SeqCst))
            .fold(0, usize::wrapping_add)
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
        self.closing.is_set()
    }

    /// From here on tasks that are spawned are cancelled at once, and pool workers exit.
    pub(crate) fn start_closing(&self) {
        self.closing.set();
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

    /// A pool worker polls nothing any more. Returns whether it is the last one.
    pub(super) fn is_last_to_leave(&self) -> bool {
        self.leaving.fetch_add(1, Ordering::AcqRel) + 1 == self.main_index()
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

    /// Schedules a new task. If the runtime is closing, drops it, which cancels it: see
    /// [`late`](super::late).
    #[inline]
    pub(crate) fn schedule_new(&self, runnable: Runnable) {
        match self.is_closing() {
            true => late::drop_late(runnable),
            false => runnable.schedule(),
        }
    }

    /// Whether the future of a task that is about to be spawned is to be forgotten: the runtime
    /// closes, and the destructors of such tasks have spawned too many.
    #[inline]
    pub(crate) fn forgets(&self) -> bool {
        self.is_closing() && self.forgets_late()
    }

    #[cold]
    fn forgets_late(&self) -> bool {
        late::is_dropping() && self.late.fetch_add(1, Ordering::Relaxed) >= late::LIMIT
    }

    // The inject queue.

    /// Adds a task. To be followed by [`wake_one`](Self::wake_one), now or soon.
    pub(super) fn inject(&self, runnable: Runnable) {
        self.inject_queue.push(runnable);
    }

    pub(crate) fn injected(&self) -> usize {
        self.inject_queue.len()
    }

    /// Calls `f`, which runs no foreign code, with each task that no pool worker has taken yet.
    pub(crate) fn for_each_injected(&self, mut f: impl FnMut(&Meta)) {
        self.inject_queue.for_each(|it| f(it.metadata()));
    }

    /// It is a simulated process's: its workers have one thread, so none answers while another one
    /// asks.
    pub(crate) fn is_simulated(&self) -> bool {
        #[cfg(feature = "sim")]
        return self.is_simulated;
        #[cfg(not(feature = "sim"))]
        false
    }

    #[cfg(feature = "sim")]
    pub(crate) fn set_simulated(&mut self) {
        self.is_simulated = true;
    }

    pub(crate) fn remotes(&self) -> &[Arc<Remote>] {
        &self.remotes
    }

    #[inline]
    pub(crate) fn has_injected(&self) -> bool {
        !self.inject_queue.is_empty()
    }

    #[inline]
    pub(crate) fn take_injected(&self) -> Option<Runnable> {
        self.inject_queue.pop()
    }

    /// [`take_injected`](Self::take_injected), by choice of the world: a worker that has taken a
    /// task may be slow to poll it.
    #[cfg(feature = "sim")]
    pub(super) fn take_injected_by(
        &self,
        choose: impl FnOnce(&VecDeque<Runnable>) -> usize,
    ) -> Option<Runnable> {
        self.inject_queue.pop_chosen(choose)
    }

    /// Takes an injected task, or a movable one that is ready on whichever pool worker. For a
    /// worker that closes the runtime: that one may have exited, or be in the middle of a task.
    pub(crate) fn take_any(&self) -> Option<Runnable> {
        let mut pools = self.pool_workers().iter().filter_map(|it| it.pool());
        (self.take_injected())
            .or_else(|| pools.find_map(|pool| pool.take()))
            .or_else(|| self.take_late())
    }

    /// Takes a task that stays, which was sent to a pool worker that has left. None of those was
    /// polled: a worker leaves when it owns no task. So they may be dropped anywhere: see
    /// [`task::new_on`](crate::task::new_on).
    fn take_late(&self) -> Option<Runnable> {
        if self.leaving.load(Ordering::Acquire) < self.main_index() {
            return None;
        }
        let mut remotes = self.pool_workers().iter();
        remotes.find_map(|remote| remote.inbox.pop())
    }

    /// A task was pushed for a worker, which may have left: see [`take_late`](Self::take_late), and
    /// "Closing". Returns whether the runtime closes.
    #[inline]
    pub(crate) fn pushed(&self) -> bool {
        self.closing.pushed(|| self.unpark_main())
    }

    /// Wakes every movable task that was polled, so that [`take_any`](Self::take_any) finds it.
    pub(crate) fn wake_movable_tasks(&self) {
        for remote in self.pool_workers() {
            remote.movable_tasks().wake_all();
        }
    }

    /// Whether another thread has sent something that [`take_any`](Self::take_any) would take.
    /// (What a pool worker has in its own queue nobody tells of.)
    pub(crate) fn has_any(&self) -> bool {
        let has_left = self.leaving.load(Ordering::Acquire) == self.main_index();
        let mut remotes = self.pool_workers().iter();
        self.has_injected()
            || remotes.any(|it| it.has_movable() || has_left && !it.inbox.is_empty())
    }

    /// How many tasks the pool worker owns that owns the fewest.
    pub(super) fn least_load(&self) -> usize {
        let loads = self.pool_workers().iter().map(|remote| remote.load());
        loads.min().unwrap_or(0)
    }

    // Idle workers.

    /// Whether a pool worker other than the one at `index` has offered tasks. Not while the runtime
    /// closes: then nobody takes them.
    #[inline]
    pub(super) fn has_surplus(&self, index: usize) -> bool {
        let surplus = self.surplus.load(Ordering::Relaxed);
        surplus != 0 && surplus != index + 1 && !self.is_closing()
    }

    /// The pool worker that has offered tasks.
    pub(super) fn surplus(&self) -> Option<usize> {
        self.surplus.load(Ordering::Relaxed).checked_sub(1)
    }

    /// The pool worker at `index` has more tasks to run than it gets round to: wakes an idle one if
    /// that is news. (If not, whoever became idle since has looked.)
    #[inline]
    pub(super) fn offer_surplus(&self, index: usize) {
        if self.surplus.load(Ordering::Relaxed) != index + 1 {
            self.surplus.store(index + 1, Ordering::Relaxed);
            self.wake_one();
        }
    }

    /// The pool worker at `index` has no more tasks than it gets round to.
    #[inline]
    pub(super) fn end_surplus(&self, index: usize) {
        if self.surplus.load(Ordering::Relaxed) == index + 1 {
            let (old, relaxed) = (index + 1, Ordering::Relaxed);
            let _ = self.surplus.compare_exchange(old, 0, relaxed, relaxed);
        }
    }

    /// See [`Monitor::begin_work`].
    #[inline]
    pub(super) fn begin_work(&self, index: usize) {
        self.monitor.begin_work(index, self);
    }

    /// See [`Monitor::may_sleep_deeply`].
    pub(super) fn may_sleep_deeply(&self, index: usize) -> bool {
        self.monitor.may_sleep_deeply(index, self)
    }

    /// Wakes an idle pool worker if there are tasks for it, and no worker is searching.
    #[inline]
    pub(crate) fn wake_one(&self) {
        self.idle.wake_one(self);
    }

    /// Whether the pool worker at `index` was woken to search for tasks. If so, it takes what it
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
    fn has_tasks(&self) -> bool {
        self.has_injected() || self.surplus.load(Ordering::Relaxed) != 0
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

impl MonitoredWorkers for Shared {
    fn count(&self) -> usize {
        self.main_index()
    }

    fn is_parked(&self, index: usize) -> bool {
        self.remotes[index].reactor.is_parked()
    }

    fn sleeps_deeply(&self, index: usize) -> bool {
        self.pool(index).sleeps_deeply.load(Ordering::Relaxed)
    }

    fn wake(&self, index: usize) -> bool {
        self.remotes[index].reactor.unpark()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poller::{Backend, Poller};

    /// With two pool workers.
    fn shared() -> Shared {
        let poller = || Poller::new(Backend::default()).expect("it opens");
        Shared::new((0..3).map(|_| Reactor::new(poller())))
    }

    #[test]
    fn only_who_is_woken_for_the_tasks_of_others_searches_for_them() {
        let shared = shared();
        shared.remote(1).reactor.park();
        shared.offer_surplus(0);
        assert!(!shared.remote(1).reactor.is_parked(), "it was woken");
        assert!(shared.is_searching(1) && !shared.is_searching(0));
        shared.end_search(1);
        assert!(!shared.is_searching(1));
    }

    #[test]
    fn of_the_pool_workers_the_last_one_to_leave_is_told_so() {
        let shared = shared();
        assert!(!shared.is_last_to_leave(), "another one is there");
        assert!(shared.is_last_to_leave());
    }

    #[test]
    fn workers_that_sleep_do_not_crowd_the_cores() {
        let shared = shared();
        assert!(shared.is_crowded(2) && !shared.is_crowded(3));
        shared.remote(0).reactor.park();
        assert!(shared.is_crowded(1) && !shared.is_crowded(2));
    }
}
