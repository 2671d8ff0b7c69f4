//! Sockets on Windows.

use std::io::{self, Read};
use std::os::windows::io::{AsRawSocket, AsSocket};
use std::time::Duration;

use socket2::{Domain, SockAddr, SockRef, Type};
use windows_sys::Win32::Networking::WinSock;

use super::super::{AfterAcceptError, TcpOption, c_result, unsupported};
use super::OwnedDescriptor;
use crate::kernel::sockets::{Address, Name};

/// Sending to a closed connection raises no signal.
pub(crate) const SEND_FLAGS: i32 = 0;

pub(crate) const RECEIVE_FLAGS: i32 = 0;

pub(crate) const PEEK_FLAGS: i32 = WinSock::MSG_PEEK;

pub(crate) fn not_listening() -> io::Error {
    io::Error::from_raw_os_error(WinSock::WSAEINVAL)
}

/// Options can be set on a closed connection.
pub(crate) fn unless_ended(result: io::Result<()>) -> io::Result<()> {
    result
}

pub(crate) const REFUSES_SECOND_SHUTDOWN: bool = false;

pub(crate) fn receive(socket: &impl AsSocket, bytes: &mut [u8]) -> io::Result<usize> {
    (&mut &*SockRef::from(socket)).read(bytes)
}

pub(crate) fn new_socket(domain: Domain, r#type: Type) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(domain, r#type, None)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Only for Unix streams, which do not exist here.
pub(crate) fn passrights(_: &impl AsSocket) -> io::Result<bool> {
    Ok(true)
}

pub(crate) fn set_passrights(_: &impl AsSocket, _: bool) -> io::Result<()> {
    Ok(())
}

pub(crate) fn send(socket: &impl AsSocket, bytes: &[u8]) -> io::Result<usize> {
    SockRef::from(socket).send(bytes)
}

pub(crate) fn address_of(address: &SockAddr) -> Address {
    let address = address.as_socket().map(Address::Internet);
    address.unwrap_or(Address::Unix(Name::Unnamed))
}

pub(crate) fn sock_addr(address: &Address) -> io::Result<SockAddr> {
    match address {
        Address::Internet(address) => Ok((*address).into()),
        Address::Unix(_) => Err(unsupported("a Unix socket")),
    }
}

pub(crate) fn has_room(_: &impl AsSocket) -> bool {
    false
}

pub(crate) fn has_ended(_: &impl AsSocket) -> bool {
    false
}

pub(crate) fn accept(listener: &impl AsSocket) -> io::Result<(OwnedDescriptor, SockAddr)> {
    let (socket, address) = SockRef::from(listener).accept()?;
    socket.set_nonblocking(true)?;
    Ok((socket.into(), address))
}

pub(crate) fn after_accept_error(error: &io::Error) -> AfterAcceptError {
    use windows_sys::Win32::Networking::WinSock::{
        WSA_NOT_ENOUGH_MEMORY, WSAEBADF, WSAEFAULT, WSAEINVAL, WSAEMFILE, WSAENOBUFS, WSAENOTSOCK,
        WSANOTINITIALISED,
    };

    match error.raw_os_error() {
        Some(WSAEMFILE | WSAENOBUFS | WSA_NOT_ENOUGH_MEMORY) => AfterAcceptError::Rest,
        Some(WSAEBADF | WSAEFAULT | WSAEINVAL | WSAENOTSOCK | WSANOTINITIALISED) => {
            AfterAcceptError::End
        }
        _ => AfterAcceptError::Again,
    }
}

/// `SO_REUSEADDR` would let another program take the address.
pub(crate) const REUSES_ADDRESS: bool = false;

pub(crate) fn set_balanced(_: &impl AsSocket) -> io::Result<bool> {
    Ok(false)
}

/// Whether the cause is an unbound socket.
pub(crate) fn is_unbound(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput
}

/// Unknown.
pub(crate) fn is_listening(_: &impl AsSocket) -> Option<bool> {
    None
}

pub(crate) fn prepare(_: &socket2::Socket) -> io::Result<()> {
    Ok(())
}

pub(crate) const TCP_LEVEL: i32 = WinSock::IPPROTO_TCP;

/// By [`TcpOption`]; since Windows 10, version 1709.
pub(crate) const TCP_OPTIONS: [Option<i32>; TcpOption::COUNT] = [
    Some(WinSock::TCP_KEEPIDLE),
    Some(WinSock::TCP_KEEPINTVL),
    Some(WinSock::TCP_KEEPCNT),
    None,
];

/// `l_linger` is a `u_short`.
pub(crate) const MAX_LINGER: Duration = Duration::from_secs(u16::MAX as u64);

pub(crate) fn max_of(option: TcpOption) -> u32 {
    match option {
        TcpOption::KeepCount => 255,
        TcpOption::KeepIdle | TcpOption::KeepInterval | TcpOption::UserTimeout => i32::MAX as u32,
    }
}

pub(crate) fn get_number(socket: &impl AsSocket, level: i32, name: i32) -> io::Result<i32> {
    let mut value = 0;
    let mut length = size_of_val(&value) as i32;
    // SAFETY: the socket is open while it is lent; the system writes at most `length` bytes.
    let result = unsafe {
        WinSock::getsockopt(
            socket.as_socket().as_raw_socket() as WinSock::SOCKET,
            level,
            name,
            std::ptr::from_mut(&mut value).cast(),
            &mut length,
        )
    };
    c_result(result)?;
    Ok(value)
}

pub(crate) fn set_number(
    socket: &impl AsSocket,
    level: i32,
    name: i32,
    value: i32,
) -> io::Result<()> {
    // SAFETY: the socket is open while it is lent; the system reads one number.
    let result = unsafe {
        WinSock::setsockopt(
            socket.as_socket().as_raw_socket() as WinSock::SOCKET,
            level,
            name,
            std::ptr::from_ref(&value).cast(),
            size_of_val(&value) as i32,
        )
    };
    c_result(result)
}

/// Whether the system is too old for an option.
pub(crate) fn is_unknown_option(error: &io::Error) -> bool {
    error.raw_os_error() == Some(WinSock::WSAENOPROTOOPT)
}

pub(crate) fn is_in_progress(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// See the Unix version. Where the system has lost the address of a peer that has reset (wine),
/// there is no pending error either, and the socket stays writable. An empty send distinguishes it
/// from a stream that is not connected yet.
pub(crate) fn has_been_reset(socket: &impl AsSocket, error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotConnected
        && matches!(send(socket, &[]), Err(sent) if sent.kind() == io::ErrorKind::ConnectionReset)
}
