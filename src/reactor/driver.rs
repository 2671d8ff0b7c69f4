//! The half of a reactor that belongs to the thread that drives it.
//!
//! A [`Driver`] waits and wakes, and holds what therefore needs no lock: the worker's *local*
//! timers. The scheduler knows which driver a thread has, and passes it where that matters.
//!
//! **Local timers.** A timer that is first polled on the thread that drives a reactor is in that
//! driver's heap, unless the reactor is a pool worker's ("Helping" below). Setting, resetting and
//! dropping it there costs no lock and no atomic, and that is where nearly all timers spend their
//! lives. A local timer that is reset or dropped elsewhere (by another thread, or by this one while
//! it drives another runtime, or none) queues a [`TimerOp`] with the reactor and unparks the
//! worker, which applies it before it does anything else to the heap. The head of `parking` says
//! why none is lost.
//!
//! **Remote timers** are those of threads that drive nothing. They are in the background runtime's
//! reactor, in a second heap, behind a lock: such a thread has to learn at each poll whether the
//! timer has fired, and to exchange its waker, which a queue of operations cannot answer. A local
//! timer that is touched elsewhere needs no answer, and there a lock would be paid for by every
//! timer.
//!
//! **Helping.** A pool worker that computes serves neither its sources nor its timers. Another
//! worker does so in its place, with a driver of its own for that reactor ([`Driver::help`]): it
//! waits with a zero timeout, and fires. Readiness and waiters are behind locks, whoever delivers.
//! The timers of a pool worker are all in the second heap, where every thread can reach them. Only
//! one thread waits on a poller at a time: who does is up to the caller.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::timer_heap::{Key, TimerHeap, TimerWait};
use super::{Counters, Reactor, What, now};
use crate::poller::{Events, Until};
use crate::sync::{drop_all, wake_all};

pub(crate) struct Driver {
    reactor: Arc<Reactor>,
    /// Of the worker whose thread has this driver.
    counters: Arc<Counters>,
    timers: RefCell<TimerHeap>,
    /// Wakers of timers that were dropped elsewhere: to be dropped where foreign code may run.
    wakers_to_drop: RefCell<Vec<Waker>>,
    /// Set by the builder.
    slack: Cell<Option<Slack>>,
    /// A time that the clock has reached, known from the last wait: spares reading it.
    reached: Cell<Option<Instant>>,
    /// Taken during a wait. A turn within a turn allocates its own.
    scratch: Cell<Option<Box<Scratch>>>,
}

/// Events taken from the kernel at once, and tasks run between two polls of it. As many of one as
/// of the other: so the queue of ready tasks stays short, what was touched when an event was
/// delivered is still in the nearest cache when its task runs, and tasks are served in the kernel's
/// order. With 32 to 64 the cost of a poll cannot be measured beside them (Linux 6.18), and none of
/// them waits for long.
pub(crate) const BATCH: usize = 64;

/// After a wait that ended at a deadline the clock is read only if another timer is due within this
/// of it: then that may be due as well, since it takes a while until a thread that is woken runs.
const NEAR: Duration = Duration::from_millis(1);

/// How late timers may be, for the sake of fewer wake-ups: the worker sleeps until the next
/// multiple of `grid` after `origin`.
#[derive(Clone, Copy, Debug)]
struct Slack {
    grid: Duration,
    origin: Instant,
}

impl Slack {
    /// The first moment of the grid that is not before `deadline`.
    fn after(self, deadline: Instant) -> Instant {
        let after = deadline.saturating_duration_since(self.origin).as_nanos();
        let left = match after % self.grid.as_nanos() {
            0 => return deadline,
            past => self.grid - Duration::from_nanos(past as u64), // Less than the grid.
        };
        deadline.checked_add(left).unwrap_or(deadline)
    }
}

/// Memory that is reused in each turn.
#[derive(Debug)]
struct Scratch {
    events: Events,
    wakers: Vec<Waker>,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch {
            events: Events::with_capacity(BATCH),
            wakers: Vec::new(),
        }
    }
}

/// What is to be done to a local timer, requested elsewhere.
#[derive(Clone, Debug)]
pub(super) enum TimerOp {
    Remove,
    Reset(Instant),
    Suspend,
}

/// Operations for the driver: for each timer the last one, which replaces those before it. So they
/// take no more memory than the timers do, however long nobody drives the worker. (The key of a
/// timer that is to be removed is not used again before the driver has done that.)
#[derive(Debug, Default)]
pub(super) struct TimerOps {
    /// In the order in which they were requested, which is that of equal deadlines. `None`: it was
    /// replaced by a later one.
    ops: Vec<Option<(Key, TimerOp)>>,
    /// By key: where in `ops` it is, if it is there.
    places: Vec<usize>,
    /// How many were not replaced.
    len: usize,
}

