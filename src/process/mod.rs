//! Child processes: [`Command`] starts a program; [`Child`] is the running program, with its pipes
//! and its status. Names and behaviour are async-process's.
//!
//! ```
//! # #[cfg(unix)] {
//! use polder::io::{AsyncBufReadExt, BufReader};
//! use polder::process::{Command, Stdio};
//! use polder::stream::StreamExt;
//!
//! polder::block_on(async {
//!     let mut child = Command::new("ls").arg("src").stdout(Stdio::piped()).spawn()?;
//!     let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
//!     let mut files = 0;
//!     while let Some(name) = lines.next().await {
//!         println!("{}", name?);
//!         files += 1;
//!     }
//!     assert!(child.status().await?.success() && files > 0);
//!     std::io::Result::Ok(())
//! })?;
//! # } std::io::Result::Ok(())
//! ```
//!
//! # Lifetime of a child
//!
//! * **Dropping a [`Child`], or a future that waits for it, lets the program run on**, unless
//!   [`Command::kill_on_drop`] is set. [`Child::kill`] kills it at any time.
//! * **No zombie is left**, unless [`Command::reap_on_drop`] is unset: a child that was dropped
//!   while it ran is reaped by a task of the background runtime. If that cannot be started, the
//!   next start of a child tries again.
//! * Children outlive this process.
//!
//! # Other code that starts or reaps children
//!
//! polder waits for its own children only, one by one, without SIGCHLD. Code that reaps any child
//! (`wait`, `waitpid(-1, …)`) or ignores SIGCHLD takes the statuses of polder's children, too;
//! waiting for such a child is an error.
//!
//! # Platforms
//!
//! | | the end of a child | pipes |
//! |---|---|---|
//! | Linux 5.3; macOS and the BSDs | a descriptor (a pidfd, a kqueue) in the backend | sources |
//! | illumos; Linux before, in a sandbox, or without a free descriptor | a thread for each child that is waited for, in waitid(2) | sources |
//! | Windows | a thread for each child that is waited for | threads of [`io::Unblock`](crate::io::Unblock) |
//!
//! In a simulated world starting a program is [`Unsupported`](std::io::ErrorKind::Unsupported).
//!
//! In a child of `fork`, dropping a [`Child`] of the parent has no effect, and its status is an
//! error.

mod command;
#[cfg_attr(target_os = "linux", path = "pidfd.rs")]
#[cfg_attr(
    any(
        target_vendor = "apple",
        target_os = "dragonfly",
        target_os = "freebsd",
        target_os = "netbsd",
        target_os = "openbsd"
    ),
    path = "kqueue.rs"
)]
mod descriptor;
mod exit;
mod pipes;
#[cfg(unix)]
pub mod unix;
#[cfg(windows)]
pub mod windows;

use std::fmt;
use std::io;
use std::sync::Arc;

use futures_lite::AsyncReadExt;
use futures_lite::future::try_zip;

#[doc(no_inline)]
pub use std::process::{ExitStatus, Output, Stdio};

pub use command::Command;
use exit::{Owner, Unreaped, reap_left};
pub use pipes::{ChildStderr, ChildStdin, ChildStdout};
#[cfg(unix)]
use unix as platform;
#[cfg(windows)]
use windows as platform;

/// Named by the error in a simulated world.
const WHAT: &str = "a child process";

/// A program started by a [`Command`]. Dropping it lets the program run on, and leaves no zombie:
/// see [above](self#lifetime-of-a-child).
///
/// ```
/// # #[cfg(unix)] {
/// use polder::io::AsyncWriteExt;
/// use polder::process::{Command, Stdio};
///
/// polder::block_on(async {
///     let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
///     child.stdin.as_mut().unwrap().write_all(b"hello").await?;
///     let output = child.output().await?; // Closes its standard input first.
///     assert_eq!(output.stdout, b"hello");
///     std::io::Result::Ok(())
/// })?;
/// # } std::io::Result::Ok(())
/// ```
pub struct Child {
    /// Its standard input, if that is a pipe. Dropping it closes the pipe.
    pub stdin: Option<ChildStdin>,
    /// Its standard output, if that is a pipe.
    pub stdout: Option<ChildStdout>,
    /// Its standard error, if that is a pipe.
    pub stderr: Option<ChildStderr>,
    owner: Arc<Owner>,
}

