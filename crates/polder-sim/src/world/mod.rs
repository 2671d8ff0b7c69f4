//! The simulated kernel: serves a world's system calls in place of the operating system's kernel.
//!
//! It knows neither tasks nor runtimes, and calls nothing outside: workers that become ready are
//! put on a list (`Pollers`), from which the loop in `state.rs` takes the next one. So no
//! foreign code runs while the kernel is borrowed.
//!
//! A thread has at most one kernel at a time, in a thread-local. The modules above make their
//! requests here, those of sockets through a `SimSocket` (`handle.rs`).
//!
//! **Parts.** Each part has a type with its own state, in a separate file, and takes the others
//! that it needs as parameters, or borrows them, as [`Network`] does. A part knows only those below
//! it:
//!
//! * [`Core`], which all others use: [`time`], the queue of events, [`hosts`], [`processes`] and
//!   their [`pollers`], [`link`]s, [`faults`], and the [`report`];
//! * [`Sockets`], all in one table, and [`Network`], which makes the calls on them, and uses
//!   [`nat`]; [`names`]; [`disk_calls`]; `blocking`;
//! * [`Kernel`], which does what needs several of these: it ends processes and lets events happen.
//!   Its methods for one of these are in that one's file.
//!
//! **The way of a packet**, from a write to the read on another host:
//!
//! ```text
//! write: net's Socket::poll_write ► SimSocket::write (handle.rs) ► Network::write
//!        ► tcp: transmit ► send_segment: the link draws latency and loss
//!        ► the event of its arrival is queued
//! lost:  send_segment ► lose_segment ► arm_all: the sender's timer is queued ► Event::Retransmit
//!        ► timer_is_due ► retransmit ► as at first
//! loop:  State::run (state.rs): Kernel::next_step: is a worker ready? then it takes a step;
//!        if not, Kernel::advance ► take_event ► Links::pass: is the way open?
//! read:  segment_arrives ► take_bytes ► Core::raise ► Pollers::report: the worker is ready
//!        ► State::step ► WorkerOfKernel::turn ► the simulated poller reports the event
//!        ► Source::deliver ► the task runs ► Socket::poll_read ► Network::read
//! ```

pub(crate) mod address;

pub(crate) mod answers;

pub(crate) mod base;
pub(crate) mod blocking;

pub(crate) mod bytes;

pub(crate) mod choice;

pub(crate) mod claims;

pub(crate) mod clock;

pub(crate) mod core;

pub(crate) mod coverage;

pub(crate) mod disk_calls;

pub(crate) mod edges;

pub(crate) mod errno;

pub(crate) mod event_queue;

pub(crate) mod fact;

pub(crate) mod faults;

pub(crate) mod foreign;

pub(crate) mod forks;

pub(crate) mod handle;

pub(crate) mod host_faults;

pub(crate) mod hosts;

pub(crate) mod inbox;

pub(crate) mod latency;

pub(crate) mod link;

pub(crate) mod listeners;

pub(crate) mod lock;
pub(crate) mod names;

pub(crate) mod nat;

pub(crate) mod options;

pub(crate) mod order;

pub(crate) mod panics;

pub(crate) mod parting;

pub(crate) mod pollers;

pub(crate) mod ports;

pub(crate) mod processes;

pub(crate) mod progress;

pub(crate) mod registrations;

pub(crate) mod report;

pub(crate) mod schedule;

pub(crate) mod seconds;
pub(crate) mod signals;

pub(crate) mod sockets;

pub(crate) mod step;

pub(crate) mod table;

pub(crate) mod tcp;

pub(crate) mod time;

pub(crate) mod trace;

