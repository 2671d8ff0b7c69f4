//! The run queue of a pool worker: first in, first out, and open to thieves. The item in the [LIFO
//! slot](RunQueue::push_lifo) precedes the others.
//!
//! A ring of slots, and the LIFO slot; each is empty or has one item. Only the owner pushes, and
//! only the owner moves `head` and `tail`. The owner or a thief takes an item by replacing it with
//! null, with one compare-and-exchange. So a push needs no locked instruction, and a pop needs one.
//!
//! **Why nothing is lost or taken twice.** Only the owner makes a slot non-null. It does so only at
//! `tail`, where it has seen the slot null after the slot was last filled: `head` passes a slot
//! only when the owner has emptied it, or has seen that another thread did. So a push overwrites
//! nothing, and each stored item is taken by exactly one thread. The owner empties the LIFO slot
//! before it fills it. The values of `head` and `tail` that a thief reads may be stale: then it
//! takes a different item than it expected, but a valid one. `loom` checks this below.
//!
//! A stolen item leaves a hole between `head` and `tail`, which [`len`](RunQueue::len) counts until
//! the owner skips it, since its slot is not free yet. [`has_items`](RunQueue::has_items) and
//! [`count_items`](RunQueue::count_items) look at the slots.
//!
//! **Why not `st3` 0.4 or `crossbeam-deque` 0.8.** Neither has a LIFO slot, which takes 18
//! instructions to push and pop. In st3 a thief excludes all others until it is done, even while it
//! is preempted. A push and a pop take 36 instructions, one of them locked; st3's take 47 and
//! crossbeam's 52, with one locked each. When an owner fills and empties its queue while a thief
//! tries to steal, st3 handles 0.5 to 0.6 and crossbeam 0.4 to 0.5 times as many items. If half of
//! eight items are stolen, each takes 67 instructions, 1.5 of them locked; st3's takes 63 and 1.25,
//! crossbeam's 73 and 1.25.

use std::array;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The maximum number of items: four turns' worth. Further items are injected.
pub(super) const CAPACITY: usize = if cfg!(loom) { 2 } else { 256 };

pub(super) trait Item: Send + Sized {
    fn into_raw(self) -> NonNull<()>;

    /// # Safety
    ///
    /// `raw` was returned by [`into_raw`](Self::into_raw), and is passed to no other call.
    unsafe fn from_raw(raw: NonNull<()>) -> Self;
}

/// Aligned, because its owner writes it all the time.
#[repr(align(128))]
pub(super) struct RunQueue<T: Item> {
    head: AtomicUsize,
    tail: AtomicUsize,
    slots: Box<[AtomicPtr<()>; CAPACITY]>,
    lifo: AtomicPtr<()>,
    items: PhantomData<T>,
}

impl<T: Item> Default for RunQueue<T> {
    fn default() -> RunQueue<T> {
        RunQueue {
            head: AtomicUsize::new(0),
            tail: AtomicUsize::new(0),
            slots: Box::new(array::from_fn(|_| AtomicPtr::default())),
            lifo: AtomicPtr::default(),
            items: PhantomData,
        }
    }
}

