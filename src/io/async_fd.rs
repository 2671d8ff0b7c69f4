//! [`Async`]: any descriptor that the backend can wait for.
//!
//! **The level decides.** polder's own sockets trust what edges have told, and clear it only when an
//! operation of theirs would block. Here the operations are the user's: he may read through
//! [`Async::get_ref`] without a word to us, take one of several datagrams and say `WouldBlock`
//! because it was not his, or wait for readability a second time without reading at all. So nothing
//! that was told is trusted: each wait first asks the kernel whether the descriptor is ready *now*
//! (one `poll(2)` that does not wait), and sleeps only if it is not. The snapshot of the readiness is
//! taken before that question, and cleared by it: an edge that comes in between is seen, so none is
//! lost, and one that tells of what was taken meanwhile leads to one more question, so nobody spins.
//!
//! **Who waits.** A future of ours has an identity among the source's waiters, as everywhere. A
//! function that polls has none but its waker: so each waker that comes that way gets one, and keeps
//! it as long as it waits, in a list of [`Task`]s. Any number of tasks may poll, none displaces another
//! and loses it its wake, and none wakes another for displacing it, which could go on for ever.
//!
//! **Who owns what.** The descriptor is the user's value's, and the source has its number. The field
//! order sees to it that the source is deregistered before the value is dropped; and as long as it
//! is registered, safe code has no more than a shared reference to the value, which is what a
//! [`BorrowedFd`](std::os::fd::BorrowedFd) asks for. That is why what gives out `&mut T` is unsafe,
//! as in async-io: to replace the value would be to close a registered descriptor. (A duplicate of
//! our own would make it safe, at the price of twice the descriptors; to deregister while it is lent
//! would lose whoever waits meanwhile.)

use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};

use futures_lite::{AsyncRead, AsyncWrite};

use crate::reactor::{Direction, Io, Snapshot, WaiterId};
use crate::runtime::context;
use crate::scheduler::budget;
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::{Mutex, contain};
use crate::sys::{self, AsDescriptor, HasDescriptor, OwnedDescriptor};

/// Anything with a descriptor that can be waited for, as async-io's type of this name.
///
/// For pipes, inotify, timerfd, eventfd, devices and terminals, and for sockets of other libraries.
/// (polder's own sockets are in [`net`](crate::net), and cost less: here each wait asks the kernel
/// once more than there.) On Windows, sockets only.
///
/// Any number of tasks may wait for one `Async` at once, in both directions, by every method.
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
/// A timer of the kernel's, read by a call of one's own:
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
/// To wait for a descriptor in several places, share its `Async`, in an [`Arc`] for instance. Two of them
/// with the same descriptor (a borrowed one, or one in an `Arc`) are two registrations of it, and a worker
/// takes one: where the first waits, or has waited and lives, a wait of the second is
/// [`AlreadyExists`](io::ErrorKind::AlreadyExists) on every backend. The first goes on undisturbed. So
/// does what need not wait, with either of them. A duplicate (`try_clone`) is a descriptor of its own.
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
///     drop(one); // Then the other one can have it.
///     assert!(future::poll_once(other.readable()).await.is_none());
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Files and standard streams
///
/// A regular file is always ready, and still takes its time: it is an error here, and is read through
/// [`Unblock`](super::Unblock) or [`unblock`](crate::unblock). So are standard input, output and
/// error, which may be files; and where they are not, what makes them non-blocking does that to
/// every other program that has them too.
///
/// # Platform notes
///
/// macOS cannot wait for some devices, `/dev/tty` among them, by kqueue or `poll`: there it is an error to
/// wait for one that is not ready. [`Backend::Select`](crate::Backend::Select) can.
///
/// # Cancel safety
///
/// Whoever waits and gives up leaves nothing behind. An operation has either happened or not.
pub struct Async<T> {
    /// Before `inner`, and so deregistered before that is dropped.
    watch: Watch,
    inner: T,
}

/// What waits for a descriptor.
struct Watch {
    io: Io,
    /// Whoever waits by polling, by direction.
    tasks: [Mutex<Tasks>; 2],
}

#[derive(Default)]
struct Tasks {
    list: Vec<Arc<Task>>,
    /// At so many, those are looked for that are gone.
    limit: usize,
}

/// Of a [`Task`]: it waits; it no longer waits, unless it polls again; it was woken to see whether it
/// does.
const WAITS: u8 = 0;
const WOKEN: u8 = 1;
const CALLED: u8 = 2;

