//! The load generator: one thread, one epoll set, connections registered once, edge-triggered.
//!
//! On a core by itself it never sleeps, but polls continuously: then no latency and no CPU time
//! includes a wake-up of this side, and only the server is measured. Without a core to itself it
//! has to sleep, or the server would not run.
//!
//! A request counts once its whole answer has arrived and is correct. Its latency starts before it
//! is sent (or its connection is started).

mod datagrams;
mod exchange;
pub mod http;
mod messages;
mod visits;

use std::fs::File;
use std::io::{self, Read};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use super::histogram::Histogram;
use super::server::{Server, Spent};
use crate::clock;

#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// Persistent connections, each with `window` messages in flight.
    Messages {
        connections: usize,
        window: usize,
        size: usize,
    },
    /// Connections that send one request and close, `at_once` of them at a time.
    Connects { at_once: usize, size: usize },
    /// Persistent connections, over which so many messages a second are sent in all.
    Paced {
        connections: usize,
        rate: u32,
        size: usize,
    },
    /// Persistent connections, each with one HTTP request in flight.
    Http { connections: usize },
    /// Connections that send one HTTP request and close, `at_once` of them at a time.
    HttpConnects { at_once: usize },
    /// Persistent connections, each with one of the blocks in flight, in their order.
    Exchange {
        connections: usize,
        blocks: &'static [Block],
    },
    /// UDP sockets, each with `window` messages in flight.
    Datagrams {
        sockets: usize,
        window: usize,
        size: usize,
    },
}

/// Bytes that are sent by one call, and those that must come back.
#[derive(Debug)]
pub struct Block {
    pub request: Vec<u8>,
    pub answer: Vec<u8>,
    /// The number of requests in it.
    pub requests: usize,
}

/// The maximum length of an answer on a connection of one request.
const MAX_ANSWER: usize = 1024;

/// How long a generator without a core to itself sleeps at a time if no event comes.
const IDLE_MILLIS: i32 = 10;

/// The maximum time without progress.
const PATIENCE: Duration = Duration::from_secs(5);

/// The phases of a measurement, and the server, which is asked at the start and at the end what it
/// has spent.
pub struct Phases<'a> {
    pub warm: Duration,
    pub limit: Duration,
    /// Whether this thread has a core to itself.
    pub spin: bool,
    pub server: &'a Server,
}

pub struct Measured {
    pub requests: u64,
    pub wall: Duration,
    /// The server's expense, and the CPU time of this process.
    pub server: Spent,
    pub own: Duration,
    pub latencies: Histogram,
}

pub fn run(load: Load, phases: &Phases<'_>) -> io::Result<Measured> {
    let port = phases.server.port;
    match load {
        Load::Messages {
            connections,
            window,
            size,
        } => messages::messages(connections, window, size, port, phases),
        Load::Connects { at_once, size } => {
            let message: Vec<u8> = (0..size).map(|at| (at * 31) as u8).collect();
            visits::visits(at_once, &message, visits::echoed, port, phases)
        }
        Load::Paced {
            connections,
            rate,
            size,
        } => messages::paced(connections, rate, size, port, phases),
        Load::Http { connections } => http::requests(connections, port, phases),
        Load::HttpConnects { at_once } => {
            visits::visits(at_once, http::LAST_REQUEST, http::answered, port, phases)
        }
        Load::Exchange {
            connections,
            blocks,
        } => exchange::blocks(connections, blocks, port, phases),
        Load::Datagrams {
            sockets,
            window,
            size,
        } => datagrams::datagrams(sockets, window, size, port, phases),
    }
}

/// Counts answers between the end of the warm-up and the end.
struct Count<'a> {
    phases: &'a Phases<'a>,
    /// The time of the next step.
    until: Instant,
    /// The start time, and what the server and this process have spent until then.
    begun: Option<(Instant, Spent, Duration)>,
    latencies: Histogram,
}

impl<'a> Count<'a> {
    fn new(phases: &'a Phases<'a>) -> Count<'a> {
        Count {
            phases,
            until: Instant::now() + phases.warm,
            begun: None,
            latencies: Histogram::new(),
        }
    }

    #[inline]
    fn answered(&mut self, since: Instant, now: Instant) {
        self.latencies.add(now - since);
    }

    /// Called between rounds of events; returns the result at the end.
    fn step(&mut self, now: Instant) -> Option<Measured> {
        if now < self.until {
            return None;
        }
        let (spent, own) = (self.phases.server.spent(), clock::cpu());
        let now = Instant::now();
        let Some((begin, before, own_before)) = self.begun else {
            self.latencies.clear();
            self.begun = Some((now, spent, own));
            self.until = now + self.phases.limit;
            return None;
        };
        if self.latencies.total() == 0 {
            // A short measurement, on a busy machine.
            return None;
        }
        Some(Measured {
            requests: self.latencies.total(),
            wall: now - begin,
            server: spent - before,
            own: own - own_before,
            latencies: std::mem::replace(&mut self.latencies, Histogram::new()),
        })
    }
}

