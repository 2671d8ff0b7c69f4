//! smol: its `LocalExecutor`, with async-net's sockets and async-io's timers.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use smol::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use smol::net::TcpStream;
use smol::net::unix::UnixStream;
use smol::{Async, Executor, LocalExecutor, Timer};

use super::futures_io::{ask, echo};
use crate::clock::{Clock, Ready, Run};
use crate::group::Skip;
use crate::program::{self, Family, LONG, MESSAGE, Pairs, Pool, Resets, late};

pub fn pairs(pairs: Pairs) -> Ready {
    Ok(match pairs.family {
        Family::Tcp => connected(pairs, tcp),
        Family::Unix => connected(pairs, unix),
    })
}

fn tcp(end: OwnedFd) -> TcpStream {
    let stream = Async::new(std::net::TcpStream::from(end));
    stream.expect("it can be registered").into()
}

fn unix(end: OwnedFd) -> UnixStream {
    let stream = Async::new(std::os::unix::net::UnixStream::from(end));
    stream.expect("it can be registered").into()
}

fn connected<S>(pairs: Pairs, stream: fn(OwnedFd) -> S) -> Run
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let executor = LocalExecutor::new();
    let mut nears = Vec::new();
    for (near, far) in pairs.connect() {
        executor.spawn(echo(stream(far))).detach();
        if nears.len() < pairs.active {
            nears.push(stream(near));
        } else {
            executor.spawn(echo(stream(near))).detach();
        }
    }
    Box::new(move |count| {
        let each = count / nears.len() as u64;
        smol::block_on(executor.run(async {
            let clock = Clock::start();
            let tasks: Vec<_> = (nears.drain(..))
                .map(|near| executor.spawn(ask(near, each)))
                .collect();
            for task in tasks {
                nears.push(task.await.expect("loopback works"));
            }
            clock.stop()
        }))
    })
}

pub struct Local(LocalExecutor<'static>);

impl program::Peer for Local {
    fn new() -> Result<Self, Skip> {
        Ok(Local(LocalExecutor::new()))
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        smol::block_on(self.0.run(future))
    }

    fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        self.block_on(self.0.spawn(future))
    }

    fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> {
        self.0.spawn(future)
    }

    fn yields(&self, count: u64) -> impl Future<Output = ()> {
        self.0.spawn(async move {
            for _ in 0..count {
                smol::future::yield_now().await;
            }
        })
    }

    fn sleep(&self, duration: Duration) -> impl Future {
        Timer::after(duration)
    }

    fn sleeper(&self, duration: Duration, times: u32) -> impl Future<Output = Duration> {
        self.0.spawn(late(duration, times, Timer::after))
    }

    fn resets(&self, many: u64) -> Result<Resets, Skip> {
        let mut timers: Vec<_> = (0..many).map(|_| Timer::after(LONG)).collect();
        Ok(Box::new(move |places, cx| {
            for timer in &mut timers[places] {
                timer.set_after(LONG);
                assert!(Pin::new(timer).poll(cx).is_pending());
            }
        }))
    }
}

/// An executor that threads run, as smol's documentation shows it.
pub struct Workers(Arc<Executor<'static>>);

impl Pool for Workers {
    type Handle = Arc<Executor<'static>>;

    fn new(workers: usize) -> Result<Self, Skip> {
        let executor = Arc::new(Executor::new());
        for _ in 0..workers {
            let executor = executor.clone();
            thread::spawn(move || smol::block_on(executor.run(smol::future::pending::<()>())));
        }
        Ok(Workers(executor))
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        smol::block_on(future)
    }

    fn handle(&self) -> Self::Handle {
        self.0.clone()
    }

    fn spawn<T: Send + 'static>(
        handle: &Self::Handle,
        future: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> {
        handle.spawn(future)
    }

    fn detach(handle: &Self::Handle, future: impl Future<Output = ()> + Send + 'static) {
        handle.spawn(future).detach();
    }

    async fn sleep(duration: Duration) {
        Timer::after(duration).await;
    }

    async fn receive(socket: std::net::TcpStream) {
        let received = tcp(socket.into()).read(&mut [0; MESSAGE]).await;
        received.expect("loopback works");
    }

    async fn peek(socket: std::net::TcpStream, mut more: impl FnMut() -> bool + Send) {
        let stream = tcp(socket.into());
        while more() {
            let seen = stream.peek(&mut [0; MESSAGE]).await;
            seen.expect("loopback works");
        }
    }
}

/// Both ends of pairs, as tasks of an executor with workers.
pub fn pairs_of_workers(pairs: Pairs, workers: usize) -> Ready {
    let workers = Workers::new(workers)?;
    Ok(match pairs.family {
        Family::Tcp => shared(workers, pairs, tcp),
        Family::Unix => shared(workers, pairs, unix),
    })
}

fn shared<S>(workers: Workers, pairs: Pairs, stream: fn(OwnedFd) -> S) -> Run
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let executor = workers.0;
    let mut nears = Vec::new();
    for (near, far) in pairs.connect() {
        executor.spawn(echo(stream(far))).detach();
        nears.push(stream(near));
    }
    Box::new(move |count| {
        let each = count / nears.len() as u64;
        smol::block_on(async {
            let clock = Clock::start();
            let tasks: Vec<_> = (nears.drain(..))
                .map(|near| executor.spawn(ask(near, each)))
                .collect();
            for task in tasks {
                nears.push(task.await.expect("loopback works"));
            }
            clock.stop()
        })
    })
}
