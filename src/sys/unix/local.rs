//! Unix sockets for `POLDER_TOP`, without the feature `net`. The standard library's listen as soon
//! as they are bound, and their connections block.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

const BACKLOG: i32 = 16;

/// Binds a listener to which no other user can ever connect, at a path where nothing exists. On
/// Linux the file gets the mode of the unbound socket. Elsewhere it has the process's default mode
/// until that is changed; until then the socket does not listen, and refuses connections.
pub(crate) fn listen_privately(path: &Path) -> io::Result<UnixListener> {
    let (socket, address) = socket(path)?;
    let mode = Mode::RUSR | Mode::WUSR;
    // Systems other than Linux return an error: an unbound socket has no mode.
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

pub(crate) fn is_listened_to(path: &Path) -> io::Result<bool> {
    let (socket, address) = socket(path)?;
    // A blocking connect would wait if the listener does not accept.
    super::set_nonblocking(&socket)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INPROGRESS) => Ok(true),
        Err(rustix::io::Errno::CONNREFUSED) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn socket(path: &Path) -> io::Result<(OwnedFd, SocketAddrUnix)> {
    let address = SocketAddrUnix::new(path)?;
    // Not all systems can create a socket with close-on-exec set.
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

pub(crate) fn accept(listener: &UnixListener) -> io::Result<UnixStream> {
    let (stream, _) = listener.accept()?;
    stream.set_nonblocking(true)?;
    // See `send`.
    #[cfg(target_vendor = "apple")]
    rustix::net::sockopt::set_socket_nosigpipe(&stream, true)?;
    Ok(stream)
}
