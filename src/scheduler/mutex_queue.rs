//! A queue that many threads push to: a worker's inbox, and a runtime's inject queue.
//!
//! A list behind a lock, which is held for one push, one pop or a batch of pops. No unsafe code.
//!
//! **Why no lock-free queue.** `concurrent-queue` 2.5, and `SegQueue` and `Injector` of crossbeam,
//! were measured in its place:
//!
//! * *Real-time priority.* Their `pop` claims a slot, and then yields the core until the `push`
//!   that fills the slot is complete. A thread with real-time priority never yields to a sender
//!   without. On one core, taking all items lasted 2 to 3 s, until the kernel took the core away,
//!   and `tests/priority.rs` failed with `concurrent-queue` as the inbox and as the inject queue. A
//!   thread that waits for a lock sleeps: with this queue the wait lasted at most 5 ms.
//! * *Iteration.* A dump lists the tasks that were never polled, and a simulated world chooses
//!   among all waiting ones. Those queues cannot be iterated. Taking everything out and pushing it
//!   back would change the order, and hide tasks from workers that are about to sleep.
//! * *Cost.* A worker takes many items at a time, for which one lock suffices. Instructions and
//!   locked instructions per item, on x86-64 and without contention:
//!
//! | | this | `concurrent-queue` | `SegQueue` | `Injector` |
//! |---|---|---|---|---|
//! | push and pop | 114, 4.0 | 193, 5.0 | 148, 5.0 | 151, 5.0 |
//! | push eight, take eight | 100, 2.3 | 210, 4.9 | 165, 4.9 | 169, 4.9 |
//! | push eight, drain | 84, 2.3 | 205, 5.0 | 182, 5.0 | 188, 5.1 |
//! | is it empty? | 9, 0 | 16, 0 | 11, 0 | 11, 0 |
//!
//! Under contention, on two cores, `concurrent-queue` passes 0.44 to 0.81 times as many items to a
//! thread that drains it, and 0.64 to 1.33 times as many to one that pops them singly.
//!
//! **Why nothing is lost.** The count is written under the lock, and read without it. A push to an
//! inbox comes before `Parker::unpark`, and so is visible to the worker when its `park` or
//! `resume` reports the unpark. A push to the inject queue comes before a fence, after which the
//! sender looks for a parked worker; and a worker looks at the queue after it has parked, which is
//! a fence: see `searcher`. `loom` checks this below.

use std::collections::VecDeque;
use std::iter;

use crate::kernel;
use crate::slab::{KEPT, shrink_queue};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};

pub(super) struct MutexQueue<T> {
    list: Mutex<VecDeque<T>>,
    count: AtomicUsize,
    /// Written under the lock.
    pushed: AtomicUsize,
}

/// The initial capacity of a queue: zero in a simulated world, which has one runtime per host and
/// mostly empty queues; `usual` otherwise.
pub(super) fn capacity(usual: usize) -> usize {
    if kernel::current().is_some() {
        0
    } else {
        usual
    }
}

impl<T> Default for MutexQueue<T> {
    fn default() -> MutexQueue<T> {
        MutexQueue {
            list: Mutex::new(VecDeque::with_capacity(capacity(KEPT))),
            count: AtomicUsize::new(0),
            pushed: AtomicUsize::new(0),
        }
    }
}

