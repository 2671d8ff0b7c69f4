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

use super::step::Step;
use crate::sys::{AsDescriptor, BorrowedDescriptor, OwnedDescriptor};
use address::Address;
use answers::Asked;
use choice::Probability;
use errno::Errno;
use event_queue::{Events, Place};
use faults::{Faults, Kept, Kind};
use host_faults::HostFaults;
use latency::Latency;
use link::Links;
pub(crate) use order::MOST_PASSED_OVER;
use order::{Order, Queue};
use progress::{Call, Progress};
use sockets::Other;
pub(crate) use tcp::{CLOSED, ERROR, READABLE, WRITABLE};
use tcp::{Segment, State, Tcp};
use trace::{Comparison, Difference, Trace, What};
use udp::Datagram;

/// What is asked of a socket that its host's kernel has forgotten.
fn gone() -> io::Error {
    io::Error::other("the process that had this socket has ended")
}

/// The ports that are given to those who ask for none: Linux's `ip_local_port_range`.
const PORTS: std::ops::RangeInclusive<u16> = 32_768..=60_999;

/// The list of a host's sockets has so many before it is cleared of those that are gone: as it has
/// twice as many as were left, clearing it costs each socket the same.
const LIST: usize = 16;

/// A program that reads the clock more often in one step waits for it. Half a second of a test that
/// is not optimised.
const MOST_READINGS: u32 = 1_000_000;

/// A host that sends more datagrams at one moment, counted by KiB, never stops: as many as a world
/// has steps at one moment, and 100 MB at most.
const MOST_SENT: usize = 100_000;

/// A host that does not exist: segments to it are lost. The same number on every platform, as it is
/// part of fingerprints.
const NOBODY: usize = u32::MAX as usize;

/// The number of the test's own host, which is the first.
pub(crate) const TEST: usize = 0;

/// The options of a socket, given back as they were set, and refused where Linux refuses them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    pub(crate) linger: Option<Duration>,
    pub(crate) nodelay: bool,
    pub(crate) ttl: u32,
    pub(crate) broadcast: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            linger: None,
            nodelay: false,
            ttl: 64,
            broadcast: false,
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
            return Err(Errno::InvalidInput.into());
        }
        self.ttl = ttl;
        Ok(())
    }
}

pub(crate) struct Kernel {
    world: u32,
    base: Instant,
    /// The world answers for the C library.
    is_libc: bool,
    seed: u64,
    /// Nanoseconds since the world began.
    now: u64,
    /// What this thread reads, which is the time of the host whose code runs.
    shown: u64,
    /// A host's clock was set.
    has_clocks: bool,
    /// A host has had faults by chance.
    has_faults: bool,
    /// Those of all hosts, where their own are less probable.
    faults_by_chaos: HostFaults,
    events: Events,
    hosts: Vec<HostState>,
    names: BTreeMap<String, usize>,
    processes: Vec<ProcessState>,
    /// How many workers each has that starts from now on, unless its host says otherwise.
    workers: usize,
    /// Those of all processes: each worker has one.
    pollers: Vec<PollerState>,
    /// The pollers whose workers have something to do, in the order in which they came to it.
    ready: Vec<usize>,
    /// The pauses that there are, of which a host may have several; and how many there were.
    pauses: Vec<(PauseId, usize)>,
    pauses_begun: u32,
    /// The process whose code runs; and the poller of its worker.
    current: Option<usize>,
    current_poller: usize,
    /// Those of TCP, by number.
    sockets: Vec<Option<Box<Tcp>>>,
    /// All others, by number.
    others: BTreeMap<u32, Other>,
    udp_ports: BTreeMap<(usize, u16), Vec<u32>>,
    /// Who has a name, or had it last.
    #[cfg(unix)]
    unix_names: BTreeMap<unix::Key, u32>,
    connections: BTreeMap<(usize, SocketAddr, SocketAddr), u32>,
    listeners: BTreeMap<(usize, u16), Vec<u32>>,
    ended: VecDeque<(u64, u32)>,
    /// Sockets that may owe their peer an acknowledgement.
    owing: Vec<u32>,
    /// Segments that have come to their end, whose memory is used again: the boxes, as well as the
    /// bytes in them.
    #[allow(clippy::vec_box)]
    spare: Vec<Box<Segment>>,
    links: Links,
    /// What could be left out of the queue of events is there too: see `tcp`.
    #[cfg(test)]
    has_all_events: bool,
    pub(crate) faults: Faults,
    /// What the world's chaos is to do at a time that has come, by its number.
    due: VecDeque<u64>,
    /// Chaos of a lower number has been called off.
    first_chaos: u64,
    dns: names::Names,
    /// Which worker of which process is next; and the order of that, and of tasks.
    schedule: Queue,
    order: Order,
    /// Nobody sets another one.
    keeps_order: bool,
    /// Nothing happens by chance any more.
    is_calm: bool,
    pub(crate) trace: Trace,
    /// Somebody looks at what happens.
    observed: Option<Box<Observed>>,
    has_diverged: bool,
    failure: Option<Failure>,
    pub(crate) remarks: Remarks,
    /// Panics that are contained do not fail the run.
    permits_panics: bool,
    /// With which tasks have ended, and which are neither awaited nor reported yet: where they were
    /// spawned, and the words.
    held_panics: Vec<(&'static Location<'static>, String)>,
    /// What is dropped now is what a process has left that was killed.
    drops_killed: bool,
    tasks: u64,
    /// What the program has to say of itself, and whether that was so: see `sometimes!`.
    sometimes: BTreeMap<String, bool>,
    progress: Arc<Progress>,
    /// Which host's code has woken a task of which other one directly, and when first.
    shortcuts: BTreeMap<(usize, usize), u64>,
    /// Where the run first was another one than before: in a poll, of a process of that host.
    diverged_on: Option<usize>,
    /// How often a host may connect in a second.
    most_connects: u32,
    /// How many datagrams it may send in a second.
    most_datagrams: u32,
    foreign: Arc<AtomicBool>,
}

