//! The asynchronous I/O traits and their combinators, [`Async`] for descriptors that polder has no
//! type for, and [`Unblock`] for values that can only block.
//!
//! The traits and combinators are re-exported from futures-lite, so that a program needs no second
//! dependency. [`copy`] is polder's own: it yields to other tasks. What may surprise is said at
//! [`AsyncBufReadExt`] (`read_line`), [`AsyncReadExt`], [`AsyncWriteExt`] and [`BufWriter`].
//!
//! ```
//! use polder::io::{AsyncBufReadExt, BufReader, Cursor};
//! use polder::stream::StreamExt;
//!
//! // Whatever can be read: a socket, a pipe, a file, or, as here, bytes.
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
//! * Connecting two streams with each other: [`copy_bidirectional`]. A connection within the
//!   process: [`duplex`].
//!
//! # Files
//!
//! A kernel reports files as always ready, so they cannot be waited for, and threads work on them.
//!
//! * Files and directories: [`crate::fs`]. In a simulated world it is the disk of a host.
//! * Many related calls, by `std::fs`: [`unblock`](crate::unblock). Moving to a thread costs more
//!   than most reads do, so such calls go there together. It is simulated too, but its function
//!   works on the system's files.
//! * Anything else that blocks, as a stream: [`Unblock`]. It is not simulated.
//!
//! An upload that is there as a whole or not at all:
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
//!     file.sync_all().await?; // Or the name may be there without the bytes.
//!     fs::rename("/upload.new", "/upload").await?;
//!     fs::File::open("/").await?.sync_all().await // Or the name may not be there.
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
// By name, without a glob: a future name in futures-lite must not shadow one of the user's. Left
// out is `BlockOn`, which drives no sockets.
pub use futures_lite::io::{
    AssertAsync, AsyncAsSync, AsyncBufRead, AsyncRead, AsyncSeek, AsyncSeekExt, AsyncWrite,
    BoxedReader, BoxedWriter, BufReader, Bytes, Chain, CloseFuture, Cursor, Empty, Error,
    ErrorKind, FillBuf, FlushFuture, Lines, ReadExactFuture, ReadFuture, ReadHalf, ReadLineFuture,
    ReadToEndFuture, ReadToStringFuture, ReadUntilFuture, ReadVectoredFuture, Repeat, Result,
    SeekFrom, SeekFuture, Sink, Split, Take, WriteAllFuture, WriteFuture, WriteHalf,
    WriteVectoredFuture, empty, repeat, sink, split,
};

/// *What may surprise:*
///
/// * `read_line` **needs an empty `String`**. Otherwise it panics in a debug build, and replaces
///   the text in a release build (smol-rs/futures-lite#124).
/// * If the future of `read_line` is dropped, the bytes that it has read are lost. The stream of
///   `lines` keeps them: dropping its `next()` loses nothing.
/// * If the future of `read_until` is dropped, the bytes that it has read are in the `Vec`. Another
///   call with the same `Vec` continues, and returns the count of its own bytes only.
///
/// *futures-lite's own words:*
#[doc(inline)]
pub use futures_lite::io::AsyncBufReadExt;

/// *What may surprise:*
///
/// * `read_to_string` **needs an empty `String`**, and loses the bytes that it has read if its
///   future is dropped, as `read_line` of [`AsyncBufReadExt`].
/// * If the future of `read_exact` is dropped, bytes that it has read are in the buffer, and their
///   number is not known.
/// * If the future of `read_to_end` is dropped, the bytes that it has read are in the `Vec`.
///   Another call with the same `Vec` continues.
///
/// *futures-lite's own words:*
#[doc(inline)]
pub use futures_lite::io::AsyncReadExt;

/// *What may surprise:*
///
/// * If the future of `write_all` is dropped, any number of the first bytes have been written, and
///   the number is not known. `write` returns it.
///
/// *futures-lite's own words:*
#[doc(inline)]
pub use futures_lite::io::AsyncWriteExt;

/// *What may surprise:*
///
/// * Dropping it loses the bytes that it has buffered, unlike the standard library's: `flush` or
///   `close` it before.
///
/// *futures-lite's own words:*
#[doc(inline)]
pub use futures_lite::io::BufWriter;
pub use io_safe::IoSafe;
pub use readable::{Readable, ReadableOwned, Writable, WritableOwned};
