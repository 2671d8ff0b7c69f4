//! The one place from which everything that synchronises takes its atomics and locks, so that
//! loom's can stand in for the standard library's (`RUSTFLAGS="--cfg loom"`, see `ci/loom.sh`).

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

#[cfg(loom)]
pub(crate) use loom::sync::atomic;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic;

#[cfg(loom)]
use loom::sync as imp;
#[cfg(not(loom))]
use std::sync as imp;

/// A lock that a panic does not poison.
///
/// What our locks protect is consistent whenever foreign code (a waker, a destructor) could run, since
/// none is called under a lock. So a panic elsewhere is no reason to stop serving others.
#[derive(Default)]
pub(crate) struct Mutex<T>(imp::Mutex<T>);

/// Without a look inside: whoever prints something must not hold a lock that others only try.
impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex { .. }")
    }
}

pub(crate) type MutexGuard<'a, T> = imp::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    /// loom's cannot lie in a static.
    #[cfg(not(loom))]
    pub(crate) const fn new(value: T) -> Mutex<T> {
        Mutex(imp::Mutex::new(value))
    }

    #[cfg(loom)]
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(imp::Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A waker on its way into a place behind a lock, or out of it: cloned before the lock is taken, and
/// dropped after it is given back, since both may run anybody's code. Declare it before the guard, so that
/// it is dropped after it.
#[derive(Default)]
pub(crate) struct Spare(Option<Waker>);

/// Another waker has to be left, and none was cloned: give the lock back, [`Spare::fill`], and come again.
#[derive(Debug)]
pub(crate) struct NeedsClone;

impl Spare {
    #[inline]
    pub(crate) fn clone_of(waker: &Waker) -> Spare {
        Spare(Some(waker.clone()))
    }

    /// Clones `waker`. Under no lock.
    #[inline]
    pub(crate) fn fill(&mut self, waker: &Waker) {
        self.0 = Some(waker.clone());
    }

    /// The clone, for a place that is empty.
    #[inline]
    pub(crate) fn take(&mut self) -> Result<Waker, NeedsClone> {
        self.0.take().ok_or(NeedsClone)
    }

    /// Puts the clone, which is `waker`'s, in the place of `old`, unless both wake the same; `old` is
    /// kept here until the lock is given back.
    #[inline]
    pub(crate) fn renew(&mut self, old: &mut Waker, waker: &Waker) -> Result<(), NeedsClone> {
        if !old.will_wake(waker) {
            let new = self.take()?;
            self.0 = Some(std::mem::replace(old, new));
        }
        Ok(())
    }

    /// Exchanges the clone for what is in a place that may be empty.
    #[inline]
    pub(crate) fn swap(&mut self, place: &mut Option<Waker>) {
        std::mem::swap(&mut self.0, place);
    }
}

impl Drop for Spare {
    #[inline]
    fn drop(&mut self) {
        if let Some(waker) = self.0.take() {
            contain(|| drop(waker));
        }
    }
}

/// Wakes all of them, whatever one of them does.
#[inline]
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for_all(wakers, Waker::wake);
}

/// Drops all of them, whatever one of them does.
pub(crate) fn drop_all(wakers: impl IntoIterator<Item = Waker>) {
    for_all(wakers, drop);
}

/// A waker may be anybody's, and panic, also where it is dropped; that must not cost the others their
/// turn, nor end the thread that serves them.
#[inline]
fn for_all(wakers: impl IntoIterator<Item = Waker>, f: fn(Waker)) {
    let mut wakers = wakers.into_iter();
    // Caught outside the loop, which costs nothing as long as nobody panics.
    while let Err(panic) = catch_unwind(AssertUnwindSafe(|| wakers.by_ref().for_each(f))) {
        std::mem::forget(panic); // Its destructor may panic too; the hook has told of it.
    }
}

/// Runs what may be anybody's destructor: a panic ends here. The hook has told of it.
#[inline]
pub(crate) fn contain(f: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(f)) {
        std::mem::forget(panic); // Its destructor may panic too.
    }
}
