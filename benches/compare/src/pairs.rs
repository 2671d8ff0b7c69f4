//! Pairs: connections with both ends in this process and on one thread, which send 64 bytes back
//! and forth. Nothing ever sleeps: we measure what a runtime adds to the kernel's work.

use std::time::Duration;

use polder::Backend;

use crate::clock::{Ready, nanos};
use crate::group::{Group, Metric, Order, Outcome, Skip, Workload};
use crate::native;
use crate::peers;
use crate::peers::raw::Way;
use crate::program::{Family, Pairs};

pub fn group() -> Group {
    Group {
        name: "pairs",
        title: "Pairs",
        about: "Connections with both ends in one process and on one thread, which send 64 bytes to \
                and fro; a task for each end, with a buffer of 1,024 bytes. Nothing sleeps, so this \
                is what a runtime adds to the kernel's work. `raw` is a hand-written loop on \
                edge-triggered epoll that receives into one buffer for all connections; `raw-own` \
                has a buffer for each, as tasks have; `raw-recvmsg` receives with `recvmsg`, \
                which is the fair yardstick where descriptors may come over a Unix socket, and \
                nowhere else. polder's Unix sockets are made by polder, which on Linux 6.16 and later \
                refuses descriptors (`SO_PASSRIGHTS`) and then receives with `recv`; those of \
                `polder-adopted` are the standard library's, and received from with `recvmsg`. \
                `tokio-mt` is the multi-thread scheduler with \
                one worker, `smol` its `LocalExecutor`.",
        workloads,
        missing: Vec::new,
        measure,
    }
}

pub const METRICS: &[Metric] = &[
    Metric {
        key: "ns",
        title: "ns per round trip",
        ratio: true,
    },
    Metric {
        key: "cpu",
        title: "CPU, ns per round trip",
        ratio: true,
    },
];

pub fn measure(order: &Order) -> Outcome {
    if native::NAMES.contains(&order.program.as_str()) {
        return native::measure(order);
    }
    let mut run = ready(order)?;
    Ok(nanos(&mut run, order.number() as u64, order.limit))
}

fn workloads(short: bool) -> Vec<Workload> {
    let mut workloads = Vec::new();
    for (family, title) in [("tcp", "TCP"), ("unix", "Unix")] {
        for pairs in [1, 50, 500] {
            workloads.push(Workload {
                name: format!("{family}-{pairs}"),
                title: match pairs {
                    1 => format!("{title}, one pair"),
                    _ => format!("{title}, {pairs} pairs"),
                },
                programs: programs(family, pairs, short),
                yardstick: "raw".into(),
                metrics: METRICS,
                limit: Duration::from_millis(if short { 60 } else { 200 }),
                deadline: Duration::from_secs(30),
                rounds: None,
            });
        }
    }
    workloads
}

fn programs(family: &str, pairs: usize, short: bool) -> Vec<String> {
    let mut programs: Vec<String> = ["raw", "raw-own", "raw-recvmsg"].map(String::from).into();
    for backend in Backend::available() {
        // These scan all descriptors in every wait: no program does that with hundreds.
        let many = pairs > 50 && matches!(backend, Backend::Poll | Backend::Select);
        let other = backend != Backend::default();
        if !(many || short && other) {
            programs.push(format!("polder-{backend}"));
        }
    }
    if family == "unix" {
        programs.push("polder-adopted".into());
    }
    let peers = if short {
        &["tokio", "smol"][..]
    } else {
        &[
            "tokio",
            "tokio-mt",
            "smol",
            "monoio-legacy",
            "monoio-uring",
            "compio-poll",
            "compio-uring",
            "glommio",
            "asio",
            "libuv",
        ]
    };
    programs.extend(peers.iter().map(|&peer| peer.into()));
    programs
}

/// Returns the program, connected and waiting.
pub fn ready(order: &Order) -> Ready {
    let pairs = order.number();
    let family = match order.workload.split('-').next() {
        Some("tcp") => Family::Tcp,
        Some("unix") => Family::Unix,
        _ => return Err(Skip(format!("{} is no pairs", order.workload))),
    };
    let active = Pairs::active(family, pairs);
    let raw = |way| peers::raw::pairs(active, way);
    match order.program.as_str() {
        "raw" => raw(Way::Shared),
        "raw-own" => raw(Way::Own),
        "raw-recvmsg" => raw(Way::Message),
        "tokio" => peers::tokio::pairs(active, 0),
        "tokio-mt" => peers::tokio::pairs(active, 1),
        "smol" => peers::smol::pairs(active),
        "monoio-legacy" => peers::monoio::pairs::<peers::monoio::Legacy>(family, pairs),
        "monoio-uring" => peers::monoio::pairs::<peers::monoio::Uring>(family, pairs),
        "compio-poll" => peers::compio::pairs(family, pairs, false),
        "compio-uring" => peers::compio::pairs(family, pairs, true),
        "glommio" => peers::glommio::pairs(family, pairs),
        "polder-adopted" => peers::polder::adopted(active),
        other => match other.strip_prefix("polder-") {
            Some(backend) => peers::polder::pairs(active, backend),
            None => order.unknown(),
        },
    }
}
