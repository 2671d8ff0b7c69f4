//! The halves of a stream: borrowed for one task, owned for two.
//!
//! The methods that split a [`TcpStream`] are here, so that streams do not depend on halves.

use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_lite::{AsyncRead, AsyncWrite};

use super::tcp::TcpStream;
use crate::net::socket::StreamSocket;
use crate::reactor::Direction;
use crate::sys::lend_descriptor;

impl TcpStream {
    /// Splits the stream into borrowed halves, for one task that reads and writes concurrently.
    ///
    /// ```
    /// use polder::io::copy;
    /// use polder::net::{TcpListener, TcpStream};
    ///
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// let (mut stream, _) = listener.accept().await?;
    /// # drop(near);
    /// let (reader, writer) = stream.split();
    /// copy(reader, writer).await?; // an echo
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        ReadHalf::pair(self)
    }

    /// Splits the stream into owned halves, for two tasks. Dropping the write half ends writing.
    ///
    /// ```
    /// use polder::io::{AsyncReadExt, AsyncWriteExt};
    ///
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (mut far, _) = listener.accept().await?;
    /// let (mut reader, mut writer) = near.into_split();
    /// let sender = polder::spawn(async move { writer.write_all(b"ping").await });
    /// far.write_all(b"pong").await?;
    /// let mut bytes = [0; 4];
    /// reader.read_exact(&mut bytes).await?;
    /// assert_eq!(&bytes, b"pong");
    /// sender.await?; // Its half is dropped: the other end sees the end after these bytes.
    /// let mut all = Vec::new();
    /// far.read_to_end(&mut all).await?;
    /// assert_eq!(all, b"ping");
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        OwnedReadHalf::pair(self)
    }
}

/// The read half of a stream, borrowed: see [`TcpStream::split`].
///
/// ```
/// use polder::io::{AsyncReadExt, AsyncWriteExt};
///
/// # use polder::net::{TcpListener, TcpStream};
/// # polder::block_on(async {
/// # let listener = TcpListener::bind("127.0.0.1:0").await?;
/// # let mut near = TcpStream::connect(listener.local_addr()?).await?;
/// # let (mut far, _) = listener.accept().await?;
/// let (mut reader, _writer) = near.split();
/// far.write_all(b"hello").await?;
/// let mut bytes = [0; 5];
/// reader.read_exact(&mut bytes).await?;
/// assert_eq!(&bytes, b"hello");
/// assert!(reader.as_ref().peer_addr().is_ok()); // The stream itself.
/// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
/// ```
///
/// # Cancel safety
///
/// Cancel safe, as the stream is.
#[derive(Debug)]
pub struct ReadHalf<'a, S: StreamSocket = TcpStream>(&'a S);

/// The write half of a stream, borrowed: see [`TcpStream::split`].
///
/// ```
/// use polder::io::{AsyncReadExt, AsyncWriteExt};
///
/// # use polder::net::{TcpListener, TcpStream};
/// # polder::block_on(async {
/// # let listener = TcpListener::bind("127.0.0.1:0").await?;
/// # let mut near = TcpStream::connect(listener.local_addr()?).await?;
/// # let (mut far, _) = listener.accept().await?;
/// let (_reader, mut writer) = near.split();
/// writer.write_all(b"hello").await?;
/// writer.close().await?; // Dropping it would not end writing.
/// let mut text = String::new();
/// far.read_to_string(&mut text).await?;
/// assert_eq!(text, "hello");
/// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
/// ```
///
/// # Cancel safety
///
/// Cancel safe, as the stream is.
#[derive(Debug)]
pub struct WriteHalf<'a, S: StreamSocket = TcpStream>(&'a S);

impl<'a, S: StreamSocket> ReadHalf<'a, S> {
    /// Takes the stream mutably, so that there is one reader and one writer.
    pub(super) fn pair(stream: &'a mut S) -> (ReadHalf<'a, S>, WriteHalf<'a, S>) {
        (ReadHalf(stream), WriteHalf(stream))
    }

