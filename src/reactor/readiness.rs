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
//! Nearly always there is one at most, who has a place of its own; the rare others share a list.

use std::task::Waker;

use crate::poller::Ready;
use crate::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use crate::sync::{Mutex, MutexGuard, renew};

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

/// Who waits: unique among the waiters of one source. (After 2^32 waiters of one source a number
/// comes again; only if its first owner still waits in the same direction does one of the two go
/// unwoken.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaiterId(pub(crate) u32);

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

    /// Whether a hang-up, an error or urgent data was reported, ever, or may have gone unreported:
    /// then a read that fills less than was asked for says nothing about the next one.
    #[inline]
    pub(crate) fn has_news_beyond_data(self) -> bool {
        self.news != 0
    }
}

/// What is remembered for good.
const NEWS: u8 = Ready::CLOSED.0 | Ready::ERROR.0 | Ready::PRIORITY.0 | Ready::UNTOLD.0;

/// Waiting was refused: the operation is to be tried again.
#[derive(Debug)]
pub(crate) struct ReadyByNow;

#[derive(Debug)]
pub(crate) struct Readiness<R> {
    /// By direction. Written under the lock.
    events: [AtomicU32; 2],
    /// By direction. Written by whoever has tried.
    spent: [AtomicU32; 2],
    /// What of [`NEWS`] was ever reported. Written under the lock.
    news: AtomicU8,
    slots: Mutex<Slots<R>>,
}

/// What the lock protects. `homes` is the owner's.
#[derive(Debug)]
pub(crate) struct Slots<R> {
    first: Option<Waiter>,
    /// Those who came while there was a first, in their order. Boxed, since nearly every source goes
    /// without.
    #[expect(
        clippy::box_collection,
        reason = "one word instead of three in every source"
    )]
    more: Option<Box<Vec<Waiter>>>,
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

impl<R> Readiness<R> {
    pub(crate) fn new(homes: R) -> Readiness<R> {
        Readiness {
            events: [AtomicU32::new(1), AtomicU32::new(1)],
            spent: [AtomicU32::new(0), AtomicU32::new(0)],
            news: AtomicU8::new(0),
            slots: Mutex::new(Slots {
                first: None,
                more: None,
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

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Slots<R>> {
        self.slots.lock()
    }

    /// Leaves a waker for the next event of `direction`, unless it is ready by now. Hands back
    /// the waker that it replaces, to be dropped outside the lock.
    #[inline]
    pub(crate) fn wait(
        &self,
        slots: &mut Slots<R>,
        direction: Direction,
        id: WaiterId,
        waker: &Waker,
    ) -> Result<Option<Waker>, ReadyByNow> {
        if self.snapshot(direction).is_ready() {
            return Err(ReadyByNow);
        }
        Ok(slots.leave(direction, id, waker))
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
    }

    /// Notes whatever of `ready` is remembered for good, while the lock is held.
    #[inline]
    pub(crate) fn remember(&self, _: &mut Slots<R>, ready: Ready) {
        if ready.0 & NEWS != 0 {
            let news = self.news.load(Ordering::Relaxed) | (ready.0 & NEWS);
            self.news.store(news, Ordering::Relaxed);
        }
    }

    /// The waiter goes: its wakers are handed back, to be dropped outside the lock.
    pub(crate) fn forget(&self, id: WaiterId) -> [Option<Waker>; 2] {
        let mut slots = self.lock();
        [Direction::Read, Direction::Write].map(|direction| slots.remove(direction, id))
    }
}

impl<R> Slots<R> {
    fn all(&self) -> impl Iterator<Item = &Waiter> {
        self.first
            .iter()
            .chain(self.more.iter().flat_map(|more| &**more))
    }

    #[inline]
    fn leave(&mut self, direction: Direction, id: WaiterId, waker: &Waker) -> Option<Waker> {
        match &mut self.first {
            Some(first) if first.is(direction, id) => renew(&mut first.waker, waker),
            None if self.more.is_none() => {
                self.first = Some(Waiter {
                    waker: waker.clone(),
                    id,
                    direction,
                });
                None
            }
            _ => self.leave_among_others(direction, id, waker),
        }
    }

    #[cold]
    fn leave_among_others(
        &mut self,
        direction: Direction,
        id: WaiterId,
        waker: &Waker,
    ) -> Option<Waker> {
        let more = self.more.get_or_insert_default();
        if let Some(own) = more.iter_mut().find(|own| own.is(direction, id)) {
            return renew(&mut own.waker, waker);
        }
        let own = Waiter {
            waker: waker.clone(),
            id,
            direction,
        };
        match self.first {
            None => self.first = Some(own),
            Some(_) => more.push(own),
        }
        None
    }

    fn remove(&mut self, direction: Direction, id: WaiterId) -> Option<Waker> {
        let first = self.first.take_if(|first| first.is(direction, id));
        let removed = first.or_else(|| {
            let more = self.more.as_mut()?;
            let index = more.iter().position(|own| own.is(direction, id))?;
            Some(more.remove(index))
        });
        removed.map(|own| own.waker)
    }

    /// Takes out the wakers of `direction`. Who waited longest comes last: it will be the first again,
    /// and one that takes all there is (`accept`) would leave nothing to the others.
    #[inline]
    pub(super) fn take(&mut self, direction: Direction, wakers: &mut Vec<Waker>) {
        let longest = self.first.take_if(|first| first.direction == direction);
        if self.more.is_some() {
            self.take_others(direction, longest, wakers);
        } else if let Some(longest) = longest {
            wakers.push(longest.waker);
        }
    }

    #[cold]
    fn take_others(
        &mut self,
        direction: Direction,
        mut longest: Option<Waiter>,
        wakers: &mut Vec<Waker>,
    ) {
        let Some(more) = &mut self.more else { return };
        for own in std::mem::take(&mut **more) {
            if own.direction != direction {
                more.push(own);
            } else if longest.is_none() {
                longest = Some(own);
            } else {
                wakers.push(own.waker);
            }
        }
        wakers.extend(longest.map(|longest| longest.waker));
    }

    /// Whether anybody waits for `direction`.
    #[inline]
    pub(crate) fn is_waited(&self, direction: Direction) -> bool {
        self.all().any(|own| own.direction == direction)
    }

    /// Whether anybody waits but `id` in `direction`. (In the other direction a handle may have
    /// another user.)
    pub(crate) fn is_waited_by_others(&self, direction: Direction, id: WaiterId) -> bool {
        self.all().any(|own| !own.is(direction, id))
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicUsize, Ordering as O};

    const ME: WaiterId = WaiterId(1);

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
                let mut slots = self.readiness.lock();
                let waits = self.readiness.wait(&mut slots, Direction::Read, id, &waker);
                if waits.is_ok() {
                    return None;
                }
            }
        }

        /// Reads `total` bytes. A lost edge or waker leaves it parked, and loom fails the model.
        fn read_all(&self, total: usize) {
            let mut read = 0;
            while read < total {
                match self.poll_read(ME) {
                    Some(n) => read += n,
                    None => {
                        while self.woken.count.swap(0, O::Acquire) == 0 {
                            loom::thread::park();
                        }
                    }
                }
            }
        }
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
        readiness.clear(direction, readiness.snapshot(direction));
        readiness
            .wait(&mut readiness.lock(), direction, WaiterId(id), waker)
            .unwrap();
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
            assert_eq!(readiness.forget(WaiterId(id)).len(), 2);
        }
        assert_eq!(Arc::strong_count(&nobody), 2);
        assert!(
            !readiness
                .lock()
                .is_waited_by_others(Direction::Read, WaiterId(9))
        );
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
