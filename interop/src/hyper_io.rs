//! What hyper needs of a runtime: streams and timers. Adapting futures-io streams takes a few
//! lines, so no further crate is needed.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::{Read, ReadBufCursor, Write};
use polder::io::{AsyncRead, AsyncWrite};
use polder::time;

/// The size of one read. The buffer is on the stack: a connection that waits has none.
const CHUNK: usize = 16 * 1024;

/// Adapts a stream with the traits of futures-io, polder's or another, to hyper.
/// It supports vectored writes. hyper then sends the parts of a body from where they are; otherwise
/// it copies them into one buffer first, up to 400 KiB for a client that reads nothing.
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
        // hyper's buffer is not initialised, and futures-io needs an initialised one: a copy costs
        // less than zeroing the whole buffer, which may be large, before each read.
        let mut chunk = [0; CHUNK];
        let size = buffer.remaining().min(CHUNK);
        let read = ready!(Pin::new(&mut self.0).poll_read(cx, &mut chunk[..size]))?;
        buffer.put_slice(&chunk[..read]);
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
}

impl hyper::rt::Sleep for Sleep {}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx)
    }
}
