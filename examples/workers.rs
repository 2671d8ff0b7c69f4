//! A thread for each core, which shares nothing with the others: each worker has its own listener
//! and its own store.
//!
//! ```text
//! cargo run --release --example workers -- [ADDR] [--workers N] [--backend NAMES]
//! ```
//! A client sends words, one per line; the answer is how often this worker has received the word.
//! So clients of one worker see each other's counts, and those of different workers do not. Stops
//! on Ctrl-C or SIGTERM; clients then have a moment to finish.
//!
//! A worker's clients share an `Rc<RefCell<…>>`: there is no lock, and nothing needs to be `Send`.
//! Tasks that share one store are spawned by `Runtime::spawn`, and an idle worker may take them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, Write};
use std::num::NonZero;
use std::process::ExitCode;
use std::rc::Rc;
use std::thread::available_parallelism;
use std::time::Duration;

use polder::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use polder::net::{TcpListener, TcpStream, serve_on_workers};
use polder::signal::{Signal, Signals};
use polder::stream::StreamExt;
use polder::{Backend, Runtime};

const USAGE: &str = "usage: workers [ADDR] [--workers N] [--backend NAMES]";

/// How long clients may continue after Ctrl-C.
const GRACE: Duration = Duration::from_millis(250);

/// The maximum length of a word, and the maximum number of words that a worker remembers.
const LONGEST: u64 = 256;
const MAX_WORDS: usize = 100_000;

fn main() -> ExitCode {
    // An argument that is not Unicode is no valid address or option; the parser reports it.
    let given = std::env::args_os().skip(1);
    let given = given.map(|argument| argument.to_string_lossy().into_owned());
    let (result, status) = match arguments(given) {
        Ok(Some(options)) => (run(options), 1),
        Ok(None) => {
            let _ = writeln!(io::stdout(), "{USAGE}");
            return ExitCode::SUCCESS;
        }
        // Usage errors have a separate exit status, as is customary.
        Err(error) => (Err(error), 2),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "workers: {error}");
            ExitCode::from(status)
        }
    }
}

struct Options {
    address: String,
    workers: usize,
    backends: Option<Vec<Backend>>,
}

/// Returns `None` if help is requested.
fn arguments(mut arguments: impl Iterator<Item = String>) -> io::Result<Option<Options>> {
    let wrong = |what: String| {
        let text = format!("{what}; {USAGE}");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    let (mut address, mut workers, mut backends) = (None, None, None);
    while let Some(argument) = arguments.next() {
        let mut value = || {
            let value = arguments.next();
            value.ok_or_else(|| wrong(format!("{argument} needs a value")))
        };
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--backend" => backends = Some(Backend::parse_list(&value()?)?),
            "--workers" => {
                let value = value()?;
                let number = value.parse().ok().filter(|number| *number > 0);
                workers = Some(number.ok_or_else(|| {
                    wrong(format!("--workers wants a number above 0, not {value:?}"))
                })?);
            }
            _ if argument.starts_with('-') || argument.is_empty() || address.is_some() => {
                return Err(wrong(format!("{argument:?} is not expected")));
            }
            _ => address = Some(argument),
        }
    }
    let cores = || available_parallelism().map_or(1, NonZero::get);
    Ok(Some(Options {
        address: address.unwrap_or_else(|| "127.0.0.1:7000".into()),
        workers: workers.unwrap_or_else(cores),
        backends,
    }))
}

fn run(options: Options) -> io::Result<()> {
    let mut builder = Runtime::builder().workers(options.workers);
    if let Some(backends) = options.backends {
        builder = builder.backends(backends);
    }
    let runtime = builder.build()?;
    let (backend, workers) = (runtime.backend(), runtime.workers());
    runtime.block_on(async {
        // From now on Ctrl-C is caught, and so is SIGTERM, which `kill` and service managers send.
        let mut stop = Signals::new([Signal::Int, Signal::Term])?;
        let address = &options.address;
        let listeners = TcpListener::bind_balanced(address, workers).await?;
        let address = listeners[0].local_addr()?;
        say(format_args!(
            "listening on {address} (backend {backend}, workers: {workers})"
        ));
        let summaries = serve_on_workers(listeners, |_worker| {
            let words = Words::default(); // Of this worker alone.
            move |stream, _peer| {
                let words = words.clone();
                async move {
                    let _ = client(stream, words).await; // It may go as it likes.
                }
            }
        })
        .until(async {
            stop.next().await;
        })
        .grace(GRACE)
        .await?;
        for (worker, summary) in summaries.iter().enumerate() {
            say(format_args!(
                "worker {worker}: {} clients",
                summary.accepted
            ));
        }
        say(format_args!("stopped"));
        Ok(())
    })
}

/// How often each word was sent.
type Words = Rc<RefCell<HashMap<String, u64>>>;

async fn client(mut stream: TcpStream, words: Words) -> io::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = String::new();
        let read = (&mut reader).take(LONGEST).read_line(&mut line).await?;
        let Some(word) = line.strip_suffix('\n') else {
            return match read {
                0 => Ok(()),
                _ => writer.write_all(b"that is no word\n").await,
            };
        };
        // No other task borrows the store between two `await`s.
        let count = {
            let mut words = words.borrow_mut();
            match words.get_mut(word) {
                Some(count) => {
                    *count += 1;
                    *count
                }
                None => {
                    if words.len() < MAX_WORDS {
                        words.insert(word.into(), 1);
                    }
                    1
                }
            }
        };
        writer.write_all(format!("{count}\n").as_bytes()).await?;
    }
}

/// Writes a line to standard output. A closed pipe is no reason to stop.
fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{line}");
}
