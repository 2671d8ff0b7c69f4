//! Sockets of the system's kernel.
//!
//! **Short reads.** A read that did not fill its buffer has most likely drained the stream, which
//! saves the read that would find out: see `Source::clear_after_short_read`. That holds for TCP
//! without another layer above it, and for a Unix stream that carries only bytes. So we make the
//! kernel refuse descriptors (`SO_PASSRIGHTS`) at creation. Where it cannot, or an adopted socket
//! accepts them, `sys::receive_message` detects them.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::time::Duration;

use socket2::{Domain, MaybeUninitSlice, SockAddr, SockRef, Type};

use super::{
    Address, BACKLOG, Flag, Group, Number, Opt, PAUSES, Receive, Socket, SocketType, is_would_block,
};
use crate::kernel::Boxed;
use crate::kernel::sockets;
use crate::reactor::{Direction, Held, Io, Snapshot, SocketTraits};
use crate::scheduler::budget::MAX_TRANSFER;
use crate::sys::{
    self, BorrowedDescriptor, OwnedDescriptor, TcpOption, address_of, invalid, sock_addr,
};
use crate::time::Timer;

/// Wraps a socket that [`create`] made, or an equal one.
fn wrap(descriptor: OwnedDescriptor, socket_type: SocketType) -> Socket {
    let is_trusted = refuses_descriptors(&descriptor, socket_type);
    wrap_as(is_trusted, descriptor, socket_type)
}

/// Wraps a foreign socket, which is already non-blocking.
fn wrap_foreign(descriptor: OwnedDescriptor, socket_type: SocketType) -> Socket {
    let is_trusted = match socket_type {
        SocketType::TcpStream | SocketType::TcpListener => sys::is_plain_tcp(&descriptor),
        // Descriptors may be queued already.
        _ => !socket_type.takes_descriptors(),
    };
    wrap_as(is_trusted, descriptor, socket_type)
}

fn wrap_as(is_trusted: bool, descriptor: OwnedDescriptor, socket_type: SocketType) -> Socket {
    let traits = SocketTraits {
        socket_type,
        trusts_short_reads: is_trusted,
    };
    let io = Io::new(Held::Owned(descriptor), Some(traits));
    let has_bytes_only = socket_type.is_internet() || socket_type.takes_descriptors() && is_trusted;
    io.source().set_has_bytes_only(has_bytes_only);
    Socket { io }
}

/// Refuses a socket of another type, since the type decides how it is waited for.
pub(in crate::net) fn adopt(
    descriptor: OwnedDescriptor,
    socket_type: SocketType,
) -> io::Result<Socket> {
    let socket = prepare(descriptor, socket_type, "adopting a descriptor")?;
    // Some systems cannot report this for a datagram socket.
    if socket_type.r#type() == Type::STREAM
        && sys::is_listening(&socket).is_some_and(|listens| listens != socket_type.is_listener())
    {
        return Err(invalid(format!("the socket is not {}", socket_type.name())));
    }
    Ok(wrap_foreign(socket.into(), socket_type))
}

/// A listener also listens.
pub(in crate::net) fn bind(socket_type: SocketType, address: &Address) -> io::Result<Socket> {
    let address = &sock_addr(address)?;
    let socket = create(socket_type, address.domain())?;
    bind_and_listen(&socket, socket_type, address)?;
    Ok(wrap(socket.into(), socket_type))
}

/// Binds listeners among which the kernel distributes connections; where it does not, clones of
/// one.
pub(in crate::net) fn bind_balanced(
    socket_type: SocketType,
    address: &Address,
    count: usize,
) -> io::Result<Vec<Socket>> {
    let (mut sockets, mut bound) = (Vec::new(), sock_addr(address)?);
    for _ in 0..count {
        let socket = create(socket_type, bound.domain())?;
        if !sys::set_balanced(&socket)? {
            return Ok(vec![bind(socket_type, address)?; count]);
        }
        bind_and_listen(&socket, socket_type, &bound)?;
        // If port 0 was requested, the others get the first one's port.
        bound = socket.local_addr()?;
        sockets.push(wrap(socket.into(), socket_type));
    }
    Ok(sockets)
}

/// [`bind`] for a foreign socket, with options set before.
pub(in crate::net) fn bind_with(
    socket: OwnedDescriptor,
    socket_type: SocketType,
    address: &Address,
) -> io::Result<Socket> {
    let socket = prepare(socket, socket_type, "binding a descriptor")?;
    bind_and_listen(&socket, socket_type, &sock_addr(address)?)?;
    Ok(wrap_foreign(socket.into(), socket_type))
}

