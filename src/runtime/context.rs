//! The reactor that this thread's sockets and timers wait on.
//!
//! Within a runtime it is that of the worker that this thread drives. On a plain thread, and on a
//! worker that has closed its reactor, it is the background runtime's.

use std::io;
use std::sync::Arc;

use super::background;
use crate::reactor::Reactor;
use crate::scheduler;

/// Calls `f` with the reactor that this thread waits on.
///
/// # Errors
///
/// If the background runtime is needed and cannot be started.
#[inline]
pub(crate) fn with_reactor<R>(f: impl FnOnce(&Arc<Reactor>) -> R) -> io::Result<R> {
    // A clone, so that nothing is borrowed while `f` runs: it may drop wakers, which is foreign
    // code.
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
