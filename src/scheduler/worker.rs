//! A worker's loop: run tasks, fire timers, wait for I/O.
//!
//! **A turn** has two halves, in the order that the caller chooses:
//!
//! * [`run_ready`](Worker::run_ready) runs ready tasks, at most [`EVENT_INTERVAL`].
//! * [`poll_and_fire`](Worker::poll_and_fire) takes what other threads sent, waits on the poller,
//!   and fires due timers. If nothing is ready, it parks and sleeps until the earliest deadline,
//!   the caller's timeout, an event or a notification; otherwise it polls with a zero timeout, if a
//!   source is registered. Then the tasks that yielded are ready again, so a loop of yields cannot
//!   starve the poller.
//!
//! The same turn drives a future of `block_on`, a pool worker, a foreign loop's runtime and a
//! simulated process. A pool worker also takes injected tasks, and steals. It takes injected ones
//! at the end of a turn if it was woken to search, when its queues are empty, once in
//! [`INJECT_INTERVAL`](super::local::INJECT_INTERVAL) polls, and one new task after a yield. The
//! file [`pool`](super::pool) has all that only a pool worker does. The clock is read only for
//! timers, timeouts, busy polling, checks for a deadlock, traces, and one poll in
//! [`SAMPLE`](crate::telemetry::SAMPLE).
//!
//! **Embedding.** After a call of [`backend_fd`](Worker::backend_fd), a foreign loop waits on that
//! descriptor. Between two turns the worker counts as parked and is not its thread's current
//! worker, so even wakes on that thread go through the inbox and notify. Each drive ends by arming
//! the earliest deadline in the kernel, and with a notification if tasks are left.

use std::cell::Cell;
use std::io::{self, Write};
use std::panic::Location;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::busy::{BusyPoll, BusyPollConfig};
use super::closing::{self, ClosingWorkers};
use super::current::{self, Entered};
use super::header::{Runnable, Running};
use super::local::{BUDGET, Local};
use super::nested::{DEADLOCK_AFTER, DeadlockCheck, Nested};
use super::schedule;
use super::shared::{Drive, Remote, Shared};
use super::sleep::{PollerGuard, Sleeper};
use crate::clock::{jiffy, now};
use crate::poller::WaitUntil;
use crate::reactor::{BATCH, Driver, Parker, Reactor, Wakeup};
use crate::sync::atomic::{Ordering, fence};
use crate::sync::{OnDrop, contain};
use crate::sys::{self, BorrowedDescriptor};
use crate::telemetry::MAIN_FUTURE;

pub(crate) const EVENT_INTERVAL: usize = BATCH;

/// How long a worker sleeps if its poller cannot wait: it must leave the core to other threads, and
/// answer them soon.
const RETRY_DELAY: Duration = Duration::from_millis(1);

pub(crate) struct Worker {
    pub(crate) local: Rc<Local>,
    pub(crate) driver: Rc<Driver>,
    /// The driver's reactor and the worker's parker: copies, to save a dependent load in each turn.
    /// Of a pool worker the parker is not the reactor's, in which only a leader parks.
    pub(crate) reactor: Arc<Reactor>,
    pub(super) parker: Arc<Parker>,
    /// Whether another thread has sent something since the worker last collected: see
    /// [`poll_and_fire`](Worker::poll_and_fire).
    pub(super) needs_collect: Cell<bool>,
    /// Whether it skips [`wait`](Self::wait), which decides more, unless it sleeps with a deadline:
    /// no pool worker, no busy polling, not traced, embedded, broken or nested.
    waits_directly: Cell<bool>,
    /// The number of calls of [`before_foreign_code`](Self::before_foreign_code). If it has
    /// changed, a waker may have been called.
    foreign_calls: Cell<usize>,
    /// Whether a foreign loop waits on the poller's descriptor.
    pub(super) embedded: Cell<bool>,
    busy_poll: BusyPoll,
    /// Whether it was woken to search and has not begun: see [`searcher`](super::searcher).
    pub(super) searching: Cell<bool>,
    /// Of a pool worker: whether this turn fires timers even if it collects nothing. Set when the
    /// worker has polled its shard, or has found some due while it busy-polled.
    pub(super) fires_timers: Cell<bool>,
    pub(super) sleeper: Sleeper,
    /// The value of `Shared::help_wanted` when it last helped.
    pub(super) help_given: Cell<usize>,
    nested: Nested,
    is_broken: Cell<bool>,
    /// The number of nested drives: a task or a waker may drive its own runtime.
    drives: Cell<usize>,
}

