//! Tests that the events which TCP leaves out of the queue change nothing: random scripts of calls
//! and faults have the same results with all events and without. (Latencies are drawn by the
//! nanosecond, so that events at the same moment are very rare: their order may differ.)

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use polder::kernel::sockets::TcpOption;
use polder::kernel::{READABLE, WRITABLE};

use super::socket::{BUFFER, Socket};
use crate::world::choice::{Probability, Stream};
use crate::world::errno::gone;
use crate::world::kernel::{Advanced, Kernel};
use crate::world::latency::Latency;
use crate::world::parting::How;
use crate::world::setup::Setup;
use crate::world::sockets::Network;
use crate::world::thread::{begin, with};
use crate::world::trace_event::{TraceEvent, digest};

const HOSTS: usize = 3;
const PORT: u16 = 80;

fn on<R>(kernel: &mut Kernel, f: impl FnOnce(&mut Network<'_>) -> R) -> R {
    f(&mut kernel.network())
}

fn get(kernel: &mut Kernel, id: u32) -> io::Result<&mut Socket> {
    kernel.sockets.table.tcp_mut(id).ok_or_else(gone)
}

/// A script that is being run.
struct Script<'a> {
    kernel: &'a mut Kernel,
    choices: Stream,
    processes: Vec<usize>,
    listener: u32,
    waits: u64,
    /// The sockets, each with its host.
    sockets: Vec<(usize, u32)>,
    /// All observations.
    log: Vec<String>,
}

