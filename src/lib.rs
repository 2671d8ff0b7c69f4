//! A portable async runtime whose I/O backend is chosen at run time: epoll, io_uring, kqueue,
//! poll, select, event ports or IOCP.
//!
//! A program uses [`TcpListener`](net::TcpListener), [`TcpStream`](net::TcpStream), [`Timer`] and
//! [`spawn`], and runs unchanged on each [`Backend`]. The program or the environment variable
//! `POLDER_BACKEND` chooses one; the default is the platform's best.
//!
//! ```
//! # #[cfg(feature = "net")] {
//! use polder::io::{AsyncReadExt, AsyncWriteExt, copy};
//! use polder::net::{TcpListener, TcpStream, serve};
//!
//! polder::block_on(async {
//!     let listener = TcpListener::bind("127.0.0.1:0").await?;
//!     let address = listener.local_addr()?;
//!
//!     // An echo server: one task per connection.
//!     let echo = serve(listener, |mut stream, _peer| async move {
//!         let (reader, writer) = stream.split();
//!         let _ = copy(reader, writer).await;
//!     });
//!     let server = polder::spawn(echo.into_future());
//!
//!     let mut stream = TcpStream::connect(address).await?;
//!     stream.write_all(b"hello").await?;
//!     let mut bytes = [0; 5];
//!     stream.read_exact(&mut bytes).await?;
//!     assert_eq!(&bytes, b"hello");
//!     drop(server); // Dropping a task cancels it.
//!     std::io::Result::Ok(())
//! })?;
//! # } std::io::Result::Ok(())
//! ```
//!
//! # Where to go
//!
//! * **Running futures:** [`block_on`], [`spawn`], [`spawn_local`]; [`unblock`] for blocking calls
//!   and computations; [`TaskSet`] for tasks that belong together; [`Runtime::scope`] for tasks
//!   that borrow; [`task`] for a task's own id and name.
//! * **Sockets:** [`net`] has TCP, UDP and, on Unix, [Unix sockets]; [`net::serve()`] is an accept
//!   loop with a limit, back-off and graceful shutdown.
//! * **Other descriptors** (pipes, inotify, another library's sockets): [`Async`]. Files: [`fs`].
//!   The standard streams: [`io::Unblock`].
//! * **Programs:** [`process`]. **Time, events, signals:** [`time`] ([`Timer`], sleeping, timeouts,
//!   intervals), [`event`] ([`event::Event`], [`event::Latch`]), [`signal`].
//! * **A custom runtime:** a [`Runtime`] can choose a [`Backend`], be driven by a foreign loop, or
//!   have [several workers](runtime::Builder::workers):
//!
//!   ```
//!   # #[cfg(unix)] {
//!   use polder::{Backend, Runtime};
//!
//!   let runtime = Runtime::builder().backend(Backend::Poll).workers(2).build()?;
//!   let tasks: Vec<_> = (0..4).map(|n| runtime.spawn(async move { n * n })).collect();
//!   let squares = runtime.block_on(async {
//!       let mut squares = Vec::new();
//!       for task in tasks {
//!           squares.push(task.await);
//!       }
//!       squares
//!   });
//!   assert_eq!(squares, [0, 1, 4, 9]);
//!   # }
//!   # std::io::Result::Ok(())
//!   ```
//! * **Traits and combinators:** [`io`], [`future`], [`stream`], [`prelude`], [`pin!`] and
//!   [`ready!`] are futures-lite's.
//! * **Tests:** [`test!`] runs a test on every backend, with a time limit; `polder_sim::test!` with
//!   a paused clock. [`always!`] and [`sometimes!`] are checked in simulated worlds (the crate
//!   `polder-sim`), and have no effect elsewhere.
//! * **Observing a program:** [`diagnostics`] has metrics of a runtime, dumps, which show what each
//!   task waits for, stalls, and traces; a [`task::Builder`] gives tasks names.
//! * **The kernel interface alone:** [`poller`], for programs with their own loop.
//!
//! Names and behaviour follow `smol`, `async-io` and `async-net`. The traits are those of
//! futures-io, so crates that are generic over them work unchanged.
//!
//! # More pages
//!
//! In the folder `docs` of the repository and of the published package:
//!
//! * `COMPARE.md`: other runtimes, and when not to use polder. `MIGRATING.md`: tables for users of
//!   smol, async-std, tokio, turmoil and madsim.
//! * `DIAGNOSTICS.md`: diagnostics of a running program. `SIMULATION.md`: deterministic simulation
//!   testing.
//! * `PLATFORM.md`: each platform and backend. `PERFORMANCE.md`: figures beside tokio and smol.
//! * `CRATES.md`: crates that work on polder, and which of them need a running tokio. `REPLAY.md`:
//!   record and replay.
//! * `API.md`: decisions about the interface. For contributors: `DESIGN.md`, `EXTENDING.md`,
//!   `REPORT.md` (the benchmarks), `UNSAFE.md` and `FAULTS.md`.
//!
//! # Errors
//!
//! Operations return [`std::io::Error`]. Errors of connecting, reading and writing are the
//! system's, with its number. Errors of polder, and those of binding and resolving, have a message
//! that names the operation, the address, or the setter with its range and the value.
//!
//! # Features
//!
//! | feature | default | provides | additional dependencies |
//! |---|:-:|---|---|
//! | `net` | yes | [`net`] | socket2 |
//! | `fs` | yes | [`fs`] | none |
//! | `signal` | yes | [`signal`] | signal-hook |
//! | `process` | yes | [`process`] | none |
//! | `blocking` | yes | [`unblock`] and [`io::Unblock`] | none |
//! | `env-diagnostics` | yes | `POLDER_DUMP`, `POLDER_STALL`, `POLDER_TRACE`, `POLDER_TOP`: see [`diagnostics`] | none |
//! | `stall-backtrace` | no | on Linux, a backtrace of the worker in a stall report, taken by a signal: see [`diagnostics`] | polder-stack |
//! | `tracing` | no | spans of tasks, and events, for subscribers and tokio-console: see `docs/DIAGNOSTICS.md` | tracing |
//! | `io-uring` | no | [`Backend::IoUring`]: on Linux, readiness polling through io_uring (no completion I/O) | io-uring |
//! | `polling` | no | [`Backend::Polling`] | polling (always present on Windows and illumos) |
//! | `channel`, `lock`, `executor` | no | `channel`, `lock`, and `Executor` with `LocalExecutor`, by smol's names | async-channel, async-lock, async-executor |
//! | `smol` | no | all of smol's names: these, `async-io-compat`, and what is on by default | those |
//! | `async-io-compat` | no | the functions of async-io for [`Async`]`<std::net::TcpStream>` and similar types | none |
//! | `async-io` | no | [`Backend::AsyncIo`]: one reactor for polder and for crates based on async-io | async-io |
//!
//! Without default features: [`Runtime`], [`spawn`], [`TaskSet`], [`time`], [`event`],
//! [`poller`], and [`Async`] for descriptors.
//!
//! # Things that may surprise
//!
//! * **Dropping a [`Task`] cancels it.** [`Task::detach`] lets it run.
//! * [`block_on`] cancels all tasks that are still running when it returns.
//! * Another crate's `block_on` within a task blocks that task's worker, with its sockets and
//!   timers: waiting for one of these there never ends (with a pool of workers, in a stealable
//!   task, an idle worker serves them a little later). A nested [`block_on`] of polder can wait for
//!   tasks that it spawns; it must not wait for the tasks around it, which are blocked.
//! * Nothing panics for lack of a runtime: on a plain thread sockets, timers and [`spawn`] use a
//!   background runtime, started on first use. The exception is [`spawn_local`].
//!
//! A child of `fork` without `exec` may use polder, within the limits of `docs/PLATFORM.md`.
//!
#![cfg_attr(unix, doc = "[Unix sockets]: net::unix")]
#![cfg_attr(
    not(unix),
    doc = "[Unix sockets]: https://docs.rs/polder/latest/polder/net/unix/"
)]
#![deny(missing_debug_implementations, missing_docs)]
#![warn(unreachable_pub, clippy::missing_panics_doc)]
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]
// Code that only a feature needs stays in place without it, unused.
#![cfg_attr(not(feature = "default"), allow(dead_code, unused_imports))]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod blocking;
mod checks;
mod clock;
pub mod diagnostics;
pub mod event;
#[cfg(feature = "fs")]
pub mod fs;
pub mod future {
    //! Re-exports of futures-lite's combinators, with a [`block_on`] that drives I/O and timers.
    //!
    //! ```
    //! use polder::future;
    //! use polder::time::sleep;
    //! use std::time::Duration;
    //!
    //! let first = future::block_on(future::race(
    //!     async { sleep(Duration::from_millis(2)).await; "soon" },
    //!     async { sleep(Duration::from_secs(3600)).await; "late" },
    //! ));
    //! assert_eq!(first, "soon");
    //! ```

