//! [`Sockets`]: all sockets of a world, by number; and what those of all protocols have in common.
//!
//! All sockets are numbered in one sequence, over all protocols. A call of the seam arrives here
//! with a number, and is passed on to the protocol of that socket. Each protocol keeps its own
//! sockets, and knows nothing of the others.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;

use super::address::Address;
use super::core::Core;
use super::errno::Errno;
use super::faults::Kind;
use super::options::Options;
use super::registrations::Registrations;
use super::tcp::Tcp;
use super::udp::Udp;
#[cfg(unix)]
use super::unix::Unix;
use super::{READABLE, WRITABLE, gone, unsupported};

/// The fields that all sockets have.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) host: usize,
    /// The process that has it open. `None` while it waits in a listener's queue, and, for TCP,
    /// once the user has closed it.
    pub(super) process: Option<usize>,
    pub(super) registrations: Registrations,
    /// The directions that would have blocked, for reports.
    pub(super) blocked: u8,
    pub(super) options: Options,
}

impl Base {
    pub(super) fn new(host: usize, process: Option<usize>) -> Base {
        Base {
            host,
            process,
            registrations: Registrations::default(),
            blocked: 0,
            options: Options::default(),
        }
    }

    /// Notes whether `result` would have blocked in a direction.
    pub(super) fn note_blocked<T>(&mut self, what: u8, result: &io::Result<T>) {
        self.blocked &= !what;
        if matches!(result, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            self.blocked |= what;
        }
    }

    /// Describes what it waits for, for reports.
    pub(super) fn waits(&self) -> String {
        let mut text = String::new();
        if self.blocked & READABLE != 0 {
            text += ", waits to read";
        }
        if self.blocked & WRITABLE != 0 {
            text += ", waits to write";
        }
        text
    }
}

/// Describes the number of unread bytes, for reports.
pub(super) fn unread(bytes: usize) -> String {
    match bytes {
        0 => String::new(),
        1 => ", 1 byte is unread".into(),
        _ => format!(", {bytes} bytes are unread"),
    }
}

/// Datagrams that wait to be received, each with its sender.
#[derive(Debug)]
pub(super) struct Inbox<A> {
    pub(super) queue: VecDeque<(A, Vec<u8>)>,
    /// The space that they take in the buffer.
    pub(super) size: usize,
}

/// The space that a datagram takes in a buffer in addition to its bytes: about what Linux counts
/// for a small one.
pub(super) const OVERHEAD: usize = 768;

impl<A> Default for Inbox<A> {
    fn default() -> Inbox<A> {
        Inbox {
            queue: VecDeque::new(),
            size: 0,
        }
    }
}

impl<A: Clone> Inbox<A> {
    /// Describes the number of waiting datagrams and of their bytes, for reports.
    pub(super) fn describe(&self) -> String {
        let count = self.queue.len();
        let bytes = self.queue.iter().map(|(_, bytes)| bytes.len()).sum();
        format!("{count} datagrams wait{}", unread(bytes))
    }

    pub(super) fn push(&mut self, from: A, bytes: Vec<u8>) {
        self.size += bytes.len() + OVERHEAD;
        self.queue.push_back((from, bytes));
    }

    /// Copies the first datagram, as far as there is room, and removes it unless `keeps` is set.
    pub(super) fn receive(&mut self, into: &mut [u8], keeps: bool) -> Option<(usize, A, usize)> {
        let (from, bytes) = self.queue.front()?;
        let len = into.len().min(bytes.len());
        into[..len].copy_from_slice(&bytes[..len]);
        let (from, size) = (from.clone(), bytes.len() + OVERHEAD);
        if !keeps {
            self.queue.pop_front();
            self.size -= size;
        }
        Some((len, from, size))
    }
}

pub(crate) struct Sockets {
    pub(super) tcp: Tcp,
    pub(super) udp: Udp,
    #[cfg(unix)]
    pub(super) unix: Unix,
}

