//! Spans and events, with the feature `tracing`.
//!
//! **The console's count of wakers.** The console adds up the clones and drops of a task's waker,
//! and reports a waiting task without wakers as lost. [`Wake`] does not see clones and drops, but
//! the reference count is the number of wakers, which matters only at the end of a poll: there the
//! difference to the reported count is reported. So never more are dropped than were cloned. A wake
//! is always reported as one by reference, since the console takes the other kind for a drop as
//! well.

use std::fmt;
use std::io;
use std::panic::Location;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use tracing::{Level, Span, error, field, level_filters::LevelFilter, trace, trace_span, warn};

use super::{Kind, NewTask};
use crate::sync::contain;

/// The span of a task, in its `TaskFuture`: only the thread that polls or drops the future reaches
/// it.
pub(crate) struct TaskSpan(
    /// `None` if tracing was disabled when the task was spawned. Boxed: one word in that case.
    Option<Box<Traced>>,
);

impl TaskSpan {
    /// Must not be called under a lock, nor may the methods: see the head of [`super`].
    #[inline]
    pub(crate) fn new<'a>(task: impl FnOnce() -> NewTask<'a>) -> TaskSpan {
        // The check that `trace_span!` makes first, without the rest of its work.
        if LevelFilter::current() >= Level::TRACE {
            TaskSpan(Traced::new(task()))
        } else {
            TaskSpan(None)
        }
    }

    /// Calls `poll` within the span, with a waker that reports wakes. `poll` does not unwind.
    #[inline]
    pub(crate) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> T,
    ) -> T {
        match &mut self.0 {
            None => poll(cx),
            Some(traced) => traced.poll(cx.waker(), poll),
        }
    }

    /// Returns the waker for the worker's list of tasks: the one that the future was polled with,
    /// which dumps look up. It does not count as a waker.
    #[inline]
    pub(crate) fn waker_to_list<'a>(&'a mut self, own: &'a Waker) -> &'a Waker {
        match self.0.as_mut().and_then(|traced| traced.waker.as_mut()) {
            None => own,
            Some(traced) => {
                traced.ours += 1;
                &traced.waker
            }
        }
    }

    /// Calls `last` within the span, and closes it. `last` drops a task's future, or is a
    /// function's whole call, and does not unwind.
    #[inline]
    pub(crate) fn end<T>(&mut self, last: impl FnOnce() -> T) -> T {
        match self.0.take() {
            None => last(),
            Some(traced) => {
                let result = within(&traced.span, last);
                traced.close();
                result
            }
        }
    }
}

/// For a function that is not called.
impl Drop for TaskSpan {
    #[inline]
    fn drop(&mut self) {
        if let Some(traced) = self.0.take() {
            traced.close();
        }
    }
}

struct Traced {
    span: Span,
    id: u64,
    /// Set by the first poll.
    waker: Option<TracedWaker>,
}

impl Traced {
    #[inline(never)]
    fn new(task: NewTask<'_>) -> Option<Box<Traced>> {
        let mut span = Span::none();
        contain(|| span = task_span(task));
        // It has none if it is disabled.
        let id = span.id()?.into_u64();
        let waker = None;
        Some(Box::new(Traced { span, id, waker }))
    }

    #[inline(never)]
    fn poll<T>(&mut self, own: &Waker, poll: impl FnOnce(&mut Context<'_>) -> T) -> T {
        let waker = (self.waker).get_or_insert_with(|| TracedWaker::new(own, self.id));
        within(&self.span, || {
            let result = poll(&mut Context::from_waker(&waker.waker));
            contain(|| waker.report_count());
            result
        })
    }

    #[cold]
    fn close(self: Box<Self>) {
        contain(|| drop(self));
    }
}

fn within<T>(span: &Span, f: impl FnOnce() -> T) -> T {
    let mut entered = None;
    contain(|| entered = Some(span.enter()));
    let result = f();
    contain(|| drop(entered));
    result
}

fn task_span(task: NewTask<'_>) -> Span {
    let kind = match task.kind {
        Kind::Task => "task",
        Kind::Local => "local",
        Kind::Blocking => "blocking",
    };
    trace_span!(
        target: "tokio::task",
        parent: None,
        "runtime.spawn",
        %kind,
        task.name = task.name.map(field::display),
        task.id = task.id,
        size.bytes = task.size,
        loc.file = task.site.file(),
        loc.line = task.site.line(),
        loc.col = task.site.column(),
    )
}

struct TracedWaker {
    waker: Waker,
    inner: Arc<WakerInner>,
    /// The number of references to `inner` that are no wakers: the two above, and the worker's
    /// list.
    ours: usize,
    /// The reported number of wakers.
    reported: usize,
}

struct WakerInner {
    task: Waker,
    span: u64,
}

impl TracedWaker {
    fn new(own: &Waker, span: u64) -> TracedWaker {
        let task = own.clone();
        let inner = Arc::new(WakerInner { task, span });
        TracedWaker {
            waker: inner.clone().into(),
            inner,
            ours: 2,
            reported: 0,
        }
    }

    fn report_count(&mut self) {
        let count = Arc::strong_count(&self.inner).saturating_sub(self.ours);
        let span = self.inner.span;
        while self.reported < count {
            self.reported += 1;
            trace!(target: "tokio::task::waker", op = "waker.clone", task.id = span);
        }
        while self.reported > count {
            self.reported -= 1;
            trace!(target: "tokio::task::waker", op = "waker.drop", task.id = span);
        }
    }
}

impl Wake for WakerInner {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Before the wake, since the task may run on another thread immediately.
        contain(|| {
            trace!(target: "tokio::task::waker", op = "waker.wake_by_ref", task.id = self.span);
        });
        self.task.wake_by_ref();
    }
}

#[cold]
pub(crate) fn task_panicked(site: &Location<'_>, message: &str) {
    contain(|| {
        error!(
            target: "polder",
            spawned_at = %site,
            panic = message,
            "a task panicked, and nobody awaits it"
        );
    });
}

#[cold]
pub(crate) fn stalled(stall: &dyn fmt::Display, has_ended: bool) {
    contain(|| warn!(target: "polder", has_ended, "{stall}"));
}

#[cold]
pub(crate) fn accept_failed(error: &io::Error) {
    contain(|| warn!(target: "polder", %error, "a connection could not be accepted"));
}
