//! What blocks goes to a pool of threads: the `blocking` crate's, which grows under load and
//! retires idle threads.

use std::panic::{AssertUnwindSafe, Location, catch_unwind};

use super::{Inner, Outcome, Task};

/// Runs `f`, which may block or compute for long, on a pool of threads.
///
/// Works on any thread, inside a runtime or not. The pool has up to 500 threads (the environment
/// variable `BLOCKING_MAX_THREADS` changes that) and lets go of those that have been idle for
/// half a second.
///
/// **Dropping the task cancels it** if it has not begun; what has begun runs to its end.
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
/// A panic of `f` reaches whoever awaits the task.
#[track_caller]
pub fn unblock<T, F>(f: F) -> Task<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let site = Location::caller();
    let task = blocking::unblock(move || Outcome::new(catch_unwind(AssertUnwindSafe(f)), site));
    Task(Inner::Blocking(task.fallible()))
}
