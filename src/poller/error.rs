//! The errors of pollers: what the kernel said, and in which call of which backend.

use std::fmt;
use std::io;

use super::Backend;

pub(in crate::poller) fn registered_already() -> io::Error {
    io::Error::new(
        io::ErrorKind::AlreadyExists,
        "the descriptor is registered already with this poller",
    )
}

pub(in crate::poller) fn not_registered() -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        "the descriptor is not registered with this poller",
    )
}

pub(in crate::poller) fn busy() -> io::Error {
    io::Error::new(
        io::ErrorKind::ResourceBusy,
        "another thread waits on this poller already",
    )
}

/// A system call that failed, with words: the backend, once that is known, and the call.
#[derive(Debug)]
struct Failed {
    backend: Option<Backend>,
    call: &'static str,
    /// Where the system's number can be asked for, since an error with words has none.
    cause: io::Error,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(backend) = self.backend {
            write!(f, "backend {backend}: ")?;
        }
        write!(f, "{}: {}", self.call, self.cause)
    }
}

impl std::error::Error for Failed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// An error of `call`, of the same kind. Those that are no failure of the call's, and that callers
/// tell by their number, stay as they are: [`Interrupted`](io::ErrorKind::Interrupted), and that
/// there are no descriptors left.
#[cold]
pub(in crate::poller) fn failed(call: &'static str, cause: impl Into<io::Error>) -> io::Error {
    let cause = cause.into();
    let kind = cause.kind();
    if kind == io::ErrorKind::Interrupted || crate::sys::is_out_of_descriptors(&cause) {
        return cause;
    }
    let failed = Failed {
        backend: None,
        call,
        cause,
    };
    io::Error::new(kind, failed)
}

impl Backend {
    /// An error of this backend, which says so if it is one of those that say which call it was.
    #[cold]
    pub(in crate::poller) fn with_name(self, error: io::Error) -> io::Error {
        let kind = error.kind();
        match error.downcast::<Failed>() {
            Ok(failed) => io::Error::new(
                kind,
                Failed {
                    backend: Some(self),
                    ..failed
                },
            ),
            Err(other) => other,
        }
    }
}

pub(in crate::poller) fn unsupported(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        format!("{what} is not available on this backend"),
    )
}
