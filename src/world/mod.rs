//! The simulated kernel: serves a world's system calls in place of the operating system's kernel.
//!
//! It holds the clock, the hosts' addresses and names, the sockets, and everything under way
//! between them; and for each process the events that its poller has to report. It knows neither
//! tasks nor runtimes, and calls nothing outside: processes that become ready are put on a list
//! that the world takes. So no foreign code runs while the kernel is borrowed.
//!
//! A thread has at most one kernel at a time, in a thread-local. The modules below `sim` make their
//! requests here: this is the seam. A [`SimSocket`] is plain data that names a socket; on a thread
//! without the socket's world its calls return an error.

pub(crate) mod address;
pub(crate) mod answers;
#[cfg(feature = "blocking")]
pub(crate) mod blocking;
mod bytes;
pub(crate) mod choice;
pub(crate) mod clock;
pub(crate) mod disk;
pub(crate) mod disk_calls;
mod errno;
mod event;
mod event_queue;
pub(crate) mod faults;
pub(crate) mod host_faults;
pub(crate) mod latency;
pub(crate) mod link;
pub(crate) mod names;
pub(crate) mod order;
pub(crate) mod parting;
pub(crate) mod progress;
mod registrations;
mod sectors;
#[cfg(feature = "signal")]
pub(crate) mod signals;
mod sockets;
pub(crate) mod step;
mod tcp;
#[cfg(test)]
mod tcp_tests;
pub(crate) mod trace;
mod udp;
#[cfg(unix)]
mod unix;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::ops::Range;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::sys::{AsDescriptor, BorrowedDescriptor, OwnedDescriptor, TcpOption};
use address::Address;
use answers::Asked;
use choice::Probability;
use errno::Errno;
use event_queue::{Events, Place};
use faults::{Faults, Kept, Kind};
use host_faults::HostFaults;
use latency::Latency;
use link::Links;
pub(crate) use order::MAX_PASSED_OVER;
use order::{Order, Queue};
use progress::{Call, Progress};
use sockets::Other;
use step::Step;
pub(crate) use tcp::{CLOSED, ERROR, READABLE, WRITABLE};
use tcp::{Segment, State, Tcp};
use trace::{Comparison, Difference, Trace, What};
use udp::Datagram;

/// The error of a call on a socket that its host's kernel has forgotten.
fn gone() -> io::Error {
    io::Error::other("the process that had this socket has ended")
}

/// The ephemeral ports, assigned to sockets that ask for none: Linux's `ip_local_port_range`.
const PORTS: std::ops::RangeInclusive<u16> = 32_768..=60_999;

/// The least length at which a host's list of sockets is cleared of those that are gone. The next
/// limit is twice the number that was left, so clearing costs each socket the same.
const LIST: usize = 16;

/// The limit of clock readings in one step: a program that exceeds it is waiting for the clock in a
/// loop. Reaching the limit takes a test half a second without optimisation.
const MAX_READINGS: u32 = 1_000_000;

/// The limit of what a host may send at one moment, in datagrams counted by KiB: beyond it the host
/// is in a livelock. It equals the default limit of a world's steps at one moment, and amounts to
/// at most 100 MB.
const MAX_SENT: usize = 100_000;

/// A host that does not exist: segments to it are lost. The number is the same on every platform,
/// because it is part of fingerprints.
const NOBODY: usize = u32::MAX as usize;

/// The number of the test's own host, which is the first one.
pub(crate) const TEST: usize = 0;

/// The options of a socket: read back as they were set, and refused where Linux refuses them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    pub(crate) linger: Option<Duration>,
    pub(crate) nodelay: bool,
    pub(crate) ttl: u32,
    pub(crate) broadcast: bool,
    pub(crate) keepalive: bool,
    keep_idle: u32,
    keep_interval: u32,
    keep_count: u32,
    user_timeout: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            linger: None,
            nodelay: false,
            ttl: 64,
            broadcast: false,
            keepalive: false,
            keep_idle: 7_200,
            keep_interval: 75,
            keep_count: 9,
            user_timeout: 0,
        }
    }
}

impl Options {
    /// Sets the linger time, in whole seconds as a kernel does.
    pub(crate) fn set_linger(&mut self, linger: Option<Duration>) {
        self.linger = linger.map(|it| Duration::from_secs(it.as_secs()));
    }

    pub(crate) fn set_ttl(&mut self, ttl: u32) -> io::Result<()> {
        // ip(7): IP_TTL.
        if !(1..=255).contains(&ttl) {
            return Err(Errno::InvalidInput.into());
        }
        self.ttl = ttl;
        Ok(())
    }

    pub(crate) fn tcp(&mut self, option: TcpOption) -> &mut u32 {
        match option {
            TcpOption::KeepIdle => &mut self.keep_idle,
            TcpOption::KeepInterval => &mut self.keep_interval,
            TcpOption::KeepCount => &mut self.keep_count,
            TcpOption::UserTimeout => &mut self.user_timeout,
        }
    }
}

pub(crate) struct Kernel {
    world: u32,
    base: Instant,
    /// Whether the world answers the C library's calls.
    is_libc: bool,
    seed: u64,
    /// The time in nanoseconds since the world began.
    now: u64,
    /// The time that this thread reads: that of the current host.
    shown: u64,
    /// Whether any host's clock was set.
    has_clocks: bool,
    /// Whether any host has had random faults.
    has_faults: bool,
    /// Random faults of all hosts, used where a host's own are less probable.
    faults_by_chaos: HostFaults,
    events: Events,
    hosts: Vec<HostState>,
    names: BTreeMap<String, usize>,
    processes: Vec<ProcessState>,
    /// The number of workers of each process that starts from now on, unless its host has its own
    /// setting.
    workers: usize,
    /// The pollers of all processes: one for each worker.
    pollers: Vec<PollerState>,
    /// The pollers of ready workers, in the order in which they became ready.
    ready: Vec<usize>,
    /// The pauses in effect, of which a host may have several; and how many pauses there have been.
    pauses: Vec<(PauseId, usize)>,
    pauses_begun: u32,
    /// The running process, and the poller of its running worker.
    current: Option<usize>,
    current_poller: usize,
    /// The TCP sockets, by number.
    sockets: Vec<Option<Box<Tcp>>>,
    /// All other sockets, by number.
    others: BTreeMap<u32, Other>,
    udp_ports: BTreeMap<(usize, u16), Vec<u32>>,
    /// The socket that has each name, or had it last.
    #[cfg(unix)]
    unix_names: BTreeMap<unix::Key, u32>,
    connections: BTreeMap<(usize, SocketAddr, SocketAddr), u32>,
    listeners: BTreeMap<(usize, u16), Vec<u32>>,
    ended: VecDeque<(u64, u32)>,
    /// The sockets that may owe their peer an acknowledgement.
    owing: Vec<u32>,
    /// Segments that are done, kept to reuse their memory: the boxes, and the bytes in them.
    #[allow(clippy::vec_box)]
    spare: Vec<Box<Segment>>,
    links: Links,
    /// Whether the queue of events also has those that could be left out of it: see `tcp`.
    #[cfg(test)]
    has_all_events: bool,
    pub(crate) faults: Faults,
    /// The numbers of the chaos actions that are due.
    due: VecDeque<u64>,
    /// The lowest number of a chaos action that was not called off.
    first_chaos: u64,
    dns: names::Names,
    /// Chooses the next worker of all processes; and the order of workers and of tasks.
    schedule: Queue,
    order: Order,
    /// Whether the order is fixed: `set_order` does nothing.
    keeps_order: bool,
    /// Whether the world is calm: see [`be_calm`](Kernel::be_calm).
    is_calm: bool,
    pub(crate) trace: Trace,
    /// The log and the observer of this run's events, if it has either.
    observed: Option<Box<Observed>>,
    has_diverged: bool,
    failure: Option<Failure>,
    pub(crate) remarks: Remarks,
    /// Whether the run goes on after contained panics.
    permits_panics: bool,
    /// Panics of tasks that have ended, neither awaited nor reported yet: where the task was
    /// spawned, and the panic's message.
    held_panics: Vec<(&'static Location<'static>, String)>,
    /// Whether the values being dropped now are left from a process that was killed.
    drops_killed: bool,
    tasks: u64,
    /// The claims of `sometimes!`, and whether each was true.
    sometimes: BTreeMap<String, bool>,
    progress: Arc<Progress>,
    /// Pairs of hosts where code of the first has woken a task of the second directly, with the
    /// time when that happened first.
    shortcuts: BTreeMap<(usize, usize), u64>,
    /// The host of the process that was polled when this run first differed from the one that it is
    /// compared with.
    diverged_on: Option<usize>,
    /// The limit of a host's connects per second.
    max_connects: u32,
    /// The limit of a host's datagrams per second.
    max_datagrams: u32,
    foreign: Arc<AtomicBool>,
}

/// The settings of logging and of the observer, and the events kept for the latter.
struct Observed {
    /// Whether each event is printed.
    logs: bool,
    /// The events that [`Sim::on_step`](super::Sim::on_step) has not received yet, if it is in use.
    untold: Option<Vec<Step>>,
}

/// The reason for which a run has failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) reason: String,
    /// The cause that runs have in common if they fail for the same reason: the check's name, or
    /// where a panic came from.
    pub(crate) cause: String,
    /// The time of the failure, if it was found later.
    pub(crate) at: Option<u64>,
}

/// Actions in a run that may explain strange behaviour: for reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remarks {
    /// Whether the program has asked for the descriptor of a simulated socket.
    pub(crate) is_lent: bool,
    /// Whether the test has set a loss that few connections survive.
    pub(crate) is_lossy: bool,
}

