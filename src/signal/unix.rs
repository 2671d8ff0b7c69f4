//! The thread on Unix, and how a handler notifies it: by an eventfd, or by a socket pair where
//! eventfds do not exist or are refused.

use std::io;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use super::registry::{COUNTS, Seen, start_thread};

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

/// Whether the system has a signal with this number that programs may use: the C library reserves
/// some for itself.
pub(super) fn exists(number: i32) -> bool {
    // SAFETY: with both pointers null, `sigaction` only checks the number.
    let asked = || unsafe { libc::sigaction(number, ptr::null(), ptr::null_mut()) };
    (1..COUNTS.len() as i32).contains(&number) && asked() == 0
}

/// For handlers: makes one system call, `write` or `send`, both of which are async-signal-safe
/// (signal-safety(7)); up to eight, if it fails.
pub(super) fn notify(wake: &Thread) {
    wake.notify();
}

/// How often a handler tries to notify the thread, if it is interrupted or memory is short: it has
/// no other way to reach the thread.
const ATTEMPTS: usize = 8;

/// An eventfd, since writing to it needs no memory; a socket pair where that is refused.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod imp {
    use std::io;
    use std::os::fd::OwnedFd;

    use rustix::event::{EventfdFlags, eventfd};

    use super::ATTEMPTS;
    use super::pair::Pair;
    use crate::poller::error::failed;

    #[derive(Debug)]
    pub(in crate::signal) enum Wake {
        Eventfd(OwnedFd),
        /// Sandboxes may refuse an eventfd.
        Pair(Pair),
    }

    impl Wake {
        pub(super) fn new() -> io::Result<Wake> {
            Wake::with(eventfd(0, EventfdFlags::CLOEXEC))
        }

        pub(super) fn with(eventfd: rustix::io::Result<OwnedFd>) -> io::Result<Wake> {
            eventfd.map(Wake::Eventfd).or_else(|refused| {
                // If one descriptor fails for lack of resources, two fail as well; we report the
                // first error.
                let pair = Pair::new().map(Wake::Pair);
                pair.map_err(|_| failed("eventfd", refused))
            })
        }

        pub(super) fn wait(&self) -> io::Result<()> {
            match self {
                Wake::Eventfd(eventfd) => rustix::io::read(eventfd, &mut [0; 8])
                    .map(drop)
                    .map_err(io::Error::from),
                Wake::Pair(pair) => pair.wait(),
            }
        }

        /// Called by handlers. (An eventfd would block only after 2^64 - 1 unread notifications.)
        pub(super) fn notify(&self) {
            let eventfd = match self {
                Wake::Eventfd(eventfd) => eventfd,
                Wake::Pair(pair) => return pair.notify(),
            };
            let write = || rustix::io::write(eventfd, &1_u64.to_ne_bytes());
            (0..ATTEMPTS).find(|_| write().is_ok());
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod imp {
    pub(in crate::signal) use super::pair::Pair as Wake;
}

mod pair {
    use std::io::{self, Read};
    use std::os::unix::net::UnixStream;

    use super::ATTEMPTS;
    use crate::poller::error::failed;

    /// The reading end blocks, and the writing end never does.
    #[derive(Debug)]
    pub(in crate::signal) struct Pair {
        reader: UnixStream,
        writer: UnixStream,
    }

    impl Pair {
        pub(super) fn new() -> io::Result<Pair> {
            let (reader, writer) =
                UnixStream::pair().map_err(|error| failed("socketpair", error))?;
            Ok(Pair { reader, writer })
        }

        pub(super) fn wait(&self) -> io::Result<()> {
            (&self.reader).read(&mut [0; 64]).map(drop)
        }

        /// Called by handlers. If there is no room for the byte, unread bytes are pending, so the
        /// thread will check the counters.
        pub(super) fn notify(&self) {
            (0..ATTEMPTS).find(|_| {
                let sent = rustix::net::send(&self.writer, &[1], rustix::net::SendFlags::DONTWAIT);
                matches!(sent, Ok(_) | Err(rustix::io::Errno::AGAIN))
            });
        }
    }
}

pub(super) use imp::Wake;

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
            assert!(matches!(wake, Wake::Pair(_)), "{wake:?}");
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
