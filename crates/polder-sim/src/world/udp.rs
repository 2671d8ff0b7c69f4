//! UDP: independent datagrams.
//!
//! A datagram arrives, or it is lost: on its way ([`link`](super::link)), because its host does not
//! exist and so cannot refuse it, or because the receiver's buffer is full. If no socket of a host
//! receives at the port, the host reports that to the sender: its next call fails if it is
//! connected to that peer. Sending never waits, as the buffer of a real network card is not
//! simulated.
//!
//! There is no multicast, and no fragmentation.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::address::{self, Address};
use super::core::Core;
use super::errno::Errno;
use super::event_queue::Event;
use super::hosts::{Hosts, NOBODY};
use super::inbox::{Inbox, OVERHEAD};
use super::nat::{Effect, Route};
use super::ports::{Protocol, takes};
use super::sockets::Network;
use super::table::{Base, Socket as Any};
use super::trace::{Fact, Message, digest};
use super::{ERROR, READABLE, WRITABLE, when};

/// The size of a receiver's buffer: Linux's `rmem_default`.
const BUFFER: usize = 212_992;

/// The maximum of bytes in a datagram: an IPv4 packet without its headers; and the same for IPv6,
/// which does not count its own header.
const LONGEST: [usize; 2] = [65_507, 65_527];

/// The overhead of each datagram: the headers of UDP and IPv4.
const HEADERS: usize = 28;

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) base: Base,
    pub(super) local: SocketAddr,
    peer: Option<(usize, SocketAddr)>,
    inbox: Inbox<SocketAddr>,
}

#[derive(Clone, Debug)]
pub(super) struct Datagram {
    pub(super) from: (usize, SocketAddr),
    pub(super) to: (usize, SocketAddr),
    /// The time at which it was sent.
    sent: u64,
    bytes: Vec<u8>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Data,
    Broadcast,
    /// No socket receives at `from` (ICMP's "port unreachable").
    Unreachable,
}

impl Datagram {
    /// Returns the hosts that it goes from and to.
    pub(super) fn way(&self) -> (usize, usize) {
        (self.from.0, self.to.0)
    }

    /// Returns the event that it arrives, or is lost.
    fn event(&self, kind: impl FnOnce(usize, u16, u64, usize) -> Fact) -> Fact {
        let digest = digest(self.kind as u64, &self.bytes);
        kind(self.from.0, self.to.1.port(), digest, self.bytes.len())
    }

    fn message(&self, at: u64, is_lost: bool) -> Message {
        Message {
            sent: self.sent,
            at,
            from: self.from.0,
            to: self.to.0,
            name: match self.kind {
                Kind::Data => "datagram",
                Kind::Broadcast => "broadcast",
                Kind::Unreachable => "unreachable",
            },
            seq: 0,
            len: self.bytes.len(),
            is_lost,
        }
    }
}

impl Socket {
    /// Returns the destination of a datagram from this socket to `address`, and its source address.
    fn route(
        &self,
        mut address: SocketAddr,
        hosts: &Hosts,
    ) -> io::Result<((usize, SocketAddr), SocketAddr)> {
        let (host, mut local) = (self.base.host, self.local);
        address.set_ip(address.ip().to_canonical());
        if !self.base.is_v6 && address.is_ipv6() {
            return Err(Errno::AFNOSUPPORT.into());
        }
        if address.is_ipv4() && address.ip().is_unspecified() && !local.ip().is_unspecified() {
            // Linux's `ip_route_output`: a datagram to the unspecified address goes to the sender
            // itself.
            address.set_ip(local.ip());
        }
        let (to, address) = hosts.locate(host, address);
        if is_broadcast(address.ip()) && !self.base.options.broadcast {
            return Err(Errno::ACCESS.into());
        }
        if local.ip().is_unspecified() {
            local.set_ip(hosts.source(host, (to, address.ip())));
        } else if local.ip().is_loopback() && to != host {
            return Err(Errno::INVAL.into());
        }
        Ok(((to, address), local))
    }

