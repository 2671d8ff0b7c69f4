//! [`Host`] and [`Process`]: machines, and the programs that run on them.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::future::{Future, pending};
use std::io;
use std::net::IpAddr;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, Location};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_lite::FutureExt;
use polder::signal::Signal;
use polder::time::timeout;

use super::disk::Disk;
use super::machine::{Clock, Faults};
use super::state::State;
use crate::world;
use crate::world::foreign::{contain, panic_message, wake_all};
use crate::world::hosts::TEST;
use crate::world::latency::Latency;
use crate::world::processes::PauseId;
use crate::world::seconds::Seconds;
use crate::world::thread::{StaysHere, kernel as with_kernel};
use crate::world::trace_event::TraceEvent;

/// Maximum number of workers of a process. More would not find more bugs, and each occasionally
/// costs every step of its process a check.
const MAX_WORKERS: usize = 64;

#[track_caller]
pub(super) fn assert_workers(workers: usize) {
    assert!(
        (1..=MAX_WORKERS).contains(&workers),
        "polder_sim: a process has 1 to {MAX_WORKERS} workers, not {workers}"
    );
}

/// A machine of a simulated world. It has a name, addresses, a clock and a disk, and runs at most
/// one process at a time. Returned by [`Sim::host`](super::Sim::host).
///
/// Clones are handles to the same host. Processes can look up the names of hosts:
/// `TcpStream::connect("store:7000")`.
///
/// ```
/// use polder_sim::Exit;
///
/// polder_sim::check(0..1, |sim| async move {
///     let host = sim.host("store");
///     host.clock().offset(std::time::Duration::from_secs(60));
///     let process = host.start(std::future::pending::<()>);
///     host.power_off();
///     assert_eq!(process.finished().await, Exit::PoweredOff);
///     assert!(!host.is_up());
/// });
/// ```
#[derive(Clone)]
pub struct Host {
    pub(super) state: Rc<State>,
    pub(super) index: usize,
}

impl Host {
    /// Starts a process: runs the future that `program` returns, on a separate runtime with one
    /// worker, unless [`workers`](Self::workers) sets another number. Each
    /// [`restart`](Self::restart) calls `program` again.
    ///
    /// ```
    /// use polder::io::{AsyncReadExt, AsyncWriteExt};
    /// use polder::net::{TcpListener, TcpStream};
    /// use polder_sim::Sim;
    ///
    /// async fn greeter() -> std::io::Result<()> {
    ///     let listener = TcpListener::bind("0.0.0.0:7000").await?;
    ///     loop {
    ///         let (mut stream, _) = listener.accept().await?;
    ///         stream.write_all(b"hello").await?;
    ///     }
    /// }
    ///
    /// polder_sim::check(0..10, |sim: Sim| async move {
    ///     sim.host("greeter").start(greeter);
    ///     let mut text = String::new();
    ///     let mut stream = TcpStream::connect("greeter:7000").await?;
    ///     stream.read_to_string(&mut text).await?;
    ///     assert_eq!(text, "hello");
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If a process already runs on the host.
    #[track_caller]
    pub fn start<F, P>(&self, program: P) -> Process<F::Output>
    where
        P: Fn() -> F + 'static,
        F: Future + 'static,
        F::Output: 'static,
    {
        let site = Location::caller();
        assert!(
            !self.is_up(),
            "polder_sim: a process runs on {:?} already",
            self.name()
        );
        let slot = Rc::new(Slot::new());
        let program = Rc::new(program);
        let start = {
            // A weak reference: the state holds this closure.
            let (state, slot, index) = (Rc::downgrade(&self.state), slot.clone(), self.index);
            Rc::new(move || {
                let state = state.upgrade().expect("the world is there");
                slot.begin();
                let (process, runtime) = state.start(index);
                let place = (index, process);
                let main = run(program.clone(), slot.clone(), Rc::downgrade(&state), place);
                // Not on behalf of the current process, so that its own task is not woken by this.
                world::thread::as_nobody(|| runtime.spawn_main(main, site));
            })
        };
        let end = {
            let slot = slot.clone();
            Rc::new(move |what| {
                slot.set(match what {
                    TraceEvent::PoweredOff => Exit::PoweredOff,
                    _ => Exit::Killed,
                })
            })
        };
        start();
        self.state.hosts.borrow_mut()[self.index].start = Some((start, end));
        Process {
            host: self.clone(),
            slot,
        }
    }

