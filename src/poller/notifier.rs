//! What another thread writes to, so that a wait returns: an eventfd, or a pair of sockets where
//! there is none.

use std::io;

use super::BorrowedDescriptor;
use crate::sync::atomic::{AtomicBool, Ordering};

/// A descriptor that becomes readable when somebody calls [`notify`](Notifier::notify).
///
/// **Why no notification is lost.** `pending` says that a byte is in the descriptor or about to be
/// written. Only the caller that turns it on writes. The waiter turns it off when it saw the byte:
/// by [`consume`](Notifier::consume) where the byte has to be taken out, which it does *before*
/// turning `pending` off, so that it can never take out the byte of a later call; by
/// [`acknowledge`](Notifier::acknowledge) where the descriptor is watched for edges and never has
/// to be read. A call that finds `pending` on needs no byte of its own: the wait that will turn it
/// off returns after that call, and the turning off (`AcqRel`) makes visible what the caller did
/// before.
pub(super) struct Notifier {
    pending: AtomicBool,
    imp: imp::Imp,
}

impl Notifier {
    pub(super) fn new() -> io::Result<Notifier> {
        Ok(Notifier {
            pending: AtomicBool::new(false),
            imp: imp::Imp::new()?,
        })
    }

    pub(super) fn notify(&self) -> io::Result<()> {
        if !self.pending.swap(true, Ordering::AcqRel) {
            self.imp.write()?;
        }
        Ok(())
    }

    /// Makes the descriptor readable without a notification: whoever waits comes round and looks.
    pub(super) fn kick(&self) -> io::Result<()> {
        self.imp.write()
    }

    /// The descriptor was seen readable: empties it, and says whether there was a notification.
    pub(super) fn consume(&self) -> bool {
        self.imp.drain();
        self.acknowledge()
    }

    /// As [`consume`](Self::consume), where the descriptor is watched for edges.
    pub(super) fn acknowledge(&self) -> bool {
        self.pending.swap(false, Ordering::AcqRel)
    }

    pub(super) fn descriptor(&self) -> BorrowedDescriptor<'_> {
        self.imp.descriptor()
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod imp {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::{AsFd, OwnedFd};

    pub(super) struct Imp(OwnedFd);

    impl Imp {
        pub(super) fn new() -> io::Result<Imp> {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            Ok(Imp(eventfd(0, flags)?))
        }

        pub(super) fn write(&self) -> io::Result<()> {
            match rustix::io::write(&self.0, &1u64.to_ne_bytes()) {
                // The counter is at its end, after 2^64 - 2 writes: it is readable.
                Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }

        pub(super) fn drain(&self) {
            let _ = rustix::io::read(&self.0, &mut [0; 8]);
        }

        pub(super) fn descriptor(&self) -> BorrowedDescriptor<'_> {
            self.0.as_fd()
        }
    }
}

#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
mod imp {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    pub(super) struct Imp {
        read: UnixStream,
        write: UnixStream,
    }

    impl Imp {
        pub(super) fn new() -> io::Result<Imp> {
            // A pair of sockets rather than a pipe: the standard library makes it close-on-exec
            // on every Unix.
            let (read, write) = UnixStream::pair()?;
            read.set_nonblocking(true)?;
            write.set_nonblocking(true)?;
            Ok(Imp { read, write })
        }

        pub(super) fn write(&self) -> io::Result<()> {
            match (&self.write).write(&[1]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => self.write(),
                // Full is readable.
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
                _ => Ok(()),
            }
        }

        pub(super) fn drain(&self) {
            let mut bytes = [0; 64];
            while matches!((&self.read).read(&mut bytes), Ok(n) if n == bytes.len()) {}
        }

        pub(super) fn descriptor(&self) -> BorrowedDescriptor<'_> {
            self.read.as_fd()
        }
    }
}
