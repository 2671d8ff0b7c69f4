//! Questions that other threads have for a worker. Its own thread answers, between two polls.
//!
//! Who asks puts a [`Request`] in the list, and then unparks the worker, which looks there whenever
//! anything has come from elsewhere, and before it sleeps (`Remote::has_inbox`). So a question is
//! as little lost as a task that is sent: see `reactor::parking`. A worker that is in the middle of
//! a task does not answer. Who asks waits for a while only, and then withdraws the request, so that
//! none is left where nobody waits any more. The lock of the list decides whether the worker has
//! taken it by then: if so the worker is at it, and who asks waits for longer. `loom` checks this
//! below.

use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::{Condvar, PoisonError};
#[cfg(not(loom))]
use std::time::{Duration, Instant};

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// The questions that one worker has not looked at yet. A question is what the worker is to do for
/// it, so that only a program that asks has that in it.
#[derive(Debug)]
pub(crate) struct Requests<Q, A> {
    /// Whether there is any, to be read without the lock. Written under it.
    asked: AtomicBool,
    list: Mutex<Vec<Arc<Request<Q, A>>>>,
}

#[derive(Debug)]
pub(crate) struct Request<Q, A> {
    question: Q,
    answer: Mutex<Option<A>>,
    #[cfg(not(loom))]
    answered: Condvar,
}

impl<Q: Copy, A> Requests<Q, A> {
    pub(super) fn new() -> Requests<Q, A> {
        Requests {
            asked: AtomicBool::new(false),
            list: Mutex::new(Vec::new()),
        }
    }

    /// Asks. The worker is to be unparked afterwards.
    pub(super) fn ask(&self, question: Q) -> Arc<Request<Q, A>> {
        let request = Arc::new(Request {
            question,
            answer: Mutex::new(None),
            #[cfg(not(loom))]
            answered: Condvar::new(),
        });
        let mut list = self.list.lock();
        list.push(request.clone());
        self.asked.store(true, Ordering::Relaxed);
        request
    }

    /// Whether there is a question: exact for the worker, once it was unparked.
    #[inline]
    pub(super) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// For the worker: answers each question by what `make` returns.
    pub(super) fn answer(&self, mut make: impl FnMut(Q) -> A) {
        let mut list = self.list.lock();
        let requests = std::mem::take(&mut *list);
        self.asked.store(false, Ordering::Relaxed);
        drop(list);
        for request in requests {
            let answer = make(request.question);
            *request.answer.lock() = Some(answer);
            #[cfg(not(loom))]
            request.answered.notify_all();
        }
    }

    /// Takes a question back. Returns false if the worker has taken it: it answers, or has done so.
    pub(super) fn withdraw(&self, request: &Arc<Request<Q, A>>) -> bool {
        let mut list = self.list.lock();
        let before = list.len();
        list.retain(|other| !Arc::ptr_eq(other, request));
        self.asked.store(!list.is_empty(), Ordering::Relaxed);
        list.len() < before
    }
}

#[cfg(not(loom))]
impl<Q, A> Request<Q, A> {
    /// Waits for the answer until `deadline`.
    pub(super) fn wait(&self, deadline: Instant, now: fn() -> Instant) -> Option<A> {
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn a_question_that_was_taken_is_not_withdrawn_and_its_answer_comes() {
        let requests = Arc::new(Requests::new());
        let request = requests.ask(());
        let [taken, go_on] = [(); 2].map(|()| Arc::new(Barrier::new(2)));
        let worker = {
            let (requests, taken, go_on) = (requests.clone(), taken.clone(), go_on.clone());
            std::thread::spawn(move || {
                requests.answer(|()| {
                    taken.wait();
                    go_on.wait();
                    5
                });
            })
        };
        taken.wait();
        assert_eq!(request.wait(Instant::now(), Instant::now), None);
        assert!(!requests.withdraw(&request), "the worker is at it");
        go_on.wait();
        let deadline = Instant::now() + Duration::from_secs(60);
        assert_eq!(request.wait(deadline, Instant::now), Some(5));
        worker.join().unwrap();
        let other = requests.ask(());
        assert!(requests.withdraw(&other) && !requests.is_asked());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::reactor::parking::{Parking, Since};
    use loom::sync::Condvar;

    /// A worker that sleeps unless it is asked. Left out: that it has anything else to do.
    struct World {
        parking: Parking,
        requests: Requests<(), usize>,
        notified: Mutex<bool>,
        woken: Condvar,
    }

    impl World {
        fn new() -> Arc<World> {
            Arc::new(World {
                parking: Parking::new(),
                requests: Requests::new(),
                notified: Mutex::new(false),
                woken: Condvar::new(),
            })
        }

        fn ask(&self) -> Arc<Request<(), usize>> {
            let request = self.requests.ask(());
            if self.parking.unpark() {
                *self.notified.lock() = true;
                self.woken.notify_one();
            }
            request
        }

        /// Answers `total` questions. As the general turn has it, which does not go by what `park`
        /// returns; loom fails the model where this sleeps for ever.
        fn work(&self, total: usize, quickly: bool) {
            let mut answers = 0;
            while answers < total {
                let came = self.parking.park();
                let stays = match quickly {
                    true => came != Since::Nothing,
                    false => self.requests.is_asked(),
                };
                if !stays {
                    let mut notified = self.notified.lock();
                    while !*notified {
                        notified = self.woken.wait(notified).unwrap();
                    }
                    *notified = false;
                }
                self.parking.resume();
                self.requests.answer(|()| {
                    answers += 1;
                    answers
                });
            }
        }
    }

    fn check(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    #[test]
    fn a_question_reaches_a_worker_that_falls_asleep() {
        for quickly in [false, true] {
            check(move || {
                let world = World::new();
                let asker = {
                    let world = world.clone();
                    loom::thread::spawn(move || world.ask())
                };
                world.work(1, quickly);
                let request = asker.join().unwrap();
                assert_eq!(request.answer.lock().take(), Some(1));
            });
        }
    }

    #[test]
    fn two_questions_are_answered_each_once() {
        check(|| {
            let world = World::new();
            let askers = [(); 2].map(|()| {
                let world = world.clone();
                loom::thread::spawn(move || world.ask())
            });
            world.work(2, false);
            let mut answers = askers.map(|it| it.join().unwrap().answer.lock().take().unwrap());
            answers.sort_unstable();
            assert_eq!(answers, [1, 2]);
        });
    }

    #[test]
    fn a_question_that_is_withdrawn_is_answered_or_gone() {
        check(|| {
            let world = World::new();
            let request = world.ask();
            let worker = {
                let world = world.clone();
                loom::thread::spawn(move || world.requests.answer(|()| 5))
            };
            let is_gone = world.requests.withdraw(&request);
            let is_left = world.requests.is_asked();
            worker.join().unwrap();
            let is_answered = request.answer.lock().is_some();
            assert_ne!(is_gone, is_answered, "either gone or answered");
            assert!(!is_left && world.requests.list.lock().is_empty());
        });
    }
}
