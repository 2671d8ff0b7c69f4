//! Time, tasks, processes, checks.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Wake};
use std::time::{Duration, Instant};

use polder::event::Event;
use polder::future::{pending, yield_now};
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream, UdpSocket};
use polder::time::{now, sleep, timeout};
use polder_sim::{Exit, Finished, Host, Latency, Sim};

use super::{ms, secs};

fn failure_of<F>(seed: u64, test: impl Fn(Sim) -> F + Sync) -> String
where
    F: Future<Output = ()> + 'static,
{
    let report = polder_sim::run(seed, test);
    report.failure.expect("the run fails")
}

#[test]
fn time_jumps_and_is_exact() {
    let start = Instant::now();
    polder_sim::check(0..5, |sim| async move {
        let before = now();
        sleep(secs(3_000)).await;
        assert_eq!(now() - before, secs(3_000));
        assert_eq!(sim.now(), secs(3_000));
        assert!(timeout(ms(1), pending::<()>()).await.is_err());
        assert_eq!(now() - before, secs(3_000) + ms(1));
    });
    assert!(start.elapsed() < secs(3_000), "it took real time");
}

#[test]
fn timers_fire_in_the_order_of_their_deadlines() {
    polder_sim::check(0..20, |_| async {
        let order = Rc::new(RefCell::new(Vec::new()));
        let tasks: Vec<_> = [30, 10, 20]
            .map(|n| {
                let order = order.clone();
                polder::spawn_local(async move {
                    sleep(ms(n)).await;
                    order.borrow_mut().push(n);
                })
            })
            .into();
        for task in tasks {
            task.await;
        }
        assert_eq!(*order.borrow(), [10, 20, 30]);
    });
}

/// Ready tasks run in another order for another seed.
#[test]
fn ready_order_differs_by_seed() {
    let order = |seed| {
        let all = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = all.clone();
        let report = polder_sim::run(seed, move |_| {
            let all = all.clone();
            async move {
                let tasks: Vec<_> = (0..8)
                    .map(|n| {
                        let all = all.clone();
                        polder::spawn(async move { all.lock().unwrap().push(n) })
                    })
                    .collect();
                for task in tasks {
                    task.await;
                }
            }
        });
        assert_eq!(report.failure, None);
        std::mem::take(&mut *seen.lock().unwrap())
    };
    let mut orders: Vec<Vec<i32>> = (0..20).map(order).collect();
    assert_eq!(order(3), orders[3], "the seed decides");
    orders.sort();
    orders.dedup();
    assert!(orders.len() > 10, "only {} orders", orders.len());
}

/// A task that is ready runs although another one yields for ever.
#[test]
fn ready_task_runs_beside_endless_yield() {
    polder_sim::check(0..50, |_| async {
        let done = Rc::new(Cell::new(false));
        let seen = done.clone();
        let task = polder::spawn_local(async move {
            for _ in 0..10 {
                yield_now().await;
            }
            seen.set(true);
        });
        let mut rounds = 0;
        while !done.get() {
            yield_now().await;
            rounds += 1;
            assert!(rounds < 2_000, "it was passed over too often");
        }
        task.await;
    });
}

#[test]
fn a_loop_without_any_time_passing_is_a_livelock() {
    let failure = failure_of(1, |_| async {
        loop {
            yield_now().await;
        }
    });
    assert!(failure.contains("livelock"), "{failure}");
}

#[test]
fn messages_that_take_no_time_are_a_livelock_too() {
    let failure = failure_of(1, |sim| async move {
        sim.links().latency(Latency::fixed(Duration::ZERO));
        let bounce = |mut stream: TcpStream| async move {
            let mut byte = [0];
            while stream.read_exact(&mut byte).await.is_ok() {
                stream.write_all(&byte).await.unwrap();
            }
        };
        let listener = TcpListener::bind("0.0.0.0:1").await.unwrap();
        sim.host("other").start(move || async move {
            let mut stream = TcpStream::connect("test:1").await.unwrap();
            stream.write_all(b"x").await.unwrap();
            bounce(stream).await;
        });
        bounce(listener.accept().await.unwrap().0).await;
    });
    assert!(failure.contains("livelock"), "{failure}");
}

