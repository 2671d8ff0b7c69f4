//! Several workers, compared with tokio's multi-thread scheduler and smol's `Executor` on the same
//! number of threads: two; four, on two cores too; eight and sixteen on machines with enough cores,
//! and some rows on all.

mod beside;
mod burst;

use std::future::poll_fn;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use async_channel::bounded;
use futures_channel::oneshot;

use crate::clock::{Clock, Ready, Run, Took, nanos};
use crate::group::{Group, Metric, Order, Outcome, Skip, Workload};
use crate::peers;
use crate::program::{Family, Pairs, Pool, answer, ask};

/// Numbers of workers. Two are measured everywhere, and four from two cores on. With eight and
/// sixteen, a machine that has fewer cores measures only those rows that say so.
const WORKERS: [usize; 4] = [2, 4, 8, 16];

/// Returns whether this machine has too few cores for the rows that do not measure just that.
fn too_many(workers: usize) -> bool {
    match workers {
        4 => cores() < 2,
        workers => workers > cores().max(2),
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, |cores| cores.get())
}

pub fn group() -> Group {
    Group {
        name: "workers",
        title: "Several workers",
        about: "Workers, and a main thread that only waits: polder with `workers(n)`, tokio's \
                multi-thread scheduler with as many, smol's `Executor` run by as many threads. With two; \
                with four, also on two cores, where not every worker has one; and with eight and sixteen \
                where there are so many cores, *channels, 64 pairs* everywhere. *Echo* is \
                both ends of 200 TCP connections, a task each, in this process. *Storm*: a plain \
                thread spawns a million tiny tasks; measured until all have run. *Channels*: pairs \
                of tasks that ping-pong over `async-channel`. *Wakes*: pairs that only wake each other, which is what \
                is left of a channel's round trip if the channel costs nothing. *One channel*: eight tasks send over one \
                `async-channel` with room for 64 messages, and eight receive. *Runtimes*: one with its workers is made \
                and dropped, again and again. *Uneven*: tasks of which every 20th \
                computes forty times as long as the others. *Beside*: a \
                task computes for 100 ms; four others, which have waited on its worker, become ready meanwhile, \
                while the other workers are idle: by a message of the task that computes, by a message of another \
                thread, by a socket, by a timer. Shown is how long they then wait to run (the medians of five \
                times), and the longest of all. *All asleep*: no worker has anything to do until a socket wakes a task, \
                which computes for 200 ms. After 40 of them another socket becomes readable, or a timer is due; the other \
                worker could run their tasks. Shown is the same. *Burst*: a plain thread spawns 300 tasks. Each has a \
                socket on which a message lies, and peeks at it repeatedly, so it never has to wait. Shown is the time from \
                the first spawn until the last task is polled, and the standard deviation of the numbers of peeks in 250 ms, \
                as a part of their mean. (smol does not limit how long a task reads, so its two workers do not leave the \
                first two tasks.)\n\n\
                polder's workers share one poller, in which one idle worker waits; the others sleep until they are \
                notified. A task that a worker wakes is queued on that worker, so pairs come together, and their messages \
                are wake-ups within a thread. An idle worker takes half of another one's queue. A thread of the \
                process, the monitor, looks whether any worker is stuck in a task that computes: each 5 ms of processor \
                time, and every 350 µs after one was.",
        workloads,
        missing: || {
            let missing: Vec<String> = (WORKERS.iter())
                .filter(|&&workers| too_many(workers))
                .map(|workers| workers.to_string())
                .collect();
            match missing.join(", ") {
                none if none.is_empty() => Vec::new(),
                some => vec![format!(
                    "{some} workers: this machine has {} cores",
                    cores()
                )],
            }
        },
        measure,
    }
}

const fn nanos_of(title: &'static str) -> [Metric; 2] {
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

const TRIP: &[Metric] = &nanos_of("ns per round trip");
const TASK: &[Metric] = &nanos_of("ns per task");
const MESSAGE_EACH: &[Metric] = &nanos_of("ns per message");

const MADE: &[Metric] = &nanos_of("ns per runtime");

/// With which of [`WORKERS`] a row is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum With {
    /// With as many at most.
    UpTo(usize),
    /// With all for which there are cores.
    Cores,
    /// With all, however few cores there are.
    All,
}

use With::{All, Cores, UpTo};

impl With {
    fn includes(self, workers: usize) -> bool {
        match self {
            All => true,
            Cores => !too_many(workers),
            UpTo(most) => workers <= most && !too_many(workers),
        }
    }
}

