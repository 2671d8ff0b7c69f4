//! The free functions that spawn, and what they share with [`Runtime`](super::Runtime) and
//! [`Handle`](super::Handle).

use std::future::Future;
use std::panic::Location;
use std::sync::Arc;

use super::background;
use crate::scheduler::{self, Local, Shared};
use crate::task::{self, Task};

/// Spawns a task on the runtime that this thread drives. On a plain thread, spawns it on the
/// background runtime, which is started on first use and runs on a thread of its own.
///
/// # Examples
///
/// ```
/// // A plain thread:
/// let task = polder::spawn(async { "done" });
/// assert_eq!(polder::block_on(task), "done");
/// ```
///
/// # Panics
///
/// If the background runtime is needed and cannot be started.
///
/// # Cancel safety
///
/// Dropping the [`Task`] cancels it.
#[track_caller]
pub fn spawn<F>(future: F) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let site = Location::caller();
    match scheduler::current_local() {
        Some(local) => spawn_on(&local.shared, future, site),
        None => spawn_on(background::expect_shared(), future, site),
    }
}

/// Spawns a task whose future need not be `Send` on the runtime that this thread drives.
///
/// # Examples
///
/// ```
/// use std::rc::Rc;
///
/// polder::block_on(async {
///     let shared = Rc::new(5);
///     let task = polder::spawn_local({
///         let shared = shared.clone();
///         async move { *shared + 1 }
///     });
///     assert_eq!(task.await, 6);
/// });
/// ```
///
/// # Panics
///
/// On a thread that drives no runtime, where nothing could run the task. Call it within
/// [`block_on`](super::block_on), or use [`Runtime::spawn_local`](super::Runtime::spawn_local).
///
/// # Cancel safety
///
/// Dropping the [`Task`] cancels it.
#[track_caller]
pub fn spawn_local<F>(future: F) -> Task<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    match scheduler::current_local() {
        // SAFETY: the current worker belongs to this thread.
        Some(local) => unsafe { spawn_local_on(&local, future, Location::caller()) },
        None => panic!(
            "polder::spawn_local: this thread drives no runtime; \
             call it within polder::block_on, or use Runtime::spawn_local"
        ),
    }
}

pub(super) fn spawn_on<F>(
    shared: &Arc<Shared>,
    future: F,
    site: &'static Location<'static>,
) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let (runnable, task) = task::new(shared, future, site);
    shared.schedule_new(runnable);
    task
}

/// Spawns a task on the worker of `local`.
///
/// # Safety
///
/// The caller must be on that worker's thread.
pub(super) unsafe fn spawn_local_on<F>(
    local: &Local,
    future: F,
    site: &'static Location<'static>,
) -> Task<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    // SAFETY: the caller is on the thread of the worker at `local.index`.
    let (runnable, task) = unsafe { task::new_at(&local.shared, local.index, future, site) };
    local.shared.schedule_new(runnable);
    task
}