    pub use crate::block_on;
    pub use futures_lite::future::{
        Boxed, BoxedLocal, CatchUnwind, Fuse, Future, FutureExt, Or, Pending, PollFn, PollOnce,
        Race, Ready, TryZip, YieldNow, Zip, fuse, or, pending, poll_fn, race, race_with_seed,
        ready, try_zip, yield_now, zip,
    };

    /// *Unlike elsewhere:* it also returns `None` if the future is a ready operation, and the
    /// task's budget is used up ([`consume_budget`](crate::task::consume_budget)). So a loop that
    /// drains a socket by `poll_once` ends early. Functions such as `try_recv` have no such limit.
    ///
    /// *futures-lite's own words:*
    #[doc(inline)]
    pub use futures_lite::future::poll_once;
}
pub mod io;
#[cfg(feature = "kernel")]
#[doc(hidden)]
pub mod kernel;
#[cfg(not(feature = "kernel"))]
#[allow(dead_code, unreachable_pub, reason = "nothing is installed")]
mod kernel;
mod loom;
#[cfg(feature = "net")]
pub mod net;
pub mod poller;
#[cfg(feature = "process")]
pub mod process;
pub mod prelude {
    //! The traits of futures-lite, to be imported together.
    //!
    //! ```
    //! use polder::prelude::*;
    //!
    //! let mut bytes = &b"hello"[..];
    //! let mut text = String::new();
    //! polder::block_on(bytes.read_to_string(&mut text))?;
    //! assert_eq!(text, "hello");
    //! # std::io::Result::Ok(())
    //! ```

