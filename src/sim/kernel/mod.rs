//! The simulated kernel: what answers, in a world, where the system's kernel would.
//!
//! It has the clock, the hosts' addresses and names, sockets, and what is under way between them;
//! and for each process what its poller has to report. It knows no tasks and no runtimes, and calls
//! nobody: who becomes ready is a list that the world takes. So no foreign code runs while it is
//! borrowed.
//!
//! One thread has one kernel at a time, in a thread-local. What the modules below `sim` ask of it
//! they ask here: this is the seam. A [`SimSocket`] is plain data that names a socket; on a thread
//! without its world it finds nobody, and says so.

pub(crate) mod choice;
pub(crate) mod link;
mod tcp;
pub(crate) mod trace;

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::sys::{AsDescriptor, BorrowedDescriptor, OwnedDescriptor};
use choice::Stream;
use link::Links;
pub(crate) use tcp::{CLOSED, ERROR, READABLE, WRITABLE};
use tcp::{Segment, State, Tcp};
use trace::{Comparison, Trace, What};

/// The ports that are given to those who ask for none: Linux's `ip_local_port_range`.
const PORTS: std::ops::RangeInclusive<u16> = 32_768..=60_999;

/// So often what has been ready longest may be passed over in a row: a real runtime promises turns,
/// and programs may rely on that.
pub(crate) const MOST_PASSED_OVER: u32 = 64;

/// A host that does not exist: segments to it are lost. The same number on every platform, as it is
/// part of fingerprints.
const NOBODY: usize = u32::MAX as usize;

/// The options of a socket, given back as they were set, and refused where Linux refuses them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    pub(crate) linger: Option<Duration>,
    pub(crate) nodelay: bool,
    pub(crate) ttl: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            linger: None,
            nodelay: false,
            ttl: 64,
        }
    }
}

impl Options {
    /// In whole seconds, as a kernel takes them.
    pub(crate) fn set_linger(&mut self, linger: Option<Duration>) {
        self.linger = linger.map(|it| Duration::from_secs(it.as_secs()));
    }

    pub(crate) fn set_ttl(&mut self, ttl: u32) -> io::Result<()> {
        // ip(7): IP_TTL.
        if !(1..=255).contains(&ttl) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.ttl = ttl;
        Ok(())
    }
}

pub(crate) struct Kernel {
    world: u32,
    base: Instant,
    seed: u64,
    /// Nanoseconds since the world began.
    now: u64,
    /// By time, and then by number.
    events: BinaryHeap<Reverse<Entry>>,
    pushed: u64,
    hosts: Vec<HostState>,
    names: BTreeMap<String, usize>,
    processes: Vec<ProcessState>,
    /// The processes that have something to do, in the order in which they came to it.
    ready: Vec<usize>,
    passed_over: u32,
    current: Option<usize>,
    sockets: Vec<Option<Box<Tcp>>>,
    connections: BTreeMap<(usize, SocketAddr, SocketAddr), u32>,
    listeners: BTreeMap<(usize, u16), Vec<u32>>,
    ended: VecDeque<(u64, u32)>,
    links: Links,
    schedule: Stream,
    pub(crate) trace: Trace,
    has_diverged: bool,
    failure: Option<String>,
    tasks: u64,
    foreign: Arc<AtomicBool>,
}

