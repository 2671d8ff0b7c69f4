//! Descriptions of descriptors, and of a kernel's sockets, that tasks wait for.

use std::io;

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
            let [local, peer] = [socket.local_addr(), socket.peer_addr()].map(text);
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
    let peer = socket.peer_addr().map(|peer| sys::address_of(&peer));
    (kind, text(Ok(sys::address_of(&local))), text(peer))
}

#[cfg(not(feature = "net"))]
fn describe_descriptor(_: sys::BorrowedDescriptor<'_>) -> Description {
    ("descriptor", None, None)
}

fn text(address: io::Result<Address>) -> Option<String> {
    match address.ok()? {
        Address::Unix(Name::Unnamed) => None,
        named => Some(named.to_string()),
    }
}
