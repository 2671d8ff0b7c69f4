//! A runtime's own name resolver: made by the builder, called by `net`.

use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::IpAddr;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Handle;
use crate::scheduler::Shared;
use crate::sync::OnDrop;
use crate::task;

#[derive(Clone)]
pub(crate) struct Resolver {
    /// The id of its runtime: look-ups with different ids are independent. The builder's has 0.
    pub(crate) id: usize,
    /// Runs foreign code.
    pub(crate) look_up: Arc<LookUp>,
    /// This is [`ask`]. Passed with the resolver, so that programs without one do not link it.
    pub(crate) ask: Ask,
}

type LookUp = dyn Fn(String) -> BoxedLookup + Send + Sync + UnwindSafe + RefUnwindSafe;

/// Dropping the result cancels the task.
type Ask = fn(&Arc<Shared>, Arc<Resolver>, String, Told) -> Box<dyn Send + Sync>;

/// Called with the addresses.
type Told = Box<dyn FnOnce(io::Result<Vec<IpAddr>>) + Send>;

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

thread_local! {
    /// The resolver that this thread is polling: the innermost, if its future drives another
    /// runtime. Zero: none.
    static ASKING: Cell<usize> = const { Cell::new(0) };
}

/// The id of the resolver that this thread is polling; zero if it polls none.
pub(crate) fn asking() -> usize {
    ASKING.get()
}

/// Asks the resolver for the addresses of a host, in a task of its runtime. Dropping the result
/// cancels the task.
#[cfg(feature = "net")]
pub(super) fn ask(
    shared: &Arc<Shared>,
    resolver: Arc<Resolver>,
    host: String,
    told: Told,
) -> Box<dyn Send + Sync> {
    let id = resolver.id;
    // The call that makes the future may look up names too.
    let mut lookup = Box::pin(async move { (resolver.look_up)(host).await });
    // This covers nothing else: the waiters are woken outside of it, since they may be foreign code
    // that looks up names.
    let asking = poll_fn(move |cx| {
        let before = ASKING.replace(id);
        // Also after a panic.
        let _restore = OnDrop(|| ASKING.set(before));
        lookup.as_mut().poll(cx)
    });
    let task = async move { told(asking.await) };
    let builder = task::Builder::new().name("name lookup");
    Box::new(builder.spawn_on(task, &Handle::of(shared)))
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}
