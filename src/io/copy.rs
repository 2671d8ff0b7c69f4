//! Copying between streams: [`copy`], and [`copy_bidirectional`], which connects two streams as a
//! proxy does.
//!
//! Each direction has one buffer, which a read fills when it is empty, and writes empty.
//! `copy_bidirectional` passes the end of one side on by closing the other, which ends writing
//! there; the other direction continues.
//!
//! **Budget.** Each read, and each retry after an interrupt, costs one unit, so streams that are
//! always ready do not monopolise the worker.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use futures_lite::io::{AsyncRead, AsyncWrite};

use crate::scheduler::budget;

/// The size of each buffer: two or three packets of loopback, ten of Ethernet; 32 MB for a thousand
/// connections, mostly for those in use.
const BUFFER: usize = 16 << 10;

/// The maximum size of a buffer: a larger one is not faster, and its zeros fill memory.
const MAX_BUFFER: usize = 16 << 20;

/// The size of [`copy`]'s buffer, as in `std::io::copy` and futures-lite.
const COPY_BUFFER: usize = 8 << 10;

/// Copies from `reader` to `writer` until the reader has ended. Returns the number of bytes.
///
/// The writer is flushed at the end, and whenever the copy waits for the reader. It is not closed.
///
/// [`Interrupted`](io::ErrorKind::Interrupted) operations are retried. The copy yields regularly,
/// even if both streams are always ready.
///
/// # Examples
///
/// ```
/// use polder::io::{Cursor, copy};
///
/// polder::block_on(async {
///     let mut copied = Vec::new();
///     assert_eq!(copy(Cursor::new("hello"), &mut copied).await?, 5);
///     assert_eq!(copied, b"hello");
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// An error of reading or writing; [`WriteZero`](io::ErrorKind::WriteZero) if the writer takes no
/// bytes.
///
/// # Cancel safety
///
/// Not cancel safe: bytes that were read and not yet written are lost.
pub async fn copy<R, W>(reader: R, writer: W) -> io::Result<u64>
where
    R: AsyncRead,
    W: AsyncWrite,
{
    let (mut reader, mut writer) = (pin!(reader), pin!(writer));
    let mut direction = Direction::new(COPY_BUFFER, AtEnd::Flush);
    poll_fn(|cx| direction.poll(cx, &mut reader, &mut writer)).await
}

/// Copies from `a` to `b` and from `b` to `a` until both have ended. Returns the number of bytes in
/// each direction.
///
/// The end of one side ends writing on the other ([`close`](crate::io::AsyncWriteExt::close)), and
/// the other direction continues: a client that has sent its request and ended writing gets its
/// response.
///
/// After an error neither side is closed; a stream that is then dropped ends regularly for its
/// peer. To pass a reset on, call `set_linger(Some(Duration::ZERO))` on both streams before they
/// are dropped.
///
/// # Examples
///
/// ```
/// use polder::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional, duplex};
///
/// polder::block_on(async {
///     let (mut client, mut near) = duplex(64);
///     let (mut server, mut far) = duplex(64);
///     let proxy = polder::spawn(async move { copy_bidirectional(&mut near, &mut far).await });
///
///     client.write_all(b"a question").await?;
///     client.close().await?; // No further request.
///     let mut question = String::new();
///     server.read_to_string(&mut question).await?;
///     server.write_all(b"an answer to ").await?;
///     server.write_all(question.as_bytes()).await?;
///     server.close().await?;
///     let mut answer = String::new();
///     client.read_to_string(&mut answer).await?;
///     assert_eq!(answer, "an answer to a question");
///     assert_eq!(proxy.await?, (10, 23));
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The first error of either side; [`WriteZero`](io::ErrorKind::WriteZero) if a side takes no
/// bytes.
///
/// # Cancel safety
///
/// Not cancel safe: bytes that were read and not yet written are lost.
#[doc(alias = "proxy")]
pub async fn copy_bidirectional<A, B>(a: &mut A, b: &mut B) -> io::Result<(u64, u64)>
where
    A: AsyncRead + AsyncWrite + Unpin + ?Sized,
    B: AsyncRead + AsyncWrite + Unpin + ?Sized,
{
    copy_bidirectional_with_sizes(a, b, BUFFER, BUFFER).await
}