#[cfg(unix)]
pub(in crate::net) fn unbound(socket_type: SocketType) -> io::Result<Socket> {
    let socket = create(socket_type, Domain::UNIX)?;
    Ok(wrap(socket.into(), socket_type))
}

#[cfg(unix)]
pub(in crate::net) fn pair(socket_type: SocketType) -> io::Result<(Socket, Socket)> {
    let (a, b) = socket2::Socket::pair(Domain::UNIX, socket_type.r#type(), None)?;
    for socket in [&a, &b] {
        socket.set_nonblocking(true)?;
        refuse_descriptors(socket, socket_type);
    }
    Ok((wrap(a.into(), socket_type), wrap(b.into(), socket_type)))
}

pub(in crate::net) async fn connect(
    socket_type: SocketType,
    address: &Address,
) -> io::Result<Socket> {
    let socket = create(socket_type, sock_addr(address)?.domain())?;
    connect_created(socket, socket_type, address, wrap).await
}

/// [`connect`] for a foreign socket, with options set before.
pub(in crate::net) async fn connect_with(
    socket: OwnedDescriptor,
    socket_type: SocketType,
    address: &Address,
) -> io::Result<Socket> {
    let socket = prepare(socket, socket_type, "connecting a descriptor")?;
    connect_created(socket, socket_type, address, wrap_foreign).await
}

async fn connect_created(
    socket: socket2::Socket,
    socket_type: SocketType,
    address: &Address,
    wrap: fn(OwnedDescriptor, SocketType) -> Socket,
) -> io::Result<Socket> {
    let result = while_full(socket_type, || socket.connect(&sock_addr(address)?)).await;
    let socket = wrap(socket.into(), socket_type);
    match result {
        Ok(()) => return Ok(socket),
        Err(error) if !sys::is_in_progress(&error) => return Err(error),
        Err(_) => {}
    }
    // An attempt before the first event would be useless: registering reports what has happened
    // already. A first read waits for an event too.
    let source = socket.io.source();
    for direction in [Direction::Read, Direction::Write] {
        source.clear(direction, source.snapshot(direction));
    }
    // A socket that is not connected yet may be reported writable, without a pending error. The
    // peer's address, asked last, exists only once the socket is connected.
    let is_connected = |seen: Snapshot| {
        // A wake without an event (its reactor has closed) is for both directions.
        let is_only_writable = !source.snapshot(Direction::Read).is_ready();
        let is_certain = is_only_writable && !seen.has_sticky_flags() && source.has_hints();
        if sys::IS_WRITABLE_ONCE_CONNECTED && is_certain {
            return Ok(());
        }
        socket.kernel_socket().finish_connect()
    };
    socket.writing(is_connected).await?;
    Ok(socket)
}

/// Makes one attempt to connect. That of TCP may end later.
#[cfg(all(feature = "kernel", unix))]
pub(super) fn begin_to_connect(socket_type: SocketType, address: &Address) -> io::Result<Socket> {
    let address = &sock_addr(address)?;
    let socket = create(socket_type, address.domain())?;
    match socket.connect(address) {
        Err(error) if !sys::is_in_progress(&error) => Err(error),
        _ => Ok(wrap(socket.into(), socket_type)),
    }
}

impl Receive {
    fn flags(self) -> i32 {
        match self {
            Receive::Take => sys::RECEIVE_FLAGS,
            Receive::Peek => sys::PEEK_FLAGS,
        }
    }
}

pub(super) fn recv(
    descriptor: &BorrowedDescriptor<'_>,
    bytes: &mut [u8],
    receive: Receive,
) -> io::Result<usize> {
    SockRef::from(descriptor).recv_with_flags(to_fill(bytes), receive.flags())
}

pub(super) fn recv_from(
    descriptor: &BorrowedDescriptor<'_>,
    bytes: &mut [u8],
    receive: Receive,
) -> io::Result<(usize, Address)> {
    let (length, from) =
        SockRef::from(descriptor).recv_from_with_flags(to_fill(bytes), receive.flags())?;
    Ok((length, address_of(&from)))
}

pub(super) fn accept(listener: &Io) -> io::Result<(Socket, Address)> {
    let (descriptor, peer) = sys::accept(listener)?;
    let of = listener.source().traits();
    let accepted = of.socket_type.accepted();
    let is_trusted = if accepted.takes_descriptors() {
        // A connection inherits its listener's options when it is made, and another owner of
        // the listener may have changed them, so each is checked.
        listener.source().has_bytes_only() && refuses_descriptors(&descriptor, accepted)
    } else {
        of.trusts_short_reads
    };
    let socket = wrap_as(is_trusted, descriptor, accepted);
    Ok((socket, address_of(&peer)))
}

fn write_vectored(socket: &Io, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut room = MAX_TRANSFER;
    let fits = |buffer: &&IoSlice<'_>| match room.checked_sub(buffer.len()) {
        Some(left) => {
            room = left;
            true
        }
        None => false,
    };
    let most = buffers
        .iter()
        .take(sys::MAX_SLICES)
        .take_while(fits)
        .count();
    let send = |buffers: &[IoSlice<'_>]| {
        SockRef::from(socket).send_vectored_with_flags(buffers, sys::SEND_FLAGS)
    };
    match buffers.get(most) {
        // With the beginning of the next one, so that a head and its body are one segment.
        Some(large) if room > 0 && most < sys::MAX_SLICES => {
            let mut all = buffers[..most].to_vec();
            all.push(IoSlice::new(&large[..room]));
            send(&all)
        }
        _ => send(&buffers[..most]),
    }
}

