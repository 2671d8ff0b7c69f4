//! What blocks goes to the [pool](crate::pool).

use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Once;

use super::{Inner, Outcome, Task};
use crate::pool::{Call, Class, POOL};

/// The environment variable that says how many threads may run calls at once: the one of the crate
/// `blocking`, with its bounds.
const VARIABLE: &str = "BLOCKING_MAX_THREADS";
const LEAST: usize = 1;
const MOST: usize = 10_000;

/// Runs `f`, which may block or compute for long, on a pool of threads.
///
/// Works on any thread, inside a runtime or not. The pool grows under load, up to 500 threads (the
/// environment variable `BLOCKING_MAX_THREADS`, from 1 to 10,000, changes that), and lets go of those that
/// have been idle for half a second. What comes when all are busy waits for one of them. The threads are
/// called `polder-blocking`. [`io::Unblock`](crate::io::Unblock) uses them too; lookups of names
/// do not count.
///
/// **Dropping the task cancels it** if it has not begun, and drops `f` at once; what has begun runs to its
/// end.
///
/// # Examples
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// let text = polder::block_on(polder::unblock(|| std::fs::read_to_string("Cargo.toml")))?;
/// assert!(text.contains("[package]"));
/// # Ok(())
/// # }
/// ```
///
/// # Panics
///
/// A panic of `f` reaches whoever awaits the task. So does one that says why no thread could be started, in a
/// process that may not have another one, unless there are threads that will come to it; `f` is
/// then not called.
#[track_caller]
pub fn unblock<T, F>(f: F) -> Task<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let site = Location::caller();
    take_limit();
    let work = move || Outcome::new(catch_unwind(AssertUnwindSafe(f)), site);
    let call = POOL.call(Class::Call, work).unwrap_or_else(|error| {
        // With a panic of its own, so that the hook tells of it.
        let refuse = || panic!("{error}, at {site}");
        let refused = catch_unwind(AssertUnwindSafe(refuse));
        Call::done(Outcome::new(refused, site))
    });
    Task(Inner::Blocking(call))
}

/// Has the environment's wish obeyed, once.
pub(crate) fn take_limit() {
    static TAKEN: Once = Once::new();
    TAKEN.call_once(|| {
        let variable = std::env::var(VARIABLE);
        if let Some(limit) = variable.ok().and_then(|text| limit(&text)) {
            POOL.set_limit(Class::Call, limit);
        }
    });
}

/// What is no number changes nothing.
fn limit(text: &str) -> Option<usize> {
    let limit: usize = text.parse().ok()?;
    Some(limit.clamp(LEAST, MOST))
}

#[test]
fn the_limit_from_the_environment_is_a_number_within_bounds() {
    let limits = ["100", "0", "50000", "", "many"].map(limit);
    assert_eq!(limits, [Some(100), Some(1), Some(10_000), None, None]);
}
