//! Drawings are well-formed and bounded, for any names and numbers.

use std::collections::BTreeMap;

use super::{Band, Event, Fault, Kind, Message, Moment, Timeline};
use serde_json::Value;

/// Asserts that every tag is closed, in order, every attribute is quoted, and there are no scripts.
fn assert_is_well_formed(page: &str) {
    let mut open = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a page");
    while let Some(start) = rest.find('<') {
        assert!(
            !rest[..start].contains('>'),
            "a loose >: {}",
            &rest[..start]
        );
        let end = rest.find('>').expect("the tag ends");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "before {rest:.80}");
            continue;
        }
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        assert!(
            name.trim_end_matches('/')
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric()),
            "{tag}"
        );
        assert_eq!(attributes.matches('"').count() % 2, 0, "{tag}");
        assert!(name != "script" && !attributes.starts_with("on"), "{tag}");
        if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

/// A name that tries to break out.
const NASTY: &str = "</text><script>alert(\"1\")</script>&\u{7}'\\";

/// An event of the first host.
fn event(at: u64, kind: Kind) -> Event {
    let words = NASTY.into();
    Event {
        at,
        host: 0,
        kind,
        words,
    }
}

/// A timeline with everything that can be drawn.
fn timeline(messages: u64) -> Timeline {
    let mut timeline = Timeline {
        head: format!("failed at 1.0 s: {NASTY}\n"),
        hosts: ["test", NASTY, "c"].map(str::to_owned).into(),
        ..Timeline::default()
    };
    for n in 0..messages {
        let (from, to) = (n as usize % 3, (n as usize + 1) % 3);
        timeline.messages.push(Message {
            sent: n * 1_000_000,
            at: n * 1_000_000 + 500_123,
            from,
            to,
            words: format!("data {n}+64"),
            is_lost: n % 5 == 0,
        });
        let polled = Kind::Polled {
            task: n % 4,
            name: format!("task {}", n % 4),
        };
        let host = from;
        (timeline.events).push(Event {
            host,
            ..event(n * 1_000_000, polled)
        });
    }
    let end = messages * 1_000_000;
    let others = [
        Kind::Begin(Band::Cut(1)),
        Kind::Begin(Band::Held(2)),
        Kind::Begin(Band::Slow(1)),
        Kind::Begin(Band::Down),
        Kind::Begin(Band::Paused),
        Kind::End(Band::Held(2)),
        Kind::Labelled,
        Kind::Unlabelled,
        Kind::EndAll,
        Kind::End(Band::Down),
        Kind::Begin(Band::Cut(2)),
    ];
    let others = (end..).zip(others).map(|(at, kind)| event(at, kind));
    timeline.events.extend(others);
    timeline.faults.push(Fault {
        number: 1,
        at: end,
        host: 0,
        lasts: Some(3),
        words: "cut".into(),
    });
    (timeline.end, timeline.last) = (end + 100, end + 200);
    timeline
}

/// The page is well formed and contains no markup of the programs.
#[test]
fn page_well_formed_markup_escaped() {
    for messages in [0, 1, 10, 500] {
        let page = timeline(messages).html("a::test<'\"&>");
        assert_is_well_formed(&page);
        assert!(page.contains("&lt;script&gt;alert(&quot;1&quot;)"));
        assert!(page.contains("class=\"cut\"") && page.contains("class=\"down\""));
        assert!(page.contains("class=\"hold\"") && page.contains("class=\"slow\""));
        assert!(page.contains("class=\"pause\"") && page.contains("class=\"fail\""));
        assert_eq!(page.contains("class=\"lost\""), messages > 0, "{messages}");
    }
}

/// Returns the attribute of each diagram that has the positions of its times.
fn places(page: &str) -> Vec<Vec<(u64, u64)>> {
    let places = page.split(" data-places=\"").skip(1);
    let json = places.map(|rest| rest.split('"').next().unwrap());
    json.map(|json| serde_json::from_str(json).unwrap())
        .collect()
}

/// Moments are a list in order with a slider over the times of the diagrams.
#[test]
fn moments_in_order_with_slider() {
    let mut timeline = timeline(500);
    let plain = timeline.html("test");
    for at in [0, 400_000_000, timeline.end] {
        let words = format!("\n{NASTY}\n<!-- at {at}");
        timeline.moments.push(Moment { at, words });
    }
    let page = timeline.html("test");
    // Its script is a constant, which contains nothing of the program's.
    let script = page.split_once("<script>\n").unwrap().1;
    let script = script.split_once("</script>").unwrap().0;
    assert_eq!(script, include_str!("slider.js"));
    assert!(!script.contains("</") && !script.contains("<!--"));
    assert_eq!(page.matches("<script").count(), 1);
    assert_is_well_formed(&page.replace(&format!("<script>\n{script}</script>\n"), ""));
    assert!(page.contains("type=\"range\"") && page.contains("\n&lt;/text&gt;&lt;script&gt;"));
    let lists = page.split("<details data-at=\"").skip(1);
    let times = lists.map(|rest| rest.split('"').next().unwrap());
    assert_eq!(times.collect::<Vec<_>>(), ["0", "400000000", "500000100"]);
    assert!(page.contains("<summary>0.400000 s</summary>"));
    let places = places(&page);
    assert_eq!(places.len(), 2);
    for places in &places {
        let grows = |one: &(u64, u64), next: &(u64, u64)| one.0 < next.0 && one.1 < next.1;
        assert!(places.is_sorted_by(grows));
        assert!(places.iter().any(|place| place.0 == timeline.end));
    }
    // Without moments there is nothing of all this.
    let parts = ["<script", "<input", "data-", "slider", "prefers-color"];
    assert!(parts.iter().all(|part| !plain.contains(part)));
    let (head, rest) = plain.split_once("</style>").unwrap();
    let before = page.split_once("<h2>The hosts at some moments").unwrap().0;
    let without = before.split(" data-places=\"").enumerate();
    let without = without.map(|(nth, part)| match nth {
        0 => part,
        _ => part.split_once('"').unwrap().1,
    });
    let without = without.collect::<String>() + "</body>\n</html>\n";
    assert!(without.starts_with(head) && without.ends_with(rest));
}

