//! [`Parker`]: what a worker sleeps in. It misses no wake-up, and is woken by a system call only
//! while it sleeps.
//!
//! Its state is one atomic with two bits:
//!
//! | bits | means | set by |
//! |---|---|---|
//! | none | awake | [`resume`](Parker::resume) |
//! | `ATTENTION` | awake, with something to look at | [`unpark`](Parker::unpark) |
//! | `PARKED` | asleep, or about to be | [`park`](Parker::park) |
//! | both | a thread notifies the sleeper, or is about to | [`unpark`](Parker::unpark) |
//!
//! **The protocol.** A thread first puts something where the worker will look (inbox, timer
//! operations, a flag), and then calls `unpark`, which notifies a worker that is parked. The worker
//! calls `park`. If that does not return [`Wakeup::None`], it looks everywhere before it sleeps;
//! and if `resume` does not, before it parks again.
//!
//! **Why no wake is lost.** One of `park` and `unpark` comes first, since both are a single step on
//! one atomic. If `unpark` comes first, `park` reports it, and what was put there is visible. If
//! `park` comes first, `unpark` finds `PARKED` and notifies, and a notification is kept until a
//! sleep takes it. A `resume` reports any `unpark` before it. `loom` checks this below.
//!
//! **Where it sleeps.** A worker that drives a reactor alone, and a shard's *leader*, sleeps in the
//! reactor's poller. The shard's other workers, the *followers*, wait only for a notification or a
//! timeout: they sleep on a condition variable ([`ThreadSignal`]), which takes no descriptor and
//! one system call (a futex on Linux). Both keep a notification. See [`park_as`](Parker::park_as)
//! for why it is sent to the right one.
//!
//! **Other places.** A pool worker also looks at state that belongs to all workers: see
//! `scheduler::searcher` and `scheduler::shared`. There both sides write one place and then read
//! another, with a sequentially consistent fence in between; `park` is such a fence.
//!
//! **Foreign code.** A waker may belong to any executor: it may spawn, set a timer, wake this
//! worker, drive a runtime, block until another worker has done something, or panic. So
//!
//! * no foreign code runs between `park` and `resume`: the events are collected, the worker
//!   resumes, and only then are the wakers called (`Driver::call_wakers`; tasks' own wakers are not
//!   foreign code: see `readiness::Waiters`). Until `resume` other workers would leave work to it
//!   that it cannot do while it is in a waker;
//! * a worker that was woken to search for tasks ends its search before it calls a waker
//!   (`Worker::before_foreign_code`): otherwise no worker would search while the waker blocks;
//! * the waker of a future of `block_on` skips `unpark` only if its thread drives the worker *and*
//!   the worker is awake (`MainWaker::wake_by_ref`): then the worker looks everywhere before it
//!   sleeps (in a simulated process: before its turn ends).
//!
//! Anything that a waker queues for its own worker is found at the end of the turn.

use std::io;
use std::sync::Arc;
use std::sync::atomic::compiler_fence;
use std::time::Duration;

use crate::poller::Poller;
use crate::sync::ThreadSignal;
use crate::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};

const PARKED: u8 = 1;
const ATTENTION: u8 = 2;

/// Loom models elsewhere use the state alone, as a `Parker<()>`.
#[derive(Default)]
pub(crate) struct Parker<P = Place> {
    state: State,
    place: P,
}

/// Aligned: other threads write it with each wake, and the worker writes its neighbours in each
/// turn.
#[derive(Default)]
#[repr(align(128))]
struct State(AtomicU8);

pub(crate) struct Place {
    poller: Arc<Poller>,
    /// Whether it is the poller that is notified: always, except for a pool worker that follows.
    /// Written by the worker's thread before it parks.
    sleeps_in_poller: AtomicBool,
    thread: ThreadSignal,
    /// Notified instead of a follower, if another kernel has a poller for each worker.
    own_poller: Option<Poller>,
}

/// Whether [`unpark`](Parker::unpark) was called since the worker last resumed or parked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wakeup {
    None,
    /// Something was put where the worker looks.
    Attention,
    /// And the worker was parked by then: a notification was sent, or is about to be.
    Notified,
}

impl Wakeup {
    #[inline]
    fn since(before: u8) -> Wakeup {
        match before {
            0 | PARKED => Wakeup::None,
            ATTENTION => Wakeup::Attention,
            _ => Wakeup::Notified,
        }
    }
}

