//! Tasks: what `spawn` returns, and what runs inside.
//!
//! The task itself (its state, its waker, its one allocation) is `async_task`'s. Around the user's
//! future lies a [`Body`], which enters the task in its worker's list, catches the future's panics,
//! and counts the end of the task.
//!
//! **Where a future is polled and dropped.** A task has a worker: that of [`new_at`], or the pool
//! worker that takes it from the inject queue, before the first poll. Only that worker's thread
//! runs or drops the runnable, and so polls and drops the future, whichever thread wakes or cancels
//! the task. This is what lets [`spawn_local`](crate::spawn_local) take futures that are not
//! `Send`. (A worker that has closed takes no runnable. But it closes only after the last future
//! that it polled was dropped; a future that was never polled may be dropped by its spawner.)

mod body;
#[cfg(feature = "blocking")]
mod unblock;

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use async_task::{Builder, WithInfo};

#[cfg(feature = "blocking")]
use crate::pool::Call;
use crate::scheduler::{self, Meta, Runnable, Shared};
use body::Body;
pub(crate) use body::Outcome;

#[cfg(feature = "blocking")]
pub(crate) use unblock::apply_limit;
#[cfg(feature = "blocking")]
pub use unblock::unblock;

/// Makes a task that may run on any worker of `shared`. Does not schedule it.
pub(crate) fn new<F>(
    shared: &Arc<Shared>,
    future: F,
    site: &'static Location<'static>,
) -> (Runnable, Task<F::Output>)
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // SAFETY: the future is `Send`.
    unsafe { new_at(shared, shared.initial_worker(), future, site) }
}

/// Makes a task of the worker at `index` of `shared`. Does not schedule it.
///
/// # Safety
///
/// Unless `future` is `Send`, the worker must belong to this thread.
pub(crate) unsafe fn new_at<F>(
    shared: &Arc<Shared>,
    index: usize,
    future: F,
    site: &'static Location<'static>,
) -> (Runnable, Task<F::Output>)
where
    F: Future + 'static,
    F::Output: 'static,
{
    let meta = Meta::new(shared, index, site);
    let body = |meta| Body::new(meta, future);
    // SAFETY: async-task requires four things of an unchecked spawn.
    // - If the future is not `Send`, the runnable is used and dropped on the spawning thread only:
    //   `scheduler::schedule` passes a runnable to the task's worker and to nobody else, and the
    //   caller is on that worker's thread.
    // - If the future is not `'static`, it outlives the runnable: `F` is `'static`; what `Body`
    //   borrows is the metadata, which lies in the same allocation and is dropped after the body.
    // - The schedule function, and with it every waker, may be sent to other threads: it is a
    //   function item, which captures nothing.
    // - The schedule function outlives the runnable: it is `'static`.
    let (runnable, task) = unsafe {
        Builder::new()
            .metadata(meta)
            .spawn_unchecked(body, WithInfo(scheduler::schedule))
    };
    (runnable, Task(Inner::Spawned(task.fallible())))
}

/// A spawned task.
///
/// Awaiting it returns the output of the future. **Dropping it cancels the task**: use
/// [`detach`](Self::detach) to let it run on.
///
/// If the future panics, awaiting the task resumes the panic, and nothing else is affected. If the
/// task is not awaited any more, the panic is reported on standard error.
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
/// Awaiting a task panics if it is polled after completion, or was cancelled by runtime shutdown.
/// [`fallible`](Self::fallible) returns `None` instead.
///
/// The waker with which a task is awaited must not panic when it is cloned, woken or dropped:
/// `async-task` aborts the process then. (Wakers of tasks and of `block_on` do not panic. Sockets,
/// timers and events take any waker.)
///
/// # Cancel safety
///
/// Cancel safe if polled through `&mut`: dropping that future loses nothing. Dropping the task
/// itself cancels it.
#[must_use = "dropping a task cancels it; use `.detach()` to let it run"]
pub struct Task<T>(Inner<T>);

enum Inner<T> {
    Spawned(async_task::FallibleTask<Outcome<T>, Meta>),
    #[cfg(feature = "blocking")]
    Blocking(Call<Outcome<T>>),
}

impl<T> Task<T> {
    /// Lets the task run on without a handle. It ends when its future is done, or with its runtime.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// runtime.spawn(async { println!("detached") }).detach();
    /// runtime.run();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn detach(self) {
        match self.0 {
            Inner::Spawned(task) => task.detach(),
            #[cfg(feature = "blocking")]
            Inner::Blocking(call) => call.detach(),
        }
    }

    /// Cancels the task, and waits until its future has been dropped. Returns the output if the
    /// task was done before.
    ///
    /// The future is dropped between two polls. If the task runs on another worker, a poll may be
    /// under way while this is called. If that poll returns the output, so does this. If it returns
    /// `Pending`, the future is dropped with all that it holds, also with the result of an
    /// operation that has succeeded in that poll: bytes that were read, a connection that was
    /// accepted, a message received from a channel. If that must not be lost, tell the task to stop
    /// by an [`Event`](crate::event::Event) or a channel, and await it.
    ///
    /// A function given to [`unblock`](crate::unblock) that has begun cannot be stopped: this waits
    /// for its end, and returns its output.
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
    /// If the task panicked before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, polled or not, still cancels the task, but does not wait for it.
    pub async fn cancel(self) -> Option<T> {
        let outcome = match self.0 {
            Inner::Spawned(task) => task.cancel().await,
            #[cfg(feature = "blocking")]
            Inner::Blocking(call) => call.cancel().await,
        };
        outcome.map(Outcome::take)
    }

    /// Returns whether the task is done or cancelled.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// let task = runtime.spawn(async { 5 });
    /// assert!(!task.is_finished());
    /// runtime.turn(std::time::Duration::ZERO);
    /// assert!(task.is_finished());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Inner::Spawned(task) => task.is_finished(),
            #[cfg(feature = "blocking")]
            Inner::Blocking(call) => call.is_done(),
        }
    }

    /// Returns a handle whose output is `None` if the task was cancelled, where awaiting this one
    /// would panic.
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

    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Option<Outcome<T>>> {
        match &mut self.0 {
            Inner::Spawned(task) => Pin::new(task).poll(cx),
            #[cfg(feature = "blocking")]
            Inner::Blocking(call) => call.poll(cx),
        }
    }
}

/// The output is not structurally pinned.
impl<T> Unpin for Task<T> {}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let outcome = ready!(self.poll_outcome(cx));
        let outcome = outcome.expect("polled after completion, or cancelled by runtime shutdown");
        Poll::Ready(outcome.take())
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("finished", &self.is_finished())
            .finish()
    }
}

/// A [`Task`] whose output is `None` if it was cancelled. Dropping it cancels the task.
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
/// As [`Task`]: cancel safe if polled through `&mut`; dropping it cancels the task.
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
    /// If the task panicked before.
    ///
    /// # Cancel safety
    ///
    /// As [`Task::cancel`]: dropping the future still cancels the task.
    pub async fn cancel(self) -> Option<T> {
        self.0.cancel().await
    }

    /// As [`Task::is_finished`].
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// let task = runtime.spawn(std::future::pending::<()>()).fallible();
    /// assert!(!task.is_finished());
    /// drop(runtime); // Which cancels it.
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
            .map(|outcome| outcome.map(Outcome::take))
    }
}

/// Auto traits, checked at compile time.
const _: () = {
    const fn send<T: Send>() {}
    const fn sync<T: Sync>() {}
    send::<Task<u8>>();
    sync::<Task<u8>>();
    send::<Meta>();
    sync::<Meta>();
};
