//! Metrics of a runtime.

use std::collections::{HashMap, HashSet};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use polder::Runtime;
use polder::diagnostics::Metrics;
use polder::future;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream, UdpSocket};
use polder::time::sleep;

use crate::probe::join_all;
use crate::support::{eventually, on_every_backend, runtime, until, with_every_runtime};

/// Returns the sum over all workers.
fn sum(metrics: &Metrics, number: impl Fn(&polder::diagnostics::WorkerMetrics) -> usize) -> usize {
    metrics.workers.iter().map(number).sum()
}

/// Tasks are counted when they are spawned polled and ended.
#[test]
fn tasks_counted_spawned_polled_ended() {
    with_every_runtime(|runtime, _| {
        let before = runtime.metrics();
        assert_eq!((before.spawned, before.ended, before.tasks), (0, 0, 0));
        let yields = || async {
            for _ in 0..9 {
                future::yield_now().await;
            }
        };
        let tasks: Vec<_> = (0..10).map(|_| runtime.spawn(yields())).collect();
        let endless = runtime.spawn(future::pending::<()>());
        assert_eq!(runtime.metrics().spawned, 11);
        runtime.block_on(async move {
            join_all(tasks).await;
        });
        let metrics = runtime.metrics();
        assert_eq!((metrics.spawned, metrics.ended, metrics.tasks), (11, 10, 1));
        let polls = sum(&metrics, |it| it.polls);
        assert!((100..=101).contains(&polls), "{polls} polls");
        runtime.block_on(endless.cancel());
        assert_eq!(runtime.metrics().tasks, 0);
    });
}

#[test]
fn events_timers_and_used_up_budgets_are_counted() {
    with_every_runtime(|runtime, _| {
        let exchange = async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut near = TcpStream::connect(listener.local_addr().unwrap())
                .await
                .unwrap();
            let (mut far, _) = listener.accept().await.unwrap();
            let echo = polder::spawn(async move {
                let mut byte = [0];
                while far.read_exact(&mut byte).await.is_ok() {
                    far.write_all(&byte).await.unwrap();
                }
            });
            for _ in 0..100 {
                near.write_all(&[1]).await.unwrap();
                near.read_exact(&mut [0]).await.unwrap();
            }
            drop(near);
            echo.await;
            // More operations than a poll has budget for, none of which blocks.
            let mut near = TcpStream::connect(listener.local_addr().unwrap())
                .await
                .unwrap();
            for _ in 0..300 {
                near.write_all(&[1]).await.unwrap();
            }
            sleep(Duration::from_millis(2)).await;
        };
        runtime.block_on(runtime.spawn(exchange));
        let metrics = runtime.metrics();
        let events = sum(&metrics, |it| it.events);
        assert!(events >= 100, "{events} events of a hundred round trips");
        assert_eq!(sum(&metrics, |it| it.timers_fired), 1);
        assert_eq!(sum(&metrics, |it| it.timer_lateness.count()), 1);
        assert!(sum(&metrics, |it| it.parks) > 0);
        let refused = sum(&metrics, |it| it.budget_exhausted);
        assert!((2..=8).contains(&refused), "refused {refused} times");
    });
}

/// Sources are counted as long as they are registered.
#[test]
fn sources_counted_while_registered() {
    with_every_runtime(|runtime, _| {
        let sources = || sum(&runtime.metrics(), |worker| worker.sources);
        let before = sources();
        for _ in 0..2 {
            let sockets = runtime.block_on(runtime.spawn(async {
                let mut sockets = Vec::new();
                for _ in 0..3 {
                    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
                    let waits = future::poll_once(socket.recv(&mut [0])).await;
                    assert!(waits.is_none());
                    sockets.push(socket);
                }
                sockets
            }));
            assert_eq!(sources(), before + sockets.len());
            drop(sockets);
            eventually("they are registered no more", || sources() == before);
        }
    });
}

