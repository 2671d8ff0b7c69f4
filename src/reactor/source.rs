//! One descriptor, or one socket of another kernel, and the waiters for it.
//!
//! A [`Source`] owns its descriptor or socket, and its [`Readiness`]; the reactor that it is
//! registered with finds it by token in its [`SourceTable`], at the end of this file. Users hold it
//! through counted [handles](super::handle): when the last one is dropped, the source is
//! deregistered and then closed. (The descriptor in an `Async<T>` is its user's: it is deregistered
//! before the user gets it back, and stays open.)
//!
//! **Sources follow their users.** A source is registered when an operation first has to wait, with
//! the reactor of the worker that waits. If another worker waits later, and there is no other
//! waiter, the source moves to that worker's reactor. If there are other waiters, it is registered
//! there *as well*: a waiter is always served by its own worker, whether or not the other workers
//! are driven (a runtime may be left undriven between two turns, for ever). For this, the workers
//! of a pool count as one if a stealable task waits, and else those of a shard: see
//! [`waker_kind`](crate::scheduler::waker_kind). Wakers are stored in the source, so an event from
//! any reactor wakes all waiters. Registering reports a source that is ready already, so no event
//! is lost on the way.
//!
//! **How it is registered.** With edges, a TCP stream is registered once, permanently, for both
//! directions and urgent data, if the poller reports room to write only to a writer that has found
//! none ([`tcp_room_on_demand`](crate::poller::Capabilities::tcp_room_on_demand)). Other sources
//! are registered for reading (streams also for urgent data), and for writing only while a waiter
//! wants to write: a Unix or UDP socket reports each message that drained as an edge, and kqueue
//! each acknowledgement of a TCP stream, a wake-up that serves no waiter. So a write that has to
//! wait arms writability, and the first writable event without a waiter disarms it. (We do not
//! disarm at the very first event: a writer that fills a buffer once fills it again, and so pays
//! one system call for that, not two each time.) A borrowed descriptor, of which nothing is known,
//! is registered only for the directions that were waited for.
//!
//! Without edges, a source is registered for the directions that have waiters. With levels, an
//! event that wakes a waiter leaves its direction armed, since most likely it is waited for again
//! before the next poll of the kernel; an event without a waiter disarms its direction. With
//! one-shot only, each event has spent the interest, and waiting arms it again.
//!
//! A source backs off from a direction that is reported, or tried, in vain: see `back_off`.
//!
//! **Locks.** The order is: a reactor's table of sources, a source's state, the poller's own locks.
//! A waker is called and dropped under none of them, except for a task's own: see
//! `readiness::Waiters`.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;

use super::back_off::BackOff;
use super::readiness::{Added, Direction, Readiness, Snapshot, WaiterId, WakerKind};
use super::{Driver, Reactor, Token};
use crate::kernel::{Boxed, sockets};
use crate::poller::{Change, Interest, Mode, Poller, Ready, Request};
use crate::slab::Slab;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use crate::sync::{MutexGuard, NeedsClone, Spare, drop_all, wake_all};
use crate::sys::{self, AsDescriptor, AsRawDescriptor, BorrowedDescriptor, OwnedDescriptor};
use crate::telemetry::SocketType;

/// Kind of a source, as far as waiting for it differs.
///
/// On the sockets of `net`, all but [`Borrowed`](Self::Borrowed), only polder operates, so reported
/// readiness holds until an attempt would block. (Code that operates on one through `AsFd` may use
/// that up unnoticed.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SourceKind {
    /// A plain TCP stream: its edges are few, and a short read shows that it is drained.
    TcpStream,
    /// A Unix stream: a short read shows that too, unless something came along with the bytes.
    UnixStream,
    /// A listener, a datagram socket, or a stream over TCP (such as MPTCP or kTLS) of which a short
    /// read shows nothing: a read does not show what is left.
    Other,
    /// No socket of `net`: the owner may operate on the descriptor unseen, so before each wait the
    /// kernel is asked.
    ///
    /// `poll(2)` always reports a socket as ready if its error queue is not read. So after an
    /// attempt that would block, an error alone does not count, unless an event came since the
    /// attempt began: an error that the kernel learns of later is reported later.
    Borrowed,
}

/// What a socket of `net` is, from its creation or adoption on. It is in the source, and not in
/// each handle, since a task's future often has two copies of a handle.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "net"), allow(dead_code, reason = "there are none"))]
pub(crate) struct SocketTraits {
    pub(crate) socket_type: SocketType,
    /// Whether a short read of the stream, or of those that a listener accepts, shows that it is
    /// drained.
    ///
    /// * TCP: if there is no other layer above it. (kTLS is added before a socket is adopted.)
    /// * A Unix stream: if we have made the kernel refuse descriptors. This may change later: see
    ///   [`Source::has_bytes_only`].
    pub(crate) trusts_short_reads: bool,
}

impl SocketTraits {
    fn kind(self) -> SourceKind {
        match self.socket_type {
            SocketType::TcpStream if self.trusts_short_reads => SourceKind::TcpStream,
            SocketType::UnixStream => SourceKind::UnixStream,
            _ => SourceKind::Other,
        }
    }
}

type State = super::readiness::State<Registrations>;

pub(crate) struct Source {
    pub(super) readiness: Readiness<Registrations>,
    pub(super) held: Held,
    kind: SourceKind,
    pub(super) handles: AtomicUsize,
    next_id: AtomicU32,
    /// With levels: whether a short read has returned data since the last event.
    pub(super) has_read: AtomicBool,
    /// The number of attempts in a row that would block although the descriptor was ready: those
    /// of all who operate on it. A lost update delays a back-off by an attempt.
    pub(super) blocked_attempts: AtomicU8,
    shut_down: [AtomicBool; 2],
    has_bytes_only: AtomicBool,
    /// `None` for a borrowed descriptor.
    pub(super) traits: Option<SocketTraits>,
}

