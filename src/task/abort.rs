//! [`AbortHandle`]: cancels a task that somebody else awaits.
//!
//! `async-task` has one handle for each task. The first abort handle of a [`Task`](super::Task)
//! puts that handle behind a lock, where both reach it (`SharedTask`); tasks without abort
//! handles pay nothing. Who polls the task takes the handle out meanwhile, since polling clones and
//! drops wakers, which is foreign code. An abort that comes then leaves a flag, which is looked at
//! under the lock when the handle is put back. So it is never lost: either it finds the handle, or
//! who polls finds the flag. An abort that finds the handle drops it outside the lock; `async-task`
//! then wakes the awaiting side, whose waker it has had since the last poll.

use std::fmt;
use std::future::Future;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Outcome, SpawnedTask};
use crate::sync::Mutex;

/// A task, or several, of which `id` names one.
pub(crate) trait Abort: Send + Sync + UnwindSafe + RefUnwindSafe {
    fn abort(&self, id: MemberId);

    fn is_finished(&self, id: MemberId) -> bool;
}

/// One of several tasks: its place, and which of those that had the place it is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct MemberId {
    pub(crate) index: usize,
    pub(crate) serial: u64,
}

/// Cancels a task that is awaited, or was detached, elsewhere.
///
/// It comes from [`Task::abort_handle`](super::Task::abort_handle) and
/// [`TaskSet::spawn`](crate::TaskSet::spawn). Dropping it has no effect. It keeps the memory of the
/// task, as a [`Task`](super::Task) does.
///
/// # Examples
///
/// ```
/// polder::block_on(async {
///     let mut task = polder::spawn(std::future::pending::<u8>());
///     let abort = task.abort_handle();
///     std::thread::spawn(move || abort.abort());
///     assert_eq!(task.fallible().await, None);
/// });
/// ```
#[derive(Clone)]
pub struct AbortHandle {
    target: Arc<dyn Abort>,
    id: MemberId,
}

impl AbortHandle {
    pub(crate) fn new(target: Arc<dyn Abort>, id: MemberId) -> AbortHandle {
        AbortHandle { target, id }
    }

    /// Cancels the task, unless it is done. Does not wait: its future is dropped by its worker, as
    /// [`Task::cancel`](super::Task::cancel) describes.
    ///
    /// Whoever awaits the task is woken: a [`FallibleTask`](super::FallibleTask) yields `None`, a
    /// [`TaskSet`](crate::TaskSet) skips the task, and awaiting the [`Task`](super::Task) itself
    /// panics. The output of a task that is done by then can still be awaited. A function given to
    /// `unblock` that has begun runs to its end.
    ///
    /// ```
    /// polder::block_on(async {
    ///     let mut task = polder::spawn(async { 5 });
    ///     let abort = task.abort_handle();
    ///     polder::future::yield_now().await;
    ///     abort.abort(); // It is done already.
    ///     assert_eq!(task.await, 5);
    /// });
    /// ```
    pub fn abort(&self) {
        self.target.abort(self.id);
    }

    /// Returns whether the task is done or cancelled.
    ///
    /// ```
    /// polder::block_on(async {
    ///     let mut task = polder::spawn(async { 5 });
    ///     let abort = task.abort_handle();
    ///     assert!(!abort.is_finished());
    ///     task.await;
    ///     assert!(abort.is_finished());
    /// });
    /// ```
    pub fn is_finished(&self) -> bool {
        self.target.is_finished(self.id)
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortHandle")
            .field("finished", &self.is_finished())
            .finish()
    }
}

/// A task that its [`Task`](super::Task) and abort handles reach. Dropping this one cancels it.
struct SharedTask<T> {
    shared: Arc<Shared<T>>,
    is_detached: bool,
}

struct Shared<T>(Mutex<State<T>>);

enum State<T> {
    Here(SpawnedTask<T>),
    /// The awaiting side polls it; and whether it was aborted meanwhile.
    Lent {
        aborted: bool,
    },
    /// The output was taken, or the task cancelled.
    Gone,
}

impl<T> State<T> {
    /// Takes the task, for good.
    fn take(&mut self) -> Option<SpawnedTask<T>> {
        match std::mem::replace(self, State::Gone) {
            State::Here(task) => Some(task),
            _ => None,
        }
    }
}