pub(crate) mod udp;
// Elsewhere nothing makes such a socket.
#[cfg_attr(not(unix), allow(dead_code))]
pub(crate) mod unix;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::world::core::Core;
use crate::world::errno::Errno;
use crate::world::event_queue::{Event, Events, PendingCall, Place};
use crate::world::fact::Fact;
use crate::world::faults::{Faults, Kept, Kind};
use crate::world::forks::{Forks, Pending};
use crate::world::host_faults::FaultsOfHosts;
use crate::world::hosts::Hosts;
use crate::world::link::{Links, Passage};
use crate::world::order::Order;
use crate::world::pollers::Pollers;
use crate::world::processes::{PauseId, Processes};
use crate::world::progress::Call;
use crate::world::report::Report;
use crate::world::sockets::{Network, Sockets};
use crate::world::time::{Time, is_here};
use crate::world::trace::{Comparison, Trace};

pub(crate) struct Kernel {
    pub(crate) core: Core,
    sockets: Sockets,
    pub(crate) names: names::Names,
    pub(crate) disks: disk_calls::Disks,
    pub(crate) blocking: blocking::Calls,
    /// The lowest number of an action that was not called off.
    first_chaos: u64,
}

/// The time, and the poller of the worker that runs next, if any is ready.
pub(crate) type NextStep = (u64, Option<usize>);

/// An event that the kernel leaves to the world, which performs it before anything else runs.
pub(crate) enum Due {
    Call(PendingCall),
    /// The action of chaos with this number.
    Chaos(u64),
}

/// The result of letting time pass.
pub(crate) enum Advance {
    /// An event has happened: its time, and what the world has to run.
    Happened(u64, Option<Due>),
    /// The next event is at this time, which is after the limit.
    Late(u64),
    /// No event will ever happen.
    Never,
}

thread_local! {
    /// [`InWorld`] drops it: so the thread-local has no destructor, and accesses need not check for
    /// one.
    static KERNEL: RefCell<ManuallyDrop<Option<Box<Kernel>>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };
}

/// Calls `f` with this thread's kernel, if there is one. `f` must not run foreign code.
pub(crate) fn with<R>(f: impl FnOnce(&mut Kernel) -> R) -> Option<R> {
    KERNEL.with(|kernel| kernel.borrow_mut().as_deref_mut().map(f))
}

/// As [`with`].
///
/// # Panics
///
/// If the thread is in no world: a handle has outlived it.
pub(crate) fn kernel<R>(f: impl FnOnce(&mut Kernel) -> R) -> R {
    with(f).expect("polder_sim: this world has ended")
}

/// As [`with`], if that is the kernel of the world of this number.
fn with_world<R>(world: u32, f: impl FnOnce(&mut Kernel) -> R) -> Option<R> {
    with(|kernel| (kernel.core.world == world).then(|| f(kernel))).flatten()
}

/// Returns the earliest time of the world at which the current host's clock may have shown `at`, or
/// the latest one. Outside of a host that is `at` itself.
pub(crate) fn world_time(at: Instant, is_last: bool) -> Instant {
    let time = with(|kernel| {
        let host = kernel.core.processes.current_host()?;
        Some(kernel.core.time.world_time(host, at, is_last))
    });
    time.flatten().unwrap_or(at)
}

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

/// How a run differs from that of its seed alone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Variation {
    pub(crate) forks: Arc<Forks>,
    /// The faults that may happen, if others are left out.
    pub(crate) kept: Option<Kept>,
    pub(crate) simpler: Simpler,
    /// The time at which the run is stopped, to be looked at.
    pub(crate) until: Option<u64>,
    /// The first choices of a run that is one of all: see [`schedule`].
    pub(crate) chosen: Arc<[u32]>,
}

/// The configuration of a world.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) comparison: Comparison,
    pub(crate) variation: Variation,
    /// Whether the run notes its features.
    pub(crate) covers: bool,
    /// The number of events, if more of them is kept, for a picture.
    pub(crate) records: Option<u64>,
    /// Whether panics are not printed, as the same one was printed before.
    pub(crate) is_quiet: bool,
    /// Whether each event is printed as it happens.
    pub(crate) logs: bool,
    /// The failure that this run reproduces, reported if the run never ends.
    pub(crate) found: Option<Arc<str>>,
}

