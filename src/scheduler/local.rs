//! The part of a worker that belongs to its thread.
//!
//! [`Local`] has the run queues, the owned tasks and the cooperation budget. Only the worker's
//! thread accesses it, so it needs neither atomics nor locks. While the thread drives the worker,
//! its `Local` is the thread's *current* one. The other part, which every thread can reach, is the
//! worker's [`Remote`]; a pool worker's stealable tasks are there, in its [`Stealable`].

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use super::budget::{BUDGET, FIRST_BUDGET};
use super::current::Running;
use super::idle::IdleWorkers;
use super::main_future::MainFuture;
use super::mutex_queue::capacity;
use super::shared::{Question, Remote, Shared, Stealable};
use super::{Header, INDEX, Runnable, STEALABLE, TaskRef, UNASSIGNED};
use crate::clock::{now, tick};
use crate::slab::{Slab, shrink_queue};
use crate::sync::atomic::Ordering;
use crate::telemetry::requests::Requests;
use crate::telemetry::{Counters, Ids, Mark, SAMPLE, Traced, WaitReason};

/// The maximum number of consecutive runs of tasks that the previous task has woken. Such a task
/// runs before those that have been ready for longer; the limit prevents two tasks that wake each
/// other from starving the others.
pub(super) const MAX_LIFO_POLLS: usize = 7;

/// The number of runs after which a pool worker that has ready tasks takes its share of the
/// injected ones.
pub(super) const INJECT_INTERVAL: usize = 32;

/// After a stealable task that yields, a pool worker takes a new one, if there is one: the former
/// has had its share, and the latter has had none. But however many tasks are spawned, after so
/// many yields it is the turn of a task that the worker has already.
pub(super) const YIELDS_PER_OWN_RUN: usize = 16;

/// Capacity of the run queues, allocated with the worker, so that no wake in a small program
/// allocates. Larger queues grow once.
const QUEUE_CAPACITY: usize = 64;

/// The part of a worker that belongs to its thread.
pub(crate) struct Local {
    pub(crate) shared: Arc<Shared>,
    /// The index of this worker in its runtime.
    pub(crate) index: usize,
    pub(super) remote: Arc<Remote>,
    pub(crate) counters: Arc<Counters>,
    /// Mask for the count of polls: a poll is timed if the masked count is zero. That is one poll
    /// in [`SAMPLE`], or every poll if polls are traced.
    sample_mask: usize,
    /// The stealable tasks of a pool worker, which others may steal.
    pub(super) stealable: Option<Arc<Stealable>>,
    /// The run queue of pinned tasks here.
    pub(super) ready: RefCell<VecDeque<Runnable>>,
    /// The position, in the queue of stealable tasks, of the first one that has yielded in this
    /// turn: tasks from there on run after the kernel was polled.
    pub(super) yield_mark: Cell<Option<usize>>,
    /// The number of runs at which a pool worker that has ready tasks takes its share of the
    /// injected ones.
    pub(super) next_inject_run: Cell<usize>,
    /// Counts the stealable tasks that have yielded here.
    yields: Cell<usize>,
    /// Whether the next task is a new one, if there is one.
    pub(super) polls_new_next: Cell<bool>,
    /// Which of the two queues of a pool worker is tried first: alternates.
    prefers_pinned: Cell<bool>,
    /// Whether a task of a pool worker is running.
    pub(super) is_running_task: Cell<bool>,
    /// The number of consecutive runs of tasks that the previous task had woken.
    pub(super) lifo_polls: Cell<usize>,
    /// Tasks that woke themselves while they ran. They run again only after the reactor was polled.
    pub(super) yielded: RefCell<VecDeque<Runnable>>,
    /// the tasks that are pinned here, were polled and still have their futures, except a task in
    /// its first poll: see `owned`.
    pub(crate) owned: RefCell<Slab<TaskRef>>,
    /// The number of operations that the running task may still complete; if negative, the number
    /// of its refusals. Renewed when a poll begins.
    pub(super) budget: Cell<i32>,
    pub(super) ids: Ids,
    /// See [`poll_begins`](Self::poll_begins).
    pub(super) poll_ended: Cell<Option<Instant>>,
    /// The futures of `block_on` that the worker drives, outermost first.
    pub(crate) mains: RefCell<Vec<Rc<MainFuture>>>,
    /// Whether the running task has made a task ready for which no worker was woken: see "Waking"
    /// in `shared`.
    pub(super) has_pending_wake: Cell<bool>,
    /// Chooses the next task instead of the order of the queues, where the thread's kernel does.
    chooser: OnceCell<Box<dyn Chooser>>,
    /// Whether the next task is the first of the only queue: false for pool workers and workers
    /// with a chooser. One flag for both, since it is read in each run of a task.
    pub(super) is_plain_fifo: Cell<bool>,
}

