//! The thread pool for blocking work: calls of `unblock`, operations of `Unblock`, files, name
//! lookups.
//!
//! One lock protects the queues, the counts of threads and the list of sleeping threads. A thread
//! without a job is **awake** if it will look at the queues before it sleeps. Under the lock one
//! invariant holds: **if a job may start, a thread is awake**, unless none could be started when
//! one was last needed.
//!
//! * [`Pool::submit`] wakes a thread if none is awake, or starts one if none sleeps.
//! * So does a thread that takes a job, if another one may start.
//! * A thread adds itself to the sleeping ones in the step in which it sees that no job may start.
//!   The thread that removes it counts it as awake in the same step, and then unparks it.
//!
//! **Why no job is left.** An awake thread acquires the lock without running foreign code, and
//! takes a job or finds that none may start. So no job waits behind a blocked one while the limit
//! of its class allows another thread. An unpark that precedes the park is kept. A thread that is
//! still listed after [`KEEP_ALIVE`] was not needed: it removes itself, and exits.
//!
//! **One thread is awake for any number of jobs**, so that many short calls cost few wake-ups:
//! until the next thread is running, the awake ones take one job after the other. (With 64 tasks
//! that call in a loop: 0.1 calls of futex(2) each, instead of 2.6 if each submitted job woke a
//! thread.) The thread that slept last is woken first: its memory is in the caches, and the others
//! exit.
//!
//! **A thread is awake again before it wakes the task that awaits its call**, so that sequential
//! calls need one thread and no spurious wake-ups. This holds for polder's own wakers, which only
//! queue a task. Any other waker may block: its thread counts as busy until it has returned
//! ([`Awaiter`]).
//!
//! The queues are plain lists under the lock, since jobs and counts change together. Queueing and
//! taking a job costs 94 instructions, 6 of them locked; with `concurrent-queue`, 292 and 11.
//!
//! **Cancelled jobs** stay queued, since finding one would take long, until they are the majority
//! ([`Pool::note_cancelled`]). The queues' memory is freed when the jobs have left them.
//!
//! Each [`Class`] of jobs has a separate limit, so that blocked calls do not delay name lookups,
//! nor lookups that wait for a dead name server calls.
//!
//! **If no thread can be started** (`EAGAIN`, a limit on processes), jobs run on the existing
//! threads, each of which tries again when it takes a job. If none is certain to become free,
//! [`Pool::submit`] fails, and queues nothing. But the calls of the existing threads may never end.
//! So one that has taken a job and cannot start another thread tries again after each of the
//! [`PAUSES`] before it runs that job, unless the last one that was needed could not be started
//! either: the pauses would delay each of many short calls. After that, and after a submission that
//! could start no thread, the queued jobs wait for the next submission or the end of a job.
//!
//! Jobs run, and what they own is dropped, outside the lock. Their panics do not end a thread.
//!
//! **A child of `fork`** has none of the threads, and gets a separate pool. There a [`Call`] of the
//! parent's pool completes without an output. If a job has forked, the child has its thread, and a
//! copy of the queues: the jobs are the parent's, and the locks may be held by its threads. So that
//! thread locks nothing more of its pool and its jobs, wakes nobody, and ends.

use std::collections::VecDeque;
use std::io;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::kernel::BlockingCall;
use crate::scheduler::{only_queues, record_wait};
use crate::slab::{KEPT, shrink_queue};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Handoff, Mutex, MutexGuard, contain, wake_all};
use crate::sys::{PerProcess, Process, start_thread, unsupported};
use crate::telemetry::WaitReason;

/// How long an idle thread waits for a job before it exits. Starting one takes some tens of
/// microseconds, which a program that calls less often does not notice.
const KEEP_ALIVE: Duration = Duration::from_millis(500);

/// The pauses between attempts to start a thread, by one that has taken a job. A transient `EAGAIN`
/// is over after 15 ms. A limit that lasts leaves the queued jobs to the existing threads.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(4),
    Duration::from_millis(8),
];

/// The maximum number of concurrent calls. They mostly wait (for a disk, a terminal, a child
/// process), so it exceeds the number of cores. The default, the variable and its bounds are those
/// of the crate `blocking`.
const MAX_CALLS: usize = 500;
const VARIABLE: &str = "BLOCKING_MAX_THREADS";
const BOUNDS: RangeInclusive<usize> = 1..=10_000;

/// The maximum number of concurrent name lookups. They wait for a name server, five seconds if it
/// does not answer (resolv.conf(5)): with a lower limit, that many unknown names would delay all
/// others.
const MAX_LOOKUPS: usize = 64;

/// Classes of jobs, of which the first has priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// Ends within a bounded time.
    Lookup,
    /// A function of the user, which may block forever.
    Call,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Load {
    /// The numbers of waiting and running jobs of a class that has reached its limit.
    pub(crate) full: Option<(usize, usize)>,
    pub(crate) is_idle: bool,
    pub(crate) done: usize,
}

/// A call for a thread of the pool.
pub(crate) trait Job: Send + Sync {
    /// Makes the call. Returns the waker of the task that awaits it, for the thread to wake: see
    /// the head.
    fn run(&self) -> Awaiter;

    /// Whether it was cancelled before it began. Called under the lock of the pool.
    fn is_cancelled(&self) -> bool;
}

/// The waker of the task, if any, that awaits a [`Job`].
#[derive(Default)]
#[must_use]
pub(crate) struct Awaiter {
    pub(crate) waker: Option<Waker>,
    /// Whether waking runs no foreign code, and so does not block: see `scheduler::only_queues`.
    pub(crate) only_queues: bool,
}

impl Awaiter {
    pub(crate) fn is_some(&self) -> bool {
        self.waker.is_some()
    }

    pub(crate) fn wake(self) {
        wake_all(self.waker);
    }
}

