//! A TCP listener, and the stream of its connections.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::stream::TcpStream;
use crate::net::addresses::{AsyncToSocketAddrs, first_to_bind};
use crate::net::macros::socket;
use crate::net::socket::{
    Address, Number, Opt, Socket, SocketType, StreamSocket, internet, kernel,
};
use crate::sys::{OwnedDescriptor, invalid};

/// A socket that listens for TCP connections.
///
/// Clones share the socket. Dropping the last one closes it, and resets the connections in its
/// queue.
///
/// # Examples
///
/// ```
/// use polder::io::{AsyncReadExt, AsyncWriteExt};
/// use polder::net::{TcpListener, TcpStream};
///
/// polder::block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let address = listener.local_addr()?;
///     let client = polder::spawn(async move {
///         let mut stream = TcpStream::connect(address).await?;
///         stream.write_all(b"hello").await
///     });
///
///     let (mut stream, _peer) = listener.accept().await?;
///     let mut text = String::new();
///     stream.read_to_string(&mut text).await?;
///     assert_eq!(text, "hello");
///     client.await
/// })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
#[doc(alias("from_std", "into_std"))]
pub struct TcpListener(Socket);

impl TcpListener {
    /// Listens on the first of `address`'s addresses that is available. For port 0 the system
    /// chooses a free port. On Unix the address of an earlier listener can be reused immediately
    /// (`SO_REUSEADDR`).
    ///
    /// ```
    /// use polder::net::TcpListener;
    ///
    /// polder::block_on(async {
    ///     let listener = TcpListener::bind(("localhost", 0)).await?;
    ///     assert_ne!(listener.local_addr()?.port(), 0);
    ///     // The address is taken.
    ///     assert!(TcpListener::bind(listener.local_addr()?).await.is_err());
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The system's error for the last address tried. If that address is [in
    /// use](io::ErrorKind::AddrInUse), not this machine's or not permitted, the message names it,
    /// and there is no [`raw_os_error`](io::Error::raw_os_error).
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for an empty list; the errors of
    /// [`resolve`](crate::net::resolve).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe; for a name, see [`resolve`](crate::net::resolve).
    pub async fn bind(address: impl AsyncToSocketAddrs) -> io::Result<TcpListener> {
        first_to_bind("listen on", address, |address| {
            kernel::bind(SocketType::TcpListener, &address.into()).map(TcpListener)
        })
        .await
    }

    /// Binds `count` listeners to one address, for
    /// [`serve_on_workers`](crate::net::serve_on_workers()): the kernel distributes connections
    /// among them.
    ///
    /// It chooses by a hash of both addresses, whether the listener is busy or not. A connection
    /// stays in its listener's queue; closing the listener resets it (unless Linux'
    /// `net.ipv4.tcp_migrate_req` is set).
    ///
    /// # Platforms
    ///
    /// Linux 3.9 and DragonFly (`SO_REUSEPORT`), FreeBSD 12 (`SO_REUSEPORT_LB`). There other
    /// programs of the same user can listen on the address too, in the same way. Elsewhere (macOS,
    /// the other BSDs, illumos and Windows) all are clones of one listener: the first to accept
    /// gets the next connection.
    ///
    /// ```
    /// use polder::net::{TcpListener, TcpStream};
    ///
    /// polder::block_on(async {
    ///     let listeners = TcpListener::bind_balanced("127.0.0.1:0", 2).await?;
    ///     let address = listeners[0].local_addr()?;
    ///     assert_eq!(listeners[1].local_addr()?, address);
    ///
    ///     let client = TcpStream::connect(address).await?;
    ///     let both = polder::future::race(listeners[0].accept(), listeners[1].accept());
    ///     assert_eq!(both.await?.1, client.local_addr()?);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`bind`](Self::bind); [`InvalidInput`](io::ErrorKind::InvalidInput) if `count` is 0.
    ///
    /// # Cancel safety
    ///
    /// As [`bind`](Self::bind).
    #[doc(alias("SO_REUSEPORT", "reuse_port", "reuseport"))]
    pub async fn bind_balanced(
        address: impl AsyncToSocketAddrs,
        count: usize,
    ) -> io::Result<Vec<TcpListener>> {
        if count == 0 {
            return Err(invalid(
                "bind_balanced: the number of listeners must be at least 1",
            ));
        }
        first_to_bind("listen on", address, |address| {
            let sockets = kernel::bind_balanced(SocketType::TcpListener, &address.into(), count)?;
            Ok(sockets.into_iter().map(TcpListener).collect())
        })
        .await
    }

    /// [`bind`](Self::bind) for a socket with options set before: see [the module](crate::net).
    ///
    /// ```
    /// use polder::net::TcpListener;
    /// use socket2::{Domain, Socket, Type};
    ///
    /// let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    /// socket.set_recv_buffer_size(1 << 16)?; // Connections inherit it.
    /// let listener = TcpListener::bind_with(socket, "127.0.0.1:0".parse().unwrap())?;
    /// assert_ne!(listener.local_addr()?.port(), 0);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call; [`InvalidInput`](io::ErrorKind::InvalidInput) if it is not a
    /// TCP socket.
    #[doc(alias = "TcpSocket")]
    pub fn bind_with(
        socket: impl Into<OwnedDescriptor>,
        address: SocketAddr,
    ) -> io::Result<TcpListener> {
        kernel::bind_with(socket.into(), SocketType::TcpListener, &address.into()).map(TcpListener)
    }

