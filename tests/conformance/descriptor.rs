//! Queries on a bare descriptor that bypass polder: the one place where the tests differ between
//! Unix and Windows.

#[cfg(unix)]
pub use unix::*;
#[cfg(windows)]
pub use windows::*;

#[cfg(unix)]
mod unix {
    use std::io;
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
    pub use std::os::fd::{AsFd as AsDescriptor, OwnedFd as Owned};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::{OFlags, fcntl_getfl};
    use rustix::io::{FdFlags, fcntl_getfd, retry_on_intr};

    pub fn borrow(socket: &impl AsFd) -> BorrowedFd<'_> {
        socket.as_fd()
    }

    pub fn number_of(socket: impl AsFd) -> RawFd {
        socket.as_fd().as_raw_fd()
    }

    pub fn raw(socket: &impl AsRawFd) -> RawFd {
        socket.as_raw_fd()
    }

    /// Whether the descriptor is nonblocking; `None` where the system does not tell.
    pub fn is_nonblocking(socket: impl AsFd) -> Option<bool> {
        Some(fcntl_getfl(socket).unwrap().contains(OFlags::NONBLOCK))
    }

    /// Whether a child that runs another program inherits the descriptor.
    pub fn is_inherited(socket: impl AsFd) -> bool {
        !fcntl_getfd(socket).unwrap().contains(FdFlags::CLOEXEC)
    }

    /// Waits until the descriptor is readable, as a foreign loop does.
    pub fn wait_until_readable(descriptor: BorrowedFd<'_>) {
        let mut fds = [PollFd::new(&descriptor, PollFlags::IN)];
        retry_on_intr(|| poll(&mut fds, None)).expect("the descriptor can be waited for");
    }

    pub fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
        let mut fds = [PollFd::new(&descriptor, PollFlags::IN)];
        retry_on_intr(|| poll(&mut fds, Some(&Timespec::default()))).expect("it can be polled") > 0
    }

    /// Whether the kernel has the peer's end of file, or a reset.
    pub fn has_ended(socket: impl AsFd) -> io::Result<bool> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        const END: PollFlags = PollFlags::RDHUP;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const END: PollFlags = PollFlags::HUP;
        let mut fds = [PollFd::new(&socket, END)];
        retry_on_intr(|| poll(&mut fds, Some(&Timespec::default())))?;
        let all = END | PollFlags::HUP | PollFlags::ERR;
        Ok(fds[0].revents().intersects(all))
    }

    /// The kernel reports an end behind data.
    pub fn tells_no_end_behind_data() -> bool {
        false
    }
}

#[cfg(windows)]
mod windows {
    use std::io;
    use std::os::windows::io::{AsRawSocket, AsSocket, BorrowedSocket, RawSocket};
    pub use std::os::windows::io::{AsSocket as AsDescriptor, OwnedSocket as Owned};

    pub fn borrow(socket: &impl AsSocket) -> BorrowedSocket<'_> {
        socket.as_socket()
    }

    pub fn number_of(socket: impl AsSocket) -> RawSocket {
        socket.as_socket().as_raw_socket()
    }

    pub fn raw(socket: &impl AsRawSocket) -> RawSocket {
        socket.as_raw_socket()
    }

    /// Windows cannot tell.
    pub fn is_nonblocking(_: impl AsSocket) -> Option<bool> {
        None
    }

    const HANDLE_FLAG_INHERIT: u32 = 1;

    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn GetHandleInformation(handle: RawSocket, flags: *mut u32) -> i32;
    }

    /// Whether a child that inherits handles inherits this one.
    pub fn is_inherited(socket: impl AsSocket) -> bool {
        let mut flags = 0;
        // SAFETY: it writes one number; the handle is open, since it is borrowed.
        let done = unsafe { GetHandleInformation(number_of(socket), &mut flags) };
        assert_ne!(done, 0, "{}", io::Error::last_os_error());
        flags & HANDLE_FLAG_INHERIT != 0
    }

    /// No backend has a descriptor here
    /// ([`Capabilities::descriptor`](polder::poller::Capabilities)).
    pub fn wait_until_readable(_: BorrowedSocket<'_>) {
        unreachable!("a runtime has a descriptor on Windows");
    }

    /// No backend has a descriptor here.
    pub fn is_readable(_: BorrowedSocket<'_>) -> bool {
        unreachable!("a runtime has a descriptor on Windows");
    }

    /// `WSAPOLLFD`.
    #[repr(C)]
    struct PollFd {
        socket: RawSocket,
        events: i16,
        revents: i16,
    }

    const POLLERR: i16 = 1;
    const POLLHUP: i16 = 2;

    #[link(name = "ws2_32")]
    unsafe extern "system" {
        fn WSAPoll(sockets: *mut PollFd, count: u32, timeout: i32) -> i32;
    }

    /// Whether the kernel has the peer's end of file, or a reset.
    pub fn has_ended(socket: impl AsSocket) -> io::Result<bool> {
        let mut asked = PollFd {
            socket: socket.as_socket().as_raw_socket(),
            events: 0,
            revents: 0,
        };
        // SAFETY: it reads and writes one structure of this form, and does not wait.
        match unsafe { WSAPoll(&mut asked, 1, 0) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(asked.revents & (POLLHUP | POLLERR) != 0),
        }
    }

    /// Wine reports the end only when no data precedes it.
    pub fn tells_no_end_behind_data() -> bool {
        true
    }
}
