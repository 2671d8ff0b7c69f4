//! A question to a worker, and the wait for its answer: see `scheduler::request`.

use std::sync::{Condvar, PoisonError};
use std::time::{Duration, Instant};

use super::snapshot::WorkerSnapshot;
use crate::reactor::{Driver, now};
use crate::scheduler::{Local, Question};
use crate::sync::Mutex;

/// See the head of the module.
#[derive(Debug)]
pub(super) struct Request<A> {
    answer: Mutex<Option<A>>,
    answered: Condvar,
}

impl<A> Request<A> {
    pub(super) fn new() -> Request<A> {
        Request {
            answer: Mutex::new(None),
            answered: Condvar::new(),
        }
    }

    /// Stores the answer; called by the worker.
    fn set(&self, answer: A) {
        *self.answer.lock() = Some(answer);
        self.answered.notify_all();
    }

    /// Waits for the answer until `deadline`.
    pub(super) fn wait(&self, deadline: Instant) -> Option<A> {
        let mut answer = self.answer.lock();
        loop {
            let left = deadline.saturating_duration_since(now());
            if answer.is_some() || left == Duration::ZERO {
                return answer.take();
            }
            let waited = self.answered.wait_timeout(answer, left);
            (answer, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Question for Request<WorkerSnapshot> {
    fn answer(&self, local: &Local, driver: &Driver) {
        self.set(WorkerSnapshot::of(local, driver));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn an_answer_is_waited_for_until_the_deadline() {
        let request = Arc::new(Request::new());
        assert_eq!(request.wait(now()), None);
        let worker = {
            let request = request.clone();
            std::thread::spawn(move || request.set(5))
        };
        let deadline = now() + Duration::from_secs(60);
        assert_eq!(request.wait(deadline), Some(5));
        worker.join().unwrap();
    }
}
