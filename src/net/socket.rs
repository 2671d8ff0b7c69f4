//! [`Socket`]: the seam between the public socket types and the kernel.
//!
//! Every socket in `net` binds, connects, accepts, reads, writes and sets options through this
//! file. The code above it reaches the kernel's socket only through `AsFd` (`AsSocket`), and the
//! only other code that makes such system calls is `resolver.rs`, and dumps, for addresses. In a
//! simulated world (feature `sim`) a second arm of each operation asks `world` instead.
//!
//! Every operation goes through the loop of `io/operation.rs`. This file decides how far a socket's
//! events are trusted ([`Trust`]), and when a short read shows that a socket is drained.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
#[cfg(feature = "sim")]
use std::task::Waker;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockRef, Type};

use crate::io::operation::{self, Operation};
use crate::poller::Interest;
use crate::reactor::{Direction, Io, Snapshot, SourceKind, Trust};
use crate::sys::{self, BorrowedDescriptor, OwnedDescriptor, TcpOption};
use crate::time::{Timer, timeout};
#[cfg(feature = "sim")]
use crate::world::{self, SimSocket, SimSocketId, address::Address};

/// The length of a listener's queue. The system caps it at its limit (Linux: 4,096 since 5.4). When
/// the queue is full, clients retry after a second.
pub(super) const BACKLOG: i32 = 4_096;

/// The first and the longest pause between attempts for which there is no event: a Unix connect to
/// a listener with a full queue, a Unix datagram to a receiver with a full queue.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(32));

/// The public type that a socket belongs to.
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
    /// Returns how it is waited for. `plain`: whether its short reads can be trusted.
    fn kind(self, plain: bool) -> SourceKind {
        match self {
            SocketType::TcpStream if plain => SourceKind::TcpStream,
            #[cfg(unix)]
            SocketType::UnixStream => SourceKind::UnixStream,
            _ => SourceKind::Other,
        }
    }

    /// Returns how far its events are trusted.
    fn trust(self) -> Trust {
        match self {
            SocketType::TcpStream => Trust::EventsOfTcp,
            _ => Trust::Events,
        }
    }

    /// Returns the type that a listener accepts, or the type itself for others.
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

    /// Whether descriptors can come with its bytes, or with the bytes of the sockets that it
    /// accepts.
    fn takes_descriptors(self) -> bool {
        !self.is_internet() && self.r#type() == Type::STREAM
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

/// An option and its new value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Opt {
    Broadcast(bool),
    Keepalive(bool),
    Linger(Option<Duration>),
    MulticastLoopV4(bool),
    MulticastLoopV6(bool),
    MulticastTtlV4(u32),
    Nodelay(bool),
    Tcp(TcpOption, u32),
    Ttl(u32),
}

/// A multicast group, and the interface on which it is joined, by address or by index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Group {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, u32),
}

/// The simulated arm of an operation: `in_world!(socket, |it| answer)` returns the answer if the
/// socket is a simulated one, and expands to nothing without the feature `sim`.
macro_rules! in_world {
    ($socket:expr, |$it:ident| $answer:expr) => {
        #[cfg(feature = "sim")]
        if $socket.is_simulated {
            let $it = $socket.simulated();
            return $answer;
        }
    };
}

/// Sealed: it appears in the public trait [`Stream`](super::macros::Stream), and cannot be named
/// outside the crate.
#[derive(Clone, Debug)]
pub struct Socket {
    io: Io,
    socket_type: SocketType,
    /// Whether a TCP socket, or the sockets that a listener accepts, are TCP and nothing else. If
    /// not, its short reads prove nothing. This is determined when a foreign socket is adopted: a
    /// layer above TCP (kTLS) was added before that.
    ///
    /// For a Unix stream or listener: whether we have made the kernel refuse descriptors. While
    /// that has not been changed, [`Source::is_bytes_only`], its short reads need no `recvmsg`.
    plain: bool,
    /// Whether it belongs to a simulated world.
    #[cfg(feature = "sim")]
    is_simulated: bool,
}

/// Operations in a simulated world.
#[cfg(feature = "sim")]
impl Socket {
    fn in_world(socket: SimSocket, socket_type: SocketType) -> io::Result<Socket> {
        Ok(Socket {
            io: Io::simulated(socket, socket_type.kind(true))?,
            socket_type,
            plain: true,
            is_simulated: true,
        })
    }

    #[cold]
    #[inline(never)]
    fn simulated(&self) -> SimSocketId {
        let simulated = self.io.source().simulated();
        simulated.expect("the flag says that it is simulated")
    }

    fn bind_in_world(socket_type: SocketType, address: &SockAddr) -> io::Result<Socket> {
        let backlog = BACKLOG as usize;
        let socket = match socket_type {
            SocketType::TcpListener => SimSocket::listen(internet(address.clone())?, backlog)?,
            SocketType::UdpSocket => SimSocket::udp(internet(address.clone())?)?,
            #[cfg(unix)]
            SocketType::UnixListener => SimSocket::unix_listen(&Address::of(address)?, backlog)?,
            #[cfg(unix)]
            SocketType::UnixDatagram => SimSocket::unix_datagram(Some(&Address::of(address)?))?,
            other => return Err(world::unsupported(other.name())),
        };
        Socket::in_world(socket, socket_type)
    }

    #[cfg(unix)]
    fn pair_in_world(socket_type: SocketType) -> io::Result<(Socket, Socket)> {
        let (a, b) = SimSocket::unix_pair(socket_type.is_stream())?;
        Ok((
            Socket::in_world(a, socket_type)?,
            Socket::in_world(b, socket_type)?,
        ))
    }

