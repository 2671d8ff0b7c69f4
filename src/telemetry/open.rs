//! The number of the process's open sockets, by kind.
//!
//! Sockets belong to no runtime, so they are counted for the process. Only this shows a leak of
//! connections that no task waits for. A source holds an [`Open`] from its creation until it is
//! closed or given away, so clones count once. Two atomic additions are negligible beside a
//! socket's system calls, even under contention.
//!
//! Sockets of simulated worlds do not count: other activity of the process must not change what a
//! world sees.

use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use crate::kernel::sockets::SocketType;

/// Descriptors in an `Async`.
const ASYNC: usize = SocketType::UnixDatagram as usize + 1;

/// Not loom's atomics, which cannot be in a static; they synchronise nothing.
static OPEN: [AtomicUsize; ASYNC + 1] = [const { AtomicUsize::new(0) }; ASYNC + 1];

fn count_of(socket_type: Option<SocketType>) -> &'static AtomicUsize {
    &OPEN[socket_type.map_or(ASYNC, |socket_type| socket_type as usize)]
}

/// Counts an open socket, or a descriptor in an `Async`, which has no type.
pub(crate) struct Open(Option<SocketType>);

impl Open {
    pub(crate) fn new(socket_type: Option<SocketType>) -> Open {
        count_of(socket_type).fetch_add(1, Ordering::Relaxed);
        Open(socket_type)
    }

    pub(crate) fn count(socket_type: Option<SocketType>) -> usize {
        count_of(socket_type).load(Ordering::Relaxed)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        count_of(self.0).fetch_sub(1, Ordering::Relaxed);
    }
}
