//! The free functions that spawn, those of [`task::Builder`], and code that they share with
//! [`Runtime`] and [`Handle`].

use std::panic::Location;
use std::sync::Arc;

use super::{Handle, Runtime, background};
use crate::scheduler::{self, Affinity, Local, Shared};
use crate::spans::Kind;
use crate::task::{self, Task};
use crate::telemetry::SpawnMeta;

/// The minimum size of a future that is boxed on entry. async-task boxes it too, but after several
/// functions that each keep a copy on the stack in debug builds: a future of 128 KiB overflowed the
/// 2 MiB of a pool worker.
pub(super) const LARGE_FUTURE: usize = 16 * 1024;

/// Evaluates `$spawn`, which uses `$future` and `$meta`, with the future boxed if it is large. A
/// macro that has `$spawn` twice, since a closure cannot take a future of either type. The
/// condition is a constant, so that a task's code is not compiled twice.
macro_rules! boxed_if_large {
    ($future:ident: $type:ident, $meta:ident = $from:expr => $spawn:expr) => {{
        let $meta = $crate::telemetry::SpawnMeta::from($from);
        if const { size_of::<$type>() >= $crate::runtime::spawn::LARGE_FUTURE } {
            let ($future, $meta) = (Box::pin($future), $meta.boxed(size_of::<$type>()));
            $spawn
        } else {
            $spawn
        }
    }};
}
pub(super) use boxed_if_large;

/// Spawns a task on the runtime that this thread drives. Other threads, including those of
/// [`unblock`](crate::unblock), spawn on the background runtime: one worker on a thread of its own,
/// which is started on first use.
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
    boxed_if_large!(future: F, meta = Location::caller() => spawn_at(future, meta))
}

#[inline]
pub(super) fn spawn_at<F>(future: F, meta: SpawnMeta) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    match scheduler::current_local() {
        Some(local) => spawn_in(&local.shared, future, meta),
        None => spawn_in(background::expect_shared(), future, meta),
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
    boxed_if_large!(future: F, meta = Location::caller() => spawn_local_at(future, meta))
}

#[track_caller]
pub(super) fn spawn_local_at<F>(future: F, meta: SpawnMeta) -> Task<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    match scheduler::current_local() {
        // SAFETY: the current worker belongs to this thread.
        Some(local) => unsafe { spawn_local_in(&local, future, meta) },
        None => panic!(
            "polder::spawn_local: this thread drives no runtime; call it within polder::block_on, \
             or use Runtime::spawn_local, or spawn_local_on of a task::Builder"
        ),
    }
}

pub(super) fn spawn_in<F>(shared: &Arc<Shared>, future: F, meta: SpawnMeta) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let affinity = shared.any_worker();
    // SAFETY: the future is `Send`.
    let (runnable, task) = unsafe { task::new(shared, affinity, future, meta, Kind::Task) };
    scheduler::schedule_new(shared, runnable);
    task
}

/// Spawns a task on the worker of `local`.
///
/// # Safety
///
/// The caller must be on that worker's thread.
pub(super) unsafe fn spawn_local_in<F>(local: &Local, future: F, meta: SpawnMeta) -> Task<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let (shared, affinity) = (&local.shared, Affinity::pinned(local.index));
    // SAFETY: the caller is on that worker's thread.
    let (runnable, task) = unsafe { task::new(shared, affinity, future, meta, Kind::Local) };
    scheduler::schedule_new(shared, runnable);
    task
}

impl task::Builder {
    fn meta(self, site: &'static Location<'static>) -> SpawnMeta {
        SpawnMeta::new(self.name, site)
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
        boxed_if_large!(future: F, meta = self.meta(Location::caller()) => spawn_at(future, meta))
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
        boxed_if_large!(future: F, meta = self.meta(Location::caller()) => {
            spawn_in(&handle.shared, future, meta)
        })
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
        boxed_if_large!(future: F, meta = self.meta(Location::caller()) => {
            spawn_local_at(future, meta)
        })
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
        let local = &runtime.worker.local;
        boxed_if_large!(future: F, meta = self.meta(Location::caller()) => {
            // SAFETY: a runtime stays on the thread of its worker.
            unsafe { spawn_local_in(local, future, meta) }
        })
    }
}
