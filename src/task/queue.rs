//! A worker's own queues, and how a wake finds its way there.
//!
//! [`Local`] is the half of a worker that is its thread's own: the ready tasks, those that yielded,
//! the list of live tasks, the cooperation budget. While a thread drives a worker, `Local` is its
//! *current* one. The other half, which every thread can reach, is the [`Home`](super::team::Home) in
//! its [`Team`].
//!
//! **A wake** ([`schedule`]) whose home is current goes straight to `Local`'s queue: no atomic, no
//! system call. From anywhere else it goes to the home's inbox, and the worker is unparked; the head
//! of `reactor::parking` says why it is not lost. A thread that owns a worker without driving it (a
//! foreign loop between two turns) counts as anywhere else. A task that has no home yet goes to its
//! team's queue: see [`team`](super::team).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use async_task::ScheduleInfo;
use slab::Slab;

use super::team::{Home, NOWHERE, SHARE, Team};
use super::{Meta, Runnable};
use crate::reactor::{Driver, now, replace_driver};

/// The half of a worker that is its thread's own.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) team: Arc<Team>,
    /// Which of the team's homes this is.
    pub(crate) place: usize,
    home: Arc<Home>,
    /// Whether this worker shares what is spawned with others.
    is_member: bool,
    ready: RefCell<VecDeque<Runnable>>,
    /// Woke themselves while they ran: run again only after the reactor had its turn.
    yielded: RefCell<VecDeque<Runnable>>,
    /// Every task that was polled and still has its future, but for one that is in its first poll.
    live: RefCell<Slab<Live>>,
    /// Tasks whose home this is.
    adopted: Cell<usize>,
    /// What the running task may still do; below zero, how often it was refused.
    budget: Cell<i32>,
    /// How many tasks this worker may start before it looks at the others' loads again.
    may_start: Cell<usize>,
    /// While it leaves tasks to others.
    waiting: Cell<Option<Waiting>>,
    /// Whether the running task has spawned one that nobody was woken for.
    has_spawned: Cell<bool>,
    /// Shares of the team that tasks gave back.
    shares: RefCell<Vec<Arc<Team>>>,
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

/// How long a member leaves tasks to those that have fewer: longer than these need to wake up and to
/// come by, short beside what it would take them to come from a computation.
pub(crate) const PATIENCE: Duration = Duration::from_millis(1);

/// Since when a member leaves tasks to others, and how many it starts when it has waited enough.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    since: Instant,
    grant: usize,
}

/// What a member can do about tasks that have not started.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backlog {
    None,
    /// Take one.
    Mine,
    /// Leave them to members that have fewer tasks.
    Others,
}

impl Local {
    pub(crate) fn new(team: Arc<Team>, place: usize) -> Local {
        Local {
            is_member: place != team.front(),
            home: team.home(place).clone(),
            team,
            place,
            ready: RefCell::new(VecDeque::with_capacity(QUEUE)),
            yielded: RefCell::new(VecDeque::with_capacity(QUEUE)),
            live: RefCell::default(),
            adopted: Cell::new(0),
            budget: Cell::new(BUDGET),
            may_start: Cell::new(0),
            waiting: Cell::new(None),
            has_spawned: Cell::new(false),
            shares: RefCell::default(),
        }
    }

    #[inline]
    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    #[inline]
    pub(crate) fn is_member(&self) -> bool {
        self.is_member
    }

    /// Whether a task's home is here.
    #[inline]
    fn is_home_of(&self, meta: &Meta) -> bool {
        Arc::ptr_eq(&self.team, &meta.team) && self.place == meta.place()
    }

    /// How many tasks live here, started ones only.
    #[inline]
    pub(crate) fn adopted(&self) -> usize {
        self.adopted.get()
    }

    fn set_adopted(&self, adopted: usize) {
        self.adopted.set(adopted);
        self.home().set_load(adopted);
    }

    /// What there is to do about tasks that have not started.
    pub(crate) fn backlog(&self) -> Backlog {
        if !self.is_member || !self.team.has_fresh() || self.team.is_closing() {
            return Backlog::None;
        }
        if self.may_start.get() == 0 {
            match self.team.share(self.place) {
                0 => return Backlog::Others,
                share => self.may_start.set(share),
            }
            self.waiting.set(None);
        }
        Backlog::Mine
    }

    /// Between two runs: what is left to others that are too long in coming, this worker starts itself,
    /// one task at first and twice as many each time.
    #[inline]
    pub(crate) fn wait_for_others(&self) {
        match self.backlog() {
            Backlog::None => return self.waiting.set(None),
            Backlog::Mine => return,
            Backlog::Others => {}
        }
        let waiting = match self.waiting.get() {
            Some(waiting) => waiting,
            None => Waiting {
                since: now(),
                grant: 1,
            },
        };
        self.waiting
            .set(Some(match now() < waiting.since + PATIENCE {
                true => waiting,
                false => {
                    self.may_start.set(waiting.grant);
                    Waiting {
                        since: now(),
                        grant: (waiting.grant * 2).min(SHARE),
                    }
                }
            }));
    }

    /// Takes a task that has not started, if that is this worker's business. Here is its home from now
    /// on.
    #[inline]
    pub(crate) fn take_fresh(&self) -> Option<Runnable> {
        if self.backlog() != Backlog::Mine {
            return None;
        }
        let runnable = self.team.take_fresh()?;
        self.may_start.set(self.may_start.get() - 1);
        runnable.metadata().settle(self.place);
        if self.team.has_fresh() {
            self.team.wake_one();
        }
        Some(runnable)
    }

