//! Rules 24 to 32 and 36, and rules 4 to 12, 23a and 35 as far as a stream or a listener shows them. All
//! but what is peculiar to TCP is run with Unix streams too.
//!
//! The other end is the standard library's, blocking, wherever what the kernel does in between
//! matters: its calls happen when they are written. Where two polls and an event must come in one
//! order, the test polls by hand, with a waker that counts.

mod addresses;
mod conversions;
mod ends;
mod listeners;
#[cfg(unix)]
mod processes;
mod transfer;
#[cfg(unix)]
pub mod unix;
mod urgent;
mod waiting;

use std::io;
use std::net;
pub use std::net::TcpStream as StdStream;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use polder::Runtime;
use polder::future::yield_now;
use polder::io::{AsyncRead, AsyncWrite};
pub use polder::net::{OwnedReadHalf, OwnedWriteHalf, TcpStream as Stream};
use socket2::{Domain, SockRef, Socket, Type};

/// The two ends of a connection, as the standard library has them.
fn std_pair() -> (StdStream, StdStream) {
    let listener = net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let near = StdStream::connect(listener.local_addr().unwrap()).unwrap();
    // Another test's client cannot come in between: it does not know the port.
    let (far, _) = listener.accept().unwrap();
    near.set_nodelay(true).unwrap();
    far.set_nodelay(true).unwrap();
    (near, far)
}

/// Our end of a connection, and the other one as the standard library's.
fn pair() -> (Stream, StdStream) {
    let (near, far) = std_pair();
    (near.try_into().unwrap(), far)
}

/// Both ends ours.
fn both() -> (Stream, Stream) {
    let (near, far) = std_pair();
    (near.try_into().unwrap(), far.try_into().unwrap())
}

/// Closes the connection with a reset instead of an end.
fn reset(stream: StdStream) {
    SockRef::from(&stream)
        .set_linger(Some(std::time::Duration::ZERO))
        .unwrap();
}

/// A listener, where it is, and a socket that keeps the port from others: so that what connects there
/// is refused, and not taken by another test, once the listener is closed.
pub fn held_listener(backlog: i32) -> (net::TcpListener, net::SocketAddr, Socket) {
    let bound = |address: net::SocketAddr| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        // Windows and illumos let two bind that only say this, as long as one of them listens.
        #[cfg(any(windows, target_os = "illumos", target_os = "solaris"))]
        socket.set_reuse_address(true).unwrap();
        #[cfg(not(any(windows, target_os = "illumos", target_os = "solaris")))]
        socket.set_reuse_port(true).unwrap();
        socket.bind(&address.into()).unwrap();
        socket
    };
    let listener = bound(net::SocketAddr::from((net::Ipv4Addr::LOCALHOST, 0)));
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let holder = bound(address);
    listener.listen(backlog).unwrap();
    (listener.into(), address, holder)
}

/// Some containers have no `::1`.
pub fn has_ipv6() -> bool {
    net::TcpListener::bind((net::Ipv6Addr::LOCALHOST, 0)).is_ok()
}

/// A waker that counts; how many wakers there are is its `Arc`'s count.
#[derive(Default)]
pub struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Count {
    pub fn new() -> Arc<Count> {
        Arc::default()
    }

    pub fn woken(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Lets the loop go round until this was woken; the test's deadline is the limit.
    pub async fn until_woken(&self) {
        while self.woken() == 0 {
            yield_now().await;
        }
    }

    /// How many wakers of it somebody keeps.
    pub fn kept(self: &Arc<Self>) -> usize {
        Arc::strong_count(self) - 1
    }
}

/// Lets the reactor look at the kernel a few times.
pub async fn some_turns() {
    for _ in 0..3 {
        yield_now().await;
    }
}

/// That the loop sleeps on while `send` sends something and the other end takes it: after the first
/// time, which may have to tell the kernel that nobody waits for room any more.
pub fn assert_no_wake_up(runtime: &Runtime, mut send: impl FnMut()) {
    send();
    runtime.turn(Duration::ZERO);
    let pause = Duration::from_millis(5);
    for _ in 0..5 {
        send();
        let start = Instant::now();
        assert!(!runtime.turn(pause), "somebody was woken");
        assert!(start.elapsed() >= pause, "the loop came round for nobody");
    }
}

pub fn poll_read(
    stream: &mut (impl AsyncRead + Unpin),
    count: &Arc<Count>,
    bytes: &mut [u8],
) -> Poll<io::Result<usize>> {
    let waker = Waker::from(count.clone());
    Pin::new(stream).poll_read(&mut Context::from_waker(&waker), bytes)
}

pub fn poll_write(
    stream: &mut (impl AsyncWrite + Unpin),
    count: &Arc<Count>,
    bytes: &[u8],
) -> Poll<io::Result<usize>> {
    let waker = Waker::from(count.clone());
    Pin::new(stream).poll_write(&mut Context::from_waker(&waker), bytes)
}

pub fn poll_future<F: Future + Unpin>(future: &mut F, count: &Arc<Count>) -> Poll<F::Output> {
    let waker = Waker::from(count.clone());
    pin!(future).poll(&mut Context::from_waker(&waker))
}

/// Writes until the send buffer is full and `count` waits for room; how much went in.
pub fn fill(stream: &mut (impl AsyncWrite + Unpin), count: &Arc<Count>) -> usize {
    let chunk = vec![b'x'; 256 * 1024];
    let mut written = 0;
    while let Poll::Ready(result) = poll_write(stream, count, &chunk) {
        written += result.expect("the peer is there");
    }
    written
}

/// A small generator of numbers (xorshift): random splits that are the same in every run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// From 0 to `end` - 1.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end
    }

    /// From 1 to `end`; small numbers are as likely as large ones.
    pub fn size(&mut self, end: usize) -> usize {
        let bits = usize::BITS - end.leading_zeros();
        let limit = 1 << (1 + self.below(bits as usize));
        1 + self.below(limit.min(end))
    }
}
