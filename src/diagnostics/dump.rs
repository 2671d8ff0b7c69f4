//! Dumps of a runtime: its workers, its tasks, and what each task waits for.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::panic::Location;
use std::ptr;
use std::time::{Duration, Instant, SystemTime};

use super::hints::{Clues, Hint};
use super::json::{Json, OrNull};
use super::open_sockets::OpenSockets;
use super::request::OwnWorker;
use super::seconds::Seconds;
use super::snapshot::{SharedSnapshot, TaskRecord};
use super::sockets::{describe, is_readable};
use super::sorted_index::SortedIndex;
use crate::clock::{date, now};
use crate::kernel::{self, Kernel};
use crate::poller::Backend;
use crate::reactor::{self, Direction, SourceWait};
use crate::scheduler::Shared;
use crate::task::{Id, Name};
use crate::telemetry::{MAIN_FUTURE, WaitReason};

/// A snapshot of a runtime, from [`Runtime::dump`](crate::Runtime::dump).
///
/// [`Display`](fmt::Display) groups the tasks of one spawn site that wait for the same kind of
/// thing; [`json`](Self::json) is for tools.
///
/// **A dump disturbs the runtime only briefly.** It polls no task. Each worker collects its private
/// state between two polls. A worker that does not react within 100 ms is
/// [`Silent`](WorkerState::Silent), and is shown with the task that occupies it. Tasks continue
/// meanwhile, so a dump does not show a single moment.
///
/// ```
/// use polder::diagnostics::{TaskState, Wait};
/// use polder::event::Event;
/// use std::sync::Arc;
///
/// let runtime = polder::Runtime::new()?;
/// let event = Arc::new(Event::new());
/// let waits = polder::task::Builder::new()
///     .name("waits")
///     .spawn_on(async move { event.wait().await }, &runtime.handle());
/// runtime.run_once(std::time::Duration::ZERO);
///
/// let dump = runtime.dump();
/// let task = dump.tasks.iter().find(|task| task.id == Some(waits.id())).unwrap();
/// assert_eq!(task.name.as_ref().unwrap(), "waits");
/// assert_eq!(task.state, TaskState::Waiting);
/// assert!(matches!(task.waits_for[..], [Wait::Event(_)]));
/// print!("{dump}");
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Dump {
    /// The time at which it was taken.
    pub at: SystemTime,
    /// The backend.
    pub backend: Backend,
    /// The workers; the last of [several](crate::runtime::Builder::workers) belongs to the thread
    /// that made the runtime.
    pub workers: Vec<WorkerDump>,
    /// The number of open sockets of the whole process, by kind.
    pub open_sockets: OpenSockets,
    /// The tasks, and the futures of [`block_on`](crate::block_on).
    pub tasks: Vec<TaskDump>,
    /// The number of tasks that are not listed: local tasks of a worker that has not answered or is
    /// not driven, tasks in their first poll, and tasks on their way to a worker.
    pub unreported: usize,
    /// Likely bugs, if the previous dump is at least ten milliseconds old: see [`Hint`].
    pub hints: Vec<Hint>,
}

/// An element of [`Dump::workers`].
///
/// ```
/// let runtime = polder::Runtime::builder().workers(2).build()?;
/// for worker in runtime.dump().workers {
///     println!("{}: {:?}, {} tasks", worker.index, worker.state, worker.tasks);
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerDump {
    /// The worker's index.
    pub index: usize,
    /// The worker's activity.
    pub state: WorkerState,
    /// The number of tasks that it owns: pinned ones, and stealable ones that it was the first to
    /// poll.
    pub tasks: usize,
    /// The number of sources registered with its poller. Those of a shared poller count for the
    /// first of its workers.
    pub sources: usize,
}

/// The activity of a worker. Workers rarely read the clock, so durations are upper limits.
///
/// ```
/// use polder::diagnostics::WorkerState;
///
/// let runtime = polder::Runtime::new()?;
/// // Taken between two calls that drive it.
/// let state = runtime.dump().workers[0].state;
/// assert!(matches!(state, WorkerState::NotDriven | WorkerState::Here { task: None }));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WorkerState {
    /// It sleeps until an event, a wake or a timer.
    Parked {
        /// The time since then.
        since: Duration,
    },
    /// It is awake and answers.
    Awake,
    /// The dump was taken on its thread, within this task or between tasks.
    Here {
        /// The task.
        task: Option<TaskRef>,
    },
    /// It is not driven, so its tasks make no progress. Only its thread can list them.
    NotDriven,
    /// It has not answered: it computes or blocks, in a poll or elsewhere.
    Silent {
        /// The task.
        task: Option<TaskRef>,
        /// The time since then.
        since: Duration,
    },
}

