//! Which worker am I on? What sockets and timers ask before they wait.
//!
//! Inside a runtime it is the worker that this thread drives. On a plain thread, and in a runtime
//! that is being dropped, it is the background runtime's.

use std::io;
use std::sync::Arc;

use super::background;
use crate::reactor::Reactor;
use crate::task::queue;

/// Calls `f` with the reactor that this thread's waits belong to.
///
/// # Errors
///
/// Where the background runtime is needed and cannot be started.
#[inline]
pub(crate) fn with_reactor<R>(f: impl FnOnce(&Arc<Reactor>) -> R) -> io::Result<R> {
    let mut f = Some(f);
    let result = queue::with_current(|local| match local.home.reactor.is_closed() {
        true => None,
        false => f.take().map(|f| f(&local.home.reactor)),
    });
    match (result.flatten(), f) {
        (Some(result), _) => Ok(result),
        (None, Some(f)) => Ok(f(&background::home()?.reactor)),
        (None, None) => unreachable!("f is called once"),
    }
}
