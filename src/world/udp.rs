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
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::address::Address;
use super::errno::Errno;
use super::sockets::{Base, Inbox, OVERHEAD, Other};
use super::trace::{Message, What};
use super::{ERROR, Event, Kernel, NOBODY, READABLE, WRITABLE};

/// The size of a receiver's buffer: Linux's `rmem_default`.
const BUFFER: usize = 212_992;

/// The maximum of bytes in a datagram: an IPv4 packet without its headers; and the same for IPv6,
/// which does not count its own header.
const LONGEST: [usize; 2] = [65_507, 65_527];

/// The overhead of each datagram: the headers of UDP and IPv4.
const HEADERS: usize = 28;

#[derive(Debug)]
pub(super) struct Udp {
    pub(super) base: Base,
    pub(super) local: SocketAddr,
    peer: Option<(usize, SocketAddr)>,
    inbox: Inbox<SocketAddr>,
    error: Option<Errno>,
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
    fn note(&self) -> (usize, u16, u64, usize) {
        let digest = super::trace::digest(self.kind as u64, &self.bytes);
        (self.from.0, self.to.1.port(), digest, self.bytes.len())
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

impl Udp {
    pub(super) fn ready(&self) -> u8 {
        let mut ready = WRITABLE;
        if !self.inbox.queue.is_empty() {
            ready |= READABLE;
        }
        if self.error.is_some() {
            ready |= ERROR;
        }
        ready
    }

    pub(super) fn describe(&self) -> String {
        format!("{}, UDP, {}", self.local, self.inbox.describe())
    }

    pub(super) fn peer_address(&self) -> Option<SocketAddr> {
        let peer = self.peer.map(|(_, peer)| peer);
        peer.filter(|it| it.port() != 0)
    }

    pub(super) fn receive(
        &mut self,
        bytes: &mut [u8],
        keeps: bool,
    ) -> io::Result<(usize, Address)> {
        if let Some(error) = self.error.take() {
            return Err(error.into());
        }
        let received = self.inbox.receive(bytes, keeps);
        let (len, from, _) = received.ok_or(Errno::WouldBlock)?;
        Ok((len, Address::Internet(from)))
    }

    /// Returns how well the socket suits a datagram, or `None` if it does not take it: a connected
    /// socket comes before a bound address, and that before neither.
    fn suits(&self, from: SocketAddr, to: SocketAddr) -> Option<u8> {
        let ip = self.local.ip();
        let is_bound = ip == to.ip();
        let takes_all = ip.is_unspecified() && (ip.is_ipv6() || to.is_ipv4());
        // Linux's `compute_score`: a socket connected to port zero receives from all ports.
        let is_from = |peer: SocketAddr| {
            peer.ip() == from.ip() && (peer.port() == 0 || peer.port() == from.port())
        };
        let is_from_peer = self.peer.is_none_or(|(_, peer)| is_from(peer));
        let suits = (is_bound || takes_all) && is_from_peer;
        suits.then_some(2 * u8::from(self.peer.is_some()) + u8::from(is_bound))
    }
}

/// Returns whether an address is that of all hosts on the network, or of the loopback's broadcast.
fn is_broadcast(ip: IpAddr) -> bool {
    let all = [
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(10, 255, 255, 255),
        Ipv4Addr::new(127, 255, 255, 255),
    ];
    matches!(ip, IpAddr::V4(ip) if all.contains(&ip))
}

/// The user's calls.
impl Kernel {
    pub(super) fn udp_bind(&mut self, mut local: SocketAddr) -> io::Result<u32> {
        let (host, process) = self.here()?;
        let ip = local.ip();
        if !ip.is_unspecified() && self.host_at(host, local).0 != host {
            return Err(Errno::AddrNotAvailable.into());
        }
        if local.port() == 0 {
            local.set_port(self.free_udp_port(host)?);
        }
        let key = (host, local.port());
        let others = self.udp_ports.get(&key).into_iter().flatten();
        let mut others = others.filter_map(|id| match self.others.get(id) {
            Some(Other::Udp(it)) => Some(it.local.ip()),
            _ => None,
        });
        if others.any(|it| it == ip || it.is_unspecified() || ip.is_unspecified()) {
            return Err(Errno::AddrInUse.into());
        }
        let id = self.insert_other(Other::Udp(Udp {
            base: Base::new(host, Some(process)),
            local,
            peer: None,
            inbox: Inbox::new(),
            error: None,
        }));
        self.udp_ports.entry(key).or_default().push(id);
        Ok(id)
    }

    fn free_udp_port(&mut self, host: usize) -> io::Result<u16> {
        for _ in super::PORTS {
            let port = self.next_port(host);
            if !self.udp_ports.contains_key(&(host, port)) {
                return Ok(port);
            }
        }
        Err(Errno::AddrNotAvailable.into())
    }

    fn udp(&mut self, id: u32) -> io::Result<&mut Udp> {
        match self.others.get_mut(&id) {
            Some(Other::Udp(it)) => Ok(it),
            _ => Err(super::gone()),
        }
    }

    /// Returns the destination of a datagram from this socket to `address`, and its source address.
    fn udp_route(
        &mut self,
        id: u32,
        address: SocketAddr,
    ) -> io::Result<((usize, SocketAddr), SocketAddr)> {
        let socket = self.udp(id)?;
        let (host, mut local, allows) = (
            socket.base.host,
            socket.local,
            socket.base.options.broadcast,
        );
        if local.is_ipv4() && address.is_ipv6() {
            return Err(Errno::AddressFamily.into());
        }
        let mut address = address;
        if address.is_ipv4() && address.ip().is_unspecified() && !local.ip().is_unspecified() {
            // Linux's `ip_route_output`: a datagram to the unspecified address goes to the sender
            // itself.
            address.set_ip(local.ip());
        }
        let (to, address) = self.host_at(host, address);
        let is_near = address.ip().is_loopback();
        if local.ip().is_unspecified() {
            local.set_ip(match (is_near, address.is_ipv6()) {
                (true, false) => Ipv4Addr::LOCALHOST.into(),
                (true, true) => Ipv6Addr::LOCALHOST.into(),
                (false, is_v6) => self.hosts[host].address(is_v6),
            });
        } else if local.ip().is_loopback() && to != host {
            return Err(Errno::InvalidInput.into());
        }
        if is_broadcast(address.ip()) && !allows {
            return Err(Errno::PermissionDenied.into());
        }
        Ok(((to, address), local))
    }

    pub(super) fn udp_connect(&mut self, id: u32, address: SocketAddr) -> io::Result<()> {
        let (peer, local) = self.udp_route(id, address)?;
        let socket = self.udp(id)?;
        (socket.peer, socket.local) = (Some(peer), local);
        Ok(())
    }

    pub(super) fn udp_send(
        &mut self,
        id: u32,
        bytes: &[u8],
        to: Option<SocketAddr>,
    ) -> io::Result<usize> {
        let peer = self.udp(id)?.peer;
        if bytes.len() > usize::from(u16::MAX) {
            return Err(Errno::MessageSize.into());
        }
        if to.is_some_and(|it| it.port() == 0) {
            return Err(Errno::InvalidInput.into());
        }
        let (to, from) = match (to, peer) {
            (Some(to), _) => self.udp_route(id, to)?,
            // By the route that was found on connecting, regardless of the present options: Linux's
            // `sk_dst_check` in `udp_sendmsg`.
            (None, Some(peer)) => (peer, self.udp(id)?.local),
            (None, None) => return Err(Errno::DestinationRequired.into()),
        };
        if bytes.len() > LONGEST[usize::from(to.1.is_ipv6())] {
            return Err(Errno::MessageSize.into());
        }
        let socket = self.udp(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error.into());
        }
        let host = socket.base.host;
        self.count_datagram(host);
        let mut datagram = Datagram {
            from: (host, from),
            to,
            sent: self.now,
            bytes: bytes.to_vec(),
            kind: Kind::Data,
        };
        if !is_broadcast(to.1.ip()) {
            self.udp_transmit(datagram);
            return Ok(bytes.len());
        }
        datagram.kind = Kind::Broadcast;
        let all = if to.1.ip().is_loopback() {
            host..host + 1
        } else {
            0..self.hosts.len()
        };
        for to in all {
            datagram.to.0 = to;
            self.udp_transmit(datagram.clone());
        }
        Ok(bytes.len())
    }

    pub(super) fn udp_close(&mut self, id: u32) {
        // The port is the one that it was bound to, even after it was connected.
        let Ok(key) = self.udp(id).map(|it| (it.base.host, it.local.port())) else {
            return;
        };
        self.others.remove(&id);
        if let Some(others) = self.udp_ports.get_mut(&key) {
            others.retain(|it| *it != id);
            if others.is_empty() {
                self.udp_ports.remove(&key);
            }
        }
    }
}

/// Datagrams under way.
impl Kernel {
    fn udp_transmit(&mut self, datagram: Datagram) {
        let (from, to, len) = (
            datagram.from.0,
            datagram.to.0,
            HEADERS + datagram.bytes.len(),
        );
        let arrivals = (self.links).send_datagram((from, to), len, self.now, &mut self.faults);
        if arrivals == [None; 2] {
            return self.udp_lost(&datagram);
        }
        for at in arrivals.into_iter().flatten() {
            self.push(at, Event::Datagram(Box::new(datagram.clone())));
        }
    }

