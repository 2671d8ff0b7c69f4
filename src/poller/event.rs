//! Types of sources and events: [`Token`], [`Mode`], [`Interest`], [`Event`] and [`Events`].

use std::fmt;
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::mem::MaybeUninit;
use std::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, Sub, SubAssign};

/// Identifies a source in events. Chosen freely by the caller.
///
/// ```
/// use polder::poller::Token;
///
/// // Whatever names a source in your loop: an index in a table, with a generation, or a pointer.
/// let token = Token(7);
/// assert!(token < Token::RESERVED);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Token(pub u64);

impl Token {
    /// The first of the 16 tokens that are reserved for the poller.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::Backend;
    /// use polder::poller::{Interest, Mode, Poller, Token};
    ///
    /// let poller = Poller::new(Backend::default())?;
    /// let stdin = std::io::stdin();
    /// // SAFETY: nothing is registered.
    /// let result = unsafe {
    ///     poller.register(&stdin, Token::RESERVED, Interest::READABLE, Mode::OneShot)
    /// };
    /// assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    pub const RESERVED: Token = Token(u64::MAX - 15);
}

/// How long a source stays armed after it was reported.
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
    /// Reported once; then disarmed until [`Poller::modify`](super::Poller::modify).
    OneShot,
    /// Reported when something new arrives. The next report is only guaranteed after an operation
    /// was tried until it would block.
    Edge,
}

/// The readiness that a source is watched for: a set of [`READABLE`](Self::READABLE),
/// [`WRITABLE`](Self::WRITABLE) and [`PRIORITY`](Self::PRIORITY), with the operators `|`, `&` and
/// `-` (difference), and `|=`, `&=` and `-=`.
///
/// ```
/// use polder::poller::Interest;
///
/// let both = Interest::READABLE | Interest::WRITABLE;
/// assert!(both.is_readable() && both.is_writable());
/// assert_eq!(both - Interest::WRITABLE, Interest::READABLE);
/// assert_eq!(both & (Interest::WRITABLE | Interest::PRIORITY), Interest::WRITABLE);
/// assert!((both - both).is_empty());
///
/// let mut interest = both;
/// interest &= Interest::WRITABLE | Interest::PRIORITY;
/// assert_eq!(interest, Interest::WRITABLE);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Interest(u8);

impl Interest {
    /// The empty set: only hang-up and errors are reported, once.
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
    /// Data to read, a connection to accept, or the end of the data.
    ///
    /// ```
    /// use polder::poller::Interest;
    ///
    /// assert!((Interest::READABLE | Interest::PRIORITY).contains(Interest::READABLE));
    /// assert!(!Interest::WRITABLE.contains(Interest::READABLE));
    /// ```
    pub const READABLE: Interest = Interest(1);
    /// Room to write, or a connection attempt that succeeded or failed.
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
    /// assert!(!Interest::READABLE.contains(both)); // All parts, not any.
    /// assert!(both.contains(Interest::NONE));
    /// ```
    #[inline]
    pub const fn contains(self, other: Interest) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether [`READABLE`](Self::READABLE) is in this set.
    ///
    /// ```
    /// use polder::poller::Interest;
    ///
    /// assert!((Interest::READABLE | Interest::WRITABLE).is_readable());
    /// assert!(!Interest::PRIORITY.is_readable());
    /// ```
    #[inline]
    pub const fn is_readable(self) -> bool {
        self.contains(Interest::READABLE)
    }

    /// Whether [`WRITABLE`](Self::WRITABLE) is in this set.
    ///
    /// ```
    /// use polder::poller::Interest;
    ///
    /// let mut interest = Interest::READABLE | Interest::WRITABLE;
    /// interest -= Interest::WRITABLE; // All is sent.
    /// assert!(!interest.is_writable());
    /// ```
    #[inline]
    pub const fn is_writable(self) -> bool {
        self.contains(Interest::WRITABLE)
    }

    /// Whether [`PRIORITY`](Self::PRIORITY) is in this set.
    ///
    /// ```
    /// use polder::poller::Interest;
    ///
    /// assert!(Interest::PRIORITY.is_priority());
    /// assert!(!Interest::NONE.is_priority());
    /// ```
    #[inline]
    pub const fn is_priority(self) -> bool {
        self.contains(Interest::PRIORITY)
    }

