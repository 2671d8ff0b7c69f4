//! The number of sockets that the process has open, by kind.
//!
//! A socket belongs to no runtime: its source follows the tasks that wait for it. So sockets are
//! counted for the whole process, whether or not anybody waits for them: a leak of connections that
//! no task waits for is seen nowhere else. A source holds an [`Open`] from its creation until it is
//! closed or given away, so clones count once. A socket costs several system calls, beside which
//! two atomic additions do not show, even if several workers contend for them.
//!
//! Sockets of simulated worlds are not counted: other worlds, or tests, of the process must not
//! change what a world sees.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The public type that a socket belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(unix), allow(dead_code, reason = "there are no Unix sockets"))]
pub(crate) enum SocketType {
    TcpStream,
    TcpListener,
    UdpSocket,
    UnixStream,
    UnixListener,
    UnixDatagram,
}

/// The place of descriptors that an `Async` has been given.
const ASYNC: usize = SocketType::UnixDatagram as usize + 1;

/// (Not loom's atomics, which a static cannot have; nothing is synchronised by them.)
static OPEN: [AtomicUsize; ASYNC + 1] = [const { AtomicUsize::new(0) }; ASYNC + 1];

fn count_of(socket_type: Option<SocketType>) -> &'static AtomicUsize {
    &OPEN[socket_type.map_or(ASYNC, |socket_type| socket_type as usize)]
}

/// Guard: counts a socket while it is open, or a descriptor that an `Async` has been given, which
/// has no type.
pub(crate) struct Open(Option<SocketType>);

impl Open {
    pub(crate) fn new(socket_type: Option<SocketType>) -> Open {
        count_of(socket_type).fetch_add(1, Ordering::Relaxed);
        Open(socket_type)
    }

    /// Returns the number of those that are open.
    pub(crate) fn count(socket_type: Option<SocketType>) -> usize {
        count_of(socket_type).load(Ordering::Relaxed)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        count_of(self.0).fetch_sub(1, Ordering::Relaxed);
    }
}
