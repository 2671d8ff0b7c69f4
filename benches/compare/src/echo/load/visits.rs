//! Connections for one request each, some of them at a time. They end with a reset, so that none
//! waits for its port to be free again.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::{Events, MAX_ANSWER, Measured, Phases, receive};

/// The maximum number of connections of a measurement.
const MAX_CONNECTS: u64 = 50_000;

/// Tells whether an answer is complete; an error if it is wrong.
pub type Whole = fn(request: &[u8], answer: &[u8]) -> io::Result<bool>;

/// The answer of an echo server.
pub fn echoed(request: &[u8], answer: &[u8]) -> io::Result<bool> {
    if !request.starts_with(answer) {
        return Err(io::Error::other("something else came back"));
    }
    Ok(answer.len() == request.len())
}

pub fn visits(
    at_once: usize,
    request: &[u8],
    whole: Whole,
    port: u16,
    phases: &Phases<'_>,
) -> io::Result<Measured> {
    let events = Events::new(phases.spin)?;
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    let mut made = 0;
    let mut visits = (0..at_once)
        .map(|place| {
            made += 1;
            Visit::new(address, &events, place)
        })
        .collect::<io::Result<Vec<_>>>()?;
    events.run(phases, |events, place, now, count| {
        if !visits[place].ready(request, whole)? {
            return Ok(());
        }
        count.answered(visits[place].begun, Instant::now());
        if made == MAX_CONNECTS {
            // The limit: the measurement is what has been counted so far.
            count.until = now;
            return match count.begun {
                Some(_) => Ok(()),
                None => Err(io::Error::other("too many connections while warming up")),
            };
        }
        made += 1;
        visits[place] = Visit::new(address, events, place)?;
        Ok(())
    })
}

/// A connection for one request.
struct Visit {
    socket: socket2::Socket,
    begun: Instant,
    asked: bool,
    answer: [u8; MAX_ANSWER],
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
            answer: [0; MAX_ANSWER],
            received: 0,
        })
    }

    /// Returns whether it has its answer.
    fn ready(&mut self, request: &[u8], whole: Whole) -> io::Result<bool> {
        if !self.asked {
            match self.socket.send(request) {
                Ok(length) if length == request.len() => self.asked = true,
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
        self.received += receive(&mut self.socket, &mut self.answer[self.received..])?;
        whole(request, &self.answer[..self.received])
    }
}
