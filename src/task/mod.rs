//! Tasks: the handles that [`spawn`](crate::spawn) returns, their cancellation, the running task's
//! id and name, and yielding.
//!
//! ```
//! use polder::task::{AbortHandle, Task};
//!
//! polder::block_on(async {
//!     let task: Task<u8> = polder::spawn(std::future::pending());
//!     let abort: AbortHandle = task.abort_handle();
//!     abort.abort();
//!     assert_eq!(task.cancel().await, None);
//! });
//! ```

// async-task has the state, the waker and the allocation of a task, and wraps the user's future in
// a `TaskFuture`.
//
// **Where a future is polled and dropped.** The runnable of a pinned task is run and dropped only
// by its worker's thread, and so the future is polled and dropped there, regardless of the thread
// that wakes or cancels the task. So `spawn_local` can take futures that are not `Send`. (A closed
// worker takes no runnable, but it closes only after the last such future was dropped; one that was
// never polled may be dropped by its spawner.) Other tasks may be polled and dropped on any worker
// of their runtime.

mod abort;
mod future;

use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use async_task::WithInfo;
use pin_project_lite::pin_project;

#[cfg(feature = "blocking")]
use crate::blocking::Call;
use crate::scheduler::{self, Affinity, Header, Runnable, Shared, TaskRef, budget, record_wait};
use crate::spans::{Kind, NewTask, TaskSpan};
use crate::telemetry::{SpawnMeta, WaitReason};
use abort::Target;
use future::TaskFuture;

#[cfg(feature = "blocking")]
pub(crate) use abort::Abort;
pub use abort::AbortHandle;
pub(crate) use future::{Origin, TaskResult, poll_and_drop, record_panic};

pub use crate::telemetry::{Id, Name};

#[cfg(feature = "blocking")]
pub use crate::blocking::unblock;

/// Lets other tasks run if the running one has done much work since its last poll.
///
/// In one poll a task may complete 128 operations on sockets, timers, events and tasks, and 32 in
/// its first poll. A transfer counts as one operation for each 2 KiB, so the limits are 256 KiB and
/// 64 KiB. So no task can starve others, even if it never has to wait. This call counts as one
/// operation, for work that polder does not see: a channel of another crate, a part of a long
/// computation, each of thousands of empty WebSocket frames in a buffer.
///
/// The bytes of sockets and of an [`Async`](crate::Async) stream count, and those of files that
/// need no other thread; those of `duplex` and of functions passed to an `Async` do not.
///
/// Only tasks and the future of [`block_on`](crate::block_on) have a budget. Elsewhere this returns
/// immediately.
///
/// # Examples
///
/// ```
/// polder::block_on(async {
///     let mut sum = 0;
///     for n in 0..100_000_u64 {
///         sum += n;
///         if n % 100 == 0 {
///             polder::task::consume_budget().await;
///         }
///     }
///     assert_eq!(sum, 4_999_950_000);
/// });
/// ```
///
/// # Cancel safety
///
/// Cancel safe: dropping the future has no effect.
pub async fn consume_budget() {
    let mut was_refused = false;
    poll_fn(|cx| {
        // Only once: a future polled before this one in the same task may take the whole budget
        // each time.
        if was_refused {
            return Poll::Ready(());
        }
        let result = budget::consume(cx);
        was_refused = result.is_pending();
        result
    })
    .await;
}

/// Makes a task that is pinned to the worker at index `worker`, where `create` makes its future.
pub(crate) fn new_on<C, F>(
    shared: &Arc<Shared>,
    worker: usize,
    create: C,
    meta: SpawnMeta,
) -> (Runnable, Task<F::Output>)
where
    C: FnOnce() -> F + Send + 'static,
    F: Future + 'static,
    F::Output: Send + 'static,
{
    let create = Some(create);
    let (future, affinity) = (LazyFuture::Function { create }, Affinity::pinned(worker));
    // SAFETY: until its first poll the future is `create`, which is `Send`, and which any thread
    // may drop (see `scheduler::schedule_new` and `Shared::departed`). The task is pinned, so only
    // this worker polls the future, and drops it once it was polled. The output is `Send`, so the
    // handle may be used on any thread.
    unsafe { new(shared, affinity, future, meta, Kind::Local) }
}

