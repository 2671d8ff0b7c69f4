//! HTTP/1.1 requests over persistent connections, one at a time on each, as `wrk` sends them. Used
//! if `wrk` is not installed, or for a measurement shorter than its minimum of a second.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Instant;

use super::{Count, Events, MAX_ANSWER, Measured, Phases, connect, receive, wrong};

pub const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";

/// The only request of its connection.
pub const LAST_REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";

pub fn requests(connections: usize, port: u16, phases: &Phases<'_>) -> io::Result<Measured> {
    let events = Events::new(phases.spin)?;
    let mut clients = (0..connections)
        .map(|_| Client::new(port))
        .collect::<io::Result<Vec<_>>>()?;
    for (place, client) in clients.iter_mut().enumerate() {
        events.add(client.socket.as_raw_fd(), place)?;
        client.ask(Instant::now())?;
    }
    events.run(phases, |_, place, _, count| clients[place].ready(count))
}

struct Client {
    socket: TcpStream,
    asked: Instant,
    /// The length of an answer: all are alike except for the date, which has a fixed length.
    size: usize,
    incoming: [u8; MAX_ANSWER],
    received: usize,
}

impl Client {
    /// Connects, and waits for one answer.
    fn new(port: u16) -> io::Result<Client> {
        let socket = connect(port)?;
        let mut client = Client {
            socket,
            asked: Instant::now(),
            size: 0,
            incoming: [0; MAX_ANSWER],
            received: 0,
        };
        client.ask(Instant::now())?;
        while client.size == 0 {
            let incoming = &mut client.incoming[client.received..];
            match client.socket.read(incoming)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => client.received += length,
            }
            client.size = whole(&client.incoming[..client.received]).unwrap_or(0);
        }
        if client.received != client.size {
            return Err(wrong());
        }
        client.received = 0;
        client.socket.set_nonblocking(true)?;
        Ok(client)
    }

    fn ask(&mut self, now: Instant) -> io::Result<()> {
        self.asked = now;
        // At most one request is in flight: there is always room.
        match self.socket.write(REQUEST)? {
            length if length == REQUEST.len() => Ok(()),
            _ => Err(io::Error::other("no room for a request")),
        }
    }

    fn ready(&mut self, count: &mut Count<'_>) -> io::Result<()> {
        self.received += receive(&mut self.socket, &mut self.incoming[self.received..])?;
        if self.received < self.size {
            return Ok(());
        }
        if whole(&self.incoming[..self.received]) != Some(self.size) || self.received > self.size {
            return Err(wrong());
        }
        let now = Instant::now();
        count.answered(self.asked, now);
        self.received = 0;
        self.ask(now)
    }
}

/// Tells whether an answer is complete, for connections of one request.
pub fn answered(_request: &[u8], answer: &[u8]) -> io::Result<bool> {
    match whole(answer) {
        Some(length) if length < answer.len() => Err(wrong()),
        Some(_) => Ok(true),
        // An answer that is no success never is.
        None if answer.len() == MAX_ANSWER || answer.starts_with(b"HTTP/1.1 4") => Err(wrong()),
        None => Ok(false),
    }
}

/// Returns the length of the answer at the beginning, once its head and its body are complete. It
/// must be a success.
pub fn whole(bytes: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    if !lines.next()?.starts_with("HTTP/1.1 200") {
        return None;
    }
    let length: usize = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let length = name.eq_ignore_ascii_case("content-length");
        length.then(|| value.trim().parse().ok())?
    })?;
    (body.len() >= length).then_some(head.len() + 4 + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_once_its_body_is_there() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\ndate: then\r\n\r\nhello";
        for length in 0..answer.len() {
            assert_eq!(whole(&answer[..length]), None, "{length}");
        }
        assert_eq!(whole(answer), Some(answer.len()));
        assert_eq!(whole(b"HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n"), None);
    }
}
