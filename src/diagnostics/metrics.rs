//! Metrics of a runtime, and their text format.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::seconds::Seconds;
use crate::poller::Backend;
use crate::reactor::{self, Counter};
use crate::scheduler::Shared;
use crate::sys;

/// The metrics of a runtime, from [`Runtime::metrics`](crate::Runtime::metrics).
///
/// They are read while the workers run, so they do not all show the same moment. Counters only
/// grow, from the start of the runtime (they wrap if `usize` has 32 bits).
///
/// [`Display`](fmt::Display) writes them in the text format of [OpenMetrics], which Prometheus and
/// others read, ended by `# EOF`. Return it for an HTTP `GET` with the content type
/// [`Metrics::CONTENT_TYPE`]. The program's own metrics go before the last line.
///
/// ```
/// let runtime = polder::Runtime::builder().workers(2).build()?;
/// runtime.block_on(runtime.spawn(async {}));
/// let text = runtime.metrics().to_string();
/// assert!(text.contains("polder_polls_total{worker=\"0\"}"), "{text}");
/// assert!(text.ends_with("# EOF\n"));
/// # std::io::Result::Ok(())
/// ```
///
/// [OpenMetrics]: https://prometheus.io/docs/specs/om/open_metrics_spec/
#[doc(alias = "RuntimeMetrics")]
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Metrics {
    /// The backend that polls the kernel.
    pub backend: Backend,
    /// The number of tasks that have a future: ready, waiting or running.
    pub tasks: usize,
    /// The number of tasks that were spawned.
    pub spawned: usize,
    /// The number of tasks that have ended: finished, panicked, or cancelled.
    pub ended: usize,
    /// The number of tasks that wait for a pool worker to take them: new ones, and those that
    /// another thread has woken.
    pub injected: usize,
    /// The metrics of each worker. If there are [several](crate::runtime::Builder::workers), the
    /// last one belongs to the thread that made the runtime.
    pub workers: Vec<WorkerMetrics>,
}

/// The numbers of one worker, an element of [`Metrics::workers`].
///
/// ```
/// let runtime = polder::Runtime::new()?;
/// runtime.block_on(runtime.spawn(async {}));
/// let worker = &runtime.metrics().workers[0];
/// assert_eq!((worker.spawned, worker.tasks), (0, 0)); // Spawned from outside.
/// assert!(worker.polls > 0);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct WorkerMetrics {
    /// The number of tasks that it owns: those that were polled, and wait or are ready.
    pub tasks: usize,
    /// The number of sources (sockets and other descriptors) that are registered with its poller.
    /// Pool workers share one, and its sources count for the first of them.
    pub sources: usize,
    /// Whether it sleeps, or is not driven.
    pub is_parked: bool,
    /// The processor time that its thread has used: the increase within a second shows how busy it
    /// is. (For the main worker's thread this includes its other work.) `None` until the worker was
    /// driven, and on systems that do not report it; Linux and Android do.
    pub cpu_time: Option<Duration>,
    /// The number of times that it polled a task.
    pub polls: usize,
    /// The number of tasks that were spawned by its tasks, or by the future of `block_on`.
    pub spawned: usize,
    /// The number of its tasks that came from another thread: woken there, or sent to this worker
    /// by their spawner.
    pub remote_wakes: usize,
    /// The number of tasks that it took from other workers, which had not run them yet.
    pub stolen: usize,
    /// The number of times that it parked, to sleep until something comes.
    pub parks: usize,
    /// The number of times that another thread woke it from parking, at the cost of a system call.
    pub notified: usize,
    /// The number of events that the kernel reported.
    pub events: usize,
    /// The number of timers that fired.
    pub timers_fired: usize,
    /// The delay of these timers after their deadlines, as far as it was due to other work of the
    /// worker. For a timer for which the worker slept, the delay is zero, however late the kernel
    /// woke it; with [`timer_slack`](crate::runtime::Builder::timer_slack), it is the time by which
    /// the wake-up was postponed.
    pub timer_lateness: Histogram,
    /// The number of times that a task had to yield because it had used up its budget of
    /// operations.
    pub budget_exhausted: usize,
    /// The largest number of tasks that were ready at the same time when a poll was timed.
    pub longest_queue: usize,
    /// The durations of polls. One in 64 is timed.
    pub poll_times: Histogram,
}

impl Metrics {
    /// The content type of the text, for an HTTP response.
    ///
    /// ```
    /// use polder::diagnostics::Metrics;
    ///
    /// let body = polder::Runtime::new()?.metrics().to_string();
    /// let head = format!(
    ///     "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n",
    ///     Metrics::CONTENT_TYPE,
    ///     body.len()
    /// );
    /// # assert!(head.contains("application/openmetrics-text"));
    /// # std::io::Result::Ok(())
    /// ```
    pub const CONTENT_TYPE: &'static str =
        "application/openmetrics-text; version=1.0.0; charset=utf-8";

