//! [`Report`]: the record of a run: its trace, its failure, and what may explain strange behaviour.
//!
//! The other parts write it, and never read it. The first failure is the one that is reported; the
//! run ends at the next turn after it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::panic::Location;
use std::sync::Arc;

use super::answers::{self, Asked};
use super::buggify::Sites;
use super::coverage::Coverage;
use super::event::Event;
use super::hosts::Hosts;
use super::progress::Progress;
use super::seconds::Seconds;
use super::trace::Trace;

#[derive(Default)]
pub(crate) struct Report {
    pub(crate) trace: Trace,
    /// The world's seed, if each event is printed: it is printed with them.
    logs: Option<u64>,
    /// The events that [`Sim::on_event`](crate::Sim::on_event) has not received yet, if it is in
    /// use.
    unseen: Option<Vec<Event>>,
    /// The first failure, which is the one that is reported.
    pub(crate) failure: Option<Failure>,
    /// Remarks that may explain strange behaviour, for reports.
    pub(crate) remarks: BTreeSet<&'static str>,
    pub(crate) panics: Panics,
    /// The conditions of `sometimes!` by name, and whether each was true.
    pub(crate) assertions: BTreeMap<String, bool>,
    pub(super) sites: Sites,
    pub(crate) progress: Arc<Progress>,
    /// The features that the run has reached, if it notes them.
    pub(crate) coverage: Option<Box<Coverage>>,
    /// Pairs of hosts where code of the first has woken a task of the second directly, with the
    /// time when that happened first.
    shortcuts: BTreeMap<(usize, usize), u64>,
    /// Whether the world answers the C library's calls.
    answers_libc: bool,
}

/// The reason for which a run has failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) reason: String,
    /// The cause that runs have in common if they fail for the same reason: the check's name, or
    /// where a panic came from.
    pub(crate) cause: String,
    /// The time of the failure, if it was found later.
    pub(crate) at: Option<u64>,
}

impl Report {
    /// `logs` is the seed, if each event is printed as it happens.
    pub(super) fn new(trace: Trace, logs: Option<u64>, covers: bool) -> Report {
        Report {
            trace,
            logs,
            coverage: covers.then(Box::default),
            answers_libc: answers::asked() != Asked::default(),
            ..Report::default()
        }
    }

    /// Notes the run's failure, unless there is one.
    #[cold]
    pub(super) fn fail(&mut self, cause: String, at: Option<u64>, reason: String) {
        (self.failure).get_or_insert(Failure { reason, cause, at });
    }

    /// Returns whether the run has come to its end: it has failed, or has diverged.
    pub(super) fn is_over(&self) -> bool {
        self.failure.is_some() || self.trace.has_diverged()
    }

    /// Returns whether events are printed, or kept for an observer.
    #[inline]
    pub(super) fn is_observed(&self) -> bool {
        self.logs.is_some() || self.unseen.is_some()
    }

    /// Prints an event, or keeps it for the observer, as configured.
    pub(super) fn observe(&mut self, event: Event) {
        if let Some(seed) = self.logs {
            // `eprintln!` would not do: the harness holds its output back until the test has ended.
            let line = format!("seed {seed:#x}: {event}\n");
            let _ = io::stderr().write_all(line.as_bytes());
        }
        if let Some(unseen) = &mut self.unseen {
            unseen.push(event);
        }
    }

    /// Keeps events from now on, for [`take_unseen`](Self::take_unseen).
    pub(crate) fn keep_unseen(&mut self) {
        self.unseen.get_or_insert_default();
    }

    /// Takes the events since the last call.
    pub(crate) fn take_unseen(&mut self) -> Vec<Event> {
        self.unseen.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Notes that code of one host has woken a task of another directly. Returns whether that is
    /// new.
    pub(super) fn note_shortcut(&mut self, by: usize, of: usize, now: u64) -> bool {
        let before = self.shortcuts.get(&(by, of)).copied();
        self.shortcuts.insert((by, of), before.unwrap_or(now));
        before.is_none()
    }

    /// Returns the pairs of hosts that have bypassed the network, a line each.
    pub(crate) fn shortcuts(&self, hosts: &Hosts) -> Vec<String> {
        let line = |((by, of), at): (&(usize, usize), &u64)| {
            let (by, of, at) = (hosts.name(*by), hosts.name(*of), Seconds(*at));
            format!("{by} woke a task of {of} directly (first at {at}): a real program cannot")
        };
        self.shortcuts.iter().map(line).collect()
    }

    /// Returns whether a condition of `sometimes!` still has to be evaluated.
    pub(crate) fn asks_for(&mut self, name: &str) -> bool {
        match self.assertions.get(name) {
            Some(was_true) => !was_true,
            None => {
                self.assertions.insert(name.to_owned(), false);
                true
            }
        }
    }

    /// Notes whether a condition of `sometimes!` was met.
    pub(super) fn note_sometimes(&mut self, name: &str, is_so: bool) {
        *self.assertions.entry(name.to_owned()).or_default() |= is_so;
    }

    /// Returns how often the C library was called, if the world answers its calls.
    pub(crate) fn asked_of_libc(&self) -> Option<Asked> {
        self.answers_libc.then(answers::asked)
    }
}

/// The panics of a world, and whether they count.
#[derive(Default)]
pub(crate) struct Panics {
    /// Whether the run goes on after contained panics.
    pub(crate) are_permitted: bool,
    /// Panics of tasks that have ended, neither awaited nor reported yet: where the task was
    /// spawned, and the panic's message.
    pub(super) held: Vec<(&'static Location<'static>, String)>,
    /// Whether the values being dropped now are left from a process that was killed.
    pub(crate) drops_killed: bool,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_condition_is_evaluated_until_it_was_true() {
        let mut report = Report::default();
        assert!(report.asks_for("late") && report.asks_for("late"));
        report.note_sometimes("late", false);
        assert!(report.asks_for("late"));
        report.note_sometimes("late", true);
        report.note_sometimes("late", false);
        assert!(!report.asks_for("late"));
        assert_eq!(report.assertions, [("late".into(), true)].into());
    }

    #[test]
    fn the_first_failure_is_reported() {
        let mut report = Report::default();
        assert!(!report.is_over());
        report.fail("one".into(), Some(7), "the first".into());
        report.fail("other".into(), None, "the second".into());
        let failure = report.failure.as_ref().expect("it has failed");
        assert_eq!((&*failure.cause, failure.at), ("one", Some(7)));
        assert!(report.is_over());
    }

    /// Events are kept for an observer from the moment there is one.
    #[test]
    fn events_kept_once_observer_exists() {
        let mut report = Report::default();
        let event = |seconds| Event {
            time: Duration::from_secs(seconds),
            host: "a".into(),
            words: "starts".into(),
        };
        report.observe(event(1));
        assert!(!report.is_observed() && report.take_unseen().is_empty());
        report.keep_unseen();
        report.observe(event(2));
        report.keep_unseen();
        report.observe(event(3));
        assert_eq!(report.take_unseen(), [event(2), event(3)]);
        assert!(report.take_unseen().is_empty());
    }

    /// A shortcut is reported with the time of its first use.
    #[test]
    fn shortcut_reported_at_first_use() {
        let (mut report, mut hosts) = (Report::default(), Hosts::default());
        assert_eq!(["a", "b"].map(|name| hosts.add(name)), [0, 1]);
        let seen = [5, 9].map(|now| report.note_shortcut(1, 0, now));
        assert_eq!(seen, [true, false]);
        let line = "b woke a task of a directly (first at 0.000000 s): a real program cannot";
        assert_eq!(report.shortcuts(&hosts), [line]);
    }
}
