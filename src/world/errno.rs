//! [`Errno`]: the errors of the simulated kernel.
//!
//! It is converted to an [`io::Error`] with the system's own number, since programs examine that.
//! On Windows, which has other numbers, the error has only its kind, or the number if there is no
//! kind.

use std::io;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(unix), allow(dead_code))]
pub(super) enum Errno {
    AddrInUse,
    AddrNotAvailable,
    AddressFamily,
    AlreadyExists,
    BadDescriptor,
    BrokenPipe,
    Busy,
    ConnectionAborted,
    ConnectionRefused,
    ConnectionReset,
    DestinationRequired,
    DirectoryNotEmpty,
    FileTooLarge,
    HostUnreachable,
    InvalidInput,
    Io,
    IsADirectory,
    MessageSize,
    NameTooLong,
    NetworkUnreachable,
    NoDescriptor,
    NotADirectory,
    NotConnected,
    NotFound,
    NotPermitted,
    PermissionDenied,
    StorageFull,
    TimedOut,
    WouldBlock,
    WrongType,
}

impl From<Errno> for io::Error {
    #[cfg(unix)]
    fn from(errno: Errno) -> io::Error {
        io::Error::from_raw_os_error(match errno {
            Errno::AddrInUse => libc::EADDRINUSE,
            Errno::AddrNotAvailable => libc::EADDRNOTAVAIL,
            Errno::AddressFamily => libc::EAFNOSUPPORT,
            Errno::AlreadyExists => libc::EEXIST,
            Errno::BadDescriptor => libc::EBADF,
            Errno::BrokenPipe => libc::EPIPE,
            Errno::Busy => libc::EBUSY,
            Errno::ConnectionAborted => libc::ECONNABORTED,
            Errno::ConnectionRefused => libc::ECONNREFUSED,
            Errno::ConnectionReset => libc::ECONNRESET,
            Errno::DestinationRequired => libc::EDESTADDRREQ,
            Errno::DirectoryNotEmpty => libc::ENOTEMPTY,
            Errno::FileTooLarge => libc::EFBIG,
            Errno::HostUnreachable => libc::EHOSTUNREACH,
            Errno::InvalidInput => libc::EINVAL,
            Errno::Io => libc::EIO,
            Errno::IsADirectory => libc::EISDIR,
            Errno::MessageSize => libc::EMSGSIZE,
            Errno::NameTooLong => libc::ENAMETOOLONG,
            Errno::NetworkUnreachable => libc::ENETUNREACH,
            Errno::NoDescriptor => libc::EMFILE,
            Errno::NotADirectory => libc::ENOTDIR,
            Errno::NotConnected => libc::ENOTCONN,
            Errno::NotFound => libc::ENOENT,
            Errno::NotPermitted => libc::EPERM,
            Errno::PermissionDenied => libc::EACCES,
            Errno::StorageFull => libc::ENOSPC,
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
            // Windows has several such errors, but none that means this.
            Errno::Io => return io::Error::other("an error of the simulated disk"),
            Errno::AddrInUse => io::ErrorKind::AddrInUse,
            Errno::AddrNotAvailable => io::ErrorKind::AddrNotAvailable,
            Errno::AlreadyExists => io::ErrorKind::AlreadyExists,
            Errno::BadDescriptor => io::ErrorKind::PermissionDenied,
            Errno::BrokenPipe => io::ErrorKind::BrokenPipe,
            Errno::Busy => io::ErrorKind::ResourceBusy,
            Errno::ConnectionAborted => io::ErrorKind::ConnectionAborted,
            Errno::ConnectionRefused => io::ErrorKind::ConnectionRefused,
            Errno::ConnectionReset => io::ErrorKind::ConnectionReset,
            Errno::DirectoryNotEmpty => io::ErrorKind::DirectoryNotEmpty,
            Errno::FileTooLarge => io::ErrorKind::FileTooLarge,
            Errno::HostUnreachable => io::ErrorKind::HostUnreachable,
            Errno::InvalidInput => io::ErrorKind::InvalidInput,
            Errno::IsADirectory => io::ErrorKind::IsADirectory,
            Errno::NameTooLong => io::ErrorKind::InvalidInput,
            Errno::NetworkUnreachable => io::ErrorKind::NetworkUnreachable,
            Errno::NotADirectory => io::ErrorKind::NotADirectory,
            Errno::NotConnected => io::ErrorKind::NotConnected,
            Errno::NotFound => io::ErrorKind::NotFound,
            Errno::NotPermitted | Errno::PermissionDenied => io::ErrorKind::PermissionDenied,
            Errno::StorageFull => io::ErrorKind::StorageFull,
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
