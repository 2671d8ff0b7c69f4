//! Sockets: what Unix and Windows share.

use std::io;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
use std::io::{IoSliceMut, Read};
use std::net::{Ipv4Addr, SocketAddr};

#[cfg(not(any(target_os = "linux", target_os = "android")))]
use socket2::SockRef;

pub(crate) use crate::kernel::sockets::TcpOption;

use super::{
    HasDescriptor, TCP_LEVEL, TCP_OPTIONS, get_number, is_unknown_option, set_number, unsupported,
};

/// `IOV_MAX` of systems that have one (Linux, Apple's, the BSDs and illumos). Further slices are
/// left to the next call.
pub(crate) const MAX_SLICES: usize = 1_024;

/// Whether a connecting stream is writable only once it is connected, or has failed: `tcp_poll` in
/// Linux's net/ipv4/tcp.c.
pub(crate) const IS_WRITABLE_ONCE_CONNECTED: bool =
    cfg!(any(target_os = "linux", target_os = "android"));

/// The number of tasks that run between two polls, and 17 KiB of stack.
pub(crate) const MAX_DATAGRAMS: usize = 64;

/// Whether fewer datagrams than requested mean that there are no more, or an error that causes an
/// event. On FreeBSD and NetBSD [`receive_many`](super::receive_many) also stops at an error that
/// was reported before.
pub(crate) const ENDS_WHEN_DRAINED: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// A datagram received by [`UdpSocket::recv_many`](crate::net::UdpSocket::recv_many).
///
/// ```
/// use polder::net::Received;
///
/// let received = [Received::default(); 4]; // Room for four datagrams.
/// assert!(received[0].length == 0 && received[0].from.ip().is_unspecified());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Received {
    /// The number of bytes in the buffer.
    pub length: usize,
    /// The sender's address.
    pub from: SocketAddr,
    /// Whether the datagram was longer than the buffer, and its end is lost.
    pub is_truncated: bool,
}

impl Default for Received {
    /// No bytes, from `0.0.0.0:0`.
    fn default() -> Received {
        Received::new(0, None, false)
    }
}

impl Received {
    pub(crate) fn new(length: usize, from: Option<SocketAddr>, is_truncated: bool) -> Received {
        Received {
            length,
            from: from.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into()),
            is_truncated,
        }
    }
}

/// A datagram for [`UdpSocket::send_many`](crate::net::UdpSocket::send_many).
///
/// ```
/// use polder::net::Datagram;
///
/// let to_the_peer = Datagram { bytes: b"hello", to: None };
/// let to_another = Datagram { to: Some(([127, 0, 0, 1], 9).into()), ..to_the_peer };
/// assert_eq!(to_another.bytes, b"hello");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// Its content.
    pub bytes: &'a [u8],
    /// The destination; `None` is the [peer](crate::net::UdpSocket::connect).
    pub to: Option<SocketAddr>,
}

/// Only Linux reports that a short read has drained a Unix stream (`unix/net.rs`).
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn receive_message(
    socket: &impl HasDescriptor,
    buffers: &mut [IoSliceMut<'_>],
) -> io::Result<(usize, bool)> {
    let read = (&mut &*SockRef::from(socket)).read_vectored(buffers)?;
    Ok((read, false))
}

/// Whether a short read has drained a stream over IP. Other Unix systems lack `SO_PROTOCOL`, and
/// are assumed to have plain TCP. On Windows interest is re-armed for each wait, which checks the
/// system's state.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
pub(crate) fn is_plain_tcp(_: &impl HasDescriptor) -> bool {
    true
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AfterAcceptError {
    Again,
    /// A resource is exhausted: the next attempt should wait.
    Rest,
    /// The socket does not listen.
    End,
}

impl TcpOption {
    pub(crate) const COUNT: usize = 4;

    /// Returns Linux's maximum: `MAX_TCP_KEEPIDLE` and others in include/net/tcp.h.
    pub(crate) fn max_of_linux(self) -> u32 {
        match self {
            TcpOption::KeepIdle | TcpOption::KeepInterval => 32_767,
            TcpOption::KeepCount => 127,
            TcpOption::UserTimeout => i32::MAX as u32,
        }
    }

    fn unsupported(self) -> io::Error {
        let name = match self {
            TcpOption::KeepIdle => "TCP_KEEPIDLE",
            TcpOption::KeepInterval => "TCP_KEEPINTVL",
            TcpOption::KeepCount => "TCP_KEEPCNT",
            TcpOption::UserTimeout => "TCP_USER_TIMEOUT",
        };
        unsupported(format!("this system does not have the option {name}"))
    }
}

/// Returns `None` if the system lacks the option.
pub(crate) fn tcp_option(
    socket: &impl HasDescriptor,
    option: TcpOption,
) -> io::Result<Option<u32>> {
    let Some(name) = TCP_OPTIONS[option as usize] else {
        return Ok(None);
    };
    match get_number(socket, TCP_LEVEL, name) {
        Err(error) if is_unknown_option(&error) => Ok(None),
        other => other.map(|value| u32::try_from(value).ok()),
    }
}

/// Sets an option, whose value must be at most [`max_of`](super::max_of) it.
pub(crate) fn set_tcp_option(
    socket: &impl HasDescriptor,
    option: TcpOption,
    value: u32,
) -> io::Result<()> {
    let Some(name) = TCP_OPTIONS[option as usize] else {
        return Err(option.unsupported());
    };
    match set_number(socket, TCP_LEVEL, name, value as i32) {
        Err(error) if is_unknown_option(&error) => Err(option.unsupported()),
        other => other,
    }
}
