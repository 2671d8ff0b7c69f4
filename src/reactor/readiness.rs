//! What is known of one source, and who waits for more.
//!
//! Each direction has two counters: `events` counts what was reported, `spent` says up to which event
//! the readiness was used up. They differ: an operation is worth a try. `slots`, behind a lock, holds
//! the wakers, and for its owner whatever has to change together with them.
//!
//! **The protocol.**
//!
//! * An operation first takes a [`Snapshot`]. If that is ready it tries; if that would block it calls
//!   [`clear`](Readiness::clear) with the snapshot, which spends the events counted *before* the
//!   attempt.
//! * Whoever finds its direction not ready takes the lock and calls [`Readiness::wait`], which
//!   looks once more under the lock: ready, it refuses, and the operation is tried again; not ready,
//!   it leaves the waker.
//! * An event, [`deliver`](Readiness::deliver), is counted, and its wakers are taken out, under the
//!   lock, which is what makes counting a plain load and store.
//!
//! **Why no edge is lost.** An event between an attempt and its clearing is counted beyond what the
//! clearing spends, so the direction stays ready. (Two attempts at once may spend in the wrong order;
//! then the direction is ready without need, which costs one more attempt.) **Why no waiter is
//! lost.** The event's critical section comes before the waiter's, and then the waiter sees the
//! count, or after, and then the event finds the waker. `loom` checks both below.
//!
//! A direction starts ready: nothing is known, so the first operation tries.
//!
//! Each waiter has an identity, [`WaiterId`]: a handle to the socket, or a future of ours. A waiter
//! that comes again replaces its waker instead of adding one, and one that goes takes it along.
//! Nearly always there is one at most, who has a place of its own. Several are in ordered maps, so that
//! leaving a waker and taking it along costs O(log n) steps; only an event visits all who wait for it.
//!
//! **In which order they are woken.** All who wait are woken by an event, and the first to try takes what
//! there is. A future waits for one operation, and keeps its identity until that is done: futures are
//! woken in the order of their identities, which is that of their first polls, so whoever tried in vain
//! is before whoever came later. A handle comes again for each operation, and whether the last one was in
//! vain is not known: handles are woken behind the futures, in the order in which they came, but for the
//! first, which is last. It will be the first to wait again, and would leave nothing to the others.
//!
//! **Wakers are cloned under no lock**, since that may run anybody's code. Most waits come after an event
//! has taken the waker out, and so need a clone: where nobody waits, it is made before the lock is taken
//! ([`spare`](Readiness::spare)). Where somebody does, it is likely the same waker again: that is looked
//! at first, and if it is another one the lock is given back for the clone.

use std::collections::BTreeMap;
use std::task::Waker;

use crate::poller::Ready;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use crate::sync::{Mutex, MutexGuard, NeedsClone, Spare};

/// Which side of a source an operation belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl Direction {
    #[inline]
    fn ready(self) -> Ready {
        match self {
            Direction::Read => Ready::READABLE,
            Direction::Write => Ready::WRITABLE,
        }
    }
}

/// Who waits: unique among the waiters of one source. (After 2^31 waiters of one source a number
/// comes again; only if its first owner still waits in the same direction does one of the two go
/// unwoken.)
///
/// Futures and handles have numbers of their own, so that futures come first: see the head of this file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaiterId(u32);

impl WaiterId {
    const HANDLE: u32 = 1 << 31;

    /// A future, which waits for one operation, and is [forgotten](Readiness::forget) when that is done.
    #[inline]
    pub(crate) fn future(count: u32) -> WaiterId {
        WaiterId(count & !WaiterId::HANDLE)
    }

    /// A handle, which comes again and again.
    #[inline]
    pub(crate) fn handle(count: u32) -> WaiterId {
        WaiterId(count | WaiterId::HANDLE)
    }

    fn is_handle(self) -> bool {
        self.0 & WaiterId::HANDLE != 0
    }
}

/// What was known of a direction before an attempt.
#[derive(Clone, Copy)]
pub(crate) struct Snapshot {
    events: u32,
    spent: u32,
    news: u8,
}