sys::lend_descriptor!([] Io, |io| sockets::Socket::descriptor(io));

/// The calls on a socket that the system has made.
impl sockets::Socket for Io {
    fn id(&self) -> u64 {
        self.source().number()
    }

    #[cfg(unix)]
    fn ready(&self) -> io::Result<u8> {
        use crate::kernel::{CLOSED, ERROR, READABLE, WRITABLE};
        use rustix::event::PollFlags;

        let found = sys::poll_now(self, PollFlags::IN | PollFlags::OUT)?;
        let flags = [
            (PollFlags::IN, READABLE),
            (PollFlags::OUT, WRITABLE),
            (PollFlags::HUP, CLOSED),
            (PollFlags::ERR, ERROR),
        ];
        let set = flags.iter().filter(|(flag, _)| found.intersects(*flag));
        Ok(set.fold(0, |all, (_, bit)| all | bit))
    }

    /// Only a kernel on Unix has the system's sockets.
    #[cfg(windows)]
    fn ready(&self) -> io::Result<u8> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn kind(&self) -> &'static str {
        self.source().traits().socket_type.kind()
    }

    /// Foreign code may set options that are unknown here: with `SO_PASSCRED` a read ends between
    /// two writers. So from now on a Unix socket is read by `sys::receive_message`, which detects
    /// that.
    fn lend(&self) -> BorrowedDescriptor<'_> {
        if self.source().traits().socket_type.takes_descriptors() {
            self.source().set_has_bytes_only(false);
        }
        self.descriptor()
    }

    fn descriptor(&self) -> BorrowedDescriptor<'_> {
        match self.source().descriptor_or_custom() {
            Ok(descriptor) => descriptor,
            Err(_) => unreachable!("the system has made it"),
        }
    }

    fn finish_connect(&self) -> io::Result<()> {
        let kernel = SockRef::from(self);
        if let Some(error) = kernel.take_error()? {
            return Err(error);
        }
        match kernel.peer_addr() {
            Err(error) if sys::has_been_reset(self, &error) => {
                Err(io::ErrorKind::ConnectionReset.into())
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            other => other.map(drop),
        }
    }

    fn local_addr(&self) -> io::Result<Address> {
        let address = SockRef::from(self).local_addr()?;
        Ok(address_of(&address))
    }

    fn peer_addr(&self) -> io::Result<Address> {
        let address = SockRef::from(self).peer_addr()?;
        Ok(address_of(&address))
    }

    #[cfg(unix)]
    fn peer_cred(&self) -> Option<io::Result<(u32, u32, Option<i32>)>> {
        Some(sys::peer_cred(self))
    }

    fn set_peer(&self, address: &Address) -> io::Result<()> {
        SockRef::from(self).connect(&sock_addr(address)?)
    }

    /// Once the peer has ended, XNU refuses to shut down reading: no error where it is asked for
    /// with writing. Both together then fail without an effect.
    fn shutdown(&self, how: Shutdown, left: Shutdown) -> io::Result<()> {
        let socket = SockRef::from(self);
        if how != Shutdown::Both || left == Shutdown::Write || !sys::REFUSES_SECOND_SHUTDOWN {
            return socket.shutdown(left);
        }
        if left == Shutdown::Both {
            socket.shutdown(Shutdown::Write)?;
        }
        match socket.shutdown(Shutdown::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result,
        }
    }

    fn accept(&self) -> io::Result<(Boxed<dyn sockets::Socket>, Address)> {
        #[cfg(feature = "kernel")]
        return accept(self).map(|(socket, peer)| (boxed(socket), peer));
        #[cfg(not(feature = "kernel"))]
        unreachable!("no kernel has the system's sockets");
    }

    fn read(&self, buffers: &mut [IoSliceMut<'_>], peeks: bool) -> io::Result<(usize, bool)> {
        if let ([bytes, ..], true) = (&mut *buffers, peeks) {
            return Ok((recv(&self.descriptor(), bytes, Receive::Peek)?, false));
        }
        // The limit comes before the sum: a read that was not offered all buffers is not short.
        let most = buffers.len().min(sys::MAX_SLICES);
        let buffers = &mut buffers[..most];
        let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let (read, alone) = sys::receive_message(self, buffers)?;
        let alone = alone || self.source().traits().socket_type.is_internet();
        Ok((read, alone && read < wanted))
    }

    fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match buffers {
            [bytes] => sys::send(self, &bytes[..bytes.len().min(MAX_TRANSFER)]),
            buffers => write_vectored(self, buffers),
        }
    }

    fn receive(&self, bytes: &mut [u8], peeks: bool) -> io::Result<(usize, Address, bool)> {
        let how = if peeks { Receive::Peek } else { Receive::Take };
        let slices = &mut [MaybeUninitSlice::new(to_fill(bytes))];
        let (length, flags, from) =
            SockRef::from(self).recv_from_vectored_with_flags(slices, how.flags())?;
        Ok((length, address_of(&from), flags.is_truncated()))
    }

    fn send(&self, bytes: &[u8], to: Option<&Address>) -> io::Result<usize> {
        let socket = SockRef::from(self);
        match to {
            Some(to) => socket.send_to_with_flags(bytes, &sock_addr(to)?, sys::SEND_FLAGS),
            None => socket.send_with_flags(bytes, sys::SEND_FLAGS),
        }
    }

    fn flag(&self, flag: Flag) -> io::Result<bool> {
        let socket = SockRef::from(self);
        match flag {
            Flag::Broadcast => socket.broadcast(),
            Flag::Keepalive => socket.keepalive(),
            Flag::MulticastLoopV4 => socket.multicast_loop_v4(),
            Flag::MulticastLoopV6 => socket.multicast_loop_v6(),
            Flag::Nodelay => socket.tcp_nodelay(),
            Flag::Passrights => sys::passrights(self),
        }
    }

    fn linger(&self) -> io::Result<Option<Duration>> {
        SockRef::from(self).linger()
    }

    fn number(&self, number: Number) -> io::Result<u32> {
        let socket = SockRef::from(self);
        match number {
            Number::MulticastTtlV4 => socket.multicast_ttl_v4(),
            Number::Ttl => socket.ttl_v4(),
        }
    }

    fn tcp_option(&self, option: TcpOption) -> io::Result<Option<u32>> {
        sys::tcp_option(self, option)
    }

    fn set(&self, option: Opt) -> io::Result<()> {
        let socket = SockRef::from(self);
        match option {
            Opt::Flag(Flag::Broadcast, on) => socket.set_broadcast(on),
            Opt::Flag(Flag::Keepalive, on) => sys::unless_ended(socket.set_keepalive(on)),
            Opt::Flag(Flag::MulticastLoopV4, on) => socket.set_multicast_loop_v4(on),
            Opt::Flag(Flag::MulticastLoopV6, on) => socket.set_multicast_loop_v6(on),
            Opt::Flag(Flag::Nodelay, on) => sys::unless_ended(socket.set_tcp_nodelay(on)),
            Opt::Flag(Flag::Passrights, on) => {
                // Before the kernel lets any in. Refusing them again does not undo this: some may
                // be queued.
                self.source().set_has_bytes_only(false);
                sys::set_passrights(self, on)
            }
            Opt::Join(Group::V4(group, interface)) => socket.join_multicast_v4(&group, &interface),
            Opt::Join(Group::V6(group, interface)) => socket.join_multicast_v6(&group, interface),
            Opt::Leave(Group::V4(group, interface)) => {
                socket.leave_multicast_v4(&group, &interface)
            }
            Opt::Leave(Group::V6(group, interface)) => socket.leave_multicast_v6(&group, interface),
            Opt::Linger(duration) => socket.set_linger(duration),
            // Some kernels store the lowest byte of larger values, and -1 is Linux's default.
            Opt::Number(Number::MulticastTtlV4 | Number::Ttl, ttl @ 256..) => {
                Err(sys::invalid(format!("TTL must be at most 255, got {ttl}")))
            }
            Opt::Number(Number::MulticastTtlV4, hops) => socket.set_multicast_ttl_v4(hops),
            Opt::Number(Number::Ttl, hops) => socket.set_ttl_v4(hops),
            Opt::Tcp(option, value) => sys::set_tcp_option(self, option, value),
        }
    }
}

