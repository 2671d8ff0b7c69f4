//! Async-io's functions of [`Async`] sockets of the standard library, for programs that migrate
//! from it (feature `async-io-compat`). The sockets of [`net`](super) do more and cost less.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
#[cfg(unix)]
use std::os::unix::net as unix;
#[cfg(unix)]
use std::path::Path;

use futures_lite::Stream;
use futures_lite::stream;

use crate::io::{Async, or_nothing};
#[cfg(unix)]
use crate::sys;

impl Async<TcpListener> {
    /// Listens on `address`; for port 0 the system chooses a free port.
    ///
    /// ```
    /// use polder::Async;
    /// use polder::io::{AsyncReadExt, AsyncWriteExt};
    /// use std::net::{TcpListener, TcpStream};
    ///
    /// polder::block_on(async {
    ///     let listener = Async::<TcpListener>::bind(([127, 0, 0, 1], 0))?;
    ///     let address = listener.get_ref().local_addr()?;
    ///     let mut client = Async::<TcpStream>::connect(address).await?;
    ///     let (mut server, _) = listener.accept().await?;
    ///
    ///     client.write_all(b"hello").await?;
    ///     let mut bytes = [0; 5];
    ///     server.read_exact(&mut bytes).await?;
    ///     assert_eq!(&bytes, b"hello");
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call, for instance that the address is in use.
    pub fn bind(address: impl Into<SocketAddr>) -> io::Result<Async<TcpListener>> {
        Async::new(TcpListener::bind(address.into())?)
    }

    /// Accepts a connection. Returns it with the peer's address.
    ///
    /// ```
    /// use polder::Async;
    /// use std::net::{TcpListener, TcpStream};
    ///
    /// polder::block_on(async {
    ///     let listener = Async::<TcpListener>::bind(([127, 0, 0, 1], 0))?;
    ///     let address = listener.get_ref().local_addr()?;
    ///     let client = Async::<TcpStream>::connect(address).await?;
    ///     let (_server, from) = listener.accept().await?;
    ///     assert_eq!(from, client.get_ref().local_addr()?);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`net::TcpListener::accept`](crate::net::TcpListener::accept).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future loses no connection.
    pub async fn accept(&self) -> io::Result<(Async<TcpStream>, SocketAddr)> {
        let (stream, address) = self.read_with(TcpListener::accept).await?;
        Ok((Async::new(stream)?, address))
    }

    /// Returns an endless stream of connections.
    ///
    /// ```
    /// use polder::Async;
    /// use polder::stream::StreamExt;
    /// use std::net::{TcpListener, TcpStream};
    /// use std::pin::pin;
    ///
    /// polder::block_on(async {
    ///     let listener = Async::<TcpListener>::bind(([127, 0, 0, 1], 0))?;
    ///     let client = TcpStream::connect(listener.get_ref().local_addr()?)?;
    ///     let mut incoming = pin!(listener.incoming());
    ///     let server = incoming.next().await.expect("it has no end")?;
    ///     assert_eq!(server.get_ref().peer_addr()?, client.local_addr()?);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`net::TcpListener::accept`](crate::net::TcpListener::accept).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the stream, or the future of an item, loses no connection.
    pub fn incoming(&self) -> impl Stream<Item = io::Result<Async<TcpStream>>> + Send + '_ {
        stream::unfold(self, |listener| async move {
            Some((listener.accept().await.map(|(it, _)| it), listener))
        })
    }
}

