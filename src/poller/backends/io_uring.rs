//! The io_uring backend: Linux from 6.1 on. One-shot and edges, by a ring that can only poll. No
//! system call to check for events, and one for a wait together with all changes since the last
//! one.
//!
//! **Overview.** Each armed source is one `IORING_OP_POLL_ADD`: multishot for edges, single for
//! one-shot. The kernel is never given a buffer. `IORING_REGISTER_RESTRICTIONS` admits only polls,
//! timeouts and their removal, so an attacker cannot read or open anything through the ring.
//!
//! **Access to the ring.** With `DEFER_TASKRUN` only one thread may enter the ring, its *owner*:
//! the thread that waits. A caller's request is queued in the [`Table`], behind a lock, as a
//! pending *submission*, which the owner flushes before it next enters the kernel
//! ([`sync`](Table::sync)). **Why no submission is lost:** the owner flushes submissions, and sets
//! `waiting`, under the lock. After that, a thread that queues one sees `waiting` and writes to the
//! notifier, which the ring polls, so the owner returns from its wait. A new ring is disabled until
//! a thread waits. A new owner makes its own ring, arms everything there, and drops the old ring.
//!
//! **Why no ring is shared.** A poller of several threads is an epoll set on this backend too
//! (`Backend::open`). In any ring the kernel ends a poll, and releases its file, on the thread that
//! has armed it (`io_req_task_work_add` in io_uring/io_uring.c), whichever request removes it:
//! `ASYNC_CANCEL`, `POLL_REMOVE`, `IORING_REGISTER_SYNC_CANCEL`. Closing a socket would block on
//! another worker: for milliseconds while completions overflow, without a bound during an
//! uninterruptible sleep (`fsync`). Events also interrupt that worker: a round trip between tasks
//! of two workers took 23 µs of CPU time in a shared ring, 13 µs with epoll (Linux 6.18). A ring
//! that polls an epoll set needs one more system call a wait than epoll alone.
//!
//! **Why no stale event is reported.** Each POLL_ADD gets a unique generation in its `user_data`; a
//! change replaces it, and completions with a superseded one are ignored. Nothing is lost, since a
//! new poll reports a source that is ready.
//!
//! **Why a descriptor closes when its owner closes it.** A poll holds a reference to its file.
//! Deregistering on the owner's thread removes an armed poll immediately, with a system call; on
//! another thread it is a submission, for which a waiting owner is woken. If the runtime is not
//! driven ([`on_idle`](Uring::on_idle)), the owner may never enter the kernel, so the ring is
//! dropped, and the next wait makes another. Neither blocks.
//!
//! Traps, tested mostly in `ring_tests` (Linux 6.18):
//!
//! * **Removing a poll does not release the file.** The reference is left to deferred work, which
//!   runs only in a call with `IORING_ENTER_GETEVENTS`, at most twenty pieces a call
//!   (`IO_LOCAL_TW_DEFAULT_MAX` in io_uring/io_uring.h;
//!   <https://github.com/axboe/liburing/issues/568>): [`remove_now`](Table::remove_now) calls until
//!   all is done. A wait calls again while `IORING_SQ_TASKRUN` is set and there is room.
//! * **`IORING_OP_POLL_REMOVE` fails** with `EALREADY` if an event is on the way, and the poll
//!   stays (`io_poll_disarm` in io_uring/poll.c). `IORING_OP_ASYNC_CANCEL` ends it.
//! * **A thread's polls end with it**: hence a separate ring for each thread that waits.
//! * **Hints are unreliable.** A completion reports the wake-up's key, not the file's state: one
//!   ordinary byte on TCP is "readable, urgent, out-of-band". If two wake-ups coalesced, the kernel
//!   asks the file. `POLLRDBAND` tells the two cases apart, since no file with urgent data reports
//!   it when asked: see [`ready`](ring::ready). Hang-up and error are true, since their wake-ups
//!   have no key.
//! * **A hang-up of the reading side is always reported** (`IO_POLL_UNMASK` in io_uring/poll.c),
//!   and completes a one-shot poll for writability repeatedly: such a source gets a multishot poll,
//!   which reports it once ([`Polled::is_multishot`](table::Polled::is_multishot)).
//! * **A full completion queue ends a multishot poll**; so does a lack of memory. After each end
//!   that was not requested, the source is rearmed.
//! * **`EBUSY` and `EAGAIN`** of `io_uring_enter` are not failures: completions are collected, and
//!   the kernel is entered again. Refused submissions stay in the queue, or pending. A wait that is
//!   refused repeatedly pauses, and fails after about a second (`MAX_REFUSALS` in `table.rs`).
//! * **`fork`.** The queues are shared memory: the parent would run a child's submissions. So the
//!   child lacks that memory (`MADV_DONTFORK`), and its `Poller` neither forwards calls to this
//!   file nor drops the ring.
//! * **A zero timeout sleeps** for microseconds: a check without sleeping passes no timeout.
//! * **Polling the ring's descriptor does not work**: deferred work wakes only the owner, in its
//!   own call (`io_req_local_work_add` in io_uring/io_uring.c). But the kernel signals a registered
//!   eventfd, so a foreign loop gets that.
//! * **A dropped ring** releases its files some milliseconds later (`io_ring_exit_work`): a ring
//!   that its owner drops is emptied first.
//! * `IORING_POLL_ADD_LEVEL` is refused (<https://github.com/axboe/liburing/issues/829>): there are
//!   no levels.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use io_uring::opcode;
use rustix::io::Errno;

