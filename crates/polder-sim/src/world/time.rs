//! [`Time`]: the time of a world, and the clocks of its hosts.
//!
//! Time passes only between steps, when the kernel sets it to that of the next event. The thread
//! reads the clock of the current host ([`Time::show`]). That reading is kept in a
//! thread-local outside of the kernel, so that [`now`] is a load; only this module writes it.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::answers;
use super::clock::{Clock, Past, Wall};
use super::seconds::nanos;

/// The limit of clock readings in one step: a program that exceeds it is waiting for the clock in a
/// loop. Reaching the limit takes a test half a second without optimisation.
const MAX_READINGS: u32 = 1_000_000;

thread_local! {
    static CLOCK: Cell<Option<Instant>> = const { Cell::new(None) };
    /// The number of clock readings by the program in this step.
    static READINGS: Cell<u32> = const { Cell::new(0) };
}

/// Returns the time of this thread's world, if it is in one.
#[inline]
pub(crate) fn now() -> Option<Instant> {
    CLOCK.get()
}

/// Returns whether this thread is in a world.
#[inline]
pub(crate) fn is_here() -> bool {
    CLOCK.get().is_some()
}

/// Counts a reading of the clock by the program.
///
/// # Panics
///
/// If the program has read the clock so often in one step that it must be waiting for it.
#[inline]
pub(crate) fn count_reading() {
    if !is_here() {
        return;
    }
    let readings = READINGS.get() + 1;
    READINGS.set(readings);
    if readings > MAX_READINGS {
        READINGS.set(0);
        panic!(
            "polder_sim: the clock was read {MAX_READINGS} times in one step, in which no time \
             passes: a loop that waits for it never ends"
        );
    }
}

/// Restarts the count of clock readings: another step begins.
pub(super) fn restart_readings() {
    READINGS.set(0);
}

/// Ends the time of this thread's world.
pub(super) fn end() {
    CLOCK.set(None);
}

/// The clocks of a host. By default they show the world's time.
#[derive(Default)]
struct HostClocks {
    clock: Clock,
    past: Past,
    wall: Wall,
    /// The time since which the machine has been suspended, if it is.
    suspended: Option<u64>,
}

impl HostClocks {
    /// Returns the offset of the wall clock from the monotonic one, which stands still while the
    /// machine is suspended.
    fn wall_ahead(&self, now: u64) -> i64 {
        let asleep = self.suspended.map_or(0, |since| now - since);
        (self.wall.ahead()).saturating_add_unsigned(asleep)
    }
}

pub(crate) struct Time {
    base: Instant,
    /// The time in nanoseconds since the world began.
    now: u64,
    /// The time that this thread reads, in nanoseconds since the world began: that of the current
    /// host.
    shown: u64,
    /// By host, up to the last one that had its clocks set; empty if none had.
    clocks: Vec<HostClocks>,
}

impl Time {
    /// Begins the time of this thread's world.
    pub(super) fn begin() -> Time {
        let base = Instant::now();
        // Readings by destructors at the end of another world are not this world's.
        restart_readings();
        CLOCK.set(Some(base));
        Time {
            base,
            now: 0,
            shown: 0,
            clocks: Vec::new(),
        }
    }

    /// Returns the nanoseconds since the world began.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Converts a time of [`now`] to nanoseconds since the world began.
    pub(crate) fn nanos_at(&self, at: Instant) -> u64 {
        nanos(at.saturating_duration_since(self.base))
    }

    /// Lets time pass until `at`. [`show`](Self::show) has to follow.
    pub(super) fn pass(&mut self, at: u64) {
        self.now = at.max(self.now);
    }

    /// Makes this thread read the clock of the current host, if there is one.
    #[inline]
    pub(super) fn show(&mut self, host: impl FnOnce() -> Option<usize>) {
        if self.shown != self.now || !self.clocks.is_empty() {
            self.show_clock_of(host());
        }
    }

    #[inline(never)]
    fn show_clock_of(&mut self, host: Option<usize>) {
        let clocks = host.and_then(|host| self.clocks.get(host));
        let shown = clocks.map_or(self.now, |clocks| clocks.clock.show(self.now));
        if !self.clocks.is_empty() {
            answers::show_wall(clocks.map_or(0, |clocks| clocks.wall_ahead(self.now)));
        }
        if std::mem::replace(&mut self.shown, shown) != shown {
            CLOCK.set(Some(self.base + Duration::from_nanos(shown)));
            answers::show(shown);
        }
    }

    fn clocks_of(&mut self, host: usize) -> &mut HostClocks {
        if self.clocks.len() <= host {
            self.clocks.resize_with(host + 1, HostClocks::default);
        }
        &mut self.clocks[host]
    }

