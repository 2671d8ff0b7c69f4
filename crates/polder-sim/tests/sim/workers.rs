//! Processes with several workers: their tasks move, and everything follows the seed.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polder::Handle;
use polder::event::Event;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream, serve, serve_on_workers};
use polder::stream::StreamExt;
use polder::time::{sleep, timeout};
use polder_sim::{Order, Sim};

const SECOND: Duration = Duration::from_secs(1);

/// Polls by worker: those of the main worker are last.
fn polls() -> Vec<usize> {
    let metrics = Handle::current().metrics();
    metrics.workers.iter().map(|it| it.polls).collect()
}

/// Tasks that talk over a private channel, wait for timers, yield and spawn others.
async fn busy(tasks: usize) -> usize {
    let (sender, receiver) = async_channel::bounded(2);
    let spawn = |number: usize| {
        let (sender, receiver) = (sender.clone(), receiver.clone());
        polder::spawn(async move {
            for round in 0..5 {
                match (number + round) % 4 {
                    0 => sleep(Duration::from_micros(number as u64)).await,
                    1 => polder::future::yield_now().await,
                    2 => polder::spawn(polder::future::yield_now()).await,
                    _ => {
                        let send =
                            async { sender.send(number).await.expect("there is a receiver") };
                        let receive = async { receiver.recv().await.expect("there is a sender") };
                        polder::future::zip(send, receive).await;
                    }
                }
            }
            number
        })
    };
    let mut sum = 0;
    for task in (0..tasks).map(spawn).collect::<Vec<_>>() {
        sum += task.await;
    }
    sum
}

/// Tasks of a process run on all of its workers and nothing is lost.
#[test]
fn tasks_run_on_all_workers_none_lost() {
    for order in [Order::Random, Order::Fifo, Order::Pct(3)] {
        for workers in [2, 3, 8] {
            polder_sim::check(0..30, |sim: Sim| async move {
                sim.order(order);
                sim.forbid_leaks();
                sim.workers(workers);
                let host = sim.host("host");
                let program = host.start(|| async { (busy(100).await, polls()) });
                let (sum, polls) = program.finished().within(SECOND).await;
                assert_eq!(sum, 99 * 100 / 2);
                assert_eq!(polls.len(), workers + 1);
                let (main, pool) = polls.split_last().expect("there is a main worker");
                assert!(*main > 0 && pool.iter().all(|it| *it > 0), "{polls:?}");
            });
        }
    }
}

/// The seed decides which worker runs a task.
#[test]
fn worker_choice_decided_by_seed() {
    let run = |seed| {
        let polls = Arc::new(Mutex::new(Vec::new()));
        let report = polder_sim::run(seed, |sim: Sim| {
            let seen = polls.clone();
            async move {
                let host = sim.host("host");
                host.workers(4);
                let program = host.start(|| async {
                    busy(50).await;
                    self::polls()
                });
                *seen.lock().unwrap() = program.finished().within(SECOND).await;
            }
        });
        assert_eq!(report.failure, None);
        let polls = polls.lock().unwrap().clone();
        (report.fingerprint, polls)
    };
    let all: Vec<_> = (0..20).map(run).collect();
    assert_eq!(all, (0..20).map(run).collect::<Vec<_>>());
    let distinct: BTreeSet<_> = all.iter().map(|it| it.0).collect();
    assert_eq!(distinct.len(), 20);
    let distinct: BTreeSet<_> = all.iter().map(|it| it.1.clone()).collect();
    assert!(distinct.len() > 10, "{all:?}");
}

