//! The table of a ring: its polls, submissions, and calls of the kernel.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::io::Errno;
use rustix::io_uring::IoringEnterFlags;

use super::ring::{Call, NO_IOWAIT, NOTIFIER, SUBMISSION, TIMEOUT, poll, ready, remove, user_data};
use crate::poller::backends::fd_table::{FdEntry, FdTable};
use crate::poller::backends::notifier::{Notifier, WakeDescriptor};
use crate::poller::error::failed;
use crate::poller::event::{Event, Events, Interest, Mode, Ready};
use crate::poller::selector::Request;
use crate::sync::MutexGuard;

thread_local! {
    /// 0: none yet.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

pub(super) fn thread() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    if NUMBER.get() == 0 {
        NUMBER.set(COUNT.fetch_add(1, Ordering::Relaxed) + 1);
    }
    NUMBER.get()
}

#[derive(Default)]
pub(super) struct Table {
    /// `None` between two owners.
    pub(super) ring: Option<IoUring>,
    /// The [`thread`] that owns the ring; 0: none. While `waiting` is set no other
    /// thread touches the ring; otherwise only the owner does, under the lock.
    pub(super) owner: u64,
    /// Whether the owner is, or is about to be, blocked in the kernel.
    pub(super) waiting: bool,
    /// Whether the runtime is not driven: see `on_idle`.
    pub(super) is_idle: bool,
    /// Whether the kernel writes to a foreign loop's eventfd.
    pub(super) signals: bool,
    pub(super) fds: FdTable<Polled>,
    /// Whether a removal may be in the queue, or among the kernel's deferred work. Until it is
    /// done, the kernel keeps a file open that its user may have closed.
    pub(super) removes: bool,
    /// The last generation of a poll or timeout.
    pub(super) generation: u32,
    /// The notifier's descriptor, followed by its generation; 0: none.
    pub(super) notifier: RawFd,
    pub(super) notified_by: u32,
    /// The generation of a foreign loop's timeout; 0: none.
    pub(super) timeout: u32,
    /// When the timeout ends, by the process's clock.
    pub(super) timeout_end: Option<Instant>,
    /// The time that timeout submissions point to. It outlives them, since they may stay in the
    /// queue.
    pub(super) left: Box<types::Timespec>,
    pub(super) refusals: Refusals,
}

/// Consecutive refused calls, without a completion in between.
#[derive(Default)]
pub(super) struct Refusals {
    pub(super) count: u32,
    /// The pauses of waits meanwhile.
    pub(super) pauses: u32,
    pub(super) last: Option<Errno>,
}

#[derive(Clone, Copy, Default, PartialEq)]
pub(super) struct Polled {
    /// The generation of the poll that the kernel has; 0: none.
    pub(super) armed: u32,
    /// A generation that the kernel may poll, with an interest that was withdrawn. Not set together
    /// with `armed`.
    pub(super) stale: u32,
    /// Whether it should be polled. Cleared by deregistering, and by a report that disarms it.
    pub(super) wanted: bool,
    /// Whether it needs a multishot poll although it is one-shot.
    pub(super) is_multishot: bool,
}

#[derive(Default)]
pub(super) struct Collected {
    pub(super) notified: bool,
    pub(super) is_full: bool,
}

/// The calls of a wait for deferred work: enough for a batch of events.
pub(super) const MAX_ROUNDS: usize = 16;

/// Consecutive refusals after which a wait [pauses](pause), and a removal is left to the next wait.
const MAX_REFUSALS: u32 = 16;

/// Length of a pause, and the number of pauses after which the wait fails: about a second.
const PAUSE: Duration = Duration::from_millis(1);
pub(super) const MAX_PAUSES: u32 = 1000;

/// Pauses after [`MAX_REFUSALS`], so that no thread spins until the kernel has memory again.
/// Returns `INTR`, so that the caller waits again, or, after [`MAX_PAUSES`], the refusal.
///
/// The lock is not held meanwhile, and `waiting` is not set: other threads' submissions are flushed
/// by the next wait.
#[cold]
pub(super) fn pause(mut table: MutexGuard<'_, Table>) -> io::Error {
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

    #[inline]
    fn end(&mut self) {
        (self.count, self.pauses) = (0, 0);
    }

    #[inline]
    pub(super) fn are_many(&self) -> bool {
        self.count >= MAX_REFUSALS
    }
}

impl Table {
    #[inline]
    pub(super) fn is_prepared(&self, has_eventfd: bool) -> bool {
        self.is_own()
            && self.fds.changed.is_empty()
            && self.notified_by != 0
            && (self.signals || !has_eventfd)
    }

    #[inline]
    pub(super) fn is_own(&self) -> bool {
        self.owner != 0 && self.owner == NUMBER.get()
    }

    #[inline]
    pub(super) fn ring(&mut self) -> &mut IoUring {
        self.ring.as_mut().expect("the calling thread has a ring")
    }

    #[cold]
    pub(super) fn signal(&mut self, eventfd: &WakeDescriptor) -> io::Result<()> {
        let number = eventfd.descriptor().as_raw_fd();
        let registered = self.ring().submitter().register_eventfd(number);
        registered.map_err(|error| failed("io_uring_register", error))?;
        self.signals = true;
        Ok(())
    }

