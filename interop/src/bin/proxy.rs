//! A TCP proxy: connects each client with another address, in both directions.
//! The two directions end separately: the end of one is passed on, and the other goes on. Anything
//! else that ends the connection (a reset, a side that reads nothing for `--timeout-ms`, silence)
//! resets both sides, so that neither takes partial data for complete.
//! Silence is allowed for `--idle-ms`, five minutes by default. A side that has ended its direction
//! may be gone, which looks the same as a client that waits for its response: then the other side
//! may be silent for `--timeout-ms` only.

use std::io;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use interop::{Arguments, Limited, say};
use polder::event::Event;
use polder::future;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{ReadHalf, TcpStream, WriteHalf, serve};
use polder::time::timeout_at;
use socket2::SockRef;

const USAGE: &str = "proxy [ADDR] --to ADDR [--timeout-ms N] [--idle-ms N] [--backend NAME]";

/// The default of `--idle-ms`: how long both sides may be silent.
const IDLE: Duration = Duration::from_secs(300);

/// How long connections may continue after Ctrl-C.
const GRACE: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    interop::main(USAGE, run)
}

fn run(arguments: &Arguments) -> io::Result<()> {
    let limit = arguments.limit();
    let idle = arguments.duration("idle-ms", IDLE)?;
    let to = arguments.option("to");
    let to = to.ok_or_else(|| arguments.wrong("where should it connect to?"))?;
    arguments.runtime()?.block_on(async {
        let stopped = interop::stopped()?;
        let listener = arguments.listen().await?;
        let summary = serve(listener, |client, peer| {
            let to = to.to_owned();
            async move {
                match connected(client, &to, limit, idle).await {
                    Ok((up, down)) => say(format_args!("{peer}: {up} bytes up, {down} down")),
                    Err(error) => say(format_args!("{peer}: {error}")),
                }
            }
        })
        .limit(10_000)
        .until(stopped)
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

/// Connects `client` with `to` until both directions have ended. Returns the number of bytes of
/// each.
async fn connected(
    client: TcpStream,
    to: &str,
    limit: Duration,
    idle: Duration,
) -> io::Result<(u64, u64)> {
    let mut client = Side::new(client);
    let mut server = Side::new(TcpStream::connect_timeout(to, limit).await?);
    // The proxy cannot know what comes next, so it sends at once (no Nagle).
    client.stream.set_nodelay(true)?;
    server.stream.set_nodelay(true)?;
    let traffic = Traffic::default();
    let (from_client, to_client) = client.stream.split();
    let (from_server, to_server) = server.stream.split();
    let passed = future::try_zip(
        pass(from_client, to_server, limit, &traffic),
        pass(from_server, to_client, limit, &traffic),
    );
    let silence = async { Err(traffic.silence(idle, limit).await) };
    let bytes = future::or(passed, silence).await?;
    client.has_ended = true;
    server.has_ended = true;
    Ok(bytes)
}

/// Copies one direction, and then shuts it down.
async fn pass(
    mut from: ReadHalf<'_>,
    to: WriteHalf<'_>,
    limit: Duration,
    traffic: &Traffic,
) -> io::Result<u64> {
    let mut to = Limited::new(to, limit);
    let mut buffer = vec![0; 64 * 1024];
    let mut bytes = 0;
    loop {
        let read = from.read(&mut buffer).await?;
        traffic.passed();
        if read == 0 {
            to.close().await?;
            traffic.half_ended.set();
            return Ok(bytes);
        }
        to.write_all(&buffer[..read]).await?;
        bytes += read as u64;
    }
}

/// One of the two connections. If it is dropped before both directions have ended it is reset:
/// truncated data must not look complete.
struct Side {
    stream: TcpStream,
    has_ended: bool,
}

impl Side {
    fn new(stream: TcpStream) -> Side {
        Side {
            stream,
            has_ended: false,
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        if !self.has_ended {
            // Closing with a linger time of zero resets. It fails if the connection is gone
            // already.
            let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        }
    }
}

/// When data last came, from either side.
struct Traffic {
    last: Mutex<Instant>,
    /// One direction has ended.
    half_ended: Event,
}

impl Default for Traffic {
    fn default() -> Traffic {
        Traffic {
            last: Mutex::new(Instant::now()),
            half_ended: Event::new(),
        }
    }
}

impl Traffic {
    fn passed(&self) {
        *self.last.lock().unwrap() = Instant::now();
    }

    /// Waits until no data has passed for `idle`, or for `half_idle` once one direction has ended.
    async fn silence(&self, idle: Duration, half_idle: Duration) -> io::Error {
        let mut allowed = idle;
        loop {
            let until = *self.last.lock().unwrap() + allowed;
            if until <= Instant::now() {
                let text = format!("nothing has passed for {allowed:?}");
                return io::Error::new(io::ErrorKind::TimedOut, text);
            }
            if timeout_at(until, self.half_ended.wait()).await.is_ok() {
                allowed = allowed.min(half_idle);
            }
        }
    }
}
