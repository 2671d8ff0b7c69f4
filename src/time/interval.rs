//! [`Interval`]: ticks at a fixed period.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_lite::Stream;

use super::timer::Timer;
use crate::clock::now;

/// How an [`Interval`] treats missed ticks.
///
/// With ticks due at 0, 10, 20, … milliseconds, if the first call after 0 is at 35:
///
/// | | ready immediately | then due at |
/// |---|---|---|
/// | `Burst` | 10, 20, 30 | 40, 50, … |
/// | `Delay` | 10 | 45, 55, … |
/// | `Skip` | 10 | 40, 50, … |
///
/// ```
/// use polder::time::{MissedTickBehavior, interval};
/// use std::time::Duration;
///
/// polder::block_on(async {
///     let period = Duration::from_millis(2);
///     let mut ticks = interval(period).missed_ticks(MissedTickBehavior::Skip);
///     let first = ticks.tick().await;
///     polder::time::sleep(3 * period).await;
///     ticks.tick().await; // Immediately, since it was due before.
///     let next = ticks.tick().await - first;
///     assert!(next >= 3 * period); // The ticks between are skipped,
///     assert_eq!(next.as_nanos() % period.as_nanos(), 0); // and the grid stays the same.
/// });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum MissedTickBehavior {
    /// The missed ticks follow immediately. The grid stays the same.
    #[default]
    Burst,
    /// The next tick is due one period after the missed one was taken.
    Delay,
    /// The missed ticks are skipped. The grid stays the same.
    Skip,
}

/// Ticks now, and then every `period`.
///
/// # Examples
///
/// ```
/// use polder::time::interval;
/// use std::time::Duration;
///
/// polder::block_on(async {
///     let mut ticks = interval(Duration::from_millis(2));
///     let first = ticks.tick().await;
///     let second = ticks.tick().await;
///     assert_eq!(second - first, Duration::from_millis(2));
/// });
/// ```
///
/// # Panics
///
/// When awaited, as [`Timer`].
///
/// # Cancel safety
///
/// Cancel safe: no tick is lost.
pub fn interval(period: Duration) -> Interval {
    interval_at(now(), period)
}

/// Ticks at `start`, and then every `period`.
///
/// ```
/// use polder::time::interval_at;
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now() + Duration::from_millis(2);
/// let first = polder::block_on(async { interval_at(start, Duration::from_secs(1)).tick().await });
/// assert_eq!(first, start);
/// ```
///
/// # Panics
///
/// When awaited, as [`Timer`].
///
/// # Cancel safety
///
/// Cancel safe: no tick is lost.
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    Interval {
        timer: Timer::at(start),
        period,
        missed: MissedTickBehavior::default(),
    }
}

/// An endless sequence of ticks, made by [`interval`] and [`interval_at`]. Also a [`Stream`].
///
/// ```
/// use polder::stream::StreamExt;
/// use polder::time::interval;
/// use std::time::Duration;
///
/// polder::block_on(async {
///     let ticks = interval(Duration::from_millis(1));
///     let three: Vec<_> = ticks.take(3).collect().await;
///     assert_eq!(three[2] - three[0], Duration::from_millis(2));
/// });
/// ```
///
/// # Cancel safety
///
/// Cancel safe: if a call is dropped, the next one returns the tick.
#[derive(Debug)]
#[doc(alias = "IntervalStream")]
#[must_use = "it ticks only while it is polled"]
pub struct Interval {
    /// For the next tick, without a deadline if that is too far away to be represented.
    timer: Timer,
    period: Duration,
    missed: MissedTickBehavior,
}

impl Interval {
    /// Sets how missed ticks are treated. The default is [`MissedTickBehavior::Burst`].
    ///
    /// ```
    /// use polder::time::{MissedTickBehavior, interval};
    /// use std::time::Duration;
    ///
    /// polder::block_on(async {
    ///     let period = Duration::from_millis(2);
    ///     let mut ticks = interval(period).missed_ticks(MissedTickBehavior::Delay);
    ///     let first = ticks.tick().await;
    ///     polder::time::sleep(3 * period).await;
    ///     let late = ticks.tick().await;
    ///     assert_eq!(late - first, period); // The tick that was missed.
    ///     assert!(ticks.tick().await - first >= 4 * period); // One period after it was taken.
    /// });
    /// ```
    #[must_use = "the interval is given back"]
    #[doc(alias = "MissedTickBehavior")]
    pub fn missed_ticks(mut self, missed: MissedTickBehavior) -> Interval {
        self.set_missed_tick_behavior(missed);
        self
    }

    /// Sets how missed ticks are treated from now on: see [`MissedTickBehavior`].
    ///
    /// ```
    /// use polder::time::{MissedTickBehavior, interval};
    /// use std::time::Duration;
    ///
    /// let mut ticks = interval(Duration::from_secs(1));
    /// ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    /// assert_eq!(ticks.missed_tick_behavior(), MissedTickBehavior::Skip);
    /// ```
    pub fn set_missed_tick_behavior(&mut self, missed: MissedTickBehavior) {
        self.missed = missed;
    }

