//! A UDP socket.

use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::{Context, Poll};

use super::addresses::{AsyncToSocketAddrs, first_that_works, first_to_bind};
use super::socket::{
    Address, Flag, Group, Number, Opt, Receive, Socket, SocketType, internet, kernel,
};
use crate::net::macros::socket;
use crate::poller::Interest;
use crate::reactor::Direction;
use crate::sys::{Datagram, MAX_DATAGRAMS, OwnedDescriptor, Received, invalid};

fn check_count(call: &str, what: &str, count: usize) -> io::Result<()> {
    if (1..=MAX_DATAGRAMS).contains(&count) {
        return Ok(());
    }
    Err(invalid(format!(
        "{call}: {count} {what}, but it takes 1 to {MAX_DATAGRAMS}"
    )))
}

/// A UDP socket.
///
/// Any number of tasks may send and receive; each datagram goes to one receiver. Clones share the
/// socket; dropping the last one closes it.
///
/// # Examples
///
/// ```
/// use polder::net::UdpSocket;
///
/// polder::block_on(async {
///     let server = UdpSocket::bind("127.0.0.1:0").await?;
///     let client = UdpSocket::bind("127.0.0.1:0").await?;
///
///     client.send_to(b"ping", server.local_addr()?).await?;
///     let mut bytes = [0; 64];
///     let (length, peer) = server.recv_from(&mut bytes).await?;
///     assert_eq!(&bytes[..length], b"ping");
///     assert_eq!(peer, client.local_addr()?);
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Cancel safety
///
/// Cancel safe: a dropped receive has consumed no datagram, and a dropped send has sent none.
///
/// # Platforms
///
/// * A datagram longer than the buffer is truncated. On Windows that is also an error
///   (`WSAEMSGSIZE`); the buffer has the beginning.
/// * After a datagram to a port without a receiver, a later call fails: on Unix on a connected
///   socket ([refused](io::ErrorKind::ConnectionRefused)), on Windows a receive on any socket
///   ([reset](io::ErrorKind::ConnectionReset)). A server can ignore that error.
#[derive(Clone)]
#[doc(alias("from_std", "into_std"))]
pub struct UdpSocket(Socket);

impl UdpSocket {
    /// Binds to the first of `address`'s addresses that is available. For port 0 the system chooses
    /// a free port.
    ///
    /// ```
    /// use polder::net::UdpSocket;
    ///
    /// polder::block_on(async {
    ///     let socket = UdpSocket::bind("127.0.0.1:0").await?;
    ///     let address = socket.local_addr()?;
    ///     let taken = UdpSocket::bind(address).await.unwrap_err();
    ///     assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`TcpListener::bind`](super::TcpListener::bind).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe; for a name, see [`resolve`](super::resolve).
    pub async fn bind(address: impl AsyncToSocketAddrs) -> io::Result<UdpSocket> {
        first_to_bind("bind", address, |address| {
            kernel::bind(SocketType::UdpSocket, &address.into()).map(UdpSocket)
        })
        .await
    }

    /// [`bind`](Self::bind) for a socket with options set before: see [the module](super).
    ///
    /// ```
    /// use polder::net::UdpSocket;
    /// use socket2::{Domain, Socket, Type};
    ///
    /// let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    /// socket.set_recv_buffer_size(1 << 16)?;
    /// let socket = UdpSocket::bind_with(socket, "127.0.0.1:0".parse().unwrap())?;
    /// assert_ne!(socket.local_addr()?.port(), 0);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call; [`InvalidInput`](io::ErrorKind::InvalidInput) if it is not a
    /// UDP socket.
    pub fn bind_with(
        socket: impl Into<OwnedDescriptor>,
        address: SocketAddr,
    ) -> io::Result<UdpSocket> {
        kernel::bind_with(socket.into(), SocketType::UdpSocket, &address.into()).map(UdpSocket)
    }

