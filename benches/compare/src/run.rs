//! Runs the children round-robin, each with a deadline, and keeps their output.

use std::io::{IsTerminal, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::group::{self, Group, Outcome, Skip, Workload};
use crate::groups::{groups, order};
use crate::machine;
use crate::options::Options;
use crate::report;
use crate::results::{Results, Row, Table, number, ratio};

pub fn main(options: &Options) -> ExitCode {
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> std::io::Result<()> {
    let path = Results::path(options.short)?;
    let mut results = Results::load(&path);
    let wanted: Vec<(Group, Vec<Workload>)> = (groups().into_iter())
        .map(|group| {
            let workloads = options.workloads(&group);
            (group, workloads)
        })
        .collect();
    let children = (wanted.iter().flat_map(|(_, workloads)| workloads))
        .map(|workload| workload.programs.len() * options.rounds(workload))
        .sum();
    let mut progress = Progress::new(children);
    // `ci/figures.sh` reads these lines, and the tables.
    for (name, value) in machine::all() {
        println!("{name}: {value}");
    }
    println!();
    for (group, workloads) in &wanted {
        for workload in workloads {
            let table = measure(group, workload, options, &mut progress)?;
            progress.clear();
            print(&table);
            // A subset of the programs must not replace the whole table.
            if options.are_whole() {
                results.put(table);
                results.arrange(&order());
                results.save(&path)?;
            }
        }
    }
    if options.are_whole() {
        report::write(&results, options)?;
    }
    Ok(())
}

/// Runs all rounds of one workload.
fn measure(
    group: &Group,
    workload: &Workload,
    options: &Options,
    progress: &mut Progress,
) -> std::io::Result<Table> {
    let mut table = Table::new(group.name, workload);
    let rounds = options.rounds(workload);
    let limit = options.millis.map_or(workload.limit, Duration::from_millis);
    for round in 0..rounds {
        for row in &mut table.rows {
            progress.show(&format!(
                "{} {}, round {} of {rounds}: {}",
                group.name,
                workload.name,
                round + 1,
                row.program
            ));
            progress.done += 1;
            if row.skipped.is_none() {
                once(group, workload, row, limit, options)?;
            }
        }
    }
    Ok(table)
}

/// Does one measurement, in a separate process.
fn once(
    group: &Group,
    workload: &Workload,
    row: &mut Row,
    limit: Duration,
    options: &Options,
) -> std::io::Result<()> {
    let (build, program) = options.build(&row.program);
    let mut command = match build {
        Some(path) => Command::new(path),
        None => Command::new(std::env::current_exe()?),
    };
    command
        .args(["measure", group.name, &workload.name, program])
        .arg("--millis")
        .arg(limit.as_millis().to_string());
    let said = said(&mut command, workload.deadline);
    match said.and_then(|said| result(&said)) {
        Ok(Ok(values)) => row.rounds.push(Some(values)),
        Ok(Err(Skip(why))) => row.skipped = Some(why),
        Err(why) => {
            eprintln!("\r{} {} {}: {why}", group.name, workload.name, row.program);
            row.rounds.push(None);
            // It would hang again, and each time takes its deadline.
            if row.rounds.iter().filter(|round| round.is_none()).count() == 2 {
                row.skipped = Some(why);
            }
        }
    }
    Ok(())
}

fn result(said: &str) -> Result<Outcome, String> {
    (said.lines().last())
        .and_then(group::parse)
        .ok_or("it gave no result".into())
}

/// Returns the output of a child until it ends. After the deadline it is killed, with all processes
/// that it started.
pub fn said(command: &mut Command, deadline: Duration) -> Result<String, String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // A process group, so that it can be killed with its own children.
        .process_group(0)
        .spawn()
        .map_err(|error| error.to_string())?;
    let said = read(&mut child, deadline);
    // In either case, kill it and what it started. It was not waited for, so its id is still valid.
    // SAFETY: a system call without pointers.
    unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
    let status = child.wait().map_err(|error| error.to_string())?;
    match said {
        None => Err(format!("ended after {deadline:?}: it hung")),
        Some(said) if said.is_empty() => Err(format!("{status}")),
        Some(said) => Ok(said),
    }
}

fn read(child: &mut Child, deadline: Duration) -> Option<String> {
    let mut stdout = child.stdout.take()?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.read_to_string(&mut text);
        let _ = sender.send(read.map(|_| text));
    });
    receiver.recv_timeout(deadline).ok()?.ok()
}

