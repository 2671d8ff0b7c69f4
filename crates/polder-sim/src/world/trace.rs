//! The record of events: a running hash, the *fingerprint*, and the last events for the report.

use std::collections::VecDeque;
use std::fmt;

use super::answers::{self, Asked};
use super::seconds::Seconds;
use super::trace_event::TraceEvent;

/// The number of events that a report shows.
const SHOWN: usize = 60;

/// The number of events of which two runs are compared: eight megabytes of fingerprints.
pub(crate) const COMPARED: usize = 1 << 20;

/// The number of events kept then, to report the first difference: four megabytes.
const EVENTS_KEPT: usize = 1 << 16;

/// The number of events, and of messages, that a recording run keeps, the latest ones: enough for a
/// picture that a person looks through, some megabytes.
const MAX_RECORDED: usize = 50_000;

/// An odd factor for each number of an event (its time and its host first). So the products are
/// computed in parallel, and the sum depends on the place of each number.
const ODD: [u64; 7] = [
    0x9e37_79b9_7f4a_7c15,
    0xbf58_476d_1ce4_e5b9,
    0x94d0_49bb_1331_11eb,
    0xd6e8_feb8_6659_fd93,
    0xa076_1d64_78bd_642f,
    0xe703_7ed1_a0b4_28db,
    0x8ebc_6af0_9c88_c6e3,
];

/// Returns what an event adds to the hash. Inlined into callers that note an event: where the kind
/// of event is known, little of this is left.
#[inline(always)]
pub(super) fn weight(what: TraceEvent) -> u64 {
    let products =
        (what.numbers().into_iter().zip(&ODD[2..])).map(|(number, odd)| number.wrapping_mul(*odd));
    products.fold(0, u64::wrapping_add)
}

/// Returns the hash of all events up to this one, given that of the events before.
fn mix(before: u64, now: u64, host: usize, weight: u64) -> u64 {
    let when = now.wrapping_mul(ODD[0]);
    let place = (host as u64).wrapping_mul(ODD[1]);
    let mut hash = before ^ when.wrapping_add(place).wrapping_add(weight);
    hash = (hash ^ (hash >> 32)).wrapping_mul(ODD[0]);
    hash ^ (hash >> 29)
}

/// A message from one host to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    pub(crate) sent: u64,
    /// The time at which it arrived, or was lost.
    pub(crate) at: u64,
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// The name of its kind.
    pub(crate) name: &'static str,
    pub(crate) seq: u64,
    pub(crate) len: usize,
    pub(crate) is_lost: bool,
}

/// The data that a recording run keeps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recording {
    pub(crate) events: VecDeque<(u64, usize, TraceEvent)>,
    pub(crate) messages: VecDeque<Message>,
    /// The events that are [unusual](TraceEvent::is_unusual), which reach back further.
    pub(crate) unusual: VecDeque<(u64, usize, TraceEvent)>,
}

fn push<T>(list: &mut VecDeque<T>, most: usize, item: T) {
    if list.len() == most {
        list.pop_front();
    }
    list.push_back(item);
}

#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) fingerprint: u64,
    pub(crate) events: u64,
    /// The last events, each at its number modulo [`SHOWN`].
    last: Vec<Event>,
    comparison: Comparison,
    /// The first event of this run that differs from the one before, with its number, how often the
    /// C library was called until then, and whether that was in a process.
    difference: Option<(usize, Event, Asked, bool)>,
    pub(crate) recording: Option<Box<Recording>>,
}

/// The time, the host, and the event.
type Event = (u64, usize, TraceEvent);

/// The record of a run, for another run to compare with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    fingerprints: Vec<u64>,
    events: Vec<Event>,
    /// The counts of calls to the C library, each from the event of this number on.
    asked: Vec<(usize, Asked)>,
}

/// The number of events before the first difference that are reported.
const BEFORE: usize = 10;

/// The first difference between a run and the one that it is compared with.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    /// The events before it, which both runs have, a line each.
    pub(crate) before: String,
    /// The event at this place, in the other run and in this one.
    pub(crate) theirs: String,
    pub(crate) ours: String,
    /// The task that was polled then, in this run, if one was.
    pub(crate) task: Option<String>,
    /// The counts of calls to the C library until then.
    pub(crate) asked: [Asked; 2],
}

impl Recorded {
    #[inline]
    fn push(&mut self, index: usize, event: Event) {
        self.events.push(event);
        let asked = answers::asked();
        if self.asked.last().is_none_or(|last| last.1 != asked) {
            self.asked.push((index, asked));
        }
    }

    /// Returns how often the C library was called until that event.
    fn asked_until(&self, index: usize) -> Asked {
        let end = self.asked.partition_point(|(from, _)| *from <= index);
        let last = self.asked[..end].last();
        last.map(|last| last.1).unwrap_or_default()
    }

