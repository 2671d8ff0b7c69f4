//! [`Socket`], the internal type of all sockets of `net`.
//!
//! The calls on a socket are the trait [`sockets::Socket`]. The system's are made on the descriptor
//! that the source holds (`system.rs`). With the feature `kernel` a source may hold the socket of
//! an installed kernel instead. [`Socket::kernel_socket`] is either; a call that is hot, or that
//! the trait does not have, looks at the descriptor itself. `custom.rs` makes sockets where a
//! kernel may be installed.
//!
//! In the rest of `net` only `unix/descriptors.rs`, `resolver.rs` and `compat.rs` make system calls
//! on sockets. (The reactor asks whether a source is ready, and a dump asks for addresses.)
//!
//! A call that may wait is an [`Operation`]. This module clears the readiness after a read that has
//! most likely drained the socket.

#[cfg_attr(not(feature = "kernel"), allow(dead_code, unused_imports))]
pub(super) mod custom;
pub(super) mod system;

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::Type;

/// The functions that make the sockets of this thread.
#[cfg(feature = "kernel")]
pub(super) use self::custom as kernel;
#[cfg(not(feature = "kernel"))]
pub(super) use self::system as kernel;
#[cfg(all(feature = "kernel", unix))]
pub use self::system::SystemSockets;
use crate::io::operation::{Attempt, Operation, charged};
use crate::kernel::sockets::{self, Name};
pub(super) use crate::kernel::sockets::{Address, Flag, Group, Number, Opt};
use crate::kernel::{Boxed, CLOSED, WRITABLE};
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
        self.held().ok()
    }

    pub(super) fn is_read_closed(&self) -> bool {
        self.io.source().snapshot(Direction::Read).is_closed()
    }

    /// Returns the system's descriptor, or as `Err` the other kernel's socket. Without the feature
    /// `kernel` it is the descriptor, without a branch.
    #[inline]
    fn held(&self) -> Result<BorrowedDescriptor<'_>, &Boxed<dyn sockets::Socket>> {
        self.io.source().descriptor_or_custom()
    }

    /// Returns the socket as its kernel has it, for calls that do not wait.
    #[inline]
    pub(super) fn kernel_socket(&self) -> &dyn sockets::Socket {
        match self.held() {
            Ok(_) => &self.io,
            Err(socket) => &**socket,
        }
    }

    /// Returns the largest value of an option.
    pub(super) fn max_of(&self, option: TcpOption) -> u32 {
        match self.held() {
            Ok(_) => sys::max_of(option),
            Err(_) => option.max_of_linux(),
        }
    }

    pub(super) fn set(&self, option: Opt) -> io::Result<()> {
        self.kernel_socket().set(option)
    }

    pub(super) fn lend_descriptor(&self) -> BorrowedDescriptor<'_> {
        self.kernel_socket().lend()
    }

    /// Returns the descriptor, which stays non-blocking, or a duplicate if clones share it. It
    /// accepts descriptors from peers again.
    pub(super) fn into_descriptor(self) -> io::Result<OwnedDescriptor> {
        let of = self.traits();
        if self.held().is_err() {
            crate::kernel::permit("the socket's descriptor")?;
        } else if of.trusts_short_reads && of.socket_type.takes_descriptors() {
            self.set(Opt::Flag(Flag::Passrights, true))?;
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
        let shut_down = |left| self.kernel_socket().shutdown(how, shutdown_of(left));
        self.io.source().shut_down(directions, shut_down)
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
    pub(super) fn accept(&self) -> Operation<'_, impl Attempt<(Socket, Address)>> {
        let accept = move || loop {
            let wrap = |one| custom::wrap(one, self.socket_type().accepted());
            let accepted = match self.held() {
                Ok(_) => system::accept(&self.io),
                Err(listener) => listener.accept().map(|(one, peer)| (wrap(one), peer)),
            };
            match accepted {
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
        let attempt = |seen| Ok(self.after_read(seen, self.read(bytes)?));
        self.reading(attempt).poll(cx)
    }

    /// Reads from a stream. Returns the number of bytes, and whether the stream seems drained: the
    /// system's socket gave less than was asked for (also before an end or an error); another
    /// kernel's knows. `Source::clear_after_short_read` decides whether to believe it.
    #[inline]
    fn read(&self, bytes: &mut [u8]) -> io::Result<(usize, bool)> {
        let source = self.io.source();
        match self.held() {
            Ok(descriptor) if source.has_bytes_only() => {
                let read = sys::receive(&descriptor, bytes)?;
                // Checked again: a Unix stream may have begun to accept descriptors meanwhile.
                Ok((read, read < bytes.len() && source.has_bytes_only()))
            }
            _ => self.read_outlined(bytes),
        }
    }

    #[cold]
    #[inline(never)]
    fn read_outlined(&self, bytes: &mut [u8]) -> io::Result<(usize, bool)> {
        self.kernel_socket()
            .read(&mut [IoSliceMut::new(bytes)], false)
    }

    pub(super) fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let attempt = |seen| Ok(self.after_read(seen, self.read(bytes)?));
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
        self.reading(|seen| Ok(self.after_read(seen, self.kernel_socket().read(buffers, false)?)))
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
        if self.held().is_err() || bytes.len() > budget::BYTES_PER_UNIT {
            let attempt = |_| charged(self.kernel_socket().write(&[IoSlice::new(bytes)]));
            return self.writing(attempt).poll_outlined(cx.waker());
        }
        self.writing(|_| sys::send(&source.descriptor()?, bytes))
            .poll(cx)
    }

    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.writing(|_| charged(self.kernel_socket().write(&[IoSlice::new(bytes)])))
            .attempt()
    }

    pub(super) fn write_vectored(
        &self,
        buffers: &[IoSlice<'_>],
    ) -> Operation<'_, impl Attempt<usize>> {
        self.writing(|_| charged(self.kernel_socket().write(buffers)))
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
            let recv = || match self.held() {
                Ok(descriptor) => charged(system::recv(&descriptor, bytes, receive)),
                Err(socket) => {
                    let buffers = &mut [IoSliceMut::new(bytes)];
                    let (length, _) = socket.read(buffers, receive == Receive::Peek)?;
                    charged(Ok(length))
                }
            };
            self.or_end(seen, recv, || Ok(0))
        })
    }

    pub(super) fn recv_from(
        &self,
        bytes: &mut [u8],
        receive: Receive,
    ) -> Operation<'_, impl Attempt<(usize, Address)>> {
        self.reading(move |seen| {
            let recv_from = || {
                let (length, from) = match self.held() {
                    Ok(descriptor) => system::recv_from(&descriptor, bytes, receive)?,
                    Err(socket) => {
                        let (length, from, _) = socket.receive(bytes, receive == Receive::Peek)?;
                        (length, from)
                    }
                };
                Ok((charged(Ok(length))?, from))
            };
            self.or_end(seen, recv_from, || Ok((0, no_peer(self.socket_type()))))
        })
    }

    pub(super) fn recv_many(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        received: &mut [Received],
    ) -> Operation<'_, impl Attempt<usize>> {
        self.reading(move |seen| {
            let recv_many = || self.receive_now(buffers, received).map(Some);
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

    /// Receives datagrams, at most one for each of `buffers` and `received`, which have the same
    /// length. Returns their number, which is not zero, and whether nothing is left.
    fn receive_now(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        received: &mut [Received],
    ) -> io::Result<(usize, bool)> {
        if let Ok(descriptor) = self.held() {
            match sys::receive_many(&descriptor, buffers, received) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
                // On systems other than Linux an error may also be the reason for fewer datagrams.
                result => {
                    let is_short = |count| count < received.len() && sys::ENDS_WHEN_DRAINED;
                    return result.map(|count| (count, is_short(count)));
                }
            }
        }
        // One by one, until one fails, which is an error only at the first.
        let socket = self.kernel_socket();
        for (count, (buffer, received)) in buffers.iter_mut().zip(&mut *received).enumerate() {
            match socket.receive(buffer, false) {
                Ok((length, from, is_truncated)) => {
                    *received = Received::new(length, internet(from).ok(), is_truncated);
                }
                Err(error) if count == 0 => return Err(error),
                Err(error) => return Ok((count, is_would_block(&error))),
            }
        }
        Ok((received.len(), false))
    }

    pub(super) fn send_many(
        &self,
        datagrams: &[Datagram<'_>],
    ) -> Operation<'_, impl Attempt<usize>> {
        self.writing(move |_| {
            let count = self.send_now(datagrams)?;
            let lengths = datagrams[..count]
                .iter()
                .map(|datagram| datagram.bytes.len());
            budget::charge_datagrams(count, lengths.sum());
            Ok(count)
        })
    }

    /// Sends datagrams, at most [`MAX_DATAGRAMS`](sys::MAX_DATAGRAMS). Returns the number sent,
    /// which is not zero.
    fn send_now(&self, datagrams: &[Datagram<'_>]) -> io::Result<usize> {
        if let Ok(descriptor) = self.held() {
            match sys::send_many(&descriptor, datagrams) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
                result => return result,
            }
        }
        let socket = self.kernel_socket();
        for (count, datagram) in datagrams.iter().enumerate() {
            let to = datagram.to.map(Address::from);
            match socket.send(datagram.bytes, to.as_ref()) {
                Ok(_) => {}
                Err(error) if count == 0 => return Err(error),
                Err(_) => return Ok(count),
            }
        }
        Ok(datagrams.len())
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

    /// Whether receiving was shut down, although a receive or an accept would block.
    fn has_ended(&self, seen: Snapshot) -> bool {
        let may_end = |socket_type: SocketType| {
            socket_type.r#type() == Type::DGRAM || socket_type == SocketType::UnixListener
        };
        let has_ended = || match self.held() {
            Ok(descriptor) => sys::has_ended(&descriptor),
            // A datagram socket is closed only if its receiving was shut down.
            Err(socket) => socket.ready().is_ok_and(|ready| ready & CLOSED != 0),
        };
        seen.has_sticky_flags() && may_end(self.socket_type()) && has_ended()
    }

    /// Whether the socket's own buffer has room, although a send would block.
    fn has_room(&self) -> bool {
        match self.held() {
            Ok(descriptor) => sys::has_room(&descriptor),
            Err(socket) => socket.ready().is_ok_and(|ready| ready & WRITABLE != 0),
        }
    }

    pub(super) fn send(
        &self,
        bytes: &[u8],
        to: Option<&Address>,
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
        address: &Address,
    ) -> Operation<'_, impl Attempt<Option<usize>>> {
        self.writing(
            move |_| match self.kernel_socket().send(bytes, Some(address)) {
                Err(error) if is_would_block(&error) && self.has_room() => Ok(None),
                result => charged(result).map(Some),
            },
        )
    }

    pub(super) fn try_send_to(&self, bytes: &[u8], address: &Address) -> io::Result<usize> {
        let sent = self.sending_to(bytes, address).attempt()?;
        sent.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// A timer repeats attempts for which there is no event.
    pub(super) async fn send_to(&self, bytes: &[u8], address: &Address) -> io::Result<usize> {
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

pub(super) fn internet(address: Address) -> io::Result<SocketAddr> {
    match address {
        Address::Internet(address) => Ok(address),
        Address::Unix(_) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the socket's address is not an IP address",
        )),
    }
}

/// Placeholder peer address after shutdown.
fn no_peer(socket_type: SocketType) -> Address {
    if socket_type.is_internet() {
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into()
    } else {
        Address::Unix(Name::Unnamed)
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
