//! TCP, as a stream of segments between two sockets.
//!
//! Implemented: the handshake, with a listener's queue; a send buffer and a receive window, both of
//! [`BUFFER`] bytes, so that writers block; FIN and half-close; RST, for segments that find no
//! socket, for bytes that are unread when a socket is closed or arrive after both directions were
//! shut down, and for a linger of zero; retransmission by timer, and after three duplicate
//! acknowledgements; keepalive and the user timeout (in `tcp/keepalive.rs`). A loss delays a
//! connection, and never breaks it before the retries are used up.
//!
//! Each segment acknowledges what has arrived. If the process answers at the moment at which a
//! segment arrives, the answer carries the acknowledgement, and no segment is sent for it alone.
//!
//! Not implemented: congestion control, path MTU, Nagle's algorithm, urgent data.
//!
//! Segments of one direction of a connection arrive in the order in which they were sent, except
//! for those that are lost and retransmitted. Offsets count the bytes of a direction from zero, and
//! do not wrap; the FIN has the offset behind the last byte.
//!
//! **A closed window.** A writer that waits for a window to open sends probes, as a real kernel's
//! does (RFC 9293, 3.8.6.1), by the retransmission timer. Otherwise it would wait for ever for a
//! peer that is gone, or for a window update that was lost. But it does not probe while the peer's
//! socket exists and all of that socket's window updates have arrived: the answer to such a probe
//! is known. So a connection on which both sides wait for each other sends nothing, and the world
//! sees that nothing will ever happen. When that condition ends (the peer's socket goes, something
//! is lost), [`start_timer`](Kernel::start_timer) is called for the writer.
//!
//! **What is no event.** Two things happen for nearly each message, and mostly change nothing
//! observable: they are kept out of the queue of events. The results are the same as if they were
//! in it, with two exceptions: the order of what happens at one moment; and a deadlock, which is
//! detected before the last acknowledgement has arrived.
//!
//! * *A retransmission timer that will be cancelled.* If nothing is under way, a segment that is
//!   sent [sets](Kernel::set_timer) the timer, and carries its deadline. [`arm`](Kernel::arm) puts
//!   the timer into the queue of events as soon as it may fire: when a segment is sent that arrives
//!   only after the deadline, in either direction; when a segment is lost, held or refused; when a
//!   socket is forgotten that owed an acknowledgement; when a segment arrives that acknowledges
//!   nothing new. If none of these happens, the segment arrives before the deadline, and so does
//!   its acknowledgement, which cancels the timer. (If a hole is left, its cause has armed the
//!   timer.)
//! * *A plain acknowledgement*: of all that is under way, to a peer that has nothing else to send,
//!   while all ways are open ([`is_plain`](Kernel::is_plain)). It is stored in the receiving
//!   socket. Any other operation on that socket [settles](Kernel::settle) it first: if its time has
//!   come, it has arrived; if not, it becomes an event. When a way is cut or held, all are settled.

mod keepalive;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};

use super::bytes::ByteQueue;
use super::errno::Errno;
use super::registrations::Registrations;
use super::trace::{Flags, Message, What, digest};
use super::{Event, Kernel, NOBODY};

/// The bytes that a socket takes from a writer before the peer has acknowledged them, and those
/// that it keeps for a reader. (Real systems' buffers grow, up to some megabytes: a program that
/// needs more than this to make progress depends on that.)
const BUFFER: usize = 64 * 1024;

/// The maximum of bytes in a segment: the payload of an Ethernet frame.
const SEGMENT: usize = 1_460;

/// The overhead of each segment: the headers of TCP and IPv4.
const HEADERS: usize = 40;

/// The retransmission timeouts of RFC 6298, with Linux's lower bound: the minimum, the maximum, and
/// the first one of a handshake.
const SHORTEST_RTO: u64 = 200_000_000;
const LONGEST_RTO: u64 = 120_000_000_000;
const FIRST_RTO: u64 = 1_000_000_000;

/// The number of retransmissions before a connection times out: Linux's `tcp_retries2`,
/// `tcp_syn_retries` and `tcp_synack_retries`.
const RETRIES: u32 = 15;
const SYN_RETRIES: u32 = 6;
const SYN_ACK_RETRIES: u32 = 5;

/// The time until a router near a host reports to it that another host is unreachable.
const ROUTER: u64 = 200_000;

/// The deadline of a timer that is not set.
const NEVER: u64 = u64::MAX;
const NO_TIMER: (u64, u32) = (NEVER, 0);

/// The time for which a connection that has ended on both sides still answers late segments.
const TIME_WAIT: u64 = 60_000_000_000;

#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) from: (usize, SocketAddr),
    pub(super) to: (usize, SocketAddr),
    /// The numbers of the sockets at both ends, as far as they are known; zero otherwise. They save
    /// a search, and identify the same sockets as the addresses: numbers are not reused, and a
    /// socket keeps its addresses.
    from_id: u32,
    to_id: u32,
    /// The number of the link, or zero if it is not known.
    pub(super) link: u32,
    /// The time at which it was sent.
    sent: u64,
    flags: Flags,
    seq: u64,
    bytes: Vec<u8>,
    fin: bool,
    ack: u64,
    /// The offset up to which the sender takes bytes.
    limit: u64,
    /// The deadline of the sender's timer, if the timer is only [set](Kernel::set_timer).
    timer: u64,
    /// The socket with the timer that this segment cancels, if the timer is only set; or zero.
    calls_off: u32,
}

impl Segment {
    /// Returns the sockets that need their timers armed, if these are only set and this segment
    /// does not arrive now.
    pub(super) fn timers(&self) -> [u32; 2] {
        [self.from_id, self.calls_off]
    }

    /// Returns the hosts that it goes from and to.
    pub(super) fn way(&self) -> (usize, usize) {
        (self.from.0, self.to.0)
    }

    fn what(&self) -> (Flags, usize, u64, u64, usize) {
        let digest = digest(self.ack, &self.bytes);
        (self.flags, self.from.0, self.seq, digest, self.bytes.len())
    }

    fn message(&self, at: u64, is_lost: bool) -> Message {
        Message {
            sent: self.sent,
            at,
            from: self.from.0,
            to: self.to.0,
            name: self.flags.name(),
            seq: self.seq,
            len: self.bytes.len(),
            is_lost,
        }
    }
}

/// A segment that acknowledges all that is under way, and changes nothing else.
#[derive(Clone, Copy, Debug)]
struct PlainAck {
    sent: u64,
    /// The time of arrival.
    at: u64,
    seq: u64,
    limit: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Listening,
    /// A SYN was sent.
    Connecting,
    /// A SYN to the listener of this number was answered.
    Accepting(u32),
    Connected,
    /// Both directions have ended, or the connection was reset.
    Closed,
}

