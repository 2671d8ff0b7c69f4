//! [`Sim`]: the handle to a world.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use polder::time::{Sleep, sleep};

use super::chaos::Chaos;
use super::conditions::Holds;
use super::history::History;
use super::host::{Host, assert_workers};
use super::links::{Cut, Hold, Links, Parting, find};
use super::names::Names;
use super::state::State;
use super::workload::Workload;
use crate::world;
use crate::world::event::Event;
use crate::world::order::Order;
use crate::world::parting::How;
use crate::world::thread::kernel as with_kernel;

/// A handle to a simulated world, passed to the test's function by [`check`](crate::check()).
/// Clones are handles to the same world.
///
/// ```
/// use polder_sim::Sim;
/// use std::time::Duration;
///
/// polder_sim::check(0..10, |sim: Sim| async move {
///     let adder = sim.host("adder").start(|| async { 1 + 2 });
///     let second = Duration::from_secs(1);
///     assert_eq!(adder.finished().within(second).await, 3);
///     assert!(sim.now() < second);
/// });
/// ```
#[derive(Clone)]
pub struct Sim {
    pub(super) state: Rc<State>,
}

impl Sim {
    /// Returns the host with that name, and creates it if there is none. Names are
    /// case-insensitive.
    ///
    /// ```
    /// polder_sim::check(0..1, |sim| async move {
    ///     let (store, same) = (sim.host("store"), sim.host("store"));
    ///     assert_eq!(store.address(), same.address());
    ///     assert_ne!(store.address(), sim.host("client").address());
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If `name` is not one that programs can look up: if it is an IP address or `localhost`, if it
    /// has characters other than ASCII letters, digits, `-`, `_` and `.`, or if it does not start
    /// with a letter or a digit.
    #[track_caller]
    pub fn host(&self, name: &str) -> Host {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        assert!(
            name.starts_with(|first: char| first.is_ascii_alphanumeric())
                && name.chars().all(is_plain)
                && name.parse::<IpAddr>().is_err()
                && !name.eq_ignore_ascii_case("localhost"),
            "polder_sim: invalid host name {name:?}"
        );
        Host {
            index: self.state.host(name),
            state: self.state.clone(),
        }
    }

    /// Returns all links, including those of hosts that are created later.
    ///
    /// ```
    /// use polder_sim::Latency;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..10, |sim| async move {
    ///     sim.links().latency(Latency::fixed(Duration::from_millis(40))).loss(0.01);
    ///     // …
    /// });
    /// ```
    pub fn links(&self) -> Links {
        Links(vec![None])
    }

    /// Returns the links between two hosts, in both directions.
    ///
    /// ```
    /// use polder::net::UdpSocket;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.links().loss(1.0);
    ///     sim.host("near");
    ///     sim.link("test", "near").loss(0.0);
    ///     sim.host("near").start(|| async {
    ///         UdpSocket::bind("0.0.0.0:0").await?.send_to(b"hello", "test:7").await
    ///     });
    ///     assert_eq!(UdpSocket::bind("0.0.0.0:7").await?.recv(&mut [0; 8]).await?, 5);
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If one of the names is not that of a host.
    #[track_caller]
    pub fn link(&self, a: &str, b: &str) -> Links {
        let (a, b) = (find(a), find(b));
        Links(vec![Some((a, b)), Some((b, a))])
    }

    /// Returns the names that hosts look up.
    ///
    /// ```
    /// use polder::net::resolve;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.names().set("db", [sim.host("replica-2").address()]);
    ///     assert_eq!(resolve("db:1").await.unwrap(), resolve("replica-2:1").await.unwrap());
    /// });
    /// ```
    pub fn names(&self) -> Names {
        Names(())
    }

