//! The half of a worker that belongs to its thread.
//!
//! [`Local`] has the run queues, the owned tasks and the cooperation budget. Only the worker's
//! thread touches it, so it needs neither atomics nor locks. While the thread drives the worker,
//! its `Local` is the thread's *current* one. The other half, which every thread can reach, is the
//! worker's [`Remote`]; what a pool worker has of movable tasks is there, in its [`PoolRemote`].

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use super::balance::{Balance, InjectedAction};
use super::budget::Budget;
use super::current::Running;
use super::identity::Ids;
use super::main_future::MainFuture;
use super::mutex_queue::capacity;
use super::owned::OwnedTasks;
use super::shared::{PoolRemote, Remote, Shared};
use super::{Meta, NONE, Runnable};
use crate::reactor::{Counters, Driver, SAMPLE, Traced, What, now};
use crate::sync::MutexGuard;

/// A pool worker that has so many tasks left after a turn could use help. With one less the other
/// worker would take the only one; and of two tasks that wake each other one is always left.
const SURPLUS: usize = 2;

/// A task that was woken by the running one runs next, before those that are ready longer; but no
/// more of these in a row, so that two that wake each other keep nobody waiting for long.
pub(super) const NEXTS_IN_ROW: usize = 7;

/// Capacity of the run queues, allocated with the worker, so that no wake of a small program
/// allocates. Larger queues grow once.
const QUEUE_CAPACITY: usize = 64;

/// The half of a worker that belongs to its thread.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) shared: Arc<Shared>,
    /// Which of the runtime's workers this is.
    pub(crate) index: usize,
    remote: Arc<Remote>,
    pub(crate) counters: Arc<Counters>,
    /// Each poll whose count has none of these bits is timed: one in [`SAMPLE`], or every one if
    /// they are traced.
    sample_mask: usize,
    pub(super) is_pool_worker: bool,
    /// What a pool worker shares with the others.
    pub(super) pool: Option<Arc<PoolRemote>>,
    pub(super) ready: RefCell<VecDeque<Runnable>>,
    /// Movable tasks that are ready found no room in the queue, and wait in the inbox: those that
    /// become ready now wait behind them.
    overflows: Cell<bool>,
    /// A task of a pool worker runs now.
    runs_task: Cell<bool>,
    /// How many tasks in a row were those that the one before them had woken.
    pub(super) nexts_in_row: Cell<usize>,
    /// Memory for what is being stolen.
    loot: RefCell<Vec<Runnable>>,
    /// Tasks that woke themselves while they ran. They run again only after the reactor was polled.
    pub(super) yielded: RefCell<VecDeque<Runnable>>,
    pub(crate) owned: OwnedTasks,
    /// How many movable tasks came to this worker, less those that it has seen go.
    movable: Cell<usize>,
    pub(super) budget: Budget,
    pub(super) ids: Ids,
    /// The index of the worker whose reactor this one serves at this moment; or [`NONE`].
    helps: Cell<usize>,
    /// What runs now has registered something with this worker's reactor.
    pub(super) waits_here: Cell<bool>,
    balance: Balance,
    /// See [`poll_begins`](Self::poll_begins).
    poll_ended: Cell<Option<Instant>>,
    /// The futures of `block_on` that it drives, one within the other.
    pub(crate) mains: RefCell<Vec<Rc<MainFuture>>>,
    /// The running task has spawned one, and nobody was woken for it: see "Waking" in `shared`.
    pub(super) has_spawned: Cell<bool>,
    /// What chooses the next task instead of the order of the queues, in a simulated world.
    chooser: OnceCell<Box<dyn Chooser>>,
    /// See [`takes_first`](Self::takes_first).
    takes_first: Cell<bool>,
}

/// Chooses the order of a worker's tasks in place of its queues: in a simulated world.
pub(super) trait Chooser: fmt::Debug {
    /// Takes the next task, of all that are ready.
    fn next(&self, local: &Local) -> Option<Runnable>;

    /// Takes one of the tasks that no pool worker has taken yet.
    fn injected(&self, shared: &Shared) -> Option<Runnable>;

    /// The task is about to be polled.
    fn polls(&self, task: &Meta);

    /// Queues the tasks that yielded, or leaves them behind those that are ready.
    fn release_yielded(&self, local: &Local);
}

