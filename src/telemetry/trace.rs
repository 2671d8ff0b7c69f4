//! Trace events of a worker, and where they are recorded: see `diagnostics::trace`.

use std::any::Any;
use std::fmt;
use std::panic::{Location, RefUnwindSafe};
use std::time::{Duration, Instant};

use super::identity::Name;
use crate::clock::now;

/// A task, or [`MAIN_FUTURE`](super::MAIN_FUTURE), and where it was spawned.
pub(crate) type Traced = (u64, &'static Location<'static>);

/// An action of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    Spawned(Traced),
    PollBegins(Traced),
    PollEnds(u64),
    Woken(u64),
    /// The task's future was dropped.
    Ended(u64),
    /// The worker is about to sleep in the kernel (`Sleeps`), and returns from it (`Awakes`).
    Sleeps,
    Awakes,
    /// The kernel has reported a source; its descriptor number.
    Ready(u64),
    /// A timer has fired, this long after its deadline.
    TimerFired(Duration),
    /// A function given to `unblock` starts on a thread of the pool (`CallBegins`), and has
    /// returned (`CallEnds`).
    CallBegins(Traced),
    CallEnds(u64),
}

/// Records a worker's trace events. Used on the worker's thread.
pub(crate) trait Recorder: fmt::Debug + Send + Sync + RefUnwindSafe {
    /// Records an event that happened at `at`.
    fn push_at(&self, at: Instant, what: What);

    /// Records an event that happens now.
    fn push(&self, what: What) {
        self.push_at(now(), what);
    }
}

/// Stores the trace events of a runtime, except those of its workers. Calls no foreign code.
pub(crate) trait Tracer: fmt::Debug + Send + Sync + RefUnwindSafe {
    /// Records an event on a thread that is not a worker of the runtime.
    fn push(&self, what: What);

    /// Records the name of a spawned task, for which an event has no room.
    fn add_name(&self, id: u64, name: &Name);

    /// For the reader of the trace.
    fn as_any(&self) -> &dyn Any;
}
