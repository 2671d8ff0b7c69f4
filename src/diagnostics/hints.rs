//! Heuristics that flag likely bugs (deadlocks, busy loops, …) in a dump.
//!
//! Most of these bugs are states that do not change. So each dump of a runtime leaves its findings
//! ([`Clues`]) for the next one, and a hint is a finding of both that has not changed. A dump at a
//! set time (`POLDER_DUMP=after:…`, [`test!`](crate::test)) is therefore preceded by another one. A
//! hint is no proof.

use std::fmt::{self, Write};
use std::iter::successors;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::dump::{Brief, Count, Dump, Printable, TaskDump, TaskRef, TaskState, Wait, WorkerState};
use super::json::{Json, OrNull};
use super::sockets::readable_bytes;
use super::sorted_index::SortedIndex;
use crate::blocking::{Load, POOL};
use crate::reactor::{Source, SourceWait};
use crate::scheduler::Shared;
use crate::task::Id;

/// Other work of a task, such as a database query, usually takes less.
const LONG_UNREAD: Duration = Duration::from_secs(3);

/// Longer than a lock is held, or than another task takes to answer. The hint is harmless for a
/// task that just waits for work: there is one for each spawn site, after all others.
const LONG_ELSEWHERE: Duration = Duration::from_secs(10);

/// A poll and the time to the next one take less than 20 µs, so the task does next to no work.
const MANY_POLLS: f64 = 50_000.0;

const SHORT: Duration = Duration::from_millis(10);

const MANY_READY: usize = 16;

