//! A WebSocket echo server: async-tungstenite, on polder's sockets. A client that sends nothing for
//! `--timeout-ms` gets a ping, and is disconnected if nothing comes in the same time again. So is a
//! client that reads nothing for that time: while a pong or an echo cannot be sent, nothing more is
//! read, so nothing accumulates. After Ctrl-C or SIGTERM the clients get a close frame ("going
//! away").

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use async_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use async_tungstenite::tungstenite::{Error, Message};
use async_tungstenite::{WebSocketStream, accept_async_with_config};
use futures_util::SinkExt;
use interop::{Arguments, Limited, say, served, told};
use polder::event::Latch;
use polder::future;
use polder::net::{SocketAddr, TcpStream, serve};
use polder::stream::StreamExt;
use polder::time::timeout;

const USAGE: &str = "websocket [ADDR] [--timeout-ms N] [--backend NAME]";

/// The maximum length of a message, in bytes.
const LONGEST: usize = 4 << 20;

/// The size of the write buffer.
const BUFFER: usize = 16 * 1024;

/// How long clients may take to close after Ctrl-C.
const GRACE: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    interop::main(USAGE, run)
}

fn run(arguments: &Arguments) -> std::io::Result<()> {
    let limit = arguments.limit();
    arguments.runtime()?.block_on(async {
        let stopped = interop::stopped()?;
        let stop = Arc::new(Latch::new());
        let listener = arguments.listen().await?;
        let server = serve(listener, |stream, peer| {
            let stop = stop.clone();
            async move { told(peer, client(stream, peer, limit, &stop).await) }
        })
        .limit(10_000)
        .until(async {
            stopped.await;
            stop.set();
        })
        .grace(GRACE);
        served(server).await
    })
}

async fn client(
    stream: TcpStream,
    peer: SocketAddr,
    limit: Duration,
    stop: &Latch,
) -> Result<(), Error> {
    stream.set_nodelay(true)?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(LONGEST))
        .max_frame_size(Some(LONGEST))
        .write_buffer_size(BUFFER)
        // One message, plus small frames: the default is no limit.
        .max_write_buffer_size(LONGEST + 2 * BUFFER);
    let greeting = accept_async_with_config(Limited::new(stream, limit), Some(config));
    let mut socket = timeout(limit, greeting)
        .await
        .map_err(std::io::Error::from)??;
    say(format_args!("{peer} connected"));
    let stopped = async {
        stop.wait().await;
        None
    };
    if let Some(ended) = future::or(async { Some(echo(&mut socket, limit).await) }, stopped).await {
        return ended;
    }
    let goodbye = CloseFrame {
        code: CloseCode::Away,
        reason: "the server stops".into(),
    };
    socket.close(Some(goodbye)).await?;
    while socket.try_next().await?.is_some() {}
    Ok(())
}

/// Echoes until the client closes the connection.
async fn echo(
    socket: &mut WebSocketStream<Limited<TcpStream>>,
    limit: Duration,
) -> Result<(), Error> {
    let mut asked = false;
    loop {
        match timeout(limit, socket.try_next()).await {
            Ok(message) => match message? {
                Some(message @ (Message::Text(_) | Message::Binary(_))) => {
                    socket.send(message).await?
                }
                // tungstenite has put the answers to pings and close frames into its buffer.
                // Without a flush it would continue to read and to answer while the client reads
                // none of the answers.
                Some(_) => socket.flush().await?,
                None => return Ok(()),
            },
            Err(_) if !asked => {
                asked = true;
                socket.send(Message::Ping("?".into())).await?;
                continue;
            }
            Err(elapsed) => return Err(std::io::Error::from(elapsed).into()),
        }
        asked = false;
    }
}