struct HostState {
    name: String,
    is_up: bool,
    pauses: u32,
    next_port: u16,
    names: Stream,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

impl HostState {
    fn address(&self, is_v6: bool) -> IpAddr {
        match is_v6 {
            true => self.v6.into(),
            false => self.v4.into(),
        }
    }
}

struct ProcessState {
    host: usize,
    is_alive: bool,
    is_ready: bool,
    /// Sockets of which the poller has something to report.
    events: VecDeque<u32>,
    deadline: Option<u64>,
    deadline_event: Option<u64>,
    /// Which of its ready tasks is next.
    schedule: Stream,
    passed_over: u32,
}

enum Event {
    Segment(Segment),
    Retransmit(u32, u64),
    Deadline(usize, u64),
}

struct Entry {
    at: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.number == other.number
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

thread_local! {
    /// The time of the world that this thread is in. Apart from the kernel, so that reading it is a
    /// load.
    static CLOCK: Cell<Option<Instant>> = const { Cell::new(None) };
    static KERNEL: RefCell<Option<Box<Kernel>>> = const { RefCell::new(None) };
}

/// The time of this thread's world, if it is in one.
#[inline]
pub(crate) fn now() -> Option<Instant> {
    CLOCK.get()
}

/// Whether this thread is in a world.
#[inline]
pub(crate) fn is_here() -> bool {
    CLOCK.get().is_some()
}

/// Calls `f` with this thread's kernel, if there is one. `f` runs no foreign code.
pub(crate) fn with<R>(f: impl FnOnce(&mut Kernel) -> R) -> Option<R> {
    let with = |kernel: &RefCell<Option<Box<Kernel>>>| kernel.borrow_mut().as_deref_mut().map(f);
    KERNEL.try_with(with).ok().flatten()
}

/// Begins a world on this thread. It ends when the result is dropped.
pub(crate) fn begin(seed: u64, comparison: Comparison) -> World {
    static WORLDS: AtomicU32 = AtomicU32::new(0);
    assert!(!is_here(), "polder::sim: this thread is in a world already");
    let kernel = Kernel {
        world: WORLDS.fetch_add(1, Ordering::Relaxed),
        base: Instant::now(),
        seed,
        now: 0,
        events: BinaryHeap::new(),
        pushed: 0,
        hosts: Vec::new(),
        names: BTreeMap::new(),
        processes: Vec::new(),
        ready: Vec::new(),
        passed_over: 0,
        current: None,
        // None has the number zero.
        sockets: vec![None],
        connections: BTreeMap::new(),
        listeners: BTreeMap::new(),
        ended: VecDeque::new(),
        links: Links::new(seed),
        schedule: Stream::new(seed, "process", 0, 0),
        trace: Trace::new(comparison),
        has_diverged: false,
        failure: None,
        tasks: 1,
        foreign: Arc::default(),
    };
    CLOCK.set(Some(kernel.base));
    KERNEL.with(|it| it.replace(Some(Box::new(kernel))));
    World(())
}

/// The thread is in a world as long as this exists.
pub(crate) struct World(());

impl Drop for World {
    fn drop(&mut self) {
        let kernel = KERNEL.with(|it| it.replace(None));
        CLOCK.set(None);
        drop(kernel);
    }
}

/// Names a socket of a world, and closes it when it is dropped.
#[derive(Debug)]
pub(crate) struct SimSocket(SimSocketId);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SimSocketId {
    world: u32,
    number: u32,
}

impl Drop for SimSocket {
    fn drop(&mut self) {
        let _ = self.0.with(|kernel, number| {
            kernel.tcp_close(number);
            Ok(())
        });
    }
}

/// What code asks for on a thread that is not the world's.
fn not_here() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "a simulated socket is used outside of its world: on another thread, or after its end",
    )
}

/// The error as a kernel gives it: programs look at its number. (Only Unix: elsewhere it keeps its
/// kind alone.)
fn with_the_systems_number(error: io::Error) -> io::Error {
    #[cfg(unix)]
    {
        use io::ErrorKind::*;

        let number = match error.kind() {
            _ if error.get_ref().is_some() => return error,
            AddrInUse => libc::EADDRINUSE,
            AddrNotAvailable => libc::EADDRNOTAVAIL,
            BrokenPipe => libc::EPIPE,
            ConnectionRefused => libc::ECONNREFUSED,
            ConnectionReset => libc::ECONNRESET,
            InvalidInput => libc::EINVAL,
            NetworkUnreachable => libc::ENETUNREACH,
            NotConnected => libc::ENOTCONN,
            TimedOut => libc::ETIMEDOUT,
            WouldBlock => libc::EAGAIN,
            _ => return error,
        };
        io::Error::from_raw_os_error(number)
    }
    #[cfg(not(unix))]
    error
}

