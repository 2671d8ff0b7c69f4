//! [`Socket`], the internal type of all sockets of `net`: passes each call to the system
//! (`system.rs`) or, with the feature `kernel`, to an installed kernel (`custom.rs`).
//!
//! The calls are the trait [`KernelSocket`]. A socket's source holds the system's descriptor or the
//! other kernel's socket; [`AnySocket`] is either. A kernel that passes calls on has the system's
//! sockets by `exported.rs`. In the rest of `net` only `unix/descriptors.rs`, `resolver.rs` and
//! `compat.rs` make system calls on sockets.
//! (The reactor asks whether a source is ready, and a dump asks for addresses.)
//!
//! A call that may wait is an [`Operation`]. This module clears the readiness after a read that has
//! most likely drained the socket.

#[cfg_attr(not(feature = "kernel"), allow(dead_code, unused_imports))]
pub(super) mod custom;
#[cfg(all(feature = "kernel", unix))]
mod exported;
pub(super) mod system;

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockAddr, Type};

/// The functions that make the sockets of this thread.
#[cfg(feature = "kernel")]
pub(super) use self::custom as kernel;
use self::custom::CustomSocket;
#[cfg(all(feature = "kernel", unix))]
pub use self::exported::SystemSockets;
#[cfg(not(feature = "kernel"))]
pub(super) use self::system as kernel;
use self::system::SystemSocket;
use crate::io::operation::{Attempt, Operation, charged};
pub(super) use crate::kernel::sockets::{Flag, Group, Number, Opt};
use crate::poller::Interest;
use crate::reactor::{Direction, Io, Snapshot, SocketTraits};
use crate::scheduler::budget;
use crate::sys::{
    self, BorrowedDescriptor, Datagram, OwnedDescriptor, Received, TcpOption, invalid,
};
pub(super) use crate::telemetry::SocketType;
use crate::time::{Timer, timeout};

/// The length of a listener's queue, capped by the system (Linux: 4,096 since 5.4). When it is
/// full, clients retry after a second.
pub(super) const BACKLOG: i32 = 4_096;

/// The first and the longest pause between attempts without an event: a Unix connect, or a Unix
/// datagram, to a full queue.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(32));

impl SocketType {
    /// The type that a listener accepts; for others, itself.
    fn accepted(self) -> SocketType {
        match self {
            SocketType::TcpListener => SocketType::TcpStream,
            SocketType::UnixListener => SocketType::UnixStream,
            other => other,
        }
    }

    fn is_listener(self) -> bool {
        self.accepted() != self
    }

    /// Whether descriptors can come with its bytes, or with those of sockets that it accepts.
    fn takes_descriptors(self) -> bool {
        !self.is_internet() && self.r#type() == Type::STREAM
    }

    fn r#type(self) -> Type {
        match self {
            SocketType::UdpSocket | SocketType::UnixDatagram => Type::DGRAM,
            _ => Type::STREAM,
        }
    }

    #[inline]
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
            SocketType::UnixStream => "a Unix stream",
            SocketType::UnixListener => "a Unix listener",
            SocketType::UnixDatagram => "a Unix datagram socket",
        }
    }
}

/// Whether a receive consumes what it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Receive {
    Take,
    Peek,
}

