//! [`Handle`]: how other threads reach a runtime.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;

use super::background;
use super::spawn::spawn_on;
use crate::poller::Backend;
use crate::scheduler::{self, Shared};
use crate::task::Task;

/// Spawns onto a [`Runtime`](super::Runtime) from any thread.
///
/// A handle does not keep its runtime alive: a task that is spawned after the runtime was dropped
/// is cancelled at once. (It does keep the memory and the descriptors of the pollers, as does a
/// [`Task`].)
///
/// ```
/// let runtime = polder::Runtime::new()?;
/// let handle = runtime.handle();
/// let thread = std::thread::spawn(move || handle.spawn(async { "from another thread" }));
/// let task = thread.join().unwrap();
/// assert_eq!(runtime.block_on(task), "from another thread");
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct Handle {
    pub(super) shared: Arc<Shared>,
}

impl Handle {
    /// Returns the handle of the runtime that this thread drives. On a plain thread, that of the
    /// background runtime, which is started on first use.
    ///
    /// ```
    /// let task = polder::block_on(async {
    ///     let here = polder::Handle::current();
    ///     // On the new thread, `Handle::current()` is that of the background runtime.
    ///     std::thread::spawn(move || here.spawn(async { 5 })).join().unwrap().await
    /// });
    /// assert_eq!(task, 5);
    /// ```
    ///
    /// # Panics
    ///
    /// If the background runtime is needed and cannot be started.
    pub fn current() -> Handle {
        Handle::try_current().unwrap_or_else(|| Handle {
            shared: background::expect_shared().clone(),
        })
    }

    /// Returns the handle of the runtime that this thread drives, if it drives one.
    ///
    /// ```
    /// assert!(polder::Handle::try_current().is_none());
    /// polder::block_on(async { assert!(polder::Handle::try_current().is_some()) });
    /// ```
    pub fn try_current() -> Option<Handle> {
        scheduler::with_local(|local| Handle {
            shared: local.shared.clone(),
        })
    }

    /// Spawns a task.
    ///
    /// It runs while the runtime is driven; with [several workers](super::Builder::workers),
    /// always. If the runtime was dropped, the task is cancelled at once.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// let handle = runtime.handle();
    /// let task = handle.spawn(async { 5 });
    /// assert_eq!(runtime.block_on(task), 5);
    ///
    /// drop(runtime);
    /// let late = handle.spawn(async { 5 }).fallible();
    /// assert_eq!(polder::block_on(late), None);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the [`Task`] cancels it.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        spawn_on(&self.shared, future, Location::caller())
    }

    /// Returns which backend the runtime polls the kernel with.
    ///
    /// ```
    /// use polder::{Handle, Runtime};
    ///
    /// let runtime = Runtime::new()?;
    /// let here = runtime.block_on(async { Handle::current().backend() });
    /// assert_eq!(here, runtime.backend());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn backend(&self) -> Backend {
        self.shared.main().reactor.poller().backend()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("backend", &self.backend())
            .field("tasks", &self.shared.live_tasks())
            .finish()
    }
}

/// Auto traits, checked at compile time.
const _: () = {
    const fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<Handle>();
};
