//! A chat: the first line that a client sends is its name, and each further one goes to everyone else.
//!
//! Each client has one task each way. The one that reads puts lines into the others' channels; the one
//! that writes takes them out of the client's own. A channel that is full belongs to somebody who does
//! not keep up: it gets no more lines, and its client is shown out when the rest is written, or when
//! nothing could be for the time that `--timeout-ms` gives. So one client never keeps the others waiting.

use std::collections::HashMap;
use std::io;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_channel::{Receiver, Sender};
use interop::{Arguments, Limited, say, told};
use polder::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use polder::net::{OwnedReadHalf, OwnedWriteHalf, SocketAddr, TcpStream, serve};
use polder::time::timeout;
use polder::{future, signal};

const USAGE: &str = "chat [ADDR] [--timeout-ms N] [--backend NAME]";

/// So many lines may wait for a client.
const CAPACITY: usize = 1_000;

/// The longest line, in bytes.
const LONGEST: u64 = 4_096;

/// How long what has been said may take to be delivered after Ctrl-C.
const GRACE: Duration = Duration::from_millis(250);

fn main() -> ExitCode {
    interop::main(USAGE, run)
}

fn run(arguments: &Arguments) -> io::Result<()> {
    let limit = arguments.limit()?;
    arguments.runtime()?.block_on(async {
        let ctrl_c = signal::ctrl_c();
        let room = Arc::new(Room::default());
        let listener = arguments.listen().await?;
        let summary = serve(listener, |stream, peer| {
            let room = room.clone();
            async move { told(peer, client(stream, peer, &room, limit).await) }
        })
        .until(async {
            told("Ctrl-C", ctrl_c.await);
            room.close();
        })
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

type Line = Arc<str>;

/// The channels of those who are there.
#[derive(Default)]
struct Room(Mutex<HashMap<SocketAddr, Sender<Line>>>);

impl Room {
    /// To everyone but the speaker. Who does not keep up hears no more.
    fn say(&self, speaker: SocketAddr, line: String) {
        let line = Line::from(line);
        let mut members = self.0.lock().unwrap();
        members.retain(|member, lines| *member == speaker || lines.try_send(line.clone()).is_ok());
    }

    /// The newcomer's channel, with a welcome in it.
    fn enter(&self, peer: SocketAddr) -> Receiver<Line> {
        let (sender, receiver) = async_channel::bounded(CAPACITY);
        let mut members = self.0.lock().unwrap();
        let welcome = format!("* {} others are here\n", members.len());
        sender.try_send(welcome.into()).expect("it is empty");
        members.insert(peer, sender);
        receiver
    }

    fn leave(&self, peer: SocketAddr) {
        self.0.lock().unwrap().remove(&peer);
    }

    fn close(&self) {
        self.0.lock().unwrap().clear();
    }
}

async fn client(
    stream: TcpStream,
    peer: SocketAddr,
    room: &Room,
    limit: Duration,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (reader, writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let Some(name) = timeout(limit, line(&mut reader)).await?? else {
        return Ok(());
    };
    let lines = room.enter(peer);
    let writing = polder::spawn(write(Limited::new(writer, limit), lines));
    room.say(peer, format!("* {name} is here\n"));
    let read = async {
        while let Some(text) = line(&mut reader).await? {
            room.say(peer, format!("{name}: {text}\n"));
        }
        Ok(())
    };
    // Whichever ends first ends the other: writing ends when the room has shown this client out.
    let result = future::or(read, writing).await;
    room.leave(peer);
    room.say(peer, format!("* {name} has left\n"));
    result
}

/// The next line, without its end.
async fn line(reader: &mut BufReader<OwnedReadHalf>) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    reader.take(LONGEST).read_until(b'\n', &mut bytes).await?;
    match bytes.pop() {
        Some(b'\n') => Ok(Some(String::from_utf8_lossy(&bytes).trim_end().to_owned())),
        Some(_) if bytes.len() as u64 + 1 == LONGEST => {
            let text = format!("a line is longer than {LONGEST} bytes");
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
        }
        _ => Ok(None),
    }
}

async fn write(mut writer: Limited<OwnedWriteHalf>, lines: Receiver<Line>) -> io::Result<()> {
    while let Ok(line) = lines.recv().await {
        writer.write_all(line.as_bytes()).await?;
    }
    writer.close().await
}
