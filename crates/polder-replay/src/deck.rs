//! The deck: the state of a thread that records or replays. Everything that the system gives comes
//! through [`Deck::cross`]: it asks the system and writes the answer to the tape ([`Recorder`]), or
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
use std::fmt;
use std::io::{self, IoSliceMut};
use std::panic::{Location, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use polder::kernel::BlockingCall;
use polder::poller::Poller;
use polder::runtime::custom::CustomRuntime;
use rustix::time::ClockId;

use crate::record::Recorder;
use crate::replay::Player;
use crate::tape::{self, Argument, Cursor, End, Filled, Kept, Tag};

pub(crate) enum Side {
    Record(Recorder),
    Replay(Player),
}

/// A question to the system.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) tag: Tag,
    pub(crate) socket: Option<u32>,
    pub(crate) argument: Argument,
}

impl Ask {
    pub(crate) fn new(tag: Tag, argument: Argument) -> Ask {
        Ask {
            tag,
            socket: None,
            argument,
        }
    }

    pub(crate) fn of(socket: u32, tag: Tag, argument: Argument) -> Ask {
        Ask {
            tag,
            socket: Some(socket),
            argument,
        }
    }
}

/// The replay has stopped.
pub(crate) struct Stop;

/// The part that other threads reach.
pub(crate) struct Shared {
    /// The system's. `None` when replaying.
    pub(crate) poller: Option<Poller>,
    woken: AtomicBool,
    /// Whether any of the following has changed.
    has_news: AtomicBool,
    thread: ThreadId,
    /// Calls on threads that are done, with their results.
    done: Mutex<Vec<(u64, Vec<u8>)>>,
    /// Whether a thread that is not the worker's has woken a task.
    is_woken_from_elsewhere: AtomicBool,
    /// Sockets that other threads have dropped.
    orphans: Mutex<Vec<u32>>,
    calls: Mutex<Calls>,
}

/// Calls that wait for a thread, by number, and the number of threads that make calls.
#[derive(Default)]
struct Calls {
    queue: VecDeque<(u64, Call)>,
    threads: usize,
}

type Call = Box<dyn FnOnce() -> Vec<u8> + Send>;

/// As many as polder's own thread pool makes at a time.
const MAX_CALLS: usize = 500;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(poller: Option<Poller>) -> Shared {
        Shared {
            poller,
            woken: AtomicBool::new(true),
            has_news: AtomicBool::new(false),
            thread: thread::current().id(),
            done: Mutex::default(),
            is_woken_from_elsewhere: AtomicBool::new(false),
            orphans: Mutex::default(),
            calls: Mutex::default(),
        }
    }

    pub(crate) fn is_here(&self) -> bool {
        thread::current().id() == self.thread
    }

    pub(crate) fn note_wake_from_elsewhere(&self) {
        self.is_woken_from_elsewhere.store(true, Ordering::Relaxed);
        self.has_news.store(true, Ordering::Release);
    }

    /// Has a thread make the call of this number.
    pub(crate) fn call(self: &Arc<Self>, id: u64, call: Call) {
        let mut calls = lock(&self.calls);
        calls.queue.push_back((id, call));
        if calls.threads == MAX_CALLS {
            return;
        }
        calls.threads += 1;
        drop(calls);
        let shared = self.clone();
        let thread = thread::Builder::new().name("polder-replay".to_owned());
        let started = thread.spawn(move || {
            while let Some((id, call)) = shared.next_call() {
                let result = call();
                shared.give(id, result);
            }
        });
        if let Err(error) = started {
            let mut calls = lock(&self.calls);
            calls.threads -= 1;
            // Other threads make the call, if there are any.
            let is_alone = calls.threads == 0;
            let left = is_alone.then(|| calls.queue.pop_back()).flatten();
            drop(calls);
            if let Some((id, _)) = left {
                let mut result = Vec::new();
                tape::put_error(&mut result, &error);
                self.give(id, result);
            }
        }
    }

    /// Returns the next call; without one, the thread ends.
    fn next_call(&self) -> Option<(u64, Call)> {
        let mut calls = lock(&self.calls);
        let next = calls.queue.pop_front();
        calls.threads -= usize::from(next.is_none());
        next
    }

    /// A call on a thread is done.
    fn give(&self, id: u64, result: Vec<u8>) {
        lock(&self.done).push((id, result));
        self.has_news.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn take_done(&self) -> Vec<(u64, Vec<u8>)> {
        std::mem::take(&mut *lock(&self.done))
    }

    /// Has the worker take another turn.
    pub(crate) fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        if let (Some(poller), false) = (&self.poller, self.is_here()) {
            // The next wait then ends by its timeout or an event.
            let _ = poller.notify();
        }
    }

    pub(crate) fn take_woken(&self) -> bool {
        self.woken.swap(false, Ordering::Acquire)
    }
}

