//! [`always!`](crate::always) and [`sometimes!`](crate::sometimes): what a program says of itself,
//! for simulated worlds to check.
//!
//! The macros are there whatever features are on, so that a program needs no `cfg`. Whether anybody
//! checks is a question of [`checks_here`] and [`asks_for`]: without the feature `sim` the answer
//! is a constant, and nothing of the macro is left. With it, on a thread that is in no world, it is
//! a load.
//!
//! The condition is foreign code. It is evaluated by the macro, in the program, between the
//! question and the answer: the world's kernel is borrowed for neither.

#[cfg(feature = "sim")]
use crate::sim::kernel;

/// Says what is always so where the program comes by: in a [simulated world](crate::sim) whose
/// condition is false the run fails, with the name, the place in the source, the host and the time,
/// as by [`Sim::always`](crate::sim::Sim::always). The run ends with the step in which that
/// happens.
///
/// Outside of worlds it does nothing, and does not evaluate the condition. Nor does it without the
/// feature `sim`, with which a test is built and what is shipped is not: then nothing of it is left
/// in the program. It does nothing either where the destructors of a killed process run, since a
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
/// Account(Cell::new(5)).withdraw(7); // Nobody checks.
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

/// Says what is to be so for at least one of the seeds of [`sim::check`](crate::sim::check) where
/// the program comes by: as by [`Sim::sometimes`](crate::sim::Sim::sometimes), and counted with
/// those of the same name. `check` fails if it never was. Where no seed comes by, nobody knows of
/// it.
///
/// In a run in which it has been true it is not evaluated again. Outside of worlds it does nothing,
/// as [`always!`](crate::always) does.
///
/// ```
/// fn reconnects(tries: u32) {
///     polder::sometimes!(tries > 1, "a client tries several times");
///     // …
/// }
///
/// reconnects(1); // Nobody counts.
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

/// Whether a world checks what is said here.
#[cfg(feature = "sim")]
#[inline]
pub fn checks_here() -> bool {
    kernel::is_here() && kernel::checks_here()
}

/// Whether a world checks what is said here: there is none.
#[cfg(not(feature = "sim"))]
#[inline(always)]
pub const fn checks_here() -> bool {
    false
}

/// What is always so is not.
#[cfg(feature = "sim")]
#[cold]
#[track_caller]
pub fn does_not_hold(name: &str) {
    kernel::does_not_hold(name, std::panic::Location::caller());
}

/// What is always so is not: nobody asks.
#[cfg(not(feature = "sim"))]
pub fn does_not_hold(_: &str) {}

/// Whether a world counts that, and has not seen it yet.
#[cfg(feature = "sim")]
#[inline]
pub fn asks_for(name: &str) -> bool {
    kernel::is_here() && kernel::asks_for(name)
}

/// Whether a world counts that: there is none.
#[cfg(not(feature = "sim"))]
#[inline(always)]
pub const fn asks_for(_: &str) -> bool {
    false
}

/// What is so sometimes is so.
#[cfg(feature = "sim")]
#[cold]
pub fn was_true(name: &str) {
    kernel::was_true(name);
}

/// What is so sometimes is so: nobody asks.
#[cfg(not(feature = "sim"))]
pub fn was_true(_: &str) {}
