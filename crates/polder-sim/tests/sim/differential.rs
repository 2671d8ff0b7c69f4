//! Compares the world's TCP with the kernel's: random scripts of calls, made by both ends of
//! connections, run on Linux's loopback and in a world. Each call must have the same result.
//!
//! One task makes the calls in order, and after each call lets everything arrive. So results do not
//! depend on time. A result is one word: a byte count (each byte's value follows from its offset in
//! the stream, and the result reports a wrong one), the end, the kind of an error, or that the call
//! would wait.
//!
//! `POLDER_SCRIPTS` sets the number of scripts, and `POLDER_SCRIPT` selects a single one. A failing
//! script is shrunk before it is shown: calls are removed as long as it still fails.
//!
//! # Permitted differences
//!
//! * The capacity of a direction's buffers: Linux's grow, and count their own overhead. So
//!   [`Call::Fill`] writes until it would wait, and does not report the byte count.
//! * When a writer may continue after a full buffer, and so whether its bytes reach a peer that has
//!   shut down both directions meanwhile: a receiver announces its window when that is worthwhile,
//!   which depends on buffers and on segment sizes. So until [`Call::Drain`] a full direction is
//!   not written, and at most [`SURE`] bytes of it are read; none after both were shut down.
//! * How much of a full direction is read before its reset: the part that had arrived, which
//!   depends on the same. So [`Call::Drain`] returns "a part".
//! * The destination of a UDP socket with a peer, after its connect to the broadcast address was
//!   refused: Linux 6.18 sends one datagram to its peer, and all others to the broadcast address.
//!   So no script does that.

mod loopback;
mod udp;
mod unix;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Result};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use polder::future::yield_now;
use polder::io::{AsyncRead, AsyncWrite};
use polder::net::{Keepalive, Shutdown, TcpListener, TcpStream};
use polder::time::{sleep, timeout};
use socket2::{Domain, SockRef, Socket, Type};

use super::ms;

/// The number of scripts that `cargo test` runs.
const SCRIPTS: u64 = 300;

/// The number of scripts that run in parallel. Most of the time they wait for acknowledgements that
/// the kernel delays, for data on connections that were not accepted yet.
const JOBS: usize = 8;

/// The maximum number of connections of a script.
const CONNECTIONS: usize = 3;

/// The maximum number of unread bytes in a direction that is not filled on purpose: both kernels
/// accept them.
const UNREAD: u64 = 48 * 1024;

/// The number of bytes that have certainly arrived in a direction that is full.
const SURE: u64 = 16 * 1024;

/// How often a reader checks for written bytes that have not arrived: in a world for less time than
/// any TCP timer, and on loopback at least a millisecond apart.
const LOOKS: (u32, u32) = (20, 20_000);

/// The time limit of a script on loopback.
const LIMIT: Duration = Duration::from_secs(120);

/// The maximum number of runs for shrinking a script.
const SHRINKING: u32 = 400;

/// The values for `SO_LINGER`: mostly those that reset.
const LINGERS: [Option<Duration>; 4] = [
    Some(Duration::ZERO),
    Some(Duration::ZERO),
    Some(Duration::from_millis(1_500)),
    None,
];

/// The values for the time to live: some are refused.
const TTLS: [u32; 5] = [1, 64, 255, 0, u32::MAX];

/// The values for keepalive: some are refused.
const KEEPALIVES: [Option<Keepalive>; 6] = [
    None,
    Some(Keepalive::new()),
    Some(Keepalive::new().with_idle(Duration::from_secs(60))),
    Some(
        Keepalive::new()
            .with_interval(Duration::from_millis(90_999))
            .with_retries(127),
    ),
    Some(Keepalive::new().with_idle(Duration::from_secs(32_768))),
    Some(
        Keepalive::new()
            .with_idle(Duration::from_secs(61))
            .with_retries(0),
    ),
];

