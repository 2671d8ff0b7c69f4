//! Scripts of UDP: up to four sockets on one host, which bind, connect, send to each other and to
//! unused addresses, and are closed.
//!
//! Each script uses a separate address in the loopback network, so that ports are free. A datagram
//! carries its number in its bytes. The sender's thread usually delivers loopback datagrams: once a
//! marker sent after them arrives, they have arrived. If that fails, the script is run again.
//!
//! The capacity of buffers is not compared: scripts stay below it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use polder::future::yield_now;
use polder::net::UdpSocket;
use polder::time::sleep;

use super::{Ground, How, Random, Subject, TTLS, poll_once, results_of, word};
use crate::ms;

const SOCKETS: usize = 4;

/// The ports that scripts bind.
const PORTS: u16 = 3;
const FIRST_PORT: u16 = 7_000;

/// The maximum number of datagrams in a script that take much of a buffer.
const BIG: usize = 2;

const KINDS: [&str; 20] = [
    "bound",
    "AddrInUse",
    "AddrNotAvailable",
    "connected",
    "sent 10",
    "sent 0",
    "sent 65507",
    "ConnectionRefused",
    "InvalidInput",
    "PermissionDenied",
    "NotConnected",
    "would wait",
    "errno 89",
    "errno 90",
    "own:p0",
    "localhost:e",
    "anywhere:e",
    "set",
    "broadcast true",
    "ready",
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// One of the ports at the script's own address, or at 0.0.0.0.
    Own(u16),
    Anywhere(u16),
    /// The address of a socket.
    Socket(usize),
    Nobody,
    /// 127.255.255.255.
    Everybody(u16),
    /// Not an address of this machine: it cannot be bound.
    Foreign,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    Bind(usize, Place),
    Close(usize),
    Connect(usize, Place),
    Send(usize, usize, How),
    SendTo(usize, Place, usize, How),
    /// Whether the sender's address is returned.
    Receive(usize, usize, How, bool),
    Peek(usize, usize, How, bool),
    Ready(usize),
    Address(usize),
    Peer(usize),
    SetBroadcast(usize, bool),
    SetTtl(usize, u32),
    Options(usize),
}

fn script(seed: u64) -> Vec<Call> {
    let mut random = Random(seed);
    let kinds = random.below(u64::MAX);
    let place = |random: &mut Random| {
        let port = random.below(u64::from(PORTS)) as u16;
        let socket = random.below(SOCKETS as u64) as usize;
        match random.below(12) {
            0..=3 => Place::Own(port),
            4 => Place::Own(PORTS),
            5 => Place::Anywhere(PORTS),
            6 => Place::Nobody,
            7 if random.below(2) == 0 => Place::Everybody(port),
            8 if random.below(3) == 0 => Place::Foreign,
            _ => Place::Socket(socket),
        }
    };
    let first = random.one_of(&[Place::Own(0), Place::Own(0), Place::Anywhere(PORTS)]);
    let mut calls = vec![Call::Bind(0, first), Call::Bind(1, Place::Own(PORTS))];
    let mut big = 0;
    for _ in 0..4 + random.below(30) {
        let kind = loop {
            let kind = random.below(24);
            if kind < 6 || kinds >> kind & 1 == 1 {
                break kind;
            }
        };
        let socket = random.below(SOCKETS as u64) as usize;
        let to = place(&mut random);
        let how = random.one_of(&[How::Try, How::Poll]);
        let mut count = random.one_of(&[0, 1, 10, 10, 1_000, 3_000, 65_507, 65_508, 65_536]);
        if count == 65_507 {
            big += 1;
            count = if big > BIG { 10 } else { count };
        }
        let room = random.one_of(&[0, 5, 10, 4_000, 70_000]);
        let with_address = random.below(2) == 0;
        calls.push(match kind {
            0 | 6 => Call::Bind(socket, to),
            1 | 7 => Call::Connect(socket, to),
            2 | 8 | 9 => Call::Send(socket, count, how),
            3 | 10 | 11 => Call::SendTo(socket, to, count, how),
            4 | 5 | 12 | 13 => Call::Receive(socket, room, how, with_address),
            14 | 15 => Call::Peek(socket, room, how, with_address),
            16 => Call::Close(socket),
            17 => Call::Ready(socket),
            18 => Call::Address(socket),
            19 => Call::Peer(socket),
            20 | 21 => Call::SetBroadcast(socket, with_address),
            22 => Call::SetTtl(socket, random.one_of(&TTLS)),
            _ => Call::Options(socket),
        });
    }
    calls
}

struct Stage {
    ground: Ground,
    own: Ipv4Addr,
    sockets: [Option<UdpSocket>; SOCKETS],
    /// Whether each socket has had a peer.
    connected: [bool; SOCKETS],
    /// The socket that an ephemeral port belongs, or belonged, to.
    ephemeral: BTreeMap<u16, usize>,
    sent: u64,
    marker: Option<[UdpSocket; 2]>,
}

