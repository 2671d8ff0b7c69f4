//! The interest table of `poll(2)` and `select(2)`: the kernel keeps no state, so the poller does.
//!
//! Two halves, each with its own lock; lock order: poll set, then table.
//!
//! * The **interest table** ([`InterestTable`]): the callers' requests, by descriptor number.
//!   Locked only briefly.
//! * The **poll set** (a [`PollSet`]): the set passed to the kernel. Locked by the waiting thread,
//!   of which there is one, for the length of its wait. It holds only armed sources: a source
//!   without a waiter costs the kernel nothing, and its hang-up, which poll always reports, cannot
//!   end a wait.
//!
//! A change writes to the table, without a system call, and adds the descriptor to its `changed`;
//! the waiter copies changes to the poll set before it calls the kernel. **Why no change is lost:**
//! the waiter copies changes, and sets `waiting`, under the table's lock. The author of a later
//! change sees `waiting` and writes to the notifier, which is in the poll set, so the waiter
//! returns. **Why no stale event is reported:** after the wait, again under the lock, a report
//! counts only if its descriptor's entry has not changed since it was copied. If it has, the next
//! round asks again, and nothing is lost, since the kernel reports levels.
//!
//! **Why a descriptor closes when its owner closes it.** A thread in `poll` or `select` holds a
//! reference to each file. Deregistering makes the waiter return, which drops the reference; the
//! thread that deregisters blocks until then.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use rustix::io::Errno;

use super::fd_table::FdTable;
use super::long_timeout::{self, LongTimeout, Part};
use super::notifier::{Notifier, WakeDescriptor, WakeSource};
use crate::poller::capabilities::Capabilities;
use crate::poller::event::{Event, Events, Interest, Mode, Ready};
use crate::poller::selector::{Change, Selector, WaitUntil};
use crate::slab::shrink;
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::sys::{BorrowedDescriptor, LONGEST_TIMEOUT};

/// The set passed to the kernel, in the form that one system call requires.
pub(super) trait PollSet: Send {
    /// An empty interest removes the descriptor.
    fn set(&mut self, number: RawFd, interest: Interest);

    /// Adds the kernel's report of each ready descriptor to `reports`.
    fn poll(&mut self, timeout: Option<Duration>, reports: &mut Vec<Report>) -> io::Result<()>;
}

#[derive(Clone, Copy)]
pub(super) struct Report {
    pub(super) number: RawFd,
    pub(super) ready: Ready,
    /// Closed without being deregistered.
    pub(super) is_closed: bool,
}

pub(super) struct TablePoller<W = WakeDescriptor> {
    capabilities: Capabilities,
    notifier: Notifier<W>,
    notified: RawFd,
    table: Mutex<InterestTable>,
    has_left: Condvar,
    waiter: Mutex<Waiter>,
}

struct Waiter {
    poll_set: Box<dyn PollSet>,
    reports: Vec<Report>,
    /// The first descriptor for which the last wait had no room.
    cursor: RawFd,
    long_timeout: LongTimeout,
}

#[derive(Default)]
struct InterestTable {
    fds: FdTable<()>,
    /// Whether a thread is between copying changes and reading the result.
    waiting: bool,
    /// The number of waits that have ended; wraps.
    waits: usize,
    /// The number of threads in [`wait_for_waiter`](TablePoller::wait_for_waiter).
    deregistering: usize,
}

impl TablePoller {
    pub(super) fn new(
        poll_set: Box<dyn PollSet>,
        capabilities: Capabilities,
    ) -> io::Result<TablePoller> {
        let notifier = Notifier::new()?;
        let notified = notifier.descriptor().as_raw_fd();
        Ok(TablePoller::with(
            notifier,
            notified,
            poll_set,
            capabilities,
        ))
    }
}

impl<W: WakeSource> TablePoller<W> {
    fn with(
        notifier: Notifier<W>,
        notified: RawFd,
        mut poll_set: Box<dyn PollSet>,
        capabilities: Capabilities,
    ) -> TablePoller<W> {
        poll_set.set(notified, Interest::READABLE);
        TablePoller {
            capabilities,
            notifier,
            notified,
            table: Mutex::new(InterestTable::default()),
            has_left: Condvar::default(),
            waiter: Mutex::new(Waiter {
                poll_set,
                reports: Vec::new(),
                cursor: 0,
                long_timeout: LongTimeout::default(),
            }),
        }
    }

    /// Wakes a waiting thread, so that it copies the change. Returns whether the waiter may poll
    /// the descriptor as it was before.
    fn change_entry(
        &self,
        number: RawFd,
        change: Change,
    ) -> io::Result<(MutexGuard<'_, InterestTable>, bool)> {
        let mut table = self.table.lock();
        table.fds.check(number, change)?;
        if table.waiting && table.fds.changed.is_empty() {
            // Under the lock, so that the waiter is still in that wait, and does not see the change
            // before it is made. If it is refused, nothing has changed.
            self.notifier.wake()?;
        }
        // It is in the poll set, or, if it has changed already, may still be there.
        let is_polled = (table.fds.all.get(number as usize))
            .is_some_and(|entry| entry.changed || !entry.request.interest.is_empty());
        table.fds.change(number, change);
        table.fds.mark_changed(number);
        Ok((table, is_polled))
    }