    /// Returns the host's name.
    ///
    /// ```
    /// polder_sim::check(0..1, |sim| async move {
    ///     assert_eq!(sim.host("store").name(), "store");
    /// });
    /// ```
    pub fn name(&self) -> String {
        with_kernel(|kernel| kernel.core.hosts.name(self.index).to_owned())
    }

    /// Returns the host's first address, which does not change.
    ///
    /// ```
    /// polder_sim::check(0..1, |sim| async move {
    ///     let store = sim.host("store");
    ///     let found = polder::net::resolve("store:80").await.unwrap();
    ///     assert_eq!(found[0].ip(), store.address());
    /// });
    /// ```
    pub fn address(&self) -> IpAddr {
        with_kernel(|kernel| kernel.core.hosts.address(self.index, false))
    }

    /// Returns the host's first IPv6 address, at which it can be reached too. Names
    /// resolve to it if [`Names::both`](super::Names::both) was called.
    ///
    /// ```
    /// use polder::net::{TcpListener, TcpStream};
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let listener = TcpListener::bind("[::]:80").await?;
    ///     let address = sim.host("test").address_v6();
    ///     let client = sim.host("client").start(move || TcpStream::connect((address, 80)));
    ///     let (stream, _) = listener.accept().await?;
    ///     assert_eq!(stream.peer_addr()?.ip(), client.address_v6());
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn address_v6(&self) -> IpAddr {
        with_kernel(|kernel| kernel.core.hosts.address(self.index, true))
    }

    /// Adds another address, at which the host can be reached too, as on a machine with a second
    /// network: of a network other than `10.0.0.0/16` and `fd00::/112`, which have the first ones.
    ///
    /// A socket is bound to one of them, or by the unspecified address to all. A connection to
    /// another host comes from the first one, [`address`](Self::address), and so does a datagram
    /// of a socket that is bound to all: also the answer to one that has come to another address,
    /// as on Linux. The host's name has the first ones alone, unless
    /// [`Names::set`](super::Names::set) says otherwise. Links, cuts and holds are between hosts,
    /// by any address. A socket that was connected to the address before does not find it.
    ///
    /// ```
    /// use polder::net::{TcpListener, TcpStream};
    /// use std::io::ErrorKind;
    ///
    /// polder_sim::check(0..10, |sim| async move {
    ///     let server = sim.host("server");
    ///     server.add_address([192, 0, 2, 1]);
    ///     server.start(|| async {
    ///         let listener = TcpListener::bind("192.0.2.1:80").await?;
    ///         listener.accept().await
    ///     });
    ///     sim.sleep(std::time::Duration::from_millis(1)).await;
    ///     let error = TcpStream::connect("server:80").await.unwrap_err();
    ///     assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    ///     let stream = TcpStream::connect("192.0.2.1:80").await?;
    ///     assert_eq!(stream.local_addr()?.ip(), sim.host("test").address());
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If another host has it, if it is of the networks above, or if it is unspecified, of
    /// loopback, broadcast or multicast, or an IPv4 address that is mapped to IPv6.
    #[track_caller]
    pub fn add_address(&self, address: impl Into<IpAddr>) {
        let address = address.into();
        let added = with_kernel(|kernel| kernel.core.hosts.add_address(self.index, address));
        added.unwrap_or_else(|why| panic!("polder_sim: {why}"));
    }

