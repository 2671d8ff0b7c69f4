//! Record and replay for programs on the runtime polder: a run that failed is run again, exactly,
//! under a debugger and with prints that were added (which ask polder for nothing: no `time::now`,
//! no dump), as often as one likes.
//!
//! On one worker a run is a function of what the system gave: readings of the clock, events, bytes,
//! addresses, errors, names, files, signals. [`record`] runs a future over the system and writes
//! all that to a *tape*; [`replay`] runs it again from the tape, without network, files or clock,
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
//! A program that calls [`run`] in `main` is recorded with `POLDER_RECORD=path`, and replayed with
//! `POLDER_REPLAY=path`. The command `polder-replay show path` lists a tape. A test in [`test!`] is
//! recorded, and the tape of a failure is kept.
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

mod deck;
mod files;
mod kernel;
#[cfg(all(feature = "libc", target_os = "linux"))]
mod libc;
mod record;
mod replay;
mod show;
mod tape;
mod testing;

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use futures_lite::FutureExt;
use polder::Backend;
use polder::kernel::BlockingCall;
use polder::poller::Poller;
use polder::runtime::custom::CustomRuntime;

use crate::deck::{Delivery, Shared, Side, look, with};
use crate::kernel::{Taped, TapedPoller};
use crate::record::Recorder;
use crate::replay::Player;
use crate::tape::End;

/// The tasks of a turn, between which no events are taken: as many as the runtime's own turn has.
const TASKS: usize = 64;

/// Runs `future` on the system, and writes a tape to `path`. See the [crate](self).
///
/// A file at `path` is renamed first: an older tape is kept as `path.old`.
///
/// ```
/// # let path = std::env::temp_dir().join(format!("record-{}.tape", std::process::id()));
/// let seven = polder_replay::record(&path, async { 7 })?;
/// assert_eq!(seven, 7);
/// # std::fs::remove_file(path)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The tape cannot be created (`path` is a directory, a device or a symbolic link, among others),
/// or the system has no suitable poller. A tape that cannot be written later ends early, and so
/// does one with an entry of more than 64 MiB; both are told on standard error.
///
/// # Panics
///
/// Passes on a panic of the future, after the tape is complete.
#[track_caller]
pub fn record<F>(path: impl AsRef<Path>, future: F) -> io::Result<F::Output>
where
    F: Future + 'static,
{
    Recording::new(path).run(future)
}

/// Runs `future` on the tape at `path`.
///
/// ```
/// # let path = std::env::temp_dir().join(format!("replay-{}.tape", std::process::id()));
/// let seven = polder_replay::record(&path, async { 7 })?;
/// assert_eq!(polder_replay::replay(&path, async { 7 })?, seven);
/// # std::fs::remove_file(path)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The file is no tape; the replay diverges; or the tape ends before the future does.
///
/// # Panics
///
/// Passes on a panic of the future.
#[track_caller]
pub fn replay<F>(path: impl AsRef<Path>, future: F) -> io::Result<F::Output>
where
    F: Future + 'static,
{
    Replaying::new(path).run(future)
}

/// Runs `future` as the environment says: with `POLDER_RECORD=path` it is [recorded](record)
/// (`POLDER_RECORD_LIMIT=bytes` limits the tape), with `POLDER_REPLAY=path` it is
/// [replayed](replay) (`POLDER_REPLAY_UNTIL=number` stops it before that entry); otherwise by
/// [`polder::block_on`].
///
/// A child process inherits these variables: remove them, or a child that also calls this renames
/// the tape and begins another.
///
/// ```
/// fn main() -> std::io::Result<()> {
///     polder_replay::run(async {
///         // The program.
///     })
/// }
/// ```
///
/// # Errors
///
/// As [`record`] and [`replay`]; a variable that is no number, or both paths.
///
/// # Panics
///
/// Passes on a panic of the future.
#[track_caller]
pub fn run<F>(future: F) -> io::Result<F::Output>
where
    F: Future + 'static,
{
    let path = |name| std::env::var_os(name).filter(|path| !path.is_empty());
    let number = |name: &str| match std::env::var(name) {
        Ok(text) => match text.parse() {
            Ok(number) => Ok(number),
            Err(_) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{name}: {text:?} is no number"),
            )),
        },
        Err(_) => Ok(u64::MAX),
    };
    match (path("POLDER_RECORD"), path("POLDER_REPLAY")) {
        (None, None) => Ok(polder::block_on(future)),
        (Some(path), None) => {
            let mut recording = Recording::new(path).limit(number("POLDER_RECORD_LIMIT")?);
            recording.is_of_environment = true;
            recording.run(future)
        }
        (None, Some(path)) => Replaying::new(path)
            .until(number("POLDER_REPLAY_UNTIL")?)
            .run(future),
        (Some(_), Some(_)) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "POLDER_RECORD and POLDER_REPLAY exclude each other",
        )),
    }
}

