//! A Unix datagram socket.

use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::task::{Context, Poll};

use super::address::{UCred, from_kernel, from_path, not_bound, to_kernel};
use crate::net::macros::socket;
use crate::net::socket::{Address, Receive, Socket, SocketType, kernel};
use crate::poller::Interest;
use crate::reactor::Direction;

/// A Unix datagram socket: messages between processes of one machine, neither lost nor reordered.
///
/// Tasks and clones share it as a [`UdpSocket`](crate::net::UdpSocket). **The file at its path
/// stays**, as with the standard library.
///
/// # Examples
///
/// ```
/// use polder::net::unix::UnixDatagram;
///
/// polder::block_on(async {
///     let (near, far) = UnixDatagram::pair()?;
///     near.send(b"ping").await?;
///     let mut bytes = [0; 64];
///     let length = far.recv(&mut bytes).await?;
///     assert_eq!(&bytes[..length], b"ping");
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Cancel safety
///
/// Cancel safe, as [`UdpSocket`](crate::net::UdpSocket) is.
///
/// # Platforms
///
/// A datagram longer than the buffer is truncated. When the receiver's queue is full, a send waits
/// on Linux (retrying every few milliseconds unless the socket is connected to the receiver), and
/// fails with `ENOBUFS` on the BSDs and Apple's systems.
///
/// After the peer is gone, Linux fails the next send ([refused](io::ErrorKind::ConnectionRefused));
/// a pending receive continues to wait.
#[derive(Clone)]
#[doc(alias("from_std", "into_std", "uds"))]
pub struct UnixDatagram(Socket);