    /// Sets the peer to the first of `address`'s addresses that the system accepts.
    /// [`send`](Self::send) sends to it, and from then on only its datagrams are received. Nothing
    /// is sent. Connecting again changes the peer.
    ///
    /// ```
    /// use polder::net::UdpSocket;
    ///
    /// polder::block_on(async {
    ///     let server = UdpSocket::bind("127.0.0.1:0").await?;
    ///     let client = UdpSocket::bind("127.0.0.1:0").await?;
    ///     client.connect(server.local_addr()?).await?;
    ///     client.send(b"hello").await?;
    ///     let mut bytes = [0; 8];
    ///     let (length, from) = server.recv_from(&mut bytes).await?;
    ///     assert_eq!(&bytes[..length], b"hello");
    ///     assert_eq!(from, client.local_addr()?);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The system's error for the last address tried; [`InvalidInput`](io::ErrorKind::InvalidInput)
    /// for an empty list; the errors of [`resolve`](super::resolve).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future leaves the peer unchanged; for a name, see
    /// [`resolve`](super::resolve).
    pub async fn connect(&self, address: impl AsyncToSocketAddrs) -> io::Result<()> {
        first_that_works(address, |address| async move {
            self.0.kernel_socket().set_peer(&address.into())
        })
        .await
    }

    /// Receives a datagram. Returns its length and its sender's address.
    ///
    /// ```
    /// use polder::net::UdpSocket;
    ///
    /// polder::block_on(async {
    ///     let near = UdpSocket::bind("127.0.0.1:0").await?;
    ///     let far = UdpSocket::bind("127.0.0.1:0").await?;
    ///     far.send_to(b"hello", near.local_addr()?).await?;
    ///     let mut bytes = [0; 64];
    ///     let (length, from) = near.recv_from(&mut bytes).await?;
    ///     assert_eq!(&bytes[..length], b"hello");
    ///     near.send_to(b"hello to you", from).await?; // An answer.
    ///     assert_eq!(far.recv(&mut bytes).await?, 12);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call: see "Platforms" of [`UdpSocket`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future loses no datagram.
    pub async fn recv_from(&self, bytes: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        from_internet(self.0.recv_from(bytes, Receive::Take).await?)
    }

    /// Receives a datagram without consuming it: the next receive returns it again.
    ///
    /// ```
    /// use polder::net::UdpSocket;
    ///
    /// polder::block_on(async {
    ///     let near = UdpSocket::bind("127.0.0.1:0").await?;
    ///     let far = UdpSocket::bind("127.0.0.1:0").await?;
    ///     near.send_to(b"hello", far.local_addr()?).await?;
    ///     let mut bytes = [0; 8];
    ///     let (length, from) = far.peek_from(&mut bytes).await?;
    ///     assert_eq!(far.recv_from(&mut bytes).await?, (length, from)); // It was still there.
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
    pub async fn peek_from(&self, bytes: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        from_internet(self.0.recv_from(bytes, Receive::Peek).await?)
    }

    /// Sends a datagram to the first of `address`'s addresses that the system accepts. Waits while
    /// the socket's buffer is full.
    ///
    /// ```
    /// use polder::net::UdpSocket;
    ///
    /// polder::block_on(async {
    ///     let near = UdpSocket::bind("127.0.0.1:0").await?;
    ///     let far = UdpSocket::bind("127.0.0.1:0").await?;
    ///     near.send_to(b"by address", far.local_addr()?).await?;
    ///     near.send_to(b"by text", far.local_addr()?.to_string()).await?;
    ///     let mut bytes = [0; 64];
    ///     assert_eq!(far.recv(&mut bytes).await?, 10);
    ///     assert_eq!(far.recv(&mut bytes).await?, 7);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), for instance that the datagram is too long.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped future has sent nothing; for a name, see [`resolve`](super::resolve).
    pub async fn send_to(
        &self,
        bytes: &[u8],
        address: impl AsyncToSocketAddrs,
    ) -> io::Result<usize> {
        first_that_works(address, |address| async move {
            self.0.send_to(bytes, &address.into()).await
        })
        .await
    }

