//! Panics of a world's code: which of them fail the run, and where each came from.
//!
//! The panic hook notes each panic of the thread
//! ([`note_panic`](super::panic_sites::note_panic)). A later report of it has only its message, by
//! which its site is found. The panic of a task is delivered when the task is awaited; one that is
//! neither delivered nor reported until everything was dropped fails the run.

use std::panic::Location;

use super::panic_sites::site_of;
use super::thread::{fail_as, with};

/// The beginning of the cause of a failure by a panic, which its place follows.
pub(crate) const PANIC_AT: &str = "a panic at ";

/// Fails the run because of a panic.
pub(crate) fn fail_by_panic(words: &str, reason: impl FnOnce() -> String) {
    let site = site_of(words);
    fail_as(site.map(|site| format!("{PANIC_AT}{site}")), None, reason);
}

/// Fails the run because of the panic of a process, or of a task that is never awaited, unless the
/// test permits panics.
pub(crate) fn fail_unless_permitted(words: &str, reason: impl FnOnce() -> String) {
    if with(|kernel| kernel.core.report.panics.are_permitted) == Some(false) {
        fail_by_panic(words, reason);
    }
}

/// Notes that a task has ended with a panic, which is delivered when the task is awaited.
pub(crate) fn task_has_panicked(site: &'static Location<'static>, words: &str) {
    with(|kernel| {
        let panics = &mut kernel.core.report.panics;
        panics.held.push((site, words.to_owned()));
    });
}

/// Notes that such a panic was delivered, or is being reported.
pub(crate) fn panic_is_taken(site: &'static Location<'static>, words: &str) {
    with(|kernel| {
        let held = &mut kernel.core.report.panics.held;
        let is_it = |panic: &(_, String)| panic.0 == site && panic.1 == words;
        if let Some(place) = held.iter().rposition(is_it) {
            held.remove(place);
        }
    });
}

/// Fails the run if a panic was neither awaited nor reported when everything was dropped: the
/// handle of its task was forgotten, or is part of a cycle.
pub(crate) fn fail_by_held_panic() {
    let held = with(|kernel| std::mem::take(&mut kernel.core.report.panics.held));
    if let Some((site, words)) = held.unwrap_or_default().first() {
        fail_unless_permitted(words, || {
            format!(
                "the task spawned at {site} panicked, and its handle was forgotten, or keeps itself \
                 alive: {words}"
            )
        });
    }
}

/// Fails the run because of a contained panic: foreign code panicked when polder called it. Such
/// panics are ignored while a killed process is dropped, as in reality no destructor would have
/// run.
pub(crate) fn panic_was_contained(words: &str) {
    let counts = with(|kernel| {
        let panics = &kernel.core.report.panics;
        !panics.drops_killed && !panics.are_permitted
    });
    if counts != Some(true) {
        return;
    }
    let cause = match site_of(words) {
        Some(site) => format!("a panic at {site}"),
        None => "a panic".into(),
    };
    let reason = format!("{cause}, which was contained: {words}");
    fail_as(Some(cause), None, || reason);
}

/// Runs the destructors of a killed process. In reality they would not run, so their panics are
/// ignored.
pub(crate) fn as_killed(f: impl FnOnce()) {
    let set = |is_killed| {
        with(|kernel| {
            let drops_killed = &mut kernel.core.report.panics.drops_killed;
            std::mem::replace(drops_killed, is_killed)
        })
    };
    let before = set(true);
    f();
    set(before.unwrap_or_default());
}
