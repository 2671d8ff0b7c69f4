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
use std::io;
use std::net::Shutdown;

use super::address::{Address, Name};
use super::bytes::ByteQueue;
use super::core::Core;
use super::errno::Errno;
use super::sockets::{Base, Inbox, OVERHEAD, unread};
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
    is_shut: [bool; 2],
    error: Option<Errno>,
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
    is_shut: [bool; 2],
    error: Option<Errno>,
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

fn ready(has_input: bool, has_room: bool, is_shut: [bool; 2], has_error: bool) -> u8 {
    let mut ready = 0;
    if has_input || is_shut[READ] {
        ready |= READABLE;
    }
    if has_room {
        ready |= WRITABLE;
    }
    if is_shut[READ] {
        ready |= CLOSED;
    }
    if has_error {
        ready |= ERROR;
    }
    ready
}

impl Stream {
    /// Returns its readiness, given what its peer has not read.
    fn ready(&self, unread: usize) -> u8 {
        let has_room = has_room(unread) || self.is_shut[WRITE];
        let has_input = !self.input.is_empty();
        ready(has_input, has_room, self.is_shut, self.error.is_some())
    }
}

impl Datagram {
    fn peer_id(&self) -> Option<u32> {
        self.peer.as_ref().map(|(id, _)| *id)
    }

    /// Returns its readiness, given whether its peer accepts nothing more.
    fn ready(&self, is_peer_full: bool) -> u8 {
        let has_room = has_room(self.unread) && !is_peer_full;
        let has_input = !self.inbox.queue.is_empty();
        ready(has_input, has_room, self.is_shut, self.error.is_some())
    }

    fn is_full(&self) -> bool {
        self.inbox.queue.len() > MAX_WAITING
    }
}

impl Socket {
    /// Describes the socket, for reports.
    pub(super) fn describe(&self) -> String {
        let (name, waits) = (self.name.describe(), self.base.waits());
        match &self.kind {
            Kind::Stream(stream) => {
                let peer = stream.peer_name.describe();
                let ended = if stream.is_shut[READ] {
                    ", it has ended"
                } else {
                    ""
                };
                let unread = unread(stream.input.len());
                format!("Unix, {name}, connected to {peer}{ended}{unread}{waits}")
            }
            Kind::Listener(_) => format!("Unix, listens at {name}{waits}"),
            Kind::Datagram(datagram) => {
                let inbox = datagram.inbox.describe();
                format!("Unix datagrams, {name}, {inbox}{waits}")
            }
        }
    }
}

/// Sockets of all kinds.
impl Unix {
    pub(super) fn has(&self, number: u32) -> bool {
        self.sockets.contains_key(&number)
    }

    fn kind(&self, number: u32) -> Option<&Kind> {
        self.sockets.get(&number).map(|socket| &socket.kind)
    }

    pub(super) fn is_stream(&self, number: u32) -> bool {
        matches!(self.kind(number), Some(Kind::Stream(_)))
    }

    pub(super) fn is_datagram(&self, number: u32) -> bool {
        matches!(self.kind(number), Some(Kind::Datagram(_)))
    }

    /// Returns the sockets that a process has open.
    pub(super) fn of(&self, process: usize) -> impl Iterator<Item = (&u32, &Socket)> {
        let all = self.sockets.iter();
        all.filter(move |(_, socket)| socket.base.process == Some(process))
    }

    pub(super) fn base(&mut self, number: u32) -> io::Result<&mut Base> {
        let socket = self.sockets.get_mut(&number);
        socket.map(|socket| &mut socket.base).ok_or_else(gone)
    }

    /// Returns a socket's current readiness.
    pub(super) fn ready(&self, number: u32) -> io::Result<u8> {
        match self.kind(number).ok_or_else(gone)? {
            Kind::Stream(stream) => {
                let unread = match self.kind(stream.peer) {
                    Some(Kind::Stream(peer)) => peer.input.len(),
                    _ => 0,
                };
                Ok(stream.ready(unread))
            }
            Kind::Listener(listener) if listener.queue.is_empty() => Ok(0),
            Kind::Listener(_) => Ok(READABLE),
            Kind::Datagram(datagram) => {
                let peer = datagram.peer_id().and_then(|peer| self.kind(peer));
                // A peer that is connected to this socket always has room for it.
                let is_peer_full = matches!(peer, Some(Kind::Datagram(peer))
                    if peer.peer_id() != Some(number) && peer.is_full());
                Ok(datagram.ready(is_peer_full))
            }
        }
    }

    /// Reports new readiness of a socket, if it is there.
    fn raise(&mut self, number: u32, ready: u8, core: &mut Core) {
        if let Ok(base) = self.base(number) {
            core.raise(number, base, ready);
        }
    }

