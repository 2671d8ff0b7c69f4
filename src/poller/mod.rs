//! The poller: one contract for readiness polling, and a backend for each kernel interface.
//!
//! A [`Poller`] is one open [`Backend`]. Descriptors are registered with it under a [`Token`];
//! [`wait`](Poller::wait) blocks until some of them are ready, the timeout has elapsed, or a thread
//! calls [`notify`](Poller::notify). The runtime is built on it, and so can your own loop be.
//!
//! ```
//! # #[cfg(unix)] {
//! use polder::Backend;
//! use polder::poller::{Events, Interest, Mode, Poller, Token};
//! use std::io::{Read, Write};
//! use std::os::unix::net::UnixStream;
//!
//! let poller = Poller::new(Backend::default())?;
//! let (mut ours, mut theirs) = UnixStream::pair()?;
//! ours.set_nonblocking(true)?;
//! // SAFETY: `ours` is deregistered below, before it is closed.
//! unsafe { poller.register(&ours, Token(1), Interest::READABLE, Mode::OneShot)? };
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
//!         poller.modify(&ours, event.token(), Interest::READABLE, Mode::OneShot)?;
//!     }
//! }
//! poller.deregister(&ours)?;
//! # }
//! # std::io::Result::Ok(())
//! ```
//!
//! # The contract
//!
//! Every backend guarantees the following:
//!
//! * **Concurrency.** Every method may be called from every thread at any time; a change takes
//!   effect in a wait that is under way. Only one thread waits at a time; a second one gets
//!   [`ResourceBusy`](io::ErrorKind::ResourceBusy).
//! * **Tokens** are returned with the events and not interpreted. Two descriptors may share one; a
//!   caller that never reuses one can recognise a late event. [`Token::RESERVED`] and above belong
//!   to the poller.
//! * **Readiness may be spurious**: callers must handle `WouldBlock`. Only
//!   [`readable`](Event::is_readable) and [`writable`](Event::is_writable) are portable. The other
//!   flags are hints, given where [`Capabilities::hints`] or [`Capabilities::priority`] is set;
//!   they are true, except on a socket that is not connected yet.
//! * **One wait may report a source twice**, and readable and writable separately.
//! * **After `deregister` returns** no wait that starts later reports the source. Events already
//!   handed out carry the old token.
//! * **Hang-up and error** are reported as readable and writable, whatever the interest, so that
//!   every waiter tries its operation. A source with an empty interest reports at most these, once.
//! * **Timeouts** are never early, and a non-zero timeout is never rounded down to zero. A zero
//!   timeout still reports ready sources. Signals (`EINTR`) are not seen by the caller.
//! * **Notifications** are never lost: one wakes the current or else the next wait; any number of
//!   them before that wait count as one.
//! * **A child of `fork`** makes its own pollers: calls on an inherited one are
//!   [`Unsupported`](io::ErrorKind::Unsupported) errors, and dropping it has no effect. With most
//!   backends it would take its parent's events; with the others, it lacks the kernel's state.
//!
//! # Modes
//!
//! [`Mode::Level`] reports as long as a source is ready, [`Mode::OneShot`] once, until
//! [`modify`](Poller::modify) rearms it, [`Mode::Edge`] whenever something new arrives. A mode that
//! is missing in [`Capabilities`] is an [`Unsupported`](io::ErrorKind::Unsupported) error.
//!
//! # Why `register` is unsafe
//!
//! If a descriptor is closed while it is registered, its number can be reused for an unrelated
//! file, which the poller would then poll: [I/O safety](std::io#io-safety) forbids that. A borrow
//! until `deregister` would tie every poller to a lifetime, and ownership would keep the descriptor
//! from callers that have to own it. No backend's *memory* safety depends on the duty.

mod backend;
mod backends;
mod capabilities;
mod error;
mod event;
mod selector;

use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::{Duration, Instant};

use crate::kernel;
use crate::sync::OnDrop;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sys::{self, AsDescriptor, BorrowedDescriptor, HasDescriptor, Process};

