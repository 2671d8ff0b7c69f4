//! [`BorrowedIo`], a descriptor that the user owns, and the tasks that wait for it.
//!
//! **Level-triggered.** The user operates on the descriptor, and may read unseen through
//! [`Async::get_ref`](super::Async::get_ref), return `WouldBlock` although a datagram is left, or
//! wait for readability twice without reading. So no event is trusted: before each wait the kernel
//! is asked whether the descriptor is ready *now* (`poll(2)` with a timeout of zero). The snapshot
//! of the readiness is taken before that, and cleared according to the answer: an edge in between
//! is counted beyond the snapshot, so none is lost. After an edge for data that was taken meanwhile
//! the kernel is asked once more, so no task spins.
//!
//! **Waiters.** A future has an identity among the source's waiters, as everywhere; a `poll_*`
//! function has only its task's waker. So each such waker gets an identity, a [`PollingTask`], for
//! as long as it waits. Any number of tasks may poll: none displaces another and takes its wake,
//! and none wakes another by displacing it, which could go on forever.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};

use super::operation::{self, Operation};
use crate::reactor::{Added, Direction, Io, Source, WaiterId};
use crate::scheduler::budget;
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::{Mutex, contain};
use crate::sys;

pub(super) struct BorrowedIo {
    pub(super) io: Io,
    /// The tasks that wait through a `poll_*` function, by direction.
    tasks: [Mutex<PollingTasks>; 2],
}

impl BorrowedIo {
    pub(super) fn new(io: Io) -> BorrowedIo {
        BorrowedIo {
            io,
            tasks: [Mutex::default(), Mutex::default()],
        }
    }

    /// Runs a user's operation for the task that polls.
    pub(super) fn poll_operation<R>(
        &self,
        cx: &Context<'_>,
        direction: Direction,
        mut operation: impl FnMut() -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        let wait = || self.add_waiter(cx.waker(), direction);
        let source = self.io.source();
        let attempt = |_| note_unblocked(source, operation());
        operation::poll_loop(wait, source, cx, direction, attempt)
    }

    pub(super) fn poll_ready(
        &self,
        cx: &Context<'_>,
        direction: Direction,
    ) -> Poll<io::Result<()>> {
        let wait = || self.add_waiter(cx.waker(), direction);
        poll_level(wait, self.io.source(), cx, direction)
    }

    /// Runs a user's operation until it does not block. As in async-io, `Interrupted` is returned
    /// as an error.
    pub(super) async fn run<R>(
        &self,
        direction: Direction,
        mut operation: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        let source = self.io.source();
        let attempt = |_| match note_unblocked(source, operation()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            result => Ok(result),
        };
        Operation::new(&self.io, direction, attempt).await?
    }

    /// See [`operation::add_waiter`].
    fn add_waiter(&self, waker: &Waker, direction: Direction) -> io::Result<Added> {
        let task = self.task(waker, direction);
        let waker = Waker::from(task.clone());
        let waiting = operation::add_waiter(self.io.source(), direction, task.id, &waker);
        if !matches!(waiting, Ok(Added::Waiting)) {
            task.state.store(IDLE, Ordering::Release);
        }
        waiting
    }

    /// Returns the entry of this waker, and drops those of tasks that no longer wait.
    ///
    /// A task that stops waiting gives no notice. So from some number of entries on, all tasks are
    /// woken, and those that have not polled again by the next time are dropped.
    fn task(&self, waker: &Waker, direction: Direction) -> Arc<PollingTask> {
        let mut gone = Vec::new(); // Dropped outside the lock, as wakers are cloned outside it.
        let mut new = None;
        let (task, is_full) = loop {
            let mut tasks = self.tasks[direction as usize].lock();
            if let Some(task) = tasks.find(waker, &mut gone) {
                break (task, false);
            }
            if let Some(task) = new.take() {
                let is_full = tasks.make_room(&mut gone);
                tasks.list.push(Arc::clone(&task));
                break (task, is_full);
            }
            drop(tasks);
            new = Some(Arc::new(PollingTask {
                id: self.io.new_handle_id(),
                waker: waker.clone(),
                state: AtomicU8::new(WAITING),
            }));
        };
        for task in gone.into_iter().chain(new) {
            contain(|| drop(task));
        }
        if is_full {
            self.io.source().wake(false);
        }
        task
    }
}

