//! Code that only sockets need, and that is the same on Unix and Windows: the feature `net`.

use std::io;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
use std::io::{IoSliceMut, Read};

#[cfg(not(any(target_os = "linux", target_os = "android")))]
use socket2::SockRef;

use super::{
    HasDescriptor, TCP_LEVEL, TCP_OPTIONS, get_number, is_unknown_option, set_number, unsupported,
};

/// The maximum number of slices of one vectored call: `IOV_MAX`, if there is one (1,024 on Linux,
/// Apple's systems, the BSDs and illumos). More is an error, so the rest is left to the next call.
pub(crate) const MAX_SLICES: usize = 1_024;

/// Whether a stream that connects is reported as writable only once it is connected, or together
/// with an error or a hang-up: `tcp_poll` in Linux's net/ipv4/tcp.c.
pub(crate) const IS_WRITABLE_ONCE_CONNECTED: bool =
    cfg!(any(target_os = "linux", target_os = "android"));

/// Receives from a stream over IP.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn receive_vectored(
    socket: &impl HasDescriptor,
    buffers: &mut [IoSliceMut<'_>],
) -> io::Result<usize> {
    (&mut &*SockRef::from(socket)).read_vectored(buffers)
}

/// Receives from a Unix stream, which Windows does not have. Only Linux reports that a short read
/// has left nothing (`unix/net.rs`), so here it is never believed.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn receive_message(
    socket: &impl HasDescriptor,
    buffers: &mut [IoSliceMut<'_>],
) -> io::Result<(usize, bool)> {
    Ok((receive_vectored(socket, buffers)?, false))
}

/// Whether a short read has drained a stream over IP. Unix systems other than Linux and FreeBSD
/// cannot report the protocol (they have no `SO_PROTOCOL`), and are taken to have plain TCP. On
/// Windows it is always so: interest is re-armed for each wait, which checks the system's state.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
pub(crate) fn is_plain_tcp(_: &impl HasDescriptor) -> bool {
    true
}

/// The consequence of an error of `accept` for the next attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AfterAcceptError {
    /// It concerns one connection.
    Again,
    /// A resource is exhausted: the next attempt should wait.
    Rest,
    /// The socket does not listen.
    End,
}

/// An option of TCP that has a number for its value, and that not every system has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TcpOption {
    /// Seconds from the last sign of life to keepalive's first probe.
    KeepIdle,
    /// Seconds between probes.
    KeepInterval,
    /// Probes without an answer after which the connection ends.
    KeepCount,
    /// Milliseconds for which data may stay unacknowledged; zero means the system's default.
    UserTimeout,
}

impl TcpOption {
    /// The number of options. Tables are in their order.
    pub(crate) const COUNT: usize = 4;

    /// Returns the greatest value that Linux takes: include/net/tcp.h, `MAX_TCP_KEEPIDLE` and so
    /// on.
    #[cfg_attr(not(feature = "sim"), allow(dead_code))]
    pub(crate) fn max_of_linux(self) -> u32 {
        match self {
            TcpOption::KeepIdle | TcpOption::KeepInterval => 32_767,
            TcpOption::KeepCount => 127,
            TcpOption::UserTimeout => i32::MAX as u32,
        }
    }

    /// The error where the system does not have it.
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

/// Returns the value of an option, or `None` if the system does not have it.
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

/// Sets an option to a value that is at most [`max_of`](super::max_of) it.
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
