//! Metrics of a runtime, and their text format.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[cfg(all(unix, feature = "env-diagnostics"))]
use super::json::Json;
use super::open_sockets::OpenSockets;
use super::seconds::Seconds;
use crate::poller::Backend;
use crate::scheduler::Shared;
use crate::sys;
use crate::telemetry::{self, Counter};

/// The metrics of a runtime, from [`Runtime::metrics`](crate::Runtime::metrics).
///
/// They are read while the workers run, and do not all show the same moment. Counters only grow
/// (and wrap if `usize` has 32 bits).
///
/// [`Display`](fmt::Display) writes the text format of [OpenMetrics], which Prometheus reads, up to
/// `# EOF`; insert the program's own metrics before that line. Serve it as
/// [`Metrics::CONTENT_TYPE`].
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
    /// The backend.
    pub backend: Backend,
    /// The number of tasks that have a future: ready, waiting or running.
    pub tasks: usize,
    /// The number of tasks that were ever spawned.
    pub spawned: usize,
    /// The number of tasks that have ended: finished, panicked, or cancelled.
    pub ended: usize,
    /// The number of tasks that wait for a pool worker to take them.
    pub injected: usize,
    /// The number of open sockets of the whole process, by kind.
    pub open_sockets: OpenSockets,
    /// The metrics of each worker; the last of [several](crate::runtime::Builder::workers) belongs
    /// to the thread that made the runtime.
    pub workers: Vec<WorkerMetrics>,
}

/// An element of [`Metrics::workers`].
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
    /// The number of tasks that it owns: polled ones that wait or are ready.
    pub tasks: usize,
    /// The number of sources registered with its poller. Those of a shared poller count for the
    /// first of its workers.
    pub sources: usize,
    /// Whether it sleeps, or is not driven.
    pub is_parked: bool,
    /// The processor time of its thread, for the main worker including the thread's other work.
    /// `None` until the worker was driven, and except on Linux and Android.
    pub cpu_time: Option<Duration>,
    /// The number of polls of tasks.
    pub polls: usize,
    /// The number of tasks spawned by its tasks or by the future of `block_on`.
    pub spawned: usize,
    /// The number of its tasks that another thread woke, or that were sent to it when spawned.
    pub remote_wakes: usize,
    /// The number of tasks that it took from other workers.
    pub stolen: usize,
    /// The number of times that it parked.
    pub parks: usize,
    /// The number of times that another thread woke it from parking, by a system call.
    pub notified: usize,
    /// The number of events that the kernel reported.
    pub events: usize,
    /// The number of timers that fired.
    pub timers_fired: usize,
    /// The delay of these timers by other work of the worker: zero for a timer that ended its
    /// sleep. With [`timer_slack`](crate::runtime::Builder::timer_slack), the time by which the
    /// wake-up was postponed.
    pub timer_lateness: Histogram,
    /// The number of times that a task had to yield because its budget was used up.
    pub budget_exhausted: usize,
    /// The largest number of ready tasks when a poll was timed.
    pub longest_queue: usize,
    /// The durations of polls, of which one in 64 is timed.
    pub poll_times: Histogram,
}

impl WorkerMetrics {
    fn of(shared: &Shared, index: usize) -> WorkerMetrics {
        let remote = shared.remote(index);
        let counters = &*remote.counters;
        let timer_lateness = Histogram::of(&counters.timer_lateness);
        WorkerMetrics {
            tasks: remote.tasks(),
            sources: shared.sources(index),
            is_parked: !remote.is_awake(),
            cpu_time: sys::thread_cpu_time(remote.thread()),
            polls: counters.polls.get(),
            spawned: remote.spawned(),
            remote_wakes: remote.sent().wrapping_add(counters.remote_wakes.get()),
            stolen: counters.stolen.get(),
            parks: counters.parks.get(),
            notified: counters.notified.get(),
            events: counters.events.get(),
            timers_fired: timer_lateness.count(),
            timer_lateness,
            budget_exhausted: counters.budget_exhausted.get(),
            longest_queue: counters.longest_queue.get(),
            poll_times: Histogram::of(&counters.poll_times),
        }
    }

