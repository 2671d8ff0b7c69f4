//! The load generator: one thread, one epoll set, connections registered once, edge-triggered.
//!
//! On a core by itself it never sleeps, but polls continuously: then no latency and no CPU time
//! includes a wake-up of this side, and only the server is measured. On a single core it has to
//! sleep, or the server would not run.
//!
//! A request counts once its whole answer has arrived and is correct. Its latency starts before it
//! is sent (or its connection is started).

mod http;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use super::histogram::Histogram;
use crate::clock;

#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// Persistent connections, each with `window` messages in flight.
    Messages {
        connections: usize,
        window: usize,
        size: usize,
    },
    /// Connections that send one request and close, `at_once` of them at a time.
    Connects { at_once: usize, size: usize },
    /// Persistent connections, each with one HTTP request in flight.
    Http { connections: usize },
}

/// The maximum number of connections of a measurement. (They end with a reset, so that none waits
/// for its port to be free again.)
const MAX_CONNECTS: u64 = 50_000;

/// The maximum time without progress.
const PATIENCE: Duration = Duration::from_secs(5);

/// The phases of a measurement, and a callback for the server's CPU time.
pub struct Phases<'a> {
    pub warm: Duration,
    pub limit: Duration,
    /// Whether this thread has a core to itself.
    pub spin: bool,
    /// Returns the server's CPU time; called at the start and at the end.
    pub cpu: &'a dyn Fn() -> Duration,
}

pub struct Measured {
    pub requests: u64,
    pub wall: Duration,
    /// CPU time of the server, and of this process.
    pub cpu: Duration,
    pub own: Duration,
    pub latencies: Histogram,
}

pub fn run(load: Load, port: u16, phases: &Phases<'_>) -> io::Result<Measured> {
    match load {
        Load::Messages {
            connections,
            window,
            size,
        } => messages(connections, window, size, port, phases),
        Load::Connects { at_once, size } => connects(at_once, size, port, phases),
        Load::Http { connections } => http::requests(connections, port, phases),
    }
}

/// Counts answers between the end of the warm-up and the end.
struct Count<'a> {
    phases: &'a Phases<'a>,
    /// The time of the next step.
    until: Instant,
    /// The start time, and the CPU time of the server and of this process until then.
    begun: Option<(Instant, Duration, Duration)>,
    latencies: Histogram,
}

impl<'a> Count<'a> {
    fn new(phases: &'a Phases<'a>) -> Count<'a> {
        Count {
            phases,
            until: Instant::now() + phases.warm,
            begun: None,
            latencies: Histogram::new(),
        }
    }

    #[inline]
    fn answered(&mut self, since: Instant, now: Instant) {
        self.latencies.add(now - since);
    }

    /// Called between rounds of events; returns the result at the end.
    fn step(&mut self, now: Instant) -> Option<Measured> {
        if now < self.until {
            return None;
        }
        let (cpu, own) = ((self.phases.cpu)(), clock::cpu());
        let now = Instant::now();
        let Some((begin, before, own_before)) = self.begun else {
            self.latencies.clear();
            self.begun = Some((now, cpu, own));
            self.until = now + self.phases.limit;
            return None;
        };
        if self.latencies.total() == 0 {
            // A short measurement, on a busy machine.
            return None;
        }
        Some(Measured {
            requests: self.latencies.total(),
            wall: now - begin,
            cpu: cpu - before,
            own: own - own_before,
            latencies: std::mem::replace(&mut self.latencies, Histogram::new()),
        })
    }
}

/// An epoll set, and the time of its last event.
struct Events {
    epoll: OwnedFd,
    events: [libc::epoll_event; 256],
    last: Instant,
    spin: bool,
}

impl Events {
    fn new(spin: bool) -> io::Result<Events> {
        // SAFETY: a system call without pointers; the descriptor is ours if there is one.
        let epoll = unsafe {
            let descriptor = checked(libc::epoll_create1(libc::EPOLL_CLOEXEC))?;
            OwnedFd::from_raw_fd(descriptor)
        };
        Ok(Events {
            epoll,
            events: [libc::epoll_event { events: 0, u64: 0 }; 256],
            last: Instant::now(),
            spin,
        })
    }

