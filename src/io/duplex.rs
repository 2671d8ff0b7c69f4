//! [`duplex`]: two connected streams in memory.
//!
//! Each direction is a [`Pipe`]: a queue of bytes with a limit, behind a lock that is held briefly.
//! A side that finds the queue empty, or full, leaves a waker **under the same lock**, and a side
//! that changes the queue takes that waker out under the lock; so no wake is lost. Wakers are
//! cloned, woken and dropped outside the lock: before it is taken, or after it is released, and
//! then everything is checked again.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use futures_lite::io::{AsyncRead, AsyncWrite};

use crate::scheduler::{budget, wake_each};
use crate::sync::{Mutex, Spare, wake_all};

/// Makes two connected streams in memory, each of which reads the data written to the other. Up to
/// `capacity` bytes are buffered in each direction. (A capacity of 0 means 1.)
///
/// For tests, and for protocols between tasks of one process. Neither end needs a runtime.
///
/// # Examples
///
/// ```
/// use polder::io::{AsyncReadExt, AsyncWriteExt, duplex};
///
/// polder::block_on(async {
///     let (mut client, mut server) = duplex(64);
///     client.write_all(b"ping").await?;
///     let mut bytes = [0; 4];
///     server.read_exact(&mut bytes).await?;
///     assert_eq!(&bytes, b"ping");
///
///     drop(client);
///     assert_eq!(server.read(&mut bytes).await?, 0); // The end.
///     assert!(server.write(b"pong").await.is_err()); // The reader is gone.
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
#[must_use]
#[doc(alias("pipe", "simplex"))]
pub fn duplex(capacity: usize) -> (DuplexStream, DuplexStream) {
    let (there, back) = (Pipe::new(capacity), Pipe::new(capacity));
    let near = DuplexStream {
        reads: back.clone(),
        writes: there.clone(),
    };
    let far = DuplexStream {
        reads: there,
        writes: back,
    };
    (near, far)
}

/// One end of a connection in memory: see [`duplex`].
///
/// Closing it ends writing: the other end reads the data that was written before, and then the end;
/// writing here is an error ([`BrokenPipe`](io::ErrorKind::BrokenPipe)). Dropping it also makes the
/// other end's writes fail with that error, including those that wait.
///
/// ```
/// use polder::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
///
/// async fn echo(mut stream: DuplexStream) -> std::io::Result<()> {
///     let mut text = String::new();
///     stream.read_to_string(&mut text).await?;
///     stream.write_all(text.as_bytes()).await
/// }
///
/// polder::block_on(async {
///     let (mut near, far) = duplex(4);
///     let echo = polder::spawn(echo(far));
///     near.write_all(b"hello").await?;
///     near.close().await?;
///     let mut text = String::new();
///     near.read_to_string(&mut text).await?; // It can still read.
///     assert_eq!(text, "hello");
///     echo.await
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Cancel safety
///
/// Cancel safe: a dropped `read` has read nothing, and a dropped `write` has written nothing.
pub struct DuplexStream {
    reads: Arc<Pipe>,
    writes: Arc<Pipe>,
}

struct Pipe {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    bytes: VecDeque<u8>,
    /// Whether writing has ended, by either side.
    has_ended: bool,
    /// The wakers of a read that waits for bytes or the end, and of a write that waits for room or
    /// the reader's drop.
    wakers: [Option<Waker>; 2],
}

/// The index of a side's waker.
const READER: usize = 0;
const WRITER: usize = 1;

impl Pipe {
    fn new(capacity: usize) -> Arc<Pipe> {
        Arc::new(Pipe {
            limit: capacity.max(1),
            state: Mutex::default(),
        })
    }

    /// Runs `attempt`. If it has a result, wakes the other side; otherwise leaves this side's
    /// waker.
    fn poll<T>(
        &self,
        cx: &Context<'_>,
        side: usize,
        mut attempt: impl FnMut(&mut State) -> io::Result<Option<T>>,
    ) -> Poll<io::Result<T>> {
        ready!(budget::consume(cx));
        let (result, woken) = Spare::retry(cx.waker(), |spare| {
            let mut state = self.state.lock();
            match attempt(&mut state).transpose() {
                Some(result) => Ok((Poll::Ready(result), state.wakers[1 - side].take())),
                None => {
                    spare.store(&mut state.wakers[side], cx.waker())?;
                    Ok((Poll::Pending, None))
                }
            }
        });
        if result.is_pending() {
            budget::restore();
        }
        wake_all(woken);
        result
    }

    fn poll_read(
        &self,
        cx: &Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        if buffers.iter().all(|buffer| buffer.is_empty()) {
            return Poll::Ready(Ok(0)); // A read without room does not wait.
        }
        let attempt = |state: &mut State| {
            if state.bytes.is_empty() {
                return Ok(state.has_ended.then_some(0));
            }
            let mut read = 0;
            for buffer in &mut *buffers {
                let length = buffer.len().min(state.bytes.len());
                state.bytes.read_exact(&mut buffer[..length])?;
                read += length;
            }
            Ok(Some(read))
        };
        self.poll(cx, READER, attempt)
    }

    fn poll_write(&self, cx: &Context<'_>, buffers: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let is_empty = buffers.iter().all(|buffer| buffer.is_empty());
        let attempt = |state: &mut State| {
            if state.has_ended {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let mut room = self.limit - state.bytes.len();
            if room == 0 && !is_empty {
                return Ok(None);
            }
            let before = state.bytes.len();
            for buffer in buffers {
                let part = &buffer[..buffer.len().min(room)];
                state.bytes.extend(part);
                room -= part.len();
            }
            Ok(Some(state.bytes.len() - before))
        };
        self.poll(cx, WRITER, attempt)
    }

    fn end(&self) {
        self.state.lock().has_ended = true;
        wake_each(|| (self.state.lock().wakers.iter_mut()).find_map(Option::take));
    }
}

impl AsyncRead for DuplexStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.reads.poll_read(cx, &mut [IoSliceMut::new(bytes)])
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.reads.poll_read(cx, buffers)
    }
}

/// Flushing does nothing: the other end can already read all buffered bytes. Closing ends writing.
impl AsyncWrite for DuplexStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writes.poll_write(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writes.poll_write(cx, buffers)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writes.end();
        Poll::Ready(Ok(()))
    }
}

impl Drop for DuplexStream {
    fn drop(&mut self) {
        self.writes.end();
        self.reads.end();
        // They will not be read.
        self.reads.state.lock().bytes = VecDeque::new();
    }
}

impl fmt::Debug for DuplexStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DuplexStream").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_lite::io::AsyncWriteExt;

    use super::*;

    #[test]
    fn bytes_are_freed_with_their_reader() {
        crate::block_on(async {
            let (mut near, far) = duplex(1_000);
            near.write_all(&[7; 1_000]).await.unwrap();
            let kept = |end: &DuplexStream| end.writes.state.lock().bytes.capacity();
            assert!(kept(&near) >= 1_000);
            drop(far);
            assert_eq!(kept(&near), 0);
        });
    }
}
