//! [`TaskSet`]: tasks that are joined and cancelled together.
//!
//! Each future is wrapped in a [`Reporting`], which pushes its outcome to one list for the set, so
//! joining never polls the tasks. It pushes exactly once: when its future is done *and dropped*, or
//! dropped without being done. So a task's resources are free when it can be joined.
//!
//! The tasks are in a list behind a lock ([`Members`]), since a task of a scope leaves it on the
//! thread where it ends. No task is cancelled or dropped under that lock.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::panic::{Location, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread;

use futures_lite::Stream;
use pin_project_lite::pin_project;

use super::Handle;
use super::spawn::{boxed_if_large, spawn_at, spawn_in, spawn_local_at};
use crate::scheduler::{self, Header, budget, record_wait};
use crate::slab::{Slab, shrink_queue};
use crate::sync::{Handoff, Mutex, contain, drop_all};
use crate::sys::Process;
use crate::task::{AbortHandle, Origin, Task, TaskResult, poll_and_drop, record_panic};
use crate::telemetry::{SpawnMeta, WaitReason};

/// A set of tasks, for structured concurrency. Outputs are joined in the order in which the tasks
/// end; **dropping the set cancels the tasks**. The set is also a [`Stream`] of the outputs.
///
/// # Examples
///
/// ```
/// use polder::{TaskSet, Timer};
/// use std::time::Duration;
///
/// polder::block_on(async {
///     let mut tasks = TaskSet::new();
///     for n in [3, 1, 2] {
///         tasks.spawn(async move {
///             Timer::after(Duration::from_millis(10 * n)).await;
///             n
///         });
///     }
///     // In the order in which they end, not in which they were spawned.
///     while let Some(n) = tasks.join_next().await {
///         println!("{n} is done");
///         if n == 2 {
///             break;
///         }
///     }
///     // Here the third task is cancelled.
/// });
/// ```
///
/// # Panics
///
/// A panic of a task does not affect the others. [`join_next`](Self::join_next) resumes it, which
/// usually drops the set; [`join_next_result`](Self::join_next_result) returns it. A panic that is
/// not joined is reported on standard error.
///
/// # Cancel safety
///
/// Dropping a future of [`join_next`](Self::join_next), or one that polls the stream, loses no
/// output. Dropping the set cancels its tasks.
#[doc(alias("JoinSet", "FuturesUnordered"))]
#[must_use = "dropping the set cancels its tasks"]
pub struct TaskSet<T> {
    members: Members,
    outcomes: Arc<Handoff<Outcomes<T>>>,
    /// Whether the last poll found an output, but the task's budget was used up. The next poll is
    /// then free; otherwise a future that is polled before this one, and always takes the whole
    /// budget, would keep the output from ever being joined.
    deferred: bool,
    process: Process,
}

#[derive(Default)]
pub(super) struct Members(Mutex<MemberList>);

#[derive(Default)]
struct MemberList {
    tasks: Slab<Member>,
    added: u64,
    /// Whether added tasks are cancelled.
    closed: bool,
}

struct Member {
    /// Identifies the task, since indices are reused.
    serial: u64,
    /// `None` until it is spawned, and once it is cancelled.
    task: Option<Task<()>>,
}

impl Members {
    /// Adds a task, which `spawn` spawns at its index. The entry exists first, so that the task's
    /// end is reported even if spawning panics.
    pub(super) fn spawn(&self, spawn: impl FnOnce(usize) -> Task<()>) -> AbortHandle {
        let mut list = self.0.lock();
        list.added += 1;
        let serial = list.added;
        let index = list.tasks.insert(Member { serial, task: None });
        drop(list);
        let task = spawn(index);
        let abort = task.abort_handle();
        let mut list = self.0.lock();
        let is_closed = list.closed;
        // If the task was removed meanwhile, its handle is dropped.
        let left = match list.tasks.get_mut(index) {
            Some(member) if member.serial == serial && !is_closed => member.task.replace(task),
            _ => Some(task),
        };
        drop(list);
        drop(left);
        abort
    }

    /// Cancels all tasks, and those that are added later. Entries stay.
    pub(super) fn close(&self) {
        self.0.lock().closed = true;
        drop(self.take_all());
    }

    pub(super) fn remove(&self, index: usize) {
        let removed = self.0.lock().tasks.remove(index);
        drop(removed);
    }

