//! The loop that drives a world: one step after the other, on one thread.
//!
//! A step is one task polled, of a process that has something to do; which, is a choice. While any
//! has, no time passes. Otherwise the clock jumps to the next event, which the kernel lets happen.
//! If there is none either, nothing will ever happen: a deadlock.
//!
//! Each process has a real runtime, whose workers are driven as by a foreign loop: one turn with a
//! zero timeout, one task. A worker's poller tells the kernel when there is something to do (a wake
//! from another host or another worker, a timer), so nobody is asked who has nothing. Which worker
//! of which process is next is a choice too: where a process has several, these are in the world's
//! one thread, and take turns.
//!
//! A process that is killed, or has returned, is gone for the kernel at once. Its runtime is
//! dropped between two steps, since that runs destructors, and may not happen within one of its own
//! tasks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::rc::Rc;
use std::sync::Arc;

use super::chaos::Plan;
use super::conditions::Conditions;
use super::history::{AnyHistory, forgotten};
use super::kernel::choice::Stream;
use super::kernel::progress::{Call, Progress};
use super::kernel::trace::{Seconds, What};
use super::kernel::{self, Advance, Kernel, Turn};
use super::step::Step;
use crate::reactor::{nanos_since_start, tick_after_nanos};
use crate::runtime::Runtime;
use crate::scheduler::Worker;
use crate::sync::contain;

/// More steps and events at one moment mean that the program goes round in circles, unless the test
/// says otherwise.
const MOST_STEPS: u64 = 100_000;

/// More steps in all are more than somebody waits for, unless the test says otherwise: half a
/// minute where it is not optimised.
const MOST_TOTAL: u64 = 10_000_000;

/// How long a world may last: a program with a heartbeat never comes to an end by itself.
const LONGEST: u64 = 3_600_000_000_000;

/// A report says of so many hosts what they are doing: of those that the test named first.
const MOST_TOLD: usize = 64;

/// So many choices of a test are kept, to be made simpler.
const MOST_CHOICES: usize = 32;

/// What the handles of a world share.
pub(super) struct State {
    /// When the world began, in nanoseconds after the beginning of the first tick.
    base: i64,
    /// By the kernel's number; `None` when it has been dropped.
    processes: RefCell<Vec<Option<Rc<Runtime>>>>,
    /// Those of all processes, by the kernel's number of their pollers; `None` when the process has
    /// been dropped. Each step begins here: a way less to what lies in no cache.
    workers: RefCell<Vec<Option<Rc<Worker>>>>,
    /// By the kernel's number.
    pub(super) hosts: RefCell<Vec<HostSlot>>,
    /// Processes whose runtimes are to be dropped, and whether they have returned.
    ended: RefCell<Vec<(usize, bool)>>,
    pub(super) always: Conditions,
    pub(super) sometimes: Conditions,
    pub(super) eventually: Conditions,
    /// Who is told what happens.
    observers: RefCell<Vec<Observer>>,
    has_observers: Cell<bool>,
    /// Since when progress is owed.
    quiet_since: Cell<Option<u64>>,
    limit: Cell<u64>,
    most_steps: Cell<u64>,
    most_total: Cell<u64>,
    /// The test has ended, and its processes are being dropped.
    has_ended: Cell<bool>,
    /// Whether a process may leave something behind.
    forbids_leaks: Cell<bool>,
    /// The next world may have this one's thread.
    shares_thread: Cell<bool>,
    choices: RefCell<Choices>,
    /// The kernel's.
    progress: Arc<Progress>,
    pub(super) chaos: RefCell<Plan>,
    /// Of each pair of types one.
    pub(super) histories: RefCell<Vec<AnyHistory>>,
}

/// What a test does with what happens.
type Observer = Box<dyn FnMut(&Step)>;

/// Starts a process, again and again.
type Start = Rc<dyn Fn()>;

/// Tells that the process has ended without a result.
type End = Rc<dyn Fn(Ending)>;

#[derive(Clone, Copy)]
pub(super) enum Ending {
    Killed,
    PoweredOff,
}

#[derive(Default)]
pub(super) struct HostSlot {
    pub(super) process: Option<usize>,
    pub(super) start: Option<(Start, End)>,
    /// The last process was killed, or powered off.
    was_stopped: bool,
    /// By which fault of chaos: what the test itself has stopped, or started since, is the test's.
    pub(super) stopped_by: Option<u64>,
    /// What the last process has returned, if that was an error.
    pub(super) error: Option<String>,
}

