//! The adapter for async-io's reactor: one reactor, instead of two, in a process that also uses
//! async-process, zbus or async-net. Behind the feature `async-io`.
//!
//! Each descriptor is an [`async_io::Async`], whose waker is a [`Signal`]. The thread that drives
//! async-io's reactor (its helper thread, or one in `async_io::block_on`) calls the signal, which
//! adds itself to the poller's **inbox** and ends the wait of the **parker**, in which the poller's
//! thread sleeps. That thread looks up the signals' sources in the **table**.
//!
//! **Why async-io's reactor is never driven here.** That would call all wakers of the process, in
//! the middle of a wait: they may spawn, set timers, drive this very runtime, or block. The price
//! is a thread switch an event.
//!
//! **Why no signal is lost.** It is added under the inbox's lock. Then the parker is notified,
//! which ends its current or else its next wait. The waiter checks the inbox after each wait.
//!
//! * **Arming.** async-io asks the kernel for one event at a time. So a report spends the interest,
//!   and for levels, reported sources are rearmed before the next wait. Edges would spin.
//! * **Why no event is stale:** a signal counts only if the table still has it and its direction is
//!   still requested; `modify` retracts unreported signals, and rearms.
//! * **A zero timeout** must report all ready sources, so such a wait first asks the kernel by
//!   `poll(2)`.
//! * **Order.** A signal is in the inbox at most once, and leaves it at the front, so a source that
//!   is always ready starves no other.
//! * **Hang-up** is reported in the requested directions, without hints.
//! * **Once per process:** if a descriptor is in async-io already (through another poller, or a
//!   foreign `async_io::Async`), a duplicate of it is registered.
//! * async-io *panics* if there are no descriptors left for its reactor. So the first poller opens
//!   a separate one first.
//!
//! Lock order: table, then async-io's, then inbox. Foreign code runs under none of these.

use std::collections::hash_map::{Entry, HashMap};
use std::collections::{HashSet, VecDeque};
use std::io;
use std::panic::catch_unwind;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use async_io::{Async, Timer};

#[cfg(unix)]
use super::poll as parker;
#[cfg(not(unix))]
use super::polling as parker;
use crate::poller::capabilities::Capabilities;
use crate::poller::error::{failed, not_registered, registered_already, tried};
use crate::poller::event::{Event, Events, Interest, Mode, Ready};
use crate::poller::selector::{Change, Request, Selector, WaitUntil};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sys::{
    self, AsDescriptor, AsRawDescriptor, BorrowedDescriptor, OwnedDescriptor, Process, Race,
    RawDescriptor,
};

pub(in crate::poller) fn open() -> io::Result<Box<dyn Selector>> {
    match AsyncIo::new() {
        Ok(selector) => Ok(Box::new(selector)),
        Err(error) => Err(failed("async-io's reactor", error)),
    }
}

pub(super) struct AsyncIo {
    table: Mutex<Table>,
    inbox: Arc<Inbox>,
    /// Nothing is registered in it.
    parker: Arc<dyn Selector>,
}

#[derive(Default)]
struct Table {
    sources: HashMap<RawDescriptor, Source>,
    to_rearm: Vec<RawDescriptor>,
}

struct Source {
    io: Async<Watched>,
    directions: [DirectionState; 2],
    request: Request,
}

struct DirectionState {
    signal: Arc<Signal>,
    waker: Waker,
    /// Whether async-io has the waker, or has called it and the inbox still holds the signal.
    armed: bool,
}

/// The waker that async-io gets. Its flags are written under the inbox's lock.
struct Signal {
    inbox: Arc<Inbox>,
    descriptor: RawDescriptor,
    /// [`READABLE`](Interest::READABLE) or [`WRITABLE`](Interest::WRITABLE).
    interest: Interest,
    queued: AtomicBool,
    /// Whether there is an event to report. A signal that was retracted stays queued without.
    raised: AtomicBool,
    /// Whether a poll of the kernel has already reported an event that async-io is about to signal.
    owed: AtomicBool,
    /// Whether it was raised only for such an event.
    doubtful: AtomicBool,
    dead: AtomicBool,
}

/// The directions. Urgent data counts as readable in async-io, and cannot be requested alone.
const DIRECTIONS: [(Interest, Ready); 2] = [
    (Interest::READABLE, Ready::READABLE),
    (Interest::WRITABLE, Ready::WRITABLE),
];

#[derive(Default)]
struct Inbox(Mutex<InboxState>);

