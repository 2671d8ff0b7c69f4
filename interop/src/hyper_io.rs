//! hyper's runtime interface: streams, timers, and tasks for HTTP/2.
//!
//! Copy this file; it needs hyper and polder, and no other crate. A server is then three lines:
//!
//! ```
//! # use hyper::server::conn::http1;
//! # use hyper::{Request, Response, body::Incoming, service::service_fn};
//! # use http_body_util::Full;
//! # use polder::net::{TcpListener, TcpStream};
//! use interop::{HyperStream, HyperTimer}; // Or wherever this file is.
//!
//! # type Never = std::convert::Infallible;
//! # async fn connection(stream: TcpStream) -> hyper::Result<()> {
//! # let service = service_fn(|_: Request<Incoming>| async {
//! #     Ok::<_, Never>(Response::new(Full::new("hello".as_bytes())))
//! # });
//! http1::Builder::new().timer(HyperTimer)
//!     .serve_connection(HyperStream::new(stream), service).await
//! # }
//! ```

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::{Executor, Read, ReadBufCursor, Write};
use polder::io::{AsyncRead, AsyncWrite};
use polder::time;

/// The maximum size of one read, which is zeroed before it.
const CHUNK: usize = 16 * 1024;

/// Adapts a stream with the traits of futures-io, polder's or another, to hyper. It supports
/// vectored writes. hyper then sends the parts of a body from where they are; otherwise it copies
/// them into one buffer first, up to 400 KiB for a client that reads nothing.
pub struct HyperStream<S>(S);

impl<S> HyperStream<S> {
    pub fn new(stream: S) -> HyperStream<S> {
        HyperStream(stream)
    }
}

impl<S: AsyncRead + Unpin> Read for HyperStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // Reads directly into hyper's buffer. futures-io needs an initialised buffer, so that much
        // is zeroed, and nothing is copied.
        let size = buffer.remaining().min(CHUNK);
        let chunk = buffer.initialize_unfilled_to(size);
        let read = ready!(Pin::new(&mut self.0).poll_read(cx, chunk))?;
        assert!(
            read <= size,
            "the stream says that it has read more than it was offered"
        );
        // SAFETY: at least that many bytes are initialised.
        unsafe { buffer.advance(read) };
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> Write for HyperStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_close(cx)
    }
}

/// Adapts polder's timers to hyper.
#[derive(Clone, Copy, Debug)]
pub struct HyperTimer;

struct Sleep(time::Sleep);

impl hyper::rt::Timer for HyperTimer {
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
#[allow(dead_code)] // By who serves HTTP/1 alone.
#[derive(Clone, Copy, Debug)]
pub struct HyperExecutor;

impl<F> Executor<F> for HyperExecutor
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        polder::spawn(future).detach();
    }
}
