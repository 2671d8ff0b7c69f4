//! The free functions that spawn, those of [`task::Builder`], and code that they share with
//! [`Runtime`] and [`Handle`].

use std::panic::Location;
use std::sync::Arc;

use super::{Handle, Runtime, background};
use crate::scheduler::{self, Affinity, Local, Shared};
use crate::spans::Kind;
use crate::task::{self, Task};
use crate::telemetry::Label;

/// The minimum size of a future that is boxed on entry. async-task boxes it too, but after several
/// functions that each keep a copy on the stack in debug builds: a future of 128 KiB overflowed the
/// 2 MiB of a pool worker.
pub(super) const LARGE_FUTURE: usize = 16 * 1024;

/// Evaluates `$spawn`, which uses `$future` and `$label`, with the future boxed if it is large. A
/// macro that has `$spawn` twice, since a closure cannot take a future of either type. The
/// condition is a constant, so that a task's code is not compiled twice.
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

/// Spawns a task on the runtime that this thread drives. Other threads, including those of
/// [`unblock`](crate::unblock), spawn on the background runtime, which is started on first use.
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

#[inline]
pub(super) fn spawn_at<F>(future: F, label: impl Into<Label>) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    match scheduler::current_local() {
        Some(local) => spawn_in(&local.shared, future, label),
        None => spawn_in(background::expect_shared(), future, label),
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
    boxed_if_large!(future: F, label => spawn_local_at(future, label))
}

#[track_caller]
pub(super) fn spawn_local_at<F>(future: F, label: impl Into<Label>) -> Task<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    match scheduler::current_local() {
        // SAFETY: the current worker belongs to this thread.
        Some(local) => unsafe { spawn_local_in(&local, future, label) },
        None => panic!(
            "polder::spawn_local: this thread drives no runtime; call it within polder::block_on, \
             or use Runtime::spawn_local, or spawn_local_on of a task::Builder"
        ),
    }
}

pub(super) fn spawn_in<F>(
    shared: &Arc<Shared>,
    future: F,
    label: impl Into<Label>,
) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let (affinity, label) = (shared.any_worker(), label.into());
    // SAFETY: the future is `Send`.
    let (runnable, task) = unsafe { task::new(shared, affinity, future, label, Kind::Task) };
    scheduler::schedule_new(shared, runnable);
    task
}

/// Spawns a task on the worker of `local`.
///
/// # Safety
///
/// The caller must be on that worker's thread.
pub(super) unsafe fn spawn_local_in<F>(
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
    let (runnable, task) = unsafe { task::new(shared, affinity, future, label, Kind::Local) };
    scheduler::schedule_new(shared, runnable);
    task
}

impl task::Builder {
    fn label(self, site: &'static Location<'static>) -> Label {
        Label::new(self.name, site)
    }

    /// Spawns the task as [`polder::spawn`](crate::spawn) does.
    ///
    /// ```
    /// use polder::task;
    ///
    /// let task = task::Builder::new().name("indexer").spawn(async { task::name() });
    /// assert_eq!(polder::block_on(task).unwrap(), "indexer");
    /// ```
    ///
    /// # Panics
    ///
    /// As [`polder::spawn`](crate::spawn).
    ///
    /// # Cancel safety
    ///
    /// Dropping the [`Task`] cancels it.
    #[track_caller]
    pub fn spawn<F>(self, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static, // Not `Send`? Drop it before the `.await`, or `spawn_local`.
        F::Output: Send + 'static,
    {
        let label = self.label(Location::caller());
        boxed_if_large!(future: F, label => spawn_at(future, label))
    }

    /// Spawns the task on the runtime of `handle`, as [`Handle::spawn`] does.
    ///
    /// ```
    /// use polder::task;
    ///
    /// let runtime = polder::Runtime::new()?;
    /// let builder = task::Builder::new().name("indexer");
    /// let task = builder.spawn_on(async { task::name() }, &runtime.handle());
    /// assert_eq!(runtime.block_on(task).unwrap(), "indexer");
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the [`Task`] cancels it.
    #[track_caller]
    pub fn spawn_on<F>(self, future: F, handle: &Handle) -> Task<F::Output>
    where
        F: Future + Send + 'static, // Not `Send`? Drop it before the `.await`, or `spawn_local`.
        F::Output: Send + 'static,
    {
        let label = self.label(Location::caller());
        boxed_if_large!(future: F, label => spawn_in(&handle.shared, future, label))
    }

    /// Spawns the task as [`polder::spawn_local`](crate::spawn_local) does: it stays on this
    /// thread, and its future need not be `Send`.
    ///
    /// ```
    /// use polder::task;
    ///
    /// polder::block_on(async {
    ///     let task = task::Builder::new().name("local").spawn_local(async { task::name() });
    ///     assert_eq!(task.await.unwrap(), "local");
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// On a thread that drives no runtime. Call it within [`block_on`](crate::block_on), or use
    /// [`spawn_local_on`](Self::spawn_local_on).
    ///
    /// # Cancel safety
    ///
    /// Dropping the [`Task`] cancels it.
    #[track_caller]
    pub fn spawn_local<F>(self, future: F) -> Task<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let label = self.label(Location::caller());
        boxed_if_large!(future: F, label => spawn_local_at(future, label))
    }

    /// Spawns the task as [`Runtime::spawn_local`] does: it stays on this thread, and its future
    /// need not be `Send`.
    ///
    /// ```
    /// use polder::task;
    ///
    /// let runtime = polder::Runtime::new()?;
    /// let builder = task::Builder::new().name("local");
    /// let task = builder.spawn_local_on(async { task::name() }, &runtime);
    /// assert_eq!(runtime.block_on(task).unwrap(), "local");
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the [`Task`] cancels it.
    #[track_caller]
    pub fn spawn_local_on<F>(self, future: F, runtime: &Runtime) -> Task<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let label = self.label(Location::caller());
        let local = &runtime.worker.local;
        // SAFETY: a runtime stays on the thread of its worker.
        boxed_if_large!(future: F, label => unsafe { spawn_local_in(local, future, label) })
    }
}