#[derive(Default)]
struct InboxState {
    signals: VecDeque<Arc<Signal>>,
    /// Number of dead signals among these.
    dead: usize,
    notified: bool,
    /// `None` once the poller is dropped. Used only under the lock, so that its descriptors close
    /// with the poller, even if async-io's thread still holds a signal.
    parker: Option<Arc<dyn Selector>>,
}

impl InboxState {
    fn raise(&mut self, signal: &Arc<Signal>) {
        if signal.dead.load(Ordering::Relaxed) {
            return;
        }
        signal.raised.store(true, Ordering::Relaxed);
        if !signal.queued.swap(true, Ordering::Relaxed) {
            self.signals.push_back(signal.clone());
        }
    }

    fn next(&mut self) -> Option<Arc<Signal>> {
        let signal = self.signals.pop_front()?;
        signal.queued.store(false, Ordering::Relaxed);
        self.dead -= usize::from(signal.dead.load(Ordering::Relaxed));
        Some(signal)
    }

    /// Dead signals are swept out when they outnumber the others, so the inbox stays as short as
    /// the table, even while no thread waits.
    fn mark_dead(&mut self, signal: &Signal) {
        signal.dead.store(true, Ordering::Relaxed);
        if !signal.queued.load(Ordering::Relaxed) {
            return;
        }
        self.dead += 1;
        if self.dead > self.signals.len() / 2 {
            (self.signals).retain(|signal| !signal.dead.load(Ordering::Relaxed));
            self.dead = 0;
        }
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.inbox.0.lock();
        let is_owed = self.owed.swap(false, Ordering::Relaxed);
        let is_new = !self.raised.load(Ordering::Relaxed);
        self.doubtful.store(is_owed && is_new, Ordering::Relaxed);
        state.raise(self);
        if let Some(parker) = &state.parker {
            // The next wait finds the signal.
            let _ = parker.notify();
        }
    }
}

impl DirectionState {
    fn new(inbox: &Arc<Inbox>, descriptor: RawDescriptor, interest: Interest) -> DirectionState {
        let signal = Arc::new(Signal {
            inbox: inbox.clone(),
            descriptor,
            interest,
            queued: AtomicBool::new(false),
            raised: AtomicBool::new(false),
            owed: AtomicBool::new(false),
            doubtful: AtomicBool::new(false),
            dead: AtomicBool::new(false),
        });
        DirectionState {
            waker: signal.clone().into(),
            signal,
            armed: false,
        }
    }

    /// Asks for one event, unless a request is pending.
    fn arm(&mut self, io: &Async<impl Sized>) -> io::Result<()> {
        if self.armed {
            return Ok(());
        }
        let context = &mut Context::from_waker(&self.waker);
        // The first answer may be about the event that was reported last.
        for _ in 0..2 {
            let answer = if self.signal.interest.is_readable() {
                io.poll_readable(context)
            } else {
                io.poll_writable(context)
            };
            if let Poll::Ready(result) = answer {
                result?;
                continue;
            }
            self.armed = true;
            return Ok(());
        }
        self.armed = true;
        self.signal.wake_by_ref();
        Ok(())
    }

    /// Whether it was raised for an event that a poll of the kernel had reported, and is no longer
    /// ready.
    fn is_stale(&self, io: &Async<Watched>) -> bool {
        self.signal.doubtful.swap(false, Ordering::Relaxed)
            && sys::is_ready(io, self.signal.interest.is_writable()).is_ok_and(|is| !is)
    }

    fn retract(&mut self) {
        let _state = self.signal.inbox.0.lock();
        if self.signal.raised.swap(false, Ordering::Relaxed) {
            self.armed = false;
        }
    }
}

impl Source {
    fn has(&self, signal: &Arc<Signal>) -> bool {
        (self.directions.iter()).any(|direction| Arc::ptr_eq(&direction.signal, signal))
    }

    /// On failure the source is unusable: async-io holds a waker without a registration in the
    /// kernel.
    fn arm(&mut self) -> io::Result<()> {
        for direction in &mut self.directions {
            if self.request.interest.contains(direction.signal.interest) {
                direction.arm(&self.io)?;
            }
        }
        Ok(())
    }

    fn mark_dead(&self, inbox: &Inbox) {
        let mut state = inbox.0.lock();
        for direction in &self.directions {
            state.mark_dead(&direction.signal);
        }
    }

    /// Takes the readiness to report, under the inbox's lock.
    fn take(&mut self) -> Ready {
        let mut ready = Ready::default();
        for (direction, (interest, reported)) in self.directions.iter_mut().zip(DIRECTIONS) {
            if direction.signal.raised.swap(false, Ordering::Relaxed) {
                // A direction that a poll of the kernel reported stays armed, and async-io signals
                // it too.
                direction.armed = direction.signal.owed.load(Ordering::Relaxed);
                if self.request.interest.contains(interest) && !direction.is_stale(&self.io) {
                    ready |= reported;
                }
            }
        }
        ready
    }
}

