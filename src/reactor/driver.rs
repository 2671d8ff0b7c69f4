//! The half of a reactor that belongs to the thread that drives it, and the handles to timers.
//!
//! **Local timers.** A timer that is first polled on the thread that drives a reactor is in that
//! thread's [`Driver`], unless the reactor is a shard's. Setting, resetting and dropping it there
//! costs no lock, and no atomic operation but loads and the waker's count. If it is reset or
//! dropped elsewhere (by another thread, or by this one while it drives another runtime, or none),
//! a [`TimerOp`] is queued with the reactor and the worker is unparked. The worker applies the
//! queue before it sets, polls, resets or drops a timer, before it fires those that are due, and
//! before it sleeps. See `parker` for why none is lost.
//!
//! **Locked timers** are in a heap of the reactor itself, behind a lock: all of a pool's; in the
//! background runtime's reactor, those of threads that drive nothing; and those that end a source's
//! back-off, if the driver is not at hand. At each poll a thread that drives nothing must find out
//! whether the timer has fired, and must exchange its waker, which a queue of operations cannot do.
//!
//! Timers migrate with their users to other reactors. The owner of a [`TimerHandle`] then drops it,
//! and sets another timer there: if polling it returns [`TimerState::NotVisible`], or a pending one
//! is [locked in](TimerHandle::locked_in) another reactor. Its functions take the driver of this
//! thread's worker.
//!
//! **Pools.** The workers of a shard drive one reactor, each with a driver of its own. The
//! scheduler ensures that only one of them waits on the poller at a time. Timers, readiness and
//! waiters are behind locks, so any of them may fire and deliver.

use std::cell::{Cell, RefCell, RefMut};
use std::fmt;
use std::io;
use std::iter;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::timer_heap::{Key, TimerHeap, TimerOp, TimerWait};
use super::{Parker, Reactor, SourceTable};
use crate::clock::{end_of_jiffy, jiffy, now};
use crate::poller::{Events, Ready, Token, WaitUntil};
use crate::sync::atomic::Ordering;
use crate::sync::{MutexGuard, Spare, drop_all, wake_all};
use crate::telemetry::{Counters, Mark};

pub(crate) struct Driver {
    reactor: Arc<Reactor>,
    counters: Arc<Counters>,
    timers: RefCell<TimerHeap>,
    /// To be dropped where foreign code may run.
    wakers_to_drop: RefCell<Vec<Waker>>,
    slack: Cell<Option<Slack>>,
    /// A time that the clock has reached, known from the last wait: avoids reading the clock.
    reached: Cell<Option<Instant>>,
    end_of_jiffy: Cell<Option<Instant>>,
    /// Reused buffers, taken during a wait. A nested turn allocates its own.
    scratch: Cell<Option<Box<Scratch>>>,
}

/// The number of events taken from the kernel in one call; the maximum number of queued wakers and
/// timers that [`fire`](Driver::fire) calls, and of tasks run between two polls. All are the same:
/// so the queue of ready tasks stays short, the memory touched when an event was delivered is still
/// in the nearest cache when its task runs, and tasks are served in the kernel's order. With 32 to
/// 64 the cost of a poll is too small to measure, compared with the tasks that run between two of
/// them (Linux 6.18), and no task waits for long, even behind thousands of timers that are due at
/// the same moment.
pub(crate) const BATCH: usize = 64;

/// The number of wakers called in a turn when a batch of tasks is ready already. If a whole batch
/// of timers were fired, the queue would grow for as long as timers are due, since a turn runs at
/// most a batch, which other tasks share. (Beside 100,000 timers of one moment, whose tasks
/// `block_on` awaited, an echo waited for 67,000 of them.) With a quarter of one the queue stays
/// within a few times the other tasks, and timers are not starved by tasks that are always ready.
const LEAST_FIRED: usize = BATCH / 4;

/// After a wait that ended at a deadline, the clock is read only if another timer is due within
/// this time of the deadline: it may be due as well by the time the woken thread runs.
const NEAR: Duration = Duration::from_millis(1);

/// The worker sleeps until the next multiple of `grid` after `origin`, to save wake-ups.
#[derive(Clone, Copy, Debug)]
struct Slack {
    grid: Duration,
    origin: Instant,
}

