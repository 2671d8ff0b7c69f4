//! The loop that drives a world: one step after the other, on one thread.
//!
//! A step polls one task, of a process that has something to do; the world's
//! [`Order`](super::Order) chooses which. While any process has work, no time passes. Otherwise the
//! clock jumps to the next event, which the kernel performs. If there is no event either, the world
//! is in a deadlock.
//!
//! Each process has a real runtime. Its workers are driven as by a foreign loop: one turn with a
//! zero timeout, one task. A worker's poller notifies the kernel when there is something to do (a
//! wake from another host or another worker, a timer), so idle workers are not polled. All workers
//! of all processes share the world's one thread, and the world chooses which of them is next.
//!
//! A process that is killed, or has returned, disappears from the kernel immediately. Its runtime
//! is dropped between two steps, since that runs destructors, and must not happen within one of its
//! own tasks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::rc::Rc;
use std::sync::Arc;

use polder::kernel::Poller;
use polder::runtime::custom::{CustomRuntime, CustomWorker};

use super::conditions::Conditions;
use super::history::{AnyHistory, forgotten};
use super::picture;
use super::plan::Plan;
use super::timeline::Moment;
use crate::world;
use crate::world::choice::Stream;
use crate::world::event::Event;
use crate::world::event_queue::PendingCall;
use crate::world::faults::Id;
use crate::world::foreign::contain;
use crate::world::kernel::{Advanced, Kernel, WorldAction};
use crate::world::progress::{Call, Progress};
use crate::world::seconds::Seconds;
use crate::world::setup::RunConfig;
use crate::world::thread::kernel;
use crate::world::trace_event::TraceEvent;

/// Default limit of steps and events at one moment: a program that exceeds it is in a livelock.
const MAX_STEPS: u64 = 100_000;

/// Default limit of steps in a run. They take half a minute in an unoptimised build, which is as
/// long as a test should take.
const MAX_TOTAL: u64 = 10_000_000;

/// Default limit of the world's time: a program with a heartbeat never ends by itself.
const LONGEST: u64 = 3_600_000_000_000;

/// The cause of a failure that is none: the user has asked for a look at the world.
pub(super) const STOPPED: &str = "by POLDER_SIM_STOP_AT";

/// Maximum number of hosts that a report describes: those that the test named first.
const MAX_TOLD: usize = 64;

/// Maximum number of the test's choices that are kept for shrinking.
const MAX_CHOICES: usize = 32;

/// State that the handles of a world share.
#[derive(Default)]
pub(super) struct State {
    /// Runtimes, by the kernel's number of their process; `None` once dropped.
    processes: RefCell<Vec<Option<Rc<CustomRuntime>>>>,
    /// Workers of all processes, by the kernel's number of their pollers; `None` once the process
    /// has been dropped. Each step begins here, which avoids a dependent load.
    workers: RefCell<Vec<Option<CustomWorker>>>,
    /// By the kernel's number.
    pub(super) hosts: RefCell<Vec<HostSlot>>,
    /// Processes with a runtime that is to be dropped, and whether they have returned.
    ended: RefCell<Vec<(usize, bool)>>,
    pub(super) always: Conditions,
    pub(super) sometimes: Conditions,
    pub(super) eventually: Conditions,
    /// Functions that are called with each event.
    observers: RefCell<Vec<Observer>>,
    /// Time from which on progress is required.
    pub(super) quiet_since: Cell<Option<u64>>,
    pub(super) limit: Cell<u64>,
    /// Time at which the run is stopped, if the user has asked for that.
    until: Option<u64>,
    pub(super) max_steps: Cell<u64>,
    pub(super) max_total: Cell<u64>,
    /// Whether the test's future has completed.
    pub(super) is_done: Cell<bool>,
    /// Whether the test has ended, and its processes are being dropped.
    has_ended: Cell<bool>,
    /// Whether a process that returns must leave nothing behind.
    pub(super) forbids_leaks: Cell<bool>,
    /// Whether the next world may run on this one's thread.
    pub(super) shares_thread: Cell<bool>,
    pub(super) choices: RefCell<Choices>,
    /// The number of the test's workloads.
    pub(super) workloads: Cell<u32>,
    /// Shared with the kernel.
    progress: Arc<Progress>,
    pub(super) chaos: RefCell<Plan>,
    /// One for each pair of types.
    pub(super) histories: RefCell<Vec<AnyHistory>>,
    /// The number of the run's events, if it is recorded.
    records: Option<u64>,
    /// Descriptions of the hosts then, and the number of events after which the next one is due.
    pub(super) moments: RefCell<Vec<Moment>>,
    next_moment: Cell<u64>,
}

