//! Which worker am I on? What sockets and timers ask before they wait.
//!
//! Inside a runtime it is the worker that this thread drives. On a plain thread, and in a runtime
//! that is being dropped, it is the background runtime's.

use std::io;
use std::sync::Arc;

use super::background;
use crate::reactor::Reactor;
use crate::scheduler;

/// Calls `f` with the reactor that this thread's waits belong to.
///
/// # Errors
///
/// Where the background runtime is needed and cannot be started.
#[inline]
pub(crate) fn with_reactor<R>(f: impl FnOnce(&Arc<Reactor>) -> R) -> io::Result<R> {
    // A clone, so that nothing is borrowed while `f` runs: it may drop wakers, and their destructors
    // may do anything.
    let local = scheduler::current();
    let reactor = match &local {
        Some(local) if !local.remote().reactor.is_closed() => &local.remote().reactor,
        _ => {
            let shared = background::shared()?;
            &shared.main().reactor
        }
    };
    Ok(f(reactor))
}
