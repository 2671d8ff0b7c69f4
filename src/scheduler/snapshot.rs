//! What the workers of a runtime, and their tasks, are at: what a dump is made of.
//!
//! **Who says what.** Movable tasks are in lists that every thread can read. What belongs to one
//! worker's thread (the tasks that stay, its queues, its timers) the worker tells itself, when it
//! is [asked](super::request), between two polls; on its own thread it is read in place. A worker
//! that does not answer within [`PATIENCE`] is stuck, and is told by what it shows at all times:
//! which task it runs. Nothing here polls a task, clones or drops a waker, or runs other foreign
//! code.
//!
//! **Whose waker is this?** Sources and timers keep wakers. That of a task is told by its address,
//! which is compared and never followed: no two tasks have the same one at a time, and no other
//! allocation has. A worker tells its tasks with the wakers of its reactor in one go, while none of
//! them can end. Movable tasks may end meanwhile, and others take their places: so their lists are
//! read before and after the sources, and what was not there both times is not matched.

use std::cell::Cell;
use std::panic::Location;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::leaf::{self, Waits};
use super::local::Local;
use super::pairs::Pairs;
use super::request::Request;
use super::shared::{Drive, Remote, Shared};
use super::worker::MainWaker;
use super::{Id, Meta, Name};
use crate::reactor::{Driver, SourceWait, TimerWait, now};
use crate::sync::atomic::Ordering;

/// How long a worker has to answer: a poll that takes longer keeps others waiting for far too long.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);

/// How long a worker has that has begun to answer. It runs no foreign code meanwhile, so that it is
/// done some time: later with more tasks, and on a machine that does other things too.
const ANSWERING: Duration = Duration::from_secs(10);

/// What is known of a task, or of the future of `block_on`.
#[derive(Clone, Debug)]
pub(crate) struct TaskRecord {
    /// The address in its waker; zero if it was never polled.
    waker: usize,
    /// `None` for a future of `block_on`.
    pub(crate) id: Option<Id>,
    pub(crate) name: Option<Name>,
    pub(crate) site: &'static Location<'static>,
    pub(crate) spawned: u32,
    pub(crate) polled: u32,
    pub(crate) polls: u32,
    pub(crate) waits: Waits,
    /// It was seen to run.
    pub(crate) runs: bool,
    pub(crate) sources: Vec<(usize, SourceWait)>,
    pub(crate) timers: Vec<Instant>,
}

impl TaskRecord {
    pub(super) fn new(waker: Option<&Waker>, meta: &Meta) -> TaskRecord {
        TaskRecord {
            waker: waker.map_or(0, |waker| waker.data().addr()),
            id: Some(meta.id()),
            name: meta.name().cloned(),
            site: meta.site(),
            spawned: meta.spawned,
            polled: meta.polled.load(Ordering::Relaxed),
            polls: meta.polls.load(Ordering::Relaxed),
            waits: TaskRecord::waits(meta),
            runs: false,
            sources: Vec::new(),
            timers: Vec::new(),
        }
    }
}

/// A future of `block_on` that a worker drives.
#[derive(Debug)]
pub(super) struct MainFuture {
    pub(super) waker: Arc<MainWaker>,
    pub(super) site: &'static Location<'static>,
    pub(super) began: u32,
    pub(super) polled: Cell<u32>,
    pub(super) polls: Cell<u32>,
    pub(super) waits_for: Cell<u64>,
    pub(super) is_in_poll: Cell<bool>,
}

impl MainFuture {
    /// It is about to be polled.
    #[inline]
    pub(super) fn begin_poll(&self, tick: u32) {
        self.polls.set(self.polls.get().wrapping_add(1));
        self.polled.set(tick);
        self.is_in_poll.set(true);
        leaf::begin_main_poll();
    }

    /// Its poll has returned `Pending`.
    #[inline]
    pub(super) fn end_poll(&self) {
        self.waits_for.set(leaf::of_main());
        self.is_in_poll.set(false);
    }

