//! Traces: the latest events of a runtime, as a file for trace viewers.
//!
//! The events are read from the rings of `telemetry::trace` while the workers run. The format
//! is Chromium's "Trace Event Format", which Perfetto reads. Kinds (`ph`): X is a slice with a
//! duration, i an instant, s and f are the ends of an arrow, b and e those of overlapping events.
//! `ts` and `dur` are in microseconds. Arrows begin and end on slices, so a wake outside of any
//! poll gets a short slice.

use std::fmt::{self, Display};
use std::time::{Duration, SystemTime};

use super::dump::Count;
use super::json::Json;
use super::seconds::Seconds;
use super::sorted_index::SortedIndex;
use crate::clock::now;
use crate::scheduler::Shared;
use crate::task::Name;
use crate::telemetry::{Event, MAIN_FUTURE, Mark, Ring, Traced};

/// The latest events of a runtime, from [`Runtime::trace`](crate::Runtime::trace): of its workers,
/// of other threads that wake and spawn its tasks, and of calls of [`unblock`](crate::unblock).
///
/// ```
/// let runtime = polder::Runtime::builder().trace_capacity(1_000).build()?;
/// runtime.block_on(runtime.spawn(async {}));
///
/// let trace = runtime.trace().unwrap();
/// assert!(trace.json().contains(r#""cat":"poll""#));
/// println!("{trace}"); // 9 events of 1 worker, within 97.3µs
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct Trace {
    began: SystemTime,
    /// The time at which it was taken, on the clock of its events.
    taken: Duration,
    /// One for each worker, and the last one for other threads.
    tracks: Vec<Track>,
    names: Vec<Name>,
    /// The index into `names`, by task id.
    name_of: SortedIndex,
}

#[derive(Clone, Debug)]
struct Track {
    name: String,
    events: Vec<Event>,
    /// The number of earlier events that are lost.
    lost: u64,
}

impl Track {
    fn new(name: String, ring: &Ring) -> Track {
        let (events, lost) = ring.events();
        Track { name, events, lost }
    }
}

impl Trace {
    /// Returns `None` if the runtime is not traced.
    pub(crate) fn of(shared: &Shared) -> Option<Trace> {
        let log = shared.trace.as_ref()?;
        let remotes = shared.remotes().iter();
        let rings = remotes.filter_map(|remote| remote.counters.trace());
        let mut tracks: Vec<Track> = (rings.enumerate())
            .map(|(index, ring)| Track::new(format!("worker {index}"), ring))
            .collect();
        tracks.push(Track::new("other threads".into(), &log.others));
        let (ids, names): (Vec<u64>, Vec<Name>) = log.names().into_iter().unzip();
        Some(Trace {
            began: log.start_time,
            taken: now().saturating_duration_since(log.start),
            tracks,
            name_of: SortedIndex::places(ids.into_iter()),
            names,
        })
    }

    /// Returns the trace as JSON for trace viewers, such as <https://ui.perfetto.dev>. Each worker
    /// has a track, and each poll a slice, named after the spawn site. An arrow leads from each
    /// wake to the next poll, unless that may be lost. Unprintable text is escaped.
    ///
    /// ```
    /// let runtime = polder::Runtime::builder().trace_capacity(10_000).build()?;
    /// runtime.block_on(async { /* … */ });
    /// let json = runtime.trace().unwrap().json();
    /// assert!(json.starts_with('{')); // std::fs::write("trace.json", json)
    /// # std::io::Result::Ok(())
    /// ```
    pub fn json(&self) -> String {
        let mut out = String::new();
        let mut json = Json::object(&mut out);
        Json::object(json.key("otherData"))
            .text("polder", env!("CARGO_PKG_VERSION"))
            .value("began", format_args!("{:.6}", Seconds::of_unix(self.began)));
        Writer {
            events: Json::list(json.key("traceEvents")),
            trace: self,
            polls: Polls::of(&self.tracks),
            arrows: 0,
        }
        .write();
        drop(json);
        out.push('\n');
        out
    }

