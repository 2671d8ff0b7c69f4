//! The task scheduler: run queues, wake-ups and workers.
//!
//! A runtime has one worker, or a main worker and a pool. [`Shared`] is the state that its workers
//! share. Each worker has a [`Remote`](shared::Remote), which other threads reach, and a [`Local`],
//! which only its own thread reaches. [`Worker`] is the loop that runs tasks, parks and drives the
//! reactor.
//!
//! **Waking.** `async-task` hands each woken task to [`schedule`]:
//!
//! * A *pinned* task is queued in its worker's `Local` if this thread drives that worker, without
//!   an atomic or a system call. Any other thread pushes it to the worker's inbox and unparks the
//!   worker: see `reactor::parking`. A thread that owns a worker without driving it (a foreign loop
//!   between two turns) counts as another thread.
//! * A *stealable* task is queued in the [`run_queue`] of the pool worker that this thread drives.
//!   It is injected by any other thread, or if no worker has run it yet, and one idle pool worker
//!   is woken: see [`idle`].
//! * A task that is woken while it runs yields: it runs again after the kernel was polled.
//! * A wake never drops or runs a task. So a source may wake a task under its lock (see
//!   `reactor::waiters`).
//!
//! **Stealable tasks** are the `Send` tasks of a runtime with a pool. Such a task is assigned to
//! the worker that runs it, just before the run, when only that worker has its runnable. So tasks
//! that communicate gather on one worker. All other tasks are pinned.
//!
//! **Reading order**, following a task through a pool: this file ([`schedule`]), [`shared`],
//! [`local`] (queues), [`worker`] (the turn), [`idle`] (which worker is woken), [`run_queue`]
//! (stealing). Parking: [`pool`], [`poller_lock`], [`monitor`], [`shard`]. Shutdown: [`owned`],
//! [`closing`], [`shutdown`].

pub(crate) mod budget;
mod busy;
#[cfg(feature = "kernel")]
mod by_choice;
mod closing;
mod current;
mod header;
mod idle;
mod late;
mod local;
mod main_future;
mod monitor;
mod mutex_queue;
mod nested;
mod owned;
mod poller_lock;
mod pool;
mod run_queue;
mod shard;
mod shared;
mod shutdown;
mod trace;
mod worker;

use std::io;
use std::sync::Arc;

use async_task::ScheduleInfo;

use crate::clock::{now, tick};
use crate::kernel;
use crate::telemetry::{Id, Label, WaitReason};

pub(crate) use busy::BusyPollConfig;
use current::{Current, with_current};
pub(crate) use current::{
    current_local, current_worker, driver, only_queues, wake_each, waker_kind, with_local,
    with_worker_of,
};
#[cfg(feature = "tracing")]
pub(crate) use header::set_wrapper;
pub(crate) use header::{
    Affinity, Header, Runnable, TaskRef, drop_within, is_task_waker, running_id, set_running,
    with_running, within,
};
use header::{INDEX, STEALABLE, TRACED, UNASSIGNED, UNCOUNTED};
pub(crate) use local::Local;
pub(crate) use main_future::{MainFuture, record_wait};
pub(crate) use owned::{OwnedKey, bind, task_ended, task_forgotten};
pub(crate) use shared::{Drive, Question, Remote, Shared, Slot};
#[cfg(feature = "blocking")]
pub(crate) use trace::current_trace;
pub(crate) use worker::{EVENT_INTERVAL, Worker};

impl Header {
    /// Counts the task as spawned, unless another thread spawns it while the runtime closes: see
    /// [`late`].
    #[inline]
    pub(crate) fn new(shared: &Arc<Shared>, affinity: Affinity, label: Label) -> Header {
        let (here, id, spawned) = with_current(|current| match current {
            Some(Current { local, .. }) => {
                let is_here = Arc::ptr_eq(&local.shared, shared);
                let id = local.ids.next();
                (is_here.then_some(local.index), id, local.counters.tick())
            }
            None => (None, Id::of_no_worker(), tick(now())),
        });
        let mut flags = if shared.trace.is_some() { TRACED } else { 0 };
        match here {
            None if shared.is_closing() => flags |= UNCOUNTED,
            _ => shared.task_spawned(here),
        }
        Header::of(shared, affinity.0 | flags, (id, spawned), label)
    }
}

