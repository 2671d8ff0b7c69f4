//! [`Address`]: the address of a simulated socket, and its conversion from and to the system's
//! form, which the public types use.
//!
//! Each host has its own names of Unix sockets. They are not files: a path is the bytes that the
//! program has written, and no directory is looked up.

use std::io;
use std::net::SocketAddr;

use socket2::SockAddr;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Address {
    Internet(SocketAddr),
    Unix(Name),
}

/// The name of a Unix socket. On other systems there is none.
#[cfg_attr(not(unix), allow(dead_code))]
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Name {
    Unnamed,
    Path(Vec<u8>),
    Abstract(Vec<u8>),
}

impl Address {
    pub(crate) fn of(address: &SockAddr) -> io::Result<Address> {
        if let Some(address) = address.as_socket() {
            return Ok(Address::Internet(address));
        }
        #[cfg(unix)]
        return Ok(Address::Unix(Name::of(address)));
        #[cfg(not(unix))]
        Err(super::unsupported("an address that is not an IP address"))
    }

    pub(crate) fn to_system(&self) -> io::Result<SockAddr> {
        match self {
            Address::Internet(address) => Ok((*address).into()),
            #[cfg(unix)]
            Address::Unix(name) => name.to_system(),
            #[cfg(not(unix))]
            Address::Unix(_) => Err(super::unsupported("a Unix socket")),
        }
    }

    pub(crate) fn internet(&self) -> io::Result<SocketAddr> {
        match self {
            Address::Internet(address) => Ok(*address),
            Address::Unix(_) => Err(super::errno::Errno::AFNOSUPPORT.into()),
        }
    }

    #[cfg_attr(not(unix), allow(dead_code))]
    pub(crate) fn unix(&self) -> io::Result<&Name> {
        match self {
            Address::Internet(_) => Err(super::errno::Errno::AFNOSUPPORT.into()),
            Address::Unix(name) => Ok(name),
        }
    }
}

#[cfg(unix)]
impl Name {
    fn of(address: &SockAddr) -> Name {
        use std::os::unix::ffi::OsStrExt;

        if let Some(name) = address.as_abstract_namespace() {
            return Name::Abstract(name.to_vec());
        }
        match address.as_pathname() {
            Some(path) if !path.as_os_str().is_empty() => {
                Name::Path(path.as_os_str().as_bytes().to_vec())
            }
            _ => Name::Unnamed,
        }
    }

    fn to_system(&self) -> io::Result<SockAddr> {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;

        match self {
            Name::Unnamed => SockAddr::unix(""),
            Name::Path(path) => SockAddr::unix(OsStr::from_bytes(path)),
            Name::Abstract(name) => SockAddr::unix(OsStr::from_bytes(&[&[0], &name[..]].concat())),
        }
    }
}

impl Name {
    /// Describes the name, for reports.
    pub(super) fn describe(&self) -> String {
        match self {
            Name::Unnamed => "without a name".to_owned(),
            Name::Path(path) => String::from_utf8_lossy(path).into_owned(),
            Name::Abstract(name) => format!("@{}", String::from_utf8_lossy(name)),
        }
    }
}
