//! The command line.

use crate::group::{Group, Workload};
use crate::groups::groups;

pub const USAGE: &str = "\
compare run [--short] [--only GROUP[,GROUP]] [--workload TEXT] [--program TEXT] [--rounds N]
            [--millis N] [--out FILE]
    measures, prints, and writes the report
compare report [--short] [--out FILE]
    writes the report from the results of earlier runs
compare agree OLD NEW
    whether the results of two runs (copies of results.json) agree within their spread
compare list [--short]
    what there is to measure
compare measure GROUP WORKLOAD PROGRAM [--millis N]
    one measurement, in this process: what `run` starts
compare count WORKLOAD PROGRAM N
    N operations of a workload of instructions, and nothing else: for callgrind, strace, perf
compare serve PROGRAM BUFFER
    an echo server on a port that it prints, until its input ends: what `measure echo` starts
compare serve-http|serve-https|serve-redis PROGRAM WORKERS
compare serve-udp PROGRAM SIZE
compare serve-proxy PROGRAM PORT
    other servers, which end as that does: what `measure http`, `udp` and so on start
compare native
    builds the peers in C and C++, where that can be
compare lto
    builds this program with link-time optimisation, for the chapter on it";

/// The default number of rounds: in full, and in short.
const ROUNDS: [usize; 2] = [9, 3];

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
    /// Parses the words; prints the usage and exits if they are invalid.
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
                "--rounds" => options.rounds = Some(count(&value()) as usize),
                "--millis" => options.millis = Some(count(&value())),
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

    /// Returns whether anything of this group is wanted.
    pub fn wants(&self, group: &str) -> bool {
        let named = |only: &Vec<String>| only.iter().any(|name| name == group);
        self.only.as_ref().is_none_or(named)
    }

    /// Returns the wanted workloads of a group.
    pub fn workloads(&self, group: &Group) -> Vec<Workload> {
        if !self.wants(group.name) {
            return Vec::new();
        }
        let wanted = |text: &Option<String>, name: &str| {
            (text.as_ref()).is_none_or(|text| name.contains(text.as_str()))
        };
        let mut workloads = (group.workloads)(self.short);
        workloads.retain(|workload| wanted(&self.workload, &workload.name));
        for workload in &mut workloads {
            let yardstick = workload.yardstick.clone();
            (workload.programs)
                .retain(|program| *program == yardstick || wanted(&self.program, program));
        }
        workloads
    }

    pub fn rounds(&self, workload: &Workload) -> usize {
        let rounds = self.rounds.unwrap_or(ROUNDS[usize::from(self.short)]);
        workload.rounds.map_or(rounds, |most| rounds.min(most))
    }
}

pub fn count(text: &str) -> u64 {
    (text.parse().ok())
        .filter(|&number| number > 0)
        .unwrap_or_else(|| wrong(&format!("{text} is no number above zero")))
}

fn wrong(what: &str) -> ! {
    eprintln!("{what}\n{}", USAGE);
    std::process::exit(2)
}
