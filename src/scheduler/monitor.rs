//! The monitor: a thread of the process that finds pool workers that compute, and wakes others.
//!
//! A worker that polls one task for long is *stuck*: it delays the tasks in its queue and, if it
//! was the leader of its [shard](super::sleep), events and timers. So the monitor *inspects* the
//! workers of all pools periodically. A worker is stuck if it is awake at two inspections in a row,
//! has begun no poll in between, and does not busy-poll. It needs help if it has tasks that others
//! may take, if tasks are in the inject queue, or if nobody has polled its shard since then. So
//! does a shard that nobody has polled for [`TURN`], although a worker is awake: one whose turns
//! are long. Then the monitor wakes an idle worker, of that shard if there is one, and of any other
//! one otherwise; and it counts in `Shared::help_wanted`, which also workers that are awake read
//! between two turns. If all workers of a pool are stuck, nobody can help. (Go: sysmon, which
//! retakes a P that is in a system call or runs one goroutine for long, and polls the network if
//! nobody has for 10 ms.)
//!
//! **How often.** Most tasks do not compute.
//!
//! | found last | next inspection |
//! |---|---|
//! | no worker has worked since the inspection before | when one works, by the rows below |
//! | an idle worker was woken to help | after [`INTERVAL`] |
//! | one has computed in the last [`FREQUENT_FOR`], and not all are stuck | after [`INTERVAL`] |
//! | one is idle, and another one may be stuck | after [`TURN`], once |
//! | one was stuck in the last [`LONG_FOR`] | after [`CPU_INTERVAL`], or [`LONG_INTERVAL`] |
//! | none was | after [`CPU_INTERVAL`], or [`QUIET_INTERVAL`] |
//!
//! The second thread sleeps until the process has used [`CPU_INTERVAL`] of processor time, on
//! Linux. That clock stands still while nobody computes. The thread wakes at a tick of the system's
//! clock, so up to 4 ms late where that has 250 Hz. A task that blocks its worker and uses no
//! processor time is found by the other intervals. Elsewhere, or if the system refuses that sleep,
//! the monitor stays at the long interval.
//!
//! A stuck worker *computes* if its thread has used the processor for half of the time since the
//! inspection before. Where the system does not tell a thread's processor time, each stuck one
//! counts. On a busy machine workers are preempted for a few milliseconds every few milliseconds,
//! and look stuck; with frequent inspections for these, too, HTTP on two workers took 8 % more CPU
//! time (Intel Xeon, two cores, 50 connections).
//!
//! **While all workers sleep** the monitor [pauses](MonitorPause), until one begins to work.
//!
//! Who may touch what: the list of pools is behind a lock, which the monitor holds during an
//! inspection, so that a runtime that closes is inspected no more. The monitor runs no foreign
//! code: it reads the workers' counters, and wakes. Its thread stays until the process ends, and so
//! does the second one where the system has that sleep.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::shared::Shared;
use super::sleep::{MonitorPause, PollerLock};
use crate::clock::now;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, ThreadSignal};
use crate::sys::{self, PerProcess, start_thread_with_stack};

/// An event that comes while all others compute, and a task behind a long poll, are found within
/// two of these: that poll, or another shard's help, may have begun just after an inspection. So
/// two of them, and the time that two threads take to wake up, stay below a millisecond.
const INTERVAL: Duration = Duration::from_micros(350);

/// Longer than most polls, and than the turns of most workers, which poll their shard between two
/// of them.
const TURN: Duration = Duration::from_millis(2);

/// With a tick of 4 ms, the second inspection after a [`TURN`], and wake-ups, less than 12 ms.
const CPU_INTERVAL: Duration = Duration::from_millis(5);

/// The time between two inspections where many cores use that much in a moment.
const MIN_CPU_INTERVAL: Duration = Duration::from_millis(1);

/// With the second inspection after a [`TURN`], and wake-ups, less than 12 ms.
const LONG_INTERVAL: Duration = Duration::from_millis(9);

/// A pause of a hundred milliseconds is one that a person notices, and ten or twenty wake-ups a
/// second are not seen in a profile.
const QUIET_INTERVAL: Duration = Duration::from_millis(100);

