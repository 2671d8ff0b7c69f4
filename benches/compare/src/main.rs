//! The same programs for polder, its peers and by hand, measured in one run.
//!
//! ```text
//! cargo run --release --manifest-path benches/compare/Cargo.toml -- run
//! ```
//!
//! Every measurement is a child process of its own (`compare measure GROUP WORKLOAD PROGRAM`), so
//! that allocators, thread-locals and runtimes do not disturb each other, and so that a program
//! that cannot run here is left out with a line that says why. The programs of a workload take
//! turns (A B C A B C …), and what counts is the median over the rounds of each round's own ratio.

mod clock;
mod echo;
mod goals;
mod group;
mod instructions;
mod machine;
mod memory;
mod micro;
mod native;
mod pairs;
mod peers;
mod plot;
mod report;
mod results;
mod run;
mod small;
mod workers;

use std::process::ExitCode;
use std::time::Duration;

use group::{Order, Outcome, groups};
use results::Results;

const USAGE: &str = "\
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
    N operations of a workload of pairs or micro, and nothing else: for callgrind, strace, perf
compare serve PROGRAM BUFFER
    an echo server on a port that it prints, until its input ends: what `measure echo` starts
compare native
    builds the peers in C and C++, where that can be";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["run", options @ ..] => {
            let options = run::Options::parse(options);
            // Nothing to be done in the middle of a measurement.
            if !options.short {
                native::main();
            }
            run::main(&options)
        }
        ["report", options @ ..] => {
            let options = run::Options::parse(options);
            let path = Results::path(options.short);
            let written = path.and_then(|path| report::write(&Results::load(&path), &options));
            match written {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("{error}");
                    ExitCode::FAILURE
                }
            }
        }
        ["agree", old, new] => {
            run::agree(&Results::load(old.as_ref()), &Results::load(new.as_ref()))
        }
        ["list", options @ ..] => {
            let options = run::Options::parse(options);
            for group in groups() {
                for workload in options.workloads(&group) {
                    let programs = workload.programs.join(" ");
                    println!("{} {}: {programs}", group.name, workload.name);
                }
            }
            ExitCode::SUCCESS
        }
        ["measure", group, workload, program, options @ ..] => {
            let options = run::Options::parse(options);
            measure(
                group,
                &Order {
                    workload: (*workload).into(),
                    program: (*program).into(),
                    limit: Duration::from_millis(options.millis.unwrap_or(200)),
                },
            )
        }
        ["count", workload, program, count] => {
            let mut order = Order {
                workload: (*workload).into(),
                program: (*program).into(),
                limit: Duration::ZERO,
            };
            if let Err(group::Skip(why)) = instructions::count(&mut order, run::count(count)) {
                println!("skipped {why}");
            }
            // What other threads still do is not to be counted.
            std::process::exit(0)
        }
        ["serve", program, buffer] => match buffer.parse() {
            Ok(buffer @ 1..) => echo::serve::main(program, buffer),
            _ => {
                eprintln!("{buffer} is no size of a buffer");
                ExitCode::from(2)
            }
        },
        ["native"] => native::main(),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn measure(name: &str, order: &Order) -> ExitCode {
    let Some(group) = groups().into_iter().find(|group| group.name == name) else {
        eprintln!("there is no group {name:?}");
        return ExitCode::from(2);
    };
    let outcome: Outcome = (group.measure)(order);
    println!("{}", group::line(&outcome));
    ExitCode::SUCCESS
}
