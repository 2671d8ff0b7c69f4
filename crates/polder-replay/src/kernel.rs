//! [`Taped`]: the [`Kernel`] of a thread that records or replays, with its sockets and poller. Each
//! call asks the deck, with a closure that makes the system call, which only a recording calls.
//!
//! A socket that is replayed has a number and no descriptor.

use std::fmt::Display;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use polder::kernel::sockets::{Address, Flag, Number, Opt, Socket, SocketType, Sockets, TcpOption};
use polder::kernel::{self, BlockingCall, Kernel, LookUp};
use polder::net::SystemSockets;
use polder::poller::{Interest, Mode, Token};
use rustix::time::ClockId;

use crate::arrivals::{begin_call, call_later, listen};
use crate::deck::{self, Deck, Handle, look, null, remark, text, with};
use crate::files;
use crate::shared::Shared;
use crate::tape::{Filled, Kept, Tag, checked};

pub(crate) struct Taped;

impl Kernel for Taped {
    fn now(&self) -> Instant {
        deck::now()
    }

    fn reads_clock(&self) {
        look(None, Deck::program_reads_clock);
    }

    fn date(&self) -> SystemTime {
        let wall = || deck::clock_shows(ClockId::Realtime);
        let date = with(None, |deck| deck.value(Tag::Wall, wall));
        let date = SystemTime::UNIX_EPOCH.checked_add(date.unwrap_or_default());
        date.unwrap_or(SystemTime::UNIX_EPOCH)
    }

    fn numbers_addresses(&self) -> bool {
        true
    }

    fn task_id(&self) -> Option<u64> {
        look(None, Deck::next_task)
    }

    fn polls(&self, id: u64, site: &'static Location<'static>) {
        look(None, |deck| deck.begin_poll(id, site));
    }

    /// A replay that was stopped has been reported.
    fn report_panic(&self, _: &'static Location<'static>, _: &str) -> bool {
        look(None, |deck| deck.stopped.is_some()).unwrap_or(false)
    }

    fn permit(&self, what: &str) -> io::Result<()> {
        let words = format!(
            "{what}: polder-replay can neither record nor replay it. A recorded run has one \
             worker, which runs all of its tasks"
        );
        Err(io::Error::new(io::ErrorKind::Unsupported, words))
    }

    fn look_up(&self, host: &str) -> Option<LookUp> {
        let host = host.to_owned();
        let look_up = call_later(true, format!("looking up {host}"), move || {
            let addresses = (&*host, 0).to_socket_addrs()?;
            Ok(addresses.map(Address::Internet).collect::<Vec<_>>())
        });
        let ip = |address| match address {
            Address::Internet(address) => Some(address.ip()),
            Address::Unix(_) => None,
        };
        Some(Box::pin(async move {
            Ok(look_up.await?.into_iter().filter_map(ip).collect())
        }))
    }

    /// The function runs again when it is replayed, on a thread again: only when it was done is on
    /// the tape.
    fn block(&self, call: Arc<dyn BlockingCall>) -> bool {
        remark("the results of `unblock` are not on the tape: a replay calls the functions again");
        let prepared = call.clone();
        let begun = begin_call(false, "unblock", Some(call), move || {
            prepared.prepare();
            Ok(())
        });
        // Without a thread polder tries again, and says so.
        begun.is_ok() || look(None, |deck| deck.stopped.is_some()).unwrap_or(true)
    }

    fn sockets(&self) -> Option<&dyn Sockets> {
        Some(&Taped)
    }

    fn files(&self) -> Option<&'static dyn polder::kernel::files::Files> {
        Some(&files::TapedFiles)
    }

    fn signals(&self, numbers: &[usize]) -> Option<io::Result<Box<dyn kernel::Signals>>> {
        Some(listen(numbers))
    }
}

// The poller.

pub(crate) struct TapedPoller(pub(crate) Arc<Shared>);

