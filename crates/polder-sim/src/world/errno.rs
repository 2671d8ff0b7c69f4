//! [`Errno`]: the errors of the simulated kernel; and those that no other kernel has.
//!
//! An `Errno` is converted to an [`io::Error`] with the system's own number, since programs examine
//! that. On Windows, which has other numbers, the error has only its kind, or the number if there
//! is no kind.

use std::io;

#[cfg(unix)]
pub(super) use rustix::io::Errno;
#[cfg(windows)]
pub(super) use windows::Errno;

#[cfg(windows)]
mod windows {
    use std::io::{self, ErrorKind};

    use windows_sys::Win32::Networking::WinSock;

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(in crate::world) enum Errno {
        Kind(ErrorKind),
        Number(i32),
        /// Windows has several errors of disks, but none that means this.
        Disk,
    }

    /// The names are rustix's.
    #[allow(dead_code)]
    impl Errno {
        pub(in crate::world) const ACCESS: Errno = Errno::Kind(ErrorKind::PermissionDenied);
        pub(in crate::world) const ADDRINUSE: Errno = Errno::Kind(ErrorKind::AddrInUse);
        pub(in crate::world) const ADDRNOTAVAIL: Errno = Errno::Kind(ErrorKind::AddrNotAvailable);
        pub(in crate::world) const AFNOSUPPORT: Errno = Errno::Number(WinSock::WSAEAFNOSUPPORT);
        pub(in crate::world) const AGAIN: Errno = Errno::Kind(ErrorKind::WouldBlock);
        pub(in crate::world) const BADF: Errno = Errno::Kind(ErrorKind::PermissionDenied);
        pub(in crate::world) const BUSY: Errno = Errno::Kind(ErrorKind::ResourceBusy);
        pub(in crate::world) const CONNABORTED: Errno = Errno::Kind(ErrorKind::ConnectionAborted);
        pub(in crate::world) const CONNREFUSED: Errno = Errno::Kind(ErrorKind::ConnectionRefused);
        pub(in crate::world) const CONNRESET: Errno = Errno::Kind(ErrorKind::ConnectionReset);
        pub(in crate::world) const DESTADDRREQ: Errno = Errno::Number(WinSock::WSAEDESTADDRREQ);
        pub(in crate::world) const EXIST: Errno = Errno::Kind(ErrorKind::AlreadyExists);
        pub(in crate::world) const FBIG: Errno = Errno::Kind(ErrorKind::FileTooLarge);
        pub(in crate::world) const HOSTUNREACH: Errno = Errno::Kind(ErrorKind::HostUnreachable);
        pub(in crate::world) const INVAL: Errno = Errno::Kind(ErrorKind::InvalidInput);
        pub(in crate::world) const IO: Errno = Errno::Disk;
        pub(in crate::world) const ISDIR: Errno = Errno::Kind(ErrorKind::IsADirectory);
        pub(in crate::world) const MFILE: Errno = Errno::Number(WinSock::WSAEMFILE);
        pub(in crate::world) const MSGSIZE: Errno = Errno::Number(WinSock::WSAEMSGSIZE);
        pub(in crate::world) const NAMETOOLONG: Errno = Errno::Kind(ErrorKind::InvalidInput);
        pub(in crate::world) const NETUNREACH: Errno = Errno::Kind(ErrorKind::NetworkUnreachable);
        pub(in crate::world) const NOENT: Errno = Errno::Kind(ErrorKind::NotFound);
        pub(in crate::world) const NOSPC: Errno = Errno::Kind(ErrorKind::StorageFull);
        pub(in crate::world) const NOTCONN: Errno = Errno::Kind(ErrorKind::NotConnected);
        pub(in crate::world) const NOTDIR: Errno = Errno::Kind(ErrorKind::NotADirectory);
        pub(in crate::world) const NOTEMPTY: Errno = Errno::Kind(ErrorKind::DirectoryNotEmpty);
        pub(in crate::world) const PERM: Errno = Errno::Kind(ErrorKind::PermissionDenied);
        pub(in crate::world) const PIPE: Errno = Errno::Kind(ErrorKind::BrokenPipe);
        pub(in crate::world) const PROTOTYPE: Errno = Errno::Number(WinSock::WSAEPROTOTYPE);
        pub(in crate::world) const TIMEDOUT: Errno = Errno::Kind(ErrorKind::TimedOut);
    }

    impl From<Errno> for io::Error {
        fn from(errno: Errno) -> io::Error {
            match errno {
                Errno::Kind(kind) => kind.into(),
                Errno::Number(number) => io::Error::from_raw_os_error(number),
                Errno::Disk => io::Error::other("an error of the simulated disk"),
            }
        }
    }
}

/// The error of a call on a socket that its host's kernel has forgotten.
pub(super) fn gone() -> io::Error {
    io::Error::other("the process that had this socket has ended")
}

/// The error of a call that a simulated world does not support.
pub(crate) fn unsupported(what: &str) -> io::Error {
    refused(format!("{what}: not in a simulated world"))
}

/// The error of a call that is not possible here.
pub(super) fn refused(words: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, words.into())
}
