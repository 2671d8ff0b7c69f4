//! [`Operation`]: the one loop of operations on a descriptor that may wait: budget, attempt, clear,
//! wait.
//!
//! ```text
//! loop {
//!     snapshot of the readiness
//!     worth an attempt? ── take one unit of the task's budget, try
//!         succeeded, failed ────────────────────► ready
//!         interrupted ──────────────────────────► try again
//!         would block ── used up? ── no ────────► wake the task, pending
//!                                    no, again and again ─► clear, wait, back off, pending
//!                                    yes: it has been cleared; give the unit back
//!     store the waker ── an event came ─────────► try again
//!                        stored ────────────────► pending
//! }
//! ```
//!
//! The source's kind (`SourceKind` in `reactor/source.rs`) decides whether an attempt is worth its
//! system call, and whether one that would block has used up the readiness. (Waiting until the
//! descriptor in an [`Async`](super::Async) is ready is a shorter loop, in `borrowed.rs`.)
//!
//! **Why no edge is lost.** The snapshot that is cleared was taken before the attempt, or before
//! the kernel was asked. Storing the waker looks again, under the lock that protects the count of
//! events: see `reactor/readiness.rs`.
//!
//! **Budget.** An attempt costs one unit, unless it blocks and then waits for an event. Attempts
//! that block while the descriptor is ready may recur (TLS may wait for the other direction). So
//! other tasks run before the next attempt, also on a plain thread, which has no budget; and after
//! some in a row the operation [backs off](Source::back_off).
//!
//! **Bytes.** A unit pays for 2 KiB; the attempt, which knows the number of bytes, charges for more
//! ([`charged`]).

use std::io;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use crate::reactor::{Added, Blocked, Direction, Io, Snapshot, Source, WaiterId};
use crate::runtime::background;
use crate::scheduler::{self, budget};

/// An operation on a source: an attempt and its direction.
///
/// Awaited, it is a separate future, of which any number may wait for one source;
/// [`poll`](Self::poll) is for the task that holds the handle; [`attempt`](Self::attempt) does not
/// wait.
#[must_use]
pub(crate) struct Operation<'a, F> {
    io: &'a Io,
    direction: Direction,
    attempt: F,
}

/// An attempt. It is passed the readiness from before it, which it may clear if it finds the socket
/// drained: see [`Snapshot::has_sticky_flags`]. (The bound is spelt out where an `impl` needs it to
/// determine `T`.)
pub(crate) trait Attempt<T>: FnMut(Snapshot) -> io::Result<T> {}

impl<T, F: FnMut(Snapshot) -> io::Result<T>> Attempt<T> for F {}

