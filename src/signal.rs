//! Signals of the operating system: [`ctrl_c`], and [`Signals`] for the others.
//!
//! One thread, started on first use, waits for the signals that anybody has asked for, and wakes
//! whoever waits for them, in whatever runtime. It depends on no backend, and a program that asks for
//! no signal has none of it.
//!
//! ```
//! use polder::future;
//! use polder::signal::ctrl_c;
//!
//! # async fn serve() { signal_hook::low_level::raise(2).unwrap(); std::future::pending().await }
//! polder::block_on(async {
//!     // Works until it is told to stop.
//!     future::or(async { serve().await; Ok(()) }, ctrl_c()).await?;
//!     println!("stopping");
//!     std::io::Result::Ok(())
//! })?;
//! # std::io::Result::Ok(())
//! ```
//!
//! A signal is counted by its handler itself, so that each listener knows what came since it was made.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_lite::Stream;
use signal_hook::consts;
use slab::Slab;

use crate::sync::{NeedsClone, Spare, drop_all, wake_all};

/// Waits for the next Ctrl-C (`SIGINT`) from here on.
///
/// Every future that waits gets it. **From the first call on, Ctrl-C no longer ends the process**,
/// even when nobody waits for it any more.
///
/// # Examples
///
/// ```
/// polder::block_on(async {
///     let stop = polder::signal::ctrl_c(); // From here on it is caught.
///     // Nobody presses the keys here, so the program sends itself what they would.
///     signal_hook::low_level::raise(signal_hook::consts::SIGINT)?;
///     stop.await?;
///     println!("stopping");
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// When awaited, what the system said when the handler was to be installed.
///
/// # Cancel safety
///
/// Dropping the future leaves nothing behind. A Ctrl-C that came before it was made is not told;
/// one that came before its first poll is.
pub fn ctrl_c() -> CtrlC {
    CtrlC {
        signals: Signals::new([Signal::Int]),
    }
}

/// The future of [`ctrl_c`].
///
/// It can be kept, and asked now and then.
///
/// ```
/// use polder::future;
///
/// polder::block_on(async {
///     let mut stop = polder::signal::ctrl_c();
///     assert!(future::poll_once(&mut stop).await.is_none()); // Nobody has pressed the keys,
///     signal_hook::low_level::raise(signal_hook::consts::SIGINT)?;
///     stop.await?; // and here they have.
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// When awaited, what the system said when the handler was to be installed.
///
/// # Cancel safety
///
/// Dropping it leaves nothing behind. A Ctrl-C that comes while it is kept is told by the next poll.
#[must_use = "futures do nothing unless they are polled"]
#[derive(Debug)]
pub struct CtrlC {
    signals: io::Result<Signals>,
}

impl Future for CtrlC {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.signals {
            Ok(signals) => signals.poll_signal(cx).map(|_| Ok(())),
            Err(error) => {
                let error = std::mem::replace(error, io::ErrorKind::Other.into());
                Poll::Ready(Err(error))
            }
        }
    }
}

/// A stream of signals, without end: those that it was made for, since it was made.
///
/// There can be any number of them, in any number of runtimes: each is told of each signal. Signals of
/// the same kind that come between two looks are told once, as the system itself does with those that
/// come faster than a process can handle them; of different kinds, each is told.
///
/// **From the first listener on, a signal no longer does what it does by default** (ending the process,
/// mostly), even when no listener is left: a signal that came a moment too late would do what the program
/// had meant to prevent. Who wants that back calls `signal_hook::low_level::emulate_default_handler`.
///
/// Dropping one leaves the others.
///
/// # Examples
///
/// ```
/// # #[cfg(unix)] {
/// use polder::signal::{Signal, Signals};
/// use polder::stream::StreamExt;
///
/// polder::block_on(async {
///     let mut signals = Signals::new([Signal::Term, Signal::Hup])?;
///     signal_hook::low_level::raise(signal_hook::consts::SIGHUP)?;
///     while let Some(signal) = signals.next().await {
///         match signal {
///             Signal::Hup => println!("reading the settings again"),
///             _ => break,
///         }
///         # break;
///     }
///     std::io::Result::Ok(())
/// })?;
/// # }
/// # std::io::Result::Ok(())
/// ```
///
/// # Platforms
///
/// Windows has [`Signal::Int`] (Ctrl-C), and [`Signal::Term`] and [`Signal::Abrt`], which only the
/// program itself raises there. Unix systems have them all.
///
/// # Cancel safety
///
/// Giving up a wait loses no signal.
#[must_use = "streams do nothing unless they are polled"]
#[derive(Debug)]
pub struct Signals {
    wanted: Vec<Wanted>,
    /// Where to look first, so that one that always comes does not hide the others.
    next: usize,
    /// Among the wakers.
    place: Option<usize>,
}

