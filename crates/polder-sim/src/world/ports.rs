//! [`Ports`]: the sockets that have each port of a host.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A protocol with ports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

#[derive(Debug, Default)]
pub(super) struct Ports {
    /// The sockets that are bound to each port: those of UDP, and TCP's listeners.
    bound: BTreeMap<(Protocol, usize, u16), Vec<u32>>,
    /// The connections of TCP.
    pub(super) connections: BTreeMap<Connection, u32>,
}

/// The host of a connection, its own address, as port and IP address, and the peer's.
pub(super) type Connection = (usize, u16, IpAddr, SocketAddr);

/// Returns the key of the connection of a host from `local` to `peer`.
pub(super) fn connection(host: usize, local: SocketAddr, peer: SocketAddr) -> Connection {
    (host, local.port(), local.ip(), peer)
}

/// Returns whether a socket that is bound to `bound` receives what comes to `ip`, as far as the
/// address decides. One that is bound to all addresses of IPv6 has those of IPv4 too.
pub(super) fn takes(bound: IpAddr, ip: IpAddr) -> bool {
    bound == ip || bound.is_unspecified() && (bound.is_ipv6() || ip.is_ipv4())
}

impl Ports {
    /// Returns the sockets that are bound to a port.
    pub(super) fn at(&self, protocol: Protocol, (host, port): (usize, u16)) -> &[u32] {
        let bound = self.bound.get(&(protocol, host, port));
        bound.map_or(&[], Vec::as_slice)
    }

    /// Returns whether no socket of a host has a port.
    pub(super) fn is_free(&self, protocol: Protocol, port: (usize, u16)) -> bool {
        let is_connected =
            protocol == Protocol::Tcp && self.connections_from(port).next().is_some();
        self.at(protocol, port).is_empty() && !is_connected
    }

    /// Returns the connections that a host has from a port.
    pub(super) fn connections_from(&self, (host, port): (usize, u16)) -> impl Iterator<Item = u32> {
        let least = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let all = self.connections.range((host, port, least.ip(), least)..);
        let from = all.take_while(move |(key, _)| (key.0, key.1) == (host, port));
        from.map(|(_, id)| *id)
    }

    pub(super) fn add(&mut self, protocol: Protocol, (host, port): (usize, u16), number: u32) {
        let bound = self.bound.entry((protocol, host, port)).or_default();
        bound.push(number);
    }

    pub(super) fn remove(&mut self, protocol: Protocol, (host, port): (usize, u16), number: u32) {
        if let Some(others) = self.bound.get_mut(&(protocol, host, port)) {
            others.retain(|other| *other != number);
            if others.is_empty() {
                self.bound.remove(&(protocol, host, port));
            }
        }
    }

    /// Forgets the bound sockets of a host.
    pub(super) fn forget(&mut self, host: usize) {
        self.bound.retain(|(_, other, _), _| *other != host);
    }
}
