//! A chat: each line of a client goes to all others. Try it with `nc 127.0.0.1 7000`, twice.
//! Start it with `cargo run --release --example chat -- [ADDR]`.
//! Each client has a task and a queue of lines. No client waits for another: one that lets its
//! queue overflow, or takes nothing for a while, is disconnected.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_channel::Sender;
use polder::future::or;
use polder::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use polder::net::{TcpListener, TcpStream, serve};
use polder::signal::{Signal, Signals};
use polder::stream::StreamExt;
use polder::time::{sleep, timeout};

const CLIENTS: usize = 1_000;
const QUEUE: usize = 1_000;
const PACE: Duration = Duration::from_millis(1); // Between two lines of a client.
const LONGEST: u64 = 4_096; // In bytes. A longer line is sent in parts.
const PATIENCE: Duration = Duration::from_secs(10); // With a client that takes nothing.
/// The queues of the clients that are here.
pub type Room = Mutex<BTreeMap<SocketAddr, Sender<Arc<str>>>>;

fn main() -> io::Result<()> {
    let mut given = std::env::args().skip(1);
    let (address, None) = (given.next(), given.next()) else {
        return Err(io::Error::other("usage: chat [ADDR]"));
    };
    polder::block_on(async {
        let mut stop = Signals::new([Signal::Int, Signal::Term])?;
        let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:7000")).await?;
        println!("listening on {}", listener.local_addr()?);
        let room = Arc::new(Room::default());
        let client = |stream, peer| {
            let room = room.clone();
            async move { _ = client(stream, peer, &room).await } // An error ends this client only.
        };
        let stopped = async { _ = stop.next().await };
        let server = serve(listener, client).limit(CLIENTS);
        server.until(stopped).await.map(drop)
    })
}

pub async fn client(stream: TcpStream, peer: SocketAddr, room: &Room) -> io::Result<()> {
    let (sender, queue) = async_channel::bounded(QUEUE);
    room.lock().unwrap().insert(peer, sender);
    say(room, peer, "is here");
    let (reader, mut writer) = stream.into_split();
    let (mut reader, mut line) = (BufReader::new(reader).take(LONGEST), Vec::new());
    let reading = async {
        while reader.read_until(b'\n', &mut line).await? > 0 {
            say(room, peer, String::from_utf8_lossy(&line).trim_end());
            line.clear();
            reader.set_limit(LONGEST);
            sleep(PACE).await; // A client that sends on and on fills no queue.
        }
        Ok(())
    };
    let writing = async {
        while let Ok(line) = queue.recv().await {
            timeout(PATIENCE, writer.write_all(line.as_bytes())).await??;
        }
        Ok(())
    };
    let result = or(reading, writing).await; // The first to end ends the other.
    room.lock().unwrap().remove(&peer);
    say(room, peer, "has left");
    result
}

/// Sends a line to all but its speaker. A full queue is dropped here: its client's task ends then.
fn say(room: &Room, speaker: SocketAddr, text: &str) {
    let line: Arc<str> = format!("{speaker}: {text}\n").into();
    let mut room = room.lock().unwrap(); // Never over an `.await`.
    room.retain(|peer, queue| *peer == speaker || queue.try_send(line.clone()).is_ok());
}
