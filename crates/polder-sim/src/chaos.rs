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
//! **Timing.** The kernel keeps the times (`Core::schedule_chaos`). An action that is due is an
//! event, and the world's loop performs it, between two steps. A crash may wait for some steps of
//! its process, so that it interrupts what the process does at one moment. Every fault ends with
//! the chaos, except for the jump of a clock. [`Sim::quiesce`](super::Sim::quiesce) cancels
//! everything that is scheduled, including the ends of faults, since it heals everything itself.
//!
//! What was drawn is in the [`Plan`] of the world, which also performs it.

use std::fmt::Write;
use std::rc::Rc;

use super::host::Host;
use super::plan::{Faults, HALF_OCTAVES, Harm, MILLISECOND, Plan, now, pick, seed};
use super::state::State;
use crate::world::choice::Stream;
use crate::world::faults::{FIRST_WILD, Kind};
use crate::world::kernel::Kernel;
use crate::world::order::Order;
use crate::world::seconds::Seconds;
use crate::world::thread::kernel as with_kernel;

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

/// Random faults for a limited time, returned by [`Sim::chaos`](super::Sim::chaos). Each method
/// adds a kind of fault, which is on for half of the seeds, with rates and durations that the seed
/// draws too. The report of a failure shows what was drawn.
///
/// The seeds from 0 to 9 are calm: none of these faults happens. With seed 0 nothing is random from
/// here on, except what the program and the test draw themselves: no segment is lost
/// ([`Links::loss`](super::Links::loss)), each takes the mean latency of its link, name lookups and
/// calls of [`unblock`](polder::unblock) take the mean of theirs, and ready tasks run in turn
/// ([`Order::Fifo`]), regardless of the test's settings.
///
/// Every fault ends with the duration, and with [`Sim::quiesce`](super::Sim::quiesce). Only the
/// jump of a clock stays, as a monotonic clock cannot be set back.
///
/// [`check`](super::check()) prints, for each kind that the test names, the number of seeds for
/// which it was on and the number of its faults, with those of the test's own settings. (The kinds
/// of [`usual`](Self::usual) are not named, and latencies and orders are no faults.) A kind that
/// was on for ten of the test's own seeds and never struck fails the test: it would show less than
/// it says.
///
/// Each fault has a number (the first 4,000 of each kind do), and can be left out by it: see
/// [`check`](super::check()).
///
/// ```
/// use std::time::Duration;
///
/// polder_sim::check(0..30, |sim| async move {
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
// To add a kind: see docs/EXTENDING.md, "Adding a simulated fault".
#[derive(Debug)]
pub struct Chaos {
    state: Rc<State>,
    call: usize,
    until: u64,
    /// Whether the test names the kinds that are added next.
    is_named: bool,
}

impl Chaos {
    pub(super) fn new(state: Rc<State>, duration: u64) -> Chaos {
        let (from, seed) = (now(), seed());
        let until = from.saturating_add(duration);
        let mut plan = state.chaos.borrow_mut();
        let call = plan.calls;
        plan.calls += 1;
        let calm = if seed < FIRST_WILD || plan.is_calm {
            ", but this seed is calm"
        } else {
            ""
        };
        with_kernel(|kernel| kernel.core.note_sometimes(ONLY_CALM, seed >= FIRST_WILD));
        let (at, lasts) = (Seconds(from), Seconds(duration));
        let _ = writeln!(plan.drawn, "  chaos from {at} for {lasts}{calm}:");
        if seed == 0 {
            with_kernel(Kernel::be_calm);
        }
        drop(plan);
        Chaos {
            state,
            call,
            until,
            is_named: true,
        }
    }

