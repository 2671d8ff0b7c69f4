//! [`Chaos`]: random faults. Each seed draws which kinds of faults there are, and their rates.
//!
//! The same mix for every seed hides bugs: a program that crashes often never runs for long, and a
//! fault that heals another one's damage hides it. So each kind that the test names is on for half
//! of the seeds, and its rates are drawn from a range of a factor of a hundred or more (after
//! "swarm testing", Groce et al., 2012).
//!
//! **Randomness.** Each kind has its own [`Stream`], keyed by its name and the number of the call
//! of [`Sim::chaos`](super::Sim::chaos). Each fault of a kind has one too, keyed by its number. So
//! neither the program's behaviour nor a fault that is left out shifts later faults. A fault picks
//! its hosts from a list, whether or not they are up. If it has nothing to act on, it has no
//! effect.
//!
//! **Timing.** The kernel keeps the times (`Core::schedule_chaos`). The world's loop asks after
//! each event which actions are due, and performs them between two steps. A crash may wait for some
//! steps of its process, so that it interrupts what the process does at one moment. Every fault
//! ends with the chaos, except for the jump of a clock. [`Sim::quiesce`](super::Sim::quiesce)
//! cancels everything that is scheduled, including the ends of faults, since it heals everything
//! itself.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::rc::Rc;

use super::host::Host;
use super::state::{Ending, State, kernel as with_kernel};
use crate::world::choice::{Probability, Stream};
use crate::world::faults::{Fault, Id, Kind};
use crate::world::order::Order;
use crate::world::parting::{How, PartingId};
use crate::world::trace::{Seconds, What};
use crate::world::{Kernel, PauseId};

/// Seeds below this one are calm, so that a simple bug fails without any faults.
const FIRST_WILD: u64 = 10;

/// Name of the `sometimes` condition that fails a test with only calm seeds, which shows nothing.
pub(super) const ONLY_CALM: &str = "chaos does harm (the seeds 0 to 9 are calm)";

/// Mean time from one fault of a kind to the next, in milliseconds: half an octave apart.
const GAPS: [u64; 16] = [
    50, 71, 100, 141, 200, 283, 400, 566, 800, 1_131, 1_600, 2_263, 3_200, 4_525, 6_400, 9_051,
];

/// Mean duration of a fault, in milliseconds.
const LENGTHS: [u64; 16] = [
    5, 9, 15, 25, 42, 71, 120, 200, 340, 575, 970, 1_640, 2_770, 4_680, 7_900, 13_300,
];

/// Probability of a fault, in parts of ten thousand.
const RATES: [u16; 16] = [
    10, 14, 20, 28, 40, 57, 80, 113, 160, 226, 320, 453, 640, 905, 1_280, 1_810,
];

/// Drift of a clock in either direction, in millionths: from that of a good clock to that of a
/// virtual machine that is being migrated.
const DRIFTS: [i32; 16] = [
    20, 40, 80, 160, 320, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 125_000,
    250_000, 500_000,
];

/// Mean step of a wall clock, in milliseconds: from where NTP steps instead of slewing (128) to a
/// day.
const WALL_STEPS: [u64; 16] = [
    128, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000, 900_000,
    3_600_000, 7_200_000, 43_200_000, 86_400_000,
];

/// Bandwidth of a slow link, in bytes per second: half an octave apart.
const BANDWIDTHS: [u64; 16] = [
    10_000, 14_000, 20_000, 28_000, 40_000, 57_000, 80_000, 113_000, 160_000, 226_000, 320_000,
    453_000, 640_000, 905_000, 1_280_000, 1_810_000,
];

/// Upper bound (exclusive) of the steps of its process that a crash waits for.
const STEPS: u64 = 16;

const MILLISECOND: u64 = 1_000_000;

/// Random faults for a limited time, returned by [`Sim::chaos`](super::Sim::chaos). Each method
/// adds a kind of fault, which is on for half of the seeds, with rates and durations that the seed
/// draws too. The report of a failure shows what was drawn.
///
/// The seeds from 0 to 9 are calm: none of these faults happens. With seed 0 nothing is random from
/// here on, except what the program and the test draw themselves: no segment is lost
/// ([`Links::loss`](super::Links::loss)), each takes the mean latency of its link, name lookups and
/// calls of [`unblock`](crate::unblock) take the mean of theirs, and ready tasks run in turn
/// ([`Order::Fifo`]), regardless of the test's settings.
///
/// Every fault ends with the duration, and with [`Sim::quiesce`](super::Sim::quiesce). Only the
/// jump of a clock stays, as a monotonic clock cannot be set back.
///
/// Each fault has a number (the first 4,000 of each kind do), and can be left out by it: see
/// [`check`](super::check).
///
/// ```
/// use std::time::Duration;
///
/// polder::sim::check(0..30, |sim| async move {
///     let store = sim.host("store").start(std::future::pending::<()>);
///     sim.chaos(Duration::from_secs(30))
///         .cuts()
///         .loss()
///         .pauses()
///         .clocks()
///         .crashes(&[&store]);
///     sim.sleep(Duration::from_secs(20)).await;
///     sim.quiesce(); // It ends.
///     assert!(store.is_up());
/// });
/// ```
// To add a kind: see CONTRIBUTING.md, "Adding a simulated fault".
#[derive(Debug)]
pub struct Chaos {
    state: Rc<State>,
    call: usize,
    until: u64,
}

