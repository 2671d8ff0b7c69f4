//! The state of a runtime's workers and of their tasks, from which a dump is made.
//!
//! **Where the data comes from.** Movable tasks are in lists that every thread can read. The data
//! of one worker's thread (the local tasks, its queues, its timers) the worker collects itself,
//! when it is [asked](super::request), between two polls; on its own thread it is read directly. A
//! worker that does not answer within [`PATIENCE`] is stuck, and is described by its public
//! counters: which task it runs. Nothing here polls a task, clones or drops a waker, or runs other
//! foreign code.
//!
//! **Which task a waker belongs to.** Sources and timers keep wakers. A task's waker is recognised
//! by its address, which is compared and never dereferenced: no two tasks have the same address at
//! a time, and no other allocation has it. A worker collects its tasks and the wakers of its
//! reactor in one go, while none of the tasks can end. Movable tasks may end meanwhile, and others
//! may take their addresses: so their lists are read before and after the sources, and a task that
//! is not in both lists is not matched.

use std::collections::HashSet;
use std::panic::Location;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::pairs::Pairs;
use super::request::Request;
use super::waits::Waits;
use crate::reactor::{Driver, SourceWait, TimerWait, now};
use crate::scheduler::{
    Drive, Local, MainFuture, Meta, Remote, Shared, TaskRef, Worker, with_worker_of,
};
use crate::sync::atomic::Ordering;
use crate::task::{Id, Name};

/// How long a worker has to begin its answer: a longer poll delays other tasks far too long.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);

/// How long a worker has to finish an answer that it has begun. It runs no foreign code meanwhile,
/// so it does finish: later with more tasks, and on a busy machine.
const ANSWERING: Duration = Duration::from_secs(10);

/// The data of a task, or of a future of `block_on`.
#[derive(Clone, Debug)]
pub(super) struct TaskRecord {
    /// The address in its waker; zero if it was never polled.
    waker: usize,
    /// `None` for a future of `block_on`.
    pub(super) id: Option<Id>,
    pub(super) name: Option<Name>,
    pub(super) site: &'static Location<'static>,
    pub(super) spawned: u32,
    pub(super) polled: u32,
    pub(super) polls: u32,
    pub(super) waits: Waits,
    /// Whether it was seen running.
    pub(super) runs: bool,
    pub(super) sources: Vec<(usize, SourceWait)>,
    pub(super) timers: Vec<Instant>,
}

impl TaskRecord {
    fn new(waker: Option<&Waker>, meta: &Meta) -> TaskRecord {
        TaskRecord {
            waker: waker.map_or(0, |waker| waker.data().addr()),
            id: Some(meta.id()),
            name: meta.name().cloned(),
            site: meta.site(),
            spawned: meta.spawned,
            polled: meta.polled.load(Ordering::Relaxed),
            polls: meta.polls.load(Ordering::Relaxed),
            waits: Waits::decode(meta.waits_for.load(Ordering::Relaxed)),
            runs: false,
            sources: Vec::new(),
            timers: Vec::new(),
        }
    }

    fn of(task: &TaskRef) -> TaskRecord {
        TaskRecord::new(Some(task.waker()), task.meta())
    }

    fn of_main(main: &MainFuture) -> TaskRecord {
        TaskRecord {
            waker: main.waker_address(),
            id: None,
            name: None,
            site: main.site,
            spawned: main.began,
            polled: main.polled.get(),
            polls: main.polls.get(),
            waits: Waits::decode(main.waits_for()),
            runs: main.is_in_poll.get(),
            sources: Vec::new(),
            timers: Vec::new(),
        }
    }
}

/// The data that a worker collects about itself.
#[derive(Debug)]
pub(crate) struct WorkerSnapshot {
    /// The local tasks, and the futures of `block_on`.
    tasks: Vec<TaskRecord>,
    /// Unsorted: the asking thread sorts them, since the worker pauses meanwhile.
    sources: Vec<SourceWait>,
    timers: Vec<TimerWait>,
}

/// The wakers that sources and timers keep, by owner.
#[derive(Debug)]
struct Wakers {
    /// With the index of the worker.
    sources: Vec<(usize, SourceWait)>,
    timers: Vec<TimerWait>,
    /// The places of a waker's entries in the two lists.
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

    /// Returns the wakers that wait: once for sources, and once for timers.
    fn all(&self) -> impl Iterator<Item = u64> {
        let is_waited_for = |of_waker: &&[(u64, u64)]| {
            let mut waits = of_waker.iter().map(|wait| self.sources[wait.1 as usize].1);
            waits.any(|wait| wait.is_waiting)
        };
        let sources = self.sources_of.groups().filter(is_waited_for);
        sources
            .chain(self.timers_of.groups())
            .map(|group| group[0].0)
    }