/// A socket or a file of the program.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) socket: Option<Arc<socket2::Socket>>,
    /// Of its registration.
    pub(crate) token: Option<u64>,
}

/// A call on a thread.
#[derive(Default)]
pub(crate) struct Job {
    pub(crate) waker: Option<Waker>,
    pub(crate) result: Option<Vec<u8>>,
    /// One of the program's own, by `unblock`.
    pub(crate) call: Option<Arc<dyn BlockingCall>>,
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

#[derive(Default)]
pub(crate) struct Listener {
    pub(crate) numbers: Vec<usize>,
    pub(crate) waker: Option<Waker>,
}

pub(crate) struct Deck {
    pub(crate) side: Side,
    pub(crate) shared: Arc<Shared>,
    /// The deck's number in the process.
    pub(crate) number: u32,
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
    pub(crate) jobs: BTreeMap<u64, Job>,
    job_count: u64,
    pub(crate) listeners: BTreeMap<u64, Listener>,
    pub(crate) signal_counts: BTreeMap<usize, u64>,
    /// When the earliest timer is due.
    pub(crate) deadline: Option<Instant>,
    /// Whether this turn has not asked for events yet.
    may_take: bool,
    stage: Stage,
    remarks: BTreeSet<&'static str>,
    pub(crate) spare: Vec<(u64, u8)>,
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

/// Returns the time at which the clock shows `shown`, which is now.
fn at(shown: Duration) -> Instant {
    #[cfg(all(feature = "libc", target_os = "linux"))]
    return crate::libc::at(shown);
    #[cfg(not(all(feature = "libc", target_os = "linux")))]
    {
        let _ = shown;
        Instant::now()
    }
}

/// Makes a deck this thread's, until [`eject`].
pub(crate) fn insert(side: Side, shared: Arc<Shared>) {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    let shown = clock_shows(ClockId::Monotonic);
    let now = at(shown);
    // From the beginning of a jiffy: the first reading of the clock has the rest, for a replay too.
    let part = CustomRuntime::part_of_jiffy(now);
    let (shown, now) = (shown.saturating_sub(part), now - part);
    let deck = Deck {
        side,
        shared,
        number: COUNT.fetch_add(1, Ordering::Relaxed),
        start: now,
        start_shown: shown,
        now,
        task: None,
        told: 0,
        sites: BTreeMap::new(),
        last_site: (0, 0),
        tasks: 0,
        slots: Vec::new(),
        free: Vec::new(),
        jobs: BTreeMap::new(),
        job_count: 0,
        listeners: BTreeMap::new(),
        signal_counts: BTreeMap::new(),
        deadline: None,
        may_take: false,
        stage: Stage::Polls,
        remarks: BTreeSet::new(),
        spare: Vec::new(),
        stopped: None,
        has_unwound: false,
    };
    DECK.set(Some(deck));
}

pub(crate) fn eject() -> Option<Deck> {
    DECK.take()
}

/// Calls `f` with this thread's deck: that of `owner`, if one is given.
#[inline]
fn enter<R>(owner: Option<&Shared>, f: impl FnOnce(&mut Deck) -> R) -> Option<R> {
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

/// Calls `f` with this thread's deck. Fails on another thread, and after a stop; the first stop
/// unwinds.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&mut Deck) -> Result<R, Stop>) -> io::Result<R> {
    enter(None, f).and_then(Result::ok).map_or_else(fail, Ok)
}

/// [`with`], for what belongs to one deck only: it fails with another one, too.
#[inline]
pub(crate) fn with_own<R>(
    owner: &Shared,
    f: impl FnOnce(&mut Deck) -> Result<R, Stop>,
) -> io::Result<R> {
    let found = enter(Some(owner), f);
    found.and_then(Result::ok).map_or_else(fail, Ok)
}

/// There is no such deck, or it has stopped.
#[cold]
fn fail<R>() -> io::Result<R> {
    let stopped = look(|deck| {
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

/// [`with`], for the functions in the place of the C library's, which must not unwind: a stop
/// unwinds at the next call. The deck may allocate; an allocator that asks for the time or for
/// randomness meanwhile gets the system's.
#[cfg(all(feature = "libc", target_os = "linux"))]
pub(crate) fn answer<R>(f: impl FnOnce(&mut Deck) -> Result<R, Stop>) -> Option<R> {
    look(f)?.ok()
}

/// [`with`], for what does not cross.
#[inline]
pub(crate) fn look<R>(f: impl FnOnce(&mut Deck) -> R) -> Option<R> {
    enter(None, f)
}

/// [`look`], for what belongs to one deck only.
#[inline]
pub(crate) fn look_own<R>(owner: &Shared, f: impl FnOnce(&mut Deck) -> R) -> Option<R> {
    enter(Some(owner), f)
}

/// [`Deck::cross`] of the deck of `owner`.
#[inline]
pub(crate) fn cross<T: Kept>(
    owner: &Shared,
    ask: Ask,
    real: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    with_own(owner, |deck| deck.cross(&ask, real))?
}

/// Reads the clock for the runtime.
pub(crate) fn now() -> Instant {
    with(Deck::now).unwrap_or_else(|_| look(|deck| deck.now).unwrap_or_else(Instant::now))
}

impl Deck {
    /// Has the system answer, and records it; or returns the recorded answer. `of` is what the
    /// three functions share.
    #[inline]
    fn call<C: ?Sized, R>(
        &mut self,
        ask: &Ask,
        of: &mut C,
        real: impl FnOnce(&mut C) -> R,
        put: impl FnOnce(&mut Vec<u8>, &R, &C),
        get: impl FnOnce(&mut Cursor<'_>, &mut C) -> Option<R>,
    ) -> Result<R, Stop> {
        self.tell_task()?;
        let read = match &mut self.side {
            Side::Record(recorder) => {
                let result = real(of);
                recorder.entry(ask, |to| put(to, &result, of));
                return Ok(result);
            }
            Side::Replay(player) => player.entry(ask, |from| get(from, of)),
        };
        read.or_else(|words| self.stop(words))
    }

    /// [`call`](Self::call) of what returns a value, or fails.
    #[inline]
    pub(crate) fn cross<T: Kept>(
        &mut self,
        ask: &Ask,
        real: impl FnOnce() -> io::Result<T>,
    ) -> Result<io::Result<T>, Stop> {
        self.call(
            ask,
            &mut (),
            |()| real(),
            |to, result, ()| tape::put_result(to, result),
            |from, ()| tape::get_result(from),
        )
    }

    /// [`call`](Self::call) of what fills buffers. `get` and `put` are for what follows the bytes.
    #[inline]
    pub(crate) fn cross_filled<R>(
        &mut self,
        ask: &Ask,
        buffers: &mut [IoSliceMut<'_>],
        real: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<(Filled, R)>,
        put: impl FnOnce(&mut Vec<u8>, &R),
        get: impl FnOnce(&mut Cursor<'_>) -> Option<R>,
    ) -> Result<io::Result<(Filled, R)>, Stop> {
        let put = |to: &mut Vec<u8>,
                   result: &io::Result<(Filled, R)>,
                   buffers: &[IoSliceMut<'_>]| match result {
            Ok((filled, rest)) => {
                tape::put_result(to, &Ok(*filled));
                tape::put_buffers(to, filled.0, buffers);
                put(to, rest);
            }
            Err(error) => tape::put_error(to, error),
        };
        let get = |from: &mut Cursor<'_>, buffers: &mut [IoSliceMut<'_>]| {
            Some(match tape::get_result(from)? {
                Ok(filled) => {
                    tape::get_buffers(from, filled, buffers)?;
                    Ok((filled, get(from)?))
                }
                Err(error) => Err(error),
            })
        };
        self.call(ask, buffers, real, put, get)
    }

    /// A value that no call can fail to return.
    pub(crate) fn value<T: Kept>(&mut self, tag: Tag, real: impl FnOnce() -> T) -> Result<T, Stop> {
        self.call(
            &Ask::new(tag, Argument::None),
            &mut (),
            |()| real(),
            |to, value, ()| tape::put_value(to, value),
            |from, ()| tape::get_value(from),
        )
    }

    /// Reads the clock for the runtime: once for all that it does in a turn before it polls a task,
    /// and each time afterwards.
    #[inline]
    pub(crate) fn now(&mut self) -> Result<Instant, Stop> {
        let is_shared = self.stage == Stage::Read;
        if is_shared && self.stopped.is_none() {
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
    pub(crate) fn clock(&mut self) -> Result<Instant, Stop> {
        self.tell_task()?;
        if self.stage == Stage::Begins {
            self.stage = Stage::Read;
        }
        let time = match &mut self.side {
            Side::Record(recorder) => {
                let since = clock_shows(ClockId::Monotonic).saturating_sub(self.start_shown);
                let now = (self.start + since).max(self.now);
                recorder.clock(now - self.now);
                Ok(now)
            }
            Side::Replay(player) => player.clock().and_then(|nanos| {
                let time = self.now.checked_add(Duration::from_nanos(nanos));
                time.ok_or_else(|| {
                    "the tape is damaged: its time is past the end of time".to_owned()
                })
            }),
        };
        match time {
            Ok(now) => {
                self.now = now;
                Ok(now)
            }
            Err(words) => self.stop(words),
        }
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
        let mut text = None;
        if self.last_site.0 != address {
            let count = self.sites.len() as u64;
            let place = *self.sites.entry(address).or_insert(count);
            self.last_site = (address, place);
            // The main future is passed to another function, when it is replayed.
            text = (place == count).then(|| match id {
                1 => "the call that began the run".to_owned(),
                _ => site.to_string(),
            });
        }
        let told = (id, self.last_site.1, text);
        let read = match &mut self.side {
            Side::Record(recorder) => {
                recorder.task(&told);
                Ok(())
            }
            Side::Replay(player) => player.task(&told),
        };
        read.or_else(|words| self.stop(words))
    }

    pub(crate) fn next_task(&mut self) -> u64 {
        self.tasks += 1;
        self.tasks
    }

    /// Ends a turn: waits until there is something to do.
    pub(crate) fn sleep(&mut self) {
        self.stage = Stage::Polls;
        if let Side::Record(recorder) = &mut self.side {
            recorder.sleep(self.deadline, self.now);
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
        let shared = &self.shared;
        let has_news = shared.has_news.load(Ordering::Acquire)
            && shared.has_news.swap(false, Ordering::Acquire);
        if has_news {
            let orphans = std::mem::take(&mut *lock(&self.shared.orphans));
            if !orphans.is_empty() {
                self.remark(
                    "a thread has dropped a socket or a file: when it did is not on the tape, so a replay may diverge from here",
                );
            }
            for id in orphans {
                self.forget(id);
            }
            if self
                .shared
                .is_woken_from_elsewhere
                .swap(false, Ordering::Relaxed)
            {
                self.remark(
                    "a thread has woken a task: when it did is not on the tape, so a replay may diverge from here",
                );
            }
        }
        Ok(match &self.side {
            Side::Record(recorder) => has_news || recorder.has_arrived(),
            Side::Replay(_) => true,
        })
    }

    /// Returns the events of this turn, as tokens and flags. The memory is to be given back, as
    /// [`spare`](Self::spare).
    pub(crate) fn take_events(&mut self, limit: usize) -> Result<Vec<(u64, u8)>, Stop> {
        if !std::mem::take(&mut self.may_take) {
            return Ok(Vec::new());
        }
        self.tell_task()?;
        let slots = &self.slots;
        let token = |socket: u32| slots.get(socket as usize).and_then(|slot| slot.token);
        let taken = match &mut self.side {
            Side::Record(recorder) => {
                recorder.events(limit, &mut self.spare, token);
                Ok(())
            }
            Side::Replay(player) => player.events(&mut self.spare, token),
        };
        match taken {
            Ok(()) => Ok(std::mem::take(&mut self.spare)),
            Err(words) => self.stop(words),
        }
    }

    /// Makes a socket or a file of the program known.
    pub(crate) fn add(&mut self, socket: Option<Arc<socket2::Socket>>) -> u32 {
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

    /// Forgets one that was dropped.
    pub(crate) fn close(&mut self, id: u32) {
        self.forget(id);
        self.free.push(id);
    }

    fn forget(&mut self, id: u32) {
        self.deregister(id);
        self.slots[id as usize].socket = None;
    }

    pub(crate) fn deregister(&mut self, id: u32) {
        let Some(slot) = self.slots.get_mut(id as usize) else {
            return;
        };
        if let (Some(_), Some(socket), Side::Record(recorder)) =
            (slot.token.take(), &slot.socket, &mut self.side)
        {
            recorder.deregister(id, socket);
        }
    }

    /// Begins a call, whose end will be on the tape. Returns its number.
    pub(crate) fn begin_job(&mut self, what: String, job: Job) -> Result<u64, Stop> {
        self.job_count += 1;
        let id = self.job_count;
        // The beginning cannot fail, and its place shows a divergence early.
        let _ = self.cross(&Ask::new(Tag::Job, Argument::Text(what)), || Ok(()))?;
        self.jobs.insert(id, job);
        Ok(id)
    }

    /// Between two turns: returns what the program is to be told, in the order of the tape.
    pub(crate) fn next_delivery(&mut self) -> Result<Option<Delivery>, Stop> {
        if self.stopped.is_some() {
            return Ok(None);
        }
        let found = match &mut self.side {
            Side::Record(recorder) => Ok(recorder.delivery()),
            Side::Replay(player) => player.delivery(),
        };
        // A turn begins by a reading of its own, so that the place of what is given is unambiguous.
        self.stage = match found {
            Ok(Some(_)) => Stage::Polls,
            _ => Stage::Begins,
        };
        match found {
            Ok(None) => Ok(None),
            Ok(Some(Given::Job(id, result))) => Ok(Some(match self.jobs.get_mut(&id) {
                Some(job) if job.call.is_some() => {
                    Delivery::Run(self.jobs.remove(&id).and_then(|job| job.call))
                }
                Some(job) => {
                    job.result = Some(result);
                    Delivery::Wake(job.waker.take().into_iter().collect())
                }
                None => Delivery::Wake(Vec::new()), // Nobody waits for it any more.
            })),
            Ok(Some(Given::Signals(number, count))) => {
                let total = self.signal_counts.entry(number).or_default();
                *total = total.saturating_add(count);
                let listeners = self.listeners.values_mut();
                let woken = listeners.filter(|listener| listener.numbers.contains(&number));
                Ok(Some(Delivery::Wake(
                    woken.filter_map(|one| one.waker.take()).collect(),
                )))
            }
            Err(words) => self.stop(words),
        }
    }

    /// Tells the user what this recording misses, once.
    pub(crate) fn remark(&mut self, words: &'static str) {
        if let (Side::Record(recorder), true) = (&mut self.side, self.remarks.insert(words)) {
            eprintln!("polder-replay: {words}");
            recorder.remark(words);
        }
    }

    /// Ends the tape.
    pub(crate) fn end(&mut self, end: End) -> Result<(), Stop> {
        if self.stopped.is_some() {
            return Ok(());
        }
        let ended = match &mut self.side {
            Side::Record(recorder) => {
                recorder.end(end);
                Ok(())
            }
            Side::Replay(player) => player.end(end),
        };
        ended.or_else(|words| self.stop(words))
    }

    /// Stops the replay, and says why.
    #[cold]
    fn stop<R>(&mut self, reason: String) -> Result<R, Stop> {
        let mut words = reason;
        if let Side::Replay(player) = &self.side {
            words += &format!(
                "\n  at entry {}, {:?} after the start",
                player.entries(),
                self.now - self.start
            );
            if let Some((id, site)) = self.task {
                words += &format!(", in task {id}, spawned at {site}");
            }
            words += &player.causes();
        }
        crate::polder_replay_stopped(&words);
        self.stopped = Some(words);
        Err(Stop)
    }
}

/// Also when the process ends within the run, by `exit`.
impl Drop for Deck {
    fn drop(&mut self) {
        for id in 0..self.slots.len() {
            self.deregister(id as u32);
        }
    }
}

/// Events of the system between two turns.
pub(crate) enum Given {
    /// The result of a call on a thread.
    Job(u64, Vec<u8>),
    Signals(usize, u64),
}

/// Actions for then, outside of the deck.
pub(crate) enum Delivery {
    Wake(Vec<Waker>),
    Run(Option<Arc<dyn BlockingCall>>),
}

/// Called when a socket or file is dropped.
pub(crate) fn dropped(id: u32, shared: &Shared) {
    if shared.is_here() {
        look_own(shared, |deck| deck.close(id));
    } else {
        lock(&shared.orphans).push(id);
        shared.has_news.store(true, Ordering::Release);
    }
}