/// A test's function that is called with each event.
type Observer = Box<dyn FnMut(&Event)>;

/// Starts a process; called again for each restart.
type Start = Rc<dyn Fn()>;

/// Reports that the process has ended without a result, but in this way.
type End = Rc<dyn Fn(TraceEvent)>;

#[derive(Default)]
pub(super) struct HostSlot {
    pub(super) process: Option<usize>,
    pub(super) start: Option<(Start, End)>,
    /// Whether the last process was killed or powered off.
    was_stopped: bool,
    /// Chaos fault that has stopped the process; `None` if the test has stopped it, or one runs
    /// again.
    pub(super) stopped_by: Option<Id>,
    /// Error that the last process has returned, if any.
    pub(super) error: Option<String>,
}

/// The choices that a test makes.
#[derive(Default)]
pub(super) struct Choices {
    /// Created with the first choice.
    stream: Option<Stream>,
    count: u64,
    /// The first choices.
    pub(super) made: Vec<u64>,
    /// Replacements for choices, by their number, while a failure is simplified.
    instead: BTreeMap<u64, u64>,
}

impl Choices {
    /// Returns a number below `end`, which is not zero. Takes one number of the stream, even if the
    /// choice is replaced.
    fn make(&mut self, end: u64) -> u64 {
        self.count += 1;
        let begin = || Stream::new(kernel(|kernel| kernel.core.seed), "test", 0, 0);
        let stream = &mut self.stream;
        let drawn = one_of_all(end).unwrap_or_else(|| stream.get_or_insert_with(begin).below(end));
        let instead = self.instead.get(&self.count);
        let number = instead.map_or(drawn, |number| (*number).min(end - 1));
        if self.made.len() < MAX_CHOICES {
            self.made.push(number);
        }
        number
    }
}

/// Returns a number below `end` that the run's schedule chooses, if all orders are tried.
pub(super) fn one_of_all(end: u64) -> Option<u64> {
    let count = usize::try_from(end).unwrap_or(usize::MAX);
    kernel(|kernel| Some(kernel.core.schedule.as_mut()?.choose(count) as u64))
}

impl State {
    /// Returns the state of a world with this configuration. `records` is as in
    /// [`Setup`](world::setup::Setup).
    pub(super) fn new(config: &RunConfig, records: Option<u64>) -> Rc<State> {
        let choices = Choices {
            instead: config.simplification.chosen.clone(),
            ..Choices::default()
        };
        Rc::new(State {
            limit: Cell::new(LONGEST),
            until: config.until,
            max_steps: Cell::new(MAX_STEPS),
            max_total: Cell::new(MAX_TOTAL),
            choices: RefCell::new(choices),
            records,
            progress: kernel(|kernel| kernel.core.report.progress.clone()),
            ..State::default()
        })
    }

    /// Returns the number of the host with that name, and creates it if there is none.
    pub(super) fn host(&self, name: &str) -> usize {
        let index = kernel(|kernel| kernel.core.add_host(name));
        let mut hosts = self.hosts.borrow_mut();
        let count = hosts.len().max(index + 1);
        hosts.resize_with(count, HostSlot::default);
        index
    }

