//! `pthread_atfork` handlers that hold the reactors' locks across `fork`, so that the child finds
//! them unlocked.
//!
//! Sockets and timers that the parent has made stay in its reactors until the child moves or drops
//! them. If a thread of the parent held a lock of such a reactor during the fork, no thread of the
//! child would ever release it. So `fork` first takes, and both processes release, each reactor's
//! table of sources, locked timers, timer operations and queued wakers. Events are delivered under
//! the table's lock, and a closing reactor detaches its sources under it, so the locks of sources'
//! states need not be taken for these. (A thread that waits for a source, or ends its back-off, may
//! hold one, and the child then hangs if it uses that source: both threads have used it at the same
//! time. To take these locks, too, `fork` would have to try one for each source, those that no
//! reactor knows yet, and those of the lists of `io::borrowed`.)
//!
//! **Why this cannot hang.** A thread that forks only tries these locks. If one is held, it
//! releases all, sleeps, and tries again. No thread waits in the kernel under them, so that takes
//! microseconds, or, if a reactor closes, some for each of its sources. If it fails for too long,
//! the fork proceeds without: the holder may be stopped, or be this thread, interrupted by a signal
//! whose handler forks (`fork` is not async-signal-safe: POSIX.1-2024).

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard as StdMutexGuard};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use super::timer_heap::{TimerHeap, TimerOps};
use super::{REGISTRY, Reactor, Reactors, SourceTable};
use crate::sync::MutexGuard;
use crate::sys;

/// Nearly always the first attempt succeeds, but a holder may be preempted for some time.
const LONGEST: Duration = Duration::from_secs(5);

/// A holder can run meanwhile.
const PAUSE: Duration = Duration::from_micros(50);

/// For tests.
static FAILED: AtomicUsize = AtomicUsize::new(0);

/// Fields are released in this order, since a dropped reactor takes the registry's lock.
struct HeldLocks {
    guards: Vec<Guards>,
    registry: StdMutexGuard<'static, Reactors>,
    reactors: Vec<Arc<Reactor>>,
}

struct Guards {
    _sources: MutexGuard<'static, SourceTable>,
    _locked_timers: MutexGuard<'static, TimerHeap>,
    _timer_ops: MutexGuard<'static, TimerOps>,
    _queued_wakers: MutexGuard<'static, VecDeque<Waker>>,
}

thread_local! {
    /// `ManuallyDrop`: no thread ends while it forks, and there is no destructor to register.
    static HELD: Cell<Option<ManuallyDrop<HeldLocks>>> = const { Cell::new(None) };
}

impl HeldLocks {
    fn try_new() -> Option<HeldLocks> {
        let mut held = HeldLocks {
            guards: Vec::new(),
            registry: REGISTRY.get().try_lock()?,
            reactors: Vec::new(),
        };
        for (_, reactor) in &*held.registry {
            let Some(reactor) = reactor.upgrade() else {
                continue;
            };
            // SAFETY: `held.reactors` has it from here on, and is dropped after the guards.
            let own: &'static Reactor = unsafe { &*Arc::as_ptr(&reactor) };
            held.reactors.push(reactor);
            held.guards.push(Guards {
                _sources: own.sources.try_lock()?,
                _locked_timers: own.locked_timers.try_lock()?,
                _timer_ops: own.timer_ops.try_lock()?,
                _queued_wakers: own.queued_wakers.try_lock()?,
            });
        }
        Some(held)
    }
}

/// Registers the handlers. Concurrent callers may each register them: see [`sys::at_fork`].
pub(super) fn take_locks_at_fork() {
    static IS_ASKED_FOR: AtomicBool = AtomicBool::new(false);
    if !IS_ASKED_FOR.load(Ordering::Relaxed) && sys::at_fork(take, release, release_in_child) {
        IS_ASKED_FOR.store(true, Ordering::Relaxed);
    }
}

extern "C" fn take() {
    // There are some if the handlers are registered twice.
    let mut all = taken().or_else(HeldLocks::try_new);
    let start = Instant::now();
    while all.is_none() && start.elapsed() < LONGEST {
        FAILED.fetch_add(1, Ordering::Relaxed);
        thread::sleep(PAUSE);
        all = HeldLocks::try_new();
    }
    HELD.set(all.map(ManuallyDrop::new));
}

fn taken() -> Option<HeldLocks> {
    HELD.take().map(ManuallyDrop::into_inner)
}

extern "C" fn release() {
    drop(taken());
}

extern "C" fn release_in_child() {
    if let Some(held) = taken() {
        drop((held.guards, held.registry));
        // Dropping one may block on another crate's lock.
        std::mem::forget(held.reactors);
    }
}

// Miri cannot fork.
#[cfg(all(test, not(miri)))]
mod tests {
    use std::sync::mpsc;
    use std::task::Waker;

    use super::*;
    use crate::poller::{Backend, Poller};
    use crate::sys::in_child;

    /// A child takes the locks that another thread held when it was forked.
    #[test]
    fn fork_child_takes_locks_held_by_threads() {
        let reactor = &Reactor::new(Poller::new(Backend::default()).unwrap(), None);
        let is_over = &AtomicBool::new(false);
        for nth in 0..3 {
            let (holds, is_held) = mpsc::channel();
            thread::scope(|scope| {
                scope.spawn(move || {
                    let _sources = (nth == 0).then(|| reactor.sources.lock());
                    let _timers = (nth == 1).then(|| reactor.locked_timers.lock());
                    let _ops = (nth == 2).then(|| reactor.timer_ops.lock());
                    let before = FAILED.load(Ordering::Relaxed);
                    holds.send(()).unwrap();
                    while FAILED.load(Ordering::Relaxed) == before
                        && !is_over.load(Ordering::Relaxed)
                    {
                        thread::yield_now();
                    }
                });
                is_held.recv().unwrap();
                struct Over<'a>(&'a AtomicBool);
                impl Drop for Over<'_> {
                    fn drop(&mut self) {
                        self.0.store(true, Ordering::Relaxed);
                    }
                }
                let over = Over(is_over);
                in_child(|| {
                    drop(reactor.sources.lock());
                    drop(reactor.locked_timers.lock());
                    drop(reactor.timer_ops.lock());
                    true
                });
                std::mem::forget(over);
            });
        }
    }

    #[test]
    fn a_reactor_that_closes_is_known_to_forks() {
        let reactor = Reactor::new(Poller::new(Backend::default()).unwrap(), None);
        let is_known = || Reactor::find(reactor.id).is_some();
        let far = Instant::now() + Duration::from_secs(3_600);
        let timer = reactor.insert_locked_timer(far, Waker::noop().clone());
        assert!(timer.is_some());
        let was_known = thread::scope(|scope| {
            let table = reactor.sources.lock();
            scope.spawn(|| reactor.close(&mut Vec::new()));
            while reactor.locked_timers.lock().has_pending() {
                thread::yield_now();
            }
            // It waits for the table.
            let was_known = is_known();
            drop(table);
            was_known
        });
        assert!(was_known && is_known());
    }

    /// Threads that fork and drop reactors at the same time all go on.
    #[test]
    fn forks_and_reactor_drops_all_proceed() {
        let reactor = || Reactor::new(Poller::new(Backend::default()).unwrap(), None);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..30 {
                        let others = [reactor(), reactor()];
                        in_child(|| true);
                        drop(others);
                    }
                });
            }
        });
    }
}
