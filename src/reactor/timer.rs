//! A pending timer's place in a heap, whichever that is.
//!
//! Timers follow their users: the owner drops its alarm and sets another one when it is polled on
//! another worker, which [`TimerState::Elsewhere`] tells.

// The registry is a static, which loom's own cannot be.
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::Instant;

use super::Reactor;
use super::driver::{Driver, TimerOp};
use super::timer_heap::{Fired, Key, TimerHeap};
use crate::sync::{Spare, drop_all};

/// A timer's place, given up when dropped.
#[derive(Debug)]
pub(crate) struct TimerHandle {
    key: Key,
    home: Home,
}

#[derive(Debug)]
enum Home {
    /// In the heap of the driver of the reactor so called. Not by reference, since counting those
    /// would cost more than all the rest.
    Own(u64),
    /// In a reactor's heap for visitors.
    Visitor(Arc<Reactor>),
    /// Given up.
    Removed,
}

/// What an alarm looks like from a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimerState {
    /// It has fired.
    Fired,
    /// It is pending, and this thread drives it.
    Pending,
    /// It is pending with a reactor that another thread drives.
    Visiting,
    /// Another thread has it, or nobody any more: whether it has fired cannot be told.
    Elsewhere,
}

/// `here` is the driver that this thread drives, if any: always its own timers', and of others' it leaves
/// word.
impl TimerHandle {
    /// Wakes `waker` at `when`. `None` if the reactor has closed.
    #[inline]
    pub(crate) fn set(
        reactor: &Arc<Reactor>,
        here: Option<&Driver>,
        when: Instant,
        waker: &Waker,
    ) -> Option<TimerHandle> {
        let waker = waker.clone();
        if let Some(driver) = here.filter(|driver| driver.drives(reactor)) {
            let (key, _) = driver.with_own(reactor.id, |own| own.insert(when, waker))?;
            let home = Home::Own(reactor.id);
            return Some(TimerHandle { key, home });
        }
        let key = reactor.insert_visitor(when, waker)?;
        let home = Home::Visitor(reactor.clone());
        Some(TimerHandle { key, home })
    }

    /// How it stands. While it is pending, `waker` is the one to be woken.
    #[inline]
    pub(crate) fn state(&self, here: Option<&Driver>, waker: &Waker) -> TimerState {
        match &self.home {
            Home::Own(id) => match with_own(here, *id, |own| own.wakes(self.key, waker)) {
                Some(Ok(true)) => TimerState::Pending,
                Some(Ok(false)) => self.renew(here, *id, waker),
                Some(Err(Fired)) => TimerState::Fired,
                None => TimerState::Elsewhere,
            },
            Home::Visitor(reactor) if reactor.is_closed() => TimerState::Elsewhere,
            Home::Visitor(reactor) => {
                let wakes = reactor.visitors().wakes(self.key, waker);
                match wakes {
                    Ok(true) => TimerState::Visiting,
                    Ok(false) => self.renew_visitor(reactor, waker),
                    Err(Fired) => TimerState::Fired,
                }
            }
            Home::Removed => TimerState::Elsewhere,
        }
    }

    /// Another waker for an own one. What cloning it did may have changed everything.
    fn renew(&self, here: Option<&Driver>, id: u64, waker: &Waker) -> TimerState {
        let mut spare = Spare::clone_of(waker);
        match with_own(here, id, |own| own.set_waker(self.key, &mut spare)) {
            Some(Ok(())) => TimerState::Pending,
            Some(Err(Fired)) => TimerState::Fired,
            None => TimerState::Elsewhere,
        }
    }

    /// The same for a visitor.
    fn renew_visitor(&self, reactor: &Reactor, waker: &Waker) -> TimerState {
        let mut spare = Spare::clone_of(waker);
        let result = reactor.visitors().set_waker(self.key, &mut spare);
        match result {
            Ok(()) => TimerState::Visiting,
            Err(Fired) => TimerState::Fired,
        }
    }

    /// Whether it visits `reactor`.
    pub(crate) fn visits(&self, reactor: &Arc<Reactor>) -> bool {
        matches!(&self.home, Home::Visitor(home) if Arc::ptr_eq(home, reactor))
    }

    /// Moves it, pending or not. One that had fired has no waker until somebody looks.
    #[inline]
    pub(crate) fn reset(&self, here: Option<&Driver>, when: Instant) {
        match &self.home {
            Home::Own(id) => {
                // Whether it is now the earliest does not matter: the worker is awake.
                if with_own(here, *id, |own| own.reset(self.key, when)).is_none() {
                    send_op(*id, self.key, TimerOp::Reset(when));
                }
            }
            Home::Visitor(reactor) => reactor.reset_visitor(self.key, when),
            Home::Removed => {}
        }
    }

    /// Makes it fire never, until it is reset. Whoever is to be woken stays.
    pub(crate) fn suspend(&self, here: Option<&Driver>) {
        match &self.home {
            Home::Own(id) => {
                if with_own(here, *id, |own| own.suspend(self.key)).is_none() {
                    send_op(*id, self.key, TimerOp::Suspend);
                }
            }
            Home::Visitor(reactor) => reactor.visitors().suspend(self.key),
            Home::Removed => {}
        }
    }

    /// Gives up its place. Its drop does the same, as from elsewhere.
    #[inline]
    pub(crate) fn remove(&mut self, here: Option<&Driver>) {
        // The waker is dropped outside all locks and borrows.
        match std::mem::replace(&mut self.home, Home::Removed) {
            Home::Own(id) => match with_own(here, id, |own| own.remove(self.key)) {
                Some(waker) => drop_all(waker),
                None => send_op(id, self.key, TimerOp::Remove),
            },
            Home::Visitor(reactor) => drop_all(reactor.remove_visitor(self.key)),
            Home::Removed => {}
        }
    }
}

impl Drop for TimerHandle {
    #[inline]
    fn drop(&mut self) {
        self.remove(None);
    }
}

/// See [`Driver::with_own`].
#[inline]
fn with_own<R>(here: Option<&Driver>, id: u64, f: impl FnOnce(&mut TimerHeap) -> R) -> Option<R> {
    here?.with_own(id, f)
}

/// Leaves word for the thread that drives the reactor called `id`, if it has not closed.
#[cold]
fn send_op(id: u64, key: Key, stray: TimerOp) {
    let reactor = {
        let registry = registry();
        let place = registry.iter().position(|(other, _)| *other == id);
        place.and_then(|place| registry[place].1.upgrade())
    };
    if let Some(reactor) = reactor {
        reactor.send_op(key, stray);
    }
}

/// The reactors that have not closed, by what they are called. There are about as many as threads that
/// drive one, and they are asked for seldom.
static REGISTRY: Mutex<Vec<(u64, Weak<Reactor>)>> = Mutex::new(Vec::new());

fn registry() -> MutexGuard<'static, Vec<(u64, Weak<Reactor>)>> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a new reactor is called: no other one ever was or will be.
pub(super) fn new_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// From here on word can be left for it.
pub(super) fn register(reactor: &Arc<Reactor>) {
    registry().push((reactor.id, Arc::downgrade(reactor)));
}

/// No longer.
pub(super) fn deregister(id: u64) {
    registry().retain(|(other, _)| *other != id);
}
