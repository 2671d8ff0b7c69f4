//! A question to a worker, and the wait for its answer: see `scheduler::request`.

use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::snapshot::WorkerSnapshot;
use crate::reactor::{Driver, now};
use crate::scheduler::{Local, Question, Remote};
use crate::sync::Mutex;

/// See the head of the module.
#[derive(Debug)]
pub(super) struct Request {
    asker: Thread,
    answer: Mutex<Option<WorkerSnapshot>>,
}

impl Request {
    /// Asks a worker. The answer is for this thread.
    pub(super) fn ask(remote: &Remote) -> Arc<Request> {
        let request = Arc::new(Request {
            asker: thread::current(),
            answer: Mutex::new(None),
        });
        remote.requests.ask(request.clone());
        remote.reactor.unpark_best_effort();
        request
    }

    /// Waits for the answer until `deadline`. No answer is missed: it is stored before this thread
    /// is unparked, and parking after that returns at once.
    pub(super) fn wait(&self, deadline: Instant) -> Option<WorkerSnapshot> {
        loop {
            let left = deadline.saturating_duration_since(now());
            let answer = self.answer.lock().take();
            if answer.is_some() || left == Duration::ZERO {
                return answer;
            }
            thread::park_timeout(left);
        }
    }
}

impl Question for Request {
    fn answer(&self, local: &Local, driver: &Driver) {
        let answer = WorkerSnapshot::of(local, driver);
        *self.answer.lock() = Some(answer);
        self.asker.unpark();
    }
}
