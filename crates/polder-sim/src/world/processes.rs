//! [`Processes`]: the processes of a world, by number: which of them runs, and which hosts are
//! paused.
//!
//! A process belongs to one host, and has one poller for each of its workers. One that has ended
//! stays in the list, so that numbers are not reused. Only the loop that drives the world changes
//! which process is the running one.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use super::errno::unsupported;
use super::order::{Order, Queue};

#[derive(Default)]
pub(crate) struct Processes {
    list: Vec<Process>,
    /// The running process.
    pub(super) current: Option<usize>,
    /// The number of workers of each process that starts from now on, by its host; by `None` that
    /// of hosts without a setting of their own.
    workers: BTreeMap<Option<usize>, usize>,
    /// The pauses in effect, of which a host may have several; and how many pauses there have been.
    pub(super) pauses: Vec<(PauseId, usize)>,
    pauses_begun: u32,
    /// The number of ids that were given to tasks of any process.
    tasks: u64,
}

struct Process {
    host: usize,
    is_alive: bool,
    /// The places of the process's pollers; the last one is the main worker's.
    pollers: Range<usize>,
    /// Chooses the next of the tasks that no pool worker has taken, if the process has a pool.
    injected: Option<Box<Queue>>,
    signals: Counts,
}

/// Names a pause of a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PauseId(u32);

/// The error of a call by a process that has ended.
pub(super) fn has_ended() -> io::Error {
    io::Error::other("the process of this host has ended")
}

impl Processes {
    /// Returns the number of the process that is added next.
    pub(super) fn count(&self) -> usize {
        self.list.len()
    }

    pub(super) fn add(&mut self, host: usize, pollers: Range<usize>, injected: Option<Box<Queue>>) {
        self.list.push(Process {
            host,
            is_alive: true,
            pollers,
            injected,
            signals: Counts::new(),
        });
    }

    /// Notes that a process has ended. Returns `false` if it had ended before.
    pub(super) fn end(&mut self, process: usize) -> bool {
        std::mem::replace(&mut self.list[process].is_alive, false)
    }

    /// Returns the current host and the running process.
    pub(super) fn here(&self) -> io::Result<(usize, usize)> {
        match self.current {
            Some(process) if self.list[process].is_alive => Ok((self.list[process].host, process)),
            Some(_) => Err(has_ended()),
            None => Err(unsupported("the network outside of a host's process")),
        }
    }

    /// Returns the current host: that of the running process.
    pub(super) fn current_host(&self) -> Option<usize> {
        self.current.map(|process| self.list[process].host)
    }

    pub(crate) fn is_alive(&self, process: usize) -> bool {
        self.list[process].is_alive
    }

    pub(crate) fn host_of(&self, process: usize) -> usize {
        self.list[process].host
    }

    /// Returns the numbers of a process's pollers.
    pub(crate) fn pollers_of(&self, process: usize) -> Range<usize> {
        self.list[process].pollers.clone()
    }

    /// Returns the pollers of the processes that are alive on a host.
    pub(super) fn pollers_on(&self, host: usize) -> impl Iterator<Item = usize> {
        let here = self.list.iter();
        let alive = here.filter(move |process| process.host == host && process.is_alive);
        alive.flat_map(|process| process.pollers.clone())
    }

    /// Sets the number of workers of a host's next process, or of all hosts' if none is named.
    pub(crate) fn set_workers(&mut self, host: Option<usize>, workers: usize) {
        self.workers.insert(host, workers);
    }

    pub(super) fn workers(&self, host: usize) -> usize {
        let own = self.workers.get(&Some(host));
        own.or(self.workers.get(&None)).copied().unwrap_or(1)
    }

    pub(super) fn pause(&mut self, host: usize) -> PauseId {
        let id = PauseId(self.pauses_begun);
        self.pauses_begun += 1;
        self.pauses.push((id, host));
        id
    }

    /// Ends a pause, and returns its host. `None` if it has ended before.
    pub(super) fn end_pause(&mut self, id: PauseId) -> Option<usize> {
        let place = self.pauses.iter().position(|pause| pause.0 == id)?;
        Some(self.pauses.swap_remove(place).1)
    }

    pub(crate) fn is_paused(&self, host: usize) -> bool {
        self.pauses.iter().any(|pause| pause.1 == host)
    }

    pub(super) fn set_order(&mut self, order: Order) {
        let injected = self.list.iter_mut();
        let injected = injected.filter_map(|process| process.injected.as_mut());
        injected.for_each(|queue| queue.set(order));
    }

    /// Chooses the next of the tasks that no pool worker of the running process has taken yet.
    pub(super) fn choose_injected(
        &mut self,
        count: usize,
        ready: impl Iterator<Item = u64> + Clone,
    ) -> usize {
        let process = self.current.map(|process| &mut self.list[process]);
        let injected = process.and_then(|process| process.injected.as_mut());
        injected.map_or(0, |injected| injected.choose(count, ready))
    }

    /// Returns the id of a new task: a world has its own counter.
    pub(crate) fn take_task_id(&mut self) -> u64 {
        self.tasks += 1;
        self.tasks
    }

    /// The signals that a process catches.
    pub(super) fn signals(&mut self, process: usize) -> &mut Counts {
        &mut self.list[process].signals
    }
}

/// The counts by signal number, from the moment it is caught.
pub(super) type Counts = BTreeMap<usize, u64>;

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls are those of the running process until it ends.
    #[test]
    fn calls_belong_to_running_process() {
        let mut processes = Processes::default();
        for host in [3, 4] {
            let first = processes.count() * 2;
            processes.add(host, first..first + 2, None);
        }
        assert!(processes.here().is_err() && processes.current_host().is_none());
        processes.current = Some(1);
        assert_eq!(processes.here().ok(), Some((4, 1)));
        assert_eq!(processes.pollers_on(4).collect::<Vec<_>>(), [2, 3]);
        assert_eq!([processes.end(1), processes.end(1)], [true, false]);
        assert_eq!(
            processes.here().unwrap_err().to_string(),
            has_ended().to_string()
        );
        assert_eq!(
            (processes.current_host(), processes.host_of(1)),
            (Some(4), 4)
        );
        assert_eq!(processes.pollers_on(4).count(), 0);
    }

    #[test]
    fn a_host_is_paused_until_its_last_pause_ends() {
        let mut processes = Processes::default();
        let [one, other] = [(); 2].map(|()| processes.pause(5));
        assert_eq!(processes.end_pause(one), Some(5));
        assert!(processes.is_paused(5) && !processes.is_paused(6));
        assert_eq!(processes.end_pause(one), None, "it has ended before");
        assert_eq!(processes.end_pause(other), Some(5));
        assert!(processes.pauses.is_empty());
        let third = processes.pause(6);
        processes.pauses.clear();
        assert_eq!(processes.end_pause(third), None);
    }

    #[test]
    fn a_host_may_have_its_own_number_of_workers() {
        let mut processes = Processes::default();
        assert_eq!(processes.workers(0), 1);
        processes.set_workers(Some(0), 3);
        processes.set_workers(None, 2);
        assert_eq!((processes.workers(0), processes.workers(1)), (3, 2));
    }
}
