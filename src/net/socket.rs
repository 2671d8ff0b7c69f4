//! What a socket asks of the world: bind, connect, accept, try to read, try to write, wait until it is
//! worth another try, and its addresses and options. Every socket in `net` asks here, and nothing else
//! there asks the kernel but the resolver (`addresses`); this is the place where another world than
//! the kernel's would answer.
//!
//! Every operation has one shape ([`Socket::poll`]): it is tried while readiness is not known to be
//! clear; when it would block, readiness is cleared, unless an event came meanwhile, and the waker
//! is left with the source. Who succeeds 128 times within one poll of a task lets others run first.

use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockRef, Type};

use crate::io::operation::{self, Operation, Trust};
use crate::reactor::{Direction, Io, Snapshot, Source, SourceKind};
use crate::sys::{self, BorrowedDescriptor, OwnedDescriptor};
use crate::time::{Timer, timeout};

/// How many connections may wait to be accepted. The system's own limit is below or at this (Linux:
/// 4,096 since 5.4), and cuts it; where the queue is full, clients try again after a second.
const BACKLOG: i32 = 4_096;

/// How long a Unix connect waits when the listener's queue is full, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(32));

/// The sockets that there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SocketType {
    TcpStream,
    TcpListener,
    UdpSocket,
    #[cfg(unix)]
    UnixStream,
    #[cfg(unix)]
    UnixListener,
    #[cfg(unix)]
    UnixDatagram,
}

impl SocketType {
    /// How it is waited for; `plain`: its short reads can be trusted.
    fn kind(self, plain: bool) -> SourceKind {
        match self {
            SocketType::TcpStream if plain => SourceKind::TcpStream,
            #[cfg(unix)]
            SocketType::UnixStream => SourceKind::UnixStream,
            _ => SourceKind::Other,
        }
    }

    /// What it accepts, if it is a listener; else itself.
    fn accepted(self) -> SocketType {
        match self {
            SocketType::TcpListener => SocketType::TcpStream,
            #[cfg(unix)]
            SocketType::UnixListener => SocketType::UnixStream,
            other => other,
        }
    }

    fn is_listener(self) -> bool {
        self.accepted() != self
    }

    fn is_stream(self) -> bool {
        self.r#type() == Type::STREAM && !self.is_listener()
    }

    fn r#type(self) -> Type {
        match self {
            SocketType::UdpSocket => Type::DGRAM,
            #[cfg(unix)]
            SocketType::UnixDatagram => Type::DGRAM,
            _ => Type::STREAM,
        }
    }

    fn is_internet(self) -> bool {
        matches!(
            self,
            SocketType::TcpStream | SocketType::TcpListener | SocketType::UdpSocket
        )
    }

    fn name(self) -> &'static str {
        match self {
            SocketType::TcpStream => "a TCP stream",
            SocketType::TcpListener => "a TCP listener",
            SocketType::UdpSocket => "a UDP socket",
            #[cfg(unix)]
            SocketType::UnixStream => "a Unix stream",
            #[cfg(unix)]
            SocketType::UnixListener => "a Unix listener",
            #[cfg(unix)]
            SocketType::UnixDatagram => "a Unix datagram socket",
        }
    }
}

/// An option, and the value that it is set to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Opt {
    Broadcast(bool),
    MulticastLoopV4(bool),
    MulticastLoopV6(bool),
    MulticastTtlV4(u32),
    Nodelay(bool),
    Ttl(u32),
}

/// A multicast group, and the interface on which it is joined: by address, or by index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Group {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, u32),
}

/// Sealed: it appears in the public trait [`Stream`](super::macros::Stream), and cannot be named outside
/// the crate.
#[derive(Clone, Debug)]
pub struct Socket {
    io: Io,
    sort: SocketType,
    /// Of a TCP socket: that it is TCP and nothing else; of what a listener accepts too. Else it is taken
    /// for a stream whose short reads prove nothing. Asked when a socket that others made is taken over:
    /// what they put above TCP (kTLS) they do before.
    plain: bool,
}