impl Chaos {
    pub(super) fn new(state: Rc<State>, duration: u64) -> Chaos {
        let now = with_kernel(|kernel| kernel.core.time.now());
        let until = now.saturating_add(duration);
        let mut plan = state.chaos.borrow_mut();
        let call = plan.calls;
        plan.calls += 1;
        let (at, lasts, seed) = (Seconds(now), Seconds(duration), plan.seed);
        let calm = if seed < FIRST_WILD || plan.is_calm {
            ", but this seed is calm"
        } else {
            ""
        };
        crate::world::note_sometimes(ONLY_CALM, seed >= FIRST_WILD);
        let _ = writeln!(plan.drawn, "  chaos from {at} for {lasts}{calm}:");
        if plan.seed == 0 {
            with_kernel(Kernel::be_calm);
        }
        drop(plan);
        Chaos { state, call, until }
    }

    /// Adds cuts: two hosts, one host and all others, or two halves of the network cannot reach
    /// each other, sometimes in one direction only. The host of the test takes part.
    ///
    /// ```
    /// use polder::net::TcpStream;
    /// use std::io::ErrorKind;
    /// use std::time::Duration;
    ///
    /// polder::sim::check(0..30, |sim| async move {
    ///     sim.host("server");
    ///     sim.chaos(Duration::from_secs(30)).cuts();
    ///     // Refused, as nothing listens there; but for that the server has to be reached.
    ///     let limit = Duration::from_secs(1);
    ///     while let Err(error) = TcpStream::connect_timeout("server:1", limit).await {
    ///         if error.kind() == ErrorKind::ConnectionRefused {
    ///             break;
    ///         }
    ///     }
    /// });
    /// ```
    pub fn cuts(self) -> Chaos {
        self.add(Kind::Cut, Vec::new())
    }

    /// Adds holds: everything sent between two parts of the network arrives later, all together.
    ///
    /// ```
    /// use polder::net::UdpSocket;
    /// use std::time::Duration;
    ///
    /// polder::sim::check(0..30, |sim| async move {
    ///     sim.chaos(Duration::from_secs(30)).holds();
    ///     let socket = UdpSocket::bind("0.0.0.0:7").await?;
    ///     sim.host("far").start(|| async {
    ///         UdpSocket::bind("0.0.0.0:0").await?.send_to(b"late", "test:7").await
    ///     });
    ///     assert_eq!(socket.recv(&mut [0; 8]).await?, 4); // A hold loses nothing.
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn holds(self) -> Chaos {
        self.add(Kind::Hold, Vec::new())
    }

    /// Adds slow links: between two parts of the network, as for [`cuts`](Self::cuts), each link
    /// carries 10 KB to 1.8 MB per second for a while, unless its own bandwidth is lower. Data that
    /// has to wait for more than a second is lost (if the test has set a
    /// [`bandwidth`](super::Links::bandwidth), data that does not fit into its queue).
    ///
    /// Not one of the [`usual`](Self::usual) kinds.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// polder::sim::check(0..30, |sim| async move {
    ///     sim.host("server");
    ///     sim.chaos(Duration::from_secs(30)).slow().cuts();
    ///     sim.sleep(Duration::from_secs(20)).await;
    ///     sim.quiesce();
    /// });
    /// ```
    pub fn slow(self) -> Chaos {
        self.add(Kind::Slow, Vec::new())
    }

    /// Adds resets of all connections between two hosts, as by [`Sim::reset`](super::Sim::reset).
    ///
    /// ```
    /// use polder::io::AsyncReadExt;
    /// use polder::net::{TcpListener, TcpStream};
    /// use std::time::Duration;
    ///
    /// polder::sim::check(0..30, |sim| async move {
    ///     let listener = TcpListener::bind("0.0.0.0:1").await?;
    ///     sim.host("client").start(|| async {
    ///         let mut stream = TcpStream::connect("test:1").await?;
    ///         let result = stream.read(&mut [0]).await;
    ///         polder::sometimes!(result.is_err(), "a connection is reset");
    ///         result
    ///     });
    ///     let _connection = listener.accept().await?; // It sends nothing.
    ///     sim.chaos(Duration::from_secs(30)).resets();
    ///     sim.sleep(Duration::from_secs(30)).await;
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn resets(self) -> Chaos {
        self.add(Kind::Reset, Vec::new())
    }

    /// Adds pauses: a process does nothing for a while. The test's process is never paused.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// polder::sim::check(0..30, |sim| async move {
    ///     let store = sim.host("store").start(std::future::pending::<()>);
    ///     sim.chaos(Duration::from_secs(30)).pauses();
    ///     sim.sometimes("it is paused", move || store.is_paused());
    ///     sim.sleep(Duration::from_secs(30)).await;
    /// });
    /// ```
    pub fn pauses(self) -> Chaos {
        self.add(Kind::Pause, Vec::new())
    }

    /// Adds crashes of these hosts, which restart after a while: their processes are killed, or
    /// their power fails. A process may end between any two of its steps. (A process that has
    /// returned cannot crash, and is not restarted.)
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// polder::sim::check(0..30, |sim| async move {
    ///     let store = sim.host("store").start(std::future::pending::<()>);
    ///     sim.chaos(Duration::from_secs(30)).crashes(&[&store]);
    ///     let is_down = store.clone();
    ///     sim.sometimes("it is down", move || !is_down.is_up());
    ///     sim.sleep(Duration::from_secs(20)).await;
    ///     sim.quiesce();
    ///     assert!(store.is_up());
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If one of them is the host of the test itself.
    #[track_caller]
    pub fn crashes(self, hosts: &[&Host]) -> Chaos {
        hosts.iter().for_each(|it| it.assert_not_the_test());
        if hosts.is_empty() {
            return self;
        }
        self.add(Kind::Kill, hosts.iter().map(|it| it.index).collect())
    }

