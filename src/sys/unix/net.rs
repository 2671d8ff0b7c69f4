//! Sockets on Unix.

use std::ffi::OsStr;
use std::io;
#[cfg(target_os = "android")]
use std::os::android::net::SocketAddrExt;
use std::os::fd::{AsFd, AsRawFd};
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr;
use std::time::Duration;

#[cfg(target_vendor = "apple")]
use libc::TCP_KEEPALIVE as TCP_KEEPIDLE;
#[cfg(not(any(target_vendor = "apple", target_os = "openbsd")))]
use libc::TCP_KEEPIDLE;
use rustix::event::PollFlags;
use rustix::io::Errno;
use socket2::{Domain, SockAddr, SockRef, Type};

use super::super::{AfterAcceptError, TcpOption, c_result, unsupported};
use super::{OwnedDescriptor, RECEIVE_FLAGS};
use crate::kernel::sockets::{Address, Name};

/// In one call where socket(2) takes the flags.
pub(crate) fn new_socket(domain: Domain, r#type: Type) -> io::Result<socket2::Socket> {
    #[cfg(not(any(target_vendor = "apple", target_os = "solaris")))]
    return socket2::Socket::new(domain, r#type.nonblocking(), None);
    #[cfg(any(target_vendor = "apple", target_os = "solaris"))]
    {
        let socket = socket2::Socket::new(domain, r#type, None)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }
}

pub(crate) const PEEK_FLAGS: libc::c_int = libc::MSG_PEEK | RECEIVE_FLAGS;

pub(crate) fn not_listening() -> io::Error {
    Errno::INVAL.into()
}

/// Whether a second shutdown is an error: `soshutdownlock` in XNU's bsd/kern/uipc_socket.c.
pub(crate) const REFUSES_SECOND_SHUTDOWN: bool =
    cfg!(any(target_vendor = "apple", polder_kqueue_model));

/// The hot path of small messages. On Linux rustix makes the system call inline; libc's function is
/// called through the dynamic linker's table, checks for thread cancellation, and passes errors in
/// a thread-local.
#[inline]
pub(crate) fn receive(socket: &impl AsFd, bytes: &mut [u8]) -> io::Result<usize> {
    let flags = rustix::net::RecvFlags::from_bits_retain(RECEIVE_FLAGS as _);
    Ok(rustix::net::recv(socket, bytes, flags)?.0)
}

/// Receives from a stream. Also returns whether a short read shows that a Unix stream is drained.
///
/// Linux ends a read behind a message with descriptors (`unix_stream_read_generic`) and, with
/// credentials enabled, between two writers. Both set `MSG_CTRUNC` without room for the control
/// message; the descriptors are closed. `recvmsg` costs half of the attempt that it saves: 82 ns of
/// 178 on Linux 6.18 (FIONREAD: 154). This is libc's: rustix would ask for the peer's address, too.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[inline]
pub(crate) fn receive_message(
    socket: &impl AsFd,
    buffers: &mut [io::IoSliceMut<'_>],
) -> io::Result<(usize, bool)> {
    // SAFETY: an all-zero `msghdr` is valid: no address, no slices, no room for control messages.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = buffers.as_mut_ptr().cast();
    message.msg_iovlen = buffers.len() as _;
    // SAFETY: the descriptor is open while it is lent; an `IoSliceMut` has the layout of an
    // `iovec`, by its documentation, and the kernel writes to the bytes that these lend.
    let read = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &mut message, RECEIVE_FLAGS) };
    match usize::try_from(read) {
        Ok(read) => Ok((read, message.msg_flags & libc::MSG_CTRUNC == 0)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Returns an address in the form of [`kernel`](crate::kernel).
pub(crate) fn address_of(address: &SockAddr) -> Address {
    if let Some(address) = address.as_socket() {
        return Address::Internet(address);
    }
    let name = match (address.as_abstract_namespace(), address.as_pathname()) {
        (Some(name), _) => Name::Abstract(name.to_vec()),
        (None, Some(path)) => Name::Path(path.as_os_str().as_bytes().to_vec()),
        (None, None) => Name::Unnamed,
    };
    Address::Unix(name)
}

/// Returns an address in the system's form.
pub(crate) fn sock_addr(address: &Address) -> io::Result<SockAddr> {
    match address {
        Address::Internet(address) => Ok((*address).into()),
        Address::Unix(Name::Unnamed) => SockAddr::unix(""),
        Address::Unix(Name::Path(path)) => SockAddr::unix(OsStr::from_bytes(path)),
        Address::Unix(Name::Abstract(name)) => {
            SockAddr::unix(OsStr::from_bytes(&[&[0], &name[..]].concat()))
        }
    }
}

/// Whether a socket's own buffer has room, although a send would block.
#[cold]
pub(crate) fn has_room(socket: &impl AsFd) -> bool {
    super::is_now(socket, PollFlags::OUT)
}

pub(crate) fn after_accept_error(error: &io::Error) -> AfterAcceptError {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => AfterAcceptError::Rest,
        Some(Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::FAULT) => AfterAcceptError::End,
        _ => AfterAcceptError::Again,
    }
}

/// Accepts one connection, non-blocking and close-on-exec. Apple's systems lack `accept4`, and a
/// sandbox may allow only the older call.
///
/// On Apple's systems a connection inherits its listener's `SO_NOSIGPIPE` (`sonewconn` in XNU's
/// bsd/kern/uipc_socket2.c). A connection that was reset in the queue is reported as aborted: XNU
/// returns it to an IPv6 listener without an address, since it ignores the error of `soacceptlock`
/// (bsd/kern/uipc_syscalls.c; dotnet/runtime#121848), and setting it up may fail with `EINVAL`
/// (apple/swift-nio#1030), which would mean that the listener does not listen.
pub(crate) fn accept(listener: &impl AsFd) -> io::Result<(OwnedDescriptor, SockAddr)> {
    #[cfg(not(target_vendor = "apple"))]
    match accept4(listener) {
        Err(error)
            if matches!(
                Errno::from_io_error(&error),
                Some(Errno::NOSYS | Errno::PERM)
            ) => {}
        other => return other,
    }
    // Not `accept`, which sets `SO_NOSIGPIPE` in socket2 0.6.0 (rust-lang/socket2#631).
    let (socket, address) = SockRef::from(listener).accept_raw()?;
    let set_up = (socket.set_cloexec(true)).and_then(|()| socket.set_nonblocking(true));
    if cfg!(target_vendor = "apple") && (address.len() == 0 || set_up.is_err()) {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    set_up.map(|()| (socket.into(), address))
}

/// By libc: for a path that fills `sun_path` to its last byte, Linux returns a length beyond the
/// structure (`unix_mkname_bsd`), at which rustix 1.1.6 panics.
#[cfg(not(target_vendor = "apple"))]
fn accept4(listener: &impl AsFd) -> io::Result<(OwnedDescriptor, SockAddr)> {
    use std::os::fd::FromRawFd;

    let (listener, flags) = (
        listener.as_fd().as_raw_fd(),
        libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
    );
    // SAFETY: the descriptor is open while it is lent; the kernel writes the address and its
    // length, within bounds; it returns a descriptor that is not owned yet.
    unsafe {
        SockAddr::try_init(|address, length| {
            match libc::accept4(listener, address.cast(), length, flags) {
                -1 => Err(io::Error::last_os_error()),
                socket => Ok(OwnedDescriptor::from_raw_fd(socket)),
            }
        })
    }
}

/// A restarted server can listen while its predecessor's connections are in TIME_WAIT.
pub(crate) const REUSES_ADDRESS: bool = true;

/// Makes the kernel distribute connections among the listeners of one address. Returns whether it
/// does: Linux since 3.9 and DragonFly (`SO_REUSEPORT`), FreeBSD since 12.0 (`SO_REUSEPORT_LB`).
/// Elsewhere, with `SO_REUSEPORT`, one of several listeners gets all connections.
#[allow(unreachable_code, reason = "its end is for the other systems")]
pub(crate) fn set_balanced(socket: &impl AsFd) -> io::Result<bool> {
    let is_set = |result: io::Result<()>| match result {
        Err(error) if is_unknown_option(&error) => Ok(false),
        result => result.map(|()| true),
    };
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "dragonfly"))]
    return is_set(SockRef::from(socket).set_reuse_port(true));
    #[cfg(target_os = "freebsd")]
    return is_set(SockRef::from(socket).set_reuse_port_lb(true));
    let _ = (is_set, socket);
    Ok(false)
}

/// `getsockname` of an unbound socket succeeds.
pub(crate) fn is_unbound(_: &io::Error) -> bool {
    false
}

pub(crate) fn abstract_name(address: &SocketAddr) -> Option<&[u8]> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return address.as_abstract_name();
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    return {
        let _ = address;
        None
    };
}

/// Returns `None` if the system lacks abstract addresses.
pub(crate) fn abstract_address(name: &[u8]) -> Option<io::Result<SocketAddr>> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return Some(SocketAddr::from_abstract_name(name));
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    return {
        let _ = name;
        None
    };
}

