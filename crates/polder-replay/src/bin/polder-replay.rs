//! `polder-replay show [--page] TAPE [--until N]`: lists or draws a tape. A program is replayed by
//! the program itself: `POLDER_REPLAY=TAPE program`.

use std::process::ExitCode;

#[cfg(unix)]
const USAGE: &str = "usage: polder-replay show [--page] TAPE [--until ENTRY]

Lists what a program received that was run with POLDER_RECORD=TAPE: a line for each entry (number,
seconds, task, what), then sums by task and by kind. With --page it is a page for a browser, with a
slider: polder-replay show --page TAPE >tape.html
POLDER_REPLAY=TAPE PROGRAM runs the program again.";

#[cfg(unix)]
fn main() -> ExitCode {
    use std::io::{self, BufWriter, Write, stdout};

    let arguments = std::env::args_os().skip(1);
    let arguments: Vec<_> = arguments
        .map(|text| text.to_string_lossy().into_owned())
        .collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (is_page, rest) = match &arguments[..] {
        ["show", "--page", rest @ ..] => (true, rest),
        ["show", rest @ ..] => (false, rest),
        _ => (false, &[][..]),
    };
    let (path, until) = match *rest {
        [path] => (path, None),
        [path, "--until", entry] | ["--until", entry, path] => (path, Some(entry.parse::<u64>())),
        _ => ("", None),
    };
    let (false, Ok(until)) = (path.is_empty(), until.transpose()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let mut output = BufWriter::new(stdout().lock());
    let shown = if is_page {
        polder_replay::page(path, until, &mut output)
    } else {
        polder_replay::show(path, until, &mut output)
    };
    match shown.and_then(|()| output.flush()) {
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
