//! [`Builder`]: how a runtime is made with other settings than the defaults.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::Runtime;
use crate::poller::{Backend, Poller};
use crate::reactor::Reactor;
use crate::scheduler::{BusyPollConfig, Shared, Worker};

/// The most workers of a runtime. Each has a thread and a poller with two or three descriptors, and
/// reads the state of all others now and then: beyond the cores of the largest machines they only
/// cost.
const MAX_WORKERS: usize = 1_024;

/// Sets up a [`Runtime`].
///
/// ```
/// use polder::{Backend, Runtime};
///
/// # #[cfg(unix)] {
/// let runtime = Runtime::builder().backend(Backend::Poll).build()?;
/// assert_eq!(runtime.backend(), Backend::Poll);
/// # }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    backends: Option<Vec<Backend>>,
    workers: usize,
    name: Option<String>,
    busy_poll: BusyPollConfig,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            backends: None,
            workers: 1,
            name: None,
            busy_poll: BusyPollConfig::default(),
        }
    }
}

impl Builder {
    /// Returns a builder with the defaults, as [`Runtime::builder`] does.
    ///
    /// ```
    /// use polder::runtime::Builder;
    ///
    /// let runtime = Builder::new().build()?;
    /// assert_eq!(runtime.workers(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Sets the backend. The default is that of [`Backend::list_from_env`]: the first that can be
    /// opened of those that the environment variable `POLDER_BACKEND` names, or else the platform's
    /// best.
    ///
    /// ```
    /// use polder::{Backend, Runtime};
    ///
    /// let builder = Runtime::builder().name("example");
    /// for backend in Backend::available() {
    ///     let runtime = builder.clone().backend(backend).build()?;
    ///     assert_eq!(runtime.block_on(async { 6 * 7 }), 42); // The same program, on each.
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn backend(self, backend: Backend) -> Builder {
        self.backends([backend])
    }