    fn record(&self) -> TaskRecord {
        let waits = match self.waker.is_woken() {
            true => Waits::Nothing,
            false => Waits::decode(self.waits_for.get()),
        };
        TaskRecord {
            waker: Arc::as_ptr(&self.waker).addr(),
            id: None,
            name: None,
            site: self.site,
            spawned: self.began,
            polled: self.polled.get(),
            polls: self.polls.get(),
            waits,
            runs: self.is_in_poll.get(),
            sources: Vec::new(),
            timers: Vec::new(),
        }
    }
}

/// What a worker is asked.
pub(super) type Question = fn(&Local, &Driver) -> WorkerSnapshot;

/// What a worker tells of itself.
#[derive(Debug)]
pub(crate) struct WorkerSnapshot {
    /// The tasks that stay, and the futures of `block_on`.
    tasks: Vec<TaskRecord>,
    /// As they come: who asks puts them in order, since the worker pauses meanwhile.
    sources: Vec<SourceWait>,
    timers: Vec<TimerWait>,
}

/// The wakers that sources and timers keep, by whose they are.
#[derive(Debug)]
struct Wakers {
    /// With the worker.
    sources: Vec<(usize, SourceWait)>,
    timers: Vec<TimerWait>,
    /// Where those of a waker are in the two.
    sources_of: Pairs,
    timers_of: Pairs,
}

impl Wakers {
    fn new(sources: Vec<(usize, SourceWait)>, timers: Vec<TimerWait>) -> Wakers {
        let places = sources.iter().enumerate();
        let places = places.map(|(place, (_, wait))| (wait.waker as u64, place as u64));
        let sources_of = Pairs::new(places.collect());
        let places = timers.iter().enumerate();
        let places = places.map(|(place, wait)| (wait.waker as u64, place as u64));
        Wakers {
            timers_of: Pairs::new(places.collect()),
            sources_of,
            sources,
            timers,
        }
    }

    /// Whose they are that wait: once for sources, and once for timers.
    fn all(&self) -> impl Iterator<Item = u64> {
        let is_waited_for = |of_waker: &&[(u64, u64)]| {
            let mut waits = of_waker.iter().map(|it| self.sources[it.1 as usize].1);
            waits.any(|wait| wait.is_waiting)
        };
        let sources = self.sources_of.groups().filter(is_waited_for);
        sources
            .chain(self.timers_of.groups())
            .map(|group| group[0].0)
    }

    /// Gives a task what is its own. A source that two workers serve is there twice.
    fn assign(&self, task: &mut TaskRecord) {
        if task.waker == 0 {
            return;
        }
        let waker = task.waker as u64;
        let mut seen = Pairs::default();
        for (_, place) in self.sources_of.of(waker) {
            let (worker, wait) = self.sources[*place as usize];
            if seen.insert((wait.source as u64, wait.direction as u64)) {
                task.sources.push((worker, wait));
            }
        }
        let timers = self.timers_of.of(waker).iter();
        (task.timers).extend(timers.map(|(_, place)| self.timers[*place as usize].due));
    }
}

impl Local {
    /// What only this thread can tell.
    pub(super) fn snapshot(&self, driver: &Driver) -> WorkerSnapshot {
        self.counters.set_tick(now());
        let mut tasks = self.owned.records();
        tasks.extend(self.new_tasks());
        tasks.extend(self.mains.borrow().iter().map(|main| main.record()));
        WorkerSnapshot {
            tasks,
            sources: driver.reactor().source_waits(),
            timers: driver.timer_waits(),
        }
    }
}

