//! Trace events of a runtime's tasks: see `diagnostics::trace`.
//!
//! A worker keeps its own events in the ring among its counters. Events from any other thread are
//! in the runtime's [`TraceLog`](crate::telemetry::TraceLog).

use super::{Header, with_worker_of};
use crate::telemetry::Mark;

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

#[cold]
pub(super) fn ended(header: &Header) {
    happened(header, Mark::Ended(header.id.as_u64()));
}

fn happened(header: &Header, what: Mark) {
    let here = with_worker_of(&header.shared, |local, _| {
        local.counters.trace().map(|own| own.push(what))
    });
    if let (None, Some(trace)) = (here.flatten(), &header.shared.trace) {
        trace.push(what);
    }
}

#[cfg(feature = "blocking")]
pub(crate) fn current_trace() -> Option<std::sync::Arc<crate::telemetry::TraceLog>> {
    super::with_local(|local| local.shared.trace.clone()).flatten()
}
