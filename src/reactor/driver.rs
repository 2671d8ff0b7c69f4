//! The half of a reactor that is the thread's that drives it.
//!
//! A [`Driver`] waits and wakes, and holds what therefore needs no lock: the worker's *own* timers.
//! Which one a thread drives, the scheduler knows, and tells where that matters.
//!
//! **Own timers.** A timer that has to wait on the thread that drives a reactor lies in that driver's
//! heap. Setting it, pushing it back and dropping it there costs no lock and no atomic, and that is
//! where nearly all timers spend their lives. An own timer that is touched from elsewhere (by another
//! thread, or by this one while it drives another runtime, or none) leaves word in the reactor, a
//! [`TimerOp`], and unparks the worker, which does what it says before it does anything else to the heap.
//! Word is left like mail, and not lost for the same reason: see the head of `parking`.
//!
//! **Visitors** are the timers of threads that drive nothing. They lie in the background runtime's
//! reactor, in a second heap, behind a lock.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::timer_heap::{Key, TimerHeap};
use super::{Reactor, now};
use crate::poller::{Events, Until};
use crate::sync::{drop_all, wake_all};

pub(crate) struct Driver {
    reactor: Arc<Reactor>,
    deadlines: RefCell<TimerHeap>,
    /// Wakers of timers that were dropped elsewhere: to be dropped where anybody's code may run.
    gone: RefCell<Vec<Waker>>,
    /// A time that the clock has reached, known from the last wait: spares reading it.
    reached: Cell<Option<Instant>>,
    /// Taken for the length of a wait. A turn within a turn makes its own.
    scratch: Cell<Option<Box<Scratch>>>,
}

/// Events taken from the kernel at once, and tasks run between two looks at it. As many of one as of the
/// other: so the queue of ready tasks stays short, and what was touched when an event was delivered is
/// still in the nearest cache when its task runs; and those that wait are served in the kernel's order.
/// From 32 to 64 a look costs nothing that can be measured beside them (Linux 6.18), and none of them waits
/// for long.
pub(crate) const BATCH: usize = 64;

/// A wait that the kernel ended at a deadline ended little later: a thread that is woken runs within about so
/// long. Timers that are due within it are looked at by the clock.
const NEAR: Duration = Duration::from_millis(1);

/// Memory that is used again in each turn.
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

/// What is to be done to an own timer, said from elsewhere.
#[derive(Clone, Debug)]
pub(super) enum TimerOp {
    Remove,
    Reset(Instant),
    Suspend,
}

/// Word left for the driver: for each timer what was said last, which makes up for whatever was said
/// before. So there are never more words than timers, however long nobody drives the worker. (No timer
/// takes the place of one that is to be removed before the driver has done that.)
#[derive(Debug, Default)]
pub(super) struct TimerOps {
    /// With the order in which they were said, which is that among equal deadlines.
    words: BTreeMap<Key, (u64, TimerOp)>,
    count: u64,
}

impl TimerOps {
    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    pub(super) fn add(&mut self, key: Key, stray: TimerOp) {
        self.count += 1;
        self.words.insert(key, (self.count, stray));
    }

    /// All of them, in their order.
    pub(super) fn take(&mut self) -> Vec<(Key, TimerOp)> {
        let mut words: Vec<_> = std::mem::take(&mut self.words).into_iter().collect();
        words.sort_unstable_by_key(|(_, (order, _))| *order);
        words
            .into_iter()
            .map(|(key, (_, stray))| (key, stray))
            .collect()
    }
}

impl Driver {
    pub(crate) fn new(reactor: Arc<Reactor>) -> Driver {
        Driver {
            reactor,
            deadlines: RefCell::new(TimerHeap::new()),
            gone: RefCell::default(),
            reached: Cell::default(),
            scratch: Cell::default(),
        }
    }

    #[inline]
    pub(crate) fn reactor(&self) -> &Arc<Reactor> {
        &self.reactor
    }

    /// Whether it is `reactor`'s.
    #[inline]
    pub(crate) fn drives(&self, reactor: &Reactor) -> bool {
        std::ptr::eq(&*self.reactor, reactor)
    }

