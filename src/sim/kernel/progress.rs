//! What a world is at, for the thread that waits for its end.
//!
//! Written by the world's thread at each poll of a task, and read by the other one a few times in a
//! second: so the lock is hardly ever contended.

use std::panic::Location;

use crate::sync::Mutex;

#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    hosts: Vec<String>,
    polls: u64,
    last: Option<(usize, &'static Location<'static>, u64)>,
}

/// The last poll that has begun.
#[derive(Debug)]
pub(crate) struct Poll {
    /// How manieth it was.
    pub(crate) nth: u64,
    pub(crate) host: String,
    /// Where the task was spawned.
    pub(crate) site: &'static Location<'static>,
    /// The time in the world, in nanoseconds.
    pub(crate) at: u64,
}

impl Progress {
    pub(super) fn add_host(&self, name: &str) {
        self.0.lock().hosts.push(name.to_owned());
    }

    /// A poll begins.
    pub(super) fn begin(&self, host: usize, site: &'static Location<'static>, at: u64) {
        let mut state = self.0.lock();
        state.polls += 1;
        state.last = Some((host, site, at));
    }

    pub(crate) fn poll(&self) -> Option<Poll> {
        let state = self.0.lock();
        let (host, site, at) = state.last?;
        Some(Poll {
            nth: state.polls,
            host: state.hosts.get(host).cloned().unwrap_or_default(),
            site,
            at,
        })
    }
}
