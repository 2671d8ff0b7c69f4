//! Errors of pollers: the kernel's error, with the call and the backend that failed.

use std::fmt;
use std::io;

use crate::sys;

pub(in crate::poller) fn registered_already() -> io::Error {
    io::Error::new(
        io::ErrorKind::AlreadyExists,
        "the descriptor is already registered with this poller",
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
        "another thread is already waiting on this poller",
    )
}

#[cold]
pub(in crate::poller) fn forked_error() -> io::Error {
    sys::unsupported(
        "this poller was made before `fork`, by the parent of this process: a child makes its own",
    )
}

struct Failed {
    backend: Option<&'static str>,
    call: &'static str,
    /// Kept for its number.
    cause: io::Error,
    meaning: Option<String>,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(backend) = self.backend {
            write!(f, "backend {backend}: ")?;
        }
        write!(f, "{}: {}", self.call, self.cause)?;
        match &self.meaning {
            Some(meaning) => write!(f, ": {meaning}"),
            None => Ok(()),
        }
    }
}

/// The same: `unwrap` shows it.
impl fmt::Debug for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// Wraps `cause` in an error of the same kind. Returns unchanged the errors that callers recognise
/// by their number: [`Interrupted`](io::ErrorKind::Interrupted), and running out of descriptors.
#[cold]
pub(in crate::poller) fn failed(call: &'static str, cause: impl Into<io::Error>) -> io::Error {
    explained(call, cause.into(), None)
}

/// [`failed`], with the most likely cause.
#[cold]
pub(in crate::poller) fn explained(
    call: &'static str,
    cause: io::Error,
    meaning: Option<String>,
) -> io::Error {
    let kind = cause.kind();
    if kind == io::ErrorKind::Interrupted || sys::is_out_of_descriptors(&cause) {
        return cause;
    }
    let failed = Failed {
        backend: None,
        call,
        cause,
        meaning,
    };
    io::Error::new(kind, failed)
}

/// Returns the result of a trial call. Each backend polls once when it is opened, so that a
/// sandbox's refusal is found there, and the next backend of a list is taken. A shortage or a
/// signal is no refusal.
#[cold]
pub(in crate::poller) fn tried<T>(result: io::Result<T>) -> io::Result<()> {
    use io::ErrorKind::{Interrupted, OutOfMemory, WouldBlock};
    match result {
        Err(error) if ![Interrupted, OutOfMemory, WouldBlock].contains(&error.kind()) => Err(error),
        _ => Ok(()),
    }
}

#[cold]
pub(in crate::poller) fn guess_meaning(error: io::Error) -> io::Error {
    let meaning = match error.kind() {
        io::ErrorKind::PermissionDenied if cfg!(target_os = "linux") => {
            "most likely a seccomp filter forbids it"
        }
        io::ErrorKind::Unsupported if cfg!(target_os = "linux") => {
            "the kernel lacks it, or a sandbox hides it"
        }
        _ => return error,
    };
    with_failed(error, |failed| {
        failed.meaning.get_or_insert_with(|| meaning.into());
    })
}

fn with_failed(error: io::Error, change: impl FnOnce(&mut Failed)) -> io::Error {
    let kind = error.kind();
    match error.downcast::<Failed>() {
        Ok(mut failed) => {
            change(&mut failed);
            io::Error::new(kind, failed)
        }
        Err(other) => other,
    }
}

/// Notes the name of the backend that failed.
#[cold]
pub(in crate::poller) fn with_backend(error: io::Error, name: &'static str) -> io::Error {
    with_failed(error, |failed| failed.backend = Some(name))
}

pub(in crate::poller) fn unsupported(what: &str) -> io::Error {
    sys::unsupported(format!("{what} is not available on this backend"))
}