/// A wake by another thread is counted where the task is.
#[test]
fn remote_wake_counted_at_task() {
    with_every_runtime(|runtime, _| {
        let handle = runtime.handle();
        let (sender, receiver) = mpsc::channel();
        let task = runtime.spawn(async move {
            let mut is_first = true;
            future::poll_fn(|cx| {
                if std::mem::take(&mut is_first) {
                    sender.send(cx.waker().clone()).unwrap();
                    std::task::Poll::Pending
                } else {
                    std::task::Poll::Ready(())
                }
            })
            .await;
        });
        let waker = thread::spawn(move || {
            let waker = receiver.recv().unwrap();
            // (A task that is woken while it still runs is scheduled by its own worker.)
            let sleeps = || handle.metrics().workers.iter().all(|it| it.is_parked);
            eventually("the task waits", sleeps);
            let before = sum(&handle.metrics(), |it| it.remote_wakes);
            waker.wake();
            before
        });
        runtime.block_on(task);
        let before = waker.join().unwrap();
        assert_eq!(sum(&runtime.metrics(), |it| it.remote_wakes), before + 1);
    });
}

/// The processor time of a worker grows while it computes and not while it sleeps.
#[test]
fn cpu_time_grows_only_while_computing() {
    with_every_runtime(|runtime, _| {
        let used = |runtime: &Runtime| {
            let metrics = runtime.metrics();
            let times = metrics.workers.iter().filter_map(|it| it.cpu_time);
            times.sum::<Duration>()
        };
        runtime.block_on(async {}); // Before, no call has driven it.
        let is_told = cfg!(any(target_os = "linux", target_os = "android"));
        let before = used(&runtime);
        let computed = Duration::from_millis(20);
        runtime.block_on(runtime.spawn(async move {
            let start = cpu_time();
            while is_told && cpu_time() - start < computed {}
        }));
        let after = used(&runtime);
        assert!(
            !is_told || after - before >= computed,
            "{before:?} {after:?}"
        );
        runtime.block_on(sleep(Duration::from_millis(100)));
        let slept = used(&runtime) - after;
        assert!(
            slept < Duration::from_millis(50),
            "{slept:?} of 100 ms asleep"
        );
    });
}

/// Returns this thread's CPU time, as the system reports it.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn cpu_time() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn cpu_time() -> Duration {
    Duration::ZERO
}

#[test]
fn metrics_are_read_while_a_worker_is_stuck() {
    on_every_backend(|backend| {
        let (sender, receiver) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let runner = thread::spawn(move || {
            let runtime = runtime(backend);
            let handle = runtime.handle();
            runtime.block_on(async {
                // Blocks the worker's thread on purpose.
                sender.send(handle).unwrap();
                ends.recv().unwrap();
            });
        });
        let metrics = receiver.recv().unwrap().metrics();
        assert_eq!(metrics.backend, backend);
        end.send(()).unwrap();
        runner.join().unwrap();
    });
}

#[test]
fn one_poll_in_64_is_timed() {
    with_every_runtime(|runtime, _| {
        runtime.block_on(runtime.spawn(async {
            for _ in 0..1_000 {
                future::yield_now().await;
            }
        }));
        // The task is done within its last poll, which may not have been counted yet.
        eventually("the last poll is counted", || {
            let workers = runtime.metrics().workers;
            (workers.iter()).all(|worker| worker.poll_times.count() == worker.polls / 64)
        });
        for worker in runtime.metrics().workers {
            assert!(worker.longest_queue <= 2, "{worker:?}");
        }
    });
}

