//! [`unblock`]: runs a blocking function on the [pool](crate::pool).

use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Once;

use super::abort::Abort;
use super::{Id, Inner, Outcome, Task};
use crate::pool::{Call, Class, Handoff, POOL, Stage};
use crate::scheduler::{current_trace, within_call};
use crate::spans::{Kind, NewTask, TaskSpan};

/// The environment variable that limits how many calls run at once. It is that of the crate
/// `blocking`, with the same bounds.
const VARIABLE: &str = "BLOCKING_MAX_THREADS";
const BOUNDS: RangeInclusive<usize> = 1..=10_000;

/// Runs `f`, which may block or compute for long, on a pool of threads.
///
/// Works on any thread, within a runtime or not. The pool grows under load, up to 500 threads (set
/// the environment variable `BLOCKING_MAX_THREADS`, from 1 to 10,000, to change that). Threads that
/// were idle for half a second exit. Calls wait while all threads are busy. The threads are named
/// `polder-blocking`. [`io::Unblock`](crate::io::Unblock) uses them too; name lookups do not count.
///
/// **Dropping the task cancels it** if `f` was not called yet, and drops `f` at once; a call that
/// has begun runs to its end.
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
/// Awaiting the task resumes a panic of `f`. It also panics if no thread could be started, and none
/// of the pool is sure to become free; then `f` is not called.
#[doc(alias("spawn_blocking", "block_in_place", "asyncify"))]
#[track_caller]
pub fn unblock<T, F>(f: F) -> Task<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let site = Location::caller();
    apply_limit();
    let id = Id::new();
    let trace = current_trace();
    let mut span = TaskSpan::new(|| NewTask {
        kind: Kind::Blocking,
        id: id.as_u64(),
        name: None,
        site,
        size: size_of::<F>(),
    });
    let work = move || {
        if let Some(trace) = &trace {
            trace.call_begins((id.as_u64(), site));
        }
        let call = || within_call(id, || catch_unwind(AssertUnwindSafe(f)));
        let result = span.end(call);
        if let Some(trace) = trace {
            trace.call_ends(id.as_u64());
        }
        Outcome::new(result, site)
    };
    // A simulated world has one thread, which runs it after a delay.
    #[cfg(feature = "sim")]
    if crate::sim::kernel::is_here() {
        let (call, job) = Call::submitted(work);
        // Outside of any process, at once.
        if let Some(job) = crate::sim::kernel::blocking::submit(job) {
            job.run();
        }
        return Task::new(Inner::Blocking(call), id);
    }
    let call = POOL.call(Class::Call, work).unwrap_or_else(|error| {
        // A real panic, so that the panic hook reports it.
        let refuse = || panic!("{error}, at {site}");
        let refused = catch_unwind(AssertUnwindSafe(refuse));
        Call::done(Outcome::new(refused, site))
    });
    Task::new(Inner::Blocking(call), id)
}

impl<T: Send> Abort for Handoff<Stage<T>> {
    fn abort(&self) {
        self.abort();
    }

    fn is_finished(&self) -> bool {
        self.is_done()
    }
}

/// Sets the pool's limit from the environment, once.
pub(crate) fn apply_limit() {
    static APPLIED: Once = Once::new();
    APPLIED.call_once(|| {
        let variable = std::env::var(VARIABLE);
        if let Some(limit) = variable.ok().and_then(|text| limit(&text)) {
            POOL.set_limit(Class::Call, limit);
        }
    });
}

/// `None` for text that is not a number.
fn limit(text: &str) -> Option<usize> {
    let limit: usize = text.parse().ok()?;
    Some(limit.clamp(*BOUNDS.start(), *BOUNDS.end()))
}

#[test]
fn the_limit_from_the_environment_is_a_number_within_bounds() {
    let limits = ["100", "0", "50000", "", "many"].map(limit);
    assert_eq!(limits, [Some(100), Some(1), Some(10_000), None, None]);
}