impl Socket {
    /// Takes over a socket that [`create`] made, or one like it.
    fn new(descriptor: OwnedDescriptor, sort: SocketType) -> Socket {
        Socket::of(descriptor, sort, true)
    }

    /// Takes over a socket that others made, which is non-blocking already.
    fn foreign(descriptor: OwnedDescriptor, sort: SocketType) -> Socket {
        let plain = match sort {
            SocketType::TcpStream | SocketType::TcpListener => sys::is_plain_tcp(&descriptor),
            _ => true,
        };
        Socket::of(descriptor, sort, plain)
    }

    fn of(descriptor: OwnedDescriptor, sort: SocketType, plain: bool) -> Socket {
        Socket {
            io: Io::new(descriptor, sort.kind(plain)),
            sort,
            plain,
        }
    }

    /// Takes over a socket as the standard library or somebody else made it. What is not of this sort
    /// is refused: how a socket is waited for depends on what it is.
    pub(super) fn adopt(descriptor: OwnedDescriptor, sort: SocketType) -> io::Result<Socket> {
        let socket = SockRef::from(&descriptor);
        prepare(&socket, sort)?;
        // Of a datagram socket some systems cannot be asked that.
        if sort.r#type() == Type::STREAM
            && sys::is_listening(&descriptor).is_some_and(|listens| listens != sort.is_listener())
        {
            return Err(invalid(format!("the socket is not {}", sort.name())));
        }
        Ok(Socket::foreign(descriptor, sort))
    }

    /// Listens at one address; or, a datagram socket, receives there.
    pub(super) fn bind(sort: SocketType, address: &SockAddr) -> io::Result<Socket> {
        let socket = create(sort, address.domain())?;
        if sys::REUSES_ADDRESS && sort == SocketType::TcpListener {
            socket.set_reuse_address(true)?;
        }
        start(&socket, sort, address)?;
        Ok(Socket::new(socket.into(), sort))
    }

    /// The same for a socket that somebody else made, and gave its options.
    pub(super) fn bind_with(
        socket: socket2::Socket,
        sort: SocketType,
        address: &SockAddr,
    ) -> io::Result<Socket> {
        prepare(&SockRef::from(&socket), sort)?;
        start(&socket, sort, address)?;
        Ok(Socket::foreign(socket.into(), sort))
    }

    /// A socket without a name.
    #[cfg(unix)]
    pub(super) fn unbound(sort: SocketType) -> io::Result<Socket> {
        Ok(Socket::new(create(sort, Domain::UNIX)?.into(), sort))
    }

    /// Two Unix sockets that are connected with each other.
    #[cfg(unix)]
    pub(super) fn pair(sort: SocketType) -> io::Result<(Socket, Socket)> {
        let (a, b) = socket2::Socket::pair(Domain::UNIX, sort.r#type(), None)?;
        a.set_nonblocking(true)?;
        b.set_nonblocking(true)?;
        Ok((Socket::new(a.into(), sort), Socket::new(b.into(), sort)))
    }

    /// Gives the socket back, non-blocking; a duplicate of it where clones share it.
    pub(super) fn into_descriptor(self) -> io::Result<OwnedDescriptor> {
        self.io.into_descriptor()
    }

    pub(super) fn descriptor(&self) -> BorrowedDescriptor<'_> {
        self.io.source().descriptor()
    }

    pub(super) fn set(&self, option: Opt) -> io::Result<()> {
        let socket = self.kernel();
        match option {
            Opt::Broadcast(on) => socket.set_broadcast(on),
            Opt::MulticastLoopV4(on) => socket.set_multicast_loop_v4(on),
            Opt::MulticastLoopV6(on) => socket.set_multicast_loop_v6(on),
            Opt::MulticastTtlV4(hops) => socket.set_multicast_ttl_v4(hops),
            Opt::Nodelay(on) => socket.set_tcp_nodelay(on),
            Opt::Ttl(hops) => socket.set_ttl_v4(hops),
        }
    }