impl Slack {
    /// Returns the first moment of the grid that is not before `deadline`.
    fn after(self, deadline: Instant) -> Instant {
        let after = deadline.saturating_duration_since(self.origin).as_nanos();
        let left = match after % self.grid.as_nanos() {
            0 => return deadline,
            past => self.grid - Duration::from_nanos(past as u64), // Less than the grid.
        };
        deadline.checked_add(left).unwrap_or(deadline)
    }
}

struct Scratch {
    events: Events,
    wakers: Vec<Waker>,
    /// The number of wakers of this wait that were moved to the reactor's queue.
    queued: usize,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch {
            events: Events::with_capacity(BATCH),
            wakers: Vec::new(),
            queued: 0,
        }
    }
}

impl Driver {
    pub(crate) fn new(reactor: Arc<Reactor>, counters: Arc<Counters>) -> Driver {
        Driver {
            reactor,
            counters,
            timers: RefCell::new(TimerHeap::default()),
            wakers_to_drop: RefCell::default(),
            slack: Cell::default(),
            reached: Cell::default(),
            end_of_jiffy: Cell::default(),
            scratch: Cell::default(),
        }
    }

    /// Allows timers to be late by `slack`. Drivers with the same `origin` wake together.
    pub(crate) fn set_slack(&self, slack: Duration, origin: Instant) {
        // Fits into 64 bits of nanoseconds.
        let grid = slack.min(Duration::from_nanos(u64::MAX));
        let slack = Slack { grid, origin };
        self.slack.set((!grid.is_zero()).then_some(slack));
    }

    #[inline]
    pub(crate) fn reactor(&self) -> &Arc<Reactor> {
        &self.reactor
    }

    #[inline]
    pub(crate) fn drives(&self, reactor: &Reactor) -> bool {
        std::ptr::eq(&*self.reactor, reactor)
    }

