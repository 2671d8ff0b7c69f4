//! [`Socket`]: what one socket sends and has received.
//!
//! It knows no other socket: what it sends is an event, or lost.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use polder::kernel::{ERROR, READABLE, WRITABLE};

use super::datagram::{Datagram, Kind};
use crate::world::address::{self, Address};
use crate::world::base::Base;
use crate::world::core::Core;
use crate::world::errno::Errno;
use crate::world::event_queue::Event;
use crate::world::hosts::Hosts;
use crate::world::inbox::{Inbox, OVERHEAD};
use crate::world::ports::takes;
use crate::world::registrations::when;
use crate::world::trace_event::TraceEvent;

/// The maximum of bytes in a datagram: an IPv4 packet without its headers; and the same for IPv6,
/// which does not count its own header.
pub(super) const LONGEST: [usize; 2] = [65_507, 65_527];

/// The overhead of each datagram: the headers of UDP and IPv4.
pub(super) const HEADERS: usize = 28;

#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) base: Base,
    pub(crate) local: SocketAddr,
    pub(super) peer: Option<(usize, SocketAddr)>,
    pub(super) inbox: Inbox<SocketAddr>,
}

impl Socket {
    /// Returns the destination of a datagram from this socket to `address`, and its source address.
    pub(super) fn route(
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
    pub(super) fn datagram(
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
    pub(super) fn suits(&self, from: SocketAddr, to: SocketAddr) -> Option<u8> {
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
    pub(crate) fn ready(&self) -> u8 {
        WRITABLE
            | when(READABLE, !self.inbox.queue.is_empty())
            | when(ERROR, self.base.error.is_some())
    }

    pub(crate) fn describe(&self) -> String {
        let (inbox, waits) = (self.inbox.describe(), self.base.waits());
        format!("{}, UDP, {inbox}{waits}", self.local)
    }

    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        let peer = self.peer.map(|(_, peer)| peer);
        peer.filter(|peer| peer.port() != 0)
    }

    pub(crate) fn set_peer(&mut self, peer: &Address, hosts: &Hosts) -> io::Result<()> {
        let (peer, local) = self.route(address::internet(peer)?, hosts)?;
        (self.peer, self.local) = (Some(peer), local);
        Ok(())
    }

    /// Receives a datagram: its length, its sender, and whether it was longer than the buffer.
    pub(crate) fn receive(
        &mut self,
        bytes: &mut [u8],
        peeks: bool,
    ) -> io::Result<(usize, Address, bool)> {
        self.base.take_error()?;
        let (len, from, size) = self.inbox.receive(bytes, peeks)?;
        Ok((len, self.base.shown(from), size > len + OVERHEAD))
    }

    pub(crate) fn send(
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
pub(crate) fn is_broadcast(ip: IpAddr) -> bool {
    let all = [
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(10, 255, 255, 255),
        Ipv4Addr::new(127, 255, 255, 255),
    ];
    matches!(ip, IpAddr::V4(ip) if all.contains(&ip))
}

/// Sends a datagram, which is then under way or lost.
pub(super) fn transmit(datagram: Datagram, core: &mut Core) {
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
pub(crate) fn lose(datagram: &Datagram, core: &mut Core) {
    let now = core.time.now();
    core.message(|| datagram.message(now, true));
    core.note(datagram.to.0, datagram.event(TraceEvent::DatagramLost));
}
