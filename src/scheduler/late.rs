//! Tasks that are spawned while their runtime closes, or after that.
//!
//! Such a task is cancelled immediately: its spawner drops its future. That may run a destructor
//! that spawns the next task, and so on. If each were dropped within the spawn of the previous one,
//! the stack would grow with each. So when a thread has [`DEPTH`] such drops on its stack, it
//! queues further tasks, and drops them one after the other when the outermost drop returns. Below
//! that depth a destructor may wait for the task that it spawns, since that has been cancelled by
//! then.
//!
//! **Why no task stays in the queue.** The queue belongs to the thread. The call that began to drop
//! returns only when the queue is empty, and panics of destructors and wakers are contained until
//! then. A runtime that is closed within such a destructor waits for all of its tasks, and some may
//! be in the queue of the call further up the stack. So a worker that drops its tasks also drops
//! the queued ones ([`drop_queued`]), and does not sleep while the queue has any.
//!
//! **The runtime does not wait for them**, if another thread has spawned them: it would have to
//! wait for as long as others spawn. Such a task is in no queue of the runtime, and its future was
//! never polled. What its destructor may use outlives the runtime: the task's metadata has a
//! reference to `Shared`; and on that thread no worker of the runtime is current, so sockets,
//! timers and tasks are those of whichever runtime it drives. Tasks that its own workers spawn are
//! dropped on their threads, before these end.
//!
//! **Why it ends.** If each destructor spawns a task with the same destructor, for example to
//! restart a task that has failed, this would continue without end. The queue takes [`LIMIT`] tasks
//! of each runtime. After that the future of such a task is forgotten ([`Shared::forgets`]), which
//! is the only way not to run its destructor. The task is cancelled like any other. (Anything that
//! its future would have reported when dropped never comes: a `TaskSet` keeps the entry of a task
//! that was forgotten.)
//!
//! [`Shared::forgets`]: super::Shared::forgets

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;

use super::Runnable;
use crate::sync::contain;

/// The maximum number of tasks of a runtime that may be spawned by destructors of tasks that were
/// themselves spawned while it closed, or later. Far more than any program needs, and few enough to
/// be dropped in a fraction of a second.
pub(super) const LIMIT: usize = 1 << 17;

/// The maximum number of drops of late tasks on the stack of a thread: enough for destructors that
/// clean up with tasks, at the cost of a few dozen kilobytes.
const DEPTH: usize = 64;

struct Late {
    /// The number of calls further up the stack that drop a task. The outermost one drops the queue
    /// afterwards.
    depth: usize,
    queue: VecDeque<Runnable>,
}

thread_local! {
    /// `ManuallyDrop`: without a destructor it works in the destructors of other thread-locals too.
    /// Nothing leaks, since the queue has no memory while no call drops a task.
    static LATE: RefCell<ManuallyDrop<Late>> = const {
        RefCell::new(ManuallyDrop::new(Late { depth: 0, queue: VecDeque::new() }))
    };
}

/// Calls `f`, which runs no foreign code.
fn with_late<R>(f: impl FnOnce(&mut Late) -> R) -> R {
    (LATE.try_with(|late| f(&mut late.borrow_mut()))).expect("it has no destructor")
}

/// Whether this thread is dropping a task that was spawned late.
#[cold]
pub(super) fn is_dropping() -> bool {
    with_late(|late| late.depth > 0)
}

/// Drops a task that was never polled: now, or after the tasks that this thread is dropping.
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