    /// Starts a process on a host. Returns its number, and its runtime, to spawn its main task on.
    pub(super) fn start(&self, host: usize) -> (usize, Rc<CustomRuntime>) {
        let (process, pollers) = kernel(|kernel| kernel.core.start(host));
        let boxed = pollers
            .into_iter()
            .map(|poller| Box::new(poller) as Box<dyn Poller>);
        let runtime = Rc::new(CustomRuntime::new(boxed.collect()));
        let workers: Vec<_> = runtime.workers().collect();
        let sites: Vec<_> = workers.iter().map(CustomWorker::running_site).collect();
        let site = Box::new(move || sites.iter().find_map(|site| site()));
        kernel(|kernel| {
            let name = kernel.core.hosts.name(host);
            kernel.core.report.progress.add_process(name, site);
        });
        self.processes.borrow_mut().push(Some(runtime.clone()));
        // The first poller of several is the pool's, which has no worker of its own: see the head
        // of `world/pollers.rs`.
        let pool = (workers.len() > 1).then_some(None);
        let workers = workers.into_iter().map(Some);
        self.workers
            .borrow_mut()
            .extend(pool.into_iter().chain(workers));
        let slot = &mut self.hosts.borrow_mut()[host];
        (slot.process, slot.was_stopped, slot.error) = (Some(process), false, None);
        slot.stopped_by = None;
        (process, runtime)
    }

    /// Ends a host's process, in the way of `what`. Does nothing if none runs.
    pub(super) fn stop(&self, host: usize, what: TraceEvent) {
        let process = self.hosts.borrow_mut()[host].process.take();
        if let Some(process) = process {
            self.hosts.borrow_mut()[host].was_stopped = what != TraceEvent::Ended;
            kernel(|kernel| kernel.stop(process, what));
            let mut ended = self.ended.borrow_mut();
            ended.push((process, what == TraceEvent::Ended));
        }
    }

    /// Returns whether that process is the host's current one. A process that has had its own host
    /// killed or restarted runs on to the end of its poll, and is not current.
    pub(super) fn runs(&self, host: usize, process: usize) -> bool {
        self.hosts.borrow()[host].process == Some(process)
    }

    /// Returns whether a process runs on a host.
    pub(super) fn runs_on(&self, host: usize) -> bool {
        self.hosts.borrow()[host].process.is_some()
    }

    /// Kills the process of a host, or cuts the host's power, and notifies waiters of its end.
    pub(super) fn end_process(&self, host: usize, what: TraceEvent) {
        let mut hosts = self.hosts.borrow_mut();
        let slot = &mut hosts[host];
        slot.stopped_by = None;
        let start = slot.start.clone().filter(|_| slot.process.is_some());
        drop(hosts);
        self.stop(host, what);
        if let Some((_, end)) = start {
            end(what);
        }
        if what == TraceEvent::PoweredOff {
            kernel(|kernel| {
                // It is down already if its process was stopped above.
                if kernel.core.hosts.is_up(host) {
                    kernel.core.note(host, what);
                }
                kernel.power_off(host);
                kernel.disks.lose_power(host, &mut kernel.core);
            });
        }
    }

    /// Restarts the program that was started last on a host. Returns `false` if there was none.
    pub(super) fn start_again(&self, host: usize) -> bool {
        let start = self.hosts.borrow()[host].start.clone();
        if let Some((start, _)) = &start {
            start();
        }
        start.is_some()
    }

    /// Restarts processes that were killed or powered off, but not those that have returned.
    pub(super) fn restart_all(&self) {
        let count = self.hosts.borrow().len();
        for host in 0..count {
            if self.hosts.borrow()[host].was_stopped {
                self.start_again(host);
            }
            kernel(|kernel| {
                if kernel.core.power_on(host) {
                    kernel.core.note(host, TraceEvent::PoweredOn);
                }
            });
        }
    }

    /// Checks for leaks of a process that has returned: only its main task may be left, which is
    /// running.
    pub(super) fn check_leaks(&self, host: usize) {
        let process = self.hosts.borrow()[host].process;
        let Some(process) = process.filter(|_| self.forbids_leaks.get()) else {
            return;
        };
        let runtime = self.processes.borrow()[process].clone();
        let sites = runtime.map_or(Vec::new(), |runtime| runtime.other_sites());
        let (name, sockets, files) = kernel(|kernel| {
            let own = kernel.disks.find(host);
            let files = own.map_or(Vec::new(), |own| own.disk.paths_open(process));
            let name = kernel.core.hosts.name(host).to_owned();
            (name, kernel.network().describe(process), files)
        });
        let tasks = (sites.iter()).map(|site| format!("a task, spawned at {site}"));
        let sockets = sockets.iter().map(|socket| format!("a socket: {socket}"));
        let files = (files.iter()).map(|file| format!("a file that is open: {file}"));
        let left: Vec<String> = tasks.chain(sockets).chain(files).collect();
        if !left.is_empty() {
            let left = left.join("\n    ");
            world::thread::fail(|| {
                format!("the process of {name:?} has returned, and leaves behind\n    {left}")
            });
        }
    }