/// A descriptor, closed with its source or borrowed from its owner; or a socket of another kernel,
/// which has none. Both descriptors are at the same offset, so that borrowing one takes no branch.
pub(crate) enum Held {
    Owned(OwnedDescriptor),
    Borrowed(BorrowedDescriptor<'static>),
    #[cfg_attr(not(feature = "net"), allow(dead_code))]
    Custom(Boxed<dyn sockets::Socket>),
}

/// A waiter for a source, or one that was woken and has not come back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceWait {
    pub(crate) token: Token,
    /// The address of the source, which may be registered with several reactors; only compared.
    pub(crate) source: usize,
    /// The address in the waker; compared, and never dereferenced.
    pub(crate) waker: usize,
    pub(crate) direction: Direction,
    pub(crate) is_waiting: bool,
}

/// What follows an attempt that would block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Blocked {
    /// The readiness is used up, and has been cleared: the operation waits for an event.
    Exhausted,
    /// The descriptor is ready nevertheless: the attempt is repeated after other tasks.
    Again,
    /// So were the attempts before: the operation [backs off](Source::back_off) first.
    Often,
}

impl Source {
    pub(super) fn new(held: Held, traits: Option<SocketTraits>) -> Source {
        Source {
            readiness: Readiness::new(),
            held,
            kind: traits.map_or(SourceKind::Borrowed, SocketTraits::kind),
            handles: AtomicUsize::new(1),
            next_id: AtomicU32::new(1),
            has_read: AtomicBool::new(false),
            blocked_attempts: AtomicU8::new(0),
            shut_down: Default::default(),
            has_bytes_only: AtomicBool::new(false),
            traits,
        }
    }

    #[inline]
    pub(crate) fn snapshot(&self, direction: Direction) -> Snapshot {
        self.readiness.snapshot(direction)
    }

    #[inline]
    pub(crate) fn clear(&self, direction: Direction, seen: Snapshot) {
        self.readiness.clear(direction, seen);
    }

    #[inline]
    pub(crate) fn should_try(&self, seen: Snapshot) -> bool {
        seen.is_ready() || self.kind == SourceKind::Borrowed
    }

    /// Evaluates an attempt that would block and began after `seen` was taken. Clears the readiness
    /// if it is used up.
    #[inline]
    pub(crate) fn clear_if_exhausted(
        &self,
        direction: Direction,
        seen: Snapshot,
    ) -> io::Result<Blocked> {
        if self.kind == SourceKind::Borrowed {
            let query = |has_event| self.is_ready_now(direction, has_event);
            if self.readiness.refresh(direction, seen, query)? {
                return Ok(self.count_blocked_attempt());
            }
            self.blocked_attempts.store(0, Ordering::Relaxed);
        } else if direction == Direction::Read
            && seen.has_sticky_flags()
            && self.is_readable_after_all()
        {
            return Ok(self.count_blocked_attempt());
        } else {
            self.clear(direction, seen);
        }
        Ok(Blocked::Exhausted)
    }

    /// Returns an error if another owner has shut down a socket that the caller operates on, so
    /// that Linux reports it as readable for ever, and each receive or accept would block.
    #[cold]
    #[inline(never)]
    pub(crate) fn check_end(&self, direction: Direction) -> io::Result<()> {
        if self.kind == SourceKind::Borrowed && direction == Direction::Read {
            sys::check_end(&self.descriptor()?)?;
        }
        Ok(())
    }

    /// Whether it may be a TCP stream at its urgent mark, where Linux may return that a read would
    /// block although bytes lie behind the mark: see `sys::is_readable_after_all`.
    #[cold]
    fn is_readable_after_all(&self) -> bool {
        let is_tcp = |traits: SocketTraits| matches!(traits.socket_type, SocketType::TcpStream);
        let descriptor = self.descriptor_or_custom();
        self.traits.is_some_and(is_tcp)
            && descriptor.is_ok_and(|descriptor| sys::is_readable_after_all(&descriptor))
    }

    /// Asks the kernel whether the descriptor is ready, and not only because of an old error.
    fn is_ready_now(&self, direction: Direction, has_event: bool) -> io::Result<bool> {
        let descriptor = self.descriptor()?;
        let is_ready = sys::is_ready(&descriptor, direction == Direction::Write)?;
        if has_event || !is_ready {
            return Ok(is_ready);
        }
        Ok(!sys::is_only_an_error(&descriptor)?[direction as usize])
    }

