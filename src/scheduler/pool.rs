//! A pool worker: its loop, its waits, stealing, and its exit.
//!
//! The workers of a [shard](super::shard) share one reactor; a task that moves to another shard
//! leaves its sockets there. One of them at a time waits in its poller: see
//! [`sleep`](super::sleep).
//!
//! * A worker that has tasks to run tries the poller's lock between two turns. If it gets it, it
//!   polls without sleeping, and fires timers.
//! * A worker that has none steals, or sleeps: in the poller, or until it is notified.
//!
//! Tasks woken by events are queued on the worker that polled. Others take some of them:
//!
//! * An idle worker is woken to search if more than [`MANY_READY`] tasks are in its queue at the
//!   end of a turn; and after a task that has woken several, or has spawned one while others are
//!   ready: see [`searcher`](super::searcher).
//! * An idle worker takes half of another one's queue. The task in the [LIFO
//!   slot](super::run_queue) stays, unless its worker is stuck: see [`shard`](super::shard).
//! * While all are awake, each takes half of the tasks of a stuck one between two turns.
//!
//! **Why no timer is late.** A worker reads the earliest deadline when it becomes the leader. An
//! earlier one that is set later wakes it ([`Driver::park_in_reactor`]). If no worker leads, one is
//! awake, and polls between its turns, or the monitor does: the last one that falls asleep leads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::busy::BusyPollConfig;
use super::header::{Runnable, Running};
use super::shard::{PollerGuard, Shard, ShardedWorkers, common_moment};
use super::shared::{OwnedTasks, Shared};
use super::sleep::{Sleep, SleepingWorker};
use super::worker::{EVENT_INTERVAL, PoolVTable, Worker};
use crate::clock::now;
use crate::poller::Timeout;
use crate::reactor::Driver;
use crate::sync::OnDrop;
use crate::sync::atomic::{Ordering, fence};
use crate::sys;

/// The queue length up to which no other worker is woken at the end of a turn: the wake-up would
/// cost more than it saves.
const MANY_READY: usize = 4;

static POOL_VTABLE: PoolVTable = PoolVTable {
    run_ready: |worker, tasks| worker.run_each(tasks, Worker::next_of_pool),
    find_work: Worker::find_work,
    sleep_in_pool: Worker::sleep_in_pool,
    poll_pool: Worker::poll_pool,
    search: Worker::search,
    drop_ready_tasks_of_pool: Worker::drop_ready_tasks_of_pool,
    wake_all: OwnedTasks::wake_all,
};

impl Worker {
    /// Makes a worker of a runtime that may have a pool. Only this refers to [`POOL_VTABLE`].
    pub(crate) fn with_pool_vtable(
        shared: Arc<Shared>,
        index: usize,
        busy_poll: BusyPollConfig,
    ) -> Worker {
        Worker::with(shared, index, busy_poll, Some(&POOL_VTABLE))
    }

