//! Extensions for Unix: a command's user, group and the like.
//!
//! ```
//! use polder::process::Command;
//! use polder::process::unix::CommandExt;
//!
//! polder::block_on(async {
//!     // The shell's own name is `$0`.
//!     let output = Command::new("sh").arg0("my-shell").args(["-c", "echo $0"]).output().await?;
//!     assert_eq!(output.stdout, b"my-shell\n");
//!     std::io::Result::Ok(())
//! })?;
//! # std::io::Result::Ok(())
//! ```

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::{Command, Stdio};
use crate::io::Async;
use crate::kernel;

mod sealed {
    pub trait Sealed {}
}

impl sealed::Sealed for Command {}

/// Extends [`Command`] on Unix, like the standard library's trait of this name.
///
/// ```
/// use polder::process::Command;
/// use polder::process::unix::CommandExt;
///
/// polder::block_on(async {
///     let own = rustix::process::getuid().as_raw();
///     let output = Command::new("id").arg("-u").uid(own).output().await?;
///     assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), own.to_string());
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
pub trait CommandExt: sealed::Sealed {
    /// Sets the child's user. Spawning fails without permission.
    ///
    /// ```
    /// use polder::process::Command;
    /// use polder::process::unix::CommandExt;
    ///
    /// let own = rustix::process::getuid().as_raw();
    /// let status = polder::block_on(Command::new("true").uid(own).status())?;
    /// assert!(status.success());
    /// # std::io::Result::Ok(())
    /// ```
    fn uid(&mut self, id: u32) -> &mut Command;

    /// Sets the child's group, like [`uid`](Self::uid).
    ///
    /// ```
    /// use polder::process::Command;
    /// use polder::process::unix::CommandExt;
    ///
    /// let own = rustix::process::getgid().as_raw();
    /// let status = polder::block_on(Command::new("true").gid(own).status())?;
    /// assert!(status.success());
    /// # std::io::Result::Ok(())
    /// ```
    fn gid(&mut self, id: u32) -> &mut Command;

    /// Runs `f` in the child, between `fork` and `exec`.
    ///
    /// ```
    /// use polder::process::Command;
    /// use polder::process::unix::CommandExt;
    ///
    /// let mut command = Command::new("sh");
    /// command.args(["-c", "umask"]);
    /// // SAFETY: umask(2) is async-signal-safe.
    /// unsafe {
    ///     command.pre_exec(|| {
    ///         rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    ///         Ok(())
    ///     })
    /// };
    /// let output = polder::block_on(command.output())?;
    /// assert!(output.stdout.ends_with(b"77\n"));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Safety
    ///
    /// The child has one thread, and locks may be held by threads that it lacks. So `f` may call
    /// only async-signal-safe functions (signal-safety(7)): it must not allocate, lock, or use
    /// polder. See [`pre_exec`](std::os::unix::process::CommandExt::pre_exec).
    unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static;

    /// Replaces this process by the program. Returns only on failure.
    ///
    /// ```
    /// use polder::process::Command;
    /// use polder::process::unix::CommandExt;
    ///
    /// let error = Command::new("/there/is/no/such/program").exec();
    /// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    /// ```
    fn exec(&mut self) -> io::Error;

    /// Sets the child's first argument, by default the program as given.
    ///
    /// ```
    /// use polder::process::Command;
    /// use polder::process::unix::CommandExt;
    ///
    /// let output = Command::new("sh").arg0("-sh").args(["-c", "echo $0"]).output();
    /// assert_eq!(polder::block_on(output)?.stdout, b"-sh\n");
    /// # std::io::Result::Ok(())
    /// ```
    fn arg0<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command;
}

impl CommandExt for Command {
    fn uid(&mut self, id: u32) -> &mut Command {
        self.inner.uid(id);
        self
    }

    fn gid(&mut self, id: u32) -> &mut Command {
        self.inner.gid(id);
        self
    }

    unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        // SAFETY: the caller keeps the same contract.
        unsafe { self.inner.pre_exec(f) };
        self
    }

    fn exec(&mut self) -> io::Error {
        match kernel::permit(super::WHAT) {
            Ok(()) => {
                // Not the pipes of an earlier child.
                self.streams_or(Stdio::inherit, Stdio::inherit);
                self.inner.exec()
            }
            Err(error) => error,
        }
    }

    fn arg0<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.inner.arg0(arg);
        self
    }
}

pub(super) type Pipe<T> = Async<T>;

pub(super) fn pipe<T: AsFd + 'static>(pipe: T) -> io::Result<Pipe<T>> {
    Async::new(pipe)
}

/// Returns the pipe, blocking again, as other programs expect it.
pub(super) async fn blocking<T: AsFd>(pipe: Pipe<T>) -> io::Result<T> {
    let pipe = pipe.into_inner()?;
    fcntl_setfl(&pipe, fcntl_getfl(&pipe)? - OFlags::NONBLOCK)?;
    Ok(pipe)
}

pub(super) fn is_no_child(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::CHILD)
}

/// Waits for the end of a child of this number, without reaping it.
fn wait_unreaped(id: libc::id_t, options: libc::c_int) -> io::Result<()> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = options | libc::WEXITED | libc::WNOWAIT;
    // SAFETY: `info` has room for what is written.
    match unsafe { libc::waitid(libc::P_PID, id, info.as_mut_ptr(), options) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Kills a child by its number, unless other code has reaped it.
pub(super) fn kill(child: &mut std::process::Child) -> io::Result<()> {
    match wait_unreaped(child.id() as libc::id_t, libc::WNOHANG) {
        Err(error) if is_no_child(&error) => Ok(()),
        _ => child.kill(),
    }
}

/// The child's number, which is not reused until it is reaped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handle(libc::id_t);

impl Handle {
    pub(super) fn of(child: &std::process::Child) -> io::Result<Handle> {
        Ok(Handle(child.id() as libc::id_t))
    }

    /// Blocks until the child has ended, or was reaped by others. Does not reap it.
    pub(super) fn wait(&self) {
        let is_interrupted = |error: io::Error| error.kind() == io::ErrorKind::Interrupted;
        while wait_unreaped(self.0, 0).is_err_and(is_interrupted) {}
    }
}
