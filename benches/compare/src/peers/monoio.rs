//! monoio: on io_uring, and on epoll ("legacy"). Buffers are handed over and come back.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::{TcpStream, UnixStream};
use monoio::time::{Instant, TimeDriver, sleep};
use monoio::{IoUringDriver, LegacyDriver, Runtime, RuntimeBuilder};

use super::unavailable;
use crate::clock::{Clock, Ready, Run};
use crate::group::Skip;
use crate::program::{self, BUFFER, Family, LONG, MESSAGE, Resets, late, pair};

/// The driver of its runtime.
pub trait Driver: monoio::Driver + monoio::Buildable + 'static {
    /// Whether sockets are non-blocking: on those, a ring returns immediately with an error.
    const NONBLOCKING: bool;
}

pub type Legacy = LegacyDriver;
pub type Uring = IoUringDriver;

impl Driver for Legacy {
    const NONBLOCKING: bool = true;
}

impl Driver for Uring {
    const NONBLOCKING: bool = false;
}

pub fn pairs<D: Driver>(family: Family, pairs: usize) -> Ready {
    let runtime = D::build(RuntimeBuilder::new());
    let runtime = runtime.map_err(unavailable("runtime"))?;
    let ends: Vec<_> = (0..pairs).map(|_| pair(family, D::NONBLOCKING)).collect();
    Ok(match family {
        Family::Tcp => connected(runtime, ends, |end| TcpStream::from_std(end.into())),
        Family::Unix => connected(runtime, ends, |end| UnixStream::from_std(end.into())),
    })
}

fn connected<D: monoio::Driver + 'static, S>(
    mut runtime: Runtime<D>,
    ends: Vec<(OwnedFd, OwnedFd)>,
    stream: fn(OwnedFd) -> io::Result<S>,
) -> Run
where
    S: AsyncReadRent + AsyncWriteRentExt + 'static,
{
    let mut nears = Vec::new();
    runtime.block_on(async {
        for (near, far) in ends {
            monoio::spawn(echo(stream(far).expect("it can be registered")));
            nears.push(stream(near).expect("it can be registered"));
        }
    });
    Box::new(move |count| {
        let each = count / nears.len() as u64;
        runtime.block_on(async {
            let clock = Clock::start();
            let tasks: Vec<_> = (nears.drain(..))
                .map(|near| monoio::spawn(ask(near, each)))
                .collect();
            for task in tasks {
                nears.push(task.await.expect("loopback works"));
            }
            clock.stop()
        })
    })
}

async fn echo(mut stream: impl AsyncReadRent + AsyncWriteRentExt) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(BUFFER);
    loop {
        let (length, filled) = stream.read(buffer).await;
        if length? == 0 {
            return Ok(());
        }
        let (written, back) = stream.write_all(filled).await;
        written?;
        buffer = back;
        buffer.clear();
    }
}

async fn ask<S: AsyncReadRent + AsyncWriteRentExt>(mut stream: S, count: u64) -> io::Result<S> {
    let mut message = vec![7; MESSAGE];
    let mut buffer = Vec::with_capacity(BUFFER);
    for _ in 0..count {
        let (written, back) = stream.write_all(message).await;
        written?;
        message = back;
        let mut received = 0;
        while received < MESSAGE {
            let (length, back) = stream.read(buffer).await;
            buffer = back;
            buffer.clear();
            match length? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => received += length,
            }
        }
    }
    Ok(stream)
}

pub struct Peer(RefCell<Runtime<TimeDriver<IoUringDriver>>>);

impl program::Peer for Peer {
    fn new() -> Result<Self, Skip> {
        let runtime = RuntimeBuilder::<IoUringDriver>::new()
            .enable_timer()
            .build();
        Ok(Peer(runtime.map_err(unavailable("runtime"))?.into()))
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.borrow_mut().block_on(future)
    }

    fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        self.block_on(async { monoio::spawn(future).await })
    }

    fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> {
        monoio::spawn(future)
    }

    fn yields(&self, count: u64) -> impl Future<Output = ()> {
        // It has no such function.
        monoio::spawn(async move {
            for _ in 0..count {
                futures_lite::future::yield_now().await;
            }
        })
    }

    fn sleep(&self, duration: Duration) -> impl Future {
        sleep(duration)
    }

    fn sleeper(&self, duration: Duration, times: u32) -> impl Future<Output = Duration> {
        monoio::spawn(late(duration, times, sleep))
    }

    fn resets(&self, many: u64) -> Result<Resets, Skip> {
        let sleeps = async { (0..many).map(|_| Box::pin(sleep(LONG))).collect::<Vec<_>>() };
        let mut sleeps = self.block_on(sleeps);
        Ok(Box::new(move |places, cx| {
            for sleep in &mut sleeps[places] {
                sleep.as_mut().reset(Instant::now() + LONG);
                assert!(sleep.as_mut().poll(cx).is_pending());
            }
        }))
    }
}