/// A world in which nothing can happen is a deadlock; the report says what each task waits for.
#[test]
fn deadlock_report_says_who_waits() {
    let failure = failure_of(1, |sim| async move {
        sim.host("idle").start(pending::<()>);
        pending().await
    });
    assert!(failure.contains("deadlock"), "{failure}");
    assert!(failure.contains("idle: running"), "{failure}");
    let site = "spawned at crates/polder-sim/tests/sim/world.rs";
    assert!(failure.matches(site).count() >= 2, "{failure}");
}

#[test]
fn a_panic_fails_the_run_wherever_it_is() {
    let failure = failure_of(1, |_| async { panic!("in the test") });
    assert!(
        failure.contains("the test panicked: in the test"),
        "{failure}"
    );
    let failure = failure_of(1, |sim| async move {
        let host = sim.host("a").start(|| async { panic!("in a process") });
        host.finished().await;
        pending().await
    });
    assert!(
        failure.contains("\"a\" panicked: in a process"),
        "{failure}"
    );
    let failure = failure_of(1, |_| async {
        polder::spawn(async { panic!("in a task") }).detach();
        pending().await
    });
    let words = "panicked, and nobody awaits it: in a task";
    assert!(failure.contains(words), "{failure}");
}

#[test]
fn a_test_that_returns_an_error_fails() {
    let report = polder_sim::run(1, |_| async {
        TcpStream::connect("nobody:1").await?;
        std::io::Result::Ok(())
    });
    let failure = report.failure.unwrap();
    assert!(failure.contains("no host has this name"), "{failure}");
}

#[test]
#[should_panic = "POLDER_SIM_SEED=0x2 cargo test world::a_failing_check_says_the_lowest_seed"]
fn a_failing_check_says_the_lowest_seed() {
    polder_sim::check(0..64, |sim| async move {
        assert!(sim.seed() < 2, "on purpose");
    });
}

#[test]
#[should_panic = "sometimes \"never\": it was not true for any of 4 seeds"]
fn what_is_sometimes_true_must_be_true_once() {
    polder_sim::check(0..4, |sim| async move {
        let seed = sim.seed();
        sim.sometimes("once", move || seed == 3);
        sim.sometimes("never", || false);
        sleep(ms(1)).await;
    });
}

#[test]
fn what_is_owed_eventually_counts_from_quiet_on() {
    polder_sim::check(0..4, |sim| async move {
        let done = Rc::new(Cell::new(false));
        let seen = done.clone();
        sim.eventually("done", secs(10), move || seen.get());
        sleep(secs(100)).await;
        sim.quiesce();
        sleep(secs(9)).await;
        done.set(true);
        sleep(secs(100)).await;
    });
}

#[test]
fn a_process_ends_with_all_its_tasks_and_sockets() {
    polder_sim::check(0..20, |sim| async move {
        struct Dropped(Rc<Cell<u32>>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
            }
        }
        let count = Rc::new(Cell::new(0));
        for way in 0..3 {
            let dropped = count.clone();
            let host = sim.host("host").start(move || {
                let dropped = dropped.clone();
                async move {
                    let guard = Dropped(dropped);
                    polder::spawn_local(async move {
                        let _guard = guard;
                        let listener = TcpListener::bind("0.0.0.0:1").await.unwrap();
                        loop {
                            listener.accept().await.unwrap();
                        }
                    })
                    .detach();
                    if way == 0 {
                        return sleep(secs(1)).await;
                    }
                    pending().await
                }
            });
            sleep(ms(500)).await;
            assert!(TcpStream::connect("host:1").await.is_ok());
            match way {
                0 => assert_eq!(host.finished().await, Exit::Returned(())),
                1 => host.kill(),
                _ => host.power_off(),
            }
            assert!(!host.is_up());
            sleep(ms(1)).await;
            assert_eq!(count.take(), 1, "a task is left");
            let limit = secs(1);
            let late = TcpStream::connect_timeout("host:1", limit)
                .await
                .unwrap_err();
            let expected = match way {
                2 => ErrorKind::TimedOut,
                _ => ErrorKind::ConnectionRefused,
            };
            assert_eq!(late.kind(), expected);
        }
        assert!(!sim.host("host").is_up());
    });
}