/// Fails in a simulated world, which does not have `what`.
pub(crate) fn not_simulated(what: &str) -> io::Result<()> {
    kernel::current().map_or(Ok(()), |kernel| kernel.permit(what))
}

pub(crate) fn new_id() -> Id {
    with_local(|local| local.ids.next()).unwrap_or_else(Id::of_no_worker)
}

/// The schedule function of every task, new or woken, on any thread. `async-task` does not call it
/// again before the task has run.
pub(crate) fn schedule(runnable: Runnable, info: ScheduleInfo) {
    runnable.metadata().set_wait_reason(WaitReason::NOTHING);
    if runnable.metadata().is_traced() {
        trace::scheduled(runnable.metadata());
    }
    // Runs no foreign code, so the worker may stay borrowed.
    with_current(|current| match current {
        Some(Current { local, .. }) if Arc::ptr_eq(&local.shared, &runnable.metadata().shared) => {
            if let Some(runnable) = local.schedule_here(runnable, info.woken_while_running) {
                schedule_elsewhere(local, runnable);
            }
        }
        _ => schedule_from_outside(runnable),
    });
}

#[inline(never)]
fn schedule_elsewhere(local: &Local, runnable: Runnable) {
    let is_injected = push_remote(&local.shared, runnable);
    // The first task that a pool worker's task spawns: see "Waking" in `shared`. Between two tasks
    // each spawn wakes a worker, since foreign code such as a waker may block on what it spawns.
    let is_left_here =
        is_injected && local.is_running_task.get() && !local.has_pending_wake.replace(true);
    if is_injected && !is_left_here {
        local.shared.wake_one();
    }
}

#[inline(never)]
fn schedule_from_outside(runnable: Runnable) {
    // A queued task may run, end, and drop its reference to `Shared`.
    let shared = Arc::clone(&runnable.metadata().shared);
    if push_remote(&shared, runnable) {
        shared.wake_one();
    }
}

/// Pushes a pinned task to its worker's inbox, and a stealable one to the inject queue. Returns
/// whether a pool worker should be woken for it.
fn push_remote(shared: &Shared, runnable: Runnable) -> bool {
    // In a child of `fork` no thread runs the parent's tasks, and the queue's lock may be held
    // forever.
    if shared.main().reactor.poller().is_inherited() {
        std::mem::forget(runnable);
        return false;
    }
    if !runnable.metadata().is_stealable() {
        let remote = shared.remote(runnable.metadata().index());
        remote.inbox.push(runnable);
        remote.parker.note_wake_from_elsewhere();
        remote.parker.unpark();
        return false;
    }
    shared.inject_queue.push(runnable);
    // If the runtime closes, the pool workers may have exited, and the main worker waits for this
    // task.
    !shared.unpark_main_if_closing()
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::panic::Location;

    use super::*;
    use crate::poller::{Backend, Poller};

    fn pool_worker() -> (Worker, impl Fn() -> Runnable) {
        let poller = || Poller::new(Backend::default()).unwrap();
        let shared = Arc::new(Shared::with_pool(
            vec![(poller(), vec![None, None])],
            poller(),
        ));
        let worker = Worker::new(shared.clone(), 0, BusyPollConfig::default());
        let spawn = move || {
            let (runnable, task) =
                crate::task::new(&shared, pending::<()>(), Location::caller().into());
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
        push_remote(shared, spawn());
        assert!(main().is_parked(), "it does not close yet");
        shared.start_closing();
        wakes_main("a task was pushed", &|| {
            push_remote(shared, spawn());
        });
        wakes_main("a task has ended", &|| drop(shared.take_any()));
        wakes_main("a worker has exited", &|| shared.worker_exited());
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
            local.push(queued);
            local.push_lifo(local.stealable(), lifo);
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
        worker.local.push_lifo(worker.local.stealable(), next);
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
            worker.local.is_running_task.set(is_running_task);
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
        stay.into_iter().for_each(|task| local.push(task));
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
            assert!(local.schedule_here(running, true).is_none());
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
        assert!(local.schedule_here(first, true).is_none());
        let next = worker.next_of_pool().unwrap();
        assert_eq!(id(&next), last);
        drop(next);
        drop_tasks(&worker);
    }

    #[cfg(target_pointer_width = "64")]
    #[test]
    fn a_task_takes_no_more_than_64_bytes_of_ours() {
        assert!(size_of::<super::Header>() <= 64);
    }
}