/// So many entries are no reason to look for those who have gone.
const MANY: usize = 128;

/// A task that polled: see the head of this file.
struct Task {
    id: WaiterId,
    waker: Waker,
    state: AtomicU8,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let _ = (self.state).compare_exchange(WAITS, WOKEN, Ordering::AcqRel, Ordering::Acquire);
        self.waker.wake_by_ref();
    }
}

impl Tasks {
    /// The entry of whoever has this waker. Those who wait no longer are moved to `gone`.
    fn find(&mut self, waker: &Waker, gone: &mut Vec<Arc<Task>>) -> Option<Arc<Task>> {
        let mut index = 0;
        let mut found = None;
        while let Some(task) = self.list.get(index) {
            if task.waker.will_wake(waker) {
                // Within the lock, so that nobody else takes it for one that waits no longer.
                task.state.store(WAITS, Ordering::Release);
                found = Some(task.clone());
            } else if task.state.load(Ordering::Acquire) == WOKEN {
                gone.push(self.list.swap_remove(index));
                continue;
            }
            index += 1;
        }
        found
    }

    /// Whether there are many; then those who did not come again since the last time are moved to `gone`,
    /// and the others are to be woken.
    fn make_room(&mut self, gone: &mut Vec<Arc<Task>>) -> bool {
        let full = self.list.len() >= self.limit.max(MANY);
        if full {
            let all = std::mem::take(&mut self.list).into_iter();
            let (called, left): (Vec<_>, Vec<_>) =
                all.partition(|task| task.state.swap(CALLED, Ordering::AcqRel) == CALLED);
            gone.extend(called);
            self.limit = left.len() + (left.len() / 2).max(MANY);
            self.list = left;
        }
        full
    }
}

impl Watch {
    /// Ready once the descriptor is. `leave` leaves the waker of whoever waits: see
    /// [`leave`](Self::leave). `before` was taken before an operation that would block.
    ///
    /// An error queue that nobody reads makes a socket ready for good, as `poll` has it. So after an operation
    /// in vain an error alone does not count, unless something was reported since: what the kernel comes to
    /// know later is reported later.
    fn poll(
        &self,
        cx: &Context<'_>,
        direction: Direction,
        mut before: Option<Snapshot>,
        leave: impl Fn() -> io::Result<bool>,
    ) -> Poll<io::Result<()>> {
        let source = self.io.source();
        let is_to_write = direction == Direction::Write;
        let is_only_an_error = || {
            let (read, write) = sys::is_only_an_error(source.descriptor())?;
            io::Result::Ok(if is_to_write { write } else { read })
        };
        loop {
            ready!(budget::consume(cx));
            let before = before.take();
            let ready = || {
                let is_news = before.is_none_or(|it| !it.is_as_old_as(source.snapshot(direction)));
                Ok::<_, io::Error>(
                    sys::is_ready(source.descriptor(), is_to_write)?
                        && (is_news || !is_only_an_error()?),
                )
            };
            if source.look(direction, ready)? {
                return Poll::Ready(Ok(()));
            }
            budget::restore();
            if leave()? {
                return Poll::Pending;
            }
        }
    }

    /// Leaves a waker for the next event; false if there was one since readiness was cleared.
    fn leave(&self, direction: Direction, id: WaiterId, waker: &Waker) -> io::Result<bool> {
        let source = self.io.source();
        source
            .wait_again(direction, id, waker)
            .unwrap_or_else(|| context::with_reactor(|it| source.wait(it, direction, id, waker))?)
    }

    /// For whoever has no name but his waker.
    fn poll_as_task(
        &self,
        cx: &Context<'_>,
        direction: Direction,
        before: Option<Snapshot>,
    ) -> Poll<io::Result<()>> {
        self.poll(cx, direction, before, || {
            let task = self.task(cx.waker(), direction);
            let left = self.leave(direction, task.id, &Waker::from(task.clone()));
            if !matches!(left, Ok(true)) {
                task.state.store(WOKEN, Ordering::Release); // It does not wait.
            }
            left
        })
    }