enum Protocol {
    Tcp,
    Udp,
    #[cfg(unix)]
    Unix,
}

impl Sockets {
    pub(super) fn new() -> Sockets {
        Sockets {
            tcp: Tcp::new(),
            udp: Udp::default(),
            #[cfg(unix)]
            unix: Unix::default(),
        }
    }

    /// Returns the protocol of a socket; TCP, if there is no such socket: its calls fail.
    #[inline]
    fn protocol(&self, number: u32) -> Protocol {
        if self.tcp.table.has(number) {
            return Protocol::Tcp;
        }
        #[cfg(unix)]
        if self.unix.has(number) {
            return Protocol::Unix;
        }
        if self.udp.has(number) {
            Protocol::Udp
        } else {
            Protocol::Tcp
        }
    }

    pub(super) fn base(&mut self, number: u32) -> io::Result<&mut Base> {
        match self.protocol(number) {
            Protocol::Tcp => Ok(&mut self.tcp.table.get(number)?.base),
            Protocol::Udp => Ok(&mut self.udp.get(number)?.base),
            #[cfg(unix)]
            Protocol::Unix => self.unix.base(number),
        }
    }

    /// Returns a socket's current readiness.
    pub(super) fn ready(&mut self, number: u32) -> io::Result<u8> {
        match self.protocol(number) {
            Protocol::Tcp => Ok(self.tcp.table.get(number)?.ready()),
            Protocol::Udp => Ok(self.udp.get(number)?.ready()),
            #[cfg(unix)]
            Protocol::Unix => self.unix.ready(number),
        }
    }

    /// Returns whether a read would not block.
    pub(super) fn is_readable(&mut self, number: u32) -> io::Result<bool> {
        match self.protocol(number) {
            Protocol::Tcp => Ok(self.tcp.table.get(number)?.is_readable()),
            _ => Ok(self.ready(number)? & READABLE != 0),
        }
    }

    pub(super) fn close(&mut self, number: u32, core: &mut Core) {
        match self.protocol(number) {
            Protocol::Tcp => self.tcp.close(number, core),
            Protocol::Udp => self.udp.close(number),
            #[cfg(unix)]
            Protocol::Unix => self.unix.close(number, core),
        }
    }

    /// Closes the sockets of a process that has ended. Without power its connections are left as
    /// they are, to be forgotten.
    pub(super) fn close_all(
        &mut self,
        process: usize,
        host: usize,
        has_power: bool,
        core: &mut Core,
    ) {
        if has_power {
            self.tcp.close_all(process, host, core);
        }
        self.udp.close_all(process);
        #[cfg(unix)]
        self.unix.close_all(process, core);
    }

    /// Forgets the sockets of a host that has lost its power, without sending anything.
    pub(super) fn forget_all(&mut self, host: usize, core: &mut Core) {
        self.udp.forget_all(host);
        #[cfg(unix)]
        self.unix.forget_all(host);
        self.tcp.table.forget_all(host, core);
    }

    pub(super) fn accept(&mut self, number: u32, core: &mut Core) -> io::Result<(u32, Address)> {
        let (accepted, peer) = match self.protocol(number) {
            #[cfg(unix)]
            Protocol::Unix => self.unix.accept(number, core)?,
            _ => {
                let (accepted, peer) = self.tcp.accept(number, core)?;
                (accepted, Address::Internet(peer))
            }
        };
        let (host, _) = core.processes.here()?;
        if core.fault_comes(host, Kind::Aborted) {
            match self.protocol(accepted) {
                Protocol::Tcp => self.tcp.reset(accepted, core),
                _ => self.close(accepted, core),
            }
            return Err(Errno::CONNABORTED.into());
        }
        Ok((accepted, peer))
    }

