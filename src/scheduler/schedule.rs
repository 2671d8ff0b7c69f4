//! The functions that a task calls: to be spawned, queued, listed and removed.
//!
//! * [`new_header`] makes its header, and counts it.
//! * [`schedule_new`] queues it; or drops it, while its runtime closes.
//! * [`schedule`] queues a task that is new or woken.
//! * [`bind`] enters it in the list of its worker when its first poll has returned `Pending`, so
//!   short tasks are in no list. Dumps, `Debug` and metrics read the lists. Closing wakes every
//!   task in them, so that its runnable is queued and can be dropped.
//! * [`task_ended`] removes it when its future was dropped, and counts its end.
//!
//! **The lists.** Only the worker's thread accesses the list of its pinned tasks (`Local::owned`).
//! A stealable task stays in the list ([`OwnedTasks`](super::shared::OwnedTasks), with a lock) of
//! the worker that polled it first, since only the task has its position in the list. The thread
//! that drops the future removes it, nearly always that worker, so the lock is rarely contended.
//!
//! Wakers in the lists are async-task's, or a reference count around one (`spans`), so cloning one
//! runs no foreign code. They are woken outside of borrow and lock. Dropping one within is allowed:
//! it is not the task's last reference while the future exists, or is being dropped.
//!
//! **Traces.** A worker keeps the events of its tasks in the ring among its counters. Events from
//! any other thread are in the runtime's [`TraceLog`](crate::telemetry::TraceLog).
//!
//! **Late tasks** are spawned while their runtime closes, or after that. The spawner cancels such a
//! task immediately: it drops its future. That may run a destructor that spawns the next task, and
//! so on. To bound the stack, a thread that has [`MAX_LATE_DEPTH`] such drops on its stack queues
//! further tasks, and drops them when the outermost drop returns. Below that depth a destructor may
//! wait for the task that it spawns, which has been cancelled by then.
//!
//! **Why no task stays in the queue.** The queue belongs to the thread. The outermost drop returns
//! only when the queue is empty, and contains panics of destructors and wakers until then. A
//! runtime that is closed within such a destructor waits for all of its tasks, some of which may be
//! in that queue. So a worker that drops its tasks also drops the queued ones
//! ([`drop_late_tasks`]), and does not sleep while the queue has any.
//!
//! **The runtime does not wait** for late tasks that other threads have spawned: it would have to
//! wait for as long as others spawn. Such a task is in no queue of the runtime, and its future was
//! never polled. Everything that its destructor may use outlives the runtime: the task's metadata
//! has a reference to `Shared`; and no worker of the runtime is current on that thread, so sockets,
//! timers and tasks there are those of whichever runtime it drives. Tasks that its own workers
//! spawn are dropped on their threads, before these end.
//!
//! **Why it ends.** If each destructor spawns a task with the same destructor, for example to
//! restart a failed task, this would never end. So after [`MAX_LATE_TASKS`] tasks of a runtime
//! further futures are leaked ([`exceeds_late_limit`]). (What such a future would have reported
//! when dropped is lost: a `TaskSet` keeps its entry. The task itself is cancelled like any other.)

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::Waker;

use async_task::ScheduleInfo;

use super::current::{Current, with_current, with_local, with_local_of};
use super::header::{
    Affinity, Header, INDEX, Runnable, STEALABLE, TRACED, TaskRef, UNASSIGNED, UNCOUNTED,
};
use super::local::Local;
use super::shared::Shared;
use crate::clock::{jiffy, now};
use crate::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use crate::sync::contain;
use crate::telemetry::{Id, Mark, SpawnMeta, WaitReason};

/// Makes the header of a new task, and counts it as spawned, unless another thread spawns it while
/// the runtime closes.
#[inline]
pub(crate) fn new_header(shared: &Arc<Shared>, affinity: Affinity, meta: SpawnMeta) -> Header {
    let (here, id, spawned) = with_current(|current| match current {
        Some(Current { local, .. }) => {
            let is_here = Arc::ptr_eq(&local.shared, shared);
            let id = local.ids.next();
            (is_here.then_some(local.index), id, local.counters.jiffy())
        }
        None => (None, Id::of_no_worker(), jiffy(now())),
    });
    let mut flags = if shared.trace.is_some() { TRACED } else { 0 };
    match here {
        None if shared.is_closing() => flags |= UNCOUNTED,
        _ => shared.count_spawned(here),
    }
    Header {
        shared: shared.clone(),
        state: AtomicU16::new(affinity.0 | flags),
        spawned,
        id,
        site: meta.site,
        name: meta.name,
        wait_reason: AtomicU64::new(0),
        polls: AtomicU32::new(0),
        polled: AtomicU32::new(spawned),
        is_aborted: AtomicBool::new(false),
        is_finished: AtomicBool::new(false),
    }
}

