//! A server without futures, on `polder::poller` alone: an example of your own event loop.
//!
//! ```text
//! cargo run --release --example poll_loop -- [ADDR] [--backend NAMES] [--mode level|oneshot|edge]
//! ```
//! The protocol: a request is a length (4 bytes, little endian, at most 32 MiB) and that many
//! bytes; the reply is a copy of it. A longer length is an error: it closes the connection, after
//! the replies before it. Requests may be pipelined; replies come in order.
//! Each connection has an incoming buffer, an outgoing buffer, and three wishes: to read, to write,
//! to be closed. Its interest follows from these. While the outgoing buffer is long, the connection
//! does not want to read: a client that does not take its replies is no longer served, and uses no
//! more memory.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use polder::poller::{Events, Interest, Mode, Poller, Token};
use polder::signal::{Signal, Signals};
use polder::stream::StreamExt;
use polder::{Backend, Runtime};

use log::say;

const USAGE: &str = "usage: poll_loop [ADDR] [--backend NAMES] [--mode level|oneshot|edge]";

/// The maximum length of a request.
const LONGEST: usize = 32 * 1024 * 1024;

/// The size of one read.
const CHUNK: usize = 64 * 1024;

/// A connection with this many outgoing bytes does not read. A single reply may be longer.
const ENOUGH: usize = 256 * 1024;

/// In edge mode a connection has to be read until nothing is left, which may never happen: after
/// this many reads the other connections have their turn.
const SHARE: usize = 16;

/// How long accepting pauses when no descriptors are left.
const PAUSE: Duration = Duration::from_millis(100);

const LISTENER: Token = Token(0);

fn main() -> ExitCode {
    // An argument that is not Unicode is no valid address or option; the parser reports it.
    let given = std::env::args_os().skip(1);
    let given = given.map(|argument| argument.to_string_lossy().into_owned());
    let (result, status) = match arguments(given) {
        Ok(Some(options)) => (Server::new(options).and_then(Server::run), 1),
        Ok(None) => {
            let _ = writeln!(io::stdout(), "{USAGE}");
            return ExitCode::SUCCESS;
        }
        // Usage errors have a separate exit status, as is customary.
        Err(error) => (Err(error), 2),
    };
    log::end("poll_loop");
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::complain(format!("poll_loop: {error}"));
            ExitCode::from(status)
        }
    }
}

struct Options {
    address: String,
    backends: Option<Vec<Backend>>,
    mode: Option<Mode>,
}

/// Returns `None` if help is requested.
fn arguments(mut arguments: impl Iterator<Item = String>) -> io::Result<Option<Options>> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
    let mut address = None;
    let mut backends = None;
    let mut mode = None;
    while let Some(argument) = arguments.next() {
        let mut value = |what: &str| {
            let value = arguments.next();
            value.ok_or_else(|| wrong(format!("{argument} needs {what}; {USAGE}")))
        };
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--backend" => backends = Some(Backend::parse_list(&value("a name")?)?),
            "--mode" => {
                mode = Some(match value("a mode")?.as_str() {
                    "level" => Mode::Level,
                    "oneshot" => Mode::OneShot,
                    "edge" => Mode::Edge,
                    other => return Err(wrong(format!("unknown mode {other:?}; {USAGE}"))),
                });
            }
            option if option.starts_with('-') => {
                return Err(wrong(format!("unknown option {option:?}; {USAGE}")));
            }
            _ if address.is_some() => {
                return Err(wrong(format!("one address is enough; {USAGE}")));
            }
            _ => address = Some(argument),
        }
    }
    Ok(Some(Options {
        address: address.unwrap_or_else(|| "127.0.0.1:7001".into()),
        backends,
        mode,
    }))
}

struct Server {
    poller: Arc<Poller>,
    mode: Mode,
    stop: Arc<AtomicBool>,
    listener: TcpListener,
    /// When accepting resumes, after descriptors ran out.
    paused_until: Option<Instant>,
    connections: HashMap<Token, Connection>,
    /// The connections that used up their share.
    unfinished: HashSet<Token>,
    next: u64,
    /// The read buffer, shared by all connections.
    chunk: Box<[u8]>,
}

