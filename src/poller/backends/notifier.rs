//! The notifier, which ends a wait from another thread: an eventfd, or else a socket pair.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::{Errno, retry_on_intr};

use crate::poller::error::failed;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sys::BorrowedDescriptor;

/// A descriptor that becomes readable when a thread calls [`notify`](Notifier::notify).
///
/// **Why no notification is lost.** `state` is two bits and a count of rounds: `PENDING`, a thread
/// has notified in this round; `WRITTEN`, and the descriptor has a byte for it.
///
/// A call sets `PENDING`. If both bits were set already, it is done: the waiter that will clear
/// them has yet to see the byte, and returns after this call. Otherwise the caller writes a byte
/// *itself*, since another caller's write may fail. Then it sets `WRITTEN`, if the round is still
/// the same. The caller that set `PENDING` began the round; if its write fails, and no other
/// caller's has succeeded, it also ends the round, so that the next call writes again. A round can
/// end during a call: if the call began it, the waiter has seen the call; if not, the call may be
/// unseen, and starts over.
///
/// The waiter ends the round when it has seen the byte: by [`consume`](Notifier::consume), which
/// takes the byte out *before*, so that it cannot take out the byte of a later round, or, if the
/// descriptor is edge-triggered, by [`acknowledge`](Notifier::acknowledge). Ending the round
/// (`AcqRel`) makes the callers' earlier writes visible. A byte without `PENDING` is left over, or
/// a [`wake`](Notifier::wake): the waiter handles changes, and its wait continues.
pub(super) struct Notifier<W = WakeDescriptor> {
    state: AtomicU32,
    wake_source: W,
}

const PENDING: u32 = 1;
const WRITTEN: u32 = 2;
/// 2^30 rounds between two steps of one call would be unnoticed.
const ROUND: u32 = 4;

pub(super) trait WakeSource {
    /// Does nothing if it is full, since then it is readable.
    fn write(&self) -> io::Result<()>;

    fn drain(&self);

    /// Whether it must be emptied even if it is edge-triggered: writing to a full one causes no
    /// edge.
    #[cfg_attr(
        not(any(target_os = "linux", target_os = "android")),
        allow(dead_code, reason = "not everywhere is it watched for edges")
    )]
    fn is_bounded(&self) -> bool;
}

impl Notifier {
    pub(super) fn new() -> io::Result<Notifier> {
        Ok(Notifier::with(WakeDescriptor::new()?))
    }

    pub(super) fn descriptor(&self) -> BorrowedDescriptor<'_> {
        self.wake_source.descriptor()
    }
}

impl<W: WakeSource> Notifier<W> {
    pub(super) fn with(wake_source: W) -> Notifier<W> {
        Notifier {
            state: AtomicU32::new(0),
            wake_source,
        }
    }

    pub(super) fn notify(&self) -> io::Result<()> {
        loop {
            let before = self.state.fetch_or(PENDING, Ordering::AcqRel);
            if before & WRITTEN != 0 {
                return Ok(());
            }
            let began = before & PENDING == 0;
            let mine = before | PENDING;
            let result = self.wake_source.write();
            let after = match result {
                Ok(()) => mine | WRITTEN,
                Err(_) if began => end_of(mine),
                // The caller that began the round may still write.
                Err(_) => mine,
            };
            match (self.state).compare_exchange(mine, after, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return result,
                // Another call of this round has written.
                Err(now) if now == mine | WRITTEN => return Ok(()),
                // Only the caller that began a round, and the waiter, can end it.
                Err(_) if began => return Ok(()),
                Err(_) => result?,
            }
        }
    }

    /// Makes the waiter handle changes, without a notification.
    pub(super) fn wake(&self) -> io::Result<()> {
        self.wake_source.write()
    }

    /// Empties the descriptor, which was seen readable; returns whether there was a notification.
    pub(super) fn consume(&self) -> bool {
        self.wake_source.drain();
        self.reset()
    }

    /// [`consume`](Self::consume) for an edge-triggered descriptor.
    #[cfg_attr(
        not(any(target_os = "linux", target_os = "android")),
        allow(dead_code, reason = "not everywhere is it watched for edges")
    )]
    pub(super) fn acknowledge(&self) -> bool {
        if self.wake_source.is_bounded() {
            self.wake_source.drain();
        }
        self.reset()
    }

    /// Returns whether there was a notification. The byte may still be there. A backend calls this
    /// too if its buffer was full: the event of a notification may be left for the next wait, and
    /// then does not end that one.
    pub(super) fn reset(&self) -> bool {
        // A waiter that saw the byte sees what its writer set before: the kernel has a lock for it.
        let mut now = self.state.load(Ordering::Acquire);
        while now & PENDING != 0 {
            let end = end_of(now);
            match (self.state).compare_exchange(now, end, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(changed) => now = changed,
            }
        }
        false
    }
}

fn end_of(state: u32) -> u32 {
    (state & !(PENDING | WRITTEN)).wrapping_add(ROUND)
}

/// An eventfd, since writing to it needs no memory; a socket pair where there is none, or where a
/// sandbox refuses it.
#[derive(Debug)]
pub(crate) struct WakeDescriptor {
    reader: OwnedFd,
    /// The other end of a socket pair. An eventfd has one descriptor, and is full only after 2^64 -
    /// 2 writes.
    writer: Option<OwnedFd>,
}

impl WakeDescriptor {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn new() -> io::Result<WakeDescriptor> {
        WakeDescriptor::or_pair(WakeDescriptor::eventfd())
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) fn new() -> io::Result<WakeDescriptor> {
        WakeDescriptor::pair()
    }