impl Child {
    /// Kills the child if its pipes cannot be wrapped.
    fn new(
        mut child: std::process::Child,
        kill_on_drop: bool,
        reap_on_drop: bool,
    ) -> io::Result<Child> {
        reap_left();
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let mut owner = Owner {
            child: Arc::new(Unreaped::new(child)),
            kill_on_drop: true,
            reap_on_drop: true,
        };
        let stdin = stdin.map(ChildStdin::new).transpose()?;
        let stdout = stdout.map(ChildStdout::new).transpose()?;
        let stderr = stderr.map(ChildStderr::new).transpose()?;
        (owner.kill_on_drop, owner.reap_on_drop) = (kill_on_drop, reap_on_drop);
        Ok(Child {
            stdin,
            stdout,
            stderr,
            owner: Arc::new(owner),
        })
    }

    /// Returns the process ID. After [`status`](Self::status) it may be another process's.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::process::Command;
    ///
    /// let child = Command::new("true").spawn()?;
    /// assert_ne!(child.id(), std::process::id());
    /// # } std::io::Result::Ok(())
    /// ```
    pub fn id(&self) -> u32 {
        self.owner.child.id()
    }

    /// Kills the process: by SIGKILL, or `TerminateProcess` on Windows. Does not wait, and has no
    /// effect after its end.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::process::Command;
    /// use std::os::unix::process::ExitStatusExt;
    ///
    /// polder::block_on(async {
    ///     let mut child = Command::new("sleep").arg("3600").spawn()?;
    ///     child.kill()?;
    ///     assert_eq!(child.status().await?.signal(), Some(9));
    ///     std::io::Result::Ok(())
    /// })?;
    /// # } std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`PermissionDenied`](io::ErrorKind::PermissionDenied) if it is another user's (`sudo`).
    pub fn kill(&mut self) -> io::Result<()> {
        self.owner.child.kill()
    }

    /// Returns the status if the process has ended.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::process::Command;
    ///
    /// let mut child = Command::new("sleep").arg("3600").spawn()?;
    /// assert!(child.try_status()?.is_none());
    /// child.kill()?;
    /// polder::block_on(child.status())?;
    /// assert!(child.try_status()?.is_some());
    /// # } std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// If [other code](self#other-code-that-starts-or-reaps-children) has reaped it.
    pub fn try_status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.owner.child.try_wait()
    }

    /// Closes its standard input, and waits for its end. Each call returns the same status. The
    /// future does not borrow the `Child`, which may be killed meanwhile.
    ///
    /// A child that fills a pipe waits until it is read: see [`output`](Self::output).
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::process::Command;
    ///
    /// polder::block_on(async {
    ///     let mut child = Command::new("sh").args(["-c", "exit 7"]).spawn()?;
    ///     assert_eq!(child.status().await?.code(), Some(7));
    ///     assert_eq!(child.status().await?.code(), Some(7)); // The status is kept.
    ///     std::io::Result::Ok(())
    /// })?;
    /// # } std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// When awaited: if [other code](self#other-code-that-starts-or-reaps-children) has reaped it,
    /// or if neither a descriptor nor a thread can wait for it; another call tries again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe; the standard input is closed.
    pub fn status(&mut self) -> impl Future<Output = io::Result<ExitStatus>> + Send + use<> {
        self.stdin = None;
        let owner = self.owner.clone();
        async move { owner.child.wait().await }
    }

    /// Closes its standard input, reads its standard output and error to their ends, and waits for
    /// its end. Without a pipe an output is empty.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::process::{Command, Stdio};
    ///
    /// polder::block_on(async {
    ///     let child = Command::new("echo").arg("hello").stdout(Stdio::piped()).spawn()?;
    ///     assert_eq!(child.output().await?.stdout, b"hello\n");
    ///     std::io::Result::Ok(())
    /// })?;
    /// # } std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// When awaited: those of [`status`](Self::status), and of reading.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the `Child`, and loses what was read.
    pub fn output(mut self) -> impl Future<Output = io::Result<Output>> + Send {
        let status = self.status();
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        async move {
            let (stdout, stderr) = try_zip(to_end(stdout), to_end(stderr)).await?;
            Ok(Output {
                status: status.await?,
                stdout,
                stderr,
            })
        }
    }
}

async fn to_end<R: futures_lite::AsyncRead + Unpin>(pipe: Option<R>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child")
            .field("id", &self.id())
            .field("stdin", &self.stdin)
            .field("stdout", &self.stdout)
            .field("stderr", &self.stderr)
            .finish_non_exhaustive()
    }
}
