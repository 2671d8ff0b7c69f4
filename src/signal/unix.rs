//! The thread on Unix, and how a handler notifies it: by an eventfd, or by a socket pair where
//! eventfds do not exist or are refused.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use super::registry::{COUNTS, start_thread};
use crate::poller::error::failed;

/// The object that handlers notify. They share it, so it is never closed.
pub(super) type Thread = Arc<Wake>;

/// How long the thread sleeps after an unexpected error of `read`. It then checks the counters
/// anyway: a signal may be late, but is not lost.
const ERROR_PAUSE: Duration = Duration::from_millis(10);

/// Starts the thread, which waits to be notified and then checks the counters. signal-hook's
/// iterator is not used, since it panics if receiving fails with an error that it does not expect:
/// Ctrl-C would no longer work.
pub(super) fn start() -> io::Result<Thread> {
    let wake = Arc::new(Wake::new()?);
    let its_wake = wake.clone();
    start_thread(move || match its_wake.wait() {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => {
            std::thread::sleep(ERROR_PAUSE);
        }
        _ => {}
    })?;
    Ok(wake)
}

/// Whether the system has a signal with this number that programs may use: the C library reserves
/// some for itself.
pub(super) fn exists(number: i32) -> bool {
    // SAFETY: with both pointers null, `sigaction` only checks the number.
    let asked = || unsafe { libc::sigaction(number, ptr::null(), ptr::null_mut()) };
    (1..COUNTS.len() as i32).contains(&number) && asked() == 0
}

/// For handlers: makes one system call, `write`, which is async-signal-safe (signal-safety(7)); up
/// to eight, if it fails.
pub(super) fn notify(wake: &Thread) {
    wake.notify();
}

/// How often a handler tries to notify the thread, if it is interrupted or memory is short: it has
/// no other way to reach the thread.
const ATTEMPTS: usize = 8;

/// An eventfd, since writing to it needs no memory; a socket pair where that does not exist, or is
/// refused, as a sandbox may do.
#[derive(Debug)]
pub(super) struct Wake {
    /// Blocks.
    reader: OwnedFd,
    /// The other end of a socket pair, which never blocks. An eventfd has one descriptor, and would
    /// block only after 2^64 - 1 unread notifications.
    writer: Option<OwnedFd>,
}

impl Wake {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn new() -> io::Result<Wake> {
        use rustix::event::{EventfdFlags, eventfd};

        Wake::with(eventfd(0, EventfdFlags::CLOEXEC))
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn new() -> io::Result<Wake> {
        Wake::pair()
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn with(eventfd: rustix::io::Result<OwnedFd>) -> io::Result<Wake> {
        let writer = None;
        eventfd
            .map(|reader| Wake { reader, writer })
            .or_else(|refused| {
                // If one descriptor fails for lack of resources, two fail as well; we report the
                // first error.
                Wake::pair().map_err(|_| failed("eventfd", refused))
            })
    }

    fn pair() -> io::Result<Wake> {
        let (reader, writer) = UnixStream::pair().map_err(|error| failed("socketpair", error))?;
        writer.set_nonblocking(true)?;
        Ok(Wake {
            reader: reader.into(),
            writer: Some(writer.into()),
        })
    }

    fn wait(&self) -> io::Result<()> {
        rustix::io::read(&self.reader, &mut [0; 64])?;
        Ok(())
    }

    /// Called by handlers. If a socket has no room, unread bytes are pending, so the thread will
    /// check the counters.
    fn notify(&self) {
        let writer = self.writer.as_ref().unwrap_or(&self.reader);
        (0..ATTEMPTS).find(|_| {
            let written = rustix::io::write(writer, &1_u64.to_ne_bytes());
            matches!(written, Ok(_) | Err(rustix::io::Errno::AGAIN))
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Far more than any buffer has room for.
    const MANY: usize = 100_000;

    fn wakes() -> Vec<Wake> {
        vec![
            Wake::new().expect("one descriptor, or two"),
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Wake::with(Err(rustix::io::Errno::NOSYS)).expect("a socket pair"),
        ]
    }

    /// Calls `f` on another thread, within a minute.
    fn soon(what: &str, f: impl FnOnce() + Send + 'static) {
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || {
            f();
            done.send(()).expect("somebody waits for it");
        });
        (is_done.recv_timeout(Duration::from_secs(60))).unwrap_or_else(|_| panic!("{what}"));
    }

    #[test]
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn where_an_eventfd_is_refused_a_socket_pair_connects_handler_and_thread() {
        for refusal in [
            rustix::io::Errno::NOSYS,
            rustix::io::Errno::PERM,
            rustix::io::Errno::NOMEM,
        ] {
            let wake = Wake::with(Err(refusal)).expect("a socket pair is there");
            assert!(wake.writer.is_some(), "{wake:?}");
        }
    }

    #[test]
    fn handlers_never_block_however_late_the_thread_is_and_it_learns_that_something_came() {
        for wake in wakes().into_iter().map(Arc::new) {
            let notified = wake.clone();
            soon("a handler blocks", move || {
                (0..MANY).for_each(|_| notified.notify());
            });
            soon("what the handlers said is lost", move || {
                wake.wait().expect("it can be read");
            });
        }
    }

    #[test]
    fn a_notification_after_the_thread_has_read_all_others_is_not_lost() {
        for wake in wakes().into_iter().map(Arc::new) {
            for _ in 0..1_000 {
                wake.notify();
                wake.wait().expect("it can be read");
            }
            // No notification is left: the thread sleeps until the next one.
            let sleeper = wake.clone();
            let (woken, is_woken) = mpsc::channel();
            std::thread::spawn(move || woken.send(sleeper.wait()));
            let early = is_woken.recv_timeout(Duration::from_millis(20));
            assert!(early.is_err(), "it comes back for nothing: {early:?}");
            wake.notify();
            let woken = is_woken.recv_timeout(Duration::from_secs(60));
            woken.expect("it is woken").expect("it can be read");
        }
    }
}
