//! Unix sockets within a host: streams, listeners, datagrams and pairs.
//!
//! Writes arrive immediately, as on a real kernel: nothing is under way, and no time passes. Each
//! host has its own namespace. A path that was bound stays known when its socket is closed, as its
//! file would: connecting to it is refused. But it may be bound again, since the world does not see
//! `std::fs::remove_file`, which programs call before.
//!
//! The order of checks is that of Linux's `net/unix/af_unix.c`, and so are the oddities: closing a
//! socket with unread bytes resets its peer; a datagram socket that sends to a peer that has gone
//! loses that peer, and its own unreceived datagrams; a connected datagram socket refuses other
//! senders.

pub(super) mod socket;

use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;

use polder::kernel::{CLOSED, ERROR, READABLE, WRITABLE};

use super::address::{self, Address, Name};
use super::base::Base;
use super::bytes::ByteQueue;
use super::errno::{Errno, gone, unsupported};
use super::inbox::OVERHEAD;
use super::registrations::when;
use super::sockets::Network;
use super::table::Socket as Any;
use super::trace_event::{TraceEvent, digest};
use socket::{BUFFER, Datagram, Key, Kind, READ, Socket, WRITE, changed, has_room};

/// Sockets of all kinds, and names.
impl Network<'_> {
    /// Inserts a socket of a process, or of a listener's queue. Returns its number.
    fn insert_unix(
        &mut self,
        (host, process): (usize, Option<usize>),
        name: &Name,
        peer: Option<(u32, Name)>,
        kind: Kind,
    ) -> u32 {
        self.table.insert(Any::Unix(Box::new(Socket {
            base: Base::new(host, process),
            name: name.clone(),
            peer,
            is_shut: [false; 2],
            kind,
        })))
    }

    /// Gives a name to the next socket.
    fn take_name(&mut self, key: Key) -> io::Result<()> {
        if key.name == Name::Unnamed {
            return Err(unsupported("a name that the system chooses"));
        }
        let owner = self.unix_names.0.get(&key);
        if owner.is_some_and(|owner| self.table.find(*owner).is_some()) {
            return Err(Errno::ADDRINUSE.into());
        }
        self.unix_names.0.insert(key, self.table.next());
        Ok(())
    }

    /// Returns the socket that has a name.
    fn find_name(&self, key: &Key) -> io::Result<u32> {
        match self.unix_names.0.get(key) {
            Some(id) if self.table.find(*id).is_some() => Ok(*id),
            None if key.is_path() => Err(Errno::NOENT.into()),
            None if key.name == Name::Unnamed => Err(Errno::INVAL.into()),
            _ => Err(Errno::CONNREFUSED.into()),
        }
    }

    /// Removes a socket, and frees its abstract name; a path stays.
    fn remove_unix(&mut self, id: u32) {
        let names = &mut self.unix_names.0;
        names.retain(|key, owner| *owner != id || key.is_path());
        self.table.remove(id);
    }
}

