//! Differences between Unix and Windows above the pollers. `unix` and `windows` have the same
//! items, except for Unix sockets. Differences among Unix systems are decided within `unix`, at the
//! system call. Code for sockets only is in `net`.

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

/// The platform's trait under a common name.
pub(crate) trait AsDescriptor {
    fn as_descriptor(&self) -> BorrowedDescriptor<'_>;
}

/// The platform's trait under a common name.
pub(crate) trait AsRawDescriptor {
    fn as_raw_descriptor(&self) -> RawDescriptor;
}

/// The longest timeout of a call that waits; a longer wait is repeated. NetBSD and OpenBSD refuse
/// more than 100,000,000 seconds, others more milliseconds than fit into an `int`. On Windows the
/// crate `polling` takes more than fit into a `u32` for no timeout (`dur2timeout` in 3.11).
pub(crate) const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

pub(crate) fn invalid(words: impl Into<String>) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidInput, words.into())
}

/// Its source has the number, since an error with words has none.
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

pub(crate) fn explained(words: String, cause: std::io::Error) -> std::io::Error {
    std::io::Error::new(cause.kind(), Explained { words, cause })
}

pub(crate) fn unsupported(words: impl Into<String>) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::Unsupported, words.into())
}

/// The result of a system call that returns zero, or sets `errno`.
fn c_result(returned: i32) -> std::io::Result<()> {
    match returned {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// The function is boxed, so that starting a thread is compiled once: that saves 3 KB.
pub(crate) fn start_thread(
    name: &str,
    run: Box<dyn FnOnce() + Send>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    start_thread_with_stack(name, None, run)
}

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

/// Returns a borrow without its lifetime.
///
/// # Safety
///
/// The descriptor must stay open for as long as the result is used.
pub(crate) unsafe fn lend(descriptor: BorrowedDescriptor<'_>) -> BorrowedDescriptor<'static> {
    // SAFETY: the caller promises that it is open.
    unsafe { BorrowedDescriptor::borrow_raw(descriptor.as_raw_descriptor()) }
}