    /// Whether the set is empty.
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
        *self = *self | other;
    }
}

impl BitAnd for Interest {
    type Output = Interest;

    #[inline]
    fn bitand(self, other: Interest) -> Interest {
        Interest(self.0 & other.0)
    }
}

impl BitAndAssign for Interest {
    #[inline]
    fn bitand_assign(&mut self, other: Interest) {
        *self = *self & other;
    }
}

/// The difference.
impl Sub for Interest {
    type Output = Interest;

    #[inline]
    fn sub(self, other: Interest) -> Interest {
        Interest(self.0 & !other.0)
    }
}

impl SubAssign for Interest {
    #[inline]
    fn sub_assign(&mut self, other: Interest) {
        *self = *self - other;
    }
}

/// The readiness of a source: the bits of an [`Event`], and of the reactor's readiness.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ready(pub(crate) u8);

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
        *self = *self | other;
    }
}

impl Ready {
    pub(crate) const READABLE: Ready = Ready(1);
    pub(crate) const WRITABLE: Ready = Ready(2);
    pub(crate) const CLOSED: Ready = Ready(4);
    pub(crate) const ERROR: Ready = Ready(8);
    pub(crate) const PRIORITY: Ready = Ready(16);
    /// Never in an event: the backend gives no hints, so a hang-up may be unreported.
    pub(crate) const UNKNOWN: Ready = Ready(32);

    #[inline]
    pub(crate) const fn intersects(self, other: Ready) -> bool {
        self.0 & other.0 != 0
    }

    #[inline]
    pub(crate) fn add_if(&mut self, is_reported: bool, other: Ready) {
        if is_reported {
            *self |= other;
        }
    }
}

