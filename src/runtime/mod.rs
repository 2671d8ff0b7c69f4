//! Runtimes, and their handles and builders.
//!
//! [`block_on`] and [`spawn`](crate::spawn) suffice for most programs. A [`Runtime`] is for
//! programs that choose a [`Backend`], drive the loop themselves, or keep tasks between two calls.
//!
//! A runtime has a worker (a run queue, a reactor and timers), driven by the thread that made it;
//! other threads use a [`Handle`]. With [`Builder::workers`] it also has a pool of worker threads,
//! which run spawned tasks.
//!
//! ```
//! use polder::runtime::Runtime;
//! use polder::time::sleep;
//! use std::time::Duration;
//!
//! let runtime = Runtime::new()?;
//! let handle = runtime.handle();
//! std::thread::spawn(move || handle.spawn(sleep(Duration::from_millis(2))).detach())
//!     .join()
//!     .unwrap();
//! assert_eq!(runtime.block_on(async { 6 * 7 }), 42); // The other thread's task runs meanwhile,
//! runtime.run(); // and here until it is done.
//! # std::io::Result::Ok(())
//! ```

pub(crate) mod background;
mod builder;
#[cfg(feature = "kernel")]
#[doc(hidden)]
pub mod custom;
mod handle;
mod resolver;
mod scope;
mod spawn;
mod task_set;

use std::fmt;
use std::io;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock::now;
use crate::diagnostics::{self, Dump, Metrics, OwnWorker, Trace, observe};
use crate::poller::{Backend, Poller};
use crate::scheduler::{self, EVENT_INTERVAL, Shared, Worker};
use crate::sync::contain;
use crate::sys::BorrowedDescriptor;
use crate::task::Task;
use spawn::{boxed_if_large, spawn_in, spawn_local_in};

pub use builder::Builder;
pub use handle::Handle;
pub(crate) use resolver::{Resolver, asking};
pub use scope::{Scope, ScopedTask};
pub use spawn::{spawn, spawn_local};
pub use task_set::TaskSet;

/// An executor with timers and I/O, driven by the thread that made it.
///
/// Tasks make progress only while that thread drives the runtime, by [`block_on`](Self::block_on),
/// [`run`](Self::run) or [`run_once`](Self::run_once). With [several workers](Builder::workers),
/// spawned tasks always do, on the workers' threads. A runtime is neither `Send` nor `Sync`, so
/// that [`spawn_local`](Self::spawn_local) can take any future; other threads use a
/// [`handle`](Self::handle).
///
/// **Dropping a runtime drops every task**, on the threads of its workers, and waits for tasks that
/// other workers are running. Sockets and timers move to the runtime that waits for them next.
///
/// A task that a destructor spawns during the drop or later is cancelled: immediately or, if such
/// destructors are nested 64 deep, when the outermost one returns. After 131,072 of them in one
/// runtime, further ones are leaked, so that endless spawning cannot keep the runtime from closing.
///
/// # Examples
///
/// ```
/// use polder::Runtime;
///
/// let runtime = Runtime::new()?;
/// let task = runtime.spawn(async { 1 + 2 });
/// assert_eq!(runtime.block_on(task), 3);
/// # std::io::Result::Ok(())
/// ```
#[doc(alias("Executor", "LocalExecutor", "LocalRuntime"))]
pub struct Runtime {
    pub(crate) worker: Rc<Worker>,
    threads: Vec<JoinHandle<()>>,
    /// Called when this thread, as the only worker, has dropped its tasks.
    on_stop: Option<builder::ThreadHook>,
    /// Pool workers without threads, driven by a foreign loop on this thread.
    embedded: Embedded,
}

#[cfg(feature = "kernel")]
type Embedded = Vec<Rc<Worker>>;
/// Empty without the feature, so that the code that drives them is not linked.
#[cfg(not(feature = "kernel"))]
type Embedded = [Rc<Worker>; 0];

impl Runtime {
    /// Makes a runtime with the defaults of [`Builder`].
    ///
    /// ```
    /// use polder::{Backend, Runtime};
    ///
    /// let runtime = Runtime::new()?;
    /// assert_eq!(runtime.backend(), Backend::from_env()?);
    /// assert_eq!(runtime.workers(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Builder::build`].
    pub fn new() -> io::Result<Runtime> {
        Ok(Runtime::with_worker(Worker::new(single_worker()?)))
    }