/// What is kept for those who look at what happens.
struct Observed {
    /// Each event is printed.
    logs: bool,
    /// The events that [`Sim::on_step`](super::Sim::on_step) has not been told, if it is to be.
    untold: Option<Vec<Step>>,
}

/// Why a run has failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) reason: String,
    /// What another run has in common with this one if it fails for the same reason: the check's
    /// name, or where a panic came from.
    pub(crate) cause: String,
    /// When what is wrong happened, if that was found later.
    pub(crate) at: Option<u64>,
}

/// What was done in a run that may be the reason of what is strange in it: for reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remarks {
    /// The program has asked for the descriptor of a simulated socket.
    pub(crate) is_lent: bool,
    /// The test has set a loss that few connections live with.
    pub(crate) is_lossy: bool,
}

impl Remarks {
    /// In words, a line each.
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
    /// When it last sent a datagram or connected, and how often at that moment: by KiB.
    sent: (u64, usize),
    next_port: u16,
    /// How many workers its next process has, if that was said of this host.
    workers: Option<usize>,
    /// Its TCP sockets, in the order of their numbers; of some the number is gone.
    sockets: Vec<u32>,
    /// At so many the list is cleared of those.
    most_sockets: usize,
    questions: names::Questions,
    clock: clock::Clock,
    past_clocks: clock::Past,
    wall: clock::Wall,
    #[cfg(feature = "blocking")]
    delays: blocking::Delays,
    faults: host_faults::FaultsOfHost,
    /// Made when it is used first.
    disk: Option<Box<disk_calls::DiskOfHost>>,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

/// How often something happens in a second of the world.
#[derive(Default)]
struct InASecond {
    /// In which it happened last.
    second: u64,
    count: u32,
}

impl InASecond {
    /// It happens now. Returns how often it has, in this second.
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
        match is_v6 {
            true => self.v6.into(),
            false => self.v4.into(),
        }
    }
}

struct ProcessState {
    host: usize,
    is_alive: bool,
    /// Where its pollers are; the last one is the main worker's.
    pollers: Range<usize>,
    /// Which of the tasks is next that no pool worker has taken, if it has a pool.
    injected: Option<Box<Queue>>,
    #[cfg(feature = "signal")]
    signals: signals::Counts,
    /// Calls that are due and wait for the end of a pause.
    #[cfg(feature = "blocking")]
    stalled: Vec<Arc<dyn crate::pool::Job>>,
}

/// What the poller of a worker has to report, and when that is to look.
struct PollerState {
    process: usize,
    /// These are its process's, nearer.
    host: usize,
    is_alive: bool,
    is_ready: bool,
    /// Sockets of which it has something to report.
    events: VecDeque<u32>,
    /// What it was armed for last, unless that has come. By its host's clock.
    timer: Option<Instant>,
    deadline: Option<u64>,
    /// How much later than that timer is due.
    late: u64,
    deadline_event: Option<u64>,
    /// Which of its worker's ready tasks is next.
    schedule: Queue,
}

enum Event {
    Segment(Box<Segment>),
    Datagram(Box<Datagram>),
    /// In a box, so that an event is two words.
    #[cfg(feature = "blocking")]
    Blocking(Box<blocking::PendingCall>),
    /// Of that socket.
    Retransmit(u32),
    /// A router says so to that socket.
    Unreachable(u32),
    /// Of the timers of that poller's worker.
    Deadline(usize),
    /// Something of that number that the world's chaos is to do.
    Chaos(u64),
}

/// What is next in a world.
pub(crate) enum Turn {
    /// It has failed.
    Stop,
    /// A task was woken by another thread.
    WokenFromElsewhere,
    /// The time, and the poller whose worker is to run, if any has something to do.
    Next(u64, Option<usize>),
}

/// What comes of letting time pass.
pub(crate) enum Advance {
    /// Something has happened: when, a call that is due then, and whether chaos is.
    Happened(u64, Due, bool),
    /// The next event is at that time, which is too late.
    Late(u64),
    /// Nothing will ever happen.
    Never,
}

/// A call of `unblock` that is due.
#[cfg(feature = "blocking")]
pub(crate) type Due = Option<blocking::Due>;

