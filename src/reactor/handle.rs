//! The counted handle of a [`Source`].

use std::fmt;
use std::io;
use std::sync::Arc;

use super::readiness::WaiterId;
use super::source::{Held, SocketTraits, Source};
use crate::sync::atomic::Ordering;
use crate::sync::drop_all;
use crate::sys::{self, BorrowedDescriptor, OwnedDescriptor};
use crate::telemetry::open_sockets;

/// The counted handle by which a socket, or an `Async`, holds its source. Each clone is a waiter of
/// its own.
pub(crate) struct Io {
    source: Arc<Source>,
    id: WaiterId,
}

/// Without the source, its waiters and its reactors.
impl fmt::Debug for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Io")
    }
}

impl Io {
    /// A descriptor must be non-blocking. Without `traits` it is no socket of `net`, and nothing is
    /// known of it.
    pub(crate) fn new(held: Held, traits: Option<SocketTraits>) -> Io {
        let io = Io {
            source: Arc::new(Source::new(held, traits)),
            id: WaiterId::handle(0),
        };
        if let Some(open) = io.open_sockets() {
            open.fetch_add(1, Ordering::Relaxed);
        }
        io
    }

    /// Waits for a descriptor that its owner keeps. It must be non-blocking, and must not be a
    /// file.
    ///
    /// # Safety
    ///
    /// The descriptor must stay open until the last handle is dropped.
    pub(crate) unsafe fn borrowed(descriptor: BorrowedDescriptor<'_>) -> Io {
        // SAFETY: the caller promises it.
        let descriptor = unsafe { sys::lend(descriptor) };
        Io::new(Held::Borrowed(descriptor), None)
    }

    fn open_sockets(&self) -> Option<&'static std::sync::atomic::AtomicUsize> {
        let socket_type = self.source.traits.map(|traits| traits.socket_type);
        let is_counted = self.source.descriptor_or_custom().is_ok();
        is_counted.then(|| open_sockets(socket_type))
    }

    #[inline]
    pub(crate) fn source(&self) -> &Arc<Source> {
        &self.source
    }

    #[inline]
    pub(crate) fn id(&self) -> WaiterId {
        self.id
    }

    /// Returns an identity for a future, which waits for one operation and is then
    /// [removed](Self::remove_waiter).
    pub(crate) fn new_future_id(&self) -> WaiterId {
        WaiterId::future(self.source.next_id())
    }

    /// Returns an identity for a waiter that waits again and again.
    pub(crate) fn new_handle_id(&self) -> WaiterId {
        WaiterId::handle(self.source.next_id())
    }

    /// Drops the wakers of a waiter that no longer waits.
    pub(crate) fn remove_waiter(&self, id: WaiterId) {
        let wakers = self.source.readiness.remove_waiter(id);
        drop_all(wakers.into_iter().flatten());
    }

    /// Returns the descriptor itself, deregistered; or a duplicate of it if other handles share it.
    ///
    /// # Errors
    ///
    /// If another kernel has the socket, or no descriptor is free.
    pub(crate) fn into_descriptor(self) -> io::Result<OwnedDescriptor> {
        let source = self.source.clone();
        drop(self);
        match Arc::try_unwrap(source) {
            Ok(Source {
                held: Held::Owned(descriptor),
                ..
            }) => Ok(descriptor),
            Ok(source) => source.descriptor()?.try_clone_to_owned(),
            Err(source) => source.descriptor()?.try_clone_to_owned(),
        }
    }
}

impl Clone for Io {
    fn clone(&self) -> Io {
        self.source.handles.fetch_add(1, Ordering::Relaxed);
        Io {
            id: self.new_handle_id(),
            source: self.source.clone(),
        }
    }
}

impl Drop for Io {
    fn drop(&mut self) {
        let source = &self.source;
        if source.handles.fetch_sub(1, Ordering::AcqRel) > 1 {
            return self.remove_waiter(self.id);
        }
        if let Some(open) = self.open_sockets() {
            open.fetch_sub(1, Ordering::Relaxed);
        }
        source.detach();
    }
}