#[derive(Debug)]
struct Wanted {
    signal: Signal,
    number: usize,
    /// How many there had been when one was told last.
    seen: u64,
}

impl Signals {
    /// Listens to `signals` from here on.
    ///
    /// ```
    /// use polder::signal::{Signal, Signals};
    /// use std::io::ErrorKind;
    ///
    /// // By name, or by the system's number. From here on neither ends the process.
    /// let _stop = Signals::new([Signal::Int, Signal::try_from(15)?])?;
    /// // And what nobody can catch, nobody can wait for.
    /// assert_eq!(Signals::new([Signal::Kill]).unwrap_err().kind(), ErrorKind::InvalidInput);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for an empty list, and for signals that cannot be
    /// caught ([`Signal::Kill`], [`Signal::Stop`]) or, being told of what the program itself did wrong
    /// just there, must not be ([`Signal::Ill`], [`Signal::Fpe`], [`Signal::Segv`]), and for a
    /// [number](Signal::Other) that is no signal's; [`Unsupported`](io::ErrorKind::Unsupported) for those
    /// that the platform lacks. Otherwise what the system says.
    pub fn new(signals: impl IntoIterator<Item = Signal>) -> io::Result<Signals> {
        // All of them are looked at before the first is caught.
        let mut wanted: Vec<Wanted> = Vec::new();
        for signal in signals {
            let number = signal.check()?;
            if wanted.iter().all(|known| known.signal != signal) {
                wanted.push(Wanted {
                    signal,
                    number,
                    seen: 0,
                });
            }
        }
        if wanted.is_empty() {
            return Err(invalid("a list of signals to wait for has at least one"));
        }
        let mut state = state();
        for one in &mut wanted {
            catch(&mut state, one.number)?;
            one.seen = COUNTS[one.number].load(Ordering::SeqCst);
        }
        Ok(Signals {
            wanted,
            next: 0,
            place: None,
        })
    }

    fn poll_signal(&mut self, cx: &mut Context<'_>) -> Poll<Signal> {
        let mut spare = Spare::default();
        loop {
            match self.look(cx.waker(), &mut spare) {
                Ok(result) => return result,
                Err(NeedsClone) => spare.fill(cx.waker()),
            }
        }
    }

    /// Under the lock, once.
    fn look(&mut self, waker: &Waker, spare: &mut Spare) -> Result<Poll<Signal>, NeedsClone> {
        // A signal is counted before the wakers are taken, and that is done under the lock: so it
        // is seen here, or wakes us.
        let mut state = state();
        let length = self.wanted.len();
        for index in (self.next..length).chain(0..self.next) {
            let one = &mut self.wanted[index];
            let count = COUNTS[one.number].load(Ordering::SeqCst);
            if count > one.seen {
                one.seen = count;
                self.next = (index + 1) % length;
                let signal = one.signal;
                let left = self.place.take().map(|place| state.waiters.remove(place));
                drop(state);
                drop_all(left.and_then(|waiter| waiter.waker));
                return Ok(Poll::Ready(signal));
            }
        }
        match self.place {
            None => {
                let mask = (self.wanted.iter()).fold(0, |all, one| all | mask(one.number));
                let waker = Some(spare.take()?);
                self.place = Some(state.waiters.insert(Waiter { mask, waker }));
            }
            Some(place) => match &mut state.waiters[place].waker {
                Some(old) => spare.renew(old, waker)?,
                none => *none = Some(spare.take()?),
            },
        }
        Ok(Poll::Pending)
    }
}

