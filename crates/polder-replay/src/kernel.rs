//! [`Taped`]: the [`Kernel`] of a thread that records or replays, with its sockets and poller. Each
//! call asks the deck, with a closure that makes the system call, which only a recording calls.
//!
//! A socket that is replayed has a number and no descriptor.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::panic::Location;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use polder::kernel::sockets::{
    Address, Flag, Group, Name, Number, Opt, Socket, SocketType, Sockets, TcpOption,
};
use polder::kernel::{self, BlockingCall, Kernel, LookUp};
use polder::poller::{Interest, Mode, Token};
use rustix::time::ClockId;
use socket2::{Domain, MaybeUninitSlice, SockAddr, Type};

use crate::deck::{self, Ask, Job, Listener, Shared, Side, cross, look, look_own, with, with_own};
use crate::files;
use crate::tape::{self, Argument, Cursor, Filled, Kept, Tag};

pub(crate) struct Taped;

impl Kernel for Taped {
    fn now(&self) -> Instant {
        deck::now()
    }

    fn reads_clock(&self) {
        look(deck::Deck::program_reads_clock);
    }

    fn date(&self) -> SystemTime {
        let date = with(|deck| deck.value(Tag::Wall, || deck::clock_shows(ClockId::Realtime)));
        SystemTime::UNIX_EPOCH
            .checked_add(date.unwrap_or_default())
            .unwrap_or(SystemTime::UNIX_EPOCH)
    }

    fn numbers_addresses(&self) -> bool {
        true
    }

    fn task_id(&self) -> Option<u64> {
        look(deck::Deck::next_task)
    }

    fn polls(&self, id: u64, site: &'static Location<'static>) {
        look(|deck| deck.begin_poll(id, site));
    }