impl TimerOps {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, key: Key, op: TimerOp) {
        let index = key.index();
        if self.places.len() <= index {
            self.places.resize(index + 1, 0);
        }
        let before = self.ops.get_mut(self.places[index]);
        let is_key = |op: &mut (Key, TimerOp)| op.0 == key;
        let replaced = before.and_then(|op| op.take_if(is_key));
        self.len += usize::from(replaced.is_none());
        self.places[index] = self.ops.len();
        self.ops.push(Some((key, op)));
        if self.ops.len() > 2 * self.len + TimerOps::FEW {
            self.ops.retain(Option::is_some);
            for (place, op) in self.ops.iter().enumerate() {
                let key = op.as_ref().map(|(key, _)| key.index());
                self.places[key.expect("the others were left out")] = place;
            }
        }
    }

    /// So many that were replaced are kept at least: to leave them out takes time for each.
    const FEW: usize = 64;

    /// Takes all of them, in their order.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (Key, TimerOp)> + use<> {
        // The places stay: what they say is of no use without the operations, and does no harm.
        self.len = 0;
        std::mem::take(&mut self.ops).into_iter().flatten()
    }
}

impl Driver {
    pub(crate) fn new(reactor: Arc<Reactor>) -> Driver {
        let counters = reactor.counters().clone();
        Driver::counted_by(counters, reactor)
    }

    fn counted_by(counters: Arc<Counters>, reactor: Arc<Reactor>) -> Driver {
        Driver {
            reactor,
            counters,
            timers: RefCell::new(TimerHeap::new()),
            wakers_to_drop: RefCell::default(),
            slack: Cell::default(),
            reached: Cell::default(),
            scratch: Cell::default(),
        }
    }

    /// From here on timers may be late by `slack`. Drivers with the same `origin` wake together.
    pub(crate) fn set_slack(&self, slack: Duration, origin: Instant) {
        // In nanoseconds it has 64 bits.
        let grid = slack.min(Duration::from_nanos(u64::MAX));
        let slack = Slack { grid, origin };
        self.slack.set((!grid.is_zero()).then_some(slack));
    }

    #[inline]
    pub(crate) fn reactor(&self) -> &Arc<Reactor> {
        &self.reactor
    }

    #[inline]
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether it is `reactor`'s.
    #[inline]
    pub(crate) fn drives(&self, reactor: &Reactor) -> bool {
        std::ptr::eq(&*self.reactor, reactor)
    }

    /// Calls `f` with the local timers, if this is the driver of the reactor `id`, and that has not
    /// closed. Operations that were requested elsewhere before are applied first.
    #[inline]
    pub(super) fn with_timers<R>(&self, id: u64, f: impl FnOnce(&mut TimerHeap) -> R) -> Option<R> {
        if self.reactor.id != id || self.reactor.is_closed() {
            return None;
        }
        self.apply_timer_ops();
        Some(f(&mut self.timers.borrow_mut()))
    }

    /// Until when the worker may sleep: for `timeout` at most, and not beyond its earliest timer,
    /// nor beyond where that was before it was pushed back. Reads the clock only if there is
    /// either.
    #[inline]
    pub(crate) fn until(&self, timeout: Option<Duration>) -> Until {
        self.apply_timer_ops();
        if !self.wakers_to_drop.borrow().is_empty() {
            return Until::Now;
        }
        match self.has_timers() {
            true => self.until_earliest(timeout),
            false => Until::after(timeout, now),
        }
    }

    /// [`until`](Self::until), and not beyond `end`.
    pub(crate) fn until_at_most(&self, end: Instant, now: Instant) -> Until {
        self.counters.set_tick(now);
        self.apply_timer_ops();
        if !self.wakers_to_drop.borrow().is_empty() {
            return Until::Now;
        }
        let deadline = self.wake_up().map_or(end, |wake_up| wake_up.min(end));
        Until::Deadline { deadline, now }
    }

