//! The clock of the runtime, which a kernel can replace. Everything above the pollers reads it; the
//! poller is passed [`now`].

use std::time::{Duration, Instant};

use crate::kernel::{self, Kernel};
use crate::sys::Race;

#[inline]
pub(crate) fn now() -> Instant {
    match kernel::current() {
        None => Instant::now(),
        Some(kernel) => now_of(kernel),
    }
}

/// Apart, so that reading the system's clock stays small.
#[cold]
#[inline(never)]
fn now_of(kernel: &dyn Kernel) -> Instant {
    kernel.now()
}

/// Ticks per second. A task's times are kept in 32 bits, which hold two years of ticks.
const TICKS: u64 = 64;

/// Returns the time from the first call of this function to `time`; zero for an earlier time.
pub(crate) fn since_start(time: Instant) -> Duration {
    time.saturating_duration_since(*START.get_or_init(now))
}

/// Returns `time` in ticks [since the start](since_start).
pub(crate) fn tick(time: Instant) -> u32 {
    tick_after(since_start(time))
}

#[inline]
fn tick_after(since: Duration) -> u32 {
    let ticks = since.as_secs() * TICKS + u64::from(since.subsec_nanos()) * TICKS / 1_000_000_000;
    u32::try_from(ticks).unwrap_or(u32::MAX)
}

pub(crate) fn end_of_tick(tick: u32) -> Instant {
    *START.get_or_init(now) + begin_of_tick(u64::from(tick) + 1)
}

/// Returns the time from the beginning of the first tick to the beginning of this one.
fn begin_of_tick(tick: u64) -> Duration {
    Duration::from_nanos(tick * (1_000_000_000 / TICKS))
}

/// Returns the time from the beginning of the tick to `time`.
pub(crate) fn since_tick(tick: u32, time: Instant) -> Duration {
    since_start(time).saturating_sub(begin_of_tick(u64::from(tick)))
}

static START: Race<Instant> = Race::new();
