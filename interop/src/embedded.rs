//! Shared by the programs that put a runtime into a foreign loop: a server that sends its clients
//! the number of ticks of that loop's own timer.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use polder::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use polder::net::{TcpListener, TcpStream, serve};
use polder::time::timeout;

use crate::{served, told};

/// The period of the foreign loop's timer.
pub const TICK: Duration = Duration::from_millis(10);

/// The longest delay for the runtime's sockets if the backend has no descriptor.
pub const LATENCY: Duration = Duration::from_millis(2);

/// How long clients may continue after Ctrl-C.
const GRACE: Duration = Duration::from_millis(250);

/// Answers each line of a client with the number of ticks, until `stopped`. `limit` is how long
/// clients may be silent.
pub async fn serve_ticks(
    listener: TcpListener,
    stopped: impl Future<Output = ()> + Send,
    ticks: Arc<AtomicU64>,
    limit: Duration,
) -> io::Result<()> {
    let server = serve(listener, |stream, peer| {
        let ticks = ticks.clone();
        async move { told(peer, client(stream, &ticks, limit).await) }
    });
    served(server.until(stopped).grace(GRACE)).await
}

async fn client(mut stream: TcpStream, ticks: &AtomicU64, limit: Duration) -> io::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut lines = BufReader::new(reader);
    loop {
        let bytes = timeout(limit, lines.fill_buf()).await??;
        if bytes.is_empty() {
            return Ok(());
        }
        let (length, ends) = (
            bytes.len(),
            bytes.iter().filter(|byte| **byte == b'\n').count(),
        );
        lines.consume(length);
        for _ in 0..ends {
            let text = format!("{}\n", ticks.load(Ordering::Relaxed));
            writer.write_all(text.as_bytes()).await?;
        }
    }
}
