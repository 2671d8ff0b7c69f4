//! Questions of other threads for a worker, which answers them between two polls: see
//! `diagnostics::request`.
//!
//! An asker adds a question to the list, and then unparks the worker, which checks the list
//! whenever it was unparked: so no question is lost (see `reactor::parker`). A worker in the
//! middle of a task does not answer. The asker waits for a limited time, and then withdraws the
//! question, so that it does not outlive its asker. If the worker has taken it by then (decided
//! under the list's lock), the asker waits longer.
//!
//! **Workers that ask each other.** The asker may itself be in a task, such as a debug page that
//! two clients request at once. So it waits for a [`ThreadSignal`], which is notified by each
//! answer, and by each question for a worker that has [announced](Requests::announce) it, and
//! answers the questions for its own worker. Questions are added, and a signal is announced, under
//! the lock of the list: so either the question finds the signal, or the worker finds the question
//! when it first looks. `loom` checks this below.

use std::ptr;
use std::sync::Arc;

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, ThreadSignal};

pub(crate) struct Requests<Q: ?Sized> {
    /// Written under the lock of the list, read without.
    asked: AtomicBool,
    list: Mutex<List<Q>>,
}

struct List<Q: ?Sized> {
    questions: Vec<Arc<Q>>,
    /// Notifies the worker's thread while it waits for answers of others.
    signal: Option<Arc<ThreadSignal>>,
}

impl<Q: ?Sized> Requests<Q> {
    pub(crate) fn new() -> Requests<Q> {
        Requests {
            asked: AtomicBool::new(false),
            list: Mutex::new(List {
                questions: Vec::new(),
                signal: None,
            }),
        }
    }

    /// Adds a question. The caller then unparks the worker.
    pub(crate) fn ask(&self, question: Arc<Q>) {
        let mut list = self.list.lock();
        list.questions.push(question);
        self.asked.store(true, Ordering::Relaxed);
        let signal = list.signal.clone();
        drop(list);
        if let Some(signal) = signal {
            signal.notify();
        }
    }

    /// Sets what questions notify. Called by the worker, which then checks the list.
    pub(crate) fn announce(&self, signal: Option<Arc<ThreadSignal>>) {
        self.list.lock().signal = signal;
    }

    /// Exact for the worker, after it was unparked or notified.
    #[inline]
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Takes all questions, and calls `answer` with each. Called by the worker.
    pub(crate) fn answer(&self, mut answer: impl FnMut(&Q)) {
        let mut list = self.list.lock();
        let questions = std::mem::take(&mut list.questions);
        self.asked.store(false, Ordering::Relaxed);
        drop(list);
        questions.iter().for_each(|question| answer(question));
    }

    /// Withdraws a question. Returns `false` if the worker has taken it.
    pub(crate) fn withdraw(&self, question: &Q) -> bool {
        let mut list = self.list.lock();
        let before = list.questions.len();
        (list.questions).retain(|other| !ptr::addr_eq(Arc::as_ptr(other), question));
        let left = list.questions.len();
        self.asked.store(left > 0, Ordering::Relaxed);
        left < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_was_taken_is_not_withdrawn() {
        let requests = Requests::new();
        let [taken, left] = [5, 5].map(Arc::new);
        requests.ask(taken.clone());
        let mut answered = 0;
        requests.answer(|question| {
            assert!(!requests.withdraw(question), "the worker is at it");
            answered += 1;
        });
        assert!(answered == 1 && !requests.is_asked());
        requests.ask(taken.clone());
        requests.ask(left.clone());
        assert!(requests.withdraw(&taken) && requests.is_asked());
        assert!(requests.withdraw(&left) && !requests.is_asked());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::reactor::{Parker, Wakeup};

    type Answer = Mutex<Option<usize>>;

    struct Asked {
        answer: Mutex<Option<usize>>,
        signal: Arc<ThreadSignal>,
    }

    struct Model {
        parker: Parker<()>,
        requests: Requests<Answer>,
        thread: ThreadSignal,
    }

    impl Model {
        fn new() -> Arc<Model> {
            Arc::new(Model {
                parker: Parker::default(),
                requests: Requests::new(),
                thread: ThreadSignal::default(),
            })
        }

        fn ask(&self) -> Arc<Answer> {
            let question = Arc::new(Answer::new(None));
            self.requests.ask(question.clone());
            if self.parker.set_attention() {
                self.thread.notify();
            }
            question
        }

        /// Answers `total` questions. Loom fails the model if this sleeps forever.
        fn work(&self, total: usize) {
            let mut answers = 0;
            while answers < total {
                if self.parker.park() == Wakeup::None {
                    while !self.thread.wait(None) {}
                }
                self.parker.resume();
                self.requests.answer(|question| {
                    answers += 1;
                    *question.lock() = Some(answers);
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
        check(|| {
            let world = Model::new();
            let asker = {
                let world = world.clone();
                loom::thread::spawn(move || world.ask())
            };
            world.work(1);
            let question = asker.join().unwrap();
            assert_eq!(question.lock().take(), Some(1));
        });
    }

    #[test]
    fn two_questions_are_answered_each_once() {
        check(|| {
            let world = Model::new();
            let askers = [(); 2].map(|()| {
                let world = world.clone();
                loom::thread::spawn(move || world.ask())
            });
            world.work(2);
            let mut answers = askers.map(|asker| asker.join().unwrap().lock().take().unwrap());
            answers.sort_unstable();
            assert_eq!(answers, [1, 2]);
        });
    }

    #[test]
    fn withdrawn_question_answered_or_gone() {
        check(|| {
            let world = Model::new();
            let question = world.ask();
            let worker = {
                let world = world.clone();
                loom::thread::spawn(move || {
                    world.requests.answer(|answer| *answer.lock() = Some(5))
                })
            };
            let is_gone = world.requests.withdraw(&question);
            let is_left = world.requests.is_asked();
            worker.join().unwrap();
            let is_answered = question.lock().is_some();
            assert_ne!(is_gone, is_answered, "either gone or answered");
            assert!(!is_left && world.requests.list.lock().questions.is_empty());
        });
    }

    /// Neither returns to its loop before it has its answer.
    #[test]
    fn workers_that_ask_each_other_answer_each_other() {
        check(|| {
            let requests = [(); 2].map(|()| Arc::new(Requests::<Asked>::new()));
            let work = |own: &Arc<Requests<Asked>>, other: &Arc<Requests<Asked>>| {
                let (own, other) = (own.clone(), other.clone());
                move || {
                    let signal = Arc::new(ThreadSignal::default());
                    own.announce(Some(signal.clone()));
                    let question = Arc::new(Asked {
                        answer: Mutex::new(None),
                        signal: signal.clone(),
                    });
                    other.ask(question.clone());
                    let answer = || {
                        own.answer(|question| {
                            *question.answer.lock() = Some(5);
                            question.signal.notify();
                        });
                    };
                    loop {
                        answer();
                        if question.answer.lock().is_some() {
                            break;
                        }
                        signal.wait(None);
                    }
                    own.announce(None);
                    // Back in its loop, it checks once more.
                    answer();
                }
            };
            let other = loom::thread::spawn(work(&requests[1], &requests[0]));
            work(&requests[0], &requests[1])();
            other.join().unwrap();
        });
    }
}