/// A task, or a future of [`block_on`](crate::block_on).
///
/// ```
/// use polder::diagnostics::WorkerState;
///
/// let runtime = polder::Runtime::new()?;
/// let handle = runtime.handle();
/// let task = runtime.spawn(async move { handle.dump() });
/// let id = task.id();
/// let dump = runtime.block_on(task);
/// let WorkerState::Here { task: Some(task) } = dump.workers[0].state else {
///     panic!("{:?}", dump.workers[0].state);
/// };
/// assert_eq!(task.id, Some(id));
/// println!("{task}"); // task 1, spawned at src/main.rs:5:20
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TaskRef {
    /// Its id; `None` for a future of `block_on`, which is no task.
    pub id: Option<Id>,
    /// Where it was spawned, or where `block_on` was called.
    pub spawned_at: &'static Location<'static>,
}

impl TaskRef {
    pub(super) fn new((id, spawned_at): (u64, &'static Location<'static>)) -> TaskRef {
        let id = Id::from_u64(id).filter(|_| id != MAIN_FUTURE);
        TaskRef { id, spawned_at }
    }
}

/// An element of [`Dump::tasks`].
///
/// ```
/// let runtime = polder::Runtime::new()?;
/// let _task = runtime.spawn(std::future::pending::<()>());
/// runtime.run_once(std::time::Duration::ZERO);
/// let dump = runtime.dump();
/// let task = &dump.tasks[0];
/// assert_eq!((task.polls, task.worker), (1, Some(0)));
/// assert!(task.spawned_at.file().ends_with(".rs"));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TaskDump {
    /// Its id; `None` for a future of [`block_on`](crate::block_on), which is no task.
    pub id: Option<Id>,
    /// Its name.
    pub name: Option<Name>,
    /// Where it was spawned, or where `block_on` was called.
    pub spawned_at: &'static Location<'static>,
    /// An upper limit of the time since it was spawned.
    pub age: Duration,
    /// The worker to which it is pinned, or that has polled it last; `None` if no worker has taken
    /// it.
    pub worker: Option<usize>,
    /// Its state.
    pub state: TaskState,
    /// What it waits for, as far as that is known.
    pub waits_for: Vec<Wait>,
    /// The number of its polls, which wraps at 2^32.
    pub polls: u32,
    /// An upper limit of the time since its last poll began.
    pub last_polled: Duration,
}

/// The state of a task.
///
/// ```
/// use polder::diagnostics::TaskState;
/// use std::time::Duration;
///
/// let runtime = polder::Runtime::new()?;
/// let _task = runtime.spawn(std::future::pending::<()>());
/// let state = || runtime.dump().tasks[0].state;
/// assert_eq!(state(), TaskState::New);
/// runtime.run_once(Duration::ZERO);
/// assert_eq!(state(), TaskState::Waiting);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum TaskState {
    /// It was never polled.
    New,
    /// It was woken, and waits for its worker.
    Ready,
    /// It is being polled.
    Running,
    /// It waits to be woken.
    Waiting,
}

/// A thing that a task waits for. In a recorded run a number is in the place of an address.
///
/// ```
/// use polder::diagnostics::Wait;
/// use polder::time::sleep;
/// use std::time::{Duration, Instant};
///
/// let runtime = polder::Runtime::new()?;
/// let _task = runtime.spawn(sleep(Duration::from_secs(60)));
/// runtime.run_once(Duration::ZERO);
/// match runtime.dump().tasks[0].waits_for[..] {
///     [Wait::Timer { due }] => assert!(due > Instant::now()),
///     ref other => panic!("{other:?}"),
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Wait {
    /// A socket, or another descriptor.
    Socket {
        /// Its descriptor number.
        descriptor: i64,
        /// Its kind: `TCP`, `UDP`, `Unix stream`, `Unix datagram`, `socket`, `descriptor`.
        kind: &'static str,
        /// Whether the task waits to write; otherwise it waits to read or accept.
        writes: bool,
        /// Its local address.
        local: Option<String>,
        /// Its peer's address.
        peer: Option<String>,
        /// Whether it is readable, but the task, which was woken for it, does not wait for it
        /// again: the future that would read is no longer polled, or is busy. Also true if the task
        /// has read and awaits another thing while its peer keeps sending, and possibly if it is
        /// being woken right now. Unknown the first time that a task waits for a socket, and if
        /// several tasks wait.
        ready_unread: bool,
    },
    /// A timer.
    Timer {
        /// The deadline.
        due: Instant,
    },
    /// An [`Event`](crate::event::Event), by its address.
    Event(usize),
    /// A [`Latch`](crate::event::Latch), by its address.
    Latch(usize),
    /// Another task, or a function given to `unblock`, which has an id, too.
    Task(Id),
    /// The next output of a [`TaskSet`](crate::TaskSet), by its address.
    TaskSet(usize),
    /// A blocking function on another thread.
    Blocking,
    /// The name resolver.
    Lookup,
    /// Any of these signals, by number; numbers from 60 on are left out.
    Signal(Vec<i32>),
    /// A channel or lock of another crate, or a waker that another crate has wrapped.
    Elsewhere,
}

