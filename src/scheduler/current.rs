//! Which worker does this thread drive? The one thread-local of the scheduler and the reactor.
//!
//! While a thread drives a worker, [`Current`] holds the two parts of it that only that thread
//! reaches: its [`Local`] (tasks) and its [`Driver`] (events and timers). A worker may be driven
//! within a task of another one, so [`enter`] remembers which was current before, and [`Entered`]
//! restores it.
//!
//! The reactor below has no thread-local: whatever depends on who drives a reactor is given
//! the thread's `Driver` as an argument.
//!
//! **Foreign code.** [`with_local`] borrows the slot: no waker may be cloned, called or dropped
//! within it, since that may enter another worker. Where wakers are involved, take a clone
//! ([`current_local`], [`driver`]).

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::task::Waker;

use super::Local;
use crate::reactor::{Driver, Reactor};

/// A worker, as the thread sees it that drives it.
pub(super) struct Current {
    pub(super) local: Rc<Local>,
    driver: Rc<Driver>,
}

thread_local! {
    /// `ManuallyDrop`: without a destructor it costs no check at each access, and works in the
    /// destructors of other thread-locals too. Nothing leaks, since each `enter` is undone by the
    /// drop of its `Entered`.
    static CURRENT: RefCell<ManuallyDrop<Option<Current>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };
}

/// Calls `f` with the worker that this thread drives, if any. Runs no foreign code: see above.
#[inline]
pub(super) fn with_current<R>(f: impl FnOnce(Option<&Current>) -> R) -> R {
    // `with` is not inlined where it is instantiated in another unit of code; `try_with` is.
    (CURRENT.try_with(|current| f(current.borrow().as_ref()))).expect("it has no destructor")
}

/// Calls `f` with the worker that this thread drives; `None` if it drives none. `f` runs no foreign
/// code: see above.
#[inline]
pub(crate) fn with_local<R>(f: impl FnOnce(&Rc<Local>) -> R) -> Option<R> {
    with_current(|current| current.map(|current| f(&current.local)))
}

/// The worker that this thread drives.
#[inline]
pub(crate) fn current_local() -> Option<Rc<Local>> {
    with_local(Rc::clone)
}

/// The driver of the worker that this thread drives.
#[inline]
pub(crate) fn driver() -> Option<Rc<Driver>> {
    with_current(|current| current.map(|current| current.driver.clone()))
}

/// If this thread drives `reactor`: whether `waker` is the own one of the task that runs here.
#[inline]
pub(crate) fn is_own(reactor: &Reactor, waker: &Waker) -> Option<bool> {
    with_current(|current| match current {
        Some(current) if current.driver.drives(reactor) => Some(current.local.is_own(waker)),
        _ => None,
    })
}

/// Unparks the worker of `reactor`. Costs no atomic operation where this thread drives that worker
/// and it is awake: then it looks everywhere before it sleeps.
#[inline]
pub(super) fn unpark(reactor: &Reactor) {
    let is_awake_here = with_current(|current| {
        current.is_some_and(|current| current.driver.drives(reactor) && reactor.is_awake())
    });
    if !is_awake_here {
        reactor.unpark();
    }
}

/// Makes a worker this thread's current one until the result is dropped.
pub(super) fn enter(local: &Rc<Local>, driver: &Rc<Driver>) -> Entered {
    // Within a task of a pool worker: that worker will not return soon to run what the task has
    // spawned.
    with_local(|outer| {
        if outer.is_pool_worker && outer.has_spawned.take() {
            outer.shared.wake_one();
        }
    });
    Entered {
        before: replace(Some(Current {
            local: local.clone(),
            driver: driver.clone(),
        })),
    }
}

/// Restores the worker that was current before.
pub(super) struct Entered {
    before: Option<Current>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        // The last reference to the worker may go here, and foreign code with it: not under the
        // borrow.
        drop(replace(self.before.take()));
    }
}

fn replace(current: Option<Current>) -> Option<Current> {
    let before = CURRENT.with(|slot| slot.replace(ManuallyDrop::new(current)));
    ManuallyDrop::into_inner(before)
}