pub use backend::Backend;
use backends::AnySelector;
use backends::custom::CustomSelector;
#[cfg(all(unix, feature = "signal"))]
pub(crate) use backends::notifier::WakeDescriptor;
pub use capabilities::Capabilities;
use error::{busy, forked_error};
use event::INTO_EVENTS;
pub(crate) use event::Ready;
pub use event::{Event, Events, Interest, Mode, Token};
#[cfg(all(test, unix, not(loom)))]
pub(crate) use selector::Selector;
pub(crate) use selector::{Change, Request, WaitUntil};

/// An open backend. See the [module](self) for the contract.
///
/// ```
/// use polder::Backend;
/// use polder::poller::{Events, Poller};
/// use std::time::Duration;
///
/// let poller = Poller::new(Backend::default())?;
/// poller.notify()?; // From any thread.
/// let mut events = Events::new();
/// poller.wait(&mut events, Some(Duration::from_secs(60)))?; // It is woken immediately.
/// assert_eq!(events.iter().count(), 0);
/// # std::io::Result::Ok(())
/// ```
pub struct Poller {
    /// Derefs to a `dyn Selector` (`backends/mod.rs`). Dropped only by the process that made it.
    selector: ManuallyDrop<AnySelector>,
    process: Process,
    /// Set while a thread is in [`wait`](Poller::wait), so that a second one is refused.
    waiting: AtomicBool,
    backend: Backend,
    capabilities: Capabilities,
}