    /// Returns the datagram that it sends.
    fn datagram(
        &mut self,
        bytes: &[u8],
        to: Option<SocketAddr>,
        core: &mut Core,
    ) -> io::Result<Datagram> {
        if bytes.len() > usize::from(u16::MAX) {
            return Err(Errno::MSGSIZE.into());
        }
        if to.is_some_and(|to| to.port() == 0) {
            return Err(Errno::INVAL.into());
        }
        let (to, from) = match (to, self.peer) {
            (Some(to), _) => self.route(to, &core.hosts)?,
            // By the route that was found on connecting, regardless of the present options: Linux's
            // `sk_dst_check` in `udp_sendmsg`.
            (None, Some(peer)) => (peer, self.local),
            (None, None) => return Err(Errno::DESTADDRREQ.into()),
        };
        if bytes.len() > LONGEST[usize::from(to.1.is_ipv6())] {
            return Err(Errno::MSGSIZE.into());
        }
        self.base.take_error()?;
        core.count_datagram(self.base.host);
        Ok(Datagram {
            from: (self.base.host, from),
            to,
            sent: core.time.now(),
            bytes: bytes.to_vec(),
            kind: Kind::Data,
        })
    }

    /// Returns how well the socket suits a datagram, or `None` if it does not take it: a connected
    /// socket comes before a bound address, and that before neither.
    fn suits(&self, from: SocketAddr, to: SocketAddr) -> Option<u8> {
        let ip = self.local.ip();
        let is_bound = ip == to.ip();
        // Linux's `compute_score`: a socket connected to port zero receives from all ports.
        let is_from = |peer: SocketAddr| {
            peer.ip() == from.ip() && (peer.port() == 0 || peer.port() == from.port())
        };
        let is_from_peer = self.peer.is_none_or(|(_, peer)| is_from(peer));
        let suits = takes(ip, to.ip()) && is_from_peer;
        suits.then_some(2 * u8::from(self.peer.is_some()) + u8::from(is_bound))
    }
}

/// The user's calls.
impl Socket {
    pub(super) fn ready(&self) -> u8 {
        WRITABLE
            | when(READABLE, !self.inbox.queue.is_empty())
            | when(ERROR, self.base.error.is_some())
    }

    pub(super) fn describe(&self) -> String {
        let (inbox, waits) = (self.inbox.describe(), self.base.waits());
        format!("{}, UDP, {inbox}{waits}", self.local)
    }

    pub(super) fn peer_address(&self) -> Option<SocketAddr> {
        let peer = self.peer.map(|(_, peer)| peer);
        peer.filter(|peer| peer.port() != 0)
    }

    pub(super) fn set_peer(&mut self, peer: &Address, hosts: &Hosts) -> io::Result<()> {
        let (peer, local) = self.route(address::internet(peer)?, hosts)?;
        (self.peer, self.local) = (Some(peer), local);
        Ok(())
    }

    /// Receives a datagram: its length, its sender, and whether it was longer than the buffer.
    pub(super) fn receive(
        &mut self,
        bytes: &mut [u8],
        peeks: bool,
    ) -> io::Result<(usize, Address, bool)> {
        self.base.take_error()?;
        let (len, from, size) = self.inbox.receive(bytes, peeks)?;
        Ok((len, self.base.shown(from), size > len + OVERHEAD))
    }

    pub(super) fn send(
        &mut self,
        bytes: &[u8],
        to: Option<&Address>,
        core: &mut Core,
    ) -> io::Result<usize> {
        let to = to.map(address::internet).transpose()?;
        let host = self.base.host;
        if !core.count_sent(host, bytes.len()) {
            return Ok(bytes.len()); // It is lost, and the run ends.
        }
        let mut datagram = self.datagram(bytes, to, core)?;
        let to = datagram.to.1.ip();
        if !is_broadcast(to) {
            transmit(datagram, core);
            return Ok(bytes.len());
        }
        datagram.kind = Kind::Broadcast;
        let all = if to.is_loopback() {
            host..host + 1
        } else {
            0..core.hosts.count()
        };
        for to in all {
            if core.hosts.next_hop(host, to) == to {
                datagram.to.0 = to;
                transmit(datagram.clone(), core);
            }
        }
        Ok(bytes.len())
    }
}

/// Returns whether an address is that of all hosts on the network, or of the loopback's broadcast.
pub(super) fn is_broadcast(ip: IpAddr) -> bool {
    let all = [
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(10, 255, 255, 255),
        Ipv4Addr::new(127, 255, 255, 255),
    ];
    matches!(ip, IpAddr::V4(ip) if all.contains(&ip))
}