impl Script<'_> {
    /// Runs one call or fault at a later time.
    fn run_one(&mut self) {
        let pause = match self.choices.below(4) {
            0 => self.choices.below(1_000),
            1 => self.choices.below(5_000_000),
            2 => self.choices.below(300_000_000),
            _ => self.choices.below(2_000_000_000),
        };
        // At that time, or as soon as something arrives, before it is acknowledged.
        let waits_for_bytes = self.choices.below(3) == 0;
        let before = self.received();
        let at = self.kernel.core.time.now() + pause;
        // An action that is due for chaos is an event as well.
        self.waits += 1;
        self.kernel.call_off_chaos(self.waits);
        self.kernel.core.schedule_chaos(at, self.waits);
        loop {
            let Advanced::Happened(_, due) = self.kernel.advance(u64::MAX) else {
                panic!("an action is scheduled");
            };
            if due.is_some() || waits_for_bytes && self.received() != before {
                break;
            }
        }
        let at = self.kernel.core.time.now();
        let what = self.choices.below(40);
        let seen = self.call(what);
        let ready: Vec<_> = (self.sockets.iter())
            .map(|(_, id)| self.kernel.network().ready(*id).ok())
            .collect();
        self.log.push(format!("{at} {what} {seen} {ready:?}"));
    }

    /// Returns the number of bytes that have arrived at all sockets.
    fn received(&self) -> u64 {
        let table = &self.kernel.sockets.table;
        let sockets = (0..table.next()).filter_map(|id| table.tcp(id));
        sockets.map(|socket| socket.received).sum()
    }

    fn call(&mut self, what: u64) -> String {
        let host = self.choices.below(HOSTS as u64) as usize;
        let other = (host + 1 + self.choices.below(HOSTS as u64 - 1) as usize) % HOSTS;
        let len = 1 + self.choices.below(4_000) as usize;
        let nth = self.choices.below(self.sockets.len().max(1) as u64) as usize;
        let socket = self.sockets.get(nth).copied();
        let current = |host: usize| Some(self.processes[host]);
        let kernel = &mut *self.kernel;
        match (what, socket) {
            (0, _) => {
                kernel.core.set_current(current(1 + host % 2));
                let server = SocketAddr::new(kernel.core.hosts.address(0, false), PORT);
                let made = on(kernel, |network| network.connect(server));
                self.sockets
                    .extend(made.iter().map(|id| (1 + host % 2, *id)));
                format!("{made:?}")
            }
            (1 | 2, _) => {
                kernel.core.set_current(current(0));
                let made = on(kernel, |network| network.accept(self.listener));
                self.sockets.extend(made.iter().map(|made| (0, made.0)));
                format!("{made:?}")
            }
            (3, Some((host, id))) if self.choices.below(3) == 0 => {
                kernel.core.set_current(current(host));
                on(kernel, |network| network.close(id));
                self.sockets.remove(nth);
                "closed".into()
            }
            (4, Some((host, id))) if self.choices.below(3) == 0 => {
                kernel.core.set_current(current(host));
                let shut_down = |network: &mut Network<'_>| {
                    // A source makes the call once.
                    let socket = network.table.tcp(id).expect("it is open");
                    (!socket.wants_fin).then(|| network.shut_down(id, Shutdown::Write))
                };
                format!("{:?}", on(kernel, shut_down))
            }
            (5, _) => {
                kernel.part(&[host], &[other], How::Cut);
                "cut".into()
            }
            (6, _) => {
                let how = [How::Held, How::Slow(20_000)][self.choices.below(2) as usize];
                kernel.part(&[host], &[other], how);
                format!("{how:?}")
            }
            (7..12, _) => {
                kernel.core.end_partings();
                "healed".into()
            }
            (12, _) if self.choices.below(4) == 0 => {
                kernel.network().reset_between(host, other);
                "reset".into()
            }
            (13, _) if self.choices.below(3) == 0 => {
                kernel.stop(self.processes[host], TraceEvent::PoweredOff);
                self.sockets.retain(|socket| socket.0 != host);
                self.processes[host] = kernel.core.start(host).0;
                kernel.core.set_current(Some(self.processes[host]));
                if host == 0 {
                    self.listener = listen(kernel);
                }
                "restarted".into()
            }
            (14, _) => {
                let loss = self.choices.below(3) as f64 * 0.1;
                let loss = Probability::new(loss).expect("a probability");
                kernel.core.links.change(None, |link| link.loss = loss);
                "lossy".into()
            }
            (38, Some((_, id))) => {
                let times = [
                    TcpOption::KeepIdle,
                    TcpOption::KeepInterval,
                    TcpOption::KeepCount,
                ];
                for option in times {
                    let value = 1 + self.choices.below(3) as u32;
                    let _ = on(kernel, |network| network.set_tcp(id, option, value));
                }
                let is_on = self.choices.below(4) > 0;
                format!(
                    "{:?}",
                    on(kernel, |network| network.set_keepalive(id, is_on))
                )
            }
            (39, Some((_, id))) => {
                let millis = self.choices.below(4) as u32 * 700;
                format!(
                    "{:?}",
                    on(kernel, |network| network.set_tcp(
                        id,
                        TcpOption::UserTimeout,
                        millis
                    ))
                )
            }
            (15.., Some((host, id))) => {
                kernel.core.set_current(current(host));
                let mut bytes = vec![0; len];
                match self.choices.below(2) {
                    0 => {
                        bytes.fill(len as u8);
                        let bytes = &[io::IoSlice::new(&bytes)];
                        let written = on(kernel, |network| network.write(id, bytes));
                        format!("{written:?}")
                    }
                    _ => {
                        let slice = &mut [io::IoSliceMut::new(&mut bytes)];
                        let read = on(kernel, |network| network.read(id, slice, false));
                        format!("{read:?} {:?}", digest(1, &bytes))
                    }
                }
            }
            _ => String::new(),
        }
    }
}

fn listen(kernel: &mut Kernel) -> u32 {
    let listener = on(kernel, |network| {
        network.listen(([0, 0, 0, 0], PORT).into(), 16)
    });
    listener.expect("the port is free")
}

