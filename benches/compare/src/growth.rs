//! Growth: the cost of an operation among a growing number of its kind that stay idle. One process
//! measures all sizes, so that constant costs cancel.

use std::future::poll_fn;
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_lite::future::{pending, poll_once, yield_now};

use crate::clock::{Clock, Took, resident};
use crate::echo::more_descriptors;
use crate::group::{Group, Metric, Order, Outcome, Skip, Values, Workload};
use crate::peers;
use crate::peers::raw::Way;
use crate::program::{AT_ONCE, Family, LONG, Pairs, Peer};

/// The key of the ratio between the costs at the largest and the smallest size.
pub const GROWTH: &str = "growth";

/// The number of operations at each size.
const COUNT: u64 = 200_000;

/// Sizes: numbers of timers and tasks.
const MANY: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// Sizes: numbers of idle sockets.
const IDLE: [u64; 4] = [0, 1_000, 4_000, 16_000];

/// Sizes: numbers of runtimes.
const RUNTIMES: [u64; 3] = [10, 100, 1_000];

pub fn group() -> Group {
    Group {
        name: "growth",
        title: "Growth",
        about: "The same operation beside more and more of its kind, in CPU time. *Timers*: one is made, polled \
                and dropped, among so many others. *Spawn*: a task is spawned and awaited, beside so many that wait. *Wake*: \
                so many tasks are woken one after the other, and run once each. *Idle sockets*: a round trip of 64 bytes \
                over Unix sockets, 50 pairs, beside so many sockets over which nothing comes, with a task at each. \
                *Runtimes*: so many are made on one thread and kept, and each runs a task; the memory is the slope of the \
                resident set. (smol's executors share one reactor in a process: there is nothing to compare.) The \
                last column of the others is the cost among the most, divided by that among the fewest.",
        workloads,
        missing: Vec::new,
        measure,
    }
}

const fn metric(key: &'static str, title: &'static str) -> Metric {
    Metric {
        key,
        title,
        ratio: false,
    }
}

const AMONG_MANY: &[Metric] = &[
    metric("n1000", "1,000: ns"),
    metric("n10000", "10,000: ns"),
    metric("n100000", "100,000: ns"),
    metric("n1000000", "1,000,000: ns"),
    metric(GROWTH, "growth"),
];

const AMONG_IDLE: &[Metric] = &[
    metric("n0", "none: ns"),
    metric("n1000", "1,000: ns"),
    metric("n4000", "4,000: ns"),
    metric("n16000", "16,000: ns"),
    metric(GROWTH, "growth"),
];

const OF_RUNTIMES: &[Metric] = &[
    metric("n10", "10: ns each"),
    metric("n100", "100: ns each"),
    metric("n1000", "1,000: ns each"),
    metric(GROWTH, "growth"),
    metric("kib", "KiB each"),
];

fn workloads(short: bool) -> Vec<Workload> {
    let rows: [(&str, &str, &[&str], &[Metric]); 5] = [
        (
            "timers",
            "A timer, among others",
            &["polder", "tokio", "smol"],
            AMONG_MANY,
        ),
        (
            "spawn",
            "Spawn and await, beside tasks that wait",
            &["polder", "tokio", "smol"],
            AMONG_MANY,
        ),
        (
            "wake",
            "Wake and run, so many tasks in turn",
            &["polder", "tokio", "smol"],
            AMONG_MANY,
        ),
        (
            "idle",
            "A round trip, beside idle sockets",
            &["raw", "polder", "tokio", "smol"],
            AMONG_IDLE,
        ),
        (
            "runtimes",
            "A runtime made, and a task run on it",
            &["polder", "tokio"],
            OF_RUNTIMES,
        ),
    ];
    (rows.into_iter().filter(|_| !short))
        .map(|(name, title, programs, metrics)| Workload {
            name: name.into(),
            title: title.into(),
            programs: programs.iter().map(|&name| name.into()).collect(),
            yardstick: "tokio".into(),
            metrics,
            limit: Duration::from_millis(1),
            deadline: Duration::from_secs(60),
            rounds: Some(5),
        })
        .collect()
}

fn measure(order: &Order) -> Outcome {
    if order.workload == "idle" {
        return idle(order);
    }
    match order.program.as_str() {
        "polder" => of::<peers::polder::Spawn>(order),
        "tokio" => of::<peers::tokio::CurrentThread>(order),
        "smol" => of::<peers::smol::Local>(order),
        _ => order.unknown(),
    }
}

fn of<P: Peer>(order: &Order) -> Outcome {
    match order.workload.as_str() {
        "timers" => sizes(&MANY, |many| Ok(timers(new::<P>()?, many))),
        "spawn" => sizes(&MANY, |many| Ok(spawn(new::<P>()?, many))),
        "wake" => sizes(&MANY, |many| Ok(wake(new::<P>()?, many))),
        "runtimes" => runtimes::<P>(),
        _ => order.unknown(),
    }
}

/// Returns a new peer for each size. It lives as long as the process, with everything that waits in
/// it.
fn new<P: Peer>() -> Result<&'static P, Skip> {
    Ok(Box::leak(Box::new(P::new()?)))
}