/// Sends a datagram, which is then under way or lost.
fn transmit(datagram: Datagram, core: &mut Core) {
    let (way, now) = (datagram.way(), core.time.now());
    let len = HEADERS + datagram.bytes.len();
    let arrivals = (core.links).send_datagram(way, len, now, &mut core.faults);
    if arrivals == [None; 2] {
        return lose(&datagram, core);
    }
    for at in arrivals.into_iter().flatten() {
        let datagram = Box::new(datagram.clone());
        core.events.push(at, Event::Datagram(datagram));
    }
}

/// Notes that a datagram is lost.
pub(super) fn lose(datagram: &Datagram, core: &mut Core) {
    let now = core.time.now();
    core.message(|| datagram.message(now, true));
    core.note(datagram.to.0, datagram.event(Fact::DatagramLost));
}

/// Sockets by their ports, and datagrams that have come.
impl Network<'_> {
    pub(crate) fn bind_udp(&mut self, local: SocketAddr) -> io::Result<u32> {
        self.bind(Protocol::Udp, local, |base, local| {
            Any::Udp(Box::new(Socket {
                base,
                local,
                peer: None,
                inbox: Inbox::default(),
            }))
        })
    }

    pub(super) fn close_udp(&mut self, id: u32) {
        if let Some(Any::Udp(socket)) = self.table.remove(id) {
            // The port is the one that it was bound to, even after it was connected.
            let port = (socket.base.host, socket.local.port());
            self.ports.remove(Protocol::Udp, port, id);
        }
    }

    pub(super) fn datagram_arrives(&mut self, mut datagram: Datagram) {
        if datagram.to.0 == NOBODY {
            return lose(&datagram, self.core);
        }
        let now = self.core.time.now();
        self.core.message(|| datagram.message(now, false));
        let (host, local) = datagram.to;
        self.core.note(host, datagram.event(Fact::Datagram));
        if self.core.hosts.have_gateways() && datagram.kind != Kind::Broadcast {
            match self.forward_datagram(datagram) {
                Some(own) => datagram = own,
                None => return,
            }
        }
        let id = self.recipient_of_datagram(host, datagram.from.1, local);
        let recipient = id.and_then(|id| Some((id, self.table.udp(id).ok()?)));
        match (recipient, datagram.kind) {
            (None, Kind::Data) => {
                let unreachable = Datagram {
                    from: datagram.to,
                    to: datagram.from,
                    sent: now,
                    bytes: Vec::new(),
                    kind: Kind::Unreachable,
                };
                transmit(unreachable, self.core);
            }
            (None, _) => {}
            (Some((id, socket)), Kind::Unreachable) => {
                // An unconnected socket is not notified.
                if socket.peer.is_some() {
                    socket.base.error = Some(Errno::CONNREFUSED);
                    let ready = READABLE | WRITABLE | ERROR;
                    self.core.raise(id, &mut socket.base, ready);
                }
            }
            // The buffer is full when it exceeds its size: one datagram always fits.
            (Some((_, socket)), _) if socket.inbox.size > BUFFER.saturating_sub(OVERHEAD) => {
                lose(&datagram, self.core);
            }
            (Some((id, socket)), _) => {
                socket.inbox.push(datagram.from.1, datagram.bytes);
                self.core.raise(id, &mut socket.base, READABLE);
            }
        }
    }

    /// Forwards a datagram, if it has arrived at a gateway. Returns it if it is for the host
    /// itself.
    fn forward_datagram(&mut self, mut datagram: Datagram) -> Option<Datagram> {
        let effect = match datagram.kind {
            Kind::Unreachable => Effect::Icmp,
            Kind::Data | Kind::Broadcast => Effect::Other,
        };
        let (from, to) = (datagram.from, datagram.to);
        let message = (Protocol::Udp, effect);
        match self.nat.route(message, from, to, self.core, self.ports) {
            Route::Here => return Some(datagram),
            Route::Lost => lose(&datagram, self.core),
            Route::On(from, to, _) => {
                (datagram.from, datagram.to) = (from, to);
                datagram.sent = self.core.time.now();
                transmit(datagram, self.core);
            }
        }
        None
    }

    /// Returns the socket that receives a datagram from `from` to `to`.
    fn recipient_of_datagram(
        &mut self,
        host: usize,
        from: SocketAddr,
        to: SocketAddr,
    ) -> Option<u32> {
        let all = self.ports.at(Protocol::Udp, (host, to.port())).iter();
        let mut suits = |id: u32| self.table.udp(id).ok()?.suits(from, to);
        let suiting = all.filter_map(|id| Some((suits(*id)?, *id)));
        suiting.max_by_key(|(how, _)| *how).map(|(_, id)| id)
    }
}
