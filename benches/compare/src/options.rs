//! The command line.

use std::path::{Path, PathBuf};

use crate::group::{Group, Workload};
use crate::groups::groups;

pub const USAGE: &str = "\
compare run [--short] [--only GROUP[,GROUP]] [--workload TEXT[,TEXT]] [--program TEXT[,TEXT]]
            [--rounds N] [--millis N] [--out FILE] [--beside NAME=PATH]
    measures, prints, and writes the report; a TEXT is a name or, where none is that, a part of names
    --beside, repeatable: also measures, by turns, polder's programs in another build of this
    program, as polder@NAME, and only prints
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
    pub workload: Option<Vec<String>>,
    pub program: Option<Vec<String>>,
    pub rounds: Option<usize>,
    pub millis: Option<u64>,
    pub out: Option<String>,
    /// Other builds of this program: name and path.
    pub beside: Vec<(String, PathBuf)>,
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
            let split = |texts: String| -> Vec<String> {
                let texts: Vec<String> = texts.split(',').map(String::from).collect();
                if texts.iter().any(String::is_empty) {
                    wrong(&format!("{word} has an empty name"));
                }
                texts
            };
            match word {
                "--short" => options.short = true,
                "--only" => options.only = Some(split(value())),
                "--workload" => options.workload = Some(split(value())),
                "--program" => options.program = Some(split(value())),
                "--beside" => {
                    let (name, path) = beside(&value());
                    if options.beside.iter().any(|(other, _)| *other == name) {
                        wrong(&format!("{name} is beside twice"));
                    }
                    options.beside.push((name, path));
                }
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
        let mut workloads = (group.workloads)(self.short);
        let names = workloads.iter().map(|workload| workload.name.clone());
        let names = chosen(self.workload.as_deref(), names.collect());
        workloads.retain(|workload| names.contains(&workload.name));
        for workload in &mut workloads {
            let wanted = chosen(self.program.as_deref(), workload.programs.clone());
            (workload.programs)
                .retain(|program| *program == workload.yardstick || wanted.contains(program));
            let programs = std::mem::take(&mut workload.programs);
            for program in programs {
                let others: Vec<String> = (self.beside.iter())
                    .filter(|_| program.starts_with("polder"))
                    .map(|(name, _)| format!("{program}@{name}"))
                    .collect();
                workload.programs.push(program);
                workload.programs.extend(others);
            }
        }
        workloads
    }

    /// Returns the build that measures a program, if it is another one, and the program's name
    /// there.
    pub fn build<'a>(&self, program: &'a str) -> (Option<&Path>, &'a str) {
        let Some((there, build)) = program.split_once('@') else {
            return (None, program);
        };
        let found = self.beside.iter().find(|(name, _)| name == build);
        (found.map(|(_, path)| path.as_path()), there)
    }

    /// Returns whether these options choose whole tables of this build.
    pub fn are_whole(&self) -> bool {
        self.program.is_none() && self.beside.is_empty()
    }

    pub fn rounds(&self, workload: &Workload) -> usize {
        let rounds = self.rounds.unwrap_or(ROUNDS[usize::from(self.short)]);
        workload.rounds.map_or(rounds, |most| rounds.min(most))
    }
}

/// Returns the names that are wanted: those that equal one of the texts, or contain one that equals
/// none.
fn chosen(texts: Option<&[String]>, names: Vec<String>) -> Vec<String> {
    let Some(texts) = texts else { return names };
    let wanted = |name: &String, text: &String| {
        if names.contains(text) {
            name == text
        } else {
            name.contains(text.as_str())
        }
    };
    (names.iter())
        .filter(|name| texts.iter().any(|text| wanted(name, text)))
        .cloned()
        .collect()
}

fn beside(value: &str) -> (String, PathBuf) {
    match value.split_once('=') {
        Some((name, path)) if !name.is_empty() => (name.into(), path.into()),
        _ => wrong(&format!("{value} is no NAME=PATH")),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_wants_itself_and_part_of_names_wants_all() {
        let names = ["rate-1000", "rate-10000", "ticker-10"].map(String::from);
        for (texts, expected) in [
            (vec!["rate-1000"], vec!["rate-1000"]),
            (vec!["rate-"], vec!["rate-1000", "rate-10000"]),
            (
                vec!["ticker", "rate-10000"],
                vec!["rate-10000", "ticker-10"],
            ),
            (vec!["none"], vec![]),
        ] {
            let texts: Vec<String> = texts.into_iter().map(String::from).collect();
            assert_eq!(chosen(Some(&texts), names.to_vec()), expected);
        }
        assert_eq!(chosen(None, names.to_vec()), names);
    }

    #[test]
    fn other_builds_have_rows_of_polder() {
        let words = [
            "--only",
            "light",
            "--workload",
            "w2-rate-1000",
            "--beside",
            "calm=/there",
        ];
        let options = Options::parse(&words);
        let light = groups().into_iter().find(|group| group.name == "light");
        let workloads = options.workloads(&light.expect("it is a group"));
        assert_eq!(
            workloads[0].programs,
            ["polder", "polder@calm", "tokio", "smol"]
        );
        let there = (Some(Path::new("/there")), "polder");
        assert_eq!(options.build("polder@calm"), there);
        assert_eq!(options.build("polder"), (None, "polder"));
        assert!(!options.are_whole());
    }
}