impl Worker {
    /// Makes the only worker of a runtime.
    pub(crate) fn new(shared: Arc<Shared>) -> Worker {
        let index = shared.main_index();
        Worker::with(shared, index, BusyPollConfig::default())
    }

    pub(crate) fn with(shared: Arc<Shared>, index: usize, busy_poll: BusyPollConfig) -> Worker {
        let local = Local::new(shared.clone(), index);
        local.counters.set_jiffy(jiffy(now()));
        let reactor = shared.remote(index).reactor.clone();
        Worker {
            driver: Rc::new(Driver::new(reactor.clone(), local.counters.clone())),
            reactor,
            parker: shared.remote(index).parker.clone(),
            needs_collect: Cell::new(true),
            waits_directly: Cell::new(
                !local.is_pool_worker() && !busy_poll.is_enabled() && local.shared.trace.is_none(),
            ),
            foreign_calls: Cell::new(0),
            local: Rc::new(local),
            embedded: Cell::new(false),
            busy_poll: BusyPoll::new(busy_poll),
            searching: Cell::new(false),
            fires_timers: Cell::new(false),
            sleeper: Sleeper::default(),
            help_given: Cell::new(0),
            nested: Nested::default(),
            is_broken: Cell::new(false),
            drives: Cell::new(0),
        }
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.local.shared
    }

    #[inline]
    pub(super) fn remote(&self) -> &Remote {
        &self.local.remote
    }

    pub(crate) fn block_on<F: Future>(
        &self,
        future: F,
        site: &'static Location<'static>,
    ) -> F::Output {
        // The future is dropped before this, while the worker is current.
        let driving = self.drive();
        let mut future = pin!(future);
        let mut output = None;
        let _nested = self.enter_nested(driving.entered.outer());
        self.turn_until(site, &mut |cx| match future.as_mut().poll(cx) {
            Poll::Ready(value) => {
                output = Some(value);
                true
            }
            Poll::Pending => false,
        });
        output.expect("the future is done")
    }

