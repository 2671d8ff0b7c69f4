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

use std::collections::VecDeque;
use std::io;
use std::net::Shutdown;

use super::address::{Address, Name};
use super::bytes::ByteQueue;
use super::errno::Errno;
use super::sockets::{Base, Inbox, OVERHEAD, Other};
use super::trace::{What, digest};
use super::{CLOSED, ERROR, Kernel, READABLE, WRITABLE};

/// The maximum of a sender's unread bytes: Linux's `wmem_default`.
const BUFFER: usize = 212_992;

/// The number of datagrams that may wait for a receiver, if that is not connected to their sender,
/// before a send would block: Linux's `net.unix.max_dgram_qlen`. (One more fits, by
/// `unix_recvq_full`.)
const MAX_WAITING: usize = 10;

/// The directions, as indexes of `is_shut`.
const READ: usize = 0;
const WRITE: usize = 1;

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) base: Base,
    pub(super) name: Name,
    /// The other end, which may have gone.
    peer: u32,
    pub(super) peer_name: Name,
    input: ByteQueue,
    is_shut: [bool; 2],
    error: Option<Errno>,
}

#[derive(Debug)]
pub(super) struct Listener {
    pub(super) base: Base,
    pub(super) name: Name,
    backlog: usize,
    queue: VecDeque<u32>,
}

#[derive(Debug)]
pub(super) struct Datagram {
    pub(super) base: Base,
    pub(super) name: Name,
    /// The peer's number and name. The peer may have gone, until something is sent to it.
    peer: Option<(u32, Name)>,
    /// The datagrams, each with its sender's number, and the name that the sender had then.
    inbox: Inbox<(u32, Name)>,
    pub(super) is_shut: [bool; 2],
    error: Option<Errno>,
    /// The bytes that it has sent, and that were not received yet.
    unread: usize,
}

/// The key of a name. Datagram sockets have abstract names apart from those of streams, as Linux
/// looks a name up among the sockets of one type.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    pub(super) host: usize,
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

    pub(super) fn is_path(&self) -> bool {
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
    fn new(base: Base, names: (Name, Name), peer: u32) -> Stream {
        Stream {
            base,
            name: names.0,
            peer,
            peer_name: names.1,
            input: ByteQueue::default(),
            is_shut: [false; 2],
            error: None,
        }
    }

    pub(super) fn ready(&self, kernel: &Kernel) -> u8 {
        let unread = match kernel.others.get(&self.peer) {
            Some(Other::Stream(peer)) => peer.input.len(),
            _ => 0,
        };
        let has_room = has_room(unread) || self.is_shut[WRITE];
        let has_input = !self.input.is_empty();
        ready(has_input, has_room, self.is_shut, self.error.is_some())
    }

    pub(super) fn describe(&self) -> String {
        let [name, peer] = [&self.name, &self.peer_name].map(Name::describe);
        let end = if self.is_shut[READ] {
            ", it has ended"
        } else {
            ""
        };
        let unread = super::sockets::unread(self.input.len());
        format!("Unix, {name}, connected to {peer}{end}{unread}")
    }
}

impl Listener {
    pub(super) fn ready(&self) -> u8 {
        if self.queue.is_empty() { 0 } else { READABLE }
    }

    pub(super) fn describe(&self) -> String {
        format!("Unix, listens at {}", self.name.describe())
    }
}

impl Datagram {
    fn new(base: Base, name: Name) -> Datagram {
        Datagram {
            base,
            name,
            peer: None,
            inbox: Inbox::new(),
            is_shut: [false; 2],
            error: None,
            unread: 0,
        }
    }

    pub(super) fn peer_name(&self) -> Option<&Name> {
        self.peer.as_ref().map(|(_, name)| name)
    }

    fn peer_id(&self) -> Option<u32> {
        self.peer.as_ref().map(|(id, _)| *id)
    }

