//! A Unix stream socket, and the names of its halves: their types are in `net/split.rs`.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_lite::{AsyncRead, AsyncWrite};

use super::address::{UCred, from_kernel, from_path, to_kernel};
use crate::net::macros::socket;
use crate::net::socket::{Flag, Opt, Socket, SocketType, StreamSocket, kernel};
use crate::net::split;
use crate::poller::Interest;
use crate::reactor::Direction;

/// A connection between two processes of one machine, or within one.
///
/// Reading, writing and clones are as for [`TcpStream`](crate::net::TcpStream).
///
/// On systems that can refuse descriptors, a peer can send them with its bytes only if
/// [`set_passrights`](Self::set_passrights) allows it. [`recv_fds`](Self::recv_fds) receives them;
/// reading closes them.
///
/// # Examples
///
/// ```
/// use polder::io::{AsyncReadExt, AsyncWriteExt};
/// use polder::net::unix::UnixStream;
///
/// polder::block_on(async {
///     let (mut near, mut far) = UnixStream::pair()?;
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
/// Cancel safe, as [`TcpStream`](crate::net::TcpStream) is.
#[derive(Clone)]
#[doc(alias("from_std", "into_std", "uds"))]
pub struct UnixStream(pub(super) Socket);

impl UnixStream {
    /// Connects to the listener at `path`.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-stream-connect-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::net::unix::{UnixListener, UnixStream};
    /// use std::io::ErrorKind;
    ///
    /// polder::block_on(async {
    ///     let error = UnixStream::connect(&path).await.unwrap_err();
    ///     assert_eq!(error.kind(), ErrorKind::NotFound); // There is no listener yet.
    ///     let listener = UnixListener::bind(&path)?;
    ///     let stream = UnixStream::connect(&path).await?;
    ///     assert_eq!(stream.peer_addr()?.as_pathname(), Some(path.as_path()));
    /// # drop(listener);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call: [not found](io::ErrorKind::NotFound),
    /// [refused](io::ErrorKind::ConnectionRefused) if there is no listener any more, and so on;
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for a path that is empty, too long (about 100
    /// bytes) or has a NUL.
    ///
    /// # Platforms
    ///
    /// When the listener's queue is full, Linux returns an error and never signals room, so this
    /// retries every few milliseconds. Other systems refuse.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future closes the socket.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<UnixStream> {
        UnixStream::connect_addr(&from_path(path.as_ref())?).await
    }

    /// Connects to the listener at `address`, which may be an abstract one.
    ///
    /// ```
    /// # #[cfg(target_os = "linux")] {
    /// use polder::net::unix::{SocketAddr, UnixListener, UnixStream};
    /// use std::os::linux::net::SocketAddrExt;
    ///
    /// polder::block_on(async {
    ///     let name = format!("polder-example-{}", std::process::id());
    ///     let address = SocketAddr::from_abstract_name(name)?;
    ///     let listener = UnixListener::bind_addr(&address)?;
    ///     let stream = UnixStream::connect_addr(&address).await?;
    ///     assert!(stream.peer_addr()?.as_abstract_name().is_some());
    ///     # drop(listener);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future closes the socket.
    pub async fn connect_addr(address: &SocketAddr) -> io::Result<UnixStream> {
        let address = to_kernel(address)?;
        kernel::connect(SocketType::UnixStream, &address)
            .await
            .map(UnixStream)
    }

