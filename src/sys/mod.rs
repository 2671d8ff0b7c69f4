//! Everything that differs between Unix and Windows above the pollers: the descriptor types and how
//! they are borrowed, whether a descriptor is ready now, how a socket sends, receives and accepts,
//! what the errors of `accept` mean, and which clock `Instant` reads.
//!
//! `unix` and `windows` have the same items, except those for Unix sockets. Differences among Unix
//! systems are decided within `unix`, where the system call is made. Code that only sockets need is
//! in `net` below each of the two.

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

/// A descriptor that is owned elsewhere, without the lifetime of a borrow.
#[derive(Debug)]
pub(crate) struct LentDescriptor(BorrowedDescriptor<'static>);

impl LentDescriptor {
    /// Wraps a descriptor that is never closed.
    #[cfg(all(feature = "sim", not(loom)))]
    pub(crate) fn of_static(descriptor: BorrowedDescriptor<'static>) -> LentDescriptor {
        LentDescriptor(descriptor)
    }

    /// # Safety
    ///
    /// The descriptor must stay open for as long as this is used.
    pub(crate) unsafe fn new(descriptor: BorrowedDescriptor<'_>) -> LentDescriptor {
        // SAFETY: the caller promises it; the borrow is lent for no longer than this lives.
        LentDescriptor(unsafe { BorrowedDescriptor::borrow_raw(descriptor.as_raw_descriptor()) })
    }
}

lend_descriptor!([] LentDescriptor, |it| it.0);

/// The consequence of an error of `accept` for the next attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AfterAcceptError {
    /// It concerns one connection.
    Again,
    /// A resource is exhausted: the next attempt should wait.
    Rest,
    /// The socket does not listen.
    End,
}

/// An option of TCP that has a number for its value, and that not every system has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TcpOption {
    /// Seconds from the last sign of life to keepalive's first probe.
    KeepIdle,
    /// Seconds between probes.
    KeepInterval,
    /// Probes without an answer after which the connection ends.
    KeepCount,
    /// Milliseconds for which data may stay unacknowledged; zero means the system's default.
    UserTimeout,
}

impl TcpOption {
    /// The number of options. Tables are in their order.
    pub(crate) const COUNT: usize = 4;

    /// Returns the greatest value that Linux takes: include/net/tcp.h, `MAX_TCP_KEEPIDLE` and so
    /// on.
    #[cfg_attr(not(feature = "sim"), allow(dead_code))]
    pub(crate) fn max_of_linux(self) -> u32 {
        match self {
            TcpOption::KeepIdle | TcpOption::KeepInterval => 32_767,
            TcpOption::KeepCount => 127,
            TcpOption::UserTimeout => i32::MAX as u32,
        }
    }

    /// The error where the system does not have it.
    fn unsupported(self) -> std::io::Error {
        let name = match self {
            TcpOption::KeepIdle => "TCP_KEEPIDLE",
            TcpOption::KeepInterval => "TCP_KEEPINTVL",
            TcpOption::KeepCount => "TCP_KEEPCNT",
            TcpOption::UserTimeout => "TCP_USER_TIMEOUT",
        };
        let words = format!("this system does not have the option {name}");
        std::io::Error::new(std::io::ErrorKind::Unsupported, words)
    }
}