pub(crate) struct Pool {
    state: Mutex<State>,
    process: Process,
    /// Starts a thread that calls [`Pool::work`]. Tests replace it by one that fails.
    start: fn(&'static Pool) -> io::Result<()>,
}

struct State {
    queues: [Queue; 2],
    /// The number of threads that have no job, and look for one before they sleep.
    awake: usize,
    /// The sleeping threads, in the order in which they fell asleep.
    asleep: Vec<Thread>,
    done: usize,
    /// Counts the jobs that were cancelled since the queues were last cleared of them. Those that
    /// have left the queues otherwise are not subtracted.
    cancelled: usize,
}

struct Queue {
    jobs: VecDeque<Arc<dyn Job>>,
    running: usize,
    limit: usize,
}

pub(crate) static POOL: PerProcess<Pool> = PerProcess::new(|| Pool::new(start, max_calls()));

fn max_calls() -> usize {
    let variable = std::env::var(VARIABLE);
    let limit = variable.ok().and_then(|text| limit(&text));
    limit.unwrap_or(MAX_CALLS)
}

/// Returns `None` if the text is not a number.
fn limit(text: &str) -> Option<usize> {
    let limit: usize = text.parse().ok()?;
    Some(limit.clamp(*BOUNDS.start(), *BOUNDS.end()))
}

fn start(pool: &'static Pool) -> io::Result<()> {
    // Linux shows names of up to 15 bytes (prctl(2), PR_SET_NAME).
    start_thread("polder-blocking", Box::new(|| pool.work())).map(drop)
}

impl Queue {
    fn new(limit: usize) -> Queue {
        Queue {
            jobs: VecDeque::new(),
            running: 0,
            limit,
        }
    }

    fn startable(&self) -> usize {
        self.jobs.len().min(self.limit.saturating_sub(self.running))
    }
}

impl State {
    fn startable(&self) -> usize {
        self.queues.iter().map(Queue::startable).sum()
    }

    /// Whether a job may start and no thread is awake for it.
    fn needs_thread(&self) -> bool {
        self.awake == 0 && self.startable() > 0
    }

    fn take(&mut self) -> Option<(usize, Arc<dyn Job>)> {
        let class = self.queues.iter().position(|queue| queue.startable() > 0)?;
        let job = self.queues[class].jobs.pop_front()?;
        shrink_queue(&mut self.queues[class].jobs);
        self.queues[class].running += 1;
        self.awake -= 1;
        if self.cancelled > 0 && self.queues.iter().all(|queue| queue.jobs.is_empty()) {
            self.cancelled = 0;
        }
        Some((class, job))
    }

    fn done(&mut self, class: usize) {
        self.queues[class].running -= 1;
        self.awake += 1;
        self.done = self.done.wrapping_add(1);
    }

    /// Removes the cancelled jobs, which the caller drops outside the lock, if they may be the
    /// majority. Then it inspects no more than two jobs for each that was cancelled meanwhile.
    fn remove_cancelled(&mut self) -> Option<[VecDeque<Arc<dyn Job>>; 2]> {
        let queued: usize = self.queues.iter().map(|queue| queue.jobs.len()).sum();
        if self.cancelled < KEPT || self.cancelled <= queued / 2 {
            return None;
        }
        self.cancelled = 0;
        Some(self.queues.each_mut().map(|queue| {
            let mut cancelled = VecDeque::with_capacity(queue.jobs.len());
            queue.jobs.retain(|job| {
                let is_cancelled = job.is_cancelled();
                cancelled.extend(is_cancelled.then(|| job.clone()));
                !is_cancelled
            });
            shrink_queue(&mut queue.jobs);
            cancelled
        }))
    }

    /// Whether an existing thread is certain to become free for a job of this class. A call may
    /// never end, so only calls wait for it.
    fn is_served(&self, class: Class) -> bool {
        let [lookups, calls] = &self.queues;
        self.awake > 0 || lookups.running > 0 || class == Class::Call && calls.running > 0
    }
}

impl Pool {
    fn new(start: fn(&'static Pool) -> io::Result<()>, max_calls: usize) -> Pool {
        Pool {
            state: Mutex::new(State {
                queues: [Queue::new(MAX_LOOKUPS), Queue::new(max_calls)],
                awake: 0,
                asleep: Vec::new(),
                done: 0,
                cancelled: 0,
            }),
            process: Process::current(),
            start,
        }
    }

    pub(crate) fn load(&self) -> Load {
        let state = self.state.lock();
        let mut full = state.queues.iter().filter_map(|queue| {
            let live = queue.jobs.iter().filter(|job| !job.is_cancelled());
            let waiting = match state.cancelled {
                _ if queue.running < queue.limit => 0,
                0 => queue.jobs.len(),
                _ => live.count(),
            };
            (waiting > 0).then_some((waiting, queue.running))
        });
        Load {
            full: full.next(),
            is_idle: (state.queues.iter()).all(|queue| queue.jobs.is_empty() && queue.running == 0),
            done: state.done,
        }
    }

    /// Queues a job.
    ///
    /// # Errors
    ///
    /// If no thread can be started, and no existing one is certain to become free. The job is
    /// dropped.
    pub(crate) fn submit(&'static self, class: Class, job: Arc<dyn Job>) -> io::Result<()> {
        let mut state = self.state.lock();
        state.queues[class as usize].jobs.push_back(job);
        match self.find_thread(&mut state) {
            Ok(found) => {
                drop(state);
                wake(found);
                Ok(())
            }
            Err(_) if state.is_served(class) => Ok(()),
            Err(error) => {
                let job = state.queues[class as usize].jobs.pop_back();
                drop(state);
                discard(job);
                // Another kind: EAGAIN, for a lack of threads, is `WouldBlock`.
                Err(io::Error::other(format!(
                    "cannot start a thread for blocking calls: {error}"
                )))
            }
        }
    }

    /// Queues a call of `function`.
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit). The function is dropped.
    pub(crate) fn call<T, F>(&'static self, class: Class, function: F) -> io::Result<Call<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let (call, job) = Call::submitted(self, function);
        self.submit(class, job)?;
        Ok(call)
    }