impl kernel::Poller for TapedPoller {
    fn register(&self, socket: u64, token: u64, flags: u8) -> io::Result<()> {
        let (number, id) = ((socket >> 32) as u32, socket as u32);
        if number != self.0.number {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut interest = Interest::NONE;
        for (flag, part) in [
            (kernel::READABLE, Interest::READABLE),
            (kernel::WRITABLE, Interest::WRITABLE),
        ] {
            interest |= if flags & flag != 0 {
                part
            } else {
                Interest::NONE
            };
        }
        with(Some(&self.0), |deck| {
            let slot = deck.slots.get(id as usize);
            let socket = slot.and_then(|slot| slot.socket.clone());
            let is_registered = slot.is_some_and(|slot| slot.token.is_some());
            let what = text(format!("registering for events ({flags:02b})"));
            let registered = deck.call(Tag::Do, Some(id), what, &mut [], |_| {
                let (Some(poller), Some(socket)) = (&self.0.poller, &socket) else {
                    return Err(io::ErrorKind::NotFound.into());
                };
                let (token, descriptor) = (Token(id.into()), socket.descriptor());
                if is_registered {
                    return poller.modify(descriptor, token, interest, Mode::Edge);
                }
                // SAFETY: the deck has the socket, and deregisters it before it lets it go.
                unsafe { poller.register(descriptor, token, interest, Mode::Edge) }
            })?;
            if let (Ok(()), Some(slot)) = (&registered, deck.slots.get_mut(id as usize)) {
                slot.token = Some(token);
            }
            Ok(registered)
        })?
    }

    fn deregister(&self, socket: u64) -> io::Result<()> {
        if (socket >> 32) as u32 == self.0.number {
            look(Some(&self.0), |deck| deck.deregister(socket as u32));
        }
        Ok(())
    }

    fn take(&self, limit: usize, report: &mut dyn FnMut(u64, u8)) {
        // It fails where the replay has stopped.
        let events = with(Some(&self.0), |deck| deck.take_events(limit)).unwrap_or_default();
        for (_, flags, token) in &events {
            report(*token, *flags);
        }
        if !events.is_empty() {
            look(Some(&self.0), |deck| deck.spare = events);
        }
    }

    fn notify(&self) {
        self.0.wake();
    }

    fn is_woken_from_elsewhere(&self) {
        if !self.0.is_here() {
            self.0.tell(|news| news.is_woken_from_elsewhere = true);
        }
    }

    fn arm(&self, deadline: Option<Instant>) {
        look(Some(&self.0), |deck| deck.deadline = deadline);
    }
}

// Sockets.

/// The limit of a read, which is an entry.
const MAX_READ: usize = 16 << 20;
/// polder offers a stream no more in one call, so the rest would be hashed again each time.
const MAX_WRITE: usize = 1 << 20;
/// `IOV_MAX` of Linux and others.
const MAX_PARTS: usize = 1_024;

/// A socket of the system.
type System = dyn Socket;

#[derive(Debug)]
struct TapedSocket {
    handle: Handle<System>,
    socket_type: SocketType,
}

/// A socket of the program: `system` is that of a recording.
fn wrap(deck: &mut Deck, of: SocketType, system: Option<Box<dyn Socket>>) -> Box<dyn Socket> {
    let system = system.map(Arc::from);
    let (id, shared) = (deck.add(system.clone()), deck.shared.clone());
    Box::new(TapedSocket {
        handle: Handle { id, shared, system },
        socket_type: of,
    })
}

/// Makes sockets by a call that the tape has.
fn make<const N: usize>(
    what: impl Display,
    socket_type: SocketType,
    make: impl FnOnce() -> io::Result<[Box<dyn Socket>; N]>,
) -> io::Result<[Box<dyn Socket>; N]> {
    let mut made = [const { None }; N];
    with(None, |deck| {
        let crossed = deck.cross(what, || {
            made = make()?.map(Some);
            Ok(())
        })?;
        Ok(crossed.map(|()| made.map(|one| wrap(deck, socket_type, one))))
    })?
}

impl Sockets for Taped {
    fn bind(
        &self,
        socket_type: SocketType,
        address: Option<&Address>,
        backlog: usize,
    ) -> io::Result<Box<dyn Socket>> {
        let words = address.map_or("unbound".to_owned(), Address::to_string);
        let what = format!("bind ({socket_type:?} {words})");
        let bind = || SystemSockets.bind(socket_type, address, backlog);
        make(what, socket_type, || Ok([bind()?])).map(|[socket]| socket)
    }

