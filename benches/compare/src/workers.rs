//! Several workers: two, against tokio's multi-thread scheduler and smol's `Executor` on as many
//! threads.

use std::future::Future;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use async_channel::bounded;
use futures_channel::oneshot;

use crate::clock::{Clock, Ready, Run, Took, nanos};
use crate::group::{Group, Metric, Order, Skip, Workload};
use crate::micro::{answer, ask};
use crate::pairs::Family;
use crate::peers;

/// How many there are.
pub const WORKERS: usize = 2;

/// What a runtime with workers is asked for.
pub trait Pool: 'static {
    /// What spawns from any thread.
    type Handle: Clone + Send + 'static;

    fn new() -> Result<Self, Skip>
    where
        Self: Sized;

    /// On this thread, which is not one of the workers.
    fn block_on<T>(&self, future: impl Future<Output = T>) -> T;

    fn handle(&self) -> Self::Handle;

    fn spawn<T: Send + 'static>(
        handle: &Self::Handle,
        future: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T>;

    fn detach(handle: &Self::Handle, future: impl Future<Output = ()> + Send + 'static);
}

pub fn group() -> Group {
    Group {
        name: "workers",
        title: "Several workers",
        about: "Two workers, and a main thread that only waits: polder with `workers(2)`, tokio's \
                multi-thread scheduler with two, smol's `Executor` run by two threads. *Echo* is \
                both ends of 200 TCP connections, a task each, in this process. *Storm*: a plain \
                thread spawns a million tiny tasks; measured until all have run. *Channels*: pairs \
                of tasks that ping-pong over `async-channel`. *Uneven*: tasks of which every 20th \
                computes forty times as long as the others.\n\n\
                What it costs that tasks stay: a polder task stays on the worker that starts it, so of 64 pairs \
                about half are on two workers, and each of their messages is a wake-up across threads. Where that \
                matters, one task that does both costs nothing of it. And a worker that computes keeps its other tasks \
                waiting: what computes for long belongs in `unblock`, and smaller tasks are \
                spread better. (Tried: un-started tasks taken two at a time, so that neighbours stay together: \
                1.4 to 1.6 with 64 pairs, but a worker that is stuck keeps the second from the others.)",
        workloads,
        measure: |order| {
            let mut run = ready(order)?;
            Ok(nanos(&mut run, order.number() as u64, order.limit))
        },
    }
}

fn workloads(short: bool) -> Vec<Workload> {
    const ROWS: [(&str, &str, &str); 5] = [
        ("echo-200", "Echo, 200 connections", "ns per round trip"),
        (
            "storm-1000000",
            "Storm of 1,000,000 tasks from outside",
            "ns per task",
        ),
        (
            "channels-1",
            "Channels, one pair of tasks",
            "ns per round trip",
        ),
        (
            "channels-64",
            "Channels, 64 pairs of tasks",
            "ns per round trip",
        ),
        (
            "uneven-1000",
            "1,000 uneven tasks that compute",
            "ns per task",
        ),
    ];
    const fn metrics(title: &'static str) -> [Metric; 2] {
        [
            Metric {
                key: "ns",
                title,
                ratio: true,
            },
            Metric {
                key: "cpu",
                title: "CPU, ns each",
                ratio: true,
            },
        ]
    }
    const TRIP: &[Metric] = &metrics("ns per round trip");
    const TASK: &[Metric] = &metrics("ns per task");
    (ROWS.iter())
        .map(|&(name, title, unit)| Workload {
            name: name.into(),
            title: title.into(),
            programs: ["polder", "tokio", "smol"].map(String::from).into(),
            yardstick: "tokio".into(),
            metrics: if unit == "ns per task" { TASK } else { TRIP },
            limit: Duration::from_millis(if short { 50 } else { 300 }),
            deadline: Duration::from_secs(60),
            rounds: None,
        })
        .collect()
}

fn ready(order: &Order) -> Ready {
    let number = order.number();
    if order.workload.starts_with("echo") {
        return match order.program.as_str() {
            "polder" => peers::polder::pairs_of_workers(Family::Tcp, number, WORKERS),
            "tokio" => peers::tokio::pairs(Family::Tcp, number, WORKERS),
            "smol" => peers::smol::pairs_of_workers(Family::Tcp, number),
            _ => order.unknown(),
        };
    }
    match order.program.as_str() {
        "polder" => of::<peers::polder::Workers>(order),
        "tokio" => of::<peers::tokio::Workers>(order),
        "smol" => of::<peers::smol::Workers>(order),
        _ => order.unknown(),
    }
}

fn of<P: Pool>(order: &Order) -> Ready {
    // Lives as long as the process.
    let pool: &'static P = Box::leak(Box::new(P::new()?));
    let number = order.number() as u64;
    let run: Run = match order.workload.split('-').next() {
        Some("storm") => Box::new(move |count| storm(pool, count)),
        Some("channels") => Box::new(move |count| channels(pool, number, count / number)),
        Some("uneven") => Box::new(move |count| uneven(pool, count)),
        _ => return order.unknown(),
    };
    Ok(run)
}

/// A plain thread spawns them all; until they have run.
fn storm<P: Pool>(pool: &P, count: u64) -> Took {
    let (done, all_ran) = oneshot::channel();
    let handle = pool.handle();
    let clock = Clock::start();
    let outside = thread::spawn(move || {
        let left = Arc::new(AtomicU64::new(count));
        let done = Arc::new(std::sync::Mutex::new(Some(done)));
        for _ in 0..count {
            let (left, done) = (left.clone(), done.clone());
            P::detach(&handle, async move {
                if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    let done = done.lock().expect("nobody panics").take();
                    let _ = done.expect("one task is the last").send(());
                }
            });
        }
    });
    pool.block_on(all_ran).expect("the last task says so");
    let took = clock.stop();
    outside.join().expect("it only spawns");
    took
}

/// Pairs of tasks that ask and answer, `each` times.
fn channels<P: Pool>(pool: &P, pairs: u64, each: u64) -> Took {
    let handle = pool.handle();
    let clock = Clock::start();
    let mut tasks = Vec::new();
    for _ in 0..pairs {
        let (questions, questioned) = bounded(1);
        let (answers, answered) = bounded(1);
        P::detach(&handle, answer(questioned, answers));
        tasks.push(P::spawn(&handle, ask(questions, answered, each)));
    }
    pool.block_on(async {
        for task in tasks {
            task.await;
        }
    });
    clock.stop()
}

/// Computes for about so many microseconds.
fn compute(micros: u64) -> u64 {
    let mut state = micros;
    for _ in 0..micros * 300 {
        state = black_box(
            state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1),
        );
    }
    state
}

/// One task spawns them all, and waits for them.
fn uneven<P: Pool>(pool: &P, count: u64) -> Took {
    let handle = pool.handle();
    let clock = Clock::start();
    let spawner = handle.clone();
    let all = P::spawn(&handle, async move {
        let (sender, receiver) = async_channel::unbounded();
        for number in 0..count {
            let micros = if number % 20 == 0 { 200 } else { 5 };
            let sender = sender.clone();
            P::detach(&spawner, async move {
                let _ = sender.try_send(compute(micros));
            });
        }
        for _ in 0..count {
            let result = receiver.recv().await;
            black_box(result.expect("every task sends one"));
        }
    });
    pool.block_on(all);
    clock.stop()
}
