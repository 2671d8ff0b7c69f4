//! Unix sockets for `POLDER_TOP`, without the feature `net`: what the standard library's cannot do.
//! Theirs listen at once when they are bound, and a connection waits for its turn.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// How many connections wait to be accepted.
const BACKLOG: i32 = 16;

/// A listener that nobody else can connect to, at a path where there is nothing yet: neither is
/// anything replaced, nor a link followed.
///
/// No moment is left to others. On Linux the file has the mode that the socket has when it is
/// bound. Elsewhere it has what the process leaves to all files (which cannot be set for one thread
/// alone) until that is changed; meanwhile the socket does not listen, and refuses whoever comes.
pub(crate) fn listen_privately(path: &Path) -> io::Result<UnixListener> {
    let (socket, address) = socket(path)?;
    let mode = Mode::RUSR | Mode::WUSR;
    // Systems but Linux have no mode for a socket that is no file yet, and say so.
    let _ = rustix::fs::fchmod(&socket, mode);
    rustix::net::bind(&socket, &address)?;
    let listen = || {
        if std::fs::symlink_metadata(path)?.mode() & 0o077 != 0 {
            rustix::fs::chmodat(CWD, path, mode, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        rustix::net::listen(&socket, BACKLOG)?;
        super::set_nonblocking(&socket)
    };
    match listen() {
        Ok(()) => Ok(socket.into()),
        Err(error) => {
            let _ = std::fs::remove_file(path);
            Err(error)
        }
    }
}

/// Whether somebody listens on the socket that is there.
pub(crate) fn is_listened_to(path: &Path) -> io::Result<bool> {
    let (socket, address) = socket(path)?;
    // Whoever listens may not accept, and then the connection waits.
    super::set_nonblocking(&socket)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INPROGRESS) => Ok(true),
        Err(rustix::io::Errno::CONNREFUSED) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn socket(path: &Path) -> io::Result<(OwnedFd, SocketAddrUnix)> {
    let address = SocketAddrUnix::new(path)?;
    // Not all systems can make one that no other program inherits.
    #[cfg(not(any(target_vendor = "apple", target_os = "aix", target_os = "haiku")))]
    let flags = SocketFlags::CLOEXEC;
    #[cfg(any(target_vendor = "apple", target_os = "aix", target_os = "haiku"))]
    let flags = SocketFlags::empty();
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    if flags.is_empty() {
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok((socket, address))
}

/// The next connection, none of whose operations waits.
pub(crate) fn accept(listener: &UnixListener) -> io::Result<UnixStream> {
    let (stream, _) = listener.accept()?;
    stream.set_nonblocking(true)?;
    // See `send`.
    #[cfg(target_vendor = "apple")]
    rustix::net::sockopt::set_socket_nosigpipe(&stream, true)?;
    Ok(stream)
}
