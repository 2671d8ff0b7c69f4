//! The free functions that spawn, and code that they share with [`Runtime`](super::Runtime) and
//! [`Handle`](super::Handle).

use std::future::Future;
use std::panic::Location;
use std::sync::Arc;

use super::background;
use crate::scheduler::{self, Affinity, Local, Shared};
use crate::spans::Kind;
use crate::task::{self, Name, Task};
use crate::telemetry::Label;

/// The minimum size of a future that is boxed where it enters polder. async-task boxes it too, but
/// only after several functions that each keep a copy on the stack in debug builds: a future of 128
/// KiB overflowed the 2 MiB of a pool worker.
pub(super) const LARGE_FUTURE: usize = 16 * 1024;

/// Evaluates `$spawn`, which uses `$future` and `$label`, with the future boxed if it is large. A
/// macro that has `$spawn` twice, since a closure cannot take a future of either type. The condition
/// is a constant, so that a task's code is not compiled twice.
macro_rules! boxed_if_large {
    ($future:ident: $type:ident, $label:ident => $spawn:expr) => {{
        let $label = $crate::telemetry::Label::from($label);
        if const { size_of::<$type>() >= $crate::runtime::spawn::LARGE_FUTURE } {
            let ($future, $label) = (Box::pin($future), $label.boxed(size_of::<$type>()));
            $spawn
        } else {
            $spawn
        }
    }};
}
pub(super) use boxed_if_large;

/// Spawns a task on the runtime that this thread drives. On other threads, including those of
/// [`unblock`](crate::unblock), spawns it on the background runtime, which is started on first use.
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
    F: Future + Send + 'static, // Not `Send`? Drop it before the `.await`, or `spawn_local`.
    F::Output: Send + 'static,
{
    let label = Location::caller();
    boxed_if_large!(future: F, label => spawn_at(future, label))
}

/// [`spawn`], with a [name](task::name).
///
/// # Examples
///
/// ```
/// use polder::task;
///
/// polder::block_on(async {
///     let shard = 7;
///     let task = polder::spawn_named(format!("shard {shard}"), async { task::name() });
///     assert_eq!(task.await.unwrap(), "shard 7");
/// });
/// ```
///
/// # Panics
///
/// If the background runtime is needed and cannot be started.
///
/// # Cancel safety
///
/// Dropping the [`Task`] cancels it.
#[doc(alias = "Builder")]
#[track_caller]
pub fn spawn_named<F>(name: impl Into<Name>, future: F) -> Task<F::Output>
where
    F: Future + Send + 'static, // Not `Send`? Drop it before the `.await`, or `spawn_local`.
    F::Output: Send + 'static,
{
    let label = Label::named(name.into(), Location::caller());
    boxed_if_large!(future: F, label => spawn_at(future, label))
}

#[inline]
pub(super) fn spawn_at<F>(future: F, label: impl Into<Label>) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    match scheduler::current_local() {
        Some(local) => spawn_on(&local.shared, future, label),
        None => spawn_on(background::expect_shared(), future, label),
    }
}

/// Spawns a task on the runtime that this thread drives. Its future need not be `Send`.
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
/// On a thread that drives no runtime. Call it within [`block_on`](super::block_on), or use
/// [`Runtime::spawn_local`](super::Runtime::spawn_local).
///
/// # Cancel safety
///
/// Dropping the [`Task`] cancels it.
#[doc(alias("LocalSet", "LocalExecutor"))]
#[track_caller]
pub fn spawn_local<F>(future: F) -> Task<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let label = Location::caller();
    boxed_if_large!(future: F, label => spawn_local_at(future, label, "spawn_local"))
}

/// [`spawn_local`]; `called` is the public function, for the message of the panic.
#[track_caller]
pub(super) fn spawn_local_at<F>(future: F, label: impl Into<Label>, called: &str) -> Task<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    match scheduler::current_local() {
        // SAFETY: the current worker belongs to this thread.
        Some(local) => unsafe { spawn_local_on(&local, future, label) },
        None => panic!(
            "polder::{called}: this thread drives no runtime; \
             call it within polder::block_on, or use Runtime::{called}"
        ),
    }
}

/// [`spawn_local`], with a [name](task::name).
///
/// # Examples
///
/// ```
/// polder::block_on(async {
///     let task = polder::spawn_local_named("local", async { polder::task::name() });
///     assert_eq!(task.await.unwrap(), "local");
/// });
/// ```
///
/// # Panics
///
/// On a thread that drives no runtime: see [`spawn_local`].
///
/// # Cancel safety
///
/// Dropping the [`Task`] cancels it.
#[track_caller]
pub fn spawn_local_named<F>(name: impl Into<Name>, future: F) -> Task<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let label = Label::named(name.into(), Location::caller());
    boxed_if_large!(future: F, label => spawn_local_at(future, label, "spawn_local_named"))
}

pub(super) fn spawn_on<F>(
    shared: &Arc<Shared>,
    future: F,
    label: impl Into<Label>,
) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let (runnable, task) = task::new(shared, future, label.into());
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
    label: impl Into<Label>,
) -> Task<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let (shared, label) = (&local.shared, label.into());
    let affinity = Affinity::pinned(local.index);
    // SAFETY: the caller is on that worker's thread.
    let (runnable, task) = unsafe { task::new_at(shared, affinity, future, label, Kind::Local) };
    shared.schedule_new(runnable);
    task
}