    fn args(&self, event: &mut Json<'_>, (id, site): Traced) {
        let mut args = Json::object(event.key("args"));
        if id != MAIN_FUTURE {
            args.value("task", id);
        }
        if let Some(place) = self.name_of.get(id) {
            args.text("name", &self.names[place as usize]);
        }
        args.text("spawned_at", &site.to_string());
    }
}

struct Polls {
    /// The task, the start and the track of each, sorted.
    all: Vec<(u64, Duration, usize)>,
    /// No poll since then is lost. The ring of a busy worker goes back less far than others.
    complete_from: Duration,
}

impl Polls {
    fn of(tracks: &[Track]) -> Polls {
        let mut all = Vec::new();
        for (index, track) in tracks.iter().enumerate() {
            for event in &track.events {
                if let Mark::PollBegins((id, _)) = event.what {
                    all.push((id, event.at, index));
                }
            }
        }
        // The last track's threads poll nothing.
        let with_gaps = tracks[..tracks.len() - 1]
            .iter()
            .filter(|track| track.lost > 0);
        let firsts = with_gaps.filter_map(|track| track.events.first());
        let complete_from = firsts.map(|first| first.at).max().unwrap_or_default();
        all.sort_unstable();
        Polls { all, complete_from }
    }

    /// Returns `None` if the poll may be lost.
    fn next(&self, task: u64, at: Duration) -> Option<(Duration, usize)> {
        let next = (self.all).partition_point(|(id, began, _)| (*id, *began) < (task, at));
        let (id, began, track) = *self.all.get(next)?;
        (id == task && at >= self.complete_from).then_some((began, track))
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |of: fn(&Track) -> usize| self.tracks.iter().map(of).sum::<usize>();
        let first = self.tracks.iter().filter_map(|track| track.events.first());
        let first = first.map(|event| event.at).min().unwrap_or(self.taken);
        write!(
            f,
            "{} of {}, within {:.1?}",
            Count(count(|track| track.events.len()), "event"),
            Count(self.tracks.len() - 1, "worker"),
            self.taken.saturating_sub(first),
        )?;
        match count(|track| track.lost as usize) {
            0 => Ok(()),
            lost => write!(f, "; {} before", Count(lost, "event")),
        }
    }
}

const WAKE_LENGTH: Duration = Duration::from_micros(1);

struct Writer<'a> {
    events: Json<'a>,
    trace: &'a Trace,
    polls: Polls,
    arrows: u64,
}

enum Open {
    Poll(Duration, Traced),
    Sleep(Duration),
}

