//! The first difference between two runs, for a report: two runs of one seed that should be the
//! same, or two variations of a run that the user compares.

use std::fmt::Write;

use super::check::Run;
use super::replay::Replay;
use crate::world::Setup;
use crate::world::link::nanos;
use crate::world::trace::{Comparison, Difference, Recorded, Seconds};

/// Describes the event in which the second run differs, and those before it.
pub(super) fn in_words(difference: &Difference) -> String {
    let mut text = String::new();
    if !difference.before.is_empty() {
        let _ = write!(text, "  Both had before:\n{}", difference.before);
    }
    let (theirs, ours) = (&difference.theirs, &difference.ours);
    let _ = writeln!(
        text,
        "  The first run had: {theirs}\n  The second has:    {ours}"
    );
    if let Some(task) = &difference.task {
        let _ = writeln!(text, "  That was in a poll of {task}.");
    }
    text
}

/// Runs two variations of a seed, and describes their first difference.
///
/// # Panics
///
/// If `runs` are not two values as of `POLDER_SIM`, separated by a space.
pub(super) fn between(runs: &str, run: &Run<'_>) -> String {
    let parsed: Vec<_> = runs.split_whitespace().map(Replay::parse).collect();
    let [Some(one), Some(other)] = &parsed[..] else {
        panic!(
            "polder::sim: POLDER_SIM_DIFF is two runs, as of POLDER_SIM, separated by a space, \
             such as '0x7 0x7:-3': not {runs:?}"
        );
    };
    let in_turn = |replay: &Replay, comparison| {
        let setup = Setup {
            comparison,
            variation: replay.variation(run),
            is_quiet: true,
            ..Setup::default()
        };
        run(replay.seed, setup)
    };
    let first = in_turn(one, Comparison::Record(Recorded::default()));
    let second = in_turn(other, Comparison::Compare(first.recorded));
    let at = Seconds(nanos(second.time));
    match (&second.difference, second.has_diverged) {
        (Some(difference), _) => {
            let words = in_words(difference);
            format!(
                "{one} and {other} differ first at {at}, event {}\n{words}",
                second.events
            )
        }
        (None, true) => format!("{one} and {other} differ first at {at}, later than is kept"),
        (None, false) => format!("{one} and {other} are the same run"),
    }
}
