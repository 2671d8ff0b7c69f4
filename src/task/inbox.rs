//! A worker's inbox: wakes and tasks from other threads.

use std::collections::VecDeque;

use concurrent_queue::{ConcurrentQueue, PushError};

use super::Runnable;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// A ring that is made once, so that a wake allocates nothing, and a list for when it is full. Once
/// something is in the list, everything goes there until the worker has emptied it, so that what
/// one thread sends stays in order.
#[derive(Debug)]
pub(super) struct Inbox {
    ring: ConcurrentQueue<Runnable>,
    list: Mutex<VecDeque<Runnable>>,
    listed: AtomicUsize,
}

/// Wakes from elsewhere that fit between two looks of the worker without a lock. 4 KiB a worker.
const RING: usize = 256;

impl Inbox {
    pub(super) fn new() -> Inbox {
        Inbox {
            ring: ConcurrentQueue::bounded(RING),
            list: Mutex::new(VecDeque::new()),
            listed: AtomicUsize::new(0),
        }
    }

    pub(super) fn push(&self, runnable: Runnable) {
        let mut runnable = runnable;
        if self.listed.load(Ordering::Relaxed) == 0 {
            match self.ring.push(runnable) {
                Ok(()) => return,
                Err(PushError::Full(back) | PushError::Closed(back)) => runnable = back,
            }
        }
        let mut list = self.list.lock();
        list.push_back(runnable);
        self.listed.store(list.len(), Ordering::Release);
    }

    /// Read after the fence in `Parking::park`, and written before the one in `unpark`.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.ring.is_empty() && self.listed.load(Ordering::Relaxed) == 0
    }

    #[inline]
    pub(super) fn drain(&self, into: &mut VecDeque<Runnable>) {
        if self.is_empty() {
            return;
        }
        into.extend(self.ring.try_iter().take(RING));
        if self.listed.load(Ordering::Acquire) > 0 {
            let mut list = self.list.lock();
            // What is in the ring by now came before what is in the list.
            into.extend(self.ring.try_iter().take(RING));
            into.append(&mut list);
            self.listed.store(0, Ordering::Release);
        }
    }
}
