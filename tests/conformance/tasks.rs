//! Tasks: rules 44 to 47, the part of rule 58 about `unblock`, and related behaviour.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use futures_lite::FutureExt;
use polder::event::{Event, Latch};
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::task::{self, AbortHandle};
use polder::time::{MissedTickBehavior, interval, sleep};
use polder::{Backend, Handle, Runtime, Task, TaskSet, Timer, future};

use crate::child::{in_children, in_children_and_judge};
use crate::peer::beside;
use crate::probe::{
    Alive, Mailbox, OnDrop, Signal, always_yields, hold, holding, join_all, listen, own_waker,
    poll_with, tcp_pair,
};
use crate::support::{
    LIMIT, eventually, in_every_kernel_runtime, in_every_kernel_runtime_alone, in_every_runtime,
    in_every_runtime_alone, is_in_world, message, on_every_backend, on_every_backend_with_several,
    runtime, sized, until, with_every_runtime, with_every_runtime_alone,
    with_every_runtime_of_several,
};

// 44: driven, and reached from other threads.

/// Spawned work runs only while the runtime is driven.
#[test]
fn spawned_runs_only_while_driven() {
    with_every_runtime_alone(|runtime, _| {
        let step = Arc::new(AtomicUsize::new(0));
        let task = runtime.spawn({
            let step = step.clone();
            async move {
                step.store(1, SeqCst);
                sleep(Duration::from_millis(1)).await;
                step.store(2, SeqCst);
            }
        });
        let handle = runtime.handle();
        let foreign = thread::spawn(move || handle.spawn(async {}))
            .join()
            .unwrap();
        thread::sleep(Duration::from_millis(2));
        assert_eq!(step.load(SeqCst), 0, "it ran before anybody drove it");
        runtime.run_once(Duration::ZERO);
        assert_eq!(step.load(SeqCst), 1, "a turn runs what is ready");
        thread::sleep(Duration::from_millis(3));
        assert_eq!(step.load(SeqCst), 1, "its timer fired, and nobody drove it");
        runtime.block_on(task);
        assert_eq!(step.load(SeqCst), 2);
        runtime.block_on(foreign);
    });
}

/// Tasks that keep a worker busy in different ways: by yielding; by waking each other, so that one
/// of two is always ready and neither yields; by spawning a successor.
fn burden(spawn: &impl Fn(future::Boxed<()>)) {
    for _ in 0..8 {
        spawn(Box::pin(always_yields()));
        let (ping, pong) = (Signal::default(), Signal::default());
        ping.send(());
        for (one, other) in [(ping.clone(), pong.clone()), (pong, ping)] {
            spawn(Box::pin(async move {
                loop {
                    one.receive().await;
                    other.send(());
                }
            }));
        }
        spawn(heir());
    }
}

fn heir() -> future::Boxed<()> {
    Box::pin(async { polder::spawn(heir()).detach() })
}

/// Passes `rule` an idle runtime and a busy one, on every backend.
fn idle_and_busy(rule: impl Fn(Runtime, Backend) + Clone + Send + 'static) {
    on_every_backend(move |backend| {
        rule(runtime(backend), backend);
        let busy = runtime(backend);
        burden(&|future| busy.spawn(future).detach());
        rule(busy, backend);
    });
}

/// A thread that answers until it is dropped.
struct Answering {
    asked: mpsc::Sender<usize>,
    answers: Mailbox<usize>,
    thread: thread::JoinHandle<()>,
}

impl Answering {
    /// The thread calls `answer` with each round that it is asked.
    fn start(answer: impl Fn(usize, &Mailbox<usize>) + Send + 'static) -> Answering {
        let answers = Mailbox::default();
        let (asked, ask) = mpsc::channel();
        let thread = thread::spawn({
            let answers = answers.clone();
            move || ask.into_iter().for_each(|round| answer(round, &answers))
        });
        Answering {
            asked,
            answers,
            thread,
        }
    }

    async fn ask(&self, rounds: usize) {
        for round in 0..rounds {
            self.asked.send(round).unwrap();
            assert_eq!(self.answers.receive().await, round);
        }
    }

    fn join(self) {
        drop(self.asked);
        self.thread.join().unwrap();
    }
}

/// A spawn from another thread reaches an idle and a busy runtime.
#[test]
fn spawn_elsewhere_reaches_idle_and_busy() {
    idle_and_busy(|runtime, backend| {
        let handle = runtime.handle();
        let thread = Answering::start(move |round, answers| {
            let answers = answers.clone();
            handle.spawn(async move { answers.send(round) }).detach();
        });
        runtime.block_on(thread.ask(sized(backend, 2_000)));
        thread.join();
    });
}

/// A wake from another thread reaches an idle and a busy runtime.
#[test]
fn wake_elsewhere_reaches_idle_and_busy() {
    idle_and_busy(|runtime, backend| {
        let thread = Answering::start(|round, answers| answers.send(round));
        // The future of `block_on` waits for one half, a task for the other half.
        let count = sized(backend, 1_000);
        runtime.block_on(thread.ask(count));
        let task = runtime.spawn_local(async move {
            thread.ask(count).await;
            thread
        });
        runtime.block_on(task).join();
    });
}

/// Ten thousand spawns from each of eight threads all run.
///
/// Spawns more tasks together than the ring of the inbox holds.
#[test]
fn ten_thousand_spawns_from_8_threads() {
    idle_and_busy(|runtime, backend| {
        let each = sized(backend, 10_000);
        let count = Arc::new(AtomicUsize::new(0));
        let all = Signal::default();
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (handle, count, all) = (runtime.handle(), count.clone(), all.clone());
                thread::spawn(move || {
                    for _ in 0..each {
                        let (count, all) = (count.clone(), all.clone());
                        let task = handle.spawn(async move {
                            if count.fetch_add(1, SeqCst) + 1 == 8 * each {
                                all.send(());
                            }
                        });
                        task.detach();
                    }
                })
            })
            .collect();
        runtime.block_on(all.receive());
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(count.load(SeqCst), 8 * each);
    });
}