impl Async<TcpStream> {
    /// Connects to `address`.
    ///
    /// ```
    /// use polder::Async;
    /// use polder::io::AsyncWriteExt;
    /// use std::io::Read;
    /// use std::net::{TcpListener, TcpStream};
    ///
    /// polder::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let mut client = Async::<TcpStream>::connect(listener.local_addr()?).await?;
    ///     client.write_all(b"hello").await?;
    ///     drop(client);
    ///     let mut text = String::new();
    ///     listener.accept()?.0.read_to_string(&mut text)?;
    ///     assert_eq!(text, "hello");
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`net::TcpStream::connect`](crate::net::TcpStream::connect).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future closes the socket.
    pub async fn connect(address: impl Into<SocketAddr>) -> io::Result<Async<TcpStream>> {
        let stream = crate::net::TcpStream::connect(address.into()).await?;
        Async::new_nonblocking(stream.try_into()?)
    }

    /// Reads without consuming.
    ///
    /// ```
    /// use polder::Async;
    /// use polder::io::AsyncReadExt;
    /// use std::io::Write;
    /// use std::net::{TcpListener, TcpStream};
    ///
    /// polder::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let mut near = Async::<TcpStream>::connect(listener.local_addr()?).await?;
    ///     listener.accept()?.0.write_all(b"hello")?; // And closes it.
    ///     let mut first = [0];
    ///     assert_eq!((near.peek(&mut first).await?, first), (1, *b"h"));
    ///     let mut text = String::new();
    ///     near.read_to_string(&mut text).await?; // It is still there.
    ///     assert_eq!(text, "hello");
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
    /// Cancel safe: nothing is consumed.
    pub async fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        let wanted = !bytes.is_empty();
        self.read_with(|stream| or_nothing(wanted, stream.peek(bytes)))
            .await
    }
}

impl Async<UdpSocket> {
    /// Binds to `address`; for port 0 the system chooses a free port.
    ///
    /// ```
    /// use polder::Async;
    /// use std::net::UdpSocket;
    ///
    /// let socket = Async::<UdpSocket>::bind(([127, 0, 0, 1], 0))?;
    /// let address = socket.get_ref().local_addr()?;
    /// assert_ne!(address.port(), 0);
    /// let taken = Async::<UdpSocket>::bind(address).unwrap_err();
    /// assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn bind(address: impl Into<SocketAddr>) -> io::Result<Async<UdpSocket>> {
        Async::new(UdpSocket::bind(address.into())?)
    }

    /// Receives one datagram. Returns its length and its sender's address; bytes beyond the buffer
    /// are lost.
    ///
    /// ```
    /// use polder::Async;
    /// use std::net::UdpSocket;
    ///
    /// polder::block_on(async {
    ///     let near = Async::<UdpSocket>::bind(([127, 0, 0, 1], 0))?;
    ///     let far = Async::<UdpSocket>::bind(([127, 0, 0, 1], 0))?;
    ///     far.send_to(b"hello", near.get_ref().local_addr()?).await?;
    ///     let mut bytes = [0; 8];
    ///     let (length, from) = near.recv_from(&mut bytes).await?;
    ///     assert_eq!(&bytes[..length], b"hello");
    ///     assert_eq!(from, far.get_ref().local_addr()?);
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
    pub async fn recv_from(&self, bytes: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.read_with(|socket| socket.recv_from(bytes)).await
    }

    /// [`recv_from`](Self::recv_from) without consuming the datagram.
    ///
    /// ```
    /// use polder::Async;
    /// use std::net::UdpSocket;
    ///
    /// polder::block_on(async {
    ///     let near = Async::<UdpSocket>::bind(([127, 0, 0, 1], 0))?;
    ///     let far = Async::<UdpSocket>::bind(([127, 0, 0, 1], 0))?;
    ///     far.send_to(b"hello", near.get_ref().local_addr()?).await?;
    ///     let mut bytes = [0; 8];
    ///     let seen = near.peek_from(&mut bytes).await?;
    ///     assert_eq!(near.recv_from(&mut bytes).await?, seen); // It was still there.
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
    /// Cancel safe: nothing is consumed.
    pub async fn peek_from(&self, bytes: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.read_with(|socket| socket.peek_from(bytes)).await
    }

    /// Sends one datagram.
    ///
    /// ```
    /// use polder::Async;
    /// use std::net::UdpSocket;
    ///
    /// polder::block_on(async {
    ///     let near = Async::<UdpSocket>::bind(([127, 0, 0, 1], 0))?;
    ///     let far = Async::<UdpSocket>::bind(([127, 0, 0, 1], 0))?;
    ///     let sent = near.send_to(b"hello", far.get_ref().local_addr()?).await?;
    ///     let (received, _from) = far.recv_from(&mut [0; 8]).await?;
    ///     assert_eq!((sent, received), (5, 5));
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
    /// Cancel safe: a dropped future has sent nothing.
    pub async fn send_to(&self, bytes: &[u8], to: impl Into<SocketAddr>) -> io::Result<usize> {
        let to = to.into();
        self.write_with(|socket| socket.send_to(bytes, to)).await
    }

    /// Receives one datagram from the peer.
    ///
    /// ```
    /// use polder::Async;
    /// use std::net::UdpSocket;
    ///
    /// polder::block_on(async {
    ///     let near = Async::<UdpSocket>::bind(([127, 0, 0, 1], 0))?;
    ///     let far = Async::<UdpSocket>::bind(([127, 0, 0, 1], 0))?;
    ///     near.get_ref().connect(far.get_ref().local_addr()?)?;
    ///     far.send_to(b"hello", near.get_ref().local_addr()?).await?;
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
        self.read_with(|socket| socket.recv(bytes)).await
    }

    /// [`recv`](Self::recv) without consuming the datagram.
    ///
    /// ```
    /// use polder::Async;
    /// use std::net::UdpSocket;
    ///
    /// polder::block_on(async {
    ///     let near = Async::<UdpSocket>::bind(([127, 0, 0, 1], 0))?;
    ///     let far = Async::<UdpSocket>::bind(([127, 0, 0, 1], 0))?;
    ///     near.get_ref().connect(far.get_ref().local_addr()?)?;
    ///     far.send_to(b"hello", near.get_ref().local_addr()?).await?;
    ///     let mut bytes = [0; 8];
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
    /// Cancel safe: nothing is consumed.
    pub async fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.read_with(|socket| socket.peek(bytes)).await
    }

    /// Sends one datagram to the peer.
    ///
    /// ```
    /// use polder::Async;
    /// use std::net::UdpSocket;
    ///
    /// polder::block_on(async {
    ///     let near = Async::<UdpSocket>::bind(([127, 0, 0, 1], 0))?;
    ///     let far = Async::<UdpSocket>::bind(([127, 0, 0, 1], 0))?;
    ///     near.get_ref().connect(far.get_ref().local_addr()?)?;
    ///     near.send(b"hello").await?;
    ///     let (length, from) = far.recv_from(&mut [0; 8]).await?;
    ///     assert_eq!((length, from), (5, near.get_ref().local_addr()?));
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
    /// Cancel safe: a dropped future has sent nothing.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.write_with(|socket| socket.send(bytes)).await
    }
}

