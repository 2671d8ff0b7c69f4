//! [`Errno`]: what the simulated kernel refuses, and why.
//!
//! It becomes an [`io::Error`] with the system's own number, since programs look at that. On
//! Windows, whose numbers are others, it has its kind alone, or the number where it has no kind.

use std::io;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(unix), allow(dead_code))]
pub(super) enum Errno {
    AddressFamily,
    AddrInUse,
    AddrNotAvailable,
    BrokenPipe,
    ConnectionAborted,
    ConnectionRefused,
    ConnectionReset,
    DestinationRequired,
    HostUnreachable,
    InvalidInput,
    MessageSize,
    NetworkUnreachable,
    NoDescriptor,
    NotConnected,
    NotFound,
    NotPermitted,
    PermissionDenied,
    TimedOut,
    WouldBlock,
    WrongType,
}

impl From<Errno> for io::Error {
    #[cfg(unix)]
    fn from(errno: Errno) -> io::Error {
        io::Error::from_raw_os_error(match errno {
            Errno::AddressFamily => libc::EAFNOSUPPORT,
            Errno::AddrInUse => libc::EADDRINUSE,
            Errno::AddrNotAvailable => libc::EADDRNOTAVAIL,
            Errno::BrokenPipe => libc::EPIPE,
            Errno::ConnectionAborted => libc::ECONNABORTED,
            Errno::ConnectionRefused => libc::ECONNREFUSED,
            Errno::ConnectionReset => libc::ECONNRESET,
            Errno::DestinationRequired => libc::EDESTADDRREQ,
            Errno::HostUnreachable => libc::EHOSTUNREACH,
            Errno::InvalidInput => libc::EINVAL,
            Errno::MessageSize => libc::EMSGSIZE,
            Errno::NetworkUnreachable => libc::ENETUNREACH,
            Errno::NoDescriptor => libc::EMFILE,
            Errno::NotConnected => libc::ENOTCONN,
            Errno::NotFound => libc::ENOENT,
            Errno::NotPermitted => libc::EPERM,
            Errno::PermissionDenied => libc::EACCES,
            Errno::TimedOut => libc::ETIMEDOUT,
            Errno::WouldBlock => libc::EAGAIN,
            Errno::WrongType => libc::EPROTOTYPE,
        })
    }

    #[cfg(windows)]
    fn from(errno: Errno) -> io::Error {
        use windows_sys::Win32::Networking::WinSock;

        let kind = match errno {
            Errno::AddressFamily => return of_number(WinSock::WSAEAFNOSUPPORT),
            Errno::DestinationRequired => return of_number(WinSock::WSAEDESTADDRREQ),
            Errno::MessageSize => return of_number(WinSock::WSAEMSGSIZE),
            Errno::NoDescriptor => return of_number(WinSock::WSAEMFILE),
            Errno::WrongType => return of_number(WinSock::WSAEPROTOTYPE),
            Errno::AddrInUse => io::ErrorKind::AddrInUse,
            Errno::AddrNotAvailable => io::ErrorKind::AddrNotAvailable,
            Errno::BrokenPipe => io::ErrorKind::BrokenPipe,
            Errno::ConnectionAborted => io::ErrorKind::ConnectionAborted,
            Errno::ConnectionRefused => io::ErrorKind::ConnectionRefused,
            Errno::ConnectionReset => io::ErrorKind::ConnectionReset,
            Errno::HostUnreachable => io::ErrorKind::HostUnreachable,
            Errno::InvalidInput => io::ErrorKind::InvalidInput,
            Errno::NetworkUnreachable => io::ErrorKind::NetworkUnreachable,
            Errno::NotConnected => io::ErrorKind::NotConnected,
            Errno::NotFound => io::ErrorKind::NotFound,
            Errno::NotPermitted | Errno::PermissionDenied => io::ErrorKind::PermissionDenied,
            Errno::TimedOut => io::ErrorKind::TimedOut,
            Errno::WouldBlock => io::ErrorKind::WouldBlock,
        };
        kind.into()
    }
}

#[cfg(windows)]
fn of_number(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}