    /// Returns its memory, empty, for another run.
    pub(crate) fn cleared(mut self) -> Recorded {
        self.fingerprints.clear();
        self.events.clear();
        self.asked.clear();
        self
    }
}

/// Whether this run records its fingerprints, or is compared with a recorded run.
#[derive(Debug, Default)]
pub(crate) enum Comparison {
    #[default]
    None,
    Record(Recorded),
    Compare(Recorded),
}

impl Trace {
    pub(crate) fn new(comparison: Comparison, records: bool) -> Trace {
        Trace {
            comparison,
            recording: records.then(Box::default),
            ..Trace::default()
        }
    }

    /// Notes an event of this [`weight`] at a time on a host. Returns `false` if the run that this
    /// one is compared with had another event here.
    #[must_use]
    pub(super) fn note(&mut self, now: u64, host: usize, what: TraceEvent, weight: u64) -> bool {
        let hash = mix(self.fingerprint, now, host, weight);
        self.fingerprint = hash;
        if let Some(recording) = &mut self.recording {
            push(&mut recording.events, MAX_RECORDED, (now, host, what));
            let begins = now == 0 && matches!(what, TraceEvent::Started);
            if what.is_unusual() && !begins {
                push(&mut recording.unusual, MAX_RECORDED, (now, host, what));
            }
        }
        let (index, event) = (self.events as usize, (now, host, what));
        self.events += 1;
        match self.last.get_mut(index % SHOWN) {
            Some(place) => *place = event,
            None => self.last = vec![event; SHOWN],
        }
        match &mut self.comparison {
            Comparison::None => true,
            Comparison::Record(all) => {
                if index < COMPARED {
                    all.fingerprints.push(hash);
                }
                if index < EVENTS_KEPT {
                    all.push(index, event);
                }
                true
            }
            Comparison::Compare(all) => {
                let theirs = all.fingerprints.get(index);
                theirs.is_none_or(|theirs| *theirs == hash)
            }
        }
    }

    /// Keeps the event that was noted last if it is the first one that differs from the run that
    /// this one is compared with. `is_in_process` is whether a process has caused it.
    #[cold]
    pub(super) fn diverge(&mut self, event: Event, is_in_process: bool) {
        let index = self.events as usize - 1;
        let found = || (index, event, answers::asked(), is_in_process);
        self.difference.get_or_insert_with(found);
    }

    /// Returns whether this run differs from the one that it is compared with.
    pub(crate) fn has_diverged(&self) -> bool {
        self.difference.is_some()
    }

    /// Notes a message, if the run is recorded. A message is not an event.
    pub(crate) fn message(&mut self, message: impl FnOnce() -> Message) {
        if let Some(recording) = &mut self.recording {
            push(&mut recording.messages, MAX_RECORDED, message());
        }
    }

    /// Takes the record of this run.
    pub(crate) fn take_recorded(&mut self) -> Recorded {
        let Comparison::Record(all) = &mut self.comparison else {
            return Recorded::default();
        };
        let all = std::mem::take(all);
        self.comparison = Comparison::None;
        all
    }

