//! What waits for the kernel: one contract, several kernels' answers to it.
//!
//! A [`Poller`] is one [`Backend`], opened. Descriptors are registered with it under a [`Token`];
//! [`wait`](Poller::wait) sleeps until some of them are ready, the timeout is over, or somebody
//! calls [`notify`](Poller::notify). It knows descriptors and tokens, nothing of tasks: the runtime
//! stands on it, and so can a loop of your own.
//!
//! ```
//! # #[cfg(unix)] {
//! use polder::Backend;
//! use polder::poller::{Events, Interest, Mode, Poller, Token};
//! use std::io::{Read, Write};
//! use std::os::fd::AsFd;
//! use std::os::unix::net::UnixStream;
//!
//! let poller = Poller::new(Backend::default())?;
//! let (mut ours, mut theirs) = UnixStream::pair()?;
//! ours.set_nonblocking(true)?;
//! // SAFETY: `ours` is deregistered below, before it is closed.
//! unsafe { poller.register(ours.as_fd(), Token(1), Interest::READABLE, Mode::OneShot)? };
//! theirs.write_all(b"a word, and the end")?;
//! drop(theirs);
//!
//! let (mut events, mut bytes) = (Events::new(), [0; 64]);
//! 'read: loop {
//!     poller.wait(&mut events, None)?;
//!     for event in events.iter().filter(|event| event.is_readable()) {
//!         match ours.read(&mut bytes) {
//!             Ok(0) => break 'read,
//!             Ok(length) => println!("{length} bytes"),
//!             Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
//!             Err(error) => return Err(error),
//!         }
//!         poller.modify(ours.as_fd(), event.token(), Interest::READABLE, Mode::OneShot)?;
//!     }
//! }
//! poller.deregister(ours.as_fd())?;
//! # }
//! # std::io::Result::Ok(())
//! ```
//!
//! # The contract
//!
//! What every backend keeps, and what a caller may build on:
//!
//! * **Who may call what.** Every method may be called from every thread at any time, with one
//!   exception: one thread waits at a time; a second one gets
//!   [`ResourceBusy`](io::ErrorKind::ResourceBusy). Registering, modifying and deregistering while
//!   another thread waits takes effect in that wait.
//! * **Tokens** are the caller's: the poller hands them back with the events and looks at nothing
//!   else. Two descriptors may share one. A caller that uses each token once can tell a late event
//!   from one of the descriptor's next owner. [`Token::RESERVED`] and above belong to the poller.
//! * **Spurious readiness is allowed.** An event says "try again"; the operation decides. Only
//!   [`readable`](Event::is_readable) and [`writable`](Event::is_writable) are portable facts. The
//!   others are hints, given where [`Capabilities::hints`] is set, true when given, and
//!   meaningless on a socket that is not connected yet.
//! * **One wait may report a source twice**, and readable and writable apart.
//! * **After `deregister` returns** no wait that starts later reports the source. Events already
//!   handed out carry the old token.
//! * **The end wakes both sides**: hang-up and error count as readable and as writable, whatever
//!   the interest, so that whoever waits tries, and learns what happened from the operation. A
//!   source with an empty interest reports at most its end, and that once.
//! * **Timeouts** are never early, and one that is not zero is never taken for zero. A zero
//!   timeout still reports what is ready. Signals (`EINTR`) are not seen by the caller.
//! * **Notifications** are never lost: one wakes the current or else the next wait; any number of
//!   them before that wait count as one.
//!
//! # Modes
//!
//! [`Mode::Level`] reports as long as a source is ready, [`Mode::OneShot`] once, until it is armed
//! again by [`modify`](Poller::modify), and [`Mode::Edge`] whenever something new arrives. Which
//! of them a backend has, [`Capabilities`] tells; asking for another one is an
//! [`Unsupported`](io::ErrorKind::Unsupported) error.
//!
//! # Why `register` is unsafe
//!
//! A poller remembers a descriptor by its number. If the descriptor is closed while it is
//! registered, the number can come to mean somebody else's file, and the poller would ask about a
//! file that its caller never showed it: what [I/O safety](std::io#io-safety) forbids. The borrow
//! that `register` takes cannot last until `deregister` without tying every poller to a lifetime,
//! and sources that own their descriptor would keep it from those who have to own it themselves.
//! So the duty is stated, once, where it arises. No backend's *memory* safety depends on it.

#[cfg(all(feature = "async-io", not(loom)))]
mod async_io;
mod backend;
#[cfg(unix)]
mod book;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod epoll;
#[cfg(unix)]
mod long;
#[cfg(unix)]
mod notifier;
#[cfg(all(
    not(loom),
    any(
        feature = "polling",
        not(any(target_os = "linux", target_os = "android"))
    )
))]
mod platform;
/// On Linux the adapter is there to be tested, and only where it is asked for.
#[cfg(any(
    loom,
    all(
        not(feature = "polling"),
        any(target_os = "linux", target_os = "android")
    )
))]
mod platform {
    pub(super) fn open() -> std::io::Result<Box<dyn super::Selector>> {
        Err(super::unsupported("what the platform has"))
    }
}
#[cfg(unix)]
mod poll;
#[cfg(all(unix, not(any(target_os = "illumos", target_os = "solaris"))))]
mod select;