    /// Waits until the stream can be read: see [`TcpStream::readable`].
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let mut stream = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// let (near, _writer) = stream.split();
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
        self.0.socket().ready_in(Direction::Read).await
    }

    /// Poll version of [`readable`](Self::readable): see [`TcpStream::poll_read_ready`].
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let mut stream = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// let (near, _writer) = stream.split();
    /// far.try_write(b"hello")?;
    /// std::future::poll_fn(|cx| near.poll_read_ready(cx)).await?;
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`readable`](Self::readable).
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.socket().ready_in(Direction::Read).poll(cx)
    }

    /// Reads the available bytes without waiting: see [`TcpStream::try_read`].
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let mut stream = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// let (near, _writer) = stream.split();
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
        self.0.socket().try_read(bytes)
    }

    /// Whether the peer is known to send no more: see [`TcpStream::is_read_closed`].
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let mut stream = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// let (near, _writer) = stream.split();
    /// drop(far);
    /// while near.try_read(&mut [0; 8]).is_err() {
    ///     near.readable().await?;
    /// }
    /// println!("the peer is gone: {}", near.is_read_closed());
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    pub fn is_read_closed(&self) -> bool {
        self.0.socket().is_read_closed()
    }

    /// [`try_read`](Self::try_read) into several buffers.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let mut stream = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// use std::io::IoSliceMut;
    ///
    /// let (near, _writer) = stream.split();
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
        self.0.socket().try_read_vectored(buffers)
    }

    /// Copies bytes without consuming them: see [`TcpStream::peek`].
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let mut stream = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// let (near, _writer) = stream.split();
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
        self.0.socket().peek(bytes).await
    }

    /// Poll version of [`peek`](Self::peek): see [`poll_read_ready`](Self::poll_read_ready).
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let mut stream = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// let (near, _writer) = stream.split();
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
        self.0.socket().poll_peek(cx, bytes)
    }
}

impl<S: StreamSocket> WriteHalf<'_, S> {
    /// Waits until the stream can be written: see [`TcpStream::writable`].
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let mut stream = TcpStream::connect(listener.local_addr()?).await?;
    /// let (_reader, near) = stream.split();
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
        self.0.socket().ready_in(Direction::Write).await
    }

    /// Poll version of [`writable`](Self::writable): see [`TcpStream::poll_write_ready`].
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let mut stream = TcpStream::connect(listener.local_addr()?).await?;
    /// let (_reader, near) = stream.split();
    /// std::future::poll_fn(|cx| near.poll_write_ready(cx)).await?;
    /// assert_eq!(near.try_write(b"hello")?, 5);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`writable`](Self::writable).
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.socket().ready_in(Direction::Write).poll(cx)
    }

    /// Writes as many bytes as there is room for: see [`TcpStream::try_write`].
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let mut stream = TcpStream::connect(listener.local_addr()?).await?;
    /// let (_reader, near) = stream.split();
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
        self.0.socket().try_write(bytes)
    }

    /// [`try_write`](Self::try_write) from several buffers.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let mut stream = TcpStream::connect(listener.local_addr()?).await?;
    /// use std::io::IoSlice;
    ///
    /// let (_reader, near) = stream.split();
    /// let buffers = [IoSlice::new(b"he"), IoSlice::new(b"llo")];
    /// assert_eq!(near.try_write_vectored(&buffers)?, 5);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`try_write`](Self::try_write).
    pub fn try_write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.socket().write_vectored(buffers).attempt()
    }
}

/// The read half of a stream, owned: see [`TcpStream::into_split`].
///
/// ```
/// use polder::io::{AsyncReadExt, AsyncWriteExt};
///
/// # use polder::net::{TcpListener, TcpStream};
/// # polder::block_on(async {
/// # let listener = TcpListener::bind("127.0.0.1:0").await?;
/// # let near = TcpStream::connect(listener.local_addr()?).await?;
/// # let (mut far, _) = listener.accept().await?;
/// let (mut reader, _writer) = near.into_split();
/// let task = polder::spawn(async move {
///     let mut bytes = [0; 5];
///     reader.read_exact(&mut bytes).await.map(|()| bytes)
/// });
/// far.write_all(b"hello").await?;
/// assert_eq!(&task.await?, b"hello");
/// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
/// ```
///
/// # Cancel safety
///
/// Cancel safe, as the stream is.
#[derive(Debug)]
pub struct OwnedReadHalf<S: StreamSocket = TcpStream>(S);

