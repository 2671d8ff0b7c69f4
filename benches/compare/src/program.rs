//! The interface of a runtime's program: [`Peer`] and [`Pool`], the parts that all of them are
//! built from, and the sockets that they get.
//!
//! It connects the workloads (`pairs`, `micro`, `workers`, ...), which are written once against
//! these traits, and `peers`, which implements them for each runtime.

use std::future::Future;
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::task::Context;
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender};
use futures_lite::future::or;

use crate::clock::{Clock, Run, Took};
use crate::group::Skip;

/// The size of a message.
pub const MESSAGE: usize = 64;

/// The buffer size of a task. It has room for more than a message: a receive that fills less than
/// was asked for shows that there is no more.
pub const BUFFER: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    Tcp,
    Unix,
}

/// Connections with both ends in this process. The active ones send messages back and forth;
/// nothing is ever sent over the idle ones, but a task waits at each of their ends.
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

    /// Connects all of them; the active ones come first.
    pub fn connect(&self) -> Vec<(OwnedFd, OwnedFd)> {
        (0..self.active + self.idle)
            .map(|_| pair(self.family, true))
            .collect()
    }
}

/// Returns a pair connected over loopback. Nagle is off, as in every program that sends small
/// messages.
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

/// Makes closing reset the connection. Otherwise its port would be in use for a minute after the
/// end, and 10,000 of them are a third of all.
pub fn reset_when_closed(stream: &TcpStream) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: the kernel reads one `linger`.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of_val(&linger) as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "every socket has it");
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

/// The number of tasks, or timers, in the workloads with many.
pub const MANY: u64 = 10_000;

/// The number of timers that a task polls before it yields. In some runtimes one poll of a task may
/// use timers and sockets 128 times; any further one reports "not ready" without a check.
pub const AT_ONCE: u64 = 100;

/// A timer of this duration never fires.
pub const LONG: Duration = Duration::from_secs(1_000);

/// Pushes back and polls the timers at these places, in the task with the given context.
pub type Resets = Box<dyn FnMut(Range<usize>, &mut Context<'_>)>;

/// A runtime's operations.
pub trait Peer: 'static {
    fn new() -> Result<Self, Skip>
    where
        Self: Sized;

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T;

    /// Runs `future` in a task, on this thread.
    fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + 'static) -> T;

    fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T>;

    /// Spawns a task that yields `count` times.
    fn yields(&self, count: u64) -> impl Future<Output = ()>;

    fn sleep(&self, duration: Duration) -> impl Future;

    /// Awaits `future`, for that long at most.
    fn timeout(&self, limit: Duration, future: impl Future) -> impl Future {
        let sleep = self.sleep(limit);
        or(
            async {
                future.await;
            },
            async {
                sleep.await;
            },
        )
    }

    /// Spawns a task that sleeps that long so many times, and returns how late it was on average.
    fn sleeper(&self, duration: Duration, times: u32) -> impl Future<Output = Duration>;

    /// Creates `many` timers, and returns a function that pushes them back and polls them.
    fn resets(&self, many: u64) -> Result<Resets, Skip>;

    /// Makes round trips over a channel of the runtime's own, between two tasks.
    fn own_channel(&'static self) -> Result<Run, Skip> {
        Err(Skip("has no channel of its own".into()))
    }

    /// Makes round trips over a oneshot channel of the runtime's own, from a new task.
    fn own_oneshot(&'static self) -> Option<Run> {
        None
    }
}

/// The operations of a runtime with workers.
pub trait Pool: 'static {
    /// A handle that spawns from any thread.
    type Handle: Clone + Send + 'static;

    fn new(workers: usize) -> Result<Self, Skip>
    where
        Self: Sized;

    /// Runs `future` on this thread, which is not one of the workers.
    fn block_on<T>(&self, future: impl Future<Output = T>) -> T;

    fn handle(&self) -> Self::Handle;

    fn spawn<T: Send + 'static>(
        handle: &Self::Handle,
        future: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T>;

    fn detach(handle: &Self::Handle, future: impl Future<Output = ()> + Send + 'static);

    /// Must be called, and awaited, by one of its tasks.
    fn sleep(duration: Duration) -> impl Future<Output = ()> + Send;

    /// Receives one message, in one of its tasks. The socket is non-blocking.
    fn receive(socket: TcpStream) -> impl Future<Output = ()> + Send;

    /// Peeks at a message, in one of its tasks, until `more` returns false. The socket is
    /// non-blocking.
    fn peek(
        socket: TcpStream,
        more: impl FnMut() -> bool + Send,
    ) -> impl Future<Output = ()> + Send;
}

/// Sleeps by `sleep` so many times, and returns how late it was on average.
pub async fn late<F: Future>(
    duration: Duration,
    times: u32,
    sleep: impl Fn(Duration) -> F,
) -> Duration {
    let mut late = Duration::ZERO;
    for _ in 0..times {
        // Counted from when the task runs, not from when it was spawned.
        let until = Instant::now() + duration;
        sleep(duration).await;
        late += until.elapsed();
    }
    late / times
}

/// Runs `future` in a task, as most code does, and returns the time it took. (A future awaited by
/// `block_on` itself costs tokio a system call each time.)
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
