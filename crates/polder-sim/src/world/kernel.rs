//! [`Kernel`]: all parts of a world, and what needs several of them: it ends processes and lets
//! events happen.

mod partings;
mod schedule;

use std::io;

use super::core::Core;
use super::errno::Errno;
use super::event_queue::{Event, PendingCall, Place};
use super::faults::Kind;
use super::link::Delivery;
use super::order::Order;
use super::processes::PauseId;
use super::progress::Call;
use super::sockets::{Network, Sockets};
use super::trace_event::TraceEvent;
use super::udp::socket::lose;
use super::{blocking, disk_calls, names, time};

pub(crate) struct Kernel {
    pub(crate) core: Core,
    pub(super) sockets: Sockets,
    pub(crate) names: names::Names,
    pub(crate) disks: disk_calls::Disks,
    pub(crate) blocking: blocking::Calls,
    /// The lowest number of an action that was not called off.
    pub(super) first_chaos: u64,
}

/// The time, and the poller of the worker that runs next, if any is ready.
pub(crate) type NextStep = (u64, Option<usize>);

/// An event that the kernel leaves to the world, which performs it before anything else runs.
pub(crate) enum WorldAction {
    Call(PendingCall),
    /// The action of chaos with this number.
    Chaos(u64),
}

/// The result of letting time pass.
pub(crate) enum Advanced {
    /// An event has happened: its time, and what the world has to run.
    Happened(u64, Option<WorldAction>),
    /// The next event is at this time, which is after the limit.
    Late(u64),
    /// No event will ever happen.
    Never,
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
    pub(crate) fn advance(&mut self, latest: u64) -> Advanced {
        let is_scheduled = self.core.schedule.is_some();
        let is_chosen = is_scheduled && self.core.events.has_forward();
        match self.next_event() {
            next if is_chosen
                && !next.is_some_and(|(_, place)| self.core.events.is_forward(place)) =>
            {
                // A timer that was chosen, and does not matter any more.
                Advanced::Happened(self.core.time.now(), None)
            }
            None => Advanced::Never,
            Some((at, _)) if at > latest => Advanced::Late(at),
            Some((at, first)) => {
                let place = if is_scheduled && !is_chosen {
                    self.choose_event(at)
                } else {
                    Some(first)
                };
                Advanced::Happened(at, place.and_then(|place| self.take_event(place)))
            }
        }
    }

    /// Returns whether nothing would ever happen without the code that runs now.
    pub(crate) fn is_at_rest(&mut self) -> bool {
        self.core.pollers.are_idle() && self.next_event().is_none()
    }

    /// Returns when the next event happens, and where it is. Owed acknowledgements are sent before,
    /// and events that have no effect any more are dropped.
    pub(super) fn next_event(&mut self) -> Option<(u64, Place)> {
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
    fn take_event(&mut self, place: Place) -> Option<WorldAction> {
        let (at, event) = self.core.events.take(place)?;
        self.core.set_now(at);
        let mut network = self.network();
        network.forget_ended();
        match event {
            Event::Segment(segment) => match network.core.pass(segment.way()) {
                Delivery::Lost => network.lose_segment(segment),
                Delivery::Held => {
                    network.arm_all(&segment);
                    let held = (segment.way(), Event::Segment(segment));
                    network.core.links.held.push(held);
                }
                Delivery::Arrives => network.segment_arrives(segment),
            },
            Event::Datagram(datagram) => match network.core.pass(datagram.way()) {
                Delivery::Lost => lose(&datagram, network.core),
                Delivery::Held => {
                    let held = (datagram.way(), Event::Datagram(datagram));
                    network.core.links.held.push(held);
                }
                Delivery::Arrives => network.datagram_arrives(*datagram),
            },
            Event::Retransmit(id) => network.retransmit(id),
            Event::Keepalive(id) => network.keep_alive(id),
            Event::Unreachable(id) => network.hear_of_router(id),
            Event::Deadline(poller) => self.core.pollers.fire(poller),
            Event::Chaos(number) => return Some(WorldAction::Chaos(number)),
            Event::Blocking(call) => {
                return self
                    .blocking
                    .begin(*call, &self.core)
                    .map(WorldAction::Call);
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
    pub(super) fn take_descriptors(&mut self, count: usize) -> io::Result<()> {
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
    pub(crate) fn stop(&mut self, process: usize, what: TraceEvent) {
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
        let has_power = what != TraceEvent::PoweredOff;
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
        core.note(host, TraceEvent::Suspended);
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
                self.core.note(host, TraceEvent::Resumed);
            }
            if self.end_suspension(id) && is_paused {
                self.core.note(host, TraceEvent::Paused);
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
        self.core.note(0, TraceEvent::Quiet);
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