/// Halves of a stream are used by tasks of two workers.
///
/// The stream is registered with two workers at the same time.
#[test]
fn stream_halves_used_by_two_workers() {
    const BYTES: usize = 100_000;
    polder_sim::check(0..30, |sim: Sim| async move {
        sim.forbid_leaks();
        let (server, client) = (sim.host("server"), sim.host("client"));
        server.workers(3);
        client.workers(2);
        server.start(|| async {
            let listener = TcpListener::bind("0.0.0.0:7").await.expect("it is free");
            let (stream, _) = listener.accept().await.expect("somebody connects");
            let (mut reader, mut writer) = stream.into_split();
            let reading = Handle::current().spawn_on_worker(0, move || async move {
                let mut sum = 0;
                let mut buffer = vec![0; 5_000];
                loop {
                    match reader.read(&mut buffer).await.expect("nothing is lost") {
                        0 => return sum,
                        count => sum += count,
                    }
                }
            });
            let writing = Handle::current().spawn_on_worker(2, move || async move {
                writer
                    .write_all(&vec![7; BYTES])
                    .await
                    .expect("somebody reads");
                writer.close().await.expect("it is connected");
            });
            writing.await;
            assert_eq!(reading.await, BYTES);
        });
        let client = client.start(|| async {
            let stream = TcpStream::connect("server:7")
                .await
                .expect("somebody listens");
            let (mut reader, mut writer) = stream.into_split();
            // These tasks may move.
            let writing = polder::spawn(async move {
                writer
                    .write_all(&vec![7; BYTES])
                    .await
                    .expect("somebody reads");
                writer.close().await.expect("it is connected");
            });
            let reading = polder::spawn(async move {
                let mut all = Vec::new();
                reader.read_to_end(&mut all).await.expect("nothing is lost");
                all.len()
            });
            writing.await;
            reading.await
        });
        assert_eq!(client.finished().within(60 * SECOND).await, BYTES);
    });
}

/// A server with several workers serves on each of them.
#[test]
fn server_serves_on_each_worker() {
    let by_worker = Arc::new([const { AtomicUsize::new(0) }; 3]);
    let counts = by_worker.clone();
    polder_sim::check(0..20, move |sim: Sim| {
        let counts = counts.clone();
        async move {
            let server = sim.host("server");
            server.workers(3);
            server.start(move || {
                let counts = counts.clone();
                async move {
                    let listeners = TcpListener::bind_balanced("0.0.0.0:7", 3).await?;
                    serve_on_workers(listeners, move |worker| {
                        let counts = counts.clone();
                        move |mut stream: TcpStream, _| {
                            counts[worker].fetch_add(1, Ordering::Relaxed);
                            async move {
                                let mut byte = [0];
                                while let Ok(1) = stream.read(&mut byte).await {
                                    if stream.write_all(&byte).await.is_err() {
                                        break;
                                    }
                                }
                            }
                        }
                    })
                    .await
                    .map(drop)
                }
            });
            let clients: Vec<_> = (0..4)
                .map(|number| {
                    sim.host(&format!("client-{number}"))
                        .start(move || async move {
                            let mut stream = TcpStream::connect("server:7").await?;
                            for _ in 0..5 {
                                stream.write_all(&[number]).await?;
                                let mut byte = [0];
                                stream.read_exact(&mut byte).await?;
                                assert_eq!(byte, [number]);
                            }
                            std::io::Result::Ok(())
                        })
                })
                .collect();
            for client in clients {
                client
                    .finished()
                    .within(60 * SECOND)
                    .await
                    .expect("it is served");
            }
        }
    });
    let counts = by_worker.each_ref().map(|it| it.load(Ordering::Relaxed));
    assert!(counts.iter().all(|it| *it > 0), "{counts:?}");
}

