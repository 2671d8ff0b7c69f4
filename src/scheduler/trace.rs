//! Trace events of a runtime's tasks, if it is traced: see `diagnostics::trace`.
//!
//! A worker keeps its own events in the ring among its counters. Events from several threads go to
//! the runtime's [`TraceLog`](crate::telemetry::TraceLog): spawns, wakes and ends on threads that
//! are not workers of the runtime, and calls of `unblock`.

use super::{Header, with_worker_of};
use crate::telemetry::Mark;

/// Records that a task is scheduled: it was spawned, or woken.
#[cold]
pub(super) fn scheduled(header: &Header) {
    let id = header.id.as_u64();
    if !header.is_new() {
        return happened(header, Mark::Woken(id));
    }
    if let (Some(name), Some(trace)) = (header.name(), &header.shared.trace) {
        trace.add_name(id, name);
    }
    happened(header, Mark::Spawned((id, header.site)));
}

/// Records that the future of a task was dropped.
#[cold]
pub(super) fn ended(header: &Header) {
    happened(header, Mark::Ended(header.id.as_u64()));
}

/// Records an event of a task, on this thread.
fn happened(header: &Header, what: Mark) {
    let here = with_worker_of(&header.shared, |local, _| {
        local.counters.trace().map(|own| own.push(what))
    });
    if let (None, Some(trace)) = (here.flatten(), &header.shared.trace) {
        trace.push(what);
    }
}

/// The trace of the runtime that this thread drives, if it is traced.
#[cfg(feature = "blocking")]
pub(crate) fn current_trace() -> Option<std::sync::Arc<crate::telemetry::TraceLog>> {
    super::with_local(|local| local.shared.trace.clone()).flatten()
}