    /// Adds the sources and timers of a task to its record. A source that two workers serve occurs
    /// twice.
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

impl WorkerSnapshot {
    /// Collects the data that only the worker's thread can read, on that thread.
    pub(super) fn of(local: &Local, driver: &Driver) -> WorkerSnapshot {
        local.counters.set_tick(now());
        let mut tasks = Vec::new();
        local
            .owned
            .for_each(|task| tasks.push(TaskRecord::of(task)));
        local.for_each_new(|meta| tasks.push(TaskRecord::new(None, meta)));
        let mains = local.mains.borrow();
        tasks.extend(mains.iter().map(|main| TaskRecord::of_main(main)));
        WorkerSnapshot {
            tasks,
            sources: driver.reactor().source_waits(),
            timers: driver.timer_waits(),
        }
    }

    /// Collects the data of a worker of this thread, with its index.
    pub(crate) fn of_worker(worker: &Worker) -> (usize, WorkerSnapshot) {
        let snapshot = WorkerSnapshot::of(&worker.local, &worker.driver);
        (worker.local.index, snapshot)
    }

    /// Collects the data of the worker that this thread drives, if it belongs to `shared`.
    pub(crate) fn here(shared: &Arc<Shared>) -> Option<(usize, WorkerSnapshot)> {
        with_worker_of(shared, |local, driver| {
            (local.index, WorkerSnapshot::of(local, driver))
        })
    }
}

/// The data of a worker.
#[derive(Debug)]
pub(super) struct WorkerRecord {
    pub(super) state: State,
    /// The tick at which it last read its clock.
    pub(super) tick: u32,
    pub(super) sources: usize,
    pub(super) load: usize,
    /// The task that it runs.
    pub(super) running: Option<(u64, &'static Location<'static>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// It was asleep when it was asked.
    Parked,
    /// It was awake, and has answered.
    Awake,
    /// It belongs to this thread.
    Here,
    /// It is not driven.
    NotDriven,
    /// It has not answered.
    Silent,
}

/// The state of a runtime's workers and tasks.
#[derive(Debug)]
pub(super) struct SharedSnapshot {
    pub(super) workers: Vec<WorkerRecord>,
    /// With the index of the worker; `None` if no worker has taken the task yet.
    pub(super) tasks: Vec<(Option<usize>, TaskRecord)>,
    /// The number of sources and timers with an unknown waker: not a task's own, but one that wraps
    /// it.
    pub(super) unknown_waits: usize,
}

impl SharedSnapshot {
    /// `own` holds the workers of the runtime that belong to this thread, and their data: usually
    /// one, or none.
    pub(super) fn take(
        shared: &Shared,
        mut own: Vec<(usize, WorkerSnapshot)>,
        patience: Duration,
    ) -> SharedSnapshot {
        let mut asked = Vec::new();
        let mut workers = Vec::new();
        for (index, remote) in shared.remotes().iter().enumerate() {
            // Before it is asked, since that wakes it and makes it read its clock.
            let mut worker = WorkerRecord {
                state: State::Here,
                tick: remote.reactor.counters().tick(),
                sources: shared.sources(index),
                load: remote.tasks(),
                running: remote.reactor.counters().task(),
            };
            let mut request = None;
            if own.iter().all(|worker| worker.0 != index) && !shared.is_simulated() {
                (worker.state, request) = ask(remote);
            }
            asked.push(request);
            workers.push(worker);
        }

        // The movable tasks, before and after the sources and timers that they may wait for.
        let pool = shared.pool_workers();
        let mut before = Vec::new();
        for remote in pool {
            remote.movable_tasks().for_each(|task| {
                before.push((task.waker().data().addr() as u64, task.meta().id().as_u64()));
            });
        }
        let before = Pairs::new(before);
        let (mut sources, mut timers) = (Vec::new(), Vec::new());
        if let Some(reactor) = shared.pool_reactor() {
            sources.extend(with_worker(0, reactor.source_waits()));
            timers.append(&mut reactor.remote_timer_waits());
        }
        let wakers = Wakers::new(sources, timers);
        // A running task waits for nothing, whatever its last poll recorded.
        let mut running = running_tasks(shared);
        let mut assigned = Vec::new();
        let mut tasks = Vec::new();
        for remote in pool {
            let add = |it: &TaskRef| tasks.push((Some(it.meta().index()), TaskRecord::of(it)));
            remote.movable_tasks().for_each(add);
        }
        for (_, task) in &mut tasks {
            if before.get(task.waker as u64) == task.id.map(Id::as_u64) {
                wakers.assign(task);
                assigned.push((task.waker as u64, 0));
            }
        }
        let mut waited_for: Vec<u64> = wakers.all().collect();
        running.extend(running_tasks(shared));
        for (_, task) in &mut tasks {
            task.runs = task.id.is_some_and(|id| running.contains(&id.as_u64()));
        }
        // A task that was never polled may pass from queue to queue meanwhile, and be polled after
        // its worker has answered.
        let mut listed: HashSet<Id> = tasks.iter().filter_map(|task| task.1.id).collect();
        shared.for_each_injected(|meta| {
            if listed.insert(meta.id()) {
                tasks.push((None, TaskRecord::new(None, meta)));
            }
        });

        let deadline = now() + patience;
        for (index, remote) in shared.remotes().iter().enumerate() {
            let answer = match asked[index].take() {
                Some(request) => {
                    let mut answer = request.wait(deadline);
                    if answer.is_none() && !remote.requests.withdraw(&*request) {
                        answer = request.wait(deadline + ANSWERING);
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
                    let place = own.iter().position(|worker| worker.0 == index);
                    place.map(|place| own.swap_remove(place).1)
                }
            };
            if let Some(snapshot) = answer {
                let sources = with_worker(index, snapshot.sources);
                let wakers = Wakers::new(sources.collect(), snapshot.timers);
                for mut task in snapshot.tasks {
                    if task.polls == 0 && task.id.is_some_and(|id| !listed.insert(id)) {
                        continue;
                    }
                    wakers.assign(&mut task);
                    assigned.push((task.waker as u64, 0));
                    tasks.push((Some(index), task));
                }
                // Each pool worker lists what waits with their common reactor.
                if index == shared.main_index() {
                    waited_for.extend(wakers.all());
                }
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

/// Returns the tasks that the workers are running.
fn running_tasks(shared: &Shared) -> Vec<u64> {
    let counters = shared
        .remotes()
        .iter()
        .map(|remote| remote.reactor.counters());
    counters
        .filter_map(|counters| Some(counters.task()?.0))
        .collect()
}

/// Asks a worker, unless it is not driven. (A foreign event loop may drive it.)
fn ask(remote: &Remote) -> (State, Option<Arc<Request<WorkerSnapshot>>>) {
    if remote.drive() == Drive::None {
        return (State::NotDriven, None);
    }
    let state = if remote.reactor.is_parked() {
        State::Parked
    } else {
        State::Awake
    };
    let request = Arc::new(Request::new());
    remote.requests.ask(request.clone());
    remote.reactor.unpark_best_effort();
    (state, Some(request))
}

/// Returns the spawn sites of the tasks of a simulated process, with these workers, except the
/// running task.
#[cfg(feature = "sim")]
pub(crate) fn other_sites<'a>(
    shared: &Shared,
    workers: impl Iterator<Item = &'a Local>,
) -> Vec<&'static Location<'static>> {
    let running = crate::scheduler::with_running(Meta::id);
    let mut sites = Vec::new();
    let mut add = |meta: &Meta| {
        if Some(meta.id()) != running {
            sites.push(meta.site());
        }
    };
    for local in workers {
        local.owned.for_each(|task| add(task.meta()));
        local.for_each_new(&mut add);
    }
    for remote in shared.pool_workers() {
        let tasks = remote.movable_tasks();
        tasks.for_each(|task| add(task.meta()));
    }
    shared.for_each_injected(add);
    sites
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Latch;
    use crate::scheduler::{Question, with_local};
    use std::sync::mpsc;

    const SHORT: Duration = Duration::from_millis(50);

    /// A question that occupies a worker until the patience of the next asker is over.
    #[derive(Debug)]
    struct Slow;

    impl Question for Slow {
        fn answer(&self, _: &Local, _: &Driver) {
            std::thread::sleep(4 * SHORT);
        }
    }

    #[test]
    fn a_worker_that_has_begun_to_answer_is_waited_for() {
        let (tell, told) = mpsc::channel();
        let stop = Arc::new(Latch::new());
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = crate::Runtime::new().expect("it opens");
            runtime.block_on(async {
                let shared = with_local(|local| local.shared.clone());
                tell.send(shared).expect("somebody waits");
                stopped.wait().await;
            });
        });
        let shared = told.recv().expect("it is driven").expect("its worker");
        // On a busy machine it may not have begun by then.
        let has_answered = (0..20).any(|_| {
            shared.remote(0).requests.ask(Arc::new(Slow));
            let snapshot = SharedSnapshot::take(&shared, Vec::new(), SHORT);
            !matches!(snapshot.workers[0].state, State::Silent | State::NotDriven)
        });
        stop.set();
        thread.join().expect("its future is done");
        assert!(has_answered, "it is told to be silent");
    }
}
