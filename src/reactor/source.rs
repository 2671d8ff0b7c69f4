//! One descriptor, and everything that waits for it.
//!
//! A [`Source`] owns its descriptor and its [`Readiness`]; the reactor that it is registered with
//! knows it by token. Users hold it through [`Io`] handles, which are counted: when the last one
//! goes, the source is deregistered, and then closed. (`Async<T>` lends a descriptor that is its
//! user's: that one is deregistered by then, and stays open.)
//!
//! **Sources follow their users.** A source is registered when an operation first has to wait, with
//! the reactor of the worker that waits. If later another worker waits, and nobody else does, it
//! moves there. If others do wait, it is registered there *as well*: a waiter is always served by
//! its own worker, whether or not somebody drives the others' (a runtime may be left alone between
//! two turns, for ever). Wakers lie in the source, so an event from any reactor wakes everyone; and
//! registering reports what is ready already, so no event is lost on the way.
//!
//! **How it is registered.** With edges, a TCP stream for both directions and urgent data, at once
//! and for good. Others for reading, and for writing while somebody waits to write: a Unix or UDP
//! socket reports each message that drained as an edge, a wake-up for nobody. So a write that has
//! to wait arms it, and the first event that nobody waited to write for disarms it. (Not the first
//! event at all: who fills a buffer once fills it again, and pays one system call for that, not two
//! a time.) What is lent, of which nothing is known, is registered for what was waited for only.
//!
//! Without edges, for the directions that somebody waits for. Where there are levels, an event that
//! wakes somebody leaves its direction armed, since most likely it is waited for again before the
//! kernel is asked again; an event for which nobody waited disarms it. Where there is only
//! one-shot, each event has spent the interest, and waiting arms again.
//!
//! **Spurious events.** An error queue that nobody reads (`IP_RECVERR`, `SO_TIMESTAMPING`) makes
//! poll(2) and select(2) call a socket ready for ever, though every read would block: whoever waits
//! would be woken, try and wait again without an end. With levels, [`MOST_SUSPECT_EVENTS`] events
//! in a row that are about an error, or may be, make us ask poll(2) whether there is anything else.
//! If not, we [back off](Registration::back_off): the direction is armed again after a delay, which
//! grows as long as nothing else is found. Whoever waits meanwhile is woken then. (With edges such
//! an error is reported once.)
//!
//! **Locks.** A reactor's table of sources, then a source's state, then whatever the poller has; a
//! waker is called and dropped under none of them, but for a task's own (see `waiters`).

use std::io;
use std::sync::Arc;
use std::task::Waker;

use super::readiness::{Direction, Readiness, Registered, Snapshot, State};
use super::registration::{Registration, Registrations};
use super::waiters::{Own, WaiterId};
use super::{Driver, Reactor, Token};
use crate::poller::{Interest, Mode, Poller, Ready};
#[cfg(all(feature = "sim", not(loom)))]
use crate::sim::kernel::{SimSocket, SimSocketId};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use crate::sync::{MutexGuard, drop_all, wake_all};
use crate::sys::{self, AsDescriptor, BorrowedDescriptor, LentDescriptor, OwnedDescriptor};

/// What a source is, as far as waiting for it differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SourceKind {
    /// A TCP stream: its edges are few, and a short read says that it is drained.
    TcpStream,
    /// A Unix stream: a short read says so too, unless something came along with the bytes.
    #[cfg_attr(not(unix), allow(dead_code, reason = "there are none"))]
    UnixStream,
    /// A listener or a datagram socket: what was read says nothing of what is left.
    Other,
    /// Anything at all, lent by its owner.
    Lent,
}

#[derive(Debug)]
pub(crate) struct Source {
    readiness: Readiness<Registrations>,
    descriptor: Held,
    kind: SourceKind,
    /// [`Io`] handles.
    handles: AtomicUsize,
    next_id: AtomicU32,
    /// With levels: a short read has brought something since the last event.
    has_read: AtomicBool,
    /// See [`is_bytes_only`](Self::is_bytes_only).
    is_bytes_only: AtomicBool,
    /// The socket of a simulated world that this is; the descriptor is a placeholder then.
    #[cfg(all(feature = "sim", not(loom)))]
    simulated: Option<SimSocket>,
}

