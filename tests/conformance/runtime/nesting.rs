//! Rules 52 to 54 and 59: runtimes nested and side by side, plain threads, other reactors.

#[cfg(unix)]
use std::io::{BufRead, BufReader};
#[cfg(unix)]
use std::os::fd::AsRawFd;
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
#[cfg(unix)]
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

#[cfg(unix)]
use polder::event::Event;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::TcpStream;
use polder::time::{sleep, timeout};
use polder::{Handle, Task, Timer, future};

use super::{one_byte, send_byte};
use crate::child::in_children;
#[cfg(unix)]
use crate::child::in_children_and_judge;
use crate::probe::{Alive, Count, Mailbox, Signal, hold, join_all, own_waker, poll_with, tcp_pair};
#[cfg(unix)]
use crate::support::runtime_of;
use crate::support::{eventually, on_every_backend, runtime, sized, within};

/// A reader of standard error lets each such call return, by its other future.
#[cfg(unix)]
#[test]
fn block_on_own_workers_task_reported() {
    let judge = |_, output: &Output| {
        let words = String::from_utf8_lossy(&output.stdout);
        let reports = words
            .matches("REPORT: polder: the `block_on` at tests/")
            .count();
        assert_eq!(reports, 4, "{words}");
        assert!(
            words.contains("can run. That is blocked by this call, in task "),
            "{words}"
        );
        assert!(words.contains(", in the `block_on` at tests/"), "{words}");
    };
    let rule = |backend| {
        let go_on = Arc::new(Event::new());
        let (reader, writer) = UnixStream::pair().unwrap();
        // SAFETY: both are descriptors; this is a separate process.
        assert_eq!(unsafe { libc::dup2(writer.as_raw_fd(), 2) }, 2);
        let sets = go_on.clone();
        thread::spawn(move || {
            for line in BufReader::new(reader).lines() {
                println!("REPORT: {}", line.unwrap());
                sets.set();
            }
        });
        let blocks = move |task: Task<()>| {
            go_on.reset();
            // The leaf that is polled last is the task.
            let is_told = async { go_on.wait().await };
            polder::block_on(future::or(is_told, task));
        };
        let waits = blocks.clone();
        runtime_of(backend, 1).block_on(async {
            // A task that was never polled, and one that was.
            polder::spawn(async move {
                waits(polder::spawn(std::future::pending()));
                let polled = polder::spawn(std::future::pending());
                future::yield_now().await;
                waits(polled);
            })
            .await;
        });
        let waits = blocks.clone();
        runtime_of(backend, 1).block_on(async { waits(polder::spawn(std::future::pending())) });
        let runtime = runtime_of(backend, 2);
        let handle = runtime.handle();
        runtime.block_on(runtime.handle().spawn_on_worker(1, move || async move {
            blocks(handle.spawn_on_worker(1, std::future::pending));
            // These end by themselves.
            let later = || sleep(Duration::from_millis(1_200));
            polder::block_on(handle.spawn(later()));
            polder::block_on(handle.spawn_on_worker(0, later));
            let never = handle.spawn_on_worker(1, std::future::pending::<()>);
            let limit = Duration::from_millis(1_200);
            polder::block_on(timeout(limit, never)).expect_err("it never runs");
        }));
    };
    in_children_and_judge(rule, judge);
}

#[test]
fn a_nested_block_on_drives_only_its_own_tasks() {
    let rule = |_| {
        polder::block_on(async {
            let outer_ran = Arc::new(AtomicBool::new(false));
            let flag = outer_ran.clone();
            let outer_task = polder::spawn(async move { flag.store(true, SeqCst) });
            let outer_waker = own_waker().await;
            let cancelled = Alive::default();
            let sum = polder::block_on(async {
                let waker = own_waker().await;
                assert!(!waker.will_wake(&outer_waker), "the wakers are the same");
                // A wake of the outer future in here is kept for the outer runtime.
                outer_waker.wake_by_ref();
                polder::spawn(hold(cancelled.guard())).detach();
                sleep(Duration::from_millis(1)).await;
                let (mut a, b) = tcp_pair().await;
                a.write_all(b"x").await.unwrap();
                one_byte(b).await;
                // A third runtime.
                let three = polder::block_on(async { polder::spawn(async { 3 }).await });
                polder::spawn_local(async move { three + 1 }).await
            });
            assert_eq!(sum, 4);
            assert_eq!(cancelled.count(), 0);
            assert!(!outer_ran.load(SeqCst), "it drove the outer runtime's task");
            outer_task.await;
            // The same within a task.
            let inner = async { polder::spawn(async { 5 }).await };
            let task = polder::spawn(async { polder::block_on(inner) });
            assert_eq!(task.await, 5);
        });
        assert!(Handle::try_current().is_none());
    };
    in_children(rule);
}

