//! The future that a task runs, [`TaskFuture`], and its result, [`TaskResult`].
//!
//! A `TaskFuture` enters the task in its worker's list if the first poll does not complete it, and
//! reports the task's end when the future is dropped. A panic of the future becomes the task's
//! result; a panic of its destructor is contained.

use std::any::Any;
use std::mem::needs_drop;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::kernel;
use crate::scheduler::{self, Header, OwnedKey};
use crate::spans::{self, TaskSpan};
use crate::sync::contain;
use crate::telemetry::Id;

pin_project! {
    pub(super) struct TaskFuture<'a, F> {
        // Closed when the future is dropped.
        span: TaskSpan,
        #[pin]
        stage: Stage<'a, F>,
    }

    impl<'a, F> PinnedDrop for TaskFuture<'a, F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            let StageProjection::Alive { header, key, .. } = this.stage.as_mut().project() else {
                return;
            };
            let (header, key) = (*header, *key);
            scheduler::drop_within(header, || {
                this.span.end(|| contain(|| this.stage.set(Stage::Dropped)));
            });
            scheduler::task_ended(header, key);
        }
    }
}

pin_project! {
    /// One enum, since the reference marks its variants; an `Option` of the future would need a
    /// tag.
    #[project = StageProjection]
    enum Stage<'a, F> {
        Alive {
            header: &'a Header,
            // The index in its worker's list, from the end of the first poll on.
            key: Option<OwnedKey>,
            #[pin]
            future: F,
        },
        // Within `drop`, and if the future was forgotten.
        Dropped,
    }
}

impl<'a, F> TaskFuture<'a, F> {
    #[inline]
    pub(super) fn new(header: &'a Header, future: F, span: TaskSpan) -> TaskFuture<'a, F> {
        let stage = Stage::Alive {
            header,
            key: None,
            future,
        };
        TaskFuture { span, stage }
    }

    /// Returns the future of a task whose own future was forgotten, because its runtime closes: see
    /// [`scheduler::exceeds_late_limit`]. It is never polled.
    #[cold]
    #[inline(never)]
    pub(super) fn forgotten(header: &'a Header, span: TaskSpan) -> TaskFuture<'a, F> {
        scheduler::task_forgotten(header);
        TaskFuture {
            span,
            stage: Stage::Dropped,
        }
    }
}

impl<F: Future> Future for TaskFuture<'_, F> {
    type Output = TaskResult<F::Output>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let StageProjection::Alive {
            header,
            key,
            future,
        } = this.stage.project()
        else {
            unreachable!("it is polled with its future");
        };
        if header.is_aborted() {
            // The task drops this, and so the future, before its result can be taken.
            let (result, origin) = (None, Origin::of(header));
            return Poll::Ready(TaskResult { result, origin });
        }
        scheduler::set_running(cx.waker(), header);
        let poll = |cx: &mut Context<'_>| {
            #[cfg(feature = "tracing")]
            scheduler::set_wrapper(cx.waker());
            catch_unwind(AssertUnwindSafe(|| future.poll(cx)))
        };
        let result = match this.span.poll(cx, poll) {
            Ok(Poll::Pending) => {
                if key.is_none() {
                    let waker = this.span.waker_to_list(cx.waker());
                    *key = scheduler::bind(header, waker);
                }
                return Poll::Pending;
            }
            Ok(Poll::Ready(value)) => Ok(value),
            Err(panic) => Err(record_panic(header.site, panic)),
        };
        Poll::Ready(TaskResult::new(result, Origin::of(header)))
    }
}

/// Polls a future. Drops it when it is done or has panicked; a panic of its destructor is
/// contained.
#[inline]
pub(crate) fn poll_and_drop<F: Future>(
    mut future: Pin<&mut Option<F>>,
    cx: &mut Context<'_>,
) -> Poll<Result<F::Output, Panic>> {
    let running = future.as_mut().as_pin_mut();
    let running = running.expect("polled after completion");
    let result = match catch_unwind(AssertUnwindSafe(|| running.poll(cx))) {
        Ok(poll) => Ok(ready!(poll)),
        Err(panic) => Err(panic),
    };
    contain(|| future.set(None));
    Poll::Ready(result)
}