use std::fmt;
use std::io;
use std::ops::{BitOr, BitOrAssign};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::{Duration, Instant};

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sys::BorrowedDescriptor;

pub use backend::Backend;

/// What a source is called in events. Chosen by the caller, at will.
///
/// ```
/// use polder::poller::Token;
///
/// // Whatever names a source in your loop: a place in a table, a generation and a place, a pointer.
/// let token = Token(7);
/// assert!(token < Token::RESERVED);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Token(pub u64);

impl Token {
    /// The first of the few tokens that the poller keeps to itself.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::Backend;
    /// use polder::poller::{Interest, Mode, Poller, Token};
    /// use std::os::fd::AsFd;
    ///
    /// let poller = Poller::new(Backend::default())?;
    /// let stdin = std::io::stdin();
    /// // SAFETY: nothing is registered.
    /// let result = unsafe {
    ///     poller.register(stdin.as_fd(), Token::RESERVED, Interest::READABLE, Mode::OneShot)
    /// };
    /// assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    pub const RESERVED: Token = Token(u64::MAX - 15);
}

/// How long a source stays armed once it was reported.
///
/// ```
/// use polder::Backend;
/// use polder::poller::{Mode, Poller};
///
/// let has = Poller::new(Backend::default())?.capabilities();
/// let best = if has.edge { Mode::Edge } else { Mode::OneShot };
/// println!("{best:?}");
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Mode {
    /// Reported by every wait while it is ready.
    Level,
    /// Reported once; then its interest is empty until [`Poller::modify`] sets it again.
    OneShot,
    /// Reported when something new arrives. An operation must be tried until it would block
    /// before the next report can be relied on.
    Edge,
}

/// What a source is asked for: a set of [`READABLE`](Self::READABLE),
/// [`WRITABLE`](Self::WRITABLE) and [`PRIORITY`](Self::PRIORITY).
///
/// ```
/// use polder::poller::Interest;
///
/// let both = Interest::READABLE | Interest::WRITABLE;
/// assert!(both.contains(Interest::READABLE));
/// assert!(Interest::NONE.is_empty());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Interest(u8);

impl Interest {
    /// Nothing: registered, and silent.
    ///
    /// ```
    /// use polder::poller::Interest;
    ///
    /// let mut interest = Interest::NONE;
    /// assert!(interest.is_empty());
    /// interest |= Interest::READABLE;
    /// assert_eq!(interest, Interest::READABLE);
    /// ```
    pub const NONE: Interest = Interest(0);
    /// Something to read, a connection to accept, or the end of what there is to read.
    ///
    /// ```
    /// use polder::poller::Interest;
    ///
    /// assert!((Interest::READABLE | Interest::PRIORITY).contains(Interest::READABLE));
    /// assert!(!Interest::WRITABLE.contains(Interest::READABLE));
    /// ```
    pub const READABLE: Interest = Interest(1);
    /// Room to write, or a connection that stands or failed.
    ///
    /// ```
    /// use polder::poller::Interest;
    ///
    /// // What is asked for while there is something left to be sent.
    /// let unsent = b"the rest";
    /// let mut interest = Interest::READABLE;
    /// if !unsent.is_empty() {
    ///     interest |= Interest::WRITABLE;
    /// }
    /// assert!(interest.contains(Interest::READABLE | Interest::WRITABLE));
    /// ```
    pub const WRITABLE: Interest = Interest(2);
    /// Urgent data, where the platform reports it.
    ///
    /// ```
    /// use polder::poller::Interest;
    ///
    /// let interest = Interest::READABLE | Interest::PRIORITY;
    /// assert!(interest.contains(Interest::PRIORITY));
    /// assert!(!Interest::READABLE.contains(Interest::PRIORITY));
    /// ```
    pub const PRIORITY: Interest = Interest(4);

    /// Whether every part of `other` is in this set.
    ///
    /// ```
    /// use polder::poller::Interest;
    ///
    /// let both = Interest::READABLE | Interest::WRITABLE;
    /// assert!(both.contains(Interest::READABLE));
    /// assert!(!Interest::READABLE.contains(both)); // Every part, not any.
    /// assert!(both.contains(Interest::NONE));
    /// ```
    #[inline]
    pub const fn contains(self, other: Interest) -> bool {
        self.0 & other.0 == other.0
    }

    #[inline]
    pub(crate) const fn without(self, other: Interest) -> Interest {
        Interest(self.0 & !other.0)
    }

    /// Whether nothing is asked for.
    ///
    /// ```
    /// use polder::poller::Interest;
    ///
    /// assert!(Interest::default().is_empty());
    /// assert!(!Interest::WRITABLE.is_empty());
    /// ```
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Interest {
    type Output = Interest;
    #[inline]
    fn bitor(self, other: Interest) -> Interest {
        Interest(self.0 | other.0)
    }
}

impl BitOrAssign for Interest {
    #[inline]
    fn bitor_assign(&mut self, other: Interest) {
        self.0 |= other.0;
    }
}

/// What is known of a source: the bits of an [`Event`], and of the reactor's readiness.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ready(pub(crate) u8);

impl Ready {
    pub(crate) const READABLE: Ready = Ready(1);
    pub(crate) const WRITABLE: Ready = Ready(2);
    pub(crate) const CLOSED: Ready = Ready(4);
    pub(crate) const ERROR: Ready = Ready(8);
    pub(crate) const PRIORITY: Ready = Ready(16);
    /// Never in an event: the backend gives no hints, so an end may have come unsaid.
    pub(crate) const UNTOLD: Ready = Ready(32);