impl Setup {
    /// Returns the setup of a run that prints no panics.
    pub(crate) fn quiet(variation: Variation) -> Setup {
        Setup {
            is_quiet: true,
            variation,
            ..Setup::default()
        }
    }

    fn core(self, seed: u64) -> Core {
        static WORLDS: AtomicU32 = AtomicU32::new(0);
        let variation = self.variation;
        let simpler = &variation.simpler;
        let order = if simpler.is_fifo {
            Order::Fifo
        } else {
            Order::Random
        };
        Core {
            world: WORLDS.fetch_add(1, Ordering::Relaxed),
            seed,
            time: Time::begin(),
            events: Events::default(),
            hosts: Hosts::default(),
            processes: Processes::default(),
            pollers: Pollers::new(seed, order, simpler.is_fifo),
            links: Links::new(seed, simpler.is_even),
            faults: Faults::new(variation.kept),
            host_faults: FaultsOfHosts::default(),
            report: Report::new(
                Trace::new(self.comparison, self.records.is_some()),
                self.logs.then_some(seed),
                self.covers,
            ),
            forks: Pending::begin(&variation.forks),
            chosen: variation.chosen,
            schedule: None,
            is_calm: false,
        }
    }
}

/// Begins a world on this thread. The world ends when the result is dropped.
pub(crate) fn begin(seed: u64, setup: Setup) -> InWorld {
    assert!(!is_here(), "polder_sim: this thread is in a world already");
    // From here on the world answers the C library's calls, if the program has enabled that. This
    // includes the reading of the clock below, which is then the same in every world.
    answers::begin(seed);
    let kernel = Kernel {
        core: setup.core(seed),
        sockets: Sockets::default(),
        names: names::Names::new(seed),
        disks: disk_calls::Disks::default(),
        blocking: blocking::Calls::default(),
        first_chaos: 0,
    };
    KERNEL.set(ManuallyDrop::new(Some(Box::new(kernel))));
    InWorld(())
}

/// Keeps this thread in a world until it is dropped.
pub(crate) struct InWorld(());

impl Drop for InWorld {
    fn drop(&mut self) {
        let kernel = ManuallyDrop::into_inner(KERNEL.replace(ManuallyDrop::new(None)));
        time::end();
        drop(kernel);
        // The thread may enter another world.
        panics::forget();
        choice::set_salt(0);
        answers::end();
    }
}

impl Kernel {
    pub(crate) fn network(&mut self) -> Network<'_> {
        self.sockets.network(&mut self.core)
    }
}

/// What the loop in `state.rs` calls.
impl Kernel {
    /// Returns what the loop does next. `None` if the run is over: it has diverged, or has failed,
    /// which it does here if another thread has woken a task. A test that `is_done` has no more
    /// choices.
    pub(crate) fn next_step(&mut self, is_done: bool) -> Option<NextStep> {
        let core = &mut self.core;
        time::restart_readings();
        if core.report.is_over() {
            return None;
        }
        if core.pollers.were_woken_from_elsewhere() {
            let reason = "a task was woken by another thread: a world has one thread, and what \
                          others do comes at another moment each time";
            core.report.fail(reason.into(), None, reason.into());
            return None;
        }
        let (now, processes) = (core.time.now(), &core.processes);
        if core.schedule.is_some() && !is_done {
            return self.choose_step(now);
        }
        let is_paused = |host| processes.is_paused(host);
        let is_paused = (!processes.pauses.is_empty()).then_some(is_paused);
        Some((now, core.pollers.next(is_paused)))
    }