/// Measures the cost of an operation at each of these sizes, in nanoseconds, and its growth.
fn sizes(sizes: &[u64], mut cost: impl FnMut(u64) -> Result<f64, Skip>) -> Outcome {
    let mut found = Values::new();
    let mut costs = Vec::new();
    for &size in sizes {
        let nanos = cost(size)?;
        found.insert(format!("n{size}"), nanos);
        costs.push(nanos);
    }
    if let [first, .., last] = costs[..] {
        found.insert(GROWTH.into(), last / first);
    }
    Ok(found)
}

fn each(took: Took, count: u64) -> f64 {
    took.cpu.as_nanos() as f64 / count as f64
}

/// Returns a different time within a thousand seconds for each number, in scrambled order.
fn spread(number: u64) -> Duration {
    LONG + Duration::from_millis(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 1_000_000)
}

fn timers<P: Peer>(peer: &'static P, many: u64) -> f64 {
    let took = peer.run(async move {
        let mut held = Vec::with_capacity(many as usize);
        for number in 0..many {
            let mut timer = Box::pin(peer.sleep(spread(number)));
            assert!(poll_once(&mut timer).await.is_none());
            held.push(timer);
            rest(number).await;
        }
        let clock = Clock::start();
        for number in 0..COUNT {
            // Timers other than those that are held.
            let timer = pin!(peer.sleep(spread(number + many)));
            assert!(poll_once(timer).await.is_none());
            rest(number).await;
        }
        let took = clock.stop();
        drop(held);
        took
    });
    each(took, COUNT)
}

/// Yields after every `AT_ONCE` numbers.
async fn rest(number: u64) {
    if number.is_multiple_of(AT_ONCE) {
        yield_now().await;
    }
}

fn spawn<P: Peer>(peer: &'static P, many: u64) -> f64 {
    let took = peer.run(async move {
        let mut held = Vec::with_capacity(many as usize);
        for _ in 0..many {
            held.push(Box::pin(peer.spawn(pending::<()>())));
        }
        // Lets all of them run until they wait.
        yield_now().await;
        let clock = Clock::start();
        for number in 0..COUNT {
            black_box(peer.spawn(async move { number }).await);
        }
        let took = clock.stop();
        // Left to process exit: some runtimes would cancel them one by one.
        std::mem::forget(held);
        took
    });
    each(took, COUNT)
}

fn wake<P: Peer>(peer: &'static P, many: u64) -> f64 {
    let turns = (MANY[MANY.len() - 1] / many).max(1);
    let took = peer.run(async move {
        let wakers = Arc::new(Mutex::new(Vec::<Waker>::with_capacity(many as usize)));
        let polled = Arc::new(AtomicU64::new(0));
        let mut held = Vec::with_capacity(many as usize);
        for _ in 0..many {
            let (wakers, polled) = (wakers.clone(), polled.clone());
            let mut first = true;
            held.push(Box::pin(peer.spawn(poll_fn(move |cx| {
                if std::mem::take(&mut first) {
                    let mut wakers = wakers.lock().expect("nobody panics");
                    wakers.push(cx.waker().clone());
                }
                polled.fetch_add(1, Ordering::Relaxed);
                Poll::<()>::Pending
            }))));
        }
        while polled.load(Ordering::Relaxed) < many {
            yield_now().await;
        }
        let wakers = std::mem::take(&mut *wakers.lock().expect("nobody panics"));
        let clock = Clock::start();
        for turn in 0..turns {
            for waker in &wakers {
                waker.wake_by_ref();
            }
            while polled.load(Ordering::Relaxed) < (turn + 2) * many {
                yield_now().await;
            }
        }
        let took = clock.stop();
        std::mem::forget((held, wakers));
        took
    });
    each(took, turns * many)
}

fn idle(order: &Order) -> Outcome {
    const ACTIVE: u64 = 50;
    const TRIPS: u64 = ACTIVE * 600;
    more_descriptors();
    sizes(&IDLE, |sockets| {
        let pairs = Pairs {
            family: Family::Unix,
            active: ACTIVE as usize,
            idle: sockets as usize / 2,
        };
        let mut run = match order.program.as_str() {
            "raw" => peers::raw::pairs(pairs, Way::Shared),
            "polder" => peers::polder::pairs(pairs, "epoll"),
            "tokio" => peers::tokio::pairs(pairs, 0),
            "smol" => peers::smol::pairs(pairs),
            _ => order.unknown(),
        }?;
        run(TRIPS / 3);
        Ok(each(run(TRIPS), TRIPS))
    })
}

fn runtimes<P: Peer>() -> Outcome {
    more_descriptors();
    let failed = |error: std::io::Error| Skip(error.to_string());
    let mut kept: Vec<Pin<Box<P>>> = Vec::new();
    let mut make = |many: u64| {
        let clock = Clock::start();
        for _ in 0..many {
            let runtime = Box::pin(P::new()?);
            runtime.run(async {});
            kept.push(runtime);
        }
        Ok(each(clock.stop(), many))
    };
    // The first one sets up shared state.
    make(1)?;
    let before = resident("self").map_err(failed)?;
    let mut found = sizes(&RUNTIMES, make)?;
    let after = resident("self").map_err(failed)?;
    let made: u64 = RUNTIMES.iter().sum();
    found.insert("kib".into(), (after - before) / made as f64 / 1024.0);
    Ok(found)
}
