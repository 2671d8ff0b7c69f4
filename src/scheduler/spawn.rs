//! The spawn of a task: it is counted and scheduled; or, while its runtime closes, dropped.
//!
//! **Late tasks** are spawned while their runtime closes, or after that. The spawner cancels such a
//! task immediately: it drops its future. That may run a destructor that spawns the next task, and
//! so on. To bound the stack, a thread that has [`DEPTH`] such drops on its stack queues further
//! tasks, and drops them when the outermost drop returns. Below that depth a destructor may wait
//! for the task that it spawns, which has been cancelled by then.
//!
//! **Why no task stays in the queue.** The queue belongs to the thread. The outermost drop returns
//! only when the queue is empty, and contains panics of destructors and wakers until then. A
//! runtime that is closed within such a destructor waits for all of its tasks, some of which may be
//! in that queue. So a worker that drops its tasks also drops the queued ones ([`drop_queued`]),
//! and does not sleep while the queue has any.
//!
//! **The runtime does not wait** for late tasks that other threads have spawned: it would have to
//! wait for as long as others spawn. Such a task is in no queue of the runtime, and its future was
//! never polled. Everything that its destructor may use outlives the runtime: the task's metadata
//! has a reference to `Shared`; and no worker of the runtime is current on that thread, so sockets,
//! timers and tasks there are those of whichever runtime it drives. Tasks that its own workers
//! spawn are dropped on their threads, before these end.
//!
//! **Why it ends.** If each destructor spawns a task with the same destructor, for example to
//! restart a failed task, this would never end. So after [`LIMIT`] tasks of a runtime further
//! futures are leaked ([`Shared::forgets`]). (What such a future would have reported when dropped
//! is lost: a `TaskSet` keeps its entry. The task itself is cancelled like any other.)

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use super::current::{Current, with_current, with_local, with_local_of};
use super::header::{Affinity, Header, Runnable, TRACED, UNCOUNTED};
use super::shared::Shared;
use crate::clock::{jiffy, now};
use crate::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use crate::sync::contain;
use crate::telemetry::{Id, Label};

impl Header {
    /// Counts the task as spawned, unless another thread spawns it while the runtime closes.
    #[inline]
    pub(crate) fn new(shared: &Arc<Shared>, affinity: Affinity, label: Label) -> Header {
        let (here, id, spawned) = with_current(|current| match current {
            Some(Current { local, .. }) => {
                let is_here = Arc::ptr_eq(&local.shared, shared);
                let id = local.ids.next();
                (is_here.then_some(local.index), id, local.counters.jiffy())
            }
            None => (None, Id::of_no_worker(), jiffy(now())),
        });
        let mut flags = if shared.trace.is_some() { TRACED } else { 0 };
        match here {
            None if shared.is_closing() => flags |= UNCOUNTED,
            _ => shared.task_spawned(here),
        }
        Header {
            shared: shared.clone(),
            state: AtomicU16::new(affinity.0 | flags),
            spawned,
            id,
            site: label.site,
            name: label.name,
            wait_reason: AtomicU64::new(0),
            polls: AtomicU32::new(0),
            polled: AtomicU32::new(spawned),
            is_aborted: AtomicBool::new(false),
            is_finished: AtomicBool::new(false),
        }
    }
}

pub(crate) fn new_id() -> Id {
    with_local(|local| local.ids.next()).unwrap_or_else(Id::of_no_worker)
}

impl Shared {
    /// Schedules a new task. If the runtime is closing, drops and so cancels it.
    #[inline]
    pub(crate) fn schedule_new(&self, runnable: Runnable) {
        if self.is_closing() {
            self.refuse(runnable)
        } else {
            runnable.schedule()
        }
    }

    #[cold]
    fn refuse(&self, runnable: Runnable) {
        // The runtime's own workers need no count: see "Closing".
        if with_local_of(self, |local| local.is_none()) {
            runnable.metadata().end_count();
        }
        drop_late(runnable)
    }

    /// Whether to leak the future that is about to be spawned, because the runtime closes and the
    /// destructors of late tasks have spawned too many.
    #[inline]
    pub(crate) fn forgets(&self) -> bool {
        self.is_closing() && is_dropping() && self.late.fetch_add(1, Ordering::Relaxed) >= LIMIT
    }
}

/// How many tasks of a runtime destructors of late tasks may spawn: more than any program needs,
/// and few enough to be dropped in a fraction of a second.
const LIMIT: usize = 1 << 17;

/// How many drops of late tasks a thread's stack may have: enough for destructors that clean up
/// with tasks, at the cost of a few dozen kilobytes.
const DEPTH: usize = 64;

struct Late {
    /// The number of drops of late tasks on the stack. The outermost one drops the queue
    /// afterwards.
    depth: usize,
    queue: VecDeque<Runnable>,
}

thread_local! {
    /// `ManuallyDrop`: usable in the destructors of other thread-locals. Nothing leaks, since the
    /// queue has no memory while no call drops a task.
    static LATE: RefCell<ManuallyDrop<Late>> = const {
        RefCell::new(ManuallyDrop::new(Late { depth: 0, queue: VecDeque::new() }))
    };
}

fn with_late<R>(f: impl FnOnce(&mut Late) -> R) -> R {
    (LATE.try_with(|late| f(&mut late.borrow_mut()))).expect("it has no destructor")
}

#[cold]
fn is_dropping() -> bool {
    with_late(|late| late.depth > 0)
}

/// Drops a task that was never polled: now, or after the tasks that this thread is dropping.
fn drop_late(runnable: Runnable) {
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

pub(super) fn has_queued() -> bool {
    with_late(|late| !late.queue.is_empty())
}

pub(super) fn drop_queued() {
    while let Some(runnable) = with_late(|late| late.queue.pop_front()) {
        contain(|| drop(runnable));
    }
}
