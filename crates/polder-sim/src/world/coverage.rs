//! [`Coverage`]: the features that a run has reached, so that a search can tell which runs are new.
//!
//! A *feature* is a pair of events that follow each other on one host (a crash after a write, a
//! message before an answer), an event after the last fault in the world, or a state that the test
//! or the program names. Hosts have no part in it: a feature of one is not new on another. Features
//! are hashed into a small table, as in AFL
//! (<https://lcamtuf.coredump.cx/afl/technical_details.txt>), from which the ranges of counts are
//! taken too: a few features that share a place do no harm.
//!
//! The program's [`edges`] are features too, if it was built with counters of them. Counters do not
//! say when they have counted, so they are read before each moment of the run: a fork cannot tell
//! the events of one moment apart.

use std::collections::BTreeMap;
use std::panic::Location;

use super::choice::mix;
use super::edges;
use super::hosts::PORTS;
use super::trace_event::{TraceEvent, digest};

/// The number of places for features other than edges, which come after these.
pub(crate) const PLACES: usize = 1 << 16;

/// The half of the table for pairs of events, and that for states, of which none is lost to the
/// many events.
const EVENTS: u16 = 0;
const STATES: u16 = 1 << 15;

/// A feature that a run has reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Feature {
    /// Its place in the table, or behind it.
    pub(crate) place: usize,
    /// How often it was reached, as one of eight ranges: 1, 2, 3, 4–7, 8–15, 16–31, 32–127, and
    /// more.
    pub(crate) range: u8,
    /// When it was reached first, in nanoseconds since the world began.
    pub(crate) at: u64,
}

impl Feature {
    /// Whether it is a state that the test or the program has named.
    pub(crate) fn is_state(&self) -> bool {
        (usize::from(STATES)..PLACES).contains(&self.place)
    }
}

/// Maximum length of a message, or of a write, that is a part of its event: so short ones of
/// different kinds are told apart, and those of large data are one.
const MAX_LENGTH: usize = 128;

pub(crate) struct Coverage {
    /// How often each feature was reached.
    counts: Vec<u8>,
    /// Those that were reached, and the time when each was reached first.
    reached: Vec<(u16, u64)>,
    /// The last event of each host.
    last: BTreeMap<usize, u64>,
    last_fault: u64,
    /// The last state of each name, by its hash.
    states: BTreeMap<u64, u64>,
    /// The count of each edge when the run began, and when the run has reached it.
    edges: Vec<(u64, Option<u64>)>,
    /// The time of the last event.
    now: u64,
}

impl Default for Coverage {
    fn default() -> Coverage {
        Coverage {
            counts: vec![0; PLACES],
            reached: Vec::new(),
            last: BTreeMap::new(),
            last_fault: 0,
            states: BTreeMap::new(),
            edges: edges::counts().map(|count| (count, None)).collect(),
            now: 0,
        }
    }
}

impl Coverage {
    /// Counts a feature in one of the halves of the table.
    fn reach(&mut self, now: u64, feature: u64, half: u16) {
        let place = (mix(feature) >> 49) as u16 | half;
        let count = &mut self.counts[usize::from(place)];
        if *count == 0 {
            self.reached.push((place, now));
        }
        *count = count.saturating_add(1);
    }

    /// Notes an event.
    pub(super) fn note(&mut self, now: u64, host: usize, what: TraceEvent) {
        if now > self.now {
            self.reach_edges();
            self.now = now;
        }
        let event = kind(what);
        let before = self.last.insert(host, event).unwrap_or(0);
        self.reach(now, before.rotate_left(1) ^ event, EVENTS);
        self.reach(now, self.last_fault.rotate_left(2) ^ event, EVENTS);
        if is_fault(what) {
            self.last_fault = event;
        }
    }

    /// Notes a state of this name, by a hash of each.
    pub(super) fn state(&mut self, now: u64, name: u64, state: u64) {
        let before = self.states.insert(name, state);
        if before == Some(state) {
            return;
        }
        let before = before.unwrap_or(0).rotate_left(3);
        self.reach(now, name ^ mix(state), STATES);
        self.reach(now, name ^ mix(state ^ before), STATES);
    }

    /// Notes the edges that were reached at the time of the last event.
    fn reach_edges(&mut self) {
        for ((before, at), count) in self.edges.iter_mut().zip(edges::counts()) {
            if count != *before {
                at.get_or_insert(self.now);
            }
        }
    }

