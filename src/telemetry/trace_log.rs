//! The storage for the events of a traced runtime: see `diagnostics::trace`, which reads them.
//!
//! A worker writes its own events to a [`Ring`] among its counters. Spawns, wakes and ends on
//! threads that are not workers of the runtime, and calls of `unblock`, come from several threads:
//! they go to one more ring, behind a lock. All locks here are held only briefly, and no foreign
//! code runs under them.

use std::collections::VecDeque;
use std::time::{Instant, SystemTime};

use super::identity::Name;
use super::trace::Mark;
use super::trace_ring::{MAX_EVENTS, Ring};
use crate::clock::now;
use crate::sync::Mutex;

/// The trace of a runtime.
pub(crate) struct TraceLog {
    /// The time at which it began, by both clocks.
    pub(crate) start: Instant,
    pub(crate) start_time: SystemTime,
    /// The number of events of each worker that are kept.
    capacity: usize,
    /// The events of other threads, written under the lock `pushing`.
    pub(crate) others: Ring,
    pushing: Mutex<()>,
    /// The names of tasks, for which an event has no room: of as many tasks as a worker may have
    /// events.
    names: Mutex<VecDeque<(u64, Name)>>,
}

impl TraceLog {
    /// Keeps `capacity` events of each worker.
    pub(crate) fn new(capacity: usize) -> TraceLog {
        let start = now();
        TraceLog {
            start,
            start_time: SystemTime::now(),
            capacity: capacity.min(MAX_EVENTS),
            others: Ring::new(start, capacity),
            pushing: Mutex::new(()),
            names: Mutex::new(VecDeque::new()),
        }
    }

    /// Returns the ring of a worker.
    pub(crate) fn ring(&self) -> Ring {
        Ring::new(self.start, self.capacity)
    }

    /// Records an event on a thread that is not a worker of the runtime.
    pub(crate) fn push(&self, what: Mark) {
        let _pushing = self.pushing.lock();
        self.others.push(what);
    }

    /// Records the name of a spawned task.
    pub(crate) fn add_name(&self, id: u64, name: &Name) {
        let name = name.clone();
        let mut names = self.names.lock();
        let is_full = names.len() >= self.capacity;
        let forgotten = is_full.then(|| names.pop_front());
        names.push_back((id, name));
        drop(names);
        drop(forgotten);
    }

    /// Returns the names of tasks, by id.
    pub(crate) fn names(&self) -> Vec<(u64, Name)> {
        self.names.lock().iter().cloned().collect()
    }
}