pin_project! {
    #[project = LazyProjection]
    /// A future that its first poll makes.
    enum LazyFuture<C, F> {
        // `None` while it is called, and after its panic.
        Function { create: Option<C> },
        Future { #[pin] future: F },
    }
}

impl<C: FnOnce() -> F, F: Future> Future for LazyFuture<C, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if let LazyProjection::Function { create } = self.as_mut().project() {
            let create = create
                .take()
                .expect("`spawn_on_worker` future polled after panic");
            self.set(LazyFuture::Future { future: create() });
        }
        match self.project() {
            LazyProjection::Future { future } => future.poll(cx),
            LazyProjection::Function { .. } => unreachable!("it was created above"),
        }
    }
}

/// Makes a task of `shared`, without scheduling it.
///
/// # Safety
///
/// If `future` is not `Send`, the task must be pinned to a worker; and that worker must belong to
/// this thread, or the future must be `Send` until it is polled, and its output, too.
#[inline]
pub(crate) unsafe fn new<F>(
    shared: &Arc<Shared>,
    affinity: Affinity,
    future: F,
    meta: SpawnMeta,
    kind: Kind,
) -> (Runnable, Task<F::Output>)
where
    F: Future + 'static,
    F::Output: 'static,
{
    let size = meta.size.max(size_of::<F>());
    let meta = SpawnMeta { size, ..meta };
    // With debug assertions the future is boxed: a program with many tasks builds in half the time,
    // since task code is compiled once for each output type, not twice for each future. Miri and
    // ThreadSanitizer check what is shipped.
    #[cfg(all(debug_assertions, not(any(miri, tsan))))]
    let future: Pin<Box<dyn Future<Output = F::Output>>> = Box::pin(future);
    // SAFETY: the caller's promise for its future holds for the box, which contains nothing else,
    // although its type does not say that it is `Send`.
    unsafe { allocate(shared, affinity, future, meta, kind) }
}

/// [`new`], with the future as it is stored.
///
/// # Safety
///
/// As for [`new`].
#[inline]
unsafe fn allocate<F>(
    shared: &Arc<Shared>,
    affinity: Affinity,
    future: F,
    meta: SpawnMeta,
    kind: Kind,
) -> (Runnable, Task<F::Output>)
where
    F: Future + 'static,
    F::Output: 'static,
{
    let size = meta.size;
    let header = scheduler::new_header(shared, affinity, meta);
    let span = TaskSpan::new(|| NewTask {
        kind,
        id: header.id.as_u64(),
        name: header.name().map(|name| &**name),
        site: header.site,
        size,
    });
    let (builder, schedule) = (
        async_task::Builder::new().metadata(header),
        WithInfo(scheduler::schedule),
    );
    // SAFETY: async-task requires four things of an unchecked spawn.
    // - If the future is not `Send`, the runnable is used and dropped on the spawning thread only:
    //   `scheduler::schedule` passes the runnable of a pinned task only to its worker, and the
    //   caller is on that worker's thread, or passes a future that may be sent there.
    // - If the future is not `'static`, it outlives the runnable: `F` is `'static`; `TaskFuture`
    //   borrows the metadata, which is in the same allocation and is dropped after the future.
    // - The schedule function, and with it every waker, may be sent to other threads: it is a
    //   function item, which captures nothing.
    // - The schedule function outlives the runnable: it is `'static`.
    let (runnable, task) = unsafe {
        if scheduler::exceeds_late_limit(shared) {
            mem::forget(future);
            builder.spawn_unchecked(|header| TaskFuture::<F>::forgotten(header, span), schedule)
        } else {
            builder.spawn_unchecked(|header| TaskFuture::new(header, future, span), schedule)
        }
    };
    let id = task.metadata().id;
    let inner = Inner::Spawned {
        reference: TaskRef::new(task.metadata(), runnable.waker()),
        task: task.fallible(),
    };
    (runnable, Task::new(inner, id))
}

