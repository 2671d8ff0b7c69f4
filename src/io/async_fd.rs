//! [`Async`], an adapter for any descriptor that the backend can wait for. See `borrowed.rs` for
//! how it waits, and how far it trusts reported readiness.
//!
//! **Ownership.** The user's value owns the descriptor; the source has only its number. The order
//! of the fields deregisters the source before the value is dropped. Until then safe code gets only
//! a shared reference to the value, as a [`BorrowedFd`](std::os::fd::BorrowedFd) requires;
//! functions that return `&mut T` are unsafe, as in async-io: replacing the value would close a
//! registered descriptor. (A duplicate would make it safe, at twice the descriptors. Deregistering
//! while the value is lent would lose tasks that wait then.)

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_lite::{AsyncRead, AsyncWrite};

use super::borrowed::BorrowedIo;
use super::io_safe::IoSafe;
use super::operation::{HasIo, WaiterGuard, charged};
use super::readable::{Readable, ReadableOwned, Writable, WritableOwned};
use crate::reactor::{Direction, Io};
use crate::sys::{self, AsDescriptor, HasDescriptor, OwnedDescriptor};

/// An adapter for any descriptor that can be waited for, like async-io's type of this name.
///
/// For pipes, inotify, timerfd, eventfd, devices, terminals, and other libraries' sockets. (Sockets
/// of [`net`](crate::net) save one system call a wait.) On Windows, sockets only.
///
/// Any number of tasks may wait for one `Async`, in both directions, with every method.
///
/// # Examples
///
/// A pipe:
///
/// ```
/// # #[cfg(unix)] {
/// use polder::Async;
/// use polder::io::{AsyncReadExt, AsyncWriteExt};
/// use std::fs::File;
///
/// let (reader, writer) = rustix::pipe::pipe()?;
/// polder::block_on(async {
///     let mut reader = Async::new(File::from(reader))?;
///     let mut writer = Async::new(File::from(writer))?;
///     let task = polder::spawn(async move { writer.write_all(b"through the pipe").await });
///     let mut text = String::new();
///     reader.read_to_string(&mut text).await?;
///     assert_eq!(text, "through the pipe");
///     task.await
/// })?;
/// # }
/// # std::io::Result::Ok(())
/// ```
///
/// A timerfd, read by a custom operation:
///
/// ```
/// # #[cfg(any(target_os = "linux", target_os = "android"))] {
/// use polder::Async;
/// use rustix::time::{
///     Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
///     timerfd_settime,
/// };
///
/// let timer = Async::new(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?)?;
/// let period = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// let times = Itimerspec { it_interval: period, it_value: period };
/// timerfd_settime(timer.get_ref(), TimerfdTimerFlags::empty(), &times)?;
/// polder::block_on(async {
///     let mut count = [0; 8];
///     timer.read_with(|timer| Ok(rustix::io::read(timer, &mut count)?)).await?;
///     assert!(u64::from_ne_bytes(count) > 0);
///     std::io::Result::Ok(())
/// })?;
/// # }
/// # std::io::Result::Ok(())
/// ```
///
/// # One descriptor, one `Async`
///
/// To wait for a descriptor in several places, share its `Async`, for example in an [`Arc`]. Two
/// `Async` with the same descriptor (a borrowed one, or one in an `Arc`) register it twice, which a
/// worker does not accept: once the first waits, and as long as it exists, a wait of the
/// second fails with [`AlreadyExists`](io::ErrorKind::AlreadyExists) on every backend. The first is
/// not affected, nor are operations that need not wait. A duplicate (`try_clone`) is a separate
/// descriptor.
///
/// ```
/// use polder::{Async, future};
/// use std::io::ErrorKind;
/// use std::net::UdpSocket;
/// use std::sync::Arc;
///
/// let socket = Arc::new(UdpSocket::bind("127.0.0.1:0")?);
/// let (one, other) = (Async::new(socket.clone())?, Async::new(socket.clone())?);
/// polder::block_on(async {
///     assert!(future::poll_once(one.readable()).await.is_none()); // It waits.
///     let error = other.readable().await.unwrap_err();
///     assert_eq!(error.kind(), ErrorKind::AlreadyExists);
///     drop(one); // Now the other one can register it.
///     assert!(future::poll_once(other.readable()).await.is_none());
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Files and standard streams
///
/// A regular file is always ready, and still blocks: it is an error here. Use an `fs::File`, or
/// [`unblock`](crate::unblock); for standard input, output and error too, which may be files.
/// Making those non-blocking also affects every program that shares them.
///
/// Some files of Linux report *changes* by `POLLPRI`: `/proc/self/mounts`, a pressure trigger
/// (PSI), `cgroup.events`. An `Async` does not wait for that, nor for an epoll with such a file:
/// most report a change only once, and each wait asks twice here. A thread of the blocking pool can
/// wait:
///
/// ```
/// # #[cfg(all(target_os = "linux", feature = "blocking"))] {
/// use rustix::event::{PollFd, PollFlags, Timespec, poll};
///
/// let mounts = std::fs::File::open("/proc/self/mounts")?;
/// let wait = polder::unblock(move || {
///     // A call that has begun cannot be cancelled, so it ends soon and is repeated.
///     let limit = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
///     poll(&mut [PollFd::new(&mounts, PollFlags::PRI)], Some(&limit))
/// });
/// let changes = polder::block_on(wait)?;
/// assert!(changes <= 1); // 0: nothing was mounted meanwhile.
/// # }
/// # std::io::Result::Ok(())
/// ```
///
/// # Other owners of a descriptor
///
/// A duplicate, an inherited descriptor and one in another process share flags and state.
///
/// * [`new`](Async::new) sets `O_NONBLOCK` for all of them, and nothing resets it. If another owner
///   clears it, an operation may block its thread, and every task on it. (On Linux the streams and
///   datagram sockets of [`net`](crate::net) are not affected; accepting is.)
/// * If another owner shuts a socket down, a waiting operation is called again, and usually ends.
///   On Linux a receive from a datagram socket and an accept from a Unix listener would block
///   nevertheless: they end with [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) and
///   [`InvalidInput`](io::ErrorKind::InvalidInput). [`readable`](Async::readable) returns
///   immediately there, each time, as `poll(2)` does.
///
/// # Platforms
///
/// On macOS kqueue and `poll` cannot wait for some devices, such as `/dev/tty`: waiting for one is
/// an error unless it is ready. [`Backend::Select`](crate::Backend::Select) can wait for it.
///
/// # Cancel safety
///
/// Cancel safe: an operation has either happened or not.
#[doc(alias("AsyncFd", "PollEvented"))]
pub struct Async<T> {
    /// Dropped before `inner`: see the head of this file.
    borrowed: BorrowedIo,
    inner: T,
}

