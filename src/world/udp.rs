//! UDP: independent datagrams.
//!
//! A datagram arrives, or it is lost: on its way ([`link`](super::link)), because its host does not
//! exist and so cannot refuse it, or because the receiver's buffer is full. If no socket of a host
//! receives at the port, the host reports that to the sender: its next call fails if it is
//! connected to that peer. Sending never waits, as the buffer of a real network card is not
//! simulated.
//!
//! There is no multicast, and no fragmentation.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::address::Address;
use super::core::Core;
use super::errno::Errno;
use super::event_queue::Event;
use super::hosts::{Hosts, NOBODY};
use super::sockets::{Base, Inbox, OVERHEAD, Protocol};
use super::trace::{Message, What, digest};
use super::{ERROR, READABLE, WRITABLE, gone};

/// The size of a receiver's buffer: Linux's `rmem_default`.
const BUFFER: usize = 212_992;

/// The maximum of bytes in a datagram: an IPv4 packet without its headers; and the same for IPv6,
/// which does not count its own header.
const LONGEST: [usize; 2] = [65_507, 65_527];

/// The overhead of each datagram: the headers of UDP and IPv4.
const HEADERS: usize = 28;

/// All UDP sockets of a world.
#[derive(Debug, Default)]
pub(super) struct Udp {
    sockets: BTreeMap<u32, Socket>,
    /// The sockets that are bound to each port of a host.
    ports: BTreeMap<(usize, u16), Vec<u32>>,
}

#[derive(Debug)]
pub(super) struct Socket {
    base: Base,
    local: SocketAddr,
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
        let digest = digest(self.kind as u64, &self.bytes);
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

impl Socket {
    /// Returns the destination of a datagram from this socket to `address`, and its source address.
    fn route(
        &self,
        mut address: SocketAddr,
        hosts: &Hosts,
    ) -> io::Result<((usize, SocketAddr), SocketAddr)> {
        let (host, mut local) = (self.base.host, self.local);
        if local.is_ipv4() && address.is_ipv6() {
            return Err(Errno::AFNOSUPPORT.into());
        }
        if address.is_ipv4() && address.ip().is_unspecified() && !local.ip().is_unspecified() {
            // Linux's `ip_route_output`: a datagram to the unspecified address goes to the sender
            // itself.
            address.set_ip(local.ip());
        }
        let (to, address) = hosts.locate(host, address);
        let is_near = address.ip().is_loopback();
        if local.ip().is_unspecified() {
            local.set_ip(match (is_near, address.is_ipv6()) {
                (true, false) => Ipv4Addr::LOCALHOST.into(),
                (true, true) => Ipv6Addr::LOCALHOST.into(),
                (false, is_v6) => hosts.address(host, is_v6),
            });
        } else if local.ip().is_loopback() && to != host {
            return Err(Errno::INVAL.into());
        }
        if is_broadcast(address.ip()) && !self.base.options.broadcast {
            return Err(Errno::ACCESS.into());
        }
        Ok(((to, address), local))
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

impl Udp {
    pub(super) fn find(&self, number: u32) -> io::Result<&Socket> {
        self.sockets.get(&number).ok_or_else(gone)
    }

    fn get(&mut self, number: u32) -> io::Result<&mut Socket> {
        self.sockets.get_mut(&number).ok_or_else(gone)
    }

    pub(super) fn bind(&mut self, mut local: SocketAddr, core: &mut Core) -> io::Result<u32> {
        let (host, process) = core.processes.here()?;
        if !core.hosts.may_bind(host, local) {
            return Err(Errno::ADDRNOTAVAIL.into());
        }
        if local.port() == 0 {
            let is_free = |port| !self.ports.contains_key(&(host, port));
            local.set_port((core.hosts).free_port(host, |_, port| is_free(port))?);
        }
        let (ip, key) = (local.ip(), (host, local.port()));
        let others = self.ports.get(&key).into_iter().flatten();
        let mut others = others.filter_map(|id| Some(self.sockets.get(id)?.local.ip()));
        if others.any(|other| other == ip || other.is_unspecified() || ip.is_unspecified()) {
            return Err(Errno::ADDRINUSE.into());
        }
        let id = core.take_socket_number();
        let socket = Socket {
            base: Base::new(host, Some(process)),
            local,
            peer: None,
            inbox: Inbox::default(),
            error: None,
        };
        self.sockets.insert(id, socket);
        self.ports.entry(key).or_default().push(id);
        Ok(id)
    }

    /// Returns the datagram that a socket sends.
    fn datagram(
        &mut self,
        id: u32,
        bytes: &[u8],
        to: Option<SocketAddr>,
        core: &mut Core,
    ) -> io::Result<Datagram> {
        let socket = self.get(id)?;
        if bytes.len() > usize::from(u16::MAX) {
            return Err(Errno::MSGSIZE.into());
        }
        if to.is_some_and(|to| to.port() == 0) {
            return Err(Errno::INVAL.into());
        }
        let (to, from) = match (to, socket.peer) {
            (Some(to), _) => socket.route(to, &core.hosts)?,
            // By the route that was found on connecting, regardless of the present options: Linux's
            // `sk_dst_check` in `udp_sendmsg`.
            (None, Some(peer)) => (peer, socket.local),
            (None, None) => return Err(Errno::DESTADDRREQ.into()),
        };
        if bytes.len() > LONGEST[usize::from(to.1.is_ipv6())] {
            return Err(Errno::MSGSIZE.into());
        }
        if let Some(error) = socket.error.take() {
            return Err(error.into());
        }
        let (host, now) = (socket.base.host, core.time.now());
        core.hosts.count_datagram(host, now, &mut core.report);
        Ok(Datagram {
            from: (host, from),
            to,
            sent: now,
            bytes: bytes.to_vec(),
            kind: Kind::Data,
        })
    }
}

/// The user's calls on sockets.
impl Protocol for Udp {
    fn base(&mut self, id: u32) -> io::Result<&mut Base> {
        Ok(&mut self.get(id)?.base)
    }

    fn ready(&self, id: u32) -> io::Result<u8> {
        let socket = self.find(id)?;
        let mut ready = WRITABLE;
        if !socket.inbox.queue.is_empty() {
            ready |= READABLE;
        }
        if socket.error.is_some() {
            ready |= ERROR;
        }
        Ok(ready)
    }

    fn kind(&self, _id: u32) -> &'static str {
        "UDP"
    }

    fn is_stream(&self, _id: u32) -> bool {
        false
    }

    fn describe(&self, id: u32, _core: &Core) -> io::Result<String> {
        let Socket {
            base, inbox, local, ..
        } = self.find(id)?;
        let (inbox, waits) = (inbox.describe(), base.waits());
        Ok(format!("{local}, UDP, {inbox}{waits}"))
    }

    fn open(&self, _host: usize, process: usize) -> Vec<u32> {
        let all = self.sockets.iter();
        let open = all.filter(|(_, socket)| socket.base.process == Some(process));
        open.map(|(id, _)| *id).collect()
    }

    fn addresses(&self, id: u32) -> io::Result<(Address, Option<Address>)> {
        let Socket { local, peer, .. } = self.find(id)?;
        let peer = peer.map(|(_, peer)| peer).filter(|peer| peer.port() != 0);
        Ok((Address::Internet(*local), peer.map(Address::Internet)))
    }

    fn close(&mut self, id: u32, _core: &mut Core) {
        let Some(socket) = self.sockets.remove(&id) else {
            return;
        };
        // The port is the one that it was bound to, even after it was connected.
        let key = (socket.base.host, socket.local.port());
        if let Some(others) = self.ports.get_mut(&key) {
            others.retain(|other| *other != id);
            if others.is_empty() {
                self.ports.remove(&key);
            }
        }
    }

    fn forget_all(&mut self, host: usize, _core: &mut Core) {
        self.sockets.retain(|_, socket| socket.base.host != host);
        self.ports.retain(|key, _| key.0 != host);
    }

    fn receive(
        &mut self,
        id: u32,
        bytes: &mut [u8],
        keeps: bool,
        _core: &mut Core,
    ) -> io::Result<(usize, Address)> {
        let socket = self.get(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error.into());
        }
        let (len, from, _) = socket.inbox.receive(bytes, keeps)?;
        Ok((len, Address::Internet(from)))
    }