    /// Entries stay.
    pub(super) fn take_all(&self) -> Vec<Task<()>> {
        let mut list = self.0.lock();
        let members = list.tasks.values_mut();
        members.filter_map(|member| member.task.take()).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().tasks.len()
    }
}

/// The budget is used up, so the outcome stays.
struct NeedsBudget;

/// The index of a task that has ended, and its outcome; `None` if it was cancelled.
type Ended<T> = (usize, Option<TaskResult<T>>);

struct Outcomes<T> {
    /// In the order in which the tasks ended.
    ended: VecDeque<Ended<T>>,
    /// Whether the set was dropped, so that no outcome will be joined.
    closed: bool,
}

impl<T> Outcomes<T> {
    fn pop(&mut self) -> Option<Ended<T>> {
        let first = self.ended.pop_front();
        shrink_queue(&mut self.ended);
        first
    }
}

impl<T> TaskSet<T> {
    /// Makes an empty set.
    ///
    /// ```
    /// polder::block_on(async {
    ///     let mut tasks = polder::TaskSet::<u8>::new();
    ///     assert_eq!(tasks.join_next().await, None); // There is nothing to wait for.
    /// });
    /// ```
    pub fn new() -> TaskSet<T> {
        TaskSet {
            deferred: false,
            process: Process::current(),
            members: Members::default(),
            outcomes: Arc::new(Handoff::new(Outcomes {
                ended: VecDeque::new(),
                closed: false,
            })),
        }
    }