/// What is known of a worker.
#[derive(Debug)]
pub(crate) struct WorkerRecord {
    pub(crate) state: State,
    /// Ticks since it last read its clock.
    pub(crate) tick: u32,
    pub(crate) sources: usize,
    pub(crate) load: usize,
    /// What it runs.
    pub(crate) running: Option<(u64, &'static Location<'static>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// It slept when it was asked.
    Parked,
    /// It was awake, and has answered.
    Awake,
    /// It is this thread's.
    Here,
    /// Nobody drives it.
    NotDriven,
    /// It has not answered.
    Silent,
}

/// What the workers and tasks of a runtime are at.
#[derive(Debug)]
pub(crate) struct SharedSnapshot {
    pub(crate) workers: Vec<WorkerRecord>,
    /// With the index of the worker, unless nobody has taken the task yet.
    pub(crate) tasks: Vec<(Option<usize>, TaskRecord)>,
    /// How many sources and timers will wake whom nobody knows: not a task, but what a task has
    /// wrapped its waker in.
    pub(crate) unknown_waits: usize,
}

/// What a dump leaves for the next one, which so knows what has not changed: see
/// `diagnostics::hints`.
#[derive(Clone, Debug)]
pub(crate) struct Earlier {
    pub(crate) at: Instant,
    /// Sources that were readable while nobody waited for them.
    pub(crate) unread: Vec<EarlierUnread>,
    /// How often each task was polled that had woken itself, by id.
    pub(crate) woken_by_themselves: Pairs,
    /// How many tasks there were, and how many polls in all of them.
    pub(crate) polls: (usize, u64),
    /// The worker that had all the ready tasks, if one had.
    pub(crate) burdened: Option<usize>,
    /// How many jobs the pool had done, if it was full.
    pub(crate) full_pool: Option<usize>,
}

/// A source that was readable while nobody waited for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EarlierUnread {
    /// Its address.
    pub(crate) source: usize,
    pub(crate) since: Instant,
    /// The task that was woken for it: zero for a future of `block_on`.
    pub(crate) task: u64,
    /// Events and what was spent of them, and how many bytes were there: as long as these are the
    /// same nobody reads.
    pub(crate) mark: ((u32, u32), u64),
}

impl SharedSnapshot {
    /// `own` are the workers of the runtime that belong to this thread, and what they tell: mostly
    /// one, or none.
    pub(crate) fn take(
        shared: &Shared,
        mut own: Vec<(usize, WorkerSnapshot)>,
        patience: Duration,
    ) -> SharedSnapshot {
        let mut asked = Vec::new();
        let mut workers = Vec::new();
        for (index, remote) in shared.remotes().iter().enumerate() {
            // Before it is asked, which wakes it, and has it read its clock.
            let mut worker = WorkerRecord {
                state: State::Here,
                tick: remote.reactor.counters().tick(),
                sources: remote.reactor.sources(),
                load: remote.load(),
                running: remote.reactor.counters().task(),
            };
            let mut request = None;
            if own.iter().all(|it| it.0 != index) && !shared.is_simulated() {
                (worker.state, request) = ask(remote);
            }
            asked.push(request);
            workers.push(worker);
        }

        // The movable tasks, before and after the sources and timers that they may wait for.
        let pools = || {
            let remotes = shared.remotes().iter().enumerate();
            remotes.filter(|(_, remote)| remote.pool().is_some())
        };
        let before = pools().flat_map(|(_, remote)| remote.movable_tasks().ids());
        let before = before.map(|(waker, id)| (waker as u64, id.as_u64()));
        let before = Pairs::new(before.collect());
        let (mut sources, mut timers) = (Vec::new(), Vec::new());
        for (index, remote) in pools() {
            sources.extend(with_worker(index, remote.reactor.source_waits()));
            timers.append(&mut remote.reactor.remote_timer_waits());
        }
        let wakers = Wakers::new(sources, timers);
        // What is being polled waits for nothing, whatever was noted before.
        let mut running = running_tasks(shared);
        let mut assigned = Vec::new();
        let mut tasks = Vec::new();
        for (_, remote) in pools() {
            for (worker, mut task) in remote.movable_tasks().records() {
                if before.get(task.waker as u64) == task.id.map(Id::as_u64) {
                    wakers.assign(&mut task);
                    assigned.push((task.waker as u64, 0));
                }
                tasks.push((Some(worker), task));
            }
        }
        let mut waited_for: Vec<u64> = wakers.all().collect();
        running.extend(running_tasks(shared));
        for (_, task) in &mut tasks {
            task.runs = task.id.is_some_and(|id| running.contains(&id.as_u64()));
        }
        tasks.extend(shared.injected_records().into_iter().map(|it| (None, it)));

        let deadline = now() + patience;
        for (index, remote) in shared.remotes().iter().enumerate() {
            let answer = match asked[index].take() {
                Some(request) => {
                    let mut answer = request.wait(deadline, now);
                    if answer.is_none() && !remote.requests.withdraw(&request) {
                        answer = request.wait(deadline + ANSWERING, now);
                    }
                    if answer.is_none() {
                        workers[index].state = match remote.drive() {
                            Drive::Driven => State::Silent,
                            Drive::None | Drive::BetweenTurns => State::NotDriven,
                        };
                        workers[index].running = remote.reactor.counters().task();
                    }
                    answer
                }
                None => {
                    let place = own.iter().position(|it| it.0 == index);
                    place.map(|place| own.swap_remove(place).1)
                }
            };
            if let Some(snapshot) = answer {
                let sources = with_worker(index, snapshot.sources);
                let wakers = Wakers::new(sources.collect(), snapshot.timers);
                for mut task in snapshot.tasks {
                    wakers.assign(&mut task);
                    assigned.push((task.waker as u64, 0));
                    tasks.push((Some(index), task));
                }
                waited_for.extend(wakers.all());
            }
        }
        let assigned = Pairs::new(assigned);
        let is_left = |waker: &&u64| assigned.get(**waker).is_none();
        SharedSnapshot {
            workers,
            tasks,
            unknown_waits: waited_for.iter().filter(is_left).count(),
        }
    }
}

