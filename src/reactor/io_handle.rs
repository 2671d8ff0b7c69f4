//! [`Io`]: the counted handle by which a socket, or an `Async`, holds its source.
//!
//! Clones share the source, and each is a waiter of its own. The last handle deregisters the source
//! when it is dropped, so that the descriptor closes there and then.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::readiness::WaiterId;
#[cfg(feature = "net")]
use super::source::SocketTraits;
use super::source::{Held, ReadinessPolicy, Source, SourceKind};
#[cfg(feature = "net")]
use crate::kernel::{Boxed, sockets};
use crate::sync::atomic::Ordering;
use crate::sync::drop_all;
use crate::sys::{self, BorrowedDescriptor, OwnedDescriptor};
use crate::telemetry::{Open, SocketType};

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
    /// Takes over a descriptor, which must be non-blocking.
    pub(crate) fn new(
        descriptor: OwnedDescriptor,
        kind: SourceKind,
        policy: ReadinessPolicy,
    ) -> Io {
        Io::with(Held::Owned(descriptor), kind, policy)
    }

    #[cfg(feature = "net")]
    pub(crate) fn of_kernel(socket: Boxed<dyn sockets::Socket>, kind: SourceKind) -> Io {
        Io::with(Held::OfKernel(socket), kind, ReadinessPolicy::Cached)
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
        Io::with(
            Held::Borrowed(descriptor),
            SourceKind::Borrowed,
            ReadinessPolicy::AskKernel,
        )
    }

    fn with(held: Held, kind: SourceKind, policy: ReadinessPolicy) -> Io {
        Io {
            source: Arc::new(Source::new(held, kind, policy)),
            id: WaiterId::handle(0),
        }
    }

    /// Counts the new source among the open sockets, or among those of `Async`, which have no type.
    pub(crate) fn counted(mut self, socket_type: Option<SocketType>) -> Io {
        let source = Arc::get_mut(&mut self.source).expect("nobody else has it yet");
        source.open = Some(Open::new(socket_type));
        self
    }

    /// Records what the new source is as a socket.
    #[cfg(feature = "net")]
    pub(crate) fn of_socket(mut self, socket: SocketTraits) -> Io {
        let source = Arc::get_mut(&mut self.source).expect("nobody else has it yet");
        source.socket = Some(socket);
        self
    }

    #[inline]
    pub(crate) fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// Returns this handle's identity as a waiter.
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
        let mut wakers = Vec::new();
        let left = {
            let mut state = source.readiness.lock();
            state.waiters.take_all(&mut wakers);
            source.deregister(std::mem::take(&mut state.registrations))
        };
        left.free_tokens();
        drop_all(wakers);
    }
}
