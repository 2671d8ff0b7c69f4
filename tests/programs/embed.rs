//! `embed`: a runtime inside a foreign loop.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use polder::Backend;
use polder::poller::Poller;

use crate::support::*;

/// Embed does all its work inside the foreign loop and ends by itself.
#[test]
fn embed_works_in_foreign_loop_and_ends() {
    for backend in Backend::available() {
        embeds(
            with_arguments("embed", ["--backend", backend.name()]),
            backend,
        );
        let mut by_variable = command("embed");
        by_variable.env("POLDER_BACKEND", backend.name());
        embeds(by_variable, backend);
    }
    embeds(command("embed"), Backend::default());
}

fn embeds(command: std::process::Command, backend: Backend) {
    let mut embed = Program::start(command);
    let lines: Vec<_> = std::iter::from_fn(|| embed.next_line()).collect();
    embed.ended_well();

    let poller = Poller::new(backend).expect("an available backend can be opened");
    let has_descriptor = poller.capabilities().descriptor;
    let way = if has_descriptor {
        "its descriptor"
    } else {
        "its next timeout"
    };
    let [first, own @ .., last] = &lines[..] else {
        panic!("on {backend}: {lines:#?}");
    };
    let expected = format!("driving a runtime on {backend} by {way}");
    assert_eq!(*first, expected, "{lines:#?}");

    // On a busy machine one read may return two of the loop's own bytes.
    let counts: Vec<_> = own
        .iter()
        .map(|line| {
            let count = line.strip_prefix("the loop's own byte ");
            let count = count.and_then(|rest| rest.split_once(" after "));
            let count = count.unwrap_or_else(|| panic!("on {backend}: {line:?}"));
            count.0.parse::<u32>().expect("a number")
        })
        .collect();
    assert!(counts.is_sorted_by(|a, b| a < b), "{lines:#?}");
    assert_eq!(counts.last(), Some(&3), "{lines:#?}");

    let rounds = last
        .strip_prefix("100 bytes echoed, 5 ticks, in ")
        .and_then(|rest| rest.strip_suffix(" rounds"))
        .and_then(|rounds| rounds.parse::<u32>().ok());
    let rounds = rounds.unwrap_or_else(|| panic!("on {backend}: {last:?}"));
    // A few rounds a client. A descriptor that stays readable with nothing to do would cause
    // thousands, even on a busy machine.
    if has_descriptor {
        assert!(rounds < 1_000, "on {backend}, it spins: {rounds} rounds");
    }
}

/// A wrong argument of embed gets one line that says what it should have been.
#[test]
fn wrong_argument_of_embed_says_format() {
    const USAGE: &str = "usage: embed [--backend NAMES]";
    wrong("embed", ["--backend"], &[USAGE]);
    wrong("embed", ["--fast"], &[USAGE]);
    wrong("embed", ["epoll"], &[USAGE]);
    wrong("embed", ["--backend", "poll", "select"], &[USAGE]);
    wrong("embed", ["--backend", "fax"], &["\"fax\"", "available: "]);
    wrong(
        "embed",
        ["--backend", "a\nb"],
        &["\"a\\nb\"", "available: "],
    );
    let bytes = OsString::from_vec(b"\xff".to_vec());
    wrong("embed", [bytes], &[USAGE]);
}
