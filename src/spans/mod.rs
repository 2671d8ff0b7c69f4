//! The feature `tracing`: the crate [`tracing`](https://docs.rs/tracing) receives a span for each
//! task, and an event for each failure that is returned to no caller. Without the feature
//! everything here is empty, and compiles to nothing.
//!
//! **The names are tokio's**, since tokio-console knows these. The layer of console-subscriber
//! takes a span named `runtime.spawn` for a task, its `enter` and `exit` for the task's polls, and
//! events of the target `tokio::task::waker` for operations on its waker. (It looks at names,
//! targets and fields only, in `register_callsite` and in its visitors; tokio's side is in its
//! `util/trace.rs`.) As with tokio, a task's span is a root: it is no child of the spawner's span.
//!
//! **A subscriber is foreign code**, and it runs when a task is spawned, polled, woken and dropped.
//! It may spawn, wake, lock and panic there. So
//!
//! * no function of this module is called under a lock, or while something of ours is borrowed.
//!   Wakes need no extra rule for this: a task with a span is polled with a waker that wraps its
//!   own one, and that waker is never woken under a lock (`reactor::waiters`). Cloning it only
//!   increments a count;
//! * panics of the subscriber are contained in every call. Otherwise they would be the task's, or a
//!   waker's, for which `async-task` aborts the process. (The panic hook has reported them.)

#[cfg(feature = "tracing")]
mod traced;
#[cfg(feature = "tracing")]
use traced as told;

#[cfg(not(feature = "tracing"))]
mod untraced;
#[cfg(not(feature = "tracing"))]
use untraced as told;

pub(crate) use told::{TaskSpan, accept_failed, stalled, task_panicked};

use std::panic::Location;

/// The description of a task when it is spawned.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "tracing"), expect(dead_code))]
pub(crate) struct NewTask<'a> {
    pub(crate) kind: Kind,
    pub(crate) id: u64,
    pub(crate) name: Option<&'a str>,
    pub(crate) site: &'static Location<'static>,
    /// The size of its future in bytes.
    pub(crate) size: usize,
}

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// From `spawn`.
    Task,
    /// From `spawn_local` or `spawn_on`: it stays on its worker.
    Local,
    /// A function that runs on the pool.
    Blocking,
}
