//! Which idle worker looks after those that are awake.
//!
//! A worker that computes for long runs nothing else meanwhile: what is ready in its queues waits.
//! So while one pool worker is awake and another one idle, an idle one looks at it every
//! [`INTERVAL`], and takes what waits there for too long. That one is the *monitor*. While all
//! sleep nobody looks; and while all are awake there is no monitor, but see
//! [`thief`](super::thief).
//!
//! An idle worker sleeps *lightly*, until the next look at the latest; or *deeply*, without a look.
//! A worker that has worked since its last look sleeps lightly, and looks once more before it
//! sleeps deeply, so that workers that sleep for moments only need not wake each other for this.
//! Several may sleep lightly, but only one of those that go on looking is the monitor: a worker
//! that finds at its look that another one is sleeps deeply from then on. A look that becomes due
//! while its worker works takes place when it is idle again, however briefly: perhaps it is the
//! only one that ever is.
//!
//! **Why nobody is awake while all idle workers sleep deeply.** A worker that begins to work after
//! a sleep ([`begin_work`](Monitor::begin_work)) gives up the mark of the monitor, if it has it,
//! and then, after a fence, looks for the mark of another one, and for idle workers. If none of
//! them sleeps lightly it wakes one that sleeps deeply. A worker that is about to sleep deeply says
//! so and parks, and then, after a fence, looks whether there is a monitor, or nobody awake
//! ([`may_sleep_deeply`](Monitor::may_sleep_deeply)). So one of the two sees what the other wrote.
//! A monitor removes its mark before it works or sleeps deeply, in one of the two ways just told.
//! `loom` checks this below. To look, and to serve another one's reactor, is no work yet; to call
//! the wakers that are found there is.
//!
//! Not covered is the moment before `begin_work`, in which a worker is awake and has done nothing
//! yet.

use std::time::Duration;

use crate::sync::atomic::{AtomicUsize, Ordering, fence};

/// How often the monitor looks. What became ready after a look is known to wait at the next one,
/// and taken at the one after that; so twice this, and the time that the monitor takes to wake up,
/// stay below a millisecond. A look costs some microseconds of CPU time.
pub(super) const INTERVAL: Duration = Duration::from_micros(400);

/// What [`Monitor`] needs to know of the pool workers.
pub(super) trait MonitoredWorkers {
    fn count(&self) -> usize;

    /// Whether it sleeps, or is about to, and nobody has woken it.
    fn is_parked(&self, index: usize) -> bool;

    /// Whether it sleeps deeply, if it sleeps.
    fn sleeps_deeply(&self, index: usize) -> bool;

    /// Wakes a worker. Returns false if it woke by itself.
    fn wake(&self, index: usize) -> bool;
}

#[derive(Debug)]
pub(super) struct Monitor {
    /// The index of the monitor plus one, or zero.
    current: AtomicUsize,
}

impl Monitor {
    pub(super) fn new() -> Monitor {
        Monitor {
            current: AtomicUsize::new(0),
        }
    }

    /// The idle worker at `index`, which is about to sleep lightly, becomes the monitor if there is
    /// none. Returns whether it is the monitor now.
    pub(super) fn claim(&self, index: usize) -> bool {
        self.is(index) || self.replace(0, index + 1)
    }

    /// Whether the worker at `index` is the monitor: exact on its own thread.
    #[inline]
    fn is(&self, index: usize) -> bool {
        self.current.load(Ordering::Relaxed) == index + 1
    }

