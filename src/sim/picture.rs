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
use std::{env, fs, io};

use crate::diagnostics::json::Json;
use crate::diagnostics::{Events, Micros};
use crate::world::faults::Fault;
use crate::world::trace::{Message, Recording, Seconds, What};

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
pub(super) fn folder() -> PathBuf {
    let variable = env::var_os("CARGO_TARGET_TMPDIR").filter(|path| !path.is_empty());
    // Cargo's build folder has such a file.
    let around_the_program = || {
        let program = env::current_exe().ok()?;
        let mut folders = program.ancestors().skip(1);
        let target = folders.find(|folder| folder.join("CACHEDIR.TAG").is_file());
        target.map(Path::to_owned)
    };
    let target = variable.map(PathBuf::from).or_else(around_the_program);
    target.unwrap_or_else(|| "target".into()).join("sim")
}

pub(super) fn file_name(test: &str) -> String {
    let plain = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' => letter,
        _ => '_',
    };
    let name: String = test.chars().map(plain).take(LONGEST_NAME).collect();
    if name.is_empty() { "test".into() } else { name }
}

/// Escapes text for a page. Characters that a page must not contain are replaced.
fn escape(text: &str) -> String {
    let escape = |letter| match letter {
        '&' => "&amp;".into(),
        '<' => "&lt;".into(),
        '>' => "&gt;".into(),
        '"' => "&quot;".into(),
        '\'' => "&#39;".into(),
        '\n' | '\t' => String::from(letter),
        _ if letter.is_control() => "\u{fffd}".into(),
        _ => letter.into(),
    };
    text.chars().map(escape).collect()
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
        let words = escape(&scene.describe(fault));
        let _ = writeln!(page, "<li>{words}</li>");
    }
    page += "</ol>\n<h2>The run</h2>\n";
    page += &Diagram::new(scene, MANY, scene.last).draw();
    page += "</body>\n</html>\n";
    page
}

impl Message {
    fn words(&self) -> String {
        format!("{} {}+{}", self.name, self.seq, self.len)
    }
}

impl Scene {
    fn name(&self, host: usize) -> &str {
        self.hosts.get(host).map_or("nobody", String::as_str)
    }

    fn describe(&self, fault: &Fault) -> String {
        fault.describe(|host| self.name(host))
    }

    fn words(&self, what: What) -> String {
        what.words_alone(|host| self.name(host))
    }
}

/// The class of a band, and the two lanes between which it is, or its own one twice.
type Place = (&'static str, usize, usize);

/// Returns the band that an event on a host begins (`true`) or ends, if it does that.
fn band(host: usize, what: What) -> Option<(Place, bool)> {
    Some(match what {
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
        _ => return None,
    })
}

/// Returns the cuts, holds and slow links, and the times at which hosts were down or paused.
fn bands(scene: &Scene) -> Vec<Item<'_>> {
    let mut open: BTreeMap<Place, (u64, u32)> = BTreeMap::new();
    let mut bands = Vec::new();
    let mut close = |place, from, to| {
        let shown = Shown::Band(place);
        bands.push(Item { from, to, shown });
    };
    for (at, host, what) in &scene.recording.events {
        if *what == What::Quiet {
            open.retain(|place, (from, _)| {
                let stays = place.0 == "down";
                if !stays {
                    close(*place, *from, *at);
                }
                stays
            });
        }
        let Some((place, begins)) = band(*host, *what) else {
            continue;
        };
        if begins {
            open.entry(place).or_insert((*at, 0)).1 += 1;
        } else if let Some((from, count)) = open.get_mut(&place) {
            *count -= 1;
            if *count == 0 || place.0 == "down" {
                close(place, *from, *at);
                open.remove(&place);
            }
        }
    }
    for (place, (from, _)) in open {
        close(place, from, scene.last);
    }
    bands
}

/// The content of a diagram.
enum Shown<'a> {
    Band(Place),
    Message(&'a Message),
    Mark(usize, What),
    /// A fault, and its number.
    Fault(usize, &'a Fault),
}

/// An item of a diagram, from one moment to another.
struct Item<'a> {
    from: u64,
    to: u64,
    shown: Shown<'a>,
}