/// A descriptor: to be closed with its source, or its owner's. Both lie in the same place, so that
/// borrowing it takes no branch.
#[derive(Debug)]
enum Held {
    Owned(OwnedDescriptor),
    Lent(LentDescriptor),
}

/// Somebody waits for a source, or was woken for it and has not come back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceWait {
    pub(crate) token: Token,
    /// The address of the source, which may be registered with several reactors: compared only.
    pub(crate) source: usize,
    /// The address in the waker: compared, and never followed.
    pub(crate) waker: usize,
    pub(crate) direction: Direction,
    pub(crate) is_waiting: bool,
}

/// So many events that may be spurious are believed before poll(2) is asked what they are about:
/// few enough for spurious ones to cost little, and enough for the question to cost nothing beside
/// them.
const MOST_SUSPECT_EVENTS: u8 = 32;

impl Source {
    #[inline]
    pub(crate) fn snapshot(&self, direction: Direction) -> Snapshot {
        self.readiness.snapshot(direction)
    }

    /// See [`Readiness::clear`].
    #[inline]
    pub(crate) fn clear(&self, direction: Direction, seen: Snapshot) {
        self.readiness.clear(direction, seen);
    }

    /// See [`Readiness::refresh`].
    #[inline]
    pub(crate) fn refresh<E>(
        &self,
        direction: Direction,
        seen: Snapshot,
        query: impl FnOnce(bool) -> Result<bool, E>,
    ) -> Result<bool, E> {
        self.readiness.refresh(direction, seen, query)
    }

