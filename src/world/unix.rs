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

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;

use super::address::{Address, Name};
use super::bytes::ByteQueue;
use super::core::Core;
use super::errno::Errno;
use super::sockets::{Base, Inbox, OVERHEAD, Protocol, unread};
use super::trace::{What, digest};
use super::{CLOSED, ERROR, READABLE, WRITABLE, gone, unsupported};

/// The maximum of a sender's unread bytes: Linux's `wmem_default`.
const BUFFER: usize = 212_992;

/// The number of datagrams that may wait for a receiver, if that is not connected to their sender,
/// before a send would block: Linux's `net.unix.max_dgram_qlen`. (One more fits, by
/// `unix_recvq_full`.)
const MAX_WAITING: usize = 10;

/// The directions, as indexes of `is_shut`.
const READ: usize = 0;
const WRITE: usize = 1;

/// All Unix sockets of a world.
#[derive(Debug, Default)]
pub(super) struct Unix {
    sockets: BTreeMap<u32, Socket>,
    /// The socket that has each name, or had it last.
    names: BTreeMap<Key, u32>,
}

#[derive(Debug)]
pub(super) struct Socket {
    base: Base,
    name: Name,
    is_shut: [bool; 2],
    error: Option<Errno>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Stream(Stream),
    Listener(Listener),
    Datagram(Datagram),
}

/// One end of a connection.
#[derive(Debug)]
struct Stream {
    /// The other end, which may have gone.
    peer: u32,
    peer_name: Name,
    input: ByteQueue,
}

#[derive(Debug)]
struct Listener {
    backlog: usize,
    queue: VecDeque<u32>,
}

#[derive(Debug, Default)]
struct Datagram {
    /// The peer's number and name. The peer may have gone, until something is sent to it.
    peer: Option<(u32, Name)>,
    /// The datagrams, each with its sender's number, and the name that the sender had then.
    inbox: Inbox<(u32, Name)>,
    /// The bytes that it has sent, and that were not received yet.
    unread: usize,
}

/// The key of a name. Datagram sockets have abstract names apart from those of streams, as Linux
/// looks a name up among the sockets of one type.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    host: usize,
    name: Name,
    is_of_datagrams: bool,
}

impl Key {
    fn new(host: usize, name: &Name, is_of_datagrams: bool) -> Key {
        let is_abstract = matches!(name, Name::Abstract(_));
        Key {
            host,
            name: name.clone(),
            is_of_datagrams: is_of_datagrams && is_abstract,
        }
    }

    fn is_path(&self) -> bool {
        matches!(self.name, Name::Path(_))
    }
}

/// Returns whether there is enough room for an event: Linux's `unix_writable`.
fn has_room(unread: usize) -> bool {
    unread * 4 <= BUFFER
}

impl Datagram {
    fn peer_id(&self) -> Option<u32> {
        self.peer.as_ref().map(|(id, _)| *id)
    }

    fn is_full(&self) -> bool {
        self.inbox.queue.len() > MAX_WAITING
    }
}

impl Socket {
    fn new(base: Base, name: &Name, kind: Kind) -> Socket {
        Socket {
            base,
            name: name.clone(),
            is_shut: [false; 2],
            error: None,
            kind,
        }
    }
}

impl Kind {
    /// Returns one end of a connection, given the other one and its name.
    fn stream(peer: u32, peer_name: &Name) -> Kind {
        Kind::Stream(Stream {
            peer,
            peer_name: peer_name.clone(),
            input: ByteQueue::default(),
        })
    }
}

/// Returns the readiness that a change of directions makes.
fn changed(shut: [bool; 2]) -> u8 {
    let read = if shut[READ] { READABLE | CLOSED } else { 0 };
    read | if shut[WRITE] { WRITABLE } else { 0 }
}

/// Sockets of all kinds.
impl Unix {
    pub(super) fn find(&self, id: u32) -> io::Result<&Socket> {
        self.sockets.get(&id).ok_or_else(gone)
    }

