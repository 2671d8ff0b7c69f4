//! The page. Its constants bound everything, so that a browser shows it without delay.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::contents::{Band, Event, Fault, Kind, Message, Timeline};
use super::slider;
use super::text::escape;
use crate::world::seconds::Seconds;

/// Maximum number of items in the first diagram, which fits on a screen.
const FEW: usize = 60;

/// Maximum number of items in the second diagram.
const MANY: usize = 2_000;

/// Maximum number of hosts with lanes.
const MAX_HOSTS: usize = 40;

/// Position of the first lane, and distance between lanes.
const FIRST_LANE: usize = 170;
const LANE: usize = 170;

/// Half the width of the bands on a lane.
const HALF: usize = 22;

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

pub(crate) fn html(timeline: &Timeline, title: &str) -> String {
    let mut page = String::new();
    let title = escape(title);
    let head = escape(timeline.head.trim_end());
    let slides = if timeline.moments.is_empty() {
        ""
    } else {
        slider::STYLE
    };
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"/><title>{title}</title>\n\
         <style>{STYLE}{slides}</style></head>\n<body>\n<h1>{title}</h1>\n<pre>{head}</pre>\n\
         <p>Time goes down, and is short where nothing happens. Lines are messages; red ones are \
         lost. Red bands: cut; blue: held; green: slow; grey: no process; yellow: paused; \
         numbers: faults.</p>\n\
         <h2>The last moments</h2>\n"
    );
    page += &Diagram::new(timeline, FEW, timeline.end).draw();
    page += "<h2>Faults</h2>\n<ol>\n";
    for fault in timeline.faults.iter().take(MANY) {
        let words = escape(&fault.words);
        let _ = writeln!(page, "<li value=\"{}\">{words}</li>", fault.number);
    }
    page += "</ol>\n<h2>The run</h2>\n";
    page += &Diagram::new(timeline, MANY, timeline.last).draw();
    page += &slider::draw(&timeline.moments);
    page += "</body>\n</html>\n";
    page
}

/// The class of a band, and the two lanes between which it is, or its own one twice.
type Place = (&'static str, usize, usize);

/// The class of the bands that [`Kind::EndAll`] does not end.
const DOWN: &str = "down";

/// Returns the band that an event begins (`true`) or ends, if it does that.
fn band(event: &Event) -> Option<(Place, bool)> {
    let (band, begins) = match event.kind {
        Kind::Begin(band) => (band, true),
        Kind::End(band) => (band, false),
        _ => return None,
    };
    let (class, other) = match band {
        Band::Cut(other) => ("cut", other),
        Band::Held(other) => ("hold", other),
        Band::Slow(other) => ("slow", other),
        Band::Down => (DOWN, event.host),
        Band::Paused => ("pause", event.host),
    };
    Some(((class, event.host, other), begins))
}

/// Returns the bands, each from its first beginning to its end.
fn bands(timeline: &Timeline) -> Vec<Item<'_>> {
    let mut open: BTreeMap<Place, u64> = BTreeMap::new();
    let mut bands = Vec::new();
    let mut close = |place, from, to| {
        let shown = Shown::Band(place);
        bands.push(Item { from, to, shown });
    };
    for event in &timeline.events {
        if event.kind == Kind::EndAll {
            open.retain(|place, from| {
                let stays = place.0 == DOWN;
                if !stays {
                    close(*place, *from, event.at);
                }
                stays
            });
        }
        let Some((place, begins)) = band(event) else {
            continue;
        };
        if begins {
            open.entry(place).or_insert(event.at);
        } else if let Some(from) = open.remove(&place) {
            close(place, from, event.at);
        }
    }
    for (place, from) in open {
        close(place, from, timeline.last);
    }
    bands
}

/// The content of a diagram.
enum Shown<'a> {
    Band(Place),
    Message(&'a Message),
    Mark(&'a Event),
    /// A fault, with its number.
    Fault(&'a Fault),
}

/// An item of a diagram, from one moment to another.
struct Item<'a> {
    from: u64,
    to: u64,
    shown: Shown<'a>,
}

/// Returns what can be shown until `end` on the first lanes, in the order in which it is drawn.
fn items(timeline: &Timeline, lanes: usize, end: u64) -> Vec<Item<'_>> {
    let mut items = bands(timeline);
    items.retain(|band| match band.shown {
        Shown::Band((_, a, b)) => a < lanes && b < lanes,
        _ => true,
    });
    let messages = (timeline.messages.iter())
        .filter(|message| message.from < lanes && message.to < lanes && message.at <= end)
        .filter(|message| message.from != message.to);
    items.extend(messages.map(|message| Item {
        from: message.sent,
        to: message.at,
        shown: Shown::Message(message),
    }));
    for event in &timeline.events {
        // A band between lanes has no mark.
        let is_between = band(event).is_some_and(|((_, a, b), _)| a != b);
        if !is_between && event.host < lanes && event.at <= end {
            let (from, to, shown) = (event.at, event.at, Shown::Mark(event));
            items.push(Item { from, to, shown });
        }
    }
    let faults = timeline.faults.iter().filter(|fault| fault.host < lanes);
    items.extend(faults.map(|fault| Item {
        from: fault.at,
        to: fault.at,
        shown: Shown::Fault(fault),
    }));
    items
}