    #[inline]
    pub(crate) const fn intersects(self, other: Ready) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Ready {
    type Output = Ready;
    #[inline]
    fn bitor(self, other: Ready) -> Ready {
        Ready(self.0 | other.0)
    }
}

impl BitOrAssign for Ready {
    #[inline]
    fn bitor_assign(&mut self, other: Ready) {
        self.0 |= other.0;
    }
}

/// One source's news, as [`Poller::wait`] reports it.
///
/// ```
/// # #[cfg(unix)] {
/// use polder::poller::{Event, Events, Interest, Mode, Poller, Token};
/// use std::os::fd::AsFd;
/// use std::os::unix::net::UnixStream;
///
/// fn what(event: &Event) -> String {
///     let token = event.token().0;
///     format!("{token}: readable {}, writable {}", event.is_readable(), event.is_writable())
/// }
///
/// let poller = Poller::new(polder::Backend::default())?;
/// let (ours, _theirs) = UnixStream::pair()?;
/// // SAFETY: `ours` is deregistered before it is closed.
/// unsafe { poller.register(ours.as_fd(), Token(3), Interest::WRITABLE, Mode::OneShot)? };
/// let mut events = Events::new();
/// poller.wait(&mut events, None)?;
/// let told: Vec<_> = events.iter().map(what).collect();
/// assert_eq!(told, ["3: readable false, writable true"]);
/// poller.deregister(ours.as_fd())?;
/// # }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Event {
    token: Token,
    ready: Ready,
}

impl Event {
    #[inline]
    pub(crate) fn new(token: Token, ready: Ready) -> Event {
        Event { token, ready }
    }

    #[inline]
    pub(crate) fn ready(&self) -> Ready {
        self.ready
    }

    /// The token that the source was registered or last modified with.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// # use polder::poller::{Events, Interest, Mode, Poller, Token};
    /// # use std::io::Write;
    /// # use std::os::fd::AsFd;
    /// # use std::os::unix::net::UnixStream;
    /// # let poller = Poller::new(polder::Backend::default())?;
    /// # let mut events = Events::new();
    /// # let (ours, mut theirs) = UnixStream::pair()?;
    /// # // SAFETY: `ours` is deregistered before it is closed.
    /// unsafe { poller.register(ours.as_fd(), Token(7), Interest::READABLE, Mode::OneShot)? };
    /// theirs.write_all(b"hello")?;
    /// poller.wait(&mut events, None)?;
    /// assert!(events.iter().all(|event| event.token() == Token(7)));
    /// # poller.deregister(ours.as_fd())?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    #[inline]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Reading is worth a try.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// # use polder::poller::{Events, Interest, Mode, Poller, Token};
    /// # use std::io::Write;
    /// # use std::os::fd::AsFd;
    /// # use std::os::unix::net::UnixStream;
    /// # let poller = Poller::new(polder::Backend::default())?;
    /// # let mut events = Events::new();
    /// # let (ours, mut theirs) = UnixStream::pair()?;
    /// # // SAFETY: `ours` is deregistered before it is closed.
    /// unsafe { poller.register(ours.as_fd(), Token(7), Interest::READABLE, Mode::OneShot)? };
    /// theirs.write_all(b"hello")?;
    /// poller.wait(&mut events, None)?;
    /// assert!(events.iter().any(|event| event.is_readable()));
    /// # poller.deregister(ours.as_fd())?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    #[inline]
    pub fn is_readable(&self) -> bool {
        self.ready.intersects(Ready::READABLE)
    }

    /// Writing is worth a try.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// # use polder::poller::{Events, Interest, Mode, Poller, Token};
    /// # use std::io::Write;
    /// # use std::os::fd::AsFd;
    /// # use std::os::unix::net::UnixStream;
    /// # let poller = Poller::new(polder::Backend::default())?;
    /// # let mut events = Events::new();
    /// # let (ours, _theirs) = UnixStream::pair()?;
    /// # // SAFETY: `ours` is deregistered before it is closed.
    /// unsafe { poller.register(ours.as_fd(), Token(7), Interest::WRITABLE, Mode::OneShot)? };
    /// poller.wait(&mut events, None)?; // There is room from the start.
    /// assert!(events.iter().any(|event| event.is_writable()));
    /// # poller.deregister(ours.as_fd())?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.ready.intersects(Ready::WRITABLE)
    }

