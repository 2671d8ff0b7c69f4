//! [`TaskRef`]: a counted reference to a task, for the lists of workers and for abort handles.
//!
//! **Aborting** sets a flag in the task's metadata, and then wakes the task. The task's body reads
//! the flag at the start of each poll, and ends with its future dropped if it is set. No abort is
//! lost: a wake of a task that is queued or running makes what came before it visible to the next
//! poll, as `async-task` promises for any wake, and a task that is neither is queued by it. A poll
//! that is under way is not disturbed: if it returns the output, the task is done with that output.
//!
//! `async-task`'s own cancellation is what dropping a task does: it closes the task at once, so
//! that an output of a poll under way is dropped.

use std::task::Waker;

use super::Meta;

/// A task that its waker keeps allocated.
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
    /// `waker` is the task's own waker, or holds it.
    pub(crate) fn new(meta: &Meta, waker: Waker) -> TaskRef {
        TaskRef { waker, meta }
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(crate) fn meta(&self) -> &Meta {
        // SAFETY: the metadata lies in the task's allocation, which the waker keeps.
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