    /// The loop of [`block_on`](Self::block_on), compiled once for all futures.
    fn turn_until(
        &self,
        site: &'static Location<'static>,
        poll: &mut dyn FnMut(&mut Context<'_>) -> bool,
    ) {
        let entered = self.local.enter_main(site);
        let main = entered.future.waker.clone();
        let waker = Waker::from(main.clone());
        let mut cx = Context::from_waker(&waker);
        let is_traced = self.local.counters.trace().is_some();
        loop {
            let mut yielded = false;
            for _ in 0..EVENT_INTERVAL {
                if !yielded && main.is_woken() {
                    main.reset();
                    // A failure cancels the tasks. Its reason explains more than the panic of a
                    // future that awaits one of them.
                    self.panic_if_failed();
                    self.local.budget.set(BUDGET);
                    let counters = &*self.local.counters;
                    entered.future.begin_poll(counters.jiffy());
                    counters.begin_main_poll(site);
                    if is_traced {
                        self.local.poll_begins((MAIN_FUTURE, site));
                    }
                    if poll(&mut cx) {
                        return;
                    }
                    counters.reset_task();
                    if is_traced {
                        self.local.poll_ends(MAIN_FUTURE);
                    }
                    entered.future.end_poll();
                    yielded = main.is_woken();
                } else if !self.run_ready(1) {
                    break;
                }
            }
            // A future that has yielded is woken.
            self.poll_and_fire(None, || main.is_woken());
        }
    }

    pub(crate) fn drive_forever(&self) -> ! {
        let _driving = self.drive();
        loop {
            self.run_ready(EVENT_INTERVAL);
            self.poll_and_fire_outlined(None, &|| self.has_failed());
            self.panic_if_failed();
        }
    }

    /// Drives the worker until no task of its runtime is left, or `deadline` has passed.
    pub(crate) fn run(&self, deadline: Option<Instant>) {
        let _driving = self.drive();
        let shared = &**self.shared();
        let _waiter = shared.await_last_task();
        loop {
            self.run_ready(EVENT_INTERVAL);
            let remaining = deadline.map(|deadline| deadline.saturating_duration_since(now()));
            if shared.live_tasks() == 0 || remaining == Some(Duration::ZERO) {
                return;
            }
            self.poll_and_fire_outlined(remaining, &|| {
                // The end of a task on this worker is counted before the other counters are read.
                fence(Ordering::SeqCst);
                shared.live_tasks() == 0 || self.has_failed()
            });
            self.panic_if_failed();
        }
    }

    /// Runs one turn, with at most `tasks` tasks. Returns whether there was anything to do.
    pub(crate) fn turn(&self, timeout: Option<Duration>, tasks: usize) -> bool {
        let _driving = self.drive();
        let calls = self.foreign_calls.get();
        // A wait with a timeout is repeated when a signal interrupts it; a wait without returns.
        let timeout = timeout.or(Some(Duration::MAX));
        self.poll_and_fire_outlined(timeout, &|| self.has_failed());
        // The next turn may not wait, and begins later.
        self.driver.forget_time();
        self.panic_if_failed();
        let has_woken = self.foreign_calls.get() != calls;
        has_woken | self.run_ready(tasks)
    }

    /// Runs a turn of a worker that has a [`policy`](Local::policy).
    #[cfg(feature = "kernel")]
    pub(crate) fn turn_of(&self, tasks: usize) {
        self.local.counters.set_jiffy(jiffy(now()));
        self.turn(Some(Duration::ZERO), tasks);
    }

    /// Prepares the worker to be driven turn by turn. Between two turns it counts as parked, so
    /// that its poller is notified.
    pub(crate) fn embed(&self) {
        self.embedded.set(true);
        self.waits_directly.set(false);
        self.arm_descriptor();
    }

    /// Closes the runtime on the main worker: drops every task, and joins the `threads` of the pool
    /// workers. Sockets and timers that are used elsewhere move there. Handles keep the memory and
    /// the pollers alive.
    pub(crate) fn close(&self, threads: Vec<JoinHandle<()>>) {
        self.embedded.set(false);
        let _driving = self.drive();
        self.drop_all_tasks();
        for thread in threads {
            let _ = thread.join(); // Its loop has ended.
        }
        // Like the tasks: dropped while the worker is current, and before its reactor closes. No
        // task or worker has a clone of it any more.
        let resolver = self.shared().resolver.lock().take();
        contain(|| drop(resolver));
        self.driver.close();
        // The last pool worker to leave has done this, unless none was started.
        self.close_pool();
    }

    /// Returns when all tasks are dropped; reactors and threads are left. Called on the main
    /// worker, outside any task of its runtime.
    pub(crate) fn drop_all_tasks(&self) {
        let _driving = self.drive();
        self.shared().start_closing();
        self.drop_tasks();
        closing::drop_all_tasks(self, now);
    }

    /// Drops the worker's own tasks, on its thread: see [`closing`].
    pub(super) fn drop_tasks(&self) {
        let local = &*self.local;
        loop {
            schedule::drop_late_tasks();
            local.take_inbox();
            local.yield_mark.set(None);
            local.release_yielded();
            while let Some(runnable) = local.pop() {
                drop(runnable);
            }
            // Makes the polled tasks ready. No task runs, so none is added to the list, which stays
            // empty; `Remote::pinned` still counts them.
            for task in local.owned.take().values() {
                task.waker().wake_by_ref();
            }
            if let Some(tasks) = &local.pool_remote {
                tasks.owned.wake_all();
            }
            if local.has_work() || schedule::has_late_tasks() {
                continue;
            }
            if self.remote().pinned.get() == 0 {
                return;
            }
            // Another thread is about to push a woken task to the inbox.
            self.poll_and_fire_outlined(None, &|| false);
        }
    }

    /// Whether the runtime has failed. A failure unparks all workers: each calls this when it
    /// collects.
    #[inline]
    fn has_failed(&self) -> bool {
        self.shared().failure().is_some()
    }

    #[inline]
    pub(crate) fn panic_if_failed(&self) {
        if let Some(reason) = self.shared().failure() {
            panic!("polder: {reason}");
        }
    }

    /// The half of a turn that waits: polls the kernel, or parks if there is nothing to do and
    /// `stay_awake` returns false; then fires timers.
    ///
    /// **Why nothing is lost.** A thread that puts something where only this worker takes it
    /// unparks the worker afterwards. `needs_collect` records that this has happened since the
    /// worker last collected: [`record_wakeup`](Self::record_wakeup) sets it from the results of
    /// `park` and `resume`, and [`collect`](Self::collect) clears it before it collects. Anything
    /// sent before the worker last resumed is found by `collect`, or by `stay_awake`. Anything sent
    /// since is reported by `park`, and then the worker does not sleep. Anything sent after `park`
    /// ends the sleep by a notification. The places that belong to all pool workers are checked
    /// after `park` too (the closure `park_and_look` in `sleep_in_pool`). Anything that this thread
    /// itself has put somewhere is in the run queues, in the timers, or is read by `stay_awake`.
    /// Foreign code runs here in `collect`, `fire` and within the wait, after the worker has
    /// resumed: anything that it leaves is found before the next `park`.
    #[inline(always)]
    fn poll_and_fire(&self, timeout: Option<Duration>, stay_awake: impl Fn() -> bool) {
        let local = &*self.local;
        self.resume(); // Already awake: only notes whether something has come.
        if self.needs_collect.get() {
            self.collect();
        }
        let is_idle = !local.has_work() && !stay_awake();
        let may_sleep = is_idle && timeout != Some(Duration::ZERO);
        // Not read again after the wait: a timer that is set or a waker that is queued meanwhile is
        // for the next turn, which does not sleep if it is due.
        let may_fire = self.driver.has_timers_or_wakers();
        let waits_directly = self.waits_directly.get();
        if !waits_directly || may_sleep && (may_fire || timeout.is_some()) {
            self.wait(is_idle, timeout, &stay_awake);
        } else if may_sleep || self.reactor.has_sources() {
            // Without the decisions: saves a fifth of the instructions of a TCP round trip.
            self.sleep_or_poll::<true>(may_sleep, None);
        }
        if self.needs_collect.get() {
            self.collect();
            self.fire();
        } else if may_fire
            && (waits_directly || !local.is_pool_worker() || self.fires_timers.take())
        {
            // A pool worker fires timers when it has polled. (After collecting it does too,
            // although nothing was sent for them. One that waits directly is in no pool; testing
            // that first saves a load.)
            self.fire();
        }
        local.release_yielded();
        if !waits_directly && local.is_pool_worker() {
            self.end_pool_turn();
        }
    }

    /// [`poll_and_fire`](Self::poll_and_fire), compiled once for all loops but `block_on`'s.
    #[inline(never)]
    pub(super) fn poll_and_fire_outlined(
        &self,
        timeout: Option<Duration>,
        stay_awake: &dyn Fn() -> bool,
    ) {
        self.poll_and_fire(timeout, stay_awake);
    }

    #[cold]
    fn collect(&self) {
        // Cleared first: foreign code below may run a nested turn and find that there is more.
        self.needs_collect.set(false);
        let requests = &self.remote().requests;
        if requests.is_asked() {
            requests.answer(|question| question.answer(&self.local, &self.driver));
        }
        if self.has_failed() {
            let mains = self.local.mains.borrow();
            mains.iter().for_each(|main| main.waker.set_woken());
        }
        self.local.take_inbox();
        self.driver.drop_wakers(|| self.before_foreign_code());
    }

    /// Sleeps if the worker `is_idle`, finds no work on others, and the `timeout` is not zero;
    /// otherwise polls once without blocking.
    #[inline(never)]
    fn wait(&self, is_idle: bool, timeout: Option<Duration>, stay_awake: &dyn Fn() -> bool) {
        let local = &*self.local;
        local.poll_ended.set(None);
        let finds_work = is_idle && local.is_pool_worker() && self.find_work();
        let may_sleep = is_idle && !finds_work && timeout != Some(Duration::ZERO);
        let check = if may_sleep && timeout.is_none() {
            self.nested.begin_deadlock_check(local)
        } else {
            None
        };
        let timeout = timeout.or(check.as_ref().map(|_| DEADLOCK_AFTER));
        let idle_since = (may_sleep && self.busy_poll.config.is_enabled()).then(now);
        if idle_since.is_none_or(|since| !self.spin(since, timeout, stay_awake)) {
            match (local.is_pool_worker(), may_sleep) {
                (false, _) if may_sleep || self.should_poll() => {
                    self.sleep_or_poll::<false>(may_sleep, timeout);
                }
                (false, _) => {}
                (true, true) => self.sleep_in_pool(timeout),
                (true, false) => self.poll_pool(),
            }
        }
        // A worker that was woken to help would have slept for longer.
        if let Some(since) = idle_since.filter(|_| !self.is_help_wanted()) {
            self.busy_poll.end_idle(now() - since, timeout);
        }
        if let Some(check) = check {
            self.end_deadlock_check(check, stay_awake);
        }
    }

    /// Whether polling may find anything: always, if a foreign loop waits on the descriptor.
    fn should_poll(&self) -> bool {
        self.reactor.has_sources() || self.embedded.get()
    }

    /// Sleeps for at most `timeout` if it `may_sleep`; otherwise polls once without blocking.
    /// `PLAIN`: as a worker that [waits directly](Self::waits_directly), with no timeout or timer.
    #[inline(never)]
    fn sleep_or_poll<const PLAIN: bool>(&self, mut may_sleep: bool, timeout: Option<Duration>) {
        if may_sleep {
            self.local.counters.parks.add(1);
            self.record_wakeup(self.parker.park());
            if self.needs_collect.get() {
                self.resume();
                if !self.should_poll() {
                    return;
                }
                may_sleep = false;
            }
        }
        let until = match may_sleep {
            false => WaitUntil::Now,
            true if PLAIN => WaitUntil::Forever,
            true => self.driver.until_due(timeout),
        };
        if PLAIN {
            let result = self.driver.wait::<true>(until);
            self.end_wait(until, result, None);
        } else {
            self.wait_once(until, None);
        }
    }

    /// Polls repeatedly, if that is likely to pay off. Returns false if the worker should sleep
    /// now. Meanwhile it counts as awake, since it checks what others send.
    fn spin(
        &self,
        since: Instant,
        timeout: Option<Duration>,
        stay_awake: &dyn Fn() -> bool,
    ) -> bool {
        if !self.busy_poll.is_worthwhile() {
            return false;
        }
        let (local, foreign_calls) = (&*self.local, self.foreign_calls.get());
        let busy_polls = &local.remote.busy_polls;
        busy_polls.store(true, Ordering::Relaxed);
        let _end = OnDrop(|| busy_polls.store(false, Ordering::Relaxed));
        if local.is_pool_worker() {
            fence(Ordering::SeqCst);
            local.shared.unpark_main_if_no_task_is_left();
        }
        loop {
            self.resume(); // Already awake: only notes whether something has come.
            if local.is_pool_worker() {
                self.poll_pool();
            } else if self.reactor.has_sources() {
                self.wait_once(WaitUntil::Now, None);
            }
            // A source may wake a task in place, under its lock: then only the run queue shows it.
            if self.needs_collect.get()
                || self.foreign_calls.get() != foreign_calls
                || local.has_work()
            {
                return true;
            }
            if self.driver.is_due() {
                // The timers belong to the shard. They are fired here even if another worker has
                // the poller's lock.
                self.fires_timers.set(true);
                return true;
            }
            let has_more = || local.is_pool_worker() && local.has_tasks_elsewhere();
            if local.remote.has_inbox() || stay_awake() || has_more() {
                return true;
            }
            let now = now();
            if local.shared.is_crowded(self.busy_poll.config.cores) {
                return false;
            }
            let lasted = now - since;
            if timeout.is_some_and(|timeout| lasted >= timeout) {
                return true;
            }
            if lasted >= self.busy_poll.config.limit {
                return false;
            }
            std::hint::spin_loop();
        }
    }

    fn enter_nested(&self, outer: Option<&Rc<Local>>) -> Option<impl Drop + '_> {
        let mut leave = self.nested.enter(&self.local, outer)?;
        let waited_directly = self.waits_directly.replace(false);
        Some(OnDrop(move || {
            leave();
            let waits_directly = waited_directly && !self.embedded.get() && !self.is_broken.get();
            self.waits_directly.set(waits_directly);
        }))
    }

