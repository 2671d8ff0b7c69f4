//! The signals of a process: those that it catches, and how often each has arrived.

use std::io;

use super::core::Core;
use super::thread::{with, with_world};
use super::trace_event::TraceEvent;

/// The process of a world to which a listener belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    world: u32,
    process: usize,
}

/// Makes the running process catch these signals from now on. `None` outside of a world.
pub(crate) fn catch(numbers: impl Iterator<Item = usize>) -> Option<io::Result<Owner>> {
    with(|kernel| {
        let core = &mut kernel.core;
        let (_, process) = core.processes.here()?;
        for number in numbers {
            core.processes.signals(process).entry(number).or_default();
        }
        Ok(Owner {
            world: core.world,
            process,
        })
    })
}

impl Owner {
    /// Returns how often a signal has arrived. Zero on another thread, where no signal arrives.
    pub(crate) fn count(self, number: usize) -> u64 {
        let count = with_world(self.world, |kernel| {
            let signals = kernel.core.processes.signals(self.process);
            signals.get(&number).copied()
        });
        count.flatten().unwrap_or(0)
    }
}

impl Core {
    /// Delivers a signal to a process. Returns the owner of the listeners to wake, if the signal is
    /// caught.
    pub(crate) fn signal(&mut self, process: usize, number: usize) -> Option<Owner> {
        let count = self.processes.signals(process).get_mut(&number);
        let caught = count.map(|count| *count += 1);
        self.note(
            self.processes.host_of(process),
            TraceEvent::Signal(number as u64),
        );
        caught.map(|()| Owner {
            world: self.world,
            process,
        })
    }
}