/// The sockets of the system, for another [kernel](crate::kernel). Unstable, as that is.
///
/// ```
/// use polder::kernel::sockets::{Address, SocketType, Sockets};
/// use polder::net::SystemSockets;
///
/// let address = Address::Internet("127.0.0.1:0".parse().unwrap());
/// let listener = SystemSockets.bind(SocketType::TcpListener, Some(&address), 16)?;
/// let error = listener.accept().unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
/// # std::io::Result::Ok(())
/// ```
#[cfg(all(feature = "kernel", unix))]
#[derive(Clone, Copy, Debug)]
pub struct SystemSockets;

/// The length of a listener's queue is always polder's own.
#[cfg(all(feature = "kernel", unix))]
impl sockets::Sockets for SystemSockets {
    fn bind(
        &self,
        socket_type: SocketType,
        address: Option<&Address>,
        _: usize,
    ) -> io::Result<Box<dyn sockets::Socket>> {
        let made = address.map_or_else(|| unbound(socket_type), |to| bind(socket_type, to));
        made.map(boxed)
    }

    fn pair(&self, socket_type: SocketType) -> io::Result<[Box<dyn sockets::Socket>; 2]> {
        let (a, b) = pair(socket_type)?;
        Ok([boxed(a), boxed(b)])
    }

