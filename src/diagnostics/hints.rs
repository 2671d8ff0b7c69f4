//! What in a dump looks like a fault.
//!
//! A dump is of one moment, and most faults are that something stays as it is. So each dump leaves
//! what looked odd to the next one of the same runtime ([`Earlier`]), and only what was so both
//! times is a hint. The threads that print a dump at a time of their own (`POLDER_DUMP=after:…`,
//! [`test!`](crate::test)) take one before that for this reason.
//!
//! A hint is no proof: it says what was seen, and where to look.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::time::{Duration, Instant};

use super::dump::{
    Brief, Count, Dump, TaskDump, TaskRef, TaskState, Wait, WorkerState, write_json_text,
};
use crate::scheduler::{Earlier, Shared};
use crate::task::Id;

/// A socket that nobody reads is a hint from then on: a task that is busy with something else for
/// less than this does not keep its peer waiting for longer than people notice.
const LONG_UNREAD: Duration = Duration::from_secs(1);

/// A task that is ready each time it is looked at, and was polled so often in a second, does not
/// compute in each of its polls.
const MANY_POLLS: f64 = 10_000.0;

/// For two dumps that are nearer to each other than this, how often something happened in between
/// says nothing.
const SHORT: Duration = Duration::from_millis(10);

/// So many ready tasks on one worker are a burden, while another worker sleeps.
const MANY_READY: usize = 16;

/// What looks like a fault, and where: of [`Dump::hints`].
///
/// Printed, it is one line.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Hint {
    /// All tasks wait, all workers sleep, and no timer, descriptor, signal or blocking call that
    /// the runtime knows of will wake any of them: only another thread can, or another runtime.
    NothingWakes {
        /// How many tasks there are, with the futures of [`block_on`](crate::block_on).
        tasks: usize,
    },
    /// A descriptor is readable, and was so in an earlier dump; nobody has read since, and the task
    /// that was woken for it does not wait for it. Most likely the future that would read is
    /// neither polled nor dropped.
    Unread {
        /// The task.
        task: TaskRef,
        /// The descriptor.
        descriptor: i64,
        /// The address of its peer.
        peer: Option<String>,
        /// For how long, at least.
        since: Duration,
    },
    /// Each of these tasks awaits the next one, and the last one the first.
    AwaitEachOther(Vec<TaskRef>),
    /// A task that has nothing to wait for: whenever it was looked at it had woken itself.
    WakesItself {
        /// The task.
        task: TaskRef,
        /// How often it was polled since the dump before.
        polls: u32,
        /// How long ago that was.
        within: Duration,
    },
    /// One worker has all the ready tasks, now and in the dump before, while another one sleeps:
    /// they stay with it (local tasks, [`spawn_on`](crate::Handle::spawn_on)).
    Uneven {
        /// The worker.
        worker: usize,
        /// How many of its tasks are ready.
        ready: usize,
    },
    /// All threads of the pool are busy, and calls wait for one: of
    /// [`unblock`](crate::unblock()), or name lookups.
    PoolIsFull {
        /// How many calls wait.
        waiting: usize,
        /// How many are under way.
        running: usize,
    },
}

/// What is noted for the hints while the tasks of a dump are gone through.
#[derive(Default)]
pub(super) struct Clues {
    unread: Vec<Unread>,
    /// Tasks that are ready, since they have woken themselves.
    woken_by_themselves: Vec<Id>,
    /// How many sources and timers will wake whom nobody knows.
    pub(super) unknown_waits: usize,
}

/// A source that is readable, while the task that was woken for it does not wait for it.
pub(super) struct Unread {
    pub(super) task: TaskRef,
    pub(super) descriptor: i64,
    pub(super) peer: Option<String>,
    /// Its address.
    pub(super) source: usize,
    /// How much of its readiness is used up: another number says that somebody has read.
    pub(super) spent: u32,
}