    #[inline]
    pub(crate) fn descriptor(&self) -> BorrowedDescriptor<'_> {
        match &self.descriptor {
            Held::Owned(descriptor) => descriptor.as_descriptor(),
            Held::Lent(descriptor) => descriptor.as_descriptor(),
        }
    }

    /// The socket of a simulated world that this is.
    #[cfg(all(feature = "sim", not(loom)))]
    #[inline]
    pub(crate) fn simulated(&self) -> Option<SimSocketId> {
        self.simulated.as_ref().map(SimSocket::id)
    }

    /// A stream's read in the state `seen` got less than it asked for; or, in a simulated world,
    /// has left nothing. Where that shows that there is no more, clears readability, and so spares
    /// the attempt that would find out.
    ///
    /// It shows that for streams while neither an end nor urgent data was reported: with edges the
    /// end of file makes no further one once it was reported together with the data, and a read
    /// stops at the urgent mark. Without edges, arming reports what is left. (A read
    /// of a Unix stream also stops at a message that carried descriptors: such a read is not to be
    /// told here.)
    #[inline]
    pub(crate) fn clear_after_short_read(&self, seen: Snapshot) {
        let is_stream = matches!(self.kind, SourceKind::TcpStream | SourceKind::UnixStream);
        if is_stream && !seen.has_sticky_flags() {
            self.clear(Direction::Read, seen);
            self.has_read.store(true, Ordering::Relaxed);
        }
    }

    /// Of a Unix socket: whether nothing but bytes can come through it, so that nothing but urgent
    /// data ends a read early. This is for `net/socket.rs`, which decides it.
    ///
    /// Relaxed: who withdraws it does so before the kernel is told to let anything else in, and who
    /// has read asks again before a short read is believed. Between the two lies the kernel's lock
    /// of the socket, through which whatever ended the read early has come.
    #[inline]
    pub(crate) fn is_bytes_only(&self) -> bool {
        self.is_bytes_only.load(Ordering::Relaxed)
    }

    pub(crate) fn set_bytes_only(&self, is_bytes_only: bool) {
        self.is_bytes_only.store(is_bytes_only, Ordering::Relaxed);
    }

    /// [`register_waker`](Self::register_waker) for a source that is registered with the reactor
    /// that this thread drives: what nearly every wait finds. `None` if it is not. `whose`
    /// says, of a reactor that this thread drives, whether `waker` is the running task's own.
    #[inline]
    pub(crate) fn register_waker_here(
        &self,
        whose: impl Fn(&Reactor, &Waker) -> Option<Own>,
        direction: Direction,
        id: WaiterId,
        waker: &Waker,
    ) -> Option<io::Result<bool>> {
        let mut spare = self.readiness.spare(waker);
        loop {
            let mut state = self.readiness.lock();
            let own = whose(state.registrations.first.as_ref()?.reactor(), waker)?;
            let registered =
                (self.readiness).register_waker(&mut state, direction, id, waker, &mut spare);
            match (registered, &mut state.registrations.first) {
                (Registered::NeedsClone, _) => {
                    drop(state);
                    spare.fill(waker);
                }
                (Registered::Pending, Some(registration)) => {
                    let armed = self.add_interest(registration, interest(direction));
                    state.waiters.mark_own(own);
                    return Some(armed.map(|()| true));
                }
                _ => return Some(Ok(false)),
            }
        }
    }

    /// Registers `waker` for the next event of `direction`, and the source with `reactor` where
    /// that is needed. Returns `false` if the direction is ready by now: then the operation is to
    /// be tried again.
    pub(crate) fn register_waker(
        self: &Arc<Self>,
        reactor: &Arc<Reactor>,
        direction: Direction,
        id: WaiterId,
        waker: &Waker,
    ) -> io::Result<bool> {
        let mut spare = self.readiness.spare(waker);
        loop {
            let mut state = self.readiness.lock();
            if state.registrations.with(reactor).is_none() {
                self.move_to(reactor, state, direction, id)?;
                continue;
            }
            let registered =
                (self.readiness).register_waker(&mut state, direction, id, waker, &mut spare);
            match (registered, state.registrations.with(reactor)) {
                (Registered::NeedsClone, _) => {
                    drop(state);
                    spare.fill(waker);
                }
                (Registered::Pending, Some(registration)) => {
                    self.add_interest(registration, interest(direction))?;
                    return Ok(true);
                }
                _ => return Ok(false),
            }
        }
    }

    /// Registers with `reactor`: instead of the others if nobody else waits for this source, and
    /// otherwise as well.
    #[cold]
    fn move_to(
        self: &Arc<Self>,
        reactor: &Arc<Reactor>,
        mut state: MutexGuard<'_, State<Registrations>>,
        direction: Direction,
        id: WaiterId,
    ) -> io::Result<()> {
        let left = match state.waiters.contains_others(direction, id) {
            true => Registrations::default(),
            false => self.deregister(state.registrations.remove_all()),
        };
        drop(state);
        left.free_tokens();
        self.register(reactor, direction)
    }

    /// Registers with `reactor`, unless somebody has done that meanwhile.
    fn register(self: &Arc<Self>, reactor: &Arc<Reactor>, direction: Direction) -> io::Result<()> {
        // The table's lock comes before the state's, so the token is taken first, provisionally:
        // it is given back below if another thread has registered meanwhile.
        let token = reactor.insert(self.clone())?;
        let mut state = self.readiness.lock();
        let mut interest = interest(direction);
        let mode = reactor.mode();
        let has = reactor.poller().capabilities();
        let has_no_hints = !has.hints || !has.priority;
        // Without edges arming reports what a short read left, so that is safe without hints for a
        // stream: see `clear_after_short_read`.
        if has_no_hints && (mode == Mode::Edge || self.kind == SourceKind::Other) {
            (self.readiness).set_sticky_flags(&mut state, Ready::UNKNOWN);
        }
        if mode == Mode::Edge {
            interest |= match self.kind {
                SourceKind::TcpStream => {
                    Interest::READABLE | Interest::WRITABLE | Interest::PRIORITY
                }
                SourceKind::UnixStream => Interest::READABLE | Interest::PRIORITY,
                SourceKind::Other => Interest::READABLE,
                SourceKind::Lent => Interest::NONE,
            };
        }
        let result = match state.registrations.with(reactor) {
            Some(_) => Ok(false),
            None => self
                .register_with(reactor.poller(), token, interest, mode)
                .map(|()| true),
        };
        if let Ok(true) = result {
            (state.registrations).add(Registration::new(reactor.clone(), token, interest));
            // A reactor that closes marks itself first and then visits what is in its table: it
            // comes to this source after this critical section, or is seen here.
            if !reactor.is_closed() {
                return Ok(());
            }
            let left = self.deregister(state.registrations.remove(reactor));
            drop(state);
            left.free_tokens();
            return Err(super::closed());
        }
        drop(state);
        drop(reactor.remove(token));
        result.map(drop)
    }

    fn register_with(
        &self,
        poller: &Poller,
        token: Token,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        #[cfg(all(feature = "sim", not(loom)))]
        if let Some(socket) = self.simulated() {
            return poller.register_simulated(socket, token, interest);
        }
        poller.register_unchecked(self.descriptor(), token, interest, mode)
    }

    /// Ends registrations that were taken out of the state, still under its lock, like
    /// registering: what the state says and what the pollers know is the same.
    fn deregister(&self, registrations: Registrations) -> Registrations {
        for registration in registrations.iter() {
            let poller = registration.reactor().poller();
            #[cfg(all(feature = "sim", not(loom)))]
            if let Some(socket) = self.simulated() {
                // It can only fail if its world has ended.
                let _ = poller.deregister_simulated(socket);
                continue;
            }
            // It can only fail if somebody has closed our descriptor: then it is not there either.
            let _ = poller.deregister(self.descriptor());
        }
        registrations
    }

    /// Arms `wanted` there as well, unless it is backed off: then that is done later.
    #[inline]
    fn add_interest(&self, registration: &mut Registration, wanted: Interest) -> io::Result<()> {
        match registration.interest.contains(wanted) {
            true => Ok(()),
            false => self.add_missing_interest(registration, wanted),
        }
    }

    fn add_missing_interest(
        &self,
        registration: &mut Registration,
        wanted: Interest,
    ) -> io::Result<()> {
        let wanted = wanted.without(registration.backed_off());
        match registration.interest.contains(wanted) {
            true => Ok(()),
            false => self.set_interest(registration, registration.interest | wanted),
        }
    }

    fn set_interest(&self, registration: &mut Registration, interest: Interest) -> io::Result<()> {
        let (reactor, socket) = (registration.reactor(), self.descriptor());
        #[cfg(all(feature = "sim", not(loom)))]
        if let Some(socket) = self.simulated() {
            (reactor.poller()).register_simulated(socket, registration.token(), interest)?;
            registration.interest = interest;
            return Ok(());
        }
        (reactor.poller()).modify_unchecked(
            socket,
            registration.token(),
            interest,
            reactor.mode(),
        )?;
        registration.interest = interest;
        Ok(())
    }

    /// An event of `driver`'s reactor for the token that this source has there.
    #[inline]
    pub(super) fn deliver(
        self: &Arc<Self>,
        driver: &Driver,
        token: Token,
        ready: Ready,
        wakers: &mut Vec<Waker>,
    ) {
        let reactor = &**driver.reactor();
        let mut state = self.readiness.lock();
        // A task's own waker is marked as such by the worker of the first registration only: there
        // it may be woken under the lock.
        let is_here = (state.registrations.first.as_ref())
            .is_some_and(|first| std::ptr::eq(first.reactor(), reactor));
        // With edges only space that nobody waited for changes the interest.
        let keeps_interest = reactor.mode() == Mode::Edge
            && (self.kind == SourceKind::TcpStream
                || !ready.intersects(Ready::WRITABLE)
                || state.waiters.contains(Direction::Write));
        let before = match keeps_interest {
            true => Interest::NONE,
            false => awaited(&state),
        };
        match is_here {
            true => self.readiness.deliver_here(&mut state, ready, wakers),
            false => self.readiness.deliver(&mut state, ready, wakers),
        }
        if !keeps_interest {
            self.change_interest(driver, token, ready, before, &mut state, wakers);
        }
    }

    /// The interest after an event for which `before` was awaited.
    fn change_interest(
        self: &Arc<Self>,
        driver: &Driver,
        token: Token,
        ready: Ready,
        before: Interest,
        state: &mut State<Registrations>,
        wakers: &mut Vec<Waker>,
    ) {
        let reactor = &**driver.reactor();
        // Delivering takes the waiters of the reported directions, and nobody else.
        let after = before.without(interest_of(ready));
        let result = match state.registrations.with(reactor) {
            Some(registration) if registration.token() == token => {
                let wanted = match reactor.mode() {
                    // Room that nobody waited for: it is reported with each message that drains.
                    Mode::Edge => registration.interest.without(Interest::WRITABLE),
                    // Whoever was woken most likely comes again; what nobody waited for would be
                    // reported again and again.
                    Mode::Level => {
                        let unawaited = interest_of(ready).without(before);
                        let wanted = registration.interest.without(unawaited);
                        wanted.without(self.spurious(driver, registration, ready))
                    }
                    // The event has spent the interest. Who still waits is armed again.
                    _ => {
                        registration.interest = Interest::NONE;
                        after
                    }
                };
                match registration.interest == wanted {
                    true => Ok(()),
                    false => self.set_interest(registration, wanted),
                }
            }
            // It has left, and perhaps come back since.
            _ => Ok(()),
        };
        if result.is_err() {
            // It cannot be waited for any more: let the operation find out why.
            self.readiness
                .deliver(state, Ready::READABLE | Ready::WRITABLE, wakers);
        }
    }

    /// The directions that were reported without a cause, and are backed off from.
    #[inline]
    fn spurious(
        self: &Arc<Self>,
        driver: &Driver,
        registration: &mut Registration,
        ready: Ready,
    ) -> Interest {
        // Where errors are reported as such, there is one. Where they are not, there may be, unless
        // reading brings something.
        let is_suspect = match registration.reactor().poller().capabilities().hints {
            true => ready.intersects(Ready::ERROR),
            false => !self.take_has_read(),
        };
        if !is_suspect {
            registration.suspect_events = 0;
            return Interest::NONE;
        }
        registration.suspect_events += 1;
        match registration.suspect_events < MOST_SUSPECT_EVENTS {
            true => Interest::NONE,
            false => self.check_suspect(driver, registration, interest_of(ready)),
        }
    }

    fn take_has_read(&self) -> bool {
        let has_read = self.has_read.load(Ordering::Relaxed);
        if has_read {
            self.has_read.store(false, Ordering::Relaxed);
        }
        has_read
    }

    /// Asks poll(2) which of the `reported` directions are ready for an error only, and backs off
    /// from those.
    #[cold]
    fn check_suspect(
        self: &Arc<Self>,
        driver: &Driver,
        registration: &mut Registration,
        reported: Interest,
    ) -> Interest {
        // What cannot be asked is believed.
        let (read, write) = sys::is_only_an_error(&self.descriptor()).unwrap_or_default();
        let mut spurious = Interest::NONE;
        if read {
            spurious |= interest(Direction::Read);
        }
        if write {
            spurious |= interest(Direction::Write);
        }
        let spurious = intersection(reported, spurious);
        if spurious.is_empty() {
            registration.suspect_events = 0;
            if registration.backed_off().is_empty() {
                registration.reset_back_off(driver);
            }
            return spurious;
        }
        // The next event is asked about at once.
        registration.suspect_events = MOST_SUSPECT_EVENTS - 1;
        match registration.back_off(driver, self, spurious) {
            true => spurious,
            false => Interest::NONE,
        }
    }

    /// A back-off is over: what somebody waits for of it is armed again. `take` gives what it was
    /// about.
    pub(super) fn end_back_off(&self, token: Token, take: fn(&mut Registration) -> Interest) {
        let mut wakers = Vec::new();
        let mut state = self.readiness.lock();
        let awaited = awaited(&state);
        let mut result = Ok(());
        // (Another reactor may have the same token for it: then its back-off is shorter.)
        for registration in state.registrations.iter_mut() {
            if registration.token() == token {
                let wanted = intersection(awaited, take(registration));
                result = result.and(self.add_interest(registration, wanted));
            }
        }
        if result.is_err() {
            self.readiness
                .deliver(&mut state, Ready::READABLE | Ready::WRITABLE, &mut wakers);
        }
        drop(state);
        wake_all(wakers);
    }

    /// Treated as an event in both directions. `ended` says that reading was shut down.
    pub(crate) fn wake(&self, ended: bool) {
        let mut wakers = Vec::new();
        let mut ready = Ready::READABLE | Ready::WRITABLE;
        if ended {
            ready |= Ready::CLOSED;
        }
        (self.readiness).deliver(&mut self.readiness.lock(), ready, &mut wakers);
        wake_all(wakers);
    }

    /// The reactor goes: whoever waits is woken, tries, and registers elsewhere.
    pub(super) fn orphan(&self, reactor: &Reactor, wakers: &mut Vec<Waker>) {
        let mut state = self.readiness.lock();
        let left = self.deregister(state.registrations.remove(reactor));
        if !left.is_empty() {
            self.readiness
                .deliver(&mut state, Ready::READABLE | Ready::WRITABLE, wakers);
            // One that is kept too: it would keep the runtime's memory, and its descriptors.
            wakers.extend(state.waiters.take_kept());
        }
    }

    /// Whose wakers it keeps, under the token that it has in one table.
    pub(super) fn waits(&self, token: Token, waits: &mut Vec<SourceWait>) {
        let state = self.readiness.lock();
        state.waiters.for_each(|waker, direction, is_waiting| {
            waits.push(SourceWait {
                token,
                source: std::ptr::from_ref(self).addr(),
                waker: waker.data().addr(),
                direction,
                is_waiting,
            });
        });
    }

    /// Whether the waker of that address, which `direction` keeps, is waited with. `None` if it is
    /// not kept any more.
    pub(crate) fn is_waited_with(&self, waker: usize, direction: Direction) -> Option<bool> {
        let mut found = None;
        let state = self.readiness.lock();
        state.waiters.for_each(|other, of, is_waiting| {
            if other.data().addr() == waker && of == direction {
                found = Some(found.unwrap_or(false) || is_waiting);
            }
        });
        found
    }

    pub(crate) fn kind(&self) -> SourceKind {
        self.kind
    }

    fn next_id(&self) -> u32 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}

