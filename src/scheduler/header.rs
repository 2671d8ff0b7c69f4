//! The header of a task, the references to it, and which task this thread runs.
//!
//! [`Header`] is the metadata that is stored next to a task's future. A task has a reference to the
//! [`Shared`] of its runtime. The queues there hold its runnable while it is ready: the circle of
//! imports that `mod.rs` names.
//!
//! **Aborting** sets a flag in the header, and then wakes the task. The task's future reads the
//! flag at the start of each poll; if it is set, it drops the user's future and ends. No abort is
//! lost: if the task is queued or running, a wake makes everything before it visible to the next
//! poll, as `async-task` guarantees; otherwise the wake queues the task. If a poll in progress
//! returns the output, the task is done with that output. Dropping a `Task` uses `async-task`'s own
//! cancellation instead, which closes the task immediately: the output of a poll in progress is
//! dropped.
//!
//! **The running task** is in a thread-local, which each poll of a task writes. A nested drive
//! resets and restores it.

use std::cell::Cell;
use std::panic::Location;
use std::ptr;
use std::sync::Arc;
use std::task::{RawWakerVTable, Waker};

use super::run_queue;
use super::shared::Shared;
use crate::reactor::WakerKind;
use crate::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use crate::telemetry::{Id, Name, WaitReason};

pub(crate) struct Header {
    pub(super) shared: Arc<Shared>,
    /// The task's [`Affinity`], [`TRACED`] and [`UNCOUNTED`].
    ///
    /// Written only by the thread that polls the task or has its runnable. This exclusive access
    /// passes between threads by an atomic operation of async-task or by a queue, so relaxed
    /// accesses suffice.
    pub(super) state: AtomicU16,
    /// See "Aborting" in the head.
    pub(super) is_aborted: AtomicBool,
    pub(super) is_finished: AtomicBool,
    /// When it was spawned: see [`clock::jiffy`](crate::clock::jiffy).
    pub(crate) spawned: u32,
    pub(crate) id: Id,
    pub(crate) site: &'static Location<'static>,
    pub(super) name: Option<Box<Name>>,
    /// Written like `state`.
    pub(crate) wait_reason: AtomicU64,
    /// The number of polls, which wraps, and the time of the last one by its worker's clock.
    /// Written like `state`.
    pub(crate) polls: AtomicU32,
    pub(crate) polled: AtomicU32,
}

/// The worker of a task: its index if the task is pinned; [`STEALABLE`] and the index of the worker
/// that ran it last, or [`UNASSIGNED`] before its first run, if it is stealable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Affinity(pub(super) u16);

impl Affinity {
    pub(super) const ANY: Affinity = Affinity(STEALABLE | UNASSIGNED);

    pub(crate) fn pinned(index: usize) -> Affinity {
        Affinity(index as u16)
    }
}

/// The bits of an [`Affinity`] that are the worker's index. The main worker's is the largest.
pub(super) const INDEX: u16 = 0x0fff;

/// The index of a stealable task that no pool worker has run yet.
pub(super) const UNASSIGNED: u16 = INDEX;

pub(super) const STEALABLE: u16 = 1 << 12;

pub(super) const TRACED: u16 = 1 << 13;

/// The runtime was closing when the task was spawned, and neither waits for it nor counts its end:
/// see [`schedule`](mod@super::schedule).
pub(super) const UNCOUNTED: u16 = 1 << 14;

impl Header {
    #[inline]
    pub(crate) fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_finished(&self) {
        self.is_finished.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished.load(Ordering::Acquire)
    }

    /// Whether the task was never polled. When the number of polls wraps to zero, the time of the
    /// last poll differs from that of the spawn.
    pub(super) fn is_new(&self) -> bool {
        self.polls.load(Ordering::Relaxed) == 0
            && self.polled.load(Ordering::Relaxed) == self.spawned
    }

    pub(crate) fn name(&self) -> Option<&Name> {
        self.name.as_deref()
    }

    #[inline]
    pub(super) fn state(&self) -> u16 {
        self.state.load(Ordering::Relaxed)
    }