    fn get(&mut self, id: u32) -> io::Result<&mut Socket> {
        self.sockets.get_mut(&id).ok_or_else(gone)
    }

    fn is_datagram(&self, id: u32) -> bool {
        (self.find(id)).is_ok_and(|socket| matches!(socket.kind, Kind::Datagram(_)))
    }
}

/// Names.
impl Unix {
    /// Returns the number of a new socket, which gets that name.
    fn take_name(&mut self, key: Key, core: &mut Core) -> io::Result<u32> {
        if key.name == Name::Unnamed {
            return Err(unsupported("a name that the system chooses"));
        }
        let owner = self.names.get(&key);
        if owner.is_some_and(|owner| self.find(*owner).is_ok()) {
            return Err(Errno::ADDRINUSE.into());
        }
        let id = core.take_socket_number();
        self.names.insert(key, id);
        Ok(id)
    }

    /// Returns the socket that has a name.
    fn find_name(&self, key: &Key) -> io::Result<u32> {
        match self.names.get(key) {
            Some(id) if self.find(*id).is_ok() => Ok(*id),
            None if key.is_path() => Err(Errno::NOENT.into()),
            None if key.name == Name::Unnamed => Err(Errno::INVAL.into()),
            _ => Err(Errno::CONNREFUSED.into()),
        }
    }
}

/// Streams.
impl Unix {
    pub(super) fn listen(
        &mut self,
        name: &Name,
        backlog: usize,
        core: &mut Core,
    ) -> io::Result<u32> {
        let (host, process) = core.processes.here()?;
        let id = self.take_name(Key::new(host, name, false), core)?;
        let queue = VecDeque::new();
        let kind = Kind::Listener(Listener { backlog, queue });
        let socket = Socket::new(Base::new(host, Some(process)), name, kind);
        self.sockets.insert(id, socket);
        Ok(id)
    }

    pub(super) fn connect(&mut self, name: &Name, core: &mut Core) -> io::Result<u32> {
        let (host, process) = core.processes.here()?;
        let to = self.find_name(&Key::new(host, name, false))?;
        let socket = self.sockets.get_mut(&to).map(|socket| &mut socket.kind);
        let Some(Kind::Listener(listener)) = socket else {
            return Err(Errno::PROTOTYPE.into());
        };
        if listener.queue.len() > listener.backlog {
            return Err(Errno::AGAIN.into());
        }
        let (near, far) = (core.take_socket_number(), core.take_socket_number());
        listener.queue.push_back(far);
        let base = Base::new(host, Some(process));
        let socket = Socket::new(base, &Name::Unnamed, Kind::stream(far, name));
        self.sockets.insert(near, socket);
        let kind = Kind::stream(near, &Name::Unnamed);
        let socket = Socket::new(Base::new(host, None), name, kind);
        self.sockets.insert(far, socket);
        self.raise(to, READABLE, core);
        Ok(near)
    }

    /// Creates two sockets that are connected to each other: streams, or datagram sockets.
    pub(super) fn pair(&mut self, is_stream: bool, core: &mut Core) -> io::Result<[u32; 2]> {
        let (host, process) = core.processes.here()?;
        let (one, other) = (core.take_socket_number(), core.take_socket_number());
        for (id, peer) in [(one, other), (other, one)] {
            let kind = if is_stream {
                Kind::stream(peer, &Name::Unnamed)
            } else {
                Kind::Datagram(Datagram {
                    peer: Some((peer, Name::Unnamed)),
                    ..Datagram::default()
                })
            };
            let base = Base::new(host, Some(process));
            self.sockets
                .insert(id, Socket::new(base, &Name::Unnamed, kind));
        }
        Ok([one, other])
    }

    fn stream(&mut self, id: u32) -> io::Result<&mut Stream> {
        match &mut self.get(id)?.kind {
            Kind::Stream(stream) => Ok(stream),
            _ => Err(gone()),
        }
    }

