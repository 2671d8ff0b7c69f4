//! Turns kernel events and timers into wakes: the poller, the sources and the timers of one worker,
//! or of a shard of pool workers.
//!
//! A [`Reactor`] is shared (`Arc`): every thread may register sources and timers with it. Its other
//! half, the [`Driver`], belongs to the worker's thread: it waits, fires timers, and holds the
//! worker's local timers. The collections that other threads reach are behind locks, which are held
//! only briefly: the table of sources, the heap of locked timers, the operations queued for the
//! driver, and the wakers queued for whoever drives the reactor next. Wakers are collected under
//! these locks and called after their release, except for a task's own waker: see [`waiters`].
//!
//! **Sleeping.** The worker goes to sleep by [`park`](parking). A thread that queues an operation
//! for it, or sets an earlier deadline for it, does so under a lock and unparks afterwards. If
//! that comes before the worker parks, `park` reports it; if it comes after, the worker is
//! notified.
//!
//! **Tokens**: see [`table`].

mod driver;
#[cfg(all(unix, not(loom)))]
mod fork;
pub(crate) mod parking;
mod readiness;
mod registration;
mod registry;
mod sorted;
mod source;
mod table;
mod timer;
mod timer_heap;
mod waiters;

use std::collections::VecDeque;
use std::io;
use std::iter;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::clock::now;
use crate::poller::{Events, Mode, Poller, Token, Until};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard, wake_all};
use crate::sys::AsRawDescriptor;
use crate::telemetry::{Counters, Mark};
use driver::{TimerOp, TimerOps};
use parking::Parking;
use table::SourceTable;
use timer_heap::{Key, TimerHeap};

pub(crate) use driver::{BATCH, Driver};
pub(crate) use parking::Wakeup;
pub(crate) use readiness::{Direction, Registered, Snapshot};
pub(crate) use source::{Blocked, Io, Source, SourceKind, SourceWait, Trust};
pub(crate) use timer::{TimerHandle, TimerState};
pub(crate) use timer_heap::TimerWait;
pub(crate) use waiters::{Own, WaiterId};

/// The number of table places that a dump visits per acquisition of the lock: some microseconds.
const CHUNK: usize = 256;

pub(crate) struct Reactor {
    /// Names the reactor for timers that do not hold a reference to it.
    id: u64,
    poller: Poller,
    /// The mode in which sources are registered: see the head of `source`.
    mode: Mode,
    /// The kind of sources that stay registered for writing, if any.
    stays_writable: Option<SourceKind>,
    /// Identifies the pool of the workers that drive this reactor, if it is that of a shard: the id
    /// of the first such reactor. All its timers are in the locked heap then, where every worker of
    /// the shard can fire them: see `driver`.
    pool_id: Option<u64>,
    parking: Parking,
    /// The reactor of the shard that this reactor's worker belongs to, if it is a pool worker's;
    /// and whether the worker leads: when it sleeps, it waits in that one's poller instead of this
    /// one's. Written by the worker's thread before it parks: see [`park_as`](Self::park_as).
    shard: Option<Arc<Reactor>>,
    leads: AtomicBool,
    /// Counters of the worker that this reactor belongs to.
    counters: Arc<Counters>,
    sources: Mutex<SourceTable>,
    locked_timers: Mutex<TimerHeap>,
    timer_ops: Mutex<TimerOps>,
    /// Wakers that were found together and are to be called: see "Foreign wakers" in `parking`.
    queued_wakers: Mutex<VecDeque<Waker>>,
    /// Lengths of the four collections above, readable without their locks. A value may be stale,
    /// but not on the thread that drives the reactor and made the change itself. Each is written
    /// under its lock only.
    source_count: AtomicUsize,
    locked_timer_count: AtomicUsize,
    timer_op_count: AtomicUsize,
    queued_waker_count: AtomicUsize,
    /// Set once, before the table is emptied; from then on registrations are refused.
    closed: AtomicBool,
}