impl Snapshot {
    #[inline]
    pub(crate) fn is_ready(self) -> bool {
        self.events != self.spent
    }

    /// Whether nothing was reported between the two.
    #[cfg(not(loom))]
    pub(crate) fn is_as_old_as(self, other: Snapshot) -> bool {
        self.events == other.events
    }

    /// Whether a hang-up, an error or urgent data was reported, ever, or may have gone unreported:
    /// then a read that fills less than was asked for says nothing about the next one.
    #[inline]
    pub(crate) fn has_sticky_flags(self) -> bool {
        self.news != 0
    }
}

/// What is remembered for good.
const STICKY: u8 = Ready::CLOSED.0 | Ready::ERROR.0 | Ready::PRIORITY.0 | Ready::UNKNOWN.0;

/// What came of leaving a waker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    Waits,
    /// Refused: the operation is to be tried again.
    ReadyByNow,
    /// Give the lock back, clone, and come again.
    NeedsClone,
}

#[derive(Debug)]
pub(crate) struct Readiness<R> {
    /// By direction. Written under the lock.
    events: [AtomicU32; 2],
    /// By direction. Written by whoever has tried.
    spent: [AtomicU32; 2],
    /// What of [`STICKY`] was ever reported. Written under the lock.
    news: AtomicU8,
    /// Whether anybody may wait, for a guess without the lock. Written under it.
    waited: AtomicBool,
    slots: Mutex<Slots<R>>,
}

/// What the lock protects. `homes` is the owner's.
#[derive(Debug)]
pub(crate) struct Slots<R> {
    /// The waiter, as long as there is no second one.
    only: Option<Waiter>,
    /// Since there were two at once: all of them, unless there is only one. Boxed, since nearly every
    /// source goes without.
    several: Option<Box<[Queue; 2]>>,
    pub(crate) homes: R,
}

#[derive(Debug)]
struct Waiter {
    waker: Waker,
    id: WaiterId,
    direction: Direction,
}

impl Waiter {
    #[inline]
    fn is(&self, direction: Direction, id: WaiterId) -> bool {
        self.direction == direction && self.id == id
    }
}

/// Those who wait for one direction. (The maps keep a node when they are empty: one reader and one writer
/// who wait by turns allocate nothing.)
#[derive(Debug, Default)]
struct Queue {
    /// By id.
    futures: BTreeMap<u32, Waker>,
    /// By arrival.
    handles: BTreeMap<u64, Waker>,
    /// When each handle has arrived, by id.
    arrivals: BTreeMap<u32, u64>,
    arrived: u64,
}

impl Queue {
    fn get(&mut self, id: WaiterId) -> Option<&mut Waker> {
        match id.is_handle() {
            true => self.handles.get_mut(self.arrivals.get(&id.0)?),
            false => self.futures.get_mut(&id.0),
        }
    }

    fn add(&mut self, id: WaiterId, waker: Waker) {
        if id.is_handle() {
            self.arrived += 1;
            self.arrivals.insert(id.0, self.arrived);
            self.handles.insert(self.arrived, waker);
        } else {
            self.futures.insert(id.0, waker);
        }
    }

    fn remove(&mut self, id: WaiterId) -> Option<Waker> {
        match id.is_handle() {
            true => self.handles.remove(&self.arrivals.remove(&id.0)?),
            false => self.futures.remove(&id.0),
        }
    }

    fn len(&self) -> usize {
        self.futures.len() + self.handles.len()
    }

    /// Takes out everyone, in the order in which they are to be woken.
    fn take(&mut self, wakers: &mut Vec<Waker>) {
        while let Some((_, waker)) = self.futures.pop_first() {
            wakers.push(waker);
        }
        while self.arrivals.pop_first().is_some() {}
        let first = self.handles.pop_first();
        while let Some((_, waker)) = self.handles.pop_first() {
            wakers.push(waker);
        }
        wakers.extend(first.map(|(_, waker)| waker));
    }
}

