//! A TCP connection.

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
/// It is read and written by [`AsyncRead`] and [`AsyncWrite`]. Clones share the connection, so one
/// task can read while another writes; dropping the last one closes it.
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
/// Cancel safe: a dropped `read` or `write` has read or written nothing. A dropped combinator of
/// several (`read_exact`, `write_all`) may have done part of its work.
#[derive(Clone)]
#[doc(alias("from_std", "into_std"))]
pub struct TcpStream(pub(super) Socket);

impl TcpStream {
    /// Opens a connection to the first of `address`'s addresses that answers.
    ///
    /// Several addresses are raced as RFC 8305 ("Happy Eyeballs") says, alternating between IPv6
    /// and IPv4 from the first one on. The next attempt starts when one fails, or has not answered
    /// for 250 ms; the first to connect wins, and the others are cancelled.
    ///
    /// ```
    /// use polder::net::{TcpListener, TcpStream};
    ///
    /// polder::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let address = listener.local_addr()?;
    ///     let stream = TcpStream::connect(address).await?;
    ///     assert_eq!(stream.peer_addr()?, address);
    ///     // A host name works too.
    ///     let stream = TcpStream::connect(("127.0.0.1", address.port())).await?;
    ///     assert_eq!(stream.peer_addr()?, address);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The system's error for the address that failed last, such as
    /// [refused](io::ErrorKind::ConnectionRefused) or [timed out](io::ErrorKind::TimedOut);
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for an empty list; the errors of
    /// [`resolve`](crate::net::resolve).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future closes the socket; for a name, see
    /// [`resolve`](crate::net::resolve).
    pub async fn connect(address: impl AsyncToSocketAddrs) -> io::Result<TcpStream> {
        first_to_connect(address).await.map(TcpStream)
    }

    /// Opens a connection within `duration`, including the lookup of a name. The addresses are
    /// tried one after the other, each for an equal share of the time that is left.
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
    /// As [`connect`](Self::connect); [`TimedOut`](io::ErrorKind::TimedOut) if the last address did
    /// not answer, or the name was not resolved, in time.
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    #[doc(alias = "timeout")]
    pub async fn connect_timeout(
        address: impl AsyncToSocketAddrs,
        duration: Duration,
    ) -> io::Result<TcpStream> {
        let connect = first_to_connect_within(duration, address);
        connect.await.map(TcpStream)
    }

