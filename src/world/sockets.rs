//! Sockets that are not TCP's: their common parts, and the dispatch of calls to each kind.
//!
//! All sockets are numbered in one sequence. Those of TCP are in `Kernel::sockets`, the others in
//! `Kernel::others`. A call of the seam arrives here with a number, and is passed on to the
//! protocol of that socket.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};

use super::address::Address;
use super::errno::Errno;
use super::registrations::Registrations;
use super::udp::Udp;
#[cfg(unix)]
use super::unix;
use super::{Kernel, Options, State};

/// The fields that all these sockets have.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) host: usize,
    /// The process that has it open. `None` while it waits in a listener's queue.
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
        let blocks = matches!(result, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        self.blocked = if blocks {
            self.blocked | what
        } else {
            self.blocked & !what
        };
    }

    /// Describes what it waits for, for reports.
    fn waits(&self) -> String {
        let mut text = String::new();
        if self.blocked & super::READABLE != 0 {
            text += ", waits to read";
        }
        if self.blocked & super::WRITABLE != 0 {
            text += ", waits to write";
        }
        text
    }
}

#[derive(Debug)]
pub(super) enum Other {
    Udp(Udp),
    #[cfg(unix)]
    Stream(unix::Stream),
    #[cfg(unix)]
    Listener(unix::Listener),
    #[cfg(unix)]
    Datagram(unix::Datagram),
}

impl Other {
    pub(super) fn base(&mut self) -> &mut Base {
        match self {
            Other::Udp(it) => &mut it.base,
            #[cfg(unix)]
            Other::Stream(it) => &mut it.base,
            #[cfg(unix)]
            Other::Listener(it) => &mut it.base,
            #[cfg(unix)]
            Other::Datagram(it) => &mut it.base,
        }
    }

    fn ready(&self, kernel: &Kernel, id: u32) -> u8 {
        #[cfg(not(unix))]
        let _ = (kernel, id);
        match self {
            Other::Udp(it) => it.ready(),
            #[cfg(unix)]
            Other::Stream(it) => it.ready(kernel),
            #[cfg(unix)]
            Other::Listener(it) => it.ready(),
            #[cfg(unix)]
            Other::Datagram(it) => it.ready(kernel, id),
        }
    }