    fn add(&self, socket: RawFd, place: usize) -> io::Result<()> {
        let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        let mut event = libc::epoll_event {
            events: events as u32,
            u64: place as u64,
        };
        let epoll = self.epoll.as_raw_fd();
        // SAFETY: the event lives throughout the call.
        checked(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, socket, &mut event) })?;
        Ok(())
    }

    /// Returns the number of events, and the time.
    fn wait(&mut self) -> io::Result<(usize, Instant)> {
        // SAFETY: the kernel writes as many events as there is room for.
        let ready = checked(unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                self.events.as_mut_ptr(),
                self.events.len() as i32,
                if self.spin { 0 } else { 1 },
            )
        })?;
        let now = Instant::now();
        if ready > 0 {
            self.last = now;
        } else if now - self.last > PATIENCE {
            let what = "the server stopped answering";
            return Err(io::Error::new(io::ErrorKind::TimedOut, what));
        }
        Ok((ready as usize, now))
    }

    fn place(&self, number: usize) -> usize {
        self.events[number].u64 as usize
    }
}

fn messages(
    connections: usize,
    window: usize,
    size: usize,
    port: u16,
    phases: &Phases<'_>,
) -> io::Result<Measured> {
    assert!(size >= 16, "a message carries its number twice");
    let mut events = Events::new(phases.spin)?;
    let mut opened = Vec::with_capacity(connections);
    // At most as many at a time as any listener's queue holds.
    while opened.len() < connections {
        let from = opened.len();
        for place in from..connections.min(from + 64) {
            opened.push(Connection::new(place, window, size, port)?);
        }
        for connection in &mut opened[from..] {
            connection.greeted()?;
        }
    }
    let mut connections = opened;
    for (place, connection) in connections.iter_mut().enumerate() {
        events.add(connection.socket.as_raw_fd(), place)?;
        connection.owed = window;
        connection.send(Instant::now())?;
    }
    let mut count = Count::new(phases);
    loop {
        let (ready, now) = events.wait()?;
        if let Some(measured) = count.step(now) {
            return Ok(measured);
        }
        for number in 0..ready {
            connections[events.place(number)].ready(&mut count)?;
        }
    }
}

/// A persistent connection.
struct Connection {
    socket: TcpStream,
    window: usize,
    size: usize,
    /// The number of the next message to send, and of the next one to come back.
    next: u64,
    awaited: u64,
    /// The send times of messages in flight, each at its number modulo the window.
    sent: Vec<Instant>,
    /// The number of messages that may be sent but have not been started.
    owed: usize,
    /// A buffer for a window of messages, filled once, except for their numbers.
    outgoing: Vec<u8>,
    /// The range of it to send next.
    from: usize,
    to: usize,
    /// A buffer for a window and one more byte: so a receive always gets less than it asks for, and
    /// need not be repeated.
    incoming: Vec<u8>,
    received: usize,
}

impl Connection {
    /// Connects, and sends the first message.
    fn new(place: usize, window: usize, size: usize, port: u16) -> io::Result<Connection> {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let outgoing: Vec<u8> = (0..window * size)
            .map(|at| (at % size * 31 + place) as u8)
            .collect();
        let mut connection = Connection {
            window,
            size,
            next: 1,
            awaited: 0,
            sent: vec![Instant::now(); window],
            owed: 0,
            from: 0,
            to: 0,
            incoming: vec![0; window * size + 1],
            received: 0,
            outgoing,
            socket,
        };
        connection.number(0, 0);
        connection.socket.write_all(&connection.outgoing[..size])?;
        Ok(connection)
    }

    /// Waits until the connection is accepted, and answered once.
    fn greeted(&mut self) -> io::Result<()> {
        (self.socket).read_exact(&mut self.incoming[..self.size])?;
        self.check(0)?;
        self.awaited = 1;
        self.socket.set_nonblocking(true)
    }

    /// Writes a message's number at its start and its end.
    fn number(&mut self, slot: usize, number: u64) {
        let message = &mut self.outgoing[slot * self.size..][..self.size];
        message[..8].copy_from_slice(&number.to_le_bytes());
        message[self.size - 8..].copy_from_slice(&number.to_le_bytes());
    }