/// The write half of a stream, owned: see [`TcpStream::into_split`].
///
/// **Dropping it ends writing**: the peer sees the end of file, even if the read half lives on.
///
/// ```
/// use polder::io::{AsyncReadExt, AsyncWriteExt};
///
/// # use polder::net::{TcpListener, TcpStream};
/// # polder::block_on(async {
/// # let listener = TcpListener::bind("127.0.0.1:0").await?;
/// # let near = TcpStream::connect(listener.local_addr()?).await?;
/// # let (mut far, _) = listener.accept().await?;
/// let (_reader, mut writer) = near.into_split();
/// let task = polder::spawn(async move { writer.write_all(b"hello").await });
/// task.await?; // Its end drops the half.
/// let mut text = String::new();
/// far.read_to_string(&mut text).await?;
/// assert_eq!(text, "hello");
/// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
/// ```
///
/// # Cancel safety
///
/// Cancel safe, as the stream is.
#[derive(Debug)]
pub struct OwnedWriteHalf<S: StreamSocket = TcpStream> {
    stream: S,
    /// Whether dropping ends writing; cleared when the halves are reunited.
    ends: bool,
}

impl<S: StreamSocket> OwnedReadHalf<S> {
    pub(super) fn pair(stream: S) -> (OwnedReadHalf<S>, OwnedWriteHalf<S>) {
        let writer = OwnedWriteHalf {
            stream: stream.clone(),
            ends: true,
        };
        (OwnedReadHalf(stream), writer)
    }

    /// Reunites the two halves.
    ///
    /// ```
    /// use polder::net::{TcpListener, TcpStream};
    ///
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// let (reader, writer) = stream.into_split();
    /// let stream = reader.reunite(writer).expect("they belong together");
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns both if they are not halves of the same stream.
    pub fn reunite(self, mut writer: OwnedWriteHalf<S>) -> Result<S, ReuniteError<S>> {
        if !self.0.socket().shares_with(writer.stream.socket()) {
            return Err(ReuniteError(self, writer));
        }
        writer.ends = false;
        Ok(self.0)
    }

    /// Waits until the stream can be read: see [`TcpStream::readable`].
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// let (near, _writer) = stream.into_split();
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
        self.0.socket().ready_in(Direction::Read).await
    }

    /// Poll version of [`readable`](Self::readable): see [`TcpStream::poll_read_ready`].
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// let (near, _writer) = stream.into_split();
    /// far.try_write(b"hello")?;
    /// std::future::poll_fn(|cx| near.poll_read_ready(cx)).await?;
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`readable`](Self::readable).
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.socket().ready_in(Direction::Read).poll(cx)
    }

    /// Reads the available bytes without waiting: see [`TcpStream::try_read`].
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// let (near, _writer) = stream.into_split();
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
        self.0.socket().try_read(bytes)
    }

    /// Whether the peer is known to send no more: see [`TcpStream::is_read_closed`].
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// let (near, _writer) = stream.into_split();
    /// drop(far);
    /// while near.try_read(&mut [0; 8]).is_err() {
    ///     near.readable().await?;
    /// }
    /// println!("the peer is gone: {}", near.is_read_closed());
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    pub fn is_read_closed(&self) -> bool {
        self.0.socket().is_read_closed()
    }

    /// [`try_read`](Self::try_read) into several buffers.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// use std::io::IoSliceMut;
    ///
    /// let (near, _writer) = stream.into_split();
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
        self.0.socket().try_read_vectored(buffers)
    }

    /// Copies bytes without consuming them: see [`TcpStream::peek`].
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// let (near, _writer) = stream.into_split();
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
        self.0.socket().peek(bytes).await
    }

    /// Poll version of [`peek`](Self::peek): see [`poll_read_ready`](Self::poll_read_ready).
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// let (near, _writer) = stream.into_split();
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
        self.0.socket().poll_peek(cx, bytes)
    }
}

