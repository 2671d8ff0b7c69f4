//! The asynchronous I/O traits and their combinators, [`Async`] for descriptors that polder has no
//! type for, and [`Unblock`] for what only blocks.
//!
//! The traits and combinators are futures-lite's, again, so that a program needs no second
//! dependency.
//!
//! ```
//! use polder::io::{AsyncBufReadExt, BufReader, Cursor};
//! use polder::stream::StreamExt;
//!
//! // Whatever can be read: a socket, a pipe, a file in an `Unblock`, or, as here, bytes.
//! let bytes = Cursor::new("one\ntwo\n");
//! let lines = polder::block_on(BufReader::new(bytes).lines().try_collect::<_, _, Vec<_>>())?;
//! assert_eq!(lines, ["one", "two"]);
//! # std::io::Result::Ok(())
//! ```
//!
//! # Which one for what
//!
//! * Sockets: [`crate::net`].
//! * Pipes, inotify, timerfd, eventfd, terminals, devices, another library's sockets: [`Async`].
//! * Files, and standard input, output and error: [`Unblock`], or [`unblock`](crate::unblock) for a
//!   single call. Files are always ready as far as a kernel can tell, so there is nothing to wait
//!   for; the standard streams can be files.

mod adapter;
#[cfg(feature = "net")]
mod sockets;

pub use adapter::{Async, IoSafe, Readable, ReadableOwned, Writable, WritableOwned};
/// Something that blocks, made asynchronous: its operations run on the blocking pool, through a
/// buffer. It is the `blocking` crate's.
///
/// This is how to use standard input and output:
///
/// ```
/// use polder::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Unblock};
/// use polder::stream::StreamExt;
///
/// polder::block_on(async {
///     let mut lines = BufReader::new(Unblock::new(std::io::stdin())).lines();
///     let mut output = Unblock::new(std::io::stdout());
///     while let Some(line) = lines.next().await {
///         output.write_all(format!("{}\n", line?.to_uppercase()).as_bytes()).await?;
///     }
///     output.flush().await // Or the last lines may stay in the buffer.
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// and this, a file:
///
/// ```
/// use polder::io::{AsyncReadExt, Unblock};
///
/// # fn main() -> std::io::Result<()> {
/// polder::block_on(async {
///     let mut file = Unblock::new(std::fs::File::open("Cargo.toml")?);
///     let mut text = String::new();
///     file.read_to_string(&mut text).await?;
///     assert!(text.contains("[package]"));
///     std::io::Result::Ok(())
/// })
/// # }
/// ```
///
/// # What to know
///
/// * **A read of standard input that waits keeps a thread** until a line or the end comes, whether
///   or not anybody still wants it: it cannot be called back. Make one `Unblock` of it, and keep it;
///   what a dropped one has read ahead is lost. The thread does not keep the process from ending.
/// * It reads ahead and writes behind, 8 MiB at most by default
///   ([`with_capacity`](Unblock::with_capacity) says otherwise). What was written is there after
///   `flush` only.
/// * For whole directories and much else on files there is the crate `async-fs`, which stands on the
///   same pool.
#[cfg(feature = "blocking")]
pub use blocking::Unblock;
pub use futures_lite::io::*;
