//! The pending timers of one worker, or the locked ones of a reactor: an indexed 4-ary min-heap.
//!
//! `nodes` is the heap, ordered by deadline and then by the order in which deadlines were set.
//! `entries` holds the data of each timer, at a place that never moves. A cancelled timer is
//! removed immediately, and memory is released with it: see [`slab`](crate::slab).
//!
//! Nearly every timeout is cancelled or pushed back. Pushing back costs nothing here: the entry
//! records the later deadline, and its node stays where it is, too early. The node is moved only if
//! it is on top when it would be due ([`update_top`](TimerHeap::update_top)). So a node's deadline
//! is never later than its entry's. A worker that sleeps until the
//! [`next_deadline`](TimerHeap::next_deadline) may wake too early, but only once, and not at each
//! message of a connection that pushes its timeout back.
//!
//! Four children per node: half the levels of a binary heap, and siblings adjacent in memory.
//!
//! Not synchronised: it belongs to one thread, or is behind a lock. Wakers are handed out, and
//! never called or dropped here.

use std::ops::Range;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::slab::{Slab, shrink};
use crate::sync::{NeedsClone, Spare};

#[derive(Default)]
pub(crate) struct TimerHeap {
    nodes: Vec<Node>,
    entries: Slab<Entry>,
    /// Orders equal deadlines.
    count: u64,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    when: Instant,
    order: u64,
    entry: u32,
}