/// async-io requires an object that keeps its descriptor.
enum Watched {
    /// Listed in [`LENT`].
    Lent(BorrowedDescriptor<'static>),
    Duplicate(OwnedDescriptor),
}

/// Descriptors that pollers have lent to async-io. Some kernels refuse a second registration; on
/// others it would replace the first.
static LENT: LazyLock<Mutex<HashSet<RawDescriptor>>> = LazyLock::new(Mutex::default);

impl Watched {
    fn lend(descriptor: BorrowedDescriptor<'_>) -> Option<Watched> {
        LENT.lock()
            .insert(descriptor.as_raw_descriptor())
            // SAFETY: it is not used once the descriptor is closed: a caller that registers with us
            // deregisters before that, and then this is dropped. See "Why `register` is unsafe" in
            // the module above.
            .then(|| Watched::Lent(unsafe { sys::lend(descriptor) }))
    }

    fn watch(descriptor: BorrowedDescriptor<'_>) -> io::Result<Async<Watched>> {
        // Not `new`, which would make it non-blocking: its owner decides that.
        if let Some(lent) = Watched::lend(descriptor) {
            match Async::new_nonblocking(lent) {
                // Registered by foreign code: see the head.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                result => return result,
            }
        }
        let duplicate = descriptor.try_clone_to_owned()?;
        Async::new_nonblocking(Watched::Duplicate(duplicate))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Watched::Lent(descriptor) = self {
            LENT.lock().remove(&descriptor.as_raw_descriptor());
        }
    }
}

sys::lend_descriptor!([] Watched, |watched| match watched {
    Watched::Lent(descriptor) => descriptor.as_descriptor(),
    Watched::Duplicate(descriptor) => descriptor.as_descriptor(),
});

/// Starts async-io's reactor and its thread, once. A child of `fork` has neither the thread nor,
/// since the kernel shares it, its own reactor.
fn start_reactor() -> io::Result<()> {
    /// The first process that called this. Recorded before async-io is called, because a child may
    /// find async-io half started, and would wait for it.
    static OWNER: Race<Process> = Race::new();
    if !OWNER.get_or_init(Process::current).is_current() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "async-io was used before `fork`, by a parent of this process, and its thread is not here",
        ));
    }
    static STARTED: AtomicBool = AtomicBool::new(false);
    if !STARTED.load(Ordering::Relaxed) {
        let similar = polling::Poller::new()?;
        let trial = similar.wait(&mut polling::Events::new(), Some(Duration::ZERO));
        drop(similar);
        tried(trial.map_err(|error| failed("polling::Poller::wait", error)))?;
        // Setting a timer takes the least. It also panics if no thread can be started.
        let started = catch_unwind(|| {
            let mut timer = Timer::after(Duration::from_secs(3_600));
            let _pending = Pin::new(&mut timer).poll(&mut Context::from_waker(Waker::noop()));
        });
        started.map_err(|_| io::Error::other("async-io cannot start its reactor"))?;
        STARTED.store(true, Ordering::Relaxed);
    }
    Ok(())
}

impl AsyncIo {
    pub(super) fn new() -> io::Result<AsyncIo> {
        let parker: Arc<dyn Selector> = parker::open()?.into();
        // The last step that can fail, since what it opens stays open.
        start_reactor()?;
        let inbox = Arc::<Inbox>::default();
        inbox.0.lock().parker = Some(parker.clone());
        Ok(AsyncIo {
            table: Mutex::default(),
            inbox,
            parker,
        })
    }

    fn rearm(&self, events: &mut Events) {
        let mut table = self.table.lock();
        let Table { sources, to_rearm } = &mut *table;
        to_rearm.retain(|descriptor| {
            let Some(source) = sources.get_mut(descriptor) else {
                return false;
            };
            if events.len() == events.limit() {
                return true;
            }
            if !source.request.interest.is_empty() && source.arm().is_err() {
                // Closed behind our back: reported once, and removed.
                let end = Ready::READABLE | Ready::WRITABLE | Ready::ERROR;
                events.push(Event::new(source.request.token, end));
                source.mark_dead(&self.inbox);
                sources.remove(descriptor);
            }
            false
        });
    }

