//! polder, on each backend.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::time::Duration;

use polder::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use polder::net::TcpStream;
use polder::net::unix::UnixStream;
use polder::{Backend, Handle, Runtime, Timer};

use super::futures_io::{ask, echo};
use super::unavailable;
use crate::clock::{Clock, Ready, Run};
use crate::group::Skip;
use crate::program::{self, Family, LONG, MESSAGE, Pairs, Pool, Resets, late};

pub fn pairs(pairs: Pairs, backend: &str) -> Ready {
    let backend: Backend = (backend.parse()).map_err(|error| Skip(format!("{error}")))?;
    let runtime = (Runtime::builder().backend(backend).build()).map_err(unavailable("runtime"))?;
    Ok(match pairs.family {
        Family::Tcp => connected(runtime, pairs, tcp(pairs)),
        Family::Unix => {
            let made = (0..pairs.active + pairs.idle).map(|_| UnixStream::pair());
            let ends = made.collect::<Result<_, _>>();
            connected(runtime, pairs, ends.map_err(unavailable("pairs"))?)
        }
    })
}

/// Unix sockets that the standard library created: other processes may send descriptors over them,
/// so they are received from with `recvmsg`.
pub fn adopted(pairs: Pairs) -> Ready {
    let runtime = Runtime::new().map_err(unavailable("runtime"))?;
    let stream = |end| {
        let stream = std::os::unix::net::UnixStream::from(end);
        stream.try_into().expect("it is a socket")
    };
    let ends = pairs.connect().into_iter();
    let ends: Vec<(UnixStream, UnixStream)> = ends
        .map(|(near, far)| (stream(near), stream(far)))
        .collect();
    Ok(connected(runtime, pairs, ends))
}

pub fn pairs_of_workers(pairs: Pairs, workers: usize) -> Ready {
    Ok(connected(with_workers(workers)?, pairs, tcp(pairs)))
}

fn with_workers(workers: usize) -> Result<Runtime, Skip> {
    let runtime = Runtime::builder().workers(workers).build();
    runtime.map_err(unavailable("runtime"))
}

fn tcp(pairs: Pairs) -> Vec<(TcpStream, TcpStream)> {
    let stream = |end: OwnedFd| {
        let stream = std::net::TcpStream::from(end);
        stream.try_into().expect("it is a socket")
    };
    let ends = pairs.connect().into_iter();
    ends.map(|(near, far)| (stream(near), stream(far)))
        .collect()
}

fn connected<S>(runtime: Runtime, pairs: Pairs, ends: Vec<(S, S)>) -> Run
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut nears = Vec::new();
    for (near, far) in ends {
        runtime.spawn(echo(far)).detach();
        if nears.len() < pairs.active {
            nears.push(near);
        } else {
            runtime.spawn(echo(near)).detach();
        }
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

/// With `spawn`. Timers may be late by so many microseconds.
pub struct Spawn<const SLACK: u64 = 0>(Runtime);

impl<const SLACK: u64> program::Peer for Spawn<SLACK> {
    fn new() -> Result<Self, Skip> {
        let builder = Runtime::builder().timer_slack(Duration::from_micros(SLACK));
        Ok(Spawn(builder.build().map_err(unavailable("runtime"))?))
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

    fn timeout(&self, limit: Duration, future: impl Future) -> impl Future {
        polder::time::timeout(limit, future)
    }

    fn sleeper(&self, duration: Duration, times: u32) -> impl Future<Output = Duration> {
        polder::spawn(late(duration, times, Timer::after))
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

/// With `spawn_local`.
pub struct SpawnLocal(Spawn);

impl program::Peer for SpawnLocal {
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

    fn sleeper(&self, duration: Duration, times: u32) -> impl Future<Output = Duration> {
        self.0.sleeper(duration, times)
    }

    fn resets(&self, many: u64) -> Result<Resets, Skip> {
        self.0.resets(many)
    }
}

pub struct Workers(Runtime);

impl Pool for Workers {
    type Handle = Handle;

    fn new(workers: usize) -> Result<Self, Skip> {
        with_workers(workers).map(Workers)
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

    async fn sleep(duration: Duration) {
        Timer::after(duration).await;
    }

    async fn receive(socket: std::net::TcpStream) {
        let mut stream = TcpStream::try_from(socket).expect("it is a socket");
        let received = stream.read(&mut [0; MESSAGE]).await;
        received.expect("loopback works");
    }

    async fn peek(socket: std::net::TcpStream, mut more: impl FnMut() -> bool + Send) {
        let stream = TcpStream::try_from(socket).expect("it is a socket");
        while more() {
            let seen = stream.peek(&mut [0; MESSAGE]).await;
            seen.expect("loopback works");
        }
    }
}
