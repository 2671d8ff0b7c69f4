//! [`always!`](crate::always) and [`sometimes!`](crate::sometimes): properties that a program
//! states, for simulated worlds to check; and [`buggify!`](crate::buggify), its own faults there.
//!
//! The macros exist regardless of features, so that a program needs no `cfg`. The functions
//! [`checks_here`] and [`asks_for`] decide whether a condition is checked: without the feature
//! `kernel` their result is a constant, and nothing of the macro is left. With it, on a thread that
//! is in no world, the cost is a load.
//!
//! The condition is foreign code. The macro evaluates it in the program, between the calls of these
//! functions and the report of the result: the world's kernel is not borrowed then.

use std::panic::Location;

use crate::kernel::{self, Checks, Kernel};

/// States a condition that is always true at this place in the program. If it is false in a
/// [simulated world](https://docs.rs/polder-sim), the run fails, with the name, the place in the
/// source, the host and the time, as by `Sim::always`. The run ends with that step.
///
/// Outside of worlds it does nothing, and does not evaluate the condition. In a release, which has
/// no worlds, nothing of it is left in the program. It also does nothing while the destructors of a
/// killed process run, since a real machine would not run them.
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
/// Account(Cell::new(5)).withdraw(7); // Not checked here. In a world the run fails.
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
/// seeds of `polder_sim::check`: as by
/// `Sim::sometimes`, and counted with conditions of the same name.
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
/// reconnects(1); // Not counted here, as it is not in a world.
/// ```
#[macro_export]
macro_rules! sometimes {
    ($condition:expr, $name:expr $(,)?) => {
        if $crate::__checks::checks_here() {
            match $name {
                name => {
                    if $crate::__checks::asks_for(name) && $condition {
                        $crate::__checks::note_sometimes(name, true);
                    }
                }
            }
        }
    };
}

/// Returns whether a rare thing happens at this place in the program: a cache that is full, a timer
/// that is early, a small buffer. It is `false` outside of [simulated
/// worlds](https://docs.rs/polder-sim), and in a release, which has no worlds, nothing is left of
/// it.
///
/// In a world each name is on for a quarter of the seeds from 10 on, and then true a quarter of the
/// times that a host asks, until `Sim::quiesce` and at most 4,000 times
/// in all. This finds code that is right only in the usual case. It is a fault like others: it has
/// a number in the report of a failure, and is left out if the failure does not need it.
///
/// ```
/// fn batch_size() -> usize {
///     if polder::buggify!("small batches") { 1 } else { 1_000 }
/// }
///
/// assert_eq!(batch_size(), 1_000); // For some seeds 1, in a world.
/// ```
#[macro_export]
macro_rules! buggify {
    ($name:expr $(,)?) => {
        $crate::__checks::checks_here() && $crate::__checks::buggify($name)
    };
}

/// Returns what checks the conditions stated here, if anything does.
#[inline]
fn checks() -> Option<&'static dyn Checks> {
    kernel::current().and_then(Kernel::checks)
}

/// Whether the conditions stated here are checked.
#[inline]
pub fn checks_here() -> bool {
    checks().is_some()
}

/// Reports that a condition of `always!` does not hold.
#[cold]
#[track_caller]
pub fn does_not_hold(name: &str) {
    let site = Location::caller();
    if let Some(checks) = checks() {
        checks.does_not_hold(name, site);
    }
}

/// Whether a condition of `sometimes!` is to be evaluated.
pub fn asks_for(name: &str) -> bool {
    checks().is_some_and(|checks| checks.asks_for(name))
}

/// Reports the value of a condition of `sometimes!`.
pub fn note_sometimes(name: &str, is_so: bool) {
    if let Some(checks) = checks() {
        checks.note_sometimes(name, is_so);
    }
}

/// Whether the fault of this name happens.
pub fn buggify(name: &str) -> bool {
    checks().is_some_and(|checks| checks.buggify(name))
}
