//! Runtimes: tasks that yield, wait, spawn, drive nested runtimes, are woken from anywhere,
//! cancelled and dropped, in runtimes that end in the middle of it. Every future is dropped once,
//! every awaited task returns the right output, and nothing hangs.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use polder::future::{poll_once, yield_now};
use polder::time::sleep;
use polder::{Handle, Runtime, Task};

use crate::{LIMIT, Rng, fuzz};

#[test]
fn runtimes_lose_no_task_whatever_is_done_to_them() {
    fuzz("runtimes_lose_no_task", 10_000, |backend, rng| {
        let world = Arc::new(World::default());
        let workers = 1 + rng.below(3);
        let runtime = Runtime::builder().backend(backend).workers(workers).build();
        let runtime = runtime.expect("a runtime starts");
        let handle = runtime.handle();
        thread::scope(|scope| {
            for _ in 0..rng.below(3) {
                let (handle, world, rng) = (handle.clone(), world.clone(), rng.fork());
                scope.spawn(move || foreign(handle, &world, rng));
            }
            for _ in 0..1 + rng.below(4) {
                drive(&runtime, &world, rng);
            }
            // Probably in the middle of everything.
            world.closing.store(true, Ordering::SeqCst);
            drop(runtime);
            world.closed.store(true, Ordering::SeqCst);
            world.open_all();
        });
        // Tasks that other tasks spawned during the end, and that were cancelled, are dropped
        // there.
        let start = Instant::now();
        while world.live.load(Ordering::SeqCst) > 0 {
            let live = world.live.load(Ordering::SeqCst);
            assert!(
                start.elapsed() < LIMIT / 2,
                "{live} futures were not dropped"
            );
            thread::yield_now();
        }
        assert_eq!(
            world.wrong.load(Ordering::SeqCst),
            0,
            "wrong results, or futures polled or dropped once too often"
        );
        world.steps.load(Ordering::SeqCst)
    });
}

/// The state that the tasks of one case share.
#[derive(Default)]
struct World {
    /// The number of futures that were made and not dropped.
    live: AtomicUsize,
    steps: AtomicU64,
    wrong: AtomicUsize,
    /// Whether the runtime is ending: tasks spawned from now on may be cancelled.
    closing: AtomicBool,
    closed: AtomicBool,
    gates: [Gate; 4],
}

/// A gate at which tasks wait: each opening releases all waiters.
#[derive(Default)]
struct Gate {
    state: Mutex<(u64, Vec<Waker>)>,
}

impl Gate {
    fn open(&self) {
        let wakers = {
            let mut state = self.state.lock().unwrap();
            state.0 += 1;
            std::mem::take(&mut state.1)
        };
        for waker in wakers {
            waker.wake();
        }
    }