/// Lists the tape at `path` in lines, up to the entry `until`: what `polder-replay show` prints.
///
/// ```
/// # let path = std::env::temp_dir().join(format!("show-{}.tape", std::process::id()));
/// polder_replay::record(&path, async {})?;
/// let mut text = Vec::new();
/// polder_replay::show(&path, None, &mut text)?;
/// assert!(String::from_utf8_lossy(&text).contains("the future returned"));
/// # std::fs::remove_file(path)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The file is no tape, or an error of `to`.
pub fn show(path: impl AsRef<Path>, until: Option<u64>, to: &mut dyn io::Write) -> io::Result<()> {
    show::list(path.as_ref(), until.unwrap_or(u64::MAX), to)
}

/// Draws the tape at `path` as a page, up to the entry `until`: what `polder-replay show --page`
/// writes. It has the last 3,000 entries (readings of the clock are left
/// out), a lane for the tasks of each spawn site, and a slider,
/// which shows what each task did last.
///
/// ```
/// # let path = std::env::temp_dir().join(format!("page-{}.tape", std::process::id()));
/// polder_replay::record(&path, async {})?;
/// let mut html = Vec::new();
/// polder_replay::page(&path, None, &mut html)?;
/// assert!(String::from_utf8_lossy(&html).contains("the future returned"));
/// # std::fs::remove_file(path)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The file is no tape, or an error of `to`.
pub fn page(path: impl AsRef<Path>, until: Option<u64>, to: &mut dyn io::Write) -> io::Result<()> {
    show::page(path.as_ref(), until.unwrap_or(u64::MAX), to)
}

/// Called when a replay stops: a place for a breakpoint. Prints the reason.
///
/// ```
/// polder_replay::polder_replay_stopped("an example");
/// ```
// Nothing else has this name, or the linker says so. A debugger finds it without debug
// information.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn polder_replay_stopped(reason: &str) {
    eprintln!("polder-replay: {reason}");
}

/// A recording with options.
///
/// ```
/// # let path = std::env::temp_dir().join(format!("limit-{}.tape", std::process::id()));
/// let output = polder_replay::Recording::new(&path).limit(1 << 30).run(async { 7 })?;
/// assert_eq!(output, 7);
/// # std::fs::remove_file(path)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct Recording {
    path: PathBuf,
    limit: u64,
    /// Whether the environment asked for it, by which it is replayed then.
    is_of_environment: bool,
}

impl Recording {
    /// A recording to `path`, without a limit.
    ///
    /// ```
    /// let recording = polder_replay::Recording::new("/tmp/tape");
    /// ```
    pub fn new(path: impl AsRef<Path>) -> Recording {
        Recording {
            path: path.as_ref().to_owned(),
            limit: u64::MAX,
            is_of_environment: false,
        }
    }

    /// Ends the tape before the entry that exceeds so many bytes. The run goes on unrecorded.
    ///
    /// ```
    /// let recording = polder_replay::Recording::new("/tmp/tape").limit(1 << 30);
    /// ```
    #[must_use]
    pub fn limit(mut self, bytes: u64) -> Recording {
        self.limit = bytes;
        self
    }

    /// See [`record`].
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("run-{}.tape", std::process::id()));
    /// assert_eq!(polder_replay::Recording::new(&path).run(async { 7 })?, 7);
    /// # std::fs::remove_file(path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`record`].
    ///
    /// # Panics
    ///
    /// As [`record`].
    #[track_caller]
    pub fn run<F>(self, future: F) -> io::Result<F::Output>
    where
        F: Future + 'static,
    {
        let site = Location::caller();
        check_thread()?;
        let poller = Poller::new(Backend::default())?;
        if !poller.capabilities().edge {
            let words = format!(
                "recording needs edge-triggered events, which {} has not",
                poller.backend()
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, words));
        }
        let shared = Arc::new(Shared::new(Some(poller)));
        let recorder = Recorder::create(self.path.clone(), self.limit, shared.clone())?;
        let ended = drive(Side::Record(recorder), shared, future, site);
        ended.output.map_err(|stop| match stop {
            Some(panic) => {
                if self.is_of_environment {
                    eprintln!(
                        "polder-replay: POLDER_REPLAY={} runs this again",
                        self.path.display()
                    );
                }
                resume_unwind(panic)
            }
            None => io::Error::other("the runtime has failed"),
        })
    }
}

/// A replay with options.
///
/// ```
/// let replaying = polder_replay::Replaying::new("/tmp/tape").until(1_000);
/// ```
#[derive(Clone, Debug)]
pub struct Replaying {
    path: PathBuf,
    until: u64,
}

impl Replaying {
    /// A replay of the tape at `path`.
    ///
    /// ```
    /// let replaying = polder_replay::Replaying::new("/tmp/tape");
    /// ```
    pub fn new(path: impl AsRef<Path>) -> Replaying {
        Replaying {
            path: path.as_ref().to_owned(),
            until: u64::MAX,
        }
    }

    /// Stops before the entry of this number, with an error.
    ///
    /// ```
    /// let replaying = polder_replay::Replaying::new("/tmp/tape").until(1_000);
    /// ```
    #[must_use]
    pub fn until(mut self, entry: u64) -> Replaying {
        self.until = entry;
        self
    }