    pub(super) fn udp_lost(&mut self, datagram: &Datagram) {
        self.trace.message(|| datagram.message(self.now, true));
        let (from, port, digest, len) = datagram.note();
        self.note(
            datagram.to.0,
            What::DatagramLost {
                from,
                port,
                digest,
                len,
            },
        );
    }

    pub(super) fn udp_arrives(&mut self, datagram: Datagram) {
        if datagram.to.0 == NOBODY {
            return self.udp_lost(&datagram);
        }
        self.trace.message(|| datagram.message(self.now, false));
        let (from, port, digest, len) = datagram.note();
        let (host, local) = datagram.to;
        self.note(
            host,
            What::Datagram {
                from,
                port,
                digest,
                len,
            },
        );
        match (self.udp_at(host, datagram.from.1, local), datagram.kind) {
            (None, Kind::Data) => {
                let unreachable = Datagram {
                    from: datagram.to,
                    to: datagram.from,
                    sent: self.now,
                    bytes: Vec::new(),
                    kind: Kind::Unreachable,
                };
                self.udp_transmit(unreachable);
            }
            (None, _) => {}
            (Some(id), Kind::Unreachable) => self.udp_refused(id),
            (Some(id), _) => self.udp_received(id, datagram),
        }
    }

    /// Returns the socket that receives a datagram from `from` to `to`.
    fn udp_at(&self, host: usize, from: SocketAddr, to: SocketAddr) -> Option<u32> {
        let all = self.udp_ports.get(&(host, to.port()))?;
        let suits = |id: &u32| match self.others.get(id) {
            Some(Other::Udp(it)) => it.suits(from, to),
            _ => None,
        };
        let suiting = all.iter().filter_map(|id| Some((suits(id)?, *id)));
        suiting.max_by_key(|(how, _)| *how).map(|(_, id)| id)
    }

    fn udp_refused(&mut self, id: u32) {
        if let Ok(socket) = self.udp(id) {
            // An unconnected socket is not notified.
            if socket.peer.is_some() {
                socket.error = Some(Errno::ConnectionRefused);
                self.raise(id, READABLE | WRITABLE | ERROR);
            }
        }
    }

    fn udp_received(&mut self, id: u32, datagram: Datagram) {
        let Ok(socket) = self.udp(id) else {
            return;
        };
        // The buffer is full when it exceeds its size: one datagram always fits.
        if socket.inbox.size > BUFFER.saturating_sub(OVERHEAD) {
            return self.udp_lost(&datagram);
        }
        socket.inbox.push(datagram.from.1, datagram.bytes);
        self.raise(id, READABLE);
    }
}
