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
use std::collections::{HashMap, HashSet};
use std::panic::Location;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::leaf::{self, Waits};
use super::local::Local;
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
#[derive(Default, Debug)]
struct Wakers {
    sources: HashMap<usize, Vec<(usize, SourceWait)>>,
    timers: HashMap<usize, Vec<Instant>>,
}

impl Wakers {
    fn add_sources(&mut self, worker: usize, waits: Vec<SourceWait>) {
        for wait in waits {
            let of_task = self.sources.entry(wait.waker).or_default();
            of_task.push((worker, wait));
        }
    }

    fn add_timers(&mut self, waits: Vec<TimerWait>) {
        for wait in waits {
            self.timers.entry(wait.waker).or_default().push(wait.due);
        }
    }

    /// Whose they are that are left, and wait.
    fn left(self) -> impl Iterator<Item = usize> {
        let is_waited_for =
            |of_waker: &Vec<(usize, SourceWait)>| of_waker.iter().any(|(_, wait)| wait.is_waiting);
        let sources = (self.sources.into_iter()).filter(move |(_, waits)| is_waited_for(waits));
        let timers = self.timers.into_keys();
        sources.map(|(waker, _)| waker).chain(timers)
    }

    /// Gives a task what is its own. A source that two workers serve is there twice.
    fn assign(&mut self, task: &mut TaskRecord) {
        // (Looking for a waker takes a while, and most tasks of a crowd wait for the same thing.)
        if task.waker != 0 && !self.sources.is_empty() {
            task.sources = self.sources.remove(&task.waker).unwrap_or_default();
        }
        if task.sources.len() > 1 {
            let mut seen = HashSet::new();
            let is_new =
                |(_, wait): &(_, SourceWait)| seen.insert((wait.source, wait.direction as usize));
            task.sources.retain(is_new);
        }
        if task.waker != 0 && !self.timers.is_empty() {
            task.timers = self.timers.remove(&task.waker).unwrap_or_default();
        }
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
    /// Sources that were readable while nobody waited for them, by address.
    pub(crate) unread: HashMap<usize, EarlierUnread>,
    /// How often each task was polled that had woken itself.
    pub(crate) woken_by_themselves: HashMap<u64, u32>,
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
    pub(crate) since: Instant,
    /// The task that was woken for it: zero for a future of `block_on`.
    pub(crate) task: u64,
    /// Events and what was spent of them, and how many bytes were there: as long as these are the
    /// same nobody reads.
    pub(crate) mark: ((u32, u32), u64),
}

impl SharedSnapshot {
    /// `own` is a worker of the runtime that belongs to this thread, if there is one, and what it
    /// tells.
    pub(crate) fn take(
        shared: &Shared,
        own: Option<(usize, WorkerSnapshot)>,
        patience: Duration,
    ) -> SharedSnapshot {
        let (own_index, mut own_snapshot) = own.unzip();
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
            if own_index != Some(index) {
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
        let before: HashMap<usize, Id> = pools()
            .flat_map(|(_, remote)| remote.movable_tasks().ids())
            .collect();
        let mut wakers = Wakers::default();
        for (index, remote) in pools() {
            wakers.add_sources(index, remote.reactor.source_waits());
            wakers.add_timers(remote.reactor.remote_timer_waits());
        }
        // What is being polled waits for nothing, whatever was noted before.
        let mut running = running_tasks(shared);
        let mut assigned = Vec::new();
        let mut tasks = Vec::new();
        for (_, remote) in pools() {
            for (worker, mut task) in remote.movable_tasks().records() {
                if before.get(&task.waker).copied() == task.id {
                    wakers.assign(&mut task);
                    assigned.push(task.waker);
                }
                tasks.push((Some(worker), task));
            }
        }
        let mut left: Vec<usize> = wakers.left().collect();
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
                None => own_snapshot.take_if(|_| own_index == Some(index)),
            };
            if let Some(snapshot) = answer {
                let mut wakers = Wakers::default();
                wakers.add_sources(index, snapshot.sources);
                wakers.add_timers(snapshot.timers);
                for mut task in snapshot.tasks {
                    wakers.assign(&mut task);
                    assigned.push(task.waker);
                    tasks.push((Some(index), task));
                }
                left.extend(wakers.left());
            }
        }
        if !left.is_empty() {
            let assigned = HashSet::<usize>::from_iter(assigned);
            left.retain(|waker| !assigned.contains(waker));
        }
        SharedSnapshot {
            workers,
            tasks,
            unknown_waits: left.len(),
        }
    }
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