/// The last part of a timeline, with a position for each of its moments.
struct Diagram<'a> {
    timeline: &'a Timeline,
    lanes: usize,
    items: Vec<Item<'a>>,
    /// Positions of the moments.
    places: Vec<(u64, usize)>,
}

impl<'a> Diagram<'a> {
    /// Returns the diagram of the last `most` messages and marks until `end`.
    fn new(timeline: &'a Timeline, most: usize, end: u64) -> Diagram<'a> {
        let lanes = timeline.hosts.len().min(MAX_HOSTS);
        let mut items = items(timeline, lanes, end);
        let counted =
            (items.iter()).filter(|item| matches!(item.shown, Shown::Message(_) | Shown::Mark(_)));
        let mut times: Vec<u64> = counted.map(|item| item.to).collect();
        times.sort_unstable();
        let start = times[times.len().saturating_sub(most)..].first();
        let start = start.copied().unwrap_or(0);
        items.retain(|item| item.to >= start && item.from <= end);
        let mut moments: BTreeSet<u64> = [start, timeline.end, end].into();
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
            timeline,
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
             viewBox=\"0 0 {width} {height}\"{}>\n",
            self.data()
        );
        for (host, name) in self.timeline.hosts.iter().take(self.lanes).enumerate() {
            svg += &text("name", x(host), 20, name);
            svg += &line("lane", (x(host), 28), (x(host), bottom));
        }
        if self.timeline.hosts.len() > self.lanes {
            let more = self.timeline.hosts.len() - self.lanes;
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
                Shown::Mark(event) => draw_mark(event, top),
                Shown::Fault(fault) => draw_fault(fault, top),
            };
        }
        let y = self.y(self.timeline.end) + 6;
        let reason = self.timeline.head.lines().next().unwrap_or_default();
        let reason: String = reason.chars().take(120).collect();
        svg += &line("fail", (0, y), (width, y));
        svg += &text("failtext", 8, y + 16, &reason);
        svg + "</svg>\n"
    }

    /// Returns the attribute by which the slider's script knows the positions, if there is one.
    fn data(&self) -> String {
        if self.timeline.moments.is_empty() {
            return String::new();
        }
        let places = self.places.iter().map(|(at, y)| format!("[{at},{y}]"));
        format!(
            " data-places=\"[{}]\"",
            places.collect::<Vec<_>>().join(",")
        )
    }

    fn draw_message(&self, message: &Message, top: usize, bottom: usize) -> String {
        let (from, to) = (x(message.from), x(message.to));
        let (a, b) = (
            self.timeline.name(message.from),
            self.timeline.name(message.to),
        );
        let (sent, at) = (Seconds(message.sent), Seconds(message.at));
        let words = &message.words;
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
}

fn draw_mark(event: &Event, y: usize) -> String {
    let x = x(event.host);
    let (class, label) = match event.kind {
        Kind::Polled { .. } => ("poll", String::new()),
        Kind::Unlabelled => ("mark", String::new()),
        _ => ("mark", text("told", x + 6, y + 4, &event.words)),
    };
    group(&(circle(class, x, y, 2) + &label), &event.words)
}

fn draw_fault(fault: &Fault, y: usize) -> String {
    let x = x(fault.host) - 12;
    let mark = circle("fault", x, y, 7) + &text("faultno", x, y + 3, &fault.number.to_string());
    group(&mark, &fault.words)
}

fn draw_band(band: &Item<'_>, (class, a, b): Place, top: usize, bottom: usize) -> String {
    let (left, right) = match (x(a.min(b)), x(a.max(b))) {
        (left, right) if left == right => (left - HALF, left + HALF),
        between => between,
    };
    let (width, height) = (right - left, bottom.saturating_sub(top).max(2));
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
