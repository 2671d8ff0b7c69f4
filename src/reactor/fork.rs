//! Leaves a child of `fork` the reactors of its parent with their locks free.
//!
//! Sockets and timers that the parent has made stay in its reactors until the child moves or drops
//! them. If a thread of the parent held a lock of such a reactor at the moment of the fork, no
//! thread of the child would ever release it. So `fork` itself takes these locks first, and both
//! processes release them: of each reactor the table of sources, under which events are delivered
//! (so the state of no source is locked by that, either), its remote timers, and the queue of timer
//! operations.
//!
//! **Why this cannot hang.** Under these locks no foreign code runs, nothing waits in the kernel,
//! and neither the registry's lock nor that of another reactor is taken; so a fork waits for
//! microseconds. A signal handler that interrupts such a thread must not call `fork`, which is not
//! async-signal-safe (POSIX.1-2024; `_Fork` is, and calls none of this).

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard as StdMutexGuard};

use super::driver::TimerOps;
use super::registry::{self, Reactors};
use super::table::SourceTable;
use super::timer_heap::TimerHeap;
use super::{MutexGuard, Reactor};
use crate::sys;

/// The locks of one reactor. They are released before the reactor may be dropped: in this order.
struct Held {
    _sources: MutexGuard<'static, SourceTable>,
    _remote_timers: MutexGuard<'static, TimerHeap>,
    _timer_ops: MutexGuard<'static, TimerOps>,
    _reactor: Arc<Reactor>,
}

impl Held {
    fn new(reactor: Arc<Reactor>) -> Held {
        // SAFETY: the reactor lives for as long as `reactor`, which is dropped after the guards.
        let own: &'static Reactor = unsafe { &*Arc::as_ptr(&reactor) };
        Held {
            _sources: own.sources.lock(),
            _remote_timers: own.remote_timers.lock(),
            _timer_ops: own.timer_ops.lock(),
            _reactor: reactor,
        }
    }
}

/// The locks that this thread holds while it forks. The registry's is released first, as a reactor
/// that is dropped takes it.
type All = (StdMutexGuard<'static, Reactors>, Vec<Held>);

thread_local! {
    static HELD: Cell<Option<All>> = const { Cell::new(None) };
}

/// Takes the locks from now on. Threads that come here at the same time may each ask for it: see
/// [`sys::at_fork`].
pub(super) fn take_locks_at_fork() {
    static IS_ASKED_FOR: AtomicBool = AtomicBool::new(false);
    if !IS_ASKED_FOR.load(Ordering::Relaxed) && sys::at_fork(take, release) {
        IS_ASKED_FOR.store(true, Ordering::Relaxed);
    }
}

extern "C" fn take() {
    // It fails at the end of a thread. Another call has taken the locks if this is asked for twice.
    let _ = HELD.try_with(|held| {
        let all = held.take().unwrap_or_else(|| {
            let registry = registry::lock();
            let reactors = registry.iter().filter_map(|(_, reactor)| reactor.upgrade());
            let all = reactors.map(Held::new).collect();
            (registry, all)
        });
        held.set(Some(all));
    });
}

extern "C" fn release() {
    drop(HELD.try_with(Cell::take));
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::poller::{Backend, Poller};
    use crate::sys::in_child;

    #[test]
    fn a_child_takes_the_locks_that_another_thread_held_when_it_was_forked() {
        let reactor = &Reactor::new(Poller::new(Backend::default()).unwrap());
        let is_over = &AtomicBool::new(false);
        for nth in 0..3 {
            let (holds, is_held) = mpsc::channel();
            thread::scope(|scope| {
                scope.spawn(move || {
                    let _sources = (nth == 0).then(|| reactor.sources.lock());
                    let _timers = (nth == 1).then(|| reactor.remote_timers.lock());
                    let _ops = (nth == 2).then(|| reactor.timer_ops.lock());
                    holds.send(()).unwrap();
                    // Until the fork waits.
                    while registry::try_lock().is_some() && !is_over.load(Ordering::Relaxed) {
                        thread::yield_now();
                    }
                });
                is_held.recv().unwrap();
                /// Ends the thread, also after a panic.
                struct Over<'a>(&'a AtomicBool);
                impl Drop for Over<'_> {
                    fn drop(&mut self) {
                        self.0.store(true, Ordering::Relaxed);
                    }
                }
                let over = Over(is_over);
                in_child(|| {
                    drop(Held::new(reactor.clone()));
                    true
                });
                std::mem::forget(over);
            });
        }
    }
}
