//! [`Sockets`]: all sockets of a world, by number; and what those of all protocols have in common.
//!
//! All sockets are numbered in one sequence, over all protocols. A call of the seam arrives here
//! with a number, and is passed on to the [`Protocol`] of that socket. Each protocol keeps its own
//! sockets, and knows nothing of the others.

use std::collections::VecDeque;
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
    /// Returns its length here, its sender and the space that it took; `AGAIN` if there is none.
    pub(super) fn receive(
        &mut self,
        into: &mut [u8],
        keeps: bool,
    ) -> Result<(usize, A, usize), Errno> {
        let (from, bytes) = self.queue.front().ok_or(Errno::AGAIN)?;
        let len = into.len().min(bytes.len());
        into[..len].copy_from_slice(&bytes[..len]);
        let (from, size) = (from.clone(), bytes.len() + OVERHEAD);
        if !keeps {
            self.queue.pop_front();
            self.size -= size;
        }
        Ok((len, from, size))
    }
}

#[derive(Default)]
pub(crate) struct Sockets {
    pub(super) tcp: Tcp,
    pub(super) udp: Udp,
    #[cfg(unix)]
    pub(super) unix: Unix,
}

/// The sockets of one protocol, and the calls on them. A call that a protocol does not have fails.
pub(super) trait Protocol {
    fn base(&mut self, number: u32) -> io::Result<&mut Base>;

    /// Reports new readiness of a socket, if it is there.
    fn raise(&mut self, number: u32, ready: u8, core: &mut Core) {
        if let Ok(base) = self.base(number) {
            core.raise(number, base, ready);
        }
    }

    /// Returns a socket's current readiness.
    fn ready(&self, number: u32) -> io::Result<u8>;

    /// Returns the kind of socket, as a dump shows it.
    fn kind(&self, number: u32) -> &'static str;

    fn is_stream(&self, _number: u32) -> bool {
        true
    }

    /// Describes a socket, for reports.
    fn describe(&self, number: u32, core: &Core) -> io::Result<String>;

    /// Returns the numbers of the sockets that a process of a host has open, in their order.
    fn open(&self, host: usize, process: usize) -> Vec<u32>;

    /// Returns a socket's own address, and its peer's, if it is connected.
    fn addresses(&self, number: u32) -> io::Result<(Address, Option<Address>)>;

    /// Returns whether receiving was shut down, although a receive would block.
    fn has_ended(&self, _number: u32) -> bool {
        false
    }

    /// Closes a socket after its last handle or its process has gone.
    fn close(&mut self, number: u32, core: &mut Core);

    /// Forgets the sockets of a host that has lost its power, without sending anything.
    fn forget_all(&mut self, host: usize, core: &mut Core);

    fn accept(&mut self, _number: u32, _core: &mut Core) -> io::Result<(u32, Address)> {
        Err(gone())
    }

    /// Ends a connection that was just accepted.
    fn abort(&mut self, number: u32, core: &mut Core) {
        self.close(number, core);
    }

