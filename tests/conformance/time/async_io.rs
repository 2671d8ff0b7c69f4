//! The interface of async-io's timer: both timers run the same scenarios.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use polder::Timer;
use polder::stream::{Stream, StreamExt};

use super::{Count, FAR, ms, poll_future, wait_for};
use crate::support::{LIMIT, a_turn, eventually, in_every_runtime, within};

/// The interface that both timers have.
trait AnyTimer: Future<Output = Instant> + Stream<Item = Instant> + Unpin {
    /// Whether a one-shot timer that has fired is ready when it is polled again. (async-io's is
    /// not; the scenarios treat both as the same.)
    const STAYS_DONE: bool;
    fn never() -> Self;
    fn after(duration: Duration) -> Self;
    fn at(instant: Instant) -> Self;
    fn interval(period: Duration) -> Self;
    fn interval_at(start: Instant, period: Duration) -> Self;
    fn will_fire(&self) -> bool;
    fn set_after(&mut self, duration: Duration);
    fn set_at(&mut self, instant: Instant);
    fn set_interval(&mut self, period: Duration);
    fn set_interval_at(&mut self, start: Instant, period: Duration);
    fn clear(&mut self);
}

macro_rules! any_timer {
    ($timer:ty, $stays_done:literal) => {
        impl AnyTimer for $timer {
            const STAYS_DONE: bool = $stays_done;
            fn never() -> Self {
                <$timer>::never()
            }
            fn after(duration: Duration) -> Self {
                <$timer>::after(duration)
            }
            fn at(instant: Instant) -> Self {
                <$timer>::at(instant)
            }
            fn interval(period: Duration) -> Self {
                <$timer>::interval(period)
            }
            fn interval_at(start: Instant, period: Duration) -> Self {
                <$timer>::interval_at(start, period)
            }
            fn will_fire(&self) -> bool {
                self.will_fire()
            }
            fn set_after(&mut self, duration: Duration) {
                self.set_after(duration)
            }
            fn set_at(&mut self, instant: Instant) {
                self.set_at(instant)
            }
            fn set_interval(&mut self, period: Duration) {
                self.set_interval(period)
            }
            fn set_interval_at(&mut self, start: Instant, period: Duration) {
                self.set_interval_at(start, period)
            }
            fn clear(&mut self) {
                self.clear()
            }
        }
    };
}

any_timer!(polder::Timer, true);
any_timer!(async_io::Timer, false);

/// One operation on a timer. Instants are milliseconds from the start of the scenario.
#[derive(Clone, Copy, Debug)]
enum Do {
    Never,
    After(Duration),
    At(i64),
    Interval(Duration),
    IntervalAt(i64, Duration),
    SetAfter(Duration),
    SetAt(i64),
    SetInterval(Duration),
    SetIntervalAt(i64, Duration),
    Clear,
    /// Polls once, as a future.
    Poll,
    /// Polls once, as a stream.
    PollNext,
    /// Waits for the waker that polled last to be woken, without polling.
    Woken,
    /// Awaits it as a future.
    Await,
    /// Awaits its next item as a stream.
    Next,
    /// Awaits it in another future, which is then dropped.
    GiveUp,
}

#[derive(PartialEq, Debug)]
enum Saw {
    Pending,
    /// The deadline. It is exact: the instant that was set, not the time of a clock.
    Due(i64),
    /// A deadline that the timer has computed from its own clock.
    SomeTime,
    Woken,
    WillFire(bool),
}

