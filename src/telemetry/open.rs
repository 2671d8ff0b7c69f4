//! The number of the process's open sockets, by kind.
//!
//! Sockets belong to no runtime, so they are counted for the whole process. Only this count shows a
//! leak of connections that no task waits for. A source holds an [`Open`] from its creation until
//! it is closed or given away, so clones count once. Beside a socket's system calls two atomic
//! additions do not show, even under contention.
//!
//! Sockets of simulated worlds are not counted: nothing else in the process must change what a
//! world sees.

use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use crate::kernel::sockets::SocketType;

/// Descriptors that were given to an `Async`.
const ASYNC: usize = SocketType::UnixDatagram as usize + 1;

/// Not loom's atomics, which a static cannot have; nothing is synchronised by them.
static OPEN: [AtomicUsize; ASYNC + 1] = [const { AtomicUsize::new(0) }; ASYNC + 1];

fn count_of(socket_type: Option<SocketType>) -> &'static AtomicUsize {
    &OPEN[socket_type.map_or(ASYNC, |socket_type| socket_type as usize)]
}

/// Guard: counts an open socket, or a descriptor given to an `Async`, which has no type.
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
