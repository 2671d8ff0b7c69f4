//! Scopes: tasks that borrow from their caller. [`Runtime::scope`] blocks its caller until every
//! task that was spawned in it has ended.
//!
//! **Soundness.** The lifetime of a future is erased when it is spawned. The future is in a
//! [`Reporting`] with an [`Entry`] in the scope's list, which is removed when the future was
//! dropped and its memory is free: it is done, was cancelled, or its runtime was dropped. `scope`
//! drives the runtime until the list is empty, and does not unwind before: panics of the caller's
//! future and of tasks are caught. If the runtime fails, it drops every task; if it cannot, since
//! the scope is within one of them, the process is aborted.
//!
//! The list is behind a lock, so accesses of tasks to borrowed data happen before `scope` returns.
//! Once the list is empty and the caller's future is dropped, nothing can add to it.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::mem::replace;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::thread;

use futures_lite::future;

use super::Runtime;
use super::spawn::{spawn_in, spawn_local_in};
use super::task_set::{Members, Report, Reporting};
use crate::scheduler::{self, Shared, budget};
use crate::sync::{Handoff, contain};
use crate::task::{AbortHandle, Task};

impl Runtime {
    /// Calls `f` with a [`Scope`], in which tasks can be spawned that borrow data that outlives
    /// this call. Drives the runtime until the future of `f` **and all tasks of the scope** are
    /// done.
    ///
    /// The future of `f` runs on this thread, and the tasks as other tasks do: `std::thread::scope`
    /// for tasks. Within a task this cannot be sound: a task may be dropped at any time, without
    /// waiting.
    ///
    /// ```
    /// let runtime = polder::Runtime::builder().workers(2).build()?;
    /// let words = vec!["one".to_owned(), "two".into(), "three".into()];
    /// let mut lengths = [0; 3];
    ///
    /// runtime.scope(async |scope| {
    ///     for (word, length) in words.iter().zip(&mut lengths) {
    ///         scope.spawn(async { *length = word.len() });
    ///     }
    /// });
    /// assert_eq!(lengths, [3, 3, 5]);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// Data that does not outlive the call cannot be borrowed:
    ///
    /// ```compile_fail,E0597
    /// let runtime = polder::Runtime::new().unwrap();
    /// runtime.scope(async |scope| {
    ///     let inner = String::new();
    ///     scope.spawn(async { println!("{inner}") });
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the future of `f` panics, after the tasks were cancelled. If a task that was not awaited
    /// has panicked, after all have ended. If the kernel can no longer be waited on; then the
    /// process is aborted within a task of this runtime, and in a child of `fork` if the runtime
    /// has several workers, since tasks that borrow could not be waited for.
    #[track_caller]
    pub fn scope<'env, F, T>(&self, f: F) -> T
    where
        F: for<'scope> AsyncFnOnce(&'scope Scope<'scope, 'env>) -> T,
    {
        let scope = Scope {
            shared: self.shared().clone(),
            state: Arc::default(),
            scope: PhantomData,
            env: PhantomData,
        };
        let site = Location::caller();
        let result = catch_unwind(AssertUnwindSafe(|| self.worker.block_on(f(&scope), site)));
        if result.is_err() {
            scope.state.tasks.close();
        }
        let failure = self.wait_for(&scope.state, site);
        let value = result.unwrap_or_else(|panic| resume_unwind(panic));
        if let Some(panic) = failure {
            resume_unwind(panic);
        }
        if scope.state.has_panicked.load(Ordering::Relaxed) {
            panic!("a task of the scope panicked");
        }
        value
    }

    /// Drives the runtime until the scope has no tasks. Does not unwind: if the runtime fails, its
    /// tasks are cancelled, and the panic is returned.
    fn wait_for(
        &self,
        state: &ScopeState,
        site: &'static Location<'static>,
    ) -> Option<Box<dyn Any + Send>> {
        let mut failure = None;
        while !state.is_empty() {
            let wait = || self.worker.block_on(state.wait(), site);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(wait)) {
                failure = Some(panic);
                // A child of `fork` lacks the pool's threads, which would drop their tasks.
                let is_child = self.shared().main().reactor.poller().is_inherited();
                if self.worker.is_driven() || is_child && self.workers() > 1 {
                    // One of its tasks is further up this stack, and will not be dropped.
                    std::process::abort();
                }
                self.worker.drop_all_tasks();
                // The remaining tasks were refused: the threads that spawned them drop them.
                future::block_on(state.wait());
            }
        }
        // A pool worker may have cancelled them before the first wait.
        let has_failed = || catch_unwind(AssertUnwindSafe(|| self.worker.panic_if_failed())).err();
        failure.or_else(has_failed)
    }
}