impl<R> Readiness<R> {
    pub(crate) fn new(homes: R) -> Readiness<R> {
        Readiness {
            events: [AtomicU32::new(1), AtomicU32::new(1)],
            spent: [AtomicU32::new(0), AtomicU32::new(0)],
            news: AtomicU8::new(0),
            waited: AtomicBool::new(false),
            slots: Mutex::new(Slots {
                only: None,
                several: None,
                homes,
            }),
        }
    }

    #[inline]
    pub(crate) fn snapshot(&self, direction: Direction) -> Snapshot {
        // The count first: an event that comes in between makes the rest newer, not older.
        let events = self.events[direction as usize].load(Ordering::Acquire);
        Snapshot {
            events,
            spent: self.spent[direction as usize].load(Ordering::Relaxed),
            news: self.news.load(Ordering::Relaxed),
        }
    }

    /// The direction was seen not to be ready, in an attempt that began after `seen` was taken.
    #[inline]
    pub(crate) fn clear(&self, direction: Direction, seen: Snapshot) {
        self.spent[direction as usize].store(seen.events, Ordering::Relaxed);
    }

    /// Asks `look` whether the direction is ready *now*, and clears it where it is not. (What came before
    /// the question is answered by it; an event that comes after it is counted beyond what is cleared.)
    #[inline]
    pub(crate) fn look<E>(
        &self,
        direction: Direction,
        look: impl FnOnce() -> Result<bool, E>,
    ) -> Result<bool, E> {
        let seen = self.snapshot(direction);
        let is_ready = look()?;
        if !is_ready {
            self.clear(direction, seen);
        }
        Ok(is_ready)
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Slots<R>> {
        self.slots.lock()
    }

    /// To be had before the lock is taken: a clone of the waker that is to be left, where none will be
    /// there. It may be a clone in vain, or be missing, if others come or go meanwhile.
    #[inline]
    pub(crate) fn spare(&self, waker: &Waker) -> Spare {
        match self.waited.load(Ordering::Relaxed) {
            true => Spare::default(),
            false => Spare::clone_of(waker),
        }
    }

    /// Leaves a waker for the next event of `direction`, unless it is ready by now. What it replaces is
    /// in `spare` afterwards, to be dropped outside the lock.
    #[inline]
    pub(crate) fn wait(
        &self,
        slots: &mut Slots<R>,
        direction: Direction,
        id: WaiterId,
        waker: &Waker,
        spare: &mut Spare,
    ) -> Left {
        if self.snapshot(direction).is_ready() {
            return Left::ReadyByNow;
        }
        match slots.leave(direction, id, waker, spare) {
            Ok(()) => {
                self.waited.store(true, Ordering::Relaxed);
                Left::Waits
            }
            Err(NeedsClone) => Left::NeedsClone,
        }
    }

    /// An event, or something that is treated as one, while the lock is held: counts it, and moves
    /// the wakers of its directions to `wakers`.
    #[inline]
    pub(crate) fn deliver(&self, slots: &mut Slots<R>, ready: Ready, wakers: &mut Vec<Waker>) {
        self.remember(slots, ready);
        for direction in [Direction::Read, Direction::Write] {
            if ready.intersects(direction.ready()) {
                let events = &self.events[direction as usize];
                let count = events.load(Ordering::Relaxed).wrapping_add(1);
                events.store(count, Ordering::Release);
                slots.take(direction, wakers);
            }
        }
        self.waited.store(slots.len() > 0, Ordering::Relaxed);
    }

    /// Notes whatever of `ready` is remembered for good, while the lock is held.
    #[inline]
    pub(crate) fn remember(&self, _: &mut Slots<R>, ready: Ready) {
        if ready.0 & STICKY != 0 {
            let news = self.news.load(Ordering::Relaxed) | (ready.0 & STICKY);
            self.news.store(news, Ordering::Relaxed);
        }
    }

    /// The waiter goes: its wakers are handed back, to be dropped outside the lock.
    pub(crate) fn forget(&self, id: WaiterId) -> [Option<Waker>; 2] {
        let mut slots = self.lock();
        let wakers = [Direction::Read, Direction::Write].map(|it| slots.remove(it, id));
        self.waited.store(slots.len() > 0, Ordering::Relaxed);
        wakers
    }
}

impl<R> Slots<R> {
    #[inline]
    fn len(&self) -> usize {
        match (&self.only, &self.several) {
            (Some(_), _) => 1,
            (None, None) => 0,
            (None, Some(queues)) => queues.iter().map(Queue::len).sum(),
        }
    }