    /// The entry of whoever has this waker; entries of those who wait no longer are dropped.
    ///
    /// A task that gives up does not say so. So where there are many, all are woken, and those that have
    /// not come again by the next time are gone.
    fn task(&self, waker: &Waker, direction: Direction) -> Arc<Task> {
        let mut gone = Vec::new(); // To be dropped outside the lock, as wakers are cloned outside it.
        let mut new = None;
        let (task, full) = loop {
            let mut tasks = self.tasks[direction as usize].lock();
            if let Some(task) = tasks.find(waker, &mut gone) {
                break (task, false);
            }
            if let Some(task) = new.take() {
                let full = tasks.make_room(&mut gone);
                tasks.list.push(Arc::clone(&task));
                break (task, full);
            }
            drop(tasks);
            new = Some(Arc::new(Task {
                id: self.io.new_handle_id(),
                waker: waker.clone(),
                state: AtomicU8::new(WAITS),
            }));
        };
        for task in gone.into_iter().chain(new) {
            contain(|| drop(task));
        }
        if full {
            self.io.source().wake(false);
        }
        task
    }

    /// Tries to read until it does not block. Where nothing is `wanted`, nothing is waited for.
    fn poll_read(
        &self,
        cx: &Context<'_>,
        wanted: bool,
        mut read: impl FnMut() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        self.poll_operation(cx, Direction::Read, || or_nothing(wanted, read()))
    }

    /// Tries `operation` until it does not block.
    fn poll_operation<R>(
        &self,
        cx: &Context<'_>,
        direction: Direction,
        mut operation: impl FnMut() -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        loop {
            let before = self.io.source().snapshot(direction);
            match ready!(attempt(cx, &mut operation)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.poll_as_task(cx, direction, Some(before)))?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return Poll::Ready(result),
            }
        }
    }
}

/// A read for which there is no room (not `wanted`) has read nothing where it would block.
pub(super) fn or_nothing(wanted: bool, read: io::Result<usize>) -> io::Result<usize> {
    match read {
        Err(error) if !wanted && error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        read => read,
    }
}

fn has_room(buffers: &[IoSliceMut<'_>]) -> bool {
    buffers.iter().any(|buffer| !buffer.is_empty())
}

/// One attempt, which counts in the running task's share if it does not block.
fn attempt<R>(cx: &Context<'_>, operation: impl FnOnce() -> io::Result<R>) -> Poll<io::Result<R>> {
    ready!(budget::consume(cx));
    let result = operation();
    if matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
        budget::restore();
    }
    Poll::Ready(result)
}

impl<T: HasDescriptor + 'static> Async<T> {
    /// Makes the descriptor non-blocking, and takes `inner` over.
    ///
    /// It is registered with no runtime until somebody has to wait for it.
    ///
    /// `T` borrows nothing, since the kernel's list must be left before the descriptor is closed, and
    /// a value that is forgotten instead of dropped would not do that. An [`Arc`] can be shared.
    ///
    /// # Errors
    ///
    /// [`PermissionDenied`](io::ErrorKind::PermissionDenied) for a regular file, a directory or a block
    /// device: [`Unblock`](super::Unblock) is for these. Otherwise what the system says.
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
        sys::set_nonblocking(watched.watch.io.source().descriptor())?;
        Ok(watched)
    }

    /// Takes `inner` over, which is non-blocking already. If it is not, operations may block the
    /// thread, and everything else that it runs.
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
                "a regular file cannot be waited for: it is always ready; \
                 use polder::io::Unblock or polder::unblock",
            ));
        }
        // SAFETY: the descriptor is open as long as `inner` is neither dropped nor changed. The
        // handle lies before it in the same value, so it goes first, in `into_inner` too; nothing is
        // borrowed that could end earlier. And until then only unsafe functions, whose callers
        // promise not to close it, give more than `&inner`.
        let io = unsafe { Io::lent(inner.as_descriptor()) };
        Ok(Async {
            watch: Watch {
                io,
                tasks: [Mutex::default(), Mutex::default()],
            },
            inner,
        })
    }
}

