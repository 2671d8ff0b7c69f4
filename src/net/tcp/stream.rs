//! [`TcpStream`]: a TCP connection.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_lite::{AsyncRead, AsyncWrite};

use crate::net::addresses::{AsyncToSocketAddrs, first_to_connect, first_to_connect_within};
use crate::net::macros::socket;
use crate::net::socket::{Flag, Number, Opt, Socket, SocketType, StreamSocket, internet, kernel};
use crate::poller::Interest;
use crate::reactor::Direction;
use crate::sys::{self, OwnedDescriptor};

/// A TCP connection.
///
/// Reading and writing come with [`AsyncRead`](crate::io::AsyncRead) and
/// [`AsyncWrite`](crate::io::AsyncWrite). Clones share the connection, so that one task can read
/// while another one writes; it is closed when the last one is dropped.
///
/// # Examples
///
/// ```
/// use polder::io::{AsyncReadExt, AsyncWriteExt};
/// use polder::net::{TcpListener, TcpStream};
///
/// polder::block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let mut near = TcpStream::connect(listener.local_addr()?).await?;
///     let (mut far, _) = listener.accept().await?;
///
///     near.write_all(b"ping").await?;
///     let mut bytes = [0; 4];
///     far.read_exact(&mut bytes).await?;
///     assert_eq!(&bytes, b"ping");
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Cancel safety
///
/// Cancel safe: a single `read` or `write` that is dropped has read or written nothing. Combinators
/// of several (`read_exact`, `write_all`) may have done part of their work.
#[derive(Clone)]
#[doc(alias("from_std", "into_std"))]
pub struct TcpStream(pub(super) Socket);

impl TcpStream {
    /// Connects to the first of `address`'s addresses that answers.
    ///
    /// Several addresses are tried as RFC 8305 ("Happy Eyeballs") says: alternating between IPv6
    /// and IPv4, beginning with the first address. When one has failed, or has not answered for 250
    /// ms, the next is tried too; the first that connects is used, and the other attempts are
    /// cancelled.
    ///
    /// ```
    /// use polder::net::{TcpListener, TcpStream};
    ///
    /// polder::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let address = listener.local_addr()?;
    ///     let stream = TcpStream::connect(address).await?;
    ///     assert_eq!(stream.peer_addr()?, address);
    ///     // A host's name may stand there too.
    ///     let stream = TcpStream::connect(("127.0.0.1", address.port())).await?;
    ///     assert_eq!(stream.peer_addr()?, address);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The system's error for the address that failed last:
    /// [refused](io::ErrorKind::ConnectionRefused), [timed out](io::ErrorKind::TimedOut) and so on;
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for an empty list and for text that is not an
    /// address; for a name, the errors of [`resolve`](crate::net::resolve).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future closes the socket. For a name, see
    /// [`resolve`](crate::net::resolve).
    pub async fn connect(address: impl AsyncToSocketAddrs) -> io::Result<TcpStream> {
        first_to_connect(address).await.map(TcpStream)
    }

    /// Connects to the first of `address`'s addresses that answers within `duration`, which
    /// includes the time to resolve a name. Each address gets an equal share of the remaining time,
    /// so that one that does not answer leaves time for the others.
    ///
    /// ```
    /// use polder::net::{TcpListener, TcpStream};
    /// use std::time::Duration;
    ///
    /// polder::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let address = listener.local_addr()?;
    ///     let stream = TcpStream::connect_timeout(address, Duration::from_secs(5)).await?;
    ///     assert_eq!(stream.peer_addr()?, address);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect); [`TimedOut`](io::ErrorKind::TimedOut) if the last address
    /// did not answer, or the name was not resolved, in time.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future closes the socket. For a name, see
    /// [`resolve`](crate::net::resolve).
    #[doc(alias = "timeout")]
    pub async fn connect_timeout(
        address: impl AsyncToSocketAddrs,
        duration: Duration,
    ) -> io::Result<TcpStream> {
        let connect = first_to_connect_within(duration, address);
        connect.await.map(TcpStream)
    }