    /// Spawns a task in this set, as [`polder::spawn`](crate::spawn) does. Returns a handle that
    /// cancels it.
    ///
    /// ```
    /// polder::block_on(async {
    ///     let mut tasks = polder::TaskSet::new();
    ///     for n in 1..=3 {
    ///         tasks.spawn(async move { n * n });
    ///     }
    ///     let mut sum = 0;
    ///     while let Some(square) = tasks.join_next().await {
    ///         sum += square;
    ///     }
    ///     assert_eq!(sum, 14);
    ///
    ///     let abort = tasks.spawn(std::future::pending());
    ///     abort.abort();
    ///     assert_eq!(tasks.join_next().await, None);
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// As [`polder::spawn`](crate::spawn).
    #[track_caller]
    pub fn spawn<F>(&mut self, future: F) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        self.spawn_at(future, Location::caller())
    }

    pub(crate) fn spawn_at<F>(&mut self, future: F, site: &'static Location<'static>) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        boxed_if_large!(future: F, meta = site => self.spawn_with(future, meta, spawn_at))
    }

    /// Spawns a task in this set on the runtime of `handle`. Returns a handle that cancels it
    /// alone. For another worker's local task, spawn the [`Task`] of [`Handle::spawn_on_worker`].
    ///
    /// ```
    /// use polder::{Runtime, TaskSet};
    ///
    /// let workers = Runtime::builder().workers(2).build()?;
    /// let mut tasks = TaskSet::new();
    /// tasks.spawn_on(async { 5 }, &workers.handle());
    /// assert_eq!(polder::block_on(tasks.join_next()), Some(5));
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn spawn_on<F>(&mut self, future: F, handle: &Handle) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let site = Location::caller();
        boxed_if_large!(future: F, meta = site => {
            self.spawn_with(future, meta, |task, meta| spawn_in(&handle.shared, task, meta))
        })
    }

    /// Spawns a task in this set that stays on this thread, as
    /// [`polder::spawn_local`](crate::spawn_local) does. Returns a handle that cancels it.
    ///
    /// ```
    /// use polder::TaskSet;
    /// use std::rc::Rc;
    ///
    /// polder::block_on(async {
    ///     let shared = Rc::new(5);
    ///     let mut tasks = TaskSet::new();
    ///     for n in 0..3 {
    ///         let shared = shared.clone();
    ///         tasks.spawn_local(async move { *shared + n });
    ///     }
    ///     let mut sum = 0;
    ///     while let Some(n) = tasks.join_next().await {
    ///         sum += n;
    ///     }
    ///     assert_eq!(sum, 18);
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// As [`polder::spawn_local`](crate::spawn_local): on a thread that drives no runtime.
    #[track_caller]
    pub fn spawn_local<F>(&mut self, future: F) -> AbortHandle
    where
        F: Future<Output = T> + 'static,
        T: 'static,
    {
        self.spawn_local_at(future, Location::caller())
    }

    #[track_caller]
    pub(crate) fn spawn_local_at<F>(
        &mut self,
        future: F,
        site: &'static Location<'static>,
    ) -> AbortHandle
    where
        F: Future<Output = T> + 'static,
        T: 'static,
    {
        boxed_if_large!(future: F, meta = site => self.spawn_with(future, meta, spawn_local_at))
    }

    /// Spawns a task in this set that waits for a blocking function, as [`unblock`](crate::unblock)
    /// does. Returns a handle that cancels it: the function is not called or, if it has begun, runs
    /// to its end unobserved.
    ///
    /// ```
    /// use polder::TaskSet;
    ///
    /// polder::block_on(async {
    ///     let mut tasks = TaskSet::new();
    ///     tasks.unblock(|| std::fs::read_to_string("Cargo.toml").map(|text| text.len()));
    ///     tasks.spawn(async { Ok(0) });
    ///     while let Some(length) = tasks.join_next().await {
    ///         println!("{} bytes", length?);
    ///     }
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Panics
    ///
    /// As [`polder::spawn`](crate::spawn). Joining panics as awaiting [`unblock`](crate::unblock)
    /// does.
    #[cfg(feature = "blocking")]
    #[doc(alias = "spawn_blocking")]
    #[track_caller]
    pub fn unblock<F>(&mut self, f: F) -> AbortHandle
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let site = Location::caller();
        self.spawn_at(crate::blocking::unblock_at(f, site), site)
    }

    fn spawn_with<F: Future<Output = T>>(
        &mut self,
        future: F,
        meta: SpawnMeta,
        spawn: impl FnOnce(Reporting<F, Place<T>>, SpawnMeta) -> Task<()>,
    ) -> AbortHandle {
        self.members.spawn(|index| {
            let place = Place {
                index,
                outcomes: self.outcomes.clone(),
                site: meta.site,
            };
            spawn(Reporting::new(future, place), meta)
        })
    }

    /// Waits for the next task to end, and returns its output, or `None` if no task is left. Skips
    /// tasks that were aborted, or cancelled by runtime shutdown.
    ///
    /// ```
    /// polder::block_on(async {
    ///     let mut tasks = polder::TaskSet::new();
    ///     tasks.spawn(async { 5 });
    ///     assert_eq!(tasks.join_next().await, Some(5));
    ///     assert_eq!(tasks.join_next().await, None);
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// Resumes the panic of the task. The others are not affected.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future loses no output.
    pub async fn join_next(&mut self) -> Option<T> {
        poll_fn(|cx| self.poll_join_next(cx)).await
    }

    /// [`join_next`](Self::join_next) that returns a task's panic instead of resuming it.
    ///
    /// ```
    /// polder::block_on(async {
    ///     let mut tasks = polder::TaskSet::new();
    ///     tasks.spawn(async { std::panic::resume_unwind(Box::new("bad luck")) });
    ///     tasks.spawn(async { 5 });
    ///     let mut results = Vec::new();
    ///     while let Some(result) = tasks.join_next_result().await {
    ///         results.push(result.ok());
    ///     }
    ///     assert_eq!(results, [None, Some(5)]);
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// The panic of the task.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future loses no output.
    pub async fn join_next_result(&mut self) -> Option<thread::Result<T>> {
        poll_fn(|cx| self.poll_join_next_result(cx)).await
    }

    /// Returns the output of a task that has ended and was not joined, if any.
    ///
    /// ```
    /// polder::block_on(async {
    ///     let mut tasks = polder::TaskSet::new();
    ///     tasks.spawn(async { 5 });
    ///     assert_eq!(tasks.try_join_next(), None); // It has not run yet.
    ///     polder::future::yield_now().await;
    ///     assert_eq!(tasks.try_join_next(), Some(5));
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// As [`join_next`](Self::join_next).
    pub fn try_join_next(&mut self) -> Option<T> {
        self.try_join_next_result().map(unwrap_or_resume)
    }

    /// [`try_join_next`](Self::try_join_next) that returns a task's panic instead of resuming it.
    ///
    /// ```
    /// polder::block_on(async {
    ///     let mut tasks = polder::TaskSet::<()>::new();
    ///     tasks.spawn(async { std::panic::resume_unwind(Box::new("bad luck")) });
    ///     polder::future::yield_now().await;
    ///     assert!(tasks.try_join_next_result().is_some_and(|result| result.is_err()));
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// The panic of the task.
    pub fn try_join_next_result(&mut self) -> Option<thread::Result<T>> {
        loop {
            let ended = self.outcomes.update(Outcomes::pop);
            if let Some(result) = self.join(ended?) {
                return Some(result);
            }
        }
    }

    fn join(&mut self, (index, outcome): Ended<T>) -> Option<thread::Result<T>> {
        self.members.remove(index);
        outcome.and_then(TaskResult::into_result)
    }

    /// [`join_next`](Self::join_next), as a poll function.
    ///
    /// ```
    /// use std::future::poll_fn;
    ///
    /// polder::block_on(async {
    ///     let mut tasks = polder::TaskSet::new();
    ///     tasks.spawn(async { 5 });
    ///     assert_eq!(poll_fn(|cx| tasks.poll_join_next(cx)).await, Some(5));
    ///     assert_eq!(poll_fn(|cx| tasks.poll_join_next(cx)).await, None);
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// As [`join_next`](Self::join_next).
    pub fn poll_join_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.poll_join_next_result(cx)
            .map(|result| result.map(unwrap_or_resume))
    }

    /// [`join_next_result`](Self::join_next_result), as a poll function.
    ///
    /// ```
    /// use std::future::poll_fn;
    ///
    /// polder::block_on(async {
    ///     let mut tasks = polder::TaskSet::<()>::new();
    ///     tasks.spawn(async { std::panic::resume_unwind(Box::new("bad luck")) });
    ///     let result = poll_fn(|cx| tasks.poll_join_next_result(cx)).await.unwrap();
    ///     assert_eq!(result.unwrap_err().downcast_ref(), Some(&"bad luck"));
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// The panic of the task.
    pub fn poll_join_next_result(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<T, Box<dyn Any + Send>>>> {
        // Only an output that is already there could starve other tasks. Waiting costs no budget,
        // nor does an output that was refused before: only this set takes outputs, so it is still
        // there.
        let mut paid = std::mem::take(&mut self.deferred);
        loop {
            let ended = self.outcomes.poll(cx, |state| {
                if state.ended.is_empty() {
                    self.is_empty().then_some(Ok(None))
                } else if paid {
                    Some(Ok(state.pop()))
                } else {
                    Some(Err(NeedsBudget))
                }
            });
            match ended {
                Poll::Pending => {
                    record_wait(WaitReason::TaskSet(Arc::as_ptr(&self.outcomes).addr()));
                    return Poll::Pending;
                }
                Poll::Ready(Err(NeedsBudget)) => {
                    if budget::consume(cx).is_pending() {
                        self.deferred = true;
                        return Poll::Pending;
                    }
                    paid = true;
                }
                Poll::Ready(Ok(None)) => return Poll::Ready(None),
                Poll::Ready(Ok(Some(ended))) => {
                    if let Some(result) = self.join(ended) {
                        return Poll::Ready(Some(result));
                    }
                }
            }
        }
    }

    /// Returns the number of tasks that run or were not joined.
    ///
    /// ```
    /// polder::block_on(async {
    ///     let mut tasks = polder::TaskSet::new();
    ///     for n in 0..10 {
    ///         // No more than three at once.
    ///         if tasks.len() == 3 {
    ///             tasks.join_next().await;
    ///         }
    ///         tasks.spawn(async move { n });
    ///     }
    ///     assert_eq!(tasks.len(), 3);
    /// });
    /// ```
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns whether no task runs or waits to be joined.
    ///
    /// ```
    /// polder::block_on(async {
    ///     let mut tasks = polder::TaskSet::new();
    ///     assert!(tasks.is_empty());
    ///     tasks.spawn(async { 5 });
    ///     assert!(!tasks.is_empty());
    ///     tasks.join_next().await;
    ///     assert!(tasks.is_empty());
    /// });
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Cancels every task without waiting. [`join_next`](Self::join_next) returns the outputs of
    /// tasks that were already done, and `None` when the futures of the rest are dropped.
    ///
    /// ```
    /// polder::block_on(async {
    ///     let mut tasks = polder::TaskSet::new();
    ///     tasks.extend((0..3).map(|_| std::future::pending::<()>()));
    ///     tasks.abort_all();
    ///     assert_eq!(tasks.join_next().await, None);
    /// });
    /// ```
    pub fn abort_all(&mut self) {
        drop(self.members.take_all());
    }

    /// Cancels every task, waits until their futures are dropped, and returns the number of
    /// cancelled tasks. Outputs of tasks that were already done can still be joined.
    ///
    /// ```
    /// polder::block_on(async {
    ///     let mut tasks = polder::TaskSet::new();
    ///     for _ in 0..3 {
    ///         tasks.spawn(std::future::pending::<()>());
    ///     }
    ///     assert_eq!(tasks.len(), 3);
    ///     assert_eq!(tasks.cancel_all().await, 3);
    ///     assert!(tasks.is_empty());
    /// });
    /// ```
    ///
    /// # Cancel safety
    ///
    /// The first poll cancels the tasks. Dropping the future then only ends the wait.
    #[doc(alias = "shutdown")]
    pub async fn cancel_all(&mut self) -> usize {
        self.abort_all();
        let have_ended = |state: &mut Outcomes<T>| (state.ended.len() >= self.len()).then_some(());
        poll_fn(|cx| self.outcomes.poll(cx, have_ended)).await;
        let before = self.len();
        self.outcomes.update(|state| {
            state.ended.retain(|(index, outcome)| {
                if outcome.is_none() {
                    self.members.remove(*index); // Drops nothing: the task was taken above.
                }
                outcome.is_some()
            });
        });
        before - self.len()
    }

    /// Detaches every task: they continue to run, and their outputs are dropped. Their abort
    /// handles still cancel them.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// runtime.block_on(async {
    ///     let mut tasks = polder::TaskSet::new();
    ///     tasks.spawn(async { println!("detached") });
    ///     tasks.detach_all();
    /// });
    /// runtime.run();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn detach_all(self) {
        for task in self.members.take_all() {
            task.detach();
        }
    }
}