impl Local {
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> Local {
        Local {
            is_pool_worker: index != shared.main_index(),
            takes_first: Cell::new(index == shared.main_index()),
            chooser: OnceCell::new(),
            remote: shared.remote(index).clone(),
            counters: shared.remote(index).reactor.counters().clone(),
            sample_mask: match shared.trace() {
                Some(_) => 0,
                None => SAMPLE - 1,
            },
            pool: shared.remote(index).pool().cloned(),
            shared,
            index,
            ready: RefCell::new(VecDeque::with_capacity(capacity(QUEUE_CAPACITY))),
            overflows: Cell::new(false),
            runs_task: Cell::new(false),
            nexts_in_row: Cell::new(0),
            loot: RefCell::default(),
            yielded: RefCell::new(VecDeque::with_capacity(capacity(QUEUE_CAPACITY))),
            owned: OwnedTasks::default(),
            movable: Cell::new(0),
            budget: Budget::new(),
            ids: Ids::new(),
            helps: Cell::new(NONE),
            waits_here: Cell::new(false),
            balance: Balance::new(),
            poll_ended: Cell::new(None),
            mains: RefCell::default(),
            has_spawned: Cell::new(false),
        }
    }

    #[inline]
    pub(crate) fn remote(&self) -> &Remote {
        &self.remote
    }

    #[inline]
    pub(crate) fn is_pool_worker(&self) -> bool {
        self.is_pool_worker
    }

    /// Whether this is the worker of a task that stays, and is not traced.
    #[inline]
    pub(super) fn is_worker_of(&self, meta: &Meta) -> bool {
        Arc::ptr_eq(&self.shared, &meta.shared) && self.index as u32 == meta.state()
    }

    /// Whether this is the worker of a task that stays, and is traced.
    pub(super) fn is_worker_of_traced(&self, meta: &Meta) -> bool {
        meta.is_traced() && !meta.is_movable() && self.has(meta)
    }

    /// Whether this is the task's worker, be the task movable or not.
    #[inline]
    pub(super) fn has(&self, meta: &Meta) -> bool {
        Arc::ptr_eq(&self.shared, &meta.shared) && self.index == meta.index()
    }

    /// Whether this is a pool worker, and the task a movable one of its runtime.
    #[inline]
    pub(super) fn is_pool_of(&self, meta: &Meta) -> bool {
        self.is_pool_worker && meta.is_movable() && Arc::ptr_eq(&self.shared, &meta.shared)
    }

    /// Tells the other pool workers how many tasks this one owns.
    #[inline]
    pub(super) fn publish_load(&self) {
        let load = self.owned.count().wrapping_add(self.movable.get());
        self.remote.set_load(load);
    }

    /// Movable tasks that were polled before belong to this worker now.
    #[inline]
    pub(super) fn movable_came(&self, count: usize) {
        self.movable.set(self.movable.get().wrapping_add(count));
    }

    /// Such tasks have ended here.
    #[inline]
    pub(super) fn movable_went(&self, count: usize) {
        self.movable.set(self.movable.get().wrapping_sub(count));
    }

    /// Schedules a task that stays on this worker. `yields` says whether it woke itself while it
    /// ran.
    #[inline(always)]
    pub(super) fn schedule(&self, runnable: Runnable, yields: bool) {
        match yields {
            true => {
                runnable.metadata().set_woken_by_itself();
                self.yielded.borrow_mut().push_back(runnable);
            }
            false => self.push(runnable),
        }
    }

    /// Schedules a movable task of this pool worker's runtime, whose runnable `schedule` was given.
    /// Returns it if it was never polled, or stays with another worker.
    #[inline]
    pub(super) fn schedule_movable(&self, runnable: Runnable, yields: bool) -> Option<Runnable> {
        let meta = runnable.metadata();
        let index = meta.index();
        if index != self.index {
            if index == NONE || !self.takes_along(meta) {
                return Some(runnable);
            }
            meta.assign(self.index);
            self.took(usize::from(meta.is_bound()), self.shared.pool(index));
        }
        match yields {
            // A world leaves it behind the others.
            true if self.chooser().is_some() => self.schedule(runnable, true),
            // It is found there after the reactor was polled.
            true => {
                meta.set_woken_by_itself();
                self.pool().inbox.push(runnable);
            }
            // What the running task has just written for it is in the nearest cache yet.
            false if self.runs_task.get() => {
                if let Some(before) = self.pool().queue.push_next(runnable) {
                    self.push_movable(before);
                }
            }
            false => self.push_movable(runnable),
        }
        None
    }

    /// Whether a task of another worker that is woken on this one comes here. Where the runtime
    /// closes, this worker drops it.
    #[inline]
    fn takes_along(&self, meta: &Meta) -> bool {
        !meta.waits_here() || self.helps.get() == meta.index() || self.shared.is_closing()
    }

