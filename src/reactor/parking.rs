//! How a worker goes to sleep without missing a wake, and is woken by a system call only when it
//! sleeps.
//!
//! One atomic, three states:
//!
//! | state | means | set by |
//! |---|---|---|
//! | `RUNNING` | the worker looks at its inbox before it sleeps | the worker, when it wakes |
//! | `PARKED` | the worker sleeps in the poller, or is about to | [`park`](Parking::park) |
//! | `NOTIFIED` | somebody has taken it on to notify the poller | [`unpark`](Parking::unpark) |
//!
//! **The protocol.** Who has something for the worker first puts it where the worker will look
//! (inbox, deadlines, a flag), and then calls `unpark`; if that returns true, it calls `notify`.
//! The worker first calls `park`, then looks everywhere once more, and only then sleeps.
//!
//! **Why no wake is lost.** Both sides write one place and then read the other's, with a
//! sequentially consistent fence between. So at least one of them sees what the other wrote: either
//! the worker finds the thing and does not sleep, or the other side finds `PARKED` and notifies;
//! and a notification is kept by the poller until a wait consumes it. `loom` checks this below.
//!
//! **Foreign code.** A waker may be of any executor: it may spawn, set a timer, wake this worker,
//! drive a runtime, block until another worker has done something, or panic. So
//!
//! * none runs between `park` and `resume`: the kernel's answer is collected, the worker resumes,
//!   and only then are the wakers called (`Driver::wait`). Until `resume` others take it for a
//!   sleeper, and would leave to it what it cannot do while it is in a waker;
//! * a worker that was woken to search for tasks ends its search before it calls a waker
//!   (`Worker::before_foreign_code`): else nobody would search for as long as the waker blocks;
//! * a wake is not dropped because the thread that makes it drives the worker: where the worker is
//!   not `RUNNING`, it notifies (`scheduler::current::unpark`). `RUNNING`, it looks everywhere
//!   before it sleeps.
//!
//! What a waker queues for its own worker is found at the end of the turn, as from a task.

use std::sync::atomic::compiler_fence;

use crate::sync::atomic::{AtomicU8, Ordering, fence};

const RUNNING: u8 = 0;
const PARKED: u8 = 1;
const NOTIFIED: u8 = 2;

/// On cache lines of its own: other threads read it with each wake, and what stands beside it the
/// worker writes in each turn.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Parking(AtomicU8);

impl Parking {
    pub(crate) fn new() -> Parking {
        Parking(AtomicU8::new(RUNNING))
    }

    /// The worker is about to sleep: from here on whoever has something for it notifies. To be
    /// called before the last look.
    #[inline]
    pub(crate) fn park(&self) {
        // On x86 a locked exchange is a full fence, at a third of the price of `mfence`. That rests
        // on the hardware, and not on the memory model: there an exchange of one place, however
        // strong, orders no later load of another. (Intel's manual, volume 3, on memory ordering:
        // "Loads and stores are not reordered with locked instructions".) The second line holds the
        // compiler. Loom and Miri, which know the model only, are given what it asks for; with the
        // exchange Miri finds a lost wake.
        if cfg!(all(
            any(target_arch = "x86", target_arch = "x86_64"),
            not(any(loom, miri))
        )) {
            self.0.swap(PARKED, Ordering::SeqCst);
            compiler_fence(Ordering::SeqCst);
        } else {
            self.0.store(PARKED, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
    }

    /// The worker is awake, or has found something and does not sleep. Returns true if an `unpark`
    /// came first: what its caller wrote is visible from here on. An `unpark` that comes later
    /// returns false.
    #[inline]
    pub(crate) fn resume(&self) -> bool {
        // Nobody but the worker leaves this state. A `NOTIFIED` that is overwritten is a
        // notification that the poller keeps: at worst the next wait returns at once.
        self.0.load(Ordering::Relaxed) != RUNNING
            && self.0.swap(RUNNING, Ordering::Acquire) == NOTIFIED
    }

    /// Asked by the worker's own thread, which alone enters and leaves this state: exact.
    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        self.0.load(Ordering::Relaxed) == RUNNING
    }

    #[inline]
    pub(crate) fn is_parked(&self) -> bool {
        self.0.load(Ordering::Relaxed) == PARKED
    }

    /// There is something for the worker, where it will look. True if the caller has to notify
    /// the poller.
    #[inline]
    pub(crate) fn unpark(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) == PARKED
            && self
                .0
                .compare_exchange(PARKED, NOTIFIED, Ordering::Release, Ordering::Relaxed)
                .is_ok()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::Mutex;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicUsize};

    /// A worker with an inbox, and a poller reduced to its promise: a notification ends the
    /// current or else the next wait.
    struct World {
        parking: Parking,
        inbox: AtomicUsize,
        notified: Mutex<bool>,
        woken: loom::sync::Condvar,
        asleep: AtomicBool,
    }

    impl World {
        fn new() -> Arc<World> {
            Arc::new(World {
                parking: Parking::new(),
                inbox: AtomicUsize::new(0),
                notified: Mutex::new(false),
                woken: loom::sync::Condvar::new(),
                asleep: AtomicBool::new(false),
            })
        }

        fn send(&self) {
            self.inbox.fetch_add(1, Ordering::Release);
            if self.parking.unpark() {
                *self.notified.lock() = true;
                self.woken.notify_one();
            }
        }

        /// Runs until `total` messages came. Loom fails the model where this sleeps for ever.
        fn work(&self, total: usize) {
            let mut seen = 0;
            while seen < total {
                seen += self.inbox.swap(0, Ordering::Acquire);
                if seen == total {
                    break;
                }
                self.parking.park();
                if self.inbox.load(Ordering::Acquire) == 0 {
                    let mut notified = self.notified.lock();
                    self.asleep.store(true, Ordering::Relaxed);
                    while !*notified {
                        notified = self.woken.wait(notified).unwrap();
                    }
                    *notified = false;
                }
                self.parking.resume();
            }
        }
    }

    #[test]
    fn a_wake_before_during_or_after_parking_is_never_lost() {
        loom::model(|| {
            let world = World::new();
            let sender = {
                let world = world.clone();
                loom::thread::spawn(move || world.send())
            };
            world.work(1);
            sender.join().unwrap();
        });
    }

    #[test]
    fn two_threads_wake_one_worker() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let world = World::new();
            let senders: Vec<_> = (0..2)
                .map(|_| {
                    let world = world.clone();
                    loom::thread::spawn(move || world.send())
                })
                .collect();
            world.work(2);
            for sender in senders {
                sender.join().unwrap();
            }
        });
    }

    #[test]
    fn a_worker_that_is_awake_costs_no_notification() {
        loom::model(|| {
            let world = World::new();
            world.send();
            assert!(!*world.notified.lock());
            world.work(1);
        });
    }
}