impl<S: StreamSocket> OwnedWriteHalf<S> {
    /// Waits until the stream can be written: see [`TcpStream::writable`].
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// let (_reader, near) = stream.into_split();
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
        self.stream.socket().ready_in(Direction::Write).await
    }

    /// Poll version of [`writable`](Self::writable): see [`TcpStream::poll_write_ready`].
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// let (_reader, near) = stream.into_split();
    /// std::future::poll_fn(|cx| near.poll_write_ready(cx)).await?;
    /// assert_eq!(near.try_write(b"hello")?, 5);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`writable`](Self::writable).
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.socket().ready_in(Direction::Write).poll(cx)
    }

    /// Writes as many bytes as there is room for: see [`TcpStream::try_write`].
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// let (_reader, near) = stream.into_split();
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
        self.stream.socket().try_write(bytes)
    }

    /// [`try_write`](Self::try_write) from several buffers.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// use std::io::IoSlice;
    ///
    /// let (_reader, near) = stream.into_split();
    /// let buffers = [IoSlice::new(b"he"), IoSlice::new(b"llo")];
    /// assert_eq!(near.try_write_vectored(&buffers)?, 5);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`try_write`](Self::try_write).
    pub fn try_write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.stream.socket().write_vectored(buffers).attempt()
    }
}

impl<S: StreamSocket> Drop for OwnedWriteHalf<S> {
    fn drop(&mut self) {
        if self.ends {
            // Ignored: it fails if the connection has ended already.
            let _ = self.stream.socket().shutdown(Shutdown::Write);
        }
    }
}

/// The error of [`reunite`](OwnedReadHalf::reunite): halves of different streams, which it returns.
///
/// ```
/// use polder::net::ReuniteError;
///
/// # use polder::net::{TcpListener, TcpStream};
/// # polder::block_on(async {
/// # let listener = TcpListener::bind("127.0.0.1:0").await?;
/// # let near = TcpStream::connect(listener.local_addr()?).await?;
/// # let (far, _) = listener.accept().await?;
/// let (reader, writer) = near.into_split();
/// let (other_reader, other_writer) = far.into_split();
/// let ReuniteError(reader, other_writer) = reader.reunite(other_writer).unwrap_err();
/// // Both can be reunited with their own halves.
/// assert!(reader.reunite(writer).is_ok());
/// assert!(other_reader.reunite(other_writer).is_ok());
/// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct ReuniteError<S: StreamSocket = TcpStream>(pub OwnedReadHalf<S>, pub OwnedWriteHalf<S>);

impl<S: StreamSocket> fmt::Display for ReuniteError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the two halves belong to different streams")
    }
}

impl<S: StreamSocket + fmt::Debug> Error for ReuniteError<S> {}

impl<S: StreamSocket> AsyncRead for ReadHalf<'_, S> {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.0.socket().poll_read(cx, bytes)
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.socket().poll_read_vectored(cx, buffers)
    }
}

/// Nothing is buffered, so flushing does nothing. Closing ends writing.
impl<S: StreamSocket> AsyncWrite for WriteHalf<'_, S> {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.socket().poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.socket().write_vectored(buffers).poll(cx)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.socket().poll_close()
    }
}

impl<S: StreamSocket + Unpin> AsyncRead for OwnedReadHalf<S> {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.0.socket().poll_read(cx, bytes)
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.socket().poll_read_vectored(cx, buffers)
    }
}

/// Nothing is buffered, so flushing does nothing. Closing ends writing.
impl<S: StreamSocket + Unpin> AsyncWrite for OwnedWriteHalf<S> {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.socket().poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.socket().write_vectored(buffers).poll(cx)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.socket().poll_close()
    }
}

// The stream's descriptor, which both halves share.
lend_descriptor!(['a, S: StreamSocket] ReadHalf<'a, S>, |half| half.0.socket().lend_descriptor());
lend_descriptor!(['a, S: StreamSocket] WriteHalf<'a, S>, |half| half.0.socket().lend_descriptor());
lend_descriptor!([S: StreamSocket] OwnedReadHalf<S>, |half| half.0.socket().lend_descriptor());
lend_descriptor!([S: StreamSocket] OwnedWriteHalf<S>, |half| half.stream.socket().lend_descriptor());

impl<S: StreamSocket> AsRef<S> for ReadHalf<'_, S> {
    fn as_ref(&self) -> &S {
        self.0
    }
}

impl<S: StreamSocket> AsRef<S> for WriteHalf<'_, S> {
    fn as_ref(&self) -> &S {
        self.0
    }
}

impl<S: StreamSocket> AsRef<S> for OwnedReadHalf<S> {
    fn as_ref(&self) -> &S {
        &self.0
    }
}

impl<S: StreamSocket> AsRef<S> for OwnedWriteHalf<S> {
    fn as_ref(&self) -> &S {
        &self.stream
    }
}
