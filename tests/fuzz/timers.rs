//! Timers against a model: several threads set, reset and clear them and move them between
//! runtimes, while tasks wait for them. None fires before its deadline or without one, none is
//! lost, and timers that no thread changes fire in order.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use polder::event::Latch;
use polder::{Backend, Handle, Runtime, Timer};

use crate::{LIMIT, Rng, fuzz};

#[test]
fn timers_never_early_or_lost() {
    fuzz("timers_are_never_early", 6_000, |backend, rng| {
        disturbed(backend, rng)
    });
}

#[test]
fn timers_that_are_left_alone_fire_in_their_order() {
    fuzz("timers_that_are_left_alone", 2_000, |backend, rng| {
        undisturbed(backend, rng)
    });
}

/// One timer and its expected state, behind one lock.
struct Slot {
    state: Mutex<State>,
    fired: AtomicU64,
}

struct State {
    timer: Timer,
    /// The time before which it must not fire; `None` if it must not fire.
    deadline: Option<Instant>,
    /// Whether it was set since it last fired. A completed timer is not polled.
    armed: bool,
    /// The watcher that owns it; other watchers end.
    watcher: usize,
    /// The waker of the task that waits for it to be set.
    waker: Option<Waker>,
    /// The first error.
    wrong: Option<String>,
}