    fn connect(
        &self,
        socket_type: SocketType,
        address: &Address,
    ) -> io::Result<Box<dyn sockets::Socket>> {
        begin_to_connect(socket_type, address).map(boxed)
    }
}

/// A socket of the system for another kernel: no reactor waits for it.
#[cfg(feature = "kernel")]
fn boxed(socket: Socket) -> Box<dyn sockets::Socket> {
    Box::new(socket.io)
}

/// Retries while a Unix listener's queue is full: no event reports room.
pub(super) async fn while_full<T>(
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

/// Creates a non-blocking, close-on-exec socket.
fn create(socket_type: SocketType, domain: Domain) -> io::Result<socket2::Socket> {
    // The default protocol: TCP for a stream over IP, UDP for a datagram socket.
    let socket = sys::new_socket(domain, socket_type.r#type())?;
    if sys::REUSES_ADDRESS && socket_type == SocketType::TcpListener {
        socket.set_reuse_address(true)?;
    }
    refuse_descriptors(&socket, socket_type);
    Ok(socket)
}

/// Makes the kernel refuse a peer's descriptors, if it can, before there is a peer: queued ones
/// stay.
fn refuse_descriptors(socket: &socket2::Socket, socket_type: SocketType) {
    if socket_type.takes_descriptors() {
        // If it cannot, reads look for them.
        let _ = sys::set_passrights(socket, false);
    }
}

/// Whether the kernel refuses descriptors for this socket, or never passes any.
fn refuses_descriptors(descriptor: &OwnedDescriptor, socket_type: SocketType) -> bool {
    !socket_type.takes_descriptors() || sys::passrights(descriptor).is_ok_and(|passes| !passes)
}

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

/// Sets a foreign socket up as [`create`] does, and checks its type. `what` names the operation.
fn prepare(
    socket: OwnedDescriptor,
    socket_type: SocketType,
    what: &str,
) -> io::Result<socket2::Socket> {
    crate::kernel::permit(what)?;
    let socket = socket2::Socket::from(socket);
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
    sys::prepare(&socket)?;
    Ok(socket)
}

fn to_fill(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: `MaybeUninit<u8>` has the layout of `u8`, and the methods of socket2 that take the
    // result promise to write initialised bytes only.
    unsafe { &mut *(std::ptr::from_mut(bytes) as *mut [MaybeUninit<u8>]) }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::testing::limited::within;
    use socket2::{Protocol, Socket as Raw};
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::Duration;

    fn local() -> Address {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()
    }

    fn make(protocol: Protocol) -> io::Result<Raw> {
        Raw::new(Domain::IPV4, Type::STREAM, Some(protocol))
    }

    /// Whether a listener's, a client's and an accepted stream's short reads are trusted.
    fn trusted(protocol: Protocol) -> [bool; 3] {
        let made = || make(protocol).unwrap();
        let listener = bind_with(made().into(), SocketType::TcpListener, &local()).unwrap();
        let address = listener.kernel_socket().local_addr().unwrap();
        crate::block_on(async {
            let connect = connect_with(made().into(), SocketType::TcpStream, &address);
            let client = connect.await.unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            [
                listener.traits().trusts_short_reads,
                client.traits().trusts_short_reads,
                accepted.traits().trusts_short_reads,
            ]
        })
    }

    /// A connect to a full queue is tried at growing intervals, so an overloaded server's clients
    /// spare the processor.
    #[test]
    fn connect_to_full_queue_backs_off() {
        use crate::future::or;
        within("a connect to a full queue does not end", || {
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
            let refused = || -> io::Result<()> { Err(io::ErrorKind::ConnectionRefused.into()) };
            let result = crate::block_on(while_full(SocketType::UnixStream, refused));
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        });
    }

    /// The calls that only another kernel makes.
    #[test]
    fn a_kernel_can_wait_for_a_socket() {
        use crate::kernel::{READABLE, WRITABLE};
        use std::os::fd::AsRawFd;

        let (near, far) = pair(SocketType::UnixStream).unwrap();
        let kernels = near.kernel_socket();
        assert_eq!(kernels.id(), kernels.descriptor().as_raw_fd() as u64);
        assert_eq!(kernels.kind(), "unix");
        assert_eq!(kernels.ready().unwrap(), WRITABLE);
        far.try_write(b"hello").unwrap();
        assert_eq!(kernels.ready().unwrap(), READABLE | WRITABLE);
        kernels.finish_connect().unwrap();
        let unconnected = wrap(make(Protocol::TCP).unwrap().into(), SocketType::TcpStream);
        let error = unconnected.kernel_socket().finish_connect().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    /// A kernel that waits for the socket does not slow down its reads; foreign code does.
    #[test]
    fn only_lent_sockets_are_distrusted() {
        let (near, _far) = pair(SocketType::UnixStream).unwrap();
        let trusts = || near.io.source().has_bytes_only();
        let before = trusts();
        let _ = near.kernel_socket().descriptor();
        assert_eq!(trusts(), before);
        let _ = near.kernel_socket().lend();
        assert!(!trusts());
    }

    /// Our own Unix streams carry only bytes, so their reads need no `recvmsg`.
    #[test]
    fn unix_streams_of_ours_carry_bytes_only() {
        within("a connection is not accepted", || {
            let (near, far) = pair(SocketType::UnixStream).unwrap();
            if near.kernel_socket().flag(Flag::Passrights).unwrap() {
                println!("this kernel cannot refuse descriptors");
                return;
            }
            let has_bytes_only = |socket: &Socket| socket.io.source().has_bytes_only();
            assert!(has_bytes_only(&near) && has_bytes_only(&far));
            let clone = near.clone();
            let _ = near.lend_descriptor();
            assert!(
                !has_bytes_only(&near) && !has_bytes_only(&clone),
                "one was lent"
            );
            let adopted = adopt(far.into_descriptor().unwrap(), SocketType::UnixStream);
            let adopted = adopted.unwrap();
            assert!(
                adopted.kernel_socket().flag(Flag::Passrights).unwrap()
                    && !has_bytes_only(&adopted)
            );

            // Linux names a listener that asks for no name.
            let unnamed = Address::Unix(sockets::Name::Unnamed);
            let listener = bind(SocketType::UnixListener, &unnamed).unwrap();
            let address = listener.kernel_socket().local_addr().unwrap();
            crate::block_on(async {
                for passrights in [false, true] {
                    if passrights {
                        (listener
                            .kernel_socket()
                            .set(Opt::Flag(Flag::Passrights, true)))
                        .unwrap();
                    }
                    let connect = connect(SocketType::UnixStream, &address);
                    let client = connect.await.unwrap();
                    let (accepted, _) = listener.accept().await.unwrap();
                    assert!(has_bytes_only(&client));
                    assert_eq!(has_bytes_only(&accepted), !passrights);
                }
            });
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
        let adopted = adopt(made.into(), SocketType::TcpStream).unwrap();
        assert!(
            !adopted.traits().trusts_short_reads,
            "MPTCP was adopted as plain TCP"
        );
    }
}
