//! By hand: one loop on edge-triggered epoll, with one wait, one receive and one send a message.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::clock::{Clock, Ready, Took};
use crate::pairs::{BUFFER, Family, MESSAGE, pair};

pub fn pairs(family: Family, pairs: usize, own: bool) -> Ready {
    Ok(match own {
        false => {
            let mut raw = Epoll::new(family, pairs, Shared([0; BUFFER]));
            Box::new(move |count| raw.run(count))
        }
        true => {
            let buffers = (0..pairs * 2).map(|_| Box::new([0; BUFFER])).collect();
            let mut raw = Epoll::new(family, pairs, Own(buffers));
            Box::new(move |count| raw.run(count))
        }
    })
}

/// Where it receives.
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

/// One end. Those of pair `n` are at `2 n`, which asks, and `2 n + 1`, which echoes.
struct End {
    socket: OwnedFd,
    /// How much has come of the current message.
    received: usize,
    /// What it still has to ask.
    left: u64,
}

struct Epoll<B> {
    epoll: OwnedFd,
    ends: Vec<End>,
    buffers: B,
}

impl<B: Buffers> Epoll<B> {
    fn new(family: Family, pairs: usize, buffers: B) -> Epoll<B> {
        // SAFETY: a system call without pointers; the descriptor is ours if there is one.
        let epoll = unsafe {
            let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            assert!(epoll >= 0, "{}", io::Error::last_os_error());
            OwnedFd::from_raw_fd(epoll)
        };
        let ends: Vec<End> = (0..pairs)
            .flat_map(|_| {
                let (near, far) = pair(family, true);
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
            buffers,
        }
    }

    fn run(&mut self, count: u64) -> Took {
        let pairs = self.ends.len() / 2;
        let clock = Clock::start();
        for asking in self.ends.iter_mut().step_by(2) {
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
                left -= usize::from(self.ends[place].serve(place, self.buffers.of(place)));
            }
        }
        clock.stop()
    }
}

impl End {
    /// Receives, and sends back. True: it has asked its last.
    fn serve(&mut self, place: usize, buffer: &mut [u8; BUFFER]) -> bool {
        let socket = self.socket.as_raw_fd();
        loop {
            // SAFETY: the kernel writes at most what the buffer holds.
            let length = unsafe { libc::recv(socket, buffer.as_mut_ptr().cast(), BUFFER, 0) };
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
            // Less than asked for: there is no more, and more will be another edge.
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
    // A message is far smaller than what a socket holds.
    assert_eq!(
        sent,
        message.len() as isize,
        "{}",
        io::Error::last_os_error()
    );
}
