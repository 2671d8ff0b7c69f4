//! What a socket asks of the world: connect, accept, try to read, try to write, wait until it is
//! worth another try, and its addresses and options. Every socket in `net` asks here, and nothing else
//! there asks the kernel but the resolver (`addresses`); this is the place where another world than
//! the kernel's would answer.
//!
//! Every operation has one shape ([`Socket::poll`]): it is tried while readiness is not known to be
//! clear; when it would block, readiness is cleared, unless an event came meanwhile, and the waker
//! is left with the source. Who succeeds 128 times within one poll of a task lets others run first.

use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use socket2::{Domain, Protocol, SockAddr, SockRef, Type};

use crate::reactor::{Direction, Io, Kind, Snapshot, Source, WaiterId};
use crate::runtime::context;
use crate::sys::{self, OwnedDescriptor};
use crate::task::queue;

/// How many connections may wait to be accepted. The system's own limit is below or at this (Linux:
/// 4,096 since 5.4), and cuts it; where the queue is full, clients try again after a second.
const BACKLOG: i32 = 4_096;

#[derive(Clone, Debug)]
pub(super) struct Socket {
    io: Io,
}

impl Socket {
    /// Takes over a socket that is non-blocking already.
    fn new(descriptor: OwnedDescriptor, kind: Kind) -> Socket {
        Socket {
            io: Io::new(descriptor, kind),
        }
    }

