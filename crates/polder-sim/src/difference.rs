//! The first difference between two runs, for a report: two runs of one seed that should be the
//! same, or two variations of a run that the user compares.

use std::fmt::Write;

use super::environment::from_environment;
use super::replay::Replay;
use super::report::{Report, Run};
use crate::world::seconds::{Seconds, nanos};
use crate::world::setup::Setup;
use crate::world::trace::{COMPARED, Comparison, Recorded};

/// Describes the event in which a run differs from the one that it was compared with, and those
/// before it.
pub(super) fn in_words(second: &Report) -> String {
    let at = Seconds(nanos(second.time));
    let mut text = format!("first at {at}, event {}\n", second.events);
    let Some(difference) = &second.difference else {
        if second.has_diverged {
            text += "  It is later than the events of which the words are kept.\n";
        }
        return text;
    };
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

/// Returns the runs that `POLDER_SIM_DIFF` compares.
pub(super) fn runs_from_environment() -> Option<[Replay; 2]> {
    let what = "two runs, as of POLDER_SIM_REPLAY, separated by a space, such as '0x7 0x7:-3'";
    from_environment("POLDER_SIM_DIFF", what, |text| {
        let runs: Option<Vec<Replay>> = text.split_whitespace().map(Replay::parse).collect();
        runs?.try_into().ok()
    })
}

/// Makes two runs, and describes their first difference.
pub(super) fn between(runs: &[Replay; 2], run: &Run<'_>) -> String {
    let [one, other] = runs;
    let in_turn = |replay: &Replay, comparison| {
        let setup = Setup {
            comparison,
            ..Setup::quiet(replay.resolve(run))
        };
        run(replay.seed, setup)
    };
    let mut first = in_turn(one, Comparison::Record(Recorded::default()));
    let recorded = std::mem::take(&mut first.recorded);
    let second = in_turn(other, Comparison::Compare(recorded));
    let end = |report: &Report| {
        let at = Seconds(nanos(report.time));
        let how = if report.failure.is_some() {
            "fails"
        } else {
            "ends"
        };
        format!("{how} at {at} after {} events", report.events)
    };
    let is_same = first.fingerprint == second.fingerprint
        && first.events == second.events
        && first.failure.is_some() == second.failure.is_some();
    let [one, other] = [one, other].map(|run| run.to_string().trim_end_matches(':').to_owned());
    if second.has_diverged {
        format!("{one} and {other} differ {}", in_words(&second))
    } else if is_same {
        format!("{one} and {other} are the same run")
    } else {
        let same = first.events.min(second.events).min(COMPARED as u64);
        let (first, second) = (end(&first), end(&second));
        format!(
            "{one} and {other} have the same first {same} events: the first {first}, the second {second}"
        )
    }
}
