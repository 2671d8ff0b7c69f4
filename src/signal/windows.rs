//! The thread on Windows, and how a handler notifies it.
//!
//! The C library calls a handler on a separate thread, and resets the handler afterwards;
//! signal-hook installs it again. There is no pipe to write to, so the handler increments the
//! counter and unparks the thread.

use std::io;

use super::Signal;
use super::registry::start_thread;

pub(super) type Thread = std::thread::Thread;

pub(super) fn exists(number: i32) -> bool {
    let mut all = Signal::ALL.iter();
    all.any(|signal| signal.number() == Some(number))
}

pub(super) fn start() -> io::Result<Thread> {
    let listener = start_thread(std::thread::park)?;
    Ok(listener.thread().clone())
}

/// Windows has no masks.
pub(super) fn unblock(_: u128) {}

/// For handlers: unparks a thread, which takes no lock and allocates nothing.
pub(super) fn notify(listener: &Thread) {
    listener.unpark();
}