/// Streams.
impl Network<'_> {
    pub(crate) fn listen_unix(&mut self, name: &Name, backlog: usize) -> io::Result<u32> {
        let (host, process) = self.core.processes.here()?;
        self.take_name(Key::new(host, name, false))?;
        let id = self.insert_unix((host, Some(process)), name, None, Kind::Listener);
        self.table.base(id)?.backlog = backlog;
        Ok(id)
    }

    /// Connects to a listener. Fails with `AGAIN` if the listener's queue is full.
    pub(crate) fn connect_unix(&mut self, name: &Name) -> io::Result<u32> {
        let (host, process) = self.core.processes.here()?;
        let to = self.find_name(&Key::new(host, name, false))?;
        let near = self.table.next();
        let far = near + 1;
        let Socket { base, kind, .. } = self.table.unix_mut(to)?;
        let Kind::Listener = kind else {
            return Err(Errno::PROTOTYPE.into());
        };
        if base.queue.len() > base.backlog {
            return Err(Errno::AGAIN.into());
        }
        base.queue.push_back(far);
        let [one, other] = [(); 2].map(|()| Kind::Stream(ByteQueue::default()));
        let peer = Some((far, name.clone()));
        self.insert_unix((host, Some(process)), &Name::Unnamed, peer, one);
        self.insert_unix((host, None), name, Some((near, Name::Unnamed)), other);
        self.raise(to, READABLE);
        Ok(near)
    }

    /// Creates two sockets that are connected to each other: streams, or datagram sockets.
    pub(crate) fn pair(&mut self, is_stream: bool) -> io::Result<[u32; 2]> {
        let (host, process) = self.core.processes.here()?;
        let one = self.table.next();
        let other = one + 1;
        for peer in [other, one] {
            let kind = if is_stream {
                Kind::Stream(ByteQueue::default())
            } else {
                Kind::Datagram(Datagram::default())
            };
            let peer = Some((peer, Name::Unnamed));
            self.insert_unix((host, Some(process)), &Name::Unnamed, peer, kind);
        }
        Ok([one, other])
    }

    /// Returns the bytes that one end of a connection has not read, and the other end.
    fn stream(&mut self, id: u32) -> io::Result<(&mut ByteQueue, u32)> {
        let Socket { peer, kind, .. } = self.table.unix_mut(id)?;
        match (kind, peer) {
            (Kind::Stream(input), Some((peer, _))) => Ok((input, *peer)),
            _ => Err(gone()),
        }
    }

    /// Closes one end of a connection.
    fn close_stream(&mut self, id: u32, has_unread: bool) {
        let Ok((input, peer)) = self.stream(id) else {
            return;
        };
        let is_reset = has_unread || !input.is_empty();
        self.table.remove(id);
        if let Ok(socket) = self.table.unix_mut(peer) {
            socket.is_shut = [true; 2];
            if is_reset {
                socket.base.error = Some(Errno::CONNRESET);
            }
            self.raise(peer, READABLE | WRITABLE | CLOSED | when(ERROR, is_reset));
        }
    }
}

