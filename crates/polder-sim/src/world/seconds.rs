//! A world's time as a number: nanoseconds since it began, and [`Seconds`], which prints them.

use std::fmt;
use std::time::Duration;

/// Formats nanoseconds since the world began.
pub(crate) struct Seconds(pub(crate) u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = Duration::from_nanos(self.0);
        write!(f, "{}.{:06} s", time.as_secs(), time.subsec_micros())
    }
}

/// Returns a duration as a number. One that is too long for a world is a fourth of the maximum.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4)
}