    /// A hint: the peer will send no more, or is gone. Data may still wait to be read.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// # use polder::poller::{Events, Interest, Mode, Poller, Token};
    /// # use std::io::Write;
    /// # use std::os::fd::AsFd;
    /// # use std::os::unix::net::UnixStream;
    /// # let poller = Poller::new(polder::Backend::default())?;
    /// # let mut events = Events::new();
    /// # let (ours, theirs) = UnixStream::pair()?;
    /// # // SAFETY: `ours` is deregistered before it is closed.
    /// unsafe { poller.register(ours.as_fd(), Token(7), Interest::READABLE, Mode::OneShot)? };
    /// drop(theirs);
    /// poller.wait(&mut events, None)?;
    /// let event = events.iter().next().expect("one source is ready");
    /// assert!(event.is_readable()); // In any case.
    /// if poller.capabilities().hints {
    ///     assert!(event.is_closed());
    /// }
    /// # poller.deregister(ours.as_fd())?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.ready.intersects(Ready::CLOSED)
    }

    /// A hint: the source has an error to tell.
    ///
    /// ```
    /// # #[cfg(target_os = "linux")] {
    /// # use polder::Backend;
    /// # use polder::poller::{Events, Interest, Mode, Poller, Token};
    /// # use std::os::fd::AsFd;
    /// # let poller = Poller::new(Backend::Epoll)?;
    /// # let mut events = Events::new();
    /// let (reader, writer) = rustix::pipe::pipe()?;
    /// // SAFETY: `writer` is deregistered below, before it is closed.
    /// unsafe { poller.register(writer.as_fd(), Token(7), Interest::NONE, Mode::Level)? };
    /// drop(reader); // Nobody will ever read what is written.
    /// poller.wait(&mut events, None)?;
    /// assert!(events.iter().any(|event| event.is_error()));
    /// # poller.deregister(writer.as_fd())?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    #[inline]
    pub fn is_error(&self) -> bool {
        self.ready.intersects(Ready::ERROR)
    }

    /// A hint: there is urgent data.
    ///
    /// ```
    /// # #[cfg(target_os = "linux")] {
    /// # use polder::Backend;
    /// # use polder::poller::{Events, Interest, Mode, Poller, Token};
    /// # use std::net::{TcpListener, TcpStream};
    /// # use std::os::fd::AsFd;
    /// # let poller = Poller::new(Backend::Epoll)?;
    /// # let mut events = Events::new();
    /// # let listener = TcpListener::bind("127.0.0.1:0")?;
    /// # let near = TcpStream::connect(listener.local_addr()?)?;
    /// # let (far, _) = listener.accept()?;
    /// // SAFETY: `near` is deregistered below, before it is closed.
    /// unsafe { poller.register(near.as_fd(), Token(7), Interest::PRIORITY, Mode::Level)? };
    /// rustix::net::send(&far, b"!", rustix::net::SendFlags::OOB)?;
    /// poller.wait(&mut events, None)?;
    /// assert!(events.iter().any(|event| event.is_priority()));
    /// # poller.deregister(near.as_fd())?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    #[inline]
    pub fn is_priority(&self) -> bool {
        self.ready.intersects(Ready::PRIORITY)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("token", &self.token.0)
            .field("readable", &self.is_readable())
            .field("writable", &self.is_writable())
            .field("closed", &self.is_closed())
            .field("error", &self.is_error())
            .field("priority", &self.is_priority())
            .finish()
    }
}

/// Room for the events of one wait.
///
/// ```
/// use polder::poller::Events;
///
/// let events = Events::with_capacity(64);
/// assert!(events.is_empty());
/// ```
#[derive(Debug)]
pub struct Events {
    list: Vec<Event>,
    limit: usize,
    /// Where a kernel writes whose events have another form; made by the first wait.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    kernel: epoll::Buffer,
}

impl Events {
    /// What [`Events::new`] reports at most in one wait. Measured on Linux 6.18: from 16 to 1,024
    /// there is no difference in throughput; this is 4 KiB, and a batch that a loop comes back
    /// from soon.
    ///
    /// ```
    /// use polder::poller::Events;
    ///
    /// // For a loop that serves others between two waits: a quarter of the usual.
    /// let events = Events::with_capacity(Events::DEFAULT_CAPACITY / 4);
    /// assert_eq!(events.len(), 0);
    /// ```
    pub const DEFAULT_CAPACITY: usize = 256;

