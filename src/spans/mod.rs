//! Spans of the feature `tracing`: the crate [`tracing`](https://docs.rs/tracing) receives a span
//! for each task, and an event for each failure that is returned to no caller. Without the feature
//! everything here compiles to nothing.
//!
//! **The names are tokio's**, for tokio-console. Its layer takes a span named `runtime.spawn` for a
//! task, its `enter` and `exit` for the task's polls, and events of the target `tokio::task::waker`
//! for operations on its waker. (It matches names, targets and fields only; tokio's side is
//! `util/trace.rs`.) As with tokio, a task's span is a root: it is no child of the spawner's span.
//!
//! **A subscriber is foreign code**, which runs when a task is spawned, polled, woken and dropped.
//! It may spawn, wake, lock and panic there. So
//!
//! * no function of this module is called under a lock, or while something of polder is borrowed.
//!   Wakes need no extra rule: a task with a span is polled with a waker that wraps its own one,
//!   and that waker is never woken under a lock (`reactor::readiness::Waiters`). Cloning it only
//!   increments a count;
//! * panics of the subscriber are contained in every call. Otherwise they would be the task's, or a
//!   waker's, for which `async-task` aborts the process.

#[cfg(feature = "tracing")]
mod traced;
#[cfg(feature = "tracing")]
use traced as chosen;

#[cfg(not(feature = "tracing"))]
mod untraced;
#[cfg(not(feature = "tracing"))]
use untraced as chosen;

pub(crate) use chosen::{TaskSpan, accept_failed, stalled, task_panicked};

use std::panic::Location;

#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "tracing"), expect(dead_code))]
pub(crate) struct NewTask<'a> {
    pub(crate) kind: Kind,
    pub(crate) id: u64,
    pub(crate) name: Option<&'a str>,
    pub(crate) site: &'static Location<'static>,
    pub(crate) size: usize,
}

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Task,
    /// From `spawn_local` or `spawn_on_worker`: pinned.
    Local,
    /// A function that runs on the pool.
    Blocking,
}