#[derive(Debug)]
pub(super) struct Tcp {
    pub(super) host: usize,
    /// The process that has it open. `None` if the user has closed it, or if it is in a listener's
    /// queue.
    pub(super) process: Option<usize>,
    pub(super) state: State,
    pub(super) local: SocketAddr,
    pub(super) peer: Option<(usize, SocketAddr)>,
    /// The number of the peer's socket, once a segment of it has arrived; zero before.
    peer_id: u32,
    /// The number of the link to the peer, once something was sent; zero before.
    link: u32,
    /// Whether arriving segments find it: it is in `Kernel::connections`.
    is_listed: bool,
    /// Whether an acknowledgement is due before the next event, unless a segment is sent before.
    owes_ack: bool,
    error: Option<Errno>,
    // Sending: bytes that are not acknowledged yet, or not sent yet.
    out: ByteQueue,
    acked: u64,
    next: u64,
    wants_fin: bool,
    limit: u64,
    equal_acks: u32,
    /// Whether the peer has acknowledged the FIN too.
    fin_acked: bool,
    /// Whether both directions have ended, and it is about to be forgotten.
    has_ended: bool,
    /// Whether it has connected, rather than been accepted.
    pub(super) has_connected: bool,
    /// Whether the peer had ended before this side did: LAST_ACK, after which nothing is kept.
    ends_last: bool,
    /// Whether it waits in a listener's queue to be accepted.
    is_queued: bool,
    recover: u64,
    // Retransmission.
    retries: u32,
    rto: u64,
    smoothed: Option<(u64, u64)>,
    timed: Option<(u64, u64)>,
    timer: Option<u64>,
    timer_event: Option<u64>,
    /// The time of the first retransmission or probe since the peer has last acknowledged anything
    /// new, or opened its window.
    stalled: Option<u64>,
    // Keepalive: the time of the last sign of life, the unanswered probes, the timer's deadline.
    heard: u64,
    probes: u32,
    keepalive_at: Option<u64>,
    arrival: u64,
    /// An acknowledgement that is under way to it, and is no event; and the arrival time of the
    /// last such acknowledgement that it has sent.
    ack_under_way: Option<PlainAck>,
    plain_until: u64,
    /// The deadline of the peer's timer for what has arrived and was not acknowledged, if that
    /// timer is only [set](Kernel::set_timer); and the peer's number, which may differ from the
    /// known one.
    pub(super) peer_timer: (u64, u32),
    // Receiving.
    input: ByteQueue,
    received: u64,
    beyond: BTreeMap<u64, Vec<u8>>,
    fin_at: Option<u64>,
    read_shut: bool,
    told: u64,
    // Fields of a listener.
    backlog: usize,
    opening: usize,
    queue: VecDeque<u32>,
    pub(super) registrations: Registrations,
    /// The directions that would have blocked, for reports.
    pub(super) blocked: u8,
    pub(super) options: super::Options,
}

pub(crate) const READABLE: u8 = 1;
pub(crate) const WRITABLE: u8 = 2;
pub(crate) const CLOSED: u8 = 4;
pub(crate) const ERROR: u8 = 8;