    /// Returns a builder.
    ///
    /// ```
    /// let runtime = polder::Runtime::builder().workers(2).build()?;
    /// assert_eq!(runtime.workers(), 2);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Returns the embedded workers of the pool, and last the main worker.
    pub(crate) fn workers_here(&self) -> impl Iterator<Item = &Rc<Worker>> {
        self.embedded.iter().chain([&self.worker])
    }

    /// Makes the embedded workers exit, one after the other.
    fn exit_embedded(&mut self) {
        let workers = std::mem::take(&mut self.embedded);
        if !workers.is_empty() {
            self.shared().start_closing();
            workers
                .iter()
                .for_each(|worker| worker.run_pool_worker(|| ()));
        }
    }

    fn with_worker(main: Worker) -> Runtime {
        Runtime {
            worker: Rc::new(main),
            threads: Vec::new(),
            on_stop: None,
            embedded: Embedded::default(),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        self.worker.shared()
    }

    /// Drives the runtime until `future` is done, and returns its output. Other tasks stay, and
    /// continue when the runtime is driven again.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// assert_eq!(runtime.block_on(async { 6 * 7 }), 42);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Panics
    ///
    /// If `future` does, or if the kernel can no longer be waited on.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.worker.block_on(future, Location::caller())
    }

    /// Drives the runtime until no task is left. Never returns if called by one of its tasks.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// runtime.spawn(async {
    ///     polder::spawn(async { println!("the last one") }).detach();
    /// }).detach();
    /// runtime.run();
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Panics
    ///
    /// If the kernel can no longer be waited on.
    pub fn run(&self) {
        self.worker.run(None);
    }

    /// Runs one iteration of the loop: waits up to `timeout` (`None`: without limit) for work, then
    /// runs at most 64 ready tasks. Returns whether there was anything to do.
    ///
    /// Never blocks with [`Duration::ZERO`]. Activity of [pool workers](Builder::workers) does not
    /// end the wait.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = polder::Runtime::new()?;
    /// let task = runtime.spawn(async { 5 });
    /// while !task.is_finished() {
    ///     runtime.run_once(Duration::ZERO);
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Panics
    ///
    /// If the kernel can no longer be waited on.
    #[doc(alias("tick", "try_tick", "poll_one"))]
    pub fn run_once(&self, timeout: impl Into<Option<Duration>>) -> bool {
        self.worker.turn(timeout.into(), EVENT_INTERVAL)
    }

    /// Spawns a task, which runs while the runtime is driven; with [several
    /// workers](Builder::workers), always, on one of their threads.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// let task = runtime.spawn(async { "done" }); // It does not run yet.
    /// assert_eq!(runtime.block_on(task), "done");
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the [`Task`] cancels it.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static, // Not `Send`? Drop it before the `.await`, or `spawn_local`.
        F::Output: Send + 'static,
    {
        let site = Location::caller();
        boxed_if_large!(future: F, meta = site => spawn_in(self.shared(), future, meta))
    }