    /// Calls `f` with its own timers, if it is the driver of the reactor called `id`, and that has not
    /// closed. What was said of them from elsewhere before is done before.
    #[inline]
    pub(super) fn with_own<R>(&self, id: u64, f: impl FnOnce(&mut TimerHeap) -> R) -> Option<R> {
        if self.reactor.id != id || self.reactor.is_closed() {
            return None;
        }
        self.read_strays();
        Some(f(&mut self.deadlines.borrow_mut()))
    }

    /// Until when the worker may sleep: for `timeout` at most, and not beyond its earliest timer. Reads the
    /// clock only where there is either.
    #[inline]
    pub(crate) fn until(&self, timeout: Option<Duration>) -> Until {
        self.read_strays();
        if !self.gone.borrow().is_empty() {
            return Until::Now;
        }
        match self.has_timers() {
            true => self.until_earliest(timeout),
            false => Until::after(timeout, now),
        }
    }

    /// How long the worker may sleep for its timers' sake. `None`: for ever.
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        self.until(None).timeout()
    }

    #[inline]
    fn has_timers(&self) -> bool {
        !self.deadlines.borrow().is_empty() || self.reactor.has_visitors()
    }

    fn earliest(&self) -> Option<Instant> {
        let own = self.deadlines.borrow_mut().earliest();
        let visiting = self.reactor.earliest_visitor();
        own.into_iter().chain(visiting).min()
    }

    fn until_earliest(&self, timeout: Option<Duration>) -> Until {
        let now = now();
        let end = timeout.and_then(|timeout| now.checked_add(timeout));
        match self.earliest().into_iter().chain(end).min() {
            Some(deadline) => Until::Deadline { deadline, now },
            None => Until::Never,
        }
    }

    /// Waits once and wakes those whose sources are ready. True if any was.
    ///
    /// In between it calls `awake`, with whether there is anyone to wake: the worker is to resume there,
    /// before anybody else's code runs. See "Foreign code" at the head of `parking`.
    #[inline]
    pub(crate) fn wait(&self, until: Until, awake: impl FnOnce(bool)) -> io::Result<bool> {
        let mut scratch = self.scratch.take().unwrap_or_default();
        let Scratch { events, wakers } = &mut *scratch;
        let result = self.reactor.wait(self, events, until, wakers);
        self.reached.set(*result.as_ref().unwrap_or(&None));
        awake(!scratch.wakers.is_empty());
        let any = wake(&mut scratch.wakers);
        self.scratch.set(Some(scratch));
        result.map(|_| any)
    }

    /// Wakes those whose timers are due. True if any was. `before` is called before anybody else's code
    /// runs, if any does.
    #[inline]
    pub(crate) fn fire(&self, before: impl Fn()) -> bool {
        self.let_go(&before);
        let reached = self.reached.take();
        self.has_timers() && self.fire_due(reached, before)
    }

    /// Drops the wakers of timers that were dropped elsewhere. Anybody's code may run, so not between
    /// `park` and `resume`.
    #[inline]
    pub(crate) fn let_go(&self, before: impl Fn()) {
        self.read_strays();
        if !self.gone.borrow().is_empty() {
            before();
            drop_all(self.gone.take());
        }
    }

    fn fire_due(&self, reached: Option<Instant>, before: impl Fn()) -> bool {
        let mut scratch = self.scratch.take().unwrap_or_default();
        let mut fire = |now| {
            self.deadlines.borrow_mut().fire(now, &mut scratch.wakers);
            self.reactor.fire_visitors(now, &mut scratch.wakers);
        };
        if let Some(reached) = reached {
            fire(reached);
        }
        // Without a reading, or where the next timer is so near that it may be due by now.
        if reached.is_none_or(|reached| self.earliest().is_some_and(|it| it < reached + NEAR)) {
            fire(now());
        }
        if !scratch.wakers.is_empty() {
            before();
        }
        let any = wake(&mut scratch.wakers);
        self.scratch.set(Some(scratch));
        any
    }

    /// Makes the poller's descriptor readable when the earliest timer is due, or `timeout` has elapsed.
    pub(crate) fn arm(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.reactor.poller().arm(self.until(timeout))
    }

    /// Closes the reactor: nothing is registered with it from here on, and whatever is, is sent
    /// elsewhere. Waiters are woken, and those that still want something register with the reactor
    /// that they find then; timers look at the clock.
    pub(crate) fn close(&self) {
        let mut wakers = Vec::new();
        self.reactor.close(&mut wakers);
        self.deadlines.borrow_mut().abandon(&mut wakers);
        wake(&mut wakers);
        drop_all(self.gone.take());
    }

    /// Does what was said from elsewhere.
    #[inline]
    fn read_strays(&self) {
        if self.reactor.has_strays() {
            self.read_strays_now();
        }
    }

    #[cold]
    fn read_strays_now(&self) {
        let strays = self.reactor.take_strays();
        let mut deadlines = self.deadlines.borrow_mut();
        for (key, stray) in strays {
            match stray {
                TimerOp::Remove => self.gone.borrow_mut().extend(deadlines.remove(key)),
                TimerOp::Reset(when) => {
                    deadlines.reset(key, when);
                }
                TimerOp::Suspend => deadlines.suspend(key),
            }
        }
    }
}