fn unwrap_or_resume<T>(result: thread::Result<T>) -> T {
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

impl<T> Drop for TaskSet<T> {
    fn drop(&mut self) {
        // In a child of `fork`, `None` if a thread of the parent is reporting an outcome. That
        // thread's handle of the outcomes stays, so nobody drops what it has half changed, and no
        // task of the parent's reports one there.
        let left = self.process.lock(self.outcomes.mutex()).map(|mut guard| {
            let (state, waker) = &mut *guard;
            state.closed = true;
            (std::mem::take(&mut state.ended), waker.take())
        });
        if let Some((ended, waker)) = left {
            drop_all(waker);
            drop(ended);
        }
        self.abort_all();
    }
}

impl<T> Default for TaskSet<T> {
    fn default() -> TaskSet<T> {
        TaskSet::new()
    }
}

/// Spawns a task for each future, as [`spawn`](TaskSet::spawn) does.
///
/// ```
/// polder::block_on(async {
///     let mut tasks: polder::TaskSet<_> = (0..3).map(|n| async move { n }).collect();
///     tasks.extend([std::future::ready(3), std::future::ready(4)]);
///     let mut sum = 0;
///     while let Some(n) = tasks.join_next().await {
///         sum += n;
///     }
///     assert_eq!(sum, 10);
/// });
/// ```
///
/// # Panics
///
/// As [`polder::spawn`](crate::spawn).
impl<F> Extend<F> for TaskSet<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    #[track_caller]
    fn extend<I: IntoIterator<Item = F>>(&mut self, futures: I) {
        for future in futures {
            self.spawn(future);
        }
    }
}

