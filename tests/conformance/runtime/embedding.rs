//! Rule 51: a runtime in a foreign loop.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::poller::Poller;
use polder::time::sleep;
use polder::{Backend, Runtime, Task, Timer, future};

use super::{blocking, one_byte, send_byte};
use crate::descriptor::{is_readable, wait_until_readable};
use crate::probe::{Alive, OnDrop, Signal, hold, join_all, tcp_pair};
use crate::support::{
    on_every_backend, on_every_backend_alone, runtime, sized, with_every_runtime,
    with_every_runtime_alone,
};

fn has_descriptor(backend: Backend) -> bool {
    Poller::new(backend).unwrap().capabilities().descriptor
}

#[test]
fn the_descriptor_is_where_the_capability_says_so() {
    with_every_runtime(|runtime, backend| {
        match runtime.backend_fd() {
            Ok(_) => assert!(has_descriptor(backend)),
            Err(error) => {
                assert!(!has_descriptor(backend), "{error}");
                assert_eq!(error.kind(), io::ErrorKind::Unsupported);
            }
        };
    });
}

/// Waits as a foreign loop does: on the descriptor alone, or, without one, for the next timeout,
/// capped at a short time.
fn foreign_wait(runtime: &Runtime) {
    match runtime.backend_fd() {
        Ok(descriptor) => wait_until_readable(descriptor),
        Err(_) => {
            let most = Duration::from_millis(1);
            let timeout = runtime.next_timeout();
            thread::sleep(timeout.map_or(most, |timeout| timeout.min(most)));
        }
    }
}

/// Runs a foreign loop. Returns the number of its rounds.
fn foreign_loop(runtime: &Runtime, mut done: impl FnMut() -> bool) -> usize {
    let mut rounds = 0;
    while !done() {
        foreign_wait(runtime);
        runtime.run_once(Duration::ZERO);
        rounds += 1;
    }
    rounds
}

#[test]
fn a_foreign_loop_drives_sockets_and_timers() {
    with_every_runtime_alone(|runtime, backend| {
        // Queued before the descriptor is requested.
        let task = runtime.spawn(async {
            let (mut a, mut b) = tcp_pair().await;
            let writer = polder::spawn(async move {
                for round in 0..20 {
                    sleep(Duration::from_micros(300)).await;
                    a.write_all(&[round]).await.unwrap();
                }
            });
            let mut bytes = [0; 20];
            b.read_exact(&mut bytes).await.unwrap();
            writer.await;
            assert!(bytes.into_iter().eq(0..20));
        });
        foreign_loop(&runtime, || task.is_finished());
        runtime.block_on(task);
        // A timer that was set while driven in another way.
        let mut timer = Timer::after(Duration::from_millis(20));
        runtime.block_on(async { assert!(future::poll_once(&mut timer).await.is_none()) });
        let start = Instant::now();
        let task = runtime.spawn_local(timer);
        let rounds = foreign_loop(&runtime, || task.is_finished());
        assert!(runtime.block_on(task) <= Instant::now());
        if has_descriptor(backend) {
            let elapsed = start.elapsed();
            assert!(rounds < 20, "the loop spun: {rounds} rounds in {elapsed:?}");
        }
    });
}

/// A foreign loop is told of spawns and wakes from any thread.
#[test]
fn foreign_loop_told_of_spawns_and_wakes() {
    with_every_runtime_alone(|runtime, backend| {
        let signal = Signal::default();
        let done = |task: Task<()>| foreign_loop(&runtime, || task.is_finished());
        let wait = || {
            let signal = signal.clone();
            let task = runtime.spawn(async move { signal.receive().await });
            while runtime.run_once(Duration::ZERO) {}
            task
        };
        let _ = runtime.backend_fd();
        for _ in 0..sized(backend, 100) {
            // From this thread, between two turns.
            done(runtime.spawn(async {}));
            done(runtime.spawn_local(async {}));
            done(runtime.handle().spawn(async {}));
            let task = wait();
            signal.send(());
            done(task);
            let (alive, dropped) = (Alive::default(), Signal::default());
            let end = OnDrop({
                let dropped = dropped.clone();
                move || dropped.send(())
            });
            let task = runtime.spawn(hold((alive.guard(), end)));
            while runtime.run_once(Duration::ZERO) {}
            drop(task);
            foreign_loop(&runtime, || dropped.try_receive().is_some());
            // From another thread, while this one waits.
            let thread = thread::spawn({
                let (handle, signal) = (runtime.handle(), signal.clone());
                move || {
                    let task = handle.spawn(async {});
                    signal.send(());
                    task
                }
            });
            done(wait());
            done(thread.join().unwrap());
        }
    });
}

