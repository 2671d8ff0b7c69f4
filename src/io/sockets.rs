//! The standard library's sockets in [`Async`], with the functions that async-io has for them: for
//! programs that come from there. [`crate::net`] has sockets of our own, which do more and cost less.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
#[cfg(unix)]
use std::os::unix::net as unix;
#[cfg(unix)]
use std::path::Path;

use futures_lite::Stream;
use futures_lite::stream;

use super::Async;

impl Async<TcpListener> {
    /// Listens at `address`; port 0 asks the system for a free one.
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
    /// What the system says: an address in use, or one that is not of this machine.
    pub fn bind(address: impl Into<SocketAddr>) -> io::Result<Async<TcpListener>> {
        Async::new(TcpListener::bind(address.into())?)
    }

    /// The next connection, and where it comes from.
    ///
    /// # Errors
    ///
    /// As [`net::TcpListener::accept`](crate::net::TcpListener::accept).
    ///
    /// # Cancel safety
    ///
    /// A connection is taken or not: none is lost.
    pub async fn accept(&self) -> io::Result<(Async<TcpStream>, SocketAddr)> {
        let (stream, address) = self.read_with(TcpListener::accept).await?;
        Ok((Async::new(stream)?, address))
    }

    /// Connections, one after the other, without end.
    pub fn incoming(&self) -> impl Stream<Item = io::Result<Async<TcpStream>>> + Send + '_ {
        stream::unfold(self, |listener| async move {
            Some((listener.accept().await.map(|(it, _)| it), listener))
        })
    }
}

impl Async<TcpStream> {
    /// Connects to `address`.
    ///
    /// # Errors
    ///
    /// As [`net::TcpStream::connect`](crate::net::TcpStream::connect).
    ///
    /// # Cancel safety
    ///
    /// Giving up closes the socket.
    pub async fn connect(address: impl Into<SocketAddr>) -> io::Result<Async<TcpStream>> {
        let stream = crate::net::TcpStream::connect(address.into()).await?;
        Async::new_nonblocking(stream.try_into()?)
    }

    /// Reads without consuming.
    ///
    /// # Errors
    ///
    /// What the system says.
    ///
    /// # Cancel safety
    ///
    /// It consumes nothing.
    pub async fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.read_with(|stream| stream.peek(bytes)).await
    }
}

impl Async<UdpSocket> {
    /// Binds to `address`; port 0 asks the system for a free one.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn bind(address: impl Into<SocketAddr>) -> io::Result<Async<UdpSocket>> {
        Async::new(UdpSocket::bind(address.into())?)
    }

    /// Receives one datagram, and who sent it; what `bytes` has no room for is lost.
    ///
    /// # Errors
    ///
    /// What the system says.
    ///
    /// # Cancel safety
    ///
    /// A datagram is taken or not.
    pub async fn recv_from(&self, bytes: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.read_with(|socket| socket.recv_from(bytes)).await
    }

    /// As [`recv_from`](Self::recv_from), without consuming it.
    ///
    /// # Errors
    ///
    /// What the system says.
    ///
    /// # Cancel safety
    ///
    /// It consumes nothing.
    pub async fn peek_from(&self, bytes: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.read_with(|socket| socket.peek_from(bytes)).await
    }

    /// Sends one datagram.
    ///
    /// # Errors
    ///
    /// What the system says.
    ///
    /// # Cancel safety
    ///
    /// It is sent or not.
    pub async fn send_to(&self, bytes: &[u8], to: impl Into<SocketAddr>) -> io::Result<usize> {
        let to = to.into();
        self.write_with(|socket| socket.send_to(bytes, to)).await
    }

    /// Receives one datagram from where the socket is connected to.
    ///
    /// # Errors
    ///
    /// What the system says.
    ///
    /// # Cancel safety
    ///
    /// A datagram is taken or not.
    pub async fn recv(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.read_with(|socket| socket.recv(bytes)).await
    }

    /// As [`recv`](Self::recv), without consuming it.
    ///
    /// # Errors
    ///
    /// What the system says.
    ///
    /// # Cancel safety
    ///
    /// It consumes nothing.
    pub async fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.read_with(|socket| socket.peek(bytes)).await
    }

    /// Sends one datagram to where the socket is connected to.
    ///
    /// # Errors
    ///
    /// What the system says.
    ///
    /// # Cancel safety
    ///
    /// It is sent or not.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.write_with(|socket| socket.send(bytes)).await
    }
}