    /// Puts the host into the private network of a gateway, which translates addresses (NAT) as
    /// Linux's masquerading does. It reaches the hosts outside through the gateway, and these see
    /// the gateway's address, with the same port if it is free there. Only answers come in. A
    /// message from outside to the host's own address is lost. A message to a port of the gateway
    /// that stands for the host is passed on if the host has sent something to exactly that sender
    /// before, and the gateway has not forgotten that. A flow of datagrams is forgotten after 30 s
    /// without any, or after 120 s if it has had answers and has lasted for two seconds.
    ///
    /// Hosts behind one gateway reach each other, and the gateway reaches them. A gateway may be
    /// behind another one. It need not run a process; without power it passes nothing on, and
    /// forgets all flows. Links, cuts and holds are between neighbors: those of the private network
    /// and the gateway, and the gateway and those outside. A broadcast stays among neighbors.
    ///
    /// Connections that exist, and datagram sockets that are connected, keep their way. So call
    /// this before the host's processes start; or later, to move the host from behind one gateway
    /// to behind another, as a phone does: then no answers come through the old gateway.
    ///
    /// ```
    /// use polder::net::UdpSocket;
    ///
    /// polder_sim::check(0..10, |sim| async move {
    ///     let (phone, router) = (sim.host("phone"), sim.host("router"));
    ///     phone.behind_nat(&router);
    ///     let socket = UdpSocket::bind("0.0.0.0:7").await?;
    ///     phone.start(|| async {
    ///         UdpSocket::bind("0.0.0.0:9").await?.send_to(b"hello", "test:7").await
    ///     });
    ///     let (_, from) = socket.recv_from(&mut [0; 8]).await?;
    ///     assert_eq!(from, (router.address(), 9).into());
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the gateway is the host of the test itself, or is this host, or is behind it.
    #[track_caller]
    pub fn behind_nat(&self, gateway: &Host) {
        let set = with_kernel(|kernel| kernel.core.hosts.set_gateway(self.index, gateway.index));
        set.unwrap_or_else(|why| panic!("polder_sim: {why}"));
    }

    /// Returns whether a process runs on the host.
    ///
    /// ```
    /// polder_sim::check(0..1, |sim| async move {
    ///     let store = sim.host("store").start(std::future::pending::<()>);
    ///     assert!(store.is_up());
    ///     store.kill();
    ///     assert!(!store.is_up());
    /// });
    /// ```
    pub fn is_up(&self) -> bool {
        self.state.runs_on(self.index)
    }

    /// Returns whether its process is paused: by [`pause`](Self::pause), by
    /// [`Chaos::pauses`](super::Chaos::pauses), or with all of its machine, which is
    /// [suspended](Self::is_suspended).
    ///
    /// ```
    /// polder_sim::check(0..1, |sim| async move {
    ///     let store = sim.host("store").start(std::future::pending::<()>);
    ///     let pause = store.pause();
    ///     assert!(store.is_paused());
    ///     drop(pause);
    ///     assert!(!store.is_paused());
    /// });
    /// ```
    pub fn is_paused(&self) -> bool {
        with_kernel(|kernel| kernel.core.processes.is_paused(self.index))
    }

    /// Returns whether the machine is suspended: by [`suspend`](Self::suspend), or by
    /// [`Chaos::suspensions`](super::Chaos::suspensions).
    ///
    /// ```
    /// polder_sim::check(0..1, |sim| async move {
    ///     let store = sim.host("store");
    ///     let suspension = store.suspend();
    ///     assert!(store.is_suspended() && store.is_paused());
    ///     drop(suspension);
    ///     assert!(!store.is_suspended());
    /// });
    /// ```
    pub fn is_suspended(&self) -> bool {
        with_kernel(|kernel| kernel.core.links.partings.is_suspended(self.index))
    }

    /// Returns the host's clock, to be configured.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let start = polder::time::now();
    ///     sim.host("test").clock().offset(Duration::from_secs(9));
    ///     assert_eq!(polder::time::now() - start, Duration::from_secs(9));
    /// });
    /// ```
    pub fn clock(&self) -> Clock {
        Clock(self.index)
    }

    /// Returns the faults of the host's kernel, to be configured.
    ///
    /// ```
    /// use polder::net::TcpListener;
    ///
    /// polder_sim::check(0..10, |sim| async move {
    ///     sim.host("server").faults().exhausted(0.5);
    ///     let server = sim.host("server").start(|| TcpListener::bind("0.0.0.0:1"));
    ///     if let polder_sim::Exit::Returned(result) = server.finished().await {
    ///         polder::sometimes!(result.is_err(), "the server cannot start");
    ///     }
    /// });
    /// ```
    pub fn faults(&self) -> Faults {
        Faults(self.index)
    }

    /// Returns the host's disk, to be configured.
    ///
    /// ```
    /// use polder::fs;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.host("test").disk().write_errors(1.0);
    ///     assert!(fs::write("/state", "1").await.is_err());
    /// });
    /// ```
    pub fn disk(&self) -> Disk {
        Disk(self.index)
    }