    pub(crate) fn of(shared: &Shared) -> Metrics {
        // The ended tasks first, so that no task counts as ended but not as spawned.
        let ended = shared.ended_tasks();
        let spawned = shared.spawned_tasks();
        Metrics {
            backend: shared.main().reactor.poller().backend(),
            tasks: spawned.wrapping_sub(ended),
            spawned,
            ended,
            injected: shared.injected(),
            workers: (0..shared.remotes().len())
                .map(|index| WorkerMetrics::of(shared, index))
                .collect(),
        }
    }
}

impl WorkerMetrics {
    fn of(shared: &Shared, index: usize) -> WorkerMetrics {
        let remote = shared.remote(index);
        let counters = remote.reactor.counters();
        WorkerMetrics {
            tasks: remote.tasks(),
            sources: shared.sources(index),
            is_parked: remote.reactor.is_parked(),
            cpu_time: sys::thread_cpu_time(remote.thread()),
            polls: counters.polls.get(),
            spawned: remote.spawned(),
            remote_wakes: remote.sent().wrapping_add(counters.remote_wakes.get()),
            stolen: counters.stolen.get(),
            parks: counters.parks.get(),
            notified: counters.notified.get(),
            events: counters.events.get(),
            timers_fired: counters.timers_fired.get(),
            timer_lateness: Histogram::of(&counters.timer_lateness),
            budget_exhausted: counters.budget_exhausted.get(),
            longest_queue: counters.longest_queue.get(),
            poll_times: Histogram::of(&counters.poll_times),
        }
    }
}

/// For `POLDER_TOP`.
#[cfg(all(unix, feature = "environment"))]
impl WorkerMetrics {
    /// Writes one JSON object. Its members have the names of the text without their common prefix.
    /// A histogram is written as the counts of its buckets.
    pub(super) fn write_json(&self, out: &mut String) -> fmt::Result {
        use fmt::Write as _;

        out.push('{');
        for (name, _, value) in WORKER_GAUGES.iter().chain(&WORKER_COUNTERS) {
            write!(out, "\"{name}\":{},", value(self))?;
        }
        for (name, _, value) in WORKER_HISTOGRAMS {
            let histogram = value(self);
            let (sum, counts) = (Seconds(histogram.sum), histogram.counts);
            write!(
                out,
                "\"{name}_seconds\":{{\"sum\":{sum:.6},\"counts\":{counts:?}}},"
            )?;
        }
        if let Some(time) = self.cpu_time {
            write!(out, "\"cpu_seconds\":{:.6},", Seconds(time))?;
        }
        write!(out, "\"parked\":{}}}", self.is_parked)
    }
}

/// A histogram of durations: the counts of those up to one microsecond, up to two, up to four, and
/// so on up to a second (2^20 microseconds), and of longer ones.
///
/// ```
/// use std::time::Duration;
///
/// let runtime = polder::Runtime::new()?;
/// runtime.block_on(polder::time::sleep(Duration::from_millis(1)));
/// let lateness = &runtime.metrics().workers[0].timer_lateness;
/// assert_eq!(lateness.count(), 1);
/// let longest = lateness.buckets().filter(|(_, count)| *count > 0).last();
/// let (limit, _) = longest.unwrap();
/// assert!(limit.is_none_or(|limit| limit >= lateness.sum()));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Histogram {
    counts: [usize; reactor::BUCKETS],
    sum: Duration,
}

impl Histogram {
    fn of(histogram: &reactor::Histogram) -> Histogram {
        Histogram {
            counts: histogram.buckets.each_ref().map(Counter::get),
            sum: Duration::from_nanos(histogram.nanoseconds.load(Ordering::Relaxed)),
        }
    }

    /// Returns the number of measurements.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// assert_eq!(runtime.metrics().workers[0].timer_lateness.count(), 0); // No timer has fired.
    /// # std::io::Result::Ok(())
    /// ```
    pub fn count(&self) -> usize {
        self.counts.iter().copied().fold(0, usize::wrapping_add)
    }

    /// Returns the sum of all measurements.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// let times = &runtime.metrics().workers[0].poll_times;
    /// if times.count() > 0 {
    ///     println!("{:?} a poll", times.sum() / times.count() as u32);
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Returns the buckets: the upper limit of each, inclusive, and the number of measurements that
    /// exceed the limit of the bucket before. The last one has no limit.
    ///
    /// ```
    /// let runtime = polder::Runtime::new()?;
    /// let times = &runtime.metrics().workers[0].poll_times;
    /// for (limit, count) in times.buckets() {
    ///     match limit {
    ///         Some(limit) => println!("up to {limit:?}: {count}"),
    ///         None => println!("longer: {count}"),
    ///     }
    /// }
    /// assert_eq!(times.buckets().map(|it| it.1).sum::<usize>(), times.count());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, usize)> + '_ {
        self.counts.iter().enumerate().map(|(index, count)| {
            let is_last = index == self.counts.len() - 1;
            let limit = (!is_last).then(|| Duration::from_micros(1 << index));
            (limit, *count)
        })
    }
}

impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        family(f, "info", "polder", "What the runtime is.")?;
        writeln!(f, "polder_info{{backend=\"{}\"}} 1", self.backend.name())?;
        let gauges = [
            ("tasks", "Tasks that have a future.", self.tasks),
            (
                "injected_tasks",
                "Tasks that no worker has taken yet.",
                self.injected,
            ),
        ];
        for (name, help, value) in gauges {
            let name = format!("polder_{name}");
            family(f, "gauge", &name, help)?;
            writeln!(f, "{name} {value}")?;
        }
        let counters = [
            ("spawned", "Tasks that were spawned.", self.spawned),
            ("ended", "Tasks that have ended.", self.ended),
        ];
        for (name, help, value) in counters {
            let name = format!("polder_{name}");
            family(f, "counter", &name, help)?;
            writeln!(f, "{name}_total {value}")?;
        }
        for (name, help, value) in WORKER_GAUGES {
            let name = format!("polder_worker_{name}");
            family(f, "gauge", &name, help)?;
            for (index, worker) in self.workers.iter().enumerate() {
                writeln!(f, "{name}{{worker=\"{index}\"}} {}", value(worker))?;
            }
        }
        let name = "polder_worker_parked";
        family(
            f,
            "gauge",
            name,
            "Whether a worker sleeps, or is not driven.",
        )?;
        for (index, worker) in self.workers.iter().enumerate() {
            let value = u8::from(worker.is_parked);
            writeln!(f, "{name}{{worker=\"{index}\"}} {value}")?;
        }
        for (name, help, value) in WORKER_COUNTERS {
            let name = format!("polder_{name}");
            family(f, "counter", &name, help)?;
            for (index, worker) in self.workers.iter().enumerate() {
                writeln!(f, "{name}_total{{worker=\"{index}\"}} {}", value(worker))?;
            }
        }
        let name = "polder_cpu_seconds";
        family(f, "counter", name, "Processor time of a worker's thread.")?;
        for (index, worker) in self.workers.iter().enumerate() {
            if let Some(time) = worker.cpu_time {
                let time = Seconds(time);
                writeln!(f, "{name}_total{{worker=\"{index}\"}} {time}")?;
            }
        }
        for (name, help, value) in WORKER_HISTOGRAMS {
            let name = format!("polder_{name}_seconds");
            family(f, "histogram", &name, help)?;
            for (index, worker) in self.workers.iter().enumerate() {
                write_histogram(f, &name, index, value(worker))?;
            }
        }
        f.write_str("# EOF\n")
    }
}

/// The name, the help text, and the field.
type Row<T> = (&'static str, &'static str, fn(&WorkerMetrics) -> &T);

const WORKER_GAUGES: [Row<usize>; 3] = [
    ("tasks", "Tasks that a worker owns.", |it| &it.tasks),
    ("sources", "Descriptors that are registered.", |it| {
        &it.sources
    }),
    (
        "longest_queue",
        "Ready tasks at most when a poll was timed.",
        |it| &it.longest_queue,
    ),
];

const WORKER_COUNTERS: [Row<usize>; 9] = [
    ("polls", "Polls of tasks.", |it| &it.polls),
    ("worker_spawned", "Tasks spawned by a worker.", |it| {
        &it.spawned
    }),
    ("remote_wakes", "Wakes of tasks by other threads.", |it| {
        &it.remote_wakes
    }),
    ("stolen", "Tasks taken from other workers.", |it| &it.stolen),
    ("parks", "How often a worker parked.", |it| &it.parks),
    (
        "notified",
        "How often a parked worker was notified.",
        |it| &it.notified,
    ),
    ("events", "Events that the kernel reported.", |it| {
        &it.events
    }),
    ("timers_fired", "Timers that fired.", |it| &it.timers_fired),
    (
        "budget_exhausted",
        "How often a task used up its budget.",
        |it| &it.budget_exhausted,
    ),
];

const WORKER_HISTOGRAMS: [Row<Histogram>; 2] = [
    ("poll", "How long polls took, of one in 64.", |it| {
        &it.poll_times
    }),
    ("timer_lateness", "How late timers fired.", |it| {
        &it.timer_lateness
    }),
];

/// Writes the lines before the samples of a metric.
fn family(f: &mut fmt::Formatter<'_>, kind: &str, name: &str, help: &str) -> fmt::Result {
    writeln!(f, "# TYPE {name} {kind}")?;
    if let Some(unit @ "seconds") = name.rsplit('_').next() {
        writeln!(f, "# UNIT {name} {unit}")?;
    }
    writeln!(f, "# HELP {name} {help}")
}

/// Writes a histogram. Each bucket counts all values up to its limit, including those of the
/// buckets before.
fn write_histogram(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    worker: usize,
    histogram: &Histogram,
) -> fmt::Result {
    let mut count = 0usize;
    for (limit, of_bucket) in histogram.buckets() {
        count = count.wrapping_add(of_bucket);
        write!(f, "{name}_bucket{{worker=\"{worker}\",le=\"")?;
        match limit {
            Some(limit) => write!(f, "{}", Seconds(limit))?,
            None => f.write_str("+Inf")?,
        }
        writeln!(f, "\"}} {count}")?;
    }
    writeln!(f, "{name}_count{{worker=\"{worker}\"}} {count}")?;
    let sum = Seconds(histogram.sum);
    writeln!(f, "{name}_sum{{worker=\"{worker}\"}} {sum}")
}
