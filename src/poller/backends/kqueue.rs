//! The kqueue backend: macOS and the other Apple systems, FreeBSD, NetBSD, OpenBSD, DragonFly.
//! Level, one-shot and edges; one system call per wait, and one for a change of both directions.
//!
//! A kqueue watches a descriptor by *filters*, one for reading and one for writing, each added,
//! reported and removed separately. A **table** records the requested interest and the kernel's
//! filters, and detects duplicates, which a kqueue would take for changes. A change removes the
//! existing filters and adds the wanted ones, in one call, since adding an existing filter does not
//! change its flags (`kqueue_register` in FreeBSD's sys/kern/kern_event.c). Adding a filter reports
//! a descriptor that is ready already.
//!
//! **Why no event is stale or lost.** Each report of a filter carries the *generation* of the
//! change that added it (a token need not fit into a pointer). Changes are made under the table's
//! lock, and reports are read under it, after the wait. If the generations differ, the entry was
//! changed since, and the filters added then report again.
//!
//! **One-shot** is `EV_CLEAR`, and a mark in the table: once either filter was reported, the entry
//! is spent. A later report of a spent entry is dropped, and its filter deleted, so each change
//! costs at most two such reports. `EV_ONESHOT` would be a flag of each filter, not of the source,
//! and on NetBSD deleting such a filter hangs forever if another thread's `kevent` is returning it
//! (seen on 7.99.34).
//!
//! Traps, each seen in the kernels' sources or manuals (docs/PLATFORM.md lists them):
//!
//! * `EV_EOF` on the read filter is set even with data unread: readable, and closed. On the write
//!   filter our own `shutdown(Write)` sets it too, so it is no hint there. `fflags` is the socket's
//!   error.
//! * Some systems refuse a write filter on a pipe whose other end is closed (`EPIPE`, NetBSD's
//!   `EBADF`): it is reported from [`Table::broken`], by our own notification.
//! * On some systems the write filter of a full pipe reports nothing when the reader closes. The
//!   read filter of its write end does: see [`needs_end`].
//! * Closing a descriptor removes its filters, but the table keeps its entry: hence the contract's
//!   duty to deregister first.
//! * A change of Darwin's `EVFILT_USER` overwrites its `udata`: so a notification is recognised by
//!   its filter.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::FileType;
use rustix::io::{Errno, retry_on_intr};

use super::fd_table::{FdEntry, FdTable};
use super::notifier::{Notifier, WakeDescriptor, WakeSource};
use crate::poller::capabilities::Capabilities;
use crate::poller::error::failed;
use crate::poller::event::{Event, Events, Interest, Mode, Ready};
use crate::poller::selector::{Change, Request, Selector, WaitUntil};
use crate::sync::Mutex;
use crate::sys::{self as system, BorrowedDescriptor, LONGEST_TIMEOUT};

#[cfg(any(test, polder_kqueue_model))]
mod flavours;
#[cfg(test)]
mod manual_tests;
mod sys;

use sys::{
    EV_ADD, EV_CLEAR, EV_DELETE, EV_EOF, EV_ONESHOT, EV_RECEIPT, EVFILT_READ, EVFILT_TIMER,
    EVFILT_WRITE, Filter, Flags, Kevent, Queue,
};

/// The identifier of our user event and of our timer; each is the only one of its filter.
const SELF_IDENT: usize = 0;

/// The generation of our own descriptor, used if there is no user event. No change has it.
const SELF_UDATA: usize = 0;

/// The filters of a descriptor, in the order in which they are added.
const FILTERS: [(Interest, Filter); 2] = [
    (Interest::WRITABLE, EVFILT_WRITE),
    (Interest::READABLE, EVFILT_READ),
];

pub(in crate::poller) const IS_BUILT: bool = true;

pub(in crate::poller) fn open() -> io::Result<Box<dyn Selector>> {
    Ok(Box::new(Kqueue::new()?))
}

struct Kqueue {
    queue: Arc<Queue>,
    notifier: Notifier<Wake>,
    table: Mutex<Table>,
    /// When our timer fires, for a foreign loop.
    armed: Mutex<Option<Instant>>,
    buffer: Mutex<Buffer>,
}

#[derive(Default)]
struct Buffer(Vec<Kevent>);

// SAFETY: an event is not `Send` only because its `udata` has a pointer type. All of ours were made
// from integers and are read as such.
unsafe impl Send for Buffer {}