impl Remarks {
    /// Returns the remarks as text, a line each.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if self.is_lent {
            words.push(
                "a descriptor of a simulated socket was asked for: what is done with it, the world \
                 does not see"
                    .to_owned(),
            );
        }
        if self.is_lossy {
            words.push(
                "a loss of more than 0.5 was set: TCP hardly lives with that, and gives up after \
                 some tries"
                    .to_owned(),
            );
        }
        words
    }
}

struct HostState {
    name: String,
    is_up: bool,
    connects: InASecond,
    datagrams: InASecond,
    /// The time at which the host last sent a datagram or connected, and the count at that moment,
    /// by KiB.
    sent: (u64, usize),
    next_port: u16,
    /// The number of workers of the host's next process, if it has its own setting.
    workers: Option<usize>,
    /// The host's TCP sockets, in the order of their numbers; the numbers of sockets that are gone
    /// may still be in it.
    sockets: Vec<u32>,
    /// The length at which `sockets` is cleared of those that are gone.
    max_sockets: usize,
    questions: names::Questions,
    clock: clock::Clock,
    past_clocks: clock::Past,
    wall: clock::Wall,
    #[cfg(feature = "blocking")]
    delays: blocking::Delays,
    faults: host_faults::FaultsOfHost,
    /// The host's disk, created on first use.
    disk: Option<Box<disk_calls::DiskOfHost>>,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

/// A count of something in one second of the world.
#[derive(Default)]
struct InASecond {
    /// The second in which it happened last.
    second: u64,
    count: u32,
}

impl InASecond {
    /// Counts an occurrence now. Returns the count in this second.
    fn add(&mut self, now: u64) -> u32 {
        let second = now / 1_000_000_000;
        if std::mem::replace(&mut self.second, second) != second {
            self.count = 0;
        }
        self.count += 1;
        self.count
    }
}

impl HostState {
    fn address(&self, is_v6: bool) -> IpAddr {
        if is_v6 {
            self.v6.into()
        } else {
            self.v4.into()
        }
    }
}

struct ProcessState {
    host: usize,
    is_alive: bool,
    /// The places of the process's pollers; the last one is the main worker's.
    pollers: Range<usize>,
    /// Chooses the next of the tasks that no pool worker has taken, if the process has a pool.
    injected: Option<Box<Queue>>,
    #[cfg(feature = "signal")]
    signals: signals::Counts,
    /// Calls that are due, and wait for the end of a pause.
    #[cfg(feature = "blocking")]
    stalled: Vec<Arc<dyn crate::pool::Job>>,
}

/// A worker's poller: the events that it has to report, and when it wakes the worker.
struct PollerState {
    process: usize,
    /// The host of its process: avoids a dependent load.
    host: usize,
    is_alive: bool,
    is_ready: bool,
    /// The sockets that have something to report.
    events: VecDeque<u32>,
    /// The deadline that was armed last and has not passed, by the host's clock.
    timer: Option<Instant>,
    deadline: Option<u64>,
    /// The delay that is added to the timer.
    late: u64,
    deadline_event: Option<u64>,
    /// Chooses the next of the worker's ready tasks; if it is a pool's, the worker that polls it.
    schedule: Queue,
    /// If it is the poller of a pool: those of the pool's workers, and the one that was chosen
    /// last.
    members: Option<(Range<usize>, usize)>,
}

enum Event {
    Segment(Box<Segment>),
    Datagram(Box<Datagram>),
    /// Boxed, so that an event is two words.
    #[cfg(feature = "blocking")]
    Blocking(Box<blocking::PendingCall>),
    /// The retransmission timer of this socket.
    Retransmit(u32),
    /// The keepalive timer of this socket.
    Keepalive(u32),
    /// A router's message to this socket that its peer is unreachable.
    Unreachable(u32),
    /// The earliest timer of this poller's worker.
    Deadline(usize),
    /// The chaos action of this number.
    Chaos(u64),
}

/// The next action of the world.
pub(crate) enum Turn {
    /// The run has failed, or has diverged.
    Stop,
    /// A task was woken by another thread.
    WokenFromElsewhere,
    /// The time, and the poller of the worker that runs next, if any is ready.
    Next(u64, Option<usize>),
}

/// The result of letting time pass.
pub(crate) enum Advance {
    /// An event has happened: its time, a call that is due then, and whether chaos is due.
    Happened(u64, Due, bool),
    /// The next event is at this time, which is after the limit.
    Late(u64),
    /// No event will ever happen.
    Never,
}

/// A call of `unblock` that is due.
#[cfg(feature = "blocking")]
pub(crate) type Due = Option<blocking::Due>;

/// Without `unblock` no call is ever due.
#[cfg(not(feature = "blocking"))]
pub(crate) type Due = Option<std::convert::Infallible>;

/// The fate of a message at the end of its link.
enum Passage<'a> {
    Lost,
    /// It is held there, under this number.
    Held(u64, &'a mut Vec<(u64, Event)>),
    Arrives,
}

thread_local! {
    /// The time of this thread's world. It is kept outside of the kernel, so that reading it is a
    /// load.
    static CLOCK: Cell<Option<Instant>> = const { Cell::new(None) };
    /// [`World`] drops it: so the thread-local has no destructor, and accesses need not check for
    /// one.
    static KERNEL: RefCell<ManuallyDrop<Option<Box<Kernel>>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };
    /// The number of clock readings by the program in this step.
    static READINGS: Cell<u32> = const { Cell::new(0) };
    /// The last panics of this thread that were not reported yet.
    static PANICS: RefCell<VecDeque<Panic>> = const { RefCell::new(VecDeque::new()) };
}

/// The limit of panics that wait to be reported: those of tasks that are never awaited.
const MAX_PANICS: usize = 256;

/// A panic, identified by its message.
struct Panic {
    site: Option<String>,
    words: String,
}

/// Returns the time of this thread's world, if it is in one.
#[inline]
pub(crate) fn now() -> Option<Instant> {
    CLOCK.get()
}

/// Returns the earliest time of the world at which the current host's clock may have shown `at`.
/// Outside of a world that is `at` itself.
pub(crate) fn earliest(at: Instant) -> Instant {
    with(|kernel| kernel.world_time(at, false)).unwrap_or(at)
}

/// Returns the latest such time: see [`earliest`].
pub(crate) fn latest(at: Instant) -> Instant {
    with(|kernel| kernel.world_time(at, true)).unwrap_or(at)
}

/// Counts a reading of the clock by the program.
///
/// # Panics
///
/// If the program has read the clock so often in one step that it must be waiting for it.
#[inline]
pub(crate) fn count_reading() {
    if !is_here() {
        return;
    }
    let readings = READINGS.get() + 1;
    READINGS.set(readings);
    if readings > MAX_READINGS {
        READINGS.set(0);
        panic!(
            "polder::sim: the clock was read {MAX_READINGS} times in one step, in which no time \
             passes: a loop that waits for it never ends"
        );
    }
}

/// Returns whether this thread is in a world.
#[inline]
pub(crate) fn is_here() -> bool {
    CLOCK.get().is_some()
}

/// Calls `f` with this thread's kernel, if there is one. `f` must not run foreign code.
pub(crate) fn with<R>(f: impl FnOnce(&mut Kernel) -> R) -> Option<R> {
    KERNEL.with(|kernel| kernel.borrow_mut().as_deref_mut().map(f))
}

/// Names a pause of a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PauseId(u32);

/// A marker for handles that act on a world when they are dropped: keeps them on that world's
/// thread.
pub(crate) type StaysHere = PhantomData<*const ()>;

/// The simplifications of a run, which override the seed and the test.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Simpler {
    /// Whether each segment takes the mean of its link's latency.
    pub(crate) is_even: bool,
    /// Whether ready workers and tasks run first in, first out.
    pub(crate) is_fifo: bool,
    /// Values used in place of the test's own choices, by the choice's number, counted from one.
    pub(crate) chosen: BTreeMap<u64, u64>,
}

/// The configuration of a world.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) comparison: Comparison,
    /// The faults that may happen, if others are left out.
    pub(crate) kept: Option<Kept>,
    pub(crate) simpler: Simpler,
    /// Whether more of the events is kept, for a picture.
    pub(crate) records: bool,
    /// Whether panics are not printed, as the same one was printed before.
    pub(crate) is_quiet: bool,
    /// Whether each event is printed as it happens.
    pub(crate) logs: bool,
    /// The failure that this run reproduces, reported if the run never ends.
    pub(crate) found: Option<Arc<str>>,
}