    /// Closes one end of a connection.
    fn close_stream(&mut self, id: u32, has_unread: bool, core: &mut Core) {
        let kind = self.sockets.remove(&id).map(|socket| socket.kind);
        let Some(Kind::Stream(stream)) = kind else {
            return;
        };
        let is_reset = has_unread || !stream.input.is_empty();
        if let Ok(peer) = self.get(stream.peer) {
            peer.is_shut = [true; 2];
            if is_reset {
                peer.error = Some(Errno::CONNRESET);
            }
            let error = if is_reset { ERROR } else { 0 };
            self.raise(stream.peer, READABLE | WRITABLE | CLOSED | error, core);
        }
    }
}

/// Datagrams.
impl Unix {
    pub(super) fn bind(&mut self, name: &Name, core: &mut Core) -> io::Result<u32> {
        let (host, process) = core.processes.here()?;
        let id = match name {
            Name::Unnamed => core.take_socket_number(),
            _ => self.take_name(Key::new(host, name, true), core)?,
        };
        let base = Base::new(host, Some(process));
        let socket = Socket::new(base, name, Kind::Datagram(Datagram::default()));
        self.sockets.insert(id, socket);
        Ok(id)
    }

    fn datagram(&mut self, id: u32) -> io::Result<&mut Datagram> {
        match &mut self.get(id)?.kind {
            Kind::Datagram(datagram) => Ok(datagram),
            _ => Err(unsupported("a datagram of a stream")),
        }
    }