/// No foreign code runs within a selector, and its locks are not poisoned.
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
    /// # #[cfg(unix)] {
    /// let error = Poller::new(Backend::Iocp).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Unsupported);
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](io::ErrorKind::Unsupported) if the platform lacks it; otherwise the kernel's
    /// error, with the names of the backend and the call, and the original as
    /// [`source`](std::error::Error::source). Running out of descriptors is returned unchanged.
    pub fn new(backend: Backend) -> io::Result<Poller> {
        Poller::open(backend, false)
    }

    /// [`new`](Self::new); `is_shared`: for several threads that wait, one at a time.
    pub(crate) fn open(backend: Backend, is_shared: bool) -> io::Result<Poller> {
        // The process first: children forked after this see that they are other processes.
        let process = Process::current();
        Ok(Poller::with(backend, backend.open(is_shared)?, process))
    }

    /// Opens the first of these backends that can be opened.
    ///
    /// ```
    /// use polder::Backend;
    /// use polder::poller::Poller;
    ///
    /// let poller = Poller::first_of([Backend::IoUring, Backend::default()])?;
    /// println!("{} it is", poller.backend());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// If none can be opened: the error of [`new`](Self::new) for each, with the kind of the first;
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for an empty list.
    pub fn first_of(backends: impl IntoIterator<Item = Backend>) -> io::Result<Poller> {
        Backend::first_that(backends, Poller::new)
    }

    fn with(backend: Backend, selector: AnySelector, process: Process) -> Poller {
        Poller {
            capabilities: selector.capabilities(),
            selector: ManuallyDrop::new(selector),
            process,
            waiting: AtomicBool::new(false),
            backend,
        }
    }

    /// Returns the backend.
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

    /// Returns what the backend can do.
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

    /// Starts watching `descriptor`; its events carry `token`.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// # use polder::poller::{Interest, Mode, Poller, Token};
    /// # use std::os::unix::net::UnixStream;
    /// let poller = Poller::new(polder::Backend::default())?;
    /// let (socket, _peer) = UnixStream::pair()?;
    /// // SAFETY: it is deregistered before it is closed.
    /// unsafe { poller.register(&socket, Token(7), Interest::READABLE, Mode::OneShot)? };
    /// poller.deregister(&socket)?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists) if the descriptor (not a duplicate) is
    /// registered, [`Unsupported`](io::ErrorKind::Unsupported) for a mode that the backend lacks,
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for a reserved token,
    /// [`PermissionDenied`](io::ErrorKind::PermissionDenied) for a descriptor that cannot be
    /// polled, such as a regular file.
    ///
    /// # Safety
    ///
    /// The descriptor must be [deregistered](Self::deregister) before it is closed, unless the
    /// poller is dropped first. It is passed by reference because an owner passed by value is
    /// closed on return.
    pub unsafe fn register(
        &self,
        descriptor: impl HasDescriptor,
        token: Token,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        let descriptor = descriptor.as_descriptor();
        let request = self.checked_request(token, interest, mode)?;
        if !self.selector.refuses_files() {
            refuse_files(descriptor)?;
        }
        self.selector.change(descriptor, Change::Register(request))
    }

    /// Changes the registration of a source's descriptor, which is not a regular file, and stays
    /// open until it is deregistered. Saves the check, a system call on some backends.
    #[inline]
    pub(crate) fn change_unchecked(
        &self,
        descriptor: BorrowedDescriptor<'_>,
        change: Change,
    ) -> io::Result<()> {
        self.check_process()?;
        self.selector.change(descriptor, change)
    }

    /// Replaces a registered descriptor's token, interest and mode, and rearms a
    /// [one-shot](Mode::OneShot) source. A descriptor that is ready already is reported.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// # use polder::poller::{Events, Interest, Mode, Poller, Token};
    /// # use std::os::unix::net::UnixStream;
    /// let poller = Poller::new(polder::Backend::default())?;
    /// let (socket, _peer) = UnixStream::pair()?;
    /// // SAFETY: it is deregistered before it is closed.
    /// unsafe { poller.register(&socket, Token(7), Interest::READABLE, Mode::OneShot)? };
    /// poller.modify(&socket, Token(8), Interest::WRITABLE, Mode::OneShot)?;
    /// let mut events = Events::new();
    /// poller.wait(&mut events, None)?;
    /// assert_eq!(events.iter().next().unwrap().token(), Token(8));
    /// poller.deregister(&socket)?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotFound`](io::ErrorKind::NotFound) if it is not registered, otherwise as
    /// [`register`](Self::register).
    pub fn modify(
        &self,
        descriptor: impl HasDescriptor,
        token: Token,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        let request = self.checked_request(token, interest, mode)?;
        (self.selector).change(descriptor.as_descriptor(), Change::Modify(request))
    }

    /// Stops watching `descriptor`. No wait that starts after this returns reports it.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// # use polder::poller::Poller;
    /// # use std::io::ErrorKind;
    /// # use std::os::unix::net::UnixStream;
    /// let poller = Poller::new(polder::Backend::default())?;
    /// let (socket, _peer) = UnixStream::pair()?;
    /// assert_eq!(poller.deregister(&socket).unwrap_err().kind(), ErrorKind::NotFound);
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotFound`](io::ErrorKind::NotFound) if it is not registered.
    pub fn deregister(&self, descriptor: impl HasDescriptor) -> io::Result<()> {
        self.check_process()?;
        (self.selector).change(descriptor.as_descriptor(), Change::Deregister)
    }

    /// Waits until a source is ready, `timeout` has elapsed (`None`: never), or the poller is
    /// notified. Replaces `events` with the events of ready sources, and returns their number,
    /// which may be zero for each of these reasons.
    ///
    /// ```
    /// use polder::Backend;
    /// use polder::poller::{Events, Poller};
    /// use std::time::{Duration, Instant};
    ///
    /// let poller = Poller::new(Backend::default())?;
    /// let (start, time) = (Instant::now(), Duration::from_millis(2));
    /// poller.wait(&mut Events::new(), Some(time))?;
    /// assert!(start.elapsed() >= time); // It was not notified, and nothing was registered.
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ResourceBusy`](io::ErrorKind::ResourceBusy) while another thread waits on this poller;
    /// otherwise the kernel's error, such as a lack of memory. `events` has what was reported
    /// before the error.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<usize> {
        events.clear();
        // Before the flag, because a thread of the parent may have been waiting.
        self.check_process()?;
        if self.waiting.swap(true, Ordering::Acquire) {
            return Err(busy());
        }
        // Clears the flag, even if the selector panics.
        let _done = OnDrop(|| self.waiting.store(false, Ordering::Release));
        let until = WaitUntil::after(timeout, Instant::now);
        self.wait_unchecked(events, until, Some(Instant::now), INTO_EVENTS)?;
        Ok(events.len())
    }

    /// [`wait`](Self::wait) for the thread that drives the reactor of this poller, or holds its
    /// shard's lock. Hands each event to `report`, on epoll directly from the kernel's buffer;
    /// without one, leaves them in `events`, which must be empty. With a `repeat_by`, a wait that
    /// was interrupted, or has ended after a part of its time, is repeated, and that clock read if
    /// there is a deadline; without one it returns.
    ///
    /// Returns a time that the clock has reached, if known: the deadline, if the kernel reported
    /// that it has passed, or `now`, if the deadline was past already.
    #[inline(always)]
    pub(crate) fn wait_unchecked(
        &self,
        events: &mut Events,
        mut until: WaitUntil,
        repeat_by: Option<fn() -> Instant>,
        mut report: Option<impl FnMut(Token, Ready)>,
    ) -> io::Result<Option<Instant>> {
        self.check_process()?;
        loop {
            let is_past = matches!(until, WaitUntil::At { deadline, now } if deadline <= now);
            let end = if is_past { WaitUntil::Now } else { until };
            // Epoll reports from its buffer, and is inlined here; the others fill `events`.
            let result = match &*self.selector {
                #[cfg(any(target_os = "linux", target_os = "android"))]
                AnySelector::Epoll(epoll) => epoll.wait_and_report(events, end, &mut report),
                selector => {
                    events.clear();
                    let result = selector.wait(events, end);
                    debug_assert!(events.is_empty() || !is_interrupted(&result));
                    // Also after an error: no later wait would report these edges.
                    if let Some(report) = &mut report {
                        (events.iter()).for_each(|event| report(event.token(), event.ready()));
                    }
                    result.map(Some)
                }
            };
            // `Some`: whether the deadline has passed for certain. `None`: for nothing.
            match (result, until) {
                (Ok(Some(_)), WaitUntil::At { now, .. }) if is_past => return Ok(Some(now)),
                // The kernel timed it by its own clock, starting after `now`.
                (Ok(Some(true)), WaitUntil::At { deadline, .. }) if sys::has_kernel_clock() => {
                    return Ok(Some(deadline));
                }
                (Ok(Some(_)), _) => return Ok(None),
                (Ok(None), _) => {}
                (Err(error), _) => self.unless_interrupted(error)?,
            }
            let Some(clock) = repeat_by else {
                return Ok(None);
            };
            if let WaitUntil::At { now, .. } = &mut until {
                *now = clock();
            }
        }
    }

    #[cold]
    fn unless_interrupted(&self, error: io::Error) -> io::Result<()> {
        match error.kind() {
            io::ErrorKind::Interrupted => Ok(()),
            _ => Err(self.backend.with_name(error)),
        }
    }

    /// Wakes the thread that waits, or else the next wait. Only the first call after a wake-up
    /// enters the kernel, except on io_uring while a foreign loop polls its
    /// [`descriptor`](Self::descriptor).
    ///
    /// ```
    /// use polder::Backend;
    /// use polder::poller::{Events, Poller};
    ///
    /// let poller = Poller::new(Backend::default())?;
    /// let mut events = Events::new();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| poller.notify());
    ///     poller.wait(&mut events, None) // Until it is notified, before the call or during it.
    /// })?;
    /// assert!(events.is_empty());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The kernel's error, if it refuses to write to a descriptor of the poller; the next call
    /// tries again.
    pub fn notify(&self) -> io::Result<()> {
        if self.is_inherited() {
            return Ok(()); // No wait is possible here.
        }
        self.selector
            .notify()
            .map_err(|error| self.backend.with_name(error))
    }

    /// Returns a descriptor that is readable while a wait would return immediately, for a foreign
    /// loop. It may only be polled: its contents belong to the poller.
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
    /// [`Unsupported`](io::ErrorKind::Unsupported) if [`Capabilities::descriptor`] is not set; the
    /// kernel's error if the backend needs another descriptor (io_uring) and none is left.
    pub fn descriptor(&self) -> io::Result<BorrowedDescriptor<'_>> {
        self.check_process()?;
        (self.selector.descriptor()).map_err(|error| self.backend.with_name(error))
    }

    pub(crate) fn arm(&self, until: WaitUntil) -> io::Result<()> {
        self.check_process()?;
        (self.selector.arm(until)).map_err(|error| self.backend.with_name(error))
    }

    pub(crate) fn on_idle(&self) {
        if !self.is_inherited() {
            self.selector.on_idle();
        }
    }

    /// Whether submissions are pending that only the next wait flushes (io_uring).
    #[inline]
    pub(crate) fn has_submissions(&self) -> bool {
        !self.is_inherited() && self.selector.has_submissions()
    }

    #[inline]
    pub(crate) fn is_inherited(&self) -> bool {
        !self.process.is_current()
    }

    #[inline]
    fn check_process(&self) -> io::Result<()> {
        if self.is_inherited() {
            Err(forked_error())
        } else {
            Ok(())
        }
    }

    fn checked_request(&self, token: Token, interest: Interest, mode: Mode) -> io::Result<Request> {
        self.check_process()?;
        if token >= Token::RESERVED {
            let words = format!("token {} is reserved for the poller", token.0);
            return Err(sys::invalid(words));
        }
        let is_supported = match mode {
            Mode::Level => self.capabilities.level,
            Mode::OneShot => self.capabilities.one_shot,
            Mode::Edge => self.capabilities.edge,
        };
        if !is_supported {
            let words = format!("backend {} has no {mode:?} mode", self.backend);
            return Err(sys::unsupported(words));
        }
        Ok(Request {
            token,
            interest,
            mode,
        })
    }
}

