//! [`Builder`]: the settings of a runtime.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use super::Runtime;
use super::resolver::{self, Resolver};
use crate::clock::now;
use crate::diagnostics::{Stall, Watch, observe, record};
use crate::kernel;
use crate::poller::{Backend, Poller};
use crate::scheduler::{BusyPollConfig, Erased, Shared, Worker, monitor};
use crate::sync::contain;
use crate::sys::{explained, invalid, start_thread_with_stack};
use crate::telemetry::MAX_EVENTS;

/// Each worker has a thread, and occasionally reads the state of all others. No machine gains from
/// more.
const MAX_WORKERS: usize = 1_024;

/// More than any machine's memory, and small enough to be rounded up to whole pages.
const MAX_STACK: usize = 1 << (if usize::BITS >= 64 { 40 } else { 30 });

/// With [`Duration::MAX`] no timer would ever wake a sleeping worker.
const MAX_SLACK: Duration = Duration::from_secs(24 * 60 * 60);

/// With fewer, idle workers serve fewer of the others; with more, they contend for the poller's
/// locks.
const WORKERS_PER_POLLER: usize = 8;

/// Builds a [`Runtime`].
///
/// ```
/// use polder::{Backend, Runtime};
///
/// # #[cfg(unix)] {
/// let runtime = Runtime::builder().backend(Backend::Poll).build()?;
/// assert_eq!(runtime.backend(), Backend::Poll);
/// # } std::io::Result::Ok(())
/// ```
#[doc(alias("new_current_thread", "new_multi_thread", "enable_all"))]
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    backends: Option<Vec<Backend>>,
    workers: Option<usize>,
    workers_per_poller: Option<usize>,
    name: Option<String>,
    stack_size: Option<usize>,
    busy_poll: BusyPollConfig,
    timer_slack: Duration,
    on_thread_start: Option<ThreadHook>,
    on_thread_stop: Option<ThreadHook>,
    resolver: Option<Resolver>,
    watch: Option<Watch>,
    trace: Option<usize>,
}

/// The unwind safety of the function is its author's responsibility; a builder stays consistent
/// after its panic.
#[derive(Clone)]
pub(super) struct ThreadHook(Arc<dyn Fn(usize) + Send + Sync + UnwindSafe + RefUnwindSafe>);

impl ThreadHook {
    fn new(f: impl Fn(usize) + Send + Sync + 'static) -> ThreadHook {
        let f = AssertUnwindSafe(f);
        ThreadHook(Arc::new(move |worker| (*f)(worker)))
    }

    /// Contains a panic.
    pub(super) fn stop(&self, worker: usize) {
        contain(|| (self.0)(worker));
    }
}

impl fmt::Debug for ThreadHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ThreadHook")
    }
}

impl Builder {
    /// Returns a builder with the defaults.
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

    /// Sets the backend. The default is the first of [`Backend::list_from_env`] that can be opened.
    ///
    /// ```
    /// use polder::{Backend, Runtime};
    ///
    /// for backend in Backend::available() {
    ///     let runtime = Runtime::builder().backend(backend).build()?;
    ///     assert_eq!(runtime.block_on(async { 6 * 7 }), 42); // The same program, on each.
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn backend(self, backend: Backend) -> Builder {
        self.backends([backend])
    }

    /// Sets the backends in order of preference. The first that can be opened is used.
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

    /// Sets the number of threads that run spawned tasks. The default is one, the thread that
    /// drives the runtime.
    ///
    /// With two or more, the runtime starts a pool of that many threads. [Spawned](crate::spawn)
    /// tasks run there, whether or not the runtime is driven. The future of
    /// [`block_on`](Runtime::block_on) and [locally spawned](crate::spawn_local) tasks stay on the
    /// thread that drives the runtime. Each worker has its own run queue. Up to 8 of them
    /// [share](Self::workers_per_poller) a poller and its timers, and one at a time waits there.
    ///
    /// **A woken task is queued on the worker that woke it**: the worker of the task that it waited
    /// for, or the one that found its socket ready. Idle workers steal from busy ones. While a
    /// worker computes, an idle one takes its new and ready tasks, and those with a readable socket
    /// or a due timer: within a millisecond if a task of the pool has computed in the last 11 ms,
    /// and within 12 ms otherwise. If the worker sleeps or blocks in a call, that takes about
    /// 100 ms. Locally spawned tasks never move. If all workers compute, tasks wait: long
    /// computations and blocking calls belong in [`unblock`](crate::unblock).
    ///
    /// The first pool of a process starts a thread more, which finds workers that compute; on Linux
    /// two. They stay until the process ends, and sleep while no worker works.
    ///
    /// The first task that a task spawns in a poll wakes no other worker immediately, since the
    /// same worker most likely runs it next.
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
    #[doc(alias("worker_threads", "SMOL_THREADS", "ASYNC_STD_THREAD_COUNT"))]
    pub fn workers(mut self, workers: usize) -> Builder {
        self.workers = Some(workers);
        self
    }

