//! From the handler to the waiters: the counters, the wakers, and the thread between them.
//!
//! 1. The handler increments the counter of its signal and wakes the thread (see `unix.rs` and
//!    `windows.rs`).
//! 2. The thread compares the counters with those that it saw last, takes the wakers of all who
//!    wait for one that has changed, under the lock, and wakes them outside of it.
//! 3. A waiter compares the counter with its own copy, and registers its waker under the same lock.
//!
//! The counter is incremented before the wakers are taken. So a waiter either sees the new count or
//! is among those that are woken.
//!
//! Neither the thread nor a handler is ever removed: see [`Signals`](super::Signals).

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::JoinHandle;

use slab::Slab;

use super::platform;
use crate::sync::wake_all;
use crate::sys;

/// The counters, by signal number, from the moment it is caught. No platform has a number above
/// 127.
pub(super) static COUNTS: [AtomicU64; 128] = [const { AtomicU64::new(0) }; 128];

pub(super) fn count(number: usize) -> u64 {
    COUNTS[number].load(Ordering::SeqCst)
}

/// The set of this number alone.
pub(super) fn mask(number: usize) -> u128 {
    1 << number
}

#[derive(Debug)]
pub(super) struct Registry {
    /// The signals whose handler is installed.
    caught: u128,
    thread: Option<platform::Thread>,
    pub(super) waiters: Slab<Waiter>,
}

#[derive(Debug)]
pub(super) struct Waiter {
    /// The signals that it waits for.
    pub(super) mask: u128,
    /// `None` once one of them has come, until it is polled again.
    pub(super) waker: Option<Waker>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    caught: 0,
    thread: None,
    waiters: Slab::new(),
});

pub(super) fn lock() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    /// Starts the thread and installs the handler of this signal, if that is not done yet.
    pub(super) fn catch(&mut self, number: usize) -> io::Result<()> {
        if self.caught & mask(number) != 0 {
            return Ok(());
        }
        // The thread first: starting it can fail, and a handler that was installed stays.
        let thread = match &self.thread {
            Some(thread) => thread,
            None => self.thread.insert(platform::start()?),
        };
        platform::register(thread, number)?;
        self.caught |= mask(number);
        Ok(())
    }
}

pub(super) fn start_thread(run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    sys::start_thread("polder-signals", Box::new(run))
}

/// The thread's copy of the counters.
pub(super) struct Seen([u64; COUNTS.len()]);

impl Seen {
    pub(super) fn new() -> Seen {
        Seen([0; COUNTS.len()])
    }

    /// Wakes all who wait for a signal that was counted since the last call.
    pub(super) fn wake_waiters(&mut self) {
        let mut changed = 0;
        for (number, seen) in self.0.iter_mut().enumerate() {
            let count = count(number);
            if std::mem::replace(seen, count) < count {
                changed |= mask(number);
            }
        }
        if changed != 0 {
            wake_waiters(changed);
        }
    }
}

/// The wakers are taken, not cloned: cloning runs foreign code, and would do so under the lock.
fn wake_waiters(signals: u128) {
    let wakers: Vec<Waker> = (lock().waiters.iter_mut())
        .filter(|(_, waiter)| waiter.mask & signals != 0)
        .filter_map(|(_, waiter)| waiter.waker.take())
        .collect();
    wake_all(wakers);
}