    fn replace(&self, old: usize, new: usize) -> bool {
        (self.current)
            .compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// The worker at `index` is not the monitor any more.
    pub(super) fn give_up(&self, index: usize) {
        if self.is(index) {
            self.replace(index + 1, 0);
        }
    }

    /// The worker at `index` begins to work after a sleep: makes sure that an idle worker looks
    /// after it, if there is one.
    #[inline]
    pub(super) fn begin_work(&self, index: usize, workers: &impl MonitoredWorkers) {
        self.give_up(index);
        fence(Ordering::SeqCst);
        if self.current.load(Ordering::Relaxed) == 0 {
            self.wake_one(index, workers);
        }
    }

    /// Wakes a worker that sleeps deeply, unless one sleeps lightly.
    fn wake_one(&self, index: usize, workers: &impl MonitoredWorkers) {
        loop {
            let mut deep = None;
            for other in (0..workers.count()).filter(|&other| other != index) {
                if workers.is_parked(other) {
                    if !workers.sleeps_deeply(other) {
                        return;
                    }
                    deep = Some(other);
                }
            }
            match deep {
                // If it woke by itself it is not idle, but another one may be.
                Some(other) if !workers.wake(other) => {}
                _ => return,
            }
        }
    }

    /// Whether the worker at `index`, which has said that it sleeps deeply and has parked, may do
    /// so.
    pub(super) fn may_sleep_deeply(&self, index: usize, workers: &impl MonitoredWorkers) -> bool {
        self.current.load(Ordering::Relaxed) != 0
            || (0..workers.count()).all(|other| other == index || workers.is_parked(other))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Which workers are parked.
    struct World<'a>(&'a [bool]);

    impl MonitoredWorkers for World<'_> {
        fn count(&self) -> usize {
            self.0.len()
        }

        fn is_parked(&self, index: usize) -> bool {
            self.0[index]
        }

        fn sleeps_deeply(&self, _: usize) -> bool {
            unreachable!("that is asked by those that begin to work")
        }

        fn wake(&self, _: usize) -> bool {
            unreachable!("nobody is woken by those that fall asleep")
        }
    }