    /// Returns the descriptor, or as `Err` the other kernel's socket.
    #[inline]
    pub(crate) fn descriptor_or_custom(
        &self,
    ) -> Result<BorrowedDescriptor<'_>, &Boxed<dyn sockets::Socket>> {
        match &self.held {
            Held::Owned(descriptor) => Ok(descriptor.as_descriptor()),
            Held::Borrowed(descriptor) => Ok(descriptor.as_descriptor()),
            Held::Custom(socket) => Err(socket),
        }
    }

    /// Returns the descriptor.
    ///
    /// # Errors
    ///
    /// If another kernel has the socket.
    #[inline]
    pub(crate) fn descriptor(&self) -> io::Result<BorrowedDescriptor<'_>> {
        self.descriptor_or_custom().map_err(|_| no_descriptor())
    }

    /// Returns the number of the descriptor, or the lower half of that of the other kernel's
    /// socket.
    pub(crate) fn number(&self) -> u64 {
        match self.descriptor_or_custom() {
            #[allow(clippy::unnecessary_cast)] // On Windows it is one already.
            Ok(descriptor) => descriptor.as_raw_descriptor() as u64,
            Err(socket) => u64::from(socket.id() as u32),
        }
    }

    /// Whether each event of this source tells of an error and of a hang-up: by
    /// [hints](crate::poller::Capabilities::hints) of all pollers that it is registered with.
    #[cfg(feature = "net")]
    pub(crate) fn has_hints(&self) -> bool {
        let state = self.readiness.lock();
        let mut registrations = state.registrations.iter();
        let has = |one: &Registration| one.reactor.poller().capabilities().hints;
        registrations.next().is_some_and(has) && registrations.all(has)
    }

    /// Reports that a stream's read in the state `seen` returned less than it asked for; or left
    /// nothing, as another kernel reports. Clears readability, which saves the attempt that would
    /// find the stream drained, unless [it may not be](Snapshot::has_sticky_flags).
    ///
    /// Without edges, arming reports what is left. (A read of a Unix stream also stops at a message
    /// that carried descriptors: such a read must not be reported here.)
    #[inline]
    pub(crate) fn clear_after_short_read(&self, seen: Snapshot) {
        if matches!(self.kind, SourceKind::TcpStream | SourceKind::UnixStream) {
            self.clear_after_drain(seen);
        }
    }

    /// Reports that a receive of several datagrams in the state `seen` has found the end of the
    /// queue. Clears readability, unless [more may be there](Snapshot::has_sticky_flags), which
    /// nothing would report again.
    #[inline]
    pub(crate) fn clear_after_drain(&self, seen: Snapshot) {
        if !seen.has_sticky_flags() {
            self.clear(Direction::Read, seen);
            self.has_read.store(true, Ordering::Relaxed);
        }
    }

    /// Whether no descriptors or credentials can come with the bytes. Then `recv` suffices, and a
    /// short read shows that the stream is drained, or that urgent data follows. Set where
    /// `net/socket/system.rs` makes or adopts the socket; for an internet socket always, whose
    /// [kind](SourceKind) decides what a short read shows.
    ///
    /// Relaxed suffices: the flag is cleared before the kernel is allowed to let anything else in,
    /// and a reader checks it again after the read, before it believes a short read. In between
    /// lies the kernel's lock of the socket, through which the cause of the short read has come.
    #[inline]
    pub(crate) fn has_bytes_only(&self) -> bool {
        self.has_bytes_only.load(Ordering::Relaxed)
    }

    pub(crate) fn set_has_bytes_only(&self, has_bytes_only: bool) {
        self.has_bytes_only.store(has_bytes_only, Ordering::Relaxed);
    }

    /// [`add_waiter`](Self::add_waiter) of nearly every wait. Returns `None` if its first
    /// registration is not where this thread may wait for it: `waker_kind`, which is the
    /// [scheduler's](crate::scheduler::waker_kind), decides that.
    #[inline]
    pub(crate) fn add_waiter_if_registered(
        &self,
        waker_kind: impl Fn(&Reactor, &Waker) -> Option<WakerKind>,
        direction: Direction,
        id: WaiterId,
        waker: &Waker,
    ) -> Option<io::Result<Added>> {
        let mut spare = self.readiness.spare(waker);
        self.add_waiter_to(direction, id, waker, &mut spare, |registrations| {
            let first = registrations.first.as_mut()?;
            let kind = waker_kind(&first.reactor, waker)?;
            Some((first, kind))
        })
    }

    /// Adds a waiter for the next event of `direction`, and registers the source with `reactor` if
    /// needed. Does not classify the waker (`Other`): the next wait does, if it comes.
    pub(crate) fn add_waiter(
        self: &Arc<Self>,
        reactor: &Arc<Reactor>,
        direction: Direction,
        id: WaiterId,
        waker: &Waker,
    ) -> io::Result<Added> {
        let mut spare = self.readiness.spare(waker);
        loop {
            let added = self.add_waiter_to(direction, id, waker, &mut spare, |registrations| {
                Some((registrations.get_mut(reactor)?, WakerKind::Other))
            });
            if let Some(added) = added {
                return added;
            }
            self.register_or_move(reactor, direction, id)?;
        }
    }

    /// Adds a waiter for an event of the registration that `find` returns, with the waker's kind.
    /// Returns `None`, with nothing stored, if `find` does: no registration serves this thread.
    #[inline]
    fn add_waiter_to(
        &self,
        direction: Direction,
        id: WaiterId,
        waker: &Waker,
        spare: &mut Spare,
        find: impl Fn(&mut Registrations) -> Option<(&mut Registration, WakerKind)>,
    ) -> Option<io::Result<Added>> {
        loop {
            let mut locked = self.readiness.lock();
            let state = &mut *locked;
            let (registration, kind) = find(&mut state.registrations)?;
            let waiters = &mut state.waiters;
            match (self.readiness).store_waker(waiters, direction, id, waker, spare) {
                Err(NeedsClone) => {
                    drop(locked);
                    spare.fill(waker);
                }
                Ok(Added::AlreadyReady) => return Some(Ok(Added::AlreadyReady)),
                Ok(Added::Waiting) => {
                    let armed = self.add_interest(registration, direction.interest());
                    waiters.set_kind(kind);
                    return Some(
                        armed.map_or_else(
                            |error| self.refuse(locked, error),
                            |()| Ok(Added::Waiting),
                        ),
                    );
                }
            }
        }
    }

    /// Registers with `reactor`: in place of the others if there is no other waiter for this
    /// source, and otherwise in addition.
    #[cold]
    fn register_or_move(
        self: &Arc<Self>,
        reactor: &Arc<Reactor>,
        direction: Direction,
        id: WaiterId,
    ) -> io::Result<()> {
        let mut state = self.readiness.lock();
        if state.registrations.get_mut(reactor).is_some() {
            return Ok(()); // Another thread has registered it meanwhile.
        }
        let ended = if state.waiters.contains_others(direction, id) {
            Registrations::default()
        } else {
            self.deregister(std::mem::take(&mut state.registrations))
        };
        drop(state);
        ended.free_tokens();
        self.register(reactor, direction)
    }

    fn register(self: &Arc<Self>, reactor: &Arc<Reactor>, direction: Direction) -> io::Result<()> {
        // The table's lock comes before the state's, so the token is taken first, provisionally. It
        // is given back below if another thread has registered meanwhile.
        let token = reactor.insert(self.clone())?;
        let mut state = self.readiness.lock();
        let mut interest = direction.interest();
        let mode = reactor.mode;
        let has = reactor.poller().capabilities();
        let has_no_hints = !has.hints || !has.priority;
        // Without edges, arming reports what a short read left, so a stream is safe without hints:
        // see `clear_after_short_read`.
        if has_no_hints && (mode == Mode::Edge || self.kind == SourceKind::Other) {
            (self.readiness).set_sticky_flags(&mut state, Ready::UNKNOWN);
        }
        if mode == Mode::Edge {
            interest |= match self.kind {
                SourceKind::TcpStream | SourceKind::UnixStream => {
                    Interest::READABLE | Interest::PRIORITY
                }
                SourceKind::Other => Interest::READABLE,
                SourceKind::Borrowed => Interest::NONE,
            };
            if reactor.kind_registered_once == Some(self.kind) {
                interest |= Interest::WRITABLE;
            }
        }
        let is_registered = state.registrations.get_mut(reactor).is_some();
        let request = Request {
            token,
            interest,
            mode,
        };
        let result = if is_registered {
            Ok(())
        } else {
            self.change(reactor.poller(), Change::Register(request))
        };
        if is_registered || result.is_err() {
            drop(state);
            drop(reactor.remove(token));
            return result;
        }
        state.registrations.add(Registration {
            reactor: reactor.clone(),
            token,
            interest,
            suspect_events: 0,
            back_off: None,
        });
        // A reactor that closes marks itself first and then visits the sources in its table.
        // Either it visits this source after this critical section, or its mark is seen here.
        if !reactor.is_closed() {
            return Ok(());
        }
        let ended = self.deregister(state.registrations.remove(reactor));
        drop(state);
        ended.free_tokens();
        Err(closed())
    }

    #[inline]
    fn change(&self, poller: &Poller, change: Change) -> io::Result<()> {
        match self.descriptor_or_custom() {
            Ok(descriptor) => poller.change_unchecked(descriptor, change),
            Err(socket) => poller.change_socket(socket.id(), change),
        }
    }

    /// Ends registrations that were taken out of the state. Called under the state's lock, like
    /// registering, so that the state and the pollers agree. Returns them: the caller frees their
    /// tokens ([`free_tokens`](Registrations::free_tokens)) after the lock.
    #[must_use]
    fn deregister(&self, registrations: Registrations) -> Registrations {
        for registration in registrations.iter() {
            // Fails only if foreign code has closed our descriptor: then it is not in the poller
            // either. (For a socket of another kernel: only if that has ended.)
            let _ = self.change(registration.reactor.poller(), Change::Deregister);
        }
        registrations
    }

    /// Arms `wanted` there as well, except directions that are backed off, which are armed later.
    #[inline]
    pub(super) fn add_interest(
        &self,
        registration: &mut Registration,
        wanted: Interest,
    ) -> io::Result<()> {
        if registration.interest.contains(wanted) {
            return Ok(());
        }
        let wanted = wanted - registration.backed_off();
        self.set_interest(registration, registration.interest | wanted)
    }

    /// [Asks](Self::ask_interest) the poller for `interest`, unless it has that already.
    pub(super) fn set_interest(
        &self,
        registration: &mut Registration,
        interest: Interest,
    ) -> io::Result<()> {
        if registration.interest == interest {
            return Ok(());
        }
        self.ask_interest(registration, interest)
    }

    fn ask_interest(&self, registration: &mut Registration, interest: Interest) -> io::Result<()> {
        let reactor = &registration.reactor;
        let request = |interest| Request {
            token: registration.token,
            interest,
            mode: reactor.mode,
        };
        let result = self.change(reactor.poller(), Change::Modify(request(interest)));
        registration.interest = match result {
            Ok(()) => interest,
            // The poller may have the earlier interest, or none (kqueue, async-io), so the next
            // wait asks again. With levels, until then nothing is reported again and again.
            Err(_) => {
                if reactor.mode == Mode::Level {
                    let _ = self.change(reactor.poller(), Change::Modify(request(Interest::NONE)));
                }
                Interest::NONE
            }
        };
        result
    }

    /// Returns the error of a direction that cannot be waited for. The other one may not be waited
    /// for any more, so all waiters try.
    #[cold]
    #[inline(never)]
    pub(super) fn refuse(
        &self,
        mut state: MutexGuard<'_, State>,
        error: io::Error,
    ) -> io::Result<Added> {
        let mut wakers = Vec::new();
        self.deliver_both(&mut state, &mut wakers);
        // The rest of a permanent interest is not asked for again.
        (self.readiness).set_sticky_flags(&mut state, Ready::UNKNOWN);
        unlock_and_wake(state, wakers);
        Err(error)
    }

    /// Delivers an event of `driver`'s reactor for the token that this source has there.
    #[inline(always)]
    pub(super) fn deliver(
        self: &Arc<Self>,
        driver: &Driver,
        token: Token,
        ready: Ready,
        wakers: &mut Vec<Waker>,
    ) {
        let reactor = &**driver.reactor();
        let mut state = self.readiness.lock();
        // A waker was classified for the workers of the first registration's reactor or pool
        // (`scheduler::waker_kind`), and only they may wake it under the lock.
        // (For another reactor of the pool it is taken out: slower, and right.)
        let may_wake_here =
            (state.registrations.first.as_ref()).is_some_and(|first| first.is_with(reactor));
        // With edges, only writability without a waiter changes the interest.
        let keeps_interest = reactor.kind_registered_once == Some(self.kind)
            || reactor.mode == Mode::Edge
                && (!ready.intersects(Ready::WRITABLE) || state.waiters.contains(Direction::Write));
        let before = if keeps_interest {
            Interest::NONE
        } else {
            awaited(&state)
        };
        (self.readiness).deliver(&mut state, ready, may_wake_here, wakers);
        if !keeps_interest {
            self.change_interest(driver, token, ready, before, &mut state, wakers);
        }
    }

    fn change_interest(
        self: &Arc<Self>,
        driver: &Driver,
        token: Token,
        ready: Ready,
        before: Interest,
        state: &mut State,
        wakers: &mut Vec<Waker>,
    ) {
        let reactor = &**driver.reactor();
        // Delivering removes the waiters of the reported directions, and no others.
        let after = before - interest_of(ready);
        let result = match state.registrations.get_mut(reactor) {
            Some(registration) if registration.token == token => {
                let wanted = match reactor.mode {
                    // Writability without a waiter: it is reported with each message that drains.
                    Mode::Edge => registration.interest - Interest::WRITABLE,
                    // A woken waiter most likely comes again; an event without a waiter would be
                    // reported again and again.
                    Mode::Level => {
                        let unawaited = interest_of(ready) - before;
                        let wanted = registration.interest - unawaited;
                        wanted - self.spurious(driver, registration, ready)
                    }
                    // The event has spent the interest. Directions that still have waiters are
                    // armed again.
                    _ => {
                        registration.interest = Interest::NONE;
                        after - registration.backed_off()
                    }
                };
                // With levels the poller may have given the source up (poll(2) on macOS, for a
                // terminal): then it refuses.
                if reactor.mode == Mode::Level && ready.intersects(Ready::ERROR) {
                    self.ask_interest(registration, wanted)
                } else {
                    self.set_interest(registration, wanted)
                }
            }
            // The source has left this reactor, and perhaps come back since.
            _ => Ok(()),
        };
        if result.is_err() {
            // It cannot be waited for any more: let the operation find out why.
            self.deliver_both(state, wakers);
        }
    }

    /// Acts like an event in both directions, for waiters that have to try.
    pub(super) fn deliver_both(&self, state: &mut State, wakers: &mut Vec<Waker>) {
        let both = Ready::READABLE | Ready::WRITABLE;
        self.readiness.deliver(state, both, false, wakers);
    }

    /// Acts like an event in both directions. `ended` is whether reading was shut down.
    pub(crate) fn wake(&self, ended: bool) {
        let mut wakers = Vec::new();
        let mut ready = Ready::READABLE | Ready::WRITABLE;
        if ended {
            ready |= Ready::CLOSED;
        }
        let mut state = self.readiness.lock();
        (self.readiness).deliver(&mut state, ready, false, &mut wakers);
        unlock_and_wake(state, wakers);
    }

    /// Detaches from a reactor that closes: waiters are woken, try, and register elsewhere.
    pub(super) fn orphan(&self, reactor: &Reactor, wakers: &mut Vec<Waker>) {
        let mut state = self.readiness.lock();
        let ended = self.deregister(state.registrations.remove(reactor));
        if !ended.is_empty() {
            self.deliver_both(&mut state, wakers);
            // Takes out a kept waker too: it would keep the runtime's memory, and its descriptors.
            wakers.extend(state.waiters.take_kept());
        }
    }

    /// Deregisters the source and drops its waiters' wakers: its last handle is dropped.
    pub(super) fn detach(&self) {
        let mut wakers = Vec::new();
        let ended = {
            let mut state = self.readiness.lock();
            state.waiters.take_all(&mut wakers);
            self.deregister(std::mem::take(&mut state.registrations))
        };
        ended.free_tokens();
        drop_all(wakers);
    }

    /// Calls `call` for those of `directions` that were not shut down yet, if any, and remembers
    /// them unless it fails. All handles share that, so the kernel is never asked twice.
    ///
    /// A second shutdown is not harmless. On FreeBSD, NetBSD and OpenBSD shutting down the writing
    /// of a TCP socket that the peer has acknowledged ends reading, and what the peer still sends
    /// is lost (`tcp_usrclosed` in netinet/tcp_usrreq.c). XNU returns `ENOTCONN`
    /// (`soshutdownlock` in bsd/kern/uipc_socket.c). Linux ignores it.
    ///
    /// No lock is held during the call, which may wait for a thread that copies from slow memory.
    /// Of two threads the first one makes it, and the second one may return before it has ended.
    pub(crate) fn shut_down(
        &self,
        directions: Interest,
        call: impl FnOnce(Interest) -> io::Result<()>,
    ) -> io::Result<()> {
        let left = Direction::interest_in(|direction| {
            let is_meant = directions.contains(direction.interest());
            is_meant && !self.shut_down[direction as usize].swap(true, Ordering::AcqRel)
        });
        if left.is_empty() {
            return Ok(());
        }
        if let Err(error) = call(left) {
            for direction in Direction::BOTH {
                if left.contains(direction.interest()) {
                    self.shut_down[direction as usize].store(false, Ordering::Release);
                }
            }
            return Err(error);
        }
        // Some kernels do not report it to waiters: completion ports under wine, for one.
        self.wake(left.is_readable());
        Ok(())
    }

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

    /// Whether a waiter waits with the waker of that address, which `direction` keeps. `None` if
    /// the waker is no longer kept.
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

    /// # Panics
    ///
    /// If it is no socket of `net`.
    #[cfg(feature = "net")]
    pub(crate) fn traits(&self) -> SocketTraits {
        self.traits.expect("a socket's source has its traits")
    }

    pub(super) fn next_id(&self) -> u32 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}

