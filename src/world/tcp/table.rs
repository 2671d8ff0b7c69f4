//! [`Table`]: the TCP sockets of a world, by number, by host and by addresses; their ports; and
//! their timers, as far as these depend on the other end.
//!
//! An arriving segment finds its socket here. A socket that has ended for its user stays in the
//! table as long as segments may come for it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::BUFFER;
use super::segment::{Segment, Spare};
use super::socket::{Socket, State};
use crate::world::core::Core;
use crate::world::errno::Errno;
use crate::world::event_queue::Event;
use crate::world::gone;
use crate::world::hosts::Hosts;
use crate::world::trace::Flags;

#[derive(Debug, Default)]
pub(crate) struct Table {
    /// By number; `None` for numbers of sockets that are gone, or are of other protocols.
    sockets: Vec<Option<Box<Socket>>>,
    /// The numbers of each host's sockets.
    hosts: BTreeMap<usize, BTreeSet<u32>>,
    connections: BTreeMap<(usize, SocketAddr, SocketAddr), u32>,
    listeners: BTreeMap<(usize, u16), Vec<u32>>,
    pub(super) spare: Spare,
    /// Whether the queue of events also has those that could be left out of it: see `tcp`.
    #[cfg(test)]
    pub(crate) has_all_events: bool,
}

impl Table {
    #[inline]
    pub(crate) fn find(&self, id: u32) -> Option<&Socket> {
        self.sockets.get(id as usize)?.as_deref()
    }

    #[inline]
    pub(super) fn find_mut(&mut self, id: u32) -> Option<&mut Socket> {
        self.sockets.get_mut(id as usize)?.as_deref_mut()
    }

    /// Returns a socket that must be there.
    #[inline]
    pub(super) fn at(&mut self, id: u32) -> &mut Socket {
        self.find_mut(id).expect("the socket is there")
    }

    pub(crate) fn get(&mut self, id: u32) -> io::Result<&mut Socket> {
        self.find_mut(id).ok_or_else(gone)
    }