fn run<T: AnyTimer>(scenario: &[Do]) -> Vec<Saw> {
    let start = Instant::now();
    let at = |millis: i64| match u64::try_from(millis) {
        Ok(millis) => start + ms(millis),
        Err(_) => start.checked_sub(ms(millis.unsigned_abs())).unwrap(),
    };
    let mut by_clock = false;
    let due = |instant: Instant, by_clock: bool| {
        if by_clock {
            Saw::SomeTime
        } else if instant >= start {
            Saw::Due((instant - start).as_millis() as i64)
        } else {
            Saw::Due(-((start - instant).as_millis() as i64))
        }
    };
    let mut timer = T::never();
    let mut count = Count::new();
    let mut saw = Vec::new();
    // Whether the timer was set to fire once; and then its output.
    let (mut once, mut done) = (false, None);
    for step in scenario {
        match *step {
            Do::Poll | Do::PollNext | Do::Await | Do::Next | Do::Woken | Do::GiveUp => {}
            _ => {
                done = None;
                once = matches!(
                    step,
                    Do::After(_) | Do::At(_) | Do::SetAfter(_) | Do::SetAt(_)
                );
            }
        }
        match *step {
            Do::Never => timer = T::never(),
            Do::After(duration) => timer = T::after(duration),
            Do::At(instant) => timer = T::at(at(instant)),
            Do::Interval(period) => timer = T::interval(period),
            Do::IntervalAt(start, period) => timer = T::interval_at(at(start), period),
            Do::SetAfter(duration) => timer.set_after(duration),
            Do::SetAt(instant) => timer.set_at(at(instant)),
            Do::SetInterval(period) => timer.set_interval(period),
            Do::SetIntervalAt(start, period) => timer.set_interval_at(at(start), period),
            Do::Clear => timer.clear(),
            Do::GiveUp => assert!(poll_future(&mut timer, &Count::new()).is_pending()),
            Do::Poll | Do::PollNext | Do::Woken | Do::Await | Do::Next => {}
        }
        match *step {
            Do::After(_) | Do::Interval(_) | Do::SetAfter(_) | Do::SetInterval(_) => {
                by_clock = true;
            }
            Do::At(_) | Do::IntervalAt(..) | Do::SetAt(_) | Do::SetIntervalAt(..) => {
                by_clock = false;
            }
            _ => {}
        }
        let now = match *step {
            Do::Poll | Do::PollNext => {
                count = Count::new();
                let waker = Waker::from(count.clone());
                let mut cx = Context::from_waker(&waker);
                let result = match *step {
                    Do::Poll => Pin::new(&mut timer).poll(&mut cx).map(Some),
                    _ => Pin::new(&mut timer).poll_next(&mut cx),
                };
                Some(match (done, T::STAYS_DONE) {
                    (Some(_), true) => {
                        let given = done.filter(|_| matches!(step, Do::Poll));
                        assert_eq!(result, Poll::Ready(given), "{step:?} of {scenario:?}");
                        Poll::Pending
                    }
                    _ => result.map(|due| due.expect("it never ends")),
                })
            }
            Do::Await => Some(Poll::Ready(wait_for(&mut timer))),
            Do::Next => Some(Poll::Ready(wait_for(timer.next()).expect("it never ends"))),
            _ => None,
        };
        match now {
            Some(Poll::Pending) => saw.push(Saw::Pending),
            Some(Poll::Ready(instant)) => {
                assert!(
                    Instant::now() >= instant,
                    "early in {step:?} of {scenario:?}"
                );
                saw.push(due(instant, by_clock));
                done = once.then_some(instant);
            }
            None => {}
        }
        if let Do::Woken = step {
            eventually(&format!("{scenario:?}: its waker is called"), || {
                count.woken() > 0
            });
            saw.push(Saw::Woken);
        }
        saw.push(Saw::WillFire(timer.will_fire()));
    }
    drop(timer);
    saw
}

/// Each scenario runs with our timer and with async-io's, on a plain thread, where both are driven
/// by another thread. No timer is polled while its deadline is near.
#[test]
fn a_timer_does_what_that_of_async_io_does() {
    within(LIMIT, "on a plain thread", compare_with_async_io);
}