    /// Borrows the local timers, after the operations requested elsewhere. `None` if this is not
    /// the driver of the reactor `id`, or the reactor has closed.
    #[inline(always)]
    fn timers_of(&self, id: u64) -> Option<RefMut<'_, TimerHeap>> {
        if self.reactor.id != id || self.reactor.is_closed() {
            return None;
        }
        self.apply_timer_ops();
        Some(self.timers.borrow_mut())
    }

    /// Returns until when the worker may sleep: at most for `timeout`, and not beyond its earliest
    /// timer, which may be due. The old deadline of one that was pushed back may cause a spurious
    /// wake-up. Reads the clock only if there is a timeout or a timer.
    #[inline]
    pub(crate) fn until_due(&self, timeout: Option<Duration>) -> WaitUntil {
        self.apply_timer_ops();
        if self.has_wakers_left() {
            return WaitUntil::Now;
        }
        if self.has_timers() {
            self.until_earliest(timeout)
        } else {
            WaitUntil::after(timeout, now)
        }
    }

    /// Parks the leader in the reactor's parker too, before it sleeps in the shard's poller.
    /// Returns [how long](Self::until_due) it may sleep.
    ///
    /// **Why no timer is late.** The earliest deadline is read after `park`. A thread that sets an
    /// earlier one does so under the heap's lock, and then unparks the reactor's parker. If that
    /// comes before `park`, the deadline is read here; if it comes after, the poller is notified.
    /// `loom` checks this below.
    pub(crate) fn park_in_reactor(&self, timeout: Option<Duration>) -> WaitUntil {
        // Anything sent before is read below.
        self.reactor.parker.park();
        self.until_due(timeout)
    }

    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        self.update_tops();
        self.until_due(None).duration()
    }

    /// Whether [`fire`](Self::fire) would find anything. Ignores slack, since the worker is awake.
    pub(crate) fn is_due(&self) -> bool {
        self.update_tops();
        self.has_wakers_left() || self.next_deadline().is_some_and(|next| next <= now())
    }

    /// Whether there is a timer or a queued waker.
    #[inline]
    pub(crate) fn has_timers_or_wakers(&self) -> bool {
        self.has_timers() || self.reactor.has_queued_wakers()
    }

    /// Whether there is a timer; of the driver's own, a pending one.
    #[inline]
    fn has_timers(&self) -> bool {
        self.timers.borrow().has_pending() || self.reactor.has_locked_timers()
    }

    /// Whether wakers are left to be called or dropped.
    #[inline]
    fn has_wakers_left(&self) -> bool {
        !self.wakers_to_drop.borrow().is_empty() || self.reactor.has_queued_wakers()
    }

    /// Of all timers; as [`TimerHeap::next_deadline`], it may be too early.
    #[inline]
    fn next_deadline(&self) -> Option<Instant> {
        let local = self.timers.borrow().next_deadline();
        match self.reactor.lock_timers_if_any() {
            None => local,
            Some(locked) => local.into_iter().chain(locked.next_deadline()).min(),
        }
    }

    #[inline]
    pub(crate) fn read_clock(&self) -> Instant {
        let now = now();
        if self.end_of_jiffy.get().is_none_or(|end| now >= end) {
            self.counters.set_jiffy(jiffy(now));
            self.end_of_jiffy
                .set(Some(end_of_jiffy(self.counters.jiffy())));
        }
        now
    }

    /// Makes [`next_deadline`](Self::next_deadline) exact, until a timer is set again.
    pub(crate) fn update_tops(&self) {
        self.apply_timer_ops();
        self.timers.borrow_mut().update_top();
        if let Some(mut timers) = self.reactor.lock_timers_if_any() {
            timers.update_top();
        }
    }

    fn until_earliest(&self, timeout: Option<Duration>) -> WaitUntil {
        let now = self.read_clock();
        let end = timeout.and_then(|timeout| now.checked_add(timeout));
        let slack = self.slack.get();
        // Not for due timers, which the last turn has left.
        let after = |next| match slack {
            Some(slack) if next > now => slack.after(next),
            _ => next,
        };
        match self.next_deadline().map(after).into_iter().chain(end).min() {
            Some(deadline) => WaitUntil::At { deadline, now },
            None => WaitUntil::Forever,
        }
    }

    /// Waits once in its reactor's poller, and wakes the tasks with ready sources. Returns whether
    /// other wakers were found: the worker resumes, and then [calls](Self::call_wakers) them, also
    /// after an error. See "Foreign code" in `parker`.
    ///
    /// `PLAIN`: the worker's `waits_directly` is set, and `until` is no deadline. Then an
    /// interrupted wait is not repeated, since its turn comes again; and it is not traced.
    #[inline(always)]
    pub(crate) fn wait<const PLAIN: bool>(&self, until: WaitUntil) -> io::Result<bool> {
        let mut scratch = self.scratch.take().unwrap_or_default();
        let Scratch { events, wakers, .. } = &mut *scratch;
        self.reached.set(None);
        let trace_if_sleeps = |mark| self.trace_if(!PLAIN && until != WaitUntil::Now, mark);
        trace_if_sleeps(Mark::Sleeps);
        let mut table = None;
        // The first event locks the table, until the wait has ended. No thread sleeps with that
        // lock: a wait that is repeated has reported nothing.
        let deliver = |token, ready| self.deliver::<PLAIN>(&mut table, token, ready, wakers);
        let clock = (!PLAIN).then_some(now as fn() -> Instant);
        let result = (self.reactor.poller).wait_unchecked(events, until, clock, Some(deliver));
        drop(table);
        trace_if_sleeps(Mark::Awakes);
        if let Ok(reached @ Some(_)) = result {
            self.reached.set(reached);
        }
        let has_wakers = self.keep_found_wakers(scratch);
        result.map(|_| has_wakers)
    }

    /// Delivers an event of a wait, whose first one locks the `table`.
    #[inline(never)]
    fn deliver<'a, const PLAIN: bool>(
        &'a self,
        table: &mut Option<MutexGuard<'a, SourceTable>>,
        token: Token,
        ready: Ready,
        wakers: &mut Vec<Waker>,
    ) {
        self.counters.events.add(1);
        let table = table.get_or_insert_with(|| self.reactor.sources.lock());
        if let Some(source) = table.get(token) {
            if !PLAIN {
                self.trace_if(true, Mark::Ready(source.number()));
            }
            source.deliver(self, token, ready, wakers);
        }
    }

    /// Keeps the wakers that were found for [`call_wakers`](Self::call_wakers), and the buffers.
    /// Returns whether there are any. Several are queued here, and so before the lock of a shard is
    /// released: the next worker that has it finds them.
    #[inline(always)]
    fn keep_found_wakers(&self, mut scratch: Box<Scratch>) -> bool {
        let has_wakers = !scratch.wakers.is_empty();
        if has_wakers && scratch.wakers.len() > 1 {
            scratch.queued = self.reactor.queue_wakers(&mut scratch.wakers);
        }
        self.scratch.set(Some(scratch));
        has_wakers
    }

    /// Calls the wakers that the last wait has found.
    #[inline(never)]
    pub(crate) fn call_wakers(&self) {
        let mut scratch = self.scratch.take().unwrap_or_default();
        self.reactor
            .call_queued(std::mem::take(&mut scratch.queued));
        wake_all(scratch.wakers.drain(..));
        self.scratch.set(Some(scratch));
    }

    pub(crate) fn sleep_as_follower(&self, parker: &Parker, timeout: Option<Duration>) {
        self.trace_if(true, Mark::Sleeps);
        parker.sleep(timeout);
        self.trace_if(true, Mark::Awakes);
        // The time of an earlier wait is out of date: the clock is read when timers are fired next.
        self.forget_time();
    }

    #[inline]
    pub(crate) fn forget_time(&self) {
        self.reached.set(None);
    }

    #[inline]
    fn trace_if(&self, is_traced: bool, what: Mark) {
        if let Some(trace) = is_traced.then(|| self.counters.trace()).flatten() {
            trace.push(what);
        }
    }

    /// Calls queued wakers, and wakes the tasks with due timers, where `ready` tasks are ready
    /// already. Calls `enter_foreign` before the first waker is called or dropped: here a task's
    /// own counts as foreign too, since nobody has classified it.
    pub(crate) fn fire(&self, ready: usize, enter_foreign: impl Fn()) {
        self.drop_wakers(&enter_foreign);
        let reached = self.reached.take();
        if self.has_timers_or_wakers() {
            let number = BATCH.saturating_sub(ready).max(LEAST_FIRED);
            self.fire_some(number, reached, &enter_foreign);
        }
    }

    /// Drops the wakers of timers that were dropped elsewhere. Runs foreign code, so must not be
    /// called between `park` and `resume`.
    #[inline]
    pub(crate) fn drop_wakers(&self, enter_foreign: impl Fn()) {
        self.apply_timer_ops();
        if !self.wakers_to_drop.borrow().is_empty() {
            enter_foreign();
            drop_all(self.wakers_to_drop.take());
        }
    }

    /// Takes out a queued waker, or that of the next timer that is due at `now`.
    #[inline]
    fn next_to_wake(&self, now: Instant) -> Option<Waker> {
        let late = |late| self.counters.count_fired(late);
        (self.reactor.take_queued_waker())
            .or_else(|| self.reactor.lock_timers_if_any()?.fire(now, late))
            .or_else(|| self.timers.borrow_mut().fire(now, late))
    }

    /// Calls at most `number` wakers, one at a time: the others stay where a nested turn, another
    /// worker or the next turn finds them. If it is known what time the clock has `reached`, it is
    /// read only for a timer that is due within [`NEAR`] of that.
    #[inline(never)]
    fn fire_some(&self, number: usize, reached: Option<Instant>, enter_foreign: &dyn Fn()) {
        let mut time = reached.unwrap_or_else(|| self.read_clock());
        let mut may_reread = reached.is_some();
        let mut fired = 0;
        wake_all(iter::from_fn(|| {
            if fired == number {
                return None;
            }
            let mut waker = self.next_to_wake(time);
            if waker.is_none() && may_reread {
                may_reread = false;
                if self.next_deadline().is_some_and(|next| next < time + NEAR) {
                    time = self.read_clock();
                    waker = self.next_to_wake(time);
                }
            }
            if waker.is_some() && fired == 0 {
                enter_foreign();
            }
            fired += 1;
            waker
        }));
    }

    pub(crate) fn timer_waits(&self) -> Vec<TimerWait> {
        self.apply_timer_ops();
        let mut waits = self.reactor.locked_timer_waits();
        let timers = self.timers.borrow();
        timers.waits(0..timers.places(), &mut waits);
        waits
    }

    /// Closes the reactor. Waiters are woken and register with another one; timers read the clock.
    pub(crate) fn close(&self) {
        let mut wakers = Vec::new();
        self.reactor.close(&mut wakers);
        self.timers.borrow_mut().fire_all(&mut wakers);
        wake_all(wakers);
        drop_all(self.wakers_to_drop.take());
    }

    /// Applies the operations that were requested elsewhere. (A pool's reactor has none.)
    #[inline]
    fn apply_timer_ops(&self) {
        if self.reactor.timer_op_count.load(Ordering::Relaxed) > 0 {
            self.apply_timer_ops_now();
        }
    }

    #[cold]
    fn apply_timer_ops_now(&self) {
        let ops = {
            let mut ops = self.reactor.timer_ops.lock();
            self.reactor.timer_op_count.store(0, Ordering::Relaxed);
            ops.take()
        };
        let mut timers = self.timers.borrow_mut();
        for (key, op) in ops {
            match op {
                TimerOp::Remove => (self.wakers_to_drop.borrow_mut()).extend(timers.remove(key)),
                TimerOp::Reset(when) => {
                    timers.reset(key, when);
                }
            }
        }
    }
}

