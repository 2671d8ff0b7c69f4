//! TCP, as a stream of segments between two sockets.
//!
//! Implemented: the handshake, with a listener's queue; a send buffer and a receive window, both of
//! [`BUFFER`](socket::BUFFER) bytes, so that writers block; FIN and half-close; RST, for segments
//! that find no socket, for bytes that are unread when a socket is closed or arrive after both
//! directions were shut down, and for a linger of zero; retransmission by timer, and after three
//! duplicate acknowledgements; keepalive and the user timeout (in `tcp/keepalive.rs`). A loss
//! delays a connection, and never breaks it before the retries are used up.
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
//! is lost), [`start_timer`](Network::start_timer) is called for the writer.
//!
//! **What is no event.** Two things happen for nearly each message, and mostly change nothing
//! observable: they are kept out of the queue of events. The results are the same as if they were
//! in it, with two exceptions: the order of what happens at one moment; and a deadlock, which is
//! detected before the last acknowledgement has arrived.
//!
//! * *A retransmission timer that will be cancelled.* If nothing is under way, a segment that is
//!   sent [defers](Network::defer_timer) the timer: it has a deadline, which the segment carries.
//!   [`arm`](Network::arm) puts the timer into the queue of events as soon as it may fire: when a
//!   segment is sent that arrives only after the deadline, in either direction; when a segment is
//!   lost, held or refused; when a socket is forgotten that owed an acknowledgement; when a segment
//!   arrives that acknowledges nothing new; when a gateway [forwards](Network::forward) a segment.
//!   If none of these happens, the segment arrives before the deadline, and so does its
//!   acknowledgement, which cancels the timer. (If a hole is left, its cause has armed the timer.)
//! * *A plain acknowledgement*: of all that is under way, to a peer that has nothing else to send,
//!   while all ways are open, and over one link ([`is_plain`](Network::is_plain)). It is stored in
//!   the receiving socket. Any other operation on that socket [settles](Network::settle) it first:
//!   if its time has come, it has arrived; if not, it becomes an event. When a way is cut or held,
//!   all are settled.
//!
//! The code is in parts: `socket` is one end of a connection, `pending` what is to be done for
//! all of them; the methods of [`Network`] find the
//! ends and have their timers (`connections`), send (`send`), receive (`receive`), and make the
//! user's calls (here).

mod connections;
mod keepalive;
pub(super) mod pending;

mod receive;
pub(super) mod segment;
mod send;
pub(super) mod socket;
#[cfg(test)]
mod tcp_tests;

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Shutdown, SocketAddr};

use polder::kernel::{CLOSED, ERROR, READABLE, WRITABLE};

use super::base::Base;
use super::errno::{Errno, gone};
use super::hosts::NOBODY;
use super::ports::Protocol;
use super::registrations::Registrations;
use super::sockets::Network;
use super::table::Socket as Any;
use super::trace_event::{Flags, TraceEvent};
use super::udp::socket::is_broadcast;
use segment::NO_TIMER;
use socket::{Socket, State};

/// Calls that make sockets, and the ends of connections.
impl Network<'_> {
    pub(crate) fn listen(&mut self, local: SocketAddr, backlog: usize) -> io::Result<u32> {
        self.bind(Protocol::Tcp, local, |mut base, local| {
            base.backlog = backlog;
            Any::Tcp(Box::new(Socket::new(base, State::Listening, local)))
        })
    }

    /// Starts to connect.
    pub(crate) fn connect(&mut self, peer: SocketAddr) -> io::Result<u32> {
        let (host, process) = self.core.processes.here()?;
        if is_for_many(peer.ip().to_canonical()) {
            return Err(Errno::NETUNREACH.into());
        }
        let is_v6 = peer.is_ipv6();
        let (to, peer) = self.core.hosts.locate(host, peer);
        let ip = self.core.hosts.source(host, (to, peer.ip()));
        let port = self.free_port_to(host, ip, peer)?;
        let base = Base::new(host, Some(process));
        let mut socket = Socket::new(base, State::Connecting, SocketAddr::new(ip, port));
        (socket.peer, socket.has_connected) = (Some((to, peer)), true);
        socket.timed = Some((0, self.core.time.now()));
        socket.base.is_v6 = is_v6;
        let id = self.insert(socket);
        let end = self.far_end(SocketAddr::new(ip, port), (to, peer));
        self.core.note(host, TraceEvent::Connect(end, peer.port()));
        self.core.count_connect(host);
        self.core.count_sent(host, 0);
        self.send_flags(id, Flags::Syn);
        self.start_timer(id);
        Ok(id)
    }

    /// Resets all connections between two hosts, on both sides at the same moment.
    pub(crate) fn reset_between(&mut self, a: usize, b: usize) {
        self.core.note(a, TraceEvent::Reset(b));
        let mut ids = self.table.ids(a);
        if a != b {
            ids.extend(self.table.ids(b));
        }
        ids.sort_unstable();
        for id in ids {
            let is_between = self.table.tcp(id).is_some_and(|socket| {
                let peer = socket.peer.map(|peer| self.far_end(socket.local, peer));
                let ends = [(a, Some(b)), (b, Some(a))];
                socket.state == State::Connected && ends.contains(&(socket.base.host, peer))
            });
            if is_between {
                self.fail(id, Errno::CONNRESET);
            }
        }
    }

    /// Returns the host at the other end of a connection, beyond all gateways. `hop` is the first
    /// host on the way there.
    fn far_end(&self, mut from: SocketAddr, (mut hop, mut to): (usize, SocketAddr)) -> usize {
        let (hosts, now) = (&self.core.hosts, self.core.time.now());
        while hosts.have_gateways() && hop != NOBODY {
            let (source, end) = self.nat.translated(Protocol::Tcp, from, (hop, to), now);
            let next = hosts.locate(hop, end);
            if next.0 == hop {
                break;
            }
            (from, (hop, to)) = (source, next);
        }
        hop
    }

    /// Ends a connection by RST, unless it has ended before, and forgets it.
    pub(super) fn reset(&mut self, id: u32) {
        let socket = self.table.tcp(id);
        if socket.is_some_and(|socket| socket.state != State::Closed) {
            self.send_flags(id, Flags::Reset);
        }
        self.remove(id);
    }

    /// Ends a connection by an error, which is reported to the user once.
    ///
    /// After the peer's FIN, and before its own, a reset is a broken pipe, as in Linux's
    /// `tcp_reset`: reads still return the bytes that came before, and then the end. A connection
    /// that waits in a queue is accepted nevertheless, and reports its error afterwards.
    fn fail(&mut self, id: u32, error: Errno) {
        let Some(socket) = self.settle(id) else {
            return;
        };
        let is_kept = socket.base.process.is_some() || socket.is_queued;
        if is_kept && socket.is_over() {
            return;
        }
        (socket.timer.deadline, socket.owes_ack) = (None, false);
        socket.out.clear();
        socket.end = socket.end.min(socket.acked); // The other bytes are lost.
        if !is_kept {
            return self.remove(id);
        }
        let is_half = socket.has_peer_fin() && !socket.wants_fin;
        socket.base.error = match error {
            Errno::CONNRESET if is_half => Some(Errno::PIPE),
            error => Some(error),
        };
        socket.state = State::Closed;
        let (_, owed) = std::mem::replace(&mut socket.peer_timer, NO_TIMER);
        self.disconnect(id);
        self.arm(owed);
        self.raise(id, READABLE | WRITABLE | CLOSED | ERROR);
    }
}

