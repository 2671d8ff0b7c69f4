//! The hints in a dump: each fault, planted, and similar behaviour that is no fault.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use polder::diagnostics::{Dump, Hint, TaskRef, TaskState, WorkerState};
use polder::event::{Event, Latch};
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::stream::StreamExt;
use polder::task::Id;
use polder::time::sleep;
use polder::{Handle, Runtime, Task, TaskSet, future};

use crate::probe::{always_yields, listen};
use crate::support::{
    eventually, on_every_backend_alone_in_parallel, runtime, sized, with_every_runtime,
    with_every_runtime_alone, with_every_runtime_of_several,
};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(3_600);

/// The number of dumps in which a non-fault is checked.
const LOOKS: usize = 200;

/// Drives the runtime, with its spawned tasks, while `look` takes dumps on another thread.
fn while_driven<T>(runtime: &Runtime, look: impl FnOnce(&Handle) -> T + Send + 'static) -> T
where
    T: Send + 'static,
{
    let handle = runtime.handle();
    let end = Arc::new(Event::new());
    let thread = thread::spawn({
        let end = end.clone();
        move || {
            let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| look(&handle)));
            end.set();
            found
        }
    });
    runtime.block_on(end.wait());
    match thread.join().unwrap() {
        Ok(found) => found,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Waits for a hint of a kind, and returns it.
fn hint(handle: &Handle, is_meant: impl Fn(&Hint) -> bool) -> Hint {
    let mut found = None;
    let mut last = None;
    eventually("there is a hint", || {
        let dump = handle.dump();
        found = dump.hints.iter().find(|hint| is_meant(hint)).cloned();
        if found.is_some() {
            let (text, json) = (dump.to_string(), dump.json());
            assert!(text.contains("\nhint: "), "{text}");
            assert!(json.contains(r#""hints":[{"kind":""#), "{json}");
        }
        last = Some(dump);
        found.is_some()
    });
    found.expect("it was found")
}

/// Asserts that a number of dumps have no hint, after all of `tasks` tasks wait.
fn no_hint(handle: &Handle, tasks: usize) {
    eventually("all tasks wait", || {
        let dump = handle.dump();
        dump.tasks.len() == tasks + 1
            && (dump.tasks.iter()).all(|task| task.state == TaskState::Waiting)
    });
    for _ in 0..LOOKS {
        assert_no_hint(&handle.dump());
    }
}

/// Asserts that a dump has no hint. All tests of this process share the pool, and may fill it.
fn assert_no_hint(dump: &Dump) {
    let is_of_others = |hint: &Hint| matches!(hint, Hint::PoolIsFull { .. });
    assert!(dump.hints.iter().all(is_of_others), "{dump}");
}

fn ids(tasks: &[TaskRef]) -> Vec<Id> {
    tasks.iter().filter_map(|task| task.id).collect()
}

#[test]
fn tasks_that_nothing_will_wake_are_told() {
    with_every_runtime(|runtime, _| {
        let event = Arc::new(Event::new());
        let waits = runtime.spawn({
            let event = event.clone();
            async move { event.wait().await }
        });
        // The future of `block_on` waits for another thread.
        let hint = while_driven(&runtime, |handle| {
            hint(handle, |hint| matches!(hint, Hint::NothingWakes { .. }))
        });
        assert_eq!(hint, Hint::NothingWakes { tasks: 2 });
        drop(waits);
    });
}

/// A task that another one has replaced was polled.
#[test]
fn replaced_task_counts_as_polled() {
    let runtime = Runtime::new().unwrap();
    let waits = || {
        let event = Arc::new(Event::new());
        let task = runtime.spawn({
            let event = event.clone();
            async move { event.wait().await }
        });
        runtime.run_once(Duration::ZERO);
        (event, task)
    };
    let (event, first) = waits();
    let dump = runtime.dump();
    assert_eq!(dump.hints, []);
    // Longer than the time within which dumps are not compared.
    thread::sleep(Duration::from_millis(20));
    event.set();
    while !first.is_finished() {
        runtime.run_once(Duration::ZERO);
    }
    let (_event, _second) = waits();
    let dump = runtime.dump();
    let is_it = |hint: &Hint| matches!(hint, Hint::NothingWakes { .. });
    assert!(!dump.hints.iter().any(is_it), "{dump}");
}

/// A waker that wraps another, as crates do to know which future to poll.
pub(super) struct Wrapped(pub(super) Waker);

impl Wake for Wrapped {
    fn wake(self: Arc<Self>) {
        self.0.wake_by_ref();
    }
}

/// Tasks that a timer or a socket will wake are no hint.
///
/// A timer, a timer behind the waker of another crate, and a socket.
#[test]
fn timer_or_socket_wait_is_no_hint() {
    with_every_runtime_alone(|runtime, _| {
        let timer = runtime.spawn(sleep(LONG));
        while_driven(&runtime, |handle| no_hint(handle, 1));
        drop(timer);
        let wrapped = runtime.spawn(async {
            let mut timer = pin!(sleep(LONG));
            future::poll_fn(|cx| {
                let waker = Waker::from(Arc::new(Wrapped(cx.waker().clone())));
                timer.as_mut().poll(&mut Context::from_waker(&waker))
            })
            .await;
        });
        while_driven(&runtime, |handle| no_hint(handle, 1));
        drop(wrapped);
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let accepts = runtime.spawn(async move { drop(listener.accept().await) });
        while_driven(&runtime, |handle| no_hint(handle, 1));
        drop(accepts);
    });
}

/// Unread bytes are reported with their peer, and since when.
///
/// A future that would read is neither polled nor dropped. (With one worker: the waker of a task
/// that has moved since it last waited is not kept. On Windows the number of available bytes is
/// unknown.)
#[cfg(unix)]
#[test]
fn unread_bytes_with_peer_and_since() {
    on_every_backend_alone_in_parallel(|backend| {
        let runtime = runtime(backend);
        let (mut near, mut far) = runtime.block_on(connection());
        let peer = near.local_addr().unwrap();
        let stuck = runtime.spawn(async move {
            let mut byte = [0];
            far.read_exact(&mut byte).await.unwrap();
            let mut read = far.read(&mut byte);
            assert!(future::poll_once(&mut read).await.is_none());
            future::pending::<()>().await;
        });
        let writes = runtime.spawn(async move {
            near.write_all(&[1]).await.unwrap();
            sleep(Duration::from_millis(50)).await;
            near.write_all(&[2]).await.unwrap();
            sleep(LONG).await;
        });
        let hint = while_driven(&runtime, |handle| {
            hint(handle, |hint| matches!(hint, Hint::Unread { .. }))
        });
        let Hint::Unread {
            task,
            peer: told,
            since,
            ..
        } = &hint
        else {
            unreachable!("{hint}")
        };
        assert_eq!(task.id, Some(stuck.id()));
        assert!(told.as_ref().unwrap().contains(&peer.to_string()), "{hint}");
        assert!(*since >= Duration::from_secs(3));
        let text = hint.to_string();
        assert!(text.contains(file!()), "{text}");
        drop(writes);
    });
}

/// Reads frames, and does other work after each while its peer keeps sending. (The first few times
/// the task waits for data: its waker is kept from then on.)
#[test]
fn what_is_read_slowly_is_no_hint() {
    on_every_backend_alone_in_parallel(|backend| {
        let runtime = runtime(backend);
        let (mut near, mut far) = runtime.block_on(connection());
        let last_read = Arc::new(Mutex::new(Instant::now()));
        let has_read = last_read.clone();
        let reads = runtime.spawn(async move {
            let mut byte = [0];
            for count in 0.. {
                far.read_exact(&mut byte).await.unwrap();
                *has_read.lock().unwrap() = Instant::now();
                if count > 3 {
                    sleep(Duration::from_millis(300)).await;
                }
            }
        });
        let writes = runtime.spawn(async move {
            loop {
                near.write_all(&[1]).await.unwrap();
                sleep(Duration::from_millis(100)).await;
            }
        });
        while_driven(&runtime, move |handle| {
            let mut looks = 0;
            while looks < 80 {
                let before = *last_read.lock().unwrap();
                let dump = handle.dump();
                // On a loaded machine it may not get round to it for so long that it is a hint.
                if before.elapsed() < Duration::from_secs(1) {
                    assert_no_hint(&dump);
                    looks += 1;
                }
                thread::sleep(Duration::from_millis(50));
            }
        });
        drop((reads, writes));
    });
}

/// Regardless of the wait that a poll registered last.
#[test]
fn a_call_that_blocks_and_a_signal_are_no_hint() {
    with_every_runtime_alone(|runtime, _| {
        // The calls block until the sender is dropped.
        let (go_on, wait) = mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let work = move || {
            let wait = wait.clone();
            polder::unblock(move || {
                let _ = wait.lock().unwrap().recv();
            })
        };
        let latch = Arc::new(Latch::new());
        let calls = runtime.spawn({
            let (work, latch) = (work.clone(), latch.clone());
            async move { future::or(work(), latch.wait()).await }
        });
        let set = runtime.spawn(async move {
            let mut set: TaskSet<()> = (0..3).map(|_| work()).collect();
            while set.next().await.is_some() {}
        });
        // The set has three tasks.
        while_driven(&runtime, |handle| no_hint(handle, 5));
        drop((calls, set, go_on));
        #[cfg(unix)]
        {
            use polder::signal::{Signal, Signals};

            let mut signals = Signals::new([Signal::Winch]).unwrap();
            let waits = runtime.spawn(async move {
                let signal = async {
                    let _ = signals.next().await;
                };
                future::or(signal, latch.wait()).await
            });
            while_driven(&runtime, |handle| no_hint(handle, 1));
            drop(waits);
        }
    });
}

/// Tasks of two workers that wake each other are no hint.
///
/// Two tasks that wake each other, on two workers: each looks idle while the other is inspected.
#[test]
fn mutual_wakes_across_workers_no_hint() {
    with_every_runtime_of_several(|runtime, _, _| {
        let events: [Arc<Event>; 2] = Default::default();
        let tasks = [0, 1].map(|side| {
            let events = events.clone();
            runtime.handle().spawn_on_worker(side, move || async move {
                loop {
                    events[side].wait().await;
                    events[1 - side].set();
                }
            })
        });
        events[0].set();
        while_driven(&runtime, |handle| {
            for _ in 0..LOOKS {
                let dump = handle.dump();
                let stuck = |hint: &Hint| matches!(hint, Hint::NothingWakes { .. });
                assert!(!dump.hints.iter().any(stuck), "{dump}");
                thread::sleep(Duration::from_millis(1));
            }
        });
        drop(tasks);
    });
}

async fn connection() -> (TcpStream, TcpStream) {
    let (listener, address) = listen().await;
    let (near, far) = future::zip(TcpStream::connect(address), listener.accept()).await;
    (near.unwrap(), far.unwrap().0)
}

/// The slot through which a task is handed another task.
type Slot = Arc<Mutex<Option<Task<()>>>>;

/// Spawns a task that awaits the task in its slot, once its event is set.
fn awaits(runtime: &Runtime) -> (Task<()>, Slot, Arc<Event>) {
    let (slot, go): (Slot, Arc<Event>) = Default::default();
    let task = runtime.spawn({
        let (slot, go) = (slot.clone(), go.clone());
        async move {
            go.wait().await;
            let task: Option<Task<()>> = slot.lock().unwrap().take();
            task.expect("it was handed").await;
        }
    });
    (task, slot, go)
}

/// Tasks that await each other are told in their order.
#[test]
fn await_cycle_listed_in_order() {
    with_every_runtime(|runtime, _| {
        let made: Vec<_> = (0..3).map(|_| awaits(&runtime)).collect();
        let order: Vec<Id> = made.iter().map(|it| it.0.id()).collect();
        let (tasks, rest): (Vec<_>, Vec<_>) =
            made.into_iter().map(|it| (it.0, (it.1, it.2))).unzip();
        // The first awaits the second, and so on.
        let mut tasks = tasks;
        tasks.rotate_left(1);
        for ((slot, go), task) in rest.into_iter().zip(tasks) {
            *slot.lock().unwrap() = Some(task);
            go.set();
        }
        // A task that awaits a member of a ring is not in the ring.
        let outside = runtime.spawn(sleep(LONG));
        let hint = while_driven(&runtime, |handle| {
            hint(handle, |hint| matches!(hint, Hint::AwaitEachOther(_)))
        });
        let Hint::AwaitEachOther(ring) = &hint else {
            unreachable!("{hint}")
        };
        assert_eq!(ids(ring), order, "{hint}");
        drop(outside);
    });
}

#[test]
fn a_chain_of_tasks_is_no_hint() {
    with_every_runtime(|runtime, _| {
        let first = runtime.spawn(sleep(LONG));
        let chain = (0..3).fold(first, |task, _| runtime.spawn(task));
        while_driven(&runtime, |handle| no_hint(handle, 4));
        drop(chain);
    });
}

/// A task that wakes itself again and again is told.
#[test]
fn self_waking_task_is_hinted() {
    with_every_runtime_alone(|runtime, _| {
        let spins = runtime.spawn(always_yields());
        let id = spins.id();
        let hint = while_driven(&runtime, |handle| {
            hint(handle, |hint| matches!(hint, Hint::WakesItself { .. }))
        });
        let Hint::WakesItself { task, polls, .. } = &hint else {
            unreachable!("{hint}")
        };
        assert_eq!(task.id, Some(id), "{hint}");
        assert!(*polls > 100, "{hint}");
        drop(spins);
    });
}

/// Two tasks that wake each other: neither is idle, and neither wakes itself.
#[test]
fn tasks_that_wake_each_other_are_no_hint() {
    with_every_runtime_alone(|runtime, _| {
        let events: [Arc<Event>; 2] = Default::default();
        let tasks = [0, 1].map(|side| {
            let (mine, other) = (events[side].clone(), events[1 - side].clone());
            runtime.spawn(async move {
                loop {
                    mine.wait().await;
                    other.set();
                }
            })
        });
        events[0].set();
        while_driven(&runtime, |handle| {
            for _ in 0..LOOKS {
                assert_no_hint(&handle.dump());
                thread::sleep(Duration::from_millis(1));
            }
        });
        drop(tasks);
    });
}

fn is_parked(dump: &Dump, worker: usize) -> bool {
    matches!(dump.workers[worker].state, WorkerState::Parked { .. })
}

#[test]
fn a_worker_that_keeps_all_the_load_is_told() {
    with_every_runtime_of_several(|runtime, backend, _| {
        let count = sized(backend, 64).max(32);
        let spin = || always_yields();
        let tasks: Vec<_> = (0..count)
            .map(|_| runtime.handle().spawn_on_worker(1, spin))
            .collect();
        let hint = while_driven(&runtime, |handle| {
            eventually("the other one sleeps", || is_parked(&handle.dump(), 0));
            hint(handle, |hint| matches!(hint, Hint::Uneven { .. }))
        });
        let Hint::Uneven { worker, ready } = hint else {
            unreachable!("{hint}")
        };
        assert!(worker == 1 && ready >= 16, "{hint}");
        drop(tasks);
    });
}
