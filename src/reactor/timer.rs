//! A handle to a pending timer, in one of the heaps.
//!
//! Timers migrate with their users: when a handle is polled on another worker, it returns
//! [`TimerState::NotVisible`], and its owner drops it and sets another timer there.
//!
//! The functions of a [`TimerHandle`] take `here`, the driver of this thread's worker. They access
//! that driver's local timers directly, and queue an operation for another driver's.

use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use super::timer_heap::{Key, TimerHeap, TimerOp};
use super::{Driver, Reactor};
use crate::sync::{Spare, drop_all};

/// A pending timer, removed when dropped.
pub(crate) struct TimerHandle {
    key: Key,
    heap: Heap,
}

enum Heap {
    /// In the driver's heap; the reactor is named by id, which avoids reference counting.
    Local(u64),
    Locked(Arc<Reactor>),
    Removed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimerState {
    Fired,
    /// Pending with the driver of this thread.
    Pending,
    /// Pending in a reactor's locked heap, which every thread can access.
    PendingLocked,
    /// Owned by another thread's driver, or by a closed reactor.
    NotVisible,
}

/// Without the reactor, since a user's timer prints this.
impl fmt::Debug for TimerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TimerHandle")
    }
}

impl TimerHandle {
    /// Sets a timer that wakes `waker` at `when`. Returns `None` if the reactor has closed. Always
    /// inlined: an out-of-line call costs 40 instructions per timer.
    #[inline(always)]
    pub(crate) fn insert(
        reactor: &Arc<Reactor>,
        here: Option<&Driver>,
        when: Instant,
        waker: &Waker,
    ) -> Option<TimerHandle> {
        let waker = waker.clone();
        let is_local = |driver: &&Driver| driver.drives(reactor) && reactor.pool.is_none();
        if let Some(driver) = here.filter(is_local) {
            let (key, _) = driver.with_timers(reactor.id, |timers| timers.insert(when, waker))?;
            let heap = Heap::Local(reactor.id);
            return Some(TimerHandle { key, heap });
        }
        let key = reactor.insert_locked_timer(when, waker)?;
        let heap = Heap::Locked(reactor.clone());
        Some(TimerHandle { key, heap })
    }

    /// If the timer is pending, makes it wake `waker`.
    #[inline]
    pub(crate) fn poll(&self, here: Option<&Driver>, waker: &Waker) -> TimerState {
        // Cloning the waker may change the state.
        let is_pending = Spare::retry(waker, |spare| {
            self.with_heap(here, |timers| timers.renew_waker(self.key, waker, spare))
                .transpose()
        });
        match (is_pending, &self.heap) {
            (None, _) => TimerState::NotVisible,
            (Some(false), _) => TimerState::Fired,
            (Some(true), Heap::Locked(_)) => TimerState::PendingLocked,
            (Some(true), _) => TimerState::Pending,
        }
    }

    /// Calls `f` with the timer's heap, if the calling thread can access it.
    #[inline]
    fn with_heap<R>(
        &self,
        here: Option<&Driver>,
        f: impl FnOnce(&mut TimerHeap) -> R,
    ) -> Option<R> {
        match &self.heap {
            Heap::Local(id) => here?.with_timers(*id, f),
            Heap::Locked(reactor) => {
                // Checked under the lock: a closing reactor fires all timers, although none is due.
                let mut timers = reactor.locked_timers.lock();
                (!reactor.is_closed()).then(|| f(&mut timers))
            }
            Heap::Removed => None,
        }
    }

    pub(crate) fn is_locked_in(&self, reactor: &Arc<Reactor>) -> bool {
        matches!(&self.heap, Heap::Locked(other) if Arc::ptr_eq(other, reactor))
    }

    /// Sets another deadline, whether the timer is pending or has fired; with `None` it never fires
    /// until it is reset. The waker stays, but a timer that has fired has none until it is polled.
    #[inline]
    pub(crate) fn reset(&self, here: Option<&Driver>, when: Option<Instant>) {
        match &self.heap {
            Heap::Local(id) => {
                // The result does not matter: the worker is awake.
                let reset = |timers: &mut TimerHeap| timers.reset(self.key, when);
                if here.and_then(|here| here.with_timers(*id, reset)).is_none() {
                    push_timer_op(*id, self.key, TimerOp::Reset(when));
                }
            }
            Heap::Locked(reactor) => reactor.reset_locked_timer(self.key, when),
            Heap::Removed => {}
        }
    }

    /// Dropping the handle does the same without a driver.
    pub(crate) fn remove(&mut self, here: Option<&Driver>) {
        // The waker is dropped outside all locks and borrows.
        match std::mem::replace(&mut self.heap, Heap::Removed) {
            Heap::Local(id) => {
                let remove = |timers: &mut TimerHeap| timers.remove(self.key);
                match here.and_then(|here| here.with_timers(id, remove)) {
                    Some(waker) => drop_all(waker),
                    None => push_timer_op(id, self.key, TimerOp::Remove),
                }
            }
            Heap::Locked(reactor) => drop_all(reactor.remove_locked_timer(self.key)),
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

#[cold]
fn push_timer_op(id: u64, key: Key, op: TimerOp) {
    if let Some(reactor) = Reactor::find(id) {
        reactor.push_timer_op(key, op);
    }
}
