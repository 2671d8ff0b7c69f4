//! The table at the top of the page: a handful of results, four programs, ratios in words.

use crate::plot::{Bar, Panel};
use crate::results::{Results, Row, Table, number};

/// The columns.
pub const PROGRAMS: [&str; 4] = ["polder", "tokio", "smol", "by hand"];

/// One result that a visitor may want to know.
struct Line {
    what: &'static str,
    group: &'static str,
    workload: &'static str,
    key: &'static str,
    /// In the order of the columns; empty if there is no such program.
    programs: [&'static str; 4],
    /// The index of the program that the others are compared with.
    yardstick: usize,
    /// The unit of the yardstick's value: its divisor and its name.
    unit: (f64, &'static str),
    /// Whether less is better.
    less: bool,
}

const TOKIO: usize = 1;
const RAW: usize = 3;

const SOCKETS: [&str; 4] = ["polder-epoll", "tokio", "smol", "raw"];
const TASKS: [&str; 4] = ["polder", "tokio", "smol", ""];

const LINES: &[Line] = &[
    Line {
        what: "64 bytes to and fro over TCP, 50 connections: CPU time",
        group: "pairs",
        workload: "tcp-50",
        key: "cpu",
        programs: SOCKETS,
        yardstick: RAW,
        unit: (1e3, "µs"),
        less: true,
    },
    Line {
        what: "the same over Unix sockets",
        group: "pairs",
        workload: "unix-50",
        key: "cpu",
        programs: SOCKETS,
        yardstick: RAW,
        unit: (1e3, "µs"),
        less: true,
    },
    Line {
        what: "echo server, 1,000 connections: requests per second",
        group: "echo",
        workload: "small-1000",
        key: "rate",
        programs: SOCKETS,
        yardstick: RAW,
        unit: (1.0, ""),
        less: false,
    },
    Line {
        what: "HTTP by hyper, two workers: 99 of 100 requests take at most",
        group: "http",
        workload: "http-2-50",
        key: "p99",
        programs: ["polder", "tokio", "", ""],
        yardstick: TOKIO,
        unit: (1e3, "ms"),
        less: true,
    },
    Line {
        what: "spawn a task and await it",
        group: "micro",
        workload: "spawn",
        key: "cpu",
        programs: TASKS,
        yardstick: TOKIO,
        unit: (1.0, "ns"),
        less: true,
    },
    Line {
        what: "set a timer, and drop it",
        group: "micro",
        workload: "timer",
        key: "cpu",
        programs: TASKS,
        yardstick: TOKIO,
        unit: (1.0, "ns"),
        less: true,
    },
    Line {
        what: "64 pairs of tasks that talk over channels, two workers",
        group: "workers",
        workload: "w2-channels-64",
        key: "ns",
        programs: TASKS,
        yardstick: TOKIO,
        unit: (1.0, "ns"),
        less: true,
    },
    Line {
        what: "memory of an idle connection, beyond its buffer",
        group: "memory",
        workload: "idle-10000",
        key: "bytes",
        programs: ["polder-epoll", "tokio", "smol", "raw-own"],
        yardstick: TOKIO,
        unit: (1.0, "bytes"),
        less: true,
    },
];

impl Line {
    fn rows<'a>(&self, results: &'a Results) -> Option<(&'a Table, &'a Row)> {
        let table = results.table(self.group, self.workload)?;
        Some((table, table.row(self.programs[self.yardstick])?))
    }
}

/// Returns the table's lines, without its head. Lines that were not measured are left out.
pub fn table(results: &Results) -> Vec<Vec<String>> {
    (LINES.iter())
        .filter_map(|line| {
            let (table, yardstick) = line.rows(results)?;
            let own = yardstick.values(line.key)?;
            let mut cells = vec![line.what.to_string()];
            for (place, program) in line.programs.iter().enumerate() {
                let ratios = (table.row(program)).and_then(|row| row.ratios(yardstick, line.key));
                let (by, unit) = line.unit;
                cells.push(match ratios {
                    _ if place == line.yardstick => {
                        let own = format!("{} {unit}", number(own.median / by));
                        format!("**{}**", own.trim_end())
                    }
                    Some(ratios) => words(ratios.median),
                    None => "–".into(),
                });
            }
            Some(cells)
        })
        .collect()
}

/// Returns the same as bars, without the lines in which more is better.
pub fn panels(results: &Results) -> Vec<Panel> {
    (LINES.iter().filter(|line| line.less))
        .filter_map(|line| {
            let (table, yardstick) = line.rows(results)?;
            let bars: Vec<Bar> = (line.programs.iter().zip(PROGRAMS))
                .filter_map(|(program, title)| {
                    Some(Bar {
                        program: match title {
                            "by hand" => "raw".into(),
                            title => title.into(),
                        },
                        ratios: table.row(program)?.ratios(yardstick, line.key)?,
                    })
                })
                .collect();
            (bars.len() > 1).then(|| Panel {
                title: line.what.into(),
                bars,
            })
        })
        .collect()
}

/// Formats a ratio as people say it.
fn words(ratio: f64) -> String {
    let percent = ((ratio - 1.0) * 100.0).round();
    match ratio {
        same if (0.985..1.015).contains(&same) => "the same".into(),
        less if less < 0.35 => match (1.0 / less).round() {
            3.0 => "a third".into(),
            4.0 => "a quarter".into(),
            parts => format!("{parts:.0} × less"),
        },
        less if less < 1.0 => format!("{:.0} % less", -percent),
        more if more < 1.95 => format!("{percent:.0} % more"),
        more => format!("{more:.1} × as much"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_said_in_words() {
        for (ratio, said) in [
            (1.0, "the same"),
            (1.01, "the same"),
            (0.98, "2 % less"),
            (1.073, "7 % more"),
            (0.5, "50 % less"),
            (0.24, "a quarter"),
            (0.1, "10 × less"),
            (2.04, "2.0 × as much"),
        ] {
            assert_eq!(words(ratio), said, "{ratio}");
        }
    }
}
