//! An echo server and a load generator, each in a process and on a core by itself.
//!
//! `compare measure echo …` is the generator's process: it starts the server (`compare serve`) on
//! the first core, moves to the last one, and ends the server when it has measured.

pub mod cores;
pub mod histogram;
pub mod load;
pub mod serve;
pub mod server;
pub mod under_load;

use std::time::Duration;

use polder::Backend;

use crate::group::{Group, Metric, Order, Outcome, Skip, Workload, values};
use crate::native;
use load::{Load, Phases};
use server::Server;

const METRICS: &[Metric] = &[
    Metric {
        key: "rate",
        title: "requests/s",
        ratio: true,
    },
    Metric {
        key: "cpu",
        title: "server CPU, ns per request",
        ratio: true,
    },
    Metric {
        key: "p50",
        title: "p50, µs",
        ratio: false,
    },
    Metric {
        key: "p99",
        title: "p99, µs",
        ratio: false,
    },
    Metric {
        key: "p999",
        title: "p99.9, µs",
        ratio: false,
    },
    Metric {
        key: "max",
        title: "max, µs",
        ratio: false,
    },
    Metric {
        key: "unfair",
        title: "p99 / p50",
        ratio: false,
    },
    Metric {
        key: "busy",
        title: "server's core busy",
        ratio: false,
    },
    Metric {
        key: "quiet",
        title: "generator had its core",
        ratio: false,
    },
];

pub fn group() -> Group {
    Group {
        name: "echo",
        title: "Echo server and load generator",
        about: "The server in one process and on one core, the load generator in another process \
                and on another core, over TCP on loopback. The generator never sleeps, so that what \
                is measured is the server; every answer is checked. \"Server's core busy\" is the \
                server's CPU time as a share of the time: where that is clearly below 1 and there is \
                more than one connection, the generator was the slower one, and the server's CPU per \
                request says more than the requests per second. \"Generator had its core\" is the \
                share of the time that it could run: below 1, other programs disturbed the \
                measurement. `raw` is a hand-written loop on \
                edge-triggered epoll that receives into one buffer for all connections, `raw-own` \
                has a buffer for each, as tasks have. What is called `busy` looks for events for \
                50 µs before it sleeps. `smol` is its `LocalExecutor`; `tokio-mt1` and `tokio-mt2` \
                are the multi-thread scheduler with one and two workers, all on the one core where \
                a machine has no third. In the table with two workers, `mt2` is a server with tasks that any worker \
                may run (polder's by `net::serve`), `local2` one with tasks that need not be `Send` and stay with their \
                worker, each of which has a listener on the same port: polder's by `net::serve_on_workers`, tokio's a \
                `LocalSet` on a thread for each. Without a third core the generator sleeps while it waits, and shares \
                the two with the server.",
        workloads,
        missing: Vec::new,
        measure,
    }
}

struct Work {
    name: &'static str,
    title: &'static str,
    load: Load,
    /// The server's buffer size for each connection.
    buffer: usize,
    /// Whether it is part of the short mode.
    short: bool,
    /// Whether programs that scan all descriptors for every event take part.
    all: bool,
}

const SMALL: usize = 4096;

const WORK: &[Work] = &[
    Work {
        name: "small-1",
        title: "64 bytes to and fro, one connection",
        load: messages(1, 1, 64),
        buffer: SMALL,
        short: true,
        all: true,
    },
    Work {
        name: "small-50",
        title: "64 bytes to and fro, 50 connections",
        load: messages(50, 1, 64),
        buffer: SMALL,
        short: true,
        all: true,
    },
    Work {
        name: "small-1000",
        title: "64 bytes to and fro, 1,000 connections",
        load: messages(1000, 1, 64),
        buffer: SMALL,
        short: true,
        all: false,
    },
    Work {
        name: "pipelined-50",
        title: "64 bytes, 50 connections with 16 messages under way on each",
        load: messages(50, 16, 64),
        buffer: SMALL,
        short: false,
        all: true,
    },
    Work {
        name: "bulk-4",
        title: "64 KiB to and fro, 4 connections",
        load: messages(4, 1, 64 << 10),
        buffer: 64 << 10,
        short: false,
        all: true,
    },
    Work {
        name: "huge-4",
        title: "1 MiB to and fro, 4 connections",
        load: messages(4, 1, 1 << 20),
        buffer: 64 << 10,
        short: false,
        all: false,
    },
    Work {
        name: "connect-16",
        title: "connect, 64 bytes to and fro, reset; 16 connections at a time",
        load: Load::Connects {
            at_once: 16,
            size: 64,
        },
        buffer: SMALL,
        short: true,
        all: true,
    },
    Work {
        name: TWO_WORKERS,
        title: "64 bytes to and fro, 200 connections, two workers",
        load: messages(200, 1, 64),
        buffer: SMALL,
        short: false,
        all: false,
    },
];