impl<T: HasDescriptor + 'static> Async<T> {
    /// Wraps `inner`, and makes its descriptor non-blocking, permanently and for all that share it
    /// (see [above](Async#other-owners-of-a-descriptor)).
    ///
    /// It is registered with a reactor when a task first has to wait.
    ///
    /// `T` is `'static`, since the descriptor must be deregistered before it is closed, which
    /// forgetting the value would prevent. Share a value through an [`Arc`].
    ///
    /// # Errors
    ///
    /// [`PermissionDenied`](io::ErrorKind::PermissionDenied) for a regular file, a directory or a
    /// block device: use an `fs::File`. Any error of the system call.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// let file = std::fs::File::open("Cargo.toml")?;
    /// let error = polder::Async::new(file).unwrap_err();
    /// assert!(error.to_string().contains("unblock"));
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn new(inner: T) -> io::Result<Async<T>> {
        let watched = Async::new_nonblocking(inner)?;
        sys::set_nonblocking(&watched.inner)?;
        Ok(watched)
    }

    /// Wraps `inner`, which must be non-blocking already: otherwise operations may block the
    /// thread, and every task on it.
    ///
    /// ```
    /// use polder::Async;
    /// use std::net::UdpSocket;
    ///
    /// let (near, far) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// near.set_nonblocking(true)?;
    /// let near = Async::new_nonblocking(near)?;
    /// far.send_to(b"hello", near.get_ref().local_addr()?)?;
    /// let length = polder::block_on(near.read_with(|near| near.recv(&mut [0; 8])))?;
    /// assert_eq!(length, 5);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn new_nonblocking(inner: T) -> io::Result<Async<T>> {
        if sys::is_file(&inner)? {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "a regular file is always ready and cannot be waited for; \
                 use polder::fs, polder::io::Unblock or polder::unblock, \
                 also to wait for POLLPRI",
            ));
        }
        Ok(Async::of_waitable(inner))
    }

    /// [`new_nonblocking`](Self::new_nonblocking), for a descriptor that can be waited for.
    pub(crate) fn of_waitable(inner: T) -> Async<T> {
        // SAFETY: the descriptor is open as long as `inner` is neither dropped nor changed. The
        // handle is dropped first: it precedes `inner` in the value, and in `into_inner` too;
        // nothing is borrowed that could end earlier. Until then only unsafe functions, which
        // require of their callers not to close it, give more than `&inner`.
        let io = unsafe { Io::borrowed(inner.as_descriptor()) };
        Async {
            borrowed: BorrowedIo::new(io),
            inner,
        }
    }
}