/// There are none.
#[cfg(not(feature = "blocking"))]
pub(crate) type Due = Option<std::convert::Infallible>;

/// What becomes of that which has come to its end of a link.
enum Passage<'a> {
    Lost,
    /// It is kept there, with its number.
    Held(u64, &'a mut Vec<(u64, Event)>),
    Arrives,
}

thread_local! {
    /// The time of the world that this thread is in. Apart from the kernel, so that reading it is a
    /// load.
    static CLOCK: Cell<Option<Instant>> = const { Cell::new(None) };
    /// [`World`] drops it: so there is no destructor, and no access asks whether it has run.
    static KERNEL: RefCell<ManuallyDrop<Option<Box<Kernel>>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };
    /// How often the program has read the clock in this step.
    static READINGS: Cell<u32> = const { Cell::new(0) };
    /// The last panics of this thread that were not reported yet.
    static PANICS: RefCell<VecDeque<Panic>> = const { RefCell::new(VecDeque::new()) };
}

/// So many panics may wait for their report: tasks that have ended with one, and are awaited by
/// nobody.
const MOST_PANICS: usize = 256;

/// A panic, by its words.
struct Panic {
    site: Option<String>,
    words: String,
}

/// The time of this thread's world, if it is in one.
#[inline]
pub(crate) fn now() -> Option<Instant> {
    CLOCK.get()
}

/// The earliest time of the world that the clock of the host whose code runs may have shown as
/// `at`. Outside of a world that is `at` itself.
pub(crate) fn earliest(at: Instant) -> Instant {
    with(|kernel| kernel.world_time(at, false)).unwrap_or(at)
}

/// The latest one.
pub(crate) fn latest(at: Instant) -> Instant {
    with(|kernel| kernel.world_time(at, true)).unwrap_or(at)
}

/// The program reads the clock.
///
/// # Panics
///
/// If it has read it so often in one step that it must be waiting for it.
#[inline]
pub(crate) fn count_reading() {
    if !is_here() {
        return;
    }
    let readings = READINGS.get() + 1;
    READINGS.set(readings);
    if readings > MOST_READINGS {
        READINGS.set(0);
        panic!(
            "polder::sim: the clock was read {MOST_READINGS} times in one step, in which no time \
             passes: a loop that waits for it never ends"
        );
    }
}

/// Whether this thread is in a world.
#[inline]
pub(crate) fn is_here() -> bool {
    CLOCK.get().is_some()
}

/// Calls `f` with this thread's kernel, if there is one. `f` runs no foreign code.
pub(crate) fn with<R>(f: impl FnOnce(&mut Kernel) -> R) -> Option<R> {
    KERNEL.with(|kernel| kernel.borrow_mut().as_deref_mut().map(f))
}

/// Names a pause of a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PauseId(u32);

/// What acts on a world when it is dropped has this, and so stays on that world's thread.
pub(crate) type StaysHere = PhantomData<*const ()>;

/// What is simpler in a run than what the seed or the test says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Simpler {
    /// Each segment takes the mean of its link's latency.
    pub(crate) is_even: bool,
    /// What is ready runs in turn.
    pub(crate) is_fifo: bool,
    /// What the test has chosen instead, by how manieth choice it is, from one on.
    pub(crate) chosen: BTreeMap<u64, u64>,
}

/// How a world is run.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) comparison: Comparison,
    /// The faults that may happen, where others are left out.
    pub(crate) kept: Option<Kept>,
    pub(crate) simpler: Simpler,
    /// More is kept of what happens, for a picture.
    pub(crate) records: bool,
    /// A panic is not printed: the same one was before.
    pub(crate) is_quiet: bool,
    /// Each event is printed as it happens.
    pub(crate) logs: bool,
    /// The failure that this run looks into, to be said if it never ends.
    pub(crate) found: Option<Arc<str>>,
}

/// Begins a world on this thread. It ends when the result is dropped.
pub(crate) fn begin(seed: u64, setup: Setup) -> World {
    static WORLDS: AtomicU32 = AtomicU32::new(0);
    assert!(!is_here(), "polder::sim: this thread is in a world already");
    let mut links = Links::new(seed);
    links.is_even = setup.simpler.is_even;
    let order = match setup.simpler.is_fifo {
        true => Order::Fifo,
        false => Order::Random,
    };
    // From here on the C library is the world's, if the program has it so: also for this reading of
    // the clock, which then is the same in every world.
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
        // None has the number zero.
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
        most_connects: u32::MAX,
        most_datagrams: u32::MAX,
        foreign: Arc::default(),
    };
    // What destructors at the end of another world have read is not this one's.
    READINGS.set(0);
    CLOCK.set(Some(kernel.base));
    KERNEL.set(ManuallyDrop::new(Some(Box::new(kernel))));
    World(())
}

/// The thread is in a world as long as this exists.
pub(crate) struct World(());

