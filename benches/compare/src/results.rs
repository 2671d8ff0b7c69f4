//! The measurements, as a file, so that single groups may be measured again and the report
//! rewritten; and their medians and ratios.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::group::{Values, Workload};

#[derive(Default, Serialize, Deserialize)]
pub struct Results {
    pub tables: Vec<Table>,
}

/// One workload, with the results of several programs.
#[derive(Serialize, Deserialize)]
pub struct Table {
    pub group: String,
    pub workload: String,
    pub title: String,
    pub yardstick: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct Column {
    pub key: String,
    pub title: String,
    pub ratio: bool,
}

/// One program.
#[derive(Serialize, Deserialize)]
pub struct Row {
    pub program: String,
    /// Its values, round by round; `None` for an aborted round.
    pub rounds: Vec<Option<Values>>,
    /// Why it was left out.
    pub skipped: Option<String>,
}

/// A median, the quartiles around it, and the range of the rounds.
#[derive(Clone, Copy)]
pub struct Spread {
    pub median: f64,
    pub lower: f64,
    pub upper: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (&least, &most) = (values.first()?, values.last()?);
        // Between two values in proportion.
        let at = |share: f64| {
            let place = (values.len() - 1) as f64 * share;
            let (below, above) = (place.floor() as usize, place.ceil() as usize);
            values[below] + (values[above] - values[below]) * place.fract()
        };
        Some(Spread {
            median: at(0.5),
            lower: at(0.25),
            upper: at(0.75),
            least,
            most,
        })
    }
}

impl Row {
    pub fn new(program: &str) -> Row {
        Row {
            program: program.into(),
            rounds: Vec::new(),
            skipped: None,
        }
    }

    fn get(&self, round: usize, key: &str) -> Option<f64> {
        self.rounds.get(round)?.as_ref()?.get(key).copied()
    }

    pub fn values(&self, key: &str) -> Option<Spread> {
        Spread::of(
            (0..self.rounds.len())
                .filter_map(|round| self.get(round, key))
                .collect(),
        )
    }

    /// Returns the ratios to another row, round by round.
    pub fn ratios(&self, to: &Row, key: &str) -> Option<Spread> {
        let ratio = |round| Some(self.get(round, key)? / to.get(round, key)?);
        let ratios = (0..self.rounds.len()).filter_map(ratio);
        Spread::of(ratios.filter(|ratio| ratio.is_finite()).collect())
    }
}

impl Table {
    pub fn new(group: &str, workload: &Workload) -> Table {
        Table {
            group: group.into(),
            workload: workload.name.clone(),
            title: workload.title.clone(),
            yardstick: workload.yardstick.clone(),
            columns: (workload.metrics.iter())
                .map(|metric| Column {
                    key: metric.key.into(),
                    title: metric.title.into(),
                    ratio: metric.ratio,
                })
                .collect(),
            rows: (workload.programs.iter())
                .map(|program| Row::new(program))
                .collect(),
        }
    }

    pub fn row(&self, program: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.program == program)
    }

    /// Returns the row that the others are compared with, if it has values.
    pub fn yardstick(&self) -> Option<&Row> {
        self.row(&self.yardstick)
    }

    /// Returns the lines of the log, the head first. The range of the values and the quartiles of
    /// the ratios have columns. A missing value is a dash.
    pub fn cells_of_log(&self) -> Vec<Vec<String>> {
        self.cells(true)
    }

    /// Returns the lines of the page: as in the log, without ranges, and with the quartiles below
    /// the ratio, since a page is narrow. `ci/figures.sh` reads both.
    pub fn cells_of_page(&self) -> Vec<Vec<String>> {
        self.cells(false)
    }

    fn cells(&self, is_log: bool) -> Vec<Vec<String>> {
        let mut head = vec![String::new()];
        for column in &self.columns {
            head.push(column.title.clone());
            if is_log {
                head.push("min – max".into());
            }
            if column.ratio {
                head.push(format!("ratio to {}", self.yardstick));
            }
            if column.ratio && is_log {
                head.push("quartiles".into());
            }
        }
        let mut lines = vec![head];
        for row in self.rows.iter().filter(|row| row.skipped.is_none()) {
            let mut line = vec![row.program.clone()];
            for column in &self.columns {
                let values = row.values(&column.key);
                line.push(values.map_or("–".into(), |values| number(values.median)));
                if is_log {
                    let range = |values: Spread| {
                        format!("{} – {}", number(values.least), number(values.most))
                    };
                    line.push(values.map_or("–".into(), range));
                }
                if column.ratio {
                    let ratios =
                        (self.yardstick()).and_then(|yardstick| row.ratios(yardstick, &column.key));
                    let median = ratios.map_or("–".into(), |ratios| ratio(ratios.median));
                    match ratios {
                        Some(ratios) if !is_log => {
                            let quartiles = span(ratios).replace(" – ", "–");
                            line.push(format!("{median}<br><sub>{quartiles}</sub>"));
                        }
                        _ => line.push(median),
                    }
                    if is_log {
                        line.push(ratios.map_or("–".into(), span));
                    }
                }
            }
            lines.push(line);
        }
        lines
    }

    /// Returns what is missing, and why.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        for row in &self.rows {
            let broken = row.rounds.iter().filter(|round| round.is_none()).count();
            if let Some(why) = &row.skipped {
                remarks.push(format!("{}: {why}", row.program));
            } else if broken > 0 {
                let rounds = row.rounds.len();
                let program = &row.program;
                remarks.push(format!(
                    "{program}: gave nothing in {broken} of {rounds} rounds"
                ));
            }
        }
        remarks
    }
}