#[derive(Default)]
struct Table {
    fds: FdTable<FilterState>,
    last_generation: usize,
    /// Descriptors with interest in writing that are known to be broken.
    broken: Vec<RawFd>,
}

#[derive(Clone, Copy, Default, PartialEq)]
struct FilterState {
    generation: usize,
    filters: Interest,
    /// Whether it is one-shot, and was reported.
    spent: bool,
    /// Whether it is in [`Table::broken`].
    broken: bool,
}

enum Wake {
    User(Arc<Queue>),
    /// For systems without user events.
    Descriptor(WakeDescriptor),
}

impl WakeSource for Wake {
    fn write(&self) -> io::Result<()> {
        match (self, sys::USER) {
            (Wake::User(queue), Some((filter, trigger))) => {
                // No flags: FreeBSD would take `EV_CLEAR` here for "clear it".
                let mut change = sys::kevent_of(SELF_IDENT, filter, 0, SELF_UDATA);
                change.fflags = trigger;
                let result = retry_on_intr(|| queue.kevent(&[change], &mut [], None));
                result.map_err(|error| failed("kevent", error))?;
                Ok(())
            }
            (Wake::User(_), None) => unreachable!("it was made of a user event"),
            (Wake::Descriptor(fd), _) => fd.write(),
        }
    }

    fn drain(&self) {
        if let Wake::Descriptor(fd) = self {
            fd.drain();
        }
    }

    fn is_bounded(&self) -> bool {
        matches!(self, Wake::Descriptor(fd) if fd.is_bounded())
    }
}

impl Wake {
    fn new(queue: &Arc<Queue>) -> io::Result<Wake> {
        // The reason for a refusal does not matter: the error of the other way is returned.
        if let Some((filter, _)) = sys::USER {
            let change = sys::kevent_of(
                SELF_IDENT,
                filter,
                EV_ADD | EV_CLEAR | EV_RECEIPT,
                SELF_UDATA,
            );
            if change_one(queue, change).is_ok() {
                return Ok(Wake::User(queue.clone()));
            }
        }
        Wake::of_descriptor(queue)
    }

    fn of_descriptor(queue: &Queue) -> io::Result<Wake> {
        let fd = WakeDescriptor::new()?;
        let number = fd.descriptor().as_raw_fd() as usize;
        let flags = EV_ADD | EV_CLEAR | EV_RECEIPT;
        let change = sys::kevent_of(number, EVFILT_READ, flags, SELF_UDATA);
        change_one(queue, change).map_err(|error| failed("kevent", error))?;
        Ok(Wake::Descriptor(fd))
    }
}

fn change_one(queue: &Queue, change: Kevent) -> Result<(), Errno> {
    change_all(queue, [change])
}

/// Applies changes, which must have `EV_RECEIPT`. Returns the error of the last one.
fn change_all<const N: usize>(queue: &Queue, changes: [Kevent; N]) -> Result<(), Errno> {
    let mut receipts = changes;
    let count = retry_on_intr(|| queue.kevent(&changes, &mut receipts, Some(Duration::ZERO)))?;
    match receipts[..count].last().map_or(0, sys::error) {
        0 => Ok(()),
        number => Err(Errno::from_raw_os_error(number)),
    }
}

impl Kqueue {
    fn new() -> io::Result<Kqueue> {
        let queue = Arc::new(Queue::new()?);
        let wake = Wake::new(&queue)?;
        Ok(Kqueue::with(queue, wake))
    }

    fn with(queue: Arc<Queue>, wake: Wake) -> Kqueue {
        Kqueue {
            queue,
            notifier: Notifier::with(wake),
            table: Mutex::new(Table::default()),
            armed: Mutex::new(None),
            buffer: Mutex::new(Buffer::default()),
        }
    }

