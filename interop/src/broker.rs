//! [`Broker`]: lines shared by several servers, over redis' publish and subscribe.
//!
//! Each server publishes its own clients' lines, and subscribes to those of the others. Redis
//! stores nothing, so a line that is published while a server is not subscribed does not reach it.
//! This module adds: a server that cannot reach the broker retries, and keeps up to [`CAPACITY`]
//! lines meanwhile; lines without a confirmation are published again; and each line has a number,
//! so that the others drop duplicates, and can count the missing ones.
//!
//! It needs two commands of redis' protocol (RESP2), and implements them itself: the crate `redis`
//! has an unbounded queue of received messages, while here a slow listener makes the broker wait.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_channel::{Receiver, Sender};
use polder::event::Latch;
use polder::future;
use polder::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader,
    split,
};
use polder::net::TcpStream;
use polder::time::{sleep, timeout};

/// The number of lines that may wait for the broker.
const CAPACITY: usize = 1_000;

/// How long a line waits for room in that queue, while the broker takes any.
const PATIENCE: Duration = Duration::from_secs(1);

/// The number of lines in one batch, before their confirmations are awaited.
const BATCH: usize = 100;

/// The pause before the broker is tried again: `FIRST_PAUSE` after the first failure, doubled after
/// each further one, up to `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The maximum length of an accepted payload, and of a line of the protocol.
const LONGEST: usize = 64 * 1024;
const LONGEST_HEAD: u64 = 1_024;

/// The maximum number of strings in one answer: a message has three.
const MAX_PARTS: usize = 8;

/// The number of servers that are tracked. There are never that many at a time, but each new start
/// has a new id.
const SERVERS: usize = 10_000;

/// An event from the broker.
#[derive(Debug)]
pub enum Heard {
    /// A line from another server, with its end.
    Line(String),
    /// The number of missing lines of another server.
    Lost(u64),
    /// The broker refuses to publish. Publishing is retried, and received lines are passed on
    /// meanwhile.
    Refused(io::Error),
    /// The broker publishes again.
    Taken,
    /// The broker is reached.
    Reached,
    /// The broker cannot be reached any more, or could not be reached initially.
    Unreached(io::Error),
}

/// The publishing side: a handle, which can be cloned.
#[derive(Clone)]
pub struct Broker {
    lines: Sender<String>,
    state: Arc<State>,
}

/// The connected side.
pub struct Connection {
    address: String,
    channel: String,
    limit: Duration,
    lines: Receiver<String>,
    state: Arc<State>,
    /// The id of this server.
    id: u64,
    /// The number of the last line taken.
    number: u64,
    /// Lines that were taken but not confirmed.
    unconfirmed: VecDeque<Vec<u8>>,
    /// The number of the last line of each other server.
    heard: HashMap<u64, u64>,
}

#[derive(Default)]
struct State {
    /// Whether the broker takes lines, so that it is worth waiting.
    takes: AtomicBool,
    /// The number of lines that found no room.
    lost: AtomicU64,
}

impl Broker {
    /// Returns both sides. `address` is a host and a port, or the path of a Unix socket, which
    /// begins with a slash. A broker that is silent for `limit` is considered gone.
    pub fn new(address: &str, channel: &str, limit: Duration) -> (Broker, Connection) {
        let (sender, lines) = async_channel::bounded(CAPACITY);
        let state = Arc::new(State::default());
        let connection = Connection {
            address: address.into(),
            channel: channel.into(),
            limit,
            lines,
            state: state.clone(),
            // Randomly keyed.
            id: RandomState::new().build_hasher().finish(),
            number: 0,
            unconfirmed: VecDeque::new(),
            heard: HashMap::new(),
        };
        let lines = sender;
        (Broker { lines, state }, connection)
    }

