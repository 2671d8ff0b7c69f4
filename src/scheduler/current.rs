//! The worker that this thread drives, and the task that runs on it: the thread-locals of the
//! scheduler and the reactor.
//!
//! While a thread drives a worker, [`Current`] holds the two parts of it that only that thread
//! reaches: its [`Local`] (tasks) and its [`Driver`] (events and timers). A worker may be driven
//! within a task of another worker, so [`enter`] remembers which worker was current before, and
//! [`Entered`] restores it.
//!
//! The reactor below has no thread-local: functions that depend on the driving thread take the
//! thread's `Driver` as an argument.
//!
//! **The running task** is in a separate thread-local, a [`Running`]: each poll of a task writes
//! it, without access to the worker. A drive within a task resets it, and restores it at its end.
//!
//! **Foreign code.** [`with_local`] borrows the slot: no foreign waker may be cloned, called or
//! dropped within it, since that may enter another worker. Code that handles wakers takes a clone
//! ([`current_local`], [`driver`]).

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{RawWakerVTable, Waker};

use super::{Header, Id, Local, Shared};
use crate::reactor::{Driver, Reactor, WakerKind};
use crate::sync::wake_all;

/// A worker, from the point of view of the thread that drives it.
pub(super) struct Current {
    pub(super) local: Rc<Local>,
    driver: Rc<Driver>,
}

thread_local! {
    /// `ManuallyDrop`: without a destructor it needs no check at each access, and works in the
    /// destructors of other thread-locals too. Nothing leaks, since dropping an `Entered` undoes
    /// its `enter`.
    static CURRENT: RefCell<ManuallyDrop<Option<Current>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };

    /// Set by each task future that is polled or dropped.
    static RUNNING: Cell<Running> = const { Cell::new(Running::NOBODY) };

    /// The call of `unblock` that this thread makes, or the task whose output it drops, if it runs
    /// no task.
    static CALL: Cell<Option<Id>> = const { Cell::new(None) };
}

/// The data and the vtable of a waker.
type WakerParts = (*const (), *const RawWakerVTable);

fn parts(waker: &Waker) -> WakerParts {
    (waker.data(), ptr::from_ref(waker.vtable()))
}

/// The task that runs on a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    /// The parts of the own waker. No other waker has the same parts as long as the task exists.
    waker: WakerParts,
    /// The parts of the waker that it is polled with, if that is a different one: see `spans`.
    #[cfg(feature = "tracing")]
    wrapper: WakerParts,
    /// Null if no task runs.
    header: *const Header,
}

impl Running {
    const NOBODY: Running = Running {
        waker: (ptr::null(), ptr::null()),
        #[cfg(feature = "tracing")]
        wrapper: (ptr::null(), ptr::null()),
        header: ptr::null(),
    };

    #[inline]
    pub(super) fn get() -> Running {
        RUNNING.try_with(Cell::get).expect("it has no destructor")
    }

    #[inline]
    pub(super) fn set(self) {
        (RUNNING.try_with(|running| running.set(self))).expect("it has no destructor");
    }

    /// Records that no task runs.
    #[inline]
    pub(super) fn reset() {
        Running::NOBODY.set();
    }

    /// The task with this metadata, so far without a waker.
    #[inline]
    fn of(header: &Header) -> Running {
        let mut running = Running::NOBODY;
        running.header = header;
        running
    }

    /// Whether `waker` is the task's own waker.
    #[inline]
    fn waker_kind(self, waker: &Waker) -> WakerKind {
        let is = |(data, vtable): WakerParts| {
            ptr::eq(data, waker.data()) && ptr::eq(vtable, waker.vtable())
        };
        if is(self.waker) {
            return WakerKind::Task;
        }
        #[cfg(feature = "tracing")]
        if is(self.wrapper) {
            return WakerKind::TracedTask;
        }
        WakerKind::Foreign
    }
}