    /// Called before [`collect`](Self::collect), so that `needs_collect` shows whether anything was
    /// sent.
    fn end_deadlock_check(&self, check: DeadlockCheck, stay_awake: &dyn Fn() -> bool) {
        let has_progress = stay_awake() || self.local.has_work() || self.needs_collect.get();
        if !has_progress {
            self.nested.end_deadlock_check(check, &self.local, || {
                self.shared().live_tasks() > 0
                    || self.driver.has_timers_or_wakers()
                    || self.reactor.has_sources()
            });
        }
    }

    #[inline(never)]
    fn fire(&self) {
        let ready = self.local.ready_tasks();
        self.driver.fire(ready, || self.before_foreign_code());
    }

    #[inline]
    pub(super) fn resume(&self) {
        self.record_wakeup(self.parker.resume());
    }

    #[inline]
    pub(super) fn record_wakeup(&self, wakeup: Wakeup) {
        match wakeup {
            Wakeup::None => {}
            Wakeup::Attention => self.needs_collect.set(true),
            Wakeup::Notified => self.note_notified(),
        }
    }

    #[cold]
    fn note_notified(&self) {
        self.needs_collect.set(true);
        let local = &*self.local;
        local.counters.notified.add(1);
        if local.is_pool_worker() {
            self.sleeper.was_woken.set(true);
            if local.shared.searcher.is_searching(local.index) {
                self.searching.set(true);
            }
        }
    }