impl Dump {
    /// `own` are the workers of this thread.
    pub(crate) fn of(shared: &Shared, own: &[OwnWorker]) -> Dump {
        let live = shared.live_tasks();
        let snapshot = SharedSnapshot::take(shared, own);
        let now = now();
        let mut clues = Clues::new(now, snapshot.has_unknown_waits());
        let SharedSnapshot { workers, tasks, .. } = snapshot;
        // Sorted by id, which is close to the order of spawning.
        let ids = tasks.iter().map(|record| record.task.id);
        let order = SortedIndex::places(ids.map(|id| id.map_or(0, Id::as_u64)));
        let mut records: Vec<_> = tasks.into_iter().map(Some).collect();
        let records = (order.iter()).filter_map(|(_, place)| records[*place as usize].take());
        let mut tasks: Vec<TaskDump> = records
            .map(|record| record.finish(shared, &workers, &mut clues))
            .collect();
        if kernel::current().is_some_and(Kernel::numbers_addresses) {
            number_addresses(&mut tasks);
        }
        let listed = tasks.iter().filter(|task| task.id.is_some()).count();
        let mut dump = Dump {
            at: date(),
            backend: shared.main().reactor.poller().backend(),
            workers,
            open_sockets: OpenSockets::of(shared),
            unreported: live.saturating_sub(listed),
            tasks,
            hints: Vec::new(),
        };
        dump.hints = clues.hints(shared, &dump);
        dump
    }

    /// Returns the number of tasks, including unlisted ones.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// let task = runtime.spawn(std::future::pending::<()>());
    /// assert_eq!(runtime.dump().task_count(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn task_count(&self) -> usize {
        let listed = self.tasks.iter().filter(|task| task.id.is_some());
        listed.count() + self.unreported
    }

    pub(super) fn groups(&self) -> Vec<Group<'_>> {
        fn kind(task: &TaskDump) -> (bool, &str, u32, TaskState) {
            let place = task.spawned_at;
            (task.id.is_some(), place.file(), place.line(), task.state)
        }
        let mut groups: Vec<Group<'_>> = Vec::new();
        for task in &self.tasks {
            let mut waits = String::new();
            for wait in &task.waits_for {
                waits += if waits.is_empty() { "" } else { " and " };
                waits += &wait.summary();
            }
            let order =
                |group: &Group<'_>| (kind(group.tasks[0]), &group.waits).cmp(&(kind(task), &waits));
            match groups.binary_search_by(order) {
                Ok(place) => groups[place].tasks.push(task),
                Err(place) => {
                    let tasks = vec![task];
                    groups.insert(place, Group { waits, tasks });
                }
            }
        }
        groups
    }

    #[cfg(feature = "kernel")]
    pub(crate) fn in_a_world(&self) -> Vec<String> {
        let mut lines: Vec<(String, usize)> = Vec::new();
        for task in &self.tasks {
            let waits: Vec<String> = task.waits_for.iter().map(Wait::in_a_world).collect();
            let state = match task.state {
                TaskState::Waiting => format!("waits: {}", waits.join(" and ")),
                state => state.name().to_owned(),
            };
            let name = task
                .name
                .as_ref()
                .map_or(String::new(), |name| format!(" {name:?}"));
            let line = format!("{name}, spawned at {}, {state}", task.spawned_at);
            match lines.iter_mut().find(|seen| seen.0 == line) {
                Some((_, count)) => *count += 1,
                None => lines.push((line, 1)),
            }
        }
        let line = |(line, count): (String, usize)| match count {
            1 => format!("a task{line}"),
            _ => format!("{count} tasks{line}"),
        };
        lines.into_iter().map(line).collect()
    }

    /// Returns the dump as JSON: one object on one line. Durations are in seconds; unprintable text
    /// is escaped.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// polder::task::Builder::new()
    ///     .name("\"quoted\"")
    ///     .spawn_on(std::future::pending::<()>(), &runtime.handle())
    ///     .detach();
    /// let json = runtime.dump().json();
    /// assert!(json.starts_with(r#"{"at":"#), "{json}");
    /// assert!(json.contains(r#""name":"\"quoted\"""#), "{json}");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn json(&self) -> String {
        let mut out = String::new();
        let mut json = Json::object(&mut out);
        json.at(self.at)
            .text("backend", self.backend.name())
            .value("unreported", self.unreported)
            .list_of("workers", &self.workers, |worker, out| {
                let mut json = Json::object(out);
                json.value("index", worker.index)
                    .value("tasks", worker.tasks)
                    .value("sources", worker.sources);
                worker.state.write_json(&mut json);
            })
            .list_of("tasks", &self.tasks, TaskDump::write_json);
        self.open_sockets.write_json(json.key("open_sockets"));
        json.list_of("hints", &self.hints, Hint::write_json);
        drop(json);
        out
    }
}

