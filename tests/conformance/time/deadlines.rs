//! Rules 37 and 38: never early, in order, and deadlines that are zero, in the past, or too far
//! away.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use polder::Timer;
use polder::future::poll_once;
use polder::time::{MissedTickBehavior, Sleep, interval, interval_at};
use polder::time::{sleep, sleep_until, timeout, timeout_at};

use super::{Count, FAR, Random, drive_until, last_instant, ms, past, poll_future, poll_now};
use crate::probe::join_all;
use crate::support::{
    a_turn, in_every_runtime, in_every_runtime_alone, is_in_world, with_every_runtime,
};

#[test]
fn timers_are_never_early() {
    in_every_runtime(|_| async {
        let mut random = Random(37);
        let tasks: Vec<_> = (0..600)
            .map(|i| {
                let duration = Duration::from_micros(random.below(15_000));
                polder::spawn(async move {
                    let before = polder::time::now();
                    let due = match i % 4 {
                        0 => Timer::after(duration).await,
                        1 => Timer::at(before + duration).await,
                        2 => {
                            sleep(duration).await;
                            before + duration
                        }
                        _ => {
                            let pending = std::future::pending::<()>();
                            assert!(timeout(duration, pending).await.is_err());
                            before + duration
                        }
                    };
                    let now = polder::time::now();
                    assert!(now >= due, "fired {:?} before its deadline", due - now);
                    assert!(due >= before + duration, "the deadline itself was early");
                })
            })
            .collect();
        join_all(tasks).await;
    });
}

/// A timer that the worker sleeps for is never early.
///
/// One timer after the other, so that the worker sleeps for each: timeouts are rounded up.
#[test]
fn timer_worker_sleeps_for_never_early() {
    in_every_runtime(|_| async {
        let mut random = Random(38);
        for _ in 0..150 {
            let duration = Duration::from_nanos(random.below(1_500_000));
            let before = polder::time::now();
            sleep(duration).await;
            let took = polder::time::now() - before;
            assert!(took >= duration, "{took:?} is less than {duration:?}");
            // In a world, where only the timer takes time, it is exact.
            assert!(took == duration || !is_in_world(), "{took:?} is late");
        }
    });
}

/// Zero and past deadlines are ready at the first poll.
#[test]
fn zero_and_past_ready_at_first_poll() {
    in_every_runtime(|_| async {
        let now = polder::time::now();
        assert!(poll_now(&mut Timer::after(Duration::ZERO)).is_ready());
        assert_eq!(poll_now(&mut Timer::at(now)), Poll::Ready(now));
        assert!(poll_now(&mut Timer::at(past())).is_ready());
        assert!(poll_now(&mut Timer::interval(Duration::ZERO)).is_ready());
        assert_eq!(
            poll_now(&mut Timer::interval_at(now, FAR)),
            Poll::Ready(now)
        );
        assert!(poll_now(&mut sleep(Duration::ZERO)).is_ready());
        assert!(poll_now(&mut sleep_until(past())).is_ready());
        let pending = std::future::pending::<()>;
        assert!(poll_now(&mut timeout(Duration::ZERO, pending())).is_ready());
        assert!(poll_now(&mut timeout_at(past(), pending())).is_ready());
        assert!(poll_now(&mut pin!(interval(FAR).tick())).is_ready());
        let start = past();
        assert_eq!(
            poll_now(&mut pin!(interval_at(start, FAR).tick())),
            Poll::Ready(start)
        );
    });
}

/// A pending timer that is set to the past is ready at the next poll.
///
/// As in `async-io`, whether or not a waker is registered.
#[test]
fn pending_set_to_past_ready_at_next_poll() {
    in_every_runtime(|_| async {
        let count = Count::new();

        let mut timer = Timer::after(FAR);
        assert!(poll_future(&mut timer, &count).is_pending());
        let due = past();
        timer.set_at(due);
        assert_eq!(poll_future(&mut timer, &count), Poll::Ready(due), "set_at");

        let mut timer = Timer::after(FAR);
        assert!(poll_future(&mut timer, &count).is_pending());
        timer.set_after(Duration::ZERO);
        assert!(poll_future(&mut timer, &count).is_ready(), "set_after");

        let mut idle = sleep(FAR);
        assert!(poll_future(&mut idle, &count).is_pending());
        idle.reset(past());
        assert!(poll_future(&mut idle, &count).is_ready(), "Sleep::reset");

        // The second and third ticks of this interval were missed.
        let mut timer = Timer::after(FAR);
        assert!(poll_future(&mut timer, &count).is_pending());
        let start = past();
        timer.set_interval_at(start, ms(400));
        for tick in 0..3 {
            let due = start + ms(400) * tick;
            assert_eq!(
                poll_future(&mut timer, &count),
                Poll::Ready(due),
                "tick {tick}"
            );
        }
    });
}

