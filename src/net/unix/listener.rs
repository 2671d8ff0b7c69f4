//! A Unix listener.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::task::{Context, Poll};

use super::address::{from_kernel, from_path, not_bound, to_kernel};
use super::stream::UnixStream;
use crate::net::macros::socket;
use crate::net::socket::{Address, Flag, Opt, Socket, SocketType, StreamSocket, kernel};

/// A socket that listens for Unix connections.
///
/// Clones share the socket; dropping the last one closes it. **The file at its path stays**, as
/// with the standard library: until it is removed, the next `bind` fails with "in use".
///
/// # Examples
///
/// ```
/// use polder::io::{AsyncReadExt, AsyncWriteExt};
/// use polder::net::unix::{UnixListener, UnixStream};
///
/// let path = std::env::temp_dir().join(format!("polder-example-{}", std::process::id()));
/// polder::block_on(async {
///     let listener = UnixListener::bind(&path)?;
///     let mut near = UnixStream::connect(&path).await?;
///     let (mut far, _peer) = listener.accept().await?;
///     std::fs::remove_file(&path)?; // No other client will connect.
///
///     near.write_all(b"hello").await?;
///     drop(near);
///     let mut text = String::new();
///     far.read_to_string(&mut text).await?;
///     assert_eq!(text, "hello");
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
#[doc(alias("from_std", "into_std", "uds"))]
pub struct UnixListener(Socket);

