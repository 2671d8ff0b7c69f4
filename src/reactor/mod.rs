//! Poller, sources and deadlines of one worker: what turns kernel events into wakes.
//!
//! A [`Reactor`] is shared (`Arc`): every thread may register sources and timers with it. Its other
//! half, the [`Driver`], is its worker's own: it waits, fires, and holds that worker's timers. What of
//! the reactor can be reached from elsewhere is behind locks, held for moments: the table of sources,
//! the heap of visiting timers, and word left for the driver. Wakers are collected under them and
//! called after.
//!
//! **Sleeping.** The worker goes to sleep by [`park`](parking): it declares itself parked, *then*
//! looks at its inbox, at what word was left, and at the earliest deadline, and then waits. Who sets an
//! earlier deadline from elsewhere does so under a lock and unparks afterwards: it comes before the
//! worker's look, and is seen, or after, and then the worker is parked already and is notified.
//!
//! **Tokens** name a place in the table and the generation of its occupant. They are never used
//! twice (a place whose generations run out is retired), so an event that comes late finds nobody.

mod clock;
mod driver;
pub(crate) mod parking;
mod readiness;
mod source;
mod table;
mod timer;
mod timer_heap;

use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use crate::poller::{Events, Mode, Poller, Token, Until};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::sys::BorrowedDescriptor;
use driver::{TimerOp, TimerOps};
use parking::Parking;
use table::SourceTable;
use timer_heap::{Key, TimerHeap};

pub(crate) use clock::now;
pub(crate) use driver::{BATCH, Driver};
pub(crate) use readiness::{Direction, Snapshot, WaiterId};
pub(crate) use source::{Io, Source, SourceKind};
pub(crate) use timer::{TimerHandle, TimerState};

#[derive(Debug)]
pub(crate) struct Reactor {
    /// What it is called, for timers that do not hold it.
    id: u64,
    poller: Poller,
    mode: Mode,
    parking: Parking,
    sources: Mutex<SourceTable>,
    visitors: Mutex<TimerHeap>,
    strays: Mutex<TimerOps>,
    /// How many sources, visiting timers and words there are, for a glance without the locks: what
    /// is seen here may be old, but never is for the thread that drives the reactor and made the change
    /// itself. Each is written under its lock only.
    source_count: AtomicUsize,
    visitor_count: AtomicUsize,
    stray_count: AtomicUsize,
    /// Set once, before the table is emptied: nothing is registered any more.
    closed: AtomicBool,
}

impl Reactor {
    pub(crate) fn new(poller: Poller) -> Arc<Reactor> {
        let can = poller.capabilities();
        let reactor = Arc::new(Reactor {
            id: timer::new_id(),
            poller,
            mode: match (can.edge, can.level) {
                (true, _) => Mode::Edge,
                (false, true) => Mode::Level,
                (false, false) => Mode::OneShot,
            },
            parking: Parking::new(),
            sources: Mutex::new(SourceTable::default()),
            visitors: Mutex::new(TimerHeap::new()),
            strays: Mutex::new(TimerOps::default()),
            source_count: AtomicUsize::new(0),
            visitor_count: AtomicUsize::new(0),
            stray_count: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        });
        timer::register(&reactor);
        reactor
    }

    #[inline]
    pub(crate) fn poller(&self) -> &Poller {
        &self.poller
    }

    /// How sources are registered: see the head of `source`.
    #[inline]
    fn mode(&self) -> Mode {
        self.mode
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    // Sleeping and waking: see the head of `parking`.

    /// There is something for the worker where it looks before it sleeps: wakes it if it sleeps. Returns
    /// whether it did.
    #[inline]
    pub(crate) fn unpark(&self) -> bool {
        let asleep = self.parking.unpark();
        if asleep {
            self.notify();
        }
        asleep
    }

    /// [`unpark`](Self::unpark) where many are to be told, and one that cannot be must not keep it from the
    /// others.
    pub(crate) fn try_to_unpark(&self) {
        if self.parking.unpark() {
            let _ = self.poller.notify();
        }
    }

    /// Whether the worker sleeps, or is about to.
    #[inline]
    pub(crate) fn is_parked(&self) -> bool {
        self.parking.is_parked()
    }

    /// Whether the worker is awake, and looks everywhere before it sleeps. Exact on the thread that drives it.
    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        self.parking.is_running()
    }

    /// Wakes the current or the next wait in any case.
    #[cold]
    pub(crate) fn notify(&self) {
        // A notification that failed would be a hang somewhere else; there is no known reason for
        // it to fail, and no way to go on if it does.
        self.poller
            .notify()
            .expect("the poller takes a notification");
    }

    /// Declares the worker parked. To be followed by its last look around.
    #[inline]
    pub(crate) fn park(&self) {
        self.parking.park();
    }

    /// The worker is awake. True if somebody has woken it.
    #[inline]
    pub(crate) fn resume(&self) -> bool {
        self.parking.resume()
    }

