//! [`Core`]: the parts of a world that all sockets, disks and names use: time and its events, hosts
//! and their processes, links, faults, and the report.
//!
//! Each part has its own state, methods and tests. `Core` itself has only what needs several of
//! them: to note an event takes the time, the trace and the hosts' names. The parts above pass it
//! down as a parameter, and it knows none of them.

mod faults;
mod partings;

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use polder::kernel::{CLOSED, ERROR, READABLE, WRITABLE};

use super::answers;
use super::base::Base;
use super::choice::Probability;
use super::event;
use super::event_queue::{Event, Events};
use super::faults::{Faults, Kind};
use super::forks::Pending;
use super::host_faults::FaultsOfHosts;
use super::hosts::{Excess, Hosts, NOBODY, TEST};
use super::link::{Delivery, Links};
use super::order::{Order, Queue};
use super::pollers::{PollerOfWorker, Pollers};
use super::processes::{PauseId, Processes};
use super::progress::Call;
use super::report::Report;
use super::schedule::Schedule;
use super::setup::Setup;
use super::time::{self, Time};
use super::trace::{self, Message, Trace};
use super::trace_event::{TraceEvent, digest};

pub(crate) struct Core {
    /// The number of the world, by which its handles find it.
    pub(super) world: u32,
    pub(crate) seed: u64,
    pub(crate) time: Time,
    pub(super) events: Events,
    pub(crate) hosts: Hosts,
    pub(crate) processes: Processes,
    pub(crate) pollers: Pollers,
    pub(crate) links: Links,
    pub(crate) faults: Faults,
    pub(crate) host_faults: FaultsOfHosts,
    pub(crate) report: Report,
    /// The forks that are still to come.
    pub(super) forks: Pending,
    /// The first choices of a schedule, if the test asks for one.
    pub(crate) chosen: Arc<[u32]>,
    /// Makes the choices, if all orders are tried.
    pub(crate) schedule: Option<Box<Schedule>>,
    /// Whether each duration is its mean.
    pub(crate) is_calm: bool,
}

impl Core {
    /// Begins the parts of a world.
    pub(super) fn new(seed: u64, setup: Setup) -> Core {
        static WORLDS: AtomicU32 = AtomicU32::new(0);
        let config = setup.config;
        let simplification = &config.simplification;
        let order = if simplification.is_fifo {
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
            pollers: Pollers::new(seed, order, simplification.is_fifo),
            links: Links::new(seed, simplification.is_even),
            faults: Faults::new(config.kept),
            host_faults: FaultsOfHosts::default(),
            report: Report::new(
                Trace::new(setup.comparison, setup.records.is_some()),
                setup.logs.then_some(seed),
                setup.covers,
            ),
            forks: Pending::begin(&config.forks),
            chosen: config.chosen,
            schedule: None,
            is_calm: false,
        }
    }

    pub(crate) fn add_host(&mut self, name: &str) -> usize {
        let known = self.hosts.find(name);
        known.unwrap_or_else(|| self.hosts.add(name))
    }

    /// Powers a host on, if it is off. Returns whether it was. The messages that it has sent to
    /// itself are of its life before.
    pub(crate) fn power_on(&mut self, host: usize) -> bool {
        let was_off = !self.hosts.is_up(host);
        if was_off {
            self.events.forget_own(host);
            self.links.held.retain(|(way, _)| *way != (host, host));
            self.hosts.set_up(host, true);
        }
        was_off
    }

    /// Starts a process on a host, and powers the host on. Returns its number, and its pollers.
    pub(crate) fn start(&mut self, host: usize) -> (usize, Vec<PollerOfWorker>) {
        self.power_on(host);
        let process = self.processes.count();
        let pool = match self.processes.workers(host) {
            1 => 0,
            several => several,
        };
        let pollers = self.pollers.add(self.seed, process, host, pool);
        let queue = || Queue::new(self.seed, "injected", process, self.pollers.order);
        let injected = (pool > 0).then(|| Box::new(queue()));
        self.processes.add(host, pollers.clone(), injected);
        self.note(host, TraceEvent::Started);
        let handle = |number| self.pollers.handle(self.world, number);
        (process, pollers.map(handle).collect())
    }

    /// Notes that the main worker of a process is about to run foreign code, or that none is.
    pub(crate) fn set_current(&mut self, process: Option<usize>) {
        let main = process.map(|process| self.processes.pollers_of(process).end - 1);
        self.set_current_poller(main);
    }