    /// Adds losses, on every link. A link's own probability applies if it is greater.
    ///
    /// ```
    /// use polder::net::UdpSocket;
    /// use std::time::Duration;
    ///
    /// polder::sim::check(0..30, |sim| async move {
    ///     sim.chaos(Duration::from_secs(30)).loss();
    ///     let near = UdpSocket::bind("0.0.0.0:7").await?;
    ///     sim.host("far").start(|| async {
    ///         let far = UdpSocket::bind("0.0.0.0:0").await?;
    ///         for _ in 0..100 {
    ///             far.send_to(b"?", "test:7").await?;
    ///         }
    ///         std::io::Result::Ok(())
    ///     });
    ///     let mut count = 0;
    ///     let second = Duration::from_secs(1);
    ///     while polder::time::timeout(second, near.recv(&mut [0])).await.is_ok() {
    ///         count += 1;
    ///     }
    ///     polder::sometimes!(count < 100, "a datagram is lost");
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn loss(self) -> Chaos {
        self.rate(Kind::Loss)
    }

    /// Adds datagrams that arrive twice, on every link. A link's own probability applies if it is
    /// greater.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// polder::sim::check(0..30, |sim| async move {
    ///     // A protocol over UDP is tested with all three.
    ///     sim.chaos(Duration::from_secs(30)).loss().duplication().reordering();
    ///     // …
    /// });
    /// ```
    pub fn duplication(self) -> Chaos {
        self.rate(Kind::Duplicate)
    }

    /// Adds datagrams that arrive after later ones, on every link. A link's own probability applies
    /// if it is greater.
    ///
    /// ```
    /// use polder::net::UdpSocket;
    /// use std::time::Duration;
    ///
    /// polder::sim::check(0..30, |sim| async move {
    ///     sim.chaos(Duration::from_secs(30)).reordering();
    ///     let near = UdpSocket::bind("0.0.0.0:7").await?;
    ///     sim.host("far").start(|| async {
    ///         let far = UdpSocket::bind("0.0.0.0:0").await?;
    ///         for n in 0..100 {
    ///             far.send_to(&[n], "test:7").await?;
    ///         }
    ///         std::io::Result::Ok(())
    ///     });
    ///     let mut byte = [0];
    ///     for n in 0..100 {
    ///         near.recv(&mut byte).await?;
    ///         polder::sometimes!(byte != [n], "datagrams change places");
    ///     }
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn reordering(self) -> Chaos {
        self.rate(Kind::Reorder)
    }

    /// Adds short reads and writes, on every host: a read returns, or a write takes, less than it
    /// could. See [`Faults::short`](super::Faults::short).
    ///
    /// ```
    /// use polder::io::AsyncWriteExt;
    /// use polder::net::{TcpListener, TcpStream};
    /// use std::time::Duration;
    ///
    /// polder::sim::check(0..30, |sim| async move {
    ///     sim.chaos(Duration::from_secs(30)).short();
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let mut stream = TcpStream::connect(listener.local_addr()?).await?;
    ///     for _ in 0..100 {
    ///         let written = stream.write(b"hello").await?; // A program calls `write_all`.
    ///         polder::sometimes!(written < 5, "a write is short");
    ///     }
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn short(self) -> Chaos {
        self.rate(Kind::Short)
    }

    /// Adds spurious events, on every host: a socket is reported as ready and is not. See
    /// [`Faults::spurious`](super::Faults::spurious).
    ///
    /// ```
    /// use polder::net::UdpSocket;
    /// use std::time::Duration;
    ///
    /// polder::sim::check(0..30, |sim| async move {
    ///     sim.chaos(Duration::from_secs(30)).spurious();
    ///     let socket = UdpSocket::bind("0.0.0.0:7").await?;
    ///     socket.send_to(b"hello", "test:7").await?;
    ///     // It waits again where nothing is there yet.
    ///     assert_eq!(socket.recv(&mut [0; 8]).await?, 5);
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn spurious(self) -> Chaos {
        self.rate(Kind::Spurious)
    }

    /// Adds connections that are gone before they are accepted, on every host: see
    /// [`Faults::aborted`](super::Faults::aborted).
    ///
    /// ```
    /// use polder::io::AsyncReadExt;
    /// use polder::net::{TcpListener, TcpStream};
    /// use std::time::Duration;
    ///
    /// polder::sim::check(0..30, |sim| async move {
    ///     sim.chaos(Duration::from_secs(30)).aborted();
    ///     let listener = TcpListener::bind("0.0.0.0:1").await?;
    ///     sim.host("client").start(|| async {
    ///         // It tries again.
    ///         while TcpStream::connect("test:1").await?.read(&mut [0]).await.is_err() {}
    ///         std::io::Result::Ok(())
    ///     });
    ///     assert!(listener.accept().await.is_ok());
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn aborted(self) -> Chaos {
        self.rate(Kind::Aborted)
    }

