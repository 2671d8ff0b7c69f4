//! Runtimes of a kernel that is not the system's: each worker has a poller of the kernel, and a
//! foreign loop drives all workers of all runtimes on one thread, one task a turn.

use std::future::Future;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

use super::{Runtime, spawn_local_on};
use crate::diagnostics::TaskState;
use crate::kernel;
use crate::poller::Poller;
use crate::scheduler::{BusyPollConfig, Shared, Worker};

impl Runtime {
    /// Makes a runtime with these pollers. The last one is the main worker's. If there are several,
    /// the first is the pool's, and the others are the pool workers'.
    pub(crate) fn of_kernel(pollers: Vec<Box<dyn kernel::Poller>>) -> Runtime {
        let mut own: Vec<_> = pollers.into_iter().map(Poller::of_kernel).collect();
        let main = own.pop().expect("every process has a main worker");
        let mut shards = Vec::new();
        if !own.is_empty() {
            let of_pool = own.remove(0);
            shards.push((of_pool, own.into_iter().map(Some).collect::<Vec<_>>()));
        }
        let pool_workers = shards.iter().map(|(_, own)| own.len()).sum();
        let mut shared = Shared::new(shards, main);
        shared.is_on_one_thread = true;
        let shared = Arc::new(shared);
        let busy_poll = BusyPollConfig::default();
        let mut runtime = Runtime::from_shared(shared.clone(), busy_poll);
        let worker = |index| Rc::new(Worker::new(shared.clone(), index, busy_poll));
        runtime.embedded = (0..pool_workers).map(worker).collect();
        runtime
            .workers_here()
            .for_each(|worker| worker.run_by_choice());
        runtime
    }

    /// Returns where the tasks other than the running one were spawned.
    pub(crate) fn other_sites(&self) -> Vec<&'static Location<'static>> {
        let tasks = self.dump().tasks.into_iter();
        let others = tasks.filter(|task| task.id.is_some() && task.state != TaskState::Running);
        others.map(|task| task.spawned_at).collect()
    }

    /// [`spawn_local`](Self::spawn_local), detached, for the caller at `site`.
    pub(crate) fn spawn_main<F>(&self, future: F, site: &'static Location<'static>)
    where
        F: Future<Output = ()> + 'static,
    {
        // SAFETY: a runtime stays on the thread of its worker.
        unsafe { spawn_local_on(&self.worker.local, future, site) }.detach();
    }

    /// Describes the tasks, in lines. The hints of a later dump are those that it would have
    /// without this one.
    pub(crate) fn describe(&self) -> Vec<String> {
        let earlier = self.shared().earlier.lock().clone();
        let dump = self.dump();
        *self.shared().earlier.lock() = earlier;
        dump.in_a_world()
    }
}
