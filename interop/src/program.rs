//! Shared by all programs: the command line (an argument, `--backend NAME`, `--timeout-ms N`, and
//! the program's own options), how they are stopped, and their output.
//! A usage error prints one line with the usage, and exits with status 2; any other error prints
//! one line, and exits with status 1. `--help` prints the usage.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Condvar, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use polder::net::{Serve, Summary, TcpListener};
use polder::signal::{Signal, Signals};
use polder::stream::StreamExt;
use polder::{Backend, Runtime};

/// The default of `--timeout-ms`: how long a peer may stall.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Runs `program` with its arguments, and reports its error. `usage` begins with its name and lists
/// all options; each takes a value.
pub fn main(usage: &str, program: impl FnOnce(&Arguments) -> io::Result<()>) -> ExitCode {
    let given = std::env::args_os().skip(1);
    let given = given.map(|argument| argument.to_string_lossy().into_owned());
    let result = match Arguments::parse(usage, given) {
        Ok(Some(arguments)) => program(&arguments),
        Ok(None) => {
            let _ = writeln!(io::stdout(), "usage: {usage}");
            Ok(())
        }
        Err(error) => Err(error),
    };
    let name = usage.split(' ').next().unwrap_or_default();
    let lost = LOG.end();
    if lost > 0 {
        complain(format!(
            "{name}: standard output is not read; lines lost: {lost}"
        ));
    }
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    complain(format!("{name}: {error}"));
    if error.get_ref().is_some_and(|error| error.is::<Misuse>()) {
        ExitCode::from(2)
    } else {
        ExitCode::FAILURE
    }
}

/// The parsed command line.
pub struct Arguments {
    usage: String,
    /// Arguments that are not options.
    plain: Option<String>,
    options: Vec<(String, String)>,
    backend: Option<Backend>,
    limit: Duration,
}

impl Arguments {
    /// Returns `None` if help is requested.
    fn parse(
        usage: &str,
        given: impl IntoIterator<Item = String>,
    ) -> io::Result<Option<Arguments>> {
        let mut arguments = Arguments {
            usage: usage.into(),
            plain: None,
            options: Vec::new(),
            backend: None,
            limit: TIMEOUT,
        };
        let known: Vec<_> = usage
            .split_ascii_whitespace()
            .filter_map(|word| word.trim_start_matches('[').strip_prefix("--"))
            .collect();
        let mut given = given.into_iter();
        while let Some(argument) = given.next() {
            match argument.strip_prefix("--") {
                _ if ["--help", "-h"].contains(&argument.as_str()) => return Ok(None),
                Some(name) if known.contains(&name) => {
                    let value = given.next();
                    let value = value
                        .ok_or_else(|| arguments.wrong(format_args!("--{name} needs a value")))?;
                    arguments.options.push((name.into(), value));
                }
                None if arguments.plain.is_none()
                    && !argument.is_empty()
                    && !argument.starts_with('-') =>
                {
                    arguments.plain = Some(argument)
                }
                _ => return Err(arguments.wrong(format_args!("{argument:?} is not expected"))),
            }
        }
        if let Some(name) = arguments.option("backend") {
            let backend = name.parse().map_err(|error| arguments.wrong(error))?;
            arguments.backend = Some(backend);
        }
        arguments.limit = arguments.duration("timeout-ms", TIMEOUT)?;
        Ok(Some(arguments))
    }

    /// Returns the argument that is not an option.
    pub fn plain(&self) -> Option<&str> {
        self.plain.as_deref()
    }

    /// Returns the last value of `--name`.
    pub fn option(&self, name: &str) -> Option<&str> {
        let mut options = self.options.iter().rev();
        options
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns the milliseconds of `--name`.
    pub fn duration(&self, name: &str, default: Duration) -> io::Result<Duration> {
        let Some(given) = self.option(name) else {
            return Ok(default);
        };
        // At most 49 days, so that adding it to an `Instant` never overflows.
        let number = given.parse::<u32>().ok().filter(|number| *number > 0);
        let number = number.map(|number| Duration::from_millis(number.into()));
        number.ok_or_else(|| {
            self.wrong(format_args!(
                "--{name} wants a whole number above 0, not {given:?}"
            ))
        })
    }

    /// Makes a usage error.
    pub fn wrong(&self, what: impl fmt::Display) -> io::Error {
        let text = format!("{what}; usage: {}", self.usage);
        io::Error::new(io::ErrorKind::InvalidInput, Misuse(text))
    }

    /// Returns `--timeout-ms`: how long a peer may stall.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Makes a runtime on the backend of `--backend`, or else of `POLDER_BACKEND`, or else on the
    /// platform's default.
    pub fn runtime(&self) -> io::Result<Runtime> {
        match self.backend {
            Some(backend) => Runtime::builder().backend(backend).build(),
            None => Runtime::new(),
        }
    }

    /// Listens on the given address, or on a free port, and prints the address.
    pub async fn listen(&self) -> io::Result<TcpListener> {
        let address = self.plain().unwrap_or("127.0.0.1:0");
        let listener = TcpListener::bind(address).await?;
        let backend = match self.backend {
            Some(backend) => backend,
            None => Backend::from_env()?,
        };
        let address = listener.local_addr()?;
        LOG.start()?;
        say(format_args!("listening on {address} (backend {backend})"));
        Ok(listener)
    }
}

/// A usage error.
#[derive(Debug)]
struct Misuse(String);

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Misuse {}

/// Completes on Ctrl-C, and on SIGTERM, which `kill` and service managers send. After this call
/// neither ends the process.
pub fn stopped() -> io::Result<impl Future<Output = ()>> {
    let signals = Signals::new([Signal::Int, Signal::Term]);
    let mut signals = signals.map_err(|error| {
        io::Error::new(error.kind(), format!("cannot wait for Ctrl-C: {error}"))
    })?;
    Ok(async move {
        signals.next().await;
    })
}

/// Awaits a server, reports connections that it cannot accept, and prints a line when it has
/// stopped.
pub async fn served<'a, L, H, U>(server: Serve<'a, L, H, U>) -> io::Result<()>
where
    Serve<'a, L, H, U>: IntoFuture<Output = io::Result<Summary>>,
{
    let server = server.on_error(|error| say(format_args!("cannot accept: {error}")));
    let accepted = server.await?.accepted;
    say(format_args!("stopped after {accepted} connections"));
    Ok(())
}

