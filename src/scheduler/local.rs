//! The half of a worker that belongs to its thread.
//!
//! [`Local`] has the run queues, the owned tasks and the cooperation budget. Only the worker's
//! thread touches it, so it needs neither atomics nor locks. While the thread drives the worker,
//! its `Local` is the thread's *current* one. The other half, which every thread can reach, is the
//! worker's [`Remote`].

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::Arc;

use super::balance::{Balance, InjectedAction};
use super::budget::Budget;
use super::owned::OwnedTasks;
use super::shared::{Remote, Shared};
use super::{Meta, Runnable};
use crate::reactor::{Driver, replace_driver};

/// Capacity of the run queues, allocated with the worker, so that no wake of a small program
/// allocates. Larger queues grow once.
const QUEUE_CAPACITY: usize = 64;

/// The half of a worker that belongs to its thread.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) shared: Arc<Shared>,
    /// Which of the runtime's workers this is.
    pub(crate) index: usize,
    remote: Arc<Remote>,
    pub(super) is_pool_worker: bool,
    ready: RefCell<VecDeque<Runnable>>,
    /// Tasks that woke themselves while they ran. They run again only after the reactor was polled.
    pub(super) yielded: RefCell<VecDeque<Runnable>>,
    pub(crate) owned: OwnedTasks,
    pub(super) budget: Budget,
    balance: Balance,
    /// The running task has spawned one, and nobody was woken for it: see "Waking" in `shared`.
    pub(super) has_spawned: Cell<bool>,
}

impl Local {
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> Local {
        Local {
            is_pool_worker: index != shared.main_index(),
            remote: shared.remote(index).clone(),
            shared,
            index,
            ready: RefCell::new(VecDeque::with_capacity(QUEUE_CAPACITY)),
            yielded: RefCell::new(VecDeque::with_capacity(QUEUE_CAPACITY)),
            owned: OwnedTasks::default(),
            budget: Budget::new(),
            balance: Balance::new(),
            has_spawned: Cell::new(false),
        }
    }

    #[inline]
    pub(crate) fn remote(&self) -> &Remote {
        &self.remote
    }

    #[inline]
    pub(crate) fn is_pool_worker(&self) -> bool {
        self.is_pool_worker
    }

    /// Whether this is the task's worker.
    #[inline]
    pub(super) fn owns(&self, meta: &Meta) -> bool {
        Arc::ptr_eq(&self.shared, &meta.shared) && self.index == meta.index()
    }

    /// Tells the other workers how many tasks this one owns.
    #[inline]
    pub(super) fn publish_load(&self) {
        self.remote.set_load(self.owned.count());
    }

    // The inject queue.

    /// What this worker does about the inject queue.
    pub(super) fn injected_action(&self) -> InjectedAction {
        match self.is_pool_worker {
            true => self.balance.action(&self.shared, &self.remote),
            false => InjectedAction::None,
        }
    }

    /// Once a turn of a pool worker: takes note of how long it has left tasks to others.
    #[inline]
    pub(super) fn update_deferral(&self) {
        self.balance.update(self.injected_action());
    }

    /// Takes a task from the inject queue, if this worker is to take one. It is the task's worker
    /// from now on.
    #[inline]
    pub(super) fn take_injected(&self) -> Option<Runnable> {
        if self.injected_action() != InjectedAction::Take {
            return None;
        }
        let runnable = self.shared.take_injected()?;
        self.balance.taken();
        runnable.metadata().assign(self.index);
        if self.shared.has_injected() {
            self.shared.wake_one();
        }
        Some(runnable)
    }

    /// The running task has returned. If it has spawned a task that this worker will not run next,
    /// wakes another worker for it.
    #[inline]
    pub(super) fn wake_for_spawned(&self) {
        if self.has_spawned.take() && !self.ready.borrow().is_empty() {
            self.shared.wake_one();
        }
    }

    // The run queues.

    #[inline]
    pub(super) fn push(&self, runnable: Runnable) {
        self.ready.borrow_mut().push_back(runnable);
    }

    #[inline]
    pub(super) fn push_front(&self, runnable: Runnable) {
        self.ready.borrow_mut().push_front(runnable);
    }

    /// The next task to run. The order of tasks is decided here.
    #[inline]
    pub(super) fn pop(&self) -> Option<Runnable> {
        self.ready.borrow_mut().pop_front()
    }

    /// Moves what other threads sent to the end of the run queue.
    #[inline]
    pub(super) fn take_inbox(&self) {
        self.remote.inbox.drain(&mut self.ready.borrow_mut());
    }

    /// The reactor was polled: tasks that yielded are ready again.
    #[inline]
    pub(super) fn release_yielded(&self) {
        let mut yielded = self.yielded.borrow_mut();
        if !yielded.is_empty() {
            let mut ready = self.ready.borrow_mut();
            match ready.is_empty() {
                true => std::mem::swap(&mut *ready, &mut *yielded),
                false => ready.append(&mut yielded),
            }
        }
    }

    #[inline]
    pub(super) fn has_work(&self) -> bool {
        !self.ready.borrow().is_empty() || !self.yielded.borrow().is_empty()
    }

    /// A task begins to run.
    #[inline]
    pub(super) fn renew_budget(&self) {
        self.budget.renew();
    }
}

thread_local! {
    /// `ManuallyDrop`, so that it needs no destructor, and with that no check at each access, and
    /// works in the destructors of other thread-locals too. Nothing leaks: whoever enters leaves.
    pub(super) static CURRENT: RefCell<ManuallyDrop<Option<Rc<Local>>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };
}

/// Calls `f` with the worker that this thread drives; `None` if it drives none.
#[inline]
pub(crate) fn with_current<R>(f: impl FnOnce(&Rc<Local>) -> R) -> Option<R> {
    CURRENT.with(|current| current.borrow().as_ref().map(f))
}

/// The worker that this thread drives.
#[inline]
pub(crate) fn current() -> Option<Rc<Local>> {
    with_current(Rc::clone)
}

/// Makes a worker the current one until it is dropped; then the one before is again.
pub(crate) struct Entered {
    before: Option<Rc<Local>>,
    driver_before: Option<Rc<Driver>>,
}

pub(crate) fn enter(local: &Rc<Local>, driver: &Rc<Driver>) -> Entered {
    // Within a task of a pool worker: that one will not return soon to run what it has spawned.
    with_current(|outer| {
        if outer.is_pool_worker && outer.has_spawned.take() {
            outer.shared.wake_one();
        }
    });
    Entered {
        before: exchange(Some(local.clone())),
        driver_before: replace_driver(Some(driver.clone())),
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        drop(replace_driver(self.driver_before.take()));
        drop(exchange(self.before.take()));
    }
}

fn exchange(current: Option<Rc<Local>>) -> Option<Rc<Local>> {
    let before = CURRENT.with(|slot| slot.replace(ManuallyDrop::new(current)));
    ManuallyDrop::into_inner(before)
}
