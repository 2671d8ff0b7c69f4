//! The shard of a pool: workers that share a poller and its lock.
//!
//! A shard has at most `Builder::workers_per_poller` workers. They register sources and timers with
//! one reactor, in whose poller one of them at a time waits: the one that holds the [`PollerLock`]
//! (see [`sleep`](super::sleep)). A source is registered with the shard of the worker that first
//! waits for it. It stays there for a stealable task, which any worker of the pool may wake. So
//! large pools do not share one table of sources and one kernel object. (With 64 workers on one
//! epoll, tokio measured 75 µs for a registration at the median, and with one epoll for each 8
//! workers 3 µs: <https://github.com/tokio-rs/tokio/pull/8450>.)

use std::ops::Range;

use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// Pool workers that share a reactor. Aligned, since they write it in each turn.
#[repr(align(128))]
pub(super) struct Shard {
    pub(super) workers: Range<usize>,
    pub(super) poller_lock: PollerLock,
    /// Whether the [monitor](super::monitor) wants it to be polled. Removed by the worker that
    /// will.
    pub(super) is_neglected: AtomicBool,
}

impl Shard {
    pub(super) fn new(workers: Range<usize>) -> Shard {
        Shard {
            workers,
            poller_lock: PollerLock::default(),
            is_neglected: AtomicBool::new(false),
        }
    }
}

/// The right to wait in a shard's poller. Odd while held; each use adds two.
#[derive(Default)]
pub(super) struct PollerLock(AtomicUsize);

pub(super) struct PollerGuard<'a> {
    lock: &'a PollerLock,
    /// Whether its worker has parked the shard's reactor, and so resumes it. (In a simulated world
    /// it may be parked for another worker.)
    pub(super) has_parked_reactor: bool,
}

impl PollerLock {
    #[inline]
    pub(super) fn try_lock(&self) -> Option<PollerGuard<'_>> {
        let before = self.0.fetch_or(1, Ordering::Acquire);
        (before % 2 == 0).then(|| PollerGuard {
            lock: self,
            has_parked_reactor: false,
        })
    }

    pub(super) fn is_free(&self) -> bool {
        self.uses() % 2 == 0
    }

    /// Changes whenever the lock is taken or released.
    pub(super) fn uses(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl PollerGuard<'_> {
    /// Releases the lock on a thread of another shard, which will not try it again before it
    /// sleeps. A worker that has found the lock taken is parked, and `wake_idle` wakes an idle one;
    /// or it parks later, and then sees that the lock is free.
    pub(super) fn unlock_and_wake(self, wake_idle: impl FnOnce()) {
        drop(self);
        fence(Ordering::SeqCst);
        wake_idle();
    }
}

impl Drop for PollerGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lock.0.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_taken_once_and_counts_its_uses() {
        let lock = PollerLock::default();
        let mut seen = vec![lock.uses()];
        for _ in 0..2 {
            assert!(lock.is_free());
            let taken = lock.try_lock().unwrap();
            assert!(!lock.is_free() && lock.try_lock().is_none());
            seen.push(lock.uses());
            drop(taken);
            seen.push(lock.uses());
        }
        let count = seen.len();
        seen.dedup();
        assert_eq!(seen.len(), count, "{seen:?}");
    }
}