    /// Notes that the worker with this poller is about to run foreign code, or that none is.
    pub(crate) fn set_current_poller(&mut self, poller: Option<usize>) {
        time::restart_readings();
        self.processes.current = poller.map(|poller| self.pollers.process_of(poller));
        self.pollers.current = poller.unwrap_or_default();
        self.show_time();
        answers::next_step();
    }

    /// Makes this thread read the clock of a process between two steps. No foreign code runs, so
    /// this is not a step either.
    pub(crate) fn look_as(&mut self, process: Option<usize>) {
        self.processes.current = process;
        self.show_time();
    }

    /// Returns the current host's name.
    pub(crate) fn current_host(&self) -> &str {
        let host = self.processes.current_host();
        self.hosts.name(host.unwrap_or(NOBODY))
    }

    /// Notes that a task is polled.
    pub(crate) fn note_poll(&mut self, task: u64, site: &'static Location<'static>) {
        self.calls(Call::Poll);
        let host = self.processes.current_host().unwrap_or(NOBODY);
        self.note(host, TraceEvent::Polled(task, site));
    }

    /// Chooses the next of `count` ready tasks of the running worker. `ready` gives their ids.
    pub(crate) fn choose_task(
        &mut self,
        count: usize,
        ready: impl Iterator<Item = u64> + Clone,
    ) -> usize {
        match &mut self.schedule {
            _ if self.processes.current.is_none() => 0,
            Some(schedule) => schedule.choose(count),
            None => self.pollers.choose_task(count, ready),
        }
    }

    /// Chooses the next of the tasks that no pool worker of the running process has taken yet.
    /// `ready` gives their ids.
    pub(crate) fn choose_injected(
        &mut self,
        count: usize,
        ready: impl Iterator<Item = u64> + Clone,
    ) -> usize {
        match &mut self.schedule {
            Some(schedule) => schedule.choose(count),
            None => self.processes.choose_injected(count, ready),
        }
    }

    /// Notes whether a condition was met, for tests that require it to be met in some world.
    pub(crate) fn note_sometimes(&mut self, name: &str, is_so: bool) {
        self.report.note_sometimes(name, is_so);
        self.cover_state(name, is_so.into());
    }

    /// Counts a datagram of `bytes` bytes, or a connect. Fails the run if a host does this too
    /// often without time passing, before the messages under way use up the memory. Returns whether
    /// the limit is kept.
    pub(super) fn count_sent(&mut self, host: usize, bytes: usize) -> bool {
        let excess = self.hosts.count_sent(host, bytes, self.time.now());
        self.fail_by(excess)
    }

    /// Counts a connect, and fails the run if a host connects too often.
    pub(super) fn count_connect(&mut self, host: usize) {
        let excess = self.hosts.count_connect(host, self.time.now());
        self.fail_by(excess);
    }

    /// Counts a datagram, and fails the run if a host sends too many.
    pub(super) fn count_datagram(&mut self, host: usize) {
        let excess = self.hosts.count_datagram(host, self.time.now());
        self.fail_by(excess);
    }

    /// Fails the run because a limit is exceeded. Returns whether it is kept.
    fn fail_by(&mut self, excess: Option<Excess>) -> bool {
        let is_kept = excess.is_none();
        if let Some(Excess { cause, reason }) = excess {
            self.report.fail(cause, None, reason);
        }
        is_kept
    }

    /// Notes that foreign code is about to be called.
    pub(crate) fn calls(&self, call: Call) {
        let process = self.processes.current;
        self.report.progress.begin(process, call, self.time.now());
    }

    #[inline(always)]
    pub(crate) fn note(&mut self, host: usize, what: TraceEvent) {
        self.note_of_weight(host, what, trace::weight(what));
    }

    fn note_of_weight(&mut self, host: usize, what: TraceEvent, weight: u64) {
        if !(self.report.trace).note(self.time.now(), host, what, weight) {
            let is_in_process = self.processes.current.is_some();
            let event = (self.time.now(), host, what);
            self.report.trace.diverge(event, is_in_process);
        }
        if let Some(coverage) = &mut self.report.coverage {
            coverage.note(self.time.now(), host, what);
        }
        if self.report.is_observed() {
            self.observe(host, what);
        }
    }

