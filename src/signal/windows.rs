//! The thread for signals on Windows, which handlers unpark: there is no pipe to write to. The C
//! library calls a handler on a separate thread, and resets it afterwards; signal-hook installs it
//! again.

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

/// Called by handlers: unparking takes no lock and does not allocate.
pub(super) fn notify(listener: &Thread) {
    listener.unpark();
}
