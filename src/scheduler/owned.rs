//! The tasks that a worker owns.
//!
//! A task enters its worker's list when its first poll returns `Pending` ([`bind`]), and leaves
//! when its future is dropped ([`task_ended`]). One that is done after its first poll is never in
//! the list, which is what makes short tasks cheap. The list serves dumps; closing, which wakes
//! every task in it so that its runnable is queued and can be dropped; `Debug` of the runtime; and
//! the worker's load.
//!
//! The list of the tasks that stay is touched by the worker's thread only. Movable tasks are in a
//! list with a lock ([`MovableTasks`]): that of the worker that polled the task first, wherever the
//! task goes later, since the place in it is known to the task alone. Whoever drops the future
//! removes it there. Nearly always that is the same worker, so the lock is hardly ever contended;
//! and tasks that are done after their first poll do not take it.
//!
//! Wakers in the lists are async-task's, or a count of references around one (`spans`), so cloning
//! one runs no foreign code; one is dropped or woken outside borrow and lock all the same, since it
//! may be the task's last reference.

use std::cell::{Cell, RefCell};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::task::Waker;

use slab::Slab;

use super::{Local, Meta, TaskRef, trace, with_local};
use crate::sync::Mutex;

/// Every task that stays on its worker, was polled and still has its future, except one in its
/// first poll.
#[derive(Debug, Default)]
pub(crate) struct OwnedTasks {
    tasks: RefCell<Slab<TaskRef>>,
    /// How many there are. Not the length of the list, which closing takes away.
    count: Cell<usize>,
}

/// The movable tasks that a pool worker was the first to poll, and that still have their futures.
#[derive(Debug, Default)]
pub(crate) struct MovableTasks(Mutex<Slab<TaskRef>>);

impl MovableTasks {
    /// Wakes every task that is in the list. They stay there until their futures are dropped.
    pub(super) fn wake_all(&self) {
        let tasks = self.0.lock();
        let wakers: Vec<Waker> = tasks.iter().map(|(_, task)| task.waker().clone()).collect();
        drop(tasks);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Calls `f`, which runs no foreign code, with each task in the list.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&TaskRef)) {
        self.0.lock().iter().for_each(|(_, task)| f(task));
    }

    fn insert(&self, task: TaskRef) -> OwnedKey {
        OwnedKey::new(self.0.lock().insert(task))
    }

    fn remove(&self, key: OwnedKey) {
        let removed = self.0.lock().try_remove(key.index());
        drop(removed);
    }
}

/// The place of a task in its worker's list, counted from one, so that an `Option` of it is one
/// word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OwnedKey(NonZeroUsize);

impl OwnedKey {
    #[inline]
    fn new(index: usize) -> OwnedKey {
        OwnedKey(NonZeroUsize::MIN.saturating_add(index))
    }

    #[inline]
    fn index(self) -> usize {
        self.0.get() - 1
    }
}

impl OwnedTasks {
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count.get()
    }

    /// Calls `f`, which runs no foreign code, with each task in the list.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&TaskRef)) {
        self.tasks.borrow().iter().for_each(|(_, task)| f(task));
    }

    /// Empties the list, and wakes every task that was in it. They still count as owned.
    pub(super) fn wake_all(&self) {
        for (_, task) in self.tasks.take() {
            task.waker().wake_by_ref();
        }
    }

    fn insert(&self, task: TaskRef) -> OwnedKey {
        self.count.set(self.count.get() + 1);
        OwnedKey::new(self.tasks.borrow_mut().insert(task))
    }

    fn remove(&self, key: OwnedKey) {
        self.count.set(self.count.get() - 1);
        // Nothing is found there when the worker closes and the list was taken.
        let removed = self.tasks.borrow_mut().try_remove(key.index());
        drop(removed);
    }
}

/// Enters a task, whose first poll has returned `Pending`, in the list of the current worker, which
/// has polled it.
pub(crate) fn bind(meta: &Meta, waker: &Waker) -> Option<OwnedKey> {
    with_local(|local| {
        debug_assert!(local.has(meta), "a task is polled by its own worker");
        let task = TaskRef::new(meta, waker.clone());
        let key = match meta.is_movable() {
            true => bind_movable(local, meta, task),
            false => local.owned.insert(task),
        };
        local.publish_load();
        key
    })
}

#[inline(never)]
fn bind_movable(local: &Local, meta: &Meta, task: TaskRef) -> OwnedKey {
    meta.set_bound(local.index);
    local.movable_came(1);
    local.pool().owned.insert(task)
}

/// The future of a task has been dropped: removes the task, if it was bound, and counts its end. If
/// it was bound, this is the thread of its worker; or of the main worker, which has taken it from
/// one that has exited. Otherwise it may be any.
pub(crate) fn task_ended(meta: &Meta, key: Option<OwnedKey>) {
    meta.set_finished();
    if meta.is_bound_or_traced() && other_task_ended(meta, key) {
        return;
    }
    let index = with_local(|local| {
        if let (Some(key), true) = (key, local.has(meta)) {
            local.owned.remove(key);
            local.publish_load();
        }
        Arc::ptr_eq(&local.shared, &meta.shared).then_some(local.index)
    });
    meta.shared.task_ended(index.flatten());
}

/// The task is movable, or traced. Returns whether nothing is left to be done.
#[inline(never)]
fn other_task_ended(meta: &Meta, key: Option<OwnedKey>) -> bool {
    if meta.is_traced() {
        trace::ended(meta);
    }
    match (key, meta.is_bound()) {
        (Some(key), true) => {
            movable_task_ended(meta, key);
            true
        }
        _ => false,
    }
}

fn movable_task_ended(meta: &Meta, key: OwnedKey) {
    let list = meta.shared.remote(meta.list()).movable_tasks();
    list.remove(key);
    let index = with_local(|local| {
        if local.has(meta) {
            local.movable_went(1);
            local.publish_load();
        }
        Arc::ptr_eq(&local.shared, &meta.shared).then_some(local.index)
    });
    meta.shared.task_ended(index.flatten());
}