    pub(super) fn broadcast(&self) -> io::Result<bool> {
        self.kernel().broadcast()
    }

    pub(super) fn multicast_loop_v4(&self) -> io::Result<bool> {
        self.kernel().multicast_loop_v4()
    }

    pub(super) fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.kernel().multicast_loop_v6()
    }

    pub(super) fn multicast_ttl_v4(&self) -> io::Result<u32> {
        self.kernel().multicast_ttl_v4()
    }

    pub(super) fn nodelay(&self) -> io::Result<bool> {
        self.kernel().tcp_nodelay()
    }

    pub(super) fn ttl(&self) -> io::Result<u32> {
        self.kernel().ttl_v4()
    }

    pub(super) fn join(&self, group: Group) -> io::Result<()> {
        match group {
            Group::V4(group, interface) => self.kernel().join_multicast_v4(&group, &interface),
            Group::V6(group, interface) => self.kernel().join_multicast_v6(&group, interface),
        }
    }

    pub(super) fn leave(&self, group: Group) -> io::Result<()> {
        match group {
            Group::V4(group, interface) => self.kernel().leave_multicast_v4(&group, &interface),
            Group::V6(group, interface) => self.kernel().leave_multicast_v6(&group, interface),
        }
    }

    /// Who is at the other end of a Unix socket: user, group, and process where the system tells.
    #[cfg(unix)]
    pub(super) fn peer_cred(&self) -> io::Result<(u32, u32, Option<i32>)> {
        sys::peer_cred(self)
    }

    /// The kernel's socket, which is lent to nobody above this file but by `AsFd`.
    fn kernel(&self) -> SockRef<'_> {
        SockRef::from(self)
    }

    pub(super) fn local_addr(&self) -> io::Result<SockAddr> {
        self.kernel().local_addr()
    }

    pub(super) fn peer_addr(&self) -> io::Result<SockAddr> {
        self.kernel().peer_addr()
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.kernel().shutdown(how)?;
        // Not every kernel tells those who wait: completion ports under wine do not.
        self.io.source().wake(how != Shutdown::Write);
        Ok(())
    }

    pub(super) fn shares_with(&self, other: &Socket) -> bool {
        Arc::ptr_eq(self.io.source(), other.io.source())
    }

    /// Connects a stream to one address.
    pub(super) async fn connect(sort: SocketType, address: &SockAddr) -> io::Result<Socket> {
        let socket = create(sort, address.domain())?;
        Socket::connect_created(socket, sort, address, Socket::new).await
    }

    /// The same for a socket that somebody else made, and gave its options.
    pub(super) async fn connect_with(
        socket: socket2::Socket,
        sort: SocketType,
        address: &SockAddr,
    ) -> io::Result<Socket> {
        prepare(&SockRef::from(&socket), sort)?;
        Socket::connect_created(socket, sort, address, Socket::foreign).await
    }

    async fn connect_created(
        socket: socket2::Socket,
        sort: SocketType,
        address: &SockAddr,
        take: fn(OwnedDescriptor, SocketType) -> Socket,
    ) -> io::Result<Socket> {
        let (mut pause, longest) = PAUSES;
        let result = loop {
            match socket.connect(address) {
                // The queue of a Unix listener is full, and no event tells when it no longer is.
                Err(error) if !sort.is_internet() && is_would_block(&error) => {
                    Timer::after(pause).await;
                    pause = (pause * 2).min(longest);
                }
                other => break other,
            }
        };
        let socket = take(socket.into(), sort);
        match result {
            Ok(()) => return Ok(socket),
            Err(error) if !sys::is_in_progress(&error) => return Err(error),
            Err(_) => {}
        }
        // Writable, or so we hope; then what the socket says; then whether there is a peer, since
        // the first two can be had from a socket that is not connected yet.
        socket
            .run(Direction::Write, |socket, _| {
                if let Some(error) = socket.take_error()? {
                    return Err(error);
                }
                match socket.peer_addr() {
                    Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                        Err(io::ErrorKind::WouldBlock.into())
                    }
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                        // What macOS says of a connection that was reset since.
                        Err(io::ErrorKind::ConnectionReset.into())
                    }
                    other => other.map(drop),
                }
            })
            .await?;
        Ok(socket)
    }

    /// Waits for a connection. One that was given up by its peer in the queue is passed over.
    pub(super) async fn accept(&self) -> io::Result<(Socket, SockAddr)> {
        let (descriptor, peer) = self
            .run(Direction::Read, |_, _| {
                loop {
                    match sys::accept(self) {
                        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                        other => return other,
                    }
                }
            })
            .await?;
        let sort = self.sort.accepted();
        Ok((Socket::of(descriptor, sort, self.plain), peer))
    }

    /// Says where what is sent from now on goes, and from where alone it comes: for datagrams.
    pub(super) fn connect_to(&self, address: &SockAddr) -> io::Result<()> {
        self.kernel().connect(address)
    }

    /// Reads without taking.
    pub(super) async fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() && self.sort.is_stream() {
            return Ok(0);
        }
        self.run(Direction::Read, |socket, seen| {
            let peeked = socket.peek(to_fill(bytes));
            self.or_ended(peeked, seen, || Ok(0))
        })
        .await
    }

    /// [`peek`](Self::peek), and who sent it.
    pub(super) async fn peek_from(&self, bytes: &mut [u8]) -> io::Result<(usize, SockAddr)> {
        self.run(Direction::Read, |socket, seen| {
            let peeked = socket.peek_from(to_fill(bytes));
            self.or_ended(peeked, seen, || Ok((0, nobody(self.sort)?)))
        })
        .await
    }

    /// Takes one datagram.
    pub(super) async fn recv(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.run(Direction::Read, |socket, seen| {
            let received = socket.recv(to_fill(bytes));
            self.or_ended(received, seen, || Ok(0))
        })
        .await
    }

    /// [`recv`](Self::recv), and who sent it.
    pub(super) async fn recv_from(&self, bytes: &mut [u8]) -> io::Result<(usize, SockAddr)> {
        self.run(Direction::Read, |socket, seen| {
            let received = socket.recv_from(to_fill(bytes));
            self.or_ended(received, seen, || Ok((0, nobody(self.sort)?)))
        })
        .await
    }

    /// Linux says of a datagram socket whose receiving was shut down that it would block, and of the same
    /// that it is readable, for ever. It has ended.
    fn or_ended<T>(
        &self,
        received: io::Result<T>,
        seen: Snapshot,
        nothing: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        match received {
            Err(error)
                if is_would_block(&error)
                    && self.sort.r#type() == Type::DGRAM
                    && seen.has_sticky_flags()
                    && sys::has_ended(self) =>
            {
                nothing()
            }
            other => other,
        }
    }

    /// Sends one datagram to whom it is connected to.
    pub(super) async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.run(Direction::Write, |socket, _| {
            socket.send_with_flags(bytes, sys::SEND_FLAGS)
        })
        .await
    }

    /// Sends one datagram to an address.
    ///
    /// A Unix socket may find its own buffer full, of which an event tells when it no longer is, or the
    /// receiver's queue, of which none tells unless the two are connected (`unix_dgram_poll` in Linux):
    /// there the timer does.
    pub(super) async fn send_to(&self, bytes: &[u8], address: &SockAddr) -> io::Result<usize> {
        let attempt =
            |socket: &SockRef<'_>| socket.send_to_with_flags(bytes, address, sys::SEND_FLAGS);
        if self.sort.is_internet() {
            return self
                .run(Direction::Write, |socket, _| attempt(socket))
                .await;
        }
        let (mut pause, longest) = PAUSES;
        loop {
            let send = self.run(Direction::Write, |socket, _| match attempt(socket) {
                Err(error) if is_would_block(&error) && sys::has_room(self) => Ok(None),
                result => result.map(Some),
            });
            match timeout(pause, send).await {
                Ok(sent) => match sent? {
                    Some(sent) => return Ok(sent),
                    None => {
                        Timer::after(pause).await;
                    }
                },
                // What is known may be about another receiver, whom this is connected to.
                Err(_) => match attempt(&self.kernel()) {
                    Err(error) if is_would_block(&error) => {}
                    result => return result,
                },
            }
            pause = (pause * 2).min(longest);
        }
    }

    #[inline]
    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if !self.sort.is_internet() {
            return self.poll_read_vectored(cx, &mut [IoSliceMut::new(bytes)]);
        }
        let wanted = bytes.len();
        if wanted == 0 {
            return Poll::Ready(Ok(0));
        }
        self.poll(cx, Direction::Read, |socket, seen| {
            let read = sys::receive(&socket, bytes)?;
            self.was_short(seen, read, wanted);
            Ok(read)
        })
    }

    pub(super) fn poll_read_vectored(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        // First the limit, then the sum: a read that was not offered all must not count as short.
        let most = buffers.len().min(sys::MAX_SLICES);
        let buffers = &mut buffers[..most];
        let wanted = buffers.iter().map(|buffer| buffer.len()).sum();
        if wanted == 0 {
            return Poll::Ready(Ok(0)); // Nothing is asked for, so nothing is waited for.
        }
        self.poll(cx, Direction::Read, |socket, seen| {
            let (read, alone) = match self.sort.is_internet() {
                true => (sys::receive_vectored(&socket, buffers)?, true),
                false => sys::receive_alone(&socket, buffers)?,
            };
            if alone {
                self.was_short(seen, read, wanted);
            }
            Ok(read)
        })
    }

    /// A read that got less than it asked for, but not the end, has most likely drained the socket.
    #[inline]
    fn was_short(&self, seen: Snapshot, read: usize, wanted: usize) {
        if 0 < read && read < wanted {
            self.io.source().drained_by_short_read(seen);
        }
    }

    #[inline]
    pub(super) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(cx, Direction::Write, |socket, _| sys::send(&socket, bytes))
    }

    pub(super) fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let buffers = &buffers[..buffers.len().min(sys::MAX_SLICES)];
        self.poll(cx, Direction::Write, |socket, _| {
            SockRef::from(&socket).send_vectored_with_flags(buffers, sys::SEND_FLAGS)
        })
    }

    /// What closing a writer means: the other end sees the end of file. That it may have gone is no
    /// failure.
    pub(super) fn poll_close(&self) -> Poll<io::Result<()>> {
        match self.shutdown(Shutdown::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            result => Poll::Ready(result),
        }
    }

    /// Runs an operation for whoever holds this handle: see [`operation::poll`].
    #[inline]
    fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        mut attempt: impl FnMut(BorrowedDescriptor<'_>, Snapshot) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let (source, id) = (self.io.source(), self.io.id());
        let register = || operation::register(source, direction, id, cx.waker());
        operation::poll(
            cx,
            source,
            direction,
            self.sort,
            register,
            |source, seen| attempt(source.descriptor(), seen),
        )
    }

    /// An operation as a future of its own: any number of them may wait on one socket.
    fn run<T>(
        &self,
        direction: Direction,
        mut attempt: impl FnMut(&SockRef<'_>, Snapshot) -> io::Result<T>,
    ) -> impl Future<Output = io::Result<T>> {
        Operation::new(&self.io, direction, self.sort, move |source, seen| {
            attempt(&SockRef::from(&source.descriptor()), seen)
        })
    }
}