impl<T> Shared<T> {
    fn take(&self) -> Option<SpawnedTask<T>> {
        self.0.lock().take()
    }

    fn lend(&self) -> Option<Lent<'_, T>> {
        let mut state = self.0.lock();
        let task = state.take()?;
        *state = State::Lent { aborted: false };
        Some(Lent {
            shared: self,
            task: Some(task),
        })
    }

    fn is_finished(&self) -> bool {
        match &*self.0.lock() {
            State::Here(task) => task.is_finished(),
            State::Lent { aborted } => *aborted,
            State::Gone => true,
        }
    }
}

/// The task, while it is polled. Dropping this puts it back, also if polling it panics.
struct Lent<'a, T> {
    shared: &'a Shared<T>,
    /// `None` once it is put back.
    task: Option<SpawnedTask<T>>,
}

impl<T> Lent<'_, T> {
    /// Returns false if the task was aborted meanwhile: then it is cancelled.
    fn put_back(&mut self) -> bool {
        let Some(task) = self.task.take() else {
            return true;
        };
        let mut state = self.shared.0.lock();
        if let State::Lent { aborted: true } = *state {
            *state = State::Gone;
            drop(state);
            drop(task); // Runs foreign code: not under the lock.
            return false;
        }
        *state = State::Here(task);
        true
    }
}

impl<T> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        self.put_back();
    }
}

/// What a [`Task`](super::Task) does with its task once that has abort handles. It is a trait
/// object, so that a program without abort handles is linked without all this, and the compiler
/// finds what tasks do otherwise in one place only, where it inlines it.
pub(super) trait AbortableTask<T>: Send + Sync + UnwindSafe + RefUnwindSafe {
    /// Puts the task in its place.
    fn put(&self, task: SpawnedTask<T>);

    /// `None` if the output was taken, or the task cancelled.
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Outcome<T>>>;

    /// Takes the task away from the abort handles.
    fn take(&self) -> Option<SpawnedTask<T>>;

    /// Lets the task run on when this is dropped. Abort handles still cancel it.
    fn detach(&mut self);

    fn is_finished(&self) -> bool;

    fn abort_handle(&self) -> AbortHandle;
}

/// The place of a task with abort handles: empty, until the task is put there.
pub(super) fn abortable<T: Send + 'static>() -> Box<dyn AbortableTask<T>> {
    Box::new(SharedTask {
        shared: Arc::new(Shared(Mutex::new(State::Gone))),
        is_detached: false,
    })
}

impl<T: Send + 'static> AbortableTask<T> for SharedTask<T> {
    fn put(&self, task: SpawnedTask<T>) {
        *self.shared.0.lock() = State::Here(task);
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Outcome<T>>> {
        let Some(mut lent) = self.shared.lend() else {
            return Poll::Ready(None);
        };
        let task = lent.task.as_mut().expect("it was lent just now");
        let result = Pin::new(task).poll(cx);
        match (result, lent.put_back()) {
            (Poll::Pending, false) => Poll::Ready(None),
            (result, _) => result,
        }
    }

    fn take(&self) -> Option<SpawnedTask<T>> {
        self.shared.take()
    }

    fn detach(&mut self) {
        self.is_detached = true;
    }

    fn is_finished(&self) -> bool {
        self.shared.is_finished()
    }

    fn abort_handle(&self) -> AbortHandle {
        AbortHandle::new(self.shared.clone(), MemberId::default())
    }
}

impl<T> Drop for SharedTask<T> {
    fn drop(&mut self) {
        if !self.is_detached {
            drop(self.shared.take());
        }
    }
}

/// Only a detached task is here yet: without abort handles it runs on.
impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        if let Some(task) = self.take() {
            task.detach();
        }
    }
}

impl<T: Send> Abort for Shared<T> {
    fn abort(&self, _: MemberId) {
        let mut state = self.0.lock();
        let task = match &mut *state {
            State::Here(task) if !task.is_finished() => state.take(),
            State::Lent { aborted } => {
                *aborted = true;
                None
            }
            _ => None,
        };
        drop(state);
        drop(task); // Runs foreign code: not under the lock.
    }

    fn is_finished(&self, _: MemberId) -> bool {
        self.is_finished()
    }
}

/// Auto traits, checked at compile time.
const _: () = {
    const fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<AbortHandle>();
};
