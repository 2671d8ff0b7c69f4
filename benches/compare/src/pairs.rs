//! Pairs: connections with both ends in this process and on one thread, which send 64 bytes to and
//! fro. Nothing ever sleeps: what is measured is what a runtime adds to the kernel's work.

use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use polder::Backend;

use crate::clock::{Ready, nanos};
use crate::group::{Group, Metric, Order, Skip, Workload};
use crate::native;
use crate::peers;

/// What is sent.
pub const MESSAGE: usize = 64;

/// The buffer of a task. Room for more than a message: what is received fills less than was asked
/// for, and so tells that there is no more.
pub const BUFFER: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    Tcp,
    Unix,
}

pub fn group() -> Group {
    Group {
        name: "pairs",
        title: "Pairs",
        about: "Connections with both ends in one process and on one thread, which send 64 bytes to \
                and fro; a task for each end, with a buffer of 1,024 bytes. Nothing sleeps, so this \
                is what a runtime adds to the kernel's work. `raw` is a hand-written loop on \
                edge-triggered epoll that receives into one buffer for all connections; `raw-own` \
                has a buffer for each, as tasks have. `tokio-mt` is the multi-thread scheduler with \
                one worker, `smol` its `LocalExecutor`.",
        workloads,
        measure: |order| {
            if native::NAMES.contains(&order.program.as_str()) {
                return native::measure(order);
            }
            let mut run = ready(order)?;
            Ok(nanos(&mut run, order.number() as u64, order.limit))
        },
    }
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
                programs: programs(pairs, short),
                yardstick: "raw".into(),
                metrics: &[
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
                ],
                limit: Duration::from_millis(if short { 60 } else { 200 }),
                deadline: Duration::from_secs(30),
                rounds: None,
            });
        }
    }
    workloads
}

fn programs(pairs: usize, short: bool) -> Vec<String> {
    let mut programs: Vec<String> = ["raw", "raw-own"].map(String::from).into();
    for backend in Backend::available() {
        // These look through all descriptors in every wait: nobody does that with hundreds.
        let many = pairs > 50 && matches!(backend, Backend::Poll | Backend::Select);
        let other = backend != Backend::default();
        if !(many || short && other) {
            programs.push(format!("polder-{backend}"));
        }
    }
    let peers = match short {
        true => &["tokio", "smol"][..],
        false => &[
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
        ],
    };
    programs.extend(peers.iter().map(|&peer| peer.into()));
    programs
}

/// The program, connected and waiting.
pub fn ready(order: &Order) -> Ready {
    let pairs = order.number();
    let family = match order.workload.split('-').next() {
        Some("tcp") => Family::Tcp,
        Some("unix") => Family::Unix,
        _ => return Err(Skip(format!("{} is no pairs", order.workload))),
    };
    match order.program.as_str() {
        "raw" => peers::raw::pairs(family, pairs, false),
        "raw-own" => peers::raw::pairs(family, pairs, true),
        "tokio" => peers::tokio::pairs(family, pairs, 0),
        "tokio-mt" => peers::tokio::pairs(family, pairs, 1),
        "smol" => peers::smol::pairs(family, pairs),
        "monoio-legacy" => peers::monoio::pairs::<peers::monoio::Legacy>(family, pairs),
        "monoio-uring" => peers::monoio::pairs::<peers::monoio::Uring>(family, pairs),
        "compio-poll" => peers::compio::pairs(family, pairs, false),
        "compio-uring" => peers::compio::pairs(family, pairs, true),
        "glommio" => peers::glommio::pairs(family, pairs),
        other => match other.strip_prefix("polder-") {
            Some(backend) => peers::polder::pairs(family, pairs, backend),
            None => order.unknown(),
        },
    }
}

/// Connected over loopback. Nagle is off, as in every program that sends small messages.
pub fn tcp_pair(nonblocking: bool) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let near = TcpStream::connect(address).expect("loopback connects");
    let (far, _) = listener.accept().expect("it was connected");
    for stream in [&near, &far] {
        stream.set_nodelay(true).expect("TCP has it");
        stream
            .set_nonblocking(nonblocking)
            .expect("sockets have it");
    }
    (near, far)
}

pub fn unix_pair(nonblocking: bool) -> (UnixStream, UnixStream) {
    let (near, far) = UnixStream::pair().expect("there are descriptors left");
    for stream in [&near, &far] {
        stream
            .set_nonblocking(nonblocking)
            .expect("sockets have it");
    }
    (near, far)
}

pub fn pair(family: Family, nonblocking: bool) -> (OwnedFd, OwnedFd) {
    match family {
        Family::Tcp => {
            let (near, far) = tcp_pair(nonblocking);
            (near.into(), far.into())
        }
        Family::Unix => {
            let (near, far) = unix_pair(nonblocking);
            (near.into(), far.into())
        }
    }
}
