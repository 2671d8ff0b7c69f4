//! The waiters of one source.
//!
//! Each waiter has an identity, [`WaiterId`]: a handle to the socket, or one of our futures. A
//! waiter that registers again replaces its waker instead of adding one. Nearly always there is at
//! most one, which is stored inline. Several are in ordered maps ([`SortedVecMap`]): only an event
//! visits all of them.
//!
//! **Wake order.** An event wakes all its waiters, and the first to try takes everything there is.
//! A future waits for one operation, and keeps its identity until that is done. So futures are
//! woken in the order of their first polls. A handle registers again for each operation, and we do
//! not know whether its last attempt succeeded. So handles are woken after the futures, in the
//! order in which they registered, except that the first handle is woken last: it would be the
//! first to wait again, and would starve the others.
//!
//! **A task's own waker is kept.** Most waiters are tasks of the worker that drives the source, and
//! wait for each event with the same waker. Such a waker is woken by reference and stays in place,
//! so it need not be cloned for each event. (A clone also makes the compare-and-swap fail with
//! which `async-task` ends a poll: two more locked instructions. A future's waker is removed when
//! its operation is done, so only handles profit.) Waking it under the lock is allowed on the
//! thread of that worker, or, for a stealable task, of any worker of its pool, because no foreign
//! code runs: `scheduler::schedule` only queues the task, and never drops it. (A pinned task on a
//! pool worker has no kept waker: see `scheduler::waker_kind`.) Other threads take the waker out,
//! like any other; so does a reactor that closes, since a task's waker keeps its runtime's memory
//! alive. All wakers are dropped outside the lock. (An idle source that outlives its last task
//! keeps the memory of that task.)
//!
//! The waker of a task with a span (feature `tracing`) is kept too, so that a dump can name its
//! task. But waking it runs a subscriber's code. So it is cloned, which only increments a count,
//! and the clone is woken outside the lock.

use std::task::Waker;

use super::sorted_vec_map::SortedVecMap;
use crate::poller::Ready;
use crate::sync::{NeedsClone, Spare};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl Direction {
    #[inline]
    pub(super) fn ready(self) -> Ready {
        match self {
            Direction::Read => Ready::READABLE,
            Direction::Write => Ready::WRITABLE,
        }
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

/// Whether a waker is a task's own: see the head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WakerKind {
    Foreign,
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
            kind: WakerKind::Foreign,
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
    /// By id.
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

    /// Marks the waker that was just registered, if it is the only one. `kind` is `Foreign` unless
    /// the waker belongs to a task of this thread's worker.
    #[inline]
    pub(super) fn set_kind(&mut self, kind: WakerKind) {
        if let Some(only) = &mut self.only {
            only.kind = kind;
        }
    }

    #[inline]
    pub(super) fn register(
        &mut self,
        direction: Direction,
        id: WaiterId,
        waker: &Waker,
        spare: &mut Spare,
    ) -> Result<(), NeedsClone> {
        match &mut self.only {
            Some(only) if only.is(direction, id) => {
                spare.renew(&mut only.waker, waker)?;
                (only.is_waiting, only.kind) = (true, WakerKind::Foreign);
                Ok(())
            }
            None if self.several.is_none() => {
                self.only = Some(Waiter::new(spare.take()?, id, direction));
                Ok(())
            }
            _ => self.register_among_others(direction, id, waker, spare),
        }
    }

    #[cold]
    fn register_among_others(
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

    /// Takes out the wakers for `direction`, in wake order. If `may_keep`, a task's own waker is
    /// woken here, or cloned, and stays.
    #[inline]
    pub(super) fn take(&mut self, direction: Direction, may_keep: bool, wakers: &mut Vec<Waker>) {
        match &mut self.only {
            Some(only) if !only.is_waiting || only.direction != direction => {}
            Some(only) if may_keep && only.kind != WakerKind::Foreign => {
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
        for (queue, direction) in queues.zip([Direction::Read, Direction::Write]) {
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