/// Locked timers, and operations on local ones.
impl Reactor {
    fn push_timer_op(&self, key: Key, op: TimerOp) {
        let mut ops = self.timer_ops.lock();
        if self.is_closed() {
            return;
        }
        ops.push(key, op);
        self.timer_op_count.store(ops.len(), Ordering::Relaxed);
        drop(ops);
        self.parker.unpark();
    }

    /// Counts fired and suspended ones too.
    #[inline]
    fn has_locked_timers(&self) -> bool {
        self.locked_timer_count.load(Ordering::Relaxed) > 0
    }

    #[inline]
    fn lock_timers_if_any(&self) -> Option<MutexGuard<'_, TimerHeap>> {
        self.has_locked_timers().then(|| self.locked_timers.lock())
    }

    /// Returns `None` if the reactor has closed.
    pub(super) fn insert_locked_timer(&self, when: Instant, waker: Waker) -> Option<Key> {
        let mut timers = self.locked_timers.lock();
        if self.is_closed() {
            drop(timers);
            drop(waker);
            return None;
        }
        let (key, earliest) = timers.insert(when, waker);
        let count = timers.len();
        self.locked_timer_count.store(count, Ordering::Relaxed);
        drop(timers);
        if earliest {
            self.parker.unpark();
        }
        Some(key)
    }

    fn reset_locked_timer(&self, key: Key, when: Option<Instant>) {
        let mut timers = self.locked_timers.lock();
        if self.is_closed() {
            return;
        }
        let earliest = timers.reset(key, when);
        drop(timers);
        if earliest {
            self.parker.unpark();
        }
    }

    /// The waker must be dropped outside all locks. Not inlined, which would cost a timer of a
    /// driver's heap 16 instructions.
    #[inline(never)]
    fn remove_locked_timer(&self, key: Key) -> Option<Waker> {
        let mut timers = self.locked_timers.lock();
        let waker = timers.remove(key);
        let count = timers.len();
        self.locked_timer_count.store(count, Ordering::Relaxed);
        waker
    }
}