/// Choices of the test's own.
struct Choices {
    stream: Stream,
    count: u64,
    /// The first of them.
    made: Vec<u64>,
    /// What is chosen instead, where a failure is made simpler.
    instead: BTreeMap<u64, u64>,
}

impl Choices {
    /// A number below `end`, which is not zero. Whatever it is, it takes one of the stream.
    fn make(&mut self, end: u64) -> u64 {
        self.count += 1;
        let drawn = self.stream.below(end);
        let number = self.instead.get(&self.count);
        let number = number.map_or(drawn, |it| (*it).min(end - 1));
        if self.made.len() < MOST_CHOICES {
            self.made.push(number);
        }
        number
    }
}

/// Calls `f` with the kernel of the world that this thread is in.
///
/// # Panics
///
/// If it is in none: then a handle has outlived its world.
pub(super) fn kernel<R>(f: impl FnOnce(&mut Kernel) -> R) -> R {
    kernel::with(f).expect("polder::sim: this world has ended")
}

impl State {
    /// `instead` is what the test is to choose, by how manieth choice it is.
    pub(super) fn new(seed: u64, instead: BTreeMap<u64, u64>) -> Rc<State> {
        Rc::new(State {
            base: nanos_since_start(kernel(|kernel| kernel.began_at())),
            processes: RefCell::default(),
            workers: RefCell::default(),
            hosts: RefCell::default(),
            ended: RefCell::default(),
            always: Conditions::default(),
            sometimes: Conditions::default(),
            eventually: Conditions::default(),
            observers: RefCell::default(),
            has_observers: Cell::new(false),
            quiet_since: Cell::new(None),
            limit: Cell::new(LONGEST),
            most_steps: Cell::new(MOST_STEPS),
            most_total: Cell::new(MOST_TOTAL),
            has_ended: Cell::new(false),
            forbids_leaks: Cell::new(false),
            shares_thread: Cell::new(false),
            choices: RefCell::new(Choices {
                stream: Stream::new(seed, "test", 0, 0),
                count: 0,
                made: Vec::new(),
                instead,
            }),
            progress: kernel(|kernel| kernel.progress().clone()),
            chaos: RefCell::new(Plan::new(seed)),
            histories: RefCell::default(),
        })
    }

    /// The number of the host of that name, which is new if there is none.
    pub(super) fn host(&self, name: &str) -> usize {
        let index = kernel(|kernel| kernel.add_host(name));
        let mut hosts = self.hosts.borrow_mut();
        while hosts.len() <= index {
            hosts.push(HostSlot::default());
        }
        index
    }

    /// Starts a process on a host: returns its runtime, to spawn its main task on.
    pub(super) fn start(&self, host: usize) -> (usize, Rc<Runtime>) {
        let (process, pollers) = kernel(|kernel| kernel.start(host));
        let runtime = Rc::new(Runtime::simulated(pollers));
        let workers = runtime.simulated_workers();
        let counters: Vec<_> = workers.map(|it| it.reactor().counters().clone()).collect();
        let task = move || counters.iter().find_map(|it| it.task());
        let site = Box::new(move || task().map(|(_, site)| site));
        kernel(|kernel| kernel.progress().add_process(host, site));
        self.processes.borrow_mut().push(Some(runtime.clone()));
        let workers = runtime.simulated_workers().cloned().map(Some);
        self.workers.borrow_mut().extend(workers);
        let slot = &mut self.hosts.borrow_mut()[host];
        (slot.process, slot.was_stopped, slot.error) = (Some(process), false, None);
        slot.stopped_by = None;
        (process, runtime)
    }

    /// A host's process ends, as `what` says. Does nothing if none runs.
    pub(super) fn stop(&self, host: usize, what: What) {
        let process = self.hosts.borrow_mut()[host].process.take();
        if let Some(process) = process {
            self.hosts.borrow_mut()[host].was_stopped = what != What::Ended;
            kernel(|kernel| kernel.stop(process, what));
            let mut ended = self.ended.borrow_mut();
            ended.push((process, what == What::Ended));
        }
    }

    /// Whether that process is the one that runs on a host. One that has had its own host killed or
    /// restarted runs on to the end of its poll, and is not.
    pub(super) fn runs(&self, host: usize, process: usize) -> bool {
        self.hosts.borrow()[host].process == Some(process)
    }

