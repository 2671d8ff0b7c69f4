//! The sockets of TCP by their addresses, and the timers, as far as these depend on the other end.
//!
//! An arriving segment finds its socket here. A socket that has ended for its user stays as long as
//! segments may come for it.

use std::io;
use std::net::{IpAddr, SocketAddr};

use super::segment::Segment;
use super::socket::{BUFFER, Socket, State};
use crate::world::event_queue::Event;
use crate::world::ports::{Protocol, connection, takes};
use crate::world::sockets::Network;
use crate::world::table::Socket as Any;
use crate::world::trace_event::Flags;

/// Addresses.
impl Network<'_> {
    /// Inserts an end of a connection, which segments then find. Returns its number.
    pub(super) fn insert(&mut self, socket: Socket) -> u32 {
        let (_, peer) = socket.peer.expect("it has a peer");
        let key = connection(socket.base.host, socket.local, peer);
        let id = self.table.insert(Any::Tcp(Box::new(socket)));
        if let Some(before) = self.ports.connections.insert(key, id) {
            if let Some(other) = self.settle(before) {
                other.is_listed = false;
            }
        }
        self.table.tcp_at(id).is_listed = true;
        id
    }

    /// Forgets a socket.
    pub(super) fn remove(&mut self, id: u32) {
        self.settle(id);
        self.disconnect(id);
        let Some(Any::Tcp(socket)) = self.table.remove(id) else {
            return;
        };
        self.arm(socket.peer_timer.1);
        if let State::Accepting(listener) = socket.state {
            if let Some(listener) = self.table.tcp_mut(listener) {
                listener.opening -= 1;
            }
        }
    }

    /// Removes a socket from the connections, so that arriving segments no longer find it. (A new
    /// connection of the same addresses may have taken its place.)
    pub(super) fn disconnect(&mut self, id: u32) {
        let Some(socket) = self.table.tcp_mut(id) else {
            return;
        };
        if let (true, Some(peer)) = (socket.is_listed, socket.peer) {
            let (host, local) = (socket.base.host, socket.local);
            socket.is_listed = false;
            let key = connection(host, local, peer.1);
            self.ports.connections.remove(&key);
            self.warn_peer(local, peer);
        }
    }

    /// Forgets the sockets of a host that has lost its power, without sending anything.
    pub(in crate::world) fn forget_sockets(&mut self, host: usize) {
        for id in self.table.ids(host) {
            self.remove(id);
        }
    }

    /// Returns the socket that a segment is for.
    pub(super) fn recipient(&self, segment: &Segment) -> Option<u32> {
        let (host, local) = segment.to;
        // Numbers are not reused, so two sockets that know each other's belong to one connection.
        // (But a gateway may have forgotten it.)
        let is_it = self.table.tcp(segment.to_id).is_some_and(|socket| {
            let has_number = segment.from_id != 0 && socket.peer_id == segment.from_id;
            let is_known = has_number && !self.core.hosts.have_gateways();
            let ends = (socket.base.host, socket.local, socket.peer);
            socket.is_listed && (is_known || ends == (host, local, Some(segment.from)))
        });
        if is_it {
            return Some(segment.to_id);
        }
        self.connected(host, local, segment.from.1)
    }

    /// Returns the connection of a host from `local` to `peer`, if there is one.
    fn connected(&self, host: usize, local: SocketAddr, peer: SocketAddr) -> Option<u32> {
        let key = connection(host, local, peer);
        self.ports.connections.get(&key).copied()
    }

    pub(super) fn listener_at(&self, host: usize, local: SocketAddr) -> Option<u32> {
        let bound = |id: &&u32| self.table.local_ip(**id);
        let is_it = |id: &&u32| bound(id).is_some_and(|bound| takes(bound, local.ip()));
        let listeners = self.ports.at(Protocol::Tcp, (host, local.port()));
        listeners.iter().find(is_it).copied()
    }

    /// Returns a port from which `ip` has no connection to that peer. The peer's own address is
    /// passed over, where Linux would connect the socket with itself. The port may have
    /// connections to other peers, provided that this host opened them: Linux's
    /// __inet_hash_connect().
    pub(super) fn free_port_to(
        &mut self,
        host: usize,
        ip: IpAddr,
        peer: SocketAddr,
    ) -> io::Result<u16> {
        let (ports, table, nat) = (&*self.ports, &*self.table, &*self.nat);
        let now = self.core.time.now();
        let has_connected = |id| table.tcp(id).is_some_and(|socket| socket.has_connected);
        self.core.hosts.free_port(host, |port| {
            let local = SocketAddr::new(ip, port);
            let key = connection(host, local, peer);
            let port = (host, port);
            local != peer
                && ports.at(Protocol::Tcp, port).is_empty()
                && nat.is_free(Protocol::Tcp, port, now)
                && !ports.connections.contains_key(&key)
                && ports.connections_from(port).all(has_connected)
        })
    }
}