/// Spawns a task for each future in a new set: see [`extend`](Self::extend).
impl<F> FromIterator<F> for TaskSet<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    #[track_caller]
    fn from_iter<I: IntoIterator<Item = F>>(futures: I) -> TaskSet<F::Output> {
        let mut set = TaskSet::new();
        set.extend(futures);
        set
    }
}

impl<T> Unpin for TaskSet<T> {}

/// Yields the outputs in the order in which tasks end. Resumes panics, as
/// [`join_next`](TaskSet::join_next) does.
impl<T> Stream for TaskSet<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.poll_join_next(cx)
    }
}

impl<T> fmt::Debug for TaskSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskSet")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// Reports the result of a future once: when it is done and dropped, or dropped without being
    /// done.
    pub(super) struct Reporting<F: Future, R: Report<F::Output>> {
        // `None` once it is done.
        #[pin]
        future: Option<F>,
        // `None` once it has reported.
        report: Option<R>,
    }

    impl<F: Future, R: Report<F::Output>> PinnedDrop for Reporting<F, R> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            contain(|| this.future.set(None));
            report(this.report, None);
        }
    }
}

impl<F: Future, R: Report<F::Output>> Reporting<F, R> {
    pub(super) fn new(future: F, report: R) -> Reporting<F, R> {
        Reporting {
            future: Some(future),
            report: Some(report),
        }
    }
}

