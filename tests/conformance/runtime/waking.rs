//! Rule 56: who makes a task ready, or sets a timer, wakes a worker for it.
//!
//! Beside a worker that computes the monitor finds within 12 ms what a missing wake-up has left. So
//! `ci/no_monitor.sh` runs these tests without it, and then each waits for ever where a wake-up is
//! missing. All workers share one poller.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Wake, Waker};
use std::thread;
use std::time::Duration;

use polder::event::Latch;
use polder::net::UdpSocket;
use polder::time::sleep;
use polder::{Backend, Runtime, future};

use crate::probe::{join_all, own_waker, poll_with, until_woken};
use crate::support::{LIMIT, eventually, on_every_backend_with_several};

const ROUNDS: usize = 5;

/// Waits until all workers sleep, most likely: they have gone to sleep no more for a while.
fn until_all_sleep(runtime: &Runtime) {
    let parks = || {
        let workers = runtime.metrics().workers;
        let parks = workers.iter().take(runtime.workers()).map(|it| it.parks);
        parks.collect::<Vec<_>>()
    };
    let mut before = parks();
    eventually("all sleep", || {
        thread::sleep(Duration::from_millis(2));
        let now = parks();
        let is_so = now == before && !now.contains(&0);
        before = now;
        is_so
    });
}

/// Calls `round` with a runtime of so many workers, all of which most likely sleep.
fn while_all_sleep(workers: usize, round: impl Fn(&Runtime) + Clone + Send + 'static) {
    on_every_backend_with_several(move |backend: Backend, several| {
        if several != 2 {
            return; // The number of workers is the test's own.
        }
        let builder = Runtime::builder().backend(backend).workers(workers);
        let runtime = builder.workers_per_poller(workers).build().unwrap();
        for _ in 0..ROUNDS {
            until_all_sleep(&runtime);
            round(&runtime);
        }
    });
}

/// The tasks that have begun; the first one blocks its worker until another has.
#[derive(Clone, Default)]
struct Begun(Arc<AtomicUsize>);

impl Begun {
    fn begin(&self) {
        if self.0.fetch_add(1, SeqCst) == 0 {
            eventually("another worker runs the next one", || {
                self.0.load(SeqCst) > 1
            });
        }
    }
}

/// One worker waits in the poller until a far deadline. Another one sets the near timer.
#[test]
fn near_timer_ends_the_sleep_until_a_far_one() {
    while_all_sleep(3, |runtime| {
        let far = runtime.spawn(sleep(2 * LIMIT));
        until_all_sleep(runtime);
        let (fires, fired) = mpsc::channel();
        let near = runtime.spawn(async move {
            for _ in 0..3 {
                sleep(Duration::from_millis(1)).await;
            }
            fires.send(()).unwrap();
        });
        let fired = fired.recv_timeout(LIMIT / 2);
        assert!(fired.is_ok(), "the near timer is late");
        runtime.block_on(near);
        drop(far);
    });
}

#[test]
fn two_tasks_woken_in_one_poll_run_on_two_workers() {
    while_all_sleep(2, |runtime| {
        let (begun, waiting) = (Begun::default(), Arc::new(AtomicUsize::new(0)));
        let latch = Arc::new(Latch::new());
        let woken = [0, 1].map(|_| {
            let (begun, waiting, latch) = (begun.clone(), waiting.clone(), latch.clone());
            runtime.spawn(async move {
                waiting.fetch_add(1, SeqCst);
                latch.wait().await;
                begun.begin();
            })
        });
        eventually("both wait", || waiting.load(SeqCst) == 2);
        until_all_sleep(runtime);
        runtime.spawn(async move { latch.set() }).detach();
        runtime.block_on(join_all(woken));
    });
}

/// A task woken and one spawned run on two workers.
#[test]
fn woken_and_spawned_run_on_two_workers() {
    while_all_sleep(2, |runtime| {
        let begun = Begun::default();
        let latch = Arc::new(Latch::new());
        let woken = {
            let (begun, latch) = (begun.clone(), latch.clone());
            runtime.spawn(async move {
                latch.wait().await;
                begun.begin();
            })
        };
        until_all_sleep(runtime);
        let both = runtime.spawn(async move {
            latch.set();
            polder::spawn(async move { begun.begin() }).await;
        });
        runtime.block_on(join_all([both, woken]));
    });
}

