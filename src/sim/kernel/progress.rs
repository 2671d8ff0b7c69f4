//! Progress of a world, read by its watchdog.
//!
//! Written by the world's thread whenever it calls foreign code, and read by the watchdog a few
//! times in a second: so the lock is hardly ever contended.

use std::fmt;
use std::panic::Location;

use crate::sync::Mutex;

#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    hosts: Vec<String>,
    calls: u64,
    last: Option<(Option<usize>, Call, u64)>,
}

/// Foreign code that a world calls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    /// The function of the test, which makes its future.
    Test,
    /// A poll of the task that was spawned there.
    Poll(&'static Location<'static>),
    /// A function that was given to `unblock`.
    #[cfg_attr(not(feature = "blocking"), allow(dead_code))]
    Unblock,
    /// A condition of the test.
    Condition,
    /// Destructors of what a process has left.
    Drop,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Call::Test => f.write_str("the function of the test"),
            Call::Poll(site) => write!(f, "a poll of the task spawned at {site}"),
            Call::Unblock => f.write_str("a function that was given to `unblock`"),
            Call::Condition => f.write_str("a condition of the test"),
            Call::Drop => f.write_str("a destructor, after the end of a process"),
        }
    }
}

/// The last call that has begun.
#[derive(Debug)]
pub(crate) struct LastCall {
    /// Its index.
    pub(crate) nth: u64,
    pub(crate) host: Option<String>,
    pub(crate) call: Call,
    /// The time in the world, in nanoseconds.
    pub(crate) at: u64,
}

impl Progress {
    pub(super) fn add_host(&self, name: &str) {
        self.0.lock().hosts.push(name.to_owned());
    }

    /// A call begins, of a host's.
    pub(super) fn begin(&self, host: Option<usize>, call: Call, at: u64) {
        let mut state = self.0.lock();
        state.calls += 1;
        state.last = Some((host, call, at));
    }

    /// The last call has got on: worlds that it runs by itself.
    pub(crate) fn go_on(&self) {
        self.0.lock().calls += 1;
    }

    pub(crate) fn last(&self) -> Option<LastCall> {
        let state = self.0.lock();
        let (host, call, at) = state.last?;
        Some(LastCall {
            nth: state.calls,
            host: host.and_then(|it| state.hosts.get(it).cloned()),
            call,
            at,
        })
    }
}