    #[doc(no_inline)]
    pub use futures_lite::future::{Future, FutureExt as _};
    #[doc(no_inline)]
    pub use futures_lite::io::{
        AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncSeek,
        AsyncSeekExt as _, AsyncWrite, AsyncWriteExt as _,
    };
    #[doc(no_inline)]
    pub use futures_lite::stream::{Stream, StreamExt as _};
}
mod reactor;
pub mod runtime;
mod scheduler;
#[cfg(feature = "signal")]
pub mod signal;
mod slab;
mod spans;
mod sync;
mod sys;
pub mod stream {
    //! Re-exports of futures-lite's streams. [`Timer`](crate::Timer), [`TaskSet`](crate::TaskSet)
    //! and the connections of listeners are streams, too.
    //!
    //! The streams of [`or`] and [`race`] stay pending when both of theirs have ended.
    //! `futures_util::stream::select` ends with the second.
    //!
    //! ```
    //! use polder::stream::{self, StreamExt};
    //!
    //! polder::block_on(async {
    //!     let squares = stream::iter(1..=3).map(|n| n * n);
    //!     assert_eq!(squares.collect::<Vec<_>>().await, [1, 4, 9]);
    //! });
    //! ```

    // Without `block_on`, which drives no sockets.
    pub use futures_lite::stream::{
        AllFuture, AnyFuture, Boxed, BoxedLocal, Chain, Cloned, CollectFuture, Copied, CountFuture,
        Cycle, Drain, Empty, Enumerate, Filter, FilterMap, FindFuture, FindMapFuture, FlatMap,
        Flatten, FoldFuture, ForEachFuture, Fuse, Inspect, Iter, LastFuture, Map, MapWhile,
        NextFuture, NthFuture, Once, OnceFuture, Or, PartitionFuture, Pending, PollFn,
        PositionFuture, Race, Repeat, RepeatWith, Scan, Skip, SkipWhile, StepBy, StopAfterFuture,
        Stream, StreamExt, Take, TakeWhile, Then, TryCollectFuture, TryFoldFuture,
        TryForEachFuture, TryNextFuture, TryUnfold, Unfold, UnzipFuture, Zip, empty, iter, once,
        once_future, or, pending, poll_fn, race, race_with_seed, repeat, repeat_with,
        stop_after_future, try_unfold, unfold,
    };
}
pub mod task;
mod telemetry;
mod testing;
pub mod time;

// smol's names for its other crates, which need no runtime.
#[cfg(feature = "channel")]
pub use async_channel as channel;
#[cfg(feature = "executor")]
pub use async_executor::{Executor, LocalExecutor};
#[cfg(feature = "lock")]
pub use async_lock as lock;
pub use futures_lite::{pin, ready};
pub use io::Async;
#[cfg(feature = "blocking")]
pub use io::Unblock;
pub use poller::Backend;
pub use runtime::{Handle, Runtime, TaskSet, block_on, spawn, spawn_local};
#[cfg(feature = "blocking")]
pub use task::unblock;
pub use task::{FallibleTask, Task};
pub use time::Timer;

/// The expansion of [`test!`].
#[doc(hidden)]
pub mod __testing {
    pub use crate::testing::{DEFAULT_LIMIT, Outcome, run};
}

/// The expansion of [`always!`] and [`sometimes!`].
#[doc(hidden)]
pub mod __checks {
    pub use crate::checks::{asks_for, buggify, checks_here, does_not_hold, note_sometimes};
}

/// Runs the README's examples.
#[cfg(all(doctest, unix, feature = "net", feature = "signal"))]
#[doc = include_str!("../README.md")]
pub mod readme {}
