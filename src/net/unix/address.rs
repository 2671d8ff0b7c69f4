//! Unix addresses and credentials: conversions of paths and the standard library's addresses to the
//! kernel's form and back; and [`UCred`].

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr;
use std::path::Path;

use socket2::{Domain, Type};

use crate::kernel::sockets::Name;
use crate::net::socket::{Address, Socket};
use crate::sys::{self, invalid};

/// Returns the address of a path. The standard library rejects invalid paths; the empty path
/// becomes an unnamed address, which [`to_kernel`] rejects.
pub(super) fn from_path(path: &Path) -> io::Result<SocketAddr> {
    SocketAddr::from_pathname(path).map_err(|error| {
        let words = format!("{path:?} cannot be a Unix socket's address: {error}");
        io::Error::new(error.kind(), words)
    })
}

/// Adds the address to an error of `bind`, as `not_bound` in `addresses.rs` does.
#[cold]
pub(super) fn not_bound(action: &str, address: &SocketAddr, error: io::Error) -> io::Error {
    let help = match (error.kind(), address.as_pathname()) {
        (io::ErrorKind::AddrInUse, Some(_)) => ": the file exists, perhaps without a listener",
        (
            io::ErrorKind::AddrInUse | io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied,
            _,
        ) => "",
        _ => return error,
    };
    let name = match address.as_pathname() {
        Some(path) => format!("{path:?}"),
        None => format!("{address:?}"),
    };
    io::Error::new(
        error.kind(),
        format!("cannot {action} {name}: {error}{help}"),
    )
}

pub(super) fn to_kernel(address: &SocketAddr) -> io::Result<Address> {
    match (sys::abstract_name(address), address.as_pathname()) {
        (Some(name), _) => Ok(Address::Unix(Name::Abstract(name.to_vec()))),
        (None, Some(path)) => Ok(Address::Unix(Name::Path(
            path.as_os_str().as_bytes().to_vec(),
        ))),
        // It cannot be reached. Linux's bind would choose an abstract name (unix(7), "Autobind
        // feature"); elsewhere it is an error of varying kind.
        (None, None) => Err(invalid(
            "an empty path or an unnamed address cannot be a Unix socket's address",
        )),
    }
}

pub(super) fn from_kernel(address: Address) -> io::Result<SocketAddr> {
    let path = match address {
        Address::Unix(Name::Path(path)) => path,
        Address::Unix(Name::Abstract(name)) => match sys::abstract_address(&name) {
            Some(result) => return result,
            None => Vec::new(),
        },
        _ => Vec::new(),
    };
    // The empty path is the address of an unnamed socket. The standard library cannot represent a
    // path without a NUL at its end, which fits the kernel's form: no reason to lose a received
    // datagram or connection.
    SocketAddr::from_pathname(OsStr::from_bytes(&path)).or_else(|_| SocketAddr::from_pathname(""))
}

/// The credentials of a peer: see [`UnixStream::peer_cred`](super::UnixStream::peer_cred).
///
/// ```
/// use polder::net::unix::UnixStream;
///
/// let (near, far) = UnixStream::pair()?;
/// // Both ends are this process.
/// let (one, other) = (near.peer_cred()?, far.peer_cred()?);
/// assert_eq!((one.uid(), one.gid()), (other.uid(), other.gid()));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UCred {
    uid: u32,
    gid: u32,
    pid: Option<i32>,
}

impl UCred {
    pub(super) fn of(socket: &Socket) -> io::Result<UCred> {
        let (uid, gid, pid) = socket.kernel_socket().peer_cred().unwrap_or_else(|| {
            // Both ends are this process.
            let (one, _other) = socket2::Socket::pair(Domain::UNIX, Type::STREAM, None)?;
            sys::peer_cred(&one)
        })?;
        Ok(UCred { uid, gid, pid })
    }

    /// The user ID.
    ///
    /// ```
    /// # #[cfg(target_os = "linux")] {
    /// use polder::net::unix::UnixStream;
    /// use std::os::unix::fs::MetadataExt;
    ///
    /// let (near, _far) = UnixStream::pair()?;
    /// // Only this program's user may continue.
    /// assert_eq!(near.peer_cred()?.uid(), std::fs::metadata("/proc/self")?.uid());
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The group ID.
    ///
    /// ```
    /// # #[cfg(target_os = "linux")] {
    /// use polder::net::unix::UnixStream;
    /// use std::os::unix::fs::MetadataExt;
    ///
    /// let (near, _far) = UnixStream::pair()?;
    /// assert_eq!(near.peer_cred()?.gid(), std::fs::metadata("/proc/self")?.gid());
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// The process ID, if the system reports it: Linux does, unless the process is in another PID
    /// namespace.
    ///
    /// ```
    /// # #[cfg(not(any(target_os = "illumos", target_os = "solaris")))] {
    /// use polder::net::unix::UnixStream;
    ///
    /// let (near, _far) = UnixStream::pair()?;
    /// match near.peer_cred()?.pid() {
    ///     Some(pid) => assert_eq!(pid, std::process::id() as i32),
    ///     None => println!("this system does not report it"),
    /// }
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn pid(&self) -> Option<i32> {
        self.pid
    }
}