    pub(super) fn local_address(&self, number: u32) -> io::Result<Address> {
        let socket = self.sockets.get(&number).ok_or_else(gone)?;
        Ok(Address::Unix(socket.name.clone()))
    }

    pub(super) fn peer_address(&self, number: u32) -> io::Result<Address> {
        let name = match self.kind(number).ok_or_else(gone)? {
            Kind::Stream(stream) => Some(&stream.peer_name),
            Kind::Listener(_) => None,
            Kind::Datagram(datagram) => datagram.peer.as_ref().map(|(_, name)| name),
        };
        let name = name.ok_or(Errno::NOTCONN)?;
        Ok(Address::Unix(name.clone()))
    }

    /// Returns whether receiving was shut down, although a receive would block.
    pub(super) fn has_ended(&self, number: u32) -> bool {
        matches!(self.kind(number), Some(Kind::Datagram(datagram)) if datagram.is_shut[READ])
    }

    /// Closes the sockets of a process that has ended.
    pub(super) fn close_all(&mut self, process: usize, core: &mut Core) {
        let ids: Vec<u32> = self.of(process).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.close(id, core));
    }

    /// Forgets the sockets of a host that has lost its power, and its names but paths.
    pub(super) fn forget_all(&mut self, host: usize) {
        self.sockets.retain(|_, socket| socket.base.host != host);
        self.names
            .retain(|key, _| key.host != host || key.is_path());
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
        if owner.is_some_and(|owner| self.has(*owner)) {
            return Err(Errno::ADDRINUSE.into());
        }
        let id = core.take_socket_number();
        self.names.insert(key, id);
        Ok(id)
    }

    /// Returns the socket that has a name.
    fn find_name(&self, key: &Key) -> io::Result<u32> {
        match self.names.get(key) {
            Some(id) if self.has(*id) => Ok(*id),
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
        self.insert(id, Base::new(host, Some(process)), name, kind);
        Ok(id)
    }

    fn insert(&mut self, id: u32, base: Base, name: &Name, kind: Kind) {
        let name = name.clone();
        self.sockets.insert(id, Socket { base, name, kind });
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
        self.insert_end(
            near,
            Base::new(host, Some(process)),
            far,
            [&Name::Unnamed, name],
        );
        self.insert_end(far, Base::new(host, None), near, [name, &Name::Unnamed]);
        self.raise(to, READABLE, core);
        Ok(near)
    }

    /// Inserts an end of a connection. `names` has its own name, and that of its peer.
    fn insert_end(&mut self, id: u32, base: Base, peer: u32, names: [&Name; 2]) {
        let stream = Stream {
            peer,
            peer_name: names[1].clone(),
            input: ByteQueue::default(),
            is_shut: [false; 2],
            error: None,
        };
        self.insert(id, base, names[0], Kind::Stream(stream));
    }

    pub(super) fn stream_pair(&mut self, core: &mut Core) -> io::Result<(u32, u32)> {
        let (host, process) = core.processes.here()?;
        let (one, other) = (core.take_socket_number(), core.take_socket_number());
        for (id, peer) in [(one, other), (other, one)] {
            let base = Base::new(host, Some(process));
            self.insert_end(id, base, peer, [&Name::Unnamed; 2]);
        }
        Ok((one, other))
    }

    pub(super) fn accept(&mut self, id: u32, core: &Core) -> io::Result<(u32, Address)> {
        let (_, process) = core.processes.here()?;
        let Some(Socket {
            base,
            kind: Kind::Listener(listener),
            ..
        }) = self.sockets.get_mut(&id)
        else {
            return Err(gone());
        };
        let accepted = listener.queue.pop_front();
        let accepted = accepted.ok_or_else(|| Errno::AGAIN.into());
        base.note_blocked(READABLE, &accepted);
        let accepted = accepted?;
        let (base, stream) = self.stream(accepted)?;
        base.process = Some(process);
        Ok((accepted, Address::Unix(stream.peer_name.clone())))
    }

    fn stream(&mut self, id: u32) -> io::Result<(&mut Base, &mut Stream)> {
        let Socket { base, kind, .. } = self.sockets.get_mut(&id).ok_or_else(gone)?;
        match kind {
            Kind::Stream(stream) => Ok((base, stream)),
            _ => Err(gone()),
        }
    }

    pub(super) fn read(
        &mut self,
        id: u32,
        buffers: &mut [io::IoSliceMut<'_>],
        keeps: bool,
        core: &mut Core,
    ) -> io::Result<usize> {
        let (base, stream) = self.stream(id)?;
        let before = stream.input.len();
        let read = match before {
            0 => match stream.error.take() {
                Some(error) => Err(error.into()),
                None if stream.is_shut[READ] => Ok(0),
                None => Err(Errno::AGAIN.into()),
            },
            _ => Ok(stream.input.read(buffers, keeps)),
        };
        base.note_blocked(READABLE, &read);
        let (after, peer) = (stream.input.len(), stream.peer);
        if !has_room(before) && has_room(after) {
            self.raise(peer, WRITABLE, core);
        }
        read
    }

    pub(super) fn write(
        &mut self,
        id: u32,
        buffers: &mut dyn Iterator<Item = &[u8]>,
        core: &mut Core,
    ) -> io::Result<usize> {
        let (base, stream) = self.stream(id)?;
        let (peer, host) = (stream.peer, base.host);
        if stream.is_shut[WRITE] {
            return Err(Errno::PIPE.into());
        }
        if let Some(error) = stream.error.take() {
            return Err(error.into());
        }
        let (_, to) = self.stream(peer).map_err(|_| Errno::PIPE)?;
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

    /// Closes one end of a connection.
    fn close_stream(&mut self, id: u32, has_unread: bool, core: &mut Core) {
        let kind = self.sockets.remove(&id).map(|socket| socket.kind);
        let Some(Kind::Stream(stream)) = kind else {
            return;
        };
        let is_reset = has_unread || !stream.input.is_empty();
        if let Ok((_, peer)) = self.stream(stream.peer) {
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
        self.insert(id, base, name, Kind::Datagram(Datagram::default()));
        Ok(id)
    }

    pub(super) fn datagram_pair(&mut self, core: &mut Core) -> io::Result<(u32, u32)> {
        let [one, other] = [(); 2].map(|()| self.bind(&Name::Unnamed, core));
        let (one, other) = (one?, other?);
        self.datagram(one)?.peer = Some((other, Name::Unnamed));
        self.datagram(other)?.peer = Some((one, Name::Unnamed));
        Ok((one, other))
    }

    fn datagram(&mut self, id: u32) -> io::Result<&mut Datagram> {
        match &mut self.sockets.get_mut(&id).ok_or_else(gone)?.kind {
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

    pub(super) fn set_peer(&mut self, id: u32, name: &Name, core: &mut Core) -> io::Result<()> {
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

    /// Disconnects a datagram socket from its peer. Its unreceived datagrams are lost; if there
    /// were any, the peer gets an error, provided that it is connected to this socket and alive.
    fn lose_peer(&mut self, id: u32, before: u32, core: &mut Core) {
        if self.purge(id, core) == 0 {
            return;
        }
        if let Ok(other) = self.datagram(before) {
            if other.peer_id() == Some(id) {
                other.error = Some(Errno::CONNRESET);
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

    /// Sends a datagram, to the peer unless a name is given.
    pub(super) fn send(
        &mut self,
        id: u32,
        bytes: &[u8],
        name: Option<&Name>,
        core: &mut Core,
    ) -> io::Result<usize> {
        let Some(Socket {
            base, name: own, ..
        }) = self.sockets.get(&id)
        else {
            return Err(gone());
        };
        let (host, from) = (base.host, (id, own.clone()));
        let socket = self.datagram(id)?;
        let peer = socket.peer_id();
        if bytes.len() > BUFFER - 32 {
            return Err(Errno::MSGSIZE.into());
        }
        if let Some(error) = socket.error.take() {
            return Err(error.into());
        }
        if socket.is_shut[WRITE] {
            return Err(Errno::PIPE.into());
        }
        if socket.unread >= BUFFER {
            return Err(Errno::AGAIN.into());
        }
        let to = match (name, peer) {
            (Some(name), _) => self.find_datagram(host, name)?,
            (None, Some(peer)) => peer,
            (None, None) => return Err(Errno::NOTCONN.into()),
        };
        self.may_send(id, to)?;
        let Ok(other) = self.datagram(to) else {
            self.datagram(id)?.peer = None;
            self.lose_peer(id, to, core);
            return Err(Errno::CONNREFUSED.into());
        };
        if other.is_shut[READ] {
            return Err(Errno::PIPE.into());
        }
        if to != id && other.peer_id() != Some(id) && other.is_full() {
            return Err(Errno::AGAIN.into());
        }
        other.inbox.push(from, bytes.to_vec());
        self.datagram(id)?.unread += bytes.len() + OVERHEAD;
        core.note(host, What::Local(digest(0, bytes), bytes.len()));
        self.raise(to, READABLE, core);
        Ok(bytes.len())
    }

    /// Receives a datagram, or peeks at it if `keeps` is set.
    pub(super) fn receive(
        &mut self,
        id: u32,
        bytes: &mut [u8],
        keeps: bool,
        core: &mut Core,
    ) -> io::Result<(usize, Address)> {
        let socket = self.datagram(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error.into());
        }
        let was_full = socket.is_full();
        let received = socket.inbox.receive(bytes, keeps);
        let (len, (from, name), size) = received.ok_or(Errno::AGAIN)?;
        if !keeps {
            self.give_back(from, size, core);
            if was_full {
                self.wake_senders(id, core);
            }
        }
        Ok((len, Address::Unix(name)))
    }
}

/// Streams and datagrams.
impl Unix {
    pub(super) fn shut_down(&mut self, id: u32, how: Shutdown, core: &mut Core) -> io::Result<()> {
        let shut = [how != Shutdown::Write, how != Shutdown::Read];
        let add = |is_shut: &mut [bool; 2], [read, write]: [bool; 2]| {
            is_shut[READ] |= read;
            is_shut[WRITE] |= write;
        };
        let socket = self.sockets.get_mut(&id).ok_or_else(gone)?;
        let peer = match &mut socket.kind {
            Kind::Stream(stream) => {
                add(&mut stream.is_shut, shut);
                Some(stream.peer)
            }
            Kind::Datagram(datagram) => {
                add(&mut datagram.is_shut, shut);
                None
            }
            Kind::Listener(_) => return Err(unsupported("shutting down this socket")),
        };
        let changed = |shut: [bool; 2]| {
            let read = if shut[READ] { READABLE | CLOSED } else { 0 };
            read | if shut[WRITE] { WRITABLE } else { 0 }
        };
        self.raise(id, changed(shut), core);
        if let Some(peer) = peer {
            let back = [shut[WRITE], shut[READ]];
            if let Ok((_, other)) = self.stream(peer) {
                add(&mut other.is_shut, back);
                self.raise(peer, changed(back), core);
            }
        }
        Ok(())
    }

    /// Closes a socket after its last handle or its process has gone.
    pub(super) fn close(&mut self, id: u32, core: &mut Core) {
        let kind = self.sockets.get_mut(&id).map(|socket| &mut socket.kind);
        match kind {
            None => {}
            Some(Kind::Stream(_)) => self.close_stream(id, false, core),
            Some(Kind::Listener(listener)) => {
                let queue = std::mem::take(&mut listener.queue);
                self.forget_name(id);
                self.sockets.remove(&id);
                for waiting in queue {
                    // Bytes that were sent to it will never be read: they count as unread.
                    self.close_stream(waiting, true, core);
                }
            }
            Some(Kind::Datagram(_)) => {
                self.purge(id, core);
                self.forget_name(id);
                self.sockets.remove(&id);
                self.wake_senders(id, core);
            }
        }
    }

    /// Frees a socket's abstract name; a path stays.
    fn forget_name(&mut self, id: u32) {
        self.names
            .retain(|key, owner| *owner != id || key.is_path());
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
        unix.write(id, &mut [&*vec![0; len]].into_iter(), core)
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
        let (far, _) = unix.accept(listener, &core).unwrap();
        assert_eq!(
            unix.peer_address(near).unwrap(),
            Address::Unix(path.clone())
        );
        assert_eq!(
            unix.peer_address(far).unwrap(),
            Address::Unix(Name::Unnamed)
        );
        unix.close(listener, &mut core);
        let refused = kind(unix.connect(&path, &mut core));
        assert_eq!(refused, io::ErrorKind::ConnectionRefused);
        assert!(unix.listen(&path, 1, &mut core).is_ok());
        unix.forget_all(0);
        assert_eq!((unix.sockets.len(), unix.names.len()), (0, 1));
    }

    #[test]
    fn a_writer_waits_when_the_buffer_is_full_until_there_is_room_for_three_quarters() {
        let (mut unix, mut core) = host();
        let (near, far) = unix.stream_pair(&mut core).unwrap();
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
        unix.close_all(0, &mut core);
        assert!(unix.sockets.is_empty());
    }

    #[test]
    fn closing_with_unread_bytes_resets_the_peer() {
        let (mut unix, mut core) = host();
        for (sends, kind) in [(0, None), (1, Some(io::ErrorKind::ConnectionReset))] {
            let (near, far) = unix.stream_pair(&mut core).unwrap();
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
        let mut send = |unix: &mut Unix| unix.send(from, b"x", Some(&name), &mut core).is_ok();
        let sent = (0..20).filter(|_| send(&mut unix)).count();
        assert_eq!(sent, MAX_WAITING + 1);
        let received = unix.receive(to, &mut [0; 4], false, &mut core);
        assert_eq!(received.unwrap(), (1, Address::Unix(Name::Unnamed)));
        let mut send = |unix: &mut Unix| unix.send(from, b"x", Some(&name), &mut core).is_ok();
        assert!(send(&mut unix) && !send(&mut unix));
    }
}