/// The user's calls on sockets.
impl Network<'_> {
    /// Returns `Ok` if connecting is done, or the error that has ended the connection.
    pub(crate) fn finish_connect(&mut self, id: u32) -> io::Result<()> {
        let socket = self.table.tcp_mut(id).ok_or_else(gone)?;
        socket.base.take_error()?;
        if socket.state == State::Connecting {
            return Err(Errno::AGAIN.into());
        }
        Ok(())
    }

    pub(super) fn read_tcp(
        &mut self,
        id: u32,
        buffers: &mut [IoSliceMut<'_>],
        peeks: bool,
    ) -> io::Result<usize> {
        let (read, announces) = self.table.tcp_at(id).read(buffers, peeks)?;
        if announces {
            self.send_flags(id, Flags::Ack);
        }
        Ok(read)
    }

    pub(super) fn write_tcp(&mut self, id: u32, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let socket = self.settle(id).ok_or_else(gone)?;
        let written = socket.write(buffers)?;
        self.transmit(id);
        Ok(written)
    }

    pub(super) fn shut_down_tcp(&mut self, id: u32, how: Shutdown) -> io::Result<()> {
        let socket = self.settle(id).ok_or_else(gone)?;
        if socket.state != State::Connected || socket.is_over() {
            return Err(Errno::NOTCONN.into());
        }
        if how != Shutdown::Write {
            socket.read_shut = true;
        }
        if how != Shutdown::Read {
            // Losing the peer's bytes, as the BSDs do, would show only in tests that wait for some.
            assert!(
                !socket.wants_fin,
                "polder has shut down the writing of a connection twice: on some systems that \
                 loses what the peer still sends"
            );
            socket.end_writing();
            self.transmit(id);
        }
        Ok(())
    }

    /// Closes a socket after its last handle or its process has gone. Bytes that were written are
    /// still sent.
    pub(super) fn close_tcp(&mut self, id: u32) {
        let Some(socket) = self.settle(id) else {
            return;
        };
        if socket.base.process.is_none() {
            return; // Its process has ended, and closed it.
        }
        socket.base.process = None;
        socket.base.registrations = Registrations::default();
        match socket.state {
            State::Listening => {
                let (host, port) = (socket.base.host, socket.local.port());
                let mut waiting = Vec::from(std::mem::take(&mut socket.base.queue));
                self.ports.remove(Protocol::Tcp, (host, port), id);
                self.remove(id);
                // And those that are not in its queue yet.
                waiting.extend(self.table.ids(host).into_iter().filter(|other| {
                    let state = self.table.tcp(*other).map(|socket| socket.state);
                    state == Some(State::Accepting(id))
                }));
                for waiting in waiting {
                    self.reset(waiting);
                }
            }
            State::Connecting | State::Accepting(_) | State::Closed => {
                self.remove(id);
            }
            State::Connected => {
                let is_hard = socket.base.options.linger == Some(std::time::Duration::ZERO);
                // If both sides have ended, there is nothing left to reset.
                if !socket.is_over() && (is_hard || !socket.input.is_empty()) {
                    return self.reset(id);
                }
                if !socket.wants_fin {
                    socket.end_writing();
                    self.transmit(id);
                }
                self.end_if_done(id);
            }
        }
    }
}

/// Returns whether an address is a broadcast or multicast one, to which no socket connects: Linux's
/// tcp_v4_connect() and tcp_v6_connect().
fn is_for_many(ip: IpAddr) -> bool {
    ip.is_multicast() || is_broadcast(ip)
}