    /// Connects a socket with options set before, which may be bound.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-stream-with-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::net::unix::{UnixListener, UnixStream};
    /// use socket2::{Domain, Socket, Type};
    ///
    /// polder::block_on(async {
    ///     let listener = UnixListener::bind(&path)?;
    ///     let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    ///     socket.set_send_buffer_size(1 << 16)?;
    ///     let _stream = UnixStream::connect_with(socket, &listener.local_addr()?).await?;
    ///     assert!(listener.accept().await.is_ok());
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect); [`InvalidInput`](io::ErrorKind::InvalidInput) if it is
    /// not a Unix stream's socket.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future closes the socket.
    pub async fn connect_with(
        socket: impl Into<OwnedFd>,
        address: &SocketAddr,
    ) -> io::Result<UnixStream> {
        let address = to_kernel(address)?;
        kernel::connect_with(socket.into(), SocketType::UnixStream, &address)
            .await
            .map(UnixStream)
    }

    /// Creates two connected streams without addresses.
    ///
    /// ```
    /// use polder::io::{AsyncReadExt, AsyncWriteExt};
    /// use polder::net::unix::UnixStream;
    ///
    /// polder::block_on(async {
    ///     let (mut near, mut far) = UnixStream::pair()?;
    ///     near.write_all(b"hello").await?;
    ///     let mut bytes = [0; 5];
    ///     far.read_exact(&mut bytes).await?;
    ///     assert_eq!(&bytes, b"hello");
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call, for instance that no descriptor is left.
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        let (a, b) = kernel::pair(SocketType::UnixStream)?;
        Ok((UnixStream(a), UnixStream(b)))
    }

    /// Returns the local address; the connecting end usually has none.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-stream-local-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::net::unix::{UnixListener, UnixStream};
    ///
    /// polder::block_on(async {
    ///     let listener = UnixListener::bind(&path)?;
    ///     let near = UnixStream::connect(&path).await?;
    ///     let (far, _) = listener.accept().await?;
    ///     assert!(near.local_addr()?.is_unnamed());
    ///     assert_eq!(far.local_addr()?.as_pathname(), Some(path.as_path()));
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        from_kernel(self.0.kernel_socket().local_addr()?)
    }

    /// Returns the peer's address.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-stream-peer-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::net::unix::{UnixListener, UnixStream};
    ///
    /// polder::block_on(async {
    ///     let listener = UnixListener::bind(&path)?;
    ///     let near = UnixStream::connect(&path).await?;
    ///     let (far, _) = listener.accept().await?;
    ///     assert_eq!(near.peer_addr()?.as_pathname(), Some(path.as_path()));
    ///     assert!(far.peer_addr()?.is_unnamed());
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotConnected`](io::ErrorKind::NotConnected) once the peer is gone, on some platforms.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        from_kernel(self.0.kernel_socket().peer_addr()?)
    }

    /// Returns the peer's credentials as they were when the connection was made, of the process
    /// that connected, listened, or made the pair.
    ///
    /// ```
    /// # #[cfg(target_os = "linux")] {
    /// use polder::net::unix::UnixStream;
    ///
    /// let (near, _far) = UnixStream::pair()?;
    /// assert_eq!(near.peer_cred()?.pid(), Some(std::process::id() as i32));
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call; [`Unsupported`](io::ErrorKind::Unsupported) on systems that do
    /// not report them.
    ///
    /// # Platforms
    ///
    /// The process is known only on Linux and Android. illumos and Solaris report nothing.
    #[doc(alias = "SO_PEERCRED")]
    pub fn peer_cred(&self) -> io::Result<UCred> {
        UCred::of(&self.0)
    }

    /// Whether the peer may send descriptors with its bytes (`SO_PASSRIGHTS`).
    ///
    /// ```
    /// use polder::net::unix::UnixStream;
    ///
    /// let (near, _far) = UnixStream::pair()?;
    /// near.set_passrights(true)?;
    /// assert!(near.passrights()?);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    ///
    /// # Platforms
    ///
    /// Linux 6.16 and later can refuse them, and polder's own streams do: the peer's `sendmsg`
    /// fails with `EPERM`. So no peer can fill this process with unwanted descriptors, and a read
    /// is a plain `recv`. On other systems this is always `true`. An adopted stream keeps its
    /// setting.
    #[doc(alias = "SO_PASSRIGHTS")]
    #[doc(alias = "SCM_RIGHTS")]
    pub fn passrights(&self) -> io::Result<bool> {
        self.0.kernel_socket().flag(Flag::Passrights)
    }

    /// Sets [`passrights`](Self::passrights).
    ///
    /// To accept descriptors from the first byte on, set it on the
    /// [listener](super::UnixListener::set_passrights), or connect a socket of your own with
    /// [`connect_with`](Self::connect_with): a refused message is not sent again.
    ///
    /// ```
    /// use polder::net::unix::UnixStream;
    ///
    /// let (near, _far) = UnixStream::pair()?;
    /// near.set_passrights(true)?; // And `recv_fds` receives them.
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call; [`Unsupported`](io::ErrorKind::Unsupported) for `false` on
    /// systems that cannot refuse them.
    pub fn set_passrights(&self, passrights: bool) -> io::Result<()> {
        self.0.set(Opt::Flag(Flag::Passrights, passrights))
    }

    /// Shuts down reading, writing, or both. Shutting down writing sends the end of file. A
    /// direction that was shut down or closed before, by any handle, is skipped.
    ///
    /// ```
    /// use polder::io::AsyncReadExt;
    /// use polder::net::Shutdown;
    /// use polder::net::unix::UnixStream;
    ///
    /// polder::block_on(async {
    ///     let (near, mut far) = UnixStream::pair()?;
    ///     near.shutdown(Shutdown::Write)?;
    ///     assert_eq!(far.read(&mut [0; 8]).await?, 0); // The end of file.
    ///     std::io::Result::Ok(())
    /// })?;
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

    /// Waits until the stream can be read or written: see
    /// [`TcpStream::ready`](crate::net::TcpStream::ready).
    ///
    /// ```
    /// # use polder::net::unix::UnixStream;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixStream::pair()?;
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
    /// As [`TcpStream::ready`](crate::net::TcpStream::ready).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future has no effect.
    pub async fn ready(&self, interest: Interest) -> io::Result<Interest> {
        self.0.ready(interest).await
    }

    /// Waits until the stream can be read: see
    /// [`TcpStream::readable`](crate::net::TcpStream::readable).
    ///
    /// ```
    /// # use polder::net::unix::UnixStream;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixStream::pair()?;
    /// far.try_write(b"hello")?;
    /// near.readable().await?; // Now a `try_read` is worthwhile.
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

    /// Poll version of [`readable`](Self::readable): see
    /// [`TcpStream::poll_read_ready`](crate::net::TcpStream::poll_read_ready).
    ///
    /// ```
    /// # use polder::net::unix::UnixStream;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixStream::pair()?;
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

    /// Reads the available bytes without waiting: see
    /// [`TcpStream::try_read`](crate::net::TcpStream::try_read).
    ///
    /// ```
    /// # use polder::net::unix::UnixStream;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixStream::pair()?;
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

    /// Whether the peer is known to send no more: see
    /// [`TcpStream::is_read_closed`](crate::net::TcpStream::is_read_closed).
    ///
    /// ```
    /// # use polder::net::unix::UnixStream;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixStream::pair()?;
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
    /// # use polder::net::unix::UnixStream;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixStream::pair()?;
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

    /// Copies bytes without consuming them: see [`TcpStream::peek`](crate::net::TcpStream::peek).
    ///
    /// ```
    /// # use polder::net::unix::UnixStream;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixStream::pair()?;
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
    /// # use polder::net::unix::UnixStream;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixStream::pair()?;
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

    /// Waits until the stream can be written: see
    /// [`TcpStream::writable`](crate::net::TcpStream::writable).
    ///
    /// ```
    /// # use polder::net::unix::UnixStream;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixStream::pair()?;
    /// near.writable().await?;
    /// assert_eq!(near.try_write(b"hello")?, 5);
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

    /// Poll version of [`writable`](Self::writable): see
    /// [`TcpStream::poll_write_ready`](crate::net::TcpStream::poll_write_ready).
    ///
    /// ```
    /// # use polder::net::unix::UnixStream;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixStream::pair()?;
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
    /// # use polder::net::unix::UnixStream;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixStream::pair()?;
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
    /// # use polder::net::unix::UnixStream;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixStream::pair()?;
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

    /// Calls `operation` once and returns its result: see
    /// [`TcpStream::try_io`](crate::net::TcpStream::try_io).
    ///
    /// ```
    /// # use polder::net::unix::UnixStream;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixStream::pair()?;
    /// use polder::poller::Interest;
    /// use socket2::SockRef;
    ///
    /// let send = || SockRef::from(&near).send(b"hello");
    /// assert_eq!(near.try_io(Interest::WRITABLE, send)?, 5);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`TcpStream::try_io`](crate::net::TcpStream::try_io).
    pub fn try_io<R>(
        &self,
        interest: Interest,
        operation: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        self.0.try_io(interest, operation)
    }

    /// Splits the stream into borrowed halves: see
    /// [`TcpStream::split`](crate::net::TcpStream::split).
    ///
    /// ```
    /// use polder::io::copy;
    /// use polder::net::unix::UnixStream;
    ///
    /// # polder::block_on(async {
    /// let (near, mut far) = UnixStream::pair()?;
    /// # drop(near);
    /// let (reader, writer) = far.split();
    /// copy(reader, writer).await?; // an echo
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        ReadHalf::pair(self)
    }

    /// Splits the stream into owned halves: see
    /// [`TcpStream::into_split`](crate::net::TcpStream::into_split).
    ///
    /// ```
    /// use polder::io::{AsyncReadExt, AsyncWriteExt};
    /// use polder::net::unix::UnixStream;
    ///
    /// polder::block_on(async {
    ///     let (near, mut far) = UnixStream::pair()?;
    ///     let (mut reader, mut writer) = near.into_split();
    ///     let sender = polder::spawn(async move { writer.write_all(b"ping").await });
    ///     far.write_all(b"pong").await?;
    ///     let mut bytes = [0; 4];
    ///     reader.read_exact(&mut bytes).await?;
    ///     sender.await?; // Its half is dropped: the other end sees the end after these bytes.
    ///     let mut all = Vec::new();
    ///     far.read_to_end(&mut all).await?;
    ///     assert_eq!((&bytes, &all[..]), (b"pong", &b"ping"[..]));
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        OwnedReadHalf::pair(self)
    }
}

