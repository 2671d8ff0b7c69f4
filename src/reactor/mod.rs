//! Poller, sources and deadlines of one worker: what turns kernel events into wakes.
//!
//! A [`Reactor`] is shared (`Arc`): its worker drives it by [`wait`](Reactor::wait) and
//! [`fire`](Reactor::fire), and every thread may register sources and timers with it. What can be
//! reached from elsewhere is behind two locks, held for moments: the table of sources and the heap
//! of deadlines. Wakers are collected under them and called after.
//!
//! **Sleeping.** The worker goes to sleep by [`park`](parking): it declares itself parked, *then*
//! looks at its inbox and at the earliest deadline, and then waits. A thread that sets an earlier
//! deadline does so under the deadlines' lock and unparks afterwards: it comes before the worker's
//! look, and is seen, or after, and then the worker is parked already and is notified.
//!
//! **Tokens** name a place in the table and the generation of its occupant. They are never used
//! twice (a place whose generations run out is retired), so an event that comes late finds nobody.

mod deadlines;
mod parking;
mod readiness;
mod source;

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use crate::poller::{Events, Mode, Poller, Token};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Mutex, wake_all};
use crate::sys::BorrowedDescriptor;
use deadlines::{Deadlines, Key};
use parking::Parking;

pub(crate) use readiness::{Direction, Snapshot, WaiterId};
pub(crate) use source::{Io, Kind, Source};

#[derive(Debug)]
pub(crate) struct Reactor {
    poller: Poller,
    mode: Mode,
    parking: Parking,
    sources: Mutex<Table>,
    deadlines: Mutex<Deadlines>,
    /// How many sources and timers there are, for a glance without the locks: what is seen here
    /// may be old, but never is for the thread that drives the reactor and made the change itself.
    /// Both are written under their locks only.
    source_count: AtomicUsize,
    timer_count: AtomicUsize,
    /// Set once, before the table is emptied: nothing is registered any more.
    closed: AtomicBool,
}

/// What the thread that drives a reactor brings along: memory that is used again in each turn.
#[derive(Debug, Default)]
pub(crate) struct Driver {
    events: Events,
    wakers: Vec<Waker>,
}

thread_local! {
    /// Where the reactor lies that this thread drives, for comparing only; null if there is none.
    static DRIVEN: Cell<*const Reactor> = const { Cell::new(std::ptr::null()) };
}

/// Says which reactor this thread drives from now on, and gives the one before.
pub(crate) fn replace_driven(reactor: *const Reactor) -> *const Reactor {
    DRIVEN.replace(reactor)
}

impl Reactor {
    /// Whether this thread drives it: then its worker is awake.
    #[inline]
    pub(crate) fn is_driven_here(&self) -> bool {
        std::ptr::eq(DRIVEN.get(), self)
    }

    pub(crate) fn new(poller: Poller) -> Reactor {
        let can = poller.capabilities();
        Reactor {
            poller,
            mode: match (can.edge, can.level) {
                (true, _) => Mode::Edge,
                (false, true) => Mode::Level,
                (false, false) => Mode::OneShot,
            },
            parking: Parking::new(),
            sources: Mutex::new(Table::default()),
            deadlines: Mutex::new(Deadlines::new()),
            source_count: AtomicUsize::new(0),
            timer_count: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        }
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

    /// There is something for the worker where it looks before it sleeps: wakes it if it sleeps.
    ///
    /// Not where this thread drives the reactor: between `park` and the end of the wait it runs nobody
    /// else's code, so what was put somewhere here is found at the next look.
    #[inline]
    pub(crate) fn unpark(&self) {
        if !self.is_driven_here() && self.parking.unpark() {
            self.notify();
        }
    }

    /// Whether the worker sleeps, or is about to.
    #[inline]
    pub(crate) fn is_parked(&self) -> bool {
        self.parking.is_parked()
    }

    /// Wakes the worker if it sleeps; false if it does not.
    pub(crate) fn try_unpark(&self) -> bool {
        let asleep = self.parking.unpark();
        if asleep {
            self.notify();
        }
        asleep
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

    #[inline]
    pub(crate) fn resume(&self) {
        self.parking.resume();
    }

    // Driving.

    /// Whether the poller may have something to tell.
    #[inline]
    pub(crate) fn has_sources(&self) -> bool {
        self.source_count.load(Ordering::Relaxed) > 0
    }

    /// How long the worker may sleep for its timers' sake. `None`: for ever. Reads the clock only
    /// where a timer is pending.
    #[inline]
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        // The same argument as for the inbox: whoever sets a timer raises the count and then
        // unparks, the worker parks and then looks at the count.
        if self.timer_count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let earliest = self.deadlines.lock().earliest()?;
        Some(earliest.saturating_duration_since(Instant::now()))
    }

    /// Waits once and wakes those whose sources are ready. True if any was.
    pub(crate) fn wait(&self, driver: &mut Driver, timeout: Option<Duration>) -> io::Result<bool> {
        let Driver { events, wakers } = driver;
        if self.poller.wait_alone(events, timeout)? == 0 {
            return Ok(false);
        }
        let table = self.sources.lock();
        for event in &*events {
            if let Some(source) = table.get(event.token()) {
                source.deliver(self, event.token(), event.ready(), wakers);
            }
        }
        drop(table);
        Ok(wake(wakers))
    }

    /// Wakes those whose timers are due. True if any was.
    #[inline]
    pub(crate) fn fire(&self, driver: &mut Driver) -> bool {
        if self.timer_count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut deadlines = self.deadlines.lock();
        if deadlines.is_empty() {
            return false;
        }
        deadlines.fire(now(), &mut driver.wakers);
        drop(deadlines);
        wake(&mut driver.wakers)
    }

    /// Registers nothing from here on, and sends everything that is registered elsewhere: its
    /// waiters are woken, and those that still want something register with the reactor that they
    /// find then. Timers count as fired until they look at the clock.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let mut wakers = Vec::new();
        self.deadlines.lock().abandon(&mut wakers);
        let sources = std::mem::take(&mut *self.sources.lock()).sources;
        for source in sources.into_iter().flat_map(|place| place.source) {
            source.orphan(self, &mut wakers);
        }
        wake(&mut wakers);
    }