    fn pair(&self, socket_type: SocketType) -> io::Result<[Box<dyn Socket>; 2]> {
        let what = format!("pair ({socket_type:?})");
        make(what, socket_type, || SystemSockets.pair(socket_type))
    }

    fn connect(&self, socket_type: SocketType, address: &Address) -> io::Result<Box<dyn Socket>> {
        let what = format!("connect ({socket_type:?} {address})");
        let connect = || SystemSockets.connect(socket_type, address);
        make(what, socket_type, || Ok([connect()?])).map(|[socket]| socket)
    }
}

impl TapedSocket {
    /// A call that returns nothing, a number, or an address.
    fn told<A: Kept>(
        &self,
        tag: Tag,
        what: impl Display,
        real: impl FnOnce(&System) -> io::Result<A>,
    ) -> io::Result<A> {
        self.handle.ask(tag, text(what), real)
    }

    fn option(
        &self,
        what: impl Display,
        real: impl FnOnce(&System) -> io::Result<Option<u64>>,
    ) -> io::Result<Option<u64>> {
        self.told(Tag::Number, what, real)
    }
}

impl Socket for TapedSocket {
    fn id(&self) -> u64 {
        u64::from(self.handle.shared.number) << 32 | u64::from(self.handle.id)
    }

    fn ready(&self) -> io::Result<u8> {
        let flags = self.option("the readiness", |system| Ok(Some(system.ready()?.into())))?;
        Ok(flags.unwrap_or(0) as u8)
    }

    fn kind(&self) -> &'static str {
        self.socket_type.kind()
    }

