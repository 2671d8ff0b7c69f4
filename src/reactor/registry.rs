//! The reactors of the process by id, for operations on a worker's local timer by other threads:
//! local timers hold no reference to their reactor.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, Weak};

use super::Reactor;
use crate::sync::StaticMutex;
use crate::sys::PerProcess;

pub(super) type Reactors = Vec<(u64, Weak<Reactor>)>;

/// The reactors until they are dropped: closed ones have locks too, which a fork takes. There are
/// about as many as threads that drive one, and lookups are rare. A child of `fork` does not find
/// its parent's reactors, because it does not have the parent's threads.
static REGISTRY: PerProcess<StaticMutex<Reactors>> = PerProcess::new(StaticMutex::default);

fn lock() -> MutexGuard<'static, Reactors> {
    REGISTRY.get().lock()
}

#[cfg(unix)]
pub(super) fn try_lock() -> Option<MutexGuard<'static, Reactors>> {
    REGISTRY.get().try_lock()
}

/// Ids are never reused.
pub(super) fn new_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

pub(super) fn add(reactor: &Arc<Reactor>) {
    lock().push((reactor.id, Arc::downgrade(reactor)));
}

pub(super) fn remove(id: u64) {
    lock().retain(|(other, _)| *other != id);
}

/// Returns the reactor with this id, if it exists. It may have closed.
pub(super) fn find(id: u64) -> Option<Arc<Reactor>> {
    let registry = lock();
    let index = registry.iter().position(|(other, _)| *other == id);
    index.and_then(|index| registry[index].1.upgrade())
}