    /// Wakes the tasks of the pool worker at `index` whose sources are ready or whose timers are
    /// due, unless that worker does so itself: those that are movable come here.
    ///
    /// `driver` is this worker's. `before` is called before foreign code runs, if any does.
    pub(super) fn help(&self, index: usize, driver: &Driver, before: impl Fn() + Copy) {
        /// Also if a waker panics.
        struct Done<'a>(&'a Cell<usize>);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.set(NONE);
            }
        }
        if let Some(right) = self.shared.pool(index).right_to_wait.try_lock() {
            self.helps.set(index);
            let _done = Done(&self.helps);
            driver.help(&self.shared.remote(index).reactor, || drop(right), before);
        }
    }

    /// Of a pool worker: what it shares with the others.
    #[inline]
    pub(super) fn pool(&self) -> &PoolRemote {
        self.pool.as_ref().expect("it is a pool worker")
    }

    /// The right of a pool worker to wait on its poller. Others need none.
    #[inline]
    pub(super) fn right_to_wait(&self) -> Option<MutexGuard<'_, ()>> {
        self.pool.as_ref().map(|pool| pool.right_to_wait.lock())
    }

    /// Wakes every task of this worker that waits, so that its runnable is queued. For closing.
    pub(super) fn wake_owned(&self) {
        self.owned.wake_all();
        if let Some(pool) = &self.pool {
            pool.owned.wake_all();
        }
    }

    // The inject queue.

    /// What this worker does about the inject queue.
    pub(super) fn injected_action(&self) -> InjectedAction {
        match self.is_pool_worker {
            true => self.balance.action(&self.shared, &self.remote),
            false => InjectedAction::None,
        }
    }

    /// Once a turn of a pool worker: takes note of how long it has left tasks to others.
    #[inline]
    pub(super) fn update_deferral(&self) {
        self.balance.update(self.injected_action());
    }

    /// Takes a task from the inject queue, if this worker is to take one. It is the task's worker
    /// from now on.
    #[inline]
    pub(super) fn take_injected(&self) -> Option<Runnable> {
        if self.injected_action() != InjectedAction::Take {
            return None;
        }
        let runnable = match self.chooser() {
            None => self.shared.take_injected()?,
            Some(chooser) => chooser.injected(&self.shared)?,
        };
        self.balance.taken();
        runnable.metadata().assign(self.index);
        if self.shared.has_injected() {
            self.shared.wake_one();
        }
        Some(runnable)
    }

    /// The running task has returned. If it has spawned a task that this worker will not run next,
    /// wakes another worker for it.
    #[inline]
    fn wake_for_spawned(&self) {
        if self.has_spawned.take() && self.has_ready() {
            self.shared.wake_one();
        }
    }

    // The run queues.

    #[inline(always)]
    pub(super) fn push(&self, runnable: Runnable) {
        self.ready.borrow_mut().push_back(runnable);
    }

    #[inline]
    pub(super) fn push_front(&self, runnable: Runnable) {
        self.ready.borrow_mut().push_front(runnable);
    }

    /// The next task to run. The order of tasks is decided here: in a simulated world, of those
    /// that stay and the movable ones.
    #[inline]
    pub(super) fn pop(&self) -> Option<Runnable> {
        match self.chooser() {
            None => self.pop_first(),
            Some(chooser) => chooser.next(self),
        }
    }

    /// [`pop`](Self::pop) where the order is that of the queue.
    #[inline]
    pub(super) fn pop_first(&self) -> Option<Runnable> {
        self.ready.borrow_mut().pop_front()
    }

    /// The next task of a pool worker's own: from its two queues by turns.
    #[inline]
    pub(super) fn pop_own(&self, count: usize) -> Option<Runnable> {
        match count % 2 == 0 || self.chooser().is_some() {
            true => self.pop().or_else(|| self.pop_movable()),
            false => self.pop_movable().or_else(|| self.pop_first()),
        }
    }

    /// Whether the next task is the first of the only queue: that of no pool worker, and of none
    /// for which a world chooses. One flag for both, since each run of a task asks.
    #[inline]
    pub(super) fn takes_first(&self) -> bool {
        self.takes_first.get()
    }

    #[inline]
    pub(super) fn chooser(&self) -> Option<&dyn Chooser> {
        self.chooser.get().map(|chooser| &**chooser)
    }

    /// From now on `chooser` chooses the next task.
    #[cfg(feature = "sim")]
    pub(super) fn let_choose(&self, chooser: Box<dyn Chooser>) {
        let had_none = self.chooser.set(chooser).is_ok();
        debug_assert!(had_none, "a worker belongs to one world");
        self.takes_first.set(false);
    }

    /// The next movable task to run.
    #[inline]
    pub(super) fn pop_movable(&self) -> Option<Runnable> {
        let queue = &self.pool.as_ref()?.queue;
        let in_row = self.nexts_in_row.get();
        if in_row < NEXTS_IN_ROW {
            if let Some(runnable) = queue.pop_next() {
                self.nexts_in_row.set(in_row + 1);
                return Some(runnable);
            }
        }
        self.nexts_in_row.set(0);
        queue.pop().or_else(|| queue.pop_next())
    }

    /// Queues a movable task of this worker.
    #[inline]
    pub(super) fn push_movable(&self, runnable: Runnable) {
        let pool = self.pool();
        match self.overflows.get() {
            false => {
                if let Err(runnable) = pool.queue.push(runnable) {
                    self.overflows.set(true);
                    pool.inbox.push(runnable);
                }
            }
            true => pool.inbox.push(runnable),
        }
    }

    /// Moves what other threads sent to the end of the run queue, as far as there is room.
    #[inline]
    pub(super) fn take_inbox(&self) {
        self.remote.inbox.drain(&mut self.ready.borrow_mut());
        self.take_movable();
    }

    /// [`take_inbox`](Self::take_inbox), of the movable tasks only: what has yielded is there too.
    #[inline]
    pub(super) fn take_movable(&self) {
        if let Some(pool) = &self.pool {
            let are_left = pool.inbox.take(pool.queue.room(), |runnable| {
                let full = pool.queue.push(runnable).is_err();
                debug_assert!(!full, "there is room");
            });
            self.overflows.set(are_left);
        }
    }

    /// The reactor was polled: tasks that yielded are ready again.
    #[inline(always)]
    pub(super) fn release_yielded(&self) {
        if !self.yielded.borrow().is_empty() {
            self.append_yielded();
        }
    }

    #[inline(never)]
    fn append_yielded(&self) {
        if let Some(chooser) = self.chooser() {
            return chooser.release_yielded(self);
        }
        let mut yielded = self.yielded.borrow_mut();
        let mut ready = self.ready.borrow_mut();
        match ready.is_empty() {
            true => std::mem::swap(&mut *ready, &mut *yielded),
            false => ready.append(&mut yielded),
        }
    }

    /// Whether there is a task to run now.
    #[inline]
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.borrow().is_empty() || self.pool.as_ref().is_some_and(|it| it.queue.has_items())
    }

    #[inline]
    pub(super) fn has_work(&self) -> bool {
        !self.ready.borrow().is_empty()
            || !self.yielded.borrow().is_empty()
            || (self.pool.as_ref()).is_some_and(|it| it.queue.has_items() || !it.inbox.is_empty())
    }

    /// Calls `f`, which runs no foreign code, with each task that was never polled, as far as this
    /// thread knows them.
    pub(crate) fn for_each_new(&self, mut f: impl FnMut(&Meta)) {
        let mut call = |runnable: &Runnable| {
            if runnable.metadata().is_new() {
                f(runnable.metadata());
            }
        };
        self.ready.borrow().iter().for_each(&mut call);
        self.remote.inbox.for_each(call);
    }

    // Stealing: see `thief`.

    /// Takes half of the movable tasks that are ready on the pool worker at `victim`. Returns
    /// whether it has taken any.
    #[cold]
    pub(super) fn steal_half(&self, victim: usize) -> bool {
        let (pool, other) = (self.pool(), self.shared.pool(victim));
        let room = pool.queue.room();
        let half = |len: usize| len.div_ceil(2).min(room);
        let mut loot = self.loot.take();
        let ready = other.queue.count_items(usize::MAX) + usize::from(other.queue.has_next());
        (other.queue).steal(half(ready), |runnable| loot.push(runnable));
        if loot.is_empty() {
            (other.inbox).take(half(other.inbox.len()), |runnable| loot.push(runnable));
        }
        let has_stolen = !loot.is_empty();
        let mut bound = 0;
        self.counters.stolen.add(loot.len());
        for runnable in loot.drain(..) {
            bound += usize::from(runnable.metadata().is_bound());
            runnable.metadata().assign(self.index);
            self.push_movable(runnable);
        }
        self.loot.replace(loot);
        self.took(bound, other);
        has_stolen
    }

    /// So many bound tasks came from another worker.
    #[inline]
    fn took(&self, count: usize, from: &PoolRemote) {
        if count > 0 {
            from.were_taken(count);
            self.movable_came(count);
            self.publish_load();
        }
    }

    /// Takes half of what another worker has offered. Returns whether it has taken any.
    pub(super) fn steal_surplus(&self) -> bool {
        let victim = (self.shared.surplus()).filter(|&victim| victim != self.index);
        let Some(victim) = victim else {
            return false;
        };
        let queue = &self.shared.pool(victim).queue;
        let has_surplus = || queue.count_items(SURPLUS) == SURPLUS;
        let has_stolen = has_surplus() && self.steal_half(victim);
        if !has_stolen || !has_surplus() {
            self.shared.end_surplus(victim);
        }
        has_stolen
    }

    /// After a turn of a pool worker: offers tasks to others, if it has more than it gets round to.
    #[inline]
    pub(super) fn offer_surplus(&self) {
        match self.pool().queue.count_items(SURPLUS) == SURPLUS {
            true => self.shared.offer_surplus(self.index),
            false => self.shared.end_surplus(self.index),
        }
    }

    /// Runs a task, and counts that. Others can read meanwhile which one it is.
    #[inline]
    pub(super) fn run(&self, runnable: Runnable) {
        let counters = &*self.counters;
        let count = counters.polls.get().wrapping_add(1);
        counters.polls.set(count);
        let meta = runnable.metadata();
        counters.set_task(meta.id.as_u64(), meta.site());
        meta.begin_poll(counters.tick());
        match count & self.sample_mask {
            0 => self.run_timed(runnable, count % SAMPLE == 0),
            _ => drop(runnable.run()),
        }
        counters.reset_task();
        Running::reset();
    }

    /// [`run`](Self::run), with a look at the clock before and after, for the trace, and for the
    /// metrics if it is a sample of those.
    #[inline(never)]
    fn run_timed(&self, runnable: Runnable, is_sample: bool) {
        let meta = runnable.metadata();
        let id = meta.id.as_u64();
        let start = self.poll_begins((id, meta.site()));
        if is_sample {
            self.measure_queue();
            self.counters.set_tick(start);
            meta.begin_poll_at(self.counters.tick());
        }
        runnable.run();
        let end = self.poll_ends(id);
        if is_sample {
            let poll_times = &self.counters.poll_times;
            poll_times.record(end.saturating_duration_since(start));
        }
    }

    /// A poll begins, which is traced if anything is: when the last one has ended, if this worker
    /// has done nothing in between but to take the next task from its own queue. That spares a
    /// trace every third reading of the clock.
    ///
    /// Whatever else the worker does, other than polls, ends with
    /// [`poll_is_long_ago`](Self::poll_is_long_ago): no poll begins before the wake that it
    /// follows, since the queue is filled by polls and there only.
    pub(super) fn poll_begins(&self, task: Traced) -> Instant {
        let start = self.poll_ended.take().unwrap_or_else(now);
        if let Some(trace) = self.counters.trace() {
            trace.push_at(start, What::PollBegins(task));
        }
        start
    }

    /// The poll of a task ends.
    pub(super) fn poll_ends(&self, id: u64) -> Instant {
        let end = now();
        if let Some(trace) = self.counters.trace() {
            trace.push_at(end, What::PollEnds(id));
            // Pool workers take tasks that others push, and wake others between two polls.
            self.poll_ended.set(self.pool.is_none().then_some(end));
        }
        end
    }

    /// The worker does something else than polls.
    #[inline]
    pub(super) fn poll_is_long_ago(&self) {
        self.poll_ended.set(None);
    }

    /// How many tasks are ready, with the one that runs next.
    fn measure_queue(&self) {
        let longest = &self.counters.longest_queue;
        let ready =
            1 + self.ready.borrow().len() + self.pool.as_ref().map_or(0, |it| it.queue.len());
        if ready > longest.get() {
            longest.set(ready);
        }
    }

    /// A task begins to run.
    #[inline]
    pub(super) fn renew_budget(&self) {
        self.budget.renew();
    }

    /// A task of a pool worker begins to run.
    #[inline]
    pub(super) fn begin_run(&self) {
        self.pool().count_run();
        self.waits_here.set(false);
        self.runs_task.set(true);
    }

    /// A task of a pool worker has run.
    #[inline(never)]
    pub(super) fn end_run(&self) {
        self.runs_task.set(false);
        self.wake_for_spawned();
    }
}