/// Returns what can be shown until `end` on the first lanes, in the order in which it is drawn.
fn items(scene: &Scene, lanes: usize, end: u64) -> Vec<Item<'_>> {
    let mut items = bands(scene);
    items.retain(|band| match band.shown {
        Shown::Band((_, a, b)) => a < lanes && b < lanes,
        _ => true,
    });
    let messages = (scene.recording.messages.iter())
        .filter(|message| message.from < lanes && message.to < lanes && message.at <= end)
        .filter(|message| message.from != message.to);
    items.extend(messages.map(|message| Item {
        from: message.sent,
        to: message.at,
        shown: Shown::Message(message),
    }));
    for (at, host, what) in &scene.recording.events {
        // Others are lines, and bands between lanes.
        let is_line = matches!(what, What::Segment(..) | What::Lost(..));
        let is_band = band(*host, *what).is_some_and(|((_, a, b), _)| a != b);
        if !is_line && !is_band && *host < lanes && *at <= end {
            let (from, to, shown) = (*at, *at, Shown::Mark(*host, *what));
            items.push(Item { from, to, shown });
        }
    }
    items.extend((1..).zip(&scene.faults).map(|(number, fault)| Item {
        from: fault.at,
        to: fault.at,
        shown: Shown::Fault(number, fault),
    }));
    items
}

/// The last part of a scene, with a position for each of its moments.
struct Diagram<'a> {
    scene: &'a Scene,
    lanes: usize,
    items: Vec<Item<'a>>,
    /// Positions of the moments.
    places: Vec<(u64, usize)>,
}

impl<'a> Diagram<'a> {
    /// Returns the diagram of the last `most` messages and marks until `end`.
    fn new(scene: &'a Scene, most: usize, end: u64) -> Diagram<'a> {
        let lanes = scene.hosts.len().min(MAX_HOSTS);
        let mut items = items(scene, lanes, end);
        let counted =
            (items.iter()).filter(|item| matches!(item.shown, Shown::Message(_) | Shown::Mark(..)));
        let mut times: Vec<u64> = counted.map(|item| item.to).collect();
        times.sort_unstable();
        let start = times[times.len().saturating_sub(most)..].first();
        let start = start.copied().unwrap_or(0);
        items.retain(|item| item.to >= start && item.from <= end);
        let mut moments: BTreeSet<u64> = [start, scene.end, end].into();
        moments.extend(items.iter().flat_map(|item| [item.from, item.to]));
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
            lanes,
            items,
        }
    }

    /// Returns the position of a moment; an earlier one is at the first position.
    fn y(&self, at: u64) -> usize {
        let index = self.places.partition_point(|place| place.0 <= at);
        self.places[index.saturating_sub(1)].1
    }

    fn draw(&self) -> String {
        let width = FIRST_LANE + self.lanes * LANE;
        let bottom = self.places.last().map_or(40, |place| place.1) + 16;
        let height = bottom + 24;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\">\n"
        );
        for (host, name) in self.scene.hosts.iter().take(self.lanes).enumerate() {
            svg += &text("name", x(host), 20, name);
            svg += &line("lane", (x(host), 28), (x(host), bottom));
        }
        if self.scene.hosts.len() > self.lanes {
            let more = self.scene.hosts.len() - self.lanes;
            svg += &text("more", 8, 34, &format!("{more} more hosts"));
        }
        let mut next = 0;
        for (at, y) in &self.places {
            if *y >= next {
                svg += &text("time", 8, y + 4, &Seconds(*at).to_string());
                next = y + 16;
            }
        }
        for item in &self.items {
            let (top, bottom) = (self.y(item.from), self.y(item.to));
            svg += &match item.shown {
                Shown::Band(place) => draw_band(item, place, top, bottom),
                Shown::Message(message) => self.draw_message(message, top, bottom),
                Shown::Mark(host, what) => self.draw_mark(what, x(host), top),
                Shown::Fault(number, fault) => self.draw_fault(number, fault, top),
            };
        }
        let y = self.y(self.scene.end) + 6;
        let reason = self.scene.head.lines().next().unwrap_or_default();
        let reason: String = reason.chars().take(120).collect();
        svg += &line("fail", (0, y), (width, y));
        svg += &text("failtext", 8, y + 16, &reason);
        svg + "</svg>\n"
    }

    fn draw_message(&self, message: &Message, top: usize, bottom: usize) -> String {
        let (from, to) = (x(message.from), x(message.to));
        let (a, b) = (self.scene.name(message.from), self.scene.name(message.to));
        let (sent, at) = (Seconds(message.sent), Seconds(message.at));
        let words = message.words();
        if !message.is_lost {
            let way = line("m", (from, top), (to, bottom));
            return group(&way, &format!("{words} {a} → {b}, {sent} to {at}"));
        }
        // Ends on its way: when it was sent, or when it would have arrived.
        let (end, bottom) = ((2 * from + 3 * to) / 5, bottom.max(top + 6));
        let (left, right, up, down) = (end - 4, end + 4, bottom - 4, bottom + 4);
        let way = line("lost", (from, top), (end, bottom))
            + &line("lost", (left, up), (right, down))
            + &line("lost", (left, down), (right, up));
        group(&way, &format!("{words} {a} → {b}, {sent} to {at}, lost"))
    }

    fn draw_mark(&self, what: What, x: usize, y: usize) -> String {
        let words = self.scene.words(what);
        let (class, told) = match what {
            What::Polled(..) => ("poll", String::new()),
            What::Name(_) => ("mark", String::new()),
            _ => ("mark", text("told", x + 6, y + 4, &words)),
        };
        group(&(circle(class, x, y, 2) + &told), &words)
    }

    fn draw_fault(&self, number: usize, fault: &Fault, y: usize) -> String {
        let host = fault.these.first().copied().unwrap_or(0).min(MAX_HOSTS - 1);
        let x = x(host) - 12;
        let mark = circle("fault", x, y, 7) + &text("faultno", x, y + 3, &number.to_string());
        group(&mark, &self.scene.describe(fault))
    }
}

