//! Rule 41: intervals.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use polder::Timer;
use polder::stream::StreamExt;
use polder::time::{MissedTickBehavior, interval, interval_at, now};
use polder::time::{sleep, timeout};

use super::{Count, FAR, be_away, ms, poll_future, poll_now};
use crate::support::in_every_runtime;

/// Under burst every tick comes and stays on the grid.
#[test]
fn burst_keeps_every_tick_on_grid() {
    in_every_runtime(|_| async {
        let period = ms(2);
        let start = polder::time::now();
        let mut ticks = interval_at(start, period);
        assert_eq!(ticks.period(), period);
        for i in 0..20 {
            if i == 5 {
                be_away(period * 5).await; // The user comes late.
            }
            let tick = ticks.tick().await;
            assert!(polder::time::now() >= tick, "tick {i} is early");
            assert_eq!(tick, start + period * i, "tick {i}");
        }
        // Missed ticks come immediately, all of them.
        be_away(period * 3).await;
        for i in 20..23 {
            let tick = poll_now(&mut pin!(ticks.tick()));
            assert_eq!(tick, Poll::Ready(start + period * i), "tick {i}");
        }
    });
}

/// Under skip missed ticks are left out and the others stay on the grid.
#[test]
fn skip_drops_missed_keeps_grid() {
    in_every_runtime(|_| async {
        let period = ms(2);
        let start = polder::time::now();
        let mut ticks = interval_at(start, period).missed_ticks(MissedTickBehavior::Skip);
        let mut taken = None;
        for i in 0..15 {
            if i % 4 == 3 {
                be_away(period * 3 + period / 3).await;
            }
            let before = polder::time::now();
            let tick = ticks.tick().await;
            assert!(polder::time::now() >= tick, "tick {i} is early");
            let off = (tick - start).as_nanos() % period.as_nanos();
            assert_eq!(off, 0, "tick {i} is off the grid");
            if let Some(taken) = taken {
                assert!(tick >= taken, "tick {i} had been missed when it was set");
            }
            taken = Some(before);
        }
    });
}

/// Under delay the tick after a missed one comes a period after it was taken.
#[test]
fn delay_next_tick_one_period_after_taken() {
    in_every_runtime(|_| async {
        let period = ms(3);
        let start = polder::time::now();
        let mut ticks = interval_at(start, period).missed_ticks(MissedTickBehavior::Delay);
        assert_eq!(ticks.tick().await, start);
        for _ in 0..4 {
            let next = ticks.tick().await;
            be_away(period * 3).await;
            let late = polder::time::now();
            let tick = ticks.tick().await;
            assert!(tick <= late, "it was due while the user was away");
            assert!(tick > next);
            let after = ticks.tick().await;
            assert!(after >= late + period, "the one after it came too soon");
            assert!(polder::time::now() >= after, "it is early");
        }
    });
}

#[test]
fn the_intervals_of_a_timer_stay_on_the_grid() {
    in_every_runtime(|_| async {
        let period = ms(1);
        let start = polder::time::now();
        let mut timer = Timer::interval_at(start, period);
        for i in 0..20 {
            if i == 10 {
                be_away(period * 5).await;
            }
            assert_eq!(timer.next().await, Some(start + period * i));
            assert!(
                polder::time::now() >= start + period * i,
                "tick {i} is early"
            );
        }
        timer.set_interval(ms(2));
        let first = timer.next().await.expect("it never ends");
        let second = timer.next().await.expect("it never ends");
        assert_eq!(second - first, ms(2));
    });
}

#[test]
fn a_period_of_zero_does_not_hold_the_loop() {
    in_every_runtime(|_| async {
        let busy = [
            MissedTickBehavior::Burst,
            MissedTickBehavior::Delay,
            MissedTickBehavior::Skip,
        ]
        .map(|missed| {
            polder::spawn(async move {
                let mut ticks = interval(Duration::ZERO).missed_ticks(missed);
                loop {
                    ticks.tick().await;
                }
            })
        });
        let timer = polder::spawn(async {
            let mut timer = Timer::interval(Duration::ZERO);
            while timer.next().await.is_some() {}
        });
        let zero = polder::spawn(async {
            loop {
                sleep(Duration::ZERO).await;
            }
        });
        let limits = polder::spawn(async {
            loop {
                let pending = std::future::pending::<()>();
                assert!(timeout(Duration::ZERO, pending).await.is_err());
            }
        });
        sleep(ms(5)).await;
        drop((busy, timer, zero, limits));
    });
}

/// An interval that is reset while a task waits for it ticks a period later.
#[test]
fn interval_reset_while_awaited() {
    in_every_runtime(|_| async {
        let mut ticks = interval_at(polder::time::now() + FAR, ms(3));
        let count = Count::new();
        assert!(poll_future(&mut pin!(ticks.tick()), &count).is_pending());
        let before = polder::time::now();
        ticks.reset();
        while count.woken() == 0 {
            sleep(ms(1)).await;
        }
        let tick = ticks.tick().await;
        assert!(tick >= before + ms(3));
        assert!(polder::time::now() >= tick);
        assert_eq!(ticks.next().await, Some(tick + ms(3)));
    });
}

/// An interval that is reset ticks when it is told and then by its period.
#[test]
fn interval_reset_ticks_then_by_period() {
    in_every_runtime(|_| async {
        let period = ms(2);
        let mut ticks = interval(FAR);
        ticks.tick().await;
        // Also while a tick is awaited.
        let count = Count::new();
        assert!(poll_future(&mut pin!(ticks.tick()), &count).is_pending());
        let asked = now();
        ticks.reset_immediately();
        let tick = ticks.tick().await;
        assert!(asked <= tick && tick <= now());
        assert!(poll_now(&mut pin!(ticks.tick())).is_pending());
        let asked = now();
        ticks.reset_after(period);
        assert!(ticks.tick().await >= asked + period);

        let mut ticks = interval_at(now() + FAR, period);
        let start = now() + period;
        ticks.reset_at(start);
        assert_eq!(ticks.tick().await, start);
        assert_eq!(
            ticks.tick().await,
            start + period,
            "the period is the old one"
        );
        // A past instant is an immediate tick.
        ticks.reset_at(start);
        assert_eq!(poll_now(&mut pin!(ticks.tick())), Poll::Ready(start));
        // An instant that cannot be represented never comes, until the interval is reset.
        ticks.reset_after(Duration::MAX);
        let count = Count::new();
        assert!(poll_future(&mut pin!(ticks.tick()), &count).is_pending());
        ticks.reset_after(period);
        ticks.tick().await;
        assert_eq!(count.woken(), 1, "who waits is told of the new deadline");
        assert_eq!(ticks.missed_tick_behavior(), MissedTickBehavior::Burst);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        assert_eq!(ticks.missed_tick_behavior(), MissedTickBehavior::Delay);
    });
}

/// A sleep has elapsed once its deadline has passed.
#[test]
fn sleep_elapsed_after_deadline() {
    in_every_runtime(|_| async {
        let mut idle = sleep(FAR);
        assert!(!idle.is_elapsed());
        assert!(poll_now(&mut pin!(&mut idle)).is_pending());
        assert!(!idle.is_elapsed());
        let deadline = now() + ms(2);
        idle.reset(deadline);
        (&mut idle).await;
        assert!(idle.is_elapsed());
        idle.reset(now() + FAR);
        assert!(!idle.is_elapsed());
        assert!(!sleep(Duration::MAX).is_elapsed(), "it never ends");
    });
}