impl StreamSocket for UnixStream {
    fn from_socket(socket: Socket) -> UnixStream {
        UnixStream(socket)
    }

    fn socket(&self) -> &Socket {
        &self.0
    }
}

impl AsyncRead for UnixStream {
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
impl AsyncWrite for UnixStream {
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

socket!(
    UnixStream,
    std::os::unix::net::UnixStream,
    [local_addr, peer_addr]
);

/// The read half of a [`UnixStream`], borrowed: see [`UnixStream::split`].
///
/// ```
/// use polder::io::{AsyncReadExt, AsyncWriteExt};
/// use polder::net::unix::{ReadHalf, UnixStream};
///
/// polder::block_on(async {
///     async fn line(mut reader: ReadHalf<'_>) -> std::io::Result<[u8; 5]> {
///         let mut bytes = [0; 5];
///         reader.read_exact(&mut bytes).await.map(|()| bytes)
///     }
///
///     let (mut near, mut far) = UnixStream::pair()?;
///     far.write_all(b"hello").await?;
///     let (reader, _writer) = near.split();
///     assert_eq!(&line(reader).await?, b"hello");
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
pub type ReadHalf<'a> = split::ReadHalf<'a, UnixStream>;

/// The write half of a [`UnixStream`], borrowed: see [`UnixStream::split`].
///
/// ```
/// use polder::io::{AsyncReadExt, AsyncWriteExt};
/// use polder::net::unix::{UnixStream, WriteHalf};
///
/// polder::block_on(async {
///     async fn greet(mut writer: WriteHalf<'_>) -> std::io::Result<()> {
///         writer.write_all(b"hello").await
///     }
///
///     let (mut near, mut far) = UnixStream::pair()?;
///     let (_reader, writer) = near.split();
///     greet(writer).await?;
///     assert_eq!(far.read(&mut [0; 8]).await?, 5);
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
pub type WriteHalf<'a> = split::WriteHalf<'a, UnixStream>;

/// The read half of a [`UnixStream`], owned: see [`UnixStream::into_split`].
///
/// ```
/// use polder::io::{AsyncReadExt, AsyncWriteExt};
/// use polder::net::unix::{OwnedReadHalf, UnixStream};
///
/// polder::block_on(async {
///     async fn count(mut reader: OwnedReadHalf) -> std::io::Result<usize> {
///         reader.read_to_end(&mut Vec::new()).await
///     }
///
///     let (near, mut far) = UnixStream::pair()?;
///     let (reader, _writer) = near.into_split();
///     let task = polder::spawn(count(reader));
///     far.write_all(b"hello").await?;
///     drop(far);
///     assert_eq!(task.await?, 5);
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
pub type OwnedReadHalf = split::OwnedReadHalf<UnixStream>;

/// The write half of a [`UnixStream`], owned: see [`UnixStream::into_split`].
///
/// ```
/// use polder::io::{AsyncReadExt, AsyncWriteExt};
/// use polder::net::unix::{OwnedWriteHalf, UnixStream};
///
/// polder::block_on(async {
///     async fn greet(mut writer: OwnedWriteHalf) -> std::io::Result<()> {
///         writer.write_all(b"hello").await
///     }
///
///     let (near, mut far) = UnixStream::pair()?;
///     let (_reader, writer) = near.into_split();
///     polder::spawn(greet(writer)).await?; // This drops the writer.
///     let mut text = String::new();
///     far.read_to_string(&mut text).await?;
///     assert_eq!(text, "hello");
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
pub type OwnedWriteHalf = split::OwnedWriteHalf<UnixStream>;

/// The error of [`reunite`](crate::net::OwnedReadHalf::reunite): halves of different streams.
///
/// ```
/// use polder::net::unix::{ReuniteError, UnixStream};
///
/// let (one, other) = UnixStream::pair()?;
/// let ((reader, writer), (_, foreign)) = (one.into_split(), other.into_split());
/// let error: ReuniteError = reader.reunite(foreign).unwrap_err();
/// let reader = error.0;
/// assert!(reader.reunite(writer).is_ok());
/// # std::io::Result::Ok(())
/// ```
pub type ReuniteError = split::ReuniteError<UnixStream>;
