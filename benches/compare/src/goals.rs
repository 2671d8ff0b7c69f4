//! What polder is to reach, beside whom, and what it does reach.

use crate::results::{Results, Spread, number, ratio};

pub struct Goal {
    group: &'static str,
    workload: &'static str,
    /// What is compared, for people.
    what: &'static str,
    key: &'static str,
    program: &'static str,
    against: Against,
    bound: Bound,
    /// As it was said.
    said: &'static str,
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

/// What was found of a goal.
pub struct Found {
    pub what: String,
    pub goal: String,
    pub value: String,
    pub span: String,
    /// `None`: not measured.
    pub met: Option<bool>,
    /// Why it is missed where it is, and what was tried. Empty where nothing is known.
    pub why: &'static str,
}

const fn pairs(workload: &'static str, what: &'static str, most: f64) -> Goal {
    Goal {
        group: "pairs",
        workload,
        what,
        key: "cpu",
        program: "polder-epoll",
        against: Program("raw"),
        bound: AtMost(most),
        said: "",
    }
}

/// Nanoseconds that were a goal where tokio's current-thread scheduler needed so many: the goal is
/// their ratio.
const fn micro(
    workload: &'static str,
    what: &'static str,
    goal: f64,
    tokio: f64,
    said: &'static str,
) -> Goal {
    Goal {
        group: "micro",
        workload,
        what,
        key: "cpu",
        program: "polder",
        against: Program("tokio"),
        bound: AtMost(goal / tokio),
        said,
    }
}

const fn echo(
    workload: &'static str,
    what: &'static str,
    key: &'static str,
    against: Against,
    bound: Bound,
) -> Goal {
    Goal {
        group: "echo",
        workload,
        what,
        key,
        program: "polder-epoll",
        against,
        bound,
        said: "",
    }
}

const GOALS: &[Goal] = &[
    pairs("tcp-1", "TCP, one pair, to raw", 1.04),
    pairs("tcp-50", "TCP, 50 pairs, to raw", 1.05),
    pairs("tcp-500", "TCP, 500 pairs, to raw", 1.11),
    pairs("unix-1", "Unix, one pair, to raw", 1.08),
    pairs("unix-50", "Unix, 50 pairs, to raw", 1.06),
    pairs("unix-500", "Unix, 500 pairs, to raw", 1.18),
    micro(
        "spawn",
        "Spawn and await one, to tokio",
        120.0,
        222.0,
        "120 ns at tokio's 222",
    ),
    micro(
        "spawn-many",
        "Spawn 10,000, then await, to tokio",
        80.0,
        234.0,
        "80 ns at tokio's 234",
    ),
    micro(
        "yield-many",
        "yield_now, to tokio",
        35.0,
        42.0,
        "35 ns at tokio's 42",
    ),
    micro(
        "channel",
        "Ping-pong over a channel, to tokio",
        165.0,
        170.0,
        "165 ns at tokio's 170",
    ),
    micro(
        "timer",
        "Timer made, polled, dropped, to tokio",
        45.0,
        283.0,
        "45 ns at tokio's 283",
    ),
    micro(
        "timer-reset",
        "Timer reset among 10,000, to tokio",
        45.0,
        69.0,
        "45 ns at tokio's 69",
    ),
    Goal {
        group: "micro",
        workload: "timers",
        what: "100,000 timers: lateness p50, µs",
        key: "p50",
        program: "polder",
        against: Itself,
        bound: AtMost(15.0),
        said: "",
    },
    Goal {
        group: "micro",
        workload: "timers",
        what: "100,000 timers: CPU, to tokio",
        key: "cpu",
        program: "polder",
        against: Program("tokio"),
        bound: AtMost(1.0),
        said: "",
    },
    Goal {
        group: "memory",
        workload: "idle-10000",
        what: "Memory per idle connection beyond the buffer, bytes",
        key: "bytes",
        program: "polder-epoll",
        against: Itself,
        bound: AtMost(300.0),
        said: "",
    },
    echo(
        "small-50",
        "Echo, 50 connections: requests, to raw",
        "rate",
        Program("raw"),
        AtLeast(0.98),
    ),
    echo(
        "small-50",
        "Echo, 50 connections: server CPU, to raw",
        "cpu",
        Program("raw"),
        AtMost(1.03),
    ),
    echo(
        "small-50",
        "Echo, 50 connections: requests, to smol",
        "rate",
        Program("smol"),
        AtLeast(1.3),
    ),
    echo(
        "small-1000",
        "Echo, 1,000 connections: requests, to raw",
        "rate",
        Program("raw"),
        AtLeast(0.98),
    ),
    echo(
        "small-1000",
        "Echo, 1,000 connections: server CPU, to raw",
        "cpu",
        Program("raw"),
        AtMost(1.03),
    ),
    echo(
        "small-1000",
        "Echo, 1,000 connections: requests, to smol",
        "rate",
        Program("smol"),
        AtLeast(1.7),
    ),
    echo(
        "small-1000",
        "Fairness at 1,000: p99 to p50",
        "unfair",
        Itself,
        AtMost(1.25),
    ),
    echo(
        "connect-16",
        "Connect, echo, close: server CPU, to raw",
        "cpu",
        Program("raw"),
        AtMost(1.03),
    ),
    Goal {
        group: "echo",
        workload: "small-1",
        what: "Echo, one connection, busy_poll on: requests, to parking",
        key: "rate",
        program: "polder-epoll-busy",
        against: Program("polder-epoll"),
        bound: AtLeast(3.0),
        said: "",
    },
];

/// All of them, in order.
pub fn found(results: &Results) -> Vec<Found> {
    GOALS.iter().map(|goal| goal.found(results)).collect()
}

impl Goal {
    fn found(&self, results: &Results) -> Found {
        let value = self.value(results);
        let (sign, limit) = match self.bound {
            AtMost(limit) => ("≤", limit),
            AtLeast(limit) => ("≥", limit),
        };
        let show = |value| match self.against {
            Program(_) => ratio(value),
            Itself => number(value),
        };
        let said = match self.said {
            "" => String::new(),
            said => format!(" ({said})"),
        };
        Found {
            what: self.what.into(),
            goal: format!("{sign} {}{said}", show(limit)),
            value: value.map_or("–".into(), |value| show(value.median)),
            span: value.map_or("–".into(), |value| {
                format!("{} – {}", show(value.least), show(value.most))
            }),
            met: value.map(|value| match self.bound {
                AtMost(limit) => value.median <= limit,
                AtLeast(limit) => value.median >= limit,
            }),
            why: self.why(),
        }
    }

    fn why(&self) -> &'static str {
        match (self.group, self.workload) {
            ("pairs", workload) if workload.starts_with("tcp") => WAKES,
            ("pairs", _) => UNIX,
            ("micro", "spawn") => SPAWN,
            ("micro", "channel") => CHANNEL,
            ("micro", "timer" | "timer-reset") => TIMER,
            ("micro", "timers") => TIMERS,
            ("memory", _) => MEMORY,
            ("echo", "connect-16") => CONNECT,
            ("echo", "small-1") => BUSY,
            ("echo", _) => ECHO,
            _ => "",
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

// What profiles (callgrind, and perf's clock where instructions do not tell) say of rows that are missed.
// Figures in it are of the state that it was written in; the tables have those of the run.

const WAKES: &str = "TODO";
const UNIX: &str = "TODO";
const SPAWN: &str = "TODO";
const CHANNEL: &str = "TODO";
const TIMER: &str = "TODO";
const TIMERS: &str = "TODO";
const MEMORY: &str = "TODO";
const CONNECT: &str = "TODO";
const BUSY: &str = "TODO";
const ECHO: &str = "TODO";
