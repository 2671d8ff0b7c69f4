//! What the crate [`tracing`](https://docs.rs/tracing) is told, with the feature of that name: a
//! span for each task, and an event where something is wrong that nobody is returned an error for.
//! Without the feature everything here is empty, and is compiled to nothing.
//!
//! **The names are tokio's**, since tokio-console knows these: the layer of console-subscriber
//! takes a span that is called `runtime.spawn` for a task, whose polls lie between its `enter` and
//! its `exit`, and events of the target `tokio::task::waker` for what is done with its waker. (It
//! looks at names, targets and fields only, in `register_callsite` and in its visitors; what tokio
//! gives it is in tokio's `util/trace.rs`.) As with tokio a task's span is a root: it belongs to no
//! span of whoever has spawned it.
//!
//! **A subscriber is foreign code**, and it runs where a task is spawned, polled, woken and
//! dropped. It may spawn, wake, lock and panic there. So
//!
//! * nobody calls a function of this module under a lock, or while something of ours is borrowed.
//!   For wakes this takes no rule of its own: a task with a span is polled with a waker that wraps
//!   its own one, and that is never woken under a lock (`reactor::waiters`). To clone it is but
//!   to count;
//! * its panics are contained, whatever it is told. They would otherwise be the task's, or a
//!   waker's, which `async-task` aborts the process for. (The panic hook has reported them.)

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

/// What is said of a task when it is spawned.
#[derive(Clone, Copy)]
pub(crate) struct NewTask<'a> {
    pub(crate) kind: Kind,
    pub(crate) id: u64,
    pub(crate) name: Option<&'a str>,
    pub(crate) site: &'static Location<'static>,
    /// Of its future, in bytes.
    pub(crate) size: usize,
}

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Of `spawn`.
    Task,
    /// It stays on its worker: of `spawn_local`, `spawn_on`.
    Local,
    /// A function that runs on the pool.
    #[cfg(feature = "blocking")]
    Blocking,
}