/// True if there is anyone to wake.
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

    const FAR: Duration = Duration::from_secs(3_600);

    /// A reactor and its driver as they are; what is left out is the wait itself: that a notification ends
    /// it is the poller's promise. So a worker that sleeps too long is one that looked in vain *and* was not
    /// notified. Left out too: who finds the reactor by its name, and foreign code.
    fn check(
        first: TimerOp,
        second: Option<TimerOp>,
        judge: impl Fn(&Driver) + Send + Sync + 'static,
    ) {
        let words = std::sync::Mutex::new((first, second));
        let words = move || {
            let words = words.lock().unwrap();
            (words.0.clone(), words.1.clone())
        };
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let poller = Poller::new(Backend::default()).unwrap();
            let reactor = Reactor::new(poller);
            let driver = Driver::new(reactor.clone());
            let insert = |when| (driver.deadlines.borrow_mut()).insert(when, Waker::noop().clone());
            let (key, _) = insert(now() + FAR);
            let (first, second) = words();
            let remote = {
                let reactor = reactor.clone();
                loom::thread::spawn(move || {
                    reactor.send_op(key, first);
                    if let Some(second) = second {
                        reactor.send_op(key, second);
                    }
                })
            };
            reactor.park();
            let before = driver.next_timeout();
            remote.join().unwrap();
            let notified = reactor.resume();
            let after = driver.next_timeout();
            let changed = |timeout: Option<Duration>| timeout.is_none_or(|it| it < FAR / 2);
            assert!(changed(after), "what was said is lost: {after:?}");
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
            assert_eq!(driver.deadlines.borrow().len(), 0, "it is there yet");
            assert_eq!(driver.gone.borrow().len(), 1, "its waker is lost");
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
    fn there_are_never_more_words_than_timers() {
        let (one, other, when) = two();
        let mut strays = TimerOps::default();
        for i in 0..1_000 {
            let later = when + Duration::from_millis(i);
            strays.add(one, TimerOp::Reset(later));
            strays.add(other, TimerOp::Reset(later));
            strays.add(one, TimerOp::Suspend);
        }
        assert_eq!(strays.len(), 2);
    }

    /// Equal deadlines fire in the order in which they were set, wherever that was.
    #[test]
    fn the_last_word_of_each_timer_counts_in_the_order_in_which_they_were_said() {
        let (one, other, when) = two();
        let mut strays = TimerOps::default();
        strays.add(one, TimerOp::Reset(when));
        strays.add(other, TimerOp::Reset(when));
        strays.add(one, TimerOp::Suspend);
        strays.add(one, TimerOp::Reset(when));
        let said = strays.take();
        assert_eq!(strays.len(), 0);
        let resets = said
            .iter()
            .all(|(_, stray)| matches!(stray, TimerOp::Reset(_)));
        let keys: Vec<Key> = said.iter().map(|(key, _)| *key).collect();
        assert!(resets && keys == [other, one], "{said:?}");
    }
}
