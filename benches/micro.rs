//! Microbenchmarks: the cost of spawning, yielding, waking, a channel and timers on the default
//! backend, in nanoseconds each. All run on one thread, except `wake-across-threads` and those with
//! a name that begins with 2: these have a runtime with two pool workers. `traced-yield-in-task` is
//! `yield-in-task` with a trace: the difference is the cost of its three events (a wake, the begin
//! and the end of a poll). `dump` dumps 100,000 tasks, half of which wait for a timer each.
//!
//! ```text
//! cargo bench --bench micro -- --rounds 7 --millis 200
//! cargo bench --bench micro -- --only yield --count 1000000
//! ```

#[cfg(unix)]
mod support;

#[cfg(unix)]
fn main() {
    unix::main();
}

#[cfg(not(unix))]
fn main() {}

#[cfg(unix)]
mod unix {
    use std::future::{Future, poll_fn};
    use std::hint::black_box;
    use std::pin::{Pin, pin};
    use std::sync::Arc;
    use std::task::Poll;
    use std::thread;
    use std::time::{Duration, Instant};

    use async_channel::{Receiver, Sender, bounded};
    use polder::event::Latch;
    use polder::future::{poll_once, yield_now};
    use polder::time::timeout;
    use polder::{Runtime, Timer};

    use super::support::{Clock, Options, Program, Took, compare};

    /// The number of tasks, or timers, in the benchmarks with many.
    const MANY: u64 = 10_000;

    /// The number of tasks in a dump.
    const CROWD: u64 = 100_000;

    /// The number of events that a trace keeps.
    const EVENTS: usize = 65_536;

    /// No timer here ever fires.
    const LONG: Duration = Duration::from_secs(1_000);

    pub fn main() {
        let options = Options::parse();
        let mut programs = Vec::new();
        let mut add = |name: &str, workers, step, run: fn(&Runtime, u64) -> Took| {
            if options.wants(name) {
                let mut builder = Runtime::builder().workers(workers);
                if name.starts_with("traced-") {
                    builder = builder.trace_capacity(EVENTS);
                }
                let runtime = builder.build();
                let runtime = runtime.expect("there are descriptors and threads left");
                programs.push(Program {
                    name: name.into(),
                    yardstick: None,
                    step,
                    run: Box::new(move |count| run(&runtime, count)),
                });
            }
        };
        add("spawn-await", 1, 1, spawn_await);
        add("spawn-local-await", 1, 1, spawn_local_await);
        add("spawn-10000-await", 1, MANY, spawn_many);
        add("2-spawn-await", 2, 1, spawn_await_in_task);
        add("2-spawn-10000-await", 2, MANY, spawn_many);
        add("2-spawn-on-both", 2, MANY, spawn_many_in_tasks);
        add("yield", 1, 1, yields);
        add("yield-in-task", 1, 1, yields_in_task);
        add("traced-yield-in-task", 1, 1, yields_in_task);
        add("traced-channel-ping-pong", 1, 1, channel);
        add("clock", 1, 1, clock);
        add("dump", 1, 1, dump);
        add("channel-ping-pong", 1, 1, channel);
        add("timer-make-poll-drop", 1, 1, timer);
        add("timer-reset-of-10000", 1, MANY, timer_reset);
        add("wake-across-threads", 1, 1, across);
        compare("micro: ns each", &options, &mut programs);
    }

    /// Runs `future` and returns the time it took.
    fn measured(runtime: &Runtime, future: impl Future<Output = ()>) -> Took {
        runtime.block_on(async {
            let clock = Clock::start();
            future.await;
            clock.stop()
        })
    }

    fn spawn_await(runtime: &Runtime, count: u64) -> Took {
        measured(runtime, async {
            for n in 0..count {
                black_box(polder::spawn(async move { n }).await);
            }
        })
    }

    fn spawn_local_await(runtime: &Runtime, count: u64) -> Took {
        measured(runtime, async {
            for n in 0..count {
                black_box(polder::spawn_local(async move { n }).await);
            }
        })
    }

    fn spawn_many(runtime: &Runtime, count: u64) -> Took {
        let mut tasks = Vec::with_capacity(MANY as usize);
        measured(runtime, async {
            for _ in 0..count / MANY {
                tasks.extend((0..MANY).map(|n| polder::spawn(async move { n })));
                for task in tasks.drain(..) {
                    black_box(task.await);
                }
            }
        })
    }

