//! The five stories of docs/DIAGNOSTICS.md: programs with a fault that are queried from outside,
//! and the same programs without it, which must raise no alarm. Each program is this one, started
//! again.
#![cfg(unix)]

#[path = "conformance/again.rs"]
mod again;

use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use polder::event::{Event, Latch};
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::{sleep, timeout};
use polder::{Runtime, Task, future};

use again::{again, ended};

const LIMIT: Duration = Duration::from_secs(180); // A thread without a core raises no alarm.

/// Set in the child: `fault`, or `none`.
const CHILD: &str = "POLDER_STORY";

/// Returns whether this child has the fault; `None` if this is not a child.
fn has_fault() -> Option<bool> {
    std::env::var(CHILD).ok().map(|what| what == "fault")
}

/// Runs `test` again, as a program, to its end. Returns its standard error.
fn tell(test: &str, what: &str, environment: (&str, &str)) -> String {
    let mut command = again(test);
    command.env(CHILD, what).env(environment.0, environment.1);
    let child = command.spawn().expect("the test starts again");
    let Output { status, stderr, .. } = ended(child, test, LIMIT);
    let said = String::from_utf8(stderr).unwrap();
    assert!(status.success(), "{status}: {said}");
    said
}

/// The number of runs of a program without its fault, unless `POLDER_STORIES` sets another one. (A
/// thousand take some minutes.)
const RUNS: usize = 4;

/// The number of those that run in parallel: they sleep most of the time.
const AT_ONCE: usize = 16;

/// The words that any fault's report contains.
const ALARMS: [&str; 2] = ["hint:", "is stalled"];

/// Runs the program with its fault until `is_it` accepts its output: on a busy machine a check may
/// come at a wrong moment, so it has several chances.
fn until_told(test: &str, environment: (&str, &str), is_it: impl Fn(&str) -> bool) {
    let start = Instant::now();
    loop {
        let said = tell(test, "fault", environment);
        if is_it(&said) {
            return;
        }
        assert!(start.elapsed() < LIMIT, "{test} with its fault: {said}");
    }
}

/// Asserts that the report names the culprit with its fault, and that without the fault there is
/// neither an alarm nor `nothing`. Each run must print `always`: one that did not get that far does
/// not count.
fn story(
    test: &str,
    environment: (&str, &str),
    culprits: &[(&str, u32)],
    always: &str,
    nothing: &str,
) {
    for (_, line) in culprits {
        let place = format!("{}:{line}:", file!());
        let page = include_str!("../docs/DIAGNOSTICS.md");
        assert!(
            page.contains(&place),
            "docs/DIAGNOSTICS.md shows another place than {place}"
        );
    }
    until_told(test, environment, |said| {
        culprits.iter().all(|(words, line)| {
            let place = format!("{}:{line}:", file!());
            (said.lines()).any(|it| it.contains(words) && it.contains(&place))
        })
    });
    let runs = std::env::var("POLDER_STORIES").map_or(RUNS, |runs| runs.parse().unwrap());
    let [next, alarms] = [const { AtomicUsize::new(0) }; 2];
    let run = || {
        while next.fetch_add(1, Relaxed) < runs {
            let start = Instant::now();
            loop {
                let said = tell(test, "none", environment);
                let is_alarm = (ALARMS.into_iter().chain([nothing])).any(|it| said.contains(it));
                if said.contains(always) && !is_alarm {
                    break;
                }
                // A busy machine may hold up one or two of a few programs as a fault does.
                let more = !is_alarm || (runs <= RUNS && alarms.fetch_add(1, Relaxed) < 2);
                assert!(more && start.elapsed() < LIMIT, "{test}: {said}");
            }
        }
    };
    thread::scope(|scope| (0..AT_ONCE.min(runs)).for_each(|_| drop(scope.spawn(run))));
    println!("{test}: {runs} runs without the fault");
}

/// The words in each dump of a program.
const DUMP: &str = "polder: 1 worker";

/// Long enough for two checks of a program's activity.
const A_WHILE: Duration = Duration::from_millis(1_500);