impl<T> Async<T> {
    /// The value inside.
    ///
    /// Reading from it, or writing to it, is fine: no wait depends on who does that.
    ///
    /// ```
    /// use polder::Async;
    /// use std::net::UdpSocket;
    ///
    /// let socket = Async::new(UdpSocket::bind("127.0.0.1:0")?)?;
    /// socket.get_ref().set_broadcast(true)?; // Whatever it has methods for.
    /// assert!(socket.get_ref().broadcast()?);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn get_ref(&self) -> &T {
        &self.inner
    }

    /// The value inside, to be changed.
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
    /// Its descriptor must not be closed or replaced.
    pub unsafe fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Gives the value back, which stays non-blocking.
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
        let Async { watch, inner } = self;
        drop(watch);
        Ok(inner)
    }

    /// Waits until the descriptor is readable: until a read would not block. An end of file and an
    /// error count.
    ///
    /// It is readable as long as there is something to read, however often this is asked.
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
    /// When awaited: where the backend cannot wait for this descriptor, or no more of them;
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists) where another `Async` with the same descriptor is
    /// [waited for on this worker](Async#one-descriptor-one-async).
    ///
    /// # Cancel safety
    ///
    /// Giving up leaves nothing behind.
    pub fn readable(&self) -> Readable<'_, T> {
        Readable(Wait::new(self, Direction::Read))
    }

    /// Waits until the descriptor is writable: until a write would not block, or would fail.
    ///
    /// It is writable as long as there is room, however often this is asked.
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
    /// Giving up leaves nothing behind.
    pub fn writable(&self) -> Writable<'_, T> {
        Writable(Wait::new(self, Direction::Write))
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
    /// Giving up leaves nothing behind.
    pub fn readable_owned(self: Arc<Self>) -> ReadableOwned<T> {
        ReadableOwned(Wait::new(self, Direction::Read))
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
    /// Giving up leaves nothing behind.
    pub fn writable_owned(self: Arc<Self>) -> WritableOwned<T> {
        WritableOwned(Wait::new(self, Direction::Write))
    }

    /// [`readable`](Self::readable), for functions that poll: to be called after an operation that
    /// would have blocked. The task is woken when it is worth another try.
    ///
    /// Any number of tasks may do that at once: each is woken.
    ///
    /// ```
    /// use polder::Async;
    /// use std::future::poll_fn;
    /// use std::net::UdpSocket;
    ///
    /// let (near, far) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// let near = Async::new(near)?;
    /// far.send_to(b"hello", near.get_ref().local_addr()?)?;
    /// polder::block_on(poll_fn(|cx| near.poll_readable(cx)))?;
    /// assert_eq!(near.get_ref().recv(&mut [0; 8])?, 5);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`readable`](Self::readable).
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watch.poll_as_task(cx, Direction::Read, None)
    }

    /// [`writable`](Self::writable), for functions that poll: see
    /// [`poll_readable`](Self::poll_readable).
    ///
    /// ```
    /// use polder::Async;
    /// use std::future::poll_fn;
    /// use std::net::UdpSocket;
    ///
    /// let (near, far) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// let near = Async::new(near)?;
    /// polder::block_on(poll_fn(|cx| near.poll_writable(cx)))?;
    /// near.get_ref().send_to(b"hello", far.local_addr()?)?;
    /// assert_eq!(far.recv(&mut [0; 8])?, 5);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`readable`](Self::readable).
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watch.poll_as_task(cx, Direction::Write, None)
    }

    /// Calls `operation`, again whenever the descriptor becomes readable, until it gives something
    /// else than [`WouldBlock`](io::ErrorKind::WouldBlock).
    ///
    /// It may take part of what there is and say `WouldBlock` all the same: it is then called again
    /// for the rest.
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
    /// The operation's, and those of [`readable`](Self::readable).
    ///
    /// # Cancel safety
    ///
    /// It is called within a poll only, and what it gives is given at once: nothing is lost.
    pub async fn read_with<R>(
        &self,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        self.run(Direction::Read, || operation(&self.inner)).await
    }

    /// Calls `operation`, again whenever the descriptor becomes writable, until it gives something
    /// else than [`WouldBlock`](io::ErrorKind::WouldBlock): see [`read_with`](Self::read_with).
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
    pub async fn write_with<R>(
        &self,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        self.run(Direction::Write, || operation(&self.inner)).await
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
        let Async { watch, inner } = self;
        watch.run(Direction::Read, || operation(inner)).await
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
        let Async { watch, inner } = self;
        watch.run(Direction::Write, || operation(inner)).await
    }

    async fn run<R>(
        &self,
        direction: Direction,
        operation: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        self.watch.run(direction, operation).await
    }
}

impl Watch {
    async fn run<R>(
        &self,
        direction: Direction,
        mut operation: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        let mut wait = Wait::new(self, direction);
        poll_fn(|cx| {
            loop {
                let before = self.io.source().snapshot(direction);
                match ready!(attempt(cx, &mut operation)) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        ready!(wait.poll(cx, Some(before)))?;
                    }
                    result => return Poll::Ready(result),
                }
            }
        })
        .await
    }
}

/// What waits, borrowed or shared.
trait Watched {
    fn watch(&self) -> &Watch;
}

impl Watched for &Watch {
    fn watch(&self) -> &Watch {
        self
    }
}

