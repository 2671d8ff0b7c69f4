//! The one loop that every operation on a descriptor goes through: budget, attempt, clear,
//! register.
//!
//! ```text
//! loop {
//!     snapshot of the readiness
//!     worth an attempt? ── take one unit of the task's budget, try
//!         succeeded, failed ────────────────────► ready
//!         would block ── used up? ── no ────────► try again
//!                                    yes: it has been cleared; give the unit back
//!     register the waker ── an event came ──────► try again
//!                           registered ─────────► pending
//! }
//! ```
//!
//! Two decisions are left to a [`Trust`]: whether an attempt is worth its system call, and whether
//! an attempt that would block has used up the readiness. The sockets of `net` trust reported
//! events, since only polder operates on them. The descriptor in an [`Async`](super::Async) belongs
//! to the user, who may operate on it unseen: in that case the kernel is asked.
//!
//! **Why no edge is lost.** The snapshot that is cleared was taken before the attempt, or before
//! the kernel was asked. Registering looks again under the lock that protects the count of events:
//! see `reactor/readiness.rs`.
//!
//! **Budget.** An attempt that does not block costs one unit. So does an attempt that is repeated
//! immediately, because it was interrupted or because the descriptor is still ready: a task cannot
//! loop here forever.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use crate::reactor::{Direction, Io, Snapshot, Source, WaiterId};
use crate::runtime::context;
use crate::scheduler::{self, budget};

/// How far an operation trusts the events that were reported for its source.
pub(crate) trait Trust: Copy {
    /// Whether an attempt is worth its system call, given the reported events.
    fn should_try(self, seen: Snapshot) -> bool;

    /// Evaluates an attempt that would block and began after `seen` was taken. Returns whether the
    /// source's readiness is used up; then it has been cleared, and the operation waits for an
    /// event. Otherwise the attempt is repeated.
    fn clear_if_used_up(
        self,
        source: &Source,
        direction: Direction,
        seen: Snapshot,
    ) -> io::Result<bool>;
}

/// Runs one operation until it does not block. `register` registers the task's waker for the next
/// event, and returns `false` if one has come since the readiness was cleared; usually it is
/// [`register_waker`].
#[inline]
pub(crate) fn poll<T>(
    cx: &Context<'_>,
    source: &Source,
    direction: Direction,
    trust: impl Trust,
    register: impl Fn() -> io::Result<bool>,
    mut attempt: impl FnMut(&Source, Snapshot) -> io::Result<T>,
) -> Poll<io::Result<T>> {
    loop {
        let seen = source.snapshot(direction);
        if trust.should_try(seen) {
            ready!(budget::consume(cx));
            match attempt(source, seen) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !trust.clear_if_used_up(source, direction, seen)? {
                        continue;
                    }
                    budget::restore();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => return Poll::Ready(result),
            }
        }
        match register() {
            Ok(true) => return Poll::Pending,
            Ok(false) => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

/// Registers `waker` for the next event; returns `false` if one has come since the readiness was
/// cleared.
///
/// Always inlined, since the read of every request waits.
#[inline(always)]
pub(crate) fn register_waker(
    source: &Arc<Source>,
    direction: Direction,
    id: WaiterId,
    waker: &Waker,
) -> io::Result<bool> {
    match source.register_waker_here(scheduler::own, direction, id, waker) {
        Some(registered) => registered,
        None => move_and_register_waker(source, direction, id, waker),
    }
}

/// The slow path: first registers the source with the reactor of this thread. The source is not
/// registered yet, or is registered with another worker's reactor.
#[cold]
fn move_and_register_waker(
    source: &Arc<Source>,
    direction: Direction,
    id: WaiterId,
    waker: &Waker,
) -> io::Result<bool> {
    context::with_reactor(|reactor, _| source.register_waker(reactor, direction, id, waker))?
}

/// Anything that holds a handle to a source, borrowed or shared.
pub(crate) trait HasIo {
    fn io(&self) -> &Io;
}

impl HasIo for &Io {
    #[inline]
    fn io(&self) -> &Io {
        self
    }
}

/// A future's registration as a waiter for a source: an identity, assigned at its first wait, which
/// is removed when the future is dropped. (An operation that never waits needs none.)
pub(crate) struct WaiterGuard<H: HasIo> {
    handle: H,
    pub(crate) direction: Direction,
    id: Option<WaiterId>,
}

impl<H: HasIo> WaiterGuard<H> {
    pub(crate) fn new(handle: H, direction: Direction) -> WaiterGuard<H> {
        WaiterGuard {
            handle,
            direction,
            id: None,
        }
    }

    /// See [`poll`].
    #[inline]
    pub(crate) fn poll<T>(
        &mut self,
        cx: &Context<'_>,
        trust: impl Trust,
        attempt: impl FnMut(&Source, Snapshot) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let io = self.handle.io();
        let (source, direction) = (io.source(), self.direction);
        let id = Cell::new(self.id);
        let register = || {
            let it = id.get().unwrap_or_else(|| io.new_future_id());
            id.set(Some(it));
            register_waker(source, direction, it, cx.waker())
        };
        let result = poll(cx, source, direction, trust, register, attempt);
        self.id = id.get();
        result
    }
}

impl<H: HasIo> Drop for WaiterGuard<H> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.handle.io().remove_waiter(id);
        }
    }
}

/// An operation as a separate future. Any number of them may wait for one source.
///
/// Cancel safe: dropping it has no effect, apart from those of its attempts so far.
pub(crate) struct Operation<'a, P, F> {
    waiter: WaiterGuard<&'a Io>,
    trust: P,
    attempt: F,
}

impl<'a, P: Trust, F> Operation<'a, P, F> {
    pub(crate) fn new<T>(io: &'a Io, direction: Direction, trust: P, attempt: F) -> Self
    where
        F: FnMut(&Source, Snapshot) -> io::Result<T>,
    {
        Operation {
            waiter: WaiterGuard::new(io, direction),
            trust,
            attempt,
        }
    }
}

/// No field is pinned.
impl<P, F> Unpin for Operation<'_, P, F> {}

impl<T, P: Trust, F: FnMut(&Source, Snapshot) -> io::Result<T>> Future for Operation<'_, P, F> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let Operation {
            waiter,
            trust,
            attempt,
        } = &mut *self;
        waiter.poll(cx, *trust, attempt)
    }
}
