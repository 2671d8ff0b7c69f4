//! The parking protocol: a worker goes to sleep without missing a wake-up, and is woken by a system
//! call only when it sleeps.
//!
//! One atomic with two bits:
//!
//! | bits | means | set by |
//! |---|---|---|
//! | none | awake | [`resume`](Parking::resume) |
//! | `ATTENTION` | awake, with something to look at | [`unpark`](Parking::unpark) |
//! | `PARKED` | asleep (where: [`Parker`](super::Parker)), or about to be | [`park`](Parking::park) |
//! | both | a thread notifies the sleeper, or is about to | [`unpark`](Parking::unpark) |
//!
//! **The protocol.** A thread first puts something where the worker will look (inbox, timer
//! operations, a flag), and then calls `unpark`; if that returns true, it calls `notify`. The
//! worker calls `park`, and sleeps only if that returns [`Wakeup::None`], or if it has looked
//! everywhere after it parked and found nothing. After `resume` has returned anything but `None`,
//! it looks everywhere before it parks again.
//!
//! **Why no wake is lost.** One of `park` and `unpark` comes first, since both are a single step on
//! one atomic. If `unpark` comes first, `park` reports it, and what was put there is visible. If
//! `park` comes first, `unpark` finds `PARKED` and notifies, and the poller keeps a notification
//! until a wait consumes it. A `resume` reports any `unpark` before it. `loom` checks this below.
//!
//! **Other places.** A pool worker also looks at state that belongs to all workers: see
//! `scheduler::idle` and `scheduler::shared`. There both sides write one place and then read
//! another, with a sequentially consistent fence in between; `park` is such a fence.
//!
//! **Foreign code.** A waker may belong to any executor: it may spawn, set a timer, wake this
//! worker, drive a runtime, block until another worker has done something, or panic. So
//!
//! * no foreign code runs between `park` and `resume`: the events are collected, the worker
//!   resumes, and only then are the wakers called (`Driver::call_wakers`; tasks' own wakers are not
//!   foreign code: see `waiters`). Until `resume` other workers would leave work to it that it
//!   cannot do while it is in a waker;
//! * a worker that was woken to search for tasks ends its search before it calls a waker
//!   (`Worker::before_foreign_code`): otherwise no worker would search while the waker blocks;
//! * the waker of a future of `block_on` skips `unpark` only if its thread drives the worker *and*
//!   the worker is awake (`scheduler::current::unpark`): then the worker looks everywhere before it
//!   sleeps (in a simulated process: before its turn ends).
//!
//! **Foreign wakers.** A thread often finds several wakers together: due timers, a batch of events,
//! the waiters for a source, a latch or a signal. Each may block until another one is called. So
//! one rule holds for all of these: *while a foreign waker is called, each other waker that was
//! found with it is where another thread, or a nested turn on this one, finds it.*
//!
//! * Due timers stay in their heap. `Driver::fire` takes out and calls one at a time, in their
//!   order, and at most `BATCH` in a turn.
//! * Several wakers of ready sources are put in a queue of the reactor (`Reactor::queue_wakers`)
//!   before the lock of a shard's poller is released. They are called before due timers, by the
//!   next turn of any worker with the lock, or by a nested turn; and while a worker is in a waker
//!   and another one idle, that one is the monitor, which inspects within 12 ms. The thread that
//!   has queued some calls as many, unless others have. So each is called once, and none is left if
//!   there is no other worker.
//! * `Source::wake` queues them with the reactor of the source, a `Latch` and the end of a duplex
//!   stream with the reactor of the worker that the thread drives (`scheduler::wake_each`); and the
//!   reactor is unparked.
//! * A thread that drives no worker (the signal thread, or one that sets a latch) takes out and
//!   calls one waker at a time, after tasks' own wakers, which only queue. The other waiters stay
//!   listed, and each of them that is polled sees that its wait is over. (If a foreign waker blocks
//!   that thread, foreign wakers behind it wait until then.)
//!
//! Closing is the exception. When a runtime has ended, no thread drives its reactor. The thread
//! that ends it takes out all wakers that wait there, and calls them one after the other.
//!
//! Anything that a waker queues for its own worker is found at the end of the turn.

