//! One thread's loop: run tasks, fire deadlines, wait for I/O.
//!
//! **A turn** is a run and a pause, in whichever order its caller wants:
//!
//! * [`run_ready`](Worker::run_ready) runs ready tasks, [`EVENT_INTERVAL`] at most.
//! * [`pause`](Worker::pause) takes what other threads sent; if there is nothing to run, it parks and
//!   sleeps until the earliest deadline, the caller's timeout, an event or a notification, else it
//!   looks without sleeping. It wakes whose sources and deadlines are ready. Then those that yielded
//!   are ready again: a loop of yields cannot get ahead of the poll.
//!
//! Between two tasks of its own a pool worker of a runtime (see [`shared`](super::shared)) starts one that
//! nobody has started yet, now and then, or whenever it has none of its own.
//!
//! Before it sleeps a worker may poll for a while: see [`busy`](super::busy).
//!
//! No clock is read when no timer is pending. The kernel is not asked when there are tasks to run
//! and no source is registered: there is nothing that it could say.
//!
//! **Embedding.** Once [`backend_fd`](Worker::backend_fd) was called, a foreign loop waits for us
//! on it. Then between turns the worker counts as parked, also for wakes from its own thread, whose
//! current worker it is not: they go through the inbox and notify. Each drive ends by arming the
//! earliest deadline in the kernel, and by a notification of its own if tasks are left.
//!
//! **Closing**, in phases:
//!
//! 1. Mark: tasks spawned from here on are cancelled at once, and pool workers leave their loop.
//! 2. Each worker, on its own thread ([`drop_tasks`](Worker::drop_tasks)), drops every runnable that is
//!    queued, and with it its future, and wakes every other live task, so that it is queued too; until
//!    none is left: one whose wake is on its way arrives in the inbox. The worker is current
//!    meanwhile, so that destructors may wake, spawn, and use sockets and timers. Then it closes its
//!    reactor: sockets and timers that live on elsewhere are sent there.
//! 3. The main worker drops what never started, and waits until the pool workers have left. (After that only a
//!    foreign thread may still be about to hand over a task; it is waited for.)

use std::cell::Cell;
use std::future::Future;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Runnable;
use super::balance::{DEFER_TIMEOUT, InjectedAction};
use super::busy::{BusyPoll, BusyPollConfig};
use super::local::{self, Local};
use super::shared::{Remote, Shared};
use crate::reactor::{BATCH, Driver, Reactor, now};
use crate::sync::atomic::{AtomicBool, Ordering, fence};
use crate::sys::BorrowedDescriptor;

/// Tasks run between two looks at the kernel.
const EVENT_INTERVAL: usize = BATCH;

/// How long a worker sleeps that cannot wait: long enough to leave the core to others, short enough to end
/// soon what waits for it.
const RETRY_DELAY: Duration = Duration::from_millis(1);

/// A pool worker with tasks of its own starts another one every so many runs.
const INJECT_INTERVAL: usize = 8;