/// Begins a world on this thread. The world ends when the result is dropped.
pub(crate) fn begin(seed: u64, setup: Setup) -> World {
    static WORLDS: AtomicU32 = AtomicU32::new(0);
    assert!(!is_here(), "polder::sim: this thread is in a world already");
    let mut links = Links::new(seed);
    links.is_even = setup.simpler.is_even;
    let order = if setup.simpler.is_fifo {
        Order::Fifo
    } else {
        Order::Random
    };
    // From here on the world answers the C library's calls, if the program has enabled that. This
    // includes the reading of the clock below, which is then the same in every world.
    answers::begin(seed);
    let kernel = Kernel {
        world: WORLDS.fetch_add(1, Ordering::Relaxed),
        base: Instant::now(),
        is_libc: answers::asked() != Asked::default(),
        seed,
        now: 0,
        shown: 0,
        has_clocks: false,
        has_faults: false,
        faults_by_chaos: HostFaults::default(),
        events: Events::default(),
        hosts: Vec::new(),
        names: BTreeMap::new(),
        processes: Vec::new(),
        workers: 1,
        pollers: Vec::new(),
        ready: Vec::new(),
        pauses: Vec::new(),
        pauses_begun: 0,
        current: None,
        current_poller: 0,
        // No socket has the number zero.
        sockets: vec![None],
        others: BTreeMap::new(),
        udp_ports: BTreeMap::new(),
        #[cfg(unix)]
        unix_names: BTreeMap::new(),
        connections: BTreeMap::new(),
        listeners: BTreeMap::new(),
        ended: VecDeque::new(),
        owing: Vec::new(),
        spare: Vec::new(),
        links,
        #[cfg(test)]
        has_all_events: false,
        faults: Faults::new(setup.kept),
        due: VecDeque::new(),
        first_chaos: 0,
        dns: names::Names::new(),
        schedule: Queue::new(seed, "process", 0, order),
        order,
        keeps_order: setup.simpler.is_fifo,
        is_calm: false,
        trace: Trace::new(setup.comparison, setup.records),
        observed: setup.logs.then(|| {
            let (logs, untold) = (true, None);
            Box::new(Observed { logs, untold })
        }),
        has_diverged: false,
        failure: None,
        remarks: Remarks::default(),
        permits_panics: false,
        held_panics: Vec::new(),
        drops_killed: false,
        tasks: 1,
        sometimes: BTreeMap::new(),
        progress: Arc::default(),
        shortcuts: BTreeMap::new(),
        diverged_on: None,
        max_connects: u32::MAX,
        max_datagrams: u32::MAX,
        foreign: Arc::default(),
    };
    // Readings by destructors at the end of another world are not this world's.
    READINGS.set(0);
    CLOCK.set(Some(kernel.base));
    KERNEL.set(ManuallyDrop::new(Some(Box::new(kernel))));
    World(())
}

/// Keeps this thread in a world until it is dropped.
pub(crate) struct World(());

impl Drop for World {
    fn drop(&mut self) {
        let kernel = ManuallyDrop::into_inner(KERNEL.replace(ManuallyDrop::new(None)));
        CLOCK.set(None);
        drop(kernel);
        // The thread may enter another world.
        PANICS.take();
        answers::end();
    }
}

/// Names a socket of a world, and closes it on drop.
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
            kernel.close(number);
            Ok(())
        });
    }
}

/// The error of a call on a thread that is not the world's.
fn not_here() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "a simulated socket is used outside of its world: on another thread, or after its end",
    )
}

/// The error of a call that a simulated world does not support.
pub(crate) fn unsupported(what: &str) -> io::Error {
    let words = format!("{what}: not in a simulated world");
    io::Error::new(io::ErrorKind::Unsupported, words)
}

/// Returns the descriptor that is lent for every simulated socket, because some signatures cannot
/// fail and need one. It is opened on first use and shared by all worlds, so operations on it must
/// leave no trace that another world could see.
pub(crate) fn placeholder() -> io::Result<BorrowedDescriptor<'static>> {
    static PLACEHOLDER: OnceLock<OwnedDescriptor> = OnceLock::new();
    if PLACEHOLDER.get().is_none() {
        // Another thread may have set it first.
        let _ = PLACEHOLDER.set(open_placeholder()?);
    }
    Ok(PLACEHOLDER.get().expect("it was set above").as_descriptor())
}

/// Opens a descriptor that is no socket, so that all socket calls on it fail. On Linux it names a
/// directory without opening it (`O_PATH`), and has neither flags nor a position; elsewhere it is
/// the directory, opened for reading.
#[cfg(unix)]
fn open_placeholder() -> io::Result<OwnedDescriptor> {
    use rustix::fs::{Mode, OFlags, open};

    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let flags = flags | OFlags::PATH;
    Ok(open("/", flags, Mode::empty())?)
}

/// Opens an unconnected socket: only a socket can be lent as one.
#[cfg(windows)]
fn open_placeholder() -> io::Result<OwnedDescriptor> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    Ok(socket.into())
}

/// Notes that the program has asked for a simulated socket's descriptor.
pub(crate) fn note_lent() {
    with(|kernel| kernel.remarks.is_lent = true);
}

impl SimSocket {
    fn new(with: impl FnOnce(&mut Kernel) -> io::Result<u32>) -> io::Result<SimSocket> {
        SimSocket::new_ones(|kernel| Ok([with(kernel)?])).map(|[it]| it)
    }

    /// Creates `N` sockets by one call.
    fn new_ones<const N: usize>(
        with: impl FnOnce(&mut Kernel) -> io::Result<[u32; N]>,
    ) -> io::Result<[SimSocket; N]> {
        let made = self::with(|kernel| {
            kernel.take_descriptors(N)?;
            Ok((kernel.world, with(kernel)?))
        });
        let made = made.unwrap_or_else(|| Err(not_here()));
        let (world, numbers) = made?;
        Ok(numbers.map(|number| SimSocket(SimSocketId { world, number })))
    }

    pub(crate) fn listen(address: SocketAddr, backlog: usize) -> io::Result<SimSocket> {
        SimSocket::new(|kernel| kernel.tcp_listen(address, backlog))
    }

    /// Starts to connect.
    pub(crate) fn connect(address: SocketAddr) -> io::Result<SimSocket> {
        SimSocket::new(|kernel| kernel.tcp_connect(address))
    }

    pub(crate) fn udp(address: SocketAddr) -> io::Result<SimSocket> {
        SimSocket::new(|kernel| kernel.udp_bind(address))
    }

    #[cfg(unix)]
    pub(crate) fn unix_listen(address: &Address, backlog: usize) -> io::Result<SimSocket> {
        SimSocket::new(|kernel| kernel.unix_listen(address.unix()?, backlog))
    }

    /// Connects to a listener. Fails with [`WouldBlock`](Errno::WouldBlock) if the listener's queue
    /// is full.
    #[cfg(unix)]
    pub(crate) fn unix_connect(address: &Address) -> io::Result<SimSocket> {
        SimSocket::new(|kernel| kernel.unix_connect(address.unix()?))
    }

    /// Creates a datagram socket, bound to a name or unnamed.
    #[cfg(unix)]
    pub(crate) fn unix_datagram(address: Option<&Address>) -> io::Result<SimSocket> {
        let name = address.map_or(Ok(&address::Name::Unnamed), Address::unix);
        SimSocket::new(|kernel| kernel.unix_bind(name?))
    }

    /// Creates a pair of connected sockets.
    #[cfg(unix)]
    pub(crate) fn unix_pair(is_stream: bool) -> io::Result<(SimSocket, SimSocket)> {
        let pair = SimSocket::new_ones(|kernel| {
            let pair = if is_stream {
                kernel.unix_stream_pair()
            } else {
                kernel.unix_datagram_pair()
            };
            pair.map(<[u32; 2]>::from)
        });
        pair.map(<(SimSocket, SimSocket)>::from)
    }

    #[inline]
    pub(crate) fn id(&self) -> SimSocketId {
        self.0
    }
}

impl SimSocketId {
    fn with<R>(self, f: impl FnOnce(&mut Kernel, u32) -> io::Result<R>) -> io::Result<R> {
        let result = with(|kernel| {
            if kernel.world == self.world {
                f(kernel, self.number)
            } else {
                Err(not_here())
            }
        });
        result.unwrap_or_else(|| Err(not_here()))
    }

    pub(crate) fn accept(self) -> io::Result<(SimSocket, Address)> {
        self.with(|kernel, number| {
            let (number, peer) = kernel.accept(number)?;
            Ok((SimSocket(SimSocketId { number, ..self }), peer))
        })
    }

    pub(crate) fn is_connected(self) -> io::Result<bool> {
        self.with(Kernel::tcp_is_connected)
    }

    /// Returns the number of bytes read, and whether nothing is left to read: neither bytes, nor an
    /// end, nor an error.
    pub(crate) fn read(self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<(usize, bool)> {
        self.with(|kernel, number| {
            let read = kernel.read(number, buffers, false)?;
            Ok((read, !kernel.is_readable(number)?))
        })
    }

    pub(crate) fn peek(self, bytes: &mut [u8]) -> io::Result<usize> {
        self.with(|kernel, number| kernel.read(number, &mut [IoSliceMut::new(bytes)], true))
    }

    pub(crate) fn write(self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.with(|kernel, number| kernel.write(number, buffers))
    }

    /// Receives a datagram, or peeks at it if `keeps` is set.
    pub(crate) fn receive(self, bytes: &mut [u8], keeps: bool) -> io::Result<(usize, Address)> {
        self.with(|kernel, number| kernel.receive(number, bytes, keeps))
    }

    /// Sends a datagram, to the peer unless an address is given.
    pub(crate) fn send(self, bytes: &[u8], to: Option<&Address>) -> io::Result<usize> {
        self.with(|kernel, number| kernel.send_datagram(number, bytes, to))
    }

    pub(crate) fn set_peer(self, peer: &Address) -> io::Result<()> {
        self.with(|kernel, number| kernel.set_peer(number, peer))
    }

    /// Returns whether receiving was shut down, although a receive would block.
    pub(crate) fn has_ended(self) -> bool {
        self.with(|kernel, number| Ok(kernel.has_ended(number)))
            .unwrap_or(false)
    }

    /// Returns whether the socket is ready for writing.
    pub(crate) fn has_room(self) -> bool {
        let ready = self.with(Kernel::ready);
        ready.is_ok_and(|it| it & WRITABLE != 0)
    }

    pub(crate) fn shutdown(self, how: Shutdown) -> io::Result<()> {
        self.with(|kernel, number| kernel.shut_down(number, how))
    }

    pub(crate) fn local_addr(self) -> io::Result<Address> {
        self.with(Kernel::local_address)
    }

    pub(crate) fn peer_addr(self) -> io::Result<Address> {
        self.with(Kernel::peer_address)
    }

    /// Returns whether a read would not block.
    pub(crate) fn is_readable(self) -> bool {
        self.with(Kernel::is_readable).unwrap_or(false)
    }

    /// Returns the kind of socket, as a dump shows it.
    pub(crate) fn kind(self) -> &'static str {
        let kind = |kernel: &mut Kernel, number| match kernel.others.get(&number) {
            None => Ok("TCP"),
            Some(Other::Udp(_)) => Ok("UDP"),
            #[cfg(unix)]
            Some(Other::Stream(_) | Other::Listener(_)) => Ok("Unix stream"),
            #[cfg(unix)]
            Some(Other::Datagram(_)) => Ok("Unix datagram"),
        };
        self.with(kind).unwrap_or("socket")
    }