/// Name, title, metrics, the numbers of workers that it is measured with, and the milliseconds of a
/// measurement; the short mode has a quarter of them.
const ROWS: &[(&str, &str, &[Metric], With, u64)] = &[
    ("echo-200", "Echo, 200 connections", TRIP, Cores, 300),
    (
        "storm-1000000",
        "Storm of 1,000,000 tasks from outside",
        TASK,
        Cores,
        300,
    ),
    (
        "channels-1",
        "Channels, one pair of tasks",
        TRIP,
        UpTo(4),
        300,
    ),
    ("channels-64", "Channels, 64 pairs of tasks", TRIP, All, 300),
    (
        "mpmc-8",
        "One channel, 8 tasks that send and 8 that receive",
        MESSAGE_EACH,
        UpTo(4),
        300,
    ),
    (
        "wakes-64",
        "64 pairs of tasks that wake each other, without a channel",
        TRIP,
        Cores,
        300,
    ),
    (
        "uneven-1000",
        "1,000 uneven tasks that compute",
        TASK,
        Cores,
        300,
    ),
    (
        "beside-100",
        "Beside a task that computes for 100 ms",
        beside::BESIDE,
        UpTo(2),
        500,
    ),
    (
        "hole-200",
        "All asleep, and the task that is woken computes for 200 ms",
        beside::HOLE,
        UpTo(2),
        1_000,
    ),
    (
        "burst-300",
        "Burst of 300 tasks that always have something to read",
        burst::METRICS,
        UpTo(2),
        1_250,
    ),
    ("made-1", "Runtimes made, and dropped", MADE, UpTo(4), 300),
];

/// Rows that the short mode leaves out.
const LONG_ONLY: [&str; 2] = ["mpmc-8", "made-1"];

fn workloads(short: bool) -> Vec<Workload> {
    let mut workloads = Vec::new();
    for workers in WORKERS
        .into_iter()
        .filter(|&workers| workers == 2 || !short)
    {
        for &(name, title, metrics, with, millis) in ROWS {
            if !with.includes(workers) || short && LONG_ONLY.contains(&name) {
                continue;
            }
            let programs: &[&str] = match name {
                // smol's threads are the program's own, and do not end.
                "made-1" => &["polder", "tokio"],
                _ => &["polder", "tokio", "smol"],
            };
            workloads.push(Workload {
                // The number of workers comes first: the workload's own number stays at the end.
                name: format!("w{workers}-{name}"),
                title: format!("{title}, {workers} workers"),
                programs: programs.iter().map(|&name| name.into()).collect(),
                yardstick: "tokio".into(),
                metrics,
                limit: Duration::from_millis(if short { millis / 4 } else { millis }),
                deadline: Duration::from_secs(60),
                rounds: None,
            });
        }
    }
    workloads
}

/// Parses the number of workers and the work: `w2-echo-200`.
fn parts(order: &Order) -> Option<(usize, &str)> {
    let (workers, work) = order.workload.strip_prefix('w')?.split_once('-')?;
    Some((workers.parse().ok()?, work.rsplit_once('-')?.0))
}

fn measure(order: &Order) -> Outcome {
    let Some((workers, work)) = parts(order) else {
        return order.unknown();
    };
    if ["beside", "hole", "burst"].contains(&work) {
        return match order.program.as_str() {
            "polder" => late::<peers::polder::Workers>(order, workers, work),
            "tokio" => late::<peers::tokio::Workers>(order, workers, work),
            "smol" => late::<peers::smol::Workers>(order, workers, work),
            _ => order.unknown(),
        };
    }
    let mut run = ready(order)?;
    Ok(nanos(&mut run, order.number() as u64, order.limit))
}

/// Returns a workload that does a number of operations.
pub fn ready(order: &Order) -> Ready {
    let Some((workers, work)) = parts(order) else {
        return order.unknown();
    };
    match (work, order.program.as_str()) {
        ("echo", program) => {
            let pairs = Pairs::active(Family::Tcp, order.number());
            match program {
                "polder" => peers::polder::pairs_of_workers(pairs, workers),
                "tokio" => peers::tokio::pairs(pairs, workers),
                "smol" => peers::smol::pairs_of_workers(pairs, workers),
                _ => order.unknown(),
            }
        }
        ("made", "polder") => Ok(Box::new(move |count| {
            made::<peers::polder::Workers>(workers, count)
        })),
        ("made", "tokio") => Ok(Box::new(move |count| {
            made::<peers::tokio::Workers>(workers, count)
        })),
        ("made", _) => order.unknown(),
        (_, "polder") => of::<peers::polder::Workers>(order, workers, work),
        (_, "tokio") => of::<peers::tokio::Workers>(order, workers, work),
        (_, "smol") => of::<peers::smol::Workers>(order, workers, work),
        _ => order.unknown(),
    }
}