/// The calls on a kernel's socket. One that would block fails with `WouldBlock`.
pub(super) trait KernelSocket {
    fn local_addr(&self) -> io::Result<SockAddr>;
    fn peer_addr(&self) -> io::Result<SockAddr>;
    /// For datagram sockets.
    fn set_peer(&self, address: &SockAddr) -> io::Result<()>;
    /// Shuts down the directions `left` of `how`; the others were shut down before.
    fn shutdown(&self, how: Shutdown, left: Interest) -> io::Result<()>;
    /// Accepts a connection, a socket of the type `accepted`.
    fn accept(&self, accepted: SocketType) -> io::Result<(Socket, SockAddr)>;
    /// Reads from a stream. Returns the number of bytes, and whether the stream seems drained: the
    /// system's socket gave less than was asked for (also before an end or an error); another
    /// kernel's knows. `Source::clear_after_short_read` decides whether to believe it.
    fn read(&self, bytes: &mut [u8]) -> io::Result<(usize, bool)>;
    fn read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<(usize, bool)>;
    fn write(&self, bytes: &[u8]) -> io::Result<usize>;
    fn write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize>;
    /// Receives a datagram, or peeks at the bytes of a stream.
    fn recv(&self, bytes: &mut [u8], receive: Receive) -> io::Result<usize>;
    fn recv_from(&self, bytes: &mut [u8], receive: Receive) -> io::Result<(usize, SockAddr)>;
    /// Sends a datagram to `to`, or to the peer.
    fn send(&self, bytes: &[u8], to: Option<&SockAddr>) -> io::Result<usize>;
    /// Receives datagrams, at most one for each of `buffers` and `received`, which have the same
    /// length. Returns their number, which is not zero, and whether nothing is left.
    fn recv_many(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        received: &mut [Received],
    ) -> io::Result<(usize, bool)>;
    /// Sends datagrams, at most [`MAX_DATAGRAMS`](sys::MAX_DATAGRAMS). Returns the number sent,
    /// which is not zero.
    fn send_many(&self, datagrams: &[Datagram<'_>]) -> io::Result<usize>;
    /// Whether receiving was shut down, although a receive or an accept would block.
    fn has_ended(&self) -> bool;
    /// Whether the socket's own buffer has room, although a send would block.
    fn has_room(&self) -> bool;

    // Options are values. A new one is a variant in `kernel/sockets.rs`, with arms in `system.rs`
    // and in the simulator, neither of which compiles without: see docs/EXTENDING.md.
    fn flag(&self, flag: Flag) -> io::Result<bool>;
    fn linger(&self) -> io::Result<Option<Duration>>;
    fn number(&self, number: Number) -> io::Result<u32>;
    /// `None` if the system does not have the option.
    fn tcp_option(&self, option: TcpOption) -> io::Result<Option<u32>>;
    fn max_of(&self, option: TcpOption) -> u32;
    fn set(&self, option: Opt) -> io::Result<()>;
    /// A Unix socket's peer: user, group, and process if the system reports it.
    #[cfg(unix)]
    fn peer_cred(&self) -> io::Result<(u32, u32, Option<i32>)>;
}

fn shutdown_of(directions: Interest) -> Shutdown {
    match directions {
        Interest::READABLE => Shutdown::Read,
        Interest::WRITABLE => Shutdown::Write,
        _ => Shutdown::Both,
    }
}

/// The bound of the halves and of [`Incoming`](super::Incoming): a stream.
///
/// Sealed: appears in public types, and cannot be named outside the crate.
pub trait StreamSocket: Clone {
    #[doc(hidden)]
    fn from_socket(socket: Socket) -> Self;

    #[doc(hidden)]
    fn socket(&self) -> &Socket;
}

/// Public for [`StreamSocket`] only.
#[derive(Clone, Debug)]
pub struct Socket {
    io: Io,
}

/// The system's socket, or an installed kernel's. Without the feature `kernel` it is the system's,
/// without a branch.
#[derive(Clone, Copy)]
pub(super) enum AnySocket<'a> {
    System(SystemSocket<'a>),
    Custom(&'a CustomSocket),
}

impl<'a> Deref for AnySocket<'a> {
    type Target = dyn KernelSocket + 'a;

    #[inline]
    fn deref(&self) -> &(dyn KernelSocket + 'a) {
        match self {
            AnySocket::System(socket) => socket,
            AnySocket::Custom(socket) => *socket,
        }
    }
}

impl Socket {
    fn traits(&self) -> SocketTraits {
        self.io.source().traits()
    }

    fn socket_type(&self) -> SocketType {
        self.traits().socket_type
    }

    /// Returns the system's descriptor, to pass descriptors; `None` in another kernel.
    #[cfg(unix)]
    pub(super) fn system_descriptor(&self) -> Option<BorrowedDescriptor<'_>> {
        self.io.source().descriptor_or_custom().ok()
    }

    pub(super) fn is_read_closed(&self) -> bool {
        self.io.source().snapshot(Direction::Read).is_closed()
    }

    /// Returns the socket as its kernel has it, for calls that do not wait.
    #[inline]
    pub(super) fn kernel_socket(&self) -> AnySocket<'_> {
        match self.io.source().descriptor_or_custom() {
            Ok(descriptor) => AnySocket::System(SystemSocket {
                socket: self,
                descriptor,
            }),
            Err(socket) => AnySocket::Custom(socket),
        }
    }

    pub(super) fn set(&self, option: Opt) -> io::Result<()> {
        self.kernel_socket().set(option)
    }

    /// Foreign code may set options that are unknown here: with `SO_PASSCRED` a read ends between
    /// two writers. So from now on a Unix socket is read by `sys::receive_message`, which detects
    /// that.
    #[inline]
    pub(super) fn lend_descriptor(&self) -> BorrowedDescriptor<'_> {
        match self.io.source().descriptor_or_custom() {
            Ok(descriptor) => {
                if self.socket_type().takes_descriptors() {
                    self.io.source().set_has_bytes_only(false);
                }
                descriptor
            }
            Err(socket) => socket.lend(),
        }
    }