impl<T: Item> RunQueue<T> {
    #[inline]
    pub(super) fn head(&self) -> usize {
        self.head.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn tail(&self) -> usize {
        self.tail.load(Ordering::Relaxed)
    }

    /// An upper bound of the number of items, without the LIFO slot.
    #[inline]
    pub(super) fn len(&self) -> usize {
        // Loads `head` first: a newer `tail` makes the length larger, but never negative.
        let head = self.head();
        self.tail().wrapping_sub(head).min(CAPACITY)
    }

    /// Whether there is an item, including the LIFO slot's. Holes do not count.
    ///
    /// For the owner `false` is exact, so it may sleep: no other thread adds an item, and each slot
    /// that it has filled and sees null was emptied by a thread that runs the item or queues it
    /// elsewhere. `true` may be stale, which costs one more turn. For other threads both are hints.
    #[inline(never)]
    pub(super) fn has_items(&self) -> bool {
        self.has_lifo() || (self.len() != 0 && self.filled_slots().any(is_filled))
    }

    /// Returns the number of items, at most `limit`, without holes and the LIFO slot. A hint for
    /// others than the owner.
    #[inline(never)]
    pub(super) fn count_items(&self, limit: usize) -> usize {
        let filled = self.filled_slots().filter(|slot| is_filled(slot));
        filled.take(limit).count()
    }

    /// Oldest first.
    #[inline]
    fn filled_slots(&self) -> impl Iterator<Item = &AtomicPtr<()>> {
        let head = self.head();
        let positions = (0..self.len()).map(move |offset| head.wrapping_add(offset));
        positions.map(|position| &self.slots[position % CAPACITY])
    }

    /// A hint on threads other than the owner's.
    #[inline]
    pub(super) fn has_lifo(&self) -> bool {
        is_filled(&self.lifo)
    }

    /// For the owner.
    #[inline]
    pub(super) fn room(&self) -> usize {
        CAPACITY - self.len()
    }

    /// For the owner. Returns the item if there is no room.
    #[inline]
    pub(super) fn push(&self, item: T) -> Result<(), T> {
        let tail = self.tail();
        if tail.wrapping_sub(self.head()) == CAPACITY {
            return Err(item);
        }
        self.slots[tail % CAPACITY].store(item.into_raw().as_ptr(), Ordering::Release);
        self.tail.store(tail.wrapping_add(1), Ordering::Relaxed);
        Ok(())
    }

    /// For the owner. Returns the previous item.
    #[inline]
    pub(super) fn push_lifo(&self, item: T) -> Option<T> {
        let old = self.pop_lifo();
        self.lifo.store(item.into_raw().as_ptr(), Ordering::Release);
        old
    }

    /// For the owner.
    #[inline]
    pub(super) fn pop_lifo(&self) -> Option<T> {
        self.take(&self.lifo)
    }

    /// For the owner.
    #[inline]
    pub(super) fn pop(&self) -> Option<T> {
        self.pop_before(self.tail())
    }

    /// [`pop`](Self::pop) of an item that was pushed when the [`tail`](Self::tail) had not reached
    /// `end`.
    #[inline]
    pub(super) fn pop_before(&self, end: usize) -> Option<T> {
        let mut head = self.head();
        while (end.wrapping_sub(head) as isize) > 0 {
            let item = self.take(&self.slots[head % CAPACITY]);
            head = head.wrapping_add(1);
            self.head.store(head, Ordering::Relaxed);
            if item.is_some() {
                return item;
            }
        }
        None
    }

    /// Takes up to `count` items, oldest first, and gives them to `f`; with `takes_lifo`, the LIFO
    /// slot's last. For any thread.
    pub(super) fn steal(&self, count: usize, takes_lifo: bool, f: impl FnMut(T)) {
        let slots = (self.filled_slots()).chain(takes_lifo.then_some(&self.lifo));
        let items = slots.filter_map(|slot| self.take(slot));
        items.take(count).for_each(f);
    }

    #[inline]
    fn take(&self, slot: &AtomicPtr<()>) -> Option<T> {
        let seen = NonNull::new(slot.load(Ordering::Relaxed))?;
        let (null, relaxed) = (ptr::null_mut(), Ordering::Relaxed);
        let taken = slot.compare_exchange(seen.as_ptr(), null, Ordering::Acquire, relaxed);
        // The pointer that the exchange returned, not the loaded one: that item may have been taken
        // meanwhile, and another allocation with the same address stored.
        let raw = NonNull::new(taken.ok()?)?;
        // SAFETY: only `push` and `push_lifo` store non-null pointers, which come from `into_raw`;
        // and a stored pointer is taken by only one exchange, which was this one.
        Some(unsafe { T::from_raw(raw) })
    }
}

#[inline]
fn is_filled(slot: &AtomicPtr<()>) -> bool {
    !slot.load(Ordering::Relaxed).is_null()
}

impl<T: Item> Drop for RunQueue<T> {
    fn drop(&mut self) {
        while let Some(item) = self.pop().or_else(|| self.pop_lifo()) {
            drop(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// A number, stored as an address that is one larger.
    #[derive(PartialEq, Debug)]
    struct Number(usize);

    impl Item for Number {
        fn into_raw(self) -> NonNull<()> {
            NonNull::new(ptr::without_provenance_mut(self.0 + 1)).unwrap()
        }

        unsafe fn from_raw(raw: NonNull<()>) -> Self {
            Number(raw.addr().get() - 1)
        }
    }

    struct Boxed(Box<usize>);

    impl Item for Boxed {
        fn into_raw(self) -> NonNull<()> {
            NonNull::from(Box::leak(self.0)).cast()
        }

        unsafe fn from_raw(raw: NonNull<()>) -> Self {
            // SAFETY: the caller has the pointer from `into_raw`, which leaked such a box, and
            // passes it only once.
            Boxed(unsafe { Box::from_raw(raw.cast().as_ptr()) })
        }
    }

    /// A thief takes the item that is in the slot, not one that was there before.
    ///
    /// Miri distinguishes two allocations with the same address.
    #[test]
    fn taken_item_is_current_not_former() {
        let queue = RunQueue::default();
        let stop = AtomicBool::new(false);
        let rounds = if cfg!(miri) { 300 } else { 90_000 };
        let (popped, stolen) = std::thread::scope(|scope| {
            let thief = scope.spawn(|| {
                let mut sum = 0;
                while !stop.load(Ordering::Relaxed) {
                    queue.steal(1, true, |Boxed(number)| sum += *number);
                    std::thread::yield_now();
                }
                sum
            });
            let mut sum = 0;
            for number in 0..rounds {
                // Each reuses the memory of the previous one.
                sum += (queue.push_lifo(Boxed(Box::new(number)))).map_or(0, |Boxed(it)| *it);
                sum += queue.pop_lifo().map_or(0, |Boxed(it)| *it);
            }
            stop.store(true, Ordering::Relaxed);
            (sum, thief.join().unwrap())
        });
        assert_eq!(popped + stolen, (0..rounds).sum::<usize>());
    }

    /// For ThreadSanitizer (`ci/sanitizers.sh tsan`), from which each task's synchronised state
    /// hides the queue's races within a whole runtime.
    #[test]
    fn two_thieves_and_the_owner_share_the_items() {
        let queue = RunQueue::default();
        let stop = AtomicBool::new(false);
        let rounds = if cfg!(miri) { 300 } else { 90_000 };
        let steal = || {
            let mut sum = 0;
            while !stop.load(Ordering::Relaxed) {
                queue.steal(2, true, |Boxed(number)| sum += *number);
                std::thread::yield_now();
            }
            sum
        };
        let (popped, stolen) = std::thread::scope(|scope| {
            let thieves = [0, 1].map(|_| scope.spawn(steal));
            let mut sum = 0;
            for number in 0..rounds {
                let mut item = Boxed(Box::new(number));
                if number % 3 == 0 {
                    let Some(before) = queue.push_lifo(item) else {
                        continue;
                    };
                    item = before;
                }
                while let Err(back) = queue.push(item) {
                    item = back;
                    sum += queue.pop().map_or(0, |Boxed(number)| *number);
                }
            }
            while let Some(Boxed(number)) = queue.pop_lifo().or_else(|| queue.pop()) {
                sum += *number;
            }
            stop.store(true, Ordering::Relaxed);
            let stolen = thieves.map(|thief| thief.join().unwrap());
            (sum, stolen.iter().sum::<usize>())
        });
        assert_eq!(popped + stolen, (0..rounds).sum::<usize>());
    }

    /// Items come in their order round and round and a full queue gives them back.
    #[test]
    fn items_in_order_around_ring_full_returns() {
        let queue = RunQueue::default();
        for round in 0..10 {
            for number in 0..CAPACITY {
                queue.push(Number(number)).unwrap();
            }
            assert_eq!(queue.push(Number(round)), Err(Number(round)));
            for number in 0..CAPACITY {
                assert_eq!(queue.pop(), Some(Number(number)));
            }
            assert!(queue.pop().is_none() && !queue.has_items());
            queue.push(Number(0)).unwrap();
            queue.pop().unwrap();
        }
    }

    /// The LIFO slot's item comes first, and gives way to another one.
    #[test]
    fn lifo_slot_first_and_displaced() {
        let queue = RunQueue::default();
        queue.push(Number(1)).unwrap();
        assert!(queue.push_lifo(Number(2)).is_none());
        assert_eq!(queue.push_lifo(Number(3)), Some(Number(2)));
        assert!(queue.has_lifo() && queue.has_items());
        let mut stolen = Vec::new();
        queue.steal(1, true, |Number(number)| stolen.push(number));
        assert_eq!(queue.pop_lifo(), Some(Number(3)));
        assert!(queue.push_lifo(Number(4)).is_none());
        queue.steal(2, true, |Number(number)| stolen.push(number));
        assert_eq!(stolen, [1, 4]);
        assert!(queue.pop_lifo().is_none() && queue.pop().is_none() && !queue.has_items());
    }

    /// A thief takes those that came first and the owner skips the holes.
    #[test]
    fn thief_takes_oldest_owner_skips_holes() {
        let queue = RunQueue::default();
        for number in 0..10 {
            queue.push(Number(number)).unwrap();
        }
        let mut stolen = Vec::new();
        queue.steal(4, true, |Number(number)| stolen.push(number));
        queue.steal(1, true, |Number(number)| stolen.push(number));
        assert_eq!(stolen, [0, 1, 2, 3, 4]);
        assert_eq!(queue.pop(), Some(Number(5)));
        assert_eq!(queue.len(), 4);
        queue.steal(usize::MAX, true, |Number(number)| stolen.push(number));
        assert_eq!(stolen.len(), 9);
        assert_eq!(queue.len(), 4, "holes, which it has not skipped yet");
        assert!(queue.pop().is_none() && !queue.has_items());
    }

    /// Otherwise a worker would not sleep after all its tasks were taken.
    #[test]
    fn holes_are_no_items() {
        let queue = RunQueue::default();
        for number in 0..4 {
            queue.push(Number(number)).unwrap();
        }
        assert_eq!((queue.count_items(3), queue.count_items(9)), (3, 4));
        queue.steal(3, true, drop);
        assert!(queue.has_items());
        assert_eq!((queue.len(), queue.count_items(9)), (4, 1));
        queue.steal(1, true, drop);
        assert!(!queue.has_items(), "all were taken");
        assert_eq!((queue.len(), queue.count_items(9)), (4, 0));
        queue.push(Number(4)).unwrap();
        assert!(queue.has_items(), "one behind the holes");
        assert_eq!(queue.pop(), Some(Number(4)));
        queue.push_lifo(Number(5));
        assert!(queue.has_items(), "the LIFO slot");
        assert_eq!(queue.count_items(9), 0);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    /// A number in memory that loom tracks: a thief that has not seen the owner's write fails the
    /// model.
    struct Number(usize);

    impl Item for Number {
        fn into_raw(self) -> NonNull<()> {
            NonNull::from(Box::leak(Box::new(UnsafeCell::new(self.0)))).cast()
        }

        unsafe fn from_raw(raw: NonNull<()>) -> Self {
            let raw = raw.cast::<UnsafeCell<usize>>().as_ptr();
            // SAFETY: the caller has the pointer from `into_raw`, which leaked such a box, and
            // passes it only once.
            Number(unsafe { Box::from_raw(raw).with_mut(|number| *number) })
        }
    }

    /// The owner pushes `total` numbers, and pops when there is no room, while thieves steal: every
    /// number is taken once.
    fn check(total: usize, thieves: usize, preemptions: usize) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let queue = Arc::new(RunQueue::default());
            let thieves: Vec<_> = (0..thieves)
                .map(|_| {
                    let queue = queue.clone();
                    loom::thread::spawn(move || {
                        let mut stolen = Vec::new();
                        queue.steal(2, true, |Number(number)| stolen.push(number));
                        stolen
                    })
                })
                .collect();
            let mut all = Vec::new();
            for number in 0..total {
                let mut item = Number(number);
                while let Err(back) = queue.push(item) {
                    item = back;
                    all.extend(queue.pop().map(|Number(number)| number));
                }
            }
            let popped = all.clone();
            assert!(popped.is_sorted(), "out of order: {popped:?}");
            let may_sleep = !queue.has_items();
            for thief in thieves {
                all.extend(thief.join().unwrap());
            }
            while let Some(Number(number)) = queue.pop() {
                assert!(!may_sleep, "{number} was left lying");
                all.push(number);
            }
            all.sort_unstable();
            assert!(all.iter().copied().eq(0..total), "{all:?}");
        });
    }

    /// Each item is taken once by the owner or a thief.
    #[test]
    fn item_taken_once_by_owner_or_thief() {
        check(4, 1, 3);
    }

    #[test]
    fn lifo_slots_item_is_taken_once() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let queue = Arc::new(RunQueue::default());
            let thief = {
                let queue = queue.clone();
                loom::thread::spawn(move || {
                    let mut stolen = Vec::new();
                    queue.steal(1, true, |Number(number)| stolen.push(number));
                    queue.steal(1, true, |Number(number)| stolen.push(number));
                    stolen
                })
            };
            let mut all = Vec::new();
            for number in 0..3 {
                all.extend(queue.push_lifo(Number(number)).map(|Number(number)| number));
            }
            all.extend(queue.pop_lifo().map(|Number(number)| number));
            all.extend(thief.join().unwrap());
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2]);
        });
    }

    #[test]
    fn each_item_is_taken_once_where_two_steal() {
        check(2, 2, 2);
    }
}