/// Returns the user and group of a Unix socket's peer, and its process if the system reports it.
#[allow(unreachable_code, reason = "its end is for the other systems")]
pub(crate) fn peer_cred(socket: &impl AsFd) -> io::Result<(u32, u32, Option<i32>)> {
    // A `ucred`: three 32-bit numbers. Not by rustix, whose process IDs are not 0: the kernel's is
    // for a process of another PID namespace.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let mut ucred = [[0; 4]; 3];
        let bytes = ucred.as_flattened_mut();
        get_option(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, bytes)?;
        let [pid, user, group] = ucred.map(u32::from_ne_bytes);
        if user == u32::MAX {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let pid = (pid != 0).then_some(pid as i32);
        return Ok((user, group, pid));
    }
    #[cfg(any(
        target_vendor = "apple",
        target_os = "freebsd",
        target_os = "dragonfly",
        target_os = "netbsd",
        target_os = "openbsd"
    ))]
    {
        let (mut uid, mut gid) = (0, 0);
        // SAFETY: the descriptor is open while it is lent, and the two numbers are valid for
        // writes.
        c_result(unsafe { libc::getpeereid(socket.as_fd().as_raw_fd(), &mut uid, &mut gid) })?;
        return Ok((uid, gid, None));
    }
    let _ = socket;
    Err(unsupported(
        "this system does not report the credentials of a peer",
    ))
}

