//! Record and replay for programs on the runtime polder: a run that failed is run again, exactly,
//! under a debugger and with prints that were added (which ask polder for nothing: no `time::now`,
//! no dump), as often as one likes.
//!
//! On one worker a run is a function of what the system gave: readings of the clock, events, bytes,
//! addresses, errors, names, files, signals. [`record()`] runs a future over the system and writes
//! all that to a *tape*; [`replay()`] runs it again from the tape, without network, files or clock,
//! and as fast as it computes.
//!
//! ```
//! use polder::io::{AsyncReadExt, AsyncWriteExt};
//! use polder::net::{TcpListener, TcpStream};
//! use std::io;
//! use std::time::Instant;
//!
//! /// Its result depends on the network's timing.
//! async fn program() -> io::Result<(Vec<u8>, std::time::Duration)> {
//!     let start = polder::time::now();
//!     let listener = TcpListener::bind("127.0.0.1:0").await?;
//!     let address = listener.local_addr()?;
//!     let echo = polder::spawn(async move {
//!         let (mut stream, _) = listener.accept().await?;
//!         let mut bytes = [0; 4];
//!         stream.read_exact(&mut bytes).await?;
//!         stream.write_all(&bytes).await
//!     });
//!     let mut stream = TcpStream::connect(address).await?;
//!     stream.write_all(b"ping").await?;
//!     let mut bytes = Vec::new();
//!     stream.read_to_end(&mut bytes).await?;
//!     echo.await?;
//!     Ok((bytes, polder::time::now() - start))
//! }
//!
//! # fn main() -> io::Result<()> {
//! let path = std::env::temp_dir().join(format!("example-{}.tape", std::process::id()));
//! let recorded = polder_replay::record(&path, program())??;
//! assert_eq!(recorded.0, b"ping");
//! let replayed = polder_replay::replay(&path, program())??;
//! assert_eq!(recorded, replayed); // The nanoseconds too.
//! # std::fs::remove_file(path)?;
//! # Ok(())
//! # }
//! ```
//!
//! A program that calls [`run()`] in `main` is recorded with `POLDER_RECORD=path`, and replayed
//! with `POLDER_REPLAY=path`. The command `polder-replay show path` lists a tape. A test in
//! [`test!`] is recorded, and the tape of a failure is kept.
//!
//! # What a tape has in it
//!
//! Everything that the program received through sockets and files of polder: also passwords and
//! keys. The file is created with mode 0600. Bytes that the program sent are not in it, but for a
//! checksum of two bytes for each call, by which a replay notices that it sends something else.
//!
//! # What is not recorded
//!
//! The following is refused with an error, told on standard error when it happens, or known to a
//! replay only as a divergence:
//!
//! | | |
//! |---|---|
//! | a second worker, another runtime (around it, too), child processes, `Async<T>` and adopted descriptors, `io::Unblock`, links | refused |
//! | descriptors that are lent (`AsFd`), threads that wake tasks | told |
//! | results of `unblock` | told: the function runs again, when the tape says that it was done |
//! | `std::fs`, memory-mapped files, environment, addresses of memory | neither |
//! | `std::time`, randomness | neither, but for a program with `answer_for_libc!` (feature `libc`, Linux) |
//!
//! While it is recorded, an open file is read and written by the worker itself, so a pipe that is
//! opened as a file holds up the other tasks. Works on Unix, with a backend that has edge-triggered
//! events (epoll, kqueue).
//!
//! # Divergence
//!
//! A replay stops at the first call that differs from the tape, with both in the error, the task
//! and the place where it was spawned. A debugger stops there with a breakpoint on
//! [`polder_replay_stopped`].

#![cfg(unix)]
#![deny(missing_docs)]
#![warn(
    clippy::undocumented_unsafe_blocks,
    missing_debug_implementations,
    unreachable_pub
)]

mod arrivals;
mod deck;
mod files;
mod kernel;
#[cfg(all(feature = "libc", target_os = "linux"))]
mod libc;
mod record;
mod replay;
mod run;
mod shared;
mod show;
mod tape;
mod testing;
mod words;

pub use crate::deck::polder_replay_stopped;
pub use crate::run::{Recording, Replaying, record, replay, run};
pub use crate::show::{page, show};

/// Has the standard library's clocks (`Instant`, `SystemTime`) and the C library's randomness (the
/// order of a `HashMap`, the crate `getrandom`) recorded and replayed: one line at the root of the
/// program. Only on Linux with 64-bit pointers; elsewhere it has no effect.
///
/// A thread chooses the keys of its `HashMap`s when it makes the first: one that has made some
/// before it records, or before it replays, has other keys.
#[cfg(feature = "libc")]
pub use polder_sim::answer_for_libc;

/// Not public: where [`test!`] finds polder, however a program calls that.
#[doc(hidden)]
pub use polder as __polder;

/// Not public: the expansion of [`test!`].
#[doc(hidden)]
pub mod __testing {
    pub use super::testing::run;
    pub use polder::__testing::DEFAULT_LIMIT;
}