pub(crate) struct Worker {
    pub(crate) local: Rc<Local>,
    driver: Rc<Driver>,
    embedded: Cell<bool>,
    busy_poll: BusyPoll,
    /// Counts a pool worker's runs.
    runs: Cell<usize>,
    /// It was woken for tasks that have not started, and has not come yet.
    searching: Cell<bool>,
    /// Its poller cannot wait any more.
    is_broken: Cell<bool>,
    /// How many calls drive it, one within the other: a task, or a waker, may drive its own runtime.
    drives: Cell<usize>,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, index: usize, busy_poll: BusyPollConfig) -> Worker {
        Worker {
            driver: Rc::new(Driver::new(shared.remote(index).reactor.clone())),
            local: Rc::new(Local::new(shared, index)),
            embedded: Cell::new(false),
            busy_poll: BusyPoll::new(busy_poll),
            runs: Cell::new(0),
            searching: Cell::new(false),
            is_broken: Cell::new(false),
            drives: Cell::new(0),
        }
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.local.shared
    }

    #[inline]
    fn remote(&self) -> &Remote {
        self.local.remote()
    }

    #[inline]
    pub(crate) fn reactor(&self) -> &Reactor {
        &self.remote().reactor
    }

    /// Drives the worker until `future` is done.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        let _driving = self.drive();
        let main = Arc::new(MainWaker {
            woken: AtomicBool::new(true),
            reactor: self.remote().reactor.clone(),
        });
        let waker = Waker::from(main.clone());
        let mut cx = Context::from_waker(&waker);
        let mut future = pin!(future);
        loop {
            // The future has its turns among the tasks, and yields like one.
            let mut yielded = false;
            for _ in 0..EVENT_INTERVAL {
                if !yielded && main.woken.load(Ordering::Relaxed) {
                    main.woken.swap(false, Ordering::Acquire);
                    // Before the future finds its tasks cancelled, which says less.
                    self.panic_if_failed();
                    self.local.renew_budget();
                    if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                        return output;
                    }
                    yielded = main.woken.load(Ordering::Relaxed);
                } else if !self.run_next() {
                    break;
                }
            }
            let timeout = yielded.then_some(Duration::ZERO);
            self.pause(timeout, &|| {
                main.woken.load(Ordering::Relaxed) || self.has_failed()
            });
            self.panic_if_failed();
        }
    }

    /// Drives the worker for ever.
    pub(crate) fn drive_forever(&self) -> ! {
        let _driving = self.drive();
        loop {
            self.run_ready();
            self.pause(None, &|| self.has_failed());
            self.panic_if_failed();
        }
    }

    /// Drives the worker until its runtime has no task left, or `deadline` has come.
    pub(crate) fn run(&self, deadline: Option<Instant>) {
        /// Not longer than this lasts, whatever happens.
        struct Watch<'a>(&'a Shared);
        impl Drop for Watch<'_> {
            fn drop(&mut self) {
                self.0.unwatch();
            }
        }
        let _driving = self.drive();
        let shared = &**self.shared();
        let _watch = Watch(shared);
        shared.watch();
        loop {
            self.run_ready();
            let left = deadline.map(|deadline| deadline.saturating_duration_since(now()));
            if shared.live_tasks() == 0 || left == Some(Duration::ZERO) {
                return;
            }
            self.pause(left, &|| shared.live_tasks() == 0 || self.has_failed());
            self.panic_if_failed();
        }
    }

    /// Drives the worker for one turn. True if there was anything to do.
    pub(crate) fn turn(&self, timeout: Option<Duration>) -> bool {
        let _driving = self.drive();
        let any = self.pause(timeout, &|| self.has_failed());
        self.panic_if_failed();
        any | self.run_ready()
    }

    /// Drives a pool worker of a runtime until the runtime closes.
    pub(crate) fn run_pool_worker(&self) {
        /// Also if it panics: else the main worker would wait for ever.
        struct ExitGuard<'a>(&'a Shared);
        impl Drop for ExitGuard<'_> {
            fn drop(&mut self) {
                self.0.worker_exited();
            }
        }
        let shared = &**self.shared();
        let _exit_guard = ExitGuard(shared);
        let _driving = self.drive();
        let served = catch_unwind(AssertUnwindSafe(|| {
            while !shared.is_closing() {
                self.run_ready();
                self.pause(None, &|| shared.is_closing());
            }
        }));
        if let Err(panic) = served {
            // Its tasks can be dropped here and nowhere else, so it goes on for that.
            shared.fail("a worker of the runtime has panicked".into());
            std::mem::forget(panic); // Its destructor may panic too; the hook has told of it.
        }
        self.drop_tasks();
        self.driver.close();
    }

    /// Whether the runtime has closed by itself: looked at before a sleep, but for those of its end.
    #[inline]
    fn has_failed(&self) -> bool {
        self.shared().failure().is_some()
    }

    /// Tells whoever drives the main worker that the runtime has closed by itself.
    #[inline]
    fn panic_if_failed(&self) {
        if let Some(why) = self.shared().failure() {
            self.panic_with(why);
        }
    }

    #[cold]
    fn panic_with(&self, why: &str) -> ! {
        panic!("polder: {why}");
    }

    /// Sleeps unless there is something to do, or `stay_awake` says so. True if anything was woken.
    fn pause(&self, timeout: Option<Duration>, stay_awake: &dyn Fn() -> bool) -> bool {
        let local = &*self.local;
        let reactor = self.reactor();
        let mut any = false;
        let may_sleep = timeout != Some(Duration::ZERO) && !local.has_work() && !stay_awake();
        let slept = may_sleep
            && match self.busy_poll.is_enabled() {
                true => self.poll_then_sleep(timeout, stay_awake, &mut any),
                false => self.sleep(timeout, stay_awake, &mut any),
            };
        if !slept && (reactor.has_sources() || self.embedded.get()) {
            any |= self.wait(Some(Duration::ZERO));
        }
        self.resume();
        any |= self.driver.fire(|| self.before_wakers());
        local.take_inbox();
        local.release_yielded();
        if local.is_pool_worker() {
            if self.searching.take() {
                self.search();
            }
            local.update_deferral();
        }
        any
    }

    /// The worker is awake, and others may no longer take it for a find_idle.
    #[inline]
    fn resume(&self) {
        let local = &*self.local;
        if self.reactor().resume()
            && local.is_pool_worker()
            && local.shared.is_searching(local.index)
        {
            self.searching.set(true);
        }
    }

    /// Wakers are about to be called, which may block: whatever this worker was woken for is left to
    /// others. (If they do not come, it finds it when it is done.)
    #[inline]
    fn before_wakers(&self) {
        if self.searching.take() {
            self.local.shared.end_search(self.local.index);
        }
    }

    /// It was woken for tasks that have not started: takes one, and lets the next worker be woken.
    #[cold]
    fn search(&self) {
        let local = &*self.local;
        if let Some(runnable) = local.take_injected() {
            // Nobody else can have it any more, so it is the first that runs here.
            local.push_front(runnable);
            self.runs.set(0);
        }
        local.shared.end_search(local.index);
    }

    /// Waits until there is something to do; false if there is by now. `any` tells whether something
    /// was woken.
    #[inline]
    fn sleep(
        &self,
        timeout: Option<Duration>,
        stay_awake: &dyn Fn() -> bool,
        any: &mut bool,
    ) -> bool {
        let local = &*self.local;
        let reactor = self.reactor();
        reactor.park();
        // The last look, in each place where another thread may have put something: the inbox, the
        // tasks that have not started, what `stay_awake` looks at, and, in `next_timeout`, the
        // deadlines.
        if local.remote().has_inbox() || stay_awake() {
            return false;
        }
        let earliest = |a: Option<Duration>, b| a.into_iter().chain(b).min();
        let timeout = earliest(timeout, self.driver.next_timeout());
        if !local.is_pool_worker() {
            *any |= self.wait(timeout);
            return true;
        }
        match local.injected_action() {
            InjectedAction::Take => return false,
            InjectedAction::None => {
                local.shared.notify_watchers();
                *any |= self.wait(timeout);
            }
            InjectedAction::Defer => {
                local.remote().set_deferring(true);
                local.shared.wake_one();
                *any |= self.wait(earliest(timeout, Some(DEFER_TIMEOUT)));
                local.remote().set_deferring(false);
            }
        }
        true
    }

    /// [`sleep`](Self::sleep), after polling for a while where that pays; and learns whether it does.
    fn poll_then_sleep(
        &self,
        timeout: Option<Duration>,
        stay_awake: &dyn Fn() -> bool,
        any: &mut bool,
    ) -> bool {
        let start = now();
        let slept = (self.busy_poll.should_poll()
            && self.busy_poll(start, timeout, stay_awake, any))
            || self.sleep(timeout, stay_awake, any);
        let idle = now() - start;
        // A timeout that ends in vain tells only that something is not that quick.
        if timeout.is_none_or(|timeout| idle < timeout) || idle > self.busy_poll.limit() {
            self.busy_poll.record(idle);
        }
        slept
    }

    /// Looks again and again; false if that was in vain. Meanwhile the worker counts as awake: what
    /// others send, it sees.
    fn busy_poll(
        &self,
        start: Instant,
        timeout: Option<Duration>,
        stay_awake: &dyn Fn() -> bool,
        any: &mut bool,
    ) -> bool {
        let local = &*self.local;
        let reactor = self.reactor();
        if local.is_pool_worker() {
            fence(Ordering::SeqCst);
            local.shared.notify_watchers();
        }
        loop {
            if reactor.has_sources() && self.wait(Some(Duration::ZERO)) {
                *any = true;
                return true;
            }
            let is_due = self.driver.next_timeout() == Some(Duration::ZERO);
            let action = local.injected_action();
            if is_due
                || local.remote().has_inbox()
                || stay_awake()
                || action == InjectedAction::Take
            {
                return true;
            }
            // Others are to be told of it, and it is not left to them for longer than `DEFER_TIMEOUT`.
            if action == InjectedAction::Defer || local.shared.is_crowded(self.busy_poll.cores()) {
                return false;
            }
            let idle = now() - start;
            if timeout.is_some_and(|timeout| idle >= timeout) {
                return true;
            }
            if idle >= self.busy_poll.limit() {
                return false;
            }
            std::hint::spin_loop();
        }
    }

    /// Waits once. True if anything was woken.
    #[inline]
    fn wait(&self, timeout: Option<Duration>) -> bool {
        if self.is_broken.get() {
            return self.sleep_briefly(timeout);
        }
        let awake = |is_followed_by_wakers| {
            self.resume();
            if is_followed_by_wakers {
                self.before_wakers();
            }
        };
        match self.driver.wait(timeout, awake) {
            Ok(any) => any,
            // The kernel is short of memory: poll and select ask for some in each call. Some systems say
            // so by EAGAIN.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock
                ) =>
            {
                self.sleep_briefly(timeout)
            }
            Err(error) => self.fail(timeout, &error),
        }
    }

    /// The poller cannot wait any more: its own descriptor was closed by somebody else, or the process
    /// may no longer ask about as many. No source or notification would ever be told again, so the
    /// runtime ends.
    #[cold]
    fn fail(&self, timeout: Option<Duration>, error: &io::Error) -> bool {
        self.is_broken.set(true);
        let shared = self.shared();
        if shared.is_closing() {
            return self.sleep_briefly(timeout);
        }
        let backend = self.reactor().poller().backend();
        shared.fail(format!(
            "the runtime ends, since a worker cannot wait on {backend}: {error}"
        ));
        if self.local.is_pool_worker() {
            // Whoever drives the main worker panics with the same words, if anybody does.
            let why = shared.failure().unwrap_or_default();
            let _ = writeln!(io::stderr(), "polder: {why}");
        }
        false
    }

    /// In the place of a wait that is not to be had. What others send is found when it is over.
    #[cold]
    fn sleep_briefly(&self, timeout: Option<Duration>) -> bool {
        self.resume();
        std::thread::sleep(timeout.map_or(RETRY_DELAY, |timeout| timeout.min(RETRY_DELAY)));
        false
    }

    /// True if there was any.
    fn run_ready(&self) -> bool {
        (0..EVENT_INTERVAL).take_while(|_| self.run_next()).count() > 0
    }

    /// Runs the next ready task; false if there is none.
    fn run_next(&self) -> bool {
        match self.next() {
            None => false,
            Some(runnable) => {
                self.local.renew_budget();
                runnable.run();
                if self.local.is_pool_worker() {
                    self.local.wake_for_spawned();
                }
                true
            }
        }
    }

    #[inline]
    fn next(&self) -> Option<Runnable> {
        let local = &*self.local;
        if !local.is_pool_worker() {
            return local.pop();
        }
        let count = self.runs.get();
        self.runs.set(count.wrapping_add(1));
        match count % INJECT_INTERVAL == INJECT_INTERVAL - 1 {
            true => local.take_injected().or_else(|| local.pop()),
            false => local.pop().or_else(|| local.take_injected()),
        }
    }

    /// How long a foreign loop may sleep. `None`: until the worker is notified.
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        self.driver.let_go(|| {});
        match self.local.has_work() || self.remote().has_inbox() || self.has_failed() {
            true => Some(Duration::ZERO),
            false => self.driver.next_timeout(),
        }
    }

    /// The descriptor that is readable when a turn has something to do, from now on.
    pub(crate) fn backend_fd(&self) -> io::Result<BorrowedDescriptor<'_>> {
        let descriptor = self.reactor().descriptor()?;
        if !self.embedded.get() {
            // What arming needs is made here, where it may fail; later nobody could be told.
            self.reactor()
                .poller()
                .arm(Some(Duration::from_secs(3_600)))?;
            self.embedded.set(true);
            self.arm_descriptor();
        }
        Ok(descriptor)
    }

    /// Makes this the thread's current worker.
    fn drive(&self) -> Driving<'_> {
        self.reactor().resume();
        self.drives.set(self.drives.get() + 1);
        Driving {
            worker: self,
            _entered: local::enter(&self.local, &self.driver),
        }
    }

    /// Whether a call on this thread drives it.
    pub(crate) fn is_driven(&self) -> bool {
        self.drives.get() > 0
    }

    /// The main worker of a runtime is not awake while nobody drives it: see [`Shared::is_crowded`].
    pub(crate) fn park_undriven(&self) {
        if self.shared().workers() > 1 {
            self.reactor().park();
        }
    }

    /// Embedded, at the end of a drive: see to it that the descriptor tells of what is left, and of
    /// whatever comes.
    fn arm_descriptor(&self) {
        let reactor = self.reactor();
        reactor.park();
        if self.local.has_work() || self.remote().has_inbox() || self.has_failed() {
            reactor.notify();
        }
        if self.driver.arm().is_err() && self.driver.next_timeout().is_some() {
            // The kernel takes no deadline any more: the foreign loop comes round until it is due.
            reactor.notify();
        }
    }

    /// Ends the runtime, whose main worker this is and whose pool workers run on `threads`: drops every task, and
    /// lets go of every socket and timer. What is left is what handles keep: memory and the pollers.
    pub(crate) fn close(&self, threads: Vec<JoinHandle<()>>) {
        self.embedded.set(false);
        let _driving = self.drive();
        let shared = self.shared();
        shared.start_closing();
        self.drop_tasks();
        let is_over = || shared.exited_workers() == threads.len() && shared.live_tasks() == 0;
        loop {
            // Meanwhile too: a pool worker may be in the middle of a task that waits for one of these.
            while let Some(runnable) = shared.take_injected() {
                drop(runnable);
            }
            self.drop_tasks();
            if is_over() {
                break;
            }
            // Members are at work yet, or a spawner on a foreign thread is about to see the mark.
            self.pause(None, &|| shared.has_injected() || is_over());
        }
        for thread in threads {
            let _ = thread.join(); // It has left.
        }
        self.driver.close();
    }

    /// Drops every task that lives here.
    fn drop_tasks(&self) {
        let local = &*self.local;
        loop {
            local.take_inbox();
            local.release_yielded();
            while let Some(runnable) = local.pop() {
                drop(runnable);
            }
            // Those that were polled before; destructors may not add any, since nothing runs.
            local.owned.wake_all();
            if local.has_work() {
                continue;
            }
            if local.owned.count() == 0 {
                return;
            }
            // A wake is under way on another thread.
            self.pause(None, &|| false);
        }
    }
}

/// While it lives, the worker is driven by this thread.
struct Driving<'a> {
    worker: &'a Worker,
    _entered: local::Entered,
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        let drives = self.worker.drives.get() - 1;
        self.worker.drives.set(drives);
        if drives > 0 {
            return; // The drive around this one goes on, awake.
        }
        if self.worker.embedded.get() && !self.worker.is_broken.get() {
            self.worker.arm_descriptor();
        } else {
            self.worker.park_undriven();
        }
    }
}

/// The future that `block_on` was given: no task, but woken like one.
struct MainWaker {
    woken: AtomicBool,
    reactor: Arc<Reactor>,
}

impl Wake for MainWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    #[inline]
    fn wake_by_ref(self: &Arc<Self>) {
        // First the flag, then the unparking, whose fence stands between: see `reactor::parking`.
        self.woken.store(true, Ordering::Release);
        self.reactor.unpark();
    }
}