/// Sets the running task, by its own waker and its metadata: until the runnable's `run` has
/// returned, or the task's future is dropped.
#[inline]
pub(crate) fn set_running(waker: &Waker, header: &Header) {
    let mut running = Running::of(header);
    running.waker = parts(waker);
    running.set();
}

/// Calls `drop_future`, which drops the future of a task and does not unwind, with that task as the
/// running one, so that destructors see its id. Afterwards the task no longer counts as running:
/// its memory may be freed before `Runnable::run` returns, which wakes the awaiting side.
#[inline]
pub(crate) fn drop_within(header: &Header, drop_future: impl FnOnce()) {
    let outer = Running::get();
    let is_polled_here = ptr::eq(outer.header, header);
    if !is_polled_here {
        // The task is cancelled, perhaps within a poll of another task. It has no own waker here,
        // since it is not being polled.
        Running::of(header).set();
    }
    drop_future();
    if is_polled_here {
        Running::reset();
    } else {
        outer.set();
    }
}

/// Records that the running task is about to be polled with this waker: its own, or that of its
/// span, for which a clone or a drop only changes a count.
#[cfg(feature = "tracing")]
#[inline]
pub(crate) fn set_wrapper(waker: &Waker) {
    let mut running = Running::get();
    running.wrapper = parts(waker);
    running.set();
}

/// Calls `f` with the task that runs on this thread, if any. `f` runs no foreign code.
#[inline]
pub(crate) fn with_running<R>(f: impl FnOnce(&Header) -> R) -> Option<R> {
    let header = Running::get().header;
    // SAFETY: null, or the metadata of a task whose `TaskFuture` is being polled (`set_running`) or
    // dropped (`drop_within`). The latter resets it before that is gone, also within
    // `Runnable::run`; and the metadata is in the same allocation as that, and is dropped after
    // it.
    let header = unsafe { header.as_ref() };
    header.map(f)
}

/// The id of the task that runs on this thread, or of the call of `unblock` on it, or of the task
/// whose output it drops.
pub(crate) fn running_id() -> Option<Id> {
    with_running(|header| header.id).or_else(|| CALL.get())
}

/// Calls `f`, which does not unwind, as the call of `unblock` with this id, or as the task with
/// this id, which has ended. This may be within another task.
pub(crate) fn within<R>(id: Id, f: impl FnOnce() -> R) -> R {
    let outer = (Running::get(), CALL.replace(Some(id)));
    Running::reset();
    let result = f();
    CALL.set(outer.1);
    outer.0.set();
    result
}