/// The readiness of one source, as [`Poller::wait`](super::Poller::wait) reports it.
///
/// Not to be confused with [`event::Event`](crate::event::Event), which tasks and threads set.
///
/// ```
/// # #[cfg(unix)] {
/// use polder::poller::{Event, Events, Interest, Mode, Poller, Token};
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
/// unsafe { poller.register(&ours, Token(3), Interest::WRITABLE, Mode::OneShot)? };
/// let mut events = Events::new();
/// poller.wait(&mut events, None)?;
/// let reported: Vec<_> = events.iter().map(what).collect();
/// assert_eq!(reported, ["3: readable false, writable true"]);
/// poller.deregister(&ours)?;
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

    /// Returns the token that the source was registered or last modified with.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// # use polder::poller::{Events, Interest, Mode, Poller, Token};
    /// # use std::io::Write;
    /// # use std::os::unix::net::UnixStream;
    /// # let poller = Poller::new(polder::Backend::default())?;
    /// # let mut events = Events::new();
    /// # let (ours, mut theirs) = UnixStream::pair()?;
    /// # // SAFETY: `ours` is deregistered before it is closed.
    /// unsafe { poller.register(&ours, Token(7), Interest::READABLE, Mode::OneShot)? };
    /// theirs.write_all(b"hello")?;
    /// poller.wait(&mut events, None)?;
    /// assert!(events.iter().all(|event| event.token() == Token(7)));
    /// # poller.deregister(&ours)?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    #[inline]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Whether reading is worth an attempt.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// # use polder::poller::{Events, Interest, Mode, Poller, Token};
    /// # use std::io::Write;
    /// # use std::os::unix::net::UnixStream;
    /// # let poller = Poller::new(polder::Backend::default())?;
    /// # let mut events = Events::new();
    /// # let (ours, mut theirs) = UnixStream::pair()?;
    /// # // SAFETY: `ours` is deregistered before it is closed.
    /// unsafe { poller.register(&ours, Token(7), Interest::READABLE, Mode::OneShot)? };
    /// theirs.write_all(b"hello")?;
    /// poller.wait(&mut events, None)?;
    /// assert!(events.iter().any(|event| event.is_readable()));
    /// # poller.deregister(&ours)?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    #[inline]
    pub fn is_readable(&self) -> bool {
        self.ready.intersects(Ready::READABLE)
    }

    /// Whether writing is worth an attempt.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// # use polder::poller::{Events, Interest, Mode, Poller, Token};
    /// # use std::io::Write;
    /// # use std::os::unix::net::UnixStream;
    /// # let poller = Poller::new(polder::Backend::default())?;
    /// # let mut events = Events::new();
    /// # let (ours, _theirs) = UnixStream::pair()?;
    /// # // SAFETY: `ours` is deregistered before it is closed.
    /// unsafe { poller.register(&ours, Token(7), Interest::WRITABLE, Mode::OneShot)? };
    /// poller.wait(&mut events, None)?; // There is room from the start.
    /// assert!(events.iter().any(|event| event.is_writable()));
    /// # poller.deregister(&ours)?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.ready.intersects(Ready::WRITABLE)
    }

    /// Hint: whether the peer will send no more, or is gone. Unread data may remain.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// # use polder::poller::{Events, Interest, Mode, Poller, Token};
    /// # use std::io::Write;
    /// # use std::os::unix::net::UnixStream;
    /// # let poller = Poller::new(polder::Backend::default())?;
    /// # let mut events = Events::new();
    /// # let (ours, theirs) = UnixStream::pair()?;
    /// # // SAFETY: `ours` is deregistered before it is closed.
    /// unsafe { poller.register(&ours, Token(7), Interest::READABLE, Mode::OneShot)? };
    /// drop(theirs);
    /// poller.wait(&mut events, None)?;
    /// let event = events.iter().next().expect("one source is ready");
    /// assert!(event.is_readable()); // Always.
    /// if poller.capabilities().hints {
    ///     assert!(event.is_closed());
    /// }
    /// # poller.deregister(&ours)?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.ready.intersects(Ready::CLOSED)
    }

    /// Hint: whether the source has a pending error.
    ///
    /// ```
    /// # #[cfg(target_os = "linux")] {
    /// # use polder::Backend;
    /// # use polder::poller::{Events, Interest, Mode, Poller, Token};
    /// # let poller = Poller::new(Backend::Epoll)?;
    /// # let mut events = Events::new();
    /// let (reader, writer) = rustix::pipe::pipe()?;
    /// // SAFETY: `writer` is deregistered below, before it is closed.
    /// unsafe { poller.register(&writer, Token(7), Interest::NONE, Mode::Level)? };
    /// drop(reader); // No written data will ever be read.
    /// poller.wait(&mut events, None)?;
    /// assert!(events.iter().any(|event| event.is_error()));
    /// # poller.deregister(&writer)?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    #[inline]
    pub fn is_error(&self) -> bool {
        self.ready.intersects(Ready::ERROR)
    }

    /// Hint: whether there is urgent data.
    ///
    /// ```
    /// # #[cfg(target_os = "linux")] {
    /// # use polder::Backend;
    /// # use polder::poller::{Events, Interest, Mode, Poller, Token};
    /// # use std::net::{TcpListener, TcpStream};
    /// # let poller = Poller::new(Backend::Epoll)?;
    /// # let mut events = Events::new();
    /// # let listener = TcpListener::bind("127.0.0.1:0")?;
    /// # let near = TcpStream::connect(listener.local_addr()?)?;
    /// # let (far, _) = listener.accept()?;
    /// // SAFETY: `near` is deregistered below, before it is closed.
    /// unsafe { poller.register(&near, Token(7), Interest::PRIORITY, Mode::Level)? };
    /// rustix::net::send(&far, b"!", rustix::net::SendFlags::OOB)?;
    /// poller.wait(&mut events, None)?;
    /// assert!(events.iter().any(|event| event.is_priority()));
    /// # poller.deregister(&near)?;
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

/// A buffer for the events of one wait.
///
/// ```
/// use polder::poller::Events;
///
/// let events = Events::with_capacity(64);
/// assert!(events.is_empty());
/// ```
pub struct Events {
    pub(super) list: Vec<Event>,
    limit: usize,
    /// Allocated by the first wait.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) epoll_buffer: EpollBuffer,
}

