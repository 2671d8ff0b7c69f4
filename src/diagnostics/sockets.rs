//! The kernel's description of a descriptor that a task waits for.

use crate::sys::BorrowedDescriptor;

/// The kind of a descriptor, and its addresses, if it has any.
#[derive(Default)]
pub(super) struct Described {
    pub(super) kind: &'static str,
    pub(super) local: Option<String>,
    pub(super) peer: Option<String>,
}

/// A descriptor that is no socket, or cannot be described.
const OTHER: &str = "descriptor";

#[cfg(feature = "net")]
pub(super) fn describe(descriptor: BorrowedDescriptor<'_>) -> Described {
    use socket2::{SockRef, Type};

    let socket = SockRef::from(&descriptor);
    let (Ok(of_type), Ok(local)) = (socket.r#type(), socket.local_addr()) else {
        return Described {
            kind: OTHER,
            ..Described::default()
        };
    };
    let (is_unix, is_ip) = (local.is_unix(), local.is_ipv4() || local.is_ipv6());
    let kind = match of_type {
        Type::STREAM if is_unix => "Unix stream",
        Type::DGRAM if is_unix => "Unix datagram",
        Type::STREAM if is_ip => "TCP",
        Type::DGRAM if is_ip => "UDP",
        _ => "socket",
    };
    Described {
        kind,
        local: text(&local),
        peer: socket.peer_addr().ok().and_then(|peer| text(&peer)),
    }
}

#[cfg(not(feature = "net"))]
pub(super) fn describe(_: BorrowedDescriptor<'_>) -> Described {
    Described {
        kind: OTHER,
        ..Described::default()
    }
}

/// Returns the address as text, or `None` for an unnamed address.
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