    /// Returns the numbers of a host's sockets, in their order.
    pub(super) fn ids(&self, host: usize) -> Vec<u32> {
        self.hosts
            .get(&host)
            .into_iter()
            .flatten()
            .copied()
            .collect()
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> impl Iterator<Item = &Socket> {
        self.sockets.iter().flatten().map(|socket| &**socket)
    }

    /// Inserts a listener, or an end of a connection, which segments then find. Returns its number.
    pub(super) fn insert(&mut self, socket: Socket, core: &mut Core) -> u32 {
        let id = core.take_socket_number();
        let (host, local, peer) = (socket.base.host, socket.local, socket.peer);
        self.hosts.entry(host).or_default().insert(id);
        self.sockets.resize_with(id as usize, || None);
        self.sockets.push(Some(Box::new(socket)));
        match peer {
            Some((_, peer)) => self.list((host, local, peer), id, core),
            None => {
                let key = (host, local.port());
                self.listeners.entry(key).or_default().push(id);
            }
        }
        id
    }

    /// Adds a socket to the connections, so that arriving segments find it.
    fn list(&mut self, key: (usize, SocketAddr, SocketAddr), id: u32, core: &mut Core) {
        if let Some(before) = self.connections.insert(key, id) {
            self.settle(before, core);
            if let Some(other) = self.find_mut(before) {
                other.is_listed = false;
            }
        }
        if let Some(socket) = self.find_mut(id) {
            socket.is_listed = true;
        }
    }

    /// Forgets a socket.
    pub(super) fn remove(&mut self, id: u32, core: &mut Core) {
        self.settle(id, core);
        let Some(socket) = self.sockets[id as usize].take() else {
            return;
        };
        let host = socket.base.host;
        self.hosts.entry(host).or_default().remove(&id);
        self.disconnect(id, host, socket.local, socket.peer, core);
        self.arm(socket.peer_timer.1, core);
        if let State::Accepting(listener) = socket.state {
            if let Some(listener) = self.find_mut(listener) {
                listener.opening -= 1;
            }
        }
    }

    /// Removes a socket from the connections, so that arriving segments no longer find it. (A new
    /// connection of the same addresses may have taken its place.)
    pub(super) fn disconnect(
        &mut self,
        id: u32,
        host: usize,
        local: SocketAddr,
        peer: Option<(usize, SocketAddr)>,
        core: &mut Core,
    ) {
        let Some(peer) = peer else {
            return;
        };
        let key = (host, local, peer.1);
        if self.connections.get(&key) == Some(&id) {
            self.connections.remove(&key);
            if let Some(socket) = self.find_mut(id) {
                socket.is_listed = false;
            }
            self.warn_peer(local, peer, core);
        }
    }

    /// Removes a listener. Returns the connections that are being opened for it, and are not in its
    /// queue.
    pub(super) fn remove_listener(
        &mut self,
        id: u32,
        (host, port): (usize, u16),
        core: &mut Core,
    ) -> Vec<u32> {
        if let Some(others) = self.listeners.get_mut(&(host, port)) {
            others.retain(|other| *other != id);
            if others.is_empty() {
                self.listeners.remove(&(host, port));
            }
        }
        self.remove(id, core);
        let opening = |other: &u32| {
            let state = self.find(*other).map(|socket| socket.state);
            state == Some(State::Accepting(id))
        };
        self.ids(host).into_iter().filter(opening).collect()
    }

    /// Forgets a host's sockets without sending anything: its power is off.
    pub(crate) fn forget_all(&mut self, host: usize, core: &mut Core) {
        let mut gone = Vec::new();
        for id in self.hosts.remove(&host).unwrap_or_default() {
            self.settle(id, core);
            let Some(socket) = self.sockets[id as usize].take() else {
                continue;
            };
            self.listeners.remove(&(host, socket.local.port()));
            if let Some(peer) = socket.peer {
                self.connections.remove(&(host, socket.local, peer.1));
                gone.push((socket.local, peer));
            }
            self.arm(socket.peer_timer.1, core);
        }
        for (local, peer) in gone {
            self.warn_peer(local, peer, core);
        }
    }

    /// Returns the socket that a segment is for.
    pub(super) fn recipient(&self, segment: &Segment) -> Option<u32> {
        let (host, local) = segment.to;
        // Numbers are not reused, so two sockets that know each other's belong to one connection.
        let is_it = self.find(segment.to_id).is_some_and(|socket| {
            let is_known = segment.from_id != 0 && socket.peer_id == segment.from_id;
            let ends = (socket.base.host, socket.local, socket.peer);
            socket.is_listed && (is_known || ends == (host, local, Some(segment.from)))
        });
        if is_it {
            return Some(segment.to_id);
        }
        let key = (host, local, segment.from.1);
        self.connections.get(&key).copied()
    }

    pub(super) fn listener_at(&self, host: usize, local: SocketAddr) -> Option<u32> {
        let listeners = self.listeners.get(&(host, local.port()))?;
        let takes = |id: &&u32| {
            let at = self.find(**id).map(|socket| socket.local.ip());
            at.is_some_and(|at| {
                at == local.ip() || at.is_unspecified() && (at.is_ipv6() || local.is_ipv4())
            })
        };
        listeners.iter().find(takes).copied()
    }

    /// Returns the address of a listener that is bound to `local`.
    pub(super) fn bind(
        &self,
        host: usize,
        mut local: SocketAddr,
        hosts: &mut Hosts,
    ) -> io::Result<SocketAddr> {
        let ip = local.ip();
        if !hosts.may_bind(host, local) {
            return Err(Errno::ADDRNOTAVAIL.into());
        }
        if local.port() == 0 {
            local.set_port(hosts.free_port(host, |hosts, port| {
                !self.listeners.contains_key(&(host, port))
                    && !self.is_connected_from(host, port, hosts, |_| true)
            })?);
        }
        let others = self.listeners.get(&(host, local.port()));
        let is_taken = others.into_iter().flatten().any(|id| {
            let other = self.find(*id).map(|socket| socket.local.ip());
            other.is_some_and(|other| other == ip || other.is_unspecified() || ip.is_unspecified())
        });
        if is_taken {
            Err(Errno::ADDRINUSE.into())
        } else {
            Ok(local)
        }
    }

    /// Returns a port from which `ip` has no connection to that peer. The port may have connections
    /// to other peers, provided that this host opened them: Linux's __inet_hash_connect().
    pub(super) fn free_port_to(
        &self,
        host: usize,
        ip: IpAddr,
        peer: SocketAddr,
        hosts: &mut Hosts,
    ) -> io::Result<u16> {
        hosts.free_port(host, |hosts, port| {
            let key = (host, SocketAddr::new(ip, port), peer);
            !self.listeners.contains_key(&(host, port))
                && !self.connections.contains_key(&key)
                && !self.is_connected_from(host, port, hosts, |socket| !socket.has_connected)
        })
    }

    /// Returns whether there is a connection from a port for which `counts` is true.
    fn is_connected_from(
        &self,
        host: usize,
        port: u16,
        hosts: &Hosts,
        counts: fn(&Socket) -> bool,
    ) -> bool {
        let least = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let ips = [
            hosts.address(host, false),
            hosts.address(host, true),
            Ipv4Addr::LOCALHOST.into(),
            Ipv6Addr::LOCALHOST.into(),
        ];
        ips.into_iter().any(|ip| {
            let local = SocketAddr::new(ip, port);
            let from = self.connections.range((host, local, least)..);
            let mut from =
                from.take_while(|((at, address, _), _)| (*at, *address) == (host, local));
            from.any(|(_, id)| self.find(*id).is_some_and(counts))
        })
    }
}

/// Timers.
impl Table {
    /// Sets the timer, before a segment is sent while nothing is under way, and leaves it out of
    /// the queue of events: see the documentation of `tcp`.
    pub(super) fn set_timer(&mut self, id: u32, core: &mut Core) {
        let now = core.time.now();
        if let Some(socket) = self.find_mut(id) {
            socket.timer = Some(now + socket.timeout(now));
        }
        #[cfg(test)]
        if self.has_all_events {
            self.arm(id, core);
        }
    }

