//! Descriptions of descriptors, and of a kernel's sockets, that tasks wait for.

use crate::kernel::{
    self,
    sockets::{Address, Name},
};
use crate::reactor::{Source, SourceKind};
use crate::sys;

/// The kind of a descriptor, and its local and peer address.
type Description = (&'static str, Option<String>, Option<String>);

/// The descriptor may be one that polder did not make.
pub(super) fn describe(source: &Source) -> Description {
    let (kind, local, peer) = match source.descriptor_or_custom() {
        Ok(descriptor) => describe_descriptor(descriptor),
        Err(socket) => {
            let addresses = [socket.local_addr(), socket.peer_addr()];
            let [local, peer] = addresses.map(|address| text_of(address.ok()?));
            return (socket.kind(), local, peer);
        }
    };
    let kind = match source.kind() {
        SourceKind::Borrowed | SourceKind::Other => kind,
        SourceKind::TcpStream => "TCP",
        SourceKind::UnixStream => "Unix stream",
    };
    (kind, local, peer)
}

pub(super) fn is_readable(source: &Source) -> bool {
    let is_readable = match source.descriptor_or_custom() {
        Ok(descriptor) => sys::is_ready(&descriptor, false),
        Err(socket) => (socket.ready()).map(|ready| ready & kernel::READABLE != 0),
    };
    is_readable.unwrap_or(false)
}

/// Returns the number of readable bytes, or `None` if it is unknown or zero.
pub(super) fn readable_bytes(source: &Source) -> Option<u64> {
    let descriptor = source.descriptor_or_custom().ok()?;
    sys::readable_bytes(&descriptor).filter(|bytes| *bytes > 0)
}

#[cfg(feature = "net")]
fn describe_descriptor(descriptor: sys::BorrowedDescriptor<'_>) -> Description {
    use socket2::{SockRef, Type};

    let socket = SockRef::from(&descriptor);
    let (Ok(of_type), Ok(local)) = (socket.r#type(), socket.local_addr()) else {
        return ("descriptor", None, None);
    };
    let (is_unix, is_ip) = (local.is_unix(), local.is_ipv4() || local.is_ipv6());
    let kind = match of_type {
        Type::STREAM if is_unix => "Unix stream",
        Type::DGRAM if is_unix => "Unix datagram",
        Type::STREAM if is_ip => "TCP",
        Type::DGRAM if is_ip => "UDP",
        _ => "socket",
    };
    let peer = socket.peer_addr().ok().and_then(|peer| text(&peer));
    (kind, text(&local), peer)
}

#[cfg(not(feature = "net"))]
fn describe_descriptor(_: sys::BorrowedDescriptor<'_>) -> Description {
    ("descriptor", None, None)
}

/// [`text`] of an address in the kernels' form.
fn text_of(address: Address) -> Option<String> {
    match address {
        Address::Unix(Name::Unnamed) => None,
        named => Some(named.to_string()),
    }
}

#[cfg(feature = "net")]
fn text(address: &socket2::SockAddr) -> Option<String> {
    if let Some(address) = address.as_socket() {
        return Some(address.to_string());
    }
    #[cfg(unix)]
    if let Some(path) = address.as_pathname() {
        return Some(path.display().to_string());
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Some(name) = address.as_abstract_namespace() {
        return Some(format!("@{}", String::from_utf8_lossy(name)));
    }
    None
}
