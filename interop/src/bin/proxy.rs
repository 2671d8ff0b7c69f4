//! A TCP proxy: connects each client with another address, in both directions. The two directions
//! end separately: the end of one is passed on, and the other continues. Any other end of the
//! connection (a reset, a side that reads nothing for `--timeout-ms`, silence) resets both sides,
//! so that neither takes partial data for complete. Silence is allowed for `--idle-ms`, five
//! minutes by default. A side that has ended its direction may be gone, which looks the same as a
//! client that waits for its response: then the other side may be silent for `--timeout-ms` only.

use std::io;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Mutex;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use interop::{Arguments, Limited, say, served};
use polder::event::Event;
use polder::future;
use polder::io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes};
use polder::net::{TcpStream, serve};
use polder::time::timeout_at;

const USAGE: &str = "proxy [ADDR] --to ADDR [--timeout-ms N] [--idle-ms N] [--backend NAME]";

/// The default of `--idle-ms`: how long both sides may be silent.
const IDLE: Duration = Duration::from_secs(300);

/// The size of the buffer of each direction.
const BUFFER: usize = 64 * 1024;

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
        let server = serve(listener, |client, peer| {
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
        .grace(GRACE);
        served(server).await
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
    // The proxy cannot know what comes next, so it sends without delay (no Nagle).
    client.stream.set_nodelay(true)?;
    server.stream.set_nodelay(true)?;
    let traffic = Traffic::default();
    let mut near = Watched::new(&client, limit, &traffic);
    let mut far = Watched::new(&server, limit, &traffic);
    let passed = copy_bidirectional_with_sizes(&mut near, &mut far, BUFFER, BUFFER);
    let silence = async { Err(traffic.silence(idle, limit).await) };
    let bytes = future::or(passed, silence).await?;
    client.has_ended = true;
    server.has_ended = true;
    Ok(bytes)
}

/// One of the two connections, with its traffic recorded.
struct Watched<'a> {
    stream: Limited<TcpStream>,
    traffic: &'a Traffic,
}

impl<'a> Watched<'a> {
    fn new(side: &Side, limit: Duration, traffic: &'a Traffic) -> Watched<'a> {
        Watched {
            stream: Limited::new(side.stream.clone(), limit),
            traffic,
        }
    }
}

impl AsyncRead for Watched<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, bytes))?;
        self.traffic.passed();
        if read == 0 {
            self.traffic.half_ended.set();
        }
        Poll::Ready(Ok(read))
    }
}

impl AsyncWrite for Watched<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(cx)
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
            let _ = self.stream.set_linger(Some(Duration::ZERO));
        }
    }
}

/// When data last came, from either side.
struct Traffic {
    last: Mutex<Instant>,
    /// Set once one direction has ended.
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
