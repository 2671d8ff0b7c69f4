//! How a runtime is made other than by default.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::Runtime;
use crate::poller::{Backend, Poller};
use crate::reactor::Reactor;
use crate::scheduler::{BusyPollConfig, Shared, Worker};

/// As many workers as a runtime can have. Each has a thread, a poller with two or three descriptors, and looks
/// at all the others now and then: beyond the cores of the largest machines they only cost.
const MOST_WORKERS: usize = 1_024;

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
    backend: Option<Backend>,
    workers: usize,
    name: Option<String>,
    busy_poll: BusyPollConfig,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            backend: None,
            workers: 1,
            name: None,
            busy_poll: BusyPollConfig::default(),
        }
    }
}

impl Builder {
    /// A builder with the defaults.
    ///
    /// It is also [`Runtime::builder`].
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

    /// Which backend waits. By default what [`Backend::from_env`] says: the environment variable
    /// `POLDER_BACKEND`, or else the platform's best.
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
    pub fn backend(mut self, backend: Backend) -> Builder {
        self.backend = Some(backend);
        self
    }

    /// How many threads run what is spawned. By default one, the thread that drives the runtime.
    ///
    /// From two on, the runtime starts that many threads. What is [spawned](crate::spawn) runs there,
    /// whether or not the runtime is driven; the future given to [`block_on`](Runtime::block_on), and
    /// what is [spawned locally](crate::spawn_local) there, stays on the thread that drives it. Each
    /// worker has a poller, queue and timers of its own.
    ///
    /// A task is taken by whichever worker has time for it, and stays there from its first poll on:
    /// **its home**. Its wakes, sockets and timers are then local, and no lock is contended. The other
    /// side of that: tasks are not moved away from a worker that turns out to be busy. What computes
    /// for long belongs in [`unblock`](crate::unblock), or in several smaller tasks. (And a task that
    /// spawns another one and then blocks its thread until that is done, by other means than
    /// [`block_on`](crate::block_on), may wait for ever: the first task that it spawns before it
    /// returns is left to its own worker. Likewise one that spawns another and computes for long keeps
    /// that one waiting.)
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

    /// What the workers' threads are called, followed by their number; `polder` by default. (Linux shows
    /// the first 15 bytes.)
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

    /// How long an idle worker polls, with a zero timeout again and again, before it sleeps in the
    /// kernel. By default not at all.
    ///
    /// Being put to sleep and woken takes a core tens of microseconds on a virtual machine, and some
    /// on any other. Where answers come faster than that, as with few connections that each wait for
    /// the other side, 50 µs of polling can multiply the requests a second: by how much depends on what
    /// waking a core takes on the machine (`docs/PERFORMANCE.md` has a row).
    /// With many connections a worker hardly ever sleeps, and there is nothing to gain.
    ///
    /// It is adaptive: a worker polls only while its recent idle times were that short, and so an idle
    /// program costs nothing. It never polls while other workers of its runtime have use for the
    /// core; of other programs it does not know. What it costs: up to `duration` of CPU time whenever
    /// something is long in coming after a quick exchange, and heat.
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

    /// Makes the runtime. The calling thread will be the one that drives it.
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
    /// [`Unsupported`](io::ErrorKind::Unsupported) where the backend is not available here,
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) where `POLDER_BACKEND` names none, for no
    /// workers or more than 1,024, and for a name with a NUL in it; and what the system says when
    /// there are no descriptors or threads left.
    pub fn build(self) -> io::Result<Runtime> {
        let invalid = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if !(1..=MOST_WORKERS).contains(&self.workers) {
            return invalid(format!(
                "a runtime has from 1 to {MOST_WORKERS} workers, not {}",
                self.workers
            ));
        }
        let name = self.name.as_deref().unwrap_or("polder");
        if name.contains('\0') {
            return invalid(format!("a thread's name has no NUL: {name:?}"));
        }
        let backend = match self.backend {
            Some(backend) => backend,
            None => Backend::from_env()?,
        };
        let pool_workers = match self.workers {
            1 => 0,
            several => several,
        };
        let reactors = (0..=pool_workers)
            .map(|_| Poller::new(backend).map(Reactor::new))
            .collect::<io::Result<Vec<_>>>()?;
        let shared = Arc::new(Shared::new(reactors));
        // From here on what fails drops the runtime, which ends the threads that have started.
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
