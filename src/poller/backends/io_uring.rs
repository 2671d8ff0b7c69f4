//! `io_uring(7)`: Linux from 6.1 on. One-shot and edges, by a ring that can only poll. No system
//! call to check for events, and one for a wait and everything that changed since the last one.
//!
//! **Overview.** Each armed source is one `IORING_OP_POLL_ADD` in the ring: multishot for edges,
//! single for one-shot. The kernel is never given a buffer, so nothing here differs from another
//! kind of poller. The ring admits only polls, timeouts and their removal
//! (`IORING_REGISTER_RESTRICTIONS`): an attacker that gets hold of it cannot read or open anything
//! through it.
//!
//! **Access to the ring.** With `DEFER_TASKRUN` the kernel lets only one thread enter the ring, the
//! *owner*: the thread that waits. So every request of a caller goes to the [`Table`], behind a
//! lock, as an *order* that the owner carries out before it next enters the kernel
//! ([`sync`](Table::sync)). **Why no order is lost:** the owner carries out orders, and sets
//! `waiting`, under the lock. An order that comes before that is carried out; one that comes after
//! it sees `waiting` and writes to the notifier, which the ring polls, so the owner returns from
//! its wait. The ring is created disabled, and enabled by the first thread that waits. If another
//! thread waits later, it makes its own ring, arms everything there again, and drops the old ring.
//! A pool's ring is *shared*: it is made without `DEFER_TASKRUN`, so any thread may enter it, and
//! whichever waits next becomes the owner. The kernel then does the work of a poll on the thread
//! that has armed it, and interrupts it for that. So as long as that thread sleeps where nothing
//! interrupts it, as in `fsync`, nothing is reported of what it has armed.
//!
//! **Why no stale event is reported.** Each arming has a unique number, which the kernel returns
//! with each completion of that arming. Any change abandons the number, and later completions with
//! it are discarded. Nothing is lost, since arming reports a source that is ready.
//!
//! **Why a descriptor closes when its owner closes it.** A poll holds a reference to its file.
//! Deregistering on the owner's thread removes the poll immediately, with a system call if it was
//! armed. On another thread it is an order: carried out immediately if the owner sleeps, otherwise
//! when it next enters the kernel. (Any thread may enter a shared ring, and removes the poll at
//! once. It waits for a moment until the thread that has armed it was interrupted, and has ended
//! it.) If the poller's runtime is not driven ([`rest`](Uring::rest)), that may be never, so the
//! ring is dropped, and the next wait makes another.
//!
//! Traps. Each has a test, mostly below. Figures: Linux 6.18.
//!
//! * **Removing a poll does not close the file.** The removal leaves the reference to deferred
//!   work, which runs only in a call with `IORING_ENTER_GETEVENTS`, and at most twenty pieces in
//!   each call (`IO_LOCAL_TW_DEFAULT_MAX` in io_uring/io_uring.h):
//!   [`remove_now`](Table::remove_now) calls until all is done.
//!   (<https://github.com/axboe/liburing/issues/568>)
//! * **`IORING_OP_POLL_REMOVE` does not remove** a poll for which an event is on the way: it fails
//!   with `EALREADY`, and the poll stays (`io_poll_disarm` in io_uring/poll.c).
//!   `IORING_OP_ASYNC_CANCEL` marks the poll, and it ends.
//! * **Twenty at a time**, for events too: a wait calls again while `IORING_SQ_TASKRUN` is set and
//!   there is room.
//! * **A thread's polls die with it**: hence a separate ring for each thread that waits.
//! * **Hints lie.** A completion reports the wake-up's key, and not the file's actual state: one
//!   ordinary byte on TCP is "readable, urgent, out-of-band". If two wake-ups coalesced, the kernel
//!   asks the file. `POLLRDBAND` distinguishes the two cases, since no file with urgent data
//!   reports it when asked: see [`ready`]. Hang-up and error are true either way, since their
//!   wake-ups have no key.
//! * **A hang-up of the reading side is reported without being asked for** (`IO_POLL_UNMASK` in
//!   io_uring/poll.c), and completes a one-shot poll for writability again and again: such a source
//!   gets a multishot poll, which reports the hang-up once ([`Polled::lasting`]).
//! * **A full completion queue ends a multishot poll**; so does the kernel when it is short of
//!   memory. After each end that was not requested, the source is armed again.
//! * **`EBUSY` and `EAGAIN`** of `io_uring_enter` are not failures: completions are collected, and
//!   the kernel is entered again. Submissions that it has not taken stay in the queue, and orders
//!   that find no room there stay orders. A wait that is refused again and again pauses, and fails
//!   after about a second ([`MAX_REFUSALS`]).
//! * **`fork`.** The queues are shared memory: the parent would run what a child puts there. So the
//!   child does not have that memory (`MADV_DONTFORK`), and in a child the `Poller` neither
//!   forwards calls to this file nor drops the ring.
//! * **A zero timeout sleeps** for microseconds: a check without sleeping passes no timeout.
//! * **A thread that polls the ring's descriptor keeps sleeping**: deferred work wakes only the
//!   ring's owner, and only in its own call (`io_req_local_work_add` in io_uring/io_uring.c). But
//!   the kernel signals it to a registered eventfd, so a foreign loop gets that.
//! * **A dropped ring** releases its files some milliseconds later (`io_ring_exit_work`): a ring
//!   that its owner drops is emptied first.
//! * `IORING_POLL_ADD_LEVEL` is in the header, but refused
//!   (<https://github.com/axboe/liburing/issues/829>): there are no levels.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use io_uring::register::Restriction;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::io::Errno;
use rustix::io_uring::{
    IoringEnterFlags, io_uring_enter, io_uring_enter_arg, io_uring_getevents_arg, io_uring_ptr,
};

use super::epoll::{GRID, LONGEST, on_grid};
use super::flags;
use super::lines::{Line, Lines};
use super::notifier::Notifier;
use crate::poller::error::{explained, failed};
use crate::poller::{
    BorrowedDescriptor, Capabilities, Change, Event, Events, Interest, Mode, Ready, Request,
    Selector, Token, Until,
};
use crate::sync::{Mutex, MutexGuard};
use crate::sys::{self, Race};

/// Size of the submission queue; more orders are handed over in several calls. 16 KiB.
const SUBMISSIONS: u32 = 256;

/// Number of completions that the kernel can report before they are collected: 16 KiB. More than
/// [`SUBMISSIONS`] orders produce; the kernel keeps completions that do not fit.
const COMPLETIONS: u32 = 1024;

/// Whether this build asks the kernel for a ring.
pub(in crate::poller) const IS_BUILT: bool = true;

/// Opens the backend.
pub(in crate::poller) fn open() -> io::Result<Uring> {
    Uring::new()
}

/// Whether a ring can be made here: asks the kernel once. A temporary shortage does not count as an
/// answer.
pub(in crate::poller) fn is_available() -> bool {
    static REFUSED: Race<bool> = Race::new();
    if let Some(refused) = REFUSED.get() {
        return !refused;
    }
    let refused = match make_ring(SUBMISSIONS, COMPLETIONS, false) {
        Ok(_) => false,
        Err((_, error)) => match Errno::from_io_error(&error) {
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => return true,
            _ => true,
        },
    };
    !REFUSED.get_or_init(|| refused)
}

pub(in crate::poller) struct Uring {
    notifier: Notifier,
    table: Mutex<Table>,
    /// An eventfd for a foreign loop; the kernel writes to it when there is something to collect.
    exposed: OnceLock<OwnedFd>,
    /// The first moment from which a timeout was requested; the grid is the multiples of [`GRID`]
    /// from here.
    origin: OnceLock<Instant>,
    submissions: u32,
    completions: u32,
}

struct Table {
    /// `None` between two owners.
    ring: Option<IoUring>,
    /// The [`thread`] that owns the ring; 0: not owned yet, or there is no ring. While `waiting` is
    /// set no other thread touches the ring; otherwise only the owner does, under the lock.
    owner: u64,
    /// Whether the ring passes from owner to owner: see [`share`](Selector::share).
    is_shared: bool,
    /// Whether the owner sleeps in the kernel, or is about to.
    waiting: bool,
    /// Whether the runtime is not driven for now.
    resting: bool,
    /// Whether the ring writes to [`Uring::exposed`].
    signals: bool,
    lines: Lines<Polled>,
    /// Counts armings.
    arming: u32,
    /// The notifier's descriptor, followed by its arming; 0: none.
    notifier: RawFd,
    notified_by: u32,
    /// The arming of the timeout that a foreign loop sees; 0: none.
    timeout: u32,
    /// When the timeout ends, by the process's clock.
    timeout_end: Option<Instant>,
    /// The time that timeout orders point to. It outlives them, since they may stay in the queue.
    left: Box<types::Timespec>,
    refusals: Refusals,
}