impl<P> Parker<P> {
    /// Declares the worker about to sleep: from now on `unpark` notifies. Returns whether it was
    /// called since the last `resume`; if so, what was put there is visible.
    #[inline]
    pub(crate) fn park(&self) -> Wakeup {
        // The fence for the "other places". On x86 a locked exchange is one, at a third of the
        // price of `mfence`. This relies on the hardware and not on the memory model, where an
        // exchange of one place does not order a later load of another (Intel's manual, volume 3,
        // on memory ordering: "Loads and stores are not reordered with locked instructions"). The
        // compiler fence restrains the compiler. Loom and Miri implement the model, so they get a
        // real fence.
        let before = self.state.0.swap(PARKED, Ordering::SeqCst);
        if cfg!(all(
            any(target_arch = "x86", target_arch = "x86_64"),
            not(any(loom, miri))
        )) {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
        Wakeup::since(before)
    }

    /// Declares the worker awake. Returns whether `unpark` was called since it parked, or resumed;
    /// if so, what was put there is visible. A later `unpark` does not notify.
    #[inline]
    pub(crate) fn resume(&self) -> Wakeup {
        // Only the worker clears a bit. A notification that is still on its way is kept: at worst
        // the next sleep ends immediately.
        match self.state.0.load(Ordering::Relaxed) {
            0 => Wakeup::None,
            _ => Wakeup::since(self.state.0.swap(0, Ordering::Acquire)),
        }
    }

    /// Exact on the worker's own thread, which alone sets and clears the bit.
    #[inline]
    pub(crate) fn is_awake(&self) -> bool {
        self.state.0.load(Ordering::Relaxed) & PARKED == 0
    }

    /// Whether the worker has parked and was not woken yet.
    #[inline]
    pub(crate) fn is_parked(&self) -> bool {
        self.state.0.load(Ordering::Relaxed) == PARKED
    }

    /// [`unpark`](Parker::unpark) without the notification. Returns whether that is needed.
    #[inline]
    pub(crate) fn set_attention(&self) -> bool {
        // Written even if the bit is set: only the write publishes what this thread has put there.
        self.state.0.fetch_or(ATTENTION, Ordering::AcqRel) == PARKED
    }
}

impl Parker {
    /// A reactor's parker always `sleeps_in_poller`; for that of a pool worker this is false at
    /// first, and `poller` is the shard's.
    pub(super) fn new(
        poller: Arc<Poller>,
        sleeps_in_poller: bool,
        own_poller: Option<Poller>,
    ) -> Parker {
        Parker {
            state: State::default(),
            place: Place {
                poller,
                sleeps_in_poller: AtomicBool::new(sleeps_in_poller),
                thread: ThreadSignal::default(),
                own_poller,
            },
        }
    }

    /// Wakes the worker if it sleeps, after something was put where it looks. Returns whether it
    /// slept.
    #[inline]
    pub(crate) fn unpark(&self) -> bool {
        let asleep = self.set_attention();
        if asleep {
            self.notify();
        }
        asleep
    }

    /// [`unpark`](Self::unpark) that ignores a failed notification, so that the other workers are
    /// still woken.
    pub(crate) fn unpark_best_effort(&self) {
        if self.set_attention() {
            _ = self.try_notify();
        }
    }

    /// Wakes the current or the next sleep unconditionally.
    #[cold]
    pub(crate) fn notify(&self) {
        // A failed notification would show up as a hang elsewhere. We know of no reason for one,
        // and the worker cannot continue without it.
        self.try_notify().expect("failed to wake the poller");
    }

    #[inline]
    fn try_notify(&self) -> io::Result<()> {
        let place = &self.place;
        if place.sleeps_in_poller.load(Ordering::Relaxed) {
            return place.poller.notify();
        }
        match &place.own_poller {
            Some(poller) => return poller.notify(),
            // In a child of `fork` that thread does not exist, and may have held the lock.
            None if place.poller.is_inherited() => {}
            None => place.thread.notify(),
        }
        Ok(())
    }

    /// Sleeps as a follower, until it is notified, for at most `timeout`. May return spuriously.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) {
        self.place.thread.wait(timeout);
    }