    /// How long until the earliest timer is due. `None`: there is none.
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        self.find_earliest();
        self.until(None).timeout()
    }

    /// Whether [`fire`](Self::fire) would find anything to do now. For a worker that is awake:
    /// without slack.
    pub(crate) fn is_due(&self) -> bool {
        self.find_earliest();
        !self.wakers_to_drop.borrow().is_empty()
            || self.not_before().is_some_and(|earliest| earliest <= now())
    }

    /// Whether any timer is set.
    #[inline]
    pub(crate) fn has_timers(&self) -> bool {
        self.timers.borrow().has_pending() || self.reactor.has_remote_timers()
    }

    /// A moment that no timer is due before: see [`TimerHeap::not_before`].
    fn not_before(&self) -> Option<Instant> {
        let local = self.timers.borrow().not_before();
        let remote = self.reactor.remote_timers_not_before();
        local.into_iter().chain(remote).min()
    }

    /// When the worker is to wake for its timers.
    fn wake_up(&self) -> Option<Instant> {
        let earliest = self.not_before()?;
        Some(match self.slack.get() {
            None => earliest,
            Some(slack) => slack.after(earliest),
        })
    }

    /// From here on [`not_before`](Self::not_before) is when the earliest timer is due, until a
    /// timer is set anew.
    pub(crate) fn find_earliest(&self) {
        self.apply_timer_ops();
        self.timers.borrow_mut().earliest();
        self.reactor.find_earliest_remote_timer();
    }

    fn until_earliest(&self, timeout: Option<Duration>) -> Until {
        let now = now();
        self.counters.set_tick(now);
        let end = timeout.and_then(|timeout| now.checked_add(timeout));
        match self.wake_up().into_iter().chain(end).min() {
            Some(deadline) => Until::Deadline { deadline, now },
            None => Until::Never,
        }
    }

    /// Waits once and wakes the tasks whose sources are ready. Returns whether there was any.
    ///
    /// In between it calls `awake`, with whether there is anyone to wake: the worker is to resume
    /// there, before foreign code runs. See "Foreign code" at the head of `parking`.
    #[inline]
    pub(crate) fn wait(&self, until: &Until, awake: impl FnOnce(bool)) -> io::Result<bool> {
        let mut scratch = self.scratch.take().unwrap_or_default();
        let Scratch { events, wakers } = &mut *scratch;
        let may_sleep = !matches!(until, Until::Now);
        self.trace_if(may_sleep, What::Sleeps);
        let result = self.reactor.wait(self, events, until, wakers);
        self.trace_if(may_sleep, What::Awakes);
        self.reached.set(*result.as_ref().unwrap_or(&None));
        awake(!scratch.wakers.is_empty());
        let any = wake(&mut scratch.wakers);
        self.scratch.set(Some(scratch));
        result.map(|_| any)
    }

    /// [`wait`](Self::wait) without a deadline; unless it `may_sleep`, looks once. Nothing of it is
    /// traced.
    #[inline]
    pub(crate) fn wait_without_deadline(
        &self,
        may_sleep: bool,
        awake: impl FnOnce(bool),
    ) -> io::Result<()> {
        let mut scratch = self.scratch.take().unwrap_or_default();
        let Scratch { events, wakers } = &mut *scratch;
        self.reached.set(None);
        let result = self
            .reactor
            .wait_without_deadline(self, may_sleep, events, wakers);
        awake(!scratch.wakers.is_empty());
        if !scratch.wakers.is_empty() {
            wake(&mut scratch.wakers);
        }
        self.scratch.set(Some(scratch));
        result
    }

    /// Something happens, which is traced if `may_sleep`, and if anything is.
    #[inline]
    fn trace_if(&self, may_sleep: bool, what: What) {
        if let (true, Some(trace)) = (may_sleep, self.counters.trace()) {
            trace.push(what);
        }
    }

    /// Does once, without sleeping, what the thread that drives `reactor` does in each turn: wakes
    /// the tasks whose sources are ready, and those whose timers are due. That thread waits neither
    /// now nor before `waited` is called, and it has not parked; so no notification is lost, though
    /// one may be consumed here. `before` is called before foreign code runs, if any does.
    pub(crate) fn help(
        &self,
        reactor: &Arc<Reactor>,
        waited: impl FnOnce(),
        before: impl Fn() + Copy,
    ) {
        debug_assert!(
            reactor.shares_timers && !reactor.has_timer_ops(),
            "a timer that only the thread of that worker reaches"
        );
        let driver = Driver::counted_by(self.counters.clone(), reactor.clone());
        driver.scratch.set(self.scratch.take());
        let awake = |has_wakers| {
            waited();
            if has_wakers {
                before();
            }
        };
        match reactor.has_sources() {
            // If the wait fails, it will fail there too.
            true => drop(driver.wait(&Until::Now, awake)),
            false => awake(false),
        }
        driver.fire(before);
        self.scratch.set(driver.scratch.take());
    }

    /// Wakes the tasks whose timers are due. Returns whether there was any. `before` is called
    /// before foreign code runs, if any does.
    #[inline]
    pub(crate) fn fire(&self, before: impl Fn()) -> bool {
        self.drop_wakers(&before);
        let reached = self.reached.take();
        self.has_timers() && self.fire_due(reached, before)
    }

    /// Drops the wakers of timers that were dropped elsewhere. Runs foreign code, so not between
    /// `park` and `resume`.
    #[inline]
    pub(crate) fn drop_wakers(&self, before: impl Fn()) {
        self.apply_timer_ops();
        if !self.wakers_to_drop.borrow().is_empty() {
            before();
            drop_all(self.wakers_to_drop.take());
        }
    }

    /// Moves the wakers of all timers that are due at `now` to `wakers`.
    #[inline]
    fn take_due(&self, now: Instant, wakers: &mut Vec<Waker>) {
        let counters = self.counters();
        let late = |late| counters.count_fired(late);
        self.timers.borrow_mut().fire(now, wakers, late);
        self.reactor.fire_remote_timers(now, wakers, counters);
    }

    fn fire_due(&self, reached: Option<Instant>, before: impl Fn()) -> bool {
        let mut scratch = self.scratch.take().unwrap_or_default();
        if let Some(reached) = reached {
            self.take_due(reached, &mut scratch.wakers);
        }
        if reached.is_none_or(|reached| self.not_before().is_some_and(|it| it < reached + NEAR)) {
            let now = now();
            self.counters.set_tick(now);
            self.take_due(now, &mut scratch.wakers);
        }
        if !scratch.wakers.is_empty() {
            before();
        }
        let any = wake(&mut scratch.wakers);
        self.scratch.set(Some(scratch));
        any
    }

    /// Whose wakers the timers keep, local and remote ones.
    pub(crate) fn timer_waits(&self) -> Vec<TimerWait> {
        self.apply_timer_ops();
        let mut waits = self.reactor.remote_timer_waits();
        let timers = self.timers.borrow();
        timers.waits(0..timers.places(), &mut waits);
        waits
    }

    /// Makes the poller's descriptor readable at the end of a sleep.
    pub(crate) fn arm(&self, until: Until) -> io::Result<()> {
        self.reactor.poller().arm(until)
    }

    /// Closes the reactor: nothing is registered with it from here on, and all that is registered
    /// is given up. Waiters are woken, and those that still want something register with the
    /// reactor that they find then; timers read the clock.
    pub(crate) fn close(&self) {
        let mut wakers = Vec::new();
        self.reactor.close(&mut wakers);
        self.timers.borrow_mut().fire_all(&mut wakers);
        wake(&mut wakers);
        drop_all(self.wakers_to_drop.take());
    }

    /// Applies the operations that were requested elsewhere.
    #[inline]
    fn apply_timer_ops(&self) {
        if self.reactor.has_timer_ops() {
            self.apply_timer_ops_now();
        }
    }

    #[cold]
    fn apply_timer_ops_now(&self) {
        let ops = self.reactor.take_timer_ops();
        let mut timers = self.timers.borrow_mut();
        for (key, op) in ops {
            match op {
                TimerOp::Remove => (self.wakers_to_drop.borrow_mut()).extend(timers.remove(key)),
                TimerOp::Reset(when) => {
                    timers.reset(key, when);
                }
                TimerOp::Suspend => timers.suspend(key),
            }
        }
    }
}