    /// Limits the number of sockets and of files of [`fs`](polder::fs) that its process may have.
    /// At the limit, creating, accepting or opening another one fails, as with `RLIMIT_NOFILE`
    /// (`EMFILE`). By default there is no limit. (Descriptors of the real system do not count.)
    ///
    /// ```
    /// use polder::net::TcpListener;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.host("test").descriptors(1);
    ///     let _one = TcpListener::bind("0.0.0.0:1").await.unwrap();
    ///     assert!(TcpListener::bind("0.0.0.0:2").await.is_err());
    /// });
    /// ```
    pub fn descriptors(&self, most: usize) {
        self.faults().change(|own| own.descriptors = Some(most));
    }

    /// Sets the number of workers of the processes that start on the host from now on, as
    /// [`Builder::workers`](polder::runtime::Builder::workers) does. The default is one, or the
    /// number set by [`Sim::workers`](super::Sim::workers).
    ///
    /// With two or more, a main worker runs the future that is started and the tasks that it spawns
    /// locally. Other tasks run on the other workers and move between them. All workers take turns
    /// on the world's thread: the world's [`Order`](super::Order) chooses the next worker, and
    /// which of its ready tasks runs. So no two polls overlap, and all workers see the same
    /// thread-locals.
    ///
    /// ```
    /// use polder::Handle;
    ///
    /// polder_sim::check(0..10, |sim| async move {
    ///     let host = sim.host("host");
    ///     host.workers(2);
    ///     let program = host.start(|| async {
    ///         let doubled = (0..100).map(|n| polder::spawn(async move { 2 * n }));
    ///         let mut sum = 0;
    ///         for task in doubled.collect::<Vec<_>>() {
    ///             sum += task.await;
    ///         }
    ///         (sum, Handle::current().metrics().workers.len())
    ///     });
    ///     let (sum, workers) = program.finished().within(std::time::Duration::from_secs(1)).await;
    ///     assert_eq!((sum, workers), (9_900, 3)); // Two, and the main worker.
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the number is not from 1 to 64, or if this is the host of the test itself, which has one.
    #[track_caller]
    pub fn workers(&self, workers: usize) {
        self.assert_not_the_test();
        assert_workers(workers);
        with_kernel(|kernel| kernel.core.processes.set_workers(Some(self.index), workers));
    }

    /// Sets how long a call that is given to [`unblock`](polder::unblock) waits for a thread. The
    /// default is 5 to 100 µs. Then the call runs in line, and no time passes meanwhile.
    ///
    /// ```
    /// use polder_sim::Latency;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.host("test").blocking(Latency::fixed(Duration::from_secs(3)));
    ///     assert_eq!(polder::unblock(|| 6 * 7).await, 42);
    ///     assert_eq!(sim.now(), Duration::from_secs(3));
    /// });
    /// ```
    pub fn blocking(&self, latency: Latency) {
        with_kernel(|kernel| {
            let delays = kernel.blocking.delays_of(self.index, kernel.core.seed);
            delays.latency = latency;
        });
    }

