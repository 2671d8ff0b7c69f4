//! A soak test: very many wakes between threads; every wake must arrive.
//!
//! Tasks on several workers pass tokens round in rings, and plain threads wake tasks and wait for
//! them. Only atomics, locks and wakers are involved, so a task that makes no progress has lost a
//! wake; a watchdog detects that and reports where.
//!
//! `POLDER_SOAK` is the number of wakes, 50,000 by default; `ci/stress.sh soak` asks for more.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use polder::{Backend, Runtime};

/// If nothing makes progress for this long, even on a loaded machine, a wake was lost.
const PATIENCE: Duration = Duration::from_secs(20);

fn wakes() -> usize {
    match std::env::var("POLDER_SOAK") {
        Ok(count) => count.parse().expect("POLDER_SOAK is a number of wakes"),
        Err(_) => {
            if cfg!(tsan) {
                10_000
            } else {
                50_000
            }
        }
    }
}

/// Passes numbers to one task: senders add to it and wake the task, which takes the sum.
#[derive(Default)]
struct Slot {
    count: AtomicUsize,
    waker: Mutex<Option<Waker>>,
}

impl Slot {
    fn give(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        let waker = self.waker.lock().unwrap().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn take(&self) -> usize {
        poll_fn(|cx| {
            let taken = self.count.swap(0, Ordering::SeqCst);
            if taken > 0 {
                return Poll::Ready(taken);
            }
            *self.waker.lock().unwrap() = Some(cx.waker().clone());
            match self.count.swap(0, Ordering::SeqCst) {
                0 => Poll::Pending,
                taken => Poll::Ready(taken),
            }
        })
        .await
    }
}

/// One kind of traffic: its progress and its state.
struct Work {
    what: String,
    done: AtomicUsize,
    total: usize,
    slots: Vec<Slot>,
    over: AtomicBool,
}

impl Work {
    fn new(what: String, total: usize, slots: usize) -> Arc<Work> {
        Arc::new(Work {
            what,
            done: AtomicUsize::new(0),
            total,
            slots: (0..slots).map(|_| Slot::default()).collect(),
            over: AtomicBool::new(false),
        })
    }

    /// Counts steps. Returns whether it is over; then all waiters are woken.
    fn add(&self, steps: usize) -> bool {
        if self.done.fetch_add(steps, Ordering::Relaxed) + steps >= self.total
            && !self.over.swap(true, Ordering::SeqCst)
        {
            self.slots.iter().for_each(Slot::give);
        }
        self.over.load(Ordering::SeqCst)
    }

