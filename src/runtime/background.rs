//! The runtime for threads that have none: one worker on a thread of its own, started on first use,
//! there until the process ends.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread;

use super::Runtime;
use crate::task::queue::Home;

static BACKGROUND: OnceLock<Arc<Home>> = OnceLock::new();

/// Held while starting, so that one thread does.
static STARTING: Mutex<()> = Mutex::new(());

/// The background runtime's worker.
///
/// # Errors
///
/// Where it cannot be started, for want of descriptors or threads. The next call tries again.
pub(crate) fn home() -> io::Result<&'static Arc<Home>> {
    match BACKGROUND.get() {
        Some(home) if home.reactor.is_closed() => Err(io::Error::other(
            "the background runtime has ended: its thread panicked",
        )),
        Some(home) => Ok(home),
        None => start(),
    }
}

#[cold]
fn start() -> io::Result<&'static Arc<Home>> {
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(home) = BACKGROUND.get() {
        return Ok(home);
    }
    // A runtime is driven by the thread that makes it.
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::Builder::new()
        .name("polder-background".into())
        .spawn(move || {
            let runtime = match Runtime::new() {
                Ok(runtime) => runtime,
                Err(error) => {
                    let _ = sender.send(Err(error));
                    return;
                }
            };
            let _ = sender.send(Ok(runtime.worker.home().clone()));
            runtime.block_on(std::future::pending::<()>())
        })?;
    let home = receiver
        .recv()
        .map_err(|_| io::Error::other("the background runtime did not start"))??;
    Ok(BACKGROUND.get_or_init(|| home))
}