    /// Ends a wait, where `result` is whether it has found wakers: resumes the worker, and the
    /// shard's reactor if it parked that, releases the lock, and then calls the wakers.
    #[inline(always)]
    fn end_wait(&self, until: WaitUntil, result: io::Result<bool>, guard: Option<PollerGuard<'_>>) {
        self.resume();
        if guard.as_ref().is_some_and(|guard| guard.has_parked_reactor) {
            // The next leader parks here, and reads heap and queue after that.
            self.reactor.parker().resume();
        }
        drop(guard);
        if matches!(result, Ok(false)) {
            return;
        }
        // Also after an error, which may come after reports: see `Selector::wait`.
        self.before_foreign_code();
        self.driver.call_wakers();
        if let Err(error) = result {
            self.cannot_wait(until, &error);
        }
    }

    /// Called before foreign code such as wakers, which may block: leaves the tasks that this
    /// worker was woken for to another worker. If none takes them, this one finds them afterwards.
    #[inline]
    pub(super) fn before_foreign_code(&self) {
        self.foreign_calls
            .set(self.foreign_calls.get().wrapping_add(1));
        if self.local.is_pool_worker() {
            self.before_foreign_code_in_pool();
        }
    }

    /// Waits once, then releases the `guard` before wakers are called.
    #[inline(never)]
    pub(super) fn wait_once(&self, until: WaitUntil, guard: Option<PollerGuard<'_>>) {
        if self.is_broken.get() {
            self.end_wait(until, Ok(false), guard);
            return self.sleep_briefly(until);
        }
        let result = self.driver.wait::<false>(until);
        self.end_wait(until, result, guard);
    }

