//! User-mode instructions of an operation, counted under callgrind by `ci/instructions.sh --of`.

use std::process::Command;
use std::time::Duration;

use crate::group::{Group, Metric, Order, Outcome, Skip, Workload, values};
use crate::{micro, pairs, workers};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ci/instructions.sh");

pub fn group() -> Group {
    Group {
        name: "instructions",
        title: "Instructions, locks, lines of code",
        about: "What an operation costs in user mode, of the programs of *Pairs*, *Micro* and *Several workers*: instructions; \
                locked ones among them (the C library's own are not counted); and how many 64-byte lines of code \
                are hot, that is, run at least every second time. Counted by `valgrind --tool=callgrind` as the \
                difference between N and 2 N operations (`ci/instructions.sh --of`). They repeat to a fraction of a \
                percent, however busy the machine is. The kernel's are not among them. Of a sleep, the readings of \
                the clock are counted instead. With two workers all threads are counted; valgrind runs one at a time.",
        workloads,
        missing: Vec::new,
        measure,
    }
}

const OPERATION: &[Metric] = &[
    Metric {
        key: "count",
        title: "instructions",
        ratio: true,
    },
    Metric {
        key: "locks",
        title: "locked instructions",
        ratio: false,
    },
    Metric {
        key: "lines",
        title: "hot lines of code",
        ratio: false,
    },
];

const SLEEP: &[Metric] = &[
    Metric {
        key: "reads",
        title: "readings of the clock",
        ratio: true,
    },
    Metric {
        key: "count",
        title: "instructions",
        ratio: true,
    },
];

/// A workload of the group "workers", in which every round trip is two wakes.
const WAKES: &str = "w2-wakes-64";

/// Name, title, operations.
const ROWS: [(&str, &str, u64); 17] = [
    ("tcp-1", "Round trip over TCP, one pair", 2_000),
    ("tcp-50", "Round trip over TCP, 50 pairs", 5_000),
    ("unix-1", "Round trip over Unix sockets, one pair", 2_000),
    ("unix-50", "Round trip over Unix sockets, 50 pairs", 5_000),
    ("spawn", "Spawn and await one", 20_000),
    ("spawn-many", "Spawn 10,000, then await, each", 20_000),
    ("yield", "yield_now, one task", 50_000),
    ("yield-self", "Yield by waking itself, one task", 50_000),
    ("yield-many", "yield_now, 100 tasks by turns", 50_000),
    ("channel", "Ping-pong over async-channel", 20_000),
    ("mpsc", "Ping-pong over futures-channel's mpsc", 20_000),
    ("oneshot", "Oneshot from a new task", 20_000),
    ("timer", "Timer made, polled once, dropped", 20_000),
    (
        "timer-reset",
        "Timer reset and polled, among 10,000",
        20_000,
    ),
    ("timeout", "A yield under a timeout", 20_000),
    ("sleep", "Sleep of a millisecond", 100),
    (WAKES, "Wake of a task, 64 pairs, two workers", 64_000),
];

fn workloads(short: bool) -> Vec<Workload> {
    (ROWS.iter())
        .filter(|(name, ..)| !short || ["tcp-1", "spawn"].contains(name))
        .map(|(name, title, _)| {
            let raw = title.starts_with("Round trip").then_some("raw");
            let programs = raw.into_iter().chain(["polder", "tokio", "smol"]);
            Workload {
                name: (*name).into(),
                title: (*title).into(),
                programs: programs.map(String::from).collect(),
                yardstick: "tokio".into(),
                metrics: if *name == "sleep" { SLEEP } else { OPERATION },
                limit: Duration::from_millis(1),
                deadline: Duration::from_secs(120),
                rounds: Some(if short { 1 } else { 3 }),
            }
        })
        .collect()
}

fn measure(order: &Order) -> Outcome {
    let Some(&(.., count)) = ROWS.iter().find(|(name, ..)| *name == order.workload) else {
        return order.unknown();
    };
    let failed = |what: &str| Skip(format!("callgrind: {what}"));
    for (tool, package) in [("valgrind", "valgrind"), ("objdump", "binutils")] {
        let tried = Command::new(tool).arg("--version").output();
        tried.map_err(|_| {
            Skip(format!(
                "there is no {tool} (Debian: apt-get install {package})"
            ))
        })?;
    }
    let this = std::env::current_exe().map_err(|error| failed(&error.to_string()))?;
    let output = Command::new(SCRIPT)
        .arg("--of")
        .arg(count.to_string())
        .arg(this)
        .args(["count", &order.workload, &order.program])
        .output()
        .map_err(|error| failed(&error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let figures: Vec<f64> = (said.split_whitespace())
        .filter_map(|word| word.parse().ok())
        .collect();
    match figures[..] {
        [count, locks, lines, reads] if output.status.success() => Ok(values([
            ("count", count),
            ("locks", locks),
            ("lines", lines),
            ("reads", reads),
        ])),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            match said.lines().last() {
                Some(line) => Err(match line.split_once("skipped ") {
                    Some((_, why)) => Skip(why.into()),
                    None => failed(line),
                }),
                None => Err(failed(&output.status.to_string())),
            }
        }
    }
}

/// Does exactly `count` operations, without warming up: the part that is counted.
pub fn count(order: &mut Order, count: u64) -> Result<(), Skip> {
    let of_pairs = ["tcp-", "unix-"]
        .iter()
        .any(|family| order.workload.starts_with(family));
    if of_pairs && order.program == "polder" {
        order.program = "polder-epoll".into();
    }
    match order.workload.as_str() {
        _ if of_pairs => pairs::ready(order)?(count),
        WAKES => workers::ready(order)?(count / 2),
        _ => micro::ready(order)?(count),
    };
    Ok(())
}