/// What the world does not have.
pub(crate) fn unsupported(what: &str) -> io::Error {
    let words = format!("{what}: not in a simulated world");
    io::Error::new(io::ErrorKind::Unsupported, words)
}

/// The descriptor that is lent for every simulated socket, as signatures that cannot fail demand
/// one: an unconnected socket of the system's, good for nothing. Opened on first use.
pub(crate) fn placeholder() -> io::Result<BorrowedDescriptor<'static>> {
    static PLACEHOLDER: OnceLock<OwnedDescriptor> = OnceLock::new();
    if PLACEHOLDER.get().is_none() {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        // Another thread may have been quicker.
        let _ = PLACEHOLDER.set(socket.into());
    }
    Ok(PLACEHOLDER.get().expect("it was set above").as_descriptor())
}

impl SimSocket {
    fn new(with: impl FnOnce(&mut Kernel) -> io::Result<u32>) -> io::Result<SimSocket> {
        let made = self::with(|kernel| Ok((kernel.world, with(kernel)?)));
        let made = made.unwrap_or_else(|| Err(not_here()));
        let (world, number) = made.map_err(with_the_systems_number)?;
        Ok(SimSocket(SimSocketId { world, number }))
    }

    pub(crate) fn listen(address: SocketAddr, backlog: usize) -> io::Result<SimSocket> {
        SimSocket::new(|kernel| kernel.tcp_listen(address, backlog))
    }

    /// Begins to connect.
    pub(crate) fn connect(address: SocketAddr) -> io::Result<SimSocket> {
        SimSocket::new(|kernel| kernel.tcp_connect(address))
    }

    #[inline]
    pub(crate) fn id(&self) -> SimSocketId {
        self.0
    }
}

impl SimSocketId {
    fn with<R>(self, f: impl FnOnce(&mut Kernel, u32) -> io::Result<R>) -> io::Result<R> {
        let result = with(|kernel| match kernel.world == self.world {
            true => f(kernel, self.number),
            false => Err(not_here()),
        });
        let result = result.unwrap_or_else(|| Err(not_here()));
        result.map_err(with_the_systems_number)
    }

    pub(crate) fn accept(self) -> io::Result<(SimSocket, SocketAddr)> {
        self.with(|kernel, number| {
            let (number, peer) = kernel.tcp_accept(number)?;
            Ok((SimSocket(SimSocketId { number, ..self }), peer))
        })
    }

    pub(crate) fn is_connected(self) -> io::Result<bool> {
        self.with(Kernel::tcp_is_connected)
    }

    pub(crate) fn read(self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.with(|kernel, number| kernel.tcp_read(number, buffers, false))
    }

    pub(crate) fn peek(self, bytes: &mut [u8]) -> io::Result<usize> {
        self.with(|kernel, number| kernel.tcp_read(number, &mut [IoSliceMut::new(bytes)], true))
    }

    pub(crate) fn write(self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.with(|kernel, number| kernel.tcp_write(number, &mut buffers.iter().map(|it| &**it)))
    }

    pub(crate) fn shutdown(self, how: Shutdown) -> io::Result<()> {
        self.with(|kernel, number| kernel.tcp_shutdown(number, how))
    }

    pub(crate) fn local_addr(self) -> io::Result<SocketAddr> {
        self.with(|kernel, number| Ok(kernel.socket(number)?.local))
    }

    pub(crate) fn peer_addr(self) -> io::Result<SocketAddr> {
        self.with(|kernel, number| {
            let socket = kernel.socket(number)?;
            match (socket.state, socket.peer) {
                (State::Connected, Some((_, peer))) if !socket.is_over() => Ok(peer),
                _ => Err(io::ErrorKind::NotConnected.into()),
            }
        })
    }

    pub(crate) fn options<R>(self, f: impl FnOnce(&mut Options) -> R) -> io::Result<R> {
        self.with(|kernel, number| Ok(f(&mut kernel.socket(number)?.options)))
    }