#[cfg(unix)]
impl Async<unix::UnixListener> {
    /// Listens at `path`.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-async-listen-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::Async;
    /// use std::os::unix::net::UnixListener;
    ///
    /// polder::block_on(async {
    ///     let listener = Async::<UnixListener>::bind(&path)?;
    ///     let address = listener.get_ref().local_addr()?;
    ///     assert_eq!(address.as_pathname(), Some(path.as_path()));
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`net::unix::UnixListener::bind`](crate::net::unix::UnixListener::bind).
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Async<unix::UnixListener>> {
        // The standard library's `bind` would take the empty path for an unnamed address.
        let listener = crate::net::unix::UnixListener::bind(path)?;
        Async::new_nonblocking(listener.try_into()?)
    }

    /// Accepts a connection. Returns it with the peer's address.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-async-accept-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::Async;
    /// use std::os::unix::net::{UnixListener, UnixStream};
    ///
    /// polder::block_on(async {
    ///     let listener = Async::<UnixListener>::bind(&path)?;
    ///     let _client = Async::<UnixStream>::connect(&path).await?;
    ///     let (_server, from) = listener.accept().await?;
    ///     assert!(from.is_unnamed()); // The client's socket is not bound.
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`net::TcpListener::accept`](crate::net::TcpListener::accept).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future loses no connection.
    pub async fn accept(&self) -> io::Result<(Async<unix::UnixStream>, unix::SocketAddr)> {
        let (stream, address) = self.read_with(unix::UnixListener::accept).await?;
        Ok((Async::new(stream)?, address))
    }

    /// Returns an endless stream of connections.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-async-incoming-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::Async;
    /// use polder::stream::StreamExt;
    /// use std::os::unix::net::{UnixListener, UnixStream};
    /// use std::pin::pin;
    ///
    /// polder::block_on(async {
    ///     let listener = Async::<UnixListener>::bind(&path)?;
    ///     let _client = UnixStream::connect(&path)?;
    ///     let mut incoming = pin!(listener.incoming());
    ///     let server = incoming.next().await.expect("it has no end")?;
    ///     server.writable().await?;
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`net::unix::UnixListener::accept`](crate::net::unix::UnixListener::accept).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the stream, or the future of an item, loses no connection.
    pub fn incoming(&self) -> impl Stream<Item = io::Result<Async<unix::UnixStream>>> + Send + '_ {
        stream::unfold(self, |listener| async move {
            Some((listener.accept().await.map(|(it, _)| it), listener))
        })
    }
}

