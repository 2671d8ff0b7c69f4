//! Scripts of Unix sockets: streams with their listeners, datagrams, pairs, by paths and abstract
//! names. Sent data is available immediately on both grounds, so scripts wait for nothing.
//!
//! # Permitted differences
//!
//! * The capacity of a buffer: Linux counts its own overhead. So a filled direction is not written
//!   until it is drained, and a queue that was filled has "many" datagrams.
//! * In a world, the path of a closed socket may be bound again, since the world does not see
//!   `std::fs::remove_file`. So on Linux the file is removed first.

use std::io::{ErrorKind, Result};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::path::PathBuf;
use std::pin::{Pin, pin};

use polder::future::yield_now;
use polder::io::{AsyncRead, AsyncWrite};
use polder::net::Shutdown;
use polder::net::unix::{UnixDatagram, UnixListener, UnixStream};
use polder::time::sleep;

use super::udp::word_of as word;
use super::{Ground, How, Random, Subject, poll_once, results_of};
use crate::ms;

const SLOTS: usize = 5;
const NAMES: usize = 3;

/// The maximum number of unread bytes in a direction that is not filled on purpose: both kernels
/// accept them, also in small parts.
const UNREAD: usize = 32 * 1024;

/// The maximum number of queued datagrams, unless a queue is filled on purpose.
const WAITING: usize = 8;

const KINDS: [&str; 25] = [
    "bound",
    "AddrInUse",
    "NotFound",
    "ConnectionRefused",
    "connected",
    "accepted unnamed",
    "10 bytes",
    "0 bytes",
    "the end",
    "would wait",
    "full",
    "wrote 10",
    "BrokenPipe",
    "ConnectionReset",
    "shut",
    "closed",
    "path",
    "abstract",
    "unnamed",
    "NotConnected",
    "PermissionDenied",
    "errno 91",
    "errno 90",
    "many, then would wait",
    "all, then the end",
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    Listen(usize, usize),
    Connect(usize, usize),
    Accept(usize, usize),
    Pair(usize, usize),
    Bind(usize, usize),
    Unbound(usize),
    DatagramPair(usize, usize),
    SetPeer(usize, usize),
    /// Writes to a stream, or sends a datagram to the peer.
    Write(usize, usize, How),
    SendTo(usize, usize, usize),
    Read(usize, usize, How),
    ReceiveFrom(usize, usize),
    Peek(usize, usize),
    /// Writes until it would wait.
    Fill(usize),
    Drain(usize),
    Ready(usize),
    Shutdown(usize, Shutdown),
    Address(usize),
    Peer(usize),
    Close(usize),
}

fn script(seed: u64) -> Vec<Call> {
    let mut random = Random(seed);
    let kinds = random.below(u64::MAX);
    // Streams, datagrams, or both.
    let about = random.below(3);
    let mut calls = Vec::new();
    for _ in 0..6 + random.below(34) {
        let slot = random.below(SLOTS as u64) as usize;
        let other = random.below(SLOTS as u64) as usize;
        let name = random.below(NAMES as u64) as usize;
        let count = random.one_of(&[0, 1, 10, 10, 1_000, 9_000, 250_000]);
        let how = random.one_of(&[How::Try, How::TryVectored, How::Poll]);
        let side = random.one_of(&[Shutdown::Read, Shutdown::Write, Shutdown::Both]);
        let kind = loop {
            let kind = random.below(34);
            if kind < 10 || kinds >> kind & 1 == 1 {
                break kind;
            }
        };
        calls.push(match (kind, about) {
            (0 | 1 | 10, 0) => Call::Listen(slot, name),
            (2 | 3 | 11, 0) => Call::Connect(slot, name),
            (4 | 12, 0) => Call::Accept(slot, other),
            (0 | 10 | 13, 1) => Call::Bind(slot, name),
            (1 | 2 | 11, 1) => Call::SetPeer(slot, name),
            (3 | 4 | 12, 1) => Call::SendTo(slot, name, count),
            (0, _) => Call::Listen(slot, name),
            (1, _) => Call::Bind(slot, name),
            (2, _) => Call::Connect(slot, name),
            (3, _) => Call::SetPeer(slot, name),
            (4, _) => Call::Accept(slot, other),
            (5 | 14 | 15, _) => Call::Write(slot, count, how),
            (6 | 16 | 17, _) => Call::Read(slot, count, how),
            (7, 0) => Call::Pair(slot, other),
            (7, 1) => Call::DatagramPair(slot, other),
            (8 | 18 | 19, _) => Call::Close(slot),
            (9 | 20, _) => Call::Shutdown(slot, side),
            (21, _) => Call::Unbound(slot),
            (22, _) => Call::Pair(slot, other),
            (23, _) => Call::DatagramPair(slot, other),
            (24 | 25, _) => Call::ReceiveFrom(slot, count),
            (26, _) => Call::Peek(slot, count),
            (27 | 28, _) => {
                calls.push(Call::Fill(slot));
                match random.below(4) {
                    0 => calls.push(Call::Close(slot)),
                    1 => calls.push(Call::Close(other)),
                    _ => {}
                }
                let drained = (0..SLOTS).filter(|_| random.below(2) == 0);
                calls.extend(drained.map(Call::Drain));
                continue;
            }
            (29, _) => Call::Drain(slot),
            (30, _) => Call::Ready(slot),
            (31, _) => Call::Address(slot),
            (32, _) => Call::Peer(slot),
            _ => Call::SendTo(slot, name, count),
        });
    }
    calls
}

