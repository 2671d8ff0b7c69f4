//! The one place that asks what time it is.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::sys;

/// What time it is: asked here and nowhere else, so that another clock can answer.
#[inline]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Whether `when` is certainly still to come, as far as a clock tells that is cheaper to read and
/// behind; false where there is none.
#[inline]
pub(crate) fn is_surely_before(when: Instant) -> bool {
    /// One time on both scales; the coarse clock's was read first, so that what is reckoned from it
    /// comes too early rather than too late.
    static SAME: OnceLock<Option<(Duration, Instant)>> = OnceLock::new();
    let same = SAME.get_or_init(|| Some((sys::precise_time()?, now())));
    let (Some((time, instant)), Some(coarse)) = (same, sys::coarse_time()) else {
        return false;
    };
    match when.checked_duration_since(*instant) {
        Some(after) => coarse + sys::COARSENESS < *time + after,
        None => false,
    }
}