/// A handle to a pending timer in one of the heaps: removes it when dropped.
pub(crate) struct TimerHandle {
    key: Key,
    heap: Heap,
}

enum Heap {
    /// In the driver's heap; the reactor is named by id, which avoids reference counting.
    Local(u64),
    Locked(Arc<Reactor>),
    Removed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimerState {
    Fired,
    /// With the driver of this thread, or in a reactor's locked heap.
    Pending,
    /// Owned by another thread's driver, or by a closed reactor.
    NotVisible,
}

/// Without the reactor, since a user's timer prints this.
impl fmt::Debug for TimerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TimerHandle")
    }
}

impl TimerHandle {
    /// Sets a timer that wakes `waker` at `when`. Returns `None` if the reactor has closed. Always
    /// inlined: an out-of-line call costs 40 instructions per timer.
    #[inline(always)]
    pub(crate) fn insert(
        reactor: &Arc<Reactor>,
        driver: Option<&Driver>,
        when: Instant,
        waker: &Waker,
    ) -> Option<TimerHandle> {
        let waker = waker.clone();
        let is_local = |driver: &&Driver| driver.drives(reactor) && reactor.pool.is_none();
        if let Some(driver) = driver.filter(is_local) {
            // The worker is awake, and reads the earliest deadline before it sleeps.
            let (key, _) = driver.timers_of(reactor.id)?.insert(when, waker);
            let heap = Heap::Local(reactor.id);
            return Some(TimerHandle { key, heap });
        }
        let key = reactor.insert_locked_timer(when, waker)?;
        let heap = Heap::Locked(reactor.clone());
        Some(TimerHandle { key, heap })
    }

