//! The background runtime, for threads that drive none: one worker on a thread of its own, started
//! on first use, which runs until the process exits.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::{Runtime, single_worker};
use crate::scheduler::{BusyPollConfig, Shared};
use crate::sys::start_thread;

static BACKGROUND: OnceLock<Arc<Shared>> = OnceLock::new();

/// Held while starting, so that it is started once.
static STARTING: Mutex<()> = Mutex::new(());

/// The background runtime, started if need be.
///
/// # Errors
///
/// If it cannot be started, for want of descriptors or threads; the next call tries again. If its
/// thread has panicked.
pub(crate) fn shared() -> io::Result<&'static Arc<Shared>> {
    super::not_simulated()?;
    match BACKGROUND.get() {
        Some(shared) if shared.is_closing() => Err(io::Error::other(
            "the background runtime has ended: its thread panicked",
        )),
        Some(shared) => Ok(shared),
        None => start(),
    }
}

/// [`shared`], for functions that cannot return an error.
///
/// # Panics
///
/// If it cannot be started, or its thread has panicked.
pub(super) fn expect_shared() -> &'static Arc<Shared> {
    match shared() {
        Ok(shared) => shared,
        Err(error) => panic!("polder: the background runtime cannot be started: {error}"),
    }
}

#[cold]
fn start() -> io::Result<&'static Arc<Shared>> {
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(shared) = BACKGROUND.get() {
        return Ok(shared);
    }
    // What can fail is done on this thread; the worker is made by its own.
    let shared = single_worker()?;
    let run = {
        let shared = shared.clone();
        || {
            Runtime::from_shared(shared, BusyPollConfig::default())
                .worker
                .drive_forever();
        }
    };
    start_thread("polder-background", Box::new(run))?;
    Ok(BACKGROUND.get_or_init(|| shared))
}
