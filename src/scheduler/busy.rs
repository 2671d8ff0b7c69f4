//! Whether to poll for a while before sleeping: see `Builder::busy_poll`.
//!
//! Sleeping and being woken takes tens of microseconds on a virtual machine, more than a small
//! request. A worker that expects an event soon does better to poll repeatedly with a zero timeout.
//! It expects one while most of its recent idle times were within the limit: a short idle time
//! raises a score, a long one lowers it by more, and the worker polls only while the score is above
//! a threshold. Idle times are measured whether or not it polls, so it starts and stops by itself.
//!
//! Accessed only by the worker's thread. If switched off (a limit of zero), it costs one comparison
//! per sleep.

use std::cell::Cell;
use std::num::NonZero;
use std::thread;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct BusyPoll {
    config: BusyPollConfig,
    score: Cell<u8>,
}

/// The builder's configuration; by default, busy polling is off.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct BusyPollConfig {
    limit: Duration,
    /// The number of workers that may be awake while one of them polls.
    cores: usize,
}

impl BusyPollConfig {
    /// Counts the cores, which reads several files. Called by the builder's setter only, so that
    /// programs that do not busy-poll do not link that code.
    pub(crate) fn new(limit: Duration) -> BusyPollConfig {
        BusyPollConfig {
            limit,
            cores: thread::available_parallelism().map_or(1, NonZero::get),
        }
    }
}

/// The minimum score for polling: two short idle times in a row.
const POLL_THRESHOLD: u8 = 2;

/// The maximum score, low enough that two long idle times end the polling.
const MAX_SCORE: u8 = 7;

/// The cost of a long idle time. If fewer than three of four are short, polling would cost more
/// time than it gains.
const PENALTY: u8 = 3;

impl BusyPoll {
    pub(crate) fn new(config: BusyPollConfig) -> BusyPoll {
        BusyPoll {
            config,
            score: Cell::new(0),
        }
    }

    #[inline]
    pub(super) fn is_enabled(&self) -> bool {
        !self.config.limit.is_zero()
    }

    /// How long to poll.
    pub(super) fn limit(&self) -> Duration {
        self.config.limit
    }

    /// The number of workers that may be awake while this one polls.
    pub(super) fn cores(&self) -> usize {
        self.config.cores
    }

    /// Whether polling is likely to pay off.
    pub(super) fn should_poll(&self) -> bool {
        self.score.get() >= POLL_THRESHOLD
    }

    /// Records the length of an idle time.
    pub(super) fn record(&self, idle: Duration) {
        let score = self.score.get();
        self.score.set(if idle <= self.config.limit {
            (score + 1).min(MAX_SCORE)
        } else {
            score.saturating_sub(PENALTY)
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