impl Reactor {
    pub(crate) fn new(poller: Poller) -> Arc<Reactor> {
        Reactor::with(registry::new_id(), poller, None, None)
    }

    /// Creates the reactor of a shard, which its workers drive, one at a time. `first` is that of
    /// the pool's first shard, if this is another one.
    pub(crate) fn for_shard(poller: Poller, first: Option<&Reactor>) -> Arc<Reactor> {
        let id = registry::new_id();
        Reactor::with(id, poller, Some(first.map_or(id, |first| first.id)), None)
    }

    /// Creates the reactor in which one worker of a pool sleeps. Nothing is registered with it:
    /// sources and timers are with the reactor of its `shard`.
    pub(crate) fn for_pool_worker(poller: Poller, shard: &Arc<Reactor>) -> Arc<Reactor> {
        Reactor::with(registry::new_id(), poller, None, Some(shard.clone()))
    }

    fn with(
        id: u64,
        poller: Poller,
        pool_id: Option<u64>,
        shard: Option<Arc<Reactor>>,
    ) -> Arc<Reactor> {
        let can = poller.capabilities();
        let reactor = Arc::new(Reactor {
            id,
            poller,
            mode: match (can.edge, can.level) {
                (true, _) => Mode::Edge,
                (false, true) => Mode::Level,
                (false, false) => Mode::OneShot,
            },
            stays_writable: (can.edge && can.tcp_room_on_demand).then_some(SourceKind::TcpStream),
            pool_id,
            parking: Parking::default(),
            shard,
            leads: AtomicBool::new(false),
            counters: Arc::default(),
            sources: Mutex::new(SourceTable::default()),
            locked_timers: Mutex::new(TimerHeap::new()),
            timer_ops: Mutex::new(TimerOps::default()),
            queued_wakers: Mutex::new(VecDeque::new()),
            source_count: AtomicUsize::new(0),
            locked_timer_count: AtomicUsize::new(0),
            timer_op_count: AtomicUsize::new(0),
            queued_waker_count: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        });
        registry::add(&reactor);
        reactor
    }

    #[inline]
    pub(crate) fn poller(&self) -> &Poller {
        &self.poller
    }