    /// Checks that `to` accepts datagrams from `from`: not if it is connected to another socket.
    fn may_send(&mut self, from: u32, to: u32) -> io::Result<()> {
        match self.datagram(to).map(|datagram| datagram.peer_id()) {
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
    fn lose_peer(&mut self, id: u32, before: u32, core: &mut Core) {
        if self.purge(id, core) == 0 {
            return;
        }
        if let Ok(Socket {
            kind: Kind::Datagram(other),
            error,
            ..
        }) = self.get(before)
        {
            if other.peer_id() == Some(id) {
                *error = Some(Errno::CONNRESET);
                self.raise(before, READABLE | WRITABLE | ERROR, core);
            }
        }
    }

    /// Drops a socket's unreceived datagrams. Returns their number.
    fn purge(&mut self, id: u32, core: &mut Core) -> usize {
        let Ok(socket) = self.datagram(id) else {
            return 0;
        };
        let lost = std::mem::take(&mut socket.inbox.queue);
        socket.inbox.size = 0;
        for ((from, _), bytes) in &lost {
            self.give_back(*from, bytes.len() + OVERHEAD, core);
        }
        self.wake_senders(id, core);
        lost.len()
    }

    /// Frees buffer space of a sender, as a datagram was received or lost.
    fn give_back(&mut self, from: u32, size: usize, core: &mut Core) {
        if let Ok(sender) = self.datagram(from) {
            let before = sender.unread;
            sender.unread -= size;
            if !has_room(before) && has_room(sender.unread) {
                self.raise(from, WRITABLE, core);
            }
        }
    }

    /// Wakes the senders that are connected to a socket, as there is room in its queue.
    fn wake_senders(&mut self, id: u32, core: &mut Core) {
        let others = self.sockets.iter();
        let senders = others.filter_map(|(number, other)| match &other.kind {
            Kind::Datagram(other) if other.peer_id() == Some(id) => Some(*number),
            _ => None,
        });
        for sender in senders.collect::<Vec<u32>>() {
            if self.ready(sender).is_ok_and(|ready| ready & WRITABLE != 0) {
                self.raise(sender, WRITABLE, core);
            }
        }
    }

    /// Frees a socket's abstract name; a path stays.
    fn forget_name(&mut self, id: u32) {
        self.names
            .retain(|key, owner| *owner != id || key.is_path());
    }
}

/// The user's calls on sockets.
impl Protocol for Unix {
    fn base(&mut self, id: u32) -> io::Result<&mut Base> {
        Ok(&mut self.get(id)?.base)
    }

    fn ready(&self, id: u32) -> io::Result<u8> {
        let socket = self.find(id)?;
        let (has_input, has_room) = match &socket.kind {
            Kind::Listener(listener) if listener.queue.is_empty() => return Ok(0),
            Kind::Listener(_) => return Ok(READABLE),
            Kind::Stream(stream) => {
                let unread = match self.find(stream.peer).map(|peer| &peer.kind) {
                    Ok(Kind::Stream(peer)) => peer.input.len(),
                    _ => 0,
                };
                let has_room = has_room(unread) || socket.is_shut[WRITE];
                (!stream.input.is_empty(), has_room)
            }
            Kind::Datagram(datagram) => {
                let peer = datagram.peer_id().and_then(|peer| self.find(peer).ok());
                // A peer that is connected to this socket always has room for it.
                let is_peer_full = matches!(peer.map(|peer| &peer.kind), Some(Kind::Datagram(peer))
                    if peer.peer_id() != Some(id) && peer.is_full());
                let has_room = has_room(datagram.unread) && !is_peer_full;
                (!datagram.inbox.queue.is_empty(), has_room)
            }
        };
        let when = |flags: u8, is_so: bool| if is_so { flags } else { 0 };
        Ok(when(READABLE, has_input)
            | when(READABLE | CLOSED, socket.is_shut[READ])
            | when(WRITABLE, has_room)
            | when(ERROR, socket.error.is_some()))
    }

    fn kind(&self, id: u32) -> &'static str {
        if self.is_datagram(id) {
            "Unix datagram"
        } else {
            "Unix stream"
        }
    }

    fn is_stream(&self, id: u32) -> bool {
        (self.find(id)).is_ok_and(|socket| matches!(socket.kind, Kind::Stream(_)))
    }

    fn describe(&self, id: u32, _core: &Core) -> io::Result<String> {
        let socket = self.find(id)?;
        let (name, waits) = (socket.name.describe(), socket.base.waits());
        Ok(match &socket.kind {
            Kind::Stream(stream) => {
                let peer = stream.peer_name.describe();
                let has_ended = socket.is_shut[READ];
                let ended = if has_ended { ", it has ended" } else { "" };
                let unread = unread(stream.input.len());
                format!("Unix, {name}, connected to {peer}{ended}{unread}{waits}")
            }
            Kind::Listener(_) => format!("Unix, listens at {name}{waits}"),
            Kind::Datagram(datagram) => {
                let inbox = datagram.inbox.describe();
                format!("Unix datagrams, {name}, {inbox}{waits}")
            }
        })
    }

    fn open(&self, _host: usize, process: usize) -> Vec<u32> {
        let all = self.sockets.iter();
        let open = all.filter(|(_, socket)| socket.base.process == Some(process));
        open.map(|(id, _)| *id).collect()
    }

    fn addresses(&self, id: u32) -> io::Result<(Address, Option<Address>)> {
        let socket = self.find(id)?;
        let peer = match &socket.kind {
            Kind::Stream(stream) => Some(&stream.peer_name),
            Kind::Listener(_) => None,
            Kind::Datagram(datagram) => datagram.peer.as_ref().map(|(_, name)| name),
        };
        let peer = peer.map(|name| Address::Unix(name.clone()));
        Ok((Address::Unix(socket.name.clone()), peer))
    }

    fn has_ended(&self, id: u32) -> bool {
        self.is_datagram(id) && self.find(id).is_ok_and(|socket| socket.is_shut[READ])
    }

    fn close(&mut self, id: u32, core: &mut Core) {
        match self.get(id).map(|socket| &mut socket.kind) {
            Err(_) => {}
            Ok(Kind::Stream(_)) => self.close_stream(id, false, core),
            Ok(Kind::Listener(listener)) => {
                let queue = std::mem::take(&mut listener.queue);
                self.forget_name(id);
                self.sockets.remove(&id);
                for waiting in queue {
                    // Bytes that were sent to it will never be read: they count as unread.
                    self.close_stream(waiting, true, core);
                }
            }
            Ok(Kind::Datagram(_)) => {
                self.purge(id, core);
                self.forget_name(id);
                self.sockets.remove(&id);
                self.wake_senders(id, core);
            }
        }
    }

    /// Names are forgotten too, but paths stay.
    fn forget_all(&mut self, host: usize, _core: &mut Core) {
        self.sockets.retain(|_, socket| socket.base.host != host);
        self.names
            .retain(|key, _| key.host != host || key.is_path());
    }

    fn accept(&mut self, id: u32, core: &mut Core) -> io::Result<(u32, Address)> {
        let (_, process) = core.processes.here()?;
        let Socket { base, kind, .. } = self.get(id)?;
        let Kind::Listener(listener) = kind else {
            return Err(gone());
        };
        let accepted = listener.queue.pop_front();
        let accepted = accepted.ok_or_else(|| Errno::AGAIN.into());
        base.note_blocked(READABLE, &accepted);
        let accepted = accepted?;
        self.base(accepted)?.process = Some(process);
        let peer = self.stream(accepted)?.peer_name.clone();
        Ok((accepted, Address::Unix(peer)))
    }

    fn read(
        &mut self,
        id: u32,
        buffers: &mut [IoSliceMut<'_>],
        keeps: bool,
        core: &mut Core,
    ) -> io::Result<usize> {
        let socket = self.get(id)?;
        let Kind::Stream(stream) = &mut socket.kind else {
            return Err(gone());
        };
        let before = stream.input.len();
        let read = match before {
            0 => match socket.error.take() {
                Some(error) => Err(error.into()),
                None if socket.is_shut[READ] => Ok(0),
                None => Err(Errno::AGAIN.into()),
            },
            _ => Ok(stream.input.read(buffers, keeps)),
        };
        socket.base.note_blocked(READABLE, &read);
        let (after, peer) = (stream.input.len(), stream.peer);
        if !has_room(before) && has_room(after) {
            self.raise(peer, WRITABLE, core);
        }
        read
    }

    fn write(&mut self, id: u32, buffers: &[IoSlice<'_>], core: &mut Core) -> io::Result<usize> {
        let peer = self.stream(id)?.peer;
        let socket = self.get(id)?;
        let host = socket.base.host;
        if socket.is_shut[WRITE] {
            return Err(Errno::PIPE.into());
        }
        if let Some(error) = socket.error.take() {
            return Err(error.into());
        }
        let to = self.stream(peer).map_err(|_| Errno::PIPE)?;
        let (mut written, mut is_empty, mut hash) = (0, true, 0);
        for bytes in buffers {
            is_empty &= bytes.is_empty();
            let part = bytes.len().min(BUFFER - to.input.len());
            to.input.push(&bytes[..part]);
            hash = digest(hash, &bytes[..part]);
            written += part;
        }
        let result = if written == 0 && !is_empty {
            Err(Errno::AGAIN.into())
        } else {
            Ok(written)
        };
        self.base(id)?.note_blocked(WRITABLE, &result);
        if written > 0 {
            core.note(host, What::Local(hash, written));
            self.raise(peer, READABLE, core);
        }
        result
    }

    fn receive(
        &mut self,
        id: u32,
        bytes: &mut [u8],
        keeps: bool,
        core: &mut Core,
    ) -> io::Result<(usize, Address)> {
        let Socket { kind, error, .. } = self.get(id)?;
        let Kind::Datagram(datagram) = kind else {
            return Err(unsupported("a datagram of a stream"));
        };
        if let Some(error) = error.take() {
            return Err(error.into());
        }
        let was_full = datagram.is_full();
        let (len, (from, name), size) = datagram.inbox.receive(bytes, keeps)?;
        if !keeps {
            self.give_back(from, size, core);
            if was_full {
                self.wake_senders(id, core);
            }
        }
        Ok((len, Address::Unix(name)))
    }

    fn send(
        &mut self,
        id: u32,
        bytes: &[u8],
        to: Option<&Address>,
        core: &mut Core,
    ) -> io::Result<usize> {
        let name = to.map(Address::unix).transpose()?;
        let (peer, unread) = {
            let socket = self.datagram(id)?;
            (socket.peer_id(), socket.unread)
        };
        let socket = self.get(id)?;
        let (host, from) = (socket.base.host, (id, socket.name.clone()));
        if bytes.len() > BUFFER - 32 {
            return Err(Errno::MSGSIZE.into());
        }
        if let Some(error) = socket.error.take() {
            return Err(error.into());
        }
        if socket.is_shut[WRITE] {
            return Err(Errno::PIPE.into());
        }
        if unread >= BUFFER {
            return Err(Errno::AGAIN.into());
        }
        let to = match (name, peer) {
            (Some(name), _) => self.find_datagram(host, name)?,
            (None, Some(peer)) => peer,
            (None, None) => return Err(Errno::NOTCONN.into()),
        };
        self.may_send(id, to)?;
        if !self.is_datagram(to) {
            self.datagram(id)?.peer = None;
            self.lose_peer(id, to, core);
            return Err(Errno::CONNREFUSED.into());
        }
        if self.find(to)?.is_shut[READ] {
            return Err(Errno::PIPE.into());
        }
        let other = self.datagram(to)?;
        if to != id && other.peer_id() != Some(id) && other.is_full() {
            return Err(Errno::AGAIN.into());
        }
        other.inbox.push(from, bytes.to_vec());
        self.datagram(id)?.unread += bytes.len() + OVERHEAD;
        core.note(host, What::Local(digest(0, bytes), bytes.len()));
        self.raise(to, READABLE, core);
        Ok(bytes.len())
    }

    fn set_peer(&mut self, id: u32, peer: &Address, core: &mut Core) -> io::Result<()> {
        let name = peer.unix()?;
        let host = self.base(id)?.host;
        let to = self.find_datagram(host, name)?;
        self.may_send(id, to)?;
        let before = self.datagram(id)?.peer.replace((to, name.clone()));
        match before {
            Some((before, _)) if before != to => self.lose_peer(id, before, core),
            _ => {}
        }
        // It may have waited for room at another peer.
        let ready = self.ready(id)?;
        self.raise(id, ready & WRITABLE, core);
        Ok(())
    }

    fn shut_down(&mut self, id: u32, how: Shutdown, core: &mut Core) -> io::Result<()> {
        let [read, write] = [how != Shutdown::Write, how != Shutdown::Read];
        let peer = match &self.find(id)?.kind {
            Kind::Stream(stream) => Some(stream.peer),
            Kind::Datagram(_) => None,
            Kind::Listener(_) => return Err(unsupported("shutting down this socket")),
        };
        // If one end of a stream no longer reads, the other one no longer writes.
        let other = peer.map(|peer| (peer, [write, read]));
        for (id, shut) in [(id, [read, write])].into_iter().chain(other) {
            if let Ok(socket) = self.get(id) {
                socket.is_shut[READ] |= shut[READ];
                socket.is_shut[WRITE] |= shut[WRITE];
                self.raise(id, changed(shut), core);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the sockets of a host with a process, which makes the calls.
    fn host() -> (Unix, Core) {
        let mut core = Core::of_test(1);
        let host = core.add_host("host");
        core.start(host);
        core.set_current(Some(0));
        (Unix::default(), core)
    }

    fn write(unix: &mut Unix, id: u32, len: usize, core: &mut Core) -> io::Result<usize> {
        unix.write(id, &[IoSlice::new(&vec![0; len])], core)
    }

    #[test]
    fn a_path_stays_when_its_socket_is_closed_and_may_be_bound_again() {
        let (mut unix, mut core) = host();
        let path = Name::Path(b"/a".to_vec());
        let kind = |result: io::Result<u32>| result.unwrap_err().kind();
        assert_eq!(
            kind(unix.connect(&path, &mut core)),
            io::ErrorKind::NotFound
        );
        let listener = unix.listen(&path, 1, &mut core).unwrap();
        assert_eq!(
            kind(unix.listen(&path, 1, &mut core)),
            io::ErrorKind::AddrInUse
        );
        let near = unix.connect(&path, &mut core).unwrap();
        let (far, _) = unix.accept(listener, &mut core).unwrap();
        assert_eq!(
            unix.addresses(near).unwrap().1,
            Some(Address::Unix(path.clone()))
        );
        assert_eq!(
            unix.addresses(far).unwrap().1,
            Some(Address::Unix(Name::Unnamed))
        );
        unix.close(listener, &mut core);
        let refused = kind(unix.connect(&path, &mut core));
        assert_eq!(refused, io::ErrorKind::ConnectionRefused);
        assert!(unix.listen(&path, 1, &mut core).is_ok());
        unix.forget_all(0, &mut core);
        assert_eq!((unix.sockets.len(), unix.names.len()), (0, 1));
    }

    #[test]
    fn a_writer_waits_when_the_buffer_is_full_until_there_is_room_for_three_quarters() {
        let (mut unix, mut core) = host();
        let [near, far] = unix.pair(true, &mut core).unwrap();
        assert_eq!(
            write(&mut unix, near, BUFFER + 1, &mut core).unwrap(),
            BUFFER
        );
        assert!(write(&mut unix, near, 1, &mut core).is_err());
        assert!(unix.ready(near).unwrap() & WRITABLE == 0);
        assert_eq!(unix.ready(far).unwrap(), READABLE | WRITABLE);
        for (len, is_writable) in [(BUFFER / 4 * 3 - 1, false), (1, true)] {
            let bytes = &mut vec![0; len];
            let buffers = &mut [io::IoSliceMut::new(bytes)];
            assert_eq!(unix.read(far, buffers, false, &mut core).unwrap(), len);
            assert_eq!(unix.ready(near).unwrap() & WRITABLE != 0, is_writable);
        }
        for id in unix.open(0, 0) {
            unix.close(id, &mut core);
        }
        assert!(unix.sockets.is_empty());
    }

    #[test]
    fn closing_with_unread_bytes_resets_the_peer() {
        let (mut unix, mut core) = host();
        for (sends, kind) in [(0, None), (1, Some(io::ErrorKind::ConnectionReset))] {
            let [near, far] = unix.pair(true, &mut core).unwrap();
            write(&mut unix, near, sends, &mut core).unwrap();
            unix.close(far, &mut core);
            let read = unix.read(near, &mut [], false, &mut core);
            assert_eq!(read.err().map(|error| error.kind()), kind);
        }
    }

    #[test]
    fn a_sender_waits_for_a_receiver_that_is_not_connected_to_it() {
        let (mut unix, mut core) = host();
        let name = Name::Abstract(b"a".to_vec());
        let to = unix.bind(&name, &mut core).unwrap();
        let from = unix.bind(&Name::Unnamed, &mut core).unwrap();
        let address = Address::Unix(name);
        let to_name = Some(&address);
        let mut send = |unix: &mut Unix| unix.send(from, b"x", to_name, &mut core).is_ok();
        let sent = (0..20).filter(|_| send(&mut unix)).count();
        assert_eq!(sent, MAX_WAITING + 1);
        let received = unix.receive(to, &mut [0; 4], false, &mut core);
        assert_eq!(received.unwrap(), (1, Address::Unix(Name::Unnamed)));
        let mut send = |unix: &mut Unix| unix.send(from, b"x", to_name, &mut core).is_ok();
        assert!(send(&mut unix) && !send(&mut unix));
    }
}