impl UnixListener {
    /// Listens on `path`, and creates a file there.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-listener-bind-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::net::unix::UnixListener;
    /// use std::io::ErrorKind;
    ///
    /// let listener = UnixListener::bind(&path)?;
    /// drop(listener);
    /// let error = UnixListener::bind(&path).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::AddrInUse); // Its file still exists.
    /// std::fs::remove_file(&path)?;
    /// assert!(UnixListener::bind(&path).is_ok());
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call: [in use](io::ErrorKind::AddrInUse) if the file exists, even
    /// without a listener; [`InvalidInput`](io::ErrorKind::InvalidInput) as for
    /// [`UnixStream::connect`].
    ///
    /// # Platforms
    ///
    /// Linux would choose an abstract name for an empty path. For that, bind a socket made with
    /// socket2, listen, and convert it with `try_from`, as an `OwnedFd`.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixListener> {
        UnixListener::bind_addr(&from_path(path.as_ref())?)
    }

    /// Listens on `address`, which may be an abstract one: see [`UnixStream::connect_addr`].
    ///
    /// ```
    /// # #[cfg(target_os = "linux")] {
    /// use polder::net::unix::{SocketAddr, UnixListener};
    /// use std::os::linux::net::SocketAddrExt;
    ///
    /// let name = format!("polder-listener-{}", std::process::id());
    /// let address = SocketAddr::from_abstract_name(&name)?;
    /// drop(UnixListener::bind_addr(&address)?);
    /// assert!(UnixListener::bind_addr(&address).is_ok()); // No file is in the way.
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`bind`](Self::bind).
    pub fn bind_addr(address: &SocketAddr) -> io::Result<UnixListener> {
        let bound = kernel::bind(SocketType::UnixListener, &to_kernel(address)?);
        bound
            .map(UnixListener)
            .map_err(|error| not_bound("listen on", address, error))
    }

    /// [`bind_addr`](Self::bind_addr) for a socket with options set before.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-listener-with-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::net::unix::{SocketAddr, UnixListener, UnixStream};
    /// use socket2::{Domain, Socket, Type};
    ///
    /// polder::block_on(async {
    ///     let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    ///     socket.set_send_buffer_size(1 << 16)?;
    ///     let listener = UnixListener::bind_with(socket, &SocketAddr::from_pathname(&path)?)?;
    ///     assert!(UnixStream::connect(&path).await.is_ok());
    /// # drop(listener);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`bind`](Self::bind); [`InvalidInput`](io::ErrorKind::InvalidInput) if it is not such
    /// a socket.
    pub fn bind_with(socket: impl Into<OwnedFd>, address: &SocketAddr) -> io::Result<UnixListener> {
        let address = to_kernel(address)?;
        kernel::bind_with(socket.into(), SocketType::UnixListener, &address).map(UnixListener)
    }

    /// Waits for a connection.
    ///
    /// Any number of tasks may wait; each connection goes to one of them.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-listener-accept-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::net::unix::{UnixListener, UnixStream};
    ///
    /// polder::block_on(async {
    ///     let listener = UnixListener::bind(&path)?;
    ///     let _client = UnixStream::connect(&path).await?;
    ///     let (server, from) = listener.accept().await?;
    ///     assert_eq!(server.local_addr()?.as_pathname(), Some(path.as_path()));
    ///     assert!(from.is_unnamed()); // The client's socket is not bound.
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::fs::remove_file(&path)?;
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
    pub async fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        accepted(self.0.accept().await?)
    }

    /// Poll version of [`accept`](Self::accept): see
    /// [`TcpListener::poll_accept`](crate::net::TcpListener::poll_accept).
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-poll-accept-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::net::unix::{UnixListener, UnixStream};
    ///
    /// # polder::block_on(async {
    /// let listener = UnixListener::bind(&path)?;
    /// let _client = UnixStream::connect(&path).await?;
    /// let (_server, from) = std::future::poll_fn(|cx| listener.poll_accept(cx)).await?;
    /// assert!(from.is_unnamed());
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(UnixStream, SocketAddr)>> {
        self.0.accept().poll(cx)?.map(accepted)
    }

    /// Returns an endless stream of connections. After an error, the next item may be a connection.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-incoming-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::net::unix::{UnixListener, UnixStream};
    /// use polder::stream::StreamExt;
    ///
    /// polder::block_on(async {
    ///     let listener = UnixListener::bind(&path)?;
    ///     let _client = UnixStream::connect(&path).await?;
    ///     let _server = listener.incoming().next().await.expect("it has no end")?;
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Cancel safety
    ///
    /// As [`Incoming`](crate::net::Incoming): no connection is lost.
    #[doc(alias("UnixListenerStream", "into_incoming"))]
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming::new(&self.0)
    }

    /// Whether peers may send descriptors with their bytes (`SO_PASSRIGHTS`): see
    /// [`UnixStream::passrights`].
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-listener-rights-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::net::unix::UnixListener;
    ///
    /// let listener = UnixListener::bind(&path)?;
    /// listener.set_passrights(true)?;
    /// assert!(listener.passrights()?);
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    #[doc(alias = "SO_PASSRIGHTS")]
    #[doc(alias = "SCM_RIGHTS")]
    pub fn passrights(&self) -> io::Result<bool> {
        self.0.kernel_socket().flag(Flag::Passrights)
    }

    /// Sets [`passrights`](Self::passrights) for connections made from now on. Those in the queue
    /// keep their setting.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-listener-allow-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::net::unix::{UnixListener, UnixStream};
    ///
    /// polder::block_on(async {
    ///     let listener = UnixListener::bind(&path)?;
    ///     listener.set_passrights(true)?;
    ///     let _client = UnixStream::connect(&path).await?;
    ///     let (server, _) = listener.accept().await?;
    ///     assert!(server.passrights()?);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::fs::remove_file(&path)?;
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

    /// Returns the local address.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-listener-local-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::net::unix::UnixListener;
    ///
    /// let listener = UnixListener::bind(&path)?;
    /// let address = listener.local_addr()?;
    /// // The owner may remove the file.
    /// assert_eq!(address.as_pathname(), Some(path.as_path()));
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
}

fn accepted((socket, peer): (Socket, Address)) -> io::Result<(UnixStream, SocketAddr)> {
    Ok((UnixStream::from_socket(socket), from_kernel(peer)?))
}

socket!(UnixListener, std::os::unix::net::UnixListener, [local_addr]);

/// The stream of a [`UnixListener`]'s connections: see [`UnixListener::incoming`].
///
/// ```
/// # let path = std::env::temp_dir().join(format!("polder-unix-incoming-{}", std::process::id()));
/// # let _ = std::fs::remove_file(&path);
/// use polder::net::unix::{Incoming, UnixListener, UnixStream};
/// use polder::stream::StreamExt;
///
/// polder::block_on(async {
///     let listener = UnixListener::bind(&path)?;
///     let _clients = [UnixStream::connect(&path).await?, UnixStream::connect(&path).await?];
///     let incoming: Incoming<'_> = listener.incoming();
///     let streams: Vec<_> = incoming.take(2).collect().await;
///     assert!(streams.iter().all(Result::is_ok));
///     std::io::Result::Ok(())
/// })?;
/// # std::fs::remove_file(&path)?;
/// # std::io::Result::Ok(())
/// ```
pub type Incoming<'a> = crate::net::Incoming<'a, UnixStream>;
