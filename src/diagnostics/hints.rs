//! Probable faults that a dump shows.
//!
//! A dump shows one moment, but most faults are states that do not change. So each dump of a
//! runtime leaves its suspicious findings for the next one ([`Earlier`]). A hint is only what was
//! found both times, and is known not to have changed in between. For this reason the threads that
//! print a dump at a set time (`POLDER_DUMP=after:…`, [`test!`](crate::test)) take another dump
//! before it.
//!
//! A hint is no proof: it reports what was seen, and where to look.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::dump::{Brief, Count, Dump, Printable, TaskDump, TaskRef, TaskState, Wait, WorkerState};
use super::json::{Json, OrNull};
use super::pairs::Pairs;
#[cfg(any(feature = "net", feature = "blocking"))]
use crate::blocking::Load;
use crate::scheduler::Shared;
use crate::task::Id;

/// The time after which an unread socket is a hint. Other work of a task, such as a database query,
/// usually takes less.
const LONG_UNREAD: Duration = Duration::from_secs(3);

/// The polls per second from which a task that was ready in both dumps is a hint: a poll and
/// everything between two polls take it less than 20 µs, so it does next to no work.
const MANY_POLLS: f64 = 50_000.0;

/// The minimum time between two dumps that are compared: a shorter one says nothing.
const SHORT: Duration = Duration::from_millis(10);

/// The number of ready tasks from which a worker counts as overloaded while another worker sleeps.
const MANY_READY: usize = 16;

/// A probable fault, and its place: an element of [`Dump::hints`].
///
/// Printed, it is one line.
///
/// ```
/// use polder::diagnostics::Hint;
/// use polder::time::sleep;
/// use std::future::pending;
/// use std::time::Duration;
///
/// let runtime = polder::Runtime::new()?;
/// let _task = runtime.spawn(pending::<()>());
/// runtime.turn(Duration::ZERO);
/// runtime.dump(); // Hints compare two dumps.
/// std::thread::sleep(Duration::from_millis(20));
/// for hint in runtime.dump().hints {
///     eprintln!("{hint}"); // nothing wakes any of the 1 task: …
///     assert!(matches!(hint, Hint::NothingWakes { tasks: 1 }));
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Hint {
    /// All tasks wait, as they did in the previous dump. No task was polled since, all workers
    /// sleep, and no known timer, descriptor, signal or blocking call will wake any of them: only
    /// another thread or another runtime can.
    NothingWakes {
        /// The number of tasks, including the futures of [`block_on`](crate::block_on).
        tasks: usize,
    },
    /// A descriptor is readable, and was so in an earlier dump. It has not been read since, and the
    /// task that was woken for it does not wait for it. Either the future that would read is
    /// neither polled nor dropped, or the task has been waiting for something else for a long time.
    Unread {
        /// The task.
        task: TaskRef,
        /// The descriptor.
        descriptor: i64,
        /// The address of its peer.
        peer: Option<String>,
        /// A lower limit of the time since then.
        since: Duration,
    },
    /// Each of these tasks awaits the next one, and the last one awaits the first; none was polled
    /// since the previous dump. (If one of them also waits for something else, with a `select`,
    /// that may break the cycle.)
    AwaitEachOther(Vec<TaskRef>),
    /// A task that is polled again and again: it was ready in each dump, since it had been woken
    /// while it ran, by itself or by its data source.
    WakesItself {
        /// The task.
        task: TaskRef,
        /// The number of times that it was polled since the previous dump.
        polls: u32,
        /// The time since the previous dump.
        within: Duration,
    },
    /// One worker has all the ready tasks, now and in the previous dump, while another worker
    /// sleeps. The tasks cannot move (local tasks, [`spawn_on`](crate::Handle::spawn_on)).
    Uneven {
        /// The worker.
        worker: usize,
        /// The number of its ready tasks.
        ready: usize,
    },
    /// All threads of the pool are busy, and calls wait for one: calls of
    /// [`unblock`](crate::unblock()), or name lookups, from any runtime. None was finished since
    /// the previous dump.
    PoolIsFull {
        /// The number of calls that wait.
        waiting: usize,
        /// The number of calls that run.
        running: usize,
    },
}

/// The findings of a dump that the next one compares with its own.
#[derive(Clone, Debug)]
struct Earlier {
    at: Instant,
    /// Sources that were readable while no task waited for them.
    unread: Vec<EarlierUnread>,
    /// The number of polls of each task that had woken itself, by id.
    woken_by_themselves: Pairs,
    /// The number of tasks, and the sum of their polls.
    polls: (usize, u64),
    /// The worker that had all the ready tasks, if there was one.
    burdened: Option<usize>,
    /// The number of jobs that the pool had finished, if it was full.
    full_pool: Option<usize>,
}

