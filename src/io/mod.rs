//! The asynchronous I/O traits and their combinators, [`Async`] for descriptors that polder has no
//! type for, and [`Unblock`] for values that can only block.
//!
//! The traits and combinators are re-exported from futures-lite, so that a program needs no second
//! dependency. [`copy`] is polder's own: it yields to other tasks.
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
//! # What to use
//!
//! * Sockets: [`crate::net`].
//! * Pipes, inotify, timerfd, eventfd, terminals, devices, another library's sockets: [`Async`].
//! * Files, and standard input, output and error: [`Unblock`], or [`unblock`](crate::unblock) for a
//!   single call. A kernel reports files as always ready, so they cannot be waited for; the
//!   standard streams can be files.
//! * Connecting two streams with each other: [`copy_bidirectional`]. A connection within the
//!   process: [`duplex`].

mod async_fd;
mod copy;
mod duplex;
mod io_safe;
mod lent;
pub(crate) mod operation;
mod readable;

#[cfg(feature = "blocking")]
pub use crate::blocking::Unblock;

pub use async_fd::Async;
#[cfg(feature = "compat")]
pub(crate) use async_fd::or_nothing;
pub use copy::{copy, copy_bidirectional, copy_bidirectional_with_sizes};
pub use duplex::{DuplexStream, duplex};
// By name, without a glob: a future name in futures-lite must not shadow one of the user's. Left
// out are the types that only combinators return, and `BlockOn`, which drives no sockets.
pub use futures_lite::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncSeek, AsyncSeekExt, AsyncWrite,
    AsyncWriteExt, BufReader, BufWriter, Chain, Cursor, Error, ErrorKind, Lines, ReadHalf, Result,
    SeekFrom, Take, WriteHalf, empty, repeat, sink, split,
};
pub use io_safe::IoSafe;
pub use readable::{Readable, ReadableOwned, Writable, WritableOwned};