    /// Receives a datagram, only from the [peer](Self::connect) if there is one. Returns its
    /// length.
    ///
    /// ```
    /// use polder::net::UdpSocket;
    ///
    /// polder::block_on(async {
    ///     let near = UdpSocket::bind("127.0.0.1:0").await?;
    ///     let far = UdpSocket::bind("127.0.0.1:0").await?;
    ///     let stranger = UdpSocket::bind("127.0.0.1:0").await?;
    ///     near.connect(far.local_addr()?).await?;
    ///     stranger.send_to(b"buy!", near.local_addr()?).await?; // It is not received.
    ///     far.send_to(b"hello", near.local_addr()?).await?;
    ///     let mut bytes = [0; 64];
    ///     let length = near.recv(&mut bytes).await?;
    ///     assert_eq!(&bytes[..length], b"hello");
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call: see "Platforms" of [`UdpSocket`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future loses no datagram.
    pub async fn recv(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.recv(bytes, Receive::Take).await
    }

    /// [`recv`](Self::recv) without consuming the datagram.
    ///
    /// ```
    /// use polder::net::UdpSocket;
    ///
    /// polder::block_on(async {
    ///     let near = UdpSocket::bind("127.0.0.1:0").await?;
    ///     let far = UdpSocket::bind("127.0.0.1:0").await?;
    ///     near.connect(far.local_addr()?).await?;
    ///     far.send_to(b"hello", near.local_addr()?).await?;
    ///     let mut bytes = [0; 64];
    ///     assert_eq!(near.peek(&mut bytes).await?, 5);
    ///     assert_eq!(near.recv(&mut bytes).await?, 5); // It was still there.
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
    pub async fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.recv(bytes, Receive::Peek).await
    }

    /// Sends a datagram to the [peer](Self::connect). Waits while the socket's buffer is full.
    ///
    /// ```
    /// use polder::net::UdpSocket;
    ///
    /// polder::block_on(async {
    ///     let near = UdpSocket::bind("127.0.0.1:0").await?;
    ///     let far = UdpSocket::bind("127.0.0.1:0").await?;
    ///     assert!(near.send(b"to whom?").await.is_err());
    ///     near.connect(far.local_addr()?).await?;
    ///     near.send(b"hello").await?;
    ///     assert_eq!(far.recv(&mut [0; 64]).await?, 5);
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

    /// The maximum number of datagrams of one [`recv_many`](Self::recv_many) or
    /// [`send_many`](Self::send_many).
    ///
    /// ```
    /// use polder::net::{Received, UdpSocket};
    ///
    /// let received = [Received::default(); UdpSocket::MAX_DATAGRAMS];
    /// assert_eq!(received.len(), 64);
    /// ```
    pub const MAX_DATAGRAMS: usize = MAX_DATAGRAMS;

    /// Receives several datagrams: waits for the first, and takes those that are there, at most one
    /// for each buffer. Returns their number. `received[i]` describes the datagram in `buffers[i]`;
    /// entries beyond that number are unchanged.
    ///
    /// One system call receives them all, for servers of DNS and QUIC. Each datagram counts in the
    /// task's [budget](crate::task::consume_budget).
    ///
    /// ```
    /// use polder::net::{Datagram, Received, UdpSocket};
    /// use std::io::IoSliceMut;
    ///
    /// polder::block_on(async {
    ///     let near = UdpSocket::bind("127.0.0.1:0").await?;
    ///     let far = UdpSocket::bind("127.0.0.1:0").await?;
    ///     let to = Some(near.local_addr()?);
    ///     let datagrams = [b"one", b"two"].map(|bytes| Datagram { bytes, to });
    ///     far.send_many(&datagrams).await?;
    ///
    ///     let mut memory = [0; 4 * 1500];
    ///     let mut buffers: Vec<_> = memory.chunks_mut(1500).map(IoSliceMut::new).collect();
    ///     let mut received = [Received::default(); 4];
    ///     let count = near.recv_many(&mut buffers, &mut received).await?;
    ///     for (received, buffer) in received[..count].iter().zip(&buffers) {
    ///         println!("{:?} from {}", &buffer[..received.length], received.from);
    ///     }
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for no buffer, for more than
    /// [`MAX_DATAGRAMS`](Self::MAX_DATAGRAMS), and if `received` has another length. Any error of
    /// the system call before the first datagram (see "Platforms" of [`UdpSocket`]); at a later one
    /// the call returns what it has received.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call has received nothing.
    ///
    /// # Platforms
    ///
    /// One system call on Linux, FreeBSD and NetBSD (`recvmmsg`), one for each datagram elsewhere.
    /// An error after the first datagram is returned by the next call on Linux and NetBSD, and lost
    /// elsewhere. On Windows a datagram that is too long is truncated without an error.
    #[doc(alias("recvmmsg", "recv_batch"))]
    pub async fn recv_many(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        received: &mut [Received],
    ) -> io::Result<usize> {
        check_count("recv_many", "buffers", buffers.len())?;
        if buffers.len() != received.len() {
            return Err(invalid(format!(
                "recv_many: {} buffers, but `received` has {}: there must be as many",
                buffers.len(),
                received.len()
            )));
        }
        self.0.recv_many(buffers, received).await
    }

