//! [`Report`]: the result of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use super::picture::Scene;
use crate::world::answers::Asked;
use crate::world::coverage::Feature;
use crate::world::faults::{FaultFilter, Id, Kind};
use crate::world::schedule::Schedule;
use crate::world::seconds::{Seconds, nanos};
use crate::world::setup::Setup;
use crate::world::trace::{Difference, Recorded};

/// The result of a run of one seed, returned by [`run`](super::run).
///
/// ```
/// let report = polder_sim::run(7, |sim| async move {
///     sim.sleep(std::time::Duration::from_secs(60)).await;
///     assert!(sim.now().as_secs() < 60, "too late");
/// });
/// assert_eq!((report.seed, report.time.as_secs()), (7, 60));
/// let failure = report.failure.unwrap();
/// assert!(failure.contains("too late") && failure.contains("the last events"));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// A hash of everything that has happened. It is the same for each run of the same seed.
    pub fingerprint: u64,
    /// The time that has passed in the world.
    pub time: Duration,
    /// The number of events: tasks polled, segments that arrived, faults.
    pub events: u64,
    /// The failure, if any, with the last events and what each host was doing.
    pub failure: Option<String>,
    pub(super) sometimes: Vec<(String, bool)>,
    /// How often the kinds of chaos that were on have struck, by name.
    pub(super) strikes: BTreeMap<&'static str, usize>,
    pub(super) recorded: Recorded,
    pub(super) has_diverged: bool,
    /// Whether the next world may run on this one's thread: see
    /// [`Sim::share_thread`](super::Sim::share_thread).
    pub(super) shares_thread: bool,
    /// The event at which the run differs from the one before, if it does.
    pub(super) difference: Option<Difference>,
    /// Observations in this run that may explain why another one differs.
    pub(super) seen: Vec<String>,
    /// How often the C library was called, if the world answers for it.
    pub(crate) asked: Option<Asked>,
    /// Actions that may be the reason of a failure, a line each.
    pub(super) remarks: BTreeSet<&'static str>,
    /// The choices of a run that is one of all: see [`Sim::exhaustive`](super::Sim::exhaustive).
    pub(super) schedule: Option<Box<Schedule>>,
    /// The features of the run, if it notes them.
    pub(super) covered: Vec<Feature>,
    /// The first choices of the test.
    pub(super) choices: Vec<u64>,
    /// The faults of the run: their numbers are their places, counted from one.
    pub(super) faults: Vec<Id>,
    /// Whether there were more faults, which have no numbers.
    pub(super) has_unlisted: bool,
    pub(super) details: Option<Box<Details>>,
    /// The contents of a picture, if the run was recorded.
    pub(super) scene: Option<Box<Scene>>,
}

/// The report of a run that has failed, in its parts.
#[derive(Clone, Debug)]
pub(super) struct Details {
    /// Identifies the reason: the same for another run that fails for the same reason.
    pub(super) cause: String,
    /// The line with the failure and its time.
    pub(super) head: String,
    /// The faults, in words.
    pub(super) faults: Vec<String>,
    /// The draws of chaos, the wakes that have bypassed the network, actions that may be the
    /// reason, the last events, and what each host was doing.
    pub(super) rest: String,
}

/// Maximum number of faults that a report lists.
pub(super) const MAX_TOLD: usize = 12;

impl Report {
    /// Adds which conditions were true.
    pub(super) fn add_sometimes(&self, all: &mut BTreeMap<String, bool>) {
        for (name, was_true) in &self.sometimes {
            *all.entry(name.clone()).or_default() |= was_true;
        }
    }

    /// Returns the report of its failure, with all faults, or only those of `needed`, and with a
    /// narrative. With a smaller run that fails in the same way it is about that one.
    pub(super) fn text(
        &self,
        needed: Option<&FaultFilter>,
        narrative: &str,
        smaller: Option<&Report>,
    ) -> String {
        let shown = smaller.unwrap_or(self);
        let Some(details) = &shown.details else {
            return self.failure.clone().unwrap_or_default();
        };
        let mut text = details.head.clone();
        if smaller.is_some() {
            let at = Seconds(nanos(self.time));
            let _ = writeln!(
                text,
                "  (This is the shrunk run. The whole one failed at {at}.)"
            );
        }
        for (word, is_operation) in [("fault", false), ("operation", true)] {
            let is_it = |id: &Id| (id.0 == Kind::Operation) == is_operation;
            let count = self.faults.iter().filter(|id| is_it(id)).count();
            if count == 0 {
                continue;
            }
            let is_told = |id: &Id| is_it(id) && needed.is_none_or(|needed| needed.contains(id));
            let told: Vec<&str> = (shown.faults.iter().zip(&details.faults))
                .filter(|(id, _)| is_told(id))
                .map(|(_, words)| words.as_str())
                .collect();
            let plural = if count == 1 { "" } else { "s" };
            let _ = write!(text, "  {count} {word}{plural}");
            let _ = match needed {
                None => write!(text, ": "),
                Some(_) if told.is_empty() => write!(text, ", none of them needed"),
                Some(_) => write!(text, ", {} of them needed: ", told.len()),
            };
            text += &told[..told.len().min(MAX_TOLD)].join("; ");
            let _ = match told.len().saturating_sub(MAX_TOLD) {
                0 => writeln!(text),
                more => writeln!(text, "; and {more} more"),
            };
        }
        text + narrative + &details.rest
    }
}

/// Runs a test with a seed.
pub(super) type Run<'a> = dyn Fn(u64, Setup) -> Report + Sync + 'a;