impl Drop for World {
    fn drop(&mut self) {
        let kernel = ManuallyDrop::into_inner(KERNEL.replace(ManuallyDrop::new(None)));
        CLOCK.set(None);
        drop(kernel);
        // Another world may have this thread.
        PANICS.take();
        answers::end();
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
            kernel.close(number);
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

/// What the world does not have.
pub(crate) fn unsupported(what: &str) -> io::Error {
    let words = format!("{what}: not in a simulated world");
    io::Error::new(io::ErrorKind::Unsupported, words)
}

/// The descriptor that is lent for every simulated socket, as signatures that cannot fail demand
/// one. Opened on first use, and the same for all worlds: so nothing that is done with it may leave
/// a trace that another world sees.
pub(crate) fn placeholder() -> io::Result<BorrowedDescriptor<'static>> {
    static PLACEHOLDER: OnceLock<OwnedDescriptor> = OnceLock::new();
    if PLACEHOLDER.get().is_none() {
        // Another thread may have been quicker.
        let _ = PLACEHOLDER.set(open_placeholder()?);
    }
    Ok(PLACEHOLDER.get().expect("it was set above").as_descriptor())
}

/// No socket, so that none of a socket's calls succeeds. On Linux it names a directory without
/// being open for anything (`O_PATH`), and has no flags and no position either; elsewhere it is the
/// directory, opened to be read.
#[cfg(unix)]
fn open_placeholder() -> io::Result<OwnedDescriptor> {
    use rustix::fs::{Mode, OFlags, open};

    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let flags = flags | OFlags::PATH;
    Ok(open("/", flags, Mode::empty())?)
}

/// An unconnected socket: what a socket is lent as can be nothing else.
#[cfg(windows)]
fn open_placeholder() -> io::Result<OwnedDescriptor> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    Ok(socket.into())
}

/// The program asks for a simulated socket's descriptor.
pub(crate) fn note_lent() {
    with(|kernel| kernel.remarks.is_lent = true);
}

impl SimSocket {
    fn new(with: impl FnOnce(&mut Kernel) -> io::Result<u32>) -> io::Result<SimSocket> {
        SimSocket::new_ones(|kernel| Ok([with(kernel)?])).map(|[it]| it)
    }

    /// So many that are made by one call.
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

    /// Begins to connect.
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

    /// Fails with [`WouldBlock`](Errno::WouldBlock) if the listener's queue is full.
    #[cfg(unix)]
    pub(crate) fn unix_connect(address: &Address) -> io::Result<SimSocket> {
        SimSocket::new(|kernel| kernel.unix_connect(address.unix()?))
    }

    /// A socket for datagrams, with a name, or without one.
    #[cfg(unix)]
    pub(crate) fn unix_datagram(address: Option<&Address>) -> io::Result<SimSocket> {
        let name = address.map_or(Ok(&address::Name::Unnamed), Address::unix);
        SimSocket::new(|kernel| kernel.unix_bind(name?))
    }

