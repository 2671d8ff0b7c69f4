//! The two directions of a stream, apart: borrowed for one task, owned for two.

use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_lite::{AsyncRead, AsyncWrite};

use super::stream::TcpStream;

/// The reading direction of a [`TcpStream`], borrowed: see [`TcpStream::split`].
#[derive(Debug)]
pub struct ReadHalf<'a>(&'a TcpStream);

/// The writing direction of a [`TcpStream`], borrowed: see [`TcpStream::split`].
#[derive(Debug)]
pub struct WriteHalf<'a>(&'a TcpStream);

impl<'a> ReadHalf<'a> {
    /// Takes the stream for itself, so that there is one reader and one writer of it.
    pub(super) fn pair(stream: &'a mut TcpStream) -> (ReadHalf<'a>, WriteHalf<'a>) {
        (ReadHalf(stream), WriteHalf(stream))
    }
}

/// The reading direction of a [`TcpStream`], owned: see [`TcpStream::into_split`].
#[derive(Debug)]
pub struct OwnedReadHalf(TcpStream);

/// The writing direction of a [`TcpStream`], owned: see [`TcpStream::into_split`].
///
/// **Dropping it ends writing**: the other end sees the end of file, even if the reading half
/// lives on.
#[derive(Debug)]
pub struct OwnedWriteHalf {
    stream: TcpStream,
    /// Cleared when the halves are reunited.
    ends: bool,
}

impl OwnedReadHalf {
    pub(super) fn pair(stream: TcpStream) -> (OwnedReadHalf, OwnedWriteHalf) {
        let writer = OwnedWriteHalf {
            stream: stream.clone(),
            ends: true,
        };
        (OwnedReadHalf(stream), writer)
    }

    /// Makes one stream of the two halves again.
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
    /// Gives both back where they are not halves of the same stream.
    pub fn reunite(self, mut writer: OwnedWriteHalf) -> Result<TcpStream, ReuniteError> {
        if !self.0.shares_with(&writer.stream) {
            return Err(ReuniteError(self, writer));
        }
        writer.ends = false;
        Ok(self.0)
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if self.ends {
            // The connection may have ended already.
            let _ = self.stream.shutdown(Shutdown::Write);
        }
    }
}

/// The two halves, given back: they belong to different streams.
#[derive(Debug)]
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the two halves belong to different streams")
    }
}

impl Error for ReuniteError {}

/// Both kinds of halves do what the stream does.
macro_rules! halves {
    ($reader:ty, $writer:ty, |$read:ident| $reading:expr, |$write:ident| $writing:expr) => {
        impl AsyncRead for $reader {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                let $read = &*self;
                $reading.poll_read(cx, bytes)
            }

            fn poll_read_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffers: &mut [IoSliceMut<'_>],
            ) -> Poll<io::Result<usize>> {
                let $read = &*self;
                $reading.poll_read_vectored(cx, buffers)
            }
        }

        impl AsyncWrite for $writer {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                let $write = &*self;
                $writing.poll_write(cx, bytes)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffers: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                let $write = &*self;
                $writing.poll_write_vectored(cx, buffers)
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                let $write = &*self;
                $writing.poll_close()
            }
        }

        impl AsRef<TcpStream> for $reader {
            fn as_ref(&self) -> &TcpStream {
                let $read = self;
                &$reading
            }
        }

        impl AsRef<TcpStream> for $writer {
            fn as_ref(&self) -> &TcpStream {
                let $write = self;
                &$writing
            }
        }
    };
}

halves!(ReadHalf<'_>, WriteHalf<'_>, |it| it.0, |it| it.0);
halves!(OwnedReadHalf, OwnedWriteHalf, |it| it.0, |it| it.stream);