/// Chooses the order of a worker's tasks instead of its queues, in a simulated world.
pub(super) trait Chooser {
    /// Takes the next task, from all that are ready.
    fn next(&self, local: &Local) -> Option<Runnable>;

    /// Takes one of the tasks that no pool worker has taken yet.
    fn injected(&self, shared: &Shared) -> Option<Runnable>;

    /// Records that the task is about to be polled.
    fn polls(&self, task: &Header);

    /// Queues the tasks that yielded, or keeps them back behind those that are ready.
    fn release_yielded(&self, local: &Local);
}

impl Local {
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> Local {
        Local {
            is_plain_fifo: Cell::new(index == shared.main_index()),
            chooser: OnceCell::new(),
            remote: shared.remote(index).clone(),
            counters: shared.remote(index).counters.clone(),
            sample_mask: match shared.trace {
                Some(_) => 0,
                None => SAMPLE - 1,
            },
            stealable: shared.remote(index).stealable.clone(),
            shared,
            index,
            ready: RefCell::new(VecDeque::with_capacity(capacity(QUEUE_CAPACITY))),
            yield_mark: Cell::new(None),
            next_inject_run: Cell::new(INJECT_INTERVAL),
            yields: Cell::new(0),
            polls_new_next: Cell::new(false),
            prefers_pinned: Cell::new(true),
            is_running_task: Cell::new(false),
            lifo_polls: Cell::new(0),
            yielded: RefCell::new(VecDeque::with_capacity(capacity(QUEUE_CAPACITY))),
            owned: RefCell::default(),
            budget: Cell::new(BUDGET),
            ids: Ids::default(),
            poll_ended: Cell::new(None),
            mains: RefCell::default(),
            has_pending_wake: Cell::new(false),
        }
    }

    #[inline]
    pub(crate) fn is_pool_worker(&self) -> bool {
        self.stealable.is_some()
    }

    /// The questions of other threads about this worker.
    pub(crate) fn requests(&self) -> &Requests<dyn Question> {
        &self.remote.requests
    }

    /// Whether this is the worker of the task, stealable or not.
    #[inline]
    pub(crate) fn owns(&self, header: &Header) -> bool {
        Arc::ptr_eq(&self.shared, &header.shared) && self.index == header.index()
    }

    /// Queues a task of this worker's runtime here, if it is pinned here; or, on a pool worker, if
    /// it is stealable and any pool worker has run it. `yields` is whether the task was woken while
    /// it ran. Returns the runnable of any other task: one that is pinned elsewhere, or that no
    /// pool worker has taken yet.
    #[inline(always)]
    pub(super) fn schedule_here(&self, runnable: Runnable, yields: bool) -> Option<Runnable> {
        let state = runnable.metadata().state();
        if state & (INDEX | STEALABLE) == self.index as u16 {
            self.schedule(runnable, yields);
            return None;
        }
        let was_taken = state & STEALABLE != 0 && state & INDEX != UNASSIGNED;
        match &self.stealable {
            Some(own) if was_taken => {
                self.schedule_stealable(own, runnable, yields);
                None
            }
            _ => Some(runnable),
        }
    }

    /// Schedules a task that is pinned to this worker.
    #[inline(always)]
    fn schedule(&self, runnable: Runnable, yields: bool) {
        if yields {
            runnable
                .metadata()
                .set_wait_reason(WaitReason::WOKEN_WHILE_RUNNING);
            self.yielded.borrow_mut().push_back(runnable);
        } else {
            self.push(runnable)
        }
    }

    #[inline]
    fn schedule_stealable(&self, own: &Stealable, runnable: Runnable, yields: bool) {
        if yields {
            self.schedule_yielded(runnable);
        } else if self.is_running_task.get() {
            // The data that the running task has just written for it is still in the nearest cache.
            if self.push_lifo(own, runnable) {
                self.has_pending_wake.set(true);
            }
        } else {
            self.push_stealable(runnable);
        }
    }

