//! [`Handle`]: spawns on a runtime from other threads.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use super::background;
use super::resolver::Resolver;
use super::spawn::{LARGE_FUTURE, boxed_if_large, spawn_in};
use crate::diagnostics::{Dump, Metrics, Trace};
use crate::poller::Backend;
use crate::scheduler::{self, Shared};
use crate::task::{self, Task};
use crate::telemetry::SpawnMeta;

/// Spawns onto a [`Runtime`](super::Runtime) from any thread.
///
/// A handle does not keep its runtime alive: a task that is spawned after the runtime was dropped
/// is cancelled immediately. Like a [`Task`], it keeps the memory and the descriptors of the
/// pollers.
///
/// ```
/// let runtime = polder::Runtime::new()?;
/// let handle = runtime.handle();
/// let thread = std::thread::spawn(move || handle.spawn(async { "from another thread" }));
/// let task = thread.join().unwrap();
/// assert_eq!(runtime.block_on(task), "from another thread");
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
}

impl Handle {
    pub(super) fn of(shared: &Arc<Shared>) -> Handle {
        let shared = shared.clone();
        Handle { shared }
    }

    /// Returns the handle of the runtime that this thread drives. If there is none, as on the
    /// threads of [`unblock`](crate::unblock), that of the background runtime, started on first
    /// use.
    ///
    /// ```
    /// let task = polder::block_on(async {
    ///     let here = polder::Handle::current();
    ///     // On the new thread, `Handle::current()` is that of the background runtime.
    ///     std::thread::spawn(move || here.spawn(async { 5 })).join().unwrap().await
    /// });
    /// assert_eq!(task, 5);
    /// ```
    ///
    /// # Panics
    ///
    /// If the background runtime is needed and cannot be started.
    pub fn current() -> Handle {
        Handle::try_current().unwrap_or_else(|| Handle::of(background::expect_shared()))
    }

    /// Returns the handle of the runtime that this thread drives, if any.
    ///
    /// ```
    /// assert!(polder::Handle::try_current().is_none());
    /// polder::block_on(async { assert!(polder::Handle::try_current().is_some()) });
    /// ```
    pub fn try_current() -> Option<Handle> {
        scheduler::with_local(|local| Handle::of(&local.shared))
    }