    /// The poller's descriptor, for a foreign loop.
    pub(crate) fn descriptor(&self) -> io::Result<BorrowedDescriptor<'_>> {
        self.poller.descriptor()
    }

    /// Makes the descriptor readable when the earliest timer is due.
    pub(crate) fn arm(&self) -> io::Result<()> {
        self.poller.arm(self.next_timeout())
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

/// What time it is: asked here and nowhere else, so that another clock can answer.
#[inline]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// True if there is anyone to wake.
#[inline]
fn wake(wakers: &mut Vec<Waker>) -> bool {
    let any = !wakers.is_empty();
    wake_all(wakers.drain(..));
    any
}

/// What registering with a reactor that has closed says. Callers ask for another reactor.
fn closed() -> io::Error {
    io::Error::new(
        io::ErrorKind::NotConnected,
        "the runtime that this was to be registered with has ended",
    )
}

/// The sources by token: generation in the upper half, place in the lower.
#[derive(Debug, Default)]
struct Table {
    sources: Vec<Place>,
    free: Vec<u32>,
    len: usize,
}

#[derive(Debug)]
struct Place {
    generation: u32,
    source: Option<Arc<Source>>,
}

/// A place whose generation comes to this is not used again; so no token is ever used twice, nor
/// one of the poller's own.
const LAST_GENERATION: u32 = u32::MAX;

impl Table {
    fn len(&self) -> usize {
        self.len
    }

    fn insert(&mut self, source: Arc<Source>) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.sources.push(Place {
                generation: 0,
                source: None,
            });
            u32::try_from(self.sources.len() - 1).expect("fewer than 2^32 descriptors")
        });
        let place = &mut self.sources[index as usize];
        place.source = Some(source);
        self.len += 1;
        Token(u64::from(place.generation) << 32 | u64::from(index))
    }

    #[inline]
    fn get(&self, token: Token) -> Option<&Arc<Source>> {
        let place = self.sources.get(token.0 as u32 as usize)?;
        match place.generation == (token.0 >> 32) as u32 {
            true => place.source.as_ref(),
            false => None,
        }
    }

    fn remove(&mut self, token: Token) -> Option<Arc<Source>> {
        self.get(token)?;
        let index = token.0 as u32;
        let place = &mut self.sources[index as usize];
        place.generation += 1;
        self.len -= 1;
        if place.generation != LAST_GENERATION {
            self.free.push(index);
        }
        place.source.take()
    }
}

/// A timer's place in a reactor's heap, given up when dropped. Timers follow their users too: the
/// owner drops its alarm and sets another one when it is polled on another worker.
#[derive(Debug)]
pub(crate) struct Alarm {
    reactor: Arc<Reactor>,
    /// `None` only while dropping.
    key: Option<Key>,
}

impl Alarm {
    /// Wakes `waker` at `when`. `None` if the reactor has closed.
    pub(crate) fn set(reactor: &Arc<Reactor>, when: Instant, waker: &Waker) -> Option<Alarm> {
        let waker = waker.clone();
        let mut deadlines = reactor.deadlines.lock();
        if reactor.is_closed() {
            drop(deadlines);
            drop(waker);
            return None;
        }
        let (key, earliest) = deadlines.insert(when, waker);
        let count = deadlines.len();
        reactor.timer_count.store(count, Ordering::Relaxed);
        drop(deadlines);
        if earliest {
            reactor.unpark();
        }
        Some(Alarm {
            reactor: reactor.clone(),
            key: Some(key),
        })
    }

    pub(crate) fn is_with(&self, reactor: &Arc<Reactor>) -> bool {
        Arc::ptr_eq(&self.reactor, reactor)
    }

    /// Whether its reactor has gone: then it counts as fired, whatever the time.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.reactor.is_closed()
    }

    /// Ready once it has fired, or is abandoned; until then `waker` is the one to be woken.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<()> {
        let mut deadlines = self.reactor.deadlines.lock();
        let result = deadlines.set_waker(self.key(), waker);
        drop(deadlines);
        match result {
            Ok(_displaced) => Poll::Pending,
            Err(_fired) => Poll::Ready(()),
        }
    }

    /// Whoever is to be woken.
    pub(crate) fn waker(&self) -> Option<Waker> {
        self.reactor.deadlines.lock().waker(self.key()).cloned()
    }

    /// Moves it, pending or fired. A fired one has no waker until it is polled.
    pub(crate) fn reset(&self, when: Instant) {
        let mut deadlines = self.reactor.deadlines.lock();
        if self.reactor.is_closed() {
            return;
        }
        let earliest = deadlines.reset(self.key(), when);
        drop(deadlines);
        if earliest {
            self.reactor.unpark();
        }
    }

    fn key(&self) -> &Key {
        self.key.as_ref().expect("it is taken only by drop")
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            let mut deadlines = self.reactor.deadlines.lock();
            let waker = deadlines.remove(key);
            let count = deadlines.len();
            self.reactor.timer_count.store(count, Ordering::Relaxed);
            drop(deadlines);
            drop(waker);
        }
    }
}
