//! A server without futures, straight on `polder::poller`: what a loop of your own looks like.
//!
//! ```text
//! cargo run --release --example poll_loop -- [ADDR] [--backend NAME] [--mode level|oneshot|edge]
//! ```
//!
//! The protocol: a request is a length (4 bytes, little endian, at most 32 MiB) and that many
//! bytes; the reply is the same again. A longer length is an error that ends the connection, after
//! the replies before it. Requests may be pipelined; replies come in their order.
//!
//! Each connection has what came in and was not understood yet, what is to go out, and three
//! wishes: to read, to write, to be closed. What the poller is asked for follows from these. While
//! much is waiting to go out, the connection does not wish to read: a client that does not take its
//! replies stops being served, and costs no more memory.

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

const USAGE: &str = "usage: poll_loop [ADDR] [--backend NAME] [--mode level|oneshot|edge]";

/// The longest request.
const LONGEST: usize = 32 * 1024 * 1024;

/// What is read at once, at most.
const CHUNK: usize = 64 * 1024;

/// With this much to go out, a connection reads no more. A single reply may be longer.
const ENOUGH: usize = 256 * 1024;

/// With edges one has to read until nothing is left, and there may always be more: after so many
/// reads it is the others' turn.
const SHARE: usize = 16;

/// How long accepting rests when there are no descriptors left.
const REST: Duration = Duration::from_millis(100);

const LISTENER: Token = Token(0);

fn main() -> ExitCode {
    // What is not Unicode is no address and no option either, and is told so like the rest.
    let given = std::env::args_os().skip(1);
    let given = given.map(|argument| argument.to_string_lossy().into_owned());
    let (result, status) = match arguments(given) {
        Ok(Some(options)) => (Server::new(options).and_then(Server::run), 1),
        Ok(None) => {
            let _ = writeln!(io::stdout(), "{USAGE}");
            return ExitCode::SUCCESS;
        }
        // What is wrong with the arguments has a status of its own, as everywhere.
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
    backend: Option<Backend>,
    mode: Option<Mode>,
}

/// `None` where help is asked for.
fn arguments(mut arguments: impl Iterator<Item = String>) -> io::Result<Option<Options>> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
    let mut address = None;
    let mut backend = None;
    let mut mode = None;
    while let Some(argument) = arguments.next() {
        let mut value = |what: &str| {
            let value = arguments.next();
            value.ok_or_else(|| wrong(format!("{argument} wants {what}; {USAGE}")))
        };
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--backend" => backend = Some(value("a name")?.parse()?),
            "--mode" => {
                mode = Some(match value("a mode")?.as_str() {
                    "level" => Mode::Level,
                    "oneshot" => Mode::OneShot,
                    "edge" => Mode::Edge,
                    other => return Err(wrong(format!("there is no mode {other:?}; {USAGE}"))),
                });
            }
            option if option.starts_with('-') => {
                return Err(wrong(format!("there is no option {option:?}; {USAGE}")));
            }
            _ if address.is_some() => {
                return Err(wrong(format!("one address is enough; {USAGE}")));
            }
            _ => address = Some(argument),
        }
    }
    Ok(Some(Options {
        address: address.unwrap_or_else(|| "127.0.0.1:7001".into()),
        backend,
        mode,
    }))
}

struct Server {
    poller: Arc<Poller>,
    mode: Mode,
    stop: Arc<AtomicBool>,
    listener: TcpListener,
    /// There were no descriptors left: accepting goes on then.
    rests_until: Option<Instant>,
    connections: HashMap<Token, Connection>,
    /// Those that used up their share.
    unfinished: HashSet<Token>,
    next: u64,
    /// What is read into, for all of them.
    chunk: Box<[u8]>,
}