/// Returns the id of the task that runs on this thread.
///
/// `None` outside of tasks: on a plain thread, and in the future of [`block_on`](crate::block_on).
/// A function given to `unblock`, and a `block_on` within it, has the id of the `Task` that
/// `unblock` has returned. Destructors of a cancelled future, and of an output that is not awaited,
/// run within its task.
///
/// ```
/// assert!(polder::task::id().is_none());
/// let id = polder::block_on(polder::spawn(async { polder::task::id() }));
/// assert!(id.is_some());
/// ```
#[doc(alias = "try_id")]
pub fn id() -> Option<Id> {
    scheduler::running_id()
}

/// Returns the name of the task that runs on this thread. `None` where [`id`] is, in a task without
/// a name (see [`Builder`]), and in the destructor of an output that is not
/// awaited.
///
/// ```
/// let task = polder::task::Builder::new().name("indexer").spawn(async { polder::task::name() });
/// assert_eq!(polder::block_on(task).unwrap(), "indexer");
/// ```
pub fn name() -> Option<Name> {
    // Cloning a name runs no foreign code.
    scheduler::with_running(|header| header.name().cloned()).flatten()
}

/// Spawns a task with a [name], which dumps, traces and spans show.
///
/// # Examples
///
/// ```
/// use polder::task;
///
/// polder::block_on(async {
///     let shard = 7;
///     let builder = task::Builder::new().name(format!("shard {shard}"));
///     let task = builder.spawn(async { task::name() });
///     assert_eq!(task.await.unwrap(), "shard 7");
/// });
/// ```
#[derive(Clone, Default, Debug)]
#[must_use = "a builder spawns nothing before one of its `spawn` methods is called"]
pub struct Builder {
    pub(crate) name: Option<Name>,
}

// `runtime::spawn` has the methods that spawn.
impl Builder {
    /// Makes a builder of a task without a name.
    ///
    /// ```
    /// use polder::task;
    ///
    /// let task = task::Builder::new().spawn(async { task::name() });
    /// assert_eq!(polder::block_on(task), None);
    /// ```
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Gives the task a name, in place of an earlier one.
    ///
    /// ```
    /// use polder::task;
    ///
    /// let task = task::Builder::new().name("indexer").spawn(async { task::name() });
    /// assert_eq!(polder::block_on(task).unwrap(), "indexer");
    /// ```
    pub fn name(mut self, name: impl Into<Name>) -> Builder {
        self.name = Some(name.into());
        self
    }
}

/// A spawned task.
///
/// Awaiting it returns the output of the future. **Dropping it cancels the task**;
/// [`detach`](Self::detach) lets it continue.
///
/// Awaiting a task resumes its panic, which affects nothing else. The panic of a task that is no
/// longer awaited is reported on standard error.
///
/// # Examples
///
/// ```
/// polder::block_on(async {
///     let task = polder::spawn(async { 6 * 7 });
///     assert_eq!(task.await, 42);
///
///     let endless = polder::spawn(std::future::pending::<()>());
///     assert!(endless.cancel().await.is_none());
/// });
/// ```
///
/// # Panics
///
/// Awaiting a task panics if it is polled after completion, or was cancelled by an [`AbortHandle`]
/// or the end of its runtime; [`fallible`](Self::fallible) returns `None` instead.
///
/// A waker that awaits a task must not panic when it is cloned, woken or dropped: `async-task` then
/// aborts the process. Wakers of tasks and of `block_on` do not. Sockets, timers and events take
/// any waker.
///
/// # Cancel safety
///
/// Cancel safe if polled through `&mut`. Dropping the task itself cancels it.
#[doc(alias = "JoinHandle")]
#[must_use = "dropping a task cancels it; use `.detach()` to let it run"]
pub struct Task<T> {
    inner: Inner<T>,
    id: Id,
    /// Whether it was awaited before. It then had to wait, or the budget was used up, which must
    /// not refuse it again.
    was_polled: bool,
}

pub(crate) enum Inner<T> {
    Spawned {
        /// Yields `None` if the task was cancelled, for instance by the end of its runtime.
        task: async_task::FallibleTask<TaskResult<T>, Header>,
        reference: TaskRef,
    },
    #[cfg(feature = "blocking")]
    Blocking(Call<TaskResult<T>>),
}

impl<T> Task<T> {
    pub(crate) fn new(inner: Inner<T>, id: Id) -> Task<T> {
        Task {
            inner,
            id,
            was_polled: false,
        }
    }