    fn collect(&self, events: &mut Events) -> bool {
        let mut table = self.table.lock();
        let Table { sources, to_rearm } = &mut *table;
        let mut state = self.inbox.0.lock();
        while events.len() < events.limit() {
            let Some(signal) = state.next() else {
                break;
            };
            let source = sources.get_mut(&signal.descriptor);
            let Some(source) = source.filter(|source| source.has(&signal)) else {
                continue; // Deregistered.
            };
            let ready = source.take();
            if ready != Ready::default() {
                events.push(Event::new(source.request.token, ready));
                if source.request.mode == Mode::OneShot {
                    source.request.interest = Interest::NONE;
                }
            }
            if !source.request.interest.is_empty() {
                to_rearm.push(signal.descriptor);
            }
        }
        std::mem::take(&mut state.notified)
    }

    /// Raises the signals of all ready sources. async-io may report some again.
    fn poll_now(&self) {
        let table = self.table.lock();
        let asked: Vec<_> = (table.sources.values())
            .filter(|source| !source.request.interest.is_empty())
            .collect();
        if asked.is_empty() {
            return;
        }
        let wanted = asked.iter().map(|source| {
            let reads = source.request.interest.contains(Interest::READABLE);
            let writes = source.request.interest.contains(Interest::WRITABLE);
            (source.io.as_descriptor(), reads, writes)
        });
        // If the kernel is short of memory, async-io signals later.
        let Ok(ready) = sys::ready_now(wanted) else {
            return;
        };
        let mut state = self.inbox.0.lock();
        for (source, (reads, writes)) in asked.into_iter().zip(ready) {
            for (direction, is_ready) in source.directions.iter().zip([reads, writes]) {
                if is_ready {
                    // If it is raised already, async-io has reported everything.
                    if !direction.signal.raised.load(Ordering::Relaxed) {
                        direction
                            .signal
                            .owed
                            .store(direction.armed, Ordering::Relaxed);
                    }
                    direction.signal.doubtful.store(false, Ordering::Relaxed);
                    state.raise(&direction.signal);
                }
            }
        }
    }
}

impl Drop for AsyncIo {
    /// Breaks a reference cycle: signals hold the inbox, and the inbox holds raised signals.
    fn drop(&mut self) {
        for source in self.table.lock().sources.values() {
            source.mark_dead(&self.inbox);
        }
        let state = std::mem::take(&mut *self.inbox.0.lock());
        drop(state);
    }
}

impl Selector for AsyncIo {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            edge: false,
            hints: false,
            priority: false,
            descriptor: false,
            granularity: self.parker.capabilities().granularity,
            ..Capabilities::ALL
        }
    }

    fn change(&self, descriptor: BorrowedDescriptor<'_>, change: Change) -> io::Result<()> {
        let number = descriptor.as_raw_descriptor();
        let sources = &mut self.table.lock().sources;
        match (change, sources.entry(number)) {
            (Change::Register(_), Entry::Occupied(_)) => Err(registered_already()),
            (Change::Register(request), Entry::Vacant(place)) => {
                let mut source = Source {
                    io: Watched::watch(descriptor)?,
                    directions: DIRECTIONS
                        .map(|(interest, _)| DirectionState::new(&self.inbox, number, interest)),
                    request,
                };
                source.arm()?;
                place.insert(source);
                Ok(())
            }
            (Change::Modify(request), Entry::Occupied(mut place)) => {
                let source = place.get_mut();
                source.request = request;
                source
                    .directions
                    .iter_mut()
                    .for_each(DirectionState::retract);
                let result = source.arm();
                if result.is_err() {
                    place.remove().mark_dead(&self.inbox);
                }
                result
            }
            (Change::Deregister, Entry::Occupied(place)) => {
                let source = place.remove();
                source.mark_dead(&self.inbox);
                source.io.into_inner().map(drop)
            }
            (Change::Modify(_) | Change::Deregister, Entry::Vacant(_)) => Err(not_registered()),
        }
    }

    fn wait(&self, events: &mut Events, until: WaitUntil) -> io::Result<bool> {
        self.rearm(events);
        let at_once = until == WaitUntil::Now;
        if at_once {
            self.poll_now();
        }
        if self.collect(events) || at_once || !events.is_empty() {
            return Ok(false);
        }
        let passed = self.parker.wait(events, until)?;
        if self.collect(events) || passed || !events.is_empty() {
            Ok(passed)
        } else {
            // A signal was retracted meanwhile, or the parker cannot tell that the deadline has
            // passed.
            Err(io::ErrorKind::Interrupted.into())
        }
    }

    fn notify(&self) -> io::Result<()> {
        self.inbox.0.lock().notified = true;
        self.parker.notify()
    }
}
