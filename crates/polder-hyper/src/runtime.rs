//! hyper's traits for runtimes: [`Stream`], [`Timer`] and [`Executor`].

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::{Read, ReadBufCursor, Write};
use polder::io::{AsyncRead, AsyncWrite};
use polder::time;

use crate::stall::Stall;

/// The maximum size of one read, which is zeroed before it.
const CHUNK: usize = 16 * 1024;

/// Adapts a stream with the traits of futures-io, polder's or another, to hyper.
///
/// It supports vectored writes. hyper then sends the parts of a body from where they are; otherwise
/// it copies them into one buffer first, up to 400 KiB for a client that reads nothing.
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
}

impl<S> Stream<S> {
    /// Wraps a stream.
    pub fn new(stream: S) -> Stream<S> {
        let stall = None;
        Stream { stream, stall }
    }

    /// A stream on which writing fails once the peer has taken nothing for `limit`.
    pub(crate) fn limited(stream: S, limit: Duration) -> Stream<S> {
        let stall = Some(Stall::new("it has taken nothing", limit));
        Stream { stream, stall }
    }

    fn check<T>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match &mut self.stall {
            Some(stall) => stall.check(cx, result)?,
            None => result,
        }
    }
}

impl<S: AsyncRead + Unpin> Read for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // Reads directly into hyper's buffer. futures-io needs an initialised buffer, so that much
        // is zeroed, and nothing is copied.
        let size = buffer.remaining().min(CHUNK);
        let chunk = buffer.initialize_unfilled_to(size);
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, chunk))?;
        assert!(
            read <= size,
            "the stream says that it has read more than it was offered"
        );
        // SAFETY: at least that many bytes are initialised.
        unsafe { buffer.advance(read) };
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> Write for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.check(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.check(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_close(cx);
        self.check(cx, result)
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
