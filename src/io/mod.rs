//! Asynchronous I/O: the traits and their combinators, [`Async`] for descriptors that polder has no
//! type for, and [`Unblock`] for values that can only block.
//!
//! The traits and combinators are re-exported from futures-lite, so a program needs no second
//! dependency. [`copy()`] is polder's own: it yields to other tasks. Pitfalls are described at
//! [`AsyncBufReadExt`] (`read_line`), [`AsyncReadExt`], [`AsyncWriteExt`] and [`BufWriter`].
//!
//! ```
//! use polder::io::{AsyncBufReadExt, BufReader, Cursor};
//! use polder::stream::StreamExt;
//!
//! // Any reader: a socket, a pipe, a file, or, as here, bytes.
//! let bytes = Cursor::new("one\ntwo\n");
//! let lines = polder::block_on(BufReader::new(bytes).lines().try_collect::<_, _, Vec<_>>())?;
//! assert_eq!(lines, ["one", "two"]);
//! # std::io::Result::Ok(())
//! ```
//!
//! # What to use
//!
//! * Sockets: [`crate::net`].
//! * Pipes, inotify, timerfd, eventfd, terminals, devices, another library's sockets: [`Async`].
//! * Standard input, output and error: [`Unblock`]. Files: [`crate::fs`], see below.
//! * Connecting two streams: [`copy_bidirectional`]. A connection within the process: [`duplex()`].
//!
//! # Files
//!
//! Kernels report files as always ready, so they cannot be waited for, and threads work on them.
//!
//! * Files and directories: [`crate::fs`]. In a simulated world it is a host's disk.
//! * Many related calls by `std::fs`: one [`unblock`](crate::unblock), since moving to a thread
//!   costs more than most reads do. It is simulated too, but its function works on the system's
//!   files.
//! * Anything else that blocks, as a stream: [`Unblock`]. It is not simulated.
//!
//! An upload that appears as a whole or not at all:
//!
//! ```
//! # #[cfg(all(feature = "fs", feature = "net"))] {
//! use polder::fs;
//! use polder::io::{self, AsyncReadExt};
//! use polder::net::TcpStream;
//!
//! const MAX_LENGTH: u64 = 64 << 20;
//!
//! async fn receive(mut stream: TcpStream) -> io::Result<()> {
//!     let mut file = fs::File::create("/upload.new").await?;
//!     let length = io::copy((&mut stream).take(MAX_LENGTH + 1), &mut file).await?;
//!     if length > MAX_LENGTH {
//!         return Err(io::ErrorKind::FileTooLarge.into());
//!     }
//!     file.sync_all().await?; // Otherwise the name may exist without the bytes.
//!     fs::rename("/upload.new", "/upload").await?;
//!     fs::File::open("/").await?.sync_all().await // Otherwise the name may be lost.
//! }
//! # }
//! ```

mod async_fd;
mod borrowed;
mod copy;
mod duplex;
mod io_safe;
pub(crate) mod operation;
mod readable;

#[cfg(feature = "blocking")]
pub use crate::blocking::Unblock;

pub use async_fd::Async;
#[cfg(feature = "async-io-compat")]
pub(crate) use async_fd::or_nothing;
pub use copy::{copy, copy_bidirectional, copy_bidirectional_with_sizes};
pub use duplex::{DuplexStream, duplex};
// By name: a future name in futures-lite must not shadow one of the user's. `BlockOn` is left out,
// since it drives no sockets.
pub use futures_lite::io::{
    AssertAsync, AsyncAsSync, AsyncBufRead, AsyncRead, AsyncSeek, AsyncSeekExt, AsyncWrite,
    BoxedReader, BoxedWriter, BufReader, Bytes, Chain, CloseFuture, Cursor, Empty, Error,
    ErrorKind, FillBuf, FlushFuture, Lines, ReadExactFuture, ReadFuture, ReadHalf, ReadLineFuture,
    ReadToEndFuture, ReadToStringFuture, ReadUntilFuture, ReadVectoredFuture, Repeat, Result,
    SeekFrom, SeekFuture, Sink, Split, Take, WriteAllFuture, WriteFuture, WriteHalf,
    WriteVectoredFuture, empty, repeat, sink, split,
};

/// *Pitfalls:*
///
/// * `read_line` **needs an empty `String`**. Otherwise it panics in a debug build, and replaces
///   the text in a release build (smol-rs/futures-lite#124).
/// * A dropped `read_line` loses the bytes that it has read. The stream of `lines` keeps them:
///   dropping its `next()` loses nothing.
/// * A dropped `read_until` leaves the bytes that it has read in the `Vec`. Another call with the
///   same `Vec` continues, and returns the count of its own bytes only.
///
/// *From futures-lite:*
#[doc(inline)]
pub use futures_lite::io::AsyncBufReadExt;

/// *Pitfalls:*
///
/// * `read_to_string` **needs an empty `String`**, and loses the bytes that it has read if it is
///   dropped, as `read_line` of [`AsyncBufReadExt`].
/// * A dropped `read_exact` leaves the bytes that it has read in the buffer; their number is
///   unknown.
/// * A dropped `read_to_end` leaves the bytes that it has read in the `Vec`. Another call with the
///   same `Vec` continues.
///
/// *From futures-lite:*
#[doc(inline)]
pub use futures_lite::io::AsyncReadExt;

/// *Pitfalls:*
///
/// * A dropped `write_all` has written any number of the first bytes, which is unknown. `write`
///   returns it.
///
/// *From futures-lite:*
#[doc(inline)]
pub use futures_lite::io::AsyncWriteExt;

/// *Pitfalls:*
///
/// * Dropping it loses buffered bytes, unlike the standard library's: `flush` or `close` it before.
///
/// *From futures-lite:*
#[doc(inline)]
pub use futures_lite::io::BufWriter;
pub use io_safe::IoSafe;
pub use readable::{Readable, ReadableOwned, Writable, WritableOwned};