    /// Adds exhausted descriptors, on every host: creating or accepting a socket, or opening a
    /// file, fails. See [`Faults::exhausted`](super::Faults::exhausted).
    ///
    /// Not one of the [`usual`](Self::usual) kinds.
    ///
    /// ```
    /// use polder::net::TcpListener;
    /// use std::time::Duration;
    ///
    /// polder::sim::check(0..30, |sim| async move {
    ///     sim.chaos(Duration::from_secs(30)).exhausted();
    ///     while TcpListener::bind("0.0.0.0:1").await.is_err() {
    ///         sim.sleep(Duration::from_millis(10)).await;
    ///     }
    /// });
    /// ```
    pub fn exhausted(self) -> Chaos {
        self.rate(Kind::Exhausted)
    }

    /// Adds name lookups that fail, find nothing, or return the addresses from before the name was
    /// last [set](super::Names::set), on every host.
    ///
    /// ```
    /// use polder::net::resolve;
    /// use std::time::Duration;
    ///
    /// polder::sim::check(0..30, |sim| async move {
    ///     sim.host("store");
    ///     sim.chaos(Duration::from_secs(30)).names();
    ///     while resolve("store:80").await.is_err() {}
    ///     sim.quiesce();
    ///     assert!(resolve("store:80").await.is_ok());
    /// });
    /// ```
    pub fn names(self) -> Chaos {
        self.rate(Kind::Name)
    }

    /// Adds calls given to [`unblock`](crate::unblock) that take up to two seconds longer, on every
    /// host.
    ///
    /// ```
    /// # #[cfg(feature = "blocking")]
    /// polder::sim::check(0..30, |sim| async move {
    ///     sim.chaos(std::time::Duration::from_secs(300)).blocking();
    ///     for n in 0..100 {
    ///         assert_eq!(polder::unblock(move || n).await, n);
    ///     }
    ///     polder::sometimes!(sim.now().as_secs() > 0, "a call takes long");
    /// });
    /// ```
    pub fn blocking(self) -> Chaos {
        self.rate(Kind::Blocking)
    }

    /// Adds disk calls that fail and slow syncs, on every host: each of the four kinds of
    /// [`Disk`](super::Disk) is on for half of the seeds. These never lose what was synced. Losses
    /// at a power-off do not depend on them: they belong to the power-off.
    ///
    /// Not one of the [`usual`](Self::usual) kinds.
    ///
    /// ```
    /// use polder::sim::fs;
    /// use std::time::Duration;
    ///
    /// polder::sim::check(0..30, |sim| async move {
    ///     sim.chaos(Duration::from_secs(30)).disks();
    ///     while fs::write("/state", "1").await.is_err() {}
    ///     sim.quiesce();
    ///     assert_eq!(fs::read_to_string("/state").await.unwrap(), "1");
    /// });
    /// ```
    pub fn disks(self) -> Chaos {
        let reads_and_writes = self.rate(Kind::DiskRead).rate(Kind::DiskWrite);
        reads_and_writes.rate(Kind::DiskSync).rate(Kind::SlowSync)
    }

    /// Adds everything that a program should survive: all kinds but [`exhausted`](Self::exhausted),
    /// [`slow`](Self::slow), [`disks`](Self::disks) and [`wall_clocks`](Self::wall_clocks). Only
    /// these hosts crash.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// polder::sim::check(0..30, |sim| async move {
    ///     let store = sim.host("store").start(std::future::pending::<()>);
    ///     sim.chaos(Duration::from_secs(30)).usual(&[&store]);
    ///     sim.sleep(Duration::from_secs(20)).await;
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If one of them is the host of the test itself.
    #[track_caller]
    pub fn usual(self, hosts: &[&Host]) -> Chaos {
        let harm = self.cuts().holds().resets().loss().pauses().clocks();
        let harm = harm.duplication().reordering().latencies().orders();
        let harm = harm.short().spurious().aborted().names().blocking();
        harm.crashes(hosts)
    }

    /// Adds faults that have a probability for as long as the chaos lasts.
    fn rate(self, kind: Kind) -> Chaos {
        let mut plan = self.state.chaos.borrow_mut();
        let mut stream = Stream::new(plan.seed, kind.name(), self.call, 0);
        let is_on = plan.draw_is_on(&mut stream);
        let (parts, name) = (pick(&mut stream, &RATES), kind.name());
        let (whole, rest) = (parts / 100, parts % 100);
        let _ = if is_on {
            writeln!(plan.drawn, "    {name}: {whole}.{rest:02} %")
        } else {
            writeln!(plan.drawn, "    {name}: none")
        };
        if is_on {
            plan.rates.push((kind, self.call, parts));
            plan.set_rate(kind);
            plan.schedule(self.until, Action::EndRate(kind, self.call));
        }
        drop(plan);
        self
    }

    /// Adds latencies: each direction of every link has one that the seed draws: fixed, uniform,
    /// [exponential](super::Latency::exponential) or with a [heavy
    /// tail](super::Latency::heavy_tail), from 50 µs to 145 ms. Meanwhile the test's own settings
    /// do not apply.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// polder::sim::check(0..30, |sim| async move {
    ///     sim.chaos(Duration::from_secs(30)).latencies().clocks();
    ///     sim.quiesce();
    /// });
    /// ```
    pub fn latencies(self) -> Chaos {
        let mut plan = self.state.chaos.borrow_mut();
        let mut stream = Stream::new(plan.seed, Kind::Latency.name(), self.call, 0);
        let is_on = plan.draw_is_on(&mut stream);
        let words = if is_on { "of each link" } else { "none" };
        let _ = writeln!(plan.drawn, "    latencies: {words}");
        if is_on {
            let call = self.call as u32;
            with_kernel(|kernel| kernel.core.links.set_latencies_by_chaos(Some(call)));
            plan.schedule(self.until, Action::EndLatencies(call));
        }
        drop(plan);
        self
    }

