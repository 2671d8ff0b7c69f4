//! [`Address`]: the address of a simulated socket.
//!
//! Each host has its own names of Unix sockets. They are not files: a path is the bytes that the
//! program has written, and no directory is looked up.

use std::io;
use std::net::SocketAddr;

use super::errno::Errno;
pub(super) use polder::kernel::sockets::{Address, Name};

pub(super) fn internet(address: &Address) -> io::Result<SocketAddr> {
    match address {
        Address::Internet(address) => Ok(*address),
        Address::Unix(_) => Err(Errno::AFNOSUPPORT.into()),
    }
}

pub(super) fn unix(address: &Address) -> io::Result<&Name> {
    match address {
        Address::Internet(_) => Err(Errno::AFNOSUPPORT.into()),
        Address::Unix(name) => Ok(name),
    }
}

/// A host and an address. As a destination it is the next hop, and the final address.
pub(super) type End = (usize, SocketAddr);