/// Longer than [`LONG_INTERVAL`]. So a program that computes at least that often is inspected
/// frequently.
const FREQUENT_FOR: Duration = Duration::from_millis(11);

/// So in a program that blocks its workers from time to time this is found soon, too.
const LONG_FOR: Duration = Duration::from_millis(400);

/// Enough for its few small functions; a thread's default is 2 MiB.
const STACK: usize = 128 * 1024;

/// False with `--cfg polder_no_monitor`: a missing wake-up beside a stuck worker then hangs a test,
/// where the monitor would only make it a little late (`ci/no_monitor.sh`). False under Miri, which
/// takes a thread that is there at the end of `main` for an error.
const IS_ON: bool = !cfg!(any(polder_no_monitor, miri));

static MONITOR: PerProcess<Monitor> = PerProcess::new(Monitor::default);

#[derive(Default)]
struct Monitor {
    pools: Mutex<Pools>,
    pause: MonitorPause,
    /// Whether a thread wakes the monitor by processor time.
    has_cpu_clock: AtomicBool,
    /// Wakes that thread after a pause.
    resumed: ThreadSignal,
}

#[derive(Default)]
struct Pools {
    list: Vec<Pool>,
    is_started: bool,
}

/// A pool, as the last inspection has found it.
struct Pool {
    shared: Arc<Shared>,
    workers: Box<[Seen]>,
    shards: Box<[SeenShard]>,
    at: Instant,
    /// When a worker has computed.
    computed_at: Option<Instant>,
    /// When a worker was not stuck, and so could help.
    free_at: Option<Instant>,
}

#[derive(Default)]
struct Seen {
    polls: usize,
    /// Whether it is awake, and does not busy-poll.
    may_be_stuck: bool,
    /// Whether that was so at the inspection before, too, and it has begun no poll since.
    is_stuck: bool,
    /// The processor time of its thread, if it is awake and the system knows it.
    cpu_time: Option<Duration>,
}

#[derive(Default)]
struct SeenShard {
    /// The [uses](super::sleep::PollerLock::uses) of its lock.
    uses: usize,
    /// The last inspection that has found the lock held or used, or no worker that may be stuck.
    used_at: Option<Instant>,
}

#[derive(Default)]
struct Found {
    /// Whether a worker is awake, or was since the last inspection.
    has_worked: bool,
    /// Whether one may be stuck beside an idle one, or it was too soon to tell.
    is_unsure: bool,
    is_any_stuck: bool,
    has_woken_helper: bool,
    /// Whether a worker has computed lately, beside one that is not stuck.
    is_frequent: bool,
}

/// Returns the part of the monitor that the workers of a pool use, unless it is switched off.
pub(crate) fn pause() -> Option<&'static MonitorPause> {
    IS_ON.then(|| &MONITOR.get().pause)
}

/// Begins to inspect a pool, some of whose workers may have begun to work, or to leave. For the
/// first one starts the monitor's threads.
///
/// # Errors
///
/// If the thread cannot be started.
pub(crate) fn add(shared: &Arc<Shared>) -> io::Result<()> {
    if !IS_ON {
        return Ok(());
    }
    let monitor = MONITOR.get();
    let mut pools = monitor.pools.lock();
    if !pools.is_started {
        start_thread_with_stack("polder-monitor", Some(STACK), Box::new(|| monitor.run()))?;
        pools.is_started = true;
        // Without it the monitor sleeps by the other clock.
        let run = || monitor.wake_by_processor_time();
        _ = start_thread_with_stack("polder-cpu-time", Some(STACK), Box::new(run));
    }
    // Otherwise its last worker may have called `remove`.
    if !shared.is_closing() {
        pools.list.push(Pool::new(shared.clone()));
    }
    drop(pools);
    monitor.pause.end();
    Ok(())
}

/// Called by the last worker of a pool that leaves.
pub(super) fn remove(shared: &Shared) {
    let mut pools = MONITOR.get().pools.lock();
    let index = (pools.list.iter()).position(|pool| std::ptr::eq(&*pool.shared, shared));
    let removed = index.map(|index| pools.list.swap_remove(index));
    drop(pools);
    drop(removed);
}

