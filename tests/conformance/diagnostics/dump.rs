//! The contents of a dump: tasks and workers.

use std::collections::HashSet;
use std::panic::Location;
use std::pin::pin;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use polder::diagnostics::{Dump, TaskDump, TaskState, Wait, WorkerState};
use polder::event::{Event, Latch};
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::TcpStream;
use polder::task::{self, Id};
use polder::time::{sleep, timeout};
use polder::{Handle, TaskSet, future};

use crate::probe::{listen, tcp_pair};
use crate::support::{
    eventually, in_every_runtime, in_every_runtime_alone, on_every_backend_alone, runtime, sized,
    with_every_runtime, with_every_runtime_alone, with_every_runtime_of_several,
};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(3_600);

pub(super) fn told(dump: &Dump, id: Id) -> Option<&TaskDump> {
    dump.tasks.iter().find(|task| task.id == Some(id))
}

/// For tasks that are always in the dump: stealable tasks that were polled, and those of this
/// thread.
pub(super) fn find(dump: &Dump, id: Id) -> &TaskDump {
    told(dump, id).unwrap_or_else(|| panic!("no task {id} in {dump}"))
}

/// Returns the result of `look` on the first dump in which it finds something. On a busy machine
/// any single dump may lack a worker's answer, or show a task as new or in its first poll.
fn eventually_told<T>(handle: &Handle, what: &str, mut look: impl FnMut(Dump) -> Option<T>) -> T {
    let mut found = None;
    eventually(what, || {
        found = look(handle.dump());
        found.is_some()
    });
    found.expect("it was found")
}

/// Returns a dump, taken by another thread while this one drives the runtime, in which exactly
/// `tasks` tasks of this runtime exist and all wait. It is the second such dump in a row, so
/// nothing happened in between.
async fn when_all_wait(tasks: usize) -> Dump {
    let handle = Handle::current();
    polder::unblock(move || {
        let mut polls_before = None;
        eventually_told(&handle, "all tasks wait", |dump| {
            // The count includes the future of `block_on`.
            let all_wait = dump.tasks.len() == tasks + 1
                && dump.unreported == 0
                && (dump.tasks.iter()).all(|task| task.state == TaskState::Waiting);
            let polls = all_wait.then(|| dump.tasks.iter().map(|it| it.polls).collect::<Vec<_>>());
            let is_second = polls.is_some() && polls == polls_before;
            polls_before = polls;
            is_second.then_some(dump)
        })
    })
    .await
}

