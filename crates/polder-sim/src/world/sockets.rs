//! [`Sockets`]: all sockets of a world, and the calls on them.
//!
//! A call of a [handle](super::handle) arrives here with a socket's number, and is passed on to the
//! socket's protocol. A call that a protocol does not have fails.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};

use polder::kernel::{READABLE, WRITABLE};

use super::address::Address;
use super::base::Base;
use super::core::Core;
use super::errno::{Errno, gone, unsupported};
use super::faults::Kind;
use super::nat::Nat;
use super::ports::{Ports, Protocol, takes};
use super::table::{Socket, Table};
use super::tcp::pending::Tcp;
use super::unix::socket::Names;

/// All sockets of a world, and by what the protocols find them.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    pub(super) table: Table,
    pub(super) tcp: Tcp,
    ports: Ports,
    unix_names: Names,
    nat: Nat,
}

/// The sockets and the parts that they use, for one call or event.
pub(crate) struct Network<'a> {
    pub(super) core: &'a mut Core,
    pub(super) table: &'a mut Table,
    pub(super) tcp: &'a mut Tcp,
    pub(super) ports: &'a mut Ports,
    pub(super) unix_names: &'a mut Names,
    pub(super) nat: &'a mut Nat,
}

impl Sockets {
    pub(super) fn network<'a>(&'a mut self, core: &'a mut Core) -> Network<'a> {
        Network {
            core,
            table: &mut self.table,
            tcp: &mut self.tcp,
            ports: &mut self.ports,
            unix_names: &mut self.unix_names,
            nat: &mut self.nat,
        }
    }
}