impl Server {
    fn new(options: Options) -> io::Result<Server> {
        let backends = match options.backends {
            Some(backends) => backends,
            None => Backend::list_from_env()?,
        };
        let poller = Arc::new(Poller::first_of(backends)?);
        let mode = options.mode.unwrap_or(if poller.capabilities().level {
            Mode::Level
        } else {
            Mode::OneShot
        });
        let listener = TcpListener::bind(&options.address).map_err(|error| {
            // Escaped, so that the message stays one line for any input.
            let address = options.address.escape_debug();
            let what = format!("cannot listen on {address}: {error}");
            io::Error::new(error.kind(), what)
        })?;
        listener.set_nonblocking(true)?;
        // SAFETY: the listener lives as long as the poller, in one structure, and nothing waits
        // after it is closed.
        unsafe { poller.register(&listener, LISTENER, Interest::READABLE, mode)? };
        Ok(Server {
            poller,
            mode,
            stop: Arc::default(),
            listener,
            paused_until: None,
            connections: HashMap::new(),
            unfinished: HashSet::new(),
            next: LISTENER.0 + 1,
            chunk: vec![0; CHUNK].into(),
        })
    }

    fn run(mut self) -> io::Result<()> {
        self.watch_for_signals()?;
        log::start()?;
        // Printed last: from here on the reader may press Ctrl-C.
        say(format_args!(
            "listening on {} (backend {}, {:?})",
            self.listener.local_addr()?,
            self.poller.backend(),
            self.mode
        ));
        let mut events = Events::new();
        while !self.stop.load(Ordering::Relaxed) {
            let pause = self
                .paused_until
                .map(|until| until.saturating_duration_since(Instant::now()));
            let unfinished = std::mem::take(&mut self.unfinished);
            let timeout = if unfinished.is_empty() {
                pause
            } else {
                Some(Duration::ZERO)
            };
            self.poller.wait(&mut events, timeout)?;
            if self
                .paused_until
                .is_some_and(|until| until <= Instant::now())
            {
                self.paused_until = None;
                self.accept()?;
            }
            for event in &events {
                if event.token() == LISTENER {
                    if self.paused_until.is_none() {
                        self.accept()?;
                    }
                    continue;
                }
                self.serve(event.token(), event.is_readable(), event.is_writable())?;
            }
            for token in unfinished {
                self.serve(token, false, false)?;
            }
        }
        say(format_args!("stopped"));
        Ok(())
    }

    /// Starts a thread that waits for Ctrl-C or SIGTERM and wakes the loop: the only future here.
    /// When this returns, the thread has its descriptors, before clients can take the last ones.
    fn watch_for_signals(&self) -> io::Result<()> {
        let unheard = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot wait for Ctrl-C: {error}"))
        };
        let signals = Signals::new([Signal::Int, Signal::Term]);
        let mut signals = signals.map_err(unheard)?;
        let (stop, poller) = (self.stop.clone(), self.poller.clone());
        let (sender, ready) = mpsc::channel();
        let watch = move || {
            let runtime = match Runtime::new() {
                Ok(runtime) => runtime,
                Err(error) => return drop(sender.send(Err(error))),
            };
            let _ = sender.send(Ok(()));
            runtime.block_on(signals.next());
            stop.store(true, Ordering::Relaxed);
            let _ = poller.notify();
        };
        let thread = std::thread::Builder::new().name("signals".into());
        thread.spawn(watch).map_err(unheard)?;
        let ended = |_| Err(io::Error::other("its thread has ended"));
        ready.recv().unwrap_or_else(ended).map_err(unheard)
    }

    /// Accepts all connections in the queue.
    fn accept(&mut self) -> io::Result<()> {
        loop {
            match self.listener.accept() {
                Ok((stream, peer)) => {
                    stream.set_nonblocking(true)?;
                    let token = Token(self.next);
                    self.next += 1;
                    let mut connection = Connection::new(stream, peer.to_string());
                    // In edge mode both directions are registered once.
                    connection.registered = match self.mode {
                        Mode::Edge => Interest::READABLE | Interest::WRITABLE,
                        _ => Interest::READABLE,
                    };
                    let (stream, interest) = (&connection.stream, connection.registered);
                    // SAFETY: the stream is deregistered before it is closed, in `update`, or the
                    // poller no longer waits.
                    unsafe { self.poller.register(stream, token, interest, self.mode)? };
                    say(format_args!("{peer} connected"));
                    self.connections.insert(token, connection);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => break,
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => {
                        // Most likely no descriptors are left. The connection stays in the queue,
                        // so a level would be reported again and again: pause instead.
                        say(format_args!("cannot accept: {error}"));
                        self.paused_until = Some(Instant::now() + PAUSE);
                        break;
                    }
                },
            }
        }
        let interest = match self.paused_until {
            Some(_) => Interest::NONE,
            None => Interest::READABLE,
        };
        self.poller
            .modify(&self.listener, LISTENER, interest, self.mode)
    }

    fn serve(&mut self, token: Token, readable: bool, writable: bool) -> io::Result<()> {
        // `None` if it was closed earlier in this round.
        if let Some(connection) = self.connections.get_mut(&token) {
            if connection.serve(readable, writable, self.mode, &mut self.chunk) {
                self.unfinished.insert(token);
            }
            self.update(token)?;
        }
        Ok(())
    }

    /// Called after a connection was served: closes it, or updates its interest.
    fn update(&mut self, token: Token) -> io::Result<()> {
        let connection = self.connections.get_mut(&token).expect("it was served");
        if connection.wants_close && connection.outgoing.is_empty() {
            self.poller.deregister(&connection.stream)?;
            say(format_args!(
                "{} closed after {} requests{}",
                connection.peer, connection.requests, connection.last_words
            ));
            self.connections.remove(&token);
            return Ok(());
        }
        let interest = connection.interest();
        let unchanged = match self.mode {
            Mode::Edge => true,
            Mode::OneShot => false, // The event has disarmed it.
            _ => connection.registered == interest,
        };
        if !unchanged {
            connection.registered = interest;
            let stream = &connection.stream;
            self.poller.modify(stream, token, interest, self.mode)?;
        }
        Ok(())
    }
}

