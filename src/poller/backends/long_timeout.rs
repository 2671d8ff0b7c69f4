//! Ends a long wait where the call's own timeout is not reliable.
//!
//! If the process was stopped (SIGSTOP, a debugger) and continues, Linux's `ppoll` and `pselect6`
//! restart with the timeout that was left when it was stopped (`poll_select_finish` in
//! fs/select.c): they are late by the pause. A timerfd keeps running meanwhile. So a wait of more
//! than [`SHORT`] is two calls: one of that length with a timeout of its own, and, if nothing came,
//! one without, and with a timerfd among the descriptors. A busy loop makes only the first call; so
//! the timerfd costs only a thread that has nothing to do.

use std::io;
use std::os::fd::RawFd;
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::sys::{set_timerfd, timerfd};

/// Whether a timer is needed. Only these systems have it.
const HAS_TIMER: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// After a stop a wait may be late by this much. Shorter waits are not worth three more system
/// calls.
pub(super) const SHORT: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct LongTimeout {
    /// Whether the first call of a wait has ended, and nothing had come.
    is_idle: bool,
    #[cfg(any(target_os = "linux", target_os = "android"))]
    timer: Option<OwnedFd>,
}

/// The part of a wait that the next call is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The call has a timeout for all the time that is left, or no timeout is wanted.
    Whole,
    /// The call ends after [`SHORT`].
    First,
    /// The call has no timeout: this descriptor becomes readable at the end.
    Timer(RawFd),
}

impl LongTimeout {
    pub(super) fn part(&mut self, timeout: Option<Duration>) -> Part {
        match timeout {
            Some(timeout) if HAS_TIMER && timeout > SHORT => {
                if self.is_idle {
                    // If the timer is refused, the call's own timeout has to suffice.
                    (self.set_timer(timeout)).map_or(Part::Whole, Part::Timer)
                } else {
                    Part::First
                }
            }
            _ => Part::Whole,
        }
    }

    /// Records the end of a call; `Ok(false)`: nothing had come.
    pub(super) fn end(&mut self, part: Part, result: &io::Result<bool>) {
        if let Part::Timer(_) = part {
            self.set_timer(Duration::ZERO);
        }
        if let Ok(any) = result {
            self.is_idle = part == Part::First && !any;
        }
    }

    /// Makes the timer readable after `timeout`, or never if that is zero; makes the timer first.
    /// Returns `None` if none can be made.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn set_timer(&mut self, timeout: Duration) -> Option<RawFd> {
        if self.timer.is_none() {
            self.timer = timerfd().ok();
        }
        let timer = self.timer.as_ref()?;
        set_timerfd(timer, timeout).ok()?;
        Some(timer.as_raw_fd())
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn set_timer(&mut self, _: Duration) -> Option<RawFd> {
        None
    }
}