    fn lend(&self) -> BorrowedFd<'_> {
        remark("the descriptor of a socket was asked for: what is done with it is not on the tape");
        let system = self.handle.system.as_deref();
        system.map_or_else(|| null().as_fd(), |system| system.lend())
    }

    fn finish_connect(&self) -> io::Result<()> {
        self.told(Tag::Do, "the result of connect", |system| {
            system.finish_connect()
        })
    }

    fn local_addr(&self) -> io::Result<Address> {
        self.told(Tag::Address, "the local address", |system| {
            system.local_addr()
        })
    }

    fn peer_addr(&self) -> io::Result<Address> {
        self.told(Tag::Address, "the peer's address", |system| {
            system.peer_addr()
        })
    }

    fn peer_cred(&self) -> Option<io::Result<(u32, u32, Option<i32>)>> {
        let ask = |what, of: fn((u32, u32, Option<i32>)) -> Option<u64>| {
            let real = |system: &System| Ok(system.peer_cred().transpose()?.and_then(of));
            self.option(format!("the peer's {what}"), real)
        };
        let user = ask("user and group", |(user, group, _)| {
            Some(u64::from(user) << 32 | u64::from(group))
        });
        let process = ask("process", |(_, _, process)| {
            Some(process?.unsigned_abs().into())
        });
        Some(user.and_then(|user| {
            let user = user.ok_or(io::ErrorKind::Unsupported)?;
            let process = process?;
            let process = process.map(|process| process as i32);
            Ok(((user >> 32) as u32, user as u32, process))
        }))
    }

    fn set_peer(&self, address: &Address) -> io::Result<()> {
        let what = format!("connecting a datagram socket ({address})");
        self.told(Tag::Do, what, |system| system.set_peer(address))
    }

    fn shutdown(&self, how: Shutdown, left: Shutdown) -> io::Result<()> {
        let what = format!("shutdown ({left:?})");
        self.told(Tag::Do, what, |system| system.shutdown(how, left))
    }

    fn accept(&self) -> io::Result<(Box<dyn Socket>, Address)> {
        let accepted = match self.socket_type {
            SocketType::UnixListener => SocketType::UnixStream,
            _ => SocketType::TcpStream,
        };
        let mut made = None;
        let peer = self.told(Tag::Address, "accept", |system| {
            let (socket, peer) = system.accept()?;
            made = Some(socket);
            Ok(peer)
        })?;
        let wrap = |deck: &mut Deck| wrap(deck, accepted, made);
        with(None, |deck| Ok((wrap(deck), peer)))
    }

    #[inline]
    fn read(&self, buffers: &mut [IoSliceMut<'_>], peeks: bool) -> io::Result<(usize, bool)> {
        let tag = if peeks { Tag::Peek } else { Tag::Read };
        let fill = |buffers: &mut [IoSliceMut<'_>]| {
            let filled = self.handle.fill(
                tag,
                |_| {},
                buffers,
                |system, buffers| {
                    let (length, is_drained) = system.read(buffers, peeks)?;
                    Ok(Filled(length, is_drained))
                },
            )?;
            Ok((filled.0, filled.1))
        };
        if matches!(buffers, [bytes] if bytes.len() <= MAX_READ) {
            return fill(buffers);
        }
        let mut room = MAX_READ;
        let parts = buffers.iter_mut().map(|part| {
            let length = part.len().min(room);
            room -= length;
            IoSliceMut::new(&mut part[..length])
        });
        // A read of empty ones alone would look like the end of the stream.
        let parts = parts.filter(|part| !part.is_empty());
        fill(&mut parts.take(MAX_PARTS).collect::<Vec<_>>())
    }

    #[inline]
    fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let write = |buffers: &[IoSlice<'_>]| {
            let check = buffers.iter().fold(0, |sum, part| checked(part, sum));
            let wanted = buffers.iter().map(|part| part.len()).sum();
            let write = |system: &System| system.write(buffers);
            self.handle.write(check, wanted, write)
        };
        if matches!(buffers, [bytes] if bytes.len() <= MAX_WRITE) {
            return write(buffers);
        }
        let mut room = MAX_WRITE;
        let parts = buffers.iter().map(|part| {
            let length = part.len().min(room);
            room -= length;
            IoSlice::new(&part[..length])
        });
        // A write of empty ones alone would look like a full stream.
        let parts = parts.filter(|part| !part.is_empty());
        write(&parts.take(MAX_PARTS).collect::<Vec<_>>())
    }

    fn receive(&self, bytes: &mut [u8], peeks: bool) -> io::Result<(usize, Address, bool)> {
        let tag = if peeks { Tag::PeekFrom } else { Tag::Receive };
        let buffers = &mut [IoSliceMut::new(bytes)];
        let received = self.handle.fill(
            tag,
            |_| {},
            buffers,
            |system, buffers| {
                let (length, from, is_truncated) = system.receive(&mut buffers[0], peeks)?;
                Ok((Filled(length, is_truncated), from))
            },
        );
        received.map(|(Filled(length, is_truncated), from)| (length, from, is_truncated))
    }

    fn send(&self, bytes: &[u8], to: Option<&Address>) -> io::Result<usize> {
        let mut whither = Vec::new();
        to.iter().for_each(|to| to.put(&mut whither));
        let check = checked(&whither, checked(bytes, 0));
        self.handle
            .write(check, bytes.len(), |system| system.send(bytes, to))
    }

    fn flag(&self, flag: Flag) -> io::Result<bool> {
        let what = format!("an option ({flag:?})");
        let set = self.option(what, |system| Ok(Some(system.flag(flag)?.into())))?;
        Ok(set == Some(1))
    }

    fn linger(&self) -> io::Result<Option<Duration>> {
        let what = "an option (Linger)";
        let millis = |time: Duration| time.as_millis() as u64;
        let set = self.option(what, |system| Ok(system.linger()?.map(millis)))?;
        Ok(set.map(Duration::from_millis))
    }

    fn number(&self, number: Number) -> io::Result<u32> {
        let what = format!("an option ({number:?})");
        let set = self.option(what, |system| Ok(Some(system.number(number)?.into())))?;
        Ok(set.unwrap_or(0) as u32)
    }

    fn tcp_option(&self, option: TcpOption) -> io::Result<Option<u32>> {
        let what = format!("an option ({option:?})");
        let set = self.option(what, |system| Ok(system.tcp_option(option)?.map(u64::from)))?;
        Ok(set.map(|value| value as u32))
    }

    fn set(&self, option: Opt) -> io::Result<()> {
        let what = format!("setting an option ({option:?})");
        self.told(Tag::Do, what, |system| match option {
            // Descriptors that a peer sends are lost.
            Opt::Flag(Flag::Passrights, true) => Taped.permit("passing descriptors"),
            option => system.set(option),
        })
    }
}