/// Spawns tasks that borrow from the caller of [`Runtime::scope`].
///
/// ```
/// let runtime = polder::Runtime::new()?;
/// let numbers = [1, 2, 3];
/// let sum: i32 = runtime.scope(async |scope| {
///     let squares = numbers.each_ref().map(|n| scope.spawn(async move { n * n }));
///     let mut sum = 0;
///     for square in squares {
///         sum += square.await;
///     }
///     sum
/// });
/// assert_eq!(sum, 14);
/// # std::io::Result::Ok(())
/// ```
pub struct Scope<'scope, 'env: 'scope> {
    shared: Arc<Shared>,
    state: Arc<ScopeState>,
    // Invariant, so that neither lifetime can be shortened or extended, as in `std::thread`.
    scope: PhantomData<fn(&'scope ()) -> &'scope ()>,
    env: PhantomData<fn(&'env ()) -> &'env ()>,
}

#[derive(Default)]
struct ScopeState {
    tasks: Members,
    /// The waker of the caller, which waits for the last task.
    waiter: Handoff<()>,
    has_panicked: AtomicBool,
}

impl ScopeState {
    fn is_empty(&self) -> bool {
        self.tasks.len() == 0
    }

    async fn wait(&self) {
        // Checked under the waker's lock, which the last task takes after it has left the list.
        let is_empty = |_: &mut ()| self.is_empty().then_some(());
        std::future::poll_fn(|cx| self.waiter.poll(cx, is_empty)).await;
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Spawns a task, as [`Runtime::spawn`] does, that may borrow the scope and data that outlives
    /// it. It need not be awaited.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// let name = String::from("world");
    /// runtime.scope(async |scope| {
    ///     let task = scope.spawn(async {
    ///         scope.spawn(async { println!("{name} again") });
    ///         format!("hello {name}")
    ///     });
    ///     assert_eq!(task.await, "hello world");
    /// });
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn spawn<F>(&'scope self, future: F) -> ScopedTask<'scope, F::Output>
    where
        F: Future + Send + 'scope,
        F::Output: Send + 'scope,
    {
        let meta = Location::caller().into();
        let (future, result) = self.with_result(future);
        let future: Pin<Box<dyn Future<Output = ()> + Send + 'scope>> = Box::pin(future);
        // SAFETY: only the lifetime changes, and the future is dropped before `'scope` ends. `add`
        // puts it into a `Reporting`, which frees its entry in the list after the future was
        // dropped; and `Runtime::scope`, which lent this scope for `'scope`, does not return before
        // all entries are free.
        let future: Pin<Box<dyn Future<Output = ()> + Send>> =
            unsafe { std::mem::transmute(future) };
        self.add(future, result, |future| {
            spawn_in(&self.shared, future, meta)
        })
    }

    /// Spawns a task that stays on this thread, as [`Runtime::spawn_local`] does. Its future need
    /// not be `Send`.
    ///
    /// ```
    /// use std::cell::Cell;
    ///
    /// let runtime = polder::Runtime::new()?;
    /// let count = Cell::new(0);
    /// runtime.scope(async |scope| {
    ///     for n in 1..=3 {
    ///         let count = &count;
    ///         scope.spawn_local(async move { count.set(count.get() + n) });
    ///     }
    /// });
    /// assert_eq!(count.get(), 6);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Panics
    ///
    /// On a thread other than the one that made the runtime, or while the runtime is not driven.
    #[track_caller]
    pub fn spawn_local<F>(&'scope self, future: F) -> ScopedTask<'scope, F::Output>
    where
        F: Future + 'scope,
        F::Output: 'scope,
    {
        let meta = Location::caller().into();
        let is_main = |local: &scheduler::Local| {
            Arc::ptr_eq(&local.shared, &self.shared) && local.index == self.shared.main_index()
        };
        let Some(local) = scheduler::current_local().filter(|local| is_main(local)) else {
            panic!("Scope::spawn_local: this thread does not drive the runtime of the scope");
        };
        let (future, result) = self.with_result(future);
        let future: Pin<Box<dyn Future<Output = ()> + 'scope>> = Box::pin(future);
        // SAFETY: only the lifetime changes, as in `spawn`.
        let future: Pin<Box<dyn Future<Output = ()>>> = unsafe { std::mem::transmute(future) };
        self.add(future, result, |body| {
            // SAFETY: the current worker belongs to this thread.
            unsafe { spawn_local_in(&local, body, meta) }
        })
    }

    fn with_result<F: Future>(&self, future: F) -> (WithResult<F>, Arc<ScopedResult<F::Output>>) {
        let result = Arc::new(ScopedResult {
            slot: Handoff::new(Slot::Running),
            scope: self.state.clone(),
        });
        (Reporting::new(future, result.clone()), result)
    }

    /// Spawns a future without its lifetime. Its entry is added before anything can fail, and
    /// removed when it is dropped.
    fn add<F: Future<Output = ()>, T>(
        &self,
        future: F,
        result: Arc<ScopedResult<T>>,
        spawn: impl FnOnce(Reporting<F, Entry>) -> Task<()>,
    ) -> ScopedTask<'scope, T> {
        let abort = self.state.tasks.spawn(|index| {
            let scope = self.state.clone();
            spawn(Reporting::new(future, Entry { index, scope }))
        });
        ScopedTask {
            result,
            abort,
            was_polled: false,
            scope: PhantomData,
        }
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("tasks", &self.state.tasks.len())
            .finish_non_exhaustive()
    }
}

/// An entry of the scope's list: see the head of this file.
struct Entry {
    index: usize,
    scope: Arc<ScopeState>,
}

impl Report<()> for Entry {
    fn report(self, _: Option<thread::Result<()>>) {
        self.scope.tasks.remove(self.index);
        if self.scope.is_empty() {
            self.scope.waiter.update_and_wake(|()| ());
        }
    }
}

type WithResult<F> = Reporting<F, Arc<ScopedResult<<F as Future>::Output>>>;

struct ScopedResult<T> {
    slot: Handoff<Slot<T>>,
    scope: Arc<ScopeState>,
}

enum Slot<T> {
    Running,
    /// `None` if the result was taken, or the task was cancelled.
    Ended(Option<thread::Result<T>>),
}

impl<T> Report<T> for Arc<ScopedResult<T>> {
    fn report(self, result: Option<thread::Result<T>>) {
        (self.slot).update_and_wake(|slot| *slot = Slot::Ended(result));
    }
}

impl<T> Drop for ScopedResult<T> {
    fn drop(&mut self) {
        let end = |slot: &mut Slot<T>| std::mem::replace(slot, Slot::Ended(None));
        let slot = self.slot.update(end);
        if let Slot::Ended(Some(Err(_))) = slot {
            self.scope.has_panicked.store(true, Ordering::Relaxed);
        }
        contain(|| drop(slot));
    }
}

/// A task of a [`Scope`]. Awaiting it returns the output of its future.
///
/// **Dropping it does not cancel the task**, unlike a [`Task`].
///
/// ```
/// let runtime = polder::Runtime::new()?;
/// let text = String::from("text");
/// let length = runtime.scope(async |scope| scope.spawn(async { text.len() }).await);
/// assert_eq!(length, 4);
/// # std::io::Result::Ok(())
/// ```
///
/// # Panics
///
/// Awaiting it resumes the task's panic. It also panics if the task was aborted, cancelled by
/// runtime shutdown, or polled after completion.
///
/// # Cancel safety
///
/// Cancel safe if polled through `&mut`.
pub struct ScopedTask<'scope, T> {
    result: Arc<ScopedResult<T>>,
    abort: AbortHandle,
    was_polled: bool,
    scope: PhantomData<&'scope ()>,
}

impl<T> ScopedTask<'_, T> {
    /// Returns a handle that cancels the task.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// runtime.scope(async |scope| {
    ///     let endless = scope.spawn(std::future::pending::<()>());
    ///     endless.abort_handle().abort(); // Otherwise the scope would never end.
    /// });
    /// # std::io::Result::Ok(())
    /// ```
    #[must_use = "dropping the handle has no effect"]
    pub fn abort_handle(&self) -> AbortHandle {
        self.abort.clone()
    }

    /// Returns whether the task is done or cancelled.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// runtime.scope(async |scope| {
    ///     let task = scope.spawn(async {});
    ///     while !task.is_finished() {
    ///         polder::future::yield_now().await;
    ///     }
    /// });
    /// # std::io::Result::Ok(())
    /// ```
    pub fn is_finished(&self) -> bool {
        (self.result.slot).update(|slot| matches!(slot, Slot::Ended(_)))
    }
}

/// The output is not structurally pinned.
impl<T> Unpin for ScopedTask<'_, T> {}

impl<T> Future for ScopedTask<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Only a task that is already done could starve others.
        if !replace(&mut self.was_polled, true) && self.is_finished() {
            ready!(budget::consume(cx));
        }
        let result = ready!(self.result.slot.poll(cx, |slot| match slot {
            Slot::Ended(result) => Some(result.take()),
            Slot::Running => None,
        }));
        let result = result.expect("polled after completion, or the task was cancelled");
        Poll::Ready(result.unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

impl<T> fmt::Debug for ScopedTask<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedTask")
            .field("finished", &self.is_finished())
            .finish()
    }
}
