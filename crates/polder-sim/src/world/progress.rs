//! Progress of a world, read by its watchdog.
//!
//! The world's thread writes it whenever it calls foreign code, several times in each step: so
//! these are plain stores, and the site of a task is read from its worker, which shows it already.
//! The watchdog reads a few times per second, and a reading may mix two calls if one begins
//! meanwhile. It acts only on a call that has lasted for seconds, during which nothing is written:
//! the call's number is the same as before, and the values read then all belong to this call.

use std::fmt;
use std::panic::Location;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::lock::lock;

#[derive(Default)]
pub(crate) struct Progress {
    /// The number of calls that have begun. Written first, so that it is at least as new as the
    /// other fields.
    calls: AtomicU64,
    /// The kind of call, by its place in [`Call::ALL`] counted from one; zero, if there was none.
    call: AtomicU64,
    /// The process's number plus one; zero, if the call is of no process.
    process: AtomicU64,
    at: AtomicU64,
    /// By number: the host that each process runs on, and the task that it polls.
    processes: Mutex<Vec<(String, Option<Site>)>>,
}

/// Returns the site at which the task was spawned that a process polls now, if it polls any.
pub(crate) type Site = Box<dyn Fn() -> Option<&'static Location<'static>> + Send>;

/// Foreign code that a world calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// The function of the test, which creates its future.
    Test,
    /// A poll of a task.
    Poll,
    /// A function that was given to `unblock`.
    Unblock,
    /// A condition of the test.
    Condition,
    /// A function that observes the events.
    Observer,
    /// Destructors of the remains of a process.
    Drop,
}

impl Call {
    const ALL: [Call; 6] = [
        Call::Test,
        Call::Poll,
        Call::Unblock,
        Call::Condition,
        Call::Observer,
        Call::Drop,
    ];
}

/// The last call that has begun.
#[derive(Debug)]
pub(crate) struct LastCall {
    /// The call's index.
    pub(crate) nth: u64,
    pub(crate) host: Option<String>,
    call: Call,
    /// The task's site, if the call is a poll.
    site: Option<&'static Location<'static>>,
    /// The time in the world, in nanoseconds.
    pub(crate) at: u64,
}

impl fmt::Display for LastCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.call, self.site) {
            (Call::Test, _) => f.write_str("the function of the test"),
            (Call::Poll, Some(site)) => write!(f, "a poll of the task spawned at {site}"),
            (Call::Poll, None) => f.write_str("a poll of a task"),
            (Call::Unblock, _) => f.write_str("a function that was given to `unblock`"),
            (Call::Condition, _) => f.write_str("a condition of the test"),
            (Call::Observer, _) => f.write_str("a function given to Sim::on_event"),
            (Call::Drop, _) => f.write_str("a destructor, after the end of a process"),
        }
    }
}

impl Progress {
    /// Adds a process on the host of this name. It gets the next number.
    pub(crate) fn add_process(&self, host: &str, site: Site) {
        let mut processes = lock(&self.processes);
        processes.push((host.to_owned(), Some(site)));
    }

    /// Notes that a process is dropped, and polls nothing any more.
    pub(crate) fn end_process(&self, process: usize) {
        if let Some(process) = lock(&self.processes).get_mut(process) {
            process.1 = None;
        }
    }

    /// Notes that a call begins, of a process or of none. Called on the world's thread.
    #[inline]
    pub(crate) fn begin(&self, process: Option<usize>, call: Call, at: u64) {
        self.go_on();
        let process = process.map_or(0, |number| number as u64 + 1);
        self.call.store(call as u64 + 1, Ordering::Release);
        self.process.store(process, Ordering::Release);
        self.at.store(at, Ordering::Release);
    }

    /// Notes progress of the last call, which runs other worlds itself. Called on the world's
    /// thread.
    #[inline]
    pub(crate) fn go_on(&self) {
        let calls = self.calls.load(Ordering::Relaxed);
        self.calls.store(calls + 1, Ordering::Release);
    }

    /// Returns the last call; `None` if there was none, or if another one has begun meanwhile.
    pub(crate) fn last(&self) -> Option<LastCall> {
        let nth = self.calls.load(Ordering::Acquire);
        let [call, process, at] =
            [&self.call, &self.process, &self.at].map(|value| value.load(Ordering::Acquire));
        let call = *Call::ALL.get((call as usize).checked_sub(1)?)?;
        let processes = lock(&self.processes);
        let process = (process as usize).checked_sub(1);
        let process = process.and_then(|number| processes.get(number));
        let last = LastCall {
            nth,
            host: process.map(|process| process.0.clone()),
            call,
            site: process.and_then(|process| process.1.as_ref()?()),
            at,
        };
        (self.calls.load(Ordering::Acquire) == nth).then_some(last)
    }
}