impl Writer<'_> {
    fn write(mut self) {
        let trace = self.trace;
        let mut process = self.begin("M", "process_name", 0, None);
        Json::object(process.key("args")).text("name", "polder");
        drop(process);
        for (index, track) in trace.tracks.iter().enumerate() {
            let mut thread = self.begin("M", "thread_name", index, None);
            Json::object(thread.key("args"))
                .text("name", &track.name)
                .value("events_before", track.lost);
        }
        for (index, track) in trace.tracks.iter().enumerate() {
            self.write_track(index, track);
        }
        self.events.new_line();
    }

    fn write_track(&mut self, index: usize, track: &Track) {
        let mut open = Vec::new();
        for (place, event) in track.events.iter().enumerate() {
            let at = event.at;
            match event.what {
                Mark::PollBegins(task) => open.push(Open::Poll(at, task)),
                Mark::PollEnds(id) => self.end_poll(index, &mut open, id, at),
                Mark::Sleeps => open.push(Open::Sleep(at)),
                Mark::Awakes => self.end_sleep(index, &mut open, at),
                Mark::Ready(descriptor) => {
                    // The wait has returned it, so the worker no longer sleeps.
                    self.end_sleep(index, &mut open, at);
                    self.instant("ready", index, at, "fd", descriptor);
                }
                Mark::TimerFired(late) => self.instant("timer", index, at, "late_us", micros(late)),
                Mark::Ended(id) => self.instant("ended", index, at, "task", id),
                Mark::Spawned((id, _)) | Mark::Woken(id) => {
                    let name = match event.what {
                        Mark::Woken(_) => "wake",
                        _ => "spawn",
                    };
                    if open.is_empty() {
                        let next = track.events.get(place + 1).map_or(at, |next| next.at);
                        let length = next.saturating_sub(at).min(WAKE_LENGTH);
                        let mut slice = self.slice(index, name, "wake", at, at + length);
                        Json::object(slice.key("args")).value("task", id);
                    }
                    self.arrow(index, name, id, at);
                }
                Mark::CallBegins(call) => {
                    let trace = self.trace;
                    trace.args(&mut self.call("b", index, call.0, at), call);
                }
                Mark::CallEnds(id) => drop(self.call("e", index, id, at)),
            }
        }
        // Unfinished slices end when the trace was taken.
        while let Some(slice) = open.pop() {
            self.end(index, slice, self.trace.taken);
        }
    }

    /// Ends a task's poll, and every slice within it without a recorded end.
    fn end_poll(&mut self, track: usize, open: &mut Vec<Open>, id: u64, at: Duration) {
        let is_it = |slice: &Open| matches!(slice, Open::Poll(_, task) if task.0 == id);
        let Some(place) = open.iter().rposition(is_it) else {
            return; // Its beginning was lost.
        };
        for slice in open.drain(place..) {
            self.end(track, slice, at);
        }
    }

    fn end_sleep(&mut self, track: usize, open: &mut Vec<Open>, at: Duration) {
        if let Some(&Open::Sleep(start)) = open.last() {
            open.pop();
            self.end(track, Open::Sleep(start), at);
        }
    }

    fn end(&mut self, track: usize, slice: Open, at: Duration) {
        match slice {
            Open::Poll(start, task) => {
                let name = match task {
                    (MAIN_FUTURE, site) => format!("block_on {}:{}", site.file(), site.line()),
                    (_, site) => format!("{}:{}", site.file(), site.line()),
                };
                let trace = self.trace;
                trace.args(&mut self.slice(track, &name, "poll", start, at), task);
            }
            Open::Sleep(start) => drop(self.slice(track, "sleep", "sleep", start, at)),
        }
    }

    fn call(&mut self, ph: &str, track: usize, id: u64, at: Duration) -> Json<'_> {
        let mut call = self.begin(ph, "unblock", track, Some(at));
        call.text("cat", "unblock").value("id", id);
        call
    }

    fn arrow(&mut self, track: usize, name: &str, task: u64, at: Duration) {
        let Some((poll, other_track)) = self.polls.next(task, at) else {
            return;
        };
        self.arrows += 1;
        let id = self.arrows;
        self.begin("s", name, track, Some(at))
            .text("cat", "wake")
            .value("id", id);
        self.begin("f", name, other_track, Some(poll))
            .text("cat", "wake")
            .value("id", id)
            .text("bp", "e");
    }

    fn instant(&mut self, name: &str, track: usize, at: Duration, key: &str, value: impl Display) {
        let mut instant = self.begin("i", name, track, Some(at));
        instant.text("s", "t");
        Json::object(instant.key("args")).value(key, value);
    }

    fn slice(
        &mut self,
        track: usize,
        name: &str,
        category: &str,
        start: Duration,
        end: Duration,
    ) -> Json<'_> {
        let mut slice = self.begin("X", name, track, Some(start));
        slice
            .value("dur", micros(end.saturating_sub(start)))
            .text("cat", category);
        slice
    }

    fn begin(&mut self, ph: &str, name: &str, track: usize, at: Option<Duration>) -> Json<'_> {
        let out = self.events.next();
        out.push('\n');
        let mut event = Json::object(out);
        event
            .text("ph", ph)
            .text("name", name)
            .value("pid", 1)
            .value("tid", track + 1);
        if let Some(at) = at {
            event.value("ts", micros(at));
        }
        event
    }
}

/// The start of every trace file; other files are not overwritten.
pub(super) const FIRST_WORDS: &str = "{\"otherData\":{\"polder\":\"";

/// Microseconds, as the seconds of a duration that is a million times as long.
fn micros(duration: Duration) -> Seconds {
    Seconds(duration * 1_000_000)
}