    /// Sends a signal to the process: to its [`Signals`](polder::signal::Signals) and
    /// [`ctrl_c`](polder::signal::ctrl_c), and to no other process. If the process does not listen
    /// for that signal, it [ends](Self::kill), also while it is [paused](Self::pause), unless the
    /// default action is to ignore the signal. Has no effect if no process runs.
    ///
    /// ```
    /// use polder::signal::{Signal, Signals};
    /// use polder::stream::StreamExt;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let server = sim.host("server").start(|| async {
    ///         Signals::new([Signal::Term]).unwrap().next().await
    ///     });
    ///     sim.sleep(std::time::Duration::from_millis(1)).await;
    ///     server.signal(Signal::Term);
    ///     let ended = server.finished().within(std::time::Duration::from_secs(1)).await;
    ///     assert_eq!(ended, Some(Signal::Term));
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the platform has no such signal; if the signal stops a process, which
    /// [`pause`](Self::pause) does; or if this is the host of the test itself, and the test does
    /// not listen for the signal.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        let Some(number) = signal.number() else {
            panic!("polder_sim: there is no {signal} on this platform");
        };
        let Some(process) = self.state.hosts.borrow()[self.index].process else {
            return;
        };
        let number = usize::try_from(number).expect("numbers of signals are positive");
        if let Some(owner) = with_kernel(|kernel| kernel.core.signal(process, number)) {
            return world::listeners::wake(owner, number);
        }
        // The default action of a signal without a listener: see signal(7).
        match signal {
            Signal::Chld | Signal::Cont | Signal::Urg | Signal::Winch => {}
            Signal::Stop | Signal::Tstp | Signal::Ttin | Signal::Ttou => {
                panic!("polder_sim: {signal} stops a process: Host::pause does that")
            }
            _ => self.kill(),
        }
    }

    /// Kills the process, as SIGKILL does. It stops running, and the kernel closes its sockets,
    /// with FIN, or with RST if data was left unread. The machine stays on, and refuses
    /// connections. Has no effect if no process runs.
    ///
    /// (Its tasks are dropped a moment later, which runs destructors. By then they cannot send
    /// anything.)
    ///
    /// ```
    /// use polder_sim::Exit;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let server = sim.host("server").start(std::future::pending::<()>);
    ///     sim.sleep(Duration::from_secs(1)).await;
    ///     server.kill();
    ///     assert_eq!(server.finished().await, Exit::Killed);
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If this is the host of the test itself.
    #[track_caller]
    pub fn kill(&self) {
        self.end(TraceEvent::Killed);
    }

    /// Cuts the machine's power. Its peers are not notified, and data that is sent to it is lost
    /// until it is [restarted](Self::restart). Its disk may lose data that was not synced: see
    /// [`fs`](polder::fs).
    ///
    /// ```
    /// use polder::net::TcpStream;
    /// use std::io::ErrorKind;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.host("server").power_off();
    ///     // No answer, where a machine that runs refuses.
    ///     let limit = Duration::from_secs(5);
    ///     let error = TcpStream::connect_timeout("server:1", limit).await.unwrap_err();
    ///     assert_eq!(error.kind(), ErrorKind::TimedOut);
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If this is the host of the test itself.
    #[track_caller]
    pub fn power_off(&self) {
        self.end(TraceEvent::PoweredOff);
    }

    /// Panics if this is the test's host: its process drives the others, and without it no run
    /// would end.
    #[track_caller]
    pub(super) fn assert_not_the_test(&self) {
        assert!(
            self.index != TEST,
            "polder_sim: the host {:?} runs the test itself: it cannot be stopped",
            self.name()
        );
    }

    #[track_caller]
    fn end(&self, what: TraceEvent) {
        self.assert_not_the_test();
        self.state.end_process(self.index, what);
    }

    /// Restarts the program that was started last; kills the process first if one runs.
    ///
    /// ```
    /// use polder_sim::Exit;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let worker = sim.host("worker").start(|| async { 6 * 7 });
    ///     assert_eq!(worker.finished().await, Exit::Returned(42));
    ///     worker.restart();
    ///     assert_eq!(worker.finished().await, Exit::Returned(42));
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If no program was ever started, or if this is the host of the test itself.
    #[track_caller]
    pub fn restart(&self) {
        self.kill();
        assert!(
            self.state.start_again(self.index),
            "polder_sim: nothing was started on {:?}",
            self.name()
        );
    }

    /// Stops the process without ending it, as SIGSTOP does, until the result is dropped. The
    /// machine's kernel keeps running: it acknowledges data that arrives, as far as there is room.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let nap = || async { polder::time::sleep(Duration::from_secs(1)).await };
    ///     let sleeper = sim.host("sleeper").start(nap);
    ///     sim.sleep(Duration::from_millis(1)).await; // It has begun to sleep.
    ///     let pause = sleeper.pause();
    ///     sim.sleep(Duration::from_secs(5)).await;
    ///     assert!(sleeper.is_up());
    ///     drop(pause);
    ///     sleeper.finished().within(Duration::from_millis(1)).await;
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If this is the host of the test itself.
    #[track_caller]
    pub fn pause(&self) -> Pause {
        self.assert_not_the_test();
        let id = with_kernel(|kernel| kernel.core.pause(self.index));
        Pause(id, StaysHere::default())
    }

    /// Suspends the machine, as when a laptop sleeps, until the result is dropped:
    ///
    /// * Its process does nothing, as in a [`pause`](Self::pause).
    /// * Its monotonic clock stands still, as on Linux: [`time::now`](polder::time::now) does not
    ///   count the time of the suspension, and timers are due that much later.
    /// * Its wall clock (`SystemTime`) runs on. So a lease that ends by a date may have ended, and
    ///   a timer that was to renew it is late.
    /// * Its network card is off. All that arrives is lost, and the kernel's own timers, such as
    ///   those of TCP, stand still too. Its peers' do not: they retransmit, and may time out.
    ///
    /// Killing or restarting its process, or a power failure, does not end the suspension. A
    /// process that is killed meanwhile closes its sockets at once: its peers see their end after
    /// the suspension, but not a reset, which is sent once and lost.
    ///
    /// ```
    /// use polder::time::{now, sleep};
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let sleeper = sim.host("sleeper").start(|| async {
    ///         let start = now();
    ///         sleep(Duration::from_secs(10)).await;
    ///         now() - start
    ///     });
    ///     sim.sleep(Duration::from_secs(1)).await;
    ///     let suspension = sleeper.suspend();
    ///     sim.sleep(Duration::from_secs(1_800)).await;
    ///     drop(suspension);
    ///     let slept = sleeper.finished().within(Duration::from_secs(10)).await;
    ///     assert_eq!(slept, Duration::from_secs(10));
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If this is the host of the test itself.
    #[track_caller]
    pub fn suspend(&self) -> Pause {
        self.assert_not_the_test();
        let id = with_kernel(|kernel| kernel.suspend(self.index));
        Pause(id, StaysHere::default())
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = world::thread::with(|kernel| kernel.core.hosts.name(self.index).to_owned());
        f.debug_struct("Host").field("name", &name).finish()
    }
}

/// A pause of a process, or a suspension of its machine, which ends when this is dropped. Returned
/// by [`Host::pause`] and [`Host::suspend`].
///
/// ```
/// use std::time::Duration;
///
/// polder_sim::check(0..1, |sim| async move {
///     let host = sim.host("host").start(|| async { 7 });
///     let first = host.pause();
///     let second = host.pause();
///     drop(first);
///     assert!(host.is_paused()); // By the second one.
///     drop(second);
///     assert_eq!(host.finished().within(Duration::from_secs(1)).await, 7);
/// });
/// ```
#[must_use = "the process goes on when it is dropped"]
#[derive(Debug)]
pub struct Pause(PauseId, StaysHere);

impl Drop for Pause {
    fn drop(&mut self) {
        world::thread::with(|kernel| kernel.resume(self.0));
    }
}

/// How a process has ended: the output of [`Process::finished`].
///
/// ```
/// use polder_sim::Exit;
///
/// polder_sim::check(0..10, |sim| async move {
///     let host = sim.host("host").start(|| async { "done" });
///     if sim.choose(2) == 0 {
///         host.kill();
///     }
///     match host.finished().await {
///         Exit::Returned(output) => assert_eq!(output, "done"),
///         Exit::Killed => {}
///         other => panic!("{other:?}"),
///     }
/// });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit<T> {
    /// Its future has returned this.
    Returned(T),
    /// Its future has panicked. (This fails the run, unless
    /// [`Sim::permit_panics`](super::Sim::permit_panics) was called.)
    Panicked,
    /// It was ended by [`Host::kill`], or by [`Host::restart`].
    Killed,
    /// It was ended by [`Host::power_off`].
    PoweredOff,
}

