//! The reactor: turns I/O events and expired timers into wake-ups, for one worker or a shard of
//! pool workers.
//!
//! A [`Reactor`] is shared: every thread may register sources and timers with it. Its other half,
//! the [`Driver`], belongs to the worker's thread: it waits, fires timers, and holds the worker's
//! local timers. Sources, locked timers, timer operations and queued wakers are behind locks that
//! are held only briefly. Wakers are collected under these locks and called after their release,
//! except for a task's own waker: see `readiness::Waiters`.
//!
//! **Sleeping.** A worker that drives its own reactor [parks](parker) in the reactor's [`Parker`].
//! A shard's reactor has a parker besides those of its workers: a leader parks in its own, where
//! tasks are sent to it, and in the reactor's, where an earlier timer and queued wakers end its
//! sleep in the shard's poller. A thread that sets an earlier deadline, or queues a timer operation
//! or a waker, does so under a lock and unparks afterwards. If that precedes `park`, the worker
//! finds it; otherwise it is notified.
//!
//! **Foreign wakers.** A thread often finds several wakers together: due timers, a batch of events,
//! the waiters for a source, a latch or a signal. Each may block until another one is called. So
//! one rule holds for all of these: *while a foreign waker is called, each other waker that was
//! found with it is where another thread, or a nested turn on this one, finds it.*
//!
//! * Due timers stay in their heap. `Driver::fire` takes out and calls one at a time, each heap's
//!   in its order, and at most `BATCH` in a turn, queued wakers included.
//! * Several wakers of ready sources are put in a queue of the reactor (`Reactor::queue_wakers`)
//!   before the lock of a shard's poller is released. They are called before due timers, by the
//!   next turn of any worker that has polled or collected, or by a nested turn. While a worker is
//!   in a waker, another one takes the lock, for which the monitor wakes it if necessary. The
//!   thread that has queued them takes the same number out again, or what is left, and calls these.
//!   So each is called once, and none is left if there is no other worker.
//! * `Source::wake` queues them with the reactor of the source, a `Latch` and the end of a duplex
//!   stream with the reactor of the worker that the thread drives (`scheduler::wake_each`); and the
//!   reactor is unparked.
//! * A thread that drives no worker (the signal thread, or one that sets a latch) takes out and
//!   calls one waker at a time, after tasks' own wakers, which only queue. The other waiters stay
//!   listed, and each of them that is polled sees that its wait is over. (If a foreign waker blocks
//!   that thread, foreign wakers behind it wait until then.)
//!
//! Closing is the exception. When a runtime has ended, no thread drives its reactor. The thread
//! that ends it takes out all wakers that wait there, and calls them one after the other.
//!
//! **Files**, from the bottom up:
//!
//! * [`timer_heap`], and [`sorted_vec_map`].
//! * Protocols with a loom model: [`parker`] (what a worker sleeps in), [`readiness`] (events
//!   of a direction against those that were consumed, and the waiters).
//! * The reactor: this file, [`driver`] (the thread's half, and timers), [`source`] with its
//!   [`back_off`], and `fork`. They import each other in a circle: a reactor has sources, and a
//!   source is registered with its reactor.
//! * [`handle`], by which sockets and `Async` hold a source.

mod back_off;
mod driver;
#[cfg(unix)]
mod fork;
mod handle;
mod parker;
mod readiness;
mod sorted_vec_map;
mod source;
mod timer_heap;

use std::collections::VecDeque;
use std::iter;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::task::Waker;

use crate::poller::{Mode, Poller, Token};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Mutex, StaticMutex, wake_all};
use crate::sys::PerProcess;
use source::SourceTable;
use timer_heap::{TimerHeap, TimerOps};

