//! The report of `POLDER_TOP` on the runtimes of the process, as one line of JSON: see `top`.
//!
//! It stays small: tasks are grouped by spawn site and wait, and the rest is limited. A reader
//! cannot compute a group's polls between two lines, so each task's polls are remembered while
//! there are readers: see [`recent_polls`]. Readers should ignore unknown members.

use std::borrow::Cow;
use std::time::{Duration, Instant, SystemTime};

use super::dump::Group;
use super::environment::open_runtimes;
use super::json::Json;
use super::sorted_index::SortedIndex;
use super::top::LineSource;
use super::{Dump, Metrics, OpenSockets, TaskDump};
use crate::scheduler::Shared;
use crate::task::Name;

/// Incremented when a reader of older lines would be misled.
const VERSION: u32 = 1;

/// The oldest ones are reported. polder-top refuses a line that exceeds these limits of runtimes,
/// groups, hints, workers or buckets.
const MAX_RUNTIMES: usize = 64;

/// No runtime is added to a longer line. A runtime takes at most 2 MiB (a thousand workers of 900
/// bytes, 200 groups with long names), and polder-top refuses a line of 4 MiB.
const MAX_BYTES: usize = 2 << 20;

/// Those with the most tasks, at about 250 bytes each.
const MAX_GROUPS: usize = 200;

const MAX_HINTS: usize = 20;

/// A hint may list each task of a long cycle.
const MAX_TEXT: usize = 400;

/// How much older than it is a task may seem whose spawner has answered for the last line: times of
/// tasks are kept in units of 1/64 s (`clock::jiffy`).
const AGE_ERROR: Duration = Duration::from_millis(20);

pub(super) struct Lines {
    start: Instant,
    last: Vec<Last>,
}

struct Last {
    number: usize,
    at: Instant,
    /// The number of polls of each task, by id.
    polls: Vec<(u64, u32)>,
}

impl Lines {
    pub(super) fn new() -> Lines {
        Lines {
            start: Instant::now(),
            last: Vec::new(),
        }
    }
}

impl LineSource for Lines {
    fn forget(&mut self) {
        self.last.clear();
    }

    fn line(&mut self, interval: impl Fn() -> Duration) -> String {
        let runtimes = open_runtimes();
        let mut out = String::new();
        let mut json = Json::object(&mut out);
        let program = std::env::args_os().next().unwrap_or_default();
        let program = std::path::Path::new(&program).file_name();
        let program = program.unwrap_or_default().to_string_lossy();
        json.value("polder_top", VERSION)
            .value("process", std::process::id())
            .text("program", &short(&program))
            .at(SystemTime::now())
            .seconds("uptime", self.start.elapsed());
        // Simulated runtimes have none of the process's sockets.
        let open = runtimes.iter().map(|(_, runtime)| OpenSockets::of(runtime));
        if let Some(open) = open.max_by_key(|open| *open != OpenSockets::default()) {
            open.write_json(json.key("open_sockets"));
        }
        let mut last = std::mem::take(&mut self.last);
        let (mut written, mut bytes) = (0, 0);
        let mut list = Json::list(json.key("runtimes"));
        for (number, runtime) in runtimes.iter().take(MAX_RUNTIMES) {
            if bytes > MAX_BYTES {
                break;
            }
            let out = list.next();
            let before = last.iter().position(|last| last.number == *number);
            let before = before.map(|place| last.swap_remove(place));
            (self.last).push(write_runtime(out, *number, runtime, before.as_ref()));
            bytes = out.len();
            written += 1;
        }
        drop(list);
        // Runtimes that were left out may be in the next line.
        last.retain(|last| runtimes.iter().any(|(number, _)| *number == last.number));
        self.last.append(&mut last);
        let left_out = runtimes.len() - written;
        if left_out > 0 {
            json.value("runtimes_left_out", left_out);
        }
        json.seconds("interval", interval());
        drop(json);
        out.push('\n');
        out
    }
}

/// Returns its values. `before` has those of the last line.
fn write_runtime(out: &mut String, number: usize, runtime: &Shared, before: Option<&Last>) -> Last {
    let at = Instant::now();
    let dump = Dump::of(runtime, &[]);
    // A worker may have answered late: by then its tasks are older.
    let end = Instant::now();
    let metrics = Metrics::of(runtime);
    let mut json = Json::object(out);
    json.value("number", number)
        .text("backend", metrics.backend.name())
        .value("tasks", metrics.tasks)
        .value("spawned", metrics.spawned)
        .value("ended", metrics.ended)
        .value("injected", metrics.injected)
        .value("unreported", dump.unreported);
    if let Some(before) = before {
        json.seconds("within", at - before.at);
    }
    let before = before.map(|before| (&before.polls[..], end - before.at));
    let workers = dump.workers.iter().zip(&metrics.workers);
    json.list_of("workers", workers, |(worker, numbers), out| {
        let mut json = Json::object(out);
        worker.state.write_json(&mut json);
        numbers.write_json(json.key("metrics"));
    });
    let groups = dump.groups();
    // The largest first; equal ones in the order of the dump.
    let smallness = |group: &Group<'_>| u64::MAX - group.tasks.len() as u64;
    let order = SortedIndex::places(groups.iter().map(smallness));
    let mut order = order.iter().map(|(_, place)| &groups[*place as usize]);
    json.list_of("groups", order.by_ref().take(MAX_GROUPS), |group, out| {
        write_group(out, group, before);
    });
    let tasks: usize = order.map(|group| group.tasks.len()).sum();
    Json::object(json.key("left_out"))
        .value("groups", groups.len().saturating_sub(MAX_GROUPS))
        .value("tasks", tasks)
        .value("hints", dump.hints.len().saturating_sub(MAX_HINTS));
    json.list_of("hints", dump.hints.iter().take(MAX_HINTS), |hint, out| {
        Json::object(out)
            .text("kind", hint.kind())
            .text("text", &short(&hint.to_string()));
    });
    // Tasks are sorted by id.
    let polls = dump
        .tasks
        .iter()
        .map(|task| (id(task), task.polls))
        .collect();
    Last { number, at, polls }
}