    pub(crate) fn options<R>(self, f: impl FnOnce(&mut Options) -> R) -> io::Result<R> {
        self.with(|kernel, number| Ok(f(kernel.options(number)?)))
    }

    pub(crate) fn set_keepalive(self, on: bool) -> io::Result<()> {
        self.with(|kernel, number| kernel.tcp_set_keepalive(number, on))
    }

    pub(crate) fn set_tcp_option(self, option: TcpOption, value: u32) -> io::Result<()> {
        self.with(|kernel, number| kernel.tcp_set_option(number, option, value))
    }
}

/// Chooses the next of `count` ready tasks of the running worker. `ready` gives their ids.
pub(crate) fn choose_task(count: usize, ready: impl Iterator<Item = u64> + Clone) -> usize {
    let chosen = with(|kernel| {
        kernel.current?;
        let poller = &mut kernel.pollers[kernel.current_poller];
        Some(poller.schedule.choose(count, ready))
    });
    chosen.flatten().unwrap_or(0)
}

/// As [`choose_task`], for the tasks that no pool worker of the process has taken yet.
pub(crate) fn choose_injected(count: usize, ready: impl Iterator<Item = u64> + Clone) -> usize {
    let chosen = with(|kernel| {
        let process = &mut kernel.processes[kernel.current?];
        let injected = process.injected.as_mut()?;
        Some(injected.choose(count, ready))
    });
    chosen.flatten().unwrap_or(0)
}

/// Notes that a task is polled.
pub(crate) fn note_poll(task: u64, site: &'static Location<'static>) {
    with(|kernel| {
        kernel.calls(Call::Poll);
        let host = kernel.host_here().unwrap_or(NOBODY);
        kernel.note(host, What::Polled(task, Some(site)));
    });
}

/// Reserves `count` ids of tasks, and returns the first: a world has its own counter. `None`
/// outside of a world.
pub(crate) fn take_task_ids(count: u64) -> Option<u64> {
    with(|kernel| {
        let first = kernel.tasks;
        kernel.tasks += count;
        first
    })
}

/// Fails the run.
pub(crate) fn fail(reason: impl FnOnce() -> String) {
    fail_as(None, None, reason);
}

/// Returns where the last panic with this message came from, and forgets it. The panic of a task
/// may be reported after later ones.
fn site_of(words: &str) -> Option<String> {
    let find = |panics: &RefCell<VecDeque<Panic>>| {
        let mut panics = panics.try_borrow_mut().ok()?;
        let place = panics.iter().rposition(|it| it.words == words)?;
        panics.remove(place)?.site
    };
    PANICS.try_with(find).ok().flatten()
}

/// Fails the run because of a panic.
pub(crate) fn fail_by_panic(words: &str, reason: impl FnOnce() -> String) {
    let site = site_of(words);
    fail_as(site.map(|it| format!("a panic at {it}")), None, reason);
}

/// Fails the run because of the panic of a process, or of a task that is never awaited, unless the
/// test permits panics.
pub(crate) fn fail_unless_permitted(words: &str, reason: impl FnOnce() -> String) {
    if with(|kernel| kernel.permits_panics) == Some(false) {
        fail_by_panic(words, reason);
    }
}

/// Notes that a task has ended with a panic, which is delivered when the task is awaited.
pub(crate) fn task_has_panicked(site: &'static Location<'static>, words: &str) {
    with(|kernel| kernel.held_panics.push((site, words.to_owned())));
}

/// Notes that such a panic was delivered, or is being reported.
pub(crate) fn panic_is_taken(site: &'static Location<'static>, words: &str) {
    with(|kernel| {
        let mut held = kernel.held_panics.iter();
        if let Some(place) = held.rposition(|it| it.0 == site && it.1 == words) {
            kernel.held_panics.remove(place);
        }
    });
}

/// Fails the run if a panic was neither awaited nor reported when everything was dropped: the
/// handle of its task was forgotten, or is part of a cycle.
pub(crate) fn fail_by_held_panic() {
    let held = with(|kernel| std::mem::take(&mut kernel.held_panics));
    if let Some((site, words)) = held.unwrap_or_default().first() {
        fail_unless_permitted(words, || {
            format!(
                "the task spawned at {site} panicked, and its handle was forgotten, or keeps itself \
                 alive: {words}"
            )
        });
    }
}

/// Fails the run because of a contained panic: foreign code panicked when polder called it, see
/// `sync::CONTAINED`. Such panics are ignored while a killed process is dropped, as in reality no
/// destructor would have run.
pub(crate) fn panic_was_contained(words: &str) {
    let counts = with(|kernel| !kernel.drops_killed && !kernel.permits_panics);
    if counts != Some(true) {
        return;
    }
    let cause = match site_of(words) {
        Some(site) => format!("a panic at {site}"),
        None => "a panic".into(),
    };
    let reason = format!("{cause}, which was contained: {words}");
    fail_as(Some(cause), None, || reason);
}

/// Calls `f` as code of no process, even in the middle of a process's step.
pub(crate) fn as_nobody<R>(f: impl FnOnce() -> R) -> R {
    let exchange = |process| with(|kernel| std::mem::replace(&mut kernel.current, process));
    let before = exchange(None);
    let result = f();
    exchange(before.flatten());
    result
}

/// Runs the destructors of a killed process. In reality they would not run, so their panics are
/// ignored.
pub(crate) fn as_killed(f: impl FnOnce()) {
    let set = |is_killed| with(|kernel| std::mem::replace(&mut kernel.drops_killed, is_killed));
    let before = set(true);
    f();
    set(before.unwrap_or_default());
}

/// Returns whether the program's claims are checked at this point: not in destructors that would
/// not run on a real machine.
pub(crate) fn checks_here() -> bool {
    with(|kernel| !kernel.drops_killed) == Some(true)
}

/// Fails the run because a claim of `always!` does not hold.
pub(crate) fn does_not_hold(name: &str, site: &Location<'_>) {
    let host = with(|kernel| kernel.current_host().to_owned()).unwrap_or_default();
    // The site is part of the cause: the same name at another site is another cause.
    let cause = format!("always {name:?} at {site}");
    let reason = || format!("always {name:?}: it does not hold on {host}, {site}");
    fail_as(Some(cause), None, reason);
}

/// Returns whether a condition of `sometimes!` still has to be evaluated.
pub(crate) fn asks_for(name: &str) -> bool {
    let asks = |kernel: &mut Kernel| {
        if kernel.drops_killed {
            return false;
        }
        match kernel.sometimes.get(name) {
            Some(was_true) => !was_true,
            None => {
                kernel.sometimes.insert(name.to_owned(), false);
                true
            }
        }
    };
    with(asks) == Some(true)
}

/// Notes whether a condition was met, for tests that require it to be met in some world.
pub(crate) fn note_sometimes(name: &str, is_so: bool) {
    with(|kernel| *kernel.sometimes.entry(name.to_owned()).or_default() |= is_so);
}

/// Notes that a condition of `sometimes!` was true.
pub(crate) fn was_true(name: &str) {
    note_sometimes(name, true);
}

/// Fails the run, with a cause that is less specific than the reason, and with the time of the
/// failure.
pub(crate) fn fail_because(cause: &str, at: Option<u64>, reason: impl FnOnce() -> String) {
    fail_as(Some(cause.to_owned()), at, reason);
}

fn fail_as(cause: Option<String>, at: Option<u64>, reason: impl FnOnce() -> String) {
    with(|kernel| {
        if kernel.failure.is_none() {
            let reason = reason();
            let cause = cause.unwrap_or_else(|| reason.clone());
            kernel.note_failure(cause, at, reason);
        }
    });
}

/// Notes a panic of this thread, with its site and message. The panic hook calls this, so nothing
/// here may panic.
pub(crate) fn note_panic(site: Option<&Location<'_>>, words: &str) {
    let note = |panics: &RefCell<VecDeque<Panic>>| {
        let Ok(mut panics) = panics.try_borrow_mut() else {
            return;
        };
        if panics.len() == MAX_PANICS {
            panics.pop_front();
        }
        panics.push_back(Panic {
            site: site.map(ToString::to_string),
            words: words.to_owned(),
        });
    };
    let _ = PANICS.try_with(note);
}

/// The poller of a process's worker, as its selector holds it.
#[derive(Debug)]
pub(crate) struct PollerOfWorker {
    world: u32,
    number: usize,
    foreign: Arc<AtomicBool>,
}

impl PollerOfWorker {
    fn with(&self, f: impl FnOnce(&mut Kernel, usize)) {
        with(|kernel| {
            if kernel.world == self.world {
                f(kernel, self.number);
            }
        });
    }

    /// Registers a socket, or replaces its registration.
    pub(crate) fn register(&self, socket: SimSocketId, token: u64, interest: u8) -> io::Result<()> {
        socket.with(|kernel, number| {
            kernel.here()?;
            let registrations = kernel.registrations(number)?;
            registrations.add(self.number, token, interest);
            let ready = kernel.ready(number)?;
            kernel.raise_with(number, ready, Some(self.number));
            Ok(())
        })
    }