    pub(super) fn ready(&self, kernel: &Kernel, id: u32) -> u8 {
        let is_peer_full = match self.peer_id().map(|it| kernel.others.get(&it)) {
            // A peer that is connected to this socket always has room for it.
            Some(Some(Other::Datagram(peer))) => peer.peer_id() != Some(id) && peer.is_full(),
            _ => false,
        };
        let has_room = has_room(self.unread) && !is_peer_full;
        let has_input = !self.inbox.queue.is_empty();
        ready(has_input, has_room, self.is_shut, self.error.is_some())
    }

    fn is_full(&self) -> bool {
        self.inbox.queue.len() > MAX_WAITING
    }

    pub(super) fn describe(&self) -> String {
        let (name, inbox) = (self.name.describe(), self.inbox.describe());
        format!("Unix datagrams, {name}, {inbox}")
    }
}

/// Names.
impl Kernel {
    /// Gives a name to the socket that is about to be inserted.
    fn take_name(&mut self, key: Key) -> io::Result<()> {
        if key.name == Name::Unnamed {
            return Err(super::unsupported("a name that the system chooses"));
        }
        let owner = self.unix_names.get(&key);
        if owner.is_some_and(|it| self.others.contains_key(it)) {
            return Err(Errno::AddrInUse.into());
        }
        let id = self.next_number();
        self.unix_names.insert(key, id);
        Ok(())
    }

    /// Returns the socket that has a name.
    fn find_name(&self, key: &Key) -> io::Result<u32> {
        match self.unix_names.get(key) {
            Some(id) if self.others.contains_key(id) => Ok(*id),
            None if key.is_path() => Err(Errno::NotFound.into()),
            None if key.name == Name::Unnamed => Err(Errno::InvalidInput.into()),
            _ => Err(Errno::ConnectionRefused.into()),
        }
    }

    fn next_number(&self) -> u32 {
        u32::try_from(self.sockets.len()).expect("fewer than 2^32 sockets")
    }
}

/// Streams.
impl Kernel {
    pub(super) fn unix_listen(&mut self, name: &Name, backlog: usize) -> io::Result<u32> {
        let (host, process) = self.here()?;
        self.take_name(Key::new(host, name, false))?;
        Ok(self.insert_other(Other::Listener(Listener {
            base: Base::new(host, Some(process)),
            name: name.clone(),
            backlog,
            queue: VecDeque::new(),
        })))
    }

    pub(super) fn unix_connect(&mut self, name: &Name) -> io::Result<u32> {
        let (host, process) = self.here()?;
        let to = self.find_name(&Key::new(host, name, false))?;
        let Some(Other::Listener(listener)) = self.others.get(&to) else {
            return Err(Errno::WrongType.into());
        };
        if listener.queue.len() > listener.backlog {
            return Err(Errno::WouldBlock.into());
        }
        let near = Base::new(host, Some(process));
        let names = (Name::Unnamed, name.clone());
        let (near, far) = self.insert_ends(near, Base::new(host, None), names);
        if let Some(Other::Listener(listener)) = self.others.get_mut(&to) {
            listener.queue.push_back(far);
        }
        self.raise(to, READABLE);
        Ok(near)
    }

    /// Inserts both ends of a connection. `names` has the first end's name, then the second's.
    fn insert_ends(&mut self, near: Base, far: Base, names: (Name, Name)) -> (u32, u32) {
        let number = self.next_number();
        let back = (names.1.clone(), names.0.clone());
        let near = self.insert_other(Other::Stream(Stream::new(near, names, number + 1)));
        let far = self.insert_other(Other::Stream(Stream::new(far, back, number)));
        (near, far)
    }

    pub(super) fn unix_stream_pair(&mut self) -> io::Result<(u32, u32)> {
        let (host, process) = self.here()?;
        let base = || Base::new(host, Some(process));
        Ok(self.insert_ends(base(), base(), (Name::Unnamed, Name::Unnamed)))
    }