/// The registrations of a source with reactors, almost always none or one.
#[derive(Default)]
pub(super) struct Registrations {
    pub(super) first: Option<Registration>,
    #[expect(
        clippy::box_collection,
        reason = "one word instead of three in every source"
    )]
    more: Option<Box<Vec<Registration>>>,
}

pub(super) struct Registration {
    pub(super) reactor: Arc<Reactor>,
    pub(super) token: Token,
    /// The interest last given to the poller; with one-shot, the part that is still armed.
    pub(super) interest: Interest,
    /// With levels: the number of possibly spurious events in a row since the last check.
    pub(super) suspect_events: u8,
    pub(super) back_off: Option<Box<BackOff>>,
}

impl Registrations {
    fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    fn iter(&self) -> impl Iterator<Item = &Registration> {
        let more = self.more.iter().flat_map(|more| &**more);
        self.first.iter().chain(more)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Registration> {
        let more = self.more.iter_mut().flat_map(|more| &mut **more);
        self.first.iter_mut().chain(more)
    }

    #[inline]
    fn get_mut(&mut self, reactor: &Reactor) -> Option<&mut Registration> {
        match &mut self.first {
            Some(registration) if registration.is_with(reactor) => Some(registration),
            _ => (self.more.as_mut()?.iter_mut()).find(|entry| entry.is_with(reactor)),
        }
    }

    fn add(&mut self, registration: Registration) {
        match self.first {
            None => self.first = Some(registration),
            Some(_) => self.more.get_or_insert_default().push(registration),
        }
    }

    fn remove(&mut self, reactor: &Reactor) -> Registrations {
        let mut removed = self.first.take_if(|entry| entry.is_with(reactor));
        if let Some(more) = &mut self.more {
            match removed {
                Some(_) => self.first = more.pop(),
                None => {
                    let found = more.iter().position(|entry| entry.is_with(reactor));
                    removed = found.map(|index| more.swap_remove(index));
                }
            }
        }
        Registrations {
            first: removed,
            more: None,
        }
    }

    /// Must not be called under the state's lock, which comes after the tables' locks.
    fn free_tokens(self) {
        for registration in self.iter() {
            drop(registration.reactor.remove(registration.token));
        }
    }
}

impl Registration {
    #[inline]
    fn is_with(&self, reactor: &Reactor) -> bool {
        std::ptr::eq(&*self.reactor, reactor)
    }
}

/// Its table of sources.
impl Reactor {
    fn insert(&self, source: Arc<Source>) -> io::Result<Token> {
        let mut table = self.sources.lock();
        if self.is_closed() {
            return Err(closed());
        }
        let token = table.insert(source);
        (self.source_count).store(self.source_count() + 1, Ordering::Relaxed);
        Ok(token)
    }

