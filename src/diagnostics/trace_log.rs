//! Where the events of a traced runtime go: see `trace`, which reads them.
//!
//! A worker writes its own events, to a [`Ring`]. Spawns, wakes and ends on threads that are no
//! workers of the runtime, and calls of `unblock`, come from several threads: they go to one more
//! ring, behind a lock. All locks here are held for moments, and no foreign code runs under them.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::trace_ring::Ring;
use crate::reactor::{Recorder, What, now};
use crate::scheduler::{Shared, Tracer};
use crate::sync::Mutex;
use crate::task::Name;

/// That a runtime is to be traced. A program that makes one links the log and its rings; others do
/// not.
#[derive(Clone)]
pub(crate) struct Tracing {
    capacity: usize,
    begin: fn(&mut Shared, usize),
}

impl Tracing {
    /// `capacity` events of each worker are kept.
    pub(crate) fn new(capacity: usize) -> Tracing {
        Tracing {
            capacity,
            begin: TraceLog::begin,
        }
    }

    /// Before any worker of the runtime starts.
    pub(super) fn begin(self, shared: &mut Shared) {
        (self.begin)(shared, self.capacity);
    }
}

impl fmt::Debug for Tracing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.capacity.fmt(f)
    }
}

/// The trace of a runtime.
#[derive(Debug)]
pub(super) struct TraceLog {
    /// When it began, by both clocks.
    pub(super) start: Instant,
    pub(super) start_time: SystemTime,
    /// How many events of each worker are kept.
    capacity: usize,
    /// What each worker did. Its thread writes there.
    pub(super) workers: Vec<Arc<Ring>>,
    /// What other threads did. Written under the lock beside it.
    pub(super) others: Ring,
    pushing: Mutex<()>,
    /// The names of tasks, which an event has no place for: of as many tasks as there may be events
    /// of a worker.
    names: Mutex<VecDeque<(u64, Name)>>,
}

impl TraceLog {
    fn begin(shared: &mut Shared, capacity: usize) {
        let capacity = capacity.max(1);
        let start = now();
        let ring = |_| Arc::new(Ring::new(start, capacity));
        let log = TraceLog {
            start,
            start_time: SystemTime::now(),
            capacity,
            workers: shared.remotes().iter().map(ring).collect(),
            others: Ring::new(start, capacity),
            pushing: Mutex::new(()),
            names: Mutex::default(),
        };
        for (remote, ring) in shared.remotes().iter().zip(&log.workers) {
            remote.reactor.counters().set_trace(ring.clone());
        }
        shared.set_trace(Arc::new(log));
    }

    /// Of a runtime that is traced.
    pub(super) fn of(shared: &Shared) -> Option<&TraceLog> {
        shared.trace()?.as_any().downcast_ref()
    }

    pub(super) fn names(&self) -> Vec<(u64, Name)> {
        self.names.lock().iter().cloned().collect()
    }
}

impl Tracer for TraceLog {
    fn push(&self, what: What) {
        let _pushing = self.pushing.lock();
        self.others.push(what);
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

    fn as_any(&self) -> &dyn Any {
        self
    }
}
