//! The reactors of the process by id, for timers that do not hold theirs: what other threads do to
//! a worker's own timer finds the reactor here.

// A static, which loom's types cannot be.
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::Reactor;
use crate::sys::PerProcess;

type Reactors = Vec<(u64, Weak<Reactor>)>;

/// The reactors that have not closed, by id. There are about as many as threads that drive one,
/// and they are looked up seldom. A child of `fork` does not find those of its parent, whose
/// threads are not there.
static REGISTRY: PerProcess<Mutex<Reactors>> = PerProcess::new(Mutex::default);

fn registry() -> MutexGuard<'static, Reactors> {
    (REGISTRY.get().lock()).unwrap_or_else(PoisonError::into_inner)
}

/// The id of a new reactor. None is used twice.
pub(super) fn new_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

pub(super) fn add(reactor: &Arc<Reactor>) {
    registry().push((reactor.id, Arc::downgrade(reactor)));
}

pub(super) fn remove(id: u64) {
    registry().retain(|(other, _)| *other != id);
}

/// The reactor with this id, if it has not closed.
pub(super) fn find(id: u64) -> Option<Arc<Reactor>> {
    let registry = registry();
    let index = registry.iter().position(|(other, _)| *other == id);
    index.and_then(|index| registry[index].1.upgrade())
}
