//! [`unblock`]: runs a blocking function on the [pool](super::pool).

use std::panic::{AssertUnwindSafe, Location, catch_unwind};

use super::pool::{Call, Class, POOL, SharedCall};
use crate::kernel;
use crate::scheduler::{new_id, with_local, within};
use crate::spans::{Kind, NewTask, TaskSpan};
use crate::task::{Abort, Inner, Origin, Task, TaskResult, record_panic};
use crate::telemetry::Mark;

/// Runs `f`, which may block or compute for long, on a pool of threads.
///
/// Works on any thread. The pool grows to 500 threads (`BLOCKING_MAX_THREADS`, from 1 to 10,000, in
/// the environment), then calls wait. Threads that were idle for half a second exit. They are named
/// `polder-blocking`. [`io::Unblock`](crate::io::Unblock) and `polder::fs` share this limit; name
/// lookups have one of their own.
///
/// **Dropping the task cancels it** if `f` was not called yet, and drops `f` immediately; a call
/// that has begun runs to its end.
///
/// **If `f` forks**, end the child by `_exit` or `exec`. If `f` returns there, its thread ends, and
/// the process with it: on glibc as by `exit(0)`, which runs the parent's `atexit` handlers again.
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
/// is certain to become free (`f` is then not called), and in a child of `fork` if the call was in
/// progress in the parent.
#[doc(alias("spawn_blocking", "block_in_place", "asyncify"))]
#[track_caller]
pub fn unblock<T, F>(f: F) -> Task<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    unblock_at(f, Location::caller())
}

/// [`unblock`], for the caller at `site`.
pub(crate) fn unblock_at<T, F>(f: F, site: &'static Location<'static>) -> Task<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let id = new_id();
    let origin = Origin { site, id };
    let trace = with_local(|local| local.shared.trace.clone()).flatten();
    let mut span = TaskSpan::new(|| NewTask {
        kind: Kind::Blocking,
        id: id.as_u64(),
        name: None,
        site,
        size: size_of::<F>(),
    });
    let work = move || {
        if let Some(trace) = &trace {
            trace.push(Mark::CallBegins((id.as_u64(), site)));
        }
        let call = || within(id, || catch_unwind(AssertUnwindSafe(f)));
        let result = span.end(call);
        if let Some(trace) = trace {
            trace.push(Mark::CallEnds(id.as_u64()));
        }
        TaskResult::new(result.map_err(|panic| record_panic(site, panic)), origin)
    };
    let pool = POOL.get();
    let (call, job) = Call::submitted(pool, work);
    let is_taken = kernel::current().is_some_and(|kernel| kernel.block(call.shared().clone()));
    let submitted = if is_taken {
        Ok(())
    } else {
        pool.submit(Class::Call, job)
    };
    let call = submitted.map(|()| call).unwrap_or_else(|error| {
        // A real panic, so that the panic hook reports it.
        let refuse = || panic!("{error}, at {site}");
        let refused = catch_unwind(AssertUnwindSafe(refuse));
        Call::done(TaskResult::new(refused, origin))
    });
    Task::new(Inner::Blocking(call), id)
}

impl<T: Send> Abort for SharedCall<T> {
    fn abort(&self) {
        self.abort();
    }

    fn is_finished(&self) -> bool {
        self.is_done()
    }
}