/// A progress line on standard error: rewritten on a terminal, otherwise printed now and then.
struct Progress {
    start: Instant,
    said: Option<Instant>,
    done: usize,
    all: usize,
}

impl Progress {
    fn new(all: usize) -> Progress {
        Progress {
            start: Instant::now(),
            said: None,
            done: 0,
            all,
        }
    }

    fn show(&mut self, what: &str) {
        let terminal = std::io::stderr().is_terminal();
        let often = Duration::from_secs(if terminal { 0 } else { 5 });
        if self.said.is_some_and(|said| said.elapsed() < often) {
            return;
        }
        self.said = Some(Instant::now());
        let spent = self.start.elapsed().as_secs();
        let percent = self.done * 100 / self.all.max(1);
        let line = format!(
            "[{percent:>3} %, {:>2}:{:02}] {what}",
            spent / 60,
            spent % 60
        );
        if terminal {
            eprint!("\r\x1b[K{line}");
        } else {
            eprintln!("{line}");
        }
        let _ = std::io::stderr().flush();
    }

    fn clear(&self) {
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
    }
}

/// Prints a table for a terminal.
fn print(table: &Table) {
    let lines = table.cells_of_log();
    let columns = lines[0].len();
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            (lines.iter().map(|line| line[column].chars().count()))
                .max()
                .unwrap_or(0)
        })
        .collect();
    println!("{}: {}", table.group, table.title);
    for line in lines {
        print!("  {:<1$}", line[0], widths[0]);
        for (cell, width) in line.iter().zip(&widths).skip(1) {
            print!("  {cell:>width$}");
        }
        println!();
    }
    let rounds = table.rows.iter().map(|row| row.rounds.len()).max();
    println!("  (medians of {} rounds)", rounds.unwrap_or(0));
    for remark in table.remarks() {
        println!("  ({remark})");
    }
    println!();
}

/// Reports whether two runs agree: for each ratio, the ranges of the rounds overlap, or the medians
/// are within a percent of each other, for counts that are nearly exact.
pub fn agree(old: &Results, new: &Results) -> ExitCode {
    let (mut agreed, mut all) = (0, 0);
    for table in &new.tables {
        let Some(before) = old.table(&table.group, &table.workload) else {
            continue;
        };
        for column in table.columns.iter().filter(|column| column.ratio) {
            let others = |row: &&Row| row.program != table.yardstick;
            for row in table.rows.iter().filter(others) {
                let of = |table: &Table| {
                    let row = table.row(&row.program)?;
                    row.ratios(table.yardstick()?, &column.key)
                };
                let (Some(old), Some(new)) = (of(before), of(table)) else {
                    continue;
                };
                all += 1;
                let exact = (new.median / old.median - 1.0).abs() < 0.01;
                if exact || old.least <= new.most && new.least <= old.most {
                    agreed += 1;
                } else {
                    println!(
                        "{} {} {}, {}: {} ({} – {}), then {} ({} – {})",
                        table.group,
                        table.workload,
                        row.program,
                        column.title,
                        ratio(old.median),
                        number(old.least),
                        number(old.most),
                        ratio(new.median),
                        number(new.least),
                        number(new.most)
                    );
                }
            }
        }
    }
    println!(
        "{agreed} of {all} ratios agree: their spreads overlap, or they differ by less than 1 %"
    );
    if agreed == all {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
