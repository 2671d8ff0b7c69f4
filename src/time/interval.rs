//! Ticks at a fixed period, with a choice of what to do about those that were missed.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_lite::Stream;

use super::timer::{Sleep, sleep_until};
use crate::reactor::now;

/// What an [`Interval`] does when its user came late.
///
/// Ticks are due at 0, 10, 20, … milliseconds, and the user who took the first one comes back after 35:
///
/// | | comes at once | and then |
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
///     std::thread::sleep(3 * period);
///     assert_eq!(ticks.tick().await - first, period);
///     let next = ticks.tick().await - first;
///     assert!(next >= 3 * period); // What lay between is left out,
///     assert_eq!(next.as_nanos() % period.as_nanos(), 0); // and the ticks stay where they were.
/// });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MissedTickBehavior {
    /// The missed ticks come at once, one after the other; the ticks stay where they were.
    #[default]
    Burst,
    /// After a whole tick was missed, the next one comes one period after the late one was taken.
    Delay,
    /// The missed ticks are left out; the ticks stay where they were.
    Skip,
}

/// Ticks now, and then every `period`.
///
/// (A [`Timer::interval`](crate::Timer::interval) fires for the first time after a period.) With a period
/// of zero there is a tick whenever one is asked for.
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
/// When awaited, as [`Timer`](crate::Timer).
///
/// # Cancel safety
///
/// As [`Interval`]: giving up loses no tick.
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
/// When awaited, as [`Timer`](crate::Timer).
///
/// # Cancel safety
///
/// As [`Interval`]: giving up loses no tick.
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    Interval {
        next: Some(start),
        period,
        missed: MissedTickBehavior::default(),
        sleep: sleep_until(start),
    }
}

/// What [`interval`] and [`interval_at`] give: ticks, one after the other, without end.
///
/// It is also a [`Stream`] of them.
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
/// A tick that is given up is not lost: the next call gives it.
#[derive(Debug)]
pub struct Interval {
    /// `None`: the next tick is too far away to be represented.
    next: Option<Instant>,
    period: Duration,
    missed: MissedTickBehavior,
    sleep: Sleep,
}

impl Interval {
    /// Says what to do about missed ticks; [`MissedTickBehavior::Burst`] unless this is called.
    ///
    /// ```
    /// use polder::time::{MissedTickBehavior, interval};
    /// use std::time::Duration;
    ///
    /// polder::block_on(async {
    ///     let period = Duration::from_millis(2);
    ///     let mut ticks = interval(period).missed_ticks(MissedTickBehavior::Delay);
    ///     let first = ticks.tick().await;
    ///     std::thread::sleep(3 * period);
    ///     let late = ticks.tick().await;
    ///     assert_eq!(late - first, period); // The tick that was due then,
    ///     assert!(ticks.tick().await - first >= 4 * period); // and the next, a period from the late one.
    /// });
    /// ```
    pub fn missed_ticks(mut self, missed: MissedTickBehavior) -> Interval {
        self.missed = missed;
        self
    }

    /// The time between ticks.
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

    /// Waits for the next tick, and gives the instant for which it was due.
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
    /// As [`Timer`](crate::Timer).
    ///
    /// # Cancel safety
    ///
    /// Giving up loses no tick: the next call gives it.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// Starts anew: the next tick comes one period from now.
    ///
    /// ```
    /// use polder::time::interval_at;
    /// use std::time::{Duration, Instant};
    ///
    /// polder::block_on(async {
    ///     let period = Duration::from_millis(2);
    ///     let mut ticks = interval_at(Instant::now() + Duration::from_secs(3600), period);
    ///     let start = Instant::now();
    ///     ticks.reset();
    ///     assert!(ticks.tick().await >= start + period);
    /// });
    /// ```
    pub fn reset(&mut self) {
        self.set(now().checked_add(self.period));
    }

    /// The polling form of [`tick`](Self::tick).
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
        // Polled in any case, so that whoever waits is woken when it starts anew.
        std::task::ready!(Pin::new(&mut self.sleep).poll(cx));
        let Some(due) = self.next else {
            unreachable!("the sleep never ends while there is no next tick");
        };
        let next = due.checked_add(self.period);
        // The clock is read only where it decides.
        let next = match self.missed {
            MissedTickBehavior::Burst => next,
            MissedTickBehavior::Delay => match next {
                Some(next) if next <= now() => now().checked_add(self.period),
                next => next,
            },
            MissedTickBehavior::Skip => next.and_then(|next| skip(next, self.period)),
        };
        self.set(next);
        Poll::Ready(due)
    }

    fn set(&mut self, next: Option<Instant>) {
        self.next = next;
        self.sleep.set(next);
    }
}

/// The first of `next`, `next + period`, … that is not past.
fn skip(next: Instant, period: Duration) -> Option<Instant> {
    let late = now().saturating_duration_since(next);
    if late.is_zero() || period.is_zero() {
        return Some(next);
    }
    let into = late.as_nanos() % period.as_nanos();
    if into == 0 {
        return next.checked_add(late);
    }
    // Less than `period`, and than `late`, both of which are durations.
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
