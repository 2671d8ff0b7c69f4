//! Whether to poll for a while before sleeping: what [`Builder::busy_poll`](crate::runtime::Builder::busy_poll)
//! asks for.
//!
//! Sleeping and being woken costs tens of microseconds on a virtual machine, more than a small
//! request takes. A worker that expects something soon does better to look again and again with a
//! zero timeout. It expects that while most of its recent idle times were no longer than the limit:
//! each short one raises a score, each long one lowers it by more, and only with some score does it
//! poll. Idle times are measured whether or not it polls, so that it finds out by itself when to
//! begin and when to stop.
//!
//! Touched by its worker only. Switched off (a limit of zero) it costs one comparison for each sleep.

use std::cell::Cell;
use std::num::NonZero;
use std::thread;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct BusyPoll {
    limits: BusyPollConfig,
    score: Cell<u8>,
}

/// What is asked for; nothing, by default.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct BusyPollConfig {
    time: Duration,
    /// How many workers may be awake while one of them polls.
    cores: usize,
}

impl BusyPollConfig {
    /// To be called by who asks for it, and not where it may have been asked for: to count the cores
    /// takes reading several files, and code that other programs need not carry.
    pub(crate) fn new(time: Duration) -> BusyPollConfig {
        BusyPollConfig {
            time,
            cores: thread::available_parallelism().map_or(1, NonZero::get),
        }
    }
}

/// Polling begins at this score: two short idle times in a row.
const POLL_THRESHOLD: u8 = 2;

/// No score is higher, so that a burst that ends is soon forgotten: after two long idle times.
const MAX_SCORE: u8 = 7;

/// What a long idle time costs. Where less than three of four are short, more time would be polled
/// away than gained.
const PENALTY: u8 = 3;

impl BusyPoll {
    pub(crate) fn new(limits: BusyPollConfig) -> BusyPoll {
        BusyPoll {
            limits,
            score: Cell::new(0),
        }
    }

    #[inline]
    pub(super) fn is_enabled(&self) -> bool {
        !self.limits.time.is_zero()
    }

    /// How long to poll.
    pub(super) fn limit(&self) -> Duration {
        self.limits.time
    }

    /// How many cores there are to poll on.
    pub(super) fn cores(&self) -> usize {
        self.limits.cores
    }

    /// Whether polling pays.
    pub(super) fn should_poll(&self) -> bool {
        self.score.get() >= POLL_THRESHOLD
    }

    /// Something came after so long a time, or nothing did.
    pub(super) fn record(&self, idle: Duration) {
        let score = self.score.get();
        self.score.set(match idle <= self.limits.time {
            true => (score + 1).min(MAX_SCORE),
            false => score.saturating_sub(PENALTY),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(20);
    const LONG: Duration = Duration::from_millis(1);

    #[test]
    fn polling_begins_after_short_idle_times_and_ends_after_long_ones() {
        let busy = BusyPoll::new(BusyPollConfig::new(Duration::from_micros(50)));
        assert!(!busy.should_poll());
        busy.record(SHORT);
        busy.record(SHORT);
        assert!(busy.should_poll());
        for _ in 0..1_000 {
            busy.record(SHORT);
        }
        busy.record(LONG);
        assert!(busy.should_poll(), "one long one is an exception");
        busy.record(LONG);
        assert!(!busy.should_poll(), "two are not");
    }

    #[test]
    fn mixed_idle_times_are_not_polled_away() {
        let busy = BusyPoll::new(BusyPollConfig::new(Duration::from_micros(50)));
        let mut polled = 0;
        for round in 0..1_000 {
            polled += u32::from(busy.should_poll());
            busy.record(if round % 2 == 0 { SHORT } else { LONG });
        }
        assert_eq!(polled, 0);
    }

    #[test]
    fn it_is_off_by_default() {
        assert!(!BusyPoll::new(BusyPollConfig::default()).is_enabled());
    }
}