/// Whether a Unix socket accepts descriptors from its peer. Linux 6.16 and later can refuse them
/// (`SO_PASSRIGHTS`, inherited from the listener); the peer's `sendmsg` then fails with EPERM.
pub(crate) fn passrights(socket: &impl AsFd) -> io::Result<bool> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    match get_number(socket, libc::SOL_SOCKET, SO_PASSRIGHTS) {
        Ok(value) => return Ok(value != 0),
        Err(error) if is_unknown_option(&error) => {}
        Err(error) => return Err(error),
    }
    let _ = socket;
    Ok(true)
}

pub(crate) fn set_passrights(socket: &impl AsFd, passrights: bool) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    match set_number(socket, libc::SOL_SOCKET, SO_PASSRIGHTS, passrights.into()) {
        Err(error) if is_unknown_option(&error) => {}
        other => return other,
    }
    let _ = socket;
    if passrights {
        return Ok(());
    }
    Err(unsupported("this system cannot refuse descriptors"))
}

/// From Linux 6.16's include/uapi/asm-generic/socket.h, and sparc's own. The crate libc lacks it
/// for some architectures.
#[cfg(any(target_os = "linux", target_os = "android"))]
const SO_PASSRIGHTS: libc::c_int = if cfg!(any(target_arch = "sparc", target_arch = "sparc64")) {
    92
} else {
    83
};

/// Sets the options that a foreign socket needs besides being non-blocking.
pub(crate) fn prepare(socket: &socket2::Socket) -> io::Result<()> {
    #[cfg(target_vendor = "apple")]
    unless_ended(socket.set_nosigpipe(true))?;
    let _ = socket;
    Ok(())
}

/// Ignores the error of setting an option of a closed connection. XNU refuses all options once both
/// directions are shut, as after the close of a Unix stream's peer, or a reset of a TCP stream
/// (`sosetoptlock` in bsd/kern/uipc_socket.c). There may be unread bytes.
pub(crate) fn unless_ended(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error)
            if cfg!(target_vendor = "apple")
                && Errno::from_io_error(&error) == Some(Errno::INVAL) =>
        {
            Ok(())
        }
        other => other,
    }
}

