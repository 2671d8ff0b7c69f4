//! With the feature `tracing`.
//!
//! **What the console counts.** It adds up the clones and drops of a task's waker, and says of a
//! task that waits while nobody has one that it has lost it. [`Wake`] is not told of clones and
//! drops. But how many there are the count of references says, and the end of a poll is when it
//! matters: so the difference to what was told before is told then. Nobody else tells of clones
//! and drops, so never more are dropped than were cloned; and a wake is always one by reference,
//! since the console takes the other kind for a drop as well.

use std::fmt;
use std::io;
use std::panic::Location;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use tracing::{Level, Span, error, field, level_filters::LevelFilter, trace, trace_span, warn};

use super::{Kind, NewTask};
use crate::sync::contain;

/// The span of a task. It is part of the task's body: so it is reached by whoever polls or drops
/// the future, and by nobody else.
#[derive(Debug)]
pub(crate) struct TaskSpan(
    /// `None` if nobody wanted to know when the task was spawned. Boxed, so that this costs a task
    /// a word then.
    Option<Box<Traced>>,
);

impl TaskSpan {
    /// Not to be called under a lock, nor are the methods: see the head of [`super`].
    #[inline]
    pub(crate) fn new<'a>(task: impl FnOnce() -> NewTask<'a>) -> TaskSpan {
        // What `trace_span!` asks first, without all that it does then.
        match LevelFilter::current() >= Level::TRACE {
            true => TaskSpan(Traced::new(task())),
            false => TaskSpan(None),
        }
    }

    /// Calls `poll` within the span, with a waker that tells of wakes. `poll` does not unwind.
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

    /// The waker for the list of the worker's tasks: the one that the future was polled with, by
    /// which dumps find what the task waits for. It does not count as one that somebody has.
    #[inline]
    pub(crate) fn waker_to_list<'a>(&'a mut self, own: &'a Waker) -> &'a Waker {
        match &mut self.0 {
            None => own,
            Some(traced) => traced.waker_to_list(own),
        }
    }

    /// Calls `last` within the span, and closes it: for a task, what drops the future; for a
    /// function, all of it. `last` does not unwind.
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

/// Of a function that is not called.
impl Drop for TaskSpan {
    #[inline]
    fn drop(&mut self) {
        if let Some(traced) = self.0.take() {
            traced.close();
        }
    }
}

#[derive(Debug)]
struct Traced {
    span: Span,
    /// From the first poll on.
    waker: Option<TracedWaker>,
}

impl Traced {
    #[inline(never)]
    fn new(task: NewTask<'_>) -> Option<Box<Traced>> {
        let mut span = Span::none();
        contain(|| span = task_span(task));
        let traced = Traced { span, waker: None };
        (!traced.span.is_disabled()).then(|| Box::new(traced))
    }

    #[inline(never)]
    fn poll<T>(&mut self, own: &Waker, poll: impl FnOnce(&mut Context<'_>) -> T) -> T {
        if self.waker.is_none() {
            self.waker = self
                .span
                .id()
                .map(|id| TracedWaker::new(own, id.into_u64()));
        }
        let Traced { span, waker } = self;
        within(span, || match waker {
            None => poll(&mut Context::from_waker(own)),
            Some(traced) => {
                let result = poll(&mut Context::from_waker(&traced.waker));
                contain(|| traced.tell_count());
                result
            }
        })
    }

    fn waker_to_list<'a>(&'a mut self, own: &'a Waker) -> &'a Waker {
        match &mut self.waker {
            None => own,
            Some(traced) => {
                traced.ours += 1;
                &traced.waker
            }
        }
    }

    #[cold]
    fn close(self: Box<Self>) {
        contain(|| drop(self));
    }
}

/// Calls `f`, which does not unwind, within the span.
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
        #[cfg(feature = "blocking")]
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

/// What a task with a span is polled with.
#[derive(Debug)]
struct TracedWaker {
    waker: Waker,
    inner: Arc<WakerInner>,
    /// How many references to `inner` are not somebody's waker: the two above, and the worker's
    /// list.
    ours: usize,
    /// How many wakers the subscriber knows of.
    told: usize,
}

#[derive(Debug)]
struct WakerInner {
    /// The task's own.
    task: Waker,
    /// The id of the span.
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
            told: 0,
        }
    }

    /// Tells how many wakers there are, at the end of a poll.
    fn tell_count(&mut self) {
        let count = Arc::strong_count(&self.inner).saturating_sub(self.ours);
        let span = self.inner.span;
        while self.told < count {
            self.told += 1;
            trace!(target: "tokio::task::waker", op = "waker.clone", task.id = span);
        }
        while self.told > count {
            self.told -= 1;
            trace!(target: "tokio::task::waker", op = "waker.drop", task.id = span);
        }
    }
}

impl Wake for WakerInner {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Before, since the task may run elsewhere at once.
        contain(|| {
            trace!(target: "tokio::task::waker", op = "waker.wake_by_ref", task.id = self.span);
        });
        self.task.wake_by_ref();
    }
}

/// A task that nobody awaits has panicked.
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

/// A poll takes too long, or has ended that did.
#[cold]
pub(crate) fn stalled(stall: &dyn fmt::Display, has_ended: bool) {
    contain(|| warn!(target: "polder", has_ended, "{stall}"));
}

/// A connection could not be accepted.
#[cold]
pub(crate) fn accept_failed(error: &io::Error) {
    contain(|| warn!(target: "polder", %error, "a connection could not be accepted"));
}
