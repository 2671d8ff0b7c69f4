//! The report of a failure of the example of docs/SIMULATION.md.

use super::failing::{in_a_process, is_inner, variable};

#[path = "../planted/counter.rs"]
mod counter;

/// The report of a failure shows all that is known of it.
///
/// The example with its bug, and the contents that the report must have.
#[test]
fn failure_report_shows_everything() {
    let name = "example::failure_report_shows_everything";
    if is_inner() {
        return polder_sim::check(0..1_000, |sim| counter::test(sim, true));
    }
    let (passes, text) = in_a_process(name, &[]);
    assert!(!passes, "the bug is not found: {text}");
    let report = &text[text.find("\nseed 0x").unwrap_or_else(|| panic!("{text}"))..];
    for words in [
        " failed at ",
        "the history is not linearizable: no order of the operations",
        "<== not explained",
        " of them needed: ",
        "  chaos from ",
        "    cuts: ",
        "    crashes: ",
        "  the last events:",
        "  the hosts:",
        "  timeline: ",
        "  Perfetto: ",
    ] {
        assert!(report.contains(words), "{words:?} is missing: {report}");
    }
    let seed = report.split_whitespace().nth(1).unwrap();
    let replay = format!("  replay: POLDER_SIM_SEED={seed} cargo test {name}");
    assert!(report.contains(&replay), "{report}");
    let as_built = format!("  as built: POLDER_SIM_SEED={seed} ");
    let program = report.lines().find_map(|it| it.strip_prefix(&as_built));
    let ending = format!(" --exact {name} --include-ignored --nocapture");
    assert!(program.is_some_and(|it| it.ends_with(&ending)), "{report}");
    // The pictures exist.
    let file = |label: &str| {
        let path = report.lines().find_map(|it| it.strip_prefix(label));
        std::fs::read_to_string(path.unwrap_or_else(|| panic!("{report}"))).unwrap()
    };
    let page = file("  timeline: ");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("not linearizable"));
    assert!(file("  Perfetto: ").contains("\"process_name\""));
    // The seed fails again, whole and shrunk.
    let (passes, again) = in_a_process(name, &[("POLDER_SIM_SEED", seed)]);
    assert!(!passes && again.contains(&replay), "{again}");
    let (passes, again) = in_a_process(name, &[("POLDER_SIM_REPLAY", variable(report, "shrunk"))]);
    assert!(!passes && again.contains("<== not explained"), "{again}");
}