#[test]
fn each_task_is_told_with_what_it_waits_for() {
    in_every_runtime(|_| async {
        let (listener, address) = listen().await;
        let near = TcpStream::connect(address).await.unwrap();
        let (mut far, peer) = listener.accept().await.unwrap();
        let (event, latch) = (Arc::new(Event::new()), Arc::new(Latch::new()));
        let (stop, stopped) = mpsc::channel::<()>();

        let accepts = polder::spawn(async move { drop(listener.accept().await) });
        let reads = polder::spawn(async move { drop(far.read(&mut [0]).await) });
        let limited = polder::spawn(async move {
            let mut near = near;
            drop(timeout(LONG, near.read(&mut [0])).await);
        });
        let sleeps = polder::spawn_local(sleep(LONG));
        let on_event = polder::spawn({
            let event = event.clone();
            async move { event.wait().await }
        });
        let on_latch = polder::spawn({
            let latch = latch.clone();
            async move { latch.wait().await }
        });
        let endless = polder::spawn(future::pending::<()>());
        let endless_id = endless.id();
        let on_task = task::Builder::new().name("joins").spawn(endless);
        let on_set = polder::spawn(async {
            let mut set = TaskSet::new();
            set.spawn(future::pending::<()>());
            set.join_next().await;
        });
        let call = polder::unblock(move || {
            let _ = stopped.recv();
        });
        let call_id = call.id();
        let on_call = polder::spawn(call);

        let dump = when_all_wait(11).await;
        let waits = |id| {
            let task = find(&dump, id);
            assert!(task.polls >= 1 && task.age >= task.last_polled, "{task}");
            assert_eq!(task.spawned_at.file(), Location::caller().file());
            &task.waits_for[..]
        };
        match waits(accepts.id()) {
            [
                Wait::Socket {
                    writes,
                    local,
                    peer,
                    ready_unread,
                    ..
                },
            ] => {
                assert_eq!((*writes, *ready_unread, peer), (false, false, &None));
                assert_eq!(local.as_deref(), Some(&*address.to_string()));
            }
            other => panic!("accept: {other:?}"),
        }
        match waits(reads.id()) {
            [
                Wait::Socket {
                    kind,
                    local,
                    peer: there,
                    descriptor,
                    ..
                },
            ] => {
                assert!(*kind == "TCP" && *descriptor > 2);
                assert_eq!(local.as_deref(), Some(&*address.to_string()));
                assert_eq!(there.as_deref(), Some(&*peer.to_string()));
            }
            other => panic!("read: {other:?}"),
        }
        match waits(limited.id()) {
            [Wait::Socket { .. }, Wait::Timer { due }] => {
                let left = due.saturating_duration_since(Instant::now());
                assert!(left > LONG / 2 && left <= LONG, "{left:?}");
            }
            other => panic!("with a limit: {other:?}"),
        }
        assert!(matches!(waits(sleeps.id()), [Wait::Timer { .. }]));
        assert_eq!(
            waits(on_event.id()),
            [Wait::Event(Arc::as_ptr(&event).addr())]
        );
        assert_eq!(
            waits(on_latch.id()),
            [Wait::Latch(Arc::as_ptr(&latch).addr())]
        );
        assert_eq!(waits(on_task.id()), [Wait::Task(endless_id)]);
        assert_eq!(waits(endless_id), [Wait::Elsewhere]);
        assert!(matches!(waits(on_set.id()), [Wait::TaskSet(_)]));
        assert_eq!(waits(on_call.id()), [Wait::Task(call_id)]);
        let name = find(&dump, on_task.id()).name.as_ref();
        assert_eq!(name.unwrap(), "joins");
        // The future of `block_on`, which waits for the dump.
        let mains: Vec<_> = dump.tasks.iter().filter(|task| task.id.is_none()).collect();
        assert!(matches!(mains[..], [it] if matches!(it.waits_for[..], [Wait::Task(_)])));
        let (text, json) = (dump.to_string(), dump.json());
        for what in [
            "reads TCP",
            "timer due in",
            "event 0x",
            "task set",
            "\"joins\"",
            "elsewhere",
        ] {
            assert!(text.contains(what), "no {what:?} in {text}");
        }
        assert!(json.contains(&format!("\"peer\":\"{peer}\"")), "{json}");
        assert_eq!(dump.unreported, 0, "{text}");
        drop(stop);
    });
}

/// Tasks that have ended are told no more and their neighbours are.
#[test]
fn ended_tasks_not_listed() {
    in_every_runtime(|_| async {
        let tasks: Vec<_> = (0..4)
            .map(|_| polder::spawn(future::pending::<()>()))
            .collect();
        when_all_wait(tasks.len()).await;
        let (mut left, mut ended) = (Vec::new(), Vec::new());
        for (index, task) in tasks.into_iter().enumerate() {
            if index % 2 == 0 {
                ended.push(task.id());
                assert_eq!(task.cancel().await, None);
            } else {
                left.push(task);
            }
        }
        let dump = when_all_wait(left.len()).await;
        for task in &left {
            find(&dump, task.id());
        }
        for id in ended {
            assert!(told(&dump, id).is_none(), "{id} has ended: {dump}");
        }
    });
}

