//! The signals of a process: those that it catches, and how often each has arrived.

use std::collections::BTreeMap;
use std::io;

use super::Kernel;
use super::trace::What;

/// The process of a world to which a listener belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    world: u32,
    process: usize,
}

/// The counts by signal number, from the moment it is caught.
pub(super) type Counts = BTreeMap<usize, u64>;

/// Makes the running process catch these signals from now on. `None` outside of a world.
pub(crate) fn catch(numbers: impl Iterator<Item = usize>) -> Option<io::Result<Owner>> {
    super::with(|kernel| {
        let (_, process) = kernel.here()?;
        for number in numbers {
            kernel.processes[process].signals.entry(number).or_default();
        }
        Ok(Owner {
            world: kernel.world,
            process,
        })
    })
}

impl Owner {
    /// Returns how often a signal has arrived. Zero on another thread, where no signal arrives.
    pub(crate) fn count(self, number: usize) -> u64 {
        let count = super::with(|kernel| {
            if kernel.world == self.world {
                kernel.processes[self.process].signals.get(&number).copied()
            } else {
                None
            }
        });
        count.flatten().unwrap_or(0)
    }
}

impl Kernel {
    /// Delivers a signal to a process. Returns the owner of the listeners to wake, if the signal is
    /// caught.
    pub(crate) fn signal(&mut self, process: usize, number: usize) -> Option<Owner> {
        let state = &mut self.processes[process];
        let host = state.host;
        let count = state.signals.get_mut(&number).map(|it| *it += 1);
        self.note(host, What::Signal(number as u64));
        count.map(|()| Owner {
            world: self.world,
            process,
        })
    }
}