    /// Falls back to a pair. If there is no descriptor for an eventfd, there are none for a pair
    /// either.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn or_pair(eventfd: io::Result<WakeDescriptor>) -> io::Result<WakeDescriptor> {
        eventfd.or_else(|refused| WakeDescriptor::pair().map_err(|_| refused))
    }

    /// Makes an eventfd, and never a pair: for the kernel to write to.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn eventfd() -> io::Result<WakeDescriptor> {
        use rustix::event::{EventfdFlags, eventfd};

        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(WakeDescriptor {
            reader: made.map_err(|error| failed("eventfd", error))?,
            writer: None,
        })
    }

    fn pair() -> io::Result<WakeDescriptor> {
        // Not a pipe: the standard library makes a pair close-on-exec on every Unix.
        let (reader, writer) = UnixStream::pair().map_err(|error| failed("socketpair", error))?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        Ok(WakeDescriptor {
            reader: reader.into(),
            writer: Some(writer.into()),
        })
    }

    pub(crate) fn descriptor(&self) -> BorrowedDescriptor<'_> {
        self.reader.as_fd()
    }

    /// Calls `write` once, as a signal handler may. If it is full, it is readable.
    pub(crate) fn try_write(&self) -> rustix::io::Result<()> {
        let writer = self.writer.as_ref().unwrap_or(&self.reader);
        match rustix::io::write(writer, &1_u64.to_ne_bytes()) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl WakeSource for WakeDescriptor {
    fn write(&self) -> io::Result<()> {
        retry_on_intr(|| self.try_write()).map_err(|error| {
            let call = match self.writer {
                None => "write to an eventfd",
                Some(_) => "write to a socket pair",
            };
            failed(call, error)
        })
    }

    // Separate, so that the loop over events, which calls it, has more registers.
    #[inline(never)]
    fn drain(&self) {
        const ROOM: usize = 64;
        // A read that failed leaves the byte, and the next wait wakes up once more.
        let read = || rustix::io::read(&self.reader, &mut [0; ROOM]);
        while retry_on_intr(read) == Ok(ROOM) {}
    }

    fn is_bounded(&self) -> bool {
        self.writer.is_some()
    }
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;

    #[test]
    fn refused_eventfd_falls_back_to_socket_pair() {
        for refusal in [Errno::NOSYS, Errno::PERM, Errno::NOMEM] {
            let made =
                WakeDescriptor::or_pair(Err(refusal.into())).expect("a socket pair is there");
            assert!(made.writer.is_some(), "{made:?}");
        }
    }
}

/// The descriptor is a mutex, which orders as the kernel's lock does. Left out: a full descriptor,
/// and an edge-triggered waiter, which acts like one that drains.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::Mutex;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicUsize, Ordering as O};

    struct Fake {
        bytes: Mutex<usize>,
        failures: Mutex<usize>,
        readable: loom::sync::Condvar,
    }

    impl WakeSource for Fake {
        fn write(&self) -> io::Result<()> {
            let mut failures = self.failures.lock();
            if *failures > 0 {
                *failures -= 1;
                return Err(io::ErrorKind::Other.into());
            }
            drop(failures);
            *self.bytes.lock() += 1;
            self.readable.notify_one();
            Ok(())
        }

        fn drain(&self) {
            *self.bytes.lock() = 0;
        }

        fn is_bounded(&self) -> bool {
            true
        }
    }

    struct Model {
        notifier: Notifier<Fake>,
        things: AtomicUsize,
    }

    impl Model {
        fn new(failures: usize) -> Arc<Model> {
            Arc::new(Model {
                notifier: Notifier::with(Fake {
                    bytes: Mutex::new(0),
                    failures: Mutex::new(failures),
                    readable: loom::sync::Condvar::new(),
                }),
                things: AtomicUsize::new(0),
            })
        }

        fn bring(&self) {
            self.things.fetch_add(1, O::Relaxed);
            while self.notifier.notify().is_err() {}
        }

        /// Loom fails the model if it waits forever.
        fn wait(&self) {
            loop {
                let mut bytes = self.notifier.wake_source.bytes.lock();
                while *bytes == 0 {
                    bytes = self.notifier.wake_source.readable.wait(bytes).unwrap();
                }
                drop(bytes);
                if self.notifier.consume() {
                    return;
                }
            }
        }

        fn work(&self, total: usize) {
            while self.things.load(O::Relaxed) < total {
                self.wait();
            }
        }
    }

    fn check(failures: usize, bringers: usize, wakes: bool) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let world = Model::new(failures);
            let threads: Vec<_> = (0..bringers)
                .map(|_| {
                    let world = world.clone();
                    loom::thread::spawn(move || world.bring())
                })
                .collect();
            if wakes {
                world.notifier.wake().unwrap();
            }
            world.work(bringers);
            for thread in threads {
                thread.join().unwrap();
            }
        });
    }

    /// A notification before during or after the end of a wait is never lost.
    #[test]
    fn notification_never_lost_around_wait_end() {
        check(0, 2, false);
    }

    /// A notification is not lost to a concurrent one that fails to write.
    #[test]
    fn notification_not_lost_to_failed_write() {
        check(1, 2, false);
    }

    #[test]
    fn a_wake_takes_no_notification_away() {
        check(0, 1, true);
    }

    /// No notification ends a wait after the one that it has ended.
    #[test]
    fn notification_ends_one_wait_only() {
        loom::model(|| {
            let world = Model::new(0);
            world.notifier.notify().unwrap();
            let bringer = {
                let world = world.clone();
                loom::thread::spawn(move || world.notifier.notify().unwrap())
            };
            world.wait();
            bringer.join().unwrap();
            // The second was merged with the first, or is later.
            let left = world.notifier.consume();
            assert!(!world.notifier.consume(), "reported twice, or three times");
            let _ = left;
        });
    }
}