/// Runs the script of a seed. Returns its observations, and the number of events in its world.
fn run(seed: u64, has_all_events: bool) -> (Vec<String>, u64) {
    let world = begin(seed, Setup::default());
    let seen = with(|kernel| {
        kernel.sockets.tcp.has_all_events = has_all_events;
        // With some of these the acknowledgement comes after the timer fires, or even the segment
        // itself.
        let most = Duration::from_millis([10, 130, 450][seed as usize % 3]);
        let latency = Latency::uniform(Duration::from_micros(50)..most);
        kernel
            .core
            .links
            .change(None, |link| link.latency = latency);
        let hosts = (0..HOSTS).map(|nth| kernel.core.add_host(&format!("host {nth}")));
        let hosts: Vec<usize> = hosts.collect();
        let processes: Vec<usize> = hosts
            .into_iter()
            .map(|host| kernel.core.start(host).0)
            .collect();
        kernel.core.set_current(Some(processes[0]));
        let listener = listen(kernel);
        let mut script = Script {
            kernel,
            choices: Stream::new(seed, "script", 0, 0),
            processes,
            listener,
            waits: 0,
            sockets: Vec::new(),
            log: Vec::new(),
        };
        (0..300).for_each(|_| script.run_one());
        let log = script.log;
        (log, kernel.core.report.trace.events)
    });
    drop(world);
    seen.expect("the world is here")
}

#[test]
fn what_is_left_out_of_the_queue_changes_nothing() {
    let (mut all, mut fewer, mut read) = (0, 0, 0);
    for seed in 0..600 {
        let (expected, events) = run(seed, true);
        let (seen, fewer_events) = run(seed, false);
        for (seen, expected) in seen.iter().zip(&expected) {
            assert_eq!(seen, expected, "seed {seed}");
        }
        read += seen.iter().filter(|line| line.contains("Ok(")).count();
        (all, fewer) = (all + events, fewer + fewer_events);
    }
    // The scripts do something, and there are events to leave out.
    assert!(read > 5_000, "{read} calls were answered");
    assert!(fewer < all - all / 50, "{fewer} events of {all}");
}

/// Advances until everything under way has arrived, for a second.
fn settle(kernel: &mut Kernel) {
    let until = kernel.core.time.now() + 1_000_000_000;
    while matches!(kernel.advance(until), Advanced::Happened(..)) {}
}

/// Runs a test with two hosts, each with a process and a listener.
fn two_hosts(test: impl FnOnce(&mut Kernel, [usize; 2], u32)) {
    let world = begin(1, Setup::default());
    with(|kernel| {
        let hosts = ["near", "far"].map(|name| kernel.core.add_host(name));
        let processes = hosts.map(|host| kernel.core.start(host).0);
        kernel.core.set_current(Some(processes[1]));
        let listener = listen(kernel);
        kernel.core.set_current(Some(processes[0]));
        test(kernel, processes, listener);
    });
    drop(world);
}

/// Connects from the first host to the other one, and returns both ends.
fn connect(kernel: &mut Kernel, processes: [usize; 2], listener: u32) -> [u32; 2] {
    let far = SocketAddr::new(kernel.core.hosts.address(1, false), PORT);
    kernel.core.set_current(Some(processes[0]));
    let near = on(kernel, |network| network.connect(far)).expect("a port is free");
    settle(kernel);
    kernel.core.set_current(Some(processes[1]));
    let (far, _) = on(kernel, |network| network.accept(listener)).expect("it has connected");
    kernel.core.set_current(Some(processes[0]));
    [near, far]
}

fn local(kernel: &mut Kernel, id: u32) -> SocketAddr {
    get(kernel, id).expect("it is there").local
}

