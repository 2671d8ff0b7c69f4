//! Snapshots of a runtime's workers and tasks, from which dumps are made.
//!
//! **Where the data come from.** Every thread can read the lists of stealable tasks. A worker
//! collects its local tasks, queues and timers itself, between two polls, when it is
//! [asked](super::request). A worker that does not answer within [`PATIENCE`] is described by its
//! public counters. Nothing here polls a task, clones or drops a waker, or calls foreign code.
//!
//! **Matching wakers to tasks.** The waker in a source or timer identifies its task by the task's
//! address, which is never dereferenced; no two live allocations have the same one. A worker
//! collects its tasks and its reactor's wakers together, so none of these tasks can end in between.
//! Stealable tasks may end, and others take their addresses: so their lists are read before and
//! after the sources, and only a task in both is matched.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::ptr;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::dump::{TaskDump, TaskRef, TaskState, WorkerDump, WorkerState};
use super::request::{Asker, OwnWorker};
use super::sorted_index::SortedIndex;
use crate::clock::{jiffy, now, since_jiffy};
use crate::reactor::{Driver, SourceWait, TimerWait};
use crate::scheduler::{Drive, Header, Local, MainFuture, Shared, with_running};
use crate::sync::atomic::Ordering;
use crate::task::Id;

/// The time to begin an answer: a longer poll delays other tasks far too long.
const PATIENCE: Duration = Duration::from_millis(100);

/// The time to finish an answer. The worker calls no foreign code meanwhile, so it does finish.
const ANSWERING: Duration = Duration::from_secs(10);

pub(super) struct TaskRecord {
    /// The address in its waker; zero if it was never polled.
    waker: usize,
    /// Its state and waits are filled in later.
    pub(super) task: TaskDump,
    /// The word that its leaf futures have written: see `telemetry::wait_reason`.
    pub(super) reason: u64,
    pub(super) runs: bool,
    pub(super) sources: Vec<SourceWait>,
    pub(super) timers: Vec<Instant>,
}

impl TaskRecord {
    fn new(task: TaskDump, waker: usize, reason: u64, runs: bool) -> TaskRecord {
        TaskRecord {
            waker,
            task,
            reason,
            runs,
            sources: Vec::new(),
            timers: Vec::new(),
        }
    }

    fn of(
        worker: Option<usize>,
        waker: Option<&Waker>,
        header: &Header,
        now: Instant,
    ) -> TaskRecord {
        let task = TaskDump {
            id: Some(header.id),
            name: header.name().cloned(),
            spawned_at: header.site,
            age: since_jiffy(header.spawned, now),
            worker,
            state: TaskState::New,
            waits_for: Vec::new(),
            polls: header.polls.load(Ordering::Relaxed),
            last_polled: since_jiffy(header.polled.load(Ordering::Relaxed), now),
        };
        let waker = waker.map_or(0, |waker| waker.data().addr());
        TaskRecord::new(
            task,
            waker,
            header.wait_reason.load(Ordering::Relaxed),
            false,
        )
    }

    fn of_main(worker: usize, main: &MainFuture, now: Instant) -> TaskRecord {
        let task = TaskDump {
            id: None,
            name: None,
            spawned_at: main.site,
            age: since_jiffy(main.began, now),
            worker: Some(worker),
            state: TaskState::New,
            waits_for: Vec::new(),
            polls: main.polls.get(),
            last_polled: since_jiffy(main.polled.get(), now),
        };
        let (waker, runs) = (main.waker_address(), main.is_in_poll.get());
        TaskRecord::new(task, waker, main.wait_reason(), runs)
    }
}

pub(crate) struct WorkerSnapshot {
    worker: usize,
    /// The local tasks and the futures of `block_on`.
    tasks: Vec<TaskRecord>,
    /// Unsorted: the asking thread sorts them, so that the worker pauses less.
    sources: Vec<SourceWait>,
    timers: Vec<TimerWait>,
}

struct Wakers {
    sources: Vec<SourceWait>,
    timers: Vec<TimerWait>,
    /// The indices of a waker's entries in the two lists.
    sources_of: SortedIndex,
    timers_of: SortedIndex,
}

