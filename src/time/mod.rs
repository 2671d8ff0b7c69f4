//! Time: timers, sleeping, timeouts, intervals.
//!
//! A timer never fires early. It is registered with the worker that polls it, and moves if another
//! worker polls it: a timer can be made, polled and dropped on any thread, inside a runtime or not.
//! A deadline too far away to be represented never comes.
//!
//! ```
//! use polder::time::{interval, sleep, timeout};
//! use std::time::Duration;
//!
//! polder::block_on(async {
//!     let mut ticks = interval(Duration::from_millis(2));
//!     sleep(Duration::from_millis(1)).await;
//!     assert!(timeout(Duration::from_secs(5), ticks.tick()).await.is_ok());
//! });
//! ```
//!
//! # Which one to use
//!
//! * A single wait: [`sleep`], [`sleep_until`]. A limit for another future: [`timeout`],
//!   [`timeout_at`].
//! * Something periodic: [`interval`]. It ticks immediately and then every period, with a choice
//!   for missed ticks ([`MissedTickBehavior`]).
//! * Something that changes while it is awaited (a deadline that is pushed back, a period that
//!   starts later), and programs that come from async-io: [`Timer`]. Its
//!   [`interval`](Timer::interval) fires for the first time after one period, and always bursts.

mod interval;
mod timeout;
mod timer;

pub use interval::{Interval, MissedTickBehavior, interval, interval_at};
pub use timeout::{Elapsed, Timeout, timeout, timeout_at};
pub use timer::{Sleep, Timer, sleep, sleep_until};

use std::time::Instant;

/// Returns the current time, by the clock that timers use.
///
/// It is [`Instant::now`]; in a simulated world, that world's time, like that of the timers.
///
/// ```
/// use polder::time::{now, sleep_until};
/// use std::time::Duration;
///
/// let deadline = now() + Duration::from_millis(1);
/// polder::block_on(sleep_until(deadline));
/// assert!(now() >= deadline);
/// ```
#[doc(alias = "Instant")]
#[must_use]
pub fn now() -> Instant {
    #[cfg(feature = "sim")]
    crate::world::count_reading();
    crate::reactor::now()
}