impl<T> Async<T> {
    /// Returns a reference to the inner value.
    ///
    /// Reading and writing through it is fine: no wait depends on it.
    ///
    /// ```
    /// use polder::Async;
    /// use std::net::UdpSocket;
    ///
    /// let socket = Async::new(UdpSocket::bind("127.0.0.1:0")?)?;
    /// socket.get_ref().set_broadcast(true)?; // Any method of the inner type.
    /// assert!(socket.get_ref().broadcast()?);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn get_ref(&self) -> &T {
        &self.inner
    }

    /// Returns a mutable reference to the inner value.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::Async;
    /// use std::io::{Read, Write};
    /// use std::os::unix::net::UnixStream;
    ///
    /// let (near, mut far) = UnixStream::pair()?;
    /// let mut near = Async::new(near)?;
    /// far.write_all(b"hello")?;
    /// polder::block_on(near.readable())?;
    /// let mut bytes = [0; 5];
    /// // SAFETY: reading leaves the descriptor where it is.
    /// unsafe { near.get_mut() }.read_exact(&mut bytes)?;
    /// assert_eq!(&bytes, b"hello");
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Safety
    ///
    /// The value's descriptor must not be closed or replaced.
    pub unsafe fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Returns the value, which stays non-blocking.
    ///
    /// ```
    /// use polder::Async;
    ///
    /// let watched = Async::new(std::net::UdpSocket::bind("127.0.0.1:0")?)?;
    /// let socket = watched.into_inner()?;
    /// socket.set_nonblocking(false)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// None at present; the type is async-io's.
    pub fn into_inner(self) -> io::Result<T> {
        let Async { borrowed, inner } = self;
        drop(borrowed);
        Ok(inner)
    }

    /// Waits until the descriptor is readable: a read would return data, the end of file or an
    /// error.
    ///
    /// It stays readable as long as there is something to read, however often this is awaited.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::Async;
    /// use std::io::{Read, Write};
    /// use std::os::unix::net::UnixStream;
    ///
    /// let (near, mut far) = UnixStream::pair()?;
    /// polder::block_on(async {
    ///     let near = Async::new(near)?;
    ///     far.write_all(b"hello")?;
    ///     near.readable().await?;
    ///     let mut bytes = [0; 5];
    ///     near.get_ref().read_exact(&mut bytes)?;
    ///     assert_eq!(&bytes, b"hello");
    ///     std::io::Result::Ok(())
    /// })?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// When awaited: if the backend cannot wait for this descriptor or another one;
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists) for a [second
    /// `Async`](Async#one-descriptor-one-async) of the descriptor.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future has no effect.
    pub fn readable(&self) -> Readable<'_, T> {
        Readable(WaiterGuard::new(self, Direction::Read))
    }

    /// Waits until the descriptor is writable: a write would not block, or would fail.
    ///
    /// It stays writable as long as there is room, however often this is awaited.
    ///
    /// ```
    /// use polder::Async;
    /// use std::net::UdpSocket;
    ///
    /// let (near, far) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// let near = Async::new(near)?;
    /// polder::block_on(near.writable())?;
    /// near.get_ref().send_to(b"hello", far.local_addr()?)?; // There is room for it.
    /// assert_eq!(far.recv(&mut [0; 8])?, 5);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`readable`](Self::readable).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future has no effect.
    pub fn writable(&self) -> Writable<'_, T> {
        Writable(WaiterGuard::new(self, Direction::Write))
    }

    /// [`readable`](Self::readable), as a future that borrows nothing.
    ///
    /// ```
    /// use polder::Async;
    /// use std::net::UdpSocket;
    /// use std::sync::Arc;
    ///
    /// let (near, far) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// let near = Arc::new(Async::new(near)?);
    /// let waits = polder::spawn(near.clone().readable_owned());
    /// far.send_to(b"hello", near.get_ref().local_addr()?)?;
    /// polder::block_on(waits)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`readable`](Self::readable).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future has no effect.
    pub fn readable_owned(self: Arc<Self>) -> ReadableOwned<T> {
        ReadableOwned(WaiterGuard::new(self, Direction::Read))
    }

    /// [`writable`](Self::writable), as a future that borrows nothing.
    ///
    /// ```
    /// use polder::Async;
    /// use std::net::UdpSocket;
    /// use std::sync::Arc;
    ///
    /// let socket = Arc::new(Async::new(UdpSocket::bind("127.0.0.1:0")?)?);
    /// let room = polder::spawn(socket.clone().writable_owned());
    /// polder::block_on(room)?;
    /// assert!(socket.get_ref().send_to(b"hello", socket.get_ref().local_addr()?).is_ok());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`readable`](Self::readable).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future has no effect.
    pub fn writable_owned(self: Arc<Self>) -> WritableOwned<T> {
        WritableOwned(WaiterGuard::new(self, Direction::Write))
    }

    /// Poll version of [`readable`](Self::readable), for use after an operation that would have
    /// blocked. The task is woken when another attempt is worthwhile; any number of tasks may poll.
    ///
    /// ```
    /// use polder::Async;
    /// use std::net::UdpSocket;
    ///
    /// let (near, far) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// let near = Async::new(near)?;
    /// far.send_to(b"hello", near.get_ref().local_addr()?)?;
    /// polder::block_on(std::future::poll_fn(|cx| near.poll_readable(cx)))?;
    /// assert_eq!(near.get_ref().recv(&mut [0; 8])?, 5);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`readable`](Self::readable).
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.borrowed.poll_ready(cx, Direction::Read)
    }

    /// Poll version of [`writable`](Self::writable): see [`poll_readable`](Self::poll_readable).
    ///
    /// ```
    /// use polder::Async;
    /// use std::net::UdpSocket;
    ///
    /// let (near, far) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// let near = Async::new(near)?;
    /// polder::block_on(std::future::poll_fn(|cx| near.poll_writable(cx)))?;
    /// near.get_ref().send_to(b"hello", far.local_addr()?)?;
    /// assert_eq!(far.recv(&mut [0; 8])?, 5);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`readable`](Self::readable).
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.borrowed.poll_ready(cx, Direction::Write)
    }

    /// Calls `operation` whenever the descriptor is readable, until the result is not
    /// [`WouldBlock`](io::ErrorKind::WouldBlock).
    ///
    /// It may consume a part of the data and return `WouldBlock`: it is then called again for the
    /// rest, after other tasks. After 32 such calls in a row the next one comes with the next
    /// event, or after a back-off of at most 10 ms.
    ///
    /// ```
    /// use polder::Async;
    /// use std::net::UdpSocket;
    ///
    /// let (near, far) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// polder::block_on(async {
    ///     let near = Async::new(near)?;
    ///     far.send_to(b"hello", near.get_ref().local_addr()?)?;
    ///     let mut bytes = [0; 8];
    ///     let (length, _from) = near.read_with(|near| near.recv_from(&mut bytes)).await?;
    ///     assert_eq!(&bytes[..length], b"hello");
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The operation's, and those of [`readable`](Self::readable). The end of a socket that
    /// [another owner](Async#other-owners-of-a-descriptor) has shut down.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: `operation` is called only within a poll, and its result is returned
    /// immediately.
    #[doc(alias("async_io", "try_io"))]
    pub async fn read_with<R>(
        &self,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        self.borrowed
            .run(Direction::Read, || operation(&self.inner))
            .await
    }

    /// Calls `operation` whenever the descriptor is writable: see [`read_with`](Self::read_with).
    ///
    /// ```
    /// use polder::Async;
    /// use std::net::UdpSocket;
    ///
    /// let (near, far) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// let address = far.local_addr()?;
    /// polder::block_on(async {
    ///     let near = Async::new(near)?;
    ///     near.write_with(|near| near.send_to(b"hello", address)).await
    /// })?;
    /// let mut bytes = [0; 8];
    /// assert_eq!(far.recv(&mut bytes)?, 5);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The operation's, and those of [`writable`](Self::writable).
    ///
    /// # Cancel safety
    ///
    /// As [`read_with`](Self::read_with).
    #[doc(alias("async_io", "try_io"))]
    pub async fn write_with<R>(
        &self,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        self.borrowed
            .run(Direction::Write, || operation(&self.inner))
            .await
    }

    /// Poll version of [`read_with`](Self::read_with): see [`poll_readable`](Self::poll_readable).
    ///
    /// An operation that returns [`Interrupted`](io::ErrorKind::Interrupted) is called again, as
    /// [`AsyncRead`] requires.
    ///
    /// ```
    /// use polder::Async;
    /// use std::future::poll_fn;
    /// use std::net::UdpSocket;
    ///
    /// let (near, far) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// let near = Async::new(near)?;
    /// far.send_to(b"hello", near.get_ref().local_addr()?)?;
    /// let mut bytes = [0; 8];
    /// let receive = poll_fn(|cx| near.poll_read_with(cx, |near| near.recv(&mut bytes)));
    /// assert_eq!(polder::block_on(receive)?, 5);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`read_with`](Self::read_with).
    pub fn poll_read_with<R>(
        &self,
        cx: &mut Context<'_>,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.borrowed
            .poll_operation(cx, Direction::Read, || operation(&self.inner))
    }

    /// Poll version of [`write_with`](Self::write_with): see
    /// [`poll_read_with`](Self::poll_read_with).
    ///
    /// ```
    /// use polder::Async;
    /// use std::net::UdpSocket;
    ///
    /// let (near, far) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// let (near, address) = (Async::new(near)?, far.local_addr()?);
    /// let send = |near: &UdpSocket| near.send_to(b"hello", address);
    /// polder::block_on(std::future::poll_fn(|cx| near.poll_write_with(cx, send)))?;
    /// assert_eq!(far.recv(&mut [0; 8])?, 5);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`write_with`](Self::write_with).
    pub fn poll_write_with<R>(
        &self,
        cx: &mut Context<'_>,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.borrowed
            .poll_operation(cx, Direction::Write, || operation(&self.inner))
    }

    /// [`read_with`](Self::read_with), for an operation that changes the value.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::Async;
    /// use std::io::{Read, Write};
    /// use std::os::unix::net::UnixStream;
    ///
    /// let (near, mut far) = UnixStream::pair()?;
    /// let mut near = Async::new(near)?;
    /// far.write_all(b"hello")?;
    /// let mut bytes = [0; 8];
    /// // SAFETY: reading leaves the descriptor where it is.
    /// let read = unsafe { near.read_with_mut(|near| near.read(&mut bytes)) };
    /// assert_eq!(polder::block_on(read)?, 5);
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`read_with`](Self::read_with).
    ///
    /// # Cancel safety
    ///
    /// As [`read_with`](Self::read_with).
    ///
    /// # Safety
    ///
    /// The operation must not close or replace the value's descriptor.
    pub async unsafe fn read_with_mut<R>(
        &mut self,
        mut operation: impl FnMut(&mut T) -> io::Result<R>,
    ) -> io::Result<R> {
        let Async { borrowed, inner } = self;
        borrowed.run(Direction::Read, || operation(inner)).await
    }

    /// [`write_with`](Self::write_with), for an operation that changes the value.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::Async;
    /// use std::io::{Read, Write};
    /// use std::os::unix::net::UnixStream;
    ///
    /// let (near, mut far) = UnixStream::pair()?;
    /// let mut near = Async::new(near)?;
    /// // SAFETY: writing leaves the descriptor where it is.
    /// let write = unsafe { near.write_with_mut(|near| near.write(b"hello")) };
    /// assert_eq!(polder::block_on(write)?, 5);
    /// assert_eq!(far.read(&mut [0; 8])?, 5);
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`write_with`](Self::write_with).
    ///
    /// # Cancel safety
    ///
    /// As [`write_with`](Self::write_with).
    ///
    /// # Safety
    ///
    /// The operation must not close or replace the value's descriptor.
    pub async unsafe fn write_with_mut<R>(
        &mut self,
        mut operation: impl FnMut(&mut T) -> io::Result<R>,
    ) -> io::Result<R> {
        let Async { borrowed, inner } = self;
        borrowed.run(Direction::Write, || operation(inner)).await
    }
}