use super::epoll::{MAX_TIMEOUT, TIMER_RESOLUTION, round_up};
use super::notifier::{Notifier, WakeDescriptor, WakeSource};
use crate::poller::capabilities::Capabilities;
use crate::poller::error::failed;
use crate::poller::event::Events;
use crate::poller::selector::{Change, Selector, WaitUntil};
use crate::sync::Mutex;
use crate::sys::{self, BorrowedDescriptor, Race};

mod ring;
#[cfg(test)]
mod ring_tests;
mod table;

use ring::{TIMEOUT, new_ring, skip_success, user_data};
use table::{Collected, MAX_ROUNDS, Table, pause, thread};

/// Size of the submission queue: 16 KiB. More submissions take several calls.
const SUBMISSIONS: u32 = 256;

/// Size of the completion queue: 16 KiB, more than [`SUBMISSIONS`] produce. The kernel keeps
/// completions that do not fit.
const COMPLETIONS: u32 = 1024;

pub(in crate::poller) const IS_BUILT: bool = true;

/// Whether a ring can be made here; asks the kernel once. A temporary shortage is not recorded.
pub(in crate::poller) fn is_available() -> bool {
    static REFUSED: Race<bool> = Race::new();
    if let Some(refused) = REFUSED.get() {
        return !refused;
    }
    let refused = match new_ring(SUBMISSIONS, COMPLETIONS) {
        Ok(_) => false,
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => return true,
        Err(error) if sys::is_out_of_descriptors(&error) => return true,
        Err(_) => true,
    };
    !REFUSED.get_or_init(|| refused)
}

pub(in crate::poller) struct Uring {
    notifier: Notifier,
    table: Mutex<Table>,
    /// An eventfd for a foreign loop; the kernel writes to it when there is something to collect.
    eventfd: OnceLock<WakeDescriptor>,
    /// The moment of the first timeout, where the grid of [`TIMER_RESOLUTION`] begins.
    origin: OnceLock<Instant>,
    submissions: u32,
    completions: u32,
}

impl Uring {
    pub(in crate::poller) fn new() -> io::Result<Uring> {
        Uring::with_queues(SUBMISSIONS, COMPLETIONS)
    }

    fn with_queues(submissions: u32, completions: u32) -> io::Result<Uring> {
        let ring = new_ring(submissions, completions)?;
        let notifier = Notifier::new()?;
        Ok(Uring {
            table: Mutex::new(Table {
                ring: Some(ring),
                notifier: notifier.descriptor().as_raw_fd(),
                ..Table::default()
            }),
            notifier,
            eventfd: OnceLock::new(),
            origin: OnceLock::new(),
            submissions,
            completions,
        })
    }

    /// Makes the calling thread own the ring, which writes to a foreign loop's eventfd. No thread
    /// may be waiting.
    #[inline]
    fn acquire(&self, table: &mut Table) -> io::Result<()> {
        if !table.is_own() {
            self.take_over(table)?;
        }
        match self.eventfd.get() {
            Some(eventfd) if !table.signals => table.signal(eventfd),
            _ => Ok(()),
        }
    }

    #[cold]
    fn take_over(&self, table: &mut Table) -> io::Result<()> {
        let is_new = table.ring.is_some() && table.owner == 0;
        if !is_new {
            let make = || new_ring(self.submissions, self.completions);
            let ring = match make() {
                Err(error) if table.ring.is_some() && sys::is_out_of_descriptors(&error) => {
                    // The descriptor of the old ring will do, unless another thread takes it first.
                    table.drop_ring();
                    make()?
                }
                made => made?,
            };
            table.ring = Some(ring);
        }
        table.owner = 0;
        if let Err(error) = table.ring().submitter().register_enable_rings() {
            table.ring = None;
            return Err(failed("io_uring_register", error));
        }
        table.owner = thread();
        table.forget_polls();
        Ok(())
    }