    /// Adds cuts: two hosts, one host and all others, or two halves of the network cannot reach
    /// each other, sometimes in one direction only. The host of the test takes part.
    ///
    /// ```
    /// use polder::net::TcpStream;
    /// use std::io::ErrorKind;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..30, |sim| async move {
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
        self.add(Kind::Cut, "cuts", State::part)
    }

    /// Adds holds: everything sent between two parts of the network arrives later, all together.
    ///
    /// ```
    /// use polder::net::UdpSocket;
    /// use polder::time::sleep;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..30, |sim| async move {
    ///     sim.chaos(Duration::from_secs(30)).holds();
    ///     let socket = UdpSocket::bind("0.0.0.0:7").await?;
    ///     sim.host("far").start(|| async {
    ///         let socket = UdpSocket::bind("0.0.0.0:0").await?;
    ///         for _ in 0..20 {
    ///             socket.send_to(b"late", "test:7").await?;
    ///             sleep(Duration::from_secs(1)).await;
    ///         }
    ///         std::io::Result::Ok(())
    ///     });
    ///     for _ in 0..20 {
    ///         assert_eq!(socket.recv(&mut [0; 8]).await?, 4); // A hold loses nothing.
    ///     }
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn holds(self) -> Chaos {
        self.add(Kind::Hold, "holds", State::part)
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
    /// polder_sim::check(0..30, |sim| async move {
    ///     sim.host("server");
    ///     sim.chaos(Duration::from_secs(30)).slow().cuts();
    ///     sim.sleep(Duration::from_secs(20)).await;
    ///     sim.quiesce();
    /// });
    /// ```
    pub fn slow(self) -> Chaos {
        self.add(Kind::Slow, "slow links", State::part)
    }

    /// Adds resets of all connections between two hosts, as by [`Sim::reset`](super::Sim::reset).
    ///
    /// ```
    /// use polder::io::AsyncReadExt;
    /// use polder::net::{TcpListener, TcpStream};
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..30, |sim| async move {
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
        self.add(Kind::Reset, "resets", State::reset)
    }

    /// Adds pauses: a process does nothing for a while. The test's process is never paused.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..30, |sim| async move {
    ///     let store = sim.host("store").start(std::future::pending::<()>);
    ///     sim.chaos(Duration::from_secs(30)).pauses();
    ///     sim.sometimes("it is paused", move || store.is_paused());
    ///     sim.sleep(Duration::from_secs(30)).await;
    /// });
    /// ```
    pub fn pauses(self) -> Chaos {
        self.add(Kind::Pause, "pauses", State::pause)
    }

    /// Adds suspensions: a machine sleeps for a while, as by
    /// [`Host::suspend`](super::Host::suspend). The test's machine is never suspended.
    ///
    /// Not one of the [`usual`](Self::usual) kinds.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..30, |sim| async move {
    ///     let store = sim.host("store").start(std::future::pending::<()>);
    ///     sim.chaos(Duration::from_secs(30)).suspensions();
    ///     sim.sometimes("it is suspended", move || store.is_suspended());
    ///     sim.sleep(Duration::from_secs(30)).await;
    /// });
    /// ```
    pub fn suspensions(self) -> Chaos {
        self.add(Kind::Suspend, "suspensions", State::pause)
    }

    /// Adds crashes of these hosts, which restart after a while: their processes are killed, or
    /// their power fails. A process may end between any two of its steps. (A process that has
    /// returned cannot crash, and is not restarted.)
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..30, |sim| async move {
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
        hosts.iter().for_each(|host| host.assert_not_the_test());
        if hosts.is_empty() {
            return self;
        }
        let hosts: Vec<usize> = hosts.iter().map(|host| host.index).collect();
        let begin = move |state: &State, harm| state.crash_one_of(&hosts, harm);
        self.add(Kind::Kill, "crashes", begin)
    }

    /// Adds losses, on every link. A link's own probability applies if it is greater.
    ///
    /// ```
    /// use polder::net::UdpSocket;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..30, |sim| async move {
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
        self.rate(Kind::Loss, "loss")
    }

    /// Adds datagrams that arrive twice, on every link. A link's own probability applies if it is
    /// greater.
    ///
    /// ```
    /// use polder::net::UdpSocket;
    /// use polder::time::timeout;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..30, |sim| async move {
    ///     // A protocol over UDP is tested with all three.
    ///     sim.chaos(Duration::from_secs(30)).loss().duplication().reordering();
    ///     let socket = UdpSocket::bind("0.0.0.0:7").await?;
    ///     sim.host("far").start(|| async {
    ///         let socket = UdpSocket::bind("0.0.0.0:0").await?;
    ///         for _ in 0..200 {
    ///             socket.send_to(b"hello", "test:7").await?;
    ///         }
    ///         std::io::Result::Ok(())
    ///     });
    ///     let mut received = 0; // Seldom 200.
    ///     while timeout(Duration::from_secs(5), socket.recv(&mut [0; 8])).await.is_ok() {
    ///         received += 1;
    ///     }
    ///     assert!(received > 100);
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn duplication(self) -> Chaos {
        self.rate(Kind::Duplicate, "duplicates")
    }

    /// Adds datagrams that arrive after later ones, on every link. A link's own probability applies
    /// if it is greater.
    ///
    /// ```
    /// use polder::net::UdpSocket;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..30, |sim| async move {
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
        self.rate(Kind::Reorder, "reordering")
    }

    /// Adds short reads and writes, on every host: a read returns, or a write takes, less than it
    /// could. See [`Faults::short`](super::Faults::short).
    ///
    /// ```
    /// use polder::io::AsyncWriteExt;
    /// use polder::net::{TcpListener, TcpStream};
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..30, |sim| async move {
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
        self.rate(Kind::Short, "short reads and writes")
    }

    /// Adds spurious events, on every host: a socket is reported as ready and is not. See
    /// [`Faults::spurious`](super::Faults::spurious).
    ///
    /// ```
    /// use polder::net::UdpSocket;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..30, |sim| async move {
    ///     sim.chaos(Duration::from_secs(30)).spurious();
    ///     let socket = UdpSocket::bind("0.0.0.0:7").await?;
    ///     for _ in 0..100 {
    ///         socket.send_to(b"hello", "test:7").await?;
    ///         // It waits again where nothing is there yet.
    ///         assert_eq!(socket.recv(&mut [0; 8]).await?, 5);
    ///     }
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn spurious(self) -> Chaos {
        self.rate(Kind::Spurious, "spurious events")
    }

    /// Adds connections that are gone before they are accepted, on every host: see
    /// [`Faults::aborted`](super::Faults::aborted).
    ///
    /// ```
    /// use polder::io::AsyncReadExt;
    /// use polder::net::{TcpListener, TcpStream};
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..30, |sim| async move {
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
        self.rate(Kind::Aborted, "aborted connections")
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
    /// polder_sim::check(0..30, |sim| async move {
    ///     sim.chaos(Duration::from_secs(30)).exhausted();
    ///     while TcpListener::bind("0.0.0.0:1").await.is_err() {
    ///         sim.sleep(Duration::from_millis(10)).await;
    ///     }
    /// });
    /// ```
    pub fn exhausted(self) -> Chaos {
        self.rate(Kind::Exhausted, "exhausted descriptors")
    }

    /// Adds name lookups that fail, find nothing, or return the addresses from before the name was
    /// last [set](super::Names::set), on every host.
    ///
    /// ```
    /// use polder::net::resolve;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..30, |sim| async move {
    ///     sim.host("store");
    ///     sim.chaos(Duration::from_secs(30)).names();
    ///     while resolve("store:80").await.is_err() {}
    ///     sim.quiesce();
    ///     assert!(resolve("store:80").await.is_ok());
    /// });
    /// ```
    pub fn names(self) -> Chaos {
        self.rate(Kind::Name, "names")
    }

    /// Adds calls given to [`unblock`](polder::unblock) that take up to two seconds longer, on
    /// every host.
    ///
    /// ```
    /// polder_sim::check(0..30, |sim| async move {
    ///     sim.chaos(std::time::Duration::from_secs(300)).blocking();
    ///     for n in 0..100 {
    ///         assert_eq!(polder::unblock(move || n).await, n);
    ///     }
    ///     polder::sometimes!(sim.now().as_secs() > 0, "a call takes long");
    /// });
    /// ```
    pub fn blocking(self) -> Chaos {
        self.rate(Kind::Blocking, "slow calls")
    }

    /// Adds disk calls that fail and slow syncs, on every host: each of the four kinds of
    /// [`Disk`](super::Disk) is on for half of the seeds. These never lose what was synced. Losses
    /// at a power-off do not depend on them: they belong to the power-off.
    ///
    /// Not one of the [`usual`](Self::usual) kinds.
    ///
    /// ```
    /// use polder::fs;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..30, |sim| async move {
    ///     sim.chaos(Duration::from_secs(30)).disks();
    ///     for n in 0..100 {
    ///         while fs::write("/state", n.to_string()).await.is_err() {}
    ///     }
    ///     sim.quiesce();
    ///     assert_eq!(fs::read_to_string("/state").await.unwrap(), "99");
    /// });
    /// ```
    pub fn disks(self) -> Chaos {
        self.rate(Kind::DiskRead, "disk reads")
            .rate(Kind::DiskWrite, "disk writes")
            .rate(Kind::DiskSync, "disk syncs")
            .rate(Kind::SlowSync, "slow syncs")
    }

    /// Adds everything that a program should survive: all kinds but [`exhausted`](Self::exhausted),
    /// [`slow`](Self::slow), [`disks`](Self::disks), [`wall_clocks`](Self::wall_clocks) and
    /// [`suspensions`](Self::suspensions). Only these hosts crash.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..30, |sim| async move {
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
        let unnamed = Chaos {
            is_named: false,
            ..self
        };
        let harm = unnamed.cuts().holds().resets().loss().pauses().clocks();
        let harm = harm.duplication().reordering().latencies().orders();
        let harm = harm.short().spurious().aborted().names().blocking();
        Chaos {
            is_named: true,
            ..harm.crashes(hosts)
        }
    }

    /// Counts a kind that is on for this seed, if the test names it.
    fn count(&self, plan: &mut Plan, kind: Kind, name: &'static str) {
        let name = match kind {
            // One call asks for all four.
            Kind::DiskRead | Kind::DiskWrite | Kind::DiskSync | Kind::SlowSync => "disks",
            _ => name,
        };
        if self.is_named {
            plan.counted.insert((name, kind));
        }
    }

    /// Adds faults that have a probability for as long as the chaos lasts.
    fn rate(self, kind: Kind, name: &'static str) -> Chaos {
        let (call, until) = (self.call, self.until);
        self.draw(name, "none", |plan, mut stream| {
            self.count(plan, kind, name);
            let parts = pick(&mut stream, &HALF_OCTAVES);
            plan.rates.push((kind, call, parts));
            plan.set_rate(kind);
            plan.schedule(until, move |state| {
                let mut plan = state.chaos.borrow_mut();
                plan.rates.retain(|rate| (rate.0, rate.1) != (kind, call));
                plan.set_rate(kind);
            });
            format!("{}.{:02} %", parts / 100, parts % 100)
        });
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
    /// polder_sim::check(0..30, |sim| async move {
    ///     sim.chaos(Duration::from_secs(30)).latencies().clocks();
    ///     sim.quiesce();
    /// });
    /// ```
    pub fn latencies(self) -> Chaos {
        let (call, until) = (self.call as u32, self.until);
        self.draw("latencies", "none", |plan, _| {
            with_kernel(|kernel| kernel.core.links.chaos = Some(call));
            plan.schedule(until, move |_| {
                with_kernel(|kernel| kernel.core.links.chaos.take_if(|chaos| *chaos == call));
            });
            "of each link".into()
        });
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
    /// polder_sim::check(0..30, |sim| async move {
    ///     let minute = Duration::from_secs(60);
    ///     let sleeper = sim.host("sleeper").start(move || sleep(minute));
    ///     sim.chaos(minute).clocks();
    ///     sleeper.finished().await;
    ///     polder::sometimes!(sim.now() < minute, "its clock was ahead");
    /// });
    /// ```
    pub fn clocks(self) -> Chaos {
        self.add(Kind::Clock, "clocks", State::change_clock)
    }

    /// Adds wall clock faults: the wall clock of a host other than the test's is stepped ahead or
    /// back by up to two days, and set right again after a while. Programs see it through
    /// `SystemTime`, if [`answer_for_libc`](super::answer_for_libc) makes the world answer; nothing
    /// else uses it.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..30, |sim| async move {
    ///     sim.host("store").start(std::future::pending::<()>);
    ///     sim.chaos(Duration::from_secs(30)).wall_clocks();
    ///     sim.sleep(Duration::from_secs(20)).await;
    ///     sim.quiesce(); // All are right.
    /// });
    /// ```
    pub fn wall_clocks(self) -> Chaos {
        self.add(Kind::Wall, "wall clocks", State::step_wall)
    }

    /// Draws an [`Order`] of processes and tasks: for half of the seeds first come, first served,
    /// or by priorities that change once, twice or three times; otherwise the test's order applies.
    /// It does no damage, so it is not a fault.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..30, |sim| async move {
    ///     sim.chaos(Duration::from_secs(30)).orders();
    ///     sim.quiesce();
    /// });
    /// ```
    pub fn orders(self) -> Chaos {
        let until = self.until;
        let own = with_kernel(|kernel| kernel.core.pollers.order);
        self.draw("orders", &own.describe(), |plan, mut stream| {
            let drawn = Order::of_chaos(&mut stream);
            with_kernel(|kernel| kernel.core.set_order(drawn));
            // If two are on at a time, the first one has saved the test's order.
            plan.order_before.get_or_insert(own);
            plan.schedule(until, |state| state.chaos.borrow_mut().end_order());
            drawn.describe()
        });
        self
    }

    fn add(self, kind: Kind, name: &'static str, begin: impl Fn(&State, Harm) + 'static) -> Chaos {
        let (call, until) = (self.call, self.until);
        self.draw(name, "none", |plan, mut stream| {
            self.count(plan, kind, name);
            let gap = pick(&mut stream, &GAPS) * MILLISECOND;
            let length = pick(&mut stream, &LENGTHS) * MILLISECOND;
            let faults = Faults {
                id: (kind, call as u32, 0, 0),
                name,
                begin: Rc::new(begin),
                stream,
                gap,
                length,
                until,
            };
            plan.schedule_next(faults);
            match kind {
                Kind::Reset => format!("one in {}", Seconds(gap)),
                _ => format!("one in {}, for {}", Seconds(gap), Seconds(length)),
            }
        });
        self
    }

    /// Draws whether a kind is on. If it is, calls `add` with the rest of its stream. The report
    /// shows what `add` returns, or else `off`. The name is also the label of the streams.
    fn draw(&self, name: &str, off: &str, add: impl FnOnce(&mut Plan, Stream) -> String) {
        let mut plan = self.state.chaos.borrow_mut();
        let mut stream = Stream::new(seed(), name, self.call, 0);
        let is_on = stream.below(2) == 0 && seed() >= FIRST_WILD && !plan.is_calm;
        let words = if is_on {
            add(&mut plan, stream)
        } else {
            off.to_owned()
        };
        let _ = writeln!(plan.drawn, "    {name}: {words}");
    }
}
