//! Crates that need tokio, in the tasks of [polder](https://docs.rs/polder).
//!
//! reqwest, tonic's transport, async-nats or tower-http's `TimeoutLayer` open tokio's sockets, wait
//! for its timers and spawn tasks on it. In a task of another runtime they panic: "there is no
//! reactor running". This crate starts a tokio on first use, on one thread, and polder's threads
//! enter it, so that these crates find it.
//!
//! **One line at the runtime's builder**, and every task of the runtime finds tokio:
//!
//! ```
//! use std::time::Duration;
//!
//! let runtime = polder::Runtime::builder()
//!     .workers(2)
//!     .on_thread_start(polder_tokio::enter()?)
//!     .build()?;
//! runtime.block_on(async {
//!     tokio::time::sleep(Duration::from_millis(1)).await;
//!     let task = polder::spawn(async {
//!         tokio::time::sleep(Duration::from_millis(1)).await;
//!         tokio::spawn(async { 6 * 7 }).await.unwrap() // On tokio's thread.
//!     });
//!     assert_eq!(task.await, 42);
//! });
//! # std::io::Result::Ok(())
//! ```
//!
//! **For one future**, where there is no builder: [`in_tokio`]. What the future spawns on polder
//! needs its own [`in_tokio`].
//!
//! # What runs where
//!
//! Polder's tasks stay on polder's workers. A tokio socket or timer that such a task waits for
//! belongs to tokio's thread, `polder-tokio`, and each wait costs a wake from thread to thread,
//! unless the source is ready already. Tasks of `tokio::spawn` run on tokio's thread: they must not
//! block it. `tokio::task::spawn_blocking`, with which reqwest looks up names, starts more threads.
//! Polder's sockets and timers also work on tokio's thread, by polder's background runtime.
//!
//! tokio's I/O traits on polder's streams, and the reverse, are in tokio-util (feature `compat`);
//! this needs no tokio that runs.
//!
//! # Limits
//!
//! * **The end of the process** ends tokio's thread. It is not joined, and its tasks are not
//!   dropped: await what must finish.
//! * **A child of `fork`** does not have the thread. There the next [`enter`] or [`in_tokio`]
//!   starts another one. The thread that called `fork` keeps the parent's tokio until it calls
//!   [`enter`]; sockets and timers of the parent's tokio never become ready in the child. (A child
//!   that is forked during the parent's first call, by another thread, waits forever in its own; so
//!   does one in another PID namespace that has the number of its parent.)
//! * **Simulated worlds** (`polder-sim`): tokio's thread, sockets and clock are not part
//!   of a world. A task that waits for tokio there fails the run, with a report that names the wake
//!   by another thread, or a deadlock.
//! * **Budgets.** tokio counts the operations of its own tasks only, and polder does not count
//!   those on tokio's types. A task that reads from a tokio stream which always has data does not
//!   yield, unless it calls `polder::task::consume_budget`.

#![deny(missing_debug_implementations, missing_docs)]

use std::cell::Cell;
use std::fmt;
use std::future::{Future, pending};
use std::io;
use std::mem::forget;
use std::pin::Pin;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::{process, thread};

use pin_project_lite::pin_project;
use tokio::runtime::{Builder, EnterGuard, Handle, Id, TryCurrentError};

/// Makes tokio's runtime the current one on this thread, until the thread ends, and returns a
/// function that does so on the thread where it is called. That is meant for polder's
/// `Builder::on_thread_start`.
///
/// This thread is included because it usually drives the runtime: the future given to `block_on` is
/// polled on it, and so are tasks that are spawned locally.
///
/// ```
/// let enter = polder_tokio::enter()?;
/// let runtime = polder::Runtime::builder()
///     .workers(2)
///     .on_thread_start(move |worker| {
///         println!("worker {worker} starts"); // What else the program does here.
///         enter(worker);
///     })
///     .build()?;
/// let tokio = runtime.spawn(async { tokio::runtime::Handle::current() });
/// assert_eq!(runtime.block_on(tokio).id(), tokio::runtime::Handle::current().id());
/// # std::io::Result::Ok(())
/// ```
///
/// It is also enough to call it once, where one thread does everything:
///
/// ```
/// polder_tokio::enter()?;
/// polder::block_on(async {
///     tokio::task::yield_now().await;
///     assert!(tokio::runtime::Handle::try_current().is_ok());
/// });
/// # std::io::Result::Ok(())
/// ```
///
/// On a thread that is in a tokio runtime already, such as tokio's own threads, it changes nothing:
/// that runtime is found. So it has no effect within a future of [`in_tokio`].
///
/// # Errors
///
/// The system's, if tokio cannot be started: descriptors or threads are exhausted. The next call
/// tries again.
pub fn enter() -> io::Result<fn(usize)> {
    enter_this_thread(handle()?);
    Ok(|_worker| enter_this_thread(handle().expect("tokio starts in a child, too")))
}

