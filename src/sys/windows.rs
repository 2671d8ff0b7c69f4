//! Windows: a socket is a handle of its own kind.

use std::io::{self, IoSliceMut, Read};
use std::os::windows::io::{AsRawSocket, AsSocket};
use std::time::Duration;

use socket2::{SockAddr, SockRef};

use super::AfterAcceptError;

pub(crate) use std::os::windows::io::{
    BorrowedSocket as BorrowedDescriptor, OwnedSocket as OwnedDescriptor,
    RawSocket as RawDescriptor,
};

/// [`AsSocket`] under the name that both platforms have.
pub(crate) trait AsDescriptor {
    fn as_descriptor(&self) -> BorrowedDescriptor<'_>;
}

impl<T: AsSocket> AsDescriptor for T {
    fn as_descriptor(&self) -> BorrowedDescriptor<'_> {
        self.as_socket()
    }
}

/// [`AsRawSocket`] likewise.
pub(crate) trait AsRawDescriptor {
    fn as_raw_descriptor(&self) -> RawDescriptor;
}

impl<T: AsRawSocket> AsRawDescriptor for T {
    fn as_raw_descriptor(&self) -> RawDescriptor {
        self.as_raw_socket()
    }
}

/// Implements the platform's traits for a public type that has a descriptor.
macro_rules! lend_descriptor {
    ($type:ty, |$it:ident| $descriptor:expr) => {
        impl std::os::windows::io::AsSocket for $type {
            fn as_socket(&self) -> std::os::windows::io::BorrowedSocket<'_> {
                let $it = self;
                std::os::windows::io::AsSocket::as_socket($descriptor)
            }
        }

        impl std::os::windows::io::AsRawSocket for $type {
            fn as_raw_socket(&self) -> std::os::windows::io::RawSocket {
                let $it = self;
                std::os::windows::io::AsRawSocket::as_raw_socket($descriptor)
            }
        }
    };
}
pub(crate) use lend_descriptor;

/// There are no signals for a peer that is gone.
pub(crate) const SEND_FLAGS: i32 = 0;

pub(crate) fn receive(socket: &impl AsSocket, bytes: &mut [u8]) -> io::Result<usize> {
    (&mut &*SockRef::from(socket)).read(bytes)
}

pub(crate) fn receive_vectored(
    socket: &impl AsSocket,
    buffers: &mut [IoSliceMut<'_>],
) -> io::Result<usize> {
    (&mut &*SockRef::from(socket)).read_vectored(buffers)
}

/// For Unix streams, of which there are none.
pub(crate) fn receive_alone(
    socket: &impl AsSocket,
    buffers: &mut [IoSliceMut<'_>],
) -> io::Result<(usize, bool)> {
    Ok((receive_vectored(socket, buffers)?, false))
}

pub(crate) fn send(socket: &impl AsSocket, bytes: &[u8]) -> io::Result<usize> {
    SockRef::from(socket).send(bytes)
}

/// What a read says of an empty socket is true.
pub(crate) fn is_readable_after_all(_: &impl AsSocket) -> bool {
    false
}

/// For Unix sockets, of which there are none.
pub(crate) fn has_room(_: &impl AsSocket) -> bool {
    false
}

/// What a receive says of an empty socket is true.
pub(crate) fn has_ended(_: &impl AsSocket) -> bool {
    false
}

/// What a public interface asks of whoever has a descriptor.
pub(crate) use std::os::windows::io::AsSocket as HasDescriptor;

/// The same socket once more, as if it had a second owner.
///
/// # Safety
///
/// What this gives must never be dropped, and not be used once the socket is closed.
pub(crate) unsafe fn take_as_owned(socket: BorrowedDescriptor<'_>) -> OwnedDescriptor {
    use std::os::windows::io::FromRawSocket;

    // SAFETY: the socket is open, and the caller sees to it that only its owner closes it.
    unsafe { OwnedDescriptor::from_raw_socket(socket.as_raw_socket()) }
}

/// Whether a read, or a write, would not block right now: the level, whatever edges were told. An
/// error and a hang-up count, since the operation tells of them at once.
pub(crate) fn is_ready(socket: &impl AsSocket, to_write: bool) -> io::Result<bool> {
    use windows_sys::Win32::Networking::WinSock::{
        POLLNVAL, POLLRDNORM, POLLWRNORM, SOCKET, WSAENOTSOCK, WSAPOLLFD, WSAPoll,
    };

    let mut asked = WSAPOLLFD {
        fd: socket.as_socket().as_raw_socket() as SOCKET,
        events: match to_write {
            true => POLLWRNORM,
            false => POLLRDNORM,
        },
        revents: 0,
    };
    // SAFETY: one structure, which is ours, and the number 1 that says so.
    if unsafe { WSAPoll(&mut asked, 1, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    match asked.revents & POLLNVAL {
        0 => Ok(asked.revents != 0),
        _ => Err(io::Error::from_raw_os_error(WSAENOTSOCK)),
    }
}

/// What can be borrowed as a socket is one.
pub(crate) fn is_file(_: &impl AsSocket) -> io::Result<bool> {
    Ok(false)
}

pub(crate) fn set_nonblocking(socket: &impl AsSocket) -> io::Result<()> {
    SockRef::from(socket).set_nonblocking(true)
}

/// What an error of `accept` says of the next attempt.
pub(crate) fn after_accept_error(error: &io::Error) -> AfterAcceptError {
    use windows_sys::Win32::Networking::WinSock::{
        WSA_NOT_ENOUGH_MEMORY, WSAEBADF, WSAEFAULT, WSAEINVAL, WSAEMFILE, WSAENOBUFS, WSAENOTSOCK,
        WSANOTINITIALISED,
    };

    match error.raw_os_error() {
        Some(WSAEMFILE | WSAENOBUFS | WSA_NOT_ENOUGH_MEMORY) => AfterAcceptError::Rest,
        Some(WSAEBADF | WSAEFAULT | WSAEINVAL | WSAENOTSOCK | WSANOTINITIALISED) => {
            AfterAcceptError::End
        }
        _ => AfterAcceptError::Again,
    }
}

/// How many slices one vectored call may have: `IOV_MAX` where there is one (it is 1,024 on all of
/// Linux, Apple's systems, the BSDs and illumos). More is an error, so the rest waits its turn.
pub(crate) const MAX_SLICES: usize = 1_024;

/// Accepts one connection, non-blocking and not inherited by children.
pub(crate) fn accept(listener: &impl AsSocket) -> io::Result<(OwnedDescriptor, SockAddr)> {
    let (socket, address) = SockRef::from(listener).accept()?;
    socket.set_nonblocking(true)?;
    Ok((socket.into(), address))
}

/// Whether a socket listens: this is found out when it is used.
pub(crate) fn is_listening(_: &impl AsSocket) -> Option<bool> {
    None
}

/// What a socket needs that others made, besides being non-blocking: nothing.
pub(crate) fn prepare(_: &SockRef<'_>) -> io::Result<()> {
    Ok(())
}

/// Whether an error says that a non-blocking connect has begun.
pub(crate) fn is_in_progress(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// See the other platforms' one.
pub(crate) const COARSENESS: Duration = Duration::ZERO;

/// There is no coarse clock beside the precise one.
pub(crate) fn precise_time() -> Option<Duration> {
    None
}

/// Likewise.
pub(crate) fn coarse_time() -> Option<Duration> {
    None
}

/// A descriptor that is always writable, for all that a poller says.
#[cfg(all(feature = "async-io", not(loom)))]
pub(crate) fn always_writable() -> io::Result<OwnedDescriptor> {
    Ok(std::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0))?.into())
}