    /// Lets the task continue without a handle, until it is done or its runtime ends.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// runtime.spawn(async { println!("detached") }).detach();
    /// runtime.run();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn detach(self) {
        match self.inner {
            Inner::Spawned { task, .. } => task.detach(),
            #[cfg(feature = "blocking")]
            Inner::Blocking(call) => call.detach(),
        }
    }

    /// Cancels the task, and waits until its future has been dropped. Returns the output if the
    /// task was already done.
    ///
    /// The future is dropped between two polls. If a poll in progress on another worker returns the
    /// output, so does this call. If it returns `Pending`, the future is dropped with everything
    /// that it owns, including the result of an operation that has succeeded in that poll: bytes
    /// that were read, an accepted connection, a received message. If such a result must not be
    /// lost, ask the task to stop, with an [`Event`](crate::event::Event) or a channel, and await
    /// it.
    ///
    /// A function given to [`unblock`] that has begun cannot be stopped: this waits for its end,
    /// and returns its output.
    ///
    /// ```
    /// polder::block_on(async {
    ///     let endless = polder::spawn(std::future::pending::<()>());
    ///     assert_eq!(endless.cancel().await, None);
    ///
    ///     let done = polder::spawn(async { 5 });
    ///     polder::future::yield_now().await;
    ///     assert_eq!(done.cancel().await, Some(5));
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the task panicked.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, polled or not, still cancels the task, but does not wait for it, and
    /// drops any output.
    #[doc(alias = "abort")]
    pub async fn cancel(self) -> Option<T> {
        let result = match self.inner {
            Inner::Spawned { task, reference } => {
                reference.abort();
                task.await
            }
            #[cfg(feature = "blocking")]
            Inner::Blocking(call) => call.cancel().await,
        };
        result.and_then(TaskResult::take)
    }

    /// Returns whether the task has ended, and its future was dropped.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// let task = runtime.spawn(async { 5 });
    /// assert!(!task.is_finished());
    /// runtime.run_once(std::time::Duration::ZERO);
    /// assert!(task.is_finished());
    /// # std::io::Result::Ok(())
    /// ```
    #[inline]
    pub fn is_finished(&self) -> bool {
        match &self.inner {
            // async-task reports a cancelled task as finished before it drops the future.
            Inner::Spawned { task, reference } => {
                reference.header().is_finished() && task.is_finished()
            }
            #[cfg(feature = "blocking")]
            Inner::Blocking(call) => call.is_done(),
        }
    }

    /// Returns a handle that yields `None` where awaiting the `Task` panics because it was
    /// cancelled.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// let task = runtime.spawn(std::future::pending::<()>());
    /// drop(runtime);
    /// assert_eq!(polder::block_on(task.fallible()), None);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn fallible(self) -> FallibleTask<T> {
        FallibleTask(self)
    }

    /// Returns the id of the task, which is [`task::id`](id) within it.
    ///
    /// ```
    /// polder::block_on(async {
    ///     let [one, other] = [(); 2].map(|()| polder::spawn(async { polder::task::id() }));
    ///     assert_ne!(one.id(), other.id());
    ///     let id = one.id();
    ///     assert_eq!(one.await, Some(id));
    /// });
    /// ```
    pub fn id(&self) -> Id {
        self.id
    }

    #[inline]
    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Option<TaskResult<T>>> {
        // Only a task that is already done could starve others.
        let is_first = !std::mem::replace(&mut self.was_polled, true);
        if is_first && self.is_finished() && consume(cx).is_pending() {
            return Poll::Pending;
        }
        let result = match &mut self.inner {
            Inner::Spawned { task, .. } => Pin::new(task).poll(cx),
            #[cfg(feature = "blocking")]
            Inner::Blocking(call) => poll_call(call, cx),
        };
        if result.is_pending() {
            record_wait(WaitReason::Task(self.id.as_u64()));
        }
        result
    }
}

/// Out of line, so that polling a spawned task is small enough to be inlined.
#[cfg(feature = "blocking")]
#[inline(never)]
fn poll_call<T>(
    call: &mut Call<TaskResult<T>>,
    cx: &mut Context<'_>,
) -> Poll<Option<TaskResult<T>>> {
    call.poll(cx)
}

