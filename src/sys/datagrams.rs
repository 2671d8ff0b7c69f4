//! The stand-in for `unix/datagrams.rs` on other systems, where datagrams are sent and received one
//! by one.

use std::io::{self, IoSliceMut};

use super::{Datagram, HasDescriptor, Received};

pub(crate) fn receive_many(
    _: &impl HasDescriptor,
    _: &mut [IoSliceMut<'_>],
    _: &mut [Received],
) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn send_many(_: &impl HasDescriptor, _: &[Datagram<'_>]) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}