/// The directions that somebody waits for.
#[inline]
fn awaited(state: &State<Registrations>) -> Interest {
    let mut awaited = Interest::NONE;
    for direction in [Direction::Read, Direction::Write] {
        if state.waiters.contains(direction) {
            awaited |= interest(direction);
        }
    }
    awaited
}

fn intersection(a: Interest, b: Interest) -> Interest {
    a.without(a.without(b))
}

/// The directions that an event is about.
#[inline]
fn interest_of(ready: Ready) -> Interest {
    let mut interest = Interest::NONE;
    if ready.intersects(Ready::READABLE) {
        interest |= Interest::READABLE;
    }
    if ready.intersects(Ready::WRITABLE) {
        interest |= Interest::WRITABLE;
    }
    interest
}

#[inline]
fn interest(direction: Direction) -> Interest {
    match direction {
        Direction::Read => Interest::READABLE,
        Direction::Write => Interest::WRITABLE,
    }
}

/// A handle to a source: what a user's socket holds. Clones share the source.
#[derive(Debug)]
pub(crate) struct Io {
    source: Arc<Source>,
    id: WaiterId,
}

impl Io {
    /// Takes over a descriptor, which must be non-blocking.
    pub(crate) fn new(descriptor: OwnedDescriptor, kind: SourceKind) -> Io {
        Io::with(Held::Owned(descriptor), kind)
    }