impl Monitor {
    fn run(&self) {
        let (mut stuck_at, mut confirms) = (None, false);
        loop {
            let (now, mut found) = (now(), Found::default());
            for pool in &mut self.pools.lock().list {
                pool.inspect(now, &mut found);
            }
            if found.is_any_stuck {
                stuck_at = Some(now);
            }
            confirms = found.is_unsure && !confirms;
            if !found.has_worked && !found.is_unsure {
                self.pause.wait(|| self.is_any_awake());
                self.resumed.notify();
                if found.is_frequent {
                    continue;
                }
            } else if found.is_frequent || found.has_woken_helper {
                thread::sleep(INTERVAL);
                continue;
            } else if confirms {
                thread::sleep(TURN);
                continue;
            }
            let has_cpu_clock = self.has_cpu_clock.load(Ordering::Relaxed);
            let interval = if is_within(LONG_FOR, stuck_at, now) || !has_cpu_clock {
                LONG_INTERVAL
            } else {
                QUIET_INTERVAL
            };
            self.pause.signal.wait(Some(interval));
        }
    }

    /// The loop of the second thread.
    fn wake_by_processor_time(&self) {
        // Not counted, since it asks whether the system knows this sleep.
        let mut result = sys::sleep_by_processor_time(Duration::ZERO);
        self.has_cpu_clock.store(result.is_ok(), Ordering::Relaxed);
        while result.is_ok() {
            let start = now();
            result = sys::sleep_by_processor_time(CPU_INTERVAL);
            while self.pause.is_paused() {
                self.resumed.wait(None);
            }
            self.pause.signal.notify();
            thread::sleep(MIN_CPU_INTERVAL.saturating_sub(start.elapsed()));
        }
        self.has_cpu_clock.store(false, Ordering::Relaxed);
    }

    fn is_any_awake(&self) -> bool {
        let pools = self.pools.lock();
        let is_awake = |pool: &Pool| {
            let shared = &pool.shared;
            (0..pool.workers.len()).any(|index| !shared.is_parked(index)) && !shared.is_closing()
        };
        pools.list.iter().any(is_awake)
    }
}

impl Pool {
    fn new(shared: Arc<Shared>) -> Pool {
        Pool {
            workers: (0..shared.workers()).map(|_| Seen::default()).collect(),
            shards: (shared.shards.iter())
                .map(|_| SeenShard::default())
                .collect(),
            shared,
            at: now(),
            computed_at: None,
            free_at: None,
        }
    }

    fn inspect(&mut self, now: Instant, found: &mut Found) {
        let shared = &*self.shared;
        let elapsed = now.saturating_duration_since(self.at);
        if shared.is_closing() {
            return;
        }
        if elapsed < INTERVAL / 2 {
            // So soon after the last one a short poll would look long.
            found.is_unsure = true;
            found.is_frequent |= self.is_frequent(now);
            return;
        }
        self.at = now;
        for (index, seen) in self.workers.iter_mut().enumerate() {
            let remote = shared.remote(index);
            let (polls, is_awake) = (remote.counters.polls.get(), !shared.is_parked(index));
            let thread = is_awake.then(|| remote.thread());
            let cpu_time = thread.and_then(sys::thread_cpu_time);
            let may_be_stuck = is_awake && !remote.busy_polls.load(Ordering::Relaxed);
            found.has_worked |= is_awake || seen.polls != polls;
            if seen.update(polls, may_be_stuck, cpu_time, elapsed) {
                self.computed_at = Some(now);
            }
            remote.set_stuck_in(seen.is_stuck.then_some(polls));
        }
        let is_any = |f: fn(&Seen) -> bool| self.workers.iter().any(f);
        let may_yet_be = |seen: &Seen| seen.may_be_stuck && !seen.is_stuck;
        found.is_unsure |= is_any(may_yet_be) && is_any(|seen| !seen.may_be_stuck);
        found.is_any_stuck |= is_any(|seen| seen.is_stuck);
        let are_all_stuck = self.workers.iter().all(|seen| seen.is_stuck);
        if !are_all_stuck {
            self.free_at = Some(now);
        }
        found.is_frequent |= self.is_frequent(now);
        if are_all_stuck {
            return;
        }
        let is_stuck = |index: usize| self.workers[index].is_stuck;
        let mut has_woken_helper = false;
        for (shard, seen) in shared.shards.iter().zip(&mut self.shards) {
            let mut workers = shard.workers.clone();
            let may_be_stuck = workers.any(|index| self.workers[index].may_be_stuck);
            let unused_for = seen.update(&shard.poller_lock, may_be_stuck, now);
            let is_neglected = !unused_for.is_zero() && shard.workers.clone().any(is_stuck);
            if is_neglected || unused_for >= TURN {
                shard.is_neglected.store(true, Ordering::Release);
                has_woken_helper |= shared.want_help(shard.workers.clone());
            }
        }
        // The first task that a stuck one has spawned was injected without a wake-up.
        let has_tasks = |index| {
            is_stuck(index)
                && (shared.has_injected() || shared.pool_remote(index).queue.has_items())
        };
        // A worker that was woken for a shard takes tasks, too.
        found.has_woken_helper |= has_woken_helper
            || (0..self.workers.len()).any(has_tasks) && shared.want_help(0..shared.workers());
    }