    /// Spawns a task that stays on this thread. Its future need not be `Send`.
    ///
    /// ```
    /// use std::cell::Cell;
    /// use std::rc::Rc;
    ///
    /// let runtime = polder::Runtime::new()?;
    /// let seen = Rc::new(Cell::new(0));
    /// let shared = seen.clone();
    /// runtime.spawn_local(async move { shared.set(5) }).detach();
    /// runtime.run();
    /// assert_eq!(seen.get(), 5);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the [`Task`] cancels it.
    #[track_caller]
    pub fn spawn_local<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let local = &self.worker.local;
        let site = Location::caller();
        // SAFETY: a runtime stays on the thread of its worker.
        boxed_if_large!(future: F, meta = site => unsafe { spawn_local_in(local, future, meta) })
    }

    /// Returns a handle, which spawns from any thread.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// let handle = runtime.handle();
    /// let spawn = move || handle.spawn(async { println!("from another thread") }).detach();
    /// std::thread::spawn(spawn).join().unwrap();
    /// runtime.run();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn handle(&self) -> Handle {
        Handle::of(self.shared())
    }

    /// Returns the runtime's metrics.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// runtime.block_on(runtime.spawn(async {}));
    /// assert_eq!(runtime.metrics().workers[0].polls, 1);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn metrics(&self) -> Metrics {
        Metrics::of(self.shared())
    }

    /// Returns the state of the runtime: its workers, its tasks, and what each task waits for. On
    /// this thread, it includes the tasks of a runtime that is not driven.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// runtime.spawn(std::future::pending::<()>()).detach();
    /// let dump = runtime.dump();
    /// assert_eq!(dump.tasks.len(), 1);
    /// print!("{dump}");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn dump(&self) -> Dump {
        Dump::of(self.shared(), &self.own_workers())
    }

    /// Returns the runtime's workers here, and the current one, if it is another runtime's.
    fn own_workers(&self) -> Vec<OwnWorker> {
        let own = self
            .workers_here()
            .map(|worker| (worker.local.clone(), worker.driver.clone()));
        let mut workers: Vec<OwnWorker> = own.collect();
        let current = scheduler::current_worker();
        workers.extend(current.filter(|(local, _)| !Arc::ptr_eq(&local.shared, self.shared())));
        workers
    }

    /// Returns the runtime's latest events, if it is
    /// [traced](super::runtime::Builder::trace_capacity).
    ///
    /// ```
    /// let runtime = polder::Runtime::builder().trace_capacity(1_000).build()?;
    /// runtime.block_on(runtime.spawn(async {}));
    /// let trace = runtime.trace().unwrap();
    /// let path = std::env::temp_dir().join("polder-doc.trace.json");
    /// std::fs::write(&path, trace.json())?; // For https://ui.perfetto.dev.
    /// # std::fs::remove_file(path)?;
    ///
    /// assert!(polder::Runtime::new()?.trace().is_none());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn trace(&self) -> Option<Trace> {
        Trace::of(self.shared())
    }

    /// Returns the backend. With [`IoUring`](Backend::IoUring), the workers of a pool share an
    /// epoll set.
    ///
    /// ```
    /// use polder::{Backend, Runtime};
    ///
    /// for backend in Backend::available() {
    ///     let runtime = Runtime::builder().backend(backend).build()?;
    ///     assert_eq!(runtime.backend(), backend);
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn backend(&self) -> Backend {
        self.worker.reactor.poller().backend()
    }

    /// Returns the number of threads that run spawned tasks.
    ///
    /// ```
    /// let runtime = polder::Runtime::builder().workers(2).build()?;
    /// // One task for each of them.
    /// let spawn = |n| runtime.spawn(async move { n });
    /// let tasks: Vec<_> = (0..runtime.workers()).map(spawn).collect();
    /// assert_eq!(tasks.len(), 2);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn workers(&self) -> usize {
        self.shared().workers()
    }

    /// Returns a descriptor that is readable when [`run_once`](Self::run_once) has something to do.
    /// A foreign loop waits for it, and then calls `run_once` with a zero timeout.
    ///
    /// The first call makes the runtime embedded: from then on each drive arms the earliest
    /// deadline in the kernel, and a wake between two turns, also on this thread, makes the
    /// descriptor readable. Each costs an occasional system call.
    ///
    /// ```
    /// # #[cfg(target_os = "linux")] {
    /// use polder::{Backend, Runtime};
    /// use rustix::event::{PollFd, PollFlags, poll};
    /// use std::time::Duration;
    ///
    /// let runtime = Runtime::builder().backend(Backend::Epoll).build()?;
    /// let task = runtime.spawn(polder::time::sleep(Duration::from_millis(5)));
    /// let descriptor = runtime.backend_fd()?;
    /// while !task.is_finished() {
    ///     poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None)?;
    ///     runtime.run_once(Duration::ZERO);
    /// }
    /// # } std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](io::ErrorKind::Unsupported) if the backend has no
    /// [descriptor](crate::poller::Capabilities::descriptor): use
    /// [`next_timeout`](Self::next_timeout). The first call also fails if the process has no
    /// descriptor left.
    #[doc(alias = "uv_backend_fd")]
    pub fn backend_fd(&self) -> io::Result<BorrowedDescriptor<'_>> {
        self.worker.backend_fd()
    }

    /// Returns how long a foreign loop may sleep before the next [`run_once`](Self::run_once): zero
    /// if tasks are ready, `None` if only I/O or another thread can make one ready. These cannot
    /// interrupt the foreign loop's sleep, so bound it by the latency that you accept.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = polder::Runtime::new()?;
    /// let task = runtime.spawn(polder::time::sleep(Duration::from_millis(5)));
    /// while !task.is_finished() {
    ///     // Here a foreign loop would wait for its own events, no longer than this.
    ///     let most = runtime.next_timeout().unwrap_or(Duration::MAX);
    ///     std::thread::sleep(most.min(Duration::from_millis(10)));
    ///     runtime.run_once(Duration::ZERO);
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_backend_timeout")]
    pub fn next_timeout(&self) -> Option<Duration> {
        self.worker.next_timeout()
    }

    /// Drives the runtime until no task is left, for at most `timeout`, and drops it. Returns the
    /// last [`dump`](Self::dump), which lists the remaining tasks; pool workers may complete some
    /// before they are cancelled. Like any drop, it waits for tasks that pool workers are running.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = polder::Runtime::new()?;
    /// runtime.spawn(async { println!("finishing") }).detach();
    /// let stuck = polder::task::Builder::new().name("stuck");
    /// stuck.spawn_on(std::future::pending::<()>(), &runtime.handle()).detach();
    /// let left = runtime.shutdown(Duration::from_millis(10));
    /// if left.task_count() > 0 {
    ///     eprint!("cancelled: {left}");
    /// }
    /// assert!(left.to_string().contains("stuck"));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// If the kernel can no longer be waited on, the runtime is dropped immediately.
    #[doc(alias("shutdown_timeout", "shutdown_background"))]
    pub fn shutdown(self, timeout: Duration) -> Dump {
        contain(|| self.worker.run(now().checked_add(timeout)));
        self.dump()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if self.worker.is_driven() {
            // `process::exit` in a task drops the thread-locals, one of which holds this runtime.
            // The task still uses the worker and never returns, so it cannot be waited for.
            std::mem::forget(self.worker.clone());
            return;
        }
        let threads = std::mem::take(&mut self.threads);
        if self.shared().main().reactor.poller().is_inherited() {
            // A child of `fork` has none of these threads, and a thread of the parent may have held
            // a lock, or been about to queue a task.
            std::mem::forget((self.worker.clone(), threads));
            return;
        }
        self.exit_embedded();
        self.worker.close(threads);
        diagnostics::runtime_ends(self.shared());
        self.on_stop.iter().for_each(|stop| stop.stop(0));
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks = self.worker.local.owned.borrow();
        let sites = (tasks.values()).map(|task| task.header().site.to_string());
        let sites: Vec<_> = sites.collect();
        f.debug_struct("Runtime")
            .field("backend", &self.backend())
            .field("workers", &self.workers())
            .field("tasks", &self.shared().live_tasks())
            .field("spawned_at", &sites)
            .finish()
    }
}

