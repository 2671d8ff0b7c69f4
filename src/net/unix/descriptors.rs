//! Passing descriptors over Unix streams: [`UnixStream::send_fds`] and [`UnixStream::recv_fds`].

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::UnixStream;
use crate::sys::{self, invalid, unsupported};

/// The maximum number of descriptors of one message on Linux (`SCM_MAX_FD`, unix(7)).
const MAX_FDS: usize = 253;

const SPACE: usize = rustix::cmsg_space!(ScmRights(MAX_FDS));

/// Room for all descriptors of a message, so that none is lost (systems other than Linux may pass
/// more than its limit), and for the sender's credentials, if the user has asked for them.
const RECV_SPACE: usize = 2 * SPACE;

/// Where the kernel makes received descriptors close-on-exec itself.
#[cfg(not(any(target_vendor = "apple", target_os = "illumos", target_os = "solaris")))]
const RECV_FLAGS: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(any(target_vendor = "apple", target_os = "illumos", target_os = "solaris"))]
const RECV_FLAGS: RecvFlags = RecvFlags::empty();

impl UnixStream {
    /// Sends bytes with descriptors, of which the peer gets duplicates. Returns the number of bytes
    /// sent: at least one, and all descriptors with them. Send the rest with
    /// [`write_all`](crate::io::AsyncWriteExt::write_all).
    ///
    /// ```
    /// use polder::net::unix::UnixStream;
    /// use std::fs::File;
    /// use std::io::Read;
    /// use std::os::fd::AsFd;
    ///
    /// polder::block_on(async {
    ///     let (near, far) = UnixStream::pair()?;
    ///     far.set_passrights(true)?;
    ///     let file = File::open("Cargo.toml")?;
    ///     assert_eq!(near.send_fds(b"a file", &[file.as_fd()]).await?, 6);
    ///
    ///     let (mut bytes, mut fds) = ([0; 8], Vec::new());
    ///     assert_eq!(far.recv_fds(&mut bytes, &mut fds).await?, 6);
    ///     let mut start = [0; 9];
    ///     File::from(fds.remove(0)).read_exact(&mut start)?;
    ///     assert_eq!(&start, b"[package]");
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) without a byte, since descriptors travel with
    /// bytes, and for more than 253 descriptors;
    /// [`PermissionDenied`](io::ErrorKind::PermissionDenied) if the peer refuses descriptors (see
    /// [`passrights`](Self::passrights)); [`Unsupported`](io::ErrorKind::Unsupported) in a
    /// simulated world; any error of the system call.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped future has sent nothing.
    #[doc(alias("SCM_RIGHTS", "sendmsg", "send_with_fd"))]
    pub async fn send_fds(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        let socket = self.passing_fds(bytes.len())?;
        if fds.len() > MAX_FDS {
            let words = format!(
                "a message has at most {MAX_FDS} descriptors, not {}",
                fds.len()
            );
            return Err(invalid(words));
        }
        let flags = SendFlags::from_bits_retain(sys::SEND_FLAGS as _);
        let send = |_| {
            let mut space = [MaybeUninit::uninit(); SPACE];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() {
                control.push(SendAncillaryMessage::ScmRights(fds));
            }
            Ok(sendmsg(
                socket,
                &[IoSlice::new(bytes)],
                &mut control,
                flags,
            )?)
        };
        self.0.writing(send).await
    }

    /// Receives bytes, and appends the descriptors that came with them, close-on-exec, to `fds`.
    /// Returns the number of bytes; `Ok(0)` means the end of file.
    ///
    /// This stream must accept descriptors: see [`set_passrights`](Self::set_passrights). One call
    /// never returns bytes of two messages that have descriptors.
    ///
    /// ```
    /// use polder::net::unix::UnixStream;
    /// use std::os::fd::AsFd;
    ///
    /// polder::block_on(async {
    ///     let (near, far) = UnixStream::pair()?;
    ///     far.set_passrights(true)?;
    ///     near.send_fds(b"itself", &[near.as_fd()]).await?;
    ///     let (mut bytes, mut fds) = ([0; 8], Vec::new());
    ///     far.recv_fds(&mut bytes, &mut fds).await?;
    ///     let clone = UnixStream::try_from(fds.remove(0))?;
    ///     assert_eq!(clone.try_write(b"hello")?, 5);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for an empty buffer;
    /// [`Unsupported`](io::ErrorKind::Unsupported) in a simulated world; any error of the system
    /// call. If this process may open no more descriptors, the error is that of `EMFILE` (on BSDs
    /// and macOS `EMSGSIZE`): the bytes and descriptors of this call are lost.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped future has received nothing.
    #[doc(alias("SCM_RIGHTS", "recvmsg", "recv_with_fd"))]
    pub async fn recv_fds(&self, bytes: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
        let socket = self.passing_fds(bytes.len())?;
        let receive = |_| {
            let mut space = [MaybeUninit::uninit(); RECV_SPACE];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let buffers = &mut [IoSliceMut::new(bytes)];
            let flags = RecvFlags::from_bits_retain(sys::RECEIVE_FLAGS as _) | RECV_FLAGS;
            let received = recvmsg(socket, buffers, &mut control, flags)?;
            let rights = |message| match message {
                RecvAncillaryMessage::ScmRights(rights) => Some(rights),
                _ => None,
            };
            let came: Vec<OwnedFd> = control.drain().filter_map(rights).flatten().collect();
            if received.flags.contains(ReturnFlags::CTRUNC) {
                return Err(Errno::MFILE.into());
            }
            if RECV_FLAGS.is_empty() {
                for fd in &came {
                    fcntl_setfd(fd, FdFlags::CLOEXEC)?;
                }
            }
            fds.extend(came);
            Ok(received.bytes)
        };
        self.0.reading(receive).await
    }

    /// Returns the socket, or an error if descriptors cannot be passed with that number of bytes.
    fn passing_fds(&self, bytes: usize) -> io::Result<BorrowedFd<'_>> {
        if bytes == 0 {
            return Err(invalid("descriptors need at least one byte of data"));
        }
        let socket = self.0.system_descriptor();
        socket.ok_or_else(|| unsupported("descriptors cannot be passed in a simulated world"))
    }
}