    /// [`UNASSIGNED`] if the task has no worker yet.
    #[inline]
    pub(crate) fn index(&self) -> usize {
        (self.state() & INDEX) as usize
    }

    #[inline]
    pub(super) fn is_traced(&self) -> bool {
        self.state() & TRACED != 0
    }

    #[inline]
    pub(super) fn is_stealable(&self) -> bool {
        self.state() & STEALABLE != 0
    }

    #[inline]
    pub(super) fn is_counted(&self) -> bool {
        self.state() & UNCOUNTED == 0
    }

    /// Counts the end of a task that its spawner is about to drop before it has run.
    pub(super) fn end_count(&self) {
        if self.is_counted() {
            self.state
                .store(self.state() | UNCOUNTED, Ordering::Relaxed);
            self.shared.count_ended(None);
        }
    }

    #[inline]
    pub(super) fn assign(&self, index: usize) {
        let state = self.state() & !INDEX | index as u16;
        self.state.store(state, Ordering::Relaxed);
    }

    /// Begins a poll, on a worker that last read its clock at `jiffy`. Returns whether it is the
    /// first poll.
    #[inline]
    pub(super) fn begin_poll(&self, jiffy: u32) -> bool {
        let before = self.polls.load(Ordering::Relaxed);
        self.polls.store(before.wrapping_add(1), Ordering::Relaxed);
        self.polled.store(jiffy, Ordering::Relaxed);
        self.set_wait_reason(WaitReason::UNKNOWN);
        before == 0
    }

    /// Sets an encoded [`WaitReason`].
    #[inline]
    pub(super) fn set_wait_reason(&self, reason: u64) {
        self.wait_reason.store(reason, Ordering::Relaxed);
    }
}

pub(crate) type Runnable = async_task::Runnable<Header>;

/// A runnable is `Send`, since its metadata is. Only those of stealable tasks are in a run queue.
impl run_queue::Item for Runnable {
    #[inline]
    fn into_raw(self) -> std::ptr::NonNull<()> {
        Runnable::into_raw(self)
    }

    #[inline]
    unsafe fn from_raw(raw: std::ptr::NonNull<()>) -> Runnable {
        // SAFETY: the caller has it from `Runnable::into_raw`, and passes it on once.
        unsafe { Runnable::from_raw(raw) }
    }
}

/// A counted reference to a task, for the lists of workers and for abort handles.
#[derive(Clone, Debug)]
pub(crate) struct TaskRef {
    waker: Waker,
    header: *const Header,
}

// SAFETY: a waker may be used on any thread, and `Header`, which is `Sync`, is only shared through
// the pointer.
unsafe impl Send for TaskRef {}
// SAFETY: as for `Send`: neither the waker nor `Header` is changed through a shared reference.
unsafe impl Sync for TaskRef {}

impl TaskRef {
    /// `waker` is the task's own waker, or holds it.
    pub(crate) fn new(header: &Header, waker: Waker) -> TaskRef {
        TaskRef { waker, header }
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the metadata is in the task's allocation, which the waker keeps alive.
        unsafe { &*self.header }
    }

    /// Makes the task drop its future at its next poll.
    pub(crate) fn abort(&self) {
        // Relaxed: the wake that follows publishes it.
        self.header().is_aborted.store(true, Ordering::Relaxed);
        self.waker.wake_by_ref();
    }
}

thread_local! {
    static RUNNING: Cell<Running> = const { Cell::new(Running::NOBODY) };

    /// The id, if no task runs, of this thread's call of `unblock`, or of the task whose output it
    /// drops.
    static CALL: Cell<Option<Id>> = const { Cell::new(None) };
}

type WakerParts = (*const (), *const RawWakerVTable);

fn parts(waker: &Waker) -> WakerParts {
    (waker.data(), ptr::from_ref(waker.vtable()))
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    /// The parts of the task's own waker, unique as long as the task exists.
    waker: WakerParts,
    /// The parts of the waker that it is polled with, if different: see `spans`.
    #[cfg(feature = "tracing")]
    wrapper: WakerParts,
    header: *const Header,
}

