//! The half of a worker that belongs to its thread.
//!
//! [`Local`] has the run queues, the owned tasks and the cooperation budget. Only the worker's
//! thread touches it, so it needs neither atomics nor locks. While the thread drives the worker,
//! its `Local` is the thread's *current* one. The other half, which every thread can reach, is the
//! worker's [`Remote`].

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr;
use std::sync::Arc;
use std::task::{RawWakerVTable, Waker};

use super::balance::{Balance, InjectedAction};
use super::budget::Budget;
use super::owned::OwnedTasks;
use super::shared::{Remote, Shared};
use super::{Meta, Runnable};

/// Capacity of the run queues, allocated with the worker, so that no wake of a small program
/// allocates. Larger queues grow once.
const QUEUE_CAPACITY: usize = 64;

/// What no waker is made of.
const NOBODY: (*const (), *const RawWakerVTable) = (ptr::null(), ptr::null());

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
    /// What the running task's own waker is made of; null if none runs. No other waker is made of
    /// the same as long as the task is there.
    running: Cell<(*const (), *const RawWakerVTable)>,
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
            running: Cell::new(NOBODY),
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
    pub(super) fn is_worker_of(&self, meta: &Meta) -> bool {
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
        if !self.yielded.borrow().is_empty() {
            self.append_yielded();
        }
    }

    fn append_yielded(&self) {
        let mut yielded = self.yielded.borrow_mut();
        let mut ready = self.ready.borrow_mut();
        match ready.is_empty() {
            true => std::mem::swap(&mut *ready, &mut *yielded),
            false => ready.append(&mut yielded),
        }
    }

    #[inline]
    pub(super) fn has_work(&self) -> bool {
        !self.ready.borrow().is_empty() || !self.yielded.borrow().is_empty()
    }

    /// The task runs whose own waker this is.
    #[inline]
    pub(crate) fn set_running(&self, waker: &Waker) {
        self.running.set((waker.data(), waker.vtable()));
    }

    /// The running task has returned.
    #[inline]
    pub(super) fn reset_running(&self) {
        self.running.set(NOBODY);
    }

    /// Whether it is the own waker of the running task.
    #[inline]
    pub(super) fn is_own(&self, waker: &Waker) -> bool {
        let (data, vtable) = self.running.get();
        ptr::eq(data, waker.data()) && ptr::eq(vtable, waker.vtable())
    }

    /// A task begins to run.
    #[inline]
    pub(super) fn renew_budget(&self) {
        self.budget.renew();
    }
}
