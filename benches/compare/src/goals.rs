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

// What was measured (callgrind, and perf's clock where instructions do not tell) of rows that are
// missed. Figures in it are of the machine and the state that it was written on; the tables have
// those of the run.

const WAKES: &str = "\
A round trip is 2,610 user instructions with one pair and 1,590 with 50 (tokio: 3,760 and 2,280), and 30 or 20 locked ones: of \
the 20, 12 are async-task's (state, and the waker's count) and 8 the locks of the two sources; with one pair each of two turns has \
five more, for parking and for the table of sources. No function stands out: reading, waiting, delivering, running and scheduling take \
60 to 130 instructions each time. Tried: a lock whose release is a plain store (1 % with one pair, within the noise with 50); taking \
fewer events at once (nothing with 500 pairs). Not done: keeping a source's waiters with their worker, without any lock, as timers are \
kept.";

const UNIX: &str = "\
As for TCP, beside a kernel that does half the work; and a read is a `recvmsg`, since only that reports that the \
read ended at descriptors that came along, behind which there may be more bytes. It takes 82 ns more than `recv`, \
twice a round trip: 8 % of the raw loop's 2,060. The raw loop takes every short read for the last one. Also measured: `recv` and \
then FIONREAD (154 ns), or trying again (178).";

const SPAWN: &str = "\
One allocation and 1,050 instructions, spread over making, scheduling, running, awaiting and freeing the task. Two locked \
instructions went when tasks began to pass on their reference to the runtime (3 to 5 %).";

const CHANNEL: &str = "\
2,490 instructions a round trip (tokio: 2,700), three fifths of them in async-channel and event-listener, which all \
programs share here; tokio's own channel is in another row.";

const TIMER: &str = "\
For a timer that is made, polled and dropped, a third of the time is the clock: an `Instant` when it is made, and a \
cheaper, coarse reading at its first poll, which has to know whether the deadline has passed. \
Counting the waker up and down is a sixth, the heap a fifth. \
A reset is 206 instructions (tokio: 199): the clock, and a note in the timer's entry, which no longer looks at its node (8 %).";

const TIMERS: &str = "\
Deadlines share a wake-up if they fall in the same 32 µs; a shorter grid is less late for more CPU time: with 20 µs the \
median was 9 µs late at 1.09 × tokio's CPU time, without any 4 µs at 1.5 ×.";

const MEMORY: &str = "\
Asked of malloc for each connection: 136 bytes for the source (168 before its waiters shared a place), 200 for the task, in which \
the program's own future lies; then 16 in the reactor's table, 24 in the worker's list of owned tasks, by which a runtime that \
ends finds them, and malloc's own 8 for each of three allocations, rounded up to 16. None of them stands out.";

const CONNECT: &str = "\
1.4 µs a connection. One system call more than the raw loop: a source is deregistered before it is closed, since a duplicate of its \
descriptor would keep it in the kernel's set. And a task and a source are made and freed.";

const BUSY: &str = "\
Polling gains what parking costs, which depends on the machine: a loop written by hand that polls the same way gains as \
much (`raw-busy` beside `raw`). Waking the core adds 4 µs to a round trip of 7 here; where the goal was set, it added 15 to 6.";

const ECHO: &str = "\
Each connection has a task and a source of its own, which the raw loop does without. Taking 64 events at a time instead of 256, \
as many as tasks are run in a turn, took 12 % off the CPU time (11 rounds, from 0.85 to 0.93). Where the raw loop itself is less than 1.7 × \
smol, that is out of reach. The p99 is the slowest of some 90 rounds of 1,000 answers in 300 ms, so that a single interruption \
decides it: of nearly all programs it is anything from 1.0 to 3.8 times the p50.";