    /// Returns the name, the help text and the value of each field.
    fn rows(&self) -> Vec<Row<'_>> {
        use Value::*;
        // Without `..`, so that a field that is not printed is a warning.
        let WorkerMetrics {
            tasks,
            sources,
            is_parked,
            cpu_time,
            polls,
            spawned,
            remote_wakes,
            stolen,
            parks,
            notified,
            events,
            timers_fired,
            timer_lateness,
            budget_exhausted,
            longest_queue,
            poll_times,
        } = self;
        vec![
            ("tasks", "Tasks that a worker owns.", Gauge(tasks)),
            (
                "sources",
                "Descriptors that are registered.",
                Gauge(sources),
            ),
            (
                "parked",
                "Whether a worker sleeps, or is not driven.",
                Flag(is_parked),
            ),
            (
                "cpu",
                "Processor time of a worker's thread.",
                Time(cpu_time),
            ),
            ("polls", "Polls of tasks.", Counter(polls)),
            (
                "worker_spawned",
                "Tasks spawned by a worker.",
                Counter(spawned),
            ),
            (
                "remote_wakes",
                "Wakes of tasks by other threads.",
                Counter(remote_wakes),
            ),
            ("stolen", "Tasks taken from other workers.", Counter(stolen)),
            ("parks", "How often a worker parked.", Counter(parks)),
            (
                "notified",
                "How often a parked worker was notified.",
                Counter(notified),
            ),
            (
                "events",
                "Events that the kernel reported.",
                Counter(events),
            ),
            ("timers_fired", "Timers that fired.", Counter(timers_fired)),
            (
                "timer_lateness",
                "How late timers fired.",
                Histogram(timer_lateness),
            ),
            (
                "budget_exhausted",
                "How often a task used up its budget.",
                Counter(budget_exhausted),
            ),
            (
                "longest_queue",
                "Ready tasks at most when a poll was timed.",
                Gauge(longest_queue),
            ),
            (
                "poll",
                "How long polls took, of one in 64.",
                Histogram(poll_times),
            ),
        ]
    }
}

impl Metrics {
    /// The content type of the text, for HTTP.
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
        // Read first, so that no task counts as ended but not as spawned.
        let ended = shared.ended_tasks();
        let spawned = shared.spawned_tasks();
        Metrics {
            backend: shared.main().reactor.poller().backend(),
            tasks: spawned.wrapping_sub(ended),
            spawned,
            ended,
            injected: shared.injected(),
            open_sockets: OpenSockets::of(shared),
            workers: (0..shared.remotes().len())
                .map(|index| WorkerMetrics::of(shared, index))
                .collect(),
        }
    }
}

/// For `POLDER_TOP`.
#[cfg(all(unix, feature = "env-diagnostics"))]
impl WorkerMetrics {
    /// Writes members named as in the text, without the common prefix. A histogram is the counts of
    /// its buckets.
    pub(super) fn write_json(&self, out: &mut String) {
        let mut json = Json::object(out);
        for (name, _, value) in self.rows() {
            let key = format!("{name}{}", value.kind().2);
            match value {
                Value::Gauge(number) | Value::Counter(number) => json.value(&key, number),
                Value::Flag(is_so) => json.value(&key, is_so),
                Value::Time(Some(time)) => json.value(&key, format_args!("{:.6}", Seconds(*time))),
                Value::Time(None) => continue,
                Value::Histogram(Histogram { counts, sum }) => {
                    Json::object(json.key(&key))
                        .value("sum", format_args!("{:.6}", Seconds(*sum)))
                        .value("counts", format_args!("{counts:?}"));
                    continue;
                }
            };
        }
    }
}

/// A histogram of durations, in buckets up to 1, 2, 4, … 2^20 microseconds (a second), and above.
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
    counts: [usize; telemetry::BUCKETS],
    sum: Duration,
}

