//! [`KernelPolicy`]: the order of a worker's tasks, as an installed [`Kernel`] chooses it, in place
//! of the queues' own. One thread drives all workers of such a runtime. Without the feature
//! `kernel` no worker has one.

use std::cell::Cell;
use std::collections::VecDeque;

use super::header::{Header, Runnable};
use super::local::Local;
use super::shared::Shared;
use crate::kernel::{self, Kernel, MAX_PASSED_OVER};

#[derive(Debug, Default)]
pub(super) struct KernelPolicy {
    /// The number of consecutive times that the yielded tasks were kept back.
    kept_back: Cell<u32>,
    /// Whether the first task of a pool worker's stealable queue precedes its pinned ones.
    stealable_first: Cell<bool>,
}

impl KernelPolicy {
    #[cold]
    pub(super) fn next(&self, local: &Local) -> Option<Runnable> {
        if local.is_pool_worker() {
            self.choose_of_pool(local)
        } else {
            let mut ready = local.ready_pinned.borrow_mut();
            match choose(&ready) {
                0 => ready.pop_front(),
                place => ready.remove(place),
            }
        }
    }

    /// Takes one injected task: a worker that has taken it may be slow to poll it.
    pub(super) fn injected(&self, shared: &Shared) -> Option<Runnable> {
        (shared.inject_queue).pop_chosen(|injected| match injected.len() {
            0 | 1 => 0,
            several => {
                chosen(|kernel| kernel.choose_injected(several, &|place| id(&injected[place])))
            }
        })
    }

    pub(super) fn about_to_poll(&self, task: &Header) {
        if let Some(kernel) = kernel::current() {
            kernel.polls(task.id.as_u64(), task.site);
        }
    }

    /// Queues the tasks that yielded, or keeps them back behind the ready ones.
    pub(super) fn release_yielded(&self, local: &Local) {
        let count = self.kept_back.get() + 1;
        let keeps = local.has_ready() && count < MAX_PASSED_OVER;
        self.kept_back.set(if keeps { count } else { 0 });
        if keeps {
            return;
        }
        // Stealable ones are queued where other workers find them.
        for runnable in local.yielded.borrow_mut().drain(..) {
            if runnable.metadata().is_stealable() {
                local.push_stealable(runnable)
            } else {
                local.push_pinned(runnable)
            }
        }
    }

    /// The first task of one of the queues is next in turn until it was taken, so that no queue is
    /// passed over for longer than the kernel's order permits.
    fn choose_of_pool(&self, local: &Local) -> Option<Runnable> {
        let queue = &local.pool_remote().queue;
        // All are taken out, since none can be taken from the middle, and the others are queued
        // again, with the LIFO slot before or after them.
        let lifo = queue.pop_lifo();
        let lifo_id = lifo.as_ref().map(id);
        let lifo_first = local.may_poll_lifo();
        let mut stealable: VecDeque<_> = std::iter::from_fn(|| queue.pop()).collect();
        if lifo_first {
            lifo.into_iter().for_each(|lifo| stealable.push_front(lifo));
        } else {
            stealable.extend(lifo);
        }
        let pinned = std::mem::take(&mut *local.ready_pinned.borrow_mut());
        let pinned_first = !self.stealable_first.get();
        let (mut all, second) = if pinned_first {
            (pinned, stealable)
        } else {
            (stealable, pinned)
        };
        all.extend(second);
        let place = choose(&all);
        if place == 0 {
            self.stealable_first.set(pinned_first);
        }
        let chosen = all.remove(place);
        let is_lifo = lifo_id.is_some() && lifo_id == chosen.as_ref().map(id);
        local.count_lifo(is_lifo && lifo_first);
        for runnable in all {
            if !runnable.metadata().is_stealable() {
                local.push_pinned(runnable);
            } else if lifo_id == Some(id(&runnable)) {
                queue.push_lifo(runnable);
            } else {
                local.push_stealable(runnable);
            }
        }
        chosen
    }
}

fn choose(ready: &VecDeque<Runnable>) -> usize {
    match ready.len() {
        0 | 1 => 0,
        several => chosen(|kernel| kernel.choose_task(several, &|place| id(&ready[place]))),
    }
}

fn chosen(choose: impl FnOnce(&dyn Kernel) -> usize) -> usize {
    kernel::current().map_or(0, choose)
}

fn id(runnable: &Runnable) -> u64 {
    runnable.metadata().id.as_u64()
}
