//! [`TaskSet`]: tasks that belong together, and end together.
//!
//! Around each future lies a [`SetTask`], which says that it has ended: into one list for the whole
//! set, with its output. So whoever joins looks at that list and never at the tasks, however many
//! there are. A pool worker says so exactly once, when its future is done *and dropped*, or dropped without
//! being done: what a task held is free again when its end is reported.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::thread;

use futures_lite::Stream;
use pin_project_lite::pin_project;
use slab::Slab;

use crate::sync::contain;
use crate::sync::{Mutex, NeedsClone, Spare, wake_all};
use crate::task::{Outcome, Task};

/// Tasks that belong together: they are owned by the set, hand out their outputs as they come, and
/// **are cancelled when the set is dropped**.
///
/// That is what structured programs want: what a function starts is over when the function is,
/// however it ends. The set is also a [`Stream`] of the outputs.
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
///     // As they come, not as they were spawned.
///     while let Some(n) = tasks.join_next().await {
///         println!("{n} is done");
///         if n == 2 {
///             break;
///         }
///     }
///     // Here the third is cancelled.
/// });
/// ```
///
/// # Panics
///
/// A task that panics harms no other. Its panic comes out of [`join_next`](Self::join_next), as it
/// comes out of an awaited [`Task`]: so a panic in a part of a program's work ends the work, and by
/// dropping the set, the other parts. Who wants to go on uses
/// [`join_next_result`](Self::join_next_result). A panic that nobody takes is reported on standard
/// error.
///
/// # Cancel safety
///
/// Giving up a wait for the next output loses none, also where the set is used as a stream; dropping the
/// set cancels its tasks.
pub struct TaskSet<T> {
    /// Those that were not joined yet. `None`: to be cancelled.
    tasks: Slab<Option<Task<()>>>,
    outcomes: Arc<Outcomes<T>>,
}

/// What the pool workers and the set have in common.
struct Outcomes<T>(Mutex<State<T>>);

/// Which task has ended; without an outcome where it was cancelled.
type Ended<T> = (usize, Option<Outcome<T>>);

struct State<T> {
    /// In that order.
    ended: VecDeque<Ended<T>>,
    joiner: Option<Waker>,
    /// The set is gone, and nobody will look.
    closed: bool,
}

impl<T> Outcomes<T> {
    fn push(&self, id: usize, outcome: Option<Outcome<T>>) {
        let mut state = self.0.lock();
        if state.closed {
            drop(state);
            return drop(outcome); // Outside the lock: it may be anything, and reports a panic.
        }
        state.ended.push_back((id, outcome));
        let joiner = state.joiner.take();
        drop(state);
        wake_all(joiner);
    }
}

impl<T> TaskSet<T> {
    /// An empty set.
    ///
    /// ```
    /// polder::block_on(async {
    ///     let mut tasks = polder::TaskSet::<u8>::new();
    ///     assert_eq!(tasks.join_next().await, None); // There is nothing to wait for.
    /// });
    /// ```
    pub fn new() -> TaskSet<T> {
        TaskSet {
            tasks: Slab::new(),
            outcomes: Arc::new(Outcomes(Mutex::new(State {
                ended: VecDeque::new(),
                joiner: None,
                closed: false,
            }))),
        }
    }