    /// Lets the next event happen, unless it is later than `latest`. Call this only when no worker
    /// can run.
    pub(crate) fn advance(&mut self, latest: u64) -> Advance {
        let is_scheduled = self.core.schedule.is_some();
        let is_chosen = is_scheduled && self.core.events.has_forward();
        match self.next_event() {
            next if is_chosen
                && !next.is_some_and(|(_, place)| self.core.events.is_forward(place)) =>
            {
                // A timer that was chosen, and does not matter any more.
                Advance::Happened(self.core.time.now(), None)
            }
            None => Advance::Never,
            Some((at, _)) if at > latest => Advance::Late(at),
            Some((at, first)) => {
                let place = if is_scheduled && !is_chosen {
                    self.choose_event(at)
                } else {
                    Some(first)
                };
                Advance::Happened(at, place.and_then(|place| self.take_event(place)))
            }
        }
    }

    /// Returns whether nothing would ever happen without the code that runs now.
    pub(crate) fn is_at_rest(&mut self) -> bool {
        self.core.pollers.are_idle() && self.next_event().is_none()
    }

    /// Returns when the next event happens, and where it is. Owed acknowledgements are sent before,
    /// and events that have no effect any more are dropped.
    fn next_event(&mut self) -> Option<(u64, Place)> {
        let first = self.first_chaos;
        let mut network = self.network();
        network.acknowledge_all();
        loop {
            let (at, event, place) = network.core.events.first()?;
            let is_due = match *event {
                Event::Retransmit(id) => network.timer_is_due(id, at),
                Event::Keepalive(_) if network.is_kept_alive_only() => return None,
                Event::Keepalive(id) => network.keepalive_is_due(id, at),
                Event::Deadline(poller) => {
                    let core = &mut *network.core;
                    core.pollers.is_due(poller, at, &mut core.events)
                }
                Event::Chaos(number) => number >= first,
                // These are always due.
                _ => true,
            };
            if is_due {
                return Some((at, place));
            }
            network.core.events.take(place);
        }
    }

    /// Lets an event happen that [`next_event`](Self::next_event) has just returned. Returns what
    /// is due, if the event is that.
    #[must_use]
    fn take_event(&mut self, place: Place) -> Option<Due> {
        let (at, event) = self.core.events.take(place)?;
        self.core.set_now(at);
        let mut network = self.network();
        network.forget_ended();
        match event {
            Event::Segment(segment) => match network.core.pass(segment.way()) {
                Passage::Lost => network.lose_segment(segment),
                Passage::Held => {
                    network.arm_all(&segment);
                    let held = (segment.way(), Event::Segment(segment));
                    network.core.links.held.push(held);
                }
                Passage::Arrives => network.segment_arrives(segment),
            },
            Event::Datagram(datagram) => match network.core.pass(datagram.way()) {
                Passage::Lost => udp::socket::lose(&datagram, network.core),
                Passage::Held => {
                    let held = (datagram.way(), Event::Datagram(datagram));
                    network.core.links.held.push(held);
                }
                Passage::Arrives => network.datagram_arrives(*datagram),
            },
            Event::Retransmit(id) => network.retransmit(id),
            Event::Keepalive(id) => network.keep_alive(id),
            Event::Unreachable(id) => network.hear_of_router(id),
            Event::Deadline(poller) => self.core.pollers.fire(poller),
            Event::Chaos(number) => return Some(Due::Chaos(number)),
            Event::Blocking(call) => {
                return self.blocking.begin(*call, &self.core).map(Due::Call);
            }
        }
        None
    }

    /// Begins to drop the remains of a process. The code runs as the process's; `is_killed` means
    /// that the process was killed.
    pub(crate) fn begin_drop(&mut self, process: usize, is_killed: bool) {
        self.core.set_current(Some(process));
        self.core.report.panics.drops_killed = is_killed;
        self.core.calls(Call::Drop);
    }

    pub(crate) fn end_drop(&mut self) {
        self.core.report.panics.drops_killed = false;
        self.core.set_current(None);
    }
}

