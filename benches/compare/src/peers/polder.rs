//! polder, on each backend.

use std::future::{Future, poll_fn};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use polder::io::{AsyncRead, AsyncWrite};
use polder::net::TcpStream;
use polder::net::unix::UnixStream;
use polder::{Backend, Handle, Runtime, Timer};

use super::futures_io::{ask, echo};
use super::unavailable;
use crate::clock::{Clock, Ready, Run};
use crate::group::Skip;
use crate::micro::{self, LONG, late};
use crate::pairs::{Family, pair};
use crate::workers::{Pool, WORKERS};

pub fn pairs(family: Family, pairs: usize, backend: &str) -> Ready {
    let backend: Backend = (backend.parse()).map_err(|error| Skip(format!("{error}")))?;
    let runtime = (Runtime::builder().backend(backend).build()).map_err(unavailable("runtime"))?;
    pairs_on(runtime, family, pairs)
}

pub fn pairs_of_workers(family: Family, pairs: usize, workers: usize) -> Ready {
    pairs_on(with_workers(workers)?, family, pairs)
}

fn with_workers(workers: usize) -> Result<Runtime, Skip> {
    let runtime = Runtime::builder().workers(workers).build();
    runtime.map_err(unavailable("runtime"))
}

fn pairs_on(runtime: Runtime, family: Family, pairs: usize) -> Ready {
    let ends: Vec<_> = (0..pairs).map(|_| pair(family, true)).collect();
    Ok(match family {
        Family::Tcp => connected(runtime, ends, tcp),
        Family::Unix => connected(runtime, ends, unix),
    })
}

fn tcp(end: OwnedFd) -> TcpStream {
    let stream = std::net::TcpStream::from(end);
    stream.try_into().expect("it is a socket")
}

fn unix(end: OwnedFd) -> UnixStream {
    let stream = std::os::unix::net::UnixStream::from(end);
    stream.try_into().expect("it is a socket")
}

fn connected<S>(runtime: Runtime, ends: Vec<(OwnedFd, OwnedFd)>, stream: fn(OwnedFd) -> S) -> Run
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut nears = Vec::new();
    for (near, far) in ends {
        runtime.spawn(echo(stream(far))).detach();
        nears.push(stream(near));
    }
    Box::new(move |count| {
        let each = count / nears.len() as u64;
        runtime.block_on(async {
            let clock = Clock::start();
            let tasks: Vec<_> = (nears.drain(..))
                .map(|near| polder::spawn(ask(near, each)))
                .collect();
            for task in tasks {
                nears.push(task.await.expect("loopback works"));
            }
            clock.stop()
        })
    })
}

pub struct Spawn(Runtime);

impl micro::Peer for Spawn {
    fn new() -> Result<Self, Skip> {
        Ok(Spawn(Runtime::new().map_err(unavailable("runtime"))?))
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.block_on(future)
    }

    fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        self.0.block_on(self.0.spawn_local(future))
    }

    fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> {
        polder::spawn(future)
    }

    fn yields(&self, count: u64) -> impl Future<Output = ()> {
        polder::spawn(async move {
            for _ in 0..count {
                polder::future::yield_now().await;
            }
        })
    }

    fn sleep(&self, duration: Duration) -> impl Future {
        Timer::after(duration)
    }

    fn sleeper(&self, duration: Duration) -> impl Future<Output = Duration> {
        polder::spawn(late(duration, Timer::after))
    }

    fn resets(&self, many: u64) -> Result<Box<dyn FnMut()>, Skip> {
        let mut timers: Vec<_> = (0..many).map(|_| Timer::after(LONG)).collect();
        self.block_on(poll_fn(|cx| {
            for timer in &mut timers {
                assert!(Pin::new(timer).poll(cx).is_pending());
            }
            Poll::Ready(())
        }));
        Ok(Box::new(move || {
            for timer in &mut timers {
                timer.set_after(LONG);
            }
        }))
    }
}

/// With `spawn_local`.
pub struct SpawnLocal(Spawn);

impl micro::Peer for SpawnLocal {
    fn new() -> Result<Self, Skip> {
        Spawn::new().map(SpawnLocal)
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.block_on(future)
    }

    fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        self.0.run(future)
    }

    fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> {
        polder::spawn_local(future)
    }

    fn yields(&self, count: u64) -> impl Future<Output = ()> {
        self.0.yields(count)
    }

    fn sleep(&self, duration: Duration) -> impl Future {
        self.0.sleep(duration)
    }

    fn sleeper(&self, duration: Duration) -> impl Future<Output = Duration> {
        self.0.sleeper(duration)
    }

    fn resets(&self, many: u64) -> Result<Box<dyn FnMut()>, Skip> {
        self.0.resets(many)
    }
}

pub struct Workers(Runtime);

impl Pool for Workers {
    type Handle = Handle;

    fn new() -> Result<Self, Skip> {
        with_workers(WORKERS).map(Workers)
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.block_on(future)
    }

    fn handle(&self) -> Handle {
        self.0.handle()
    }

    fn spawn<T: Send + 'static>(
        handle: &Handle,
        future: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> {
        handle.spawn(future)
    }

    fn detach(handle: &Handle, future: impl Future<Output = ()> + Send + 'static) {
        handle.spawn(future).detach();
    }
}
