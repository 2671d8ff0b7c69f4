//! [`Clock`] and [`Faults`]: what a test sets of a machine.

use std::time::Duration;

use super::kernel::clock::MOST_DRIFT;
use super::kernel::host_faults::HostFaults;
use super::kernel::link::nanos;
use super::links::of;
use super::world::kernel as with_kernel;

/// The clock of a host: of [`Host::clock`](super::Host::clock). What
/// [`time::now`](crate::time::now) says there, and all timers there, go by it. Unless it is set it
/// shows the world's time.
///
/// ```
/// use polder::time::{now, sleep};
/// use std::time::Duration;
///
/// polder::sim::check(0..1, |sim| async move {
///     let host = sim.host("fast");
///     host.clock().drift(500_000); // Half as fast again.
///     let nap = host.start(|| async {
///         let start = now();
///         sleep(Duration::from_secs(3)).await;
///         now() - start
///     });
///     assert_eq!(nap.finished().await, polder::sim::Exit::Returned(Duration::from_secs(3)));
///     assert_eq!(sim.now(), Duration::from_secs(2));
/// });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Clock(pub(super) usize);

impl Clock {
    /// Sets it ahead by `offset`, at once: timers that are due by then fire. (It cannot be set
    /// back, as a monotonic clock never is.)
    ///
    /// ```
    /// use polder::time::sleep;
    /// use std::time::Duration;
    ///
    /// polder::sim::check(0..1, |sim| async move {
    ///     let host = sim.host("host").start(|| sleep(Duration::from_secs(10)));
    ///     sim.sleep(Duration::from_secs(1)).await;
    ///     host.clock().offset(Duration::from_secs(60));
    ///     host.finished().within(Duration::from_millis(1)).await;
    /// });
    /// ```
    pub fn offset(self, offset: Duration) -> Clock {
        with_kernel(|kernel| kernel.set_clock(self.0, nanos(offset), None));
        self
    }

    /// Sets how much faster it is than the world's time, from now on, in millionths; slower if that
    /// is negative. [`Sim::quiesce`](super::Sim::quiesce) ends it.
    ///
    /// # Panics
    ///
    /// Unless it is from -500,000 to 500,000. (Real clocks drift by less than 500.)
    #[track_caller]
    pub fn drift(self, parts_per_million: i32) -> Clock {
        assert!(
            (-MOST_DRIFT..=MOST_DRIFT).contains(&parts_per_million),
            "polder::sim: a drift is from -{MOST_DRIFT} to {MOST_DRIFT} millionths, not {parts_per_million}"
        );
        with_kernel(|kernel| kernel.set_clock(self.0, 0, Some(parts_per_million)));
        self
    }
}

/// Faults of a host's kernel: of [`Host::faults`](super::Host::faults). All are off unless they are
/// set. Each is a probability from 0 to 1; [`Sim::quiesce`](super::Sim::quiesce) ends them.
///
/// ```
/// polder::sim::check(0..1, |sim| async move {
///     sim.host("server").faults().short(0.2).spurious(0.05).exhausted(0.01);
/// });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Faults(pub(super) usize);

impl Faults {
    /// A connection is gone when it is accepted (`ECONNABORTED`): its peer has made it, and finds
    /// it reset. `accept` goes on to the next one.
    ///
    /// # Panics
    ///
    /// Unless the probability is from 0 to 1.
    #[track_caller]
    pub fn aborted(self, probability: f64) -> Faults {
        let probability = of(probability);
        self.change(|it| it.aborted = probability)
    }

    /// There is no descriptor left (`EMFILE`), where a socket is made or accepted.
    ///
    /// # Panics
    ///
    /// Unless the probability is from 0 to 1.
    #[track_caller]
    pub fn exhausted(self, probability: f64) -> Faults {
        let probability = of(probability);
        self.change(|it| it.exhausted = probability)
    }

    /// A read gets, or a write takes, less than it could, at least one byte: of TCP and of Unix
    /// streams.
    ///
    /// # Panics
    ///
    /// Unless the probability is from 0 to 1.
    #[track_caller]
    pub fn short(self, probability: f64) -> Faults {
        let probability = of(probability);
        self.change(|it| it.short = probability)
    }

    /// An event says that a socket is readable and writable, whether it is or not.
    ///
    /// # Panics
    ///
    /// Unless the probability is from 0 to 1.
    #[track_caller]
    pub fn spurious(self, probability: f64) -> Faults {
        let probability = of(probability);
        self.change(|it| it.spurious = probability)
    }

    fn change(self, f: impl FnOnce(&mut HostFaults)) -> Faults {
        with_kernel(|kernel| kernel.change_faults(self.0, f));
        self
    }
}