    pub(super) fn unix_accept(&mut self, id: u32) -> io::Result<(u32, Address)> {
        let (_, process) = self.here()?;
        let Some(Other::Listener(listener)) = self.others.get_mut(&id) else {
            return Err(super::gone());
        };
        let accepted = listener.queue.pop_front();
        let accepted = accepted.ok_or_else(|| Errno::WouldBlock.into());
        listener.base.note_blocked(READABLE, &accepted);
        let accepted = accepted?;
        let stream = self.stream(accepted)?;
        stream.base.process = Some(process);
        Ok((accepted, Address::Unix(stream.peer_name.clone())))
    }

    fn stream(&mut self, id: u32) -> io::Result<&mut Stream> {
        match self.others.get_mut(&id) {
            Some(Other::Stream(it)) => Ok(it),
            _ => Err(super::gone()),
        }
    }

    pub(super) fn unix_read(
        &mut self,
        id: u32,
        buffers: &mut [io::IoSliceMut<'_>],
        keeps: bool,
    ) -> io::Result<usize> {
        let stream = self.stream(id)?;
        let before = stream.input.len();
        let read = match before {
            0 => match stream.error.take() {
                Some(error) => Err(error.into()),
                None if stream.is_shut[READ] => Ok(0),
                None => Err(Errno::WouldBlock.into()),
            },
            _ => Ok(stream.input.read(buffers, keeps)),
        };
        stream.base.note_blocked(READABLE, &read);
        let (after, peer) = (stream.input.len(), stream.peer);
        if !has_room(before) && has_room(after) {
            self.raise(peer, WRITABLE);
        }
        read
    }

    pub(super) fn unix_write(
        &mut self,
        id: u32,
        buffers: &mut dyn Iterator<Item = &[u8]>,
    ) -> io::Result<usize> {
        let stream = self.stream(id)?;
        let (peer, host) = (stream.peer, stream.base.host);
        if stream.is_shut[WRITE] {
            return Err(Errno::BrokenPipe.into());
        }
        if let Some(error) = stream.error.take() {
            return Err(error.into());
        }
        let to = self.stream(peer).map_err(|_| Errno::BrokenPipe)?;
        let (mut written, mut is_empty, mut hash) = (0, true, 0);
        for bytes in buffers {
            is_empty &= bytes.is_empty();
            let part = bytes.len().min(BUFFER - to.input.len());
            to.input.push(&bytes[..part]);
            hash = digest(hash, &bytes[..part]);
            written += part;
        }
        let result = if written == 0 && !is_empty {
            Err(Errno::WouldBlock.into())
        } else {
            Ok(written)
        };
        self.base(id)?.note_blocked(WRITABLE, &result);
        if written > 0 {
            self.note(host, What::Local(hash, written));
            self.raise(peer, READABLE);
        }
        result
    }

    /// Closes one end of a connection.
    fn close_stream(&mut self, id: u32, has_unread: bool) {
        let Some(Other::Stream(stream)) = self.others.remove(&id) else {
            return;
        };
        let is_reset = has_unread || !stream.input.is_empty();
        if let Ok(peer) = self.stream(stream.peer) {
            peer.is_shut = [true; 2];
            if is_reset {
                peer.error = Some(Errno::ConnectionReset);
            }
            let error = if is_reset { ERROR } else { 0 };
            self.raise(stream.peer, READABLE | WRITABLE | CLOSED | error);
        }
    }
}

/// Datagrams.
impl Kernel {
    pub(super) fn unix_bind(&mut self, name: &Name) -> io::Result<u32> {
        let (host, process) = self.here()?;
        if *name != Name::Unnamed {
            self.take_name(Key::new(host, name, true))?;
        }
        let socket = Datagram::new(Base::new(host, Some(process)), name.clone());
        Ok(self.insert_other(Other::Datagram(socket)))
    }