    /// Handles a failed wait. Unless the cause was a shortage, closes the runtime, whose events and
    /// notifications would never be reported: foreign code has closed the poller's descriptor, or
    /// the process may no longer poll as many descriptors.
    #[cold]
    fn cannot_wait(&self, until: WaitUntil, error: &io::Error) {
        // Of memory, since poll and select allocate in each call, which some systems report as
        // EAGAIN; or of descriptors, since a wait on another thread takes one on io-uring.
        let shortages = [io::ErrorKind::OutOfMemory, io::ErrorKind::WouldBlock];
        if shortages.contains(&error.kind()) || sys::is_out_of_descriptors(error) {
            return self.sleep_briefly(until);
        }
        self.is_broken.set(true);
        self.waits_directly.set(false);
        let shared = self.shared();
        if shared.is_closing() {
            return self.sleep_briefly(until);
        }
        let backend = self.reactor.poller().backend();
        shared.fail(format!(
            "runtime shut down: polling {backend} failed: {error}"
        ));
        if self.local.is_pool_worker() {
            // The call that drives the main worker panics with the same message, but there may be
            // none.
            let reason = shared.failure().unwrap_or_default();
            let _ = writeln!(io::stderr(), "polder: {reason}");
        }
    }

    /// Sleeps when a wait is not possible, after [`end_wait`](Self::end_wait). Anything sent
    /// meanwhile is found afterwards.
    #[cold]
    fn sleep_briefly(&self, until: WaitUntil) {
        debug_assert!(self.parker.is_awake(), "it has resumed");
        let timeout = until.duration();
        std::thread::sleep(timeout.map_or(RETRY_DELAY, |timeout| timeout.min(RETRY_DELAY)));
    }