#[cold]
fn consume(cx: &Context<'_>) -> Poll<()> {
    budget::consume(cx)
}

impl<T: Send + 'static> Task<T> {
    /// Returns a handle that cancels the task, even while it is awaited elsewhere, or after it was
    /// detached. [`AbortHandle::abort`] describes awaiting an aborted task.
    ///
    /// ```
    /// use polder::future;
    /// use std::future::pending;
    ///
    /// polder::block_on(async {
    ///     let task = polder::spawn(pending::<u8>());
    ///     let abort = task.abort_handle();
    ///     // One half awaits the task, the other aborts it.
    ///     let (output, ()) = future::zip(task.fallible(), async { abort.abort() }).await;
    ///     assert_eq!(output, None);
    ///     assert!(abort.is_finished());
    /// });
    /// ```
    #[must_use = "dropping the handle has no effect"]
    pub fn abort_handle(&self) -> AbortHandle {
        match &self.inner {
            Inner::Spawned { reference, .. } => AbortHandle(Target::Task(reference.clone())),
            #[cfg(feature = "blocking")]
            Inner::Blocking(call) => AbortHandle(Target::Call(call.shared().clone())),
        }
    }
}

impl<T> Unpin for Task<T> {}

impl<T> Future for Task<T> {
    type Output = T;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let output = ready!(self.poll_outcome(cx)).and_then(TaskResult::take);
        Poll::Ready(output.expect(
            "polled after completion, aborted, or cancelled by runtime shutdown \
            (`polder::block_on` cancels the tasks that are left when it returns)",
        ))
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("id", &self.id)
            .field("finished", &self.is_finished())
            .finish()
    }
}

/// A [`Task`] that yields `None` if it was cancelled. Dropping it cancels the task.
///
/// ```
/// let runtime = polder::Runtime::new()?;
/// let done = runtime.spawn(async { 5 }).fallible();
/// assert_eq!(runtime.block_on(done), Some(5));
///
/// let late = runtime.spawn(async { 5 }).fallible();
/// drop(runtime);
/// assert_eq!(polder::block_on(late), None);
/// # std::io::Result::Ok(())
/// ```
///
/// # Panics
///
/// Awaiting it resumes the panic of the task.
///
/// # Cancel safety
///
/// As [`Task`].
#[must_use = "dropping a task cancels it"]
#[derive(Debug)]
pub struct FallibleTask<T>(Task<T>);

impl<T> FallibleTask<T> {
    /// As [`Task::detach`].
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// runtime.spawn(async { println!("detached") }).fallible().detach();
    /// runtime.run();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn detach(self) {
        self.0.detach();
    }

    /// As [`Task::cancel`].
    ///
    /// ```
    /// polder::block_on(async {
    ///     let endless = polder::spawn(std::future::pending::<()>()).fallible();
    ///     assert_eq!(endless.cancel().await, None);
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the task panicked.
    ///
    /// # Cancel safety
    ///
    /// As [`Task::cancel`].
    pub async fn cancel(self) -> Option<T> {
        self.0.cancel().await
    }

    /// As [`Task::id`].
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// let task = runtime.spawn(async {});
    /// let id = task.id();
    /// assert_eq!(task.fallible().id(), id);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn id(&self) -> Id {
        self.0.id()
    }

    /// As [`Task::abort_handle`].
    ///
    /// ```
    /// polder::block_on(async {
    ///     let task = polder::spawn(std::future::pending::<u8>()).fallible();
    ///     task.abort_handle().abort();
    ///     assert_eq!(task.await, None);
    /// });
    /// ```
    #[must_use = "dropping the handle has no effect"]
    pub fn abort_handle(&self) -> AbortHandle
    where
        T: Send + 'static,
    {
        self.0.abort_handle()
    }

    /// As [`Task::is_finished`].
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// let task = runtime.spawn(std::future::pending::<()>()).fallible();
    /// assert!(!task.is_finished());
    /// drop(runtime); // This cancels the task.
    /// assert!(task.is_finished());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl<T> Future for FallibleTask<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.0
            .poll_outcome(cx)
            .map(|outcome| outcome.and_then(TaskResult::take))
    }
}