    /// If the timer is pending, makes it wake `waker`.
    #[inline]
    pub(crate) fn poll(&self, driver: Option<&Driver>, waker: &Waker) -> TimerState {
        // Cloning the waker may change the state.
        let is_pending = Spare::retry(waker, |spare| {
            self.with_heap(driver, |timers| timers.renew_waker(self.key, waker, spare))
                .transpose()
        });
        match is_pending {
            None => TimerState::NotVisible,
            Some(false) => TimerState::Fired,
            Some(true) => TimerState::Pending,
        }
    }

    #[inline]
    fn with_heap<R>(
        &self,
        driver: Option<&Driver>,
        f: impl FnOnce(&mut TimerHeap) -> R,
    ) -> Option<R> {
        match &self.heap {
            Heap::Local(id) => Some(f(&mut *driver?.timers_of(*id)?)),
            Heap::Locked(reactor) => {
                // Checked under the lock: a closing reactor fires all timers, although none is due.
                let mut timers = reactor.locked_timers.lock();
                (!reactor.is_closed()).then(|| f(&mut timers))
            }
            Heap::Removed => None,
        }
    }

    /// Returns the reactor if the timer is in its locked heap, which every thread can access.
    #[inline]
    pub(crate) fn locked_in(&self) -> Option<&Arc<Reactor>> {
        match &self.heap {
            Heap::Locked(reactor) => Some(reactor),
            Heap::Local(_) | Heap::Removed => None,
        }
    }

    /// Sets another deadline, whether the timer is pending or has fired; with `None` it never fires
    /// until it is reset. The waker stays, but a timer that has fired has none until it is polled.
    #[inline]
    pub(crate) fn reset(&self, driver: Option<&Driver>, when: Option<Instant>) {
        match &self.heap {
            Heap::Local(id) => {
                // The result does not matter: the worker is awake.
                match driver.and_then(|driver| driver.timers_of(*id)) {
                    Some(mut timers) => _ = timers.reset(self.key, when),
                    None => push_timer_op(*id, self.key, TimerOp::Reset(when)),
                }
            }
            Heap::Locked(reactor) => reactor.reset_locked_timer(self.key, when),
            Heap::Removed => {}
        }
    }

    /// Dropping the handle does the same without a driver.
    pub(crate) fn remove(&mut self, driver: Option<&Driver>) {
        // The waker is dropped outside all locks and borrows.
        match std::mem::replace(&mut self.heap, Heap::Removed) {
            Heap::Local(id) => {
                let timers = driver.and_then(|driver| driver.timers_of(id));
                match timers.map(|mut timers| timers.remove(self.key)) {
                    Some(waker) => drop_all(waker),
                    None => push_timer_op(id, self.key, TimerOp::Remove),
                }
            }
            Heap::Locked(reactor) => drop_all(reactor.remove_locked_timer(self.key)),
            Heap::Removed => {}
        }
    }
}

impl Drop for TimerHandle {
    #[inline]
    fn drop(&mut self) {
        self.remove(None);
    }
}

