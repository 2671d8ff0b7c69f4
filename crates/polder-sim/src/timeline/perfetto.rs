//! The trace: JSON of the "Trace Event Format". `ph` is the kind of an event: M a name, X a slice
//! with a duration, i an instant, s and f the two ends of an arrow. `ts` and `dur` are in
//! microseconds. An arrow begins and ends on slices.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Write};

use super::contents::{Kind, Timeline};

/// Minimum duration of a slice, so that an instant can be seen.
const SHORTEST: u64 = 1_000;

pub(crate) fn json(timeline: &Timeline) -> String {
    let mut events = Events(r#"{"displayTimeUnit":"ns","traceEvents":["#.into());
    // Faults are listed above the hosts.
    events.name("process_name", 0, 0, "faults");
    for (host, name) in timeline.hosts.iter().enumerate() {
        events.name("process_name", process(host), 0, name);
        events.name("thread_name", process(host), 0, "network");
    }
    let mut tasks = BTreeSet::new();
    for event in &timeline.events {
        let (at, pid) = (event.at, process(event.host));
        match &event.kind {
            Kind::Polled { task, name } => {
                if tasks.insert((pid, *task)) {
                    events.name("thread_name", pid, *task, name);
                }
                events.slice(pid, *task, at, 0, "poll");
            }
            _ => events.instant(pid, "p", at, &event.words),
        }
    }
    for (id, message) in timeline.messages.iter().enumerate() {
        let (from, to) = (timeline.name(message.from), timeline.name(message.to));
        let (sender, receiver, words) =
            (process(message.from), process(message.to), &message.words);
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
    for fault in &timeline.faults {
        let (track, lasts) = (fault.number as u64, fault.lasts.unwrap_or(0));
        events.slice(0, track, fault.at, lasts, &fault.words);
    }
    events.instant(0, "g", timeline.end, timeline.head.trim_end());
    events.0 + "\n]}\n"
}

/// Returns the number of a host's process: that of the faults is 0.
fn process(host: usize) -> usize {
    host.saturating_add(1)
}

/// The events, one a line.
struct Events(String);

impl Events {
    fn name(&mut self, kind: &str, pid: usize, tid: u64, name: &str) {
        let rest = format!(r#""args":{{"name":{}}}"#, Text(name));
        self.push("M", kind, (pid, tid), None, &rest);
    }

    fn slice(&mut self, pid: usize, tid: u64, at: u64, lasts: u64, name: &str) {
        let rest = format!(r#""dur":{}"#, Micros(lasts.max(SHORTEST)));
        self.push("X", name, (pid, tid), Some(at), &rest);
    }

    fn instant(&mut self, pid: usize, scope: &str, at: u64, name: &str) {
        let rest = format!(r#""s":"{scope}""#);
        self.push("i", name, (pid, 0), Some(at), &rest);
    }

    fn flow(&mut self, phase: &str, id: usize, pid: usize, at: u64) {
        let rest = format!(r#""bp":"e","cat":"net","id":{id}"#);
        self.push(phase, "message", (pid, 0), Some(at), &rest);
    }

    /// Writes an event. `rest` are the members that only its kind has.
    fn push(
        &mut self,
        phase: &str,
        name: &str,
        (pid, tid): (usize, u64),
        at: Option<u64>,
        rest: &str,
    ) {
        let comma = if self.0.ends_with('[') { "" } else { "," };
        let name = Text(name);
        // Writing to a string does not fail.
        let _ = write!(
            self.0,
            "{comma}\n{{\"ph\":\"{phase}\",\"name\":{name},\"pid\":{pid},\"tid\":{tid}"
        );
        if let Some(at) = at.map(Micros) {
            let _ = write!(self.0, ",\"ts\":{at}");
        }
        let _ = write!(self.0, ",{rest}}}");
    }
}

/// Nanoseconds, as microseconds with three decimals.
struct Micros(u64);

impl Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

/// A string of JSON. Unprintable characters are escaped, so that none reaches a terminal.
struct Text<'a>(&'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                // Rust would escape this quote; JSON does not.
                '\'' => f.write_char('\'')?,
                _ if character.escape_debug().len() > 1 => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        write!(f, "\\u{unit:04x}")?;
                    }
                }
                _ => f.write_char(character)?,
            }
        }
        f.write_char('"')
    }
}
