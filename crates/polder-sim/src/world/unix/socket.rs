//! [`Socket`]: one socket, and the [`Names`] of all.

use std::collections::BTreeMap;

use polder::kernel::{CLOSED, READABLE, WRITABLE};

use crate::world::address::{Address, Name};
use crate::world::base::Base;
use crate::world::bytes::ByteQueue;
use crate::world::inbox::{Inbox, unread};
use crate::world::registrations::when;

/// The maximum of a sender's unread bytes: Linux's `wmem_default`.
pub(super) const BUFFER: usize = 212_992;

/// The number of datagrams that may wait for a receiver, if that is not connected to their sender,
/// before a send would block: Linux's `net.unix.max_dgram_qlen`. (One more fits, by
/// `unix_recvq_full`.)
pub(super) const MAX_WAITING: usize = 10;

/// The directions, as indexes of `is_shut`.
pub(super) const READ: usize = 0;
pub(super) const WRITE: usize = 1;

/// The socket that has each name, or had it last.
#[derive(Debug, Default)]
pub(crate) struct Names(pub(super) BTreeMap<Key, u32>);

#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) base: Base,
    pub(super) name: Name,
    /// The number and the name of the peer, if it is connected. The peer may have gone: a socket of
    /// datagrams loses it when something is sent to it.
    pub(super) peer: Option<(u32, Name)>,
    pub(super) is_shut: [bool; 2],
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// One end of a connection, with the bytes that it has not read.
    Stream(ByteQueue),
    Listener,
    Datagram(Datagram),
}

#[derive(Debug, Default)]
pub(super) struct Datagram {
    /// The datagrams, each with its sender's number, and the name that the sender had then.
    pub(super) inbox: Inbox<(u32, Name)>,
    /// The bytes that it has sent, and that were not received yet.
    pub(super) unread: usize,
}

/// The key of a name. Datagram sockets have abstract names apart from those of streams, as Linux
/// looks a name up among the sockets of one type.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    pub(super) host: usize,
    pub(super) name: Name,
    pub(super) is_of_datagrams: bool,
}

impl Key {
    pub(super) fn new(host: usize, name: &Name, is_of_datagrams: bool) -> Key {
        let is_abstract = matches!(name, Name::Abstract(_));
        Key {
            host,
            name: name.clone(),
            is_of_datagrams: is_of_datagrams && is_abstract,
        }
    }

    pub(super) fn is_path(&self) -> bool {
        matches!(self.name, Name::Path(_))
    }
}

impl Names {
    /// Forgets the names of a host, but for paths.
    pub(crate) fn forget(&mut self, host: usize) {
        self.0.retain(|key, _| key.host != host || key.is_path());
    }
}

/// Returns whether there is enough room for an event: Linux's `unix_writable`.
pub(super) fn has_room(unread: usize) -> bool {
    unread * 4 <= BUFFER
}

impl Datagram {
    pub(super) fn is_full(&self) -> bool {
        self.inbox.queue.len() > MAX_WAITING
    }
}

impl Socket {
    pub(super) fn peer_id(&self) -> Option<u32> {
        self.peer.as_ref().map(|(id, _)| *id)
    }

    /// Returns whether there is room for a datagram of this sender. There always is if they are
    /// connected.
    pub(super) fn has_room_for(&self, sender: u32) -> bool {
        let is_full = matches!(&self.kind, Kind::Datagram(datagram) if datagram.is_full());
        self.peer_id() == Some(sender) || !is_full
    }

    pub(crate) fn is_datagram(&self) -> bool {
        matches!(self.kind, Kind::Datagram(_))
    }

    pub(crate) fn describe(&self) -> String {
        let (name, waits) = (self.name.to_string(), self.base.waits());
        match &self.kind {
            Kind::Stream(input) => {
                let peer = self.peer.as_ref().map(|(_, name)| name.to_string());
                let peer = peer.unwrap_or_default();
                let has_ended = self.is_shut[READ];
                let ended = if has_ended { ", it has ended" } else { "" };
                let unread = unread(input.len());
                format!("Unix, {name}, connected to {peer}{ended}{unread}{waits}")
            }
            Kind::Listener => format!("Unix, listens at {name}{waits}"),
            Kind::Datagram(datagram) => {
                let inbox = datagram.inbox.describe();
                format!("Unix datagrams, {name}, {inbox}{waits}")
            }
        }
    }

    /// Returns its own address, and its peer's, if it is connected.
    pub(crate) fn addresses(&self) -> (Address, Option<Address>) {
        let peer = self.peer.as_ref();
        let peer = peer.map(|(_, name)| Address::Unix(name.clone()));
        (Address::Unix(self.name.clone()), peer)
    }
}

/// Returns the readiness that a change of directions makes.
pub(super) fn changed(shut: [bool; 2]) -> u8 {
    when(READABLE | CLOSED, shut[READ]) | when(WRITABLE, shut[WRITE])
}
