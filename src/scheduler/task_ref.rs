//! [`TaskRef`]: a counted reference to a task, for the lists of workers and for abort handles.
//!
//! **Aborting** sets a flag in the task's metadata, and then wakes the task. The task's body reads
//! the flag at the start of each poll; if it is set, the body drops the future and ends. No abort
//! is lost. If the task is queued or running, a wake makes everything before it visible to the next
//! poll, as `async-task` guarantees for any wake; otherwise the wake queues the task. A poll in
//! progress is not disturbed: if it returns the output, the task is done with that output.
//!
//! Dropping a `Task` uses `async-task`'s own cancellation instead, which closes the task
//! immediately: the output of a poll in progress is dropped.

use std::task::Waker;

use super::Meta;

/// A reference to a task. Its waker keeps the task allocated.
#[derive(Clone, Debug)]
pub(crate) struct TaskRef {
    waker: Waker,
    meta: *const Meta,
}

// SAFETY: a waker may be used on any thread, and `Meta`, which is `Sync`, is only shared through
// the pointer.
unsafe impl Send for TaskRef {}
// SAFETY: as for `Send`: neither the waker nor `Meta` is changed through a shared reference.
unsafe impl Sync for TaskRef {}

impl TaskRef {
    /// Makes a reference. `waker` is the task's own waker, or holds it.
    pub(crate) fn new(meta: &Meta, waker: Waker) -> TaskRef {
        TaskRef { waker, meta }
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(crate) fn meta(&self) -> &Meta {
        // SAFETY: the metadata is in the task's allocation, which the waker keeps alive.
        unsafe { &*self.meta }
    }

    /// Cancels the task. Its worker drops the future: see the head of this file.
    pub(crate) fn abort(&self) {
        self.meta().set_aborted();
        self.waker.wake_by_ref();
    }

    /// Whether the future has been dropped.
    pub(crate) fn is_finished(&self) -> bool {
        self.meta().is_finished()
    }
}