impl<T> Watched for &Async<T> {
    fn watch(&self) -> &Watch {
        &self.watch
    }
}

impl<T> Watched for Arc<Async<T>> {
    fn watch(&self) -> &Watch {
        &self.watch
    }
}

/// One waiter, with a name of its own from the first poll on.
struct Wait<W: Watched> {
    watched: W,
    direction: Direction,
    id: Option<WaiterId>,
}

impl<W: Watched> Wait<W> {
    fn new(watched: W, direction: Direction) -> Wait<W> {
        Wait {
            watched,
            direction,
            id: None,
        }
    }

    fn poll(&mut self, cx: &Context<'_>, before: Option<Snapshot>) -> Poll<io::Result<()>> {
        let watch = self.watched.watch();
        let id = *self.id.get_or_insert_with(|| watch.io.new_id());
        watch.poll(cx, self.direction, before, || {
            watch.leave(self.direction, id, cx.waker())
        })
    }
}

impl<W: Watched> Drop for Wait<W> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.watched.watch().io.forget(id);
        }
    }
}

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
///     readable.await // and ends when there is something.
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Cancel safety
///
/// Dropping it leaves nothing behind.
#[must_use = "futures do nothing unless they are polled"]
pub struct Readable<'a, T>(Wait<&'a Async<T>>);

/// The future of [`Async::writable`].
///
/// ```
/// use polder::{Async, future};
/// use std::net::UdpSocket;
///
/// let socket = Async::new(UdpSocket::bind("127.0.0.1:0")?)?;
/// let room = polder::block_on(future::poll_once(socket.writable()));
/// assert!(matches!(room, Some(Ok(())))); // At once: its buffer is empty.
/// # std::io::Result::Ok(())
/// ```
///
/// # Cancel safety
///
/// Dropping it leaves nothing behind.
#[must_use = "futures do nothing unless they are polled"]
pub struct Writable<'a, T>(Wait<&'a Async<T>>);

/// The future of [`Async::readable_owned`].
///
/// ```
/// use polder::Async;
/// use polder::io::ReadableOwned;
/// use std::net::UdpSocket;
/// use std::sync::Arc;
///
/// // Can be kept beside what it waits for.
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
/// # Cancel safety
///
/// Dropping it leaves nothing behind.
#[must_use = "futures do nothing unless they are polled"]
pub struct ReadableOwned<T>(Wait<Arc<Async<T>>>);

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
/// # Cancel safety
///
/// Dropping it leaves nothing behind.
#[must_use = "futures do nothing unless they are polled"]
pub struct WritableOwned<T>(Wait<Arc<Async<T>>>);

macro_rules! waiting {
    ($($name:literal: $future:ty, <$($parameter:tt),*>;)*) => {$(
        impl<$($parameter),*> Future for $future {
            type Output = io::Result<()>;

            fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.0.poll(cx, None)
            }
        }

        /// Nothing in it is pinned.
        impl<$($parameter),*> Unpin for $future {}

        impl<$($parameter),*> fmt::Debug for $future {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct($name).finish_non_exhaustive()
            }
        }
    )*};
}

waiting! {
    "Readable": Readable<'_, T>, <T>;
    "Writable": Writable<'_, T>, <T>;
    "ReadableOwned": ReadableOwned<T>, <T>;
    "WritableOwned": WritableOwned<T>, <T>;
}

/// Values whose [`Read`] and [`Write`] leave their descriptor where it is, as async-io's trait of this
/// name.
///
/// These traits take `&mut self`, so they could replace the value, and with it a descriptor that is
/// registered. An [`Async`] of what promises not to do that is [`AsyncRead`] and [`AsyncWrite`].
/// What makes no such promise has [`Async::read_with`]; and where `&T` is `Read` or `Write`, as it is
/// for most of the standard library's types, `&Async<T>` is `AsyncRead` or `AsyncWrite` in any case.
///
/// ```
/// # #[cfg(unix)] {
/// use polder::Async;
/// use polder::io::{AsyncWriteExt, IoSafe};
/// use std::io::Write;
/// use std::os::fd::{AsFd, BorrowedFd};
///
/// struct Counted(std::fs::File, usize);
///
/// impl Write for Counted {
///     fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
///         let written = self.0.write(bytes)?;
///         self.1 += written;
///         Ok(written)
///     }
///     # fn flush(&mut self) -> std::io::Result<()> { Ok(()) }
/// }
/// # impl AsFd for Counted {
/// #     fn as_fd(&self) -> BorrowedFd<'_> {
/// #         self.0.as_fd()
/// #     }
/// # }
///
/// // SAFETY: its only method that writes leaves the file where it is.
/// unsafe impl IoSafe for Counted {}
///
/// let (reader, writer) = rustix::pipe::pipe()?;
/// let mut writer = Async::new(Counted(writer.into(), 0))?;
/// polder::block_on(writer.write_all(b"hello"))?; // It is `AsyncWrite`.
/// assert_eq!(writer.get_ref().1, 5);
/// # drop(reader);
/// # }
/// # std::io::Result::Ok(())
/// ```
///
/// # Safety
///
/// No method of `Read`, `Write`, [`Seek`](io::Seek) or [`BufRead`](io::BufRead) closes or replaces the
/// descriptor.
pub unsafe trait IoSafe {}

