//! The two halves of a stream: borrowed for one task, owned for two.
//!
//! The methods that split a [`TcpStream`] are in this file, so that streams do not depend on
//! halves.

use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_lite::{AsyncRead, AsyncWrite};

use super::tcp::TcpStream;
use crate::net::macros::Stream;
use crate::net::readiness::{try_reads, try_writes};
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
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
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
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
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
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Cancel safety
///
/// Cancel safe, as the stream is: a single `read` that is dropped has read nothing.
#[derive(Debug)]
pub struct ReadHalf<'a, S: Stream = TcpStream>(&'a S);

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
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Cancel safety
///
/// Cancel safe, as the stream is: a single `write` that is dropped has written nothing.
#[derive(Debug)]
pub struct WriteHalf<'a, S: Stream = TcpStream>(&'a S);

impl<'a, S: Stream> ReadHalf<'a, S> {
    /// Borrows the stream mutably, so that there is one reader and one writer.
    pub(super) fn pair(stream: &'a mut S) -> (ReadHalf<'a, S>, WriteHalf<'a, S>) {
        (ReadHalf(stream), WriteHalf(stream))
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
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Cancel safety
///
/// Cancel safe, as the stream is: a single `read` that is dropped has read nothing.
#[derive(Debug)]
pub struct OwnedReadHalf<S: Stream = TcpStream>(S);

/// The write half of a stream, owned: see [`TcpStream::into_split`].
///
/// **Dropping it ends writing**: the other end sees the end of file, even if the reading half
/// lives on.
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
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Cancel safety
///
/// Cancel safe, as the stream is: a single `write` that is dropped has written nothing.
#[derive(Debug)]
pub struct OwnedWriteHalf<S: Stream = TcpStream> {
    stream: S,
    /// Whether dropping ends writing; cleared when the halves are reunited.
    ends: bool,
}

impl<S: Stream> OwnedReadHalf<S> {
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
    /// # drop(stream);
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
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
}

impl<S: Stream> Drop for OwnedWriteHalf<S> {
    fn drop(&mut self) {
        if self.ends {
            // Ignored: it fails if the connection has ended already.
            let _ = self.stream.socket().shutdown(Shutdown::Write);
        }
    }
}

/// The error of `reunite`: two halves that belong to different streams, returned.
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
/// // They are unharmed, and may try again.
/// assert!(reader.reunite(writer).is_ok());
/// assert!(other_reader.reunite(other_writer).is_ok());
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct ReuniteError<S: Stream = TcpStream>(pub OwnedReadHalf<S>, pub OwnedWriteHalf<S>);

impl<S: Stream> fmt::Display for ReuniteError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the two halves belong to different streams")
    }
}

impl<S: Stream + fmt::Debug> Error for ReuniteError<S> {}

/// `reads!([generics] type, [field])`: reading is the stream's.
macro_rules! reads {
    ([$($generics:tt)*] $half:ty, [$($stream:tt)+]) => {
        impl<$($generics)*> AsyncRead for $half {
            #[inline]
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                self.$($stream)+.socket().poll_read(cx, bytes)
            }

            fn poll_read_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffers: &mut [IoSliceMut<'_>],
            ) -> Poll<io::Result<usize>> {
                self.$($stream)+.socket().poll_read_vectored(cx, buffers)
            }
        }
    };
}

/// `writes!([generics] type, [field])`: writing is the stream's.
macro_rules! writes {
    ([$($generics:tt)*] $half:ty, [$($stream:tt)+]) => {
        /// Nothing is buffered, so flushing does nothing. Closing ends writing.
        impl<$($generics)*> AsyncWrite for $half {
            #[inline]
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.$($stream)+.socket().poll_write(cx, bytes)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffers: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.$($stream)+.socket().write_vectored(buffers).poll(cx)
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.$($stream)+.socket().poll_close()
            }
        }
    };
}

reads!(['a, S: Stream] ReadHalf<'a, S>, [0]);
reads!([S: Stream + Unpin] OwnedReadHalf<S>, [0]);
writes!(['a, S: Stream] WriteHalf<'a, S>, [0]);
writes!([S: Stream + Unpin] OwnedWriteHalf<S>, [stream]);

/// The beginning of the examples in `readiness` for all streams. `$near` makes the halves from
/// `stream`.
macro_rules! pair {
    ($near:literal) => {
        concat!(
            "# use polder::net::{TcpListener, TcpStream};
# polder::block_on(async {
# let listener = TcpListener::bind(\"127.0.0.1:0\").await?;
# let mut stream = TcpStream::connect(listener.local_addr()?).await?;
# let (far, _) = listener.accept().await?;\n",
            $near
        )
    };
}
try_reads!(['a, S: Stream] ReadHalf<'a, S>, [0.socket()],
    pair!("let (near, _writer) = stream.split();"));
try_reads!([S: Stream] OwnedReadHalf<S>, [0.socket()],
    pair!("let (near, _writer) = stream.into_split();"));
try_writes!(['a, S: Stream] WriteHalf<'a, S>, [0.socket()],
    pair!("let (_reader, near) = stream.split();"));
try_writes!([S: Stream] OwnedWriteHalf<S>, [stream.socket()],
    pair!("let (_reader, near) = stream.into_split();"));

// The stream's descriptor, which both halves share.
lend_descriptor!(['a, S: Stream] ReadHalf<'a, S>, |half| half.0.socket().lend_descriptor());
lend_descriptor!(['a, S: Stream] WriteHalf<'a, S>, |half| half.0.socket().lend_descriptor());
lend_descriptor!([S: Stream] OwnedReadHalf<S>, |half| half.0.socket().lend_descriptor());
lend_descriptor!([S: Stream] OwnedWriteHalf<S>, |half| half.stream.socket().lend_descriptor());

impl<S: Stream> AsRef<S> for ReadHalf<'_, S> {
    fn as_ref(&self) -> &S {
        self.0
    }
}

impl<S: Stream> AsRef<S> for WriteHalf<'_, S> {
    fn as_ref(&self) -> &S {
        self.0
    }
}

impl<S: Stream> AsRef<S> for OwnedReadHalf<S> {
    fn as_ref(&self) -> &S {
        &self.0
    }
}

impl<S: Stream> AsRef<S> for OwnedWriteHalf<S> {
    fn as_ref(&self) -> &S {
        &self.stream
    }
}
