//! Several datagrams in one system call, which Linux, FreeBSD and NetBSD have.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use socket2::SockAddr;

use super::{Datagram, MAX_DATAGRAMS, RECEIVE_FLAGS, Received, SEND_FLAGS};

/// Receives datagrams by recvmmsg(2). Returns their number, which is not zero.
pub(crate) fn receive_many(
    socket: &impl AsFd,
    buffers: &mut [IoSliceMut<'_>],
    received: &mut [Received],
) -> io::Result<usize> {
    let mut addresses = [const { MaybeUninit::<libc::sockaddr_storage>::uninit() }; MAX_DATAGRAMS];
    // SAFETY: an all-zero `mmsghdr` is valid: no address, no slices, no room for control messages.
    let mut messages: [libc::mmsghdr; MAX_DATAGRAMS] = unsafe { std::mem::zeroed() };
    let parts = buffers.iter_mut().zip(&mut addresses).zip(&mut messages);
    let mut count = 0;
    for ((buffer, address), message) in parts.take(received.len()) {
        message.msg_hdr.msg_name = address.as_mut_ptr().cast();
        message.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as _;
        message.msg_hdr.msg_iov = ptr::from_mut(buffer).cast();
        message.msg_hdr.msg_iovlen = 1;
        count += 1;
    }
    // SAFETY: the descriptor is open while it is lent. Each of the first `count` messages has room
    // for an address, and a slice: an `IoSliceMut` has the layout of an `iovec`, by its
    // documentation, and the kernel writes to the bytes that it lends.
    let got = unsafe {
        libc::recvmmsg(
            socket.as_fd().as_raw_fd(),
            messages.as_mut_ptr(),
            count as _,
            RECEIVE_FLAGS as _,
            ptr::null_mut(),
        )
    };
    let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    for ((message, address), received) in messages.iter().zip(&addresses).zip(received).take(got) {
        let header = &message.msg_hdr;
        let length = (header.msg_namelen as usize).min(size_of_val(address));
        // SAFETY: the kernel has written `length` bytes of an address, which fit into both.
        let from = unsafe {
            SockAddr::try_init(|storage, room| {
                ptr::copy_nonoverlapping(address.as_ptr().cast::<u8>(), storage.cast(), length);
                *room = length as libc::socklen_t;
                Ok(())
            })
        };
        let is_truncated = header.msg_flags & libc::MSG_TRUNC != 0;
        *received = Received::new(message.msg_len as usize, from?.1.as_socket(), is_truncated);
    }
    Ok(got)
}

/// Sends the first datagrams by sendmmsg(2). Returns their number, which is not zero.
pub(crate) fn send_many(socket: &impl AsFd, datagrams: &[Datagram<'_>]) -> io::Result<usize> {
    let datagram = |place| datagrams.get(place);
    let to: [Option<SockAddr>; MAX_DATAGRAMS] =
        std::array::from_fn(|place| datagram(place).and_then(|datagram| Some(datagram.to?.into())));
    let slices: [IoSlice<'_>; MAX_DATAGRAMS] = std::array::from_fn(|place| {
        IoSlice::new(datagram(place).map_or(&[], |datagram| datagram.bytes))
    });
    // SAFETY: an all-zero `mmsghdr` is valid: no address, no slices, no control messages.
    let mut messages: [libc::mmsghdr; MAX_DATAGRAMS] = unsafe { std::mem::zeroed() };
    for ((message, to), slice) in messages.iter_mut().zip(&to).zip(&slices) {
        if let Some(to) = to {
            message.msg_hdr.msg_name = to.as_ptr().cast_mut().cast();
            message.msg_hdr.msg_namelen = to.len();
        }
        message.msg_hdr.msg_iov = ptr::from_ref(slice).cast_mut().cast();
        message.msg_hdr.msg_iovlen = 1;
    }
    let count = datagrams.len().min(MAX_DATAGRAMS);
    // SAFETY: the descriptor is open while it is lent. Addresses and slices live until the end of
    // this function, and are only read: an `IoSlice` has the layout of an `iovec`, by its
    // documentation.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_fd().as_raw_fd(),
            messages.as_mut_ptr(),
            count as _,
            SEND_FLAGS as _,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}
