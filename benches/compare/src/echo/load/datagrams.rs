//! UDP sockets, each with some messages in flight, which must come back in order. (Loopback loses
//! none as long as the server's buffer holds all of them.)

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Instant;

use super::{Count, Events, Measured, Phases};

pub fn datagrams(
    sockets: usize,
    window: usize,
    size: usize,
    port: u16,
    phases: &Phases<'_>,
) -> io::Result<Measured> {
    assert!(size >= 8, "a message carries its number");
    let events = Events::new(phases.spin)?;
    let mut clients = (0..sockets)
        .map(|_| Client::new(window, size, port))
        .collect::<io::Result<Vec<_>>>()?;
    for (place, client) in clients.iter_mut().enumerate() {
        events.add(client.socket.as_raw_fd(), place)?;
        for _ in 0..window {
            client.send(Instant::now())?;
        }
    }
    events.run(phases, |_, place, _, count| clients[place].ready(count))
}

struct Client {
    socket: UdpSocket,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    /// The number of the next message to send, and of the next one to come back.
    next: u64,
    awaited: u64,
    /// The send times of messages in flight, each at its number modulo the window.
    sent: Vec<Instant>,
}

impl Client {
    fn new(window: usize, size: usize, port: u16) -> io::Result<Client> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect((Ipv4Addr::LOCALHOST, port))?;
        socket.set_nonblocking(true)?;
        Ok(Client {
            socket,
            outgoing: vec![7; size],
            incoming: vec![0; size + 1],
            next: 0,
            awaited: 0,
            sent: vec![Instant::now(); window],
        })
    }

    fn send(&mut self, now: Instant) -> io::Result<()> {
        self.outgoing[..8].copy_from_slice(&self.next.to_le_bytes());
        let place = self.next as usize % self.sent.len();
        self.sent[place] = now;
        self.next += 1;
        self.socket.send(&self.outgoing)?;
        Ok(())
    }

    /// Takes all messages that have come back, and sends as many.
    fn ready(&mut self, count: &mut Count<'_>) -> io::Result<()> {
        loop {
            let length = match self.socket.recv(&mut self.incoming) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let number = self.awaited.to_le_bytes();
            if length != self.outgoing.len() || self.incoming[..8] != number {
                return Err(io::Error::other("another message came back"));
            }
            let now = Instant::now();
            let place = self.awaited as usize % self.sent.len();
            count.answered(self.sent[place], now);
            self.awaited += 1;
            self.send(now)?;
        }
    }
}
