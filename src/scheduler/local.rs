//! The part of a worker that belongs to its thread: run queues, owned tasks and the cooperation
//! budget.
//!
//! While the thread drives the worker, its [`Local`] is the thread's *current* one. Other threads
//! reach the worker's [`Remote`], and a pool worker's [`PoolRemote`]; the rest needs neither
//! atomics nor locks.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use super::header::{Header, Runnable, Running, TaskRef, with_running};
use super::mutex_queue::capacity;
use super::policy::KernelPolicy;
use super::searcher::IdleWorkers;
use super::shared::{PoolRemote, Remote, Shared};

use crate::clock::{jiffy, now};
use crate::reactor::Reactor;
use crate::slab::{Slab, shrink_queue};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::telemetry::{Counters, Ids, MAIN_FUTURE, Mark, SAMPLE, Traced, WaitReason};

/// The number of operations that may succeed in one poll of a task: enough to drain a turn's
/// events, and few enough that others wait for microseconds.
pub(super) const BUDGET: i32 = 128;

/// The budget of a first poll. When many tasks with much to do are spawned together, the last one
/// starts after the first polls of all others.
pub(super) const FIRST_BUDGET: i32 = 32;

/// The maximum number of consecutive tasks taken from the LIFO slot, which holds the task that the
/// running one has woken: two tasks that wake each other must not starve the others.
const MAX_LIFO_POLLS: usize = 7;

/// The number of polls after which a busy pool worker takes its share of the injected tasks.
pub(super) const INJECT_INTERVAL: usize = 32;

/// After a stealable task that yields, a pool worker takes a new one, which has had no share of the
/// worker yet; except after one in this many yields, so that new tasks do not starve its own.
pub(super) const YIELDS_PER_OWN_RUN: usize = 16;

/// Initial capacity of the run queues, so that no wake in a small program allocates.
const QUEUE_CAPACITY: usize = 64;

pub(crate) struct Local {
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: usize,
    pub(crate) remote: Arc<Remote>,
    pub(crate) counters: Arc<Counters>,
    /// Mask for the count of polls: a poll is timed if the masked count is zero. That is one in
    /// [`SAMPLE`], or every poll if polls are traced.
    sample_mask: usize,
    /// Of a pool worker.
    pub(super) pool_remote: Option<Arc<PoolRemote>>,
    pub(super) ready_pinned: RefCell<VecDeque<Runnable>>,
    /// The position, in the queue of stealable tasks, of the first one that has yielded in this
    /// turn. Tasks from there on run after the kernel was polled, which removes the mark.
    pub(super) yield_mark: Cell<Option<usize>>,
    /// The value of [`Counters::polls`] at which the worker next takes its share of the inject
    /// queue, before its own tasks.
    next_inject_poll: Cell<usize>,
    /// The number of yields of stealable tasks: see [`YIELDS_PER_OWN_RUN`].
    yields: Cell<usize>,
    /// Whether the first injected task is next, if it was never polled.
    pub(super) polls_new_next: Cell<bool>,
    /// Which of the two queues is next: they alternate.
    pinned_first: Cell<bool>,
    /// Of a pool worker. False between two tasks, where wakers are called.
    pub(super) is_running_task: Cell<bool>,
    /// The number of tasks that were taken from the LIFO slot in a row.
    lifo_polls: Cell<usize>,
    /// Pinned tasks that were woken while they ran (with a policy, stealable ones too). They run
    /// again after the reactor was polled.
    pub(super) yielded: RefCell<VecDeque<Runnable>>,
    /// The tasks that are pinned here, were polled and still have their futures, except a task in
    /// its first poll: see `schedule`.
    pub(crate) owned: RefCell<Slab<TaskRef>>,
    /// The number of operations that the running task may still complete; if negative, the number
    /// of its refusals. Reset by each poll.
    pub(super) budget: Cell<i32>,
    pub(super) ids: Ids,
    /// When the last poll ended, if the next one may begin then: see
    /// [`poll_begins`](Self::poll_begins).
    pub(super) poll_ended: Cell<Option<Instant>>,
    /// The futures of `block_on` that this worker drives, outermost first.
    pub(crate) mains: RefCell<Vec<Rc<MainFuture>>>,
    /// Whether `end_run` may have to wake a worker: the running task has spawned a task, or has
    /// woken one that will not run next. See "Waking" in `shared`.
    pub(super) has_pending_wake: Cell<bool>,
    /// Replaces the order of the queues, if an installed kernel chooses it.
    policy: Option<KernelPolicy>,
    /// Whether the next task is the first of a single queue: false for pool workers and with a
    /// policy. One flag for both, since each run of a task reads it.
    pub(super) pops_front: bool,
}