/// A task that waits for a signal is told with its number.
#[cfg(unix)]
#[test]
fn signal_wait_reported_with_number() {
    use polder::signal::{Signal, Signals};
    use polder::stream::StreamExt;

    in_every_runtime(|_| async {
        let mut signals = Signals::new([Signal::Winch]).unwrap();
        let waits = polder::spawn(async move {
            let _ = signals.next().await;
        });
        let dump = when_all_wait(1).await;
        let number = Signal::Winch.number().unwrap();
        assert_eq!(
            find(&dump, waits.id()).waits_for,
            [Wait::Signal(vec![number])]
        );
    });
}

fn is_unread(task: &TaskDump) -> bool {
    let mut waits = task.waits_for.iter();
    waits.any(|it| matches!(it, Wait::Socket { ready_unread, .. } if *ready_unread))
}

/// The future that would read is neither polled nor dropped. (With one worker: the waker of a task
/// that has moved since it last waited is not kept.)
#[test]
fn what_is_readable_and_not_read_is_told() {
    in_every_runtime_alone(|_| async {
        let (mut far, mut near) = tcp_pair().await;
        let stuck = polder::spawn(async move {
            let mut byte = [0];
            far.read_exact(&mut byte).await.unwrap();
            let mut read = far.read(&mut byte);
            assert!(future::poll_once(&mut read).await.is_none());
            future::pending::<()>().await;
        });
        when_all_wait(1).await;
        near.write_all(&[1]).await.unwrap();
        let (handle, id) = (Handle::current(), stuck.id());
        let before = polder::unblock(move || {
            eventually_told(&handle, "it has read, and waits for more", |dump| {
                let task = told(&dump, id)?;
                (task.polls >= 2 && task.state == TaskState::Waiting).then(|| task.clone())
            })
        });
        let before = before.await;
        assert!(!is_unread(&before), "{before}");
        near.write_all(&[1]).await.unwrap();
        let handle = Handle::current();
        let unread = polder::unblock(move || {
            eventually_told(&handle, "it is told", |dump| {
                let task = told(&dump, id)?;
                is_unread(task).then(|| task.clone())
            })
        });
        let unread = unread.await;
        // The task does not wait for that socket.
        assert!(unread.waits_for.contains(&Wait::Elsewhere), "{unread}");
    });
}

/// A worker that computes is told with the task that it runs.
#[test]
fn computing_worker_reported_with_task() {
    with_every_runtime(|runtime, _| {
        let (go_on, wait) = mpsc::channel::<()>();
        let waiting = runtime.spawn(future::pending::<()>());
        let begun = Arc::new(AtomicBool::new(false));
        let stuck = task::Builder::new().name("stuck").spawn_on(
            {
                let begun = begun.clone();
                async move {
                    // Blocks in a later poll than the first.
                    future::yield_now().await;
                    begun.store(true, Ordering::Relaxed);
                    let _ = wait.recv();
                }
            },
            &runtime.handle(),
        );
        let (id, other) = (stuck.id(), waiting.id());
        let is_stealable = runtime.workers() > 1;
        let dumper = {
            let handle = runtime.handle();
            thread::spawn(move || {
                eventually("it computes", || begun.load(Ordering::Relaxed));
                let found = eventually_told(&handle, "the task that computes is told", |dump| {
                    let mut workers = dump.workers.iter();
                    let running = workers.find_map(|worker| match worker.state {
                        WorkerState::Silent { task, .. } => task.filter(|task| task.id == Some(id)),
                        _ => None,
                    })?;
                    let is_enough =
                        !is_stealable || told(&dump, other)?.state == TaskState::Waiting;
                    is_enough.then_some((dump, running))
                });
                drop(go_on);
                found
            })
        };
        runtime.block_on(stuck);
        let (dump, running) = dumper.join().unwrap();
        assert_eq!(running.spawned_at.file(), file!(), "{dump}");
        if is_stealable {
            assert_eq!(find(&dump, id).state, TaskState::Running, "{dump}");
        } else {
            assert_eq!(dump.unreported, 2, "{dump}");
        }
        assert!(dump.to_string().contains("DOES NOT ANSWER"), "{dump}");
    });
}