/// [`copy_bidirectional`] with buffers of `a_to_b` and `b_to_a` bytes. (A size of 0 means 1, and
/// one above 16 MiB means 16 MiB.)
///
/// ```
/// use polder::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes, duplex};
///
/// polder::block_on(async {
///     let (mut client, mut near) = duplex(64);
///     let (mut server, mut far) = duplex(64);
///     server.write_all(b"a download").await?;
///     drop((server, client.close().await?));
///     // Requests are short, responses are long.
///     let sizes = (1 << 10, 64 << 10);
///     copy_bidirectional_with_sizes(&mut near, &mut far, sizes.0, sizes.1).await?;
///     let mut download = String::new();
///     client.read_to_string(&mut download).await?;
///     assert_eq!(download, "a download");
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// As [`copy_bidirectional`].
///
/// # Cancel safety
///
/// As [`copy_bidirectional`].
pub async fn copy_bidirectional_with_sizes<A, B>(
    a: &mut A,
    b: &mut B,
    a_to_b: usize,
    b_to_a: usize,
) -> io::Result<(u64, u64)>
where
    A: AsyncRead + AsyncWrite + Unpin + ?Sized,
    B: AsyncRead + AsyncWrite + Unpin + ?Sized,
{
    let mut there = Direction::new(a_to_b, AtEnd::Close);
    let mut back = Direction::new(b_to_a, AtEnd::Close);
    let mut is_back_first = true;
    poll_fn(|cx| {
        // They share a budget, and a direction that is always ready uses it up, so they alternate
        // in being first.
        is_back_first = !is_back_first;
        // Both are polled, unless the first one fails.
        let (there, back) = if is_back_first {
            let back = back.poll(cx, &mut *b, &mut *a)?;
            (there.poll(cx, &mut *a, &mut *b)?, back)
        } else {
            let there = there.poll(cx, &mut *a, &mut *b)?;
            (there, back.poll(cx, &mut *b, &mut *a)?)
        };
        Poll::Ready(Ok((ready!(there), ready!(back))))
    })
    .await
}

struct Direction {
    buffer: Box<[u8]>,
    /// The range of bytes that were read and not yet written.
    start: usize,
    end: usize,
    at_end: AtEnd,
    state: State,
    copied: u64,
    /// Whether anything was written since the last flush.
    has_written: bool,
}

/// How to end the writer.
#[derive(Clone, Copy)]
enum AtEnd {
    Flush,
    Close,
}

enum State {
    Copying,
    /// The end was read.
    Ending,
    Done,
}

impl Direction {
    fn new(size: usize, at_end: AtEnd) -> Direction {
        Direction {
            buffer: vec![0; size.clamp(1, MAX_BUFFER)].into(),
            start: 0,
            end: 0,
            at_end,
            state: State::Copying,
            copied: 0,
            has_written: false,
        }
    }

    fn poll<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
    ) -> Poll<io::Result<u64>>
    where
        R: AsyncRead + Unpin + ?Sized,
        W: AsyncWrite + Unpin + ?Sized,
    {
        loop {
            while self.start < self.end {
                let bytes = &self.buffer[self.start..self.end];
                match ready!(retry(cx, |cx| Pin::new(&mut *to).poll_write(cx, bytes)))? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    written => {
                        self.start += written;
                        self.copied += written as u64;
                        self.has_written = true;
                    }
                }
            }
            if let State::Ending = self.state {
                ready!(retry(cx, |cx| match self.at_end {
                    AtEnd::Flush => Pin::new(&mut *to).poll_flush(cx),
                    AtEnd::Close => Pin::new(&mut *to).poll_close(cx),
                }))?;
                self.state = State::Done;
            }
            if let State::Done = self.state {
                return Poll::Ready(Ok(self.copied));
            }
            let buffer = &mut self.buffer;
            match retry(cx, |cx| Pin::new(&mut *from).poll_read(cx, buffer))? {
                Poll::Ready(0) => self.state = State::Ending,
                Poll::Ready(read) => {
                    (self.start, self.end) = (0, read);
                    // Two streams that never wait must not hold the worker.
                    ready!(budget::consume(cx));
                }
                Poll::Pending => {
                    // The reader's peer may wait for data that the writer has buffered.
                    if self.has_written {
                        ready!(retry(cx, |cx| Pin::new(&mut *to).poll_flush(cx)))?;
                        self.has_written = false;
                    }
                    return Poll::Pending;
                }
            }
        }
    }
}

/// Polls an operation again as long as it is interrupted, as the traits require of implementations;
/// some do not.
fn retry<T>(
    cx: &mut Context<'_>,
    mut operation: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
) -> Poll<io::Result<T>> {
    loop {
        match operation(cx) {
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {
                ready!(budget::consume(cx));
            }
            result => return result,
        }
    }
}
