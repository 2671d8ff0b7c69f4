//! Locks, and panic-safe handling of foreign wakers.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// For statics, which loom's cannot be.
pub(crate) use crate::loom::std::Mutex as StaticMutex;
pub(crate) use crate::loom::{Condvar, Mutex, MutexGuard, atomic};

/// A notification of one thread by others, which is kept until a wait takes it. Not the token of
/// `std::thread::park`, which another executor on that thread may wait for.
#[derive(Default)]
pub(crate) struct ThreadSignal {
    is_notified: Mutex<bool>,
    changed: Condvar,
}

impl ThreadSignal {
    pub(crate) fn notify(&self) {
        *self.is_notified.lock() = true;
        self.changed.notify_one();
    }

    /// Waits until it is notified, for at most `timeout`; may return spuriously. Returns whether it
    /// has been notified since the last wait. The timeout is by the process's clock, and so
    /// arbitrary if an installed kernel has another one.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> bool {
        let mut is_notified = self.is_notified.lock();
        if !*is_notified {
            is_notified = match timeout {
                None => self.changed.wait(is_notified),
                Some(timeout) => self.changed.wait_timeout(is_notified, timeout),
            };
        }
        std::mem::take(&mut *is_notified)
    }

    /// Takes a notification without waiting. Returns whether there was one.
    #[cfg(test)]
    pub(crate) fn take(&self) -> bool {
        std::mem::take(&mut *self.is_notified.lock())
    }
}

/// A clone of a waker that will be stored behind a lock, or the old waker that it replaced. Cloning
/// or dropping a waker may run foreign code, so the waker is cloned before the lock is taken, and
/// dropped after it is released: declare the `Spare` before the guard.
#[derive(Default)]
pub(crate) struct Spare(Option<Waker>);

/// The waker must be stored, but was not cloned: release the lock, call [`Spare::fill`], and retry.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct NeedsClone;

impl Spare {
    #[inline]
    pub(crate) fn clone_of(waker: &Waker) -> Spare {
        Spare(Some(waker.clone()))
    }

    /// Clones `waker`. Must not be called under a lock.
    #[inline]
    pub(crate) fn fill(&mut self, waker: &Waker) {
        self.0 = Some(waker.clone());
    }