/// A runtime that is not driven is told on its thread.
#[test]
fn undriven_runtime_reported_on_its_thread() {
    with_every_runtime_alone(|runtime, _| {
        let waits = runtime.spawn_local(sleep(LONG));
        assert_eq!(find(&runtime.dump(), waits.id()).state, TaskState::New);
        runtime.run_once(Duration::ZERO);
        let here = runtime.dump();
        assert!(
            matches!(find(&here, waits.id()).waits_for[..], [Wait::Timer { .. }]),
            "{here}"
        );
        let handle = runtime.handle();
        let elsewhere = thread::spawn(move || handle.dump()).join().unwrap();
        assert_eq!(elsewhere.workers[0].state, WorkerState::NotDriven);
        assert_eq!(
            (elsewhere.tasks.len(), elsewhere.unreported),
            (0, 1),
            "{elsewhere}"
        );
    });
}

/// An embedded runtime answers where its loop turns and is not driven where it does not.
#[test]
fn embedded_answers_only_when_turned() {
    with_every_runtime_alone(|runtime, _| {
        let task = runtime.spawn_local(sleep(LONG));
        let id = task.id();
        if runtime.backend_fd().is_err() {
            return; // It has no descriptor.
        }
        runtime.run_once(Duration::ZERO);
        let handle = runtime.handle();
        let elsewhere = thread::spawn(move || handle.dump()).join().unwrap();
        assert_eq!(elsewhere.workers[0].state, WorkerState::NotDriven);
        let handle = runtime.handle();
        let dumper = thread::spawn(move || {
            eventually_told(&handle, "its loop turns", |dump| {
                let is_driven = dump.workers[0].state != WorkerState::NotDriven;
                let task = told(&dump, id).filter(|_| is_driven)?;
                (task.state == TaskState::Waiting).then_some(())
            });
        });
        while !dumper.is_finished() {
            runtime.run_once(Duration::from_millis(1));
        }
        dumper.join().unwrap();
    });
}

#[test]
fn a_task_that_takes_a_dump_runs() {
    in_every_runtime(|_| async {
        let task = polder::spawn(async {
            future::yield_now().await;
            Handle::current().dump()
        });
        let id = task.id();
        let dump = task.await;
        assert_eq!(find(&dump, id).state, TaskState::Running, "{dump}");
        assert!(find(&dump, id).polls >= 2);
    });
}

/// Whether every worker has answered, and every task is listed.
fn is_whole(dump: &Dump) -> bool {
    let is_silent =
        |state: &WorkerState| matches!(state, WorkerState::Silent { .. } | WorkerState::NotDriven);
    dump.unreported == 0 && !dump.workers.iter().any(|worker| is_silent(&worker.state))
}

/// Repeats a round until all its dumps are whole. (A busy machine may keep a thread from answering
/// for long, though hardly each time.)
fn eventually_whole(mut round: impl FnMut() -> Vec<Dump>) {
    let mut last = Vec::new();
    let is_whole = (0..20).any(|_| {
        last = round();
        last.iter().all(is_whole)
    });
    let last: Vec<String> = last.iter().map(Dump::to_string).collect();
    assert!(is_whole, "{}", last.join("\n"));
}

/// Each worker is in a poll that waits for the other workers' answers.
#[test]
fn workers_dumping_at_once_answer_each_other() {
    with_every_runtime_of_several(|runtime, _, workers| {
        let _waits = runtime.spawn(future::pending::<()>());
        // In their first poll, and in a later one.
        for yields in [false, true] {
            eventually_whole(|| {
                let barrier = Arc::new(Barrier::new(workers + 1));
                let dump = move |barrier: Arc<Barrier>, handle: Handle| async move {
                    if yields {
                        future::yield_now().await;
                    }
                    barrier.wait();
                    let dump = handle.dump();
                    // None has ended while others count.
                    barrier.wait();
                    dump
                };
                let tasks: Vec<_> = (0..workers)
                    .map(|worker| {
                        let (barrier, handle) = (barrier.clone(), runtime.handle());
                        let dump = move || dump(barrier, handle);
                        runtime.handle().spawn_on_worker(worker, dump)
                    })
                    .collect();
                runtime.block_on(async {
                    let mut dumps = vec![dump(barrier, runtime.handle()).await];
                    for dump in &dumps {
                        let running = |task: &&TaskDump| task.state == TaskState::Running;
                        let running = dump.tasks.iter().filter(running).count();
                        assert!(!is_whole(dump) || running == workers + 1, "{dump}");
                    }
                    for task in tasks {
                        dumps.push(task.await);
                    }
                    dumps
                })
            });
        }
    });
}