    /// Returns whether there was a ready task. (A pool worker's are run by
    /// [`next_of_pool`](Self::next_of_pool).)
    #[inline]
    pub(super) fn run_ready(&self, tasks: usize) -> bool {
        // A pool worker, or one with a policy.
        if !self.local.pops_front {
            return self.run_ready_outlined(tasks);
        }
        let mut ran = 0;
        while ran < tasks {
            let Some(runnable) = self.local.pop_pinned() else {
                break;
            };
            self.local.run(runnable);
            ran += 1;
        }
        ran > 0
    }

    /// [`run_ready`](Self::run_ready) for pool workers and workers with a
    /// [`policy`](Local::policy), which have several queues or choose from one.
    #[inline(never)]
    fn run_ready_outlined(&self, tasks: usize) -> bool {
        if self.local.is_pool_worker() {
            return self.run_each(tasks, Worker::next_of_pool);
        }
        // A constant without the feature `kernel`: then the loop is not compiled.
        let is_chosen = self.local.policy().is_some();
        is_chosen && self.run_each(tasks, |worker| worker.local.pop())
    }

    #[inline]
    pub(super) fn run_each(
        &self,
        tasks: usize,
        next: impl Fn(&Worker) -> Option<Runnable>,
    ) -> bool {
        let local = &*self.local;
        let mut ran = 0;
        while ran < tasks {
            let Some(runnable) = next(self) else { break };
            if let Some(policy) = local.policy() {
                policy.about_to_poll(runnable.metadata());
            }
            local.run(runnable);
            local.end_run();
            ran += 1;
        }
        ran > 0
    }