/// Only the side that ends first keeps its addresses for a while.
#[test]
fn active_closer_keeps_addresses_time_wait() {
    for first in [0, 1] {
        two_hosts(|kernel, processes, listener| {
            let ends = connect(kernel, processes, listener);
            on(kernel, |network| network.close(ends[first]));
            settle(kernel);
            on(kernel, |network| network.close(ends[1 - first]));
            settle(kernel);
            assert!(get(kernel, ends[first]).is_ok(), "TIME_WAIT");
            assert!(get(kernel, ends[1 - first]).is_err());
            // If both close at the same moment, both stay.
            let ends = connect(kernel, processes, listener);
            ends.iter()
                .for_each(|id| on(kernel, |network| network.close(*id)));
            settle(kernel);
            assert!(ends.iter().all(|id| get(kernel, *id).is_ok()));
        });
    }
}

#[test]
fn a_port_is_taken_for_one_destination_only() {
    two_hosts(|kernel, processes, listener| {
        let [near, _] = connect(kernel, processes, listener);
        let port = local(kernel, near).port();
        let again = |kernel: &mut Kernel, to: SocketAddr| {
            kernel.core.hosts.set_next_port(0, port);
            let id = on(kernel, |network| network.connect(to)).expect("a port is free");
            local(kernel, id).port()
        };
        let (far, v6) = (
            kernel.core.hosts.address(1, false),
            kernel.core.hosts.address(1, true),
        );
        assert_ne!(again(kernel, SocketAddr::new(far, PORT)), port);
        assert_eq!(again(kernel, SocketAddr::new(far, PORT + 1)), port);
        assert_eq!(again(kernel, SocketAddr::new(v6, PORT)), port);
        // A listener gets no port that is in use.
        kernel.core.hosts.set_next_port(0, port);
        let any = SocketAddr::from(([0, 0, 0, 0], 0));
        let listener = on(kernel, |network| network.listen(any, 1)).expect("a port is free");
        let of_listener = local(kernel, listener).port();
        assert!(of_listener > port);
        // A connection does not start at a listener's port, or at that of a connection which it has
        // accepted.
        let to = SocketAddr::new(far, PORT + 2);
        kernel.core.hosts.set_next_port(0, of_listener);
        let id = on(kernel, |network| network.connect(to)).expect("a port is free");
        assert_ne!(local(kernel, id).port(), of_listener);
    });
}

/// A SYN at an address in TIME-WAIT begins a new connection.
#[test]
fn syn_to_time_wait_begins_new_connection() {
    two_hosts(|kernel, processes, listener| {
        let [near, far] = connect(kernel, processes, listener);
        let port = local(kernel, near).port();
        on(kernel, |network| network.close(far));
        settle(kernel);
        on(kernel, |network| network.close(near));
        settle(kernel);
        kernel.core.hosts.set_next_port(0, port);
        let [near, other] = connect(kernel, processes, listener);
        assert_eq!(local(kernel, near).port(), port);
        assert_ne!(other, far);
        assert!(kernel.network().finish_connect(near).is_ok());
    });
}

/// A call that would block is noted until one of its kind succeeds.
#[test]
fn would_block_noted_until_call_succeeds() {
    two_hosts(|kernel, processes, listener| {
        let [near, _] = connect(kernel, processes, listener);
        let mut bytes = [0; 9];
        let read = |network: &mut Network<'_>, bytes: &mut [u8]| {
            network.read(near, &mut [io::IoSliceMut::new(bytes)], false)
        };
        assert!(on(kernel, |network| read(network, &mut bytes)).is_err());
        let blocked = |kernel: &mut Kernel| get(kernel, near).unwrap().base.blocked;
        assert_eq!(blocked(kernel), READABLE);
        let buffer = [io::IoSlice::new(&[7; BUFFER + 1])];
        let written = on(kernel, |network| network.write(near, &buffer));
        assert_eq!((written.ok(), blocked(kernel)), (Some(BUFFER), READABLE));
        assert!(on(kernel, |network| network.write(near, &buffer)).is_err());
        assert_eq!(blocked(kernel), READABLE | WRITABLE);
        settle(kernel);
        let written = on(kernel, |network| network.write(near, &buffer));
        assert_eq!((written.ok(), blocked(kernel)), (Some(BUFFER), READABLE));
    });
}