fn draw_band(band: &Item<'_>, (class, a, b): Place, top: usize, bottom: usize) -> String {
    let (left, right) = match (x(a.min(b)), x(a.max(b))) {
        (left, right) if left == right => (left - HALF, left + HALF),
        between => between,
    };
    let (width, height) = (right - left, (bottom - top).max(2));
    let rectangle = format!(
        r#"<rect class="{class}" x="{left}" y="{top}" width="{width}" height="{height}"/>"#
    );
    let (from, to) = (Seconds(band.from), Seconds(band.to));
    group(&rectangle, &format!("{from} to {to}"))
}

fn x(host: usize) -> usize {
    FIRST_LANE + host * LANE
}

/// Returns shapes, with words that are shown when one points at them.
fn group(shapes: &str, words: &str) -> String {
    format!("<g>{shapes}<title>{}</title></g>\n", escape(words))
}

fn line(class: &str, (x, y): (usize, usize), (to_x, to_y): (usize, usize)) -> String {
    format!(r#"<line class="{class}" x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}"/>"#)
}

fn circle(class: &str, x: usize, y: usize, r: usize) -> String {
    format!(r#"<circle class="{class}" cx="{x}" cy="{y}" r="{r}"/>"#)
}

fn text(class: &str, x: usize, y: usize, words: &str) -> String {
    let words = escape(words);
    format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{words}</text>\n")
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
    for (at, host, what) in &scene.recording.events {
        let pid = host + 1;
        match what {
            What::Polled(task, site) => {
                if tasks.insert((pid, *task)) {
                    let site = site.map(|site| format!(" {site}")).unwrap_or_default();
                    events.name("thread_name", pid, *task, &format!("task {task}{site}"));
                }
                events.slice(pid, *task, *at, 0, "poll");
            }
            What::Segment(..) | What::Lost(..) => {}
            _ => events.instant(pid, "p", *at, &scene.words(*what)),
        }
    }
    for (id, message) in scene.recording.messages.iter().enumerate() {
        let (from, to) = (scene.name(message.from), scene.name(message.to));
        let (sender, receiver, words) = (message.from + 1, message.to + 1, message.words());
        events.slice(sender, 0, message.sent, 0, &format!("{words} to {to}"));
        if message.is_lost {
            let words = format!("{words} to {to} is lost");
            events.instant(sender, "t", message.at, &words);
            continue;
        }
        events.slice(receiver, 0, message.at, 0, &format!("{words} from {from}"));
        events.flow("s", id, sender, message.sent);
        events.flow("f", id, receiver, message.at);
    }
    for (number, fault) in (1..).zip(&scene.faults) {
        let lasts = fault.lasts.unwrap_or(0);
        events.slice(0, number, fault.at, lasts, &scene.describe(fault));
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