/// Closing with unread bytes would reset the connection, and discard replies that are still on
/// their way. So the write half is shut down first, and the rest is read until the client closes. A
/// client that never does costs no more than a silent one.
#[derive(PartialEq)]
enum Refused {
    No,
    /// There are replies to send first.
    Soon,
    Told,
}

struct Connection {
    stream: TcpStream,
    peer: String,
    incoming: Buffer,
    outgoing: Buffer,
    /// Whether the client has closed, or nothing can be sent any more.
    wants_close: bool,
    /// Whether a request was too long; the input after it is discarded.
    refused: Refused,
    /// The registered interest.
    registered: Interest,
    requests: u64,
    last_words: String,
}

impl Connection {
    fn new(stream: TcpStream, peer: String) -> Connection {
        Connection {
            stream,
            peer,
            incoming: Buffer::default(),
            outgoing: Buffer::default(),
            wants_close: false,
            refused: Refused::No,
            registered: Interest::NONE,
            requests: 0,
            last_words: String::new(),
        }
    }

    fn wants_read(&self) -> bool {
        !self.wants_close && self.outgoing.len() < ENOUGH
    }

    fn interest(&self) -> Interest {
        let mut interest = Interest::NONE;
        if self.wants_read() {
            interest |= Interest::READABLE;
        }
        if !self.outgoing.is_empty() {
            interest |= Interest::WRITABLE;
        }
        interest
    }

    /// Reads, answers and writes without blocking. Returns whether it has used up its share, and
    /// must be served again without an event.
    fn serve(&mut self, readable: bool, writable: bool, mode: Mode, chunk: &mut [u8]) -> bool {
        self.try_serve(readable, writable, mode, chunk)
            .unwrap_or_else(|error| {
                // Nothing can be sent any more.
                self.outgoing = Buffer::default();
                self.wants_close = true;
                if self.last_words.is_empty() {
                    self.last_words = format!(": {error}");
                }
                false
            })
    }

    fn try_serve(
        &mut self,
        readable: bool,
        writable: bool,
        mode: Mode,
        chunk: &mut [u8],
    ) -> io::Result<bool> {
        if writable {
            self.flush()?;
        }
        // In edge mode, input left unread because the outgoing buffer was long is not reported
        // again: try once there is room.
        let mut may_read = readable || mode == Mode::Edge;
        let mut reads = 0;
        while may_read && self.wants_read() && reads < SHARE {
            reads += 1;
            may_read = self.fill(chunk)? && mode == Mode::Edge;
            self.answer();
            self.flush()?;
        }
        if self.refused == Refused::Soon && self.outgoing.is_empty() {
            self.stream.shutdown(std::net::Shutdown::Write)?;
            self.refused = Refused::Told;
        }
        Ok(reads == SHARE)
    }