impl Wakers {
    fn new(sources: Vec<SourceWait>, timers: Vec<TimerWait>) -> Wakers {
        Wakers {
            sources_of: SortedIndex::places(sources.iter().map(|wait| wait.waker as u64)),
            timers_of: SortedIndex::places(timers.iter().map(|wait| wait.waker as u64)),
            sources,
            timers,
        }
    }

    fn waiting(&self) -> impl Iterator<Item = u64> {
        let sources = self.sources.iter().filter(|wait| wait.is_waiting);
        let timers = self.timers.iter().map(|wait| wait.waker as u64);
        sources.map(|wait| wait.waker as u64).chain(timers)
    }

    /// Adds each source once per direction.
    fn assign(&self, task: &mut TaskRecord) {
        if task.waker == 0 {
            return;
        }
        for (_, place) in self.sources_of.of(task.waker as u64) {
            let wait = self.sources[*place as usize];
            let is_same = |other: &SourceWait| {
                (other.source, other.direction) == (wait.source, wait.direction)
            };
            if !task.sources.iter().any(is_same) {
                task.sources.push(wait);
            }
        }
        let timers = self.timers_of.of(task.waker as u64).iter();
        (task.timers).extend(timers.map(|(_, place)| self.timers[*place as usize].due));
    }
}

impl WorkerSnapshot {
    pub(crate) fn of(local: &Local, driver: &Driver) -> WorkerSnapshot {
        let (now, worker) = (now(), local.index);
        local.counters.set_jiffy(jiffy(now));
        let mut tasks = Vec::new();
        let mut add = |waker: Option<&Waker>, header: &Header| {
            tasks.push(TaskRecord::of(Some(worker), waker, header, now));
        };
        for task in local.owned.borrow().values() {
            add(Some(task.waker()), task.header());
        }
        local.for_each_new(|header| add(None, header));
        let mains = local.mains.borrow();
        tasks.extend((mains.iter()).map(|main| TaskRecord::of_main(worker, main, now)));
        // The worker may answer within a poll: see `request`. A task in its first poll is in no
        // list.
        let running = local.counters.task().map(|(id, _)| id);
        let is_running = |record: &TaskRecord| record.task.id.map(Id::as_u64) == running;
        if let Some(id) = running {
            match tasks.iter_mut().find(|record| is_running(record)) {
                Some(record) => record.runs = true,
                None => tasks.extend(first_poll(local, id, now)),
            }
        }
        WorkerSnapshot {
            worker,
            tasks,
            sources: driver.reactor().source_waits(),
            timers: driver.timer_waits(),
        }
    }
}

/// Returns the running task of this thread's worker, if that is its first poll.
fn first_poll(local: &Local, id: u64, now: Instant) -> Option<TaskRecord> {
    let record = with_running(|header| {
        let is_it = local.owns(header) && header.id.as_u64() == id;
        (is_it && header.polls.load(Ordering::Relaxed) == 1)
            .then(|| TaskRecord::of(Some(local.index), None, header, now))
    });
    let mut record = record.flatten()?;
    record.runs = true;
    Some(record)
}

/// Without random keys: drawing them would change the order of a simulated program's maps.
type Set = HashSet<u64, BuildHasherDefault<DefaultHasher>>;

#[derive(Default)]
pub(super) struct SharedSnapshot {
    pub(super) workers: Vec<WorkerDump>,
    pub(super) tasks: Vec<TaskRecord>,
    /// The wakers of these tasks, except of stealable ones that may have ended.
    known: Set,
    waiting: Vec<u64>,
}

