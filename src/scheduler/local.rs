//! A worker's own queues, and how a wake finds its way there.
//!
//! [`Local`] is the half of a worker that is its thread's own: the ready tasks, those that yielded,
//! the list of live tasks, the cooperation budget. While a thread drives a worker, `Local` is its
//! *current* one. The other half, which every thread can reach, is the [`Remote`] in
//! its [`Shared`].

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use slab::Slab;

use super::budget::Budget;
use super::shared::{MAX_GRANT, Remote, Shared};
use super::{Meta, Runnable};
use crate::reactor::{Driver, now, replace_driver};

/// The half of a worker that is its thread's own.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) shared: Arc<Shared>,
    /// Which of the runtime's homes this is.
    pub(crate) index: usize,
    remote: Arc<Remote>,
    /// Whether this worker shares what is spawned with others.
    pub(super) is_pool_worker: bool,
    ready: RefCell<VecDeque<Runnable>>,
    /// Woke themselves while they ran: run again only after the reactor had its turn.
    pub(super) yielded: RefCell<VecDeque<Runnable>>,
    /// Every task that was polled and still has its future, but for one that is in its first poll.
    owned: RefCell<Slab<OwnedTask>>,
    /// Tasks whose home this is.
    owned_tasks: Cell<usize>,
    pub(super) budget: Budget,
    /// How many tasks this worker may start before it looks at the others' loads again.
    allowance: Cell<usize>,
    /// While it leaves tasks to others.
    deferral: Cell<Option<Deferral>>,
    /// Whether the running task has spawned one that nobody was woken for.
    pub(super) has_spawned: Cell<bool>,
    /// Shares of the runtime that tasks gave back.
    shares: RefCell<Vec<Arc<Shared>>>,
}

/// A live task: how to reach it, and where it was spawned.
#[derive(Debug)]
pub(crate) struct OwnedTask {
    pub(crate) waker: Waker,
    pub(crate) site: &'static Location<'static>,
}

/// Room for the ready tasks of a small program, made with the worker, so that no wake of it ever
/// allocates. Larger queues grow once.
const QUEUE_CAPACITY: usize = 64;

/// How long a pool worker leaves tasks to those that have fewer: longer than these need to wake up and to
/// come by, short beside what it would take them to come from a computation.
pub(super) const DEFER_TIMEOUT: Duration = Duration::from_millis(1);

/// Since when a pool worker leaves tasks to others, and how many it starts when it has waited enough.
#[derive(Clone, Copy, Debug)]
struct Deferral {
    since: Instant,
    grant: usize,
}

