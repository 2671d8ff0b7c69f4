//! The recording of a run in the terms of a picture; `host-timeline` has the tests of how that is
//! drawn.

use std::panic::Location;

use super::*;
use crate::world::trace::{self, Flags};

#[test]
fn the_recording_of_a_run_becomes_events_messages_and_faults() {
    let site = Location::caller();
    let mut recording = Recording::default();
    recording.messages.push_back(trace::Message {
        sent: 1,
        at: 2,
        from: 1,
        to: 7,
        name: "data",
        seq: 3,
        len: 64,
        is_lost: true,
    });
    recording.events.extend([
        (1, 0, What::Polled(4, Some(site))),
        (2, 1, What::Polled(5, None)),
        (3, 0, What::Segment(Flags::Data, 1, 3, 0, 64)),
        (4, 0, What::Lost(Flags::Data, 1, 3, 0, 64)),
        (5, 0, What::Connect(7, 80)),
        (6, 1, What::Name(9)),
    ]);
    let id = (faults::Kind::Cut, 0, 0, 1);
    let mut fault = faults::Fault::new(id, 5, vec![1], vec![0]);
    fault.lasts = Some(3_000);
    let nowhere = faults::Fault::new(id, 6, vec![], vec![]);
    let timeline = Scene {
        head: "failed\n".into(),
        hosts: vec!["a".into(), "b".into()],
        recording,
        faults: vec![fault, nowhere],
        end: 5,
        last: 6,
    }
    .timeline();
    let event = |at, host, kind, words: &str| Event {
        at,
        host,
        kind,
        words: words.into(),
    };
    let polled = |task, name: String| Kind::Polled { task, name };
    let here = format!("task 4 {site}");
    let runs = format!("task 4 runs, spawned at {site}");
    let events = [
        event(1, 0, polled(4, here), &runs),
        event(2, 1, polled(5, "task 5".into()), "task 5 runs"),
        // Segments are messages.
        event(5, 0, Kind::Labelled, "connects to nobody:80"),
        event(6, 1, Kind::Unlabelled, "looks up a name"),
    ];
    assert_eq!(timeline.events, events);
    let message = Message {
        sent: 1,
        at: 2,
        from: 1,
        to: 7,
        words: "data 3+64".into(),
        is_lost: true,
    };
    assert_eq!(timeline.messages, [message]);
    let [cut, nowhere] = &timeline.faults[..] else {
        panic!("{:?}", timeline.faults);
    };
    assert_eq!((cut.at, cut.host, cut.lasts), (5, 1, Some(3_000)));
    assert_eq!(cut.words, "cut b|a (0.000000 s, for 0.000003 s)");
    assert_eq!((nowhere.host, nowhere.lasts), (0, None));
    assert_eq!(
        (timeline.head.as_str(), timeline.hosts.len()),
        ("failed\n", 2)
    );
    assert_eq!((timeline.end, timeline.last), (5, 6));
}

#[test]
fn what_begins_a_band_has_an_end() {
    for (band, begin, end) in [
        (Band::Cut(2), What::Cut(2), What::Healed(2)),
        (Band::Held(2), What::Held(2), What::Released(2)),
        (Band::Slow(2), What::Slow(2), What::Fast(2)),
        (Band::Down, What::Killed, What::Started),
        (Band::Down, What::PoweredOff, What::Started),
        (Band::Down, What::Ended, What::Started),
        (Band::Paused, What::Paused, What::Resumed),
    ] {
        assert_eq!(kind(begin), Some(Kind::Begin(band)));
        assert_eq!(kind(end), Some(Kind::End(band)));
    }
    assert_eq!(kind(What::Quiet), Some(Kind::EndAll));
}

#[test]
fn files_are_named_after_the_test() {
    assert_eq!(file_name("a::b_c"), "a__b_c");
    assert_eq!(file_name(""), "test");
    assert_eq!(file_name(&"../".repeat(500)).len(), LONGEST_NAME);
}