    /// Makes the foreign loop's eventfd readable only if a wait would return immediately.
    fn update_eventfd(&self, table: &mut Table) {
        let Some(eventfd) = self.eventfd.get() else {
            return;
        };
        // The next wait meets errors again, here and below.
        let _ = table.flush();
        // Emptied first: later completions are written to it again, or seen here.
        eventfd.drain();
        let has_submissions = !table.is_prepared(true);
        if has_submissions || table.has_work() || !table.ring().completion().is_empty() {
            self.wake_foreign_loop();
        }
    }

    /// Flushes before a foreign loop sleeps, or wakes it if the kernel refuses some submissions:
    /// the next wait flushes them.
    fn flush_for_foreign_loop(&self, table: &mut Table) -> io::Result<()> {
        table.flush()?;
        if !table.is_prepared(true) || !table.ring().submission().is_empty() {
            self.wake_foreign_loop();
        }
        Ok(())
    }

    /// Writes to the foreign loop's eventfd. If the kernel did so on a write to the notifier, it
    /// would delay that through RCU by milliseconds (`eventfd_signal_allowed` in
    /// io_uring/eventfd.c).
    fn wake_foreign_loop(&self) {
        if let Some(eventfd) = self.eventfd.get() {
            let _ = eventfd.write();
        }
    }

    fn change_entry(&self, number: RawFd, change: Change) -> io::Result<()> {
        let mut table = self.table.lock();
        table.fds.check(number, change)?;
        // False while the owner waits.
        let is_owner = table.is_own();
        let has_eventfd = self.eventfd.get().is_some();
        if (table.waiting || has_eventfd && !is_owner) && table.fds.changed.is_empty() {
            // Under the lock, so that the owner is still in that wait. If it is refused, nothing
            // has changed.
            self.notifier.wake()?;
            self.wake_foreign_loop();
        }
        let entry = table.fds.change(number, change);
        let data = &mut entry.data;
        if data.armed != 0 {
            (data.stale, data.armed) = (data.armed, 0);
        }
        (data.wanted, data.is_multishot) = (entry.registered, false);
        let is_to_remove = !entry.registered && data.stale != 0;
        table.fds.mark_changed(number);
        if is_to_remove {
            if is_owner {
                let _ = table.remove_now(number);
            } else if table.is_idle && !has_eventfd {
                table.drop_ring();
            }
        }
        if is_owner && has_eventfd {
            self.flush_for_foreign_loop(&mut table)
        } else {
            Ok(())
        }
    }

    #[inline]
    pub(in crate::poller) fn has_submissions(&self) -> bool {
        let table = self.table.lock();
        table.removes || !table.fds.changed.is_empty()
    }

    fn collect_more(
        &self,
        table: &mut Table,
        collected: &mut Collected,
        events: &mut Events,
    ) -> io::Result<()> {
        for _ in 0..MAX_ROUNDS {
            if collected.is_full {
                break;
            }
            if !table.has_work() {
                table.end_removals();
                break;
            }
            let entered = table.enter_now();
            let more = table.collect(events, &self.notifier);
            collected.notified |= more.notified;
            collected.is_full = more.is_full;
            match entered {
                Ok(()) => {}
                Err(error) if events.is_empty() && !collected.notified => return Err(error),
                Err(_) => break,
            }
        }
        if collected.is_full {
            // Submissions must not wait until fewer sources are ready.
            if !table.ring().submission().is_empty() {
                let _ = table.enter_now();
            }
            // `events` was full: see `Notifier::reset`.
            collected.notified |= self.notifier.reset();
        }
        Ok(())
    }

    /// Rounds up to the grid.
    fn timeout(&self, deadline: Instant, now: Instant) -> Duration {
        let target = round_up(*self.origin.get_or_init(|| now), deadline);
        let left = deadline.saturating_duration_since(now);
        left.saturating_add(target - deadline)
            .clamp(Duration::from_nanos(1), MAX_TIMEOUT)
    }
}