    /// Queues a stealable task that has yielded behind all that are ready, and ends the turn before
    /// it, so that it runs after this worker has polled, or has found the lock taken by one that
    /// does.
    fn schedule_yielded(&self, runnable: Runnable) {
        if self.chooser().is_some() {
            return self.schedule(runnable, true);
        }
        runnable
            .metadata()
            .set_wait_reason(WaitReason::WOKEN_WHILE_RUNNING);
        if self.yield_mark.get().is_none() {
            self.yield_mark.set(Some(self.stealable().queue.tail()));
        }
        let yields = self.yields.get().wrapping_add(1);
        self.yields.set(yields);
        self.polls_new_next.set(yields % YIELDS_PER_OWN_RUN != 0);
        self.push_stealable(runnable);
    }

    /// The stealable tasks of a pool worker, which others may steal.
    #[inline]
    pub(super) fn stealable(&self) -> &Stealable {
        self.stealable.as_ref().expect("it is a pool worker")
    }

    // The inject queue.

    /// Postpones the next share of injected tasks, since some are taken now.
    pub(super) fn postpone_injected(&self) {
        let runs = self.stealable().runs.get();
        self.next_inject_run.set(runs.wrapping_add(INJECT_INTERVAL));
    }

    /// Takes a pool worker's share of the inject queue. Returns the first task; the others are in
    /// the run queue.
    #[inline]
    pub(super) fn take_injected(&self) -> Option<Runnable> {
        self.take_from_injected(Local::take_share)
    }

    /// Takes an injected task that was never polled, if that is the first one.
    pub(super) fn pop_new(&self) -> Option<Runnable> {
        self.take_from_injected(|local| {
            let is_new = |runnable: &Runnable| runnable.metadata().is_new();
            local.shared.inject_queue.pop_if(is_new)
        })
    }

    /// Calls `take` if there are injected tasks, and wakes an idle worker for those that it leaves.
    #[inline]
    fn take_from_injected(&self, take: fn(&Local) -> Option<Runnable>) -> Option<Runnable> {
        if !self.shared.has_injected() || self.shared.is_closing() {
            return None;
        }
        let taken = take(self);
        if self.shared.has_injected() {
            self.shared.wake_one();
        }
        taken
    }

    #[inline(never)]
    fn take_share(&self) -> Option<Runnable> {
        let mut first = None;
        let mut wakes = 0;
        let mut take = |runnable: Runnable| {
            wakes += usize::from(!runnable.metadata().is_new());
            if first.is_none() {
                first = Some(runnable);
            } else {
                self.push_stealable(runnable);
            }
        };
        match self.chooser() {
            Some(chooser) => chooser.injected(&self.shared).into_iter().for_each(take),
            None => {
                // One more than there is room for, since the first is not queued.
                let room = self.stealable().queue.room() + 1;
                let share = self.shared.injected() / self.shared.workers() + 1;
                self.shared.inject_queue.take(share.min(room), &mut take);
            }
        }
        self.counters.remote_wakes.add(wakes);
        first
    }

    // The run queues.

    #[inline(always)]
    pub(super) fn push(&self, runnable: Runnable) {
        self.ready.borrow_mut().push_back(runnable);
    }

    /// Takes the first pinned task.
    #[inline]
    pub(super) fn pop_pinned(&self) -> Option<Runnable> {
        self.ready.borrow_mut().pop_front()
    }

    /// Takes the next task to run. In a simulated world the chooser decides. On a pool worker it is
    /// the task of the LIFO slot, or else the first of the two queues, alternately.
    #[inline(always)]
    pub(super) fn pop(&self) -> Option<Runnable> {
        if let Some(chooser) = self.chooser() {
            return chooser.next(self);
        }
        let Some(own) = &self.stealable else {
            return self.pop_pinned();
        };
        let in_row = self.lifo_polls.get();
        if in_row < MAX_LIFO_POLLS {
            if let Some(runnable) = own.queue.pop_lifo() {
                self.lifo_polls.set(in_row + 1);
                return Some(runnable);
            }
        }
        self.lifo_polls.set(0);
        let prefers_pinned = self.prefers_pinned.get();
        self.prefers_pinned.set(!prefers_pinned);
        if prefers_pinned {
            self.pop_pinned().or_else(|| self.pop_stealable(own))
        } else {
            self.pop_stealable(own).or_else(|| self.pop_pinned())
        }
    }