    /// Registers it with the poller of the process whose code runs.
    pub(crate) fn register(self, token: u64, interest: u8) -> io::Result<()> {
        self.with(|kernel, number| {
            let (_, process) = kernel.here()?;
            let socket = kernel.socket(number)?;
            (socket.token, socket.pending) = (Some((process, token, interest)), 0);
            let ready = socket.ready();
            kernel.raise(number, ready);
            Ok(())
        })
    }

    pub(crate) fn deregister(self) -> io::Result<()> {
        self.with(|kernel, number| {
            let socket = kernel.socket(number)?;
            (socket.token, socket.pending) = (None, 0);
            Ok(())
        })
    }
}

/// The addresses of a name, and how long the answer takes. `None` outside of a world.
pub(crate) fn look_up(name: &str) -> Option<io::Result<(IpAddr, Duration)>> {
    with(|kernel| {
        let (host, _) = kernel.here()?;
        // A server of names that is as near as other hosts are.
        let delay = 500_000 + kernel.hosts[host].names.below(1_500_000);
        kernel.note(host, What::Name(delay));
        let address = match kernel.names.get(name) {
            Some(other) => kernel.hosts[*other].address(false),
            None if name == "localhost" => Ipv4Addr::LOCALHOST.into(),
            None => {
                let words = format!("cannot resolve {name:?}: no host has this name");
                return Err(io::Error::new(io::ErrorKind::NotFound, words));
            }
        };
        Ok((address, Duration::from_nanos(delay)))
    })
}

/// Which of `ready` tasks is the next to run, of the process whose code runs.
pub(crate) fn choose_task(ready: usize) -> usize {
    let chosen = with(|kernel| {
        let process = &mut kernel.processes[kernel.current?];
        let chosen = match process.passed_over < MOST_PASSED_OVER {
            true => process.schedule.below(ready as u64) as usize,
            false => 0,
        };
        process.passed_over = match chosen {
            0 => 0,
            _ => process.passed_over + 1,
        };
        Some(chosen)
    });
    chosen.flatten().unwrap_or(0)
}

/// A task is polled.
pub(crate) fn note_poll(task: u64, site: &'static Location<'static>) {
    with(|kernel| {
        let host = kernel
            .current
            .map_or(NOBODY, |it| kernel.processes[it].host);
        kernel.note(host, What::Polled(task, Some(site)));
    });
}

/// The first of so many ids of tasks: a world counts its own. `None` outside of one.
pub(crate) fn take_task_ids(count: u64) -> Option<u64> {
    with(|kernel| {
        let first = kernel.tasks;
        kernel.tasks += count;
        first
    })
}

/// The run has failed.
pub(crate) fn fail(reason: impl FnOnce() -> String) {
    with(|kernel| {
        if kernel.failure.is_none() {
            kernel.failure = Some(reason());
        }
    });
}

/// The end of a process's poller, as its selector knows it.
#[derive(Clone, Debug)]
pub(crate) struct PollerOfProcess {
    world: u32,
    process: usize,
    foreign: Arc<AtomicBool>,
}

impl PollerOfProcess {
    fn with(&self, f: impl FnOnce(&mut Kernel, usize)) {
        with(|kernel| {
            if kernel.world == self.world {
                f(kernel, self.process);
            }
        });
    }

    /// Takes what there is to report, up to a limit: token and readiness.
    pub(crate) fn take(&self, limit: usize, mut report: impl FnMut(u64, u8)) {
        self.with(|kernel, process| {
            for _ in 0..limit {
                let Some(number) = kernel.processes[process].events.pop_front() else {
                    break;
                };
                let Ok(socket) = kernel.socket(number) else {
                    continue;
                };
                // It may be registered with another process since.
                let token = socket.token.filter(|(owner, ..)| *owner == process);
                if let Some((_, token, _)) = token {
                    let pending = std::mem::take(&mut socket.pending);
                    if pending != 0 {
                        report(token, pending);
                    }
                }
            }
            if !kernel.processes[process].events.is_empty() {
                kernel.wake(process);
            }
        });
    }

    /// The process has something to do.
    pub(crate) fn notify(&self) {
        self.woken_on_this_thread();
        self.with(Kernel::wake);
    }

