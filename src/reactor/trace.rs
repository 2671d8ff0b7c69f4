//! What is traced of a worker, and where it goes: see `diagnostics::trace`.

use std::fmt;
use std::panic::{Location, RefUnwindSafe};
use std::time::{Duration, Instant};

use super::now;

/// A task, or [`MAIN_FUTURE`](super::MAIN_FUTURE), and where it was spawned.
pub(crate) type Traced = (u64, &'static Location<'static>);

/// Something that a worker did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    Spawned(Traced),
    PollBegins(Traced),
    PollEnds(u64),
    Woken(u64),
    /// Its future was dropped.
    Ended(u64),
    /// The worker is about to sleep in the kernel; and it comes back.
    Sleeps,
    Awakes,
    /// The kernel has reported a source: the number of its descriptor.
    Ready(u64),
    /// A timer has fired, so late.
    TimerFired(Duration),
    /// A function given to `unblock` begins to run, on a thread of the pool; and it has returned.
    CallBegins(Traced),
    CallEnds(u64),
}

/// Keeps what a worker did. For the worker's thread.
pub(crate) trait Recorder: fmt::Debug + Send + Sync + RefUnwindSafe {
    /// Something has happened at this time.
    fn push_at(&self, at: Instant, what: What);

    /// Something happens now.
    fn push(&self, what: What) {
        self.push_at(now(), what);
    }
}