    /// Drives a pool worker until the runtime closes, then drops its tasks. First calls `start`,
    /// which is foreign code.
    pub(crate) fn run_pool_worker(&self, start: impl FnOnce()) {
        let shared = &**self.shared();
        // Also on a panic: otherwise the main worker would wait forever.
        let _exit_guard = OnDrop(|| shared.worker_exited());
        self.end_embedding(); // A simulated process's worker comes here to end.
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
            // No pool worker polls a task any more.
            self.close_pool();
            // After a failure the main worker may come much later.
            shared
                .stealable_tasks()
                .for_each(|tasks| tasks.owned.wake_all());
            self.drop_stealable_tasks();
            self.drop_tasks();
        }
    }

    fn shard(&self) -> &Shard {
        self.shared().shard(self.local.index)
    }

    fn is_monitor(&self) -> bool {
        self.shard().monitor.is_held_by(self.local.index)
    }

    pub(super) fn is_inspection_due(&self, now: Instant) -> bool {
        self.is_monitor() && self.next_inspection(now) <= now
    }

    /// Polls without sleeping, if the lock is free. If the shard has no monitor, inspects the
    /// others when that is due. If it has one, and the pool has several shards, visits full ones
    /// instead.
    pub(super) fn poll_pool(&self) {
        let shard = self.shard();
        if let Some(guard) = shard.poller_lock.try_lock() {
            self.poll_with(guard);
        }
        let is_monitored = shard.monitor.is_held();
        // The monitor inspects before it sleeps, also if it busy-polls first.
        if is_monitored && (self.shared().shards.len() == 1 || self.is_monitor()) {
            return;
        }
        let now = now();
        if now < self.next_inspection(now) {
            return;
        }
        if is_monitored {
            self.inspections.set_next(now + shard.monitor.interval());
            self.visit_full_shards();
        } else {
            self.inspect_others(now);
            self.steal(true);
        }
    }

    #[inline(never)]
    pub(super) fn before_foreign_code_in_pool(&self) {
        let shared = &**self.shared();
        self.sleeper.begin_work(self.local.index, shared);
        if self.take_search() {
            shared.searcher.end_search(self.local.index, shared);
        }
    }

    fn poll_with(&self, guard: PollerGuard<'_>) {
        self.fire_timers_later();
        if self.reactor.has_sources() {
            self.wait_once(&Timeout::Zero, Some(guard))
        } else {
            self.driver.forget_time()
        }
    }

    /// Sleeps for at most `timeout`, as the leader or as a follower, unless something has come.
    ///
    /// **How the last worker falls asleep**, if no leader sleeps in its shard's poller yet:
    ///
    /// 1. It tries the poller's lock: see [`fall_asleep`](super::sleep::Sleeper::fall_asleep). As
    ///    no other worker of the shard holds it, this one leads. (A worker of another shard may
    ///    hold it: see [`PollerGuard::unlock_and_wake`].)
    /// 2. It parks ([`Parker::park`](crate::reactor::Parker::park)), by an exchange that is also a
    ///    sequentially consistent fence. If `unpark` was called before, the exchange reports it,
    ///    and the worker stays awake. Any later `unpark` notifies the poller, which keeps the
    ///    notification.
    /// 3. It looks at the inject queue and at all run queues (`Local::has_tasks_elsewhere`). A
    ///    thread that injects a task looks for a parked worker after a fence
    ///    ([`Searcher::wake_one`](super::searcher::Searcher::wake_one)): so one of the two sees the
    ///    other. A run queue is never left with tasks: only its worker pushes there, and sleeps
    ///    only when it is empty.
    /// 4. It wakes the main worker if that waits for the last task and none is left. Then it parks
    ///    in the reactor's parker too, and only after that reads the earliest deadline
    ///    ([`Driver::park_in_reactor`]). So an earlier timer is read, or notifies.
    /// 5. It waits in the poller ([`wait_once`](Self::wait_once)), where events wake it.
    pub(super) fn sleep_in_pool(&self, timeout: Option<Duration>) {
        let shared = &**self.shared();
        self.local.counters.parks.add(1);
        let leader = match self.sleeper.fall_asleep(self.local.index, self, shared) {
            Sleep::Leads(guard) => Some(guard),
            Sleep::Follows => None,
            Sleep::StaysAwake(guard) => {
                self.resume();
                return guard.into_iter().for_each(|guard| self.poll_with(guard));
            }
        };
        shared.unpark_main_if_no_task_is_left();
        let mut timeout = timeout;
        if self.is_monitor() {
            let now = self.driver.read_clock();
            let next = common_moment(self.next_inspection(now));
            self.inspections.set_next(next);
            let limit = next.saturating_duration_since(now);
            timeout = Some(timeout.map_or(limit, |timeout| timeout.min(limit)));
        }
        let Some(mut guard) = leader else {
            if self.reactor.poller().is_inherited() {
                // In a child of `fork` there is no leader. The wait fails, with a reason.
                return self.wait_once(&Timeout::Zero, None);
            }
            self.driver.sleep_as_follower(&self.parker, timeout);
            return self.resume();
        };
        // From here on a thread that sets an earlier timer notifies the shard's poller.
        let until = self.driver.park_in_reactor(timeout);
        guard.has_parked_reactor = true;
        self.fire_timers_later();
        self.wait_once(&until, Some(guard));
    }

    /// Inspects the others, if that is due and no other worker is the monitor, and steals. Returns
    /// whether there is anything to run.
    pub(super) fn find_work(&self) -> bool {
        let is_left_to_another = self.shard().monitor.is_held() && !self.is_monitor();
        if !is_left_to_another {
            let now = now();
            if self.next_inspection(now) <= now {
                self.inspect_others(now);
                // Tasks that it has woken for a full shard are its own now.
                if self.local.has_work() {
                    return true;
                }
            }
        }
        self.steal(false)
    }

    /// Takes tasks that are ready on another worker; with `only_stuck`, on a stuck one. Returns
    /// whether there were any.
    fn steal(&self, only_stuck: bool) -> bool {
        let (local, shared) = (&*self.local, &**self.shared());
        if shared.is_closing() {
            return false;
        }
        let workers = shared.workers();
        let mut others = (1..workers).map(|offset| (local.index + offset) % workers);
        others.any(|victim| {
            let polls = shared.remote(victim).counters.polls.get();
            // A parked one has since returned from that poll.
            let is_stuck = self.inspections.is_stuck(victim, polls) && !shared.is_parked(victim);
            (is_stuck || !only_stuck) && local.steal_half(victim, is_stuck)
        })
    }

    fn next_inspection(&self, now: Instant) -> Instant {
        self.inspections.next(now, &self.shard().monitor)
    }

    #[cold]
    fn inspect_others(&self, now: Instant) {
        let (shared, monitor) = (&**self.shared(), &self.shard().monitor);
        let others_work = self.have_others_worked() || shared.needs_monitor(self.local.index);
        let was_woken = self.sleeper.note_inspection(others_work);
        let (mut is_any_awake, mut is_any_stuck, mut any_computes) = (false, false, false);
        for (index, remote) in shared.pool_workers().iter().enumerate() {
            let is_awake = !shared.is_parked(index);
            // Each reading is a system call, so it is made for workers of this shard only. (In a
            // simulated world all workers are on one thread.)
            let is_near = self.shard().workers.contains(&index) && index != self.local.index;
            let cpu_time = (is_awake && is_near && !shared.is_on_one_thread)
                .then(|| sys::thread_cpu_time(remote.thread()))
                .flatten();
            let polls = remote.counters.polls.get();
            let (is_stuck, computes) =
                (self.inspections).inspect(index, now, polls, is_awake, cpu_time);
            // Another shard's monitor, which wakes at the same moments, does no work.
            let is_monitor = || shared.shard(index).monitor.is_held_by(index);
            if index != self.local.index && is_awake && !is_monitor() {
                is_any_awake = true;
                is_any_stuck |= is_stuck;
                any_computes |= computes;
            }
        }
        monitor.count_inspection(any_computes);
        // A worker that was woken is not unsure: the awake worker is the one that has woken it.
        let is_unsure = !was_woken && is_any_awake && !is_any_stuck;
        self.inspections.end(now, monitor, is_unsure);
        self.visit_full_shards();
    }

    /// Polls for the full shards that were not polled since the last visit.
    fn visit_full_shards(&self) {
        let shared = self.shared();
        for shard in shared.other_full_shards(self.local.index) {
            let index = shard.workers.start / shared.workers_of_shard;
            if !self.inspections.visit(index, shard.poller_lock.uses()) {
                self.poll_for(shard);
                self.inspections.visit(index, shard.poller_lock.uses());
            }
        }
    }

    /// Polls for another shard without sleeping, and fires its timers, unless its lock is taken.
    pub(super) fn poll_for(&self, shard: &Shard) {
        let Some(guard) = shard.poller_lock.try_lock() else {
            return;
        };
        let shared = self.shared();
        let reactor = shared.reactor_of(shard).clone();
        let driver = Driver::new(reactor, self.local.counters.clone());
        // If the wait fails here, it fails on the shard's own threads too.
        let has_sources = driver.reactor().has_sources();
        let has_wakers = has_sources && driver.wait(&Timeout::Zero).unwrap_or(false);
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

    #[inline]
    pub(super) fn end_pool_turn(&self, pool: &PoolVTable) {
        let local = &*self.local;
        local.release_yielded_stealable();
        if self.take_search() {
            (pool.search)(self);
        }
        let queue = &local.stealable_tasks().queue;
        if queue.len() > MANY_READY && queue.count_items(MANY_READY + 1) > MANY_READY {
            local.shared.try_wake_one();
        }
    }

    #[inline(always)]
    pub(super) fn next_of_pool(&self) -> Option<Runnable> {
        let local = &*self.local;
        let next = local.next_task()?;
        self.sleeper.begin_work(local.index, &*local.shared);
        if next.metadata().index() != local.index {
            next.metadata().assign(local.index);
        }
        local.begin_run();
        Some(next)
    }

    /// Takes some of the tasks that this worker was woken for, then allows the next one to be
    /// woken.
    #[cold]
    fn search(&self) {
        let local = &*self.local;
        if !local.queue_share() && !local.has_ready() {
            self.steal(false);
        }
        local
            .shared
            .searcher
            .end_search(local.index, &*local.shared);
    }
}