    /// See [`replay`].
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("again-{}.tape", std::process::id()));
    /// let seven = polder_replay::record(&path, async { 7 })?;
    /// assert_eq!(polder_replay::Replaying::new(&path).run(async { 7 })?, seven);
    /// # std::fs::remove_file(path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`replay`].
    ///
    /// # Panics
    ///
    /// As [`replay`].
    #[track_caller]
    pub fn run<F>(self, future: F) -> io::Result<F::Output>
    where
        F: Future + 'static,
    {
        let site = Location::caller();
        check_thread()?;
        let player = Player::open(&self.path, self.until)?;
        let shared = Arc::new(Shared::new(None));
        let ended = drive(Side::Replay(player), shared, future, site);
        match (ended.stopped, ended.output) {
            (Some(words), _) => Err(tape::bad(words)),
            (None, Ok(output)) => Ok(output),
            (None, Err(Some(panic))) => resume_unwind(panic),
            (None, Err(None)) => Err(io::Error::other("the runtime has failed")),
        }
    }
}

fn check_thread() -> io::Result<()> {
    let words = if polder::kernel::current().is_some() {
        "this thread records, replays or simulates already"
    } else if polder::Handle::try_current().is_some() {
        "this thread runs a runtime already, which would wait, and is not on a tape: \
         record and replay the future that is given to it instead"
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::Unsupported, words))
}

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

type Panic = Box<dyn Any + Send>;

struct Ended<T> {
    /// The output, or the panic of the future, or of the runtime.
    output: Result<T, Option<Panic>>,
    /// Why a replay was stopped.
    stopped: Option<String>,
}

/// Runs the future as the main task of a runtime on this thread.
fn drive<F>(
    side: Side,
    shared: Arc<Shared>,
    future: F,
    site: &'static Location<'static>,
) -> Ended<F::Output>
where
    F: Future + 'static,
{
    #[cfg(all(feature = "libc", target_os = "linux"))]
    libc::begin();
    // Before the kernel is there: the first clock of the process is the system's.
    let runtime = CustomRuntime::new(vec![Box::new(TapedPoller(shared.clone()))]);
    let worker = runtime.workers().next().expect("it has one");
    deck::insert(side, shared);
    let installed = polder::kernel::install(&Taped);
    let output = Rc::new(RefCell::new(None));
    let main_output = output.clone();
    let main = async move {
        let result = AssertUnwindSafe(future).catch_unwind().await;
        *main_output.borrow_mut() = Some(result);
    };
    let mut failure = catch_unwind(AssertUnwindSafe(|| runtime.spawn_main(main, site))).err();
    while output.borrow().is_none() && failure.is_none() {
        let turn = catch_unwind(AssertUnwindSafe(|| {
            deliver(&runtime)?;
            worker.turn_of(TASKS);
            if output.borrow().is_none() {
                look(|deck| deck.sleep());
            }
            io::Result::Ok(())
        }));
        match turn {
            Ok(Ok(())) => {}
            Ok(Err(_)) => break, // The replay has stopped.
            Err(panic) => failure = Some(panic),
        }
    }
    if look(|deck| deck.stopped.is_some()) == Some(true) {
        // A stop in a call for libc has not unwound yet: it does not from here.
        let _ = catch_unwind(deck::now);
        for tasks in runtime.within(|| runtime.describe()) {
            eprintln!("polder-replay: {tasks}");
        }
    }
    drop(worker);
    // Calls of the tasks while they are dropped are on the tape.
    let closed = catch_unwind(AssertUnwindSafe(|| drop(runtime)));
    failure = failure.or(closed.err());
    let result = output
        .borrow_mut()
        .take()
        .unwrap_or_else(|| Err(failure.unwrap_or(Box::new("stopped"))));
    let end = if result.is_ok() {
        End::Returned
    } else {
        End::Panicked
    };
    let _ = catch_unwind(|| with(|deck| deck.end(end)));
    drop(installed);
    let deck = deck::eject();
    Ended {
        output: result.map_err(Some),
        stopped: deck.and_then(|mut deck| deck.stopped.take()),
    }
}

/// Gives the program what has come from elsewhere. Fails where a replay has stopped.
fn deliver(runtime: &CustomRuntime) -> io::Result<()> {
    if !with(deck::Deck::begin_turn)? {
        return Ok(());
    }
    while let Some(delivery) = with(deck::Deck::next_delivery)? {
        runtime.within(|| match delivery {
            Delivery::Wake(wakers) => wakers.into_iter().for_each(std::task::Waker::wake),
            Delivery::Run(call) => {
                if let Some(call) = call {
                    prepare(&call);
                    call.run();
                }
            }
        });
    }
    Ok(())
}

/// Has a replay call the function of `unblock` where the recording did: on a thread that has no
/// kernel. A recording has called it before.
fn prepare(call: &Arc<dyn BlockingCall>) {
    if !look(|deck| matches!(deck.side, Side::Replay(_))).unwrap_or(false) {
        return;
    }
    let call = call.clone();
    let thread = thread::Builder::new().name("polder-replay".to_owned());
    // If there is no thread, the function is called by `run`.
    if let Ok(thread) = thread.spawn(move || call.prepare()) {
        let _ = thread.join();
    }
}