/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<polder::Runtime>();
/// ```
/// ```compile_fail,E0277
/// fn sync<T: Sync>() {}
/// sync::<polder::Runtime>();
/// ```
#[cfg(doctest)]
pub mod not_send {}

/// Runs `future`, and the tasks that it spawns, on this thread, until `future` is done.
///
/// This makes a [`Runtime`], drives it and drops it: **tasks that still run when `future` is done
/// are cancelled**. Within a task, it blocks the task's worker; another executor's `block_on` may
/// then never return, since its sockets and timers belong to that worker.
///
/// # Examples
///
/// ```
/// let sum = polder::block_on(async {
///     let task = polder::spawn(async { 2 });
///     1 + task.await
/// });
/// assert_eq!(sum, 3);
/// ```
///
/// # Panics
///
/// If `future` does, or if no runtime can be made: the process has no descriptor left,
/// `POLDER_BACKEND` names no available backend, or this thread is in a simulated world, where each
/// process has one runtime. [`Runtime::new`] returns an error instead.
#[track_caller]
pub fn block_on<F: Future>(future: F) -> F::Output {
    match Runtime::new() {
        Ok(runtime) => runtime.block_on(future),
        Err(error) => panic!("polder::block_on: {error}"),
    }
}

const ANOTHER_RUNTIME: &str = "a runtime beside the one of a host's process";

/// Separate from [`Builder`], so that most programs do not link the code that starts threads.
fn single_worker() -> io::Result<Arc<Shared>> {
    crate::kernel::permit(ANOTHER_RUNTIME)?;
    let main = Poller::first_of(Backend::list_from_env()?)?;
    observe(Shared::new(main), None)
}
