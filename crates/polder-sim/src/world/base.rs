//! [`Base`]: the fields that the sockets of all protocols have in common.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};

use polder::kernel::{READABLE, WRITABLE};

use super::address::Address;
use super::errno::Errno;
use super::options::Options;
use super::registrations::Registrations;

/// The fields that all sockets have.
#[derive(Debug, Default)]
pub(super) struct Base {
    pub(super) host: usize,
    /// The process that has it open. `None` while it waits in a listener's queue, and, for TCP,
    /// once the user has closed it.
    pub(super) process: Option<usize>,
    /// Whether it is a socket of IPv6.
    pub(super) is_v6: bool,
    pub(super) registrations: Registrations,
    /// The directions that would have blocked, for reports.
    pub(super) blocked: u8,
    pub(super) options: Options,
    /// An error that was not reported to the user yet.
    pub(super) error: Option<Errno>,
    /// Fields of a listener: the connections that wait to be accepted, and how many may wait.
    pub(super) queue: VecDeque<u32>,
    pub(super) backlog: usize,
}

impl Base {
    pub(super) fn new(host: usize, process: Option<usize>) -> Base {
        Base {
            host,
            process,
            ..Base::default()
        }
    }

    /// Returns an address as the user sees it: a socket of IPv6 shows those of IPv4 as mapped ones.
    pub(super) fn shown(&self, mut address: SocketAddr) -> Address {
        if let (true, IpAddr::V4(ip)) = (self.is_v6, address.ip()) {
            address.set_ip(ip.to_ipv6_mapped().into());
        }
        Address::Internet(address)
    }

    /// Reports the socket's error, once.
    pub(super) fn take_error(&mut self) -> io::Result<()> {
        match self.error.take() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// Notes whether `result` would have blocked in a direction.
    pub(super) fn note_blocked<T>(&mut self, what: u8, result: &io::Result<T>) {
        self.blocked &= !what;
        if matches!(result, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            self.blocked |= what;
        }
    }

    /// Describes what it waits for, for reports.
    pub(super) fn waits(&self) -> String {
        let mut text = String::new();
        if self.blocked & READABLE != 0 {
            text += ", waits to read";
        }
        if self.blocked & WRITABLE != 0 {
            text += ", waits to write";
        }
        text
    }
}