pub(crate) fn new_id() -> Id {
    with_local(|local| local.ids.next()).unwrap_or_else(Id::of_no_worker)
}

/// Schedules a new task of `shared`. If the runtime is closing, drops and so cancels it.
#[inline]
pub(crate) fn schedule_new(shared: &Shared, runnable: Runnable) {
    if shared.is_closing() {
        drop_late(shared, runnable)
    } else {
        runnable.schedule()
    }
}

/// The schedule function of every task, new or woken, on any thread. `async-task` does not call it
/// again before the task has run.
///
/// There are four ways to queue a task: in a queue of the worker that this thread drives (until the
/// kernel was polled, if the task was woken while it ran); in that worker's LIFO slot; in the
/// inject queue; and in another worker's inbox.
pub(crate) fn schedule(runnable: Runnable, info: ScheduleInfo) {
    runnable.metadata().set_wait_reason(WaitReason::NOTHING);
    if runnable.metadata().is_traced() {
        trace_scheduled(runnable.metadata());
    }
    // Runs no foreign code, so the worker may stay borrowed.
    with_current(|current| match current {
        Some(Current { local, .. }) if Arc::ptr_eq(&local.shared, &runnable.metadata().shared) => {
            schedule_on(local, runnable, info.woken_while_running)
        }
        _ => schedule_elsewhere(None, runnable),
    });
}

/// [`schedule`] on a thread that drives a worker of the task's runtime. A task that was woken while
/// it ran `yields`.
#[inline(always)]
fn schedule_on(local: &Local, runnable: Runnable, yields: bool) {
    let state = runnable.metadata().state();
    // Pinned, and to this worker.
    if state & (INDEX | STEALABLE) == local.index as u16 {
        return if yields {
            local.push_yielded(runnable)
        } else {
            local.push_pinned(runnable)
        };
    }
    let was_assigned = state & STEALABLE != 0 && state & INDEX != UNASSIGNED;
    match &local.pool_remote {
        Some(_) if was_assigned && yields => local.push_yielded_stealable(runnable),
        // Its input, just written by the running task, is still in the nearest cache.
        Some(own) if was_assigned && local.is_running_task.get() => {
            if local.push_lifo(own, runnable) {
                local.has_pending_wake.set(true);
            }
        }
        Some(_) if was_assigned => local.push_stealable(runnable),
        // Pinned to another worker, new, or woken by the main worker.
        _ => schedule_elsewhere(Some(local), runnable),
    }
}

