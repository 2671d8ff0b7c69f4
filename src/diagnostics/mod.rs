//! Diagnostics of a runtime, for people and for tools.
//!
//! * [`Runtime::metrics`](crate::Runtime::metrics): counters, always on and nearly free:
//!   [`Metrics`].
//! * [`Runtime::dump`](crate::Runtime::dump): what each task waits for, and likely bugs: [`Dump`]
//!   and [`Hint`].
//! * [`Builder::on_stall`](crate::runtime::Builder::on_stall): polls that take too long: [`Stall`].
//! * [`Builder::trace_capacity`](crate::runtime::Builder::trace_capacity): the latest events, for
//!   trace viewers: [`Trace`].
//!
//! With the feature `env-diagnostics` (a default), variables request these for an unmodified
//! program. `POLDER_DUMP=usr1` prints a dump on each SIGUSR1, `POLDER_DUMP=after:30s` one that long
//! after the first runtime was built; `:FILE` after either appends to a file. `POLDER_STALL=100ms`
//! reports polls that take longer. `POLDER_TRACE=FILE` writes a trace at the end of its runtime, at
//! a stall, and with a dump. `POLDER_TOP=/path` creates a Unix socket for the program `polder-top`,
//! which shows all of this live.
//!
//! ```
//! let runtime = polder::Runtime::new()?;
//! runtime.block_on(runtime.spawn(async {}));
//! let metrics = runtime.metrics();
//! assert_eq!((metrics.spawned, metrics.tasks), (1, 0));
//! print!("{metrics}"); // As OpenMetrics text.
//! # std::io::Result::Ok(())
//! ```

// Metrics are counted by the thread that causes them (`telemetry::counters`), and read without a
// lock. A dump asks the workers: see `snapshot`.

#[cfg(feature = "stall-backtrace")]
mod backtrace;
mod dump;
#[cfg(feature = "env-diagnostics")]
mod environment;
mod hints;
mod json;
#[cfg(all(unix, feature = "env-diagnostics"))]
mod line;
mod metrics;
mod open_sockets;
mod request;
mod seconds;
mod snapshot;
mod sockets;
mod sorted_index;
#[cfg(all(unix, feature = "env-diagnostics"))]
mod top;
mod trace;
mod watchdog;

#[cfg(feature = "stall-backtrace")]
pub use backtrace::Backtrace;
pub use dump::{Dump, TaskDump, TaskRef, TaskState, Wait, WorkerDump, WorkerState};
pub use hints::Hint;
pub use metrics::{Histogram, Metrics, WorkerMetrics};
pub use open_sockets::OpenSockets;
pub(crate) use request::OwnWorker;
pub use trace::Trace;
pub(crate) use watchdog::Watch;
pub use watchdog::{Activity, Stall};

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::scheduler::Shared;
use crate::telemetry::TraceLog;

/// Called before any worker starts.
pub(crate) fn observe(shared: Shared, watch: Option<Watch>) -> io::Result<Arc<Shared>> {
    #[cfg(feature = "env-diagnostics")]
    let shared = environment::recorded(shared);
    let shared = Arc::new(shared);
    match watch {
        Some(watch) => (watch.watch)(&shared, watch.threshold, watch.on_stall)?,
        #[cfg(feature = "env-diagnostics")]
        None => environment::watch_stalls(&shared),
        #[cfg(not(feature = "env-diagnostics"))]
        None => {}
    }
    #[cfg(feature = "env-diagnostics")]
    environment::note_runtime(&shared);
    Ok(shared)
}

/// Makes each worker keep its latest `capacity` events. Called before the workers start, and only
/// if a program asks for a trace: only then is it linked.
pub(crate) fn record(shared: &mut Shared, capacity: usize) {
    let log = TraceLog::new(capacity);
    for remote in shared.remotes() {
        remote.counters.set_trace(log.ring());
    }
    shared.trace = Some(Arc::new(log));
}

/// Called before a runtime is closed; it does no more work.
pub(crate) fn runtime_ends(shared: &Shared) {
    #[cfg(feature = "env-diagnostics")]
    environment::write_trace(shared, false);
    #[cfg(not(feature = "env-diagnostics"))]
    let _ = shared;
}

/// Returns how long before a dump at a set time another one is taken, which hints need.
pub(crate) fn look_before(time: Duration) -> Duration {
    /// Longer than `hints::LONG_UNREAD`.
    const LOOK_BEFORE: Duration = Duration::from_millis(3_500);
    LOOK_BEFORE.min(time / 2)
}
