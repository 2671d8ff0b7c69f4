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
//! socket reports each message that drained as an edge, a wake-up for nobody. So a write that has to
//! wait arms it, and the first event that nobody waited to write for disarms it. (Not the first event
//! at all: who fills a buffer once fills it again, and pays one system call for that, not two a time.)
//! What is lent, of which nothing is known, is registered for what was waited for only.
//!
//! Without edges, for the directions that somebody waits for. Where there are levels, an event that
//! wakes somebody leaves its direction armed, since most likely it is waited for again before the
//! kernel is asked again; an event for which nobody waited disarms it. Where there is only one-shot,
//! each event has spent the interest, and waiting arms again.
//!
//! **Told in vain.** An error queue that nobody reads (`IP_RECVERR`, `SO_TIMESTAMPING`) makes poll(2) and
//! select(2) call a socket ready for ever, though every read would block: whoever waits would be told, try
//! and wait again without an end. With levels, [`CHECK`] events in a row that tell of an error, or may, make us
//! ask poll(2) whether there is anything else. If not, the direction [rests](Rest): it is armed again after
//! a while, which grows as long as nothing else is found. Whoever waits meanwhile is told then. (With edges such an
//! error is told once.)
//!
//! **Locks.** A reactor's table of sources, then a source's slots, then whatever the poller has; a
//! waker is called and dropped under none of them.

use std::io;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

use super::readiness::{Direction, Left, Readiness, Slots, Snapshot, WaiterId};
use super::timer::TimerHandle;
use super::{Driver, Reactor, Token};
use crate::poller::{Interest, Mode, Ready};
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
    /// A read has brought something since the last event with levels.
    is_fruitful: AtomicBool,
}

/// A descriptor: to be closed with its source, or its owner's. Both lie in the same place, so that
/// borrowing it takes no branch.
#[derive(Debug)]
enum Held {
    Owned(OwnedDescriptor),
    Lent(LentDescriptor),
}

/// Where a source is registered: almost always nowhere or in one place.
#[derive(Debug, Default)]
pub(crate) struct Registrations {
    first: Option<Registration>,
    #[expect(
        clippy::box_collection,
        reason = "one word instead of three in every source"
    )]
    more: Option<Box<Vec<Registration>>>,
}

/// With which reactor, by which name there, and for what.
#[derive(Debug)]
struct Registration {
    reactor: Arc<Reactor>,
    token: Token,
    /// Without edges, what is armed.
    interest: Interest,
    /// With levels: how many events in a row may have been in vain, since that was last asked.
    told: u8,
    rest: Option<Box<Rest>>,
}

/// So many events that may be in vain are believed before poll(2) is asked what they are about: few enough for
/// what is told in vain to cost little, and enough for the question to cost nothing beside them.
const CHECK: u8 = 32;

/// How long a direction rests first; then twice as long each time, up to the longest. That is also by how much
/// a datagram may come late to a socket whose error queue nobody reads.
const FIRST_REST: Duration = Duration::from_millis(1);
const LONGEST_REST: Duration = Duration::from_millis(10);

/// What was told in vain is not armed until the alarm goes off.
#[derive(Debug)]
struct Rest {
    directions: Interest,
    length: Duration,
    /// Held for its place; it wakes an [`End`].
    alarm: TimerHandle,
}

/// Removes the timer of a rest that is over.
fn remove_timer(rest: Option<Box<Rest>>, driver: &Driver) {
    if let Some(mut rest) = rest {
        rest.alarm.remove(Some(driver));
    }
}

/// The end of a rest.
struct End {
    source: Weak<Source>,
    token: Token,
}

impl Wake for End {
    fn wake(self: Arc<End>) {
        if let Some(source) = self.source.upgrade() {
            source.end_rest(self.token);
        }
    }
}

