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

// What profiles say (callgrind, and perf's clock where instructions do not tell) of rows that are missed.
// Figures in it are of the machine and the state that it was written on; the tables have those of the run.

const WAKES: &str = "\
A task that is woken, reads, writes and waits again is some 750 user instructions (the raw loop: 105), and nine of them \
are locked: two for the source's lock when the event is delivered and two when the task waits again, five for \
async-task's state and the waker's count. With one pair each turn has six more, for parking and for the table of \
sources. Nothing in the profile stands out: reading, waiting, delivering, running and scheduling take 60 to 130 \
instructions each. Tried: a lock whose release is a plain store (1 % with one pair, nothing measurable with 50); \
fewer bytes a source and a task (what 500 pairs gained); taking no more events at once than tasks are run in a turn (3 % \
with 500). Left: sources whose waiters lie with the worker that they wait on, without any lock, as timers do; \
link-time optimisation gains 9 %, and the peers are built without it as well.";

const UNIX: &str = "\
As for TCP, beside a kernel that does half the work; and a read is a `recvmsg`, since only that tells that it ended \
at descriptors that came along, behind which there may be more: 82 ns more than `recv`, twice a round trip, are 8 % of \
the raw loop's 2,060. The raw loop and the peers take every short read for the last one. Tried: `recv` and \
then FIONREAD (154 ns), or trying again (178).";

const SPAWN: &str = "\
One allocation, 1,050 instructions, most of them in async-task. Two locked instructions went when tasks began to hand \
their share of the runtime on (5 %).";

const CHANNEL: &str = "\
2,480 instructions a round trip, two thirds of them in async-channel and event-listener, which all share here; tokio's \
own channel is in another row. What is polder's, two wakes and two runs, is 700.";

const TIMER: &str = "\
Half of it is the clock: an `Instant` at its making, and a cheaper, coarse one at its first poll, which has to tell whether \
the time has come. The rest is counting the waker up and down, and 300 instructions in the heap. A reset is the clock, and a \
note in the timer's entry. Keeping the time of the last turn instead would be wrong by as much as the turn is long.";

const TIMERS: &str = "\
Deadlines share a wake-up if they fall in the same 32 µs; a shorter grid is less late for more CPU time: with 20 µs the \
median was 9 µs late at 1.08 × tokio's CPU time, without any 4 µs at 1.5 ×.";

const MEMORY: &str = "\
By malloc's account: 144 bytes for the source, 208 for the task (64 async-task's and ours, 120 the program's own \
future), 16 in the reactor's table, 24 in the worker's list of live tasks, and 16 that malloc adds to the program's buffer. A source \
was 176 before its waiters shared a place. Below 300 would be without the list, by which a runtime that ends finds \
its tasks, or with source and task in one allocation.";

const CONNECT: &str = "\
One system call more than the raw loop: a source is deregistered before it is closed, since a duplicate of its \
descriptor would keep it in the kernel's set. And a task and a source are made and freed: some 1 µs in all.";

const BUSY: &str = "\
What polling gains is what parking costs, and that is the machine's: a loop written by hand that polls the same way gains as \
much (`raw-busy` beside `raw`). Where the goal was set, waking a core took 15 µs; a host that keeps its guests' cores awake \
for a while takes a third of that.";

const ECHO: &str = "\
Beyond the instructions it is the caches: each connection has a task and a source of its own, six lines that the raw loop has not, \
and with 1,000 of them they are out of the nearest cache when they are wanted again. Taking 64 events at a time instead of 256, \
as many as tasks are run in a turn, gained a tenth of the CPU time. Where the raw loop itself is less than 1.7 × smol, nobody \
reaches that. The p99 is the slowest of some 90 rounds of 1,000 answers in 300 ms: one interruption of the machine decides it, for \
the raw loop too; left alone, this is between 1.05 and 1.3.";
