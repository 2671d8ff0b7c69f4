//! What a measurement is: groups of workloads, each done by several programs; and the line in which
//! its result comes back from its process. Knows no group: those are listed in `groups`.

use std::collections::BTreeMap;
use std::time::Duration;

/// A chapter of the report.
pub struct Group {
    pub name: &'static str,
    pub title: &'static str,
    /// What was measured, and how: a paragraph of the report.
    pub about: &'static str,
    /// What there is to do; less of it, in the short mode.
    pub workloads: fn(short: bool) -> Vec<Workload>,
    /// What cannot be measured on this machine, each with the reason: said in the report.
    pub missing: fn() -> Vec<String>,
    /// One measurement. Runs in a process of its own.
    pub measure: fn(&Order) -> Outcome,
}

/// Something that several programs do, one table of the report.
pub struct Workload {
    /// One word, of the command line: `tcp-50`.
    pub name: String,
    /// For people: `TCP, 50 pairs`.
    pub title: String,
    /// Words of the command line, in the order of the table. Those that may turn out not to be
    /// available are here too.
    pub programs: Vec<String>,
    /// The program that the others are compared with.
    pub yardstick: String,
    /// What a measurement gives, in the order of the columns. The first is what counts.
    pub metrics: &'static [Metric],
    /// About how long a measurement is to take, warming up not included.
    pub limit: Duration,
    /// How long a measurement may take at most, before it counts as hanging.
    pub deadline: Duration,
    /// Fewer rounds than others, because a round is long or exact.
    pub rounds: Option<usize>,
}

/// One of the numbers that a measurement gives.
pub struct Metric {
    /// One word, of the result line: `ns`.
    pub key: &'static str,
    /// For people: `ns per round trip`.
    pub title: &'static str,
    /// Whether ratios to the yardstick are shown.
    pub ratio: bool,
}

/// What a child is to measure.
pub struct Order {
    pub workload: String,
    pub program: String,
    pub limit: Duration,
}

impl Order {
    /// The number at the end of the workload's name: `tcp-50`.
    pub fn number(&self) -> usize {
        (self.workload.rsplit('-').next())
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("{:?} ends in no number", self.workload))
    }

    /// What to say where nothing knows of it.
    pub fn unknown<T>(&self) -> Result<T, Skip> {
        Err(Skip(format!(
            "{} has no program for {}",
            self.program, self.workload
        )))
    }
}

/// What a program gave in one round, by the metrics' keys.
pub type Values = BTreeMap<String, f64>;

/// Why a program cannot run here. Said once, and the program is left out.
#[derive(Debug)]
pub struct Skip(pub String);

pub type Outcome = Result<Values, Skip>;

pub fn values<const N: usize>(values: [(&str, f64); N]) -> Values {
    values.map(|(key, value)| (key.to_string(), value)).into()
}

/// In one line, the last that a child prints.
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

/// The reverse of [`line`]; `None` where the line is none of these.
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
