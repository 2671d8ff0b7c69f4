//! [`UnixDatagram`]: a Unix datagram socket.

use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::task::{Context, Poll};

use socket2::SockAddr;

use super::address::{UCred, from_kernel, from_path, not_bound, to_kernel};
use crate::net::macros::socket;
use crate::net::socket::{Receive, Socket, SocketType, kernel};
use crate::poller::Interest;
use crate::reactor::Direction;

/// A Unix datagram socket: messages between processes of one machine, neither lost nor reordered.
///
/// All methods take `&self`, and any number of tasks may send and receive concurrently: each
/// datagram goes to one of the receivers. Clones share the socket; it is closed when the last one
/// is dropped. **The file at its path stays**, as with the standard library.
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
/// Cancel safe: a receive that is dropped has consumed no datagram, and a send has sent none.
///
/// # Platforms
///
/// A datagram that is longer than the buffer is truncated. When the receiver's queue is full, a
/// send waits on Linux (retrying every few milliseconds unless the socket is connected to the
/// receiver), and fails with `ENOBUFS` on the BSDs and Apple's systems.
///
/// When the peer is gone, Linux fails the next send ([refused](io::ErrorKind::ConnectionRefused));
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
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for a path that is empty, too long (about 100
    /// bytes) or has a NUL in it.
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

    /// [`bind_addr`](Self::bind_addr) for a socket with options that are set already.
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
    /// Any error of the system call: [not found](io::ErrorKind::NotFound),
    /// [refused](io::ErrorKind::ConnectionRefused) if the receiver is gone, and so on;
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) as for [`bind`](Self::bind).
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.connect_addr(&from_path(path.as_ref())?)
    }

    /// [`connect`](Self::connect), to abstract addresses too.
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
        self.0.kernel().set_peer(&to_kernel(address)?)
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
    /// Cancel safe: a future that is dropped has sent nothing.
    pub async fn send_to(&self, bytes: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        self.send_to_addr(bytes, &from_path(path.as_ref())?).await
    }

    /// [`send_to`](Self::send_to), to abstract addresses too.
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
    /// Cancel safe: a future that is dropped has sent nothing.
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
    /// Cancel safe: a future that is dropped has sent nothing.
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
    /// the receiver's queue. [`writable`](Self::writable) does not cover the queue unless the two
    /// are connected, so a loop of both would not sleep; [`send_to`](Self::send_to) waits for both.
    /// Any error of the system call.
    pub fn try_send_to(&self, bytes: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        let address = to_kernel(&from_path(path.as_ref())?)?;
        self.0.try_send_to(bytes, &address)
    }

    /// Returns the address that it is bound to.
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
        from_kernel(self.0.kernel().local_addr()?)
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
        from_kernel(self.0.kernel().peer_addr()?)
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

    /// Shuts down receiving, sending, or both. Waiting tasks are woken. For a direction that was
    /// shut down before, by any handle, nothing happens.
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

    /// Waits until one of the directions in `interest`, reading or writing, is worth an attempt.
    /// Returns those that are.
    ///
    /// It may complete spuriously; see [`readable`](Self::readable) and
    /// [`writable`](Self::writable) for the conditions.
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
    /// # use polder::net::unix::UnixDatagram;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixDatagram::pair()?;
    /// far.try_send(b"hello")?;
    /// loop {
    ///     near.readable().await?; // Nothing is allocated while this waits.
    ///     let mut bytes = vec![0; 64];
    ///     match near.try_recv(&mut bytes) {
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
    /// # use polder::net::unix::UnixDatagram;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixDatagram::pair()?;
    /// use std::future::poll_fn;
    ///
    /// far.try_send(b"hello")?;
    /// poll_fn(|cx| near.poll_recv_ready(cx)).await?;
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`readable`](Self::readable).
    pub fn poll_recv_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.ready_in(Direction::Read).poll(cx)
    }

    /// Waits until a write is worth an attempt: there is room, or an error.
    ///
    /// It may complete spuriously, for instance at first, when nothing is known yet: an attempt
    /// that would block makes the next call wait for an event. Any number of tasks may wait
    /// concurrently; all are woken.
    ///
    /// ```
    /// # use polder::net::unix::UnixDatagram;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixDatagram::pair()?;
    /// let written = loop {
    ///     near.writable().await?;
    ///     match near.try_send(b"hello") {
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
    /// # use polder::net::unix::UnixDatagram;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixDatagram::pair()?;
    /// use std::future::poll_fn;
    ///
    /// poll_fn(|cx| near.poll_send_ready(cx)).await?;
    /// assert_eq!(near.try_send(b"hello")?, 5);
    /// # drop(far);
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`writable`](Self::writable).
    pub fn poll_send_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.ready_in(Direction::Write).poll(cx)
    }

    /// [`recv`](Self::recv), for functions that poll: see
    /// [`poll_recv_ready`](Self::poll_recv_ready).
    ///
    /// ```
    /// # use polder::net::unix::UnixDatagram;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixDatagram::pair()?;
    /// use std::future::poll_fn;
    ///
    /// far.send(b"hello").await?;
    /// let mut bytes = [0; 8];
    /// assert_eq!(poll_fn(|cx| near.poll_recv(cx, &mut bytes)).await?, 5);
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn poll_recv(&self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.recv(bytes, Receive::Take).poll(cx)
    }

    /// [`recv_from`](Self::recv_from), for functions that poll: see
    /// [`poll_recv_ready`](Self::poll_recv_ready).
    ///
    /// ```
    /// # use polder::net::unix::UnixDatagram;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixDatagram::pair()?;
    /// use std::future::poll_fn;
    ///
    /// far.send(b"hello").await?;
    /// let mut bytes = [0; 8];
    /// let (length, _from) = poll_fn(|cx| near.poll_recv_from(cx, &mut bytes)).await?;
    /// assert_eq!(&bytes[..length], b"hello");
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
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

    /// [`send`](Self::send), for functions that poll: see
    /// [`poll_send_ready`](Self::poll_send_ready).
    ///
    /// ```
    /// # use polder::net::unix::UnixDatagram;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixDatagram::pair()?;
    /// use std::future::poll_fn;
    ///
    /// assert_eq!(poll_fn(|cx| near.poll_send(cx, b"hello")).await?, 5);
    /// assert_eq!(far.recv(&mut [0; 8]).await?, 5);
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.send(bytes, None).poll(cx)
    }

    /// Receives an available datagram, without waiting. Returns its length.
    ///
    /// It asks the kernel even if the socket does not count as [readable](Self::readable).
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
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](std::io::ErrorKind::WouldBlock) if there is no datagram; any error of the
    /// system call.
    pub fn try_recv(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.recv(bytes, Receive::Take).attempt()
    }

    /// Receives an available datagram, without waiting. Returns its length and its sender's
    /// address.
    ///
    /// ```
    /// # use polder::net::unix::UnixDatagram;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixDatagram::pair()?;
    /// far.send(b"hello").await?;
    /// let mut bytes = [0; 8];
    /// let (length, _from) = loop {
    ///     near.readable().await?;
    ///     match near.try_recv_from(&mut bytes) {
    ///         Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
    ///         received => break received?,
    ///     }
    /// };
    /// assert_eq!(&bytes[..length], b"hello");
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no datagram; any error of the system
    /// call.
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
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](std::io::ErrorKind::WouldBlock) if there is no room; any error of the system
    /// call, for instance that there is no peer.
    pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes, None).attempt()
    }

    /// Calls `operation` once, and returns its result.
    ///
    /// It is meant for a system call on this socket that polder does not know. If that returns
    /// [`WouldBlock`](std::io::ErrorKind::WouldBlock), the next wait for `interest` waits for an
    /// event. So it must not return this for another reason, or the next waiter may wait too long;
    /// and it must operate on this socket, in the directions of `interest`.
    ///
    /// ```
    /// # use polder::net::unix::UnixDatagram;
    /// # polder::block_on(async {
    /// # let (near, far) = UnixDatagram::pair()?;
    /// use polder::poller::Interest;
    /// use socket2::SockRef;
    ///
    /// far.try_send(b"hello")?;
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

socket!(
    UnixDatagram,
    std::os::unix::net::UnixDatagram,
    [local_addr, peer_addr]
);

/// Converts the sender's address of a received datagram to the public type.
fn from_unix((length, peer): (usize, SockAddr)) -> io::Result<(usize, SocketAddr)> {
    Ok((length, from_kernel(peer)?))
}
