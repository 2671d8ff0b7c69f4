//! [`Peer`]: the far end of a connection. Its calls take effect before they return.
//!
//! On a kernel it is a blocking socket of the standard library, unknown to polder. In a world it is
//! a socket of polder, and each call is followed by enough time for the sent data to arrive. So
//! both give a rule the same state after each call: the kernel of the near end has the data.

use std::future::Future;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use polder::Task;
use polder::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use socket2::SockRef;

use crate::support::{a_turn, is_in_world, until};

/// The far end: a socket of the standard library, or one of polder in a world.
pub enum Peer<K, S> {
    Kernel(K),
    Simulated(S),
}

pub type TcpPeer = Peer<std::net::TcpStream, polder::net::TcpStream>;

#[cfg(unix)]
pub type UnixPeer = Peer<std::os::unix::net::UnixStream, polder::net::unix::UnixStream>;

/// The common interface of the standard library's streams.
pub trait Blocking: Read + Write {
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()>;
}

impl Blocking for std::net::TcpStream {
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.set_nonblocking(nonblocking)
    }
}

#[cfg(unix)]
impl Blocking for std::os::unix::net::UnixStream {
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.set_nonblocking(nonblocking)
    }
}

impl<K: Blocking, S: AsyncRead + AsyncWrite + Unpin> Peer<K, S> {
    /// Sends all bytes.
    pub async fn send(&mut self, bytes: &[u8]) {
        let sent = match self {
            Peer::Kernel(stream) => stream.write_all(bytes),
            Peer::Simulated(stream) => {
                let sent = stream.write_all(bytes).await;
                a_turn().await;
                sent
            }
        };
        sent.expect("the near end takes it");
    }

    /// Receives until `bytes` is full.
    pub async fn receive(&mut self, bytes: &mut [u8]) {
        let received = match self {
            Peer::Kernel(stream) => stream.read_exact(bytes),
            Peer::Simulated(stream) => {
                let received = stream.read_exact(bytes).await;
                a_turn().await;
                received
            }
        };
        received.expect("the near end sends it");
    }

    /// Waits for data, and receives what is available; returns 0 at the end.
    pub async fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Peer::Kernel(stream) => stream.read(bytes),
            Peer::Simulated(stream) => {
                let read = stream.read(bytes).await;
                a_turn().await;
                read
            }
        }
    }

    /// Receives the available data without waiting, which opens the window. Returns the number of
    /// bytes.
    pub async fn drain(&mut self) -> usize {
        match self {
            Peer::Kernel(stream) => {
                stream.set_nonblocking(true).expect("it can be");
                let drained = take(|bytes| stream.read(bytes));
                stream.set_nonblocking(false).expect("it can be");
                drained
            }
            Peer::Simulated(stream) => {
                let mut cx = Context::from_waker(Waker::noop());
                let drained =
                    take(
                        |bytes| match Pin::new(&mut *stream).poll_read(&mut cx, bytes) {
                            Poll::Ready(result) => result,
                            Poll::Pending => Err(ErrorKind::WouldBlock.into()),
                        },
                    );
                a_turn().await;
                drained
            }
        }
    }

    /// Closes the connection: an end, or a reset if data was left unread.
    pub async fn end(self) {
        drop(self);
        settle().await;
    }
}

/// In a world, lets sent data arrive.
async fn settle() {
    if is_in_world() {
        a_turn().await;
    }
}

impl TcpPeer {
    pub async fn connect(address: SocketAddr) -> TcpPeer {
        let connected = if is_in_world() {
            polder::net::TcpStream::connect(address)
                .await
                .map(Peer::Simulated)
        } else {
            std::net::TcpStream::connect(address).map(Peer::Kernel)
        };
        settle().await;
        connected.expect("somebody listens")
    }

    pub fn local_addr(&self) -> SocketAddr {
        let address = match self {
            Peer::Kernel(stream) => stream.local_addr(),
            Peer::Simulated(stream) => stream.local_addr(),
        };
        address.expect("it is connected")
    }

    /// Closes the connection with a reset.
    pub async fn reset(self) {
        let set = match &self {
            Peer::Kernel(stream) => SockRef::from(stream).set_linger(Some(Duration::ZERO)),
            Peer::Simulated(stream) => stream.set_linger(Some(Duration::ZERO)),
        };
        set.expect("a stream lingers");
        self.end().await;
    }
}

#[cfg(unix)]
impl UnixPeer {
    /// Closes the connection: a reset if data was left unread, an end otherwise.
    pub async fn reset(self) {
        self.end().await;
    }
}

fn take(mut read: impl FnMut(&mut [u8]) -> io::Result<usize>) -> usize {
    let mut bytes = vec![0; 64 * 1024];
    let mut taken = 0;
    loop {
        match read(&mut bytes) {
            Ok(0) => return taken,
            Ok(read) => taken += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                return taken;
            }
        }
    }
}

/// A future that runs next to a rule: on its own thread, and in a world in a task.
pub enum Beside<T> {
    Thread(thread::JoinHandle<T>),
    Task(Task<T>),
}

pub fn beside<F>(future: F) -> Beside<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    if is_in_world() {
        Beside::Task(polder::spawn(future))
    } else {
        Beside::Thread(thread::spawn(|| futures_lite::future::block_on(future)))
    }
}

impl<T> Beside<T> {
    /// Waits until the future is done.
    pub async fn join(self) -> T {
        match self {
            Beside::Thread(thread) => {
                until("the thread ends", || thread.is_finished()).await;
                thread.join().expect("it does not panic")
            }
            Beside::Task(task) => task.await,
        }
    }
}
