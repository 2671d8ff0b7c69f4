//! tokio: the current-thread scheduler, a `LocalSet` on it, and the multi-thread scheduler.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep};

use super::unavailable;
use crate::clock::{Clock, Ready, Run, Took};
use crate::group::Skip;
use crate::program::{self, BUFFER, Family, LONG, MESSAGE, Pairs, Pool, Resets, late, measured};

fn current_thread() -> Result<Runtime, Skip> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(unavailable("runtime"))
}

fn multi_thread(workers: usize) -> Result<Runtime, Skip> {
    let runtime = (Builder::new_multi_thread().worker_threads(workers))
        .enable_all()
        .build();
    runtime.map_err(unavailable("runtime"))
}

/// Runs on the current thread if there are no workers.
pub fn pairs(pairs: Pairs, workers: usize) -> Ready {
    let runtime = match workers {
        0 => current_thread()?,
        _ => multi_thread(workers)?,
    };
    match pairs.family {
        Family::Tcp => connected(runtime, pairs, |end| TcpStream::from_std(end.into())),
        Family::Unix => connected(runtime, pairs, |end| UnixStream::from_std(end.into())),
    }
}

fn connected<S>(runtime: Runtime, pairs: Pairs, stream: fn(OwnedFd) -> io::Result<S>) -> Ready
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut nears = Vec::new();
    {
        let _context = runtime.enter();
        for (near, far) in pairs.connect() {
            tokio::spawn(echo(stream(far).expect("it can be registered")));
            let near = stream(near).expect("it can be registered");
            if nears.len() < pairs.active {
                nears.push(near);
            } else {
                drop(tokio::spawn(echo(near)));
            }
        }
    }
    Ok(Box::new(move |count| {
        let each = count / nears.len() as u64;
        runtime.block_on(async {
            let clock = Clock::start();
            let tasks: Vec<_> = (nears.drain(..))
                .map(|near| tokio::spawn(ask(near, each)))
                .collect();
            for task in tasks {
                let near = task.await.expect("it does not panic");
                nears.push(near.expect("loopback works"));
            }
            clock.stop()
        })
    }))
}

async fn echo(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    let mut buffer = [0; BUFFER];
    loop {
        let length = stream.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..length]).await?;
    }
}

async fn ask<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, count: u64) -> io::Result<S> {
    let mut buffer = [7; BUFFER];
    for _ in 0..count {
        stream.write_all(&buffer[..MESSAGE]).await?;
        let mut received = 0;
        while received < MESSAGE {
            match stream.read(&mut buffer[received..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => received += length,
            }
        }
    }
    Ok(stream)
}

async fn answer(mut receiver: mpsc::Receiver<u64>, sender: mpsc::Sender<u64>) {
    while let Some(number) = receiver.recv().await {
        if sender.send(number + 1).await.is_err() {
            return;
        }
    }
}

async fn question(sender: mpsc::Sender<u64>, mut receiver: mpsc::Receiver<u64>, count: u64) {
    for number in 0..count {
        sender.send(number).await.expect("the other side is there");
        let answer = receiver.recv().await.expect("the other side is there");
        assert_eq!(answer, number + 1);
    }
}

async fn yields(count: u64) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

fn channel<P: program::Peer>(peer: &P, count: u64) -> Took {
    let (questions, questioned) = mpsc::channel(1);
    let (answers, answered) = mpsc::channel(1);
    peer.block_on(async {
        let other = peer.spawn(answer(questioned, answers));
        let clock = Clock::start();
        peer.spawn(question(questions, answered, count)).await;
        let took = clock.stop();
        other.await;
        took
    })
}

fn oneshots<P: program::Peer>(peer: &'static P, count: u64) -> Took {
    measured(peer, async move {
        for number in 0..count {
            let (sender, receiver) = oneshot::channel();
            let task = peer.spawn(async move { sender.send(number) });
            std::hint::black_box(receiver.await.expect("it is sent"));
            task.await.expect("it is received");
        }
    })
}

fn resets<P: program::Peer>(peer: &P, many: u64) -> Resets {
    let mut sleeps =
        peer.block_on(async { (0..many).map(|_| Box::pin(sleep(LONG))).collect::<Vec<_>>() });
    Box::new(move |places, cx| {
        for sleep in &mut sleeps[places] {
            sleep.as_mut().reset(Instant::now() + LONG);
            assert!(sleep.as_mut().poll(cx).is_pending());
        }
    })
}

/// A future that need not be `Send` in a task that must be.
struct Here<F>(Pin<Box<F>>);

// SAFETY: it is spawned only on a current-thread scheduler that one thread drives and drops, the
// one that spawns.
unsafe impl<F> Send for Here<F> {}

impl<F: Future> Future for Here<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.0.as_mut().poll(cx)
    }
}