    #[inline]
    pub(crate) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Whether this and `other`, which may be the same, are reactors of one pool.
    #[inline]
    pub(crate) fn shares_pool_with(&self, other: &Reactor) -> bool {
        self.pool_id.is_some() && self.pool_id == other.pool_id
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    // Sleeping and waking: see the head of `parking`.

    /// Wakes the worker if it sleeps. Called after something was put where the worker looks before
    /// it sleeps. Returns whether it slept.
    #[inline]
    pub(crate) fn unpark(&self) -> bool {
        let asleep = self.parking.unpark();
        if asleep {
            self.notify();
        }
        asleep
    }

    /// [`unpark`](Self::unpark), but ignores a notification that fails, so that the other workers
    /// are still woken.
    pub(crate) fn unpark_best_effort(&self) {
        if self.parking.unpark() {
            let _ = self.sleeps_in().notify();
        }
    }

    /// The reactor of the shard that this reactor's worker belongs to, if it is a pool worker's.
    #[inline]
    pub(crate) fn shard(&self) -> Option<&Arc<Reactor>> {
        self.shard.as_ref()
    }

    /// [`park`](Self::park) of a pool worker, which waits in the poller of its shard if it `leads`.
    ///
    /// A thread that finds the worker parked reads that after it has exchanged the state that
    /// `park` wrote. So it reads what was written before that `park`, or something newer. In the
    /// latter case the worker has resumed since, and that has told it to look; the notification,
    /// which may go to the wrong poller, is not needed. `loom` checks this below.
    #[inline]
    pub(crate) fn park_as(&self, leads: bool) -> Wakeup {
        self.leads.store(leads, Ordering::Relaxed);
        self.park()
    }

    /// Whether the worker, if it sleeps, waits in the poller of its shard.
    #[inline]
    pub(crate) fn leads(&self) -> bool {
        self.leads.load(Ordering::Relaxed)
    }

    /// The poller in which the worker sleeps, if it does.
    #[inline]
    fn sleeps_in(&self) -> &Poller {
        match &self.shard {
            Some(shard) if self.leads() => &shard.poller,
            _ => &self.poller,
        }
    }

    /// Whether the worker sleeps, or is about to, and has not been woken yet.
    #[inline]
    pub(crate) fn is_parked(&self) -> bool {
        self.parking.is_parked()
    }

    /// Whether the worker is awake and will look everywhere before it sleeps. Exact on the thread
    /// that drives it.
    #[inline]
    pub(crate) fn is_awake(&self) -> bool {
        self.parking.is_awake()
    }

    /// Wakes the current or the next wait unconditionally.
    #[cold]
    pub(crate) fn notify(&self) {
        // A notification that fails would show up as a hang elsewhere. We know of no reason why it
        // should fail, and there is no way to go on if it does.
        self.sleeps_in()
            .notify()
            .expect("the poller takes a notification");
    }

    /// Declares the worker parked. Returns whether another thread has left something for it since
    /// it resumed.
    #[inline]
    pub(crate) fn park(&self) -> Wakeup {
        self.parking.park()
    }

    /// Declares the worker awake. Returns whether another thread has left something for it since it
    /// parked.
    #[inline]
    pub(crate) fn resume(&self) -> Wakeup {
        self.parking.resume()
    }

    // Driving.

    /// Returns the number of registered sources.
    pub(crate) fn sources(&self) -> usize {
        self.source_count.load(Ordering::Relaxed)
    }

    /// Whether the poller may have something to report.
    #[inline]
    pub(crate) fn has_sources(&self) -> bool {
        self.source_count.load(Ordering::Relaxed) > 0 || self.poller.has_orders()
    }

    /// Waits once, and collects the wakers of sources that are ready. Returns as
    /// [`Poller::wait_unchecked`]. For the driver only.
    #[inline]
    fn wait(
        &self,
        driver: &Driver,
        events: &mut Events,
        until: &Until,
        wakers: &mut Vec<Waker>,
    ) -> io::Result<Option<Instant>> {
        let reached = self.poller.wait_unchecked(events, until, now)?;
        if events.is_empty() {
            return Ok(reached);
        }
        let counters = driver.counters();
        counters.events.add(events.len());
        let table = self.sources.lock();
        for event in &*events {
            let Some(source) = table.get(event.token()) else {
                continue;
            };
            if let Some(trace) = counters.trace() {
                let descriptor = source.descriptor().as_raw_descriptor();
                #[allow(clippy::unnecessary_cast)] // On Windows it is one already.
                let descriptor = descriptor as u64;
                trace.push(Mark::Ready(descriptor));
            }
            source.deliver(driver, event.token(), event.ready(), wakers);
        }
        Ok(reached)
    }

    /// [`wait`](Self::wait) without a deadline. Returns as well if the wait was interrupted.
    #[inline]
    fn wait_without_deadline(
        &self,
        driver: &Driver,
        may_sleep: bool,
        events: &mut Events,
        wakers: &mut Vec<Waker>,
    ) -> io::Result<()> {
        let counters = driver.counters();
        let mut table = None;
        self.poller
            .wait_without_deadline(events, may_sleep, |token, ready| {
                counters.events.add(1);
                let table = table.get_or_insert_with(|| self.sources.lock());
                if let Some(source) = table.get(token) {
                    source.deliver(driver, token, ready, wakers);
                }
            })
    }

    /// Refuses registrations from now on, and drops everything that is registered. For the driver
    /// only.
    fn close(&self, wakers: &mut Vec<Waker>) {
        self.closed.store(true, Ordering::Release);
        wakers.extend(self.queued_wakers.lock().drain(..));
        self.locked_timers.lock().fire_all(wakers);
        let mut table = self.sources.lock();
        let sources: Vec<_> = std::mem::take(&mut *table).into_sources().collect();
        self.source_count.store(0, Ordering::Relaxed);
        // Under the table's lock, like the delivery of events: see `fork`.
        for source in &sources {
            source.orphan(self, wakers);
        }
        drop(table);
    }

    // Dumps.

    /// Lists the wakers that the sources of this reactor keep.
    pub(crate) fn source_waits(&self) -> Vec<SourceWait> {
        let mut waits = Vec::new();
        let mut places = 0..0;
        loop {
            // In chunks, so that events are delivered in between.
            places = places.end..places.end + CHUNK;
            let table = self.sources.lock();
            for (token, source) in table.sources(places.clone()) {
                source.waits(token, &mut waits);
            }
            if places.end >= table.places() {
                return waits;
            }
        }
    }

    /// Calls `f` with the source of that token, if it is still registered. The source stays open
    /// during the call, because closing it needs the lock.
    pub(crate) fn with_source<R>(&self, token: Token, f: impl FnOnce(&Source) -> R) -> Option<R> {
        let table = self.sources.lock();
        table.get(token).map(|source| f(source))
    }

    /// Lists the wakers that the locked timers keep.
    pub(crate) fn locked_timer_waits(&self) -> Vec<TimerWait> {
        let mut waits = Vec::new();
        let mut places = 0..0;
        loop {
            places = places.end..places.end + CHUNK;
            let timers = self.locked_timers.lock();
            timers.waits(places.clone(), &mut waits);
            if places.end >= timers.places() {
                return waits;
            }
        }
    }

    // Operations on the driver's timers.

    #[inline]
    fn has_timer_ops(&self) -> bool {
        self.timer_op_count.load(Ordering::Relaxed) > 0
    }

    fn take_timer_ops(&self) -> Vec<(Key, TimerOp)> {
        let mut ops = self.timer_ops.lock();
        self.timer_op_count.store(0, Ordering::Relaxed);
        ops.take()
    }

    fn push_timer_op(&self, key: Key, op: TimerOp) {
        let mut ops = self.timer_ops.lock();
        if self.is_closed() {
            return;
        }
        ops.push(key, op);
        self.timer_op_count.store(ops.len(), Ordering::Relaxed);
        drop(ops);
        self.unpark();
    }

    // Locked timers: for `timer` and `driver` only.

    #[inline]
    fn has_locked_timers(&self) -> bool {
        self.locked_timer_count.load(Ordering::Relaxed) > 0
    }

    /// Returns the locked timers, if there are any.
    #[inline]
    fn some_locked_timers(&self) -> Option<MutexGuard<'_, TimerHeap>> {
        self.has_locked_timers().then(|| self.locked_timers.lock())
    }