/// Consecutive calls that the kernel has refused, without a completion in between.
#[derive(Default)]
struct Refusals {
    count: u32,
    /// Number of pauses that waits have made meanwhile.
    pauses: u32,
    last: Option<Errno>,
}

/// The kernel's poll of a descriptor.
#[derive(Clone, Copy, Default)]
struct Polled {
    /// The arming by which the kernel polls it; 0: none.
    armed: u32,
    /// An arming, still or once polled by the kernel, with an interest that has been withdrawn. Not
    /// set together with `armed`.
    stale: u32,
    /// Whether it should be polled. Cleared by deregistering, and by a report that disarms it.
    wanted: bool,
    /// Whether it needs a multishot poll although it is one-shot.
    lasting: bool,
}

/// Information from completions, apart from the events of sources.
#[derive(Default)]
struct Said {
    notified: bool,
    /// Whether there was no room for all events.
    is_full: bool,
}

// The user data of a completion: the number of the arming in the upper half, and in the lower the
// descriptor's number or one of these values, which are greater than any descriptor.
const NOTIFIER: u32 = u32::MAX;
const TIMEOUT: u32 = u32::MAX - 1;
const ORDER: u32 = u32::MAX - 2;

fn user_data(arming: u32, of: u32) -> u64 {
    u64::from(arming) << 32 | u64::from(of)
}

impl Uring {
    fn new() -> io::Result<Uring> {
        Uring::with_queues(SUBMISSIONS, COMPLETIONS)
    }

    fn with_queues(submissions: u32, completions: u32) -> io::Result<Uring> {
        let ring = new_ring(submissions, completions, false)?;
        let notifier = Notifier::new()?;
        Ok(Uring {
            table: Mutex::new(Table {
                ring: Some(ring),
                owner: 0,
                is_shared: false,
                waiting: false,
                resting: false,
                signals: false,
                lines: Lines::default(),
                arming: 0,
                notifier: notifier.descriptor().as_raw_fd(),
                notified_by: 0,
                timeout: 0,
                timeout_end: None,
                left: Box::default(),
                refusals: Refusals::default(),
            }),
            notifier,
            exposed: OnceLock::new(),
            origin: OnceLock::new(),
            submissions,
            completions,
        })
    }

    /// Prepares a wait. Separate from the wait, since nearly always there is nothing to do: see
    /// [`is_prepared`](Table::is_prepared).
    #[cold]
    fn prepare(&self, table: &mut Table) -> io::Result<()> {
        self.own(table)?;
        self.signal(table)?;
        table.sync()
    }

    /// Makes the calling thread own the ring. No thread may be waiting.
    fn own(&self, table: &mut Table) -> io::Result<()> {
        if table.is_own() {
            Ok(())
        } else {
            self.take_over(table)
        }
    }

    #[cold]
    fn take_over(&self, table: &mut Table) -> io::Result<()> {
        if table.is_shared && table.owner != 0 {
            table.owner = thread();
            return Ok(());
        }
        let (ring, old) = match table.ring.take() {
            // No thread has entered it yet.
            Some(ring) if table.owner == 0 => (ring, None),
            old => match new_ring(self.submissions, self.completions, table.is_shared) {
                Ok(ring) => (ring, old),
                Err(error) => {
                    let has_one = old.is_some();
                    table.ring = old;
                    if !has_one || !sys::is_out_of_descriptors(&error) {
                        return Err(error);
                    }
                    // The descriptor of the old ring will do, unless another thread takes it first.
                    table.abandon();
                    let is_shared = table.is_shared;
                    (
                        new_ring(self.submissions, self.completions, is_shared)?,
                        None,
                    )
                }
            },
        };
        // If enabling is refused, there is no ring.
        table.owner = 0;
        let enabled = ring.submitter().register_enable_rings();
        enabled.map_err(|error| failed("io_uring_register", error))?;
        drop(old);
        (table.ring, table.owner) = (Some(ring), thread());
        table.forget_armings();
        Ok(())
    }

