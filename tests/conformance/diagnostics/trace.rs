//! The trace of a runtime's last events, as a file for trace viewers.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use polder::future::yield_now;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::TcpListener;
use polder::runtime::Builder;
use polder::time::sleep;
use polder::{Backend, Runtime};
use serde_json::Value;

use crate::probe::join_all;
use crate::support::{on_every_backend_alone, on_every_backend_with_several};
/// The number of traces taken while the workers run.
const TAKEN: usize = 50;

/// The precision of times in the text, in microseconds: three digits.
const EXACT: f64 = 0.000_5;

/// A slice of a track.
#[derive(Debug)]
struct Slice {
    start: f64,
    end: f64,
    category: String,
    name: String,
    task: Option<f64>,
}

/// A parsed trace file.
struct Told {
    /// The slices, by track.
    slices: BTreeMap<usize, Vec<Slice>>,
    names: BTreeMap<usize, String>,
    instants: Vec<(String, Value)>,
    /// The ends of arrows: track and time of both.
    arrows: Vec<[(usize, f64); 2]>,
    /// The numbers of calls of `unblock` that begin and end.
    calls: [usize; 2],
}

impl Told {
    /// Parses a trace, and checks it against the format.
    fn read(json: &str) -> Told {
        let value = serde_json::from_str::<Value>(json).unwrap();
        assert!(value["otherData"]["began"].as_f64().unwrap() > 1e9);
        let mut told = Told {
            slices: BTreeMap::new(),
            names: BTreeMap::new(),
            instants: Vec::new(),
            arrows: Vec::new(),
            calls: [0, 0],
        };
        let mut ends = BTreeMap::<u64, [Option<(usize, f64)>; 2]>::new();
        for event in value["traceEvents"].as_array().unwrap() {
            assert_eq!(event["pid"], 1);
            let track = event["tid"].as_f64().unwrap() as usize;
            let name = event["name"].as_str().unwrap().to_owned();
            let kind = event["ph"].as_str().unwrap();
            if kind == "M" {
                let name = event["args"]["name"].as_str().unwrap();
                if event["name"] == "thread_name" {
                    told.names.insert(track, name.into());
                }
                continue;
            }
            assert!(told.names.contains_key(&track), "no track: {event:?}");
            let at = event["ts"].as_f64().unwrap();
            match kind {
                "X" => {
                    let end = at + event["dur"].as_f64().unwrap();
                    let args = event.get("args");
                    told.slices.entry(track).or_default().push(Slice {
                        start: at,
                        end,
                        category: event["cat"].as_str().unwrap().into(),
                        name,
                        task: args.and_then(|it| it.get("task")).and_then(Value::as_f64),
                    });
                }
                "i" => {
                    assert_eq!(event["s"], "t");
                    told.instants.push((name, event["args"].clone()));
                }
                "s" | "f" => {
                    let end = usize::from(kind == "f");
                    let id = event["id"].as_f64().unwrap() as u64;
                    let before = ends.entry(id).or_default()[end].replace((track, at));
                    assert_eq!(before, None, "an arrow of the same number");
                    assert_eq!(event.get("bp").is_some(), kind == "f");
                }
                "b" | "e" => {
                    assert_eq!(event["cat"], "unblock");
                    told.calls[usize::from(kind == "e")] += 1;
                }
                other => panic!("{other}: {event:?}"),
            }
        }
        for ends in ends.into_values() {
            told.arrows.push(ends.map(|end| end.expect("both ends")));
        }
        told.check();
        told
    }

    /// Checks that slices of one track are disjoint or nested, and that arrows begin and end on
    /// them.
    fn check(&self) {
        for slices in self.slices.values() {
            for (index, one) in slices.iter().enumerate() {
                assert!(one.start <= one.end, "{one:?}");
                for other in &slices[index + 1..] {
                    let is_beside =
                        one.end <= other.start + EXACT || other.end <= one.start + EXACT;
                    let is_within =
                        |a: &Slice, b: &Slice| a.start + EXACT >= b.start && a.end <= b.end + EXACT;
                    assert!(
                        is_beside || is_within(one, other) || is_within(other, one),
                        "{one:?} and {other:?} overlap"
                    );
                }
            }
        }
        for [(track, at), (other_track, poll)] in &self.arrows {
            assert!(at <= poll, "an arrow goes back: {at} to {poll}");
            let begins = self.slices[track].iter();
            let begins = begins.filter(|it| it.start <= at + EXACT && *at <= it.end + EXACT);
            assert!(begins.count() > 0, "an arrow begins nowhere, at {at}");
            let mut polls = self.slices[other_track].iter();
            let is_poll = |it: &Slice| it.category == "poll" && (it.start - poll).abs() < EXACT;
            assert!(polls.any(is_poll), "an arrow ends nowhere, at {poll}");
        }
    }