    // Driving.

    /// Whether the poller may have something to tell.
    #[inline]
    pub(crate) fn has_sources(&self) -> bool {
        self.source_count.load(Ordering::Relaxed) > 0
    }

    /// Waits once, and collects the wakers of sources that are ready. Returns as [`Poller::wait_alone`]. For the
    /// driver only.
    #[inline]
    fn wait(
        &self,
        driver: &Driver,
        events: &mut Events,
        until: Until,
        wakers: &mut Vec<Waker>,
    ) -> io::Result<Option<Instant>> {
        let reached = self.poller.wait_alone(events, until, now)?;
        if events.is_empty() {
            return Ok(reached);
        }
        let table = self.sources.lock();
        for event in &*events {
            if let Some(source) = table.get(event.token()) {
                source.deliver(driver, event.token(), event.ready(), wakers);
            }
        }
        Ok(reached)
    }

    /// Registers nothing from here on, and gives up all that is registered. For the driver only.
    fn close(&self, wakers: &mut Vec<Waker>) {
        self.closed.store(true, Ordering::Release);
        timer::deregister(self.id);
        self.visitors().abandon(wakers);
        let sources = std::mem::take(&mut *self.sources.lock()).into_sources();
        for source in sources {
            source.orphan(self, wakers);
        }
    }

    /// The poller's descriptor, for a foreign loop.
    pub(crate) fn descriptor(&self) -> io::Result<BorrowedDescriptor<'_>> {
        self.poller.descriptor()
    }

    // Word left for the driver.

    #[inline]
    fn has_strays(&self) -> bool {
        self.stray_count.load(Ordering::Relaxed) > 0
    }

    fn take_strays(&self) -> Vec<(Key, TimerOp)> {
        let mut strays = self.strays.lock();
        self.stray_count.store(0, Ordering::Relaxed);
        strays.take()
    }

    fn send_op(&self, key: Key, stray: TimerOp) {
        let mut strays = self.strays.lock();
        if self.is_closed() {
            return;
        }
        strays.add(key, stray);
        self.stray_count.store(strays.len(), Ordering::Relaxed);
        drop(strays);
        self.unpark();
    }

    // Visiting timers: for `alarm` and `driver` only.

    fn visitors(&self) -> MutexGuard<'_, TimerHeap> {
        self.visitors.lock()
    }

    #[inline]
    fn has_visitors(&self) -> bool {
        self.visitor_count.load(Ordering::Relaxed) > 0
    }

    /// When the first of them is due.
    #[inline]
    fn earliest_visitor(&self) -> Option<Instant> {
        match self.has_visitors() {
            true => self.visitors().earliest(),
            false => None,
        }
    }

    /// Collects those that are due.
    #[inline]
    fn fire_visitors(&self, now: Instant, wakers: &mut Vec<Waker>) {
        if self.has_visitors() {
            self.visitors().fire(now, wakers);
        }
    }

    /// `None` if the reactor has closed.
    fn insert_visitor(&self, when: Instant, waker: Waker) -> Option<Key> {
        let mut visitors = self.visitors();
        if self.is_closed() {
            drop(visitors);
            drop(waker);
            return None;
        }
        let (key, earliest) = visitors.insert(when, waker);
        let count = visitors.len();
        self.visitor_count.store(count, Ordering::Relaxed);
        drop(visitors);
        if earliest {
            self.unpark();
        }
        Some(key)
    }

    fn reset_visitor(&self, key: Key, when: Instant) {
        let mut visitors = self.visitors();
        if self.is_closed() {
            return;
        }
        let earliest = visitors.reset(key, when);
        drop(visitors);
        if earliest {
            self.unpark();
        }
    }

    /// What is returned is to be dropped outside all locks.
    fn remove_visitor(&self, key: Key) -> Option<Waker> {
        let mut visitors = self.visitors();
        let waker = visitors.remove(key);
        let count = visitors.len();
        self.visitor_count.store(count, Ordering::Relaxed);
        waker
    }

    // Sources: for `source` only.

    fn insert(&self, source: Arc<Source>) -> io::Result<Token> {
        let mut table = self.sources.lock();
        if self.is_closed() {
            return Err(closed());
        }
        let token = table.insert(source);
        self.source_count.store(table.len(), Ordering::Relaxed);
        Ok(token)
    }

    /// What is returned is to be dropped outside all locks.
    fn remove(&self, token: Token) -> Option<Arc<Source>> {
        let mut table = self.sources.lock();
        let source = table.remove(token);
        self.source_count.store(table.len(), Ordering::Relaxed);
        source
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        timer::deregister(self.id);
    }
}

/// What registering with a reactor that has closed says. Callers ask for another reactor.
fn closed() -> io::Error {
    io::Error::new(
        io::ErrorKind::NotConnected,
        "the runtime that this was to be registered with has ended",
    )
}
