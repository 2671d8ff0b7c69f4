//! [`IoSafe`]: the guarantee by which an `Async` may call `Read` and `Write`.

/// Types that never replace their descriptor in [`Read`](std::io::Read) and
/// [`Write`](std::io::Write), like async-io's trait of this name.
///
/// The methods take `&mut self`, so they could replace the value, and with it a registered
/// descriptor. An [`Async`](super::Async) of a type that guarantees not to do that is
/// [`AsyncRead`](super::AsyncRead) and [`AsyncWrite`](super::AsyncWrite). Other types have
/// [`Async::read_with`](super::Async::read_with). If `&T` is `Read` or `Write`, as for most of the
/// standard library's types, `&Async<T>` is `AsyncRead` or `AsyncWrite`.
///
/// ```
/// # #[cfg(unix)] {
/// use polder::Async;
/// use polder::io::{AsyncWriteExt, IoSafe};
/// use std::io::Write;
/// use std::os::fd::{AsFd, BorrowedFd};
///
/// struct Counted(std::fs::File, usize);
///
/// impl Write for Counted {
///     fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
///         let written = self.0.write(bytes)?;
///         self.1 += written;
///         Ok(written)
///     }
///     # fn flush(&mut self) -> std::io::Result<()> { Ok(()) }
/// }
/// # impl AsFd for Counted {
/// #     fn as_fd(&self) -> BorrowedFd<'_> {
/// #         self.0.as_fd()
/// #     }
/// # }
///
/// // SAFETY: its only method that writes leaves the file where it is.
/// unsafe impl IoSafe for Counted {}
///
/// let (reader, writer) = rustix::pipe::pipe()?;
/// let mut writer = Async::new(Counted(writer.into(), 0))?;
/// polder::block_on(writer.write_all(b"hello"))?; // It is `AsyncWrite`.
/// assert_eq!(writer.get_ref().1, 5);
/// # drop(reader);
/// # }
/// # std::io::Result::Ok(())
/// ```
///
/// # Safety
///
/// No method of `Read`, `Write`, [`Seek`](std::io::Seek) or [`BufRead`](std::io::BufRead) closes or
/// replaces the descriptor.
pub unsafe trait IoSafe {}

// SAFETY: the value cannot be replaced through a shared reference.
unsafe impl<T: ?Sized> IoSafe for &T {}
// SAFETY: its methods are system calls on its descriptor.
unsafe impl IoSafe for std::fs::File {}
// SAFETY: as above.
unsafe impl IoSafe for std::net::TcpStream {}
// SAFETY: as above.
#[cfg(unix)]
unsafe impl IoSafe for std::os::unix::net::UnixStream {}
// SAFETY: as above.
unsafe impl IoSafe for std::process::ChildStdin {}
// SAFETY: as above.
unsafe impl IoSafe for std::process::ChildStdout {}
// SAFETY: as above.
unsafe impl IoSafe for std::process::ChildStderr {}
// SAFETY: descriptor 0, and a buffer.
unsafe impl IoSafe for std::io::Stdin {}
// SAFETY: as above.
unsafe impl IoSafe for std::io::StdinLock<'_> {}
// SAFETY: descriptor 1, and a buffer.
unsafe impl IoSafe for std::io::Stdout {}
// SAFETY: as above.
unsafe impl IoSafe for std::io::StdoutLock<'_> {}
// SAFETY: descriptor 2.
unsafe impl IoSafe for std::io::Stderr {}
// SAFETY: as above.
unsafe impl IoSafe for std::io::StderrLock<'_> {}
// SAFETY: its methods are those of a shared reference to the file.
unsafe impl IoSafe for std::sync::Arc<std::fs::File> {}
// SAFETY: it forwards to `T`, which guarantees it.
unsafe impl<T: IoSafe + ?Sized> IoSafe for &mut T {}
// SAFETY: as above.
unsafe impl<T: IoSafe + ?Sized> IoSafe for Box<T> {}
