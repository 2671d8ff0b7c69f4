//! What hyper asks of a runtime: streams and timers. Streams of futures-io are hyper's with a few
//! lines, so that no crate between is needed.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::{Read, ReadBufCursor, Write};
use polder::io::{AsyncRead, AsyncWrite};
use polder::time;

/// What is read at once, at most. It lies on the stack meanwhile: a connection that waits has none
/// of it.
const CHUNK: usize = 16 * 1024;

/// A stream of polder's, or of whoever else implements the traits of futures-io, for hyper.
///
/// It says that it can write from several buffers at once. hyper then sends a body's parts from
/// where they are; otherwise it copies them together first, and has up to 400 KiB ready for a
/// client that takes nothing.
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
        // hyper's buffer is not initialised, which futures-io cannot do with: a copy costs less
        // than zeroing all of it, which may be a lot, before each read.
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

/// polder's timers, for hyper.
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
