//! The workers' part in the shutdown of a runtime: see [`closing`](super::closing).

use std::thread::JoinHandle;
use std::time::Duration;

use super::closing::{ClosingWorkers, drop_all_tasks};
use super::spawn;
use super::worker::Worker;
use crate::clock::now;
use crate::reactor::Driver;
use crate::sync::atomic::{Ordering, fence};
use crate::sync::contain;

impl Worker {
    pub(super) fn leave(&self) {
        let shared = &**self.shared();
        // Reads the flag, then the inbox; see `Shared::unpark_main_if_closing`.
        fence(Ordering::SeqCst);
        self.drop_tasks();
        if shared.record_leaving() {
            // No pool worker polls a task any more.
            self.close_pool();
            // After a failure the main worker may come much later.
            shared.wake_stealable_tasks();
            self.drop_stealable_tasks();
            self.drop_tasks();
        }
    }

    /// Closes the runtime on the main worker: drops every task, and joins the `threads` of the pool
    /// workers. Sockets and timers that are used elsewhere move there. Handles keep the memory and
    /// the pollers alive.
    pub(crate) fn close(&self, threads: Vec<JoinHandle<()>>) {
        self.embedded.set(false);
        let _driving = self.drive();
        self.drop_all_tasks();
        for thread in threads {
            let _ = thread.join(); // Its loop has ended.
        }
        // Like the tasks: dropped while the worker is current, and before its reactor closes. No
        // task or worker has a clone of it any more.
        let resolver = self.shared().resolver.lock().take();
        contain(|| drop(resolver));
        self.driver.close();
        // The last pool worker to leave has done this, unless none was started.
        self.close_pool();
    }

    fn close_pool(&self) {
        for reactor in self.shared().pool_reactors() {
            if !reactor.is_closed() {
                Driver::new(reactor.clone(), self.local.counters.clone()).close();
            }
        }
    }

    /// Returns when all tasks are dropped; reactors and threads are left. Called on the main
    /// worker, outside any task of its runtime.
    pub(crate) fn drop_all_tasks(&self) {
        let _driving = self.drive();
        self.shared().start_closing();
        self.drop_tasks();
        drop_all_tasks(self, now);
    }

    fn drop_stealable_tasks(&self) {
        while let Some(runnable) = self.shared().take_any() {
            drop(runnable);
        }
    }

    /// Drops the tasks that are ready on the main worker or on any worker of the pool. Then polls
    /// for the pool while a worker is in the middle of a task, which may wait, in another executor,
    /// for a timer or a source of its shard.
    pub(super) fn drop_ready_tasks_of_pool(&self) {
        self.drop_stealable_tasks();
        self.drop_tasks();
        if !self.have_exited() {
            for shard in self.shared().shards.iter() {
                self.poll_for(shard);
            }
        }
    }

    fn drop_tasks(&self) {
        let local = &*self.local;
        loop {
            spawn::drop_queued();
            local.take_inbox();
            local.yield_mark.set(None);
            local.release_yielded();
            while let Some(runnable) = local.pop() {
                drop(runnable);
            }
            // Makes the polled tasks ready. None is added meanwhile, since no task runs. Pinned
            // ones still count.
            for task in local.owned.take().values() {
                task.waker().wake_by_ref();
            }
            if let (Some(work), Some(stealable)) = (self.pool_work, &local.stealable) {
                (work.wake_all)(&stealable.owned);
            }
            if local.has_work() || spawn::has_queued() {
                continue;
            }
            if self.remote().pinned.get() == 0 {
                return;
            }
            // Another thread is about to push a woken task to the inbox.
            self.poll_and_fire_outlined(None, &|| false);
        }
    }
}

impl ClosingWorkers for Worker {
    fn have_exited(&self) -> bool {
        self.shared().exited.load(Ordering::SeqCst) == self.shared().main_index()
    }

    fn live_tasks(&self) -> usize {
        self.shared().live_tasks()
    }

    fn wake_stealable_tasks(&self) {
        self.shared().wake_stealable_tasks();
    }

    fn drop_ready_tasks(&self) {
        match self.shared().pool_work {
            Some(work) => (work.drop_ready_tasks)(self),
            None => self.drop_tasks(),
        }
    }

    fn has_ready_tasks(&self) -> bool {
        spawn::has_queued() || self.shared().has_any()
    }

    fn sleep(&self, timeout: Option<Duration>, stay_awake: &dyn Fn() -> bool) {
        self.poll_and_fire_outlined(timeout, stay_awake);
    }
}