    /// Returns the features of a run that has ended.
    pub(crate) fn features(&mut self) -> impl Iterator<Item = Feature> {
        self.reach_edges();
        let reached = self.reached.iter().map(|&(place, at)| {
            let place = usize::from(place);
            let range = range(self.counts[place].into());
            Feature { place, range, at }
        });
        let edges = (PLACES..).zip(self.edges.iter().zip(edges::counts()));
        let edges = edges.filter_map(|(place, ((before, at), count))| {
            let range = range(count.wrapping_sub(*before));
            at.map(|at| Feature { place, range, at })
        });
        reached.chain(edges)
    }
}

/// Returns the range of a count, which is not zero.
fn range(count: u64) -> u8 {
    match count {
        0..=3 => count.max(1) as u8 - 1,
        4..=7 => 3,
        8..=15 => 4,
        16..=31 => 5,
        32..=127 => 6,
        _ => 7,
    }
}

/// Returns a number for the kind of an event: the same for each host and in each run.
fn kind(what: TraceEvent) -> u64 {
    let tag = what.numbers()[0];
    let detail = match what {
        TraceEvent::Polled(_, site) => of_site(site),
        TraceEvent::Connect(_, port) | TraceEvent::Accepted(_, port) => known(port),
        TraceEvent::Segment(_, _, _, _, len) | TraceEvent::Written(_, len) => {
            len.min(MAX_LENGTH) as u64
        }
        TraceEvent::Datagram(_, port, _, len) => known(port) << 8 | len.min(MAX_LENGTH) as u64,
        TraceEvent::Synced(_, fails) => fails.into(),
        TraceEvent::Operation(name) => digest(0, name.as_bytes()),
        _ => 0,
    };
    mix(tag ^ detail << 16)
}

fn of_site(site: &Location<'_>) -> u64 {
    let place = u64::from(site.line()) << 16 | u64::from(site.column());
    digest(place, site.file().as_bytes())
}

/// Returns a port as a part of an event: those that a host has chosen itself are one.
fn known(port: u16) -> u64 {
    if PORTS.contains(&port) {
        0
    } else {
        port.into()
    }
}

/// Returns whether the events after this one are new because of it.
fn is_fault(what: TraceEvent) -> bool {
    what.is_unusual()
        && !matches!(
            what,
            TraceEvent::Lost(..) | TraceEvent::DatagramLost(..) | TraceEvent::Ended
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(events: &[(usize, TraceEvent)]) -> Vec<(usize, u8)> {
        let mut coverage = Coverage::default();
        for (nth, (host, what)) in events.iter().enumerate() {
            coverage.note(nth as u64, *host, *what);
        }
        let mut all: Vec<_> = (coverage.features())
            .map(|feature| (feature.place, feature.range))
            .collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn event_pairs_count_on_any_host() {
        let (write, crash) = (TraceEvent::Written(1, 8), TraceEvent::PoweredOff);
        let one = features(&[(1, write), (1, crash), (2, write)]);
        assert_eq!(one, features(&[(2, write), (2, crash), (1, write)]));
        assert_ne!(one, features(&[(1, crash), (1, write), (2, write)]));
        // The digest of the bytes, and which host it is, do not matter; the length does.
        let lengths = [8, 9].map(|len| features(&[(1, TraceEvent::Written(7, len))]));
        assert_eq!(features(&[(3, write)]), lengths[0]);
        assert_ne!(lengths[0], lengths[1]);
    }

    /// How often something was reached is told by ranges.
    #[test]
    fn hit_counts_are_bucketed() {
        let ranges = [1, 2, 3, 4, 7, 8, 200].map(|count| {
            let mut coverage = Coverage::default();
            (0..count).for_each(|now| coverage.reach(now, 5, EVENTS));
            coverage
                .features()
                .map(|feature| (feature.range, feature.at))
                .next()
        });
        let expected = [0, 1, 2, 3, 3, 4, 7].map(|range| Some((range, 0)));
        assert_eq!(ranges, expected);
    }

    /// A state is reached once and with the one before.
    #[test]
    fn state_reached_once_with_predecessor() {
        let mut coverage = Coverage::default();
        for (now, state) in [1, 1, 2, 1, 2].into_iter().enumerate() {
            coverage.state(now as u64, 77, state);
        }
        let times: Vec<u64> = coverage.features().map(|feature| feature.at).collect();
        // 1; 2, and 2 after 1; 1 after 2.
        assert_eq!(times, [0, 2, 2, 3]);
    }
}
