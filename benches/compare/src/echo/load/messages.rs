//! Messages that carry their number, and must come back as they were sent: on persistent
//! connections, with some of them in flight on each ([`messages`]), or at given times ([`paced`]).

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Instant;

use super::{Count, Events, Measured, Phases, Ticks, connect, receive};

pub fn messages(
    connections: usize,
    window: usize,
    size: usize,
    port: u16,
    phases: &Phases<'_>,
) -> io::Result<Measured> {
    let events = Events::new(phases.spin)?;
    let mut connections = open(connections, window, size, port, &events)?;
    for connection in &mut connections {
        connection.owed = window;
        connection.send(Instant::now())?;
    }
    events.run(phases, |_, place, _, count| {
        connections[place].ready(count, true)
    })
}

/// Sends `rate` messages a second at equal distances, each on the next connection that is idle. One
/// that finds none is sent when there is one. In between this thread sleeps, also if it has a core
/// to itself.
pub fn paced(
    connections: usize,
    rate: u32,
    size: usize,
    port: u16,
    phases: &Phases<'_>,
) -> io::Result<Measured> {
    let mut events = Events::new(false)?;
    let mut connections = open(connections, 1, size, port, &events)?;
    let ticks = Ticks::new(&events, connections.len(), rate)?;
    let mut count = Count::new(phases);
    // Messages that are due, and the connection that was used last.
    let (mut due, mut last) = (0, 0);
    loop {
        let (ready, now) = events.wait()?;
        if let Some(measured) = count.step(now) {
            return Ok(measured);
        }
        for number in 0..ready {
            match connections.get_mut(events.place(number)) {
                Some(connection) => connection.ready(&mut count, false)?,
                None => due += ticks.passed()?,
            }
        }
        for _ in 0..connections.len() {
            if due == 0 {
                break;
            }
            last = (last + 1) % connections.len();
            let connection = &mut connections[last];
            if connection.awaited == connection.next {
                connection.owed = 1;
                connection.send(now)?;
                due -= 1;
            }
        }
    }
}

/// Connects all, and has the first message of each answered.
fn open(
    many: usize,
    window: usize,
    size: usize,
    port: u16,
    events: &Events,
) -> io::Result<Vec<Connection>> {
    assert!(size >= 16, "a message carries its number twice");
    let mut opened: Vec<Connection> = Vec::with_capacity(many);
    // At most as many at a time as any listener's queue holds.
    while opened.len() < many {
        let from = opened.len();
        for place in from..many.min(from + 64) {
            opened.push(Connection::new(place, window, size, port)?);
        }
        for connection in &mut opened[from..] {
            connection.greeted()?;
        }
    }
    for (place, connection) in opened.iter().enumerate() {
        events.add(connection.socket.as_raw_fd(), place)?;
    }
    Ok(opened)
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
        let socket = connect(port)?;
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

    /// Takes what has come back, and sends as many messages again if `refill`.
    fn ready(&mut self, count: &mut Count<'_>, refill: bool) -> io::Result<()> {
        self.received += receive(&mut self.socket, &mut self.incoming[self.received..])?;
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
        if refill {
            self.owed += whole;
        }
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