/// A program that was started on a host. Returned by [`Host::start`]. It derefs to the [`Host`].
/// Dropping it has no effect.
///
/// ```
/// polder_sim::check(0..1, |sim| async move {
///     let process = sim.host("host").start(|| async { 42 });
///     assert_eq!(process.name(), "host"); // A method of the host.
///     let limit = std::time::Duration::from_secs(1);
///     assert_eq!(process.finished().within(limit).await, 42);
/// });
/// ```
pub struct Process<T> {
    host: Host,
    slot: Rc<Slot<T>>,
}

impl<T> Process<T> {
    /// Waits until the process ends. Each result is returned once: after a
    /// [restart](Host::restart), a second wait is for the next process. A wait that began before a
    /// restart returns how the process of that time ended.
    ///
    /// ```
    /// use polder_sim::Exit;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let adder = sim.host("adder").start(|| async { 1 + 2 });
    ///     assert_eq!(adder.finished().await, Exit::Returned(3));
    /// });
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future leaves the result to the next wait.
    pub fn finished(&self) -> Finished<T> {
        Finished {
            host: self.host.clone(),
            slot: self.slot.clone(),
            key: self.slot.wait(),
        }
    }
}

impl<T> Deref for Process<T> {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl<T> fmt::Debug for Process<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("host", &self.host).finish()
    }
}