    /// Takes over a socket of a simulated world.
    ///
    /// # Errors
    ///
    /// If what is lent in place of its descriptor cannot be opened.
    #[cfg(all(feature = "sim", not(loom)))]
    pub(crate) fn simulated(socket: SimSocket, kind: SourceKind) -> io::Result<Io> {
        let placeholder = LentDescriptor::of_static(crate::sim::kernel::placeholder()?);
        let mut io = Io::with(Held::Lent(placeholder), kind);
        let source = Arc::get_mut(&mut io.source).expect("nobody else has it yet");
        source.simulated = Some(socket);
        Ok(io)
    }

    /// Waits for a descriptor that stays its owner's. It must be non-blocking, and no file.
    ///
    /// # Safety
    ///
    /// It must stay open until the last handle is dropped.
    #[cfg(not(loom))]
    pub(crate) unsafe fn lent(descriptor: BorrowedDescriptor<'_>) -> Io {
        // SAFETY: the caller promises it.
        let descriptor = unsafe { LentDescriptor::new(descriptor) };
        Io::with(Held::Lent(descriptor), SourceKind::Lent)
    }

    fn with(descriptor: Held, kind: SourceKind) -> Io {
        Io {
            source: Arc::new(Source {
                readiness: Readiness::new(Registrations::default()),
                descriptor,
                kind,
                handles: AtomicUsize::new(1),
                next_id: AtomicU32::new(1),
                has_read: AtomicBool::new(false),
                is_bytes_only: AtomicBool::new(false),
                #[cfg(all(feature = "sim", not(loom)))]
                simulated: None,
            }),
            id: WaiterId::handle(0),
        }
    }

