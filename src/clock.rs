//! The clock of the runtime, which an installed [`Kernel`] can replace. Everything above the
//! pollers reads it; the poller is passed [`now`].

use std::time::{Duration, Instant, SystemTime};

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

/// The date, which the [`Kernel`] can replace too.
pub(crate) fn date() -> SystemTime {
    kernel::current().map_or_else(SystemTime::now, Kernel::date)
}

/// Jiffies (Linux's word for coarse units of time) per second. A task's times are kept in 32 bits,
/// which hold two years of jiffies.
const HZ: u64 = 64;

/// Returns the time from the first call of this function to `time`; zero for an earlier time.
pub(crate) fn since_start(time: Instant) -> Duration {
    time.saturating_duration_since(*START.get_or_init(now))
}

/// Returns `time` in jiffies [since the start](since_start).
pub(crate) fn jiffy(time: Instant) -> u32 {
    let since = since_start(time);
    let jiffies = since.as_secs() * HZ + u64::from(since.subsec_nanos()) * HZ / 1_000_000_000;
    u32::try_from(jiffies).unwrap_or(u32::MAX)
}

pub(crate) fn end_of_jiffy(jiffy: u32) -> Instant {
    *START.get_or_init(now) + begin_of_jiffy(u64::from(jiffy) + 1)
}

/// Returns the time from the beginning of the first jiffy to the beginning of this one.
fn begin_of_jiffy(jiffy: u64) -> Duration {
    Duration::from_nanos(jiffy * (1_000_000_000 / HZ))
}

/// Returns the time from the beginning of the jiffy to `time`.
pub(crate) fn since_jiffy(jiffy: u32, time: Instant) -> Duration {
    since_start(time).saturating_sub(begin_of_jiffy(u64::from(jiffy)))
}

static START: Race<Instant> = Race::new();
