//! Calls given to `unblock`: in a world they run inline, after a delay, as there is only one
//! thread.
//!
//! The kernel keeps them for that time, and then passes them to the world, which runs them: they
//! are foreign code. Calls of a process that has ended are dropped without running; those of a
//! paused process wait.

use std::collections::BTreeMap;
use std::sync::Arc;

use polder::kernel::BlockingCall;

use super::choice::Stream;
use super::core::Core;
use super::event_queue::{Event, PendingCall};
use super::faults::Kind;
use super::latency::Latency;
use super::trace_event::TraceEvent;

/// The default delay: about what a thread of the pool takes to wake up.
const DEFAULT: Latency = Latency::new(5_000, 95_001);

/// The calls of all processes that are not scheduled, and the delays of those that come.
#[derive(Default)]
pub(crate) struct Calls {
    /// By host; those that were asked for.
    delays: BTreeMap<usize, Delays>,
    /// Calls that are due, and wait for the end of a pause.
    stalled: Vec<PendingCall>,
}

/// The delays before a host's calls begin.
pub(crate) struct Delays {
    pub(crate) latency: Latency,
    stream: Stream,
}

impl Calls {
    pub(crate) fn delays_of(&mut self, host: usize, seed: u64) -> &mut Delays {
        self.delays.entry(host).or_insert_with(|| Delays {
            latency: DEFAULT,
            stream: Stream::new(seed, "blocking", host, 0),
        })
    }

    fn draw_delay(&mut self, host: usize, core: &mut Core) -> u64 {
        let Delays { latency, stream } = self.delays_of(host, core.seed);
        let delay = latency.draw(stream, core.is_calm);
        delay.saturating_add(core.delay_by_fault(host, Kind::Blocking))
    }

    /// Keeps a call of the running process until its delay is over. Gives the call back if there is
    /// no such process.
    pub(crate) fn submit(
        &mut self,
        job: Arc<dyn BlockingCall>,
        core: &mut Core,
    ) -> Option<Arc<dyn BlockingCall>> {
        let Ok((host, process)) = core.processes.here() else {
            return Some(job);
        };
        let delay = self.draw_delay(host, core);
        core.note(host, TraceEvent::Blocking(delay));
        let at = core.time.now().saturating_add(delay);
        let call = Box::new(PendingCall { process, job });
        core.events.push(at, Event::Blocking(call));
        None
    }

    /// Takes all calls that have not begun, at the end of the world.
    pub(crate) fn take_all(&mut self, core: &mut Core) -> Vec<Arc<dyn BlockingCall>> {
        self.stalled.sort_by_key(|call| call.process);
        let stalled = std::mem::take(&mut self.stalled).into_iter();
        let mut jobs: Vec<_> = stalled.map(|call| call.job).collect();
        jobs.extend(core.events.take_blocking());
        jobs
    }

    /// Handles a call that is due: returns it, unless its process is paused.
    pub(super) fn begin(&mut self, call: PendingCall, core: &Core) -> Option<PendingCall> {
        let host = core.processes.host_of(call.process);
        if core.processes.is_alive(call.process) && core.processes.is_paused(host) {
            self.stalled.push(call);
            return None;
        }
        Some(call)
    }

    /// Reschedules calls that became due while their process was paused, ordered by process.
    pub(super) fn resume(&mut self, core: &mut Core) {
        self.stalled.sort_by_key(|call| call.process);
        for call in std::mem::take(&mut self.stalled) {
            let host = core.processes.host_of(call.process);
            if core.processes.is_paused(host) {
                self.stalled.push(call);
            } else {
                let now = core.time.now();
                core.events.push(now, Event::Blocking(Box::new(call)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl BlockingCall for Nothing {
        fn run(&self) {}
    }

    /// A call that is due in a pause waits for its end.
    #[test]
    fn call_due_in_pause_waits_for_its_end() {
        let (mut calls, mut core) = (Calls::default(), Core::of_test(1));
        let host = core.add_host("host");
        core.start(host);
        let call = |process| PendingCall {
            process,
            job: Arc::new(Nothing),
        };
        assert!(calls.begin(call(0), &core).is_some(), "nothing is paused");
        let pause = core.pause(host);
        assert!(calls.begin(call(0), &core).is_none());
        calls.resume(&mut core);
        assert_eq!(calls.stalled.len(), 1, "it is still paused");
        core.processes.end_pause(pause);
        calls.resume(&mut core);
        assert!(calls.stalled.is_empty());
        assert_eq!(calls.take_all(&mut core).len(), 1, "it is scheduled");
    }
}
