//! Tasks that are spawned while their runtime closes, or after that.
//!
//! Such a task is cancelled at once: its spawner drops its future. That may run a destructor that
//! spawns the next task, and so on. Dropping each one within the spawn of the one before would
//! take a piece of the stack for each. So a thread that is already [`DEPTH`] such drops deep
//! queues those that are spawned meanwhile, and drops them one after the other when the first one
//! returns. Below that depth a destructor may wait for what it spawns: it has been cancelled by
//! then.
//!
//! **Why none stays in the queue.** It belongs to the thread. The call that began to drop returns
//! only when the queue is empty, and panics of destructors and wakers are contained until then. A
//! runtime that is closed within such a destructor waits for all of its tasks, and some may be in
//! the queue of the call further up the stack. So a worker that drops its tasks drops what is
//! queued too ([`drop_queued`]), and does not sleep while anything is.
//!
//! **Why it ends.** A destructor that spawns its own like, say one that restarts a task that has
//! failed, would go on without end. The queue takes [`LIMIT`] tasks of each runtime. After that the
//! future of such a task is forgotten ([`Shared::forgets`]), which is the only way not to run its
//! destructor. The task is cancelled as any other. (What its future would have reported when it is
//! dropped never comes: a `TaskSet` keeps the place of a task that was forgotten.)
//!
//! [`Shared::forgets`]: super::Shared::forgets

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;

use super::Runnable;
use crate::sync::contain;

/// How many tasks of a runtime may be spawned by destructors of tasks that were themselves spawned
/// while it closed, or later: far more than any program needs, and few enough to be dropped in a
/// fraction of a second.
pub(super) const LIMIT: usize = 1 << 17;

/// How many drops of late tasks may be on the stack of a thread: deep enough for destructors that
/// clean up by tasks of their own, and a few dozen kilobytes.
const DEPTH: usize = 64;

struct Late {
    /// The number of calls further up the stack that drop a task. The first of them drops what is
    /// in the queue afterwards.
    depth: usize,
    queue: VecDeque<Runnable>,
}

thread_local! {
    /// `ManuallyDrop`: without a destructor it works in those of other thread-locals too. Nothing
    /// leaks, since the queue has no memory while no call drops a task.
    static LATE: RefCell<ManuallyDrop<Late>> = const {
        RefCell::new(ManuallyDrop::new(Late { depth: 0, queue: VecDeque::new() }))
    };
}

/// Calls `f`, which runs no foreign code.
fn with_late<R>(f: impl FnOnce(&mut Late) -> R) -> R {
    (LATE.try_with(|late| f(&mut late.borrow_mut()))).expect("it has no destructor")
}

/// Whether this thread is dropping a task that was spawned late.
pub(super) fn is_dropping() -> bool {
    with_late(|late| late.depth > 0)
}

/// Drops a task that was never polled: now, or after those that this thread is dropping.
pub(super) fn drop_late(runnable: Runnable) {
    let now = with_late(|late| {
        if late.depth == DEPTH {
            late.queue.push_back(runnable);
            return None;
        }
        late.depth += 1;
        Some(runnable)
    });
    let Some(runnable) = now else {
        return;
    };
    contain(|| drop(runnable));
    if with_late(|late| late.depth == 1) {
        drop_queued();
        with_late(|late| late.queue = VecDeque::new());
    }
    with_late(|late| late.depth -= 1);
}

/// Whether this thread has queued tasks.
pub(super) fn has_queued() -> bool {
    with_late(|late| !late.queue.is_empty())
}

/// Drops the tasks that this thread has queued.
pub(super) fn drop_queued() {
    while let Some(runnable) = with_late(|late| late.queue.pop_front()) {
        contain(|| drop(runnable));
    }
}
