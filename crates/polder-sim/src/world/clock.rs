//! A host's clock: the world's time, with an offset ahead of it, and faster or slower.
//!
//! It is monotonic, as `Instant` is: it jumps only forward, and a drift changes its speed and never
//! its direction. It stands still while its machine is suspended, as Linux's `CLOCK_MONOTONIC`
//! does. Timers are due by it. Integers only: a drift is in parts per million.
//!
//! Times that it has shown can be mapped back: [`Past`] has its earlier settings, so that a time
//! which a program has read there can be converted to the world's time.
//!
//! The wall clock, which only the C library's functions show, advances with it, and can be stepped
//! independently, also back ([`Wall`]).

/// A million: the unit of drift.
const MILLION: i128 = 1_000_000;

/// A time that no world reaches.
const NEVER: u64 = u64::MAX / 4;

/// The limit of the times to which a clock is set ahead: others can be added to it.
const LATEST: u64 = u64::MAX / 2;

/// The limit of drift, in either direction: one and a half times, and half, the world's speed.
pub(crate) const MAX_DRIFT: i32 = 500_000;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    /// The time of its last setting, by the world's time and by its own.
    at: u64,
    shows: u64,
    /// The drift: how much faster than the world it is, in millionths.
    pub(super) drift: i32,
    /// Whether it stands still.
    is_stopped: bool,
}

impl Clock {
    /// Returns what it shows at a time of the world.
    pub(super) fn show(self, now: u64) -> u64 {
        if self.is_stopped {
            return self.shows;
        }
        let passed = now.saturating_sub(self.at);
        if self.drift == 0 {
            return self.shows.saturating_add(passed);
        }
        let own = i128::from(passed) * (MILLION + i128::from(self.drift)) / MILLION;
        (self.shows).saturating_add(u64::try_from(own).unwrap_or(NEVER))
    }

    /// Returns the first time of the world at which it shows at least `time`; `None` if it stands
    /// still before that.
    pub(super) fn when(self, time: u64) -> Option<u64> {
        let left = time.saturating_sub(self.shows);
        if self.is_stopped && left > 0 {
            return None;
        }
        if self.drift == 0 {
            return Some(self.at.saturating_add(left));
        }
        let speed = MILLION + i128::from(self.drift);
        let passes = (i128::from(left) * MILLION + speed - 1) / speed;
        let passes = u64::try_from(passes).unwrap_or(NEVER);
        Some(self.at.saturating_add(passes))
    }

    /// Sets the clock `ahead` by that much, as far as it goes, and its drift.
    pub(super) fn set(&mut self, now: u64, ahead: u64, drift: i32) {
        let shown = self.show(now);
        *self = Clock {
            at: now,
            shows: shown.saturating_add(ahead).min(shown.max(LATEST)),
            drift,
            ..*self
        };
    }

    /// Stops the clock, or lets it go on.
    pub(super) fn stop(&mut self, now: u64, is_stopped: bool) {
        self.set(now, 0, self.drift);
        self.is_stopped = is_stopped;
    }

    /// Returns the last time of the world at which it shows at most `time`; not before it was set.
    fn last(self, time: u64) -> u64 {
        if time < self.shows {
            self.at
        } else {
            let next = self.when(time.saturating_add(1));
            next.map_or(NEVER, |next| next.saturating_sub(1))
        }
    }
}

/// A clock's earlier settings in order, each with what it showed at its end.
#[derive(Debug, Default)]
pub(super) struct Past(Vec<(Clock, u64)>);

impl Past {
    /// Adds a setting that ends now.
    pub(super) fn push(&mut self, before: Clock, now: u64) {
        self.0.push((before, before.show(now)));
    }

    /// Returns the first setting for which `is_before` is false at its end; or `present`.
    fn find(&self, present: Clock, is_before: impl Fn(u64) -> bool) -> Clock {
        let place = self.0.partition_point(|(_, end)| is_before(*end));
        self.0.get(place).map_or(present, |past| past.0)
    }

    /// Returns the first time of the world at which the clock has shown at least `time`. `present`
    /// is its current setting. A time that it has jumped over maps to the moment of the jump.
    pub(super) fn first(&self, present: Clock, time: u64) -> u64 {
        let clock = self.find(present, |end| end < time);
        clock.when(time).unwrap_or(NEVER)
    }

    /// Returns the last time of the world at which the clock has shown at most `time`: a slow clock
    /// shows the same nanosecond for longer.
    pub(super) fn last(&self, present: Clock, time: u64) -> u64 {
        self.find(present, |end| end <= time).last(time)
    }
}

/// The offset of a host's wall clock from its monotonic one, in nanoseconds; negative if it is
/// behind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wall {
    /// The part that the test has set.
    own: i64,
    /// The part that chaos has set, and sets back later.
    pub(super) by_chaos: i64,
}

impl Wall {
    pub(super) fn ahead(self) -> i64 {
        self.own.saturating_add(self.by_chaos)
    }

    /// Steps the clock, back if `by` is negative: for the test, or for chaos.
    pub(super) fn step(&mut self, by: i64, is_chaos: bool) {
        let offset = if is_chaos {
            &mut self.by_chaos
        } else {
            &mut self.own
        };
        *offset = offset.saturating_add(by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A timer is due when the clock shows its time and not before.
    #[test]
    fn timer_due_when_clock_shows_its_time() {
        for drift in [-500_000, -100, -1, 0, 1, 333, 500_000] {
            let mut clock = Clock::default();
            clock.set(1_000, 77, drift);
            for time in (1_077..3_000_000_000).step_by(7_654_321) {
                let at = clock.when(time).unwrap();
                assert!(clock.show(at) >= time, "{drift} {time}");
                assert!(at == 1_000 || clock.show(at - 1) < time, "{drift} {time}");
            }
        }
    }

    /// A reading of the clock maps back to the interval in which it was shown.
    #[test]
    fn clock_reading_inverts_to_its_interval() {
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
            let at_least = shown.iter().find(|shown| shown.1 >= time).unwrap();
            let at_most = shown.iter().rev().find(|shown| shown.1 <= time).unwrap();
            assert_eq!((first, last), (at_least.0, at_most.0), "{time}");
        }
        // A clock that was never set shows the world's time.
        let (past, clock) = (Past::default(), Clock::default());
        assert_eq!((past.first(clock, 5), past.last(clock, 5)), (5, 5));
    }

    /// A clock that stands still shows the same until it goes on at its speed.
    #[test]
    fn clock_stops_and_resumes_at_its_rate() {
        let (mut clock, mut past) = (Clock::default(), Past::default());
        clock.set(0, 0, 500_000);
        for (now, is_stopped) in [(100, true), (300, false)] {
            past.push(clock, now);
            clock.stop(now, is_stopped);
            assert_eq!((clock.show(now), clock.when(150)), (150, Some(now)));
            let later = (!is_stopped).then_some(302);
            assert_eq!(
                (clock.show(302), clock.when(153)),
                (clock.shows + 3 * u64::from(!is_stopped), later)
            );
        }
        // It has shown this time for as long as it stood still.
        assert_eq!((past.first(clock, 150), past.last(clock, 150)), (100, 300));
        clock.stop(400, true);
        assert_eq!(
            (past.first(clock, 301), past.last(clock, 300)),
            (NEVER, NEVER)
        );
        // A jump meanwhile is that of a clock that stands still.
        clock.set(500, 7, 0);
        assert_eq!((clock.show(600), clock.when(308)), (307, None));
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
