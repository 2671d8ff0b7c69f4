//! The servers of a service that is written once for all runtimes: a runtime with so many workers,
//! a listener, and a task for each connection. They print their port, and end, as those of
//! `echo::serve` do.

use std::future::Future;
use std::io;
use std::thread;

use ::smol::Executor;

use crate::echo::serve::{ANYWHERE, Never, announce};

pub fn polder<F>(workers: usize, serve: impl Fn(polder::net::TcpStream) -> F) -> io::Result<Never>
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = polder::Runtime::builder().workers(workers).build()?;
    runtime.block_on(async {
        let listener = polder::net::TcpListener::bind(ANYWHERE).await?;
        announce(listener.local_addr())?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            polder::spawn(serve(stream)).detach();
        }
    })
}

/// Serves on the current thread if there is one worker, as polder does.
pub fn tokio<F>(workers: usize, serve: impl Fn(tokio::net::TcpStream) -> F) -> io::Result<Never>
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = tokio_runtime(workers)?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(ANYWHERE).await?;
        announce(listener.local_addr())?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(serve(stream));
        }
    })
}

pub fn tokio_runtime(workers: usize) -> io::Result<tokio::runtime::Runtime> {
    let mut builder = match workers {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.worker_threads(workers).enable_io().build()
}

/// Serves with an executor that threads run; this one is one of them.
pub fn smol<F>(workers: usize, serve: impl Fn(smol::net::TcpStream) -> F) -> io::Result<Never>
where
    F: Future<Output = ()> + Send + 'static,
{
    let executor: &'static Executor<'static> = Box::leak(Box::default());
    for _ in 1..workers {
        thread::spawn(|| smol::block_on(executor.run(smol::future::pending::<()>())));
    }
    smol::block_on(executor.run(async {
        let listener = smol::net::TcpListener::bind(ANYWHERE).await?;
        announce(listener.local_addr())?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            executor.spawn(serve(stream)).detach();
        }
    }))
}
