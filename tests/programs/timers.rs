//! `timers`: two tasks that sleep, and a loop that ends.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use polder::Backend;

use crate::support::*;

/// Timers says that `work2` finishes and then work and ends by itself.
///
/// At a tenth, the two ends lie 100 ms apart. A busy machine may hold up Work2 for that long before
/// it sleeps, though hardly each time.
#[test]
fn timers_finishes_work2_then_work() {
    let start = |backend, left| {
        let timers = on(backend, with_arguments("timers", ["--scale", "0.1"]));
        (timers, backend, left)
    };
    let backends = Backend::available().into_iter();
    let mut started: Vec<_> = backends.map(|backend| start(backend, 2)).collect();
    while let Some((mut timers, backend, left)) = started.pop() {
        let lines: Vec<_> = std::iter::from_fn(|| timers.next_line()).collect();
        timers.ended_well();
        let said: Vec<_> = lines.iter().map(|line| timed(line)).collect();

        let of = |who| said.iter().filter(move |(_, name, _)| *name == who);
        let what = |who| of(who).map(|(_, _, what)| *what).collect::<Vec<_>>();
        let work = ["sleeping for 100ms", "sleeping for 300ms", "finishing"];
        let work2 = ["sleeping for 100ms", "sleeping for 200ms", "finishing"];
        assert_eq!(what("Work"), work, "on {backend}: {lines:#?}");
        assert_eq!(what("Work2"), work2, "on {backend}: {lines:#?}");
        let [.., (end2, name2, what2), (end1, name1, what1)] = said[..] else {
            panic!("on {backend}: {lines:#?}");
        };
        if (name2, name1) == ("Work", "Work2") && left > 0 {
            started.push(start(backend, left - 1));
            continue;
        }
        assert_eq!((name2, what2), ("Work2", "finishing"), "the last but one");
        assert_eq!((name1, what1), ("Work", "finishing"), "the last");
        // The times are rounded to milliseconds.
        assert!(end2 >= 0.299 && end1 >= 0.399, "early: {lines:#?}");
        assert!(said.is_sorted_by_key(|(time, ..)| *time), "{lines:#?}");
    }
}

/// A wrong argument of timers gets one line that says what it should have been.
#[test]
fn wrong_argument_of_timers_says_format() {
    const USAGE: &str = "usage: timers [--scale FACTOR]";
    wrong("timers", ["--scale"], &["needs a factor", USAGE]);
    for factor in ["fast", "", "-1", "NaN", "inf", "1001", "1s", "a\nb"] {
        let given = format!("{factor:?}");
        let expected = [given.as_str(), "from 0 to 1000", USAGE];
        wrong("timers", ["--scale", factor], &expected);
    }
    wrong("timers", ["--slow"], &["\"--slow\"", USAGE]);
    wrong("timers", ["1"], &["\"1\"", USAGE]);
    wrong("timers", ["--scale", "1", "2"], &["\"2\"", USAGE]);
    let bytes = OsString::from_vec(b"\xff".to_vec());
    wrong("timers", [bytes], &[USAGE]);
}

/// A line of `timers`: when, who, what.
fn timed(line: &str) -> (f64, &str, &str) {
    let parts = || {
        let (time, rest) = line.strip_prefix('[')?.split_once(" s] ")?;
        let (who, what) = rest.split_once(": ")?;
        Some((time.trim().parse().ok()?, who, what))
    };
    parts().unwrap_or_else(|| panic!("no time, name and message: {line:?}"))
}
