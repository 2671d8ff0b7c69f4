//! The memory of an idle connection: the slope of the server's resident set over 10,000 of them,
//! without the buffer that the program itself requests. And what is still allocated when they have
//! gone.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::clock::resident;
use crate::echo::more_descriptors;
use crate::echo::server::Server;
use crate::group::{Group, Metric, Order, Outcome, Skip, Values, Workload, values};
use crate::program::reset_when_closed;

/// The buffer size of each connection. Small enough that its memory is resident as a whole.
const BUFFER: usize = 1024;

/// Connections before the first measurement: arenas, tables and stacks exist by then.
const BEFORE: usize = 1_000;

/// Connections before the first look at what is allocated.
const FEW: usize = 100;

const IDLE: &[Metric] = &[Metric {
    key: "bytes",
    title: "bytes per connection",
    ratio: true,
}];

const GONE: &[Metric] = &[
    Metric {
        key: "bytes",
        title: "bytes per connection, allocated",
        ratio: false,
    },
    Metric {
        key: "resident",
        title: "resident",
        ratio: false,
    },
];

pub fn group() -> Group {
    Group {
        name: "memory",
        title: "Memory of idle connections",
        about: "The echo servers, in a process of their own, with a buffer of 1,024 bytes for each \
                connection. Each connection has echoed once and is idle then. Shown is the slope of \
                the server's resident set over 10,000 connections, without that buffer; what the \
                kernel keeps for a socket is not in it. *Gone*: what the server has allocated when 10,000 \
                connections have come and gone, beyond what it had after the first hundred (`mallinfo2`), and how \
                much larger its resident set is, which is mostly what the allocator keeps.",
        workloads: |short| {
            let peers: &[&str] = if short {
                &["polder-epoll", "tokio", "smol"]
            } else {
                &[
                    "raw-own",
                    "polder-epoll",
                    "polder-poll",
                    "tokio",
                    "tokio-mt2",
                    "smol",
                    "monoio-legacy",
                    "monoio-uring",
                    "compio-poll",
                    "compio-uring",
                    "glommio",
                ]
            };
            let rows: [(&str, &str, &[Metric]); 2] = [
                ("idle-10000", "10,000 idle connections", IDLE),
                ("gone-10000", "10,000 connections that have gone", GONE),
            ];
            (rows
                .into_iter()
                .filter(|(name, ..)| !short || *name == "idle-10000"))
            .map(|(name, title, metrics)| Workload {
                name: name.into(),
                title: title.into(),
                programs: peers.iter().map(|&name| name.into()).collect(),
                yardstick: "tokio".into(),
                metrics,
                limit: Duration::from_millis(1),
                deadline: Duration::from_secs(60),
                rounds: Some(if short { 1 } else { 3 }),
            })
            .collect()
        },
        missing: Vec::new,
        measure,
    }
}

fn measure(order: &Order) -> Outcome {
    more_descriptors();
    let mut server = Server::start(&["serve", &order.program, &BUFFER.to_string()])?;
    let found = if order.workload.starts_with("gone") {
        gone(order.number(), &mut server)
    } else {
        idle(order.number(), &server)
    };
    found.map_err(|error| Skip(format!("with {} connections: {error}", order.number())))
}

fn idle(count: usize, server: &Server) -> io::Result<Values> {
    let mut held = Vec::new();
    let mut look = |count| {
        hold(&mut held, count, server.port)?;
        resident(&server.pid().to_string())
    };
    let before = look(BEFORE)?;
    let after = look(BEFORE + count)?;
    let each = (after - before) / count as f64;
    Ok(values([("bytes", each - BUFFER as f64)]))
}

fn gone(count: usize, server: &mut Server) -> io::Result<Values> {
    // These set up shared state.
    let before = leave(FEW, server)?;
    let rest = resident(&server.pid().to_string())?;
    let after = leave(count, server)?;
    let kept = resident(&server.pid().to_string())? - rest;
    let each = |bytes: f64| bytes / count as f64;
    Ok(values([
        ("bytes", each(after - before)),
        ("resident", each(kept)),
    ]))
}

/// Lets so many connections come and go, and returns what the server has allocated then.
fn leave(count: usize, server: &mut Server) -> io::Result<f64> {
    let mut held = Vec::new();
    hold(&mut held, count, server.port)?;
    drop(held);
    // Until it frees no more: it has noticed that all have gone.
    let mut before = server.allocated()?;
    loop {
        thread::sleep(Duration::from_millis(100));
        match server.allocated()? {
            after if after < before => before = after,
            after => return Ok(after),
        }
    }
}

/// Connects until `count` connections are held.
fn hold(held: &mut Vec<TcpStream>, count: usize, port: u16) -> io::Result<()> {
    while held.len() < count {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        reset_when_closed(&stream);
        stream.write_all(&[7; 64])?;
        stream.read_exact(&mut [0; 64])?;
        held.push(stream);
    }
    // The last connection becomes idle as well.
    thread::sleep(Duration::from_millis(50));
    Ok(())
}
