//! `polder-replay show TAPE [--until N]`: lists a tape. A program is replayed by the program
//! itself: `POLDER_REPLAY=TAPE program`.

use std::process::ExitCode;

#[cfg(unix)]
const USAGE: &str = "usage: polder-replay show TAPE [--until ENTRY]

Lists what a program received that was run with POLDER_RECORD=TAPE: a line for each entry (number,
seconds, task, what), then sums by task and by kind.
POLDER_REPLAY=TAPE PROGRAM runs the program again.";

#[cfg(unix)]
fn main() -> ExitCode {
    use std::io::{self, BufWriter, Write, stdout};

    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let texts: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (path, until) = match *texts {
        ["show", path] => (path, None),
        ["show", path, "--until", entry] | ["show", "--until", entry, path]
            if entry.parse::<u64>().is_ok() =>
        {
            (path, entry.parse().ok())
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut output = BufWriter::new(stdout().lock());
    match polder_replay::show(path, until, &mut output).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("polder-replay: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

#[cfg(not(unix))]
fn main() -> ExitCode {
    eprintln!("polder-replay works on Unix only");
    ExitCode::FAILURE
}
