//! The two directions of a stream, apart: borrowed for one task, owned for two.

use std::error::Error;
use std::fmt;
use std::net::Shutdown;

use super::stream::TcpStream;
use super::traits::{Stream, reads, writes};
use crate::sys::lend_descriptor;

/// The reading direction of a stream, borrowed: see [`TcpStream::split`].
#[derive(Debug)]
pub struct ReadHalf<'a, S: Stream = TcpStream>(&'a S);

/// The writing direction of a stream, borrowed: see [`TcpStream::split`].
#[derive(Debug)]
pub struct WriteHalf<'a, S: Stream = TcpStream>(&'a S);

impl<'a, S: Stream> ReadHalf<'a, S> {
    /// Takes the stream for itself, so that there is one reader and one writer of it.
    pub(super) fn pair(stream: &'a mut S) -> (ReadHalf<'a, S>, WriteHalf<'a, S>) {
        (ReadHalf(stream), WriteHalf(stream))
    }
}

/// The reading direction of a stream, owned: see [`TcpStream::into_split`].
#[derive(Debug)]
pub struct OwnedReadHalf<S: Stream = TcpStream>(S);

/// The writing direction of a stream, owned: see [`TcpStream::into_split`].
///
/// **Dropping it ends writing**: the other end sees the end of file, even if the reading half
/// lives on.
#[derive(Debug)]
pub struct OwnedWriteHalf<S: Stream = TcpStream> {
    stream: S,
    /// Cleared when the halves are reunited.
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
            // The connection may have ended already.
            let _ = self.stream.socket().shutdown(Shutdown::Write);
        }
    }
}

/// The two halves, given back: they belong to different streams.
#[derive(Debug)]
pub struct ReuniteError<S: Stream = TcpStream>(pub OwnedReadHalf<S>, pub OwnedWriteHalf<S>);

impl<S: Stream> fmt::Display for ReuniteError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the two halves belong to different streams")
    }
}

impl<S: Stream + fmt::Debug> Error for ReuniteError<S> {}

reads!(['a, S: Stream] ReadHalf<'a, S>, |it| it.0.socket());
reads!([S: Stream + Unpin] OwnedReadHalf<S>, |it| it.0.socket());
writes!(['a, S: Stream] WriteHalf<'a, S>, |it| it.0.socket());
writes!([S: Stream + Unpin] OwnedWriteHalf<S>, |it| it.stream.socket());

// The stream's, and so that of both directions.
lend_descriptor!(['a, S: Stream] ReadHalf<'a, S>, |it| it.0.socket().descriptor());
lend_descriptor!(['a, S: Stream] WriteHalf<'a, S>, |it| it.0.socket().descriptor());
lend_descriptor!([S: Stream] OwnedReadHalf<S>, |it| it.0.socket().descriptor());
lend_descriptor!([S: Stream] OwnedWriteHalf<S>, |it| it.stream.socket().descriptor());

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