    /// Notes a state of the program, if the run notes what it covers.
    pub(crate) fn cover_state(&mut self, name: &str, state: u64) {
        if let Some(coverage) = &mut self.report.coverage {
            coverage.state(self.time.now(), digest(0, name.as_bytes()), state);
        }
    }

    /// Returns whether the running process performs its operation of this number, which counts as a
    /// fault that can be left out.
    pub(crate) fn begin_operation(&mut self, workload: u32, name: &'static str, nth: u64) -> bool {
        let Some(host) = self.processes.current_host() else {
            return false;
        };
        let id = (Kind::Operation, host as u32, workload, nth);
        let begins = (self.faults).allow_one(id, self.time.now(), || name.to_owned());
        if begins {
            self.note(host, TraceEvent::Operation(name));
        }
        begins
    }

    #[cold]
    fn observe(&mut self, host: usize, what: TraceEvent) {
        let words = what.words_alone(|host| self.hosts.name(host));
        self.observe_words(host, words);
    }

    fn observe_words(&mut self, host: usize, words: String) {
        self.report.observe(event::Event {
            time: Duration::from_nanos(self.time.now()),
            host: self.hosts.name(host).to_owned(),
            words,
        });
    }

    /// Notes that the running process has woken a task of this poller's worker. If the two are on
    /// different hosts, the wake-up has bypassed the network, which is impossible in reality. The
    /// test is exempt.
    #[inline]
    pub(super) fn woken_by_current(&mut self, poller: usize) {
        if let Some(by) = self.processes.current_host() {
            let of = self.pollers.host_of(poller);
            if by != of && by != TEST && of != TEST {
                self.note_shortcut(by, of);
            }
        }
    }

    #[cold]
    fn note_shortcut(&mut self, by: usize, of: usize) {
        // At its end the world drops everything, in any order.
        let is_new = self.hosts.is_up(of) && self.report.note_shortcut(by, of, self.time.now());
        if is_new && self.report.is_observed() {
            let words = format!("wakes a task of {} directly", self.hosts.name(of));
            self.observe_words(by, words);
        }
    }

    pub(crate) fn set_now(&mut self, at: u64) {
        self.time.pass(at);
        self.forks.pass(at);
        self.show_time();
    }

    /// Makes this thread read the current host's clock.
    #[inline]
    fn show_time(&mut self) {
        self.time.show(|| self.processes.current_host());
    }

    /// Sets a host's clock ahead, and its drift, if one is given.
    pub(crate) fn set_clock(&mut self, host: usize, ahead: u64, drift: Option<i32>) {
        let drift = self.time.set_clock(host, ahead, drift);
        self.note(host, TraceEvent::ClockSet(ahead, drift));
        self.follow_clock(host);
    }

    /// Sets when the timers of a host are due, as its clock is another one.
    pub(super) fn follow_clock(&mut self, host: usize) {
        self.show_time();
        for poller in self.processes.pollers_on(host) {
            self.pollers.arm(poller, &self.time, &mut self.events);
        }
    }

    /// Steps a host's wall clock by that many nanoseconds, back if negative: for the test, or for
    /// chaos.
    pub(crate) fn step_wall(&mut self, host: usize, by: i64, is_chaos: bool) {
        self.time.wall(host).step(by, is_chaos);
        self.note(host, TraceEvent::WallStepped(by));
        self.show_time();
    }

    /// Ends the random faults of hosts, and the drift of clocks. Clocks keep their jumps.
    pub(super) fn heal_hosts(&mut self) {
        (self.pollers).make_punctual(&self.time, &mut self.events);
        self.host_faults.heal();
        for host in 0..self.hosts.count() {
            if self.time.drift(host) != 0 {
                self.set_clock(host, 0, Some(0));
            }
            let by_chaos = self.time.wall_by_chaos(host);
            if by_chaos != 0 {
                self.step_wall(host, by_chaos.saturating_neg(), true);
            }
        }
    }

    pub(crate) fn pause(&mut self, host: usize) -> PauseId {
        self.note(host, TraceEvent::Paused);
        self.processes.pause(host)
    }

    /// Sets the order of processes and tasks, from now on.
    pub(crate) fn set_order(&mut self, order: Order) {
        if self.pollers.set_order(order) {
            self.processes.set_order(order);
        }
    }

    /// Returns the fate of a message that arrives from one host at another now.
    pub(super) fn pass(&self, way: (usize, usize)) -> Delivery {
        self.links.pass(way, self.hosts.is_up(way.1))
    }

