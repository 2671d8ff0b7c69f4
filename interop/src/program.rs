//! The command line, the same for every program: arguments, `--backend NAME`, `--timeout-ms N`, and
//! what else the program names. A mistake is one line that says what it should have been.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use polder::net::TcpListener;
use polder::{Backend, Runtime};

/// How long a peer may do nothing where something is expected of it, unless `--timeout-ms` is given.
const TIMEOUT: &str = "10000";

/// Runs `program` with its arguments, and tells of its error, if it has one. `usage` names all the
/// options that there are: each takes a value.
pub fn main(usage: &str, program: impl FnOnce(&Arguments) -> io::Result<()>) -> ExitCode {
    let given = std::env::args_os().skip(1);
    let given = given.map(|argument| argument.to_string_lossy().into_owned());
    match Arguments::parse(usage, given).and_then(|arguments| program(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// What the program was called with.
pub struct Arguments {
    usage: String,
    /// What is no option.
    plain: Option<String>,
    options: Vec<(String, String)>,
}

impl Arguments {
    fn parse(usage: &str, given: impl IntoIterator<Item = String>) -> io::Result<Arguments> {
        let mut arguments = Arguments {
            usage: usage.into(),
            plain: None,
            options: Vec::new(),
        };
        let known: Vec<_> = usage
            .split_ascii_whitespace()
            .filter_map(|word| word.trim_start_matches('[').strip_prefix("--"))
            .collect();
        let mut given = given.into_iter();
        while let Some(argument) = given.next() {
            match argument.strip_prefix("--") {
                Some(name) if known.contains(&name) => {
                    let value = given.next();
                    let value = value
                        .ok_or_else(|| arguments.wrong(format_args!("--{name} wants a value")))?;
                    arguments.options.push((name.into(), value));
                }
                None if arguments.plain.is_none() => arguments.plain = Some(argument),
                _ => return Err(arguments.wrong(format_args!("{argument:?} is not expected"))),
            }
        }
        Ok(arguments)
    }

    /// The one argument that is no option.
    pub fn plain(&self) -> Option<&str> {
        self.plain.as_deref()
    }

    /// The last value given for `--name`.
    pub fn option(&self, name: &str) -> Option<&str> {
        let mut options = self.options.iter().rev();
        options
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    pub fn wrong(&self, what: impl fmt::Display) -> io::Error {
        let text = format!("{what}; usage: {}", self.usage);
        io::Error::new(io::ErrorKind::InvalidInput, text)
    }

    /// `--timeout-ms`: how long a peer may do nothing where something is expected of it.
    pub fn limit(&self) -> io::Result<Duration> {
        let given = self.option("timeout-ms").unwrap_or(TIMEOUT);
        let number = given.parse().ok().filter(|number| *number > 0);
        number.map(Duration::from_millis).ok_or_else(|| {
            self.wrong(format_args!(
                "--timeout-ms wants a number above 0, not {given:?}"
            ))
        })
    }

    /// A runtime on the backend that `--backend` names, or else `POLDER_BACKEND`, or else on the
    /// platform's best.
    pub fn runtime(&self) -> io::Result<Runtime> {
        let mut builder = Runtime::builder();
        if let Some(name) = self.option("backend") {
            builder = builder.backend(name.parse::<Backend>()?);
        }
        builder.build()
    }

    /// Listens at the address given, or at a free port, and says where.
    pub async fn listen(&self) -> io::Result<TcpListener> {
        let address = self.plain().unwrap_or("127.0.0.1:0");
        let listener = TcpListener::bind(address).await.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
        })?;
        let backend = match self.option("backend") {
            Some(name) => name.parse()?,
            None => Backend::configured()?,
        };
        let address = listener.local_addr()?;
        say(format_args!("listening on {address} (backend {backend})"));
        Ok(listener)
    }
}

/// A line on standard output. That nobody reads it any more is no reason to stop.
pub fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Tells what went wrong with a client, if anything did, with the causes behind it.
pub fn told<E: std::error::Error>(peer: impl fmt::Display, result: Result<(), E>) {
    let Err(error) = result else { return };
    let mut text = format!("{peer}: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    say(format_args!("{text}"));
}