    /// The running task has returned: what it spawned, and this worker will not run next, is told to
    /// others.
    #[inline]
    pub(crate) fn tell_what_was_spawned(&self) {
        if self.has_spawned.take() && !self.ready.borrow().is_empty() {
            self.team.wake_one();
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
    pub(crate) fn take_mail(&self) {
        self.home().inbox.drain(&mut self.ready.borrow_mut());
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

/// Makes a worker the current one until it is dropped; then the one before is again.
pub(crate) struct Entered {
    before: Option<Rc<Local>>,
    driver_before: Option<Rc<Driver>>,
}

pub(crate) fn enter(local: &Rc<Local>, driver: &Rc<Driver>) -> Entered {
    // Within a task of a member: that one will not return soon to run what it has spawned.
    with_current(|outer| {
        if outer.is_member && outer.has_spawned.take() {
            outer.team.wake_one();
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

/// How every wake, from any thread, gets its task run. `async-task` calls it at most once until
/// the task has run.
pub(super) fn schedule(runnable: Runnable, info: ScheduleInfo) {
    let elsewhere = CURRENT.with(|current| match &**current.borrow() {
        Some(local) if local.is_home_of(runnable.metadata()) => {
            match info.woken_while_running {
                true => local.yielded.borrow_mut().push_back(runnable),
                false => local.push(runnable),
            }
            None
        }
        _ => Some(runnable),
    });
    if let Some(runnable) = elsewhere {
        send(runnable);
    }
}

/// To another worker's home, or, without one yet, to all of its team.
fn send(runnable: Runnable) {
    // Once it is in a queue the task may run and be gone, and with it its share of the team. This
    // thread's own share serves as well, and spares counting, on a cache line that all workers want.
    // What follows runs nobody else's code, so the current worker may stay borrowed.
    CURRENT.with(|current| match &**current.borrow() {
        Some(local) if Arc::ptr_eq(&local.team, &runnable.metadata().team) => {
            let is_spawned = hand_over(&local.team, runnable);
            // The first one that a member's task spawns it most likely takes itself, when that task
            // returns.
            if is_spawned && (!local.is_member || local.has_spawned.replace(true)) {
                local.team.wake_one();
            }
        }
        _ => {
            let team = Arc::clone(&runnable.metadata().team);
            if hand_over(&team, runnable) {
                team.wake_one();
            }
        }
    });
}

/// True if it has no home yet, and one of `team`, whose task it is, is to be woken for it.
fn hand_over(team: &Team, runnable: Runnable) -> bool {
    let place = runnable.metadata().place();
    if place != NOWHERE {
        let home = team.home(place);
        home.inbox.push(runnable);
        home.reactor.unpark();
        return false;
    }
    team.add_fresh(runnable);
    if team.is_closing() {
        // The members have gone, and the front waits for just this one: see "Closing" in `team`.
        team.home(team.front()).reactor.unpark();
        return false;
    }
    true
}

/// A task's share of its team. Given back, it is kept for the next task that is spawned there, which so
/// touches no counter that all workers share.
#[derive(Debug)]
pub(super) struct Share(Option<Arc<Team>>);

/// How many a worker keeps: enough for tasks that come and go, while shares are all that keeps a team.
const SHARES: usize = 64;

impl Deref for Share {
    type Target = Arc<Team>;

    #[inline]
    fn deref(&self) -> &Arc<Team> {
        self.0.as_ref().expect("only drop takes it")
    }
}

impl Drop for Share {
    #[inline]
    fn drop(&mut self) {
        let Some(team) = self.0.take() else { return };
        // What is left is dropped outside.
        let _too_many = with_current(|local| {
            let mut shares = local.shares.borrow_mut();
            if !Arc::ptr_eq(&local.team, &team) || shares.len() >= SHARES {
                return Some(team);
            }
            shares.push(team);
            None
        });
    }
}

/// Counts a task of `team` that is made, and gives its share.
pub(super) fn enlist(team: &Arc<Team>) -> Share {
    let here = with_current(|local| {
        Arc::ptr_eq(&local.team, team).then(|| (local.place, local.shares.borrow_mut().pop()))
    });
    let (place, share) = match here.flatten() {
        Some((place, share)) => (Some(place), share),
        None => (None, None),
    };
    team.count(place);
    Share(Some(share.unwrap_or_else(|| team.clone())))
}

/// Where a task stands in its worker's list of live tasks: counted from one, so that a place for one
/// that may not be there yet takes one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry(NonZeroUsize);

/// Enters a task that was polled for the first time in its worker's list; its entry there.
pub(super) fn adopt(meta: &Meta, waker: &Waker) -> Option<Entry> {
    with_current(|local| {
        debug_assert!(local.is_home_of(meta), "a task runs at home");
        local.set_adopted(local.adopted.get() + 1);
        let index = local.live.borrow_mut().insert(Live {
            waker: waker.clone(),
            site: meta.site,
        });
        Entry(NonZeroUsize::MIN.saturating_add(index))
    })
}

/// A task's future is gone: takes it out of the list, and counts it. One that was polled ends on its
/// home's thread, one that was not may end anywhere.
pub(super) fn end(meta: &Meta, entry: Option<Entry>) {
    let place = with_current(|local| {
        if let (Some(Entry(entry)), true) = (entry, local.is_home_of(meta)) {
            local.set_adopted(local.adopted.get() - 1);
            // When the worker closes, the list has been taken.
            let removed = local.live.borrow_mut().try_remove(entry.get() - 1);
            drop(removed);
        }
        Arc::ptr_eq(&local.team, &meta.team).then_some(local.place)
    });
    meta.team.uncount(place.flatten());
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
