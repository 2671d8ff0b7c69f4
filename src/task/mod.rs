//! Tasks: what `spawn` returns, and what runs inside.
//!
//! The task itself (its state, its waker, its one allocation) is `async_task`'s. Around the user's
//! future lies a [`Body`], which does three things: it enters the task in its worker's list of live
//! tasks if the first poll does not end it, and takes it out when the future is dropped; it catches a panic of the
//! future, which becomes the task's [`Outcome`]; and it contains a panic of the future's destructor.
//!
//! **Where a future lives.** A task's `remote` is a worker. Its runnable is run and dropped by that
//! worker only, so the future is polled and dropped on that worker's thread, whatever thread wakes
//! or cancels the task: this is what lets [`spawn_local`](crate::spawn_local) take futures that
//! cannot be sent. (A home that has closed takes no runnable; but it closes only after its last
//! live future is gone, and a future that was never polled is dropped by its spawner, who may.)

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
pub(crate) use unblock::take_limit;
#[cfg(feature = "blocking")]
pub use unblock::unblock;

/// Makes a task that may run on any worker of `shared`. The runnable is not scheduled yet.
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

/// Makes a task of the worker that this thread drives at `index` in `shared`, or owns without driving
/// it. The runnable is not scheduled yet.
///
/// # Safety
///
/// Unless `future` is `Send`, `index` is that of a worker of this thread.
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
    // SAFETY: async-task asks four things of an unchecked spawn.
    // - The future need not be `Send` if the runnable is used, and the future so polled and
    //   dropped, on the spawning thread only: `scheduler::schedule` hands a runnable to its home and
    //   to nobody else, and the caller is on that thread or the future is `Send`.
    // - The future need not be `'static` if it outlives the runnable: `F` is; what `Body` borrows
    //   is the metadata, which lies in the same allocation as the body and is dropped after it.
    // - The schedule function, and with it every waker, may go to other threads: it is a function
    //   item, which holds nothing.
    // - It must outlive the runnable: it is `'static`.
    let (runnable, task) = unsafe {
        Builder::new()
            .metadata(meta)
            .spawn_unchecked(body, WithInfo(scheduler::schedule))
    };
    (runnable, Task(Inner::Spawned(task.fallible())))
}

/// A spawned task.
///
/// Awaiting it gives its output. **Dropping it cancels the task**: use [`detach`](Self::detach) to
/// let it run on its own.
///
/// If the future panics, awaiting the task panics likewise, and nothing else is affected. If
/// nobody awaits it any more, the panic is reported on standard error.
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
/// Awaiting a task that was cancelled because its runtime ended panics, and so does awaiting one
/// again after it has given its output. [`fallible`](Self::fallible) gives `None` instead.
///
/// The waker that a task is awaited with must not panic where it is cloned, called or dropped: `async-task`
/// aborts the process then. (Wakers of tasks and of `block_on` do not. Sockets, timers and events take any
/// waker.)
///
/// # Cancel safety
///
/// Polling a task through `&mut` and giving up loses nothing; dropping it cancels it.
#[must_use = "dropping a task cancels it; use `.detach()` to let it run"]
pub struct Task<T>(Inner<T>);

enum Inner<T> {
    Spawned(async_task::FallibleTask<Outcome<T>, Meta>),
    #[cfg(feature = "blocking")]
    Blocking(Call<Outcome<T>>),
}

impl<T> Task<T> {
    /// Lets the task run on its own. It ends when it is done, or with its runtime.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// runtime.spawn(async { println!("nobody waits for me") }).detach();
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

    /// Cancels the task, and waits until its future has been dropped. Gives the output if it was
    /// done before.
    ///
    /// The future is dropped between two polls, and an operation has effect within one. So where the task
    /// runs on another worker, an operation that has just succeeded may be dropped with its result: bytes
    /// that were read, a connection that was accepted, a message that was taken from a channel. If the poll
    /// that is under way while this is called ends in the output, that is given; if it returns
    /// `Pending`, the future goes with all that it holds, also what the same poll has got. A task whose work
    /// must be whole is told to stop, by an [`Event`](crate::Event) or a channel, and awaited.
    ///
    /// Work given to [`unblock`](crate::unblock) that has begun cannot be stopped: this waits for its end, and gives its
    /// output.
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
    /// Dropping the future, polled or not, cancels the task all the same; only the wait is given up.
    pub async fn cancel(self) -> Option<T> {
        let outcome = match self.0 {
            Inner::Spawned(task) => task.cancel().await,
            #[cfg(feature = "blocking")]
            Inner::Blocking(call) => call.cancel().await,
        };
        outcome.map(Outcome::take)
    }

    /// Whether the task is done, or cancelled.
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

    /// A handle that gives `None` where awaiting this one would panic because the task was
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

    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Option<Outcome<T>>> {
        match &mut self.0 {
            Inner::Spawned(task) => Pin::new(task).poll(cx),
            #[cfg(feature = "blocking")]
            Inner::Blocking(call) => call.poll(cx),
        }
    }
}

/// The handle is never pinned to what it points at.
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
/// Awaiting it panics if the task did.
///
/// # Cancel safety
///
/// Polling it through `&mut` and giving up loses nothing; dropping it cancels the task.
#[must_use = "dropping a task cancels it"]
#[derive(Debug)]
pub struct FallibleTask<T>(Task<T>);

impl<T> FallibleTask<T> {
    /// As [`Task::detach`].
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// runtime.spawn(async { println!("nobody waits for me") }).fallible().detach();
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
    /// As [`Task::cancel`]: the task is cancelled all the same.
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

/// What may go where, checked at compile time.
const _: () = {
    const fn send<T: Send>() {}
    const fn sync<T: Sync>() {}
    send::<Task<u8>>();
    sync::<Task<u8>>();
    send::<Meta>();
    sync::<Meta>();
};
