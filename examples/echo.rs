//! An echo server: one task per connection, a limit of connections, time limits, a graceful end.
//!
//! Try `cargo run --release --example echo -- [ADDR]`: the default is 127.0.0.1:7000, and port 0
//! asks for a free port. It stops on Ctrl-C or SIGTERM; clients then have a moment to finish.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use polder::Runtime;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream, serve};
use polder::signal::{Signal, Signals};
use polder::stream::StreamExt;
use polder::time::timeout;

/// How many clients are served at a time. Further ones wait in the listener's queue.
const CLIENTS: usize = 10_000;
/// How long a client may send nothing, or take nothing.
const SILENCE: Duration = Duration::from_secs(60);
/// How long clients may continue after Ctrl-C.
const GRACE: Duration = Duration::from_millis(250);

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let result = match &given[..] {
        [] => run("127.0.0.1:7000"),
        [address] if !address.starts_with('-') => run(address),
        _ => Err(io::Error::other("usage: echo [ADDR]")),
    };
    let result = result.inspect_err(|error| eprintln!("echo: {error}"));
    ExitCode::from(u8::from(result.is_err()))
}

fn run(address: &str) -> io::Result<()> {
    let runtime = Runtime::new()?;
    runtime.block_on(async {
        // From now on Ctrl-C is caught, and so is SIGTERM, which `kill` and service managers send.
        let mut stop = Signals::new([Signal::Int, Signal::Term])?;
        let listener = TcpListener::bind(address).await?;
        let (address, backend) = (listener.local_addr()?, runtime.backend());
        say(format_args!("listening on {address} (backend {backend})"));
        serve(listener, client)
            .limit(CLIENTS)
            .until(async { _ = stop.next().await })
            .grace(GRACE)
            .on_error(|error| say(format_args!("cannot accept: {error}")))
            .await?;
        say(format_args!("stopped"));
        Ok(())
    })
}

pub async fn client(stream: TcpStream, peer: SocketAddr) {
    say(format_args!("{peer} connected"));
    match echo(stream).await {
        Ok(bytes) => say(format_args!("{peer} closed after {bytes} bytes")),
        Err(error) => say(format_args!("{peer} lost: {error}")),
    }
}

/// Echoes until the client sends no more. Returns the number of bytes.
async fn echo(mut stream: TcpStream) -> io::Result<u64> {
    let (mut buffer, mut bytes) = (vec![0; 16 * 1024], 0);
    loop {
        let read = timeout(SILENCE, stream.read(&mut buffer)).await??;
        if read == 0 {
            return Ok(bytes);
        }
        timeout(SILENCE, stream.write_all(&buffer[..read])).await??;
        bytes += read as u64;
    }
}

/// `println!` panics if standard output is closed. (Both wait while its reader stalls.)
fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{line}");
}