    /// Waits for a connection.
    ///
    /// Any number of tasks may wait; each connection goes to one of them. A connection that its
    /// peer aborted in the queue is skipped if the system reports that (`ECONNABORTED`). Linux
    /// returns it: the first read returns what was sent before, or
    /// [`ConnectionReset`](io::ErrorKind::ConnectionReset).
    ///
    /// ```
    /// use polder::net::{TcpListener, TcpStream};
    ///
    /// polder::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let client = TcpStream::connect(listener.local_addr()?).await?;
    ///     let (_server, from) = listener.accept().await?;
    ///     assert_eq!(from, client.local_addr()?);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call, for instance that no descriptor is left: the connection then
    /// stays in the queue.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future loses no connection.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        accepted(self.0.accept().await?)
    }

    /// Poll version of [`accept`](Self::accept).
    ///
    /// Only the last task that polled is woken; each clone of the listener has such a task of its
    /// own.
    ///
    /// ```
    /// use polder::net::{TcpListener, TcpStream};
    ///
    /// # polder::block_on(async {
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let client = TcpStream::connect(listener.local_addr()?).await?;
    /// let (_server, from) = std::future::poll_fn(|cx| listener.poll_accept(cx)).await?;
    /// assert_eq!(from, client.local_addr()?);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        self.0.accept().poll(cx)?.map(accepted)
    }

    /// Returns an endless stream of connections. After an error, the next item may be a connection.
    ///
    /// ```
    /// use polder::net::{TcpListener, TcpStream};
    /// use polder::stream::StreamExt;
    ///
    /// polder::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let _client = TcpStream::connect(listener.local_addr()?).await?;
    ///     let mut incoming = listener.incoming();
    ///     let stream = incoming.next().await.expect("it has no end")?;
    ///     assert!(stream.peer_addr().is_ok());
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Cancel safety
    ///
    /// As [`Incoming`]: no connection is lost.
    #[doc(alias("TcpListenerStream", "into_incoming"))]
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming::new(&self.0)
    }

    /// Returns the local address, with the port that the system chose for port 0.
    ///
    /// ```
    /// use polder::net::{IpAddr, Ipv4Addr, TcpListener};
    ///
    /// polder::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let address = listener.local_addr()?;
    ///     assert_eq!(address.ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
    ///     assert_ne!(address.port(), 0);
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

    /// Returns the number of hops that packets of accepted connections may take (`IP_TTL`): see
    /// [`TcpStream::ttl`].
    ///
    /// ```
    /// use polder::net::TcpListener;
    ///
    /// polder::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     assert!(listener.ttl()? > 1); // By default packets pass routers.
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
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
    /// use polder::net::TcpListener;
    ///
    /// polder::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     listener.set_ttl(1)?; // Clients behind a router receive nothing.
    ///     assert_eq!(listener.ttl()?, 1);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.set(Opt::Number(Number::Ttl, ttl))
    }
}

fn accepted((socket, peer): (Socket, Address)) -> io::Result<(TcpStream, SocketAddr)> {
    Ok((TcpStream::from_socket(socket), internet(peer)?))
}

socket!(TcpListener, std::net::TcpListener, [local_addr]);

/// The stream of a listener's connections: see [`TcpListener::incoming`].
///
/// ```
/// use polder::net::{Incoming, TcpListener, TcpStream};
/// use polder::stream::StreamExt;
///
/// polder::block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let address = listener.local_addr()?;
///     let _one = TcpStream::connect(address).await?;
///     let _other = TcpStream::connect(address).await?;
///     let incoming: Incoming<'_> = listener.incoming();
///     let streams: Vec<_> = incoming.take(2).collect().await;
///     assert!(streams.iter().all(Result::is_ok));
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// Each item fails as [`TcpListener::accept`] does.
///
/// # Cancel safety
///
/// Cancel safe: dropping the stream, or the future of an item, loses no connection.
#[must_use = "streams do nothing unless they are polled"]
pub struct Incoming<'a, S = TcpStream> {
    listener: &'a Socket,
    accept: Option<Accept<'a, S>>,
}

type Accept<'a, S> = Pin<Box<dyn Future<Output = io::Result<S>> + Send + Sync + 'a>>;

impl<'a, S> Incoming<'a, S> {
    pub(crate) fn new(listener: &'a Socket) -> Incoming<'a, S> {
        Incoming {
            listener,
            accept: None,
        }
    }
}

impl<S: StreamSocket> futures_lite::Stream for Incoming<'_, S> {
    type Item = io::Result<S>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let listener = self.listener;
        let accept = || async { Ok(S::from_socket(listener.accept().await?.0)) };
        let accepting = self.accept.get_or_insert_with(|| Box::pin(accept()));
        let result = ready!(accepting.as_mut().poll(cx));
        self.accept = None;
        Poll::Ready(Some(result))
    }
}

impl<S> fmt::Debug for Incoming<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Incoming").field(self.listener).finish()
    }
}