    pub(super) fn choose(&self, end: u64) -> u64 {
        let number = self.choices.borrow_mut().make(end);
        kernel(|kernel| kernel.core.note(0, TraceEvent::Chosen(number)));
        number
    }

    /// Drives the world until the test is done, or something has failed.
    pub(super) fn run(&self) {
        let (mut steps, mut total, mut moment) = (0, 0_u64, 0);
        loop {
            // Processes that were killed since must not run, even if that happened outside of a
            // step.
            self.drop_ended();
            let Some((now, poller)) = kernel(|kernel| kernel.next_step(self.is_done.get())) else {
                return;
            };
            if self.is_done.get() {
                return self.check_at_end();
            }
            // An event does not always advance the time: a latency may be zero.
            if std::mem::replace(&mut moment, now) != now {
                steps = 0;
            }
            (steps, total) = (steps + 1, total + 1);
            let (max, max_total) = (self.max_steps.get(), self.max_total.get());
            if steps > max {
                return world::thread::fail(|| {
                    format!("livelock: {max} steps without any time passing")
                });
            }
            if total > max_total {
                return world::thread::fail(|| {
                    format!("the run has had {max_total} steps: see Sim::total_steps")
                });
            }
            let now = match poller {
                Some(poller) => {
                    self.step(poller);
                    now
                }
                None => match self.advance() {
                    Some(later) => later,
                    None => return,
                },
            };
            self.check(now);
            self.look(false);
        }
    }

    /// Runs a step of the worker that has this poller.
    fn step(&self, poller: usize) {
        let worker = self.workers.borrow()[poller].clone();
        if let Some(worker) = worker {
            kernel(|kernel| kernel.core.set_current_poller(Some(poller)));
            worker.turn();
            kernel(|kernel| kernel.core.set_current(None));
        }
        self.chaos_after_step(poller);
        self.drop_ended();
    }

    /// Drops the runtimes of processes that have ended.
    #[inline]
    fn drop_ended(&self) {
        if !self.ended.borrow().is_empty() {
            self.drop_ended_now();
        }
    }

    #[cold]
    fn drop_ended_now(&self) {
        while let Some((process, has_returned)) = { self.ended.borrow_mut().pop() } {
            self.drop_process(process, !has_returned);
        }
    }

    fn drop_process(&self, process: usize, is_killed: bool) {
        let ended = self.processes.borrow_mut()[process].take();
        // Destructors run on behalf of the process that has ended.
        let pollers = world::thread::with(|kernel| {
            kernel.begin_drop(process, is_killed);
            kernel.core.report.progress.end_process(process);
            kernel.core.processes.pollers_of(process)
        });
        let pollers = pollers.unwrap_or_default();
        let mut workers = self.workers.borrow_mut();
        let own: Vec<_> = workers[pollers].iter_mut().map(Option::take).collect();
        drop(workers);
        // The runtime is first: it drops everything that its workers hold.
        drop(ended);
        drop(own);
        world::thread::with(Kernel::end_drop);
    }

    /// Performs the next event. Returns its time; `None` if there is no event, or none in time.
    fn advance(&self) -> Option<u64> {
        let latest = self.latest();
        match kernel(|kernel| kernel.advance(latest)) {
            Advanced::Happened(at, due) => {
                match due {
                    Some(WorldAction::Call(call)) => self.run_due(call),
                    Some(WorldAction::Chaos(number)) => self.chaos_is_due(number),
                    None => {}
                }
                return Some(at);
            }
            Advanced::Late(at) => self.fail_late(at),
            Advanced::Never => world::thread::fail(|| {
                "deadlock: no task is ready, no timer is set, nothing is under way (another thread, \
                 if one was to wake a task, is no part of a world)"
                    .into()
            }),
        }
        None
    }

