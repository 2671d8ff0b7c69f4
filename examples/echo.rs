//! An echo server: one task per connection.
//!
//! ```text
//! cargo run --release --example echo -- [ADDR] [--backend NAME]
//! ```
//!
//! It listens at `ADDR` (127.0.0.1:7000 unless given; port 0 asks for a free port), says where and on
//! which backend, tells of each client's coming and going, and ends on Ctrl-C. Clients that are in
//! the middle of something then have a moment to finish it.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream, serve};
use polder::{Backend, Runtime, signal};

const USAGE: &str = "usage: echo [ADDR] [--backend NAME]";

/// How long clients may go on after Ctrl-C.
const GRACE: Duration = Duration::from_millis(250);

fn main() -> ExitCode {
    // What is not Unicode is no address and no option either, and is told so like the rest.
    let given = std::env::args_os().skip(1);
    let given = given.map(|argument| argument.to_string_lossy().into_owned());
    match arguments(given).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("echo: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Options {
    address: String,
    backend: Option<Backend>,
}

fn arguments(mut arguments: impl Iterator<Item = String>) -> io::Result<Options> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
    let mut address = None;
    let mut backend = None;
    while let Some(argument) = arguments.next() {
        if argument == "--backend" {
            let name = arguments
                .next()
                .ok_or_else(|| wrong(format!("--backend wants a name; {USAGE}")))?;
            backend = Some(name.parse()?);
        } else if let Some(name) = argument.strip_prefix("--backend=") {
            backend = Some(name.parse()?);
        } else if argument.starts_with('-') {
            return Err(wrong(format!("there is no option {argument:?}; {USAGE}")));
        } else if let Some(first) = &address {
            return Err(wrong(format!(
                "one address is enough: {first:?} and {argument:?} were given; {USAGE}"
            )));
        } else {
            address = Some(argument);
        }
    }
    Ok(Options {
        address: address.unwrap_or_else(|| "127.0.0.1:7000".into()),
        backend,
    })
}

fn run(options: Options) -> io::Result<()> {
    let mut builder = Runtime::builder();
    if let Some(backend) = options.backend {
        builder = builder.backend(backend);
    }
    let runtime = builder.build()?;
    let backend = runtime.backend();
    runtime.block_on(async {
        // From here on Ctrl-C is ours.
        let stop = signal::ctrl_c();
        let listener = TcpListener::bind(&options.address)
            .await
            .map_err(|error| at(&options.address, error))?;
        say(format_args!(
            "listening on {} (backend {backend})",
            listener.local_addr()?
        ));
        let mut stopped = Ok(());
        serve(listener, client)
            .until(async { stopped = stop.await })
            .grace(GRACE)
            .on_error(|error| say(format_args!("cannot accept: {error}")))
            .await?;
        stopped?;
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

/// Sends back what comes until the client sends no more; the number of bytes.
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

/// A line on standard output. That nobody reads it any more is no reason to stop serving.
fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{line}");
}

fn at(address: &str, error: io::Error) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => "; it should be a free port, and 0 finds one",
        io::ErrorKind::AddrNotAvailable => "; it should be an address of this machine",
        _ => "",
    };
    // Escaped, so that it stays one line whatever was given.
    let address = address.escape_debug();
    io::Error::new(
        error.kind(),
        format!("cannot listen on {address}: {error}{hint}"),
    )
}
