//! The handler and the thread on Unix: an eventfd or a socket pair connects them.

use std::io;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use signal_hook::low_level;

use super::registry::{COUNTS, Seen, start_thread};

/// What handlers notify. They share it, so it is never closed.
pub(super) type Thread = Arc<Wake>;

/// How long the thread sleeps after an unexpected error of `read`. It checks the counters all the
/// same: a signal is then late, and not lost.
const ERROR_PAUSE: Duration = Duration::from_millis(10);

/// Starts the thread, which waits to be notified and then checks the counters. signal-hook's
/// iterator is not used, since it panics if receiving fails with an error that it does not expect:
/// Ctrl-C would no longer work.
pub(super) fn start() -> io::Result<Thread> {
    let wake = Arc::new(Wake::new()?);
    let its_wake = wake.clone();
    start_thread(move || {
        let mut seen = Seen::new();
        loop {
            match its_wake.wait() {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    std::thread::sleep(ERROR_PAUSE);
                }
                _ => {}
            }
            seen.wake_waiters();
        }
    })?;
    Ok(wake)
}

/// Returns whether the system has a signal with this number that programs may use: the C library
/// reserves some for itself.
pub(super) fn exists(number: i32) -> bool {
    // SAFETY: with both pointers null, `sigaction` only checks the number.
    let asked = || unsafe { libc::sigaction(number, ptr::null(), ptr::null_mut()) };
    (1..COUNTS.len() as i32).contains(&number) && asked() == 0
}

pub(super) fn register(wake: &Thread, number: usize) -> io::Result<()> {
    let (count, wake) = (&COUNTS[number], wake.clone());
    // SAFETY: the handler does an atomic addition and makes one system call, `write` or `send`,
    // both of which are async-signal-safe (signal-safety(7)). It allocates nothing and takes no
    // lock.
    unsafe {
        low_level::register(number as i32, move || {
            count.fetch_add(1, Ordering::SeqCst);
            wake.notify();
        })?;
    }
    Ok(())
}

/// How often a handler tries to notify the thread, if it is interrupted or memory is short: there
/// is no other way to reach it.
const ATTEMPTS: usize = 8;

/// An eventfd, since writing to it needs no memory.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod imp {
    use std::io;
    use std::os::fd::OwnedFd;

    use rustix::event::{EventfdFlags, eventfd};

    use super::ATTEMPTS;

    #[derive(Debug)]
    pub(in crate::signal) struct Wake(OwnedFd);

    impl Wake {
        pub(super) fn new() -> io::Result<Wake> {
            Ok(Wake(eventfd(0, EventfdFlags::CLOEXEC)?))
        }

        pub(super) fn wait(&self) -> io::Result<()> {
            rustix::io::read(&self.0, &mut [0; 8])?;
            Ok(())
        }

        /// Called by handlers. (It would block at 2^64 - 1 notifications that nobody has read.)
        pub(super) fn notify(&self) {
            let write = || rustix::io::write(&self.0, &1_u64.to_ne_bytes());
            (0..ATTEMPTS).find(|_| write().is_ok());
        }
    }
}

/// A socket pair.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod imp {
    use std::io::{self, Read};
    use std::os::unix::net::UnixStream;

    use super::ATTEMPTS;

    #[derive(Debug)]
    pub(in crate::signal) struct Wake {
        reader: UnixStream,
        writer: UnixStream,
    }

    impl Wake {
        pub(super) fn new() -> io::Result<Wake> {
            let (reader, writer) = UnixStream::pair()?;
            Ok(Wake { reader, writer })
        }

        pub(super) fn wait(&self) -> io::Result<()> {
            (&self.reader).read(&mut [0; 64]).map(drop)
        }

        /// Called by handlers. If there is no room for the byte, the thread has others to read and
        /// will check the counters.
        pub(super) fn notify(&self) {
            (0..ATTEMPTS).find(|_| {
                let sent = rustix::net::send(&self.writer, &[1], rustix::net::SendFlags::DONTWAIT);
                matches!(sent, Ok(_) | Err(rustix::io::Errno::AGAIN))
            });
        }
    }
}

pub(super) use imp::Wake;