    /// Removes a source, which must be dropped outside all locks.
    fn remove(&self, token: Token) -> Option<Arc<Source>> {
        let mut table = self.sources.lock();
        let source = table.remove(token)?;
        (self.source_count).store(self.source_count() - 1, Ordering::Relaxed);
        Some(source)
    }
}

/// The sources of a reactor, by token.
///
/// A token names a place in the table (lower half) and the generation of its occupant (upper half).
/// None is used twice (a place that runs out of generations is retired), so a late event finds no
/// source. A free place has the generation of its next occupant.
#[derive(Default)]
pub(super) struct SourceTable {
    sources: Slab<Arc<Source>, u32>,
}

/// A place that reaches this generation is retired; so no token equals one of the poller's own.
const LAST_GENERATION: u32 = u32::MAX;

#[inline]
fn token(generation: u32, index: usize) -> Token {
    Token(u64::from(generation) << 32 | index as u64)
}

impl SourceTable {
    /// Includes free ones.
    pub(super) fn places(&self) -> usize {
        self.sources.places()
    }

    pub(super) fn sources(
        &self,
        places: Range<usize>,
    ) -> impl Iterator<Item = (Token, &Arc<Source>)> {
        let sources = self.sources.iter_in(places);
        sources.map(|(index, generation, source)| (token(generation, index), source))
    }