/// A source that was readable while no task waited for it.
#[derive(Clone, Copy, Debug)]
struct EarlierUnread {
    /// Its address.
    source: usize,
    since: Instant,
    /// The task that was woken for it; zero for a future of `block_on`.
    task: u64,
    /// The count of events and of those consumed, and the number of readable bytes: while these are
    /// unchanged, the source is not read.
    mark: ((u32, u32), u64),
}

/// Findings collected while the tasks of a dump are visited.
#[derive(Default)]
pub(super) struct Clues {
    unread: Vec<Unread>,
    /// The number of polls of each ready task that has woken itself.
    woken_by_themselves: Vec<(u64, u64)>,
    /// The number of sources and timers with a waker of no known task.
    pub(super) unknown_waits: usize,
}

/// A source that is readable, while the task that was woken for it does not wait for it.
pub(super) struct Unread {
    pub(super) task: TaskRef,
    pub(super) descriptor: i64,
    pub(super) peer: Option<String>,
    /// Its address.
    pub(super) source: usize,
    /// See [`EarlierUnread`]. `None` if the number of bytes is unknown, or zero.
    pub(super) mark: Option<((u32, u32), u64)>,
}

impl Clues {
    pub(super) fn unread(&mut self, unread: Unread) {
        self.unread.push(unread);
    }

    pub(super) fn woken_by_itself(&mut self, task: Option<Id>, polls: u32) {
        (self.woken_by_themselves).extend(task.map(|id| (id.as_u64(), polls.into())));
    }

    /// `dump` is complete except for its hints, and was begun at `now`.
    pub(super) fn hints(self, shared: &Shared, dump: &Dump, now: Instant) -> Vec<Hint> {
        // Other threads may take dumps at the same time: each compares with an earlier one.
        let earlier = shared.earlier.lock().clone();
        let earlier = earlier
            .as_ref()
            .and_then(|earlier| earlier.downcast_ref::<Earlier>());
        let (pool, burdened) = (pool(), burdened(dump));
        let mut hints = Vec::new();
        let mut next = Earlier {
            at: now,
            unread: Vec::new(),
            woken_by_themselves: Pairs::new(self.woken_by_themselves),
            polls: polls(dump),
            burdened: burdened.map(|(worker, _)| worker),
            full_pool: pool
                .filter(|pool| pool.full.is_some())
                .map(|pool| pool.done),
        };
        if let Some(earlier) = earlier {
            let within = now.saturating_duration_since(earlier.at);
            if within >= SHORT {
                if earlier.polls == next.polls {
                    hints.extend(nothing_wakes(dump, self.unknown_waits, pool));
                    hints.extend(rings(dump).into_iter().map(Hint::AwaitEachOther));
                }
                hints.extend(wake_themselves(dump, earlier, &next, within));
                if earlier.burdened == next.burdened {
                    hints.extend(burdened.map(|(worker, ready)| Hint::Uneven { worker, ready }));
                }
                if earlier.full_pool == next.full_pool {
                    let full = pool.and_then(|pool| pool.full);
                    hints.extend(
                        full.map(|(waiting, running)| Hint::PoolIsFull { waiting, running }),
                    );
                }
            } else {
                // The earlier dump is kept for comparison with later ones.
                next = Earlier {
                    unread: Vec::new(),
                    ..earlier.clone()
                };
            }
        }
        let sources = earlier.map_or(&[][..], |earlier| &earlier.unread);
        let places = sources.iter().enumerate();
        let places = places.map(|(place, unread)| (unread.source as u64, place as u64));
        let places = Pairs::new(places.collect());
        for unread in self.unread {
            let Unread {
                task,
                descriptor,
                peer,
                source,
                mark,
            } = unread;
            let Some(mark) = mark else { continue };
            let id = task.id.map_or(0, Id::as_u64);
            let mut seen =
                (places.of(source as u64).iter()).map(|place| &sources[place.1 as usize]);
            let same = seen.find(|seen| seen.mark == mark && seen.task == id);
            let since = same.map_or(now, |seen| seen.since);
            next.unread.push(EarlierUnread {
                source,
                since,
                task: id,
                mark,
            });
            let since = now.saturating_duration_since(since);
            if since >= LONG_UNREAD {
                hints.push(Hint::Unread {
                    task,
                    descriptor,
                    peer,
                    since,
                });
            }
        }
        *shared.earlier.lock() = Some(Arc::new(next));
        hints
    }
}

/// Returns the tasks that had woken themselves in both dumps, and were polled often in between.
fn wake_themselves(
    dump: &Dump,
    earlier: &Earlier,
    next: &Earlier,
    within: Duration,
) -> impl Iterator<Item = Hint> {
    dump.tasks.iter().filter_map(move |task| {
        let id = task.id?.as_u64();
        let before = earlier.woken_by_themselves.get(id)? as u32;
        let polls = (next.woken_by_themselves.get(id)? as u32).wrapping_sub(before);
        let is_often = f64::from(polls) >= MANY_POLLS * within.as_secs_f64();
        is_often.then(|| Hint::WakesItself {
            task: task.reference(),
            polls,
            within,
        })
    })
}

