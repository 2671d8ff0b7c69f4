//! What in a dump looks like a fault.
//!
//! A dump is of one moment, and most faults are that something stays as it is. So each dump leaves
//! what looked odd to the next one of the same runtime ([`Earlier`]), and only what was so both
//! times, and is known to have been so in between, is a hint. The threads that print a dump at a
//! time of their own (`POLDER_DUMP=after:…`, [`test!`](crate::test)) take one before that for this
//! reason.
//!
//! A hint is no proof: it says what was seen, and where to look.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::dump::{
    Brief, Count, Dump, Printable, TaskDump, TaskRef, TaskState, Wait, WorkerState, write_json_text,
};
use super::pairs::Pairs;
#[cfg(any(feature = "net", feature = "blocking"))]
use crate::pool::Load;
use crate::scheduler::Shared;
use crate::task::Id;

/// A socket that nobody reads is a hint from then on: most of what a task is busy with in between,
/// a question to a database for instance, takes less.
const LONG_UNREAD: Duration = Duration::from_secs(3);

/// A task that is ready each time it is looked at, and was polled so often in a second, takes less
/// than 20 µs for a poll with all that comes between two of them: it hardly computes.
const MANY_POLLS: f64 = 50_000.0;

/// What happened, or did not, between two dumps that are nearer to each other than this says
/// nothing.
const SHORT: Duration = Duration::from_millis(10);

/// So many ready tasks on one worker are a burden, while another worker sleeps.
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
    /// All tasks wait, as they did in the dump before; none was polled since, all workers sleep,
    /// and no timer, descriptor, signal or blocking call that is known of will wake any of them:
    /// only another thread can, or another runtime.
    NothingWakes {
        /// How many tasks there are, with the futures of [`block_on`](crate::block_on).
        tasks: usize,
    },
    /// A descriptor is readable, and was so in an earlier dump; nobody has read since, and the task
    /// that was woken for it does not wait for it. Either the future that would read is neither
    /// polled nor dropped, or the task waits for something else for long.
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
    /// Each of these tasks awaits the next one, and the last one the first, and none was polled
    /// since the dump before. (If one of them waits for something else as well, by a `select`, that
    /// may end it.)
    AwaitEachOther(Vec<TaskRef>),
    /// A task that is polled again and again: whenever it was looked at it was ready, since it had
    /// been woken while it ran, by itself or by what feeds it.
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
    /// [`unblock`](crate::unblock()), or name lookups, of whichever runtime. None was done since
    /// the dump before.
    PoolIsFull {
        /// How many calls wait.
        waiting: usize,
        /// How many are under way.
        running: usize,
    },
}

/// What a dump leaves for the next one, which so knows what has not changed.
#[derive(Clone, Debug)]
struct Earlier {
    at: Instant,
    /// Sources that were readable while nobody waited for them.
    unread: Vec<EarlierUnread>,
    /// How often each task was polled that had woken itself, by id.
    woken_by_themselves: Pairs,
    /// How many tasks there were, and how many polls in all of them.
    polls: (usize, u64),
    /// The worker that had all the ready tasks, if one had.
    burdened: Option<usize>,
    /// How many jobs the pool had done, if it was full.
    full_pool: Option<usize>,
}

/// A source that was readable while nobody waited for it.
#[derive(Clone, Copy, Debug)]
struct EarlierUnread {
    /// Its address.
    source: usize,
    since: Instant,
    /// The task that was woken for it: zero for a future of `block_on`.
    task: u64,
    /// Events and what was spent of them, and how many bytes were there: as long as these are the
    /// same nobody reads.
    mark: ((u32, u32), u64),
}

/// What is noted for the hints while the tasks of a dump are gone through.
#[derive(Default)]
pub(super) struct Clues {
    unread: Vec<Unread>,
    /// How often each task was polled that is ready, since it has woken itself.
    woken_by_themselves: Vec<(u64, u64)>,
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
    /// See [`EarlierUnread`]. `None` where nobody says how many bytes there are, or there are none.
    pub(super) mark: Option<((u32, u32), u64)>,
}

impl Clues {
    pub(super) fn unread(&mut self, unread: Unread) {
        self.unread.push(unread);
    }

    pub(super) fn woken_by_itself(&mut self, task: Option<Id>, polls: u32) {
        (self.woken_by_themselves).extend(task.map(|id| (id.as_u64(), polls.into())));
    }

    /// `dump` is whole but for its hints, and was begun at `now`.
    pub(super) fn hints(self, shared: &Shared, dump: &Dump, now: Instant) -> Vec<Hint> {
        // Others may take a dump at the same time: each goes by one that was before it.
        let earlier = shared.earlier.lock().clone();
        let earlier = earlier.as_ref().and_then(|it| it.downcast_ref::<Earlier>());
        let (pool, burdened) = (pool(), burdened(dump));
        let mut hints = Vec::new();
        let mut next = Earlier {
            at: now,
            unread: Vec::new(),
            woken_by_themselves: Pairs::new(self.woken_by_themselves),
            polls: polls(dump),
            burdened: burdened.map(|(worker, _)| worker),
            full_pool: pool.filter(|pool| pool.full.is_some()).map(|it| it.done),
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
                // That one is to be compared with what comes later, too.
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
            let mut seen = (places.of(source as u64).iter()).map(|it| &sources[it.1 as usize]);
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

/// Tasks that had woken themselves in both dumps, and were polled often in between.
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
    Some(crate::pool::POOL.get().load())
}

/// There are no such threads.
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

/// How many tasks there are, and how many polls: if both are the same later, nobody was polled.
fn polls(dump: &Dump) -> (usize, u64) {
    let polls = dump.tasks.iter().map(|task| u64::from(task.polls)).sum();
    (dump.tasks.len(), polls)
}

/// Whether a signal may come that somebody waits for: but SIGUSR1, which may be what asks.
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
    // (A function given to `unblock` has an id too. Such calls are looked at below, since others
    // may wait for them whose poll has said something else last.)
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

/// Tasks that await each other: each ring once, from its oldest task on.
fn rings(dump: &Dump) -> Vec<Vec<TaskRef>> {
    // What a task awaits, if it awaits nothing else.
    let awaited = |task: &TaskDump| match task.waits_for[..] {
        [Wait::Task(next)] => Some(next),
        _ => None,
    };
    // They are in the order of ids.
    let place = |id: Id| (dump.tasks.binary_search_by_key(&Some(id), |task| task.id)).ok();
    let mut rings = Vec::new();
    // The walk in which a task was seen first: each is walked through once.
    let mut seen = vec![None; dump.tasks.len()];
    for (walk, start) in dump.tasks.iter().enumerate() {
        let mut path = Vec::new();
        let mut next = (start.id.and_then(|_| awaited(start))).map(|_| walk);
        while let Some(index) = next {
            let task = &dump.tasks[index];
            match seen[index].replace(walk) {
                None => path.push(task),
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
            next = awaited(task).and_then(place);
        }
    }
    rings
}

/// The worker that has all the ready tasks of the pool, and how many, while another one sleeps.
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
