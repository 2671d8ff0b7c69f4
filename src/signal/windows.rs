//! The handler and the thread on Windows.
//!
//! The C library calls a handler on a thread of its own, and forgets the handler afterwards;
//! signal-hook installs it again. There is no pipe to write to, so the handler increments the
//! counter and unparks the thread.

use std::io;
use std::sync::atomic::Ordering;

use signal_hook::low_level;

use super::Signal;
use super::registry::{COUNTS, Seen, start_thread};

pub(super) type Thread = std::thread::Thread;

pub(super) fn exists(number: i32) -> bool {
    let mut all = Signal::ALL.iter();
    all.any(|signal| signal.number() == Some(number))
}

pub(super) fn start() -> io::Result<Thread> {
    let listener = start_thread(|| {
        let mut seen = Seen::new();
        loop {
            std::thread::park();
            seen.wake_waiters();
        }
    })?;
    Ok(listener.thread().clone())
}

pub(super) fn register(listener: &Thread, number: usize) -> io::Result<()> {
    let (count, number, listener) = (&COUNTS[number], number as i32, listener.clone());
    // SAFETY: the handler adds to an atomic and unparks a thread, which takes no lock and
    // allocates nothing.
    unsafe {
        low_level::register(number, move || {
            count.fetch_add(1, Ordering::SeqCst);
            listener.unpark();
        })?;
    }
    Ok(())
}
