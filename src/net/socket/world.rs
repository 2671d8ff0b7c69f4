//! The sockets of a simulated world: each call is `world`'s.
//!
//! The functions that make sockets make one of the system's unless this thread runs a world.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::time::Duration;

use socket2::SockAddr;
#[cfg(unix)]
use socket2::{Domain, Type};

use super::options::{Flag, Number, Opt, Options};
use super::system::{self, SystemSocket};
pub(in crate::net) use super::system::{adopt, bind_with, connect_with};
use super::{BACKLOG, KernelSocket, Receive, Socket, SocketType, shutdown_of};
use crate::poller::Interest;
use crate::reactor::Io;
use crate::sys::{Datagram, Received, TcpOption};
use crate::world::{self, SimSocket, SimSocketId, address::Address, unsupported};

/// A socket of a simulated world.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimulatedSocket(SimSocketId);

fn wrap(socket: SimSocket, socket_type: SocketType) -> io::Result<Socket> {
    let world = Some(SimulatedSocket(socket.id()));
    let system = SystemSocket {
        io: Io::simulated(socket, socket_type.kind(true))?,
        socket_type,
        trusts_short_reads: true,
    };
    Ok(Socket { system, world })
}

/// See [`system::bind`].
pub(in crate::net) fn bind(socket_type: SocketType, address: &SockAddr) -> io::Result<Socket> {
    if !world::is_here() {
        return system::bind(socket_type, address);
    }
    let (address, backlog) = (Address::of(address)?, BACKLOG as usize);
    let socket = SimSocket::new(|network| match socket_type {
        SocketType::TcpListener => network.listen(address.internet()?, backlog),
        SocketType::UdpSocket => network.bind_udp(address.internet()?),
        #[cfg(unix)]
        SocketType::UnixListener => network.listen_unix(address.unix()?, backlog),
        #[cfg(unix)]
        SocketType::UnixDatagram => network.bind_unix(address.unix()?),
        other => Err(unsupported(other.name())),
    });
    wrap(socket?, socket_type)
}

/// See [`system::bind_balanced`].
pub(in crate::net) fn bind_balanced(
    socket_type: SocketType,
    address: &SockAddr,
    count: usize,
) -> io::Result<Vec<Socket>> {
    if !world::is_here() {
        return system::bind_balanced(socket_type, address, count);
    }
    Ok(vec![bind(socket_type, address)?; count])
}

/// See [`system::unbound`].
#[cfg(unix)]
pub(in crate::net) fn unbound(socket_type: SocketType) -> io::Result<Socket> {
    if !world::is_here() {
        return system::unbound(socket_type);
    }
    let socket = SimSocket::new(|network| network.bind_unix(&world::address::Name::Unnamed));
    wrap(socket?, socket_type)
}

/// See [`system::pair`].
#[cfg(unix)]
pub(in crate::net) fn pair(socket_type: SocketType) -> io::Result<(Socket, Socket)> {
    if !world::is_here() {
        return system::pair(socket_type);
    }
    let is_stream = socket_type == SocketType::UnixStream;
    let [a, b] = SimSocket::new_ones(|network| network.pair(is_stream))?;
    Ok((wrap(a, socket_type)?, wrap(b, socket_type)?))
}

/// See [`system::connect`].
pub(in crate::net) async fn connect(
    socket_type: SocketType,
    address: &SockAddr,
) -> io::Result<Socket> {
    if !world::is_here() {
        return system::connect(socket_type, address).await;
    }
    let address = Address::of(address)?;
    #[cfg(unix)]
    if socket_type == SocketType::UnixStream {
        let connect = || SimSocket::new(|network| network.connect_unix(address.unix()?));
        let socket = system::while_full(socket_type, connect).await?;
        return wrap(socket, socket_type);
    }
    let socket = SimSocket::new(|network| network.connect(address.internet()?))?;
    let id = socket.id();
    let socket = wrap(socket, socket_type)?;
    let finish = |_| id.with(|network, id| network.finish_connect(id));
    socket.writing(finish).await?;
    Ok(socket)
}

impl KernelSocket for SimulatedSocket {
    fn note_lent(&self) {
        world::note_lent();
    }

    fn local_addr(&self) -> io::Result<SockAddr> {
        self.0.local_addr()?.to_system()
    }

    fn peer_addr(&self) -> io::Result<SockAddr> {
        self.0.peer_addr()?.to_system()
    }

    fn set_peer(&self, address: &SockAddr) -> io::Result<()> {
        let peer = Address::of(address)?;
        self.0.with(|network, id| network.set_peer(id, &peer))
    }

    fn shutdown(&self, _: Shutdown, left: Interest) -> io::Result<()> {
        (self.0).with(|network, id| network.shut_down(id, shutdown_of(left)))
    }

    fn accept(&self, accepted: SocketType) -> io::Result<(Socket, SockAddr)> {
        let (socket, peer) = self.0.accept()?;
        Ok((wrap(socket, accepted)?, peer.to_system()?))
    }

