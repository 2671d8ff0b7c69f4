//! Runs the children in turns, each with a deadline, and keeps what they say.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::group::{self, Group, Outcome, Values, Workload, groups};

#[derive(Default)]
pub struct Options {
    pub short: bool,
    pub only: Option<Vec<String>>,
    pub workload: Option<String>,
    pub program: Option<String>,
    pub rounds: Option<usize>,
    pub millis: Option<u64>,
    pub out: Option<String>,
}

impl Options {
    /// Explains itself and exits where the words make no sense.
    pub fn parse(words: &[&str]) -> Options {
        let mut options = Options::default();
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            let mut value = || match words.next() {
                Some(value) => value.to_string(),
                None => wrong(&format!("{word} wants a value")),
            };
            match word {
                "--short" => options.short = true,
                "--only" => options.only = Some(value().split(',').map(String::from).collect()),
                "--workload" => options.workload = Some(value()),
                "--program" => options.program = Some(value()),
                "--rounds" => options.rounds = Some(number(&value()) as usize),
                "--millis" => options.millis = Some(number(&value())),
                "--out" => options.out = Some(value()),
                _ => wrong(&format!("{word} is no option")),
            }
        }
        if let Some(name) = (options.only.iter().flatten())
            .find(|name| !groups().iter().any(|group| group.name == **name))
        {
            wrong(&format!("there is no group {name}"));
        }
        options
    }
}

fn number(text: &str) -> u64 {
    (text.parse().ok())
        .filter(|&number| number > 0)
        .unwrap_or_else(|| wrong(&format!("{text} is no number above zero")))
}

fn wrong(what: &str) -> ! {
    eprintln!("{what}\n{}", crate::USAGE);
    std::process::exit(2)
}

/// What a program gave, round by round.
pub struct Row {
    pub program: String,
    pub rounds: Vec<Option<Values>>,
    /// Why it was left out.
    pub skipped: Option<String>,
}

pub fn main(options: &Options) -> ExitCode {
    for group in groups() {
        let wanted = |only: &Vec<String>| only.iter().any(|name| name == group.name);
        if !options.only.as_ref().is_none_or(wanted) {
            continue;
        }
        for workload in (group.workloads)(options.short) {
            let rows = measure(&group, &workload, options);
            for row in rows {
                println!("{} {}: {:?}", group.name, row.program, row.rounds);
            }
        }
    }
    ExitCode::SUCCESS
}

/// All rounds of one workload.
fn measure(group: &Group, workload: &Workload, options: &Options) -> Vec<Row> {
    let rounds = options.rounds.unwrap_or(if options.short { 3 } else { 9 });
    let rounds = workload.rounds.map_or(rounds, |most| rounds.min(most));
    let mut rows: Vec<Row> = (workload.programs.iter())
        .map(|program| Row {
            program: program.clone(),
            rounds: Vec::new(),
            skipped: None,
        })
        .collect();
    for _ in 0..rounds {
        for row in rows.iter_mut().filter(|row| row.skipped.is_none()) {
            match child(group, workload, &row.program, options) {
                Ok(Ok(values)) => row.rounds.push(Some(values)),
                Ok(Err(skip)) => row.skipped = Some(skip.0),
                Err(why) => {
                    eprintln!("{} {} {}: {why}", group.name, workload.name, row.program);
                    row.rounds.push(None);
                }
            }
        }
    }
    rows
}

/// One measurement in a process of its own. `Err`: it said nothing, and why.
fn child(
    group: &Group,
    workload: &Workload,
    program: &str,
    options: &Options,
) -> Result<Outcome, String> {
    let limit = options.millis.map_or(workload.limit, Duration::from_millis);
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut child = Command::new(this)
        .args(["measure", group.name, &workload.name, program, "--millis"])
        .arg(limit.as_millis().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // With what it starts itself, it can be ended as one.
        .process_group(0)
        .spawn()
        .map_err(|error| error.to_string())?;
    let said = said(&mut child, workload.deadline);
    // Whatever happened, it and what it started are gone after this. It was not waited for, so the
    // number is still its own.
    // SAFETY: a system call without pointers.
    unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
    let status = child.wait().map_err(|error| error.to_string())?;
    let said = said.ok_or(format!("killed after {:?}", workload.deadline))?;
    (said.lines().last())
        .and_then(group::parse)
        .ok_or(format!("no result, {status}"))
}

/// What a child prints until it ends, unless that takes too long.
fn said(child: &mut Child, deadline: Duration) -> Option<String> {
    let mut stdout = child.stdout.take()?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.read_to_string(&mut text);
        let _ = sender.send(read.map(|_| text));
    });
    let until = Instant::now() + deadline;
    let left = until.saturating_duration_since(Instant::now());
    receiver.recv_timeout(left).ok()?.ok()
}