impl Server {
    fn new(options: Options) -> io::Result<Server> {
        let backend = match options.backend {
            Some(backend) => backend,
            None => Backend::from_env()?,
        };
        let poller = Arc::new(Poller::new(backend)?);
        let mode = options.mode.unwrap_or(match poller.capabilities().level {
            true => Mode::Level,
            false => Mode::OneShot,
        });
        let listener = TcpListener::bind(&options.address).map_err(|error| {
            // Escaped, so that it stays one line whatever was given.
            let address = options.address.escape_debug();
            let what = format!("cannot listen on {address}: {error}");
            io::Error::new(error.kind(), what)
        })?;
        listener.set_nonblocking(true)?;
        // SAFETY: the listener lives as long as the poller, in one structure, and nothing is
        // waited for after it is closed.
        unsafe { poller.register(descriptor(&listener), LISTENER, Interest::READABLE, mode)? };
        Ok(Server {
            poller,
            mode,
            stop: Arc::default(),
            listener,
            rests_until: None,
            connections: HashMap::new(),
            unfinished: HashSet::new(),
            next: LISTENER.0 + 1,
            chunk: vec![0; CHUNK].into(),
        })
    }

    fn run(mut self) -> io::Result<()> {
        self.watch_for_signals()?;
        log::start()?;
        // Whoever reads this may press Ctrl-C at once.
        say(format_args!(
            "listening on {} (backend {}, {:?})",
            self.listener.local_addr()?,
            self.poller.backend(),
            self.mode
        ));
        let mut events = Events::new();
        while !self.stop.load(Ordering::Relaxed) {
            let rest = self
                .rests_until
                .map(|until| until.saturating_duration_since(Instant::now()));
            let unfinished = std::mem::take(&mut self.unfinished);
            let timeout = match unfinished.is_empty() {
                true => rest,
                false => Some(Duration::ZERO),
            };
            self.poller.wait(&mut events, timeout)?;
            if self
                .rests_until
                .is_some_and(|until| until <= Instant::now())
            {
                self.rests_until = None;
                self.accept()?;
            }
            for event in &events {
                if event.token() == LISTENER {
                    if self.rests_until.is_none() {
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

    /// A thread waits for Ctrl-C or SIGTERM, and wakes the loop: the one future here. When this
    /// returns the thread has what it needs, before clients take the last descriptor.
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

    /// Accepts whoever waits in the queue.
    fn accept(&mut self) -> io::Result<()> {
        loop {
            match self.listener.accept() {
                Ok((stream, peer)) => {
                    stream.set_nonblocking(true)?;
                    let token = Token(self.next);
                    self.next += 1;
                    let mut connection = Connection::new(stream, peer.to_string());
                    // With edges both directions are watched once and for all.
                    connection.asked = match self.mode {
                        Mode::Edge => Interest::READABLE | Interest::WRITABLE,
                        _ => Interest::READABLE,
                    };
                    let (stream, asked) = (descriptor(&connection.stream), connection.asked);
                    // SAFETY: it is deregistered before it is closed, in `settle`, or the poller
                    // waits no more.
                    unsafe { self.poller.register(stream, token, asked, self.mode)? };
                    say(format_args!("{peer} connected"));
                    self.connections.insert(token, connection);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => break,
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => {
                        // Most likely no descriptors are left. The connection stays in the queue,
                        // so a level would be reported again and again: rest instead.
                        say(format_args!("cannot accept: {error}"));
                        self.rests_until = Some(Instant::now() + REST);
                        break;
                    }
                },
            }
        }
        let interest = match self.rests_until {
            Some(_) => Interest::NONE,
            None => Interest::READABLE,
        };
        self.poller
            .modify(descriptor(&self.listener), LISTENER, interest, self.mode)
    }

    fn serve(&mut self, token: Token, readable: bool, writable: bool) -> io::Result<()> {
        // None: it was closed earlier in this round.
        if let Some(connection) = self.connections.get_mut(&token) {
            if connection.serve(readable, writable, self.mode, &mut self.chunk) {
                self.unfinished.insert(token);
            }
            self.settle(token)?;
        }
        Ok(())
    }

    /// After a connection was served: closes it, or asks the poller for what it wishes now.
    fn settle(&mut self, token: Token) -> io::Result<()> {
        let connection = self.connections.get_mut(&token).expect("it was served");
        if connection.wants_close && connection.outgoing.is_empty() {
            self.poller.deregister(descriptor(&connection.stream))?;
            say(format_args!(
                "{} closed after {} requests{}",
                connection.peer, connection.requests, connection.last_words
            ));
            self.connections.remove(&token);
            return Ok(());
        }
        let interest = connection.interest();
        let stands = match self.mode {
            Mode::Edge => true,
            Mode::OneShot => false, // The event has spent it.
            _ => connection.asked == interest,
        };
        if !stands {
            connection.asked = interest;
            let stream = descriptor(&connection.stream);
            self.poller.modify(stream, token, interest, self.mode)?;
        }
        Ok(())
    }
}

/// Closing with bytes unread would reset the connection, and take replies with it that are still on
/// their way. So the client is told first that no more will come, and heard out until it closes.
/// One that never does costs no more than one that is silent.
#[derive(PartialEq)]
enum Refused {
    No,
    /// There are replies to send before that.
    Soon,
    Told,
}

struct Connection {
    stream: TcpStream,
    peer: String,
    incoming: Buffer,
    outgoing: Buffer,
    /// Nothing more comes, or nothing can be sent any more.
    wants_close: bool,
    /// A request was too long: what comes behind it is thrown away.
    refused: Refused,
    /// What the poller was asked for last.
    asked: Interest,
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
            asked: Interest::NONE,
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

    /// Reads, answers and writes as far as that goes without waiting. True if it has used up its
    /// share, and has to be served again without an event.
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
        // With edges, what was not read because too much was to go out is not reported again: once
        // there is room it is tried.
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

    /// Reads once. True if there may be more.
    fn fill(&mut self, chunk: &mut [u8]) -> io::Result<bool> {
        match self.stream.read(chunk) {
            Ok(0) => {
                if !self.incoming.is_empty() {
                    self.last_words = format!(
                        ": the client went in the middle of a request ({} bytes of it came)",
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

    /// Writes as much as goes.
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

/// Bytes that are added behind and consumed in front. The front is only marked as consumed; what is
/// left moves to the beginning once it is the smaller part, so that each byte moves O(1) times.
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
            // A large request is over: an idle connection keeps little.
            if self.bytes.len() < CHUNK && self.bytes.capacity() > 4 * CHUNK {
                self.bytes.shrink_to(CHUNK);
            }
        }
    }
}

/// What a poller takes: a socket is lent under another name on Windows.
#[cfg(unix)]
fn descriptor(socket: &impl std::os::fd::AsFd) -> std::os::fd::BorrowedFd<'_> {
    socket.as_fd()
}

#[cfg(windows)]
fn descriptor(
    socket: &impl std::os::windows::io::AsSocket,
) -> std::os::windows::io::BorrowedSocket<'_> {
    socket.as_socket()
}

/// Standard output. A write there blocks for as long as whoever reads is stalled: a pager, a
/// terminal after Ctrl-S. The loop would stop with it, all clients, and Ctrl-C. So a thread writes,
/// and what does not fit into its queue is counted and lost.
mod log {
    use std::collections::VecDeque;
    use std::fmt::Arguments;
    use std::io::{self, Write};
    use std::sync::{Condvar, Mutex, mpsc};
    use std::thread;
    use std::time::Duration;

    /// So many lines may wait: about a megabyte.
    const CAPACITY: usize = 10_000;

    /// How long the end of the program waits for whoever reads.
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
            // That nobody reads it any more is no reason to stop serving.
            let _ = writeln!(io::stdout(), "{line}");
            LINES.lock().unwrap().writing = false;
            CHANGED.notify_all();
        };
        thread::Builder::new().name("log".into()).spawn(write)?;
        Ok(())
    }

    /// A line on standard output.
    pub fn say(line: Arguments<'_>) {
        let mut lines = LINES.lock().unwrap();
        if lines.waiting.len() < CAPACITY {
            lines.waiting.push_back(line.to_string());
            CHANGED.notify_all();
        } else {
            lines.lost += 1;
        }
    }

    /// Waits for the last lines to be written, and tells how many were not.
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

    /// A line on standard error, which may be the same pipe or terminal.
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