    /// A replay that was stopped has been reported.
    fn report_panic(&self, _: &'static Location<'static>, _: &str) -> bool {
        look(|deck| deck.stopped.is_some()).unwrap_or(false)
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
        let look_up = job(format!("looking up {host}"), move || {
            let addresses = std::net::ToSocketAddrs::to_socket_addrs(&(&*host, 0))?;
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
        let kept = Job {
            call: Some(call.clone()),
            ..Job::default()
        };
        let begun = with(|deck| {
            deck.remark(
                "the results of `unblock` are not on the tape: a replay calls the functions again",
            );
            deck.begin_job("unblock".to_owned(), kept)
        });
        if let Ok(id) = begun {
            on_thread(id, move || {
                call.prepare();
                Vec::new()
            });
        }
        // Otherwise the replay has stopped.
        true
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

// Calls on threads.

/// Has a thread make a call when this is first polled. The result is given to the worker between
/// two turns.
pub(crate) fn job<T: Kept + 'static>(
    what: String,
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Pin<Box<dyn Future<Output = io::Result<T>> + Send>> {
    Box::pin(async move {
        let begun = with(|deck| {
            let id = deck.begin_job(what, Job::default())?;
            Ok((id, deck.shared.clone()))
        });
        let (id, shared) = begun?;
        let waiting = Waiting { id, shared };
        on_thread(id, move || {
            let mut result = Vec::new();
            tape::put_result(&mut result, &call());
            result
        });
        let result = waiting.await?;
        let damaged = || Err(tape::bad("the result of a call on a thread is damaged"));
        tape::get_result(&mut Cursor(&result)).unwrap_or_else(damaged)
    })
}

/// Has a thread make the call, unless it is replayed.
fn on_thread(id: u64, call: impl FnOnce() -> Vec<u8> + Send + 'static) {
    let recorded = look(|deck| matches!(deck.side, Side::Record(_)).then(|| deck.shared.clone()));
    if let Some(Some(shared)) = recorded {
        shared.call(id, Box::new(call));
    }
}

/// Waits for a call.
struct Waiting {
    id: u64,
    shared: Arc<Shared>,
}

impl Future for Waiting {
    type Output = io::Result<Vec<u8>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Vec<u8>>> {
        let mut waker = Some(cx.waker().clone());
        let found = with_own(&self.shared, |deck| {
            let job = deck.jobs.entry(self.id).or_default();
            if job.result.is_none() {
                std::mem::swap(&mut job.waker, &mut waker);
            }
            Ok(job.result.take())
        });
        match found.transpose() {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let job = look_own(&self.shared, |deck| deck.jobs.remove(&self.id));
        drop(job); // With its waker, outside of the deck.
    }
}

// Signals.

#[derive(Debug)]
struct TapedSignals {
    id: u64,
    shared: Arc<Shared>,
}

fn listen(numbers: &[usize]) -> io::Result<Box<dyn kernel::Signals>> {
    let ask = Ask::new(Tag::Listen, Argument::Text(format!("{numbers:?}")));
    with(|deck| {
        // Before the deck is asked, since that has the recorder.
        let result = match &mut deck.side {
            Side::Record(recorder) => (numbers.iter()).try_for_each(|it| recorder.listen(*it)),
            Side::Replay(_) => Ok(()),
        };
        let listened = deck.cross(&ask, || result)?;
        Ok(listened.map(|()| {
            let last = deck.listeners.last_key_value();
            let id = last.map_or(0, |(last, _)| last + 1);
            let numbers = numbers.to_vec();
            let waker = None;
            deck.listeners.insert(id, Listener { numbers, waker });
            let shared = deck.shared.clone();
            Box::new(TapedSignals { id, shared }) as Box<dyn kernel::Signals>
        }))
    })?
}

impl kernel::Signals for TapedSignals {
    fn count(&self, number: usize) -> u64 {
        look_own(&self.shared, |deck| {
            deck.signal_counts.get(&number).copied()
        })
        .flatten()
        .unwrap_or(0)
    }

    fn set_waker(&self, waker: Option<&Waker>) {
        let mut waker = waker.cloned();
        look_own(&self.shared, |deck| {
            if let Some(listener) = deck.listeners.get_mut(&self.id) {
                std::mem::swap(&mut listener.waker, &mut waker);
            }
        });
    }
}

impl Drop for TapedSignals {
    fn drop(&mut self) {
        let listener = look_own(&self.shared, |deck| deck.listeners.remove(&self.id));
        drop(listener); // With its waker, outside of the deck.
    }
}

// The poller.

pub(crate) struct TapedPoller(pub(crate) Arc<Shared>);

fn interest(flags: u8) -> Interest {
    let mut interest = Interest::NONE;
    if flags & kernel::READABLE != 0 {
        interest |= Interest::READABLE;
    }
    if flags & kernel::WRITABLE != 0 {
        interest |= Interest::WRITABLE;
    }
    interest
}

impl kernel::Poller for TapedPoller {
    fn register(&self, socket: u64, token: u64, flags: u8) -> io::Result<()> {
        let id = socket as u32;
        let ask = Ask::of(id, Tag::Register, Argument::Number(flags.into()));
        with_own(&self.0, |deck| {
            if socket >> 32 != u64::from(deck.number) {
                return Ok(Err(io::ErrorKind::NotFound.into()));
            }
            let slot = deck.slots.get(id as usize);
            let socket = slot.and_then(|slot| slot.socket.clone());
            let is_registered = slot.is_some_and(|slot| slot.token.is_some());
            let registered = deck.cross(&ask, || {
                let (Some(poller), Some(socket)) = (&self.0.poller, socket) else {
                    return Err(io::ErrorKind::NotFound.into());
                };
                let (token, interest) = (Token(id.into()), interest(flags));
                if is_registered {
                    return poller.modify(&*socket, token, interest, Mode::Edge);
                }
                // SAFETY: the deck has the socket, and deregisters it before it lets it go.
                unsafe { poller.register(&*socket, token, interest, Mode::Edge) }
            })?;
            if let (Ok(()), Some(slot)) = (&registered, deck.slots.get_mut(id as usize)) {
                slot.token = Some(token);
            }
            Ok(registered)
        })?
    }

    fn deregister(&self, socket: u64) -> io::Result<()> {
        look_own(&self.0, |deck| {
            if socket >> 32 == u64::from(deck.number) {
                deck.deregister(socket as u32);
            }
        });
        Ok(())
    }

    fn take(&self, limit: usize, report: &mut dyn FnMut(u64, u8)) {
        // It fails where the replay has stopped.
        let mut events = with_own(&self.0, |deck| deck.take_events(limit)).unwrap_or_default();
        if events.is_empty() {
            return;
        }
        for (token, flags) in events.drain(..) {
            report(token, flags);
        }
        look_own(&self.0, |deck| deck.spare = events);
    }

    fn notify(&self) {
        self.0.wake();
    }

    fn is_woken_from_elsewhere(&self) {
        if !self.0.is_here() {
            self.0.note_wake_from_elsewhere();
        }
    }

    fn arm(&self, deadline: Option<Instant>) {
        look_own(&self.0, |deck| deck.deadline = deadline);
    }
}

// Sockets.

/// A socket: `system` is `None` when it is replayed.
#[derive(Debug)]
struct TapedSocket {
    id: u32,
    /// That of its deck.
    number: u32,
    socket_type: SocketType,
    system: Option<Arc<socket2::Socket>>,
    shared: Arc<Shared>,
}

impl Drop for TapedSocket {
    fn drop(&mut self) {
        deck::dropped(self.id, &self.shared);
    }
}

/// Makes a socket by a call that the tape has.
fn make(
    ask: &Ask,
    socket_type: SocketType,
    make: impl FnOnce() -> io::Result<socket2::Socket>,
) -> io::Result<Box<dyn Socket>> {
    let mut made = None;
    with(|deck| {
        let crossed = deck.cross(ask, || {
            made = Some(make()?);
            Ok(())
        })?;
        Ok(crossed.map(|()| deck.wrap(socket_type, made)))
    })?
}

impl deck::Deck {
    fn wrap(
        &mut self,
        socket_type: SocketType,
        system: Option<socket2::Socket>,
    ) -> Box<dyn Socket> {
        let system = system.map(Arc::new);
        Box::new(TapedSocket {
            id: self.add(system.clone()),
            number: self.number,
            socket_type,
            system,
            shared: self.shared.clone(),
        })
    }
}

/// Returns the file that is lent for what is replayed.
pub(crate) fn null() -> &'static File {
    static NULL: OnceLock<File> = OnceLock::new();
    NULL.get_or_init(|| File::open("/dev/null").expect("every Unix has /dev/null"))
}

fn kind_of(socket_type: SocketType) -> Type {
    match socket_type {
        SocketType::UdpSocket | SocketType::UnixDatagram => Type::DGRAM,
        _ => Type::STREAM,
    }
}

fn create(socket_type: SocketType, domain: Domain) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(domain, kind_of(socket_type), None)?;
    socket.set_nonblocking(true)?;
    if socket_type == SocketType::TcpListener {
        socket.set_reuse_address(true)?;
    }
    Ok(socket)
}

fn to_system(address: &Address) -> io::Result<SockAddr> {
    use std::ffi::OsStr;
    match address {
        Address::Internet(address) => Ok((*address).into()),
        Address::Unix(Name::Unnamed) => SockAddr::unix(""),
        Address::Unix(Name::Path(path)) => SockAddr::unix(OsStr::from_bytes(path)),
        Address::Unix(Name::Abstract(name)) => {
            SockAddr::unix(OsStr::from_bytes(&[&[0], &name[..]].concat()))
        }
    }
}

fn of_system(address: &SockAddr) -> Address {
    if let Some(address) = address.as_socket() {
        return Address::Internet(address);
    }
    if let Some(name) = address.as_abstract_namespace() {
        return Address::Unix(Name::Abstract(name.to_vec()));
    }
    Address::Unix(match address.as_pathname() {
        Some(path) if !path.as_os_str().is_empty() => {
            Name::Path(path.as_os_str().as_bytes().to_vec())
        }
        _ => Name::Unnamed,
    })
}

impl Sockets for Taped {
    fn bind(
        &self,
        socket_type: SocketType,
        address: Option<&Address>,
        backlog: usize,
    ) -> io::Result<Box<dyn Socket>> {
        let words = address.map_or("unbound".to_owned(), Address::to_string);
        let ask = Ask::new(
            Tag::Bind,
            Argument::Text(format!("{socket_type:?} {words}")),
        );
        make(&ask, socket_type, || {
            let Some(address) = address else {
                return create(socket_type, Domain::UNIX);
            };
            let address = to_system(address)?;
            let socket = create(socket_type, address.domain())?;
            socket.bind(&address)?;
            if matches!(
                socket_type,
                SocketType::TcpListener | SocketType::UnixListener
            ) {
                socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
            }
            Ok(socket)
        })
    }

    fn pair(&self, socket_type: SocketType) -> io::Result<[Box<dyn Socket>; 2]> {
        let ask = Ask::new(Tag::Pair, Argument::Text(format!("{socket_type:?}")));
        let mut made = (None, None);
        with(|deck| {
            let crossed = deck.cross(&ask, || {
                let (a, b) = socket2::Socket::pair(Domain::UNIX, kind_of(socket_type), None)?;
                a.set_nonblocking(true)?;
                b.set_nonblocking(true)?;
                made = (Some(a), Some(b));
                Ok(())
            })?;
            Ok(crossed.map(|()| {
                [
                    deck.wrap(socket_type, made.0),
                    deck.wrap(socket_type, made.1),
                ]
            }))
        })?
    }

    fn connect(&self, socket_type: SocketType, address: &Address) -> io::Result<Box<dyn Socket>> {
        let ask = Ask::new(
            Tag::Connect,
            Argument::Text(format!("{socket_type:?} {address}")),
        );
        make(&ask, socket_type, || {
            let address = to_system(address)?;
            let socket = create(socket_type, address.domain())?;
            match socket.connect(&address) {
                Err(error)
                    if error.raw_os_error()
                        == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
                result => result?,
            }
            Ok(socket)
        })
    }
}

/// The system's socket of a recording: its closures run only there.
macro_rules! system {
    ($socket:expr) => {
        match &$socket.system {
            Some(system) => &**system,
            None => return Err(io::ErrorKind::NotConnected.into()),
        }
    };
}

impl TapedSocket {
    fn cross<T: Kept>(
        &self,
        tag: Tag,
        argument: Argument,
        real: impl FnOnce(&socket2::Socket) -> io::Result<T>,
    ) -> io::Result<T> {
        cross(&self.shared, Ask::of(self.id, tag, argument), || {
            real(system!(self))
        })
    }
}

/// Larger ones are several entries.
const MAX_READ: usize = 16 << 20;

/// `IOV_MAX` of systems that have one.
const MAX_SLICES: usize = 1_024;

/// Returns the buffers that one call fills: at most [`MAX_SLICES`], and [`MAX_READ`] bytes. Empty
/// ones are left out: a read of them alone would look like the end of the stream.
fn fillable<'a>(buffers: &'a mut [IoSliceMut<'_>]) -> Vec<IoSliceMut<'a>> {
    let mut room = MAX_READ;
    let parts = buffers.iter_mut().map(|buffer| {
        let length = buffer.len().min(room);
        room -= length;
        IoSliceMut::new(&mut buffer[..length])
    });
    parts
        .filter(|part| !part.is_empty())
        .take(MAX_SLICES)
        .collect()
}

/// Converts a buffer to socket2's type.
fn to_fill(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: `MaybeUninit<u8>` has the layout of `u8`, and the methods of socket2 that take the
    // result promise to write initialised bytes only.
    unsafe { &mut *(std::ptr::from_mut(bytes) as *mut [MaybeUninit<u8>]) }
}

impl Socket for TapedSocket {
    fn id(&self) -> u64 {
        u64::from(self.number) << 32 | u64::from(self.id)
    }

    fn ready(&self) -> io::Result<u8> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let ready = self.cross(Tag::Ready, Argument::None, |system| {
            let mut fds = [PollFd::new(system, PollFlags::IN | PollFlags::OUT)];
            poll(&mut fds, Some(&Timespec::default()))?;
            let found = fds[0].revents();
            let has = |flag, bit: u8| u32::from(bit) * u32::from(found.intersects(flag));
            Ok(has(PollFlags::IN, kernel::READABLE)
                | has(PollFlags::OUT, kernel::WRITABLE)
                | has(PollFlags::HUP, kernel::CLOSED)
                | has(PollFlags::ERR, kernel::ERROR))
        })?;
        Ok(ready as u8)
    }

    fn kind(&self) -> &'static str {
        match self.socket_type {
            SocketType::TcpStream => "tcp",
            SocketType::TcpListener => "tcp listener",
            SocketType::UdpSocket => "udp",
            SocketType::UnixStream => "unix",
            SocketType::UnixListener => "unix listener",
            SocketType::UnixDatagram => "unix datagram",
        }
    }

    fn lend(&self) -> BorrowedFd<'_> {
        look(|deck| {
            deck.remark(
                "the descriptor of a socket was asked for: what is done with it is not on the tape",
            );
        });
        match &self.system {
            Some(system) => system.as_fd(),
            None => null().as_fd(),
        }
    }

    fn finish_connect(&self) -> io::Result<()> {
        self.cross(Tag::FinishConnect, Argument::None, |system| {
            if let Some(error) = system.take_error()? {
                return Err(error);
            }
            match system.peer_addr() {
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                    Err(io::ErrorKind::WouldBlock.into())
                }
                // XNU's answer for a stream that was reset.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    Err(io::ErrorKind::ConnectionReset.into())
                }
                result => result.map(drop),
            }
        })
    }

    fn local_addr(&self) -> io::Result<Address> {
        self.cross(Tag::LocalAddr, Argument::None, |system| {
            Ok(of_system(&system.local_addr()?))
        })
    }

    fn peer_addr(&self) -> io::Result<Address> {
        self.cross(Tag::PeerAddr, Argument::None, |system| {
            Ok(of_system(&system.peer_addr()?))
        })
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn peer_cred(&self) -> Option<io::Result<(u32, u32, Option<i32>)>> {
        let ask = Ask::of(self.id, Tag::PeerCred, Argument::None);
        let told = cross(&self.shared, ask, || {
            let cred = rustix::net::sockopt::socket_peercred(system!(self))?;
            let pid = cred.pid.as_raw_nonzero().get();
            Ok((
                u64::from(cred.uid.as_raw()),
                (u64::from(cred.gid.as_raw()), u64::from(pid.unsigned_abs())),
            ))
        });
        Some(told.map(|(uid, (gid, pid))| (uid as u32, gid as u32, Some(pid as i32))))
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn peer_cred(&self) -> Option<io::Result<(u32, u32, Option<i32>)>> {
        Some(Err(io::ErrorKind::Unsupported.into()))
    }

    fn set_peer(&self, address: &Address) -> io::Result<()> {
        let argument = Argument::Text(address.to_string());
        self.cross(Tag::SetPeer, argument, |system| {
            system.connect(&to_system(address)?)
        })
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.cross(Tag::Shutdown, Argument::Number(how as u64), |system| {
            system.shutdown(how)
        })
    }

    fn accept(&self) -> io::Result<(Box<dyn Socket>, Address)> {
        let accepted = match self.socket_type {
            SocketType::UnixListener => SocketType::UnixStream,
            _ => SocketType::TcpStream,
        };
        let mut made = None;
        with_own(&self.shared, |deck| {
            let crossed = deck.cross(&Ask::of(self.id, Tag::Accept, Argument::None), || {
                let (socket, peer) = system!(self).accept()?;
                socket.set_nonblocking(true)?;
                made = Some(socket);
                Ok(of_system(&peer))
            })?;
            Ok(crossed.map(|peer| (deck.wrap(accepted, made), peer)))
        })?
    }

    #[inline]
    fn read(&self, buffers: &mut [IoSliceMut<'_>], peeks: bool) -> io::Result<(usize, bool)> {
        let tag = if peeks { Tag::Peek } else { Tag::Read };
        let ask = Ask::of(self.id, tag, Argument::None);
        let is_tcp = self.socket_type == SocketType::TcpStream;
        let filled = with_own(&self.shared, |deck| {
            deck.cross_filled(
                &ask,
                buffers,
                |buffers| {
                    let system = system!(self);
                    let (length, offered) = match buffers {
                        [buffer, ..] if peeks => (system.peek(to_fill(buffer))?, 0),
                        [buffer] => {
                            let most = buffer.len().min(MAX_READ);
                            (io::Read::read(&mut &*system, &mut buffer[..most])?, most)
                        }
                        buffers => {
                            let mut parts = fillable(buffers);
                            let offered = parts.iter().map(|part| part.len()).sum();
                            let length = io::Read::read_vectored(&mut &*system, &mut parts)?;
                            (length, offered)
                        }
                    };
                    // Of the others a short read may have other reasons.
                    let is_drained = is_tcp && length < offered;
                    Ok((Filled(length, is_drained), ()))
                },
                |_, ()| {},
                |_| Some(()),
            )
        })?;
        filled.map(|(Filled(length, is_drained), ())| (length, is_drained))
    }

    #[inline]
    fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let sum = buffers
            .iter()
            .fold(0, |sum, buffer| tape::checked(buffer, sum));
        let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let left = self.cross(Tag::Write, Argument::Check(sum as u16), |system| {
            let written = match buffers {
                [buffer] => system.send_with_flags(buffer, SEND_FLAGS)?,
                buffers => {
                    // Without empty ones: a write of them alone would look like a full stream.
                    let parts = buffers.iter().copied().filter(|part| !part.is_empty());
                    let parts: Vec<_> = parts.take(MAX_SLICES).collect();
                    system.send_vectored_with_flags(&parts, SEND_FLAGS)?
                }
            };
            Ok(wanted - written)
        })?;
        tape::written(wanted, left)
    }

    fn receive(&self, bytes: &mut [u8], peeks: bool) -> io::Result<(usize, Address, bool)> {
        let tag = if peeks { Tag::PeekFrom } else { Tag::Receive };
        let ask = Ask::of(self.id, tag, Argument::None);
        let flags = if peeks {
            rustix::net::RecvFlags::PEEK.bits() as i32
        } else {
            0
        };
        let received = with_own(&self.shared, |deck| {
            deck.cross_filled(
                &ask,
                &mut [IoSliceMut::new(bytes)],
                |buffers| {
                    let slices = &mut [MaybeUninitSlice::new(to_fill(&mut buffers[0]))];
                    let (length, found, from) =
                        system!(self).recv_from_vectored_with_flags(slices, flags)?;
                    Ok((Filled(length, found.is_truncated()), of_system(&from)))
                },
                tape::put_value,
                tape::get_value,
            )
        })?;
        received.map(|(Filled(length, is_truncated), from)| (length, from, is_truncated))
    }

    fn send(&self, bytes: &[u8], to: Option<&Address>) -> io::Result<usize> {
        let mut whither = Vec::new();
        if let Some(to) = to {
            tape::put_value(&mut whither, to);
        }
        let argument = Argument::of_bytes(&whither, tape::checked(bytes, 0));
        let left = self.cross(Tag::Send, argument, |system| {
            let sent = match to {
                Some(to) => system.send_to_with_flags(bytes, &to_system(to)?, SEND_FLAGS)?,
                None => system.send_with_flags(bytes, SEND_FLAGS)?,
            };
            Ok(bytes.len() - sent)
        })?;
        tape::written(bytes.len(), left)
    }

    fn flag(&self, flag: Flag) -> io::Result<bool> {
        let value = self.option(flag as u64, |system| {
            Ok(Some(u64::from(match flag {
                Flag::Broadcast => system.broadcast()?,
                Flag::Keepalive => system.keepalive()?,
                Flag::MulticastLoopV4 => system.multicast_loop_v4()?,
                Flag::MulticastLoopV6 => system.multicast_loop_v6()?,
                Flag::Nodelay => system.tcp_nodelay()?,
                // Descriptors that a peer sends are lost.
                Flag::Passrights => false,
            })))
        })?;
        Ok(value == Some(1))
    }

    fn linger(&self) -> io::Result<Option<Duration>> {
        let value = self.option(16, |system| {
            Ok(system.linger()?.map(|time| time.as_millis() as u64))
        })?;
        Ok(value.map(Duration::from_millis))
    }

    fn number(&self, number: Number) -> io::Result<u32> {
        let value = self.option(17 + number as u64, |system| {
            Ok(Some(u64::from(match number {
                Number::MulticastTtlV4 => system.multicast_ttl_v4()?,
                Number::Ttl => system.ttl_v4()?,
            })))
        })?;
        Ok(value.unwrap_or(0) as u32)
    }

    fn tcp_option(&self, option: TcpOption) -> io::Result<Option<u32>> {
        let value = self.option(24 + option as u64, |system| get_tcp(system, option))?;
        Ok(value.map(|value| value as u32))
    }

    fn set(&self, option: Opt) -> io::Result<()> {
        self.cross(
            Tag::SetOption,
            Argument::Text(format!("{option:?}")),
            |socket| match option {
                Opt::Flag(Flag::Broadcast, on) => socket.set_broadcast(on),
                Opt::Flag(Flag::Keepalive, on) => socket.set_keepalive(on),
                Opt::Flag(Flag::MulticastLoopV4, on) => socket.set_multicast_loop_v4(on),
                Opt::Flag(Flag::MulticastLoopV6, on) => socket.set_multicast_loop_v6(on),
                Opt::Flag(Flag::Nodelay, on) => socket.set_tcp_nodelay(on),
                Opt::Flag(Flag::Passrights, false) => Ok(()),
                Opt::Flag(Flag::Passrights, true) => Taped.permit("passing descriptors"),
                Opt::Join(Group::V4(group, interface)) => {
                    socket.join_multicast_v4(&group, &interface)
                }
                Opt::Join(Group::V6(group, interface)) => {
                    socket.join_multicast_v6(&group, interface)
                }
                Opt::Leave(Group::V4(group, interface)) => {
                    socket.leave_multicast_v4(&group, &interface)
                }
                Opt::Leave(Group::V6(group, interface)) => {
                    socket.leave_multicast_v6(&group, interface)
                }
                Opt::Linger(duration) => socket.set_linger(duration),
                // Some kernels store the lowest byte of more.
                Opt::Number(_, 256..) => Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "TTL must be at most 255",
                )),
                Opt::Number(Number::MulticastTtlV4, hops) => socket.set_multicast_ttl_v4(hops),
                Opt::Number(Number::Ttl, hops) => socket.set_ttl_v4(hops),
                Opt::Tcp(option, value) => set_tcp(socket, option, value),
            },
        )
    }
}

