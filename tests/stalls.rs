//! Polls that take too long are reported, with their task and their thread's activity; nothing else
//! is.

use std::future::pending;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use polder::diagnostics::{Activity, Stall};
use polder::time::sleep;
use polder::{Backend, Handle, Runtime};

const LIMIT: Duration = Duration::from_secs(60);

/// Well above the time that a busy machine withholds from a thread.
const OVER: Duration = Duration::from_millis(100);

fn watched(backend: Backend, workers: usize, over: Duration) -> (Runtime, Receiver<Stall>) {
    let (sender, stalls) = mpsc::channel();
    let runtime = Runtime::builder()
        .backend(backend)
        .workers(workers)
        .on_stall(over, move |stall| drop(sender.send(stall.clone())))
        .build()
        .unwrap();
    (runtime, stalls)
}

fn on_each(rule: impl Fn(Backend, usize)) {
    for backend in Backend::available() {
        for workers in [1, 2] {
            rule(backend, workers);
        }
    }
}

/// Computes until its stall was reported. (It does not check `stalls` itself: the lock would put it
/// to sleep.)
fn compute_until(is_told: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_told() {
        assert!(start.elapsed() < LIMIT, "nobody notices");
        for _ in 0..10_000 {
            std::hint::spin_loop();
        }
    }
}

/// Blocks until its stall was reported: on a busy machine many checks come too late to count.
fn block_until_told<T>(stalls: &Receiver<T>) -> T {
    stalls.recv_timeout(LIMIT).expect("nobody notices")
}

/// A task that computes is told while it does and when it goes on.
#[test]
fn computing_task_told_during_and_after() {
    on_each(|backend, workers| {
        let told = Arc::new(AtomicBool::new(false));
        let (sender, stalls) = mpsc::channel();
        let runtime = Runtime::builder()
            .backend(backend)
            .workers(workers)
            .on_stall(OVER, {
                let told = told.clone();
                move |stall| {
                    // (The future of `block_on` may have been interrupted for long.)
                    told.fetch_or(stall.task.id.is_some(), Ordering::Relaxed);
                    drop(sender.send(stall.clone()));
                }
            })
            .build()
            .unwrap();
        let line = line!() + 1;
        let task = runtime.spawn(async move { compute_until(|| told.load(Ordering::Relaxed)) });
        let id = task.id();
        runtime.block_on(task);
        // (Others may have been interrupted for long.)
        let of_task = |stalls: &Receiver<Stall>| loop {
            let stall: Stall = stalls.recv_timeout(LIMIT).unwrap();
            if stall.task.id == Some(id) {
                break stall;
            }
        };
        let stall = of_task(&stalls);
        assert_eq!(stall.task.spawned_at.line(), line, "{stall:?}");
        assert_eq!(stall.task.spawned_at.file(), file!(), "{stall:?}");
        assert!(stall.lasted >= OVER && !stall.has_ended, "{stall:?}");
        assert!(stall.worker < workers, "{stall:?}");
        let computes = cfg!(any(target_os = "linux", target_os = "android"));
        let computes = computes.then_some(Activity::Computes);
        assert_eq!(stall.activity, computes, "{stall:?}");
        let ended = of_task(&stalls);
        assert!(ended.has_ended && ended.task == stall.task, "{ended:?}");
        assert!(ended.lasted >= stall.lasted, "{ended:?}");
        assert!(ended.activity.is_none(), "{ended:?}");
    });
}

#[test]
fn a_call_that_blocks_is_told_by_its_name() {
    on_each(|backend, workers| {
        let (runtime, stalls) = watched(backend, workers, OVER);
        let task = runtime.spawn(async move {
            loop {
                // Longer than the time until a check, which might fall between two of these sleeps.
                thread::sleep(3 * OVER);
                // As above.
                if let Some(stall) = stalls.try_iter().find(|it| it.task.id.is_some()) {
                    break stall;
                }
            }
        });
        let id = task.id();
        let stall = runtime.block_on(task);
        assert_eq!(stall.task.id, Some(id), "{stall:?}");
        if cfg!(target_os = "linux") {
            assert!(stall.to_string().contains("nanosleep"), "{stall}");
        }
    });
}

