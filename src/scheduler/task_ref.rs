//! [`TaskRef`]: a counted reference to a task, for the lists of workers and for abort handles.
//!
//! **Aborting** sets a flag in the task's metadata, and then wakes the task. The task's future
//! reads the flag at the start of each poll; if it is set, it drops the user's future and ends. No
//! abort is lost: if the task is queued or running, a wake makes everything before it visible to
//! the next poll, as `async-task` guarantees; otherwise the wake queues the task. If a poll in
//! progress returns the output, the task is done with that output.
//!
//! Dropping a `Task` uses `async-task`'s own cancellation instead, which closes the task
//! immediately: the output of a poll in progress is dropped.

use std::task::Waker;

use super::Header;

#[derive(Clone, Debug)]
pub(crate) struct TaskRef {
    waker: Waker,
    header: *const Header,
}

// SAFETY: a waker may be used on any thread, and `Header`, which is `Sync`, is only shared through
// the pointer.
unsafe impl Send for TaskRef {}
// SAFETY: as for `Send`: neither the waker nor `Header` is changed through a shared reference.
unsafe impl Sync for TaskRef {}

impl TaskRef {
    /// `waker` is the task's own waker, or holds it.
    pub(crate) fn new(header: &Header, waker: Waker) -> TaskRef {
        TaskRef { waker, header }
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the metadata is in the task's allocation, which the waker keeps alive.
        unsafe { &*self.header }
    }

    pub(crate) fn abort(&self) {
        self.header().set_aborted();
        self.waker.wake_by_ref();
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.header().is_finished()
    }
}
