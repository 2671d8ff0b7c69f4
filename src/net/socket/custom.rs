//! The functions that make sockets: those of this thread's [kernel], or the system's if there is
//! none.

use std::io;

use super::system::{self, while_full};
pub(in crate::net) use super::system::{adopt, bind_with, connect_with};
use super::{Address, BACKLOG, Socket, SocketType};
use crate::kernel::sockets::{self, Sockets};
use crate::kernel::{self, Boxed, Kernel};
use crate::reactor::{Held, Io, SocketTraits};
use crate::sys::unsupported;

/// Returns what makes this thread's sockets, unless the system does.
fn sockets_here() -> Option<&'static dyn Sockets> {
    kernel::current().and_then(Kernel::sockets)
}

pub(super) fn wrap(socket: Boxed<dyn sockets::Socket>, socket_type: SocketType) -> Socket {
    let traits = SocketTraits {
        socket_type,
        trusts_short_reads: true,
    };
    Socket {
        io: Io::new(Held::Custom(socket), Some(traits)),
    }
}

/// See [`system::bind`].
pub(in crate::net) fn bind(socket_type: SocketType, address: &Address) -> io::Result<Socket> {
    let Some(sockets) = sockets_here() else {
        return system::bind(socket_type, address);
    };
    let socket = sockets.bind(socket_type, Some(address), BACKLOG as usize)?;
    Ok(wrap(socket, socket_type))
}

/// See [`system::bind_balanced`].
pub(in crate::net) fn bind_balanced(
    socket_type: SocketType,
    address: &Address,
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
    address: &Address,
) -> io::Result<Socket> {
    if sockets_here().is_none() {
        return system::connect(socket_type, address).await;
    }
    let connect = || {
        let sockets = sockets_here().ok_or_else(|| {
            unsupported("connect: the kernel in which it began is not this thread's")
        })?;
        sockets.connect(socket_type, address)
    };
    let socket = while_full(socket_type, connect).await?;
    let socket = wrap(socket, socket_type);
    if socket_type.is_internet() {
        socket
            .writing(|_| socket.kernel_socket().finish_connect())
            .await?;
    }
    Ok(socket)
}