/// Measures how long tasks wait, not what their work costs.
fn late<P: Pool>(order: &Order, workers: usize, work: &str) -> Outcome {
    match work {
        "beside" => beside::measure(order, workers, beside::beside::<P>),
        "hole" => beside::measure(order, workers, beside::hole::<P>),
        _ => burst::measure::<P>(order, workers),
    }
}

/// Returns the middle one, or the one above the middle.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn of<P: Pool>(order: &Order, workers: usize, work: &str) -> Ready {
    // Lives as long as the process.
    let pool: &'static P = Box::leak(Box::new(P::new(workers)?));
    let number = order.number() as u64;
    let run: Run = match work {
        "storm" => Box::new(move |count| storm(pool, count)),
        "channels" => Box::new(move |count| channels(pool, number, count / number)),
        "mpmc" => Box::new(move |count| mpmc(pool, number, count / number)),
        "wakes" => Box::new(move |count| wakes(pool, number, count / number)),
        "uneven" => Box::new(move |count| uneven(pool, count)),
        _ => return order.unknown(),
    };
    Ok(run)
}

/// A plain thread spawns all tasks; measures until they have run.
fn storm<P: Pool>(pool: &P, count: u64) -> Took {
    let (done, all_ran) = oneshot::channel();
    let handle = pool.handle();
    let clock = Clock::start();
    let outside = thread::spawn(move || {
        let left = Arc::new(AtomicU64::new(count));
        let done = Arc::new(Mutex::new(Some(done)));
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

/// Makes and drops runtimes, one after the other.
fn made<P: Pool>(workers: usize, count: u64) -> Took {
    let clock = Clock::start();
    for _ in 0..count {
        drop(P::new(workers).unwrap_or_else(|Skip(why)| panic!("{why}")));
    }
    clock.stop()
}

/// So many tasks send `each` messages over one channel, from which as many tasks receive.
fn mpmc<P: Pool>(pool: &P, tasks: u64, each: u64) -> Took {
    let handle = pool.handle();
    let clock = Clock::start();
    let (sender, receiver) = bounded(ROOM);
    let mut receiving = Vec::new();
    for _ in 0..tasks {
        let (sender, receiver) = (sender.clone(), receiver.clone());
        P::detach(&handle, async move {
            for number in 0..each {
                let sent = sender.send(number).await;
                sent.expect("there are receivers until all is sent");
            }
        });
        receiving.push(P::spawn(&handle, async move {
            while let Ok(number) = receiver.recv().await {
                black_box(number);
            }
        }));
    }
    drop((sender, receiver));
    pool.block_on(async {
        for task in receiving {
            task.await;
        }
    });
    clock.stop()
}

/// The room of that channel.
const ROOM: usize = 64;

/// Which of two tasks has the turn, and the waker of the waiting one: a channel that sends nothing.
/// A round trip costs only the runtime's wakes and polls.
#[derive(Default)]
struct Turns(Mutex<(usize, Option<Waker>)>);

impl Turns {
    /// Passes the turn to the other task.
    fn pass(&self, mine: usize) {
        let mut turns = self.0.lock().expect("nobody panics");
        turns.0 = 1 - mine;
        let waker = turns.1.take();
        drop(turns);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn mine(&self, mine: usize) {
        poll_fn(|cx| {
            let mut turns = self.0.lock().expect("nobody panics");
            if turns.0 == mine {
                return Poll::Ready(());
            }
            turns.1 = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Pairs of tasks that wake each other alternately, `each` times.
fn wakes<P: Pool>(pool: &P, pairs: u64, each: u64) -> Took {
    let handle = pool.handle();
    let clock = Clock::start();
    let mut tasks = Vec::new();
    for _ in 0..pairs {
        let turns: Arc<Turns> = Arc::default();
        for mine in [0, 1] {
            let turns = turns.clone();
            tasks.push(P::spawn(&handle, async move {
                for _ in 0..each {
                    turns.mine(mine).await;
                    turns.pass(mine);
                }
            }));
        }
    }
    pool.block_on(async {
        for task in tasks {
            task.await;
        }
    });
    clock.stop()
}

/// Computes for about `micros` microseconds.
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

/// One task spawns all of them, and waits for them.
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