    /// Returns the latest time at which anything may happen.
    fn latest(&self) -> u64 {
        let mut latest = self.limit.get().min(self.until.unwrap_or(u64::MAX));
        if let Some(since) = self.quiet_since.get() {
            self.eventually.try_each(|condition| {
                if !condition.was_true {
                    latest = latest.min(since.saturating_add(condition.within));
                }
                true
            });
        }
        latest
    }

    /// Fails the run: the next event would happen too late.
    #[cold]
    fn fail_late(&self, at: u64) {
        if let Some(until) = self.until.filter(|until| *until == self.latest()) {
            kernel(|kernel| kernel.core.set_now(until));
            return world::thread::fail_because(STOPPED, None, || STOPPED.to_owned());
        }
        if let Some(since) = self.quiet_since.get() {
            self.eventually.try_each(|condition| {
                let end = since.saturating_add(condition.within);
                let is_late = !condition.was_true && at > end;
                if is_late {
                    kernel(|kernel| kernel.core.set_now(end));
                    let cause = format!("eventually {:?}", condition.name);
                    let why = condition
                        .why()
                        .map_or(String::new(), |why| format!(": {why}"));
                    let within = Seconds(condition.within);
                    let reason = format!("{cause}: it was not true within {within} of quiet{why}");
                    world::thread::fail_because(&cause, None, || reason);
                }
                !is_late
            });
        }
        // If there is such a condition, that was the first failure, and is the one that counts.
        let limit = Seconds(self.limit.get());
        world::thread::fail(|| format!("the test has not ended within {limit}: see Sim::limit"));
    }

    /// Runs a call that was given to `unblock`, or drops it if its process has ended. It is foreign
    /// code.
    fn run_due(&self, due: PendingCall) {
        let is_alive = kernel(|kernel| {
            let is_alive = kernel.core.processes.is_alive(due.process);
            kernel.begin_drop(due.process, !is_alive);
            is_alive
        });
        if is_alive {
            kernel(|kernel| kernel.core.calls(Call::Unblock));
            due.job.run();
        }
        contain(|| drop(due.job));
        kernel(Kernel::end_drop);
    }

    /// Adds a function that is called with each event from now on.
    pub(super) fn observe(&self, observer: Observer) {
        self.observers.borrow_mut().push(observer);
        kernel(|kernel| kernel.core.report.keep_unseen());
    }

    /// Reports the events since the last step. An observer may add others, which are called from
    /// the next step on.
    fn tell(&self) {
        let mut observers = self.observers.take();
        for event in kernel(|kernel| kernel.core.report.take_unseen()) {
            kernel(|kernel| kernel.core.calls(Call::Observer));
            observers.iter_mut().for_each(|observer| observer(&event));
        }
        let mut all = self.observers.borrow_mut();
        observers.append(&mut all);
        *all = observers;
    }

    /// Checks the conditions after a step or an event, which was at the time `now`.
    fn check(&self, now: u64) {
        if !self.observers.borrow().is_empty() {
            self.tell();
        }
        let calls = || self.progress.begin(None, Call::Condition, now);
        self.always.try_each(|condition| {
            calls();
            let holds = condition.holds();
            if !holds {
                let cause = format!("always {:?}", condition.name);
                let why = condition.why().unwrap_or("it does not hold");
                world::thread::fail_because(&cause, None, || format!("{cause}: {why}"));
            }
            holds
        });
        self.sometimes.find_out(calls);
        if self.quiet_since.get().is_some() {
            self.eventually.find_out(calls);
        }
    }