#[test]
fn runtimes_that_dump_each_other_at_once_answer() {
    on_every_backend_alone(|backend| {
        eventually_whole(|| {
            let barrier = Arc::new(Barrier::new(2));
            let [(to_other, from_this), (to_this, from_other)] =
                [(); 2].map(|()| mpsc::channel::<Handle>());
            let round = move |to: mpsc::Sender<Handle>, from: mpsc::Receiver<Handle>| {
                let barrier = barrier.clone();
                let runtime = runtime(backend);
                to.send(runtime.handle()).unwrap();
                let dump = move || async move {
                    let other = from.recv().unwrap();
                    barrier.wait();
                    let dump = other.dump();
                    barrier.wait();
                    dump
                };
                runtime.block_on(runtime.spawn_local(dump()))
            };
            let other = {
                let round = round.clone();
                thread::spawn(move || round(to_this, from_this))
            };
            vec![round(to_other, from_other), other.join().unwrap()]
        });
    });
}

fn main_states(dump: &Dump) -> Vec<TaskState> {
    let mains = dump.tasks.iter().filter(|task| task.id.is_none());
    mains.map(|task| task.state).collect()
}

/// The future of `block_on` that takes a dump runs and one that was woken is ready.
#[test]
fn block_on_taking_dump_runs_woken_is_ready() {
    with_every_runtime_alone(|runtime, _| {
        let event = Arc::new(Event::new());
        let within = runtime.block_on(async {
            // Dumps by a task that runs between two polls of the future.
            let other = polder::spawn({
                let event = event.clone();
                async move {
                    let before = Handle::current().dump();
                    event.set();
                    (before, Handle::current().dump())
                }
            });
            let here = Handle::current().dump();
            event.wait().await;
            let (before, woken) = other.await;
            [here, before, woken]
        });
        let states = within.each_ref().map(main_states);
        let expected = [TaskState::Running, TaskState::Waiting, TaskState::Ready];
        assert_eq!(states, expected.map(|state| vec![state]));
    });
}

/// A `block_on` within another ones poll leaves alone what that one waits for.
///
/// An outer future registers a wait, and then drives another future within its poll.
#[test]
fn nested_block_on_leaves_outer_waits() {
    on_every_backend_alone(|backend| {
        let [runtime, inner] = [(); 2].map(|()| runtime(backend));
        let event = Event::new();
        let dump = runtime.block_on(async {
            let taken = polder::spawn(async { Handle::current().dump() });
            let mut wait = pin!(event.wait());
            let mut taken = pin!(taken);
            let mut is_first = true;
            future::poll_fn(|cx| {
                let done = taken.as_mut().poll(cx);
                assert!(wait.as_mut().poll(cx).is_pending());
                if std::mem::take(&mut is_first) {
                    inner.block_on(future::yield_now());
                }
                done
            })
            .await
        });
        let main = dump.tasks.iter().find(|task| task.id.is_none()).unwrap();
        assert_eq!(
            main.waits_for,
            [Wait::Event(ptr::from_ref(&event).addr())],
            "{dump}"
        );
    });
}

