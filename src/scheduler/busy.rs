//! Busy polling: whether a worker polls for a while before it sleeps. See `Builder::busy_poll`.
//!
//! Sleeping and being woken takes tens of microseconds on a virtual machine, more than a small
//! request. A worker that expects an event soon does better to poll repeatedly with a zero timeout.
//! Short idle times raise a score, long ones lower it by more, and the worker polls only while the
//! score is above a threshold. Idle times are measured whether or not it polls, so it starts and
//! stops by itself. Switched off, it costs one comparison per sleep.

use std::cell::Cell;
use std::num::NonZero;
use std::thread;
use std::time::Duration;

/// Two short idle times in a row.
const POLL_THRESHOLD: u8 = 2;

/// Low enough that two long idle times end the polling.
const MAX_SCORE: u8 = 7;

/// The cost of a long idle time: below three short ones in four, polling costs more time than it
/// gains.
const PENALTY: u8 = 3;

#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct BusyPollConfig {
    pub(super) limit: Duration,
    /// The number of workers that may be awake while one of them polls.
    pub(super) cores: usize,
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

    #[inline]
    pub(super) fn is_enabled(&self) -> bool {
        !self.limit.is_zero()
    }

    fn score_after(self, score: u8, idle: Duration) -> u8 {
        if idle <= self.limit {
            (score + 1).min(MAX_SCORE)
        } else {
            score.saturating_sub(PENALTY)
        }
    }
}

/// Accessed only by the worker's thread.
pub(super) struct BusyPoll {
    pub(super) config: BusyPollConfig,
    score: Cell<u8>,
}

impl BusyPoll {
    pub(super) fn new(config: BusyPollConfig) -> BusyPoll {
        BusyPoll {
            config,
            score: Cell::new(0),
        }
    }

    pub(super) fn end_idle(&self, lasted: Duration, timeout: Option<Duration>) {
        // An elapsed short timeout does not show when the next event would have come.
        if timeout.is_none_or(|timeout| lasted < timeout) || lasted > self.config.limit {
            self.score
                .set(self.config.score_after(self.score.get(), lasted));
        }
    }

    pub(super) fn is_worthwhile(&self) -> bool {
        self.score.get() >= POLL_THRESHOLD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(20);
    const LONG: Duration = Duration::from_millis(1);

    fn after(score: u8, idle: Duration) -> u8 {
        BusyPollConfig::new(Duration::from_micros(50)).score_after(score, idle)
    }

    /// Polling begins after short idle times and ends after long ones.
    #[test]
    fn busy_polling_follows_idle_times() {
        let mut score = after(after(0, SHORT), SHORT);
        assert!(score >= POLL_THRESHOLD);
        for _ in 0..1_000 {
            score = after(score, SHORT);
        }
        score = after(score, LONG);
        assert!(score >= POLL_THRESHOLD, "one long one is an exception");
        assert!(after(score, LONG) < POLL_THRESHOLD, "two are not");
    }

    #[test]
    fn mixed_idle_times_are_not_polled_away() {
        let mut score = 0;
        for round in 0..1_000 {
            assert!(score < POLL_THRESHOLD);
            score = after(score, if round % 2 == 0 { SHORT } else { LONG });
        }
    }

    #[test]
    fn it_is_off_by_default() {
        assert!(!BusyPollConfig::default().is_enabled());
    }
}
