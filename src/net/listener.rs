//! [`Listener`], the trait of types that accept connections for [`serve`](super::serve()).

use std::io;
use std::net::SocketAddr;

use super::tcp::{TcpListener, TcpStream};
#[cfg(unix)]
use super::unix::{self, UnixListener, UnixStream};

/// A listener that [`serve`](super::serve()) can accept connections from.
///
/// Implement it for a type that wraps another listener.
///
/// ```
/// use polder::event::Latch;
/// use polder::net::{Listener, SocketAddr, TcpListener, TcpStream, serve};
/// use std::io;
/// use std::time::Duration;
///
/// polder::block_on(async {
///     /// A listener whose connections send small messages immediately.
///     struct Prompt(TcpListener);
///
///     impl Listener for Prompt {
///         type Stream = TcpStream;
///         type Address = SocketAddr;
///
///         async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
///             let (stream, address) = self.0.accept().await?;
///             let _ = stream.set_nodelay(true); // Fails if the connection has ended.
///             Ok((stream, address))
///         }
///     }
///
///     let listener = Prompt(TcpListener::bind("127.0.0.1:0").await?);
///     let _client = TcpStream::connect(listener.0.local_addr()?).await?;
///     let stop = Latch::new();
///     let summary = serve(listener, |stream, _peer| {
///         assert!(stream.nodelay().unwrap());
///         stop.set();
///         async {}
///     })
///     .until(stop.wait())
///     .grace(Duration::from_secs(5))
///     .await?;
///     assert_eq!(summary.finished, 1);
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be listened on",
    label = "not a listener",
    note = "bind one first, for instance by `TcpListener::bind(address).await?`"
)]
pub trait Listener: Send + Sync {
    /// A connection.
    ///
    /// ```
    /// use polder::io::AsyncWriteExt;
    /// use polder::net::{Listener, TcpListener, TcpStream};
    ///
    /// /// Works with any listener of writable connections.
    /// async fn refuse<L: Listener<Stream: AsyncWriteExt + Unpin>>(mut stream: L::Stream) {
    ///     let _ = stream.write_all(b"not today").await;
    /// }
    ///
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let mut client = TcpStream::connect(listener.local_addr()?).await?;
    /// refuse::<TcpListener>(listener.accept().await?.0).await;
    /// let mut text = String::new();
    /// polder::io::AsyncReadExt::read_to_string(&mut client, &mut text).await?;
    /// assert_eq!(text, "not today");
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    type Stream: Send + 'static;
    /// The address of a peer.
    ///
    /// ```
    /// use polder::net::{Listener, TcpListener, TcpStream};
    /// use std::fmt::Debug;
    ///
    /// /// A line for the log.
    /// fn line<L: Listener<Address: Debug>>(address: &L::Address) -> String {
    ///     format!("from {address:?}")
    /// }
    ///
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let client = TcpStream::connect(listener.local_addr()?).await?;
    /// let (_server, address) = listener.accept().await?;
    /// assert_eq!(line::<TcpListener>(&address), format!("from {}", client.local_addr()?));
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    type Address: Send + 'static;

    /// Waits for a connection.
    ///
    /// `serve` keeps the future until it completes, so this may take several steps: accept, then a
    /// handshake. But there is only one such future, so a peer with a slow handshake delays all
    /// others; a handshake in the handler delays no other connection. When `serve` stops, it
    /// accepts the connections in the queue, and drops a future that is not ready immediately:
    /// handshakes here have no grace period, those in the handler do.
    ///
    /// After an error `serve` continues, unless its code says that the socket does not listen. An
    /// error that may recur immediately should be one of the system's, so that `serve` can pause.
    ///
    /// ```
    /// use polder::net::{Listener, TcpListener, TcpStream};
    /// use std::io;
    ///
    /// /// Accepts one connection from any listener.
    /// async fn first<L: Listener>(listener: &L) -> io::Result<L::Stream> {
    ///     Ok(listener.accept().await?.0)
    /// }
    ///
    /// polder::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let client = TcpStream::connect(listener.local_addr()?).await?;
    ///     assert_eq!(first(&listener).await?.peer_addr()?, client.local_addr()?);
    ///     io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call, or of the steps that the listener adds.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, which `serve` does at its end, loses at most the connection in its
    /// handshake.
    fn accept(&self)
    -> impl Future<Output = io::Result<(Self::Stream, Self::Address)>> + Send + '_;
}

impl Listener for TcpListener {
    type Stream = TcpStream;
    type Address = SocketAddr;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        TcpListener::accept(self).await
    }
}

#[cfg(unix)]
impl Listener for UnixListener {
    type Stream = UnixStream;
    type Address = unix::SocketAddr;

    async fn accept(&self) -> io::Result<(UnixStream, unix::SocketAddr)> {
        UnixListener::accept(self).await
    }
}

impl<L: Listener + ?Sized> Listener for &L {
    type Stream = L::Stream;
    type Address = L::Address;

    async fn accept(&self) -> io::Result<(L::Stream, L::Address)> {
        L::accept(self).await
    }
}
