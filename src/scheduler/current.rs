//! [`Current`]: the worker that this thread drives, in a thread-local.
//!
//! A worker may be driven within a task of another worker, so [`enter`] remembers the worker that
//! was current before, and [`Entered`] restores it. The reactor has no thread-local: its functions
//! take the thread's [`Driver`] as an argument.
//!
//! **Foreign code.** [`with_local`] borrows the slot: no foreign waker may be cloned, called or
//! dropped within it, since that may enter another worker. Code that handles wakers takes a clone
//! ([`current_local`], [`current_driver`]).

use std::cell::RefCell;
use std::io;
use std::mem::ManuallyDrop;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Wake, Waker};

use super::header::{Header, Running, is_task_waker, with_running};
use super::local::{Local, MainWaker};
use super::shared::Shared;
use crate::reactor::{Driver, Reactor, WakerKind};
use crate::sync::atomic::Ordering;
use crate::sync::wake_all;

pub(super) struct Current {
    pub(super) local: Rc<Local>,
    driver: Rc<Driver>,
}

thread_local! {
    /// `ManuallyDrop`: without a destructor an access needs no check, and works in the destructors
    /// of other thread-locals. Nothing leaks, since dropping an `Entered` undoes its `enter`.
    static CURRENT: RefCell<ManuallyDrop<Option<Current>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };
}

/// Calls `f`, which runs no foreign code (see above), with the worker that this thread drives.
#[inline]
pub(super) fn with_current<R>(f: impl FnOnce(Option<&Current>) -> R) -> R {
    // `with` is not inlined if it is instantiated in another codegen unit; `try_with` is.
    (CURRENT.try_with(|current| f(current.borrow().as_ref()))).expect("it has no destructor")
}

/// [`with_current`] for its `Local`; `None` if this thread drives no worker.
#[inline]
pub(crate) fn with_local<R>(f: impl FnOnce(&Rc<Local>) -> R) -> Option<R> {
    with_current(|current| current.map(|current| f(&current.local)))
}

#[inline]
pub(crate) fn current_local() -> Option<Rc<Local>> {
    with_local(Rc::clone)
}

pub(crate) fn current_worker() -> Option<(Rc<Local>, Rc<Driver>)> {
    with_current(|current| current.map(|current| (current.local.clone(), current.driver.clone())))
}

/// Calls `f` with this thread's worker, or with `None` if it drives none of `shared`.
#[inline]
pub(super) fn with_local_of<R>(shared: &Shared, f: impl FnOnce(Option<&Local>) -> R) -> R {
    with_current(|current| {
        let local = current.map(|current| &*current.local);
        f(local.filter(|local| ptr::eq(&*local.shared, shared)))
    })
}

#[inline]
pub(crate) fn current_driver() -> Option<Rc<Driver>> {
    with_current(|current| current.map(|current| current.driver.clone()))
}

/// Calls `f` with the reactor that this thread's sockets and timers wait on: its worker's, with the
/// driver; or the `background` runtime's, if there is no worker, or it has closed its reactor.
///
/// # Errors
///
/// Of `background`.
#[inline]
pub(crate) fn with_reactor<R>(
    background: impl FnOnce() -> io::Result<&'static Arc<Shared>>,
    f: impl FnOnce(&Arc<Reactor>, Option<&Driver>) -> R,
) -> io::Result<R> {
    // A clone, so that nothing is borrowed while `f` runs: it may clone and drop wakers, which is
    // foreign code.
    match current_driver() {
        Some(driver) if !driver.reactor().is_closed() => Ok(f(driver.reactor(), Some(&driver))),
        _ => Ok(f(&background()?.main().reactor, None)),
    }
}

/// Whether this thread may wait for a source that is registered with `reactor`, and if so, the kind
/// of `waker`. `None` if it drives neither `reactor` nor, for a stealable task, another one of its
/// pool. The running task's own waker stays registered after the event, and is woken under the
/// lock. Any other waker is [`WakerKind::Other`], as is a pinned task's on a pool worker: another
/// worker may deliver the event, and would make a system call under the lock.
#[inline]
pub(crate) fn waker_kind(reactor: &Reactor, waker: &Waker) -> Option<WakerKind> {
    with_current(|current| {
        let Current { local, driver } = current?;
        let is_here = driver.drives(reactor);
        let may_classify = if local.is_pool_worker() {
            // Any worker of the pool may wake a stealable task, so its source stays with any
            // reactor of the pool.
            driver.reactor().shares_pool_with(reactor)
                && with_running(Header::is_stealable).unwrap_or(false)
        } else {
            is_here
        };
        if may_classify {
            Some(Running::get().waker_kind(waker))
        } else {
            is_here.then_some(WakerKind::Other)
        }
    })
}

/// Whether calling and dropping `waker`, on any thread, runs no foreign code: it belongs to the
/// running task, or to the future of `block_on` that this thread polls.
pub(crate) fn only_queues(waker: &Waker) -> bool {
    is_task_waker(waker)
        || with_local(|local| {
            let mains = local.mains.borrow();
            mains.last().is_some_and(|main| main.is_woken_by(waker))
        }) == Some(true)
}

/// Calls each waker that `next` takes out of its place, under no lock: see "Foreign wakers" in
/// `reactor`. If this thread drives a worker, they go through its reactor's queue. Otherwise each
/// stays in its place until it is called.
pub(crate) fn wake_each(next: impl FnMut() -> Option<Waker>) {
    let wakers = std::iter::from_fn(next);
    match current_driver() {
        Some(driver) => driver.reactor().wake_found_together(wakers.collect()),
        None => wake_all(wakers),
    }
}

impl Wake for MainWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    /// Costs no atomic operation if this thread drives the worker and it is awake: then it looks
    /// everywhere before it sleeps.
    #[inline]
    fn wake_by_ref(self: &Arc<Self>) {
        // The flag is written before the worker is unparked: see `reactor::parker`.
        self.woken.store(true, Ordering::Release);
        let parker = self.reactor.parker();
        let is_here = |current: &Current| current.driver.drives(&self.reactor);
        if !(with_current(|current| current.is_some_and(is_here)) && parker.is_awake()) {
            parker.unpark();
        }
    }
}

/// Makes a worker the current one of this thread, until the result is dropped.
pub(super) fn enter(local: &Rc<Local>, driver: &Rc<Driver>) -> Entered {
    // Within a task of a pool worker: that worker will not return soon to run the tasks that the
    // task has spawned.
    with_local(|outer| {
        if outer.has_pending_wake.take() {
            outer.shared.wake_one();
        }
    });
    let (local, driver) = (local.clone(), driver.clone());
    Entered(replace(Some(Current { local, driver })))
}

pub(super) struct Entered(Option<Current>);

impl Entered {
    pub(super) fn outer(&self) -> Option<&Rc<Local>> {
        self.0.as_ref().map(|current| &current.local)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // Not under the borrow: this may drop the last reference to the worker and run foreign
        // code.
        drop(replace(self.0.take()));
    }
}

fn replace(current: Option<Current>) -> Option<Current> {
    let before = CURRENT.try_with(|slot| slot.replace(ManuallyDrop::new(current)));
    ManuallyDrop::into_inner(before.expect("it has no destructor"))
}