    /// Cuts these hosts off from the others, in both directions, until the result is dropped.
    /// Everything they send to each other is lost, and so is everything in flight that would arrive
    /// before the cut ends. (Data that is in flight for longer than the cut lasts still arrives.)
    ///
    /// ```
    /// use polder::net::{TcpListener, TcpStream};
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.host("server").start(|| async {
    ///         let listener = TcpListener::bind("0.0.0.0:80").await?;
    ///         listener.accept().await
    ///     });
    ///     let cut = sim.cut(&["test"], &["server"]);
    ///     let limit = Duration::from_secs(5);
    ///     let late = TcpStream::connect_timeout("server:80", limit).await.unwrap_err();
    ///     assert_eq!(late.kind(), std::io::ErrorKind::TimedOut);
    ///     drop(cut);
    ///     assert!(TcpStream::connect_timeout("server:80", limit).await.is_ok());
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If one of the names is not that of a host.
    #[track_caller]
    pub fn cut(&self, these: &[&str], others: &[&str]) -> Cut {
        Cut(Parting::begin(these, others, How::Cut))
    }

    /// Holds everything that these hosts and the others send to each other, until the result is
    /// dropped. Then it is all delivered, in order. (It is lost only if there is a
    /// [`cut`](Self::cut) at that moment; a cut that began and ended during the hold does no
    /// damage.)
    ///
    /// ```
    /// use polder::net::UdpSocket;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let near = UdpSocket::bind("0.0.0.0:7").await?;
    ///     sim.host("far").start(|| async {
    ///         UdpSocket::bind("0.0.0.0:0").await?.send_to(b"hello", "test:7").await
    ///     });
    ///     let hold = sim.hold(&["test"], &["far"]);
    ///     sim.sleep(Duration::from_secs(60)).await;
    ///     assert!(near.try_recv(&mut [0; 8]).is_err()); // Nothing is there yet.
    ///     drop(hold);
    ///     assert_eq!(near.recv(&mut [0; 8]).await?, 5);
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If one of the names is not that of a host.
    #[track_caller]
    pub fn hold(&self, these: &[&str], others: &[&str]) -> Hold {
        Hold(Parting::begin(these, others, How::Held))
    }

    /// Resets every connection between two hosts, as a middlebox that has lost its state does. Both
    /// sides get [`ConnectionReset`](std::io::ErrorKind::ConnectionReset) when they read.
    ///
    /// ```
    /// use polder::io::AsyncReadExt;
    /// use polder::net::{TcpListener, TcpStream};
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let listener = TcpListener::bind("0.0.0.0:1").await?;
    ///     sim.host("client").start(|| async {
    ///         TcpStream::connect("test:1").await?.read(&mut [0]).await
    ///     });
    ///     let (mut stream, _) = listener.accept().await?;
    ///     sim.reset("test", "client");
    ///     let error = stream.read(&mut [0]).await.unwrap_err();
    ///     assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If one of the names is not that of a host.
    #[track_caller]
    pub fn reset(&self, a: &str, b: &str) {
        let (a, b) = (find(a), find(b));
        with_kernel(|kernel| kernel.network().reset_between(a, b));
    }

    /// Injects faults chosen by the seed, for `duration` from now on: see [`Chaos`].
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..30, |sim| async move {
    ///     let store = sim.host("store").start(std::future::pending::<()>);
    ///     sim.chaos(Duration::from_secs(30)).usual(&[&store]);
    ///     sim.sleep(Duration::from_secs(40)).await; // They have ended.
    /// });
    /// ```
    pub fn chaos(&self, duration: Duration) -> Chaos {
        Chaos::new(self.state.clone(), world::seconds::nanos(duration))
    }

    /// Not public: disables chaos, so that a test of worlds can measure its effect.
    #[doc(hidden)]
    pub fn __without_chaos(&self) {
        self.state.chaos.borrow_mut().is_calm = true;
    }

    /// Sets the order in which ready processes and tasks run from now on. The default is
    /// [`Order::Random`]; [`Chaos::orders`] draws one.
    ///
    /// ```
    /// use polder_sim::Order;
    /// use std::cell::RefCell;
    /// use std::rc::Rc;
    ///
    /// polder_sim::check(0..10, |sim| async move {
    ///     sim.order(Order::Fifo);
    ///     let list = Rc::new(RefCell::new(Vec::new()));
    ///     let tasks = [1, 2, 3].map(|n| {
    ///         let list = list.clone();
    ///         polder::spawn_local(async move { list.borrow_mut().push(n) })
    ///     });
    ///     for task in tasks {
    ///         task.await;
    ///     }
    ///     assert_eq!(*list.borrow(), [1, 2, 3]);
    /// });
    /// ```
    pub fn order(&self, order: Order) {
        with_kernel(|kernel| kernel.core.set_order(order));
    }

    /// Makes [`check`](crate::check()) run this test in every order of what is ready or due at the
    /// same moment, instead of some orders that seeds draw: for a small program that must be right
    /// in all of them. The orders of ready tasks are tried, those of segments, datagrams, timers
    /// and calls of `unblock` that are due at one moment of the world's time, and all results of
    /// [`choose`](Self::choose). Hosts share nothing but the network, so two orders that differ
    /// only between hosts count as one.
    ///
    /// At most `limit` runs are made, those that differ least from the first one before others. If
    /// there are more, the check fails: for some of the orders there are seeds. Otherwise it prints
    /// how many there are (`cargo test -- --nocapture`).
    ///
    /// Call it at the beginning. From then on nothing is random, as with the seed 0 after
    /// [`chaos`](Self::chaos): latencies, for instance, are their mean, and faults only come by
    /// hand or by `choose`. So one seed is enough, and of several the first one is taken. Messages
    /// that are sent at different moments arrive in that order, unless latencies differ. With a
    /// latency of zero all that is under way arrives at the same moment, in every order.
    ///
    /// Messages from one address to another keep their order. State that hosts share directly, as
    /// in an `Rc`, is for observing: the orders in which several hosts use it are not all tried,
    /// except for a [`history`](Self::history). The same is true for [`always`](Self::always), if
    /// its condition is about several hosts, and for cuts and kills that come from another process
    /// than the test itself. The workers of a process take their tasks in turn, and a task is left
    /// only where it waits: an `.await` of something that is ready is no place for others to run.
    ///
    /// If it is called more than once, the lowest limit counts.
    ///
    /// ```
    /// use std::cell::Cell;
    /// use std::rc::Rc;
    ///
    /// let failed = std::panic::catch_unwind(|| {
    ///     polder_sim::check(0..1, |sim| async move {
    ///         sim.exhaustive(1_000);
    ///         let count = Rc::new(Cell::new(0));
    ///         let increments = [(); 2].map(|()| {
    ///             let count = count.clone();
    ///             polder::spawn_local(async move {
    ///                 let before = count.get();
    ///                 polder::future::yield_now().await; // A mistake: the count may change here.
    ///                 count.set(before + 1);
    ///             })
    ///         });
    ///         for increment in increments {
    ///             increment.await;
    ///         }
    ///         assert_eq!(count.get(), 2);
    ///     });
    /// });
    /// assert!(failed.is_err());
    /// ```
    ///
    /// # Panics
    ///
    /// If `limit` is zero.
    pub fn exhaustive(&self, limit: usize) {
        assert!(
            limit > 0,
            "polder_sim: an exhaustive test has to run at least once"
        );
        with_kernel(|kernel| kernel.try_all(limit));
    }

    /// Sets the number of workers of each process that starts from now on, on hosts for which
    /// [`Host::workers`] was not called.
    ///
    /// ```
    /// polder_sim::check(0..10, |sim| async move {
    ///     sim.workers(4); // As in production.
    ///     let answer = sim.host("server").start(|| polder::spawn(async { 42 }));
    ///     assert_eq!(answer.finished().await, polder_sim::Exit::Returned(42));
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the number is not from 1 to 64.
    #[track_caller]
    pub fn workers(&self, workers: usize) {
        assert_workers(workers);
        with_kernel(|kernel| kernel.core.processes.set_workers(None, workers));
    }

    /// Sleeps for `duration`, measured by the clock of the test's own host. That clock shows the
    /// world's time unless it was [set](Host::clock). Within the test this is the same as
    /// [`time::sleep`](polder::time::sleep).
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let start = Instant::now();
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.sleep(Duration::from_secs(3_000)).await; // Of the world's time.
    /// });
    /// assert!(start.elapsed() < Duration::from_secs(3_000));
    /// ```
    pub fn sleep(&self, duration: Duration) -> Sleep {
        sleep(duration)
    }

    /// Returns the time that has passed since the world began.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.sleep(Duration::from_secs(7)).await;
    ///     assert_eq!(sim.now(), Duration::from_secs(7));
    /// });
    /// ```
    pub fn now(&self) -> Duration {
        world::time::count_reading();
        with_kernel(|kernel| Duration::from_nanos(kernel.core.time.now()))
    }

    /// Returns the seed of this world.
    ///
    /// ```
    /// polder_sim::check(7..8, |sim| async move {
    ///     assert_eq!(sim.seed(), 7);
    /// });
    /// ```
    pub fn seed(&self) -> u64 {
        with_kernel(|kernel| kernel.core.seed)
    }

    /// Returns a number below `end` (zero if `end` is zero), for the test's own choices.
    ///
    /// ```
    /// polder_sim::check(0..1, |sim| async move {
    ///     assert!(sim.choose(6) < 6);
    /// });
    /// ```
    pub fn choose(&self, end: u64) -> u64 {
        self.state.choose(end.max(1))
    }

    /// Returns a workload of so many operations for each of its clients. The seed draws which, and
    /// how long a client pauses in between. The report of a failure has those that it needs.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..3, |sim| async move {
    ///     let work = sim
    ///         .workload(20)
    ///         .operation(3, "read", |_| async { /* asks the server */ })
    ///         .operation(1, "write", |_| async { /* tells the server */ });
    ///     for client in work.start(&["one", "other"]) {
    ///         client.finished().within(Duration::from_secs(60)).await;
    ///     }
    /// });
    /// ```
    pub fn workload(&self, operations: u64) -> Workload {
        Workload::new(self.state.clone(), operations)
    }

    /// Fails the run if `condition` returns `false`, or an error that gives the reason, after any
    /// step. It reads what the test and its hosts share, and does not affect the run.
    ///
    /// ```
    /// use std::cell::Cell;
    /// use std::rc::Rc;
    ///
    /// let report = polder_sim::run(1, |sim| async move {
    ///     let count = Rc::new(Cell::new(0));
    ///     let seen = count.clone();
    ///     sim.always("at most one", move || seen.get() <= 1);
    ///     count.set(2);
    ///     std::future::pending::<()>().await
    /// });
    /// assert!(report.failure.unwrap().contains("always \"at most one\""));
    /// ```
    pub fn always<H: Holds>(&self, name: &str, condition: impl FnMut() -> H + 'static) {
        self.state.always.add(name, 0, condition);
    }

    /// Requires `condition` to be true at some moment for at least one of the seeds of
    /// [`check`](crate::check()), which fails otherwise: a test that never reaches that state does
    /// not test what it is meant to.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..20, |sim| async move {
    ///     let server = sim.host("server").start(std::future::pending::<()>);
    ///     let paused = sim.choose(2) == 0;
    ///     let _pause = paused.then(|| server.pause());
    ///     sim.sometimes("the server is paused", move || server.is_paused());
    ///     sim.sleep(Duration::from_secs(1)).await;
    /// });
    /// ```
    pub fn sometimes(&self, name: &str, condition: impl FnMut() -> bool + 'static) {
        self.state.sometimes.add(name, 0, condition);
    }

    /// Tells an exploration (`POLDER_SIM_EXPLORE`, see [`check`](crate::check())) the state that
    /// something has come to, such as the role of a node or the number of an election. Runs with a
    /// state that none has had before, or with another order of states of this name, are continued.
    /// It changes nothing in the world.
    ///
    /// A good state has from a few to some thousand values: of one that is always new, each run is
    /// as good as any other.
    ///
    /// ```
    /// polder_sim::check(0..20, |sim| async move {
    ///     let mut level = 0;
    ///     while level < 4 && sim.choose(3) > 0 {
    ///         level += 1;
    ///         sim.state("level", level);
    ///     }
    /// });
    /// ```
    pub fn state(&self, name: &str, state: impl Hash) {
        // Its keys are always the same.
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        with_kernel(|kernel| kernel.core.cover_state(name, hasher.finish()));
    }

    /// Calls `f` after each step with each event of the step, in order: to print it, or to look for
    /// something. `f` reads what the test and its hosts share, and does not affect the run. Several
    /// functions are called in the order in which they were added. (To print every event the moment
    /// it happens, set `POLDER_SIM_LOG=1` instead.)
    ///
    /// `f` is also called in the second run of a seed: see [`check`](crate::check()).
    ///
    /// ```
    /// use std::cell::Cell;
    /// use std::rc::Rc;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let starts = Rc::new(Cell::new(0));
    ///     let count = starts.clone();
    ///     sim.on_event(move |event| {
    ///         if event.host == "store" && event.words == "started" {
    ///             count.set(count.get() + 1);
    ///         }
    ///     });
    ///     let store = sim.host("store").start(std::future::pending::<()>);
    ///     store.restart();
    ///     sim.sleep(std::time::Duration::from_secs(1)).await;
    ///     assert_eq!(starts.get(), 2);
    /// });
    /// ```
    pub fn on_event(&self, f: impl FnMut(&Event) + 'static) {
        self.state.observe(Box::new(f));
    }

    /// Requires `condition` to be true once, within this time after [`quiesce`](Self::quiesce), or
    /// when the test ends.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let report = polder_sim::run(1, |sim| async move {
    ///     sim.eventually("it is over", Duration::from_secs(5), || false);
    ///     sim.quiesce();
    ///     sim.sleep(Duration::from_secs(60)).await;
    /// });
    /// assert!(report.failure.unwrap().contains("eventually \"it is over\""));
    /// assert_eq!(report.time.as_secs(), 5);
    /// ```
    pub fn eventually<H: Holds>(
        &self,
        name: &str,
        within: Duration,
        condition: impl FnMut() -> H + 'static,
    ) {
        let within = world::seconds::nanos(within);
        self.state.eventually.add(name, within, condition);
    }

    /// Returns the history of the operations with these inputs and outputs. There is one for each
    /// pair of types; the types can usually be inferred.
    ///
    /// ```
    /// polder_sim::check(0..1, |sim| async move {
    ///     let history = sim.history();
    ///     history.invoke("client", "ping").answer("pong");
    ///     assert_eq!(sim.history::<&str, &str>().len(), 1); // The same one.
    ///     assert!(sim.history::<u32, u32>().is_empty());
    /// });
    /// ```
    pub fn history<I: 'static, O: 'static>(&self) -> History<I, O> {
        History::of(&mut self.state.histories.borrow_mut())
    }

    /// Ends all faults, including those of [`chaos`](Self::chaos). Cuts and holds are healed, no
    /// loss is drawn any more, and no fault of a host or of names is injected. Timers are on time,
    /// clocks do not drift, and paused processes and suspended machines resume. Hosts that were
    /// killed or powered off are restarted. From here on the program has to make progress: see
    /// [`eventually`](Self::eventually). (A [`bandwidth`](Links::bandwidth) stays, and its full
    /// queue still loses. A clock that has jumped stays ahead; wall clocks that chaos has stepped
    /// are right again.)
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..30, |sim| async move {
    ///     let store = sim.host("store").start(std::future::pending::<()>);
    ///     sim.chaos(Duration::from_secs(60)).crashes(&[&store]).cuts();
    ///     sim.sleep(Duration::from_secs(sim.choose(60))).await;
    ///     let is_up = store.clone();
    ///     sim.eventually("it runs", Duration::from_secs(1), move || is_up.is_up());
    ///     sim.quiesce();
    /// });
    /// ```
    pub fn quiesce(&self) {
        self.state.end_chaos();
        with_kernel(|kernel| {
            kernel.heal_all();
            kernel.core.links.change(None, |link| {
                (link.loss, link.duplication) = Default::default();
                (link.reordering, link.bursts) = Default::default();
            });
        });
        self.state.restart_all();
        let now = with_kernel(|kernel| kernel.core.time.now());
        self.state.quiet_since.set(Some(now));
    }

    /// Sets the world's time limit for the test. The default is an hour.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let report = polder_sim::run(1, |sim| async move {
    ///     sim.limit(Duration::from_secs(60));
    ///     sim.sleep(Duration::from_secs(61)).await;
    /// });
    /// assert!(report.failure.unwrap().contains("the test has not ended within 60"));
    /// ```
    pub fn limit(&self, limit: Duration) {
        self.state.limit.set(world::seconds::nanos(limit));
    }

    /// Fails the run if a host begins more than `max` connections within a second of the world's
    /// time: a retry storm of clients without back-off.
    ///
    /// ```
    /// use polder::net::TcpStream;
    ///
    /// let report = polder_sim::run(1, |sim| async move {
    ///     sim.max_connects(100);
    ///     sim.host("server"); // It refuses, as nothing listens there.
    ///     while TcpStream::connect("server:1").await.is_err() {}
    /// });
    /// assert!(report.failure.unwrap().contains("retry storm"));
    /// ```
    pub fn max_connects(&self, max: u32) {
        with_kernel(|kernel| kernel.core.hosts.max_connects = Some(max));
    }

    /// Fails the run if a host sends more than `max` UDP datagrams within a second of the world's
    /// time: a storm of peers that answer each other's answers. (A broadcast counts as one.)
    ///
    /// ```
    /// use polder::net::UdpSocket;
    ///
    /// let report = polder_sim::run(1, |sim| async move {
    ///     sim.max_datagrams(100);
    ///     let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
    ///     let server = (sim.host("server").address(), 1);
    ///     for _ in 0..1_000 {
    ///         let _ = socket.send_to(b"?", server).await;
    ///     }
    /// });
    /// assert!(report.failure.unwrap().contains("sends too many datagrams"));
    /// ```
    pub fn max_datagrams(&self, max: u32) {
        with_kernel(|kernel| kernel.core.hosts.max_datagrams = Some(max));
    }

    /// Fails the run, from now on, if a process returns and leaves tasks, sockets or files of
    /// [`fs`](polder::fs) behind: tasks that it has spawned and not awaited, and anything it did
    /// not close. The report shows how many bytes of each socket were unread. (A process that is
    /// killed may leave anything.)
    ///
    /// ```
    /// let report = polder_sim::run(1, |sim| async move {
    ///     sim.forbid_leaks();
    ///     let process = sim.host("host").start(|| async {
    ///         polder::spawn(std::future::pending::<()>()).detach();
    ///     });
    ///     process.finished().await;
    /// });
    /// assert!(report.failure.unwrap().contains("leaves behind"));
    /// ```
    pub fn forbid_leaks(&self) {
        self.state.forbids_leaks.set(true);
    }

    /// Tolerates panics that polder contains from now on: in a handler of
    /// [`serve`](polder::net::serve), in a task that is not awaited, in a destructor or in a waker.
    /// They do not fail the run any more. This is for programs that must survive such panics.
    ///
    /// A process then ends as [`Exit::Panicked`](crate::Exit::Panicked) if its future panics, and
    /// its sockets are closed. The test has to start it [again](Host::restart), in place of a
    /// supervisor; [`quiesce`](Self::quiesce) does not. (A panic of the test itself still fails the
    /// run.)
    ///
    /// ```
    /// let test = |permits: bool| {
    ///     polder_sim::run(1, move |sim| async move {
    ///         if permits {
    ///             sim.permit_panics();
    ///         }
    ///         polder::spawn(async { panic!("in a task") }).detach();
    ///         polder::future::yield_now().await;
    ///     })
    /// };
    /// assert!(test(false).failure.unwrap().contains("in a task"));
    /// assert_eq!(test(true).failure, None);
    /// ```
    ///
    /// ```
    /// use polder_sim::Exit;
    /// use std::cell::Cell;
    /// use std::rc::Rc;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.permit_panics();
    ///     let starts = Rc::new(Cell::new(0));
    ///     let program = sim.host("host").start(move || {
    ///         starts.set(starts.get() + 1);
    ///         let is_first = starts.get() == 1;
    ///         async move { assert!(!is_first, "the first one dies") }
    ///     });
    ///     assert_eq!(program.finished().await, Exit::Panicked);
    ///     program.restart();
    ///     assert_eq!(program.finished().await, Exit::Returned(()));
    /// });
    /// ```
    pub fn permit_panics(&self) {
        with_kernel(|kernel| kernel.core.report.panics.are_permitted = true);
    }

    /// Lets the next world run on the thread of this one. By calling it the test promises that
    /// nothing this world leaves in thread-locals influences another run. Without it each world has
    /// a new thread, and starting one takes longer than running a short world. Worlds that last
    /// longer than a millisecond gain little.
    ///
    /// It applies to the world in which it is called. A failure still depends on the seed alone: a
    /// failing seed runs again on a new thread, and so does the first world that runs on the thread
    /// of another one (with `POLDER_SIM_VERIFY=1`, all do). If the two runs differ,
    /// [`check`](crate::check()) fails. Polder's own thread-locals are as new in each world.
    ///
    /// A test may reset a counter in a thread-local when a world begins. It cannot reset the keys
    /// of the standard library's `HashMap`, which are kept in a thread-local. So a program that
    /// iterates over a map, and behaves differently in another order, needs new threads. A handle
    /// of a world (`Sim`, [`Host`], [`Cut`]) in a thread-local would act on the next world.
    ///
    /// It has no effect in [`run`](crate::run), or in a world that runs within another one.
    ///
    /// ```
    /// use std::cell::Cell;
    ///
    /// thread_local! {
    ///     static REQUESTS: Cell<u64> = const { Cell::new(0) };
    /// }
    ///
    /// polder_sim::check(0..100, |sim| async move {
    ///     sim.share_thread();
    ///     REQUESTS.set(0);
    ///     let host = sim.host("host").start(|| async {
    ///         REQUESTS.set(REQUESTS.get() + 1);
    ///     });
    ///     host.finished().await;
    ///     assert_eq!(REQUESTS.get(), 1);
    /// });
    /// ```
    pub fn share_thread(&self) {
        self.state.shares_thread.set(true);
    }

    /// Sets the number of steps after which the run fails, regardless of the time that has passed.
    /// The default is 10,000,000. A program that wakes up every nanosecond would take too long to
    /// reach the [limit](Self::limit) of the world's time.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let report = polder_sim::run(1, |sim| async move {
    ///     sim.total_steps(1_000);
    ///     loop {
    ///         sim.sleep(Duration::from_nanos(1)).await;
    ///     }
    ///     #[allow(unreachable_code)]
    ///     ()
    /// });
    /// assert!(report.failure.unwrap().contains("has had 1000 steps"));
    /// ```
    pub fn total_steps(&self, max: u64) {
        self.state.max_total.set(max);
    }

    /// Sets the number of steps (tasks polled, events) without any time passing after which the run
    /// fails as a livelock. The default is 100,000. A world with many tasks that do much at one
    /// moment needs more.
    ///
    /// ```
    /// use polder::future::yield_now;
    ///
    /// let yields = |max| {
    ///     polder_sim::run(1, move |sim| async move {
    ///         sim.steps(max);
    ///         for _ in 0..1_000 {
    ///             yield_now().await;
    ///         }
    ///     })
    /// };
    /// assert!(yields(500).failure.unwrap().contains("livelock: 500 steps"));
    /// assert_eq!(yields(5_000).failure, None);
    /// ```
    pub fn steps(&self, max: u64) {
        self.state.max_steps.set(max);
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seed = world::thread::with(|kernel| kernel.core.seed);
        f.debug_struct("Sim").field("seed", &seed).finish()
    }
}
