//! [`Parker`]: the place in which a worker sleeps, with its [`Parking`] state.
//!
//! A worker that drives a reactor alone, and a shard's *leader*, sleeps in the reactor's poller.
//! The shard's other workers, the *followers*, wait only for a notification or a timeout: they
//! sleep on a condition variable ([`Notify`]), which takes no descriptor and one system call (a
//! futex on Linux).
//!
//! **Why no notification is lost.** The poller, by its contract, and the `Notify` keep a
//! notification until a sleep there takes it. See [`park_as`](Parker::park_as) for why it is sent
//! to the right place.

use std::sync::Arc;
use std::time::Duration;

use super::parking::{Parking, Wakeup};
use crate::poller::Poller;
use crate::sync::Notify;
use crate::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct Parker {
    parking: Parking,
    poller: Arc<Poller>,
    /// Always true, unless it is a pool worker. Written by the worker's thread before it parks.
    is_leader: AtomicBool,
    thread: Notify,
    /// Notified instead of a follower, if the thread's kernel has a poller for each worker.
    of_kernel: Option<Poller>,
}

impl Parker {
    pub(super) fn new(poller: Arc<Poller>) -> Parker {
        Parker {
            parking: Parking::default(),
            poller,
            is_leader: AtomicBool::new(true),
            thread: Notify::default(),
            of_kernel: None,
        }
    }

    /// `poller` is the shard's.
    pub(super) fn of_pool(poller: Arc<Poller>, of_kernel: Option<Poller>) -> Parker {
        Parker {
            is_leader: AtomicBool::new(false),
            of_kernel,
            ..Parker::new(poller)
        }
    }

    /// Wakes the worker if it sleeps, after something was put where it looks. Returns whether it
    /// slept.
    #[inline]
    pub(crate) fn unpark(&self) -> bool {
        let asleep = self.parking.unpark();
        if asleep {
            self.notify();
        }
        asleep
    }

    /// [`unpark`](Self::unpark) that ignores a failed notification, so that the other workers are
    /// still woken.
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
            // A failed notification would show up as a hang elsewhere. We know of no reason for
            // one, and the worker cannot continue without it.
            Some(poller) => (poller.notify()).expect("failed to wake the poller"),
            None => self.notify_thread(),
        }
    }

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
        if !self.poller.is_inherited() {
            self.thread.notify_one();
        }
    }

    /// Sleeps as a follower, until it is notified, for at most `timeout`. May return spuriously.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) {
        self.thread.wait(timeout);
    }

    #[inline]
    pub(crate) fn park(&self) -> Wakeup {
        self.parking.park()
    }

    /// [`park`](Self::park) of a pool worker, as the leader if it `is_leader`.
    ///
    /// A thread that finds the worker parked reads `is_leader` after it has exchanged the state
    /// that `park` wrote. So it reads the value that was written before that `park`, or a newer
    /// one. In the latter case the worker has resumed since, and that `resume` has reported the
    /// unpark; the notification, which may be sent to the wrong place, is not needed. `loom` checks
    /// this below.
    #[inline]
    pub(crate) fn park_as(&self, is_leader: bool) -> Wakeup {
        self.is_leader.store(is_leader, Ordering::Relaxed);
        self.park()
    }

    #[inline]
    pub(crate) fn resume(&self) -> Wakeup {
        self.parking.resume()
    }

    #[inline]
    pub(crate) fn is_leader(&self) -> bool {
        self.is_leader.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn is_parked(&self) -> bool {
        self.parking.is_parked()
    }

    #[inline]
    pub(crate) fn is_awake(&self) -> bool {
        self.parking.is_awake()
    }

    /// Reports to the kernel that this thread has woken one of the worker's tasks.
    #[inline]
    pub(crate) fn note_wake_from_elsewhere(&self) {
        (self.of_kernel.as_ref().unwrap_or(&self.poller)).note_wake_from_elsewhere();
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
        let parker = Arc::new(Parker::of_pool(Arc::new(poller), None));
        let timeout = Duration::from_millis(5);
        let start = now();
        while start.elapsed() < timeout {
            parker.sleep(Some(timeout.saturating_sub(start.elapsed())));
        }
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

    /// A notification is in the place that the worker sleeps in.
    ///
    /// A notification is in the real poller when its descriptor is readable.
    #[test]
    fn notification_reaches_where_worker_sleeps() {
        for leads in [false, true] {
            loom::model(move || {
                let poller = Arc::new(Poller::new(Backend::default()).unwrap());
                let worker = Arc::new(Parker::of_pool(poller.clone(), None));
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

    /// A notification ends the sleep of a follower that begins.
    #[test]
    fn follower_notified_as_sleep_begins() {
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