    pub(crate) fn deregister(&self, socket: SimSocketId) -> io::Result<()> {
        socket.with(|kernel, number| {
            kernel.registrations(number)?.remove(self.number);
            Ok(())
        })
    }

    /// Takes the next event to report: token and readiness.
    pub(crate) fn take(&self) -> Option<(u64, u8)> {
        let mut taken = None;
        self.with(|kernel, poller| {
            while let Some(number) = kernel.pollers[poller].events.pop_front() {
                // It may be registered with another poller by now.
                let Ok(Some((token, pending))) =
                    kernel.registrations(number).map(|it| it.take(poller))
                else {
                    continue;
                };
                taken = Some((token, pending));
                break;
            }
        });
        taken
    }

    /// Wakes the worker if there are more events than were taken.
    pub(crate) fn wake_if_ready(&self) {
        self.with(|kernel, poller| {
            if kernel.has_events(poller) {
                kernel.wake(poller);
            }
        });
    }

    /// Wakes the worker: it has something to do.
    pub(crate) fn notify(&self) {
        self.woken(Kernel::wake);
    }

    /// Notes that a task of the worker was woken on this thread, which should be the world's.
    pub(crate) fn woken_on_this_thread(&self) {
        self.woken(|_, _| ());
    }

    /// Notes that something of the worker was woken. If this world's code did so, calls `wake` with
    /// the poller's number.
    #[inline]
    fn woken(&self, wake: impl FnOnce(&mut Kernel, usize)) {
        let is_here = with(|kernel| {
            let is_here = kernel.world == self.world;
            if is_here {
                kernel.woken_by_current(self.number);
                wake(kernel, self.number);
            }
            is_here
        });
        if is_here != Some(true) {
            self.foreign.store(true, Ordering::Relaxed);
        }
    }

    /// Sets when the worker's earliest timer is due.
    pub(crate) fn arm(&self, deadline: Option<Instant>) {
        self.with(|kernel, poller| {
            let timer = &mut kernel.pollers[poller].timer;
            if std::mem::replace(timer, deadline) != deadline {
                kernel.pollers[poller].late = match deadline {
                    Some(_) if kernel.has_faults => kernel.lateness(poller),
                    _ => 0,
                };
                kernel.arm_poller(poller);
            }
        });
    }
}