impl Local {
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> Local {
        let is_chosen = cfg!(feature = "kernel") && shared.is_on_one_thread;
        Local {
            pops_front: index == shared.main_index() && !is_chosen,
            policy: is_chosen.then(KernelPolicy::default),
            remote: shared.remote(index).clone(),
            counters: shared.remote(index).counters.clone(),
            sample_mask: match shared.trace {
                Some(_) => 0,
                None => SAMPLE - 1,
            },
            pool_remote: shared.remote(index).pool_remote.clone(),
            shared,
            index,
            ready_pinned: RefCell::new(VecDeque::with_capacity(capacity(QUEUE_CAPACITY))),
            yield_mark: Cell::new(None),
            next_inject_poll: Cell::new(INJECT_INTERVAL),
            yields: Cell::new(0),
            polls_new_next: Cell::new(false),
            pinned_first: Cell::new(true),
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

    /// Registers a future of `block_on`, until the result is dropped.
    pub(super) fn enter_main(&self, site: &'static Location<'static>) -> Main<'_> {
        let jiffy = self.counters.jiffy();
        let future = Rc::new(MainFuture {
            waker: Arc::new(MainWaker {
                woken: AtomicBool::new(true),
                reactor: self.remote.reactor.clone(),
            }),
            site,
            began: jiffy,
            polled: Cell::new(jiffy),
            polls: Cell::new(0),
            wait_reason: Cell::new(0),
            is_in_poll: Cell::new(false),
        });
        self.mains.borrow_mut().push(future.clone());
        Main {
            local: self,
            future,
            outer: REASON_OF_MAIN.get(),
        }
    }

    #[inline]
    pub(crate) fn is_pool_worker(&self) -> bool {
        self.pool_remote.is_some()
    }

    #[inline]
    pub(crate) fn owns(&self, header: &Header) -> bool {
        Arc::ptr_eq(&self.shared, &header.shared) && self.index == header.index()
    }

    /// Leaves it to [`end_run`](Self::end_run) to wake a worker for a task that the running task
    /// has made ready. Returns false if no task runs, or one wake was left to it before.
    #[inline]
    pub(super) fn defer_wake(&self) -> bool {
        self.is_running_task.get() && !self.has_pending_wake.replace(true)
    }

    /// Keeps a task that was woken while it ran until the reactor was polled.
    #[inline(always)]
    pub(super) fn push_yielded(&self, runnable: Runnable) {
        runnable
            .metadata()
            .set_wait_reason(WaitReason::WOKEN_WHILE_RUNNING);
        self.yielded.borrow_mut().push_back(runnable);
    }

    /// Queues a stealable task that has yielded behind all that are ready, and ends the turn before
    /// it. So it runs after this worker has polled, or has found the poller locked by another that
    /// polls.
    pub(super) fn push_yielded_stealable(&self, runnable: Runnable) {
        if self.policy().is_some() {
            return self.push_yielded(runnable);
        }
        runnable
            .metadata()
            .set_wait_reason(WaitReason::WOKEN_WHILE_RUNNING);
        if self.yield_mark.get().is_none() {
            self.yield_mark.set(Some(self.pool_remote().queue.tail()));
        }
        let yields = self.yields.get().wrapping_add(1);
        self.yields.set(yields);
        self.polls_new_next.set(yields % YIELDS_PER_OWN_RUN != 0);
        self.push_stealable(runnable);
    }

    #[inline]
    pub(super) fn pool_remote(&self) -> &PoolRemote {
        self.pool_remote.as_ref().expect("it is a pool worker")
    }

    fn postpone_injected(&self) {
        let next = self.counters.polls.get().wrapping_add(INJECT_INTERVAL);
        self.next_inject_poll.set(next);
    }

    /// Takes a pool worker's share of the inject queue. Returns the first task and queues the
    /// others.
    #[inline]
    fn take_share(&self) -> Option<Runnable> {
        self.take_injected(Local::dequeue_share)
    }

    /// Takes the first injected task if it was never polled.
    fn take_new(&self) -> Option<Runnable> {
        self.take_injected(|local| {
            let is_new = |runnable: &Runnable| runnable.metadata().is_new();
            local.shared.inject_queue.pop_if(is_new)
        })
    }

    /// Takes injected tasks by `take`, unless the runtime closes, and wakes a worker for the rest.
    #[inline]
    fn take_injected(&self, take: fn(&Local) -> Option<Runnable>) -> Option<Runnable> {
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
    fn dequeue_share(&self) -> Option<Runnable> {
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
        match self.policy() {
            Some(policy) => policy.injected(&self.shared).into_iter().for_each(take),
            None => {
                // One more than fits, since the first is not queued.
                let room = self.pool_remote().queue.room() + 1;
                let share = self.shared.injected() / self.shared.workers() + 1;
                self.shared.inject_queue.take(share.min(room), &mut take);
            }
        }
        self.counters.remote_wakes.add(wakes);
        first
    }

    #[inline(always)]
    pub(super) fn next_task(&self) -> Option<Runnable> {
        let injected = if self.counters.polls.get() == self.next_inject_poll.get() {
            self.postpone_injected();
            self.take_share()
        } else if self.polls_new_next.get() {
            self.polls_new_next.set(false);
            self.take_new()
        } else {
            None
        };
        let next = injected.or_else(|| self.pop());
        next.or_else(|| self.take_share())
    }

    /// Queues this worker's share of the injected tasks. Returns whether there were any.
    pub(super) fn queue_share(&self) -> bool {
        let Some(runnable) = self.take_share() else {
            return false;
        };
        // Other workers can no longer take it, unless this one is stuck: so it runs first, however
        // many LIFO tasks ran in a row.
        self.lifo_polls.set(0);
        self.push_lifo(self.pool_remote(), runnable);
        self.postpone_injected();
        true
    }

    #[inline(always)]
    pub(super) fn push_pinned(&self, runnable: Runnable) {
        self.ready_pinned.borrow_mut().push_back(runnable);
    }

    #[inline]
    pub(super) fn pop_pinned(&self) -> Option<Runnable> {
        self.ready_pinned.borrow_mut().pop_front()
    }

    /// Takes the next task to run: the policy's, if there is one; on a pool worker the LIFO slot's,
    /// or else the first of the two queues, alternately.
    #[inline(always)]
    pub(super) fn pop(&self) -> Option<Runnable> {
        if let Some(policy) = self.policy() {
            return policy.next(self);
        }
        let Some(own) = &self.pool_remote else {
            return self.pop_pinned();
        };
        if self.may_poll_lifo() {
            if let Some(runnable) = own.queue.pop_lifo() {
                self.count_lifo(true);
                return Some(runnable);
            }
        }
        self.count_lifo(false);
        let pinned_first = self.pinned_first.get();
        self.pinned_first.set(!pinned_first);
        if pinned_first {
            self.pop_pinned().or_else(|| self.pop_stealable(own))
        } else {
            self.pop_stealable(own).or_else(|| self.pop_pinned())
        }
    }

    #[inline]
    pub(super) fn may_poll_lifo(&self) -> bool {
        self.lifo_polls.get() < MAX_LIFO_POLLS
    }

    /// Counts a task that is taken, from the LIFO slot or not.
    #[inline]
    pub(super) fn count_lifo(&self, is_lifo: bool) {
        let polls = if is_lifo {
            self.lifo_polls.get() + 1
        } else {
            0
        };
        self.lifo_polls.set(polls);
    }

    #[inline]
    pub(super) fn policy(&self) -> Option<&KernelPolicy> {
        // A constant without the feature.
        self.policy.as_ref().filter(|_| cfg!(feature = "kernel"))
    }

    /// Takes the first stealable task of this turn, or, if there is none, the LIFO slot's.
    #[inline]
    fn pop_stealable(&self, own: &PoolRemote) -> Option<Runnable> {
        let queue = &own.queue;
        let end = self.yield_mark.get().unwrap_or_else(|| queue.tail());
        queue.pop_before(end).or_else(|| queue.pop_lifo())
    }

    /// Puts a stealable task in the LIFO slot. Returns whether that has moved another one to the
    /// queue.
    #[inline(always)]
    pub(super) fn push_lifo(&self, own: &PoolRemote, runnable: Runnable) -> bool {
        let before = own.queue.push_lifo(runnable);
        before.map(|before| self.push_stealable(before)).is_some()
    }

    /// Queues a stealable task of this worker. One that does not fit is injected. No worker has to
    /// be woken for it, since this one looks at the inject queue before it sleeps.
    #[inline]
    pub(super) fn push_stealable(&self, runnable: Runnable) {
        if let Err(runnable) = self.pool_remote().queue.push(runnable) {
            self.shared.inject_queue.push(runnable);
        }
    }

    #[inline]
    pub(super) fn take_inbox(&self) {
        self.remote.inbox.drain(&mut self.ready_pinned.borrow_mut());
    }

    /// Makes the tasks in `yielded` ready again, after the reactor was polled.
    #[inline(always)]
    pub(super) fn release_yielded(&self) {
        if !self.yielded.borrow().is_empty() {
            self.append_yielded();
        }
    }

    #[inline(never)]
    fn append_yielded(&self) {
        if let Some(policy) = self.policy() {
            return policy.release_yielded(self);
        }
        let mut yielded = self.yielded.borrow_mut();
        let mut ready = self.ready_pinned.borrow_mut();
        if ready.is_empty() {
            std::mem::swap(&mut *ready, &mut *yielded)
        } else {
            ready.append(&mut yielded)
        }
    }

    #[inline]
    pub(super) fn has_ready(&self) -> bool {
        let has_items = |own: &Arc<PoolRemote>| own.queue.has_items();
        !self.ready_pinned.borrow().is_empty() || self.pool_remote.as_ref().is_some_and(has_items)
    }

    /// Returns the number of ready tasks; approximate on a pool worker.
    pub(super) fn ready_tasks(&self) -> usize {
        let stealable = self.pool_remote.as_ref().map_or(0, |own| own.queue.len());
        self.ready_pinned.borrow().len() + stealable
    }

    #[inline]
    pub(super) fn has_work(&self) -> bool {
        self.has_ready() || !self.yielded.borrow().is_empty()
    }

    /// Whether there are tasks that this pool worker, which has none, can take. False while the
    /// runtime closes, since no worker takes them then.
    pub(super) fn has_tasks_elsewhere(&self) -> bool {
        self.shared.has_stealable() && !self.shared.is_closing()
    }

    /// Calls `f`, which runs no foreign code, with each task known to this thread that was never
    /// polled.
    pub(crate) fn for_each_new(&self, mut f: impl FnMut(&Header)) {
        let mut call = |runnable: &Runnable| {
            if runnable.metadata().is_new() {
                f(runnable.metadata());
            }
        };
        self.ready_pinned.borrow().iter().for_each(&mut call);
        self.remote.inbox.for_each(&mut call);
        let Some(own) = &self.pool_remote else {
            return;
        };
        // A thief may take a queued task at any time, so each is taken out to be looked at, and
        // queued again at the end. An idle worker may miss it meanwhile; this one runs it later.
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

    /// Takes half of the stealable tasks that are ready on the pool worker at `victim`, with its
    /// LIFO slot if it is stuck. Returns whether it has taken any.
    pub(super) fn steal_half(&self, victim: usize) -> bool {
        let (own, other) = (self.pool_remote(), self.shared.pool_remote(victim));
        let takes_lifo = self.shared.remote(victim).is_stuck();
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

    /// Runs a task with a new budget, counts the run, and publishes which task runs.
    #[inline]
    pub(super) fn run(&self, runnable: Runnable) {
        let counters = &*self.counters;
        let count = counters.polls.get().wrapping_add(1);
        counters.polls.set(count);
        let header = runnable.metadata();
        counters.set_task(header.id.as_u64(), header.site);
        self.budget.set(BUDGET);
        if header.begin_poll(counters.jiffy()) {
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
            let longest = &self.counters.longest_queue;
            longest.set(longest.get().max(1 + self.ready_tasks()));
            // One run in many, since a queue shrunk by half still has room for tasks that become
            // ready meanwhile.
            shrink_queue(&mut self.ready_pinned.borrow_mut());
            shrink_queue(&mut self.yielded.borrow_mut());
            self.counters.set_jiffy(jiffy(start));
            header
                .polled
                .store(self.counters.jiffy(), Ordering::Relaxed);
        }
        runnable.run();
        let end = self.poll_ends(id);
        if is_sample {
            let poll_times = &self.counters.poll_times;
            poll_times.record(end.saturating_duration_since(start));
        }
    }

    /// Begins a poll, and traces it if polls are traced. It begins when the last poll ended, if
    /// this worker has meanwhile only taken the next task from its own queue: then a trace reads
    /// the clock a third less often. Everything else resets `poll_ended`, so no poll begins before
    /// the wake that it follows.
    pub(super) fn poll_begins(&self, task: Traced) -> Instant {
        let start = self.poll_ended.take().unwrap_or_else(now);
        if let Some(trace) = self.counters.trace() {
            trace.push_at(start, Mark::PollBegins(task));
        }
        start
    }

    pub(super) fn poll_ends(&self, id: u64) -> Instant {
        let end = now();
        if let Some(trace) = self.counters.trace() {
            trace.push_at(end, Mark::PollEnds(id));
            // Not for pool workers, which take injected tasks and wake other workers between two
            // polls.
            self.poll_ended
                .set(self.pool_remote.is_none().then_some(end));
        }
        end
    }

    /// Called after each run of a task, except by a worker that `pops_front`.
    #[inline]
    pub(super) fn end_run(&self) {
        self.is_running_task.set(false);
        if self.has_pending_wake.take() && self.has_ready() {
            if self.shared.has_injected() {
                self.shared.wake_one();
            } else {
                self.shared.try_wake_one();
            }
        }
    }
}

/// A future of `block_on` that a worker drives, polled among its tasks and listed in dumps. Written
/// on the worker's thread.
pub(crate) struct MainFuture {
    pub(super) waker: Arc<MainWaker>,
    pub(crate) site: &'static Location<'static>,
    /// When the worker got it, and when it was last polled: see
    /// [`clock::jiffy`](crate::clock::jiffy).
    pub(crate) began: u32,
    pub(crate) polled: Cell<u32>,
    pub(crate) polls: Cell<u32>,
    pub(super) wait_reason: Cell<u64>,
    pub(crate) is_in_poll: Cell<bool>,
}

impl MainFuture {
    #[inline]
    pub(super) fn begin_poll(&self, jiffy: u32) {
        self.polls.set(self.polls.get().wrapping_add(1));
        self.polled.set(jiffy);
        self.is_in_poll.set(true);
        set_reason_of_main(WaitReason::UNKNOWN);
    }

    #[inline]
    pub(super) fn end_poll(&self) {
        self.wait_reason.set(REASON_OF_MAIN.get());
        self.is_in_poll.set(false);
    }

    pub(crate) fn wait_reason(&self) -> u64 {
        if self.waker.is_woken() {
            WaitReason::NOTHING
        } else {
            self.wait_reason.get()
        }
    }

    pub(super) fn is_woken_by(&self, waker: &Waker) -> bool {
        Waker::from(self.waker.clone()).will_wake(waker)
    }

    pub(crate) fn waker_address(&self) -> usize {
        Arc::as_ptr(&self.waker).addr()
    }
}

thread_local! {
    /// Of the future of `block_on` that this thread polled last.
    static REASON_OF_MAIN: Cell<u64> = const { Cell::new(WaitReason::NOTHING) };
}

#[inline]
fn set_reason_of_main(word: u64) {
    (REASON_OF_MAIN.try_with(|reason| reason.set(word))).expect("it has no destructor");
}

/// Records what a future that returns `Pending` waits for, in the running task or `block_on`'s
/// future.
#[inline]
pub(crate) fn record_wait(reason: WaitReason) {
    let word = reason.encode();
    if with_running(|header: &Header| header.set_wait_reason(word)).is_none() {
        set_reason_of_main(word);
    }
}

pub(super) struct Main<'a> {
    local: &'a Local,
    pub(super) future: Rc<MainFuture>,
    /// The wait reason of the enclosing future, if its current poll has recorded one.
    outer: u64,
}

impl Drop for Main<'_> {
    fn drop(&mut self) {
        if self.future.is_in_poll.get() && self.local.counters.trace().is_some() {
            self.local.poll_ends(MAIN_FUTURE);
        }
        let popped = self.local.mains.borrow_mut().pop();
        drop(popped);
        set_reason_of_main(self.outer);
    }
}

pub(super) struct MainWaker {
    /// Initially true, so that the future is polled once.
    pub(super) woken: AtomicBool,
    pub(super) reactor: Arc<Reactor>,
}

impl MainWaker {
    #[inline]
    pub(super) fn reset(&self) {
        self.woken.swap(false, Ordering::Acquire);
    }

    /// Called on the worker's thread.
    pub(super) fn set_woken(&self) {
        self.woken.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Relaxed)
    }
}