sys::lend_descriptor!([] Socket, |it| it.descriptor());

/// A socket of ours: nobody else reads from it or writes to it, so what events have told holds until
/// an attempt would block.
impl Trust for SocketType {
    #[inline]
    fn should_try(self, seen: Snapshot) -> bool {
        seen.is_ready()
    }

    #[inline]
    fn is_used_up(self, source: &Source, direction: Direction, seen: Snapshot) -> io::Result<bool> {
        let is_readable_after_all = self == SocketType::TcpStream
            && direction == Direction::Read
            && seen.has_sticky_flags()
            && sys::is_readable_after_all(&source.descriptor());
        if !is_readable_after_all {
            source.clear(direction, seen);
        }
        Ok(!is_readable_after_all)
    }
}

pub(super) fn internet(address: SockAddr) -> io::Result<SocketAddr> {
    address.as_socket().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the socket has no internet address",
        )
    })
}

/// Makes a socket that is non-blocking and close-on-exec.
fn create(sort: SocketType, domain: Domain) -> io::Result<socket2::Socket> {
    let protocol = match sort {
        SocketType::TcpStream | SocketType::TcpListener => Some(Protocol::TCP),
        SocketType::UdpSocket => Some(Protocol::UDP),
        #[cfg(unix)]
        _ => None,
    };
    let socket = socket2::Socket::new(domain, sort.r#type(), protocol)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Gives a socket its address, and lets it listen if it is a listener.
fn start(socket: &socket2::Socket, sort: SocketType, address: &SockAddr) -> io::Result<()> {
    socket.bind(address)?;
    match sort.is_listener() {
        true => socket.listen(BACKLOG),
        false => Ok(()),
    }
}

/// Makes a socket that others made as [`create`] would, or refuses it.
fn prepare(socket: &SockRef<'_>, sort: SocketType) -> io::Result<()> {
    let fits = match socket.local_addr().map(|address| address.domain()) {
        Ok(domain) if sort.is_internet() => domain == Domain::IPV4 || domain == Domain::IPV6,
        Ok(domain) => domain == Domain::UNIX,
        Err(error) if sys::is_unbound(&error) => true,
        Err(error) => return Err(error),
    };
    if !fits || socket.r#type()? != sort.r#type() {
        return Err(invalid(format!("the socket is not {}", sort.name())));
    }
    socket.set_nonblocking(true)?;
    sys::prepare(socket)
}

/// The sender of nothing.
fn nobody(sort: SocketType) -> io::Result<SockAddr> {
    match sort.is_internet() {
        true => Ok(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into()),
        false => SockAddr::unix(""),
    }
}

/// A buffer as socket2 takes it.
fn to_fill(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: `MaybeUninit<u8>` has the layout of `u8`, and the methods that this is for promise to
    // write nothing that is not initialised.
    unsafe { &mut *(std::ptr::from_mut(bytes) as *mut [MaybeUninit<u8>]) }
}

fn invalid(words: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, words)
}