#[cfg(any(feature = "net", feature = "blocking"))]
fn pool() -> Option<Load> {
    Some(crate::blocking::POOL.get().load())
}

/// Without these features there is no pool.
#[cfg(not(any(feature = "net", feature = "blocking")))]
fn pool() -> Option<Load> {
    None
}

#[cfg(not(any(feature = "net", feature = "blocking")))]
#[derive(Clone, Copy)]
struct Load {
    full: Option<(usize, usize)>,
    is_idle: bool,
    done: usize,
}

/// Returns the number of tasks, and of their polls: if both are the same later, no task was polled.
fn polls(dump: &Dump) -> (usize, u64) {
    let polls = dump.tasks.iter().map(|task| u64::from(task.polls)).sum();
    (dump.tasks.len(), polls)
}

/// Whether a task waits for a signal other than SIGUSR1, which may be what requested the dump.
fn waits_for_signal() -> bool {
    #[cfg(all(unix, feature = "signal"))]
    return crate::signal::is_waited_for(libc::SIGUSR1);
    #[cfg(all(windows, feature = "signal"))]
    return crate::signal::is_waited_for(0);
    #[cfg(not(feature = "signal"))]
    return false;
}

fn nothing_wakes(dump: &Dump, unknown_waits: usize, pool: Option<Load>) -> Option<Hint> {
    let sleeps = |state: &WorkerState| {
        matches!(
            state,
            WorkerState::Parked { .. } | WorkerState::Here { task: None }
        )
    };
    // (A function given to `unblock` also has an id. Such calls are checked below, since a task may
    // wait for one although its last poll recorded something else.)
    let needs_another = |wait: &Wait| match wait {
        Wait::Event(_) | Wait::Latch(_) | Wait::Task(_) | Wait::TaskSet(_) | Wait::Elsewhere => {
            true
        }
        // No task waits for it.
        Wait::Socket { ready_unread, .. } => *ready_unread,
        _ => false,
    };
    let is_stuck = dump.untold == 0
        && unknown_waits == 0
        && pool.is_none_or(|pool| pool.is_idle)
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

/// Returns the cycles of tasks that await each other, each cycle once, from its oldest task on.
fn rings(dump: &Dump) -> Vec<Vec<TaskRef>> {
    // The task that a task awaits, if it awaits nothing else.
    let awaited = |task: &TaskDump| match task.waits_for[..] {
        [Wait::Task(next)] => Some(next),
        _ => None,
    };
    // The tasks are in the order of ids.
    let place = |id: Id| (dump.tasks.binary_search_by_key(&Some(id), |task| task.id)).ok();
    let mut rings = Vec::new();
    // The walk that first saw each task, so that each is visited only once.
    let mut seen = vec![None; dump.tasks.len()];
    for (walk, start) in dump.tasks.iter().enumerate() {
        let mut path = Vec::new();
        let mut next = (start.id.and_then(|_| awaited(start))).map(|_| walk);
        while let Some(index) = next {
            let task = &dump.tasks[index];
            match seen[index].replace(walk) {
                None => path.push(task),
                Some(before) => {
                    // Seen in this walk: the cycle begins there.
                    if before == walk {
                        let first = path.iter().position(|step| step.id == task.id);
                        let ring = path.split_off(first.unwrap_or(path.len()));
                        rings.push(ring.into_iter().map(TaskDump::reference).collect());
                    }
                    break;
                }
            }
            next = awaited(task).and_then(place);
        }
    }
    rings
}

/// Returns the worker that has all the ready tasks of the pool, and their number, while another
/// worker sleeps.
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
            Hint::AwaitEachOther(_) => "await each other",
            Hint::WakesItself { .. } => "wakes itself",
            Hint::Uneven { .. } => "uneven",
            Hint::PoolIsFull { .. } => "pool is full",
        }
    }

    fn tasks(&self) -> &[TaskRef] {
        match self {
            Hint::Unread { task, .. } | Hint::WakesItself { task, .. } => {
                std::slice::from_ref(task)
            }
            Hint::AwaitEachOther(tasks) => tasks,
            _ => &[],
        }
    }

    /// Writes its kind, the ids of its tasks, and its text.
    pub(super) fn write_json(&self, out: &mut String) {
        let mut json = Json::object(out);
        json.text("kind", self.kind());
        let mut tasks = Json::list(json.key("tasks"));
        for task in self.tasks() {
            let _ = write!(tasks.next(), "{}", OrNull(task.id));
        }
        drop(tasks);
        json.text("text", &self.to_string());
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
