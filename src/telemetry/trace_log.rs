//! The storage for the events of a traced runtime: see `diagnostics::trace`.
//!
//! A worker writes its events to a [`Ring`] among its counters. Those of all other threads are in
//! one more ring, behind a lock. No foreign code runs under the locks here.

use std::collections::VecDeque;
use std::time::{Instant, SystemTime};

use super::identity::Name;
use super::trace::Mark;
use super::trace_ring::{MAX_EVENTS, Ring};
use crate::clock::now;
use crate::sync::Mutex;

pub(crate) struct TraceLog {
    /// The start, by both clocks.
    pub(crate) start: Instant,
    pub(crate) start_time: SystemTime,
    /// Of each worker.
    capacity: usize,
    /// Written under the lock `pushing`.
    pub(crate) others: Ring,
    pushing: Mutex<()>,
    /// The names of tasks, at most `capacity`; an event has no room for one.
    names: Mutex<VecDeque<(u64, Name)>>,
}

impl TraceLog {
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

    pub(crate) fn ring(&self) -> Ring {
        Ring::new(self.start, self.capacity)
    }

    pub(crate) fn push(&self, what: Mark) {
        let _pushing = self.pushing.lock();
        self.others.push(what);
    }

    pub(crate) fn add_name(&self, id: u64, name: &Name) {
        let name = name.clone();
        let mut names = self.names.lock();
        let is_full = names.len() >= self.capacity;
        let forgotten = is_full.then(|| names.pop_front());
        names.push_back((id, name));
        drop(names);
        drop(forgotten);
    }

    pub(crate) fn names(&self) -> Vec<(u64, Name)> {
        self.names.lock().iter().cloned().collect()
    }
}