    /// A task of the process was woken on this thread, which is to be the world's.
    pub(crate) fn woken_on_this_thread(&self) {
        if with(|kernel| kernel.world) != Some(self.world) {
            self.foreign.store(true, Ordering::Relaxed);
        }
    }

    /// When the process's earliest timer is due.
    pub(crate) fn arm(&self, deadline: Option<Instant>) {
        self.with(|kernel, process| {
            let at = deadline.map(|it| {
                let after = it.saturating_duration_since(kernel.base);
                link::nanos(after).max(kernel.now)
            });
            let state = &mut kernel.processes[process];
            state.deadline = at;
            if let Some(at) = at {
                if state.deadline_event.is_none_or(|it| it > at) {
                    state.deadline_event = Some(at);
                    kernel.push(at, Event::Deadline(process, at));
                }
            }
        });
    }
}

/// What the world asks.
impl Kernel {
    pub(crate) fn add_host(&mut self, name: &str) -> usize {
        if let Some(host) = self.names.get(name) {
            return *host;
        }
        let index = self.hosts.len();
        let number = u16::try_from(index + 1).expect("fewer than 65,535 hosts");
        let [high, low] = number.to_be_bytes();
        self.hosts.push(HostState {
            name: name.to_owned(),
            is_up: true,
            pauses: 0,
            next_port: *PORTS.start(),
            names: Stream::new(self.seed, "names", index, 0),
            v4: Ipv4Addr::new(10, 0, high, low),
            v6: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number),
        });
        self.names.insert(name.to_owned(), index);
        index
    }

    pub(crate) fn find_host(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    pub(crate) fn host_name(&self, host: usize) -> &str {
        self.hosts.get(host).map_or("nobody", |it| &it.name)
    }

    pub(crate) fn host_address(&self, host: usize) -> IpAddr {
        self.hosts[host].address(false)
    }

    pub(crate) fn is_up(&self, host: usize) -> bool {
        self.hosts[host].is_up
    }

    pub(crate) fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// A process begins on a host, which is switched on.
    pub(crate) fn start(&mut self, host: usize) -> (usize, PollerOfProcess) {
        self.hosts[host].is_up = true;
        let process = self.processes.len();
        self.processes.push(ProcessState {
            host,
            is_alive: true,
            is_ready: false,
            events: VecDeque::new(),
            deadline: None,
            deadline_event: None,
            schedule: Stream::new(self.seed, "tasks", process, 0),
            passed_over: 0,
        });
        self.note(host, What::Started);
        let poller = PollerOfProcess {
            world: self.world,
            process,
            foreign: self.foreign.clone(),
        };
        (process, poller)
    }

    /// A process ends: the kernel closes its sockets, or, without power, says nothing to anybody.
    pub(crate) fn stop(&mut self, process: usize, what: What) {
        let host = self.processes[process].host;
        if !std::mem::replace(&mut self.processes[process].is_alive, false) {
            return;
        }
        self.ready.retain(|it| *it != process);
        self.note(host, what);
        let ids: Vec<u32> = self.ids().collect();
        for id in ids {
            let Ok(socket) = self.socket(id) else {
                continue;
            };
            // Those of a host without power are forgotten below.
            let is_silent = what == What::PoweredOff && socket.host == host;
            if socket.process == Some(process) && !is_silent {
                self.tcp_close(id);
            }
        }
        if what == What::PoweredOff {
            self.power_off(host);
        }
    }

    /// A host without power: its connections and listeners are forgotten.
    pub(crate) fn power_off(&mut self, host: usize) {
        self.hosts[host].is_up = false;
        let is_there = |it: &Tcp| it.host == host;
        let gone = self.sockets.iter_mut().filter_map(|it| {
            let is_there = it.as_deref().is_some_and(is_there);
            if is_there { it.take() } else { None }
        });
        let gone: Vec<Box<Tcp>> = gone.collect();
        self.connections.retain(|key, _| key.0 != host);
        self.listeners.retain(|key, _| key.0 != host);
        self.ended
            .retain(|(_, id)| self.sockets[*id as usize].is_some());
        for (local, peer) in gone.iter().filter_map(|it| Some((it.local, it.peer?))) {
            self.warn_peer(local, peer);
        }
    }

    pub(crate) fn power_on_all(&mut self) {
        self.hosts.iter_mut().for_each(|it| it.is_up = true);
    }

    pub(crate) fn pause(&mut self, host: usize, pauses: bool) {
        let count = &mut self.hosts[host].pauses;
        *count = match pauses {
            true => *count + 1,
            false => *count - 1,
        };
        let what = match pauses {
            true => What::Paused,
            false => What::Resumed,
        };
        self.note(host, what);
    }

    pub(crate) fn change_links(
        &mut self,
        link: Option<(usize, usize)>,
        f: impl Fn(&mut link::Settings),
    ) {
        self.links.change(link, f);
    }

    pub(crate) fn cut(&mut self, from: usize, to: usize) {
        self.links.get(from, to).cuts += 1;
        self.note(from, What::Cut(to));
    }

    pub(crate) fn heal(&mut self, from: usize, to: usize) {
        let link = self.links.get(from, to);
        link.cuts = link.cuts.saturating_sub(1);
        self.note(from, What::Healed(to));
    }

    pub(crate) fn hold(&mut self, from: usize, to: usize) {
        self.links.get(from, to).holds += 1;
    }

    pub(crate) fn release(&mut self, from: usize, to: usize) {
        let link = self.links.get(from, to);
        link.holds = link.holds.saturating_sub(1);
        if link.holds == 0 {
            for segment in std::mem::take(&mut link.held) {
                self.push(self.now, Event::Segment(segment));
            }
        }
    }

    /// Ends every cut, hold and pause.
    pub(crate) fn heal_all(&mut self) {
        let mut held = Vec::new();
        for (_, link) in self.links.all() {
            (link.cuts, link.holds) = (0, 0);
            held.append(&mut link.held);
        }
        for segment in held {
            self.push(self.now, Event::Segment(segment));
        }
        self.hosts.iter_mut().for_each(|it| it.pauses = 0);
    }

    /// Resets every connection between two hosts, on both sides at once.
    pub(crate) fn reset_between(&mut self, a: usize, b: usize) {
        self.note(a, What::Reset(b));
        for id in self.ids().collect::<Vec<u32>>() {
            let is_between = self.socket(id).is_ok_and(|it| {
                let peer = it.peer.map(|(host, _)| host);
                let ends = [(a, Some(b)), (b, Some(a))];
                it.state == State::Connected && ends.contains(&(it.host, peer))
            });
            if is_between {
                self.fail(id, io::ErrorKind::ConnectionReset);
            }
        }
    }

    pub(crate) fn set_current(&mut self, process: Option<usize>) {
        self.current = process;
    }

    /// Which process is the next to run: any that has something to do, and is not paused.
    pub(crate) fn next_process(&mut self) -> Option<usize> {
        let (hosts, processes) = (&self.hosts, &self.processes);
        let may_run = |it: &&usize| hosts[processes[**it].host].pauses == 0;
        let count = self.ready.iter().filter(may_run).count();
        if count == 0 {
            return None;
        }
        let chosen = match self.passed_over < MOST_PASSED_OVER {
            true => self.schedule.below(count as u64) as usize,
            false => 0,
        };
        let process = *self.ready.iter().filter(may_run).nth(chosen)?;
        self.passed_over = match chosen {
            0 => 0,
            _ => self.passed_over + 1,
        };
        self.ready.retain(|it| *it != process);
        self.processes[process].is_ready = false;
        Some(process)
    }

    /// When the next event happens.
    pub(crate) fn next_event(&mut self) -> Option<u64> {
        loop {
            let Reverse(entry) = self.events.peek()?;
            let at = entry.at;
            let is_due = match entry.event {
                Event::Segment(_) => true,
                Event::Retransmit(id, at) => self.tcp_is_due(id, at),
                Event::Deadline(process, at) => self.is_deadline(process, at),
            };
            if is_due {
                return Some(at);
            }
            self.events.pop();
        }
    }

    /// Lets the next event happen, for which [`next_event`](Self::next_event) was asked just now.
    pub(crate) fn advance(&mut self) {
        let Some(Reverse(Entry { at, event, .. })) = self.events.pop() else {
            return;
        };
        self.set_now(at);
        self.tcp_forget();
        match event {
            Event::Segment(segment) => self.deliver(segment),
            Event::Retransmit(id, _) => self.tcp_retransmit(id),
            Event::Deadline(process, _) => {
                self.processes[process].deadline = None;
                self.wake(process);
            }
        }
    }

    pub(crate) fn set_now(&mut self, at: u64) {
        self.now = at.max(self.now);
        CLOCK.set(Some(self.base + Duration::from_nanos(self.now)));
    }

    /// Nanoseconds since the world began.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn has_diverged(&self) -> bool {
        self.has_diverged
    }

    pub(crate) fn failure(&self) -> Option<&String> {
        self.failure.as_ref()
    }

    pub(crate) fn was_notified_from_elsewhere(&self) -> bool {
        self.foreign.load(Ordering::Relaxed)
    }

    pub(crate) fn note(&mut self, host: usize, what: What) {
        self.has_diverged |= !self.trace.note(self.now, host, what);
    }

    /// The sockets of a process, for reports.
    pub(crate) fn describe_sockets(&self, process: usize) -> Vec<String> {
        let sockets = self.sockets.iter().flatten();
        let ours = sockets.filter(|it| it.process == Some(process));
        ours.map(|it| it.describe(|host| self.host_name(host).to_owned()))
            .collect()
    }

    pub(crate) fn is_paused(&self, host: usize) -> bool {
        self.hosts[host].pauses > 0
    }

    fn is_deadline(&mut self, process: usize, at: u64) -> bool {
        let state = &mut self.processes[process];
        if state.deadline_event != Some(at) {
            return false;
        }
        state.deadline_event = None;
        match state.deadline {
            Some(deadline) if state.is_alive && deadline <= at => return true,
            // It was pushed back since.
            Some(deadline) if state.is_alive => {
                state.deadline_event = Some(deadline);
                self.push(deadline, Event::Deadline(process, deadline));
            }
            _ => {}
        }
        false
    }

    fn deliver(&mut self, segment: Segment) {
        let (from, to) = (segment.from.0, segment.to.0);
        if from != to {
            let link = self.links.get(from, to);
            if link.cuts > 0 {
                return self.tcp_lost(segment);
            }
            if link.holds > 0 {
                return link.held.push(segment);
            }
        }
        match self.hosts.get(to).is_some_and(|it| it.is_up) {
            true => self.tcp_arrives(segment),
            false => self.tcp_lost(segment),
        }
    }

    /// The host and the process whose code runs.
    fn here(&self) -> io::Result<(usize, usize)> {
        match self.current {
            Some(process) if self.processes[process].is_alive => {
                Ok((self.processes[process].host, process))
            }
            Some(_) => Err(io::Error::other("the process of this host has ended")),
            None => Err(unsupported("the network outside of a host's process")),
        }
    }

    fn push(&mut self, at: u64, event: Event) {
        self.pushed += 1;
        self.events.push(Reverse(Entry {
            at,
            number: self.pushed,
            event,
        }));
    }

    /// The process has something to do.
    fn wake(&mut self, process: usize) {
        let state = &mut self.processes[process];
        if state.is_alive && !std::mem::replace(&mut state.is_ready, true) {
            self.ready.push(process);
        }
    }

    /// A socket is ready anew, which its poller is to report.
    fn raise(&mut self, number: u32, ready: u8) {
        let Ok(socket) = self.socket(number) else {
            return;
        };
        let Some((process, _, interest)) = socket.token else {
            return;
        };
        let ready = ready & (interest | CLOSED | ERROR);
        if ready != 0 {
            let before = socket.pending;
            socket.pending |= ready;
            if before == 0 {
                self.processes[process].events.push_back(number);
            }
            self.wake(process);
        }
    }

    fn socket(&mut self, number: u32) -> io::Result<&mut Tcp> {
        let socket = self.sockets.get_mut(number as usize);
        socket
            .and_then(|it| it.as_deref_mut())
            .ok_or_else(|| io::Error::other("the process that had this socket has ended"))
    }

    fn insert(&mut self, socket: Tcp) -> u32 {
        let number = u32::try_from(self.sockets.len()).expect("fewer than 2^32 sockets");
        self.sockets.push(Some(Box::new(socket)));
        number
    }

    fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        let sockets = self.sockets.iter().enumerate();
        sockets.filter_map(|(index, it)| it.is_some().then_some(index as u32))
    }

    /// Whose address that is, seen from `host`.
    fn host_at(&self, host: usize, address: SocketAddr) -> (usize, SocketAddr) {
        let ip = address.ip();
        if ip.is_loopback() {
            return (host, address);
        }
        if ip.is_unspecified() {
            let loopback: IpAddr = match ip.is_ipv6() {
                true => Ipv6Addr::LOCALHOST.into(),
                false => Ipv4Addr::LOCALHOST.into(),
            };
            return (host, SocketAddr::new(loopback, address.port()));
        }
        let number = match ip {
            IpAddr::V4(ip) => u16::from_be_bytes([ip.octets()[2], ip.octets()[3]]),
            IpAddr::V6(ip) => ip.segments()[7],
        };
        let index = usize::from(number).wrapping_sub(1);
        let is_that = |it: &HostState| it.address(ip.is_ipv6()) == ip;
        let found = self.hosts.get(index).is_some_and(is_that);
        (if found { index } else { NOBODY }, address)
    }

    fn bind_tcp(&mut self, host: usize, mut local: SocketAddr) -> io::Result<SocketAddr> {
        let ip = local.ip();
        let is_ours = ip.is_unspecified() || self.host_at(host, local).0 == host;
        if !is_ours {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        if local.port() == 0 {
            local.set_port(self.free_port(host)?);
        }
        let others = self.listeners.get(&(host, local.port()));
        let is_taken = others.into_iter().flatten().any(|id| {
            let other = self.sockets[*id as usize].as_ref().map(|it| it.local.ip());
            other.is_some_and(|it| it == ip || it.is_unspecified() || ip.is_unspecified())
        });
        match is_taken {
            true => Err(io::ErrorKind::AddrInUse.into()),
            false => Ok(local),
        }
    }

    fn free_port(&mut self, host: usize) -> io::Result<u16> {
        for _ in PORTS {
            let port = self.hosts[host].next_port;
            self.hosts[host].next_port = match port == *PORTS.end() {
                true => *PORTS.start(),
                false => port + 1,
            };
            if !self.listeners.contains_key(&(host, port)) && !self.is_connected_from(host, port) {
                return Ok(port);
            }
        }
        Err(io::ErrorKind::AddrNotAvailable.into())
    }

    fn is_connected_from(&self, host: usize, port: u16) -> bool {
        let least = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let ips = [
            self.hosts[host].address(false),
            self.hosts[host].address(true),
            Ipv4Addr::LOCALHOST.into(),
            Ipv6Addr::LOCALHOST.into(),
        ];
        ips.into_iter().any(|ip| {
            let local = SocketAddr::new(ip, port);
            let first = self.connections.range((host, local, least)..).next();
            first.is_some_and(|((at, address, _), _)| (*at, *address) == (host, local))
        })
    }

    fn listener_at(&self, host: usize, local: SocketAddr) -> Option<u32> {
        let listeners = self.listeners.get(&(host, local.port()))?;
        let takes = |id: &&u32| {
            let at = self.sockets[**id as usize].as_ref().map(|it| it.local.ip());
            at.is_some_and(|at| {
                at == local.ip() || at.is_unspecified() && (at.is_ipv6() || local.is_ipv4())
            })
        };
        listeners.iter().find(takes).copied()
    }
}