impl<T> HasIo for Async<T> {
    fn io(&self) -> &Io {
        &self.borrowed.io
    }
}

/// A read without room (not `wanted`) does not wait: `WouldBlock` becomes zero bytes.
pub(crate) fn or_nothing(wanted: bool, read: io::Result<usize>) -> io::Result<usize> {
    match read {
        Err(error) if !wanted && error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        read => read,
    }
}

fn has_room(buffers: &[IoSliceMut<'_>]) -> bool {
    buffers.iter().any(|buffer| !buffer.is_empty())
}

/// Moving the value does not affect tasks that wait for its descriptor.
impl<T> Unpin for Async<T> {}

impl<T: IoSafe + Read> AsyncRead for Async<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let Async { borrowed, inner } = &mut *self;
        let wanted = !bytes.is_empty();
        borrowed.poll_operation(cx, Direction::Read, || {
            charged(or_nothing(wanted, inner.read(bytes)))
        })
    }

    fn poll_read_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let Async { borrowed, inner } = &mut *self;
        let wanted = has_room(buffers);
        borrowed.poll_operation(cx, Direction::Read, || {
            charged(or_nothing(wanted, inner.read_vectored(buffers)))
        })
    }
}

impl<T> AsyncRead for &Async<T>
where
    for<'a> &'a T: Read,
{
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let wanted = !bytes.is_empty();
        self.poll_read_with(cx, |mut inner| {
            charged(or_nothing(wanted, inner.read(bytes)))
        })
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let wanted = has_room(buffers);
        self.poll_read_with(cx, |mut inner| {
            charged(or_nothing(wanted, inner.read_vectored(buffers)))
        })
    }
}

