//! The number of the process's open sockets, by kind.
//!
//! Sockets belong to no runtime, so they are counted for the process. Only this shows a leak of
//! connections that no task waits for. A source counts from its creation until its last handle is
//! dropped, so clones count once. Two atomic additions are negligible beside a socket's system
//! calls, even under contention.
//!
//! Sockets of simulated worlds do not count: other activity of the process must not change what a
//! world sees.

use std::sync::atomic::AtomicUsize;

pub(crate) use crate::kernel::sockets::SocketType;

/// Descriptors in an `Async`.
const ASYNC: usize = SocketType::UnixDatagram as usize + 1;

/// Not loom's atomics, which cannot be in a static; they synchronise nothing.
static OPEN: [AtomicUsize; ASYNC + 1] = [const { AtomicUsize::new(0) }; ASYNC + 1];

/// Returns the number of open sockets of a type, or of descriptors in an `Async`, which have none.
pub(crate) fn open_sockets(socket_type: Option<SocketType>) -> &'static AtomicUsize {
    &OPEN[socket_type.map_or(ASYNC, |socket_type| socket_type as usize)]
}