    /// Waits for its end, and fails with a message if it makes no progress.
    fn watch(&self, ended: impl Fn() -> bool) {
        let mut last = (0, Instant::now());
        while !ended() {
            let done = self.done.load(Ordering::Relaxed);
            if done != last.0 {
                last = (done, Instant::now());
            }
            if last.1.elapsed() > PATIENCE {
                let waiting: Vec<_> = (self.slots.iter())
                    .map(|slot| slot.count.load(Ordering::SeqCst))
                    .collect();
                panic!(
                    "{}: it stands still after {done} of {} wakes: one was lost. \
                     What lies in the slots: {waiting:?}",
                    self.what, self.total
                );
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

fn runtime(backend: Backend, workers: usize) -> Runtime {
    let builder = Runtime::builder().backend(backend).workers(workers);
    builder.build().expect("an available backend can be opened")
}

/// Drives a runtime on a new thread until `work` ends.
fn drive(
    backend: Backend,
    workers: usize,
    work: Arc<Work>,
    fill: impl FnOnce(&Runtime) + Send + 'static,
) {
    let start = Instant::now();
    let thread = thread::spawn(move || {
        let runtime = runtime(backend, workers);
        fill(&runtime);
        runtime.run();
    });
    work.watch(|| thread.is_finished());
    if thread.join().is_err() {
        panic!("{}: it has panicked", work.what);
    }
    let (done, time) = (work.done.load(Ordering::Relaxed), start.elapsed());
    println!(
        "{}: {done} in {time:.1?}, {:?} each",
        work.what,
        time / done.max(1) as u32
    );
}

/// Tasks in a ring, spread over the workers so that each hop crosses workers, and tokens that go
/// round: one, so that all others sleep meanwhile, or more.
fn ring(backend: Backend, workers: usize, tokens: usize, total: usize) {
    let what = format!("{tokens} tokens in a ring, {workers} workers on {backend}");
    let work = Work::new(what, total, 4 * workers);
    let each = work.clone();
    drive(backend, workers, work, move |runtime| {
        // The first tasks hold each worker until all are there, and then spawn the others locally.
        let barrier = Arc::new(Barrier::new(workers));
        for worker in 0..workers {
            let (barrier, work) = (barrier.clone(), each.clone());
            runtime
                .spawn(async move {
                    barrier.wait();
                    for index in (worker..work.slots.len()).step_by(workers) {
                        let work = work.clone();
                        polder::spawn_local(async move { pass_on(&work, index).await }).detach();
                    }
                })
                .detach();
        }
        for token in 0..tokens {
            each.slots[token * each.slots.len() / tokens].give();
        }
    });
}

async fn pass_on(work: &Work, index: usize) {
    let next = &work.slots[(index + 1) % work.slots.len()];
    loop {
        let tokens = work.slots[index].take().await;
        if work.add(tokens) {
            return;
        }
        (0..tokens).for_each(|_| next.give());
    }
}

/// Plain threads that wake one task each, and now and then wait until it has seen all.
fn threads(backend: Backend, workers: usize, total: usize) {
    let what = format!("wakes from plain threads, {workers} workers on {backend}");
    let work = Work::new(what, total, 2);
    let each = work.clone();
    drive(backend, workers, work, move |runtime| {
        for index in 0..each.slots.len() {
            let seen = Arc::new(AtomicUsize::new(0));
            let (work, sees) = (each.clone(), seen.clone());
            let giver = thread::spawn({
                let work = each.clone();
                move || {
                    for sent in 1.. {
                        work.slots[index].give();
                        // In bursts of one to eight.
                        while sent % (1 + sent / 64 % 8) == 0 && seen.load(Ordering::SeqCst) < sent
                        {
                            if work.over.load(Ordering::SeqCst) {
                                return;
                            }
                            thread::yield_now();
                        }
                        if work.over.load(Ordering::SeqCst) {
                            return;
                        }
                    }
                }
            });
            runtime
                .spawn(async move {
                    loop {
                        let taken = work.slots[index].take().await;
                        sees.fetch_add(taken, Ordering::SeqCst);
                        if work.add(taken) {
                            break;
                        }
                    }
                    giver.join().unwrap();
                })
                .detach();
        }
    });
}

/// New tasks from a plain thread, one after the other, while two workers sleep or go to sleep.
fn spawns(backend: Backend, workers: usize, total: usize) {
    let what = format!("new tasks from a plain thread, {workers} workers on {backend}");
    let work = Work::new(what, total, 1);
    let each = work.clone();
    drive(backend, workers, work, move |runtime| {
        let handle = runtime.handle();
        let thread = thread::spawn(move || {
            while !each.over.load(Ordering::SeqCst) {
                let before = each.done.load(Ordering::SeqCst);
                let burst = 1 + before % 3;
                for _ in 0..burst {
                    let work = each.clone();
                    handle
                        .spawn(async move {
                            work.add(1);
                        })
                        .detach();
                }
                while each.done.load(Ordering::SeqCst) < before + burst {
                    thread::yield_now();
                }
            }
        });
        runtime.block_on(async { polder::unblock(move || thread.join().unwrap()).await });
    });
}

#[test]
fn no_wake_between_threads_is_lost() {
    let total = wakes();
    let default = Backend::from_env().expect("it is a backend of this machine");
    ring(default, 2, 1, total / 5);
    ring(default, 4, 1, total / 5);
    ring(default, 2, 5, total / 5);
    threads(default, 2, total / 10);
    spawns(default, 2, total / 10);
    for backend in Backend::available() {
        let share = total / 5 / Backend::available().len();
        ring(backend, 2, 1, share / 2);
        threads(backend, 1, share / 4);
        spawns(backend, 4, share / 4);
    }
}