    /// Returns the first time of the world at which a host's clock shows at least `time`; `None` if
    /// it stands still before that.
    pub(super) fn when(&self, host: usize, time: u64) -> Option<u64> {
        let clocks = self.clocks.get(host);
        clocks.map_or(Some(time), |clocks| clocks.clock.when(time))
    }

    /// Converts `at`, a time by a host's clock, to the world's time: the first such moment, or the
    /// last one.
    pub(super) fn world_time(&self, host: usize, at: Instant, is_last: bool) -> Instant {
        let Some(clocks) = self.clocks.get(host) else {
            return at;
        };
        let shown = self.nanos_at(at);
        let nanos = if is_last {
            clocks.past.last(clocks.clock, shown)
        } else {
            clocks.past.first(clocks.clock, shown)
        };
        self.base + Duration::from_nanos(nanos)
    }

    /// Sets a host's clock ahead, and its drift, if one is given. Returns its drift.
    pub(super) fn set_clock(&mut self, host: usize, ahead: u64, drift: Option<i32>) -> i32 {
        let now = self.now;
        let HostClocks { clock, past, .. } = self.clocks_of(host);
        let drift = drift.unwrap_or(clock.drift);
        past.push(*clock, now);
        clock.set(now, ahead, drift);
        drift
    }

    /// Stops the monotonic clock of a host that is suspended. The wall clock runs on.
    pub(super) fn suspend(&mut self, host: usize) {
        let now = self.now;
        let clocks = self.clocks_of(host);
        clocks.past.push(clocks.clock, now);
        clocks.clock.stop(now, true);
        clocks.suspended = Some(now);
    }

    /// Lets the monotonic clock of a host go on. Returns how long it has stood still.
    pub(super) fn resume(&mut self, host: usize) -> u64 {
        let now = self.now;
        let clocks = self.clocks_of(host);
        clocks.past.push(clocks.clock, now);
        clocks.clock.stop(now, false);
        let asleep = now - clocks.suspended.take().unwrap_or(now);
        let ahead = i64::try_from(asleep).unwrap_or(i64::MAX);
        clocks.wall.step(ahead, false);
        asleep
    }

    /// Returns how much faster a host's clock is than the world's, in millionths.
    pub(crate) fn drift(&self, host: usize) -> i32 {
        let clocks = self.clocks.get(host);
        clocks.map_or(0, |clocks| clocks.clock.drift)
    }

    pub(super) fn wall(&mut self, host: usize) -> &mut Wall {
        &mut self.clocks_of(host).wall
    }

    /// Returns the offset of a host's wall clock that chaos has set.
    pub(super) fn wall_by_chaos(&self, host: usize) -> i64 {
        let clocks = self.clocks.get(host);
        clocks.map_or(0, |clocks| clocks.wall.by_chaos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_reads_the_clock_of_the_current_host() {
        let mut time = Time::begin();
        let base = time.base;
        let read = || now().expect("the time has begun") - base;
        time.pass(1_000);
        assert_eq!(read(), Duration::ZERO, "not before it is shown");
        time.show(|| None);
        assert_eq!(read(), Duration::from_nanos(1_000));
        assert_eq!(time.set_clock(1, 500, Some(7)), 7);
        assert_eq!((time.drift(0), time.drift(1), time.drift(2)), (0, 7, 0));
        for (host, shown) in [(Some(1), 1_500), (Some(0), 1_000), (Some(2), 1_000)] {
            time.show(|| host);
            assert_eq!((read(), time.shown), (Duration::from_nanos(shown), shown));
        }
        time.pass(10);
        assert_eq!(time.now(), 1_000, "time never goes back");
        let at = base + Duration::from_nanos(1_500);
        let moment = time.world_time(1, at, false);
        assert_eq!(moment, base + Duration::from_nanos(1_000));
        assert_eq!(time.when(1, 1_500), Some(1_000));
        assert_eq!(
            (time.when(5, 9), time.world_time(5, at, true)),
            (Some(9), at)
        );
        end();
        assert!(!is_here());
    }

    /// A suspended host's clock stands still and its wall clock does not.
    #[test]
    fn suspended_clock_stops_wall_clock_does_not() {
        let mut time = Time::begin();
        time.pass(1_000);
        time.wall(0).step(-70, false);
        time.suspend(0);
        time.pass(1_500);
        let clocks = |time: &Time| {
            (
                time.clocks[0].clock.show(time.now),
                time.clocks[0].wall_ahead(time.now),
            )
        };
        assert_eq!(clocks(&time), (1_000, 430));
        assert_eq!(
            (time.when(0, 1_000), time.when(0, 1_001)),
            (Some(1_000), None)
        );
        assert_eq!(time.resume(0), 500);
        time.pass(1_800);
        assert_eq!(clocks(&time), (1_300, 430));
        assert_eq!(time.when(0, 1_301), Some(1_801));
        end();
    }
}