    /// Adds clock faults: a host's clock jumps ahead, or runs faster or slower for a while, by 20
    /// to 500,000 millionths. The test's own clock is left alone. A clock that has a
    /// [drift](super::Clock::drift) keeps it, and only jumps.
    ///
    /// ```
    /// use polder::time::sleep;
    /// use std::time::Duration;
    ///
    /// polder::sim::check(0..30, |sim| async move {
    ///     let minute = Duration::from_secs(60);
    ///     let sleeper = sim.host("sleeper").start(move || sleep(minute));
    ///     sim.chaos(minute).clocks();
    ///     sleeper.finished().await;
    ///     polder::sometimes!(sim.now() < minute, "its clock was ahead");
    /// });
    /// ```
    pub fn clocks(self) -> Chaos {
        self.add(Kind::Clock, Vec::new())
    }

    /// Adds wall clock faults: the wall clock of a host other than the test's is stepped ahead or
    /// back by up to two days, and set right again after a while. Programs see it through
    /// `SystemTime`, if [`answer_for_libc`](super::answer_for_libc) makes the world answer; nothing
    /// else uses it.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// polder::sim::check(0..30, |sim| async move {
    ///     sim.host("store").start(std::future::pending::<()>);
    ///     sim.chaos(Duration::from_secs(30)).wall_clocks();
    ///     sim.sleep(Duration::from_secs(20)).await;
    ///     sim.quiesce(); // All are right.
    /// });
    /// ```
    pub fn wall_clocks(self) -> Chaos {
        self.add(Kind::Wall, Vec::new())
    }

    /// Draws an [`Order`] of processes and tasks: for half of the seeds first come, first served,
    /// or by priorities that change once, twice or three times; otherwise the test's order applies.
    /// It does no damage, so it is not a fault.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// polder::sim::check(0..30, |sim| async move {
    ///     sim.chaos(Duration::from_secs(30)).orders();
    ///     sim.quiesce();
    /// });
    /// ```
    pub fn orders(self) -> Chaos {
        let mut plan = self.state.chaos.borrow_mut();
        let mut stream = Stream::new(plan.seed, "orders", self.call, 0);
        let is_on = plan.draw_is_on(&mut stream);
        let drawn = Order::of_chaos(&mut stream);
        let own = with_kernel(|kernel| kernel.core.pollers.order());
        let words = if is_on { drawn } else { own }.describe();
        let _ = writeln!(plan.drawn, "    orders: {words}");
        if is_on {
            with_kernel(|kernel| kernel.core.set_order(drawn));
            // If two are on at a time, the first one has saved the test's order.
            plan.order_before.get_or_insert(own);
            plan.schedule(self.until, Action::EndOrder);
        }
        drop(plan);
        self
    }

    fn add(self, kind: Kind, hosts: Vec<usize>) -> Chaos {
        let mut plan = self.state.chaos.borrow_mut();
        let mut stream = Stream::new(plan.seed, kind.name(), self.call, 0);
        let is_on = plan.draw_is_on(&mut stream);
        let gap = pick(&mut stream, &GAPS) * MILLISECOND;
        let length = pick(&mut stream, &LENGTHS) * MILLISECOND;
        let name = kind.name();
        if !is_on {
            let _ = writeln!(plan.drawn, "    {name}: none");
            drop(plan);
            return self;
        }
        let (each, lasts) = (Seconds(gap), Seconds(length));
        let _ = match kind {
            Kind::Reset => writeln!(plan.drawn, "    {name}: one in {each}"),
            _ => writeln!(plan.drawn, "    {name}: one in {each}, for {lasts}"),
        };
        let index = plan.kinds.len();
        plan.kinds.push(Faults {
            kind,
            call: self.call,
            hosts,
            stream,
            gap,
            length,
            until: self.until,
            count: 0,
        });
        plan.schedule_next(index);
        drop(plan);
        self
    }
}

impl Kind {
    /// Returns the name of its faults, which is also the label of their streams.
    fn name(self) -> &'static str {
        match self {
            Kind::Loss => "loss",
            Kind::Cut => "cuts",
            Kind::Hold => "holds",
            Kind::Reset => "resets",
            Kind::Kill | Kind::PowerOff => "crashes",
            Kind::Pause => "pauses",
            Kind::DatagramLoss => "lost datagrams",
            Kind::Duplicate => "duplicates",
            Kind::Reorder => "reordering",
            Kind::Aborted => "aborted connections",
            Kind::Exhausted => "exhausted descriptors",
            Kind::Short => "short reads and writes",
            Kind::Spurious => "spurious events",
            Kind::Name => "names",
            Kind::Latency => "latencies",
            Kind::Clock => "clocks",
            Kind::Wall => "wall clocks",
            Kind::Late => "late timers",
            Kind::Blocking => "slow calls",
            Kind::Slow => "slow links",
            Kind::DiskRead => "disk reads",
            Kind::DiskWrite => "disk writes",
            Kind::DiskSync => "disk syncs",
            Kind::SlowSync => "slow syncs",
            Kind::Unsynced => "what was not synced",
        }
    }
}

fn pick<T: Copy>(stream: &mut Stream, table: &[T]) -> T {
    table[stream.below(table.len() as u64) as usize]
}

/// Draws a duration with this mean, of at least a nanosecond.
fn about(stream: &mut Stream, mean: u64) -> u64 {
    1 + stream.below(2 * mean)
}

