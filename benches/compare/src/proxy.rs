//! A proxy: for each connection another one to a server behind it, and bytes copied both ways by
//! what the runtime has for that.

use std::io;
use std::net::Ipv4Addr;

use futures_lite::future::try_zip;
use futures_lite::io::copy;

use crate::accept;
use crate::echo::load::Load;
use crate::echo::serve::{Never, unknown};
use crate::echo::server::Server;
use crate::echo::{cores, more_descriptors, under_load};
use crate::group::{Group, Order, Outcome, Workload};

pub fn group() -> Group {
    Group {
        name: "proxy",
        title: "A proxy",
        about: "A proxy with one worker, on a core by itself, between a generator with 50 connections and the hand-written echo \
                server, which share the last core where there are only two. Shown is the proxy's CPU time. polder and tokio \
                copy by their `copy_bidirectional`, smol by two of futures-lite's `copy`.",
        workloads,
        missing: Vec::new,
        measure,
    }
}

const CONNECTIONS: usize = 50;

/// The size of the messages.
const SIZES: [(usize, &str); 2] = [(64, "64"), (2_000, "2,000")];

fn workloads(short: bool) -> Vec<Workload> {
    (SIZES.into_iter().filter(|(size, _)| !short || *size == 64))
        .map(|(size, words)| {
            let title = format!("{words} bytes to and fro, {CONNECTIONS} connections");
            let programs = &["polder", "tokio", "smol"];
            under_load::workload(format!("copy-{size}"), title, programs, short)
        })
        .collect()
}

fn measure(order: &Order) -> Outcome {
    more_descriptors();
    let cores = cores::allowed();
    let last = cores.len() - 1;
    // Each server inherits this thread's core.
    cores::pin(&cores[1.min(last)..=1.min(last)]);
    let behind = Server::start(&["serve", "raw", "4096"])?;
    cores::pin(&cores[..1]);
    let proxy = Server::start(&["serve-proxy", &order.program, &behind.port.to_string()])?;
    cores::pin(&cores[last..]);
    let load = Load::Messages {
        connections: CONNECTIONS,
        window: 1,
        size: order.number(),
    };
    let alone = last >= 2;
    Ok(under_load::run(order, &proxy, alone, load))
}

/// `compare serve-proxy PROGRAM PORT`: the port is that of the server behind it. An error ends its
/// connection, and the generator reports it.
pub fn serve(program: &str, port: usize) -> io::Result<Never> {
    let port = u16::try_from(port).map_err(io::Error::other)?;
    let behind = (Ipv4Addr::LOCALHOST, port);
    match program {
        "polder" => accept::polder(1, |mut stream| async move {
            if let Ok(mut other) = polder::net::TcpStream::connect(behind).await {
                let _ = other.set_nodelay(true);
                let _ = polder::io::copy_bidirectional(&mut stream, &mut other).await;
            }
        }),
        "tokio" => accept::tokio(1, |mut stream| async move {
            if let Ok(mut other) = tokio::net::TcpStream::connect(behind).await {
                let _ = other.set_nodelay(true);
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut other).await;
            }
        }),
        "smol" => accept::smol(1, |stream| async move {
            if let Ok(other) = smol::net::TcpStream::connect(behind).await {
                let _ = other.set_nodelay(true);
                let there = copy(stream.clone(), other.clone());
                let back = copy(other, stream);
                let _ = try_zip(there, back).await;
            }
        }),
        _ => unknown(),
    }
}
