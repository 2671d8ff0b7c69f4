//! What is around a world: the variables of the environment, and the test that runs it.

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