fn is_would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use socket2::Socket as Raw;

    fn local() -> SockAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()
    }

    fn make(protocol: Protocol) -> io::Result<Raw> {
        Raw::new(Domain::IPV4, Type::STREAM, Some(protocol))
    }

    /// A listener, whom it connects to, and what it accepts: are they trusted?
    fn trusted(protocol: Protocol) -> [bool; 3] {
        let made = || make(protocol).unwrap();
        let listener = Socket::bind_with(made(), SocketType::TcpListener, &local()).unwrap();
        let address = listener.local_addr().unwrap();
        crate::block_on(async {
            let connect = Socket::connect_with(made(), SocketType::TcpStream, &address);
            let client = connect.await.unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            [listener.plain, client.plain, accepted.plain]
        })
    }

    #[test]
    fn short_reads_are_trusted_of_plain_tcp_only() {
        assert_eq!(trusted(Protocol::TCP), [true; 3]);
        if let Err(error) = make(Protocol::MPTCP) {
            println!("this kernel has no MPTCP to try: {error}");
            return;
        }
        assert_eq!(trusted(Protocol::MPTCP), [false; 3]);
        let made = make(Protocol::MPTCP).unwrap();
        let adopted = Socket::adopt(made.into(), SocketType::TcpStream).unwrap();
        assert!(!adopted.plain, "MPTCP was adopted as plain TCP");
    }
}