    /// Blocks until the waiter, which was woken, has left the kernel. Until then it takes no lock
    /// that the caller may have.
    #[cold]
    fn wait_for_waiter(&self, mut table: MutexGuard<'_, InterestTable>) {
        let wait = table.waits;
        table.deregistering += 1;
        while table.waiting && table.waits == wait {
            table = self.has_left.wait(table);
        }
        table.deregistering -= 1;
    }

    fn wait_once(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<bool> {
        let mut waiter = self.waiter.lock();
        let Waiter {
            poll_set,
            reports,
            cursor,
            long_timeout,
        } = &mut *waiter;
        let poll_set = &mut **poll_set;
        let cut = timeout.map(|timeout| timeout.min(LONGEST_TIMEOUT));
        let part = long_timeout.part(cut);
        let call = match part {
            Part::Whole => cut,
            Part::First => Some(long_timeout::SHORT),
            Part::Timer(_) => None,
        };
        {
            let mut table = self.table.lock();
            table.sync(poll_set);
            if let Part::Timer(timer) = part {
                // Last: it may have the number of a descriptor that was just deregistered and
                // closed.
                poll_set.set(timer, Interest::READABLE);
            }
            table.waiting = true;
        }
        shrink(reports); // The wait before has needed little of it.
        reports.clear();
        let result = poll_set.poll(call, reports).map(|()| !reports.is_empty());
        let mut table = self.table.lock();
        table.waiting = false;
        table.waits = table.waits.wrapping_add(1);
        if table.deregistering > 0 {
            self.has_left.notify_all();
        }
        let (mut notified, mut over) = (false, false);
        match result {
            Ok(true) => {
                let mut take = |number| {
                    let place = reports.iter().position(|report| report.number == number);
                    place.map(|place| reports.swap_remove(place)).is_some()
                };
                notified = take(self.notified) && self.notifier.consume();
                over = matches!(part, Part::Timer(timer) if take(timer));
                table.collect(reports, cursor, events);
            }
            Ok(false) => over = part == Part::Whole,
            Err(_) => {}
        }
        drop(table);
        if let Part::Timer(timer) = part {
            poll_set.set(timer, Interest::NONE);
        }
        long_timeout.end(part, &result);
        result?;
        let passed = over && cut == timeout && timeout != Some(Duration::ZERO);
        if passed || notified || !events.is_empty() || timeout == Some(Duration::ZERO) {
            Ok(passed)
        } else {
            // Woken by a change, by a stale report, or after a part of the timeout.
            Err(Errno::INTR.into())
        }
    }
}

impl InterestTable {
    fn sync(&mut self, poll_set: &mut dyn PollSet) {
        for number in self.fds.changed.drain(..) {
            let entry = &mut self.fds.all[number as usize];
            entry.changed = false;
            poll_set.set(number, entry.request.interest);
        }
        self.fds.trim();
    }

    /// If there is no room for all reports, begins where the last wait ended, so that none starves.
    fn collect(&mut self, reports: &mut Vec<Report>, cursor: &mut RawFd, events: &mut Events) {
        if reports.len() > events.limit() {
            // One step for each entry, as the call has done. A sort takes several KiB of code.
            let mut places = vec![None; self.fds.all.len()];
            for report in reports.drain(..) {
                if let Some(place) = places.get_mut(report.number as usize) {
                    *place = Some(report);
                }
            }
            let (before, after) = places.split_at(places.len().min(*cursor as usize));
            reports.extend(after.iter().chain(before).flatten());
        }
        for report in reports {
            let number = report.number;
            if events.len() == events.limit() {
                *cursor = number;
                break;
            }
            let Some(entry) = self.fds.all.get_mut(number as usize) else {
                continue; // Deregistered.
            };
            if entry.changed {
                continue;
            }
            events.push(Event::new(entry.request.token, report.ready));
            if report.is_closed {
                // Reported once, in every mode, since no change could end the condition; and
                // deregistered, so that the number's next owner may register.
                entry.registered = false;
            }
            if entry.request.mode == Mode::OneShot || report.is_closed {
                entry.request.interest = Interest::NONE;
                self.fds.mark_changed(number);
            }
        }
    }
}

impl Selector for TablePoller {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn change(&self, descriptor: BorrowedDescriptor<'_>, change: Change) -> io::Result<()> {
        let (table, is_polled) = self.change_entry(descriptor.as_raw_fd(), change)?;
        if matches!(change, Change::Deregister) && table.waiting && is_polled {
            self.wait_for_waiter(table);
        }
        Ok(())
    }

    fn wait(&self, events: &mut Events, until: WaitUntil) -> io::Result<bool> {
        self.wait_once(events, until.duration())
    }

