//! Rules 24 to 32 and 36, and the parts of rules 4 to 12, 23a and 35 that streams and listeners
//! show. Except for the features of TCP only, the tests run with Unix streams too.
//!
//! If the kernel's state in between matters, the other end is a blocking socket of the standard
//! library: its calls take effect when they are made. If two polls and an event must come in a
//! fixed order, the test polls by hand, with a waker that counts.

mod addresses;
mod conversions;
mod ends;
mod keepalive;
mod listeners;
#[cfg(target_os = "linux")]
mod mark;
#[cfg(unix)]
mod processes;
mod readiness;
mod transfer;
#[cfg(unix)]
pub mod unix;
mod urgent;
mod waiting;

use std::io;
use std::net;
pub use std::net::TcpStream as StdStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use polder::Runtime;
use polder::io::{AsyncRead, AsyncWrite};
use polder::net::TcpListener;
pub use polder::net::{OwnedReadHalf, OwnedWriteHalf, TcpStream as Stream};
use socket2::{Domain, SockRef, Socket, Type};

pub use crate::peer::TcpPeer as Peer;
use crate::probe::std_accept_from;
pub use crate::probe::{Count, listen, poll_future};
use crate::support::{a_turn, is_in_world};

/// Returns the two ends of a connection, as the standard library's streams.
fn std_pair() -> (StdStream, StdStream) {
    let listener = net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let near = StdStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = std_accept_from(&listener, &near);
    near.set_nodelay(true).unwrap();
    far.set_nodelay(true).unwrap();
    (near, far)
}

/// Returns a connection: our end, and the standard library's.
fn pair() -> (Stream, StdStream) {
    let (near, far) = std_pair();
    (near.try_into().unwrap(), far)
}

/// Returns a connection with both ends ours.
fn both() -> (Stream, Stream) {
    let (near, far) = std_pair();
    (near.try_into().unwrap(), far.try_into().unwrap())
}

/// Returns our end of a connection and a [`Peer`], wherever the rule runs.
async fn with_peer() -> (Stream, Peer) {
    if !is_in_world() {
        let (near, far) = pair();
        return (near, Peer::Kernel(far));
    }
    let (near, far) = connection().await;
    (near, Peer::Simulated(far))
}

/// Returns a connection with both ends ours, wherever the rule runs.
async fn connection() -> (Stream, Stream) {
    if !is_in_world() {
        return both();
    }
    let (listener, address) = listen().await;
    let near = Stream::connect(address).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    (near, far)
}

/// Closes the connection with a reset.
fn reset(stream: StdStream) {
    SockRef::from(&stream)
        .set_linger(Some(std::time::Duration::ZERO))
        .unwrap();
}

/// Returns a listener, its address, and a socket that reserves the port: once the listener is
/// closed, connects are refused, and no other test gets the port.
pub fn held_listener(backlog: i32) -> (net::TcpListener, net::SocketAddr, Socket) {
    let bound = |address: net::SocketAddr| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        // On Windows and illumos this option suffices for two binds, as long as only one socket
        // listens.
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

/// Like [`held_listener`], with our type, wherever the rule runs. In a world nothing else takes
/// ports.
pub async fn listening(backlog: i32) -> (TcpListener, net::SocketAddr, Option<Socket>) {
    if !is_in_world() {
        let (listener, address, holder) = held_listener(backlog);
        return (listener.try_into().unwrap(), address, Some(holder));
    }
    let (listener, address) = listen().await;
    (listener, address, None)
}

/// Whether `::1` exists: some containers have none.
pub fn has_ipv6() -> bool {
    net::TcpListener::bind((net::Ipv6Addr::LOCALHOST, 0)).is_ok()
}

/// Yields a few times, so that the reactor polls the kernel.
pub async fn some_turns() {
    for _ in 0..3 {
        a_turn().await;
    }
}

/// Asserts that the loop stays asleep while `send` sends data and the other end takes it. The first
/// call is not counted: it may disarm the interest in writing, when its event comes.
pub fn assert_no_wake_up(runtime: &Runtime, mut send: impl FnMut()) {
    let pause = Duration::from_millis(5);
    send();
    while runtime.run_once(pause) {}
    for _ in 0..5 {
        send();
        let start = Instant::now();
        assert!(!runtime.run_once(pause), "somebody was woken");
        assert!(start.elapsed() >= pause, "the loop came round for nobody");
    }
}

pub fn poll_read(
    stream: &mut (impl AsyncRead + Unpin),
    count: &Arc<Count>,
    bytes: &mut [u8],
) -> Poll<io::Result<usize>> {
    Pin::new(stream).poll_read(&mut Context::from_waker(&count.waker()), bytes)
}

pub fn poll_write(
    stream: &mut (impl AsyncWrite + Unpin),
    count: &Arc<Count>,
    bytes: &[u8],
) -> Poll<io::Result<usize>> {
    Pin::new(stream).poll_write(&mut Context::from_waker(&count.waker()), bytes)
}

/// Writes until the send buffer is full and `count` waits for room. Returns the number of bytes.
pub fn fill(stream: &mut (impl AsyncWrite + Unpin), count: &Arc<Count>) -> usize {
    let chunk = vec![b'x'; 256 * 1024];
    let mut written = 0;
    // Another waker, which is woken whenever the budget is used up.
    let probe = Count::new();
    loop {
        let woken = probe.woken();
        match poll_write(stream, &probe, &chunk) {
            Poll::Ready(result) => written += result.expect("the peer is there"),
            Poll::Pending if probe.woken() > woken => {}
            Poll::Pending => break,
        }
    }
    while let Poll::Ready(result) = poll_write(stream, count, &chunk) {
        written += result.expect("the peer is there");
    }
    written
}

/// Like [`fill`], until no more fits even after a while. On loopback that is immediate. In a world,
/// written data leaves the send buffer as it arrives, as long as the receiver has room.
pub async fn fill_up(stream: &mut (impl AsyncWrite + Unpin), count: &Arc<Count>) -> usize {
    let mut written = 0;
    while is_in_world() {
        match fill(stream, &Count::new()) {
            0 => break,
            more => written += more,
        }
        some_turns().await;
    }
    written + fill(stream, count)
}

/// A small random number generator (xorshift): random splits that are the same in every run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number from 0 to `end` - 1.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end
    }

    /// Returns a number from 1 to `end`; small numbers are as likely as large ones.
    pub fn size(&mut self, end: usize) -> usize {
        let bits = usize::BITS - end.leading_zeros();
        let limit = 1 << (1 + self.below(bits as usize));
        1 + self.below(limit.min(end))
    }
}
