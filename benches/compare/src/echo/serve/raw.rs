//! Hand-written: one thread, `epoll(7)`, each connection registered once, edge-triggered. A message
//! costs one wait (or a part of one), one receive and one send.
//!
//! A receive that does not fill its buffer has taken all the input, and the next byte is a new
//! edge. Bytes that cannot be sent now are kept; nothing more is received until they are sent.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use super::{ANYWHERE, Never, announce};

/// Serves with one receive buffer for all connections.
pub fn shared(size: usize, busy: Option<Duration>) -> io::Result<Never> {
    serve(Shared(vec![0; size]), busy)
}

/// Serves with a buffer per connection, as tasks have.
pub fn own(size: usize, busy: Option<Duration>) -> io::Result<Never> {
    let buffers = Vec::new();
    serve(Own { size, buffers }, busy)
}

trait Buffers {
    fn open(&mut self, _descriptor: RawFd) {}
    fn of(&mut self, descriptor: RawFd) -> &mut [u8];
}

struct Shared(Vec<u8>);

impl Buffers for Shared {
    fn of(&mut self, _: RawFd) -> &mut [u8] {
        &mut self.0
    }
}

struct Own {
    size: usize,
    buffers: Vec<Vec<u8>>,
}

impl Buffers for Own {
    fn open(&mut self, descriptor: RawFd) {
        let place = descriptor as usize;
        if self.buffers.len() <= place {
            self.buffers.resize_with(place + 1, Vec::new);
        }
        self.buffers[place] = vec![0; self.size];
    }

    fn of(&mut self, descriptor: RawFd) -> &mut [u8] {
        &mut self.buffers[descriptor as usize]
    }
}

#[derive(Default)]
struct Connection {
    /// `None` between two connections with the same number.
    socket: Option<OwnedFd>,
    /// Bytes still to be sent.
    rest: Vec<u8>,
}

const EVENTS: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
const OUT: u32 = libc::EPOLLOUT as u32;

/// Events after which a receive that does not fill its buffer is not the last one.
const LAST: u32 = (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32;

struct Server<B> {
    epoll: OwnedFd,
    /// Indexed by descriptor.
    connections: Vec<Connection>,
    buffers: B,
}

fn serve(buffers: impl Buffers, busy: Option<Duration>) -> io::Result<Never> {
    let listener = TcpListener::bind(ANYWHERE)?;
    listener.set_nonblocking(true)?;
    // SAFETY: a system call without pointers; the descriptor is ours if there is one.
    let epoll = unsafe { OwnedFd::from_raw_fd(checked(libc::epoll_create1(libc::EPOLL_CLOEXEC))?) };
    let listening = listener.as_raw_fd();
    control(&epoll, libc::EPOLL_CTL_ADD, listening, libc::EPOLLIN as u32)?;
    announce(listener.local_addr())?;
    let mut server = Server {
        epoll,
        connections: Vec::new(),
        buffers,
    };
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 256];
    loop {
        let ready = server.wait(&mut events, busy)?;
        for event in &events[..ready] {
            let descriptor = event.u64 as RawFd;
            if descriptor == listening {
                server.accept(listening)?;
            } else {
                server.ready(descriptor, event.events)?;
            }
        }
    }
}

