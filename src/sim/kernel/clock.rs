//! A host's clock: the world's time, ahead of it, and faster or slower.
//!
//! It is monotonic, as `Instant` is: it jumps forward only, and a drift changes its speed and never
//! its direction. Timers are due by it. Integers: a drift is in parts per million.
//!
//! What it has shown can be told apart afterwards: [`Past`] has its settings before the present
//! one, so that a time which a program has read there has its place in the world's time.
//!
//! The wall clock, which only the C library's functions show, goes with it, and can be stepped
//! apart from it, back too ([`Wall`]).

use std::time::{Duration, Instant};

use super::Kernel;
use super::trace::What;

/// A million: what a drift is a part of.
const MILLION: i128 = 1_000_000;

/// The strongest drift: twice, and half, the world's speed.
pub(crate) const MOST_DRIFT: i32 = 500_000;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    /// When it was set last, by the world's time and by its own.
    at: u64,
    shows: u64,
    /// How many millionths it is faster than the world.
    drift: i32,
}

impl Clock {
    /// What it shows at a time of the world.
    pub(super) fn show(self, now: u64) -> u64 {
        let passed = now.saturating_sub(self.at);
        if self.drift == 0 {
            return self.shows + passed;
        }
        let own = i128::from(passed) * (MILLION + i128::from(self.drift)) / MILLION;
        self.shows + u64::try_from(own).unwrap_or(u64::MAX / 4)
    }

    /// The first time of the world at which it shows `time`, or more.
    pub(super) fn when(self, time: u64) -> u64 {
        let left = time.saturating_sub(self.shows);
        if self.drift == 0 {
            return self.at.saturating_add(left);
        }
        let speed = MILLION + i128::from(self.drift);
        let passes = (i128::from(left) * MILLION + speed - 1) / speed;
        let passes = u64::try_from(passes).unwrap_or(u64::MAX / 4);
        self.at.saturating_add(passes)
    }

    /// It is set: ahead by so much, and to a drift.
    pub(super) fn set(&mut self, now: u64, ahead: u64, drift: i32) {
        *self = Clock {
            at: now,
            shows: self.show(now).saturating_add(ahead),
            drift,
        };
    }

    pub(super) fn drift(self) -> i32 {
        self.drift
    }

    /// The last time of the world at which it shows `time`, or less; when it was set, at least.
    fn last(self, time: u64) -> u64 {
        match time < self.shows {
            true => self.at,
            false => self.when(time.saturating_add(1)).saturating_sub(1),
        }
    }
}

/// What a clock was before, one setting after the other, each with what it showed at its end.
#[derive(Debug, Default)]
pub(super) struct Past(Vec<(Clock, u64)>);

impl Past {
    /// A setting ends.
    pub(super) fn push(&mut self, before: Clock, now: u64) {
        self.0.push((before, before.show(now)));
    }

    /// The setting that was the first to show something of which `is_before` is false; the present
    /// one, if none was.
    fn find(&self, present: Clock, is_before: impl Fn(u64) -> bool) -> Clock {
        let place = self.0.partition_point(|(_, end)| is_before(*end));
        self.0.get(place).map_or(present, |it| it.0)
    }

    /// The first time of the world at which the clock, now so, has shown `time`, or more. What it
    /// has jumped over is the moment of the jump.
    pub(super) fn first(&self, present: Clock, time: u64) -> u64 {
        self.find(present, |end| end < time).when(time)
    }

    /// The last time of the world at which it has shown `time`, or less: one that runs slowly shows
    /// the same nanosecond for longer.
    pub(super) fn last(&self, present: Clock, time: u64) -> u64 {
        self.find(present, |end| end <= time).last(time)
    }
}

/// How far a host's wall clock is ahead of its other one, in nanoseconds; behind, if that is
/// negative.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wall {
    /// By the test.
    own: i64,
    /// By chaos, which sets it right again.
    by_chaos: i64,
}