    /// Describes all hosts if the run is recorded, and a description is due or this is the end. One
    /// of the same time is replaced. (A run that does not repeat itself may have more events.)
    pub(super) fn look(&self, is_end: bool) {
        let Some(count) = self.records else { return };
        let events = kernel(|kernel| kernel.core.report.trace.events);
        if is_end || (self.next_moment.get()..=count).contains(&events) {
            (self.next_moment).set(picture::next_moment(events, count));
            let at = kernel(|kernel| kernel.core.time.now());
            let words = self.describe().chars().take(picture::MAX_CHARS).collect();
            let mut moments = self.moments.borrow_mut();
            moments.retain(|moment| moment.at != at);
            moments.push(Moment { at, words });
        }
    }

    fn check_at_end(&self) {
        let mut all = self.eventually.take();
        let missed = all.iter_mut().find_map(|condition| {
            let is_missed = !condition.was_true && !condition.holds();
            is_missed.then_some(&condition.name)
        });
        if let Some(name) = missed {
            world::thread::fail(|| {
                format!("eventually {name:?}: it was not true when the test ended")
            });
        }
        if let Some(words) = forgotten(&self.histories.borrow()) {
            world::thread::fail_because("a history was not checked", None, || words);
        }
    }

    /// Describes what each process is doing, for the report of a failure.
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        let hosts = self.hosts.borrow();
        for (index, slot) in hosts.iter().enumerate().take(MAX_TOLD) {
            let (name, state, sockets) = kernel(|kernel| {
                let state = match (slot.process, kernel.core.hosts.is_up(index)) {
                    (Some(_), _) if self.has_ended.get() => "its process ran when the test ended",
                    (None, _) if self.has_ended.get() => "no process",
                    (_, false) => "powered off",
                    _ if kernel.core.links.partings.is_suspended(index) => "suspended",
                    (Some(_), _) if kernel.core.processes.is_paused(index) => "paused",
                    (Some(_), _) => "running",
                    (None, _) => "no process",
                };
                let sockets = slot
                    .process
                    .map(|process| kernel.network().describe(process));
                let name = kernel.core.hosts.name(index).to_owned();
                (name, state, sockets.unwrap_or_default())
            });
            let _ = writeln!(text, "    {name}: {state}");
            if let Some(error) = &slot.error {
                let _ = writeln!(text, "      its process has returned an error: {error}");
            }
            let processes = self.processes.borrow();
            let runtime = slot.process.and_then(|process| processes[process].as_ref());
            // The description reads the clock of its host.
            kernel(|kernel| kernel.core.look_as(slot.process));
            let lines = runtime.map_or(Vec::new(), |runtime| runtime.describe());
            kernel(|kernel| kernel.core.look_as(None));
            for line in lines {
                let _ = writeln!(text, "      {line}");
            }
            for socket in sockets {
                let _ = writeln!(text, "      socket {socket}");
            }
            let unsynced = kernel(|kernel| kernel.disks.describe_unsynced(index));
            if !unsynced.is_empty() {
                let _ = writeln!(text, "      not on its disk yet: {}", unsynced.join(", "));
            }
        }
        if let Some(more) = hosts.len().checked_sub(MAX_TOLD).filter(|more| *more > 0) {
            let _ = writeln!(text, "    and {more} hosts more");
        }
        text
    }

    /// Ends all processes, without sending anything on the network. (This may reveal the panic of a
    /// task that was not awaited.)
    pub(super) fn end_processes(&self) {
        self.has_ended.set(true);
        world::thread::with(|kernel| {
            (0..kernel.core.hosts.count()).for_each(|host| kernel.power_off(host))
        });
        let count = self.processes.borrow().len();
        for process in 0..count {
            self.drop_process(process, true);
        }
        world::panics::as_killed(|| {
            let jobs = world::thread::with(|kernel| kernel.blocking.take_all(&mut kernel.core))
                .unwrap_or_default();
            jobs.into_iter().for_each(|job| contain(|| drop(job)));
        });
    }

    /// Ends the world.
    pub(super) fn end(&self) {
        self.end_processes();
        // Dropping these runs foreign code of a test that has ended.
        world::panics::as_killed(|| {
            contain(|| drop((self.always.take(), self.eventually.take())));
            contain(|| drop(self.observers.take()));
            contain(|| drop((self.sometimes.take(), self.hosts.take())));
            contain(|| drop(self.histories.take()));
        });
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}