/// Interface for the world.
impl Kernel {
    pub(crate) fn add_host(&mut self, name: &str) -> usize {
        if let Some(host) = self.find_host(name) {
            return host;
        }
        let index = self.hosts.len();
        let Ok(number) = u16::try_from(index + 1) else {
            panic!("polder::sim: a world has 65,535 hosts at most");
        };
        let [high, low] = number.to_be_bytes();
        self.hosts.push(HostState {
            name: name.to_owned(),
            is_up: true,
            connects: InASecond::default(),
            datagrams: InASecond::default(),
            sent: (0, 0),
            next_port: *PORTS.start(),
            workers: None,
            sockets: Vec::new(),
            max_sockets: LIST,
            questions: names::Questions::new(self.seed, index),
            clock: clock::Clock::default(),
            past_clocks: clock::Past::default(),
            wall: clock::Wall::default(),
            #[cfg(feature = "blocking")]
            delays: blocking::Delays::new(self.seed, index),
            faults: host_faults::FaultsOfHost::new(self.seed, index),
            disk: None,
            v4: Ipv4Addr::new(10, 0, high, low),
            v6: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number),
        });
        self.names.insert(name.to_ascii_lowercase(), index);
        self.progress.add_host(name);
        index
    }

    /// Sets the progress that the watchdog reads. Call this before there is a host.
    pub(crate) fn set_progress(&mut self, progress: Arc<Progress>) {
        self.progress = progress;
    }

    /// Notes that foreign code is about to be called.
    pub(crate) fn calls(&self, call: Call) {
        self.progress.begin(self.current, call, self.now);
    }

    pub(crate) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    pub(crate) fn find_host(&self, name: &str) -> Option<usize> {
        self.names.get(&name.to_ascii_lowercase()).copied()
    }

    pub(crate) fn host_name(&self, host: usize) -> &str {
        self.hosts.get(host).map_or("nobody", |it| &it.name)
    }

    /// Returns the current host: that of the running process.
    fn host_here(&self) -> Option<usize> {
        self.current.map(|it| self.host_of(it))
    }

    /// Returns the current host's name.
    fn current_host(&self) -> &str {
        self.host_name(self.host_here().unwrap_or(NOBODY))
    }

    /// Returns the conditions of `sometimes!`, and whether each was true.
    pub(crate) fn sometimes(&self) -> impl Iterator<Item = (&String, &bool)> {
        self.sometimes.iter()
    }

    pub(crate) fn host_address(&self, host: usize, is_v6: bool) -> IpAddr {
        self.hosts[host].address(is_v6)
    }

    pub(crate) fn is_up(&self, host: usize) -> bool {
        self.hosts[host].is_up
    }

    pub(crate) fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// Sets the number of workers of a host's next process, or of all hosts' if none is named.
    pub(crate) fn set_workers(&mut self, host: Option<usize>, workers: usize) {
        match host {
            Some(host) => self.hosts[host].workers = Some(workers),
            None => self.workers = workers,
        }
    }

    /// Starts a process on a host, and powers the host on. The process's pollers are that of its
    /// pool and those of its pool workers, if it has any, and the main worker's.
    pub(crate) fn start(&mut self, host: usize) -> (usize, Vec<PollerOfWorker>) {
        self.hosts[host].is_up = true;
        let process = self.processes.len();
        let first = self.pollers.len();
        let pool = match self.hosts[host].workers.unwrap_or(self.workers) {
            1 => 0,
            several => several,
        };
        let has_pool = pool > 0;
        let members = first + 1..first + 1 + pool;
        let pollers = first..first + usize::from(has_pool) + pool + 1;
        for number in pollers.clone() {
            self.pollers.push(PollerState {
                process,
                host,
                is_alive: true,
                is_ready: false,
                events: VecDeque::new(),
                timer: None,
                deadline: None,
                late: 0,
                deadline_event: None,
                schedule: Queue::new(self.seed, "tasks", number, self.order),
                members: (has_pool && number == first).then(|| (members.clone(), pool - 1)),
            });
        }
        self.processes.push(ProcessState {
            host,
            is_alive: true,
            pollers: pollers.clone(),
            injected: has_pool
                .then(|| Box::new(Queue::new(self.seed, "injected", process, self.order))),
            #[cfg(feature = "signal")]
            signals: signals::Counts::new(),
            #[cfg(feature = "blocking")]
            stalled: Vec::new(),
        });
        self.note(host, What::Started);
        let poller = |number| PollerOfWorker {
            world: self.world,
            number,
            foreign: self.foreign.clone(),
        };
        (process, pollers.map(poller).collect())
    }

    /// Ends a process: the kernel closes its sockets, or, without power, forgets them silently.
    pub(crate) fn stop(&mut self, process: usize, what: What) {
        let host = self.processes[process].host;
        if !std::mem::replace(&mut self.processes[process].is_alive, false) {
            return;
        }
        let pollers = &self.pollers;
        self.ready.retain(|it| pollers[*it].process != process);
        for poller in self.pollers_of(process) {
            self.pollers[poller].is_alive = false;
            self.pollers[poller].events = VecDeque::new();
            self.pollers[poller].timer = None;
        }
        self.note(host, what);
        self.close_files(process);
        // The sockets of a host without power are forgotten below.
        if what != What::PoweredOff {
            for id in self.ids(host) {
                if self.socket(id).is_ok_and(|it| it.process == Some(process)) {
                    self.tcp_close(id);
                }
            }
        }
        let is_its = |it: &mut Other| it.base().process == Some(process);
        let others = self.others.iter_mut();
        let others = others.filter_map(|(id, it)| is_its(it).then_some(*id));
        for id in others.collect::<Vec<u32>>() {
            self.close(id);
        }
        if what == What::PoweredOff {
            self.power_off(host);
        }
    }

    /// Powers a host off: its connections and listeners are forgotten.
    pub(crate) fn power_off(&mut self, host: usize) {
        self.hosts[host].is_up = false;
        let mut gone = Vec::new();
        for id in std::mem::take(&mut self.hosts[host].sockets) {
            self.settle(id);
            let Some(socket) = self.sockets[id as usize].take() else {
                continue;
            };
            self.listeners.remove(&(host, socket.local.port()));
            if let Some((peer_host, peer)) = socket.peer {
                self.connections.remove(&(host, socket.local, peer));
                gone.push((socket.local, (peer_host, peer)));
            }
            self.arm(socket.peer_timer.1);
        }
        self.others.retain(|_, it| it.base().host != host);
        self.udp_ports.retain(|key, _| key.0 != host);
        #[cfg(unix)]
        self.unix_names
            .retain(|key, _| key.host != host || key.is_path());
        for (local, peer) in gone {
            self.warn_peer(local, peer);
        }
    }

    pub(crate) fn power_on_all(&mut self) {
        self.hosts.iter_mut().for_each(|it| it.is_up = true);
    }

    pub(crate) fn pause(&mut self, host: usize) -> PauseId {
        let id = PauseId(self.pauses_begun);
        self.pauses_begun += 1;
        self.pauses.push((id, host));
        self.note(host, What::Paused);
        id
    }

    /// Ends a pause, unless `heal_all` has ended it.
    pub(crate) fn resume(&mut self, id: PauseId) {
        let Some(place) = self.pauses.iter().position(|it| it.0 == id) else {
            return;
        };
        let (_, host) = self.pauses.swap_remove(place);
        self.note(host, What::Resumed);
        #[cfg(feature = "blocking")]
        self.resume_blocking();
    }

    pub(crate) fn change_links(
        &mut self,
        link: Option<(usize, usize)>,
        f: impl Fn(&mut link::Settings),
    ) {
        self.links.change(link, f);
    }

    /// Ends all cuts, holds and pauses.
    pub(crate) fn heal_all(&mut self) {
        self.note(0, What::Quiet);
        self.end_partings();
        self.pauses.clear();
        #[cfg(feature = "blocking")]
        self.resume_blocking();
    }

    /// Resets all connections between two hosts, on both sides at the same moment.
    pub(crate) fn reset_between(&mut self, a: usize, b: usize) {
        self.note(a, What::Reset(b));
        let mut ids = self.ids(a);
        if a != b {
            ids.extend(self.ids(b));
        }
        ids.sort_unstable();
        for id in ids {
            let is_between = self.socket(id).is_ok_and(|it| {
                let peer = it.peer.map(|(host, _)| host);
                let ends = [(a, Some(b)), (b, Some(a))];
                it.state == State::Connected && ends.contains(&(it.host, peer))
            });
            if is_between {
                self.fail(id, Errno::ConnectionReset);
            }
        }
    }

    pub(crate) fn permit_panics(&mut self) {
        self.permits_panics = true;
    }

    /// Begins to drop the remains of a process. The code runs as the process's; `is_killed` means
    /// that the process was killed.
    pub(crate) fn begin_drop(&mut self, process: usize, is_killed: bool) {
        self.set_current(Some(process));
        self.drops_killed = is_killed;
        self.calls(Call::Drop);
    }

    pub(crate) fn end_drop(&mut self) {
        self.drops_killed = false;
        self.set_current(None);
    }

    /// Notes that the main worker of a process is about to run foreign code, or that none is.
    pub(crate) fn set_current(&mut self, process: Option<usize>) {
        let main = process.map(|it| self.processes[it].pollers.end - 1);
        self.set_current_poller(main);
    }

    /// Notes that the worker with this poller is about to run foreign code, or that none is.
    pub(crate) fn set_current_poller(&mut self, poller: Option<usize>) {
        READINGS.set(0);
        self.current = poller.map(|it| self.pollers[it].process);
        self.current_poller = poller.unwrap_or_default();
        self.show_time();
        answers::next_step();
    }

    /// Returns what the loop that drives the world does next.
    pub(crate) fn turn(&mut self) -> Turn {
        READINGS.set(0);
        if self.failure.is_some() || self.has_diverged {
            return Turn::Stop;
        }
        if self.foreign.load(Ordering::Relaxed) {
            return Turn::WokenFromElsewhere;
        }
        Turn::Next(self.now, self.next_poller())
    }

    /// Takes the poller of the worker that runs next: one that is ready, and not paused.
    fn next_poller(&mut self) -> Option<usize> {
        // The common case: one alone is no choice.
        if self.pauses.is_empty() && self.ready.len() < 2 {
            let poller = self.ready.pop()?;
            self.schedule.choose(1, std::iter::empty());
            self.pollers[poller].is_ready = false;
            return Some(poller);
        }
        // The places of the workers that may run, if not all may.
        let places: Option<Vec<usize>> = (!self.pauses.is_empty()).then(|| {
            let places = self.ready.iter().enumerate();
            let may_run = |it: &usize| !self.is_paused(self.host_of_poller(*it));
            places.filter(|it| may_run(it.1)).map(|it| it.0).collect()
        });
        let count = places.as_ref().map_or(self.ready.len(), Vec::len);
        if count == 0 {
            return None;
        }
        let place = |nth: usize| places.as_ref().map_or(nth, |it| it[nth]);
        let who = (0..count).map(|it| self.ready[place(it)] as u64);
        let chosen = self.schedule.choose(count, who);
        let poller = self.ready.remove(place(chosen));
        self.pollers[poller].is_ready = false;
        Some(poller)
    }

    /// Lets the next event happen, unless it is later than `latest`. Call this only when no worker
    /// can run.
    pub(crate) fn advance(&mut self, latest: u64) -> Advance {
        match self.next_event() {
            None => Advance::Never,
            Some((at, _)) if at > latest => Advance::Late(at),
            Some((at, place)) => {
                let due = self.take_event(place);
                Advance::Happened(at, due, !self.due.is_empty())
            }
        }
    }

    /// Returns whether nothing would ever happen without the code that runs now.
    pub(crate) fn is_at_rest(&mut self) -> bool {
        self.ready.is_empty() && self.next_event().is_none()
    }

    /// Returns when the next event happens, and where it is.
    fn next_event(&mut self) -> Option<(u64, Place)> {
        self.acknowledge_all();
        loop {
            let (at, event, place) = self.events.first()?;
            let is_due = match *event {
                Event::Retransmit(id) => self.tcp_is_due(id, at),
                Event::Keepalive(_) if self.is_kept_alive_only() => return None,
                Event::Keepalive(id) => self.keepalive_is_due(id, at),
                Event::Deadline(poller) => self.is_deadline(poller, at),
                Event::Chaos(number) => number >= self.first_chaos,
                // These are always due.
                _ => true,
            };
            if is_due {
                return Some((at, place));
            }
            self.events.take(place);
        }
    }

    /// Lets an event happen that [`next_event`](Self::next_event) has just returned. Returns a call
    /// that is due, if the event is one.
    #[must_use]
    fn take_event(&mut self, place: Place) -> Due {
        let (at, event) = self.events.take(place)?;
        self.set_now(at);
        self.tcp_forget();
        match event {
            Event::Segment(mut segment) => match self.passage(segment.way(), segment.link) {
                Passage::Lost => self.tcp_lost(segment),
                Passage::Held(nth, held) => {
                    let timers = segment.timers();
                    held.push((nth, Event::Segment(segment)));
                    timers.into_iter().for_each(|it| self.arm(it));
                }
                Passage::Arrives => {
                    self.tcp_arrives(&mut segment);
                    self.spare.push(segment);
                }
            },
            Event::Datagram(datagram) => match self.passage((datagram.from.0, datagram.to.0), 0) {
                Passage::Lost => self.udp_lost(&datagram),
                Passage::Held(nth, held) => held.push((nth, Event::Datagram(datagram))),
                Passage::Arrives => self.udp_arrives(*datagram),
            },
            Event::Retransmit(id) => self.tcp_retransmit(id),
            Event::Keepalive(id) => self.tcp_keepalive(id),
            Event::Unreachable(id) => self.tcp_unreachable(id),
            Event::Deadline(poller) => {
                let state = &mut self.pollers[poller];
                (state.timer, state.deadline) = (None, None);
                self.wake(poller);
            }
            Event::Chaos(number) => self.due.push_back(number),
            #[cfg(feature = "blocking")]
            Event::Blocking(call) => return self.begin_blocking(*call),
        }
        None
    }

    /// Schedules a chaos action: at that time [`take_chaos`](Self::take_chaos) returns this number,
    /// unless it is called off. Later calls need greater numbers.
    pub(crate) fn schedule_chaos(&mut self, at: u64, number: u64) {
        self.push(at.max(self.now), Event::Chaos(number));
    }

    /// Calls off all scheduled chaos actions with a number below this one.
    pub(crate) fn call_off_chaos(&mut self, first: u64) {
        self.first_chaos = first;
        self.due.clear();
    }

    pub(crate) fn take_chaos(&mut self) -> Option<u64> {
        self.due.pop_front()
    }

    /// Sets the probability of a kind of fault by chaos, from now on.
    pub(crate) fn set_rate_by_chaos(&mut self, kind: Kind, rate: Probability) {
        match kind {
            Kind::Loss => self.links.by_chaos.loss = rate,
            Kind::Duplicate => self.links.by_chaos.duplication = rate,
            Kind::Reorder => self.links.by_chaos.reordering = rate,
            Kind::Name => self.dns.by_chaos = rate,
            _ => {
                self.faults_by_chaos.set(kind, rate);
                self.has_faults = true;
            }
        }
    }

    pub(crate) fn end_rates_by_chaos(&mut self) {
        self.links.by_chaos = Default::default();
        self.dns.by_chaos = Default::default();
        self.faults_by_chaos = Default::default();
    }

    /// Gives each link a latency drawn by the chaos of this number; with `None`, each link has its
    /// own setting.
    pub(crate) fn set_latencies_by_chaos(&mut self, chaos: Option<u32>) {
        self.links.chaos = chaos;
    }

    /// Ends the latencies that the chaos of this number has drawn.
    pub(crate) fn end_latencies_by_chaos(&mut self, chaos: u32) {
        self.links.chaos = self.links.chaos.filter(|it| *it != chaos);
    }

    /// Makes the world calm from now on: no random faults, each duration is its mean, and ready
    /// workers and tasks run first in, first out.
    pub(crate) fn be_calm(&mut self) {
        self.faults.turn_off();
        self.links.is_even = true;
        self.is_calm = true;
        self.set_order(Order::Fifo);
        self.keeps_order = true;
    }

    /// Returns the drawn duration, or the mean in a calm world.
    fn drawn_or_mean(&self, drawn: u64, latency: Latency) -> u64 {
        if self.is_calm { latency.mean() } else { drawn }
    }

    /// Sets the order of processes and tasks, from now on.
    pub(crate) fn set_order(&mut self, order: Order) {
        if self.keeps_order {
            return;
        }
        self.order = order;
        self.schedule.set(order);
        let pollers = self.pollers.iter_mut();
        pollers.for_each(|it| it.schedule.set(order));
        let injected = self
            .processes
            .iter_mut()
            .filter_map(|it| it.injected.as_mut());
        injected.for_each(|it| it.set(order));
    }

    pub(crate) fn order(&self) -> Order {
        self.order
    }

    pub(crate) fn set_max_connects(&mut self, max: u32) {
        self.max_connects = max;
    }

    /// Counts a datagram of `bytes` bytes, or a connect. Fails the run if a host does this too
    /// often without time passing, before the messages under way use up the memory. Returns whether
    /// the limit is kept.
    fn count_sent(&mut self, host: usize, bytes: usize) -> bool {
        let state = &mut self.hosts[host];
        if state.sent.0 != self.now {
            state.sent = (self.now, 0);
        }
        state.sent.1 += 1 + bytes / 1_024;
        let is_within = state.sent.1 <= MAX_SENT;
        if !is_within {
            let cause = format!("livelock: {:?} sends without any time passing", state.name);
            let reason = format!("{cause}: a loop that neither sleeps nor waits for an answer");
            self.note_failure(cause, None, reason);
        }
        is_within
    }

    pub(crate) fn set_max_datagrams(&mut self, max: u32) {
        self.max_datagrams = max;
    }

    /// Counts a connect, and fails the run if a host connects too often.
    fn count_connect(&mut self, host: usize) {
        let (state, max) = (&mut self.hosts[host], self.max_connects);
        if state.connects.add(self.now) > max {
            let cause = format!("retry storm: {:?} connects too often", state.name);
            let reason = format!("{cause}: more than {max} times within a second");
            self.note_failure(cause, None, reason);
        }
    }

    /// Counts a datagram, and fails the run if a host sends too many.
    fn count_datagram(&mut self, host: usize) {
        let (state, max) = (&mut self.hosts[host], self.max_datagrams);
        if state.datagrams.add(self.now) > max {
            let cause = format!("storm: {:?} sends too many datagrams", state.name);
            let reason = format!("{cause}: more than {max} within a second");
            self.note_failure(cause, None, reason);
        }
    }

    /// Notes the run's failure. The first failure is the one that is reported.
    #[cold]
    fn note_failure(&mut self, cause: String, at: Option<u64>, reason: String) {
        (self.failure).get_or_insert(Failure { reason, cause, at });
    }

    /// Notes that the running process has woken a task of this poller's worker. If the two are on
    /// different hosts, the wake-up has bypassed the network, which is impossible in reality. The
    /// test is exempt.
    #[inline]
    fn woken_by_current(&mut self, poller: usize) {
        if let Some(by) = self.host_here() {
            let of = self.pollers[poller].host;
            if by != of && by != TEST && of != TEST {
                self.note_shortcut(by, of);
            }
        }
    }

    #[cold]
    fn note_shortcut(&mut self, by: usize, of: usize) {
        // At its end the world drops everything, in any order.
        if !self.hosts[of].is_up || self.shortcuts.contains_key(&(by, of)) {
            return;
        }
        self.shortcuts.insert((by, of), self.now);
        if self.observed.is_some() {
            let words = format!("wakes a task of {} directly", self.host_name(of));
            self.observe_words(by, words);
        }
    }

    /// Returns the pairs of hosts that have bypassed the network, a line each.
    pub(crate) fn shortcuts(&self) -> Vec<String> {
        let line = |((by, of), at): (&(usize, usize), &u64)| {
            let (by, of) = (self.host_name(*by), self.host_name(*of));
            let at = trace::Seconds(*at);
            format!("{by} woke a task of {of} directly (first at {at}): a real program cannot")
        };
        self.shortcuts.iter().map(line).collect()
    }

    /// Returns whether another thread has woken a task.
    pub(crate) fn was_woken_from_elsewhere(&self) -> bool {
        self.foreign.load(Ordering::Relaxed)
    }

    /// Returns whether a poller has something to report.
    pub(crate) fn has_events(&self, poller: usize) -> bool {
        !self.pollers[poller].events.is_empty()
    }

    pub(crate) fn host_of_poller(&self, poller: usize) -> usize {
        self.pollers[poller].host
    }

    /// Returns the numbers of a process's pollers.
    pub(crate) fn pollers_of(&self, process: usize) -> Range<usize> {
        self.processes[process].pollers.clone()
    }

    pub(crate) fn host_of(&self, process: usize) -> usize {
        self.processes[process].host
    }

    pub(crate) fn set_now(&mut self, at: u64) {
        self.now = at.max(self.now);
        self.show_time();
    }

    /// Converts a time of [`now`] to nanoseconds since the world began.
    pub(crate) fn nanos_at(&self, at: Instant) -> u64 {
        link::nanos(at.saturating_duration_since(self.base))
    }

    /// Returns the nanoseconds since the world began.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns how often the C library was called, if the world answers its calls.
    pub(crate) fn asked_of_libc(&self) -> Option<Asked> {
        self.is_libc.then(answers::asked)
    }

    /// Returns where this run differs from the one that it is compared with, as far as that is
    /// known.
    pub(crate) fn difference(&self) -> Option<Difference> {
        let name = |it| self.host_name(it);
        self.trace.first_difference(self.diverged_on, name)
    }

    pub(crate) fn has_diverged(&self) -> bool {
        self.has_diverged
    }

    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    #[inline(always)]
    pub(crate) fn note(&mut self, host: usize, what: What) {
        self.note_of_weight(host, what, trace::weight(what));
    }

    fn note_of_weight(&mut self, host: usize, what: What, weight: u64) {
        if !self.trace.note(self.now, host, what, weight) {
            self.diverges();
        }
        if self.observed.is_some() {
            self.observe(host, what);
        }
    }

    #[cold]
    fn diverges(&mut self) {
        if !std::mem::replace(&mut self.has_diverged, true) {
            self.diverged_on = self.host_here();
        }
    }

    /// Prints an event, or keeps it for the observer, as configured.
    #[cold]
    fn observe(&mut self, host: usize, what: What) {
        let words = what.words_alone(|it| self.host_name(it));
        self.observe_words(host, words);
    }

    fn observe_words(&mut self, host: usize, words: String) {
        let step = Step {
            time: Duration::from_nanos(self.now),
            host: self.host_name(host).to_owned(),
            words,
        };
        let Some(observed) = &mut self.observed else {
            return;
        };
        if observed.logs {
            // `eprintln!` would not do: the harness holds its output back until the test has ended.
            let line = format!("seed {:#x}: {step}\n", self.seed);
            let _ = io::stderr().write_all(line.as_bytes());
        }
        if let Some(untold) = &mut observed.untold {
            untold.push(step);
        }
    }

    /// Keeps events from now on, for [`take_untold`](Self::take_untold).
    pub(crate) fn keep_untold(&mut self) {
        let observed = self.observed.get_or_insert_with(|| {
            let (logs, untold) = (false, None);
            Box::new(Observed { logs, untold })
        });
        observed.untold.get_or_insert_default();
    }

    /// Takes the events since the last call.
    pub(crate) fn take_untold(&mut self) -> Vec<Step> {
        let untold = self.observed.as_mut().and_then(|it| it.untold.as_mut());
        untold.map(std::mem::take).unwrap_or_default()
    }

    /// Describes the sockets of a process, for reports.
    pub(crate) fn describe_sockets(&mut self, process: usize) -> Vec<String> {
        let sockets = self.tcp_sockets(self.processes[process].host);
        let ours = sockets.filter(|it| it.process == Some(process));
        let ours = ours.map(|it| it.describe(|host| self.host_name(host).to_owned()));
        let mut all: Vec<String> = ours.collect();
        let others = self.others.values_mut();
        let ours = others.filter_map(|it| {
            if it.base().process == Some(process) {
                Some(it.describe())
            } else {
                None
            }
        });
        all.extend(ours);
        all
    }

    pub(crate) fn is_paused(&self, host: usize) -> bool {
        self.pauses.iter().any(|it| it.1 == host)
    }

    /// Schedules the wake-up of a worker for its timer, which is due by its host's clock.
    fn arm_poller(&mut self, poller: usize) {
        let timer = self.pollers[poller].timer.map(|it| self.nanos_at(it));
        let now = self.now;
        let clock = self.hosts[self.host_of_poller(poller)].clock;
        let state = &mut self.pollers[poller];
        let at = timer.map(|it| {
            let due = clock.when(it).max(now);
            let late = due.saturating_add(state.late);
            // Setting a clock delays nothing that is already due.
            match state.deadline.filter(|_| due == now) {
                Some(before) => late.min(before.max(now)),
                None => late,
            }
        });
        state.deadline = at;
        if let Some(at) = at {
            if state.deadline_event.is_none_or(|it| it > at) {
                state.deadline_event = Some(at);
                self.push(at, Event::Deadline(poller));
            }
        }
    }

    /// Sets a host's clock ahead, and its drift, if one is given.
    pub(crate) fn set_clock(&mut self, host: usize, ahead: u64, drift: Option<i32>) {
        let now = self.now;
        let state = &mut self.hosts[host];
        let drift = drift.unwrap_or(state.clock.drift());
        state.past_clocks.push(state.clock, now);
        state.clock.set(now, ahead, drift);
        self.has_clocks = true;
        self.note(host, What::ClockSet(ahead, drift));
        self.show_time();
        let alive = self
            .processes
            .iter()
            .filter(|it| it.host == host && it.is_alive);
        let pollers: Vec<usize> = alive.flat_map(|it| it.pollers.clone()).collect();
        for poller in pollers {
            self.arm_poller(poller);
        }
    }

    /// Returns how much faster a host's clock is than the world's, in millionths.
    pub(crate) fn drift(&self, host: usize) -> i32 {
        self.hosts[host].clock.drift()
    }

    /// Ends the random faults of hosts and names, and the drift of clocks. Clocks keep their jumps.
    pub(crate) fn heal_hosts(&mut self) {
        self.dns.heal();
        for poller in 0..self.pollers.len() {
            if std::mem::take(&mut self.pollers[poller].late) != 0 {
                self.arm_poller(poller);
            }
        }
        for host in 0..self.hosts.len() {
            self.hosts[host].faults.set.heal();
            if self.hosts[host].clock.drift() != 0 {
                self.set_clock(host, 0, Some(0));
            }
            self.heal_wall(host);
        }
    }

    /// Makes this thread read the current host's clock.
    #[inline]
    fn show_time(&mut self) {
        if self.has_clocks || self.shown != self.now {
            self.show_other_time();
        }
    }

    /// Returns when the world began, as a time of [`now`].
    pub(crate) fn began_at(&self) -> Instant {
        self.base
    }

    /// Returns the time that this thread reads, in nanoseconds since the world began.
    pub(crate) fn shown(&self) -> u64 {
        self.shown
    }

    fn show_other_time(&mut self) {
        let (shown, wall) = match self.host_here() {
            Some(host) => {
                let host = &self.hosts[host];
                (host.clock.show(self.now), host.wall.ahead())
            }
            None => (self.now, 0),
        };
        if self.has_clocks {
            answers::show_wall(wall);
        }
        if std::mem::replace(&mut self.shown, shown) != shown {
            CLOCK.set(Some(self.base + Duration::from_nanos(shown)));
            answers::show(shown);
        }
    }

    fn is_deadline(&mut self, poller: usize, at: u64) -> bool {
        let state = &mut self.pollers[poller];
        if state.deadline_event != Some(at) {
            return false;
        }
        state.deadline_event = None;
        match state.deadline {
            Some(deadline) if state.is_alive && deadline <= at => return true,
            // It was postponed meanwhile.
            Some(deadline) if state.is_alive => {
                state.deadline_event = Some(deadline);
                self.push(deadline, Event::Deadline(poller));
            }
            _ => {}
        }
        false
    }

    /// Returns the fate of a message that arrives from one host at another now.
    fn passage(&mut self, (from, to): (usize, usize), mut known: u32) -> Passage<'_> {
        let is_up = self.hosts.get(to).is_some_and(|it| it.is_up);
        if from != to {
            if self.links.partings.is_cut(from, to) {
                return Passage::Lost;
            }
            if self.links.partings.is_held(from, to) {
                self.links.held += 1;
                let nth = self.links.held;
                let link = self.links.find((from, to), &mut known);
                return Passage::Held(nth, &mut link.held);
            }
        }
        if is_up {
            Passage::Arrives
        } else {
            Passage::Lost
        }
    }

    /// Returns the current host and the running process.
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
        self.events.push(at, event);
    }

    /// Marks a poller's worker as ready to run; if it is a pool's poller, one of the pool's
    /// workers, unless one is ready already: it polls this poller too.
    fn wake(&mut self, poller: usize) {
        let poller = if self.pollers[poller].members.is_some() {
            match self.choose_member(poller) {
                Some(member) => member,
                None => return,
            }
        } else {
            poller
        };
        let state = &mut self.pollers[poller];
        if state.is_alive && !std::mem::replace(&mut state.is_ready, true) {
            self.ready.push(poller);
        }
    }

    /// Chooses the worker that polls the poller of its pool next.
    fn choose_member(&mut self, poller: usize) -> Option<usize> {
        let (members, last) = self.pollers[poller].members.clone()?;
        if members.clone().any(|member| self.pollers[member].is_ready) {
            return None;
        }
        let count = members.len();
        let chosen = match self.order {
            Order::Random => {
                let who = members.clone().map(|member| member as u64);
                self.pollers[poller].schedule.choose(count, who)
            }
            // By turns: with fixed priorities it would always be the same one.
            Order::Fifo | Order::Pct(_) => (last + 1) % count,
        };
        let member = members.start + chosen;
        self.pollers[poller].members = Some((members, chosen));
        Some(member)
    }

    /// Reports new readiness of a socket to its pollers.
    fn raise(&mut self, number: u32, ready: u8) {
        if self.has_faults {
            return self.raise_with(number, ready, None);
        }
        let Ok(registrations) = self.registrations(number) else {
            return;
        };
        match registrations.only() {
            Some((poller, interest)) => {
                let ready = ready & (interest | CLOSED | ERROR);
                if ready != 0 {
                    if registrations.raise(poller, ready) {
                        self.pollers[poller].events.push_back(number);
                    }
                    self.wake(poller);
                }
            }
            None => self.raise_with(number, ready, None),
        }
    }

    /// As [`raise`](Self::raise), but reports only to the poller `only`, if one is given.
    fn raise_with(&mut self, number: u32, ready: u8, only: Option<usize>) {
        let Ok(registrations) = self.registrations(number) else {
            return;
        };
        for nth in 0..registrations.len() {
            let registration = self.registrations(number).ok().and_then(|it| it.nth(nth));
            if let Some((poller, interest)) = registration {
                let ready = ready & (interest | CLOSED | ERROR);
                if ready != 0 && only.is_none_or(|it| it == poller) {
                    self.raise_one(number, poller, ready);
                }
            }
        }
    }

    fn raise_one(&mut self, number: u32, poller: usize, ready: u8) {
        let ready = self.embellish(number, ready);
        let Ok(registrations) = self.registrations(number) else {
            return;
        };
        if registrations.raise(poller, ready) {
            self.pollers[poller].events.push_back(number);
        }
        self.wake(poller);
    }

    fn socket(&mut self, number: u32) -> io::Result<&mut Tcp> {
        let socket = self.sockets.get_mut(number as usize);
        socket.and_then(|it| it.as_deref_mut()).ok_or_else(gone)
    }

    fn insert(&mut self, socket: Tcp) -> u32 {
        let number = u32::try_from(self.sockets.len()).expect("fewer than 2^32 sockets");
        let host = &mut self.hosts[socket.host];
        if host.sockets.len() == host.max_sockets {
            let sockets = &self.sockets;
            (host.sockets).retain(|it| sockets[*it as usize].is_some());
            host.max_sockets = (2 * host.sockets.len()).max(LIST);
        }
        host.sockets.push(number);
        self.sockets.push(Some(Box::new(socket)));
        number
    }

    /// Returns the numbers of a host's TCP sockets, some of which may be gone.
    fn ids(&self, host: usize) -> Vec<u32> {
        self.hosts[host].sockets.clone()
    }

    fn tcp_sockets(&self, host: usize) -> impl Iterator<Item = &Tcp> {
        let ids = self.hosts[host].sockets.iter();
        ids.filter_map(|it| self.sockets[*it as usize].as_deref())
    }

    /// Returns the host of an address, seen from `host`, and the address there.
    fn host_at(&self, host: usize, address: SocketAddr) -> (usize, SocketAddr) {
        let ip = address.ip();
        if ip.is_loopback() {
            return (host, address);
        }
        if ip.is_unspecified() {
            let loopback: IpAddr = if ip.is_ipv6() {
                Ipv6Addr::LOCALHOST.into()
            } else {
                Ipv4Addr::LOCALHOST.into()
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
            return Err(Errno::AddrNotAvailable.into());
        }
        if local.port() == 0 {
            local.set_port(self.free_port(host)?);
        }
        let others = self.listeners.get(&(host, local.port()));
        let is_taken = others.into_iter().flatten().any(|id| {
            let other = self.sockets[*id as usize].as_ref().map(|it| it.local.ip());
            other.is_some_and(|it| it == ip || it.is_unspecified() || ip.is_unspecified())
        });
        if is_taken {
            Err(Errno::AddrInUse.into())
        } else {
            Ok(local)
        }
    }

    /// Returns a free port, for a listener.
    fn free_port(&mut self, host: usize) -> io::Result<u16> {
        for _ in PORTS {
            let port = self.next_port(host);
            if !self.listeners.contains_key(&(host, port))
                && !self.is_connected_from(host, port, |_| true)
            {
                return Ok(port);
            }
        }
        Err(Errno::AddrNotAvailable.into())
    }

    /// Returns a port from which `ip` has no connection to that peer. The port may have connections
    /// to other peers, provided that this host opened them: Linux's __inet_hash_connect().
    fn free_port_to(&mut self, host: usize, ip: IpAddr, peer: SocketAddr) -> io::Result<u16> {
        for _ in PORTS {
            let port = self.next_port(host);
            let key = (host, SocketAddr::new(ip, port), peer);
            if !self.listeners.contains_key(&(host, port))
                && !self.connections.contains_key(&key)
                && !self.is_connected_from(host, port, |it| !it.has_connected)
            {
                return Ok(port);
            }
        }
        Err(Errno::AddrNotAvailable.into())
    }

    /// Returns the next ephemeral port.
    fn next_port(&mut self, host: usize) -> u16 {
        let port = self.hosts[host].next_port;
        self.hosts[host].next_port = if port == *PORTS.end() {
            *PORTS.start()
        } else {
            port + 1
        };
        port
    }

    /// Returns whether there is a connection from a port for which `counts` is true.
    fn is_connected_from(&self, host: usize, port: u16, counts: fn(&Tcp) -> bool) -> bool {
        let least = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let ips = [
            self.hosts[host].address(false),
            self.hosts[host].address(true),
            Ipv4Addr::LOCALHOST.into(),
            Ipv6Addr::LOCALHOST.into(),
        ];
        ips.into_iter().any(|ip| {
            let local = SocketAddr::new(ip, port);
            let from = self.connections.range((host, local, least)..);
            let mut from =
                from.take_while(|((at, address, _), _)| (*at, *address) == (host, local));
            from.any(|(_, id)| self.sockets[*id as usize].as_deref().is_some_and(counts))
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