    /// Spawns a task, which runs while the runtime is driven; with [several
    /// workers](super::Builder::workers), always. It is cancelled immediately if the runtime was
    /// dropped.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// let handle = runtime.handle();
    /// let task = handle.spawn(async { 5 });
    /// assert_eq!(runtime.block_on(task), 5);
    ///
    /// drop(runtime);
    /// let late = handle.spawn(async { 5 }).fallible();
    /// assert_eq!(polder::block_on(late), None);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the [`Task`] cancels it.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let site = Location::caller();
        boxed_if_large!(future: F, meta = site => spawn_in(&self.shared, future, meta))
    }

    /// Spawns a task on one worker, where `create` makes its future, which need not be `Send`: for
    /// programs that partition their data by worker. Pool workers are counted from zero; without a
    /// pool, the only worker is 0.
    ///
    /// ```
    /// use polder::Runtime;
    /// use std::cell::Cell;
    /// use std::rc::Rc;
    ///
    /// let runtime = Runtime::builder().workers(2).build()?;
    /// let handle = runtime.handle();
    /// let shares: Vec<_> = (0..handle.workers())
    ///     .map(|worker| {
    ///         handle.spawn_on_worker(worker, move || async move {
    ///             let share = Rc::new(Cell::new(worker));
    ///             polder::future::yield_now().await;
    ///             share.get()
    ///         })
    ///     })
    ///     .collect();
    /// for (worker, share) in shares.into_iter().enumerate() {
    ///     assert_eq!(runtime.block_on(share), worker);
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Panics
    ///
    /// If there is no such worker. A panic of `create` becomes the task's.
    ///
    /// # Cancel safety
    ///
    /// Dropping the [`Task`] cancels it.
    #[doc(alias("spawn_pinned", "spawn_pinned_by_idx"))]
    #[track_caller]
    pub fn spawn_on_worker<C, F>(&self, worker: usize, create: C) -> Task<F::Output>
    where
        C: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_on_worker_at(worker, Location::caller(), create)
    }

    #[track_caller]
    pub(crate) fn spawn_on_worker_at<C, F>(
        &self,
        worker: usize,
        site: &'static Location<'static>,
        create: C,
    ) -> Task<F::Output>
    where
        C: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let workers = self.workers();
        assert!(
            worker < workers,
            "Handle::spawn_on_worker: there is no worker {worker}: the runtime has {workers}"
        );
        let meta = SpawnMeta::from(site);
        let (runnable, task) = if const { size_of::<F>() >= LARGE_FUTURE } {
            let create = move || Box::pin(create());
            task::new_on(&self.shared, worker, create, meta.boxed(size_of::<F>()))
        } else {
            task::new_on(&self.shared, worker, create, meta)
        };
        scheduler::schedule_new(&self.shared, runnable);
        self.shared.unpark_main_if_closing();
        task
    }

    /// Returns the number of threads that run spawned tasks.
    ///
    /// ```
    /// let runtime = polder::Runtime::builder().workers(2).build()?;
    /// assert_eq!(runtime.handle().workers(), 2);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn workers(&self) -> usize {
        self.shared.workers()
    }

    /// Returns the runtime's metrics. Asks no worker, so it works while a worker is stuck.
    ///
    /// ```
    /// polder::block_on(async {
    ///     let task = polder::spawn(std::future::pending::<()>());
    ///     assert_eq!(polder::Handle::current().metrics().tasks, 1);
    ///     task.cancel().await;
    ///     assert_eq!(polder::Handle::current().metrics().tasks, 0);
    /// });
    /// ```
    pub fn metrics(&self) -> Metrics {
        Metrics::of(&self.shared)
    }

    /// Returns `None` if the system resolves names.
    pub(crate) fn resolver(&self) -> Option<Arc<Resolver>> {
        self.shared.resolver.lock().clone()?.downcast().ok()
    }

    /// Returns the state of the runtime: its workers, its tasks, and what each task waits for.
    ///
    /// It waits up to 100 ms for workers that do not answer. Only its own thread can list the tasks
    /// of a main worker that is not driven: [`Runtime::dump`](super::Runtime::dump).
    ///
    /// ```
    /// use polder::Handle;
    ///
    /// # #[cfg(feature = "blocking")]
    /// polder::block_on(async {
    ///     let waits = polder::spawn(std::future::pending::<()>());
    ///     let here = Handle::current();
    ///     let dump = polder::unblock(move || here.dump()).await;
    ///     assert!(dump.tasks.iter().any(|task| task.id == Some(waits.id())));
    /// });
    /// ```
    pub fn dump(&self) -> Dump {
        Dump::of(&self.shared, scheduler::current_worker().as_slice())
    }

    /// Returns the runtime's latest events, if it is [traced](super::Builder::trace_capacity).
    ///
    /// ```
    /// use polder::{Handle, Runtime};
    ///
    /// let runtime = Runtime::builder().workers(2).trace_capacity(1_000).build()?;
    /// let trace = runtime.block_on(runtime.spawn(async { Handle::current().trace() }));
    /// assert!(trace.unwrap().json().contains("worker 1"));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn trace(&self) -> Option<Trace> {
        Trace::of(&self.shared)
    }

    /// Returns the backend.
    ///
    /// ```
    /// use polder::{Handle, Runtime};
    ///
    /// let runtime = Runtime::new()?;
    /// let here = runtime.block_on(async { Handle::current().backend() });
    /// assert_eq!(here, runtime.backend());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn backend(&self) -> Backend {
        self.shared.main().reactor.poller().backend()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("backend", &self.backend())
            .field("tasks", &self.shared.live_tasks())
            .finish()
    }
}
