//! [`Parker`]: a worker sleeps in it, in a poller or on a condition variable.
//!
//! A [`Parker`] has the worker's [`Parking`], which says whether it sleeps, and the place where it
//! does. A worker that drives a reactor alone sleeps in the reactor's poller, which ends the sleep
//! for an event too. The workers of a pool share a reactor. One of them at a time *leads*: it
//! sleeps in that poller. The others *follow*: only a notification, or the end of a timeout, ends
//! their sleep. So they sleep on a condition variable ([`Notify`]), which takes no descriptor and
//! one system call (a futex on Linux).
//!
//! **Why no notification is lost.** Each place keeps one until a sleep there takes it: the poller,
//! by its contract, and the `Notify`. That it goes to the right place: see
//! [`park_as`](Parker::park_as).

use std::sync::Arc;
use std::time::Duration;

use super::parking::{Parking, Wakeup};
use crate::poller::Poller;
use crate::sync::Notify;
use crate::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct Parker {
    parking: Parking,
    /// A worker that leads sleeps in it.
    poller: Arc<Poller>,
    /// Whether it does: always, unless it is a pool worker. Written by the worker's thread before
    /// it parks.
    is_leader: AtomicBool,
    /// A follower sleeps in it.
    thread: Notify,
    /// Notified instead of a follower, if the thread's kernel has a poller for each worker:
    /// a foreign loop runs it in turn.
    of_kernel: Option<Poller>,
}

impl Parker {
    /// For the worker that drives the reactor of `poller`, alone.
    pub(super) fn new(poller: Arc<Poller>) -> Parker {
        Parker {
            parking: Parking::default(),
            poller,
            is_leader: AtomicBool::new(true),
            thread: Notify::default(),
            of_kernel: None,
        }
    }

    /// For a worker of a pool, which leads in its shard's `poller`.
    pub(super) fn of_pool(poller: Arc<Poller>, of_kernel: Option<Poller>) -> Parker {
        Parker {
            is_leader: AtomicBool::new(false),
            of_kernel,
            ..Parker::new(poller)
        }
    }

    /// Wakes the worker if it sleeps. Called after something was put where the worker looks before
    /// it sleeps. Returns whether it slept.
    #[inline]
    pub(crate) fn unpark(&self) -> bool {
        let asleep = self.parking.unpark();
        if asleep {
            self.notify();
        }
        asleep
    }

    /// [`unpark`](Self::unpark), but ignores a notification that fails, so that the other workers
    /// are still woken.
    pub(crate) fn unpark_best_effort(&self) {
        if self.parking.unpark() {
            match self.parking_poller() {
                Some(poller) => _ = poller.notify(),
                None => self.notify_thread(),
            }
        }
    }

    /// Wakes the current or the next sleep unconditionally.
    #[cold]
    pub(crate) fn notify(&self) {
        match self.parking_poller() {
            // A notification that fails would show up as a hang elsewhere. We know of no reason why
            // it should fail, and there is no way to go on if it does.
            Some(poller) => (poller.notify()).expect("the poller takes a notification"),
            None => self.notify_thread(),
        }
    }

    /// The poller in which the worker sleeps, if it does, unless it follows.
    #[inline]
    fn parking_poller(&self) -> Option<&Poller> {
        if self.is_leader() {
            Some(&self.poller)
        } else {
            self.of_kernel.as_ref()
        }
    }

    fn notify_thread(&self) {
        // In a child of `fork` that thread does not exist, and may have held the lock.
        if !self.poller.is_parents() {
            self.thread.notify_one();
        }
    }

    /// Sleeps as a follower, until it is notified, at most for `timeout`. It may end at any time:
    /// the worker looks around, and sleeps again.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) {
        self.thread.wait(timeout);
    }

    /// Declares the worker parked. Returns whether another thread has left something for it since
    /// it resumed.
    #[inline]
    pub(crate) fn park(&self) -> Wakeup {
        self.parking.park()
    }

    /// [`park`](Self::park) of a pool worker, which sleeps in its shard's poller if it `leads`.
    ///
    /// A thread that finds the worker parked reads that after it has exchanged the state that
    /// `park` wrote. So it reads what was written before that `park`, or something newer. In the
    /// latter case the worker has resumed since, and that has told it to look; the notification,
    /// which may go to the wrong place, is not needed. `loom` checks this below.
    #[inline]
    pub(crate) fn park_as(&self, leads: bool) -> Wakeup {
        self.is_leader.store(leads, Ordering::Relaxed);
        self.park()
    }

    /// Declares the worker awake. Returns whether another thread has left something for it since it
    /// parked.
    #[inline]
    pub(crate) fn resume(&self) -> Wakeup {
        self.parking.resume()
    }

    /// Whether the worker, if it sleeps, does so in the poller.
    #[inline]
    pub(crate) fn is_leader(&self) -> bool {
        self.is_leader.load(Ordering::Relaxed)
    }

    /// Whether the worker sleeps, or is about to, and has not been woken yet.
    #[inline]
    pub(crate) fn is_parked(&self) -> bool {
        self.parking.is_parked()
    }

    /// Whether the worker is awake and will look everywhere before it sleeps. Exact on the thread
    /// that drives it.
    #[inline]
    pub(crate) fn is_awake(&self) -> bool {
        self.parking.is_awake()
    }

    /// Tells the kernel whose poller the worker has that this thread has woken one of its tasks.
    #[cfg(feature = "kernel")]
    pub(crate) fn note_wake_from_elsewhere(&self) {
        (self.of_kernel.as_ref().unwrap_or(&self.poller)).note_wake_from_elsewhere();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::now;
    use crate::poller::Backend;
    use std::thread;

    #[test]
    fn a_follower_sleeps_until_it_is_notified_or_its_timeout_ends() {
        let poller = Poller::new(Backend::default()).unwrap();
        let parker = Arc::new(Parker::of_pool(Arc::new(poller), None));
        let timeout = Duration::from_millis(5);
        let start = now();
        while start.elapsed() < timeout {
            parker.sleep(Some(timeout.saturating_sub(start.elapsed())));
        }
        // A notification before the sleep ends it, and only it.
        parker.notify();
        parker.sleep(None);
        assert!(!parker.thread.take());
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

#[cfg(all(test, loom, unix))]
mod loom_tests {
    use super::*;
    use crate::poller::Backend;
    use crate::sys;

    /// The poller is real, and a notification is in it when its descriptor is readable.
    #[test]
    fn a_notification_is_in_the_place_that_the_worker_sleeps_in() {
        for leads in [false, true] {
            loom::model(move || {
                let poller = Arc::new(Poller::new(Backend::default()).unwrap());
                let worker = Arc::new(Parker::of_pool(poller.clone(), None));
                // It slept in the other place before.
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
                    sys::is_ready(&descriptor, false).unwrap()
                } else {
                    worker.thread.take()
                };
                assert!(came_before || is_notified, "it sleeps on");
            });
        }
    }

    /// Loom fails the model if the sleep does not end.
    #[test]
    fn a_notification_ends_the_sleep_of_a_follower_that_begins() {
        loom::model(|| {
            let poller = Arc::new(Poller::new(Backend::default()).unwrap());
            let worker = Arc::new(Parker::of_pool(poller, None));
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