pub(crate) use driver::{BATCH, Driver, TimerHandle, TimerState};
pub(crate) use handle::Io;
pub(crate) use parker::{Parker, Wakeup};
pub(crate) use readiness::{Added, Direction, Snapshot, WaiterId, WakerKind};
#[cfg(feature = "net")]
pub(crate) use source::SocketTraits;
pub(crate) use source::{Blocked, Held, Source, SourceKind, SourceWait};
pub(crate) use timer_heap::TimerWait;

/// The number of table places visited per acquisition of the lock: some microseconds.
const CHUNK: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PoolId(u64);

impl PoolId {
    pub(crate) fn new() -> PoolId {
        PoolId(new_id())
    }
}

pub(crate) struct Reactor {
    /// Names the reactor for timers that hold no reference to it.
    id: u64,
    poller: Arc<Poller>,
    /// How sources are registered: see the head of `source`.
    mode: Mode,
    /// The kind of source, if any, that is registered once, for everything: see the head of
    /// `source`.
    kind_registered_once: Option<SourceKind>,
    /// Set for a shard's reactor. All timers are in the locked heap then, where every worker of the
    /// shard can fire them: see `driver`.
    pool: Option<PoolId>,
    /// The worker's parker. For a shard: a second parker of the worker that sleeps in its poller.
    parker: Arc<Parker>,
    /// By token. `source` inserts and removes them.
    sources: Mutex<SourceTable>,
    locked_timers: Mutex<TimerHeap>,
    timer_ops: Mutex<TimerOps>,
    /// See "Foreign wakers" in the head.
    queued_wakers: Mutex<VecDeque<Waker>>,
    /// Lengths of the four collections above, readable without their locks, under which they are
    /// written. A value may be stale, except for changes by the reading thread.
    source_count: AtomicUsize,
    locked_timer_count: AtomicUsize,
    timer_op_count: AtomicUsize,
    queued_waker_count: AtomicUsize,
    /// Set before the table is emptied; from then on registrations are refused.
    closed: AtomicBool,
}

impl Reactor {
    /// `pool`: for the reactor of a shard.
    pub(crate) fn new(poller: Poller, pool: Option<PoolId>) -> Arc<Reactor> {
        let poller = Arc::new(poller);
        let can = poller.capabilities();
        let reactor = Arc::new(Reactor {
            id: new_id(),
            parker: Arc::new(Parker::new(poller.clone(), true, None)),
            poller,
            mode: match (can.edge, can.level) {
                (true, _) => Mode::Edge,
                (false, true) => Mode::Level,
                (false, false) => Mode::OneShot,
            },
            kind_registered_once: (can.edge && can.tcp_room_on_demand)
                .then_some(SourceKind::TcpStream),
            pool,
            sources: Mutex::new(SourceTable::default()),
            locked_timers: Mutex::new(TimerHeap::default()),
            timer_ops: Mutex::new(TimerOps::default()),
            queued_wakers: Mutex::new(VecDeque::new()),
            source_count: AtomicUsize::new(0),
            locked_timer_count: AtomicUsize::new(0),
            timer_op_count: AtomicUsize::new(0),
            queued_waker_count: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        });
        #[cfg(unix)]
        fork::take_locks_at_fork();
        registry().push((reactor.id, Arc::downgrade(&reactor)));
        reactor
    }

    /// Returns the reactor with this id, if it exists. It may have closed.
    fn find(id: u64) -> Option<Arc<Reactor>> {
        let registry = registry();
        let index = registry.iter().position(|(other, _)| *other == id);
        index.and_then(|index| registry[index].1.upgrade())
    }

    #[inline]
    pub(crate) fn poller(&self) -> &Poller {
        &self.poller
    }