    /// Connects a socket with options that are set already, and which may be bound: see [the
    /// module](crate::net).
    ///
    /// ```
    /// use polder::net::{TcpListener, TcpStream};
    /// use socket2::{Domain, Socket, Type};
    ///
    /// polder::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    ///     socket.set_recv_buffer_size(1 << 16)?; // Counts only before connecting.
    ///     let stream = TcpStream::connect_with(socket, listener.local_addr()?).await?;
    ///     assert_eq!(stream.peer_addr()?, listener.local_addr()?);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call; [`InvalidInput`](io::ErrorKind::InvalidInput) if it is not a
    /// TCP socket.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future closes the socket.
    #[doc(alias = "TcpSocket")]
    pub async fn connect_with(
        socket: impl Into<OwnedDescriptor>,
        address: SocketAddr,
    ) -> io::Result<TcpStream> {
        kernel::connect_with(socket.into(), SocketType::TcpStream, &address.into())
            .await
            .map(TcpStream)
    }

    /// Returns the local address.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// assert_eq!(near.local_addr()?, far.peer_addr()?);
    /// // The accepted socket keeps its listener's address.
    /// assert_eq!(far.local_addr()?, listener.local_addr()?);
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        internet(self.0.kernel().local_addr()?)
    }

    /// Returns the peer's address.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// assert_eq!(near.peer_addr()?, listener.local_addr()?);
    /// assert_eq!(far.peer_addr()?, near.local_addr()?);
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotConnected`](io::ErrorKind::NotConnected) once the connection was reset, or has ended in
    /// both directions, on some platforms (Linux among them).
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        internet(self.0.kernel().peer_addr()?)
    }

    /// Shuts down reading, writing, or both. After writing is shut down the peer sees the end of
    /// file. A direction is shut down once: for one that was shut down or closed before, by any
    /// handle, nothing happens.
    ///
    /// The fate of bytes that arrive after reading was shut down depends on the platform. Linux
    /// still delivers them: a read returns zero only while there are none. After both directions
    /// were shut down it answers them with a reset. On other systems they may be discarded. If a
    /// connection is no longer read, it is better to drop it.
    ///
    /// ```
    /// use polder::io::AsyncReadExt;
    /// use polder::net::Shutdown;
    ///
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (mut far, _) = listener.accept().await?;
    /// near.shutdown(Shutdown::Write)?;
    /// let mut rest = Vec::new();
    /// far.read_to_end(&mut rest).await?; // The end of file.
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotConnected`](io::ErrorKind::NotConnected) if the connection has ended already, on some
    /// platforms.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }

    /// Returns how long closing may take to send the bytes that were written (`SO_LINGER`). `None`,
    /// the default, lets the system send them after closing.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// assert_eq!(stream.linger()?, None);
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.0.kernel().linger()
    }

    /// Sets [`linger`](Self::linger), in whole seconds.
    ///
    /// Zero makes closing discard the bytes that were not sent yet, and reset the connection. With
    /// a longer time, **dropping the last handle blocks its thread** for up to that time, on most
    /// systems, although the socket is non-blocking: wait for the peer's end of file instead. A
    /// time that is longer than the system can express is set to the longest one.
    ///
    /// ```
    /// use polder::io::AsyncReadExt;
    /// use std::io::ErrorKind;
    /// use std::time::Duration;
    ///
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (mut far, _) = listener.accept().await?;
    /// near.set_linger(Some(Duration::ZERO))?;
    /// drop(near);
    /// let reset = far.read(&mut [0; 8]).await.unwrap_err();
    /// assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    #[doc(alias("SO_LINGER", "set_zero_linger"))]
    pub fn set_linger(&self, duration: Option<Duration>) -> io::Result<()> {
        self.0
            .set(Opt::Linger(duration.map(|time| time.min(sys::MAX_LINGER))))
    }

    /// Whether small writes are sent immediately (`TCP_NODELAY`), without Nagle's algorithm.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (_far, _) = listener.accept().await?;
    /// assert!(!near.nodelay()?); // By default small writes may be delayed (Nagle).
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.0.kernel().flag(Flag::Nodelay)
    }

    /// Sets [`nodelay`](Self::nodelay).
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (_far, _) = listener.accept().await?;
    /// near.set_nodelay(true)?;
    /// assert!(near.nodelay()?);
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.0.set(Opt::Flag(Flag::Nodelay, nodelay))
    }

    /// Returns the time to live of packets, in hops (`IP_TTL`).
    ///
    /// For an IPv6 socket the effect depends on the system: Linux accepts it, for the IPv4 packets
    /// that such a socket may send. To set the hop limit of IPv6 packets, use
    /// `socket2::SockRef::from`.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (_far, _) = listener.accept().await?;
    /// assert!(near.ttl()? > 1);
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.kernel().number(Number::Ttl)
    }

    /// Sets [`ttl`](Self::ttl).
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (_far, _) = listener.accept().await?;
    /// near.set_ttl(1)?; // No router passes its packets on.
    /// assert_eq!(near.ttl()?, 1);
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.set(Opt::Number(Number::Ttl, ttl))
    }

    /// Waits until one of the directions in `interest`, reading or writing, is worth an attempt.
    /// Returns those that are.
    ///
    /// It may complete spuriously; see [`readable`](Self::readable) and
    /// [`writable`](Self::writable) for the conditions.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// use polder::poller::Interest;
    ///
    /// far.try_write(b"hello")?;
    /// let ready = near.ready(Interest::READABLE | Interest::WRITABLE).await?;
    /// if ready.is_writable() {
    ///     near.try_write(b"hello")?;
    /// }
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the backend cannot wait for another socket;
    /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) for an interest that is empty, or
    /// contains anything else.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future has no effect.
    pub async fn ready(&self, interest: Interest) -> io::Result<Interest> {
        self.0.ready(interest).await
    }

    /// Waits until a read is worth an attempt: there are bytes to read, or the end, or an error.
    ///
    /// So no buffer is needed while no bytes arrive. It may complete spuriously, for instance at
    /// first, when nothing is known yet: an attempt that would block makes the next call wait for
    /// an event. Any number of tasks may wait concurrently; all are woken.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// far.try_write(b"hello")?;
    /// loop {
    ///     near.readable().await?; // Nothing is allocated while this waits.
    ///     let mut bytes = vec![0; 64];
    ///     match near.try_read(&mut bytes) {
    ///         Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
    ///         length => break assert_eq!(&bytes[..length?], b"hello"),
    ///     }
    /// }
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the backend cannot wait for another socket.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future has no effect.
    pub async fn readable(&self) -> io::Result<()> {
        self.0.ready_in(Direction::Read).await
    }

    /// [`readable`](Self::readable), for functions that poll.
    ///
    /// A handle remembers one task that polls to read, the last one. Each clone of the socket is a
    /// separate handle.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// use std::future::poll_fn;
    ///
    /// far.try_write(b"hello")?;
    /// poll_fn(|cx| near.poll_read_ready(cx)).await?;
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`readable`](Self::readable).
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.ready_in(Direction::Read).poll(cx)
    }

    /// Reads the available bytes, without waiting. Returns their number; `Ok(0)` means the end, or
    /// an empty buffer.
    ///
    /// It asks the kernel even if the socket does not count as [readable](Self::readable).
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// let mut bytes = [0; 8];
    /// let nothing = near.try_read(&mut bytes).unwrap_err();
    /// assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    /// far.try_write(b"hello")?;
    /// near.readable().await?;
    /// assert_eq!(near.try_read(&mut bytes)?, 5);
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](std::io::ErrorKind::WouldBlock) if there is nothing; any error of the system
    /// call.
    pub fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(bytes)
    }

    /// A hint: whether a [wait](Self::readable) has seen that the peer will send no more, or
    /// reading was shut down here. Unread bytes may remain.
    ///
    /// On a backend with edges it becomes true even while nothing waits: a task that computes an
    /// answer learns that its client is gone. On others it becomes true during a wait, and without
    /// [hints](crate::poller::Capabilities::hints) never. Once true, it stays true; `false` proves
    /// nothing.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// drop(far);
    /// while near.try_read(&mut [0; 8]).is_err() {
    ///     near.readable().await?;
    /// }
    /// println!("the peer is gone: {}", near.is_read_closed());
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn is_read_closed(&self) -> bool {
        self.0.is_read_closed()
    }

    /// [`try_read`](Self::try_read) into several buffers, one after the other.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// use std::io::IoSliceMut;
    ///
    /// far.try_write(b"hello")?;
    /// let (mut head, mut tail) = ([0; 2], [0; 8]);
    /// let mut buffers = [IoSliceMut::new(&mut head), IoSliceMut::new(&mut tail)];
    /// let length = loop {
    ///     near.readable().await?;
    ///     match near.try_read_vectored(&mut buffers) {
    ///         Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
    ///         length => break length?,
    ///     }
    /// };
    /// assert_eq!((length, &head, &tail[..3]), (5, b"he", &b"llo"[..]));
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`try_read`](Self::try_read).
    pub fn try_read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.try_read_vectored(buffers)
    }

    /// Waits for bytes without consuming them: the next read returns the same bytes again. Returns
    /// their number, which is zero at the end.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// far.try_write(b"hello")?;
    /// let mut bytes = [0; 8];
    /// let length = near.peek(&mut bytes).await?;
    /// assert_eq!(near.try_read(&mut bytes)?, length); // They were still there.
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is consumed.
    pub async fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.peek(bytes).await
    }

    /// [`peek`](Self::peek), for functions that poll: see
    /// [`poll_read_ready`](Self::poll_read_ready).
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// use std::future::poll_fn;
    ///
    /// far.try_write(b"hello")?;
    /// let mut bytes = [0; 8];
    /// let length = poll_fn(|cx| near.poll_peek(cx, &mut bytes)).await?;
    /// assert_eq!(near.try_read(&mut bytes)?, length); // They were still there.
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn poll_peek(&self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.poll_peek(cx, bytes)
    }

    /// Waits until a write is worth an attempt: there is room, or an error.
    ///
    /// It may complete spuriously, for instance at first, when nothing is known yet: an attempt
    /// that would block makes the next call wait for an event. Any number of tasks may wait
    /// concurrently; all are woken.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// let written = loop {
    ///     near.writable().await?;
    ///     match near.try_write(b"hello") {
    ///         Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
    ///         length => break length?,
    ///     }
    /// };
    /// assert_eq!(written, 5);
    /// # drop(far);
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the backend cannot wait for another socket.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future has no effect.
    pub async fn writable(&self) -> io::Result<()> {
        self.0.ready_in(Direction::Write).await
    }

    /// [`writable`](Self::writable), for functions that poll.
    ///
    /// A handle remembers one task that polls to write, the last one. Each clone of the socket is a
    /// separate handle.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// use std::future::poll_fn;
    ///
    /// poll_fn(|cx| near.poll_write_ready(cx)).await?;
    /// assert_eq!(near.try_write(b"hello")?, 5);
    /// # drop(far);
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`writable`](Self::writable).
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.ready_in(Direction::Write).poll(cx)
    }

    /// Writes as much as there is room for, without waiting. Returns the number of bytes.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// let full = loop {
    ///     if let Err(error) = near.try_write(&[0; 4096]) {
    ///         break error;
    ///     }
    /// };
    /// assert_eq!(full.kind(), std::io::ErrorKind::WouldBlock);
    /// # drop(far);
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](std::io::ErrorKind::WouldBlock) if there is no room; any error of the system
    /// call.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    /// [`try_write`](Self::try_write) from several buffers, one after the other.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// use std::io::IoSlice;
    ///
    /// let buffers = [IoSlice::new(b"he"), IoSlice::new(b"llo")];
    /// assert_eq!(near.try_write_vectored(&buffers)?, 5);
    /// # drop(far);
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`try_write`](Self::try_write).
    pub fn try_write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_vectored(buffers).attempt()
    }

    /// Calls `operation` once, and returns its result.
    ///
    /// It is meant for a system call on this socket that polder does not know. If that returns
    /// [`WouldBlock`](std::io::ErrorKind::WouldBlock), the next wait for `interest` waits for an
    /// event. So it must not return this for another reason, or the next waiter may wait too long;
    /// and it must operate on this socket, in the directions of `interest`.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// use polder::poller::Interest;
    /// use socket2::SockRef;
    ///
    /// far.try_write(b"hello")?;
    /// let mut bytes = [std::mem::MaybeUninit::uninit(); 8];
    /// let read = loop {
    ///     near.readable().await?;
    ///     let socket = SockRef::from(&near);
    ///     match near.try_io(Interest::READABLE, || socket.recv(&mut bytes)) {
    ///         Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
    ///         read => break read?,
    ///     }
    /// };
    /// assert_eq!(read, 5);
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The operation's error; [`InvalidInput`](std::io::ErrorKind::InvalidInput) for an interest
    /// that is empty, or contains anything other than reading and writing: then it is not called.
    pub fn try_io<R>(
        &self,
        interest: Interest,
        operation: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        self.0.try_io(interest, operation)
    }
}

impl StreamSocket for TcpStream {
    fn from_socket(socket: Socket) -> TcpStream {
        TcpStream(socket)
    }

    fn socket(&self) -> &Socket {
        &self.0
    }
}

impl AsyncRead for TcpStream {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_read(cx, bytes)
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_read_vectored(cx, buffers)
    }
}

/// Nothing is buffered, so flushing does nothing. Closing ends writing.
impl AsyncWrite for TcpStream {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.write_vectored(buffers).poll(cx)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_close()
    }
}

socket!(TcpStream, std::net::TcpStream, [local_addr, peer_addr]);
