//! Hand-written: one loop on edge-triggered epoll, with one wait, one receive and one send per
//! message.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::clock::{Clock, Ready, Took};
use crate::program::{BUFFER, MESSAGE, Pairs};

/// The system call that receives, and its buffers.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// With `recv`, into one buffer for all connections.
    Shared,
    /// With `recv`, into a buffer for each connection, as tasks have them.
    Own,
    /// With `recvmsg`, into one buffer. A Unix socket needs it if descriptors may arrive: nothing
    /// else reports that a read ended at one of them.
    Message,
}

pub fn pairs(pairs: Pairs, way: Way) -> Ready {
    Ok(match way {
        Way::Shared => {
            let mut raw = Epoll::new(pairs, Shared([0; BUFFER]), recv);
            Box::new(move |count| raw.run(count))
        }
        Way::Own => {
            let places = (pairs.active + pairs.idle) * 2;
            let buffers = (0..places).map(|_| Box::new([0; BUFFER])).collect();
            let mut raw = Epoll::new(pairs, Own(buffers), recv);
            Box::new(move |count| raw.run(count))
        }
        Way::Message => {
            let mut raw = Epoll::new(pairs, Shared([0; BUFFER]), recvmsg);
            Box::new(move |count| raw.run(count))
        }
    })
}

fn recv(socket: RawFd, buffer: &mut [u8; BUFFER]) -> isize {
    // SAFETY: the kernel writes at most what the buffer holds.
    unsafe { libc::recv(socket, buffer.as_mut_ptr().cast(), BUFFER, 0) }
}

fn recvmsg(socket: RawFd, buffer: &mut [u8; BUFFER]) -> isize {
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: BUFFER,
    };
    // SAFETY: all zero is a message without an address, without parts and without control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    // SAFETY: message and part live throughout the call; the kernel writes at most what the buffer
    // holds, and closes descriptors for which there is no room.
    let length = unsafe { libc::recvmsg(socket, &mut message, libc::MSG_CMSG_CLOEXEC) };
    assert_eq!(message.msg_flags & libc::MSG_CTRUNC, 0, "nobody sends any");
    length
}

/// The buffers that it receives into.
trait Buffers {
    fn of(&mut self, place: usize) -> &mut [u8; BUFFER];
}

struct Shared([u8; BUFFER]);

impl Buffers for Shared {
    fn of(&mut self, _: usize) -> &mut [u8; BUFFER] {
        &mut self.0
    }
}

#[expect(clippy::vec_box, reason = "each on its own, as in tasks")]
struct Own(Vec<Box<[u8; BUFFER]>>);

impl Buffers for Own {
    fn of(&mut self, place: usize) -> &mut [u8; BUFFER] {
        &mut self.0[place]
    }
}

/// One end. Pair `n` has the indices `2 n`, which asks, and `2 n + 1`, which echoes.
struct End {
    socket: OwnedFd,
    /// The number of bytes received of the current message.
    received: usize,
    /// The number of messages that it still has to send.
    left: u64,
}

struct Epoll<B, R> {
    epoll: OwnedFd,
    ends: Vec<End>,
    /// The number of pairs that send.
    active: usize,
    buffers: B,
    receive: R,
}

impl<B, R> Epoll<B, R>
where
    B: Buffers,
    R: Fn(RawFd, &mut [u8; BUFFER]) -> isize,
{
    fn new(pairs: Pairs, buffers: B, receive: R) -> Epoll<B, R> {
        // SAFETY: a system call without pointers; the descriptor is ours if there is one.
        let epoll = unsafe {
            let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            assert!(epoll >= 0, "{}", io::Error::last_os_error());
            OwnedFd::from_raw_fd(epoll)
        };
        let ends: Vec<End> = (pairs.connect().into_iter())
            .flat_map(|(near, far)| {
                [near, far].map(|socket| End {
                    socket,
                    received: 0,
                    left: 0,
                })
            })
            .collect();
        for (place, end) in ends.iter().enumerate() {
            let mut event = libc::epoll_event {
                events: (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET) as u32,
                u64: place as u64,
            };
            let (epoll, socket) = (epoll.as_raw_fd(), end.socket.as_raw_fd());
            // SAFETY: the event lives throughout the call.
            let result = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, socket, &mut event) };
            assert_eq!(result, 0, "{}", io::Error::last_os_error());
        }
        Epoll {
            epoll,
            ends,
            active: pairs.active,
            buffers,
            receive,
        }
    }

    fn run(&mut self, count: u64) -> Took {
        let pairs = self.active;
        let clock = Clock::start();
        for asking in self.ends.iter_mut().step_by(2).take(pairs) {
            asking.left = count / pairs as u64;
            send(asking.socket.as_raw_fd(), &[7; MESSAGE]);
        }
        let mut left = pairs;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 256];
        while left > 0 {
            // SAFETY: the kernel writes as many events as there is room for.
            let ready = unsafe {
                libc::epoll_wait(
                    self.epoll.as_raw_fd(),
                    events.as_mut_ptr(),
                    events.len() as i32,
                    -1,
                )
            };
            assert!(ready >= 0, "{}", io::Error::last_os_error());
            for event in &events[..ready as usize] {
                let place = event.u64 as usize;
                let buffer = self.buffers.of(place);
                left -= usize::from(self.ends[place].serve(place, buffer, &self.receive));
            }
        }
        clock.stop()
    }
}

impl End {
    /// Receives, and sends back. Returns whether it has sent its last message.
    fn serve(
        &mut self,
        place: usize,
        buffer: &mut [u8; BUFFER],
        receive: impl Fn(RawFd, &mut [u8; BUFFER]) -> isize,
    ) -> bool {
        let socket = self.socket.as_raw_fd();
        loop {
            let length = receive(socket, buffer);
            if length < 0 {
                let error = io::Error::last_os_error();
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
                return false;
            }
            assert_ne!(length, 0, "nobody hangs up");
            let length = length as usize;
            if place % 2 == 1 {
                send(socket, &buffer[..length]);
            } else {
                self.received += length;
                if self.received == MESSAGE {
                    self.received = 0;
                    self.left -= 1;
                    if self.left == 0 {
                        return true;
                    }
                    send(socket, &[7; MESSAGE]);
                }
            }
            // Less than asked for: there is no more, and further input is another edge.
            if length < BUFFER {
                return false;
            }
        }
    }
}

fn send(socket: RawFd, message: &[u8]) {
    let flags = libc::MSG_NOSIGNAL;
    // SAFETY: the kernel reads what the slice holds.
    let sent = unsafe { libc::send(socket, message.as_ptr().cast(), message.len(), flags) };
    // A message is far smaller than a socket buffer.
    assert_eq!(
        sent,
        message.len() as isize,
        "{}",
        io::Error::last_os_error()
    );
}