    async fn connect_in_world(socket_type: SocketType, address: &SockAddr) -> io::Result<Socket> {
        #[cfg(unix)]
        if socket_type == SocketType::UnixStream {
            let address = Address::of(address)?;
            let socket = while_full(socket_type, || SimSocket::unix_connect(&address)).await?;
            return Socket::in_world(socket, socket_type);
        }
        let socket = SimSocket::connect(internet(address.clone())?)?;
        let socket = Socket::in_world(socket, socket_type)?;
        let id = socket.simulated();
        socket
            .run(Direction::Write, |_| {
                if id.is_connected()? {
                    Ok(())
                } else {
                    Err(io::ErrorKind::WouldBlock.into())
                }
            })
            .await?;
        Ok(socket)
    }

    #[cold]
    #[inline(never)]
    fn set_in_world(&self, option: Opt) -> io::Result<()> {
        let it = self.simulated();
        // Without a wildcard: a new option is simulated, or refused here.
        match option {
            Opt::Broadcast(on) => it.options(|options| options.broadcast = on),
            Opt::Keepalive(on) => it.set_keepalive(on),
            Opt::Linger(linger) => it.options(|options| options.set_linger(linger)),
            Opt::Nodelay(nodelay) => it.options(|options| options.nodelay = nodelay),
            Opt::Tcp(option, value) => it.set_tcp_option(option, value),
            Opt::Ttl(ttl) => it.options(|options| options.set_ttl(ttl))?,
            Opt::MulticastLoopV4(_) | Opt::MulticastLoopV6(_) | Opt::MulticastTtlV4(_) => {
                Err(world::unsupported(&format!("the option {option:?}")))
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn read_in_world(&self, seen: Snapshot, bytes: &mut [u8]) -> io::Result<usize> {
        self.read_vectored_in_world(seen, &mut [IoSliceMut::new(bytes)])
    }

    #[cold]
    fn read_vectored_in_world(
        &self,
        seen: Snapshot,
        buffers: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        let (read, is_drained) = self.simulated().read(buffers)?;
        if is_drained && read > 0 {
            self.io.source().clear_after_short_read(seen);
        }
        Ok(read)
    }

    #[cold]
    fn receive_in_world(
        &self,
        seen: Snapshot,
        bytes: &mut [u8],
        keeps: bool,
    ) -> io::Result<(usize, SockAddr)> {
        let received = self.simulated().receive(bytes, keeps);
        let received = received.and_then(|(length, from)| Ok((length, from.to_system()?)));
        self.or_ended(received, seen, || Ok((0, no_peer(self.socket_type)?)))
    }

    #[cold]
    #[inline(never)]
    fn write_in_world(&self, bytes: &[u8]) -> io::Result<usize> {
        self.simulated().write(&[IoSlice::new(bytes)])
    }
}

/// Fails in a simulated world, which has no descriptors of the system.
fn not_in_world(what: &str) -> io::Result<()> {
    #[cfg(feature = "sim")]
    if world::is_here() {
        return Err(world::unsupported(what));
    }
    let _ = what;
    Ok(())
}

impl Socket {
    /// Wraps a socket that [`create`] made, or one like it.
    fn new(descriptor: OwnedDescriptor, socket_type: SocketType) -> Socket {
        let plain = refuses_descriptors(&descriptor, socket_type);
        Socket::of(descriptor, socket_type, plain)
    }

    /// Wraps a foreign socket, which is non-blocking already.
    fn foreign(descriptor: OwnedDescriptor, socket_type: SocketType) -> Socket {
        let plain = match socket_type {
            SocketType::TcpStream | SocketType::TcpListener => sys::is_plain_tcp(&descriptor),
            // Descriptors may be in the queue already.
            _ => !socket_type.takes_descriptors(),
        };
        Socket::of(descriptor, socket_type, plain)
    }

    fn of(descriptor: OwnedDescriptor, socket_type: SocketType, plain: bool) -> Socket {
        let io = Io::new(descriptor, socket_type.kind(plain), socket_type.trust());
        if socket_type.takes_descriptors() {
            io.source().set_bytes_only(plain);
        }
        Socket {
            io,
            socket_type,
            plain,
            #[cfg(feature = "sim")]
            is_simulated: false,
        }
    }

    /// Adopts a foreign socket. A socket of another type is refused, since the type decides how it
    /// is waited for.
    pub(super) fn adopt(
        descriptor: OwnedDescriptor,
        socket_type: SocketType,
    ) -> io::Result<Socket> {
        not_in_world("adopting a descriptor")?;
        let socket = SockRef::from(&descriptor);
        prepare(&socket, socket_type)?;
        // Some systems cannot report this for a datagram socket.
        if socket_type.r#type() == Type::STREAM
            && sys::is_listening(&descriptor)
                .is_some_and(|listens| listens != socket_type.is_listener())
        {
            return Err(invalid(format!("the socket is not {}", socket_type.name())));
        }
        Ok(Socket::foreign(descriptor, socket_type))
    }

    /// Binds to one address; a listener also listens.
    pub(super) fn bind(socket_type: SocketType, address: &SockAddr) -> io::Result<Socket> {
        #[cfg(feature = "sim")]
        if world::is_here() {
            return Socket::bind_in_world(socket_type, address);
        }
        let socket = create(socket_type, address.domain())?;
        if sys::REUSES_ADDRESS && socket_type == SocketType::TcpListener {
            socket.set_reuse_address(true)?;
        }
        bind_and_listen(&socket, socket_type, address)?;
        Ok(Socket::new(socket.into(), socket_type))
    }

    /// Binds several listeners to one address, among which the kernel distributes connections; on
    /// systems where it does not, they are clones of one.
    pub(super) fn bind_balanced(
        socket_type: SocketType,
        address: &SockAddr,
        count: usize,
    ) -> io::Result<Vec<Socket>> {
        #[cfg(feature = "sim")]
        if world::is_here() {
            let only = Socket::bind(socket_type, address)?;
            return Ok(vec![only; count]);
        }
        let mut sockets: Vec<Socket> = Vec::new();
        while sockets.len() < count {
            let socket = create(socket_type, address.domain())?;
            if sys::REUSES_ADDRESS {
                socket.set_reuse_address(true)?;
            }
            if !sys::set_balanced(&socket)? {
                let only = Socket::bind(socket_type, address)?;
                return Ok(vec![only; count]);
            }
            // The first address may ask for a free port.
            let first = sockets.first().map(Socket::local_addr).transpose()?;
            bind_and_listen(&socket, socket_type, first.as_ref().unwrap_or(address))?;
            sockets.push(Socket::new(socket.into(), socket_type));
        }
        Ok(sockets)
    }

    /// [`bind`](Self::bind) for a foreign socket, with options that were set before.
    pub(super) fn bind_with(
        socket: OwnedDescriptor,
        socket_type: SocketType,
        address: &SockAddr,
    ) -> io::Result<Socket> {
        not_in_world("binding a descriptor")?;
        let socket = socket2::Socket::from(socket);
        prepare(&SockRef::from(&socket), socket_type)?;
        bind_and_listen(&socket, socket_type, address)?;
        Ok(Socket::foreign(socket.into(), socket_type))
    }

    /// Creates a Unix socket without an address.
    #[cfg(unix)]
    pub(super) fn unbound(socket_type: SocketType) -> io::Result<Socket> {
        #[cfg(feature = "sim")]
        if world::is_here() {
            return Socket::in_world(SimSocket::unix_datagram(None)?, socket_type);
        }
        Ok(Socket::new(
            create(socket_type, Domain::UNIX)?.into(),
            socket_type,
        ))
    }

    /// Creates two connected Unix sockets.
    #[cfg(unix)]
    pub(super) fn pair(socket_type: SocketType) -> io::Result<(Socket, Socket)> {
        #[cfg(feature = "sim")]
        if world::is_here() {
            return Socket::pair_in_world(socket_type);
        }
        let (a, b) = socket2::Socket::pair(Domain::UNIX, socket_type.r#type(), None)?;
        for socket in [&a, &b] {
            socket.set_nonblocking(true)?;
            refuse_descriptors(socket, socket_type);
        }
        Ok((
            Socket::new(a.into(), socket_type),
            Socket::new(b.into(), socket_type),
        ))
    }

    /// Returns the descriptor, which stays non-blocking, or a duplicate of it if clones share it.
    /// It accepts descriptors from peers again.
    pub(super) fn into_descriptor(self) -> io::Result<OwnedDescriptor> {
        if self.plain && self.socket_type.takes_descriptors() && !self.is_simulated() {
            self.set_passrights(true)?;
        }
        self.io.into_descriptor()
    }

    #[inline]
    fn descriptor(&self) -> BorrowedDescriptor<'_> {
        self.io.source().descriptor()
    }

    /// Lends the descriptor to code outside polder, which may set options that are unknown here:
    /// with `SO_PASSCRED` a read ends between two writers. So from now on a Unix socket is read by
    /// `sys::receive_alone`, which detects that.
    #[inline]
    pub(super) fn lend_descriptor(&self) -> BorrowedDescriptor<'_> {
        #[cfg(feature = "sim")]
        if self.is_simulated {
            world::note_lent();
        }
        if self.socket_type.takes_descriptors() {
            self.io.source().set_bytes_only(false);
        }
        self.descriptor()
    }

    /// Whether a Unix socket accepts descriptors that its peer sends.
    #[cfg(unix)]
    pub(super) fn passrights(&self) -> io::Result<bool> {
        in_world!(self, |_it| Ok(false));
        sys::passrights(self)
    }

    pub(super) fn set_passrights(&self, passrights: bool) -> io::Result<()> {
        in_world!(self, |_it| {
            if passrights {
                Err(world::unsupported("passing descriptors"))
            } else {
                Ok(())
            }
        });
        // Before the kernel lets any in. Refusing them again does not undo this: some may be in the
        // queue.
        self.io.source().set_bytes_only(false);
        sys::set_passrights(self, passrights)
    }

    pub(super) fn set(&self, option: Opt) -> io::Result<()> {
        #[cfg(feature = "sim")]
        if self.is_simulated {
            return self.set_in_world(option);
        }
        let socket = self.kernel();
        match option {
            Opt::Broadcast(on) => socket.set_broadcast(on),
            Opt::Keepalive(on) => socket.set_keepalive(on),
            Opt::Linger(duration) => socket.set_linger(duration),
            Opt::MulticastLoopV4(on) => socket.set_multicast_loop_v4(on),
            Opt::MulticastLoopV6(on) => socket.set_multicast_loop_v6(on),
            Opt::MulticastTtlV4(hops) => socket.set_multicast_ttl_v4(hops),
            Opt::Nodelay(on) => socket.set_tcp_nodelay(on),
            Opt::Tcp(option, value) => sys::set_tcp_option(self, option, value),
            Opt::Ttl(hops) => socket.set_ttl_v4(hops),
        }
    }

    pub(super) fn broadcast(&self) -> io::Result<bool> {
        in_world!(self, |it| it.options(|options| options.broadcast));
        self.kernel().broadcast()
    }

    pub(super) fn keepalive(&self) -> io::Result<bool> {
        in_world!(self, |it| it.options(|options| options.keepalive));
        self.kernel().keepalive()
    }

    pub(super) fn linger(&self) -> io::Result<Option<Duration>> {
        in_world!(self, |it| it.options(|options| options.linger));
        self.kernel().linger()
    }

    pub(super) fn multicast_loop_v4(&self) -> io::Result<bool> {
        in_world!(self, |_it| Err(world::unsupported("multicast")));
        self.kernel().multicast_loop_v4()
    }

    pub(super) fn multicast_loop_v6(&self) -> io::Result<bool> {
        in_world!(self, |_it| Err(world::unsupported("multicast")));
        self.kernel().multicast_loop_v6()
    }

    pub(super) fn multicast_ttl_v4(&self) -> io::Result<u32> {
        in_world!(self, |_it| Err(world::unsupported("multicast")));
        self.kernel().multicast_ttl_v4()
    }

    pub(super) fn nodelay(&self) -> io::Result<bool> {
        in_world!(self, |it| it.options(|options| options.nodelay));
        self.kernel().tcp_nodelay()
    }

    /// Returns the value of an option, or `None` if the system does not have it.
    pub(super) fn tcp_option(&self, option: TcpOption) -> io::Result<Option<u32>> {
        in_world!(self, |it| it.options(|options| Some(*options.tcp(option))));
        sys::tcp_option(self, option)
    }

    /// Returns the greatest value that an option may be set to.
    pub(super) fn max_of(&self, option: TcpOption) -> u32 {
        in_world!(self, |_it| option.max_of_linux());
        sys::max_of(option)
    }

    pub(super) fn ttl(&self) -> io::Result<u32> {
        in_world!(self, |it| it.options(|options| options.ttl));
        self.kernel().ttl_v4()
    }

    pub(super) fn join(&self, group: Group) -> io::Result<()> {
        in_world!(self, |_it| Err(world::unsupported("multicast")));
        match group {
            Group::V4(group, interface) => self.kernel().join_multicast_v4(&group, &interface),
            Group::V6(group, interface) => self.kernel().join_multicast_v6(&group, interface),
        }
    }

    pub(super) fn leave(&self, group: Group) -> io::Result<()> {
        in_world!(self, |_it| Err(world::unsupported("multicast")));
        match group {
            Group::V4(group, interface) => self.kernel().leave_multicast_v4(&group, &interface),
            Group::V6(group, interface) => self.kernel().leave_multicast_v6(&group, interface),
        }
    }

    /// Returns the user and group of a Unix socket's peer, and its process if the system reports
    /// it.
    #[cfg(unix)]
    pub(super) fn peer_cred(&self) -> io::Result<(u32, u32, Option<i32>)> {
        // Both ends are this process.
        in_world!(self, |_it| {
            let (one, _other) = socket2::Socket::pair(Domain::UNIX, Type::STREAM, None)?;
            sys::peer_cred(&one)
        });
        sys::peer_cred(self)
    }

    /// Whether it belongs to a simulated world.
    #[inline]
    fn is_simulated(&self) -> bool {
        #[cfg(feature = "sim")]
        return self.is_simulated;
        #[cfg(not(feature = "sim"))]
        false
    }

    /// The kernel's socket; must not leave this file.
    #[inline]
    fn kernel(&self) -> SockRef<'_> {
        SockRef::from(self)
    }

    pub(super) fn local_addr(&self) -> io::Result<SockAddr> {
        in_world!(self, |it| it.local_addr()?.to_system());
        self.kernel().local_addr()
    }

    pub(super) fn peer_addr(&self) -> io::Result<SockAddr> {
        in_world!(self, |it| it.peer_addr()?.to_system());
        self.kernel().peer_addr()
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.shutdown_now(how)?;
        // Some kernels do not report it to waiters: completion ports under wine, for one.
        self.io.source().wake(how != Shutdown::Write);
        Ok(())
    }

    fn shutdown_now(&self, how: Shutdown) -> io::Result<()> {
        in_world!(self, |it| it.shutdown(how));
        self.kernel().shutdown(how)
    }

    pub(super) fn shares_with(&self, other: &Socket) -> bool {
        Arc::ptr_eq(self.io.source(), other.io.source())
    }

    /// Connects a stream to one address.
    pub(super) async fn connect(socket_type: SocketType, address: &SockAddr) -> io::Result<Socket> {
        #[cfg(feature = "sim")]
        if world::is_here() {
            return Socket::connect_in_world(socket_type, address).await;
        }
        let socket = create(socket_type, address.domain())?;
        Socket::connect_created(socket, socket_type, address, Socket::new).await
    }

    /// [`connect`](Self::connect) for a foreign socket, with options that were set before.
    pub(super) async fn connect_with(
        socket: OwnedDescriptor,
        socket_type: SocketType,
        address: &SockAddr,
    ) -> io::Result<Socket> {
        not_in_world("connecting a descriptor")?;
        let socket = socket2::Socket::from(socket);
        prepare(&SockRef::from(&socket), socket_type)?;
        Socket::connect_created(socket, socket_type, address, Socket::foreign).await
    }

    async fn connect_created(
        socket: socket2::Socket,
        socket_type: SocketType,
        address: &SockAddr,
        take: fn(OwnedDescriptor, SocketType) -> Socket,
    ) -> io::Result<Socket> {
        let result = while_full(socket_type, || socket.connect(address)).await;
        let socket = take(socket.into(), socket_type);
        match result {
            Ok(()) => return Ok(socket),
            Err(error) if !sys::is_in_progress(&error) => return Err(error),
            Err(_) => {}
        }
        // A socket that is not connected yet may be reported writable, and may have no pending
        // error. So we ask for the peer's address last: it exists only once the socket is
        // connected.
        socket
            .run(Direction::Write, |_| {
                let kernel = socket.kernel();
                if let Some(error) = kernel.take_error()? {
                    return Err(error);
                }
                match kernel.peer_addr() {
                    Err(error) if sys::has_been_reset(&socket.descriptor(), &error) => {
                        Err(io::ErrorKind::ConnectionReset.into())
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                        Err(io::ErrorKind::WouldBlock.into())
                    }
                    other => other.map(drop),
                }
            })
            .await?;
        Ok(socket)
    }

    /// Sets the peer of a datagram socket.
    pub(super) fn connect_to(&self, address: &SockAddr) -> io::Result<()> {
        in_world!(self, |it| it.set_peer(&Address::of(address)?));
        self.kernel().connect(address)
    }

    /// After `shutdown` Linux reports a datagram socket as readable forever, and each receive would
    /// block. Such a receive has ended: it returns `nothing`.
    fn or_ended<T>(
        &self,
        received: io::Result<T>,
        seen: Snapshot,
        nothing: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        match received {
            Err(error)
                if is_would_block(&error)
                    && self.socket_type.r#type() == Type::DGRAM
                    && seen.has_sticky_flags()
                    && self.has_ended() =>
            {
                nothing()
            }
            other => other,
        }
    }

    fn has_ended(&self) -> bool {
        in_world!(self, |it| it.has_ended());
        sys::has_ended(self)
    }

    fn has_room(&self) -> bool {
        in_world!(self, |it| it.has_room());
        sys::has_room(self)
    }

    /// Sends one datagram to an address.
    ///
    /// A Unix datagram would block when the sender's buffer is full, or the receiver's queue. An
    /// event reports room in the buffer; for the queue there is no event unless the two are
    /// connected (`unix_dgram_poll` in Linux), so a timer repeats the attempt.
    pub(super) async fn send_to(&self, bytes: &[u8], address: &SockAddr) -> io::Result<usize> {
        if self.socket_type.is_internet() {
            return self
                .run(Direction::Write, |seen| {
                    self.send_to_now(seen, bytes, address)
                })
                .await;
        }
        let (mut pause, longest) = PAUSES;
        loop {
            let send = self.run(Direction::Write, |seen| {
                match self.send_to_now(seen, bytes, address) {
                    Err(error) if is_would_block(&error) && self.has_room() => Ok(None),
                    result => result.map(Some),
                }
            });
            match timeout(pause, send).await {
                Ok(sent) => match sent? {
                    Some(sent) => return Ok(sent),
                    None => {
                        Timer::after(pause).await;
                    }
                },
                // The event may be about another receiver, which this socket is connected to.
                Err(_) => match self.try_send_to(bytes, address) {
                    Err(error) if is_would_block(&error) => {}
                    result => return result,
                },
            }
            pause = (pause * 2).min(longest);
        }
    }

    /// Clears the readiness after a short read: one that filled less than it was offered, and was
    /// not the end, has most likely drained the socket.
    #[inline]
    fn note_short_read(&self, seen: Snapshot, read: usize, wanted: usize) {
        if 0 < read && read < wanted {
            self.io.source().clear_after_short_read(seen);
        }
    }

    /// Closing a writer ends writing: the peer sees the end of file. It is no error if the peer is
    /// gone already.
    pub(super) fn poll_close(&self) -> Poll<io::Result<()>> {
        match self.shutdown(Shutdown::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            result => Poll::Ready(result),
        }
    }

    /// Waits until one of the directions of `interest` is worth an attempt. Returns those that are.
    pub(super) async fn ready(&self, interest: Interest) -> io::Result<Interest> {
        let directions = directions(interest)?;
        let mut waits = directions.map(|part| Some((part?.0, self.run(part?.1, |_| Ok(())))));
        poll_fn(|cx| {
            let mut ready = Interest::NONE;
            for (interest, wait) in waits.iter_mut().flatten() {
                if let Poll::Ready(result) = Pin::new(wait).poll(cx) {
                    result?;
                    ready |= *interest;
                }
            }
            if ready.is_empty() {
                Poll::Pending
            } else {
                Poll::Ready(Ok(ready))
            }
        })
        .await
    }

    /// Makes one attempt at an operation of the user.
    pub(super) fn try_io<T>(
        &self,
        interest: Interest,
        operation: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let source = self.io.source();
        let directions = directions(interest)?;
        let seen = directions.map(|part| Some((part?.1, source.snapshot(part?.1))));
        let result = operation();
        if result.as_ref().err().is_some_and(is_would_block) {
            for (direction, seen) in seen.into_iter().flatten() {
                // If the kernel has more data, the next wait finds the direction ready.
                source.clear_if_used_up(direction, seen)?;
            }
        }
        result
    }

    /// Makes one attempt at an operation. If it would block, it clears the readiness that was seen
    /// before it, like an attempt of [`operation::poll`], so that the next wait waits for an event.
    ///
    /// The attempt does not depend on events: a socket that was never waited for is not registered
    /// yet, and receives none.
    fn attempt<T>(
        &self,
        direction: Direction,
        mut attempt: impl FnMut(Snapshot) -> io::Result<T>,
    ) -> io::Result<T> {
        let source = self.io.source();
        loop {
            let seen = source.snapshot(direction);
            match attempt(seen) {
                Err(error) if is_would_block(&error) => {
                    if source.clear_if_used_up(direction, seen)? {
                        return Err(error);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Runs an operation for the holder of this handle: see [`operation::poll`].
    #[inline]
    fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        attempt: impl FnMut(Snapshot) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        operation::poll(&self.io, cx, direction, attempt)
    }

    /// Returns an operation as a separate future. Any number of them may wait for one socket.
    fn run<T>(
        &self,
        direction: Direction,
        attempt: impl FnMut(Snapshot) -> io::Result<T>,
    ) -> impl Future<Output = io::Result<T>> + Unpin {
        Operation::new(&self.io, direction, attempt)
    }
}

/// The single attempts, one for each operation of the kernel. The readiness before the attempt
/// shows whether more than the result can be learnt from it.
impl Socket {
    /// Succeeds once events have reported that an attempt is worthwhile.
    #[inline]
    fn ready_now(&self, _: Snapshot) -> io::Result<()> {
        Ok(())
    }

    /// Whether it is a stream's read into an empty buffer, which does not wait.
    #[inline]
    fn is_read_of_nothing(&self, bytes: &[u8]) -> bool {
        bytes.is_empty() && self.socket_type.is_stream()
    }

    fn are_reads_of_nothing(&self, buffers: &[IoSliceMut<'_>]) -> bool {
        buffers.iter().all(|it| self.is_read_of_nothing(it))
    }

    /// Accepts a connection. Skips connections that their peers aborted in the queue.
    fn accept_now(&self, _: Snapshot) -> io::Result<(Socket, SockAddr)> {
        in_world!(self, |it| {
            let (socket, peer) = loop {
                match it.accept() {
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    other => break other?,
                }
            };
            let socket = Socket::in_world(socket, self.socket_type.accepted())?;
            Ok((socket, peer.to_system()?))
        });
        let (descriptor, peer) = loop {
            match sys::accept(self) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                other => break other?,
            }
        };
        let socket_type = self.socket_type.accepted();
        let plain = if socket_type.takes_descriptors() {
            // A connection inherits its listener's options when it is made. Another owner of the
            // listener may have changed them unnoticed, so each connection is checked.
            self.io.source().is_bytes_only() && refuses_descriptors(&descriptor, socket_type)
        } else {
            self.plain
        };
        Ok((Socket::of(descriptor, socket_type, plain), peer))
    }

    /// Reads bytes, and leaves them in the socket.
    fn peek_now(&self, seen: Snapshot, bytes: &mut [u8]) -> io::Result<usize> {
        in_world!(self, |it| {
            let peeked = it.peek(bytes);
            self.or_ended(peeked, seen, || Ok(0))
        });
        let peeked = self.kernel().peek(to_fill(bytes));
        self.or_ended(peeked, seen, || Ok(0))
    }

    /// [`peek_now`](Self::peek_now), with the sender's address.
    fn peek_from_now(&self, seen: Snapshot, bytes: &mut [u8]) -> io::Result<(usize, SockAddr)> {
        in_world!(self, |_it| self.receive_in_world(seen, bytes, true));
        let peeked = self.kernel().peek_from(to_fill(bytes));
        self.or_ended(peeked, seen, || Ok((0, no_peer(self.socket_type)?)))
    }

    /// Receives one datagram.
    fn recv_now(&self, seen: Snapshot, bytes: &mut [u8]) -> io::Result<usize> {
        in_world!(self, |_it| {
            let received = self.receive_in_world(seen, bytes, false);
            received.map(|(length, _)| length)
        });
        let received = self.kernel().recv(to_fill(bytes));
        self.or_ended(received, seen, || Ok(0))
    }

    /// [`recv_now`](Self::recv_now), with the sender's address.
    fn recv_from_now(&self, seen: Snapshot, bytes: &mut [u8]) -> io::Result<(usize, SockAddr)> {
        in_world!(self, |_it| self.receive_in_world(seen, bytes, false));
        let received = self.kernel().recv_from(to_fill(bytes));
        self.or_ended(received, seen, || Ok((0, no_peer(self.socket_type)?)))
    }

    /// Sends one datagram to the peer.
    fn send_now(&self, _: Snapshot, bytes: &[u8]) -> io::Result<usize> {
        in_world!(self, |it| it.send(bytes, None));
        self.kernel().send_with_flags(bytes, sys::SEND_FLAGS)
    }

    /// Sends one datagram to an address.
    fn send_to_now(&self, _: Snapshot, bytes: &[u8], address: &SockAddr) -> io::Result<usize> {
        in_world!(self, |it| it.send(bytes, Some(&Address::of(address)?)));
        (self.kernel()).send_to_with_flags(bytes, address, sys::SEND_FLAGS)
    }

    #[inline]
    fn read_now(&self, seen: Snapshot, bytes: &mut [u8]) -> io::Result<usize> {
        #[cfg(feature = "sim")]
        if self.is_simulated {
            return self.read_in_world(seen, bytes);
        }
        if !self.socket_type.is_internet() && !self.io.source().is_bytes_only() {
            return self.read_vectored_now(seen, &mut [IoSliceMut::new(bytes)]);
        }
        let wanted = bytes.len();
        let read = sys::receive(&self.descriptor(), bytes)?;
        // Checked again: a Unix stream may have begun to accept descriptors meanwhile.
        if self.socket_type.is_internet() || self.io.source().is_bytes_only() {
            self.note_short_read(seen, read, wanted);
        }
        Ok(read)
    }

    fn read_vectored_now(
        &self,
        seen: Snapshot,
        buffers: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        #[cfg(feature = "sim")]
        if self.is_simulated {
            return self.read_vectored_in_world(seen, buffers);
        }
        // The limit is applied before the sum: a read that was not offered all buffers is not
        // short.
        let most = buffers.len().min(sys::MAX_SLICES);
        let buffers = &mut buffers[..most];
        let wanted = buffers.iter().map(|buffer| buffer.len()).sum();
        let (read, alone) = if self.socket_type.is_internet() {
            (sys::receive_vectored(&self.descriptor(), buffers)?, true)
        } else {
            sys::receive_alone(&self.descriptor(), buffers)?
        };
        if alone {
            self.note_short_read(seen, read, wanted);
        }
        Ok(read)
    }

    #[inline]
    fn write_now(&self, _: Snapshot, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(feature = "sim")]
        if self.is_simulated {
            return self.write_in_world(bytes);
        }
        sys::send(&self.descriptor(), bytes)
    }

    fn write_vectored_now(&self, _: Snapshot, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        in_world!(self, |it| it.write(buffers));
        let buffers = &buffers[..buffers.len().min(sys::MAX_SLICES)];
        (self.kernel()).send_vectored_with_flags(buffers, sys::SEND_FLAGS)
    }
}

/// `forms!(name(arguments) -> type, direction [idle]: form name, …)`: the forms in which an
/// operation is needed. `run` is a separate future, `poll` is for the task that holds this handle,
/// `attempt` is made once. `idle` is a method that returns whether the arguments leave nothing to
/// do: then the result is zero, regardless of the readiness.
macro_rules! forms {
    ($($now:ident $arguments:tt -> $output:ty, $direction:ident $idle:tt:
        $($form:ident $name:ident),*;)*) => {
        impl Socket {
            $($(forms!(@$form $name, $now, $idle $direction, $output, $arguments);)*)*
        }
    };
    (@run $name:ident, $now:ident, $idle:tt $direction:ident, $output:ty,
        ($($it:ident: $type:ty),*)) => {
        pub(super) async fn $name(&self, $($it: $type),*) -> io::Result<$output> {
            forms!(@idle self, $idle, ($($it),*), Ok(0));
            self.run(Direction::$direction, |seen| self.$now(seen, $($it),*)).await
        }
    };
    (@poll $name:ident, $now:ident, $idle:tt $direction:ident, $output:ty,
        ($($it:ident: $type:ty),*)) => {
        #[inline]
        pub(super) fn $name(
            &self,
            cx: &mut Context<'_>,
            $($it: $type),*
        ) -> Poll<io::Result<$output>> {
            forms!(@idle self, $idle, ($($it),*), Poll::Ready(Ok(0)));
            // Checked before the loop, so that the loop is compiled separately for each kernel: the
            // system's kernel pays for nothing else.
            #[cfg(feature = "sim")]
            if self.is_simulated {
                #[cold]
                #[inline(never)]
                fn in_world(
                    it: &Socket,
                    waker: &Waker,
                    $($it: $type),*
                ) -> Poll<io::Result<$output>> {
                    let cx = &mut Context::from_waker(waker);
                    it.poll(cx, Direction::$direction, |seen| it.$now(seen, $($it),*))
                }
                // The waker, not the context, which then need not be in memory.
                return in_world(self, cx.waker(), $($it),*);
            }
            self.poll(cx, Direction::$direction, |seen| self.$now(seen, $($it),*))
        }
    };
    (@attempt $name:ident, $now:ident, $idle:tt $direction:ident, $output:ty,
        ($($it:ident: $type:ty),*)) => {
        pub(super) fn $name(&self, $($it: $type),*) -> io::Result<$output> {
            forms!(@idle self, $idle, ($($it),*), Ok(0));
            self.attempt(Direction::$direction, |seen| self.$now(seen, $($it),*))
        }
    };
    (@idle $self:ident, [], $arguments:tt, $nothing:expr) => {};
    (@idle $self:ident, [$idle:ident], ($($it:ident),*), $nothing:expr) => {
        if $self.$idle($($it),*) {
            return $nothing;
        }
    };
}

forms! {
    ready_now() -> (), Read []: run readable, poll poll_read_ready;
    ready_now() -> (), Write []: run writable, poll poll_write_ready;
    accept_now() -> (Socket, SockAddr), Read []: run accept, poll poll_accept;
    peek_now(bytes: &mut [u8]) -> usize, Read [is_read_of_nothing]:
        run peek, poll poll_peek, attempt try_peek;
    peek_from_now(bytes: &mut [u8]) -> (usize, SockAddr), Read []:
        run peek_from, poll poll_peek_from, attempt try_peek_from;
    recv_now(bytes: &mut [u8]) -> usize, Read []: run recv, poll poll_recv, attempt try_recv;
    recv_from_now(bytes: &mut [u8]) -> (usize, SockAddr), Read []:
        run recv_from, poll poll_recv_from, attempt try_recv_from;
    send_now(bytes: &[u8]) -> usize, Write []: run send, poll poll_send, attempt try_send;
    send_to_now(bytes: &[u8], address: &SockAddr) -> usize, Write []:
        poll poll_send_to, attempt try_send_to;
    read_now(bytes: &mut [u8]) -> usize, Read [is_read_of_nothing]:
        poll poll_read, attempt try_read;
    read_vectored_now(buffers: &mut [IoSliceMut<'_>]) -> usize, Read [are_reads_of_nothing]:
        poll poll_read_vectored, attempt try_read_vectored;
    write_now(bytes: &[u8]) -> usize, Write []: poll poll_write, attempt try_write;
    write_vectored_now(buffers: &[IoSlice<'_>]) -> usize, Write []:
        poll poll_write_vectored, attempt try_write_vectored;
}

/// Returns the directions of an interest, each with its part of the interest.
fn directions(interest: Interest) -> io::Result<[Option<(Interest, Direction)>; 2]> {
    let both = Interest::READABLE | Interest::WRITABLE;
    if interest.is_empty() || !both.contains(interest) {
        return Err(invalid(format!(
            "{interest:?} cannot be waited for: it must be READABLE, WRITABLE or both"
        )));
    }
    let part = |part, direction| interest.contains(part).then_some((part, direction));
    Ok([
        part(Interest::READABLE, Direction::Read),
        part(Interest::WRITABLE, Direction::Write),
    ])
}

sys::lend_descriptor!([] Socket, |it| it.descriptor());

pub(super) fn internet(address: SockAddr) -> io::Result<SocketAddr> {
    address.as_socket().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the socket's address is not an IP address",
        )
    })
}

/// Connects, and retries while the queue of a Unix listener is full: no event reports when there is
/// room.
async fn while_full<T>(
    socket_type: SocketType,
    mut connect: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let (mut pause, longest) = PAUSES;
    loop {
        match connect() {
            Err(error) if !socket_type.is_internet() && is_would_block(&error) => {
                Timer::after(pause).await;
                pause = (pause * 2).min(longest);
            }
            other => return other,
        }
    }
}

/// Creates a socket that is non-blocking and close-on-exec.
fn create(socket_type: SocketType, domain: Domain) -> io::Result<socket2::Socket> {
    let protocol = match socket_type {
        SocketType::TcpStream | SocketType::TcpListener => Some(Protocol::TCP),
        SocketType::UdpSocket => Some(Protocol::UDP),
        #[cfg(unix)]
        _ => None,
    };
    let socket = socket2::Socket::new(domain, socket_type.r#type(), protocol)?;
    socket.set_nonblocking(true)?;
    refuse_descriptors(&socket, socket_type);
    Ok(socket)
}

/// Makes the kernel refuse descriptors that a peer would send, if it can. Must be called before
/// there is a peer: descriptors in the queue stay there.
fn refuse_descriptors(socket: &socket2::Socket, socket_type: SocketType) {
    if socket_type.takes_descriptors() {
        // If it cannot, we look for them when reading.
        let _ = sys::set_passrights(socket, false);
    }
}

/// Whether the kernel refuses descriptors for this socket. (True for a socket that never accepts
/// any.)
fn refuses_descriptors(descriptor: &OwnedDescriptor, socket_type: SocketType) -> bool {
    !socket_type.takes_descriptors() || sys::passrights(descriptor).is_ok_and(|passes| !passes)
}

/// Binds a socket, and listens if it is a listener.
fn bind_and_listen(
    socket: &socket2::Socket,
    socket_type: SocketType,
    address: &SockAddr,
) -> io::Result<()> {
    socket.bind(address)?;
    if socket_type.is_listener() {
        socket.listen(BACKLOG)
    } else {
        Ok(())
    }
}

/// Sets a foreign socket up as [`create`] makes one; refuses a socket of another type.
fn prepare(socket: &SockRef<'_>, socket_type: SocketType) -> io::Result<()> {
    let fits = match socket.local_addr().map(|address| address.domain()) {
        Ok(domain) if socket_type.is_internet() => domain == Domain::IPV4 || domain == Domain::IPV6,
        Ok(domain) => domain == Domain::UNIX,
        Err(error) if sys::is_unbound(&error) => true,
        Err(error) => return Err(error),
    };
    if !fits || socket.r#type()? != socket_type.r#type() {
        return Err(invalid(format!("the socket is not {}", socket_type.name())));
    }
    socket.set_nonblocking(true)?;
    sys::prepare(socket)
}

/// Placeholder peer address after shutdown.
fn no_peer(socket_type: SocketType) -> io::Result<SockAddr> {
    if socket_type.is_internet() {
        Ok(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())
    } else {
        SockAddr::unix("")
    }
}

/// Converts a buffer to socket2's type.
fn to_fill(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: `MaybeUninit<u8>` has the layout of `u8`, and the methods of socket2 that take the
    // result promise to write initialised bytes only.
    unsafe { &mut *(std::ptr::from_mut(bytes) as *mut [MaybeUninit<u8>]) }
}

pub(super) fn invalid(words: String) -> io::Error {
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

    /// Whether the short reads of a listener's streams, a client and an accepted stream are
    /// trusted.
    fn trusted(protocol: Protocol) -> [bool; 3] {
        let made = || make(protocol).unwrap();
        let listener = Socket::bind_with(made().into(), SocketType::TcpListener, &local()).unwrap();
        let address = listener.local_addr().unwrap();
        crate::block_on(async {
            let connect = Socket::connect_with(made().into(), SocketType::TcpStream, &address);
            let client = connect.await.unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            [listener.plain, client.plain, accepted.plain]
        })
    }

    /// Otherwise clients that connect to an overloaded server would keep a processor busy.
    #[test]
    fn a_connect_to_a_full_queue_is_tried_less_and_less_often() {
        use crate::future::or;
        let (time, mut attempts) = (Duration::from_millis(300), 0);
        let full = || -> io::Result<()> {
            attempts += 1;
            Err(io::ErrorKind::WouldBlock.into())
        };
        crate::block_on(or(
            async {
                let result = while_full(SocketType::UnixStream, full).await;
                panic!("it was given up: {result:?}");
            },
            async {
                Timer::after(time).await;
            },
        ));
        // 1, 2, 4, 8, 16 and then 32 ms apart.
        assert!((2..20).contains(&attempts), "{attempts} attempts");
        // Other errors, and success, are returned.
        let refused = || -> io::Result<()> { Err(io::ErrorKind::ConnectionRefused.into()) };
        let result = crate::block_on(while_full(SocketType::UnixStream, refused));
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    /// And so their reads need no `recvmsg`.
    #[test]
    fn nothing_but_bytes_comes_through_unix_streams_of_our_own() {
        let (near, far) = Socket::pair(SocketType::UnixStream).unwrap();
        if near.passrights().unwrap() {
            println!("this kernel cannot refuse descriptors");
            return;
        }
        let is_plain = |socket: &Socket| socket.io.source().is_bytes_only();
        assert!(is_plain(&near) && is_plain(&far));
        let clone = near.clone();
        let _ = near.lend_descriptor();
        assert!(!is_plain(&near) && !is_plain(&clone), "one was lent");
        let adopted = Socket::adopt(far.into_descriptor().unwrap(), SocketType::UnixStream);
        let adopted = adopted.unwrap();
        assert!(adopted.passrights().unwrap() && !is_plain(&adopted));

        // Linux gives a name to a listener that asks for none.
        let unnamed = SockAddr::unix("").unwrap();
        let listener = Socket::bind(SocketType::UnixListener, &unnamed).unwrap();
        let address = listener.local_addr().unwrap();
        crate::block_on(async {
            for passrights in [false, true] {
                if passrights {
                    listener.set_passrights(true).unwrap();
                }
                let connect = Socket::connect(SocketType::UnixStream, &address);
                let client = connect.await.unwrap();
                let (accepted, _) = listener.accept().await.unwrap();
                assert!(is_plain(&client));
                assert_eq!(is_plain(&accepted), !passrights);
            }
        });
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
