//! A chat: the first line of a client is its name, and each further one is sent to all others. Each
//! client has a task for each direction. The reading task sends lines to the channels of the
//! others; the writing task receives from the client's own channel. A sender waits for a full
//! channel: a burst of lines passes at the pace of the slowest reader. A client that is too slow
//! gets no more lines, and is disconnected when the rest is written, or when nothing could be
//! written for `--timeout-ms`. So one client never delays the others for long. With `--broker`,
//! servers share a room: a line sent on one is sent on all that use the same `--room`. Redis relays
//! it, see `src/broker.rs`. While redis is unreachable, the clients of each server continue to talk
//! to each other.

use std::collections::HashMap;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender};
use interop::broker::{Broker, Heard};
use interop::{Arguments, Limited, say, served, told};
use polder::future;
use polder::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use polder::net::{OwnedReadHalf, OwnedWriteHalf, SocketAddr, TcpStream, serve};
use polder::time::{timeout, timeout_at};

const USAGE: &str =
    "chat [ADDR] [--broker ADDR|PATH] [--room NAME] [--timeout-ms N] [--backend NAME]";

/// The default of `--room`.
const ROOM: &str = "chat";

/// The number of lines that may be queued for a client.
const CAPACITY: usize = 1_000;

/// A client with a full channel must take [`PACE`] lines in this time. The sender waits meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);

/// Low enough for every client that reads, also on a busy machine; high enough that the slowest
/// allowed client does not stop the chat of the others.
const PACE: usize = 100;

/// The maximum length of a line, in bytes.
const LONGEST: u64 = 4_096;

/// How long queued lines may take to be delivered after Ctrl-C.
const GRACE: Duration = Duration::from_millis(250);

fn main() -> ExitCode {
    interop::main(USAGE, run)
}

fn run(arguments: &Arguments) -> io::Result<()> {
    let limit = arguments.limit();
    arguments.runtime()?.block_on(async {
        let stopped = interop::stopped()?;
        let name = arguments.option("room").unwrap_or(ROOM);
        let (broker, connection) = match arguments.option("broker") {
            Some(address) => Some(Broker::new(address, name, limit)).unzip(),
            None => (None, None),
        };
        let room = Arc::new(Room {
            broker,
            members: Mutex::default(),
        });
        let listener = arguments.listen().await?;
        let sharing = connection.map(|connection| {
            let room = room.clone();
            polder::spawn(connection.run(async move |heard| room.hear(heard).await))
        });
        let server = serve(listener, |stream, peer| {
            let room = room.clone();
            async move { told(peer, client(stream, peer, &room, limit).await) }
        })
        .until(async {
            stopped.await;
            room.close();
        })
        .grace(GRACE);
        served(server).await?;
        if let (Some(sharing), Some(broker)) = (sharing, &room.broker) {
            // The other servers are notified of who has left.
            broker.close();
            let _ = timeout(GRACE, sharing).await;
        }
        Ok(())
    })
}

type Line = Arc<str>;

struct Room {
    /// The clients of this server.
    members: Mutex<HashMap<SocketAddr, Member>>,
    /// The connection to the clients of other servers.
    broker: Option<Broker>,
}

struct Member {
    lines: Sender<Line>,
    /// The number of lines that it has taken.
    taken: Arc<AtomicUsize>,
    /// When its channel became full, and the number of lines that it had taken then.
    full: Option<(Instant, usize)>,
}

impl Member {
    /// Returns the time until which a sender waits for its full channel.
    fn patience(&mut self) -> Instant {
        let (now, taken) = (Instant::now(), self.taken.load(Ordering::Relaxed));
        let (since, before) = *self.full.get_or_insert((now, taken));
        if taken - before < PACE {
            return since + PATIENCE;
        }
        self.full = Some((now, taken));
        now + PATIENCE
    }
}

impl Room {
    /// Sends a line to all but the speaker, on this server and on the others.
    async fn say(&self, speaker: SocketAddr, line: String) {
        self.tell(Some(speaker), &line).await;
        if let Some(broker) = &self.broker {
            broker.publish(line).await;
        }
    }

    /// Handles messages from the other servers.
    async fn hear(&self, heard: Heard) {
        let line = match heard {
            Heard::Line(line) => line,
            Heard::Lost(count) => format!("* {count} lines of another server are missing\n"),
            Heard::Reached => {
                say(format_args!("the broker is reached"));
                "* the other servers are within reach\n".into()
            }
            Heard::Refused(error) => {
                say(format_args!("the broker takes no lines: {error}"));
                "* the other servers do not hear this one\n".into()
            }
            Heard::Taken => {
                say(format_args!("the broker takes lines again"));
                "* the other servers hear this one again\n".into()
            }
            Heard::Unreached(error) => {
                say(format_args!("the broker is not reached: {error}"));
                "* the other servers are out of reach\n".into()
            }
        };
        self.tell(None, &line).await;
    }

    /// Sends a line to all clients of this server except the speaker. A client that is too slow
    /// gets no more lines.
    async fn tell(&self, speaker: Option<SocketAddr>, line: &str) {
        let line = Line::from(line);
        let mut full = Vec::new();
        for (peer, member) in self.members.lock().unwrap().iter_mut() {
            if Some(*peer) != speaker && member.lines.try_send(line.clone()).is_err() {
                full.push((*peer, member.lines.clone(), member.patience()));
            }
        }
        for (peer, lines, until) in full {
            let sent = timeout_at(until, lines.send(line.clone())).await;
            if !matches!(sent, Ok(Ok(()))) {
                self.leave(peer);
            }
        }
        // Yields, so that a client that sends a lot does not starve the writing tasks.
        future::yield_now().await;
    }

    /// Adds a client. Returns its channel, with a welcome in it, and the counter of lines taken.
    fn enter(&self, peer: SocketAddr) -> (Receiver<Line>, Arc<AtomicUsize>) {
        let (sender, receiver) = async_channel::bounded(CAPACITY);
        let mut members = self.members.lock().unwrap();
        let welcome = format!("* {} others are here\n", members.len());
        sender.try_send(welcome.into()).expect("it is empty");
        let taken = Arc::default();
        let member = Member {
            lines: sender,
            taken: Arc::clone(&taken),
            full: None,
        };
        members.insert(peer, member);
        (receiver, taken)
    }

    fn leave(&self, peer: SocketAddr) {
        self.members.lock().unwrap().remove(&peer);
    }

    fn close(&self) {
        self.members.lock().unwrap().clear();
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
    let (lines, taken) = room.enter(peer);
    let writing = polder::spawn(write(Limited::new(writer, limit), lines, taken));
    room.say(peer, format!("* {name} is here\n")).await;
    let read = async {
        while let Some(text) = line(&mut reader).await? {
            room.say(peer, format!("{name}: {text}\n")).await;
        }
        Ok(())
    };
    // The first task to end ends the other: writing ends when the room has removed this client.
    let result = future::or(read, writing).await;
    room.leave(peer);
    room.say(peer, format!("* {name} has left\n")).await;
    result
}

/// Returns the next line, without its end.
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

async fn write(
    mut writer: Limited<OwnedWriteHalf>,
    lines: Receiver<Line>,
    taken: Arc<AtomicUsize>,
) -> io::Result<()> {
    while let Ok(line) = lines.recv().await {
        writer.write_all(line.as_bytes()).await?;
        taken.fetch_add(1, Ordering::Relaxed);
    }
    writer.close().await
}