/// A likely bug and its place: an element of [`Dump::hints`]. Printed, it is one line.
///
/// ```
/// use polder::diagnostics::Hint;
/// use polder::time::sleep;
/// use std::future::pending;
/// use std::time::Duration;
///
/// let runtime = polder::Runtime::new()?;
/// let _task = runtime.spawn(pending::<()>());
/// runtime.run_once(Duration::ZERO);
/// runtime.dump(); // Hints compare two dumps.
/// std::thread::sleep(Duration::from_millis(20));
/// for hint in runtime.dump().hints {
///     eprintln!("{hint}"); // nothing that the runtime knows of will wake its only task: …
///     assert!(matches!(hint, Hint::NothingWakes { tasks: 1 }));
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Hint {
    /// All tasks wait, none was polled since the previous dump, and all workers sleep. No known
    /// timer, descriptor, signal or blocking call will wake a task: only another thread or runtime
    /// can.
    NothingWakes {
        /// The number of tasks, including the futures of [`block_on`](crate::block_on).
        tasks: usize,
    },
    /// A descriptor has been readable and unread since an earlier dump, and the task that was woken
    /// for it does not wait for it: the future that would read is neither polled nor dropped, or
    /// the task waits for something else.
    Unread {
        /// The task.
        task: TaskRef,
        /// The descriptor.
        descriptor: i64,
        /// Its peer's address.
        peer: Option<String>,
        /// A lower limit of the time since then.
        since: Duration,
    },
    /// Tasks of one spawn site have not been polled for about ten seconds, and wait for something
    /// unknown ([`Wait::Elsewhere`]): a lock or channel of another crate, another thread, or a
    /// combinator with its own wakers (`FuturesUnordered`). This is a deadlock or a lost
    /// notification, or they have nothing to do.
    WaitsElsewhere {
        /// The one that was spawned first.
        task: TaskRef,
        /// The number of these tasks.
        tasks: usize,
        /// A lower limit: the time since the first dump that showed it waiting.
        since: Duration,
        /// An upper limit: the time since its last poll.
        at_most: Duration,
    },
    /// Each of these tasks awaits the next one, and the last the first; none was polled since the
    /// previous dump. A `select` in one of them may break the cycle.
    AwaitEachOther(Vec<TaskRef>),
    /// A busy loop: in both dumps the task was ready because it was woken while it ran, by itself
    /// or by its data source.
    WakesItself {
        /// The task.
        task: TaskRef,
        /// The number of polls since the previous dump.
        polls: u32,
        /// The time since the previous dump.
        within: Duration,
    },
    /// One worker has all the ready tasks, in both dumps, while another one sleeps. The tasks
    /// cannot move (local tasks, [`spawn_on_worker`](crate::Handle::spawn_on_worker)).
    Uneven {
        /// The worker.
        worker: usize,
        /// The number of its ready tasks.
        ready: usize,
    },
    /// All threads of the blocking pool are busy; calls of [`unblock`](crate::unblock()), file
    /// operations or name lookups wait; and none has finished since the previous dump.
    PoolIsFull {
        /// The number of calls that wait.
        waiting: usize,
        /// The number of calls that run.
        running: usize,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Clues {
    at: Instant,
    /// Whether a source or a timer has a waker of no known task.
    has_unknown_waits: bool,
    unread: Vec<Unread>,
    elsewhere: Vec<Elsewhere>,
    /// The ready tasks that were woken while they ran, by id, and the number of their polls.
    woken_by_themselves: Vec<(TaskRef, u32)>,
    /// The number of spawned tasks, that of live ones, and the sum of their polls: no task was
    /// polled while these are unchanged.
    polls: (usize, usize, u64),
    burdened: Option<usize>,
    /// The number of jobs that the pool has finished, if it is full.
    full_pool: Option<usize>,
}

#[derive(Clone, Debug)]
struct Unread {
    task: TaskRef,
    descriptor: i64,
    peer: Option<String>,
    since: Instant,
    source: usize,
    /// The counts of events and of consumed ones, and the number of readable bytes: the source is
    /// not read while these are unchanged.
    mark: ((u32, u32), u64),
}

#[derive(Clone, Debug)]
struct Elsewhere {
    id: u64,
    /// The number of its polls: it has been waiting while this is unchanged.
    polls: u32,
    since: Instant,
}

impl Unread {
    fn hint(&self, now: Instant) -> Option<Hint> {
        let since = now.saturating_duration_since(self.since);
        (since >= LONG_UNREAD).then(|| Hint::Unread {
            task: self.task,
            descriptor: self.descriptor,
            peer: self.peer.clone(),
            since,
        })
    }
}

impl Clues {
    pub(super) fn new(at: Instant, has_unknown_waits: bool) -> Clues {
        Clues {
            at,
            has_unknown_waits,
            unread: Vec::new(),
            elsewhere: Vec::new(),
            woken_by_themselves: Vec::new(),
            polls: (0, 0, 0),
            burdened: None,
            full_pool: None,
        }
    }

    /// Does nothing if the number of readable bytes is unknown.
    pub(super) fn unread(
        &mut self,
        source: &Source,
        wait: &SourceWait,
        task: TaskRef,
        descriptor: i64,
        peer: Option<String>,
    ) {
        self.unread
            .extend(readable_bytes(source).map(|bytes| Unread {
                task,
                descriptor,
                peer,
                since: self.at,
                source: wait.source,
                mark: (source.snapshot(wait.direction).counts(), bytes),
            }));
    }

    pub(super) fn woken_by_itself(&mut self, task: &TaskDump) {
        if task.id.is_some() {
            (self.woken_by_themselves).push((task.reference(), task.polls));
        }
    }

    /// `dump` is complete except for its hints.
    pub(super) fn hints(mut self, shared: &Shared, dump: &Dump) -> Vec<Hint> {
        let (mut pool, burdened) = (POOL.get().load(), burdened(dump));
        if shared.is_on_one_thread {
            pool.full = None; // A run that is repeated has other calls on the process's threads.
        }
        let polls = dump.tasks.iter().map(|task| u64::from(task.polls));
        self.polls = (shared.spawned_tasks(), dump.tasks.len(), polls.sum());
        self.burdened = burdened.map(|(worker, _)| worker);
        self.full_pool = pool.full.map(|_| pool.done);
        // Threads may take dumps at the same time: each compares with an earlier one.
        let earlier = shared.earlier.lock().clone();
        let earlier = (earlier.as_ref()).and_then(|earlier| earlier.downcast_ref::<Clues>());
        let within = earlier.map(|earlier| self.at.saturating_duration_since(earlier.at));
        let is_soon = within.is_some_and(|within| within < SHORT);
        let mut hints = Vec::new();
        if let (Some(earlier), Some(within), false) = (earlier, within, is_soon) {
            if earlier.polls == self.polls {
                hints.extend(nothing_wakes(dump, self.has_unknown_waits, pool));
                hints.extend(rings(dump).into_iter().map(Hint::AwaitEachOther));
            }
            hints.extend(self.wake_themselves(earlier, within));
            if earlier.burdened == self.burdened {
                hints.extend(burdened.map(|(worker, ready)| Hint::Uneven { worker, ready }));
            }
            if earlier.full_pool == self.full_pool {
                let hint = |(waiting, running)| Hint::PoolIsFull { waiting, running };
                hints.extend(pool.full.map(hint));
            }
        }
        self.elsewhere = waits_elsewhere(dump, self.at);
        if let Some(earlier) = earlier {
            self.date_unread(&earlier.unread);
            self.date_elsewhere(&earlier.elsewhere);
        }
        hints.extend(self.unread.iter().filter_map(|unread| unread.hint(self.at)));
        hints.extend(self.wait_elsewhere(dump));
        if let Some(earlier) = earlier.filter(|_| is_soon) {
            // Keeps the earlier dump for comparison with later ones.
            self = Clues {
                unread: self.unread,
                elsewhere: self.elsewhere,
                ..earlier.clone()
            };
        }
        *shared.earlier.lock() = Some(Arc::new(self));
        hints
    }

    fn date_unread(&mut self, earlier: &[Unread]) {
        let places = SortedIndex::places(earlier.iter().map(|unread| unread.source as u64));
        for unread in &mut self.unread {
            let of_source = places.of(unread.source as u64).iter();
            let mut of_source = of_source.map(|(_, place)| &earlier[*place as usize]);
            let is_same =
                |other: &&Unread| (other.task.id, other.mark) == (unread.task.id, unread.mark);
            unread.since = (of_source.find(is_same)).map_or(unread.since, |same| same.since);
        }
    }

    fn date_elsewhere(&mut self, earlier: &[Elsewhere]) {
        for task in &mut self.elsewhere {
            let place = earlier.binary_search_by_key(&task.id, |earlier| earlier.id);
            if let Some(same) = place.ok().map(|place| &earlier[place]) {
                if same.polls == task.polls {
                    task.since = same.since;
                }
            }
        }
    }

    /// Returns a hint for each spawn site. The time since a task's last poll is only an upper
    /// limit, so it also has to have been seen for a minimum time.
    fn wait_elsewhere(&self, dump: &Dump) -> Vec<Hint> {
        // In the order of the oldest task of each place. There are few.
        let mut places = Vec::new();
        let mut hints = Vec::new();
        // Both are sorted by id.
        let mut seen = self.elsewhere.iter().peekable();
        for task in &dump.tasks {
            let id = task.id.map(Id::as_u64);
            let Some(elsewhere) = seen.next_if(|elsewhere| Some(elsewhere.id) == id) else {
                continue;
            };
            let waiting = self.at.saturating_duration_since(elsewhere.since);
            if waiting < LONG_UNREAD || task.last_polled < LONG_ELSEWHERE {
                continue;
            }
            let first = Hint::WaitsElsewhere {
                task: task.reference(),
                tasks: 0,
                since: waiting,
                at_most: task.last_polled,
            };
            let known = places.iter().position(|place| *place == task.spawned_at);
            let place = known.unwrap_or(places.len());
            if known.is_none() {
                places.push(task.spawned_at);
                hints.push(first);
            }
            if let Hint::WaitsElsewhere { tasks, .. } = &mut hints[place] {
                *tasks += 1;
            }
        }
        hints
    }

    fn wake_themselves(&self, earlier: &Clues, within: Duration) -> impl Iterator<Item = Hint> {
        let before = &earlier.woken_by_themselves;
        self.woken_by_themselves
            .iter()
            .filter_map(move |&(task, polls)| {
                let place = before.binary_search_by_key(&task.id, |(task, _)| task.id);
                let polls = polls.wrapping_sub(before[place.ok()?].1);
                let is_often = f64::from(polls) >= MANY_POLLS * within.as_secs_f64();
                is_often.then_some(Hint::WakesItself {
                    task,
                    polls,
                    within,
                })
            })
    }
}

/// Returns the tasks sorted by id. Futures of `block_on` do not count: one usually waits for the
/// end of the program.
fn waits_elsewhere(dump: &Dump, at: Instant) -> Vec<Elsewhere> {
    let waits = |task: &&TaskDump| task.waits_for.contains(&Wait::Elsewhere);
    let elsewhere = |task: &TaskDump| {
        Some(Elsewhere {
            id: task.id?.as_u64(),
            polls: task.polls,
            since: at,
        })
    };
    let waiting = dump.tasks.iter().filter(waits);
    waiting.filter_map(elsewhere).collect()
}

/// Leaves out SIGUSR1, which may have requested the dump.
fn waits_for_signal() -> bool {
    #[cfg(all(unix, feature = "signal"))]
    return crate::signal::is_waited_for(rustix::process::Signal::USR1.as_raw());
    #[cfg(all(windows, feature = "signal"))]
    return crate::signal::is_waited_for(0);
    #[cfg(not(feature = "signal"))]
    return false;
}

fn nothing_wakes(dump: &Dump, has_unknown_waits: bool, pool: Load) -> Option<Hint> {
    let sleeps = |state: &WorkerState| {
        matches!(
            state,
            WorkerState::Parked { .. } | WorkerState::Here { task: None }
        )
    };
    // Calls of `unblock` have ids, too. They are checked below, since a task may wait for one
    // although its last poll recorded something else.
    let needs_another = |wait: &Wait| match wait {
        Wait::Event(_) | Wait::Latch(_) | Wait::Task(_) | Wait::TaskSet(_) | Wait::Elsewhere => {
            true
        }
        // No task waits for it.
        Wait::Socket { ready_unread, .. } => *ready_unread,
        _ => false,
    };
    let is_stuck = dump.unreported == 0
        && !has_unknown_waits
        && pool.is_idle
        && !waits_for_signal()
        && !dump.tasks.is_empty()
        && dump.workers.iter().all(|worker| sleeps(&worker.state))
        && (dump.tasks.iter()).all(|task| {
            task.state == TaskState::Waiting && task.waits_for.iter().all(needs_another)
        });
    is_stuck.then_some(Hint::NothingWakes {
        tasks: dump.tasks.len(),
    })
}

/// Returns each cycle once, starting with its oldest task.
fn rings(dump: &Dump) -> Vec<Vec<TaskRef>> {
    // The task that a task awaits, if nothing else. Tasks are sorted by id.
    let awaited = |index: usize| match dump.tasks[index].waits_for[..] {
        [Wait::Task(next)] => (dump.tasks.binary_search_by_key(&Some(next), |task| task.id)).ok(),
        _ => None,
    };
    let mut rings = Vec::new();
    // Each task is visited only once.
    let mut seen = vec![None; dump.tasks.len()];
    for (walk, start) in dump.tasks.iter().enumerate() {
        let mut next = start.id.map(|_| walk);
        while let Some(index) = next.filter(|index| seen[*index].is_none()) {
            seen[index] = Some(walk);
            next = awaited(index);
        }
        // If it was seen in this walk, the cycle begins there.
        let Some(first) = next.filter(|index| seen[*index] == Some(walk)) else {
            continue;
        };
        let next = |index: &usize| awaited(*index).filter(|next| *next != first);
        let ring = successors(Some(first), next);
        rings.push(ring.map(|index| dump.tasks[index].reference()).collect());
    }
    rings
}

/// Returns the worker that has all the ready tasks of the pool while another one sleeps, and their
/// number.
fn burdened(dump: &Dump) -> Option<(usize, usize)> {
    let (_, pool) = dump.workers.split_last()?;
    let mut awake = (pool.iter())
        .filter(|worker| !matches!(worker.state, WorkerState::Parked { .. }))
        .map(|worker| worker.index);
    let (Some(worker), None) = (awake.next(), awake.next()) else {
        return None;
    };
    let is_ready = |task: &&TaskDump| {
        task.worker == Some(worker) && matches!(task.state, TaskState::Ready | TaskState::Running)
    };
    let ready = dump.tasks.iter().filter(is_ready).count();
    (pool.len() > 1 && ready >= MANY_READY).then_some((worker, ready))
}

impl Hint {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Hint::NothingWakes { .. } => "nothing wakes",
            Hint::Unread { .. } => "unread",
            Hint::WaitsElsewhere { .. } => "waits elsewhere",
            Hint::AwaitEachOther(_) => "await each other",
            Hint::WakesItself { .. } => "wakes itself",
            Hint::Uneven { .. } => "uneven",
            Hint::PoolIsFull { .. } => "pool is full",
        }
    }

    fn tasks(&self) -> &[TaskRef] {
        match self {
            Hint::Unread { task, .. }
            | Hint::WaitsElsewhere { task, .. }
            | Hint::WakesItself { task, .. } => std::slice::from_ref(task),
            Hint::AwaitEachOther(tasks) => tasks,
            _ => &[],
        }
    }

    pub(super) fn write_json(&self, out: &mut String) {
        Json::object(out)
            .text("kind", self.kind())
            .list_of("tasks", self.tasks(), |task, out| {
                let _ = write!(out, "{}", OrNull(task.id));
            })
            .text("text", &self.to_string());
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hint::NothingWakes { tasks } => write!(
                f,
                "nothing that the runtime knows of will wake {}: only another thread can, or another \
                 runtime",
                match tasks {
                    1 => "its only task".into(),
                    _ => format!("any of its {tasks} tasks"),
                }
            ),
            Hint::Unread {
                task,
                descriptor,
                peer,
                since,
            } => {
                write!(f, "descriptor {descriptor}")?;
                if let Some(peer) = peer {
                    write!(f, " (peer {})", Printable(peer))?;
                }
                write!(
                    f,
                    " has been readable for at least {}, and nobody has read: {task} was woken for it, \
                     and waits for something else",
                    Brief(*since)
                )
            }
            Hint::WaitsElsewhere {
                task,
                tasks,
                since,
                at_most,
            } => {
                write!(f, "{task}")?;
                if *tasks > 1 {
                    write!(f, ", and {} more there", tasks - 1)?;
                }
                write!(
                    f,
                    ", waiting for at least {} and at most {} for something that polder does not \
                     know: a lock or a channel of another crate (who will unlock, or send?), or \
                     futures that a combinator wakes by itself",
                    Brief(*since),
                    Brief(*at_most)
                )
            }
            Hint::AwaitEachOther(tasks) => match &tasks[..] {
                [task] => write!(f, "{task} seems to await itself"),
                _ => {
                    f.write_str("these seem to await each other, in a ring: ")?;
                    for (index, task) in tasks.iter().enumerate() {
                        write!(f, "{}{task}", if index > 0 { "; " } else { "" })?;
                    }
                    Ok(())
                }
            },
            Hint::WakesItself {
                task,
                polls,
                within,
            } => write!(
                f,
                "{task} wakes itself all the time, or is woken as it runs: {polls} polls in {}",
                Brief(*within)
            ),
            Hint::Uneven { worker, ready } => write!(
                f,
                "worker {worker} has {} to run, and keeps them, while others sleep",
                Count(*ready, "ready task")
            ),
            Hint::PoolIsFull { waiting, running } => write!(
                f,
                "{} for a thread of the pool, while {running} are under way: they block for long, or \
                 there are too many",
                match waiting {
                    1 => "one call waits".into(),
                    _ => format!("{waiting} calls wait"),
                }
            ),
        }
    }
}