impl<F: Future, R: Report<F::Output>> Future for Reporting<F, R> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let result = ready!(poll_and_drop(this.future, cx));
        report(this.report, Some(result));
        Poll::Ready(())
    }
}

pub(super) trait Report<T> {
    /// Records the result of a task; `None` if it was cancelled.
    fn report(self, result: Option<thread::Result<T>>);
}

fn report<T, R: Report<T>>(report: &mut Option<R>, result: Option<thread::Result<T>>) {
    if let Some(report) = report.take() {
        // For the task's abort handles: before its result is there, so that both agree.
        scheduler::with_running(Header::set_finished);
        report.report(result);
    }
}

struct Place<T> {
    index: usize,
    outcomes: Arc<Handoff<Outcomes<T>>>,
    site: &'static Location<'static>,
}

impl<T> Report<T> for Place<T> {
    fn report(self, result: Option<thread::Result<T>>) {
        let outcome = result.map(|result| {
            let result = result.map_err(|panic| record_panic(self.site, panic));
            let origin = scheduler::with_running(Origin::of);
            TaskResult::new(result, origin.expect("it is polled within its task"))
        });
        let unwanted = self.outcomes.update_and_wake(|state| {
            if state.closed {
                return outcome;
            }
            state.ended.push_back((self.index, outcome));
            None
        });
        drop(unwanted); // Outside the lock: it runs foreign code, and reports a panic.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::future::yield_now;
    use crate::scheduler::with_local;
    use crate::slab::KEPT;

    /// A child drops a set although a thread of its parent holds the lock of the outcomes.
    #[test]
    #[cfg(unix)]
    #[cfg_attr(miri, ignore = "there is no fork")]
    fn set_of_parent_dropped_in_child_despite_held_lock() {
        use std::sync::mpsc;

        let mut set = Some(TaskSet::<()>::new());
        let outcomes = set.as_ref().unwrap().outcomes.clone();
        let (holds, is_held) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                outcomes.update(|_| {
                    holds.send(()).unwrap();
                    let _ = goes_on.recv();
                });
            });
            is_held.recv().unwrap();
            let go_on = go_on;
            crate::sys::in_child(|| {
                drop(set.take());
                true
            });
            drop(go_on);
        });
    }

    /// A child that drops a set drops the outputs in it, although other tasks of the set go on.
    #[test]
    #[cfg(unix)]
    #[cfg_attr(miri, ignore = "there is no fork")]
    fn outputs_of_parent_dropped_in_child_with_the_set() {
        let shared = Arc::new(());
        crate::block_on(async {
            let mut set = TaskSet::new();
            let output = shared.clone();
            set.spawn(async move { output });
            set.spawn(std::future::pending());
            yield_now().await;
            let mut set = Some(set);
            crate::sys::in_child(|| {
                drop(set.take());
                Arc::strong_count(&shared) == 1
            });
        });
    }

    #[test]
    fn a_set_that_was_large_keeps_no_memory() {
        crate::block_on(async {
            let mut set = TaskSet::new();
            set.extend((0..16 * KEPT).map(|_| yield_now()));
            while set.outcomes.update(|state| state.ended.len()) < 16 * KEPT {
                yield_now().await;
            }
            while set.join_next().await.is_some() {}
            let members = set.members.0.lock().tasks.capacity();
            let outcomes = set.outcomes.update(|state| state.ended.capacity());
            let owned = with_local(|local| local.owned.borrow().capacity());
            assert!(members < 2 * KEPT, "{members} members");
            assert!(outcomes <= 2 * KEPT, "{outcomes} outcomes");
            assert!(
                owned.is_some_and(|owned| owned < 2 * KEPT),
                "{owned:?} tasks"
            );
        });
    }
}