    /// Sets the filters of an entry's interest, both or none. If that fails, the entry has none.
    fn set_filters(&self, table: &mut Table, descriptor: BorrowedDescriptor<'_>) -> io::Result<()> {
        let number = descriptor.as_raw_fd();
        let FdEntry { request, data, .. } = &mut table.fds.all[number as usize];
        let flags = EV_ADD | flags(request.mode);
        let mut changes = [change(number, EVFILT_READ, EV_DELETE, SELF_UDATA); 4];
        let mut count = 0;
        let mut push = |change| {
            changes[count] = change;
            count += 1;
        };
        for (direction, filter) in FILTERS {
            if data.filters.contains(direction) {
                push(change(number, filter, EV_DELETE, SELF_UDATA));
            }
        }
        for (direction, filter) in FILTERS {
            if request.interest.contains(direction) {
                push(change(number, filter, flags, data.generation));
            }
        }
        if needs_end(descriptor, request.interest) {
            push(change(
                number,
                EVFILT_READ,
                EV_ADD | EV_CLEAR,
                data.generation,
            ));
        }
        if count == 0 {
            return Ok(());
        }
        let mut receipts = changes;
        let (changes, receipts) = (&changes[..count], &mut receipts[..count]);
        // The receipts leave no room for events.
        let count = retry_on_intr(|| self.queue.kevent(changes, receipts, Some(Duration::ZERO)))
            .map_err(|error| failed("kevent", error))?;
        data.filters = Interest::NONE;
        let (mut refused, mut is_broken) = (None, false);
        for (change, receipt) in changes.iter().zip(&receipts[..count]) {
            if change.flags & EV_ADD == 0 {
                // The descriptor was closed behind our back, with its filter.
                continue;
            }
            let is_write = change.filter == EVFILT_WRITE;
            match sys::error(receipt) {
                0 if is_write => data.filters |= Interest::WRITABLE,
                0 => data.filters |= Interest::READABLE,
                error if is_write && is_reader_gone(descriptor, error) => is_broken = true,
                // The extra filter of `needs_end`: OpenBSD's named pipes refuse it on a write end
                // (`fifo_kqfilter` in sys/miscfs/fifofs/fifo_vnops.c), and do without.
                _ if !is_write && needs_end_of(request.interest) => {}
                error => refused = Some(error),
            }
        }
        if let Some(error) = refused {
            let change = |filter| change(number, filter, EV_DELETE, SELF_UDATA);
            for (direction, filter) in FILTERS {
                if data.filters.contains(direction) {
                    let _ = change_one(&self.queue, change(filter));
                }
            }
            data.filters = Interest::NONE;
            return Err(refusal(error));
        }
        if is_broken {
            self.mark_broken(table, number)?;
        }
        Ok(())
    }

    /// Reports a descriptor as writable although it has no write filter.
    fn mark_broken(&self, table: &mut Table, number: RawFd) -> io::Result<()> {
        let data = &mut table.fds.all[number as usize].data;
        if !data.broken {
            data.broken = true;
            // A change has reset the flag, and the list may have the number from before.
            if !table.broken.contains(&number) {
                table.broken.push(number);
            }
        }
        // Under the table's lock, so that the woken thread finds it.
        self.notifier.wake()
    }
}

impl Table {
    fn next_generation(&mut self) -> usize {
        self.last_generation = self.last_generation.wrapping_add(1).max(SELF_UDATA + 1);
        self.last_generation
    }

    fn collect(
        &mut self,
        queue: &Queue,
        report: &Kevent,
        last: &mut Option<usize>,
        events: &mut Events,
    ) {
        let Some(entry) = self.fds.all.get_mut(report.ident) else {
            return;
        };
        let (Request { token, mode, .. }, data) = (entry.request, &mut entry.data);
        if !entry.registered || data.generation != sys::generation(report) {
            return;
        }
        if report.filter == EVFILT_READ && needs_end_of(entry.request.interest) {
            // Registered only for the hang-up, which `collect_broken` reports.
            if report.flags & EV_EOF != 0 {
                data.broken = true;
                if !self.broken.contains(&(report.ident as RawFd)) {
                    self.broken.push(report.ident as RawFd);
                }
            }
            return;
        }
        // A report of the other filter in the same wait belongs to the same event.
        let is_second = *last == Some(report.ident);
        if mode == Mode::OneShot {
            if data.spent && !is_second {
                // Its filter is deleted, or each arrival would end a wait. If that fails, the
                // descriptor was closed.
                let number = report.ident as RawFd;
                let _ = change_one(queue, change(number, report.filter, EV_DELETE, SELF_UDATA));
                data.filters -= match report.filter {
                    EVFILT_READ => Interest::READABLE,
                    _ => Interest::WRITABLE,
                };
                return;
            }
            data.spent = true;
        }
        let ready = ready(report, data.filters);
        match events.list.last_mut() {
            Some(event) if is_second => *event = Event::new(token, event.ready() | ready),
            _ => events.push(Event::new(token, ready)),
        }
        *last = Some(report.ident);
    }