fn compare_with_async_io() {
    use Do::*;
    let (max, zero) = (Duration::MAX, Duration::ZERO);
    let s = Duration::from_secs;
    let scenarios: &[(&str, &[Do])] = &[
        ("never", &[Never, Poll, PollNext, Clear, Poll]),
        ("after", &[After(ms(2)), Await, Poll, Poll]),
        ("after, as a stream", &[After(ms(2)), Next, PollNext]),
        ("zero", &[After(zero), Poll, Poll]),
        ("too far", &[After(max), Poll, SetAfter(max), Poll]),
        ("past", &[At(-5_000), Poll, Poll]),
        ("at", &[At(3), Await, Poll]),
        ("far", &[After(FAR), Poll, Poll, PollNext]),
        ("interval", &[Interval(ms(1)), Await, Next, Await]),
        ("interval too long", &[Interval(max), Poll, PollNext]),
        (
            "interval at",
            &[IntervalAt(1, ms(2)), Await, Next, Next, Await],
        ),
        (
            "missed ticks",
            &[IntervalAt(-50_000, s(20)), Poll, PollNext, Poll, Poll, Poll],
        ),
        ("a single tick", &[IntervalAt(-5, max), Next, Poll, Poll]),
        ("never, then set", &[Never, SetAfter(ms(2)), Await, Poll]),
        ("polled never, then set", &[Never, Poll, SetAt(2), Await]),
        (
            "far to near",
            &[After(FAR), Poll, SetAt(2), Woken, Await, Poll],
        ),
        (
            "far to near, an interval",
            &[
                After(FAR),
                Poll,
                SetIntervalAt(2, ms(3)),
                Woken,
                Await,
                Next,
            ],
        ),
        (
            "far to near by clock",
            &[At(1 << 30), Poll, SetAfter(ms(2)), Woken, Poll],
        ),
        (
            "far to near, an interval by clock",
            &[At(1 << 30), Poll, SetInterval(ms(2)), Woken, Next, Next],
        ),
        (
            "near to far",
            &[At(20_000), Poll, SetAfter(FAR), Poll, Poll],
        ),
        (
            "near to far to near",
            &[At(20_000), Poll, SetAfter(FAR), SetAt(4), Woken, Await],
        ),
        (
            "pushed back again and again",
            &[
                At(20_000),
                Poll,
                SetAt(30_000),
                SetAt(40_000),
                SetAt(25_000),
                SetAt(3),
                Woken,
                Poll,
            ],
        ),
        (
            "after it fired",
            &[At(1), Await, Poll, SetAt(3), Await, Poll],
        ),
        (
            "after it fired, an interval",
            &[At(1), Await, SetIntervalAt(3, ms(1)), Await, Await, Next],
        ),
        (
            "set while it has fired",
            &[After(FAR), Poll, SetAt(1), Woken, SetAfter(FAR), Poll],
        ),
        (
            "set to near while it has fired",
            &[After(FAR), Poll, SetAt(1), Woken, SetAt(4), Await],
        ),
        ("cleared", &[After(FAR), Clear, Poll, SetAt(1), Await]),
        ("cleared while pending", &[After(FAR), Poll, Clear, Poll]),
        (
            "cleared while pending, then set",
            &[After(FAR), Poll, Clear, SetAt(2), Woken, Await, Poll],
        ),
        (
            "cleared after it fired",
            &[After(FAR), Poll, SetAt(1), Woken, Clear, Poll],
        ),
        (
            "an interval is cleared",
            &[IntervalAt(-5, s(50)), Poll, Clear, Poll],
        ),
        (
            "given up far, then near",
            &[After(FAR), GiveUp, SetAt(2), Await],
        ),
        (
            "taken over",
            &[After(FAR), GiveUp, Poll, SetAt(2), Woken, Poll],
        ),
        (
            "pending, then past",
            &[After(FAR), Poll, SetAt(-5_000), Poll, Poll],
        ),
        (
            "pending, then at once",
            &[At(1 << 30), Poll, SetAfter(zero), Poll, Poll],
        ),
        (
            "pending, then with missed ticks",
            &[
                After(FAR),
                Poll,
                SetIntervalAt(-50_000, s(20)),
                Poll,
                Poll,
                Poll,
                Poll,
            ],
        ),
        (
            "an interval of no length",
            &[IntervalAt(-5_000, zero), Poll, PollNext, Poll],
        ),
    ];
    let mut different = Vec::new();
    for (name, scenario) in scenarios {
        let ours = run::<polder::Timer>(scenario);
        let theirs = run::<async_io::Timer>(scenario);
        if ours != theirs {
            different.push(format!("{name}: {scenario:?}\n  {ours:?}\n  {theirs:?}"));
        }
    }
    assert!(
        different.is_empty(),
        "not as async-io's (ours first):\n{}",
        different.join("\n")
    );
}

/// A timer keeps its word where that of async I/O does not.
///
/// Two cases in which async-io's timer contradicts its documentation.
#[test]
fn timer_on_time_where_async_io_is_not() {
    in_every_runtime(|_| async {
        // A waiter that polled the timer before it had a deadline is woken once it is set.
        let count = Count::new();
        let mut timer = Timer::never();
        assert!(poll_future(&mut timer, &count).is_pending());
        timer.set_after(ms(1));
        while count.woken() == 0 {
            a_turn().await;
        }
        timer.await;

        // A timer set to fire once fires once, even if it was an interval before.
        let mut timer = Timer::interval(FAR);
        let deadline = polder::time::now() + ms(1);
        timer.set_at(deadline);
        assert_eq!((&mut timer).await, deadline);
        assert!(!timer.will_fire());
    });
}