    #[test]
    fn a_worker_sleeps_deeply_where_all_others_do_or_another_one_looks() {
        let monitor = Monitor::new();
        // It has parked itself.
        assert!(monitor.may_sleep_deeply(1, &World(&[true, true, true])));
        for awake in [0, 2] {
            let parked = [0, 1, 2].map(|index| index != awake);
            assert!(!monitor.may_sleep_deeply(1, &World(&parked)), "{parked:?}");
        }
        assert!(monitor.claim(2));
        assert!(monitor.may_sleep_deeply(1, &World(&[false, true, true])));
        monitor.give_up(2);
        assert!(!monitor.may_sleep_deeply(1, &World(&[false, true, true])));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::reactor::parking::Parking;
    use crate::sync::Mutex;
    use crate::sync::atomic::AtomicBool;
    use loom::sync::Arc;

    /// Workers that go to sleep and begin to work. Left out: what they work at, the looks, and the
    /// pollers; a worker that was unparked would wake.
    struct World {
        monitor: Monitor,
        workers: Vec<Worker>,
    }

    struct Worker {
        parking: Parking,
        sleeps_deeply: AtomicBool,
    }

    impl MonitoredWorkers for World {
        fn count(&self) -> usize {
            self.workers.len()
        }

        fn is_parked(&self, index: usize) -> bool {
            self.workers[index].parking.is_parked()
        }

        fn sleeps_deeply(&self, index: usize) -> bool {
            self.workers[index].sleeps_deeply.load(Ordering::Relaxed)
        }

        fn wake(&self, index: usize) -> bool {
            self.workers[index].parking.unpark()
        }
    }

    impl World {
        fn new(workers: usize) -> Arc<World> {
            let worker = || Worker {
                parking: Parking::new(),
                sleeps_deeply: AtomicBool::new(false),
            };
            Arc::new(World {
                monitor: Monitor::new(),
                workers: (0..workers).map(|_| worker()).collect(),
            })
        }

        /// As `scheduler::worker` does it: deeply if it may.
        fn sleep(&self, index: usize) {
            let worker = &self.workers[index];
            self.monitor.give_up(index);
            worker.sleeps_deeply.store(true, Ordering::Relaxed);
            worker.parking.park();
            if !self.monitor.may_sleep_deeply(index, self) {
                worker.sleeps_deeply.store(false, Ordering::Relaxed);
            }
        }

        fn sleep_lightly(&self, index: usize) {
            let worker = &self.workers[index];
            self.monitor.claim(index);
            worker.parking.park();
        }

        /// An event ends its sleep.
        fn wake_up(&self, index: usize) {
            let worker = &self.workers[index];
            worker.parking.resume();
            worker.sleeps_deeply.store(false, Ordering::Relaxed);
            self.monitor.begin_work(index, self);
        }

        /// Whether somebody is awake, and all that are idle sleep deeply.
        fn is_unwatched(&self) -> bool {
            let (idle, awake): (Vec<_>, Vec<_>) =
                (0..self.count()).partition(|&index| self.is_parked(index));
            !awake.is_empty()
                && !idle.is_empty()
                && idle.iter().all(|&index| self.sleeps_deeply(index))
        }
    }

    /// The first worker wakes up, while another one does something.
    fn wake_up_while(world: &Arc<World>, other: fn(&World)) {
        let other = {
            let world = world.clone();
            loom::thread::spawn(move || other(&world))
        };
        world.wake_up(0);
        other.join().unwrap();
        assert!(!world.is_unwatched());
    }

    fn check(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    #[test]
    fn nobody_begins_to_work_while_another_falls_asleep_unwatched() {
        check(|| {
            let world = World::new(2);
            world.sleep(0);
            wake_up_while(&world, |world| world.sleep(1));
        });
    }

    /// A worker, and one that helps it: a wait with a zero timeout on the worker's poller, which
    /// consumes a notification. Left out: what helping finds.
    #[test]
    fn a_helper_takes_no_notification_from_a_worker_that_sleeps() {
        struct Helped {
            right_to_wait: Mutex<()>,
            parking: Parking,
            inbox: AtomicUsize,
            notified: Mutex<bool>,
            woken: loom::sync::Condvar,
        }
        check(|| {
            let helped = Arc::new(Helped {
                right_to_wait: Mutex::new(()),
                parking: Parking::new(),
                inbox: AtomicUsize::new(0),
                notified: Mutex::new(false),
                woken: loom::sync::Condvar::new(),
            });
            let helper = {
                let helped = helped.clone();
                loom::thread::spawn(move || {
                    if let Some(right) = helped.right_to_wait.try_lock() {
                        *helped.notified.lock() = false;
                        drop(right);
                    }
                })
            };
            let sender = {
                let helped = helped.clone();
                loom::thread::spawn(move || {
                    helped.inbox.fetch_add(1, Ordering::Release);
                    if helped.parking.unpark() {
                        *helped.notified.lock() = true;
                        helped.woken.notify_one();
                    }
                })
            };
            // Loom fails the model if this sleeps for ever.
            while helped.inbox.load(Ordering::Acquire) == 0 {
                let right = helped.right_to_wait.lock();
                helped.parking.park();
                if helped.inbox.load(Ordering::Acquire) == 0 {
                    let mut notified = helped.notified.lock();
                    while !*notified {
                        notified = helped.woken.wait(notified).unwrap();
                    }
                    *notified = false;
                }
                helped.parking.resume();
                drop(right);
            }
            helper.join().unwrap();
            sender.join().unwrap();
        });
    }

    /// The third one has worked all the time.
    #[test]
    fn a_monitor_that_begins_to_work_leaves_the_others_to_another_idle_worker() {
        check(|| {
            let world = World::new(3);
            world.sleep_lightly(0);
            wake_up_while(&world, |world| world.sleep(1));
        });
    }

    #[test]
    fn two_that_begin_to_work_at_once_are_looked_after_by_the_third() {
        check(|| {
            let world = World::new(3);
            for index in 0..3 {
                world.sleep(index);
            }
            wake_up_while(&world, |world| world.wake_up(1));
        });
    }
}