    fn read(
        &mut self,
        _number: u32,
        _buffers: &mut [IoSliceMut<'_>],
        _keeps: bool,
        _core: &mut Core,
    ) -> io::Result<usize> {
        Err(gone())
    }

    fn write(
        &mut self,
        _number: u32,
        _buffers: &[IoSlice<'_>],
        _core: &mut Core,
    ) -> io::Result<usize> {
        Err(gone())
    }

    /// Receives a datagram, or peeks at it if `keeps` is set.
    fn receive(
        &mut self,
        _number: u32,
        _bytes: &mut [u8],
        _keeps: bool,
        _core: &mut Core,
    ) -> io::Result<(usize, Address)> {
        Err(gone())
    }

    /// Sends a datagram, to the peer unless an address is given.
    fn send(
        &mut self,
        _number: u32,
        _bytes: &[u8],
        _to: Option<&Address>,
        _core: &mut Core,
    ) -> io::Result<usize> {
        Err(gone())
    }

    /// Sets the peer of a datagram socket.
    fn set_peer(&mut self, _number: u32, _peer: &Address, _core: &mut Core) -> io::Result<()> {
        Err(gone())
    }

    fn shut_down(&mut self, _number: u32, _how: Shutdown, _core: &mut Core) -> io::Result<()> {
        Err(unsupported("shutting down this socket"))
    }
}

impl Sockets {
    /// Returns the protocol of a socket; TCP, if there is no such socket: its calls fail.
    #[inline]
    pub(super) fn of(&mut self, number: u32) -> &mut dyn Protocol {
        if self.tcp.table.find(number).is_some() {
            return &mut self.tcp;
        }
        #[cfg(unix)]
        if self.unix.find(number).is_ok() {
            return &mut self.unix;
        }
        if self.udp.find(number).is_ok() {
            &mut self.udp
        } else {
            &mut self.tcp
        }
    }

    /// Returns all protocols, TCP first.
    fn all(&mut self) -> Vec<&mut dyn Protocol> {
        Vec::from([
            &mut self.tcp as &mut dyn Protocol,
            &mut self.udp,
            #[cfg(unix)]
            &mut self.unix,
        ])
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
        for protocol in self.all().into_iter().skip(usize::from(!has_power)) {
            for number in protocol.open(host, process) {
                protocol.close(number, core);
            }
        }
    }

    /// Forgets the sockets of a host that has lost its power, without sending anything.
    pub(super) fn forget_all(&mut self, host: usize, core: &mut Core) {
        let all = self.all().into_iter();
        all.for_each(|protocol| protocol.forget_all(host, core));
    }

    pub(super) fn accept(&mut self, number: u32, core: &mut Core) -> io::Result<(u32, Address)> {
        let protocol = self.of(number);
        let (accepted, peer) = protocol.accept(number, core)?;
        let (host, _) = core.processes.here()?;
        if core.fault_comes(host, Kind::Aborted) {
            protocol.abort(accepted, core);
            return Err(Errno::CONNABORTED.into());
        }
        Ok((accepted, peer))
    }

    pub(super) fn read(
        &mut self,
        number: u32,
        buffers: &mut [IoSliceMut<'_>],
        keeps: bool,
        core: &mut Core,
    ) -> io::Result<usize> {
        let protocol = self.of(number);
        if !protocol.is_stream(number) {
            let buffer = buffers.first_mut();
            let buffer = buffer.map_or(&mut [][..], |buffer| &mut **buffer);
            return Ok(self.receive(number, buffer, keeps, core)?.0);
        }
        let first = buffers.iter_mut().find(|buffer| !buffer.is_empty());
        if let Some(buffer) = first.filter(|_| !keeps) {
            if let Some(len) = shorten(protocol, number, buffer.len(), core) {
                let short = &mut [IoSliceMut::new(&mut buffer[..len])];
                return protocol.read(number, short, false, core);
            }
        }
        protocol.read(number, buffers, keeps, core)
    }

    pub(super) fn write(
        &mut self,
        number: u32,
        buffers: &[IoSlice<'_>],
        core: &mut Core,
    ) -> io::Result<usize> {
        let protocol = self.of(number);
        if !protocol.is_stream(number) {
            return Err(unsupported("writing to a datagram socket"));
        }
        if let Some(buffer) = buffers.iter().find(|buffer| !buffer.is_empty()) {
            if let Some(len) = shorten(protocol, number, buffer.len(), core) {
                let short = &[IoSlice::new(&buffer[..len])];
                return protocol.write(number, short, core);
            }
        }
        protocol.write(number, buffers, core)
    }

    /// Receives a datagram, or peeks at it if `keeps` is set.
    pub(super) fn receive(
        &mut self,
        number: u32,
        bytes: &mut [u8],
        keeps: bool,
        core: &mut Core,
    ) -> io::Result<(usize, Address)> {
        let protocol = self.of(number);
        let received = protocol.receive(number, bytes, keeps, core);
        protocol.base(number)?.note_blocked(READABLE, &received);
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
        let protocol = self.of(number);
        let sent = protocol.send(number, bytes, to, core);
        protocol.base(number)?.note_blocked(WRITABLE, &sent);
        sent
    }

    /// Returns the number of sockets that a process of a host has open.
    pub(super) fn count_open(&mut self, process: usize, host: usize) -> usize {
        let all = self.all().into_iter();
        all.map(|protocol| protocol.open(host, process).len()).sum()
    }

    /// Describes the sockets of a process, for reports: those of TCP, then the others by number.
    pub(super) fn describe(&mut self, process: usize, core: &Core) -> Vec<String> {
        let host = core.processes.host_of(process);
        let all = self.all().into_iter();
        let mut numbers: Vec<Vec<u32>> = all.map(|protocol| protocol.open(host, process)).collect();
        let mut others = numbers.split_off(1).concat();
        others.sort_unstable();
        let numbers = numbers.concat().into_iter().chain(others);
        let describe = |number| self.of(number).describe(number, core).ok();
        numbers.filter_map(describe).collect()
    }
}

/// Draws the length of a read or write of that length, if a fault makes it a short one.
fn shorten(protocol: &mut dyn Protocol, number: u32, len: usize, core: &mut Core) -> Option<usize> {
    if !core.host_faults.are_any {
        return None;
    }
    let (host, now) = (protocol.base(number).ok()?.host, core.time.now());
    (core.host_faults).shorten(host, len, now, &mut core.faults)
}