impl Registrations {
    #[inline]
    fn all(&self) -> impl Iterator<Item = &Registration> {
        let more = self.more.iter().flat_map(|more| &**more);
        self.first.iter().chain(more)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Registration> {
        let more = self.more.iter_mut().flat_map(|more| &mut **more);
        self.first.iter_mut().chain(more)
    }

    #[inline]
    fn with(&mut self, reactor: &Reactor) -> Option<&mut Registration> {
        match &mut self.first {
            Some(home) if home.is_with(reactor) => Some(home),
            _ => (self.more.as_mut()?.iter_mut()).find(|home| home.is_with(reactor)),
        }
    }

    fn add(&mut self, registration: Registration) {
        match self.first {
            None => self.first = Some(registration),
            Some(_) => self.more.get_or_insert_default().push(registration),
        }
    }

    fn remove(&mut self, reactor: &Reactor) -> Registrations {
        let mut removed = self.first.take_if(|home| home.is_with(reactor));
        if let Some(more) = &mut self.more {
            match removed {
                Some(_) => self.first = more.pop(),
                None => {
                    let found = more.iter().position(|home| home.is_with(reactor));
                    removed = found.map(|index| more.swap_remove(index));
                }
            }
        }
        Registrations {
            first: removed,
            more: None,
        }
    }

    fn remove_all(&mut self) -> Registrations {
        std::mem::take(self)
    }

    /// Takes the source out of the reactors' tables, whose locks come before the slots'.
    fn give_up_places(self) {
        for home in self.all() {
            drop(home.reactor.remove(home.token));
        }
    }
}

impl Registration {
    /// What must not be armed yet.
    fn resting(&self) -> Interest {
        match &self.rest {
            Some(rest) => rest.directions,
            None => Interest::NONE,
        }
    }

    #[inline]
    fn is_with(&self, reactor: &Reactor) -> bool {
        std::ptr::eq(&*self.reactor, reactor)
    }
}

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

    /// See [`Readiness::look`].
    #[inline]
    pub(crate) fn look<E>(
        &self,
        direction: Direction,
        look: impl FnOnce() -> Result<bool, E>,
    ) -> Result<bool, E> {
        self.readiness.look(direction, look)
    }