/// A workload with programs of its own, all with two workers.
const TWO_WORKERS: &str = "workers-200";

const fn messages(connections: usize, window: usize, size: usize) -> Load {
    Load::Messages {
        connections,
        window,
        size,
    }
}

fn workloads(short: bool) -> Vec<Workload> {
    let shared = |work: &Work| match cores::allowed().len() {
        1 => " (ONE core: server and generator share it)",
        2 if work.name == TWO_WORKERS => " (server and generator share two cores)",
        _ => "",
    };
    (WORK.iter())
        .filter(|work| work.short || !short)
        .map(|work| Workload {
            name: work.name.into(),
            title: format!("{}{}", work.title, shared(work)),
            programs: programs(work, short),
            yardstick: match work.name {
                TWO_WORKERS => "tokio-mt2".into(),
                _ => "raw".into(),
            },
            metrics: METRICS,
            limit: Duration::from_millis(if short { 200 } else { 300 }),
            deadline: Duration::from_secs(20),
            rounds: None,
        })
        .collect()
}

fn programs(work: &Work, short: bool) -> Vec<String> {
    if work.name == TWO_WORKERS {
        let programs = ["polder-mt2", "polder-local2", "tokio-mt2", "tokio-local2"];
        return programs.map(String::from).into();
    }
    let one = work.name == "small-1";
    let mut programs = vec!["raw".to_string(), "raw-own".into()];
    for backend in Backend::available() {
        let scans = matches!(backend, Backend::Poll | Backend::Select);
        if backend == Backend::Epoll || !short && (work.all || !scans) {
            programs.push(format!("polder-{backend}"));
        }
    }
    if one {
        programs.push("raw-busy".into());
        programs.push("polder-epoll-busy".into());
    }
    let peers: &[&str] = if short {
        &["tokio", "smol"]
    } else {
        &[
            "tokio",
            "tokio-mt1",
            "tokio-mt2",
            "smol",
            "monoio-legacy",
            "monoio-uring",
            "compio-poll",
            "compio-uring",
            "glommio",
        ]
    };
    programs.extend(peers.iter().map(|name| name.to_string()));
    if !short {
        programs.extend(native::NAMES.map(String::from));
    }
    programs
}

fn measure(order: &Order) -> Outcome {
    let Some(work) = WORK.iter().find(|work| work.name == order.workload) else {
        return Err(Skip(format!("there is no workload {}", order.workload)));
    };
    more_descriptors();
    let cores = cores::allowed();
    let last = cores.len() - 1;
    // Beside servers with one worker, those with two have to do with one core if there is no third.
    // By themselves, they share both with the generator.
    let apart = last >= if work.name == TWO_WORKERS { 2 } else { 1 };
    if apart {
        // The server inherits the cores.
        let workers = if order.program.ends_with('2') && last >= 2 {
            2
        } else {
            1
        };
        cores::pin(&cores[..workers]);
    }
    let server = Server::start(&["serve", &order.program, &work.buffer.to_string()])?;
    if apart {
        cores::pin(&cores[last..]);
    }
    let phases = Phases {
        warm: order.limit / 3,
        limit: order.limit,
        spin: apart,
        server: &server,
    };
    let measured = load::run(work.load, &phases)
        .unwrap_or_else(|error| panic!("{} {}: {error}", order.workload, order.program));
    let requests = measured.requests as f64;
    let cpu = measured.server.cpu.as_nanos() as f64;
    let wall = measured.wall.as_nanos() as f64;
    let nanos = |share| measured.latencies.quantile(share) as f64;
    Ok(values([
        ("rate", requests * 1e9 / wall),
        ("cpu", cpu / requests),
        ("p50", nanos(0.5) / 1e3),
        ("p99", nanos(0.99) / 1e3),
        ("p999", nanos(0.999) / 1e3),
        ("max", measured.latencies.most() as f64 / 1e3),
        ("unfair", nanos(0.99) / nanos(0.5)),
        ("busy", cpu / wall),
        ("quiet", measured.own.as_nanos() as f64 / wall),
    ]))
}

/// Raises the descriptor limit as far as allowed: a thousand connections exceed many defaults.
pub fn more_descriptors() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel reads and writes one `rlimit`.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max.min(65_536).max(limit.rlim_cur);
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}