#[test]
fn what_one_thread_spawns_starts_in_its_order() {
    with_every_runtime_alone(|runtime, backend| {
        let each = sized(backend, 20_000);
        // The number of tasks that have started, by spawning thread.
        let started: Arc<[AtomicUsize; 4]> = Arc::default();
        let done = Mailbox::default();
        let threads: Vec<_> = (0..started.len())
            .map(|me| {
                let (handle, started, done) = (runtime.handle(), started.clone(), done.clone());
                thread::spawn(move || {
                    for index in 0..each {
                        let (started, done) = (started.clone(), done.clone());
                        let task = handle.spawn(async move {
                            let before = started[me].fetch_add(1, SeqCst);
                            if before != index {
                                done.send(Err(format!("number {index} started as {before}")));
                            } else if index + 1 == each {
                                done.send(Ok(()));
                            }
                        });
                        task.detach();
                    }
                })
            })
            .collect();
        let results = runtime.block_on(async {
            let mut results = Vec::new();
            for _ in 0..threads.len() {
                results.push(done.receive().await);
            }
            results
        });
        for thread in threads {
            thread.join().unwrap();
        }
        for result in results {
            result.expect("what one thread spawns starts in its order");
        }
    });
}

#[test]
fn local_spawns_start_in_their_order() {
    with_every_runtime(|runtime, _| {
        let order = Rc::new(RefCell::new(Vec::new()));
        let spawn = |index: usize| {
            let order = order.clone();
            async move { order.borrow_mut().push(index) }
        };
        // From outside the runtime, through the inbox's ring and its overflow.
        for index in 0..1_000 {
            runtime.spawn_local(spawn(index)).detach();
        }
        runtime.run();
        assert!(order.borrow().iter().copied().eq(0..1_000));
        order.borrow_mut().clear();
        // From inside the runtime.
        runtime.block_on(async {
            join_all((0..1_000).map(|index| polder::spawn_local(spawn(index)))).await;
        });
        assert!(order.borrow().iter().copied().eq(0..1_000));
    });
}

// 45: no task is starved.

#[test]
fn block_on_returns_under_full_load() {
    with_every_runtime(|runtime, _| {
        burden(&|future| runtime.spawn(future).detach());
        assert_eq!(runtime.block_on(async { 1 }), 1);
        runtime.block_on(async {
            for _ in 0..100 {
                future::yield_now().await;
            }
        });
        let task = runtime.spawn(async {
            for _ in 0..100 {
                future::yield_now().await;
            }
            2
        });
        assert_eq!(runtime.block_on(task), 2);
    });
}

/// I/O and timers, in tasks and in the future of `block_on`.
async fn io_and_timers() {
    async fn trips(mut a: TcpStream, mut b: TcpStream) {
        let mut byte = [0];
        for round in 0..50 {
            future::zip(async { a.write_all(&[round]).await.unwrap() }, async {
                b.read_exact(&mut byte).await.unwrap()
            })
            .await;
            assert_eq!(byte, [round]);
            std::mem::swap(&mut a, &mut b);
        }
    }
    let (a, b) = tcp_pair().await;
    let (c, d) = tcp_pair().await;
    let task = polder::spawn(trips(c, d));
    let timer = polder::spawn(async {
        for _ in 0..5 {
            sleep(Duration::from_millis(1)).await;
        }
    });
    trips(a, b).await;
    sleep(Duration::from_millis(1)).await;
    task.await;
    timer.await;
}

/// I/O and timers are served while a task always is ready.
#[test]
fn io_and_timers_served_beside_ready_task() {
    in_every_runtime(|_| async {
        burden(&|future| polder::spawn(future).detach());
        io_and_timers().await;
    });
}

/// Returns a counter of the task's polls.
fn spawn_one_that_always_yields() -> Arc<AtomicUsize> {
    let turns = Arc::new(AtomicUsize::new(0));
    let count = turns.clone();
    polder::spawn(async move {
        loop {
            count.fetch_add(1, SeqCst);
            future::yield_now().await;
        }
    })
    .detach();
    turns
}

#[test]
fn a_task_that_always_yields_starves_nobody() {
    in_every_runtime(|_| async {
        let yields = spawn_one_that_always_yields();
        io_and_timers().await;
        assert!(yields.load(SeqCst) > 0);
    });
}

/// Tasks that are ready when a task yields run before it runs again.
///
/// A loop of yields must not get ahead of the kernel, the clock and other threads: everything that
/// is ready when a task yields runs before that task runs again. Otherwise events would be served
/// late, by the time that all yielding tasks take.
#[test]
fn yield_runs_ready_tasks_first() {
    in_every_runtime_alone(|_| async {
        let (mut near, far) = tcp_pair().await;
        let mut far: std::net::TcpStream = far.try_into().unwrap();
        // The same socket as `near`, used to look at the kernel's buffer.
        let kernel: std::net::TcpStream = near.clone().try_into().unwrap();
        let [read, fired, woken] = [(); 3].map(|()| Rc::new(Cell::new(0)));
        let signal = Signal::default();
        let deadlines = Mailbox::default();
        let _reader = polder::spawn_local({
            let read = read.clone();
            async move {
                while near.read_exact(&mut [0]).await.is_ok() {
                    read.set(read.get() + 1);
                }
            }
        });
        let _sleeper = polder::spawn_local({
            let (fired, deadlines) = (fired.clone(), deadlines.clone());
            async move {
                let mut timer = Timer::at(deadlines.receive().await);
                loop {
                    (&mut timer).await;
                    fired.set(fired.get() + 1);
                    timer.set_at(deadlines.receive().await);
                }
            }
        });
        let _waiter = polder::spawn_local({
            let (woken, signal) = (woken.clone(), signal.clone());
            async move {
                loop {
                    signal.receive().await;
                    woken.set(woken.get() + 1);
                }
            }
        });
        polder::spawn_local(async move {
            for round in 1..=20 {
                let deadline = polder::time::now() + Duration::from_millis(2);
                deadlines.send(deadline);
                // After this loop each of the three tasks waits.
                for _ in 0..3 {
                    future::yield_now().await;
                }
                assert_eq!(read.get(), round - 1);
                far.write_all(b"x").unwrap();
                let signal = signal.clone();
                thread::spawn(move || signal.send(())).join().unwrap();
                eventually("the byte is there", || kernel.peek(&mut [0]).is_ok());
                eventually("the timer is due", || polder::time::now() >= deadline);
                future::yield_now().await;
                let ran = [read.get(), woken.get(), fired.get()];
                assert_eq!(ran, [round; 3], "read, woken, fired");
            }
        })
        .await;
    });
}

#[test]
fn block_on_yielding_starves_nobody() {
    in_every_runtime(|_| async {
        let task = polder::spawn(io_and_timers());
        while !task.is_finished() {
            future::yield_now().await;
        }
        task.await;
    });
}

