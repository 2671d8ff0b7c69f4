//! Pictures of a failed run: a page with a diagram, and a trace for Perfetto.
//!
//! The page is one file, and needs no script and no network. Time goes down, hosts are lanes, and
//! messages are slanted lines; those that are lost end in a cross. Cuts are bands between lanes,
//! and a host that is down or paused has a band on its own lane. The last moments come first, so
//! the failing moment is in view. Time is not drawn to scale: periods without events are short.
//!
//! The constants below bound everything. All text is escaped, since names and messages are the
//! program's own. Only integers are used, so a run has the same picture everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, io, iter};

use crate::diagnostics::json::Json;
use crate::diagnostics::{Events, Micros};
use crate::world::faults::Fault;
use crate::world::trace::{Message, Recording, Seconds, Trace, What};

/// The contents of a picture.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    /// The line with the failure.
    pub(super) head: String,
    pub(super) hosts: Vec<String>,
    pub(super) recording: Recording,
    pub(super) faults: Vec<Fault>,
    /// Time of the failure.
    pub(super) end: u64,
    /// Time at which the run ended.
    pub(super) last: u64,
}

/// Maximum number of items in the first diagram, which fits on a screen.
const FEW: usize = 60;

/// Maximum number of items in the second diagram, which a browser shows without delay.
const MANY: usize = 2_000;

/// Maximum number of hosts with lanes.
const MAX_HOSTS: usize = 40;

/// Maximum number of characters of a file's name that come from the test's name.
const LONGEST_NAME: usize = 120;

/// Position of the first lane, and distance between lanes.
const FIRST_LANE: usize = 170;
const LANE: usize = 170;

/// Half the width of the bands on a lane.
const HALF: usize = 22;

/// Writes both files, and returns their paths.
pub(super) fn write(scene: &Scene, name: &str) -> io::Result<(PathBuf, PathBuf)> {
    let folder = folder();
    fs::create_dir_all(&folder)?;
    let name = file_name(name);
    let html_path = folder.join(format!("{name}.html"));
    let json_path = folder.join(format!("{name}.json"));
    fs::write(&html_path, html(scene, &name))?;
    fs::write(&json_path, json(scene))?;
    Ok((html_path, json_path))
}

/// Returns the folder `sim`, in the folder in which Cargo builds.
fn folder() -> PathBuf {
    let variable = |name| {
        env::var_os(name)
            .filter(|it| !it.is_empty())
            .map(PathBuf::from)
    };
    // Cargo's build folder has such a file.
    let around_the_program = || {
        let program = env::current_exe().ok()?;
        let mut folders = program.ancestors().skip(1);
        let target = folders.find(|it| it.join("CACHEDIR.TAG").is_file());
        target.map(Path::to_owned)
    };
    let target = variable("CARGO_TARGET_TMPDIR")
        .or_else(|| variable("CARGO_TARGET_DIR"))
        .or_else(around_the_program)
        .unwrap_or_else(|| "target".into());
    target.join("sim")
}

fn file_name(test: &str) -> String {
    let plain = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' => letter,
        _ => '_',
    };
    let name: String = test.chars().map(plain).take(LONGEST_NAME).collect();
    if name.is_empty() { "test".into() } else { name }
}

/// Escapes text for a page. Characters that a page must not contain are replaced.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            '\n' | '\t' => escaped.push(letter),
            _ if letter.is_control() => escaped.push('\u{fffd}'),
            _ => escaped.push(letter),
        }
    }
    escaped
}