    fn is_frequent(&self, now: Instant) -> bool {
        is_within(FREQUENT_FOR, self.computed_at, now) && is_within(TURN, self.free_at, now)
    }
}

fn is_within(time: Duration, at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| now.saturating_duration_since(at) < time)
}

impl SeenShard {
    /// Records what an inspection finds of a shard's lock. Returns for how long nobody has polled,
    /// although a worker was awake.
    fn update(&mut self, lock: &PollerLock, may_be_stuck: bool, now: Instant) -> Duration {
        let uses = lock.uses();
        if self.uses != uses || !lock.is_free() || !may_be_stuck {
            self.used_at = Some(now);
        }
        self.uses = uses;
        let used_at = *self.used_at.get_or_insert(now);
        now.saturating_duration_since(used_at)
    }
}

impl Seen {
    /// Records what an inspection finds of a worker, at a time of `elapsed` after the last one.
    /// Returns whether it computes.
    fn update(
        &mut self,
        polls: usize,
        may_be_stuck: bool,
        cpu_time: Option<Duration>,
        elapsed: Duration,
    ) -> bool {
        let is_stuck = may_be_stuck && self.may_be_stuck && self.polls == polls;
        let has_used_half = match (self.cpu_time, cpu_time) {
            (Some(before), Some(cpu_time)) => cpu_time.saturating_sub(before) * 2 >= elapsed,
            _ => true,
        };
        *self = Seen {
            polls,
            may_be_stuck,
            is_stuck,
            cpu_time,
        };
        is_stuck && has_used_half
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker that is preempted for a moment is stuck and does not compute.
    #[test]
    fn stuck_worker_computes_by_its_processor_time() {
        let mut seen = Seen::default();
        let mut used = Duration::ZERO;
        let mut inspect = |uses: Option<Duration>| {
            used += uses.unwrap_or_default();
            let computes = seen.update(1, true, uses.map(|_| used), INTERVAL);
            (seen.is_stuck, computes)
        };
        assert_eq!(inspect(Some(INTERVAL)), (false, false), "seen once");
        assert_eq!(inspect(Some(INTERVAL)), (true, true));
        assert_eq!(inspect(Some(INTERVAL / 2)), (true, true));
        assert_eq!(inspect(Some(INTERVAL / 3)), (true, false));
        assert_eq!(inspect(Some(Duration::ZERO)), (true, false));
        assert_eq!(inspect(None), (true, true), "the system does not know");
    }

    /// The sleep by processor time ends while a thread computes.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[cfg_attr(miri, ignore = "there is no such clock")]
    #[test]
    fn sleep_by_processor_time_ends_while_one_computes() {
        let sleeper = thread::spawn(|| sys::sleep_by_processor_time(CPU_INTERVAL));
        let start = now();
        while !sleeper.is_finished() {
            assert!(start.elapsed() < Duration::from_secs(60));
            std::hint::spin_loop();
        }
        sleeper.join().unwrap().unwrap();
    }
}