/// Datagrams.
impl Network<'_> {
    /// Creates a datagram socket, bound to a name or unnamed.
    pub(crate) fn bind_unix(&mut self, name: &Name) -> io::Result<u32> {
        let (host, process) = self.core.processes.here()?;
        if *name != Name::Unnamed {
            self.take_name(Key::new(host, name, true))?;
        }
        let kind = Kind::Datagram(Datagram::default());
        Ok(self.insert_unix((host, Some(process)), name, None, kind))
    }

    fn datagram(&mut self, id: u32) -> io::Result<&mut Datagram> {
        Ok(self.datagram_and_base(id)?.0)
    }

    fn datagram_and_base(&mut self, id: u32) -> io::Result<(&mut Datagram, &mut Base)> {
        let Socket { base, kind, .. } = self.table.unix_mut(id)?;
        match kind {
            Kind::Datagram(datagram) => Ok((datagram, base)),
            _ => Err(unsupported("a datagram of a stream")),
        }
    }

    /// Returns whether `id` is a Unix socket that is connected to this peer.
    fn has_peer(&self, id: u32, peer: u32) -> bool {
        let socket = self.table.unix(id);
        socket.is_ok_and(|socket| socket.peer_id() == Some(peer))
    }

    /// Checks that `to` accepts datagrams from `from`: not if it is connected to another socket.
    fn may_send(&self, from: u32, to: u32) -> io::Result<()> {
        match self.table.unix(to).map(Socket::peer_id) {
            Ok(Some(other)) if other != from => Err(Errno::PERM.into()),
            _ => Ok(()),
        }
    }

    fn find_datagram(&mut self, host: usize, name: &Name) -> io::Result<u32> {
        let to = self.find_name(&Key::new(host, name, true))?;
        if self.is_datagram(to) {
            Ok(to)
        } else {
            Err(Errno::PROTOTYPE.into())
        }
    }

    /// Disconnects a datagram socket from its peer. Its unreceived datagrams are lost; if there
    /// were any, the peer gets an error, provided that it is connected to this socket and alive.
    fn lose_peer(&mut self, id: u32, before: u32) {
        if self.purge(id) == 0 {
            return;
        }
        if !self.has_peer(before, id) {
            return;
        }
        if let Ok(base) = self.table.base(before) {
            base.error = Some(Errno::CONNRESET);
            self.core.raise(before, base, READABLE | WRITABLE | ERROR);
        }
    }

    /// Drops a socket's unreceived datagrams. Returns their number.
    fn purge(&mut self, id: u32) -> usize {
        let Ok((datagram, base)) = self.datagram_and_base(id) else {
            return 0;
        };
        let (host, lost) = (base.host, std::mem::take(&mut datagram.inbox).queue);
        for ((from, _), bytes) in &lost {
            self.give_back(*from, bytes.len() + OVERHEAD);
        }
        self.wake_senders(id, host);
        lost.len()
    }

    /// Frees buffer space of a sender, as a datagram was received or lost.
    fn give_back(&mut self, from: u32, size: usize) {
        if let Ok(sender) = self.datagram(from) {
            let before = sender.unread;
            sender.unread -= size;
            if !has_room(before) && has_room(sender.unread) {
                self.raise(from, WRITABLE);
            }
        }
    }

    /// Wakes the senders that are connected to a socket, as there is room in its queue, or as it is
    /// closed.
    fn wake_senders(&mut self, id: u32, host: usize) {
        for sender in self.table.ids(host) {
            if self.has_peer(sender, id)
                && self.ready(sender).is_ok_and(|ready| ready & WRITABLE != 0)
            {
                self.raise(sender, WRITABLE);
            }
        }
    }
}