/// The future returned by [`Process::finished`].
///
/// ```
/// use polder_sim::Exit;
/// use polder::time::timeout;
/// use std::time::Duration;
///
/// polder_sim::check(0..1, |sim| async move {
///     let server = sim.host("server").start(std::future::pending::<()>);
///     let mut finished = server.finished();
///     let second = Duration::from_secs(1);
///     assert!(timeout(second, &mut finished).await.is_err()); // It still runs.
///     server.kill();
///     assert_eq!(finished.await, Exit::Killed);
/// });
/// ```
///
/// # Cancel safety
///
/// Cancel safe: dropping the future leaves the result to the next wait.
#[must_use = "futures do nothing unless they are polled"]
pub struct Finished<T> {
    host: Host,
    slot: Rc<Slot<T>>,
    /// Key of the waiter in the slot.
    key: u64,
}

impl<T> Finished<T> {
    /// Waits until the process returns, and returns its output. Fails the run if that takes longer
    /// than `limit`, or if the process ends otherwise.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let adder = sim.host("adder").start(|| async { 1 + 2 });
    ///     assert_eq!(adder.finished().within(Duration::from_secs(1)).await, 3);
    /// });
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future ends neither the process nor the run, and leaves the result
    /// to the next wait.
    pub async fn within(self, limit: Duration) -> T {
        let host = self.host.clone();
        let (how, more) = match timeout(limit, self).await {
            Ok(Exit::Returned(value)) => return value,
            Ok(Exit::Panicked) => ("panicked", String::new()),
            Ok(Exit::Killed) => ("was killed", String::new()),
            Ok(Exit::PoweredOff) => ("was powered off", String::new()),
            Err(_) => {
                let limit = Seconds(world::seconds::nanos(limit));
                let why = if with_kernel(|kernel| kernel.is_at_rest()) {
                    ", and never would: no task is ready, no other timer is set, nothing is \
                     under way"
                } else {
                    ""
                };
                ("has not returned", format!(" within {limit}{why}"))
            }
        };
        let name = host.name();
        let cause = format!("the process of {name:?} {how} within {limit:?}");
        let text = || format!("the process of {name:?} {how}{more}");
        world::thread::fail_because(&cause, None, text);
        // The run ends with this step.
        pending().await
    }
}

impl<T> Future for Finished<T> {
    type Output = Exit<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Exit<T>> {
        self.slot.poll(self.key, cx.waker())
    }
}

impl<T> Drop for Finished<T> {
    fn drop(&mut self) {
        let waiter = self.slot.waiters.borrow_mut().remove(&self.key);
        drop(waiter);
    }
}

impl<T> fmt::Debug for Finished<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finished")
            .field("host", &self.host)
            .finish()
    }
}

/// Results of a program's processes, which are numbered: one for each start.
///
/// A waiter is registered here from the call of [`Process::finished`] until it is dropped. So the
/// result that it waits for is still there when the next process has begun. Wakers and values are
/// foreign code: they are moved out of the cells, and dropped, cloned and woken under no borrow.
pub(super) struct Slot<T> {
    /// Results that have not been taken yet.
    exits: RefCell<BTreeMap<u64, Exit<T>>>,
    /// Number of processes that have ended, which is also the number of the current or next one.
    ended: Cell<u64>,
    /// Whether a process runs.
    runs: Cell<bool>,
    waiters: RefCell<BTreeMap<u64, Waiter>>,
}

struct Waiter {
    /// Number of the process that is awaited.
    generation: u64,
    waker: Option<Waker>,
}

impl<T> Slot<T> {
    fn new() -> Slot<T> {
        Slot {
            exits: RefCell::default(),
            ended: Cell::new(0),
            runs: Cell::new(false),
            waiters: RefCell::default(),
        }
    }

