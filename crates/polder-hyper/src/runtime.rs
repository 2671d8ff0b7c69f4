//! hyper's traits for runtimes: [`Stream`], [`Timer`] and [`Executor`].

use std::any::Any;
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use polder::event::Latch;
use polder::io::{AsyncRead, AsyncWrite};
use polder::net::TcpStream;
#[cfg(unix)]
use polder::net::unix::UnixStream;
use polder::time;

use crate::activity::{Activity, Tunnel};
use crate::stall::Stall;

/// The maximum size of one read.
const CHUNK: usize = 64 * 1024;

/// The maximum size of a read before the version of HTTP is known: most requests are smaller.
#[cfg(feature = "http2")]
const AHEAD: usize = 4 * 1024;

thread_local! {
    /// The memory for a read, which holds zeroes. It is taken while in use, as a stream may read
    /// from another one.
    static CHUNK_OF_THREAD: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
}

/// Adapts a stream with the traits of futures-io, polder's or another, to hyper; and one with
/// hyper's traits, such as [`Upgraded`](hyper::upgrade::Upgraded), to futures-io.
///
/// It supports vectored writes. hyper then sends the parts of a body from where they are; otherwise
/// it copies them into one buffer first, up to 400 KiB for a client that reads nothing. Reads go
/// through a buffer of 64 KiB that each thread keeps.
///
/// ```
/// use hyper::client::conn::http1;
/// use polder::net::{TcpListener, TcpStream};
/// use polder_hyper::Stream;
///
/// polder::block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let stream = TcpStream::connect(listener.local_addr()?).await?;
///     let handshake = http1::handshake(Stream::new(stream)).await;
///     let (_requests, connection) = handshake.map_err(std::io::Error::other)?;
///     let _connection = polder::spawn(connection); // Dropping it closes the connection.
///     # let _requests: http1::SendRequest<http_body_util::Empty<&[u8]>> = _requests;
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct Stream<S> {
    stream: S,
    /// Limits how long a write may wait.
    stall: Option<Stall>,
    /// [`attempt`], where the type of the stream can be found out.
    attempt: fn(&S, &[io::IoSlice<'_>]) -> Option<io::Result<usize>>,
    /// Bytes that were read to find out the version of HTTP, and that hyper has not read yet.
    ahead: Vec<u8>,
    /// Is told of bytes that are read and written.
    activity: Option<Arc<Activity>>,
    /// Is at work for as long as this is.
    _tunnel: Option<Tunnel>,
    /// After the stream, which is closed when this is dropped.
    _closed: Option<SetOnDrop>,
}

#[derive(Debug)]
struct SetOnDrop(Arc<Latch>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Writes to one of polder's sockets, if that does not block, whether or not an event has reported
/// that it has room: Linux reports it only when a third of TCP's buffer is free
/// (`sk_stream_is_writable`), or most of a Unix socket's, so a slow reader may cause no event for
/// long. Any other stream is not written to.
fn attempt<S: 'static>(stream: &S, buffers: &[io::IoSlice<'_>]) -> Option<io::Result<usize>> {
    let stream: &dyn Any = stream;
    let tcp = (stream.downcast_ref()).map(|tcp: &TcpStream| tcp.try_write_vectored(buffers));
    #[cfg(unix)]
    let unix = || (stream.downcast_ref()).map(|unix: &UnixStream| unix.try_write_vectored(buffers));
    #[cfg(not(unix))]
    let unix = || None;
    let is_blocked = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
    (tcp.or_else(unix)).filter(|written| !written.as_ref().is_err_and(is_blocked))
}

impl<S> Stream<S> {
    /// Wraps a stream.
    pub fn new(stream: S) -> Stream<S> {
        Stream {
            stream,
            stall: None,
            attempt: |_, _| None,
            ahead: Vec::new(),
            activity: None,
            _tunnel: None,
            _closed: None,
        }
    }

    /// A stream on which writing fails once the peer has taken nothing for `limit`.
    pub(crate) fn limited(stream: S, limit: Duration) -> Stream<S>
    where
        S: 'static,
    {
        Stream {
            stall: Some(Stall::new("it has taken nothing", limit)),
            attempt: attempt::<S>,
            ..Stream::new(stream)
        }
    }

    /// Sets the latch when the stream has been closed.
    pub(crate) fn set_on_drop(&mut self, closed: Arc<Latch>) {
        self._closed = Some(SetOnDrop(closed));
    }

    pub(crate) fn set_tunnel(&mut self, tunnel: Option<Tunnel>) {
        self._tunnel = tunnel;
    }

    #[cfg(feature = "http2")]
    pub(crate) fn set_activity(&mut self, activity: Arc<Activity>) {
        self.activity = Some(activity);
    }

    /// The bytes that were [read ahead](Self::poll_read_ahead) so far.
    #[cfg(feature = "http2")]
    pub(crate) fn ahead(&self) -> &[u8] {
        &self.ahead
    }

    /// Passes on the result of an operation, unless it has been pending for too long. `buffers` are
    /// those of a write.
    fn check<T>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<T>>,
        last: impl FnOnce(&Self) -> Option<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Some(mut stall) = self.stall.take() else {
            return result;
        };
        let result = stall.check(cx, result, || last(self));
        self.stall = Some(stall);
        result?
    }

    /// Tells how many bytes were read or written.
    fn note(&self, result: &Poll<io::Result<usize>>) {
        if let (Some(activity), Poll::Ready(Ok(1..))) = (&self.activity, result) {
            activity.has_moved();
        }
    }
}

