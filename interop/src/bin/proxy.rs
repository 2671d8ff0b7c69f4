//! A TCP proxy: whoever connects is connected with another address, both ways.
//!
//! The two directions end apart: an end that one side says is passed on, and the other direction goes
//! on. A side that takes nothing for the time that `--timeout-ms` gives ends both.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use interop::{Arguments, Limited, say, told};
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{OwnedReadHalf, OwnedWriteHalf, TcpStream, serve};
use polder::{future, signal};

const USAGE: &str = "proxy [ADDR] --to ADDR [--timeout-ms N] [--backend NAME]";

/// How long connections may go on after Ctrl-C.
const GRACE: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    interop::main(USAGE, run)
}

fn run(arguments: &Arguments) -> io::Result<()> {
    let limit = arguments.limit()?;
    let to = arguments.option("to");
    let to = to.ok_or_else(|| arguments.wrong("where should it connect to?"))?;
    arguments.runtime()?.block_on(async {
        let ctrl_c = signal::ctrl_c();
        let listener = arguments.listen().await?;
        let summary = serve(listener, |client, peer| {
            let to = to.to_owned();
            async move {
                match connected(client, &to, limit).await {
                    Ok((up, down)) => say(format_args!("{peer}: {up} bytes up, {down} down")),
                    Err(error) => say(format_args!("{peer}: {error}")),
                }
            }
        })
        .limit(10_000)
        .until(async { told("Ctrl-C", ctrl_c.await) })
        .grace(GRACE)
        .on_error(|error| say(format_args!("cannot accept: {error}")))
        .await?;
        say(format_args!(
            "stopped after {} connections",
            summary.accepted
        ));
        Ok(())
    })
}

/// Connects `client` with `to` until both directions have ended; how many bytes went each way.
async fn connected(client: TcpStream, to: &str, limit: Duration) -> io::Result<(u64, u64)> {
    let server = TcpStream::connect_timeout(to, limit).await?;
    // Nobody here knows what comes next, so nothing is kept back to send it along.
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    future::try_zip(
        pass(from_client, to_server, limit),
        pass(from_server, to_client, limit),
    )
    .await
}

/// Passes on what comes, and then its end.
async fn pass(mut from: OwnedReadHalf, to: OwnedWriteHalf, limit: Duration) -> io::Result<u64> {
    let mut to = Limited::new(to, limit);
    let mut buffer = vec![0; 64 * 1024];
    let mut bytes = 0;
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            to.close().await?;
            return Ok(bytes);
        }
        to.write_all(&buffer[..read]).await?;
        bytes += read as u64;
    }
}