    /// Keeps the invariant: starts a thread if needed, or removes a sleeping one from the list,
    /// which the caller has to [`wake`].
    fn find_thread(&'static self, state: &mut State) -> io::Result<Option<Thread>> {
        if !state.needs_thread() {
            return Ok(None);
        }
        let found = state.asleep.pop();
        if found.is_none() {
            // Under the lock, which the new thread takes first: a thread that fails to start was
            // never seen as awake.
            (self.start)(self)?;
        }
        state.awake += 1;
        Ok(found)
    }

    /// Called after a job was cancelled that may be queued. Never the other way round: a job that
    /// is counted too early would stay, and one that was removed before it is counted does no harm.
    #[cold]
    pub(crate) fn note_cancelled(&'static self) {
        let mut state = self.state.lock();
        state.cancelled += 1;
        let removed = state.remove_cancelled();
        drop(state);
        discard(removed);
    }

    /// Tries again to [find a thread](Self::find_thread), and wakes it. Returns whether it could,
    /// or none is needed any more.
    #[cold]
    fn wake_another_later(&'static self) -> bool {
        PAUSES.iter().any(|pause| {
            thread::sleep(*pause);
            let found = self.find_thread(&mut self.state.lock());
            found.map(wake).is_ok()
        })
    }

    fn work(&'static self) {
        // The last job's, if it is still to be woken.
        let mut awaiter = Awaiter::default();
        // Whether none could be started when one was last needed here, despite the pauses.
        let mut is_short = false;
        let mut state = self.state.lock();
        loop {
            if let Some((class, job)) = state.take() {
                let is_needed = state.needs_thread();
                let found = self.find_thread(&mut state);
                drop(state);
                std::mem::take(&mut awaiter).wake();
                // If no thread can be started, this one takes the next job later.
                let has_failed = found.map(wake).is_err();
                if is_needed {
                    is_short = has_failed && (is_short || !self.wake_another_later());
                }
                contain(|| awaiter = job.run());
                discard(job);
                if !awaiter.only_queues {
                    std::mem::take(&mut awaiter).wake();
                }
                // All foreign code that this thread runs is above, and any of it may fork.
                if !self.process.is_current() {
                    std::mem::forget(awaiter);
                    return;
                }
                state = self.state.lock();
                state.done(class);
            } else if awaiter.is_some() {
                drop(state);
                std::mem::take(&mut awaiter).wake();
                state = self.state.lock();
            } else {
                match self.sleep(state) {
                    Some(woken) => state = woken,
                    None => return,
                }
            }
        }
    }

    /// Returns `None` if the thread is to exit.
    fn sleep<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Option<MutexGuard<'a, State>> {
        let thread = thread::current();
        let id = thread.id();
        state.awake -= 1;
        state.asleep.push(thread);
        let (end, mut left) = (Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
        loop {
            drop(state);
            // Returns immediately if it was unparked meanwhile, and may return spuriously.
            thread::park_timeout(left);
            state = self.state.lock();
            let place = (state.asleep.iter()).position(|listed| listed.id() == id);
            let Some(place) = place else {
                return Some(state);
            };
            left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.asleep.remove(place);
                return None;
            }
        }
    }
}

/// Wakes a removed thread: outside the lock, which it takes first.
fn wake(found: Option<Thread>) {
    if let Some(thread) = found {
        thread.unpark();
    }
}

/// A call of a function on the pool. **Dropping it cancels the call** and drops the function, if
/// that has not begun.
pub(crate) struct Call<T> {
    shared: Arc<SharedCall<T>>,
    is_detached: bool,
}

pub(crate) struct SharedCall<T> {
    stage: Handoff<Stage<T>>,
    /// Whether the stored waker only queues its task: see [`Awaiter`]. Written under the lock of
    /// the stage that has stored it, and read under the one that takes it, so it is of no other
    /// waker.
    only_queues: AtomicBool,
    /// Whether its [`Call`] was dropped. Accessed under the stage's lock.
    is_unwanted: AtomicBool,
    /// The pool that it is for, unless it was never queued. (A kernel may have taken it.)
    pool: Option<&'static Pool>,
    /// The process that made it. In a child of `fork` the lock may be held by a thread of the
    /// parent.
    process: Process,
}

enum Stage<T> {
    Submitted(Box<dyn FnOnce() -> T + Send>),
    Running,
    /// The output, `None` after a panic, which a kernel has not handed over yet.
    #[cfg(feature = "kernel")]
    Called(Option<T>),
    /// The output; `None` if it was taken, the function panicked, or the call was cancelled.
    /// Dropped if there is no [`Call`], even if an `AbortHandle` keeps this.
    Done(Option<T>),
}

impl<T> Stage<T> {
    /// Takes the function, if no thread has, and leaves `next` in its place.
    fn take_function(&mut self, next: Stage<T>) -> Option<Box<dyn FnOnce() -> T + Send>> {
        match std::mem::replace(self, next) {
            Stage::Submitted(function) => Some(function),
            other => {
                *self = other;
                None
            }
        }
    }
}

impl<T> Call<T> {
    fn new(stage: Stage<T>, pool: Option<&'static Pool>) -> Call<T> {
        Call {
            shared: Arc::new(SharedCall {
                stage: Handoff::new(stage),
                only_queues: AtomicBool::new(false),
                is_unwanted: AtomicBool::new(false),
                pool,
                process: Process::current(),
            }),
            is_detached: false,
        }
    }