/// The waiter is woken, without a poll in between.
#[test]
fn pending_set_to_past_wakes_waiter() {
    with_every_runtime(|runtime, _| {
        let count = Count::new();
        let mut timer = Timer::after(FAR);
        runtime.block_on(async { assert!(poll_future(&mut timer, &count).is_pending()) });
        timer.set_at(past());
        drive_until(&runtime, "the waker is called", || count.woken() > 0);
        runtime.block_on(async { assert!(poll_future(&mut timer, &count).is_ready()) });
    });
}

/// Runs `rule` with more and more distant deadlines, until it returns that the machine was fast
/// enough to set all timers in time.
async fn in_time(rule: impl AsyncFn(Instant) -> bool) {
    for lead in [20, 100, 500, 2_500, 12_500] {
        if rule(polder::time::now() + ms(lead)).await {
            return;
        }
    }
    panic!("this machine is too slow: setting a few hundred timers took seconds");
}

/// Equal deadlines fire in the order they were set.
#[test]
fn equal_deadlines_fire_in_set_order() {
    in_every_runtime_alone(|_| {
        in_time(async |deadline| {
            let log = Arc::new(Mutex::new(Vec::new()));
            let late = Arc::new(AtomicBool::new(false));
            let tasks: Vec<_> = (0..300)
                .map(|i| {
                    let (log, late) = (log.clone(), late.clone());
                    polder::spawn(async move {
                        // Other timers come and go between them.
                        let mut gone = Timer::at(deadline);
                        let _ = poll_once(&mut gone).await;
                        let mut timer = Timer::at(deadline);
                        if i % 2 == 0 {
                            timer.set_after(FAR);
                            assert!(poll_once(&mut timer).await.is_none());
                            timer.set_at(deadline);
                        }
                        let first = poll_once(&mut timer).await;
                        if polder::time::now() >= deadline {
                            late.store(true, Ordering::Relaxed);
                        }
                        if first.is_none() {
                            timer.await;
                        }
                        log.lock().unwrap().push(i);
                        drop(gone);
                    })
                })
                .collect();
            join_all(tasks).await;
            let log = log.lock().unwrap();
            assert_eq!(log.len(), 300);
            let late = late.load(Ordering::Relaxed);
            assert!(late || log.is_sorted(), "out of order: {log:?}");
            !late
        })
    });
}

/// A timer that is reset to the same deadline fires last among equals.
#[test]
fn reset_to_same_deadline_is_last_of_equals() {
    struct Named(usize, Arc<Mutex<Vec<usize>>>);
    impl Wake for Named {
        fn wake(self: Arc<Self>) {
            self.1.lock().unwrap().push(self.0);
        }
    }
    in_every_runtime(|_| {
        in_time(async |deadline| {
            let log = Arc::new(Mutex::new(Vec::new()));
            let mut timers: Vec<_> = (0..100).map(|_| Timer::at(deadline)).collect();
            for (i, timer) in timers.iter_mut().enumerate() {
                let waker = Waker::from(Arc::new(Named(i, log.clone())));
                let _ = Pin::new(timer).poll(&mut Context::from_waker(&waker));
            }
            // Later and back, earlier and back, and directly to the same deadline.
            timers[0].set_at(deadline + FAR);
            timers[0].set_at(deadline);
            timers[50].set_at(deadline - ms(5));
            timers[50].set_at(deadline);
            timers[20].set_at(deadline);
            if polder::time::now() >= deadline - ms(5) {
                return false;
            }
            sleep_until(deadline + ms(1)).await;
            let mut expected: Vec<_> = (0..100).filter(|i| ![0, 50, 20].contains(i)).collect();
            expected.extend([0, 50, 20]);
            assert_eq!(*log.lock().unwrap(), expected);
            true
        })
    });
}

