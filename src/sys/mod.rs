//! Everything that differs between Unix and Windows above the pollers: the descriptor types and how
//! they are borrowed, whether a descriptor is ready now, how a socket sends, receives and accepts,
//! what the errors of `accept` mean, and which clock `Instant` reads.
//!
//! `unix` and `windows` have the same items, except those for Unix sockets. Differences among Unix
//! systems are decided within `unix`, where the system call is made. Code that only sockets need is
//! in `net`, and in `net` below each of the two.

use std::time::Duration;

#[cfg(feature = "net")]
mod net;
#[cfg(feature = "net")]
pub(crate) use net::*;
#[cfg(feature = "net")]
pub use net::{Datagram, Received};

mod per_process;
pub(crate) use per_process::{PerProcess, Race};

#[cfg(unix)]
mod unix;
#[cfg(unix)]
pub(crate) use unix::*;

#[cfg(windows)]
mod windows;
#[cfg(windows)]
pub(crate) use windows::*;

/// The platform's trait under a name that both platforms have.
pub(crate) trait AsDescriptor {
    fn as_descriptor(&self) -> BorrowedDescriptor<'_>;
}

/// The platform's trait under a name that both platforms have.
pub(crate) trait AsRawDescriptor {
    fn as_raw_descriptor(&self) -> RawDescriptor;
}

/// The longest timeout that is passed to a call that waits, where some systems take no longer one;
/// a longer wait is repeated. NetBSD and OpenBSD refuse more than 100,000,000 seconds. Others take
/// no more milliseconds than fit into an `int`. On Windows the crate `polling` takes more than fit
/// into a `u32` for no timeout (`dur2timeout` in its 3.11).
pub(crate) const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// The error for an argument that is not valid.
pub(crate) fn invalid(words: impl Into<String>) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidInput, words.into())
}

/// An error of the system, with words. It is of the same kind, and its source has the number, since
/// an error with words has none.
#[derive(Debug)]
struct Explained {
    words: String,
    cause: std::io::Error,
}

impl std::fmt::Display for Explained {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.words, self.cause)
    }
}

impl std::error::Error for Explained {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// Adds `words` to an error of the system.
pub(crate) fn explained(words: String, cause: std::io::Error) -> std::io::Error {
    std::io::Error::new(cause.kind(), Explained { words, cause })
}

/// The error for a request that this system cannot fulfil.
pub(crate) fn unsupported(words: impl Into<String>) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::Unsupported, words.into())
}

/// The result of a system call that returns zero, or leaves its error with the thread.
fn c_result(returned: i32) -> std::io::Result<()> {
    match returned {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Starts a thread with the standard library's stack size. The function is boxed, so that starting
/// a thread is compiled once: that saves 3 KB.
pub(crate) fn start_thread(
    name: &str,
    run: Box<dyn FnOnce() + Send>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    start_thread_with_stack(name, None, run)
}

/// [`start_thread`] with the stack size in bytes, if one is given.
pub(crate) fn start_thread_with_stack(
    name: &str,
    size: Option<usize>,
    run: Box<dyn FnOnce() + Send>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    let mut builder = std::thread::Builder::new().name(name.into());
    if let Some(size) = size {
        builder = builder.stack_size(size);
    }
    builder.spawn(run)
}

/// Returns a descriptor that is owned elsewhere, without the lifetime of the borrow.
///
/// # Safety
///
/// The descriptor must stay open for as long as the result is used.
pub(crate) unsafe fn lend(descriptor: BorrowedDescriptor<'_>) -> BorrowedDescriptor<'static> {
    // SAFETY: the caller promises that it is open.
    unsafe { BorrowedDescriptor::borrow_raw(descriptor.as_raw_descriptor()) }
}
