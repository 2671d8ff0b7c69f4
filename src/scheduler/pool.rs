//! A pool worker: its loop, its waits, stealing, and its exit.
//!
//! The workers of a [shard](super::sleep) share one reactor, and one of them at a time waits in its
//! poller. A task that moves to another shard leaves its sockets there.
//!
//! * A worker that has tasks to run tries the poller's lock between two turns. If it gets it, it
//!   polls without sleeping, and fires timers.
//! * A worker that has none steals, or sleeps: in the poller, or until it is notified.
//!
//! Tasks woken by events are queued on the worker that polled. Others take some of them:
//!
//! * A worker wakes an idle one to search if it ends a turn with more than [`MANY_READY`] tasks;
//!   and after a task that has woken several, or has spawned one while others are ready: see
//!   [`searcher`](super::searcher).
//! * An idle worker takes half of another one's queue. The task in the [LIFO
//!   slot](super::run_queue) stays, unless its worker is stuck: see [`monitor`].
//! * A worker that is awake takes half of the tasks of a stuck one between two turns, if the
//!   [`monitor`] has found one.
//!
//! **Why no timer is late.** A worker reads the earliest deadline when it becomes the leader. An
//! earlier one that is set later wakes it ([`Driver::park_in_reactor`]). The last one that falls
//! asleep leads. So if none leads, one is awake: it polls between its turns, or, if it computes,
//! the monitor wakes another.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::closing::ClosingWorkers;
use super::header::{Runnable, Running};
use super::monitor;
use super::shared::Remote;
use super::sleep::{PollerGuard, Shard, Sleep};
use super::worker::{EVENT_INTERVAL, Worker};
use crate::poller::WaitUntil;
use crate::reactor::Driver;
use crate::sync::OnDrop;
use crate::sync::atomic::{Ordering, fence};

/// The queue length up to which no other worker is woken at the end of a turn: the wake-up would
/// cost more than it saves.
const MANY_READY: usize = 4;

impl Worker {
    /// Drives a pool worker until the runtime closes, then drops its tasks. First calls `start`,
    /// which is foreign code.
    pub(crate) fn run_pool_worker(&self, start: impl FnOnce()) {
        let shared = &**self.shared();
        // Also on a panic: otherwise the main worker would wait forever.
        let _exit_guard = OnDrop(|| shared.worker_exited());
        self.embedded.set(false); // A simulated process's worker comes here to end.
        let _driving = self.drive();
        let served = catch_unwind(AssertUnwindSafe(|| {
            start();
            while !shared.is_closing() {
                self.run_ready(EVENT_INTERVAL);
                self.poll_and_fire_outlined(None, &|| shared.is_closing());
            }
        }));
        if let Err(panic) = served {
            // Its tasks may be dropped on this thread only.
            Running::reset();
            self.local.counters.reset_task();
            shared.fail("a worker of the runtime panicked".into());
            std::mem::forget(panic); // Its destructor may panic too. The hook has reported it.
        }
        self.leave();
    }

    fn leave(&self) {
        let shared = &**self.shared();
        // Reads the flag, then the inbox; see `Shared::unpark_main_if_closing`.
        fence(Ordering::SeqCst);
        self.drop_tasks();
        if shared.record_leaving() {
            // First, since what follows runs foreign code.
            if shared.monitor_pause.is_some() {
                monitor::remove(shared);
            }
            // No pool worker polls a task any more.
            self.close_pool();
            // After a failure the main worker may come much later.
            self.wake_stealable_tasks();
            self.drop_stealable_tasks();
            self.drop_tasks();
        }
    }

    fn shard(&self) -> &Shard {
        self.shared().shard(self.local.index)
    }

    /// Polls without sleeping, if the lock is free, and helps stuck workers.
    pub(super) fn poll_pool(&self) {
        if let Some(guard) = self.shard().poller_lock.try_lock() {
            self.poll_with(guard);
        }
        self.help();
    }

    #[inline(never)]
    pub(super) fn before_foreign_code_in_pool(&self) {
        let shared = &**self.shared();
        self.local.remote.busy_polls.store(false, Ordering::Relaxed);
        self.sleeper.begin_work(shared.monitor_pause);
        if self.searching.take() {
            shared.searcher.end_search(self.local.index, shared);
        }
    }

    fn poll_with(&self, guard: PollerGuard<'_>) {
        self.fires_timers.set(true);
        if self.reactor.has_sources() {
            self.wait_once(WaitUntil::Now, Some(guard))
        } else {
            self.driver.forget_time()
        }
    }