    /// Room for [`DEFAULT_CAPACITY`](Self::DEFAULT_CAPACITY) events.
    ///
    /// ```
    /// use polder::Backend;
    /// use polder::poller::{Events, Poller};
    /// use std::time::Duration;
    ///
    /// let poller = Poller::new(Backend::default())?;
    /// let mut events = Events::new(); // Once, for all waits.
    /// assert_eq!(poller.wait(&mut events, Some(Duration::ZERO))?, 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn new() -> Events {
        Events::with_capacity(Events::DEFAULT_CAPACITY)
    }

    /// Room for `capacity` events a wait, at least one.
    ///
    /// What is ready beyond that, the next wait reports.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// # use polder::Backend;
    /// # use polder::poller::{Events, Interest, Mode, Poller, Token};
    /// # use std::os::fd::AsFd;
    /// # use std::os::unix::net::UnixStream;
    /// # let poller = Poller::new(Backend::default())?;
    /// # let (one, other) = UnixStream::pair()?;
    /// let mut events = Events::with_capacity(1);
    /// // SAFETY: both are deregistered before they are closed.
    /// unsafe { poller.register(one.as_fd(), Token(1), Interest::WRITABLE, Mode::OneShot)? };
    /// unsafe { poller.register(other.as_fd(), Token(2), Interest::WRITABLE, Mode::OneShot)? };
    /// assert_eq!(poller.wait(&mut events, None)?, 1); // Both are ready.
    /// assert_eq!(poller.wait(&mut events, None)?, 1);
    /// # poller.deregister(one.as_fd())?;
    /// # poller.deregister(other.as_fd())?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn with_capacity(capacity: usize) -> Events {
        let limit = capacity.max(1);
        Events {
            list: Vec::with_capacity(limit),
            limit,
            #[cfg(any(target_os = "linux", target_os = "android"))]
            kernel: epoll::Buffer::default(),
        }
    }

    /// The events of the last wait.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// # use polder::poller::{Events, Interest, Mode, Poller, Token};
    /// # use std::io::Write;
    /// # use std::os::fd::AsFd;
    /// # use std::os::unix::net::UnixStream;
    /// # let poller = Poller::new(polder::Backend::default())?;
    /// # let mut events = Events::new();
    /// # let (ours, mut theirs) = UnixStream::pair()?;
    /// # // SAFETY: `ours` is deregistered before it is closed.
    /// # unsafe { poller.register(ours.as_fd(), Token(7), Interest::READABLE, Mode::OneShot)? };
    /// theirs.write_all(b"hello")?;
    /// poller.wait(&mut events, None)?;
    /// for event in &events {
    ///     assert_eq!(event.token(), Token(7)); // The same as `events.iter()`.
    /// }
    /// # poller.deregister(ours.as_fd())?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    #[inline]
    pub fn iter(&self) -> std::slice::Iter<'_, Event> {
        self.list.iter()
    }

    /// How many there are.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// # use polder::poller::{Events, Interest, Mode, Poller, Token};
    /// # use std::io::Write;
    /// # use std::os::fd::AsFd;
    /// # use std::os::unix::net::UnixStream;
    /// # let poller = Poller::new(polder::Backend::default())?;
    /// # let mut events = Events::new();
    /// # let (ours, mut theirs) = UnixStream::pair()?;
    /// # // SAFETY: `ours` is deregistered before it is closed.
    /// # unsafe { poller.register(ours.as_fd(), Token(7), Interest::READABLE, Mode::OneShot)? };
    /// theirs.write_all(b"hello")?;
    /// let count = poller.wait(&mut events, None)?;
    /// assert_eq!(count, events.len());
    /// # poller.deregister(ours.as_fd())?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    #[inline]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the last wait reported none.
    ///
    /// ```
    /// use polder::Backend;
    /// use polder::poller::{Events, Poller};
    ///
    /// let poller = Poller::new(Backend::default())?;
    /// let mut events = Events::new();
    /// poller.notify()?;
    /// poller.wait(&mut events, None)?;
    /// assert!(events.is_empty()); // A notification is no event.
    /// # std::io::Result::Ok(())
    /// ```
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }

    #[inline]
    pub(crate) fn push(&mut self, event: Event) {
        self.list.push(event);
    }
}

impl Default for Events {
    fn default() -> Events {
        Events::new()
    }
}

impl<'a> IntoIterator for &'a Events {
    type Item = &'a Event;
    type IntoIter = std::slice::Iter<'a, Event>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// What a backend can do beyond the contract. Values, so that a program can ask at run time.
///
/// ```
/// use polder::Backend;
/// use polder::poller::Poller;
///
/// for backend in Backend::available() {
///     let has = Poller::new(backend)?.capabilities();
///     println!("{backend}: edges {}, one-shot {}, levels {}", has.edge, has.one_shot, has.level);
///     assert!(has.one_shot);
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Capabilities {
    /// [`Mode::Level`] is there.
    pub level: bool,
    /// [`Mode::OneShot`] is there.
    pub one_shot: bool,
    /// [`Mode::Edge`] is there.
    pub edge: bool,
    /// Events carry the hints `closed`, `error` and `priority`, as far as the kernel tells them.
    pub hints: bool,
    /// The poller has a descriptor that another poller can wait for.
    pub descriptor: bool,
    /// What timeouts are rounded up to.
    pub granularity: Duration,
}

/// What a backend implements: the contract above, without its arguments' checks.
///
/// `register` takes a borrow and keeps the number: see "Why `register` is unsafe".
pub(crate) trait Selector: Send + Sync {
    fn capabilities(&self) -> Capabilities;

