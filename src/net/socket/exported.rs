//! [`SystemSockets`]: the system's sockets as a kernel has them, for one that passes calls on.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::PollFlags;

use super::system::{self, SystemSocket, begin_to_connect, bind, check_connected, unbound};
use super::{AnySocket, Flag, KernelSocket, Number, Opt, Receive, Socket, SocketType};
use crate::kernel::sockets::{self, Address, Sockets};
use crate::kernel::{CLOSED, ERROR, READABLE, WRITABLE};
use crate::poller::Interest;
use crate::sys::{self, TcpOption, address_of, sock_addr};

/// The sockets of the system, for another [kernel](crate::kernel). Unstable, as that is.
///
/// ```
/// use polder::kernel::sockets::{Address, SocketType, Sockets};
/// use polder::net::SystemSockets;
///
/// let address = Address::Internet("127.0.0.1:0".parse().unwrap());
/// let listener = SystemSockets.bind(SocketType::TcpListener, Some(&address), 16)?;
/// let error = listener.accept().unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SystemSockets;

/// The length of a listener's queue is always polder's own.
impl Sockets for SystemSockets {
    fn bind(
        &self,
        socket_type: SocketType,
        address: Option<&Address>,
        _: usize,
    ) -> io::Result<Box<dyn sockets::Socket>> {
        exported(match address {
            Some(address) => bind(socket_type, &sock_addr(address)?),
            None => unbound(socket_type),
        })
    }

    fn pair(&self, socket_type: SocketType) -> io::Result<[Box<dyn sockets::Socket>; 2]> {
        let (a, b) = system::pair(socket_type)?;
        Ok([Box::new(Exported(a)), Box::new(Exported(b))])
    }

    fn connect(
        &self,
        socket_type: SocketType,
        address: &Address,
    ) -> io::Result<Box<dyn sockets::Socket>> {
        exported(begin_to_connect(socket_type, &sock_addr(address)?))
    }
}

fn exported(made: io::Result<Socket>) -> io::Result<Box<dyn sockets::Socket>> {
    Ok(Box::new(Exported(made?)))
}

/// A socket of the system, which no reactor waits for.
#[derive(Debug)]
struct Exported(Socket);

impl Exported {
    #[inline]
    fn system(&self) -> SystemSocket<'_> {
        match self.0.kernel_socket() {
            AnySocket::System(system) => system,
            AnySocket::Custom(_) => unreachable!("the system has made it"),
        }
    }
}

impl sockets::Socket for Exported {
    fn id(&self) -> u64 {
        self.0.io.source().number()
    }

    fn ready(&self) -> io::Result<u8> {
        let found = sys::poll_now(&self.descriptor(), PollFlags::IN | PollFlags::OUT)?;
        let flags = [
            (PollFlags::IN, READABLE),
            (PollFlags::OUT, WRITABLE),
            (PollFlags::HUP, CLOSED),
            (PollFlags::ERR, ERROR),
        ];
        let set = flags.iter().filter(|(flag, _)| found.intersects(*flag));
        Ok(set.fold(0, |all, (_, bit)| all | bit))
    }

    fn kind(&self) -> &'static str {
        self.0.socket_type().kind()
    }

    fn lend(&self) -> BorrowedFd<'_> {
        self.0.lend_descriptor()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.system().descriptor
    }

    fn finish_connect(&self) -> io::Result<()> {
        check_connected(&self.descriptor())
    }

    fn local_addr(&self) -> io::Result<Address> {
        address_of(&self.system().local_addr()?)
    }

    fn peer_addr(&self) -> io::Result<Address> {
        address_of(&self.system().peer_addr()?)
    }

    fn peer_cred(&self) -> Option<io::Result<(u32, u32, Option<i32>)>> {
        Some(self.system().peer_cred())
    }

    fn set_peer(&self, address: &Address) -> io::Result<()> {
        self.system().set_peer(&sock_addr(address)?)
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let directions = match how {
            Shutdown::Read => Interest::READABLE,
            Shutdown::Write => Interest::WRITABLE,
            Shutdown::Both => Interest::READABLE | Interest::WRITABLE,
        };
        self.system().shutdown(how, directions)
    }

    fn accept(&self) -> io::Result<(Box<dyn sockets::Socket>, Address)> {
        let (socket, peer) = self.system().accept(self.0.socket_type().accepted())?;
        Ok((Box::new(Exported(socket)), address_of(&peer)?))
    }

    #[inline]
    fn read(&self, buffers: &mut [IoSliceMut<'_>], peeks: bool) -> io::Result<(usize, bool)> {
        match buffers {
            [bytes, ..] if peeks => Ok((self.system().recv(bytes, Receive::Peek)?, false)),
            [bytes] => self.system().read(bytes),
            buffers => self.system().read_vectored(buffers),
        }
    }

    #[inline]
    fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match buffers {
            [bytes] => self.system().write(bytes),
            buffers => self.system().write_vectored(buffers),
        }
    }

    fn receive(&self, bytes: &mut [u8], peeks: bool) -> io::Result<(usize, Address, bool)> {
        let how = if peeks { Receive::Peek } else { Receive::Take };
        let (length, from, is_truncated) = self.system().receive(bytes, how)?;
        Ok((length, address_of(&from)?, is_truncated))
    }

    fn send(&self, bytes: &[u8], to: Option<&Address>) -> io::Result<usize> {
        let to = to.map(sock_addr).transpose()?;
        self.system().send(bytes, to.as_ref())
    }

    fn flag(&self, flag: Flag) -> io::Result<bool> {
        self.system().flag(flag)
    }

    fn linger(&self) -> io::Result<Option<Duration>> {
        self.system().linger()
    }

    fn number(&self, number: Number) -> io::Result<u32> {
        self.system().number(number)
    }

    fn tcp_option(&self, option: TcpOption) -> io::Result<Option<u32>> {
        self.system().tcp_option(option)
    }

    fn set(&self, option: Opt) -> io::Result<()> {
        self.system().set(option)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::sockets::Socket as _;

    /// A kernel that waits for the socket does not slow down its reads; foreign code does.
    #[test]
    fn only_lent_sockets_are_distrusted() {
        let (near, _far) = system::pair(SocketType::UnixStream).unwrap();
        let near = Exported(near);
        let trusts = || near.0.io.source().has_bytes_only();
        let before = trusts();
        let _ = near.descriptor();
        assert_eq!(trusts(), before);
        let _ = near.lend();
        assert!(!trusts());
    }
}