    /// Starts the timer, if something has to be retransmitted unless it is acknowledged in time, or
    /// if a closed window has to be probed.
    pub(super) fn start_timer(&mut self, id: u32, core: &mut Core) {
        let Some(socket) = self.find(id).filter(|socket| socket.timer.is_none()) else {
            return;
        };
        let is_under_way = socket.acked < socket.next || socket.is_opening();
        if is_under_way || self.must_probe(id) {
            let now = core.time.now();
            if let Some(socket) = self.find_mut(id) {
                socket.timer = Some(now + socket.timeout(now));
                socket.arm(id, &mut core.events);
            }
        }
    }

    /// Returns whether a socket waits for its peer's window to open, and the peer is gone, or has
    /// announced more than has arrived; or it waits for a limited time only.
    pub(super) fn must_probe(&self, id: u32) -> bool {
        let Some(socket) = self.find(id) else {
            return false;
        };
        let is_blocked = socket.state == State::Connected
            && socket.acked == socket.next
            && socket.next < socket.end()
            && socket.next >= socket.limit;
        if !is_blocked {
            return false; // The common case: no lookup of the peer is needed.
        }
        let is_limited = socket.base.options.user_timeout != 0;
        let peer = self.peer_of(socket);
        is_limited || peer.is_none_or(|peer| peer.announced > socket.limit)
    }

    /// Returns the other end of a connection, if it is connected.
    pub(super) fn peer_of(&self, socket: &Socket) -> Option<&Socket> {
        let (host, address) = socket.peer?;
        let id = self.connections.get(&(host, address, socket.local))?;
        let peer = self.find(*id);
        peer.filter(|peer| peer.state == State::Connected)
    }

    /// Notes that one end of a connection has gone. Its `peer`, the other end, may have to probe.
    pub(super) fn warn_peer(
        &mut self,
        local: SocketAddr,
        (host, address): (usize, SocketAddr),
        core: &mut Core,
    ) {
        if let Some(id) = self.connections.get(&(host, address, local)).copied() {
            self.start_timer(id, core);
        }
    }

