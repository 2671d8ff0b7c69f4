//! [`Timer`], the basis of all other types of time, and `sleep`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_lite::Stream;

use crate::clock::now;
use crate::reactor::{TimerHandle, TimerState};
use crate::runtime::background;
use crate::scheduler::{self, budget};
use crate::sync::wake_all;

/// A deadline, or a series of deadlines: a future that yields the [`Instant`] at which it was due,
/// and a stream that yields one for each period.
///
/// The interface is `async-io`'s. A one-shot timer stays ready after it fires, until it is set
/// again (async-io's never completes again); as a stream, it ends. With a period it waits for the
/// next deadline.
///
/// # Examples
///
/// ```
/// use polder::Timer;
/// use polder::stream::StreamExt;
/// use std::time::{Duration, Instant};
///
/// polder::block_on(async {
///     let when = Instant::now() + Duration::from_millis(2);
///     let mut timer = Timer::at(when);
///     assert_eq!((&mut timer).await, when);
///     assert_eq!((&mut timer).await, when); // It stays ready,
///     assert_eq!(timer.next().await, None);
///     timer.set_after(Duration::from_millis(2)); // until it is set again.
///     assert!(timer.await > when);
/// });
/// ```
///
/// # Cancel safety
///
/// Cancel safe. A timer that is polled by reference keeps its deadline.
///
/// # Panics
///
/// On a thread that drives no runtime, if the [background runtime](crate::spawn) cannot be started.
#[must_use = "a timer does nothing unless it is polled"]
#[derive(Debug)]
#[doc(alias = "Delay")]
pub struct Timer {
    when: Option<Instant>,
    period: Option<Duration>,
    state: State,
    /// Whether it has fired and has no period: it is ready until it is set.
    done: bool,
    /// Whether the next poll compares the deadline with the clock, and does not rely on the heap.
    checks_clock: bool,
    /// Whether the last poll found the budget used up. The next poll is then free; otherwise a
    /// future that is polled before this one, and always takes the whole budget, would starve it.
    deferred: bool,
}

#[derive(Debug)]
enum State {
    /// In no heap. Holds the waker of a poll without a deadline.
    Idle(Option<Waker>),
    /// With `when` as its deadline, or suspended there without one.
    InHeap(TimerHandle),
}

impl Drop for State {
    /// The handle's own drop lacks the thread's driver, and would queue an operation for a local
    /// timer.
    #[inline]
    fn drop(&mut self) {
        if let State::InHeap(handle) = self {
            handle.remove(scheduler::current_driver().as_deref());
        }
    }
}

impl Timer {
    fn new(when: Option<Instant>, period: Option<Duration>) -> Timer {
        Timer {
            when,
            period,
            state: State::Idle(None),
            done: false,
            checks_clock: true,
            deferred: false,
        }
    }

    /// Returns a timer that does not fire until it is set.
    ///
    /// ```
    /// use polder::{Timer, future};
    /// use std::time::Duration;
    ///
    /// # async fn work() {}
    /// polder::block_on(async {
    ///     let limit = None;
    ///     let timer = limit.map_or_else(Timer::never, Timer::after);
    ///     future::race(work(), async { drop(timer.await) }).await;
    /// });
    /// ```
    pub fn never() -> Timer {
        Timer::new(None, None)
    }

    /// Returns a timer that fires once, after `duration`; never if that is too long to be
    /// represented. If it is first polled after its deadline, it fires one turn later, unless
    /// `duration` is zero.
    ///
    /// ```
    /// use polder::Timer;
    /// use std::time::{Duration, Instant};
    ///
    /// polder::block_on(async {
    ///     let start = Instant::now();
    ///     let when = Timer::after(Duration::from_millis(2)).await;
    ///     assert!(when >= start + Duration::from_millis(2));
    ///     assert!(Instant::now() >= when); // Never early.
    /// });
    /// ```
    #[doc(alias = "sleep")]
    pub fn after(duration: Duration) -> Timer {
        let mut timer = Timer::new(now().checked_add(duration), None);
        timer.checks_clock = duration.is_zero();
        timer
    }