impl Wall {
    pub(super) fn ahead(self) -> i64 {
        self.own.saturating_add(self.by_chaos)
    }
}

impl Kernel {
    /// When that was, by the world's time, of which the process whose code runs says that it was
    /// `at`, by its host's clock: the first such moment, or the last one. Nobody's code runs by the
    /// world's time.
    pub(super) fn world_time(&self, at: Instant, is_last: bool) -> Instant {
        let Some(host) = self.host_here().filter(|_| self.has_clocks) else {
            return at;
        };
        let host = &self.hosts[host];
        let shown = self.nanos_at(at);
        let nanos = match is_last {
            true => host.past_clocks.last(host.clock, shown),
            false => host.past_clocks.first(host.clock, shown),
        };
        self.base + Duration::from_nanos(nanos)
    }

    /// Steps a host's wall clock by so many nanoseconds, back if that is negative: for the test, or
    /// for chaos.
    pub(crate) fn step_wall(&mut self, host: usize, by: i64, is_chaos: bool) {
        let wall = &mut self.hosts[host].wall;
        let offset = match is_chaos {
            true => &mut wall.by_chaos,
            false => &mut wall.own,
        };
        *offset = offset.saturating_add(by);
        self.has_clocks = true;
        self.note(host, What::WallStepped(by));
        self.show_time();
    }

    /// Sets a host's wall clock right, as far as chaos has stepped it.
    pub(super) fn heal_wall(&mut self, host: usize) {
        let by_chaos = self.hosts[host].wall.by_chaos;
        if by_chaos != 0 {
            self.step_wall(host, by_chaos.saturating_neg(), true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_due_when_the_clock_shows_its_time_and_not_before() {
        for drift in [-500_000, -100, -1, 0, 1, 333, 500_000] {
            let mut clock = Clock::default();
            clock.set(1_000, 77, drift);
            for time in (1_077..3_000_000_000).step_by(7_654_321) {
                let at = clock.when(time);
                assert!(clock.show(at) >= time, "{drift} {time}");
                assert!(at == 1_000 || clock.show(at - 1) < time, "{drift} {time}");
            }
        }
    }

    #[test]
    fn what_a_clock_has_shown_was_between_the_first_and_the_last_moment_of_it() {
        let mut clock = Clock::default();
        let mut past = Past::default();
        let mut shown = Vec::new();
        let settings = [
            (7, -500_000),
            (0, -500_000),
            (100, 500_000),
            (100, -1),
            (101, 333_333),
            (300, 0),
        ];
        let mut settings = settings.into_iter().peekable();
        for now in 0..400 {
            shown.push((now, clock.show(now)));
            while let Some((ahead, drift)) = settings.next_if(|_| now % 50 == 49) {
                past.push(clock, now);
                clock.set(now, ahead, drift);
                shown.push((now, clock.show(now)));
            }
        }
        for time in 0..shown.last().unwrap().1 {
            let (first, last) = (past.first(clock, time), past.last(clock, time));
            let at_least = shown.iter().find(|it| it.1 >= time).unwrap();
            let at_most = shown.iter().rev().find(|it| it.1 <= time).unwrap();
            assert_eq!((first, last), (at_least.0, at_most.0), "{time}");
        }
        // An even clock that was never set shows the world's time.
        let (past, clock) = (Past::default(), Clock::default());
        assert_eq!((past.first(clock, 5), past.last(clock, 5)), (5, 5));
    }

    #[test]
    fn what_a_clock_has_shown_stays_when_it_is_set() {
        let mut clock = Clock::default();
        clock.set(0, 0, 500_000);
        assert_eq!(clock.show(1_000_000), 1_500_000);
        clock.set(1_000_000, 0, -500_000);
        assert_eq!(clock.show(1_000_000), 1_500_000);
        assert_eq!(clock.show(3_000_000), 2_500_000);
        clock.set(3_000_000, 10, 0);
        assert_eq!(clock.show(3_000_001), 2_500_011);
    }
}
