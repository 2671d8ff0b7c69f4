//! All that differs between Unix and Windows above the pollers: what a descriptor is called and how
//! it is lent, whether it is ready now, how a socket sends, receives and accepts, what the errors
//! of `accept` mean, and whose clock it is.
//!
//! `unix` and `windows` have the same items, but for those of Unix sockets. What differs among Unix
//! systems is decided within `unix`, where the system call is made. What only sockets need is in
//! `net` below each of the two.

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

#[cfg(all(feature = "backtrace", not(loom)))]
pub(crate) mod stack;

/// Starts a thread with the standard library's size of a stack. The function is boxed, so that
/// starting a thread is compiled once: that is 3 KB.
pub(crate) fn start_thread(
    name: &str,
    run: Box<dyn FnOnce() + Send>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    start_thread_with_stack(name, None, run)
}

/// [`start_thread`], with a stack of that size in bytes, if any is given.
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

/// A descriptor that is somebody else's, without the lifetime of a borrow.
#[derive(Debug)]
pub(crate) struct LentDescriptor(BorrowedDescriptor<'static>);

impl LentDescriptor {
    /// One that is never closed.
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

/// What an error of `accept` means for the next attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AfterAcceptError {
    /// It concerns one connection.
    Again,
    /// A resource is exhausted: the next attempt should wait.
    Rest,
    /// The socket does not listen.
    End,
}