    /// Draws the length of a read or write of that length, if a fault makes it a short one.
    fn shorten(&mut self, number: u32, len: usize, core: &mut Core) -> Option<usize> {
        if !core.host_faults.are_any {
            return None;
        }
        let (host, now) = (self.base(number).ok()?.host, core.time.now());
        (core.host_faults).shorten(host, len, now, &mut core.faults)
    }

    pub(super) fn read(
        &mut self,
        number: u32,
        buffers: &mut [IoSliceMut<'_>],
        keeps: bool,
        core: &mut Core,
    ) -> io::Result<usize> {
        if !self.is_stream(number) {
            let buffer = buffers
                .first_mut()
                .map_or(&mut [][..], |buffer| &mut **buffer);
            return Ok(self.receive(number, buffer, keeps, core)?.0);
        }
        let first = buffers.iter_mut().find(|buffer| !buffer.is_empty());
        if let Some(buffer) = first.filter(|_| !keeps) {
            if let Some(len) = self.shorten(number, buffer.len(), core) {
                let short = &mut [IoSliceMut::new(&mut buffer[..len])];
                return self.read_stream(number, short, false, core);
            }
        }
        self.read_stream(number, buffers, keeps, core)
    }

    fn is_stream(&self, number: u32) -> bool {
        match self.protocol(number) {
            Protocol::Tcp => true,
            Protocol::Udp => false,
            #[cfg(unix)]
            Protocol::Unix => self.unix.is_stream(number),
        }
    }

    fn read_stream(
        &mut self,
        number: u32,
        buffers: &mut [IoSliceMut<'_>],
        keeps: bool,
        core: &mut Core,
    ) -> io::Result<usize> {
        match self.protocol(number) {
            #[cfg(unix)]
            Protocol::Unix => self.unix.read(number, buffers, keeps, core),
            _ => self.tcp.read(number, buffers, keeps, core),
        }
    }

    pub(super) fn write(
        &mut self,
        number: u32,
        buffers: &[IoSlice<'_>],
        core: &mut Core,
    ) -> io::Result<usize> {
        if let Some(buffer) = buffers.iter().find(|buffer| !buffer.is_empty()) {
            if let Some(len) = self.shorten(number, buffer.len(), core) {
                return self.write_stream(number, &[IoSlice::new(&buffer[..len])], core);
            }
        }
        self.write_stream(number, buffers, core)
    }

    fn write_stream(
        &mut self,
        number: u32,
        buffers: &[IoSlice<'_>],
        core: &mut Core,
    ) -> io::Result<usize> {
        let buffers = &mut buffers.iter().map(|buffer| &**buffer);
        match self.protocol(number) {
            Protocol::Tcp => self.tcp.write(number, buffers, core),
            #[cfg(unix)]
            Protocol::Unix if self.unix.is_stream(number) => self.unix.write(number, buffers, core),
            _ => Err(unsupported("writing to a datagram socket")),
        }
    }

    /// Receives a datagram, or peeks at it if `keeps` is set.
    pub(super) fn receive(
        &mut self,
        number: u32,
        bytes: &mut [u8],
        keeps: bool,
        core: &mut Core,
    ) -> io::Result<(usize, Address)> {
        #[cfg(not(unix))]
        let _ = core;
        let received = match self.protocol(number) {
            Protocol::Tcp => return Err(gone()),
            Protocol::Udp => self.udp.get(number)?.receive(bytes, keeps),
            #[cfg(unix)]
            Protocol::Unix => self.unix.receive(number, bytes, keeps, core),
        };
        self.base(number)?.note_blocked(READABLE, &received);
        received
    }

    /// Sends a datagram, to the peer unless an address is given.
    pub(super) fn send(
        &mut self,
        number: u32,
        bytes: &[u8],
        to: Option<&Address>,
        core: &mut Core,
    ) -> io::Result<usize> {
        let sent = match self.protocol(number) {
            Protocol::Tcp => return Err(gone()),
            Protocol::Udp => {
                let to = to.map(Address::internet).transpose()?;
                self.udp.send(number, bytes, to, core)
            }
            #[cfg(unix)]
            Protocol::Unix => {
                let to = to.map(Address::unix).transpose()?;
                self.unix.send(number, bytes, to, core)
            }
        };
        self.base(number)?.note_blocked(WRITABLE, &sent);
        sent
    }

    /// Sets the peer of a datagram socket.
    pub(super) fn set_peer(
        &mut self,
        number: u32,
        peer: &Address,
        core: &mut Core,
    ) -> io::Result<()> {
        match self.protocol(number) {
            Protocol::Tcp => Err(gone()),
            Protocol::Udp => self.udp.connect(number, peer.internet()?, core),
            #[cfg(unix)]
            Protocol::Unix => self.unix.set_peer(number, peer.unix()?, core),
        }
    }

    pub(super) fn shut_down(
        &mut self,
        number: u32,
        how: Shutdown,
        core: &mut Core,
    ) -> io::Result<()> {
        match self.protocol(number) {
            Protocol::Tcp => self.tcp.shut_down(number, how, core),
            Protocol::Udp => Err(unsupported("shutting down this socket")),
            #[cfg(unix)]
            Protocol::Unix => self.unix.shut_down(number, how, core),
        }
    }

    pub(super) fn local_address(&mut self, number: u32) -> io::Result<Address> {
        match self.protocol(number) {
            Protocol::Tcp => Ok(Address::Internet(self.tcp.table.get(number)?.local)),
            Protocol::Udp => Ok(Address::Internet(self.udp.get(number)?.local)),
            #[cfg(unix)]
            Protocol::Unix => self.unix.local_address(number),
        }
    }

    pub(super) fn peer_address(&mut self, number: u32) -> io::Result<Address> {
        let peer = match self.protocol(number) {
            Protocol::Tcp => self.tcp.table.get(number)?.peer_address(),
            Protocol::Udp => self.udp.get(number)?.peer_address(),
            #[cfg(unix)]
            Protocol::Unix => return self.unix.peer_address(number),
        };
        let peer = peer.map(Address::Internet);
        peer.ok_or_else(|| Errno::NOTCONN.into())
    }

    /// Returns whether receiving was shut down, although a receive would block.
    pub(super) fn has_ended(&self, number: u32) -> bool {
        match self.protocol(number) {
            #[cfg(unix)]
            Protocol::Unix => self.unix.has_ended(number),
            _ => false,
        }
    }

    /// Returns the kind of socket, as a dump shows it.
    pub(super) fn kind(&self, number: u32) -> &'static str {
        match self.protocol(number) {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            #[cfg(unix)]
            Protocol::Unix if self.unix.is_datagram(number) => "Unix datagram",
            #[cfg(unix)]
            Protocol::Unix => "Unix stream",
        }
    }

    /// Returns the number of sockets that a process of a host has open.
    pub(super) fn count_open(&self, process: usize, host: usize) -> usize {
        let tcp = self.tcp.table.on(host);
        let tcp = tcp.filter(|socket| socket.base.process == Some(process));
        let count = tcp.count() + self.udp.of(process).count();
        #[cfg(unix)]
        let count = count + self.unix.of(process).count();
        count
    }

    /// Describes the sockets of a process, for reports: those of TCP, then the others by number.
    pub(super) fn describe(&self, process: usize, core: &Core) -> Vec<String> {
        let host = core.processes.host_of(process);
        let tcp = self.tcp.table.on(host);
        let tcp = tcp.filter(|socket| socket.base.process == Some(process));
        let mut all: Vec<String> = tcp.map(|socket| socket.describe(&core.hosts)).collect();
        let mut others = BTreeMap::new();
        others.extend((self.udp.of(process)).map(|(number, udp)| (number, udp.describe())));
        #[cfg(unix)]
        others.extend((self.unix.of(process)).map(|(number, unix)| (number, unix.describe())));
        all.extend(others.into_values());
        all
    }
}