#[cfg(unix)]
impl Async<unix::UnixStream> {
    /// Connects to `path`.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-async-connect-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::Async;
    /// use polder::io::AsyncWriteExt;
    /// use std::io::Read;
    /// use std::os::unix::net::{UnixListener, UnixStream};
    ///
    /// polder::block_on(async {
    ///     let listener = UnixListener::bind(&path)?;
    ///     let mut client = Async::<UnixStream>::connect(&path).await?;
    ///     client.write_all(b"hello").await?;
    ///     drop(client);
    ///     let mut text = String::new();
    ///     listener.accept()?.0.read_to_string(&mut text)?;
    ///     assert_eq!(text, "hello");
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// On Linux and Android a path that begins with NUL is an abstract name, as in async-io.
    ///
    /// ```
    /// # #[cfg(target_os = "linux")] {
    /// # use polder::Async;
    /// # use std::os::linux::net::SocketAddrExt;
    /// # use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
    /// let name = format!("polder-example-async-{}", std::process::id());
    /// let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    /// polder::block_on(Async::<UnixStream>::connect(format!("\0{name}")))?;
    /// # drop(listener);
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`net::unix::UnixStream::connect`](crate::net::unix::UnixStream::connect).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future closes the socket.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Async<unix::UnixStream>> {
        use std::os::unix::ffi::OsStrExt;

        use crate::net::unix::UnixStream;

        let path = path.as_ref();
        let name = path.as_os_str().as_bytes().strip_prefix(&[0]);
        let stream = match name.and_then(sys::abstract_address) {
            Some(address) => UnixStream::connect_addr(&address?).await?,
            None => UnixStream::connect(path).await?,
        };
        Async::new_nonblocking(stream.try_into()?)
    }

    /// Creates two connected streams.
    ///
    /// ```
    /// use polder::Async;
    /// use polder::io::{AsyncReadExt, AsyncWriteExt};
    /// use std::os::unix::net::UnixStream;
    ///
    /// polder::block_on(async {
    ///     let (mut near, mut far) = Async::<UnixStream>::pair()?;
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
    /// Any error of the system call.
    pub fn pair() -> io::Result<(Async<unix::UnixStream>, Async<unix::UnixStream>)> {
        let (one, other) = unix::UnixStream::pair()?;
        Ok((Async::new(one)?, Async::new(other)?))
    }
}

#[cfg(unix)]
impl Async<unix::UnixDatagram> {
    /// Binds to `path`.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-async-mailbox-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::Async;
    /// use std::os::unix::net::UnixDatagram;
    ///
    /// polder::block_on(async {
    ///     let mailbox = Async::<UnixDatagram>::bind(&path)?;
    ///     Async::<UnixDatagram>::unbound()?.send_to(b"hello", &path).await?;
    ///     assert_eq!(mailbox.recv(&mut [0; 8]).await?, 5);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`net::unix::UnixDatagram::bind`](crate::net::unix::UnixDatagram::bind).
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Async<unix::UnixDatagram>> {
        let socket = crate::net::unix::UnixDatagram::bind(path)?;
        Async::new_nonblocking(socket.try_into()?)
    }

