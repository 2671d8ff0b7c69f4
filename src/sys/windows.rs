//! Windows: a socket is a handle of its own kind.

use std::io::{self, IoSliceMut, Read};
use std::os::windows::io::{AsRawSocket, AsSocket};

use socket2::{SockAddr, SockRef};

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