#[test]
fn numbers_are_written_as_openmetrics_text() {
    with_every_runtime(|runtime, backend| {
        runtime.block_on(runtime.spawn(async {
            for _ in 0..200 {
                future::yield_now().await;
            }
            until("a timer fires", || true).await;
            sleep(Duration::from_micros(1)).await;
        }));
        let metrics = runtime.metrics();
        let samples = parse(&metrics.to_string()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(samples["polder_spawned_total"], metrics.spawned as f64);
        let name = backend.name();
        assert_eq!(samples[&format!("polder_info{{backend=\"{name}\"}}")], 1.0);
        for (index, worker) in metrics.workers.iter().enumerate() {
            let of = |name: &str| samples[&format!("{name}{{worker=\"{index}\"}}")];
            assert_eq!(of("polder_polls_total"), worker.polls as f64);
            let timed = worker.poll_times.count() as f64;
            assert_eq!(of("polder_poll_seconds_count"), timed);
            let unlimited = format!("polder_poll_seconds_bucket{{worker=\"{index}\",le=\"+Inf\"}}");
            assert_eq!(samples[&unlimited], timed);
        }
    });
}

/// Every metric is described in the page about diagnostics.
///
/// The page names them without the prefix, counters with their suffix.
#[test]
fn every_metric_is_documented() {
    let page = include_str!("../../../docs/DIAGNOSTICS.md");
    let text = Runtime::new().unwrap().metrics().to_string();
    let types = text
        .lines()
        .filter_map(|it| it.strip_prefix("# TYPE polder_"));
    let mut count = 0;
    for (name, kind) in types.map(|it| it.split_once(' ').expect("a name and a type")) {
        let suffix = if kind == "counter" { "_total" } else { "" };
        let name = format!("`{name}{suffix}`");
        assert!(page.contains(&name), "docs/DIAGNOSTICS.md lacks {name}");
        count += 1;
    }
    assert!(count > 15, "{text}");
}

/// Parses text by the grammar of OpenMetrics 1.0, as far as it is used: families of metrics are
/// contiguous, each with its type before its samples; samples have the suffixes of that type, once
/// each; buckets grow up to `+Inf`.
fn parse(text: &str) -> Result<HashMap<String, f64>, String> {
    let text = text
        .strip_suffix("# EOF\n")
        .ok_or("no `# EOF` at the end")?;
    let (mut family, mut kind) = (String::new(), String::new());
    let (mut families, mut samples) = (HashSet::new(), HashMap::new());
    let mut buckets: Option<(String, f64, f64)> = None;
    for line in text.split_terminator('\n') {
        let error = |what: &str| Err(format!("{what}: {line:?}"));
        if let Some(rest) = line.strip_prefix("# ") {
            let words: Vec<_> = rest.splitn(3, ' ').collect();
            let [keyword, name, rest] = words[..] else {
                return error("a line of metadata has three parts");
            };
            match keyword {
                "TYPE" => {
                    if !families.insert(name.to_string()) {
                        return error("a family comes twice");
                    }
                    (family, kind) = (name.into(), rest.into());
                }
                "UNIT" if name == family && name.ends_with(&format!("_{rest}")) => {}
                "HELP" if name == family && !rest.contains(['\\', '"']) => {}
                _ => return error("metadata is not of its family"),
            }
            continue;
        }
        let Some((key, value)) = line.rsplit_once(' ') else {
            return error("a sample has a value");
        };
        let Ok(value) = value.parse::<f64>() else {
            return error("a value is a number");
        };
        let (name, labels) = match key.split_once('{') {
            Some((name, rest)) => (name, rest.strip_suffix('}').ok_or("no `}`")?),
            None => (key, ""),
        };
        let allowed: &[&str] = match &*kind {
            "gauge" => &[""],
            "counter" => &["_total"],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_count", "_sum"],
            _ => return error("an unknown type"),
        };
        let suffix = name
            .strip_prefix(&*family)
            .ok_or(format!("no type before {line:?}"))?;
        if !allowed.contains(&suffix) {
            return error("a suffix that its type does not have");
        }
        let mut limit = None;
        for label in labels.split(',').filter(|label| !label.is_empty()) {
            let Some((label, quoted)) = label.split_once('=') else {
                return error("a label has a value");
            };
            let inner = quoted.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            match inner {
                Some(text) if label.chars().all(is_name) && !text.contains(['"', '\\']) => {
                    limit = (label == "le").then(|| text.to_string()).or(limit);
                }
                _ => return error("a label is quoted"),
            }
        }
        if suffix == "_bucket" {
            let series = labels.split(",le=").next().unwrap_or_default().to_string();
            let limit = match limit.as_deref() {
                Some("+Inf") => f64::INFINITY,
                Some(limit) => limit.parse().map_err(|_| format!("no limit: {line:?}"))?,
                None => return error("a bucket has a limit"),
            };
            let before = buckets.filter(|(other, ..)| *other == series);
            if before.is_some_and(|(_, before, count)| limit <= before || value < count) {
                return error("buckets do not grow");
            }
            buckets = Some((series, limit, value));
        } else if suffix == "_count" {
            match buckets.take() {
                Some((_, limit, count)) if limit.is_infinite() && count == value => {}
                _ => return error("the last bucket has no limit, and all"),
            }
        }
        if samples.insert(key.to_string(), value).is_some() {
            return error("a sample comes twice");
        }
    }
    Ok(samples)
}