#[cfg(unix)]
impl Async<unix::UnixListener> {
    /// Listens at `path`.
    ///
    /// # Errors
    ///
    /// What the system says: a path in use, too long, or with a NUL in it.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Async<unix::UnixListener>> {
        Async::new(unix::UnixListener::bind(path)?)
    }

    /// The next connection, and where it comes from.
    ///
    /// # Errors
    ///
    /// As [`net::TcpListener::accept`](crate::net::TcpListener::accept).
    ///
    /// # Cancel safety
    ///
    /// A connection is taken or not: none is lost.
    pub async fn accept(&self) -> io::Result<(Async<unix::UnixStream>, unix::SocketAddr)> {
        let (stream, address) = self.read_with(unix::UnixListener::accept).await?;
        Ok((Async::new(stream)?, address))
    }

    /// Connections, one after the other, without end.
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
    /// # Errors
    ///
    /// As [`net::unix::UnixStream::connect`](crate::net::unix::UnixStream::connect).
    ///
    /// # Cancel safety
    ///
    /// Giving up closes the socket.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Async<unix::UnixStream>> {
        let stream = crate::net::unix::UnixStream::connect(path).await?;
        Async::new_nonblocking(stream.try_into()?)
    }

    /// Two streams, connected with each other.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn pair() -> io::Result<(Async<unix::UnixStream>, Async<unix::UnixStream>)> {
        let (one, other) = unix::UnixStream::pair()?;
        Ok((Async::new(one)?, Async::new(other)?))
    }
}

#[cfg(unix)]
impl Async<unix::UnixDatagram> {
    /// Binds to `path`.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Async<unix::UnixDatagram>> {
        Async::new(unix::UnixDatagram::bind(path)?)
    }

    /// A socket that is bound to nothing.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn unbound() -> io::Result<Async<unix::UnixDatagram>> {
        Async::new(unix::UnixDatagram::unbound()?)
    }

    /// Two sockets, connected with each other.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn pair() -> io::Result<(Async<unix::UnixDatagram>, Async<unix::UnixDatagram>)> {
        let (one, other) = unix::UnixDatagram::pair()?;
        Ok((Async::new(one)?, Async::new(other)?))
    }

    /// Receives one datagram, and who sent it; what `bytes` has no room for is lost.
    ///
    /// # Errors
    ///
    /// What the system says.
    ///
    /// # Cancel safety
    ///
    /// A datagram is taken or not.
    pub async fn recv_from(&self, bytes: &mut [u8]) -> io::Result<(usize, unix::SocketAddr)> {
        self.read_with(|socket| socket.recv_from(bytes)).await
    }

    /// Sends one datagram.
    ///
    /// # Errors
    ///
    /// What the system says.
    ///
    /// # Cancel safety
    ///
    /// It is sent or not.
    pub async fn send_to(&self, bytes: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        self.write_with(|socket| socket.send_to(bytes, path.as_ref()))
            .await
    }

    /// Receives one datagram from where the socket is connected to.
    ///
    /// # Errors
    ///
    /// What the system says.
    ///
    /// # Cancel safety
    ///
    /// A datagram is taken or not.
    pub async fn recv(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.read_with(|socket| socket.recv(bytes)).await
    }

    /// Sends one datagram to where the socket is connected to.
    ///
    /// # Errors
    ///
    /// What the system says.
    ///
    /// # Cancel safety
    ///
    /// It is sent or not.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.write_with(|socket| socket.send(bytes)).await
    }
}
