//! Trace events of a runtime's tasks, if it is traced: see `diagnostics::trace`.
//!
//! A worker keeps its own events in the ring among its counters. Events from several threads go to
//! the runtime's [`TraceLog`](crate::telemetry::TraceLog): spawns, wakes and ends on threads that
//! are not workers of the runtime, and calls of `unblock`.

use super::{Meta, with_worker_of};
use crate::telemetry::Mark;

/// Records that a task is scheduled: it was spawned, or woken.
#[cold]
pub(super) fn scheduled(meta: &Meta) {
    let id = meta.id.as_u64();
    if !meta.is_new() {
        return happened(meta, Mark::Woken(id));
    }
    if let (Some(name), Some(trace)) = (meta.name(), &meta.shared.trace) {
        trace.add_name(id, name);
    }
    happened(meta, Mark::Spawned((id, meta.site)));
}

/// Records that the future of a task was dropped.
#[cold]
pub(super) fn ended(meta: &Meta) {
    happened(meta, Mark::Ended(meta.id.as_u64()));
}

/// Records an event of a task, on this thread.
fn happened(meta: &Meta, what: Mark) {
    let here = with_worker_of(&meta.shared, |local, _| {
        local.counters.trace().map(|own| own.push(what))
    });
    if let (None, Some(trace)) = (here.flatten(), &meta.shared.trace) {
        trace.push(what);
    }
}

/// The trace of the runtime that this thread drives, if it is traced.
#[cfg(feature = "blocking")]
pub(crate) fn current_trace() -> Option<std::sync::Arc<crate::telemetry::TraceLog>> {
    super::with_local(|local| local.shared.trace.clone()).flatten()
}