/// Processes and their hosts.
impl Kernel {
    /// Takes `count` descriptors for a call of the running process, if that many are left.
    fn take_descriptors(&mut self, count: usize) -> io::Result<()> {
        let (host, process) = self.core.processes.here()?;
        let is_exhausted = self.core.fault_comes(host, Kind::Exhausted);
        let limit = self.core.host_faults.descriptors(host);
        let is_full = limit.is_some_and(|limit| {
            let own = self.disks.find(host);
            let files = own.map_or(0, |own| own.disk.count_open(process));
            files + self.network().open(process, host).len() + count > limit
        });
        if is_exhausted || is_full {
            Err(Errno::MFILE.into())
        } else {
            Ok(())
        }
    }

    /// Ends a process: the kernel closes its sockets, or, without power, forgets them silently.
    pub(crate) fn stop(&mut self, process: usize, what: Fact) {
        let core = &mut self.core;
        if !core.processes.end(process) {
            return;
        }
        let host = core.processes.host_of(process);
        core.pollers
            .end(process, core.processes.pollers_of(process));
        core.note(host, what);
        if let Some(own) = self.disks.find(host) {
            own.disk.close_all(process);
        }
        let has_power = what != Fact::PoweredOff;
        self.network().close_all(process, host, has_power);
        if !has_power {
            self.power_off(host);
        }
    }

    /// Powers a host off: its connections and listeners are forgotten.
    pub(crate) fn power_off(&mut self, host: usize) {
        self.core.hosts.set_up(host, false);
        self.network().forget_all(host);
    }

    /// Pauses a process with all of its machine: its monotonic clock stands still, its kernel does
    /// nothing, and its network card is off.
    pub(crate) fn suspend(&mut self, host: usize) -> PauseId {
        self.network().settle_all();
        let core = &mut self.core;
        core.note(host, Fact::Suspended);
        let id = core.processes.pause(host);
        if core.links.partings.suspend(id, host) {
            core.time.suspend(host);
            core.follow_clock(host);
        }
        self.network().warn_peers(host);
        id
    }

    /// Ends a pause or a suspension, unless [`heal_all`](Self::heal_all) has ended it.
    pub(crate) fn resume(&mut self, id: PauseId) {
        if let Some(host) = self.core.processes.end_pause(id) {
            let is_paused = self.core.processes.is_paused(host);
            if !is_paused {
                self.core.note(host, Fact::Resumed);
            }
            if self.end_suspension(id) && is_paused {
                self.core.note(host, Fact::Paused);
            }
            self.blocking.resume(&mut self.core);
        }
    }

    /// Ends a suspension, if this pause is one. Returns whether it was the machine's last one.
    fn end_suspension(&mut self, id: PauseId) -> bool {
        let core = &mut self.core;
        let resumed = core.links.partings.resume(id);
        if let Some(host) = resumed {
            let asleep = core.time.resume(host);
            core.follow_clock(host);
            core.deliver_held();
            self.network().postpone_timers(host, asleep);
        }
        resumed.is_some()
    }
}

/// The network and its faults.
impl Kernel {
    /// Calls off all actions of chaos with a number below this one.
    pub(crate) fn call_off_chaos(&mut self, first: u64) {
        self.first_chaos = first;
    }

    /// Ends all cuts, holds, pauses and suspensions, and the random faults of hosts and names.
    pub(crate) fn heal_all(&mut self) {
        self.core.note(0, Fact::Quiet);
        while let Some(id) = self.core.links.partings.last_suspension() {
            self.end_suspension(id);
        }
        let core = &mut self.core;
        core.end_partings();
        core.processes.pauses.clear();
        self.blocking.resume(core);
        self.names.heal();
        core.report.sites.are_off = true;
        core.heal_hosts();
    }

    /// Makes the world calm from now on: no random faults, each duration is its mean, and ready
    /// workers and tasks run first in, first out.
    pub(crate) fn be_calm(&mut self) {
        let core = &mut self.core;
        core.faults.is_off = true;
        core.links.is_even = true;
        core.is_calm = true;
        core.set_order(Order::Fifo);
        core.pollers.keeps_order = true;
    }
}
