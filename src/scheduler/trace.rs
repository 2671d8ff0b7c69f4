//! What is traced of a runtime's tasks, if it is traced: see `diagnostics::trace`.
//!
//! A worker writes its own events, to the [`Ring`] among its counters. Spawns, wakes and ends on
//! threads that are no workers of the runtime, and calls of `unblock`, come from several threads:
//! they go to one more ring, behind a lock. All locks here are held for moments, and no foreign
//! code runs under them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::current::{Current, with_current};
use super::{Meta, Name, Shared};
use crate::reactor::{Ring, What, now};
use crate::sync::Mutex;

/// The trace of a runtime, beside what its workers have of it.
#[derive(Debug)]
pub(crate) struct TraceLog {
    /// When it began, by both clocks.
    pub(crate) start: Instant,
    pub(crate) start_time: SystemTime,
    /// How many events of each worker are kept.
    capacity: usize,
    /// What other threads did. Whoever pushes to it has the lock beside it.
    others: Ring,
    pushing: Mutex<()>,
    /// The names of tasks, which an event has no place for: of as many tasks as there may be events
    /// of a worker.
    names: Mutex<VecDeque<(u64, Name)>>,
}

impl TraceLog {
    fn new(capacity: usize) -> TraceLog {
        let start = now();
        TraceLog {
            start,
            start_time: SystemTime::now(),
            capacity,
            others: Ring::new(start, capacity),
            pushing: Mutex::new(()),
            names: Mutex::default(),
        }
    }

    /// A thread that is no worker of the runtime does something.
    fn push(&self, what: What) {
        let _pushing = self.pushing.lock();
        self.others.push(what);
    }

    /// What other threads did.
    pub(crate) fn others(&self) -> &Ring {
        &self.others
    }

    pub(crate) fn names(&self) -> Vec<(u64, Name)> {
        self.names.lock().iter().cloned().collect()
    }

    fn add_name(&self, id: u64, name: &Name) {
        let name = name.clone();
        let mut names = self.names.lock();
        let forgotten = match names.len() >= self.capacity {
            true => names.pop_front(),
            false => None,
        };
        names.push_back((id, name));
        drop(names);
        drop(forgotten);
    }

    /// A function given to `unblock` begins to run.
    #[cfg(feature = "blocking")]
    pub(crate) fn call_begins(&self, call: crate::reactor::Traced) {
        self.push(What::CallBegins(call));
    }

    /// It has returned, or panicked.
    #[cfg(feature = "blocking")]
    pub(crate) fn call_ends(&self, id: u64) {
        self.push(What::CallEnds(id));
    }
}

impl Shared {
    /// So many events of each worker are kept. Before any of them starts.
    pub(crate) fn traced(mut self, capacity: usize) -> Shared {
        let log = TraceLog::new(capacity.max(1));
        for remote in self.remotes() {
            let ring = Ring::new(log.start, capacity);
            remote.reactor.counters().set_trace(ring);
        }
        self.set_trace(Arc::new(log));
        self
    }
}

/// A task is scheduled: it was spawned, or woken.
#[cold]
pub(super) fn scheduled(meta: &Meta) {
    let id = meta.id.as_u64();
    if !meta.is_new() {
        return happened(meta, What::Woken(id));
    }
    if let (Some(name), Some(log)) = (meta.name(), meta.shared.trace()) {
        log.add_name(id, name);
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
            Some(ring) if Arc::ptr_eq(&local.shared, &meta.shared) => ring.push(what),
            _ => return false,
        }
        true
    });
    if let (false, Some(log)) = (is_own, meta.shared.trace()) {
        log.push(what);
    }
}

/// The trace of the runtime that this thread drives, if it is traced.
#[cfg(feature = "blocking")]
pub(crate) fn current_trace() -> Option<Arc<TraceLog>> {
    super::with_local(|local| local.shared.trace().cloned()).flatten()
}
