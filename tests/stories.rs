//! The five stories of docs/DIAGNOSTICS.md: programs with a fault that are asked from outside, and
//! the same programs without it, of which nothing is said. Each is this one once more.
#![cfg(unix)]

use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use polder::event::{Event, Latch};
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::{sleep, timeout};
use polder::{Runtime, Task, future};

const LIMIT: Duration = Duration::from_secs(60);

/// Set in the child: `fault`, or `none`.
const CHILD: &str = "POLDER_STORY";

/// Whether this is the child, and whether it has the fault.
fn has_fault() -> Option<bool> {
    std::env::var(CHILD).ok().map(|what| what == "fault")
}

/// Runs `test` again, as a program, to its end. Returns what it has said on standard error.
fn tell(test: &str, what: &str, environment: (&str, &str)) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env_remove("POLDER_DUMP")
        .env_remove("POLDER_STALL")
        .env(CHILD, what)
        .env(environment.0, environment.1)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let child = command.spawn().expect("the test starts again");
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert!(status.success(), "{status}: {said}");
    said
}

/// How many times a program without its fault is run: `POLDER_STORIES` says another number. (A
/// thousand take some minutes.)
const RUNS: usize = 4;

/// And how many of them at once: they sleep most of the time.
const AT_ONCE: usize = 16;

/// What is said of a fault, whichever it is.
const ALARMS: [&str; 2] = ["hint:", "is stalled"];

/// Runs the program with its fault until it has said what `is_it` looks for: on a busy machine one
/// look may come at a wrong moment, so it has several chances.
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

/// The culprit is named with its fault, and nothing is said without it: neither an alarm nor
/// `nothing`. `always` is what each run says: one that did not get round to it does not count.
fn story(
    test: &str,
    environment: (&str, &str),
    culprits: &[(&str, u32)],
    always: &str,
    nothing: &str,
) {
    until_told(test, environment, |said| {
        culprits.iter().all(|(words, line)| {
            let place = format!("{}:{line}:", file!());
            (said.lines()).any(|it| it.contains(words) && it.contains(&place))
        })
    });
    let runs = std::env::var("POLDER_STORIES").map_or(RUNS, |runs| runs.parse().unwrap());
    let next = AtomicUsize::new(0);
    let run = || {
        while next.fetch_add(1, Ordering::Relaxed) < runs {
            let start = Instant::now();
            let said = loop {
                let said = tell(test, "none", environment);
                if said.contains(always) {
                    break said;
                }
                assert!(start.elapsed() < LIMIT, "no {always:?} in {said}");
            };
            for alarm in ALARMS.into_iter().chain([nothing]) {
                assert!(!said.contains(alarm), "{test}: {said}");
            }
        }
    };
    thread::scope(|scope| (0..AT_ONCE.min(runs)).for_each(|_| drop(scope.spawn(run))));
    println!("{test}: {runs} runs without the fault");
}

/// What a program says that is asked for a dump.
const DUMP: &str = "polder: 1 worker";

/// Long enough for two looks at what a program does.
const A_WHILE: Duration = Duration::from_millis(1_500);

#[test]
fn it_hangs_in_ci() {
    let (first, second) = (line!() + 8, line!() + 14);
    if let Some(fault) = has_fault() {
        let runtime = Runtime::new().unwrap();
        // Each is to hand its result to the other, and awaits the other's first.
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
        let other = runtime.spawn(async move {
            match fault {
                true => one.await,
                false => drop(one),
            }
        });
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
                    // Asks again, instead of waiting.
                    None if fault => future::yield_now().await,
                    None => wait.wait().await,
                }
            }
        });
        // Something else goes on as well.
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
        let load = || thread::sleep(Duration::from_secs(1));
        let reload = runtime.spawn(async move {
            match fault {
                true => load(),
                false => polder::unblock(load).await,
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
                    match fault {
                        true => drop(read.await),
                        false => drop(timeout(idle, read).await),
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
        // On a busy machine some wait yet.
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
        let flush = runtime.spawn_named("flush", async move {
            let forever = future::pending::<()>();
            match fault {
                true => forever.await,
                false => future::or(forever, told.wait()).await,
            }
        });
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
