//! Two detached tasks, and a loop that ends when no task is left.
//!
//! ```text
//! cargo run --release --example timers -- [--scale FACTOR]
//! ```
//! "Work" sleeps for 1 s and then 3 s, "Work2" for 1 s and then 2 s; so Work2 finishes first.
//! `--scale 0.1` makes it ten times as fast.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use polder::Runtime;
use polder::time::sleep;

const USAGE: &str = "usage: timers [--scale FACTOR]";

fn main() -> ExitCode {
    // An argument that is not Unicode is no valid factor; the parser reports it.
    let given = std::env::args_os().skip(1);
    let given = given.map(|argument| argument.to_string_lossy().into_owned());
    let scale = match scale(given) {
        Ok(Some(scale)) => scale,
        Ok(None) => {
            let _ = writeln!(io::stdout(), "{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "timers: {error}");
            return ExitCode::from(2);
        }
    };
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = writeln!(io::stderr(), "timers: {error}");
            return ExitCode::FAILURE;
        }
    };
    let log = Log(Instant::now());
    runtime.spawn(work(log, "Work", [1.0, 3.0], scale)).detach();
    runtime
        .spawn(work(log, "Work2", [1.0, 2.0], scale))
        .detach();
    log.say("main", "both are detached; running until no task is left");
    runtime.run();
    ExitCode::SUCCESS
}

async fn work(log: Log, name: &'static str, naps: [f64; 2], scale: f64) {
    for seconds in naps {
        let nap = Duration::from_secs_f64(seconds * scale);
        log.say(name, &format!("sleeping for {nap:?}"));
        sleep(nap).await;
    }
    log.say(name, "finishing");
}

/// Returns `None` if help is requested.
fn scale(mut arguments: impl Iterator<Item = String>) -> Result<Option<f64>, String> {
    let mut scale = 1.0;
    while let Some(argument) = arguments.next() {
        if argument == "--help" || argument == "-h" {
            return Ok(None);
        }
        if argument != "--scale" {
            return Err(format!("unknown argument {argument:?}; {USAGE}"));
        }
        let factor = arguments
            .next()
            .ok_or_else(|| format!("--scale needs a factor; {USAGE}"))?;
        scale = factor
            .parse()
            .ok()
            .filter(|scale| (0.0..=1_000.0).contains(scale))
            .ok_or_else(|| format!("{factor:?} is not a factor from 0 to 1000; {USAGE}"))?;
    }
    Ok(Some(scale))
}

/// Prints lines with the time since the start.
#[derive(Clone, Copy)]
struct Log(Instant);

impl Log {
    fn say(self, who: &str, what: &str) {
        let time = self.0.elapsed().as_secs_f64();
        say(format_args!("[{time:7.3} s] {who}: {what}"));
    }
}

/// Writes a line to standard output. If its reader is gone (`timers | head -1`) the program exits
/// quietly, as if SIGPIPE had ended it.
fn say(line: std::fmt::Arguments<'_>) {
    if let Err(error) = writeln!(io::stdout(), "{line}") {
        if error.kind() == io::ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        let _ = writeln!(io::stderr(), "timers: standard output: {error}");
        std::process::exit(1);
    }
}
