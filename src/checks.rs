//! [`always!`](crate::always) and [`sometimes!`](crate::sometimes): properties that a program
//! states, for simulated worlds to check.
//!
//! The macros exist regardless of features, so that a program needs no `cfg`. The functions
//! [`checks_here`] and [`asks_for`] decide whether a condition is checked: without the feature
//! `sim` their result is a constant, and nothing of the macro is left. With it, on a thread that is
//! in no world, the cost is a load.
//!
//! The condition is foreign code. The macro evaluates it in the program, between the calls of these
//! functions and the report of the result: the world's kernel is not borrowed then.

#[cfg(feature = "sim")]
use crate::world;

/// States a condition that is always true at this place in the program. If it is false in a
/// [simulated world](crate::sim), the run fails, with the name, the place in the source, the host
/// and the time, as by [`Sim::always`](crate::sim::Sim::always). The run ends with that step.
///
/// Outside of worlds it does nothing, and does not evaluate the condition. The same holds without
/// the feature `sim`, which is on in tests and off in releases: then nothing of it is left in the
/// program. It also does nothing while the destructors of a killed process run, since a real
/// machine would not run them.
///
/// ```
/// use std::cell::Cell;
///
/// struct Account(Cell<i64>);
///
/// impl Account {
///     fn withdraw(&self, amount: i64) {
///         self.0.set(self.0.get() - amount);
///         polder::always!(self.0.get() >= 0, "no account is overdrawn");
///     }
/// }
///
/// Account(Cell::new(5)).withdraw(7); // Not checked.
///
/// # #[cfg(feature = "sim")] {
/// let report = polder::sim::run(1, |sim| async move {
///     let bank = sim.host("bank").start(|| async { Account(Cell::new(5)).withdraw(7) });
///     bank.finished().await;
/// });
/// let failure = report.failure.unwrap();
/// assert!(failure.contains("always \"no account is overdrawn\": it does not hold on bank, "));
/// # }
/// ```
#[macro_export]
macro_rules! always {
    ($condition:expr, $name:expr $(,)?) => {
        if $crate::__checks::checks_here() && !$condition {
            $crate::__checks::does_not_hold($name);
        }
    };
}

/// States a condition that should be true at this place in the program for at least one of the
/// seeds of [`sim::check`](crate::sim::check): as by
/// [`Sim::sometimes`](crate::sim::Sim::sometimes), and counted with conditions of the same name.
/// `check` fails if it was never true. If no seed reaches this place, the condition is unknown to
/// `check`.
///
/// In a run in which it has been true it is not evaluated again. Outside of worlds it does nothing,
/// like [`always!`](crate::always).
///
/// ```
/// fn reconnects(tries: u32) {
///     polder::sometimes!(tries > 1, "a client tries several times");
///     // …
/// }
///
/// reconnects(1); // Not counted.
/// # #[cfg(feature = "sim")]
/// polder::sim::check(0..10, |sim| async move { reconnects(sim.choose(3) as u32) });
/// ```
#[macro_export]
macro_rules! sometimes {
    ($condition:expr, $name:expr $(,)?) => {
        if $crate::__checks::checks_here() {
            match $name {
                name => {
                    if $crate::__checks::asks_for(name) && $condition {
                        $crate::__checks::was_true(name);
                    }
                }
            }
        }
    };
}

/// Whether a world checks the conditions stated here.
#[cfg(feature = "sim")]
#[inline]
pub fn checks_here() -> bool {
    world::is_here() && world::checks_here()
}

/// Whether a world checks the conditions stated here: there is none.
#[cfg(not(feature = "sim"))]
#[inline(always)]
pub const fn checks_here() -> bool {
    false
}

/// Reports that an `always!` condition is false.
#[cfg(feature = "sim")]
#[cold]
#[track_caller]
pub fn does_not_hold(name: &str) {
    world::does_not_hold(name, std::panic::Location::caller());
}

/// Does nothing: there is no world.
#[cfg(not(feature = "sim"))]
pub fn does_not_hold(_: &str) {}

/// Whether a world counts this condition, and has not seen it true yet.
#[cfg(feature = "sim")]
#[inline]
pub fn asks_for(name: &str) -> bool {
    world::is_here() && world::asks_for(name)
}

/// Whether a world counts this condition: there is none.
#[cfg(not(feature = "sim"))]
#[inline(always)]
pub const fn asks_for(_: &str) -> bool {
    false
}

/// Reports that a `sometimes!` condition is true.
#[cfg(feature = "sim")]
#[cold]
pub fn was_true(name: &str) {
    world::note_sometimes(name, true);
}

/// Does nothing: there is no world.
#[cfg(not(feature = "sim"))]
pub fn was_true(_: &str) {}