    /// Draws the delay and the loss of a segment that is sent now: see [`Links::send_segment`].
    #[inline]
    pub(super) fn send(&mut self, way: (usize, usize), link: &mut u32, len: usize) -> Option<u64> {
        let now = self.time.now();
        (self.links).send_segment(way, link, len, now, &mut self.faults)
    }

    /// Notes a message, if the run is recorded.
    #[inline]
    pub(super) fn message(&mut self, message: impl FnOnce() -> Message) {
        self.report.trace.message(message);
    }

    /// Sets the probability of a kind of fault by chaos, from now on.
    pub(crate) fn set_rate_by_chaos(&mut self, kind: Kind, rate: Probability) {
        self.faults.by_chaos.insert(kind, rate);
        self.host_faults.are_any |= !kind.is_of_ways();
    }

    /// Schedules a chaos action: at that time it is due, unless it is called off. Later calls need
    /// greater numbers.
    pub(crate) fn schedule_chaos(&mut self, at: u64, number: u64) {
        self.events
            .push(at.max(self.time.now()), Event::Chaos(number));
    }

    /// Reports new readiness of a socket to its pollers.
    #[inline]
    pub(super) fn raise(&mut self, number: u32, base: &mut Base, ready: u8) {
        self.raise_with(number, base, ready, None);
    }

    /// As [`raise`](Self::raise), but reports only to the poller `only`, if one is given. A fault
    /// may add readiness that the socket does not have.
    pub(super) fn raise_with(
        &mut self,
        number: u32,
        base: &mut Base,
        ready: u8,
        only: Option<usize>,
    ) {
        for registration in base.registrations.iter() {
            let mut ready = ready & (registration.interest | CLOSED | ERROR);
            if ready == 0 || only.is_some_and(|only| only != registration.poller) {
                continue;
            }
            if self.fault_comes(base.host, Kind::Spurious) {
                ready |= READABLE | WRITABLE;
            }
            self.pollers.report(number, registration, ready);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Core {
        pub(in crate::world) fn of_test(seed: u64) -> Core {
            Core::new(seed, Setup::default())
        }
    }

    fn with_two_hosts() -> Core {
        let mut core = Core::of_test(1);
        assert_eq!(["a", "b", "A"].map(|name| core.add_host(name)), [0, 1, 0]);
        core
    }

    /// The pollers of a process are those of its workers and of its pool.
    #[test]
    fn process_pollers_are_workers_and_pool() {
        let mut core = with_two_hosts();
        core.processes.set_workers(Some(1), 2);
        assert_eq!((core.start(0).1.len(), core.start(1).1.len()), (1, 4));
        core.set_current_poller(Some(2));
        assert_eq!(
            (core.processes.current, core.current_host()),
            (Some(1), "b")
        );
        core.set_current(None);
        assert_eq!(core.current_host(), "nobody");
    }

    /// Readiness is reported as far as a poller is interested.
    #[test]
    fn readiness_reported_by_interest() {
        let mut core = with_two_hosts();
        core.start(0);
        let mut base = Base::new(0, Some(0));
        core.raise(7, &mut base, READABLE);
        assert!(core.pollers.are_idle(), "it is registered with none");
        base.registrations.add(0, 70, READABLE);
        core.raise(7, &mut base, WRITABLE);
        assert!(core.pollers.are_idle());
        core.raise(7, &mut base, READABLE | WRITABLE | CLOSED);
        assert!(!core.pollers.are_idle());
        assert_eq!(base.registrations.take(0), Some((70, READABLE | CLOSED)));
        let certain = Probability::new(1.0).unwrap();
        core.host_faults
            .change(0, |faults| faults.set(Kind::Spurious, certain));
        core.raise(7, &mut base, READABLE);
        assert_eq!(base.registrations.take(0), Some((70, READABLE | WRITABLE)));
    }

    /// Clocks go even again when hosts are healed and keep their jumps.
    #[test]
    fn clocks_run_even_after_heal_keep_jumps() {
        let mut core = with_two_hosts();
        core.set_clock(1, 500, Some(-3));
        core.step_wall(0, 9, true);
        core.heal_hosts();
        assert_eq!((core.time.drift(1), core.time.wall_by_chaos(0)), (0, 0));
        assert_eq!(core.time.when(1, 500), Some(0), "it is still ahead");
        assert_eq!(core.report.trace.events, 4);
    }
}
