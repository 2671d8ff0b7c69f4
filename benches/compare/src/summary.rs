//! The table at the top of the page: a handful of results of four programs, each as its median.

use crate::plot::{Bar, Panel};
use crate::results::{Results, Row, Table, number};

/// The columns.
pub const PROGRAMS: [&str; 4] = ["polder", "tokio", "smol", "epoll loop"];

/// One result that a visitor may want to know.
struct Line {
    what: &'static str,
    group: &'static str,
    workload: &'static str,
    key: &'static str,
    /// In the order of the columns; empty if there is no such program.
    programs: [&'static str; 4],
    /// The index of the program with which the others are compared within a round.
    yardstick: usize,
    /// The divisor that gives the unit in `what`.
    by: f64,
    /// Whether less is better.
    less: bool,
}

const TOKIO: usize = 1;
const RAW: usize = 3;

const SOCKETS: [&str; 4] = ["polder-epoll", "tokio", "smol", "raw"];
const TASKS: [&str; 4] = ["polder", "tokio", "smol", ""];

const LINES: &[Line] = &[
    Line {
        what: "64 bytes to and fro over TCP, 50 connections: CPU time, µs",
        group: "pairs",
        workload: "tcp-50",
        key: "cpu",
        programs: SOCKETS,
        yardstick: RAW,
        by: 1e3,
        less: true,
    },
    Line {
        what: "the same over Unix sockets, µs",
        group: "pairs",
        workload: "unix-50",
        key: "cpu",
        programs: SOCKETS,
        yardstick: RAW,
        by: 1e3,
        less: true,
    },
    Line {
        what: "echo server, 1,000 connections: requests per second",
        group: "echo",
        workload: "small-1000",
        key: "rate",
        programs: SOCKETS,
        yardstick: RAW,
        by: 1.0,
        less: false,
    },
    Line {
        what: "HTTP by hyper, two workers, 50 connections: 99th percentile, ms",
        group: "http",
        workload: "http-2-50",
        key: "p99",
        programs: ["polder", "tokio", "", ""],
        yardstick: TOKIO,
        by: 1e3,
        less: true,
    },
    Line {
        what: "spawn a task and await it, ns",
        group: "micro",
        workload: "spawn",
        key: "cpu",
        programs: TASKS,
        yardstick: TOKIO,
        by: 1.0,
        less: true,
    },
    Line {
        what: "set a timer and drop it, ns",
        group: "micro",
        workload: "timer",
        key: "cpu",
        programs: TASKS,
        yardstick: TOKIO,
        by: 1.0,
        less: true,
    },
    Line {
        what: "64 pairs of tasks that talk over channels, two workers, ns",
        group: "workers",
        workload: "w2-channels-64",
        key: "ns",
        programs: TASKS,
        yardstick: TOKIO,
        by: 1.0,
        less: true,
    },
    Line {
        what: "memory of an idle connection, without its buffer, bytes",
        group: "memory",
        workload: "idle-10000",
        key: "bytes",
        programs: ["polder-epoll", "tokio", "smol", "raw-own"],
        yardstick: TOKIO,
        by: 1.0,
        less: true,
    },
];

impl Line {
    fn rows<'a>(&self, results: &'a Results) -> Option<(&'a Table, &'a Row)> {
        let table = results.table(self.group, self.workload)?;
        Some((table, table.row(self.programs[self.yardstick])?))
    }
}

/// Returns the table's lines, without its head. Lines that were not measured are left out. A value
/// is the yardstick's median times the median ratio of a round, since the machine drifts between
/// rounds.
pub fn table(results: &Results) -> Vec<Vec<String>> {
    (LINES.iter())
        .filter_map(|line| {
            let (table, yardstick) = line.rows(results)?;
            let own = yardstick.values(line.key)?.median / line.by;
            let mut cells = vec![format!(
                "{} {}",
                line.what,
                if line.less { "↓" } else { "↑" }
            )];
            cells.extend(line.programs.iter().map(|program| {
                let ratios = (table.row(program)).and_then(|row| row.ratios(yardstick, line.key));
                ratios.map_or("–".into(), |ratios| number(own * ratios.median))
            }));
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
                            "epoll loop" => "raw".into(),
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