#[derive(Clone)]
enum Socket {
    Listener(UnixListener),
    Stream(UnixStream),
    Datagram(UnixDatagram),
}

struct Stage {
    ground: Ground,
    folder: PathBuf,
    slots: [Option<Socket>; SLOTS],
    /// Approximate number of bytes written by all sockets and not read since the last drain.
    unread: usize,
    /// Whether anything is full.
    is_full: bool,
}

impl Stage {
    fn new(ground: Ground, seed: u64) -> Stage {
        let name = format!("polder-differential-{}-{seed}", std::process::id());
        Stage {
            ground,
            folder: std::env::temp_dir().join(name),
            slots: [const { None }; SLOTS],
            unread: 0,
            is_full: false,
        }
    }

    async fn run(&mut self, calls: &[Call]) -> Vec<String> {
        let mut results = Vec::new();
        for call in calls {
            results.push(self.call(*call).await);
            match self.ground {
                Ground::World => {
                    sleep(ms(5)).await;
                }
                Ground::Loopback => {
                    yield_now().await;
                    yield_now().await;
                }
            }
        }
        results
    }

    /// Returns one of two paths, or an abstract name.
    fn address(&self, name: usize) -> SocketAddr {
        match name {
            2 => SocketAddr::from_abstract_name(self.folder.as_os_str().as_encoded_bytes()),
            _ => SocketAddr::from_pathname(self.folder.join(name.to_string())),
        }
        .unwrap()
    }

    fn name(&self, address: &SocketAddr) -> String {
        let known = (0..NAMES).any(|it| {
            let name = self.address(it);
            name.as_pathname() == address.as_pathname()
                && name.as_abstract_name() == address.as_abstract_name()
        });
        match address {
            it if it.is_unnamed() => "unnamed".into(),
            _ if !known => "another name".into(),
            it if it.as_pathname().is_some() => "path".into(),
            _ => "abstract".into(),
        }
    }

    /// Removes a path's file, unless a socket is bound to it.
    fn unlink(&self, name: usize) {
        let address = self.address(name);
        let Some(path) = address.as_pathname() else {
            return;
        };
        let has_it = |it: &Socket| {
            let local = match it {
                Socket::Listener(it) => it.local_addr(),
                Socket::Datagram(it) => it.local_addr(),
                // An accepted stream reports its listener's name without owning it.
                Socket::Stream(_) => return false,
            };
            local.unwrap().as_pathname() == Some(path)
        };
        if self.ground == Ground::Loopback && !self.slots.iter().flatten().any(has_it) {
            let _ = std::fs::remove_file(path);
        }
    }

    fn put(&mut self, slot: usize, made: Result<Socket>, said: &str) -> String {
        word(made, |made| {
            self.slots[slot] = Some(made);
            said.into()
        })
    }

    async fn call(&mut self, call: Call) -> String {
        let (slot, other) = match call {
            Call::Accept(_, to) => (to, to),
            Call::Listen(slot, _)
            | Call::Connect(slot, _)
            | Call::Bind(slot, _)
            | Call::Unbound(slot) => (slot, slot),
            Call::Pair(slot, other) | Call::DatagramPair(slot, other) if slot != other => {
                (slot, other)
            }
            Call::Pair(..) | Call::DatagramPair(..) => return "skipped".into(),
            _ => return self.call_existing(call).await,
        };
        if self.slots[slot].is_some() || self.slots[other].is_some() {
            return "taken".into();
        }
        match call {
            Call::Listen(_, name) => {
                self.unlink(name);
                let made = UnixListener::bind_addr(&self.address(name));
                self.put(slot, made.map(Socket::Listener), "bound")
            }
            Call::Bind(_, name) => {
                self.unlink(name);
                let made = UnixDatagram::bind_addr(&self.address(name));
                self.put(slot, made.map(Socket::Datagram), "bound")
            }
            Call::Unbound(_) => {
                let made = UnixDatagram::unbound();
                self.put(slot, made.map(Socket::Datagram), "bound")
            }
            Call::Connect(_, name) => {
                let made = UnixStream::connect_addr(&self.address(name)).await;
                self.put(slot, made.map(Socket::Stream), "connected")
            }
            Call::Accept(at, _) => {
                let Some(Socket::Listener(listener)) = self.slots[at].clone() else {
                    return "no listener".into();
                };
                let made = poll_once(|cx| listener.poll_accept(cx)).await;
                let said = made.as_ref().map(|(_, from)| self.name(from));
                let said = said.map_or(String::new(), |it| format!("accepted {it}"));
                self.put(slot, made.map(|(it, _)| Socket::Stream(it)), &said)
            }
            Call::Pair(..) => {
                let (one, two) = UnixStream::pair().unwrap();
                self.put(other, Ok(Socket::Stream(two)), "");
                self.put(slot, Ok(Socket::Stream(one)), "a pair")
            }
            _ => {
                let (one, two) = UnixDatagram::pair().unwrap();
                self.put(other, Ok(Socket::Datagram(two)), "");
                self.put(slot, Ok(Socket::Datagram(one)), "a pair")
            }
        }
    }

