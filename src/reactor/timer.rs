//! A handle to a pending timer, in whichever heap that is.
//!
//! Timers follow their users: polled on another worker, a handle answers
//! [`TimerState::NotVisible`], and its owner drops it and sets another timer there.
//!
//! The functions of a [`TimerHandle`] take `here`, the driver of the worker that this thread
//! drives, if any: on a local timer of that driver they act at once; on another driver's they queue
//! an operation.

use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use super::driver::{Driver, TimerOp};
use super::timer_heap::{Fired, Key, TimerHeap};
use super::{Reactor, registry};
use crate::sync::{Spare, drop_all};

/// A pending timer, removed when dropped.
#[derive(Debug)]
pub(crate) struct TimerHandle {
    key: Key,
    heap: Heap,
}

/// The heap that it is in.
#[derive(Debug)]
enum Heap {
    /// The driver's; the reactor is named by id, which avoids reference counting.
    Local(u64),
    /// The reactor's, of remote timers.
    Remote(Arc<Reactor>),
    Removed,
}

/// The state of a timer, as far as a thread can tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimerState {
    Fired,
    /// Pending with the driver of this thread.
    Pending,
    /// Pending in a reactor's locked heap, which every thread can look at.
    PendingRemote,
    /// In the heap of a driver that is not this thread's, or its reactor has closed.
    NotVisible,
}

impl TimerHandle {
    /// Wakes `waker` at `when`. `None` if the reactor has closed. (Always inlined: as a call it
    /// costs a timer 40 instructions.)
    #[inline(always)]
    pub(crate) fn insert(
        reactor: &Arc<Reactor>,
        here: Option<&Driver>,
        when: Instant,
        waker: &Waker,
    ) -> Option<TimerHandle> {
        let waker = waker.clone();
        let is_local = |driver: &&Driver| driver.drives(reactor) && !reactor.shares_timers;
        if let Some(driver) = here.filter(is_local) {
            let (key, _) = driver.with_timers(reactor.id, |timers| timers.insert(when, waker))?;
            let heap = Heap::Local(reactor.id);
            return Some(TimerHandle { key, heap });
        }
        let key = reactor.insert_remote_timer(when, waker)?;
        let heap = Heap::Remote(reactor.clone());
        Some(TimerHandle { key, heap })
    }

    /// Its state. While it is pending, `waker` is the one to be woken.
    #[inline]
    pub(crate) fn state(&self, here: Option<&Driver>, waker: &Waker) -> TimerState {
        match &self.heap {
            Heap::Local(id) => {
                match with_timers(here, *id, |timers| timers.will_wake(self.key, waker)) {
                    Some(Ok(true)) => TimerState::Pending,
                    Some(Ok(false)) => self.set_waker(here, *id, waker),
                    Some(Err(Fired)) => TimerState::Fired,
                    None => TimerState::NotVisible,
                }
            }
            Heap::Remote(reactor) if reactor.is_closed() => TimerState::NotVisible,
            Heap::Remote(reactor) => {
                let wakes = reactor.remote_timers().will_wake(self.key, waker);
                match wakes {
                    Ok(true) => TimerState::PendingRemote,
                    Ok(false) => self.set_remote_waker(reactor, waker),
                    Err(Fired) => TimerState::Fired,
                }
            }
            Heap::Removed => TimerState::NotVisible,
        }
    }

    /// Replaces the waker of a local timer. Cloning it may have changed everything.
    fn set_waker(&self, here: Option<&Driver>, id: u64, waker: &Waker) -> TimerState {
        let mut spare = Spare::clone_of(waker);
        match with_timers(here, id, |timers| timers.set_waker(self.key, &mut spare)) {
            Some(Ok(())) => TimerState::Pending,
            Some(Err(Fired)) => TimerState::Fired,
            None => TimerState::NotVisible,
        }
    }

    /// Replaces the waker of a remote timer.
    fn set_remote_waker(&self, reactor: &Reactor, waker: &Waker) -> TimerState {
        let mut spare = Spare::clone_of(waker);
        let result = reactor.remote_timers().set_waker(self.key, &mut spare);
        match result {
            Ok(()) => TimerState::PendingRemote,
            Err(Fired) => TimerState::Fired,
        }
    }

    /// Whether it is a remote timer of `reactor`.
    pub(crate) fn is_remote_of(&self, reactor: &Arc<Reactor>) -> bool {
        matches!(&self.heap, Heap::Remote(other) if Arc::ptr_eq(other, reactor))
    }

    /// Gives it another deadline, pending or not. One that had fired has no waker until it is
    /// polled.
    #[inline]
    pub(crate) fn reset(&self, here: Option<&Driver>, when: Instant) {
        match &self.heap {
            Heap::Local(id) => {
                // Whether it is now the earliest does not matter: the worker is awake.
                if with_timers(here, *id, |timers| timers.reset(self.key, when)).is_none() {
                    push_timer_op(*id, self.key, TimerOp::Reset(when));
                }
            }
            Heap::Remote(reactor) => reactor.reset_remote_timer(self.key, when),
            Heap::Removed => {}
        }
    }

    /// Makes it fire never, until it is reset. Keeps the waker.
    pub(crate) fn suspend(&self, here: Option<&Driver>) {
        match &self.heap {
            Heap::Local(id) => {
                if with_timers(here, *id, |timers| timers.suspend(self.key)).is_none() {
                    push_timer_op(*id, self.key, TimerOp::Suspend);
                }
            }
            Heap::Remote(reactor) => reactor.remote_timers().suspend(self.key),
            Heap::Removed => {}
        }
    }

    /// Removes it. Dropping it does the same without a driver.
    #[inline]
    pub(crate) fn remove(&mut self, here: Option<&Driver>) {
        // The waker is dropped outside all locks and borrows.
        match std::mem::replace(&mut self.heap, Heap::Removed) {
            Heap::Local(id) => match with_timers(here, id, |timers| timers.remove(self.key)) {
                Some(waker) => drop_all(waker),
                None => push_timer_op(id, self.key, TimerOp::Remove),
            },
            Heap::Remote(reactor) => drop_all(reactor.remove_remote_timer(self.key)),
            Heap::Removed => {}
        }
    }
}

impl Drop for TimerHandle {
    #[inline]
    fn drop(&mut self) {
        self.remove(None);
    }
}

/// See [`Driver::with_timers`].
#[inline]
fn with_timers<R>(
    here: Option<&Driver>,
    id: u64,
    f: impl FnOnce(&mut TimerHeap) -> R,
) -> Option<R> {
    here?.with_timers(id, f)
}

/// Queues an operation for the driver of the reactor `id`, if that has not closed.
#[cold]
fn push_timer_op(id: u64, key: Key, op: TimerOp) {
    if let Some(reactor) = registry::find(id) {
        reactor.push_timer_op(key, op);
    }
}