#[test]
fn always_ready_socket_frees_loop() {
    on_every_backend(|backend| {
        const CHUNK: usize = 64 * 1024;
        let total = sized(backend, 200_000_000);
        // Another thread sends, so that there is always something to receive.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let sender = thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let chunk = [7; CHUNK];
            let mut left = total;
            while left > 0 {
                let n = left.min(CHUNK);
                stream.write_all(&chunk[..n]).unwrap();
                left -= n;
            }
        });
        runtime(backend).block_on(async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let reader = polder::spawn_local(async move {
                let mut bytes = vec![0; CHUNK];
                let mut received = 0;
                // Counts the reads that succeed within one poll, which needs no clock.
                let (reads, most) = (Cell::new(0), Cell::new(0));
                let mut reading = Box::pin(async {
                    loop {
                        match stream.read(&mut bytes).await.unwrap() {
                            0 => return received,
                            n => received += n,
                        }
                        reads.set(reads.get() + 1);
                        most.set(most.get().max(reads.get()));
                    }
                });
                let received = poll_fn(|cx| {
                    reads.set(0);
                    reading.poll(cx)
                })
                .await;
                (received, most.get())
            });
            let mut ticks =
                interval(Duration::from_millis(1)).missed_ticks(MissedTickBehavior::Delay);
            let mut late = Vec::new();
            while !reader.is_finished() {
                late.push(ticks.tick().await.elapsed());
            }
            let (received, most) = reader.await;
            assert_eq!(received, total);
            assert!(most <= 128, "{most} reads succeeded within one poll");
            late.sort();
            // The machine may be busy elsewhere for a while, but not most of the time.
            let median = late[late.len() / 2];
            assert!(
                median < LIMIT / 6,
                "half of {} ticks were more than {median:?} late",
                late.len()
            );
        });
        sender.join().unwrap();
    });
}

/// Timers that are due and listeners that are full let others run.
///
/// The operations of one poll share its budget, and continue in the next poll.
#[test]
fn due_timers_and_full_listeners_yield() {
    // One worker: with several, the one that runs `others` may get no processor until `task` is
    // done.
    in_every_runtime_alone(|_| async {
        let others = spawn_one_that_always_yields();
        let task = polder::spawn(async move {
            for _ in 0..1_000 {
                Timer::after(Duration::ZERO).await;
            }
        });
        task.await;
        let turns = others.load(SeqCst);
        assert!(turns >= 5, "the other task had {turns} turns");
    });
}

/// Events latches and tasks that are done let others run.
///
/// Operations that never have to wait: on events and latches that are set, on finished tasks, and
/// on a budget that is consumed by hand.
#[test]
fn events_latches_finished_tasks_yield() {
    in_every_runtime_alone(|_| async {
        let others = spawn_one_that_always_yields();
        let let_run = async |what: &str, operations: future::Boxed<()>| {
            let before = others.load(SeqCst);
            polder::spawn(operations).await;
            let turns = others.load(SeqCst) - before;
            assert!(turns >= 5, "{what}: the other task had {turns} turns");
        };

        let operations = Box::pin(async {
            let event = Event::new();
            for _ in 0..1_000 {
                event.set();
                event.wait().await;
                assert!(!event.is_set());
            }
        });
        let_run("an event", operations).await;

        let operations = Box::pin(async {
            let latch = Latch::new();
            latch.set();
            for _ in 0..1_000 {
                latch.wait().await;
            }
        });
        let_run("a latch", operations).await;

        let done: Vec<_> = (0..1_000)
            .map(|n| polder::spawn(async move { n }))
            .collect();
        until("all are done", || done.iter().all(Task::is_finished)).await;
        let operations = Box::pin(async {
            for (n, task) in done.into_iter().enumerate() {
                assert_eq!(task.await, n);
            }
        });
        let_run("tasks", operations).await;

        let mut set = TaskSet::new();
        set.extend((0..1_000).map(|n| async move { n }));
        until("all are done", || set.try_join_next().is_some()).await;
        future::yield_now().await;
        let operations = Box::pin(async move { while set.join_next().await.is_some() {} });
        let_run("a set of tasks", operations).await;

        let operations = Box::pin(async {
            for _ in 0..1_000 {
                polder::task::consume_budget().await;
            }
        });
        let_run("consuming the budget", operations).await;
    });
}

// 46: panics.

#[test]
fn a_panicking_task_takes_nobody_with_it() {
    with_every_runtime(|runtime, _| {
        let others: Vec<_> = (0..10)
            .map(|index| {
                runtime.spawn(async move {
                    sleep(Duration::from_millis(1)).await;
                    index
                })
            })
            .collect();
        let polled_later = runtime.spawn(async {
            future::yield_now().await;
            panic!("on purpose, at the second poll");
        });
        let at_once = runtime.spawn_local(async { panic!("on purpose, at the first poll") });
        runtime.block_on(async {
            assert_eq!(join_all(others).await, (0..10).collect::<Vec<_>>());
            for task in [polled_later, at_once] {
                let task: Task<()> = task;
                let panic = AssertUnwindSafe(task).catch_unwind().await.unwrap_err();
                assert!(message(&*panic).starts_with("on purpose"));
            }
            io_and_timers().await;
        });
    });
}

#[test]
fn whoever_awaits_a_panicking_task_sees_its_panic() {
    on_every_backend(|backend| {
        #[derive(PartialEq, Debug)]
        struct Reason(u32);
        async fn fail() {
            sleep(Duration::from_millis(1)).await;
            panic_any(Reason(5));
        }
        let runtime = runtime(backend);
        let handle = runtime.handle();
        let reason = |result: thread::Result<()>| {
            *result
                .expect_err("it panicked")
                .downcast::<Reason>()
                .expect("it is what it panicked with")
        };
        runtime.block_on(async {
            for task in [
                polder::spawn(fail()),
                handle.spawn(fail()),
                polder::spawn_local(fail()),
            ] {
                assert_eq!(
                    reason(AssertUnwindSafe(task).catch_unwind().await),
                    Reason(5)
                );
            }
            let fallible = AssertUnwindSafe(polder::spawn(fail()).fallible());
            assert_eq!(reason(fallible.catch_unwind().await.map(drop)), Reason(5));
            let mut late = polder::spawn(fail());
            while !late.is_finished() {
                future::yield_now().await;
            }
            let cancel = AssertUnwindSafe(async { late.cancel().await });
            assert_eq!(reason(cancel.catch_unwind().await.map(drop)), Reason(5));
            // Through a task that awaits it, and on to the task that awaits that task.
            late = polder::spawn(async { polder::spawn(fail()).await });
            assert_eq!(
                reason(AssertUnwindSafe(late).catch_unwind().await),
                Reason(5)
            );
        });
        // On another thread, which drives no runtime.
        let task = runtime.spawn(fail());
        let thread = thread::spawn(move || {
            futures_lite::future::block_on(AssertUnwindSafe(task).catch_unwind())
        });
        runtime.run();
        assert_eq!(reason(thread.join().unwrap()), Reason(5));
    });
}

