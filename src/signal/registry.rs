//! The registry of signals: the counters, the wakers, and the thread between them.
//!
//! 1. The handler increments the counter of its signal and notifies the thread.
//! 2. The thread compares the counters with its copy. Under the lock it takes the wakers of waiters
//!    for signals that were counted since, and calls them outside of it: first tasks' own wakers,
//!    then the others one at a time, since these may block ("Foreign wakers" in
//!    `reactor/mod.rs`).
//! 3. A waiter compares the counter with its own copy, and registers its waker under the same lock.
//!
//! The counter is incremented before the wakers are taken, so a waiter either sees the new count or
//! is woken. Neither the thread nor a handler is ever removed: see [`Signals`](super::Signals).
//!
//! **A child of `fork`** inherits the handlers and the counters, but neither the thread nor the
//! waiters, which are [`PerProcess`]. Its first listener starts a thread when it is made or polled.
//! Until then the handler counts without notifying: the descriptor leads to the parent's thread. No
//! signal is lost: a listener compares the counter after [`Registry::start`].

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{MutexGuard, OnceLock};
use std::task::Waker;
use std::thread::JoinHandle;

use signal_hook::low_level;

use super::platform;
use crate::slab::Slab;
use crate::sync::{StaticMutex, wake_all};
use crate::sys::{self, PerProcess, Process};

/// The counters by signal number, which is at most 127 on all platforms. Each counts from the
/// moment its signal is caught.
pub(super) static COUNTS: [AtomicU64; 128] = [const { AtomicU64::new(0) }; 128];

pub(super) fn count(number: usize) -> u64 {
    COUNTS[number].load(Ordering::SeqCst)
}

pub(super) fn mask(number: usize) -> u128 {
    1 << number
}

/// The signals with an installed handler, in this process or a parent. Written under the lock of
/// the registry.
static CAUGHT: [AtomicBool; COUNTS.len()] = [const { AtomicBool::new(false) }; COUNTS.len()];

#[derive(Default)]
struct State {
    /// Set once, under the lock of the registry. Handlers read it without a lock.
    thread: OnceLock<platform::Thread>,
    registry: StaticMutex<Registry>,
}

static STATE: PerProcess<State> = PerProcess::new(State::default);

#[derive(Debug, Default)]
pub(super) struct Registry {
    waiters: Slab<Waiter>,
}

/// Identifies a waiter; none in a child of the process that registered it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    process: Process,
    index: usize,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) mask: u128,
    /// `None` once a signal was received, until it is polled again.
    pub(super) waker: Option<Waker>,
    /// Whether that is a task's own waker, which only queues the task.
    pub(super) is_task_waker: bool,
}

pub(super) fn lock() -> MutexGuard<'static, Registry> {
    STATE.get().registry.lock()
}

impl Registry {
    /// Starts the thread of this process, if it has none.
    ///
    /// The fence pairs with that in [`came`]: a handler that does not see the thread yet has
    /// counted, and the caller, which reads the counters after this, sees that.
    pub(super) fn start(&mut self) -> io::Result<()> {
        let own = STATE.get();
        if own.thread.get().is_none() {
            let thread = platform::start()?;
            // Cannot fail: the lock is held.
            let _ = own.thread.set(thread);
            fence(Ordering::SeqCst);
        }
        Ok(())
    }

    pub(super) fn catch(&mut self, number: usize) -> io::Result<()> {
        // Started first, since it can fail, and an installed handler is never removed.
        self.start()?;
        if !CAUGHT[number].load(Ordering::Relaxed) {
            // SAFETY: `came` is async-signal-safe.
            unsafe { low_level::register(number as i32, move || came(number))? };
            CAUGHT[number].store(true, Ordering::SeqCst);
            // So that the thread unblocks the signal.
            if let Some(thread) = STATE.get().thread.get() {
                platform::notify(thread);
            }
        }
        Ok(())
    }

    pub(super) fn insert(&mut self, waiter: Waiter) -> Key {
        Key {
            process: Process::current(),
            index: self.waiters.insert(waiter),
        }
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Waiter> {
        let index = key.process.is_current().then_some(key.index)?;
        self.waiters.get_mut(index)
    }

    /// Removes a waiter. The caller must drop it outside the lock.
    pub(super) fn remove(&mut self, key: Key) -> Option<Waiter> {
        let index = key.process.is_current().then_some(key.index)?;
        self.waiters.remove(index)
    }

    pub(super) fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.values()
    }
}

/// The handler: atomic operations and [`platform::notify`], without allocations and locks.
fn came(number: usize) {
    COUNTS[number].fetch_add(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    if let Some(thread) = STATE.existing().and_then(|own| own.thread.get()) {
        platform::notify(thread);
    }
}

fn caught() -> u128 {
    let numbers = (0..COUNTS.len()).filter(|number| CAUGHT[*number].load(Ordering::SeqCst));
    numbers.fold(0, |all, number| all | mask(number))
}

/// Starts the thread, which unblocks the signals that have a handler: a signal that a parent
/// process blocks is blocked in all threads, and would stay pending. A signal that is caught later
/// is unblocked after the notification by [`Registry::catch`], which follows the entry in
/// [`CAUGHT`].
pub(super) fn start_thread(wait: impl Fn() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let run = move || {
        let mut seen = [0; COUNTS.len()];
        let mut unblocked = 0;
        loop {
            let blocked = caught() & !unblocked;
            if blocked != 0 {
                platform::unblock(blocked);
                unblocked |= blocked;
            }
            wait();
            wake_waiters(&mut seen);
        }
    };
    sys::start_thread("polder-signals", Box::new(run))
}

/// `seen` is the thread's copy of the counters.
fn wake_waiters(seen: &mut [u64; COUNTS.len()]) {
    let mut changed = 0;
    for (number, seen) in seen.iter_mut().enumerate() {
        let count = count(number);
        if std::mem::replace(seen, count) < count {
            changed |= mask(number);
        }
    }
    if changed == 0 {
        return;
    }
    // Wakers are taken: cloning them would run foreign code under the lock.
    let mut registry = lock();
    let places = registry.waiters.places();
    let own: Vec<Waker> = (registry.waiters.values_mut())
        .filter(|waiter| waiter.mask & changed != 0 && waiter.is_task_waker)
        .filter_map(|waiter| waiter.waker.take())
        .collect();
    drop(registry);
    wake_all(own);
    // A waiter that is registered meanwhile sees the count.
    wake_all((0..places).filter_map(|place| {
        let mut registry = lock();
        let waiter = registry.waiters.get_mut(place)?;
        waiter.waker.take_if(|_| waiter.mask & changed != 0)
    }));
}