    /// Sets a list of backends, the first choice first: the first one that can be opened is taken,
    /// and [`Runtime::backend`] says which.
    ///
    /// ```
    /// use polder::{Backend, Runtime};
    ///
    /// let wishes = [Backend::IoUring, Backend::default()];
    /// let runtime = Runtime::builder().backends(wishes).build()?;
    /// assert!(wishes.contains(&runtime.backend()));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn backends(mut self, backends: impl IntoIterator<Item = Backend>) -> Builder {
        self.backends = Some(backends.into_iter().collect());
        self
    }

    /// Sets how many threads run what is spawned. The default is one, the thread that drives the
    /// runtime.
    ///
    /// From two on, the runtime starts a pool of that many threads. What is [spawned](crate::spawn)
    /// runs there, whether or not the runtime is driven. The future given to
    /// [`block_on`](Runtime::block_on), and what it [spawns locally](crate::spawn_local), stays on
    /// the thread that drives the runtime. Each worker has its own poller, run queue and timers.
    ///
    /// Whichever pool worker has time takes a new task, and **polls it from then on: tasks are not
    /// stolen**. So the task's wakes, sockets and timers are local to its worker, and no lock is
    /// contended. The price: tasks do not move away from a worker that turns out to be busy. Long
    /// computations belong in [`unblock`](crate::unblock), or in several smaller tasks.
    ///
    /// No other worker is woken for the first task that a task spawns in one poll, since most
    /// likely its own worker runs it next. So the new task waits if that poll computes for long;
    /// and a poll that blocks the thread until the new task is done, other than by
    /// [`block_on`](crate::block_on), may block forever.
    ///
    /// ```
    /// use polder::Runtime;
    ///
    /// let runtime = Runtime::builder().workers(2).build()?;
    /// let tasks: Vec<_> = (0..10).map(|n| runtime.spawn(async move { n * n })).collect();
    /// let sum = runtime.block_on(async {
    ///     let mut sum = 0;
    ///     for task in tasks {
    ///         sum += task.await;
    ///     }
    ///     sum
    /// });
    /// assert_eq!(sum, 285);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn workers(mut self, workers: usize) -> Builder {
        self.workers = workers;
        self
    }

    /// Sets the name of the pool's threads, which is followed by their number. The default is
    /// `polder`. (Linux shows the first 15 bytes.)
    ///
    /// ```
    /// let runtime = polder::Runtime::builder().workers(2).name("busy bee").build()?;
    /// let name = runtime.spawn(async { std::thread::current().name().map(str::to_owned) });
    /// assert!(runtime.block_on(name).unwrap().starts_with("busy bee"));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Builder {
        self.name = Some(name.into());
        self
    }

    /// Sets how long an idle worker polls with a zero timeout before it sleeps in the kernel. By
    /// default it sleeps at once.
    ///
    /// To be put to sleep and woken takes a core tens of microseconds on a virtual machine, and
    /// some on any other. If answers come faster than that, as with few connections that each wait
    /// for the other side, 50 µs of polling can multiply the requests a second; by how much depends
    /// on how long the machine takes to wake a core (`docs/PERFORMANCE.md` has a row). With many
    /// connections a worker hardly ever sleeps, and there is nothing to gain.
    ///
    /// It is adaptive: a worker polls only while its recent idle times were no longer than
    /// `duration`, so an idle program uses no CPU. It never polls while more workers of its runtime
    /// are awake than there are cores; it knows nothing of other programs. The price is up to
    /// `duration` of CPU time whenever something takes long after a quick exchange, and heat.
    ///
    /// ```
    /// use polder::Runtime;
    /// use std::time::Duration;
    ///
    /// let runtime = Runtime::builder().busy_poll(Duration::from_micros(50)).build()?;
    /// assert_eq!(runtime.block_on(async { 1 + 1 }), 2);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn busy_poll(mut self, duration: Duration) -> Builder {
        self.busy_poll = BusyPollConfig::new(duration);
        self
    }

    /// Makes the runtime, to be driven by the calling thread.
    ///
    /// ```
    /// use polder::Runtime;
    /// use std::io::ErrorKind;
    ///
    /// let runtime = Runtime::builder().workers(2).build()?;
    /// assert_eq!(runtime.workers(), 2);
    /// let error = Runtime::builder().workers(0).build().unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidInput);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](io::ErrorKind::Unsupported) if the backend is not available, and what the
    /// kernel says if it refuses it (of a list: for each);
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if `POLDER_BACKEND` has a name that means
    /// nothing, for an empty list, no workers or more than 1,024, and for a name with a NUL byte;
    /// and the system's error if there are no descriptors or threads left.
    pub fn build(self) -> io::Result<Runtime> {
        let invalid = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if !(1..=MAX_WORKERS).contains(&self.workers) {
            return invalid(format!(
                "a runtime has 1 to {MAX_WORKERS} workers, not {}",
                self.workers
            ));
        }
        let name = self.name.as_deref().unwrap_or("polder");
        if name.contains('\0') {
            return invalid(format!(
                "a thread's name must not have a NUL byte: {name:?}"
            ));
        }
        let backends = match self.backends {
            Some(backends) => backends,
            None => Backend::list_from_env()?,
        };
        let pool_workers = match self.workers {
            1 => 0,
            several => several,
        };
        let reactors = Backend::first_that(backends, |backend| {
            let pollers = (0..=pool_workers).map(|_| Poller::new(backend));
            pollers
                .map(|poller| poller.map(Reactor::new))
                .collect::<io::Result<Vec<_>>>()
        })?;
        let shared = Arc::new(Shared::new(reactors));
        // An error from here on drops the runtime, which joins the threads that were started.
        let mut runtime = Runtime::from_shared(shared.clone(), self.busy_poll);
        for index in 0..pool_workers {
            let shared = shared.clone();
            let thread = thread::Builder::new()
                .name(format!("{name}-{index}"))
                .spawn(move || Worker::new(shared, index, self.busy_poll).run_pool_worker())?;
            runtime.threads.push(thread);
        }
        Ok(runtime)
    }
}