/// The latest moments are shown and the beginning of each.
#[test]
fn latest_moments_shown_truncated() {
    let mut timeline = timeline(1);
    let moment = |at| Moment {
        at,
        words: "ä".repeat(100_000),
    };
    timeline.moments = (1..=501).map(moment).collect();
    let page = timeline.html("test");
    assert_eq!(page.matches("<details").count(), 500);
    assert!(!page.contains("data-at=\"1\"") && page.contains("data-at=\"501\""));
    assert_eq!(page.matches('ä').count(), 500 * 10_000);
}

/// A page is bounded and begins with the failing moment.
#[test]
fn page_bounded_begins_at_failure() {
    let page = timeline(40_000).html("test");
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    let first = &page[..page.find("</svg>").unwrap()];
    assert!(first.contains("class=\"fail\""));
    // It fits on a screen.
    let height = first.split_once(" height=\"").unwrap().1;
    let height: u32 = height.split('"').next().unwrap().parse().unwrap();
    assert!(height < 1_500, "{height}");
}

/// Returns the times of the bands of a class in the last diagram.
fn times<'a>(page: &'a str, class: &str) -> Vec<&'a str> {
    let (_, diagram) = page.split_once("<h2>The run</h2>").unwrap();
    let class = format!("<rect class=\"{class}\"");
    let bands = diagram.lines().filter(|line| line.contains(&class));
    let title = |line: &'a str| line.split_once("<title>")?.1.split_once("</title>");
    bands.filter_map(title).map(|(times, _)| times).collect()
}

#[test]
fn a_band_that_has_begun_twice_ends_once() {
    let millis = |at: u64, kind| event(at * 1_000_000, kind);
    let mut twice = Timeline {
        hosts: vec!["a".into(), "b".into()],
        events: vec![
            millis(1, Kind::Begin(Band::Cut(1))),
            millis(2, Kind::Begin(Band::Cut(1))),
            millis(3, Kind::Begin(Band::Down)),
            millis(4, Kind::Begin(Band::Down)),
            millis(6, Kind::End(Band::Down)),
            millis(7, Kind::End(Band::Cut(1))),
        ],
        end: 9_000_000,
        last: 9_000_000,
        ..Timeline::default()
    };
    let page = twice.html("twice");
    assert_eq!(times(&page, "cut"), ["0.001000 s to 0.007000 s"]);
    assert_eq!(times(&page, "down"), ["0.003000 s to 0.006000 s"]);
    // One that does not end lasts until the end, unless all of them end.
    twice.events.truncate(4);
    let page = twice.html("without an end");
    assert_eq!(times(&page, "cut"), ["0.001000 s to 0.009000 s"]);
    assert_eq!(times(&page, "down"), ["0.003000 s to 0.009000 s"]);
    twice.events.push(millis(8, Kind::EndAll));
    let page = twice.html("all end");
    assert_eq!(times(&page, "cut"), ["0.001000 s to 0.008000 s"]);
    assert_eq!(times(&page, "down"), ["0.003000 s to 0.009000 s"]);
}

/// The trace has a process for each host tracks for tasks and flows for messages.
#[test]
fn trace_has_processes_tracks_and_flows() {
    let trace: Value = serde_json::from_str(&timeline(100).json()).unwrap();
    let mut phases: BTreeMap<&str, usize> = BTreeMap::new();
    let mut names = Vec::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        let phase = event["ph"].as_str().unwrap();
        *phases.entry(phase).or_default() += 1;
        assert!(event["pid"].is_u64() && event["tid"].is_u64(), "{event}");
        assert!(event["name"].is_string(), "{event}");
        assert!(phase == "M" || event["ts"].is_f64(), "{event}");
        names.extend(event["args"]["name"].as_str());
    }
    let count = |phase| phases.get(phase).copied().unwrap_or(0);
    // One in five is lost: 80 arrive.
    assert_eq!((count("s"), count("f")), (80, 80));
    assert_eq!(count("X"), 100 + 100 + 80 + 1);
    assert!(names.contains(&NASTY) && names.contains(&"task 3"));
}

/// A fault of a host without a lane is in the list only.
#[test]
fn fault_of_host_without_lane_only_in_list() {
    let mut timeline = timeline(10);
    assert_eq!(timeline.faults.len(), 1);
    assert!(timeline.html("a lane").contains("class=\"fault\""));
    timeline.faults[0].host = timeline.hosts.len();
    let html = timeline.html("no lane");
    assert!(!html.contains("class=\"fault\""));
    assert!(html.contains(&crate::timeline::text::escape(&timeline.faults[0].words)));
}

#[test]
fn numbers_that_make_no_sense_are_drawn_somehow() {
    // Hosts that there are not, times that go backwards, an end behind the last event.
    let mut timeline = timeline(10);
    timeline.events.reverse();
    timeline.hosts.truncate(1);
    timeline.faults[0].host = 1_000_000;
    for message in &mut timeline.messages {
        message.at /= 2;
    }
    timeline.last = 0;
    assert_is_well_formed(&timeline.html("backwards"));
    assert!(timeline.json().contains("nobody"));
}
