//! Differences between Unix and Windows above the pollers. `unix` and `windows` have the same
//! items, except for Unix sockets; `unix` handles differences among Unix systems at the system
//! call. `net` is for sockets.

use std::time::Duration;

#[cfg(feature = "net")]
#[cfg_attr(
    any(
        target_os = "linux",
        target_os = "android",
        target_os = "freebsd",
        target_os = "netbsd"
    ),
    path = "unix/datagrams.rs"
)]
mod datagrams;
#[cfg(feature = "net")]
pub(crate) use datagrams::{receive_many, send_many};
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

/// See [`AsDescriptor`].
pub(crate) trait AsRawDescriptor {
    fn as_raw_descriptor(&self) -> RawDescriptor;
}

/// The longest timeout of one call; longer waits are repeated. NetBSD and OpenBSD refuse more than
/// 100,000,000 seconds, others milliseconds beyond an `int`. On Windows `polling` takes more than a
/// `u32` for no timeout (`dur2timeout` in 3.11).
pub(crate) const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

pub(crate) fn invalid(words: impl Into<String>) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidInput, words.into())
}

/// An error with a message. Its source has the error number.
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

fn c_result(returned: i32) -> std::io::Result<()> {
    match returned {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// The function is boxed, so that this is compiled once: saves 3 KB.
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

/// Extends the lifetime of a borrow.
///
/// # Safety
///
/// The descriptor must stay open for as long as the result is used.
pub(crate) unsafe fn lend(descriptor: BorrowedDescriptor<'_>) -> BorrowedDescriptor<'static> {
    // SAFETY: the caller keeps it open.
    unsafe { BorrowedDescriptor::borrow_raw(descriptor.as_raw_descriptor()) }
}