    #[inline]
    fn leave(
        &mut self,
        direction: Direction,
        id: WaiterId,
        waker: &Waker,
        spare: &mut Spare,
    ) -> Result<(), NeedsClone> {
        match &mut self.only {
            Some(only) if only.is(direction, id) => spare.renew(&mut only.waker, waker),
            None if self.several.is_none() => {
                let waker = spare.take()?;
                self.only = Some(Waiter {
                    waker,
                    id,
                    direction,
                });
                Ok(())
            }
            _ => self.leave_among_others(direction, id, waker, spare),
        }
    }

    #[cold]
    fn leave_among_others(
        &mut self,
        direction: Direction,
        id: WaiterId,
        waker: &Waker,
        spare: &mut Spare,
    ) -> Result<(), NeedsClone> {
        let queues = self.several.get_or_insert_default();
        if let Some(old) = queues[direction as usize].get(id) {
            return spare.renew(old, waker);
        }
        let waker = spare.take()?;
        if let Some(only) = self.only.take() {
            queues[only.direction as usize].add(only.id, only.waker);
        } else if queues.iter().all(|queue| queue.len() == 0) {
            self.only = Some(Waiter {
                waker,
                id,
                direction,
            });
            return Ok(());
        }
        queues[direction as usize].add(id, waker);
        Ok(())
    }

    fn remove(&mut self, direction: Direction, id: WaiterId) -> Option<Waker> {
        match self.only.take_if(|only| only.is(direction, id)) {
            Some(only) => Some(only.waker),
            None => self.several.as_mut()?[direction as usize].remove(id),
        }
    }

    /// Takes out the wakers of `direction`, in the order in which they are to be woken.
    #[inline]
    pub(super) fn take(&mut self, direction: Direction, wakers: &mut Vec<Waker>) {
        if let Some(only) = self.only.take_if(|only| only.direction == direction) {
            wakers.push(only.waker);
        } else if let Some(queues) = &mut self.several {
            queues[direction as usize].take(wakers);
        }
    }

    /// Whether anybody waits for `direction`.
    #[inline]
    pub(crate) fn is_waited(&self, direction: Direction) -> bool {
        match (&self.only, &self.several) {
            (Some(only), _) => only.direction == direction,
            (None, None) => false,
            (None, Some(queues)) => queues[direction as usize].len() > 0,
        }
    }

    /// Whether anybody waits but `id` in `direction`. (In the other direction a handle may have
    /// another user.)
    pub(crate) fn is_waited_by_others(&mut self, direction: Direction, id: WaiterId) -> bool {
        let own = match (&self.only, &mut self.several) {
            (Some(only), _) => only.is(direction, id),
            (None, None) => false,
            (None, Some(queues)) => queues[direction as usize].get(id).is_some(),
        };
        self.len() > usize::from(own)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicUsize, Ordering as O};

    fn me() -> WaiterId {
        WaiterId::handle(1)
    }

    /// A socket that holds a number of bytes, an edge for each arrival, and a reader that takes
    /// what there is, clears, waits, and is "woken" by the waker's count.
    struct World {
        readiness: Readiness<()>,
        bytes: AtomicUsize,
        woken: std::sync::Arc<Wakes>,
    }

    /// loom cannot see into a `Waker`, so what it would do is done with loom's own atomics.
    struct Wakes {
        count: AtomicUsize,
        thread: loom::thread::Thread,
    }

    impl std::task::Wake for Wakes {
        fn wake(self: std::sync::Arc<Self>) {
            self.count.fetch_add(1, O::Release);
            self.thread.unpark();
        }
    }