    #[inline]
    pub(crate) fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// This handle's identity as a waiter.
    #[inline]
    pub(crate) fn id(&self) -> WaiterId {
        self.id
    }

    /// The identity of a future, which waits for one operation and is then
    /// [removed](Self::remove_waiter).
    pub(crate) fn new_future_id(&self) -> WaiterId {
        WaiterId::future(self.source.next_id())
    }

    /// The identity of a waiter that comes again and again.
    pub(crate) fn new_handle_id(&self) -> WaiterId {
        WaiterId::handle(self.source.next_id())
    }

    /// Drops the wakers of a waiter that waits no more.
    pub(crate) fn remove_waiter(&self, id: WaiterId) {
        drop_all(
            self.source
                .readiness
                .remove_waiter(id)
                .into_iter()
                .flatten(),
        );
    }

    /// The descriptor itself, deregistered; a duplicate of it where other handles share it.
    pub(crate) fn into_descriptor(self) -> io::Result<OwnedDescriptor> {
        let source = self.source.clone();
        drop(self);
        #[cfg(all(feature = "sim", not(loom)))]
        if source.simulated().is_some() {
            return Err(crate::sim::kernel::unsupported("the socket's descriptor"));
        }
        match Arc::try_unwrap(source) {
            Ok(Source {
                descriptor: Held::Owned(descriptor),
                ..
            }) => Ok(descriptor),
            Ok(source) => source.descriptor().try_clone_to_owned(),
            Err(source) => source.descriptor().try_clone_to_owned(),
        }
    }
}