pub(crate) type Panic = Box<dyn Any + Send>;

/// The origin of a result, which may outlive the task's memory: async-task drops a detached task's
/// output later, and a handle may be dropped anywhere. Keeping the name would cost each spawn.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) site: &'static Location<'static>,
    pub(crate) id: Id,
}

impl Origin {
    #[inline]
    pub(crate) fn of(header: &Header) -> Origin {
        let (site, id) = (header.site, header.id);
        Origin { site, id }
    }
}

/// The result of a task. Dropping it reports an untaken panic.
pub(crate) struct TaskResult<T> {
    /// `None` if the task was cancelled, or the result was taken.
    result: Option<Result<T, Panic>>,
    origin: Origin,
}

impl<T> TaskResult<T> {
    #[inline]
    pub(crate) fn new(result: Result<T, Panic>, origin: Origin) -> TaskResult<T> {
        TaskResult {
            result: Some(result),
            origin,
        }
    }

    /// Returns `None` if the task was cancelled.
    pub(crate) fn into_result(mut self) -> Option<Result<T, Panic>> {
        if let Some(Err(panic)) = &self.result {
            observe_panic(self.origin.site, &**panic);
        }
        self.result.take()
    }

    /// Returns the output, or `None` if the task was cancelled. Resumes the panic.
    #[inline]
    pub(crate) fn take(mut self) -> Option<T> {
        match self.result.take() {
            Some(Ok(value)) => Some(value),
            Some(Err(panic)) => resume(self.origin.site, panic),
            None => None,
        }
    }
}

impl<T> Drop for TaskResult<T> {
    #[inline]
    fn drop(&mut self) {
        match self.result.take() {
            Some(Ok(value)) if needs_drop::<T>() => {
                scheduler::within(self.origin.id, || contain(|| drop(value)));
            }
            Some(Err(panic)) => drop_panic(self.origin, panic),
            _ => {}
        }
    }
}

#[cold]
#[inline(never)]
fn drop_panic(origin: Origin, panic: Panic) {
    report(origin.site, &*panic);
    scheduler::within(origin.id, || contain(|| drop(panic)));
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a value that is not a string")
}

#[cfg_attr(feature = "kernel", cold, inline(never))]
fn resume(site: &'static Location<'static>, panic: Panic) -> ! {
    observe_panic(site, &*panic);
    resume_unwind(panic)
}

/// Records that a task spawned at `site` has panicked.
#[cfg_attr(feature = "kernel", cold, inline(never))]
pub(crate) fn record_panic(site: &'static Location<'static>, panic: Panic) -> Panic {
    if let Some(kernel) = kernel::current() {
        kernel.task_panicked(site, panic_message(&*panic));
    }
    panic
}

/// Records that a panic is passed to the awaiting code, or reported. One that never gets here
/// belongs to a leaked handle.
#[cfg_attr(feature = "kernel", cold, inline(never))]
fn observe_panic(site: &'static Location<'static>, panic: &(dyn Any + Send)) {
    if let Some(kernel) = kernel::current() {
        kernel.panic_is_taken(site, panic_message(panic));
    }
}

/// Reports an untaken panic. The hook has already printed its location and message.
fn report(site: &'static Location<'static>, panic: &(dyn Any + Send)) {
    let message = panic_message(panic);
    observe_panic(site, panic);
    if kernel::current().is_some_and(|kernel| kernel.report_panic(site, message)) {
        return;
    }
    spans::task_panicked(site, message);
    // `eprintln!`, unlike `io::stderr`, is captured by test harnesses. It panics if it cannot
    // write, which is ignored.
    let _ = catch_unwind(|| {
        eprintln!("polder: the task spawned at {site} panicked, and nobody awaits it: {message}");
    });
}