/// The bytes of the datagram with this number.
fn bytes_of(number: u64, count: usize) -> Vec<u8> {
    (0..count).map(|it| number as u8 ^ it as u8).collect()
}

impl Stage {
    async fn run(mut self, calls: &[Call]) -> Vec<String> {
        if self.ground == Ground::Loopback {
            let any = SocketAddr::from((self.own, 0));
            let marker = [UdpSocket::bind(any).await, UdpSocket::bind(any).await];
            self.marker = Some(marker.map(Result::unwrap));
        }
        let mut results = Vec::new();
        for call in calls {
            results.push(self.call(*call).await);
            self.settle().await;
        }
        results
    }

    async fn settle(&self) {
        match &self.marker {
            None => {
                sleep(ms(5)).await;
            }
            Some([from, to]) => {
                let address = to.local_addr().unwrap();
                from.send_to(b"come", address).await.unwrap();
                to.recv(&mut [0; 8]).await.unwrap();
                yield_now().await;
                yield_now().await;
            }
        }
    }

    fn address(&self, place: Place) -> SocketAddr {
        let port = |n| if n == PORTS { 0 } else { FIRST_PORT + n };
        match place {
            Place::Own(n) => (self.own, port(n)).into(),
            Place::Anywhere(n) => (Ipv4Addr::UNSPECIFIED, port(n)).into(),
            Place::Nobody => (self.own, 9).into(),
            Place::Everybody(n) => (Ipv4Addr::new(127, 255, 255, 255), port(n)).into(),
            Place::Foreign => (Ipv4Addr::new(192, 0, 2, 1), port(PORTS)).into(),
            Place::Socket(socket) => match &self.sockets[socket] {
                Some(it) => it.local_addr().unwrap(),
                None => (self.own, 9).into(),
            },
        }
    }

    fn name(&self, address: SocketAddr) -> String {
        let port = match address.port().checked_sub(FIRST_PORT) {
            Some(n) if n < PORTS => format!("p{n}"),
            _ if self.ephemeral.contains_key(&address.port()) => "e".to_owned(),
            _ => address.port().to_string(),
        };
        let ip = match address.ip() {
            ip if ip == self.own => "own",
            ip if ip.is_unspecified() => "anywhere",
            ip if ip == Ipv4Addr::LOCALHOST => "localhost",
            _ => "elsewhere",
        };
        format!("{ip}:{port}")
    }

    /// Describes a received datagram: its number and length.
    fn received(&self, bytes: &[u8], count: usize) -> String {
        let number = (0..self.sent).rev();
        let mut number = number.filter(|it| bytes[..count] == bytes_of(*it, count));
        match (count, number.next()) {
            (0, _) => "0 bytes".to_owned(),
            (_, Some(number)) => format!("{count} bytes of {number}"),
            (_, None) => format!("{count} other bytes"),
        }
    }

    async fn call(&mut self, call: Call) -> String {
        match call {
            Call::Bind(socket, place) => {
                if self.sockets[socket].is_some() {
                    return "taken".into();
                }
                // Either one port shared by all scripts, or one chosen by the system.
                let place = match place {
                    Place::Everybody(_) => Place::Own(PORTS),
                    other => other,
                };
                let made = UdpSocket::bind(self.address(place)).await;
                word(made, |made| {
                    let port = made.local_addr().unwrap().port();
                    self.ephemeral.insert(port, socket);
                    self.sockets[socket] = Some(made);
                    self.connected[socket] = false;
                    "bound".into()
                })
            }
            Call::Close(socket) => match self.sockets[socket].take() {
                Some(_) => "closed".into(),
                None => "nobody".into(),
            },
            Call::Connect(socket, _)
            | Call::Send(socket, ..)
            | Call::SendTo(socket, ..)
            | Call::Receive(socket, ..)
            | Call::Peek(socket, ..)
            | Call::Ready(socket)
            | Call::Address(socket)
            | Call::Peer(socket)
            | Call::SetBroadcast(socket, _)
            | Call::SetTtl(socket, _)
            | Call::Options(socket) => match self.sockets[socket].clone() {
                Some(it) => self.call_at(it, call).await,
                None => "nobody".into(),
            },
        }
    }