impl TapedSocket {
    /// An option, by a number for the tape.
    fn option(
        &self,
        number: u64,
        real: impl FnOnce(&socket2::Socket) -> io::Result<Option<u64>>,
    ) -> io::Result<Option<u64>> {
        self.cross(Tag::GetOption, Argument::Number(number), real)
    }
}

#[cfg(not(target_os = "openbsd"))]
fn get_tcp(socket: &socket2::Socket, option: TcpOption) -> io::Result<Option<u64>> {
    Ok(match option {
        TcpOption::KeepIdle => Some(socket.tcp_keepalive_time()?.as_secs()),
        TcpOption::KeepInterval => Some(socket.tcp_keepalive_interval()?.as_secs()),
        TcpOption::KeepCount => Some(socket.tcp_keepalive_retries()?.into()),
        #[cfg(any(target_os = "linux", target_os = "android"))]
        TcpOption::UserTimeout => {
            Some(socket.tcp_user_timeout()?.unwrap_or_default().as_millis() as u64)
        }
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        TcpOption::UserTimeout => None,
    })
}

/// OpenBSD has these options for all sockets only (tcp(4)).
#[cfg(target_os = "openbsd")]
fn get_tcp(_: &socket2::Socket, _: TcpOption) -> io::Result<Option<u64>> {
    Ok(None)
}

