//! Questions to workers, and the wait for their answers: see `telemetry::requests`.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use super::snapshot::WorkerSnapshot;
use crate::reactor::Driver;
use crate::scheduler::{Local, Question, Remote};
use crate::sync::{Mutex, ThreadSignal};

pub(super) struct Request {
    answer: Mutex<Option<WorkerSnapshot>>,
    signal: Arc<ThreadSignal>,
}

impl Request {
    pub(super) fn wait(&self, asker: &Asker<'_>, deadline: Instant) -> Option<WorkerSnapshot> {
        loop {
            // Not the clock of a simulated world, which stands still meanwhile.
            let left = deadline.saturating_duration_since(Instant::now());
            asker.answer();
            // Released before the wait.
            let answer = self.answer.lock().take();
            if answer.is_some() || left.is_zero() {
                return answer;
            }
            self.signal.wait(Some(left));
        }
    }
}

impl Question for Request {
    fn answer(&self, local: &Local, driver: &Driver) {
        let answer = WorkerSnapshot::of(local, driver);
        *self.answer.lock() = Some(answer);
        self.signal.notify();
    }
}

/// A worker, on its own thread.
pub(crate) type OwnWorker = (Rc<Local>, Rc<Driver>);

/// A thread that asks workers. While it waits, it answers for its own workers.
pub(super) struct Asker<'a> {
    signal: Arc<ThreadSignal>,
    own: &'a [OwnWorker],
}

impl Asker<'_> {
    pub(super) fn new(own: &[OwnWorker]) -> Asker<'_> {
        let signal = Arc::new(ThreadSignal::default());
        for (local, _) in own {
            local.remote.requests.announce(Some(signal.clone()));
        }
        Asker { signal, own }
    }

    pub(super) fn ask(&self, remote: &Remote) -> Arc<Request> {
        let request = Arc::new(Request {
            answer: Mutex::new(None),
            signal: self.signal.clone(),
        });
        remote.requests.ask(request.clone());
        remote.parker.unpark_best_effort();
        request
    }

    fn answer(&self) {
        for (local, driver) in self.own {
            if local.remote.requests.is_asked() {
                (local.remote.requests).answer(|question| question.answer(local, driver));
            }
        }
    }
}

impl Drop for Asker<'_> {
    fn drop(&mut self) {
        for (local, _) in self.own {
            local.remote.requests.announce(None);
        }
    }
}