    /// Kills the process of a host, or takes its power, and tells who waits for its end.
    pub(super) fn end_process(&self, host: usize, what: What, ending: Ending) {
        let mut hosts = self.hosts.borrow_mut();
        let slot = &mut hosts[host];
        slot.stopped_by = None;
        let end = slot.start.as_ref().map(|(_, end)| end.clone());
        let end = end.filter(|_| slot.process.is_some());
        drop(hosts);
        self.stop(host, what);
        if let Some(end) = end {
            end(ending);
        }
        if what == What::PoweredOff {
            kernel(|kernel| {
                kernel.power_off(host);
                kernel.disk_loses_power(host);
            });
        }
    }

    /// Starts the program again that was started last on a host. Returns `false` if none was.
    pub(super) fn start_again(&self, host: usize) -> bool {
        let start = self.hosts.borrow()[host]
            .start
            .as_ref()
            .map(|it| it.0.clone());
        if let Some(start) = &start {
            start();
        }
        start.is_some()
    }

    /// Starts again what was killed or powered off, and has not returned.
    pub(super) fn restart_all(&self) {
        let hosts = self.hosts.borrow();
        let down = hosts.iter().filter(|it| it.was_stopped);
        let starts: Vec<Start> = down
            .filter_map(|it| it.start.as_ref().map(|(start, _)| start.clone()))
            .collect();
        drop(hosts);
        starts.iter().for_each(|start| start());
        kernel(Kernel::power_on_all);
    }

    pub(super) fn set_limit(&self, limit: u64) {
        self.limit.set(limit);
    }

    pub(super) fn set_most_steps(&self, most: u64) {
        self.most_steps.set(most);
    }

    pub(super) fn set_most_total(&self, most: u64) {
        self.most_total.set(most);
    }

    pub(super) fn forbid_leaks(&self) {
        self.forbids_leaks.set(true);
    }

    pub(super) fn share_thread(&self) {
        self.shares_thread.set(true);
    }

    pub(super) fn shares_thread(&self) -> bool {
        self.shares_thread.get()
    }

    /// A host's process has returned: nothing of it may be left but its main task, which runs.
    pub(super) fn check_leaks(&self, host: usize) {
        let process = self.hosts.borrow()[host].process;
        let Some(process) = process.filter(|_| self.forbids_leaks.get()) else {
            return;
        };
        let runtime = self.processes.borrow()[process].clone();
        let sites = runtime.map_or(Vec::new(), |it| it.other_sites());
        let sockets = kernel(|kernel| kernel.describe_sockets(process));
        let files = kernel(|kernel| kernel.describe_files(process));
        if sites.is_empty() && sockets.is_empty() && files.is_empty() {
            return;
        }
        let name = kernel(|kernel| kernel.host_name(host).to_owned());
        let mut text = format!("the process of {name:?} has returned, and leaves behind");
        for site in sites {
            let _ = write!(text, "\n    a task, spawned at {site}");
        }
        for socket in sockets {
            let _ = write!(text, "\n    a socket: {socket}");
        }
        for file in files {
            let _ = write!(text, "\n    a file that is open: {file}");
        }
        self.fail(text);
    }

    pub(super) fn be_quiet(&self) {
        self.quiet_since.set(Some(kernel(|kernel| kernel.now())));
    }

    pub(super) fn choose(&self, end: u64) -> u64 {
        let number = self.choices.borrow_mut().make(end);
        kernel(|kernel| kernel.note(0, What::Chosen(number)));
        number
    }

    /// The first choices of the test.
    pub(super) fn choices_made(&self) -> Vec<u64> {
        self.choices.borrow().made.clone()
    }