impl Running {
    const NOBODY: Running = Running {
        waker: (ptr::null(), ptr::null()),
        #[cfg(feature = "tracing")]
        wrapper: (ptr::null(), ptr::null()),
        header: ptr::null(),
    };

    #[inline]
    pub(super) fn get() -> Running {
        RUNNING.try_with(Cell::get).expect("it has no destructor")
    }

    #[inline]
    pub(super) fn set(self) {
        (RUNNING.try_with(|running| running.set(self))).expect("it has no destructor");
    }

    #[inline]
    pub(super) fn reset() {
        Running::NOBODY.set();
    }

    #[inline]
    fn of(header: &Header) -> Running {
        let mut running = Running::NOBODY;
        running.header = header;
        running
    }

    #[inline]
    pub(super) fn waker_kind(self, waker: &Waker) -> WakerKind {
        let is = |(data, vtable): WakerParts| {
            ptr::eq(data, waker.data()) && ptr::eq(vtable, waker.vtable())
        };
        if is(self.waker) {
            return WakerKind::Task;
        }
        #[cfg(feature = "tracing")]
        if is(self.wrapper) {
            return WakerKind::TracedTask;
        }
        WakerKind::Other
    }
}

/// Sets the running task, until its runnable's `run` has returned or its future is dropped.
#[inline]
pub(crate) fn set_running(waker: &Waker, header: &Header) {
    let mut running = Running::of(header);
    running.waker = parts(waker);
    running.set();
}

/// Calls `drop_future`, which drops a task's future and does not unwind, with that task as the
/// running one, so that destructors see its id. Afterwards it no longer counts as running: its
/// memory may be freed before `Runnable::run` returns, which wakes the awaiting task.
#[inline]
pub(crate) fn drop_within(header: &Header, drop_future: impl FnOnce()) {
    let outer = Running::get();
    let is_polled_here = ptr::eq(outer.header, header);
    if !is_polled_here {
        // The task is cancelled, perhaps within a poll of another. It is not being polled, so it
        // has no waker here.
        Running::of(header).set();
    }
    drop_future();
    if is_polled_here {
        Running::reset();
    } else {
        outer.set();
    }
}

/// Records the waker that the running task is about to be polled with: its own, or its span's,
/// which runs no foreign code either: a clone or a drop of it only changes a count.
#[cfg(feature = "tracing")]
#[inline]
pub(crate) fn set_wrapper(waker: &Waker) {
    let mut running = Running::get();
    running.wrapper = parts(waker);
    running.set();
}

/// Calls `f`, which runs no foreign code, with the task that runs on this thread.
#[inline]
pub(crate) fn with_running<R>(f: impl FnOnce(&Header) -> R) -> Option<R> {
    let header = Running::get().header;
    // SAFETY: null, or the metadata of a task whose `TaskFuture` is being polled (`set_running`) or
    // dropped (`drop_within`). The latter resets it before that is gone, also within
    // `Runnable::run`; and the metadata is in the same allocation as that, and is dropped after it.
    let header = unsafe { header.as_ref() };
    header.map(f)
}

/// The id of the running task, of the call of `unblock`, or of the task whose output is dropped.
pub(crate) fn running_id() -> Option<Id> {
    with_running(|header| header.id).or_else(|| CALL.get())
}

/// Calls `f`, which does not unwind, as the call of `unblock` with this id, or as the ended task
/// with this id. May be called within another task.
pub(crate) fn within<R>(id: Id, f: impl FnOnce() -> R) -> R {
    let outer = (Running::get(), CALL.replace(Some(id)));
    Running::reset();
    let result = f();
    CALL.set(outer.1);
    outer.0.set();
    result
}

/// Whether `waker` is the running task's own, which only queues the task, on any thread.
#[inline]
pub(crate) fn is_task_waker(waker: &Waker) -> bool {
    Running::get().waker_kind(waker) == WakerKind::Task
}