    /// Describes the socket, for reports.
    pub(super) fn describe(&mut self) -> String {
        let text = match self {
            Other::Udp(it) => it.describe(),
            #[cfg(unix)]
            Other::Stream(it) => it.describe(),
            #[cfg(unix)]
            Other::Listener(it) => it.describe(),
            #[cfg(unix)]
            Other::Datagram(it) => it.describe(),
        };
        text + &self.base().waits()
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

impl<A: Clone> Inbox<A> {
    pub(super) fn new() -> Inbox<A> {
        Inbox {
            queue: VecDeque::new(),
            size: 0,
        }
    }

    /// Describes the number of waiting datagrams and of their bytes, for reports.
    pub(super) fn describe(&self) -> String {
        let count = self.queue.len();
        let bytes = self.queue.iter().map(|it| it.1.len()).sum();
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

/// The seam's calls, for all protocols.
impl Kernel {
    pub(super) fn insert_other(&mut self, socket: Other) -> u32 {
        let number = u32::try_from(self.sockets.len()).expect("fewer than 2^32 sockets");
        self.sockets.push(None);
        self.others.insert(number, socket);
        number
    }

    /// Returns a socket's registrations with pollers, and their pending events.
    pub(super) fn registrations(&mut self, number: u32) -> io::Result<&mut Registrations> {
        if self.others.contains_key(&number) {
            return Ok(&mut self.base(number)?.registrations);
        }
        Ok(&mut self.socket(number)?.registrations)
    }

    pub(super) fn base(&mut self, number: u32) -> io::Result<&mut Base> {
        let socket = self.others.get_mut(&number).map(Other::base);
        socket.ok_or_else(super::gone)
    }

    /// Returns a socket's current readiness.
    pub(super) fn ready(&mut self, number: u32) -> io::Result<u8> {
        match self.others.get(&number) {
            Some(other) => Ok(other.ready(self, number)),
            None => Ok(self.socket(number)?.ready()),
        }
    }

    /// Returns whether a read would not block.
    pub(super) fn is_readable(&mut self, number: u32) -> io::Result<bool> {
        match self.others.get(&number) {
            Some(other) => Ok(other.ready(self, number) & super::READABLE != 0),
            None => Ok(self.socket(number)?.is_readable()),
        }
    }

    pub(super) fn options(&mut self, number: u32) -> io::Result<&mut Options> {
        if self.others.contains_key(&number) {
            Ok(&mut self.base(number)?.options)
        } else {
            Ok(&mut self.socket(number)?.options)
        }
    }

    pub(super) fn close(&mut self, number: u32) {
        match self.others.get(&number) {
            None => self.tcp_close(number),
            Some(Other::Udp(_)) => self.udp_close(number),
            #[cfg(unix)]
            Some(_) => self.unix_close(number),
        }
    }

    pub(super) fn accept(&mut self, number: u32) -> io::Result<(u32, Address)> {
        // A real kernel does this first.
        self.take_descriptors(1)?;
        let (accepted, peer) = self.accept_next(number)?;
        let (host, _) = self.here()?;
        if self.is_aborted(host) {
            if self.others.contains_key(&accepted) {
                self.close(accepted);
            } else {
                self.reset(accepted);
            }
            return Err(Errno::ConnectionAborted.into());
        }
        Ok((accepted, peer))
    }

    fn accept_next(&mut self, number: u32) -> io::Result<(u32, Address)> {
        #[cfg(unix)]
        if let Some(Other::Listener(_)) = self.others.get(&number) {
            return self.unix_accept(number);
        }
        let (number, peer) = self.tcp_accept(number)?;
        Ok((number, Address::Internet(peer)))
    }

    pub(super) fn read(
        &mut self,
        number: u32,
        buffers: &mut [IoSliceMut<'_>],
        keeps: bool,
    ) -> io::Result<usize> {
        let is_stream = match self.others.get(&number) {
            None => true,
            #[cfg(unix)]
            Some(Other::Stream(_)) => true,
            Some(_) => false,
        };
        if is_stream && !keeps {
            if let Some(read) = self.read_shortened(number, buffers) {
                return read;
            }
        }
        if is_stream {
            self.read_stream(number, buffers, keeps)
        } else {
            match buffers.first_mut() {
                Some(buffer) => Ok(self.receive(number, buffer, keeps)?.0),
                None => Ok(self.receive(number, &mut [], keeps)?.0),
            }
        }
    }

    pub(super) fn read_stream(
        &mut self,
        number: u32,
        buffers: &mut [IoSliceMut<'_>],
        keeps: bool,
    ) -> io::Result<usize> {
        #[cfg(unix)]
        if self.others.contains_key(&number) {
            return self.unix_read(number, buffers, keeps);
        }
        self.tcp_read(number, buffers, keeps)
    }

    pub(super) fn write(&mut self, number: u32, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.write_shortened(number, buffers) {
            Some(written) => written,
            None => self.write_stream(number, buffers),
        }
    }

    pub(super) fn write_stream(
        &mut self,
        number: u32,
        buffers: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        let buffers = &mut buffers.iter().map(|it| &**it);
        match self.others.get(&number) {
            None => self.tcp_write(number, buffers),
            #[cfg(unix)]
            Some(Other::Stream(_)) => self.unix_write(number, buffers),
            Some(_) => Err(super::unsupported("writing to a datagram socket")),
        }
    }

    /// Receives a datagram, or peeks at it if `keeps` is set.
    pub(super) fn receive(
        &mut self,
        number: u32,
        bytes: &mut [u8],
        keeps: bool,
    ) -> io::Result<(usize, Address)> {
        let received = match self.others.get_mut(&number) {
            Some(Other::Udp(it)) => it.receive(bytes, keeps),
            #[cfg(unix)]
            Some(Other::Datagram(_)) => self.unix_receive(number, bytes, keeps),
            #[cfg(unix)]
            Some(_) => Err(super::unsupported("a datagram of a stream")),
            None => Err(super::gone()),
        };
        if let Ok(base) = self.base(number) {
            base.note_blocked(super::READABLE, &received);
        }
        received
    }

    /// Sends a datagram, to the peer unless an address is given.
    pub(super) fn send_datagram(
        &mut self,
        number: u32,
        bytes: &[u8],
        to: Option<&Address>,
    ) -> io::Result<usize> {
        let sent = match self.others.get(&number) {
            Some(Other::Udp(_)) => {
                let to = to.map(Address::internet).transpose()?;
                let host = self.base(number)?.host;
                if !self.count_sent(host, bytes.len()) {
                    return Ok(bytes.len()); // It is lost, and the run ends.
                }
                self.udp_send(number, bytes, to)
            }
            #[cfg(unix)]
            Some(Other::Datagram(_)) => {
                let to = to.map(Address::unix).transpose()?;
                self.unix_send(number, bytes, to)
            }
            #[cfg(unix)]
            Some(_) => Err(super::unsupported("a datagram of a stream")),
            None => Err(super::gone()),
        };
        if let Ok(base) = self.base(number) {
            base.note_blocked(super::WRITABLE, &sent);
        }
        sent
    }

    /// Sets the peer of a datagram socket.
    pub(super) fn set_peer(&mut self, number: u32, peer: &Address) -> io::Result<()> {
        match self.others.get(&number) {
            Some(Other::Udp(_)) => self.udp_connect(number, peer.internet()?),
            #[cfg(unix)]
            Some(Other::Datagram(_)) => self.unix_set_peer(number, peer.unix()?),
            #[cfg(unix)]
            Some(_) => Err(super::unsupported("another peer of a stream")),
            None => Err(super::gone()),
        }
    }

    pub(super) fn shut_down(&mut self, number: u32, how: Shutdown) -> io::Result<()> {
        match self.others.get(&number) {
            None => self.tcp_shutdown(number, how),
            #[cfg(unix)]
            Some(Other::Stream(_) | Other::Datagram(_)) => self.unix_shutdown(number, how),
            Some(_) => Err(super::unsupported("shutting down this socket")),
        }
    }

    pub(super) fn local_address(&mut self, number: u32) -> io::Result<Address> {
        Ok(match self.others.get(&number) {
            None => Address::Internet(self.socket(number)?.local),
            Some(Other::Udp(it)) => Address::Internet(it.local),
            #[cfg(unix)]
            Some(Other::Stream(it)) => Address::Unix(it.name.clone()),
            #[cfg(unix)]
            Some(Other::Listener(it)) => Address::Unix(it.name.clone()),
            #[cfg(unix)]
            Some(Other::Datagram(it)) => Address::Unix(it.name.clone()),
        })
    }

    pub(super) fn peer_address(&mut self, number: u32) -> io::Result<Address> {
        let peer = match self.others.get(&number) {
            None => self.tcp_peer(number)?.map(Address::Internet),
            Some(Other::Udp(it)) => it.peer_address().map(Address::Internet),
            #[cfg(unix)]
            Some(Other::Stream(it)) => Some(Address::Unix(it.peer_name.clone())),
            #[cfg(unix)]
            Some(Other::Listener(_)) => None,
            #[cfg(unix)]
            Some(Other::Datagram(it)) => it.peer_name().cloned().map(Address::Unix),
        };
        peer.ok_or_else(|| Errno::NotConnected.into())
    }

    fn tcp_peer(&mut self, number: u32) -> io::Result<Option<SocketAddr>> {
        let socket = self.socket(number)?;
        Ok(match (socket.state, socket.peer) {
            (State::Connected, Some((_, peer))) if !socket.is_over() => Some(peer),
            _ => None,
        })
    }

    /// Returns whether receiving was shut down, although a receive would block.
    pub(super) fn has_ended(&self, number: u32) -> bool {
        match self.others.get(&number) {
            #[cfg(unix)]
            Some(Other::Datagram(it)) => it.is_shut[0],
            _ => false,
        }
    }
}
