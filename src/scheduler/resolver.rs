//! A slot for a runtime's own resolver of names: `runtime` fills it, and `net` uses it. Nothing
//! here resolves.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::sync::Arc;

use super::Shared;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// Looks up the addresses of a host.
#[derive(Clone)]
pub(crate) struct Resolver {
    /// Of the runtime that it was given to: look-ups of different ids have nothing in common.
    id: usize,
    look_up: Arc<LookUp>,
    spawn: Spawn,
}

type LookUp = dyn Fn(String) -> BoxedLookup + Send + Sync + UnwindSafe + RefUnwindSafe;

/// Spawns a task of a runtime, which is cancelled when what is returned is dropped. Whoever gives a
/// resolver gives this too: other programs have no such task in them.
type Spawn = fn(&Arc<Shared>, BoxedTask) -> Box<dyn Send + Sync>;

pub(crate) type BoxedTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The addresses to come.
pub(crate) type BoxedLookup = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

impl Resolver {
    pub(crate) fn new(
        look_up: impl Fn(String) -> BoxedLookup + Send + Sync + UnwindSafe + RefUnwindSafe + 'static,
        spawn: Spawn,
    ) -> Resolver {
        Resolver {
            id: next_id(),
            look_up: Arc::new(look_up),
            spawn,
        }
    }

    /// The same, for another runtime.
    pub(crate) fn for_another(&self) -> Resolver {
        Resolver {
            id: next_id(),
            look_up: self.look_up.clone(),
            spawn: self.spawn,
        }
    }

    /// Spawns what makes a look-up.
    pub(crate) fn spawn(&self, shared: &Arc<Shared>, task: BoxedTask) -> Box<dyn Send + Sync> {
        (self.spawn)(shared, task)
    }

    /// Never 0.
    pub(crate) fn id(&self) -> usize {
        self.id
    }

    /// Runs foreign code.
    pub(crate) fn look_up(&self, host: String) -> BoxedLookup {
        (self.look_up)(host)
    }
}

fn next_id() -> usize {
    static COUNT: AtomicUsize = AtomicUsize::new(1);
    COUNT.fetch_add(1, Ordering::Relaxed)
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}