impl Tcp {
    pub(super) fn new(host: usize, process: Option<usize>, local: SocketAddr) -> Tcp {
        Tcp {
            host,
            process,
            state: State::Closed,
            local,
            peer: None,
            peer_id: 0,
            link: 0,
            is_listed: false,
            owes_ack: false,
            error: None,
            out: ByteQueue::default(),
            acked: 0,
            next: 0,
            wants_fin: false,
            limit: 0,
            equal_acks: 0,
            fin_acked: false,
            has_ended: false,
            has_connected: false,
            ends_last: false,
            is_queued: false,
            recover: 0,
            retries: 0,
            rto: FIRST_RTO,
            smoothed: None,
            timed: None,
            timer: None,
            timer_event: None,
            stalled: None,
            heard: 0,
            probes: 0,
            keepalive_at: None,
            arrival: 0,
            ack_under_way: None,
            plain_until: 0,
            peer_timer: NO_TIMER,
            input: ByteQueue::default(),
            received: 0,
            beyond: BTreeMap::new(),
            fin_at: None,
            read_shut: false,
            told: 0,
            backlog: 0,
            opening: 0,
            queue: VecDeque::new(),
            registrations: Registrations::default(),
            blocked: 0,
            options: super::Options::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Returns the offset behind the last byte that was written, which is that of the FIN.
    fn end(&self) -> u64 {
        self.acked + self.out.len() as u64 - u64::from(self.fin_acked)
    }

    /// Returns whether it is connected, and everything was sent and acknowledged.
    fn has_sent_all(&self) -> bool {
        self.state == State::Connected && self.out.is_empty() && !self.wants_fin
    }

    /// Returns the offset up to which the peer may send.
    fn room(&self) -> u64 {
        self.received - self.input.len() as u64 + BUFFER as u64
    }

    fn has_peer_fin(&self) -> bool {
        self.fin_at.is_some_and(|at| self.received >= at)
    }

    /// Returns whether both sides have ended, and know it: for the user it is no longer connected.
    /// (Linux keeps the rest, TIME_WAIT, apart from the socket, which is closed.)
    pub(super) fn is_over(&self) -> bool {
        self.fin_acked && self.has_peer_fin()
    }

    fn acknowledgement(&self) -> u64 {
        self.received + u64::from(self.has_peer_fin())
    }

    /// Returns whether a read would not block.
    pub(super) fn is_readable(&self) -> bool {
        !self.queue.is_empty()
            || !self.input.is_empty()
            || self.read_shut
            || self.has_peer_fin()
            || self.state == State::Closed
            || self.error.is_some()
    }

    /// Returns its current readiness.
    pub(super) fn ready(&self) -> u8 {
        let mut ready = 0;
        if self.is_readable() {
            ready |= READABLE;
        }
        if self.has_peer_fin() {
            ready |= CLOSED;
        }
        // (After the end of writing a write fails immediately.)
        if self.state == State::Connected && (self.out.len() < BUFFER || self.wants_fin) {
            ready |= WRITABLE;
        }
        if self.state == State::Closed || self.is_over() {
            ready |= WRITABLE | CLOSED;
        }
        if self.error.is_some() {
            ready |= WRITABLE | ERROR | CLOSED;
        }
        ready
    }

    /// Describes the socket, for reports.
    pub(super) fn describe(&self, name: impl Fn(usize) -> String) -> String {
        let state = match self.state {
            State::Listening => return format!("listens at {}", self.local),
            State::Connecting | State::Accepting(_) => "connecting to",
            State::Connected => "connected to",
            State::Closed => "was connected to",
        };
        let (host, peer) = self.peer.unwrap_or((self.host, self.local));
        let mut text = format!("{}, {state} {}:{}", self.local, name(host), peer.port());
        if self.blocked & READABLE != 0 {
            text += ", waits to read";
        }
        if self.blocked & WRITABLE != 0 {
            text += ", waits to write";
        }
        if self.has_peer_fin() {
            text += ", the peer has ended";
        }
        text + &super::sockets::unread(self.input.len())
    }
}

/// The user's calls.
impl Kernel {
    pub(super) fn tcp_listen(&mut self, local: SocketAddr, backlog: usize) -> io::Result<u32> {
        let (host, process) = self.here()?;
        let local = self.bind_tcp(host, local)?;
        let mut socket = Tcp::new(host, Some(process), local);
        (socket.state, socket.backlog) = (State::Listening, backlog);
        let id = self.insert(socket);
        self.listeners
            .entry((host, local.port()))
            .or_default()
            .push(id);
        Ok(id)
    }

    pub(super) fn tcp_connect(&mut self, peer: SocketAddr) -> io::Result<u32> {
        let (host, process) = self.here()?;
        if is_for_many(peer.ip()) {
            return Err(Errno::NetworkUnreachable.into());
        }
        let (to, peer) = self.host_at(host, peer);
        let ip = if peer.ip().is_loopback() {
            peer.ip()
        } else {
            self.hosts[host].address(peer.is_ipv6())
        };
        let port = self.free_port_to(host, ip, peer)?;
        let local = SocketAddr::new(ip, port);
        let mut socket = Tcp::new(host, Some(process), local);
        (socket.state, socket.peer) = (State::Connecting, Some((to, peer)));
        socket.has_connected = true;
        let id = self.insert(socket);
        self.list((host, local, peer), id);
        let port = peer.port();
        self.note(host, What::Connect { to, port });
        self.count_connect(host);
        self.count_sent(host, 0);
        self.send_flags(id, Flags::Syn);
        self.start_timer(id);
        Ok(id)
    }

    pub(super) fn tcp_accept(&mut self, id: u32) -> io::Result<(u32, SocketAddr)> {
        let (_, process) = self.here()?;
        loop {
            let listener = self.socket(id)?;
            let Some(accepted) = listener.queue.pop_front() else {
                listener.blocked |= READABLE;
                return Err(Errno::WouldBlock.into());
            };
            listener.blocked &= !READABLE;
            let (host, port) = (listener.host, listener.local.port());
            let Ok(socket) = self.socket(accepted) else {
                continue; // A queued connection goes only with its listener.
            };
            let (from, peer) = socket.peer.expect("it has a peer");
            (socket.process, socket.is_queued) = (Some(process), false);
            self.note(host, What::Accepted { from, port });
            return Ok((accepted, peer));
        }
    }

    /// Returns whether connecting is done, or the error that has ended the connection.
    pub(super) fn tcp_is_connected(&mut self, id: u32) -> io::Result<bool> {
        let socket = self.socket(id)?;
        match socket.error.take() {
            Some(error) => Err(error.into()),
            None => Ok(socket.state != State::Connecting),
        }
    }

    pub(super) fn tcp_read(
        &mut self,
        id: u32,
        buffers: &mut [io::IoSliceMut<'_>],
        keeps: bool,
    ) -> io::Result<usize> {
        let socket = self.socket(id)?;
        let read = socket.input.read(buffers, keeps);
        socket.blocked &= !READABLE;
        if read == 0 {
            // The end comes before an error, which is left for the writer.
            if !socket.has_peer_fin() {
                if let Some(error) = socket.error.take() {
                    return Err(error.into());
                }
            }
            let ended = socket.has_peer_fin() || socket.read_shut || socket.state == State::Closed;
            return match socket.state {
                _ if ended => Ok(0),
                State::Connected => {
                    socket.blocked |= READABLE;
                    Err(Errno::WouldBlock.into())
                }
                _ => Err(Errno::NotConnected.into()),
            };
        }
        let opened = socket.room() - socket.told;
        let was_shut = socket.told < socket.received + SEGMENT as u64;
        let is_news = opened >= BUFFER as u64 / 2 || was_shut && opened >= SEGMENT as u64;
        if !keeps && is_news && socket.state == State::Connected && !socket.has_peer_fin() {
            self.send_flags(id, Flags::Ack);
        }
        Ok(read)
    }

    pub(super) fn tcp_write(
        &mut self,
        id: u32,
        buffers: &mut dyn Iterator<Item = &[u8]>,
    ) -> io::Result<usize> {
        self.settle(id);
        let socket = self.socket(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error.into());
        }
        match socket.state {
            State::Connected if !socket.wants_fin => {}
            State::Connected | State::Closed => return Err(Errno::BrokenPipe.into()),
            _ => return Err(Errno::NotConnected.into()),
        }
        let (mut written, mut is_empty) = (0, true);
        for bytes in buffers {
            is_empty &= bytes.is_empty();
            let part = bytes.len().min(BUFFER - socket.out.len());
            socket.out.push(&bytes[..part]);
            written += part;
        }
        socket.blocked &= !WRITABLE;
        if written == 0 && !is_empty {
            socket.blocked |= WRITABLE;
            return Err(Errno::WouldBlock.into());
        }
        self.transmit(id);
        Ok(written)
    }

    pub(super) fn tcp_shutdown(&mut self, id: u32, how: Shutdown) -> io::Result<()> {
        self.settle(id);
        let socket = self.socket(id)?;
        if socket.state != State::Connected || socket.is_over() {
            return Err(Errno::NotConnected.into());
        }
        if how != Shutdown::Write {
            socket.read_shut = true;
        }
        if how != Shutdown::Read && !socket.wants_fin {
            (socket.wants_fin, socket.ends_last) = (true, socket.has_peer_fin());
            self.transmit(id);
        }
        Ok(())
    }

    /// Closes a socket after its last handle or its process has gone. Bytes that were written are
    /// still sent.
    pub(super) fn tcp_close(&mut self, id: u32) {
        self.settle(id);
        let Ok(socket) = self.socket(id) else {
            return;
        };
        if socket.process.is_none() {
            return; // Its process has ended, and closed it.
        }
        socket.process = None;
        socket.registrations = Registrations::default();
        match socket.state {
            State::Listening => {
                let (key, queue) = (
                    (socket.host, socket.local.port()),
                    std::mem::take(&mut socket.queue),
                );
                if let Some(others) = self.listeners.get_mut(&key) {
                    others.retain(|it| *it != id);
                    if others.is_empty() {
                        self.listeners.remove(&key);
                    }
                }
                self.remove(id);
                let mut opening = self.ids(key.0);
                opening.retain(|it| self.is_opening_for(*it, id));
                for waiting in queue.into_iter().chain(opening) {
                    self.reset(waiting);
                }
            }
            State::Connecting | State::Accepting(_) | State::Closed => self.remove(id),
            State::Connected => {
                let is_hard = socket.options.linger == Some(std::time::Duration::ZERO);
                // If both sides have ended, there is nothing left to reset.
                if !socket.is_over() && (is_hard || !socket.input.is_empty()) {
                    return self.reset(id);
                }
                if !socket.wants_fin {
                    (socket.wants_fin, socket.ends_last) = (true, socket.has_peer_fin());
                    self.transmit(id);
                }
                self.end_if_done(id);
            }
        }
    }

    /// Ends a connection by RST, unless it has ended before, and forgets it.
    pub(super) fn reset(&mut self, id: u32) {
        if self.socket(id).is_ok_and(|it| it.state != State::Closed) {
            self.send_flags(id, Flags::Reset);
        }
        self.remove(id);
    }

    fn is_opening_for(&self, id: u32, listener: u32) -> bool {
        self.sockets[id as usize]
            .as_ref()
            .is_some_and(|it| it.state == State::Accepting(listener))
    }

    fn remove(&mut self, id: u32) {
        self.settle(id);
        let Some(socket) = self.sockets[id as usize].take() else {
            return;
        };
        self.disconnect(id, socket.host, socket.local, socket.peer);
        self.arm(socket.peer_timer.1);
        if let State::Accepting(listener) = socket.state {
            if let Ok(listener) = self.socket(listener) {
                listener.opening -= 1;
            }
        }
    }

    /// Removes a socket from the connections, so that arriving segments no longer find it. (A new
    /// connection of the same addresses may have taken its place.)
    fn disconnect(
        &mut self,
        id: u32,
        host: usize,
        local: SocketAddr,
        peer: Option<(usize, SocketAddr)>,
    ) {
        let Some(peer) = peer else {
            return;
        };
        let key = (host, local, peer.1);
        if self.connections.get(&key) == Some(&id) {
            self.connections.remove(&key);
            if let Ok(socket) = self.socket(id) {
                socket.is_listed = false;
            }
            self.warn_peer(local, peer);
        }
    }

    /// Adds a socket to the connections, so that arriving segments find it.
    fn list(&mut self, key: (usize, SocketAddr, SocketAddr), id: u32) {
        if let Some(before) = self.connections.insert(key, id) {
            self.settle(before);
            if let Ok(other) = self.socket(before) {
                other.is_listed = false;
            }
        }
        if let Ok(socket) = self.socket(id) {
            socket.is_listed = true;
        }
    }

    /// Returns the socket that a segment is for.
    fn recipient(&self, segment: &Segment) -> Option<u32> {
        let (host, local) = segment.to;
        let socket = self.sockets[segment.to_id as usize].as_deref();
        // Numbers are not reused, so two sockets that know each other's belong to one connection.
        let is_it = socket.is_some_and(|it| {
            let is_known = segment.from_id != 0 && it.peer_id == segment.from_id;
            it.is_listed
                && (is_known || (it.host, it.local, it.peer) == (host, local, Some(segment.from)))
        });
        if is_it {
            return Some(segment.to_id);
        }
        let key = (host, local, segment.from.1);
        self.connections.get(&key).copied()
    }

    /// Ends a connection by an error, which is reported to the user once.
    ///
    /// After the peer's FIN, and before its own, a reset is a broken pipe, as in Linux's
    /// `tcp_reset`: reads still return the bytes that came before, and then the end. A connection
    /// that waits in a queue is accepted nevertheless, and reports its error afterwards.
    pub(super) fn fail(&mut self, id: u32, error: Errno) {
        self.settle(id);
        let Ok(socket) = self.socket(id) else {
            return;
        };
        let is_kept = socket.process.is_some() || socket.is_queued;
        if is_kept && socket.is_over() {
            return;
        }
        (socket.timer, socket.owes_ack) = (None, false);
        socket.out.clear();
        if is_kept {
            let is_half = socket.has_peer_fin() && !socket.wants_fin;
            socket.error = match error {
                Errno::ConnectionReset if is_half => Some(Errno::BrokenPipe),
                error => Some(error),
            };
            socket.state = State::Closed;
            let (host, local, peer) = (socket.host, socket.local, socket.peer);
            let (_, owed) = std::mem::replace(&mut socket.peer_timer, NO_TIMER);
            self.disconnect(id, host, local, peer);
            self.arm(owed);
            self.raise(id, READABLE | WRITABLE | CLOSED | ERROR);
        } else {
            self.remove(id);
        }
    }
}

/// Sending.
impl Kernel {
    fn segment(&mut self, id: u32, flags: Flags) -> Option<Box<Segment>> {
        let socket = self.sockets.get_mut(id as usize)?.as_deref_mut()?;
        let to = socket.peer?;
        // Not by a few bytes at a time, which would then be sent singly: RFC 9293, 3.8.6.2.2.
        if socket.room() >= socket.told + SEGMENT as u64 {
            socket.told = socket.room();
        }
        socket.owes_ack = false; // Every segment carries an ACK.
        let segment = |bytes| Segment {
            from: (socket.host, socket.local),
            to,
            from_id: id,
            to_id: socket.peer_id,
            link: socket.link,
            sent: 0,
            flags,
            seq: socket.next,
            bytes,
            fin: false,
            ack: socket.acknowledgement(),
            limit: socket.told,
            timer: NEVER,
            calls_off: 0,
        };
        Some(boxed(&mut self.spare, segment))
    }

    fn send_flags(&mut self, id: u32, flags: Flags) {
        if let Some(segment) = self.segment(id, flags) {
            self.send(Some(id), segment);
        }
    }

    /// Sends the bytes at `seq`, or the FIN if it is there. Returns the offset behind them.
    fn send_at(&mut self, id: u32, seq: u64) -> u64 {
        let Some(mut segment) = self.segment(id, Flags::Data) else {
            return seq;
        };
        let now = self.now;
        let Ok(socket) = self.socket(id) else {
            return seq;
        };
        let end = socket.end();
        let start = (seq - socket.acked) as usize;
        let fits = end.min(socket.limit).saturating_sub(seq);
        let len = fits.min(SEGMENT as u64) as usize;
        segment.seq = seq;
        segment.timer = match (socket.timer, socket.timer_event) {
            (Some(timer), event) if event.is_none_or(|it| it > timer) => timer,
            _ => NEVER,
        };
        let bytes = &socket.out.as_slice()[start..start + len];
        segment.bytes.extend_from_slice(bytes);
        segment.fin = socket.wants_fin && seq + len as u64 == end;
        if segment.bytes.is_empty() {
            segment.flags = Flags::Fin;
        }
        let behind = seq + len as u64 + u64::from(segment.fin);
        if behind > socket.next {
            socket.next = behind;
            if socket.timed.is_none() {
                socket.timed = Some((behind, now));
            }
        } else {
            socket.timed = None; // Retransmitted: its time is no sample (Karn).
        }
        self.send(Some(id), segment);
        behind
    }

    /// Sends all that may be sent.
    fn transmit(&mut self, id: u32) {
        if self.socket(id).is_ok_and(|it| it.has_sent_all()) {
            return; // The common case: no timer is needed either.
        }
        loop {
            let Ok(socket) = self.socket(id) else {
                return;
            };
            if socket.state != State::Connected || socket.fin_acked {
                return;
            }
            let (next, end) = (socket.next, socket.end());
            let may_send = next < end && next < socket.limit || next == end && socket.wants_fin;
            if !may_send {
                break;
            }
            if socket.acked == next && socket.timer.is_none() {
                self.set_timer(id);
            }
            self.send_at(id, next);
        }
        self.start_timer(id);
    }

    /// Sets the timer, before a segment is sent while nothing is under way, and leaves it out of
    /// the queue of events: see the module's documentation.
    fn set_timer(&mut self, id: u32) {
        let now = self.now;
        if let Ok(socket) = self.socket(id) {
            socket.timer = Some(now + socket.timeout(now));
        }
        #[cfg(test)]
        if self.has_all_events {
            self.arm(id);
        }
    }

    /// Starts the timer, if something has to be retransmitted unless it is acknowledged in time, or
    /// if a closed window has to be probed.
    fn start_timer(&mut self, id: u32) {
        let Ok(socket) = self.socket(id) else {
            return;
        };
        if socket.timer.is_some() {
            return;
        }
        let is_under_way = socket.acked < socket.next || is_opening(socket);
        if is_under_way || self.must_probe(id) {
            let now = self.now;
            if let Ok(socket) = self.socket(id) {
                socket.timer = Some(now + socket.timeout(now));
            }
            self.arm(id);
        }
    }

    /// Returns whether a socket waits for its peer's window to open, and the peer is gone, or has
    /// announced more than has arrived; or it waits for a limited time only.
    fn must_probe(&self, id: u32) -> bool {
        let find = |id: u32| self.sockets[id as usize].as_deref();
        let Some((socket, (host, address))) = find(id).and_then(|it| Some((it, it.peer?))) else {
            return false;
        };
        let is_blocked = socket.state == State::Connected
            && socket.acked == socket.next
            && socket.next < socket.end()
            && socket.next >= socket.limit;
        if !is_blocked {
            return false; // The common case: no lookup of the peer is needed.
        }
        let peer = self.connections.get(&(host, address, socket.local));
        let peer = peer.and_then(|it| find(*it));
        let is_limited = socket.options.user_timeout != 0;
        is_limited || peer.is_none_or(|it| it.state != State::Connected || it.told > socket.limit)
    }

    /// Notes that one end of a connection has gone. Its `peer`, the other end, may have to probe.
    pub(super) fn warn_peer(&mut self, local: SocketAddr, (host, address): (usize, SocketAddr)) {
        if let Some(id) = self.connections.get(&(host, address, local)).copied() {
            self.start_timer(id);
        }
    }

    /// Puts a socket's timer into the queue of events, if it is set. The socket need not exist.
    pub(super) fn arm(&mut self, id: u32) {
        let socket = self.sockets.get_mut(id as usize);
        if let Some(socket) = socket.and_then(|it| it.as_deref_mut()) {
            if let Some(at) = socket.timer {
                if socket.timer_event.is_none_or(|it| it > at) {
                    socket.timer_event = Some(at);
                    self.push(at, Event::Retransmit(id));
                }
            }
        }
    }

    /// Returns whether this timer event of the socket still applies; if not, it is dropped.
    pub(super) fn tcp_is_due(&mut self, id: u32, at: u64) -> bool {
        // Segments that arrive at the same moment come after it.
        self.settle_by(id, at.saturating_sub(1));
        let Ok(socket) = self.socket(id) else {
            return false;
        };
        if socket.timer_event != Some(at) {
            return false;
        }
        socket.timer_event = None;
        if socket.timer != Some(at) {
            self.arm(id);
            return false;
        }
        true
    }

    /// Retransmits what was not acknowledged in time.
    pub(super) fn tcp_retransmit(&mut self, id: u32) {
        let now = self.now;
        let Ok(socket) = self.socket(id) else {
            return;
        };
        socket.timer = None;
        let may_probe = socket.state == State::Connected && socket.acked == socket.next;
        if may_probe && !self.must_probe(id) {
            return;
        }
        let Ok(socket) = self.socket(id) else {
            return;
        };
        let (host, state) = (socket.host, socket.state);
        let is_over = match state {
            State::Connecting => socket.retries == SYN_RETRIES,
            State::Accepting(_) => socket.retries == SYN_ACK_RETRIES,
            State::Connected => {
                let stalled = now - *socket.stalled.get_or_insert(now);
                let is_over = socket.user_timeout().map(|it| stalled >= it);
                is_over.unwrap_or(socket.retries == RETRIES)
            }
            State::Listening | State::Closed => return,
        };
        if is_over {
            return self.give_up(id);
        }
        socket.retries += 1;
        socket.rto = (socket.rto * 2).min(LONGEST_RTO);
        // All that is under way counts as lost: each acknowledgement retransmits the next part of
        // it.
        socket.recover = socket.next;
        let (acked, retries) = (socket.acked, socket.retries);
        let is_probe = acked == socket.next;
        self.note(host, What::Retransmit(acked, retries));
        match state {
            State::Connecting => self.send_flags(id, Flags::Syn),
            State::Accepting(_) => self.send_flags(id, Flags::SynAck),
            _ if is_probe => self.send_flags(id, Flags::Probe),
            _ => {
                self.send_at(id, acked);
            }
        }
        self.start_timer(id);
    }

    /// Ends a connection with a silent peer.
    fn give_up(&mut self, id: u32) {
        let Ok(socket) = self.socket(id) else {
            return;
        };
        let host = socket.host;
        let peer = socket.peer.map_or(host, |(peer, _)| peer);
        self.note(host, What::TimedOut);
        // A router's message did not end the connection, but it is the error that is reported:
        // Linux's `sk_err_soft`.
        if self.links.partings.is_unreachable(host, peer) {
            self.fail(id, Errno::HostUnreachable)
        } else {
            self.fail(id, Errno::TimedOut)
        }
    }

    /// Sends a segment, which is then under way or lost. `id` is its sender, if that is a socket.
    fn send(&mut self, id: Option<u32>, mut segment: Box<Segment>) {
        segment.sent = self.now;
        let mut peer_timer = NO_TIMER;
        if let Some(Ok(socket)) = id.map(|id| self.socket(id)) {
            peer_timer = std::mem::replace(&mut socket.peer_timer, NO_TIMER);
            segment.calls_off = peer_timer.1;
            if socket.plain_until >= segment.sent {
                let peer = socket.peer_id;
                self.settle(peer); // So that it comes before this one.
            }
        }
        let len = HEADERS + segment.bytes.len();
        let (way, faults) = (segment.way(), &mut self.faults);
        let link = &mut segment.link;
        let Some(latency) = self.links.send(way, link, len, self.now, faults) else {
            return self.tcp_lost(segment);
        };
        let mut at = self.now + latency;
        if let Some(Ok(socket)) = id.map(|id| self.socket(id)) {
            at = at.max(socket.arrival);
            (socket.arrival, socket.link) = (at, segment.link);
            if at >= segment.timer || at >= peer_timer.0 {
                segment.timers().into_iter().for_each(|it| self.arm(it));
            }
        }
        self.push(at, Event::Segment(segment));
    }

    /// Acknowledges what has arrived by a segment that carries nothing else. Differs from
    /// [`send_flags`](Self::send_flags) in that a plain acknowledgement is no event.
    fn acknowledge(&mut self, id: u32) {
        if !self.is_plain(id) {
            return self.send_flags(id, Flags::Ack);
        }
        let (now, faults) = (self.now, &mut self.faults);
        let socket = self.sockets[id as usize].as_deref_mut();
        let Some((socket, (to, _))) = socket.and_then(|it| it.peer.map(|peer| (it, peer))) else {
            return;
        };
        let (way, link) = ((socket.host, to), &mut socket.link);
        let latency = self.links.send(way, link, HEADERS, now, faults);
        // The same as in `segment`.
        if socket.room() >= socket.told + SEGMENT as u64 {
            socket.told = socket.room();
        }
        socket.owes_ack = false;
        let peer_timer = std::mem::replace(&mut socket.peer_timer, NO_TIMER);
        let Some(latency) = latency else {
            if let Some(mut segment) = self.segment(id, Flags::Ack) {
                (segment.sent, segment.calls_off) = (now, peer_timer.1);
                self.tcp_lost(segment);
            }
            return;
        };
        // The same as in `send`.
        let at = (now + latency).max(socket.arrival);
        (socket.arrival, socket.plain_until) = (at, at);
        let ack = PlainAck {
            sent: now,
            at,
            seq: socket.next,
            limit: socket.told,
        };
        let peer = socket.peer_id;
        if at >= peer_timer.0 {
            self.arm(peer);
        }
        if let Ok(peer) = self.socket(peer) {
            peer.ack_under_way = Some(ack);
        }
    }

    /// Returns whether an acknowledgement that this socket sends now is plain: its only effect is
    /// that the peer has nothing under way any more, which is not observable.
    fn is_plain(&self, id: u32) -> bool {
        let find = |id: u32| self.sockets.get(id as usize)?.as_deref();
        let Some(socket) = find(id) else {
            return false;
        };
        let Some(peer) = find(socket.peer_id) else {
            return false;
        };
        #[cfg(test)]
        if self.has_all_events {
            return false;
        }
        let ack = socket.acknowledgement();
        self.links.partings.are_none()
            && (peer.is_listed && peer.peer_id == id)
            && [0, socket.peer_id].contains(&socket.peer_timer.1)
            && peer.state == State::Connected
            && peer.ack_under_way.is_none()
            && (peer.acked < ack && ack == peer.next && peer.next == peer.end())
            && !peer.wants_fin
            && peer.out.len() < BUFFER
    }

    /// Settles a plain acknowledgement that is under way to a socket: it has arrived, if its time
    /// has come; otherwise it becomes an event, as something else happens before.
    #[inline]
    pub(super) fn settle(&mut self, id: u32) {
        self.settle_by(id, self.now);
    }

    #[inline]
    fn settle_by(&mut self, id: u32, now: u64) {
        let socket = self.sockets.get_mut(id as usize);
        let Some(socket) = socket.and_then(|it| it.as_deref_mut()) else {
            return;
        };
        if socket.ack_under_way.is_some() {
            self.settle_now(id, now);
        }
    }

    #[inline(never)]
    fn settle_now(&mut self, id: u32, now: u64) {
        let Ok(socket) = self.socket(id) else {
            return;
        };
        let Some(ack) = socket.ack_under_way.take() else {
            return;
        };
        if now < ack.at {
            return self.make_event(id, ack);
        }
        socket.limit = socket.limit.max(ack.limit);
        socket.out.clear();
        socket.acked = socket.next;
        (socket.heard, socket.probes) = (ack.at, 0);
        (socket.retries, socket.equal_acks, socket.timer) = (0, 0, None);
        forget_backoff(socket);
        if let Some((_, sent)) = socket.timed.take() {
            measure(socket, ack.at - sent);
        }
        if self.trace.records() {
            if let Some(segment) = self.segment_of(id, ack) {
                self.trace.message(|| segment.message(ack.at, false));
                self.spare.push(segment);
            }
        }
    }

    /// Returns a plain acknowledgement as a segment.
    fn segment_of(&mut self, id: u32, ack: PlainAck) -> Option<Box<Segment>> {
        let socket = self.sockets.get_mut(id as usize)?.as_deref_mut()?;
        let from = socket.peer?;
        let segment = |bytes| Segment {
            from,
            to: (socket.host, socket.local),
            from_id: socket.peer_id,
            to_id: id,
            link: 0,
            sent: ack.sent,
            flags: Flags::Ack,
            seq: ack.seq,
            bytes,
            fin: false,
            ack: socket.next,
            limit: ack.limit,
            timer: NEVER,
            calls_off: id,
        };
        Some(boxed(&mut self.spare, segment))
    }

    fn make_event(&mut self, id: u32, ack: PlainAck) {
        if let Some(segment) = self.segment_of(id, ack) {
            self.push(ack.at, Event::Segment(segment));
        }
    }

    /// Settles all sockets, as segments under way may be lost or held from now on.
    pub(crate) fn settle_all(&mut self) {
        for id in 0..self.sockets.len() {
            self.settle(id as u32);
        }
    }

    /// Handles the loss of a segment. If it carried a window update, the other side has to probe
    /// for it.
    pub(super) fn tcp_lost(&mut self, segment: Box<Segment>) {
        let (flags, from, seq, digest, len) = segment.what();
        let to = segment.to.0;
        self.note(to, What::Lost(flags, from, seq, digest, len));
        self.trace.message(|| segment.message(self.now, true));
        self.warn_peer(segment.from.1, segment.to);
        segment.timers().into_iter().for_each(|it| self.arm(it));
        let (from, to) = segment.way();
        if flags == Flags::Syn && self.links.partings.is_unreachable(from, to) {
            let at = self.now + ROUTER;
            self.push(at, Event::Unreachable(segment.from_id));
        }
        self.spare.push(segment);
    }

    /// Reports a router's message to a socket that its peer is unreachable. Linux's tcp_v4_err():
    /// this ends a socket that is connecting, and no other.
    pub(super) fn tcp_unreachable(&mut self, id: u32) {
        let Ok(socket) = self.socket(id) else {
            return;
        };
        if socket.state == State::Connecting {
            let (host, peer) = (socket.host, socket.peer.map_or(NOBODY, |(peer, _)| peer));
            self.note(host, What::Unreachable(peer));
            self.fail(id, Errno::HostUnreachable);
        }
    }
}

/// Receiving.
impl Kernel {
    pub(super) fn tcp_arrives(&mut self, segment: &mut Segment) {
        let (flags, from, seq, digest, len) = segment.what();
        let host = segment.to.0;
        self.note(host, What::Segment(flags, from, seq, digest, len));
        self.trace.message(|| segment.message(self.now, false));
        if let Some(id) = self.recipient(segment) {
            return self.arrives_at(id, segment);
        }
        match segment.flags {
            Flags::Reset => {}
            Flags::Syn => self.syn_arrives(segment),
            _ => self.refuse(segment),
        }
    }

    /// Refuses a segment for which there is no socket, by a RST.
    fn refuse(&mut self, segment: &Segment) {
        let reset = |bytes| Segment {
            from: segment.to,
            to: segment.from,
            from_id: 0,
            to_id: segment.from_id,
            link: 0,
            sent: 0,
            flags: Flags::Reset,
            seq: segment.ack,
            bytes,
            fin: false,
            ack: segment.seq,
            limit: 0,
            timer: NEVER,
            calls_off: 0,
        };
        let reset = boxed(&mut self.spare, reset);
        self.send(None, reset);
        self.arm(segment.from_id);
    }

    fn syn_arrives(&mut self, segment: &Segment) {
        let (host, local) = segment.to;
        let Some(id) = self.listener_at(host, local) else {
            return self.refuse(segment);
        };
        let Ok(listener) = self.socket(id) else {
            return;
        };
        // One more than was asked for, by Linux's sk_acceptq_is_full().
        if listener.queue.len() + listener.opening > listener.backlog {
            return; // The peer sends it again.
        }
        listener.opening += 1;
        let options = listener.options.clone();
        let mut socket = Tcp::new(host, None, local);
        (socket.state, socket.peer) = (State::Accepting(id), Some(segment.from));
        (socket.limit, socket.options) = (segment.limit, options);
        socket.peer_id = segment.from_id;
        let id = self.insert(socket);
        self.list((host, local, segment.from.1), id);
        self.send_flags(id, Flags::SynAck);
        self.start_timer(id);
    }

    fn arrives_at(&mut self, id: u32, segment: &mut Segment) {
        // An acknowledgement that comes at the same moment was sent later, and comes after this
        // segment.
        let now = self.now;
        self.settle_by(id, now.saturating_sub(1));
        let Ok(socket) = self.socket(id) else {
            return;
        };
        // The segment was sent to an earlier socket of these addresses, and its numbers mean
        // nothing here. A socket that is opening answers an acknowledgement of something it has not
        // sent by a reset: RFC 9293, 3.10.7.3 and 3.10.7.4.
        if ![0, id].contains(&segment.to_id) {
            return match socket.state {
                State::Connecting | State::Accepting(_) if segment.flags != Flags::Reset => {
                    self.refuse(segment)
                }
                _ => self.arm(segment.from_id),
            };
        }
        (socket.heard, socket.probes) = (now, 0);
        match (segment.flags, socket.state) {
            (Flags::Reset, State::Connecting) => {
                return self.fail(id, Errno::ConnectionRefused);
            }
            (Flags::Reset, _) => return self.fail(id, Errno::ConnectionReset),
            (Flags::SynAck, State::Connecting) => {
                (socket.limit, socket.peer_id) = (segment.limit, segment.from_id);
                self.opened(id);
                self.raise(id, WRITABLE);
                return self.send_flags(id, Flags::Ack);
            }
            // The acknowledgement of the first SYN+ACK was lost.
            (Flags::SynAck, State::Connected) => return self.send_flags(id, Flags::Ack),
            (Flags::Syn, State::Accepting(_)) => return self.send_flags(id, Flags::SynAck),
            // A new connection of the same addresses: Linux's tcp_timewait_state_process().
            (Flags::Syn, _) if socket.has_ended => {
                self.remove(id);
                return self.syn_arrives(segment);
            }
            // The sender does not know this connection, and resets it when it is challenged: RFC
            // 5961, 4.2.
            (Flags::Syn, State::Connected) if segment.from_id != socket.peer_id => {
                self.arm(segment.from_id);
                return self.send_flags(id, Flags::Ack);
            }
            (Flags::Syn | Flags::SynAck, _) | (_, State::Connecting | State::Closed) => {
                return self.arm(segment.from_id);
            }
            (_, State::Accepting(listener)) => {
                self.opened(id);
                if let Ok(socket) = self.socket(id) {
                    socket.is_queued = true;
                }
                if let Ok(listener) = self.socket(listener) {
                    listener.opening -= 1;
                    listener.queue.push_back(id);
                }
                self.raise(listener, READABLE);
            }
            _ => {}
        }
        self.acknowledged(id, segment);
        if segment.flags == Flags::Probe {
            self.send_flags(id, Flags::Ack);
        } else if !segment.bytes.is_empty() || segment.fin {
            self.received(id, segment);
        }
        self.end_if_done(id);
    }

    /// Notes that the handshake is done, for this side.
    fn opened(&mut self, id: u32) {
        if let Ok(socket) = self.socket(id) {
            socket.state = State::Connected;
            (socket.timer, socket.retries, socket.rto) = (None, 0, SHORTEST_RTO);
        }
    }

    fn acknowledged(&mut self, id: u32, segment: &Segment) {
        let now = self.now;
        let Ok(socket) = self.socket(id) else {
            return;
        };
        let opens = segment.limit > socket.limit;
        socket.limit = socket.limit.max(segment.limit);
        if socket.acked == socket.next {
            // Nothing is under way, except perhaps a probe. The peer is alive.
            (socket.retries, socket.timer) = (0, None);
            if opens {
                forget_backoff(socket);
            }
        }
        let is_news = segment.ack > socket.acked && segment.ack <= socket.next;
        if is_news {
            let was_full = socket.out.len() == BUFFER;
            let bytes = (segment.ack - socket.acked).min(socket.out.len() as u64) as usize;
            let is_last = socket.wants_fin
                && segment.ack == socket.next
                && segment.ack == socket.acked + socket.out.len() as u64 + 1;
            socket.out.consume(bytes);
            socket.acked = segment.ack;
            if is_last {
                socket.fin_acked = true;
            }
            (socket.retries, socket.equal_acks, socket.timer) = (0, 0, None);
            forget_backoff(socket);
            if let Some((_, sent)) = socket.timed.take_if(|(behind, _)| *behind <= segment.ack) {
                measure(socket, now - sent);
            }
            let (goes_on, acked) = (socket.acked < socket.recover, socket.acked);
            if was_full {
                self.raise(id, WRITABLE);
            }
            // More of the bytes that were under way is missing.
            if goes_on && !is_last {
                self.send_at(id, acked);
            }
        } else if segment.ack == socket.acked
            && socket.acked < socket.next
            && segment.bytes.is_empty()
            && !opens
            && !segment.fin
        {
            socket.equal_acks += 1;
            if socket.equal_acks == 3 && socket.acked >= socket.recover {
                socket.recover = socket.next;
                let acked = socket.acked;
                self.send_at(id, acked);
            }
        }
        if !is_news {
            self.arm(id); // It should have cancelled the timer, and has not.
        }
        self.transmit(id);
    }

    fn received(&mut self, id: u32, segment: &mut Segment) {
        let Ok(socket) = self.socket(id) else {
            return;
        };
        let before = (socket.received, socket.has_peer_fin());
        let end = segment.seq + segment.bytes.len() as u64;
        if segment.timer != NEVER {
            let before =
                std::mem::replace(&mut socket.peer_timer, (segment.timer, segment.from_id));
            if before.1 != segment.from_id {
                self.arm(before.1); // Of a socket that is gone, or soon will be.
            }
        }
        let Ok(socket) = self.socket(id) else {
            return;
        };
        let is_held = socket.process.is_some() || socket.is_queued;
        if socket.wants_fin && (socket.read_shut || !is_held) && end > before.0 {
            // The bytes will never be read: Linux's tcp_rcv_state_process(), in FIN_WAIT1 and
            // FIN_WAIT2.
            self.send_flags(id, Flags::Reset);
            return self.fail(id, Errno::ConnectionReset);
        }
        if segment.fin {
            socket.fin_at = Some(end);
        }
        if segment.seq > before.0 {
            let bytes = std::mem::take(&mut segment.bytes);
            let other = socket.beyond.entry(segment.seq).or_default();
            if bytes.len() > other.len() {
                *other = bytes;
            }
        } else {
            take(socket, segment.seq, &segment.bytes);
            while let Some(entry) = socket.beyond.first_entry() {
                if *entry.key() > socket.received {
                    break;
                }
                let (seq, bytes) = entry.remove_entry();
                take(socket, seq, &bytes);
            }
        }
        let has_ended = socket.has_peer_fin() && !before.1;
        let more = socket.received > before.0;
        if has_ended {
            self.raise(id, READABLE | CLOSED);
        } else if more {
            self.raise(id, READABLE);
        }
        if more || has_ended {
            self.owe_ack(id);
        } else {
            self.send_flags(id, Flags::Ack); // The third of these reports the loss.
        }
    }

    /// Notes that what has arrived must be acknowledged: by a segment that the process sends at
    /// this moment, or else before anything else happens. (A real kernel waits up to 40 ms for an
    /// answer to carry it.)
    fn owe_ack(&mut self, id: u32) {
        if let Ok(socket) = self.socket(id) {
            if !std::mem::replace(&mut socket.owes_ack, true) {
                self.owing.push(id);
            }
        }
    }

    /// Sends the acknowledgements that are owed.
    #[inline]
    pub(super) fn acknowledge_all(&mut self) {
        if !self.owing.is_empty() {
            self.acknowledge_owing();
        }
    }

    #[inline(never)]
    fn acknowledge_owing(&mut self) {
        let mut owing = std::mem::take(&mut self.owing);
        for id in owing.drain(..) {
            if self.socket(id).is_ok_and(|it| it.owes_ack) {
                self.acknowledge(id);
            }
        }
        self.owing = owing; // Empty, kept for its capacity: sending owes nothing.
    }

    /// Ends a connection of which both directions have ended and everything is acknowledged. The
    /// side that has ended first stays to answer late segments (TIME_WAIT), and keeps its addresses
    /// for that time.
    fn end_if_done(&mut self, id: u32) {
        let now = self.now;
        let Ok(socket) = self.socket(id) else {
            return;
        };
        let is_done =
            socket.state == State::Connected && socket.is_over() && socket.process.is_none();
        if is_done && socket.ends_last {
            return self.remove(id);
        }
        if is_done && !std::mem::replace(&mut socket.has_ended, true) {
            self.ended.push_back((now + TIME_WAIT, id));
        }
    }

    /// Forgets connections after the end of TIME_WAIT.
    pub(super) fn tcp_forget(&mut self) {
        while let Some((until, id)) = self.ended.front().copied() {
            if until > self.now {
                break;
            }
            self.ended.pop_front();
            self.remove(id);
        }
    }
}

/// Returns whether an address is a broadcast or multicast one, to which no socket connects: Linux's
/// tcp_v4_connect() and tcp_v6_connect().
fn is_for_many(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            ip.is_broadcast() || ip.is_multicast() || ip == Ipv4Addr::new(127, 255, 255, 255)
        }
        IpAddr::V6(ip) => ip.is_multicast(),
    }
}