const STYLE: &str = "\
body{font:14px sans-serif;margin:16px;color:#222}
pre{background:#f6f6f6;padding:8px;overflow-x:auto}
svg{background:#fff;border:1px solid #ddd}
text{font:11px sans-serif;fill:#333}
.lane{stroke:#bbb}.name{font-weight:bold;text-anchor:middle}
.m{stroke:#2a6db0;stroke-width:1.2}.lost{stroke:#c22;stroke-width:1.4}
.cut{fill:#d33;opacity:.10}.hold{fill:#2a6db0;opacity:.12}.slow{fill:#7a4;opacity:.15}
.down{fill:#999;opacity:.35}.pause{fill:#e8b500;opacity:.3}
.poll{fill:#2a6db0}.mark{fill:#555}.fault{fill:#c22}.faultno{fill:#fff;text-anchor:middle;font-size:9px}
.fail{stroke:#c22;stroke-width:2}.failtext{fill:#c22;font-weight:bold}.time{fill:#888}
";

fn html(scene: &Scene, name: &str) -> String {
    let mut page = String::new();
    let title = escape(name);
    let head = escape(scene.head.trim_end());
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"/><title>{title}</title>\n\
         <style>{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n<pre>{head}</pre>\n\
         <p>Time goes down, and is short where nothing happens. Lines are messages; red ones are \
         lost. Red bands: cut; blue: held; green: slow; grey: no process; yellow: paused; \
         numbers: faults.</p>\n\
         <h2>The last moments</h2>\n"
    );
    page += &Diagram::new(scene, FEW, scene.end).draw();
    page += "<h2>Faults</h2>\n<ol>\n";
    for fault in scene.faults.iter().take(MANY) {
        let _ = writeln!(
            page,
            "<li>{}</li>",
            escape(&fault.describe(|it| scene.name(it)))
        );
    }
    page += "</ol>\n<h2>The run</h2>\n";
    page += &Diagram::new(scene, MANY, scene.last).draw();
    page += "</body>\n</html>\n";
    page
}

impl Scene {
    fn name(&self, host: usize) -> &str {
        self.hosts.get(host).map_or("nobody", String::as_str)
    }

    /// Describes an event.
    fn words(&self, event: &(u64, usize, What)) -> String {
        let line = Trace::describe(iter::once(event), |it| self.name(it));
        let words = line.split_once(": ").map_or(line.as_str(), |it| it.1);
        words.trim_end().to_owned()
    }
}

/// A state that lasts, of one lane or between two.
struct Band {
    class: &'static str,
    hosts: (usize, usize),
    from: u64,
    to: u64,
}

/// Returns the cuts, holds and slow links, and the times at which hosts were down or paused.
fn bands(scene: &Scene) -> Vec<Band> {
    let mut open: BTreeMap<(&'static str, usize, usize), (u64, u32)> = BTreeMap::new();
    let mut bands = Vec::new();
    let mut close = |key: (&'static str, usize, usize), from: u64, to: u64| {
        bands.push(Band {
            class: key.0,
            hosts: (key.1, key.2),
            from,
            to,
        });
    };
    for (at, host, what) in &scene.recording.events {
        let (at, host) = (*at, *host);
        let (key, begins) = match *what {
            What::Cut(to) => (("cut", host, to), true),
            What::Healed(to) => (("cut", host, to), false),
            What::Held(to) => (("hold", host, to), true),
            What::Released(to) => (("hold", host, to), false),
            What::Slow(to) => (("slow", host, to), true),
            What::Fast(to) => (("slow", host, to), false),
            What::Killed | What::PoweredOff | What::Ended => (("down", host, host), true),
            What::Started => (("down", host, host), false),
            What::Paused => (("pause", host, host), true),
            What::Resumed => (("pause", host, host), false),
            What::Quiet => {
                let all = std::mem::take(&mut open).into_iter();
                let (left, ended): (_, BTreeMap<_, _>) = all.partition(|it| it.0.0 == "down");
                open = left;
                for (key, (from, _)) in ended {
                    close(key, from, at);
                }
                continue;
            }
            _ => continue,
        };
        if begins {
            open.entry(key).or_insert((at, 0)).1 += 1;
        } else if let Some((from, count)) = open.get_mut(&key) {
            *count -= 1;
            if *count == 0 || key.0 == "down" {
                close(key, *from, at);
                open.remove(&key);
            }
        }
    }
    for (key, (from, _)) in open {
        close(key, from, scene.last);
    }
    bands
}

/// The last part of a scene, with a position for each of its moments.
struct Diagram<'a> {
    scene: &'a Scene,
    messages: Vec<&'a Message>,
    events: Vec<&'a (u64, usize, What)>,
    faults: Vec<(usize, &'a Fault)>,
    bands: Vec<Band>,
    /// Positions of the moments.
    places: Vec<(u64, usize)>,
}

/// Returns whether an event has its own mark: others are lines and bands.
fn has_mark(what: &What) -> bool {
    !matches!(
        what,
        What::Segment(..)
            | What::Lost(..)
            | What::Cut(_)
            | What::Healed(_)
            | What::Held(_)
            | What::Released(_)
            | What::Slow(_)
            | What::Fast(_)
    )
}

impl<'a> Diagram<'a> {
    /// Returns the diagram of the last `most` items until `end`.
    fn new(scene: &'a Scene, most: usize, end: u64) -> Diagram<'a> {
        let lanes = scene.hosts.len().min(MAX_HOSTS);
        let messages = scene.recording.messages.iter();
        let messages = messages
            .filter(|it| it.from < lanes && it.to < lanes && it.from != it.to && it.at <= end);
        let events = scene.recording.events.iter();
        let events =
            events.filter(|(at, host, what)| *host < lanes && *at <= end && has_mark(what));
        let mut times: Vec<u64> = messages.clone().map(|it| it.at).collect();
        times.extend(events.clone().map(|it| it.0));
        times.sort_unstable();
        let start = times[times.len().saturating_sub(most)..].first();
        let start = start.copied().unwrap_or(0);
        let messages: Vec<_> = messages.filter(|it| it.at >= start).collect();
        let events: Vec<_> = events.filter(|it| it.0 >= start).collect();
        let faults = scene.faults.iter().enumerate();
        let faults: Vec<_> = faults
            .filter(|(_, it)| (start..=end).contains(&it.at))
            .collect();
        let bands = bands(scene).into_iter();
        let bands: Vec<_> = bands
            .filter(|it| it.to >= start && it.from <= end)
            .filter(|it| it.hosts.0 < lanes && it.hosts.1 < lanes)
            .collect();
        let mut moments: BTreeSet<u64> = [start, scene.end, end].into();
        moments.extend(messages.iter().flat_map(|it| [it.sent, it.at]));
        moments.extend(events.iter().map(|it| it.0));
        moments.extend(faults.iter().map(|(_, it)| it.at));
        moments.extend(bands.iter().flat_map(|it| [it.from, it.to]));
        let (mut y, mut before) = (40, start);
        let places = moments.range(start..=end).map(|at| {
            // An instant takes little space, and a long time not much more.
            let passed = (at - before) / 1_000;
            if *at > before {
                y += 6 + 2 * (u64::BITS - passed.leading_zeros()) as usize / 3;
            }
            before = *at;
            (*at, y)
        });
        Diagram {
            places: places.collect(),
            scene,
            messages,
            events,
            faults,
            bands,
        }
    }

    /// Returns the position of a moment; an earlier one is at the first position.
    fn y(&self, at: u64) -> usize {
        let index = self.places.partition_point(|it| it.0 <= at);
        self.places[index.saturating_sub(1)].1
    }

    fn draw(&self) -> String {
        let lanes = self.scene.hosts.len().min(MAX_HOSTS);
        let width = FIRST_LANE + lanes * LANE;
        let bottom = self.places.last().map_or(40, |it| it.1) + 16;
        let height = bottom + 24;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\">\n"
        );
        self.draw_bands(&mut svg);
        for host in 0..lanes {
            let (x, name) = (x(host), escape(&self.scene.hosts[host]));
            let _ = writeln!(
                svg,
                "<text class=\"name\" x=\"{x}\" y=\"20\">{name}</text>\
                 <line class=\"lane\" x1=\"{x}\" y1=\"28\" x2=\"{x}\" y2=\"{bottom}\"/>"
            );
        }
        if self.scene.hosts.len() > lanes {
            let more = self.scene.hosts.len() - lanes;
            let _ = writeln!(svg, "<text x=\"8\" y=\"34\">{more} more hosts</text>");
        }
        self.draw_times(&mut svg);
        self.messages
            .iter()
            .for_each(|it| self.draw_message(&mut svg, it));
        self.draw_marks(&mut svg);
        let y = self.y(self.scene.end) + 6;
        let reason = self.scene.head.lines().next().unwrap_or_default();
        let reason: String = reason.chars().take(120).collect();
        let _ = writeln!(
            svg,
            "<line class=\"fail\" x1=\"0\" y1=\"{y}\" x2=\"{width}\" y2=\"{y}\"/>\
             <text class=\"failtext\" x=\"8\" y=\"{}\">{}</text>\n</svg>",
            y + 16,
            escape(&reason)
        );
        svg
    }

    fn draw_bands(&self, svg: &mut String) {
        for band in &self.bands {
            let (a, b) = (x(band.hosts.0), x(band.hosts.1));
            let (left, right) = if a == b {
                (a - HALF, a + HALF)
            } else {
                (a.min(b), a.max(b))
            };
            let (top, bottom) = (self.y(band.from), self.y(band.to));
            let _ = writeln!(
                svg,
                "<rect class=\"{}\" x=\"{left}\" y=\"{top}\" width=\"{}\" height=\"{}\">\
                 <title>{} to {}</title></rect>",
                band.class,
                right - left,
                (bottom - top).max(2),
                Seconds(band.from),
                Seconds(band.to),
            );
        }
    }

    fn draw_times(&self, svg: &mut String) {
        let mut next = 0;
        for (at, y) in &self.places {
            if *y >= next {
                let y = y + 4;
                let _ = writeln!(
                    svg,
                    "<text class=\"time\" x=\"8\" y=\"{y}\">{}</text>",
                    Seconds(*at)
                );
                next = y + 12;
            }
        }
    }

    fn draw_message(&self, svg: &mut String, message: &Message) {
        let (from, to) = (x(message.from), x(message.to));
        let top = self.y(message.sent);
        let (end, bottom, class) = if message.is_lost {
            // Ends on its way: when it was sent, or when it would have arrived.
            let way = from.abs_diff(to) * 3 / 5;
            let end = if to > from { from + way } else { from - way };
            (end, self.y(message.at).max(top + 6), "lost")
        } else {
            (to, self.y(message.at), "m")
        };
        let _ = write!(
            svg,
            "<g><line class=\"{class}\" x1=\"{from}\" y1=\"{top}\" x2=\"{end}\" y2=\"{bottom}\"/>"
        );
        if message.is_lost {
            let (left, right, up, down) = (end - 4, end + 4, bottom - 4, bottom + 4);
            let _ = write!(
                svg,
                "<path class=\"lost\" d=\"M{left} {up}L{right} {down}M{left} {down}L{right} {up}\"/>"
            );
        }
        let (a, b) = (self.scene.name(message.from), self.scene.name(message.to));
        let _ = writeln!(
            svg,
            "<title>{} {}+{} {} → {}, {} to {}{}</title></g>",
            message.name,
            message.seq,
            message.len,
            escape(a),
            escape(b),
            Seconds(message.sent),
            Seconds(message.at),
            if message.is_lost { ", lost" } else { "" }
        );
    }

    fn draw_marks(&self, svg: &mut String) {
        for event in &self.events {
            let (at, host, what) = event;
            let (x, y) = (x(*host), self.y(*at));
            let words = escape(&self.scene.words(event));
            let class = if matches!(what, What::Polled(..)) {
                "poll"
            } else {
                "mark"
            };
            let _ = write!(
                svg,
                "<g><circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"2\"/><title>{words}</title>"
            );
            let is_told = !matches!(what, What::Polled(..) | What::Name(_));
            let _ = if is_told {
                writeln!(
                    svg,
                    "<text x=\"{}\" y=\"{}\">{words}</text></g>",
                    x + 6,
                    y + 4
                )
            } else {
                writeln!(svg, "</g>")
            };
        }
        for (index, fault) in &self.faults {
            let host = fault.these.first().copied().unwrap_or(0).min(MAX_HOSTS - 1);
            let (x, y) = (x(host), self.y(fault.at));
            let words = escape(&fault.describe(|it| self.scene.name(it)));
            let _ = writeln!(
                svg,
                "<g><circle class=\"fault\" cx=\"{}\" cy=\"{y}\" r=\"7\"/><title>{words}</title>\
                 <text class=\"faultno\" x=\"{}\" y=\"{}\">{}</text></g>",
                x - 12,
                x - 12,
                y + 3,
                index + 1
            );
        }
    }
}

fn x(host: usize) -> usize {
    FIRST_LANE + host * LANE
}

/// Returns the trace in the format of Chrome's and Perfetto's viewers: a process for each host, a
/// track for each task, flows for messages.
fn json(scene: &Scene) -> String {
    let mut out = String::new();
    let mut json = Json::object(&mut out);
    json.text("displayTimeUnit", "ns");
    let mut events = Picture(Events::new(&mut json));
    // Faults are listed above the hosts.
    events.name("process_name", 0, 0, "faults");
    for (host, name) in scene.hosts.iter().enumerate() {
        events.name("process_name", host + 1, 0, name);
        events.name("thread_name", host + 1, 0, "network");
    }
    let mut tasks = BTreeSet::new();
    for event in &scene.recording.events {
        let (at, host, what) = event;
        let pid = host + 1;
        match what {
            What::Polled(task, site) => {
                if tasks.insert((pid, *task)) {
                    let site = site.map(|it| format!(" {it}")).unwrap_or_default();
                    events.name("thread_name", pid, *task, &format!("task {task}{site}"));
                }
                events.slice(pid, *task, *at, 0, "poll");
            }
            What::Segment(..) | What::Lost(..) => {}
            _ => events.instant(pid, "p", *at, &scene.words(event)),
        }
    }
    for (id, it) in scene.recording.messages.iter().enumerate() {
        let (from, to) = (scene.name(it.from), scene.name(it.to));
        let words = format!("{} {}+{}", it.name, it.seq, it.len);
        events.slice(it.from + 1, 0, it.sent, 0, &format!("{words} to {to}"));
        if it.is_lost {
            let words = format!("{words} to {to} is lost");
            events.instant(it.from + 1, "t", it.at, &words);
            continue;
        }
        events.slice(it.to + 1, 0, it.at, 0, &format!("{words} from {from}"));
        events.flow("s", id, it.from + 1, it.sent);
        events.flow("f", id, it.to + 1, it.at);
    }
    for (index, fault) in scene.faults.iter().enumerate() {
        let words = fault.describe(|it| scene.name(it));
        let tid = index as u64 + 1;
        events.slice(0, tid, fault.at, fault.lasts.unwrap_or(0), &words);
    }
    events.instant(0, "g", scene.end, scene.head.trim_end());
    drop(events);
    drop(json);
    out + "\n"
}

/// The events of the trace, at nanoseconds.
struct Picture<'a>(Events<'a>);

impl Picture<'_> {
    fn name(&mut self, kind: &str, pid: usize, tid: u64, name: &str) {
        let mut event = self.0.begin("M", kind, pid, tid, None);
        Json::object(event.key("args")).text("name", name);
    }

    /// Events without a duration are drawn a microsecond long.
    fn slice(&mut self, pid: usize, tid: u64, at: u64, lasts: u64, name: &str) {
        let lasts = Micros(Duration::from_nanos(lasts.max(1_000)));
        let at = Some(Duration::from_nanos(at));
        self.0.begin("X", name, pid, tid, at).value("dur", lasts);
    }

    fn instant(&mut self, pid: usize, scope: &str, at: u64, name: &str) {
        let at = Some(Duration::from_nanos(at));
        self.0.begin("i", name, pid, 0, at).text("s", scope);
    }

    fn flow(&mut self, phase: &str, id: usize, pid: usize, at: u64) {
        let at = Some(Duration::from_nanos(at));
        (self.0.begin(phase, "message", pid, 0, at))
            .text("bp", "e")
            .text("cat", "net")
            .value("id", id);
    }
}

#[cfg(test)]
#[path = "picture_tests.rs"]
mod tests;
