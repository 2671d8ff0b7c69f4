//! Which idle worker watches over those that are awake.
//!
//! A worker that computes for long runs nothing else meanwhile. If it was the one that waited in
//! its [shard](super::shard)'s poller, that is left alone; and tasks that are ready lie in its
//! queue. So while one worker of a shard is awake and another one idle, an idle one, the *watch*,
//! sleeps until its next [inspection](common_moment) at most. Each time it looks for tasks in
//! the queues of the others, like any worker that is about to sleep, takes the seat at the
//! poller if that is free, and inspects the others: which are *stuck*, that is awake, and in the
//! same poll since the inspection before. While all sleep there is no watch; and while all are
//! awake each polls between two turns, and inspects the others as often as the watch does.
//!
//! A worker that has ended a turn in which others have worked is likely to see them work again
//! soon. So the watch stays the watch until others have not worked for an interval: then workers
//! that sleep for moments only need not wake each other for this.
//!
//! **Why no worker is awake while all idle workers sleep without a limit.** A worker that begins to
//! work after a sleep ([`begin_work`](Watch::begin_work)) gives up the mark of the watch, if it has
//! it, and then, after a fence, looks for the mark, and for idle workers. If there is no mark it
//! wakes an idle worker. A worker that is about to sleep parks, and then, after a fence, looks
//! whether another one is awake, and if so, takes the mark or sees that another one has it
//! ([`watches`](Watch::watches)). So one of the two sees what the other wrote. A watch removes its
//! mark before it works or parks without it, and so does one of these two things again. `loom`
//! checks this below.
//!
//! Not covered is the moment before `begin_work`, in which a worker is awake and has done nothing
//! yet.

use std::time::{Duration, Instant};

use super::shard::ShardedWorkers;
use crate::clock::since_start;
use crate::sync::atomic::{AtomicBool, Ordering, fence};

/// The time between two inspections. The watch inspects the others again within five quarters of
/// this, and so does a worker with tasks to run while there is no watch. So anything that becomes
/// due while all others compute waits for that long at most; and a task behind a long poll for nine
/// quarters, since that poll may have begun just after an inspection. So this, and the time that
/// the watch takes to wake up, stay below a millisecond. (If the watch is taken to work meanwhile,
/// the next one goes by its own inspections, and a task that would run next may wait for another
/// interval.)
///
/// Each worker keeps the moment of its next inspection while it works or sleeps, also if it is not
/// the watch meanwhile. If each sleep of a watch started a new interval, workers that are woken
/// again and again, or that take turns as the watch, would never come to an inspection.
///
/// Under Miri an inspection takes longer than that, so the watch would do nothing else. Without a
/// watch ([`IS_ON`]) no inspection comes.
pub(super) const INTERVAL: Duration = if !IS_ON {
    Duration::from_secs(3_600)
} else if cfg!(miri) {
    Duration::from_millis(50)
} else {
    Duration::from_micros(350)
};

/// Whether there is ever a watch. With `--cfg polder_no_watch` there is none: then a missing
/// wake-up hangs a test, where the watch would only make it a little late (`ci/no_watch.sh`).
const IS_ON: bool = !cfg!(polder_no_watch);

/// Whether there is a watch: the mark. Which one has it is known to that worker only.
#[derive(Debug, Default)]
pub(super) struct Watch(AtomicBool);

/// Returns when a watch makes the inspection that is due at `next`: at a multiple of [`INTERVAL`]
/// that is a quarter of it later at the most. For such a multiple that is the same moment.
///
/// The workers of a busy server sleep and wake many times in an interval. As each watch waits for
/// the same moment, the poller's timer is set once and not for each sleep. Setting it takes 4 to
/// 11 µs in a virtual machine, where it traps (Intel Xeon, Linux 6.18): with a separate moment
/// for each sleep, HTTP on two workers took 10 to 20 % more CPU time.
pub(super) fn common_moment(next: Instant) -> Instant {
    let latest = next + INTERVAL / 4;
    let past = since_start(latest).as_nanos() as u64 % INTERVAL.as_nanos() as u64;
    latest - Duration::from_nanos(past)
}