// SAFETY: through a shared reference, nothing that was borrowed can be replaced.
unsafe impl<T: ?Sized> IoSafe for &T {}
// SAFETY: a file's methods are system calls on its descriptor.
unsafe impl IoSafe for std::fs::File {}
// SAFETY: so are a stream's.
unsafe impl IoSafe for std::net::TcpStream {}
// SAFETY: so are a stream's.
#[cfg(unix)]
unsafe impl IoSafe for std::os::unix::net::UnixStream {}
// SAFETY: so are a pipe's.
unsafe impl IoSafe for std::process::ChildStdin {}
// SAFETY: so are a pipe's.
unsafe impl IoSafe for std::process::ChildStdout {}
// SAFETY: so are a pipe's.
unsafe impl IoSafe for std::process::ChildStderr {}
// SAFETY: it hands on to what it holds, which promises.
unsafe impl<T: IoSafe + ?Sized> IoSafe for Box<T> {}

/// A value may be moved, whoever waits for its descriptor.
impl<T> Unpin for Async<T> {}

impl<T: IoSafe + Read> AsyncRead for Async<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let Async { watch, inner } = &mut *self;
        let wanted = !bytes.is_empty();
        watch.poll_read(cx, wanted, || inner.read(bytes))
    }

    fn poll_read_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let Async { watch, inner } = &mut *self;
        let wanted = has_room(buffers);
        watch.poll_read(cx, wanted, || inner.read_vectored(buffers))
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
        self.watch
            .poll_read(cx, wanted, || (&self.inner).read(bytes))
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let wanted = has_room(buffers);
        self.watch
            .poll_read(cx, wanted, || (&self.inner).read_vectored(buffers))
    }
}

/// Closing flushes, and no more: a socket's peer sees the end of file when the value is dropped, or
/// after its own `shutdown`.
impl<T: IoSafe + Write> AsyncWrite for Async<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Async { watch, inner } = &mut *self;
        watch.poll_operation(cx, Direction::Write, || inner.write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Async { watch, inner } = &mut *self;
        watch.poll_operation(cx, Direction::Write, || inner.write_vectored(buffers))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Async { watch, inner } = &mut *self;
        watch.poll_operation(cx, Direction::Write, || inner.flush())
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

/// Closing flushes, and no more.
impl<T> AsyncWrite for &Async<T>
where
    for<'a> &'a T: Write,
{
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.watch
            .poll_operation(cx, Direction::Write, || (&self.inner).write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.watch.poll_operation(cx, Direction::Write, || {
            (&self.inner).write_vectored(buffers)
        })
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watch
            .poll_operation(cx, Direction::Write, || (&self.inner).flush())
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

#[cfg(unix)]
mod lending {
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

    use super::Async;

    impl<T: AsFd> AsFd for Async<T> {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.inner.as_fd()
        }
    }

    impl<T: AsRawFd> AsRawFd for Async<T> {
        fn as_raw_fd(&self) -> RawFd {
            self.inner.as_raw_fd()
        }
    }
}

#[cfg(windows)]
mod lending {
    use std::os::windows::io::{AsRawSocket, AsSocket, BorrowedSocket, RawSocket};

    use super::Async;

    impl<T: AsSocket> AsSocket for Async<T> {
        fn as_socket(&self) -> BorrowedSocket<'_> {
            self.inner.as_socket()
        }
    }

    impl<T: AsRawSocket> AsRawSocket for Async<T> {
        fn as_raw_socket(&self) -> RawSocket {
            self.inner.as_raw_socket()
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Async<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Async").field(&self.inner).finish()
    }
}