    /// Makes the ring write to the eventfd that a foreign loop polls, if there is one.
    fn signal(&self, table: &mut Table) -> io::Result<()> {
        match self.exposed.get() {
            Some(exposed) if !table.signals => {
                let number = exposed.as_raw_fd();
                let registered = table.ring().submitter().register_eventfd(number);
                registered.map_err(|error| failed("io_uring_register", error))?;
                table.signals = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Makes the foreign loop's eventfd readable if a wait would return immediately; otherwise
    /// makes it unreadable until the kernel writes to it.
    fn settle(&self, table: &mut Table) {
        let Some(exposed) = self.exposed.get() else {
            return;
        };
        // The next wait meets an error again.
        let _ = table.flush();
        // Emptied first: later completions are written to it again, or seen here.
        let _ = rustix::io::retry_on_intr(|| rustix::io::read(exposed, &mut [0; 8]));
        let has_orders = !table.is_prepared(true);
        if has_orders || table.has_work() || !table.ring().completion().is_empty() {
            self.wake_foreign_loop();
        }
    }

    /// Hands over all orders before a foreign loop sleeps. If the kernel refuses some, the foreign
    /// loop is woken, and the next wait hands them over.
    fn flush_exposed(&self, table: &mut Table) -> io::Result<()> {
        table.flush()?;
        if !table.is_prepared(true) || !table.ring().submission().is_empty() {
            self.wake_foreign_loop();
        }
        Ok(())
    }

    /// Writes to the foreign loop's eventfd. The kernel would write there too when it sees the
    /// write to the notifier. But a write to an eventfd that results from a write to another one is
    /// delayed through RCU by milliseconds (`eventfd_signal_allowed` in io_uring/eventfd.c).
    fn wake_foreign_loop(&self) {
        if let Some(exposed) = self.exposed.get() {
            // It can only be full, which is readable.
            let _ = rustix::io::retry_on_intr(|| rustix::io::write(exposed, &1u64.to_ne_bytes()));
        }
    }

    /// Changes a descriptor's line, and makes sure that the kernel learns of it.
    fn change_line(&self, number: RawFd, change: Change) -> io::Result<()> {
        let mut table = self.table.lock();
        table.lines.check(number, change)?;
        // While the owner waits it cannot be here.
        let is_owner = table.is_own();
        let is_exposed = self.exposed.get().is_some();
        if (table.waiting || is_exposed && !is_owner) && table.lines.changed.is_empty() {
            // Under the lock, so that the owner cannot have left that wait yet. If it is refused,
            // nothing has changed.
            self.notifier.kick()?;
            self.wake_foreign_loop();
        }
        let line = table.lines.change(number, change);
        let own = &mut line.own;
        if own.armed != 0 {
            (own.stale, own.armed) = (own.armed, 0);
        }
        (own.wanted, own.lasting) = (line.registered, false);
        let is_to_remove = !line.registered && own.stale != 0;
        table.lines.mark_changed(number);
        if is_to_remove {
            let may_enter = is_owner || table.is_shared && table.owner != 0;
            if may_enter {
                // If that fails, the removal stays an order, which the next wait carries out.
                let _ = table.remove_now(number);
            } else if table.resting && !is_exposed {
                table.abandon();
            }
        }
        if is_owner && is_exposed {
            // A foreign loop may sleep next.
            self.flush_exposed(&mut table)
        } else {
            Ok(())
        }
    }

    /// Returns this as a trait object.
    #[inline]
    pub(in crate::poller) fn selector(&self) -> &(dyn Selector + 'static) {
        self
    }

    /// Whether there are orders that only a wait carries out.
    #[inline]
    pub(in crate::poller) fn has_orders(&self) -> bool {
        !self.table.lock().lines.changed.is_empty()
    }

    /// See [`Poller::wait_without_deadline`](crate::poller::Poller::wait_without_deadline).
    #[inline]
    pub(in crate::poller) fn wait_without_deadline(
        &self,
        events: &mut Events,
        may_sleep: bool,
        mut report: impl FnMut(Token, Ready),
    ) -> io::Result<()> {
        events.clear();
        let waited = if may_sleep && self.exposed.get().is_none() {
            self.wait_quickly(events)
        } else {
            self.wait_once(events, may_sleep, None).map(drop)
        };
        if let Err(error) = waited {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        // Not directly from the queue: a source's lock comes before the table's.
        for event in &*events {
            report(event.token(), event.ready());
        }
        Ok(())
    }

    /// [`wait_once`](Self::wait_once) without a timeout, for a caller that comes again in every
    /// case: a completion without an event ends it too. Nearly always there are no orders, and one
    /// call reports everything.
    fn wait_quickly(&self, events: &mut Events) -> io::Result<()> {
        let mut table = self.table.lock();
        if !table.is_prepared(false) || !table.ring().completion().is_empty() {
            drop(table);
            return self.wait_once(events, true, None).map(drop);
        }
        table.resting = false;
        let call = table.prepare_wait();
        drop(table);
        let result = call.enter(None);
        let mut table = self.table.lock();
        table.waiting = false;
        match result {
            Ok(_) => table.refusals.end(),
            Err(error) => table.not_waited(error)?,
        }
        let mut said = table.collect(events, &self.notifier);
        if said.is_full || table.has_work() {
            self.collect_more(&mut table, &mut said, events)?;
        }
        if events.is_empty() && !said.notified && table.refusals.are_many() {
            Err(pause(table))
        } else {
            Ok(())
        }
    }

    /// Waits for at most `timeout` (`None`: until something comes), or, unless it `may_sleep`, only
    /// checks for events. Returns whether the kernel reported that the time has passed.
    fn wait_once(
        &self,
        events: &mut Events,
        may_sleep: bool,
        timeout: Option<Duration>,
    ) -> io::Result<bool> {
        let mut table = self.table.lock();
        table.resting = false;
        loop {
            let is_exposed = self.exposed.get().is_some();
            let mut has_orders = false;
            if !table.is_prepared(is_exposed) {
                self.prepare(&mut table)?;
                has_orders = !table.is_prepared(is_exposed);
            }
            let (mut said, mut passed) = (Said::default(), false);
            if !table.ring().completion().is_empty() {
                said = table.collect(events, &self.notifier);
            }
            let mut sleeps = may_sleep && events.is_empty() && !said.notified;
            if sleeps && !table.is_prepared(is_exposed) {
                // Completions have left orders.
                table.sync()?;
                // Remaining orders must not wait for an event.
                sleeps = table.is_prepared(is_exposed);
            }
            if sleeps {
                let call = table.prepare_wait();
                drop(table);
                let result = call.enter(timeout);
                table = self.table.lock();
                table.waiting = false;
                match result {
                    Ok(_) => table.refusals.end(),
                    Err(Errno::TIME) => {
                        table.refusals.end();
                        passed = true;
                    }
                    Err(error) => table.not_waited(error)?,
                }
                said = table.collect(events, &self.notifier);
            }
            self.collect_more(&mut table, &mut said, events)?;
            if is_exposed {
                self.settle(&mut table);
            }
            let is_over = passed || said.notified || !events.is_empty();
            if is_over || !may_sleep && !has_orders {
                return Ok(passed || !may_sleep);
            }
            if table.refusals.are_many() {
                return Err(pause(table));
            }
            // It was an order, or an event of something that has changed meanwhile. Or a signal
            // came after orders were taken, which the kernel does not report then. Or orders are
            // left.
            if timeout.is_some() {
                return Err(Errno::INTR.into());
            }
        }
    }

    /// Hands over the remaining orders, has the kernel do its deferred work, and collects the
    /// results.
    fn collect_more(
        &self,
        table: &mut Table,
        said: &mut Said,
        events: &mut Events,
    ) -> io::Result<()> {
        for _ in 0..MAX_ROUNDS {
            if said.is_full || !table.has_work() {
                break;
            }
            let entered = table.enter_now();
            let more = table.collect(events, &self.notifier);
            said.notified |= more.notified;
            said.is_full = more.is_full;
            match entered {
                Ok(()) => {}
                Err(error) if events.is_empty() && !said.notified => return Err(error),
                // The next wait meets it again.
                Err(_) => break,
            }
        }
        if said.is_full {
            // A notification that found no room in `events` came before this wait returns. Its
            // completion comes later, and then ends no wait.
            said.notified |= self.notifier.end_round();
        }
        Ok(())
    }

    /// Returns the timeout to pass to the kernel: until the first moment of the [`GRID`] that is
    /// not before `deadline`.
    fn timeout(&self, deadline: Instant, now: Instant) -> Duration {
        let target = on_grid(*self.origin.get_or_init(|| now), deadline);
        let left = deadline.saturating_duration_since(now);
        left.saturating_add(target - deadline)
            .clamp(Duration::from_nanos(1), LONGEST)
    }
}

/// `IORING_ENTER_NO_IOWAIT`, which rustix does not define: idle time is not accounted as I/O wait.
const NO_IOWAIT: IoringEnterFlags = IoringEnterFlags::from_bits_retain(1 << 7);

/// How often, and after which time each, a thread looks whether another one has ended a poll: a
/// millisecond in all, which is long for a thread that the kernel interrupts.
const MAX_ROUNDS_TO_END: usize = 50;
const ROUND_TO_END: Duration = Duration::from_micros(20);

/// Number of calls in which a wait has the kernel do deferred work: enough for a batch of events.
/// The rest is left to the next wait.
const MAX_ROUNDS: usize = 16;

/// Number of consecutive refusals after which a wait [pauses](pause), and a removal is left to the
/// next wait.
const MAX_REFUSALS: u32 = 16;

/// Length of a pause, and number of consecutive pauses after which the wait fails: about a second.
const PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSES: u32 = 1000;

/// Pauses after [`MAX_REFUSALS`], so that no thread spins until the kernel has memory again.
/// Returns the error of the wait: `INTR`, so that the caller looks around and waits again, or,
/// after [`MAX_PAUSES`], the refusal.
///
/// Meanwhile the lock is not held, and `waiting` is not set: other threads' orders are carried out
/// by the next wait, at the latest after the pause.
#[cold]
fn pause(mut table: MutexGuard<'_, Table>) -> io::Error {
    if table.refusals.pauses < MAX_PAUSES {
        table.refusals.pauses += 1;
        drop(table);
        std::thread::sleep(PAUSE);
        return Errno::INTR.into();
    }
    let error = table.refusals.last.unwrap_or(Errno::AGAIN);
    table.refusals.end();
    failed("io_uring_enter", error)
}

impl Refusals {
    #[cold]
    fn add(&mut self, error: Errno) {
        self.count = self.count.saturating_add(1);
        self.last = Some(error);
    }

    /// Resets the counts: a call was not refused, or something has completed.
    #[inline]
    fn end(&mut self) {
        (self.count, self.pauses) = (0, 0);
    }

    #[inline]
    fn are_many(&self) -> bool {
        self.count >= MAX_REFUSALS
    }
}

impl Table {
    /// Whether the calling thread owns the ring, and there are no orders to put into it.
    #[inline]
    fn is_prepared(&self, is_exposed: bool) -> bool {
        self.is_own()
            && self.lines.changed.is_empty()
            && self.notified_by != 0
            && (self.signals || !is_exposed)
    }

    /// Whether there is a ring, and the calling thread owns it.
    #[inline]
    fn is_own(&self) -> bool {
        self.owner != 0 && self.owner == NUMBER.get()
    }

    /// Returns the ring of the calling thread.
    #[inline]
    fn ring(&mut self) -> &mut IoUring {
        self.ring.as_mut().expect("the calling thread has a ring")
    }

    /// Resets the armings for a new ring, in which nothing is armed.
    fn forget_armings(&mut self) {
        (self.notified_by, self.timeout, self.timeout_end) = (0, 0, None);
        self.signals = false;
        for index in 0..self.lines.all.len() {
            let own = &mut self.lines.all[index].own;
            (own.armed, own.stale) = (0, 0);
            if own.wanted {
                self.lines.mark_changed(index as RawFd);
            }
        }
    }

    /// Drops the ring, no matter which thread owns it; the owner must not be waiting. The kernel
    /// lets go of all files that it polls. The next wait makes another ring.
    #[cold]
    fn abandon(&mut self) {
        (self.ring, self.owner) = (None, 0);
        self.forget_armings();
    }

    /// Returns the number of the next arming.
    fn next_arming(&mut self) -> u32 {
        self.arming = self.arming.wrapping_add(1).max(1);
        self.arming
    }

    /// Puts an order into the queue. Returns whether there was room: while the kernel refuses
    /// orders there may be none, and the caller keeps this one.
    fn push(&mut self, order: &squeue::Entry) -> io::Result<bool> {
        if self.ring().submission().is_full() {
            self.enter_now()?;
        }
        // SAFETY: the order refers to no memory, or to `left`, which lives as long as the queue.
        // The code that registered the descriptor ensures that the kernel may poll it: "Why
        // `register` is unsafe" in the module above.
        let pushed = unsafe { self.ring().submission().push(order) };
        Ok(pushed.is_ok())
    }

    /// Puts all changes into the queue, as far as there is room. The rest stays in `changed`, and
    /// the next wait, which finds the table not [prepared](Self::is_prepared), continues with it.
    fn sync(&mut self) -> io::Result<()> {
        if self.notified_by == 0 {
            let arming = self.next_arming();
            let data = user_data(arming, NOTIFIER);
            if !self.push(&poll(self.notifier, flags(Interest::READABLE), true, data))? {
                return Ok(());
            }
            self.notified_by = arming;
        }
        while let Some(&number) = self.lines.changed.last() {
            let index = number as usize;
            let Line { request, own, .. } = self.lines.all[index];
            if own.stale != 0 {
                if !self.push(&remove(user_data(own.stale, number as u32)))? {
                    return Ok(());
                }
                self.lines.all[index].own.stale = 0;
            }
            if own.wanted && own.armed == 0 {
                let arming = self.next_arming();
                let is_multishot =
                    request.mode == Mode::Edge || request.interest.is_empty() || own.lasting;
                let data = user_data(arming, number as u32);
                if !self.push(&poll(number, flags(request.interest), is_multishot, data))? {
                    return Ok(());
                }
                self.lines.all[index].own.armed = arming;
            }
            self.lines.all[index].changed = false;
            self.lines.changed.pop();
        }
        Ok(())
    }

    /// Removes the poll of a deregistered line. The kernel has let go of the file when this
    /// returns, unless it refuses calls: then the removal stays in `changed` or in the queue, and
    /// the next wait hands it over. The removal names the arming, so it does not remove the poll of
    /// the number's next owner.
    fn remove_now(&mut self, number: RawFd) -> io::Result<()> {
        let stale = self.lines.all[number as usize].own.stale;
        if !self.push(&remove(user_data(stale, number as u32)))? {
            return Ok(());
        }
        self.lines.all[number as usize].own.stale = 0;
        self.finish_work()?;
        if self.is_shared {
            self.wait_for_end(stale, number as u32);
        }
        Ok(())
    }

    /// Waits until the thread that has armed a poll of a shared ring, and that the kernel
    /// interrupts, has ended the poll; but not for long, since that thread may sleep where nothing
    /// interrupts it. Nobody else collects completions meanwhile, since the caller has the lock.
    fn wait_for_end(&mut self, arming: u32, number: u32) {
        for _ in 0..MAX_ROUNDS_TO_END {
            if self.has_ended(arming, number) || self.enter_now().is_err() {
                return;
            }
            std::thread::sleep(ROUND_TO_END);
        }
    }

    /// Whether the last completion of an arming is in the queue. Leaves it there.
    fn has_ended(&mut self, arming: u32, number: u32) -> bool {
        let data = user_data(arming, number);
        let mut completed = self.ring().completion();
        let has_ended = (completed.by_ref())
            .any(|entry| entry.user_data() == data && !cqueue::more(entry.flags()));
        // Its destructor would tell the kernel that these were collected.
        std::mem::forget(completed);
        has_ended
    }

    /// Hands over all orders, and has the kernel do all deferred work: at most one piece for each
    /// poll, besides those that arrive meanwhile. Gives up after [`MAX_REFUSALS`]. The next wait
    /// collects the completions, and hands over any remaining orders.
    fn finish_work(&mut self) -> io::Result<()> {
        self.enter_now()?;
        for _ in 0..self.lines.all.len() {
            let is_done = {
                let queue = self.ring().submission();
                queue.is_empty() && !queue.taskrun()
            };
            if is_done || self.refusals.are_many() {
                break;
            }
            self.enter_now()?;
        }
        Ok(())
    }

    /// Hands over all orders, unless the kernel refuses them.
    fn flush(&mut self) -> io::Result<()> {
        self.sync()?;
        let has_orders = !self.ring().submission().is_empty();
        if has_orders { self.enter_now() } else { Ok(()) }
    }

    /// Whether entering the kernel would achieve anything: there are orders, or deferred work.
    #[inline]
    fn has_work(&mut self) -> bool {
        let queue = self.ring().submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    /// Enters the kernel without sleeping. Orders that it does not take stay in the queue.
    fn enter_now(&mut self) -> io::Result<()> {
        match self.call(0).enter(None) {
            Ok(_) => self.refusals.end(),
            Err(Errno::INTR) => {}
            Err(error @ (Errno::BUSY | Errno::AGAIN)) => self.refusals.add(error),
            Err(error) => return Err(failed("io_uring_enter", error)),
        }
        Ok(())
    }

    /// Handles an error of a wait. Returns `Ok` if it is no failure: then completions must be
    /// collected, and the kernel entered again.
    #[cold]
    fn not_waited(&mut self, error: Errno) -> io::Result<()> {
        match error {
            // Completions must be collected first, or the kernel is short of memory for an order.
            Errno::BUSY | Errno::AGAIN => {
                self.refusals.add(error);
                Ok(())
            }
            Errno::BADR => {
                // The kernel had no memory to keep a completion, so a poll may be lost.
                self.abandon();
                Err(Errno::INTR.into())
            }
            // Completions stay in the queue.
            error => Err(failed("io_uring_enter", error)),
        }
    }

    /// Returns the call that sleeps, to be made without the lock. Until `waiting` is cleared no
    /// other thread touches the ring.
    #[inline]
    fn prepare_wait(&mut self) -> Call {
        self.waiting = true;
        self.call(1)
    }

    #[inline]
    fn call(&mut self, completions: u32) -> Call {
        let ring = self.ring();
        let mut flags = IoringEnterFlags::GETEVENTS;
        if ring.params().is_feature_no_iowait() {
            flags |= NO_IOWAIT;
        }
        Call {
            ring: ring.as_raw_fd(),
            orders: ring.submission().len() as u32,
            completions,
            flags,
        }
    }

    /// Turns completions into events, as far as there is room.
    fn collect(&mut self, events: &mut Events, notifier: &Notifier) -> Said {
        let Table {
            ring,
            lines,
            notified_by,
            timeout,
            timeout_end,
            refusals,
            ..
        } = self;
        let ring = ring.as_mut().expect("the calling thread has a ring");
        let mut said = Said::default();
        let mut completed = ring.completion();
        while !completed.is_empty() {
            if events.len() == events.limit() {
                said.is_full = true;
                break;
            }
            let Some(entry) = completed.next() else {
                break;
            };
            refusals.end();
            let data = entry.user_data();
            let (arming, of) = ((data >> 32) as u32, data as u32);
            let is_last = !cqueue::more(entry.flags());
            if of < ORDER {
                let line = &mut lines.all[of as usize];
                let (event, has_changed) = line.complete(arming, entry.result(), is_last);
                if let Some(ready) = event {
                    events.push(Event::new(line.request.token, ready));
                }
                if has_changed {
                    lines.mark_changed(of as RawFd);
                }
            } else if of == NOTIFIER {
                if is_last && arming == *notified_by {
                    *notified_by = 0;
                }
                said.notified |= notifier.acknowledge();
            } else if of == TIMEOUT && arming == *timeout {
                (*timeout, *timeout_end) = (0, None);
            }
        }
        said
    }
}

impl Line<Polled> {
    /// Handles a completion of an arming with `result`; `is_last` is whether it is the arming's
    /// last. Returns the readiness to report, and whether an order is left.
    #[inline]
    fn complete(&mut self, arming: u32, result: i32, is_last: bool) -> (Option<Ready>, bool) {
        let (Request { interest, mode, .. }, own) = (self.request, &mut self.own);
        if arming == own.stale {
            if is_last {
                own.stale = 0;
            }
            return (None, false);
        }
        if arming != own.armed {
            return (None, false);
        }
        if is_last {
            own.armed = 0;
        }
        let ready = match u32::try_from(result) {
            Ok(mask) => ready(mask, interest),
            // Cancelled without our request: it is armed again.
            Err(_) if result == -libc::ECANCELED => return (None, is_last),
            Err(_) => {
                if result == -libc::EBADF {
                    // It was closed without being deregistered. Reported once, and forgotten, so
                    // that the number's next owner may register.
                    (self.registered, own.wanted) = (false, false);
                }
                Some(Ready::READABLE | Ready::WRITABLE | Ready::ERROR)
            }
        };
        if ready.is_none() {
            // The end of reading, without interest in reading. A multishot poll reports it once.
            own.lasting |= is_last;
            return (None, is_last);
        }
        if mode == Mode::OneShot || interest.is_empty() {
            own.wanted = false;
            (own.stale, own.armed) = (own.armed, 0);
            return (ready, own.stale != 0);
        }
        // The end of a multishot poll that we did not request.
        (ready, is_last && own.wanted)
    }
}

impl Selector for Uring {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            level: false,
            one_shot: true,
            edge: true,
            hints: true,
            priority: true,
            descriptor: true,
            granularity: GRID,
        }
    }

    fn change(&self, descriptor: BorrowedDescriptor<'_>, change: Change) -> io::Result<()> {
        self.change_line(descriptor.as_raw_fd(), change)
    }

    fn wait(&self, events: &mut Events, until: &Until) -> io::Result<bool> {
        match *until {
            Until::Never => self.wait_once(events, true, None),
            Until::Now => self.wait_once(events, false, None),
            Until::Deadline { deadline, now } => {
                self.wait_once(events, true, Some(self.timeout(deadline, now)))
            }
        }
    }

    fn notify(&self) -> io::Result<()> {
        self.notifier.notify()?;
        self.wake_foreign_loop();
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedDescriptor<'_>> {
        self.exposed.get().map(AsFd::as_fd)
    }

    fn share(&self) -> io::Result<()> {
        let mut table = self.table.lock();
        table.ring = Some(new_ring(self.submissions, self.completions, true)?);
        table.is_shared = true;
        Ok(())
    }

    fn expose(&self) -> io::Result<()> {
        if self.exposed.get().is_some() {
            return Ok(());
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let made = eventfd(0, flags).map_err(|error| failed("eventfd", error))?;
        let mut table = self.table.lock();
        let _ = self.exposed.set(made);
        if table.waiting {
            // The waiter returns from its wait, and sees it.
            self.notifier.kick()
        } else {
            self.own(&mut table)?;
            self.signal(&mut table)?;
            self.settle(&mut table);
            Ok(())
        }
    }

    fn arm(&self, until: Until) -> io::Result<()> {
        let mut table = self.table.lock();
        self.own(&mut table)?;
        self.signal(&mut table)?;
        let (left, end) = match until {
            Until::Deadline { deadline, now } => (self.timeout(deadline, now), Some(deadline)),
            Until::Now => (Duration::from_nanos(1), None),
            Until::Never => (LONGEST, None),
        };
        let is_armed = match until {
            Until::Deadline { .. } => table.timeout_end == end && sys::has_kernel_clock(),
            Until::Never => table.timeout == 0,
            Until::Now => false,
        };
        if !is_armed {
            // An order that is still in the queue gets the new time too.
            (*table.left, table.timeout_end) = (left.into(), None);
            let (arming, order) = match table.timeout {
                0 => {
                    let arming = table.next_arming();
                    let order = opcode::Timeout::new(&*table.left).build();
                    (arming, order.user_data(user_data(arming, TIMEOUT)))
                }
                // An abandoned timeout is moved far into the future: a removed one would be
                // reported, and would wake the foreign loop.
                arming => {
                    let data = user_data(arming, TIMEOUT);
                    let order = opcode::TimeoutUpdate::new(data, &*table.left);
                    (arming, quietly(order.build()))
                }
            };
            if !table.push(&order)? {
                // The foreign loop is woken, and requests it again.
                self.wake_foreign_loop();
                return Ok(());
            }
            table.timeout = arming;
        }
        table.timeout_end = end;
        self.flush_exposed(&mut table)
    }

    fn accepts_files(&self) -> bool {
        true
    }

    fn rest(&self) {
        let mut table = self.table.lock();
        table.resting = true;
        let has_gone = |number: &RawFd| {
            let line = table.lines.all[*number as usize];
            !line.registered && line.own.stale != 0
        };
        if table.lines.changed.iter().any(has_gone) && table.is_own() {
            // The next wait meets the error.
            let _ = self.flush_exposed(&mut table);
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        if table.is_own() {
            // The kernel closes the rest, but later.
            let _ = table.remove_all();
        }
    }
}

impl Table {
    /// Removes all polls. The kernel has let go of their files when this returns, unless it refuses
    /// calls.
    fn remove_all(&mut self) -> io::Result<()> {
        let all = opcode::AsyncCancel2::new(types::CancelBuilder::any());
        if !self.push(&all.build().user_data(user_data(0, ORDER)))? {
            return Ok(());
        }
        self.finish_work()
    }
}

thread_local! {
    /// The number of this [`thread`]; 0: it has not requested one yet.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// Returns a number for the calling thread that no other thread has, or will have.
fn thread() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    if NUMBER.get() == 0 {
        NUMBER.set(COUNT.fetch_add(1, Ordering::Relaxed) + 1);
    }
    NUMBER.get()
}

/// Makes a ring, which can only poll.
fn new_ring(submissions: u32, completions: u32, is_shared: bool) -> io::Result<IoUring> {
    make_ring(submissions, completions, is_shared).map_err(|(call, error)| {
        let meaning = meaning(&error);
        explained(call, error, meaning)
    })
}

/// `IORING_REGISTER_EVENTFD`.
const REGISTER_EVENTFD: u8 = 4;

/// Makes a ring: for one thread, or for several that enter it in turn. Errors name the call.
fn make_ring(
    submissions: u32,
    completions: u32,
    is_shared: bool,
) -> Result<IoUring, (&'static str, io::Error)> {
    let mut builder = IoUring::builder();
    builder
        .dontfork()
        .setup_r_disabled()
        .setup_submit_all()
        .setup_cqsize(completions);
    if !is_shared {
        builder
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag();
    }
    let ring = builder
        .build(submissions)
        .map_err(|error| ("io_uring_setup", error))?;
    let operations = [
        opcode::PollAdd::CODE,
        opcode::Timeout::CODE,
        opcode::TimeoutRemove::CODE,
        opcode::AsyncCancel::CODE,
    ];
    let flags = squeue::Flags::SKIP_SUCCESS.bits();
    let mut restrictions: Vec<_> = (operations.into_iter().map(Restriction::sqe_op))
        .chain([Restriction::sqe_flags_allowed(flags)])
        // Restrictions also apply to what may be registered.
        .chain([Restriction::register_op(REGISTER_EVENTFD)])
        .collect();
    let restricted = ring.submitter().register_restrictions(&mut restrictions);
    restricted.map_err(|error| ("io_uring_register", error))?;
    Ok(ring)
}

/// Returns the most likely reason why a ring cannot be made.
fn meaning(error: &io::Error) -> Option<String> {
    match Errno::from_io_error(error)? {
        Errno::PERM => {
            let setting = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
            Some(match setting.as_deref().map(str::trim) {
                Ok("1") => {
                    "kernel.io_uring_disabled is 1: for the group kernel.io_uring_group only".into()
                }
                Ok("2") => "kernel.io_uring_disabled is 2".into(),
                _ => "most likely the seccomp filter of a container, which has to allow \
                      io_uring_setup, io_uring_register and io_uring_enter"
                    .into(),
            })
        }
        Errno::NOSYS => Some("the kernel has no io_uring, or a sandbox hides it".into()),
        Errno::INVAL => Some("the kernel is older than Linux 6.1".into()),
        _ => None,
    }
}

/// A call of `io_uring_enter`.
struct Call {
    ring: RawFd,
    orders: u32,
    completions: u32,
    flags: IoringEnterFlags,
}

impl Call {
    /// Makes the call. Returns the number of orders taken. A timeout that has elapsed is an error,
    /// unless orders were taken.
    #[inline]
    fn enter(&self, timeout: Option<Duration>) -> Result<u32, Errno> {
        #[cfg(test)]
        if let Some(error) = tests::REFUSALS.with_borrow_mut(Vec::pop) {
            return Err(error);
        }
        let timeout = timeout.map(sys::timespec);
        let argument = timeout.as_ref().map(|timeout| io_uring_getevents_arg {
            ts: io_uring_ptr::new(std::ptr::from_ref(timeout).cast_mut().cast()),
            ..Default::default()
        });
        // SAFETY: the descriptor is the ring's, which is not dropped while this thread, its owner,
        // is in a call. The kernel reads the argument and the timeout, which live here, and the
        // orders in the ring's queue, in memory that belongs to the ring: see `Table::push`.
        unsafe {
            let ring = BorrowedDescriptor::borrow_raw(self.ring);
            let Call {
                orders,
                completions,
                flags,
                ..
            } = *self;
            match &argument {
                None => io_uring_enter(ring, orders, completions, flags),
                Some(argument) => {
                    let flags = flags | IoringEnterFlags::EXT_ARG;
                    io_uring_enter_arg(ring, orders, completions, flags, Some(argument))
                }
            }
        }
    }
}

/// Returns the flags to poll for. The kernel always adds hang-up and error, and the hang-up of the
/// reading side.
fn flags(interest: Interest) -> u32 {
    let mut flags = flags::flags(interest);
    if interest.contains(Interest::PRIORITY) {
        flags |= PollFlags::RDBAND;
    }
    flags.bits().into()
}

/// Returns the readiness that a completion reports, as far as the interest goes; `None`: none.
#[inline]
fn ready(mask: u32, interest: Interest) -> Option<Ready> {
    /// The mask of an arrived byte, if polled with urgent data and without.
    const ORDINARY: [u32; 2] = [
        (libc::POLLIN | libc::POLLPRI | libc::POLLRDBAND) as u32,
        libc::POLLIN as u32,
    ];
    if ORDINARY.contains(&mask) {
        return Some(Ready::READABLE);
    }
    let mut flags = PollFlags::from_bits_retain(mask as _);
    if !interest.contains(Interest::READABLE) {
        flags -= PollFlags::RDHUP;
    }
    if flags.contains(PollFlags::PRI | PollFlags::RDBAND) {
        // With out-of-band data this is the key of a wake-up, which says only what may be there.
        flags -= PollFlags::PRI;
        flags |= PollFlags::IN;
    }
    let ready = flags::ready(flags);
    (ready != Ready::default()).then_some(ready)
}

fn poll(number: RawFd, flags: u32, is_multishot: bool, data: u64) -> squeue::Entry {
    let order = opcode::PollAdd::new(types::Fd(number), flags).multi(is_multishot);
    order.build().user_data(data)
}

/// Returns the order that removes the poll armed with `data`.
fn remove(data: u64) -> squeue::Entry {
    quietly(opcode::AsyncCancel::new(data).build())
}

/// Marks an order so that only its failure is reported, which is then ignored.
fn quietly(order: squeue::Entry) -> squeue::Entry {
    let order = order.flags(squeue::Flags::SKIP_SUCCESS);
    order.user_data(user_data(0, ORDER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backend;
    use crate::poller::{AnySelector, Poller};
    use crate::sys::Process;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::thread;

    const LIMIT: Duration = Duration::from_secs(30);
    const READABLE: Interest = Interest::READABLE;

    thread_local! {
        /// Errors injected into this thread's next calls, last first.
        pub(super) static REFUSALS: std::cell::RefCell<Vec<Errno>> = const {
            std::cell::RefCell::new(Vec::new())
        };
    }

    fn refuse(errors: &[Errno]) {
        REFUSALS.with_borrow_mut(|refusals| refusals.extend(errors));
    }

    fn are_all_met() -> bool {
        REFUSALS.with_borrow(Vec::is_empty)
    }

    /// Returns `None` where no ring can be made: then there is nothing to test.
    fn poller(submissions: u32, completions: u32) -> Option<Poller> {
        let selector = match Uring::with_queues(submissions, completions) {
            Ok(uring) => AnySelector::IoUring(Box::new(uring)),
            Err(error) => {
                assert!(!Backend::IoUring.is_available(), "{error}");
                eprintln!("not run: {error}");
                return None;
            }
        };
        Some(Poller::with(Backend::IoUring, selector, Process::current()))
    }

    fn tcp_pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        theirs.set_read_timeout(Some(LIMIT)).unwrap();
        (ours, theirs)
    }

    fn register(poller: &Poller, source: &impl AsFd, token: u64, interest: Interest, mode: Mode) {
        // SAFETY: each test deregisters what it closes before the poller goes.
        unsafe { poller.register(source.as_fd(), Token(token), interest, mode) }.unwrap();
    }

    fn edges(token: u64) -> Request {
        Request {
            token: Token(token),
            interest: READABLE,
            mode: Mode::Edge,
        }
    }

    fn poll_now(poller: &Poller) -> Vec<Event> {
        let mut events = Events::new();
        poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
        events.iter().copied().collect()
    }

    fn next(poller: &Poller) -> Vec<Event> {
        let mut events = Events::new();
        poller.wait(&mut events, Some(LIMIT)).unwrap();
        assert!(!events.is_empty(), "nothing is reported");
        events.iter().copied().collect()
    }

    /// Makes pairs with registered first ends, all of which are ready.
    fn crowd(poller: &Poller, count: u64, mode: Mode) -> Vec<(UnixStream, UnixStream)> {
        let pairs: Vec<_> = (0..count).map(|_| UnixStream::pair().unwrap()).collect();
        for (token, (ours, _)) in (0..).zip(&pairs) {
            register(poller, ours, token, READABLE, mode);
        }
        assert!(poll_now(poller).is_empty());
        for (_, theirs) in &pairs {
            (&*theirs).write_all(b"x").unwrap();
        }
        pairs
    }

    #[test]
    fn what_its_owner_deregisters_and_closes_is_closed_at_once() {
        for mode in [Mode::Edge, Mode::OneShot] {
            let Some(poller) = poller(64, 256) else {
                return;
            };
            let (ours, mut theirs) = tcp_pair();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            register(&poller, &ours, 1, READABLE, mode);
            register(&poller, &listener, 2, READABLE, mode);
            assert!(poll_now(&poller).is_empty());
            poller.deregister(&ours).unwrap();
            poller.deregister(&listener).unwrap();
            drop((ours, listener));
            TcpListener::bind(address).expect("the port is free");
            assert_eq!(theirs.read(&mut [0]).unwrap(), 0, "the peer sees the end");
        }
    }

    #[test]
    fn what_is_closed_while_hundreds_are_ready_is_closed_at_once() {
        let Some(poller) = poller(256, 1024) else {
            return;
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        register(&poller, &listener, 1_000, READABLE, Mode::Edge);
        // The removal is queued behind twenty times the work of one call.
        let pairs = crowd(&poller, 400, Mode::Edge);
        poller.deregister(&listener).unwrap();
        drop(listener);
        TcpListener::bind(address).expect("the port is free");
        let told: usize = std::iter::repeat_with(|| poll_now(&poller).len())
            .take_while(|count| *count > 0)
            .sum();
        assert_eq!(told, pairs.len(), "nothing of the others is lost");
    }

    #[test]
    fn what_is_closed_with_an_event_on_the_way_is_closed_at_once() {
        for modified in [false, true] {
            let Some(poller) = poller(64, 256) else {
                return;
            };
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            register(&poller, &listener, 1, READABLE, Mode::Edge);
            assert!(poll_now(&poller).is_empty());
            let _client = TcpStream::connect(address).unwrap();
            if modified {
                let all = READABLE | Interest::WRITABLE;
                (poller.modify(&listener, Token(2), all, Mode::Edge)).unwrap();
                assert_eq!(next(&poller)[0].token(), Token(2));
            }
            poller.deregister(&listener).unwrap();
            drop(listener);
            let error = TcpStream::connect(address).expect_err("nobody listens");
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        }
    }

    #[test]
    fn one_wait_reports_as_many_as_there_is_room_for() {
        let Some(poller) = poller(256, 1024) else {
            return;
        };
        let _pairs = crowd(&poller, 512, Mode::Edge);
        let mut events = Events::with_capacity(64);
        for round in 0..8 {
            assert_eq!(poller.wait(&mut events, None).unwrap(), 64, "wait {round}");
        }
        assert!(poll_now(&poller).is_empty(), "told twice");
    }

    /// Returns the reports of one wait without a deadline. If nothing comes, ends after [`LIMIT`].
    fn told_quickly(uring: &Uring, meanwhile: impl FnOnce() + Send) -> Vec<Token> {
        let (mut events, mut told) = (Events::with_capacity(64), Vec::new());
        let (done, is_done) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                meanwhile();
                if is_done.recv_timeout(LIMIT).is_err() {
                    uring.notify().unwrap();
                }
            });
            let report = |token, _| told.push(token);
            uring
                .wait_without_deadline(&mut events, true, report)
                .unwrap();
            done.send(()).unwrap();
        });
        told
    }

    #[test]
    fn a_quick_turn_is_told_all_that_is_ready_and_changed_meanwhile() {
        let Ok(uring) = Uring::with_queues(256, 1024) else {
            return;
        };
        let pairs: Vec<_> = (0..64).map(|_| UnixStream::pair().unwrap()).collect();
        for (token, (ours, _)) in (0..).zip(&pairs) {
            (uring.register(ours.as_fd(), edges(token))).unwrap();
        }
        // The orders are handed over.
        uring.wait(&mut Events::new(), &Until::Now).unwrap();
        for (_, theirs) in &pairs {
            (&*theirs).write_all(b"x").unwrap();
        }
        // One call yields twenty.
        assert_eq!(told_quickly(&uring, || {}).len(), 64);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"x").unwrap();
        let start = Instant::now();
        let mut told = Vec::new();
        let mut register = Some(|| {
            while !uring.table.lock().waiting && start.elapsed() < LIMIT {
                thread::yield_now();
            }
            (uring.register(ours.as_fd(), edges(64))).unwrap();
        });
        // It may return without events, because it was woken to take the order.
        while told.is_empty() && start.elapsed() < LIMIT {
            told = match register.take() {
                Some(register) => told_quickly(&uring, register),
                None => told_quickly(&uring, || {}),
            };
        }
        assert_eq!(told, [Token(64)]);
        assert!(start.elapsed() < LIMIT, "the order waited");
    }

    #[test]
    fn a_completion_queue_that_is_too_short_loses_nothing() {
        for mode in [Mode::Edge, Mode::OneShot] {
            let Some(poller) = poller(8, 16) else { return };
            let pairs = crowd(&poller, 64, mode);
            for round in 0..4 {
                let mut missing: std::collections::HashSet<u64> = (0..64).collect();
                // A source may be reported twice if it has not been read.
                while !missing.is_empty() {
                    for event in next(&poller) {
                        missing.remove(&event.token().0);
                    }
                }
                for (token, (ours, theirs)) in (0..).zip(&pairs) {
                    assert_eq!((&*ours).read(&mut [0; 8]).unwrap(), 1, "round {round}");
                    if mode == Mode::OneShot {
                        poller.modify(ours, Token(token), READABLE, mode).unwrap();
                    }
                    (&*theirs).write_all(b"x").unwrap();
                }
            }
        }
    }

    #[test]
    fn what_was_armed_by_a_thread_that_has_ended_is_reported_to_the_next() {
        for mode in [Mode::Edge, Mode::OneShot] {
            let Some(poller) = poller(64, 256) else {
                return;
            };
            let poller = Arc::new(poller);
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            register(&poller, &ours, 1, READABLE, mode);
            for round in 0..3 {
                let other = poller.clone();
                thread::spawn(move || assert!(poll_now(&other).is_empty()))
                    .join()
                    .unwrap();
                theirs.write_all(&[round]).unwrap();
                let told = next(&poller);
                assert!(told.iter().all(|event| event.token() == Token(1)));
                assert_eq!((&ours).read(&mut [0; 8]).unwrap(), 1);
                poller.modify(&ours, Token(1), READABLE, mode).unwrap();
            }
        }
    }

    #[test]
    fn an_ordinary_byte_is_not_urgent_and_an_urgent_one_is() {
        let Some(poller) = poller(64, 256) else {
            return;
        };
        let (ours, mut theirs) = tcp_pair();
        let (near, mut far) = UnixStream::pair().unwrap();
        let all = READABLE | Interest::PRIORITY;
        register(&poller, &ours, 1, all, Mode::Edge);
        register(&poller, &near, 2, all, Mode::Edge);
        let _ = poll_now(&poller);
        for _ in 0..10 {
            theirs.write_all(b"x").unwrap();
            far.write_all(b"x").unwrap();
            let told = next(&poller);
            assert!(told.iter().all(Event::is_readable), "{told:?}");
            assert!(!told.iter().any(Event::is_priority), "{told:?}");
        }
        socket2::SockRef::from(&theirs)
            .send_out_of_band(b"!")
            .unwrap();
        let told = next(&poller);
        assert!(told.iter().any(Event::is_priority), "{told:?}");
    }

    /// A half-closed peer would complete a one-shot poll for room again and again.
    #[test]
    fn the_end_of_reading_is_nothing_to_a_one_shot_writer() {
        let Some(poller) = poller(64, 256) else {
            return;
        };
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        while (&ours).write(&[7; 4096]).is_ok() {}
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        register(&poller, &ours, 1, Interest::WRITABLE, Mode::OneShot);
        let start = Instant::now();
        let timeout = Duration::from_millis(20);
        let mut events = Events::new();
        assert_eq!(poller.wait(&mut events, Some(timeout)).unwrap(), 0);
        assert!(start.elapsed() >= timeout);
        theirs.set_nonblocking(true).unwrap();
        while (&theirs).read(&mut [0; 4096]).is_ok() {}
        assert!(next(&poller)[0].is_writable());
        assert!(poll_now(&poller).is_empty(), "told twice");
    }

    /// Otherwise each wait would loop as long as the peer is half-closed.
    #[test]
    fn a_poll_that_completes_for_nothing_is_armed_again_once() {
        let Some(poller) = poller(64, 256) else {
            return;
        };
        let AnySelector::IoUring(uring) = &*poller.selector else {
            unreachable!("it was made of a ring");
        };
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        while (&ours).write(&[7; 4096]).is_ok() {}
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        register(&poller, &ours, 1, Interest::WRITABLE, Mode::OneShot);
        for _ in 0..10 {
            let timeout = Duration::from_millis(1);
            assert_eq!(poller.wait(&mut Events::new(), Some(timeout)).unwrap(), 0);
        }
        // The notifier, the one-shot poll, and the multishot poll.
        assert_eq!(uring.table.lock().arming, 3);
    }

    #[test]
    fn what_completes_in_vain_between_two_waits_is_armed_again_before_the_next_sleeps() {
        let Some(poller) = poller(64, 256) else {
            return;
        };
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (other, _others) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        while (&ours).write(&[7; 4096]).is_ok() {}
        register(&poller, &ours, 1, Interest::WRITABLE, Mode::OneShot);
        register(&poller, &other, 2, READABLE, Mode::OneShot);
        assert!(poll_now(&poller).is_empty());
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        // Enters the kernel, which completes the poll of the first one.
        poller.deregister(&other).unwrap();
        theirs.set_nonblocking(true).unwrap();
        while (&theirs).read(&mut [0; 4096]).is_ok() {}
        assert!(next(&poller)[0].is_writable());
    }

    #[test]
    fn a_child_of_fork_gets_errors_and_its_parent_everything() {
        let Some(poller) = poller(64, 256) else {
            return;
        };
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        register(&poller, &ours, 1, READABLE, Mode::Edge);
        assert!(poll_now(&poller).is_empty());
        // SAFETY: the child only uses its copy of the poller, with a lock that no other thread
        // holds, and ends without running any destructor but the poller's.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let kind = |result: io::Result<()>| result.map_err(|error| error.kind());
            let unsupported = Err(io::ErrorKind::Unsupported);
            let mut events = Events::new();
            let waits = poller.wait(&mut events, Some(Duration::ZERO)).map(drop);
            let is_refused = kind(waits) == unsupported
                && kind(poller.modify(&ours, Token(2), READABLE, Mode::Edge)) == unsupported
                && kind(poller.deregister(&ours)) == unsupported;
            drop(poller);
            // SAFETY: always allowed.
            unsafe { libc::_exit(if is_refused { 7 } else { 1 }) };
        }
        assert!(child > 0, "{}", io::Error::last_os_error());
        let mut status = 0;
        // SAFETY: the kernel writes one number.
        let waited = unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(waited, child);
        assert!(libc::WIFEXITED(status), "the child was killed: {status}");
        assert_eq!(libc::WEXITSTATUS(status), 7, "the child was not refused");
        theirs.write_all(b"x").unwrap();
        let told: Vec<_> = next(&poller).iter().map(Event::token).collect();
        assert_eq!(told, [Token(1)]);
        poller.deregister(&ours).unwrap();
    }

    #[test]
    fn the_ring_polls_and_does_nothing_else() {
        let Ok(mut ring) = new_ring(8, 16, false) else {
            return;
        };
        ring.submitter().register_enable_rings().unwrap();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut bytes = [0u8; 8];
        let number = types::Fd(ours.as_raw_fd());
        let orders = [
            opcode::Nop::new().build(),
            opcode::Read::new(number, bytes.as_mut_ptr(), 8).build(),
            opcode::Socket::new(libc::AF_UNIX, libc::SOCK_STREAM, 0).build(),
        ];
        for order in orders {
            // SAFETY: the buffer outlives the ring.
            unsafe { ring.submission().push(&order) }.unwrap();
            ring.submit_and_wait(1).unwrap();
            let result = ring.completion().next().unwrap().result();
            assert_eq!(result, -libc::EACCES);
        }
        assert!(ring.submitter().register_files(&[0]).is_err());
    }

    #[test]
    fn a_wait_is_neither_early_nor_late_by_the_threads_slack() {
        let Some(poller) = poller(64, 256) else {
            return;
        };
        let mut events = Events::new();
        let mut fewest = LIMIT;
        for _ in 0..200 {
            let (start, timeout) = (Instant::now(), Duration::from_micros(100));
            assert_eq!(poller.wait(&mut events, Some(timeout)).unwrap(), 0);
            let took = start.elapsed();
            assert!(took >= timeout, "early: {took:?}");
            fewest = fewest.min(took);
        }
        // At least one of two hundred waits on a busy machine was not held up. (The slack is 50
        // µs.)
        assert!(fewest < Duration::from_micros(100 + 32 + 45), "{fewest:?}");
    }

    /// The kernel returns this when completions must be collected before anything else.
    #[test]
    fn a_ring_that_is_busy_is_entered_again() {
        for error in [Errno::BUSY, Errno::AGAIN] {
            for mode in [Mode::Edge, Mode::OneShot] {
                let Some(poller) = poller(8, 16) else { return };
                // More orders than the queue holds, and more completions.
                let pairs = crowd(&poller, 40, mode);
                let mut missing: std::collections::HashSet<u64> = (0..40).collect();
                while !missing.is_empty() {
                    refuse(&[error, error]);
                    for event in next(&poller) {
                        missing.remove(&event.token().0);
                    }
                }
                REFUSALS.with_borrow_mut(Vec::clear);
                for (ours, _) in &pairs {
                    assert_eq!((&*ours).read(&mut [0; 8]).unwrap(), 1);
                }
                let _ = poll_now(&poller);
                // A call that sleeps, without a deadline and with one; and the quick wait.
                let AnySelector::IoUring(uring) = &*poller.selector else {
                    unreachable!("it was made of a ring");
                };
                let (ours, theirs) = &pairs[7];
                for timeout in [None, Some(LIMIT)] {
                    poller.modify(ours, Token(7), READABLE, mode).unwrap();
                    refuse(&[error, error]);
                    (&*theirs).write_all(b"x").unwrap();
                    let mut events = Events::new();
                    assert_eq!(poller.wait(&mut events, timeout).unwrap(), 1);
                    assert!(are_all_met(), "it was not entered again");
                    assert_eq!((&*ours).read(&mut [0; 8]).unwrap(), 1);
                }
                poller.modify(ours, Token(7), READABLE, mode).unwrap();
                let _ = poll_now(&poller);
                refuse(&[error]);
                let told = told_quickly(uring, || {});
                assert!(told.is_empty() && are_all_met(), "{told:?}");
                (&*theirs).write_all(b"x").unwrap();
                assert_eq!(told_quickly(uring, || {}), [Token(7)]);
                // Closing.
                refuse(&[error]);
                poller.deregister(ours).unwrap();
            }
        }
    }

    /// The queue is full of orders that the kernel has not taken, so there is no room for the rest.
    #[test]
    fn orders_that_find_no_room_in_the_queue_are_handed_over_later() {
        for timeout in [Some(Duration::ZERO), Some(LIMIT), None] {
            let Some(poller) = poller(8, 16) else { return };
            let pairs: Vec<_> = (0..40).map(|_| UnixStream::pair().unwrap()).collect();
            let mut missing: std::collections::HashSet<u64> = (0..40).collect();
            for (token, (ours, theirs)) in (0..).zip(&pairs) {
                register(&poller, ours, token, READABLE, Mode::Edge);
                (&*theirs).write_all(b"x").unwrap();
            }
            let start = Instant::now();
            while !missing.is_empty() {
                refuse(&[Errno::AGAIN; 3]);
                let mut events = Events::new();
                poller.wait(&mut events, timeout).unwrap();
                for event in &events {
                    missing.remove(&event.token().0);
                }
                assert!(start.elapsed() < LIMIT, "{missing:?} are not reported");
            }
            REFUSALS.with_borrow_mut(Vec::clear);
        }
    }

    #[test]
    fn a_wait_that_is_always_refused_pauses_and_fails_at_last() {
        let Ok(uring) = Uring::with_queues(8, 16) else {
            return;
        };
        let mut events = Events::new();
        uring.wait(&mut events, &Until::Now).unwrap();
        // Ends a wait that is no longer refused.
        uring.notify().unwrap();
        let refused = |pauses: u32, wait: &mut dyn FnMut() -> io::Result<()>| {
            uring.table.lock().refusals.pauses = pauses;
            refuse(&[Errno::AGAIN; 1000]);
            let result = wait();
            let left = REFUSALS.with_borrow_mut(std::mem::take).len();
            assert!(left >= 900, "it was entered {} times", 1000 - left);
            result.map_err(|error| error.kind())
        };
        let mut sleep = || uring.wait(&mut events, &Until::Never).map(drop);
        let interrupted = Err(io::ErrorKind::Interrupted);
        assert_eq!(refused(0, &mut sleep), interrupted);
        assert_eq!(refused(1, &mut sleep), interrupted);
        assert_eq!(uring.table.lock().refusals.pauses, 2);
        assert_eq!(
            refused(MAX_PAUSES, &mut sleep),
            Err(io::ErrorKind::WouldBlock)
        );
        // A quick wait returns to its caller after each refusal.
        let mut events = Events::new();
        let mut sleep = || {
            while uring.table.lock().refusals.pauses == 0 {
                uring.wait_without_deadline(&mut events, true, |_, _| {})?;
            }
            Ok(())
        };
        assert_eq!(refused(0, &mut sleep), Ok(()));
        // It goes on as before.
        uring.wait(&mut events, &Until::Never).unwrap();
        assert_eq!(uring.table.lock().refusals.count, 0);
    }

    #[test]
    fn a_removal_that_is_refused_is_handed_over_by_the_next_wait() {
        let Some(poller) = poller(8, 16) else { return };
        let pairs = crowd(&poller, 100, Mode::Edge);
        let (ours, theirs) = UnixStream::pair().unwrap();
        register(&poller, &ours, 100, READABLE, Mode::Edge);
        while !poll_now(&poller).is_empty() {}
        refuse(&[Errno::AGAIN; 200]);
        poller.deregister(&ours).unwrap();
        let left = REFUSALS.with_borrow_mut(std::mem::take).len();
        assert!(left >= 150, "it was entered {} times", 200 - left);
        // The number is free, and most likely goes to the next descriptor, which must keep its
        // poll.
        drop(ours);
        let (next_ours, next_theirs) = UnixStream::pair().unwrap();
        register(&poller, &next_ours, 101, READABLE, Mode::Edge);
        assert!(poll_now(&poller).is_empty());
        theirs.set_read_timeout(Some(LIMIT)).unwrap();
        assert_eq!((&theirs).read(&mut [0]).unwrap(), 0, "the end");
        (&next_theirs).write_all(b"x").unwrap();
        let told: Vec<_> = next(&poller).iter().map(Event::token).collect();
        assert_eq!(told, [Token(101)]);
        drop(pairs);
    }

    /// The kernel had no memory for a completion, so a poll is lost, and `BADR` is the only report
    /// of it.
    #[test]
    fn a_completion_that_the_kernel_has_dropped_is_made_up_for() {
        for mode in [Mode::Edge, Mode::OneShot] {
            let Some(poller) = poller(64, 256) else {
                return;
            };
            let AnySelector::IoUring(uring) = &*poller.selector else {
                unreachable!("it was made of a ring");
            };
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            register(&poller, &ours, 1, READABLE, mode);
            for timeout in [Some(LIMIT), None] {
                poller.modify(&ours, Token(1), READABLE, mode).unwrap();
                assert!(poll_now(&poller).is_empty());
                {
                    let mut table = uring.table.lock();
                    table.remove_all().unwrap();
                    table.ring().completion().for_each(drop);
                }
                theirs.write_all(b"x").unwrap();
                refuse(&[Errno::BADR]);
                let mut events = Events::new();
                assert_eq!(poller.wait(&mut events, timeout).unwrap(), 1, "{mode:?}");
                assert!(are_all_met());
                assert_eq!((&ours).read(&mut [0; 8]).unwrap(), 1);
            }
        }
    }

    #[test]
    fn what_is_abandoned_at_rest_is_armed_again_by_the_next_wait() {
        let Ok(uring) = Uring::new() else { return };
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (other, mut others) = UnixStream::pair().unwrap();
        for (socket, token) in [(&ours, 1), (&other, 2)] {
            (uring.register(socket.as_fd(), edges(token))).unwrap();
        }
        let mut events = Events::new();
        uring.wait(&mut events, &Until::Now).unwrap();
        uring.rest();
        thread::scope(|scope| {
            scope.spawn(|| uring.deregister(other.as_fd()).unwrap());
        });
        drop(other);
        others.set_read_timeout(Some(LIMIT)).unwrap();
        // The end of the old ring interrupts the thread that owned it, as a signal does.
        let read = loop {
            match others.read(&mut [0]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result.expect("the end, within the limit"),
            }
        };
        assert_eq!(read, 0, "the peer sees the end");
        theirs.write_all(b"x").unwrap();
        while uring.wait(&mut events, &Until::Never).is_err() {}
        assert_eq!(
            events.iter().map(Event::token).collect::<Vec<_>>(),
            [Token(1)]
        );
    }
}
