//! Long waits, where the call's own timeout is not reliable.
//!
//! If the process was stopped (SIGSTOP, a debugger), Linux's `ppoll` and `pselect6` restart with
//! the timeout that was left (`poll_select_finish` in fs/select.c): they are late by the pause. A
//! timerfd is not. So a wait of more than [`SHORT`] is two calls: one of that length with its own
//! timeout, and, if there was no event, one with a timerfd. Only an idle thread makes the second.

use std::io;
use std::os::fd::RawFd;
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::sys::{set_timerfd, timerfd};

const HAS_TIMER: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// The lateness that a stop may cause. Shorter waits are not worth three more system calls.
pub(super) const SHORT: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct LongTimeout {
    is_idle: bool,
    #[cfg(any(target_os = "linux", target_os = "android"))]
    timer: Option<OwnedFd>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// All the time that is left.
    Whole,
    /// The first [`SHORT`].
    First,
    /// The rest: this descriptor becomes readable at the end.
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

    pub(super) fn end(&mut self, part: Part, result: &io::Result<bool>) {
        if let Part::Timer(_) = part {
            self.set_timer(Duration::ZERO);
        }
        if let Ok(any) = result {
            self.is_idle = part == Part::First && !any;
        }
    }

    /// Arms the timer; zero disarms it. Returns `None` if none can be made.
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