    /// Returns a call and the job for `pool`, which the caller submits.
    pub(crate) fn submitted<F>(pool: &'static Pool, function: F) -> (Call<T>, Arc<dyn Job>)
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let call = Call::new(Stage::Submitted(Box::new(function)), Some(pool));
        let job = call.shared.clone();
        (call, job)
    }

    /// Polls for the output. `None` if it was taken, or the function panicked or was cancelled; and
    /// in a child of the process that made the call.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Option<T>> {
        if !self.shared.process.is_current() {
            return Poll::Ready(None);
        }
        let output = |stage: &mut Stage<T>| match stage {
            Stage::Done(output) => Some(output.take()),
            _ => None,
        };
        self.shared.stage.poll_and_note(cx, output, |_| {
            let only_queues = only_queues(cx.waker());
            self.shared
                .only_queues
                .store(only_queues, Ordering::Relaxed);
        })
    }

    /// [`poll`](Self::poll), for a future that a task waits for. Fails in a child of the process
    /// that made the call.
    pub(crate) fn poll_output(&self, cx: &Context<'_>) -> Poll<io::Result<T>> {
        let polled = self.poll(cx);
        if polled.is_pending() {
            record_wait(WaitReason::Blocking);
        }
        let lost = "a blocking call was in progress when its process forked: it is the parent's";
        polled.map(|output| output.ok_or_else(|| unsupported(lost)))
    }

    pub(crate) fn done(output: T) -> Call<T> {
        Call::new(Stage::Done(Some(output)), None)
    }

    /// Out of line, like `poll_call` in `task`.
    #[inline(never)]
    pub(crate) fn is_done(&self) -> bool {
        self.shared.is_done()
    }

    pub(crate) fn shared(&self) -> &Arc<SharedCall<T>> {
        &self.shared
    }

    pub(crate) async fn cancel(self) -> Option<T> {
        self.shared.abort();
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    pub(crate) fn detach(self) {
        drop(self.detached());
    }

    /// Returns it as one that dropping does not cancel.
    pub(crate) fn detached(mut self) -> Call<T> {
        self.is_detached = true;
        self
    }
}

impl<T> SharedCall<T> {
    pub(crate) fn is_done(&self) -> bool {
        !self.process.is_current() || self.stage.update(|stage| matches!(stage, Stage::Done(_)))
    }

    /// Cancels the call if it has not begun. The awaiting task is woken after the function was
    /// dropped.
    pub(crate) fn abort(&self) {
        if !self.process.is_current() {
            return;
        }
        if let Some(function) = self
            .stage
            .update(|stage| stage.take_function(Stage::Running))
        {
            discard(function);
            self.stage
                .update_and_wake(|stage| *stage = Stage::Done(None));
            self.note_cancelled();
        }
    }

    fn note_cancelled(&self) {
        if let Some(pool) = self.pool {
            pool.note_cancelled();
        }
    }
}

impl<T> Drop for Call<T> {
    fn drop(&mut self) {
        if !self.shared.process.is_current() {
            // A thread of the parent may have held the lock.
            std::mem::forget(self.shared.clone());
            return;
        }
        self.shared.stage.clear_waker();
        // Drops any output here: the thread may keep the job for a while.
        let (function, output) = self.shared.stage.update(|stage| {
            self.shared.is_unwanted.store(true, Ordering::Relaxed);
            match stage {
                Stage::Done(output) => (None, output.take()),
                _ if self.is_detached => (None, None),
                stage => (stage.take_function(Stage::Done(None)), None),
            }
        });
        let is_cancelled = function.is_some();
        discard(function);
        discard(output);
        if is_cancelled {
            self.shared.note_cancelled();
        }
    }
}

impl<T: Send> Job for SharedCall<T> {
    fn run(&self) -> Awaiter {
        let function = (self.stage).update(|stage| stage.take_function(Stage::Running));
        let Some(function) = function else {
            return Awaiter::default(); // It was cancelled.
        };
        self.hand_over(called(function))
    }

    fn is_cancelled(&self) -> bool {
        (self.stage).update(|stage| !matches!(stage, Stage::Submitted(_)))
    }
}

fn called<T>(function: Box<dyn FnOnce() -> T + Send>) -> Option<T> {
    let output = catch_unwind(AssertUnwindSafe(function));
    output.map_err(std::mem::forget).ok()
}

impl<T: Send> SharedCall<T> {
    #[inline]
    fn hand_over(&self, mut output: Option<T>) -> Awaiter {
        if !self.process.is_current() {
            // The function has forked, and this is the child: a thread of the parent may hold the
            // lock, and the task that awaits the output is the parent's.
            std::mem::forget(output);
            return Awaiter::default();
        }
        let awaiter = self.stage.update_and_take(|stage| {
            let is_wanted = !self.is_unwanted.load(Ordering::Relaxed);
            *stage = Stage::Done(output.take_if(|_| is_wanted));
            self.only_queues.load(Ordering::Relaxed)
        });
        discard(output);
        Awaiter {
            only_queues: awaiter.0,
            waker: awaiter.1,
        }
    }
}

/// Run by a kernel that has taken the call.
impl<T: Send> BlockingCall for SharedCall<T> {
    fn run(&self) {
        #[cfg(feature = "kernel")]
        {
            let take = |stage: &mut Stage<T>| match stage {
                Stage::Called(output) => Some(output.take()),
                _ => None,
            };
            if let Some(output) = self.stage.update(take) {
                return self.hand_over(output).wake();
            }
        }
        Job::run(self).wake();
    }