/// The values for the user timeout: some are refused.
const USER_TIMEOUTS: [Option<Duration>; 4] = [
    None,
    Some(Duration::from_micros(60_000_999)),
    Some(Duration::from_micros(999)),
    Some(Duration::from_millis(1 << 31)),
];

/// The results that scripts must reach, which proves that they were compared.
const KINDS: [&str; 18] = [
    "10 bytes",
    "0 bytes",
    "would wait",
    "the end",
    "full",
    "all, then would wait",
    "all, then the end",
    "all, then ConnectionReset",
    "a part, then ConnectionReset",
    "ConnectionReset",
    "BrokenPipe",
    "NotConnected",
    "ConnectionRefused",
    "AddrInUse",
    "accepted 1",
    "the listener",
    "client 0",
    "shut",
];

/// An end of a connection: twice the connection's number, plus one for the accepted end.
type End = usize;

/// How a call is made: as a try, also with two buffers, or by polling, which respects the readiness
/// reported by events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Try,
    TryVectored,
    Poll,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    Listen,
    CloseListener,
    Connect,
    ConnectToNobody,
    Accept,
    Read(End, usize, How),
    Peek(End, usize),
    Write(End, usize, How),
    /// Writes until it would wait.
    Fill(End),
    /// Reads all unread bytes.
    Drain(End),
    Shutdown(End, Shutdown),
    Linger(End, Option<Duration>),
    Nodelay(End, bool),
    Ttl(End, u32),
    Keepalive(End, Option<Keepalive>),
    UserTimeout(End, Option<Duration>),
    ListenerTtl(u32),
    Options(End),
    Close(End),
    PeerAddr(End),
    LocalAddr(End),
}

/// Numbers from a seed: SplitMix64.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    pub(super) fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// The script of a seed. Some kinds of calls are left out of each, so that others meet more often.
fn script(seed: u64) -> Vec<Call> {
    let mut random = Random(seed);
    let kinds = random.below(u64::MAX);
    let mut calls = vec![Call::Listen, Call::Connect];
    let mut connections = 1;
    if random.below(4) > 0 {
        calls.push(Call::Accept);
    }
    let length = 3 + random.below(25);
    for _ in 0..length {
        let kind = loop {
            let kind = random.below(28);
            if kind < 4 || kinds >> kind & 1 == 1 {
                break kind;
            }
        };
        let end = random.below(2 * connections) as usize;
        let any = random.below(SURE) as usize;
        let count = random.one_of(&[0, 1, 10, 1_460, 4_000, 16_384, any]);
        let how = random.one_of(&[How::Try, How::TryVectored, How::Poll, How::Poll]);
        let call = match kind {
            0 | 4 | 5 => Call::Read(end, count, how),
            1 | 6 | 7 => Call::Write(end, count, how),
            2 | 8 => Call::Close(end),
            3 | 9 => Call::Shutdown(end, random.one_of(&[Shutdown::Read, Shutdown::Write])),
            10 => Call::Shutdown(end, random.one_of(&[Shutdown::Write, Shutdown::Both])),
            11 => Call::Peek(end, count),
            12 => Call::Fill(end),
            13 | 14 => Call::Drain(end),
            15 => Call::Linger(end, random.one_of(&LINGERS)),
            16 => Call::PeerAddr(end),
            17 => Call::LocalAddr(end),
            18 | 19 => Call::Accept,
            20 => Call::Listen,
            21 => Call::CloseListener,
            22 => Call::ConnectToNobody,
            23 => Call::Nodelay(end, random.below(2) == 0),
            24 => match any % 3 {
                0 => Call::Ttl(end, random.one_of(&TTLS)),
                1 => Call::Keepalive(end, random.one_of(&KEEPALIVES)),
                _ => Call::UserTimeout(end, random.one_of(&USER_TIMEOUTS)),
            },
            25 => Call::ListenerTtl(random.one_of(&TTLS)),
            26 => Call::Options(end),
            _ => {
                connections = (connections + 1).min(CONNECTIONS as u64);
                Call::Connect
            }
        };
        calls.push(call);
    }
    calls
}

