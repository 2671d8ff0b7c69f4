//! The trait that a backend implements.

use std::io;
use std::time::{Duration, Instant};

use super::capabilities::Capabilities;
use super::error::unsupported;
use super::event::{Events, Interest, Mode, Token};
use crate::sys::BorrowedDescriptor;

#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) token: Token,
    pub(crate) interest: Interest,
    pub(crate) mode: Mode,
}

#[derive(Clone, Copy)]
pub(crate) enum Change {
    Register(Request),
    Modify(Request),
    Deregister,
}

/// The [contract](super), without checks of the arguments.
///
/// Registering takes a borrow and keeps the number: see "Why `register` is unsafe".
pub(crate) trait Selector: Send + Sync {
    fn capabilities(&self) -> Capabilities;

    fn change(&self, descriptor: BorrowedDescriptor<'_>, change: Change) -> io::Result<()>;

    /// Waits once; never called by two threads concurrently. `events` is empty. Returns whether the
    /// kernel reported that the deadline has passed; `false` implies nothing about the time.
    ///
    /// `Interrupted`: nothing is reported, and the deadline may not have passed. The caller reads
    /// the clock and waits again. (It may hold a lock from the first event on, and must not sleep
    /// with it.)
    ///
    /// Any other error may come after reports (of kqueue, and of the crate `polling`): `events` has
    /// these, and no later wait reports them. (On Windows `polling` loses what it would have
    /// reported after the error.)
    fn wait(&self, events: &mut Events, until: WaitUntil) -> io::Result<bool>;

    fn notify(&self) -> io::Result<()>;

    /// Returns the descriptor that is readable while a wait would return immediately, making it if
    /// needed.
    fn descriptor(&self) -> io::Result<BorrowedDescriptor<'_>> {
        Err(unsupported("a poller's descriptor"))
    }

    /// Makes the descriptor also readable at the end of `until`. Called only if there is a
    /// descriptor, and never while a thread waits.
    fn arm(&self, _until: WaitUntil) -> io::Result<()> {
        Err(unsupported("a deadline in the kernel"))
    }

    /// Whether it refuses a regular file, as epoll does. Elsewhere registering one would succeed
    /// but never report anything, so the caller refuses it.
    fn refuses_files(&self) -> bool {
        false
    }

    /// Called when the runtime stops being driven, until the next wait: makes sure that a
    /// descriptor which another thread deregisters meanwhile is closed without that wait.
    fn on_idle(&self) {}
}

/// When a wait without events ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitUntil {
    /// Immediately.
    Now,
    /// At `deadline`, by a clock that was last read at `now`. [`Selector::wait`] gets only
    /// deadlines in the future. A backend passes the difference to the kernel, never the deadline:
    /// the process's clock need not be the kernel's.
    At {
        deadline: Instant,
        now: Instant,
    },
    Forever,
}

impl WaitUntil {
    /// Reads the clock only if necessary.
    pub(crate) fn after(timeout: Option<Duration>, clock: fn() -> Instant) -> WaitUntil {
        match timeout {
            None => WaitUntil::Forever,
            Some(Duration::ZERO) => WaitUntil::Now,
            Some(timeout) => {
                let now = clock();
                match now.checked_add(timeout) {
                    Some(deadline) => WaitUntil::At { deadline, now },
                    None => WaitUntil::Forever,
                }
            }
        }
    }

    /// Returns `None` for forever.
    #[inline]
    pub(crate) fn duration(self) -> Option<Duration> {
        match self {
            WaitUntil::Now => Some(Duration::ZERO),
            WaitUntil::At { deadline, now } => Some(deadline.saturating_duration_since(now)),
            WaitUntil::Forever => None,
        }
    }
}
