//! A child process: its output as it comes, its status, and a time limit.
//!
//! ```text
//! cargo run --release --example process -- [--limit SECONDS] COMMAND [ARGUMENT…]
//! ```
//! Runs the command, and prints each line of its output with the time at which it came, and how the
//! command ended. A command that takes longer than the limit is killed. Exits with the command's
//! status, or 1 if it has none.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use polder::io::{AsyncBufReadExt, BufReader};
use polder::process::{ChildStdout, Command, ExitStatus, Stdio};
use polder::time::timeout;

const USAGE: &str = "usage: process [--limit SECONDS] COMMAND [ARGUMENT...]";

/// How long to read output after the end: a process that inherited the pipe may keep it open.
const GRACE: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    let start = Instant::now();
    let (result, failure) = match arguments(std::env::args_os().skip(1).collect()) {
        Ok(Some((command, limit))) => (polder::block_on(run(command, limit, start)), 1),
        Ok(None) => {
            let _ = writeln!(io::stdout(), "{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => (Err(error), 2),
    };
    match result {
        Ok(status) => {
            say(start, &status.to_string());
            let code = status.code().and_then(|code| code.try_into().ok());
            code.map_or(ExitCode::FAILURE, |code: u8| ExitCode::from(code))
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "process: {error}");
            ExitCode::from(failure)
        }
    }
}

/// Returns `None` if help is requested.
fn arguments(mut given: Vec<OsString>) -> io::Result<Option<(Command, Option<Duration>)>> {
    let wrong = |what: &str| {
        let text = format!("{what}; {USAGE}");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    let mut limit = None;
    if given.first().is_some_and(|first| first == "--limit") {
        let seconds = given
            .get(1)
            .and_then(|seconds| seconds.to_str()?.parse().ok());
        let seconds = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        limit = Some(seconds.ok_or_else(|| wrong("--limit wants a number of seconds"))?);
        given.drain(..2);
    }
    let Some(name) = given.first() else {
        return Err(wrong("there is no command"));
    };
    if name == "--help" || name == "-h" {
        return Ok(None);
    }
    if name.to_string_lossy().starts_with('-') {
        return Err(wrong(&format!("unknown option {name:?}")));
    }
    let mut command = Command::new(name);
    command.args(&given[1..]);
    Ok(Some((command, limit)))
}

async fn run(
    mut command: Command,
    limit: Option<Duration>,
    start: Instant,
) -> io::Result<ExitStatus> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn().map_err(|error| {
        let text = format!("cannot run {:?}: {error}", command.get_program());
        io::Error::new(error.kind(), text)
    })?;
    let output = child.stdout.take().expect("it is piped");
    let lines = polder::spawn(lines(output, start));
    let ended = match limit {
        Some(limit) => timeout(limit, child.status()).await,
        None => Ok(child.status().await),
    };
    let status = match ended {
        Ok(status) => status?,
        Err(_) => {
            // Fails if the child now runs as another user.
            child.kill().map_err(|error| {
                let text = format!("it takes too long, and cannot be killed: {error}");
                io::Error::new(error.kind(), text)
            })?;
            say(start, "it takes too long, and is killed");
            child.status().await?
        }
    };
    // On a timeout the task is dropped, which cancels it.
    if let Ok(read) = timeout(GRACE, lines).await {
        read?;
    }
    Ok(status)
}

async fn lines(output: ChildStdout, start: Instant) -> io::Result<()> {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).await? > 0 {
        say(start, String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    Ok(())
}

fn say(start: Instant, line: &str) {
    // A closed pipe is no reason to stop.
    let time = start.elapsed().as_secs_f64();
    let _ = writeln!(io::stdout(), "[{time:7.3} s] {line}");
}