/// An epoll set, and the time of its last event.
struct Events {
    epoll: OwnedFd,
    events: [libc::epoll_event; 256],
    last: Instant,
    spin: bool,
}

impl Events {
    fn new(spin: bool) -> io::Result<Events> {
        // SAFETY: a system call without pointers; the descriptor is ours if there is one.
        let epoll = unsafe {
            let descriptor = checked(libc::epoll_create1(libc::EPOLL_CLOEXEC))?;
            OwnedFd::from_raw_fd(descriptor)
        };
        Ok(Events {
            epoll,
            events: [libc::epoll_event { events: 0, u64: 0 }; 256],
            last: Instant::now(),
            spin,
        })
    }

    fn add(&self, socket: RawFd, place: usize) -> io::Result<()> {
        let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        let mut event = libc::epoll_event {
            events: events as u32,
            u64: place as u64,
        };
        let epoll = self.epoll.as_raw_fd();
        // SAFETY: the event lives throughout the call.
        checked(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, socket, &mut event) })?;
        Ok(())
    }

    /// Returns the number of events, and the time.
    fn wait(&mut self) -> io::Result<(usize, Instant)> {
        // SAFETY: the kernel writes as many events as there is room for.
        let ready = checked(unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                self.events.as_mut_ptr(),
                self.events.len() as i32,
                if self.spin { 0 } else { IDLE_MILLIS },
            )
        })?;
        let now = Instant::now();
        if ready > 0 {
            self.last = now;
        } else if now - self.last > PATIENCE {
            let what = "the server stopped answering";
            return Err(io::Error::new(io::ErrorKind::TimedOut, what));
        }
        Ok((ready as usize, now))
    }

    fn place(&self, number: usize) -> usize {
        self.events[number].u64 as usize
    }

    /// Calls `ready` for each event, with its place and the time, until the measurement is over.
    fn run(
        mut self,
        phases: &Phases<'_>,
        mut ready: impl FnMut(&Events, usize, Instant, &mut Count<'_>) -> io::Result<()>,
    ) -> io::Result<Measured> {
        let mut count = Count::new(phases);
        loop {
            let (number, now) = self.wait()?;
            if let Some(measured) = count.step(now) {
                return Ok(measured);
            }
            for number in 0..number {
                ready(&self, self.place(number), now, &mut count)?;
            }
        }
    }
}

/// Connects to a server on this machine.
fn connect(port: u16) -> io::Result<TcpStream> {
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// Returns the number of bytes that have come: zero if none have. (The end is an error.)
fn receive(socket: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    match socket.read(bytes) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        result => result,
    }
}

/// The error of an answer.
fn wrong() -> io::Error {
    io::Error::other("the answer is not what was asked for")
}

/// A timer that expires at a rate, in an epoll set.
struct Ticks(File);

impl Ticks {
    fn new(events: &Events, place: usize, rate: u32) -> io::Result<Ticks> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: a system call without pointers; the descriptor is ours if there is one.
        let timer = unsafe {
            let timer = checked(libc::timerfd_create(libc::CLOCK_MONOTONIC, flags))?;
            OwnedFd::from_raw_fd(timer)
        };
        let each = libc::timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000_000 / i64::from(rate),
        };
        let often = libc::itimerspec {
            it_interval: each,
            it_value: each,
        };
        // SAFETY: the times live throughout the call; the old ones are not asked for.
        checked(unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &often, null_mut()) })?;
        events.add(timer.as_raw_fd(), place)?;
        Ok(Ticks(timer.into()))
    }

    /// Returns how often it has expired since it was last asked.
    fn passed(&self) -> io::Result<u64> {
        let mut count = [0; 8];
        match (&self.0).read_exact(&mut count) {
            Ok(()) => Ok(u64::from_ne_bytes(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error),
        }
    }
}

fn checked(result: i32) -> io::Result<i32> {
    match result {
        0.. => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}