    /// Sets the maximum number of workers that share a poller and its timers. The default is 8.
    ///
    /// A socket stays with the poller of the worker that first waits for it; tasks move between all
    /// workers. Fewer workers per poller reduce contention; more make it likelier that one of them
    /// is idle and can serve the others.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) returns [`InvalidInput`](std::io::ErrorKind::InvalidInput) for zero.
    ///
    /// ```
    /// // Two pollers for two workers each.
    /// let runtime = polder::Runtime::builder().workers(4).workers_per_poller(2).build()?;
    /// assert_eq!(runtime.workers(), 4);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn workers_per_poller(mut self, workers: usize) -> Builder {
        self.workers_per_poller = Some(workers);
        self
    }

    /// Sets the name of the pool's threads, to which their number is appended. The default is
    /// `polder`. Linux shows 15 bytes.
    ///
    /// ```
    /// let runtime = polder::Runtime::builder().workers(2).thread_name("busy bee").build()?;
    /// let name = runtime.spawn(async { std::thread::current().name().map(str::to_owned) });
    /// assert!(runtime.block_on(name).unwrap().starts_with("busy bee"));
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "name")]
    pub fn thread_name(mut self, name: impl Into<String>) -> Builder {
        self.name = Some(name.into());
        self
    }

    /// Sets the stack size of each pool thread, in bytes. The default is the standard library's: 2
    /// MiB, or `RUST_MIN_STACK`. The maximum is 1 TiB, or 1 GiB on a 32-bit platform. Futures are
    /// on the heap, so this matters for deep recursion and large arrays.
    ///
    /// ```
    /// fn depth(n: u32) -> u32 {
    ///     let frame = std::hint::black_box([0_u8; 64 * 1024]);
    ///     if n == 0 { u32::from(frame[0]) } else { 1 + depth(n - 1) }
    /// }
    ///
    /// let runtime = polder::Runtime::builder().workers(2).thread_stack_size(16 << 20).build()?;
    /// assert_eq!(runtime.block_on(runtime.spawn(async { depth(100) })), 100);
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "stack_size")]
    pub fn thread_stack_size(mut self, bytes: usize) -> Builder {
        self.stack_size = Some(bytes);
        self
    }

    /// Sets how long an idle worker polls before it sleeps in the kernel. The default is zero.
    ///
    /// Putting a core to sleep and waking it takes tens of microseconds on a virtual machine. If
    /// responses arrive faster, as with few connections that each wait for the peer, 50 µs of
    /// polling can multiply the requests per second (`docs/REPORT.md`). With many connections a
    /// worker rarely sleeps.
    ///
    /// A worker polls only while its recent idle times were at most `duration`, so an idle program
    /// uses no CPU, and never while more workers of its runtime are awake than there are cores. The
    /// price is heat, and up to `duration` of CPU time when a long wait follows a quick exchange.
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

    /// Sets by how much timers may be late, so that several share a wake-up, which saves energy.
    /// The default is zero: each timer is as precise as the backend.
    ///
    /// A sleeping worker wakes for its timers only at multiples of `slack`; a worker that is awake
    /// fires those that are due. No timer fires early. The slack applies to all timers of this
    /// runtime. The maximum is a day. For Linux's slack of a thread (`PR_SET_TIMERSLACK`), use
    /// [`on_thread_start`](Self::on_thread_start).
    ///
    /// ```
    /// use polder::Runtime;
    /// use polder::time::sleep;
    /// use std::time::{Duration, Instant};
    ///
    /// let runtime = Runtime::builder().timer_slack(Duration::from_millis(20)).build()?;
    /// let start = Instant::now();
    /// let tasks: Vec<_> = (1..=10)
    ///     .map(|n| runtime.spawn(sleep(Duration::from_millis(n))))
    ///     .collect();
    /// runtime.block_on(async {
    ///     for task in tasks {
    ///         task.await;
    ///     }
    /// });
    /// assert!(start.elapsed() >= Duration::from_millis(10));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn timer_slack(mut self, slack: Duration) -> Builder {
        self.timer_slack = slack;
        self
    }

    /// Sets a function that each worker's thread calls with the worker's index before it runs
    /// anything, for example to bind the thread to a core. With one worker, [`build`](Self::build)
    /// calls it with 0.
    ///
    /// ```
    /// use polder::Runtime;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// static STARTED: AtomicUsize = AtomicUsize::new(0);
    ///
    /// let runtime = Runtime::builder()
    ///     .workers(2)
    ///     // With the crate core_affinity: `core_affinity::set_for_current(cores[worker])`.
    ///     .on_thread_start(|worker| {
    ///         STARTED.fetch_add(worker + 1, Ordering::Relaxed);
    ///     })
    ///     .build()?;
    /// for worker in 0..2 {
    ///     runtime.block_on(runtime.handle().spawn_on_worker(worker, || async {}));
    /// }
    /// assert_eq!(STARTED.load(Ordering::Relaxed), 1 + 2);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Panics
    ///
    /// A panic of the function ends the runtime: driving it panics, and its tasks are cancelled.
    /// With one worker, `build` panics.
    pub fn on_thread_start<F>(mut self, start: F) -> Builder
    where
        F: Fn(usize) + Send + Sync + 'static,
    {
        self.on_thread_start = Some(ThreadHook::new(start));
        self
    }

    /// Sets a function that each worker's thread calls with the worker's index after it has dropped
    /// its tasks. Dropping the [`Runtime`] waits for it, and with one worker calls it with 0. It is
    /// not called if the process exits while the runtime lives, nor for the parent's runtime in a
    /// child of `fork`.
    ///
    /// ```
    /// use polder::Runtime;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// static ALIVE: AtomicUsize = AtomicUsize::new(0);
    ///
    /// let runtime = Runtime::builder()
    ///     .workers(2)
    ///     .on_thread_start(|_| {
    ///         ALIVE.fetch_add(1, Ordering::Relaxed);
    ///     })
    ///     .on_thread_stop(|_| {
    ///         ALIVE.fetch_sub(1, Ordering::Relaxed);
    ///     })
    ///     .build()?;
    /// runtime.block_on(async {});
    /// drop(runtime);
    /// assert_eq!(ALIVE.load(Ordering::Relaxed), 0);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Panics
    ///
    /// Reported by the panic hook, and otherwise ignored.
    pub fn on_thread_stop<F>(mut self, stop: F) -> Builder
    where
        F: Fn(usize) + Send + Sync + 'static,
    {
        self.on_thread_stop = Some(ThreadHook::new(stop));
        self
    }

    /// Reports polls that take longer than `over`, and so delay the other tasks of their worker:
    /// tasks that compute or make blocking calls. `callback` is called once during the poll and
    /// once after its end. Without this call, the environment variable `POLDER_STALL` (for example
    /// `100ms`) prints stalls to standard error.
    ///
    /// One thread checks all runtimes of the process; workers do nothing for it. A poll is noticed
    /// between 1 and 1.5 times `over` after its start, or later if that thread is delayed. Another
    /// thread calls `callback`: a slow call delays other reports, and while 64 wait, new stalls are
    /// not reported. A thread that was stopped (by a debugger, or SIGSTOP) has not stalled. The
    /// minimum is 100 µs.
    ///
    /// With the feature `stall-backtrace`, on Linux, SIGURG makes the stalled thread report its
    /// backtrace: see `docs/DIAGNOSTICS.md`.
    ///
    /// ```
    /// use polder::Runtime;
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    ///
    /// let (sender, stalls) = mpsc::channel();
    /// let runtime = Runtime::builder()
    ///     .on_stall(Duration::from_millis(20), move |stall| {
    ///         let _ = sender.send(stall.clone());
    ///     })
    ///     .build()?;
    /// let task = runtime.spawn(async move {
    ///     // This blocks until the stall is reported.
    ///     stalls.recv().unwrap()
    /// });
    /// let id = task.id();
    /// let stall = runtime.block_on(task);
    /// assert_eq!(stall.task.id, Some(id));
    /// eprintln!("{stall}"); // worker 0 is stalled: for 20.1ms it has …
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Panics
    ///
    /// Reported by the panic hook, and otherwise ignored.
    #[doc(alias("blocking", "watchdog", "stall_detection"))]
    pub fn on_stall<F>(mut self, over: Duration, callback: F) -> Builder
    where
        F: Fn(&Stall) + Send + Sync + 'static,
    {
        let callback = AssertUnwindSafe(callback);
        self.watch = Some(Watch::new(over, Arc::new(move |stall| (*callback)(stall))));
        self
    }

    /// Keeps the latest `events_per_worker` events of each worker: polls, spawns, wakes, sleeps,
    /// ready sources and fired timers. [`Runtime::trace`] returns them, for trace viewers. Without
    /// this call, the environment variable `POLDER_TRACE=FILE` keeps 65,536 per worker, and writes
    /// them to a file.
    ///
    /// An event takes 24 bytes and about 40 ns, and a poll has three: the wake, the start and the
    /// end. The number is rounded up to a power of two; the maximum is 2^26 (1.5 GiB per worker).
    /// The names of the last spawned tasks are kept, up to the same number.
    ///
    /// ```
    /// let runtime = polder::Runtime::builder().trace_capacity(65_536).build()?;
    /// runtime.block_on(async {});
    /// println!("{}", runtime.trace().unwrap());
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias("perfetto", "flight_recorder"))]
    pub fn trace_capacity(mut self, events_per_worker: usize) -> Builder {
        self.trace = Some(events_per_worker);
        self
    }

    /// Sets the name resolver of the runtime, for [`resolve`](crate::net::resolve) and each
    /// `connect` and `bind` with a name. The default is the system's, called on pool threads.
    ///
    /// It is called with the name as written, and returns its addresses in the order in which to
    /// try them. Its future runs as a task of the runtime. Identical concurrent look-ups share one
    /// call; when the last waiter is dropped, the task is cancelled. Results are not cached by
    /// polder.
    ///
    /// Within the resolver's future the system looks up names, so a resolver can delegate to it;
    /// not so in tasks that the future spawns, where a look-up of the same name waits for itself.
    /// Look-ups on a thread that drives no runtime use the system's resolver, too.
    ///
    /// A look-up makes progress while the runtime in which it began is driven; with two or more
    /// [workers](Self::workers), always. If the runtime is dropped first, it fails with
    /// [`Other`](io::ErrorKind::Other).
    ///
    /// The runtime drops the resolver after its last task, on the thread that drops the runtime, so
    /// a resolver may own a [`Handle`](super::Handle) of its runtime. From then on the system looks
    /// up names.
    ///
    /// ```
    /// use polder::Runtime;
    /// use polder::net::{IpAddr, Ipv4Addr, SocketAddr, resolve};
    ///
    /// let runtime = Runtime::builder()
    ///     .resolver(|host| async move {
    ///         match host.strip_suffix(".test") {
    ///             Some(_) => Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]),
    ///             None => Ok(resolve((host, 0)).await?.iter().map(SocketAddr::ip).collect()),
    ///         }
    ///     })
    ///     .build()?;
    /// let addresses = runtime.block_on(resolve("server.test:80"))?;
    /// assert_eq!(addresses, ["127.0.0.1:80".parse().unwrap()]);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// The crate polder-hickory adapts hickory-resolver, a DNS crate.
    #[cfg(feature = "net")]
    #[doc(alias("dns", "hickory", "trust-dns"))]
    pub fn resolver<R, F>(mut self, resolver: R) -> Builder
    where
        R: Fn(String) -> F + Send + Sync + 'static,
        F: Future<Output = io::Result<Vec<IpAddr>>> + Send + 'static,
    {
        let resolver = AssertUnwindSafe(resolver);
        self.resolver = Some(Resolver {
            id: 0,
            look_up: Arc::new(move |host| Box::pin((*resolver)(host))),
            ask: resolver::ask,
        });
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
    /// [`Unsupported`](io::ErrorKind::Unsupported) if the backend is not available, or the kernel's
    /// error if it refuses it (for a list: the errors of each);
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for an unknown name in `POLDER_BACKEND`, an
    /// empty list, zero or more than 1,024 workers, zero workers per poller, a name with a NUL
    /// byte, and a [stack](Self::thread_stack_size), [slack](Self::timer_slack) or
    /// [trace](Self::trace_capacity) beyond its maximum; and the system's error if descriptors or
    /// threads are exhausted (for a thread as the [source](std::error::Error::source), with the
    /// kind [`WouldBlock`](io::ErrorKind::WouldBlock)).
    pub fn build(self) -> io::Result<Runtime> {
        kernel::permit(super::ANOTHER_RUNTIME)?;
        let workers = self.workers.unwrap_or(1);
        if !(1..=MAX_WORKERS).contains(&workers) {
            let words = format!("workers must be between 1 and {MAX_WORKERS}, got {workers}");
            return Err(invalid(words));
        }
        if let Some(bytes) = self.stack_size.filter(|&bytes| bytes > MAX_STACK) {
            let words = format!("thread_stack_size must be at most {MAX_STACK} bytes, got {bytes}");
            return Err(invalid(words));
        }
        if self.timer_slack > MAX_SLACK {
            let (most, slack) = (MAX_SLACK, self.timer_slack);
            let words = format!("timer_slack must be at most {most:?}, got {slack:?}");
            return Err(invalid(words));
        }
        if let Some(events) = self.trace.filter(|&events| events > MAX_EVENTS) {
            let words = format!(
                "trace_capacity must be at most {MAX_EVENTS} events per worker (1.5 GiB), got {events}"
            );
            return Err(invalid(words));
        }
        let name = self.name.as_deref().unwrap_or("polder");
        if name.contains('\0') {
            let words = format!("name must not contain a NUL byte, got {name:?}");
            return Err(invalid(words));
        }
        let backends = match self.backends {
            Some(backends) => backends,
            None => Backend::list_from_env()?,
        };
        let pool_workers = if workers == 1 { 0 } else { workers };
        let workers_per_poller = self.workers_per_poller.unwrap_or(WORKERS_PER_POLLER);
        if workers_per_poller == 0 {
            return Err(invalid("workers_per_poller must be at least 1"));
        }
        let (shards, main) = Backend::first_that(backends, |backend| {
            // Nine workers are split into five and four, not eight and one.
            let count = pool_workers.div_ceil(workers_per_poller).max(1);
            let each = pool_workers.div_ceil(count).max(1);
            let shards = (0..pool_workers).step_by(each).map(|start| {
                let workers = start..pool_workers.min(start + each);
                let poller = Poller::open(backend, true)?;
                Ok((poller, workers.map(|_| None).collect()))
            });
            Ok((shards.collect::<io::Result<_>>()?, Poller::new(backend)?))
        })?;
        let resolver = self.resolver.as_ref().map(Resolver::for_runtime);
        let resolver = resolver.map(|resolver| Arc::new(resolver) as Erased);
        let mut shared = Shared::with_pool(shards, main);
        *shared.resolver.lock() = resolver;
        if pool_workers > 0 {
            shared.monitor_pause = monitor::pause();
        }
        if let Some(events) = self.trace {
            record(&mut shared, events);
        }
        let shared = observe(shared, self.watch)?;
        // On an error from here on, dropping the runtime joins the threads that were started.
        let mut runtime = Runtime::with_worker(Worker::with(
            shared.clone(),
            shared.main_index(),
            self.busy_poll,
        ));
        let origin = now();
        runtime.worker.driver.set_slack(self.timer_slack, origin);
        for index in 0..pool_workers {
            let shared = shared.clone();
            let (start, stop) = (self.on_thread_start.clone(), self.on_thread_stop.clone());
            let run = move || {
                let worker = Worker::with(shared, index, self.busy_poll);
                worker.driver.set_slack(self.timer_slack, origin);
                worker.run_pool_worker(|| start.iter().for_each(|start| (start.0)(index)));
                stop.iter().for_each(|stop| stop.stop(index));
            };
            let name = format!("{name}-{index}");
            match start_thread_with_stack(&name, self.stack_size, Box::new(run)) {
                Ok(thread) => runtime.threads.push(thread),
                Err(error) => {
                    // Other workers drop the tasks that were sent to these.
                    (runtime.shared()).workers_never_start(pool_workers - index);
                    let number = index + 1;
                    let words = format!(
                        "cannot start the thread of pool worker {number} of {pool_workers}"
                    );
                    return Err(explained(words, error));
                }
            }
        }
        if pool_workers > 0 {
            monitor::add(runtime.shared())
                .map_err(|error| explained("cannot start the monitor's thread".into(), error))?;
        } else {
            runtime.on_stop = self.on_thread_stop;
            let _driving = runtime.worker.drive();
            (self.on_thread_start.iter()).for_each(|start| (start.0)(0));
        }
        Ok(runtime)
    }
}