    /// Returns a timer that fires once, at `instant`.
    ///
    /// ```
    /// use polder::Timer;
    /// use std::time::{Duration, Instant};
    ///
    /// let when = Instant::now() + Duration::from_millis(2);
    /// assert_eq!(polder::block_on(Timer::at(when)), when);
    /// ```
    #[doc(alias = "sleep_until")]
    pub fn at(instant: Instant) -> Timer {
        Timer::new(Some(instant), None)
    }

    /// Returns a timer that fires every `period`, first after one period. Missed periods burst;
    /// [`time::interval`](crate::time::interval()) can skip them.
    ///
    /// ```
    /// use polder::Timer;
    /// use polder::stream::StreamExt;
    /// use std::time::Duration;
    ///
    /// polder::block_on(async {
    ///     let mut timer = Timer::interval(Duration::from_millis(2));
    ///     let first = timer.next().await.unwrap();
    ///     let second = timer.next().await.unwrap();
    ///     assert_eq!(second - first, Duration::from_millis(2));
    /// });
    /// ```
    pub fn interval(period: Duration) -> Timer {
        let mut timer = Timer::never();
        timer.set_interval(period);
        timer
    }

    /// Returns a timer that fires every `period`, first at `start`.
    ///
    /// ```
    /// use polder::Timer;
    /// use polder::stream::StreamExt;
    /// use std::time::{Duration, Instant};
    ///
    /// polder::block_on(async {
    ///     let (start, period) = (Instant::now(), Duration::from_millis(2));
    ///     let mut timer = Timer::interval_at(start, period);
    ///     assert_eq!(timer.next().await, Some(start));
    ///     assert_eq!(timer.next().await, Some(start + period));
    /// });
    /// ```
    pub fn interval_at(start: Instant, period: Duration) -> Timer {
        Timer::new(Some(start), Some(period))
    }

    /// Returns whether it will ever fire.
    ///
    /// ```
    /// use polder::Timer;
    /// use std::time::Duration;
    ///
    /// assert!(!Timer::never().will_fire());
    /// assert!(!Timer::after(Duration::MAX).will_fire());
    /// assert!(Timer::after(Duration::from_secs(1)).will_fire());
    /// ```
    pub fn will_fire(&self) -> bool {
        self.when.is_some() && !self.done
    }

    /// Sets it to fire once, after `duration`. A waiting task then waits for the new deadline.
    ///
    /// ```
    /// use polder::Timer;
    /// use std::time::Duration;
    ///
    /// polder::block_on(async {
    ///     let mut idle = Timer::after(Duration::from_secs(3600));
    ///     idle.set_after(Duration::from_millis(2));
    ///     idle.await;
    /// });
    /// ```
    pub fn set_after(&mut self, duration: Duration) {
        self.set(now().checked_add(duration), None);
        self.checks_clock = duration.is_zero();
    }

    /// Sets it to fire once, at `instant`. If it waits for an earlier deadline, and is polled next
    /// after `instant`, it fires one turn later.
    ///
    /// ```
    /// use polder::Timer;
    /// use std::time::Instant;
    ///
    /// let mut timer = Timer::never();
    /// let now = Instant::now();
    /// timer.set_at(now);
    /// assert_eq!(polder::block_on(timer), now);
    /// ```
    pub fn set_at(&mut self, instant: Instant) {
        self.set(Some(instant), None);
    }

    /// Sets it to fire every `period`, first after one period.
    ///
    /// ```
    /// use polder::Timer;
    /// use polder::stream::StreamExt;
    /// use std::time::Duration;
    ///
    /// polder::block_on(async {
    ///     let period = Duration::from_millis(2);
    ///     let mut timer = Timer::never();
    ///     timer.set_interval(period);
    ///     let first = timer.next().await.unwrap();
    ///     assert_eq!(timer.next().await, Some(first + period));
    /// });
    /// ```
    pub fn set_interval(&mut self, period: Duration) {
        self.set(now().checked_add(period), Some(period));
        self.checks_clock = period.is_zero();
    }

    /// Sets it to fire every `period`, first at `start`.
    ///
    /// ```
    /// use polder::Timer;
    /// use polder::stream::StreamExt;
    /// use std::time::{Duration, Instant};
    ///
    /// polder::block_on(async {
    ///     let (start, period) = (Instant::now(), Duration::from_millis(2));
    ///     let mut timer = Timer::after(Duration::from_secs(3600));
    ///     timer.set_interval_at(start, period);
    ///     assert_eq!(timer.next().await, Some(start));
    ///     assert_eq!(timer.next().await, Some(start + period));
    /// });
    /// ```
    pub fn set_interval_at(&mut self, start: Instant, period: Duration) {
        self.set(Some(start), Some(period));
    }