    async fn call_at(&mut self, socket: UdpSocket, call: Call) -> String {
        match call {
            Call::Connect(index, place) => {
                // See "Permitted differences".
                let is_for_all = matches!(place, Place::Everybody(_));
                if is_for_all && self.connected[index] && !socket.broadcast().unwrap() {
                    return "skipped".into();
                }
                // On a machine with a network, the error differs.
                if place == Place::Foreign {
                    return "skipped".into();
                }
                let connected = socket.connect(self.address(place)).await;
                self.connected[index] |= connected.is_ok();
                word(connected, |()| "connected".into())
            }
            Call::Send(_, count, how) => {
                let bytes = bytes_of(self.sent, count);
                self.sent += 1;
                let sent = match how {
                    How::Poll => poll_once(|cx| socket.poll_send(cx, &bytes)).await,
                    _ => socket.try_send(&bytes),
                };
                word_of(sent, |sent| format!("sent {sent}"))
            }
            Call::SendTo(_, place, count, how) => {
                if place == Place::Foreign {
                    return "skipped".into();
                }
                let (bytes, to) = (bytes_of(self.sent, count), self.address(place));
                self.sent += 1;
                let sent = match how {
                    How::Poll => poll_once(|cx| socket.poll_send_to(cx, &bytes, to)).await,
                    _ => socket.try_send_to(&bytes, to),
                };
                word_of(sent, |sent| format!("sent {sent}"))
            }
            Call::Receive(_, room, how, true) => {
                let mut bytes = vec![0; room];
                let received = match how {
                    How::Poll => poll_once(|cx| socket.poll_recv_from(cx, &mut bytes)).await,
                    _ => socket.try_recv_from(&mut bytes),
                };
                word_of(received, |(count, from)| {
                    self.received(&bytes, count) + " from " + &self.name(from)
                })
            }
            Call::Receive(_, room, how, false) => {
                let mut bytes = vec![0; room];
                let received = match how {
                    How::Poll => poll_once(|cx| socket.poll_recv(cx, &mut bytes)).await,
                    _ => socket.try_recv(&mut bytes),
                };
                word_of(received, |count| self.received(&bytes, count))
            }
            Call::Peek(_, room, how, true) => {
                let mut bytes = vec![0; room];
                let peeked = match how {
                    How::Poll => poll_once(|cx| socket.poll_peek_from(cx, &mut bytes)).await,
                    _ => socket.try_peek_from(&mut bytes),
                };
                word_of(peeked, |(count, from)| {
                    self.received(&bytes, count) + " from " + &self.name(from)
                })
            }
            Call::Peek(_, room, how, false) => {
                let mut bytes = vec![0; room];
                let peeked = match how {
                    How::Poll => poll_once(|cx| socket.poll_peek(cx, &mut bytes)).await,
                    _ => socket.try_peek(&mut bytes),
                };
                word_of(peeked, |count| self.received(&bytes, count))
            }
            Call::Ready(_) => {
                let ready = poll_once(|cx| socket.poll_send_ready(cx)).await;
                word(ready, |()| "ready".into())
            }
            Call::Address(_) => word(socket.local_addr(), |it| self.name(it)),
            Call::Peer(_) => word(socket.peer_addr(), |it| self.name(it)),
            Call::SetBroadcast(_, on) => word(socket.set_broadcast(on), |()| "set".into()),
            Call::SetTtl(_, ttl) => word(socket.set_ttl(ttl), |()| "set".into()),
            Call::Options(_) => {
                let ttl = word(socket.ttl(), |it| it.to_string());
                match ttl.as_str() {
                    "64" => word(socket.broadcast(), |it| format!("broadcast {it}")),
                    other => format!("ttl {other}"),
                }
            }
            _ => unreachable!("{call:?} is another one's"),
        }
    }
}

/// An error without a kind is described by its number.
pub(super) fn word_of<T>(result: std::io::Result<T>, ok: impl FnOnce(T) -> String) -> String {
    let number = result.as_ref().err().and_then(std::io::Error::raw_os_error);
    match (number, word(result, ok)) {
        (Some(number), words) if words == "Uncategorized" => format!("errno {number}"),
        (_, words) => words,
    }
}

fn stage(ground: Ground, seed: u64) -> Stage {
    let [one, two] = [seed % 250 + 1, seed / 250 % 250 + 1].map(|it| it as u8);
    let process = (std::process::id() % 250 + 1) as u8;
    Stage {
        ground,
        own: Ipv4Addr::new(127, process, one, two),
        sockets: [const { None }; SOCKETS],
        connected: [false; SOCKETS],
        ephemeral: BTreeMap::new(),
        sent: 0,
        marker: None,
    }
}

fn on_loopback(seed: u64, calls: &[Call]) -> Vec<String> {
    polder::block_on(stage(Ground::Loopback, seed).run(calls))
}

fn in_a_world(seed: u64, calls: &[Call]) -> Vec<String> {
    results_of(seed, calls, move |calls| async move {
        stage(Ground::World, seed).run(&calls).await
    })
}

/// Calls of UDP have the results that they have on loopback.
#[test]
fn udp_calls_match_loopback() {
    let subject = Subject {
        name: "differential::udp",
        script,
        on_loopback,
        in_a_world,
        tries: 3,
        kinds: &KINDS,
    };
    subject.compare();
}