    pub(super) fn unix_datagram_pair(&mut self) -> io::Result<(u32, u32)> {
        let pair = (
            self.unix_bind(&Name::Unnamed)?,
            self.unix_bind(&Name::Unnamed)?,
        );
        self.datagram(pair.0)?.peer = Some((pair.1, Name::Unnamed));
        self.datagram(pair.1)?.peer = Some((pair.0, Name::Unnamed));
        Ok(pair)
    }

    fn datagram(&mut self, id: u32) -> io::Result<&mut Datagram> {
        match self.others.get_mut(&id) {
            Some(Other::Datagram(it)) => Ok(it),
            _ => Err(super::gone()),
        }
    }

    /// Checks that `to` accepts datagrams from `from`: not if it is connected to another socket.
    fn may_send(&mut self, from: u32, to: u32) -> io::Result<()> {
        match self.datagram(to).map(|it| it.peer_id()) {
            Ok(Some(other)) if other != from => Err(Errno::NotPermitted.into()),
            _ => Ok(()),
        }
    }

    fn find_datagram(&mut self, host: usize, name: &Name) -> io::Result<u32> {
        let to = self.find_name(&Key::new(host, name, true))?;
        match self.others.get(&to) {
            Some(Other::Datagram(_)) => Ok(to),
            _ => Err(Errno::WrongType.into()),
        }
    }

    pub(super) fn unix_set_peer(&mut self, id: u32, name: &Name) -> io::Result<()> {
        let host = self.datagram(id)?.base.host;
        let to = self.find_datagram(host, name)?;
        self.may_send(id, to)?;
        let before = self.datagram(id)?.peer.replace((to, name.clone()));
        match before {
            Some((before, _)) if before != to => self.lose_peer(id, before),
            _ => {}
        }
        // It may have waited for room at another peer.
        let ready = self.ready(id)?;
        self.raise(id, ready & WRITABLE);
        Ok(())
    }

    /// Disconnects a datagram socket from its peer. Its unreceived datagrams are lost; if there
    /// were any, the peer gets an error, provided that it is connected to this socket and alive.
    fn lose_peer(&mut self, id: u32, before: u32) {
        if self.purge(id) == 0 {
            return;
        }
        if let Ok(other) = self.datagram(before) {
            if other.peer_id() == Some(id) {
                other.error = Some(Errno::ConnectionReset);
                self.raise(before, READABLE | WRITABLE | ERROR);
            }
        }
    }