    /// Returns the descriptor, which stays non-blocking, or a duplicate if clones share it. It
    /// accepts descriptors from peers again.
    pub(super) fn into_descriptor(self) -> io::Result<OwnedDescriptor> {
        match self.kernel_socket() {
            AnySocket::System(socket) => {
                let of = self.traits();
                if of.trusts_short_reads && of.socket_type.takes_descriptors() {
                    socket.set(Opt::Flag(Flag::Passrights, true))?;
                }
            }
            AnySocket::Custom(_) => crate::kernel::permit("the socket's descriptor")?,
        }
        self.io.into_descriptor()
    }

    pub(super) fn shares_with(&self, other: &Socket) -> bool {
        Arc::ptr_eq(self.io.source(), other.io.source())
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let directions = match how {
            Shutdown::Read => Interest::READABLE,
            Shutdown::Write => Interest::WRITABLE,
            Shutdown::Both => Interest::READABLE | Interest::WRITABLE,
        };
        let source = self.io.source();
        source.shut_down(directions, |left| self.kernel_socket().shutdown(how, left))
    }

    /// Ends writing: the peer sees the end of file. A peer that is gone is no error: `ENOTCONN`; if
    /// it goes at this moment, the BSDs return `ECONNRESET`, and XNU `EINVAL` (`tcp_usr_shutdown`
    /// in netinet/tcp_usrreq.c).
    pub(super) fn poll_close(&self) -> Poll<io::Result<()>> {
        use io::ErrorKind::{ConnectionReset, InvalidInput, NotConnected};
        match self.shutdown(Shutdown::Write) {
            Err(error) if [NotConnected, ConnectionReset, InvalidInput].contains(&error.kind()) => {
                Poll::Ready(Ok(()))
            }
            result => Poll::Ready(result),
        }
    }
}

/// Readiness, and attempts by the user. Names and meaning are tokio's.
///
/// A direction counts as ready initially and after each event, until an attempt would block, so a
/// socket may be reported ready spuriously. `io/operation.rs` shows why no event is lost between a
/// wait and the next attempt. Each future is a separate waiter; polling functions use the handle's
/// one waiter for each direction.
impl Socket {
    pub(super) fn ready_in(&self, direction: Direction) -> Operation<'_, impl Attempt<()>> {
        Operation::new(&self.io, direction, |_| Ok(()))
    }

    pub(super) async fn ready(&self, interest: Interest) -> io::Result<Interest> {
        let wait = |(part, direction)| (part, self.ready_in(direction).into_future());
        let mut waits = directions(interest)?.map(|part| part.map(wait));
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

    pub(super) fn try_io<T>(
        &self,
        interest: Interest,
        operation: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let source = self.io.source();
        let snapshot = |(_, direction)| (direction, source.snapshot(direction));
        let seen = directions(interest)?.map(|part| part.map(snapshot));
        let result = operation();
        if result.as_ref().err().is_some_and(is_would_block) {
            for (direction, seen) in seen.into_iter().flatten() {
                // If the kernel has more data, the next wait finds the direction ready.
                let _ = source.clear_if_exhausted(direction, seen)?;
            }
        }
        result
    }
}

