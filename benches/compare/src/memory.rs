//! The memory of an idle connection: the slope of the server's resident set over 10,000 of them,
//! without the buffer that the program itself requests.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use crate::clock::resident;
use crate::echo::more_descriptors;
use crate::echo::server::Server;
use crate::group::{Group, Metric, Order, Outcome, Skip, Workload, values};

/// The buffer size of each connection. Small enough that its memory is resident as a whole.
const BUFFER: usize = 1024;

/// Connections before the first measurement: arenas, tables and stacks exist by then.
const BEFORE: usize = 1_000;

pub fn group() -> Group {
    Group {
        name: "memory",
        title: "Memory of idle connections",
        about: "The echo servers, in a process of their own, with a buffer of 1,024 bytes for each \
                connection. Each connection has echoed once and is idle then. Shown is the slope of \
                the server's resident set over 10,000 connections, without that buffer; what the \
                kernel keeps for a socket is not in it.",
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
            vec![Workload {
                name: "idle-10000".into(),
                title: "10,000 idle connections".into(),
                programs: peers.iter().map(|&name| name.into()).collect(),
                yardstick: "tokio".into(),
                metrics: &[Metric {
                    key: "bytes",
                    title: "bytes per connection",
                    ratio: true,
                }],
                limit: Duration::from_millis(1),
                deadline: Duration::from_secs(60),
                rounds: Some(if short { 1 } else { 3 }),
            }]
        },
        missing: Vec::new,
        measure,
    }
}

fn measure(order: &Order) -> Outcome {
    more_descriptors();
    let server = Server::start(&["serve", &order.program, &BUFFER.to_string()])?;
    let mut held = Vec::new();
    let mut look = |count| {
        hold(&mut held, count, server.port)
            .and_then(|()| resident(&server.pid().to_string()))
            .map_err(|error| Skip(format!("with {} connections: {error}", held.len())))
    };
    let before = look(BEFORE)?;
    let after = look(BEFORE + order.number())?;
    let each = (after - before) / order.number() as f64;
    Ok(values([("bytes", each - BUFFER as f64)]))
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

/// Makes closing reset the connection. Otherwise its port would be in use for a minute after the
/// end, and 10,000 of them are a third of all.
fn reset_when_closed(stream: &TcpStream) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: the kernel reads one `linger`.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of_val(&linger) as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}