    /// Spawns a task of this set, as [`polder::spawn`](crate::spawn) does.
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
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// As [`polder::spawn`](crate::spawn).
    #[track_caller]
    pub fn spawn<F>(&mut self, future: F)
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let set_task = self.set_task(future, Location::caller());
        let id = set_task.id;
        self.tasks[id] = Some(crate::spawn(set_task));
    }

    /// Spawns a task of this set that stays on this thread, as
    /// [`polder::spawn_local`](crate::spawn_local) does.
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
    pub fn spawn_local<F>(&mut self, future: F)
    where
        F: Future<Output = T> + 'static,
        T: 'static,
    {
        let set_task = self.set_task(future, Location::caller());
        let id = set_task.id;
        self.tasks[id] = Some(crate::spawn_local(set_task));
    }

    /// Its slot is there before it is spawned: it is reported of even if spawning panics.
    fn set_task<F: Future<Output = T>>(
        &mut self,
        future: F,
        site: &'static Location<'static>,
    ) -> SetTask<F> {
        SetTask {
            future: Some(future),
            id: self.tasks.insert(None),
            outcomes: self.outcomes.clone(),
            site,
            reported: false,
        }
    }

    /// Waits for the next task to end, and gives its output; `None` once there is no task left.
    ///
    /// A task that was cancelled because its runtime ended is passed over.
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
    /// If the task did, with its panic. The others are not affected, and the next call goes on with
    /// them.
    ///
    /// # Cancel safety
    ///
    /// Giving up loses no output.
    pub async fn join_next(&mut self) -> Option<T> {
        poll_fn(|cx| self.poll_join_next(cx)).await
    }

    /// [`join_next`](Self::join_next), which gives a task's panic instead of passing it on.
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
    /// What the task panicked with.
    ///
    /// # Cancel safety
    ///
    /// Giving up loses no output.
    pub async fn join_next_result(&mut self) -> Option<thread::Result<T>> {
        poll_fn(|cx| self.poll_join_next_result(cx)).await
    }

    /// The output of a task that has ended and was not joined yet, without waiting; `None` if there is
    /// none, whether or not tasks still run.
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
        self.try_join_next_result().map(value)
    }

    /// [`try_join_next`](Self::try_join_next), which gives a task's panic instead of passing it on.
    ///
    /// ```
    /// polder::block_on(async {
    ///     let mut tasks = polder::TaskSet::<()>::new();
    ///     tasks.spawn(async { std::panic::resume_unwind(Box::new("bad luck")) });
    ///     polder::future::yield_now().await;
    ///     assert!(tasks.try_join_next_result().is_some_and(|result| result.is_err()));
    /// });
    /// ```
    pub fn try_join_next_result(&mut self) -> Option<thread::Result<T>> {
        loop {
            let ended = self.outcomes.0.lock().ended.pop_front();
            if let Some(result) = self.join(ended?) {
                return Some(result);
            }
        }
    }

    /// Takes one that has ended out of the set; `None` if it was cancelled.
    fn join(&mut self, (id, outcome): Ended<T>) -> Option<thread::Result<T>> {
        drop(self.tasks.try_remove(id));
        outcome.and_then(|mut outcome| outcome.result.take())
    }

    /// [`join_next`](Self::join_next), for functions that poll.
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
            .map(|result| result.map(value))
    }

    /// [`join_next_result`](Self::join_next_result), for functions that poll.
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
    /// What the task panicked with.
    pub fn poll_join_next_result(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<T, Box<dyn Any + Send>>>> {
        // See `Spare` for when it is filled and dropped.
        let mut spare = Spare::default();
        loop {
            let mut state = self.outcomes.0.lock();
            let Some(ended) = state.ended.pop_front() else {
                if self.tasks.is_empty() {
                    return Poll::Ready(None);
                }
                let left = register_waker(&mut state.joiner, cx.waker(), &mut spare);
                drop(state);
                match left {
                    Ok(()) => return Poll::Pending,
                    Err(NeedsClone) => spare.fill(cx.waker()),
                }
                continue;
            };
            drop(state);
            if let Some(result) = self.join(ended) {
                return Poll::Ready(Some(result));
            }
        }
    }

    /// How many tasks there are: those that run, and those whose output was not taken yet.
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
        self.tasks.len()
    }

    /// Whether there is none.
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
        self.tasks.is_empty()
    }

    /// Cancels every task, and waits until their futures are dropped. Gives their number.
    ///
    /// What had been done before stays to be joined.
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
    /// From the first poll on the tasks are cancelled, whether or not this is waited for.
    pub async fn cancel_all(&mut self) -> usize {
        for (_, task) in &mut self.tasks {
            drop(task.take());
        }
        poll_fn(|cx| {
            let mut spare = Spare::default();
            loop {
                let mut state = self.outcomes.0.lock();
                if state.ended.len() >= self.tasks.len() {
                    return Poll::Ready(());
                }
                let left = register_waker(&mut state.joiner, cx.waker(), &mut spare);
                drop(state);
                match left {
                    Ok(()) => return Poll::Pending,
                    Err(NeedsClone) => spare.fill(cx.waker()),
                }
            }
        })
        .await;
        let before = self.tasks.len();
        let tasks = &mut self.tasks;
        (self.outcomes.0.lock().ended).retain(|(id, outcome)| {
            if outcome.is_none() {
                tasks.remove(*id); // No task is left in it.
            }
            outcome.is_some()
        });
        before - self.tasks.len()
    }

    /// Lets every task run on its own. What they give is dropped.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// runtime.block_on(async {
    ///     let mut tasks = polder::TaskSet::new();
    ///     tasks.spawn(async { println!("nobody joins me") });
    ///     tasks.detach_all();
    /// });
    /// runtime.run();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn detach_all(mut self) {
        for task in self.tasks.drain().flatten() {
            task.detach();
        }
    }
}

/// What a task gave, or its panic for whoever joins it.
fn value<T>(result: thread::Result<T>) -> T {
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Leaves a waker, by its clone in `spare`, under the lock.
fn register_waker(
    slot: &mut Option<Waker>,
    waker: &Waker,
    spare: &mut Spare,
) -> Result<(), NeedsClone> {
    match slot {
        Some(old) => spare.renew(old, waker),
        None => {
            *slot = Some(spare.take()?);
            Ok(())
        }
    }
}

impl<T> Drop for TaskSet<T> {
    fn drop(&mut self) {
        let mut state = self.outcomes.0.lock();
        state.closed = true;
        let ended = std::mem::take(&mut state.ended);
        let joiner = state.joiner.take();
        drop(state);
        drop((ended, joiner));
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

/// A set with a task for each future: see [`extend`](Self::extend).
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

/// Nothing in it is pinned.
impl<T> Unpin for TaskSet<T> {}

/// The outputs, as they come, until no task is left. As [`join_next`](TaskSet::join_next), it passes
/// panics on.
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
    /// A future of the set: see the head of this file.
    struct SetTask<F: Future> {
        // `None` once it is done.
        #[pin]
        future: Option<F>,
        id: usize,
        outcomes: Arc<Outcomes<F::Output>>,
        site: &'static Location<'static>,
        reported: bool,
    }

    impl<F: Future> PinnedDrop for SetTask<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            contain(|| this.future.set(None));
            if !*this.reported {
                this.outcomes.push(*this.id, None);
            }
        }
    }
}

impl<F: Future> Future for SetTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let future = this.future.as_mut().as_pin_mut();
        let future = future.expect("a task is not polled after its end");
        let result = match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
            Ok(poll) => Ok(ready!(poll)),
            Err(panic) => Err(panic),
        };
        contain(|| this.future.set(None));
        *this.reported = true;
        (this.outcomes).push(*this.id, Some(Outcome::new(result, this.site)));
        Poll::Ready(())
    }
}

/// What may go where, checked at compile time.
const _: () = {
    const fn send<T: Send>() {}
    const fn sync<T: Sync>() {}
    send::<TaskSet<u8>>();
    sync::<TaskSet<u8>>();
};
