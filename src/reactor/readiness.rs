//! The known readiness of one source, and its waiters.
//!
//! Each direction has two counters: `tick` counts reported events, and `consumed_tick` is the tick
//! up to which the readiness was used up. While they differ, an operation is worth a try. `state`,
//! behind a lock, holds the [waiters](Waiters), and the source's registrations, which must change
//! together with them.
//!
//! **The protocol.**
//!
//! * An operation first takes a [`Snapshot`]. If that is ready, it tries; if the attempt would
//!   block, it calls [`clear`](Readiness::clear) with the snapshot, which consumes the events
//!   counted *before* the attempt.
//! * An operation that finds its direction not ready takes the lock and calls
//!   [`Readiness::store_waker`], which checks once more. If the direction is ready, the
//!   operation is tried again; if not, the waker is stored.
//! * An event, [`deliver`](Readiness::deliver), is counted, and its wakers are taken out, under the
//!   lock; so counting needs only a plain load and store.
//!
//! **Why no edge is lost.** An event between an attempt and its clearing is counted beyond what the
//! clearing consumes, so the direction stays ready. (Two attempts at once may clear in the wrong
//! order; that costs one more attempt.) **Why no waiter is lost.** Either the event's critical
//! section precedes the waiter's, and the waiter sees the count; or it follows, and the event finds
//! the waker. `loom` checks both below.
//!
//! **The counters wrap.** A direction may see 2³² events without an attempt that would block: an
//! answer is written to each request, and there is always room. So after each 2³¹ events a
//! `consumed_tick` that is at least 2³¹ behind is set to the last event but one. An attempt may
//! clear at the same moment: either store may be the last, and each is right, since the attempt has
//! seen a recent event. (An attempt does not last for 2³¹ events.)
//!
//! A direction starts ready: nothing is known yet, so the first operation tries.
//!
//! **Wakers are cloned under no lock**, since cloning may run foreign code. If no waker is stored,
//! a clone is made before the lock is taken ([`spare`](Readiness::spare)). A stored one is probably
//! the same waker: if it is not, the lock is released for the clone.

use std::task::Waker;