/// The ground of a script, and the state of its sockets. Whether a call is skipped depends only on
/// state that is the same on both grounds.
struct Stage {
    ground: Ground,
    address: SocketAddr,
    nobody: SocketAddr,
    listener: Option<TcpListener>,
    /// Connections that were not accepted yet.
    queue: Vec<usize>,
    ends: Vec<EndState>,
    /// The clients' addresses.
    clients: Vec<SocketAddr>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ground {
    World,
    Loopback,
}

#[derive(Default)]
struct EndState {
    stream: Option<TcpStream>,
    /// Whether it was closed.
    is_gone: bool,
    /// Whether the peer was closed in a way that resets (determined on loopback only).
    is_reset: bool,
    /// Whether its sending direction is full.
    is_full: bool,
    /// Whether reading and writing were shut down.
    is_shut: [bool; 2],
    written: u64,
    read: u64,
    read_of_full: u64,
}

/// The byte at an offset of an end's stream.
fn byte(end: End, place: u64) -> u8 {
    let number = place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    number as u8 ^ end as u8
}

/// Polls, and polls again after the worker could ask for events, which it does only once a task
/// waits.
async fn poll_once<T>(mut f: impl FnMut(&mut Context<'_>) -> Poll<Result<T>>) -> Result<T> {
    for _ in 0..2 {
        let polled = poll_fn(|cx| Poll::Ready(f(cx))).await;
        if let Poll::Ready(result) = polled {
            return result;
        }
        yield_now().await;
        yield_now().await;
    }
    Err(ErrorKind::WouldBlock.into())
}

fn word<T>(result: Result<T>, ok: impl FnOnce(T) -> String) -> String {
    match result {
        Ok(it) => ok(it),
        Err(error) if error.kind() == ErrorKind::WouldBlock => "would wait".into(),
        Err(error) => format!("{:?}", error.kind()),
    }
}

impl Stage {
    fn new(ground: Ground, address: SocketAddr, nobody: SocketAddr) -> Stage {
        Stage {
            ground,
            address,
            nobody,
            listener: None,
            queue: Vec::new(),
            ends: Vec::new(),
            clients: Vec::new(),
        }
    }

    async fn run(&mut self, calls: &[Call]) -> Vec<String> {
        let mut results = Vec::new();
        for call in calls {
            results.push(self.call(*call).await);
            self.settle().await;
        }
        results
    }

    /// Lets everything arrive.
    async fn settle(&self) {
        match self.ground {
            // Many times loopback's latency, and less than any TCP timer.
            Ground::World => sleep(ms(5)).await,
            Ground::Loopback => loopback::settle(self).await,
        }
    }

    async fn call(&mut self, call: Call) -> String {
        match call {
            Call::Listen => match TcpListener::bind(self.address).await {
                Ok(listener) => {
                    self.listener = Some(listener);
                    "listens".into()
                }
                Err(error) => format!("{:?}", error.kind()),
            },
            Call::CloseListener => self.close_listener(),
            Call::ListenerTtl(ttl) => match &self.listener {
                Some(listener) => word(listener.set_ttl(ttl), |()| "set".into()),
                None => "nobody".into(),
            },
            Call::Connect => self.connect().await,
            Call::ConnectToNobody => word(TcpStream::connect(self.nobody).await, |_| {
                "connected".into()
            }),
            Call::Accept => self.accept().await,
            Call::Read(end, ..)
            | Call::Peek(end, _)
            | Call::Write(end, ..)
            | Call::Fill(end)
            | Call::Drain(end)
            | Call::Shutdown(end, _)
            | Call::Linger(end, _)
            | Call::Nodelay(end, _)
            | Call::Ttl(end, _)
            | Call::Keepalive(end, _)
            | Call::UserTimeout(end, _)
            | Call::Options(end)
            | Call::Close(end)
            | Call::PeerAddr(end)
            | Call::LocalAddr(end) => match self.ends.get(end).and_then(|it| it.stream.clone()) {
                Some(stream) => self.call_at(end, stream, call).await,
                None => "nobody".into(),
            },
        }
    }

    fn close_listener(&mut self) -> String {
        for connection in std::mem::take(&mut self.queue) {
            self.ends[2 * connection].is_reset = true;
            self.ends[2 * connection + 1].is_gone = true;
        }
        match self.listener.take() {
            Some(_) => "closed".into(),
            None => "nobody".into(),
        }
    }

    async fn connect(&mut self) -> String {
        let connection = self.clients.len();
        if connection == CONNECTIONS {
            return "skipped".into();
        }
        word(TcpStream::connect(self.address).await, |stream| {
            self.clients.push(stream.local_addr().unwrap());
            self.queue.push(connection);
            self.ends.extend([EndState::default(), EndState::default()]);
            self.take(2 * connection, stream);
            "connected".into()
        })
    }

    async fn accept(&mut self) -> String {
        let Some(listener) = &self.listener else {
            return "nobody".into();
        };
        word(poll_once(|cx| listener.poll_accept(cx)).await, |it| {
            let (stream, peer) = it;
            let Some(connection) = self.clients.iter().position(|it| *it == peer) else {
                return format!("accepted {peer}, which is no client");
            };
            self.queue.retain(|it| *it != connection);
            self.take(2 * connection + 1, stream);
            format!("accepted {connection}")
        })
    }

    fn take(&mut self, end: End, stream: TcpStream) {
        if self.ground == Ground::Loopback {
            // The smaller buffer is filled faster, and does not grow.
            SockRef::from(&stream)
                .set_send_buffer_size(1 << 15)
                .unwrap();
        }
        self.ends[end].stream = Some(stream);
    }

    async fn call_at(&mut self, end: End, mut stream: TcpStream, call: Call) -> String {
        match call {
            Call::Read(_, count, how) => {
                if !self.may_read(end, count) {
                    return "skipped".into();
                }
                let mut bytes = vec![0; count];
                let result = match how {
                    How::Try => stream.try_read(&mut bytes),
                    How::TryVectored => {
                        let (one, other) = bytes.split_at_mut(count / 3);
                        stream.try_read_vectored(&mut [one, other].map(IoSliceMut::new))
                    }
                    How::Poll => {
                        poll_once(|cx| Pin::new(&mut stream).poll_read(cx, &mut bytes)).await
                    }
                };
                let place = self.ends[end].read;
                word(result, |read| {
                    self.ends[end].read += read as u64;
                    self.ends[end].read_of_full += read as u64;
                    name_read(end ^ 1, place, &bytes, read)
                })
            }
            Call::Peek(_, count) => {
                if !self.may_read(end, count) {
                    return "skipped".into();
                }
                let mut bytes = vec![0; count];
                let result = poll_once(|cx| stream.poll_peek(cx, &mut bytes)).await;
                let place = self.ends[end].read;
                word(result, |read| name_read(end ^ 1, place, &bytes, read))
            }
            Call::Write(_, count, how) => {
                let writer = &self.ends[end];
                let unread = writer.written - self.ends[end ^ 1].read;
                let count = if self.ends[end ^ 1].is_gone {
                    count as u64
                } else {
                    (count as u64).min(UNREAD.saturating_sub(unread))
                };
                if writer.is_full && !writer.is_shut[1] {
                    return "skipped".into();
                }
                let bytes: Vec<u8> = (0..count)
                    .map(|it| byte(end, writer.written + it))
                    .collect();
                let result = match how {
                    How::Try => stream.try_write(&bytes),
                    How::TryVectored => {
                        let (one, other) = bytes.split_at(bytes.len() / 3);
                        stream.try_write_vectored(&[one, other].map(IoSlice::new))
                    }
                    How::Poll => poll_once(|cx| Pin::new(&mut stream).poll_write(cx, &bytes)).await,
                };
                word(result, |written| {
                    self.ends[end].written += written as u64;
                    format!("{written} bytes")
                })
            }
            Call::Fill(_) => self.fill(end, stream).await,
            Call::Drain(_) => self.drain(end, stream).await,
            Call::Shutdown(_, how) => word(stream.shutdown(how), |()| {
                let [read, write] = &mut self.ends[end].is_shut;
                *read |= how != Shutdown::Write;
                *write |= how != Shutdown::Read;
                "shut".into()
            }),
            Call::Linger(_, linger) => word(stream.set_linger(linger), |()| "set".into()),
            Call::Nodelay(_, on) => word(stream.set_nodelay(on), |()| "set".into()),
            Call::Ttl(_, ttl) => word(stream.set_ttl(ttl), |()| "set".into()),
            Call::Keepalive(_, keepalive) => {
                word(stream.set_keepalive(keepalive), |()| "set".into())
            }
            Call::UserTimeout(_, limit) => word(stream.set_user_timeout(limit), |()| "set".into()),
            Call::Options(_) => [
                word(stream.linger(), |it| format!("linger {it:?}")),
                word(stream.nodelay(), |it| format!("nodelay {it}")),
                word(stream.ttl(), |it| format!("ttl {it}")),
                word(stream.keepalive(), |it| format!("{it:?}")),
                word(stream.user_timeout(), |it| format!("user timeout {it:?}")),
            ]
            .join(", "),
            Call::Close(_) => {
                // A close that lingers would block the thread while timers run.
                if stream.linger().unwrap() != Some(Duration::ZERO) {
                    stream.set_linger(None).unwrap();
                }
                if self.ground == Ground::Loopback {
                    self.ends[end ^ 1].is_reset |= loopback::closing_resets(&stream);
                }
                (self.ends[end].stream, self.ends[end].is_gone) = (None, true);
                // A writer to this end gets an error immediately.
                self.ends[end ^ 1].is_full = false;
                "closed".into()
            }
            Call::PeerAddr(_) => word(stream.peer_addr(), |it| self.name_address(it)),
            Call::LocalAddr(_) => word(stream.local_addr(), |it| self.name_address(it)),
            _ => unreachable!("{call:?} has no end"),
        }
    }

    /// Whether both grounds have `count` bytes for an end, if they have any.
    fn may_read(&self, end: End, count: usize) -> bool {
        let (reader, writer) = (&self.ends[end], &self.ends[end ^ 1]);
        // Data for an end with both directions shut down causes a reset, as soon as the window
        // opens.
        let resets = reader.is_shut == [true; 2];
        !writer.is_full || !resets && reader.read_of_full + count as u64 <= SURE
    }

    async fn fill(&mut self, end: End, stream: TcpStream) -> String {
        let (mut is_new, was_full) = (false, self.ends[end].is_full);
        loop {
            let place = self.ends[end].written;
            let bytes: Vec<u8> = (0..8_192).map(|it| byte(end, place + it)).collect();
            match stream.try_write(&bytes) {
                Ok(written) => {
                    self.ends[end].written += written as u64;
                    is_new = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.ends[end].is_full = true;
                    if !std::mem::take(&mut is_new) {
                        return "full".into();
                    }
                    // Some bytes may have left the buffer since.
                    self.settle().await;
                }
                Err(error) => {
                    self.ends[end].is_full = was_full;
                    return format!("{:?}", error.kind());
                }
            }
        }
    }

    async fn drain(&mut self, end: End, stream: TcpStream) -> String {
        // Once shut down, an empty queue looks like the end, although more may arrive.
        if self.ends[end].is_shut[0] && self.ends[end ^ 1].is_full {
            return "skipped".into();
        }
        let mut bytes = vec![0; 1 << 16];
        let mut looks = match self.ground {
            Ground::World => LOOKS.0,
            Ground::Loopback => LOOKS.1,
        };
        let ending = loop {
            let (place, written) = (self.ends[end].read, self.ends[end ^ 1].written);
            match stream.try_read(&mut bytes) {
                Ok(0) => break "the end".to_owned(),
                Ok(read) => {
                    self.ends[end].read += read as u64;
                    if !are_right(end ^ 1, place, &bytes[..read]) {
                        break "other bytes".to_owned();
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if place == written {
                        break "would wait".to_owned();
                    }
                    looks -= 1;
                    if looks == 0 {
                        break "nothing, although more was written".to_owned();
                    }
                    sleep(ms(1)).await;
                    self.settle().await;
                }
                Err(error) => break format!("{:?}", error.kind()),
            }
        };
        let is_all = self.ends[end].read == self.ends[end ^ 1].written;
        self.ends[end].read_of_full = 0;
        self.ends[end ^ 1].is_full = false;
        let amount = if is_all { "all" } else { "a part" };
        format!("{amount}, then {ending}")
    }

    fn name_address(&self, address: SocketAddr) -> String {
        let client = self.clients.iter().position(|it| *it == address);
        match client {
            Some(connection) => format!("client {connection}"),
            None if address == self.address => "the listener".into(),
            None => "another address".into(),
        }
    }
}

/// Whether the bytes are those written at an offset of an end's stream.
fn are_right(writer: End, place: u64, bytes: &[u8]) -> bool {
    (place..)
        .zip(bytes)
        .all(|(place, it)| *it == byte(writer, place))
}

fn name_read(writer: End, place: u64, bytes: &[u8], read: usize) -> String {
    match read {
        0 if !bytes.is_empty() => "the end".into(),
        _ if are_right(writer, place, &bytes[..read]) => format!("{read} bytes"),
        _ => format!("{read} other bytes"),
    }
}

/// The results of a script's calls on loopback.
fn on_loopback(_: u64, calls: &[Call]) -> Vec<String> {
    // Reserves a port for the listener, and one without a listener.
    let keep = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        socket.bind(&any.into()).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        (socket, address)
    };
    let ((_listeners, address), (_nobodys, nobody)) = (keep(), keep());
    polder::block_on(async {
        let mut stage = Stage::new(Ground::Loopback, address, nobody);
        let results = timeout(LIMIT, stage.run(calls)).await;
        // Leaves no port in TIME_WAIT.
        for stream in stage.ends.iter().filter_map(|it| it.stream.as_ref()) {
            let _ = stream.set_linger(Some(Duration::ZERO));
        }
        results.unwrap_or_else(|_| panic!("loopback has not done {calls:?} within {LIMIT:?}"))
    })
}

/// The results of a script's calls in a world.
fn in_a_world(seed: u64, calls: &[Call]) -> Vec<String> {
    results_of(seed, calls, |calls| async move {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Stage::new(Ground::World, at(7), at(1)).run(&calls).await
    })
}

/// Returns the results of a world, or the reason for its failure.
fn results_of<C, F>(seed: u64, calls: &[C], run: impl Fn(Vec<C>) -> F + Copy + Sync) -> Vec<String>
where
    C: Clone + Sync + 'static,
    F: Future<Output = Vec<String>> + 'static,
{
    let results = Arc::new(Mutex::new(Vec::new()));
    let report = polder_sim::run(seed, |_| {
        let (of_calls, results) = (run(calls.to_vec()), results.clone());
        async move { *results.lock().unwrap() = of_calls.await }
    });
    if let Some(failure) = report.failure {
        return vec![failure];
    }
    let results = results.lock().unwrap();
    results.clone()
}

/// The subject of a comparison: the calls of one kind of socket.
struct Subject<C> {
    /// The name of the test.
    name: &'static str,
    script: fn(u64) -> Vec<C>,
    on_loopback: fn(u64, &[C]) -> Vec<String>,
    in_a_world: fn(u64, &[C]) -> Vec<String>,
    /// The number of consecutive runs in which a difference must show to count.
    tries: u32,
    /// The results that scripts must reach, which proves that they were compared.
    kinds: &'static [&'static str],
}

impl<C: Clone + Debug> Subject<C> {
    /// The results on loopback, and in a world.
    fn both(&self, seed: u64, calls: &[C]) -> (Vec<String>, Vec<String>) {
        let world = (self.in_a_world)(seed, calls);
        let mut kernel = Vec::new();
        for _ in 0..self.tries {
            kernel = (self.on_loopback)(seed, calls);
            if kernel == world {
                break;
            }
        }
        (kernel, world)
    }