    fn polls(&self, task: u64) -> usize {
        let slices = self.slices.values().flatten();
        let is_it = |it: &&Slice| it.category == "poll" && it.task == Some(task as f64);
        slices.filter(is_it).count()
    }

    fn count(&self, instant: &str) -> usize {
        let names = self.instants.iter().map(|(name, _)| name);
        names.filter(|name| *name == instant).count()
    }
}

fn traced(backend: Backend, workers: usize, events: usize) -> Runtime {
    let builder = Builder::new().backend(backend).workers(workers);
    builder.trace_capacity(events).build().unwrap()
}

/// A trace tells polls wakes events timers sleeps and ends.
#[test]
fn trace_has_polls_wakes_events_timers_sleeps() {
    on_every_backend_alone(|backend| {
        for workers in [1, 2] {
            let runtime = traced(backend, workers, 10_000);
            let yields = polder::task::Builder::new()
                .name("yields \"often\"\u{1b}[31m")
                .spawn_on(
                    async {
                        for _ in 0..5 {
                            yield_now().await;
                        }
                    },
                    &runtime.handle(),
                );
            let id = yields.id().as_u64();
            runtime.block_on(async {
                yields.await;
                echo_once().await.unwrap();
                sleep(Duration::from_millis(2)).await;
                runtime.spawn(polder::unblock(|| ())).await;
            });
            let trace = runtime.trace().unwrap();
            let (json, text) = (trace.json(), trace.to_string());
            assert!(!json.contains('\u{1b}'), "a name is not escaped");
            let told = Told::read(&json);
            assert_eq!(told.polls(id), 6, "{backend}: of {text}");
            assert!(
                told.count("ready") >= 1 && told.count("timer") >= 2,
                "{text}"
            );
            assert_eq!(told.count("ended"), 4, "two of ours, and two of the echo");
            assert_eq!(told.calls, [1, 1]);
            let all: Vec<&Slice> = told.slices.values().flatten().collect();
            assert!(all.iter().any(|it| it.category == "sleep"));
            let place = format!("block_on {}", file!());
            assert!(all.iter().any(|it| it.name.starts_with(&place)), "{all:?}");
            // Each poll of a task follows a wake, including those after `yield_now`.
            assert!(told.arrows.len() >= 6, "{}", told.arrows.len());
            assert_eq!(told.names.len(), if workers == 1 { 2 } else { 4 });
            assert!(
                text.contains("events of") && !text.contains("before"),
                "{text}"
            );
        }
    });
}

/// Runs two tasks of the current runtime.
async fn echo_once() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = polder::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        let mut byte = [0];
        stream.read_exact(&mut byte).await?;
        stream.write_all(&byte).await
    });
    let client = polder::spawn(async move {
        let mut stream = polder::net::TcpStream::connect(address).await?;
        // Makes the other end wait.
        sleep(Duration::from_millis(5)).await;
        stream.write_all(b"x").await?;
        stream.read_exact(&mut [0]).await
    });
    client.await?;
    server.await
}

/// Wakes and spawns of other threads are on a separate track.
#[test]
fn trace_other_threads_have_own_track() {
    on_every_backend_alone(|backend| {
        let runtime = traced(backend, 1, 1_000);
        let (sender, receiver) = async_channel::bounded(1);
        let waits = runtime.spawn(async move { receiver.recv().await });
        let spawned = runtime.spawn(async {
            let handle = polder::Handle::current();
            thread::spawn(move || {
                sender.try_send(5).unwrap();
                handle.spawn(async { 6 })
            })
        });
        let id = waits.id();
        let thread = runtime.block_on(async {
            let thread = spawned.await;
            waits.await.unwrap();
            thread
        });
        assert_eq!(runtime.block_on(thread.join().unwrap()), 6);
        let told = Told::read(&runtime.trace().unwrap().json());
        let others = told.names.iter().find(|it| it.1 == "other threads");
        let track = *others.unwrap().0;
        let there = &told.slices[&track];
        let has = |name: &str, id: Option<f64>| {
            (there.iter()).any(|it| it.name == name && id.is_none_or(|id| it.task == Some(id)))
        };
        assert!(has("wake", Some(id.as_u64() as f64)), "{there:?}");
        assert!(has("spawn", None), "{there:?}");
        let from_there = told.arrows.iter().filter(|it| it[0].0 == track);
        // This thread did not drive the runtime when it spawned the first two.
        assert_eq!(from_there.count(), 4);
    });
}