/// The faults of one kind that one call has added.
#[derive(Debug)]
struct Faults {
    kind: Kind,
    call: usize,
    /// Candidates for crashes.
    hosts: Vec<usize>,
    stream: Stream,
    gap: u64,
    length: u64,
    until: u64,
    count: u64,
}

/// An action that is scheduled.
#[derive(Debug)]
enum Action {
    /// Begins the next fault of this entry of `Plan::kinds`.
    Begin(usize),
    /// Ends the rate of a kind that this call has set.
    EndRate(Kind, usize),
    EndLatencies(u32),
    EndOrder,
    /// Ends a host's drift, unless it has another drift than this by now.
    EndDrift(usize, i32),
    /// Steps a host's wall clock by this much, so that it is right again.
    EndWall(usize, i64),
    Rejoin(PartingId),
    Resume(PauseId),
    /// Starts a host that this fault has stopped.
    Restart(usize, u64),
}

/// A crash that waits for steps of its host.
#[derive(Debug)]
struct Crash {
    id: Id,
    host: usize,
    steps: u64,
    lasts: u64,
    until: u64,
}

/// All chaos of a world: what was drawn, and what is scheduled.
#[derive(Debug)]
pub(super) struct Plan {
    seed: u64,
    /// Whether nothing is drawn, regardless of the seed.
    pub(super) is_calm: bool,
    calls: usize,
    kinds: Vec<Faults>,
    /// Probabilities in effect, in parts of ten thousand, with their kind and call.
    rates: Vec<(Kind, usize, u16)>,
    actions: BTreeMap<u64, Action>,
    next_action: u64,
    crashes: Vec<Crash>,
    crashed: u64,
    /// The order before one was drawn.
    order_before: Option<Order>,
    /// Description of what was drawn.
    pub(super) drawn: String,
}

impl Plan {
    pub(super) fn new(seed: u64) -> Plan {
        Plan {
            seed,
            is_calm: false,
            calls: 0,
            kinds: Vec::new(),
            rates: Vec::new(),
            actions: BTreeMap::new(),
            next_action: 0,
            crashes: Vec::new(),
            crashed: 0,
            order_before: None,
            drawn: String::new(),
        }
    }

    fn draw_is_on(&self, stream: &mut Stream) -> bool {
        stream.below(2) == 0 && self.seed >= FIRST_WILD && !self.is_calm
    }

    fn schedule(&mut self, at: u64, action: Action) {
        let number = self.next_action;
        self.next_action += 1;
        self.actions.insert(number, action);
        with_kernel(|kernel| kernel.core.schedule_chaos(at, number));
    }

    /// Applies the highest rate of a kind that is in effect.
    fn set_rate(&self, kind: Kind) {
        let rates = self.rates.iter().filter(|it| it.0 == kind);
        let parts = rates.map(|it| it.2).max().unwrap_or_default();
        let rate = Probability::of_ten_thousand(parts);
        with_kernel(|kernel| kernel.set_rate_by_chaos(kind, rate));
    }

    fn end_order(&mut self) {
        if let Some(order) = self.order_before.take() {
            with_kernel(|kernel| kernel.core.set_order(order));
        }
    }

    /// Schedules the next fault of a kind, unless it would come too late.
    fn schedule_next(&mut self, index: usize) {
        let faults = &mut self.kinds[index];
        let now = with_kernel(|kernel| kernel.core.time.now());
        let at = now + about(&mut faults.stream, faults.gap);
        if at < faults.until {
            self.schedule(at, Action::Begin(index));
        }
    }
}

impl State {
    /// Performs the actions that are due. Called between two steps, so no process is in the middle
    /// of one.
    pub(super) fn chaos_is_due(&self) {
        while let Some(number) = with_kernel(|kernel| kernel.chaos.take()) {
            let action = self.chaos.borrow_mut().actions.remove(&number);
            match action {
                Some(Action::Begin(index)) => self.begin(index),
                Some(Action::EndRate(kind, call)) => {
                    let mut plan = self.chaos.borrow_mut();
                    plan.rates.retain(|it| (it.0, it.1) != (kind, call));
                    plan.set_rate(kind);
                }
                Some(Action::EndLatencies(call)) => {
                    with_kernel(|kernel| kernel.core.links.end_latencies_by_chaos(call));
                }
                Some(Action::EndOrder) => self.chaos.borrow_mut().end_order(),
                Some(Action::EndDrift(host, drift)) => with_kernel(|kernel| {
                    if kernel.core.time.drift(host) == drift {
                        kernel.core.set_clock(host, 0, Some(0));
                    }
                }),
                Some(Action::EndWall(host, by)) => {
                    with_kernel(|kernel| kernel.core.step_wall(host, by, true));
                }
                Some(Action::Rejoin(id)) => with_kernel(|kernel| kernel.core.rejoin(id)),
                Some(Action::Resume(pause)) => with_kernel(|kernel| kernel.resume(pause)),
                // Unless the test has stopped or started it since.
                Some(Action::Restart(host, by)) if self.is_stopped_by(host, by) => {
                    self.start_again(host);
                }
                Some(Action::Restart(..)) | None => {}
            }
        }
    }

    fn is_stopped_by(&self, host: usize, by: u64) -> bool {
        self.hosts.borrow()[host].stopped_by == Some(by)
    }

