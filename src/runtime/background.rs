//! The background runtime, for threads that drive none: one worker on a dedicated thread, started
//! on first use, which runs until the process exits. A child of `fork` starts its own.

use std::io;
use std::panic::Location;
use std::sync::{Arc, OnceLock};

use super::{Runtime, single_worker};
use crate::kernel;
use crate::scheduler::{Shared, Worker};
use crate::sync::StaticMutex;
use crate::sys::{PerProcess, start_thread};

#[derive(Default)]
struct Background {
    shared: OnceLock<Arc<Shared>>,
    starting: StaticMutex<()>,
}

static BACKGROUND: PerProcess<Background> = PerProcess::new(Background::default);

/// Returns the background runtime, and starts it if necessary.
///
/// # Errors
///
/// If it cannot be started because descriptors or threads are exhausted (the next call tries
/// again), or its thread has panicked.
pub(crate) fn shared() -> io::Result<&'static Arc<Shared>> {
    kernel::permit(super::ANOTHER_RUNTIME)?;
    let background = BACKGROUND.get();
    match background.shared.get() {
        Some(shared) if shared.is_closing() => Err(io::Error::other(
            "the background runtime has ended: its thread panicked",
        )),
        Some(shared) => Ok(shared),
        None => background.start(),
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

/// Spawns a detached task there.
///
/// # Errors
///
/// As [`shared`].
#[cfg(feature = "process")]
pub(crate) fn spawn_detached(task: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
    super::spawn::spawn_in(shared()?, task, Location::caller().into()).detach();
    Ok(())
}

impl Background {
    #[cold]
    fn start(&'static self) -> io::Result<&'static Arc<Shared>> {
        let _starting = self.starting.lock();
        if let Some(shared) = self.shared.get() {
            return Ok(shared);
        }
        // Only what cannot fail happens on the new thread.
        let shared = single_worker()?;
        let its_shared = shared.clone();
        let run = || {
            let runtime = Runtime::with_worker(Worker::new(its_shared));
            runtime.worker.drive_forever();
        };
        start_thread("polder-background", Box::new(run))?;
        Ok(self.shared.get_or_init(|| shared))
    }
}