impl Slot {
    fn new(timer: Timer) -> Slot {
        Slot {
            state: Mutex::new(State {
                deadline: None,
                armed: false,
                timer,
                watcher: 0,
                waker: None,
                wrong: None,
            }),
            fired: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let waker = if state.armed {
            state.waker.take()
        } else {
            None
        };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn set_at(&self, deadline: Instant) {
        self.set(|state| {
            state.timer.set_at(deadline);
            state.deadline = Some(deadline);
            state.armed = true;
        });
    }

    /// A poll by a watcher; ready once the timer belongs to another one.
    fn poll(&self, me: usize, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        loop {
            if state.watcher != me {
                return Poll::Ready(());
            }
            // Also for the next watcher, which replaces it.
            state.waker = Some(cx.waker().clone());
            if !state.armed {
                return Poll::Pending;
            }
            let Poll::Ready(when) = Pin::new(&mut state.timer).poll(cx) else {
                return Poll::Pending;
            };
            let now = Instant::now();
            // A panic here would belong to a task that is never awaited.
            let wrong = match state.deadline.take() {
                None => Some("it fired, and had been cleared, or had fired before".into()),
                Some(deadline) if when != deadline => Some("another deadline than was set".into()),
                Some(deadline) if now < deadline => Some(format!("early by {:?}", deadline - now)),
                Some(_) => None,
            };
            state.wrong = state.wrong.take().or(wrong);
            state.armed = false;
            self.fired.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Makes a task on that runtime watch the timer, and ends the previous watcher.
fn watch(slot: &Arc<Slot>, handle: &Handle) {
    let mut state = slot.lock();
    state.watcher += 1;
    let me = state.watcher;
    let before = state.waker.take();
    drop(state);
    let slot = slot.clone();
    handle
        .spawn(async move { poll_fn(|cx| slot.poll(me, cx)).await })
        .detach();
    if let Some(before) = before {
        before.wake();
    }
}

/// A runtime on a separate thread, driven until it is stopped.
struct Driven {
    handle: Handle,
    stop: Arc<Latch>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Driven {
    fn new(backend: Backend, workers: usize) -> Driven {
        let stop = Arc::new(Latch::new());
        let until = stop.clone();
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            let runtime = Runtime::builder().backend(backend).workers(workers).build();
            let runtime = runtime.expect("a runtime starts");
            sender.send(runtime.handle()).expect("it is waited for");
            runtime.block_on(until.wait());
        });
        Driven {
            handle: receiver.recv().expect("the runtime has started"),
            stop,
            thread: Some(thread),
        }
    }

    fn stop(mut self) {
        self.stop.set();
        let thread = self.thread.take().expect("it is stopped once");
        thread.join().expect("no task's panic is the runtime's");
    }
}

fn disturbed(backend: Backend, rng: &mut Rng) -> u64 {
    let runtimes: Vec<Driven> = (0..1 + rng.below(2))
        .map(|_| Driven::new(backend, rng.pick(&[1, 1, 2])))
        .collect();
    let handles: Vec<Handle> = runtimes
        .iter()
        .map(|runtime| runtime.handle.clone())
        .collect();
    let slots: Vec<Arc<Slot>> = (0..1 + rng.below(12))
        .map(|_| Arc::new(Slot::new(Timer::never())))
        .collect();
    for slot in &slots {
        watch(slot, &handles[rng.below(handles.len())]);
    }
    let threads = 1 + rng.below(2);
    let steps = 40 + rng.below(80);
    thread::scope(|scope| {
        for _ in 0..threads {
            let mut rng = rng.fork();
            let (slots, handles) = (&slots, &handles);
            scope.spawn(move || {
                for _ in 0..steps {
                    let slot = &slots[rng.below(slots.len())];
                    disturb(slot, handles, &mut rng);
                    if rng.one_in(12) {
                        thread::sleep(rng.micros(400));
                    }
                }
            });
        }
    });
    let fired: u64 = slots
        .iter()
        .map(|slot| slot.fired.load(Ordering::SeqCst))
        .sum();
    // Each timer still works, wherever it is by now: it is set just after it fired, while its
    // worker is about to sleep, and nothing else wakes that worker.
    for slot in &slots {
        for round in 0..6 {
            slot.set_at(Instant::now() + rng.micros(300));
            let start = Instant::now();
            while slot.lock().armed {
                assert!(
                    start.elapsed() < LIMIT / 2,
                    "a timer was lost in round {round}"
                );
                thread::yield_now();
            }
            let pause = Instant::now() + rng.micros(30);
            while Instant::now() < pause {}
        }
        if let Some(wrong) = slot.lock().wrong.take() {
            panic!("{wrong}");
        }
    }
    for runtime in runtimes {
        runtime.stop();
    }
    // Each waiter was dropped with its runtime; timers may be dropped later.
    for slot in slots {
        slot.lock().waker = None;
    }
    (threads * steps) as u64 + fired
}

/// Performs one random operation, from a thread that drives no runtime.
fn disturb(slot: &Arc<Slot>, handles: &[Handle], rng: &mut Rng) {
    match rng.below(10) {
        0..=4 => slot.set_at(Instant::now() + rng.micros(1_500)),
        // Far in the future: then it is reset, or dropped.
        5 => slot.set_at(Instant::now() + Duration::from_secs(3_600)),
        6 => slot.set(|state| {
            if state.armed {
                state.timer.clear();
                state.deadline = None;
            }
        }),
        7 => watch(slot, &handles[rng.below(handles.len())]),
        // Another timer in its place; the previous one is dropped here, while it is pending
        // elsewhere.
        8 => {
            let deadline = Instant::now() + rng.micros(1_000);
            let mut before = Timer::at(deadline);
            slot.set(|state| {
                std::mem::swap(&mut state.timer, &mut before);
                state.deadline = Some(deadline);
                state.armed = true;
            });
            drop(before);
        }
        // In the past.
        _ => slot.set_at(Instant::now() - rng.micros(500)),
    }
}

fn undisturbed(backend: Backend, rng: &mut Rng) -> u64 {
    let runtime = Runtime::builder()
        .backend(backend)
        .build()
        .expect("a runtime starts");
    let done = Arc::new(Mutex::new(Vec::new()));
    let start = Instant::now();
    let count = 1 + rng.below(400);
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let deadline = start + Duration::from_millis(2) + rng.micros(6_000);
            let done = done.clone();
            runtime.spawn(async move {
                let mut timer = Timer::at(deadline);
                let mut has_waited = false;
                let when = poll_fn(|cx| {
                    let polled = Pin::new(&mut timer).poll(cx);
                    has_waited |= polled.is_pending();
                    polled
                })
                .await;
                assert!(Instant::now() >= deadline, "early");
                assert_eq!(when, deadline);
                // A timer that was due at its first poll has no place in the order.
                if has_waited {
                    done.lock().unwrap().push(deadline);
                }
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await;
        }
    });
    let done = done.lock().unwrap();
    assert!(done.is_sorted(), "not in order: {done:?}");
    count as u64
}