    #[inline]
    pub(super) fn chooser(&self) -> Option<&dyn Chooser> {
        self.chooser.get().map(|chooser| &**chooser)
    }

    /// Lets `chooser` choose the next task from now on.
    #[cfg(feature = "kernel")]
    pub(super) fn let_choose(&self, chooser: Box<dyn Chooser>) {
        let had_none = self.chooser.set(chooser).is_ok();
        debug_assert!(had_none, "a worker has one order");
        self.is_plain_fifo.set(false);
    }

    /// Takes the first stealable task of this turn. The one that runs next is the last.
    #[inline]
    fn pop_stealable(&self, own: &Stealable) -> Option<Runnable> {
        let queue = &own.queue;
        let end = self.yield_mark.get().unwrap_or_else(|| queue.tail());
        queue.pop_before(end).or_else(|| queue.pop_lifo())
    }

    /// Lets a stealable task run next. Returns whether another one would have been next, which is
    /// queued now.
    #[inline(always)]
    pub(super) fn push_lifo(&self, own: &Stealable, runnable: Runnable) -> bool {
        let before = own.queue.push_lifo(runnable);
        before.map(|before| self.push_stealable(before)).is_some()
    }

    /// Queues a stealable task of this worker. If there is no room, any worker may take it; this
    /// one looks at the inject queue before it sleeps, so none has to be woken.
    #[inline]
    pub(super) fn push_stealable(&self, runnable: Runnable) {
        if let Err(runnable) = self.stealable().queue.push(runnable) {
            self.shared.inject_queue.push(runnable);
        }
    }

    /// Moves tasks that other threads sent to the end of the run queue.
    #[inline]
    pub(super) fn take_inbox(&self) {
        self.remote.inbox.drain(&mut self.ready.borrow_mut());
    }