    /// Returns how missed ticks are treated.
    ///
    /// ```
    /// use polder::time::{MissedTickBehavior, interval};
    /// use std::time::Duration;
    ///
    /// let ticks = interval(Duration::from_secs(1));
    /// assert_eq!(ticks.missed_tick_behavior(), MissedTickBehavior::Burst);
    /// ```
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.missed
    }

    /// Returns the time between ticks.
    ///
    /// ```
    /// use polder::time::interval;
    /// use std::time::Duration;
    ///
    /// let ticks = interval(Duration::from_secs(1));
    /// assert_eq!(ticks.period(), Duration::from_secs(1));
    /// ```
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Waits for the next tick, and returns the instant at which it was due.
    ///
    /// ```
    /// use polder::time::interval;
    /// use std::time::{Duration, Instant};
    ///
    /// polder::block_on(async {
    ///     let mut ticks = interval(Duration::from_millis(2));
    ///     for _ in 0..3 {
    ///         let due = ticks.tick().await;
    ///         assert!(Instant::now() >= due);
    ///     }
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// As [`Timer`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, the next call returns the tick.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// Restarts the interval: the next tick is due after one period.
    ///
    /// ```
    /// use polder::time::{interval, now};
    /// use std::time::Duration;
    ///
    /// let period = Duration::from_millis(2);
    /// let (start, mut ticks) = (now(), interval(period));
    /// ticks.reset();
    /// assert!(polder::block_on(ticks.tick()) >= start + period);
    /// ```
    pub fn reset(&mut self) {
        self.reset_after(self.period);
    }

    /// Restarts the interval: the next tick is due now.
    ///
    /// ```
    /// use polder::time::{interval, now};
    /// use std::time::Duration;
    ///
    /// polder::block_on(async {
    ///     let mut refresh = interval(Duration::from_secs(3600));
    ///     let first = refresh.tick().await;
    ///     refresh.reset_immediately(); // The user has pressed the button.
    ///     assert!(refresh.tick().await >= first);
    /// });
    /// ```
    pub fn reset_immediately(&mut self) {
        self.reset_at(now());
    }

    /// Restarts the interval: the next tick is due after `duration`.
    ///
    /// ```
    /// use polder::time::{interval, now};
    /// use std::time::Duration;
    ///
    /// let (start, mut ticks) = (now(), interval(Duration::from_secs(3600)));
    /// ticks.reset_after(Duration::from_millis(2));
    /// assert!(polder::block_on(ticks.tick()) >= start + Duration::from_millis(2));
    /// ```
    pub fn reset_after(&mut self, duration: Duration) {
        self.timer.set(now().checked_add(duration), None);
    }

    /// Restarts the interval: the next tick is due at `instant`.
    ///
    /// ```
    /// use polder::time::{interval, now};
    /// use std::time::Duration;
    ///
    /// let mut ticks = interval(Duration::from_secs(3600));
    /// let instant = now() + Duration::from_millis(2);
    /// ticks.reset_at(instant);
    /// assert_eq!(polder::block_on(ticks.tick()), instant);
    /// ```
    pub fn reset_at(&mut self, instant: Instant) {
        self.timer.set(Some(instant), None);
    }

    /// Polls for the next [`tick`](Self::tick).
    ///
    /// ```
    /// use polder::time::interval;
    /// use std::future::poll_fn;
    /// use std::time::Duration;
    ///
    /// let mut ticks = interval(Duration::from_millis(2));
    /// polder::block_on(async {
    ///     let first = poll_fn(|cx| ticks.poll_tick(cx)).await;
    ///     let second = poll_fn(|cx| ticks.poll_tick(cx)).await;
    ///     assert_eq!(second - first, Duration::from_millis(2));
    /// });
    /// ```
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        // Polled even without a next tick, so that a reset wakes the waiter.
        let due = std::task::ready!(Pin::new(&mut self.timer).poll(cx));
        let next = due.checked_add(self.period);
        // The clock is read only if the result depends on it.
        let next = match self.missed {
            MissedTickBehavior::Burst => next,
            MissedTickBehavior::Delay => match next {
                Some(next) if next <= now() => now().checked_add(self.period),
                next => next,
            },
            MissedTickBehavior::Skip => next.and_then(|next| skip(next, self.period)),
        };
        self.timer.set(next, None);
        Poll::Ready(due)
    }
}

fn skip(next: Instant, period: Duration) -> Option<Instant> {
    let late = now().saturating_duration_since(next);
    if late.is_zero() || period.is_zero() {
        return Some(next);
    }
    let into = late.as_nanos() % period.as_nanos();
    if into == 0 {
        return next.checked_add(late);
    }
    let into = Duration::new((into / 1_000_000_000) as u64, (into % 1_000_000_000) as u32);
    next.checked_add(late)?.checked_add(period - into)
}

impl Stream for Interval {
    type Item = Instant;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Instant>> {
        self.poll_tick(cx).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipping_keeps_the_grid() {
        let period = Duration::from_millis(10);
        let start = Instant::now() - Duration::from_millis(57);
        let next = skip(start, period).unwrap();
        assert_eq!((next - start).as_nanos() % period.as_nanos(), 0);
        assert!(next >= start + Duration::from_millis(60));
        assert_eq!(skip(start, Duration::ZERO), Some(start));
        let far = Instant::now() + period;
        assert_eq!(skip(far, Duration::MAX), Some(far));
    }
}