    /// Sleeps for at most `timeout`, as the leader or as a follower, unless something has come.
    ///
    /// **How the last worker falls asleep**, if no leader sleeps in its shard's poller yet:
    ///
    /// 1. It tries the poller's lock, unless it was woken for nothing while another was awake: see
    ///    [`sleep`](super::sleep). As no other worker of the shard holds it, this one leads. (A
    ///    worker of another shard may hold it: see [`PollerGuard::unlock_and_wake`].)
    /// 2. It parks ([`Parker::park`](crate::reactor::Parker::park)), by an exchange that is also a
    ///    sequentially consistent fence. If `unpark` was called before, the exchange reports it,
    ///    and the worker stays awake. Any later `unpark` notifies the poller, which keeps the
    ///    notification.
    /// 3. It looks at the inject queue, at all run queues but for their LIFO slots
    ///    (`Local::has_tasks_elsewhere`), and whether the monitor wants help. A thread that injects
    ///    a task looks for a parked worker after a fence
    ///    ([`Searcher::wake_one`](super::searcher::Searcher::wake_one)): so one of the two sees the
    ///    other. A run queue is never left with tasks: only its worker pushes there, and sleeps
    ///    only when it is empty.
    /// 4. It wakes the main worker if that waits for the last task and none is left. Then it parks
    ///    in the reactor's parker too, and only after that reads the earliest deadline
    ///    ([`Driver::park_in_reactor`]). So an earlier timer is read, or notifies.
    /// 5. It waits in the poller ([`wait_once`](Self::wait_once)), where events wake it.
    pub(super) fn sleep_in_pool(&self, timeout: Option<Duration>) {
        let (local, shared) = (&*self.local, &**self.shared());
        local.counters.parks.add(1);
        let is_parked = |index| shared.is_parked(index);
        let park_and_look = |leads| {
            self.record_wakeup(self.parker.park_as(leads));
            self.needs_collect.get() || local.has_tasks_elsewhere() || self.is_help_wanted()
        };
        let sleeper = &self.sleeper;
        let leader = match sleeper.fall_asleep(self.shard(), local.index, is_parked, park_and_look)
        {
            Sleep::Leads(guard) => Some(guard),
            Sleep::Follows => None,
            Sleep::StaysAwake(guard) => {
                self.resume();
                return guard.into_iter().for_each(|guard| self.poll_with(guard));
            }
        };
        shared.unpark_main_if_no_task_is_left();
        let Some(mut guard) = leader else {
            if self.reactor.poller().is_inherited() {
                // In a child of `fork` there is no leader. The wait fails, with a reason.
                return self.wait_once(WaitUntil::Now, None);
            }
            self.driver.sleep_as_follower(&self.parker, timeout);
            return self.resume();
        };
        // From here on a thread that sets an earlier timer notifies the shard's poller.
        let until = self.driver.park_in_reactor(timeout);
        guard.has_parked_reactor = true;
        self.fires_timers.set(true);
        self.wait_once(until, Some(guard));
    }

    /// Helps stuck workers, and steals. Returns whether there is anything to run.
    pub(super) fn find_work(&self) -> bool {
        self.help() || self.local.has_work() || self.steal(|_| true)
    }

    /// If the monitor wants help: polls for other neglected shards, and steals from stuck workers.
    /// (Its own shard it polls in this turn, or as the leader.) Returns whether it has taken any
    /// task there.
    fn help(&self) -> bool {
        self.is_help_wanted() && self.give_help()
    }

    pub(super) fn is_help_wanted(&self) -> bool {
        self.shared().help_wanted() != self.help_given.get()
    }

    #[cold]
    fn give_help(&self) -> bool {
        let (shared, own) = (self.shared(), self.shard());
        self.help_given.set(shared.help_wanted());
        // So it tries the lock before it sleeps, although a stuck worker is awake.
        self.sleeper.was_woken.set(false);
        for shard in &shared.shards {
            if shard.is_neglected.swap(false, Ordering::Acquire) && !std::ptr::eq(shard, own) {
                self.poll_for(shard);
            }
        }
        self.steal(Remote::is_stuck)
    }

    /// Takes tasks that are ready on another worker of those for which `may_steal` returns true.
    /// Returns whether there were any.
    fn steal(&self, may_steal: fn(&Remote) -> bool) -> bool {
        let (local, shared) = (&*self.local, &**self.shared());
        if shared.is_closing() {
            return false;
        }
        let workers = shared.workers();
        let mut others = (1..workers).map(|offset| (local.index + offset) % workers);
        others.any(|victim| may_steal(shared.remote(victim)) && local.steal_half(victim))
    }