    /// Takes over a TCP socket as the standard library or somebody else made it. Anything else is
    /// refused: how a socket is waited for depends on what it is.
    pub(super) fn adopt(descriptor: OwnedDescriptor, kind: Kind) -> io::Result<Socket> {
        let socket = SockRef::from(&descriptor);
        if socket.r#type()? != Type::STREAM || socket.local_addr()?.as_socket().is_none() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the descriptor is not a TCP socket's",
            ));
        }
        socket.set_nonblocking(true)?;
        sys::prepare(&socket)?;
        Ok(Socket::new(descriptor, kind))
    }

    /// Listens at one address.
    pub(super) fn listen(address: SocketAddr) -> io::Result<Socket> {
        let socket = Socket::create(address)?;
        // On Unix this lets a server start again at once; on Windows it would let another program
        // take the address away.
        #[cfg(unix)]
        socket.set_reuse_address(true)?;
        socket.bind(&SockAddr::from(address))?;
        socket.listen(BACKLOG)?;
        Ok(Socket::new(socket.into(), Kind::Listener))
    }

    /// A TCP socket that is non-blocking and close-on-exec.
    fn create(address: SocketAddr) -> io::Result<socket2::Socket> {
        let socket = socket2::Socket::new(
            Domain::for_address(address),
            Type::STREAM,
            Some(Protocol::TCP),
        )?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// Gives the socket back, non-blocking; a duplicate of it where clones share it.
    pub(super) fn into_descriptor(self) -> io::Result<OwnedDescriptor> {
        self.io.into_descriptor()
    }

    pub(super) fn descriptor(&self) -> &OwnedDescriptor {
        self.io.source().descriptor()
    }

    fn options(&self) -> SockRef<'_> {
        SockRef::from(self.descriptor())
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        internet(self.options().local_addr()?)
    }

    pub(super) fn peer_addr(&self) -> io::Result<SocketAddr> {
        internet(self.options().peer_addr()?)
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.options().shutdown(how)?;
        // Not every kernel tells those who wait: completion ports under wine do not.
        self.io.source().wake();
        Ok(())
    }

    pub(super) fn nodelay(&self) -> io::Result<bool> {
        self.options().tcp_nodelay()
    }

    pub(super) fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.options().set_tcp_nodelay(nodelay)
    }

    pub(super) fn ttl(&self) -> io::Result<u32> {
        self.options().ttl_v4()
    }

    pub(super) fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.options().set_ttl_v4(ttl)
    }

    pub(super) fn shares_with(&self, other: &Socket) -> bool {
        Arc::ptr_eq(self.io.source(), other.io.source())
    }

    /// Connects to one address.
    pub(super) async fn connect(address: SocketAddr) -> io::Result<Socket> {
        let socket = Socket::create(address)?;
        let result = socket.connect(&SockAddr::from(address));
        let socket = Socket::new(socket.into(), Kind::TcpStream);
        match result {
            Ok(()) => return Ok(socket),
            Err(error) if !sys::is_in_progress(&error) => return Err(error),
            Err(_) => {}
        }
        // Writable, or so we hope; then what the socket says; then whether there is a peer, since
        // the first two can be had from a socket that is not connected yet.
        socket
            .run(Direction::Write, |socket| {
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
    pub(super) async fn accept(&self) -> io::Result<(Socket, SocketAddr)> {
        let (descriptor, peer) = self
            .run(Direction::Read, |_| {
                loop {
                    match sys::accept(self.descriptor()) {
                        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                        other => return other,
                    }
                }
            })
            .await?;
        Ok((Socket::new(descriptor, Kind::TcpStream), peer))
    }

    /// Reads without taking.
    pub(super) async fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.run(Direction::Read, |socket| {
            // SAFETY: `MaybeUninit<u8>` has the layout of `u8`, and `peek` promises to write
            // nothing that is not initialised.
            let bytes = unsafe {
                &mut *(std::ptr::from_mut::<[u8]>(bytes) as *mut [std::mem::MaybeUninit<u8>])
            };
            socket.peek(bytes)
        })
        .await
    }

    #[inline]
    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let wanted = bytes.len();
        self.poll(cx, Direction::Read, self.io.id(), |socket, seen| {
            let read = sys::receive(socket, bytes)?;
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
        self.poll(cx, Direction::Read, self.io.id(), |socket, seen| {
            let read = (&mut &*SockRef::from(socket)).read_vectored(buffers)?;
            self.was_short(seen, read, wanted);
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
        self.poll(cx, Direction::Write, self.io.id(), |socket, _| {
            sys::send(socket, bytes)
        })
    }

    pub(super) fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let buffers = &buffers[..buffers.len().min(sys::MAX_SLICES)];
        self.poll(cx, Direction::Write, self.io.id(), |socket, _| {
            SockRef::from(socket).send_vectored_with_flags(buffers, sys::SEND_FLAGS)
        })
    }

    /// Runs an operation for one waiter: tries it whenever that is worth it, until it does not
    /// block.
    #[inline]
    fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        id: WaiterId,
        mut operation: impl FnMut(&OwnedDescriptor, Snapshot) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let source = self.io.source();
        loop {
            let seen = source.snapshot(direction);
            if seen.is_ready() {
                ready!(queue::charge(cx));
                match operation(source.descriptor(), seen) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        queue::refund();
                        if direction == Direction::Read
                            && seen.has_news_beyond_data()
                            && sys::is_readable_after_all(source.descriptor())
                        {
                            continue;
                        }
                        source.clear(direction, seen);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => queue::refund(),
                    result => return Poll::Ready(result),
                }
                continue;
            }
            let waits = match source.wait_again(direction, id, cx.waker()) {
                Some(waits) => waits,
                None => register(source, direction, id, cx.waker()),
            };
            match waits {
                Ok(true) => return Poll::Pending,
                Ok(false) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// An operation as a future of its own: any number of them may wait on one socket, and one
    /// that is dropped leaves nothing behind.
    fn run<T, F>(&self, direction: Direction, operation: F) -> Run<'_, F>
    where
        F: FnMut(&SockRef<'_>) -> io::Result<T>,
    {
        Run {
            socket: self,
            direction,
            id: None,
            operation,
        }
    }
}

fn internet(address: SockAddr) -> io::Result<SocketAddr> {
    address.as_socket().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the socket has no internet address",
        )
    })
}

/// Waits where the source is not registered yet, or with other workers' reactors only.
#[cold]
fn register(
    source: &Arc<Source>,
    direction: Direction,
    id: WaiterId,
    waker: &Waker,
) -> io::Result<bool> {
    context::with_reactor(|reactor| source.wait(reactor, direction, id, waker))?
}

/// See [`Socket::run`].
struct Run<'a, F> {
    socket: &'a Socket,
    direction: Direction,
    /// From the first poll on.
    id: Option<WaiterId>,
    operation: F,
}

/// Nothing in it is pinned.
impl<F> Unpin for Run<'_, F> {}

impl<T, F: FnMut(&SockRef<'_>) -> io::Result<T>> Future for Run<'_, F> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let Run {
            socket,
            direction,
            id,
            operation,
        } = &mut *self;
        let id = *id.get_or_insert_with(|| socket.io.new_id());
        socket.poll(cx, *direction, id, |socket, _| {
            operation(&SockRef::from(socket))
        })
    }
}

impl<F> Drop for Run<'_, F> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.socket.io.forget(id);
        }
    }
}