use std::sync::atomic::compiler_fence;

use crate::sync::atomic::{AtomicU8, Ordering, fence};

const PARKED: u8 = 1;
const ATTENTION: u8 = 2;

/// Aligned: other threads write it with each wake, and the worker writes its neighbours in each
/// turn.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Parking(AtomicU8);

/// Whether [`unpark`](Parking::unpark) was called since the worker last resumed or parked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wakeup {
    None,
    /// Something was put where the worker looks.
    Attention,
    /// And the worker was parked by then: a notification was sent, or is about to be.
    Notified,
}

impl Parking {
    /// Declares the worker about to sleep: from now on `unpark` asks for a notification. Returns
    /// whether it was called since the last `resume`; if so, what was put there is visible.
    #[inline]
    pub(crate) fn park(&self) -> Wakeup {
        // The fence for the "other places". On x86 a locked exchange is one, at a third of the
        // price of `mfence`. This relies on the hardware and not on the memory model, where an
        // exchange of one place does not order a later load of another (Intel's manual, volume 3,
        // on memory ordering: "Loads and stores are not reordered with locked instructions"). The
        // compiler fence restrains the compiler. Loom and Miri implement the model, so they get a
        // real fence.
        let before = self.0.swap(PARKED, Ordering::SeqCst);
        if cfg!(all(
            any(target_arch = "x86", target_arch = "x86_64"),
            not(any(loom, miri))
        )) {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
        wakeup(before)
    }

    /// Declares the worker awake. Returns whether `unpark` was called since it parked, or resumed;
    /// if so, what was put there is visible. A later `unpark` returns false.
    #[inline]
    pub(crate) fn resume(&self) -> Wakeup {
        // Only the worker clears a bit. The poller keeps a notification that is still on its way:
        // at worst the next wait returns immediately.
        match self.0.load(Ordering::Relaxed) {
            0 => Wakeup::None,
            _ => wakeup(self.0.swap(0, Ordering::Acquire)),
        }
    }

    /// Exact on the worker's own thread, which alone sets and clears the bit.
    #[inline]
    pub(crate) fn is_awake(&self) -> bool {
        self.0.load(Ordering::Relaxed) & PARKED == 0
    }

    /// Whether the worker has parked and was not woken yet.
    #[inline]
    pub(crate) fn is_parked(&self) -> bool {
        self.0.load(Ordering::Relaxed) == PARKED
    }

    /// Called after something was put where the worker looks. Returns whether the caller must
    /// notify the poller.
    #[inline]
    pub(crate) fn unpark(&self) -> bool {
        // Written even if the bit is set: only the write publishes what this thread has put there.
        self.0.fetch_or(ATTENTION, Ordering::AcqRel) == PARKED
    }
}

#[inline]
fn wakeup(before: u8) -> Wakeup {
    match before {
        0 | PARKED => Wakeup::None,
        ATTENTION => Wakeup::Attention,
        _ => Wakeup::Notified,
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::Mutex;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicUsize};

    /// A worker with an inbox, and a poller reduced to its promise: a notification ends the current
    /// or else the next wait.
    struct Model {
        parking: Parking,
        inbox: AtomicUsize,
        notified: Mutex<bool>,
        woken: loom::sync::Condvar,
        asleep: AtomicBool,
    }

    impl Model {
        fn new() -> Arc<Model> {
            Arc::new(Model {
                parking: Parking::default(),
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

        /// Runs until `total` messages came. Loom fails the model if this sleeps forever.
        fn work(&self, total: usize) {
            let mut seen = 0;
            while seen < total {
                seen += self.inbox.swap(0, Ordering::Acquire);
                if seen == total {
                    break;
                }
                // Without looking at the inbox: the result of `park` has to suffice.
                if self.parking.park() == Wakeup::None {
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

    /// A wake before during or after parking is never lost.
    #[test]
    fn wake_never_lost_around_parking() {
        loom::model(|| {
            let world = Model::new();
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
            let world = Model::new();
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
            let world = Model::new();
            world.send();
            assert!(!*world.notified.lock());
            world.work(1);
        });
    }
}
