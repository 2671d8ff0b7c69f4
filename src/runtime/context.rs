//! The reactor that this thread's sockets and timers wait on: that of the worker that the thread
//! drives, or else, and if the worker has closed its reactor, that of the background runtime.

use std::io;
use std::sync::Arc;

use super::background;
use crate::reactor::{Driver, Reactor};
use crate::scheduler;

/// Calls `f` with this thread's reactor, and with its driver if this thread drives it.
///
/// # Errors
///
/// If the background runtime is needed and cannot be started.
#[inline]
pub(crate) fn with_reactor<R>(
    f: impl FnOnce(&Arc<Reactor>, Option<&Driver>) -> R,
) -> io::Result<R> {
    // A clone, so that nothing is borrowed while `f` runs: it may clone and drop wakers, which is
    // foreign code.
    match scheduler::driver() {
        Some(driver) if !driver.reactor().is_closed() => Ok(f(driver.reactor(), Some(&driver))),
        _ => {
            let shared = background::shared()?;
            Ok(f(&shared.main().reactor, None))
        }
    }
}
