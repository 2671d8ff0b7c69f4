//! A model of `kqueue(2)` for Linux, so that the backend is tested where most of polder is tested.
//! It has the two calls and the constants of a kernel's interface. `--cfg polder_kqueue_model`,
//! which only ci/kqueue.sh sets, makes it replace that interface: no released build has it.
//!
//! It is written from the manuals, which are cited where they are followed: (F) is kqueue(2) of
//! FreeBSD, (D) is kqueue(2) of Darwin. If they are silent, (K) is FreeBSD's sys/kern/kern_event.c.
//! The backend's `manual_tests.rs` runs the same tests on this model and on real kernels.
//!
//! * (F) <https://man.freebsd.org/cgi/man.cgi?query=kqueue&sektion=2>
//! * (D) <https://github.com/apple-oss-distributions/xnu/blob/main/bsd/man/man2/kqueue.2>
//! * (K) <https://github.com/freebsd/freebsd-src/blob/main/sys/kern/kern_event.c>
//!
//! **Protocol.** A *note* is an event that was added, like a kernel's `knote`. A note is *active*
//! once something has happened that may fulfil its condition. Active notes that are enabled are in
//! a queue. `kevent` takes them from there, evaluates the condition of each by poll(2), and reports
//! those with a true condition.
//!
//! Activity comes from epoll. The kqueue's descriptor is an epoll instance, which serves the read
//! filter and the timers, and contains another instance, which serves the write filter. Each note
//! is a separate entry, watched for edges, so that activity of one filter does not activate the
//! other. The first instance also contains a *bell*: a socket pair with a byte in it while the
//! queue is not empty. The bell and the second instance are watched for levels.
//!
//! So the descriptor is readable while there is something to look at. No activity is lost: a thread
//! that takes an entry activates its note under the lock, before that thread reports anything; an
//! entry of a removed note finds no note. No change of another thread is lost: it rings the bell
//! under the lock, and a waiting thread looks at the queue after each wake-up.
//!
//! **Outside the model** are `NOTE_LOWAT`, the `NOTE_FF…` operations of user events,
//! `NOTE_ABSTIME`, and filters other than read, write, user and timer. Regular files are refused
//! (`EPERM` of epoll). `data` is an estimate for listeners and for room to write. `fflags` of an
//! end is always `ECONNRESET`, since on Linux reading a socket's error clears it. Flags and filters
//! have FreeBSD's numbers, errors have Linux's.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{c_int, c_short, c_uint, c_ushort, c_void};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, mem, process, ptr, slice};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketType, sockopt};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use super::flavours::{self, SecondShutdown};

#[allow(non_camel_case_types, reason = "its name in C")]
#[derive(Clone, Copy)]
#[repr(C)]
pub(in crate::poller) struct kevent {
    pub(in crate::poller) ident: usize,
    pub(in crate::poller) filter: c_short,
    pub(in crate::poller) flags: c_ushort,
    pub(in crate::poller) fflags: c_uint,
    pub(in crate::poller) data: isize,
    /// A number, as on NetBSD.
    pub(in crate::poller) udata: isize,
}

pub(in crate::poller) const EVFILT_READ: c_short = -1;
pub(in crate::poller) const EVFILT_WRITE: c_short = -2;
pub(in crate::poller) const EVFILT_TIMER: c_short = -7;
pub(in crate::poller) const EVFILT_USER: c_short = -11;
pub(in crate::poller) const EV_ADD: c_ushort = 0x0001;
pub(in crate::poller) const EV_DELETE: c_ushort = 0x0002;
pub(in crate::poller) const EV_ENABLE: c_ushort = 0x0004;
pub(in crate::poller) const EV_DISABLE: c_ushort = 0x0008;
pub(in crate::poller) const EV_ONESHOT: c_ushort = 0x0010;
pub(in crate::poller) const EV_CLEAR: c_ushort = 0x0020;
pub(in crate::poller) const EV_RECEIPT: c_ushort = 0x0040;
pub(in crate::poller) const EV_DISPATCH: c_ushort = 0x0080;
pub(in crate::poller) const EV_ERROR: c_ushort = 0x4000;
pub(in crate::poller) const EV_EOF: c_ushort = 0x8000;
pub(in crate::poller) const NOTE_TRIGGER: u32 = 0x0100_0000;
pub(in crate::poller) const NOTE_NSECONDS: u32 = 0x0008;

/// The flags that a returned event has on FreeBSD, besides `EV_EOF`.
const KEPT: c_ushort = EV_ONESHOT | EV_CLEAR | EV_RECEIPT | EV_DISPATCH;

/// How often a wait looks for what Linux does not report: see [`State::count`].
const SLICE: Duration = Duration::from_millis(1);

/// Entries of the kqueue's own epoll instance that are not notes.
const BELL: u64 = 0;
const WRITERS: u64 = 1;

/// The kqueues of this process, by their descriptors.
static QUEUES: Mutex<Option<HashMap<RawFd, Arc<Kqueue>>>> = Mutex::new(None);

/// The process that last opened a kqueue. A forked child has none, and finds that out without a
/// lock, which another thread of its parent may have held.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// "kqueue creates a new kernel event queue and returns a descriptor" (F).
pub(in crate::poller) fn kqueue() -> rustix::io::Result<OwnedFd> {
    let descriptor = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let queue = Kqueue::new(descriptor.as_raw_fd())?;
    PROCESS.store(process::id(), Ordering::Relaxed);
    locked(&QUEUES)
        .get_or_insert_default()
        .insert(descriptor.as_raw_fd(), Arc::new(queue));
    Ok(descriptor)
}

/// Frees the state of a kqueue that is about to be closed, which a kernel does on close.
pub(in crate::poller) fn before_close(kqueue: BorrowedFd<'_>) {
    // "The queue is not inherited by a child created with fork(2)" (F).
    if PROCESS.load(Ordering::Relaxed) == process::id() {
        let queue = locked(&QUEUES)
            .as_mut()
            .unwrap()
            .remove(&kqueue.as_raw_fd());
        if let Some(queue) = queue {
            // Once `shut_down` is done with it.
            locked(&queue.state).is_closed = true;
        }
    }
}