/// What a worker does about the inject queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum InjectedAction {
    None,
    /// Take a task.
    Take,
    /// Leave the tasks to pool workers that own fewer.
    Defer,
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
            owned: RefCell::default(),
            owned_tasks: Cell::new(0),
            budget: Budget::new(),
            allowance: Cell::new(0),
            deferral: Cell::new(None),
            has_spawned: Cell::new(false),
            shares: RefCell::default(),
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

    /// Whether a task's home is here.
    #[inline]
    pub(super) fn owns(&self, meta: &Meta) -> bool {
        Arc::ptr_eq(&self.shared, &meta.shared) && self.index == meta.index()
    }

    /// How many tasks live here, started ones only.
    #[inline]
    pub(crate) fn owned_tasks(&self) -> usize {
        self.owned_tasks.get()
    }

    fn set_owned_tasks(&self, owned_tasks: usize) {
        self.owned_tasks.set(owned_tasks);
        self.remote().set_load(owned_tasks);
    }

    /// What there is to do about tasks that have not started.
    pub(super) fn injected_action(&self) -> InjectedAction {
        if !self.is_pool_worker || !self.shared.has_injected() || self.shared.is_closing() {
            return InjectedAction::None;
        }
        if self.allowance.get() == 0 {
            match self.shared.allowance(self.index) {
                0 => return InjectedAction::Defer,
                share => self.allowance.set(share),
            }
            self.deferral.set(None);
        }
        InjectedAction::Take
    }

    /// Between two runs: what is left to others that are too long in coming, this worker starts itself,
    /// one task at first and twice as many each time.
    #[inline]
    pub(crate) fn defer_to_others(&self) {
        match self.injected_action() {
            InjectedAction::None => return self.deferral.set(None),
            InjectedAction::Take => return,
            InjectedAction::Defer => {}
        }
        let deferral = match self.deferral.get() {
            Some(deferral) => deferral,
            None => Deferral {
                since: now(),
                grant: 1,
            },
        };
        self.deferral
            .set(Some(match now() < deferral.since + DEFER_TIMEOUT {
                true => deferral,
                false => {
                    self.allowance.set(deferral.grant);
                    Deferral {
                        since: now(),
                        grant: (deferral.grant * 2).min(MAX_GRANT),
                    }
                }
            }));
    }

    /// Takes a task that has not started, if that is this worker's business. Here is its home from now
    /// on.
    #[inline]
    pub(crate) fn take_injected(&self) -> Option<Runnable> {
        if self.injected_action() != InjectedAction::Take {
            return None;
        }
        let runnable = self.shared.take_injected()?;
        self.allowance.set(self.allowance.get() - 1);
        runnable.metadata().assign(self.index);
        if self.shared.has_injected() {
            self.shared.wake_one();
        }
        Some(runnable)
    }

    /// The running task has returned: what it spawned, and this worker will not run next, is told to
    /// others.
    #[inline]
    pub(crate) fn wake_for_spawned(&self) {
        if self.has_spawned.take() && !self.ready.borrow().is_empty() {
            self.shared.wake_one();
        }
    }

    #[inline]
    pub(crate) fn push(&self, runnable: Runnable) {
        self.ready.borrow_mut().push_back(runnable);
    }

    #[inline]
    pub(crate) fn push_front(&self, runnable: Runnable) {
        self.ready.borrow_mut().push_front(runnable);
    }

    /// The next task to run: the one place where the order is decided.
    #[inline]
    pub(crate) fn pop(&self) -> Option<Runnable> {
        self.ready.borrow_mut().pop_front()
    }

    /// Takes over what other threads sent.
    #[inline]
    pub(crate) fn take_inbox(&self) {
        self.remote().inbox.drain(&mut self.ready.borrow_mut());
    }

    /// The reactor had its turn: those that yielded are ready again.
    #[inline]
    pub(crate) fn release_yielded(&self) {
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
    pub(crate) fn has_work(&self) -> bool {
        !self.ready.borrow().is_empty() || !self.yielded.borrow().is_empty()
    }

    /// A task begins to run.
    #[inline]
    pub(crate) fn renew_budget(&self) {
        self.budget.renew();
    }

    /// Where the live tasks were spawned, as far as they were polled.
    pub(crate) fn owned_sites(&self) -> Vec<&'static Location<'static>> {
        self.owned
            .borrow()
            .iter()
            .map(|(_, owned)| owned.site)
            .collect()
    }

    /// The list of live tasks, which is empty afterwards.
    pub(crate) fn take_owned(&self) -> Slab<OwnedTask> {
        self.owned.take()
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

/// A task's share of its runtime. Given back, it is kept for the next task that is spawned there, which so
/// touches no counter that all workers share.
#[derive(Debug)]
pub(crate) struct Share(Option<Arc<Shared>>);

/// How many a worker keeps: enough for tasks that come and go, while shares are all that keeps a runtime.
const SHARES: usize = 64;

impl Deref for Share {
    type Target = Arc<Shared>;

    #[inline]
    fn deref(&self) -> &Arc<Shared> {
        self.0.as_ref().expect("only drop takes it")
    }
}

impl Drop for Share {
    #[inline]
    fn drop(&mut self) {
        let Some(shared) = self.0.take() else { return };
        // What is left is dropped outside.
        let _too_many = with_current(|local| {
            let mut shares = local.shares.borrow_mut();
            if !Arc::ptr_eq(&local.shared, &shared) || shares.len() >= SHARES {
                return Some(shared);
            }
            shares.push(shared);
            None
        });
    }
}

/// Counts a task of `shared` that is made, and gives its share.
pub(crate) fn share_of(shared: &Arc<Shared>) -> Share {
    let here = with_current(|local| {
        Arc::ptr_eq(&local.shared, shared).then(|| (local.index, local.shares.borrow_mut().pop()))
    });
    let (index, share) = match here.flatten() {
        Some((index, share)) => (Some(index), share),
        None => (None, None),
    };
    shared.task_spawned(index);
    Share(Some(share.unwrap_or_else(|| shared.clone())))
}

/// Where a task stands in its worker's list of live tasks: counted from one, so that a place for one
/// that may not be there yet takes one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OwnedKey(NonZeroUsize);

/// Enters a task that was polled for the first time in its worker's list; its entry there.
pub(crate) fn bind(meta: &Meta, waker: &Waker) -> Option<OwnedKey> {
    with_current(|local| {
        debug_assert!(local.owns(meta), "a task runs at remote");
        local.set_owned_tasks(local.owned_tasks.get() + 1);
        let index = local.owned.borrow_mut().insert(OwnedTask {
            waker: waker.clone(),
            site: meta.site,
        });
        OwnedKey(NonZeroUsize::MIN.saturating_add(index))
    })
}

/// A task's future is gone: takes it out of the list, and counts it. One that was polled ends on its
/// home's thread, one that was not may end anywhere.
pub(crate) fn task_ended(meta: &Meta, entry: Option<OwnedKey>) {
    let index = with_current(|local| {
        if let (Some(OwnedKey(entry)), true) = (entry, local.owns(meta)) {
            local.set_owned_tasks(local.owned_tasks.get() - 1);
            // When the worker closes, the list has been taken.
            let removed = local.owned.borrow_mut().try_remove(entry.get() - 1);
            drop(removed);
        }
        Arc::ptr_eq(&local.shared, &meta.shared).then_some(local.index)
    });
    meta.shared.task_ended(index.flatten());
}
