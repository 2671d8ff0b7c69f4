//! Which task runs where, and next: run queues, wakes, workers.
//!
//! A runtime has one worker, or a main worker and a pool. [`Shared`] is what the workers of a
//! runtime share; [`Remote`](shared::Remote) is what other threads reach of one worker, and
//! [`Local`] what only its own thread does. [`Worker`] is the loop that runs tasks, parks and
//! drives the reactor.
//!
//! **Waking.** `async-task` hands each woken task to [`schedule`]:
//!
//! * If this thread drives the task's worker, the task goes to the run queue in `Local`: no atomic,
//!   no system call. If it woke itself while it ran, it yields: it runs again after the reactor was
//!   polled.
//! * From any other thread it goes to the inbox of its worker, which is unparked.
//!   `reactor::parking` says why such a wake is not lost. A thread that owns a worker without
//!   driving it (a foreign loop between two turns) counts as another thread.
//! * A wake never drops a task, nor runs one: it only puts it in a queue. So a source may wake a
//!   task under its lock (see `reactor::waiters`).
//! * A task that was never polled has no worker yet if the runtime has a pool. It goes to the
//!   inject queue, and one idle pool worker is woken: see [`idle`].

mod balance;
pub(crate) mod budget;
mod busy;
mod current;
mod idle;
mod local;
mod mutex_queue;
mod owned;
mod shared;
mod worker;

use std::panic::Location;
use std::sync::Arc;

use async_task::ScheduleInfo;

use crate::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use busy::BusyPollConfig;
use current::Current;
pub(crate) use current::{current_local, driver, is_own, with_local};
pub(crate) use local::Local;
pub(crate) use owned::{OwnedKey, bind, task_ended};
pub(crate) use shared::Shared;
use shared::UNASSIGNED;
pub(crate) use worker::Worker;

/// What every task has beside its future.
#[derive(Debug)]
pub(crate) struct Meta {
    shared: Arc<Shared>,
    /// The task's worker; [`UNASSIGNED`] until a pool worker takes the task. Written at most once,
    /// before the first poll, and so before there is a waker: whoever has one got it, directly or
    /// not, from the thread that wrote this. So relaxed accesses do.
    index: AtomicUsize,
    site: &'static Location<'static>,
}

impl Meta {
    /// Counts the task as spawned: by the current worker, if it is one of `shared`.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        index: usize,
        site: &'static Location<'static>,
    ) -> Meta {
        let here = with_local(|local| Arc::ptr_eq(&local.shared, shared).then_some(local.index));
        shared.task_spawned(here.flatten());
        Meta {
            shared: shared.clone(),
            index: AtomicUsize::new(index),
            site,
        }
    }

    /// Where the task was spawned.
    pub(crate) fn site(&self) -> &'static Location<'static> {
        self.site
    }

    #[inline]
    fn index(&self) -> usize {
        self.index.load(Ordering::Relaxed)
    }

    /// The pool worker at `index` has taken the task from the inject queue.
    #[inline]
    fn assign(&self, index: usize) {
        self.index.store(index, Ordering::Relaxed);
    }
}

pub(crate) type Runnable = async_task::Runnable<Meta>;

/// The schedule function of every task, called for a wake on any thread, and for a new task.
/// `async-task` does not call it again until the task has run.
pub(crate) fn schedule(runnable: Runnable, info: ScheduleInfo) {
    let remote = current::with_current(|current| match current {
        Some(Current { local, .. }) if local.is_worker_of(runnable.metadata()) => {
            match info.woken_while_running {
                true => local.yielded.borrow_mut().push_back(runnable),
                false => local.push(runnable),
            }
            None
        }
        _ => Some(runnable),
    });
    if let Some(runnable) = remote {
        schedule_remote(runnable);
    }
}

/// Schedules a task that is not the current worker's.
fn schedule_remote(runnable: Runnable) {
    // Once the task is in a queue it may run, end, and drop its reference to `Shared`. The current
    // worker's reference serves as well, if it is of the same runtime, and spares counting on a
    // cache line that all workers use. Nothing here runs foreign code, so the worker may stay
    // borrowed.
    current::with_current(|current| match current {
        Some(Current { local, .. }) if Arc::ptr_eq(&local.shared, &runnable.metadata().shared) => {
            let is_injected = push_remote(&local.shared, runnable);
            // The first task that a pool worker's task spawns: see "Waking" in `shared`.
            if is_injected && (!local.is_pool_worker || local.has_spawned.replace(true)) {
                local.shared.wake_one();
            }
        }
        _ => {
            let shared = Arc::clone(&runnable.metadata().shared);
            if push_remote(&shared, runnable) {
                shared.wake_one();
            }
        }
    });
}

/// Pushes a task to its worker's inbox, or to the inject queue of `shared`, its runtime. Returns
/// whether a pool worker is to be woken for it.
fn push_remote(shared: &Shared, runnable: Runnable) -> bool {
    let index = runnable.metadata().index();
    if index != UNASSIGNED {
        let remote = shared.remote(index);
        remote.inbox.push(runnable);
        remote.reactor.unpark();
        return false;
    }
    shared.inject(runnable);
    if shared.is_closing() {
        // The pool workers have exited, and the main worker waits for this task: see "Closing" in
        // `shared`.
        shared.unpark_main();
        return false;
    }
    true
}
