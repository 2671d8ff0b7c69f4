//! Pictures are well-formed and bounded, for any names.

use serde_json::Value;

use super::*;
use crate::world::faults::Kind;
use crate::world::trace::Flags;

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

/// A run with everything that can be drawn, and names that try to break out.
fn scene(messages: u64) -> Scene {
    let nasty = "</text><script>alert(\"1\")</script>&\u{7}'\\";
    let mut recording = Recording::default();
    for n in 0..messages {
        let (from, to) = (n as usize % 3, (n as usize + 1) % 3);
        recording.messages.push_back(Message {
            sent: n * 1_000_000,
            at: n * 1_000_000 + 500_123,
            from,
            to,
            name: "data",
            seq: n,
            len: 64,
            is_lost: n % 5 == 0,
        });
        let polled = What::Polled(n % 4, None);
        recording.events.push_back((n * 1_000_000, from, polled));
    }
    let end = messages * 1_000_000;
    let others = [
        What::Cut(1),
        What::Held(2),
        What::Slow(1),
        What::Killed,
        What::Paused,
        What::Released(2),
        What::Chosen(7),
        What::Lost(Flags::Data, 0, 1, 2, 3),
        What::Quiet,
        What::Started,
        What::Cut(2),
    ];
    for (n, what) in (0..).zip(others) {
        recording.events.push_back((end + n, 0, what));
    }
    let id = (Kind::Cut, 0, 0, 1);
    let mut fault = Fault::new(id, end, vec![0], vec![1]);
    fault.lasts = Some(3);
    Scene {
        head: format!("seed 0x7 failed at 1.0 s: {nasty}\n"),
        hosts: ["test", nasty, "c"].map(str::to_owned).into(),
        recording,
        faults: vec![fault],
        end: end + 100,
        last: end + 200,
    }
}

#[test]
fn the_page_is_well_formed_and_contains_no_markup_of_the_programs() {
    for messages in [0, 1, 10, 500] {
        let page = html(&scene(messages), "a::test<'\"&>");
        assert_is_well_formed(&page);
        assert!(page.contains("&lt;script&gt;alert(&quot;1&quot;)"));
        assert!(page.contains("class=\"cut\"") && page.contains("class=\"down\""));
        assert!(page.contains("class=\"hold\"") && page.contains("class=\"slow\""));
        assert!(page.contains("class=\"pause\"") && page.contains("class=\"fail\""));
        assert_eq!(page.contains("class=\"lost\""), messages > 0, "{messages}");
    }
}

#[test]
fn a_page_is_bounded_and_begins_with_the_failing_moment() {
    let page = html(&scene(40_000), "test");
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    let first = &page[..page.find("</svg>").unwrap()];
    assert!(first.contains("class=\"fail\""));
    // It fits on a screen.
    let height = first.split_once(" height=\"").unwrap().1;
    let height: u32 = height.split('"').next().unwrap().parse().unwrap();
    assert!(height < 1_500, "{height}");
}

#[test]
fn the_trace_has_a_process_for_each_host_tracks_for_tasks_and_flows_for_messages() {
    let trace: Value = serde_json::from_str(&json(&scene(100))).unwrap();
    let mut phases: BTreeMap<&str, usize> = BTreeMap::new();
    let mut processes = Vec::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        let phase = event["ph"].as_str().unwrap();
        *phases.entry(phase).or_default() += 1;
        assert!(event["pid"].is_u64() && event["tid"].is_u64(), "{event}");
        assert!(event["name"].is_string(), "{event}");
        assert!(phase == "M" || event["ts"].is_f64(), "{event}");
        processes.extend(event["args"]["name"].as_str());
    }
    let count = |phase| phases.get(phase).copied().unwrap_or(0);
    // One in five is lost: 80 arrive.
    assert_eq!((count("s"), count("f")), (80, 80));
    assert_eq!(count("X"), 100 + 100 + 80 + 1);
    let nasty = "</text><script>alert(\"1\")</script>&\u{7}'\\";
    assert!(processes.contains(&nasty) && processes.contains(&"task 3"));
}

#[test]
fn files_are_named_after_the_test() {
    assert_eq!(file_name("a::b_c"), "a__b_c");
    assert_eq!(file_name(""), "test");
    assert_eq!(file_name(&"../".repeat(500)).len(), LONGEST_NAME);
}