/// A panic of `block_on`'s future reaches its caller and the runtime goes on.
#[test]
fn block_on_panic_reaches_caller() {
    with_every_runtime(|runtime, _| {
        let task = runtime.spawn(async {
            sleep(Duration::from_millis(1)).await;
            9
        });
        let result = catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(async {
                future::yield_now().await;
                panic!("on purpose");
            })
        }));
        assert_eq!(message(&*result.unwrap_err()), "on purpose");
        assert!(Handle::try_current().is_none(), "it still counts as driven");
        assert_eq!(runtime.block_on(task), 9);
    });
}

#[test]
fn a_panic_that_nobody_awaits_is_reported() {
    let rule = |backend| {
        let runtime = runtime(backend);
        runtime
            .spawn(async { panic!("detached at {}", 1 + 1) })
            .detach();
        runtime.spawn_local(async { panic_any(7) }).detach();
        let dropped = runtime.spawn(async { panic!("dropped later") });
        let awaited = runtime.spawn(async { panic!("awaited") });
        runtime.run();
        drop(dropped);
        let result = catch_unwind(AssertUnwindSafe(|| runtime.block_on(awaited)));
        assert!(result.is_err());
        let blocking: Task<()> = polder::unblock(|| panic!("blocking"));
        eventually("it has panicked", || blocking.is_finished());
        drop(blocking);
    };
    in_children_and_judge(rule, |backend, output| {
        let text = String::from_utf8_lossy(&output.stderr);
        let reports: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("polder: "))
            .collect();
        let expected = ["detached at 2", "not a string", "dropped later", "blocking"];
        assert_eq!(reports.len(), expected.len(), "on {backend}: {text}");
        for (report, words) in reports.iter().zip(expected) {
            assert!(report.contains(words), "on {backend}: {report}");
            assert!(report.contains("tasks.rs:"), "it tells no place: {report}");
        }
    });
}

// 47: cancelling.

/// Yields a few times; every prompt task is done by then.
async fn a_few_turns() {
    for _ in 0..3 {
        future::yield_now().await;
    }
}

#[test]
fn dropping_a_task_drops_its_future_promptly() {
    in_every_runtime_alone(|_| async {
        let alive = Alive::default();
        let (mut stream, _peer) = tcp_pair().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let guard = || alive.guard();
        let waiting: Vec<Task<()>> = vec![
            polder::spawn(hold(guard())),
            polder::spawn_local(hold((Rc::new(()), guard()))),
            polder::spawn(holding(guard(), sleep(Duration::from_secs(3_600)))),
            polder::spawn(holding(guard(), async move {
                stream.read_exact(&mut [0]).await.unwrap();
            })),
            polder::spawn(holding(guard(), async move {
                drop(listener.accept().await);
            })),
            polder::spawn(holding(guard(), always_yields())),
        ];
        assert_eq!(alive.count(), waiting.len());
        a_few_turns().await;
        drop(waiting);
        a_few_turns().await;
        assert_eq!(alive.count(), 0, "of those that had begun");
        drop(polder::spawn(hold(guard())));
        drop(polder::spawn_local(hold(guard())));
        a_few_turns().await;
        assert_eq!(alive.count(), 0, "of those that had not begun");
    });
}

/// A future is dropped on its worker wherever its task is cancelled.
#[test]
fn cancelled_future_dropped_on_its_worker() {
    with_every_runtime_alone(|runtime, _| {
        let worker = thread::current().id();
        for begun in [false, true] {
            for wait in [false, true] {
                let dropped = Mailbox::default();
                let on_drop = OnDrop({
                    let dropped = dropped.clone();
                    move || dropped.send(thread::current().id())
                });
                let task = runtime.spawn(hold(on_drop));
                if begun {
                    runtime.block_on(a_few_turns());
                }
                let thread = thread::spawn(move || {
                    if wait {
                        assert!(futures_lite::future::block_on(task.cancel()).is_none());
                    } else {
                        drop(task);
                    }
                });
                assert_eq!(runtime.block_on(dropped.receive()), worker);
                runtime.run();
                thread.join().unwrap();
            }
        }
    });
}

#[test]
fn cancel_waits_until_the_future_is_dropped() {
    with_every_runtime(|runtime, _| {
        let alive = Alive::default();
        let slow = || {
            let guard = Cell::new(Some(alive.guard()));
            hold(OnDrop(move || {
                thread::sleep(Duration::from_millis(2));
                drop(guard.take());
            }))
        };
        runtime.block_on(async {
            // Before the first poll, after it, and while it is ready to run again.
            assert!(polder::spawn(slow()).cancel().await.is_none());
            assert_eq!(alive.count(), 0);
            let task = polder::spawn_local(slow());
            a_few_turns().await;
            assert!(task.cancel().await.is_none());
            assert_eq!(alive.count(), 0);
            let waker = Mailbox::default();
            let task = polder::spawn({
                let (waker, slow) = (waker.clone(), slow());
                async move {
                    waker.send(own_waker().await);
                    slow.await;
                }
            });
            waker.receive().await.wake();
            assert!(task.cancel().await.is_none());
            assert_eq!(alive.count(), 0);
            // Cancelling a finished task returns its output.
            let task = polder::spawn(async { 3 });
            until("it is done", || task.is_finished()).await;
            assert_eq!(task.cancel().await, Some(3));
        });
        // From another thread.
        let task = runtime.spawn(slow());
        runtime.run_once(Duration::ZERO);
        let thread = thread::spawn({
            let alive = alive.clone();
            move || {
                assert!(futures_lite::future::block_on(task.cancel()).is_none());
                alive.count()
            }
        });
        runtime.run();
        assert_eq!(thread.join().unwrap(), 0, "cancel returned too early");
    });
}

#[test]
fn cancelling_races_with_running_and_with_ending() {
    with_every_runtime(|runtime, backend| {
        let alive = Alive::default();
        let tasks = Mailbox::<Task<usize>>::default();
        let rounds = sized(backend, 5_000);
        let thread = thread::spawn({
            let tasks = tasks.clone();
            move || {
                for round in 0..rounds {
                    let task = futures_lite::future::block_on(tasks.receive());
                    match round % 3 {
                        0 => drop(task),
                        1 => drop(futures_lite::future::block_on(task.cancel())),
                        _ => assert_eq!(futures_lite::future::block_on(task), round),
                    }
                }
            }
        });
        runtime.block_on(async {
            for round in 0..rounds {
                let guard = alive.guard();
                tasks.send(polder::spawn(async move {
                    let _guard = guard;
                    for _ in 0..round % 5 {
                        future::yield_now().await;
                    }
                    round
                }));
                future::yield_now().await;
            }
        });
        runtime.run();
        thread.join().unwrap();
        assert_eq!(alive.count(), 0);
    });
}