impl Clone for Io {
    fn clone(&self) -> Io {
        self.source.handles.fetch_add(1, Ordering::Relaxed);
        Io {
            id: self.new_handle_id(),
            source: self.source.clone(),
        }
    }
}

impl Drop for Io {
    fn drop(&mut self) {
        let source = &self.source;
        if source.handles.fetch_sub(1, Ordering::AcqRel) > 1 {
            return self.remove_waiter(self.id);
        }
        // The last handle: nobody can wait any more, and the reactor lets go of the source, so
        // that the descriptor closes here and now.
        let mut wakers = Vec::new();
        let left = {
            let mut state = source.readiness.lock();
            state.waiters.take_all(&mut wakers);
            source.deregister(state.registrations.remove_all())
        };
        left.free_tokens();
        drop_all(wakers);
    }
}

/// Sources and reactors as they are, on the kernel's own poller. Left out: the wait, and so events;
/// and who finds a reactor (`context`), which after a refusal asks for another one.
#[cfg(all(test, loom, unix))]
mod loom_tests {
    use super::*;
    use crate::poller::Backend;
    use std::os::unix::net::UnixStream;

    fn reactor() -> Arc<Reactor> {
        Reactor::new(Poller::new(Backend::default()).unwrap())
    }

    /// A handle that is known not to be readable.
    fn io() -> (Io, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        let io = Io::new(near.into(), SourceKind::Other);
        let seen = io.source().snapshot(Direction::Read);
        io.source().clear(Direction::Read, seen);
        (io, far)
    }

