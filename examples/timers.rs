//! Two detached tasks, a loop that ends by itself when none is left.
//!
//! ```text
//! cargo run --release --example timers -- [--scale FACTOR]
//! ```
//!
//! "Work" sleeps 1 s and then 3 s, "Work2" 1 s and then 2 s; so Work2 is done first, and Work is the
//! last. `--scale 0.1` makes it ten times as quick.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use polder::Runtime;
use polder::time::sleep;

const USAGE: &str = "usage: timers [--scale FACTOR]";

fn main() -> ExitCode {
    // What is not Unicode is no factor either, and is told so like the rest.
    let given = std::env::args_os().skip(1);
    let given = given.map(|argument| argument.to_string_lossy().into_owned());
    let scale = match scale(given) {
        Ok(scale) => scale,
        Err(error) => {
            eprintln!("timers: {error}");
            return ExitCode::FAILURE;
        }
    };
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("timers: {error}");
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

fn scale(mut arguments: impl Iterator<Item = String>) -> Result<f64, String> {
    let mut scale = 1.0;
    while let Some(argument) = arguments.next() {
        if argument != "--scale" {
            return Err(format!("there is no argument {argument:?}; {USAGE}"));
        }
        let factor = arguments
            .next()
            .ok_or_else(|| format!("--scale wants a factor; {USAGE}"))?;
        scale = factor
            .parse()
            .ok()
            .filter(|scale| (0.0..=1_000.0).contains(scale))
            .ok_or_else(|| format!("{factor:?} is no factor from 0 to 1000; {USAGE}"))?;
    }
    Ok(scale)
}

/// Lines with the time since the start.
#[derive(Clone, Copy)]
struct Log(Instant);

impl Log {
    fn say(self, who: &str, what: &str) {
        let time = self.0.elapsed().as_secs_f64();
        let _ = writeln!(io::stdout(), "[{time:7.3} s] {who}: {what}");
    }
}