pub(super) struct Group<'a> {
    /// Empty if they do not wait. Details of single tasks are left out.
    pub(super) waits: String,
    /// The oldest first; not empty.
    pub(super) tasks: Vec<&'a TaskDump>,
}

impl Group<'_> {
    pub(super) fn idle(&self) -> Duration {
        let idle = self.tasks.iter().map(|task| task.last_polled);
        idle.max().unwrap_or_default()
    }
}

impl TaskRecord {
    fn finish(self, shared: &Shared, workers: &[WorkerDump], clues: &mut Clues) -> TaskDump {
        let mut task = self.task;
        let worker = task.worker.map(|index| &workers[index]);
        let running = worker.and_then(|worker| worker.state.task()?.id);
        let runs = self.runs || (running.is_some() && running == task.id);
        task.state = match self.reason {
            _ if runs => TaskState::Running,
            WaitReason::NOTHING if task.polls == 0 => TaskState::New,
            WaitReason::NOTHING => TaskState::Ready,
            WaitReason::WOKEN_WHILE_RUNNING => {
                clues.woken_by_itself(&task);
                TaskState::Ready
            }
            _ => TaskState::Waiting,
        };
        if let (TaskState::Waiting, Some(worker)) = (task.state, worker) {
            let reference = task.reference();
            let waits = &mut task.waits_for;
            waits.extend(self.sources.iter().filter_map(|wait| {
                let own = &shared.remote(worker.index).reactor;
                let found = shared.pool_reactors().chain([own]).find_map(|reactor| {
                    reactor.with_source(wait.token, |source| {
                        // Another reactor may have the same token for another source.
                        let is_it = ptr::from_ref(source).addr() == wait.source;
                        is_it.then(|| socket(source, wait, reference, clues))
                    })?
                });
                found.flatten()
            }));
            waits.extend(self.timers.into_iter().map(|due| Wait::Timer { due }));
            match Wait::of_reason(self.reason) {
                Some(wait) => waits.push(wait),
                None if waits.iter().all(Wait::is_unread) => waits.push(Wait::Elsewhere),
                None => {}
            }
        }
        task
    }
}

/// Replaces addresses of memory by numbers, in the order of the tasks.
fn number_addresses(tasks: &mut [TaskDump]) {
    let mut numbers = BTreeMap::new();
    for wait in tasks.iter_mut().flat_map(|task| &mut task.waits_for) {
        if let Wait::Event(address) | Wait::Latch(address) | Wait::TaskSet(address) = wait {
            let next = numbers.len() + 1;
            *address = *numbers.entry(*address).or_insert(next);
        }
    }
}