fn with_worker(worker: usize, waits: Vec<SourceWait>) -> impl Iterator<Item = (usize, SourceWait)> {
    waits.into_iter().map(move |wait| (worker, wait))
}

/// The tasks that the workers run just now.
fn running_tasks(shared: &Shared) -> Vec<u64> {
    let counters = shared.remotes().iter().map(|it| it.reactor.counters());
    counters.filter_map(|it| Some(it.task()?.0)).collect()
}

/// Asks a worker, unless nobody drives it: a foreign loop may turn for it.
fn ask(remote: &Remote) -> (State, Option<Arc<Request<Question, WorkerSnapshot>>>) {
    if remote.drive() == Drive::None {
        return (State::NotDriven, None);
    }
    let state = match remote.reactor.is_parked() {
        true => State::Parked,
        false => State::Awake,
    };
    let request = remote.requests.ask(Local::snapshot);
    remote.reactor.unpark_best_effort();
    (state, Some(request))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Latch;
    use std::sync::mpsc;

    const SHORT: Duration = Duration::from_millis(50);

    /// What keeps a worker until the patience of whoever asks next is over.
    fn slowly(local: &Local, driver: &Driver) -> WorkerSnapshot {
        std::thread::sleep(4 * SHORT);
        local.snapshot(driver)
    }

    #[test]
    fn a_worker_that_has_begun_to_answer_is_waited_for() {
        let (tell, told) = mpsc::channel();
        let stop = Arc::new(Latch::new());
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = crate::Runtime::new().expect("it opens");
            runtime.block_on(async {
                let shared = super::super::with_local(|local| local.shared.clone());
                tell.send(shared).expect("somebody waits");
                stopped.wait().await;
            });
        });
        let shared = told.recv().expect("it is driven").expect("its worker");
        // On a busy machine it may not have begun by then.
        let has_answered = (0..20).any(|_| {
            shared.remote(0).requests.ask(slowly);
            let snapshot = SharedSnapshot::take(&shared, Vec::new(), SHORT);
            !matches!(snapshot.workers[0].state, State::Silent | State::NotDriven)
        });
        stop.set();
        thread.join().expect("its future is done");
        assert!(has_answered, "it is told to be silent");
    }
}