    /// Returns whether there is more to report: there was no room, or a level is reported
    /// repeatedly.
    fn collect_broken(&mut self, events: &mut Events) -> bool {
        let Table { fds, broken, .. } = self;
        broken.retain(|number| {
            let Some(FdEntry { request, data, .. }) = fds.all.get_mut(*number as usize) else {
                return false;
            };
            if data.broken && !data.spent {
                let ready = Ready::READABLE | Ready::WRITABLE | Ready::ERROR;
                let is_full = events.len() == events.limit();
                let mut reported = events.list.iter_mut();
                match reported.find(|event| event.token() == request.token) {
                    Some(event) => *event = Event::new(request.token, event.ready() | ready),
                    None if is_full => return true,
                    None => events.push(Event::new(request.token, ready)),
                }
                data.spent = request.mode == Mode::OneShot;
            }
            data.broken &= request.mode == Mode::Level;
            data.broken
        });
        !broken.is_empty()
    }
}

impl Selector for Kqueue {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            priority: false,
            tcp_room_on_demand: false,
            ..Capabilities::ALL
        }
    }

    fn change(&self, descriptor: BorrowedDescriptor<'_>, change: Change) -> io::Result<()> {
        let number = descriptor.as_raw_fd();
        let table = &mut *self.table.lock();
        table.fds.check(number, change)?;
        let generation = table.next_generation();
        let entry = table.fds.change(number, change);
        let filters = match change {
            // Deregistering, or closing the descriptor, has removed its predecessor's.
            Change::Register(_) => Interest::NONE,
            Change::Modify(_) | Change::Deregister => entry.data.filters,
        };
        entry.data = FilterState {
            generation,
            filters,
            ..FilterState::default()
        };
        let result = self.set_filters(table, descriptor);
        let is_left = match change {
            Change::Register(_) => result.is_err(),
            Change::Modify(_) => false,
            Change::Deregister => true,
        };
        if is_left {
            // The whole entry is reset: one that was marked as broken would be reported.
            table.fds.change(number, Change::Deregister).data = FilterState::default();
            table.fds.trim();
        }
        result
    }

    fn wait(&self, events: &mut Events, until: WaitUntil) -> io::Result<bool> {
        let timeout = until.duration();
        let cut = timeout.map(|timeout| timeout.min(LONGEST_TIMEOUT));
        let limit = events.limit();
        let buffer = &mut self.buffer.lock().0;
        if buffer.len() < limit {
            let unused = sys::kevent_of(SELF_IDENT, EVFILT_TIMER, 0, SELF_UDATA);
            buffer.resize(limit, unused);
        }
        let count = (self.queue)
            .kevent(&[], &mut buffer[..limit], cut)
            .map_err(|error| failed("kevent", error))?;
        let over = match until {
            WaitUntil::Now => true,
            WaitUntil::At { .. } => count == 0 && cut == timeout,
            WaitUntil::Forever => false,
        };
        let mut notified = false;
        if count > 0 {
            let mut last = None;
            let mut table = self.table.lock();
            for report in &buffer[..count] {
                match report.filter {
                    EVFILT_TIMER => *self.armed.lock() = None,
                    EVFILT_READ | EVFILT_WRITE if sys::generation(report) != SELF_UDATA => {
                        table.collect(&self.queue, report, &mut last, events);
                    }
                    // Our user event, or our own descriptor.
                    _ => notified |= self.notifier.acknowledge(),
                }
            }
            if !table.broken.is_empty() && table.collect_broken(events) {
                self.notifier.wake()?;
            }
        }
        if count > 0 && (over || !events.is_empty()) {
            // The buffer may have been full: see `Notifier::reset`.
            self.notifier.reset();
        }
        if over || notified || !events.is_empty() {
            Ok(over)
        } else {
            // The wait was ended by a stale report, by our timer, or after a part of the timeout.
            Err(Errno::INTR.into())
        }
    }

    fn notify(&self) -> io::Result<()> {
        self.notifier.notify()
    }

    fn descriptor(&self) -> io::Result<BorrowedDescriptor<'_>> {
        Ok(self.queue.descriptor())
    }

    fn arm(&self, until: WaitUntil) -> io::Result<()> {
        let mut armed = self.armed.lock();
        let timer =
            |flags| sys::kevent_of(SELF_IDENT, EVFILT_TIMER, flags | EV_RECEIPT, SELF_UDATA);
        let delete = timer(EV_DELETE);
        let (result, deadline) = match until {
            WaitUntil::At { deadline, .. }
                if *armed == Some(deadline) && system::has_kernel_clock() =>
            {
                return Ok(());
            }
            WaitUntil::At { deadline, now } => {
                let mut add = timer(EV_ADD | EV_ONESHOT);
                sys::set_timer(&mut add, (deadline - now).min(LONGEST_TIMEOUT));
                // DragonFly does not restart a timer that is only added again (`kqueue_register` in
                // its sys/kern/kern_event.c).
                (change_all(&self.queue, [delete, add]), Some(deadline))
            }
            WaitUntil::Now => return self.notifier.wake(),
            WaitUntil::Forever if armed.is_none() => return Ok(()),
            WaitUntil::Forever => (change_one(&self.queue, delete), None),
        };
        match result {
            // `NOENT`: one-shot, and reported.
            Ok(()) | Err(Errno::NOENT) => *armed = deadline,
            Err(error) => return Err(failed("kevent", error)),
        }
        Ok(())
    }
}