/// Returns `None` if the task was woken, and the source is not ready. The task may have read, and
/// wait again, so the source is checked again after the kernel was asked.
fn socket(
    source: &reactor::Source,
    wait: &SourceWait,
    task: TaskRef,
    clues: &mut Clues,
) -> Option<Wait> {
    let writes = wait.direction == Direction::Write;
    let mut ready_unread = false;
    if !wait.is_waiting {
        let is_readable = !writes && is_readable(source);
        ready_unread = !source.is_waited_with(wait.waker, wait.direction)?;
        if ready_unread && !is_readable {
            return None;
        }
    }
    let (kind, local, peer) = describe(source);
    let descriptor = source.number() as i64;
    if ready_unread {
        clues.unread(source, wait, task, descriptor, peer.clone());
    }
    Some(Wait::Socket {
        descriptor,
        kind,
        writes,
        local,
        peer,
        ready_unread,
    })
}

impl WorkerState {
    fn task(&self) -> Option<TaskRef> {
        match *self {
            WorkerState::Here { task } | WorkerState::Silent { task, .. } => task,
            _ => None,
        }
    }

    pub(super) fn write_json(&self, json: &mut Json<'_>) {
        let (state, since) = match *self {
            WorkerState::Parked { since } => ("parked", Some(since)),
            WorkerState::Awake => ("awake", None),
            WorkerState::Here { .. } => ("here", None),
            WorkerState::NotDriven => ("not driven", None),
            WorkerState::Silent { since, .. } => ("silent", Some(since)),
        };
        json.text("state", state);
        if let Some(since) = since {
            json.seconds("since", since);
        }
        if let Some(task) = self.task() {
            json.value("task", OrNull(task.id))
                .text("spawned_at", &task.spawned_at.to_string());
        }
    }
}

impl TaskState {
    pub(super) fn name(self) -> &'static str {
        match self {
            TaskState::New => "new",
            TaskState::Ready => "ready",
            TaskState::Running => "running",
            TaskState::Waiting => "waiting",
        }
    }
}

impl Wait {
    /// Returns `None` if no leaf future has recorded its wait.
    fn of_reason(word: u64) -> Option<Wait> {
        let which = word & ((1 << WaitReason::KIND) - 1);
        Some(match word >> WaitReason::KIND {
            2 => Wait::Event(which as usize),
            3 => Wait::Latch(which as usize),
            4 => Wait::Task(Id::from_u64(which)?),
            5 => Wait::TaskSet(which as usize),
            6 => Wait::Blocking,
            7 => Wait::Lookup,
            8 => {
                let all = 0..u64::BITS as i32;
                Wait::Signal(all.filter(|number| which >> number & 1 == 1).collect())
            }
            _ => return None,
        })
    }

    fn is_unread(&self) -> bool {
        matches!(self, Wait::Socket { ready_unread, .. } if *ready_unread)
    }

    /// Returns a description that is the same for all tasks that wait for the same kind of thing.
    fn summary(&self) -> String {
        match self {
            Wait::Socket {
                kind,
                writes,
                ready_unread,
                ..
            } => match (ready_unread, writes) {
                (true, _) => format!("does not read {kind}, which is readable"),
                (false, true) => format!("writes {kind}"),
                (false, false) => format!("reads {kind}"),
            },
            Wait::Timer { .. } => "timer".into(),
            Wait::Event(_) => "event".into(),
            Wait::Latch(_) => "latch".into(),
            Wait::Task(_) => "task".into(),
            Wait::TaskSet(_) => "task set".into(),
            Wait::Blocking => "blocking call".into(),
            Wait::Lookup => "name lookup".into(),
            Wait::Signal(_) => "signal".into(),
            Wait::Elsewhere => "elsewhere".into(),
        }
    }

    /// Returns a description without memory addresses, so that each run of a simulated world prints
    /// the same.
    #[cfg(feature = "kernel")]
    fn in_a_world(&self) -> String {
        match self {
            Wait::Socket { .. } => self.with_addresses(),
            Wait::Event(_) | Wait::Latch(_) | Wait::TaskSet(_) => self.summary(),
            Wait::Elsewhere => "elsewhere (another crate's channel or lock, another thread)".into(),
            _ => self.detail(),
        }
    }

    fn with_addresses(&self) -> String {
        let mut text = self.summary();
        if let Wait::Socket { local, peer, .. } = self {
            for (arrow, address) in [("", local), ("<-> ", peer)] {
                if let Some(address) = address {
                    let _ = write!(text, " {arrow}{}", Printable(address));
                }
            }
        }
        text
    }

