//! The same programs for polder, for its peers and hand-written, measured in one run.
//!
//! ```text
//! cargo run --release --manifest-path benches/compare/Cargo.toml -- run
//! ```
//!
//! Every measurement is a separate child process (`compare measure GROUP WORKLOAD PROGRAM`), so
//! that allocators, thread-locals and runtimes do not disturb each other, and a program that cannot
//! run here is left out with a line that says why. The programs of a workload run round-robin (A B
//! C A B C …), and the result is the median over the rounds of each round's own ratio.
//!
//! Imports point down; `tests/imports.rs` holds them to this order, which it reads from here:
//!
//! ```text
//! main
//! run                                    starts the children, keeps what they say
//! report                                 the page
//! goals                                  those that it compares the results with
//! plot
//! options                                the command line
//! groups                                 the list of all groups, in their order
//! services                               the list of the servers that groups start
//! instructions lto                       groups that run what other groups have
//! pairs micro workers growth files       groups, written against the traits in `program`
//! http light redis proxy udp memory      groups that start servers, or build programs
//! accept                                 the servers' loops, for each runtime
//! echo
//! small machine
//! peers                                  the runtimes' programs
//! native                                 those in C and C++
//! program                                what a runtime is asked for: traits, sockets
//! clock results                          measuring; files of results, medians, ratios
//! group                                  types, and the line of a result: imports nothing of ours
//! ```

mod accept;
mod clock;
mod echo;
mod files;
mod goals;
mod group;
mod groups;
mod growth;
mod http;
mod instructions;
mod light;
mod lto;
mod machine;
mod memory;
mod micro;
mod native;
mod options;
mod pairs;
mod peers;
mod plot;
mod program;
mod proxy;
mod redis;
mod report;
mod results;
mod run;
mod services;
mod small;
mod udp;
mod workers;

use std::process::ExitCode;
use std::time::Duration;

use group::{Order, Outcome, Skip};
use groups::groups;
use options::Options;
use results::Results;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["run", options @ ..] => {
            let options = Options::parse(options);
            // Built now, not in the middle of a measurement.
            if !options.short {
                native::main();
                if options.wants("lto") {
                    lto::main();
                }
            }
            run::main(&options)
        }
        ["report", options @ ..] => {
            let options = Options::parse(options);
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
            let options = Options::parse(options);
            for group in groups() {
                for workload in options.workloads(&group) {
                    let programs = workload.programs.join(" ");
                    println!("{} {}: {programs}", group.name, workload.name);
                }
            }
            ExitCode::SUCCESS
        }
        ["measure", group, workload, program, options @ ..] => {
            let options = Options::parse(options);
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
            if let Err(Skip(why)) = instructions::count(&mut order, options::count(count)) {
                println!("skipped {why}");
            }
            // Work that other threads still do must not be counted.
            std::process::exit(0)
        }
        ["serve", program, buffer] => match buffer.parse() {
            Ok(buffer @ 1..) => echo::serve::main(program, buffer),
            _ => {
                eprintln!("{buffer} is no size of a buffer");
                ExitCode::from(2)
            }
        },
        [command, program, number] if services::is_one(command) => match number.parse() {
            Ok(number @ 1..) => services::main(command, program, number),
            _ => {
                eprintln!("{number} is no number above zero");
                ExitCode::from(2)
            }
        },
        ["native"] => native::main(),
        ["lto"] => lto::main(),
        _ => {
            eprintln!("{}", options::USAGE);
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