/// Each future of nested `block_on`'s is woken by its own waker.
#[test]
fn nested_block_ons_use_own_wakers() {
    on_every_backend(|backend| {
        let (outer, inner) = (runtime(backend), runtime(backend));
        let (one, two) = (Signal::default(), Signal::default());
        outer.block_on(async {
            // The outer future and an outer task wait, and are woken while the inner runtime is
            // driven.
            let task = polder::spawn({
                let one = one.clone();
                async move { one.receive().await }
            });
            future::yield_now().await;
            let mut waiting = pin!(two.receive());
            assert!(future::poll_once(waiting.as_mut()).await.is_none());
            let thread = inner.block_on(async {
                one.send(());
                let two = two.clone();
                let thread = thread::spawn(move || two.send(()));
                sleep(Duration::from_millis(1)).await;
                polder::spawn(async {}).await;
                thread
            });
            waiting.await;
            task.await;
            thread.join().unwrap();
        });
    });
}

/// A foreign executor within a task is served what is ready.
///
/// A ready operation needs no worker. A task that has used up its budget yields, and then has a new
/// budget, even if only the foreign executor has polled it again. The test runs in its own process,
/// since nothing else could end a hang.
#[test]
fn foreign_executor_in_task_is_served() {
    let rule = |backend| {
        within(Duration::from_secs(20), "the foreign executor", move || {
            runtime(backend).block_on(async {
                let task = polder::spawn(async {
                    futures_lite::future::block_on(async {
                        for _ in 0..1_000 {
                            Timer::after(Duration::ZERO).await;
                        }
                        7
                    })
                });
                assert_eq!(task.await, 7);
            });
        });
    };
    in_children(rule);
}

/// Two runtimes on two threads pass sockets timers and tasks.
#[test]
fn two_runtimes_pass_sockets_timers_tasks() {
    on_every_backend(|backend| {
        enum Thing {
            Stream(TcpStream, u8),
            Timer(Timer, Instant),
            Task(Task<u8>, u8),
        }
        let rounds = sized(backend, 300);
        let (to_one, to_two) = (Mailbox::<Thing>::default(), Mailbox::default());
        let work = move |from: Mailbox<Thing>, to: Mailbox<Thing>, ours: Signal, theirs: Signal| {
            runtime(backend).block_on(async {
                let sender = polder::spawn(async move {
                    let mut tasks = Vec::new();
                    let (mut kept, given) = tcp_pair().await;
                    let mut given = Some(given);
                    for round in 0..rounds {
                        let number = round as u8;
                        to.send(match round % 3 {
                            0 => {
                                let mut stream = match given.take() {
                                    Some(stream) => stream,
                                    None => {
                                        let pair = tcp_pair().await;
                                        kept = pair.0;
                                        pair.1
                                    }
                                };
                                // The stream waits here before it is given away.
                                let mut byte = [0];
                                let read = future::poll_once(stream.read(&mut byte)).await;
                                assert!(read.is_none());
                                let mut writer = kept.clone();
                                tasks.push(polder::spawn(async move {
                                    future::yield_now().await;
                                    writer.write_all(&[number]).await.unwrap();
                                    // Until the other side has read the byte.
                                    writer.read_exact(&mut [0]).await.unwrap();
                                    0
                                }));
                                Thing::Stream(stream, number)
                            }
                            1 => {
                                let due = Instant::now() + Duration::from_micros(500);
                                let mut timer = Timer::at(due);
                                if round % 2 == 0 {
                                    let _ = future::poll_once(&mut timer).await;
                                    timer.set_at(due);
                                }
                                Thing::Timer(timer, due)
                            }
                            _ => Thing::Task(
                                polder::spawn(async move {
                                    sleep(Duration::from_micros(200)).await;
                                    number
                                }),
                                number,
                            ),
                        });
                        if round % 7 == 0 {
                            future::yield_now().await;
                        }
                    }
                    join_all(tasks).await;
                });
                for _ in 0..rounds {
                    match from.receive().await {
                        Thing::Stream(mut stream, number) => {
                            let mut byte = [0];
                            stream.read_exact(&mut byte).await.unwrap();
                            assert_eq!(byte, [number]);
                            stream.write_all(&byte).await.unwrap();
                        }
                        Thing::Timer(timer, due) => {
                            assert_eq!(timer.await, due);
                            assert!(Instant::now() >= due, "early");
                        }
                        Thing::Task(task, number) => assert_eq!(task.await, number),
                    }
                }
                sender.await;
                // Drives the tasks that were given away until the other side has them all.
                theirs.send(());
                ours.receive().await;
            })
        };
        let (one, two) = (Signal::default(), Signal::default());
        let thread = thread::spawn({
            let (from, to, ours, theirs) =
                (to_two.clone(), to_one.clone(), two.clone(), one.clone());
            move || work(from, to, ours, theirs)
        });
        work(to_one, to_two, one, two);
        thread.join().unwrap();
    });
}

