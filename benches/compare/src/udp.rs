//! A UDP echo server: one socket, one task.

use std::io;
use std::net::Ipv4Addr;

use crate::accept;
use crate::echo::load::Load;
use crate::echo::serve::{ANYWHERE, Never, announce, unknown};
use crate::echo::under_load;
use crate::group::{Group, Order, Outcome, Workload};
use crate::program::MESSAGE;

pub fn group() -> Group {
    Group {
        name: "udp",
        title: "UDP",
        about: "An echo server on one UDP socket, with one worker, on a core by itself; 50 sockets, each with one message \
                of 64 bytes in flight. `blocking` is a thread without a runtime, which sleeps in `recvfrom`.",
        workloads,
        missing: Vec::new,
        measure,
    }
}

fn workloads(short: bool) -> Vec<Workload> {
    let title = "64 bytes to and fro, 50 sockets".into();
    let programs = &["polder", "tokio", "smol", "blocking"];
    vec![under_load::workload(
        "echo-50".into(),
        title,
        programs,
        short,
    )]
}

fn measure(order: &Order) -> Outcome {
    let load = Load::Datagrams {
        sockets: order.number(),
        window: 1,
        size: MESSAGE,
    };
    let words = ["serve-udp", &order.program, "1024"];
    under_load::measure(order, 1, &words, load)
}

/// `compare serve-udp PROGRAM BUFFER`.
pub fn serve(program: &str, size: usize) -> io::Result<Never> {
    let mut buffer = vec![0; size];
    match program {
        "polder" => {
            let runtime = polder::Runtime::new()?;
            let task = runtime.spawn(async move {
                let socket = polder::net::UdpSocket::bind(ANYWHERE).await?;
                announce(socket.local_addr())?;
                loop {
                    let (length, from) = socket.recv_from(&mut buffer).await?;
                    socket.send_to(&buffer[..length], from).await?;
                }
            });
            runtime.block_on(task)
        }
        "tokio" => {
            let runtime = accept::tokio_runtime(1)?;
            let task = runtime.spawn(async move {
                let socket = tokio::net::UdpSocket::bind(ANYWHERE).await?;
                announce(socket.local_addr())?;
                loop {
                    let (length, from) = socket.recv_from(&mut buffer).await?;
                    socket.send_to(&buffer[..length], from).await?;
                }
            });
            runtime.block_on(task).expect("it does not panic")
        }
        "smol" => {
            let executor = smol::LocalExecutor::new();
            smol::block_on(executor.run(executor.spawn(async move {
                let socket = smol::net::UdpSocket::bind(ANYWHERE).await?;
                announce(socket.local_addr())?;
                loop {
                    let (length, from) = socket.recv_from(&mut buffer).await?;
                    socket.send_to(&buffer[..length], from).await?;
                }
            })))
        }
        "blocking" => {
            let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            announce(socket.local_addr())?;
            loop {
                let (length, from) = socket.recv_from(&mut buffer)?;
                socket.send_to(&buffer[..length], from)?;
            }
        }
        _ => unknown(),
    }
}
