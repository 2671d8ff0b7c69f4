//! Time: timers, sleeping, timeouts, intervals.
//!
//! A timer never fires early. It is registered with the worker that polls it, and moves if another
//! one does: a timer can be made, polled and dropped on any thread, inside a runtime or not. A
//! deadline too far away to be represented never comes.
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

mod interval;
mod timeout;
mod timer;

pub use interval::{Interval, MissedTickBehavior, interval, interval_at};
pub use timeout::{Elapsed, Timeout, timeout, timeout_at};
pub use timer::{Sleep, Timer, sleep, sleep_until};