impl SleepingWorker for Worker {
    fn park(&self, leads: bool) -> bool {
        self.record_wakeup(self.parker.park_as(leads));
        self.needs_collect.get()
    }

    fn has_tasks(&self) -> bool {
        self.local.has_tasks_elsewhere()
    }

    fn have_others_worked(&self) -> bool {
        let (index, shared) = (self.local.index, self.shared());
        (self.shard().workers.clone())
            .filter(|&other| other != index)
            .any(|other| {
                let polls = shared.remote(other).counters.polls.get();
                self.inspections.has_polled(other, polls)
            })
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::poller::{Backend, Poller};
    use crate::reactor::{Direction, Held, Io, Registered, Wakeup};
    use std::os::unix::net::UnixStream;
    use std::task::Waker;

    #[test]
    fn a_lock_released_for_a_shard_wakes_its_worker() {
        let poller = || Poller::new(Backend::default()).expect("it opens");
        let shards = vec![(poller(), vec![None]), (poller(), vec![None])];
        let shared = Arc::new(Shared::with_pool(shards, poller()));
        let worker = Worker::with_pool_vtable(shared.clone(), 1, BusyPollConfig::default());
        let (shard, sleeps) = (&shared.shards[0], &shared.remote(0).parker);
        let (near, _far) = UnixStream::pair().unwrap();
        let io = Io::new(Held::Owned(near.into()), None);
        for has_sources in [false, true] {
            let reactor = shared.reactor_of(shard);
            if has_sources {
                let (source, direction) = (io.source(), Direction::Read);
                source.clear(direction, source.snapshot(direction));
                let waits = source.add_waiter(reactor, direction, io.id(), Waker::noop());
                assert_eq!(waits.unwrap(), Registered::Pending);
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