    /// Creates a socket without an address.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-async-unbound-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::Async;
    /// use std::os::unix::net::UnixDatagram;
    ///
    /// polder::block_on(async {
    ///     let mailbox = Async::<UnixDatagram>::bind(&path)?;
    ///     let sender = Async::<UnixDatagram>::unbound()?;
    ///     sender.send_to(b"hello", &path).await?;
    ///     let (_length, from) = mailbox.recv_from(&mut [0; 8]).await?;
    ///     assert!(from.is_unnamed()); // There is no address to reply to.
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn unbound() -> io::Result<Async<unix::UnixDatagram>> {
        Async::new(unix::UnixDatagram::unbound()?)
    }

    /// Creates two connected sockets.
    ///
    /// ```
    /// use polder::Async;
    /// use std::os::unix::net::UnixDatagram;
    ///
    /// polder::block_on(async {
    ///     let (near, far) = Async::<UnixDatagram>::pair()?;
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
    /// Any error of the system call.
    pub fn pair() -> io::Result<(Async<unix::UnixDatagram>, Async<unix::UnixDatagram>)> {
        let (one, other) = unix::UnixDatagram::pair()?;
        Ok((Async::new(one)?, Async::new(other)?))
    }

    /// Receives one datagram. Returns its length and its sender's address; bytes beyond the buffer
    /// are lost.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-async-recv-from-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::Async;
    /// use std::os::unix::net::UnixDatagram;
    ///
    /// polder::block_on(async {
    ///     let mailbox = Async::<UnixDatagram>::bind(&path)?;
    ///     mailbox.send_to(b"to myself", &path).await?;
    ///     let (length, from) = mailbox.recv_from(&mut [0; 16]).await?;
    ///     assert_eq!((length, from.as_pathname()), (9, Some(path.as_path())));
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
    pub async fn recv_from(&self, bytes: &mut [u8]) -> io::Result<(usize, unix::SocketAddr)> {
        self.read_with(|socket| socket.recv_from(bytes)).await
    }

    /// Sends one datagram.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("polder-async-send-to-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// use polder::Async;
    /// use std::os::unix::net::UnixDatagram;
    ///
    /// polder::block_on(async {
    ///     let sender = Async::<UnixDatagram>::unbound()?;
    ///     assert!(sender.send_to(b"hello", &path).await.is_err()); // There is no receiver yet.
    ///     let mailbox = Async::<UnixDatagram>::bind(&path)?;
    ///     assert_eq!(sender.send_to(b"hello", &path).await?, 5);
    ///     assert_eq!(mailbox.recv(&mut [0; 8]).await?, 5);
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
    /// Cancel safe: a dropped future has sent nothing.
    pub async fn send_to(&self, bytes: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        self.write_with(|socket| socket.send_to(bytes, path.as_ref()))
            .await
    }

    /// Receives one datagram from the peer.
    ///
    /// ```
    /// use polder::Async;
    /// use std::os::unix::net::UnixDatagram;
    ///
    /// polder::block_on(async {
    ///     let (near, far) = Async::<UnixDatagram>::pair()?;
    ///     near.send(b"hello").await?;
    ///     let mut bytes = [0; 8];
    ///     let length = far.recv(&mut bytes).await?;
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
        self.read_with(|socket| socket.recv(bytes)).await
    }

    /// Sends one datagram to the peer.
    ///
    /// ```
    /// use polder::Async;
    /// use std::os::unix::net::UnixDatagram;
    ///
    /// polder::block_on(async {
    ///     let (near, far) = Async::<UnixDatagram>::pair()?;
    ///     assert_eq!(near.send(b"hello").await?, 5);
    ///     assert_eq!(far.recv(&mut [0; 8]).await?, 5);
    ///     drop(far);
    ///     assert!(near.send(b"hello").await.is_err()); // The receiver is gone.
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
    /// Cancel safe: a dropped future has sent nothing.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.write_with(|socket| socket.send(bytes)).await
    }
}
