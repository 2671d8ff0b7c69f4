//! The recording of a run in the terms of a picture; [`timeline`](crate::timeline) has the tests of
//! how that is drawn.

use std::panic::Location;
use std::time::Duration;

use polder::future::yield_now;
use polder::net::UdpSocket;
use polder::runtime::Handle;
use polder::time::interval;

use super::super::check::in_world;
use super::super::threads::Threads;
use super::super::{Sim, panics};
use super::*;
use crate::world::setup::{RunConfig, Setup};
use crate::world::trace;
use crate::world::trace_event::Flags;

/// The recording of a run becomes events messages and faults.
#[test]
fn recording_becomes_events_messages_faults() {
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
        (1, 0, TraceEvent::Polled(4, site)),
        (3, 0, TraceEvent::Segment(Flags::Data, 1, 3, 0, 64)),
        (4, 0, TraceEvent::Lost(Flags::Data, 1, 3, 0, 64)),
        (5, 0, TraceEvent::Connect(7, 80)),
        (6, 1, TraceEvent::Name(9)),
    ]);
    let id = (faults::Kind::Cut, 0, 0, 1);
    let mut fault = faults::Fault::new(id, 5, vec![1], vec![0]);
    fault.lasts = Some(3_000);
    let nowhere = faults::Fault::new(id, 6, vec![], vec![]);
    let moment = Moment {
        at: 4,
        words: "a: running".into(),
    };
    let timeline = Scene {
        head: "failed\n".into(),
        hosts: vec!["a".into(), "b".into()],
        recording,
        faults: vec![(3, fault), (7, nowhere)],
        moments: vec![moment.clone()],
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
    let name = format!("task 4 {site}");
    let runs = format!("task 4 runs, spawned at {site}");
    let events = [
        event(1, 0, Kind::Polled { task: 4, name }, &runs),
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
    assert_eq!(timeline.moments, [moment]);
}

#[test]
fn what_begins_a_band_has_an_end() {
    for (band, begin, end) in [
        (Band::Cut(2), TraceEvent::Cut(2), TraceEvent::Healed(2)),
        (Band::Held(2), TraceEvent::Held(2), TraceEvent::Released(2)),
        (Band::Slow(2), TraceEvent::Slow(2), TraceEvent::Fast(2)),
        (Band::Down, TraceEvent::Killed, TraceEvent::Started),
        (Band::Down, TraceEvent::PoweredOff, TraceEvent::Started),
        (Band::Down, TraceEvent::PoweredOff, TraceEvent::PoweredOn),
        (Band::Down, TraceEvent::Ended, TraceEvent::Started),
        (Band::Paused, TraceEvent::Paused, TraceEvent::Resumed),
        (Band::Paused, TraceEvent::Suspended, TraceEvent::Resumed),
    ] {
        assert_eq!(kind(begin), Some(Kind::Begin(band)));
        assert_eq!(kind(end), Some(Kind::End(band)));
    }
    assert_eq!(kind(TraceEvent::Quiet), Some(Kind::EndAll));
}

#[test]
fn files_are_named_after_the_test() {
    assert_eq!(file_name("a::b_c"), "a__b_c");
    assert_eq!(file_name(""), "test");
    assert_eq!(file_name(&"../".repeat(500)).len(), LONGEST_NAME);
}

/// Descriptions are bounded and each of the last events has one.
#[test]
fn descriptions_bounded_one_per_event() {
    for count in [0, 1, 99, 100, 101, 199, 250, 12_345, 10_000_000] {
        let next = |events: &u64| Some(next_moment(*events, count));
        let due = std::iter::successors(Some(0), next);
        let due: Vec<u64> = due.take_while(|events| *events <= count).collect();
        assert!(due.len() as u64 <= LAST + MAX_BEFORE + 1, "{count}");
        let last = count.saturating_sub(LAST)..=count;
        assert!(due.ends_with(&last.collect::<Vec<_>>()), "{count}: {due:?}");
    }
}

/// A host with another clock, which sends the hints of its dumps: those compare a dump with the
/// one before. The test fails at the end.
async fn fails(sim: Sim) {
    let host = sim.host("host");
    host.clock().drift(250_000);
    host.start(|| async {
        let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
        let tick = Duration::from_millis(10);
        let _wakes_itself = polder::spawn(async move {
            let mut ticks = interval(tick);
            loop {
                ticks.tick().await;
                for _ in 0..1_000 {
                    yield_now().await;
                }
            }
        });
        let mut ticks = interval(tick);
        loop {
            ticks.tick().await;
            // So that the other one has begun.
            for _ in 0..10 {
                yield_now().await;
            }
            let hints = format!("{:?}", Handle::current().dump().hints);
            socket.send_to(hints.as_bytes(), "test:1").await.unwrap();
        }
    });
    let socket = UdpSocket::bind("0.0.0.0:1").await.unwrap();
    let mut longest = 0;
    for _ in 0..10 {
        longest = longest.max(socket.recv(&mut [0; 1_000]).await.unwrap());
    }
    assert!(longest < 10, "there was a hint");
}

#[test]
fn a_run_that_is_described_is_the_same_run() {
    let site = Location::caller();
    panics::watch();
    let world = |seed, setup, progress| in_world(seed, &fails, site, setup, progress);
    let threads = Threads::new(&world);
    for seed in 0..3 {
        let run = |records| {
            let setup = Setup {
                records,
                ..Setup::quiet(RunConfig::default())
            };
            threads.run(seed, setup)
        };
        let plain = run(None);
        let recorded = run(Some(plain.events));
        assert_eq!(recorded.fingerprint, plain.fingerprint);
        assert_eq!(recorded.failure, plain.failure);
        let failure = plain.failure.unwrap();
        assert!(failure.contains("there was a hint"), "{failure}");
        let scene = recorded.scene.expect("it is recorded");
        let moments = scene.moments;
        assert!(moments.len() > 10, "{}", moments.len());
        assert!(moments.is_sorted_by(|one, other| one.at < other.at));
        let end = moments.last().unwrap();
        assert_eq!(u128::from(end.at), recorded.time.as_nanos());
        assert!(failure.ends_with(&end.words));
    }
}