    async fn call_existing(&mut self, call: Call) -> String {
        let slot = match call {
            Call::SetPeer(slot, _)
            | Call::Write(slot, ..)
            | Call::SendTo(slot, ..)
            | Call::Read(slot, ..)
            | Call::ReceiveFrom(slot, _)
            | Call::Peek(slot, _)
            | Call::Fill(slot)
            | Call::Drain(slot)
            | Call::Ready(slot)
            | Call::Shutdown(slot, _)
            | Call::Address(slot)
            | Call::Peer(slot)
            | Call::Close(slot) => slot,
            other => unreachable!("{other:?} makes a socket"),
        };
        if let Call::Close(_) = call {
            return match self.slots[slot].take() {
                Some(_) => "closed".into(),
                None => "nobody".into(),
            };
        }
        match self.slots[slot].clone() {
            Some(Socket::Stream(it)) => self.call_stream(it, call).await,
            Some(Socket::Datagram(it)) => self.call_datagram(it, call).await,
            Some(Socket::Listener(it)) => match call {
                Call::Address(_) => word(it.local_addr(), |it| self.name(&it)),
                _ => "a listener".into(),
            },
            None => "nobody".into(),
        }
    }

    /// Returns how much may be written such that both grounds accept it.
    fn may_write(&mut self, count: usize) -> Option<usize> {
        let count = count.min(UNREAD.saturating_sub(self.unread));
        (!self.is_full).then_some(count)
    }

    async fn call_stream(&mut self, mut stream: UnixStream, call: Call) -> String {
        match call {
            Call::Write(_, count, how) => {
                let Some(count) = self.may_write(count) else {
                    return "skipped".into();
                };
                let bytes = vec![7; count];
                let written = match how {
                    How::Try => stream.try_write(&bytes),
                    How::TryVectored => {
                        let (one, other) = bytes.split_at(count / 3);
                        stream.try_write_vectored(&[one, other].map(std::io::IoSlice::new))
                    }
                    How::Poll => poll_once(|cx| Pin::new(&mut stream).poll_write(cx, &bytes)).await,
                };
                word(written, |written| {
                    // Each takes at least a page.
                    self.unread += written.max(2_048);
                    format!("wrote {written}")
                })
            }
            Call::Read(_, count, how) => {
                let mut bytes = vec![0; count];
                if self.is_full && count > UNREAD {
                    return "skipped".into();
                }
                let read = match how {
                    How::Try => stream.try_read(&mut bytes),
                    How::TryVectored => {
                        let (one, other) = bytes.split_at_mut(count / 3);
                        stream.try_read_vectored(&mut [one, other].map(std::io::IoSliceMut::new))
                    }
                    How::Poll => {
                        poll_once(|cx| Pin::new(&mut stream).poll_read(cx, &mut bytes)).await
                    }
                };
                word(read, |read| match read {
                    0 if count > 0 => "the end".into(),
                    _ => format!("{read} bytes"),
                })
            }
            Call::Peek(_, count) => {
                if self.is_full && count > UNREAD {
                    return "skipped".into();
                }
                let mut bytes = vec![0; count];
                let peeked = poll_once(|cx| stream.poll_peek(cx, &mut bytes)).await;
                word(peeked, |peeked| match peeked {
                    0 if count > 0 => "the end".into(),
                    _ => format!("{peeked} bytes"),
                })
            }
            Call::Fill(_) => self.fill(|| stream.try_write(&[7; 4_096])),
            Call::Drain(_) => {
                let mut some = false;
                let ending = loop {
                    match stream.try_read(&mut [0; 1 << 16]) {
                        Ok(0) => break "the end".to_owned(),
                        Ok(_) => some = true,
                        error => break word(error, |_| String::new()),
                    }
                };
                // The data that other sockets have queued is unknown.
                format!("{}, then {ending}", if some { "all" } else { "nothing" })
            }
            Call::Ready(_) if self.is_full => "skipped".into(),
            Call::Ready(_) => {
                let ready = poll_once(|cx| stream.poll_write_ready(cx)).await;
                word(ready, |()| "ready".into())
            }
            Call::Shutdown(_, how) => word(stream.shutdown(how), |()| "shut".into()),
            Call::Address(_) => word(stream.local_addr(), |it| self.name(&it)),
            Call::Peer(_) => word(stream.peer_addr(), |it| self.name(&it)),
            _ => "a stream".into(),
        }
    }

