//! The size of a program: the time to compile an echo server from scratch, its size, and its number
//! of crates.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, io};

use crate::group::{Group, Metric, Order, Outcome, Skip, Workload, values};
use crate::results::Results;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/small");

const PROGRAMS: [&str; 3] = ["polder", "tokio", "smol"];

pub fn group() -> Group {
    Group {
        name: "small",
        title: "Small",
        about: "The same echo server as a package of its own (`benches/compare/small`), which closes a \
                connection that is idle for a minute, built in cargo's release profile with nothing \
                built before and everything downloaded. The size is that of the stripped program; \
                crates are those in `cargo tree` for this platform, without the program itself and \
                without those that only run while it is built. tokio has the features `io-util`, \
                `net`, `rt` and `time`, polder `net` alone; smol has none.\n\n\
                About 380 KiB of each are the standard library's, mostly what it takes to print a \
                backtrace; these a server with a thread for each connection has too. Of the rest \
                of polder's, on Linux, about 20 KiB are the backends poll and select, which are \
                there because the backend is chosen when the program runs, and 1 or 2 busy \
                polling, whether or not any of these is used; 40 are the resolver and its threads, \
                10 what a fork needs, and a third of all the tables for unwinding and the code \
                that they lead to. 75 are due to how the compiler divides the crate: with one code \
                generation unit a program of 790 KiB has 715. What was worth 10 or more each: no \
                channel of the standard library's, names resolved by threads of our own instead of \
                the `blocking` crate's, waiting that is compiled once for all futures, the \
                scheduler of a pool behind pointers, which only a program that builds one links. \
                (A program that binds and connects to a `SocketAddr` only, and not to text, \
                carries no resolver.) Tried and left: locks that are called instead of inlined (2 \
                KiB less), one loop of `block_on` for all futures (1 KiB less, and 5 ns more for \
                each yield), and what gave less than 1 KiB each: fewer iterators, an inbox that is \
                emptied by a plain loop.",
        workloads: |short| {
            let workload = Workload {
                name: "echo".into(),
                title: "An echo server".into(),
                programs: PROGRAMS.map(String::from).into(),
                yardstick: "tokio".into(),
                metrics: &[
                    Metric {
                        key: "seconds",
                        title: "seconds to compile",
                        ratio: true,
                    },
                    Metric {
                        key: "kib",
                        title: "KiB",
                        ratio: true,
                    },
                    Metric {
                        key: "crates",
                        title: "crates",
                        ratio: true,
                    },
                ],
                limit: Duration::from_millis(1),
                deadline: Duration::from_secs(300),
                rounds: Some(3),
            };
            // Compiling takes long.
            if short { Vec::new() } else { vec![workload] }
        },
        missing: Vec::new,
        measure,
    }
}

fn measure(order: &Order) -> Outcome {
    let program = order.program.as_str();
    if !PROGRAMS.contains(&program) {
        return order.unknown();
    }
    let failed = |error: io::Error| Skip(error.to_string());
    cargo("fetch", program, &[])?;
    let target = Results::folder()
        .map_err(failed)?
        .join("small")
        .join(program);
    if target.exists() {
        fs::remove_dir_all(&target).map_err(failed)?;
    }
    let start = Instant::now();
    let place = target.to_string_lossy();
    cargo(
        "build",
        program,
        &["--release", "--offline", "--target-dir", &place],
    )?;
    let seconds = start.elapsed().as_secs_f64();
    let built = target.join("release").join(format!("echo-{program}"));
    let size = fs::metadata(&built).map_err(failed)?.len();
    let _ = fs::remove_dir_all(&target);
    Ok(values([
        ("seconds", seconds),
        ("kib", size as f64 / 1024.0),
        ("crates", crates(program)? as f64),
    ]))
}

/// Returns the number of crates that are linked.
fn crates(program: &str) -> Result<usize, Skip> {
    let options = [
        "--offline",
        "--edges",
        "normal,no-proc-macro",
        "--prefix",
        "none",
    ];
    let tree = cargo("tree", program, &options)?;
    let names: BTreeSet<&str> = (tree.lines())
        .filter_map(|line| line.split(" (").next())
        .filter(|line| !line.is_empty())
        .collect();
    Ok(names.len() - 1)
}

/// Runs cargo and returns its output.
fn cargo(command: &str, program: &str, options: &[&str]) -> Result<String, Skip> {
    let manifest = Path::new(SOURCES).join(program).join("Cargo.toml");
    let output = Command::new("cargo")
        .args([command, "--quiet", "--manifest-path"])
        .arg(manifest)
        .args(options)
        .output()
        .map_err(|error| Skip(format!("cargo: {error}")))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(Skip(format!("cargo {command}: {}", output.status)))
    }
}