/// Timers.
impl Network<'_> {
    /// Sets the deadline of the timer, before a segment is sent while nothing is under way, and
    /// leaves it out of the queue of events: see "What is no event" in `tcp`.
    pub(super) fn defer_timer(&mut self, id: u32) {
        let now = self.core.time.now();
        let socket = self.table.tcp_at(id);
        socket.timer.deadline = Some(now + socket.timeout(now));
        #[cfg(test)]
        if self.tcp.has_all_events {
            self.arm(id);
        }
    }

    /// Sets the timer, and puts it into the queue of events, if something has to be retransmitted
    /// unless it is acknowledged in time, or if a closed window has to be probed.
    pub(super) fn start_timer(&mut self, id: u32) {
        let socket = self.table.tcp(id);
        let Some(socket) = socket.filter(|socket| socket.timer.deadline.is_none()) else {
            return;
        };
        let is_under_way = socket.acked < socket.next || socket.is_opening();
        if is_under_way || self.must_probe(id) {
            self.defer_timer(id);
            self.arm(id);
        }
    }

    /// Returns whether a socket waits for its peer's window to open, and the peer is gone, or has
    /// announced more than has arrived; or it waits for a limited time only.
    pub(super) fn must_probe(&self, id: u32) -> bool {
        let Some(socket) = self.table.tcp(id) else {
            return false;
        };
        let is_blocked = socket.state == State::Connected
            && socket.acked == socket.next
            && socket.next < socket.end
            && socket.next >= socket.limit;
        if !is_blocked {
            return false; // The common case: no lookup of the peer is needed.
        }
        let is_limited = socket.base.options.user_timeout != 0;
        let answers = |peer: &&Socket| !self.core.links.partings.is_suspended(peer.base.host);
        let peer = self.peer_of(socket).filter(answers);
        is_limited || peer.is_none_or(|peer| peer.announced > socket.limit)
    }

    /// Returns the other end of a connection, if it is connected.
    pub(super) fn peer_of(&self, socket: &Socket) -> Option<&Socket> {
        let (host, address) = socket.peer?;
        let id = self.connected(host, address, socket.local)?;
        let peer = self.table.tcp(id);
        peer.filter(|peer| peer.state == State::Connected)
    }

    /// Notes that one end of a connection has gone. Its `peer`, the other end, may have to probe.
    pub(super) fn warn_peer(&mut self, local: SocketAddr, (host, address): (usize, SocketAddr)) {
        if let Some(id) = self.connected(host, address, local) {
            self.start_timer(id);
        }
    }

    /// Notes that a host is suspended: those that wait for it to read have to probe.
    pub(in crate::world) fn warn_peers(&mut self, host: usize) {
        for id in self.table.ids(host) {
            let ends = self.table.tcp(id).map(|socket| (socket.local, socket.peer));
            if let Some((local, Some(peer))) = ends {
                self.warn_peer(local, peer);
            }
        }
    }

    /// Lets the timers of a host go on where they were when it was suspended, `asleep` ago.
    pub(in crate::world) fn postpone_timers(&mut self, host: usize, asleep: u64) {
        let now = self.core.time.now();
        for id in self.table.ids(host) {
            let Some(socket) = self.table.tcp_mut(id) else {
                continue;
            };
            socket.postpone(asleep, now);
            let event = Event::Retransmit(id);
            socket.timer.arm(&mut self.core.events, event);
            if let Some(at) = socket.keepalive_at {
                self.core.events.push(at, Event::Keepalive(id));
            }
        }
    }

    /// Arms the timers that are deferred because a segment arrives before their deadlines: it does
    /// not, or not now.
    pub(crate) fn arm_all(&mut self, segment: &Segment) {
        self.arm(segment.from_id);
        self.arm(segment.cancels);
    }

    /// Puts a socket's timer into the queue of events, if it is deferred. The socket need not
    /// exist.
    pub(crate) fn arm(&mut self, id: u32) {
        if let Some(socket) = self.table.tcp_mut(id) {
            let event = Event::Retransmit(id);
            socket.timer.arm(&mut self.core.events, event);
        }
    }

    /// Returns whether this timer event of the socket still applies; if not, it is dropped.
    pub(crate) fn timer_is_due(&mut self, id: u32, at: u64) -> bool {
        // Segments that arrive at the same moment come after it.
        self.settle_by(id, at.saturating_sub(1));
        let Some(socket) = self.table.tcp_mut(id) else {
            return false;
        };
        if self.core.links.partings.is_suspended(socket.base.host) {
            // The timers of a machine that is suspended are armed when it resumes.
            socket.timer.event.take_if(|event| *event == at);
            return false;
        }
        let event = Event::Retransmit(id);
        socket.timer.is_due(at, &mut self.core.events, event)
    }
}

