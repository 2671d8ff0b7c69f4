//! The storage for the events of a traced runtime: see `trace`, which reads them.
//!
//! A worker writes its own events to a [`Ring`]. Spawns, wakes and ends on threads that are not
//! workers of the runtime, and calls of `unblock`, come from several threads: they go to one more
//! ring, behind a lock. All locks here are held only briefly, and no foreign code runs under them.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::trace_ring::Ring;
use crate::clock::now;
use crate::scheduler::Shared;
use crate::sync::Mutex;
use crate::task::Name;
use crate::telemetry::{Recorder, Tracer, What};

/// The request to trace a runtime. A program that makes one links the log and its rings; other
/// programs do not.
#[derive(Clone, Debug)]
pub(crate) struct Tracing {
    pub(super) capacity: usize,
    /// Must be called before any worker of the runtime starts.
    pub(super) begin: fn(&mut Shared, usize),
}

impl Tracing {
    /// Keeps `capacity` events of each worker.
    pub(crate) fn new(capacity: usize) -> Tracing {
        Tracing {
            capacity,
            begin: TraceLog::begin,
        }
    }
}

/// The trace of a runtime.
#[derive(Debug)]
pub(super) struct TraceLog {
    /// The time at which it began, by both clocks.
    pub(super) start: Instant,
    pub(super) start_time: SystemTime,
    /// The number of events of each worker that are kept.
    capacity: usize,
    /// The events of each worker, written by its thread.
    pub(super) workers: Vec<Arc<Ring>>,
    /// The events of other threads, written under the lock `pushing`.
    pub(super) others: Ring,
    pushing: Mutex<()>,
    /// The names of tasks, for which an event has no room: of as many tasks as a worker may have
    /// events.
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
        shared.trace = Some(Arc::new(log));
    }

    /// Returns the log of a traced runtime.
    pub(super) fn of(shared: &Shared) -> Option<&TraceLog> {
        shared.trace.as_ref()?.as_any().downcast_ref()
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
        let is_full = names.len() >= self.capacity;
        let forgotten = is_full.then(|| names.pop_front());
        names.push_back((id, name));
        drop(names);
        drop(forgotten);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
