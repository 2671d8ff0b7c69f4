//! What is around a world: the variables of the environment, and the test that runs it.

use std::path::{Path, PathBuf};
use std::{env, thread};

/// Name of the threads of worlds, followed by the seed if a thread has only one.
pub(super) const THREAD: &str = "polder-sim";

/// Returns the name of the test that this thread runs. The harness names the thread after it; the
/// program's first thread is not named after a test. (If the program starts a thread that calls
/// `check`, this is that thread's name.)
pub(super) fn test_name() -> Option<String> {
    let name = thread::current().name()?.to_owned();
    (name != "main" && !name.starts_with(THREAD)).then_some(name)
}

/// Returns the value of an environment variable. An empty one counts as unset. `what` says what the
/// value has to be.
///
/// # Panics
///
/// If it is malformed.
pub(super) fn from_environment<T>(
    name: &str,
    what: &str,
    parse: fn(&str) -> Option<T>,
) -> Option<T> {
    let text = env::var_os(name).filter(|text| !text.is_empty())?;
    let value = text.to_str().and_then(parse);
    Some(value.unwrap_or_else(|| panic!("polder_sim: {name} is {what}: not {text:?}")))
}

/// Returns a number from an environment variable.
pub(super) fn number_from(name: &str) -> Option<u64> {
    from_environment(name, "a number", parse)
}

/// Parses a number: decimal, or hexadecimal after `0x`.
pub(super) fn parse(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Returns the command that runs a test of Cargo's again as it was built. `cargo test NAME` lacks
/// the features and the package, which the program does not know: without them Cargo may build no
/// such test, and report success.
pub(super) fn built(test: Option<String>) -> Option<String> {
    built_by(test, env::current_exe().ok()?)
}

fn built_by(test: Option<String>, program: PathBuf) -> Option<String> {
    let folder = program.parent().and_then(Path::file_name);
    let is_harness = folder.is_some_and(|folder| folder == "deps");
    let (test, program) = (test.filter(|_| is_harness)?, program.display());
    Some(format!(
        "\"{program}\" --exact {test} --include-ignored --nocapture"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program is named if it is one of Cargo's tests.
    #[test]
    fn rerun_command_for_the_test_as_it_was_built() {
        let test = || Some("world::it_ends".to_owned());
        let harness = Path::new("/my target/debug/deps/sim-1f");
        assert_eq!(
            built_by(test(), harness.into()).as_deref(),
            Some(
                "\"/my target/debug/deps/sim-1f\" --exact world::it_ends --include-ignored --nocapture"
            )
        );
        assert_eq!(built_by(None, harness.into()), None);
        let example = Path::new("target/debug/examples/simulated");
        assert_eq!(built_by(test(), example.into()), None);
    }
}
