//! Listeners in a simulated world: the world's kernel counts the signals of each process, and the
//! waiters are kept here, on the world's thread.
//!
//! Everything happens on that thread, so a signal is counted either before a listener looks, or
//! after it has registered its waker. Wakers are foreign code: they are cloned, woken and dropped
//! outside of any borrow.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::iter;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use super::registry::mask;
use crate::sync::wake_all;
pub(super) use crate::world::signals::{Owner, catch};

struct Waiter {
    owner: Owner,
    mask: u128,
    waker: Option<Waker>,
}

thread_local! {
    /// In the order of their keys.
    static WAITERS: RefCell<BTreeMap<u64, Waiter>> = const { RefCell::new(BTreeMap::new()) };
}

fn with<R>(f: impl FnOnce(&mut BTreeMap<u64, Waiter>) -> R) -> Option<R> {
    WAITERS
        .try_with(|waiters| f(&mut waiters.borrow_mut()))
        .ok()
}

/// Returns a key that is unique across threads.
pub(super) fn new_key() -> u64 {
    static KEYS: AtomicU64 = AtomicU64::new(0);
    KEYS.fetch_add(1, Ordering::Relaxed)
}

pub(super) fn register(key: u64, owner: Owner, mask: u128, waker: &Waker) {
    let waker = Some(waker.clone());
    let before = with(|waiters| waiters.insert(key, Waiter { owner, mask, waker }));
    drop(before);
}

pub(super) fn remove(key: u64) {
    let waiter = with(|waiters| waiters.remove(&key));
    drop(waiter);
}

/// Wakes the waiters for a signal that a process has received.
pub(crate) fn wake(owner: Owner, number: usize) {
    let mut from = 0;
    wake_all(iter::from_fn(|| {
        with(|waiters| {
            let mut waiters = waiters.range_mut(from..);
            waiters.find_map(|(key, waiter)| {
                from = key + 1;
                let is_waiting = waiter.owner == owner && waiter.mask & mask(number) != 0;
                waiter.waker.take_if(|_| is_waiting)
            })
        })?
    }));
}
