//! Blocks of requests with answers that are known: on each connection one block after the other,
//! the next one when the last one is answered. (So does `redis-benchmark`, with and without `-P`.)

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Instant;

use super::{Block, Count, Events, Measured, Phases, connect, receive, wrong};

pub fn blocks(
    connections: usize,
    blocks: &'static [Block],
    port: u16,
    phases: &Phases<'_>,
) -> io::Result<Measured> {
    let events = Events::new(phases.spin)?;
    let mut clients = (0..connections)
        .map(|_| Client::new(blocks, port))
        .collect::<io::Result<Vec<_>>>()?;
    for (place, client) in clients.iter_mut().enumerate() {
        events.add(client.socket.as_raw_fd(), place)?;
        client.ask(Instant::now())?;
    }
    events.run(phases, |_, place, _, count| clients[place].ready(count))
}

struct Client {
    socket: TcpStream,
    blocks: &'static [Block],
    /// The block in flight.
    place: usize,
    asked: Instant,
    /// One byte more than the longest answer: so a receive always gets less than it asks for.
    incoming: Vec<u8>,
    received: usize,
}

impl Client {
    /// Connects, and has each block answered once.
    fn new(blocks: &'static [Block], port: u16) -> io::Result<Client> {
        let mut socket = connect(port)?;
        let longest = blocks.iter().map(|block| block.answer.len()).max();
        let mut incoming = vec![0; longest.unwrap_or(0) + 1];
        for block in blocks {
            socket.write_all(&block.request)?;
            let answer = &mut incoming[..block.answer.len()];
            socket.read_exact(answer)?;
            if answer != block.answer {
                return Err(wrong());
            }
        }
        socket.set_nonblocking(true)?;
        Ok(Client {
            socket,
            blocks,
            place: 0,
            asked: Instant::now(),
            incoming,
            received: 0,
        })
    }

    fn ask(&mut self, now: Instant) -> io::Result<()> {
        let request = &self.blocks[self.place].request;
        self.asked = now;
        // At most one block is in flight: there is always room.
        match self.socket.write(request)? {
            length if length == request.len() => Ok(()),
            _ => Err(io::Error::other("no room for a block of requests")),
        }
    }

    fn ready(&mut self, count: &mut Count<'_>) -> io::Result<()> {
        self.received += receive(&mut self.socket, &mut self.incoming[self.received..])?;
        let block = &self.blocks[self.place];
        let received = &self.incoming[..self.received];
        if !block.answer.starts_with(received) {
            return Err(wrong());
        }
        if received.len() < block.answer.len() {
            return Ok(());
        }
        let now = Instant::now();
        for _ in 0..block.requests {
            count.answered(self.asked, now);
        }
        self.place = (self.place + 1) % self.blocks.len();
        self.received = 0;
        self.ask(now)
    }
}