    /// Reads once. Returns whether there may be more.
    fn fill(&mut self, chunk: &mut [u8]) -> io::Result<bool> {
        match self.stream.read(chunk) {
            Ok(0) => {
                if !self.incoming.is_empty() {
                    self.last_words = format!(
                        ": the client closed in the middle of a request ({} bytes of it came)",
                        self.incoming.len()
                    );
                }
                self.wants_close = true;
                Ok(false)
            }
            Ok(read) => {
                if self.refused == Refused::No {
                    self.incoming.push(&chunk[..read]);
                }
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Answers every request that is complete.
    fn answer(&mut self) {
        while let Some(length) = self.incoming.bytes().first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            if length > LONGEST {
                self.last_words = format!(": a request of {length} bytes is too long");
                self.refused = Refused::Soon;
                self.incoming = Buffer::default();
                return;
            }
            let Some(request) = self.incoming.bytes().get(..4 + length) else {
                return;
            };
            self.outgoing.push(request);
            self.incoming.consume(4 + length);
            self.requests += 1;
        }
    }

    /// Writes as much as the socket takes.
    fn flush(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            match self.stream.write(self.outgoing.bytes()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.outgoing.consume(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A byte queue. Consumed bytes are only marked; the rest moves to the beginning once it is the
/// smaller part, so each byte moves O(1) times.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    consumed: usize,
}

impl Buffer {
    fn bytes(&self) -> &[u8] {
        &self.bytes[self.consumed..]
    }

    fn len(&self) -> usize {
        self.bytes.len() - self.consumed
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn consume(&mut self, count: usize) {
        self.consumed += count;
        if self.consumed * 2 > self.bytes.len() {
            self.bytes.drain(..self.consumed);
            self.consumed = 0;
            // After a large request: shrink, so that an idle connection keeps little memory.
            if self.bytes.len() < CHUNK && self.bytes.capacity() > 4 * CHUNK {
                self.bytes.shrink_to(CHUNK);
            }
        }
    }
}

/// Standard output. A write blocks while its reader is stalled (a pager, a terminal after Ctrl-S),
/// and would block the loop, all clients, and Ctrl-C. So a thread writes; lines that do not fit
/// into its queue are counted and dropped.
mod log {
    use std::collections::VecDeque;
    use std::fmt::Arguments;
    use std::io::{self, Write};
    use std::sync::{Condvar, Mutex, mpsc};
    use std::thread;
    use std::time::Duration;

    /// The number of lines that may be queued: about a megabyte.
    const CAPACITY: usize = 10_000;

    /// How long the program waits at its end for the reader.
    const PATIENCE: Duration = Duration::from_secs(2);

    struct Lines {
        waiting: VecDeque<String>,
        writing: bool,
        lost: usize,
    }

    static LINES: Mutex<Lines> = Mutex::new(Lines {
        waiting: VecDeque::new(),
        writing: false,
        lost: 0,
    });
    static CHANGED: Condvar = Condvar::new();

    pub fn start() -> io::Result<()> {
        let write = || loop {
            let lines = LINES.lock().unwrap();
            let none = |lines: &mut Lines| lines.waiting.is_empty();
            let mut lines = CHANGED.wait_while(lines, none).unwrap();
            let line = lines.waiting.pop_front().unwrap_or_default();
            lines.writing = true;
            drop(lines);
            // A closed pipe is no reason to stop serving.
            let _ = writeln!(io::stdout(), "{line}");
            LINES.lock().unwrap().writing = false;
            CHANGED.notify_all();
        };
        thread::Builder::new().name("log".into()).spawn(write)?;
        Ok(())
    }

    /// Writes a line to standard output.
    pub fn say(line: Arguments<'_>) {
        let mut lines = LINES.lock().unwrap();
        if lines.waiting.len() < CAPACITY {
            lines.waiting.push_back(line.to_string());
            CHANGED.notify_all();
        } else {
            lines.lost += 1;
        }
    }

    /// Waits until the last lines are written, and reports how many were not.
    pub fn end(program: &str) {
        let lines = LINES.lock().unwrap();
        let busy = |lines: &mut Lines| lines.writing || !lines.waiting.is_empty();
        let (lines, _) = CHANGED.wait_timeout_while(lines, PATIENCE, busy).unwrap();
        let lost = lines.lost + lines.waiting.len() + usize::from(lines.writing);
        drop(lines);
        if lost > 0 {
            complain(format!(
                "{program}: standard output is not read; lines lost: {lost}"
            ));
        }
    }

    /// Writes a line to standard error, which may be the same pipe or terminal.
    pub fn complain(line: String) {
        let (sender, written) = mpsc::channel();
        let text = line.clone();
        let write = move || {
            let _ = writeln!(io::stderr(), "{text}");
            let _ = sender.send(());
        };
        match thread::Builder::new().spawn(write) {
            Ok(_) => drop(written.recv_timeout(PATIENCE)),
            Err(_) => drop(writeln!(io::stderr(), "{line}")),
        }
    }
}