impl SharedSnapshot {
    /// `own_workers` are this thread's, of this and other runtimes: usually one or none.
    pub(super) fn take(shared: &Shared, own_workers: &[OwnWorker]) -> SharedSnapshot {
        let start = now();
        let of_this = |(local, _): &&OwnWorker| ptr::eq(Arc::as_ptr(&local.shared), shared);
        let own = own_workers.iter().filter(of_this);
        let mut own: Vec<_> = own
            .map(|(local, driver)| WorkerSnapshot::of(local, driver))
            .collect();
        let asker = Asker::new(own_workers);
        let mut snapshot = SharedSnapshot::default();
        let mut answers = Vec::new();
        for (index, remote) in shared.remotes().iter().enumerate() {
            let counters = &*remote.counters;
            let task = counters.task().map(TaskRef::new);
            let mut worker = WorkerDump {
                index,
                state: WorkerState::Here { task },
                tasks: remote.tasks(),
                sources: shared.sources(index),
            };
            // Before it is asked, which wakes it and makes it read its clock.
            let jiffy = counters.jiffy();
            let own_place = own.iter().position(|own| own.worker == index);
            let answer = own_place.map(|place| own.swap_remove(place));
            let mut request = None;
            if answer.is_none() && !shared.is_on_one_thread {
                let since = since_jiffy(jiffy, start);
                worker.state = match remote.drive() {
                    // If a foreign event loop drives it, this is `BetweenTurns`.
                    Drive::None => WorkerState::NotDriven,
                    _ if remote.parker.is_parked() => WorkerState::Parked { since },
                    _ => WorkerState::Awake,
                };
                let is_driven = worker.state != WorkerState::NotDriven;
                request = is_driven.then(|| (jiffy, asker.ask(remote)));
            }
            answers.push((answer, request));
            snapshot.workers.push(worker);
        }
        snapshot.add_stealable_tasks(shared, start);
        // A task that was never polled may move between queues, and be polled before or after its
        // worker has answered.
        let ids = snapshot.tasks.iter().filter_map(|record| record.task.id);
        let mut listed: Set = ids.map(Id::as_u64).collect();
        shared.for_each_injected(|header| {
            if listed.insert(header.id.as_u64()) {
                (snapshot.tasks).push(TaskRecord::of(None, None, header, start));
            }
        });
        let deadline = Instant::now() + PATIENCE;
        let remotes = shared.remotes().iter().enumerate();
        for ((index, remote), (mut answer, request)) in remotes.zip(answers) {
            if let Some((jiffy, request)) = request {
                answer = request.wait(&asker, deadline);
                if answer.is_none() && !remote.requests.withdraw(&*request) {
                    answer = request.wait(&asker, deadline + ANSWERING);
                }
                if answer.is_none() {
                    snapshot.workers[index].state = match remote.drive() {
                        Drive::Driven => WorkerState::Silent {
                            task: remote.counters.task().map(TaskRef::new),
                            since: since_jiffy(jiffy, now()),
                        },
                        Drive::None | Drive::BetweenTurns => WorkerState::NotDriven,
                    };
                }
            }
            if let Some(mut answer) = answer {
                let is_new = |record: &TaskRecord| match record.task.id {
                    Some(id) if record.task.polls == 0 || record.runs => listed.insert(id.as_u64()),
                    _ => true,
                };
                answer.tasks.retain(is_new);
                snapshot.add(answer, index == shared.main_index());
            }
        }
        snapshot
    }

    /// Reads their lists before and after the sources and timers that they may wait for.
    fn add_stealable_tasks(&mut self, shared: &Shared, now: Instant) {
        let mut before = Vec::new();
        for tasks in shared.pool_remotes() {
            tasks.owned.for_each(|task| {
                before.push((task.waker().data().addr() as u64, task.header().id.as_u64()));
            });
        }
        let before = SortedIndex::new(before);
        let (mut sources, mut timers) = (Vec::new(), Vec::new());
        for reactor in shared.pool_reactors() {
            sources.extend(reactor.source_waits());
            timers.extend(reactor.locked_timer_waits());
        }
        let wakers = Wakers::new(sources, timers);
        self.waiting.extend(wakers.waiting());
        // A running task waits for nothing, even if its last poll recorded a reason.
        let mut running = running_tasks(shared);
        for tasks in shared.pool_remotes() {
            tasks.owned.for_each(|task| {
                let (worker, waker) = (Some(task.header().index()), Some(task.waker()));
                (self.tasks).push(TaskRecord::of(worker, waker, task.header(), now));
            });
        }
        running.extend(running_tasks(shared));
        for record in &mut self.tasks {
            let (id, waker) = (record.task.id.map_or(0, Id::as_u64), record.waker as u64);
            record.runs = running.contains(&id);
            if before.get(waker) == Some(id) {
                wakers.assign(record);
                self.known.insert(waker);
            }
        }
    }

