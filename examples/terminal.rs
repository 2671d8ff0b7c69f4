//! Lines from the controlling terminal, `/dev/tty`, with a timeout: a prompt for a program that may
//! have a pipe as its standard input.
//!
//! ```text
//! cargo run --release --example terminal -- [--idle SECONDS]
//! ```
//! The backend is `select` unless `POLDER_BACKEND` names another: on macOS neither kqueue nor poll
//! can wait for `/dev/tty`. Ends with Ctrl-D, or when nothing is typed for 60 s.

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    unix::main()
}

#[cfg(not(unix))]
fn main() {
    println!("this example needs /dev/tty");
}

#[cfg(unix)]
mod unix {
    use std::fs::File;
    use std::io::{self, Write};
    use std::process::ExitCode;
    use std::time::Duration;

    use polder::io::{AsyncBufReadExt, BufReader};
    use polder::{Async, Backend, Runtime, time};

    const USAGE: &str = "usage: terminal [--idle SECONDS]";

    pub fn main() -> ExitCode {
        // An argument that is not Unicode is no number either; the parser reports it.
        let given = std::env::args_os().skip(1);
        let given = given.map(|argument| argument.to_string_lossy().into_owned());
        let idle = match idle(given) {
            Ok(Some(idle)) => idle,
            Ok(None) => {
                let _ = writeln!(io::stdout(), "{USAGE}");
                return ExitCode::SUCCESS;
            }
            Err(error) => {
                let _ = writeln!(io::stderr(), "terminal: {error}");
                return ExitCode::from(2);
            }
        };
        match run(idle) {
            Ok(()) => ExitCode::SUCCESS,
            // The reader of standard output is gone.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Err(error) => {
                let _ = writeln!(io::stderr(), "terminal: {error}");
                ExitCode::FAILURE
            }
        }
    }

    fn run(idle: Duration) -> io::Result<()> {
        let runtime = match std::env::var_os("POLDER_BACKEND") {
            Some(names) if !names.is_empty() => Runtime::new()?,
            // illumos has no select.
            _ => Runtime::builder()
                .backends([Backend::Select, Backend::default()])
                .build()?,
        };
        let mut out = io::stdout();
        // Opened separately, so that the shared standard input does not become non-blocking.
        let terminal = File::open("/dev/tty").map_err(named)?;
        writeln!(out, "type; Ctrl-D ends (backend {})", runtime.backend())?;
        runtime.block_on(async {
            let mut lines = BufReader::new(Async::new(terminal)?);
            let mut line = String::new();
            loop {
                line.clear();
                let Ok(read) = time::timeout(idle, lines.read_line(&mut line)).await else {
                    return writeln!(out, "nothing for {idle:?}");
                };
                if read.map_err(named)? == 0 {
                    return writeln!(out, "the end");
                }
                let line = line.trim_end();
                writeln!(out, "{line:?}: {} characters", line.chars().count())?;
            }
        })
    }

    fn named(error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("/dev/tty: {error}"))
    }

    /// Returns `None` if help is requested.
    fn idle(mut arguments: impl Iterator<Item = String>) -> Result<Option<Duration>, String> {
        let mut idle = Duration::from_secs(60);
        while let Some(argument) = arguments.next() {
            if argument == "--help" || argument == "-h" {
                return Ok(None);
            }
            if argument != "--idle" {
                return Err(format!("unknown argument {argument:?}; {USAGE}"));
            }
            let seconds = arguments
                .next()
                .ok_or_else(|| format!("--idle needs a number of seconds; {USAGE}"))?;
            let number = seconds.parse().ok();
            idle = number
                .filter(|number| (0.0..=86_400.0).contains(number))
                .map(Duration::from_secs_f64)
                .ok_or_else(|| format!("{seconds:?} is not a number from 0 to 86400; {USAGE}"))?;
        }
        Ok(Some(idle))
    }
}