/// The future of `block_on` is told too also within another one.
#[test]
fn block_on_future_told_also_nested() {
    on_each(|backend, workers| {
        let (runtime, stalls) = watched(backend, workers, OVER);
        let line = line!() + 1;
        let stall = runtime.block_on(async { block_until_told(&stalls) });
        assert_eq!(stall.task.id, None, "{stall:?}");
        assert_eq!(stall.task.spawned_at.line(), line, "{stall:?}");
        assert_eq!(
            stall.worker,
            runtime.metrics().workers.len() - 1,
            "{stall:?}"
        );
        assert!(stalls.recv_timeout(LIMIT).unwrap().has_ended);
        let line = line!() + 1;
        let inner = async { runtime.block_on(async { block_until_told(&stalls) }) };
        let stall = runtime.block_on(inner);
        assert_eq!(stall.task.spawned_at.line(), line, "{stall:?}");
    });
}

/// Tasks that wait, work, yield, and drive their own runtime.
#[test]
fn nothing_is_told_where_nothing_stalls() {
    const OVER: Duration = Duration::from_millis(400);
    // Returns what was told, and the longest time between two polls of the task that yields.
    let told = |backend, workers| {
        let (runtime, stalls) = watched(backend, workers, OVER);
        runtime.spawn(pending::<()>()).detach();
        let handle = runtime.handle();
        let runtime = Rc::new(runtime);
        let longest = runtime.block_on(async {
            let end = Instant::now() + OVER * 2;
            // The system may hold a poll up before its first line, and after its last one.
            let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
            let yields = handle.spawn(async move {
                while last < end {
                    polder::future::yield_now().await;
                    longest = longest.max(last.elapsed());
                    last = Instant::now();
                }
                (last, longest)
            });
            let sleeps = handle.spawn(sleep(OVER * 2));
            // The outer task's own runtime is driven all the time, though within one poll of a
            // task.
            let own = runtime.clone();
            let turns = runtime.spawn_local(async move {
                let other = own.spawn_local(sleep(OVER * 2));
                while !other.is_finished() {
                    own.run_once(Duration::ZERO);
                }
            });
            let own = runtime.clone();
            let nested = runtime.spawn_local(async move { own.block_on(sleep(OVER * 2)) });
            let (last, longest) = yields.await;
            let longest = longest.max(last.elapsed());
            sleeps.await;
            turns.await;
            nested.await;
            longest
        });
        (stalls.try_iter().collect::<Vec<_>>(), longest)
    };
    on_each(|backend, workers| {
        // A busy machine may hold up a thread for that long, though hardly each time.
        let is_quiet = (0..3).any(|_| {
            let (told, longest) = told(backend, workers);
            let is_right = told.is_empty() || longest >= OVER / 2;
            assert!(is_right, "on {backend} with {workers}: {told:?}");
            told.is_empty()
        });
        assert!(is_quiet, "each time on {backend} with {workers}");
    });
}

/// A function that panics is called again for the next stall.
#[test]
fn function_panic_called_again_next_stall() {
    let (sender, stalls) = mpsc::channel();
    let runtime = Runtime::builder()
        .on_stall(OVER, move |stall| {
            drop(sender.send(stall.clone()));
            std::panic::resume_unwind(Box::new("on purpose"));
        })
        .build()
        .unwrap();
    for _ in 0..2 {
        let stall = runtime.block_on(async { block_until_told(&stalls) });
        assert!(!stall.has_ended);
        assert!(stalls.recv_timeout(LIMIT).unwrap().has_ended);
    }
}

