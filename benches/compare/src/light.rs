//! Light load: a pool of workers that have little to do. A request then includes that a worker
//! wakes up before it and falls asleep after it; and a pool costs something if only a timer wakes
//! it.

use std::thread;
use std::time::Duration;

use crate::clock::{Clock, sleeps};
use crate::echo::load::Load;
use crate::echo::under_load;
use crate::group::{Group, Metric, Order, Outcome, Skip, Workload, values};
use crate::peers;
use crate::program::{MESSAGE, Pool};

pub fn group() -> Group {
    Group {
        name: "light",
        title: "Light load",
        about: "Servers whose workers mostly sleep. *Requests*: an echo server in a separate process; a generator sends \
                64 bytes at equal distances, 1,000 times a second over 10 connections or 10,000 times over 50, and sleeps in \
                between. *Ticker*: one task sleeps for 10 ms again and again. *Sleeps* are voluntary context \
                switches, as the kernel counts them, of all the process's threads. With one worker, tokio is its \
                current-thread scheduler, smol its `LocalExecutor`; `raw` is the hand-written loop, on one thread. \
                Server and generator have a core each if there is one more than workers; otherwise they share all.",
        workloads,
        missing: Vec::new,
        measure,
    }
}

const REQUESTS: &[Metric] = &[
    Metric {
        key: "cpu",
        title: "server CPU, ns per request",
        ratio: true,
    },
    Metric {
        key: "sleeps",
        title: "sleeps per request",
        ratio: true,
    },
    Metric {
        key: "p50",
        title: "p50, µs",
        ratio: true,
    },
    Metric {
        key: "p99",
        title: "p99, µs",
        ratio: false,
    },
    Metric {
        key: "rate",
        title: "requests/s",
        ratio: false,
    },
];

const TICKER: &[Metric] = &[
    Metric {
        key: "cpu",
        title: "CPU, µs a second",
        ratio: true,
    },
    Metric {
        key: "sleeps",
        title: "sleeps a second",
        ratio: true,
    },
];

const WORKERS: [usize; 4] = [1, 2, 4, 8];

/// Requests a second, and connections.
const RATES: [(u32, usize); 2] = [(1_000, 10), (10_000, 50)];

/// Numbers of workers that the ticker is measured with.
const TICKING: [usize; 2] = [2, 4];

fn workloads(short: bool) -> Vec<Workload> {
    let workload = |name: String, title: String, metrics, programs: &[&str]| Workload {
        name,
        title,
        programs: programs.iter().map(|&name| name.into()).collect(),
        yardstick: "tokio".into(),
        metrics,
        limit: Duration::from_millis(if short { 300 } else { 1_000 }),
        deadline: Duration::from_secs(20),
        rounds: None,
    };
    let mut workloads = Vec::new();
    for (rate, connections) in RATES {
        for workers in WORKERS {
            let programs: &[&str] = match workers {
                1 => &["polder", "tokio", "smol", "raw"],
                _ => &["polder", "tokio", "smol"],
            };
            let rate_in_words = format!("{},000", rate / 1_000);
            workloads.push(workload(
                format!("w{workers}-rate-{rate}"),
                format!(
                    "{rate_in_words} requests a second over {connections} connections, {}",
                    in_words(workers)
                ),
                REQUESTS,
                programs,
            ));
        }
    }
    for workers in TICKING {
        workloads.push(workload(
            format!("w{workers}-ticker-10"),
            format!("A ticker of 10 ms, {}", in_words(workers)),
            TICKER,
            &["polder", "tokio", "smol"],
        ));
    }
    if short {
        workloads.retain(|workload| ["w2-rate-1000", "w2-ticker-10"].contains(&&*workload.name));
    }
    workloads
}

fn in_words(workers: usize) -> String {
    match workers {
        1 => "one worker".into(),
        _ => format!("{workers} workers"),
    }
}

fn measure(order: &Order) -> Outcome {
    let parts = (order.workload.strip_prefix('w'))
        .and_then(|rest| rest.split_once('-'))
        .and_then(|(workers, work)| Some((workers.parse().ok()?, work)));
    match parts {
        Some((workers, work)) if work.starts_with("rate-") => requests(order, workers),
        Some((workers, "ticker-10")) => match order.program.as_str() {
            "polder" => ticker::<peers::polder::Workers>(order, workers),
            "tokio" => ticker::<peers::tokio::Workers>(order, workers),
            "smol" => ticker::<peers::smol::Workers>(order, workers),
            _ => order.unknown(),
        },
        _ => order.unknown(),
    }
}

fn requests(order: &Order, workers: usize) -> Outcome {
    let found = (RATES.into_iter()).find(|(rate, _)| *rate as usize == order.number());
    let Some((rate, connections)) = found else {
        return order.unknown();
    };
    let program = match (workers, order.program.as_str()) {
        (_, "raw") => "raw".into(),
        (1, "polder") => "polder-epoll".into(),
        (1, runtime) => runtime.into(),
        (_, runtime) => format!("{runtime}-mt{workers}"),
    };
    let load = Load::Paced {
        connections,
        rate,
        size: MESSAGE,
    };
    under_load::measure(order, workers, &["serve", &program, "1024"], load)
}

/// This thread is none of the workers, and sleeps once.
fn ticker<P: Pool>(order: &Order, workers: usize) -> Outcome {
    let pool: &'static P = Box::leak(Box::new(P::new(workers)?));
    let tick = Duration::from_millis(order.number() as u64);
    P::detach(&pool.handle(), async move {
        loop {
            P::sleep(tick).await;
        }
    });
    thread::sleep(order.limit / 3);
    let slept = || sleeps("self").map_err(|error| Skip(error.to_string()));
    let before = slept()?;
    let clock = Clock::start();
    thread::sleep(order.limit);
    let took = clock.stop();
    let seconds = took.wall.as_secs_f64();
    Ok(values([
        ("cpu", took.cpu.as_secs_f64() * 1e6 / seconds),
        ("sleeps", (slept()? - before) as f64 / seconds),
    ]))
}