impl Results {
    /// Returns a folder next to the program itself, in cargo's target directory.
    pub fn folder() -> io::Result<PathBuf> {
        let program = std::env::current_exe()?;
        let target = program.ancestors().nth(2).unwrap_or(Path::new("."));
        Ok(target.join("compare"))
    }

    pub fn path(short: bool) -> io::Result<PathBuf> {
        let name = if short { "short.json" } else { "results.json" };
        Ok(Results::folder()?.join(name))
    }

    /// Loads the results; returns none if the file is missing or has another format.
    pub fn load(path: &Path) -> Results {
        let text = fs::read_to_string(path).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub fn save(&self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, serde_json::to_string_pretty(self)?)
    }

    /// Replaces the table of the same workload, or adds it.
    pub fn put(&mut self, table: Table) {
        let same = |old: &&mut Table| old.group == table.group && old.workload == table.workload;
        match self.tables.iter_mut().find(same) {
            Some(old) => *old = table,
            None => self.tables.push(table),
        }
    }

    /// Sorts the tables into this order of groups and workloads. Tables that are not in it are
    /// removed: their workload no longer exists.
    pub fn arrange(&mut self, order: &[(String, String)]) {
        let place = |table: &Table| {
            (order.iter())
                .position(|(group, name)| *group == table.group && *name == table.workload)
        };
        self.tables.retain(|table| place(table).is_some());
        self.tables.sort_by_key(place);
    }

    pub fn table(&self, group: &str, workload: &str) -> Option<&Table> {
        (self.tables.iter()).find(|table| table.group == group && table.workload == workload)
    }
}

/// Formats with the significant digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        small if small < 10.0 => format!("{value:.2}"),
        middle if middle < 100.0 => format!("{value:.1}"),
        _ => {
            let digits = format!("{:.0}", value.abs());
            let mut text = String::from(if value < 0.0 { "-" } else { "" });
            for (place, digit) in digits.chars().enumerate() {
                if place > 0 && (digits.len() - place) % 3 == 0 {
                    text.push(',');
                }
                text.push(digit);
            }
            text
        }
    }
}

pub fn ratio(value: f64) -> String {
    match value.abs() {
        tiny if tiny < 0.1 => format!("{value:.4}"),
        large if large >= 100.0 => number(value),
        _ => format!("{value:.3}"),
    }
}

pub fn span(spread: Spread) -> String {
    format!("{} – {}", ratio(spread.lower), ratio(spread.upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_median_and_the_quartiles() {
        assert!(Spread::of(Vec::new()).is_none());
        for (values, expected) in [
            (vec![3.0], [3.0, 3.0, 3.0]),
            (vec![4.0, 2.0], [2.5, 3.0, 3.5]),
            (vec![5.0, 1.0, 2.0, 4.0, 3.0], [2.0, 3.0, 4.0]),
        ] {
            let spread = Spread::of(values).expect("there are values");
            assert_eq!([spread.lower, spread.median, spread.upper], expected);
        }
    }
}
