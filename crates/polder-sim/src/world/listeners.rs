//! [`Listener`]: who waits for signals of a world's processes. The kernel counts the signals
//! ([`signals`](super::signals)); the wakers are kept here, on the world's thread.
//!
//! Everything happens on that thread, so a signal is counted either before a listener looks, or
//! after it has registered its waker. Wakers are foreign code: they are cloned, woken and dropped
//! outside of any borrow.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::iter;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use polder::kernel::Signals;

use super::foreign::wake_all;
use super::signals::{Owner, catch};

/// The signals that a listener of the program listens to.
#[derive(Debug)]
struct Listener {
    owner: Owner,
    key: u64,
    mask: u128,
}

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

/// Begins to listen to these signals of the running process. `None` outside of a world.
pub(crate) fn listen(numbers: &[usize]) -> Option<io::Result<Box<dyn Signals>>> {
    // Unique across threads.
    static KEYS: AtomicU64 = AtomicU64::new(0);
    let owner = catch(numbers.iter().copied())?;
    Some(owner.map(|owner| {
        let key = KEYS.fetch_add(1, Ordering::Relaxed);
        let mask = numbers.iter().fold(0, |all, number| all | mask(*number));
        Box::new(Listener { owner, key, mask }) as Box<dyn Signals>
    }))
}

/// Returns the set that contains only this number.
fn mask(number: usize) -> u128 {
    1 << number
}

impl Signals for Listener {
    fn count(&self, number: usize) -> u64 {
        self.owner.count(number)
    }

    fn set_waker(&self, waker: Option<&Waker>) {
        let waiter = waker.map(|waker| Waiter {
            owner: self.owner,
            mask: self.mask,
            waker: Some(waker.clone()),
        });
        let before = with(|waiters| match waiter {
            Some(waiter) => waiters.insert(self.key, waiter),
            None => waiters.remove(&self.key),
        });
        drop(before);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.set_waker(None);
    }
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