/// Each of two tasks spawns one, for which no worker is woken while the spawning one runs. There
/// are four workers, so one takes half of the two.
#[test]
fn tasks_that_a_worker_leaves_wake_the_next_one() {
    while_all_sleep(4, |runtime| {
        let begun = Begun::default();
        let (runs, has_spawned) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
        let first = {
            let (begun, runs, has_spawned) = (begun.clone(), runs.clone(), has_spawned.clone());
            runtime.spawn(async move {
                // So no worker is searching any more, which would find what this one spawns.
                eventually("the second one runs", || runs.load(SeqCst));
                let count = begun.0.clone();
                let task = polder::spawn(async move { begun.begin() });
                has_spawned.store(true, SeqCst);
                // It does not take it back.
                eventually("both run", || count.load(SeqCst) == 2);
                task.await;
            })
        };
        let second = runtime.spawn(async move {
            runs.store(true, SeqCst);
            eventually("the first one has spawned", || has_spawned.load(SeqCst));
            polder::spawn(async move { begun.begin() }).await;
        });
        runtime.block_on(join_all([first, second]));
    });
}

/// A worker that is woken by an event finds more of them than it gets round to.
#[test]
fn many_events_of_one_wait_wake_another_worker() {
    while_all_sleep(2, |runtime| {
        let (begun, waiting) = (Begun::default(), Arc::new(AtomicUsize::new(0)));
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let bind = || runtime.block_on(UdpSocket::bind("127.0.0.1:0")).unwrap();
        let (mut addresses, mut tasks) = (Vec::new(), Vec::new());
        for _ in 0..8 {
            let (begun, waiting, socket) = (begun.clone(), waiting.clone(), bind());
            addresses.push(socket.local_addr().unwrap());
            tasks.push(runtime.spawn(async move {
                let mut byte = [0];
                let mut datagram = Box::pin(socket.recv(&mut byte));
                assert!(future::poll_once(&mut datagram).await.is_none());
                waiting.fetch_add(1, SeqCst);
                datagram.await.unwrap();
                begun.begin();
            }));
        }
        // Its worker is the one that waits in the poller, and waits there next.
        let (start, from) = (bind(), sender.try_clone().unwrap());
        let first = start.local_addr().unwrap();
        tasks.push(runtime.spawn(async move {
            start.recv(&mut [0; 1]).await.unwrap();
            for address in addresses {
                from.send_to(b"x", address).unwrap();
            }
        }));
        eventually("all wait", || waiting.load(SeqCst) == 8);
        until_all_sleep(runtime);
        sender.send_to(b"x", first).unwrap();
        runtime.block_on(join_all(tasks));
    });
}

/// Calls `run` once, on the thread that wakes it.
struct Foreign<F>(F);

impl<F: Fn() + Send + Sync> Wake for Foreign<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// A worker in a waker leaves new tasks to another.
///
/// A worker that was woken for a new task calls a foreign waker first, which blocks on one more.
#[test]
fn worker_in_waker_leaves_new_tasks() {
    while_all_sleep(2, |runtime| {
        for _ in 0..8 * ROUNDS {
            let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let socket = runtime.block_on(UdpSocket::bind("127.0.0.1:0")).unwrap();
            let address = socket.local_addr().unwrap();
            let (held, hold) = mpsc::channel::<()>();
            let (holds, is_held) = mpsc::channel();
            let handle = runtime.handle();
            let (waits, is_waiting) = mpsc::channel();
            let (ends, has_ended) = mpsc::channel();
            let receives = runtime.spawn(async move {
                let task = own_waker().await;
                let held = Mutex::new(Some(held));
                let blocks = Foreign(move || {
                    // The other worker goes to sleep.
                    drop(held.lock().unwrap().take());
                    thread::sleep(Duration::from_millis(2));
                    let (runs, has_run) = mpsc::channel();
                    handle.spawn(async move { runs.send(()).unwrap() }).detach();
                    ends.send(has_run.recv_timeout(LIMIT / 2)).unwrap();
                    task.wake_by_ref();
                });
                let waker = Waker::from(Arc::new(blocks));
                let mut byte = [0];
                let mut datagram = Box::pin(socket.recv(&mut byte));
                assert!(poll_with(&mut datagram, &waker).is_pending());
                waits.send(()).unwrap();
                until_woken().await;
                datagram.await.unwrap();
            });
            is_waiting.recv().unwrap();
            // One worker is held up; the other one waits in the poller.
            let holding = runtime.spawn(async move {
                holds.send(()).unwrap();
                let _ = hold.recv_timeout(LIMIT / 2);
            });
            is_held.recv().unwrap();
            thread::sleep(Duration::from_millis(1));
            // At once, so that it is woken for the task, most likely, before it has awoken.
            sender.send_to(b"x", address).unwrap();
            let new = runtime.spawn(async {});
            let result = has_ended.recv_timeout(LIMIT).unwrap();
            assert!(result.is_ok(), "a new task waits for a worker in a waker");
            runtime.block_on(async {
                new.await;
                holding.await;
                receives.await;
            });
        }
    });
}
