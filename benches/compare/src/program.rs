//! What the program of a runtime is asked for: [`Peer`] and [`Pool`], the pieces that all of them
//! are made of, and the sockets that they are given.
//!
//! It stands between the workloads (`pairs`, `micro`, `workers`, ...), which are written once
//! against these traits, and `peers`, where each runtime answers them.

use std::future::Future;
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::task::Context;
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender};

use crate::clock::{Clock, Run, Took};
use crate::group::Skip;

/// What is sent.
pub const MESSAGE: usize = 64;

/// The buffer of a task. Room for more than a message: what is received fills less than was asked
/// for, and so tells that there is no more.
pub const BUFFER: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    Tcp,
    Unix,
}

/// Connections with both ends in this process. Over those that are active, messages are sent to and
/// fro; nothing is ever sent over the idle ones, but a task waits for it at each end.
#[derive(Clone, Copy, Debug)]
pub struct Pairs {
    pub family: Family,
    pub active: usize,
    pub idle: usize,
}

impl Pairs {
    pub fn active(family: Family, active: usize) -> Pairs {
        Pairs {
            family,
            active,
            idle: 0,
        }
    }

    /// All of them, connected; the active ones come first.
    pub fn connect(&self) -> Vec<(OwnedFd, OwnedFd)> {
        (0..self.active + self.idle)
            .map(|_| pair(self.family, true))
            .collect()
    }
}

/// Connected over loopback. Nagle is off, as in every program that sends small messages.
pub fn tcp_pair(nonblocking: bool) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let near = TcpStream::connect(address).expect("loopback connects");
    let (far, _) = listener.accept().expect("it was connected");
    for stream in [&near, &far] {
        stream.set_nodelay(true).expect("TCP has it");
        stream
            .set_nonblocking(nonblocking)
            .expect("sockets have it");
    }
    (near, far)
}

pub fn unix_pair(nonblocking: bool) -> (UnixStream, UnixStream) {
    let (near, far) = UnixStream::pair().expect("there are descriptors left");
    for stream in [&near, &far] {
        stream
            .set_nonblocking(nonblocking)
            .expect("sockets have it");
    }
    (near, far)
}

pub fn pair(family: Family, nonblocking: bool) -> (OwnedFd, OwnedFd) {
    match family {
        Family::Tcp => {
            let (near, far) = tcp_pair(nonblocking);
            (near.into(), far.into())
        }
        Family::Unix => {
            let (near, far) = unix_pair(nonblocking);
            (near.into(), far.into())
        }
    }
}

/// How many tasks, or timers, "many" are.
pub const MANY: u64 = 10_000;

/// How many timers a task polls before it yields. Some runtimes let one poll of a task use timers
/// and sockets 128 times; to the next it answers that they are not ready, without looking.
pub const AT_ONCE: u64 = 100;

/// No timer with it ever fires.
pub const LONG: Duration = Duration::from_secs(1_000);

/// Pushes the timers at these places back and polls each, in the task whose context it is given.
pub type Resets = Box<dyn FnMut(Range<usize>, &mut Context<'_>)>;

/// What a runtime calls these things.
pub trait Peer: 'static {
    fn new() -> Result<Self, Skip>
    where
        Self: Sized;

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T;

    /// Runs `future` in a task of its own, on this thread.
    fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + 'static) -> T;

    fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T>;

    /// Spawns a task that yields so many times.
    fn yields(&self, count: u64) -> impl Future<Output = ()>;

    fn sleep(&self, duration: Duration) -> impl Future;

    /// Spawns a task that sleeps that long, and says how late it was.
    fn sleeper(&self, duration: Duration) -> impl Future<Output = Duration>;

    /// Makes so many timers, and gives what pushes them back and polls them.
    fn resets(&self, many: u64) -> Result<Resets, Skip>;

    /// There and back over a channel of the runtime's own, between two tasks.
    fn own_channel(&'static self) -> Result<Run, Skip> {
        Err(Skip("has no channel of its own".into()))
    }

    /// There and back over a oneshot channel of its own, from a new task.
    fn own_oneshot(&'static self) -> Option<Run> {
        None
    }
}

/// What a runtime with workers is asked for.
pub trait Pool: 'static {
    /// What spawns from any thread.
    type Handle: Clone + Send + 'static;

    fn new(workers: usize) -> Result<Self, Skip>
    where
        Self: Sized;

    /// On this thread, which is not one of the workers.
    fn block_on<T>(&self, future: impl Future<Output = T>) -> T;

    fn handle(&self) -> Self::Handle;

    fn spawn<T: Send + 'static>(
        handle: &Self::Handle,
        future: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T>;

    fn detach(handle: &Self::Handle, future: impl Future<Output = ()> + Send + 'static);

    /// To be called, and awaited, by a task of it.
    fn sleep(duration: Duration) -> impl Future<Output = ()> + Send;

    /// Receives one message, in a task of it. The socket does not block.
    fn receive(socket: TcpStream) -> impl Future<Output = ()> + Send;
}

/// Sleeps by `sleep`, and says how late that was.
pub async fn late<F: Future>(duration: Duration, sleep: impl FnOnce(Duration) -> F) -> Duration {
    // Counted from when the task first runs, not from when it was spawned.
    let until = Instant::now() + duration;
    sleep(duration).await;
    until.elapsed()
}

/// Runs `future` in a task, as most code is, and says what it took. (What is awaited by `block_on`
/// itself costs tokio a system call each time.)
pub fn measured<P: Peer>(peer: &P, future: impl Future<Output = ()> + 'static) -> Took {
    peer.run(async {
        let clock = Clock::start();
        future.await;
        clock.stop()
    })
}

pub async fn answer(receiver: Receiver<u64>, sender: Sender<u64>) {
    while let Ok(number) = receiver.recv().await {
        if sender.send(number + 1).await.is_err() {
            return;
        }
    }
}

pub async fn ask(sender: Sender<u64>, receiver: Receiver<u64>, count: u64) {
    for number in 0..count {
        sender.send(number).await.expect("the other side is there");
        let answer = receiver.recv().await.expect("the other side is there");
        assert_eq!(answer, number + 1);
    }
}