    /// Records that a process begins, and drops results without a waiter.
    fn begin(&self) {
        let mut forgotten = self.exits.take();
        let generation = |waiter: &Waiter| waiter.generation;
        let awaited = self.waiters.borrow().values().map(generation).min();
        let kept = awaited.map_or_else(BTreeMap::new, |first| forgotten.split_off(&first));
        self.exits.replace(kept);
        self.runs.set(true);
        drop(forgotten);
    }

    /// Adds a waiter, after the others. Returns its key. It waits for the last process, if its
    /// result has not been taken and no other process runs; otherwise for the current or next one.
    fn wait(&self) -> u64 {
        let ended = self.ended.get();
        let last = self.exits.borrow().keys().next_back().copied();
        let last = last.filter(|last| *last + 1 == ended && !self.runs.get());
        let waiter = Waiter {
            generation: last.unwrap_or(ended),
            waker: None,
        };
        let mut waiters = self.waiters.borrow_mut();
        let key = waiters.last_key_value().map_or(0, |(last, _)| last + 1);
        waiters.insert(key, waiter);
        key
    }

    /// Returns the result that a waiter waits for; otherwise keeps its waker.
    fn poll(&self, key: u64, waker: &Waker) -> Poll<Exit<T>> {
        // A waker is foreign code: it is cloned and dropped while nothing is borrowed.
        let waker = waker.clone();
        let mut waiters = self.waiters.borrow_mut();
        let waiter = waiters.get_mut(&key).expect("it waits");
        // Skip results that other waiters have taken.
        while waiter.generation < self.ended.get() {
            if let Some(exit) = self.exits.borrow_mut().remove(&waiter.generation) {
                return Poll::Ready(exit);
            }
            waiter.generation += 1;
        }
        let before = waiter.waker.replace(waker);
        drop(waiters);
        drop(before);
        Poll::Pending
    }

    fn set(&self, exit: Exit<T>) {
        let generation = self.ended.get();
        self.ended.set(generation + 1);
        self.runs.set(false);
        self.exits.borrow_mut().insert(generation, exit);
        let mut waiters = self.waiters.borrow_mut();
        let woken: Vec<Waker> = (waiters.values_mut())
            .filter_map(|waiter| waiter.waker.take())
            .collect();
        drop(waiters);
        wake_all(woken);
    }
}

/// Returns the error that a process has returned, for the report, for the most common return types.
fn error_of(value: &dyn Any) -> Option<String> {
    fn of<E: ToString + 'static>(value: &dyn Any) -> Option<String> {
        let result = value.downcast_ref::<Result<(), E>>()?;
        result.as_ref().err().map(E::to_string)
    }
    of::<io::Error>(value)
        .or_else(|| of::<Box<dyn Error>>(value))
        .or_else(|| of::<Box<dyn Error + Send + Sync>>(value))
}

/// Runs a program as the main task of its process.
async fn run<F: Future, P: Fn() -> F>(
    program: Rc<P>,
    slot: Rc<Slot<F::Output>>,
    state: std::rc::Weak<State>,
    (host, process): (usize, usize),
) where
    F::Output: 'static,
{
    let result = AssertUnwindSafe(async { program().await });
    let result = result.catch_unwind().await;
    // `None` if the process has had itself killed: its end has already been reported.
    let current = (state.upgrade()).filter(|state| state.runs(host, process));
    let exit = match result {
        Ok(value) => {
            let Some(state) = &current else {
                return world::panics::as_killed(|| contain(|| drop(value)));
            };
            if let Some(error) = error_of(&value) {
                with_kernel(|kernel| kernel.core.note(host, TraceEvent::Failed));
                state.hosts.borrow_mut()[host].error = Some(error);
            }
            state.check_leaks(host);
            Exit::Returned(value)
        }
        Err(panic) => {
            let words = panic_message(&*panic);
            let name = with_kernel(|kernel| kernel.core.hosts.name(host).to_owned());
            world::panics::fail_unless_permitted(words, || {
                format!("the process of {name:?} panicked: {words}")
            });
            std::mem::forget(panic); // Its destructor may panic too.
            with_kernel(|kernel| {
                // Otherwise the panic is the failure of the run.
                if current.is_some() && kernel.core.report.failure.is_none() {
                    kernel.core.note(host, TraceEvent::Panicked);
                }
            });
            Exit::Panicked
        }
    };
    if let Some(state) = current {
        state.stop(host, TraceEvent::Ended);
        slot.set(exit);
    }
}
