//! Calls given to `unblock`: in a world they run inline, after a delay, as there is only one
//! thread.
//!
//! The kernel keeps them for that time, and then passes them to the world, which runs them: they
//! are foreign code. Calls of a process that has ended are dropped without running; those of a
//! paused process wait.

use std::sync::Arc;

use super::choice::Stream;
use super::latency::Latency;
use super::trace::What;
use super::{Event, Kernel};
use crate::pool::Job;

/// The default delay: about what a thread of the pool takes to wake up.
const DEFAULT: Latency = Latency::new(5_000, 95_001);

/// The delays before a host's calls begin.
pub(super) struct Delays {
    pub(super) latency: Latency,
    stream: Stream,
}

impl Delays {
    pub(super) fn new(seed: u64, host: usize) -> Delays {
        Delays {
            latency: DEFAULT,
            stream: Stream::new(seed, "blocking", host, 0),
        }
    }
}

/// A call of a process, scheduled in the queue of events.
pub(super) struct PendingCall {
    pub(super) process: usize,
    pub(super) job: Arc<dyn Job>,
}

/// A call that is due, and its process.
pub(crate) struct Due {
    pub(crate) process: usize,
    pub(crate) job: Arc<dyn Job>,
    pub(crate) is_alive: bool,
}

/// Keeps a call of the running process until its delay is over. Gives the call back if there is no
/// such process.
pub(crate) fn submit(job: Arc<dyn Job>) -> Option<Arc<dyn Job>> {
    let mut job = Some(job);
    super::with(|kernel| {
        let Ok((host, process)) = kernel.here() else {
            return;
        };
        let delays = &mut kernel.hosts[host].delays;
        let latency = delays.latency;
        let drawn = latency.draw(&mut delays.stream);
        let delay = kernel.drawn_or_mean(drawn, latency);
        let delay = delay.saturating_add(kernel.blocks_for(host));
        kernel.note(host, What::Blocking(delay));
        if let Some(job) = job.take() {
            let at = kernel.now.saturating_add(delay);
            kernel.push(at, Event::Blocking(Box::new(PendingCall { process, job })));
        }
    });
    job
}

impl Kernel {
    pub(crate) fn set_blocking(&mut self, host: usize, latency: Latency) {
        self.hosts[host].delays.latency = latency;
    }

    /// Takes all calls that have not begun, at the end of the world.
    pub(crate) fn take_blocking(&mut self) -> Vec<Arc<dyn Job>> {
        let stalled = self.processes.iter_mut();
        let mut jobs: Vec<_> = stalled
            .flat_map(|it| std::mem::take(&mut it.stalled))
            .collect();
        jobs.extend(self.events.take_blocking());
        jobs
    }

    /// Handles a call that is due: returns it, unless its process is paused.
    pub(super) fn begin_blocking(&mut self, call: PendingCall) -> Option<Due> {
        let PendingCall { process, job } = call;
        let state = &self.processes[process];
        let (host, is_alive) = (state.host, state.is_alive);
        if is_alive && self.is_paused(host) {
            self.processes[process].stalled.push(job);
            return None;
        }
        Some(Due {
            process,
            job,
            is_alive,
        })
    }

    /// Reschedules calls that became due while their process was paused.
    pub(super) fn resume_blocking(&mut self) {
        for process in 0..self.processes.len() {
            if !self.is_paused(self.processes[process].host) {
                for job in std::mem::take(&mut self.processes[process].stalled) {
                    let call = Box::new(PendingCall { process, job });
                    self.push(self.now, Event::Blocking(call));
                }
            }
        }
    }
}