/// Closing only flushes: a socket's peer sees the end of file after `shutdown`, or when the value
/// is dropped.
impl<T: IoSafe + Write> AsyncWrite for Async<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Async { borrowed, inner } = &mut *self;
        borrowed.poll_operation(cx, Direction::Write, || charged(inner.write(bytes)))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Async { borrowed, inner } = &mut *self;
        borrowed.poll_operation(cx, Direction::Write, || {
            charged(inner.write_vectored(buffers))
        })
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Async { borrowed, inner } = &mut *self;
        borrowed.poll_operation(cx, Direction::Write, || inner.flush())
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

/// Closing only flushes.
impl<T> AsyncWrite for &Async<T>
where
    for<'a> &'a T: Write,
{
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |mut inner| charged(inner.write(bytes)))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |mut inner| charged(inner.write_vectored(buffers)))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_with(cx, |mut inner| inner.flush())
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

impl<T> AsRef<T> for Async<T> {
    fn as_ref(&self) -> &T {
        &self.inner
    }
}

/// As [`Async::new`].
impl<T: HasDescriptor + From<OwnedDescriptor> + 'static> TryFrom<OwnedDescriptor> for Async<T> {
    type Error = io::Error;

    fn try_from(descriptor: OwnedDescriptor) -> io::Result<Async<T>> {
        Async::new(descriptor.into())
    }
}

/// As [`Async::into_inner`].
impl<T: Into<OwnedDescriptor>> TryFrom<Async<T>> for OwnedDescriptor {
    type Error = io::Error;

    fn try_from(watched: Async<T>) -> io::Result<OwnedDescriptor> {
        watched.into_inner().map(Into::into)
    }
}

sys::lend_descriptor!([T: HasDescriptor] Async<T>, |watched| watched.inner.as_descriptor());

impl<T: fmt::Debug> fmt::Debug for Async<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Async").field(&self.inner).finish()
    }
}
