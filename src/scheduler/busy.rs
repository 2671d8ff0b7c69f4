//! Busy polling: whether a worker polls for a while before it sleeps. See `Builder::busy_poll`.
//!
//! Sleeping and being woken takes tens of microseconds on a virtual machine, more than a small
//! request. A worker that expects an event soon does better to poll repeatedly with a zero timeout.
//! Short idle times raise a score, long ones lower it by more, and the worker polls only while the
//! score is above a threshold. Idle times are measured whether or not it polls, so it starts and
//! stops by itself. Switched off, it costs one comparison per sleep.

use std::num::NonZero;
use std::thread;
use std::time::{Duration, Instant};

use super::worker::Worker;
use crate::clock::now;
use crate::poller::Timeout;
use crate::sync::atomic::{Ordering, fence};

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

/// Two short idle times in a row.
const POLL_THRESHOLD: u8 = 2;

/// Low enough that two long idle times end the polling.
const MAX_SCORE: u8 = 7;

/// The cost of a long idle time: below three short ones in four, polling costs more time than it
/// gains.
const PENALTY: u8 = 3;

impl BusyPollConfig {
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

#[derive(Clone, Copy)]
pub(super) struct IdlePeriod {
    since: Instant,
    runs: usize,
    foreign_calls: usize,
    /// Whether an inspection of the other workers has interrupted it.
    is_resumed: bool,
}

impl Worker {
    /// Continues an interrupted idle period.
    pub(super) fn begin_idle(&self) -> IdlePeriod {
        let runs = (self.local.stealable.as_ref()).map_or(0, |stealable| stealable.runs.get());
        let interrupted = self.interrupted.take().filter(|idle| idle.runs == runs);
        IdlePeriod {
            since: interrupted.map_or_else(now, |idle| idle.since),
            runs,
            foreign_calls: self.foreign_calls.get(),
            is_resumed: interrupted.is_some(),
        }
    }

    pub(super) fn end_idle(&self, idle: IdlePeriod, timeout: Option<Duration>) {
        let local = &*self.local;
        let end = now();
        let lasted = end - idle.since;
        let has_anything = self.foreign_calls.get() != idle.foreign_calls
            || self.needs_collect.get()
            || local.has_work()
            || local.remote.has_inbox();
        if local.is_pool_worker() && !has_anything && self.is_inspection_due(end) {
            // Woken only to inspect the others: the idle period continues.
            self.interrupted.set(Some(idle));
            return;
        }
        // An elapsed short timeout does not show when the next event would have come.
        if timeout.is_none_or(|timeout| lasted < timeout) || lasted > self.busy_poll.limit {
            let score = self.busy_poll.score_after(self.busy_score.get(), lasted);
            self.busy_score.set(score);
        }
    }

    /// Polls repeatedly, if that is likely to pay off. Returns false if the worker should sleep
    /// now. Meanwhile it counts as awake, since it checks what others send.
    pub(super) fn spin(
        &self,
        idle: IdlePeriod,
        timeout: Option<Duration>,
        stay_awake: &dyn Fn() -> bool,
    ) -> bool {
        if idle.is_resumed || self.busy_score.get() < POLL_THRESHOLD {
            return false;
        }
        let local = &*self.local;
        if local.is_pool_worker() {
            fence(Ordering::SeqCst);
            local.shared.unpark_main_if_no_task_is_left();
        }
        loop {
            self.resume(); // Already awake: only collects what has come.
            if let Some(work) = self.pool_work {
                (work.poll)(self);
            } else if self.reactor.has_sources() {
                self.wait_once(&Timeout::Zero, None);
            }
            // A source may wake a task in place, under its lock: then only the run queue shows it.
            if self.needs_collect.get()
                || self.foreign_calls.get() != idle.foreign_calls
                || local.has_work()
            {
                return true;
            }
            if self.driver.is_due() {
                // A pool's timers are those of all its workers; another one may have the lock.
                self.pool.has_polled.set(true);
                return true;
            }
            if local.remote.has_inbox() || stay_awake() {
                return true;
            }
            if local.is_pool_worker() && local.has_tasks_elsewhere() {
                return true;
            }
            let now = now();
            // The inspection soon ends the sleep that follows.
            let is_due = local.is_pool_worker() && self.is_inspection_due(now);
            if is_due || local.shared.is_crowded(self.busy_poll.cores) {
                return false;
            }
            let lasted = now - idle.since;
            if timeout.is_some_and(|timeout| lasted >= timeout) {
                return true;
            }
            if lasted >= self.busy_poll.limit {
                return false;
            }
            std::hint::spin_loop();
        }
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