    struct Count(AtomicUsize);

    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Release);
        }
    }

    fn check(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    fn is_with(io: &Io, reactor: &Reactor) -> bool {
        let mut state = io.source().readiness.lock();
        state.registrations.with(reactor).is_some()
    }

    #[test]
    fn whoever_registers_while_the_reactor_closes_is_refused_or_woken() {
        check(|| {
            let (reactor, (io, _far)) = (reactor(), io());
            let count = Arc::new(Count(AtomicUsize::new(0)));
            let closer = {
                let reactor = reactor.clone();
                loom::thread::spawn(move || {
                    let mut wakers = Vec::new();
                    reactor.close(&mut wakers);
                    wake_all(wakers);
                })
            };
            let waker = Waker::from(count.clone());
            let waits = (io.source()).register_waker(&reactor, Direction::Read, io.id(), &waker);
            closer.join().unwrap();
            if matches!(waits, Ok(true)) {
                assert_eq!(count.0.load(Ordering::Acquire), 1, "it waits for ever");
            }
            assert!(
                !is_with(&io, &reactor),
                "it is registered with what has closed"
            );
        });
    }

    #[test]
    fn two_who_wait_with_two_reactors_at_once_are_registered_with_both() {
        check(|| {
            let (io, _far) = io();
            let io = Arc::new(io);
            let reactors = [reactor(), reactor()];
            let wait = |reactor: Arc<Reactor>, io: Arc<Io>| {
                move || {
                    let (id, waker) = (io.new_future_id(), Waker::noop());
                    let waits = (io.source()).register_waker(&reactor, Direction::Read, id, waker);
                    assert!(waits.unwrap(), "nothing has happened");
                }
            };
            let other = loom::thread::spawn(wait(reactors[1].clone(), io.clone()));
            wait(reactors[0].clone(), io.clone())();
            other.join().unwrap();
            for reactor in &reactors {
                assert!(
                    is_with(&io, reactor),
                    "a waiter depends on the other's reactor"
                );
                // Or the source would hold itself.
                reactor.close(&mut Vec::new());
            }
        });
    }

    #[test]
    fn a_source_that_moves_leaves_no_registration_behind() {
        check(|| {
            let (io, _far) = io();
            let io = Arc::new(io);
            let (first, second) = (reactor(), reactor());
            let id = io.new_future_id();
            let wait = (io.source()).register_waker(&first, Direction::Read, id, Waker::noop());
            assert!(wait.unwrap());
            io.remove_waiter(id);
            // Meanwhile the reactor that it leaves closes.
            let closer = {
                let first = first.clone();
                loom::thread::spawn(move || first.close(&mut Vec::new()))
            };
            let id = io.new_future_id();
            let wait = (io.source()).register_waker(&second, Direction::Read, id, Waker::noop());
            closer.join().unwrap();
            let waits = wait.unwrap();
            assert!(
                !is_with(&io, &first),
                "it is registered with what it has left"
            );
            // `false`: it was to try again, and has not come back here.
            assert!(
                !waits || is_with(&io, &second),
                "it waits, and is registered nowhere"
            );
            second.close(&mut Vec::new());
        });
    }
}