/// Panics when it is dropped, unless the thread is panicking already.
fn bomb() -> OnDrop<impl FnMut()> {
    OnDrop(|| {
        if !thread::panicking() {
            panic!("on purpose, in a destructor");
        }
    })
}

/// An abort handle cancels a task that is awaited elsewhere.
///
/// One task, awaited here and aborted elsewhere, in each order.
#[test]
fn abort_handle_cancels_awaited_task() {
    in_every_runtime(|backend| async move {
        for round in 0..sized(backend, 200) {
            let alive = Alive::default();
            let mut task = polder::spawn(hold(alive.guard())).fallible();
            let abort = task.abort_handle();
            let second = task.abort_handle();
            match round % 4 {
                0 => abort.abort(),
                1 => assert!(future::poll_once(&mut task).await.is_none()),
                2 => future::yield_now().await,
                _ => {}
            }
            let other = beside(async move { abort.abort() });
            assert_eq!(task.await, None);
            assert!(second.is_finished());
            assert_eq!(alive.count(), 0, "what the task held is dropped by then");
            other.join().await;
        }
    });
}

/// An abort handle cancels a detached task and keeps none.
#[test]
fn abort_handle_cancels_detached_task() {
    in_every_runtime(|_| async {
        let alive = Alive::default();
        let spawn = || polder::spawn(hold(alive.guard()));
        let task = spawn();
        let abort = task.abort_handle();
        task.detach();
        assert!(!abort.is_finished());
        abort.clone().abort();
        until("the future is dropped", || alive.count() == 0).await;
        until("the task is finished", || abort.is_finished()).await;

        // Dropping the task cancels it, even while abort handles exist.
        let task = spawn();
        let abort = task.abort_handle();
        drop(task);
        until("the future is dropped", || alive.count() == 0).await;
        until("the task is finished", || abort.is_finished()).await;
        let task = spawn();
        let abort = task.abort_handle();
        task.cancel().await;
        assert_eq!(alive.count(), 0);
        assert!(abort.is_finished());

        // Dropping the last handle of a detached task lets the task run.
        let done = Arc::new(Event::new());
        let task = polder::spawn({
            let done = done.clone();
            async move {
                future::yield_now().await;
                done.set();
            }
        });
        let abort = task.abort_handle();
        task.detach();
        drop(abort);
        done.wait().await;
    });
}

#[test]
fn aborting_what_is_done_leaves_its_output() {
    in_every_runtime(|_| async {
        let task = polder::spawn(async { 5 });
        let abort = task.abort_handle();
        until("the task is done", || task.is_finished()).await;
        abort.abort();
        assert_eq!(task.await, 5);
        abort.abort();

        // A call that has begun runs to its end; a call that has not begun is never made.
        let (begun, go_on) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let call = polder::unblock({
            let (begun, go_on) = (begun.clone(), go_on.clone());
            move || {
                begun.store(true, SeqCst);
                eventually("the call may go on", || go_on.load(SeqCst));
                5
            }
        });
        let abort = call.abort_handle();
        until("the call has begun", || begun.load(SeqCst)).await;
        abort.abort();
        assert!(!abort.is_finished());
        go_on.store(true, SeqCst);
        assert_eq!(call.await, 5);
        assert!(abort.is_finished());
    });
}

