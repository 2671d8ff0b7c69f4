//! [`CustomRuntime`]: a runtime of a kernel that is not the system's. Each worker has a poller of
//! the kernel, and a foreign loop drives all workers of all such runtimes on one thread, with as
//! many tasks a turn as it likes. Unstable, as [`kernel`] is.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Runtime, spawn_local_in};
use crate::blocking::{Class, POOL};
use crate::clock;
use crate::diagnostics::TaskState;
use crate::kernel;
use crate::poller::Poller;
use crate::scheduler::{BusyPollConfig, Shared, Worker};

/// A runtime of a kernel. Dropping it drops its workers' tasks.
#[derive(Debug)]
pub struct CustomRuntime(Runtime);

impl CustomRuntime {
    /// Makes a runtime with these pollers. The last one is the main worker's. Of several, the first
    /// is the pool's, and the others are the pool workers'.
    ///
    /// # Panics
    ///
    /// If there is no poller.
    pub fn new(pollers: Vec<Box<dyn kernel::Poller>>) -> CustomRuntime {
        let mut own: Vec<_> = pollers.into_iter().map(Poller::custom).collect();
        let main = own.pop().expect("every process has a main worker");
        let mut shards = Vec::new();
        if !own.is_empty() {
            let of_pool = own.remove(0);
            shards.push((of_pool, own.into_iter().map(Some).collect::<Vec<_>>()));
        }
        let pool_workers = shards.iter().map(|(_, own)| own.len()).sum();
        let mut shared = Shared::with_pool(shards, main);
        shared.is_on_one_thread = true;
        let shared = Arc::new(shared);
        let worker = |index| Worker::with(shared.clone(), index, BusyPollConfig::default());
        let mut runtime = Runtime::with_worker(worker(shared.main_index()));
        runtime.embedded = (0..pool_workers)
            .map(|index| Rc::new(worker(index)))
            .collect();
        runtime.workers_here().for_each(|worker| worker.embed());
        CustomRuntime(runtime)
    }

    /// Returns the workers of the pool, and last the main worker.
    pub fn workers(&self) -> impl Iterator<Item = CustomWorker> {
        (self.0.workers_here().cloned()).map(CustomWorker)
    }

    /// Calls `f` with the main worker as this thread's current one, as in its turns.
    pub fn within<R>(&self, f: impl FnOnce() -> R) -> R {
        let _driving = self.0.worker.drive();
        f()
    }

    /// Returns how much of the runtime's coarse unit of time has passed at `time`. Ages in a dump
    /// depend on it, so a kernel that repeats a run begins it with the same part.
    pub fn part_of_jiffy(time: Instant) -> Duration {
        clock::since_jiffy(clock::jiffy(time), time)
    }

    /// [`spawn_local`](Runtime::spawn_local), detached, for the caller at `site`.
    pub fn spawn_main<F>(&self, future: F, site: &'static Location<'static>)
    where
        F: Future<Output = ()> + 'static,
    {
        // SAFETY: a runtime stays on the thread of its worker.
        unsafe { spawn_local_in(&self.0.worker.local, future, site.into()) }.detach();
    }

    /// Returns the spawn sites of all tasks but the running one.
    pub fn other_sites(&self) -> Vec<&'static Location<'static>> {
        let tasks = self.0.dump().tasks.into_iter();
        let others = tasks.filter(|task| task.id.is_some() && task.state != TaskState::Running);
        others.map(|task| task.spawned_at).collect()
    }

    /// Describes the tasks, in lines. Does not affect the hints of later dumps.
    pub fn describe(&self) -> Vec<String> {
        let earlier = self.0.shared().earlier.lock().clone();
        let dump = self.0.dump();
        *self.0.shared().earlier.lock() = earlier;
        dump.in_a_world()
    }
}

/// Calls `f` on the thread pool, whatever kernel this thread has: soon, also if the future is not
/// polled, or dropped. Name lookups have threads of their own, as without a kernel.
///
/// # Errors
///
/// There is no thread. The output is an error if `f` panics, and in a child of `fork`.
pub fn on_thread<T: Send + 'static>(
    is_lookup: bool,
    f: impl FnOnce() -> T + Send + 'static,
) -> io::Result<impl Future<Output = io::Result<T>> + Send> {
    let class = if is_lookup {
        Class::Lookup
    } else {
        Class::Call
    };
    let call = POOL.get().call(class, f)?.detached();
    Ok(poll_fn(move |cx| call.poll_output(cx)))
}

/// A worker of a [`CustomRuntime`]. It may outlive the runtime, and then has no tasks.
#[derive(Clone)]
pub struct CustomWorker(Rc<Worker>);

impl CustomWorker {
    /// Polls the kernel, and runs a turn of one task.
    pub fn turn(&self) {
        self.turn_of(1);
    }

    /// Polls the kernel, and runs a turn of at most `tasks` tasks.
    pub fn turn_of(&self, tasks: usize) {
        self.0.turn_of(tasks);
    }

    /// Returns a function that returns the spawn site of the task that the worker polls, if any.
    /// Any thread may call it at any time.
    pub fn running_site(&self) -> impl Fn() -> Option<&'static Location<'static>> + Send + use<> {
        let counters = self.0.local.counters.clone();
        move || counters.task().map(|(_, site)| site)
    }
}

impl fmt::Debug for CustomWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomWorker").finish_non_exhaustive()
    }
}
