//! The futures that wait until an [`Async`] is readable or writable.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Async;
use super::borrowed::poll_level;
use super::operation::{HasIo, WaiterGuard};

/// The future of [`Async::readable`].
///
/// ```
/// use polder::{Async, future};
/// use std::net::UdpSocket;
///
/// let (near, far) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
/// let near = Async::new(near)?;
/// polder::block_on(async {
///     let mut readable = near.readable();
///     assert!(future::poll_once(&mut readable).await.is_none()); // It waits,
///     far.send_to(b"hello", near.get_ref().local_addr()?)?;
///     readable.await // and completes when there is something.
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// As [`Async::readable`].
///
/// # Cancel safety
///
/// Cancel safe: dropping the future has no effect.
#[must_use = "futures do nothing unless they are polled"]
pub struct Readable<'a, T>(pub(super) WaiterGuard<&'a Async<T>>);

/// The future of [`Async::writable`].
///
/// ```
/// use polder::{Async, future};
/// use std::net::UdpSocket;
///
/// let socket = Async::new(UdpSocket::bind("127.0.0.1:0")?)?;
/// let room = polder::block_on(future::poll_once(socket.writable()));
/// assert!(matches!(room, Some(Ok(())))); // Immediately: its buffer is empty.
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// As [`Async::writable`].
///
/// # Cancel safety
///
/// Cancel safe: dropping the future has no effect.
#[must_use = "futures do nothing unless they are polled"]
pub struct Writable<'a, T>(pub(super) WaiterGuard<&'a Async<T>>);

/// The future of [`Async::readable_owned`].
///
/// ```
/// use polder::Async;
/// use polder::io::ReadableOwned;
/// use std::net::UdpSocket;
/// use std::sync::Arc;
///
/// // A future that is stored together with its `Async`.
/// struct Mailbox {
///     socket: Arc<Async<UdpSocket>>,
///     mail: ReadableOwned<UdpSocket>,
/// }
///
/// let socket = Arc::new(Async::new(UdpSocket::bind("127.0.0.1:0")?)?);
/// let mailbox = Mailbox { mail: socket.clone().readable_owned(), socket };
/// let socket = mailbox.socket.get_ref();
/// socket.send_to(b"hello", socket.local_addr()?)?;
/// polder::block_on(mailbox.mail)?;
/// assert_eq!(socket.recv(&mut [0; 8])?, 5);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// As [`Async::readable_owned`].
///
/// # Cancel safety
///
/// Cancel safe: dropping the future has no effect.
#[must_use = "futures do nothing unless they are polled"]
pub struct ReadableOwned<T>(pub(super) WaiterGuard<Arc<Async<T>>>);

/// The future of [`Async::writable_owned`].
///
/// ```
/// use polder::Async;
/// use polder::io::WritableOwned;
/// use std::net::UdpSocket;
/// use std::sync::Arc;
///
/// let socket = Arc::new(Async::new(UdpSocket::bind("127.0.0.1:0")?)?);
/// let room: WritableOwned<UdpSocket> = socket.writable_owned();
/// let thread = std::thread::spawn(|| polder::block_on(room)); // It borrows nothing.
/// thread.join().unwrap()?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// As [`Async::writable_owned`].
///
/// # Cancel safety
///
/// Cancel safe: dropping the future has no effect.
#[must_use = "futures do nothing unless they are polled"]
pub struct WritableOwned<T>(pub(super) WaiterGuard<Arc<Async<T>>>);

impl<H: Deref<Target: HasIo>> WaiterGuard<H> {
    fn poll_level(&mut self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let (source, direction, wait) = self.parts(cx.waker());
        poll_level(wait, source, cx, direction)
    }
}

impl<T> Future for Readable<'_, T> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_level(cx)
    }
}

impl<T> fmt::Debug for Readable<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readable").finish_non_exhaustive()
    }
}

impl<T> Future for Writable<'_, T> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_level(cx)
    }
}

impl<T> fmt::Debug for Writable<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writable").finish_non_exhaustive()
    }
}

impl<T> Future for ReadableOwned<T> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_level(cx)
    }
}

impl<T> fmt::Debug for ReadableOwned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadableOwned").finish_non_exhaustive()
    }
}

impl<T> Future for WritableOwned<T> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_level(cx)
    }
}

impl<T> fmt::Debug for WritableOwned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WritableOwned").finish_non_exhaustive()
    }
}