    /// Repeats `attempt`, with a clone of `waker`, if it needs one. Cloning and dropping are done
    /// outside the locks that `attempt` takes.
    #[inline]
    pub(crate) fn retry<R>(
        waker: &Waker,
        mut attempt: impl FnMut(&mut Spare) -> Result<R, NeedsClone>,
    ) -> R {
        let mut spare = Spare::default();
        loop {
            match attempt(&mut spare) {
                Ok(result) => return result,
                Err(NeedsClone) => spare.fill(waker),
            }
        }
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Result<Waker, NeedsClone> {
        self.0.take().ok_or(NeedsClone)
    }

    /// Replaces `old` by the clone of `waker`, unless both wake the same task. Keeps `old`, to be
    /// dropped after the lock is released.
    #[inline]
    pub(crate) fn renew(&mut self, old: &mut Waker, waker: &Waker) -> Result<(), NeedsClone> {
        if !old.will_wake(waker) {
            let new = self.take()?;
            self.put(std::mem::replace(old, new));
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn store(
        &mut self,
        slot: &mut Option<Waker>,
        waker: &Waker,
    ) -> Result<(), NeedsClone> {
        match slot {
            Some(old) => self.renew(old, waker),
            None => {
                *slot = Some(self.take()?);
                Ok(())
            }
        }
    }

    #[inline]
    pub(crate) fn put(&mut self, old: Waker) {
        self.0 = Some(old);
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

pub(crate) struct OnDrop<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for OnDrop<F> {
    #[inline]
    fn drop(&mut self) {
        (self.0)();
    }
}

/// State that a task and others share, and the task's waker, which is cloned, woken and dropped
/// outside the lock.
#[derive(Default)]
pub(crate) struct Handoff<S>(Mutex<(S, Option<Waker>)>);

impl<S> Handoff<S> {
    pub(crate) fn new(state: S) -> Handoff<S> {
        Handoff(Mutex::new((state, None)))
    }

    /// Returns the result of `check`, or registers the waker. `check` runs under the lock, so it
    /// must drop no value of the user's.
    pub(crate) fn poll<R>(
        &self,
        cx: &Context<'_>,
        check: impl FnMut(&mut S) -> Option<R>,
    ) -> Poll<R> {
        self.poll_and_note(cx, check, |_| ())
    }

    /// [`poll`](Self::poll), if the state describes the waker: `note` runs under the lock that has
    /// stored it. Not `check`: another waker may be stored then, which stays while the lock is
    /// released for the clone. The clone may be foreign code, which polls too or takes that waker.
    pub(crate) fn poll_and_note<R>(
        &self,
        cx: &Context<'_>,
        mut check: impl FnMut(&mut S) -> Option<R>,
        mut note: impl FnMut(&mut S),
    ) -> Poll<R> {
        Spare::retry(cx.waker(), |spare| {
            let (state, waker) = &mut *self.0.lock();
            if let Some(result) = check(state) {
                return Ok(Poll::Ready(result));
            }
            spare.store(waker, cx.waker())?;
            note(state);
            Ok(Poll::Pending)
        })
    }

    pub(crate) fn update<R>(&self, change: impl FnOnce(&mut S) -> R) -> R {
        change(&mut self.0.lock().0)
    }

    pub(crate) fn update_and_wake<R>(&self, change: impl FnOnce(&mut S) -> R) -> R {
        let (result, waker) = self.update_and_take(change);
        wake_all(waker);
        result
    }

    /// Returns the waker of the task, for the caller to wake.
    pub(crate) fn update_and_take<R>(
        &self,
        change: impl FnOnce(&mut S) -> R,
    ) -> (R, Option<Waker>) {
        let (state, waker) = &mut *self.0.lock();
        (change(state), waker.take())
    }

    /// The lock of the state and the waker, for [`Process::lock`](crate::sys::Process::lock).
    pub(crate) fn mutex(&self) -> &Mutex<(S, Option<Waker>)> {
        &self.0
    }

    pub(crate) fn clear_waker(&self) {
        let waker = self.0.lock().1.take();
        drop_all(waker);
    }
}

/// Wakes all wakers, even if one panics.
#[inline]
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for_all(wakers, Waker::wake);
}

pub(crate) fn drop_all(wakers: impl IntoIterator<Item = Waker>) {
    for_all(wakers, drop);
}

/// A waker is foreign code and may panic, also when it is dropped. This must neither cost the
/// others their wake, nor end the calling thread.
#[inline]
fn for_all(wakers: impl IntoIterator<Item = Waker>, f: fn(Waker)) {
    let mut wakers = wakers.into_iter();
    // Caught outside the loop, which costs nothing while none panics.
    while let Err(panic) = catch_unwind(AssertUnwindSafe(|| wakers.by_ref().for_each(f))) {
        forget(panic);
    }
}

/// Runs a destructor of foreign code, and contains its panic, which the hook has reported.
#[inline]
pub(crate) fn contain(f: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(f)) {
        forget(panic);
    }
}

/// Reports a contained panic to an installed kernel. The hook has printed it, unless the program
/// has resumed a panic by itself.
#[cold]
pub(crate) fn note_contained(panic: &(dyn Any + Send)) {
    if let Some(kernel) = crate::kernel::current() {
        kernel.panic_was_contained(panic);
    }
}

#[cold]
#[inline(never)]
fn forget(panic: Box<dyn Any + Send>) {
    note_contained(&*panic);
    std::mem::forget(panic); // Its destructor may panic too.
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use std::task::Wake;

    struct Idle;

    impl Wake for Idle {
        fn wake(self: std::sync::Arc<Self>) {}
    }

    /// One future is polled with two wakers in turn, while a thread takes what is stored.
    #[test]
    fn a_taken_waker_comes_with_its_own_note() {
        loom::model(|| {
            let wakers = [(), ()].map(|()| Waker::from(std::sync::Arc::new(Idle)));
            let handoff = Arc::new(Handoff::new(0));
            let (shared, known) = (handoff.clone(), wakers.clone());
            let taker = loom::thread::spawn(move || {
                for _ in 0..2 {
                    let (note, waker) = shared.update_and_take(|note| *note);
                    if let Some(waker) = waker {
                        assert!(waker.will_wake(&known[note - 1]), "the note of another one");
                    }
                }
            });
            for (waker, number) in wakers.iter().zip(1..) {
                let cx = Context::from_waker(waker);
                let polled = handoff.poll_and_note(&cx, |_| None::<()>, |note| *note = number);
                assert!(polled.is_pending());
            }
            taker.join().unwrap();
        });
    }
}