/// A process that is killed says so and restarts from its beginning.
#[test]
fn killed_process_restarts_from_beginning() {
    polder_sim::check(0..10, |sim| async move {
        let starts = Rc::new(Cell::new(0));
        let count = starts.clone();
        let host = sim.host("host").start(move || {
            count.set(count.get() + 1);
            sleep(secs(10))
        });
        sleep(secs(9)).await;
        host.kill();
        assert_eq!(host.finished().await, Exit::Killed);
        host.restart();
        sleep(secs(9)).await;
        host.power_off();
        assert_eq!(host.finished().await, Exit::PoweredOff);
        host.restart();
        assert_eq!(host.finished().await, Exit::Returned(()));
        assert_eq!((starts.get(), sim.now()), (3, secs(28)));
    });
}

/// Waiting for a process sees its end although it restarts immediately.
#[test]
fn process_end_seen_despite_restart() {
    polder_sim::check(0..10, |sim| async move {
        let host = Rc::new(sim.host("host").start(|| sleep(secs(10))));
        let same = host.clone();
        let waiting = polder::spawn_local(async move {
            let first = same.finished();
            let second = same.finished();
            (first.await, second.await)
        });
        sleep(secs(1)).await;
        host.restart();
        assert_eq!(waiting.await, (Exit::Killed, Exit::Returned(())));
        assert_eq!(sim.now(), secs(11));
    });
}

/// Waiting for the end of a process keeps the last waker only.
#[test]
fn waiting_for_process_keeps_last_waker() {
    struct Counted(Arc<AtomicU32>);
    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    polder_sim::check(0..3, |sim| async move {
        let host = sim.host("host").start(|| sleep(secs(10)));
        let woken = Arc::new(AtomicU32::new(0));
        let poll = |finished: &mut Finished<()>, counted: &Arc<Counted>| {
            let waker = counted.clone().into();
            let polled = Pin::new(finished).poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        };
        let [first, second] = [(); 2].map(|()| Arc::new(Counted(woken.clone())));
        let (mut kept, mut dropped) = (host.finished(), host.finished());
        poll(&mut kept, &first);
        (0..3).for_each(|_| poll(&mut kept, &second));
        poll(&mut dropped, &first);
        drop(dropped);
        assert_eq!(Arc::strong_count(&first), 1, "a waker is left");
        sleep(secs(11)).await;
        assert_eq!(woken.load(Ordering::Relaxed), 1);
    });
}