    /// Sets it to never fire.
    ///
    /// ```
    /// use polder::Timer;
    /// use std::time::Duration;
    ///
    /// let mut timer = Timer::after(Duration::from_secs(1));
    /// timer.clear();
    /// assert!(!timer.will_fire());
    /// ```
    pub fn clear(&mut self) {
        self.set(None, None);
    }

    /// Sets another deadline (`None`: never) and period.
    pub(super) fn set(&mut self, when: Option<Instant>, period: Option<Duration>) {
        self.period = period;
        self.done = false;
        self.move_deadline(when);
        if let State::Idle(waker @ Some(_)) = &mut self.state {
            if when.is_some() {
                wake_all(waker.take());
            }
        }
    }

    #[inline]
    fn move_deadline(&mut self, when: Option<Instant>) {
        // A deadline that is pushed back (an idle timeout) is most likely in the future. If not,
        // its heap fires it.
        let is_pushed_back = matches!(self.state, State::InHeap(_))
            && self.when.is_some_and(|before| when >= Some(before));
        self.checks_clock |= !is_pushed_back;
        self.when = when;
        if let State::InHeap(handle) = &self.state {
            handle.reset(scheduler::current_driver().as_deref(), when);
        }
    }

    fn poll_fire(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        if let (true, Some(when)) = (self.done, self.when) {
            return Poll::Ready(when);
        }
        loop {
            let state = match &self.state {
                State::InHeap(handle) => {
                    let driver = scheduler::current_driver();
                    let state = handle.poll(driver.as_deref(), cx.waker());
                    if must_move(handle, state) {
                        self.state = State::Idle(None);
                        self.checks_clock = true;
                        continue;
                    }
                    state
                }
                State::Idle(_) => match self.when {
                    Some(when) if std::mem::take(&mut self.checks_clock) && now() >= when => {
                        TimerState::Fired
                    }
                    Some(when) => {
                        match scheduler::with_reactor(background::shared, |reactor, driver| {
                            TimerHandle::insert(reactor, driver, when, cx.waker())
                        }) {
                            Ok(Some(handle)) => {
                                self.state = State::InHeap(handle);
                                return Poll::Pending;
                            }
                            // The reactor has just closed; the next lookup finds another.
                            Ok(None) => continue,
                            Err(error) => {
                                panic!("polder: the background runtime cannot be started: {error}")
                            }
                        }
                    }
                    None => {
                        match &mut self.state {
                            State::Idle(Some(waker)) => waker.clone_from(cx.waker()),
                            state => *state = State::Idle(Some(cx.waker().clone())),
                        }
                        return Poll::Pending;
                    }
                },
            };
            // A suspended timer has no deadline, and seems pending.
            let Some(when) = self.when else {
                return Poll::Pending;
            };
            // A timer that was reset may be due before its heap has fired it.
            let is_due = state == TimerState::Fired
                || (std::mem::take(&mut self.checks_clock) && now() >= when);
            return if is_due {
                Poll::Ready(self.fired(when))
            } else {
                Poll::Pending
            };
        }
    }

    fn fired(&mut self, when: Instant) -> Instant {
        match self.period {
            None => {
                self.done = true;
                self.state = State::Idle(None);
            }
            // `None` if it is too far away to be represented.
            Some(period) => {
                self.move_deadline(when.checked_add(period));
                // It may have missed some.
                self.checks_clock = true;
            }
        }
        when
    }
}

/// Whether a timer moves with its user to another reactor: because its own has closed, or its user
/// now waits with another one.
#[inline]
fn must_move(handle: &TimerHandle, state: TimerState) -> bool {
    match (state, handle.locked_in()) {
        (TimerState::NotVisible, _) => true,
        // Without a background runtime it stays with the reactor that fires it.
        (TimerState::Pending, Some(own)) => {
            scheduler::with_reactor(background::shared, |reactor, _| !Arc::ptr_eq(reactor, own))
                .unwrap_or(false)
        }
        (TimerState::Pending | TimerState::Fired, _) => false,
    }
}