#[test]
fn it_hangs_in_ci() {
    let (first, second) = (line!() + 8, line!() + 14);
    if let Some(fault) = has_fault() {
        let runtime = Runtime::new().unwrap();
        // Each must hand its result to the other, but awaits the other's first.
        let slot = Arc::new(Mutex::new(None::<Task<()>>));
        let handed = Arc::new(Event::new());
        let one = {
            let (slot, handed) = (slot.clone(), handed.clone());
            runtime.spawn(async move {
                handed.wait().await;
                let other = slot.lock().unwrap().take().expect("it was handed over");
                other.await;
            })
        };
        let other = runtime.spawn(async move { if fault { one.await } else { drop(one) } });
        *slot.lock().unwrap() = Some(other);
        handed.set();
        runtime.block_on(sleep(A_WHILE));
        return;
    }
    story(
        "it_hangs_in_ci",
        ("POLDER_DUMP", "after:1s"),
        &[
            ("hint: these seem to await each other", first),
            ("hint: these seem to await each other", second),
        ],
        DUMP,
        "waiting for: task",
    );
}

#[test]
fn one_core_is_at_100_percent() {
    let line = line!() + 6;
    if let Some(fault) = has_fault() {
        let runtime = Runtime::new().unwrap();
        let queue = Arc::new(Mutex::new(Vec::<u32>::new()));
        let pushed = Arc::new(Event::new());
        let (queue, wait) = (queue.clone(), pushed.clone());
        let consumer = runtime.spawn(async move {
            loop {
                let next = queue.lock().unwrap().pop();
                match next {
                    Some(_) => {}
                    // Polls repeatedly, instead of waiting.
                    None if fault => future::yield_now().await,
                    None => wait.wait().await,
                }
            }
        });
        // Another task is running as well.
        runtime.block_on(sleep(A_WHILE));
        drop((consumer, pushed));
        return;
    }
    story(
        "one_core_is_at_100_percent",
        ("POLDER_DUMP", "after:1s"),
        &[("wakes itself all the time", line)],
        DUMP,
        "wakes itself",
    );
}

#[test]
fn latency_has_a_tail() {
    let line = line!() + 4;
    if let Some(fault) = has_fault() {
        let runtime = Runtime::new().unwrap();
        let load = || thread::sleep(Duration::from_secs(4)); // A report may take that long.
        let reload = runtime.spawn(async move {
            if fault {
                load();
            } else {
                polder::unblock(load).await;
            }
        });
        runtime.block_on(reload);
        return;
    }
    story(
        "latency_has_a_tail",
        // On a busy machine a poll may wait for a processor for a tenth of a second.
        ("POLDER_STALL", "250ms"),
        &[("is stalled", line)],
        "",
        "polder",
    );
}

#[test]
fn descriptors_grow() {
    let line = line!() + 13;
    if let Some(fault) = has_fault() {
        let runtime = Runtime::new().unwrap();
        return runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            for _ in 0..100 {
                let stream = TcpStream::connect(address).await.unwrap();
                let (mut accepted, _) = listener.accept().await.unwrap();
                // A client that has gone without a word, behind a dead link: its end never comes.
                let gone = stream;
                std::mem::forget(gone);
                let idle = Duration::from_millis(100);
                polder::spawn(async move {
                    let mut request = [0; 16];
                    let read = accepted.read(&mut request);
                    if fault {
                        drop(read.await);
                    } else {
                        drop(timeout(idle, read).await);
                    }
                    let _ = accepted.write_all(b"bye").await;
                })
                .detach();
            }
            sleep(A_WHILE).await;
        });
    }
    story(
        "descriptors_grow",
        ("POLDER_DUMP", "after:1s"),
        &[("spawned", line)],
        DUMP,
        // On a busy machine some are still waiting.
        "and 99 more there",
    );
    until_told("descriptors_grow", ("POLDER_DUMP", "after:1s"), |said| {
        said.contains("and 99 more there, waiting for: reads TCP")
    });
}

#[test]
fn it_does_not_stop() {
    let line = line!() + 5;
    if let Some(fault) = has_fault() {
        let runtime = Runtime::new().unwrap();
        let stop = Arc::new(Latch::new());
        let told = stop.clone();
        let flush = polder::task::Builder::new().name("flush").spawn_on(
            async move {
                let forever = future::pending::<()>();
                if fault {
                    forever.await;
                } else {
                    future::or(forever, told.wait()).await;
                }
            },
            &runtime.handle(),
        );
        flush.detach();
        stop.set();
        let left = runtime.shutdown(Duration::from_millis(500));
        if left.task_count() > 0 {
            eprint!("{left}");
        }
        return;
    }
    story(
        "it_does_not_stop",
        ("POLDER_STALL", ""),
        &[("\"flush\"", line)],
        "",
        "flush",
    );
}