/// A process that was killed runs no task any more.
#[test]
fn killed_process_runs_no_more_tasks() {
    for seed in 0..10 {
        let ran = Arc::new(AtomicU32::new(0));
        let count = ran.clone();
        let report = polder_sim::run(seed, move |sim| {
            let count = count.clone();
            let host = sim.host("host").start(move || {
                count.fetch_add(1, Ordering::Relaxed);
                pending::<()>()
            });
            host.kill();
            sleep(secs(1))
        });
        assert_eq!(report.failure, None);
        assert_eq!(ran.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn the_host_of_the_test_itself_cannot_be_stopped() {
    let stops: [fn(Host); 4] = [
        |host| host.kill(),
        |host| host.power_off(),
        |host| host.restart(),
        |host| drop(host.pause()),
    ];
    for stop in stops {
        let failure = failure_of(1, move |sim| async move { stop(sim.host("test")) });
        let words = "\"test\" runs the test itself";
        assert!(failure.contains(words), "{failure}");
    }
}

/// The error that a process returns is in the report.
#[test]
fn process_error_is_in_the_report() {
    let failure = failure_of(1, |sim| async move {
        let host = sim.host("a");
        host.start(|| async { TcpStream::connect("nobody:1").await.map(drop) });
        pending().await
    });
    let words = "no host has this name";
    assert!(failure.contains(words), "{failure}");
    assert!(failure.contains("has returned an error"), "{failure}");
}

#[test]
fn a_process_may_kill_its_own_host() {
    polder_sim::check(0..4, |sim| async move {
        let host = sim.host("host");
        let process = host.clone().start(move || {
            let host = host.clone();
            async move {
                host.kill();
                pending::<()>().await
            }
        });
        assert_eq!(process.finished().await, Exit::Killed);
    });
}

#[test]
fn a_paused_process_does_nothing_and_then_goes_on() {
    polder_sim::check(0..10, |sim| async move {
        let ticks = Rc::new(Cell::new(0));
        let count = ticks.clone();
        let host = sim.host("host").start(move || {
            let count = count.clone();
            async move {
                loop {
                    sleep(ms(100)).await;
                    count.set(count.get() + 1);
                }
            }
        });
        sleep(ms(1_050)).await;
        assert_eq!(ticks.get(), 10);
        let pause = host.pause();
        sleep(secs(10)).await;
        assert_eq!(ticks.get(), 10);
        drop(pause);
        sleep(ms(1_050)).await;
        assert!((20..=22).contains(&ticks.get()), "{}", ticks.get());
    });
}

#[test]
fn quiet_ends_every_fault() {
    polder_sim::check(0..10, |sim| async move {
        let serve = || async {
            let listener = TcpListener::bind("0.0.0.0:1").await.unwrap();
            loop {
                listener.accept().await.unwrap();
            }
        };
        let [a, b, c] = ["a", "b", "c"].map(|name| sim.host(name).start(serve));
        sleep(ms(1)).await;
        sim.links().loss(1.0);
        let faults = (
            a.pause(),
            sim.cut(&["test"], &["b"]),
            sim.hold(&["c"], &["test"]),
        );
        b.kill();
        c.power_off();
        sleep(secs(1)).await;
        sim.quiesce();
        sleep(ms(1)).await;
        for address in ["a:1", "b:1", "c:1"] {
            let limit = secs(1);
            TcpStream::connect_timeout(address, limit).await.unwrap();
        }
        drop(faults);
    });
}

#[test]
fn what_is_not_simulated_says_so() {
    polder_sim::check(0..1, |_| async {
        let is_refused = |error: std::io::Error| {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(
                error.to_string().contains("not in a simulated world"),
                "{error}"
            );
        };
        let real = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        is_refused(UdpSocket::try_from(real).unwrap_err());
        is_refused(polder::Runtime::new().unwrap_err());
        is_refused(polder::process::Command::new("true").spawn().unwrap_err());
        is_refused(
            polder::process::Command::new("true")
                .output()
                .await
                .unwrap_err(),
        );
        is_refused(polder::Runtime::builder().workers(2).build().unwrap_err());
        let real = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        is_refused(TcpListener::try_from(real).unwrap_err());
        let simulated = TcpListener::bind("127.0.0.1:0").await.unwrap();
        is_refused(std::net::TcpListener::try_from(simulated).unwrap_err());
    });
}

#[test]
fn a_simulated_socket_on_another_thread_says_so() {
    polder_sim::check(0..1, |_| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let elsewhere = std::thread::spawn(move || listener.local_addr().unwrap_err());
        assert_eq!(elsewhere.join().unwrap().kind(), ErrorKind::Unsupported);
    });
}

/// Calls for threads of the pool fail in a world with an error that says so.
#[test]
fn pool_threads_in_world_are_refused() {
    use polder::io::{AsyncSeekExt, Unblock};
    use std::io::{Cursor, SeekFrom};

    let is_refused = |error: std::io::Error| {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let words = error.to_string();
        assert!(words.contains("io::Unblock: not in a simulated"), "{words}");
    };
    polder_sim::check(0..2, |sim| async move {
        let reader = sim.host("reader").start(move || async move {
            let mut file = Unblock::new(std::fs::File::open("Cargo.toml").unwrap());
            is_refused(file.read_to_string(&mut String::new()).await.unwrap_err());
            is_refused(file.seek(SeekFrom::Start(0)).await.unwrap_err());
            assert!(file.get_mut().await.metadata().unwrap().is_file());
            let mut sink = Unblock::new(Cursor::new(Vec::new()));
            is_refused(sink.write_all(b"bytes").await.unwrap_err());
            is_refused(sink.flush().await.unwrap_err());
            is_refused(sink.close().await.unwrap_err());
            assert!(sink.into_inner().await.into_inner().is_empty());
        });
        reader.finished().within(secs(1)).await;
    });
    // The operation has no way to return an error.
    let failure = failure_of(1, |_| async {
        Unblock::new(1..4).with_mut(|it| it.len()).await;
    });
    assert!(failure.contains("io::Unblock: not in a simulated"));
    let failure = failure_of(1, |_| async {
        use polder::stream::StreamExt;
        Unblock::new(1..4).next().await;
    });
    assert!(failure.contains("io::Unblock: not in a simulated"));
}

/// A read that another thread began can be dropped in a world.
#[test]
fn read_begun_by_other_thread_can_be_dropped() {
    use polder::io::Unblock;
    use std::sync::Mutex;

    // A read has started, and lasts until the test is over.
    struct Slow(Arc<Mutex<()>>);
    impl std::io::Read for Slow {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            drop(self.0.lock());
            Ok(0)
        }
    }
    let gate = Arc::new(Mutex::new(()));
    let open = gate.lock().unwrap();
    let mut slow = Unblock::new(Slow(gate.clone()));
    let mut bytes = [0; 4];
    let begun = polder::block_on(polder::future::poll_once(slow.read(&mut bytes)));
    assert!(begun.is_none());
    let slow = Arc::new(Mutex::new(Some(slow)));
    let there = slow.clone();
    let report = polder_sim::run(1, move |_| {
        let slow = there.lock().unwrap().take().unwrap();
        async move {
            let mut slow = slow;
            let error = slow.read(&mut [0; 4]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        }
    });
    assert_eq!(report.failure, None);
    drop(open);
}

/// The task belongs to the running process, or to a waiting one.
#[test]
fn a_wake_from_another_thread_fails_the_run() {
    for is_other in [true, false] {
        let failure = failure_of(1, move |sim| async move {
            let event = Arc::new(Event::new());
            let (set, wait) = (event.clone(), event.clone());
            let wait = move || {
                let wait = wait.clone();
                async move { wait.wait().await }
            };
            if is_other {
                drop(sim.host("other").start(wait));
            } else {
                polder::spawn_local(wait()).detach();
            }
            sleep(ms(1)).await;
            std::thread::spawn(move || set.set()).join().unwrap();
            pending().await
        });
        assert!(failure.contains("woken by another thread"), "{failure}");
    }
}

/// An unblocked function runs in line after a delay.
#[test]
fn unblock_runs_in_line_after_delay() {
    polder_sim::check(0..5, |sim| async move {
        let thread = std::thread::current().id();
        let there = polder::unblock(move || std::thread::current().id()).await;
        assert_eq!(thread, there);
        assert!(sim.now() >= Duration::from_micros(5) && sim.now() < ms(1));
        // A call that is cancelled before it starts never runs.
        let ran = Arc::new(AtomicU32::new(0));
        let count = ran.clone();
        sim.host("test").blocking(Latency::fixed(secs(1)));
        drop(polder::unblock(move || {
            count.fetch_add(1, Ordering::Relaxed)
        }));
        let count = ran.clone();
        let kept = polder::unblock(move || count.fetch_add(10, Ordering::Relaxed));
        sleep(secs(2)).await;
        assert_eq!(ran.load(Ordering::Relaxed), 10);
        kept.await;
    });
}

/// `unblock` calls of a paused process wait for its resumption, and end with the process.
#[test]
fn unblock_of_paused_process_waits() {
    polder_sim::check(0..5, |sim| async move {
        let ran = Arc::new(AtomicU32::new(0));
        let count = ran.clone();
        let host = sim.host("host").start(move || {
            let count = count.clone();
            async move {
                polder::unblock(move || count.fetch_add(1, Ordering::Relaxed)).await;
                pending::<()>().await
            }
        });
        host.blocking(Latency::fixed(ms(10)));
        sleep(ms(5)).await;
        let pause = host.pause();
        sleep(secs(1)).await;
        assert_eq!(ran.load(Ordering::Relaxed), 0);
        drop(pause);
        sleep(ms(1)).await;
        assert_eq!(ran.load(Ordering::Relaxed), 1);
        host.restart();
        sleep(ms(5)).await;
        host.kill();
        sleep(secs(1)).await;
        assert_eq!(ran.load(Ordering::Relaxed), 1);
        assert_eq!(Arc::strong_count(&ran), 2, "the call is dropped");
    });
}

#[test]
fn outside_of_worlds_the_kernel_answers_as_ever() {
    polder_sim::check(0..1, |_| async {});
    polder::block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stream = std::net::TcpStream::connect(address).unwrap();
        listener.accept().await.unwrap();
        drop(stream);
    });
}