/// A trace has no more events than were asked for and says how many came before.
#[test]
fn trace_bounded_counts_earlier_events() {
    on_every_backend_alone(|backend| {
        let runtime = traced(backend, 1, 8);
        runtime.block_on(async {
            for _ in 0..100 {
                polder::spawn(async {}).await;
            }
        });
        let trace = runtime.trace().unwrap();
        let told = Told::read(&trace.json());
        assert!(told.slices.values().flatten().count() <= 9);
        assert!(
            trace.to_string().starts_with("8 events of 1 worker"),
            "{trace}"
        );
        assert!(trace.to_string().ends_with(" events before"), "{trace}");
        assert!(Runtime::new().unwrap().trace().is_none());
        assert!(traced(backend, 1, 0).trace().is_some());
    });
}

/// A wake whose poll was overwritten has no arrow to a later poll.
#[test]
fn trace_overwritten_poll_has_no_arrow() {
    on_every_backend_alone(|backend| {
        let runtime = traced(backend, 1, 8);
        let (sender, receiver) = async_channel::unbounded();
        let waits = runtime.spawn(async move { while receiver.recv().await.is_ok() {} });
        // From a thread that does not drive the runtime: the ring of those is not full.
        sender.try_send(()).unwrap();
        runtime.block_on(async {
            for _ in 0..100 {
                polder::spawn(async {}).await;
            }
            sender.try_send(()).unwrap();
            yield_now().await;
        });
        let told = Told::read(&runtime.trace().unwrap().json());
        let others = told.names.iter().find(|it| it.1 == "other threads");
        let track = *others.unwrap().0;
        assert!(!told.slices[&track].is_empty());
        let from_there = told.arrows.iter().filter(|it| it[0].0 == track);
        assert_eq!(from_there.count(), 0);
        drop(waits);
    });
}

#[test]
fn what_goes_on_when_a_trace_is_taken_is_in_it() {
    on_every_backend_alone(|backend| {
        let runtime = traced(backend, 1, 100);
        let trace = runtime.block_on(async { polder::Handle::current().trace().unwrap() });
        let told = Told::read(&trace.json());
        let slices: Vec<&Slice> = told.slices.values().flatten().collect();
        assert!(
            matches!(&slices[..], [one] if one.name.starts_with("block_on")),
            "{slices:?}"
        );
    });
}

#[test]
fn a_future_of_block_on_that_panics_ends_its_poll() {
    on_every_backend_alone(|backend| {
        let runtime = traced(backend, 1, 100);
        let drive = || runtime.block_on(async { panic!("expected") });
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(drive)).unwrap_err();
        runtime.block_on(async {});
        let told = Told::read(&runtime.trace().unwrap().json());
        let slices = &told.slices[&1];
        assert!(
            slices.len() == 2 && slices[0].end <= slices[1].start,
            "{slices:?}"
        );
    });
}

/// A poll does not begin before the worker has slept or was left alone.
///
/// Only a poll that directly follows another begins when the other has ended.
#[test]
fn trace_poll_not_before_sleep_ended() {
    const PAUSE: Duration = Duration::from_millis(20);
    on_every_backend_alone(|backend| {
        let runtime = traced(backend, 1, 100);
        let task = runtime.spawn(async {
            yield_now().await;
            sleep(PAUSE).await;
        });
        let id = task.id().as_u64() as f64;
        runtime.block_on(task);
        thread::sleep(PAUSE);
        runtime.block_on(async {});
        let told = Told::read(&runtime.trace().unwrap().json());
        let slices = &told.slices[&1];
        let is_sleep = |it: &&Slice| it.category == "sleep";
        let sleeps: Vec<_> = slices.iter().filter(is_sleep).collect();
        assert!(!sleeps.is_empty(), "{slices:?}");
        for poll in slices.iter().filter(|it| it.task == Some(id)) {
            let has_slept = |it: &&Slice| poll.start < it.start && it.end < poll.end;
            assert!(!sleeps.iter().any(has_slept), "{poll:?} of {slices:?}");
        }
        let (last, before) = slices.split_last().unwrap();
        let end = before.iter().map(|it| it.end).fold(0.0, f64::max);
        assert!(last.start - end >= PAUSE.as_micros() as f64, "{slices:?}");
    });
}

/// A trace that is taken while the workers go on is whole.
#[test]
fn trace_taken_while_running_is_whole() {
    on_every_backend_with_several(|backend, workers| storm(&traced(backend, workers, 64)));
}

/// Traces are taken while tasks spawn, wake and end.
fn storm(runtime: &Runtime) {
    let (handle, stop) = (runtime.handle(), Arc::new(AtomicBool::new(false)));
    let taker = thread::spawn({
        let stop = stop.clone();
        move || {
            for _ in 0..TAKEN {
                Told::read(&handle.trace().unwrap().json());
            }
            stop.store(true, Ordering::Relaxed);
        }
    });
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let stop = stop.clone();
            runtime.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    polder::spawn(yield_now()).await;
                }
            })
        })
        .collect();
    runtime.block_on(join_all(tasks));
    taker.join().unwrap();
}
