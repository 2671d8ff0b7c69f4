//! [`Table`]: all sockets of a world, by number and by host.
//!
//! All sockets are numbered in one sequence. A socket is in the table as long as something may
//! come for it, which for TCP is longer than its process has it open.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

use super::base::Base;
use super::errno::gone;
use super::tcp::socket::Socket as TcpSocket;
use super::udp::socket::Socket as UdpSocket;
use super::unix::socket::Socket as UnixSocket;

#[derive(Debug)]
pub(super) enum Socket {
    Tcp(Box<TcpSocket>),
    Udp(Box<UdpSocket>),
    Unix(Box<UnixSocket>),
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
    pub(super) fn tcp(&self, number: u32) -> Option<&TcpSocket> {
        match self.find(number) {
            Some(Socket::Tcp(socket)) => Some(socket),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn tcp_mut(&mut self, number: u32) -> Option<&mut TcpSocket> {
        match self.list.get_mut(number as usize) {
            Some(Some(Socket::Tcp(socket))) => Some(socket),
            _ => None,
        }
    }

    /// Returns a socket of TCP that must be there.
    #[inline]
    pub(super) fn tcp_at(&mut self, number: u32) -> &mut TcpSocket {
        self.tcp_mut(number).expect("the socket is there")
    }

    pub(super) fn udp(&mut self, number: u32) -> io::Result<&mut UdpSocket> {
        match self.get_mut(number)? {
            Socket::Udp(socket) => Ok(socket),
            _ => Err(gone()),
        }
    }

    pub(super) fn unix(&self, number: u32) -> io::Result<&UnixSocket> {
        match self.get(number)? {
            Socket::Unix(socket) => Ok(socket),
            _ => Err(gone()),
        }
    }

    pub(super) fn unix_mut(&mut self, number: u32) -> io::Result<&mut UnixSocket> {
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