#[test]
fn sockets_timers_and_spawn_work_on_plain_threads() {
    let rule = |backend| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                thread::spawn(move || {
                    assert!(Handle::try_current().is_none());
                    futures_lite::future::block_on(async {
                        let (mut a, b) = tcp_pair().await;
                        future::zip(one_byte(b.clone()), send_byte(a.clone())).await;
                        let start = Instant::now();
                        Timer::after(Duration::from_millis(2)).await;
                        assert!(start.elapsed() >= Duration::from_millis(2));
                        assert_eq!(polder::spawn(async { 1 }).await, 1);
                        assert_eq!(Handle::current().spawn(async { 2 }).await, 2);
                        // Data goes from here through a task of the background runtime, and back.
                        let echo = polder::spawn(async move {
                            assert!(Handle::try_current().is_some(), "it runs nowhere");
                            let (reader, writer) = b.into_split();
                            polder::io::copy(reader, writer).await.unwrap()
                        });
                        let mut bytes = vec![3; 100_000];
                        let (mut writer, mut reader) = (a.clone(), a.clone());
                        future::zip(
                            async {
                                writer.write_all(&vec![3; 100_000]).await.unwrap();
                                writer.close().await.unwrap();
                            },
                            async { reader.read_exact(&mut bytes).await.unwrap() },
                        )
                        .await;
                        assert_eq!(a.read(&mut [0]).await.unwrap(), 0);
                        assert_eq!(echo.await, 100_000);
                        let late = timeout(Duration::from_millis(1), std::future::pending::<()>());
                        assert!(late.await.is_err());
                        // A panic in the background runtime reaches the awaiting thread, and that
                        // runtime continues.
                        let task = polder::spawn(async { panic!("on purpose") });
                        let task: Task<()> = task;
                        let result =
                            catch_unwind(AssertUnwindSafe(|| futures_lite::future::block_on(task)));
                        assert!(result.is_err());
                        let sleeper = polder::spawn(sleep(Duration::from_secs(3_600)));
                        assert!(sleeper.cancel().await.is_none());
                    });
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let there = polder::spawn(async { thread::current().name().map(String::from) });
        assert_eq!(
            futures_lite::future::block_on(there).as_deref(),
            Some("polder-background"),
            "on {backend}"
        );
    };
    in_children(rule);
}

/// A waker is foreign code. If one panics, every other waiter must still be woken, and the
/// background runtime goes on.
#[test]
fn a_waker_that_panics_leaves_nobody_else_waiting() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("on purpose, in a waker");
        }
    }
    let rule = |backend| {
        let timers = |good: Waker| {
            let far = Duration::from_secs(3_600);
            let (mut first, mut second) = (Timer::after(far), Timer::after(far));
            assert!(poll_with(&mut first, &Arc::new(Panics).into()).is_pending());
            assert!(poll_with(&mut second, &good).is_pending());
            let due = Instant::now() + Duration::from_millis(30);
            first.set_at(due);
            second.set_at(due);
            (first, second)
        };
        // In a runtime: both are due at the same time.
        let runtime = runtime(backend);
        let wakes = Count::new();
        let waker = wakes.waker();
        let _timers = runtime.block_on(async { timers(waker) });
        let start = Instant::now();
        while wakes.woken() == 0 {
            let turn = || runtime.run_once(Duration::from_millis(1));
            let _ = catch_unwind(AssertUnwindSafe(turn));
            assert!(start.elapsed() < Duration::from_secs(20), "a wake was lost");
        }
        // On a plain thread: the same, and then another wait, socket and task.
        within(
            Duration::from_secs(20),
            "the background runtime",
            move || {
                futures_lite::future::block_on(polder::spawn(async {}));
                let wakes = Count::new();
                let waker = wakes.waker();
                let _timers = timers(waker);
                eventually("the other timer is told", || wakes.woken() > 0);
                futures_lite::future::block_on(async {
                    Timer::after(Duration::from_millis(1)).await;
                    let (a, b) = tcp_pair().await;
                    future::zip(one_byte(a), send_byte(b)).await;
                    polder::spawn(async {}).await;
                });
            },
        );
    };
    in_children(rule);
}

/// Another reactor's timers sockets and wakers end a wait.
///
/// Nothing of polder is pending meanwhile. async-io calls the wakers of its timers and sockets on
/// its own thread, or, in its `block_on`, on ours.
#[test]
fn other_reactors_events_end_wait() {
    use std::net::UdpSocket;

    crate::support::in_every_runtime(|backend| async move {
        let rounds = sized(backend, 100);
        for _ in 0..rounds {
            async_io::Timer::after(Duration::from_micros(100)).await;
        }
        let near = async_io::Async::<UdpSocket>::bind(([127, 0, 0, 1], 0)).unwrap();
        let address = near.get_ref().local_addr().unwrap();
        let far = polder::spawn(async move {
            let far = async_io::Async::<UdpSocket>::bind(([127, 0, 0, 1], 0)).unwrap();
            for _ in 0..rounds {
                async_io::Timer::after(Duration::from_micros(100)).await;
                far.send_to(b"x", address).await.unwrap();
            }
        });
        for _ in 0..rounds {
            near.recv(&mut [0; 1]).await.unwrap();
        }
        far.await;
        // Within our task, async-io's loop drives both: it wakes a task of this worker.
        let event = Arc::new(polder::event::Event::new());
        let waits = polder::spawn({
            let event = event.clone();
            async move { event.wait().await }
        });
        future::yield_now().await;
        async_io::block_on(async {
            async_io::Timer::after(Duration::from_millis(1)).await;
            event.set();
        });
        waits.await;
    });
}
