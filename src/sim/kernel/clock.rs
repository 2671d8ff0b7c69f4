//! A host's clock: the world's time, ahead of it, and faster or slower.
//!
//! It is monotonic, as `Instant` is: it jumps forward only, and a drift changes its speed and never
//! its direction. Timers are due by it. Integers: a drift is in parts per million.

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