impl Histogram {
    fn of(histogram: &telemetry::Histogram) -> Histogram {
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

    /// Returns the buckets: the inclusive upper limit of each, and the number of measurements above
    /// the previous limit. The last bucket has no limit.
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
    /// assert_eq!(times.buckets().map(|bucket| bucket.1).sum::<usize>(), times.count());
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
        let mut row = |name, help, value: Value<'_>| {
            let name = format!("polder_{name}");
            family(f, value.kind().0, &name, help)?;
            value.write(f, &name, "")
        };
        let not_taken = "Tasks that no worker has taken yet.";
        let (tasks, injected) = (Value::Gauge(&self.tasks), Value::Gauge(&self.injected));
        let (spawned, ended) = (Value::Counter(&self.spawned), Value::Counter(&self.ended));
        row("tasks", "Tasks that have a future.", tasks)?;
        row("injected_tasks", not_taken, injected)?;
        row("spawned", "Tasks that were spawned.", spawned)?;
        row("ended", "Tasks that have ended.", ended)?;
        let open = "Sockets that the process has open.";
        family(f, "gauge", "polder_open_sockets", open)?;
        for (kind, _, count) in self.open_sockets.rows() {
            writeln!(f, "polder_open_sockets{{kind=\"{kind}\"}} {count}")?;
        }
        let workers: Vec<Vec<Row<'_>>> = self.workers.iter().map(WorkerMetrics::rows).collect();
        let first = workers.first().map_or(&[][..], Vec::as_slice);
        for (nth, (name, help, value)) in first.iter().enumerate() {
            let (kind, prefix, unit) = value.kind();
            let name = format!("polder_{prefix}{name}{unit}");
            family(f, kind, &name, help)?;
            for (index, rows) in workers.iter().enumerate() {
                rows[nth]
                    .2
                    .write(f, &name, &format!("{{worker=\"{index}\"}}"))?;
            }
        }
        f.write_str("# EOF\n")
    }
}

type Row<'a> = (&'static str, &'static str, Value<'a>);

#[derive(Clone, Copy)]
enum Value<'a> {
    Gauge(&'a usize),
    Flag(&'a bool),
    Counter(&'a usize),
    /// A counter of time, if the system reports it.
    Time(&'a Option<Duration>),
    Histogram(&'a Histogram),
}

impl Value<'_> {
    /// Returns the type of its family, and the prefix and suffix of its name for a worker.
    fn kind(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Value::Gauge(_) | Value::Flag(_) => ("gauge", "worker_", ""),
            Value::Counter(_) => ("counter", "", ""),
            Value::Time(_) => ("counter", "", "_seconds"),
            Value::Histogram(_) => ("histogram", "", "_seconds"),
        }
    }

    /// Writes its samples, with the worker's label or an empty one.
    fn write(self, f: &mut fmt::Formatter<'_>, name: &str, label: &str) -> fmt::Result {
        match self {
            Value::Gauge(number) => writeln!(f, "{name}{label} {number}"),
            Value::Flag(is_so) => writeln!(f, "{name}{label} {}", u8::from(*is_so)),
            Value::Counter(number) => writeln!(f, "{name}_total{label} {number}"),
            Value::Time(Some(time)) => writeln!(f, "{name}_total{label} {}", Seconds(*time)),
            Value::Time(None) => Ok(()),
            // Each bucket includes the counts of those before.
            Value::Histogram(histogram) => {
                let (mut count, open) = (0usize, label.trim_end_matches('}'));
                for (limit, of_bucket) in histogram.buckets() {
                    count = count.wrapping_add(of_bucket);
                    write!(f, "{name}_bucket{open},le=\"")?;
                    match limit {
                        Some(limit) => write!(f, "{}", Seconds(limit))?,
                        None => f.write_str("+Inf")?,
                    }
                    writeln!(f, "\"}} {count}")?;
                }
                writeln!(f, "{name}_count{label} {count}")?;
                writeln!(f, "{name}_sum{label} {}", Seconds(histogram.sum))
            }
        }
    }
}

fn family(f: &mut fmt::Formatter<'_>, kind: &str, name: &str, help: &str) -> fmt::Result {
    writeln!(f, "# TYPE {name} {kind}")?;
    if let Some(unit @ "seconds") = name.rsplit('_').next() {
        writeln!(f, "# UNIT {name} {unit}")?;
    }
    writeln!(f, "# HELP {name} {help}")
}