#[cfg(target_os = "openbsd")]
fn set_tcp(_: &socket2::Socket, _: TcpOption, _: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "openbsd"))]
fn set_tcp(socket: &socket2::Socket, option: TcpOption, value: u32) -> io::Result<()> {
    let seconds = Duration::from_secs(value.into());
    let keepalive = socket2::TcpKeepalive::new();
    // Setting them turns keepalive on.
    let was_on = socket.keepalive()?;
    let result = match option {
        TcpOption::KeepIdle => socket.set_tcp_keepalive(&keepalive.with_time(seconds)),
        TcpOption::KeepInterval => socket.set_tcp_keepalive(&keepalive.with_interval(seconds)),
        TcpOption::KeepCount => socket.set_tcp_keepalive(&keepalive.with_retries(value)),
        #[cfg(any(target_os = "linux", target_os = "android"))]
        TcpOption::UserTimeout => {
            return socket.set_tcp_user_timeout(Some(Duration::from_millis(value.into())));
        }
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        TcpOption::UserTimeout => return Err(io::ErrorKind::Unsupported.into()),
    };
    socket.set_keepalive(was_on)?;
    result
}

/// No `SIGPIPE`. Apple's systems have an option of the socket for that, which socket2 sets.
#[cfg(not(target_vendor = "apple"))]
const SEND_FLAGS: i32 = rustix::net::SendFlags::NOSIGNAL.bits() as i32;
#[cfg(target_vendor = "apple")]
const SEND_FLAGS: i32 = 0;
