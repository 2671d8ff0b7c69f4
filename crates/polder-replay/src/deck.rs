//! The deck: the state of a thread that records or replays. Everything that the system gives comes
//! through [`Deck::call`]: it asks the system and writes the answer to the tape ([`Recorder`]), or
//! takes it from the tape ([`Player`]).
//!
//! Decisions of the deck are the same on both sides, and so are not on the tape: the numbers of
//! sockets, files, tasks and calls.
//!
//! The deck is borrowed during a system call, and never while foreign code runs. A replay that
//! cannot go on is stopped by unwinding once ([`Stop`]); from then on calls fail, and the clock
//! stands still.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::panic::{Location, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures_lite::Stream;
use polder::kernel::sockets::Socket;
use polder::kernel::{BlockingCall, CLOSED, ERROR, READABLE, WRITABLE};
use polder::poller::Events;
use rustix::time::ClockId;

use crate::record::Recorder;
use crate::replay::Player;
use crate::shared::{Shared, say, waker_of};
use crate::tape::{self, End, Event, FAILED, Kept, Tag, put_head, put_number, put_text};

pub(crate) enum Side {
    Record(Recorder),
    Replay(Player),
}

/// The replay has stopped.
pub(crate) struct Stop;

/// A socket or a file of the program.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) socket: Option<Arc<dyn Socket>>,
    /// Of its registration.
    pub(crate) token: Option<u64>,
}

/// Results of the system that come when they like.
pub(crate) type Source = Pin<Box<dyn Stream<Item = Vec<u8>> + Send>>;

/// A call on a thread, or a listener to signals.
#[derive(Default)]
pub(crate) struct Arrivals {
    /// `None` when it is replayed.
    source: Option<Source>,
    pub(crate) waker: Option<Waker>,
    pub(crate) results: VecDeque<Vec<u8>>,
    /// One of the program's own, by `unblock`.
    call: Option<Arc<dyn BlockingCall>>,
}

/// The stage of a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The clock is to be read.
    Begins,
    /// It was, and no task was polled since.
    Read,
    Polls,
}

pub(crate) struct Deck {
    pub(crate) side: Side,
    pub(crate) shared: Arc<Shared>,
    start: Instant,
    /// The time of the system's clock then.
    start_shown: Duration,
    /// The last reading of the clock.
    now: Instant,
    /// The task that runs, and the one that ran when the last entry was made by a task.
    task: Option<(u64, &'static Location<'static>)>,
    told: u64,
    /// Numbers of sites by address, and the one that was looked up last.
    sites: BTreeMap<usize, u64>,
    last_site: (usize, u64),
    tasks: u64,
    pub(crate) slots: Vec<Slot>,
    free: Vec<u32>,
    pub(crate) arrivals: BTreeMap<u64, Arrivals>,
    arrival_count: u64,
    /// Arrived, and not delivered yet.
    arrived: VecDeque<(u64, Vec<u8>)>,
    /// Events of the system that the worker has not taken yet.
    queue: VecDeque<(u32, u8)>,
    events: Events,
    pub(crate) spare: Vec<Event>,
    /// When the earliest timer is due.
    pub(crate) deadline: Option<Instant>,
    /// Whether this turn has not asked for events yet.
    may_take: bool,
    stage: Stage,
    remarks: BTreeSet<&'static str>,
    /// Why the replay has stopped.
    pub(crate) stopped: Option<String>,
    has_unwound: bool,
}

thread_local! {
    static DECK: RefCell<Option<Deck>> = const { RefCell::new(None) };
}

