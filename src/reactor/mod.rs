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

mod alarm;
mod deadlines;
mod driver;
pub(crate) mod parking;
mod readiness;
mod source;

use std::io;
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::poller::{Events, Mode, Poller, Token};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::sys::{self, BorrowedDescriptor};
use deadlines::{Deadlines, Key};
use driver::{Stray, Strays};
use parking::Parking;

pub(crate) use alarm::{Alarm, Look};
pub(crate) use driver::{BATCH, Driver, replace as replace_driver};
pub(crate) use readiness::{Direction, Snapshot, WaiterId};
pub(crate) use source::{Io, Kind, Source};

#[derive(Debug)]
pub(crate) struct Reactor {
    /// What it is called, for timers that do not hold it.
    id: u64,
    poller: Poller,
    mode: Mode,
    parking: Parking,
    sources: Mutex<Table>,
    visitors: Mutex<Deadlines>,
    strays: Mutex<Strays>,
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
    /// Whether this thread drives it: then its worker is awake.
    #[inline]
    pub(crate) fn is_driven_here(&self) -> bool {
        driver::drives(self)
    }

    pub(crate) fn new(poller: Poller) -> Arc<Reactor> {
        let can = poller.capabilities();
        let reactor = Arc::new(Reactor {
            id: alarm::new_id(),
            poller,
            mode: match (can.edge, can.level) {
                (true, _) => Mode::Edge,
                (false, true) => Mode::Level,
                (false, false) => Mode::OneShot,
            },
            parking: Parking::new(),
            sources: Mutex::new(Table::default()),
            visitors: Mutex::new(Deadlines::new()),
            strays: Mutex::new(Strays::default()),
            source_count: AtomicUsize::new(0),
            visitor_count: AtomicUsize::new(0),
            stray_count: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        });
        alarm::register(&reactor);
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

    /// There is something for the worker where it looks before it sleeps: wakes it if it sleeps.
    ///
    /// On the thread that drives the reactor that costs a look at its own state: a worker that is
    /// awake looks everywhere before it sleeps.
    #[inline]
    pub(crate) fn unpark(&self) {
        if self.is_driven_here() && self.parking.is_running() {
            return;
        }
        if self.parking.unpark() {
            self.notify();
        }
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

    /// Waits once, and collects those whose sources are ready. For the driver only.
    #[inline]
    fn wait(
        &self,
        events: &mut Events,
        timeout: Option<Duration>,
        wakers: &mut Vec<Waker>,
    ) -> io::Result<()> {
        if self.poller.wait_alone(events, timeout)? == 0 {
            return Ok(());
        }
        let table = self.sources.lock();
        for event in &*events {
            if let Some(source) = table.get(event.token()) {
                source.deliver(self, event.token(), event.ready(), wakers);
            }
        }
        Ok(())
    }

    /// Registers nothing from here on, and gives up all that is registered. For the driver only.
    fn close(&self, wakers: &mut Vec<Waker>) {
        self.closed.store(true, Ordering::Release);
        alarm::deregister(self.id);
        self.visitors().abandon(wakers);
        let sources = std::mem::take(&mut *self.sources.lock()).sources;
        for source in sources.into_iter().flat_map(|place| place.source) {
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

    fn take_strays(&self) -> Vec<(Key, Stray)> {
        let mut strays = self.strays.lock();
        self.stray_count.store(0, Ordering::Relaxed);
        strays.take()
    }

    fn leave_word(&self, key: Key, stray: Stray) {
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

    fn visitors(&self) -> MutexGuard<'_, Deadlines> {
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
        alarm::deregister(self.id);
    }
}

/// What time it is: asked here and nowhere else, so that another clock can answer.
#[inline]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Whether `when` is certainly still to come, as far as a clock tells that is cheaper to read and
/// behind; false where there is none.
#[inline]
pub(crate) fn is_surely_before(when: Instant) -> bool {
    /// One time on both scales; the coarse clock's was read first, so that what is reckoned from it
    /// comes too early rather than too late.
    static SAME: OnceLock<Option<(Duration, Instant)>> = OnceLock::new();
    let same = SAME.get_or_init(|| Some((sys::precise_time()?, now())));
    let (Some((time, instant)), Some(coarse)) = (same, sys::coarse_time()) else {
        return false;
    };
    match when.checked_duration_since(*instant) {
        Some(after) => coarse + sys::COARSENESS < *time + after,
        None => false,
    }
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

#[cfg(all(test, unix, not(loom)))]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn source() -> (Io, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        (Io::new(near.into(), Kind::Other), far)
    }

    /// An event that was taken from the kernel before its source went finds nobody, and not whoever has
    /// the place by then: that one would be woken for what happened to another descriptor, and believe it.
    #[test]
    fn a_token_names_nobody_after_its_source_has_gone_also_when_its_place_is_taken() {
        let mut table = Table::default();
        let ((first, _first), (second, _second)) = (source(), source());
        let old = table.insert(first.source().clone());
        assert!(table.remove(old).is_some());
        let new = table.insert(second.source().clone());
        assert_eq!(
            (old.0 as u32, table.sources.len()),
            (new.0 as u32, 1),
            "one place"
        );
        assert_ne!(old, new, "a token is used twice");
        assert!(
            table.get(old).is_none(),
            "a late event finds the next owner"
        );
        assert!(
            table.remove(old).is_none(),
            "a late removal removes the next owner"
        );
        assert!(Arc::ptr_eq(table.get(new).unwrap(), second.source()));
        assert_eq!(table.len(), 1);
    }

    /// The last generation is never given: the poller's own tokens are there.
    #[test]
    fn a_place_whose_generations_run_out_is_not_used_again() {
        let mut table = Table::default();
        let (io, _far) = source();
        let token = table.insert(io.source().clone());
        table.sources[0].generation = LAST_GENERATION - 1;
        let last = Token(u64::from(LAST_GENERATION - 1) << 32 | token.0);
        assert!(table.remove(last).is_some());
        let next = table.insert(io.source().clone());
        assert_eq!(next.0, 1, "the place is used again");
    }

    /// A server has one for each connection.
    #[test]
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    fn a_source_takes_no_more_than_136_bytes() {
        assert!(size_of::<Source>() <= 136, "{}", size_of::<Source>());
    }
}