    /// Sends several datagrams: waits until there is room for the first, and sends those that there
    /// is room for. Returns their number, which is not zero: call it again for the rest.
    ///
    /// Each datagram counts in the task's [budget](crate::task::consume_budget).
    ///
    /// ```
    /// use polder::net::{Datagram, UdpSocket};
    ///
    /// polder::block_on(async {
    ///     let near = UdpSocket::bind("127.0.0.1:0").await?;
    ///     let far = UdpSocket::bind("127.0.0.1:0").await?;
    ///     let to = Some(far.local_addr()?);
    ///     let mut left = &[b"one", b"two", b"six"].map(|bytes| Datagram { bytes, to })[..];
    ///     while !left.is_empty() {
    ///         let sent = near.send_many(left).await?;
    ///         left = &left[sent..];
    ///     }
    ///     assert_eq!(far.recv(&mut [0; 8]).await?, 3);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for no datagram, and for more than
    /// [`MAX_DATAGRAMS`](Self::MAX_DATAGRAMS). Any error of the system call for the first datagram,
    /// for instance that it is too long, or that there is no peer. The error of a later one ends
    /// the call, and is returned by the next, which begins with it. On Linux an error that the
    /// network has reported meanwhile, such as a connected peer's closed port, is lost if it meets
    /// a later datagram: sendmmsg(2) keeps only the first one's error.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call has sent nothing.
    ///
    /// # Platforms
    ///
    /// One system call on Linux, FreeBSD and NetBSD (`sendmmsg`), one for each datagram elsewhere.
    #[doc(alias("sendmmsg", "send_batch"))]
    pub async fn send_many(&self, datagrams: &[Datagram<'_>]) -> io::Result<usize> {
        check_count("send_many", "datagrams", datagrams.len())?;
        self.0.send_many(datagrams).await
    }

    /// Poll version of [`peek_from`](Self::peek_from): see
    /// [`poll_recv_ready`](Self::poll_recv_ready).
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// far.send_to(b"hello", near.local_addr()?).await?;
    /// let mut bytes = [0; 8];
    /// let (length, from) = std::future::poll_fn(|cx| near.poll_peek_from(cx, &mut bytes)).await?;
    /// assert_eq!(near.try_recv_from(&mut bytes)?, (length, from)); // It was still there.
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn poll_peek_from(
        &self,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let received = self.0.recv_from(bytes, Receive::Peek).poll(cx);
        received?.map(from_internet)
    }

    /// Poll version of [`send_to`](Self::send_to) one address: see
    /// [`poll_send_ready`](Self::poll_send_ready).
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// let address = far.local_addr()?;
    /// std::future::poll_fn(|cx| near.poll_send_to(cx, b"hello", address)).await?;
    /// assert_eq!(far.recv(&mut [0; 8]).await?, 5);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        address: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.0.send(bytes, Some(&address.into())).poll(cx)
    }