    /// [`park`](Self::park) of a pool worker, as the leader if it `leads`.
    ///
    /// A thread that finds the worker parked reads `sleeps_in_poller` after it has exchanged the
    /// state that `park` wrote. So it reads the value that was written before that `park`, or a
    /// newer one. In the latter case the worker has resumed since, and that `resume` has reported
    /// the unpark; the notification, which may be sent to the wrong place, is not needed. `loom`
    /// checks this below.
    #[inline]
    pub(crate) fn park_as(&self, leads: bool) -> Wakeup {
        self.place.sleeps_in_poller.store(leads, Ordering::Relaxed);
        self.park()
    }

    /// Of a pool worker that is parked.
    #[inline]
    pub(crate) fn is_leader(&self) -> bool {
        self.place.sleeps_in_poller.load(Ordering::Relaxed)
    }

    /// Reports to another kernel, if any, that this thread has woken one of the worker's tasks.
    #[inline]
    pub(crate) fn note_wake_from_elsewhere(&self) {
        (self.place.own_poller.as_ref().unwrap_or(&self.place.poller)).note_wake_from_elsewhere();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;
    use crate::poller::Backend;
    use std::thread;

    /// A follower sleeps until it is notified or its timeout ends.
    #[test]
    fn follower_sleeps_until_notified_or_timeout() {
        let poller = Poller::new(Backend::default()).unwrap();
        let parker = Arc::new(Parker::new(Arc::new(poller), false, None));
        let timeout = Duration::from_millis(5);
        let start = now();
        while start.elapsed() < timeout {
            parker.sleep(Some(timeout.saturating_sub(start.elapsed())));
        }
        parker.notify();
        parker.sleep(None);
        assert!(!parker.place.thread.take());
        let sleeper = {
            let parker = parker.clone();
            thread::spawn(move || {
                while parker.park_as(false) == Wakeup::None {
                    parker.sleep(None);
                    if parker.resume() != Wakeup::None {
                        return;
                    }
                }
            })
        };
        parker.unpark();
        sleeper.join().unwrap();
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    #[cfg(unix)]
    use crate::poller::Backend;
    use crate::sync::Mutex;
    use crate::sync::atomic::AtomicUsize;

    /// A worker with an inbox, and a poller reduced to its promise: a notification ends the current
    /// or else the next wait.
    struct Model {
        parker: Parker<()>,
        inbox: AtomicUsize,
        notified: Mutex<bool>,
        woken: loom::sync::Condvar,
    }

    impl Model {
        fn new() -> Arc<Model> {
            Arc::new(Model {
                parker: Parker::default(),
                inbox: AtomicUsize::new(0),
                notified: Mutex::new(false),
                woken: loom::sync::Condvar::new(),
            })
        }

        fn send(&self) {
            self.inbox.fetch_add(1, Ordering::Release);
            if self.parker.set_attention() {
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
                if self.parker.park() == Wakeup::None {
                    let mut notified = self.notified.lock();
                    while !*notified {
                        notified = self.woken.wait(notified).unwrap();
                    }
                    *notified = false;
                }
                self.parker.resume();
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

    /// A notification is in the place that the worker sleeps in.
    ///
    /// A notification is in the real poller when its descriptor is readable.
    #[cfg(unix)]
    #[test]
    fn notification_reaches_where_worker_sleeps() {
        for leads in [false, true] {
            loom::model(move || {
                let poller = Arc::new(Poller::new(Backend::default()).unwrap());
                let worker = Arc::new(Parker::new(poller.clone(), false, None));
                worker.park_as(!leads);
                worker.resume();
                let waker = {
                    let worker = worker.clone();
                    loom::thread::spawn(move || worker.unpark())
                };
                let came_before = worker.park_as(leads) != Wakeup::None;
                waker.join().unwrap();
                let descriptor = poller.descriptor().unwrap();
                let is_notified = if leads {
                    crate::sys::is_ready(&descriptor, false).unwrap()
                } else {
                    worker.place.thread.take()
                };
                assert!(came_before || is_notified, "it sleeps on");
            });
        }
    }

    /// A notification ends the sleep of a follower that begins.
    #[cfg(unix)]
    #[test]
    fn follower_notified_as_sleep_begins() {
        loom::model(|| {
            let poller = Arc::new(Poller::new(Backend::default()).unwrap());
            let worker = Arc::new(Parker::new(poller, false, None));
            let waker = {
                let worker = worker.clone();
                loom::thread::spawn(move || worker.unpark())
            };
            if worker.park_as(false) == Wakeup::None {
                worker.sleep(None);
                assert_eq!(worker.resume(), Wakeup::Notified);
            }
            waker.join().unwrap();
        });
    }
}