    fn differs(&self, seed: u64, calls: &[C]) -> bool {
        let (kernel, world) = self.both(seed, calls);
        kernel != world
    }

    /// Removes the calls that are not needed for a difference.
    fn shrink(&self, seed: u64, mut calls: Vec<C>) -> Vec<C> {
        let mut runs = 0;
        let mut at = calls.len();
        let mut was_shrunk = false;
        while runs < SHRINKING {
            if at == 0 {
                if !std::mem::take(&mut was_shrunk) {
                    break;
                }
                at = calls.len();
            }
            at -= 1;
            let mut fewer = calls.clone();
            fewer.remove(at);
            runs += 1;
            if self.differs(seed, &fewer) {
                (calls, was_shrunk) = (fewer, true);
            }
        }
        calls
    }

    fn describe(&self, seed: u64, calls: &[C]) -> String {
        let mut text = format!("script {seed}: the world is not like Linux\n");
        let (kernel, world) = self.both(seed, calls);
        if kernel == world {
            text += "  (not each time: now it is)\n";
        }
        for (index, call) in calls.iter().enumerate() {
            let (call, nothing) = (format!("{call:?}"), String::new());
            let [kernel, world] = [&kernel, &world].map(|it| it.get(index).unwrap_or(&nothing));
            text += &if kernel == world {
                format!("  {call:<30} {kernel}\n")
            } else {
                format!("  {call:<30} Linux: {kernel}; the world: {world}\n")
            };
        }
        let name = self.name;
        text + &format!("  replay: POLDER_SCRIPT={seed} cargo test -p polder-sim --test sim {name}")
    }