    /// Drops a socket's unreceived datagrams. Returns their number.
    fn purge(&mut self, id: u32) -> usize {
        let Ok(socket) = self.datagram(id) else {
            return 0;
        };
        let lost = std::mem::take(&mut socket.inbox.queue);
        socket.inbox.size = 0;
        for ((from, _), bytes) in &lost {
            self.give_back(*from, bytes.len() + OVERHEAD);
        }
        self.wake_senders(id);
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

    /// Wakes the senders that are connected to a socket, as there is room in its queue.
    fn wake_senders(&mut self, id: u32) {
        let others = self.others.iter();
        let senders = others.filter_map(|(number, it)| match it {
            Other::Datagram(it) if it.peer_id() == Some(id) => Some(*number),
            _ => None,
        });
        for sender in senders.collect::<Vec<u32>>() {
            if self.ready(sender).is_ok_and(|it| it & WRITABLE != 0) {
                self.raise(sender, WRITABLE);
            }
        }
    }

    pub(super) fn unix_send(
        &mut self,
        id: u32,
        bytes: &[u8],
        name: Option<&Name>,
    ) -> io::Result<usize> {
        let socket = self.datagram(id)?;
        let (host, peer) = (socket.base.host, socket.peer_id());
        if bytes.len() > BUFFER - 32 {
            return Err(Errno::MessageSize.into());
        }
        if let Some(error) = socket.error.take() {
            return Err(error.into());
        }
        if socket.is_shut[WRITE] {
            return Err(Errno::BrokenPipe.into());
        }
        if socket.unread >= BUFFER {
            return Err(Errno::WouldBlock.into());
        }
        let from = (id, socket.name.clone());
        let to = match (name, peer) {
            (Some(name), _) => self.find_datagram(host, name)?,
            (None, Some(peer)) => peer,
            (None, None) => return Err(Errno::NotConnected.into()),
        };
        self.may_send(id, to)?;
        let Ok(other) = self.datagram(to) else {
            self.datagram(id)?.peer = None;
            self.lose_peer(id, to);
            return Err(Errno::ConnectionRefused.into());
        };
        if other.is_shut[READ] {
            return Err(Errno::BrokenPipe.into());
        }
        if to != id && other.peer_id() != Some(id) && other.is_full() {
            return Err(Errno::WouldBlock.into());
        }
        other.inbox.push(from, bytes.to_vec());
        self.datagram(id)?.unread += bytes.len() + OVERHEAD;
        self.note(host, What::Local(digest(0, bytes), bytes.len()));
        self.raise(to, READABLE);
        Ok(bytes.len())
    }

    pub(super) fn unix_receive(
        &mut self,
        id: u32,
        bytes: &mut [u8],
        keeps: bool,
    ) -> io::Result<(usize, Address)> {
        let socket = self.datagram(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error.into());
        }
        let was_full = socket.is_full();
        let received = socket.inbox.receive(bytes, keeps);
        let (len, (from, name), size) = received.ok_or(Errno::WouldBlock)?;
        if !keeps {
            self.give_back(from, size);
            if was_full {
                self.wake_senders(id);
            }
        }
        Ok((len, Address::Unix(name)))
    }
}

/// Streams and datagrams.
impl Kernel {
    pub(super) fn unix_shutdown(&mut self, id: u32, how: Shutdown) -> io::Result<()> {
        let shut = [how != Shutdown::Write, how != Shutdown::Read];
        let add = |is_shut: &mut [bool; 2], [read, write]: [bool; 2]| {
            is_shut[READ] |= read;
            is_shut[WRITE] |= write;
        };
        let peer = match self.others.get_mut(&id) {
            Some(Other::Stream(it)) => {
                add(&mut it.is_shut, shut);
                Some(it.peer)
            }
            Some(Other::Datagram(it)) => {
                add(&mut it.is_shut, shut);
                None
            }
            _ => return Err(super::gone()),
        };
        let changed = |shut: [bool; 2]| {
            let read = if shut[READ] { READABLE | CLOSED } else { 0 };
            read | if shut[WRITE] { WRITABLE } else { 0 }
        };
        self.raise(id, changed(shut));
        if let Some(peer) = peer {
            let back = [shut[WRITE], shut[READ]];
            if let Ok(other) = self.stream(peer) {
                add(&mut other.is_shut, back);
                self.raise(peer, changed(back));
            }
        }
        Ok(())
    }

    /// Closes a socket after its last handle or its process has gone.
    pub(super) fn unix_close(&mut self, id: u32) {
        match self.others.get_mut(&id) {
            Some(Other::Stream(_)) => self.close_stream(id, false),
            Some(Other::Listener(it)) => {
                let queue = std::mem::take(&mut it.queue);
                self.forget_name(id);
                self.others.remove(&id);
                for waiting in queue {
                    // Bytes that were sent to it will never be read: they count as unread.
                    self.close_stream(waiting, true);
                }
            }
            Some(Other::Datagram(_)) => {
                self.purge(id);
                self.forget_name(id);
                self.others.remove(&id);
                self.wake_senders(id);
            }
            _ => {}
        }
    }

    /// Frees a socket's abstract name; a path stays.
    fn forget_name(&mut self, id: u32) {
        self.unix_names
            .retain(|key, owner| *owner != id || key.is_path());
    }
}