    fn insert(&mut self, source: Arc<Source>) -> Token {
        let (index, generation) = self.sources.insert_returning_generation(source);
        token(generation, index)
    }

    #[inline]
    pub(super) fn get(&self, token: Token) -> Option<&Arc<Source>> {
        let (generation, source) = self.sources.get_with_generation(token.0 as u32 as usize)?;
        (generation == (token.0 >> 32) as u32).then_some(source)
    }

    fn remove(&mut self, token: Token) -> Option<Arc<Source>> {
        self.get(token)?;
        let next = (token.0 >> 32) as u32 + 1;
        let next = (next != LAST_GENERATION).then_some(next);
        self.sources
            .remove_setting_generation(token.0 as u32 as usize, next)
    }
}

fn closed() -> io::Error {
    io::Error::new(
        io::ErrorKind::NotConnected,
        "cannot register with the runtime: it has shut down",
    )
}

#[cold]
fn no_descriptor() -> io::Error {
    sys::unsupported("the socket is another kernel's, and has no descriptor")
}

/// Calls the wakers that were taken out of the state of a source, outside its lock. If there are
/// several, those that wait for their turn are in the queue of the source's reactor.
pub(super) fn unlock_and_wake(state: MutexGuard<'_, State>, wakers: Vec<Waker>) {
    let registration = state.registrations.first.as_ref();
    let reactor = registration.map(|registration| registration.reactor.clone());
    drop(state);
    match reactor {
        Some(reactor) => reactor.wake_found_together(wakers),
        None => wake_all(wakers),
    }
}

#[inline]
pub(super) fn awaited(state: &State) -> Interest {
    Direction::interest_in(|direction| state.waiters.contains(direction))
}

#[inline]
pub(super) fn interest_of(ready: Ready) -> Interest {
    Direction::interest_in(|direction| ready.intersects(direction.ready()))
}

#[cfg(all(test, not(loom), target_os = "linux"))]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::poller::Backend;
    use crate::reactor::Io;
    use crate::reactor::wake_count::WakeCount;