/// An abort from within the poll of the awaiting side is not lost.
///
/// The waker of the awaiting side aborts the task within a poll with another waker.
#[test]
fn abort_within_awaiters_poll_not_lost() {
    struct Aborts(AbortHandle);
    impl std::task::Wake for Aborts {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Aborts {
        fn drop(&mut self) {
            self.0.abort();
        }
    }
    in_every_runtime(|_| async {
        let alive = Alive::default();
        let mut task = polder::spawn(hold(alive.guard())).fallible();
        // The second poll drops the waker of the first poll.
        let waker = std::task::Waker::from(Arc::new(Aborts(task.abort_handle())));
        assert!(poll_with(&mut task, &waker).is_pending());
        drop(waker);
        let other = std::task::Waker::noop();
        // The task's worker may have finished before this poll.
        if poll_with(&mut task, other).is_pending() {
            assert_eq!(task.await, None);
        }
        assert_eq!(alive.count(), 0);
    });
}

/// Awaiting an aborted task waits until its future is dropped.
///
/// The aborted task's listener is closed by then, whether the task was aborted before or after its
/// first poll, awaited before or not, and with a fallible handle or not.
#[test]
fn aborted_task_awaited_until_future_dropped() {
    in_every_kernel_runtime(|_| async {
        for round in 0..8 {
            let (listener, address) = listen().await;
            let alive = Alive::default();
            // The listener is dropped before the guard.
            let things = (listener, alive.guard());
            let mut task = polder::spawn(async move {
                let things = things;
                things.0.accept().await.map(drop)
            });
            let abort = task.abort_handle();
            if round & 1 != 0 {
                a_few_turns().await;
            }
            if round & 2 != 0 {
                assert!(future::poll_once(&mut task).await.is_none());
            }
            abort.abort();
            if round & 4 != 0 {
                assert!(task.fallible().await.is_none());
            } else {
                let awaited = AssertUnwindSafe(task).catch_unwind().await;
                assert!(awaited.is_err(), "awaiting an aborted task panics");
            }
            assert!(abort.is_finished());
            assert_eq!(alive.count(), 0);
            // A child of another test also holds it, between its `fork` and its `exec`.
            eventually("the port is free", || {
                std::net::TcpListener::bind(address).is_ok()
            });
        }
    });
}

/// Cancelling a task returns the output of a poll under way.
///
/// The poll lasts until the canceller has arrived.
#[test]
fn cancel_returns_output_of_current_poll() {
    on_every_backend_with_several(|backend, _| {
        runtime(backend).block_on(async {
            for round in 0..4 {
                let begun = Arc::new(AtomicBool::new(false));
                let goes_on = Arc::new(AtomicBool::new(false));
                let task = polder::spawn({
                    let (begun, goes_on) = (begun.clone(), goes_on.clone());
                    async move {
                        begun.store(true, SeqCst);
                        eventually("the task is being cancelled", || goes_on.load(SeqCst));
                        5
                    }
                });
                eventually("the poll has begun", || begun.load(SeqCst));
                let abort = task.abort_handle();
                let cancelled = async {
                    match round % 2 {
                        0 => task.cancel().await,
                        _ => {
                            abort.abort();
                            task.fallible().await
                        }
                    }
                };
                let mut cancelled = pin!(cancelled);
                assert!(future::poll_once(&mut cancelled).await.is_none());
                goes_on.store(true, SeqCst);
                assert_eq!(cancelled.await, Some(5));
            }
        });
    });
}

/// No accepted connection is lost when accepting tasks are cancelled.
///
/// Tasks that accept are cancelled again and again; each connection is accepted by one of them.
#[test]
fn cancelled_accepts_lose_no_connection() {
    const CONNECTIONS: usize = 50;
    on_every_backend_with_several(|backend, _| {
        runtime(backend).block_on(async {
            let (listener, address) = listen().await;
            let clients = beside(async move {
                for _ in 0..CONNECTIONS {
                    drop(TcpStream::connect(address).await.unwrap());
                    a_few_turns().await;
                }
            });
            let mut accepted = 0;
            while accepted < CONNECTIONS {
                let listener = listener.clone();
                let task = polder::spawn(async move { listener.accept().await.map(drop) });
                future::yield_now().await;
                if let Some(result) = task.cancel().await {
                    result.unwrap();
                    accepted += 1;
                }
            }
            clients.join().await;
        });
    });
}

/// A task that aborts itself in its last poll has its output.
#[test]
fn abort_of_self_in_last_poll_keeps_output() {
    in_every_runtime(|_| async {
        let slot = Arc::new(Mutex::new(None::<AbortHandle>));
        let task = polder::spawn({
            let slot = slot.clone();
            async move {
                until("the handle is there", || slot.lock().unwrap().is_some()).await;
                slot.lock().unwrap().as_ref().unwrap().abort();
                5
            }
        });
        *slot.lock().unwrap() = Some(task.abort_handle());
        assert_eq!(task.await, 5);
    });
}

#[test]
fn a_function_that_blocks_knows_its_task() {
    in_every_runtime(|_| async {
        let call = polder::unblock(task::id);
        let id = call.id();
        assert_eq!(call.await, Some(id));
        if is_in_world() {
            return; // No runtime is driven within a call there.
        }
        // Within a blocking call, tasks of an inner runtime have their own ids.
        let call = polder::unblock(|| {
            let inner = polder::block_on(async {
                let task = polder::spawn(async { task::id() });
                let id = task.id();
                task.await == Some(id)
            });
            (inner, task::id())
        });
        let id = call.id();
        assert_eq!(call.await, (true, Some(id)));
    });
}

/// Awaiting an aborted call waits until its function is dropped.
///
/// A call that waits for a thread of the pool is aborted.
#[test]
fn aborted_call_awaited_until_function_dropped() {
    in_every_kernel_runtime_alone(|_| async {
        for _ in 0..20 {
            let alive = Alive::default();
            let guard = alive.guard();
            // The drop is slow, so that the other side can arrive before it ends.
            let slow = OnDrop(|| thread::sleep(Duration::from_millis(2)));
            let call = polder::unblock(move || drop((slow, guard)));
            let abort = call.abort_handle();
            let other = beside(async move { abort.abort() });
            call.fallible().await;
            assert_eq!(
                alive.count(),
                0,
                "what the function held is dropped by then"
            );
            other.join().await;
        }
    });
}

/// A destructor of a cancelled future knows its task.
#[test]
fn destructor_on_cancel_knows_its_task() {
    in_every_runtime(|_| async {
        let seen = Arc::new(Mutex::new(None));
        for round in 0..4 {
            let guard = OnDrop({
                let seen = seen.clone();
                move || *seen.lock().unwrap() = Some((task::id(), task::name()))
            });
            let task = task::Builder::new().name("held").spawn(hold(guard));
            let id = task.id();
            if round % 2 == 0 {
                a_few_turns().await;
            }
            match round / 2 {
                0 => drop(task),
                _ => assert_eq!(task.cancel().await, None),
            }
            until("the future is dropped", || seen.lock().unwrap().is_some()).await;
            let (seen_id, seen_name) = seen.lock().unwrap().take().unwrap();
            assert_eq!(seen_id, Some(id));
            assert_eq!(seen_name.as_deref(), Some("held"));
        }
        // After the drop, the current task is the cancelling task again.
        let outer = polder::spawn(async {
            drop(polder::spawn(pending::<()>()));
            future::yield_now().await;
            task::id()
        });
        let id = outer.id();
        assert_eq!(outer.await, Some(id));
    });
}

/// Such an output is dropped after the task's memory, or anywhere.
#[test]
fn a_destructor_of_an_output_knows_its_task() {
    in_every_runtime(|_| async {
        let (seen, here) = (Arc::new(Mutex::new(None)), task::id());
        for way in 0..8 {
            let output = OnDrop({
                let seen = seen.clone();
                move || *seen.lock().unwrap() = Some(task::id())
            });
            let go = Arc::new(Latch::new());
            let returns = {
                let go = go.clone();
                async move {
                    go.wait().await;
                    output
                }
            };
            let mut set = TaskSet::new();
            let (task, abort) = if way < 6 {
                let task = polder::spawn(returns);
                let abort = task.abort_handle();
                (Some(task), abort)
            } else {
                (None, set.spawn(returns))
            };
            let id = task.as_ref().map(Task::id);
            let end = async || {
                go.set();
                until("it is done", || abort.is_finished()).await;
            };
            match (way, task) {
                (0, Some(task)) => {
                    task.detach();
                    end().await;
                }
                (1, Some(task)) => {
                    end().await;
                    task.detach();
                }
                (2, Some(task)) => {
                    end().await;
                    drop(task);
                }
                (3, Some(task)) => {
                    end().await;
                    drop(task.cancel());
                }
                (4, Some(task)) => {
                    end().await;
                    drop(task.fallible());
                }
                (_, Some(task)) => {
                    end().await;
                    // Within another task, which is the current one again afterwards.
                    let drops = polder::spawn(async move {
                        drop(task);
                        task::id()
                    });
                    let other = drops.id();
                    assert_eq!(drops.await, Some(other));
                }
                (6, None) => {
                    end().await;
                    drop(set);
                }
                (_, None) => {
                    set.detach_all();
                    end().await;
                }
            }
            until("the output is dropped", || seen.lock().unwrap().is_some()).await;
            let seen_id = seen.lock().unwrap().take().unwrap();
            if id.is_some() {
                assert_eq!(seen_id, id, "way {way}");
            } else {
                assert!(seen_id.is_some(), "way {way}");
            }
            assert_eq!(task::id(), here);
        }
    });
}

#[test]
fn a_panic_in_a_futures_destructor_is_contained() {
    with_every_runtime(|runtime, _| {
        runtime.block_on(async {
            // Cancelled before its first poll, after its first poll, and with a wait for its end.
            drop(polder::spawn(hold(bomb())));
            a_few_turns().await;
            let task = polder::spawn(hold(bomb()));
            a_few_turns().await;
            drop(task);
            a_few_turns().await;
            assert!(polder::spawn(hold(bomb())).cancel().await.is_none());
            // The future keeps the bomb to its end: it is dropped with the future, after the
            // output.
            struct Done(#[expect(dead_code, reason = "its drop matters")] OnDrop<fn()>);
            impl Future for Done {
                type Output = u32;
                fn poll(
                    self: std::pin::Pin<&mut Self>,
                    _: &mut std::task::Context<'_>,
                ) -> Poll<u32> {
                    Poll::Ready(4)
                }
            }
            let explode: fn() = || panic!("on purpose, after the end");
            assert_eq!(polder::spawn(Done(OnDrop(explode))).await, 4);
            let on_worker = runtime
                .handle()
                .spawn_on_worker(0, move || Done(OnDrop(explode)));
            assert_eq!(on_worker.await, 4);
            polder::spawn(Done(OnDrop(explode))).detach();
            a_few_turns().await;
            // In addition to the task's own panic.
            struct Twice(#[expect(dead_code, reason = "its drop matters")] OnDrop<fn()>);
            impl Future for Twice {
                type Output = ();
                fn poll(
                    self: std::pin::Pin<&mut Self>,
                    _: &mut std::task::Context<'_>,
                ) -> Poll<()> {
                    panic!("the first")
                }
            }
            let on_worker = (runtime.handle()).spawn_on_worker(0, move || Twice(OnDrop(explode)));
            for task in [polder::spawn(Twice(OnDrop(explode))), on_worker] {
                let panic = AssertUnwindSafe(task).catch_unwind().await.unwrap_err();
                assert_eq!(message(&*panic), "the first");
            }
            io_and_timers().await;
        });
        // At the end of the runtime, and in a spawn after that end.
        runtime.spawn(hold(bomb())).detach();
        let waiting = runtime.spawn_local(hold(bomb()));
        runtime.run_once(Duration::ZERO);
        runtime.spawn(hold(bomb())).detach();
        let handle = runtime.handle();
        drop(runtime);
        assert!(futures_lite::future::block_on(waiting.fallible()).is_none());
        assert!(futures_lite::future::block_on(handle.spawn(hold(bomb())).fallible()).is_none());
    });
}

#[test]
fn a_panic_in_an_outputs_destructor_is_contained() {
    in_every_kernel_runtime(|_| async {
        polder::spawn(async { bomb() }).detach();
        a_few_turns().await;
        let task = polder::spawn_local(async { bomb() });
        a_few_turns().await;
        assert!(task.is_finished());
        drop(task);
        // Detached after it is done.
        let task = polder::spawn(async { bomb() });
        a_few_turns().await;
        task.detach();
        // Cancelled from another thread while it ends.
        let task = polder::spawn(async { bomb() });
        let thread = thread::spawn(move || drop(task));
        a_few_turns().await;
        thread.join().unwrap();
        a_few_turns().await;
        // The panic's payload panics when it is dropped.
        let task = polder::spawn(async { panic_any(Mutex::new(Some(bomb()))) });
        a_few_turns().await;
        let task: Task<()> = task;
        drop(task);
        drop(polder::unblock(bomb));
        polder::unblock(bomb).detach();
        io_and_timers().await;
    });
}

// Other properties of tasks.

#[test]
fn is_finished_tells_done_cancelled_and_panicked() {
    in_every_runtime_alone(|_| async {
        let task = polder::spawn(async {});
        assert!(!task.is_finished());
        a_few_turns().await;
        assert!(task.is_finished());
        let endless = polder::spawn(hold(()));
        a_few_turns().await;
        assert!(!endless.is_finished());
        let bad: Task<()> = polder::spawn(async { panic!("on purpose") });
        a_few_turns().await;
        assert!(bad.is_finished());
        assert!(AssertUnwindSafe(bad).catch_unwind().await.is_err());
    });
}

/// A fallible task gives none where a task would panic.
#[test]
fn fallible_task_gives_none_on_panic() {
    with_every_runtime(|first, backend| {
        assert_eq!(first.block_on(first.spawn(async { 1 }).fallible()), Some(1));
        let kept = first.spawn(hold(()));
        let fallible = first.spawn_local(hold(())).fallible();
        let done = first.spawn(async { 2 });
        first.block_on(until("it is done", || done.is_finished()));
        drop(first);
        let second = runtime(backend);
        assert_eq!(second.block_on(fallible), None);
        // Tasks that finished before the shutdown keep their results.
        assert_eq!(second.block_on(done), 2);
        let panic = catch_unwind(AssertUnwindSafe(|| second.block_on(kept))).unwrap_err();
        assert!(message(&*panic).contains("cancelled by runtime shutdown"));
        // Dropping a fallible task cancels it.
        let alive = Alive::default();
        second.block_on(async {
            drop(polder::spawn(hold(alive.guard())).fallible());
            until("it is dropped", || alive.count() == 0).await;
        });
    });
}

/// A large future does not overflow the stack of a worker.
///
/// The spawning side is a pool worker, with a stack of 2 MiB.
#[test]
fn large_future_does_not_overflow_stack() {
    const SIZE: usize = 400 * 1024;
    async fn large() -> usize {
        let bytes = [1_u8; SIZE];
        future::yield_now().await;
        bytes.iter().map(|&byte| usize::from(byte)).sum()
    }
    // Separate functions, so that each has the whole stack.
    let spawns: [fn() -> Task<usize>; 6] = [
        || polder::spawn(large()),
        || task::Builder::new().name("large").spawn(large()),
        || polder::spawn_local(large()),
        || Handle::current().spawn(large()),
        || Handle::current().spawn_on_worker(1, large),
        || {
            let mut set = TaskSet::new();
            set.spawn(large());
            polder::spawn(async move { set.join_next().await.unwrap() })
        },
    ];
    with_every_runtime_of_several(move |runtime, _, _| {
        for spawn in spawns {
            let spawner = runtime.spawn(async move { spawn().await });
            assert_eq!(runtime.block_on(spawner), SIZE);
        }
    });
}

#[test]
fn a_local_task_gives_what_cannot_be_sent() {
    in_every_runtime(|_| async {
        let shared = Rc::new(Cell::new(0));
        let tasks: Vec<Task<Rc<Cell<i32>>>> = (0..10)
            .map(|_| {
                let shared = shared.clone();
                polder::spawn_local(async move {
                    future::yield_now().await;
                    shared.set(shared.get() + 1);
                    sleep(Duration::from_millis(1)).await;
                    shared
                })
            })
            .collect();
        for output in join_all(tasks).await {
            assert!(Rc::ptr_eq(&output, &shared));
            assert_eq!(output.get(), 10);
        }
        assert_eq!(Rc::strong_count(&shared), 1);
    });
}

#[test]
fn a_task_moves_into_another_task() {
    in_every_runtime(|_| async {
        let signal = Signal::default();
        let mut polled = polder::spawn({
            let signal = signal.clone();
            async move {
                signal.receive().await;
                5
            }
        });
        // Polled here first: only the waiter that polls last is woken.
        assert!(future::poll_once(&mut polled).await.is_none());
        let outer = polder::spawn(async move {
            polder::spawn(polled).await + polder::spawn_local(async { 1 }).await
        });
        a_few_turns().await;
        signal.send(());
        assert_eq!(outer.await, 6);
        // The inner task is dropped with the outer task.
        let alive = Alive::default();
        let inner = polder::spawn(hold(alive.guard()));
        let outer = polder::spawn(inner);
        a_few_turns().await;
        drop(outer);
        until("both are dropped", || alive.count() == 0).await;
    });
}

/// `spawn_local` on a plain thread panics with words.
#[test]
fn spawn_local_on_plain_thread_panics() {
    let spawns: [fn(); 2] = [
        || polder::spawn_local(async {}).detach(),
        || task::Builder::new().spawn_local(async {}).detach(),
    ];
    for spawn in spawns {
        let panic = catch_unwind(spawn).unwrap_err();
        let words = message(&*panic);
        assert!(
            words.contains("polder::spawn_local")
                && words.contains("Runtime::spawn_local,")
                && words.contains("spawn_local_on of a task::Builder"),
            "it says neither what was wrong nor what to do: {words}"
        );
    }
}

/// Wakers are foreign code, and so are their destructors. The test runs in its own process, since a
/// failure here would abort the process.
#[test]
fn a_wakers_destructor_may_run_a_runtime() {
    struct Runs(Arc<AtomicUsize>);
    impl std::task::Wake for Runs {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Runs {
        fn drop(&mut self) {
            polder::block_on(async {
                polder::spawn(async {}).await;
            });
            self.0.fetch_add(1, SeqCst);
        }
    }
    let rule = async {
        let ran = Arc::new(AtomicUsize::new(0));
        let waker = || Arc::new(Runs(ran.clone())).into();
        let (mut stream, mut peer) = tcp_pair().await;
        let mut byte = [0];
        let mut timer = Timer::after(Duration::from_secs(3_600));
        let signal = Signal::default();
        let mut task = polder::spawn({
            let signal = signal.clone();
            async move { signal.receive().await }
        });
        for _ in 0..2 {
            assert!(poll_with(&mut stream.read(&mut byte), &waker()).is_pending());
            assert!(poll_with(&mut timer, &waker()).is_pending());
            assert!(poll_with(&mut task, &waker()).is_pending());
        }
        // Each of these replaces the second waker, and drops its last reference.
        peer.write_all(&[1]).await.unwrap();
        assert_eq!(stream.read(&mut byte).await.unwrap(), 1);
        assert!(future::poll_once(&mut timer).await.is_none());
        signal.send(());
        task.await;
        a_few_turns().await;
        assert_eq!(ran.load(SeqCst), 6, "a waker was left behind");
    };
    in_children(|backend| runtime(backend).block_on(rule));
}

// Rule 58, the part about `unblock`.

#[test]
fn a_panic_in_unblock_reaches_whoever_awaits() {
    in_every_runtime(|_| async {
        let task: Task<()> = polder::unblock(|| resume_unwind(Box::new(11_u8)));
        let panic = AssertUnwindSafe(task).catch_unwind().await.unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&11_u8));
        let task: Task<()> = polder::unblock(|| panic!("on purpose"));
        let panic = AssertUnwindSafe(task.fallible()).catch_unwind().await;
        assert_eq!(message(&*panic.unwrap_err()), "on purpose");
        assert_eq!(polder::unblock(|| 12).await, 12, "the pool goes on");
    });
}

/// Cancelling a call drops it, or waits for its end and returns its output.
#[test]
fn cancel_call_drops_or_waits_for_output() {
    in_every_runtime_alone(|_| async {
        let (begun, has_begun) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let task = polder::unblock(move || {
            begun.send(()).unwrap();
            ended.recv().unwrap()
        });
        has_begun.recv().unwrap();
        let mut cancelled = Box::pin(task.cancel());
        assert!(future::poll_once(&mut cancelled).await.is_none());
        end.send(14).unwrap();
        assert_eq!(cancelled.await, Some(14));
        // A dropped call that has not begun never begins: either it has begun, or its closure is
        // dropped.
        for _ in 0..100 {
            let began = Arc::new(AtomicBool::new(false));
            let begins = began.clone();
            drop(polder::unblock(move || begins.store(true, SeqCst)));
            if Arc::strong_count(&began) > 1 {
                eventually("it is called", || began.load(SeqCst));
            }
        }
    });
}

/// The blocking pool grows and retires idle threads.
///
/// The pool is per process, so this test runs in its own process.
#[test]
#[cfg(target_os = "linux")]
fn blocking_pool_grows_and_retires() {
    const CALLS: usize = 20;

    let threads = || crate::child::threads_called("polder-blocking").len();
    let rule = |backend| {
        let runtime = runtime(backend);
        assert_eq!(threads(), 0, "a pool that nobody has used");
        for _ in 0..2 {
            // Each call waits for all the others, so they must run at the same time.
            let barrier = Arc::new(std::sync::Barrier::new(CALLS));
            let calls = (0..CALLS).map(|_| {
                let barrier = barrier.clone();
                polder::unblock(move || barrier.wait().is_leader())
            });
            runtime.block_on(join_all(calls));
            assert!(threads() > 0, "idle threads stay for a while");
            eventually("idle threads are retired", || threads() == 0);
        }
    };
    in_children(rule);
}