    /// Two ends that are connected.
    #[cfg(unix)]
    pub(crate) fn unix_pair(is_stream: bool) -> io::Result<(SimSocket, SimSocket)> {
        let pair = SimSocket::new_ones(|kernel| {
            let pair = match is_stream {
                true => kernel.unix_stream_pair(),
                false => kernel.unix_datagram_pair(),
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
        let result = with(|kernel| match kernel.world == self.world {
            true => f(kernel, self.number),
            false => Err(not_here()),
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

    /// Returns how much was read, and whether nothing is left to read: no end, and no error either.
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

    /// Receives a datagram, or looks at it.
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

    /// Whether receiving was shut down, although a receive would block.
    pub(crate) fn has_ended(self) -> bool {
        self.with(|kernel, number| Ok(kernel.has_ended(number)))
            .unwrap_or(false)
    }

    /// Whether a write is worth an attempt.
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

    /// Whether a read would not block.
    pub(crate) fn is_readable(self) -> bool {
        self.with(Kernel::is_readable).unwrap_or(false)
    }

    /// What it is, in the words of a dump.
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
}

/// Which of so many tasks is the next to run, of the worker whose code runs. `ready` says who they
/// are, by their ids.
pub(crate) fn choose_task(count: usize, ready: impl Iterator<Item = u64> + Clone) -> usize {
    let chosen = with(|kernel| {
        kernel.current?;
        let poller = &mut kernel.pollers[kernel.current_poller];
        Some(poller.schedule.choose(count, ready))
    });
    chosen.flatten().unwrap_or(0)
}

/// [`choose_task`], of those that no pool worker of its process has taken yet.
pub(crate) fn choose_injected(count: usize, ready: impl Iterator<Item = u64> + Clone) -> usize {
    let chosen = with(|kernel| {
        let process = &mut kernel.processes[kernel.current?];
        let injected = process.injected.as_mut()?;
        Some(injected.choose(count, ready))
    });
    chosen.flatten().unwrap_or(0)
}

/// A task is polled.
pub(crate) fn note_poll(task: u64, site: &'static Location<'static>) {
    with(|kernel| {
        kernel.calls(Call::Poll);
        let host = kernel.host_here().unwrap_or(NOBODY);
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
    fail_as(None, None, reason);
}

/// Where the last panic with these words came from, which is forgotten. A panic that a task has
/// ended with may come to light after others.
fn site_of(words: &str) -> Option<String> {
    let find = |panics: &RefCell<VecDeque<Panic>>| {
        let mut panics = panics.try_borrow_mut().ok()?;
        let place = panics.iter().rposition(|it| it.words == words)?;
        panics.remove(place)?.site
    };
    PANICS.try_with(find).ok().flatten()
}

/// The run has failed by a panic.
pub(crate) fn fail_by_panic(words: &str, reason: impl FnOnce() -> String) {
    let site = site_of(words);
    fail_as(site.map(|it| format!("a panic at {it}")), None, reason);
}

/// The run has failed by the panic of a process, or of a task that nobody awaits, unless the test
/// permits that.
pub(crate) fn fail_unless_permitted(words: &str, reason: impl FnOnce() -> String) {
    if with(|kernel| kernel.permits_panics) == Some(false) {
        fail_by_panic(words, reason);
    }
}

/// A task has ended with a panic, which is for whoever awaits it.
pub(crate) fn task_has_panicked(site: &'static Location<'static>, words: &str) {
    with(|kernel| kernel.held_panics.push((site, words.to_owned())));
}

/// Somebody has taken such a panic, or reports it.
pub(crate) fn panic_is_taken(site: &'static Location<'static>, words: &str) {
    with(|kernel| {
        let mut held = kernel.held_panics.iter();
        if let Some(place) = held.rposition(|it| it.0 == site && it.1 == words) {
            kernel.held_panics.remove(place);
        }
    });
}

/// The run has failed if a panic was neither awaited nor reported when all was dropped: the handle
/// of its task was forgotten, or is part of a cycle.
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

/// A panic of foreign code that was called by polder was contained: see `sync::CONTAINED`. Where a
/// process was killed it counts for nothing, as in reality no destructor would have run.
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

/// Calls what is no code of a process, though it may be within one's step.
pub(crate) fn as_nobody<R>(f: impl FnOnce() -> R) -> R {
    let exchange = |process| with(|kernel| std::mem::replace(&mut kernel.current, process));
    let before = exchange(None);
    let result = f();
    exchange(before.flatten());
    result
}

/// Runs destructors of what was killed, which in reality would not run: their panics do not count.
pub(crate) fn as_killed(f: impl FnOnce()) {
    let set = |is_killed| with(|kernel| std::mem::replace(&mut kernel.drops_killed, is_killed));
    let before = set(true);
    f();
    set(before.unwrap_or_default());
}

/// Whether what the program says of itself is checked where it is now: not in destructors that a
/// machine would not run.
pub(crate) fn checks_here() -> bool {
    with(|kernel| !kernel.drops_killed) == Some(true)
}

/// What the program always is, it is not: see `always!`.
pub(crate) fn does_not_hold(name: &str, site: &Location<'_>) {
    let host = with(|kernel| kernel.current_host().to_owned()).unwrap_or_default();
    // By its place too: another one of that name is another reason.
    let cause = format!("always {name:?} at {site}");
    let reason = || format!("always {name:?}: it does not hold on {host}, {site}");
    fail_as(Some(cause), None, reason);
}

/// Whether it is worth asking for what the program is sometimes: see `sometimes!`.
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

/// Notes what a test that shows anything has in some world.
pub(crate) fn note_sometimes(name: &str, is_so: bool) {
    with(|kernel| *kernel.sometimes.entry(name.to_owned()).or_default() |= is_so);
}

/// What the program is sometimes, it is.
pub(crate) fn was_true(name: &str) {
    note_sometimes(name, true);
}

/// The run has failed, for a reason that says more than its cause, and by what happened then.
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

/// This thread panics there, with these words: called by the panic hook, so nothing here may panic.
pub(crate) fn note_panic(site: Option<&Location<'_>>, words: &str) {
    let note = |panics: &RefCell<VecDeque<Panic>>| {
        let Ok(mut panics) = panics.try_borrow_mut() else {
            return;
        };
        if panics.len() == MOST_PANICS {
            panics.pop_front();
        }
        panics.push_back(Panic {
            site: site.map(ToString::to_string),
            words: words.to_owned(),
        });
    };
    let _ = PANICS.try_with(note);
}

/// The poller of a worker of a process, as its selector knows it.
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

    /// Registers a socket. Another time, it replaces what was registered.
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

    /// Takes the next one of those that there are to report: token and readiness.
    pub(crate) fn take(&self) -> Option<(u64, u8)> {
        let mut taken = None;
        self.with(|kernel, poller| {
            while let Some(number) = kernel.pollers[poller].events.pop_front() {
                // It may be registered elsewhere since.
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

    /// There may be more to report than was taken.
    pub(crate) fn wake_if_ready(&self) {
        self.with(|kernel, poller| {
            if kernel.has_events(poller) {
                kernel.wake(poller);
            }
        });
    }

    /// The worker has something to do.
    pub(crate) fn notify(&self) {
        self.woken(Kernel::wake);
    }

    /// A task of the worker was woken on this thread, which is to be the world's.
    pub(crate) fn woken_on_this_thread(&self) {
        self.woken(|_, _| ());
    }

    /// Something of the worker was woken. `wake` is called if that was by this world's code, and
    /// with the poller's number.
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

    /// When the worker's earliest timer is due.
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

/// What the world asks.
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
            most_sockets: LIST,
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

    /// Where its watchdog looks. Set before there is a host.
    pub(crate) fn set_progress(&mut self, progress: Arc<Progress>) {
        self.progress = progress;
    }

    /// Foreign code is about to be called.
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

    /// The host whose code runs.
    fn host_here(&self) -> Option<usize> {
        self.current.map(|it| self.host_of(it))
    }

    /// The name of the host whose code runs.
    fn current_host(&self) -> &str {
        self.host_name(self.host_here().unwrap_or(NOBODY))
    }

    /// What the program has said that it is sometimes, and whether it was.
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

    /// Sets how many workers the next process of a host has; of all hosts, unless one is named.
    pub(crate) fn set_workers(&mut self, host: Option<usize>, workers: usize) {
        match host {
            Some(host) => self.hosts[host].workers = Some(workers),
            None => self.workers = workers,
        }
    }

    /// A process begins on a host, which is switched on. Its pollers are its pool workers', if it
    /// has any, and the main worker's.
    pub(crate) fn start(&mut self, host: usize) -> (usize, Vec<PollerOfWorker>) {
        self.hosts[host].is_up = true;
        let process = self.processes.len();
        let first = self.pollers.len();
        let pool = match self.hosts[host].workers.unwrap_or(self.workers) {
            1 => 0,
            several => several,
        };
        let pollers = first..first + pool + 1;
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
            });
        }
        self.processes.push(ProcessState {
            host,
            is_alive: true,
            pollers: pollers.clone(),
            injected: (pool > 0)
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

    /// A process ends: the kernel closes its sockets, or, without power, says nothing to anybody.
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
        // Those of a host without power are forgotten below.
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

    /// A host without power: its connections and listeners are forgotten.
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

    /// Ends a pause, unless everything was healed since.
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

    /// Ends every cut, hold and pause.
    pub(crate) fn heal_all(&mut self) {
        self.note(0, What::Quiet);
        self.end_partings();
        self.pauses.clear();
        #[cfg(feature = "blocking")]
        self.resume_blocking();
    }

    /// Resets every connection between two hosts, on both sides at once.
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

    /// What a process has left is dropped: in its name, and by force or not.
    pub(crate) fn begin_drop(&mut self, process: usize, is_killed: bool) {
        self.set_current(Some(process));
        self.drops_killed = is_killed;
        self.calls(Call::Drop);
    }

    pub(crate) fn end_drop(&mut self) {
        self.drops_killed = false;
        self.set_current(None);
    }

    /// The main worker of a process is about to run foreign code, or none is.
    pub(crate) fn set_current(&mut self, process: Option<usize>) {
        let main = process.map(|it| self.processes[it].pollers.end - 1);
        self.set_current_poller(main);
    }

    /// The worker that has this poller is about to run foreign code, or none is.
    pub(crate) fn set_current_poller(&mut self, poller: Option<usize>) {
        READINGS.set(0);
        self.current = poller.map(|it| self.pollers[it].process);
        self.current_poller = poller.unwrap_or_default();
        self.show_time();
        answers::next_step();
    }

    /// What is next, for the loop that drives the world.
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

    /// The poller whose worker is the next to run: any that has something to do, and is not paused.
    fn next_poller(&mut self) -> Option<usize> {
        // Mostly: one alone is no choice.
        if self.pauses.is_empty() && self.ready.len() < 2 {
            let poller = self.ready.pop()?;
            self.schedule.choose(1, std::iter::empty());
            self.pollers[poller].is_ready = false;
            return Some(poller);
        }
        // The places of those that may run, where not all may.
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

    /// Lets the next event happen, unless that is later than `latest`. Nobody has anything to do
    /// until then.
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

    /// Whether nothing would ever happen but for the code that runs now.
    pub(crate) fn is_at_rest(&mut self) -> bool {
        self.ready.is_empty() && self.next_event().is_none()
    }

    /// When the next event happens, and where it is.
    fn next_event(&mut self) -> Option<(u64, Place)> {
        self.acknowledge_all();
        loop {
            let (at, event, place) = self.events.first()?;
            let is_due = match *event {
                Event::Retransmit(id) => self.tcp_is_due(id, at),
                Event::Deadline(poller) => self.is_deadline(poller, at),
                Event::Chaos(number) => number >= self.first_chaos,
                // These happen in any case.
                _ => true,
            };
            if is_due {
                return Some((at, place));
            }
            self.events.take(place);
        }
    }

    /// Lets the event happen of which [`next_event`](Self::next_event) has said just now that it is
    /// there. Returns a call that is due, if that is what happens.
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

    /// At that time [`take_chaos`](Self::take_chaos) gives this number, unless it is called off.
    /// Later calls have greater numbers.
    pub(crate) fn schedule_chaos(&mut self, at: u64, number: u64) {
        self.push(at.max(self.now), Event::Chaos(number));
    }

    /// Of what is scheduled, numbers below this one are never given.
    pub(crate) fn call_off_chaos(&mut self, first: u64) {
        self.first_chaos = first;
        self.due.clear();
    }

    pub(crate) fn take_chaos(&mut self) -> Option<u64> {
        self.due.pop_front()
    }

    /// How probable faults of a kind are by chaos, from now on.
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

    /// Each link has a latency of its own that the chaos of this number draws; its setting, if
    /// there is none.
    pub(crate) fn set_latencies_by_chaos(&mut self, chaos: Option<u32>) {
        self.links.chaos = chaos;
    }

    /// Ends the latencies that the chaos of this number draws.
    pub(crate) fn end_latencies_by_chaos(&mut self, chaos: u32) {
        self.links.chaos = self.links.chaos.filter(|it| *it != chaos);
    }

    /// From here on chance does no harm, whatever takes a time takes its mean, and what is ready
    /// runs in turn.
    pub(crate) fn be_calm(&mut self) {
        self.faults.turn_off();
        self.links.is_even = true;
        self.is_calm = true;
        self.set_order(Order::Fifo);
        self.keeps_order = true;
    }

    /// How long something takes, of which so much was drawn.
    fn drawn_or_mean(&self, drawn: u64, latency: Latency) -> u64 {
        match self.is_calm {
            true => latency.mean(),
            false => drawn,
        }
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

    pub(crate) fn set_most_connects(&mut self, most: u32) {
        self.most_connects = most;
    }

    /// A host sends a datagram with so many bytes, or connects: again and again without any time
    /// passing, and the run fails, before what is under way takes all memory. Returns whether it is
    /// still within bounds.
    fn count_sent(&mut self, host: usize, bytes: usize) -> bool {
        let state = &mut self.hosts[host];
        if state.sent.0 != self.now {
            state.sent = (self.now, 0);
        }
        state.sent.1 += 1 + bytes / 1_024;
        let is_within = state.sent.1 <= MOST_SENT;
        if !is_within {
            let cause = format!("livelock: {:?} sends without any time passing", state.name);
            let reason = format!("{cause}: a loop that neither sleeps nor waits for an answer");
            self.note_failure(cause, None, reason);
        }
        is_within
    }

    pub(crate) fn set_most_datagrams(&mut self, most: u32) {
        self.most_datagrams = most;
    }

    /// A host connects: too often, and the run fails.
    fn count_connect(&mut self, host: usize) {
        let (state, most) = (&mut self.hosts[host], self.most_connects);
        if state.connects.add(self.now) > most {
            let cause = format!("retry storm: {:?} connects too often", state.name);
            let reason = format!("{cause}: more than {most} times within a second");
            self.note_failure(cause, None, reason);
        }
    }

    /// A host sends a datagram: one too many, and the run fails.
    fn count_datagram(&mut self, host: usize) {
        let (state, most) = (&mut self.hosts[host], self.most_datagrams);
        if state.datagrams.add(self.now) > most {
            let cause = format!("storm: {:?} sends too many datagrams", state.name);
            let reason = format!("{cause}: more than {most} within a second");
            self.note_failure(cause, None, reason);
        }
    }

    /// The run has failed, unless it had before: its first failure is what it fails with.
    #[cold]
    fn note_failure(&mut self, cause: String, at: Option<u64>, reason: String) {
        (self.failure).get_or_insert(Failure { reason, cause, at });
    }

    /// A task of that poller's worker is woken by the code that runs. Where that is another host's,
    /// what wakes it has bypassed the network, which nothing can in reality. The test is to do so.
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

    /// Which hosts have bypassed the network, a line each.
    pub(crate) fn shortcuts(&self) -> Vec<String> {
        let line = |((by, of), at): (&(usize, usize), &u64)| {
            let (by, of) = (self.host_name(*by), self.host_name(*of));
            let at = trace::Seconds(*at);
            format!("{by} woke a task of {of} directly (first at {at}): a real program cannot")
        };
        self.shortcuts.iter().map(line).collect()
    }

    /// Whether another thread has woken a task.
    pub(crate) fn was_woken_from_elsewhere(&self) -> bool {
        self.foreign.load(Ordering::Relaxed)
    }

    /// Whether a poller has something to report.
    pub(crate) fn has_events(&self, poller: usize) -> bool {
        !self.pollers[poller].events.is_empty()
    }

    pub(crate) fn host_of_poller(&self, poller: usize) -> usize {
        self.pollers[poller].host
    }

    /// The numbers of a process's pollers.
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

    /// A time of [`now`] as nanoseconds since the world began.
    pub(crate) fn nanos_at(&self, at: Instant) -> u64 {
        link::nanos(at.saturating_duration_since(self.base))
    }

    /// Nanoseconds since the world began.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// How often the C library was asked, if the world answers for it.
    pub(crate) fn asked_of_libc(&self) -> Option<Asked> {
        self.is_libc.then(answers::asked)
    }

    /// Where this run is other than the one that it is compared with, as far as that is known.
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

    /// Prints an event, or keeps it for those who are to be told.
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
            // Not by `eprintln!`, which the harness keeps until the test has ended.
            let line = format!("seed {:#x}: {step}\n", self.seed);
            let _ = io::stderr().write_all(line.as_bytes());
        }
        if let Some(untold) = &mut observed.untold {
            untold.push(step);
        }
    }

    /// From now on events are kept for [`take_untold`](Self::take_untold).
    pub(crate) fn keep_untold(&mut self) {
        let observed = self.observed.get_or_insert_with(|| {
            let (logs, untold) = (false, None);
            Box::new(Observed { logs, untold })
        });
        observed.untold.get_or_insert_default();
    }

    /// What has happened since it was taken last.
    pub(crate) fn take_untold(&mut self) -> Vec<Step> {
        let untold = self.observed.as_mut().and_then(|it| it.untold.as_mut());
        untold.map(std::mem::take).unwrap_or_default()
    }

    /// The sockets of a process, for reports.
    pub(crate) fn describe_sockets(&mut self, process: usize) -> Vec<String> {
        let sockets = self.tcp_sockets(self.processes[process].host);
        let ours = sockets.filter(|it| it.process == Some(process));
        let ours = ours.map(|it| it.describe(|host| self.host_name(host).to_owned()));
        let mut all: Vec<String> = ours.collect();
        let others = self.others.values_mut();
        let ours = others.filter_map(|it| match it.base().process == Some(process) {
            true => Some(it.describe()),
            false => None,
        });
        all.extend(ours);
        all
    }

    pub(crate) fn is_paused(&self, host: usize) -> bool {
        self.pauses.iter().any(|it| it.1 == host)
    }

    /// Sees to it that a worker is woken when its timer is due, by its host's clock.
    fn arm_poller(&mut self, poller: usize) {
        let timer = self.pollers[poller].timer.map(|it| self.nanos_at(it));
        let now = self.now;
        let clock = self.hosts[self.host_of_poller(poller)].clock;
        let state = &mut self.pollers[poller];
        let at = timer.map(|it| {
            let due = clock.when(it).max(now);
            let late = due.saturating_add(state.late);
            // A clock that is set anew makes nothing later that is due already.
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

    /// Sets a host's clock ahead, and its drift, if that is to change.
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

    /// How much faster a host's clock is than the world, in millionths.
    pub(crate) fn drift(&self, host: usize) -> i32 {
        self.hosts[host].clock.drift()
    }

    /// Ends what comes by chance on hosts and in names, and the drift of clocks. What they have
    /// jumped stays.
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

    /// The clock that this thread reads is that of the host whose code runs.
    #[inline]
    fn show_time(&mut self) {
        if self.has_clocks || self.shown != self.now {
            self.show_other_time();
        }
    }

    /// When the world began, as [`now`] tells the time.
    pub(crate) fn began_at(&self) -> Instant {
        self.base
    }

    /// The time that this thread reads, in nanoseconds since then.
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
            // It was pushed back since.
            Some(deadline) if state.is_alive => {
                state.deadline_event = Some(deadline);
                self.push(deadline, Event::Deadline(poller));
            }
            _ => {}
        }
        false
    }

    /// What becomes of that which comes from one host to another now.
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
        match is_up {
            true => Passage::Arrives,
            false => Passage::Lost,
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
        self.events.push(at, event);
    }

    /// The worker of a poller has something to do.
    fn wake(&mut self, poller: usize) {
        let state = &mut self.pollers[poller];
        if state.is_alive && !std::mem::replace(&mut state.is_ready, true) {
            self.ready.push(poller);
        }
    }

    /// A socket is ready anew, which its pollers are to report.
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

    /// [`raise`](Self::raise), with `only` one of its pollers, if it is given.
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
        if host.sockets.len() == host.most_sockets {
            let sockets = &self.sockets;
            (host.sockets).retain(|it| sockets[*it as usize].is_some());
            host.most_sockets = (2 * host.sockets.len()).max(LIST);
        }
        host.sockets.push(number);
        self.sockets.push(Some(Box::new(socket)));
        number
    }

    /// The TCP sockets of a host, by their numbers, some of which may be gone.
    fn ids(&self, host: usize) -> Vec<u32> {
        self.hosts[host].sockets.clone()
    }

    fn tcp_sockets(&self, host: usize) -> impl Iterator<Item = &Tcp> {
        let ids = self.hosts[host].sockets.iter();
        ids.filter_map(|it| self.sockets[*it as usize].as_deref())
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
        match is_taken {
            true => Err(Errno::AddrInUse.into()),
            false => Ok(local),
        }
    }

    /// A port that nobody has, for a listener.
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

    /// A port from which `ip` has no connection to that peer. It may have others, to which it has
    /// connected too: Linux's __inet_hash_connect().
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

    /// The next of the ports that are given to those who ask for none.
    fn next_port(&mut self, host: usize) -> u16 {
        let port = self.hosts[host].next_port;
        self.hosts[host].next_port = match port == *PORTS.end() {
            true => *PORTS.start(),
            false => port + 1,
        };
        port
    }

    /// Whether there is a connection from a port that `counts`.
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