use super::sorted_vec_map::SortedVecMap;
use crate::poller::{Interest, Ready};
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use crate::sync::{Mutex, MutexGuard, NeedsClone, Spare};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl Direction {
    pub(super) const BOTH: [Direction; 2] = [Direction::Read, Direction::Write];

    #[inline]
    pub(super) fn ready(self) -> Ready {
        match self {
            Direction::Read => Ready::READABLE,
            Direction::Write => Ready::WRITABLE,
        }
    }

    #[inline]
    pub(super) fn interest(self) -> Interest {
        match self {
            Direction::Read => Interest::READABLE,
            Direction::Write => Interest::WRITABLE,
        }
    }

    #[inline]
    pub(super) fn interest_in(is_in: impl Fn(Direction) -> bool) -> Interest {
        let chosen = Direction::BOTH.into_iter().filter(|one| is_in(*one));
        chosen.fold(Interest::NONE, |all, one| all | one.interest())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Added {
    /// The waker is stored, and the next event wakes it.
    Waiting,
    /// It is not: the direction is ready by now, and the operation must be tried again.
    AlreadyReady,
}

#[derive(Clone, Copy)]
pub(crate) struct Snapshot {
    tick: u32,
    consumed_tick: u32,
    sticky: u8,
}

impl Snapshot {
    #[inline]
    pub(crate) fn is_ready(self) -> bool {
        self.tick != self.consumed_tick
    }

    /// Returns `tick` and `consumed_tick`. While both are the same, there was neither an event nor
    /// a failed attempt.
    pub(crate) fn counts(self) -> (u32, u32) {
        (self.tick, self.consumed_tick)
    }

    pub(crate) fn is_closed(self) -> bool {
        Ready(self.sticky).intersects(Ready::CLOSED)
    }

    /// Whether a hang-up, an error or urgent data was ever reported, or may have gone unreported.
    /// Then a short read, or the end of a queue of datagrams, does not show that the source is
    /// drained: with edges an end of file that was reported together with data causes no edge of
    /// its own, a read stops at the urgent mark, and Linux may leave an error of `recvmmsg` for the
    /// next call (`do_recvmmsg`).
    #[inline]
    pub(crate) fn has_sticky_flags(self) -> bool {
        self.sticky != 0
    }
}

const HALF: u32 = 1 << 31;

const STICKY: u8 = Ready::CLOSED.0 | Ready::ERROR.0 | Ready::PRIORITY.0 | Ready::UNKNOWN.0;

pub(super) struct Readiness<R = ()> {
    /// By direction. Written under the lock.
    tick: [AtomicU32; 2],
    /// By direction. Written by the operation that has tried; and under the lock, when `tick` wraps
    /// half-way.
    consumed_tick: [AtomicU32; 2],
    /// The [`STICKY`] flags that were ever reported. Written under the lock.
    sticky: AtomicU8,
    /// Whether `state` may hold a waker: a hint to read without the lock. Written under it.
    has_waker: AtomicBool,
    state: Mutex<State<R>>,
}

#[derive(Default)]
pub(super) struct State<R> {
    pub(super) waiters: Waiters,
    /// The source's, which change together with its waiters.
    pub(super) registrations: R,
}

impl<R: Default> Readiness<R> {
    pub(super) fn new() -> Readiness<R> {
        Readiness {
            tick: [AtomicU32::new(1), AtomicU32::new(1)],
            consumed_tick: [AtomicU32::new(0), AtomicU32::new(0)],
            sticky: AtomicU8::new(0),
            has_waker: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    #[inline]
    pub(super) fn snapshot(&self, direction: Direction) -> Snapshot {
        // `tick` first: an event in between makes the rest newer, not older.
        let tick = self.tick[direction as usize].load(Ordering::Acquire);
        Snapshot {
            tick,
            consumed_tick: self.consumed_tick[direction as usize].load(Ordering::Relaxed),
            sticky: self.sticky.load(Ordering::Relaxed),
        }
    }

    /// Consumes the events that `seen` counts, after an attempt that began later would have
    /// blocked.
    #[inline]
    pub(super) fn clear(&self, direction: Direction, seen: Snapshot) {
        self.consumed_tick[direction as usize].store(seen.tick, Ordering::Relaxed);
    }

    /// Called after a failed attempt that began after `seen` was taken: asks `query` whether the
    /// direction is ready *now*, and clears it if not. `query` gets whether an event was counted
    /// since `seen`.
    ///
    /// Both the argument and the clearing use one snapshot, taken before the query: `query` knows
    /// of each event that the snapshot counts, and a later one is beyond what is cleared.
    #[inline]
    pub(super) fn refresh<E>(
        &self,
        direction: Direction,
        seen: Snapshot,
        query: impl FnOnce(bool) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let now = self.snapshot(direction);
        let is_ready = query(now.tick != seen.tick)?;
        if !is_ready {
            self.clear(direction, now);
        }
        Ok(is_ready)
    }

    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock()
    }

    /// Returns a clone of the waker, if the lock will probably find none stored.
    #[inline]
    pub(super) fn spare(&self, waker: &Waker) -> Spare {
        if self.has_waker.load(Ordering::Relaxed) {
            Spare::default()
        } else {
            Spare::clone_of(waker)
        }
    }

    /// Stores a waker for the next event of `direction`, unless that is ready. Afterwards
    /// `spare` holds the replaced waker, to be dropped outside the lock.
    #[inline]
    pub(super) fn store_waker(
        &self,
        waiters: &mut Waiters,
        direction: Direction,
        id: WaiterId,
        waker: &Waker,
        spare: &mut Spare,
    ) -> Result<Added, NeedsClone> {
        if self.snapshot(direction).is_ready() {
            return Ok(Added::AlreadyReady);
        }
        waiters.store(direction, id, waker, spare)?;
        self.has_waker.store(true, Ordering::Relaxed);
        Ok(Added::Waiting)
    }

    /// Counts an event, or something treated as one, under the lock, and moves the wakers of its
    /// directions to `wakers`. If this thread `may_wake_here` a task's own waker, that is woken
    /// here and stays: see [`Waiters`].
    #[inline(always)]
    pub(super) fn deliver(
        &self,
        state: &mut State<R>,
        ready: Ready,
        may_wake_here: bool,
        wakers: &mut Vec<Waker>,
    ) {
        self.set_sticky_flags(state, ready);
        for direction in Direction::BOTH {
            if ready.intersects(direction.ready()) {
                let tick = &self.tick[direction as usize];
                if cfg!(loom) {
                    // Equivalent under the lock. Loom compares a store with the last access only:
                    // after this thread's load it would not try the store before another load.
                    tick.fetch_add(1, Ordering::Release);
                } else {
                    let count = tick.load(Ordering::Relaxed).wrapping_add(1);
                    tick.store(count, Ordering::Release);
                    if count % HALF == 0 {
                        let consumed = &self.consumed_tick[direction as usize];
                        if count.wrapping_sub(consumed.load(Ordering::Relaxed)) >= HALF {
                            consumed.store(count.wrapping_sub(1), Ordering::Relaxed);
                        }
                    }
                }
                state.waiters.wake_or_take(direction, may_wake_here, wakers);
            }
        }
        self.has_waker
            .store(state.waiters.has_waker(), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn set_sticky_flags(&self, _: &mut State<R>, ready: Ready) {
        if ready.0 & STICKY != 0 {
            let sticky = self.sticky.load(Ordering::Relaxed) | (ready.0 & STICKY);
            self.sticky.store(sticky, Ordering::Relaxed);
        }
    }

    /// The returned wakers must be dropped outside the lock.
    pub(super) fn remove_waiter(&self, id: WaiterId) -> [Option<Waker>; 2] {
        let mut state = self.lock();
        let wakers = Direction::BOTH.map(|direction| state.waiters.remove(direction, id));
        self.has_waker
            .store(state.waiters.has_waker(), Ordering::Relaxed);
        wakers
    }
}

/// Unique among the waiters of one source. After 2^31 waiters a number is reused: one of two
/// waiters misses a wake only if the first one still waits in the same direction.
///
/// Futures and handles have separate ranges, so that futures come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaiterId(u32);

impl WaiterId {
    const HANDLE: u32 = 1 << 31;

    #[inline]
    pub(crate) fn future(count: u32) -> WaiterId {
        WaiterId(count & !WaiterId::HANDLE)
    }

    #[inline]
    pub(crate) fn handle(count: u32) -> WaiterId {
        WaiterId(count | WaiterId::HANDLE)
    }

    fn is_handle(self) -> bool {
        self.0 & WaiterId::HANDLE != 0
    }
}

/// The waiters of one source.
///
/// Each waiter has an identity, [`WaiterId`]: a handle to the socket, or one of our futures. A
/// waiter that waits again replaces its waker instead of adding one. Nearly always there is at
/// most one, which is stored inline. Several are in ordered maps ([`SortedVecMap`]): only an event
/// visits all of them.
///
/// **Wake order.** An event wakes all its waiters, and the first to try takes everything there is.
/// A future waits for one operation, and keeps its identity until that is done. So futures are
/// woken in the order of their first polls. A handle waits again for each operation, and we do
/// not know whether its last attempt succeeded. So handles are woken after the futures, in the
/// order in which they came, except that the first handle is woken last: it would be the
/// first to wait again, and would starve the others.
///
/// **A task's own waker is kept.** Most waiters are tasks of the worker that drives the source, and
/// wait for each event with the same waker. Such a waker is woken by reference and stays in place,
/// so it need not be cloned for each event. (A clone also makes the compare-and-swap fail with
/// which `async-task` ends a poll: two more locked instructions. A future's waker is removed when
/// its operation is done, so only handles profit.) Waking it under the lock is allowed on the
/// thread of that worker, or, for a stealable task, of any worker of its runtime, because no
/// foreign code runs: `scheduler::schedule` only queues the task, and never drops it. (A pinned
/// task on a pool worker has no kept waker: see `scheduler::waker_kind`.) Other threads take the
/// waker out, like any other; so does a reactor that closes, since a task's waker keeps its
/// runtime's memory alive. All wakers are dropped outside the lock. (An idle source that outlives
/// its last task keeps the memory of that task.)
///
/// The waker of a task with a span (feature `tracing`) is kept too, so that a dump can name its
/// task. But waking it runs a subscriber's code. So it is cloned, which only increments a count,
/// and the clone is woken outside the lock.
#[derive(Default)]
pub(super) struct Waiters {
    /// The only waiter, or a woken one's kept waker.
    only: Option<Waiter>,
    /// Allocated for the second waiter: holds all of them, unless only one is left. Boxed, since
    /// nearly every source has none.
    several: Option<Box<[Queue; 2]>>,
}

struct Waiter {
    waker: Waker,
    id: WaiterId,
    direction: Direction,
    is_waiting: bool,
    kind: WakerKind,
}

/// How an event calls a waker: see [`Waiters`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WakerKind {
    /// Taken out, and called outside the locks: foreign; or not classified, as in the first wait
    /// with a registration, as one of several waiters, or a pinned task's of a pool worker.
    Other,
    /// Woken under the lock.
    Task,
    /// The task's span wraps its own waker; woken outside the lock.
    #[cfg(feature = "tracing")]
    TracedTask,
}

impl Waiter {
    fn new(waker: Waker, id: WaiterId, direction: Direction) -> Waiter {
        Waiter {
            waker,
            id,
            direction,
            is_waiting: true,
            kind: WakerKind::Other,
        }
    }

    #[inline]
    fn is(&self, direction: Direction, id: WaiterId) -> bool {
        self.direction == direction && self.id == id
    }
}

/// The waiters for one direction. Empty maps keep their memory, so a reader and a writer that wait
/// alternately allocate nothing.
#[derive(Default)]
struct Queue {
    /// Futures by their ids, then handles in the order of arrival.
    waiters: SortedVecMap<Waker>,
    /// The place in `waiters` of each handle, by the handle's id.
    arrivals: SortedVecMap<u64>,
    arrived: u64,
}

/// The places of handles are above this value, the places of futures below.
const FIRST_HANDLE: u64 = WaiterId::HANDLE as u64;

impl Queue {
    fn place(&mut self, id: WaiterId) -> Option<u64> {
        if id.is_handle() {
            self.arrivals.get_mut(id.0.into()).copied()
        } else {
            Some(id.0.into())
        }
    }

    fn get(&mut self, id: WaiterId) -> Option<&mut Waker> {
        let place = self.place(id)?;
        self.waiters.get_mut(place)
    }

    fn add(&mut self, id: WaiterId, waker: Waker) {
        let mut place = id.0.into();
        if id.is_handle() {
            self.arrived += 1;
            place = FIRST_HANDLE + self.arrived;
            self.arrivals.insert(id.0.into(), place);
        }
        self.waiters.insert(place, waker);
    }

    fn remove(&mut self, id: WaiterId) -> Option<Waker> {
        let place = self.place(id)?;
        if id.is_handle() {
            self.arrivals.remove(id.0.into());
        }
        self.waiters.remove(place)
    }

    fn len(&self) -> usize {
        self.waiters.len()
    }

    fn take(&mut self, wakers: &mut Vec<Waker>) {
        self.arrivals.clear();
        let mut first_handle = None;
        for (place, waker) in self.waiters.drain() {
            if place > FIRST_HANDLE && first_handle.is_none() {
                first_handle = Some(waker);
            } else {
                wakers.push(waker);
            }
        }
        wakers.extend(first_handle);
    }
}

impl Waiters {
    #[inline]
    fn len(&self) -> usize {
        match (&self.only, &self.several) {
            (Some(only), _) => usize::from(only.is_waiting),
            (None, None) => 0,
            (None, Some(queues)) => queues.iter().map(Queue::len).sum(),
        }
    }

    /// Includes a kept waker.
    #[inline]
    pub(super) fn has_waker(&self) -> bool {
        self.only.is_some() || self.len() > 0
    }

    /// Classifies the waker that was just stored, if it is the only one. `kind` is `Other` unless
    /// it is the running task's own and [may stay](crate::scheduler::waker_kind).
    #[inline]
    pub(super) fn set_kind(&mut self, kind: WakerKind) {
        if let Some(only) = &mut self.only {
            only.kind = kind;
        }
    }

    #[inline]
    pub(super) fn store(
        &mut self,
        direction: Direction,
        id: WaiterId,
        waker: &Waker,
        spare: &mut Spare,
    ) -> Result<(), NeedsClone> {
        match &mut self.only {
            Some(only) if only.is(direction, id) => {
                spare.renew(&mut only.waker, waker)?;
                (only.is_waiting, only.kind) = (true, WakerKind::Other);
                Ok(())
            }
            None if self.several.is_none() => {
                self.only = Some(Waiter::new(spare.take()?, id, direction));
                Ok(())
            }
            _ => self.store_among_others(direction, id, waker, spare),
        }
    }

    #[cold]
    fn store_among_others(
        &mut self,
        direction: Direction,
        id: WaiterId,
        waker: &Waker,
        spare: &mut Spare,
    ) -> Result<(), NeedsClone> {
        if let Some(woken) = self.only.as_mut().filter(|only| !only.is_waiting) {
            let new = Waiter::new(spare.take()?, id, direction);
            spare.put(std::mem::replace(woken, new).waker);
            return Ok(());
        }
        let queues = self.several.get_or_insert_default();
        if let Some(old) = queues[direction as usize].get(id) {
            return spare.renew(old, waker);
        }
        let waker = spare.take()?;
        if let Some(only) = self.only.take() {
            queues[only.direction as usize].add(only.id, only.waker);
        } else if queues.iter().all(|queue| queue.len() == 0) {
            self.only = Some(Waiter::new(waker, id, direction));
            return Ok(());
        }
        queues[direction as usize].add(id, waker);
        Ok(())
    }

    pub(super) fn remove(&mut self, direction: Direction, id: WaiterId) -> Option<Waker> {
        match self.only.take_if(|only| only.is(direction, id)) {
            Some(only) => Some(only.waker),
            None => self.several.as_mut()?[direction as usize].remove(id),
        }
    }

    pub(super) fn take_kept(&mut self) -> Option<Waker> {
        let kept = self.only.take_if(|only| !only.is_waiting);
        kept.map(|only| only.waker)
    }

    pub(super) fn take_all(&mut self, wakers: &mut Vec<Waker>) {
        wakers.extend(self.only.take().map(|only| only.waker));
        for queue in self.several.iter_mut().flat_map(|queues| &mut **queues) {
            queue.take(wakers);
        }
    }

    /// Takes out the wakers for `direction`, in wake order. If `may_wake_here`, a task's own waker
    /// is woken here, or cloned, and stays.
    #[inline]
    pub(super) fn wake_or_take(
        &mut self,
        direction: Direction,
        may_wake_here: bool,
        wakers: &mut Vec<Waker>,
    ) {
        match &mut self.only {
            Some(only) if !only.is_waiting || only.direction != direction => {}
            Some(only) if may_wake_here && only.kind != WakerKind::Other => {
                only.is_waiting = false;
                match only.kind {
                    #[cfg(feature = "tracing")]
                    WakerKind::TracedTask => wakers.push(only.waker.clone()),
                    // async-task calls `scheduler::schedule`.
                    _ => only.waker.wake_by_ref(),
                }
            }
            Some(_) => wakers.extend(self.only.take().map(|only| only.waker)),
            None => {
                if let Some(queues) = &mut self.several {
                    queues[direction as usize].take(wakers);
                }
            }
        }
    }

    /// Calls `f` with each waker, its direction, and whether its owner waits or was woken and left
    /// it.
    pub(super) fn for_each(&self, mut f: impl FnMut(&Waker, Direction, bool)) {
        if let Some(only) = &self.only {
            f(&only.waker, only.direction, only.is_waiting);
        }
        let queues = self.several.iter().flat_map(|queues| &**queues);
        for (queue, direction) in queues.zip(Direction::BOTH) {
            (queue.waiters.values()).for_each(|waker| f(waker, direction, true));
        }
    }

    #[inline]
    pub(super) fn contains(&self, direction: Direction) -> bool {
        match (&self.only, &self.several) {
            (Some(only), _) => only.is_waiting && only.direction == direction,
            (None, None) => false,
            (None, Some(queues)) => queues[direction as usize].len() > 0,
        }
    }

    /// Whether there is a waiter other than `id` in `direction`. A handle may have another user in
    /// the other direction.
    pub(super) fn contains_others(&mut self, direction: Direction, id: WaiterId) -> bool {
        let own = match (&self.only, &mut self.several) {
            (Some(only), _) => only.is_waiting && only.is(direction, id),
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

    /// A socket that holds a number of bytes, with an edge for each arrival. Its reader takes what
    /// there is, clears, and waits for the waker's count.
    struct Model {
        readiness: Readiness,
        bytes: AtomicUsize,
        woken: std::sync::Arc<Wakes>,
    }

    /// The effect of a `Waker`, which loom cannot see into.
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

    impl Model {
        fn new() -> Arc<Model> {
            Arc::new(Model {
                readiness: <Readiness>::new(),
                bytes: AtomicUsize::new(0),
                woken: std::sync::Arc::new(Wakes {
                    count: AtomicUsize::new(0),
                    thread: loom::thread::current(),
                }),
            })
        }

        fn arrive(&self) {
            self.bytes.fetch_add(1, O::Release);
            let mut wakers = Vec::new();
            self.readiness.deliver(
                &mut self.readiness.lock(),
                Ready::READABLE,
                false,
                &mut wakers,
            );
            for waker in wakers {
                waker.wake();
            }
        }

        /// Polls a read once: returns bytes, or `None` after it has left a waker.
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
                if self.store_waker(id, &waker) == Added::Waiting {
                    return None;
                }
            }
        }

        fn store_waker(&self, id: WaiterId, waker: &Waker) -> Added {
            let mut spare = self.readiness.spare(waker);
            loop {
                let mut state = self.readiness.lock();
                match (self.readiness).store_waker(
                    &mut state.waiters,
                    Direction::Read,
                    id,
                    waker,
                    &mut spare,
                ) {
                    Ok(registered) => return registered,
                    Err(NeedsClone) => {
                        drop(state);
                        spare.fill(waker);
                    }
                }
            }
        }

        /// Polls once for the readiness of a borrowed descriptor, which asks the kernel each time.
        fn poll_level(&self) -> bool {
            let waker = Waker::from(self.woken.clone());
            loop {
                let seen = self.readiness.snapshot(Direction::Read);
                if self.bytes.load(O::Acquire) > 0 {
                    return true;
                }
                self.readiness.clear(Direction::Read, seen);
                if self.store_waker(WaiterId::future(1), &waker) == Added::Waiting {
                    return false;
                }
            }
        }

        /// Polls once a user's operation on a borrowed descriptor with an unread error queue. The
        /// kernel always reports it ready, so after a failed attempt only an event shows something
        /// new.
        fn poll_beside_an_old_error(&self) -> Option<usize> {
            let waker = Waker::from(self.woken.clone());
            loop {
                let seen = self.readiness.snapshot(Direction::Read);
                match self.bytes.swap(0, O::Acquire) {
                    0 => {}
                    n => return Some(n),
                }
                let query = Ok::<bool, std::convert::Infallible>;
                if (self.readiness.refresh(Direction::Read, seen, query)).unwrap() {
                    continue;
                }
                if self.store_waker(WaiterId::future(1), &waker) == Added::Waiting {
                    return None;
                }
            }
        }

        fn sleep(&self) {
            while self.woken.count.swap(0, O::Acquire) == 0 {
                loom::thread::park();
            }
        }

        /// Loom fails the model if a lost edge or waker parks this forever.
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

    /// An edge between asking the kernel and waiting is never lost.
    ///
    /// The snapshot must be taken before the query: otherwise an event in between would be cleared
    /// unseen.
    #[test]
    fn edge_not_lost_between_poll_and_wait() {
        loom::model(|| {
            let world = Model::new();
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

    /// Concurrent deliveries lose neither an event nor a waiter.
    #[test]
    fn concurrent_deliveries_lose_nothing() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let world = Model::new();
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

    /// An edge between attempt clearing and waiting is never lost.
    #[test]
    fn edge_not_lost_between_attempt_and_wait() {
        loom::model(|| {
            let world = Model::new();
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
            let world = Model::new();
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

    /// Whether an event came must be read from the snapshot that is cleared: asked before it, an
    /// event in between would be cleared unseen.
    #[test]
    fn an_edge_beside_an_old_error_is_never_lost() {
        loom::model(|| {
            let world = Model::new();
            let sender = {
                let world = world.clone();
                loom::thread::spawn(move || world.arrive())
            };
            while world.poll_beside_an_old_error().is_none() {
                world.sleep();
            }
            sender.join().unwrap();
        });
    }

    #[test]
    fn two_readers_at_once_are_both_woken() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let world = Model::new();
            // The other reader only tries, and may clear late what it saw.
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

#[cfg(test)]
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

    fn wait(readiness: &Readiness, direction: Direction, id: u32, waker: &Waker) {
        wait_as(readiness, direction, WaiterId::handle(id), waker);
    }

    fn wait_as(readiness: &Readiness, direction: Direction, id: WaiterId, waker: &Waker) {
        readiness.clear(direction, readiness.snapshot(direction));
        let mut spare = Spare::clone_of(waker);
        let left = readiness.store_waker(
            &mut readiness.lock().waiters,
            direction,
            id,
            waker,
            &mut spare,
        );
        assert_eq!(left, Ok(Added::Waiting));
    }

    /// A direction stays ready when its count of events wraps.
    #[test]
    fn readiness_survives_tick_wrap() {
        let readiness = <Readiness>::new();
        let direction = Direction::Write;
        let count = &readiness.tick[direction as usize];
        for consumed in [1, 7, HALF + 1, HALF + 7] {
            readiness.consumed_tick[direction as usize].store(consumed, Ordering::Relaxed);
            // The events at which the two are compared, and the event at which they would be equal.
            for near in [HALF, 0, HALF, 0, consumed] {
                count.store(near.wrapping_sub(2), Ordering::Relaxed);
                for _ in 0..4 {
                    let mut state = readiness.lock();
                    readiness.deliver(&mut state, Ready::WRITABLE, false, &mut Vec::new());
                    assert!(readiness.snapshot(direction).is_ready());
                }
            }
        }
    }

    #[test]
    fn a_waiter_that_comes_again_replaces_its_waker() {
        let readiness = <Readiness>::new();
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
        readiness.deliver(&mut readiness.lock(), Ready::READABLE, false, &mut wakers);
        assert_eq!(wakers.len(), 2);
        drop(wakers);
        assert_eq!(Arc::strong_count(&second), 2);
    }

    #[test]
    fn a_waiter_that_goes_leaves_no_waker() {
        let readiness = <Readiness>::new();
        let (nobody, waker) = waker();
        for id in 1..4 {
            wait(&readiness, Direction::Read, id, &waker);
            wait(&readiness, Direction::Write, id, &waker);
        }
        for id in [2, 1, 3] {
            assert!(readiness.lock().waiters.contains(Direction::Write));
            assert_eq!(readiness.remove_waiter(WaiterId::handle(id)).len(), 2);
        }
        assert_eq!(Arc::strong_count(&nobody), 2);
        assert!(
            !readiness
                .lock()
                .waiters
                .contains_others(Direction::Read, WaiterId::handle(9))
        );
    }

    #[cfg(not(miri))]
    fn order(readiness: &Readiness, names: &[(&'static str, Waker)]) -> Vec<&'static str> {
        let mut wakers = Vec::new();
        readiness.deliver(&mut readiness.lock(), Ready::READABLE, false, &mut wakers);
        let name = |waker: &Waker| {
            names
                .iter()
                .find(|(_, own)| own.will_wake(waker))
                .unwrap()
                .0
        };
        wakers.iter().map(name).collect()
    }

    /// A waiter for one operation keeps its turn until it is served. A returning handle may have
    /// been served, so the first handle goes last, or the others would starve.
    // Not under Miri, for which two clones of a waker need not have the same table
    // (`Waker::will_wake`).
    #[cfg(not(miri))]
    #[test]
    fn those_who_wait_are_woken_in_their_order() {
        let readiness = <Readiness>::new();
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
        // "a" was served. The others register again in the order of their wakes.
        for index in [1, 2] {
            future(index);
        }
        for index in [5, 4, 3] {
            handle(index);
        }
        assert_eq!(order(&readiness, &names), ["b", "c", "y", "x", "z"]);
        handle(3);
        handle(4);
        drop(readiness.remove_waiter(WaiterId::handle(3)));
        assert_eq!(order(&readiness, &names), ["y"]);
        handle(5);
        assert_eq!(order(&readiness, &names), ["z"]);
    }

    #[test]
    fn an_event_while_the_kernel_is_asked_is_seen() {
        let readiness = <Readiness>::new();
        let seen = readiness.snapshot(Direction::Read);
        let is_ready = readiness.refresh(Direction::Read, seen, |has_event| {
            assert!(!has_event, "none has come yet");
            let mut state = readiness.lock();
            readiness.deliver(&mut state, Ready::READABLE, false, &mut Vec::new());
            Ok::<_, ()>(false) // Asked just before the event.
        });
        assert_eq!(is_ready, Ok(false));
        let (_nobody, waker) = waker();
        let (id, mut spare) = (WaiterId::future(1), Spare::clone_of(&waker));
        let mut state = readiness.lock();
        let left =
            readiness.store_waker(&mut state.waiters, Direction::Read, id, &waker, &mut spare);
        assert_eq!(left, Ok(Added::AlreadyReady), "the event is lost");
    }

    /// A waker is cloned before the lock is taken and not in vain.
    ///
    /// A stored waker is not cloned, and a new one is cloned before the lock is taken.
    // Not under Miri, for which two clones of a waker need not have the same table
    // (`Waker::will_wake`).
    #[cfg(not(miri))]
    #[test]
    fn waker_cloned_before_lock_and_not_in_vain() {
        let readiness = <Readiness>::new();
        let (nobody, first) = waker();
        let register = |waker: &Waker, spare: &mut Spare| {
            readiness.clear(Direction::Read, readiness.snapshot(Direction::Read));
            let mut state = readiness.lock();
            readiness.store_waker(
                &mut state.waiters,
                Direction::Read,
                WaiterId::handle(0),
                waker,
                spare,
            )
        };
        let mut spare = readiness.spare(&first);
        assert_eq!(Arc::strong_count(&nobody), 3);
        assert_eq!(register(&first, &mut spare), Ok(Added::Waiting));
        let mut spare = readiness.spare(&first);
        assert_eq!(register(&first, &mut spare), Ok(Added::Waiting));
        assert_eq!(Arc::strong_count(&nobody), 3, "cloned in vain");
        let (_, second) = waker();
        let mut spare = readiness.spare(&second);
        assert_eq!(register(&second, &mut spare), Err(NeedsClone));
        spare.fill(&second);
        assert_eq!(register(&second, &mut spare), Ok(Added::Waiting));
        drop(spare);
        assert_eq!(Arc::strong_count(&nobody), 2, "the waker before is left");
    }

    #[cfg(not(miri))]
    fn wait_kept(readiness: &Readiness, id: u32, waker: &Waker) -> Result<Added, NeedsClone> {
        readiness.clear(Direction::Read, readiness.snapshot(Direction::Read));
        let mut spare = readiness.spare(waker);
        loop {
            let mut state = readiness.lock();
            let id = WaiterId::handle(id);
            let registered =
                readiness.store_waker(&mut state.waiters, Direction::Read, id, waker, &mut spare);
            if registered != Err(NeedsClone) {
                state.waiters.set_kind(WakerKind::Task);
                return registered;
            }
            drop(state);
            spare.fill(waker);
        }
    }

    /// A kept waker is woken for each event it waits for and cloned once.
    #[cfg(not(miri))]
    #[test]
    fn kept_waker_cloned_once_woken_each_event() {
        struct Count(std::sync::atomic::AtomicUsize);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                panic!("a kept waker is woken by reference");
            }
            fn wake_by_ref(self: &Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let count = Arc::new(Count(Default::default()));
        let waker = Waker::from(count.clone());
        let readiness = <Readiness>::new();
        let deliver = || {
            let mut wakers = Vec::new();
            readiness.deliver(&mut readiness.lock(), Ready::READABLE, true, &mut wakers);
            wakers.len()
        };
        for round in 1..4 {
            assert_eq!(wait_kept(&readiness, 0, &waker), Ok(Added::Waiting));
            assert!(readiness.lock().waiters.contains(Direction::Read));
            assert_eq!((deliver(), deliver()), (0, 0), "it is kept");
            assert_eq!(
                count.0.load(Ordering::Relaxed),
                round,
                "woken once for each wait"
            );
            assert_eq!(Arc::strong_count(&count), 3, "cloned once");
            let mut state = readiness.lock();
            assert!(!state.waiters.contains(Direction::Read), "nobody waits");
            assert!(
                !(state.waiters).contains_others(Direction::Read, WaiterId::handle(9)),
                "one who was woken does not hold the source where it is"
            );
        }
    }

    /// A kept waker of one who was woken gives way to the next waiter.
    ///
    /// Otherwise two tasks that read alternately would both be woken by each event.
    #[cfg(not(miri))]
    #[test]
    fn kept_waker_yields_to_next_waiter() {
        let readiness = <Readiness>::new();
        let (first, first_waker) = waker();
        let (second, second_waker) = waker();
        assert_eq!(wait_kept(&readiness, 1, &first_waker), Ok(Added::Waiting));
        readiness.deliver(
            &mut readiness.lock(),
            Ready::READABLE,
            true,
            &mut Vec::new(),
        );
        wait(&readiness, Direction::Read, 2, &second_waker);
        assert_eq!(Arc::strong_count(&first), 2, "it is left behind");
        let mut wakers = Vec::new();
        readiness.deliver(&mut readiness.lock(), Ready::READABLE, true, &mut wakers);
        assert_eq!(wakers.len(), 1);
        assert!(wakers[0].will_wake(&second_waker));
        drop(wakers);
        assert_eq!(Arc::strong_count(&second), 2);
        // The same waiter with another waker, which may be foreign code.
        assert_eq!(wait_kept(&readiness, 1, &first_waker), Ok(Added::Waiting));
        wait(&readiness, Direction::Read, 1, &second_waker);
        let mut wakers = Vec::new();
        readiness.deliver(&mut readiness.lock(), Ready::READABLE, true, &mut wakers);
        assert_eq!(wakers.len(), 1, "woken under the lock");
    }

    #[test]
    fn an_event_wakes_its_direction_only() {
        let readiness = <Readiness>::new();
        let (_nobody, waker) = waker();
        wait(&readiness, Direction::Read, 1, &waker);
        wait(&readiness, Direction::Write, 1, &waker);
        let mut wakers = Vec::new();
        let mut state = readiness.lock();
        readiness.deliver(&mut state, Ready::WRITABLE, false, &mut wakers);
        assert!(
            state.waiters.contains(Direction::Read) && !state.waiters.contains(Direction::Write)
        );
        assert_eq!(wakers.len(), 1);
    }
}