pub struct CurrentThread(Runtime);

impl program::Peer for CurrentThread {
    fn new() -> Result<Self, Skip> {
        current_thread().map(CurrentThread)
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.block_on(future)
    }

    fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        let task = self.0.spawn(Here(Box::pin(future)));
        self.0.block_on(task).expect("it does not panic")
    }

    fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> {
        let task = tokio::spawn(future);
        async { task.await.expect("it does not panic") }
    }

    fn yields(&self, count: u64) -> impl Future<Output = ()> {
        self.spawn(yields(count))
    }

    fn sleep(&self, duration: Duration) -> impl Future {
        sleep(duration)
    }

    fn timeout(&self, limit: Duration, future: impl Future) -> impl Future {
        tokio::time::timeout(limit, future)
    }

    fn sleeper(&self, duration: Duration, times: u32) -> impl Future<Output = Duration> {
        self.spawn(late(duration, times, sleep))
    }

    fn resets(&self, many: u64) -> Result<Resets, Skip> {
        Ok(resets(self, many))
    }

    fn own_channel(&'static self) -> Result<Run, Skip> {
        Ok(Box::new(|count| channel(self, count)))
    }

    fn own_oneshot(&'static self) -> Option<Run> {
        Some(Box::new(|count| oneshots(self, count)))
    }
}

/// With `spawn_local` on a `LocalSet`.
pub struct Local(Runtime, LocalSet);

impl program::Peer for Local {
    fn new() -> Result<Self, Skip> {
        Ok(Local(current_thread()?, LocalSet::new()))
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.1.block_on(&self.0, future)
    }

    fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        let task = self.1.spawn_local(future);
        self.block_on(task).expect("it does not panic")
    }

    fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> {
        let task = tokio::task::spawn_local(future);
        async { task.await.expect("it does not panic") }
    }

    fn yields(&self, count: u64) -> impl Future<Output = ()> {
        self.spawn(yields(count))
    }

    fn sleep(&self, duration: Duration) -> impl Future {
        sleep(duration)
    }

    fn timeout(&self, limit: Duration, future: impl Future) -> impl Future {
        tokio::time::timeout(limit, future)
    }

    fn sleeper(&self, duration: Duration, times: u32) -> impl Future<Output = Duration> {
        self.spawn(late(duration, times, sleep))
    }

    fn resets(&self, many: u64) -> Result<Resets, Skip> {
        Ok(resets(self, many))
    }

    fn own_channel(&'static self) -> Result<Run, Skip> {
        Ok(Box::new(|count| channel(self, count)))
    }

    fn own_oneshot(&'static self) -> Option<Run> {
        Some(Box::new(|count| oneshots(self, count)))
    }
}

pub struct Workers(Runtime);

impl Pool for Workers {
    type Handle = Handle;

    fn new(workers: usize) -> Result<Self, Skip> {
        multi_thread(workers).map(Workers)
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.block_on(future)
    }

    fn handle(&self) -> Handle {
        self.0.handle().clone()
    }

    fn spawn<T: Send + 'static>(
        handle: &Handle,
        future: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> {
        let task = handle.spawn(future);
        async { task.await.expect("it does not panic") }
    }

    fn detach(handle: &Handle, future: impl Future<Output = ()> + Send + 'static) {
        handle.spawn(future);
    }

    async fn sleep(duration: Duration) {
        sleep(duration).await;
    }

    async fn receive(socket: std::net::TcpStream) {
        let mut stream = TcpStream::from_std(socket).expect("it can be registered");
        let received = stream.read(&mut [0; MESSAGE]).await;
        received.expect("loopback works");
    }

    async fn peek(socket: std::net::TcpStream, mut more: impl FnMut() -> bool + Send) {
        let stream = TcpStream::from_std(socket).expect("it can be registered");
        while more() {
            let seen = stream.peek(&mut [0; MESSAGE]).await;
            seen.expect("loopback works");
        }
    }
}
