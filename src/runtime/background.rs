//! The runtime for threads that have none: one worker on a thread of its own, started on first use,
//! there until the process ends.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use super::busy::Limits;
use super::{Runtime, alone};
use crate::task::team::Team;

static BACKGROUND: OnceLock<Arc<Team>> = OnceLock::new();

/// Held while starting, so that one thread does.
static STARTING: Mutex<()> = Mutex::new(());

/// The background runtime: a team of one.
///
/// # Errors
///
/// Where it cannot be started, for want of descriptors or threads. The next call tries again.
pub(crate) fn team() -> io::Result<&'static Arc<Team>> {
    match BACKGROUND.get() {
        Some(team) if team.is_closing() => Err(io::Error::other(
            "the background runtime has ended: its thread panicked",
        )),
        Some(team) => Ok(team),
        None => start(),
    }
}

#[cold]
fn start() -> io::Result<&'static Arc<Team>> {
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(team) = BACKGROUND.get() {
        return Ok(team);
    }
    // Whatever can fail is done here; the worker is the new thread's own.
    let team = alone()?;
    let its_team = team.clone();
    thread::Builder::new()
        .name("polder-background".into())
        .spawn(move || Runtime::of(its_team, Limits::default()).worker.drive_on())?;
    Ok(BACKGROUND.get_or_init(|| team))
}