/// The user's calls on sockets.
impl Network<'_> {
    pub(super) fn ready_unix(&self, id: u32, socket: &Socket) -> u8 {
        let peer = socket.peer_id().and_then(|id| self.table.unix(id).ok());
        let (has_input, has_room) = match &socket.kind {
            Kind::Listener => (!socket.base.queue.is_empty(), false),
            Kind::Stream(input) => {
                let unread = match peer.map(|peer| &peer.kind) {
                    Some(Kind::Stream(input)) => input.len(),
                    _ => 0,
                };
                let has_room = has_room(unread) || socket.is_shut[WRITE];
                (!input.is_empty(), has_room)
            }
            Kind::Datagram(datagram) => {
                let has_peer_room = peer.is_none_or(|peer| peer.has_room_for(id));
                let has_room = has_room(datagram.unread) && has_peer_room;
                (!datagram.inbox.queue.is_empty(), has_room)
            }
        };
        when(READABLE, has_input)
            | when(READABLE | CLOSED, socket.is_shut[READ])
            | when(WRITABLE, has_room)
            | when(ERROR, socket.base.error.is_some())
    }

    pub(super) fn close_unix(&mut self, id: u32) {
        let Ok(Socket { base, kind, .. }) = self.table.unix_mut(id) else {
            return;
        };
        let host = base.host;
        match kind {
            Kind::Stream(_) => self.close_stream(id, false),
            Kind::Listener => {
                let queue = std::mem::take(&mut base.queue);
                self.remove_unix(id);
                for waiting in queue {
                    // Bytes that were sent to it will never be read: they count as unread.
                    self.close_stream(waiting, true);
                }
            }
            Kind::Datagram(_) => {
                self.purge(id);
                self.remove_unix(id);
                self.wake_senders(id, host);
            }
        }
    }

    pub(super) fn read_unix(
        &mut self,
        id: u32,
        buffers: &mut [IoSliceMut<'_>],
        peeks: bool,
    ) -> io::Result<usize> {
        let socket = self.table.unix_mut(id)?;
        let Kind::Stream(input) = &mut socket.kind else {
            return Err(gone());
        };
        let before = input.len();
        if before == 0 {
            socket.base.take_error()?;
            if !socket.is_shut[READ] {
                return Err(Errno::AGAIN.into());
            }
        }
        let read = input.read(buffers, peeks);
        if !has_room(before) && has_room(input.len()) {
            let (_, peer) = self.stream(id)?;
            self.raise(peer, WRITABLE);
        }
        Ok(read)
    }

    pub(super) fn write_unix(&mut self, id: u32, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let (_, peer) = self.stream(id)?;
        let socket = self.table.unix_mut(id)?;
        let host = socket.base.host;
        if socket.is_shut[WRITE] {
            return Err(Errno::PIPE.into());
        }
        socket.base.take_error()?;
        let (to, _) = self.stream(peer).map_err(|_| Errno::PIPE)?;
        let mut hash = 0;
        let written = to.write(buffers, BUFFER, |part| hash = digest(hash, part))?;
        if written > 0 {
            self.core.note(host, TraceEvent::Local(hash, written));
            self.raise(peer, READABLE);
        }
        Ok(written)
    }

    pub(super) fn receive_unix(
        &mut self,
        id: u32,
        bytes: &mut [u8],
        peeks: bool,
    ) -> io::Result<(usize, Address, bool)> {
        let (datagram, base) = self.datagram_and_base(id)?;
        base.take_error()?;
        let (host, was_full) = (base.host, datagram.is_full());
        let (len, (from, name), size) = datagram.inbox.receive(bytes, peeks)?;
        if !peeks {
            self.give_back(from, size);
            if was_full {
                self.wake_senders(id, host);
            }
        }
        Ok((len, Address::Unix(name), size > len + OVERHEAD))
    }

    pub(super) fn send_unix(
        &mut self,
        id: u32,
        bytes: &[u8],
        to: Option<&Address>,
    ) -> io::Result<usize> {
        let name = to.map(address::unix).transpose()?;
        let unread = self.datagram(id)?.unread;
        let socket = self.table.unix_mut(id)?;
        let (host, from) = (socket.base.host, (id, socket.name.clone()));
        if bytes.len() > BUFFER - 32 {
            return Err(Errno::MSGSIZE.into());
        }
        socket.base.take_error()?;
        if socket.is_shut[WRITE] {
            return Err(Errno::PIPE.into());
        }
        if unread >= BUFFER {
            return Err(Errno::AGAIN.into());
        }
        let to = match (name, socket.peer_id()) {
            (Some(name), _) => self.find_datagram(host, name)?,
            (None, Some(peer)) => peer,
            (None, None) => return Err(Errno::NOTCONN.into()),
        };
        self.may_send(id, to)?;
        if !self.is_datagram(to) {
            self.table.unix_mut(id)?.peer = None;
            self.lose_peer(id, to);
            return Err(Errno::CONNREFUSED.into());
        }
        let other = self.table.unix(to)?;
        if other.is_shut[READ] {
            return Err(Errno::PIPE.into());
        }
        if to != id && !other.has_room_for(id) {
            return Err(Errno::AGAIN.into());
        }
        self.datagram(to)?.inbox.push(from, bytes.to_vec());
        self.datagram(id)?.unread += bytes.len() + OVERHEAD;
        self.core
            .note(host, TraceEvent::Local(digest(0, bytes), bytes.len()));
        self.raise(to, READABLE);
        Ok(bytes.len())
    }

    pub(super) fn set_peer_unix(&mut self, id: u32, peer: &Address) -> io::Result<()> {
        let name = address::unix(peer)?;
        let host = self.table.base(id)?.host;
        let to = self.find_datagram(host, name)?;
        self.may_send(id, to)?;
        let before = self.table.unix_mut(id)?.peer.replace((to, name.clone()));
        if let Some((before, _)) = before.filter(|(before, _)| *before != to) {
            self.lose_peer(id, before);
        }
        // It may have waited for room at another peer.
        let ready = self.ready(id)?;
        self.raise(id, ready & WRITABLE);
        Ok(())
    }

    pub(super) fn shut_down_unix(&mut self, id: u32, how: Shutdown) -> io::Result<()> {
        let [read, write] = [how != Shutdown::Write, how != Shutdown::Read];
        let socket = self.table.unix(id)?;
        let peer = match socket.kind {
            Kind::Stream(_) => socket.peer_id(),
            Kind::Datagram(_) => None,
            Kind::Listener => return Err(unsupported("shutting down this socket")),
        };
        // If one end of a stream no longer reads, the other one no longer writes.
        let other = peer.map(|peer| (peer, [write, read]));
        for (id, shut) in [(id, [read, write])].into_iter().chain(other) {
            if let Ok(socket) = self.table.unix_mut(id) {
                socket.is_shut[READ] |= shut[READ];
                socket.is_shut[WRITE] |= shut[WRITE];
                self.raise(id, changed(shut));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::core::Core;
    use super::super::sockets::Sockets;
    use super::socket::MAX_WAITING;
    use super::*;

    /// Returns the sockets of a host with a process, which makes the calls.
    fn host() -> (Sockets, Core) {
        let mut core = Core::of_test(1);
        let host = core.add_host("host");
        core.start(host);
        core.set_current(Some(0));
        (Sockets::default(), core)
    }

    fn write(network: &mut Network<'_>, id: u32, len: usize) -> io::Result<usize> {
        network.write(id, &[IoSlice::new(&vec![0; len])])
    }

    /// A writer waits when the buffer is full until there is room for three quarters.
    #[test]
    fn full_writer_waits_for_three_quarters_free() {
        let (mut sockets, mut core) = host();
        let mut network = sockets.network(&mut core);
        let [near, far] = network.pair(true).unwrap();
        assert_eq!(write(&mut network, near, BUFFER + 1).unwrap(), BUFFER);
        assert!(write(&mut network, near, 1).is_err());
        assert!(network.ready(near).unwrap() & WRITABLE == 0);
        assert_eq!(network.ready(far).unwrap(), READABLE | WRITABLE);
        for (len, is_writable) in [(BUFFER / 4 * 3 - 1, false), (1, true)] {
            let bytes = &mut vec![0; len];
            let buffers = &mut [io::IoSliceMut::new(bytes)];
            assert_eq!(network.read(far, buffers, false).unwrap(), len);
            assert_eq!(network.ready(near).unwrap() & WRITABLE != 0, is_writable);
        }
        for id in network.open(0, 0) {
            network.close(id);
        }
        assert!(network.table.ids(0).is_empty());
    }

    /// A sender waits for a receiver that is not connected to it.
    #[test]
    fn unix_sender_waits_for_unconnected_receiver() {
        let (mut sockets, mut core) = host();
        let mut network = sockets.network(&mut core);
        let name = Name::Abstract(b"a".to_vec());
        let to = network.bind_unix(&name).unwrap();
        let from = network.bind_unix(&Name::Unnamed).unwrap();
        let address = Address::Unix(name);
        let to_name = Some(&address);
        let send = |network: &mut Network<'_>| network.send(from, b"x", to_name).is_ok();
        let sent = (0..20).filter(|_| send(&mut network)).count();
        assert_eq!(sent, MAX_WAITING + 1);
        let received = network.receive(to, &mut [0; 4], false);
        assert_eq!(received.unwrap(), (1, Address::Unix(Name::Unnamed), false));
        let send = |network: &mut Network<'_>| network.send(from, b"x", to_name).is_ok();
        assert!(send(&mut network) && !send(&mut network));
    }
}
