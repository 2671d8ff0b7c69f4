//! Sockets of another kernel ([`crate::kernel`]), to which each call is passed.
//!
//! The functions that make sockets make the system's if this thread has no such kernel.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::time::Duration;

use socket2::SockAddr;
#[cfg(unix)]
use socket2::{Domain, Type};

use super::system::{self, receive_each, send_each, while_full};
pub(in crate::net) use super::system::{adopt, bind_with, connect_with};
use super::{
    AnySocket, BACKLOG, Flag, KernelSocket, Number, Opt, Receive, Socket, SocketType, shutdown_of,
};
use crate::kernel::sockets::{self, Address, Sockets};
use crate::kernel::{self, Boxed, Kernel};
use crate::poller::Interest;
use crate::reactor::{Held, Io, SocketTraits};
use crate::sys::{Datagram, Received, TcpOption, address_of, sock_addr, unsupported};

pub(super) type CustomSocket = Boxed<dyn sockets::Socket>;

/// Returns what makes this thread's sockets, unless the system does.
fn sockets_here() -> Option<&'static dyn Sockets> {
    kernel::current().and_then(Kernel::sockets)
}

fn wrap(socket: CustomSocket, socket_type: SocketType) -> Socket {
    let traits = SocketTraits {
        socket_type,
        trusts_short_reads: true,
    };
    Socket {
        io: Io::new(Held::Custom(socket), Some(traits)),
    }
}

/// See [`system::bind`].
pub(in crate::net) fn bind(socket_type: SocketType, address: &SockAddr) -> io::Result<Socket> {
    let Some(sockets) = sockets_here() else {
        return system::bind(socket_type, address);
    };
    let socket = sockets.bind(socket_type, Some(&address_of(address)?), BACKLOG as usize)?;
    Ok(wrap(socket, socket_type))
}

/// See [`system::bind_balanced`].
pub(in crate::net) fn bind_balanced(
    socket_type: SocketType,
    address: &SockAddr,
    count: usize,
) -> io::Result<Vec<Socket>> {
    if sockets_here().is_none() {
        return system::bind_balanced(socket_type, address, count);
    }
    Ok(vec![bind(socket_type, address)?; count])
}

/// See [`system::unbound`].
#[cfg(unix)]
pub(in crate::net) fn unbound(socket_type: SocketType) -> io::Result<Socket> {
    let Some(sockets) = sockets_here() else {
        return system::unbound(socket_type);
    };
    Ok(wrap(sockets.bind(socket_type, None, 0)?, socket_type))
}

/// See [`system::pair`].
#[cfg(unix)]
pub(in crate::net) fn pair(socket_type: SocketType) -> io::Result<(Socket, Socket)> {
    let Some(sockets) = sockets_here() else {
        return system::pair(socket_type);
    };
    let [a, b] = sockets.pair(socket_type)?;
    Ok((wrap(a, socket_type), wrap(b, socket_type)))
}

/// See [`system::connect`].
pub(in crate::net) async fn connect(
    socket_type: SocketType,
    address: &SockAddr,
) -> io::Result<Socket> {
    if sockets_here().is_none() {
        return system::connect(socket_type, address).await;
    }
    let address = address_of(address)?;
    let connect = || {
        let sockets = sockets_here().ok_or_else(|| {
            unsupported("connect: the kernel in which it began is not this thread's")
        })?;
        sockets.connect(socket_type, &address)
    };
    let socket = while_full(socket_type, connect).await?;
    let socket = wrap(socket, socket_type);
    if let (AnySocket::Custom(custom), true) = (socket.kernel_socket(), socket_type.is_internet()) {
        socket.writing(|_| custom.finish_connect()).await?;
    }
    Ok(socket)
}

impl KernelSocket for CustomSocket {
    fn local_addr(&self) -> io::Result<SockAddr> {
        sock_addr(&(**self).local_addr()?)
    }

    fn peer_addr(&self) -> io::Result<SockAddr> {
        sock_addr(&(**self).peer_addr()?)
    }

    fn set_peer(&self, address: &SockAddr) -> io::Result<()> {
        (**self).set_peer(&address_of(address)?)
    }

    fn shutdown(&self, _: Shutdown, left: Interest) -> io::Result<()> {
        (**self).shutdown(shutdown_of(left))
    }

    fn accept(&self, accepted: SocketType) -> io::Result<(Socket, SockAddr)> {
        let (socket, peer) = (**self).accept()?;
        Ok((wrap(socket, accepted), sock_addr(&peer)?))
    }

    #[cold]
    #[inline(never)]
    fn read(&self, bytes: &mut [u8]) -> io::Result<(usize, bool)> {
        (**self).read(&mut [IoSliceMut::new(bytes)], false)
    }

    fn read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<(usize, bool)> {
        (**self).read(buffers, false)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        (**self).write(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        (**self).write(buffers)
    }

    fn recv(&self, bytes: &mut [u8], receive: Receive) -> io::Result<usize> {
        let peeks = receive == Receive::Peek;
        let (length, _) = (**self).read(&mut [IoSliceMut::new(bytes)], peeks)?;
        Ok(length)
    }

    fn recv_from(&self, bytes: &mut [u8], receive: Receive) -> io::Result<(usize, SockAddr)> {
        let (length, from, _) = self.receive(bytes, receive == Receive::Peek)?;
        Ok((length, sock_addr(&from)?))
    }

    fn send(&self, bytes: &[u8], to: Option<&SockAddr>) -> io::Result<usize> {
        let to = to.map(address_of).transpose()?;
        (**self).send(bytes, to.as_ref())
    }

    fn recv_many(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        received: &mut [Received],
    ) -> io::Result<(usize, bool)> {
        receive_each(received, |place| {
            let (length, from, is_truncated) = self.receive(&mut buffers[place], false)?;
            let from = match from {
                Address::Internet(from) => Some(from),
                Address::Unix(_) => None,
            };
            Ok(Received::new(length, from, is_truncated))
        })
    }

    fn send_many(&self, datagrams: &[Datagram<'_>]) -> io::Result<usize> {
        send_each(datagrams, |bytes, to| KernelSocket::send(self, bytes, to))
    }

    fn has_ended(&self) -> bool {
        // A datagram socket is closed only if its receiving was shut down.
        self.ready().is_ok_and(|ready| ready & kernel::CLOSED != 0)
    }

    fn has_room(&self) -> bool {
        self.ready()
            .is_ok_and(|ready| ready & kernel::WRITABLE != 0)
    }

    fn flag(&self, flag: Flag) -> io::Result<bool> {
        (**self).flag(flag)
    }

    fn linger(&self) -> io::Result<Option<Duration>> {
        (**self).linger()
    }

    fn number(&self, number: Number) -> io::Result<u32> {
        (**self).number(number)
    }

    fn tcp_option(&self, option: TcpOption) -> io::Result<Option<u32>> {
        (**self).tcp_option(option)
    }

    fn max_of(&self, option: TcpOption) -> u32 {
        option.max_of_linux()
    }

    fn set(&self, option: Opt) -> io::Result<()> {
        (**self).set(option)
    }

    #[cfg(unix)]
    fn peer_cred(&self) -> io::Result<(u32, u32, Option<i32>)> {
        if let Some(reported) = (**self).peer_cred() {
            return reported;
        }
        // Both ends are this process.
        let (one, _other) = socket2::Socket::pair(Domain::UNIX, Type::STREAM, None)?;
        crate::sys::peer_cred(&one)
    }
}
