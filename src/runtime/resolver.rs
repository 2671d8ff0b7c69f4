//! A runtime's own name resolver: made by the builder, called by `net`.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::sync::Arc;

use crate::scheduler::Shared;
use crate::sync::atomic::{AtomicUsize, Ordering};

#[derive(Clone)]
pub(crate) struct Resolver {
    /// The id of its runtime: look-ups with different ids are independent. The builder's has 0.
    pub(crate) id: usize,
    /// Runs foreign code.
    pub(crate) look_up: Arc<LookUp>,
    pub(crate) spawn: Spawn,
}

type LookUp = dyn Fn(String) -> BoxedLookup + Send + Sync + UnwindSafe + RefUnwindSafe;

/// Dropping the result cancels the task. Passed with the resolver, so that programs without one do
/// not link such a task.
type Spawn = fn(&Arc<Shared>, BoxedTask) -> Box<dyn Send + Sync>;

pub(crate) type BoxedTask = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) type BoxedLookup = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

impl Resolver {
    pub(crate) fn for_runtime(&self) -> Resolver {
        static NEXT_ID: AtomicUsize = AtomicUsize::new(1);
        Resolver {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            ..self.clone()
        }
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}
