//! Which task runs where, and next: queues, wakes, workers.
//!
//! A runtime has one worker, or a main worker and a pool. What the workers of a runtime share is
//! [`Shared`]; what other threads reach of one of them is its [`Remote`](shared::Remote); what is its own thread's is
//! its [`Local`]; and the loop that runs tasks, parks and drives the reactor is the [`Worker`].
//!
//! **A wake** ([`schedule`]) of a task of the worker that this thread drives goes straight to `Local`'s
//! queue: no atomic, no system call. From anywhere else it goes to the inbox of the task's worker, which
//! is unparked; the head of `reactor::parking` says why it is not lost. A thread that owns a worker
//! without driving it (a foreign loop between two turns) counts as anywhere else. A task that has not
//! started goes to the inject queue, if the runtime has a pool.

mod balance;
pub(crate) mod budget;
mod busy;
mod idle;
mod inbox;
mod local;
mod owned;
mod shared;
mod worker;

use std::panic::Location;
use std::sync::Arc;

use async_task::ScheduleInfo;

use crate::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use busy::BusyPollConfig;
use local::CURRENT;
pub(crate) use local::{Local, current, with_current};
pub(crate) use owned::{OwnedKey, bind, task_ended};
pub(crate) use shared::Shared;
use shared::UNASSIGNED;
pub(crate) use worker::Worker;

/// What every task carries, beside its future.
#[derive(Debug)]
pub(crate) struct Meta {
    shared: Arc<Shared>,
    /// Which of the runtime's workers is the task's home; [`shared::UNASSIGNED`] until a worker takes it.
    /// Written once at most, before the first poll, and so before there is any waker: whoever has one
    /// got it, by whatever means, from a thread that knew.
    index: AtomicUsize,
    site: &'static Location<'static>,
}

impl Meta {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        index: usize,
        site: &'static Location<'static>,
    ) -> Meta {
        let here = with_current(|local| Arc::ptr_eq(&local.shared, shared).then_some(local.index));
        shared.task_spawned(here.flatten());
        Meta {
            shared: shared.clone(),
            index: AtomicUsize::new(index),
            site,
        }
    }

    pub(crate) fn site(&self) -> &'static Location<'static> {
        self.site
    }

    #[inline]
    fn index(&self) -> usize {
        self.index.load(Ordering::Relaxed)
    }

    /// A worker takes a task that has not started.
    #[inline]
    fn assign(&self, index: usize) {
        self.index.store(index, Ordering::Relaxed);
    }
}

pub(crate) type Runnable = async_task::Runnable<Meta>;

/// How every wake, from any thread, gets its task run. `async-task` calls it at most once until
/// the task has run.
pub(super) fn schedule(runnable: Runnable, info: ScheduleInfo) {
    let remote = CURRENT.with(|current| match &**current.borrow() {
        Some(local) if local.owns(runnable.metadata()) => {
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

/// To another worker's home, or, without one yet, to all of its runtime.
fn schedule_remote(runnable: Runnable) {
    // Once it is in a queue the task may run and be gone, and with it its share of the runtime. This
    // thread's own share serves as well, and spares counting, on a cache line that all workers want.
    // What follows runs nobody else's code, so the current worker may stay borrowed.
    CURRENT.with(|current| match &**current.borrow() {
        Some(local) if Arc::ptr_eq(&local.shared, &runnable.metadata().shared) => {
            let is_spawned = push_remote(&local.shared, runnable);
            // The first one that a pool worker's task spawns it most likely takes itself, when that task
            // returns.
            if is_spawned && (!local.is_pool_worker || local.has_spawned.replace(true)) {
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

/// True if it has no home yet, and one of `shared`, whose task it is, is to be woken for it.
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
        // The pool workers have gone, and the main worker waits for just this one: see "Closing" in `shared`.
        shared.remote(shared.main_index()).reactor.unpark();
        return false;
    }
    true
}