    /// Spawns and awaits tasks in a pool worker.
    fn spawn_await_in_task(runtime: &Runtime, count: u64) -> Took {
        measured(
            runtime,
            runtime.spawn(async move {
                for n in 0..count {
                    black_box(polder::spawn(async move { n }).await);
                }
            }),
        )
    }

    /// Two tasks concurrently spawn and await a hundred tasks each time.
    fn spawn_many_in_tasks(runtime: &Runtime, count: u64) -> Took {
        let spawner = move || async move {
            let mut tasks = Vec::with_capacity(100);
            for _ in 0..count / 200 {
                tasks.extend((0..100).map(|n| polder::spawn(async move { n })));
                for task in tasks.drain(..) {
                    black_box(task.await);
                }
            }
        };
        measured(runtime, async {
            let spawners = [runtime.spawn(spawner()), runtime.spawn(spawner())];
            for spawner in spawners {
                spawner.await;
            }
        })
    }

    fn yields(runtime: &Runtime, count: u64) -> Took {
        measured(runtime, async {
            for _ in 0..count {
                yield_now().await;
            }
        })
    }

    /// Yields of a task, while the future that waits for it sleeps.
    fn yields_in_task(runtime: &Runtime, count: u64) -> Took {
        let task = runtime.spawn(async move {
            for _ in 0..count {
                yield_now().await;
            }
        });
        measured(runtime, task)
    }

    /// The minimum cost of a trace event, unless two events share one clock reading.
    fn clock(runtime: &Runtime, count: u64) -> Took {
        measured(runtime, async {
            for _ in 0..count {
                black_box(Instant::now());
            }
        })
    }

    fn dump(runtime: &Runtime, count: u64) -> Took {
        let stop = Arc::new(Latch::new());
        let spawn = |number: u64| {
            let stop = stop.clone();
            runtime.spawn(async move {
                match number % 2 {
                    0 => stop.wait().await,
                    _ => drop(timeout(LONG, stop.wait()).await),
                }
            })
        };
        let tasks: Vec<_> = (0..CROWD).map(spawn).collect();
        runtime.run_once(Duration::ZERO);
        let clock = Clock::start();
        for _ in 0..count {
            let dump = runtime.dump();
            assert_eq!(dump.tasks.len() as u64, CROWD);
        }
        let took = clock.stop();
        stop.set();
        measured(runtime, async {
            for task in tasks {
                task.await;
            }
        });
        took
    }

    async fn answer(receiver: Receiver<u64>, sender: Sender<u64>) {
        while let Ok(number) = receiver.recv().await {
            if sender.send(number + 1).await.is_err() {
                return;
            }
        }
    }

    async fn ask(sender: Sender<u64>, receiver: Receiver<u64>, count: u64) {
        for number in 0..count {
            sender.send(number).await.expect("the other side is there");
            let answer = receiver.recv().await.expect("the other side is there");
            assert_eq!(answer, number + 1);
        }
    }

    /// Round trips between two tasks.
    fn channel(runtime: &Runtime, count: u64) -> Took {
        let (questions, questioned) = bounded(1);
        let (answers, answered) = bounded(1);
        let other = runtime.spawn(answer(questioned, answers));
        let task = runtime.spawn(ask(questions, answered, count));
        let took = measured(runtime, task);
        runtime.block_on(other);
        took
    }

    fn timer(runtime: &Runtime, count: u64) -> Took {
        measured(runtime, async {
            for _ in 0..count {
                let ready = poll_once(pin!(Timer::after(LONG))).await;
                assert!(ready.is_none());
            }
        })
    }

    /// Resets timers, as a timeout that is pushed back on each arrival of data.
    fn timer_reset(runtime: &Runtime, count: u64) -> Took {
        let mut timers: Vec<_> = (0..MANY).map(|_| Timer::after(LONG)).collect();
        runtime.block_on(poll_fn(|cx| {
            for timer in &mut timers {
                assert!(Pin::new(timer).poll(cx).is_pending());
            }
            Poll::Ready(())
        }));
        measured(runtime, async {
            for _ in 0..count / MANY {
                for timer in &mut timers {
                    timer.set_after(LONG);
                }
            }
        })
    }

    /// Round trips between two threads that sleep while they wait.
    fn across(runtime: &Runtime, count: u64) -> Took {
        let (questions, questioned) = bounded(1);
        let (answers, answered) = bounded(1);
        let other = thread::spawn(move || polder::block_on(answer(questioned, answers)));
        let took = measured(runtime, ask(questions, answered, count));
        other.join().expect("it only answers");
        took
    }
}