impl UnixDatagram {
    /// Binds to `path`, and creates a file there.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-datagram-bind-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::net::unix::UnixDatagram;
    ///
    /// let mailbox = UnixDatagram::bind(&path)?;
    /// assert_eq!(mailbox.local_addr()?.as_pathname(), Some(path.as_path()));
    /// drop(mailbox);
    /// assert!(UnixDatagram::bind(&path).is_err()); // Its file still exists.
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call: [in use](io::ErrorKind::AddrInUse) if the file exists;
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) as for
    /// [`UnixStream::connect`](super::UnixStream::connect).
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixDatagram> {
        UnixDatagram::bind_addr(&from_path(path.as_ref())?)
    }

    /// Binds to `address`, which may be an abstract one.
    ///
    /// ```
    /// # #[cfg(target_os = "linux")] {
    /// use polder::net::unix::{SocketAddr, UnixDatagram};
    /// use std::os::linux::net::SocketAddrExt;
    ///
    /// let name = format!("polder-mailbox-{}", std::process::id());
    /// let mailbox = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    /// let address = mailbox.local_addr()?;
    /// assert_eq!(address.as_abstract_name(), Some(name.as_bytes())); // There is no file.
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`bind`](Self::bind).
    pub fn bind_addr(address: &SocketAddr) -> io::Result<UnixDatagram> {
        let bound = kernel::bind(SocketType::UnixDatagram, &to_kernel(address)?);
        bound
            .map(UnixDatagram)
            .map_err(|error| not_bound("bind", address, error))
    }

    /// [`bind_addr`](Self::bind_addr) for a socket with options set before.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-datagram-with-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::net::unix::{SocketAddr, UnixDatagram};
    /// use socket2::{Domain, Socket, Type};
    ///
    /// let socket = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
    /// socket.set_recv_buffer_size(1 << 16)?;
    /// let mailbox = UnixDatagram::bind_with(socket, &SocketAddr::from_pathname(&path)?)?;
    /// assert!(!mailbox.local_addr()?.is_unnamed());
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`bind`](Self::bind); [`InvalidInput`](io::ErrorKind::InvalidInput) if it is not such
    /// a socket.
    pub fn bind_with(socket: impl Into<OwnedFd>, address: &SocketAddr) -> io::Result<UnixDatagram> {
        let address = to_kernel(address)?;
        kernel::bind_with(socket.into(), SocketType::UnixDatagram, &address).map(UnixDatagram)
    }

    /// Creates a socket without an address: it can send, but receivers cannot answer.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-unbound-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::net::unix::UnixDatagram;
    ///
    /// polder::block_on(async {
    ///     let mailbox = UnixDatagram::bind(&path)?;
    ///     UnixDatagram::unbound()?.send_to(b"hello", &path).await?;
    ///     let mut bytes = [0; 8];
    ///     let (length, from) = mailbox.recv_from(&mut bytes).await?;
    ///     assert_eq!(&bytes[..length], b"hello");
    ///     assert!(from.is_unnamed());
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call, for instance that no descriptor is left.
    pub fn unbound() -> io::Result<UnixDatagram> {
        kernel::unbound(SocketType::UnixDatagram).map(UnixDatagram)
    }

    /// Creates two connected sockets without addresses.
    ///
    /// ```
    /// use polder::net::unix::UnixDatagram;
    ///
    /// polder::block_on(async {
    ///     let (near, far) = UnixDatagram::pair()?;
    ///     near.send(b"hello").await?;
    ///     let mut bytes = [0; 8];
    ///     assert_eq!(far.recv(&mut bytes).await?, 5);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call, for instance that no descriptor is left.
    pub fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
        let (a, b) = kernel::pair(SocketType::UnixDatagram)?;
        Ok((UnixDatagram(a), UnixDatagram(b)))
    }

    /// Sets the peer that [`send`](Self::send) sends to. From then on only its datagrams are
    /// received.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-datagram-connect-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::net::unix::UnixDatagram;
    ///
    /// polder::block_on(async {
    ///     let mailbox = UnixDatagram::bind(&path)?;
    ///     let sender = UnixDatagram::unbound()?;
    ///     sender.connect(&path)?;
    ///     sender.send(b"hello").await?;
    ///     assert_eq!(mailbox.recv(&mut [0; 8]).await?, 5);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`UnixStream::connect`](super::UnixStream::connect).
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.connect_addr(&from_path(path.as_ref())?)
    }

    /// [`connect`](Self::connect) to an address, which may be an abstract one.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-datagram-address-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::net::unix::UnixDatagram;
    ///
    /// polder::block_on(async {
    ///     let mailbox = UnixDatagram::bind(&path)?;
    ///     let sender = UnixDatagram::unbound()?;
    ///     sender.connect_addr(&mailbox.local_addr()?)?;
    ///     sender.send(b"hello").await?;
    ///     assert_eq!(mailbox.recv(&mut [0; 8]).await?, 5);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    pub fn connect_addr(&self, address: &SocketAddr) -> io::Result<()> {
        self.0.kernel_socket().set_peer(&to_kernel(address)?)
    }

    /// Receives a datagram. Returns its length and its sender's address.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-datagram-from-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::net::unix::UnixDatagram;
    ///
    /// polder::block_on(async {
    ///     let mailbox = UnixDatagram::bind(&path)?;
    ///     mailbox.send_to(b"to myself", &path).await?;
    ///     let mut bytes = [0; 16];
    ///     let (length, from) = mailbox.recv_from(&mut bytes).await?;
    ///     assert_eq!(&bytes[..length], b"to myself");
    ///     assert_eq!(from.as_pathname(), Some(path.as_path()));
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future loses no datagram.
    pub async fn recv_from(&self, bytes: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        from_unix(self.0.recv_from(bytes, Receive::Take).await?)
    }

    /// Receives a datagram. Returns its length.
    ///
    /// ```
    /// use polder::net::unix::UnixDatagram;
    ///
    /// polder::block_on(async {
    ///     let (near, far) = UnixDatagram::pair()?;
    ///     far.send(b"hello").await?;
    ///     let mut bytes = [0; 8];
    ///     let length = near.recv(&mut bytes).await?;
    ///     assert_eq!(&bytes[..length], b"hello");
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future loses no datagram.
    pub async fn recv(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.recv(bytes, Receive::Take).await
    }

    /// Sends a datagram to the socket at `path`. Waits until there is room for it.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-datagram-to-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::net::unix::UnixDatagram;
    ///
    /// polder::block_on(async {
    ///     let sender = UnixDatagram::unbound()?;
    ///     let error = sender.send_to(b"hello", &path).await.unwrap_err();
    ///     assert_eq!(error.kind(), std::io::ErrorKind::NotFound); // There is no receiver yet.
    ///     let mailbox = UnixDatagram::bind(&path)?;
    ///     sender.send_to(b"hello", &path).await?;
    ///     assert_eq!(mailbox.recv(&mut [0; 8]).await?, 5);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call, for instance that the datagram is too long; those of
    /// [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped future has sent nothing.
    pub async fn send_to(&self, bytes: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        self.send_to_addr(bytes, &from_path(path.as_ref())?).await
    }

    /// [`send_to`](Self::send_to) an address, which may be an abstract one.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-datagram-to-address-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::net::unix::UnixDatagram;
    ///
    /// polder::block_on(async {
    ///     let mailbox = UnixDatagram::bind(&path)?;
    ///     let address = mailbox.local_addr()?;
    ///     UnixDatagram::unbound()?.send_to_addr(b"hello", &address).await?;
    ///     assert_eq!(mailbox.recv(&mut [0; 8]).await?, 5);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`send_to`](Self::send_to).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped future has sent nothing.
    pub async fn send_to_addr(&self, bytes: &[u8], address: &SocketAddr) -> io::Result<usize> {
        let address = to_kernel(address)?;
        self.0.send_to(bytes, &address).await
    }

    /// Sends a datagram to the [peer](Self::connect). Waits until there is room for it.
    ///
    /// ```
    /// use polder::net::unix::UnixDatagram;
    ///
    /// polder::block_on(async {
    ///     let (near, far) = UnixDatagram::pair()?;
    ///     near.send(b"one").await?;
    ///     near.send(b"three").await?;
    ///     let mut bytes = [0; 8];
    ///     assert_eq!(far.recv(&mut bytes).await?, 3); // One message at a time.
    ///     assert_eq!(far.recv(&mut bytes).await?, 5);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call, for instance that there is no peer.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped future has sent nothing.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes, None).await
    }

    /// Sends a datagram to the socket at `path`, without waiting.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-try-send-to-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::net::unix::UnixDatagram;
    ///
    /// polder::block_on(async {
    ///     let mailbox = UnixDatagram::bind(&path)?;
    ///     UnixDatagram::unbound()?.try_send_to(b"hello", &path)?;
    ///     assert_eq!(mailbox.recv(&mut [0; 8]).await?, 5);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room in this socket's buffer or in
    /// the receiver's queue. [`writable`](Self::writable) covers the queue only if the two are
    /// connected, so a loop of both would not sleep; [`send_to`](Self::send_to) waits for both. Any
    /// error of the system call.
    pub fn try_send_to(&self, bytes: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        let address = to_kernel(&from_path(path.as_ref())?)?;
        self.0.try_send_to(bytes, &address)
    }

    /// Returns the local address.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-datagram-local-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::net::unix::UnixDatagram;
    ///
    /// let mailbox = UnixDatagram::bind(&path)?;
    /// assert_eq!(mailbox.local_addr()?.as_pathname(), Some(path.as_path()));
    /// assert!(UnixDatagram::unbound()?.local_addr()?.is_unnamed());
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

    /// Returns the address of the [peer](Self::connect).
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-datagram-peer-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::net::unix::UnixDatagram;
    ///
    /// let mailbox = UnixDatagram::bind(&path)?;
    /// let sender = UnixDatagram::unbound()?;
    /// assert!(sender.peer_addr().is_err());
    /// sender.connect(&path)?;
    /// assert_eq!(sender.peer_addr()?.as_pathname(), mailbox.local_addr()?.as_pathname());
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotConnected`](io::ErrorKind::NotConnected) if there is no peer.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        from_kernel(self.0.kernel_socket().peer_addr()?)
    }

    /// Returns the credentials of the process that made this [pair](Self::pair): see
    /// [`UnixStream::peer_cred`](super::UnixStream::peer_cred).
    ///
    /// ```
    /// # #[cfg(target_os = "linux")] {
    /// use polder::net::unix::UnixDatagram;
    ///
    /// let (near, _far) = UnixDatagram::pair()?;
    /// assert_eq!(near.peer_cred()?.pid(), Some(std::process::id() as i32));
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call; on Linux [`NotConnected`](io::ErrorKind::NotConnected) for a
    /// socket that does not belong to a pair; [`Unsupported`](io::ErrorKind::Unsupported) on
    /// systems that do not report it.
    pub fn peer_cred(&self) -> io::Result<UCred> {
        UCred::of(&self.0)
    }

    /// Shuts down receiving, sending, or both, and wakes waiting tasks. A direction that was shut
    /// down before, by any handle, is skipped.
    ///
    /// ```
    /// use polder::net::Shutdown;
    /// use polder::net::unix::UnixDatagram;
    ///
    /// polder::block_on(async {
    ///     let (near, _far) = UnixDatagram::pair()?;
    ///     let waits = polder::spawn({
    ///         let near = near.clone();
    ///         async move { near.recv(&mut [0; 8]).await }
    ///     });
    ///     near.shutdown(Shutdown::Read)?;
    ///     assert_eq!(waits.await?, 0); // There will be no more data.
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotConnected`](io::ErrorKind::NotConnected) without a peer, on some platforms.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }

    /// Waits until the socket can receive or send: see
    /// [`TcpStream::ready`](crate::net::TcpStream::ready).
    ///
    /// ```
    /// # use polder::net::unix::UnixDatagram;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixDatagram::pair()?;
    /// use polder::poller::Interest;
    ///
    /// far.try_send(b"hello")?;
    /// let ready = near.ready(Interest::READABLE | Interest::WRITABLE).await?;
    /// if ready.is_writable() {
    ///     near.try_send(b"hello")?;
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

    /// Waits until there is a datagram or an error to receive: see
    /// [`TcpStream::readable`](crate::net::TcpStream::readable).
    ///
    /// ```
    /// # use polder::net::unix::UnixDatagram;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixDatagram::pair()?;
    /// far.try_send(b"hello")?;
    /// near.readable().await?; // Now a `try_recv` is worthwhile.
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
    /// # use polder::net::unix::UnixDatagram;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixDatagram::pair()?;
    /// far.try_send(b"hello")?;
    /// std::future::poll_fn(|cx| near.poll_recv_ready(cx)).await?;
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`readable`](Self::readable).
    pub fn poll_recv_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.ready_in(Direction::Read).poll(cx)
    }

    /// Waits until there is room to send, or an error: see
    /// [`TcpStream::writable`](crate::net::TcpStream::writable).
    ///
    /// ```
    /// # use polder::net::unix::UnixDatagram;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixDatagram::pair()?;
    /// near.writable().await?;
    /// assert_eq!(near.try_send(b"hello")?, 5);
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
    /// # use polder::net::unix::UnixDatagram;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixDatagram::pair()?;
    /// std::future::poll_fn(|cx| near.poll_send_ready(cx)).await?;
    /// assert_eq!(near.try_send(b"hello")?, 5);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`writable`](Self::writable).
    pub fn poll_send_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.ready_in(Direction::Write).poll(cx)
    }

    /// Poll version of [`recv`](Self::recv): see [`poll_recv_ready`](Self::poll_recv_ready).
    ///
    /// ```
    /// # use polder::net::unix::UnixDatagram;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixDatagram::pair()?;
    /// far.send(b"hello").await?;
    /// let mut bytes = [0; 8];
    /// assert_eq!(std::future::poll_fn(|cx| near.poll_recv(cx, &mut bytes)).await?, 5);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn poll_recv(&self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.recv(bytes, Receive::Take).poll(cx)
    }

    /// Poll version of [`recv_from`](Self::recv_from): see
    /// [`poll_recv_ready`](Self::poll_recv_ready).
    ///
    /// ```
    /// # use polder::net::unix::UnixDatagram;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixDatagram::pair()?;
    /// far.send(b"hello").await?;
    /// let mut bytes = [0; 8];
    /// let (length, _from) = std::future::poll_fn(|cx| near.poll_recv_from(cx, &mut bytes)).await?;
    /// assert_eq!(&bytes[..length], b"hello");
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`recv_from`](Self::recv_from).
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let received = self.0.recv_from(bytes, Receive::Take);
        received.poll(cx)?.map(from_unix)
    }

    /// Poll version of [`send`](Self::send): see [`poll_send_ready`](Self::poll_send_ready).
    ///
    /// ```
    /// # use polder::net::unix::UnixDatagram;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixDatagram::pair()?;
    /// assert_eq!(std::future::poll_fn(|cx| near.poll_send(cx, b"hello")).await?, 5);
    /// assert_eq!(far.recv(&mut [0; 8]).await?, 5);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.send(bytes, None).poll(cx)
    }

    /// Receives an available datagram without waiting. Returns its length. See
    /// [`TcpStream::try_read`](crate::net::TcpStream::try_read).
    ///
    /// ```
    /// # use polder::net::unix::UnixDatagram;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixDatagram::pair()?;
    /// let mut bytes = [0; 8];
    /// let nothing = near.try_recv(&mut bytes).unwrap_err();
    /// assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    /// far.send(b"hello").await?;
    /// near.readable().await?;
    /// assert_eq!(near.try_recv(&mut bytes)?, 5);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no datagram; any error of the system
    /// call.
    pub fn try_recv(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.recv(bytes, Receive::Take).attempt()
    }

    /// [`try_recv`](Self::try_recv), with the sender's address.
    ///
    /// ```
    /// # use polder::net::unix::UnixDatagram;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixDatagram::pair()?;
    /// far.send(b"hello").await?;
    /// let mut bytes = [0; 8];
    /// let (length, _from) = near.try_recv_from(&mut bytes)?;
    /// assert_eq!(&bytes[..length], b"hello");
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`try_recv`](Self::try_recv).
    pub fn try_recv_from(&self, bytes: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let received = self.0.recv_from(bytes, Receive::Take);
        from_unix(received.attempt()?)
    }

    /// Sends a datagram to the peer, without waiting.
    ///
    /// ```
    /// # use polder::net::unix::UnixDatagram;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixDatagram::pair()?;
    /// assert_eq!(near.try_send(b"hello")?, 5);
    /// assert_eq!(far.recv(&mut [0; 8]).await?, 5);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room; any error of the system call,
    /// for instance that there is no peer.
    pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes, None).attempt()
    }

    /// Calls `operation` once and returns its result: see
    /// [`TcpStream::try_io`](crate::net::TcpStream::try_io).
    ///
    /// ```
    /// # use polder::net::unix::UnixDatagram;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixDatagram::pair()?;
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
}

socket!(
    UnixDatagram,
    std::os::unix::net::UnixDatagram,
    [local_addr, peer_addr]
);

fn from_unix((length, peer): (usize, Address)) -> io::Result<(usize, SocketAddr)> {
    Ok((length, from_kernel(peer)?))
}