    impl World {
        fn new() -> Arc<World> {
            Arc::new(World {
                readiness: Readiness::new(()),
                bytes: AtomicUsize::new(0),
                woken: std::sync::Arc::new(Wakes {
                    count: AtomicUsize::new(0),
                    thread: loom::thread::current(),
                }),
            })
        }

        /// A byte arrives, and its edge is delivered.
        fn arrive(&self) {
            self.bytes.fetch_add(1, O::Release);
            let mut wakers = Vec::new();
            self.readiness
                .deliver(&mut self.readiness.lock(), Ready::READABLE, &mut wakers);
            for waker in wakers {
                waker.wake();
            }
        }

        /// One poll of a read: bytes, or none and a waker was left.
        fn poll_read(&self, id: WaiterId) -> Option<usize> {
            let waker = Waker::from(self.woken.clone());
            loop {
                let seen = self.readiness.snapshot(Direction::Read);
                if seen.is_ready() {
                    match self.bytes.swap(0, O::Acquire) {
                        0 => self.readiness.clear(Direction::Read, seen),
                        n => return Some(n),
                    }
                    continue;
                }
                if self.leave(id, &waker) {
                    return None;
                }
            }
        }

        /// As a source does: false if it is to be tried again.
        fn leave(&self, id: WaiterId, waker: &Waker) -> bool {
            let mut spare = self.readiness.spare(waker);
            loop {
                let mut slots = self.readiness.lock();
                match (self.readiness).wait(&mut slots, Direction::Read, id, waker, &mut spare) {
                    Left::Waits => return true,
                    Left::ReadyByNow => return false,
                    Left::NeedsClone => {
                        drop(slots);
                        spare.fill(waker);
                    }
                }
            }
        }

        /// One poll of an `Async`, which asks the level each time: ready, or a waker was left.
        fn poll_level(&self) -> bool {
            let waker = Waker::from(self.woken.clone());
            loop {
                let look = || Ok::<_, std::convert::Infallible>(self.bytes.load(O::Acquire) > 0);
                if self.readiness.look(Direction::Read, look).unwrap() {
                    return true;
                }
                if self.leave(WaiterId::future(1), &waker) {
                    return false;
                }
            }
        }

        fn sleep(&self) {
            while self.woken.count.swap(0, O::Acquire) == 0 {
                loom::thread::park();
            }
        }

        /// Reads `total` bytes. A lost edge or waker leaves it parked, and loom fails the model.
        fn read_all(&self, total: usize) {
            let mut read = 0;
            while read < total {
                match self.poll_read(me()) {
                    Some(n) => read += n,
                    None => self.sleep(),
                }
            }
        }
    }

    /// What `Async` does. The snapshot belongs before the question: taken after it, an event in between
    /// would be cleared unseen. Left out: what the poller does to be told again.
    #[test]
    fn an_edge_between_the_look_at_the_level_and_waiting_is_never_lost() {
        loom::model(|| {
            let world = World::new();
            let sender = {
                let world = world.clone();
                loom::thread::spawn(move || world.arrive())
            };
            while !world.poll_level() {
                world.sleep();
            }
            sender.join().unwrap();
        });
    }