    /// Makes tasks that yielded ready again, after the reactor was polled.
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
        if ready.is_empty() {
            std::mem::swap(&mut *ready, &mut *yielded)
        } else {
            ready.append(&mut yielded)
        }
    }

    /// Whether there is a task to run now.
    #[inline]
    pub(super) fn has_ready(&self) -> bool {
        let has_items = |own: &Arc<Stealable>| own.queue.has_items();
        !self.ready.borrow().is_empty() || self.stealable.as_ref().is_some_and(has_items)
    }

    /// Returns the number of tasks to run now; on a pool worker about.
    pub(super) fn ready_tasks(&self) -> usize {
        let stealable = self.stealable.as_ref().map_or(0, |own| own.queue.len());
        self.ready.borrow().len() + stealable
    }

    #[inline]
    pub(super) fn has_work(&self) -> bool {
        self.has_ready() || !self.yielded.borrow().is_empty()
    }

    /// Whether there are tasks that this pool worker, which has none, can take. None while the
    /// runtime closes, since no worker takes them then.
    pub(super) fn has_tasks_elsewhere(&self) -> bool {
        self.shared.has_tasks() && !self.shared.is_closing()
    }

    /// Calls `f`, which runs no foreign code, with each task known to this thread that was never
    /// polled.
    pub(crate) fn for_each_new(&self, mut f: impl FnMut(&Header)) {
        let mut call = |runnable: &Runnable| {
            if runnable.metadata().is_new() {
                f(runnable.metadata());
            }
        };
        self.ready.borrow().iter().for_each(&mut call);
        self.remote.inbox.for_each(&mut call);
        let Some(own) = &self.stealable else {
            return;
        };
        // Only the thread that has taken a task out of the queue may look at it, since a thief may
        // take it at any time. So each is taken, and goes to the end. (For that moment an idle
        // worker may miss it, and this one runs it later.)
        if let Some(runnable) = own.queue.pop_lifo() {
            call(&runnable);
            self.push_lifo(own, runnable);
        }
        for _ in 0..own.queue.len() {
            let Some(runnable) = own.queue.pop() else {
                break;
            };
            call(&runnable);
            self.push_stealable(runnable);
        }
    }

    // Stealing: see `pool`.

    /// Takes half of the stealable tasks that are ready on the pool worker at `victim`; among them
    /// that of its LIFO slot if `takes_lifo`. Returns whether it has taken any.
    pub(super) fn steal_half(&self, victim: usize, takes_lifo: bool) -> bool {
        let (own, other) = (self.stealable(), self.shared.stealable(victim));
        let mut ready = other.queue.count_items(usize::MAX);
        ready += usize::from(takes_lifo && other.queue.has_lifo());
        let count = ready.div_ceil(2).min(own.queue.room());
        if count == 0 {
            return false;
        }
        let mut stolen = 0;
        other.queue.steal(count, takes_lifo, |runnable| {
            stolen += 1;
            self.push_stealable(runnable);
        });
        self.counters.stolen.add(stolen);
        stolen > 0
    }

    /// Runs a task with a new budget, and counts the run. Meanwhile other threads can read which
    /// task it is.
    #[inline]
    pub(super) fn run(&self, runnable: Runnable) {
        let counters = &*self.counters;
        let count = counters.polls.get().wrapping_add(1);
        counters.polls.set(count);
        let header = runnable.metadata();
        counters.set_task(header.id.as_u64(), header.site);
        self.budget.set(BUDGET);
        if header.begin_poll(counters.tick()) {
            self.budget.set(FIRST_BUDGET);
        }
        match count & self.sample_mask {
            0 => self.run_timed(runnable, count % SAMPLE == 0),
            _ => drop(runnable.run()),
        }
        counters.reset_task();
        Running::reset();
    }

    /// [`run`](Self::run) that reads the clock before and after, for the trace, and for the metrics
    /// if the run is one of their samples.
    #[inline(never)]
    fn run_timed(&self, runnable: Runnable, is_sample: bool) {
        let header = runnable.metadata();
        let id = header.id.as_u64();
        let start = self.poll_begins((id, header.site));
        if is_sample {
            self.measure_queue();
            self.give_queues_back();
            self.counters.set_tick(tick(start));
            header.polled.store(self.counters.tick(), Ordering::Relaxed);
        }
        runnable.run();
        let end = self.poll_ends(id);
        if is_sample {
            let poll_times = &self.counters.poll_times;
            poll_times.record(end.saturating_duration_since(start));
        }
    }

    /// Begins a poll, and traces it if polls are traced. It begins when the last poll ended, if in
    /// between this worker has only taken the next task from its own queue. A trace then reads the
    /// clock a third less often.
    ///
    /// `poll_ended` is reset by everything that the worker does, other than polls. So no poll
    /// begins before the wake that it follows, since only polls fill the queue.
    pub(super) fn poll_begins(&self, task: Traced) -> Instant {
        let start = self.poll_ended.take().unwrap_or_else(now);
        if let Some(trace) = self.counters.trace() {
            trace.push_at(start, Mark::PollBegins(task));
        }
        start
    }

    /// Ends the poll of a task.
    pub(super) fn poll_ends(&self, id: u64) -> Instant {
        let end = now();
        if let Some(trace) = self.counters.trace() {
            trace.push_at(end, Mark::PollEnds(id));
            // Pool workers take tasks that other threads push, and wake other workers, between two
            // polls.
            self.poll_ended.set(self.stealable.is_none().then_some(end));
        }
        end
    }

    /// Counts the ready tasks, including the one that runs next.
    fn measure_queue(&self) {
        let longest = &self.counters.longest_queue;
        let stealable = self.stealable.as_ref().map_or(0, |own| own.queue.len());
        let ready = 1 + self.ready.borrow().len() + stealable;
        longest.set(longest.get().max(ready));
    }

    /// Gives the memory of a queue back that many tasks have needed. Called once in many runs: a
    /// queue that has shrunk by half has room for those that become ready meanwhile.
    fn give_queues_back(&self) {
        for queue in [&self.ready, &self.yielded] {
            shrink_queue(&mut queue.borrow_mut());
        }
    }

    /// Called when a task has run, except by a worker that `is_plain_fifo`.
    #[inline]
    pub(super) fn end_run(&self) {
        self.is_running_task.set(false);
        if self.has_pending_wake.take() && self.has_ready() {
            if self.shared.has_injected() {
                self.shared.wake_one();
            } else {
                self.shared.wake_one_if_idle();
            }
        }
    }
}
