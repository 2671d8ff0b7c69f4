//! [`AbortHandle`]: cancels a task that is owned elsewhere.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crate::scheduler::TaskRef;

/// A call of `unblock`, with its output type erased.
pub(crate) trait Abort: Send + Sync + UnwindSafe + RefUnwindSafe {
    fn abort(&self);

    fn is_finished(&self) -> bool;
}

/// Cancels a task that is awaited elsewhere, or was detached.
///
/// Returned by [`Task::abort_handle`](super::Task::abort_handle) and
/// [`TaskSet::spawn`](crate::TaskSet::spawn). Dropping it has no effect. Like a
/// [`Task`](super::Task), it keeps the memory of the task; not the future.
///
/// # Examples
///
/// ```
/// polder::block_on(async {
///     let task = polder::spawn(std::future::pending::<u8>());
///     let abort = task.abort_handle();
///     std::thread::spawn(move || abort.abort());
///     assert_eq!(task.fallible().await, None);
/// });
/// ```
#[derive(Clone)]
pub struct AbortHandle(pub(super) Target);

#[derive(Clone)]
pub(super) enum Target {
    Task(TaskRef),
    #[cfg_attr(
        not(feature = "blocking"),
        expect(dead_code, reason = "there are no calls")
    )]
    Call(Arc<dyn Abort>),
}

impl AbortHandle {
    /// Cancels the task, unless it is done. Does not wait: the task's worker drops the future
    /// between two polls, as described at [`Task::cancel`](super::Task::cancel).
    ///
    /// Awaiting the task waits until the future has been dropped. Then a
    /// [`FallibleTask`](super::FallibleTask) yields `None`, a [`TaskSet`](crate::TaskSet) skips the
    /// task, and awaiting the [`Task`](super::Task) itself panics. The output of a task that was
    /// done, or of a poll in progress, can still be awaited. A function given to `unblock` that has
    /// begun runs to its end.
    ///
    /// ```
    /// polder::block_on(async {
    ///     let task = polder::spawn(async { 5 });
    ///     let abort = task.abort_handle();
    ///     polder::future::yield_now().await;
    ///     abort.abort(); // It is already done.
    ///     assert_eq!(task.await, 5);
    /// });
    /// ```
    pub fn abort(&self) {
        match &self.0 {
            Target::Task(task) => task.abort(),
            Target::Call(call) => call.abort(),
        }
    }

    /// Returns whether the task has ended, and its future was dropped.
    ///
    /// ```
    /// polder::block_on(async {
    ///     let task = polder::spawn(async { 5 });
    ///     let abort = task.abort_handle();
    ///     assert!(!abort.is_finished());
    ///     task.await;
    ///     assert!(abort.is_finished());
    /// });
    /// ```
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Target::Task(task) => task.header().is_finished(),
            Target::Call(call) => call.is_finished(),
        }
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortHandle")
            .field("finished", &self.is_finished())
            .finish()
    }
}