    /// Connects a socket with options set before, which may be bound: see [the module](crate::net).
    ///
    /// ```
    /// use polder::net::{TcpListener, TcpStream};
    /// use socket2::{Domain, Socket, Type};
    ///
    /// polder::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    ///     socket.set_recv_buffer_size(1 << 16)?; // Only effective before connecting.
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
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        internet(self.0.kernel_socket().local_addr()?)
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
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotConnected`](io::ErrorKind::NotConnected) on some platforms (Linux among them) once the
    /// connection was reset, or has ended in both directions.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        internet(self.0.kernel_socket().peer_addr()?)
    }

    /// Shuts down reading, writing, or both. Shutting down writing sends the end of file. A
    /// direction that was shut down or closed before, by any handle, is skipped.
    ///
    /// Bytes may still arrive after reading was shut down. Linux delivers them (a read returns zero
    /// only while there are none), and answers them with a reset once both directions are shut
    /// down; other systems may discard them. To stop reading, drop the stream instead.
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
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotConnected`](io::ErrorKind::NotConnected) if the connection has ended already, on some
    /// platforms.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }

    /// Returns how long closing may take to send the written bytes (`SO_LINGER`). `None`, the
    /// default: the system sends them after closing.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// assert_eq!(stream.linger()?, None);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.0.kernel_socket().linger()
    }

    /// Sets [`linger`](Self::linger), in whole seconds.
    ///
    /// Zero makes closing discard unsent bytes and reset the connection. With a longer time,
    /// **dropping the last handle blocks its thread** for up to that time on most systems, although
    /// the socket is non-blocking: wait for the peer's end of file instead. Times beyond the
    /// system's maximum are capped.
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
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
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
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.0.kernel_socket().flag(Flag::Nodelay)
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
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
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
    /// For an IPv6 socket the effect depends on the system: on Linux it is for the IPv4 packets
    /// that such a socket may send. For the hop limit of IPv6 packets use `socket2::SockRef::from`.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (_far, _) = listener.accept().await?;
    /// assert!(near.ttl()? > 1);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.kernel_socket().number(Number::Ttl)
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
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.set(Opt::Number(Number::Ttl, ttl))
    }

    /// Waits until the stream can be read or written, as `interest` says. Returns the directions
    /// that are ready.
    ///
    /// It may complete spuriously: see [`readable`](Self::readable).
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
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`readable`](Self::readable); [`InvalidInput`](std::io::ErrorKind::InvalidInput) for an
    /// `interest` other than reading, writing or both.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future has no effect.
    pub async fn ready(&self, interest: Interest) -> io::Result<Interest> {
        self.0.ready(interest).await
    }

    /// Waits until the stream can be read: there are bytes, the end of file, or an error.
    ///
    /// So an idle connection needs no buffer. It may complete spuriously, for instance at the first
    /// call: an attempt that would block makes the next call wait for an event. Any number of tasks
    /// may wait; all are woken.
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
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
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

    /// Poll version of [`readable`](Self::readable).
    ///
    /// Only the last task that polled to read is woken; each clone of the stream has such a task of
    /// its own.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// far.try_write(b"hello")?;
    /// std::future::poll_fn(|cx| near.poll_read_ready(cx)).await?;
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`readable`](Self::readable).
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.ready_in(Direction::Read).poll(cx)
    }

    /// Reads the available bytes without waiting. Returns their number; `Ok(0)` means the end of
    /// file, or an empty buffer.
    ///
    /// It makes the system call even if the stream is not known to be [readable](Self::readable).
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
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is nothing; any error of the system call.
    pub fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(bytes)
    }

    /// Whether a [wait](Self::readable) has seen that the peer sends no more, or that reading was
    /// shut down here. This is a hint, and unread bytes may remain.
    ///
    /// Once true, it stays true; `false` proves nothing. On an edge-triggered backend it becomes
    /// true even while nothing waits, so a task that computes an answer learns that its client is
    /// gone. On others it becomes true during a wait, and without
    /// [hints](crate::poller::Capabilities::hints) never.
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
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    pub fn is_read_closed(&self) -> bool {
        self.0.is_read_closed()
    }

    /// [`try_read`](Self::try_read) into several buffers.
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
    /// near.peek(&mut [0]).await?; // Waits for them.
    /// let length = near.try_read_vectored(&mut buffers)?;
    /// assert_eq!((length, &head, &tail[..3]), (5, b"he", &b"llo"[..]));
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`try_read`](Self::try_read).
    pub fn try_read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.try_read_vectored(buffers)
    }

    /// Waits for bytes, and copies them without consuming them. Returns their number, which is zero
    /// at the end of file.
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
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
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

    /// Poll version of [`peek`](Self::peek): see [`poll_read_ready`](Self::poll_read_ready).
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// far.try_write(b"hello")?;
    /// let mut bytes = [0; 8];
    /// let length = std::future::poll_fn(|cx| near.poll_peek(cx, &mut bytes)).await?;
    /// assert_eq!(near.try_read(&mut bytes)?, length); // They were still there.
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn poll_peek(&self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.poll_peek(cx, bytes)
    }

    /// Waits until the stream can be written: there is room, or an error.
    ///
    /// It may complete spuriously, and any number of tasks may wait: see
    /// [`readable`](Self::readable).
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// let written = loop {
    ///     near.writable().await?;
    ///     match near.try_write(b"hello") {
    ///         Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
    ///         length => break length?,
    ///     }
    /// };
    /// assert_eq!(written, 5);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
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

    /// Poll version of [`writable`](Self::writable).
    ///
    /// Only the last task that polled to write is woken: see
    /// [`poll_read_ready`](Self::poll_read_ready).
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// std::future::poll_fn(|cx| near.poll_write_ready(cx)).await?;
    /// assert_eq!(near.try_write(b"hello")?, 5);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`writable`](Self::writable).
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.ready_in(Direction::Write).poll(cx)
    }

    /// Writes as many bytes as there is room for, without waiting. Returns their number.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// let full = loop {
    ///     if let Err(error) = near.try_write(&[0; 4096]) {
    ///         break error;
    ///     }
    /// };
    /// assert_eq!(full.kind(), std::io::ErrorKind::WouldBlock);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room; any error of the system call.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    /// [`try_write`](Self::try_write) from several buffers.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// use std::io::IoSlice;
    ///
    /// let buffers = [IoSlice::new(b"he"), IoSlice::new(b"llo")];
    /// assert_eq!(near.try_write_vectored(&buffers)?, 5);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`try_write`](Self::try_write).
    pub fn try_write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_vectored(buffers).attempt()
    }

    /// Calls `operation` once and returns its result.
    ///
    /// It is for system calls on this socket that polder does not know. If the result is
    /// [`WouldBlock`](std::io::ErrorKind::WouldBlock), the next wait for `interest` waits for an
    /// event. So `operation` must be a call on this socket in the directions of `interest`, and
    /// return `WouldBlock` for no other reason, or the next waiter may wait too long.
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
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The operation's error; [`InvalidInput`](std::io::ErrorKind::InvalidInput) for an `interest`
    /// other than reading, writing or both: then `operation` is not called.
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