    fn register(
        &self,
        descriptor: BorrowedDescriptor<'_>,
        token: Token,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()>;

    fn modify(
        &self,
        descriptor: BorrowedDescriptor<'_>,
        token: Token,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()>;

    fn deregister(&self, descriptor: BorrowedDescriptor<'_>) -> io::Result<()>;

    /// One wait; never two at once. `events` is empty and stays within its limit. `Interrupted` means that there is
    /// nothing to tell, and that the timeout may not be over: the caller knows how much of it is left.
    fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()>;

    /// [`wait`](Self::wait) for a timeout, not zero, that is over at `end`: for who would otherwise have to
    /// read the clock again.
    fn wait_until(&self, events: &mut Events, timeout: Duration, end: Instant) -> io::Result<()> {
        let _ = end;
        self.wait(events, Some(timeout))
    }

    fn notify(&self) -> io::Result<()>;

    /// The descriptor that is readable while a wait would return at once.
    fn descriptor(&self) -> Option<BorrowedDescriptor<'_>> {
        None
    }

    /// Makes the descriptor readable after `timeout` as well; `None` takes that back. Only called
    /// where there is a descriptor, and never while a thread waits.
    fn arm(&self, _timeout: Option<Duration>) -> io::Result<()> {
        Err(unsupported("a deadline in the kernel"))
    }

    /// Whether registering a regular file would succeed and then never wait for anything, so that
    /// one has to look first. epoll refuses such files by itself.
    fn takes_files(&self) -> bool {
        false
    }
}

/// One backend, opened. See the [module](self) for the contract.
///
/// # Examples
///
/// ```
/// # #[cfg(unix)] {
/// use polder::Backend;
/// use polder::poller::{Events, Interest, Mode, Poller, Token};
/// use std::io::Write;
/// use std::os::fd::AsFd;
/// use std::os::unix::net::UnixStream;
///
/// let poller = Poller::new(Backend::default())?;
/// let (ours, mut theirs) = UnixStream::pair()?;
///
/// // SAFETY: `ours` is deregistered below, before it is closed.
/// unsafe { poller.register(ours.as_fd(), Token(7), Interest::READABLE, Mode::OneShot)? };
/// theirs.write_all(b"hello")?;
///
/// let mut events = Events::new();
/// poller.wait(&mut events, None)?;
/// let event = events.iter().next().expect("one source is ready");
/// assert_eq!(event.token(), Token(7));
/// assert!(event.is_readable());
///
/// poller.deregister(ours.as_fd())?;
/// # }
/// # std::io::Result::Ok(())
/// ```
pub struct Poller {
    selector: Box<dyn Selector>,
    /// On while a thread is in [`wait`](Poller::wait), so that a second one is told.
    waiting: AtomicBool,
    backend: Backend,
    capabilities: Capabilities,
}

/// A panic leaves nothing half done in a selector: no foreign code runs within it, and its locks are not
/// poisoned.
impl UnwindSafe for Poller {}
impl RefUnwindSafe for Poller {}

impl Poller {
    /// Opens `backend`.
    ///
    /// ```
    /// use polder::Backend;
    /// use polder::poller::Poller;
    /// use std::io::ErrorKind;
    ///
    /// assert!(Poller::new(Backend::default()).is_ok());
    /// # #[cfg(target_os = "linux")] {
    /// let error = Poller::new(Backend::Kqueue).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Unsupported);
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](io::ErrorKind::Unsupported), listing what is available, where the platform
    /// lacks it; otherwise what the kernel says: that there are no descriptors left, as it says it, or anything
    /// else with the names of the backend and the call, and the kernel's error as
    /// [`source`](std::error::Error::source).
    pub fn new(backend: Backend) -> io::Result<Poller> {
        Ok(Poller::with(backend, backend.open()?))
    }

    fn with(backend: Backend, selector: Box<dyn Selector>) -> Poller {
        Poller {
            capabilities: selector.capabilities(),
            selector,
            waiting: AtomicBool::new(false),
            backend,
        }
    }

    /// Which backend this is.
    ///
    /// ```
    /// use polder::Backend;
    /// use polder::poller::Poller;
    ///
    /// for backend in Backend::available() {
    ///     assert_eq!(Poller::new(backend)?.backend(), backend);
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// What it can do.
    ///
    /// ```
    /// use polder::Backend;
    /// use polder::poller::{Mode, Poller};
    ///
    /// let has = Poller::new(Backend::default())?.capabilities();
    /// let mode = if has.edge { Mode::Edge } else { Mode::OneShot };
    /// # #[cfg(target_os = "linux")]
    /// assert_eq!(mode, Mode::Edge);
    /// # std::io::Result::Ok(())
    /// ```
    #[inline]
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Starts to watch `descriptor`, which is called `token` in events.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// # use polder::poller::{Events, Interest, Mode, Poller, Token};
    /// # use std::io::Write;
    /// # use std::os::fd::AsFd;
    /// # use std::os::unix::net::UnixStream;
    /// # let poller = Poller::new(polder::Backend::default())?;
    /// # let mut events = Events::new();
    /// # let (ours, mut theirs) = UnixStream::pair()?;
    /// // SAFETY: `ours` is deregistered below, before it is closed.
    /// unsafe { poller.register(ours.as_fd(), Token(7), Interest::READABLE, Mode::OneShot)? };
    /// theirs.write_all(b"hello")?;
    /// assert_eq!(poller.wait(&mut events, None)?, 1);
    /// poller.deregister(ours.as_fd())?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists) where the descriptor is registered (a
    /// duplicate of it is another descriptor), [`Unsupported`](io::ErrorKind::Unsupported) for a
    /// mode that the backend lacks, [`InvalidInput`](io::ErrorKind::InvalidInput) for a reserved
    /// token, [`PermissionDenied`](io::ErrorKind::PermissionDenied) for what cannot be waited for,
    /// such as a regular file.
    ///
    /// # Safety
    ///
    /// The descriptor must be [deregistered](Self::deregister) before it is closed, unless the poller
    /// is dropped first.
    pub unsafe fn register(
        &self,
        descriptor: BorrowedDescriptor<'_>,
        token: Token,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        self.check(token, mode)?;
        if self.selector.takes_files() {
            refuse_files(descriptor)?;
        }
        self.selector.register(descriptor, token, interest, mode)
    }

    /// [`register`](Self::register) for what is known to be a socket, and kept open while it is
    /// registered (the reactor's table holds the source that owns it): spares the look at what it is,
    /// a system call on some backends.
    pub(crate) fn register_socket(
        &self,
        socket: BorrowedDescriptor<'_>,
        token: Token,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        self.selector.register(socket, token, interest, mode)
    }

    /// [`modify`](Self::modify) for what [`register_socket`](Self::register_socket) has registered.
    #[inline]
    pub(crate) fn modify_socket(
        &self,
        socket: BorrowedDescriptor<'_>,
        token: Token,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        self.selector.modify(socket, token, interest, mode)
    }

    /// Replaces a registered descriptor's token, interest and mode. Arms a
    /// [one-shot](Mode::OneShot) source again; what is ready already is reported.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// # use polder::poller::{Events, Interest, Mode, Poller, Token};
    /// # use std::io::Write;
    /// # use std::os::fd::AsFd;
    /// # use std::os::unix::net::UnixStream;
    /// # let poller = Poller::new(polder::Backend::default())?;
    /// # let mut events = Events::new();
    /// # let (ours, mut theirs) = UnixStream::pair()?;
    /// # // SAFETY: `ours` is deregistered before it is closed.
    /// # unsafe { poller.register(ours.as_fd(), Token(7), Interest::READABLE, Mode::OneShot)? };
    /// theirs.write_all(b"hello")?;
    /// poller.wait(&mut events, None)?; // That spends a one-shot's interest,
    /// poller.modify(ours.as_fd(), Token(8), Interest::READABLE, Mode::OneShot)?; // which is set anew.
    /// poller.wait(&mut events, None)?; // The bytes are still there.
    /// assert!(events.iter().all(|event| event.token() == Token(8)));
    /// # poller.deregister(ours.as_fd())?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotFound`](io::ErrorKind::NotFound) where it is not registered, otherwise as
    /// [`register`](Self::register).
    pub fn modify(
        &self,
        descriptor: BorrowedDescriptor<'_>,
        token: Token,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        self.check(token, mode)?;
        self.selector.modify(descriptor, token, interest, mode)
    }

    /// Stops watching `descriptor`. No wait that starts after this returns reports it.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// # use polder::poller::{Events, Interest, Mode, Poller, Token};
    /// # use std::io::Write;
    /// # use std::os::fd::AsFd;
    /// # use std::os::unix::net::UnixStream;
    /// # let poller = Poller::new(polder::Backend::default())?;
    /// # let mut events = Events::new();
    /// # let (ours, mut theirs) = UnixStream::pair()?;
    /// # // SAFETY: `ours` is deregistered before it is closed.
    /// # unsafe { poller.register(ours.as_fd(), Token(7), Interest::READABLE, Mode::OneShot)? };
    /// theirs.write_all(b"hello")?;
    /// poller.deregister(ours.as_fd())?;
    /// assert_eq!(poller.wait(&mut events, Some(std::time::Duration::ZERO))?, 0);
    /// assert_eq!(poller.deregister(ours.as_fd()).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotFound`](io::ErrorKind::NotFound) where it is not registered.
    pub fn deregister(&self, descriptor: BorrowedDescriptor<'_>) -> io::Result<()> {
        self.selector.deregister(descriptor)
    }

    /// Waits until something is ready, `timeout` is over (`None`: never), or a notification comes,
    /// and replaces `events` with what is ready. Returns their number, which may be zero for each
    /// of these reasons.
    ///
    /// ```
    /// use polder::Backend;
    /// use polder::poller::{Events, Poller};
    /// use std::time::{Duration, Instant};
    ///
    /// let poller = Poller::new(Backend::default())?;
    /// let (start, time) = (Instant::now(), Duration::from_millis(2));
    /// poller.wait(&mut Events::new(), Some(time))?;
    /// assert!(start.elapsed() >= time); // Nobody notified it, and nothing was registered.
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ResourceBusy`](io::ErrorKind::ResourceBusy) while another thread waits on this poller; otherwise
    /// what the kernel says, for instance that it is short of memory.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<usize> {
        if self.waiting.swap(true, Ordering::Acquire) {
            return Err(busy());
        }
        /// Off again, whatever happens.
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Release);
            }
        }
        let _done = Done(&self.waiting);
        self.wait_alone(events, timeout)
    }

    /// [`wait`](Self::wait) for a caller that knows itself to be the only one that ever waits: the
    /// thread that drives the reactor whose poller this is.
    #[inline]
    pub(crate) fn wait_alone(
        &self,
        events: &mut Events,
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        events.clear();
        // For how much time is left when a signal, or the backend, ends a call early.
        let deadline = match timeout {
            Some(timeout) if !timeout.is_zero() => Instant::now().checked_add(timeout),
            _ => None,
        };
        let mut left = timeout;
        loop {
            let result = match (left, deadline) {
                (Some(left), Some(end)) if !left.is_zero() => {
                    self.selector.wait_until(events, left, end)
                }
                _ => self.selector.wait(events, left),
            };
            match result {
                Ok(()) => return Ok(events.len()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    if let Some(deadline) = deadline {
                        left = Some(deadline.saturating_duration_since(Instant::now()));
                    }
                }
                Err(error) => return Err(self.backend.blame(error)),
            }
        }
    }

    /// Wakes the thread that waits, or else the next wait. Cheap when repeated: only the first
    /// after a wake-up calls the kernel.
    ///
    /// ```
    /// use polder::Backend;
    /// use polder::poller::{Events, Poller};
    ///
    /// let poller = Poller::new(Backend::default())?;
    /// let mut events = Events::new();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| poller.notify());
    ///     poller.wait(&mut events, None) // Until it is notified, before or meanwhile.
    /// })?;
    /// assert!(events.is_empty());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// What the kernel says, where it refuses to write to a descriptor of the poller's; the next call
    /// tries again. None is known in practice.
    pub fn notify(&self) -> io::Result<()> {
        self.selector
            .notify()
            .map_err(|error| self.backend.blame(error))
    }

    /// A descriptor that is readable while a wait would return at once, for a foreign loop to wait
    /// for. Only for looking: what it holds is the poller's.
    ///
    /// ```
    /// # #[cfg(target_os = "linux")] {
    /// use polder::Backend;
    /// use polder::poller::Poller;
    /// use rustix::event::{PollFd, PollFlags, poll};
    ///
    /// let poller = Poller::new(Backend::Epoll)?;
    /// poller.notify()?;
    /// let descriptor = poller.descriptor()?;
    /// // Another loop sees that there is something to do here.
    /// assert_eq!(poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None)?, 1);
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](io::ErrorKind::Unsupported) where [`Capabilities::descriptor`] is not set.
    pub fn descriptor(&self) -> io::Result<BorrowedDescriptor<'_>> {
        self.selector
            .descriptor()
            .ok_or_else(|| unsupported("a poller's descriptor"))
    }

