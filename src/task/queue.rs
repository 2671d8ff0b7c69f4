//! The two halves of a worker's queue, and how a wake finds its way to it.
//!
//! * [`Home`] is the half that every thread can reach: the inbox, the number of live tasks, and the
//!   reactor through which the worker is woken.
//! * [`Local`] is the half that is the worker's own: the ready tasks, those that yielded, the list
//!   of live tasks, the cooperation budget. While a thread drives a worker, `Local` is its *current*
//!   one.
//!
//! **A wake** ([`schedule`]) whose home is current goes straight to `Local`'s queue: no atomic, no
//! system call. From anywhere else it goes to the inbox, and the worker is unparked; the head of
//! `reactor::parking` says why it is not lost. A thread that owns a worker without driving it (a
//! foreign loop between two turns) counts as anywhere else.
//!
//! **Closing.** `live` counts the tasks whose futures exist. A spawner counts its task, and *then*
//! looks whether the home is closing; the closing worker marks that, and *then* waits for `live`
//! to become zero; both are sequentially consistent. So either the spawner sees the mark and drops
//! its future itself, or the worker sees the task and waits for it to arrive in the inbox. It does
//! not look at whether queues are empty: a foreign thread may be about to push.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use async_task::ScheduleInfo;
use concurrent_queue::{ConcurrentQueue, PushError};
use slab::Slab;

use super::{Meta, Runnable};
use crate::reactor::{Reactor, replace_driven};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The half of a worker that every thread can reach.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) reactor: Arc<Reactor>,
    inbox: Inbox,
    live: AtomicUsize,
    closing: AtomicBool,
}

impl Home {
    pub(crate) fn new(reactor: Reactor) -> Home {
        Home {
            reactor: Arc::new(reactor),
            inbox: Inbox::new(),
            live: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
        }
    }

    /// How many tasks have a future.
    #[inline]
    pub(crate) fn live_tasks(&self) -> usize {
        self.live.load(Ordering::SeqCst)
    }

    pub(super) fn count_task(&self) {
        self.live.fetch_add(1, Ordering::SeqCst);
    }

    /// A task's future is gone.
    pub(super) fn uncount_task(self: &Arc<Self>, place: Option<usize>) {
        if let Some(place) = place {
            // On the home's thread, like every drop of a future that was polled. When the worker
            // closes, the list has been taken.
            with_current(|local| {
                if Arc::ptr_eq(&local.home, self) {
                    let removed = local.live.borrow_mut().try_remove(place);
                    drop(removed);
                }
            });
        }
        self.live.fetch_sub(1, Ordering::SeqCst);
        if self.is_closing() {
            self.reactor.unpark();
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// From here on tasks that are spawned are cancelled at once.
    pub(crate) fn start_closing(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }

    /// Hands a new task's runnable to the worker; dropped, and so cancelled, if that is closing.
    pub(crate) fn start(&self, runnable: Runnable) {
        match self.is_closing() {
            true => drop(runnable),
            false => runnable.schedule(),
        }
    }

    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        !self.inbox.is_empty()
    }
}

/// Wakes and tasks from other threads.
///
/// A ring that is made once, so that a wake allocates nothing, and a list for when it is full. Once
/// something is in the list, everything goes there until the worker has emptied it, so that what
/// one thread sends stays in order.
#[derive(Debug)]
struct Inbox {
    ring: ConcurrentQueue<Runnable>,
    list: Mutex<VecDeque<Runnable>>,
    listed: AtomicUsize,
}

/// Wakes from elsewhere that fit between two looks of the worker without a lock. 4 KiB a worker.
const RING: usize = 256;

impl Inbox {
    fn new() -> Inbox {
        Inbox {
            ring: ConcurrentQueue::bounded(RING),
            list: Mutex::new(VecDeque::new()),
            listed: AtomicUsize::new(0),
        }
    }

    fn push(&self, runnable: Runnable) {
        let mut runnable = runnable;
        if self.listed.load(Ordering::Relaxed) == 0 {
            match self.ring.push(runnable) {
                Ok(()) => return,
                Err(PushError::Full(back) | PushError::Closed(back)) => runnable = back,
            }
        }
        let mut list = self.list.lock();
        list.push_back(runnable);
        self.listed.store(list.len(), Ordering::Release);
    }

    /// Read after the fence in `Parking::park`, and written before the one in `unpark`.
    #[inline]
    fn is_empty(&self) -> bool {
        self.ring.is_empty() && self.listed.load(Ordering::Relaxed) == 0
    }

    #[inline]
    fn drain(&self, into: &mut VecDeque<Runnable>) {
        if self.is_empty() {
            return;
        }
        into.extend(self.ring.try_iter().take(RING));
        if self.listed.load(Ordering::Acquire) > 0 {
            let mut list = self.list.lock();
            // What is in the ring by now came before what is in the list.
            into.extend(self.ring.try_iter().take(RING));
            into.append(&mut list);
            self.listed.store(0, Ordering::Release);
        }
    }
}

/// The half of a worker that is its thread's own.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) home: Arc<Home>,
    ready: RefCell<VecDeque<Runnable>>,
    /// Woke themselves while they ran: run again only after the reactor had its turn.
    yielded: RefCell<VecDeque<Runnable>>,
    /// Every task that was polled and still has its future.
    live: RefCell<Slab<Live>>,
    /// What the running task may still do; below zero, how often it was refused.
    budget: Cell<i32>,
}