    /// Pool workers list the waits of their shard's reactor, which were added before.
    fn add(&mut self, worker: WorkerSnapshot, is_main: bool) {
        let wakers = Wakers::new(worker.sources, worker.timers);
        for mut record in worker.tasks {
            wakers.assign(&mut record);
            self.known.insert(record.waker as u64);
            self.tasks.push(record);
        }
        if is_main {
            self.waiting.extend(wakers.waiting());
        }
    }

    /// Whether a source or timer has a waker that is not a task's own, such as one that wraps it.
    pub(super) fn has_unknown_waits(&self) -> bool {
        self.waiting.iter().any(|waker| !self.known.contains(waker))
    }
}

fn running_tasks(shared: &Shared) -> Vec<u64> {
    let remotes = shared.remotes().iter();
    remotes
        .filter_map(|remote| Some(remote.counters.task()?.0))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Latch;
    use crate::scheduler::{Question, current_worker, with_local};
    use std::sync::mpsc;

    #[derive(Debug)]
    struct Slow(Duration);

    impl Question for Slow {
        fn answer(&self, _: &Local, _: &Driver) {
            std::thread::sleep(self.0);
        }
    }

    struct Driven {
        shared: Arc<Shared>,
        stop: Arc<Latch>,
        thread: Option<std::thread::JoinHandle<()>>,
    }

    impl Driven {
        fn new(first: impl FnOnce() + Send + 'static) -> Driven {
            let (sender, receiver) = mpsc::channel();
            let stop = Arc::new(Latch::new());
            let stopped = stop.clone();
            let thread = std::thread::spawn(move || {
                let runtime = crate::Runtime::new().expect("it opens");
                runtime.block_on(async {
                    let shared = with_local(|local| local.shared.clone());
                    sender.send(shared).expect("somebody waits");
                    first();
                    stopped.wait().await;
                });
            });
            let shared = receiver.recv().expect("it is driven").expect("its worker");
            let thread = Some(thread);
            Driven {
                shared,
                stop,
                thread,
            }
        }
    }

    impl Drop for Driven {
        fn drop(&mut self) {
            self.stop.set();
            let thread = self.thread.take().expect("it is dropped once");
            thread.join().expect("its future is done");
        }
    }

    fn has_answered(snapshot: &SharedSnapshot) -> bool {
        let state = snapshot.workers[0].state;
        !matches!(state, WorkerState::Silent { .. } | WorkerState::NotDriven)
    }

    /// A worker that has begun to answer is waited for.
    #[test]
    fn worker_that_began_to_answer_is_awaited() {
        let driven = Driven::new(|| ());
        // On a busy machine it may not have begun by then.
        let is_waited_for = (0..20).any(|_| {
            let requests = &driven.shared.remote(0).requests;
            requests.ask(Arc::new(Slow(3 * PATIENCE)));
            has_answered(&SharedSnapshot::take(&driven.shared, &[]))
        });
        assert!(is_waited_for, "it counts as silent");
    }

    /// A worker that waits for an answer answers meanwhile, also if it has looked at its questions
    /// before, and its own patience is over.
    #[test]
    fn worker_awaiting_answer_answers_too() {
        let has_answered = (0..20).any(|_| {
            let slow = Driven::new(|| ());
            let (shared, remote) = (slow.shared.clone(), slow.shared.remote(0));
            while !remote.parker.is_parked() {
                std::thread::yield_now();
            }
            // It stays parked: it takes this later, together with the other one's question.
            remote.requests.ask(Arc::new(Slow(8 * PATIENCE)));
            let (sender, receiver) = mpsc::channel();
            let waits = Driven::new(move || {
                let snapshot = SharedSnapshot::take(&shared, current_worker().as_slice());
                sender
                    .send(has_answered(&snapshot))
                    .expect("somebody waits");
            });
            std::thread::sleep(2 * PATIENCE);
            let has_answer = has_answered(&SharedSnapshot::take(&waits.shared, &[]));
            let still_waits = receiver.try_recv().is_err();
            // Otherwise the slow one has begun too late, and was not waited for.
            still_waits && has_answer && receiver.recv().expect("it has an answer, or none")
        });
        assert!(has_answered, "it counts as silent");
    }
}