    #[cfg(feature = "kernel")]
    fn prepare(&self) {
        let function = (self.stage).update(|stage| stage.take_function(Stage::Running));
        if let Some(function) = function {
            let output = called(function);
            if self.process.is_current() {
                self.stage.update(|stage| *stage = Stage::Called(output));
            } else {
                std::mem::forget(output); // As in `hand_over`.
            }
        }
    }
}

fn discard<T>(value: T) {
    contain(|| drop(value));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::StaticMutex;
    use futures_lite::future::{block_on, poll_once};
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::task::{RawWaker, RawWakerVTable};
    use std::thread;
    use std::time::Instant;

    /// The limit for events that must happen, however busy the machine is.
    const LIMIT: Duration = Duration::from_secs(30);

    fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn pool(lookups: usize, calls: usize) -> &'static Pool {
        started_by(start, lookups, calls)
    }

    fn started_by(
        start: fn(&'static Pool) -> io::Result<()>,
        lookups: usize,
        calls: usize,
    ) -> &'static Pool {
        let pool: &'static Pool = Box::leak(Box::new(Pool::new(start, calls)));
        pool.state.lock().queues[Class::Lookup as usize].limit = lookups;
        pool
    }

    #[test]
    fn environment_limit_must_be_in_range() {
        let limits = ["100", "0", "50000", "", "many"].map(limit);
        assert_eq!(limits, [Some(100), Some(1), Some(10_000), None, None]);
    }

    #[derive(Debug, PartialEq)]
    pub(crate) struct Counts {
        pub(crate) waiting: [usize; 2],
        running: [usize; 2],
        idle: usize,
    }

    impl Counts {
        fn threads(&self) -> usize {
            self.running.iter().sum::<usize>() + self.idle
        }
    }

    impl Pool {
        pub(crate) fn counts(&self) -> Counts {
            let state = self.state.lock();
            let [lookups, calls] = &state.queues;
            Counts {
                waiting: [lookups.jobs.len(), calls.jobs.len()],
                running: [lookups.running, calls.running],
                idle: state.awake + state.asleep.len(),
            }
        }

        fn wait_until_started(&self) {
            eventually("every job that may start does", || {
                self.state.lock().startable() == 0
            });
        }

        fn wait_until_empty(&self) {
            let none = Counts {
                waiting: [0, 0],
                running: [0, 0],
                idle: 0,
            };
            eventually("the threads end", || self.counts() == none);
        }
    }

    #[derive(Clone, Default)]
    struct Gate(Arc<(std::sync::Mutex<bool>, std::sync::Condvar)>);

    impl Gate {
        fn pass(&self) {
            let (open, opened) = &*self.0;
            drop(opened.wait_while(open.lock().unwrap(), |open| !*open));
        }

        fn open(&self) {
            *self.0.0.lock().unwrap() = true;
            self.0.1.notify_all();
        }

        fn calls(&self, pool: &'static Pool, class: Class, count: usize) -> Vec<Call<()>> {
            let call = |_| {
                let gate = self.clone();
                pool.call(class, move || gate.pass()).unwrap()
            };
            (0..count).map(call).collect()
        }
    }

    fn output<T>(call: &Call<T>) -> Option<T> {
        block_on(std::future::poll_fn(|cx| call.poll(cx)))
    }

    fn all(calls: Vec<Call<()>>) {
        for call in calls {
            assert_eq!(output(&call), Some(()));
        }
    }

    /// The thread of the previous call is awake again before the task is.
    #[test]
    fn calls_one_after_the_other_need_one_thread() {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let start: fn(&'static Pool) -> io::Result<()> = |pool| {
            STARTED.fetch_add(1, Ordering::SeqCst);
            start(pool)
        };
        let pool = started_by(start, 1, 500);
        let calls = async || {
            for number in 0..2_000 {
                let call = pool.call(Class::Call, move || number).unwrap();
                let output = std::future::poll_fn(|cx| call.poll(cx)).await;
                assert_eq!(output, Some(number));
            }
        };
        crate::block_on(calls());
        crate::block_on(crate::spawn(async move { calls().await }));
        // A thread may exit if the machine is busy for half a second.
        let started = STARTED.load(Ordering::SeqCst);
        assert!(started < 10, "{started} threads for one call at a time");
    }

    /// The next thread is started when the last one has begun to work.
    #[test]
    fn simultaneous_calls_start_threads_gradually() {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let start: fn(&'static Pool) -> io::Result<()> = |_| {
            STARTED.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        let pool = started_by(start, 1, 500);
        let gate = Gate::default();
        let calls = gate.calls(pool, Class::Call, 64);
        assert_eq!(STARTED.load(Ordering::SeqCst), 1);
        thread::spawn(|| pool.work());
        eventually("the one that has begun starts another", || {
            STARTED.load(Ordering::SeqCst) == 2
        });
        // It takes all calls before the other has started, and starts no third.
        gate.open();
        all(calls);
        assert_eq!(STARTED.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn no_call_waits_for_a_waker_that_blocks() {
        struct Blocks(Gate, AtomicBool);

        impl std::task::Wake for Blocks {
            fn wake(self: Arc<Self>) {
                self.1.store(true, Ordering::SeqCst);
                self.0.pass();
            }
        }

        let pool = pool(1, 5);
        let (gate, passed) = (Gate::default(), Gate::default());
        let blocks = Arc::new(Blocks(gate.clone(), AtomicBool::new(false)));
        let waker = std::task::Waker::from(blocks.clone());
        let calls = passed.calls(pool, Class::Call, 1);
        let cx = Context::from_waker(&waker);
        assert!(calls[0].poll(&cx).is_pending());
        passed.open();
        eventually("its waker blocks", || blocks.1.load(Ordering::SeqCst));
        assert_eq!(output(&pool.call(Class::Call, || 5).unwrap()), Some(5));
        gate.open();
        all(calls);
        pool.wait_until_empty();
    }

    thread_local! {
        static IN_CLONE: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
    }

    /// Calls what `IN_CLONE` has when it is cloned.
    fn foreign_waker() -> Waker {
        static TABLE: RawWakerVTable = RawWakerVTable::new(
            |data| {
                IN_CLONE.take().into_iter().for_each(|f| f());
                RawWaker::new(data, &TABLE)
            },
            |_| (),
            |_| (),
            |_| (),
        );
        // SAFETY: it has no data, and its functions may be called on any thread.
        unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE)) }
    }

    /// The call ends while a foreign waker is cloned, which is to replace the task's own. (The
    /// reverse, a foreign waker that runs on a thread which counts as awake, stops the pool.)
    #[test]
    fn call_that_ends_within_a_clone_knows_its_waker() {
        crate::block_on(std::future::poll_fn(|cx| {
            let (call, job) = Call::submitted(pool(1, 1), || 5);
            assert!(call.poll(cx).is_pending());
            let ended = Rc::new(Cell::new(Awaiter::default()));
            let end = ended.clone();
            IN_CLONE.set(Some(Box::new(move || end.set(job.run()))));
            let foreign = foreign_waker();
            assert_eq!(
                call.poll(&Context::from_waker(&foreign)),
                Poll::Ready(Some(5))
            );
            let awaiter = ended.take();
            assert!(awaiter.waker.unwrap().will_wake(cx.waker()));
            assert!(awaiter.only_queues, "taken for a foreign one");
            Poll::Ready(())
        }));
    }

    /// The thread that fell asleep last takes each of these calls.
    #[test]
    fn threads_that_few_calls_do_not_need_end() {
        let pool = pool(1, 10);
        let gate = Gate::default();
        let calls = gate.calls(pool, Class::Call, 10);
        pool.wait_until_started();
        gate.open();
        all(calls);
        eventually("one thread is left", || {
            all(gate.calls(pool, Class::Call, 1));
            pool.counts().threads() == 1
        });
    }

    #[test]
    fn full_when_jobs_wait_for_others() {
        let pool = pool(1, 2);
        let gate = Gate::default();
        let calls = gate.calls(pool, Class::Call, 2);
        pool.wait_until_started();
        let load = pool.load();
        assert!(load.full.is_none() && !load.is_idle && load.done == 0);
        let more = gate.calls(pool, Class::Call, 3);
        let load = pool.load();
        assert!(load.full == Some((3, 2)) && !load.is_idle && load.done == 0);
        gate.open();
        pool.wait_until_empty();
        let load = pool.load();
        assert!(load.full.is_none() && load.is_idle && load.done == 5);
        drop((calls, more));
    }

    #[test]
    fn lookups_at_once_within_limit() {
        let gate = Gate::default();
        let pool = POOL.get();
        let lookups = gate.calls(pool, Class::Lookup, 3 * MAX_LOOKUPS);
        pool.wait_until_started();
        let counts = pool.counts();
        assert_eq!(counts.running[0], MAX_LOOKUPS, "{counts:?}");
        assert!(counts.waiting[0] >= 2 * MAX_LOOKUPS, "{counts:?}");
        gate.open();
        all(lookups);
    }

    #[test]
    fn class_has_own_threads_within_limit() {
        let pool = pool(2, 5);
        let (lookups, calls) = (Gate::default(), Gate::default());
        let blocked = calls.calls(pool, Class::Call, 20);
        pool.wait_until_started();
        let more = lookups.calls(pool, Class::Lookup, 20);
        pool.wait_until_started();
        let expected = Counts {
            waiting: [18, 15],
            running: [2, 5],
            idle: 0,
        };
        assert_eq!(pool.counts(), expected);
        // The idle threads that had calls take no lookups beyond the limit.
        calls.open();
        all(blocked);
        eventually("the calls are counted as done", || {
            let counts = pool.counts();
            (counts.waiting, counts.running) == ([18, 0], [2, 0])
        });
        // Calls can be made although the limit of lookups is reached.
        all(calls.calls(pool, Class::Call, 20));
        lookups.open();
        all(more);
        assert!(pool.counts().threads() <= 7);
        pool.wait_until_empty();
    }

    #[test]
    fn panicking_job_counted_thread_lives() {
        let pool = pool(1, 2);
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("a destructor that panics, on purpose");
            }
        }
        impl Job for Bomb {
            fn run(&self) -> Awaiter {
                std::panic::panic_any(Bomb);
            }

            fn is_cancelled(&self) -> bool {
                false
            }
        }
        for _ in 0..10 {
            pool.submit(Class::Call, Arc::new(Bomb)).unwrap();
            let call = pool.call(Class::Lookup, || std::panic::panic_any(Bomb));
            assert_eq!(output::<()>(&call.unwrap()), None);
            // Cancelled or called, depending on which comes first.
            let bomb = Bomb;
            drop(pool.call(Class::Call, move || drop(bomb)));
            assert_eq!(output(&pool.call(Class::Call, || 5).unwrap()), Some(5));
        }
        pool.wait_until_empty();
    }

    #[derive(Default)]
    struct Probe {
        kept: Arc<()>,
        is_made: Arc<AtomicBool>,
    }

    impl Probe {
        fn call(&self, pool: &'static Pool) -> Call<()> {
            let (kept, is_made) = (self.kept.clone(), self.is_made.clone());
            let call = pool.call(Class::Call, move || {
                is_made.store(true, Ordering::SeqCst);
                drop(kept);
            });
            call.unwrap()
        }

        fn is_kept(&self) -> bool {
            Arc::strong_count(&self.kept) > 1
        }
    }

    /// Its function is dropped immediately.
    #[test]
    fn call_cancelled_before_start_never_runs() {
        let pool = pool(1, 1);
        let gate = Gate::default();
        let blocked = gate.calls(pool, Class::Call, 1);
        let probe = Probe::default();
        let polled = probe.call(pool);
        let poll = std::future::poll_fn(|cx| polled.poll(cx));
        assert_eq!(block_on(poll_once(poll)), None);
        assert!(probe.is_kept());
        drop(polled);
        assert!(!probe.is_kept());
        drop(probe.call(pool));
        assert!(!probe.is_kept());
        gate.open();
        all(blocked);
        pool.wait_until_empty();
        assert!(!probe.is_made.load(Ordering::SeqCst));
    }

    /// On a full pool, where it would never begin.
    #[test]
    fn queued_call_cancelled_ends_at_once() {
        let pool = pool(1, 1);
        let gate = Gate::default();
        let blocked = gate.calls(pool, Class::Call, 1);
        pool.wait_until_started();
        let probe = Probe::default();
        let cancelled = probe.call(pool);
        assert_eq!(block_on(poll_once(cancelled.cancel())), Some(None));
        assert!(!probe.is_kept());

        let aborted = probe.call(pool);
        let waits = thread::scope(|scope| {
            let waits = scope.spawn(|| output(&aborted));
            aborted.shared().abort();
            assert!(aborted.is_done());
            assert!(!probe.is_kept());
            waits.join().unwrap()
        });
        assert_eq!(waits, None);
        gate.open();
        all(blocked);
        pool.wait_until_empty();
        assert!(!probe.is_made.load(Ordering::SeqCst));
    }

    #[test]
    fn cancelled_calls_leave_a_queue() {
        let pool = pool(1, 1);
        let gate = Gate::default();
        let mut calls = gate.calls(pool, Class::Call, 1);
        pool.wait_until_started();
        // In place of a lookup, which would start a thread.
        pool.state.lock().queues[Class::Lookup as usize].limit = 0;
        let count = || pool.counts().waiting.iter().sum::<usize>();
        for number in 0..10_000_usize {
            let class = [Class::Lookup, Class::Call][number % 2];
            let call = pool.call(class, || ()).unwrap();
            match number % 3 {
                0 => call.shared().abort(),
                _ => drop(call),
            }
            assert!(count() <= 2 * KEPT, "{} after {number}", count());
        }
        // All at once; and those that are wanted stay, in their order.
        let (made, order) = std::sync::mpsc::channel();
        for number in 0..10_000 {
            let made = made.clone();
            let call = pool.call(Class::Call, move || made.send(number).unwrap());
            calls.extend(call);
        }
        let wanted = calls.split_off(9_990);
        assert_eq!(pool.load().full.unwrap().0, 10_000);
        let blocked = calls.swap_remove(0);
        drop(calls);
        assert!(count() < 2 * KEPT, "{}", count());
        assert_eq!(pool.load().full, Some((wanted.len(), 1)));
        pool.state.lock().queues[Class::Lookup as usize].limit = 1;
        gate.open();
        all(wanted);
        all(vec![blocked]);
        assert!(order.try_iter().eq(9_989..10_000));
        pool.wait_until_empty();
    }

    #[test]
    fn memory_of_a_queue_is_freed_afterwards() {
        let pool = pool(1, 1);
        let gate = Gate::default();
        let calls = gate.calls(pool, Class::Call, 10_000);
        let capacity = || pool.state.lock().queues[1].jobs.capacity();
        assert!(capacity() > 2 * KEPT);
        gate.open();
        all(calls);
        assert!(capacity() <= 2 * KEPT, "{}", capacity());
        pool.wait_until_empty();
    }

    /// An output that is not taken is dropped by the thread that drops or detaches its call.
    #[test]
    fn unclaimed_output_dropped_by_its_dropper() {
        let pool = pool(1, 1);
        for end in [drop, Call::detach] {
            let alive = Arc::new(());
            let output = alive.clone();
            let call = pool.call(Class::Call, move || output).unwrap();
            // As the calling thread may, for a while.
            let held_by_the_thread = call.shared.clone();
            eventually("the call is made", || call.is_done());
            end(call);
            assert_eq!(Arc::strong_count(&alive), 1);
            drop(held_by_the_thread);
        }
        pool.wait_until_empty();
    }

    /// An output without a call is dropped although others keep the shared part.
    #[test]
    fn unclaimed_output_dropped_despite_sharers() {
        let pool = pool(1, 1);
        for end in [drop, Call::detach] {
            let (gate, alive) = (Gate::default(), Arc::new(()));
            let (passed, output) = (gate.clone(), alive.clone());
            let is_running = Arc::new(AtomicBool::new(false));
            let runs = is_running.clone();
            let function = move || {
                runs.store(true, Ordering::SeqCst);
                passed.pass();
                output
            };
            let call = pool.call(Class::Call, function).unwrap();
            let held_by_an_abort_handle = call.shared.clone();
            eventually("it runs", || is_running.load(Ordering::SeqCst));
            end(call);
            gate.open();
            eventually("it ends", || held_by_an_abort_handle.is_done());
            eventually("it is dropped", || Arc::strong_count(&alive) == 1);
        }
        pool.wait_until_empty();
    }

    static THREADS: AtomicBool = AtomicBool::new(true);

    /// Held by a test that makes thread creation fail.
    static REFUSING: StaticMutex<()> = StaticMutex::new(());

    fn start_unless_refused(pool: &'static Pool) -> io::Result<()> {
        if THREADS.load(Ordering::SeqCst) {
            start(pool)
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    /// If there are no threads and none can be started, a job is refused with a message.
    #[test]
    fn no_thread_at_all_refuses_job() {
        let _alone = REFUSING.lock();
        let pool = started_by(start_unless_refused, 1, 5);
        THREADS.store(false, Ordering::SeqCst);
        for class in [Class::Call, Class::Lookup] {
            let error = pool.call(class, || ()).err().expect("there are no threads");
            assert!(error.to_string().contains("cannot start"), "{error}");
            assert_ne!(error.kind(), io::ErrorKind::WouldBlock);
        }
        assert_eq!(pool.counts().waiting, [0, 0]);
        THREADS.store(true, Ordering::SeqCst);
        assert_eq!(output(&pool.call(Class::Call, || 5).unwrap()), Some(5));
        pool.wait_until_empty();
    }

    #[test]
    fn failed_thread_start_leaves_jobs_to_others() {
        let _alone = REFUSING.lock();
        let pool = started_by(start_unless_refused, 1, 5);
        let gate = Gate::default();
        let mut calls = gate.calls(pool, Class::Call, 1);
        pool.wait_until_started();
        THREADS.store(false, Ordering::SeqCst);
        // The existing thread takes these.
        calls.extend(gate.calls(pool, Class::Call, 9));
        assert_eq!(pool.counts().threads(), 1);
        // A call may never end, so no lookup waits for it.
        assert!(pool.call(Class::Lookup, || ()).is_err());
        gate.open();
        all(calls);
        eventually("they are counted as done", || {
            pool.counts().running == [0, 0]
        });
        // Once threads can be started again, as many as are needed start.
        THREADS.store(true, Ordering::SeqCst);
        let gate = Gate::default();
        let mut calls = gate.calls(pool, Class::Call, 1);
        pool.wait_until_started();
        THREADS.store(false, Ordering::SeqCst);
        calls.extend(gate.calls(pool, Class::Call, 8));
        assert_eq!(pool.counts().threads(), 1);
        THREADS.store(true, Ordering::SeqCst);
        calls.extend(gate.calls(pool, Class::Call, 1));
        eventually("threads are started", || pool.counts().running[1] == 5);
        gate.open();
        all(calls);
        pool.wait_until_empty();
    }

    /// Although the call of the first thread does not end, and nobody else tries. Where no attempt
    /// succeeds, its pauses do not delay each of many calls.
    #[test]
    fn failed_thread_start_is_tried_again() {
        static ATTEMPTS: AtomicUsize = AtomicUsize::new(0);
        static FAILURES: AtomicUsize = AtomicUsize::new(0);
        let start: fn(&'static Pool) -> io::Result<()> = |pool| {
            let number = ATTEMPTS.fetch_add(1, Ordering::SeqCst);
            if (1..=FAILURES.load(Ordering::SeqCst)).contains(&number) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            // The test makes the first one.
            if number > 0 { start(pool) } else { Ok(()) }
        };
        for failures in [1, PAUSES.len(), usize::MAX] {
            ATTEMPTS.store(0, Ordering::SeqCst);
            FAILURES.store(failures, Ordering::SeqCst);
            let pool = started_by(start, 1, 5);
            let gate = Gate::default();
            let mut calls = gate.calls(pool, Class::Call, 2);
            thread::spawn(|| pool.work());
            if failures < usize::MAX {
                eventually("another thread is started", || {
                    pool.counts().running == [0, 2]
                });
                assert_eq!(ATTEMPTS.load(Ordering::SeqCst), 2 + failures);
                gate.open();
            } else {
                calls.extend(gate.calls(pool, Class::Call, 8));
                gate.open();
                all(calls.split_off(1));
                // For each submission and each job that is taken, and the pauses are made once.
                let attempts = ATTEMPTS.load(Ordering::SeqCst);
                assert!(attempts <= 10 + 10 + PAUSES.len(), "{attempts}");
            }
            all(calls);
            pool.wait_until_empty();
        }
    }

    /// Pairs of calls, one after the other: the second of each finds that no thread is needed.
    #[test]
    fn lasting_limit_is_waited_for_once() {
        static ATTEMPTS: AtomicUsize = AtomicUsize::new(0);
        let start: fn(&'static Pool) -> io::Result<()> = |_| {
            // The test makes the first one.
            match ATTEMPTS.fetch_add(1, Ordering::SeqCst) {
                0 => Ok(()),
                _ => Err(io::ErrorKind::WouldBlock.into()),
            }
        };
        let pool = started_by(start, 1, 5);
        let gate = Gate::default();
        let first = gate.calls(pool, Class::Call, 1);
        thread::spawn(|| pool.work());
        eventually("it runs", || pool.counts().running == [0, 1]);
        gate.open();
        all(first);
        for _ in 0..10 {
            let gate = Gate::default();
            let pair = gate.calls(pool, Class::Call, 2);
            gate.open();
            all(pair);
        }
        pool.wait_until_empty();
        // For each submission and each job that is taken, and the pauses are made once.
        let attempts = ATTEMPTS.load(Ordering::SeqCst);
        assert!(attempts <= 21 + 21 + PAUSES.len(), "{attempts}");
    }

    #[test]
    fn many_threads_submit_cancel_and_await_at_once() {
        let pool = pool(3, 4);
        let running = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let running: &'static [AtomicUsize; 2] = Box::leak(Box::new(running));
        thread::scope(|scope| {
            for seed in 0..4_usize {
                scope.spawn(move || {
                    for step in seed..seed + 500 {
                        let class = [Class::Lookup, Class::Call][step % 2];
                        let call = pool.call(class, move || {
                            let now = &running[class as usize];
                            let most = [3, 4][class as usize];
                            assert!(now.fetch_add(1, Ordering::SeqCst) < most);
                            thread::yield_now();
                            now.fetch_sub(1, Ordering::SeqCst);
                            step
                        });
                        let call = call.unwrap();
                        match step % 3 {
                            0 => drop(call),
                            _ => assert_eq!(output(&call), Some(step)),
                        }
                    }
                });
            }
        });
        pool.wait_until_empty();
    }
}