    async fn pass(&self) {
        let seen = self.state.lock().unwrap().0;
        poll_fn(|cx| {
            let mut state = self.state.lock().unwrap();
            if state.0 != seen {
                return Poll::Ready(());
            }
            state.1.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl World {
    fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    fn open_all(&self) {
        self.gates.iter().for_each(Gate::open);
    }

    /// Checks a result awaited within a task of the runtime.
    fn expect_unless_closing(&self, got: Option<u64>, expected: u64) {
        self.expect(match got {
            Some(got) => got == expected,
            None => self.closing.load(Ordering::SeqCst),
        });
    }

    fn expect(&self, holds: bool) {
        self.wrong.fetch_add(usize::from(!holds), Ordering::SeqCst);
    }
}

/// A future that counts while it lives, and checks that it is dropped once, and not polled after
/// completion.
struct Counted<F> {
    inner: Option<Pin<Box<F>>>,
    world: Arc<World>,
}

impl<F: Future> Counted<F> {
    fn new(world: &Arc<World>, inner: F) -> Counted<F> {
        world.live.fetch_add(1, Ordering::SeqCst);
        world.step();
        Counted {
            inner: Some(Box::pin(inner)),
            world: world.clone(),
        }
    }
}

impl<F> Unpin for Counted<F> {}

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Some(inner) = &mut self.inner else {
            // A panic here might belong to a task that is never awaited.
            self.world.expect(false);
            return Poll::Pending;
        };
        let polled = inner.as_mut().poll(cx);
        if polled.is_ready() {
            self.inner = None;
        }
        polled
    }
}

impl<F> Drop for Counted<F> {
    fn drop(&mut self) {
        self.inner = None;
        let before = self.world.live.fetch_sub(1, Ordering::SeqCst);
        self.world.expect(before > 0);
    }
}

type Boxed = Pin<Box<dyn Future<Output = u64> + Send>>;

/// A random task, which returns `result`. It may spawn others, to a depth.
fn task(world: &Arc<World>, mut rng: Rng, depth: usize, result: u64) -> Boxed {
    let shared = world.clone();
    let body = async move {
        for _ in 0..rng.below(6) {
            shared.step();
            match rng.below(16) {
                0..=3 => yield_now().await,
                4 | 5 => sleep(rng.micros(300)).await,
                // Another task opens the gate, or a timer does.
                6 | 7 => {
                    let gate = &shared.gates[rng.below(4)];
                    let limit = rng.micros(800);
                    let _ = polder::time::timeout(limit, gate.pass()).await;
                }
                8 | 9 => shared.gates[rng.below(4)].open(),
                10 if depth > 0 => {
                    // A nested drive: of the task that it spawns itself.
                    let inner = task(&shared, rng.fork(), depth - 1, 5);
                    let got = polder::block_on(async { polder::spawn(inner).fallible().await });
                    shared.expect_unless_closing(got, 5);
                }
                11 if depth > 0 => {
                    let child = polder::spawn(task(&shared, rng.fork(), depth - 1, 9));
                    end(&shared, child, 9, &mut rng).await;
                }
                12 if depth > 0 => {
                    polder::spawn(task(&shared, rng.fork(), depth - 1, 1)).detach();
                }
                13 if depth > 0 => {
                    // A task that is pinned to this worker.
                    let rc = std::rc::Rc::new(7_u64);
                    let local = async move {
                        yield_now().await;
                        *rc
                    };
                    let got =
                        polder::block_on(async { polder::spawn_local(local).fallible().await });
                    shared.expect_unless_closing(got, 7);
                }
                14 => {
                    // It wakes itself, and is woken again after completion.
                    let mut woken = 0;
                    poll_fn(|cx| {
                        let another = cx.waker().clone();
                        cx.waker().wake_by_ref();
                        another.wake();
                        woken += 1;
                        if woken < 3 {
                            Poll::Pending
                        } else {
                            Poll::Ready(())
                        }
                    })
                    .await;
                }
                _ => {}
            }
        }
        result
    };
    Box::pin(Counted::new(world, body))
}

/// Awaits, cancels, drops or detaches a task, or polls it and then does one of these. The runtime
/// may end meanwhile.
async fn end(world: &World, task: Task<u64>, expected: u64, rng: &mut Rng) {
    world.step();
    let mut task = task.fallible();
    if rng.one_in(3) {
        if let Some(got) = poll_once(&mut task).await {
            world.expect_unless_closing(got, expected);
            return;
        }
    }
    match rng.below(6) {
        0 => drop(task),
        1 => task.detach(),
        2 | 3 => {
            if let Some(got) = task.cancel().await {
                world.expect(got == expected);
            }
        }
        _ => world.expect_unless_closing(task.await, expected),
    }
}

/// One round on the thread that owns the runtime.
fn drive(runtime: &Runtime, world: &Arc<World>, rng: &mut Rng) {
    let mut tasks: Vec<Task<u64>> = (0..rng.below(12))
        .map(|_| runtime.spawn(task(world, rng.fork(), 2, 3)))
        .collect();
    match rng.below(4) {
        0 => {
            for _ in 0..rng.below(20) {
                world.step();
                runtime.run_once(rng.micros(200));
                if rng.one_in(4) && !tasks.is_empty() {
                    drop(tasks.swap_remove(rng.below(tasks.len())));
                }
            }
            tasks.into_iter().for_each(Task::detach);
        }
        _ => runtime.block_on(async {
            for task in tasks {
                end(world, task, 3, rng).await;
                if rng.one_in(4) {
                    world.gates[rng.below(4)].open();
                }
            }
        }),
    }
}

/// The operations of another thread with a handle, also on a runtime that has ended.
fn foreign(handle: Handle, world: &Arc<World>, mut rng: Rng) {
    let mut tasks = Vec::new();
    for _ in 0..20 + rng.below(60) {
        world.step();
        match rng.below(8) {
            0..=2 => tasks.push(handle.spawn(task(world, rng.fork(), 1, 4))),
            3 => handle.spawn(task(world, rng.fork(), 1, 4)).detach(),
            4 if !tasks.is_empty() => drop(tasks.swap_remove(rng.below(tasks.len()))),
            5 => world.gates[rng.below(4)].open(),
            6 if rng.one_in(3) => thread::sleep(rng.micros(200)),
            _ => thread::yield_now(),
        }
    }
    // The runtime may be between two drives, and never be driven again: until it ends, remaining
    // tasks are not awaited. Once it has ended, each of them has completed or was cancelled.
    let start = Instant::now();
    while !world.closed.load(Ordering::SeqCst) {
        assert!(start.elapsed() < LIMIT / 2, "the runtime does not end");
        thread::sleep(Duration::from_micros(50));
    }
    for task in tasks {
        let got = futures_lite::future::block_on(task.fallible());
        world.expect(got.is_none_or(|got| got == 4));
    }
}
