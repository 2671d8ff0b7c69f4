//! The name resolver of a runtime, set by the builder and called by `net`.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
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
    /// [`ask`], passed with the resolver, so that programs without one do not link it.
    pub(crate) ask: Ask,
}

type LookUp = dyn Fn(String) -> BoxedLookup + Send + Sync + UnwindSafe + RefUnwindSafe;

/// Dropping the result cancels the task.
type Ask = fn(&Arc<Shared>, Arc<Resolver>, String, OnAnswer) -> Box<dyn Send + Sync>;

type OnAnswer = Box<dyn FnOnce(io::Result<Vec<IpAddr>>) + Send>;

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
    /// The id of the resolver that this thread is polling, the innermost one if its future drives
    /// another runtime; zero if none.
    static ASKING: Cell<usize> = const { Cell::new(0) };
}

/// Returns the id of the resolver that this thread is polling, or zero.
pub(crate) fn asking() -> usize {
    ASKING.get()
}

/// Asks the resolver for a host's addresses, in a task of its runtime. Dropping the result cancels
/// the task.
#[cfg(feature = "net")]
pub(super) fn ask(
    shared: &Arc<Shared>,
    resolver: Arc<Resolver>,
    host: String,
    on_answer: OnAnswer,
) -> Box<dyn Send + Sync> {
    let id = resolver.id;
    // The call that makes the future may look up names, too.
    let mut lookup = Box::pin(async move { (resolver.look_up)(host).await });
    // Does not cover the waiters: they may be foreign code that looks up names.
    let asking = poll_fn(move |cx| {
        let before = ASKING.replace(id);
        // Also after a panic.
        let _restore = OnDrop(|| ASKING.set(before));
        lookup.as_mut().poll(cx)
    });
    let task = async move { on_answer(asking.await) };
    let builder = task::Builder::new().name("name lookup");
    Box::new(builder.spawn_on(task, &Handle::of(shared)))
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}