/// An event at the limit's last moment is in time; one after it is not.
#[test]
fn limit_includes_its_last_moment() {
    let test = |late: Duration| {
        move |sim: Sim| async move {
            sim.limit(secs(3));
            sleep(secs(3) + late).await;
        }
    };
    polder_sim::check(0..3, test(Duration::ZERO));
    let failure = failure_of(1, test(Duration::from_nanos(1)));
    assert!(failure.contains("not ended within 3"), "{failure}");
}

/// A lost notification over another crate's channel, beside a timer: nothing else shows it.
#[test]
fn tasks_that_wait_elsewhere_for_long_are_a_hint() {
    use polder::Handle;
    use polder::diagnostics::{Hint, OpenSockets};

    polder_sim::check(0..5, |_| async {
        let (sender, receiver) = async_channel::bounded::<()>(1);
        let waits = || {
            let receiver = receiver.clone();
            async move { receiver.recv().await.is_err() }
        };
        let lost: Vec<_> = (0..3).map(|_| polder::spawn(waits())).collect();
        // What is polled now and then does not wait for long.
        let busy = receiver.clone();
        let _busy =
            polder::spawn(async move { while timeout(secs(1), busy.recv()).await.is_err() {} });
        let handle = Handle::current();
        sleep(secs(9)).await;
        assert_eq!(handle.dump().hints, []);
        // Since the last poll long enough, but seen only now.
        sleep(secs(2)).await;
        assert_eq!(handle.dump().hints, []);
        sleep(secs(2)).await;
        let dump = handle.dump();
        let [
            Hint::WaitsElsewhere {
                task,
                tasks,
                since,
                at_most,
            },
        ] = dump.hints[..]
        else {
            panic!("{dump}");
        };
        let first = lost.iter().map(|task| Some(task.id())).min().unwrap();
        assert_eq!((task.id, tasks), (first, 3));
        assert!(since == secs(4) && at_most >= secs(13), "{dump}");
        let text = ", and 2 more there, waiting for at least 4.0 s and at most";
        assert!(dump.to_string().contains(text), "{dump}");
        // Sockets of other tests, and of the system, are not a world's.
        let _socket = UdpSocket::bind("0.0.0.0:1").await.unwrap();
        assert_eq!(handle.metrics().open_sockets, OpenSockets::default());
        drop(sender);
        for task in lost {
            task.await;
        }
        assert_eq!(handle.dump().hints, []);
    });
}