/// Reads the system's clock, which the program may have replaced for the standard library.
pub(crate) fn clock_shows(clock: ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

/// Makes a deck this thread's, until [`eject`]. The system's clock has shown `start_shown` at
/// `start`.
pub(crate) fn insert(side: Side, shared: Arc<Shared>, start: Instant, start_shown: Duration) {
    DECK.set(Some(Deck {
        side,
        shared,
        start,
        start_shown,
        now: start,
        task: None,
        told: 0,
        sites: BTreeMap::new(),
        last_site: (0, 0),
        tasks: 0,
        slots: Vec::new(),
        free: Vec::new(),
        arrivals: BTreeMap::new(),
        arrival_count: 0,
        arrived: VecDeque::new(),
        queue: VecDeque::new(),
        events: Events::new(),
        spare: Vec::new(),
        deadline: None,
        may_take: false,
        stage: Stage::Polls,
        remarks: BTreeSet::new(),
        stopped: None,
        has_unwound: false,
    }));
}

pub(crate) fn eject() -> Option<Deck> {
    DECK.take()
}

/// Calls `f` with this thread's deck: that of `owner`, if one is given.
#[inline]
pub(crate) fn look<R>(owner: Option<&Shared>, f: impl FnOnce(&mut Deck) -> R) -> Option<R> {
    let found = DECK.try_with(|deck| {
        let mut deck = deck.try_borrow_mut().ok()?;
        let deck = deck.as_mut()?;
        if owner.is_some_and(|owner| !std::ptr::eq(owner, &*deck.shared)) {
            return None;
        }
        Some(f(deck))
    });
    found.ok().flatten()
}

/// [`look`], for what crosses. Fails on another thread, with another deck than that of `owner`, and
/// after a stop; the first stop unwinds.
#[inline]
pub(crate) fn with<R>(
    owner: Option<&Shared>,
    f: impl FnOnce(&mut Deck) -> Result<R, Stop>,
) -> io::Result<R> {
    let found = look(owner, f);
    found.and_then(Result::ok).map_or_else(fail, Ok)
}

/// There is no such deck, or it has stopped.
#[cold]
fn fail<R>() -> io::Result<R> {
    let stopped = look(None, |deck| {
        let has_unwound = &mut deck.has_unwound;
        (deck.stopped.is_some()).then(|| std::mem::replace(has_unwound, true))
    });
    Err(io::Error::other(match stopped.flatten() {
        Some(false) if !thread::panicking() => resume_unwind(Box::new(Stop)),
        Some(_) => "the replay has stopped",
        None => {
            "used outside of the recording or the replay that it belongs to (on another thread, or after its end)"
        }
    }))
}

/// Reads the clock for the runtime.
pub(crate) fn now() -> Instant {
    let stands_still = |_| look(None, |deck| deck.now).unwrap_or_else(Instant::now);
    with(None, Deck::now).unwrap_or_else(stands_still)
}

/// Tells the user what this recording misses, once.
pub(crate) fn remark(words: &'static str) {
    look(None, |deck| deck.remark(words));
}

/// An argument of a call: a text, which names it.
pub(crate) fn text(text: impl Display) -> impl FnOnce(&mut Vec<u8>) {
    move |to| put_text(to, text)
}

impl Deck {
    /// Has the system answer, and records it; or returns the recorded answer. `of` is the socket or
    /// file, and `argument` what else is asked. The bytes that the system fills `buffers` with
    /// belong to the answer.
    #[inline]
    pub(crate) fn call<A: Kept>(
        &mut self,
        tag: Tag,
        of: Option<u32>,
        argument: impl FnOnce(&mut Vec<u8>),
        buffers: &mut [IoSliceMut<'_>],
        real: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<A>,
    ) -> Result<io::Result<A>, Stop> {
        self.tell_task()?;
        let read = match &mut self.side {
            Side::Record(recorder) => {
                let result = real(buffers);
                recorder.entry(|to, last| {
                    let begin = to.len();
                    put_head(to, tag, of, last);
                    argument(to);
                    match &result {
                        Ok(answer) => {
                            answer.put(to);
                            tape::put_buffers(to, answer.filled(), buffers);
                        }
                        Err(error) => {
                            to[begin] |= FAILED;
                            error.put(to);
                        }
                    }
                });
                return Ok(result);
            }
            Side::Replay(player) => player.entry(tag, of, argument, |from| {
                let answer = A::get(from)?;
                tape::get_buffers(from.take(answer.filled())?, buffers)?;
                Some(answer)
            }),
        };
        read.or_else(|words| self.stop(words))
    }

    /// [`call`](Self::call) of what a text names, and nothing else is to be known of.
    pub(crate) fn cross<A: Kept>(
        &mut self,
        what: impl Display,
        real: impl FnOnce() -> io::Result<A>,
    ) -> Result<io::Result<A>, Stop> {
        self.call(Tag::Do, None, text(what), &mut [], |_| real())
    }

    /// A value that no call can fail to return.
    pub(crate) fn value<A: Kept>(&mut self, tag: Tag, real: impl FnOnce() -> A) -> Result<A, Stop> {
        let read = self.call(tag, None, |_| {}, &mut [], |_| Ok(real()))?;
        read.or_else(|error| self.stop(error.to_string()))
    }

    /// The events that come from elsewhere now: found by `real`, or next on the tape.
    fn given<T: Kept>(
        &mut self,
        tag: Tag,
        real: impl FnOnce(&mut Deck) -> Option<T>,
    ) -> Result<Option<T>, Stop> {
        if self.stopped.is_some() {
            return Err(Stop);
        }
        if let Side::Replay(player) = &mut self.side {
            let given = player.given(tag);
            return given.or_else(|words| self.stop(words));
        }
        let found = real(self);
        if let (Some(value), Side::Record(recorder)) = (&found, &mut self.side) {
            recorder.entry(|to, last| {
                put_head(to, tag, None, last);
                value.put(to);
            });
        }
        Ok(found)
    }

    /// Reads the clock for the runtime: once for all that it does in a turn before it polls a task,
    /// and each time afterwards.
    #[inline]
    fn now(&mut self) -> Result<Instant, Stop> {
        if self.stage == Stage::Read && self.stopped.is_none() {
            return Ok(self.now);
        }
        self.clock()
    }

    /// The program is about to read the clock.
    pub(crate) fn program_reads_clock(&mut self) {
        if self.stage == Stage::Read {
            self.stage = Stage::Begins;
        }
    }

    #[inline]
    fn clock(&mut self) -> Result<Instant, Stop> {
        self.tell_task()?;
        if self.stage == Stage::Begins {
            self.stage = Stage::Read;
        }
        let nanos = match &mut self.side {
            Side::Record(recorder) => {
                let since = clock_shows(ClockId::Monotonic).saturating_sub(self.start_shown);
                let since = (self.start + since).saturating_duration_since(self.now);
                let nanos = since.as_nanos() as u64 & (u64::MAX >> 1);
                recorder.entry(|to, _| put_number(to, nanos << 1 | 1));
                Ok(nanos)
            }
            Side::Replay(player) => player.clock(),
        };
        match nanos.map(|nanos| self.now.checked_add(Duration::from_nanos(nanos))) {
            Ok(Some(now)) => self.now = now,
            Ok(None) => {
                self.stop("the tape is damaged: its time is past the end of time".to_owned())?
            }
            Err(words) => self.stop(words)?,
        }
        Ok(self.now)
    }

    /// Reads the clock, as the C library shows it.
    #[cfg(all(feature = "libc", target_os = "linux"))]
    pub(crate) fn clock_shown(&mut self) -> Result<Duration, Stop> {
        let since = self.clock()? - self.start;
        Ok(self.start_shown + since)
    }

    /// A task is about to be polled.
    pub(crate) fn begin_poll(&mut self, id: u64, site: &'static Location<'static>) {
        self.task = Some((id, site));
        self.stage = Stage::Polls;
    }

    /// Before an entry: notes which task makes it, if that is another one than before.
    #[inline]
    fn tell_task(&mut self) -> Result<(), Stop> {
        if self.stopped.is_some() {
            return Err(Stop);
        }
        match self.task {
            Some((id, site)) if id != self.told => self.tell_other_task(id, site),
            _ => Ok(()),
        }
    }

    #[inline(never)]
    fn tell_other_task(&mut self, id: u64, site: &'static Location<'static>) -> Result<(), Stop> {
        self.told = id;
        let address = std::ptr::from_ref(site) as usize;
        let mut is_new = false;
        if self.last_site.0 != address {
            let count = self.sites.len() as u64;
            let place = *self.sites.entry(address).or_insert(count);
            self.last_site = (address, place);
            is_new = place == count;
        }
        let place = self.last_site.1 << 1 | u64::from(is_new);
        let argument = |to: &mut Vec<u8>| {
            (id, place).put(to);
            match (is_new, id) {
                (false, _) => {}
                // The main future is passed to another function, when it is replayed.
                (true, 1) => put_text(to, "the call that began the run"),
                (true, _) => put_text(to, site),
            }
        };
        let told = self.call(Tag::Task, None, argument, &mut [], |_| Ok(()))?;
        told.or_else(|error| self.stop(error.to_string()))
    }

    pub(crate) fn next_task(&mut self) -> u64 {
        self.tasks += 1;
        self.tasks
    }

    /// Ends a turn: waits until the deadline, an event or a notification. Only asks for events if
    /// the worker has more to do.
    pub(crate) fn sleep(&mut self) {
        self.stage = Stage::Polls;
        let Some(poller) = &self.shared.poller else {
            return;
        };
        let waits = !self.shared.take_woken() && self.queue.is_empty();
        let until = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        let limit = if waits {
            self.deadline.map(until)
        } else {
            Some(Duration::ZERO)
        };
        if let Err(error) = poller.wait(&mut self.events, limit) {
            say(format_args!("waiting for events failed: {error}"));
            thread::sleep(Duration::from_millis(1));
        }
        for event in &self.events {
            let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
            let flags = flag(event.is_readable(), READABLE)
                | flag(event.is_writable(), WRITABLE)
                | flag(event.is_closed(), CLOSED)
                | flag(event.is_error(), ERROR);
            self.queue.push_back((event.token().0 as u32, flags));
        }
    }

    /// Begins a turn. Returns whether there is something to [deliver](Self::next_delivery).
    pub(crate) fn begin_turn(&mut self) -> Result<bool, Stop> {
        if self.stopped.is_some() {
            return Err(Stop);
        }
        self.may_take = true;
        self.stage = Stage::Begins;
        self.task = None;
        if let Some(news) = self.shared.take_news() {
            if !news.orphans.is_empty() {
                self.remark(
                    "a thread has dropped a socket or a file: when it did is not on the tape, so a replay may diverge from here",
                );
            }
            if news.is_woken_from_elsewhere {
                self.remark(
                    "a thread has woken a task: when it did is not on the tape, so a replay may diverge from here",
                );
            }
            news.orphans.into_iter().for_each(|id| self.forget(id));
            news.ready.into_iter().for_each(|id| self.poll_source(id));
        }
        Ok(matches!(self.side, Side::Replay(_)) || !self.arrived.is_empty())
    }

    fn poll_source(&mut self, id: u64) {
        let waker = waker_of(id, &self.shared);
        let Some(found) = self.arrivals.get_mut(&id) else {
            return;
        };
        while let Some(source) = &mut found.source {
            match source.as_mut().poll_next(&mut Context::from_waker(&waker)) {
                Poll::Ready(Some(result)) => self.arrived.push_back((id, result)),
                Poll::Ready(None) => found.source = None,
                Poll::Pending => break,
            }
        }
    }

    /// Takes the events of this turn, of sockets that the program has registered. The memory is to
    /// be given back, as [`spare`](Self::spare).
    pub(crate) fn take_events(&mut self, limit: usize) -> Result<Vec<Event>, Stop> {
        if !std::mem::take(&mut self.may_take) {
            return Ok(Vec::new());
        }
        let token = |deck: &Deck, id: u32| deck.slots.get(id as usize).and_then(|slot| slot.token);
        let given = self.given(Tag::Events, |deck| {
            let mut events = std::mem::take(&mut deck.spare);
            events.clear();
            while events.len() < limit {
                let Some((id, flags)) = deck.queue.pop_front() else {
                    break;
                };
                events.extend(token(deck, id).map(|token| (id, flags, token)));
            }
            (!events.is_empty()).then_some(events)
        })?;
        let Some(mut events) = given else {
            return Ok(Vec::new());
        };
        let last = events.last().map(|event| event.0);
        match &mut self.side {
            Side::Record(recorder) => recorder.last = last,
            Side::Replay(player) => player.tape.last = last,
        }
        for (id, _, of) in &mut events {
            let Some(found) = token(self, *id) else {
                let what = format!("an event of socket {id}, which the program has not registered");
                return self.stop(format!("the tape has {what}"));
            };
            *of = found;
        }
        Ok(events)
    }

    /// Makes a socket or a file of the program known.
    pub(crate) fn add(&mut self, socket: Option<Arc<dyn Socket>>) -> u32 {
        let slot = Slot {
            socket,
            token: None,
        };
        if let Some(id) = self.free.pop() {
            self.slots[id as usize] = slot;
            return id;
        }
        self.slots.push(slot);
        u32::try_from(self.slots.len() - 1).expect("a process has fewer descriptors")
    }

    /// Forgets one that was dropped, by a thread whose time is not known: the number stays in use.
    fn forget(&mut self, id: u32) {
        self.deregister(id);
        self.slots[id as usize].socket = None;
    }

    /// Ends the registration of a socket, and drops its events: another may get the number before
    /// they are taken.
    pub(crate) fn deregister(&mut self, id: u32) {
        let Some(slot) = self.slots.get_mut(id as usize) else {
            return;
        };
        if let (Some(_), Some(socket), Some(poller)) =
            (slot.token.take(), &slot.socket, &self.shared.poller)
        {
            self.queue.retain(|(socket, _)| *socket != id);
            // It fails only for what is not registered.
            let _ = poller.deregister(socket.descriptor());
        }
    }

    /// Begins what gives results later. Its place shows a divergence early.
    pub(crate) fn begin_arrivals(
        &mut self,
        what: impl Display,
        call: Option<Arc<dyn BlockingCall>>,
        source: impl FnOnce() -> io::Result<Source>,
    ) -> Result<io::Result<u64>, Stop> {
        let mut made = None;
        let begun = self.cross(what, || {
            made = Some(source()?);
            Ok(())
        })?;
        Ok(begun.map(|()| {
            self.arrival_count += 1;
            let id = self.arrival_count;
            self.arrivals.insert(
                id,
                Arrivals {
                    source: made,
                    call,
                    ..Arrivals::default()
                },
            );
            self.shared.tell(|news| news.ready.push(id));
            self.shared.wake();
            id
        }))
    }

    /// Between two turns: returns what the program is to be told, in the order of the tape.
    pub(crate) fn next_delivery(&mut self) -> Result<Option<Delivery>, Stop> {
        let given = self.given(Tag::Arrived, |deck| deck.arrived.pop_front())?;
        // A turn begins by a reading of its own, so that the place of what is given is unambiguous.
        self.stage = if given.is_some() {
            Stage::Polls
        } else {
            Stage::Begins
        };
        let Some((id, result)) = given else {
            return Ok(None);
        };
        let mut delivery = Delivery::default();
        // Otherwise nobody waits for it any more.
        if let Some(found) = self.arrivals.get_mut(&id) {
            delivery = (found.waker.take(), found.call.take());
            found.results.push_back(result);
        }
        if delivery.1.is_some() {
            self.arrivals.remove(&id);
        }
        Ok(Some(delivery))
    }

    /// See [`remark`].
    fn remark(&mut self, words: &'static str) {
        if let (Side::Record(recorder), true) = (&mut self.side, self.remarks.insert(words)) {
            say(words);
            recorder.entry(|to, last| {
                put_head(to, Tag::Notice, None, last);
                put_text(to, words);
            });
        }
    }

    /// Ends the tape.
    pub(crate) fn end(&mut self, end: End) -> Result<(), Stop> {
        if let Side::Replay(player) = &mut self.side {
            if matches!(player.tape.has_next(), Ok(false)) {
                return Ok(()); // A torn tape may have lost it.
            }
        }
        self.task = None;
        let ended = self.call(Tag::End, None, |to| end.put(to), &mut [], |_| Ok(()))?;
        ended.or_else(|error| self.stop(error.to_string()))
    }

    /// Stops the replay, and says why.
    #[cold]
    pub(crate) fn stop<R>(&mut self, reason: String) -> Result<R, Stop> {
        let mut words = reason;
        if let Side::Replay(player) = &self.side {
            let (entry, time) = (player.tape.entries, self.now - self.start);
            words += &format!("\n  at entry {entry}, {time:?} after the start");
            if let Some((id, site)) = self.task {
                words += &format!(", in task {id}, spawned at {site}");
            }
            words += &player.causes();
        }
        polder_replay_stopped(self.stopped.insert(words));
        Err(Stop)
    }
}

/// Also when the process ends within the run, by `exit`.
impl Drop for Deck {
    fn drop(&mut self) {
        (0..self.slots.len()).for_each(|id| self.deregister(id as u32));
    }
}

/// Wakers and jobs to be called outside of the deck.
pub(crate) type Delivery = (Option<Waker>, Option<Arc<dyn BlockingCall>>);

/// A socket or a file of the program.
#[derive(Debug)]
pub(crate) struct Handle<T: ?Sized> {
    pub(crate) id: u32,
    pub(crate) shared: Arc<Shared>,
    /// `None` when it is replayed.
    pub(crate) system: Option<Arc<T>>,
}

impl<T: ?Sized> Handle<T> {
    /// Makes a call of the system's on it.
    #[inline]
    pub(crate) fn fill<A: Kept>(
        &self,
        tag: Tag,
        argument: impl FnOnce(&mut Vec<u8>),
        buffers: &mut [IoSliceMut<'_>],
        real: impl FnOnce(&T, &mut [IoSliceMut<'_>]) -> io::Result<A>,
    ) -> io::Result<A> {
        with(Some(&self.shared), |deck| {
            deck.call(tag, Some(self.id), argument, buffers, |buffers| {
                real(
                    self.system.as_deref().ok_or(io::ErrorKind::NotFound)?,
                    buffers,
                )
            })
        })?
    }

    /// [`fill`](Self::fill), without buffers.
    #[inline]
    pub(crate) fn ask<A: Kept>(
        &self,
        tag: Tag,
        argument: impl FnOnce(&mut Vec<u8>),
        real: impl FnOnce(&T) -> io::Result<A>,
    ) -> io::Result<A> {
        self.fill(tag, argument, &mut [], |system, _| real(system))
    }

    /// Makes a call that writes what has this checksum. The tape has how much was left.
    #[inline]
    pub(crate) fn write(
        &self,
        check: u64,
        wanted: usize,
        real: impl FnOnce(&T) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let check = (check as u16).to_le_bytes();
        let argument = |to: &mut Vec<u8>| to.extend_from_slice(&check);
        let left: usize = self.ask(Tag::Write, argument, |system| Ok(wanted - real(system)?))?;
        let damaged = || tape::bad("the tape is damaged: more was left than written");
        wanted.checked_sub(left).ok_or_else(damaged)
    }
}

impl<T: ?Sized> Drop for Handle<T> {
    fn drop(&mut self) {
        if !self.shared.is_here() {
            self.shared.tell(|news| news.orphans.push(self.id));
            return self.shared.wake(); // Which may wait for nothing else.
        }
        look(Some(&self.shared), |deck| {
            deck.forget(self.id);
            deck.free.push(self.id);
        });
    }
}

/// Returns the file that is lent for what is replayed.
pub(crate) fn null() -> &'static File {
    static NULL: OnceLock<File> = OnceLock::new();
    NULL.get_or_init(|| File::open("/dev/null").expect("every Unix has /dev/null"))
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
    say(reason);
}