impl Stream for Signals {
    type Item = Signal;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Signal>> {
        self.poll_signal(cx).map(Some)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let waiter = state().waiters.remove(place);
            drop_all(waiter.waker);
        }
    }
}

/// A table of signals: the names, those of the C library, and the numbers where there are any.
macro_rules! signals {
    ($($(#[$doc:meta])* $signal:ident = $name:ident;)*) => {
        /// A signal.
        ///
        /// All are there on every platform, so that a program names them everywhere; where one cannot
        /// be had, listening to it is an error. It is shown under the C library's name;
        /// `try_from` gives the one that has a number.
        ///
        /// ```
        /// use polder::signal::{Signal, Signals};
        ///
        /// assert_eq!(Signal::Term.to_string(), "SIGTERM");
        /// let mut known = vec![Signal::Int, Signal::Term];
        /// if cfg!(unix) {
        ///     known.push(Signal::Hup);
        /// }
        /// assert!(Signals::new(known).is_ok());
        /// ```
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum Signal {
            $($(#[$doc])* $signal,)*
            /// One of the system's that has no name here, a real-time signal for instance, by its number.
            /// (`try_from` never gives this for one that has; made by hand, it is told beside that one.)
            Other(i32),
        }

        impl Signal {
            /// Those with a name.
            const ALL: &[Signal] = &[$(Signal::$signal),*];

            fn name(self) -> Cow<'static, str> {
                match self {
                    $(Signal::$signal => stringify!($name).into(),)*
                    Signal::Other(number) => format!("signal {number}").into(),
                }
            }

            #[cfg(unix)]
            fn number_of_name(self) -> Option<i32> {
                match self {
                    $(Signal::$signal => Some(consts::$name),)*
                    Signal::Other(_) => None,
                }
            }
        }
    };
}

signals! {
    /// The process is to abort itself.
    Abrt = SIGABRT;
    /// The time of an `alarm` is over.
    Alrm = SIGALRM;
    /// Memory was used in a way that it cannot be.
    Bus = SIGBUS;
    /// A child has ended or stopped.
    Chld = SIGCHLD;
    /// A stopped process is to go on.
    Cont = SIGCONT;
    /// Wrong arithmetic: cannot be listened to.
    Fpe = SIGFPE;
    /// The terminal is gone; by custom, daemons read their settings again.
    Hup = SIGHUP;
    /// A wrong instruction: cannot be listened to.
    Ill = SIGILL;
    /// Ctrl-C.
    Int = SIGINT;
    /// Input or output is possible.
    Io = SIGIO;
    /// Ends the process in any case: cannot be listened to.
    Kill = SIGKILL;
    /// Something was written that nobody can read any more. Rust programs ignore it by default.
    Pipe = SIGPIPE;
    /// A profiling timer is over.
    Prof = SIGPROF;
    /// Ctrl-\: to end with a dump.
    Quit = SIGQUIT;
    /// Wrong memory: cannot be listened to.
    Segv = SIGSEGV;
    /// Stops the process in any case: cannot be listened to.
    Stop = SIGSTOP;
    /// A wrong system call.
    Sys = SIGSYS;
    /// The process is asked to end.
    Term = SIGTERM;
    /// A debugger's.
    Trap = SIGTRAP;
    /// Ctrl-Z: to stop.
    Tstp = SIGTSTP;
    /// A background process has read from the terminal.
    Ttin = SIGTTIN;
    /// A background process has written to the terminal.
    Ttou = SIGTTOU;
    /// A socket has urgent data.
    Urg = SIGURG;
    /// For the program's own use.
    Usr1 = SIGUSR1;
    /// For the program's own use.
    Usr2 = SIGUSR2;
    /// A timer of the process's own time is over.
    Vtalrm = SIGVTALRM;
    /// The terminal's window has another size.
    Winch = SIGWINCH;
    /// The limit of computing time is exceeded.
    Xcpu = SIGXCPU;
    /// The limit of a file's size is exceeded.
    Xfsz = SIGXFSZ;
}

impl Signal {
    #[cfg(windows)]
    fn number_of_name(self) -> Option<i32> {
        match self {
            Signal::Abrt => Some(consts::SIGABRT),
            Signal::Int => Some(consts::SIGINT),
            Signal::Term => Some(consts::SIGTERM),
            _ => None,
        }
    }

    /// The system's number for it; `None` where the platform has no such signal.
    ///
    /// ```
    /// use polder::signal::Signal;
    ///
    /// assert_eq!(Signal::Int.number(), Some(2));
    /// assert_eq!(Signal::Hup.number().is_some(), cfg!(unix));
    /// ```
    pub fn number(self) -> Option<i32> {
        match self {
            Signal::Other(number) => platform::exists(number).then_some(number),
            named => named.number_of_name(),
        }
    }

    /// Whether it can be listened to; its number, which is its place in [`COUNTS`].
    fn check(self) -> io::Result<usize> {
        let never = match self {
            Signal::Kill | Signal::Stop | Signal::Ill | Signal::Fpe | Signal::Segv => true,
            Signal::Other(number) => consts::FORBIDDEN.contains(&number),
            _ => false,
        };
        match (self.number(), self) {
            _ if never => Err(invalid(&format!("{self} cannot be listened to"))),
            (Some(number), _) => Ok(number as usize),
            (None, Signal::Other(number)) => Err(invalid(&format!(
                "no signal that can be listened to has the number {number}"
            ))),
            (None, _) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("there is no {self} on {}", std::env::consts::OS),
            )),
        }
    }
}

/// The signal with this number: by its name, or [`Other`](Signal::Other) where it has none here.
///
/// ```
/// use polder::signal::Signal;
///
/// assert_eq!(Signal::try_from(15)?, Signal::Term);
/// assert!(Signal::try_from(0).is_err());
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// [`InvalidInput`](io::ErrorKind::InvalidInput) for a number that is no signal's, or that of a signal
/// that cannot be listened to, as [`Signals::new`].
impl TryFrom<i32> for Signal {
    type Error = io::Error;

    fn try_from(number: i32) -> io::Result<Signal> {
        let mut all = Signal::ALL.iter().copied();
        let named = all.find(|signal| signal.number() == Some(number));
        let signal = named.unwrap_or(Signal::Other(number));
        signal.check()?;
        Ok(signal)
    }
}

/// The C library's name, or the number.
impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// How many signals there were of each number, since it is caught. No system has one beyond 127.
static COUNTS: [AtomicU64; 128] = [const { AtomicU64::new(0) }; 128];

/// A set with this number alone.
fn mask(number: usize) -> u128 {
    1 << number
}

#[derive(Debug)]
struct State {
    /// Those that are caught.
    caught: u128,
    thread: Option<platform::Thread>,
    waiters: Slab<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    /// For which signals.
    mask: u128,
    /// `None` since one of them has come, until it is polled again.
    waker: Option<Waker>,
}

static STATE: Mutex<State> = Mutex::new(State {
    caught: 0,
    thread: None,
    waiters: Slab::new(),
});

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread and installs the handler of the signal with this number, unless that was done.
fn catch(state: &mut State, number: usize) -> io::Result<()> {
    if state.caught & mask(number) != 0 {
        return Ok(());
    }
    // The thread first, since it can fail, and a handler that is there stays.
    let thread = match &state.thread {
        Some(thread) => thread,
        None => state.thread.insert(platform::start()?),
    };
    platform::register(thread, number)?;
    state.caught |= mask(number);
    Ok(())
}

/// Some of these signals have been counted: wakes everyone who waits for one. The wakers are taken and
/// not cloned, since that may be anybody's code, and this is the thread that serves everybody.
fn announce(signals: u128) {
    let wakers: Vec<Waker> = (state().waiters.iter_mut())
        .filter(|(_, waiter)| waiter.mask & signals != 0)
        .filter_map(|(_, waiter)| waiter.waker.take())
        .collect();
    wake_all(wakers);
}

fn thread() -> std::thread::Builder {
    std::thread::Builder::new().name("polder-signals".into())
}

/// How many signals of each number the thread has announced.
struct Seen([u64; COUNTS.len()]);

impl Seen {
    fn new() -> Seen {
        Seen([0; COUNTS.len()])
    }

    /// Announces what has been counted since.
    fn announce_news(&mut self) {
        let mut news = 0;
        for (number, (seen, count)) in self.0.iter_mut().zip(&COUNTS).enumerate() {
            let count = count.load(Ordering::SeqCst);
            if std::mem::replace(seen, count) < count {
                news |= mask(number);
            }
        }
        if news != 0 {
            announce(news);
        }
    }
}

#[cfg(unix)]
mod platform {
    use std::io::{self, Read};
    use std::os::fd::{AsRawFd, BorrowedFd};
    use std::os::unix::net::UnixStream;
    use std::ptr;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use signal_hook::low_level;

    use super::{COUNTS, Seen, thread};

    /// The end that handlers write to. It is never closed.
    pub(super) type Thread = UnixStream;

    /// How long the thread rests where it cannot wait for handlers: it looks all the same, so that a
    /// signal comes later and is not lost.
    const REST: Duration = Duration::from_millis(10);

    /// The thread waits at the other end, and then looks at the counts. Not signal-hook's iterator, which
    /// panics where receiving fails for a reason that it does not expect: that would end Ctrl-C.
    pub(super) fn start() -> io::Result<UnixStream> {
        let (mut wakes, handlers) = UnixStream::pair()?;
        thread().spawn(move || {
            let mut seen = Seen::new();
            loop {
                match wakes.read(&mut [0; 64]) {
                    Ok(length) if length > 0 => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    _ => std::thread::sleep(REST),
                }
                seen.announce_news();
            }
        })?;
        Ok(handlers)
    }

    /// Whether the system has a signal of this number and leaves it to programs: the C library keeps
    /// some for itself.
    pub(super) fn exists(number: i32) -> bool {
        // SAFETY: without an action to set, and a place for the old one, this only looks at the number.
        let asked = || unsafe { libc::sigaction(number, ptr::null(), ptr::null_mut()) };
        (1..COUNTS.len() as i32).contains(&number) && asked() == 0
    }

    pub(super) fn register(handlers: &UnixStream, number: usize) -> io::Result<()> {
        let (count, handlers) = (&COUNTS[number], handlers.as_raw_fd());
        // SAFETY: an atomic addition and a system call, which signal-safety(7) allows, are all that is done
        // in the handler. The descriptor lies in `STATE` and is never closed.
        unsafe {
            low_level::register(number as i32, move || {
                count.fetch_add(1, Ordering::SeqCst);
                wake(BorrowedFd::borrow_raw(handlers));
            })?;
        }
        Ok(())
    }

    /// Within a handler: makes the thread look. It does anyway if there is no room for the byte. A kernel
    /// that is short of memory is asked again, a few times: there is no other way to tell the thread.
    fn wake(handlers: BorrowedFd<'_>) {
        const ATTEMPTS: usize = 8;
        (0..ATTEMPTS).find(|_| {
            let sent = rustix::net::send(handlers, &[1], rustix::net::SendFlags::DONTWAIT);
            matches!(sent, Ok(_) | Err(rustix::io::Errno::AGAIN))
        });
    }
}

/// Windows calls the handler on a thread that it makes for that, and forgets it afterwards, which
/// signal-hook puts right. It has no pipe to write to, so the handler counts and unparks.
#[cfg(windows)]
mod platform {
    use std::io;
    use std::sync::atomic::Ordering;

    use signal_hook::low_level;

    use super::{COUNTS, Seen, Signal, thread};

    pub(super) type Thread = std::thread::Thread;

    pub(super) fn exists(number: i32) -> bool {
        let mut all = Signal::ALL.iter();
        all.any(|signal| signal.number() == Some(number))
    }

    pub(super) fn start() -> io::Result<Thread> {
        let listener = thread().spawn(|| {
            let mut seen = Seen::new();
            loop {
                std::thread::park();
                seen.announce_news();
            }
        })?;
        Ok(listener.thread().clone())
    }

    pub(super) fn register(listener: &Thread, number: usize) -> io::Result<()> {
        let (count, number, listener) = (&COUNTS[number], number as i32, listener.clone());
        // SAFETY: the handler adds to an atomic and unparks a thread, which takes no lock and
        // allocates nothing.
        unsafe {
            low_level::register(number, move || {
                count.fetch_add(1, Ordering::SeqCst);
                listener.unpark();
            })?;
        }
        Ok(())
    }
}