/// [`served`] for a server of HTTP, which also reports the errors of its clients.
pub async fn served_by_hyper(server: polder_hyper::Serve<'_, TcpListener>) -> io::Result<()> {
    let server = server.on_error(|peer, error| match peer {
        Some(peer) => told(peer, Err(error)),
        None => say(format_args!("cannot accept: {error}")),
    });
    let accepted = server.await?.accepted;
    say(format_args!("stopped after {accepted} connections"));
    Ok(())
}

/// Writes a line to standard output. Another thread writes it; it is dropped if too many lines are
/// queued.
pub fn say(line: fmt::Arguments<'_>) {
    LOG.say(line.to_string());
}

/// Reports the error of a client, if there is one, with its causes.
pub fn told<E: Error>(peer: impl fmt::Display, result: Result<(), E>) {
    let Err(error) = result else { return };
    let mut text = format!("{peer}: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    say(format_args!("{text}"));
}

/// Standard output. A write blocks while its reader is stalled (a pager, a terminal after Ctrl-S).
/// A task that writes would block its worker, all clients, and Ctrl-C. So a thread writes.
struct Log {
    lines: Mutex<Lines>,
    changed: Condvar,
}

struct Lines {
    waiting: VecDeque<String>,
    writing: bool,
    lost: usize,
}

static LOG: Log = Log {
    lines: Mutex::new(Lines {
        waiting: VecDeque::new(),
        writing: false,
        lost: 0,
    }),
    changed: Condvar::new(),
};

/// The number of lines that may be queued: about a megabyte.
const CAPACITY: usize = 10_000;

/// How long the program waits at its end for the reader.
const PATIENCE: Duration = Duration::from_secs(2);

impl Log {
    fn start(&'static self) -> io::Result<()> {
        let write = || {
            loop {
                let lines = self.lines.lock().unwrap();
                let none = |lines: &mut Lines| lines.waiting.is_empty();
                let mut lines = self.changed.wait_while(lines, none).unwrap();
                let line = lines.waiting.pop_front().unwrap_or_default();
                lines.writing = true;
                drop(lines);
                // A closed pipe is no reason to stop.
                let _ = writeln!(io::stdout(), "{line}");
                self.lines.lock().unwrap().writing = false;
                self.changed.notify_all();
            }
        };
        let thread = thread::Builder::new().name("log".into()).spawn(write);
        match thread {
            Ok(_) => Ok(()),
            Err(error) => Err(io::Error::new(
                error.kind(),
                format!("cannot start the thread that writes: {error}"),
            )),
        }
    }

    fn say(&self, line: String) {
        let mut lines = self.lines.lock().unwrap();
        if lines.waiting.len() < CAPACITY {
            lines.waiting.push_back(line);
            self.changed.notify_all();
        } else {
            lines.lost += 1;
        }
    }

    /// Waits until all is written, for a limited time. Returns the number of lines that were not.
    fn end(&self) -> usize {
        let lines = self.lines.lock().unwrap();
        let busy = |lines: &mut Lines| lines.writing || !lines.waiting.is_empty();
        let (lines, _) = self
            .changed
            .wait_timeout_while(lines, PATIENCE, busy)
            .unwrap();
        lines.lost + lines.waiting.len() + usize::from(lines.writing)
    }
}

/// Writes a line to standard error, which may be the same pipe or terminal, with a stalled reader.
fn complain(line: String) {
    let (sender, written) = mpsc::channel();
    let text = line.clone();
    let write = move || {
        let _ = writeln!(io::stderr(), "{text}");
        let _ = sender.send(());
    };
    match thread::Builder::new().spawn(write) {
        Ok(_) => drop(written.recv_timeout(PATIENCE)),
        Err(_) => drop(writeln!(io::stderr(), "{line}")),
    }
}