/// Sockets of all protocols.
impl Network<'_> {
    /// Reports new readiness of a socket, if it is there.
    pub(super) fn raise(&mut self, id: u32, ready: u8) {
        if let Ok(base) = self.table.base(id) {
            self.core.raise(id, base, ready);
        }
    }

    /// Returns a socket's current readiness.
    #[inline]
    pub(crate) fn ready(&self, id: u32) -> io::Result<u8> {
        Ok(match self.table.get(id)? {
            Socket::Tcp(socket) => socket.ready(),
            Socket::Udp(socket) => socket.ready(),
            Socket::Unix(socket) => self.ready_unix(id, socket),
        })
    }

    /// Returns the kind of socket, as a dump shows it.
    pub(super) fn kind(&self, id: u32) -> io::Result<&'static str> {
        Ok(match self.table.get(id)? {
            Socket::Tcp(_) => "TCP",
            Socket::Udp(_) => "UDP",
            Socket::Unix(socket) if socket.is_datagram() => "Unix datagram",
            Socket::Unix(_) => "Unix stream",
        })
    }

    /// Returns the numbers of the sockets that a process of a host has open, in their order.
    pub(super) fn open(&mut self, process: usize, host: usize) -> Vec<u32> {
        let mut open = self.table.ids(host);
        let mut owner = |id| self.table.base(id).ok()?.process;
        open.retain(|id| owner(*id) == Some(process));
        open
    }

    /// Describes the sockets of a process, for reports: those of TCP, then the others, by number.
    pub(crate) fn describe(&mut self, process: usize) -> Vec<String> {
        let mut numbers = self.open(process, self.core.processes.host_of(process));
        numbers.sort_by_key(|id| self.table.tcp(*id).is_none());
        let (hosts, now) = (&self.core.hosts, self.core.time.now());
        let describe = |id| match self.table.find(id)? {
            Socket::Tcp(socket) => Some(socket.describe(hosts, now)),
            Socket::Udp(socket) => Some(socket.describe()),
            Socket::Unix(socket) => Some(socket.describe()),
        };
        numbers.into_iter().filter_map(describe).collect()
    }

    /// Returns a socket's own address, and its peer's, if it is connected.
    pub(super) fn addresses(&self, id: u32) -> io::Result<(Address, Option<Address>)> {
        let (base, local, peer) = match self.table.get(id)? {
            Socket::Tcp(socket) => (&socket.base, socket.local, socket.peer_address()),
            Socket::Udp(socket) => (&socket.base, socket.local, socket.peer_address()),
            Socket::Unix(socket) => return Ok(socket.addresses()),
        };
        Ok((base.shown(local), peer.map(|peer| base.shown(peer))))
    }

    /// Closes a socket after its last handle or its process has gone.
    pub(super) fn close(&mut self, id: u32) {
        match self.table.find(id) {
            Some(Socket::Tcp(_)) => self.close_tcp(id),
            Some(Socket::Udp(_)) => self.close_udp(id),
            Some(Socket::Unix(_)) => self.close_unix(id),
            None => {}
        }
    }

    /// Closes the sockets of a process that has ended. Without power its connections are left as
    /// they are, to be forgotten.
    pub(super) fn close_all(&mut self, process: usize, host: usize, has_power: bool) {
        for id in self.open(process, host) {
            if has_power || self.table.tcp(id).is_none() {
                self.close(id);
            }
        }
    }

    /// Forgets the sockets of a host that has lost its power, without sending anything.
    pub(super) fn forget_all(&mut self, host: usize) {
        self.forget_sockets(host);
        self.ports.forget(host);
        self.unix_names.forget(host);
        self.nat.forget(host);
    }

    /// Creates a socket of the running process by `make`, which is bound to `local`: with a free
    /// port, if it asks for any.
    pub(super) fn bind(
        &mut self,
        protocol: Protocol,
        mut local: SocketAddr,
        make: impl FnOnce(Base, SocketAddr) -> Socket,
    ) -> io::Result<u32> {
        let (host, process) = self.core.processes.here()?;
        let mut base = Base::new(host, Some(process));
        base.is_v6 = local.is_ipv6();
        let ip = local.ip().to_canonical();
        local.set_ip(ip);
        if !self.core.hosts.may_bind(host, local) {
            return Err(Errno::ADDRNOTAVAIL.into());
        }
        if local.port() == 0 {
            let (ports, nat, now) = (&*self.ports, &*self.nat, self.core.time.now());
            let port = self.core.hosts.free_port(host, |port| {
                let port = (host, port);
                ports.is_free(protocol, port) && nat.is_free(protocol, port, now)
            })?;
            local.set_port(port);
        }
        let port = (host, local.port());
        let others = self.ports.at(protocol, port).iter();
        let mut others = others.filter_map(|number| self.table.local_ip(*number));
        if others.any(|other| takes(other, ip) || takes(ip, other)) {
            return Err(Errno::ADDRINUSE.into());
        }
        let id = self.table.insert(make(base, local));
        self.ports.add(protocol, port, id);
        self.nat.leave(protocol, port);
        Ok(id)
    }

    pub(super) fn accept(&mut self, id: u32) -> io::Result<(u32, Address)> {
        let (host, process) = self.core.processes.here()?;
        let base = self.table.base(id)?;
        let accepted = base.queue.pop_front().ok_or_else(|| Errno::AGAIN.into());
        base.note_blocked(READABLE, &accepted);
        let (accepted, is_v6) = (accepted?, base.is_v6);
        let base = self.table.base(accepted)?;
        (base.process, base.is_v6) = (Some(process), is_v6);
        let peer = match self.table.get_mut(accepted)? {
            Socket::Tcp(socket) => {
                let peer = socket.accept(self.core);
                socket.base.shown(peer)
            }
            Socket::Udp(_) => return Err(gone()),
            Socket::Unix(socket) => socket.addresses().1.ok_or_else(gone)?,
        };
        if self.core.fault_comes(host, Kind::Aborted) {
            match self.table.tcp(accepted) {
                Some(_) => self.reset(accepted),
                None => self.close(accepted),
            }
            return Err(Errno::CONNABORTED.into());
        }
        Ok((accepted, peer))
    }

    pub(crate) fn read(
        &mut self,
        id: u32,
        buffers: &mut [IoSliceMut<'_>],
        peeks: bool,
    ) -> io::Result<usize> {
        if self.is_datagram(id) {
            let buffer = buffers.first_mut();
            let buffer = buffer.map_or(&mut [][..], |buffer| &mut **buffer);
            return Ok(self.receive(id, buffer, peeks)?.0);
        }
        let first = buffers.iter_mut().find(|buffer| !buffer.is_empty());
        if let Some(buffer) = first.filter(|_| !peeks) {
            if let Some(len) = self.shorten(id, buffer.len()) {
                let short = &mut [IoSliceMut::new(&mut buffer[..len])];
                return self.read_stream(id, short, false);
            }
        }
        self.read_stream(id, buffers, peeks)
    }

    fn read_stream(
        &mut self,
        id: u32,
        buffers: &mut [IoSliceMut<'_>],
        peeks: bool,
    ) -> io::Result<usize> {
        let read = match self.table.get_mut(id)? {
            Socket::Tcp(_) => self.read_tcp(id, buffers, peeks),
            Socket::Udp(_) => Err(gone()),
            Socket::Unix(_) => self.read_unix(id, buffers, peeks),
        };
        self.table.base(id)?.note_blocked(READABLE, &read);
        read
    }

    pub(crate) fn write(&mut self, id: u32, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.is_datagram(id) {
            return Err(unsupported("writing to a datagram socket"));
        }
        if let Some(buffer) = buffers.iter().find(|buffer| !buffer.is_empty()) {
            if let Some(len) = self.shorten(id, buffer.len()) {
                let short = &[IoSlice::new(&buffer[..len])];
                return self.write_stream(id, short);
            }
        }
        self.write_stream(id, buffers)
    }

    fn write_stream(&mut self, id: u32, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = match self.table.get(id)? {
            Socket::Tcp(_) => self.write_tcp(id, buffers),
            Socket::Udp(_) => Err(gone()),
            Socket::Unix(_) => self.write_unix(id, buffers),
        };
        self.table.base(id)?.note_blocked(WRITABLE, &written);
        written
    }

    /// Receives a datagram, or peeks at it if `peeks` is set.
    pub(crate) fn receive(
        &mut self,
        id: u32,
        bytes: &mut [u8],
        peeks: bool,
    ) -> io::Result<(usize, Address, bool)> {
        let received = match self.table.get_mut(id)? {
            Socket::Tcp(_) => Err(gone()),
            Socket::Udp(socket) => socket.receive(bytes, peeks),
            Socket::Unix(_) => self.receive_unix(id, bytes, peeks),
        };
        self.table.base(id)?.note_blocked(READABLE, &received);
        received
    }

    /// Sends a datagram, to the peer unless an address is given.
    pub(crate) fn send(
        &mut self,
        id: u32,
        bytes: &[u8],
        to: Option<&Address>,
    ) -> io::Result<usize> {
        let sent = match self.table.get_mut(id)? {
            Socket::Tcp(_) => Err(gone()),
            Socket::Udp(socket) => socket.send(bytes, to, self.core),
            Socket::Unix(_) => self.send_unix(id, bytes, to),
        };
        self.table.base(id)?.note_blocked(WRITABLE, &sent);
        sent
    }

    /// Sets the peer of a datagram socket.
    pub(crate) fn set_peer(&mut self, id: u32, peer: &Address) -> io::Result<()> {
        match self.table.get_mut(id)? {
            Socket::Tcp(_) => Err(gone()),
            Socket::Udp(socket) => socket.set_peer(peer, &self.core.hosts),
            Socket::Unix(_) => self.set_peer_unix(id, peer),
        }
    }

    pub(crate) fn shut_down(&mut self, id: u32, how: Shutdown) -> io::Result<()> {
        match self.table.get(id)? {
            Socket::Tcp(_) => self.shut_down_tcp(id, how),
            Socket::Udp(_) => Err(unsupported("shutting down this socket")),
            Socket::Unix(_) => self.shut_down_unix(id, how),
        }
    }

    pub(super) fn is_datagram(&self, id: u32) -> bool {
        match self.table.find(id) {
            Some(Socket::Udp(_)) => true,
            Some(Socket::Unix(socket)) => socket.is_datagram(),
            _ => false,
        }
    }

    /// Draws the length of a read or write of that length, if a fault makes it a short one.
    #[inline]
    fn shorten(&mut self, id: u32, len: usize) -> Option<usize> {
        let host = self.table.base(id).ok()?.host;
        self.core.shorten(host, len)
    }
}
