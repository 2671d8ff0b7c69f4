//! The servers: `compare serve-http PROGRAM WORKERS`. They print their port, and end, as those of
//! `echo::serve` do.

use std::convert::Infallible;
use std::io;
use std::process::ExitCode;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use polder_hyper::Stream;

use crate::echo::serve::{ANYWHERE, Never, announce, end_with_input};

pub fn main(program: &str, workers: usize) -> ExitCode {
    end_with_input();
    let Err(error) = match program {
        "polder" => polder(workers),
        "tokio" => tokio(workers),
        _ => Err(io::Error::other("there is no such server")),
    };
    println!("skipped {error}");
    ExitCode::SUCCESS
}

/// Serves one connection, until it ends.
async fn connection(stream: impl Read + Write + Unpin) {
    let service = service_fn(async |_: Request<Incoming>| {
        let body = Full::new(Bytes::from_static(b"Hello, World!\n"));
        Ok::<_, Infallible>(Response::new(body))
    });
    // An error ends this connection, and the generator reports it.
    let _ = (http1::Builder::new().serve_connection(stream, service)).await;
}

fn polder(workers: usize) -> io::Result<Never> {
    let runtime = polder::Runtime::builder().workers(workers).build()?;
    runtime.block_on(async {
        let listener = polder::net::TcpListener::bind(ANYWHERE).await?;
        announce(listener.local_addr())?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            polder::spawn(connection(Stream::new(stream))).detach();
        }
    })
}

/// Serves on the current thread if there is one worker, as polder does.
fn tokio(workers: usize) -> io::Result<Never> {
    let mut builder = match workers {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(workers).enable_io().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(ANYWHERE).await?;
        announce(listener.local_addr())?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(connection(TokioIo::new(stream)));
        }
    })
}