/// Ends a row of attempts that block, unless this one blocks.
fn note_unblocked<R>(source: &Source, result: io::Result<R>) -> io::Result<R> {
    if !matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
        source.end_blocked_attempts();
    }
    result
}

impl Drop for BorrowedIo {
    /// Wakers' destructors are foreign code. (No lock is taken: in a child of `fork` a thread of
    /// the parent may hold it.)
    fn drop(&mut self) {
        for tasks in &mut self.tasks {
            let tasks = tasks.get_mut().list.drain(..);
            tasks.for_each(|task| contain(|| drop(task)));
        }
    }
}

/// Waits until the descriptor is ready, at its end or has an error.
///
/// The loop of [`operation::poll_loop`] for an attempt that only asks the kernel: it need not be
/// asked again whether the readiness is used up.
pub(super) fn poll_level(
    mut wait: impl FnMut() -> io::Result<Added>,
    source: &Source,
    cx: &Context<'_>,
    direction: Direction,
) -> Poll<io::Result<()>> {
    loop {
        let seen = source.snapshot(direction);
        ready!(budget::consume(cx));
        let descriptor = source.descriptor()?;
        match sys::is_ready(&descriptor, direction == Direction::Write) {
            Ok(true) => return Poll::Ready(Ok(())),
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Poll::Ready(Err(error)),
        }
        source.clear(direction, seen);
        budget::restore();
        if wait()? == Added::Waiting {
            return Poll::Pending;
        }
    }
}

/// State of a [`PollingTask`]: its waker is stored.
const WAITING: u8 = 0;
/// Its waker is not stored, until the task polls again.
const IDLE: u8 = 1;
/// The task was woken to find out whether it still waits.
const PROBED: u8 = 2;

/// The minimum number of entries for probing.
const PROBE_FROM: usize = 128;

/// A task that waits through a `poll_*` function: see the head of this file.
struct PollingTask {
    id: WaiterId,
    waker: Waker,
    state: AtomicU8,
}

impl Wake for PollingTask {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let _ = (self.state).compare_exchange(WAITING, IDLE, Ordering::AcqRel, Ordering::Acquire);
        self.waker.wake_by_ref();
    }
}

#[derive(Default)]
struct PollingTasks {
    list: Vec<Arc<PollingTask>>,
    /// The number of entries at which all are probed.
    limit: usize,
}

impl PollingTasks {
    /// Returns the entry of this waker. Entries of tasks that no longer wait are moved to `gone`.
    fn find(
        &mut self,
        waker: &Waker,
        gone: &mut Vec<Arc<PollingTask>>,
    ) -> Option<Arc<PollingTask>> {
        let mut index = 0;
        let mut found = None;
        while let Some(task) = self.list.get(index) {
            if task.waker.will_wake(waker) {
                // Under the lock, so that no other call takes it for an idle one.
                task.state.store(WAITING, Ordering::Release);
                found = Some(task.clone());
            } else if task.state.load(Ordering::Acquire) == IDLE {
                gone.push(self.list.swap_remove(index));
                continue;
            }
            index += 1;
        }
        found
    }

    /// Returns whether the list is full, so that all tasks must be woken. Then entries that were
    /// probed before and have not polled since go to `gone`.
    fn make_room(&mut self, gone: &mut Vec<Arc<PollingTask>>) -> bool {
        let is_full = self.list.len() >= self.limit.max(PROBE_FROM);
        if is_full {
            let all = std::mem::take(&mut self.list).into_iter();
            let (probed, left): (Vec<_>, Vec<_>) =
                all.partition(|task| task.state.swap(PROBED, Ordering::AcqRel) == PROBED);
            gone.extend(probed);
            self.limit = left.len() + (left.len() / 2).max(PROBE_FROM);
            self.list = left;
        }
        is_full
    }
}