    /// Begins a fault of a kind, and schedules the next one.
    fn begin(&self, index: usize) {
        let mut plan = self.chaos.borrow_mut();
        plan.schedule_next(index);
        let seed = plan.seed;
        let faults = &mut plan.kinds[index];
        faults.count += 1;
        let (kind, nth, until) = (faults.kind, faults.count, faults.until);
        let (call, hosts) = (faults.call, faults.hosts.clone());
        // Each decision draws its number, whether or not the number is used.
        let mut stream = Stream::new(seed, kind.name(), call, nth as usize);
        let now = with_kernel(|kernel| kernel.core.time.now());
        let lasts = about(&mut stream, faults.length).min(until - now);
        let id = (kind, call as u32, 0, nth);
        drop(plan);
        match kind {
            Kind::Cut | Kind::Hold | Kind::Slow => self.part(id, &mut stream, lasts),
            Kind::Reset => reset(id, &mut stream),
            Kind::Pause => self.pause(id, &mut stream, lasts),
            Kind::Clock => self.change_clock(id, &mut stream, lasts),
            Kind::Wall => self.step_wall(id, &mut stream, lasts),
            Kind::Kill | Kind::PowerOff => {
                let host = pick(&mut stream, &hosts);
                let is_power = stream.below(2) == 0;
                let steps = stream.below(STEPS);
                let kind = if is_power { Kind::PowerOff } else { Kind::Kill };
                let id = (kind, call as u32, 0, nth);
                let crash = Crash {
                    id,
                    host,
                    steps,
                    lasts,
                    until,
                };
                match steps {
                    0 => self.crash(&crash),
                    _ => self.chaos.borrow_mut().crashes.push(crash),
                }
            }
            // These do not begin at a point in time, or are not part of chaos.
            Kind::Latency | Kind::Loss | Kind::DatagramLoss | Kind::Duplicate | Kind::Reorder => {}
            Kind::Aborted | Kind::Exhausted | Kind::Short | Kind::Spurious | Kind::Name => {}
            Kind::Late | Kind::Blocking | Kind::Unsynced => {}
            Kind::DiskRead | Kind::DiskWrite | Kind::DiskSync | Kind::SlowSync => {}
        }
    }

    /// Parts the network in two: the parts cannot reach each other, or only late or slowly.
    fn part(&self, id: Id, stream: &mut Stream, lasts: u64) {
        let hosts = with_kernel(|kernel| kernel.core.hosts.count());
        let Some((these, others)) = parts(stream, hosts) else {
            return;
        };
        let is_one_way = stream.below(4) == 0;
        let how = match id.0 {
            Kind::Hold => How::Held,
            Kind::Slow => How::Slow(pick(stream, &BANDWIDTHS)),
            _ => How::Cut,
        };
        let at = with_kernel(|kernel| kernel.core.time.now());
        let fault = || Fault {
            is_one_way,
            lasts: Some(lasts),
            detail: match how {
                How::Slow(bandwidth) => format!("{bandwidth} B/s"),
                How::Cut | How::Held => String::new(),
            },
            ..Fault::new(id, at, these.clone(), others.clone())
        };
        if !with_kernel(|kernel| kernel.core.faults.allow(id, fault)) {
            return;
        }
        let parting = with_kernel(|kernel| {
            let parting = kernel.part(&these, &others, how);
            if is_one_way {
                kernel.core.make_one_way(parting);
            }
            parting
        });
        let mut plan = self.chaos.borrow_mut();
        plan.schedule(at + lasts, Action::Rejoin(parting));
    }

    fn pause(&self, id: Id, stream: &mut Stream, lasts: u64) {
        let Some(host) = host(stream) else {
            return;
        };
        if self.hosts.borrow()[host].process.is_none() {
            return;
        }
        let at = with_kernel(|kernel| kernel.core.time.now());
        let fault = || Fault {
            lasts: Some(lasts),
            ..Fault::new(id, at, vec![host], Vec::new())
        };
        if with_kernel(|kernel| kernel.core.faults.allow(id, fault)) {
            let pause = with_kernel(|kernel| kernel.core.pause(host));
            let mut plan = self.chaos.borrow_mut();
            plan.schedule(at + lasts, Action::Resume(pause));
        }
    }

    /// Makes the clock of a host jump by `lasts`, or drift for `lasts`.
    fn change_clock(&self, id: Id, stream: &mut Stream, lasts: u64) {
        let Some(host) = host(stream) else {
            return;
        };
        let (jumps, is_slow) = (stream.below(2) == 0, stream.below(2) == 0);
        let drift = pick(stream, &DRIFTS) * if is_slow { -1 } else { 1 };
        let (at, own) =
            with_kernel(|kernel| (kernel.core.time.now(), kernel.core.time.drift(host)));
        let fault = || Fault {
            lasts: (!jumps).then_some(lasts),
            detail: if jumps {
                format!("is set ahead by {}", Seconds(lasts))
            } else {
                format!("drifts by {drift} ppm")
            },
            ..Fault::new(id, at, vec![host], Vec::new())
        };
        let is_possible = jumps || own == 0;
        if !is_possible || !with_kernel(|kernel| kernel.core.faults.allow(id, fault)) {
            return;
        }
        if jumps {
            return with_kernel(|kernel| kernel.core.set_clock(host, lasts, None));
        }
        with_kernel(|kernel| kernel.core.set_clock(host, 0, Some(drift)));
        let mut plan = self.chaos.borrow_mut();
        plan.schedule(at + lasts, Action::EndDrift(host, drift));
    }

