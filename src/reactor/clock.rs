//! The clock of the runtime. Everything above the pollers reads the time here, so that another
//! clock can answer; the poller is handed [`now`].

use std::time::Instant;

/// The current time.
#[inline]
pub(crate) fn now() -> Instant {
    Instant::now()
}