struct Entry {
    when: Instant,
    order: u64,
    /// The index of its node; [`NONE`] once it has fired, [`SUSPENDED`] if it never fires.
    node: u32,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TimerWait {
    /// The address in the waker: compared, and never followed.
    pub(crate) waker: usize,
    pub(crate) due: Instant,
}

/// Valid until the timer is [removed](TimerHeap::remove).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(u32);

impl Key {
    /// Always less than the heap's peak length.
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

const NONE: u32 = u32::MAX;
const SUSPENDED: u32 = u32::MAX - 1;
const CHILDREN: usize = 4;

impl Node {
    #[inline]
    fn before(&self, other: &Node) -> bool {
        (self.when, self.order) < (other.when, other.order)
    }
}

impl TimerHeap {
    pub(crate) fn has_pending(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// The number of timers, including fired ones.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The second result is whether it is the earliest.
    #[inline]
    pub(crate) fn insert(&mut self, when: Instant, waker: Waker) -> (Key, bool) {
        let order = self.next_order();
        let entry = Entry {
            when,
            order,
            node: NONE,
            waker: Some(waker),
        };
        let index = self.entries.insert(entry) as u32;
        let is_earliest = self.push(when, order, index);
        (Key(index), is_earliest)
    }

    /// Includes free ones.
    pub(crate) fn places(&self) -> usize {
        self.entries.places()
    }

    pub(crate) fn waits(&self, places: Range<usize>, waits: &mut Vec<TimerWait>) {
        let entries = self.entries.iter_in(places);
        waits.extend(
            entries
                .filter(|(.., entry)| entry.node < SUSPENDED)
                .filter_map(|(.., entry)| {
                    Some(TimerWait {
                        waker: entry.waker.as_ref()?.data().addr(),
                        due: entry.when,
                    })
                }),
        );
    }

    /// Returns whether the timer is pending.
    #[inline]
    pub(crate) fn renew_waker(
        &mut self,
        key: Key,
        waker: &Waker,
        spare: &mut Spare,
    ) -> Result<bool, NeedsClone> {
        let entry = &mut self.entries[key.index()];
        let is_pending = entry.node != NONE;
        if is_pending {
            // There is none if the timer was reset after it had fired.
            spare.store(&mut entry.waker, waker)?;
        }
        Ok(is_pending)
    }

    /// Makes a timer neither pending nor fired; the waker stays.
    #[inline(never)]
    fn suspend(&mut self, key: Key) {
        let node = self.entries[key.index()].node;
        if node < SUSPENDED {
            self.take_node(node as usize);
        }
        self.entries[key.index()].node = SUSPENDED;
    }

    /// Sets a timer again, pending or not, or suspends it until the next reset; the waker stays.
    /// Returns whether it is the earliest now.
    pub(crate) fn reset(&mut self, key: Key, when: Option<Instant>) -> bool {
        let Some(when) = when else {
            self.suspend(key);
            return false;
        };
        let order = self.next_order();
        let entry = &mut self.entries[key.index()];
        let (node, before) = (entry.node as usize, entry.when);
        (entry.when, entry.order) = (when, order);
        if entry.node >= SUSPENDED {
            return self.push(when, order, key.0);
        }
        // The node is moved when it is on top. Usually it need not be read, which saves a cache
        // miss, because it is never later than the entry's old deadline.
        if when >= before || when >= self.nodes[node].when {
            return false;
        }
        self.move_up(node, when, order)
    }

    /// Not inlined, so that pushing a deadline back, the usual case, saves no registers.
    #[inline(never)]
    fn move_up(&mut self, index: usize, when: Instant, order: u64) -> bool {
        (self.nodes[index].when, self.nodes[index].order) = (when, order);
        self.sift_up(index) == 0
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<Waker> {
        let entry = self.entries.remove(key.index())?;
        if entry.node < SUSPENDED {
            self.take_node(entry.node as usize);
        }
        entry.waker
    }

    /// Returns the earliest deadline of the pending timers. May be too early: one that was pushed
    /// back since.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.nodes.first().map(|node| node.when)
    }

    /// Fires timers that are due at `now`, in order, until one has a waker, and returns that. (A
    /// timer that was reset after it fired has none.) Calls `fired` with the lateness of each.
    #[inline]
    pub(crate) fn fire(&mut self, now: Instant, fired: impl Fn(Duration)) -> Option<Waker> {
        while self.next_deadline().is_some_and(|when| when <= now) {
            self.update_top();
            let node = self.nodes[0];
            if node.when <= now {
                self.take_node(0);
                fired(now.saturating_duration_since(node.when));
                let entry = &mut self.entries[node.entry as usize];
                entry.node = NONE;
                let waker = entry.waker.take();
                if waker.is_some() {
                    return waker;
                }
            }
        }
        None
    }

    /// Fires all pending timers, due or not, and takes the wakers of suspended ones too.
    pub(crate) fn fire_all(&mut self, wakers: &mut Vec<Waker>) {
        for node in self.nodes.drain(..) {
            self.entries[node.entry as usize].node = NONE;
        }
        let entries = self.entries.values_mut();
        wakers.extend(entries.filter_map(|entry| entry.waker.take()));
    }

    pub(crate) fn update_top(&mut self) {
        while let Some(node) = self.nodes.first_mut() {
            let entry = &self.entries[node.entry as usize];
            if node.order == entry.order {
                return;
            }
            (node.when, node.order) = (entry.when, entry.order);
            self.sift_down(0);
        }
    }

    fn next_order(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Returns whether it is the earliest.
    #[inline(never)]
    fn push(&mut self, when: Instant, order: u64, entry: u32) -> bool {
        self.nodes.push(Node { when, order, entry });
        self.sift_up(self.nodes.len() - 1) == 0
    }

    /// Removes a node. The caller changes its entry, which still has its index.
    #[inline]
    fn take_node(&mut self, index: usize) {
        self.nodes.swap_remove(index);
        shrink(&mut self.nodes);
        if index < self.nodes.len() && self.sift_up(index) == index {
            self.sift_down(index);
        }
    }

    fn put(&mut self, index: usize, node: Node) {
        self.nodes[index] = node;
        self.entries[node.entry as usize].node = index as u32;
    }

    fn sift_up(&mut self, mut index: usize) -> usize {
        let node = self.nodes[index];
        while index > 0 {
            let parent = (index - 1) / CHILDREN;
            if !node.before(&self.nodes[parent]) {
                break;
            }
            self.put(index, self.nodes[parent]);
            index = parent;
        }
        self.put(index, node);
        index
    }

    /// Moves a node down, which most likely belongs near the bottom: first all the way, past the
    /// least child each time, and then up to its place.
    fn sift_down(&mut self, mut index: usize) {
        let node = self.nodes[index];
        loop {
            let first = index * CHILDREN + 1;
            let Some(children) = self.nodes.get(first..) else {
                break;
            };
            let least = match children.first_chunk::<CHILDREN>() {
                Some(all) => {
                    let lesser = |a: usize, b: usize| if all[b].before(&all[a]) { b } else { a };
                    lesser(lesser(0, 1), lesser(2, 3))
                }
                None => {
                    let lesser = |a: usize, b: usize| {
                        if children[b].before(&children[a]) {
                            b
                        } else {
                            a
                        }
                    };
                    let Some(least) = (0..children.len()).reduce(lesser) else {
                        break;
                    };
                    least
                }
            };
            self.put(index, children[least]);
            index = first + least;
        }
        self.nodes[index] = node;
        self.sift_up(index);
    }
}

#[derive(Clone, Debug)]
pub(super) enum TimerOp {
    Remove,
    Reset(Option<Instant>),
}

/// Operations for the driver, of which the last one for each timer counts. Superseded ones are
/// removed from time to time, so that memory is bounded even if the worker is not driven. (The key
/// of a timer with a pending removal is not reused until the driver has applied the removal.)
#[derive(Default)]
pub(super) struct TimerOps {
    /// In the order of the requests, which decides among equal deadlines.
    ops: Vec<(Key, TimerOp)>,
    left: usize,
}

impl TimerOps {
    const FEW: usize = 64;

    pub(super) fn len(&self) -> usize {
        self.ops.len()
    }

    pub(super) fn push(&mut self, key: Key, op: TimerOp) {
        self.ops.push((key, op));
        if self.ops.len() > 2 * self.left + TimerOps::FEW {
            self.sweep();
        }
    }

    fn sweep(&mut self) {
        let keys = self.ops.iter().map(|(key, _)| key.index() + 1).max();
        let mut has_later = vec![false; keys.unwrap_or(0)];
        self.ops.reverse();
        (self.ops).retain(|(key, _)| !std::mem::replace(&mut has_later[key.index()], true));
        self.ops.reverse();
        self.left = self.ops.len();
    }

    pub(super) fn take(&mut self) -> Vec<(Key, TimerOp)> {
        std::mem::take(self).ops
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;
    use crate::slab::KEPT;
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};
    use std::task::Wake;
    use std::time::Duration;

    struct Named(usize, Arc<Mutex<Vec<usize>>>);
    impl Wake for Named {
        fn wake(self: Arc<Self>) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    struct Bench {
        deadlines: TimerHeap,
        log: Arc<Mutex<Vec<usize>>>,
        start: Instant,
    }

    impl Bench {
        fn new() -> Bench {
            Bench {
                deadlines: TimerHeap::default(),
                log: Arc::default(),
                start: Instant::now(),
            }
        }
        fn at(&self, millis: u64) -> Instant {
            self.start + Duration::from_millis(millis)
        }
        fn waker(&self, name: usize) -> Waker {
            Arc::new(Named(name, self.log.clone())).into()
        }
        fn insert(&mut self, millis: u64, name: usize) -> (Key, bool) {
            self.deadlines.insert(self.at(millis), self.waker(name))
        }
        fn fire(&mut self, millis: u64) -> Vec<usize> {
            while let Some(waker) = self.deadlines.fire(self.at(millis), |_| {}) {
                waker.wake();
            }
            std::mem::take(&mut self.log.lock().unwrap())
        }
    }

    /// Equal deadlines fire in the order they were set.
    #[test]
    fn equal_deadlines_fire_in_set_order() {
        let mut bench = Bench::new();
        let keys: Vec<_> = (0..100).map(|name| bench.insert(5, name).0).collect();
        bench.deadlines.reset(keys[3], Some(bench.at(5)));
        let mut expected: Vec<_> = (0..100).filter(|name| *name != 3).collect();
        expected.push(3);
        assert!(bench.fire(4).is_empty());
        assert_eq!(bench.fire(5), expected);
        let waits = (bench.deadlines).renew_waker(keys[0], Waker::noop(), &mut Spare::default());
        assert_eq!(waits, Ok(false));
    }

    /// A timer that is pushed back repeatedly is moved when its old deadline comes.
    #[test]
    fn repeated_push_back_moves_lazily() {
        let mut bench = Bench::new();
        let keys: Vec<_> = (0..10).map(|name| bench.insert(100, name).0).collect();
        for now in 1..100 {
            let when = bench.at(100 + now);
            bench.deadlines.reset(keys[now as usize % 10], Some(when));
            assert!(bench.fire(now).is_empty());
            assert_eq!(bench.deadlines.next_deadline(), Some(bench.at(100)));
        }
        assert!(bench.fire(100).is_empty());
        // The first of them was last pushed back nine rounds ago.
        assert_eq!(bench.deadlines.next_deadline(), Some(bench.at(190)));
        assert_eq!(bench.fire(191), [0, 1]);
    }

    #[test]
    fn only_the_earliest_is_reported_as_the_earliest() {
        let mut bench = Bench::new();
        let (a, first) = bench.insert(10, 0);
        assert!(first);
        assert!(!bench.insert(20, 1).1);
        let (c, first) = bench.insert(5, 2);
        assert!(first);
        assert!(!bench.deadlines.reset(c, Some(bench.at(30))));
        bench.deadlines.update_top();
        assert_eq!(bench.deadlines.next_deadline(), Some(bench.at(10)));
        assert!(bench.deadlines.reset(a, Some(bench.at(9))));
        bench.deadlines.remove(a);
        bench.deadlines.update_top();
        assert_eq!(bench.deadlines.next_deadline(), Some(bench.at(20)));
    }

    #[test]
    fn one_timer_does_not_pin_memory_of_many() {
        // Miri takes ten minutes, and there is no unsafe code here.
        if cfg!(miri) {
            return;
        }
        for stays in [0, 10 * KEPT as u64 - 1] {
            let mut bench = Bench::new();
            let many = 0..10 * KEPT as u64;
            let keys: Vec<_> = many.map(|n| bench.insert(n, n as usize).0).collect();
            for (n, key) in keys.iter().enumerate().filter(|(n, _)| *n as u64 != stays) {
                bench.deadlines.remove(*key);
                if n % 3 == 0 {
                    let (key, _) = bench.insert(7, 7);
                    bench.deadlines.remove(key);
                }
            }
            let mut stayed = keys[stays as usize];
            // The last entry may be removed as well, and another one take its place.
            for _ in 0..2 {
                let (next, _) = bench.insert(9, 9);
                bench.deadlines.remove(std::mem::replace(&mut stayed, next));
            }
            assert_eq!(bench.deadlines.len(), 1);
            let TimerHeap { entries, nodes, .. } = &bench.deadlines;
            assert!(nodes.capacity() <= KEPT, "{}", nodes.capacity());
            if stays == 0 {
                assert!(entries.capacity() <= KEPT, "{}", entries.capacity());
            }
            assert_eq!(bench.fire(9), [9]);
            bench.deadlines.remove(stayed);
            assert!(bench.deadlines.entries.capacity() <= KEPT);
        }
    }

    #[test]
    fn a_random_history_agrees_with_an_ordered_set() {
        let mut bench = Bench::new();
        let mut model: BTreeSet<(u64, u64, usize)> = BTreeSet::new();
        let mut keys: Vec<Option<(Key, u64, u64)>> = Vec::new();
        let mut random = fastrand(7);
        let mut order = 0;
        let mut now = 0;
        // Miri takes a thousand times as long.
        for _ in 0..if cfg!(miri) { 300 } else { 50_000 } {
            order += 1;
            match random(10) {
                0..=3 => {
                    let when = now + random(1_000);
                    let name = keys.len();
                    let (key, _) = bench.insert(when, name);
                    keys.push(Some((key, when, order)));
                    model.insert((when, order, name));
                }
                4..=6 if !keys.is_empty() => {
                    let name = random(keys.len() as u64) as usize;
                    if let Some((key, old, old_order)) = &mut keys[name] {
                        let when = now + random(1_000);
                        model.remove(&(*old, *old_order, name));
                        // A timer that has fired has no waker until it is polled.
                        bench.deadlines.reset(*key, Some(bench.at(when)));
                        let waker = bench.waker(name);
                        let mut spare = Spare::clone_of(&waker);
                        let waits = bench.deadlines.renew_waker(*key, &waker, &mut spare);
                        assert_eq!(waits, Ok(true));
                        (*old, *old_order) = (when, order);
                        model.insert((when, order, name));
                    }
                }
                7..=8 if !keys.is_empty() => {
                    let name = random(keys.len() as u64) as usize;
                    if let Some((key, when, order)) = keys[name].take() {
                        bench.deadlines.remove(key);
                        model.remove(&(when, order, name));
                    }
                }
                _ => {
                    now += random(20);
                    let later = model.split_off(&(now + 1, 0, 0));
                    let due: Vec<_> = model.iter().map(|(_, _, name)| *name).collect();
                    model = later;
                    assert_eq!(bench.fire(now), due);
                    let earliest = model.first().map(|(when, _, _)| bench.at(*when));
                    let next = bench.deadlines.next_deadline();
                    assert!(next <= earliest && next != Some(bench.at(now)));
                    bench.deadlines.update_top();
                    assert_eq!(bench.deadlines.next_deadline(), earliest);
                }
            }
        }
        for (key, _, _) in keys.into_iter().flatten() {
            bench.deadlines.remove(key);
        }
        assert!(!bench.deadlines.has_pending());
        assert!(
            bench.deadlines.entries.capacity() <= KEPT,
            "the memory is given back"
        );
    }

    /// Seeded, so that a failure is reproducible.
    fn fastrand(mut state: u64) -> impl FnMut(u64) -> u64 {
        move |below| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        }
    }

    fn two() -> (Key, Key, Instant) {
        let (mut heap, when) = (TimerHeap::default(), now());
        let [one, other] = [(); 2].map(|()| heap.insert(when, Waker::noop().clone()).0);
        (one, other, when)
    }

    /// Operations are never many more than twice the timers.
    #[test]
    fn operations_bounded_by_twice_timers() {
        let (one, other, when) = two();
        let mut ops = TimerOps::default();
        for i in 0..1_000 {
            let later = when + Duration::from_millis(i);
            ops.push(one, TimerOp::Reset(Some(later)));
            ops.push(other, TimerOp::Reset(Some(later)));
            ops.push(one, TimerOp::Reset(None));
            assert!(ops.len() <= 4 + TimerOps::FEW, "{}", ops.len());
        }
    }

    /// The last operation of each timer counts in the order of requests.
    ///
    /// Equal deadlines fire in the order in which they were set, on any thread.
    #[test]
    fn timers_last_operation_counts() {
        let (one, other, when) = two();
        let mut ops = TimerOps::default();
        ops.push(one, TimerOp::Reset(Some(when)));
        ops.push(other, TimerOp::Reset(Some(when)));
        ops.push(one, TimerOp::Reset(None));
        ops.push(one, TimerOp::Reset(Some(when)));
        ops.sweep();
        let taken = ops.take();
        assert_eq!(ops.len(), 0);
        let resets = (taken.iter()).all(|(_, op)| matches!(op, TimerOp::Reset(Some(_))));
        let keys: Vec<Key> = taken.iter().map(|(key, _)| *key).collect();
        assert!(resets && keys == [other, one], "{taken:?}");
    }
}