    /// Makes the wall clock of a host wrong for `lasts`.
    fn step_wall(&self, id: Id, stream: &mut Stream, lasts: u64) {
        let Some(host) = host(stream) else {
            return;
        };
        let is_back = stream.below(2) == 0;
        let mean = pick(stream, &WALL_STEPS) * MILLISECOND;
        let step = about(stream, mean);
        let (at, way) = (
            with_kernel(|kernel| kernel.core.time.now()),
            if is_back { "back" } else { "ahead" },
        );
        let fault = || Fault {
            lasts: Some(lasts),
            detail: format!("is set {way} by {}", Seconds(step)),
            ..Fault::new(id, at, vec![host], Vec::new())
        };
        if !with_kernel(|kernel| kernel.core.faults.allow(id, fault)) {
            return;
        }
        // At most two days in nanoseconds, which fits easily.
        let by = step as i64 * if is_back { -1 } else { 1 };
        with_kernel(|kernel| kernel.core.step_wall(host, by, true));
        let mut plan = self.chaos.borrow_mut();
        plan.schedule(at + lasts, Action::EndWall(host, -by));
    }

    /// Crashes a host if it is up, and schedules its restart.
    fn crash(&self, crash: &Crash) {
        let (host, at) = (crash.host, with_kernel(|kernel| kernel.core.time.now()));
        if self.hosts.borrow()[host].process.is_none() || at >= crash.until {
            return;
        }
        let lasts = crash.lasts.min(crash.until - at);
        let fault = || Fault {
            lasts: Some(lasts),
            ..Fault::new(crash.id, at, vec![host], Vec::new())
        };
        if !with_kernel(|kernel| kernel.core.faults.allow(crash.id, fault)) {
            return;
        }
        match crash.id.0 {
            Kind::PowerOff => self.end_process(host, What::PoweredOff, Ending::PoweredOff),
            _ => self.end_process(host, What::Killed, Ending::Killed),
        }
        let mut plan = self.chaos.borrow_mut();
        plan.crashed += 1;
        let by = plan.crashed;
        self.hosts.borrow_mut()[host].stopped_by = Some(by);
        plan.schedule(at + lasts, Action::Restart(host, by));
    }

    /// Counts down the crashes that wait for steps of this process, after each of its steps.
    pub(super) fn chaos_after_step(&self, poller: usize) {
        if self.chaos.borrow().crashes.is_empty() {
            return;
        }
        let host = with_kernel(|kernel| kernel.core.pollers.host_of(poller));
        let mut plan = self.chaos.borrow_mut();
        let ours = plan.crashes.iter_mut().filter(|it| it.host == host);
        ours.for_each(|it| it.steps -= 1);
        let (due, left) = std::mem::take(&mut plan.crashes)
            .into_iter()
            .partition(|it| it.steps == 0);
        plan.crashes = left;
        drop(plan);
        let due: Vec<Crash> = due;
        due.iter().for_each(|it| self.crash(it));
    }

    /// Cancels everything that is scheduled.
    pub(super) fn end_chaos(&self) {
        let mut plan = self.chaos.borrow_mut();
        plan.actions.clear();
        plan.kinds.clear();
        plan.rates.clear();
        plan.crashes.clear();
        plan.end_order();
        let first = plan.next_action;
        with_kernel(|kernel| {
            kernel.chaos.call_off(first);
            kernel.end_rates_by_chaos();
            kernel.core.links.set_latencies_by_chaos(None);
        });
    }
}

fn reset(id: Id, stream: &mut Stream) {
    with_kernel(|kernel| {
        let hosts = kernel.core.hosts.count();
        let Some((a, b)) = pair(stream, hosts) else {
            return;
        };
        let at = kernel.core.time.now();
        let fault = || Fault::new(id, at, vec![a], vec![b]);
        if kernel.core.faults.allow(id, fault) {
            kernel.reset_between(a, b);
        }
    });
}

/// Draws a host other than the test's, if there is one.
fn host(stream: &mut Stream) -> Option<usize> {
    let hosts = with_kernel(|kernel| kernel.core.hosts.count());
    if hosts < 2 {
        return None;
    }
    Some(1 + stream.below(hosts as u64 - 1) as usize)
}

/// Draws two different hosts.
fn pair(stream: &mut Stream, hosts: usize) -> Option<(usize, usize)> {
    if hosts < 2 {
        return None;
    }
    let a = stream.below(hosts as u64) as usize;
    let b = stream.below(hosts as u64 - 1) as usize;
    Some((a, if b >= a { b + 1 } else { b }))
}

/// Draws two parts of the network: one host and one, one and all others, or any two.
fn parts(stream: &mut Stream, hosts: usize) -> Option<(Vec<usize>, Vec<usize>)> {
    let how = stream.below(3);
    let (a, b) = pair(stream, hosts)?;
    Some(match how {
        0 => (vec![a], vec![b]),
        1 => (vec![a], (0..hosts).filter(|it| *it != a).collect()),
        // The two hosts are on different sides, so neither side is empty.
        _ => (0..hosts).partition(|it| *it == a || *it != b && stream.below(2) == 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_network_are_never_empty_and_hold_each_host_once() {
        let mut stream = Stream::new(1, "test", 0, 0);
        for hosts in 2..7 {
            for _ in 0..100 {
                let (these, others) = parts(&mut stream, hosts).unwrap();
                assert!(!these.is_empty() && !others.is_empty());
                let mut all = [these, others].concat();
                all.sort_unstable();
                let count = all.len();
                all.dedup();
                assert_eq!(all.len(), count, "a host is on both sides");
                assert!(all.last().is_some_and(|it| *it < hosts));
            }
        }
        assert_eq!(parts(&mut stream, 1), None);
    }
}