/// Sends a pinned task to its worker, and injects a stealable one, for which a pool worker is
/// woken. `here` is this thread's worker, if it is one of the task's runtime.
#[inline(never)]
fn schedule_elsewhere(here: Option<&Local>, runnable: Runnable) {
    let kept;
    let shared = match here {
        Some(local) => &local.shared,
        None => {
            // A queued task may run, end, and drop its reference to `Shared`.
            kept = Arc::clone(&runnable.metadata().shared);
            &kept
        }
    };
    // In a child of `fork` no thread runs the parent's tasks, and the queue's lock may be held
    // forever.
    if shared.main().reactor.poller().is_inherited() {
        std::mem::forget(runnable);
    } else if !runnable.metadata().is_stealable() {
        shared.send(runnable);
    } else if shared.inject(runnable) {
        // The first task that a pool worker's task spawns: see "Waking" in `shared`. Between two
        // tasks each spawn wakes a worker, since foreign code such as a waker may block on what it
        // spawns.
        if !here.is_some_and(Local::defer_wake) {
            shared.wake_one();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OwnedKey {
    worker: u32,
    /// The index plus one, so that an `Option` of the key takes eight bytes.
    place: NonZeroU32,
}

impl OwnedKey {
    #[inline]
    fn index(self) -> usize {
        self.place.get() as usize - 1
    }
}

/// Adds a task to the list of the current worker, after a first poll that has returned `Pending`.
pub(crate) fn bind(header: &Header, waker: &Waker) -> Option<OwnedKey> {
    with_local(|local| {
        debug_assert!(local.owns(header), "a task is polled by its own worker");
        let task = TaskRef::new(header, waker.clone());
        let index = if header.is_stealable() {
            local.pool_remote().owned.insert(task)
        } else {
            local.remote.pinned.add(1);
            local.owned.borrow_mut().insert(task)
        };
        let index = u32::try_from(index).expect("fewer than 2^32 tasks");
        OwnedKey {
            worker: local.index as u32,
            place: NonZeroU32::MIN.saturating_add(index),
        }
    })
}

/// Removes a task, if it was bound, after its future was dropped, and counts its end. Called on its
/// worker's thread if it is bound and pinned, on any thread otherwise.
pub(crate) fn task_ended(header: &Header, mut key: Option<OwnedKey>) {
    header.set_finished();
    if header.is_traced() {
        trace(header, Mark::Ended(header.id.as_u64()));
    }
    if let Some(key) = key.take_if(|_| header.is_stealable()) {
        let list = &header.shared.pool_remote(key.worker as usize).owned;
        list.remove(key.index());
    }
    let index = with_local_of(&header.shared, |local| {
        let local = local?;
        if let (Some(key), true) = (key, local.index == header.index()) {
            let pinned = &local.remote.pinned;
            pinned.set(pinned.get() - 1);
            // Empty if closing has taken the list.
            let removed = local.owned.borrow_mut().remove(key.index());
            drop(removed);
        }
        Some(local.index)
    });
    if header.is_counted() {
        header.shared.count_ended(index);
    }
}

/// Ends a task whose future was forgotten, before its spawner drops the runnable.
pub(crate) fn task_forgotten(header: &Header) {
    header.end_count();
    task_ended(header, None);
}

#[cold]
fn trace_scheduled(header: &Header) {
    let id = header.id.as_u64();
    if !header.is_new() {
        return trace(header, Mark::Woken(id));
    }
    if let (Some(name), Some(log)) = (header.name(), &header.shared.trace) {
        log.add_name(id, name);
    }
    trace(header, Mark::Spawned((id, header.site)));
}

#[cold]
fn trace(header: &Header, what: Mark) {
    with_local_of(&header.shared, |local| {
        match (
            local.and_then(|local| local.counters.trace()),
            &header.shared.trace,
        ) {
            (Some(own), _) => own.push(what),
            (None, Some(log)) => log.push(what),
            (None, None) => {}
        }
    });
}

/// How many tasks of a runtime destructors of late tasks may spawn: more than any program needs,
/// and few enough to be dropped in a fraction of a second.
const MAX_LATE_TASKS: usize = 1 << 17;

/// How many drops of late tasks a thread's stack may have: enough for destructors that clean up
/// with tasks, at the cost of a few dozen kilobytes.
const MAX_LATE_DEPTH: usize = 64;

struct Late {
    /// The number of drops of late tasks on the stack. The outermost one drops the queue
    /// afterwards.
    depth: usize,
    queue: VecDeque<Runnable>,
}

thread_local! {
    /// `ManuallyDrop`: usable in the destructors of other thread-locals. Nothing leaks, since the
    /// queue has no memory while no call drops a task.
    static LATE: RefCell<ManuallyDrop<Late>> = const {
        RefCell::new(ManuallyDrop::new(Late { depth: 0, queue: VecDeque::new() }))
    };
}

fn with_late<R>(f: impl FnOnce(&mut Late) -> R) -> R {
    (LATE.try_with(|late| f(&mut late.borrow_mut()))).expect("it has no destructor")
}

/// Whether to leak the future that is about to be spawned, because the runtime closes and the
/// destructors of late tasks have spawned too many. Counts the spawn, if this thread is dropping a
/// late task.
#[inline]
pub(crate) fn exceeds_late_limit(shared: &Shared) -> bool {
    shared.is_closing()
        && is_dropping()
        && shared.late.fetch_add(1, Ordering::Relaxed) >= MAX_LATE_TASKS
}

#[cold]
fn is_dropping() -> bool {
    with_late(|late| late.depth > 0)
}

/// Drops a task that was never polled: now, or after the tasks that this thread is dropping.
#[cold]
fn drop_late(shared: &Shared, runnable: Runnable) {
    // Another thread counts the task's end before the drop, so that the main worker does not wait
    // for the destructor: see "Closing" in `shared`.
    if with_local_of(shared, |local| local.is_none()) {
        runnable.metadata().end_count();
    }
    let to_drop = with_late(|late| {
        if late.depth == MAX_LATE_DEPTH {
            late.queue.push_back(runnable);
            return None;
        }
        late.depth += 1;
        Some(runnable)
    });
    let Some(runnable) = to_drop else {
        return;
    };
    contain(|| drop(runnable));
    if with_late(|late| late.depth == 1) {
        drop_late_tasks();
        with_late(|late| late.queue = VecDeque::new());
    }
    with_late(|late| late.depth -= 1);
}

pub(super) fn has_late_tasks() -> bool {
    with_late(|late| !late.queue.is_empty())
}

pub(super) fn drop_late_tasks() {
    while let Some(runnable) = with_late(|late| late.queue.pop_front()) {
        contain(|| drop(runnable));
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::panic::Location;

    use super::*;
    use crate::poller::{Backend, Poller};
    use crate::scheduler::{BusyPollConfig, Worker, current, local};
    use crate::spans::Kind;

    fn pool_worker() -> (Worker, impl Fn() -> Runnable) {
        let poller = || Poller::new(Backend::default()).unwrap();
        let shared = Arc::new(Shared::with_pool(
            vec![(poller(), vec![None, None])],
            poller(),
        ));
        let worker = Worker::with(shared.clone(), 0, BusyPollConfig::default());
        let spawn = move || {
            let (affinity, meta) = (shared.any_worker(), Location::caller().into());
            // SAFETY: the future is `Send`.
            let (runnable, task) =
                unsafe { crate::task::new(&shared, affinity, pending::<()>(), meta, Kind::Task) };
            task.detach();
            runnable
        };
        (worker, spawn)
    }

    fn id(runnable: &Runnable) -> u64 {
        runnable.metadata().id.as_u64()
    }

    fn drop_tasks(worker: &Worker) {
        worker.local.yield_mark.set(None);
        while let Some(runnable) = worker.local.pop() {
            drop(runnable);
        }
        while worker.shared().take_any().is_some() {}
    }

    /// The main worker of a runtime that closes is woken for what it waits for.
    ///
    /// `closing` models the main worker's side.
    #[test]
    fn closing_main_worker_woken_for_its_wait() {
        let (worker, spawn) = pool_worker();
        let shared = worker.shared();
        let main = || &shared.main().parker;
        let wakes_main = |what: &str, f: &dyn Fn()| {
            main().park();
            f();
            assert!(!main().is_parked(), "{what}");
        };
        main().park();
        shared.inject(spawn());
        assert!(main().is_parked(), "it does not close yet");
        shared.start_closing();
        wakes_main("a task was pushed", &|| {
            shared.inject(spawn());
        });
        wakes_main("a task has ended", &|| drop(shared.take_any()));
        main().park();
        shared.worker_exited();
        assert!(main().is_parked(), "another worker is left");
        wakes_main("the last worker has exited", &|| shared.worker_exited());
        drop_tasks(&worker);
    }

    /// The task that a worker was woken for comes before those that stay.
    ///
    /// Otherwise a pinned task that computes would delay it, and no other worker could take it.
    #[test]
    fn woken_task_precedes_local_ones() {
        let (worker, spawn) = pool_worker();
        let local = &worker.local;
        // Two rounds, since the two queues alternate.
        for _ in 0..2 {
            let (queued, lifo) = (spawn(), spawn());
            let next_id = id(&lifo);
            local.push_pinned(queued);
            local.push_lifo(local.pool_remote(), lifo);
            let is_next = || local.pop().map(|task| id(&task) == next_id);
            assert_eq!(
                [is_next(), is_next(), is_next()],
                [Some(true), Some(false), None]
            );
        }
    }

    /// A dump lists the tasks that were never polled.
    #[test]
    fn a_new_task_that_runs_next_is_known() {
        let (worker, spawn) = pool_worker();
        let next = spawn();
        let is_next = id(&next);
        worker.local.push_lifo(worker.local.pool_remote(), next);
        let mut known = Vec::new();
        (worker.local).for_each_new(|header| known.push(header.id.as_u64()));
        assert_eq!(known, [is_next]);
        drop_tasks(&worker);
    }

    /// A task is not new again after 2³² polls.
    #[test]
    fn task_not_new_again_after_2_to_the_32_polls() {
        let (worker, spawn) = pool_worker();
        let task = spawn();
        let header = task.metadata();
        assert!(header.is_new());
        header.begin_poll(header.spawned);
        assert!(!header.is_new());
        header.polls.store(u32::MAX, Ordering::Relaxed);
        header.begin_poll(header.spawned + 1);
        assert!(!header.is_new());
        drop(task);
        drop_tasks(&worker);
    }

    /// An idle worker is woken for what a waker spawns and not for the first of a task.
    ///
    /// A waker may block on what it spawns; a task most likely awaits it.
    #[test]
    fn spawn_in_waker_wakes_idle_worker() {
        for is_running_task in [false, true] {
            let (worker, spawn) = pool_worker();
            let idle = &worker.shared().remote(1).parker;
            let entered = current::enter(&worker.local, &worker.driver);
            idle.park();
            if is_running_task {
                worker.local.is_running_task.set(true);
            }
            spawn().schedule();
            assert_eq!(idle.is_parked(), is_running_task);
            drop(entered);
            drop_tasks(&worker);
        }
    }

    /// Also with injected tasks in between.
    #[test]
    fn pinned_tasks_and_stealable_ones_take_turns() {
        let (worker, spawn) = pool_worker();
        let local = &worker.local;
        let stay: Vec<_> = (0..4).map(|_| spawn()).collect();
        let ids: Vec<_> = stay.iter().map(id).collect();
        stay.into_iter().for_each(|task| local.push_pinned(task));
        (0..4).for_each(|_| local.push_stealable(spawn()));
        let mut order = Vec::new();
        for _ in 0..8 {
            let task = worker.next_of_pool().unwrap();
            order.push(ids.contains(&id(&task)));
            worker.shared().inject_queue.push(spawn());
            local.polls_new_next.set(true);
            drop(worker.next_of_pool());
        }
        assert_eq!(order, [true, false].repeat(4));
        drop_tasks(&worker);
    }

    /// After a task that yields new ones run but not without end.
    ///
    /// Otherwise the last of many new tasks would wait until all others had used up their budgets.
    /// Without a limit, new tasks would starve the worker's own.
    #[test]
    fn yield_lets_new_tasks_run_boundedly() {
        let (worker, spawn) = pool_worker();
        let (local, shared) = (&worker.local, worker.shared());
        let own: Vec<_> = (0..2).map(|_| spawn()).collect();
        let ids: Vec<_> = own.iter().map(id).collect();
        own.into_iter().for_each(|task| local.push_stealable(task));
        (0..100).for_each(|_| shared.inject_queue.push(spawn()));
        let mut running = worker.next_of_pool().unwrap();
        assert_eq!(id(&running), ids[0]);
        let mut new = 0;
        loop {
            schedule_on(local, running, true);
            running = worker.next_of_pool().unwrap();
            if ids.contains(&id(&running)) {
                break;
            }
            new += 1;
        }
        assert_eq!(id(&running), ids[1]);
        assert_eq!(new, local::YIELDS_PER_OWN_RUN - 1);
        drop(running);
        drop_tasks(&worker);
    }

    /// After a task that yields no injected one runs that was polled before.
    ///
    /// For example tasks that did not fit in the worker's queue.
    #[test]
    fn yield_lets_no_polled_injected_task_run() {
        let (worker, spawn) = pool_worker();
        let (local, shared) = (&worker.local, worker.shared());
        let own: Vec<_> = (0..2).map(|_| spawn()).collect();
        let last = id(&own[1]);
        own.into_iter().for_each(|task| local.push_stealable(task));
        let polled = spawn();
        polled.metadata().begin_poll(0);
        shared.inject_queue.push(polled);
        let first = worker.next_of_pool().unwrap();
        schedule_on(local, first, true);
        let next = worker.next_of_pool().unwrap();
        assert_eq!(id(&next), last);
        drop(next);
        drop_tasks(&worker);
    }

    #[cfg(target_pointer_width = "64")]
    #[test]
    fn a_task_takes_no_more_than_64_bytes_of_ours() {
        assert!(size_of::<Header>() <= 64);
    }
}