/// Wakes all of them. Returns whether there was any.
#[inline]
fn wake(wakers: &mut Vec<Waker>) -> bool {
    let any = !wakers.is_empty();
    wake_all(wakers.drain(..));
    any
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::poller::{Backend, Poller};
    use crate::reactor::Since;

    const FAR: Duration = Duration::from_secs(3_600);

    /// A reactor and its driver as they are. Left out is the wait itself: that a notification ends
    /// it is the poller's promise. So a worker that sleeps too long is one that found nothing *and*
    /// was not notified. Left out too: the registry of reactors, and foreign code.
    fn check(
        first: TimerOp,
        second: Option<TimerOp>,
        judge: impl Fn(&Driver) + Send + Sync + 'static,
    ) {
        let ops = std::sync::Mutex::new((first, second));
        let ops = move || {
            let ops = ops.lock().unwrap();
            (ops.0.clone(), ops.1.clone())
        };
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let poller = Poller::new(Backend::default()).unwrap();
            let reactor = Reactor::new(poller);
            let driver = Driver::new(reactor.clone());
            let insert = |when| (driver.timers.borrow_mut()).insert(when, Waker::noop().clone());
            let (key, _) = insert(now() + FAR);
            let (first, second) = ops();
            let remote = {
                let reactor = reactor.clone();
                loom::thread::spawn(move || {
                    reactor.push_timer_op(key, first);
                    if let Some(second) = second {
                        reactor.push_timer_op(key, second);
                    }
                })
            };
            let came_before = reactor.park() != Since::Nothing;
            let before = driver.next_timeout();
            remote.join().unwrap();
            let notified = reactor.resume() == Since::Notified;
            let after = driver.next_timeout();
            let changed = |timeout: Option<Duration>| timeout.is_none_or(|it| it < FAR / 2);
            assert!(changed(after), "an operation is lost: {after:?}");
            assert!(
                came_before || notified,
                "the worker is told nothing of an operation"
            );
            assert!(
                notified || changed(before),
                "the worker sleeps for {before:?}"
            );
            judge(&driver);
        });
    }

    #[test]
    fn a_timer_that_is_set_nearer_from_elsewhere_shortens_the_sleep_that_begins() {
        check(TimerOp::Reset(now()), None, |driver| {
            assert_eq!(driver.next_timeout(), Some(Duration::ZERO));
        });
    }

    #[test]
    fn a_timer_that_is_set_and_then_dropped_elsewhere_is_gone_and_its_waker_let_go() {
        check(TimerOp::Reset(now()), Some(TimerOp::Remove), |driver| {
            assert_eq!(driver.timers.borrow().entries(), 0, "it is there yet");
            assert_eq!(driver.wakers_to_drop.borrow().len(), 1, "its waker is lost");
        });
    }

    #[test]
    fn a_timer_that_is_suspended_and_then_set_elsewhere_fires() {
        check(TimerOp::Suspend, Some(TimerOp::Reset(now())), |driver| {
            assert_eq!(driver.next_timeout(), Some(Duration::ZERO));
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Keys of two timers, and an instant.
    fn two() -> (Key, Key, Instant) {
        let (mut heap, when) = (TimerHeap::new(), now());
        let [one, other] = [(); 2].map(|()| heap.insert(when, Waker::noop().clone()).0);
        (one, other, when)
    }

    #[test]
    fn with_slack_a_wake_up_is_at_the_next_moment_of_the_grid_and_never_early() {
        let origin = now();
        let ns = Duration::from_nanos;
        let slack = |grid| Slack { grid, origin };
        for grid in [ns(1), ns(7), ns(20_000_000), ns(u64::MAX)] {
            let slack = slack(grid);
            for after in [0, 1, 6, 7, 8, 19_999_999, 20_000_000, 1 << 50] {
                let deadline = origin + ns(after);
                let wake_up = slack.after(deadline);
                assert!(wake_up >= deadline && wake_up - deadline < grid);
                assert_eq!((wake_up - origin).as_nanos() % grid.as_nanos(), 0);
            }
        }
        let earlier = origin.checked_sub(ns(5)).unwrap();
        assert_eq!(slack(ns(3)).after(earlier), earlier);
    }

    #[test]
    fn there_are_never_more_operations_than_timers() {
        let (one, other, when) = two();
        let mut ops = TimerOps::default();
        for i in 0..1_000 {
            let later = when + Duration::from_millis(i);
            ops.push(one, TimerOp::Reset(later));
            ops.push(other, TimerOp::Reset(later));
            ops.push(one, TimerOp::Suspend);
        }
        assert_eq!(ops.len(), 2);
        let (places, len) = (ops.places.len(), ops.ops.len());
        assert!(places <= 2 && len <= 4 + TimerOps::FEW, "{places} {len}");
    }

    /// Equal deadlines fire in the order in which they were set, wherever that was.
    #[test]
    fn the_last_operation_of_each_timer_counts_in_the_order_of_requests() {
        let (one, other, when) = two();
        let mut ops = TimerOps::default();
        ops.push(one, TimerOp::Reset(when));
        ops.push(other, TimerOp::Reset(when));
        ops.push(one, TimerOp::Suspend);
        ops.push(one, TimerOp::Reset(when));
        let taken: Vec<_> = ops.take().collect();
        assert_eq!(ops.len(), 0);
        let resets = (taken.iter()).all(|(_, op)| matches!(op, TimerOp::Reset(_)));
        let keys: Vec<Key> = taken.iter().map(|(key, _)| *key).collect();
        assert!(resets && keys == [other, one], "{taken:?}");
    }
}