    /// Fires the locked timers that are due at `now`, up to the first one with a waker. Calls
    /// `fired` with the lateness of each.
    #[inline]
    fn fire_locked_timer(&self, now: Instant, fired: impl Fn(Duration)) -> Option<Waker> {
        self.some_locked_timers()?.fire(now, fired)
    }

    // Wakers that were found together: see "Foreign wakers" in `parking`.

    /// Whether any are queued.
    #[inline]
    fn has_queued_wakers(&self) -> bool {
        self.queued_waker_count.load(Ordering::Relaxed) > 0
    }

    /// Queues these wakers, and returns their number; none, if the reactor has closed.
    #[cold]
    fn queue_wakers(&self, wakers: &mut Vec<Waker>) -> usize {
        let mut queue = self.queued_wakers.lock();
        if self.is_closed() {
            return 0;
        }
        let number = wakers.len();
        queue.extend(wakers.drain(..));
        self.queued_waker_count
            .store(queue.len(), Ordering::Relaxed);
        number
    }

    /// Takes the next queued waker.
    #[inline]
    fn take_queued_waker(&self) -> Option<Waker> {
        self.has_queued_wakers().then(|| self.dequeue_waker())?
    }

    #[cold]
    fn dequeue_waker(&self) -> Option<Waker> {
        let mut queue = self.queued_wakers.lock();
        let waker = queue.pop_front();
        if queue.is_empty() {
            queue.shrink_to(BATCH);
        }
        self.queued_waker_count
            .store(queue.len(), Ordering::Relaxed);
        waker
    }