    fn send(
        &mut self,
        id: u32,
        bytes: &[u8],
        to: Option<&Address>,
        core: &mut Core,
    ) -> io::Result<usize> {
        let to = to.map(Address::internet).transpose()?;
        let (host, now) = (self.find(id)?.base.host, core.time.now());
        if !(core.hosts).count_sent(host, bytes.len(), now, &mut core.report) {
            return Ok(bytes.len()); // It is lost, and the run ends.
        }
        let mut datagram = self.datagram(id, bytes, to, core)?;
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
            datagram.to.0 = to;
            transmit(datagram.clone(), core);
        }
        Ok(bytes.len())
    }

    fn set_peer(&mut self, id: u32, peer: &Address, core: &mut Core) -> io::Result<()> {
        let socket = self.get(id)?;
        let (peer, local) = socket.route(peer.internet()?, &core.hosts)?;
        (socket.peer, socket.local) = (Some(peer), local);
        Ok(())
    }
}

/// Sends a datagram, which is then under way or lost.
fn transmit(datagram: Datagram, core: &mut Core) {
    let (way, now) = ((datagram.from.0, datagram.to.0), core.time.now());
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
    core.report.trace.message(|| datagram.message(now, true));
    let (from, port, digest, len) = datagram.note();
    core.note(datagram.to.0, What::DatagramLost(from, port, digest, len));
}