impl Clues {
    pub(super) fn unread(&mut self, unread: Unread) {
        self.unread.push(unread);
    }

    pub(super) fn woken_by_itself(&mut self, task: Option<Id>) {
        self.woken_by_themselves.extend(task);
    }

    /// `dump` is whole but for its hints, and was begun at `now`.
    pub(super) fn hints(self, shared: &Shared, dump: &Dump, now: Instant) -> Vec<Hint> {
        // Others may take a dump at the same time: each goes by one that was before it.
        let earlier = shared.earlier();
        let earlier = earlier.as_deref();
        let burdened = burdened(dump);
        let (at, ready) = match earlier.filter(|earlier| now < earlier.at + SHORT) {
            Some(earlier) => (earlier.at, earlier.ready.clone()),
            None => (now, ready_tasks(dump)),
        };
        let mut next = Earlier {
            at,
            unread: HashMap::new(),
            ready,
            burdened: burdened.map(|(worker, _)| worker),
        };

        let mut hints = Vec::new();
        hints.extend(nothing_wakes(dump, self.unknown_waits));
        hints.extend(self.unread.into_iter().filter_map(|unread| {
            let Unread {
                task,
                descriptor,
                peer,
                source,
                spent,
            } = unread;
            let seen = earlier.and_then(|earlier| earlier.unread.get(&source));
            let since = match seen {
                Some((since, before)) if *before == spent => *since,
                _ => now,
            };
            next.unread.insert(source, (since, spent));
            let since = now.saturating_duration_since(since);
            (since >= LONG_UNREAD).then_some(Hint::Unread {
                task,
                descriptor,
                peer,
                since,
            })
        }));
        hints.extend(rings(dump).into_iter().map(Hint::AwaitEachOther));
        if let Some(earlier) = earlier {
            let within = now.saturating_duration_since(earlier.at);
            for task in &dump.tasks {
                let polls = wakes_itself(task, &self.woken_by_themselves, earlier, within);
                hints.extend(polls.map(|polls| Hint::WakesItself {
                    task: task.reference(),
                    polls,
                    within,
                }));
            }
            let uneven = burdened.filter(|(worker, _)| earlier.burdened == Some(*worker));
            hints.extend(uneven.map(|(worker, ready)| Hint::Uneven { worker, ready }));
        }
        #[cfg(any(feature = "net", feature = "blocking"))]
        hints.extend(
            (crate::pool::POOL.full())
                .map(|(waiting, running)| Hint::PoolIsFull { waiting, running }),
        );
        shared.set_earlier(next);
        hints
    }
}

fn ready_tasks(dump: &Dump) -> HashMap<u64, u32> {
    let is_ready = |task: &&TaskDump| matches!(task.state, TaskState::Ready | TaskState::Running);
    let ready = dump.tasks.iter().filter(is_ready);
    ready
        .filter_map(|task| Some((task.id?.as_u64(), task.polls)))
        .collect()
}

fn nothing_wakes(dump: &Dump, unknown_waits: usize) -> Option<Hint> {
    let sleeps = |state: &WorkerState| {
        matches!(
            state,
            WorkerState::Parked { .. } | WorkerState::Here { task: None }
        )
    };
    let needs_another = |wait: &Wait| match wait {
        Wait::Event(_) | Wait::Latch(_) | Wait::Task(_) | Wait::TaskSet(_) | Wait::Elsewhere => {
            true
        }
        // Nobody looks at it.
        Wait::Socket { ready_unread, .. } => *ready_unread,
        _ => false,
    };
    let is_stuck = dump.untold == 0
        && unknown_waits == 0
        && !dump.tasks.is_empty()
        && dump.workers.iter().all(|worker| sleeps(&worker.state))
        && (dump.tasks.iter()).all(|task| {
            task.state == TaskState::Waiting && task.waits_for.iter().all(needs_another)
        });
    is_stuck.then_some(Hint::NothingWakes {
        tasks: dump.tasks.len(),
    })
}