    /// Returns the first event in which this run differs from the one that it is compared with.
    /// `None` if there is no difference, or if the event is not known.
    pub(crate) fn first_difference<'a>(
        &'a self,
        name: impl Fn(usize) -> &'a str,
    ) -> Option<Difference> {
        let Comparison::Compare(all) = &self.comparison else {
            return None;
        };
        let (index, ours, asked, is_in_process) = self.difference?;
        let theirs = *all.events.get(index)?;
        let tell = |event| Trace::describe([&event], &name).trim().to_owned();
        let (told, mut tells) = (tell(theirs), tell(ours));
        if told == tells {
            // The words do not show all of the event.
            tells += ", with other bytes";
        }
        let before = &all.events[..index];
        let poll = |(_, host, what): &Event| match what {
            TraceEvent::Polled(task, site) => {
                let host = name(*host);
                Some(format!("task {task} of {host}, spawned at {site}"))
            }
            _ => None,
        };
        // The last poll in both runs, unless the difference is itself a poll.
        let is_polled = is_in_process && poll(&ours).is_none();
        let task = before.iter().rev().find_map(poll).filter(|_| is_polled);
        Some(Difference {
            before: Trace::describe(&before[index.saturating_sub(BEFORE)..], &name),
            theirs: told,
            ours: tells,
            task,
            asked: [all.asked_until(index), asked],
        })
    }

    /// Returns the last events, a line each. `name` returns a host's name.
    pub(crate) fn last_events<'a>(&'a self, name: impl Fn(usize) -> &'a str) -> String {
        let count = self.events as usize;
        let numbers = count.saturating_sub(SHOWN)..count;
        Trace::describe(numbers.map(|nth| &self.last[nth % SHOWN]), name)
    }

    /// Describes events, a line each. Events of one host in the same words, one after the other,
    /// are one line with their number.
    pub(crate) fn describe<'a, 'b>(
        events: impl IntoIterator<Item = &'b (u64, usize, TraceEvent)>,
        name: impl Fn(usize) -> &'a str,
    ) -> String {
        use fmt::Write;

        let mut text = String::new();
        let mut events = (events.into_iter())
            .map(|(now, host, what)| (Seconds(*now), what.words(*host, &name)))
            .peekable();
        while let Some((now, words)) = events.next() {
            let _ = write!(text, "    {now} {words}");
            let mut more = (0, None);
            while let Some((last, _)) = events.next_if(|(_, next)| *next == words) {
                more = (more.0 + 1, Some(last));
            }
            let _ = match more {
                (count, Some(last)) => writeln!(text, " ({count} times more, until {last})"),
                _ => writeln!(text),
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last events are told in their order however many there were.
    #[test]
    fn last_events_in_order_at_any_count() {
        let kept = EVENTS_KEPT as u64;
        let counts = [0, 1, 59, 60, 61, 119, 120, 200];
        let by_ring = counts.map(|count| (count, Comparison::None));
        let many = [0, 1, 61, kept, kept + 1, kept + 59, kept + 60, kept + 200];
        let recorded = many.map(|count| (count, Comparison::Record(Recorded::default())));
        for (count, comparison) in by_ring.into_iter().chain(recorded) {
            let mut trace = Trace::new(comparison, false);
            for number in 0..count {
                let what = TraceEvent::Chosen(number);
                assert!(trace.note(number, 0, what, weight(what)));
            }
            let last = count.saturating_sub(SHOWN as u64)..count;
            let last: Vec<String> = last.map(|number| number.to_string()).collect();
            let told = |trace: &Trace| -> Vec<String> {
                let text = trace.last_events(|_| "host");
                let numbers = text.lines().map(|line| line.rsplit(' ').next().unwrap());
                numbers.map(str::to_owned).collect()
            };
            assert_eq!(told(&trace), last);
            trace.take_recorded();
            assert_eq!(told(&trace), last, "although its recording was taken");
        }
    }

    #[test]
    fn events_in_the_same_words_are_one_line() {
        let events = [
            (1, 0, TraceEvent::Started),
            (2, 0, TraceEvent::Started),
            (3, 1, TraceEvent::Started),
        ];
        let text = Trace::describe(&events, |host| ["one", "two"][host]);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let expected = [
            "0.000000 s one: started (1 times more, until 0.000000 s)",
            "0.000000 s two: started",
        ];
        assert_eq!(lines, expected);
    }

    /// The first divergence is the one that is reported.
    #[test]
    fn first_divergence_is_reported() {
        let run = |comparison, numbers: [u64; 3]| {
            let mut trace = Trace::new(comparison, false);
            for number in numbers {
                let what = TraceEvent::Chosen(number);
                if !trace.note(number, 0, what, weight(what)) {
                    trace.diverge((number, 0, what), false);
                }
            }
            trace
        };
        let mut first = run(Comparison::Record(Recorded::default()), [1, 2, 3]);
        assert!(!first.has_diverged());
        let second = run(Comparison::Compare(first.take_recorded()), [1, 5, 6]);
        let difference = second.first_difference(|_| "host");
        let difference = difference.expect("the second event differs");
        assert!(difference.theirs.ends_with("chose 2") && difference.ours.ends_with("chose 5"));
        assert!(second.has_diverged() && difference.task.is_none());
    }

    /// A hash differs with each number and with the order of events.
    #[test]
    fn hash_differs_with_numbers_and_order() {
        let mut all = vec![
            mix(0, 0, 0, weight(TraceEvent::Started)),
            mix(0, 1, 0, weight(TraceEvent::Started)),
            mix(0, 0, 1, weight(TraceEvent::Started)),
            mix(0, 0, 0, weight(TraceEvent::Ended)),
            mix(1, 0, 0, weight(TraceEvent::Started)),
            mix(0, 0, 0, weight(TraceEvent::Retransmit(1, 2))),
            mix(0, 0, 0, weight(TraceEvent::Retransmit(2, 1))),
            mix(0, 1, 2, weight(TraceEvent::Retransmit(2, 1))),
            mix(
                mix(0, 0, 0, weight(TraceEvent::Started)),
                0,
                0,
                weight(TraceEvent::Ended),
            ),
            mix(
                mix(0, 0, 0, weight(TraceEvent::Ended)),
                0,
                0,
                weight(TraceEvent::Started),
            ),
        ];
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
