//! The functions that record and replay: each runs a future on a runtime of this crate's kernel.

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
use polder::poller::Poller;
use polder::runtime::custom::CustomRuntime;
use rustix::time::ClockId;

use crate::deck::{Deck, Side, clock_shows, eject, insert, look, now, with};
use crate::kernel::{Taped, TapedPoller};
use crate::record::Recorder;
use crate::replay::Player;
use crate::shared::{Shared, say};
use crate::tape::{End, bad};

/// The tasks of a turn, between which no events are taken: as many as the runtime's own turn has.
const TASKS: usize = 64;

/// Runs `future` on the system, and writes a tape to `path`. See the [`crate`].
///
/// A file at `path` is renamed first: an older tape is kept as `path.old`. The backend is the
/// system's default, also if `POLDER_BACKEND` names another one.
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
    let invalid = |words: String| io::Error::new(io::ErrorKind::InvalidInput, words);
    let number = |name: &str| match std::env::var(name) {
        Ok(text) => {
            let wrong = |_| invalid(format!("{name}: {text:?} is no number"));
            text.parse().map_err(wrong)
        }
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
        (Some(_), Some(_)) => {
            let words = "POLDER_RECORD and POLDER_REPLAY exclude each other";
            Err(invalid(words.to_owned()))
        }
    }
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
            let backend = poller.backend();
            return Err(unsupported(format!(
                "recording needs edge-triggered events, which {backend} has not"
            )));
        }
        let recorder = Recorder::create(self.path.clone(), self.limit)?;
        let again = self.is_of_environment.then_some(&*self.path);
        let side = Side::Record(recorder);
        drive(side, Shared::new(Some(poller)), future, site, again)
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
        drive(Side::Replay(player), Shared::new(None), future, site, None)
    }
}

fn unsupported(words: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, words.into())
}

fn check_thread() -> io::Result<()> {
    if polder::kernel::current().is_some() {
        let words = "this thread records, replays or simulates already";
        Err(unsupported(words))
    } else if polder::Handle::try_current().is_some() {
        Err(unsupported(
            "this thread runs a runtime already, which would wait, and is not on a tape: \
             record and replay the future that is given to it instead",
        ))
    } else {
        Ok(())
    }
}

/// Makes a deck this thread's.
fn insert_deck(side: Side, shared: Arc<Shared>) {
    let shown = clock_shows(ClockId::Monotonic);
    #[cfg(all(feature = "libc", target_os = "linux"))]
    let now = crate::libc::at(shown);
    #[cfg(not(all(feature = "libc", target_os = "linux")))]
    let now = std::time::Instant::now();
    // From the beginning of a jiffy: the first reading of the clock has the rest, for a replay too.
    let part = CustomRuntime::part_of_jiffy(now);
    insert(side, shared, now - part, shown.saturating_sub(part));
}

/// Runs the future as the main task of a runtime on this thread. After a panic the tape `again` is
/// named.
fn drive<F>(
    side: Side,
    shared: Shared,
    future: F,
    site: &'static Location<'static>,
    again: Option<&Path>,
) -> io::Result<F::Output>
where
    F: Future + 'static,
{
    #[cfg(all(feature = "libc", target_os = "linux"))]
    crate::libc::begin();
    let (shared, is_replay) = (Arc::new(shared), matches!(side, Side::Replay(_)));
    // Before the kernel is there: the first clock of the process is the system's.
    let runtime = CustomRuntime::new(vec![Box::new(TapedPoller(shared.clone()))]);
    let worker = runtime.workers().next().expect("it has one");
    insert_deck(side, shared);
    let installed = polder::kernel::install(&Taped);
    let output = Rc::new(RefCell::new(None));
    let main_output = output.clone();
    let main = async move {
        let result = AssertUnwindSafe(future).catch_unwind().await;
        *main_output.borrow_mut() = Some(result);
    };
    let run = || {
        runtime.spawn_main(main, site);
        while output.borrow().is_none() {
            if deliver(&runtime, is_replay).is_err() {
                break; // The replay has stopped.
            }
            worker.turn_of(TASKS);
            if output.borrow().is_none() {
                look(None, Deck::sleep);
            }
        }
    };
    let mut failure = catch_unwind(AssertUnwindSafe(run)).err();
    if look(None, |deck| deck.stopped.is_some()) == Some(true) {
        // A stop in a call for libc has not unwound yet: it does not from here.
        let _ = catch_unwind(now);
        for tasks in runtime.within(|| runtime.describe()) {
            say(tasks);
        }
    }
    drop(worker);
    // Calls of the tasks while they are dropped are on the tape.
    let closed = catch_unwind(AssertUnwindSafe(|| drop(runtime)));
    failure = failure.or(closed.err());
    let result = output.take();
    let result = result.unwrap_or_else(|| Err(failure.unwrap_or(Box::new("stopped"))));
    let end = if result.is_ok() {
        End::Returned
    } else {
        End::Panicked
    };
    let _ = catch_unwind(|| with(None, |deck| deck.end(end)));
    drop(installed);
    let deck = eject();
    if let Some(words) = deck.and_then(|mut deck| deck.stopped.take()) {
        return Err(bad(words));
    }
    result.or_else(|panic| {
        if let Some(path) = again {
            let path = path.display();
            say(format_args!("POLDER_REPLAY={path} runs this again"));
        }
        resume_unwind(panic)
    })
}

/// Gives the program what has come from elsewhere. Fails where a replay has stopped.
fn deliver(runtime: &CustomRuntime, is_replay: bool) -> io::Result<()> {
    if !with(None, Deck::begin_turn)? {
        return Ok(());
    }
    while let Some((waker, call)) = with(None, Deck::next_delivery)? {
        runtime.within(|| {
            if let Some(waker) = waker {
                waker.wake();
            }
            let Some(call) = call else {
                return io::Result::Ok(());
            };
            // A recording has called the function before: on a thread that has no kernel.
            if is_replay {
                let called = thread::scope(|scope| {
                    let thread = thread::Builder::new();
                    let thread = thread.spawn_scoped(scope, || call.prepare())?;
                    thread.join().or(Ok(()))
                });
                let stop = |error: io::Error| {
                    let words = format!("there is no thread for a call of `unblock`: {error}");
                    with(None, |deck| deck.stop(words))
                };
                called.or_else(stop)?;
            }
            call.run();
            Ok(())
        })?;
    }
    Ok(())
}