#[test]
fn what_users_and_peers_say_is_escaped() {
    in_every_runtime_alone(|_| async {
        let name = "\u{1b}[31m\"\\\n\u{202e}red";
        let task = task::Builder::new()
            .name(name)
            .spawn(future::pending::<()>());
        let dump = when_all_wait(1).await;
        for text in [dump.to_string(), dump.json()] {
            assert!(
                text.contains("red") && !text.contains(['\u{1b}', '\u{202e}']),
                "{text:?}"
            );
        }
        assert!(
            dump.json()
                .contains(r#""name":"\u001b[31m\"\\\u000a\u202ered""#),
            "{}",
            dump.json()
        );
        assert_eq!(find(&dump, task.id()).name.as_ref().unwrap(), name);
    });
}

#[test]
fn many_tasks_are_told_in_few_lines() {
    with_every_runtime(|runtime, backend| {
        let count = sized(backend, 20_000);
        let stop = Arc::new(Latch::new());
        let spawn = || {
            let stop = stop.clone();
            runtime.spawn(async move { stop.wait().await })
        };
        let tasks: Vec<_> = (0..count).map(|_| spawn()).collect();
        let dump = runtime.block_on(when_all_wait(count));
        let lines = dump.to_string().lines().count();
        assert!(lines < 20, "{lines} lines");
        stop.set();
        for task in tasks {
            runtime.block_on(task);
        }
    });
}

/// Dumps in a storm of spawns wakes and ends tell each task once.
#[test]
fn dump_in_storm_lists_each_task_once() {
    with_every_runtime(|runtime, backend| {
        let rounds = sized(backend, 3_000);
        let done = Arc::new(AtomicBool::new(false));
        let handle = runtime.handle();
        let dumpers: Vec<_> = (0..2)
            .map(|_| {
                let (handle, done) = (handle.clone(), done.clone());
                thread::spawn(move || {
                    let mut dumps = 0;
                    while !done.load(Ordering::Relaxed) || dumps == 0 {
                        let dump = handle.dump();
                        let ids: Vec<_> = dump.tasks.iter().filter_map(|it| it.id).collect();
                        let different: HashSet<_> = ids.iter().collect();
                        assert_eq!(different.len(), ids.len(), "{dump}");
                        assert!(dump.json().ends_with("]}"));
                        dumps += 1;
                    }
                })
            })
            .collect();
        runtime.block_on(async {
            let (listener, address) = listen().await;
            let storm = (0..4).map(|_| {
                polder::spawn(async move {
                    for round in 0..rounds {
                        let event = Arc::new(Event::new());
                        let waits = polder::spawn({
                            let event = event.clone();
                            async move { event.wait().await }
                        });
                        let cancelled = polder::spawn(future::pending::<usize>());
                        future::yield_now().await;
                        event.set();
                        waits.await;
                        drop(cancelled);
                        if round % 50 == 0 {
                            drop(TcpStream::connect(address).await.unwrap());
                        }
                    }
                })
            });
            let accepts = polder::spawn(async move {
                loop {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    polder::spawn(async move { drop(stream.read(&mut [0]).await) }).detach();
                }
            });
            for task in storm.collect::<Vec<_>>() {
                task.await;
            }
            drop(accepts);
        });
        done.store(true, Ordering::Relaxed);
        // The last dumper queries a runtime that is no longer driven.
        dumpers.into_iter().for_each(|it| it.join().unwrap());
    });
}

/// Stealable tasks are listed although the main worker is not driven.
///
/// Tasks of pool workers appear in a dump even if the main worker is not driven.
#[test]
fn stealable_tasks_listed_without_driver() {
    with_every_runtime_of_several(|runtime, _, _| {
        let event = Arc::new(Event::new());
        let task = runtime.spawn({
            let event = event.clone();
            async move { event.wait().await }
        });
        let pinned = runtime.handle().spawn_on_worker(1, || sleep(LONG));
        let handle = runtime.handle();
        let ids = [task.id(), pinned.id()];
        eventually_told(&handle, "both are told", |dump| {
            let waits = |id| told(&dump, id).is_some_and(|it| it.state == TaskState::Waiting);
            ids.into_iter().all(waits).then_some(())
        });
        drop((task, pinned));
    });
}
