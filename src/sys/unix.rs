//! Unix: a socket is a file descriptor.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::event::Timespec;
use socket2::SockRef;

pub(crate) use std::os::fd::{
    BorrowedFd as BorrowedDescriptor, OwnedFd as OwnedDescriptor, RawFd as RawDescriptor,
};

/// [`AsFd`] under the name that both platforms have.
pub(crate) trait AsDescriptor {
    fn as_descriptor(&self) -> BorrowedDescriptor<'_>;
}

impl<T: AsFd> AsDescriptor for T {
    fn as_descriptor(&self) -> BorrowedDescriptor<'_> {
        self.as_fd()
    }
}

/// [`AsRawFd`] likewise.
pub(crate) trait AsRawDescriptor {
    fn as_raw_descriptor(&self) -> RawDescriptor;
}

impl<T: AsRawFd> AsRawDescriptor for T {
    fn as_raw_descriptor(&self) -> RawDescriptor {
        self.as_raw_fd()
    }
}

/// Implements the platform's traits for a public type that has a descriptor.
macro_rules! lend_descriptor {
    ($type:ty, |$it:ident| $descriptor:expr) => {
        impl std::os::fd::AsFd for $type {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                let $it = self;
                std::os::fd::AsFd::as_fd($descriptor)
            }
        }

        impl std::os::fd::AsRawFd for $type {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                let $it = self;
                std::os::fd::AsRawFd::as_raw_fd($descriptor)
            }
        }
    };
}
pub(crate) use lend_descriptor;

/// For every vectored send: a peer that is gone is an error, never a signal.
pub(crate) const SEND_FLAGS: libc::c_int = libc::MSG_NOSIGNAL;

/// What every small message goes through. On Linux these are the system calls themselves, in line:
/// libc's functions are calls through the dynamic linker's table, look at whether the thread can be
/// cancelled, and hand errors over in a thread-local.
#[inline]
pub(crate) fn receive(socket: &impl AsFd, bytes: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::net::recv(socket, bytes, rustix::net::RecvFlags::empty())?.0)
}

/// See [`receive`].
#[inline]
pub(crate) fn send(socket: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    // Apple's systems have no such flag in rustix: see `prepare`.
    #[cfg(target_vendor = "apple")]
    let flags = rustix::net::SendFlags::empty();
    #[cfg(not(target_vendor = "apple"))]
    let flags = rustix::net::SendFlags::NOSIGNAL;
    Ok(rustix::net::send(socket, bytes, flags)?)
}

/// A timeout as the kernel takes it. Where the platform's call takes milliseconds or microseconds only,
/// rustix rounds up.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs() as _,
        tv_nsec: duration.subsec_nanos() as _,
    }
}

/// How far behind the coarse clock is at most, and as much again: it goes on with the kernel's tick,
/// of which there are 100 a second at least (`CONFIG_HZ`).
pub(crate) const COARSENESS: Duration = Duration::from_millis(20);

/// The clock that an `Instant` is a moment of, where there is a coarse one beside it: Linux, where that
/// takes a fifth of the time to read.
pub(crate) fn precise_time() -> Option<Duration> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return clock(libc::CLOCK_MONOTONIC);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    None
}

/// The same clock as it was at the last tick.
#[inline]
pub(crate) fn coarse_time() -> Option<Duration> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return clock(libc::CLOCK_MONOTONIC_COARSE);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    None
}

#[cfg(any(target_os = "linux", target_os = "android"))]
#[inline]
fn clock(id: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one `timespec`.
    match unsafe { libc::clock_gettime(id, &mut time) } {
        0 => Some(Duration::new(time.tv_sec as u64, time.tv_nsec as u32)),
        _ => None,
    }
}

/// Whether there is something to read although a read has said that it would block. Linux says so
/// at TCP's urgent mark while a signal is pending (`tcp_recvmsg`), whatever lies behind the mark, and
/// no edge tells of it again. Poll looks at the bytes.
#[cold]
pub(crate) fn is_readable_after_all(socket: &impl AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};

    if !cfg!(any(target_os = "linux", target_os = "android")) {
        return false;
    }
    let mut asked = [PollFd::new(socket, PollFlags::IN)];
    let at_once = timespec(Duration::ZERO);
    rustix::io::retry_on_intr(|| poll(&mut asked, Some(&at_once))).is_ok_and(|ready| ready > 0)
        && asked[0].revents().contains(PollFlags::IN)
}

/// How many slices one vectored call may have: `IOV_MAX` where there is one (it is 1,024 on all of
/// Linux, Apple's systems, the BSDs and illumos). More is an error, so the rest waits its turn.
pub(crate) const MAX_SLICES: usize = 1_024;

/// Accepts one connection, non-blocking and close-on-exec.
#[cfg(not(target_vendor = "apple"))]
pub(crate) fn accept(listener: &impl AsFd) -> io::Result<(OwnedDescriptor, SocketAddr)> {
    use rustix::net::{SocketFlags, acceptfrom_with};

    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (socket, address) = acceptfrom_with(listener, flags)?;
    let address = address.and_then(|address| SocketAddr::try_from(address).ok());
    Ok((socket, address.ok_or_else(super::no_address)?))
}

/// Apple's systems have no `accept4`, and a socket says for itself that it raises no signal.
#[cfg(target_vendor = "apple")]
pub(crate) fn accept(listener: &impl AsFd) -> io::Result<(OwnedDescriptor, SocketAddr)> {
    let (socket, address) = SockRef::from(listener).accept()?;
    socket.set_nonblocking(true)?;
    let address = address.as_socket().ok_or_else(super::no_address)?;
    Ok((socket.into(), address))
}

/// What a socket needs that others made, besides being non-blocking.
pub(crate) fn prepare(socket: &SockRef<'_>) -> io::Result<()> {
    #[cfg(target_vendor = "apple")]
    socket.set_nosigpipe(true)?;
    let _ = socket;
    Ok(())
}

/// Whether an error says that a non-blocking connect has begun.
pub(crate) fn is_in_progress(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR))
}