fn change(number: RawFd, filter: Filter, flags: Flags, generation: usize) -> Kevent {
    sys::kevent_of(number as usize, filter, flags | EV_RECEIPT, generation)
}

fn flags(mode: Mode) -> Flags {
    match mode {
        Mode::Level => 0,
        Mode::OneShot | Mode::Edge => EV_CLEAR,
    }
}

/// Whether a pipe that is watched for writing alone also needs a read filter: see
/// [`sys::full_pipe_tells_no_end`].
fn needs_end(descriptor: BorrowedDescriptor<'_>, interest: Interest) -> bool {
    needs_end_of(interest)
        && rustix::fs::fstat(descriptor)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}

fn needs_end_of(interest: Interest) -> bool {
    interest.is_writable() && !interest.is_readable() && sys::full_pipe_tells_no_end()
}

/// Whether adding a write filter failed because the other end of a pipe is closed. NetBSD's error
/// is also that of a number that is not open (`pipe_kqfilter` in its sys/kern/sys_pipe.c).
fn is_reader_gone(descriptor: BorrowedDescriptor<'_>, error: i32) -> bool {
    match Errno::from_raw_os_error(error) {
        Errno::PIPE => true,
        Errno::BADF => rustix::io::fcntl_getfd(descriptor).is_ok(),
        _ => false,
    }
}

/// Returns the error of adding a filter. macOS refuses terminals and other devices with `EINVAL`.
fn refusal(number: i32) -> io::Error {
    let error = io::Error::from_raw_os_error(number);
    match Errno::from_raw_os_error(number) {
        Errno::INVAL | Errno::NODEV | Errno::OPNOTSUPP | Errno::PERM => io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("kqueue cannot watch this descriptor ({error}); perhaps select can"),
        ),
        _ => error,
    }
}

