//! Listening for Unix connections.

use std::fmt;
use std::io;
use std::os::unix::net::SocketAddr;
use std::path::Path;

use super::address::{from_kernel, from_path, to_kernel};
use super::{Incoming, UnixStream};
use crate::net::socket::{Socket, Sort};
use crate::net::traits::{Stream, converts};

/// A socket that listens for Unix connections.
///
/// Clones share the socket; it is closed when the last one is dropped. **The file at its path stays**,
/// as the standard library leaves it: remove it then, or before the next `bind`, which finds the address
/// in use otherwise.
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
///     std::fs::remove_file(&path)?; // Nobody else will connect.
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
pub struct UnixListener(Socket);

impl UnixListener {
    /// Listens at `path`, where it makes a file.
    ///
    /// # Errors
    ///
    /// What the system says: [in use](io::ErrorKind::AddrInUse) where the file is there already, even if
    /// nobody listens; [`InvalidInput`](io::ErrorKind::InvalidInput) for a path that is empty, too long
    /// (about 100 bytes) or has a NUL in it.
    ///
    /// # Platform notes
    ///
    /// For an empty path Linux would make up an abstract name. Who wants that binds a socket of
    /// [`socket2`](crate::net::socket2)'s, lets it listen, and hands it over with `try_from`.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixListener> {
        let address = from_path(path.as_ref())?;
        Socket::bind(Sort::UnixListener, &address).map(UnixListener)
    }

    /// Listens at `address`, abstract ones included: see [`UnixStream::connect_addr`].
    ///
    /// # Errors
    ///
    /// As for [`bind`](Self::bind).
    pub fn bind_addr(address: &SocketAddr) -> io::Result<UnixListener> {
        let address = to_kernel(address)?;
        Socket::bind(Sort::UnixListener, &address).map(UnixListener)
    }

    /// [`bind_addr`](Self::bind_addr) for a socket that was given its options before.
    ///
    /// # Errors
    ///
    /// As for [`bind`](Self::bind); [`InvalidInput`](io::ErrorKind::InvalidInput) if it is not such a
    /// socket.
    pub fn bind_with(socket: socket2::Socket, address: &SocketAddr) -> io::Result<UnixListener> {
        let address = to_kernel(address)?;
        Socket::bind_with(socket, Sort::UnixListener, &address).map(UnixListener)
    }

    /// Waits for a connection.
    ///
    /// Any number of tasks may wait at once; each connection goes to one of them.
    ///
    /// # Errors
    ///
    /// What the system says, for instance that there are no descriptors left: the connection
    /// then stays in the queue.
    ///
    /// # Cancel safety
    ///
    /// Giving up loses no connection.
    pub async fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (socket, peer) = self.0.accept().await?;
        Ok((Stream::from_socket(socket), from_kernel(peer)?))
    }

    /// The connections as they come, without end. An error is an item; the next one may be a
    /// connection again.
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
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming::new(&self.0)
    }

    /// The address that it listens at.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        from_kernel(self.0.local_addr()?)
    }
}

converts!(
    UnixListener,
    std::os::unix::net::UnixListener,
    Sort::UnixListener
);

impl fmt::Debug for UnixListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnixListener")
            .field("local_addr", &self.local_addr().ok())
            .finish()
    }
}