    /// Returns how long a foreign loop may sleep. `None`: until the worker is notified.
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        self.driver.drop_wakers(|| {});
        if self.local.has_work() || self.remote().has_inbox() || self.has_failed() {
            Some(Duration::ZERO)
        } else {
            self.driver.next_timeout()
        }
    }

    /// Returns the poller's descriptor, readable from now on when a turn has something to do.
    pub(crate) fn backend_fd(&self) -> io::Result<BorrowedDescriptor<'_>> {
        let descriptor = self.reactor.poller().descriptor()?;
        if !self.embedded.get() {
            // Allocates what arming needs here, where an error can be returned.
            let far = self.driver.until_due(Some(Duration::from_secs(3_600)));
            self.reactor.poller().arm(far)?;
            if !self.is_driven() {
                self.remote().set_drive(Drive::BetweenTurns);
            }
            self.embed();
        }
        Ok(descriptor)
    }

    pub(crate) fn drive(&self) -> Driving<'_> {
        self.resume();
        self.needs_collect.set(true);
        self.drives.set(self.drives.get() + 1);
        self.remote().set_drive(Drive::Driven);
        if self.remote().thread() == 0 {
            // The worker stays on this thread.
            let thread = sys::thread_id();
            #[cfg(feature = "stall-backtrace")]
            polder_stack::note();
            self.remote().thread.store(thread, Ordering::Relaxed);
        }
        let before = Running::get();
        let task = self.local.counters.task();
        self.local.counters.begin_drive();
        Running::reset();
        Driving {
            worker: self,
            before,
            task,
            entered: current::enter(&self.local, &self.driver),
        }
    }

    pub(crate) fn is_driven(&self) -> bool {
        self.drives.get() > 0
    }

    /// Called at the end of an embedded worker's drive: parks, and makes the descriptor readable
    /// when work is left or arrives.
    fn arm_descriptor(&self) {
        self.driver.update_tops();
        let wakeup = self.parker.park();
        self.record_wakeup(wakeup);
        let local = &*self.local;
        let mut is_idle = wakeup == Wakeup::None
            && !local.has_work()
            && !self.remote().has_inbox()
            && !self.has_failed();
        if local.is_pool_worker() {
            // In a simulated world. A timer that is set elsewhere notifies.
            self.reactor.parker().park();
            local.shared.unpark_main_if_no_task_is_left();
            is_idle &= !local.has_tasks_elsewhere();
        }
        if !is_idle {
            // The sender notifies after it has sent, but may not have done so yet.
            self.needs_collect.set(true);
            self.parker.notify();
        }
        let until = self.driver.until_due(None);
        let has_end = until != WaitUntil::Forever;
        if self.reactor.poller().arm(until).is_err() && has_end {
            // The deadline cannot be armed, so the foreign loop spins until it is due.
            self.parker.notify();
        }
    }
}

impl ClosingWorkers for Worker {
    fn have_exited(&self) -> bool {
        self.shared().have_workers_exited()
    }

    fn live_tasks(&self) -> usize {
        self.shared().live_tasks()
    }

    fn wake_stealable_tasks(&self) {
        (self.shared().pool_remotes()).for_each(|tasks| tasks.owned.wake_all());
    }

    fn drop_ready_tasks(&self) {
        self.drop_ready_tasks_of_pool();
    }

    fn has_ready_tasks(&self) -> bool {
        schedule::has_late_tasks() || self.shared().has_any()
    }

    fn sleep(&self, timeout: Option<Duration>, stay_awake: &dyn Fn() -> bool) {
        self.poll_and_fire_outlined(timeout, stay_awake);
    }
}

pub(crate) struct Driving<'a> {
    worker: &'a Worker,
    before: Running,
    /// The same task, as other threads read it, if it belongs to this worker.
    task: Option<(u64, &'static Location<'static>)>,
    entered: Entered,
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        self.before.set();
        let worker = self.worker;
        worker.local.counters.restore_task(self.task);
        worker.local.poll_ended.set(None);
        worker.drives.set(worker.drives.get() - 1);
        if worker.is_driven() {
            // Notifications during the nested drive were consumed there.
            worker.needs_collect.set(true);
            return;
        }
        if worker.embedded.get() && !worker.is_broken.get() {
            worker.remote().set_drive(Drive::BetweenTurns);
            worker.arm_descriptor();
        } else {
            worker.remote().set_drive(Drive::None);
        }
        if !worker.local.is_pool_worker() {
            worker.reactor.poller().on_idle();
        }
    }
}