    /// Polls for another shard without sleeping, and fires its timers, unless its lock is taken.
    pub(super) fn poll_for(&self, shard: &Shard) {
        let Some(guard) = shard.poller_lock.try_lock() else {
            return;
        };
        let shared = self.shared();
        let reactor = shared.reactor_of(shard).clone();
        let driver = Driver::new(reactor, self.local.counters.clone());
        // If the wait fails here, it fails on the shard's own threads too; but it may have found
        // wakers before: see `Selector::wait`.
        let has_sources = driver.reactor().has_sources();
        let has_wakers = has_sources && driver.wait::<false>(WaitUntil::Now).unwrap_or(true);
        guard.unlock_and_wake(|| shared.wake_idle_of(shard.workers.clone()));
        if has_wakers {
            self.before_foreign_code();
            driver.call_wakers();
        }
        let ready = self.local.ready_tasks();
        driver.fire(ready, || self.before_foreign_code());
    }

    pub(super) fn close_pool(&self) {
        for reactor in self.shared().pool_reactors() {
            if !reactor.is_closed() {
                Driver::new(reactor.clone(), self.local.counters.clone()).close();
            }
        }
    }

    fn drop_stealable_tasks(&self) {
        while let Some(runnable) = self.shared().take_any() {
            drop(runnable);
        }
    }

    /// Drops the tasks that are ready on the main worker or on any worker of the pool. Then, unless
    /// all workers have exited, polls each shard once: a worker may be in the middle of a task that
    /// waits, in another executor, for a timer or a source of its shard.
    pub(super) fn drop_ready_tasks_of_pool(&self) {
        self.drop_stealable_tasks();
        self.drop_tasks();
        if !self.shared().have_workers_exited() {
            for shard in self.shared().shards.iter() {
                self.poll_for(shard);
            }
        }
    }

    /// A worker that was woken to search takes tasks, and one with many wakes another.
    pub(super) fn end_pool_turn(&self) {
        let (local, shared) = (&*self.local, &**self.shared());
        local.yield_mark.set(None);
        if self.searching.take() {
            // Takes some of the tasks that this worker was woken for, then allows the next one to
            // be woken.
            if !local.queue_share() && !local.has_ready() {
                self.steal(|_| true);
            }
            shared.searcher.end_search(local.index, shared);
        }
        let queue = &local.pool_remote().queue;
        if queue.len() > MANY_READY && queue.count_items(MANY_READY + 1) > MANY_READY {
            shared.try_wake_one();
        }
    }

    #[inline(always)]
    pub(super) fn next_of_pool(&self) -> Option<Runnable> {
        let local = &*self.local;
        let next = local.next_task()?;
        self.sleeper.begin_work(local.shared.monitor_pause);
        if next.metadata().index() != local.index {
            next.metadata().assign(local.index);
        }
        local.is_running_task.set(true);
        Some(next)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::poller::{Backend, Poller};
    use crate::reactor::{Added, Direction, Held, Io, Wakeup};
    use crate::scheduler::busy::BusyPollConfig;
    use crate::scheduler::shared::Shared;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::task::Waker;

    #[test]
    fn a_lock_released_for_a_shard_wakes_its_worker() {
        let poller = || Poller::new(Backend::default()).expect("it opens");
        let shards = vec![(poller(), vec![None]), (poller(), vec![None])];
        let shared = Arc::new(Shared::with_pool(shards, poller()));
        let worker = Worker::with(shared.clone(), 1, BusyPollConfig::default());
        let (shard, sleeps) = (&shared.shards[0], &shared.remote(0).parker);
        let (near, _far) = UnixStream::pair().unwrap();
        let io = Io::new(Held::Owned(near.into()), None);
        for has_sources in [false, true] {
            let reactor = shared.reactor_of(shard);
            if has_sources {
                let (source, direction) = (io.source(), Direction::Read);
                source.clear(direction, source.snapshot(direction));
                let waits = source.add_waiter(reactor, direction, io.id(), Waker::noop());
                assert_eq!(waits.unwrap(), Added::Waiting);
            }
            assert_eq!(reactor.has_sources(), has_sources);
            sleeps.park_as(false);
            worker.poll_for(shard);
            assert_eq!(sleeps.resume(), Wakeup::Notified);
            assert!(shard.poller_lock.try_lock().is_some(), "it is free");
        }
        // Otherwise the source would own itself.
        Driver::new(shared.reactor_of(shard).clone(), Arc::default()).close();
    }
}
