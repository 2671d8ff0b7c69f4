//! The types of measurements: groups of workloads, each done by several programs; and the line that
//! carries a result back from its process. Knows no group: those are listed in `groups`.

use std::collections::BTreeMap;
use std::time::Duration;

/// A chapter of the report.
pub struct Group {
    pub name: &'static str,
    pub title: &'static str,
    /// What was measured, and how: a paragraph of the report.
    pub about: &'static str,
    /// The workloads; the short mode has fewer.
    pub workloads: fn(short: bool) -> Vec<Workload>,
    /// Measurements that are impossible on this machine, each with the reason: the report lists
    /// them.
    pub missing: fn() -> Vec<String>,
    /// Does one measurement. Runs in a separate process.
    pub measure: fn(&Order) -> Outcome,
}

/// A workload that several programs do: one table of the report.
pub struct Workload {
    /// One word, for the command line: `tcp-50`.
    pub name: String,
    /// For people: `TCP, 50 pairs`.
    pub title: String,
    /// Command-line names, in the order of the table. Programs that may turn out to be unavailable
    /// are included.
    pub programs: Vec<String>,
    /// The program that the others are compared with.
    pub yardstick: String,
    /// The values that a measurement returns, in the order of the columns. The first one is the
    /// result.
    pub metrics: &'static [Metric],
    /// The approximate duration of a measurement, without warm-up.
    pub limit: Duration,
    /// The maximum duration of a measurement, after which it counts as hanging.
    pub deadline: Duration,
    /// A smaller number of rounds than others, because a round is long or exact.
    pub rounds: Option<usize>,
}

/// One of the values that a measurement returns.
pub struct Metric {
    /// One word, for the result line: `ns`.
    pub key: &'static str,
    /// For people: `ns per round trip`.
    pub title: &'static str,
    /// Whether ratios to the yardstick are shown.
    pub ratio: bool,
}

/// The measurement that a child has to make.
pub struct Order {
    pub workload: String,
    pub program: String,
    pub limit: Duration,
}

impl Order {
    /// Returns the number at the end of the workload's name: `tcp-50`.
    pub fn number(&self) -> usize {
        (self.workload.rsplit('-').next())
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("{:?} ends in no number", self.workload))
    }

    /// Returns the error for an unknown program or workload.
    pub fn unknown<T>(&self) -> Result<T, Skip> {
        Err(Skip(format!(
            "{} has no program for {}",
            self.program, self.workload
        )))
    }
}

/// The values of a program in one round, by the metrics' keys.
pub type Values = BTreeMap<String, f64>;

/// Why a program cannot run here. Reported once; the program is then left out.
#[derive(Debug)]
pub struct Skip(pub String);

pub type Outcome = Result<Values, Skip>;

pub fn values<const N: usize>(values: [(&str, f64); N]) -> Values {
    values.map(|(key, value)| (key.to_string(), value)).into()
}

/// Formats the result as one line, the last one that a child prints.
pub fn line(outcome: &Outcome) -> String {
    match outcome {
        Ok(values) => {
            let values: Vec<String> = (values.iter())
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            format!("measured {}", values.join(" "))
        }
        Err(Skip(why)) => format!("skipped {}", why.replace('\n', " ")),
    }
}

/// The inverse of [`line`]; returns `None` for any other line.
pub fn parse(line: &str) -> Option<Outcome> {
    let (kind, rest) = line.split_once(' ')?;
    match kind {
        "measured" => rest
            .split(' ')
            .map(|word| {
                let (key, value) = word.split_once('=')?;
                Some((key.to_string(), value.parse().ok()?))
            })
            .collect::<Option<Values>>()
            .map(Ok),
        "skipped" => Some(Err(Skip(rest.to_string()))),
        _ => None,
    }
}
