//! The trace events of a worker, kept in a [`TraceLog`](super::TraceLog).

use std::panic::Location;
use std::time::Duration;

/// A task, or [`MAIN_FUTURE`](super::MAIN_FUTURE), and its spawn site.
pub(crate) type Traced = (u64, &'static Location<'static>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    Spawned(Traced),
    PollBegins(Traced),
    PollEnds(u64),
    Woken(u64),
    Ended(u64),
    /// The worker is about to sleep in the kernel, or has returned (`Awakes`).
    Sleeps,
    Awakes,
    /// The kernel has reported a source, with this descriptor number.
    Ready(u64),
    /// A timer has fired, this long after its deadline.
    TimerFired(Duration),
    /// A function given to `unblock` starts, or has returned (`CallEnds`).
    CallBegins(Traced),
    CallEnds(u64),
}