/// Whether a short read has drained a stream over IP: for plain TCP. Unknown for MPTCP, SCTP and
/// SMC, and with an upper-layer protocol (kTLS ends a read at the end of a record).
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
pub(crate) fn is_plain_tcp(socket: &impl AsFd) -> bool {
    let protocol = SockRef::from(socket).protocol().ok().flatten();
    may_be_quick(protocol.map(i32::from), || has_upper_layer(socket))
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn may_be_quick(protocol: Option<i32>, has_upper_layer: impl FnOnce() -> io::Result<bool>) -> bool {
    protocol == Some(libc::IPPROTO_TCP) && has_upper_layer().is_ok_and(|has_one| !has_one)
}

/// FreeBSD has none: with its kTLS plain reads do not work.
#[cfg(target_os = "freebsd")]
fn has_upper_layer(_: &impl AsFd) -> io::Result<bool> {
    Ok(false)
}

/// Whether the socket has an upper-layer protocol (`TCP_ULP`). If not, Linux returns an empty name
/// (`do_tcp_getsockopt`). Linux before 4.13 has neither.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn has_upper_layer(socket: &impl AsFd) -> io::Result<bool> {
    let mut name = [0_u8; 16]; // TCP_ULP_NAME_MAX
    match get_option(socket, libc::IPPROTO_TCP, libc::TCP_ULP, &mut name) {
        Ok(length) => Ok(length > 0 && name[0] != 0),
        Err(error) if is_unknown_option(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

pub(crate) const TCP_LEVEL: libc::c_int = libc::IPPROTO_TCP;

/// By [`TcpOption`]; `None` where the system lacks one.
#[cfg(not(target_os = "openbsd"))]
pub(crate) const TCP_OPTIONS: [Option<libc::c_int>; TcpOption::COUNT] = [
    Some(TCP_KEEPIDLE),
    Some(libc::TCP_KEEPINTVL),
    Some(libc::TCP_KEEPCNT),
    TCP_USER_TIMEOUT,
];

#[cfg(any(target_os = "linux", target_os = "android"))]
const TCP_USER_TIMEOUT: Option<libc::c_int> = Some(libc::TCP_USER_TIMEOUT);
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "openbsd")))]
const TCP_USER_TIMEOUT: Option<libc::c_int> = None;

/// OpenBSD has keepalive times only for the whole system.
#[cfg(target_os = "openbsd")]
pub(crate) const TCP_OPTIONS: [Option<libc::c_int>; TcpOption::COUNT] = [None; TcpOption::COUNT];

/// The BSDs' kernels keep it in a `short` (`so_linger`), Apple's in hundredths of a second.
pub(crate) const MAX_LINGER: Duration = Duration::from_secs(if cfg!(target_vendor = "apple") {
    i16::MAX as u64 / 100
} else if cfg!(any(
    target_os = "illumos",
    target_os = "linux",
    target_os = "solaris"
)) {
    i32::MAX as u64
} else {
    i16::MAX as u64
});

/// The greatest value that is worth a system call. Except for Linux's, limits depend on versions
/// and settings, and the system reports them.
pub(crate) fn max_of(option: TcpOption) -> u32 {
    if cfg!(any(target_os = "linux", target_os = "android")) {
        option.max_of_linux()
    } else {
        i32::MAX as u32
    }
}

/// Whether the kernel lacks an option: it is too old, or a sandbox.
pub(crate) fn is_unknown_option(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::NOPROTOOPT)
}

pub(crate) fn get_number(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<libc::c_int> {
    let mut value = [0; size_of::<libc::c_int>()];
    get_option(socket, level, name, &mut value)?;
    Ok(libc::c_int::from_ne_bytes(value))
}

pub(crate) fn set_number(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the descriptor is open while it is lent; the kernel reads one number.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(&value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    c_result(result)
}

/// Returns the length of the value.
fn get_option(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &mut [u8],
) -> io::Result<usize> {
    let mut length = value.len() as libc::socklen_t;
    // SAFETY: the descriptor is open while it is lent; the kernel writes at most `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &mut length,
        )
    };
    c_result(result)?;
    Ok(length as usize)
}

pub(crate) fn is_in_progress(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::INPROGRESS | Errno::INTR)
    )
}

/// Whether a stream was connected and has been reset since, if asking for its peer's address
/// returned `error`: macOS.
pub(crate) fn has_been_reset(_: &impl AsFd, error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;

    /// A short read drains only TCP without an upper layer.
    #[test]
    fn short_read_drains_plain_tcp_only() {
        let none = || Ok(false);
        assert!(may_be_quick(Some(libc::IPPROTO_TCP), none));
        for other in [libc::IPPROTO_MPTCP, libc::IPPROTO_SCTP, 0] {
            assert!(!may_be_quick(Some(other), none), "protocol {other}");
        }
        assert!(!may_be_quick(None, none), "a protocol that is not told");
        assert!(!may_be_quick(Some(libc::IPPROTO_TCP), || Ok(true)), "kTLS");
        let denied = || Err(io::ErrorKind::PermissionDenied.into());
        assert!(!may_be_quick(Some(libc::IPPROTO_TCP), denied), "not told");
    }

    #[test]
    fn an_upper_layer_protocol_is_seen() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(is_plain_tcp(&stream));
        // SAFETY: the descriptor is open, and the kernel reads three bytes.
        let result = unsafe {
            libc::setsockopt(
                stream.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_ULP,
                c"tls".as_ptr().cast(),
                3,
            )
        };
        match result {
            0 => assert!(!is_plain_tcp(&stream), "kTLS was taken for plain TCP"),
            _ => println!(
                "this kernel has no kTLS to try: {}",
                io::Error::last_os_error()
            ),
        }
    }
}
