//! [`Table`]: all sockets of a world, by number and by host; and the fields that those of all
//! protocols have in common.
//!
//! All sockets are numbered in one sequence. A socket is in the table as long as something may
//! come for it, which for TCP is longer than its process has it open.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};

use super::address::Address;
use super::errno::Errno;
use super::options::Options;
use super::registrations::Registrations;
use super::{READABLE, WRITABLE, gone, tcp, udp, unix};

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

#[derive(Debug)]
pub(super) enum Socket {
    Tcp(Box<tcp::Socket>),
    Udp(Box<udp::Socket>),
    Unix(Box<unix::Socket>),
}

impl Socket {
    pub(super) fn base(&mut self) -> &mut Base {
        match self {
            Socket::Tcp(socket) => &mut socket.base,
            Socket::Udp(socket) => &mut socket.base,
            Socket::Unix(socket) => &mut socket.base,
        }
    }
}

#[derive(Debug)]
pub(super) struct Table {
    /// By number; `None` for those that are gone. No socket has the number zero.
    list: Vec<Option<Socket>>,
    /// The numbers of each host's sockets.
    hosts: BTreeMap<usize, BTreeSet<u32>>,
}

impl Default for Table {
    fn default() -> Table {
        Table {
            list: vec![None],
            hosts: BTreeMap::new(),
        }
    }
}

impl Table {
    /// Returns the number of the next socket.
    pub(super) fn next(&self) -> u32 {
        u32::try_from(self.list.len()).expect("fewer than 2^32 sockets")
    }

    /// Inserts a socket. Returns its number.
    pub(super) fn insert(&mut self, mut socket: Socket) -> u32 {
        let number = self.next();
        let host = socket.base().host;
        self.hosts.entry(host).or_default().insert(number);
        self.list.push(Some(socket));
        number
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<Socket> {
        let mut socket = self.list.get_mut(number as usize)?.take()?;
        let host = socket.base().host;
        self.hosts.entry(host).or_default().remove(&number);
        Some(socket)
    }

    /// Returns the numbers of a host's sockets, in their order.
    pub(super) fn ids(&self, host: usize) -> Vec<u32> {
        let all = self.hosts.get(&host).into_iter().flatten();
        all.copied().collect()
    }

    #[inline]
    pub(super) fn find(&self, number: u32) -> Option<&Socket> {
        self.list.get(number as usize)?.as_ref()
    }

    pub(super) fn get(&self, number: u32) -> io::Result<&Socket> {
        self.find(number).ok_or_else(gone)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> io::Result<&mut Socket> {
        let socket = self.list.get_mut(number as usize);
        socket.and_then(Option::as_mut).ok_or_else(gone)
    }

    pub(super) fn base(&mut self, number: u32) -> io::Result<&mut Base> {
        Ok(self.get_mut(number)?.base())
    }

    #[inline]
    pub(super) fn tcp(&self, number: u32) -> Option<&tcp::Socket> {
        match self.find(number) {
            Some(Socket::Tcp(socket)) => Some(socket),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn tcp_mut(&mut self, number: u32) -> Option<&mut tcp::Socket> {
        match self.list.get_mut(number as usize) {
            Some(Some(Socket::Tcp(socket))) => Some(socket),
            _ => None,
        }
    }

    /// Returns a socket of TCP that must be there.
    #[inline]
    pub(super) fn tcp_at(&mut self, number: u32) -> &mut tcp::Socket {
        self.tcp_mut(number).expect("the socket is there")
    }

    pub(super) fn udp(&mut self, number: u32) -> io::Result<&mut udp::Socket> {
        match self.get_mut(number)? {
            Socket::Udp(socket) => Ok(socket),
            _ => Err(gone()),
        }
    }

    pub(super) fn unix(&self, number: u32) -> io::Result<&unix::Socket> {
        match self.get(number)? {
            Socket::Unix(socket) => Ok(socket),
            _ => Err(gone()),
        }
    }

    pub(super) fn unix_mut(&mut self, number: u32) -> io::Result<&mut unix::Socket> {
        match self.get_mut(number)? {
            Socket::Unix(socket) => Ok(socket),
            _ => Err(gone()),
        }
    }

    /// Returns the address that a socket is bound to, if that is one of the internet.
    pub(super) fn local_ip(&self, number: u32) -> Option<IpAddr> {
        match self.find(number)? {
            Socket::Tcp(socket) => Some(socket.local.ip()),
            Socket::Udp(socket) => Some(socket.local.ip()),
            Socket::Unix(_) => None,
        }
    }
}