/// Calls `f` with the worker that this thread drives, if any. Runs no foreign code: see above.
#[inline]
pub(super) fn with_current<R>(f: impl FnOnce(Option<&Current>) -> R) -> R {
    // `with` is not inlined if it is instantiated in another codegen unit; `try_with` is.
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

/// The worker that this thread drives.
pub(crate) fn current_worker() -> Option<(Rc<Local>, Rc<Driver>)> {
    with_current(|current| current.map(|current| (current.local.clone(), current.driver.clone())))
}

/// Calls `f` with the worker that this thread drives, if it is one of `shared`. `f` runs no foreign
/// code: see above.
pub(crate) fn with_worker_of<R>(
    shared: &Arc<Shared>,
    f: impl FnOnce(&Local, &Driver) -> R,
) -> Option<R> {
    with_current(|current| {
        let current = current.filter(|current| Arc::ptr_eq(&current.local.shared, shared))?;
        Some(f(&current.local, &current.driver))
    })
}

/// Whether this thread drives a worker of `shared`.
pub(super) fn is_of(shared: &Shared) -> bool {
    with_local(|local| std::ptr::eq(&*local.shared, shared)).unwrap_or(false)
}

/// The driver of the worker that this thread drives.
#[inline]
pub(crate) fn driver() -> Option<Rc<Driver>> {
    with_current(|current| current.map(|current| current.driver.clone()))
}

/// Returns whether `waker`, if it waits for a source of `reactor`, is the running task's own, which
/// stays in place after the event, and is woken under the lock. [`WakerKind::Foreign`] for any
/// other waker, and for that of a pinned task on a pool worker: another worker may deliver the
/// event, and the wake would notify, which is a system call. `None` if the source has to be
/// registered with the reactor of this thread first: this thread does not drive `reactor`, nor, for
/// a stealable task, another one of its pool.
#[inline]
pub(crate) fn waker_kind(reactor: &Reactor, waker: &Waker) -> Option<WakerKind> {
    with_current(|current| {
        let Current { local, driver } = current?;
        let is_here = driver.drives(reactor);
        let may_keep = if local.is_pool_worker() {
            // A stealable task may be woken by any worker of its pool, so a source that waits with
            // another one of its reactors stays there.
            driver.reactor().shares_pool_with(reactor)
                && with_running(Header::is_stealable).unwrap_or(false)
        } else {
            is_here
        };
        if may_keep {
            Some(Running::get().waker_kind(waker))
        } else {
            is_here.then_some(WakerKind::Foreign)
        }
    })
}

/// Whether `waker` is the running task's own: then it only queues the task, on any thread.
#[inline]
pub(crate) fn is_task_waker(waker: &Waker) -> bool {
    Running::get().waker_kind(waker) == WakerKind::Task
}

/// Whether calling and dropping `waker` runs no foreign code, on any thread: it is the running
/// task's own, or that of the future of `block_on` that this thread polls.
pub(crate) fn only_queues(waker: &Waker) -> bool {
    is_task_waker(waker)
        || with_local(|local| {
            let mains = local.mains.borrow();
            mains.last().is_some_and(|main| main.is_woken_by(waker))
        }) == Some(true)
}

/// Calls each waker that `next` takes out of its place, under no lock: see "Foreign wakers" in
/// `reactor::parking`. If this thread drives a worker, they are in the queue of its reactor, where
/// a nested turn or another worker finds them. If it drives none, each stays in its place
/// until it is called.
pub(crate) fn wake_each(next: impl FnMut() -> Option<Waker>) {
    let wakers = std::iter::from_fn(next);
    match driver() {
        Some(driver) => driver.reactor().call(wakers.collect()),
        None => wake_all(wakers),
    }
}

/// Unparks the worker of `reactor`. Costs no atomic operation if this thread drives that worker and
/// it is awake: then it looks everywhere before it sleeps.
#[inline]
pub(super) fn unpark(reactor: &Reactor) {
    let is_awake_here = with_current(|current| {
        current.is_some_and(|current| current.driver.drives(reactor) && reactor.parker().is_awake())
    });
    if !is_awake_here {
        reactor.unpark();
    }
}

/// Makes a worker the current one of this thread, until the result is dropped.
pub(super) fn enter(local: &Rc<Local>, driver: &Rc<Driver>) -> Entered {
    // If this is within a task of a pool worker, that worker will not return soon to run the tasks
    // that the task has spawned.
    with_local(|outer| {
        if outer.has_pending_wake.take() {
            outer.shared.wake_one();
        }
    });
    let (local, driver) = (local.clone(), driver.clone());
    Entered(replace(Some(Current { local, driver })))
}

/// Guard: restores the worker that was current before.
pub(super) struct Entered(Option<Current>);

impl Entered {
    /// The worker that was current before.
    pub(super) fn outer(&self) -> Option<&Rc<Local>> {
        self.0.as_ref().map(|current| &current.local)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // This may drop the last reference to the worker, and run foreign code: so not under the
        // borrow.
        drop(replace(self.0.take()));
    }
}

fn replace(current: Option<Current>) -> Option<Current> {
    let before = CURRENT.with(|slot| slot.replace(ManuallyDrop::new(current)));
    ManuallyDrop::into_inner(before)
}
