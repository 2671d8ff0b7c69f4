//! The handler and the thread on Unix: a socket pair connects them.

use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::ptr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use signal_hook::low_level;

use super::registry::{COUNTS, Seen, thread};

/// The end of the pair that handlers write to. It is never closed.
pub(super) type Thread = UnixStream;

/// How long the thread sleeps after an unexpected error of `read`. It checks the counters all the
/// same: a signal is then late, and not lost.
const ERROR_PAUSE: Duration = Duration::from_millis(10);

/// Starts the thread, which reads from the other end and then checks the counters. signal-hook's
/// iterator is not used, since it panics if receiving fails with an error that it does not expect:
/// Ctrl-C would no longer work.
pub(super) fn start() -> io::Result<UnixStream> {
    let (mut reader, writer) = UnixStream::pair()?;
    thread().spawn(move || {
        let mut seen = Seen::new();
        loop {
            match reader.read(&mut [0; 64]) {
                Ok(length) if length > 0 => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => std::thread::sleep(ERROR_PAUSE),
            }
            seen.wake_waiters();
        }
    })?;
    Ok(writer)
}

/// Returns whether the system has a signal with this number that programs may use: the C library
/// reserves some for itself.
pub(super) fn exists(number: i32) -> bool {
    // SAFETY: with both pointers null, `sigaction` only checks the number.
    let asked = || unsafe { libc::sigaction(number, ptr::null(), ptr::null_mut()) };
    (1..COUNTS.len() as i32).contains(&number) && asked() == 0
}

pub(super) fn register(writer: &UnixStream, number: usize) -> io::Result<()> {
    let (count, writer) = (&COUNTS[number], writer.as_raw_fd());
    // SAFETY: the handler does an atomic addition and calls `send`, both of which are
    // async-signal-safe (signal-safety(7)). The descriptor is kept in `REGISTRY` and never closed.
    unsafe {
        low_level::register(number as i32, move || {
            count.fetch_add(1, Ordering::SeqCst);
            notify(BorrowedFd::borrow_raw(writer));
        })?;
    }
    Ok(())
}

/// Called by the handler: wakes the thread. If there is no room for the byte, the thread has others
/// to read and will check the counters. If the kernel is short of memory, a few more attempts are
/// made: there is no other way to reach the thread.
fn notify(writer: BorrowedFd<'_>) {
    const ATTEMPTS: usize = 8;
    (0..ATTEMPTS).find(|_| {
        let sent = rustix::net::send(writer, &[1], rustix::net::SendFlags::DONTWAIT);
        matches!(sent, Ok(_) | Err(rustix::io::Errno::AGAIN))
    });
}