/// A foreign loop runs more tasks than one turn does.
#[test]
fn foreign_loop_exceeds_one_turn() {
    with_every_runtime_alone(|runtime, _| {
        let _ = runtime.backend_fd();
        let count = Rc::new(Cell::new(0));
        for _ in 0..1_000 {
            let count = count.clone();
            runtime
                .spawn_local(async move {
                    future::yield_now().await;
                    count.set(count.get() + 1);
                })
                .detach();
        }
        foreign_loop(&runtime, || count.get() == 1_000);
        // More events than one wait reports.
        let pairs = 150;
        let (streams, mut peers): (Vec<_>, Vec<_>) = runtime
            .block_on(async { join_all((0..pairs).map(|_| polder::spawn(tcp_pair()))).await })
            .into_iter()
            .unzip();
        let tasks: Vec<_> = streams
            .into_iter()
            .map(|stream| runtime.spawn(one_byte(stream)))
            .collect();
        while runtime.run_once(Duration::ZERO) {}
        for peer in &mut peers {
            io::Write::write_all(&mut blocking(peer), b"x").unwrap();
        }
        foreign_loop(&runtime, || tasks.iter().all(Task::is_finished));
    });
}

/// The descriptor is quiet while there is nothing to do.
#[test]
fn descriptor_quiet_when_idle() {
    on_every_backend_alone(|backend| {
        if !has_descriptor(backend) {
            return;
        }
        let runtime = runtime(backend);
        let descriptor = runtime.backend_fd().unwrap();
        let is_readable = || is_readable(descriptor);
        let quiet = |after: &str| {
            // A round or two for remaining events.
            let mut rounds = 0;
            while is_readable() {
                runtime.run_once(Duration::ZERO);
                rounds += 1;
                assert!(rounds < 10, "readable after {after}, again and again");
            }
        };
        quiet("nothing");
        let (stream, peer) = runtime.block_on(tcp_pair());
        quiet("block_on");
        let reader = runtime.spawn(one_byte(stream));
        assert!(is_readable(), "a spawn is not told");
        let far = runtime.spawn(sleep(Duration::from_secs(3_600)));
        quiet("waits for I/O and time");
        runtime.block_on(send_byte(peer));
        foreign_loop(&runtime, || reader.is_finished());
        drop(far);
        assert!(is_readable(), "a cancelled task is not told");
        foreign_loop(&runtime, || runtime.run_once(Duration::ZERO));
        quiet("the last task");
    });
}

/// Embedding begins within a task and survives nested turns.
///
/// Within a task: the first call of `backend_fd`, and a turn in the middle of a turn.
#[test]
fn embedding_within_task_and_nested_turns() {
    on_every_backend(|backend| {
        let runtime = Rc::new(runtime(backend));
        let signal = Signal::default();
        let task = runtime.spawn_local({
            let (runtime, signal) = (runtime.clone(), signal.clone());
            async move {
                let _ = runtime.backend_fd();
                let inner = polder::spawn_local(async { future::yield_now().await });
                while !inner.is_finished() {
                    runtime.run_once(Duration::ZERO);
                }
                signal.receive().await;
                sleep(Duration::from_millis(1)).await;
            }
        });
        runtime.run_once(Duration::ZERO);
        signal.send(());
        foreign_loop(&runtime, || task.is_finished());
    });
}

/// `next_timeout` says how long a foreign loop may sleep.
#[test]
fn next_timeout_bounds_foreign_sleep() {
    with_every_runtime_alone(|runtime, _| {
        assert_eq!(runtime.next_timeout(), None);
        let task = runtime.spawn(async {
            future::yield_now().await;
            sleep(Duration::from_secs(3_600)).await;
        });
        assert_eq!(runtime.next_timeout(), Some(Duration::ZERO), "a new task");
        runtime.run_once(Duration::ZERO);
        assert_eq!(
            runtime.next_timeout(),
            Some(Duration::ZERO),
            "one that yielded"
        );
        while runtime.run_once(Duration::ZERO) {}
        let left = runtime.next_timeout().expect("a timer is pending");
        assert!(left > Duration::from_secs(3_000) && left <= Duration::from_secs(3_600));
        drop(task);
        assert_eq!(
            runtime.next_timeout(),
            Some(Duration::ZERO),
            "one to be dropped"
        );
        runtime.run();
        assert_eq!(runtime.next_timeout(), None);
    });
}
