//! The runtime for threads that have none: one worker on a thread of its own, started on first use,
//! there until the process ends.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use super::{Runtime, single_worker};
use crate::scheduler::{BusyPollConfig, Shared};

static BACKGROUND: OnceLock<Arc<Shared>> = OnceLock::new();

/// Held while starting, so that one thread does.
static STARTING: Mutex<()> = Mutex::new(());

/// The background runtime: a runtime of one.
///
/// # Errors
///
/// Where it cannot be started, for want of descriptors or threads. The next call tries again.
pub(crate) fn shared() -> io::Result<&'static Arc<Shared>> {
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
/// Where it cannot be started.
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
    // Whatever can fail is done here; the worker is the new thread's own.
    let shared = single_worker()?;
    let its_shared = shared.clone();
    thread::Builder::new()
        .name("polder-background".into())
        .spawn(move || {
            Runtime::from_shared(its_shared, BusyPollConfig::default())
                .worker
                .drive_forever()
        })?;
    Ok(BACKGROUND.get_or_init(|| shared))
}