    #[inline]
    pub(crate) fn descriptor(&self) -> BorrowedDescriptor<'_> {
        match &self.descriptor {
            Held::Owned(descriptor) => descriptor.as_descriptor(),
            Held::Lent(descriptor) => descriptor.as_descriptor(),
        }
    }

    /// A stream's read in the state `seen` got less than it asked for. Where that shows that there
    /// is no more, clears readability, and so spares the attempt that would find out.
    ///
    /// It shows that for streams while neither an end nor urgent data was reported: with edges the
    /// end of file makes no further one once it was reported together with the data, and a read stops
    /// at the urgent mark. Where interest is armed again, arming looks again anyway. (A read of a Unix
    /// stream also stops at a message that carried descriptors: such a read is not to be told here.)
    #[inline]
    pub(crate) fn drained_by_short_read(&self, seen: Snapshot) {
        let is_stream = matches!(self.kind, SourceKind::TcpStream | SourceKind::UnixStream);
        if is_stream && !seen.has_sticky_flags() {
            self.clear(Direction::Read, seen);
            self.is_fruitful.store(true, Ordering::Relaxed);
        }
    }

    /// Registers `waker` for the next event of `direction`, and the source with `reactor` where that is
    /// needed. Returns `false` if the direction is ready by now: then the operation is to be tried again.
    #[inline]
    pub(crate) fn register_waker(
        self: &Arc<Self>,
        reactor: &Arc<Reactor>,
        direction: Direction,
        id: WaiterId,
        waker: &Waker,
    ) -> io::Result<bool> {
        let mut spare = self.readiness.spare(waker);
        loop {
            let mut slots = self.readiness.lock();
            if slots.homes.with(reactor).is_none() {
                self.move_to(reactor, slots, direction, id)?;
                continue;
            }
            let left = (self.readiness).wait(&mut slots, direction, id, waker, &mut spare);
            match (left, slots.homes.with(reactor)) {
                (Left::NeedsClone, _) => {
                    drop(slots);
                    spare.fill(waker);
                }
                (Left::Waits, Some(home)) => {
                    self.arm(home, interest(direction))?;
                    return Ok(true);
                }
                _ => return Ok(false),
            }
        }
    }

    /// Registers with `reactor`, and no longer with others unless somebody waits there.
    #[cold]
    fn move_to(
        self: &Arc<Self>,
        reactor: &Arc<Reactor>,
        mut slots: MutexGuard<'_, Slots<Registrations>>,
        direction: Direction,
        id: WaiterId,
    ) -> io::Result<()> {
        let left = match slots.is_waited_by_others(direction, id) {
            true => Registrations::default(),
            false => self.deregister(slots.homes.remove_all()),
        };
        drop(slots);
        left.give_up_places();
        self.attach(reactor, direction)
    }

    /// Registers with `reactor`, unless somebody has done that meanwhile.
    fn attach(self: &Arc<Self>, reactor: &Arc<Reactor>, direction: Direction) -> io::Result<()> {
        // The table's lock comes before the slots', so the place is taken first, on approval.
        let token = reactor.insert(self.clone())?;
        let mut slots = self.readiness.lock();
        let mut interest = interest(direction);
        let mode = reactor.mode();
        let untold = !reactor.poller().capabilities().hints;
        // Where interest is armed again, a stream need not know: see `drained_by_short_read`.
        if untold && (mode == Mode::Edge || self.kind == SourceKind::Other) {
            self.readiness.remember(&mut slots, Ready::UNKNOWN);
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
        let result = match slots.homes.with(reactor) {
            Some(_) => Ok(false),
            None => reactor
                .poller()
                .register_socket(self.descriptor(), token, interest, mode)
                .map(|()| true),
        };
        if let Ok(true) = result {
            slots.homes.add(Registration {
                reactor: reactor.clone(),
                token,
                interest,
                told: 0,
                rest: None,
            });
            // A reactor that closes marks itself first and then visits what is in its table: it
            // comes to this source after this critical section, or is seen here.
            if !reactor.is_closed() {
                return Ok(());
            }
            let left = self.deregister(slots.homes.remove(reactor));
            drop(slots);
            left.give_up_places();
            return Err(super::closed());
        }
        drop(slots);
        drop(reactor.remove(token));
        result.map(drop)
    }

    /// Ends registrations that were taken out of the slots, under their lock still, like registering:
    /// what the slots say and what the pollers know is the same.
    fn deregister(&self, homes: Registrations) -> Registrations {
        for home in homes.all() {
            // It can only fail if somebody has closed our descriptor: then it is not there either.
            let _ = (home.reactor.poller()).deregister(self.descriptor());
        }
        homes
    }

    /// Sees to it that an event for `wanted` is reported there, and for what was asked before.
    #[inline]
    fn arm(&self, home: &mut Registration, wanted: Interest) -> io::Result<()> {
        match home.interest.contains(wanted) {
            true => Ok(()),
            false => self.arm_rested(home, wanted),
        }
    }

    /// What rests is armed later.
    fn arm_rested(&self, home: &mut Registration, wanted: Interest) -> io::Result<()> {
        let wanted = wanted.without(home.resting());
        match home.interest.contains(wanted) {
            true => Ok(()),
            false => self.ask(home, home.interest | wanted),
        }
    }

    fn ask(&self, home: &mut Registration, interest: Interest) -> io::Result<()> {
        let (reactor, socket) = (&home.reactor, self.descriptor());
        (reactor.poller()).modify_socket(socket, home.token, interest, reactor.mode())?;
        home.interest = interest;
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
        let mut slots = self.readiness.lock();
        if reactor.mode() == Mode::Edge
            && (self.kind == SourceKind::TcpStream
                || !ready.intersects(Ready::WRITABLE)
                || slots.is_waited(Direction::Write))
        {
            self.readiness.deliver(&mut slots, ready, wakers);
            return;
        }
        let before = waited(&slots);
        self.readiness.deliver(&mut slots, ready, wakers);
        // Delivering takes the waiters of what was told, and nobody else.
        let after = before.without(told(ready));
        let asked = match slots.homes.with(reactor) {
            Some(home) if home.token == token => {
                let wanted = match reactor.mode() {
                    // Room that nobody waited for: it is told with each message that drains.
                    Mode::Edge => home.interest.without(Interest::WRITABLE),
                    // Whoever was woken most likely comes again; what nobody waited for is told
                    // again and again.
                    Mode::Level => {
                        let wanted = home.interest.without(told(ready).without(before));
                        wanted.without(self.vain(driver, home, ready))
                    }
                    // The event has spent the interest. Who still waits is armed again.
                    _ => {
                        home.interest = Interest::NONE;
                        after
                    }
                };
                match home.interest == wanted {
                    true => Ok(()),
                    false => self.ask(home, wanted),
                }
            }
            // It has left, and perhaps come back since.
            _ => Ok(()),
        };
        if asked.is_err() {
            // It cannot be waited for any more: let the operation find out why.
            self.readiness
                .deliver(&mut slots, Ready::READABLE | Ready::WRITABLE, wakers);
        }
    }

    /// What was told in vain, and is to rest.
    #[inline]
    fn vain(self: &Arc<Self>, driver: &Driver, home: &mut Registration, ready: Ready) -> Interest {
        // Where errors are told as such, there is one. Where they are not, there may be, unless reading
        // brings something.
        let may_be = match home.reactor.poller().capabilities().hints {
            true => ready.intersects(Ready::ERROR),
            false => !self.has_been_fruitful(),
        };
        if !may_be {
            home.told = 0;
            return Interest::NONE;
        }
        home.told += 1;
        match home.told < CHECK {
            true => Interest::NONE,
            false => self.rest(driver, home, told(ready)),
        }
    }

    fn has_been_fruitful(&self) -> bool {
        let fruitful = self.is_fruitful.load(Ordering::Relaxed);
        if fruitful {
            self.is_fruitful.store(false, Ordering::Relaxed);
        }
        fruitful
    }

    #[cold]
    fn rest(
        self: &Arc<Self>,
        driver: &Driver,
        home: &mut Registration,
        told: Interest,
    ) -> Interest {
        // What cannot be asked is believed.
        let (read, write) = sys::is_only_an_error(&self.descriptor()).unwrap_or_default();
        let mut vain = Interest::NONE;
        if read {
            vain |= interest(Direction::Read);
        }
        if write {
            vain |= interest(Direction::Write);
        }
        let vain = told.without(told.without(vain));
        let resting = home.resting();
        if vain.is_empty() {
            home.told = 0;
            if resting.is_empty() {
                // The next one begins with the shortest.
                remove_timer(home.rest.take(), driver);
            }
            return vain;
        }
        // The next event is asked about at once.
        home.told = CHECK - 1;
        let length = match &home.rest {
            Some(rest) => (rest.length * 2).min(LONGEST_REST),
            None => FIRST_REST,
        };
        let end = Waker::from(Arc::new(End {
            source: Arc::downgrade(self),
            token: home.token,
        }));
        let when = super::now() + length;
        let Some(alarm) = TimerHandle::set(&home.reactor, Some(driver), when, &end) else {
            return Interest::NONE; // The reactor has closed, and sends the source elsewhere.
        };
        let before = home.rest.replace(Box::new(Rest {
            directions: vain | resting,
            length,
            alarm,
        }));
        remove_timer(before, driver);
        vain
    }

    /// What has rested is armed again, if somebody waits for it.
    fn end_rest(&self, token: Token) {
        let mut wakers = Vec::new();
        let mut slots = self.readiness.lock();
        let waited = waited(&slots);
        let mut armed = Ok(());
        // (Another reactor may have the same token for it: then its rest is shorter.)
        for home in slots.homes.all_mut().filter(|home| home.token == token) {
            if let Some(rest) = &mut home.rest {
                let rested = std::mem::take(&mut rest.directions);
                let wanted = waited.without(waited.without(rested));
                armed = armed.and(self.arm(home, wanted));
            }
        }
        if armed.is_err() {
            self.readiness
                .deliver(&mut slots, Ready::READABLE | Ready::WRITABLE, &mut wakers);
        }
        drop(slots);
        wake_all(wakers);
    }

    /// Everyone who waits tries again; `ended`: for it is known that reading has ended.
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
        let mut slots = self.readiness.lock();
        let left = self.deregister(slots.homes.remove(reactor));
        if left.first.is_some() {
            self.readiness
                .deliver(&mut slots, Ready::READABLE | Ready::WRITABLE, wakers);
        }
    }

    fn next_id(&self) -> u32 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}