    /// Prepares for a new ring, in which nothing is armed.
    pub(super) fn forget_polls(&mut self) {
        (self.notified_by, self.timeout, self.timeout_end) = (0, 0, None);
        (self.signals, self.removes) = (false, false);
        for index in 0..self.fds.all.len() {
            let data = &mut self.fds.all[index].data;
            (data.armed, data.stale) = (0, 0);
            if data.wanted {
                self.fds.mark_changed(index as RawFd);
            }
        }
    }

    /// Drops the ring, no matter which thread owns it; the owner must not be waiting. The kernel
    /// releases all files that it polls. The next wait makes another ring.
    #[cold]
    pub(super) fn drop_ring(&mut self) {
        (self.ring, self.owner) = (None, 0);
        self.forget_polls();
    }

    pub(super) fn next_generation(&mut self) -> u32 {
        self.generation = self.generation.wrapping_add(1).max(1);
        self.generation
    }

    /// Returns whether there was room: while the kernel refuses submissions there may be none.
    pub(super) fn push(&mut self, submission: &squeue::Entry) -> io::Result<bool> {
        if self.ring().submission().is_full() {
            self.enter_now()?;
        }
        // SAFETY: the submission refers to no memory, or to `left`, which lives as long as the
        // queue. The code that registered the descriptor ensures that the kernel may poll it: "Why
        // `register` is unsafe" in the module above.
        let pushed = unsafe { self.ring().submission().push(submission) };
        Ok(pushed.is_ok())
    }