#[cfg(all(test, unix, not(loom)))]
impl Poller {
    pub(crate) fn of_selector(selector: impl Selector + 'static) -> Poller {
        let selector = AnySelector::Other(Box::new(selector));
        Poller::with(Backend::default(), selector, Process::current())
    }
}

/// Pollers of a kernel that is not the system's.
impl Poller {
    /// Returns a poller that counts as the platform's default backend.
    #[cfg_attr(not(feature = "kernel"), allow(dead_code))]
    pub(crate) fn custom(poller: kernel::Boxed<dyn kernel::Poller>) -> Poller {
        let selector = AnySelector::Custom(CustomSelector(poller));
        Poller::with(Backend::default(), selector, Process::current())
    }

    /// [`change_unchecked`](Self::change_unchecked) for the kernel's socket of this number, which
    /// may be registered with other pollers too.
    pub(crate) fn change_socket(&self, socket: u64, change: Change) -> io::Result<()> {
        match &*self.selector {
            AnySelector::Custom(custom) => custom.change_socket(socket, change),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Called when a task was woken by a thread that does not drive it.
    #[inline]
    pub(crate) fn note_wake_from_elsewhere(&self) {
        if let AnySelector::Custom(CustomSelector(poller)) = &*self.selector {
            poller.is_woken_from_elsewhere();
        }
    }
}

impl Drop for Poller {
    /// Leaks the selector in a child of `fork`: closing it would remove the parent's sources from
    /// the kernel's set, or, if the selector's descriptor was not inherited and its number was
    /// reused, close an unrelated descriptor.
    fn drop(&mut self) {
        if !self.is_inherited() {
            // SAFETY: it is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.selector) };
        }
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller")
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}

fn is_interrupted<T>(result: &io::Result<T>) -> bool {
    (result.as_ref()).is_err_and(|error| error.kind() == io::ErrorKind::Interrupted)
}

/// Fails, as epoll does, for a descriptor that is always ready, and for a file opened with
/// `O_PATH`.
fn refuse_files(descriptor: BorrowedDescriptor<'_>) -> io::Result<()> {
    if sys::is_file(&descriptor)? {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "a regular file cannot be waited for: it is always ready",
        ));
    }
    sys::is_ready(&descriptor, false).map(drop)
}