    /// Arms the timers that are only set because a segment arrives before their deadlines.
    pub(crate) fn arm_all(&mut self, timers: [u32; 2], core: &mut Core) {
        timers.into_iter().for_each(|id| self.arm(id, core));
    }

    /// Puts a socket's timer into the queue of events, if it is set. The socket need not exist.
    pub(crate) fn arm(&mut self, id: u32, core: &mut Core) {
        if let Some(socket) = self.find_mut(id) {
            socket.arm(id, &mut core.events);
        }
    }

    /// Returns whether this timer event of the socket still applies; if not, it is dropped.
    pub(crate) fn is_due(&mut self, id: u32, at: u64, core: &mut Core) -> bool {
        // Segments that arrive at the same moment come after it.
        let socket = self.settle_by(id, at.saturating_sub(1), core);
        let Some(socket) = socket.filter(|socket| socket.timer_event == Some(at)) else {
            return false;
        };
        socket.timer_event = None;
        let is_due = socket.timer == Some(at);
        if !is_due {
            socket.arm(id, &mut core.events);
        }
        is_due
    }
}

/// Plain acknowledgements.
impl Table {
    /// Returns whether an acknowledgement that this socket sends now is plain: its only effect is
    /// that the peer has nothing under way any more, which is not observable.
    pub(super) fn is_plain(&self, id: u32, core: &Core) -> bool {
        let Some(socket) = self.find(id) else {
            return false;
        };
        let Some(peer) = self.find(socket.peer_id) else {
            return false;
        };
        #[cfg(test)]
        if self.has_all_events {
            return false;
        }
        let ack = socket.acknowledgement();
        core.links.partings.are_none()
            && (peer.is_listed && peer.peer_id == id)
            && [0, socket.peer_id].contains(&socket.peer_timer.1)
            && peer.state == State::Connected
            && peer.ack_under_way.is_none()
            && (peer.acked < ack && ack == peer.next && peer.next == peer.end())
            && !peer.wants_fin
            && peer.out.len() < BUFFER
    }

    /// Settles a plain acknowledgement that is under way to a socket: it has arrived, if its time
    /// has come; otherwise it becomes an event, as something else happens before. Returns the
    /// socket, if it is there.
    #[inline]
    pub(super) fn settle(&mut self, id: u32, core: &mut Core) -> Option<&mut Socket> {
        self.settle_by(id, core.time.now(), core)
    }

    /// As [`settle`](Self::settle), before an event. Another segment that arrives at the same
    /// moment was sent later, and comes after the event.
    #[inline]
    pub(super) fn settle_before(&mut self, id: u32, core: &mut Core) -> Option<&mut Socket> {
        self.settle_by(id, core.time.now().saturating_sub(1), core)
    }

    #[inline]
    fn settle_by(&mut self, id: u32, now: u64, core: &mut Core) -> Option<&mut Socket> {
        if self.find(id)?.ack_under_way.is_some() {
            self.settle_now(id, now, core);
        }
        self.find_mut(id)
    }

    #[inline(never)]
    fn settle_now(&mut self, id: u32, now: u64, core: &mut Core) {
        let Some(socket) = self.sockets[id as usize].as_deref_mut() else {
            return;
        };
        let Some(ack) = socket.ack_under_way.take() else {
            return;
        };
        if now < ack.at {
            if let Some(segment) = socket.segment_of(id, ack, &mut self.spare) {
                core.events.push(ack.at, Event::Segment(segment));
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
        if core.report.trace.recording.is_some() {
            if let Some(segment) = socket.segment_of(id, ack, &mut self.spare) {
                core.report.trace.message(|| segment.message(ack.at, false));
                self.spare.push(segment);
            }
        }
    }

    /// Settles all sockets, as segments under way may be lost or held from now on.
    pub(crate) fn settle_all(&mut self, core: &mut Core) {
        for id in 0..self.sockets.len() {
            self.settle(id as u32, core);
        }
    }

    /// Creates a segment of a socket, without bytes.
    pub(super) fn segment(&mut self, id: u32, flags: Flags) -> Option<Box<Segment>> {
        let socket = self.sockets.get_mut(id as usize)?.as_deref_mut()?;
        socket.segment(id, flags, &mut self.spare)
    }
}