    /// Puts the changes into the queue, as far as there is room. The next wait, which finds the
    /// table not [prepared](Self::is_prepared), continues.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.notified_by == 0 {
            let generation = self.next_generation();
            let data = user_data(generation, NOTIFIER);
            if !self.push(&poll(self.notifier, Interest::READABLE, true, data))? {
                return Ok(());
            }
            self.notified_by = generation;
        }
        while let Some(&number) = self.fds.changed.last() {
            let index = number as usize;
            let FdEntry { request, data, .. } = self.fds.all[index];
            if data.stale != 0 {
                if !self.push(&remove(user_data(data.stale, number as u32)))? {
                    return Ok(());
                }
                self.removes = true;
                self.fds.all[index].data.stale = 0;
            }
            if data.wanted && data.armed == 0 {
                let generation = self.next_generation();
                let is_multishot =
                    request.mode == Mode::Edge || request.interest.is_empty() || data.is_multishot;
                let data = user_data(generation, number as u32);
                if !self.push(&poll(number, request.interest, is_multishot, data))? {
                    return Ok(());
                }
                self.fds.all[index].data.armed = generation;
            }
            self.fds.all[index].changed = false;
            self.fds.changed.pop();
        }
        if !self.removes {
            self.fds.trim(); // Not before: `finish_work` goes by their number.
        }
        Ok(())
    }

    /// Removes the poll of a deregistered entry. The file is released when this returns, unless the
    /// kernel refuses calls: then the next wait continues. The removal names the generation, so it
    /// cannot remove a poll of the number's next owner.
    pub(super) fn remove_now(&mut self, number: RawFd) -> io::Result<()> {
        let stale = self.fds.all[number as usize].data.stale;
        if !self.push(&remove(user_data(stale, number as u32)))? {
            return Ok(());
        }
        self.removes = true;
        self.fds.all[number as usize].data.stale = 0;
        self.finish_work()
    }

    /// Flushes all submissions, and has the kernel do all deferred work: at most one piece for each
    /// poll, besides new ones. Gives up after [`MAX_REFUSALS`]; the next wait does the rest.
    pub(super) fn finish_work(&mut self) -> io::Result<()> {
        self.enter_now()?;
        for _ in 0..self.fds.all.len() {
            let is_done = {
                let queue = self.ring().submission();
                queue.is_empty() && !queue.taskrun()
            };
            if is_done || self.refusals.are_many() {
                if is_done {
                    self.end_removals();
                }
                break;
            }
            self.enter_now()?;
        }
        Ok(())
    }

    #[inline]
    pub(super) fn end_removals(&mut self) {
        if self.removes {
            self.removes = false;
            self.fds.trim();
        }
    }

    /// Whether the kernel may keep a file open that has been deregistered. Another source may have
    /// its number by now.
    pub(super) fn keeps_any(&self) -> bool {
        let is_stale = |number: &RawFd| self.fds.all[*number as usize].data.stale != 0;
        self.removes || self.fds.changed.iter().any(is_stale)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.sync()?;
        let has_submissions = !self.ring().submission().is_empty();
        if has_submissions {
            self.enter_now()
        } else {
            Ok(())
        }
    }

    #[inline]
    pub(super) fn has_work(&mut self) -> bool {
        let queue = self.ring().submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    /// Enters the kernel without sleeping. Refused submissions stay in the queue.
    pub(super) fn enter_now(&mut self) -> io::Result<()> {
        match self.call(0).enter(None) {
            Err(Errno::INTR) => Ok(()),
            result => self.end_call(result),
        }
    }

    /// Returns `Ok` for a refusal: completions are collected, and the kernel is entered again.
    #[inline]
    fn end_call(&mut self, result: Result<u32, Errno>) -> io::Result<()> {
        match result {
            Ok(_) => self.refusals.end(),
            // Completions must be collected first, or the kernel has no memory for a submission.
            Err(error @ (Errno::BUSY | Errno::AGAIN)) => self.refusals.add(error),
            Err(error) => return Err(failed("io_uring_enter", error)),
        }
        Ok(())
    }

    /// Returns whether the timeout of a call that may have slept has elapsed.
    #[inline]
    pub(super) fn end_wait(&mut self, result: Result<u32, Errno>) -> io::Result<bool> {
        match result {
            Err(Errno::TIME) => {
                self.refusals.end();
                Ok(true)
            }
            Err(Errno::BADR) => {
                // The kernel had no memory for a completion, so a poll may be lost.
                self.drop_ring();
                Err(Errno::INTR.into())
            }
            result => self.end_call(result).map(|()| false),
        }
    }

    /// Returns a call, to be made with or without the lock. While a thread makes one without it,
    /// `waiting` is set, so that no other thread touches the ring.
    #[inline]
    pub(super) fn call(&mut self, completions: u32) -> Call {
        let ring = self.ring();
        let mut flags = IoringEnterFlags::GETEVENTS;
        if ring.params().is_feature_no_iowait() {
            flags |= NO_IOWAIT;
        }
        Call {
            ring: ring.as_raw_fd(),
            submissions: ring.submission().len() as u32,
            completions,
            flags,
        }
    }

    /// Removes all polls. The files are released when this returns, unless the kernel refuses
    /// calls.
    pub(super) fn remove_all(&mut self) -> io::Result<()> {
        let all = opcode::AsyncCancel2::new(types::CancelBuilder::any());
        if !self.push(&all.build().user_data(user_data(0, SUBMISSION)))? {
            return Ok(());
        }
        self.finish_work()
    }

    pub(super) fn collect(&mut self, events: &mut Events, notifier: &Notifier) -> Collected {
        let Table {
            ring,
            fds,
            notified_by,
            timeout,
            timeout_end,
            refusals,
            ..
        } = self;
        let ring = ring.as_mut().expect("the calling thread has a ring");
        let mut collected = Collected::default();
        let mut completed = ring.completion();
        while !completed.is_empty() {
            if events.len() == events.limit() {
                collected.is_full = true;
                break;
            }
            let Some(entry) = completed.next() else {
                break;
            };
            refusals.end();
            let data = entry.user_data();
            let (generation, of) = ((data >> 32) as u32, data as u32);
            let is_last = !cqueue::more(entry.flags());
            if of < SUBMISSION {
                let Some(polled) = fds.all.get_mut(of as usize) else {
                    continue; // Of a poll that was removed.
                };
                let (event, has_changed) = polled.complete(generation, entry.result(), is_last);
                if let Some(ready) = event {
                    events.push(Event::new(polled.request.token, ready));
                }
                if has_changed {
                    fds.mark_changed(of as RawFd);
                }
            } else if of == NOTIFIER {
                if is_last && generation == *notified_by {
                    *notified_by = 0;
                }
                collected.notified |= notifier.acknowledge();
            } else if of == TIMEOUT && generation == *timeout {
                (*timeout, *timeout_end) = (0, None);
            }
        }
        collected
    }
}

impl FdEntry<Polled> {
    /// `is_last`: no other completion follows. Returns the readiness to report, and whether a
    /// submission is left.
    #[inline]
    fn complete(&mut self, generation: u32, result: i32, is_last: bool) -> (Option<Ready>, bool) {
        let (Request { interest, mode, .. }, data) = (self.request, &mut self.data);
        if generation == data.stale {
            if is_last {
                data.stale = 0;
            }
            return (None, false);
        }
        if generation != data.armed {
            return (None, false);
        }
        if is_last {
            data.armed = 0;
        }
        let ready = match u32::try_from(result) {
            Ok(mask) => ready(mask, interest),
            // Cancelled without a request of ours: it is rearmed.
            Err(_) if result == -Errno::CANCELED.raw_os_error() => return (None, is_last),
            Err(_) => {
                if result == -Errno::BADF.raw_os_error() {
                    // Closed without being deregistered: reported once, so that the number's next
                    // owner may register.
                    (self.registered, data.wanted) = (false, false);
                }
                Some(Ready::READABLE | Ready::WRITABLE | Ready::ERROR)
            }
        };
        if ready.is_none() {
            // The hang-up of the reading side, without interest in reading. A multishot poll
            // reports it once.
            data.is_multishot |= is_last;
            return (None, is_last);
        }
        if mode == Mode::OneShot || interest.is_empty() {
            data.wanted = false;
            (data.stale, data.armed) = (data.armed, 0);
            return (ready, data.stale != 0);
        }
        (ready, is_last && data.wanted)
    }
}
