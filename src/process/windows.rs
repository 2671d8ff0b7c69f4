//! Extensions for Windows: creation flags and raw arguments.
//!
//! ```
//! use polder::process::Command;
//! use polder::process::windows::CommandExt;
//!
//! let status = Command::new("cmd").raw_arg("/c exit 3").status();
//! assert_eq!(polder::block_on(status)?.code(), Some(3));
//! # std::io::Result::Ok(())
//! ```

use std::ffi::OsStr;
use std::future::poll_fn;
use std::io;
use std::os::windows::io::{AsHandle, AsRawHandle, OwnedHandle, RawHandle};
use std::os::windows::process::CommandExt as _;

use windows_sys::Win32::System::Threading::{INFINITE, WaitForSingleObject};

use super::{Child, Command};
use crate::io::Unblock;

mod sealed {
    pub trait Sealed {}
}

impl sealed::Sealed for Command {}

/// Extends [`Command`] on Windows, like the standard library's trait of this name.
///
/// ```
/// use polder::process::Command;
/// use polder::process::windows::CommandExt;
///
/// const CREATE_NO_WINDOW: u32 = 0x0800_0000;
/// let status = Command::new("cmd").args(["/c", "exit"]).creation_flags(CREATE_NO_WINDOW).status();
/// assert!(polder::block_on(status)?.success());
/// # std::io::Result::Ok(())
/// ```
pub trait CommandExt: sealed::Sealed {
    /// Sets the creation flags of `CreateProcess`.
    ///
    /// ```
    /// use polder::process::Command;
    /// use polder::process::windows::CommandExt;
    ///
    /// const DETACHED_PROCESS: u32 = 0x0000_0008;
    /// let mut command = Command::new("cmd");
    /// let status = command.raw_arg("/c exit").creation_flags(DETACHED_PROCESS).status();
    /// assert!(polder::block_on(status)?.success());
    /// # std::io::Result::Ok(())
    /// ```
    fn creation_flags(&mut self, flags: u32) -> &mut Command;

    /// Appends text to the command line, without quotes or escapes.
    ///
    /// ```
    /// use polder::process::Command;
    /// use polder::process::windows::CommandExt;
    ///
    /// let status = Command::new("cmd").raw_arg("/c exit 5").status();
    /// assert_eq!(polder::block_on(status)?.code(), Some(5));
    /// # std::io::Result::Ok(())
    /// ```
    fn raw_arg<S: AsRef<OsStr>>(&mut self, text_to_append_as_is: S) -> &mut Command;
}

impl CommandExt for Command {
    fn creation_flags(&mut self, flags: u32) -> &mut Command {
        self.inner.creation_flags(flags);
        self
    }

    fn raw_arg<S: AsRef<OsStr>>(&mut self, text_to_append_as_is: S) -> &mut Command {
        self.inner.raw_arg(text_to_append_as_is);
        self
    }
}

impl AsRawHandle for Child {
    fn as_raw_handle(&self) -> RawHandle {
        self.owner.child.raw_handle()
    }
}

pub(super) type Pipe<T> = Unblock<T>;

pub(super) fn pipe<T>(pipe: T) -> io::Result<Pipe<T>> {
    Ok(Unblock::new(pipe))
}

/// Returns the pipe, once no thread uses it. Fails if a dropped read has left bytes.
pub(super) async fn blocking<T>(mut pipe: Pipe<T>) -> io::Result<T> {
    poll_fn(|cx| pipe.poll_settled(cx)).await?;
    Ok(pipe.into_inner().await)
}

pub(super) fn kill(child: &mut std::process::Child) -> io::Result<()> {
    child.kill()
}

/// A handle never names another process.
pub(super) fn is_no_child(_: &io::Error) -> bool {
    false
}

#[derive(Debug)]
pub(super) struct Handle(OwnedHandle);

impl Handle {
    pub(super) fn of(child: &std::process::Child) -> io::Result<Handle> {
        Ok(Handle(child.as_handle().try_clone_to_owned()?))
    }

    /// Blocks until the child has ended.
    pub(super) fn wait(&self) {
        // SAFETY: the handle is open.
        unsafe { WaitForSingleObject(self.0.as_raw_handle(), INFINITE) };
    }
}