    fn read(&self, bytes: &mut [u8]) -> io::Result<(usize, bool)> {
        self.read_vectored(&mut [IoSliceMut::new(bytes)])
    }

    fn read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<(usize, bool)> {
        self.0.with(|network, id| {
            let read = network.read(id, buffers, false)?;
            let is_drained = network.ready(id)? & world::READABLE == 0;
            Ok((read, is_drained))
        })
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.with(|network, id| network.write(id, buffers))
    }

    fn recv(&self, bytes: &mut [u8], receive: Receive) -> io::Result<usize> {
        let (buffers, keeps) = (&mut [IoSliceMut::new(bytes)], receive == Receive::Peek);
        (self.0).with(|network, id| network.read(id, buffers, keeps))
    }

    fn recv_from(&self, bytes: &mut [u8], receive: Receive) -> io::Result<(usize, SockAddr)> {
        let keeps = receive == Receive::Peek;
        let (length, from, _) = (self.0).with(|network, id| network.receive(id, bytes, keeps))?;
        Ok((length, from.to_system()?))
    }

    fn send(&self, bytes: &[u8], to: Option<&SockAddr>) -> io::Result<usize> {
        let to = to.map(Address::of).transpose()?;
        (self.0).with(|network, id| network.send(id, bytes, to.as_ref()))
    }

    fn recv_many(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        received: &mut [Received],
    ) -> io::Result<(usize, bool)> {
        system::receive_each(received, |place| {
            let buffer = &mut buffers[place];
            let (length, from, is_truncated) =
                (self.0).with(|network, id| network.receive(id, buffer, false))?;
            let from = from.to_system()?.as_socket();
            Ok(Received::new(length, from, is_truncated))
        })
    }

    fn send_many(&self, datagrams: &[Datagram<'_>]) -> io::Result<usize> {
        system::send_each(datagrams, |bytes, to| self.send(bytes, to))
    }

    fn has_ended(&self) -> bool {
        // A datagram socket is closed if its receiving was shut down, and never otherwise.
        self.0.is_ready(world::CLOSED)
    }

    fn has_room(&self) -> bool {
        self.0.is_ready(world::WRITABLE)
    }
}

impl Options for SimulatedSocket {
    fn flag(&self, flag: Flag) -> io::Result<bool> {
        self.0.options(|options| match flag {
            Flag::Broadcast => Ok(options.broadcast),
            Flag::Keepalive => Ok(options.keepalive),
            Flag::MulticastLoopV4 | Flag::MulticastLoopV6 => Err(unsupported("multicast")),
            Flag::Nodelay => Ok(options.nodelay),
            Flag::Passrights => Ok(false),
        })?
    }

    fn linger(&self) -> io::Result<Option<Duration>> {
        self.0.options(|options| options.linger)
    }

    fn number(&self, number: Number) -> io::Result<u32> {
        match number {
            Number::MulticastTtlV4 => Err(unsupported("multicast")),
            Number::Ttl => self.0.options(|options| options.ttl),
        }
    }

    fn tcp_option(&self, option: TcpOption) -> io::Result<Option<u32>> {
        self.0.options(|options| Some(*options.tcp(option)))
    }

    fn max_of(&self, option: TcpOption) -> u32 {
        option.max_of_linux()
    }

    /// Without a wildcard: a new option is simulated, or refused here.
    fn set(&self, option: Opt) -> io::Result<()> {
        match option {
            Opt::Flag(Flag::Broadcast, on) => self.0.options(|options| options.broadcast = on),
            Opt::Flag(Flag::Keepalive, on) => {
                self.0.with(|network, id| network.set_keepalive(id, on))
            }
            Opt::Flag(Flag::Nodelay, on) => self.0.options(|options| options.nodelay = on),
            Opt::Flag(Flag::Passrights, false) => Ok(()),
            Opt::Flag(Flag::Passrights, true) => Err(unsupported("passing descriptors")),
            Opt::Linger(linger) => self.0.options(|options| options.set_linger(linger)),
            Opt::Number(Number::Ttl, ttl) => self.0.options(|options| options.set_ttl(ttl))?,
            Opt::Tcp(option, value) => self
                .0
                .with(|network, id| network.set_tcp(id, option, value)),
            Opt::Flag(Flag::MulticastLoopV4 | Flag::MulticastLoopV6, _)
            | Opt::Number(Number::MulticastTtlV4, _)
            | Opt::Join(_)
            | Opt::Leave(_) => Err(unsupported("multicast")),
        }
    }

    /// Both ends are this process.
    #[cfg(unix)]
    fn peer_cred(&self) -> io::Result<(u32, u32, Option<i32>)> {
        let (one, _other) = socket2::Socket::pair(Domain::UNIX, Type::STREAM, None)?;
        crate::sys::peer_cred(&one)
    }
}