    /// Calls that number of queued wakers, unless others have called them.
    #[cold]
    fn call_queued(&self, number: usize) {
        wake_all(iter::from_fn(|| self.take_queued_waker()).take(number));
    }

    /// Calls wakers that were found together, on any thread.
    pub(crate) fn call(&self, mut wakers: Vec<Waker>) {
        if wakers.len() > 1 {
            let queued = self.queue_and_unpark(&mut wakers);
            self.call_queued(queued);
        }
        wake_all(wakers);
    }

    /// [`queue_wakers`](Self::queue_wakers), and wakes the worker for them.
    fn queue_and_unpark(&self, wakers: &mut Vec<Waker>) -> usize {
        let queued = self.queue_wakers(wakers);
        if queued > 0 {
            self.unpark();
        }
        queued
    }

    /// Inserts a timer. Returns `None` if the reactor has closed.
    fn insert_locked_timer(&self, when: Instant, waker: Waker) -> Option<Key> {
        let mut timers = self.locked_timers.lock();
        if self.is_closed() {
            drop(timers);
            drop(waker);
            return None;
        }
        let (key, earliest) = timers.insert(when, waker);
        let count = timers.entries();
        self.locked_timer_count.store(count, Ordering::Relaxed);
        drop(timers);
        if earliest {
            self.unpark();
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
            self.unpark();
        }
    }

    /// Removes a locked timer. Its waker must be dropped outside all locks.
    fn remove_locked_timer(&self, key: Key) -> Option<Waker> {
        let mut timers = self.locked_timers.lock();
        let waker = timers.remove(key);
        let count = timers.entries();
        self.locked_timer_count.store(count, Ordering::Relaxed);
        waker
    }

    // Sources: for `source` only.

    fn insert(&self, source: Arc<Source>) -> io::Result<Token> {
        let mut table = self.sources.lock();
        if self.is_closed() {
            return Err(closed());
        }
        let token = table.insert(source);
        (self.source_count).store(self.sources() + 1, Ordering::Relaxed);
        Ok(token)
    }

    /// Removes a source. The result must be dropped outside all locks.
    fn remove(&self, token: Token) -> Option<Arc<Source>> {
        let mut table = self.sources.lock();
        let source = table.remove(token)?;
        (self.source_count).store(self.sources() - 1, Ordering::Relaxed);
        Some(source)
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        registry::remove(self.id);
    }
}

/// The error of registering with a reactor that has closed since it was looked up.
fn closed() -> io::Error {
    io::Error::new(
        io::ErrorKind::NotConnected,
        "the runtime that was to drive this has ended",
    )
}

#[cfg(all(test, loom, unix))]
mod loom_tests {
    use super::*;
    use crate::poller::Backend;
    use crate::sys;

    /// The pollers are real, and a notification is in one of them when its descriptor is readable.
    #[test]
    fn a_notification_is_in_the_poller_that_the_worker_sleeps_in() {
        for leads in [false, true] {
            loom::model(move || {
                let poller = || Poller::new(Backend::default()).unwrap();
                let shard = Reactor::for_shard(poller(), None);
                let worker = Reactor::for_pool_worker(poller(), &shard);
                // It slept in the other poller before.
                worker.park_as(!leads);
                worker.resume();
                let waker = {
                    let worker = worker.clone();
                    loom::thread::spawn(move || worker.unpark())
                };
                let came_before = worker.park_as(leads) != Wakeup::None;
                waker.join().unwrap();
                let slept_in = if leads { &shard } else { &worker };
                let descriptor = slept_in.poller.descriptor().unwrap();
                assert!(
                    came_before || sys::is_ready(&descriptor, false).unwrap(),
                    "it sleeps on"
                );
            });
        }
    }
}