impl<S: AsyncRead + Unpin> Stream<S> {
    /// Reads at most `size` bytes, and passes them to `take`.
    fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
        size: usize,
        take: impl FnOnce(&mut Self, &[u8]),
    ) -> Poll<io::Result<usize>> {
        // futures-io needs an initialised buffer, and hyper's is not. Copying what was read takes
        // less time than zeroing all that could be read.
        let chunk = CHUNK_OF_THREAD.try_with(Cell::take).ok().flatten();
        let mut chunk = chunk.unwrap_or_else(|| vec![0; CHUNK].into());
        let size = size.min(CHUNK);
        let result = Pin::new(&mut self.stream).poll_read(cx, &mut chunk[..size]);
        // Zeroes again: a stream that reports more than it has read must not show the bytes of
        // another connection. One that fails may have written any of them.
        match &result {
            Poll::Ready(Ok(read)) => {
                assert!(
                    *read <= size,
                    "the stream says that it has read more than it was offered"
                );
                take(self, &chunk[..*read]);
                chunk[..*read].fill(0);
            }
            Poll::Ready(Err(_)) => chunk[..size].fill(0),
            Poll::Pending => {}
        }
        // (While the thread ends, there is no place for it.)
        let _ = CHUNK_OF_THREAD.try_with(|place| place.set(Some(chunk)));
        self.note(&result);
        result
    }

    /// Reads what hyper will get first. It takes no memory while nothing comes.
    #[cfg(feature = "http2")]
    pub(crate) fn poll_read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.poll_chunk(cx, AHEAD, |this, bytes| this.ahead.extend_from_slice(bytes))
    }
}

impl<S: AsyncRead + Unpin> Read for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let size = self.ahead.len().min(buffer.remaining());
            buffer.put_slice(&self.ahead[..size]);
            let rest = self.ahead.split_off(size);
            self.ahead = rest;
            return Poll::Ready(Ok(()));
        }
        let size = buffer.remaining();
        let result = self.poll_chunk(cx, size, |_, bytes| buffer.put_slice(bytes));
        result.map_ok(drop)
    }
}

impl<S: Read + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(bytes);
        let result = Pin::new(&mut self.stream).poll_read(cx, buffer.unfilled());
        result.map_ok(|()| buffer.filled().len())
    }
}

impl<S: Write + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncWrite + Unpin> Write for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        let result = self.check(cx, result, |this| {
            (this.attempt)(&this.stream, &[io::IoSlice::new(bytes)])
        });
        self.note(&result);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        let result = self.check(cx, result, |this| (this.attempt)(&this.stream, buffers));
        self.note(&result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.check(cx, result, |_| None)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_close(cx);
        self.check(cx, result, |_| None)
    }
}

/// Adapts polder's timers to hyper.
///
/// ```
/// use hyper::server::conn::http1;
/// use std::time::Duration;
///
/// let mut builder = http1::Builder::new();
/// builder.timer(polder_hyper::Timer).header_read_timeout(Duration::from_secs(5));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Timer;

struct Sleep(time::Sleep);

impl hyper::rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Sleep(time::sleep(duration)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Sleep(time::sleep_until(deadline)))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<Sleep>() {
            Some(mut sleep) => sleep.0.reset(deadline),
            None => *sleep = self.sleep_until(deadline),
        }
    }

    fn now(&self) -> Instant {
        time::now()
    }
}

impl hyper::rt::Sleep for Sleep {}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx)
    }
}

/// Runs the auxiliary futures of an HTTP/2 connection in tasks of the current runtime.
///
/// ```
/// use hyper::server::conn::http2;
/// use polder_hyper::{Executor, Timer};
/// use std::time::Duration;
///
/// let mut builder = http2::Builder::new(Executor);
/// builder.timer(Timer).keep_alive_interval(Duration::from_secs(20));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Executor;

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        polder::spawn(future).detach();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut stream: impl Read + Unpin) -> Vec<u8> {
        let mut memory = [0xff; 8];
        let mut buffer = ReadBuf::new(&mut memory);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let result = Pin::new(&mut stream).poll_read(&mut cx, buffer.unfilled());
        assert!(matches!(result, Poll::Ready(Ok(()))));
        buffer.filled().to_vec()
    }

    /// Reads from another stream first, and says that it has read as much once more.
    struct Liar<S>(S);

    impl<S: Read + Unpin> AsyncRead for Liar<S> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &mut [u8],
        ) -> Poll<io::Result<usize>> {
            let inner = read(&mut self.0);
            bytes[..inner.len()].copy_from_slice(&inner);
            Poll::Ready(Ok(2 * inner.len()))
        }
    }

    /// A stream that says too much shows no bytes of others.
    #[test]
    fn stream_claiming_too_much_leaks_no_bytes() {
        assert_eq!(read(Stream::new(&b"secrets!"[..])), *b"secrets!");
        let nested = Liar(Stream::new(&b"abc"[..]));
        assert_eq!(read(Stream::new(nested)), *b"abc\0\0\0");
    }

    /// A stream that says more than it was offered is refused.
    #[test]
    #[should_panic(expected = "more than it was offered")]
    fn stream_claiming_too_many_bytes_is_refused() {
        read(Stream::new(Liar(Stream::new(&b"12345"[..]))));
    }
}
