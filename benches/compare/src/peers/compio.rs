//! compio: on io_uring, and on its polling driver. Buffers are handed over and come back.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use compio::BufResult;
use compio::driver::{DriverType, ProactorBuilder};
use compio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use compio::net::{TcpStream, UnixStream};
use compio::runtime::{Runtime, RuntimeBuilder};
use compio::time::sleep;

use super::unavailable;
use crate::clock::{Clock, Ready, Run};
use crate::group::Skip;
use crate::program::{self, BUFFER, Family, MESSAGE, Resets, late, pair};

fn runtime(uring: bool) -> Result<Runtime, Skip> {
    let mut proactor = ProactorBuilder::new();
    proactor.driver_type(if uring {
        DriverType::IoUring
    } else {
        DriverType::Poll
    });
    let runtime = RuntimeBuilder::new().with_proactor(proactor).build();
    runtime.map_err(unavailable("runtime"))
}

pub fn pairs(family: Family, pairs: usize, uring: bool) -> Ready {
    let runtime = runtime(uring)?;
    // compio sets their mode as it needs.
    let ends: Vec<_> = (0..pairs).map(|_| pair(family, false)).collect();
    Ok(match family {
        Family::Tcp => connected(runtime, ends, |end| TcpStream::from_std(end.into())),
        Family::Unix => connected(runtime, ends, |end| UnixStream::from_std(end.into())),
    })
}

fn connected<S: AsyncRead + AsyncWrite + 'static>(
    runtime: Runtime,
    ends: Vec<(OwnedFd, OwnedFd)>,
    stream: fn(OwnedFd) -> io::Result<S>,
) -> Run {
    let mut nears = Vec::new();
    runtime.block_on(async {
        for (near, far) in ends {
            compio::runtime::spawn(echo(stream(far).expect("it can be registered"))).detach();
            nears.push(stream(near).expect("it can be registered"));
        }
    });
    Box::new(move |count| {
        let each = count / nears.len() as u64;
        runtime.block_on(async {
            let clock = Clock::start();
            let tasks: Vec<_> = (nears.drain(..))
                .map(|near| compio::runtime::spawn(ask(near, each)))
                .collect();
            for task in tasks {
                let near = task.await.expect("it does not panic");
                nears.push(near.expect("loopback works"));
            }
            clock.stop()
        })
    })
}

async fn echo(mut stream: impl AsyncRead + AsyncWrite) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(BUFFER);
    loop {
        let BufResult(length, filled) = stream.read(buffer).await;
        if length? == 0 {
            return Ok(());
        }
        let BufResult(written, back) = stream.write_all(filled).await;
        written?;
        buffer = back;
        buffer.clear();
    }
}

async fn ask<S: AsyncRead + AsyncWrite>(mut stream: S, count: u64) -> io::Result<S> {
    let mut message = vec![7; MESSAGE];
    let mut buffer = Vec::with_capacity(BUFFER);
    for _ in 0..count {
        let BufResult(written, back) = stream.write_all(message).await;
        written?;
        message = back;
        let mut received = 0;
        while received < MESSAGE {
            let BufResult(length, back) = stream.read(buffer).await;
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

pub struct Peer(Runtime);

impl program::Peer for Peer {
    fn new() -> Result<Self, Skip> {
        runtime(true).map(Peer)
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.block_on(future)
    }

    fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        let task = self.0.spawn(future);
        self.0.block_on(task).expect("it does not panic")
    }

    fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> {
        let task = compio::runtime::spawn(future);
        async { task.await.expect("it does not panic") }
    }

    fn yields(&self, count: u64) -> impl Future<Output = ()> {
        // It has no such function.
        self.spawn(async move {
            for _ in 0..count {
                futures_lite::future::yield_now().await;
            }
        })
    }

    fn sleep(&self, duration: Duration) -> impl Future {
        sleep(duration)
    }

    fn sleeper(&self, duration: Duration, times: u32) -> impl Future<Output = Duration> {
        let task = compio::runtime::spawn(late(duration, times, sleep));
        async { task.await.expect("it does not panic") }
    }

    fn resets(&self, _: u64) -> Result<Resets, Skip> {
        Err(Skip("its timers cannot be reset".into()))
    }
}