    fn detail(&self) -> String {
        let summary = self.summary();
        match self {
            Wait::Socket { descriptor, .. } => {
                format!("{} (descriptor {descriptor})", self.with_addresses())
            }
            Wait::Timer { due } => match left_until(*due) {
                ("", left) => format!("{summary} due in {}", Brief(left)),
                (_, late) => format!("{summary} overdue by {}", Brief(late)),
            },
            Wait::Event(address) | Wait::Latch(address) | Wait::TaskSet(address) => {
                format!("{summary} {address:#x}")
            }
            Wait::Task(id) => format!("{summary} {id}"),
            Wait::Signal(numbers) => format!("{summary} {numbers:?}"),
            Wait::Blocking | Wait::Lookup | Wait::Elsewhere => summary,
        }
    }

    fn write_json(&self, out: &mut String) {
        let mut json = Json::object(out);
        match self {
            Wait::Socket { .. } => json.text("kind", "socket"),
            _ => json.text("kind", &self.summary()),
        };
        match self {
            Wait::Socket {
                descriptor,
                kind,
                writes,
                local,
                peer,
                ready_unread,
            } => {
                json.text("socket", kind)
                    .value("descriptor", descriptor)
                    .value("writes", writes)
                    .value("ready_unread", ready_unread);
                for (key, address) in [("local", local), ("peer", peer)] {
                    if let Some(address) = address {
                        json.text(key, address);
                    }
                }
            }
            Wait::Timer { due } => {
                let (sign, left) = left_until(*due);
                json.value("due_in", format_args!("{sign}{:.3}", Seconds(left)));
            }
            Wait::Event(address) | Wait::Latch(address) | Wait::TaskSet(address) => {
                json.text("address", &format!("{address:#x}"));
            }
            Wait::Task(id) => {
                json.value("id", id);
            }
            Wait::Signal(numbers) => {
                json.value("numbers", format_args!("{numbers:?}"));
            }
            Wait::Blocking | Wait::Lookup | Wait::Elsewhere => {}
        }
    }
}

/// Returns the time until `due`, or, with a minus sign, since.
fn left_until(due: Instant) -> (&'static str, Duration) {
    let now = now();
    match due.checked_duration_since(now) {
        Some(left) => ("", left),
        None => ("-", now - due),
    }
}

/// Escapes single characters: `str::escape_debug` would add 2 KB of code.
pub(super) struct Printable<'a>(pub(super) &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut characters = self.0.chars().flat_map(char::escape_debug);
        characters.try_for_each(|character| f.write_char(character))
    }
}

pub(super) struct Brief(pub(super) Duration);

impl fmt::Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            0 => write!(f, "{} ms", self.0.subsec_millis()),
            1..120 => write!(f, "{:.1} s", Seconds(self.0)),
            seconds @ 120..7_200 => write!(f, "{} min", seconds / 60),
            seconds => write!(f, "{} h", seconds / 3_600),
        }
    }
}

impl fmt::Display for TaskRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => write!(f, "task {id}, spawned at {}", self.spawned_at),
            None => write!(f, "block_on, called at {}", self.spawned_at),
        }
    }
}

impl fmt::Display for WorkerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkerState::Parked { since } => write!(f, "parked for at most {}", Brief(*since)),
            WorkerState::Awake => f.write_str("awake"),
            WorkerState::Here { task: Some(task) } => write!(f, "here, in {task}"),
            WorkerState::Here { task: None } => f.write_str("here"),
            WorkerState::NotDriven => {
                f.write_str("NOT DRIVEN: no call of `block_on`, `run` or `run_once` runs its tasks")
            }
            WorkerState::Silent { task, since } => {
                write!(f, "DOES NOT ANSWER, for at most {}: ", Brief(*since))?;
                match task {
                    Some(task) => write!(f, "it runs {task}"),
                    None => f.write_str("it is in a waker, a destructor or a hook"),
                }
            }
        }
    }
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The last worker of several is the main one, which runs no stealable task.
        let main = self.workers.len().saturating_sub(1);
        write!(f, "polder: {}", Count(main.max(1), "worker"))?;
        if main > 0 {
            f.write_str(" and the main one")?;
        }
        writeln!(
            f,
            ", {}, on {}, at {:.3} s of Unix time",
            Count(self.task_count(), "task"),
            self.backend,
            Seconds::of_unix(self.at)
        )?;
        for worker in &self.workers {
            let of_main = if main > 0 && worker.index == main {
                " (main)"
            } else {
                ""
            };
            writeln!(
                f,
                "worker {}{of_main}: {}; owns {}, {}",
                worker.index,
                worker.state,
                Count(worker.tasks, "task"),
                Count(worker.sources, "source")
            )?;
        }
        if self.open_sockets != OpenSockets::default() {
            writeln!(f, "open in this process: {}", self.open_sockets)?;
        }
        for group in self.groups() {
            let first = group.tasks[0];
            write!(f, "  {first}")?;
            let Some(last) = group.tasks.last().filter(|_| group.tasks.len() > 1) else {
                continue;
            };
            write!(
                f,
                "    and {} more there, {}",
                group.tasks.len() - 1,
                first.state.name()
            )?;
            if !group.waits.is_empty() {
                write!(f, " for: {}", group.waits)?;
            }
            writeln!(
                f,
                " (the last is {}; not polled for at most {})",
                last.title(),
                Brief(group.idle())
            )?;
        }
        if self.unreported > 0 {
            writeln!(
                f,
                "  {} not reported: of a worker that does not answer or is not driven, or on the way",
                Count(self.unreported, "task")
            )?;
        }
        for hint in &self.hints {
            writeln!(f, "hint: {hint}")?;
        }
        Ok(())
    }
}