fn is_kqueue(number: RawFd) -> bool {
    let queues = locked(&QUEUES);
    // (A child of `fork` may have closed its parent's.)
    let queue = (queues.as_ref()).and_then(|queues| queues.get(&number));
    queue.is_some_and(|queue| queue.process == process::id())
}

/// "kevent is used to register events with the queue, and return any pending events to the user"
/// (F).
///
/// # Safety
///
/// `changes` and `events` have the given numbers of elements, and `timeout` is null or valid. The
/// descriptors that the changes name may be used.
pub(in crate::poller) unsafe fn kevent(
    kqueue: c_int,
    changes: *const kevent,
    change_count: c_int,
    events: *mut kevent,
    event_count: c_int,
    timeout: *const libc::timespec,
) -> c_int {
    // SAFETY: the caller promises it.
    let (changes, events, timeout) = unsafe {
        (
            slice::from_raw_parts(changes, change_count as usize),
            slice::from_raw_parts_mut(events.cast::<MaybeUninit<kevent>>(), event_count as usize),
            timeout.as_ref(),
        )
    };
    match call(kqueue, changes, events, timeout) {
        Ok(count) => count as c_int,
        Err(error) => {
            // SAFETY: libc::__errno_location is this thread's own number.
            unsafe { *libc::__errno_location() = error.raw_os_error() };
            -1
        }
    }
}

/// `shutdown(2)` of the whole process, the standard library's calls too: as the system's.
///
/// # Safety
///
/// As the system's: none.
#[unsafe(no_mangle)]
unsafe extern "C" fn shutdown(socket: c_int, how: c_int) -> c_int {
    match shut_down(socket, how) {
        Ok(()) => 0,
        Err(error) => {
            // SAFETY: libc::__errno_location is this thread's own number.
            unsafe { *libc::__errno_location() = error.raw_os_error() };
            -1
        }
    }
}

/// On Linux a shutdown wakes the pollers of both ends, in both directions. On the BSDs it activates
/// the write filter of its own end and the read filter of the other one: so of Unix streams, which
/// have no [`Progress`], the entries of those notes are dropped that it has not changed. (A thread
/// that waits may take one before. Then there is an event too many.)
fn shut_down(socket: c_int, how: c_int) -> Result<(), Errno> {
    // One at a time, since each locks all kqueues.
    static ONE: Mutex<()> = Mutex::new(());
    let real = |how: c_int| {
        // SAFETY: libc::syscall with the arguments of shutdown(2), two integers.
        match unsafe { libc::syscall(libc::SYS_shutdown, socket, how) } {
            0 => Ok(()),
            _ => Err(errno(&io::Error::last_os_error())),
        }
    };
    let kind = match file(socket as usize) {
        Some(_) => kind(borrow(socket as usize)),
        None => return real(how),
    };
    let how = judge(borrow(socket as usize), kind, how)?;
    if kind != Kind::UnixStream || PROCESS.load(Ordering::Relaxed) != process::id() {
        return real(how);
    }
    let _one = locked(&ONE);
    let queues: Vec<_> = match &*locked(&QUEUES) {
        Some(queues) => queues.values().cloned().collect(),
        None => Vec::new(),
    };
    let mut states: Vec<_> = queues.iter().map(|queue| locked(&queue.state)).collect();
    let is_stream = |note: &Note| note.is_edge() && note.kind() == Some(Kind::UnixStream);
    let before: Vec<HashMap<u64, Option<Progress>>> = (states.iter())
        .map(|state| {
            let notes = state.notes.iter().filter(|(_, note)| is_stream(note));
            notes
                .map(|(serial, note)| (*serial, note.state()))
                .collect()
        })
        .collect();
    // After that: what has come in between is active, and what comes later is a difference.
    for (queue, state) in queues.iter().zip(&mut states) {
        if !state.is_closed {
            let _ = queue.collect(state);
        }
    }
    real(how)?;
    for ((queue, state), before) in queues.iter().zip(&mut states).zip(before) {
        if state.is_closed {
            continue;
        }
        // What comes after the entries were taken makes new ones.
        let mut entries = Vec::new();
        let _ = queue.take_entries(|serial| entries.push(serial));
        for serial in entries {
            let note = state.notes.get(&serial);
            let is_changed = match (note, before.get(&serial)) {
                (Some(note), Some(before)) if note.change.filter == EVFILT_WRITE => {
                    // The peer may have read at the same time.
                    let bytes = |state: Option<Progress>| state.map(|state| state.bytes);
                    bytes(note.state()) != bytes(*before)
                }
                (Some(note), Some(before)) => note.state() != *before,
                _ => true,
            };
            if is_changed {
                state.activate(serial);
            }
        }
        // Linux does not report it where there is no room.
        let key = (socket as usize, EVFILT_WRITE);
        let own = state.index.get(&key).copied();
        if let Some(serial) = own.filter(|_| how != libc::SHUT_RD) {
            state.activate(serial);
        }
        queue.ring(state);
    }
    Ok(())
}

/// Returns what a shutdown does on the system: see [`SecondShutdown`].
fn judge(socket: BorrowedFd<'_>, kind: Kind, how: c_int) -> Result<c_int, Errno> {
    let has_ended = match kind {
        Kind::Tcp => tcp_info(socket).is_some_and(|info| has_sent_fin(info.state)),
        Kind::UnixStream => cannot_send(socket),
        _ => return Ok(how),
    };
    let peer_has_ended = ready(socket, PollFlags::RDHUP).contains(PollFlags::RDHUP);
    match flavours::here().second_shutdown {
        SecondShutdown::NotConnected
            if how != libc::SHUT_WR && peer_has_ended || how != libc::SHUT_RD && has_ended =>
        {
            Err(Errno::NOTCONN)
        }
        SecondShutdown::EndsReading if kind == Kind::Tcp && how == libc::SHUT_WR && has_ended => {
            Ok(libc::SHUT_RDWR)
        }
        _ => Ok(how),
    }
}

