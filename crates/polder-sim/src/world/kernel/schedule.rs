//! What a run that is one of all does next: a worker that is ready, or an event that is due.

use super::{Kernel, NextStep};
use crate::world::event_queue::{Event, Place};
use crate::world::hosts::TEST;
use crate::world::schedule::{Action, Schedule, Transition};

impl Kernel {
    /// Makes this one of all runs, of which there are at most `limit`: from now on it makes the
    /// choices that it was given, and nothing is random. If it is that already, the lower limit
    /// counts.
    pub(crate) fn try_all(&mut self, limit: usize) {
        self.be_calm();
        let given = self.core.chosen.clone();
        let new = || Box::new(Schedule::new(limit, given));
        let schedule = self.core.schedule.get_or_insert_with(new);
        schedule.limit = schedule.limit.min(limit);
    }

    /// Notes that processes share a history.
    pub(crate) fn share_history(&mut self) {
        if let Some(schedule) = &mut self.core.schedule {
            schedule.share();
        }
    }

    /// Returns what the schedule has next: a worker that is ready, or an event at this moment.
    pub(in crate::world) fn choose_step(&mut self, now: u64) -> Option<NextStep> {
        let core = &self.core;
        let schedule = core.schedule.as_ref();
        if schedule.is_some_and(|schedule| schedule.is_covered) {
            return None;
        }
        let may_run = |poller: &usize| !core.processes.is_paused(core.pollers.host_of(*poller));
        let ready: Vec<usize> = core.pollers.ready().filter(may_run).collect();
        if ready.is_empty() {
            return Some((now, None));
        }
        let due = self.events_at(now);
        let core = &mut self.core;
        let run = |poller: &usize| Transition {
            host: core.pollers.host_of(*poller),
            action: Action::Run(*poller),
        };
        let arrive = due.iter().map(|(_, transition)| *transition);
        let possible: Vec<Transition> = ready.iter().map(run).chain(arrive).collect();
        let schedule = core.schedule.as_mut();
        let place = schedule.and_then(|schedule| schedule.choose_transition(&possible))?;
        let chosen = ready.get(place).copied();
        match chosen {
            Some(poller) => core.pollers.take_ready(poller),
            None => core.events.bring_forward(due[place - ready.len()].0),
        }
        Some((now, chosen))
    }

    /// Returns the place of the event that the schedule has next, at the time `at` of the first
    /// one. `None` if it does not matter any more, or if other runs cover all of them.
    pub(in crate::world) fn choose_event(&mut self, at: u64) -> Option<Place> {
        let due = self.events_at(at);
        let possible: Vec<Transition> = due.iter().map(|(_, transition)| *transition).collect();
        let place = (self.core.schedule.as_mut())?.choose_transition(&possible)?;
        self.core.events.bring_forward(due[place].0);
        let (_, place) = self.next_event()?;
        self.core.events.is_forward(place).then_some(place)
    }

    /// Returns the events at this time, with the number of each: of equal ones the first.
    fn events_at(&mut self, at: u64) -> Vec<(u64, Transition)> {
        let is_at_rest = self.network().is_kept_alive_only();
        let (core, table) = (&self.core, &mut self.sockets.table);
        let mut all: Vec<(u64, Transition)> = Vec::new();
        for (number, event) in core.events.at(at) {
            let mut host_of = |id| table.base(id).map_or(TEST, |base| base.host);
            let (host, action) = match event {
                Event::Segment(segment) => {
                    let (from, to) = segment.addresses();
                    (segment.way().1, Action::Segment(from, to))
                }
                Event::Datagram(datagram) => {
                    let (_, to) = datagram.way();
                    (to, Action::Datagram(datagram.from.1, datagram.to.1))
                }
                Event::Retransmit(id) => (host_of(*id), Action::Retransmit(*id)),
                Event::Keepalive(_) if is_at_rest => continue,
                Event::Keepalive(id) => (host_of(*id), Action::Keepalive(*id)),
                Event::Unreachable(id) => (host_of(*id), Action::Unreachable(*id)),
                Event::Deadline(poller) => {
                    (core.pollers.host_of(*poller), Action::Deadline(*poller))
                }
                Event::Blocking(call) => {
                    let host = core.processes.host_of(call.process);
                    (host, Action::Blocking(number))
                }
                Event::Chaos(_) => (TEST, Action::Chaos),
            };
            let transition = Transition { host, action };
            if all.iter().all(|(_, other)| *other != transition) {
                all.push((number, transition));
            }
        }
        all
    }
}
