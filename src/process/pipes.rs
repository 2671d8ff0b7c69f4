//! The parent's ends of a child's pipes: sources on Unix. On Windows these pipes cannot be polled,
//! so pool threads read and write them.

use std::io::{self, IoSlice, IoSliceMut};
#[cfg(unix)]
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::process::Stdio;
use std::task::{Context, Poll, ready};

use futures_lite::{AsyncRead, AsyncWrite};

use super::platform::{self, Pipe};

/// The parent's end of a child's standard input.
///
/// Dropping or closing it is the end of the file for the child. Writing fails with
/// [`BrokenPipe`](io::ErrorKind::BrokenPipe) if the child no longer reads.
///
/// ```
/// # #[cfg(unix)] {
/// use polder::io::AsyncWriteExt;
/// use polder::process::{Command, Stdio};
///
/// polder::block_on(async {
///     let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
///     let mut stdin = cat.stdin.take().unwrap();
///     stdin.write_all(b"through a pipe").await?;
///     stdin.close().await?; // `cat` reads the end of the file.
///     assert_eq!(cat.output().await?.stdout, b"through a pipe");
///     std::io::Result::Ok(())
/// })?;
/// # } std::io::Result::Ok(())
/// ```
///
/// # Panics
///
/// `as_fd` and `as_raw_fd` panic once it is closed.
///
/// # Cancel safety
///
/// As [`Async`](crate::Async), or on Windows [`io::Unblock`](crate::io::Unblock).
#[derive(Debug)]
pub struct ChildStdin(Option<Pipe<std::process::ChildStdin>>);

const CLOSED: &str = "the child's standard input has been closed";

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, CLOSED)
}

impl ChildStdin {
    pub(super) fn new(pipe: std::process::ChildStdin) -> io::Result<ChildStdin> {
        Ok(ChildStdin(Some(platform::pipe(pipe)?)))
    }

    /// Converts it for another command, whose output the child then reads.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::process::{Command, Stdio};
    ///
    /// polder::block_on(async {
    ///     let mut sort = Command::new("sort");
    ///     let mut sort = sort.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    ///     let stdin = sort.stdin.take().unwrap().into_stdio().await?;
    ///     Command::new("echo").arg("b\na").stdout(stdin).status().await?;
    ///     assert_eq!(sort.output().await?.stdout, b"a\nb\n");
    ///     std::io::Result::Ok(())
    /// })?;
    /// # } std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// If it was closed; on Unix if it cannot be made blocking again; on Windows the error of a
    /// dropped write.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future closes the pipe.
    pub async fn into_stdio(self) -> io::Result<Stdio> {
        let pipe = platform::blocking(self.0.ok_or_else(closed)?).await?;
        Ok(pipe.into())
    }
}

impl AsyncWrite for ChildStdin {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Some(pipe) => Pin::new(pipe).poll_write(cx, bytes),
            None => Poll::Ready(Err(closed())),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Some(pipe) => Pin::new(pipe).poll_write_vectored(cx, slices),
            None => Poll::Ready(Err(closed())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Some(pipe) => Pin::new(pipe).poll_flush(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Closes the pipe.
    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        self.0 = None;
        Poll::Ready(Ok(()))
    }
}

macro_rules! output {
    ($(#[$docs:meta])* $name:ident, $stream:literal) => {
        $(#[$docs])*
        ///
        /// A read returns 0 when the child, and all processes that have inherited the pipe, have
        /// closed it.
        ///
        /// ```
        /// # #[cfg(unix)] {
        /// use polder::io::AsyncReadExt;
        /// use polder::process::{Command, Stdio};
        ///
        /// polder::block_on(async {
        ///     let mut command = Command::new("sh");
        ///     command.args(["-c", "echo out; echo err >&2"]);
        ///     let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        ///     let mut text = String::new();
        #[doc = concat!("    child.", $stream, ".take().unwrap().read_to_string(&mut text).await?;")]
        ///     assert!(text == "out\n" || text == "err\n");
        ///     assert!(child.status().await?.success());
        ///     std::io::Result::Ok(())
        /// })?;
        /// # } std::io::Result::Ok(())
        /// ```
        ///
        /// # Cancel safety
        ///
        /// Cancel safe: dropping the future of a read loses no bytes.
        #[derive(Debug)]
        pub struct $name(Pipe<std::process::$name>);

        impl $name {
            pub(super) fn new(pipe: std::process::$name) -> io::Result<$name> {
                Ok($name(platform::pipe(pipe)?))
            }

            /// Converts it to the input of another command.
            ///
            /// ```
            /// # #[cfg(unix)] {
            /// use polder::process::{Command, Stdio};
            ///
            /// polder::block_on(async {
            ///     let mut command = Command::new("sh");
            ///     command.args(["-c", "echo text; echo text >&2"]);
            ///     let mut first = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
            #[doc = concat!("    let pipe = first.", $stream, ".take().unwrap().into_stdio().await?;")]
            ///     let second = Command::new("cat").stdin(pipe).output().await?;
            ///     assert_eq!(second.stdout, b"text\n");
            ///     assert!(first.status().await?.success());
            ///     std::io::Result::Ok(())
            /// })?;
            /// # } std::io::Result::Ok(())
            /// ```
            ///
            /// # Errors
            ///
            /// On Unix, if it cannot be made blocking again; on Windows, if a dropped read has left
            /// bytes, which would be lost.
            ///
            /// # Cancel safety
            ///
            /// Not cancel safe: dropping the future closes the pipe.
            pub async fn into_stdio(self) -> io::Result<Stdio> {
                Ok(platform::blocking(self.0).await?.into())
            }
        }

        impl AsyncRead for $name {
            fn poll_read(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.0).poll_read(cx, bytes)
            }

            fn poll_read_vectored(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &mut [IoSliceMut<'_>],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.0).poll_read_vectored(cx, slices)
            }
        }

        #[cfg(unix)]
        crate::sys::lend_descriptor!([] $name, |pipe| pipe.0.as_fd());

        /// The descriptor stays non-blocking.
        #[cfg(unix)]
        impl TryFrom<$name> for OwnedFd {
            type Error = io::Error;

            fn try_from(pipe: $name) -> io::Result<OwnedFd> {
                Ok(pipe.0.into_inner()?.into())
            }
        }
    };
}

output! {
    /// The parent's end of a child's standard output.
    ChildStdout, "stdout"
}
output! {
    /// The parent's end of a child's standard error.
    ChildStderr, "stderr"
}

#[cfg(unix)]
crate::sys::lend_descriptor!([] ChildStdin, |stdin| stdin.0.as_ref().expect(CLOSED).as_fd());

/// The descriptor stays non-blocking.
#[cfg(unix)]
impl TryFrom<ChildStdin> for OwnedFd {
    type Error = io::Error;

    fn try_from(stdin: ChildStdin) -> io::Result<OwnedFd> {
        Ok(stdin.0.ok_or_else(closed)?.into_inner()?.into())
    }
}