impl<B: Buffers> Server<B> {
    /// Blocks, after polling for the duration `busy`, if given.
    fn wait(&self, events: &mut [libc::epoll_event], busy: Option<Duration>) -> io::Result<usize> {
        let mut wait = |timeout| {
            let most = events.len() as i32;
            // SAFETY: the kernel writes as many events as there is room for.
            let ready = unsafe {
                libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), most, timeout)
            };
            checked(ready).map(|ready| ready as usize)
        };
        if let Some(busy) = busy {
            let start = Instant::now();
            while start.elapsed() < busy {
                match wait(0)? {
                    0 => {}
                    ready => return Ok(ready),
                }
            }
        }
        wait(-1)
    }

    fn accept(&mut self, listening: RawFd) -> io::Result<()> {
        loop {
            let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            // SAFETY: the peer's address is not asked for.
            let accepted = unsafe { libc::accept4(listening, null_mut(), null_mut(), flags) };
            let descriptor = match checked(accepted) {
                Ok(descriptor) => descriptor,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // Aborted while in the queue.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            // SAFETY: the kernel just made it.
            let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
            let on: libc::c_int = 1;
            // SAFETY: the value lives throughout the call, and is of the size given.
            checked(unsafe {
                libc::setsockopt(
                    descriptor,
                    libc::IPPROTO_TCP,
                    libc::TCP_NODELAY,
                    (&raw const on).cast(),
                    size_of_val(&on) as u32,
                )
            })?;
            let place = descriptor as usize;
            if self.connections.len() <= place {
                self.connections.resize_with(place + 1, Default::default);
            }
            self.connections[place].socket = Some(socket);
            self.buffers.open(descriptor);
            control(&self.epoll, libc::EPOLL_CTL_ADD, descriptor, EVENTS)?;
        }
    }

    #[inline]
    fn ready(&mut self, descriptor: RawFd, events: u32) -> io::Result<()> {
        let connection = &mut self.connections[descriptor as usize];
        if !connection.rest.is_empty() {
            match transfer(send(descriptor, &connection.rest)) {
                Moved::Some(length) => drop(connection.rest.drain(..length)),
                Moved::Nothing => {}
                Moved::End => {
                    self.close(descriptor);
                    return Ok(());
                }
            }
            if !connection.rest.is_empty() {
                return Ok(());
            }
        }
        let buffer = self.buffers.of(descriptor);
        loop {
            let length = match transfer(receive(descriptor, buffer)) {
                Moved::Some(length) => length,
                Moved::Nothing => return Ok(()),
                Moved::End => {
                    self.close(descriptor);
                    return Ok(());
                }
            };
            let sent = match transfer(send(descriptor, &buffer[..length])) {
                Moved::Some(sent) => sent,
                Moved::Nothing => 0,
                Moved::End => {
                    self.close(descriptor);
                    return Ok(());
                }
            };
            if sent < length {
                // From now on the socket is registered for writability too; registering now misses
                // no edge.
                connection.rest.extend_from_slice(&buffer[sent..length]);
                return control(&self.epoll, libc::EPOLL_CTL_MOD, descriptor, EVENTS | OUT);
            }
            if length < buffer.len() && events & LAST == 0 {
                return Ok(());
            }
        }
    }

    /// Closes a connection. A stale event for its number finds the next connection with no input.
    fn close(&mut self, descriptor: RawFd) {
        self.connections[descriptor as usize] = Connection::default();
    }
}

enum Moved {
    Some(usize),
    /// The operation would block.
    Nothing,
    /// The peer closed the connection, or it failed.
    End,
}

#[inline]
fn transfer(result: isize) -> Moved {
    match usize::try_from(result) {
        Ok(0) => Moved::End,
        Ok(length) => Moved::Some(length),
        Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock => Moved::Nothing,
        Err(_) => Moved::End,
    }
}

#[inline]
fn receive(socket: RawFd, buffer: &mut [u8]) -> isize {
    // SAFETY: the kernel writes into the buffer, which is that long. A closed descriptor is an
    // error.
    unsafe { libc::recv(socket, buffer.as_mut_ptr().cast(), buffer.len(), 0) }
}

#[inline]
fn send(socket: RawFd, bytes: &[u8]) -> isize {
    // SAFETY: the kernel reads from the slice.
    unsafe {
        libc::send(
            socket,
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_NOSIGNAL,
        )
    }
}

fn control(epoll: &OwnedFd, operation: i32, descriptor: RawFd, events: u32) -> io::Result<()> {
    let mut event = libc::epoll_event {
        events,
        u64: descriptor as u64,
    };
    // SAFETY: the event lives throughout the call.
    checked(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), operation, descriptor, &mut event) })?;
    Ok(())
}

fn checked(result: i32) -> io::Result<i32> {
    match result {
        0.. => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}