    fn fill(&mut self, mut write: impl FnMut() -> Result<usize>) -> String {
        if self.is_full {
            return "skipped".into();
        }
        loop {
            match write() {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_full = true;
                    return "full".into();
                }
                error => return word(error, |_| String::new()),
            }
        }
    }

    async fn call_datagram(&mut self, socket: UnixDatagram, call: Call) -> String {
        match call {
            Call::SetPeer(_, name) => {
                let connected = socket.connect_addr(&self.address(name));
                word(connected, |()| "connected".into())
            }
            Call::Write(_, count, how) => {
                if self.is_full || self.unread / 2_048 >= WAITING && count < 250_000 {
                    return "skipped".into();
                }
                let bytes = vec![7; count];
                let sent = match how {
                    How::Poll => poll_once(|cx| socket.poll_send(cx, &bytes)).await,
                    _ => socket.try_send(&bytes),
                };
                self.sent(sent)
            }
            Call::SendTo(_, name, count) => {
                if self.is_full || self.unread / 2_048 >= WAITING && count < 250_000 {
                    return "skipped".into();
                }
                let (bytes, address) = (vec![7; count], self.address(name));
                let mut send = pin!(socket.send_to_addr(&bytes, &address));
                let sent = poll_once(|cx| send.as_mut().poll(cx)).await;
                self.sent(sent)
            }
            Call::Read(_, count, how) => {
                let mut bytes = vec![0; count];
                let received = match how {
                    How::Poll => poll_once(|cx| socket.poll_recv(cx, &mut bytes)).await,
                    _ => socket.try_recv(&mut bytes),
                };
                word(received, |received| format!("{received} bytes"))
            }
            Call::ReceiveFrom(_, count) => {
                let mut bytes = vec![0; count];
                let received = poll_once(|cx| socket.poll_recv_from(cx, &mut bytes)).await;
                word(received, |(received, from)| {
                    format!("{received} bytes from {}", self.name(&from))
                })
            }
            Call::Fill(_) => self.fill(|| socket.try_send(&[7; 10])),
            Call::Drain(_) => {
                let mut count = 0;
                let ending = loop {
                    match socket.try_recv(&mut [0; 10]) {
                        Ok(_) if count > 10_000 => break "the end".to_owned(),
                        Ok(_) => count += 1,
                        error => break word(error, |_| String::new()),
                    }
                };
                let count = if count > WAITING {
                    "many".into()
                } else {
                    count.to_string()
                };
                format!("{count}, then {ending}")
            }
            Call::Ready(_) if self.is_full => "skipped".into(),
            Call::Ready(_) => {
                let ready = poll_once(|cx| socket.poll_send_ready(cx)).await;
                word(ready, |()| "ready".into())
            }
            Call::Shutdown(_, how) => word(socket.shutdown(how), |()| "shut".into()),
            Call::Address(_) => word(socket.local_addr(), |it| self.name(&it)),
            Call::Peer(_) => word(socket.peer_addr(), |it| self.name(&it)),
            _ => "a datagram socket".into(),
        }
    }

    fn sent(&mut self, sent: Result<usize>) -> String {
        word(sent, |sent| {
            self.unread += sent.max(2_048);
            format!("wrote {sent}")
        })
    }
}

fn on_loopback(seed: u64, calls: &[Call]) -> Vec<String> {
    let mut stage = Stage::new(Ground::Loopback, seed);
    let folder = stage.folder.clone();
    std::fs::create_dir_all(&folder).unwrap();
    let results = polder::block_on(stage.run(calls));
    let _ = std::fs::remove_dir_all(folder);
    results
}

fn in_a_world(seed: u64, calls: &[Call]) -> Vec<String> {
    results_of(seed, calls, move |calls| async move {
        Stage::new(Ground::World, seed).run(&calls).await
    })
}

/// Calls of Unix sockets have the results that they have on Linux.
#[test]
fn unix_calls_match_linux() {
    let subject = Subject {
        name: "differential::unix",
        script,
        on_loopback,
        in_a_world,
        tries: 1,
        kinds: &KINDS,
    };
    subject.compare();
}