/// Datagrams that have come.
impl Udp {
    pub(super) fn arrives(&mut self, datagram: Datagram, core: &mut Core) {
        if datagram.to.0 == NOBODY {
            return lose(&datagram, core);
        }
        let now = core.time.now();
        core.report.trace.message(|| datagram.message(now, false));
        let (from, port, digest, len) = datagram.note();
        let (host, local) = datagram.to;
        core.note(host, What::Datagram(from, port, digest, len));
        match (self.recipient(host, datagram.from.1, local), datagram.kind) {
            (None, Kind::Data) => {
                let unreachable = Datagram {
                    from: datagram.to,
                    to: datagram.from,
                    sent: now,
                    bytes: Vec::new(),
                    kind: Kind::Unreachable,
                };
                transmit(unreachable, core);
            }
            (None, _) => {}
            (Some(id), Kind::Unreachable) => self.refused(id, core),
            (Some(id), _) => self.received(id, datagram, core),
        }
    }

    /// Returns the socket that receives a datagram from `from` to `to`.
    fn recipient(&self, host: usize, from: SocketAddr, to: SocketAddr) -> Option<u32> {
        let all = self.ports.get(&(host, to.port()))?;
        let suits = |id: &u32| self.sockets.get(id)?.suits(from, to);
        let suiting = all.iter().filter_map(|id| Some((suits(id)?, *id)));
        suiting.max_by_key(|(how, _)| *how).map(|(_, id)| id)
    }

    fn refused(&mut self, id: u32, core: &mut Core) {
        if let Some(socket) = self.sockets.get_mut(&id) {
            // An unconnected socket is not notified.
            if socket.peer.is_some() {
                socket.error = Some(Errno::CONNREFUSED);
                core.raise(id, &mut socket.base, READABLE | WRITABLE | ERROR);
            }
        }
    }

    fn received(&mut self, id: u32, datagram: Datagram, core: &mut Core) {
        let Some(socket) = self.sockets.get_mut(&id) else {
            return;
        };
        // The buffer is full when it exceeds its size: one datagram always fits.
        if socket.inbox.size > BUFFER.saturating_sub(OVERHEAD) {
            return lose(&datagram, core);
        }
        socket.inbox.push(datagram.from.1, datagram.bytes);
        core.raise(id, &mut socket.base, READABLE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

    /// Returns the sockets of two hosts, each with a process, and calls as the first.
    fn two_hosts() -> (Udp, Core) {
        let mut core = Core::of_test(1);
        for name in ["near", "far"] {
            let host = core.add_host(name);
            core.start(host);
        }
        core.set_current(Some(0));
        (Udp::default(), core)
    }

    /// Lets all datagrams arrive that are under way.
    fn deliver(udp: &mut Udp, core: &mut Core) {
        while let Some((at, _, place)) = core.events.first() {
            core.set_now(at);
            if let Some((_, Event::Datagram(datagram))) = core.events.take(place) {
                udp.arrives(*datagram, core);
            }
        }
    }

    #[test]
    fn a_port_is_taken_for_an_address_and_for_all_of_them() {
        let (mut udp, mut core) = two_hosts();
        let own = SocketAddr::new(core.hosts.address(0, false), 7);
        let first = udp.bind(own, &mut core).expect("it is free");
        for taken in [own, SocketAddr::new(ANY.ip(), 7)] {
            assert_eq!(
                udp.bind(taken, &mut core).unwrap_err().kind(),
                io::ErrorKind::AddrInUse
            );
        }
        let other = SocketAddr::new(core.hosts.address(1, false), 7);
        assert!(
            udp.bind(other, &mut core).is_err(),
            "it is the other host's"
        );
        udp.close(first, &mut core);
        assert!(udp.bind(own, &mut core).is_ok());
        let [one, other] = [(); 2].map(|()| udp.bind(ANY, &mut core).expect("a port is free"));
        let [one, other] = [one, other].map(|id| udp.get(id).unwrap().local);
        assert_ne!(one, other);
        for number in udp.open(0, 0) {
            udp.close(number, &mut core);
        }
        assert!(udp.ports.is_empty() && udp.sockets.is_empty());
    }

    #[test]
    fn a_connected_socket_learns_that_no_socket_receives() {
        let (mut udp, mut core) = two_hosts();
        let near = udp.bind(ANY, &mut core).unwrap();
        core.set_current(Some(1));
        let far = udp.bind(SocketAddr::new(ANY.ip(), 9), &mut core).unwrap();
        let to = SocketAddr::new(core.hosts.address(1, false), 9);
        udp.set_peer(near, &Address::Internet(to), &mut core)
            .unwrap();
        udp.send(near, b"bytes", None, &mut core).unwrap();
        deliver(&mut udp, &mut core);
        let bytes = &mut [0; 9];
        let (len, from) = udp.receive(far, bytes, false, &mut core).unwrap();
        let own = udp.get(near).unwrap().local;
        assert_eq!(
            (&bytes[..len], from),
            (&b"bytes"[..], Address::Internet(own))
        );
        udp.forget_all(1, &mut core);
        udp.send(near, b"more", None, &mut core).unwrap();
        deliver(&mut udp, &mut core);
        let refused = udp.receive(near, bytes, false, &mut core).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let again = udp.receive(near, bytes, false, &mut core).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::WouldBlock);
    }
}
