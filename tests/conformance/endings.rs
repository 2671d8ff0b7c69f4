//! Wakers that run code in their destructors and clones, runtimes that close while others wait, and
//! polling that ends in time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use polder::event::Event;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::time::{sleep, timeout};
use polder::{Backend, Runtime, Task, Timer, future};

use crate::descriptor::wait_until_readable;
use crate::probe::{poll_with, tcp_pair};
#[cfg(target_os = "linux")]
use crate::support::on_every_backend_alone;
use crate::support::{
    LIMIT, in_every_kernel_runtime_alone, on_every_backend, on_every_backend_with_several, runtime,
    runtime_of, share, sized, with_every_runtime, with_every_runtime_alone,
    with_every_runtime_of_several,
};

const HOUR: Duration = Duration::from_secs(3_600);

/// Longer than a correct run takes, and shorter than a worker busy-polls in these tests, with a
/// margin on both sides.
const LATE: Duration = Duration::from_secs(15);

/// The time of busy polling: see [`LATE`].
const BUSY: Duration = Duration::from_secs(45);

/// Makes a timer that is registered with this waker.
fn timer_with(waker: impl Into<Waker>) -> Timer {
    let mut timer = Timer::after(HOUR);
    assert!(poll_with(&mut timer, &waker.into()).is_pending());
    timer
}

/// Sets an event when its last waker is dropped.
struct SetsOnDrop(Arc<Event>);

impl Wake for SetsOnDrop {
    fn wake(self: Arc<Self>) {}
}

impl Drop for SetsOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// A task woken by a waker's destructor is run.
///
/// Another thread drops a timer, and the driving thread drops the timer's waker. This must not come
/// after the last check for ready tasks.
#[test]
fn waker_drop_waking_task_leaves_none() {
    in_every_kernel_runtime_alone(|_| async {
        let event = Arc::new(Event::new());
        let timer = timer_with(Arc::new(SetsOnDrop(event.clone())));
        let waits = polder::spawn(async move { event.wait().await });
        future::yield_now().await;
        future::yield_now().await;
        thread::spawn(move || drop(timer)).join().unwrap();
        waits.await;
    });
}

#[test]
fn waker_drop_waking_task_tells_foreign_loop() {
    with_every_runtime_alone(|runtime, _| {
        let Ok(descriptor) = runtime.backend_fd() else {
            return;
        };
        let event = Arc::new(Event::new());
        let waits = runtime.spawn({
            let event = event.clone();
            async move { event.wait().await }
        });
        runtime.run_once(Duration::ZERO);
        runtime
            .spawn(async move {
                let timer = timer_with(Arc::new(SetsOnDrop(event)));
                thread::spawn(move || drop(timer)).join().unwrap();
            })
            .detach();
        while !waits.is_finished() {
            wait_until_readable(descriptor);
            runtime.run_once(Duration::ZERO);
        }
    });
}

/// Panics when its last waker is dropped.
struct PanicsOnDrop;

impl Wake for PanicsOnDrop {
    fn wake(self: Arc<Self>) {}
}

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("a waker's destructor, on purpose");
    }
}

#[test]
fn a_waker_whose_destructor_panics_ends_no_worker() {
    with_every_runtime_of_several(|runtime, _, _| {
        let (sender, receiver) = mpsc::channel();
        let task = runtime.spawn(async move {
            let timer = timer_with(Arc::new(PanicsOnDrop));
            sender.send(timer).unwrap();
            // This worker drops the waker during one of these sleeps.
            for _ in 0..10 {
                sleep(Duration::from_millis(5)).await;
            }
        });
        drop(receiver.recv().unwrap());
        let done = runtime.block_on(timeout(LIMIT / 2, task));
        assert!(done.is_ok(), "the worker has gone, and its task with it");
    });
}

/// Closing does not wait for a worker that waits for a task that never began.
///
/// All other workers are stuck, so no worker starts the task before the runtime closes, and none
/// does afterwards.
#[test]
fn close_not_blocked_by_never_started_task() {
    with_every_runtime_of_several(|runtime, _, workers| {
        let (here, arrived) = mpsc::channel();
        let free = Arc::new(AtomicBool::new(false));
        for _ in 1..workers {
            let (here, free) = (here.clone(), free.clone());
            runtime
                .spawn(async move {
                    here.send(()).unwrap();
                    while !free.load(SeqCst) {
                        thread::sleep(Duration::from_millis(1));
                    }
                })
                .detach();
        }
        (1..workers).for_each(|_| arrived.recv().unwrap());
        runtime
            .spawn(async move {
                let never = polder::spawn(async {});
                here.send(()).unwrap();
                let _ = polder::block_on(never.fallible());
            })
            .detach();
        arrived.recv().unwrap();
        // Freed while the runtime closes; at another time the test would show nothing.
        let frees = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            free.store(true, SeqCst);
        });
        drop(runtime);
        frees.join().unwrap();
    });
}

/// Runtimes close while their tasks spawn and block on each other.
#[test]
fn runtimes_close_during_spawns_and_block_on() {
    on_every_backend_with_several(|backend, workers| {
        for round in 0..share(backend == Backend::default(), 200) as u64 {
            let runtime = runtime_of(backend, workers);
            for _ in 0..3 * workers {
                runtime
                    .spawn(async {
                        for _ in 0..50 {
                            let task = polder::spawn(async {});
                            if polder::block_on(task.fallible()).is_none() {
                                return;
                            }
                        }
                    })
                    .detach();
            }
            thread::sleep(Duration::from_micros(round % 40 * 20));
            drop(runtime);
        }
    });
}