/// Operations of one task that may succeed in one poll. Enough to drain what a turn brings, few
/// enough that others wait for microseconds: 128 receives of 64 KiB are about a millisecond.
const BUDGET: i32 = 128;

/// A live task: how to reach it, and where it was spawned.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) waker: Waker,
    pub(crate) site: &'static Location<'static>,
}

/// Room for the ready tasks of a small program, made with the worker, so that no wake of it ever
/// allocates. Larger queues grow once.
const QUEUE: usize = 64;

impl Local {
    pub(crate) fn new(home: Arc<Home>) -> Local {
        Local {
            home,
            ready: RefCell::new(VecDeque::with_capacity(QUEUE)),
            yielded: RefCell::new(VecDeque::with_capacity(QUEUE)),
            live: RefCell::default(),
            budget: Cell::new(BUDGET),
        }
    }

    #[inline]
    pub(crate) fn push(&self, runnable: Runnable) {
        self.ready.borrow_mut().push_back(runnable);
    }

    /// The next task to run: the one place where the order is decided.
    #[inline]
    pub(crate) fn pop(&self) -> Option<Runnable> {
        self.ready.borrow_mut().pop_front()
    }

    /// Takes over what other threads sent.
    #[inline]
    pub(crate) fn take_mail(&self) {
        self.home.inbox.drain(&mut self.ready.borrow_mut());
    }

    /// The reactor had its turn: those that yielded are ready again.
    #[inline]
    pub(crate) fn release_yielded(&self) {
        let mut yielded = self.yielded.borrow_mut();
        if !yielded.is_empty() {
            self.ready.borrow_mut().append(&mut yielded);
        }
    }

    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.ready.borrow().is_empty() || !self.yielded.borrow().is_empty()
    }

    /// A task begins to run.
    #[inline]
    pub(crate) fn renew_budget(&self) {
        self.budget.set(BUDGET);
    }

    /// Where the live tasks were spawned, as far as they were polled.
    pub(crate) fn live_sites(&self) -> Vec<&'static Location<'static>> {
        self.live
            .borrow()
            .iter()
            .map(|(_, live)| live.site)
            .collect()
    }

    /// The list of live tasks, which is empty afterwards.
    pub(crate) fn take_live(&self) -> Slab<Live> {
        self.live.take()
    }
}

thread_local! {
    /// `ManuallyDrop`, so that it needs no destructor, and with that no check at each access, and
    /// works in the destructors of other thread-locals too. Nothing leaks: whoever enters leaves.
    static CURRENT: RefCell<ManuallyDrop<Option<Rc<Local>>>> =
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

#[inline]
pub(crate) fn is_current(home: &Arc<Home>) -> bool {
    home.reactor.is_driven_here()
}

/// Makes a worker the current one until it is dropped; then the one before is again.
#[derive(Debug)]
pub(crate) struct Entered {
    before: Option<Rc<Local>>,
    /// The address of its reactor.
    driven: *const Reactor,
}

pub(crate) fn enter(local: &Rc<Local>) -> Entered {
    Entered {
        before: exchange(Some(local.clone())),
        driven: replace_driven(Arc::as_ptr(&local.home.reactor)),
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        replace_driven(self.driven);
        drop(exchange(self.before.take()));
    }
}

fn exchange(current: Option<Rc<Local>>) -> Option<Rc<Local>> {
    let before = CURRENT.with(|slot| slot.replace(ManuallyDrop::new(current)));
    ManuallyDrop::into_inner(before)
}

/// How every wake, from any thread, gets its task run. `async-task` calls it at most once until
/// the task has run.
pub(super) fn schedule(runnable: Runnable, info: ScheduleInfo) {
    let home = &runnable.metadata().home;
    if is_current(home) {
        with_current(|local| match info.woken_while_running {
            true => local.yielded.borrow_mut().push_back(runnable),
            false => local.push(runnable),
        });
        return;
    }
    // Once it is in the inbox the task may run and be gone.
    let home = home.clone();
    home.inbox.push(runnable);
    home.reactor.unpark();
}

/// Enters a task that is polled for the first time in its worker's list; its place there.
pub(super) fn adopt(meta: &Meta, waker: &Waker) -> Option<usize> {
    with_current(|local| {
        debug_assert!(Arc::ptr_eq(&local.home, &meta.home), "a task runs at home");
        local.live.borrow_mut().insert(Live {
            waker: waker.clone(),
            site: meta.site,
        })
    })
}

/// To be called before an operation that can succeed at once; [`refund`] if it does not. `Pending`
/// when the running task has had its share: it is woken, and comes back after the others.
///
/// A task that goes on all the same, refused again and again, holds an executor of another kind that
/// will not return before its future is done: after as many refusals as its share it gets another.
#[inline]
pub(crate) fn charge(cx: &Context<'_>) -> Poll<()> {
    let refused = with_current(|local| {
        let left = local.budget.get();
        local.budget.set(match left > -BUDGET {
            true => left - 1,
            false => BUDGET,
        });
        left <= 0 && left > -BUDGET
    });
    match refused {
        Some(true) => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        _ => Poll::Ready(()),
    }
}

#[inline]
pub(crate) fn refund() {
    with_current(|local| {
        local
            .budget
            .set(local.budget.get().saturating_add(1).min(BUDGET))
    });
}