    /// [`try_recv`](Self::try_recv) without consuming the datagram.
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// far.send_to(b"hello", near.local_addr()?).await?;
    /// near.peek(&mut [0; 8]).await?;
    /// assert_eq!(near.try_peek(&mut [0; 8])?, 5); // It is still there.
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`try_recv`](Self::try_recv).
    pub fn try_peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.recv(bytes, Receive::Peek).attempt()
    }

    /// [`try_recv_from`](Self::try_recv_from) without consuming the datagram.
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// far.send_to(b"hello", near.local_addr()?).await?;
    /// near.peek(&mut [0; 8]).await?;
    /// assert_eq!(near.try_peek_from(&mut [0; 8])?, (5, far.local_addr()?)); // It is still there.
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`try_recv_from`](Self::try_recv_from).
    pub fn try_peek_from(&self, bytes: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        from_internet(self.0.recv_from(bytes, Receive::Peek).attempt()?)
    }

    /// Sends a datagram to an address, without waiting.
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// assert_eq!(near.try_send_to(b"hello", far.local_addr()?)?, 5);
    /// assert_eq!(far.recv(&mut [0; 8]).await?, 5);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room; any error of the system call.
    pub fn try_send_to(&self, bytes: &[u8], address: SocketAddr) -> io::Result<usize> {
        self.0.send(bytes, Some(&address.into())).attempt()
    }

    /// Poll version of [`peek`](Self::peek): see [`poll_recv_ready`](Self::poll_recv_ready).
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// far.send_to(b"hello", near.local_addr()?).await?;
    /// let mut bytes = [0; 8];
    /// assert_eq!(std::future::poll_fn(|cx| near.poll_peek(cx, &mut bytes)).await?, 5);
    /// assert_eq!(near.try_recv(&mut bytes)?, 5); // It was still there.
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn poll_peek(&self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.recv(bytes, Receive::Peek).poll(cx)
    }

    /// Returns the local address, with the port that the system chose for port 0.
    ///
    /// ```
    /// use polder::net::UdpSocket;
    ///
    /// polder::block_on(async {
    ///     let socket = UdpSocket::bind("127.0.0.1:0").await?;
    ///     assert_ne!(socket.local_addr()?.port(), 0);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        internet(self.0.kernel_socket().local_addr()?)
    }

    /// Returns the address of the [peer](Self::connect).
    ///
    /// ```
    /// use polder::net::UdpSocket;
    ///
    /// polder::block_on(async {
    ///     let near = UdpSocket::bind("127.0.0.1:0").await?;
    ///     let far = UdpSocket::bind("127.0.0.1:0").await?;
    ///     assert_eq!(near.peer_addr().unwrap_err().kind(), std::io::ErrorKind::NotConnected);
    ///     near.connect(far.local_addr()?).await?;
    ///     assert_eq!(near.peer_addr()?, far.local_addr()?);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotConnected`](io::ErrorKind::NotConnected) if there is no peer.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        internet(self.0.kernel_socket().peer_addr()?)
    }

    /// Whether it may send to broadcast addresses (`SO_BROADCAST`).
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let socket = UdpSocket::bind("127.0.0.1:0").await?;
    /// assert!(!socket.broadcast()?); // Broadcasts have to be enabled.
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn broadcast(&self) -> io::Result<bool> {
        self.0.kernel_socket().flag(Flag::Broadcast)
    }

    /// Sets [`broadcast`](Self::broadcast).
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let socket = UdpSocket::bind("127.0.0.1:0").await?;
    /// socket.set_broadcast(true)?;
    /// assert!(socket.broadcast()?);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn set_broadcast(&self, broadcast: bool) -> io::Result<()> {
        self.0.set(Opt::Flag(Flag::Broadcast, broadcast))
    }

    /// Whether multicast datagrams from this socket come back to this machine
    /// (`IP_MULTICAST_LOOP`). On Windows it is the receiver's option.
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let socket = UdpSocket::bind("127.0.0.1:0").await?;
    /// assert!(socket.multicast_loop_v4()?); // Others on this machine may be in the group too.
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        self.0.kernel_socket().flag(Flag::MulticastLoopV4)
    }

    /// Sets [`multicast_loop_v4`](Self::multicast_loop_v4).
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let socket = UdpSocket::bind("127.0.0.1:0").await?;
    /// socket.set_multicast_loop_v4(false)?;
    /// assert!(!socket.multicast_loop_v4()?);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn set_multicast_loop_v4(&self, come_back: bool) -> io::Result<()> {
        self.0.set(Opt::Flag(Flag::MulticastLoopV4, come_back))
    }

    /// Returns the number of hops that multicast datagrams may take (`IP_MULTICAST_TTL`); the
    /// default is 1.
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let socket = UdpSocket::bind("127.0.0.1:0").await?;
    /// assert_eq!(socket.multicast_ttl_v4()?, 1); // They stay in this network.
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        self.0.kernel_socket().number(Number::MulticastTtlV4)
    }

    /// Sets [`multicast_ttl_v4`](Self::multicast_ttl_v4).
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let socket = UdpSocket::bind("127.0.0.1:0").await?;
    /// socket.set_multicast_ttl_v4(8)?;
    /// assert_eq!(socket.multicast_ttl_v4()?, 8);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        self.0.set(Opt::Number(Number::MulticastTtlV4, ttl))
    }

    /// [`multicast_loop_v4`](Self::multicast_loop_v4) for IPv6 (`IPV6_MULTICAST_LOOP`).
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # // A machine may have no IPv6.
    /// # let Ok(socket) = UdpSocket::bind("[::]:0").await else { return std::io::Result::Ok(()) };
    /// assert!(socket.multicast_loop_v6()?); // Others on this machine may be in the group too.
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.0.kernel_socket().flag(Flag::MulticastLoopV6)
    }

    /// Sets [`multicast_loop_v6`](Self::multicast_loop_v6).
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # // A machine may have no IPv6.
    /// # let Ok(socket) = UdpSocket::bind("[::]:0").await else { return std::io::Result::Ok(()) };
    /// socket.set_multicast_loop_v6(false)?;
    /// assert!(!socket.multicast_loop_v6()?);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn set_multicast_loop_v6(&self, come_back: bool) -> io::Result<()> {
        self.0.set(Opt::Flag(Flag::MulticastLoopV6, come_back))
    }

    /// Returns the number of hops that datagrams may take (`IP_TTL`): see
    /// [`TcpStream::ttl`](super::TcpStream::ttl).
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let socket = UdpSocket::bind("127.0.0.1:0").await?;
    /// assert!(socket.ttl()? > 1);
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
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let socket = UdpSocket::bind("127.0.0.1:0").await?;
    /// socket.set_ttl(1)?; // No router passes its datagrams on.
    /// assert_eq!(socket.ttl()?, 1);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.set(Opt::Number(Number::Ttl, ttl))
    }

    /// Joins the group `multiaddr`, to receive its datagrams, on the interface with the address
    /// `interface`; for 0.0.0.0 the system chooses one.
    ///
    /// ```
    /// use polder::net::{Ipv4Addr, UdpSocket};
    ///
    /// polder::block_on(async {
    ///     let socket = UdpSocket::bind("0.0.0.0:0").await?;
    ///     let group = Ipv4Addr::new(224, 0, 0, 250);
    ///     socket.join_multicast_v4(group, Ipv4Addr::LOCALHOST)?;
    ///     socket.leave_multicast_v4(group, Ipv4Addr::LOCALHOST)?;
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call, for instance that it is not a multicast address.
    pub fn join_multicast_v4(&self, multiaddr: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.0.set(Opt::Join(Group::V4(multiaddr, interface)))
    }

    /// Leaves a group that was [joined](Self::join_multicast_v4).
    ///
    /// ```
    /// use polder::net::{Ipv4Addr, UdpSocket};
    ///
    /// polder::block_on(async {
    ///     let socket = UdpSocket::bind("0.0.0.0:0").await?;
    ///     let group = Ipv4Addr::new(224, 0, 0, 250);
    ///     socket.join_multicast_v4(group, Ipv4Addr::LOCALHOST)?;
    ///     socket.leave_multicast_v4(group, Ipv4Addr::LOCALHOST)?;
    ///     assert!(socket.leave_multicast_v4(group, Ipv4Addr::LOCALHOST).is_err()); // It has left.
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call, for instance that the group was not joined.
    pub fn leave_multicast_v4(&self, multiaddr: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.0.set(Opt::Leave(Group::V4(multiaddr, interface)))
    }

    /// [`join_multicast_v4`](Self::join_multicast_v4) for IPv6: `interface` is an index, and for 0
    /// the system chooses one.
    ///
    /// ```
    /// use polder::net::Ipv6Addr;
    ///
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # // A machine may have no IPv6.
    /// # let Ok(socket) = UdpSocket::bind("[::]:0").await else { return std::io::Result::Ok(()) };
    /// let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfa);
    /// match socket.join_multicast_v6(&group, 0) {
    ///     Ok(()) => socket.leave_multicast_v6(&group, 0)?,
    ///     Err(error) => println!("no interface for a group: {error}"),
    /// }
    /// assert!(socket.join_multicast_v6(&Ipv6Addr::LOCALHOST, 0).is_err()); // No multicast group.
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call, for instance that it is not a multicast address.
    pub fn join_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.set(Opt::Join(Group::V6(*multiaddr, interface)))
    }

    /// Leaves a group that was [joined](Self::join_multicast_v6).
    ///
    /// ```
    /// use polder::net::Ipv6Addr;
    ///
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # // A machine may have no IPv6.
    /// # let Ok(socket) = UdpSocket::bind("[::]:0").await else { return std::io::Result::Ok(()) };
    /// let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfa);
    /// assert!(socket.leave_multicast_v6(&group, 0).is_err()); // It was not joined.
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call, for instance that the group was not joined.
    pub fn leave_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.set(Opt::Leave(Group::V6(*multiaddr, interface)))
    }

    /// Waits until the socket can receive or send, as `interest` says: see
    /// [`TcpStream::ready`](super::TcpStream::ready).
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// # near.connect(far.local_addr()?).await?;
    /// # far.connect(near.local_addr()?).await?;
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
    /// As [`TcpStream::ready`](super::TcpStream::ready).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future has no effect.
    pub async fn ready(&self, interest: Interest) -> io::Result<Interest> {
        self.0.ready(interest).await
    }

    /// Waits until there is a datagram or an error to receive: see
    /// [`TcpStream::readable`](super::TcpStream::readable).
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// # far.connect(near.local_addr()?).await?;
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
    /// [`TcpStream::poll_read_ready`](super::TcpStream::poll_read_ready).
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// # far.connect(near.local_addr()?).await?;
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
    /// [`TcpStream::writable`](super::TcpStream::writable).
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// # near.connect(far.local_addr()?).await?;
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
    /// [`TcpStream::poll_write_ready`](super::TcpStream::poll_write_ready).
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// # near.connect(far.local_addr()?).await?;
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
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// # far.connect(near.local_addr()?).await?;
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
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// # far.connect(near.local_addr()?).await?;
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
        received.poll(cx)?.map(from_internet)
    }

    /// Poll version of [`send`](Self::send): see [`poll_send_ready`](Self::poll_send_ready).
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// # near.connect(far.local_addr()?).await?;
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
    /// [`TcpStream::try_read`](super::TcpStream::try_read).
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// # far.connect(near.local_addr()?).await?;
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
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// # far.connect(near.local_addr()?).await?;
    /// far.send(b"hello").await?;
    /// let mut bytes = [0; 8];
    /// near.peek(&mut [0; 8]).await?; // Waits for it.
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
        from_internet(received.attempt()?)
    }

    /// Sends a datagram to the peer, without waiting.
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// # near.connect(far.local_addr()?).await?;
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
    /// [`TcpStream::try_io`](super::TcpStream::try_io).
    ///
    /// ```
    /// # use polder::net::UdpSocket;
    /// # polder::block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// # near.connect(far.local_addr()?).await?;
    /// # far.connect(near.local_addr()?).await?;
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
    /// As [`TcpStream::try_io`](super::TcpStream::try_io).
    pub fn try_io<R>(
        &self,
        interest: Interest,
        operation: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        self.0.try_io(interest, operation)
    }
}

socket!(UdpSocket, std::net::UdpSocket, [local_addr, peer_addr]);

fn from_internet((length, peer): (usize, Address)) -> io::Result<(usize, SocketAddr)> {
    Ok((length, internet(peer)?))
}