    /// A source that is registered with two reactors. Left out: how it came to be, which is in `source`.
    #[test]
    fn two_that_deliver_at_once_lose_neither_event_nor_waiter() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let world = World::new();
            let senders = [(); 2].map(|()| {
                let world = world.clone();
                loom::thread::spawn(move || world.arrive())
            });
            world.read_all(2);
            for sender in senders {
                sender.join().unwrap();
            }
        });
    }

    #[test]
    fn an_edge_between_attempt_clearing_and_waiting_is_never_lost() {
        loom::model(|| {
            let world = World::new();
            let sender = {
                let world = world.clone();
                loom::thread::spawn(move || world.arrive())
            };
            world.read_all(1);
            sender.join().unwrap();
        });
    }

    #[test]
    fn two_edges_in_a_row_are_never_lost() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let world = World::new();
            let sender = {
                let world = world.clone();
                loom::thread::spawn(move || {
                    world.arrive();
                    world.arrive();
                })
            };
            world.read_all(2);
            sender.join().unwrap();
        });
    }

    #[test]
    fn two_readers_at_once_are_both_woken() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let world = World::new();
            // The other reader only tries, takes nothing, and may spend what it saw late.
            let other = {
                let world = world.clone();
                loom::thread::spawn(move || {
                    let seen = world.readiness.snapshot(Direction::Read);
                    if seen.is_ready() && world.bytes.load(O::Acquire) == 0 {
                        world.readiness.clear(Direction::Read, seen);
                    }
                })
            };
            let sender = {
                let world = world.clone();
                loom::thread::spawn(move || world.arrive())
            };
            world.read_all(1);
            sender.join().unwrap();
            other.join().unwrap();
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::task::Wake;

    struct Nobody;
    impl Wake for Nobody {
        fn wake(self: Arc<Self>) {}
    }

    fn waker() -> (Arc<Nobody>, Waker) {
        let nobody = Arc::new(Nobody);
        (nobody.clone(), nobody.into())
    }

    fn wait(readiness: &Readiness<()>, direction: Direction, id: u32, waker: &Waker) {
        wait_as(readiness, direction, WaiterId::handle(id), waker);
    }

    fn wait_as(readiness: &Readiness<()>, direction: Direction, id: WaiterId, waker: &Waker) {
        readiness.clear(direction, readiness.snapshot(direction));
        let mut spare = Spare::clone_of(waker);
        let left = readiness.wait(&mut readiness.lock(), direction, id, waker, &mut spare);
        assert_eq!(left, Left::Waits);
    }

    #[test]
    fn a_waiter_that_comes_again_replaces_its_waker() {
        let readiness = Readiness::new(());
        let (first, first_waker) = waker();
        let (second, second_waker) = waker();
        for id in [1, 2, 1, 2, 2, 1] {
            wait(&readiness, Direction::Read, id, &first_waker);
        }
        assert_eq!(Arc::strong_count(&first), 2 + 2);
        wait(&readiness, Direction::Read, 1, &second_waker);
        wait(&readiness, Direction::Read, 2, &second_waker);
        assert_eq!(Arc::strong_count(&first), 2);
        let mut wakers = Vec::new();
        readiness.deliver(&mut readiness.lock(), Ready::READABLE, &mut wakers);
        assert_eq!(wakers.len(), 2);
        drop(wakers);
        assert_eq!(Arc::strong_count(&second), 2);
    }

    #[test]
    fn a_waiter_that_goes_leaves_no_waker() {
        let readiness = Readiness::new(());
        let (nobody, waker) = waker();
        for id in 1..4 {
            wait(&readiness, Direction::Read, id, &waker);
            wait(&readiness, Direction::Write, id, &waker);
        }
        for id in [2, 1, 3] {
            assert!(readiness.lock().is_waited(Direction::Write));
            assert_eq!(readiness.forget(WaiterId::handle(id)).len(), 2);
        }
        assert_eq!(Arc::strong_count(&nobody), 2);
        assert!(
            !readiness
                .lock()
                .is_waited_by_others(Direction::Read, WaiterId::handle(9))
        );
    }

    /// The waker of whoever is woken first, second, …, by name.
    #[cfg(not(miri))]
    fn order(readiness: &Readiness<()>, names: &[(&'static str, Waker)]) -> Vec<&'static str> {
        let mut wakers = Vec::new();
        readiness.deliver(&mut readiness.lock(), Ready::READABLE, &mut wakers);
        let name = |waker: &Waker| names.iter().find(|(_, it)| it.will_wake(waker)).unwrap().0;
        wakers.iter().map(name).collect()
    }

    /// Who waits for one operation keeps its turn until it is served. A handle that comes again may have
    /// been served, so the first one goes last, or the others would never be.
    // Not under Miri, for which two clones of a waker need not have the same table (`Waker::will_wake`).
    #[cfg(not(miri))]
    #[test]
    fn those_who_wait_are_woken_in_their_order() {
        let readiness = Readiness::new(());
        let names = ["a", "b", "c", "x", "y", "z"].map(|name| (name, waker().1));
        let future = |index: usize| {
            let id = WaiterId::future(index as u32);
            wait_as(&readiness, Direction::Read, id, &names[index].1);
        };
        let handle =
            |index: usize| wait(&readiness, Direction::Read, index as u32, &names[index].1);
        for index in [3, 1, 5, 0, 4, 2] {
            match index {
                0..3 => future(index),
                _ => handle(index),
            }
        }
        assert_eq!(order(&readiness, &names), ["a", "b", "c", "z", "y", "x"]);
        // "a" was served. The others come again as they were woken.
        for index in [1, 2] {
            future(index);
        }
        for index in [5, 4, 3] {
            handle(index);
        }
        assert_eq!(order(&readiness, &names), ["b", "c", "y", "x", "z"]);
        // One that is alone, then not, then alone again.
        handle(3);
        handle(4);
        drop(readiness.forget(WaiterId::handle(3)));
        assert_eq!(order(&readiness, &names), ["y"]);
        handle(5);
        assert_eq!(order(&readiness, &names), ["z"]);
    }

    /// An event that comes after the question is not answered by it.
    #[test]
    fn an_event_between_the_look_at_the_level_and_its_answer_is_seen() {
        let readiness = Readiness::new(());
        let is_ready = readiness.look(Direction::Read, || {
            let mut slots = readiness.lock();
            readiness.deliver(&mut slots, Ready::READABLE, &mut Vec::new());
            Ok::<_, ()>(false) // Asked just before.
        });
        assert_eq!(is_ready, Ok(false));
        let (_nobody, waker) = waker();
        let (id, mut spare) = (WaiterId::future(1), Spare::clone_of(&waker));
        let mut slots = readiness.lock();
        let left = readiness.wait(&mut slots, Direction::Read, id, &waker, &mut spare);
        assert_eq!(left, Left::ReadyByNow, "the event is lost");
    }

    /// A waker that is there already is not cloned, and one that is not is cloned before the lock is taken.
    // Not under Miri, for which two clones of a waker need not have the same table (`Waker::will_wake`).
    #[cfg(not(miri))]
    #[test]
    fn a_waker_is_cloned_before_the_lock_is_taken_and_not_in_vain() {
        let readiness = Readiness::new(());
        let (nobody, first) = waker();
        let leave = |waker: &Waker, spare: &mut Spare| {
            readiness.clear(Direction::Read, readiness.snapshot(Direction::Read));
            let mut slots = readiness.lock();
            readiness.wait(
                &mut slots,
                Direction::Read,
                WaiterId::handle(0),
                waker,
                spare,
            )
        };
        let mut spare = readiness.spare(&first);
        assert_eq!(Arc::strong_count(&nobody), 3);
        assert_eq!(leave(&first, &mut spare), Left::Waits);
        let mut spare = readiness.spare(&first);
        assert_eq!(leave(&first, &mut spare), Left::Waits);
        assert_eq!(Arc::strong_count(&nobody), 3, "cloned in vain");
        let (_, second) = waker();
        let mut spare = readiness.spare(&second);
        assert_eq!(leave(&second, &mut spare), Left::NeedsClone);
        spare.fill(&second);
        assert_eq!(leave(&second, &mut spare), Left::Waits);
        drop(spare);
        assert_eq!(Arc::strong_count(&nobody), 2, "the waker before is left");
    }

    #[test]
    fn an_event_wakes_its_direction_only() {
        let readiness = Readiness::new(());
        let (_nobody, waker) = waker();
        wait(&readiness, Direction::Read, 1, &waker);
        wait(&readiness, Direction::Write, 1, &waker);
        let mut wakers = Vec::new();
        let mut slots = readiness.lock();
        readiness.deliver(&mut slots, Ready::WRITABLE, &mut wakers);
        assert!(slots.is_waited(Direction::Read) && !slots.is_waited(Direction::Write));
        assert_eq!(wakers.len(), 1);
    }
}