#[test]
fn deadlines_too_far_away_never_panic() {
    with_every_runtime(|runtime, _| {
        let far = [
            Duration::MAX,
            Duration::MAX - Duration::from_nanos(1),
            Duration::from_secs(u64::MAX),
            Duration::from_secs(i64::MAX as u64),
            Duration::from_secs(i64::MAX as u64 / 2),
            Duration::from_millis(i64::MAX as u64),
            Duration::from_nanos(u64::MAX),
            Duration::from_secs(1 << 33),
            Duration::from_millis(1 << 32),
            Duration::from_millis(1 << 31),
            Duration::from_millis((1 << 31) - 1),
        ];
        for duration in far {
            runtime.block_on(async {
                let mut timers = vec![Timer::after(duration), Timer::interval(duration)];
                for _ in 0..8 {
                    timers.push(Timer::after(FAR));
                }
                let at = Instant::now().checked_add(duration);
                timers.extend(at.map(Timer::at));
                timers.extend(at.map(|at| Timer::interval_at(at, duration)));
                // Some are set while a waiter is registered, some without a waiter.
                for timer in &mut timers[2..6] {
                    assert!(poll_now(timer).is_pending());
                }
                for timer in [2, 6] {
                    timers[timer].set_after(duration);
                    timers[timer + 1].set_interval(duration);
                    if let Some(at) = at {
                        timers[timer + 2].set_at(at);
                        timers[timer + 3].set_interval_at(at, duration);
                    }
                }
                for timer in &mut timers {
                    assert!(poll_now(timer).is_pending(), "{duration:?}");
                }
                // The first tick is now; a second never comes.
                let mut once = Timer::interval_at(Instant::now(), duration);
                assert!(poll_now(&mut once).is_ready());
                assert!(poll_now(&mut once).is_pending());

                let mut long = sleep(duration);
                assert_eq!(long.deadline().is_some(), at.is_some());
                assert!(poll_now(&mut long).is_pending());
                assert_eq!(timeout(duration, async { 1 }).await, Ok(1));
                let mut never = timeout(duration, std::future::pending::<()>());
                assert!(poll_now(&mut never).is_pending());
                let mut until = at.map(sleep_until);
                assert!(until.as_mut().is_none_or(|s| poll_now(s).is_pending()));
                let mut until = at.map(|at| timeout_at(at, std::future::pending::<()>()));
                assert!(until.as_mut().is_none_or(|s| poll_now(s).is_pending()));

                for missed in [
                    MissedTickBehavior::Burst,
                    MissedTickBehavior::Delay,
                    MissedTickBehavior::Skip,
                ] {
                    let mut ticks = interval(duration).missed_ticks(missed);
                    ticks.tick().await;
                    assert!(poll_now(&mut pin!(ticks.tick())).is_pending());
                    ticks.reset();
                    assert!(poll_now(&mut pin!(ticks.tick())).is_pending());
                    let start = past();
                    let mut ticks = interval_at(start, duration).missed_ticks(missed);
                    assert_eq!(ticks.tick().await, start);
                    assert!(poll_now(&mut pin!(ticks.tick())).is_pending());
                }
                // The worker goes to sleep while all of them are pending.
                polder::unblock(|| thread::sleep(ms(1))).await;
            });
            // And with this duration as its limit.
            runtime.spawn_local(async {}).detach();
            assert!(runtime.run_once(duration));
        }
    });
}

/// The last instant of all is a deadline like others.
#[test]
fn last_instant_is_ordinary_deadline() {
    in_every_runtime(|_| async {
        let last = last_instant();
        let tiny = Duration::from_nanos(1);
        let mut timers = [
            Timer::at(last),
            Timer::interval_at(last, tiny),
            Timer::interval_at(last, Duration::MAX),
        ];
        for timer in &mut timers {
            assert!(timer.will_fire());
            assert!(poll_now(timer).is_pending());
        }
        let mut asleep = sleep_until(last);
        assert!(poll_now(&mut asleep).is_pending());
        for missed in [
            MissedTickBehavior::Burst,
            MissedTickBehavior::Delay,
            MissedTickBehavior::Skip,
        ] {
            let mut ticks = interval_at(last, tiny).missed_ticks(missed);
            assert!(poll_now(&mut pin!(ticks.tick())).is_pending());
        }
        // The worker sleeps only for these.
        polder::unblock(|| thread::sleep(ms(1))).await;
        asleep.reset(polder::time::now() + ms(1));
        asleep.await;
    });
}

#[test]
fn a_sleep_that_is_reset_ends_at_its_new_deadline() {
    in_every_runtime(|_| async {
        let deadline = polder::time::now() + ms(2);
        let mut asleep = sleep(FAR);
        assert!(asleep.deadline().is_some_and(|d| d > deadline));
        assert!(poll_once(&mut asleep).await.is_none());
        asleep.reset(deadline);
        assert_eq!(asleep.deadline(), Some(deadline));
        (&mut asleep).await;
        assert!(polder::time::now() >= deadline);

        // After its end a sleep can be reused; pushed back, it does not end at the old deadline.
        let near = polder::time::now() + ms(1);
        asleep.reset(near);
        let first = poll_once(&mut asleep).await;
        let later = near + ms(4);
        asleep.reset(later);
        if first.is_none() {
            (&mut asleep).await;
            assert!(polder::time::now() >= later, "it ended at the old deadline");
        }

        // The same for a sleep without a deadline.
        let mut asleep: Sleep = sleep(Duration::MAX);
        assert_eq!(asleep.deadline(), None);
        let count = Count::new();
        assert!(poll_future(&mut asleep, &count).is_pending());
        asleep.reset(polder::time::now() + ms(1));
        while count.woken() == 0 {
            a_turn().await;
        }
        asleep.await;
    });
}