impl<T> MutexQueue<T> {
    #[inline]
    pub(super) fn push(&self, item: T) {
        let mut list = self.list.lock();
        list.push_back(item);
        self.count.store(list.len(), Ordering::Relaxed);
        let pushed = self.pushed.load(Ordering::Relaxed).wrapping_add(1);
        self.pushed.store(pushed, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn pushed(&self) -> usize {
        self.pushed.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn pop(&self) -> Option<T> {
        self.pop_if(|_| true)
    }

    /// [`pop`](Self::pop) if `f`, called under the lock, returns true for the first item.
    #[inline]
    pub(super) fn pop_if(&self, f: impl FnOnce(&T) -> bool) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let mut list = self.list.lock();
        list.front().filter(|item| f(item))?;
        let item = list.pop_front();
        self.end_taking(&mut list);
        item
    }

    /// Takes the item whose index `choose` returns; called with all items under the lock.
    pub(super) fn pop_chosen(&self, choose: impl FnOnce(&VecDeque<T>) -> usize) -> Option<T> {
        let mut list = self.list.lock();
        let place = choose(&list);
        let item = list.remove(place);
        self.count.store(list.len(), Ordering::Relaxed);
        item
    }

    /// Passes up to `count` items, in order, to `f`, under the lock.
    pub(super) fn take(&self, count: usize, f: impl FnMut(T)) {
        let mut list = self.list.lock();
        (iter::from_fn(|| list.pop_front()).take(count)).for_each(f);
        self.end_taking(&mut list);
    }

    /// Counts what is left, and frees memory. Neither a list of up to [`KEPT`] items nor the run
    /// queue, with which an inbox is swapped, shrinks below that: so in the long run a wake does
    /// not allocate.
    #[inline]
    fn end_taking(&self, list: &mut VecDeque<T>) {
        self.count.store(list.len(), Ordering::Relaxed);
        shrink_queue(list);
    }

    pub(super) fn for_each(&self, f: impl FnMut(&T)) {
        self.list.lock().iter().for_each(f);
    }

    #[inline]
    pub(super) fn drain(&self, into: &mut VecDeque<T>) {
        if self.is_empty() {
            return;
        }
        let mut list = self.list.lock();
        if into.is_empty() {
            std::mem::swap(into, &mut list)
        } else {
            into.append(&mut list)
        }
        self.end_taking(&mut list);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Items are taken in order, and no more than requested.
    ///
    /// A worker queues what does not fit in its queue behind the others.
    #[test]
    fn taken_in_order_within_count() {
        let queue = MutexQueue::default();
        let mut taken = Vec::new();
        queue.take(1, |item| taken.push(item));
        (0..5).for_each(|item| queue.push(item));
        queue.take(3, |item| taken.push(item));
        assert_eq!((taken.len(), queue.len()), (3, 2));
        queue.take(3, |item| taken.push(item));
        assert_eq!(taken, [0, 1, 2, 3, 4]);
    }

    /// Pushed items are counted after they were taken, too.
    #[test]
    fn pushed_counted_after_taken() {
        let queue = MutexQueue::default();
        queue.push(1);
        queue.push(2);
        queue.drain(&mut VecDeque::new());
        assert_eq!((queue.pushed(), queue.len()), (2, 0));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::reactor::{Parker, Wakeup};
    use crate::sync::ThreadSignal;
    use loom::sync::Arc;

    /// A worker with an inbox, and a poller reduced to its guarantee. It sleeps if `park` reports
    /// that nothing was sent, without a look at the inbox.
    struct Model {
        inbox: MutexQueue<u8>,
        parker: Parker<()>,
        thread: ThreadSignal,
    }

    impl Model {
        fn new() -> Arc<Model> {
            Arc::new(Model {
                inbox: MutexQueue::default(),
                parker: Parker::default(),
                thread: ThreadSignal::default(),
            })
        }

        fn send(&self, item: u8) {
            self.inbox.push(item);
            if self.parker.set_attention() {
                self.thread.notify();
            }
        }

        fn receive(&self, total: usize) -> Vec<u8> {
            let mut all = VecDeque::new();
            while all.len() < total {
                self.inbox.drain(&mut all);
                if all.len() < total && self.parker.park() == Wakeup::None {
                    while !self.thread.wait(None) {}
                }
                self.parker.resume();
            }
            all.into()
        }
    }

    /// Items of one sender arrive in order beside those of another one.
    #[test]
    fn one_senders_items_stay_in_order() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let world = Model::new();
            let senders = [vec![1, 2], vec![9]].map(|items| {
                let world = world.clone();
                loom::thread::spawn(move || items.into_iter().for_each(|item| world.send(item)))
            });
            let mut all = world.receive(3);
            all.retain(|item| *item != 9);
            assert_eq!(all, [1, 2]);
            for sender in senders {
                sender.join().unwrap();
            }
        });
    }
}
