//! User instructions per operation, counted by callgrind: the slope between N and 2 N operations,
//! so that starting and ending do not count.

use std::process::Command;
use std::time::Duration;

use crate::group::{Group, Metric, Order, Outcome, Skip, Workload, values};
use crate::{micro, pairs};

pub fn group() -> Group {
    Group {
        name: "instructions",
        title: "User instructions",
        about: "Instructions in user mode per operation, of the programs of *Pairs* and *Micro*, \
                counted by `valgrind --tool=callgrind` as the slope between N and 2 N operations. They \
                repeat to a fraction of a percent, however busy the machine is. The kernel's are not \
                among them.",
        workloads,
        measure,
    }
}

/// Name, title, operations.
const ROWS: [(&str, &str, u64); 11] = [
    ("tcp-1", "Round trip over TCP, one pair", 2_000),
    ("tcp-50", "Round trip over TCP, 50 pairs", 5_000),
    ("unix-1", "Round trip over Unix sockets, one pair", 2_000),
    ("unix-50", "Round trip over Unix sockets, 50 pairs", 5_000),
    ("spawn", "Spawn and await one", 20_000),
    ("spawn-many", "Spawn 10,000, then await, each", 20_000),
    ("yield-many", "yield_now, 100 tasks by turns", 50_000),
    ("channel", "Ping-pong over a channel", 20_000),
    ("oneshot", "Oneshot from a new task", 20_000),
    ("timer", "Timer made, polled once, dropped", 20_000),
    ("timer-reset", "Timer reset, among 10,000", 20_000),
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
                metrics: &[Metric {
                    key: "count",
                    title: "instructions",
                    ratio: true,
                }],
                limit: Duration::from_millis(1),
                deadline: Duration::from_secs(60),
                rounds: Some(if short { 1 } else { 3 }),
            }
        })
        .collect()
}

fn measure(order: &Order) -> Outcome {
    let Some(&(.., count)) = ROWS.iter().find(|(name, ..)| *name == order.workload) else {
        return order.unknown();
    };
    let (few, many) = (counted(order, count)?, counted(order, count * 2)?);
    Ok(values([("count", (many - few) / count as f64)]))
}

/// How many instructions a process with so many operations takes.
fn counted(order: &Order, count: u64) -> Result<f64, Skip> {
    let failed = |what: String| Skip(format!("valgrind: {what}"));
    let this = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(["--log-fd=1", "--"])
        .arg(this)
        .args(["count", &order.workload, &order.program])
        .arg(count.to_string())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if let Some((_, why)) = said.split_once("skipped ") {
        return Err(Skip(why.lines().next().unwrap_or_default().into()));
    }
    let collected = said.lines().find_map(|line| line.split_once("Collected :"));
    (collected.filter(|_| output.status.success()))
        .and_then(|(_, number)| number.trim().parse().ok())
        .ok_or_else(|| failed(output.status.to_string()))
}

/// What is counted: exactly so many operations, without warming up.
pub fn count(order: &mut Order, count: u64) -> Result<(), Skip> {
    let of_pairs = ["tcp-", "unix-"]
        .iter()
        .any(|family| order.workload.starts_with(family));
    let mut run = match of_pairs {
        true => {
            if order.program == "polder" {
                order.program = "polder-epoll".into();
            }
            pairs::ready(order)?
        }
        false => micro::ready(order)?,
    };
    run(count);
    Ok(())
}