    /// Also true for the same reactor of a pool.
    #[inline]
    pub(crate) fn shares_pool_with(&self, other: &Reactor) -> bool {
        self.pool.is_some() && self.pool == other.pool
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn parker(&self) -> &Arc<Parker> {
        &self.parker
    }

    /// Returns a parker for a worker of this shard. `own_poller`: its own one of another kernel.
    pub(crate) fn parker_of_worker(&self, own_poller: Option<Poller>) -> Arc<Parker> {
        Arc::new(Parker::new(self.poller.clone(), false, own_poller))
    }

    pub(crate) fn source_count(&self) -> usize {
        self.source_count.load(Ordering::Relaxed)
    }

    /// Whether a poll may do anything: sources are registered, or (io_uring) submissions pending.
    #[inline]
    pub(crate) fn has_sources(&self) -> bool {
        self.source_count.load(Ordering::Relaxed) > 0 || self.poller.has_submissions()
    }

    fn close(&self, wakers: &mut Vec<Waker>) {
        self.closed.store(true, Ordering::Release);
        let mut queued = self.queued_wakers.lock();
        wakers.extend(iter::from_fn(|| queued.pop_front()));
        self.queued_waker_count.store(0, Ordering::Relaxed);
        drop(queued);
        self.locked_timers.lock().fire_all(wakers);
        let mut table = self.sources.lock();
        let left = std::mem::take(&mut *table);
        self.source_count.store(0, Ordering::Relaxed);
        // Under the table's lock, like the delivery of events: see `fork`.
        for (_, source) in left.sources(0..left.places()) {
            source.orphan(self, wakers);
        }
        drop(table);
    }

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

    /// Calls `f` with a source, if it is still registered. It stays open meanwhile, because closing
    /// it needs the lock.
    pub(crate) fn with_source<R>(&self, token: Token, f: impl FnOnce(&Source) -> R) -> Option<R> {
        let table = self.sources.lock();
        table.get(token).map(|source| f(source))
    }

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

    #[inline]
    fn take_queued_waker(&self) -> Option<Waker> {
        self.has_queued_wakers().then(|| self.dequeue_waker())?
    }

    #[cold]
    fn dequeue_waker(&self) -> Option<Waker> {
        let mut queue = self.queued_wakers.lock();
        let waker = queue.pop_front();
        if queue.is_empty() && queue.capacity() > BATCH {
            *queue = VecDeque::new();
        }
        self.queued_waker_count
            .store(queue.len(), Ordering::Relaxed);
        waker
    }

    #[cold]
    fn call_queued(&self, number: usize) {
        wake_all(iter::from_fn(|| self.take_queued_waker()).take(number));
    }

    pub(crate) fn wake_found_together(&self, mut wakers: Vec<Waker>) {
        if wakers.len() > 1 {
            let queued = self.queue_and_unpark(&mut wakers);
            self.call_queued(queued);
        }
        wake_all(wakers);
    }

    fn queue_and_unpark(&self, wakers: &mut Vec<Waker>) -> usize {
        let queued = self.queue_wakers(wakers);
        if queued > 0 {
            self.parker.unpark();
        }
        queued
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        registry().retain(|(id, _)| *id != self.id);
    }
}

/// Ids are never reused.
fn new_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

type Reactors = Vec<(u64, Weak<Reactor>)>;

/// The reactors of the process by id, for operations on a worker's local timer by other threads:
/// local timers hold no reference to their reactor.
///
/// They stay until they are dropped: closed ones have locks too, which a fork takes. There are
/// about as many as threads that drive one, and lookups are rare. A child of `fork` does not find
/// its parent's reactors, because it does not have the parent's threads.
static REGISTRY: PerProcess<StaticMutex<Reactors>> = PerProcess::new(StaticMutex::default);

fn registry() -> std::sync::MutexGuard<'static, Reactors> {
    REGISTRY.get().lock()
}

#[cfg(all(test, unix))]
mod wake_count {
    use super::*;

    /// A waker that counts its calls.
    #[derive(Default)]
    pub(super) struct WakeCount(AtomicUsize);

    impl WakeCount {
        pub(super) fn get(&self) -> usize {
            self.0.load(Ordering::Acquire)
        }
    }

    impl std::task::Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Release);
        }
    }
}