/// Nearly every wait is of `poll_read` or `poll_write`, which are inlined.
impl Socket {
    #[inline]
    pub(super) fn reading<T, F: Attempt<T>>(&self, attempt: F) -> Operation<'_, F> {
        Operation::new(&self.io, Direction::Read, attempt)
    }

    #[inline]
    pub(super) fn writing<T, F: Attempt<T>>(&self, attempt: F) -> Operation<'_, F> {
        Operation::new(&self.io, Direction::Write, attempt)
    }

    /// Skips connections that their peers aborted in the queue.
    pub(super) fn accept(&self) -> Operation<'_, impl Attempt<(Socket, SockAddr)>> {
        let accepted = self.socket_type().accepted();
        let accept = move || loop {
            match self.kernel_socket().accept(accepted) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                other => return other,
            }
        };
        // The blocking call fails with this error, and so does a listener of TCP.
        let end = || Err(sys::not_listening());
        self.reading(move |seen| self.or_end(seen, accept, end))
    }

    #[inline]
    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        // A read without room does not wait.
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let attempt = |seen| {
            // A direct call, which `deref` would not make.
            let read = match self.kernel_socket() {
                AnySocket::System(socket) => socket.read(bytes),
                AnySocket::Custom(socket) => socket.read(bytes),
            };
            Ok(self.after_read(seen, read?))
        };
        self.reading(attempt).poll(cx)
    }

    pub(super) fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let attempt = |seen| Ok(self.after_read(seen, self.kernel_socket().read(bytes)?));
        self.reading(attempt).attempt()
    }

    pub(super) fn poll_read_vectored(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        if is_read_of_nothing(buffers) {
            return Poll::Ready(Ok(0));
        }
        self.read_vectored(buffers).poll(cx)
    }

    pub(super) fn try_read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if is_read_of_nothing(buffers) {
            return Ok(0);
        }
        self.read_vectored(buffers).attempt()
    }

    fn read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> Operation<'_, impl Attempt<usize>> {
        self.reading(|seen| Ok(self.after_read(seen, self.kernel_socket().read_vectored(buffers)?)))
    }

    /// Charges for a read. Clears the readiness if it has drained the socket, and was not the end.
    #[inline]
    fn after_read(&self, seen: Snapshot, (read, is_drained): (usize, bool)) -> usize {
        if is_drained && read > 0 {
            self.io.source().clear_after_short_read(seen);
        }
        budget::charge(read);
        read
    }

    #[inline]
    pub(super) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let source = self.io.source();
        // This is checked before the loop, which is compiled once for each kernel. A small write
        // needs no charge.
        if source.descriptor_or_custom().is_err() || bytes.len() > budget::BYTES_PER_UNIT {
            let attempt = |_| charged(self.kernel_socket().write(bytes));
            return self.writing(attempt).poll_outlined(cx.waker());
        }
        self.writing(|_| sys::send(&source.descriptor()?, bytes))
            .poll(cx)
    }

    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.writing(|_| charged(self.kernel_socket().write(bytes)))
            .attempt()
    }

    pub(super) fn write_vectored(
        &self,
        buffers: &[IoSlice<'_>],
    ) -> Operation<'_, impl Attempt<usize>> {
        self.writing(|_| charged(self.kernel_socket().write_vectored(buffers)))
    }

    pub(super) async fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.recv(bytes, Receive::Peek).await
    }

    pub(super) fn poll_peek(
        &self,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.recv(bytes, Receive::Peek).poll(cx)
    }

    pub(super) fn recv(
        &self,
        bytes: &mut [u8],
        receive: Receive,
    ) -> Operation<'_, impl Attempt<usize>> {
        self.reading(move |seen| {
            let recv = || charged(self.kernel_socket().recv(bytes, receive));
            self.or_end(seen, recv, || Ok(0))
        })
    }

    pub(super) fn recv_from(
        &self,
        bytes: &mut [u8],
        receive: Receive,
    ) -> Operation<'_, impl Attempt<(usize, SockAddr)>> {
        self.reading(move |seen| {
            let recv_from = || {
                let (received, from) = self.kernel_socket().recv_from(bytes, receive)?;
                Ok((charged(Ok(received))?, from))
            };
            let end = || Ok((0, no_peer(self.socket_type())?));
            self.or_end(seen, recv_from, end)
        })
    }

    pub(super) fn recv_many(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        received: &mut [Received],
    ) -> Operation<'_, impl Attempt<usize>> {
        self.reading(move |seen| {
            let recv_many = || self.kernel_socket().recv_many(buffers, received).map(Some);
            let Some((count, is_drained)) = self.or_end(seen, recv_many, || Ok(None))? else {
                received[0] = Received::default();
                return Ok(1);
            };
            if is_drained {
                self.io.source().clear_after_drain(seen);
            }
            let lengths = received[..count].iter().map(|received| received.length);
            budget::charge_datagrams(count, lengths.sum());
            Ok(count)
        })
    }

    pub(super) fn send_many(
        &self,
        datagrams: &[Datagram<'_>],
    ) -> Operation<'_, impl Attempt<usize>> {
        self.writing(move |_| {
            let count = self.kernel_socket().send_many(datagrams)?;
            let lengths = datagrams[..count]
                .iter()
                .map(|datagram| datagram.bytes.len());
            budget::charge_datagrams(count, lengths.sum());
            Ok(count)
        })
    }

    /// Makes an attempt to receive or accept. Returns `end` if it would block forever.
    ///
    /// After a shutdown Linux reports a datagram socket and a Unix listener as readable, and a
    /// non-blocking call would block where the blocking one ends (`__skb_recv_datagram`). A second
    /// attempt takes what came before the shutdown.
    fn or_end<T>(
        &self,
        seen: Snapshot,
        mut attempt: impl FnMut() -> io::Result<T>,
        end: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        match attempt() {
            Err(error) if is_would_block(&error) && self.has_ended(seen) => match attempt() {
                Err(error) if is_would_block(&error) => end(),
                result => result,
            },
            result => result,
        }
    }

    fn has_ended(&self, seen: Snapshot) -> bool {
        let may_end = |socket_type: SocketType| {
            socket_type.r#type() == Type::DGRAM || socket_type == SocketType::UnixListener
        };
        seen.has_sticky_flags() && may_end(self.socket_type()) && self.kernel_socket().has_ended()
    }

    pub(super) fn send(
        &self,
        bytes: &[u8],
        to: Option<&SockAddr>,
    ) -> Operation<'_, impl Attempt<usize>> {
        self.writing(move |_| charged(self.kernel_socket().send(bytes, to)))
    }

    /// Attempts to send one Unix datagram to an address. `None`: the receiver's queue is full.
    ///
    /// It would block when the sender's buffer or the receiver's queue is full. An event reports
    /// room in the buffer, but in the queue only if the two are connected (`unix_dgram_poll` in
    /// Linux). So an attempt that fails only because of the queue leaves the socket ready to write:
    /// to other receivers it can.
    fn sending_to(
        &self,
        bytes: &[u8],
        address: &SockAddr,
    ) -> Operation<'_, impl Attempt<Option<usize>>> {
        self.writing(
            move |_| match self.kernel_socket().send(bytes, Some(address)) {
                Err(error) if is_would_block(&error) && self.kernel_socket().has_room() => Ok(None),
                result => charged(result).map(Some),
            },
        )
    }

    pub(super) fn try_send_to(&self, bytes: &[u8], address: &SockAddr) -> io::Result<usize> {
        let sent = self.sending_to(bytes, address).attempt()?;
        sent.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// A timer repeats attempts for which there is no event.
    pub(super) async fn send_to(&self, bytes: &[u8], address: &SockAddr) -> io::Result<usize> {
        if self.socket_type().is_internet() {
            return self.send(bytes, Some(address)).await;
        }
        let (mut pause, longest) = PAUSES;
        loop {
            let send = self.sending_to(bytes, address).into_future();
            match timeout(pause, send).await {
                Ok(sent) => match sent? {
                    Some(sent) => return Ok(sent),
                    None => {
                        Timer::after(pause).await;
                    }
                },
                // The event may concern another receiver, which this socket is connected to.
                Err(_) => match self.try_send_to(bytes, address) {
                    Err(error) if is_would_block(&error) => {}
                    result => return result,
                },
            }
            pause = (pause * 2).min(longest);
        }
    }
}

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

pub(super) fn internet(address: SockAddr) -> io::Result<SocketAddr> {
    address.as_socket().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the socket's address is not an IP address",
        )
    })
}

/// Placeholder peer address after shutdown.
fn no_peer(socket_type: SocketType) -> io::Result<SockAddr> {
    if socket_type.is_internet() {
        Ok(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())
    } else {
        SockAddr::unix("")
    }
}

fn is_read_of_nothing(buffers: &[IoSliceMut<'_>]) -> bool {
    buffers.iter().all(|buffer| buffer.is_empty())
}

fn is_would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

#[cfg(test)]
mod tests {
    /// A socket takes two words.
    ///
    /// The future of an `async fn` has one that it was given twice: as its argument, and as its
    /// variable.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_socket_takes_16_bytes() {
        assert_eq!(size_of::<super::Socket>(), 16);
    }
}