fn call(
    kqueue: c_int,
    changes: &[kevent],
    events: &mut [MaybeUninit<kevent>],
    timeout: Option<&libc::timespec>,
) -> Result<usize, Errno> {
    // "EINVAL: The specified time limit or filter is invalid" (F).
    let timeout = match timeout {
        Some(time) if time.tv_sec < 0 || !(0..1_000_000_000).contains(&time.tv_nsec) => {
            return Err(Errno::INVAL);
        }
        Some(time) => Some(Duration::new(time.tv_sec as u64, time.tv_nsec as u32)),
        None => None,
    };
    // "EBADF: The specified descriptor is invalid" (F).
    let queue = if PROCESS.load(Ordering::Relaxed) == process::id() {
        (locked(&QUEUES).as_ref()).and_then(|queues| queues.get(&kqueue).cloned())
    } else {
        None
    };
    let queue = queue.filter(|queue| queue.process == process::id());
    let queue = queue.ok_or(Errno::BADF)?;
    // "All changes contained in the changelist are applied before any pending events are read from
    // the queue" (F).
    let count = queue.apply(changes, events)?;
    match count {
        // "When nevents is zero, kevent will return immediately even if there is a timeout
        // specified" (F).
        0 if !events.is_empty() => queue.wait(events, timeout),
        // Receipts are "without draining any pending events" (F); so are errors: `kern_kevent` (K).
        _ => Ok(count),
    }
}

struct Kqueue {
    process: u32,
    /// The kqueue's descriptor, which is open until [`before_close`].
    number: RawFd,
    /// The epoll instance of the write filter.
    writers: OwnedFd,
    /// Makes the kqueue's descriptor readable while there is a byte in it.
    bell: (UnixDatagram, UnixDatagram),
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By serial number, which is also the data of the note's entry in an epoll instance.
    notes: HashMap<u64, Note>,
    /// "A kevent is identified by an (ident, filter) pair; there may only be one unique kevent per
    /// kqueue" (F).
    index: HashMap<(usize, c_short), u64>,
    /// The active notes in the order of activation, each by its serial number and the number of its
    /// place. An entry is skipped if its note has another place by now, or none.
    queue: VecDeque<(u64, u64)>,
    /// The number of notes that have a place in the queue.
    queued: usize,
    /// The notes whose descriptors are counted.
    counted: HashSet<u64>,
    last_serial: u64,
    last_place: u64,
    /// Whether there is a byte in the bell.
    rings: bool,
    /// Whether the kqueue's number may be another descriptor's.
    is_closed: bool,
}

/// An event that was added.
struct Note {
    /// The change that added it or last changed it.
    change: kevent,
    is_enabled: bool,
    is_active: bool,
    /// Its report when it was activated, if it is one-shot.
    report: Option<Report>,
    /// The state at its last activation, if Linux counts.
    seen: Option<Progress>,
    /// The number of its place in the queue, if it has one.
    place: Option<u64>,
    source: Source,
}

enum Source {
    Descriptor {
        /// Device and inode: another file may have the number by now.
        file: (u64, u64),
        kind: Kind,
    },
    /// Whether it is triggered.
    User(bool),
    /// A timerfd, and the number of expirations that were not reported yet.
    Timer(OwnedFd, isize),
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Tcp,
    UnixStream,
    Listener,
    OtherSocket,
    Fifo,
    Other,
}

/// A filter's report: `EV_EOF` or nothing, `fflags`, `data`.
type Report = (c_ushort, u32, isize);

/// What has happened to a descriptor in one direction. Linux wakes a poller more often than a BSD's
/// kernel activates a filter, and less often: a filter is activated when this has changed.
#[derive(Clone, Copy, PartialEq)]
struct Progress {
    /// TCP: the bytes that were received, or acknowledged. A Unix socket: the bytes that can be
    /// read, or that the peer has not read. Others: the bytes that can be read.
    bytes: u64,
    is_connecting: bool,
    is_end: bool,
    has_failed: bool,
}

impl Kqueue {
    fn new(number: RawFd) -> Result<Kqueue, Errno> {
        let writers = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = UnixDatagram::pair().map_err(|error| errno(&error))?;
        let epoll = borrow(number as usize);
        add(epoll, &bell.1, BELL, EventFlags::IN)?;
        add(epoll, &writers, WRITERS, EventFlags::IN)?;
        // Room from the start, so that allocations here do not count against the backend's budgets.
        let state = State {
            notes: HashMap::with_capacity(1_000),
            index: HashMap::with_capacity(1_000),
            queue: VecDeque::with_capacity(1_000),
            last_serial: WRITERS,
            ..State::default()
        };
        Ok(Kqueue {
            process: process::id(),
            number,
            writers,
            bell,
            state: Mutex::new(state),
        })
    }