/// Returns 0 for a future of `block_on`, of which there is usually one.
fn id(task: &TaskDump) -> u64 {
    task.id.map_or(0, |id| id.as_u64())
}

/// `before` has the polls of the last line, and an upper limit of the time since then.
fn write_group(out: &mut String, group: &Group<'_>, before: Option<(&[(u64, u32)], Duration)>) {
    let first = group.tasks[0];
    let mut json = Json::object(out);
    json.text("spawned_at", &first.spawned_at.to_string());
    if first.id.is_none() {
        json.value("block_on", true);
    }
    let tasks = || group.tasks.iter();
    // Written if all its tasks have the same name.
    let is_common = |name: &&Name| tasks().all(|task| task.name.as_ref() == Some(*name));
    if let Some(name) = first.name.as_ref().filter(is_common) {
        json.text("name", &short(name));
    }
    json.text("state", first.state.name())
        .text("waits_for", &short(&group.waits));
    let age = tasks().map(|task| task.age).max().unwrap_or_default();
    let last_polled = tasks().filter(|task| task.polls > 0);
    let last_polled = last_polled.map(|task| task.last_polled).min();
    let polls: u64 = tasks().map(|task| u64::from(task.polls)).sum();
    json.value("tasks", group.tasks.len())
        .value("polls", polls)
        .seconds("oldest", age)
        .seconds("idle", group.idle());
    if let Some(ago) = last_polled {
        json.seconds("last_polled", ago);
    }
    if let Some((before, within)) = before {
        let polls = tasks().map(|task| u64::from(recent_polls(task, before, within)));
        json.value("recent_polls", polls.sum::<u64>());
    }
}

/// Returns the number of a task's polls since the last line, at most `within` ago. Zero if it is
/// unknown: the task is older than that line, which lacked it, since its worker did not answer, or
/// was not driven.
fn recent_polls(task: &TaskDump, before: &[(u64, u32)], within: Duration) -> u32 {
    let is_new = task.age <= within + AGE_ERROR;
    let known = before.binary_search_by_key(&id(task), |(id, _)| *id);
    let earlier = known.ok().map(|place| before[place].1);
    match (task.id, earlier) {
        (Some(_), Some(earlier)) => task.polls.wrapping_sub(earlier),
        // It has no id, and may be another future of `block_on` than the one in that line.
        (None, Some(earlier)) if !is_new => task.polls.saturating_sub(earlier),
        _ if is_new => task.polls,
        _ => 0,
    }
}

fn short(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::super::TaskState;
    use super::*;
    use crate::task::Id;

    fn task(id: Option<u64>, age: u64, polls: u32) -> TaskDump {
        TaskDump {
            id: id.and_then(Id::from_u64),
            name: None,
            spawned_at: Location::caller(),
            age: Duration::from_secs(age),
            worker: Some(0),
            state: TaskState::Ready,
            waits_for: Vec::new(),
            polls,
            last_polled: Duration::ZERO,
        }
    }

    fn recent(task: &TaskDump, before: &[(u64, u32)]) -> u64 {
        let group = Group {
            waits: String::new(),
            tasks: vec![task],
        };
        let mut out = String::new();
        write_group(&mut out, &group, Some((before, Duration::from_secs(1))));
        let (_, polls) = out.split_once("\"recent_polls\":").expect("it is written");
        polls.trim_end_matches('}').parse().expect("a number")
    }

    #[test]
    fn recent_polls_are_those_since_the_last_line() {
        let before = [(3, 7), (5, u32::MAX)];
        assert_eq!(recent(&task(Some(3), 60, 9), &before), 2);
        assert_eq!(recent(&task(Some(5), 60, 1), &before), 2, "it wraps");
        assert_eq!(recent(&task(Some(9), 1, 4), &before), 4, "it is new");
    }

    /// A task that the last line lacked, since its worker did not answer, is not new.
    #[test]
    fn unreported_task_does_not_count_its_life() {
        assert_eq!(recent(&task(Some(9), 60, 1_000_000), &[(3, 7)]), 0);
    }

    /// The next future of `block_on` is not compared with the one before.
    #[test]
    fn next_block_on_counts_its_own_polls() {
        let before = [(0, 1_000), (3, 7)];
        assert_eq!(recent(&task(None, 60, 1_002), &before), 2);
        assert_eq!(recent(&task(None, 1, 3), &before), 3);
        // One of two.
        assert_eq!(recent(&task(None, 60, 5), &before), 0);
    }
}