    fn notify(&self) -> io::Result<()> {
        self.notifier.notify()
    }
}

/// The table and the notifier, with three descriptors, the first of which is the notifier's. Left
/// out: timeouts, errors, closed descriptors, and the repetition of an interrupted `wait`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::poller::event::Token;
    use crate::poller::selector::Request;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, Ordering as O};

    const NOTIFIED: RawFd = 0;

    struct Kernel {
        readable: Mutex<[bool; 3]>,
        changed: loom::sync::Condvar,
    }

    impl Kernel {
        fn set(&self, number: RawFd, readable: bool) {
            self.readable.lock()[number as usize] = readable;
            self.changed.notify_one();
        }
    }

    struct Fake(Arc<Kernel>);

    impl WakeSource for Fake {
        fn write(&self) -> io::Result<()> {
            self.0.set(NOTIFIED, true);
            Ok(())
        }

        fn drain(&self) {
            self.0.set(NOTIFIED, false);
        }

        fn is_bounded(&self) -> bool {
            true
        }
    }

    struct Level {
        kernel: Arc<Kernel>,
        asked: [bool; 3],
    }

    impl PollSet for Level {
        fn set(&mut self, number: RawFd, interest: Interest) {
            self.asked[number as usize] = !interest.is_empty();
        }

        /// Loom fails the model if this waits forever.
        fn poll(&mut self, timeout: Option<Duration>, reports: &mut Vec<Report>) -> io::Result<()> {
            let mut readable = self.kernel.readable.lock();
            loop {
                for number in (0..3).filter(|number| self.asked[*number] && readable[*number]) {
                    reports.push(Report {
                        number: number as RawFd,
                        ready: Ready::READABLE,
                        is_closed: false,
                    });
                }
                if !reports.is_empty() || timeout.is_some() {
                    return Ok(());
                }
                readable = self.kernel.changed.wait(readable).unwrap();
            }
        }
    }

    struct Model {
        kernel: Arc<Kernel>,
        poller: TablePoller<Fake>,
    }

    impl Model {
        fn new() -> Arc<Model> {
            let kernel = Arc::new(Kernel {
                readable: Mutex::new([false; 3]),
                changed: loom::sync::Condvar::new(),
            });
            let poll_set = Box::new(Level {
                kernel: kernel.clone(),
                asked: [false; 3],
            });
            let notifier = Notifier::with(Fake(kernel.clone()));
            Arc::new(Model {
                poller: TablePoller::with(notifier, NOTIFIED, poll_set, Capabilities::ALL),
                kernel,
            })
        }

        fn change(&self, number: RawFd, change: Change) {
            drop(self.poller.change_entry(number, change).unwrap());
        }

        fn wait(&self) -> Vec<u64> {
            let mut events = Events::with_capacity(3);
            while let Err(error) = self.poller.wait_once(&mut events, None) {
                assert_eq!(error.kind(), io::ErrorKind::Interrupted);
            }
            events.iter().map(|event| event.token().0).collect()
        }
    }

    fn request(number: RawFd, interest: Interest) -> Request {
        Request {
            token: Token(number as u64),
            interest,
            mode: Mode::OneShot,
        }
    }

    fn check(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    #[test]
    fn a_change_while_a_thread_waits_is_never_lost() {
        check(|| {
            let world = Model::new();
            world.kernel.set(1, true);
            let changer = {
                let world = world.clone();
                loom::thread::spawn(move || {
                    world.change(1, Change::Register(request(1, Interest::NONE)));
                    world.change(1, Change::Modify(request(1, Interest::READABLE)));
                })
            };
            assert_eq!(world.wait(), [1]);
            changer.join().unwrap();
        });
    }

    #[test]
    fn two_threads_change_what_a_third_waits_for() {
        check(|| {
            let world = Model::new();
            let changers: Vec<_> = [1, 2]
                .map(|number| {
                    let world = world.clone();
                    loom::thread::spawn(move || {
                        world.kernel.set(number, true);
                        world.change(
                            number,
                            Change::Register(request(number, Interest::READABLE)),
                        );
                    })
                })
                .into();
            let mut reported = Vec::new();
            while reported.len() < 2 {
                reported.append(&mut world.wait());
            }
            reported.sort_unstable();
            assert_eq!(reported, [1, 2], "each once: they are one-shot");
            for changer in changers {
                changer.join().unwrap();
            }
        });
    }

    /// A deregistered source is released, and no later wait reports it.
    #[test]
    fn deregistered_released_and_not_reported() {
        check(|| {
            let world = Model::new();
            world.change(1, Change::Register(request(1, Interest::READABLE)));
            let gone = Arc::new(AtomicBool::new(false));
            let changer = {
                let (world, gone) = (world.clone(), gone.clone());
                loom::thread::spawn(move || {
                    world.change(1, Change::Deregister);
                    gone.store(true, O::SeqCst);
                    world.kernel.set(1, true);
                    world.poller.notifier.notify().unwrap();
                })
            };
            assert!(world.wait().is_empty());
            assert!(gone.load(O::SeqCst));
            // The waiter no longer holds a reference to it.
            let mut events = Events::with_capacity(3);
            let _ = world.poller.wait_once(&mut events, Some(Duration::ZERO));
            assert!(events.is_empty());
            changer.join().unwrap();
        });
    }
}