/// The directions that somebody waits for.
#[inline]
fn waited(slots: &Slots<Registrations>) -> Interest {
    let mut waited = Interest::NONE;
    for direction in [Direction::Read, Direction::Write] {
        if slots.is_waited(direction) {
            waited |= interest(direction);
        }
    }
    waited
}

/// The directions that an event is about.
#[inline]
fn told(ready: Ready) -> Interest {
    let mut told = Interest::NONE;
    if ready.intersects(Ready::READABLE) {
        told |= Interest::READABLE;
    }
    if ready.intersects(Ready::WRITABLE) {
        told |= Interest::WRITABLE;
    }
    told
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
                is_fruitful: AtomicBool::new(false),
            }),
            id: WaiterId::handle(0),
        }
    }

    #[inline]
    pub(crate) fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// What this handle is called among those who wait.
    #[inline]
    pub(crate) fn id(&self) -> WaiterId {
        self.id
    }

    /// A name for a future, which waits for one operation and [`forget`](Self::forget)s itself.
    pub(crate) fn new_id(&self) -> WaiterId {
        WaiterId::future(self.source.next_id())
    }

    /// A name for whoever comes again and again.
    pub(crate) fn new_handle_id(&self) -> WaiterId {
        WaiterId::handle(self.source.next_id())
    }

    /// A waiter that goes takes its wakers along.
    pub(crate) fn forget(&self, id: WaiterId) {
        drop_all(self.source.readiness.forget(id).into_iter().flatten());
    }

    /// The descriptor itself, deregistered; a duplicate of it where other handles share it.
    pub(crate) fn into_descriptor(self) -> io::Result<OwnedDescriptor> {
        let source = self.source.clone();
        drop(self);
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
            return self.forget(self.id);
        }
        // The last handle: nobody can wait any more, and the reactor lets go of the source, so
        // that the descriptor closes here and now.
        let mut wakers = Vec::new();
        let homes = {
            let mut slots = source.readiness.lock();
            slots.take(Direction::Read, &mut wakers);
            slots.take(Direction::Write, &mut wakers);
            source.deregister(slots.homes.remove_all())
        };
        homes.give_up_places();
        drop_all(wakers);
    }
}