impl Selector for Uring {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            level: false,
            granularity: TIMER_RESOLUTION,
            ..Capabilities::ALL
        }
    }

    fn change(&self, descriptor: BorrowedDescriptor<'_>, change: Change) -> io::Result<()> {
        self.change_entry(descriptor.as_raw_fd(), change)
    }

    fn wait(&self, events: &mut Events, until: WaitUntil) -> io::Result<bool> {
        let may_sleep = until != WaitUntil::Now;
        let timeout = match until {
            WaitUntil::At { deadline, now } => Some(self.timeout(deadline, now)),
            WaitUntil::Now | WaitUntil::Forever => None,
        };
        let mut table = self.table.lock();
        table.is_idle = false;
        let has_eventfd = self.eventfd.get().is_some();
        self.acquire(&mut table)?;
        let (mut collected, mut passed) = (Collected::default(), false);
        if !table.ring().completion().is_empty() {
            collected = table.collect(events, &self.notifier);
        }
        if !table.is_prepared(has_eventfd) {
            match table.sync() {
                Err(error) if events.is_empty() && !collected.notified => return Err(error),
                _ => {}
            }
        }
        // Remaining submissions must not wait for an event.
        let has_submissions = !table.is_prepared(has_eventfd);
        if may_sleep && events.is_empty() && !collected.notified && !has_submissions {
            table.waiting = true;
            let call = table.call(1);
            drop(table);
            let result = call.enter(timeout);
            table = self.table.lock();
            table.waiting = false;
            passed = table.end_wait(result)?;
            collected = table.collect(events, &self.notifier);
        }
        self.collect_more(&mut table, &mut collected, events)?;
        if has_eventfd {
            self.update_eventfd(&mut table);
        }
        let is_over = passed || collected.notified || !events.is_empty();
        if is_over || !may_sleep && !has_submissions {
            return Ok(passed || !may_sleep);
        }
        if table.refusals.are_many() {
            return Err(pause(table));
        }
        // The wait was ended by a submission, by a stale event, or by a signal that came after
        // submissions were taken, which the kernel does not report. Or submissions are left. The
        // caller waits again.
        Err(Errno::INTR.into())
    }

    fn notify(&self) -> io::Result<()> {
        self.notifier.notify()?;
        self.wake_foreign_loop();
        Ok(())
    }

    fn descriptor(&self) -> io::Result<BorrowedDescriptor<'_>> {
        if self.eventfd.get().is_none() {
            let made = WakeDescriptor::eventfd()?;
            let mut table = self.table.lock();
            let _ = self.eventfd.set(made);
            if table.waiting {
                // The waiter returns, and sees it.
                self.notifier.wake()?;
            } else {
                self.acquire(&mut table)?;
                self.update_eventfd(&mut table);
            }
        }
        Ok(self.eventfd.get().expect("it is there").descriptor())
    }

    fn arm(&self, until: WaitUntil) -> io::Result<()> {
        let mut table = self.table.lock();
        self.acquire(&mut table)?;
        let (left, end, is_armed) = match until {
            WaitUntil::At { deadline, now } => {
                let is_armed = table.timeout_end == Some(deadline) && sys::has_kernel_clock();
                (self.timeout(deadline, now), Some(deadline), is_armed)
            }
            WaitUntil::Now => (Duration::from_nanos(1), None, false),
            WaitUntil::Forever => (MAX_TIMEOUT, None, table.timeout == 0),
        };
        if !is_armed {
            // This also changes a submission that is still in the queue.
            (*table.left, table.timeout_end) = (left.into(), None);
            let (generation, submission) = match table.timeout {
                0 => {
                    let generation = table.next_generation();
                    let submission = opcode::Timeout::new(&*table.left).build();
                    (
                        generation,
                        submission.user_data(user_data(generation, TIMEOUT)),
                    )
                }
                // An abandoned timeout is moved far into the future: a removed one would be
                // reported, and would wake the foreign loop.
                generation => {
                    let data = user_data(generation, TIMEOUT);
                    let submission = opcode::TimeoutUpdate::new(data, &*table.left);
                    (generation, skip_success(submission.build()))
                }
            };
            if !table.push(&submission)? {
                // The foreign loop is woken, and requests it again.
                self.wake_foreign_loop();
                return Ok(());
            }
            table.timeout = generation;
        }
        table.timeout_end = end;
        self.flush_for_foreign_loop(&mut table)
    }

    fn on_idle(&self) {
        let mut table = self.table.lock();
        table.is_idle = true;
        if table.keeps_any() && table.is_own() {
            let flushed = self.flush_for_foreign_loop(&mut table);
            let _ = flushed.and_then(|()| table.finish_work());
            if table.keeps_any() && self.eventfd.get().is_none() {
                table.drop_ring();
            }
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        if table.is_own() {
            // The kernel closes the rest later. Another thread may not enter the ring: it drops the
            // ring of a runtime that has closed, and so polls nothing, or of a bare `Poller`.
            let _ = table.remove_all();
        }
    }
}