/// Tasks that await each other: each ring once, from its oldest task on.
fn rings(dump: &Dump) -> Vec<Vec<TaskRef>> {
    // What a task awaits, if it awaits nothing else.
    let awaited = |task: &TaskDump| match task.waits_for[..] {
        [Wait::Task(next)] => Some(next),
        _ => None,
    };
    let tasks: HashMap<Id, &TaskDump> = (dump.tasks.iter())
        .filter_map(|task| Some((task.id?, task)))
        .collect();
    let mut rings = Vec::new();
    // The walk in which a task was seen first: each is walked through once.
    let mut seen = HashMap::new();
    for (walk, start) in dump.tasks.iter().enumerate() {
        let mut path = Vec::new();
        let mut next = start.id;
        while let Some(task) = next.and_then(|id| tasks.get(&id)) {
            match seen.insert(task.id, walk) {
                None => path.push(*task),
                Some(before) => {
                    // In this walk: from there on it is a ring.
                    if before == walk {
                        let first = path.iter().position(|it| it.id == task.id);
                        let ring = path.split_off(first.unwrap_or(path.len()));
                        rings.push(ring.into_iter().map(TaskDump::reference).collect());
                    }
                    break;
                }
            }
            next = awaited(task);
        }
    }
    rings
}

/// How often a task was polled since the dump before, if it does nothing but wake itself.
fn wakes_itself(
    task: &TaskDump,
    woken_by_themselves: &[Id],
    earlier: &Earlier,
    within: Duration,
) -> Option<u32> {
    let id = task.id?;
    let before = earlier.ready.get(&id.as_u64())?;
    let polls = task.polls.wrapping_sub(*before);
    let is_often = within >= SHORT && f64::from(polls) >= MANY_POLLS * within.as_secs_f64();
    (is_often && woken_by_themselves.contains(&id)).then_some(polls)
}

/// The worker that has all the ready tasks of the pool, and how many, while another one sleeps.
fn burdened(dump: &Dump) -> Option<(usize, usize)> {
    let (_, pool) = dump.workers.split_last()?;
    let ready_on = |worker: usize| {
        let is_ready = |task: &&TaskDump| {
            task.worker == Some(worker)
                && matches!(task.state, TaskState::Ready | TaskState::Running)
        };
        dump.tasks.iter().filter(is_ready).count()
    };
    let mut awake = Vec::new();
    for worker in pool {
        if !matches!(worker.state, WorkerState::Parked { .. }) {
            awake.push(worker.index);
        }
    }
    let [worker] = awake[..] else { return None };
    let ready = ready_on(worker);
    (pool.len() > 1 && ready >= MANY_READY).then_some((worker, ready))
}

impl Hint {
    fn kind(&self) -> &'static str {
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

    /// Its kind, the ids of its tasks, and its words.
    pub(super) fn write_json(&self, out: &mut String) -> fmt::Result {
        write!(out, "{{\"kind\":\"{}\",\"tasks\":[", self.kind())?;
        for (index, task) in self.tasks().iter().enumerate() {
            out.push_str(if index > 0 { "," } else { "" });
            match task.id {
                Some(id) => write!(out, "{id}")?,
                None => out.push_str("null"),
            }
        }
        out.push_str("],\"text\":");
        write_json_text(out, &self.to_string())?;
        out.push('}');
        Ok(())
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
                    write!(f, " (peer {})", peer.escape_debug())?;
                }
                write!(
                    f,
                    " has been readable for at least {}, and nobody has read: {task} was woken for it, \
                     and does not poll the future that would read",
                    Brief(*since)
                )
            }
            Hint::AwaitEachOther(tasks) => match &tasks[..] {
                [task] => write!(f, "{task} awaits itself"),
                _ => {
                    f.write_str("these await each other, in a ring: ")?;
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
                "{task} wakes itself all the time: {polls} polls in {}",
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