/// Sources and reactors as they are, on the kernel's own poller. Left out: the wait, and so events; and who
/// finds a reactor (`context`), which after a refusal asks for another one.
#[cfg(all(test, loom, unix))]
mod loom_tests {
    use super::*;
    use crate::poller::{Backend, Poller};
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
        let mut slots = io.source().readiness.lock();
        slots.homes.with(reactor).is_some()
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
            let waits = (io.source()).wait(&reactor, Direction::Read, io.id(), &waker);
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
                    let (id, waker) = (io.new_id(), Waker::noop());
                    let waits = (io.source()).wait(&reactor, Direction::Read, id, waker);
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
            let id = io.new_id();
            let wait = (io.source()).wait(&first, Direction::Read, id, Waker::noop());
            assert!(wait.unwrap());
            io.forget(id);
            // Meanwhile the reactor that it leaves closes.
            let closer = {
                let first = first.clone();
                loom::thread::spawn(move || first.close(&mut Vec::new()))
            };
            let id = io.new_id();
            let wait = (io.source()).wait(&second, Direction::Read, id, Waker::noop());
            closer.join().unwrap();
            let waits = wait.unwrap();
            assert!(
                !is_with(&io, &first),
                "it is registered with what it has left"
            );
            // `false`: it was told to try again, and has not come back here.
            assert!(
                !waits || is_with(&io, &second),
                "it waits, and is registered nowhere"
            );
            second.close(&mut Vec::new());
        });
    }
}