    /// Returns the epoll instance of a filter.
    fn epoll(&self, filter: c_short) -> BorrowedFd<'_> {
        match filter {
            EVFILT_WRITE => self.writers.as_fd(),
            _ => borrow(self.number as usize),
        }
    }

    /// Applies changes. Returns the number of entries that it has written.
    fn apply(
        &self,
        changes: &[kevent],
        events: &mut [MaybeUninit<kevent>],
    ) -> Result<usize, Errno> {
        if changes.is_empty() {
            return Ok(0);
        }
        let state = &mut *locked(&self.state);
        // Earlier activity has earlier places in the queue. If this fails, the next wait returns
        // the error.
        let _ = self.collect(state);
        let mut count = 0;
        let mut result = Ok(());
        for change in changes {
            let error = self.register(state, change).err();
            // EV_RECEIPT "forces EV_ERROR to always be returned. When a filter is successfully
            // added the data field will be zero" (F).
            if error.is_none() && change.flags & EV_RECEIPT == 0 {
                continue;
            }
            // "If an error occurs while processing an element of the changelist and there is enough
            // room in the eventlist, then the event will be placed in the eventlist with EV_ERROR
            // set in flags and the system error in data. Otherwise, -1 will be returned" (F). "If
            // this flag is encountered and there is no remaining space in eventlist to hold the
            // EV_ERROR event, then subsequent changes will not get processed" (F), of EV_RECEIPT.
            let Some(event) = events.get_mut(count) else {
                result = error.map_or(Ok(()), Err);
                break;
            };
            event.write(kevent {
                flags: if flavours::here().receipts_have_flags {
                    change.flags | EV_ERROR
                } else {
                    EV_ERROR
                },
                data: error.map_or(0, |error| error.raw_os_error() as isize),
                ..*change
            });
            count += 1;
        }
        // What was ready when it was added is active from then on.
        let _ = self.collect(state);
        self.ring(state);
        result.map(|()| count)
    }

    /// Applies one change: `kqueue_register` (K).
    fn register(&self, state: &mut State, change: &kevent) -> Result<(), Errno> {
        let flavour = flavours::here();
        let is_descriptor = match change.filter {
            EVFILT_READ | EVFILT_WRITE => true,
            EVFILT_USER if flavour.has_user_events => false,
            EVFILT_TIMER => false,
            // "EINVAL: The specified time limit or filter is invalid" (F).
            _ => return Err(Errno::INVAL),
        };
        let key = (change.ident, change.filter);
        // "EBADF: The specified descriptor is invalid" (F).
        let file = if is_descriptor {
            Some(file(change.ident).ok_or(Errno::BADF)?)
        } else {
            None
        };
        let adds = change.flags & EV_ADD != 0;
        let deletes = change.flags & EV_DELETE != 0 && !(adds && flavour.changes_need_add);
        let mut known = state.index.get(&key).copied();
        if let Some(serial) = known.filter(|_| is_descriptor) {
            let (epoll, descriptor) = (self.epoll(change.filter), borrow(change.ident));
            let (data, flags) = (EventData::new_u64(serial), entry_flags(change.filter));
            if add(epoll, descriptor, serial, flags) != Err(Errno::EXIST) {
                // There is no entry any more, so the file was closed: "calling close on a file
                // descriptor will remove any kevents that reference the descriptor" (F).
                let _ = epoll::delete(epoll, descriptor);
                self.remove(state, serial);
                known = None;
            } else if adds || !flavour.changes_need_add {
                // A change evaluates the filter again (K), as epoll does.
                let note = state.note(serial);
                note.seen = None;
                epoll::modify(epoll, descriptor, data, flags)?;
            }
        }
        let serial = match known {
            Some(serial) if deletes => {
                self.remove(state, serial);
                return Ok(());
            }
            // "Re-adding an existing event will modify the parameters of the original event, and
            // not result in a duplicate entry" (F); its flags stay (K).
            Some(serial) => {
                if adds || !flavour.changes_need_add {
                    let note = state.note(serial);
                    let flags = note.change.flags;
                    note.change = kevent { flags, ..*change };
                }
                serial
            }
            None if adds && !deletes => self.add(state, change, file)?,
            // "ENOENT: The event could not be found to be modified or deleted" (F).
            None => return Err(Errno::NOENT),
        };
        let note = state.note(serial);
        // EV_ENABLE: "Permit kevent to return the event if it is triggered" (F). "Adding an event
        // automatically enables it, unless overridden by the EV_DISABLE flag" (F): this applies to
        // a new event, while an existing one stays as it is (K).
        if change.flags & EV_ENABLE != 0 {
            note.is_enabled = true;
        } else if change.flags & EV_DISABLE != 0 {
            note.is_enabled = false;
        }
        let is_active = match &mut note.source {
            // A timer that is added again is not restarted, as on DragonFly.
            Source::Descriptor { .. } | Source::Timer(..) => note.is_active,
            // NOTE_TRIGGER: "Cause the event to be triggered" (F). EV_CLEAR of a change resets it:
            // `filt_usertouch` (K).
            Source::User(triggered) => {
                *triggered |= change.fflags & NOTE_TRIGGER != 0;
                *triggered &= known.is_none() || change.flags & EV_CLEAR == 0;
                *triggered
            }
        };
        note.is_active = is_active;
        state.place(serial);
        Ok(())
    }

    /// Adds a note. Returns its serial number.
    fn add(
        &self,
        state: &mut State,
        change: &kevent,
        file: Option<(u64, u64)>,
    ) -> Result<u64, Errno> {
        state.last_serial += 1;
        let serial = state.last_serial;
        let source = match file {
            Some(file) => {
                let descriptor = borrow(change.ident);
                let kind = kind(descriptor);
                let is_other_end_gone = kind == Kind::Fifo
                    && change.filter == EVFILT_WRITE
                    && ready(descriptor, PollFlags::OUT)
                        .intersects(PollFlags::ERR | PollFlags::HUP);
                if let Some(error) = flavours::here()
                    .other_end_gone
                    .filter(|_| is_other_end_gone)
                {
                    return Err(error);
                }
                // A kqueue can only be read: `kqueue_kqfilter` in FreeBSD's sys/kern/kern_event.c.
                if change.filter == EVFILT_WRITE && is_kqueue(change.ident as RawFd) {
                    return Err(Errno::INVAL);
                }
                let (epoll, flags) = (self.epoll(change.filter), entry_flags(change.filter));
                match add(epoll, descriptor, serial, flags) {
                    // The entry of a note that was removed while the descriptor was closed.
                    Err(Errno::EXIST) => {
                        epoll::modify(epoll, descriptor, EventData::new_u64(serial), flags)
                    }
                    result => result,
                }?;
                Source::Descriptor { file, kind }
            }
            None if change.filter == EVFILT_USER => Source::User(false),
            None => {
                let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
                let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
                arm(&timer, change)?;
                let flags = entry_flags(EVFILT_TIMER);
                add(self.epoll(EVFILT_TIMER), &timer, serial, flags)?;
                Source::Timer(timer, 0)
            }
        };
        let mut change = *change;
        if !flavours::here().returns_all_flags {
            change.flags &= KEPT;
        }
        // EVFILT_TIMER: "This filter automatically sets the EV_CLEAR flag" (D).
        if change.filter == EVFILT_TIMER {
            change.flags |= EV_CLEAR;
        }
        let note = Note {
            change,
            is_enabled: true,
            is_active: false,
            report: None,
            seen: None,
            place: None,
            source,
        };
        if note.is_counted() {
            state.counted.insert(serial);
        }
        state.notes.insert(serial, note);
        state.index.insert((change.ident, change.filter), serial);
        Ok(serial)
    }

    /// Removes a note.
    fn remove(&self, state: &mut State, serial: u64) {
        let Some(note) = state.notes.remove(&serial) else {
            return;
        };
        state.index.remove(&(note.change.ident, note.change.filter));
        state.counted.remove(&serial);
        state.queued -= usize::from(note.place.is_some());
        if let Source::Descriptor { .. } = note.source {
            // It may be closed, and its number may be another file's by now.
            let _ = epoll::delete(self.epoll(note.change.filter), borrow(note.change.ident));
        }
    }

    /// Waits for events. Returns the number written.
    fn wait(
        &self,
        events: &mut [MaybeUninit<kevent>],
        timeout: Option<Duration>,
    ) -> Result<usize, Errno> {
        let end = timeout
            .filter(|timeout| !timeout.is_zero())
            .map(|timeout| now().saturating_add(timeout));
        let mut left = timeout;
        let mut entry = None;
        loop {
            let (count, has_more) = {
                let state = &mut *locked(&self.state);
                if let Some(serial) = entry {
                    state.activate(serial);
                }
                self.collect(state)?;
                let has_more = state.count();
                let count = self.report(state, events);
                self.ring(state);
                (count, has_more)
            };
            // "If the time limit expires, then kevent returns 0" (F).
            if count > 0 || left == Some(Duration::ZERO) {
                return Ok(count);
            }
            // "EINTR: A signal was delivered before the timeout expired and before any events were
            // placed on the kqueue for return" (F).
            let slice = match left {
                _ if !has_more => left,
                Some(left) => Some(left.min(SLICE)),
                None => Some(SLICE),
            };
            entry = wait_for_one(self.number, slice)?;
            left = end.map(|end| end.saturating_sub(now()));
        }
    }

    /// Makes the kqueue's descriptor readable while the queue is not empty. Must be called before
    /// the lock is released.
    fn ring(&self, state: &mut State) {
        let rings = state.queued > 0;
        if !rings {
            state.queue.clear();
        }
        if rings != state.rings {
            state.rings = rings;
            let (ours, theirs) = &self.bell;
            let done = if rings {
                ours.send(&[1])
            } else {
                theirs.recv(&mut [0])
            };
            done.expect("the bell has room for a byte, and then it has one");
        }
    }

    /// Activates the notes whose entries epoll reports.
    fn collect(&self, state: &mut State) -> Result<(), Errno> {
        self.take_entries(|serial| state.activate(serial))
    }

    /// Takes the entries that epoll reports, by the serial numbers of their notes.
    fn take_entries(&self, mut take: impl FnMut(u64)) -> Result<(), Errno> {
        for filter in [EVFILT_READ, EVFILT_WRITE] {
            loop {
                let mut buffer = [MaybeUninit::uninit(); 64];
                let now = Timespec::default();
                let (entries, rest) = epoll::wait(self.epoll(filter), &mut buffer, Some(&now))?;
                for entry in entries.iter() {
                    take(entry.data.u64());
                }
                if !rest.is_empty() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Reports the active notes with a true filter condition: `kqueue_scan` (K). Notes that find no
    /// room keep their places.
    fn report(&self, state: &mut State, events: &mut [MaybeUninit<kevent>]) -> usize {
        let mut count = 0;
        for _ in 0..state.queue.len() {
            if count == events.len() {
                break;
            }
            let (serial, place) = state.queue.pop_front().expect("it was as long");
            let Some(note) = state.notes.get_mut(&serial) else {
                continue;
            };
            if note.place != Some(place) {
                continue;
            }
            note.place = None;
            state.queued -= 1;
            // "The filter is also run when the user attempts to retrieve the kevent from the
            // kqueue. If the filter indicates that the condition that triggered the event no longer
            // holds, the kevent is removed from the kqueue and is not returned" (F).
            note.is_active = false;
            let change = note.change;
            // Before the evaluation: what comes in between is reported once more.
            note.seen = note.progress();
            // (Without it, on some systems, if it is one-shot.)
            let activated = note
                .report
                .filter(|_| !flavours::here().evaluates_one_shots);
            let report = match note.evaluate() {
                Ok(report) => Ok(activated.or(report)),
                error => error,
            };
            let (eof, fflags, data) = match report {
                Ok(Some(report)) => report,
                Ok(None) => continue,
                // "Calling close on a file descriptor will remove any kevents that reference the
                // descriptor" (F).
                Err(Closed) => {
                    self.remove(state, serial);
                    continue;
                }
            };
            events[count].write(kevent {
                flags: change.flags | eof,
                fflags,
                data,
                ..change
            });
            count += 1;
            if change.flags & EV_ONESHOT != 0 {
                // "After the user retrieves the event from the kqueue, it is deleted" (F).
                self.remove(state, serial);
                continue;
            }
            if change.flags & EV_CLEAR != 0 {
                // "Reset the state of the event after it is retrieved by the user" (F).
                note.clear();
            }
            let clears = change.flags & EV_CLEAR != 0 && flavours::here().clear_prevails;
            if change.flags & EV_DISPATCH != 0 && !clears {
                // "Disable the event source immediately after delivery of an event" (F).
                note.is_enabled = false;
            } else if change.flags & EV_CLEAR == 0 {
                note.is_active = true;
                state.place(serial);
            }
        }
        count
    }
}

impl State {
    fn note(&mut self, serial: u64) -> &mut Note {
        self.notes.get_mut(&serial).expect("the index has it")
    }

    /// Activates the note of an entry, if it was not removed meanwhile.
    fn activate(&mut self, serial: u64) {
        if let Some(note) = self.notes.get_mut(&serial)
            && note.is_news()
        {
            note.is_active = true;
            self.place(serial);
        }
    }

    /// Activates the notes of descriptors with counts that have changed, though epoll does not
    /// report it: for a TCP socket, the bytes that were acknowledged; for a pipe, those that were
    /// read. Returns whether more of that may come.
    fn count(&mut self) -> bool {
        let mut may_come = false;
        let counted = mem::take(&mut self.counted);
        for serial in counted.iter().copied() {
            let note = self.note(serial);
            let (before, now) = (note.seen, note.progress());
            let is_writer = note.change.filter == EVFILT_WRITE;
            note.seen = now;
            let (Some(before), Some(now)) = (before, now) else {
                continue;
            };
            let (is_event, waits) = match note.kind() {
                Some(Kind::Tcp) => (now.bytes > before.bytes, note.is_unacknowledged()),
                _ => (
                    now.bytes < before.bytes && (is_writer || now.bytes > 0 || now.is_end),
                    is_writer && now.bytes > 0,
                ),
            };
            may_come |= waits;
            if is_event {
                note.is_active = true;
                self.place(serial);
            }
        }
        self.counted = counted;
        may_come
    }

    /// Gives a note its place in the queue if it is active and enabled; otherwise takes the place
    /// away. EV_DISABLE: "Disable the event so kevent will not return it" (F).
    fn place(&mut self, serial: u64) {
        let note = self
            .notes
            .get_mut(&serial)
            .expect("the caller has found it");
        match (note.is_active && note.is_enabled, note.place) {
            (true, None) => {
                self.last_place += 1;
                note.place = Some(self.last_place);
                self.queue.push_back((serial, self.last_place));
                self.queued += 1;
            }
            (false, Some(_)) => {
                note.place = None;
                self.queued -= 1;
            }
            _ => {}
        }
    }
}

/// Error: the descriptor was closed.
struct Closed;

impl Note {
    fn kind(&self) -> Option<Kind> {
        match &self.source {
            Source::Descriptor { kind, .. } => Some(*kind),
            _ => None,
        }
    }

    /// Whether only news activates it.
    fn is_edge(&self) -> bool {
        self.change.flags & (EV_CLEAR | EV_ONESHOT) != 0
    }

    /// Whether its counts are looked at in each wait.
    fn is_counted(&self) -> bool {
        let is_writer = self.change.filter == EVFILT_WRITE;
        self.is_edge()
            && match self.kind() {
                Some(Kind::Tcp) => is_writer,
                Some(Kind::Fifo) => is_writer || flavours::here().own_reads_are_events,
                _ => false,
            }
    }

    /// Whether an entry of epoll is an activation.
    fn is_news(&mut self) -> bool {
        let is_writer = self.change.filter == EVFILT_WRITE;
        if self.kind() == Some(Kind::Fifo) && is_writer && !flavours::here().full_pipe_tells_end {
            let said = ready(borrow(self.change.ident), PollFlags::OUT);
            if said.contains(PollFlags::ERR) && !said.contains(PollFlags::OUT) {
                return false;
            }
        }
        if !self.is_edge() {
            return true;
        }
        let now = self.progress();
        let is_news = now.is_none() || now != self.seen || self.kind() == Some(Kind::Fifo);
        self.seen = now;
        if is_news && self.change.flags & EV_ONESHOT != 0 {
            self.report = self.evaluate().ok().flatten();
        }
        is_news
    }

    /// Returns the state of the descriptor, if its activations are judged by that.
    fn progress(&self) -> Option<Progress> {
        match self.kind() {
            Some(Kind::Tcp) => self.state(),
            Some(Kind::Fifo) if self.is_counted() => self.state(),
            _ => None,
        }
    }

    /// Returns the state of the descriptor, if it is still open.
    fn state(&self) -> Option<Progress> {
        let Source::Descriptor { file: of, kind } = &self.source else {
            return None;
        };
        if file(self.change.ident) != Some(*of) {
            return None;
        }
        let descriptor = borrow(self.change.ident);
        let said = ready(descriptor, PollFlags::RDHUP);
        let is_writer = self.change.filter == EVFILT_WRITE;
        let tcp = match kind {
            Kind::Tcp => Some(tcp_info(descriptor)?),
            _ => None,
        };
        Some(Progress {
            bytes: match &tcp {
                Some(info) if is_writer => info.bytes_acked,
                Some(info) => info.bytes_received,
                None if is_writer && *kind == Kind::UnixStream => unread_by_peer(descriptor)?,
                None => rustix::io::ioctl_fionread(descriptor).ok()?,
            },
            is_connecting: tcp.as_ref().is_some_and(|info| info.state == SYN_SENT),
            is_end: match &tcp {
                Some(info) if is_writer => {
                    said.contains(PollFlags::HUP) || has_sent_fin(info.state)
                }
                _ => said.intersects(PollFlags::RDHUP | PollFlags::HUP),
            },
            has_failed: said.contains(PollFlags::ERR),
        })
    }

    /// Whether bytes of a TCP socket are not acknowledged yet.
    fn is_unacknowledged(&self) -> bool {
        tcp_info(borrow(self.change.ident)).is_some_and(|info| info.unacked)
    }

    /// Evaluates the filter's condition.
    fn evaluate(&mut self) -> Result<Option<Report>, Closed> {
        let report = match &mut self.source {
            Source::Descriptor { file: of, kind } => {
                if file(self.change.ident) != Some(*of) {
                    return Err(Closed);
                }
                let descriptor = borrow(self.change.ident);
                match self.change.filter {
                    EVFILT_READ => can_read(descriptor, *kind),
                    _ => can_write(descriptor, *kind),
                }
            }
            Source::User(triggered) => triggered.then_some((0, 0, 0)),
            // "On return, data contains the number of times the timeout has expired since the last
            // arming or last delivery of the timer event" (D).
            Source::Timer(timer, expired) => {
                let mut count = [0; 8];
                if rustix::io::read(timer, &mut count) == Ok(8) {
                    *expired += u64::from_ne_bytes(count) as isize;
                }
                (*expired > 0).then_some((0, 0, *expired))
            }
        };
        Ok(report)
    }

    fn clear(&mut self) {
        match &mut self.source {
            Source::Descriptor { .. } => {}
            Source::User(triggered) => *triggered = false,
            Source::Timer(_, expired) => *expired = 0,
        }
    }
}

/// EVFILT_READ: "Takes a descriptor as the identifier, and returns whenever there is data available
/// to read" (F).
fn can_read(descriptor: BorrowedFd<'_>, kind: Kind) -> Option<Report> {
    let said = ready(descriptor, PollFlags::IN | PollFlags::RDHUP);
    let is_end = match kind {
        // "If the read direction of the socket has shutdown, then the filter also sets EV_EOF in
        // flags" (F). (A socket that was never connected has POLLHUP alone.)
        Kind::Tcp | Kind::UnixStream | Kind::OtherSocket => said.contains(PollFlags::RDHUP),
        // Linux disconnects a listener that is shut down.
        Kind::Listener => said.contains(PollFlags::HUP),
        // A pipe's write end.
        Kind::Fifo if said.contains(PollFlags::ERR) && !flavours::here().write_end_tells_end => {
            return None;
        }
        // "When the last writer disconnects, the filter will set EV_EOF in flags" (F).
        Kind::Fifo => said.intersects(PollFlags::HUP | PollFlags::ERR),
        Kind::Other => said.contains(PollFlags::HUP),
    };
    if !is_end && !said.intersects(PollFlags::IN | PollFlags::ERR) {
        return None;
    }
    // "On return, data contains the number of bytes of protocol data available to read" (F), also
    // at the end: "it is possible for EOF to be returned (indicating the connection is gone) while
    // there is still data pending in the socket buffer" (F).
    let data = rustix::io::ioctl_fionread(descriptor).unwrap_or(1) as isize;
    Some(end(descriptor, is_end, kind, said, data))
}

/// EVFILT_WRITE: "Takes a descriptor as the identifier, and returns whenever it is possible to
/// write to the descriptor" (F).
fn can_write(descriptor: BorrowedFd<'_>, kind: Kind) -> Option<Report> {
    let said = ready(descriptor, PollFlags::OUT | PollFlags::RDHUP);
    let is_end = match kind {
        // A stream that was never connected cannot be written to: `filt_sowrite` in FreeBSD's
        // sys/kern/uipc_socket.c.
        Kind::Tcp | Kind::UnixStream
            if said.contains(PollFlags::HUP) && !said.contains(PollFlags::RDHUP) =>
        {
            return None;
        }
        // Sending is shut down, by the peer or by ourselves: `filt_sowrite` again.
        Kind::Tcp => {
            said.contains(PollFlags::HUP)
                || tcp_info(descriptor).is_some_and(|info| has_sent_fin(info.state))
        }
        Kind::UnixStream => said.contains(PollFlags::HUP) || cannot_send(descriptor),
        Kind::Listener | Kind::OtherSocket => said.contains(PollFlags::HUP),
        // "The filter will set EV_EOF when the reader disconnects" (F).
        Kind::Fifo | Kind::Other => said.intersects(PollFlags::HUP | PollFlags::ERR),
    };
    if !is_end && !said.intersects(PollFlags::OUT | PollFlags::ERR) {
        return None;
    }
    // "For sockets, pipes and fifos, data will contain the amount of space remaining in the write
    // buffer" (F).
    let data = match kind {
        Kind::Fifo | Kind::Other => 1,
        _ => sockopt::socket_send_buffer_size(descriptor).unwrap_or(1) as isize,
    };
    Some(end(descriptor, is_end, kind, said, data))
}

/// Returns a filter's report.
fn end(
    descriptor: BorrowedFd<'_>,
    is_end: bool,
    kind: Kind,
    said: PollFlags,
    data: isize,
) -> Report {
    if !is_end {
        return (0, 0, data);
    }
    // "… and returns the socket error (if any) in fflags" (F), without clearing it. A Unix socket
    // has none after its peer's close, also if that left bytes unread.
    let has_failed = said.contains(PollFlags::ERR) && kind == Kind::Tcp;
    let error = match tcp_info(descriptor).filter(|_| has_failed) {
        Some(info) if info.bytes_acked == 0 => libc::ECONNREFUSED,
        Some(_) => libc::ECONNRESET,
        None => 0,
    };
    (EV_EOF, error as u32, data)
}

/// Returns the current poll(2) flags of a descriptor.
fn ready(descriptor: BorrowedFd<'_>, flags: PollFlags) -> PollFlags {
    let mut set = [PollFd::from_borrowed_fd(descriptor, flags)];
    loop {
        match poll(&mut set, Some(&Timespec::default())) {
            Err(Errno::INTR) => {}
            _ => return set[0].revents(),
        }
    }
}

/// What the model needs of `tcp_info`.
struct TcpInfo {
    state: u8,
    unacked: bool,
    bytes_acked: u64,
    bytes_received: u64,
}

const SYN_SENT: u8 = 2;

fn tcp_info(descriptor: BorrowedFd<'_>) -> Option<TcpInfo> {
    // SAFETY: all zero is a valid `tcp_info`, which is made of integers.
    let mut info: TcpInfoOfLinux = unsafe { mem::zeroed() };
    let mut length = size_of::<TcpInfoOfLinux>() as libc::socklen_t;
    // SAFETY: libc::getsockopt writes at most `length` bytes, those of `info`.
    let result = unsafe {
        libc::getsockopt(
            descriptor.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &mut length,
        )
    };
    (result == 0).then_some(TcpInfo {
        state: info.bytes[0],
        unacked: info.numbers[4] > 0 || info.notsent_bytes > 0,
        bytes_acked: info.bytes_acked,
        bytes_received: info.bytes_received,
    })
}

/// The beginning of `struct tcp_info` in include/uapi/linux/tcp.h.
#[repr(C)]
struct TcpInfoOfLinux {
    /// The first one is `tcpi_state`.
    bytes: [u8; 8],
    /// The fifth one is `tcpi_unacked`.
    numbers: [u32; 24],
    rates: [u64; 2],
    bytes_acked: u64,
    bytes_received: u64,
    segments: [u32; 2],
    notsent_bytes: u32,
}

/// Whether a TCP socket's own direction is shut down: judged by its state, since reading that does
/// not change it.
fn has_sent_fin(state: u8) -> bool {
    const FIN_WAIT1: u8 = 4;
    const FIN_WAIT2: u8 = 5;
    const TIME_WAIT: u8 = 6;
    const LAST_ACK: u8 = 9;
    const CLOSING: u8 = 11;
    matches!(
        state,
        FIN_WAIT1 | FIN_WAIT2 | TIME_WAIT | LAST_ACK | CLOSING
    )
}

/// Returns how much of a Unix socket's send buffer is in use: unix(7), `SIOCOUTQ`.
fn unread_by_peer(descriptor: BorrowedFd<'_>) -> Option<u64> {
    let mut bytes: c_int = 0;
    // SAFETY: libc::ioctl with this request writes an integer, `bytes`.
    let result = unsafe { libc::ioctl(descriptor.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    (result == 0).then_some(bytes as u64)
}

/// Whether a Unix stream's own direction is shut down: then sending no bytes fails with `EPIPE`,
/// and otherwise it has no effect.
fn cannot_send(descriptor: BorrowedFd<'_>) -> bool {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::send(descriptor, &[], flags) == Err(Errno::PIPE)
}

/// Returns device and inode of an open descriptor.
fn file(ident: usize) -> Option<(u64, u64)> {
    if !RawFd::try_from(ident).is_ok_and(|number| number >= 0) {
        return None;
    }
    let stat = rustix::fs::fstat(borrow(ident)).ok()?;
    Some((stat.st_dev as u64, stat.st_ino as u64))
}

fn kind(descriptor: BorrowedFd<'_>) -> Kind {
    let stat = rustix::fs::fstat(descriptor).expect("it is open");
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo => Kind::Fifo,
        FileType::Socket if sockopt::socket_acceptconn(descriptor) == Ok(true) => Kind::Listener,
        FileType::Socket => match (
            sockopt::socket_domain(descriptor),
            sockopt::socket_type(descriptor),
        ) {
            (Ok(AddressFamily::UNIX), Ok(SocketType::STREAM)) => Kind::UnixStream,
            (Ok(AddressFamily::INET | AddressFamily::INET6), Ok(SocketType::STREAM)) => Kind::Tcp,
            _ => Kind::OtherSocket,
        },
        _ => Kind::Other,
    }
}

/// Arms a timer's descriptor: `data` is the time, in milliseconds unless `fflags` says otherwise,
/// and "the timer will be periodic unless EV_ONESHOT is specified" (D).
fn arm(timer: &OwnedFd, change: &kevent) -> Result<(), Errno> {
    let unit = match change.fflags {
        0 => 1_000_000,
        NOTE_NSECONDS => 1,
        _ => return Err(Errno::INVAL),
    };
    let time = u64::try_from(change.data).map_err(|_| Errno::INVAL)?;
    // All zero would disarm it.
    let time = timespec(Duration::from_nanos(time.saturating_mul(unit).max(1)));
    let interval = match change.flags & EV_ONESHOT {
        0 => time,
        _ => Timespec::default(),
    };
    timerfd_settime(
        timer,
        TimerfdTimerFlags::empty(),
        &Itimerspec {
            it_interval: interval,
            it_value: time,
        },
    )
    .map(drop)
}

fn entry_flags(filter: c_short) -> EventFlags {
    match filter {
        EVFILT_WRITE => EventFlags::OUT | EventFlags::ET,
        _ => EventFlags::IN | EventFlags::RDHUP | EventFlags::ET,
    }
}

fn add(epoll: impl AsFd, entry: impl AsFd, data: u64, flags: EventFlags) -> Result<(), Errno> {
    epoll::add(epoll, entry, EventData::new_u64(data), flags)
}

/// Waits for an entry of the kqueue's epoll instance. (rustix's call rounds to milliseconds.)
fn wait_for_one(kqueue: RawFd, left: Option<Duration>) -> Result<Option<u64>, Errno> {
    let timeout = left.map(|left| libc::timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    let mut entry = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: libc::syscall with the arguments of epoll_pwait2(2): the kernel writes at most one
    // entry, and reads the timeout if there is one.
    let result = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            kqueue,
            &raw mut entry,
            1 as c_int,
            timeout.as_ref().map_or(ptr::null(), ptr::from_ref),
            ptr::null::<c_void>(),
            0usize,
        )
    };
    match result {
        -1 => Err(errno(&io::Error::last_os_error())),
        count => Ok((count > 0).then_some(entry.u64)),
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).expect("a system call has failed")
}

/// Returns the kernel's time, independent of the process's clock.
fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: time.subsec_nanos().into(),
    }
}

fn borrow(ident: usize) -> BorrowedFd<'static> {
    // SAFETY: BorrowedFd::borrow_raw for the length of one system call, which returns EBADF for a
    // descriptor that is not open. The caller of `kevent` ensures that it may be used.
    unsafe { BorrowedFd::borrow_raw(ident as RawFd) }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
