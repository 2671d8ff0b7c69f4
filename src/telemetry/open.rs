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

/// What is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpenKind {
    TcpStream,
    TcpListener,
    UdpSocket,
    UnixStream,
    UnixListener,
    UnixDatagram,
    /// A descriptor that an `Async` has been given.
    Async,
}

const KINDS: usize = OpenKind::Async as usize + 1;

/// (Not loom's atomics, which a static cannot have; nothing is synchronised by them.)
static OPEN: [AtomicUsize; KINDS] = [const { AtomicUsize::new(0) }; KINDS];

impl OpenKind {
    /// Returns the number of those that are open.
    pub(crate) fn count(self) -> usize {
        OPEN[self as usize].load(Ordering::Relaxed)
    }
}

/// Guard: counts a socket while it is open.
pub(crate) struct Open(OpenKind);

impl Open {
    pub(crate) fn new(kind: OpenKind) -> Open {
        OPEN[kind as usize].fetch_add(1, Ordering::Relaxed);
        Open(kind)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        OPEN[self.0 as usize].fetch_sub(1, Ordering::Relaxed);
    }
}