/// A process with several workers is killed and restarted at any moment.
///
/// Its tasks are dropped on all workers, in the middle of arbitrary work.
#[test]
fn workers_killed_and_restarted_at_any_moment() {
    struct Counted(Arc<AtomicUsize>);
    impl Counted {
        fn new(count: &Arc<AtomicUsize>) -> Counted {
            count.fetch_add(1, Ordering::Relaxed);
            Counted(count.clone())
        }
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    polder_sim::check(0..40, |sim: Sim| async move {
        let alive = Arc::new(AtomicUsize::new(0));
        let host = sim.host("host");
        host.workers(1 + sim.choose(4) as usize);
        let count = alive.clone();
        let process = host.start(move || {
            let count = count.clone();
            async move {
                let event = Arc::new(Event::new());
                for number in 0..20_u64 {
                    let (guard, event) = (Counted::new(&count), event.clone());
                    let task = polder::spawn(async move {
                        let _guard = guard;
                        loop {
                            let after = Duration::from_micros(100 * (number + 1));
                            if timeout(after, event.wait()).await.is_err() {
                                event.set();
                            }
                            polder::spawn(polder::future::yield_now()).await;
                        }
                    });
                    task.detach();
                }
                let guard = Counted::new(&count);
                polder::spawn_local(async move {
                    let _guard = guard;
                    std::future::pending::<()>().await;
                })
                .await;
            }
        });
        for _ in 0..5 {
            sim.sleep(Duration::from_micros(sim.choose(20_000))).await;
            match sim.choose(3) {
                0 => process.kill(),
                1 => process.power_off(),
                _ => {}
            }
            sim.sleep(Duration::from_nanos(1)).await;
            assert!(process.is_up() || alive.load(Ordering::Relaxed) == 0);
            process.restart();
        }
        process.kill();
        sim.sleep(Duration::from_nanos(1)).await;
        assert_eq!(alive.load(Ordering::Relaxed), 0, "tasks are left");
    });
}

/// A deadlock of several workers is found and told task by task.
#[test]
fn workers_deadlock_found_task_by_task() {
    let report = polder_sim::run(3, |sim: Sim| async move {
        let host = sim.host("host");
        host.workers(3);
        let program = host.start(|| async {
            let event = Rc::new(Event::new());
            let local = polder::spawn_local(async move { event.wait().await });
            let moved = polder::spawn(async {
                sleep(SECOND).await;
                Event::new().wait().await;
            });
            let stays = Handle::current().spawn_on_worker(1, || async {
                let listener = TcpListener::bind("0.0.0.0:7").await.expect("it is free");
                listener.accept().await.map(drop)
            });
            let _ = polder::future::zip(local, polder::future::zip(moved, stays)).await;
        });
        program.finished().await;
    });
    let text = report.failure.expect("it fails");
    for part in [
        "deadlock",
        "workers.rs",
        "waits: event",
        "reads TCP 0.0.0.0:7",
    ] {
        assert!(text.contains(part), "{part:?}: {text}");
    }
    assert_eq!(
        text.matches("\n      a task, spawned at crates/polder-sim/tests/sim/workers.rs")
            .count(),
        5,
        "{text}"
    );
}

/// Tasks of several workers that are left behind are told.
#[test]
fn leftover_tasks_of_workers_are_reported() {
    let report = polder_sim::run(1, |sim: Sim| async move {
        sim.forbid_leaks();
        let host = sim.host("host");
        host.workers(2);
        let program = host.start(|| async {
            for worker in 0..2 {
                let left = Handle::current().spawn_on_worker(worker, std::future::pending::<()>);
                left.detach();
            }
            polder::spawn(std::future::pending::<()>()).detach();
            sleep(SECOND).await;
        });
        program.finished().await;
    });
    let text = report.failure.expect("it fails");
    assert!(text.contains("leaves behind"), "{text}");
    assert_eq!(
        text.matches("\n    a task, spawned at crates/polder-sim/tests/sim/workers.rs")
            .count(),
        3,
        "{text}"
    );
}

/// An update that is lost between workers is found.
///
/// A read and then a write, with an await between them.
#[test]
fn lost_update_between_workers_found() {
    let lost = |workers: usize| {
        let count = move |seed| {
            let total = Arc::new(AtomicUsize::new(0));
            let report = polder_sim::run(seed, |sim: Sim| {
                let seen = total.clone();
                async move {
                    let host = sim.host("host");
                    host.workers(workers);
                    let program = host.start(|| async {
                        let value = Arc::new(AtomicUsize::new(0));
                        let add = |_| {
                            let value = value.clone();
                            polder::spawn(async move {
                                let before = value.load(Ordering::Relaxed);
                                polder::spawn(async {}).await;
                                value.store(before + 1, Ordering::Relaxed);
                            })
                        };
                        for task in (0..3).map(add).collect::<Vec<_>>() {
                            task.await;
                        }
                        value.load(Ordering::Relaxed)
                    });
                    seen.store(program.finished().within(SECOND).await, Ordering::Relaxed);
                }
            });
            assert_eq!(report.failure, None);
            total.load(Ordering::Relaxed)
        };
        let mut results = BTreeMap::new();
        (0..200)
            .map(count)
            .for_each(|it| *results.entry(it).or_insert(0) += 1);
        results
    };
    for workers in [1, 2, 4] {
        let results = lost(workers);
        assert!(
            results.keys().eq(&[1, 2, 3]),
            "{workers} workers: {results:?}"
        );
    }
}

/// A number of workers is set for a host, not for the test or for an absent host.
#[test]
fn worker_settings_for_host_test_or_none() {
    polder_sim::check(0..2, |sim: Sim| async move {
        let workers = || async { Handle::current().metrics().workers.len() };
        let (one, three) = (sim.host("one"), sim.host("three"));
        one.workers(1);
        sim.workers(3);
        assert_eq!(one.start(workers).finished().within(SECOND).await, 1);
        assert_eq!(three.start(workers).finished().within(SECOND).await, 4);
        three.workers(2);
        three.restart();
        let here = sim.clone();
        let refused = |f: &dyn Fn()| {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
            *result
                .expect_err("it panics")
                .downcast::<String>()
                .expect("in words")
        };
        assert!(refused(&|| here.host("test").workers(2)).contains("runs the test itself"));
        assert!(refused(&|| here.workers(0)).contains("1 to 64 workers, not 0"));
    });
}

#[test]
fn serve_moves_connections_among_workers() {
    polder_sim::check(0..20, |sim: Sim| async move {
        let server = sim.host("server");
        server.workers(4);
        let polls = Rc::new(RefCell::new(Vec::new()));
        let seen = polls.clone();
        server.start(move || {
            let seen = seen.clone();
            async move {
                let listener = TcpListener::bind("0.0.0.0:7").await.expect("it is free");
                let serving = serve(listener, |mut stream: TcpStream, _| async move {
                    let mut all = Vec::new();
                    if stream.read_to_end(&mut all).await.is_ok() {
                        let _ = stream.write_all(&all).await;
                    }
                });
                let watching = polder::time::interval(Duration::from_micros(200)).for_each(|_| {
                    *seen.borrow_mut() = self::polls();
                });
                polder::future::race(async { serving.await.map(drop) }, async {
                    watching.await;
                    Ok(())
                })
                .await
            }
        });
        let client = |number: u8| {
            sim.host(&format!("client-{number}"))
                .start(move || async move {
                    let mut stream = TcpStream::connect("server:7").await?;
                    let bytes = vec![number; 20_000];
                    let (mut reader, mut writer) = stream.split();
                    let write = async {
                        writer.write_all(&bytes).await?;
                        writer.close().await
                    };
                    let mut all = Vec::new();
                    let (wrote, read) =
                        polder::future::zip(write, reader.read_to_end(&mut all)).await;
                    wrote?;
                    read?;
                    assert!(all == bytes);
                    std::io::Result::Ok(())
                })
        };
        for client in (0..8).map(client).collect::<Vec<_>>() {
            client
                .finished()
                .within(60 * SECOND)
                .await
                .expect("it is served");
        }
        let polls = polls.take();
        let busy = polls[..4].iter().filter(|it| **it > 0);
        assert!(busy.count() > 1, "{polls:?}");
    });
}

/// A task that may move has its turn beside tasks that stay and wake each other.
///
/// Neither of a worker's two queues starves, at any priority.
#[test]
fn movable_task_runs_beside_local_ping_pong() {
    polder_sim::check(0..40, |sim: Sim| async move {
        sim.order(Order::Pct(0));
        sim.workers(2);
        let program = sim.host("host").start(|| async {
            let is_over = Arc::new(AtomicUsize::new(0));
            let mut tasks = Vec::new();
            for worker in 0..2 {
                let is_over = is_over.clone();
                let stays = Handle::current().spawn_on_worker(worker, move || async move {
                    let (one, other) = (Rc::new(Event::new()), Rc::new(Event::new()));
                    let turns = |mine: Rc<Event>, theirs: Rc<Event>| {
                        let is_over = is_over.clone();
                        polder::spawn_local(async move {
                            while is_over.load(Ordering::Relaxed) == 0 {
                                mine.wait().await;
                                theirs.set();
                            }
                            theirs.set();
                        })
                    };
                    let (left, right) =
                        (turns(one.clone(), other.clone()), turns(other, one.clone()));
                    one.set();
                    polder::future::zip(left, right).await;
                });
                tasks.push(stays);
            }
            let moves = polder::spawn(async move {
                polder::spawn(async {}).await;
                is_over.store(1, Ordering::Relaxed);
            });
            tasks.push(moves);
            for task in tasks {
                task.await;
            }
        });
        program.finished().within(SECOND).await;
    });
}