    /// After a refused wait the waiter of the other direction tries and asks again.
    ///
    /// A kqueue that refuses one filter has the other one no more. Here epoll loses both.
    #[test]
    fn refused_wait_leaves_other_direction_to_retry() {
        for backend in Backend::available() {
            let reactor = Reactor::new(Poller::new(backend).unwrap(), None);
            let (near, _far) = UnixStream::pair().unwrap();
            let io = Io::new(Held::Owned(near.into()), None);
            let source = io.source();
            let count = Arc::new(WakeCount::default());
            let waker = Waker::from(count.clone());
            let wait = |direction| {
                source.clear(direction, source.snapshot(direction));
                source.add_waiter(&reactor, direction, io.id(), &waker)
            };
            assert_eq!(wait(Direction::Read).unwrap(), Added::Waiting);
            source.change(reactor.poller(), Change::Deregister).unwrap();
            wait(Direction::Write).unwrap_err();
            assert!(count.get() > 0, "the reader sleeps");
            assert!(wait(Direction::Read).is_err(), "{backend}");
            // Otherwise the source would hold itself.
            reactor.close(&mut Vec::new());
        }
    }

    /// A source that the poller has given up is not waited for.
    ///
    /// As macOS's poll(2) reports a terminal that it cannot wait for.
    #[test]
    fn abandoned_source_not_waited_for() {
        for backend in Backend::available() {
            let reactor = Reactor::new(Poller::new(backend).unwrap(), None);
            if reactor.mode != Mode::Level {
                continue;
            }
            let driver = Driver::new(reactor.clone(), Arc::default());
            let (near, _far) = UnixStream::pair().unwrap();
            let io = Io::new(Held::Owned(near.into()), None);
            let source = io.source();
            let wait = || {
                let direction = Direction::Read;
                source.clear(direction, source.snapshot(direction));
                source.add_waiter(&reactor, direction, io.id(), Waker::noop())
            };
            assert_eq!(wait().unwrap(), Added::Waiting);
            source.change(reactor.poller(), Change::Deregister).unwrap();
            let state = source.readiness.lock();
            let token = state.registrations.first.as_ref().unwrap().token;
            drop(state);
            let end = Ready::READABLE | Ready::WRITABLE | Ready::ERROR;
            source.deliver(&driver, token, end, &mut Vec::new());
            assert!(wait().is_err(), "{backend}");
            reactor.close(&mut Vec::new());
        }
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_source_takes_no_more_than_136_bytes() {
        use crate::kernel::{Boxed, sockets::Socket};

        // If another kernel can be installed, it may have that one's socket.
        let most = 136 + size_of::<Boxed<dyn Socket>>();
        assert!(size_of::<Source>() <= most, "{}", size_of::<Source>());
    }
}

#[cfg(all(test, unix, not(loom)))]
mod table_tests {
    use super::*;
    use crate::reactor::Io;
    use std::os::unix::net::UnixStream;

    fn source() -> (Io, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        (Io::new(Held::Owned(near.into()), None), far)
    }

    /// A token is invalid after its source has gone, also when its slot is in use again.
    ///
    /// An event taken from the kernel before its source was removed must not be delivered to the
    /// next occupant, whose user would believe it.
    #[test]
    fn stale_token_names_nobody_after_reuse() {
        let mut table = SourceTable::default();
        let ((first, _first), (second, _second)) = (source(), source());
        let old = table.insert(first.source().clone());
        assert!(table.remove(old).is_some());
        let new = table.insert(second.source().clone());
        assert_eq!(
            (old.0 as u32, table.places()),
            (new.0 as u32, 1),
            "one place"
        );
        assert_ne!(old, new, "a token is used twice");
        assert!(
            table.get(old).is_none(),
            "a late event finds the next owner"
        );
        assert!(
            table.remove(old).is_none(),
            "a late removal removes the next owner"
        );
        assert!(Arc::ptr_eq(table.get(new).unwrap(), second.source()));
    }