    /// Checks a small message completely, and of a large one both ends and a part of the middle, a
    /// different part each time.
    fn check(&self, at: usize) -> io::Result<()> {
        let message = &self.incoming[at..][..self.size];
        let number = self.awaited.to_le_bytes();
        let inner = 8..self.size - 8;
        let within = if self.size <= 4096 {
            inner
        } else {
            let from = 8 + (self.awaited as usize * 4099) % (self.size - 16 - 64);
            from..from + 64
        };
        if message[..8] != number
            || message[self.size - 8..] != number
            || message[within.clone()] != self.outgoing[within]
        {
            return Err(io::Error::other(format!(
                "message {} came back as something else",
                self.awaited
            )));
        }
        Ok(())
    }

    fn ready(&mut self, count: &mut Count<'_>) -> io::Result<()> {
        match self.socket.read(&mut self.incoming[self.received..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => self.received += length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let now = Instant::now();
        let whole = self.received / self.size;
        for slot in 0..whole {
            self.check(slot * self.size)?;
            let window = self.window as u64;
            count.answered(self.sent[(self.awaited % window) as usize], now);
            self.awaited += 1;
        }
        let rest = whole * self.size..self.received;
        self.received = rest.len();
        if whole > 0 && !rest.is_empty() {
            self.incoming.copy_within(rest, 0);
        }
        self.owed += whole;
        self.send(now)
    }

    /// Sends as much as there is room for; a started message comes first.
    fn send(&mut self, now: Instant) -> io::Result<()> {
        loop {
            if self.from == self.to {
                if self.owed == 0 {
                    return Ok(());
                }
                for slot in 0..self.owed {
                    self.number(slot, self.next);
                    self.sent[(self.next % self.window as u64) as usize] = now;
                    self.next += 1;
                }
                (self.from, self.to) = (0, self.owed * self.size);
                self.owed = 0;
            }
            match self.socket.write(&self.outgoing[self.from..self.to]) {
                Ok(length) => self.from += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

fn connects(at_once: usize, size: usize, port: u16, phases: &Phases<'_>) -> io::Result<Measured> {
    let mut events = Events::new(phases.spin)?;
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    let mut made = 0;
    let mut visits = (0..at_once)
        .map(|place| {
            made += 1;
            Visit::new(address, &events, place)
        })
        .collect::<io::Result<Vec<_>>>()?;
    let message: Vec<u8> = (0..size).map(|at| (at * 31) as u8).collect();
    let mut incoming = vec![0; size + 1];
    let mut count = Count::new(phases);
    loop {
        let (ready, now) = events.wait()?;
        if let Some(measured) = count.step(now) {
            return Ok(measured);
        }
        for number in 0..ready {
            let place = events.place(number);
            if visits[place].ready(&message, &mut incoming)? {
                count.answered(visits[place].begun, Instant::now());
                if made == MAX_CONNECTS {
                    // The limit: the measurement is what has been counted so far.
                    count.until = now;
                    if count.begun.is_none() {
                        return Err(io::Error::other("too many connections while warming up"));
                    }
                    continue;
                }
                made += 1;
                visits[place] = Visit::new(address, &events, place)?;
            }
        }
    }
}

/// A connection for one request.
struct Visit {
    socket: socket2::Socket,
    begun: Instant,
    asked: bool,
    received: usize,
}

impl Visit {
    fn new(address: SocketAddrV4, events: &Events, place: usize) -> io::Result<Visit> {
        let begun = Instant::now();
        let kind = socket2::Type::STREAM.nonblocking();
        let socket = socket2::Socket::new(socket2::Domain::IPV4, kind, None)?;
        socket.set_tcp_nodelay(true)?;
        socket.set_linger(Some(Duration::ZERO))?;
        match socket.connect(&address.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(error) => return Err(error),
        }
        events.add(socket.as_raw_fd(), place)?;
        Ok(Visit {
            socket,
            begun,
            asked: false,
            received: 0,
        })
    }

    /// Returns whether it has its answer.
    fn ready(&mut self, message: &[u8], incoming: &mut [u8]) -> io::Result<bool> {
        if !self.asked {
            match self.socket.send(message) {
                Ok(length) if length == message.len() => self.asked = true,
                Ok(_) => {
                    return Err(io::Error::other(
                        "no room for a message in a new connection",
                    ));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            return Ok(false);
        }
        let length = match (&self.socket).read(incoming) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        let expected = message.get(self.received..self.received + length);
        if expected != Some(&incoming[..length]) {
            return Err(io::Error::other("something else came back"));
        }
        self.received += length;
        Ok(self.received == message.len())
    }
}

fn checked(result: i32) -> io::Result<i32> {
    match result {
        0.. => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}