    fn compare(&self) {
        let (first, end) = match variable("POLDER_SCRIPT") {
            Some(seed) => (seed, seed + 1),
            None => (0, variable("POLDER_SCRIPTS").unwrap_or(SCRIPTS)),
        };
        let next = AtomicU64::new(first);
        let (failure, seen) = (Mutex::new(None), Mutex::new(BTreeSet::new()));
        let work = || {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= end || failure.lock().unwrap().is_some() {
                    return;
                }
                let calls = (self.script)(seed);
                let (kernel, world) = self.both(seed, &calls);
                if kernel != world {
                    let text = self.describe(seed, &self.shrink(seed, calls));
                    failure.lock().unwrap().get_or_insert(text);
                }
                seen.lock().unwrap().extend(kernel);
            }
        };
        thread::scope(|scope| {
            for _ in 0..JOBS {
                scope.spawn(work);
            }
        });
        if let Some(failure) = failure.into_inner().unwrap() {
            panic!("{failure}");
        }
        let seen = seen.into_inner().unwrap();
        if end - first >= SCRIPTS {
            let missing: Vec<&&str> = self
                .kinds
                .iter()
                .filter(|it| !seen.contains(**it))
                .collect();
            assert!(missing.is_empty(), "no script has come to {missing:?}");
        }
    }
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is not a number: {text:?}")))
}

/// Calls have the results that they have on loopback.
#[test]
fn tcp_calls_match_loopback() {
    let subject = Subject {
        name: "differential::calls_have",
        script,
        on_loopback,
        in_a_world,
        // On a loaded machine the kernel may schedule differently.
        tries: 2,
        kinds: &KINDS,
    };
    subject.compare();
}
