//! What is traced of a runtime's tasks, if it is traced: see `diagnostics::trace`.
//!
//! A worker passes its own events to the [`Recorder`](crate::reactor::Recorder) among its counters.
//! Spawns, wakes and ends on threads that are no workers of the runtime, and calls of `unblock`,
//! come from several threads: they go to the runtime's [`Tracer`].

use std::any::Any;
use std::fmt;
use std::panic::RefUnwindSafe;
use std::sync::Arc;

use super::current::{Current, with_current};
use super::{Meta, Name};
use crate::reactor::What;

/// Keeps what is traced of a runtime, beside what its workers do. Calls no foreign code.
pub(crate) trait Tracer: fmt::Debug + Send + Sync + RefUnwindSafe {
    /// Something happens on a thread that is no worker of the runtime.
    fn push(&self, what: What);

    /// A task with this name is spawned: an event has no place for that.
    fn add_name(&self, id: u64, name: &Name);

    /// For what reads it.
    fn as_any(&self) -> &dyn Any;
}

/// A task is scheduled: it was spawned, or woken.
#[cold]
pub(super) fn scheduled(meta: &Meta) {
    let id = meta.id.as_u64();
    if !meta.is_new() {
        return happened(meta, What::Woken(id));
    }
    if let (Some(name), Some(trace)) = (meta.name(), meta.shared.trace()) {
        trace.add_name(id, name);
    }
    happened(meta, What::Spawned((id, meta.site())));
}

/// The future of a task was dropped.
#[cold]
pub(super) fn ended(meta: &Meta) {
    happened(meta, What::Ended(meta.id.as_u64()));
}

/// Something happens to a task, on this thread.
fn happened(meta: &Meta, what: What) {
    let is_own = with_current(|current| {
        let Some(Current { local, .. }) = current else {
            return false;
        };
        match local.counters.trace() {
            Some(own) if Arc::ptr_eq(&local.shared, &meta.shared) => own.push(what),
            _ => return false,
        }
        true
    });
    if let (false, Some(trace)) = (is_own, meta.shared.trace()) {
        trace.push(what);
    }
}

/// The trace of the runtime that this thread drives, if it is traced.
#[cfg(feature = "blocking")]
pub(crate) fn current_trace() -> Option<Arc<dyn Tracer>> {
    super::with_local(|local| local.shared.trace().cloned()).flatten()
}
