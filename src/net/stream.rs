//! TCP connections.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_lite::{AsyncRead, AsyncWrite};

use super::addresses::{AsyncToSocketAddrs, first_that_works};
use super::listener::internet;
use super::socket::Socket;
use super::split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use crate::reactor::{Direction, Kind};
use crate::sys::{OwnedDescriptor, lend_descriptor};

/// A TCP connection.
///
/// Reading and writing come with [`AsyncRead`] and [`AsyncWrite`]. Clones share the connection, so
/// that one task can read while another one writes; it is closed when the last one is dropped.
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
/// A single `read` or `write` that is given up has read or written nothing. Combinators that do
/// several of them (`read_exact`, `write_all`) have done part of their work.
#[derive(Clone)]
pub struct TcpStream(Socket);

impl TcpStream {
    pub(super) fn new(socket: Socket) -> TcpStream {
        TcpStream(socket)
    }

    /// Connects to the first of `address`'s addresses that answers.
    ///
    /// # Errors
    ///
    /// What the system says of the last address tried: [refused](io::ErrorKind::ConnectionRefused),
    /// [timed out](io::ErrorKind::TimedOut) and so on; [`InvalidInput`](io::ErrorKind::InvalidInput)
    /// for an empty list and for text that is no address.
    ///
    /// # Cancel safety
    ///
    /// Giving up closes the socket.
    pub async fn connect(address: impl AsyncToSocketAddrs) -> io::Result<TcpStream> {
        first_that_works(address, Socket::connect)
            .await
            .map(TcpStream)
    }

    /// This end's address.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        internet(self.0.options().local_addr()?)
    }

    /// The other end's address.
    ///
    /// # Errors
    ///
    /// [`NotConnected`](io::ErrorKind::NotConnected) once the connection was reset, on some
    /// platforms.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        internet(self.0.options().peer_addr()?)
    }

    /// Reads without taking: the next read gives the same bytes again.
    ///
    /// # Errors
    ///
    /// What the system says.
    ///
    /// # Cancel safety
    ///
    /// Giving up loses nothing.
    pub async fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0
            .run(Direction::Read, |socket| {
                // SAFETY: `MaybeUninit<u8>` has the layout of `u8`, and `peek` promises to write
                // nothing that is not initialised.
                let bytes = unsafe {
                    &mut *(std::ptr::from_mut::<[u8]>(bytes) as *mut [std::mem::MaybeUninit<u8>])
                };
                socket.peek(bytes)
            })
            .await
    }

    /// Ends reading, writing, or both. The other end sees the end of file once writing has ended.
    ///
    /// # Errors
    ///
    /// [`NotConnected`](io::ErrorKind::NotConnected) where the connection has ended already, on
    /// some platforms.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.options().shutdown(how)?;
        // Not every kernel tells those who wait: completion ports under wine do not.
        self.0.wake_all();
        Ok(())
    }

    /// Whether small writes are sent at once (`TCP_NODELAY`).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.0.options().tcp_nodelay()
    }

    /// Sets [`nodelay`](Self::nodelay).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.0.options().set_tcp_nodelay(nodelay)
    }

    /// How many hops packets may take.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.options().ttl_v4()
    }

    /// Sets [`ttl`](Self::ttl).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.options().set_ttl_v4(ttl)
    }

    /// Both directions, borrowed: for one task that reads and writes at once.
    ///
    /// ```
    /// use polder::io::copy;
    /// use polder::net::{TcpListener, TcpStream};
    ///
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// let (mut stream, _) = listener.accept().await?;
    /// # drop(near);
    /// let (reader, writer) = stream.split();
    /// copy(reader, writer).await?; // an echo
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        ReadHalf::pair(self)
    }

    /// Both directions, owned: for two tasks. Dropping the writing half ends writing.
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        OwnedReadHalf::pair(self)
    }

    pub(super) fn shares_with(&self, other: &TcpStream) -> bool {
        self.0.shares_with(&other.0)
    }

    #[inline]
    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_read(cx, bytes)
    }

    pub(super) fn poll_read_vectored(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_read_vectored(cx, buffers)
    }

    #[inline]
    pub(super) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, bytes)
    }

    pub(super) fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write_vectored(cx, buffers)
    }

    /// What closing a writer means: the other end sees the end of file. That it may have gone is no
    /// failure.
    pub(super) fn poll_close(&self) -> Poll<io::Result<()>> {
        match self.shutdown(Shutdown::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            result => Poll::Ready(result),
        }
    }
}

impl AsyncRead for TcpStream {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        TcpStream::poll_read(&self, cx, bytes)
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        TcpStream::poll_read_vectored(&self, cx, buffers)
    }
}

/// Nothing is buffered, so flushing is at once done. Closing ends writing.
impl AsyncWrite for TcpStream {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        TcpStream::poll_write(&self, cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        TcpStream::poll_write_vectored(&self, cx, buffers)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        TcpStream::poll_close(&self)
    }
}

/// The standard library's stream, taken over, and made non-blocking.
impl TryFrom<std::net::TcpStream> for TcpStream {
    type Error = io::Error;

    fn try_from(stream: std::net::TcpStream) -> io::Result<TcpStream> {
        OwnedDescriptor::from(stream).try_into()
    }
}

/// A descriptor from elsewhere: an error unless it is a TCP socket's. That it is connected shows when
/// it is used.
impl TryFrom<OwnedDescriptor> for TcpStream {
    type Error = io::Error;

    fn try_from(descriptor: OwnedDescriptor) -> io::Result<TcpStream> {
        Ok(TcpStream(Socket::adopt(descriptor, Kind::TcpStream)?))
    }
}

/// The standard library's stream, which stays non-blocking: `set_nonblocking(false)` if it is to
/// block. Clones that are left share it.
impl TryFrom<TcpStream> for std::net::TcpStream {
    type Error = io::Error;

    fn try_from(stream: TcpStream) -> io::Result<std::net::TcpStream> {
        Ok(stream.0.into_descriptor()?.into())
    }
}

lend_descriptor!(TcpStream, |stream| stream.0.descriptor());

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpStream")
            .field("local_addr", &self.local_addr().ok())
            .field("peer_addr", &self.peer_addr().ok())
            .finish()
    }
}
