//! The task scheduler: run queues, wake-ups and workers.
//!
//! A runtime has one worker, or a main worker and a pool. [`Shared`] is the state that its workers
//! share. Each worker has a [`Remote`], which other threads reach, and a [`Local`], which only its
//! own thread reaches. [`Worker`] is the loop that runs tasks, parks and drives the reactor.
//!
//! **Waking.** `async-task` hands each woken task to [`schedule()`]:
//!
//! * A *pinned* task is queued in its worker's `Local` if this thread drives that worker, without
//!   an atomic or a system call. Any other thread pushes it to the worker's inbox and unparks the
//!   worker: see `reactor::parker`. A thread that owns a worker without driving it (a foreign loop
//!   between two turns) counts as another thread.
//! * A *stealable* task is queued in the [`run_queue`] of the pool worker that this thread drives.
//!   It is injected by any other thread, or if no worker has run it yet, and one idle pool worker
//!   is woken: see [`searcher`].
//! * A task that is woken while it runs yields: it runs again after the kernel was polled, or after
//!   a pool worker has found the poller's lock taken.
//! * A wake never drops or runs a task. So a source may wake a task under its lock (see
//!   `reactor::readiness::Waiters`).
//!
//! **Stealable tasks** are the `Send` tasks of a runtime with a pool. Such a task is assigned to
//! the worker that runs it, just before the run, when only that worker has its runnable. So tasks
//! that communicate gather on one worker. All other tasks are pinned.
//!
//! **Files**: each imports only earlier ones of this list:
//!
//! * Protocols that know no tasks, with loom models: [`run_queue`], [`mutex_queue`] (inboxes and
//!   the inject queue), [`searcher`] (which worker is woken), [`closing`], [`sleep`] (shards and
//!   the poller's lock; also the monitor's pause).
//! * [`header`] (a task), [`shared`] (what workers share), [`local`] (queues), [`policy`] (another
//!   order of these): the one circle. A task holds its runtime's `Shared`, with queues that hold
//!   tasks; and a `Local` answers questions that a `Shared` passes on.
//! * [`current`] (the worker that a thread drives), [`budget`], [`mod@schedule`] (the spawn of a
//!   task, and the four ways to queue it).
//! * [`monitor`] (which workers are stuck).
//! * [`worker`] (the turn), with [`busy`] and [`nested`]; [`pool`] (what only pool workers do): the
//!   methods of one type, which call each other.

pub(crate) mod budget;
mod busy;
mod closing;
mod current;
mod header;
mod local;
pub(crate) mod monitor;
mod mutex_queue;
mod nested;
mod policy;
mod pool;
mod run_queue;
mod schedule;
mod searcher;
mod shared;
mod sleep;
mod worker;

pub(crate) use busy::BusyPollConfig;
pub(crate) use current::{
    current_driver, current_local, current_worker, only_queues, wake_each, waker_kind, with_local,
    with_reactor,
};
#[cfg(feature = "tracing")]
pub(crate) use header::set_wrapper;
pub(crate) use header::{
    Affinity, Header, Runnable, TaskRef, drop_within, is_task_waker, running_id, set_running,
    with_running, within,
};
pub(crate) use local::{Local, MainFuture, record_wait};
pub(crate) use schedule::{
    OwnedKey, bind, exceeds_late_limit, new_header, new_id, schedule, schedule_new, task_ended,
    task_forgotten,
};
pub(crate) use shared::{Drive, Erased, Question, Remote, Shared};
pub(crate) use worker::{EVENT_INTERVAL, Worker};
