//! polder's goals, the programs they are relative to, and the results.

mod xeon;
mod zen4;

use crate::results::{Results, Spread, number, ratio};

/// A goal, and how to check it: both sides are the same program doing the same thing.
pub struct Goal {
    group: &'static str,
    workload: &'static str,
    /// The comparison, in words.
    what: &'static str,
    key: &'static str,
    program: &'static str,
    against: Against,
    bound: Bound,
}

enum Against {
    /// The ratio to this program, in the same round.
    Program(&'static str),
    /// The value itself.
    Itself,
}

enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

use Against::{Itself, Program};
use Bound::{AtLeast, AtMost};

/// The result of a goal.
pub struct Found {
    pub what: String,
    /// The one on which the goal was set.
    pub processor: &'static str,
    pub goal: String,
    pub value: String,
    pub span: String,
    /// `None` if it was not measured.
    pub met: Option<bool>,
    /// Why it is missed if it is, and what was tried. Empty if nothing is known.
    pub why: &'static str,
}

/// The goals, by the processor on which they were set: what a locked instruction or a system call
/// costs differs, and so do the ratios.
const GOALS: [(&str, &[Goal]); 2] = [("Xeon", xeon::GOALS), ("Zen 4", zen4::GOALS)];

/// Returns the results of all goals, in order.
pub fn found(results: &Results) -> Vec<Found> {
    (GOALS.into_iter())
        .flat_map(|(processor, goals)| {
            (goals.iter()).map(move |goal| goal.found(processor, results))
        })
        .collect()
}

impl Goal {
    fn found(&self, processor: &'static str, results: &Results) -> Found {
        let value = self.value(results);
        let (sign, limit) = match self.bound {
            AtMost(limit) => ("≤", limit),
            AtLeast(limit) => ("≥", limit),
        };
        let show = |value| match self.against {
            Program(_) => ratio(value),
            Itself => number(value),
        };
        Found {
            what: self.what.into(),
            processor,
            goal: format!("{sign} {}", show(limit)),
            value: value.map_or("–".into(), |value| show(value.median)),
            span: value.map_or("–".into(), |value| {
                format!("{} – {}", show(value.lower), show(value.upper))
            }),
            met: value.map(|value| match self.bound {
                AtMost(limit) => value.median <= limit,
                AtLeast(limit) => value.median >= limit,
            }),
            why: match processor {
                "Xeon" => xeon::why(self.group, self.workload),
                _ => zen4::why(self.group, self.workload),
            },
        }
    }

    fn value(&self, results: &Results) -> Option<Spread> {
        let table = results.table(self.group, self.workload)?;
        let row = table.row(self.program)?;
        match self.against {
            Program(other) => row.ratios(table.row(other)?, self.key),
            Itself => row.values(self.key),
        }
    }
}
