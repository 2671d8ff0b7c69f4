//! The list of the tasks that a worker owns.
//!
//! A task enters its worker's list when its first poll returns `Pending` ([`bind`]), and leaves it
//! when its future is dropped ([`task_ended`]), so short tasks never enter it. Dumps, `Debug` and
//! metrics read the list. Closing wakes every task in it, so that its runnable is queued and can be
//! dropped.
//!
//! Only the worker's thread accesses the list of pinned tasks. A stealable task stays in the list
//! ([`StealableTasks`], with a lock) of the worker that polled it first, since only the task has
//! its position in the list. The thread that drops the future removes it, nearly always that
//! worker, so the lock is rarely contended.
//!
//! Wakers in the lists are async-task's, or a reference count around one (`spans`), so cloning one
//! runs no foreign code. They are woken outside of borrow and lock. Dropping one within is allowed:
//! it is not the task's last reference while the future exists, or is being dropped.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::Waker;

use super::{Header, TaskRef, trace, with_local};
use crate::slab::Slab;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug, Default)]
pub(crate) struct StealableTasks {
    tasks: Mutex<Slab<TaskRef>>,
    /// The length of the list, readable without the lock. Written under it.
    count: AtomicUsize,
}

impl StealableTasks {
    /// The tasks stay in the list until their futures are dropped.
    pub(super) fn wake_all(&self) {
        let tasks = self.tasks.lock();
        let wakers: Vec<Waker> = tasks.values().map(|task| task.waker().clone()).collect();
        drop(tasks);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Calls `f`, which runs no foreign code, with each task.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&TaskRef)) {
        self.tasks.lock().values().for_each(&mut f);
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    #[inline(never)]
    fn insert(&self, task: TaskRef) -> usize {
        let mut tasks = self.tasks.lock();
        let index = tasks.insert(task);
        self.count.store(tasks.len(), Ordering::Relaxed);
        index
    }

    #[inline(never)]
    fn remove(&self, index: usize) {
        let mut tasks = self.tasks.lock();
        let removed = tasks.remove(index);
        self.count.store(tasks.len(), Ordering::Relaxed);
        drop(tasks);
        drop(removed);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OwnedKey {
    worker: u32,
    /// The index plus one, so that an `Option` of the key takes eight bytes.
    place: NonZeroU32,
}

impl OwnedKey {
    #[inline]
    fn new(worker: usize, index: usize) -> OwnedKey {
        let index = u32::try_from(index).expect("fewer than 2^32 tasks");
        OwnedKey {
            worker: worker as u32,
            place: NonZeroU32::MIN.saturating_add(index),
        }
    }

    #[inline]
    fn index(self) -> usize {
        self.place.get() as usize - 1
    }
}

/// Adds a task to the list of the current worker, after a first poll that has returned `Pending`.
pub(crate) fn bind(header: &Header, waker: &Waker) -> Option<OwnedKey> {
    with_local(|local| {
        debug_assert!(local.owns(header), "a task is polled by its own worker");
        let task = TaskRef::new(header, waker.clone());
        let index = if header.is_stealable() {
            local.stealable().owned.insert(task)
        } else {
            local.remote.pinned.add(1);
            local.owned.borrow_mut().insert(task)
        };
        OwnedKey::new(local.index, index)
    })
}

/// Removes a task, if it was bound, after its future was dropped, and counts its end. Called on its
/// worker's thread if it is bound and pinned, on any thread otherwise.
pub(crate) fn task_ended(header: &Header, mut key: Option<OwnedKey>) {
    header.set_finished();
    if header.is_traced() {
        trace::ended(header);
    }
    if let Some(key) = key.take_if(|_| header.is_stealable()) {
        let list = &header.shared.stealable(key.worker as usize).owned;
        list.remove(key.index());
    }
    let index = with_local(|local| {
        if !Arc::ptr_eq(&local.shared, &header.shared) {
            return None;
        }
        if let (Some(key), true) = (key, local.index == header.index()) {
            let pinned = &local.remote.pinned;
            pinned.set(pinned.get() - 1);
            // Empty if closing has taken the list.
            let removed = local.owned.borrow_mut().remove(key.index());
            drop(removed);
        }
        Some(local.index)
    });
    if header.is_counted() {
        header.shared.task_ended(index.flatten());
    }
}

/// Ends a task whose future was forgotten, before its spawner drops the runnable.
pub(crate) fn task_forgotten(header: &Header) {
    header.end_count();
    task_ended(header, None);
}