    /// Drives the world until `is_done`, or something has failed.
    pub(super) fn run(&self, is_done: &dyn Fn() -> bool) {
        let (mut steps, mut total, mut moment) = (0, 0_u64, 0);
        loop {
            // What was killed since runs no more: also where that was outside of a step.
            self.drop_ended();
            let (now, poller) = match kernel(Kernel::turn) {
                Turn::Next(now, poller) => (now, poller),
                Turn::Stop => return,
                Turn::WokenFromElsewhere => {
                    return self.fail(
                        "a task was woken by another thread: a world has one thread, and what \
                         others do comes at another moment each time"
                            .into(),
                    );
                }
            };
            if is_done() {
                return self.check_at_end();
            }
            // An event takes time or not: with a latency of zero it does not.
            if std::mem::replace(&mut moment, now) != now {
                steps = 0;
            }
            (steps, total) = (steps + 1, total + 1);
            let (most, most_total) = (self.most_steps.get(), self.most_total.get());
            if steps > most {
                return self.fail(format!("livelock: {most} steps without any time passing"));
            }
            if total > most_total {
                return self.fail(format!(
                    "the run has had {most_total} steps: see Sim::total_steps"
                ));
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
        }
    }

    /// A step of the worker that has this poller.
    fn step(&self, poller: usize) {
        let worker = self.workers.borrow()[poller].clone();
        if let Some(worker) = worker {
            let shown = kernel(|kernel| {
                kernel.set_current_poller(Some(poller));
                kernel.shown()
            });
            let since = self.base.saturating_add_unsigned(shown).max(0);
            worker.turn_at(tick_after_nanos(since.unsigned_abs()));
            kernel(|kernel| kernel.set_current(None));
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
        // What its destructors do, the process does that has ended.
        let pollers = kernel::with(|kernel| {
            kernel.begin_drop(process, is_killed);
            kernel.progress().end_process(process);
            kernel.pollers_of(process)
        });
        let workers: Vec<_> = {
            let mut workers = self.workers.borrow_mut();
            pollers
                .into_iter()
                .flatten()
                .map(|it| workers[it].take())
                .collect()
        };
        // The runtime first, which ends with all that its workers have.
        drop(ended);
        drop(workers);
        kernel::with(Kernel::end_drop);
    }

    /// Lets the next event happen. Returns when that is; `None` if there is none, or none in time.
    fn advance(&self) -> Option<u64> {
        let latest = self.latest();
        match kernel(|kernel| kernel.advance(latest)) {
            Advance::Happened(at, due, chaos_is_due) => {
                self.run_due(due);
                if chaos_is_due {
                    self.chaos_is_due();
                }
                return Some(at);
            }
            Advance::Late(at) => self.fail_late(at),
            Advance::Never => self.fail(
                "deadlock: no task is ready, no timer is set, nothing is under way (another thread, \
                 if one was to wake a task, is no part of a world)"
                    .into(),
            ),
        }
        None
    }

    /// The last time at which anything may happen.
    fn latest(&self) -> u64 {
        let limit = self.limit.get();
        let Some(since) = self.quiet_since.get() else {
            return limit;
        };
        let mut latest = limit;
        self.eventually.try_each(|it| {
            if !it.was_true {
                latest = latest.min(since.saturating_add(it.within));
            }
            true
        });
        latest
    }

    /// Something would happen too late.
    #[cold]
    fn fail_late(&self, at: u64) {
        if let Some(since) = self.quiet_since.get() {
            let mut late = None;
            self.eventually.try_each(|it| {
                let end = since.saturating_add(it.within);
                if !it.was_true && at > end {
                    late = Some((end, it.name.clone(), Seconds(it.within), it.why_or("")));
                }
                late.is_none()
            });
            if let Some((end, name, within, why)) = late {
                kernel(|kernel| kernel.set_now(end));
                let cause = format!("eventually {name:?}");
                let why = if why.is_empty() {
                    why
                } else {
                    format!(": {why}")
                };
                return kernel::fail_because(&cause, None, || {
                    format!("{cause}: it was not true within {within} of quiet{why}")
                });
            }
        }
        let limit = Seconds(self.limit.get());
        self.fail(format!(
            "the test has not ended within {limit}: see Sim::limit"
        ));
    }

    /// Runs a call that was given to `unblock`, unless its process has ended: then it is dropped.
    /// It is foreign code.
    #[cfg(feature = "blocking")]
    fn run_due(&self, due: kernel::Due) {
        let Some(due) = due else {
            return;
        };
        kernel(|kernel| kernel.begin_drop(due.process, !due.is_alive));
        if due.is_alive {
            kernel(|kernel| kernel.calls(Call::Unblock));
            due.job.run();
        }
        contain(|| drop(due.job));
        kernel(Kernel::end_drop);
    }

    #[cfg(not(feature = "blocking"))]
    fn run_due(&self, _: kernel::Due) {}

    /// From now on this is told what happens.
    pub(super) fn observe(&self, observer: Observer) {
        self.observers.borrow_mut().push(observer);
        self.has_observers.set(true);
        kernel(Kernel::keep_untold);
    }

    /// Tells what has happened since the last step. Who is told may add others, which are told from
    /// the next step on.
    fn tell(&self) {
        let mut observers = self.observers.take();
        for step in kernel(Kernel::take_untold) {
            kernel(|kernel| kernel.calls(Call::Observer));
            observers.iter_mut().for_each(|it| it(&step));
        }
        let mut all = self.observers.borrow_mut();
        observers.append(&mut all);
        *all = observers;
    }

    /// After each step and event, which was at that time.
    fn check(&self, now: u64) {
        if self.has_observers.get() {
            self.tell();
        }
        let calls = || self.progress.begin(None, Call::Condition, now);
        self.always.try_each(|it| {
            calls();
            let holds = it.holds();
            if !holds {
                let cause = format!("always {:?}", it.name);
                let why = it.why_or("it does not hold");
                kernel::fail_because(&cause, None, || format!("{cause}: {why}"));
            }
            holds
        });
        self.sometimes.find_out(calls);
        if self.quiet_since.get().is_some() {
            self.eventually.find_out(calls);
        }
    }

    fn check_at_end(&self) {
        let mut all = self.eventually.take();
        if let Some(check) =
            (all.iter_mut()).find_map(|it| (!it.was_true && !it.holds()).then_some(it))
        {
            self.fail(format!(
                "eventually {:?}: it was not true when the test ended",
                check.name
            ));
        }
        if let Some(words) = forgotten(&self.histories.borrow()) {
            kernel::fail_because("a history was not checked", None, || words);
        }
    }

    pub(super) fn fail(&self, reason: String) {
        kernel::fail(|| reason);
    }

    /// What each process is doing, for the report of a failure.
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        let hosts = self.hosts.borrow();
        for (index, slot) in hosts.iter().enumerate().take(MOST_TOLD) {
            let (name, state, sockets) = kernel(|kernel| {
                let state = match (slot.process, kernel.is_up(index)) {
                    (Some(_), _) if self.has_ended.get() => "its process ran when the test ended",
                    (None, _) if self.has_ended.get() => "no process",
                    (_, false) => "powered off",
                    (Some(_), _) if kernel.is_paused(index) => "paused",
                    (Some(_), _) => "running",
                    (None, _) => "no process",
                };
                let sockets = slot.process.map(|it| kernel.describe_sockets(it));
                let name = kernel.host_name(index).to_owned();
                (name, state, sockets.unwrap_or_default())
            });
            let _ = writeln!(text, "    {name}: {state}");
            if let Some(error) = &slot.error {
                let _ = writeln!(text, "      its process has returned an error: {error}");
            }
            let processes = self.processes.borrow();
            let runtime = slot.process.and_then(|it| processes[it].as_ref());
            // By the clock of its host.
            kernel(|kernel| kernel.set_current(slot.process));
            let lines = runtime.map_or(Vec::new(), |it| it.dump().in_a_world());
            kernel(|kernel| kernel.set_current(None));
            for line in lines {
                let _ = writeln!(text, "      {line}");
            }
            for socket in sockets {
                let _ = writeln!(text, "      socket {socket}");
            }
        }
        if let Some(more) = hosts.len().checked_sub(MOST_TOLD).filter(|it| *it > 0) {
            let _ = writeln!(text, "    and {more} hosts more");
        }
        text
    }

    /// Ends all processes, without a word on the network. (A panic that a task has ended with may
    /// come to light by this.)
    pub(super) fn end_processes(&self) {
        self.has_ended.set(true);
        kernel::with(|kernel| (0..kernel.hosts()).for_each(|host| kernel.power_off(host)));
        let count = self.processes.borrow().len();
        for process in 0..count {
            self.drop_process(process, true);
        }
        #[cfg(feature = "blocking")]
        kernel::as_killed(|| {
            let jobs = kernel::with(Kernel::take_blocking).unwrap_or_default();
            jobs.into_iter().for_each(|job| contain(|| drop(job)));
        });
    }

    /// Ends the world.
    pub(super) fn end(&self) {
        self.end_processes();
        // These are foreign code's, of a test that has ended.
        kernel::as_killed(|| {
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