/// Plain acknowledgements.
impl Network<'_> {
    /// Returns whether an acknowledgement that this socket sends now is plain: its only effect is
    /// that the peer has nothing under way any more, which is not observable.
    pub(super) fn is_plain(&self, id: u32) -> bool {
        let Some(socket) = self.table.tcp(id) else {
            return false;
        };
        let Some(peer) = self.table.tcp(socket.peer_id) else {
            return false;
        };
        #[cfg(test)]
        if self.tcp.has_all_events {
            return false;
        }
        let ack = socket.acknowledgement();
        self.core.links.partings.are_none()
            && (peer.is_listed && peer.peer_id == id)
            && socket.peer.is_some_and(|(host, _)| host == peer.base.host) // No gateway is between.
            && [0, socket.peer_id].contains(&socket.peer_timer.1)
            && peer.state == State::Connected
            && peer.ack_under_way.is_none()
            && (peer.acked < ack && ack == peer.next && peer.next == peer.end)
            && !peer.wants_fin
            && peer.out.len() < BUFFER
    }

    /// Settles a plain acknowledgement that is under way to a socket: it has arrived, if its time
    /// has come; otherwise it becomes an event, as something else happens before. Returns the
    /// socket, if it is there.
    #[inline]
    pub(super) fn settle(&mut self, id: u32) -> Option<&mut Socket> {
        self.settle_by(id, self.core.time.now())
    }

    /// As [`settle`](Self::settle), before an event happens: an acknowledgement that is due at this
    /// very moment has not arrived yet, since it was sent later than what the event is about.
    #[inline]
    pub(super) fn settle_before(&mut self, id: u32) -> Option<&mut Socket> {
        self.settle_by(id, self.core.time.now().saturating_sub(1))
    }

    #[inline]
    fn settle_by(&mut self, id: u32, now: u64) -> Option<&mut Socket> {
        if self.table.tcp(id)?.ack_under_way.is_some() {
            self.settle_now(id, now);
        }
        self.table.tcp_mut(id)
    }

    #[inline(never)]
    fn settle_now(&mut self, id: u32, now: u64) {
        let socket = self.table.tcp_at(id);
        let Some(ack) = socket.ack_under_way.take() else {
            return;
        };
        if now < ack.at {
            if let Some(segment) = socket.segment_of(id, ack, &mut self.tcp.spare) {
                self.core.events.push(ack.at, Event::Segment(segment));
            }
            return;
        }
        socket.limit = socket.limit.max(ack.limit);
        socket.out.clear();
        socket.acked = socket.next;
        (socket.heard, socket.probes) = (ack.at, 0);
        socket.restart_timing();
        if let Some((_, sent)) = socket.timed.take() {
            socket.measure(ack.at - sent);
        }
        if self.core.report.trace.recording.is_some() {
            if let Some(segment) = socket.segment_of(id, ack, &mut self.tcp.spare) {
                self.core.message(|| segment.message(ack.at, false));
                self.tcp.spare.push(segment);
            }
        }
    }

    /// Settles all sockets: what has arrived by now, and was no event, has arrived then. Segments
    /// under way may be lost or held from now on.
    pub(crate) fn settle_all(&mut self) {
        for id in 0..self.table.next() {
            self.settle(id);
        }
    }

    /// Creates a segment of a socket, without bytes.
    pub(super) fn segment(&mut self, id: u32, flags: Flags) -> Option<Box<Segment>> {
        let socket = self.table.tcp_mut(id)?;
        socket.segment(id, flags, &mut self.tcp.spare)
    }
}