impl Watch {
    /// Whether some worker is the watch.
    pub(super) fn is_kept(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The worker at `index`, which has parked and is not the watch, becomes the watch if others
    /// are awake, or if it expects so, and there is none. Returns whether it is the watch now.
    pub(super) fn watches(
        &self,
        index: usize,
        expects: bool,
        workers: &impl ShardedWorkers,
    ) -> bool {
        IS_ON && (expects || workers.needs_watch(index)) && !self.0.swap(true, Ordering::Relaxed)
    }

    /// The watch is no longer one.
    pub(super) fn give_up(&self) {
        // (An exchange: loom does not know that a store comes after the exchange of one who has
        // failed to become the watch.)
        self.0.swap(false, Ordering::Relaxed);
    }

    /// The worker at `index` begins to work after a sleep: makes sure that an idle worker watches,
    /// if there is one. If it was the watch itself, it has given that up.
    #[inline]
    pub(super) fn begin_work(&self, index: usize, workers: &impl ShardedWorkers) {
        fence(Ordering::SeqCst);
        if IS_ON && !self.is_kept() {
            workers.wake_idle(index);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::now;
    use crate::scheduler::shard::Shard;
    use std::cell::Cell;
    use std::ops::Range;

    /// Two, in one shard.
    struct Workers {
        shards: [Shard; 1],
        are_awake: bool,
        woken: Cell<usize>,
    }

    impl Workers {
        fn new(are_awake: bool) -> Workers {
            Workers {
                shards: [Shard::new(0..2)],
                are_awake,
                woken: Cell::default(),
            }
        }
    }

    impl ShardedWorkers for Workers {
        fn shards(&self) -> &[Shard] {
            &self.shards
        }

        fn shard(&self, _: usize) -> &Shard {
            &self.shards[0]
        }

        fn is_parked(&self, _: usize) -> bool {
            !self.are_awake
        }

        fn wake_idle_of(&self, _: Range<usize>) -> bool {
            self.woken.set(self.woken.get() + 1);
            true
        }
    }

    #[test]
    fn one_idle_worker_watches_while_another_one_is_awake_or_expected_to_be() {
        for (are_awake, expects) in [(true, false), (false, true)] {
            let workers = Workers::new(are_awake);
            let watch = &workers.shards[0].watch;
            assert!(watch.watches(0, expects, &workers));
            assert!(!watch.watches(1, expects, &workers), "there is one");
            watch.give_up();
            assert!(watch.watches(1, expects, &workers));
        }
        let asleep = Workers::new(false);
        assert!(!asleep.shards[0].watch.watches(0, false, &asleep));
    }

    #[test]
    fn workers_that_fall_asleep_within_an_interval_inspect_at_the_same_moment() {
        let start = now();
        let mut moments = Vec::new();
        for hundredths in 0..400 {
            let now = start + INTERVAL * hundredths / 100;
            let next = common_moment(now + INTERVAL);
            assert_eq!(next, common_moment(next), "it stays the same");
            let wait = next - now;
            assert!(wait > INTERVAL / 4 && wait <= INTERVAL * 5 / 4, "{wait:?}");
            moments.push(next);
        }
        assert!(moments.is_sorted());
        moments.dedup();
        assert!(moments.len() <= 5, "in four intervals: {moments:?}");
    }

    #[test]
    fn who_begins_to_work_wakes_an_idle_worker_unless_one_watches() {
        let workers = Workers::new(false);
        let watch = &workers.shards[0].watch;
        watch.begin_work(0, &workers);
        assert_eq!(workers.woken.get(), 1);
        assert!(watch.watches(0, true, &workers));
        watch.begin_work(0, &workers);
        assert_eq!(workers.woken.get(), 1, "one watches");
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::reactor::parking::Parking;
    use crate::scheduler::shard::Shard;
    use loom::sync::Arc;
    use std::ops::Range;

    /// Workers that go to sleep and begin to work. Left out: what they work at, the looks, and the
    /// pollers; a worker that was unparked would wake.
    struct Model {
        shards: Vec<Shard>,
        workers: Vec<Worker>,
    }

    struct Worker {
        parking: Parking,
        is_watch: AtomicBool,
    }

    impl ShardedWorkers for Model {
        fn shards(&self) -> &[Shard] {
            &self.shards
        }

        fn shard(&self, index: usize) -> &Shard {
            &self.shards[index / self.shards[0].workers.len()]
        }

        fn is_parked(&self, index: usize) -> bool {
            self.workers[index].parking.is_parked()
        }

        fn wake_idle_of(&self, workers: Range<usize>) -> bool {
            let parked = |worker: &&Worker| worker.parking.is_parked();
            let idle = self.workers[workers].iter().find(parked);
            idle.map(|worker| worker.parking.unpark()).is_some()
        }
    }

    impl Model {
        /// With shards of these numbers of workers.
        fn new(shards: &[usize]) -> Arc<Model> {
            let worker = || Worker {
                parking: Parking::default(),
                is_watch: AtomicBool::new(false),
            };
            Arc::new(Model {
                workers: (0..shards.iter().sum()).map(|_| worker()).collect(),
                shards: (shards.iter())
                    .scan(0, |start, count| {
                        let workers = *start..*start + count;
                        *start = workers.end;
                        Some(Shard::new(workers))
                    })
                    .collect(),
            })
        }

        /// A sleep, without what others have done before.
        fn sleep(&self, index: usize) {
            let worker = &self.workers[index];
            if worker.is_watch.load(Ordering::Relaxed) {
                worker.is_watch.store(false, Ordering::Relaxed);
                self.shard(index).watch.give_up();
            }
            worker.parking.park();
            let is_watch = self.shard(index).watch.watches(index, false, self);
            worker.is_watch.store(is_watch, Ordering::Relaxed);
        }

        /// An event ends its sleep.
        fn wake_up(&self, index: usize) {
            let worker = &self.workers[index];
            worker.parking.resume();
            if worker.is_watch.swap(false, Ordering::Relaxed) {
                self.shard(index).watch.give_up();
            }
            self.shard(index).watch.begin_work(index, self);
        }

        /// Whether a worker is awake, and all that are idle sleep without a limit.
        fn is_unwatched(&self) -> bool {
            let is_parked = |worker: &&Worker| worker.parking.is_parked();
            let (idle, awake): (Vec<_>, Vec<_>) = self.workers.iter().partition(is_parked);
            !awake.is_empty()
                && !idle.is_empty()
                && idle
                    .iter()
                    .all(|worker| !worker.is_watch.load(Ordering::Relaxed))
        }
    }

    /// The first worker wakes up, while another one does something.
    fn wake_up_while(world: &Arc<Model>, other: fn(&Model)) {
        wake_up_of_while(0, world, other);
    }

    fn wake_up_of_while(index: usize, world: &Arc<Model>, other: fn(&Model)) {
        let other = {
            let world = world.clone();
            loom::thread::spawn(move || other(&world))
        };
        world.wake_up(index);
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
            let world = Model::new(&[2]);
            world.sleep(0);
            wake_up_while(&world, |world| world.sleep(1));
        });
    }

    /// The third one has worked all the time.
    #[test]
    fn a_watch_that_begins_to_work_leaves_the_others_to_another_idle_worker() {
        check(|| {
            let world = Model::new(&[3]);
            world.sleep(0);
            assert!(world.workers[0].is_watch.load(Ordering::Relaxed));
            wake_up_while(&world, |world| world.sleep(1));
        });
    }

    #[test]
    fn two_that_begin_to_work_at_once_are_watched_by_the_third() {
        check(|| {
            let world = Model::new(&[3]);
            for index in 0..3 {
                world.sleep(index);
            }
            wake_up_while(&world, |world| world.wake_up(1));
        });
    }

    /// Of two workers in shards of their own.
    #[test]
    fn a_full_shard_is_watched_by_another_one() {
        check(|| {
            let world = Model::new(&[1, 1]);
            world.sleep(0);
            wake_up_while(&world, |world| world.sleep(1));
        });
    }

    #[test]
    fn a_shard_that_two_workers_fill_at_once_is_watched_by_another_one() {
        check(|| {
            let world = Model::new(&[2, 1]);
            for index in 0..3 {
                world.sleep(index);
            }
            wake_up_while(&world, |world| world.wake_up(1));
        });
    }

    /// The watch of another shard begins to work while the third shard's worker falls asleep, which
    /// has left it to that watch.
    #[test]
    fn a_full_shard_keeps_a_watch_where_one_leaves_it_to_another() {
        check(|| {
            let world = Model::new(&[1, 1, 1]);
            world.sleep(1);
            wake_up_of_while(1, &world, |world| world.sleep(2));
        });
        check(|| {
            let world = Model::new(&[1, 1, 1]);
            world.sleep(1);
            world.sleep(2);
            // Both look again whether they are needed.
            wake_up_of_while(0, &world, |world| world.sleep(2));
            assert!(!world.is_unwatched());
        });
    }
}