/// A function that takes long, as one that prints a backtrace: meanwhile polls are measured, and
/// those of other workers are noticed.
#[test]
fn slow_reports_keep_nothing_from_being_watched() {
    const LONG: Duration = Duration::from_secs(1);
    // A busy machine may keep the watching thread from running, though hardly each time.
    let is_measured = (0..20).any(|_| {
        let (sender, stalls) = mpsc::channel();
        let is_first = AtomicBool::new(true);
        let runtime = Runtime::builder()
            .workers(2)
            .on_stall(OVER, move |stall| {
                if is_first.swap(false, Ordering::Relaxed) {
                    thread::sleep(LONG);
                }
                drop(sender.send(stall.clone()));
            })
            .build()
            .unwrap();
        // The second poll begins and ends while the first one is reported.
        let tasks = [(0, LONG * 3 / 2), (1, LONG / 2)].map(|(worker, time)| {
            let stall = move || async move {
                sleep(worker * 2 * OVER).await;
                thread::sleep(time);
            };
            runtime.handle().spawn_on_worker(worker as usize, stall)
        });
        let ids = tasks.each_ref().map(|task| Some(task.id()));
        runtime.block_on(async {
            for task in tasks {
                task.await;
            }
        });
        drop(runtime);
        let stalls: Vec<Stall> = stalls.iter().collect();
        let told = |id, has_ended| {
            let mut of_task = stalls.iter().filter(|stall| stall.task.id == id);
            of_task.find(|stall| stall.has_ended == has_ended)
        };
        told(ids[1], false).is_some()
            && told(ids[0], true).is_some_and(|stall| stall.lasted >= LONG)
            && told(ids[1], true).is_some_and(|stall| stall.lasted >= LONG / 4)
    });
    assert!(is_measured, "each time somebody is not watched");
}

/// A function that keeps a handle is dropped with the runtime.
///
/// A reference cycle: the function is kept alive by the handle that it holds.
#[test]
fn function_with_handle_dropped_with_runtime() {
    let (sender, stalls) = mpsc::channel();
    let handle = Arc::new(OnceLock::<Handle>::new());
    let runtime = Runtime::builder()
        .on_stall(OVER, {
            let handle = handle.clone();
            move |stall| {
                let dump = handle.get().map(|handle| handle.dump().to_string());
                drop(sender.send((stall.clone(), dump)));
            }
        })
        .build()
        .unwrap();
    assert!(handle.set(runtime.handle()).is_ok());
    drop(handle);
    let (stall, dump) = runtime.block_on(async { block_until_told(&stalls) });
    assert!(!stall.has_ended, "{stall:?}");
    assert!(dump.unwrap().contains("DOES NOT ANSWER"));
    drop(runtime);
    while stalls.recv_timeout(LIMIT).is_ok() {}
    let gone = stalls.try_recv();
    assert!(matches!(gone, Err(mpsc::TryRecvError::Disconnected)));
}

#[test]
fn thresholds_without_measure_harm_nobody() {
    for over in [Duration::MAX, Duration::ZERO] {
        let (runtime, _stalls) = watched(Backend::default(), 1, over);
        runtime.block_on(sleep(Duration::from_millis(5)));
    }
    // The watching thread still serves others.
    let (runtime, stalls) = watched(Backend::default(), 1, OVER);
    let stall = runtime.block_on(async { block_until_told(&stalls) });
    assert!(!stall.has_ended);
}

/// The thread ends with the last runtime, and starts again with the next.
#[test]
fn runtimes_that_come_and_go_are_watched_each() {
    for _ in 0..3 {
        let (runtime, stalls) = watched(Backend::default(), 1, OVER);
        let stall = runtime.block_on(async { block_until_told(&stalls) });
        assert!(!stall.has_ended);
        drop(runtime);
        // The callback is dropped with the runtime, though maybe not immediately.
        while stalls.recv_timeout(LIMIT).is_ok() {}
        let gone = stalls.try_recv();
        assert!(matches!(gone, Err(mpsc::TryRecvError::Disconnected)));
    }
}