    /// See [`Selector::arm`].
    pub(crate) fn arm(&self, timeout: Option<Duration>) -> io::Result<()> {
        (self.selector.arm(timeout)).map_err(|error| self.backend.blame(error))
    }

    fn check(&self, token: Token, mode: Mode) -> io::Result<()> {
        if token >= Token::RESERVED {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("token {} is reserved for the poller", token.0),
            ));
        }
        let there = match mode {
            Mode::Level => self.capabilities.level,
            Mode::OneShot => self.capabilities.one_shot,
            Mode::Edge => self.capabilities.edge,
        };
        if !there {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("backend {} has no {mode:?} mode", self.backend),
            ));
        }
        Ok(())
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller")
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}

/// The other sides of a poller stay usable while one thread waits.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Poller>();
};

fn registered_already() -> io::Error {
    io::Error::new(
        io::ErrorKind::AlreadyExists,
        "the descriptor is registered already with this poller",
    )
}

fn not_registered() -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        "the descriptor is not registered with this poller",
    )
}

fn busy() -> io::Error {
    io::Error::new(
        io::ErrorKind::ResourceBusy,
        "another thread waits on this poller already",
    )
}

/// A system call that failed, with words: the backend, once that is known, and the call.
#[derive(Debug)]
struct Failed {
    backend: Option<Backend>,
    call: &'static str,
    /// Where the system's number can be asked for, since an error with words has none.
    cause: io::Error,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(backend) = self.backend {
            write!(f, "backend {backend}: ")?;
        }
        write!(f, "{}: {}", self.call, self.cause)
    }
}