#[cold]
fn push_timer_op(id: u64, key: Key, op: TimerOp) {
    if let Some(reactor) = Reactor::find(id) {
        reactor.push_timer_op(key, op);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::poller::{Backend, Poller};
    use crate::reactor::{PoolId, Wakeup};
    use crate::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    const FAR: Duration = Duration::from_secs(3_600);

    /// Checks a real reactor and its driver. The wait is left out: that a notification ends it is
    /// the poller's guarantee. So a worker sleeps too long if it found nothing *and* was not
    /// notified. The registry of reactors and foreign code are left out too.
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
            let reactor = Reactor::new(poller, None);
            let driver = Driver::new(reactor.clone(), Arc::default());
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
            let came_before = reactor.parker.park() != Wakeup::None;
            let before = driver.next_timeout();
            remote.join().unwrap();
            let notified = reactor.parker.resume() == Wakeup::Notified;
            let after = driver.next_timeout();
            let changed =
                |timeout: Option<Duration>| timeout.is_none_or(|timeout| timeout < FAR / 2);
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

    /// A timer that is set nearer from elsewhere shortens the sleep that begins.
    #[test]
    fn timer_set_nearer_shortens_beginning_sleep() {
        check(TimerOp::Reset(Some(now())), None, |driver| {
            assert_eq!(driver.next_timeout(), Some(Duration::ZERO));
        });
    }

    /// A timer that is set and then dropped elsewhere is gone and its waker let go.
    #[test]
    fn timer_set_and_dropped_elsewhere_is_gone() {
        check(
            TimerOp::Reset(Some(now())),
            Some(TimerOp::Remove),
            |driver| {
                assert_eq!(driver.timers.borrow().len(), 0, "it is there yet");
                assert_eq!(driver.wakers_to_drop.borrow().len(), 1, "its waker is lost");
            },
        );
    }

    /// A timer that is set elsewhere shortens the sleep of a leader.
    #[test]
    fn timer_set_elsewhere_shortens_leaders_sleep() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let reactor = Reactor::new(
                Poller::new(Backend::default()).unwrap(),
                Some(PoolId::new()),
            );
            let driver = Driver::new(reactor.clone(), Arc::default());
            let set = |when: Instant| {
                let reactor = reactor.clone();
                move || TimerHandle::insert(&reactor, None, when, Waker::noop()).unwrap()
            };
            // Their order decides which of the two is the earliest when it is set.
            let (first, second) = (set(now() + FAR / 4), set(now()));
            let others = [loom::thread::spawn(first), loom::thread::spawn(second)];
            let until = driver.park_in_reactor(Some(FAR));
            let timers = others.map(|other| other.join().unwrap());
            let notified = reactor.parker.resume() == Wakeup::Notified;
            let timeout = until.duration().unwrap();
            assert!(
                notified || timeout == Duration::ZERO,
                "it sleeps for {timeout:?}"
            );
            drop(timers);
        });
    }

    /// A locked timer that is polled while its reactor closes has not fired.
    #[test]
    fn locked_timer_not_fired_by_closing_reactor() {
        loom::model(|| {
            let reactor = Reactor::new(Poller::new(Backend::default()).unwrap(), None);
            let waker = Waker::noop();
            let timer = TimerHandle::insert(&reactor, None, now() + FAR, waker).unwrap();
            let closer = loom::thread::spawn(move || reactor.close(&mut Vec::new()));
            let state = timer.poll(None, waker);
            closer.join().unwrap();
            assert_ne!(state, TimerState::Fired);
        });
    }

    /// A waker may block on one that was found with it.
    ///
    /// A worker's turns, and a thread that calls wakers that were found together, of which the
    /// first one blocks until the second one was called.
    #[test]
    fn waker_may_block_on_another_found_with_it() {
        struct Second(loom::sync::Arc<AtomicUsize>);
        impl Wake for Second {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::AcqRel);
            }
        }
        struct First(loom::sync::Arc<AtomicUsize>);
        impl Wake for First {
            fn wake(self: Arc<Self>) {
                while self.0.load(Ordering::Acquire) == 0 {
                    loom::thread::yield_now();
                }
            }
        }
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let reactor = Reactor::new(Poller::new(Backend::default()).unwrap(), None);
            let driver = Driver::new(reactor.clone(), Arc::default());
            let woken = loom::sync::Arc::new(AtomicUsize::new(0));
            let wakers = vec![
                Arc::new(First(woken.clone())).into(),
                Arc::new(Second(woken.clone())).into(),
            ];
            let caller = loom::thread::spawn(move || reactor.wake_found_together(wakers));
            while woken.load(Ordering::Acquire) == 0 {
                driver.fire(0, || {});
                loom::thread::yield_now();
            }
            caller.join().unwrap();
            assert_eq!(woken.load(Ordering::Acquire), 1, "it is called once");
            assert!(!driver.has_timers_or_wakers(), "a waker is left");
        });
    }

    /// A worker that falls asleep meanwhile sees them, or is notified.
    #[test]
    fn queued_wakers_end_the_sleep_that_begins() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let reactor = Reactor::new(Poller::new(Backend::default()).unwrap(), None);
            let driver = Driver::new(reactor.clone(), Arc::default());
            let caller = {
                let reactor = reactor.clone();
                let queue = move || reactor.queue_and_unpark(&mut vec![Waker::noop().clone(); 3]);
                loom::thread::spawn(move || assert_eq!(queue(), 3))
            };
            let came_before = reactor.parker.park() != Wakeup::None;
            let before = driver.next_timeout();
            caller.join().unwrap();
            let notified = reactor.parker.resume() == Wakeup::Notified;
            assert!(came_before || notified || before == Some(Duration::ZERO));
            assert_eq!(driver.next_timeout(), Some(Duration::ZERO), "it is lost");
            driver.fire(0, || {});
            assert_eq!(driver.next_timeout(), None, "it is there yet");
        });
    }

    /// A timer that is suspended and then set elsewhere fires.
    #[test]
    fn timer_suspended_then_set_elsewhere_fires() {
        check(
            TimerOp::Reset(None),
            Some(TimerOp::Reset(Some(now()))),
            |driver| {
                assert_eq!(driver.next_timeout(), Some(Duration::ZERO));
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A closed reactor has no queued wakers, nor a count of them.
    #[cfg(not(loom))]
    #[test]
    fn closed_reactor_has_no_queued_wakers() {
        use crate::poller::{Backend, Poller};
        let reactor = Reactor::new(Poller::new(Backend::default()).unwrap(), None);
        let driver = Driver::new(reactor.clone(), Default::default());
        assert_eq!(reactor.queue_wakers(&mut vec![Waker::noop().clone(); 3]), 3);
        driver.close();
        assert!(!reactor.has_queued_wakers());
        assert_eq!(driver.next_timeout(), None);
    }

    /// A wait that fails delivers the events that it has found before.
    #[cfg(all(unix, not(loom)))]
    #[test]
    fn failed_wait_delivers_events_found_before() {
        use crate::poller::{Backend, Capabilities, Change, Event, Poller, Ready, Selector, Token};
        use crate::reactor::wake_count::WakeCount;
        use crate::reactor::{Added, Direction, Held, Io};
        use crate::sync::Mutex;
        use crate::sys::BorrowedDescriptor;
        use std::os::unix::net::UnixStream;

        /// Reports the source that was registered last, as an edge, and then fails.
        struct FailsAfterEvent(Mutex<Option<Token>>);

        impl Selector for FailsAfterEvent {
            fn capabilities(&self) -> Capabilities {
                Poller::new(Backend::default()).unwrap().capabilities()
            }

            fn change(&self, _: BorrowedDescriptor<'_>, change: Change) -> io::Result<()> {
                if let Change::Register(request) = change {
                    *self.0.lock() = Some(request.token);
                }
                Ok(())
            }

            fn wait(&self, events: &mut Events, _: WaitUntil) -> io::Result<bool> {
                if let Some(token) = self.0.lock().take() {
                    events.push(Event::new(token, Ready::READABLE));
                }
                Err(io::ErrorKind::OutOfMemory.into())
            }

            fn notify(&self) -> io::Result<()> {
                Ok(())
            }
        }

        for (wait, until) in [
            (Driver::wait::<false> as fn(&Driver, _) -> _, WaitUntil::Now),
            (Driver::wait::<false>, WaitUntil::Forever),
            (Driver::wait::<true>, WaitUntil::Forever),
        ] {
            let poller = Poller::of_selector(FailsAfterEvent(Mutex::default()));
            let reactor = Reactor::new(poller, None);
            let driver = Driver::new(reactor.clone(), Arc::default());
            let io = Io::new(Held::Owned(UnixStream::pair().unwrap().0.into()), None);
            let (source, direction) = (io.source(), Direction::Read);
            source.clear(direction, source.snapshot(direction));
            let count = Arc::new(WakeCount::default());
            let waker = Waker::from(count.clone());
            let registered = source.add_waiter(&reactor, direction, io.id(), &waker);
            assert_eq!(registered.unwrap(), Added::Waiting);
            for _ in 0..2 {
                let error = wait(&driver, until).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
                driver.call_wakers();
                assert_eq!(count.get(), 1, "the edge, once");
            }
            // Otherwise the source would hold itself.
            reactor.close(&mut Vec::new());
        }
    }

    /// With slack a wake up is at the next moment of the grid and never early.
    #[test]
    fn slack_wakes_on_grid_never_early() {
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
}