impl<'a, T, F: FnMut(Snapshot) -> io::Result<T>> Operation<'a, F> {
    #[inline]
    pub(crate) fn new(io: &'a Io, direction: Direction, attempt: F) -> Operation<'a, F> {
        Operation {
            io,
            direction,
            attempt,
        }
    }

    #[inline]
    pub(crate) fn poll(self, cx: &Context<'_>) -> Poll<io::Result<T>> {
        let (io, direction) = (self.io, self.direction);
        // The identity is read only for waiting.
        let wait = || add_waiter(io.source(), direction, io.id(), cx.waker());
        poll_loop(wait, io.source(), cx, direction, self.attempt)
    }

    /// Takes the waker, so that the caller's context need not be in memory.
    #[cold]
    #[inline(never)]
    pub(crate) fn poll_outlined(self, waker: &Waker) -> Poll<io::Result<T>> {
        self.poll(&Context::from_waker(waker))
    }

    /// Makes an attempt, and repeats it while it blocks although the descriptor is ready, up to a
    /// limit, or is interrupted. Takes no budget. If it would block below that limit, clears the
    /// readiness seen before it, as the loop does, so that the next wait is for an event.
    ///
    /// It does not depend on events: a socket that was never waited for is not registered.
    pub(crate) fn attempt(mut self) -> io::Result<T> {
        let source = self.io.source();
        loop {
            let seen = source.snapshot(self.direction);
            match (self.attempt)(seen) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if source.clear_if_exhausted(self.direction, seen)? != Blocked::Again {
                        return Err(error);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

impl<'a, T, F: FnMut(Snapshot) -> io::Result<T>> IntoFuture for Operation<'a, F> {
    type Output = io::Result<T>;
    type IntoFuture = Waiting<'a, F>;

    fn into_future(self) -> Waiting<'a, F> {
        Waiting {
            waiter: WaiterGuard::new(self.io, self.direction),
            attempt: self.attempt,
        }
    }
}

/// `wait` is [`add_waiter`] with the task's waker.
#[inline]
pub(crate) fn poll_loop<T>(
    mut wait: impl FnMut() -> io::Result<Added>,
    source: &Arc<Source>,
    cx: &Context<'_>,
    direction: Direction,
    mut attempt: impl Attempt<T>,
) -> Poll<io::Result<T>> {
    loop {
        let seen = source.snapshot(direction);
        let mut blocks_often = false;
        if source.should_try(seen) {
            ready!(budget::consume(cx));
            match attempt(seen) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match source.clear_if_exhausted(direction, seen)? {
                        Blocked::Exhausted => budget::restore(),
                        Blocked::Again => {
                            wake_later(cx.waker());
                            return Poll::Pending;
                        }
                        Blocked::Often => {
                            source.check_end(direction)?;
                            // The readiness is cleared although the descriptor is ready. An event
                            // since `seen` is counted beyond that, and after the back-off the
                            // operation is tried again.
                            source.clear(direction, seen);
                            blocks_often = true;
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => return Poll::Ready(result),
            }
        }
        let waiting = wait()?;
        if blocks_often {
            match waiting {
                Added::Waiting => source.back_off(direction)?,
                Added::AlreadyReady => wake_later(cx.waker()),
            }
            return Poll::Pending;
        }
        if waiting == Added::Waiting {
            return Poll::Pending;
        }
    }
}

#[inline]
pub(crate) fn charged(moved: io::Result<usize>) -> io::Result<usize> {
    if let Ok(moved) = moved {
        budget::charge(moved);
    }
    moved
}

/// Lets the task run again after others. Compiled apart from the reads of every request, which wait
/// for an event.
#[cold]
#[inline(never)]
fn wake_later(waker: &Waker) {
    waker.wake_by_ref();
}

/// Adds a waiter for the next event, unless one has come since the readiness was cleared.
///
/// Always inlined: a server's read of a request nearly always has to wait.
#[inline(always)]
pub(crate) fn add_waiter(
    source: &Arc<Source>,
    direction: Direction,
    id: WaiterId,
    waker: &Waker,
) -> io::Result<Added> {
    match add_waiter_if_registered(source, direction, id, waker) {
        Some(waiting) => waiting,
        None => register_and_add_waiter(source, direction, id, waker),
    }
}

/// Compiled once, and not in each crate that has operations.
#[inline(never)]
fn add_waiter_if_registered(
    source: &Source,
    direction: Direction,
    id: WaiterId,
    waker: &Waker,
) -> Option<io::Result<Added>> {
    source.add_waiter_if_registered(scheduler::waker_kind, direction, id, waker)
}

/// The slow path: first registers the source with this thread's reactor, or moves it there.
#[cold]
fn register_and_add_waiter(
    source: &Arc<Source>,
    direction: Direction,
    id: WaiterId,
    waker: &Waker,
) -> io::Result<Added> {
    scheduler::with_reactor(background::shared, |reactor, _| {
        source.add_waiter(reactor, direction, id, waker)
    })?
}

/// A handle to a source, or a type that has one.
pub(crate) trait HasIo {
    fn io(&self) -> &Io;
}

impl HasIo for Io {
    #[inline]
    fn io(&self) -> &Io {
        self
    }
}

/// A future's registration as a waiter: an identity, from its first wait to the future's drop.
pub(crate) struct WaiterGuard<H: Deref<Target: HasIo>> {
    handle: H,
    direction: Direction,
    id: Option<WaiterId>,
}

impl<H: Deref<Target: HasIo>> WaiterGuard<H> {
    pub(crate) fn new(handle: H, direction: Direction) -> WaiterGuard<H> {
        WaiterGuard {
            handle,
            direction,
            id: None,
        }
    }

    /// The function is [`add_waiter`] with the future's waker.
    #[inline]
    pub(crate) fn parts(
        &mut self,
        waker: &Waker,
    ) -> (&Arc<Source>, Direction, impl FnMut() -> io::Result<Added>) {
        let WaiterGuard {
            handle,
            direction,
            id,
        } = self;
        let (io, direction) = (handle.io(), *direction);
        let wait = move || {
            let id = *id.get_or_insert_with(|| io.new_future_id());
            add_waiter(io.source(), direction, id, waker)
        };
        (io.source(), direction, wait)
    }
}

impl<H: Deref<Target: HasIo>> Drop for WaiterGuard<H> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.handle.io().remove_waiter(id);
        }
    }
}

/// An [`Operation`] as a future.
///
/// Cancel safe.
pub(crate) struct Waiting<'a, F> {
    waiter: WaiterGuard<&'a Io>,
    attempt: F,
}

/// No field is pinned.
impl<F> Unpin for Waiting<'_, F> {}

impl<T, F: FnMut(Snapshot) -> io::Result<T>> Future for Waiting<'_, F> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let Waiting { waiter, attempt } = &mut *self;
        let (source, direction, wait) = waiter.parts(cx.waker());
        poll_loop(wait, source, cx, direction, attempt)
    }
}