/// `others` are the filters that the source still has.
fn ready(report: &Kevent, others: Interest) -> Ready {
    let is_end = report.flags & EV_EOF != 0;
    let mut ready = match report.filter {
        EVFILT_READ if is_end => Ready::READABLE | Ready::CLOSED,
        EVFILT_READ => Ready::READABLE,
        _ => Ready::WRITABLE,
    };
    if is_end {
        // A hang-up concerns both directions. The write filter also has it after our own
        // `shutdown(Write)`, when the peer may still send.
        if report.filter == EVFILT_READ || !others.contains(Interest::READABLE) {
            ready |= Ready::READABLE | Ready::WRITABLE;
        }
        let error = Ready::READABLE | Ready::WRITABLE | Ready::ERROR;
        ready.add_if(report.fflags != 0, error);
    }
    ready
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::sys::CALLS;
    use super::*;
    use crate::poller::event::Token;

    fn calls<T>(f: impl FnOnce() -> T) -> (T, usize) {
        let before = CALLS.get();
        let result = f();
        (result, CALLS.get() - before)
    }

    fn pair() -> (UnixStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (ours, theirs)
    }

    fn request(token: u64, interest: Interest, mode: Mode) -> Request {
        let token = Token(token);
        Request {
            token,
            interest,
            mode,
        }
    }

    fn look(kqueue: &Kqueue, events: &mut Events) -> usize {
        events.clear();
        match kqueue.wait(events, WaitUntil::Now) {
            Ok(_) => events.len(),
            Err(error) => panic!("{error}"),
        }
    }

    const READABLE: Interest = Interest::READABLE;

    /// For systems without user events (OpenBSD, NetBSD 9).
    #[test]
    fn a_descriptor_notifies_as_a_user_event_does() {
        let queue = Arc::new(Queue::new().unwrap());
        let wake = Wake::of_descriptor(&queue).unwrap();
        let kqueue = Kqueue::with(queue, wake);
        let mut events = Events::with_capacity(1);
        for _ in 0..1_000 {
            kqueue.notify().unwrap();
            kqueue.notify().unwrap();
            assert!(!kqueue.wait(&mut events, WaitUntil::Forever).unwrap());
            assert!(events.is_empty());
        }
        let interrupted = kqueue.wait(
            &mut events,
            WaitUntil::after(Some(Duration::from_millis(5)), Instant::now),
        );
        assert!(interrupted.unwrap(), "a notification was left over");
        std::thread::scope(|scope| {
            for _ in 0..100 {
                scope.spawn(|| kqueue.notify().unwrap());
                assert!(!kqueue.wait(&mut events, WaitUntil::Forever).unwrap());
            }
        });
    }

    /// A notification beside as many events as there is room for ends no later wait.
    #[test]
    fn notification_with_full_events_ends_no_later_wait() {
        for room in 1..6 {
            let kqueue = Kqueue::new().unwrap();
            let pairs: Vec<_> = (0..6).map(|_| pair()).collect();
            for (number, (ours, _)) in pairs.iter().enumerate() {
                let request = request(number as u64, Interest::WRITABLE, Mode::Edge);
                (kqueue.change(ours.as_fd(), Change::Register(request))).unwrap();
            }
            kqueue.notify().unwrap();
            let mut events = Events::with_capacity(room);
            assert!(!kqueue.wait(&mut events, WaitUntil::Forever).unwrap());
            assert!(!events.is_empty(), "{room}: nothing was reported");
            for (ours, _) in &pairs {
                kqueue.change(ours.as_fd(), Change::Deregister).unwrap();
            }
            let start = Instant::now();
            let until = WaitUntil::after(Some(Duration::from_millis(5)), Instant::now);
            events.clear();
            match kqueue.wait(&mut events, until) {
                Ok(over) => assert!(
                    over && start.elapsed() >= Duration::from_millis(5),
                    "{room}"
                ),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::Interrupted, "{room}"),
            }
        }
    }

    /// A direction that is refused leaves no filter of the other one.
    ///
    /// A kqueue can be watched in one direction only.
    #[test]
    fn refused_direction_leaves_no_other_filter() {
        let (kqueue, inner) = (Kqueue::new().unwrap(), Kqueue::new().unwrap());
        let inner = inner.descriptor().unwrap();
        let both = request(1, READABLE | Interest::WRITABLE, Mode::Level);
        let error = kqueue.change(inner, Change::Register(both)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        let delete = change(inner.as_raw_fd(), EVFILT_READ, EV_DELETE, SELF_UDATA);
        assert_eq!(change_one(&kqueue.queue, delete), Err(Errno::NOENT));
    }

    /// A broken descriptor that was changed is reported once in each wait.
    #[test]
    fn broken_descriptor_changed_reported_per_wait() {
        let kqueue = Kqueue::new().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        let request = request(1, Interest::WRITABLE, Mode::Level);
        let mut change = Change::Register(request);
        for _ in 0..3 {
            kqueue.change(writer.as_fd(), change).unwrap();
            change = Change::Modify(request);
        }
        let mut events = Events::new();
        assert_eq!(look(&kqueue, &mut events), 1, "{events:?}");
    }

    /// A wait is one call and so is a change of both directions.
    #[test]
    fn wait_and_two_way_change_are_one_call_each() {
        let kqueue = Kqueue::new().unwrap();
        let (ours, mut theirs) = pair();
        let both = READABLE | Interest::WRITABLE;
        let mut events = Events::new();
        for mode in [Mode::Level, Mode::OneShot, Mode::Edge] {
            let ((), count) = calls(|| {
                kqueue
                    .change(ours.as_fd(), Change::Register(request(1, both, mode)))
                    .unwrap();
            });
            assert_eq!(count, 1, "to register, {mode:?}");
            theirs.write_all(b"x").unwrap();
            let (reported, count) = calls(|| look(&kqueue, &mut events));
            assert_eq!((reported, count), (1, 1), "to wait, {mode:?}: {events:?}");
            let event = events.iter().next().unwrap();
            assert!(event.is_readable() && event.is_writable(), "{event:?}");
            assert_eq!((&ours).read(&mut [0; 8]).unwrap(), 1);
            let ((), count) = calls(|| {
                kqueue
                    .change(ours.as_fd(), Change::Modify(request(2, both, mode)))
                    .unwrap();
            });
            assert_eq!(count, 1, "to modify, {mode:?}");
            let ((), count) = calls(|| kqueue.change(ours.as_fd(), Change::Deregister).unwrap());
            assert_eq!(count, 1, "to deregister, {mode:?}");
            assert_eq!(look(&kqueue, &mut events), 0, "{events:?}");
        }
        let ((), count) = calls(|| {
            let mode = Mode::Edge;
            (kqueue.change(
                ours.as_fd(),
                Change::Register(request(3, Interest::NONE, mode)),
            ))
            .unwrap();
            kqueue.change(ours.as_fd(), Change::Deregister).unwrap();
        });
        assert_eq!(count, 0);
        let wake = Wake::new(&Arc::new(Queue::new().unwrap())).unwrap();
        let is_user = matches!(wake, Wake::User(_));
        let ((), count) = calls(|| (0..1_000).for_each(|_| kqueue.notify().unwrap()));
        assert_eq!(count, usize::from(is_user), "a thousand notifications");
    }

    /// A number that is not open is refused in both directions.
    ///
    /// NetBSD returns the same error for it as for a pipe without a reader.
    #[test]
    fn closed_number_refused_in_both_directions() {
        let kqueue = Kqueue::new().unwrap();
        for interest in [READABLE, Interest::WRITABLE] {
            // SAFETY: BorrowedFd::borrow_raw of a number that no descriptor has: the system calls
            // return an error.
            let number = unsafe { BorrowedDescriptor::borrow_raw(65_432) };
            let register = Change::Register(request(1, interest, Mode::Edge));
            let error = kqueue.change(number, register).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EBADF), "{interest:?}");
            assert_eq!(look(&kqueue, &mut Events::new()), 0);
            kqueue.change(number, Change::Deregister).unwrap_err();
        }
    }

    /// A one shot source that is spent ends no more than one wait.
    #[test]
    fn spent_one_shot_ends_one_wait_at_most() {
        let kqueue = Kqueue::new().unwrap();
        let (ours, mut theirs) = pair();
        let request = |token| request(token, READABLE, Mode::OneShot);
        let (register, mut events) = (Change::Register(request(1)), Events::new());
        kqueue.change(ours.as_fd(), register).unwrap();
        theirs.write_all(b"x").unwrap();
        assert_eq!(look(&kqueue, &mut events), 1);
        let reports = (0..5).filter(|_| {
            theirs.write_all(b"x").unwrap();
            let mut reports = [sys::kevent_of(0, EVFILT_READ, 0, 0)];
            let count = kqueue.queue.kevent(&[], &mut reports, Some(Duration::ZERO));
            for report in &reports[..count.unwrap()] {
                (kqueue.table.lock()).collect(&kqueue.queue, report, &mut None, &mut events);
            }
            count != Ok(0)
        });
        assert!(reports.count() <= 1);
        assert_eq!(events.len(), 1, "it was reported again");
        kqueue
            .change(ours.as_fd(), Change::Modify(request(2)))
            .unwrap();
        assert_eq!(look(&kqueue, &mut events), 1);
    }

    /// A TCP stream that waits again costs one wait and nothing else.
    #[cfg(feature = "net")]
    #[test]
    fn tcp_stream_rewait_costs_one_call() {
        use crate::Backend;
        use crate::net::TcpListener;
        use futures_lite::{AsyncReadExt, AsyncWriteExt};

        const ROUNDS: usize = 200;
        let runtime = crate::Runtime::builder()
            .backend(Backend::Kqueue)
            .build()
            .unwrap();
        let ((), count) = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let client = std::thread::spawn(move || {
                let mut stream = std::net::TcpStream::connect(address).unwrap();
                let mut byte = [7];
                for _ in 0..=ROUNDS {
                    stream.write_all(&byte).unwrap();
                    stream.read_exact(&mut byte).unwrap();
                }
            });
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = [0; 16];
            let mut before = 0;
            for round in 0..=ROUNDS {
                if round == 1 {
                    before = CALLS.get();
                }
                assert_eq!(stream.read(&mut bytes).await.unwrap(), 1);
                stream.write_all(&bytes[..1]).await.unwrap();
            }
            let count = CALLS.get() - before;
            drop(stream);
            client.join().unwrap();
            ((), count)
        });
        assert!(
            count <= ROUNDS + ROUNDS / 20,
            "{count} calls of kevent for {ROUNDS} messages"
        );
    }

    /// A descriptor known to be broken is reported as the kernel would report it.
    ///
    /// Not all systems refuse the write filter, so this test marks the pipe as broken.
    #[test]
    fn known_broken_reported_like_kernels() {
        let kqueue = Kqueue::new().unwrap();
        let (ours, _theirs) = pair();
        let number = ours.as_raw_fd();
        let mut events = Events::new();
        for mode in [Mode::Level, Mode::OneShot, Mode::Edge] {
            (kqueue.change(ours.as_fd(), Change::Register(request(1, READABLE, mode)))).unwrap();
            let break_it = || {
                kqueue
                    .mark_broken(&mut kqueue.table.lock(), number)
                    .unwrap()
            };
            break_it();
            events.clear();
            assert!(!kqueue.wait(&mut events, WaitUntil::Forever).unwrap());
            let event = events.iter().next().unwrap();
            assert!(event.is_writable() && event.is_error(), "{event:?}");
            let again = usize::from(mode == Mode::Level);
            assert_eq!(look(&kqueue, &mut events), again, "{mode:?}");
            assert_eq!(look(&kqueue, &mut events), again, "{mode:?}");
            break_it();
            (kqueue.change(ours.as_fd(), Change::Modify(request(2, READABLE, mode)))).unwrap();
            assert_eq!(look(&kqueue, &mut events), 0, "{mode:?}, modified");
            break_it();
            kqueue.change(ours.as_fd(), Change::Deregister).unwrap();
            assert_eq!(look(&kqueue, &mut events), 0, "{mode:?}, deregistered");
            (kqueue.change(ours.as_fd(), Change::Register(request(3, READABLE, mode)))).unwrap();
            let (other, mut others) = pair();
            others.write_all(b"x").unwrap();
            (kqueue.change(other.as_fd(), Change::Register(request(4, READABLE, mode)))).unwrap();
            break_it();
            let mut one = Events::with_capacity(1);
            let mut seen = Vec::new();
            for _ in 0..6 {
                look(&kqueue, &mut one);
                seen.extend(one.iter().map(|event| event.token().0));
            }
            assert!(seen.contains(&3) && seen.contains(&4), "{mode:?}: {seen:?}");
            kqueue.change(other.as_fd(), Change::Deregister).unwrap();
            kqueue.change(ours.as_fd(), Change::Deregister).unwrap();
        }
    }

    /// A report that is older than the last change is dropped.
    #[test]
    fn report_older_than_change_is_dropped() {
        let kqueue = Kqueue::new().unwrap();
        let (ours, _theirs) = pair();
        let number = ours.as_raw_fd();
        (kqueue.change(
            ours.as_fd(),
            Change::Register(request(1, READABLE, Mode::Edge)),
        ))
        .unwrap();
        let generation = kqueue.table.lock().fds.all[number as usize].data.generation;
        let collect = || {
            let report = sys::kevent_of(number as usize, EVFILT_READ, EV_CLEAR, generation);
            let mut events = Events::new();
            (kqueue.table.lock()).collect(&kqueue.queue, &report, &mut None, &mut events);
            events.len()
        };
        assert_eq!(collect(), 1);
        (kqueue.change(
            ours.as_fd(),
            Change::Modify(request(2, READABLE, Mode::Edge)),
        ))
        .unwrap();
        assert_eq!(collect(), 0, "modified since");
        kqueue.change(ours.as_fd(), Change::Deregister).unwrap();
        assert_eq!(collect(), 0, "deregistered since");
        (kqueue.change(
            ours.as_fd(),
            Change::Register(request(3, READABLE, Mode::Edge)),
        ))
        .unwrap();
        assert_eq!(collect(), 0, "the number's next owner");
        kqueue.change(ours.as_fd(), Change::Deregister).unwrap();
        kqueue.table.lock().last_generation = usize::MAX;
        assert_ne!(kqueue.table.lock().next_generation(), SELF_UDATA);
    }

    #[test]
    fn an_end_is_a_hint_where_it_is_the_peers() {
        let told = |filter, fflags| {
            let mut report = sys::kevent_of(9, filter, EV_EOF, 1);
            report.fflags = fflags;
            let event = Event::new(Token(1), ready(&report, READABLE));
            assert!(event.is_readable() || event.is_writable(), "worth a try");
            (event.is_readable(), event.is_closed(), event.is_error())
        };
        // Even with unread data: the attempt finds out.
        assert_eq!(told(EVFILT_READ, 0), (true, true, false));
        assert_eq!(told(EVFILT_READ, 54), (true, true, true));
        // Our own `shutdown(Write)` looks like that.
        assert_eq!(told(EVFILT_WRITE, 0), (false, false, false));
        assert_eq!(told(EVFILT_WRITE, 54), (true, false, true));
    }
}
