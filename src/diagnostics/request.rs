//! A question to a worker, and the wait for its answer: see `telemetry::requests`.

use std::sync::{Arc, Condvar, PoisonError};
use std::time::Instant;

use super::snapshot::WorkerSnapshot;
use crate::clock::now;
use crate::reactor::Driver;
use crate::scheduler::{Local, Question, Remote};
use crate::sync::Mutex;

/// See the head of the module. (A condition variable, since parking the asker's thread could take a
/// wake-up that the thread's own executor waits for.)
pub(super) struct Request {
    answer: Mutex<Option<WorkerSnapshot>>,
    answered: Condvar,
}

impl Request {
    /// Asks a worker.
    pub(super) fn ask(remote: &Remote) -> Arc<Request> {
        let request = Arc::new(Request {
            answer: Mutex::new(None),
            answered: Condvar::new(),
        });
        remote.requests.ask(request.clone());
        remote.reactor.unpark_best_effort();
        request
    }

    /// Waits for the answer until `deadline`.
    pub(super) fn wait(&self, deadline: Instant) -> Option<WorkerSnapshot> {
        let answer = self.answer.lock();
        let left = deadline.saturating_duration_since(now());
        let waited = (self.answered).wait_timeout_while(answer, left, |answer| answer.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.take()
    }
}

impl Question for Request {
    fn answer(&self, local: &Local, driver: &Driver) {
        let answer = WorkerSnapshot::of(local, driver);
        *self.answer.lock() = Some(answer);
        self.answered.notify_all();
    }
}