impl Events {
    /// Maximum number of events that [`Events::new`] reports in one wait: 4 KiB. From 16 to 1,024
    /// there is no difference in throughput (Linux 6.18).
    ///
    /// ```
    /// use polder::poller::Events;
    ///
    /// // For a loop that serves others between two waits: a quarter of the usual.
    /// let events = Events::with_capacity(Events::DEFAULT_CAPACITY / 4);
    /// assert_eq!(events.len(), 0);
    /// ```
    pub const DEFAULT_CAPACITY: usize = 256;

    /// Allocates room for [`DEFAULT_CAPACITY`](Self::DEFAULT_CAPACITY) events.
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

    /// Allocates room for `capacity` events, at least one. Sources for which there is no room are
    /// reported by the next wait.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// # use polder::Backend;
    /// # use polder::poller::{Events, Interest, Mode, Poller, Token};
    /// # use std::os::unix::net::UnixStream;
    /// # let poller = Poller::new(Backend::default())?;
    /// # let (one, other) = UnixStream::pair()?;
    /// let mut events = Events::with_capacity(1);
    /// // SAFETY: both are deregistered before they are closed.
    /// unsafe { poller.register(&one, Token(1), Interest::WRITABLE, Mode::OneShot)? };
    /// unsafe { poller.register(&other, Token(2), Interest::WRITABLE, Mode::OneShot)? };
    /// assert_eq!(poller.wait(&mut events, None)?, 1); // Both are ready.
    /// assert_eq!(poller.wait(&mut events, None)?, 1);
    /// # poller.deregister(&one)?;
    /// # poller.deregister(&other)?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn with_capacity(capacity: usize) -> Events {
        let limit = capacity.max(1);
        Events {
            list: Vec::with_capacity(limit),
            limit,
            #[cfg(any(target_os = "linux", target_os = "android"))]
            epoll_buffer: Default::default(),
        }
    }

    /// Iterates over the events of the last wait.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// # use polder::poller::{Events, Interest, Mode, Poller, Token};
    /// # use std::io::Write;
    /// # use std::os::unix::net::UnixStream;
    /// # let poller = Poller::new(polder::Backend::default())?;
    /// # let mut events = Events::new();
    /// # let (ours, mut theirs) = UnixStream::pair()?;
    /// # // SAFETY: `ours` is deregistered before it is closed.
    /// # unsafe { poller.register(&ours, Token(7), Interest::READABLE, Mode::OneShot)? };
    /// theirs.write_all(b"hello")?;
    /// poller.wait(&mut events, None)?;
    /// for event in &events {
    ///     assert_eq!(event.token(), Token(7)); // The same as `events.iter()`.
    /// }
    /// # poller.deregister(&ours)?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    #[inline]
    pub fn iter(&self) -> std::slice::Iter<'_, Event> {
        self.list.iter()
    }

    /// Returns the number of events.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// # use polder::poller::{Events, Interest, Mode, Poller, Token};
    /// # use std::io::Write;
    /// # use std::os::unix::net::UnixStream;
    /// # let poller = Poller::new(polder::Backend::default())?;
    /// # let mut events = Events::new();
    /// # let (ours, mut theirs) = UnixStream::pair()?;
    /// # // SAFETY: `ours` is deregistered before it is closed.
    /// # unsafe { poller.register(&ours, Token(7), Interest::READABLE, Mode::OneShot)? };
    /// theirs.write_all(b"hello")?;
    /// let count = poller.wait(&mut events, None)?;
    /// assert_eq!(count, events.len());
    /// # poller.deregister(&ours)?;
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

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events")
            .field("list", &self.list)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
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

/// The absence of a closure that events are reported to: they are left in [`Events`].
pub(super) const INTO_EVENTS: Option<fn(Token, Ready)> = None;

/// The buffer of `epoll_wait`.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[derive(Default)]
pub(super) struct EpollBuffer(pub(super) Vec<MaybeUninit<rustix::event::epoll::Event>>);

// SAFETY: an event is not `Send` only because rustix lets its data be a pointer. All our data were
// made from integers and are read as such.
#[cfg(any(target_os = "linux", target_os = "android"))]
unsafe impl Send for EpollBuffer {}

// SAFETY: as above; and nothing of it can be reached through a shared reference.
#[cfg(any(target_os = "linux", target_os = "android"))]
unsafe impl Sync for EpollBuffer {}