    /// Publishes a line. Waits while the queue is full, but not for long, and not for a broker that
    /// takes no lines: then the line is lost, and the other servers can count it as missing.
    pub async fn publish(&self, line: String) {
        let Err(full) = self.lines.try_send(line) else {
            return;
        };
        if self.state.takes.load(Ordering::Relaxed) {
            let sent = timeout(PATIENCE, self.lines.send(full.into_inner())).await;
            if matches!(sent, Ok(Ok(()))) {
                return;
            }
            self.state.takes.store(false, Ordering::Relaxed);
        }
        self.state.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the connection as soon as all lines are published.
    pub fn close(&self) {
        self.lines.close();
    }
}

impl Connection {
    /// Publishes and listens until [`Broker::close`]. Passes each event to `hear`, and waits for
    /// it.
    pub async fn run(mut self, hear: impl AsyncFn(Heard)) {
        let (mut pause, mut told) = (FIRST_PAUSE, false);
        loop {
            let error = match self.connected().await {
                Ok((listening, publishing)) => {
                    (pause, told) = (FIRST_PAUSE, false);
                    self.state.takes.store(true, Ordering::Relaxed);
                    hear(Heard::Reached).await;
                    match self.exchange(listening, publishing, &hear).await {
                        Ok(()) => return,
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            self.state.takes.store(false, Ordering::Relaxed);
            if !told {
                told = true;
                hear(Heard::Unreached(error)).await;
            }
            if self.lines.is_closed() {
                return;
            }
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(2 * pause);
        }
    }

    /// Connects twice: a subscribed connection can do nothing else.
    async fn connected(&self) -> io::Result<(Stream, Stream)> {
        let both = async {
            let mut listening = connect(&self.address).await?;
            command(&mut listening, &[b"SUBSCRIBE", self.channel.as_bytes()]).await?;
            match reply(&mut listening).await? {
                Reply::List(parts) if parts.first().is_some_and(|kind| kind == b"subscribe") => {}
                other => return Err(unexpected(other)),
            }
            Ok((listening, connect(&self.address).await?))
        };
        timeout(self.limit, both).await?
    }

    /// Returns when all is published and no more can come.
    async fn exchange(
        &mut self,
        listening: Stream,
        publishing: Stream,
        hear: &impl AsyncFn(Heard),
    ) -> io::Result<()> {
        let Connection {
            channel,
            limit,
            lines,
            state,
            id,
            number,
            unconfirmed,
            heard,
            ..
        } = self;
        let over = Latch::new();
        let publish = async {
            let mut stream = publishing;
            // The pause after a refusal.
            let mut pause = None;
            loop {
                if unconfirmed.is_empty() {
                    match lines.recv().await {
                        Ok(line) => unconfirmed.push_back(numbered(*id, number, state, &line)),
                        Err(_) => return Ok(()),
                    }
                }
                while unconfirmed.len() < BATCH
                    && let Ok(line) = lines.try_recv()
                {
                    unconfirmed.push_back(numbered(*id, number, state, &line));
                }
                let publish = async {
                    let mut batch = Vec::new();
                    for payload in unconfirmed.iter() {
                        command(&mut batch, &[b"PUBLISH", channel.as_bytes(), payload]).await?;
                    }
                    stream.write_all(&batch).await?;
                    stream.flush().await?;
                    let mut refusal = None;
                    let mut refused = 0;
                    for _ in 0..unconfirmed.len() {
                        match reply(&mut stream).await? {
                            // Drops refused lines before it too: the others accept no line older
                            // than their last.
                            Reply::Number => {
                                drop(unconfirmed.drain(..=std::mem::take(&mut refused)))
                            }
                            Reply::Error(error) => {
                                refused += 1;
                                refusal = Some(error);
                            }
                            other => return Err(unexpected(other)),
                        }
                    }
                    Ok(refusal.filter(|_| refused > 0))
                };
                let refusal = timeout(*limit, publish).await??;
                state.takes.store(refusal.is_none(), Ordering::Relaxed);
                match (refusal, pause) {
                    (None, None) => {}
                    (None, Some(_)) => {
                        pause = None;
                        hear(Heard::Taken).await;
                    }
                    (Some(error), _) if lines.is_closed() => return Err(error),
                    (Some(error), before) => {
                        let next = before.map_or(FIRST_PAUSE, |pause| LONGEST_PAUSE.min(2 * pause));
                        pause = Some(next);
                        if before.is_none() {
                            hear(Heard::Refused(error)).await;
                        }
                        sleep(next).await;
                    }
                }
            }
        };
        let listen = async {
            let (reader, mut writer) = split(listening);
            let mut reader = BufReader::new(reader);
            loop {
                let ended = async {
                    over.wait().await;
                    Ok(None)
                };
                let next = async { reply(&mut reader).await.map(Some) };
                let mut next = Box::pin(future::or(ended, next));
                let reply = match timeout(*limit, next.as_mut()).await {
                    Ok(reply) => reply?,
                    // The broker may be idle.
                    Err(_) => {
                        timeout(*limit, command(&mut writer, &[b"PING"])).await??;
                        timeout(*limit, next).await??
                    }
                };
                let parts = match reply {
                    Some(Reply::List(parts)) => parts,
                    Some(other) => return Err(unexpected(other)),
                    None => return Ok(()),
                };
                let [kind, _, payload] = &parts[..] else {
                    continue;
                };
                if kind != b"message" {
                    continue;
                }
                // Any client may publish anything on the channel.
                let Some((server, number, line)) = parsed(payload) else {
                    continue;
                };
                if server == *id {
                    continue;
                }
                if heard.len() >= SERVERS {
                    heard.clear();
                }
                let last = heard.entry(server).or_insert(number.saturating_sub(1));
                if number <= *last {
                    continue;
                }
                let lost = number - *last - 1;
                *last = number;
                if lost > 0 {
                    hear(Heard::Lost(lost)).await;
                }
                hear(Heard::Line(line)).await;
            }
        };
        // Delivers a message that is being received completely.
        let publish = async {
            let published = publish.await;
            over.set();
            Ok(published)
        };
        let (published, ()) = future::try_zip(publish, listen).await?;
        published
    }
}

trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

type Stream = BufReader<Box<dyn Socket>>;

async fn connect(address: &str) -> io::Result<Stream> {
    #[cfg(unix)]
    if address.starts_with('/') {
        let stream = polder::net::unix::UnixStream::connect(address).await?;
        return Ok(BufReader::new(Box::new(stream)));
    }
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(BufReader::new(Box::new(stream)))
}

/// Formats a line with the id of this server and a number. Lost lines have a number, too.
fn numbered(id: u64, number: &mut u64, state: &State, line: &str) -> Vec<u8> {
    *number += 1 + state.lost.swap(0, Ordering::Relaxed);
    format!("{id:x} {number} {line}").into_bytes()
}

/// Returns the server's id, the number, and the line; only one line.
fn parsed(payload: &[u8]) -> Option<(u64, u64, String)> {
    let payload = String::from_utf8_lossy(payload);
    let (id, rest) = payload.split_once(' ')?;
    let (number, line) = rest.split_once(' ')?;
    let line = line.lines().next()?;
    let id = u64::from_str_radix(id, 16).ok()?;
    Some((id, number.parse().ok()?, format!("{line}\n")))
}

async fn command(stream: &mut (impl AsyncWrite + Unpin), parts: &[&[u8]]) -> io::Result<()> {
    let mut bytes = format!("*{}\r\n", parts.len()).into_bytes();
    for part in parts {
        bytes.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(b"\r\n");
    }
    stream.write_all(&bytes).await?;
    stream.flush().await
}

/// An answer of the broker, as far as it matters.
#[derive(Debug)]
enum Reply {
    Number,
    Text,
    Error(io::Error),
    /// Strings; for a number, its digits.
    List(Vec<Vec<u8>>),
}

async fn reply(stream: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Reply> {
    let head = head(stream).await?;
    match (head.first(), &head[1..]) {
        (Some(b':'), _) => Ok(Reply::Number),
        (Some(b'+'), _) => Ok(Reply::Text),
        (Some(b'-'), text) => {
            let text = String::from_utf8_lossy(text);
            Ok(Reply::Error(io::Error::other(text)))
        }
        (Some(b'*'), count) => {
            let mut parts = Vec::new();
            let count = length(count)?;
            if count > MAX_PARTS {
                return Err(invalid(&head));
            }
            for _ in 0..count {
                parts.push(part(stream).await?);
            }
            Ok(Reply::List(parts))
        }
        _ => Err(invalid(&head)),
    }
}

async fn part(stream: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut head = head(stream).await?;
    match head.first() {
        Some(b':') => Ok(head.split_off(1)),
        Some(b'$') => {
            let length = length(&head[1..])?;
            if length > LONGEST {
                return Err(invalid(&head));
            }
            let mut bytes = vec![0; length + 2];
            stream.read_exact(&mut bytes).await?;
            bytes.truncate(length);
            Ok(bytes)
        }
        _ => Err(invalid(&head)),
    }
}

/// Reads a line, and returns it without its end. It is not empty.
async fn head(stream: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    stream
        .take(LONGEST_HEAD)
        .read_until(b'\n', &mut line)
        .await?;
    match line.strip_suffix(b"\r\n") {
        Some(line) if !line.is_empty() => Ok(line.to_vec()),
        _ if line.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Err(invalid(&line)),
    }
}

fn length(digits: &[u8]) -> io::Result<usize> {
    let number = std::str::from_utf8(digits).ok();
    let number = number.and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| invalid(digits))
}

fn invalid(bytes: &[u8]) -> io::Error {
    let text = format!("this is no answer of redis: {}", bytes.escape_ascii());
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn unexpected(reply: Reply) -> io::Error {
    match reply {
        Reply::Error(error) => error,
        reply => {
            let text = format!("this is not what redis was asked for: {reply:?}");
            io::Error::new(io::ErrorKind::InvalidData, text)
        }
    }
}
