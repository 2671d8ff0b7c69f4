//! Pictures of a failed run: a page with a diagram, and a trace for Perfetto.
//!
//! The crate [`timeline`](crate::timeline) draws them. Here the recording of a run is described in
//! its terms, and the files get their names.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use super::timeline::{Band, Event, Fault, Kind, Message, Moment, Timeline};
use crate::world::faults;
use crate::world::trace::Recording;
use crate::world::trace_event::TraceEvent;

/// The contents of a picture.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    /// The line with the failure.
    pub(super) head: String,
    pub(super) hosts: Vec<String>,
    pub(super) recording: Recording,
    /// The faults, with their numbers in the run of which nothing is left out.
    pub(super) faults: Vec<(usize, faults::Fault)>,
    pub(super) moments: Vec<Moment>,
    /// Time of the failure.
    pub(super) end: u64,
    /// Time at which the run ended.
    pub(super) last: u64,
}

/// Maximum number of characters of a file's name that come from the test's name.
const LONGEST_NAME: usize = 120;

/// The number of events at the end of a run, each of which is followed by a description of the
/// hosts: more than the 60 that the first diagram shows.
const LAST: u64 = 100;

/// Maximum number of descriptions before: enough to find the part of a long run that matters, where
/// `POLDER_SIM_STOP_AT` can then stop it.
const MAX_BEFORE: u64 = 100;

/// Maximum number of characters of a description, so that all of them take some megabytes at most.
pub(super) const MAX_CHARS: usize = 10_000;

/// Returns the number of events after which the next description is due, behind one after so many
/// `events` of a run that has `count` of them.
pub(super) fn next_moment(events: u64, count: u64) -> u64 {
    let before = count.saturating_sub(LAST);
    let next = before.min(events + before.div_ceil(MAX_BEFORE));
    next.max(events + 1)
}

/// Writes both files, and returns their paths.
pub(super) fn write(scene: &Scene, name: &str) -> io::Result<(PathBuf, PathBuf)> {
    let folder = folder();
    fs::create_dir_all(&folder)?;
    let name = file_name(name);
    let html_path = folder.join(format!("{name}.html"));
    let json_path = folder.join(format!("{name}.json"));
    let timeline = scene.timeline();
    fs::write(&html_path, timeline.html(&name))?;
    fs::write(&json_path, timeline.json())?;
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

impl Scene {
    /// Returns the name of a host. Addresses that no host has are on none.
    pub(super) fn name(&self, host: usize) -> &str {
        self.hosts.get(host).map_or("nobody", String::as_str)
    }

    fn timeline(&self) -> Timeline {
        let name = |host| self.name(host);
        let events = (self.recording.events.iter()).filter_map(|(at, host, what)| {
            Some(Event {
                at: *at,
                host: *host,
                kind: kind(*what)?,
                words: what.words_alone(name),
            })
        });
        let messages = self.recording.messages.iter().map(|message| Message {
            sent: message.sent,
            at: message.at,
            from: message.from,
            to: message.to,
            words: format!("{} {}+{}", message.name, message.seq, message.len),
            is_lost: message.is_lost,
        });
        let faults = self.faults.iter().map(|(number, fault)| Fault {
            number: *number,
            at: fault.at,
            host: fault.these.first().copied().unwrap_or(0),
            lasts: fault.lasts,
            words: fault.describe(name),
        });
        Timeline {
            head: self.head.clone(),
            hosts: self.hosts.clone(),
            events: events.collect(),
            messages: messages.collect(),
            faults: faults.collect(),
            moments: self.moments.clone(),
            end: self.end,
            last: self.last,
        }
    }
}

/// Returns how an event is drawn. `None` for segments, which are drawn as messages.
fn kind(what: TraceEvent) -> Option<Kind> {
    Some(match what {
        TraceEvent::Segment(..) | TraceEvent::Lost(..) => return None,
        TraceEvent::Polled(task, site) => {
            let name = format!("task {task} {site}");
            Kind::Polled { task, name }
        }
        TraceEvent::Name(_) => Kind::Unlabelled,
        TraceEvent::Cut(to) => Kind::Begin(Band::Cut(to)),
        TraceEvent::Healed(to) => Kind::End(Band::Cut(to)),
        TraceEvent::Held(to) => Kind::Begin(Band::Held(to)),
        TraceEvent::Released(to) => Kind::End(Band::Held(to)),
        TraceEvent::Slow(to) => Kind::Begin(Band::Slow(to)),
        TraceEvent::Fast(to) => Kind::End(Band::Slow(to)),
        TraceEvent::Killed | TraceEvent::PoweredOff | TraceEvent::Ended => Kind::Begin(Band::Down),
        TraceEvent::Started | TraceEvent::PoweredOn => Kind::End(Band::Down),
        TraceEvent::Paused | TraceEvent::Suspended => Kind::Begin(Band::Paused),
        TraceEvent::Resumed => Kind::End(Band::Paused),
        TraceEvent::Quiet => Kind::EndAll,
        _ => Kind::Labelled,
    })
}

#[cfg(test)]
#[path = "picture_tests.rs"]
mod tests;
