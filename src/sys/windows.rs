//! Windows, where a descriptor is a socket.

use std::any::Any;
use std::io;
use std::os::windows::io::{AsRawSocket, AsSocket};
use std::time::Duration;

use super::{AsDescriptor, AsRawDescriptor, c_result};
use crate::sync::{Mutex, MutexGuard};

#[cfg(feature = "net")]
mod net;
#[cfg(feature = "net")]
pub(crate) use net::*;

pub(crate) use std::os::windows::io::{
    BorrowedSocket as BorrowedDescriptor, OwnedSocket as OwnedDescriptor,
    RawSocket as RawDescriptor,
};

impl<T: AsSocket> AsDescriptor for T {
    fn as_descriptor(&self) -> BorrowedDescriptor<'_> {
        self.as_socket()
    }
}

impl<T: AsRawSocket> AsRawDescriptor for T {
    fn as_raw_descriptor(&self) -> RawDescriptor {
        self.as_raw_socket()
    }
}

/// Implements the platform's traits: `lend_descriptor!([generics] type, |it| descriptor)`.
macro_rules! lend_descriptor {
    ([$($generics:tt)*] $type:ty, |$it:ident| $descriptor:expr) => {
        impl<$($generics)*> std::os::windows::io::AsSocket for $type {
            #[inline]
            fn as_socket(&self) -> std::os::windows::io::BorrowedSocket<'_> {
                let $it = self;
                $descriptor
            }
        }

        impl<$($generics)*> std::os::windows::io::AsRawSocket for $type {
            #[inline]
            fn as_raw_socket(&self) -> std::os::windows::io::RawSocket {
                let $it = self;
                std::os::windows::io::AsRawSocket::as_raw_socket(&$descriptor)
            }
        }
    };
}
pub(crate) use lend_descriptor;

pub(crate) use std::os::windows::io::AsSocket as HasDescriptor;

pub(crate) fn readable_bytes(_socket: &impl AsSocket) -> Option<u64> {
    None
}

pub(crate) fn check_end(_: &impl AsSocket) -> io::Result<()> {
    Ok(())
}

pub(crate) fn is_readable_after_all(_: &impl AsSocket) -> bool {
    false
}

/// See the Unix version.
pub(crate) fn is_ready(socket: &impl AsSocket, to_write: bool) -> io::Result<bool> {
    use windows_sys::Win32::Networking::WinSock::{
        POLLNVAL, POLLRDNORM, POLLWRNORM, SOCKET, WSAENOTSOCK, WSAPOLLFD, WSAPoll,
    };

    let mut asked = WSAPOLLFD {
        fd: socket.as_socket().as_raw_socket() as SOCKET,
        events: if to_write { POLLWRNORM } else { POLLRDNORM },
        revents: 0,
    };
    // SAFETY: one structure, which is ours, and the count 1.
    if unsafe { WSAPoll(&mut asked, 1, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    match asked.revents & POLLNVAL {
        0 => Ok(asked.revents != 0),
        _ => Err(io::Error::from_raw_os_error(WSAENOTSOCK)),
    }
}

/// Only sockets can be waited for, and they have their own types.
pub(crate) fn wait_for_value(_: &dyn Any, _: bool, _: Duration) -> Option<bool> {
    None
}

/// No error number for it is checked by programs.
pub(crate) fn is_out_of_descriptors(_: &io::Error) -> bool {
    false
}

/// Windows has no error queues.
pub(crate) fn is_only_an_error(_: &impl AsSocket) -> io::Result<[bool; 2]> {
    Ok([false; 2])
}

pub(crate) fn is_file(_: &impl AsSocket) -> io::Result<bool> {
    Ok(false)
}

pub(crate) fn has_foreign_rights() -> bool {
    false
}

pub(crate) fn is_private_file(file: &std::fs::File) -> io::Result<bool> {
    Ok(file.metadata()?.is_file())
}

pub(crate) fn sleep_by_processor_time(_: std::time::Duration) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

pub(crate) fn thread_cpu_time(_: u32) -> Option<std::time::Duration> {
    None
}

pub(crate) fn thread_id() -> u32 {
    0
}

pub(crate) fn set_nonblocking(socket: &impl AsSocket) -> io::Result<()> {
    use windows_sys::Win32::Networking::WinSock::{FIONBIO, SOCKET, ioctlsocket};

    let mut on = 1;
    // SAFETY: the socket is open while it is lent, and the number is valid for reads.
    let result = unsafe {
        ioctlsocket(
            socket.as_socket().as_raw_socket() as SOCKET,
            FIONBIO,
            &mut on,
        )
    };
    c_result(result)
}

/// Windows has no `fork`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Process;

impl Process {
    pub(crate) fn current() -> Process {
        Process
    }

    pub(crate) fn is_current(self) -> bool {
        true
    }

    pub(crate) fn lock<T>(self, mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        Some(mutex.lock())
    }
}

pub(crate) fn has_kernel_clock() -> bool {
    false
}

#[cfg(feature = "async-io")]
pub(crate) fn ready_now<'a>(
    asked: impl Iterator<Item = (BorrowedDescriptor<'a>, bool, bool)>,
) -> io::Result<Vec<(bool, bool)>> {
    asked
        .map(|(socket, reads, writes)| {
            Ok((
                reads && is_ready(&socket, false)?,
                writes && is_ready(&socket, true)?,
            ))
        })
        .collect()
}