/// Creates a segment without bytes, in the memory of one that is done.
#[inline(always)]
#[allow(clippy::vec_box)]
fn boxed(spare: &mut Vec<Box<Segment>>, segment: impl FnOnce(Vec<u8>) -> Segment) -> Box<Segment> {
    let Some(mut place) = spare.pop() else {
        return Box::new(segment(Vec::new()));
    };
    let mut bytes = std::mem::take(&mut place.bytes);
    bytes.clear();
    *place = segment(bytes);
    place
}

fn is_opening(socket: &Tcp) -> bool {
    matches!(socket.state, State::Connecting | State::Accepting(_))
}

/// Ends the backoff, as bytes were acknowledged or the window has opened: after the next loss the
/// timeout is the usual one again.
fn forget_backoff(socket: &mut Tcp) {
    socket.stalled = None;
    socket.rto = match socket.smoothed {
        Some((mean, deviation)) => (mean + 4 * deviation).clamp(SHORTEST_RTO, LONGEST_RTO),
        None => SHORTEST_RTO,
    };
}

/// Notes the duration of a round trip: RFC 6298, in integers.
fn measure(socket: &mut Tcp, took: u64) {
    let (mean, deviation) = match socket.smoothed {
        None => (took, took / 2),
        Some((mean, deviation)) => (
            (mean * 7 + took) / 8,
            (deviation * 3 + mean.abs_diff(took)) / 4,
        ),
    };
    socket.smoothed = Some((mean, deviation));
    forget_backoff(socket);
}

/// Takes the new part of bytes that begin at or before the next expected offset.
fn take(socket: &mut Tcp, seq: u64, bytes: &[u8]) {
    let known = (socket.received - seq).min(bytes.len() as u64) as usize;
    socket.received += (bytes.len() - known) as u64;
    socket.input.push(&bytes[known..]);
}