/// Run leaves no task whether tasks await or detach others.
#[test]
fn run_leaves_no_awaited_or_detached_task() {
    with_every_runtime(|runtime, backend| {
        let ended = Arc::new(AtomicUsize::new(0));
        for round in 0..sized(backend, 3_000) {
            let tasks = round % 5 + 1;
            ended.store(0, SeqCst);
            for number in 0..tasks {
                let ended = ended.clone();
                runtime
                    .spawn(async move {
                        let inner: Task<()> = polder::spawn({
                            let ended = ended.clone();
                            async move {
                                ended.fetch_add(1, SeqCst);
                            }
                        });
                        if number % 2 == 0 {
                            future::yield_now().await;
                            inner.await;
                        } else {
                            inner.detach();
                        }
                        ended.fetch_add(1, SeqCst);
                    })
                    .detach();
            }
            runtime.run();
            assert_eq!(ended.load(SeqCst), 2 * tasks, "in round {round}");
        }
    });
}

/// A waker that polls a timer when it is woken, and stores whether the timer was ready.
#[derive(Default)]
struct PollsInWake {
    timer: Mutex<Option<Timer>>,
    was_woken: AtomicBool,
    was_ready: AtomicBool,
}

impl Wake for PollsInWake {
    fn wake(self: Arc<Self>) {
        self.was_woken.store(true, SeqCst);
        if let Some(timer) = self.timer.lock().unwrap().as_mut() {
            let ready = poll_with(timer, Waker::noop()).is_ready();
            self.was_ready.fetch_or(ready, SeqCst);
        }
    }
}

/// A timer that is polled while its runtime closes is not ready early.
#[test]
fn timer_polled_during_close_not_early() {
    on_every_backend(|backend| {
        let polls = Arc::<PollsInWake>::default();
        let runtime = runtime(backend);
        runtime.block_on(async {
            let timer = timer_with(polls.clone());
            *polls.timer.lock().unwrap() = Some(timer);
        });
        drop(runtime);
        assert!(polls.was_woken.load(SeqCst), "nobody was told of the end");
        assert!(!polls.was_ready.load(SeqCst), "an hour early");
        // Otherwise the waker would keep itself alive.
        drop(polls.timer.lock().unwrap().take());
    });
}

/// Makes a runtime with workers that busy-poll, since their idle times were short.
fn busy(backend: Backend, workers: usize) -> Runtime {
    let builder = Runtime::builder().backend(backend).workers(workers);
    let runtime = builder.busy_poll(BUSY).build();
    runtime.expect("an available backend can be opened")
}

async fn short_idle_times() {
    for _ in 0..20 {
        sleep(Duration::from_micros(100)).await;
    }
}

/// A worker that polls for long keeps no task to itself.
#[test]
fn long_polling_worker_keeps_no_task() {
    on_every_backend_with_several(|backend, workers| {
        let runtime = busy(backend, workers);
        let task = runtime.spawn(async {
            for _ in 0..40 {
                polder::spawn_local(std::future::pending::<()>()).detach();
            }
            short_idle_times().await;
            let mut longest = Duration::ZERO;
            for _ in 0..20 {
                let start = Instant::now();
                let begun = polder::spawn(async move { start.elapsed() }).await;
                longest = longest.max(begun);
            }
            longest
        });
        let longest = runtime.block_on(task);
        assert!(longest < LATE, "a task began after {longest:?}");
    });
}

/// A worker that polls for long serves its sockets.
#[test]
fn long_polling_worker_serves_sockets() {
    on_every_backend(|backend| {
        for workers in [1, 2] {
            let runtime = busy(backend, workers);
            let task = runtime.spawn(async {
                short_idle_times().await;
                let (mut near, mut far) = tcp_pair().await;
                let echo = polder::spawn(async move {
                    let mut byte = [0];
                    while far.read_exact(&mut byte).await.is_ok() {
                        far.write_all(&byte).await.unwrap();
                    }
                });
                let start = Instant::now();
                for _ in 0..20 {
                    near.write_all(&[1]).await.unwrap();
                    near.read_exact(&mut [0]).await.unwrap();
                }
                drop(near);
                echo.await;
                start.elapsed()
            });
            let took = runtime.block_on(task);
            assert!(took < LATE, "twenty round trips took {took:?}");
        }
    });
}

/// Run returns in time though workers poll for long.
#[test]
fn run_returns_in_time_despite_long_polls() {
    on_every_backend_with_several(|backend, workers| {
        let runtime = busy(backend, workers);
        let (sender, end) = mpsc::channel();
        runtime
            .spawn(async move {
                short_idle_times().await;
                sender.send(Instant::now()).unwrap();
            })
            .detach();
        runtime.run();
        let late = end.try_recv().expect("run waits for all").elapsed();
        assert!(late < LATE, "it returned {late:?} after the end");
    });
}

/// Turns in which nothing comes do not teach it to poll.
///
/// A foreign loop, such as a game's, in which no event arrives: no reason to spin.
#[cfg(target_os = "linux")]
#[test]
fn empty_turns_do_not_start_busy_polling() {
    fn used() -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }
    on_every_backend_alone(|backend| {
        let builder = Runtime::builder().backend(backend);
        let runtime = builder.busy_poll(Duration::from_millis(20)).build();
        let runtime = runtime.expect("an available backend can be opened");
        let (start, used_before) = (Instant::now(), used());
        for _ in 0..20 {
            runtime.run_once(Duration::from_millis(16));
        }
        let (used, all) = (used() - used_before, start.elapsed());
        assert!(used < all / 2, "{used:?} of {all:?} on the processor");
    });
}