thread_local! {
    /// The runtime of this crate that this thread has entered.
    static ENTERED: Cell<Option<Id>> = const { Cell::new(None) };
    /// The number of futures of [`in_tokio`] that it polls or drops.
    static WITHIN: Cell<usize> = const { Cell::new(0) };
}

/// Has entered the runtime for a future of [`in_tokio`].
struct Within {
    _entered: EnterGuard<'static>,
}

impl Within {
    fn new(handle: &'static Handle) -> Within {
        let _entered = handle.enter();
        WITHIN.set(WITHIN.get() + 1);
        Within { _entered }
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        WITHIN.set(WITHIN.get() - 1);
    }
}

/// Enters the runtime until this thread ends, unless that has been done.
fn enter_this_thread(handle: &'static Handle) {
    // Guards have to be dropped in reverse order, which one that is forgotten here would not be.
    if WITHIN.get() > 0 {
        return;
    }
    if let Ok(current) = Handle::try_current() {
        // In a child of `fork`, this crate's may be the parent's. Any other one stays.
        if ENTERED.get() != Some(current.id()) || current.id() == handle.id() {
            return;
        }
    }
    // Guards have to be dropped in reverse order, and a thread-local could come too late for that:
    // tokio's own may be gone by then. tokio drops its current handle with the thread.
    forget(handle.enter());
    ENTERED.set(Some(handle.id()));
}

/// Returns `future` with tokio's runtime as the current one whenever it is polled, and when it is
/// dropped. The future stays a part of polder's task.
///
/// ```
/// use polder_tokio::in_tokio;
/// use std::time::Duration;
///
/// polder::block_on(in_tokio(async {
///     tokio::time::sleep(Duration::from_millis(1)).await;
///     let task = polder::spawn(in_tokio(async { tokio::spawn(async { 6 * 7 }).await }));
///     assert_eq!(task.await.unwrap(), 42);
/// }));
/// ```
///
/// It should be an `async` block: functions such as `tokio::time::sleep` look for tokio when they
/// are called, and not when their future is polled.
///
/// # Panics
///
/// If tokio cannot be started: see [`enter`], which returns an error instead.
///
/// # Cancel safety
///
/// Dropping it drops `future`, within tokio.
#[track_caller]
pub fn in_tokio<F: Future>(future: F) -> InTokio<F> {
    match handle() {
        Ok(handle) => InTokio {
            future: Some(future),
            handle,
        },
        Err(error) => panic!("polder-tokio: tokio cannot be started: {error}"),
    }
}

pin_project! {
    /// The future that [`in_tokio`] returns.
    #[must_use = "futures do nothing unless awaited or spawned"]
    pub struct InTokio<F> {
        // Until it is dropped.
        #[pin]
        future: Option<F>,
        handle: &'static Handle,
    }

    impl<F> PinnedDrop for InTokio<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            // While the thread ends, tokio's thread-local may be gone, and entering would panic.
            let is_gone = |error: TryCurrentError| error.is_thread_local_destroyed();
            let can_enter = !Handle::try_current().is_err_and(is_gone);
            let _entered = can_enter.then(|| Within::new(this.handle));
            this.future.set(None);
        }
    }
}

impl<F: Future> Future for InTokio<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _entered = Within::new(this.handle);
        let future = this.future.as_pin_mut().expect("it has not been dropped");
        future.poll(context)
    }
}

impl<F> fmt::Debug for InTokio<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InTokio").finish_non_exhaustive()
    }
}

/// A process's runtime, and that of its child. Each process of a line of forks has a link of this
/// chain: a child finds its parent's, and neither locks nor drops it.
struct Link {
    running: OnceLock<Running>,
    /// Held during the start, so that the runtime is started only once.
    starting: Mutex<()>,
}

struct Running {
    process: u32,
    handle: Handle,
    child: Box<Link>,
}

static FIRST: Link = Link::new();

/// Returns this process's runtime, and starts it if necessary.
fn handle() -> io::Result<&'static Handle> {
    let process = process::id();
    let mut link = &FIRST;
    loop {
        let running = match link.running.get() {
            Some(running) => running,
            None => link.start(process)?,
        };
        if running.process == process {
            return Ok(&running.handle);
        }
        link = &running.child;
    }
}

impl Link {
    const fn new() -> Link {
        Link {
            running: OnceLock::new(),
            starting: Mutex::new(()),
        }
    }

    #[cold]
    fn start(&'static self, process: u32) -> io::Result<&'static Running> {
        let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = self.running.get() {
            return Ok(running);
        }
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        thread::Builder::new()
            .name("polder-tokio".into())
            .spawn(move || runtime.block_on(pending::<()>()))?;
        Ok(self.running.get_or_init(|| Running {
            process,
            handle,
            child: Box::new(Link::new()),
        }))
    }
}