impl Future for Timer {
    type Output = Instant;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Instant> {
        let this = self.get_mut();
        let free = std::mem::take(&mut this.deferred);
        if !free && budget::consume(cx).is_pending() {
            this.deferred = true;
            return Poll::Pending;
        }
        let result = this.poll_fire(cx);
        if result.is_pending() && !free {
            budget::restore();
        }
        result
    }
}

impl Stream for Timer {
    type Item = Instant;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Instant>> {
        if self.done {
            Poll::Ready(None)
        } else {
            self.poll(cx).map(Some)
        }
    }
}

/// Sleeps for `duration`; forever if that is too long to be represented.
///
/// ```
/// use std::time::Duration;
///
/// polder::block_on(polder::time::sleep(Duration::from_millis(1)));
/// ```
///
/// # Panics
///
/// When awaited, as [`Timer`].
///
/// # Cancel safety
///
/// Cancel safe.
#[doc(alias = "delay_for")]
pub fn sleep(duration: Duration) -> Sleep {
    Sleep(Timer::after(duration))
}

/// Sleeps until `deadline`.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let deadline = Instant::now() + Duration::from_millis(1);
/// polder::block_on(polder::time::sleep_until(deadline));
/// assert!(Instant::now() >= deadline);
/// ```
///
/// # Panics
///
/// When awaited, as [`Timer`].
///
/// # Cancel safety
///
/// Cancel safe.
#[doc(alias = "delay_until")]
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep(Timer::at(deadline))
}

/// The future of [`sleep`] and [`sleep_until`]. Once complete, it stays ready until it is
/// [`reset`](Self::reset).
///
/// ```
/// use polder::time::sleep;
/// use std::time::{Duration, Instant};
///
/// polder::block_on(async {
///     // An idle timeout, pushed back by each activity.
///     let mut idle = sleep(Duration::from_millis(2));
///     let deadline = Instant::now() + Duration::from_millis(4);
///     idle.reset(deadline);
///     idle.await;
///     assert!(Instant::now() >= deadline);
/// });
/// ```
///
/// # Cancel safety
///
/// Cancel safe. Polled by reference, it keeps its deadline.
///
/// # Panics
///
/// As [`Timer`].
#[must_use = "futures do nothing unless they are polled"]
#[derive(Debug)]
pub struct Sleep(Timer);

impl Sleep {
    /// Returns the deadline; `None` if never.
    ///
    /// ```
    /// use polder::time::{sleep, sleep_until};
    /// use std::time::{Duration, Instant};
    ///
    /// let deadline = Instant::now() + Duration::from_secs(1);
    /// assert_eq!(sleep_until(deadline).deadline(), Some(deadline));
    /// assert_eq!(sleep(Duration::MAX).deadline(), None);
    /// ```
    pub fn deadline(&self) -> Option<Instant> {
        self.0.when
    }

    /// Sets another deadline, whether or not the old one has passed.
    ///
    /// ```
    /// use polder::time::sleep;
    /// use std::time::{Duration, Instant};
    ///
    /// polder::block_on(async {
    ///     let mut idle = sleep(Duration::from_secs(3600));
    ///     idle.reset(Instant::now());
    ///     idle.await;
    /// });
    /// ```
    pub fn reset(&mut self, deadline: Instant) {
        self.0.set_at(deadline);
    }

    /// Returns whether its deadline has passed. A [`sleep`] that was not polled before is ready one
    /// turn later, unless its duration is zero.
    ///
    /// ```
    /// use polder::time::{sleep, sleep_until};
    /// use std::time::{Duration, Instant};
    ///
    /// assert!(sleep_until(Instant::now()).is_elapsed());
    /// assert!(!sleep(Duration::from_secs(3600)).is_elapsed());
    /// ```
    #[must_use]
    pub fn is_elapsed(&self) -> bool {
        // Once it has fired, the clock is not read: the kernel's clock may have been ahead.
        self.has_fired() || self.deadline().is_some_and(|deadline| now() >= deadline)
    }

    pub(super) fn has_fired(&self) -> bool {
        self.0.done
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx).map(drop)
    }
}
