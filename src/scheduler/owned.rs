//! The tasks that a worker owns.
//!
//! A task enters its worker's list when its first poll returns `Pending` ([`bind`]), and leaves
//! when its future is dropped ([`task_ended`]). One that is done after its first poll is never in
//! the list, which is what makes short tasks cheap. The list serves closing, which wakes every task
//! in it so that its runnable is queued and can be dropped; `Debug` of the runtime; and the
//! worker's load.
//!
//! Touched by the worker's thread only. Wakers in the list are async-task's, so cloning one runs no
//! foreign code; one is dropped or woken outside the borrow all the same, since it may be the
//! task's last reference.

use std::cell::{Cell, RefCell};
use std::num::NonZeroUsize;
use std::panic::Location;
use std::sync::Arc;
use std::task::Waker;

use slab::Slab;

use super::{Meta, with_local};

/// Every task of a worker that was polled and still has its future, except one in its first poll.
#[derive(Debug, Default)]
pub(crate) struct OwnedTasks {
    tasks: RefCell<Slab<OwnedTask>>,
    /// How many there are. Not the length of the list, which closing takes away.
    count: Cell<usize>,
}

/// How to reach a task, and where it was spawned.
#[derive(Debug)]
struct OwnedTask {
    waker: Waker,
    site: &'static Location<'static>,
}

/// The place of a task in its worker's list, counted from one, so that an `Option` of it is one
/// word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OwnedKey(NonZeroUsize);

impl OwnedTasks {
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count.get()
    }

    /// Where the tasks were spawned.
    pub(crate) fn sites(&self) -> Vec<&'static Location<'static>> {
        let tasks = self.tasks.borrow();
        tasks.iter().map(|(_, task)| task.site).collect()
    }

    /// Empties the list, and wakes every task that was in it. They still count as owned.
    pub(super) fn wake_all(&self) {
        for (_, task) in self.tasks.take() {
            task.waker.wake();
        }
    }

    fn insert(&self, task: OwnedTask) -> OwnedKey {
        self.count.set(self.count.get() + 1);
        let index = self.tasks.borrow_mut().insert(task);
        OwnedKey(NonZeroUsize::MIN.saturating_add(index))
    }

    fn remove(&self, OwnedKey(key): OwnedKey) {
        self.count.set(self.count.get() - 1);
        // Nothing is found there when the worker closes and the list was taken.
        let removed = self.tasks.borrow_mut().try_remove(key.get() - 1);
        drop(removed);
    }
}

/// Enters a task, whose first poll has returned `Pending`, in the list of the current worker, which
/// has polled it.
pub(crate) fn bind(meta: &Meta, waker: &Waker) -> Option<OwnedKey> {
    with_local(|local| {
        debug_assert!(
            local.is_worker_of(meta),
            "a task is polled by its own worker"
        );
        let key = local.owned.insert(OwnedTask {
            waker: waker.clone(),
            site: meta.site,
        });
        local.publish_load();
        key
    })
}

/// The future of a task has been dropped: removes the task, if it was bound, and counts its end. If
/// it was bound, this is its worker's thread, otherwise it may be any.
pub(crate) fn task_ended(meta: &Meta, key: Option<OwnedKey>) {
    let index = with_local(|local| {
        if let (Some(key), true) = (key, local.is_worker_of(meta)) {
            local.owned.remove(key);
            local.publish_load();
        }
        Arc::ptr_eq(&local.shared, &meta.shared).then_some(local.index)
    });
    meta.shared.task_ended(index.flatten());
}