pub(super) struct Count(pub(super) usize, pub(super) &'static str);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0 == 1 { "" } else { "s" };
        write!(f, "{} {}{plural}", self.0, self.1)
    }
}

impl TaskDump {
    fn write_json(&self, out: &mut String) {
        let mut json = Json::object(out);
        json.value("id", OrNull(self.id));
        if let Some(name) = &self.name {
            json.text("name", name);
        }
        json.text("spawned_at", &self.spawned_at.to_string());
        if let Some(worker) = self.worker {
            json.value("worker", worker);
        }
        json.seconds("age", self.age)
            .text("state", self.state.name())
            .value("polls", self.polls)
            .seconds("last_polled", self.last_polled)
            .list_of("waits_for", &self.waits_for, Wait::write_json);
    }

    pub(super) fn reference(&self) -> TaskRef {
        TaskRef {
            id: self.id,
            spawned_at: self.spawned_at,
        }
    }

    fn title(&self) -> String {
        let Some(id) = self.id else {
            return "block_on".into();
        };
        match &self.name {
            Some(name) => format!("task {id} \"{}\"", Printable(name)),
            None => format!("task {id}"),
        }
    }
}

/// Two lines: the task, and what it waits for.
impl fmt::Display for TaskDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.id.is_some() {
            "spawned"
        } else {
            "called"
        };
        let times = Count(self.polls as usize, "poll");
        write!(f, "{}, {verb} at {}", self.title(), self.spawned_at)?;
        write!(f, ", at most {} old, {times}", Brief(self.age))?;
        if self.polls > 0 {
            write!(f, ", last at most {} ago", Brief(self.last_polled))?;
        }
        if let Some(worker) = self.worker {
            write!(f, ", on worker {worker}")?;
        }
        write!(f, "\n    {}", self.state.name())?;
        for (index, wait) in self.waits_for.iter().enumerate() {
            let link = if index == 0 { " for: " } else { "; " };
            write!(f, "{link}{}", wait.detail())?;
        }
        f.write_str("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_is_what_it_was_when_it_is_read() {
        let address = usize::MAX >> 8;
        let reasons = [
            (WaitReason::Event(address), Wait::Event(address)),
            (WaitReason::Latch(8), Wait::Latch(8)),
            (
                WaitReason::Task(1 << 50),
                Wait::Task(Id::from_u64(1 << 50).unwrap()),
            ),
            (WaitReason::TaskSet(16), Wait::TaskSet(16)),
            #[cfg(feature = "blocking")]
            (WaitReason::Blocking, Wait::Blocking),
            #[cfg(feature = "net")]
            (WaitReason::Lookup, Wait::Lookup),
            #[cfg(feature = "signal")]
            (
                WaitReason::Signal(1 << 2 | 1 << 15),
                Wait::Signal(vec![2, 15]),
            ),
        ];
        for (reason, wait) in reasons {
            assert_eq!(Wait::of_reason(reason.encode()), Some(wait));
        }
        for word in [
            WaitReason::NOTHING,
            WaitReason::UNKNOWN,
            WaitReason::WOKEN_WHILE_RUNNING,
        ] {
            assert_eq!(Wait::of_reason(word), None);
        }
    }
}
