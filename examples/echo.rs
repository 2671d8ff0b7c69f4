//! An echo server: one task per connection.
//!
//! ```text
//! cargo run --release --example echo -- [ADDR] [--backend NAMES]
//! ```
//! It listens on `ADDR` (127.0.0.1:7000 by default; port 0 asks for a free port), prints the
//! address and the backend, and a line for each client that connects or goes. It stops on Ctrl-C or
//! SIGTERM; clients then have a moment to finish.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream, serve};
use polder::signal::{Signal, Signals};
use polder::stream::StreamExt;
use polder::{Backend, Runtime};

use log::say;

const USAGE: &str = "usage: echo [ADDR] [--backend NAMES]";

/// How long clients may continue after Ctrl-C.
const GRACE: Duration = Duration::from_millis(250);

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
    log::end("echo");
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::complain(format!("echo: {error}"));
            ExitCode::from(status)
        }
    }
}

struct Options {
    address: String,
    backends: Option<Vec<Backend>>,
}

/// Returns `None` if help is requested.
fn arguments(mut arguments: impl Iterator<Item = String>) -> io::Result<Option<Options>> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
    let mut address = None;
    let mut backends = None;
    while let Some(argument) = arguments.next() {
        if argument == "--help" || argument == "-h" {
            return Ok(None);
        } else if argument == "--backend" {
            let name = arguments
                .next()
                .ok_or_else(|| wrong(format!("--backend needs a name; {USAGE}")))?;
            backends = Some(Backend::parse_list(&name)?);
        } else if let Some(name) = argument.strip_prefix("--backend=") {
            backends = Some(Backend::parse_list(name)?);
        } else if argument.starts_with('-') {
            return Err(wrong(format!("unknown option {argument:?}; {USAGE}")));
        } else if let Some(first) = &address {
            return Err(wrong(format!(
                "one address is enough: {first:?} and {argument:?} were given; {USAGE}"
            )));
        } else {
            address = Some(argument);
        }
    }
    Ok(Some(Options {
        address: address.unwrap_or_else(|| "127.0.0.1:7000".into()),
        backends,
    }))
}

fn run(options: Options) -> io::Result<()> {
    let mut builder = Runtime::builder();
    if let Some(backends) = options.backends {
        builder = builder.backends(backends);
    }
    let runtime = builder.build()?;
    let backend = runtime.backend();
    runtime.block_on(async {
        // From now on Ctrl-C is caught, and so is SIGTERM, which `kill` and service managers send.
        let mut stop = Signals::new([Signal::Int, Signal::Term]).map_err(unheard)?;
        let listener = TcpListener::bind(&options.address)
            .await
            .map_err(|error| at(&options.address, error))?;
        log::start()?;
        say(format_args!(
            "listening on {} (backend {backend})",
            listener.local_addr()?
        ));
        serve(listener, client)
            .until(async {
                stop.next().await;
            })
            .grace(GRACE)
            .on_error(|error| say(format_args!("cannot accept: {error}")))
            .await?;
        say(format_args!("stopped"));
        Ok(())
    })
}

async fn client(stream: TcpStream, peer: SocketAddr) {
    say(format_args!("{peer} connected"));
    match echo(stream).await {
        Ok(bytes) => say(format_args!("{peer} closed after {bytes} bytes")),
        Err(error) => say(format_args!("{peer} lost: {error}")),
    }
}

/// Echoes until the client sends no more. Returns the number of bytes.
async fn echo(mut stream: TcpStream) -> io::Result<u64> {
    let mut buffer = vec![0; 16 * 1024];
    let mut bytes = 0;
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Ok(bytes);
        }
        stream.write_all(&buffer[..read]).await?;
        bytes += read as u64;
    }
}

fn unheard(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot wait for Ctrl-C: {error}"))
}

fn at(address: &str, error: io::Error) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => "; it should be a free port, and 0 finds one",
        io::ErrorKind::AddrNotAvailable => "; it should be an address of this machine",
        _ => "",
    };
    // Escaped, so that the message stays one line for any input.
    let address = address.escape_debug();
    io::Error::new(
        error.kind(),
        format!("cannot listen on {address}: {error}{hint}"),
    )
}

/// Standard output. A write blocks while its reader is stalled (a pager, a terminal after Ctrl-S).
/// A task that writes would block its worker, all clients, and Ctrl-C. So a thread writes; lines
/// that do not fit into its queue are counted and dropped.
mod log {
    use std::collections::VecDeque;
    use std::fmt::Arguments;
    use std::io::{self, Write};
    use std::sync::{Condvar, Mutex, mpsc};
    use std::thread;
    use std::time::Duration;

    /// The number of lines that may be queued: about a megabyte.
    const CAPACITY: usize = 10_000;

    /// How long the program waits at its end for the reader.
    const PATIENCE: Duration = Duration::from_secs(2);

    struct Lines {
        waiting: VecDeque<String>,
        writing: bool,
        lost: usize,
    }

    static LINES: Mutex<Lines> = Mutex::new(Lines {
        waiting: VecDeque::new(),
        writing: false,
        lost: 0,
    });
    static CHANGED: Condvar = Condvar::new();

    pub fn start() -> io::Result<()> {
        let write = || loop {
            let lines = LINES.lock().unwrap();
            let none = |lines: &mut Lines| lines.waiting.is_empty();
            let mut lines = CHANGED.wait_while(lines, none).unwrap();
            let line = lines.waiting.pop_front().unwrap_or_default();
            lines.writing = true;
            drop(lines);
            // A closed pipe is no reason to stop serving.
            let _ = writeln!(io::stdout(), "{line}");
            LINES.lock().unwrap().writing = false;
            CHANGED.notify_all();
        };
        thread::Builder::new().name("log".into()).spawn(write)?;
        Ok(())
    }

    /// Writes a line to standard output.
    pub fn say(line: Arguments<'_>) {
        let mut lines = LINES.lock().unwrap();
        if lines.waiting.len() < CAPACITY {
            lines.waiting.push_back(line.to_string());
            CHANGED.notify_all();
        } else {
            lines.lost += 1;
        }
    }

    /// Waits until the last lines are written, and reports how many were not.
    pub fn end(program: &str) {
        let lines = LINES.lock().unwrap();
        let busy = |lines: &mut Lines| lines.writing || !lines.waiting.is_empty();
        let (lines, _) = CHANGED.wait_timeout_while(lines, PATIENCE, busy).unwrap();
        let lost = lines.lost + lines.waiting.len() + usize::from(lines.writing);
        drop(lines);
        if lost > 0 {
            complain(format!(
                "{program}: standard output is not read; lines lost: {lost}"
            ));
        }
    }

    /// Writes a line to standard error, which may be the same pipe or terminal.
    pub fn complain(line: String) {
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
}