    /// The poller's own tokens have the last generation.
    #[test]
    fn exhausted_generation_not_reused() {
        let mut table = SourceTable::default();
        let (io, _far) = source();
        table.insert(io.source().clone());
        (table.sources).remove_setting_generation(0, Some(LAST_GENERATION - 1));
        let last = table.insert(io.source().clone());
        assert_eq!(last, token(LAST_GENERATION - 1, 0));
        assert!(table.remove(last).is_some());
        let next = table.insert(io.source().clone());
        assert_eq!(next, token(0, 1), "the place is used again");
    }
}

/// Checks real sources and reactors, on the kernel's own poller. The wait is left out, and so are
/// events; and so is the lookup of a reactor (`with_reactor`), which looks for another one after a
/// refusal.
#[cfg(all(test, loom, unix))]
mod loom_tests {
    use super::*;
    use crate::poller::Backend;
    use crate::reactor::Io;
    use crate::reactor::wake_count::WakeCount;
    use std::os::unix::net::UnixStream;

    fn reactor() -> Arc<Reactor> {
        Reactor::new(Poller::new(Backend::default()).unwrap(), None)
    }

    /// A handle that is known not to be readable.
    fn io() -> (Io, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        let io = Io::new(Held::Owned(near.into()), None);
        let seen = io.source().snapshot(Direction::Read);
        io.source().clear(Direction::Read, seen);
        (io, far)
    }

    fn check(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    fn is_with(io: &Io, reactor: &Reactor) -> bool {
        let mut state = io.source().readiness.lock();
        state.registrations.get_mut(reactor).is_some()
    }

    /// A registration while the reactor closes is refused, or its waiter is woken.
    #[test]
    fn registration_during_close_refused_or_woken() {
        check(|| {
            let (reactor, (io, _far)) = (reactor(), io());
            let count = Arc::new(WakeCount::default());
            let closer = {
                let reactor = reactor.clone();
                loom::thread::spawn(move || {
                    let mut wakers = Vec::new();
                    reactor.close(&mut wakers);
                    wake_all(wakers);
                })
            };
            let waker = Waker::from(count.clone());
            let waits = (io.source()).add_waiter(&reactor, Direction::Read, io.id(), &waker);
            closer.join().unwrap();
            if matches!(waits, Ok(Added::Waiting)) {
                assert_eq!(count.get(), 1, "it waits for ever");
            }
            assert!(
                !is_with(&io, &reactor),
                "it is registered with what has closed"
            );
        });
    }

    /// Waits from two reactors at the same time register the source with both.
    #[test]
    fn two_reactors_waits_registered_with_both() {
        check(|| {
            let (io, _far) = io();
            let io = Arc::new(io);
            let reactors = [reactor(), reactor()];
            let wait = |reactor: Arc<Reactor>, io: Arc<Io>| {
                move || {
                    let (id, waker) = (io.new_future_id(), Waker::noop());
                    let waits = (io.source()).add_waiter(&reactor, Direction::Read, id, waker);
                    assert_eq!(waits.unwrap(), Added::Waiting, "nothing has happened");
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
                // Otherwise the source would hold itself.
                reactor.close(&mut Vec::new());
            }
        });
    }

    /// Waits of two threads with the same reactor register the source once.
    #[test]
    fn two_waits_with_one_reactor_registered_once() {
        check(|| {
            let (io, _far) = io();
            let (io, reactor) = (Arc::new(io), reactor());
            let wait = |reactor: Arc<Reactor>, io: Arc<Io>| {
                move || {
                    let (id, waker) = (io.new_future_id(), Waker::noop());
                    let waits = (io.source()).add_waiter(&reactor, Direction::Read, id, waker);
                    assert_eq!(waits.unwrap(), Added::Waiting, "nothing has happened");
                }
            };
            let other = loom::thread::spawn(wait(reactor.clone(), io.clone()));
            wait(reactor.clone(), io.clone())();
            other.join().unwrap();
            let state = io.source().readiness.lock();
            let token = state.registrations.first.as_ref().map(|first| first.token);
            drop(state);
            assert_eq!(
                token.map(|token| token.0 >> 32),
                Some(0),
                "it was registered again"
            );
            // Otherwise the source would hold itself.
            reactor.close(&mut Vec::new());
        });
    }

    /// A source that moves leaves no registration behind.
    #[test]
    fn moved_source_leaves_no_registration() {
        check(|| {
            let (io, _far) = io();
            let io = Arc::new(io);
            let (first, second) = (reactor(), reactor());
            let id = io.new_future_id();
            let wait = (io.source()).add_waiter(&first, Direction::Read, id, Waker::noop());
            assert_eq!(wait.unwrap(), Added::Waiting);
            io.remove_waiter(id);
            // Meanwhile the reactor that it leaves closes.
            let closer = {
                let first = first.clone();
                loom::thread::spawn(move || first.close(&mut Vec::new()))
            };
            let id = io.new_future_id();
            let wait = (io.source()).add_waiter(&second, Direction::Read, id, Waker::noop());
            closer.join().unwrap();
            let waits = wait.unwrap();
            assert!(
                !is_with(&io, &first),
                "it is registered with what it has left"
            );
            // If it is ready, the operation should be tried again, and has not come back here.
            assert!(
                waits == Added::AlreadyReady || is_with(&io, &second),
                "it waits, and is registered nowhere"
            );
            second.close(&mut Vec::new());
        });
    }
}