impl std::error::Error for Failed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// An error of `call`, of the same kind. Those that are no failure of the call's, and that callers tell by their
/// number, stay as they are: [`Interrupted`](io::ErrorKind::Interrupted), and that there are no descriptors left.
#[cold]
fn failed(call: &'static str, cause: impl Into<io::Error>) -> io::Error {
    let cause = cause.into();
    let kind = cause.kind();
    if kind == io::ErrorKind::Interrupted || crate::sys::is_out_of_descriptors(&cause) {
        return cause;
    }
    let failed = Failed {
        backend: None,
        call,
        cause,
    };
    io::Error::new(kind, failed)
}

impl Backend {
    /// An error of this backend, which says so if it is one of those that say which call it was.
    #[cold]
    fn blame(self, error: io::Error) -> io::Error {
        let kind = error.kind();
        match error.downcast::<Failed>() {
            Ok(failed) => io::Error::new(
                kind,
                Failed {
                    backend: Some(self),
                    ..failed
                },
            ),
            Err(other) => other,
        }
    }
}

fn unsupported(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        format!("{what} is not available on this backend"),
    )
}

/// Fails, as epoll does, for what is always ready, so that a wait for it would be a lie, and for
/// what only names a place (`O_PATH`) and cannot be asked.
#[cfg(unix)]
fn refuse_files(descriptor: BorrowedDescriptor<'_>) -> io::Result<()> {
    use rustix::event::PollFlags;

    if crate::sys::is_file(&descriptor)? {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "a regular file cannot be waited for: it is always ready",
        ));
    }
    let told = crate::sys::poll_now(&descriptor, PollFlags::empty())?;
    match told.contains(PollFlags::NVAL) {
        true => Err(rustix::io::Errno::BADF.into()),
        false => Ok(()),
    }
}

#[cfg(windows)]
fn refuse_files(_: BorrowedDescriptor<'_>) -> io::Result<()> {
    Ok(()) // A `BorrowedSocket` is a socket.
}
